//! Who did what, when: signed entries in one chain for the whole store.
//!
//! Each entry's canonical bytes hold the hash of the entry before, so that an entry can't be
//! changed, removed, reordered or put elsewhere without the chain showing it.
//!
//! Reading entries back fails with a [`CodecError`](crate::object::CodecError) for bytes that no version wrote so, and
//! for codes of a later one. It proves nothing: [`SignedEntry::verifies`] does, for one entry and its signature, and
//! that each `prev` is the hash of the entry before is for whoever reads them in order.
//!
//! ```
//! use engramfs::lineage::{Counts, Detail, Entry, EntryOp, Key, PublicKey, SignedEntry};
//! use engramfs::object::{Hash, Time};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = Key::from_seed(&[7; 32]);
//! let entry = Entry {
//!     seq: 1,
//!     op: EntryOp::Root,
//!     branch: "main".into(),
//!     branch_id: 1,
//!     parent: None,
//!     parent_id: 0,
//!     time: Time(0),
//!     agent: "ann".into(),
//!     session: "".into(),
//!     task: "".into(),
//!     uid: 1000,
//!     base: Hash::ZERO,
//!     head: Hash::ZERO,
//!     counts: Counts::default(),
//!     detail: Detail::default(),
//!     log_record: Hash::ZERO,
//!     prev: Hash::ZERO,
//!     key: key.public_key().hash(),
//! };
//! let mut signed = SignedEntry::sign(entry, &key);
//! let public = PublicKey::parse(key.public_key().to_text().as_bytes())?;
//! assert!(signed.verifies(&public));
//! signed.entry.uid = 0;
//! assert!(!signed.verifies(&public));
//! # Ok(())
//! # }
//! ```

mod chunk;
mod decision;
mod entry;
mod entry_op;
mod key;
mod line;
mod shared_fields;
mod strategy;

pub use chunk::{EntryChunkWriter, read_entry_chunk};
pub use decision::{Decision, LostPart, Side};
pub use entry::{Counts, Detail, Entry, ITEMS_MAX, MergeDetail, SignedEntry};
pub use entry_op::{AccessChange, EntryOp};
pub use key::{Key, KeyError, MacKey, PublicKey, SIGNATURE_BYTES};
pub use shared_fields::SharedFields;
pub use strategy::{ParseStrategyError, Strategy};
