//! Signals with a store, through its methods.

use super::*;
use crate::disk::ForgetfulDisk;
use crate::memory::{Environment, Kind, MergeVerb, OpenMode, RecordEdit, RecordInput, View};

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
    memory.set(&who(), main, Setting::SignalTtl, LEASE_LIFETIME).unwrap();
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

#[test]
fn a_signal_of_a_session_ends_with_another_session_and_with_its_branch() {
    for ends_branch in [false, true] {
        let (memory, main) = memory();
        let child = memory.fork(&who(), main, "child", None).unwrap();
        memory.set(&who(), child, Setting::SignalScope, SESSION_SCOPE).unwrap();
        memory.claim_signal(&who(), child, &"k".into(), 0o644).unwrap();
        assert!(memory.signal(main, "k").unwrap().is_some(), "a control");
        if ends_branch {
            memory.discard(&who(), child).unwrap();
        } else {
            memory.set(&who(), child, Setting::Session, "another").unwrap();
        }
        assert!(memory.signal(main, "k").unwrap().is_none(), "the branch ends: {ends_branch}");
    }
}

#[test]
fn the_end_of_a_signal_names_its_branch_also_where_that_has_ended() {
    let cleared = |memory: &Memory, main: BranchId| {
        let events = String::from_utf8(memory.read_shared_events(main, 0, usize::MAX).unwrap()).unwrap();
        let lines = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter(|line| line["event"] == "cleared").map(|line| line["branch"].clone()).collect::<Vec<_>>()
    };
    for (merges, keep) in [(false, "30d"), (true, "30d"), (false, "0s")] {
        let (memory, main) = memory();
        let child = memory.fork(&who(), main, "child", None).unwrap();
        memory.set(&who(), child, Setting::Keep, keep).unwrap();
        memory.set(&who(), child, Setting::SignalScope, SESSION_SCOPE).unwrap();
        memory.claim_signal(&who(), child, &"k".into(), 0o644).unwrap();
        match merges {
            true => drop(memory.merge(&who(), child, MergeVerb::Merge, false).unwrap()),
            false => memory.discard(&who(), child).unwrap(),
        }
        assert_eq!(cleared(&memory, main), ["main/child"], "{merges} {keep}");
    }
    // What ends by itself is removed later.
    let (memory, main) = memory();
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.set(&who(), child, Setting::SignalTtl, LEASE_LIFETIME).unwrap();
    let lease = memory.hold_lease(&who(), child).unwrap();
    memory.claim_signal(&who(), child, &"k".into(), 0o644).unwrap();
    memory.discard(&who(), child).unwrap();
    drop(lease);
    // Whoever has the key next, or the thread that looks for ended signals.
    memory.claim_signal(&who(), main, &"k".into(), 0o644).unwrap();
    assert_eq!(cleared(&memory, main), ["main/child"]);
}

/// Makes a signal that has ended and was not removed yet.
fn ended_signal(memory: &Arc<Memory>, main: BranchId, key: &str) {
    memory.set(&who(), main, Setting::SignalTtl, LEASE_LIFETIME).unwrap();
    let lease = memory.hold_lease(&who(), main).unwrap();
    let created = memory.claim_signal(&who(), main, &key.into(), 0o644).unwrap().created;
    memory.write_signal(&who(), main, SignalId { key: &key.into(), created }, &[b'x'; 1000]).unwrap();
    drop(lease);
    memory.set(&who(), main, Setting::SignalTtl, "").unwrap();
}

#[test]
fn the_end_of_a_signal_is_told_before_its_key_is_another_ones() {
    for renames in [false, true] {
        let (memory, main) = memory();
        memory.claim_signal(&who(), main, &"other".into(), 0o644).unwrap();
        ended_signal(&memory, main, "k");
        if renames {
            memory.rename_signal(&who(), main, (&"other".into(), &"k".into()), false).unwrap();
        } else {
            memory.claim_signal(&who(), main, &"k".into(), 0o644).unwrap();
        }
        let events = memory.read_shared_events(main, 0, usize::MAX).unwrap();
        let events = String::from_utf8(events).unwrap();
        let told = |line: &str| line.contains(r#""event":"cleared""#) && line.contains(r#""reason":"lease""#);
        assert_eq!(events.lines().filter(|line| told(line)).count(), 1, "renames: {renames}; {events}");
    }
}

#[test]
fn a_signal_in_place_of_one_that_has_ended_is_counted_whole() {
    let (memory, main) = memory();
    memory.admission.budget.limit(1 << 20, 1 << 20);
    for key in ["a", "b", "c"] {
        memory.claim_signal(&who(), main, &key.into(), 0o644).unwrap();
    }
    ended_signal(&memory, main, "k");
    memory.claim_signal(&who(), main, &"k".into(), 0o644).unwrap();
    let counted = memory.admission.signals_held.lock()[&0].bytes();
    assert_eq!(counted, memory.catalog().signal_bytes.own_and_all_bytes(0).0);
}

#[test]
fn another_store_takes_the_longest_value_that_can_be_written_and_none_that_is_longer() {
    let (from, its_main) = memory();
    let key: Arc<str> = "k".into();
    let created = from.claim_signal(&who(), its_main, &key, 0o644).unwrap().created;
    let value = "v".repeat(SIGNAL_BYTES_MAX);
    from.write_signal(&who(), its_main, SignalId { key: &key, created }, value.as_bytes()).unwrap();
    let longest = from.signal(its_main, "k").unwrap().unwrap();
    let (to, main) = memory();
    assert!(to.import_signal(&who(), main, &key, &longest).unwrap());
    assert_eq!(to.signal(main, "k").unwrap().unwrap().value.len(), SIGNAL_BYTES_MAX);
    let longer = Signal { value: format!("{value}v").into_bytes().into(), ..(*longest).clone() };
    let refused = to.import_signal(&who(), main, &"longer".into(), &longer).unwrap_err();
    assert_eq!(refused.kind(), Kind::TooLarge);
}

#[test]
fn signals_are_in_no_head_no_entry_no_checkpoint_and_no_merge() {
    let (memory, main) = memory();
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.set(&who(), child, Setting::Log, "own").unwrap();
    let put = |id: &str| {
        let input = RecordInput { vector: None, text: Some("text".into()), metadata: "{}".into() };
        memory.commit(&who(), child, vec![RecordEdit::Put { id: id.into(), input }]).unwrap();
    };
    let keys = |branch| -> Vec<String> {
        memory.signals(branch).unwrap().into_iter().map(|(key, _)| key.to_string()).collect()
    };
    let history = || {
        let head = memory.status(&View::Branch(child)).unwrap()["head"].clone();
        (head, memory.lineage_lines(child, false).unwrap(), memory.tip())
    };
    put("a");
    let before = history();
    memory.claim_signal(&who(), child, &"first".into(), 0o644).unwrap();
    assert_eq!(history(), before);
    memory.checkpoint(&who(), child, "v1", None).unwrap();
    memory.remove_signal(&who(), child, &"first".into()).unwrap();
    memory.claim_signal(&who(), child, &"second".into(), 0o644).unwrap();
    put("b");
    memory.rollback(&who(), child, "v1").unwrap();
    assert_eq!(keys(child), ["second"], "the rollback takes none away and brings none back");
    memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
    assert_eq!(keys(main), [""; 0]);
}
