//! Signals with a store, through its methods.

use super::*;
use crate::disk::ForgetfulDisk;
use crate::memory::{Environment, OpenMode};

fn who() -> Actor {
    Actor { uid: 0, gid: 0, name: "root".into() }
}

fn memory() -> (Arc<Memory>, BranchId) {
    let memory =
        Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, Environment::real(who())).unwrap();
    let main = memory.root("main").unwrap();
    (memory, main)
}

#[test]
fn a_signal_lasts_as_long_as_the_lease_that_it_is_bound_to() {
    let (memory, main) = memory();
    memory.set(&who(), main, Setting::SignalTtl, LEASE).unwrap();
    let lease = memory.hold_lease(&who(), main).unwrap();
    memory.claim_signal(&who(), main, &"k".into(), 0o644).unwrap();
    assert!(memory.signal(main, "k").unwrap().is_some());
    drop(lease);
    assert!(memory.signal(main, "k").unwrap().is_none());
}

#[test]
fn the_mode_of_a_signal_is_the_one_that_was_set_without_other_bits() {
    let (memory, main) = memory();
    let key = "k".into();
    let created = memory.claim_signal(&who(), main, &key, 0o644).unwrap().created;
    memory.set_signal_mode(&who(), main, SignalId { key: &key, created }, 0o100_600).unwrap();
    assert_eq!(memory.signal(main, "k").unwrap().unwrap().mode, 0o600);
}

#[test]
fn signals_end_with_the_session_where_the_branch_says_so() {
    let (memory, main) = memory();
    let before = memory.claim_signal(&who(), main, &"before".into(), 0o644).unwrap();
    memory.set(&who(), main, Setting::SignalScope, SESSION_SCOPE).unwrap();
    let after = memory.claim_signal(&who(), main, &"after".into(), 0o644).unwrap();
    assert_eq!((before.ends_with_session, after.ends_with_session), (false, true));
}
