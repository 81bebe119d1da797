//! Who did what, when: signed entries in one chain for the whole store.
//!
//! Each entry's canonical bytes hold the hash of the entry before, so that an entry can't be
//! changed, removed, reordered or put elsewhere without the chain showing it.

mod entry;
mod key;

pub use entry::{Counts, Decision, Detail, Entry, Op, Part, Side, SignedEntry};
pub use key::{Key, KeyError, PublicKey, SIGNATURE_BYTES};
