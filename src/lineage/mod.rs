//! Who did what, when: signed entries in one chain for the whole store.
//!
//! Each entry's canonical bytes hold the hash of the entry before, so that an entry can't be
//! changed, removed, reordered or put elsewhere without the chain showing it.

mod chunk;
mod compact;
mod decision;
mod entry;
mod key;
mod line;

pub use chunk::{EntryChunkWriter, read_entry_chunk};
pub use compact::SharedFields;
pub use decision::{Decision, LostPart, Side};
pub use entry::{Counts, Detail, Entry, EntryOp, ITEMS_MAX, MergeDetail, SignedEntry};
pub use key::{Key, KeyError, MacKey, PublicKey, SIGNATURE_BYTES};
