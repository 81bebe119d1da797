//! Names of things by their content, the bytes they are hashed from, moments, and the blob store of immutable files.
//!
//! An object never changes once its [`struct@Hash`] exists, and nothing is handed out whose bytes did not
//! hash to its name.
//!
//! A [`BlobStore`] hands on the errors of the disk as they are, see [`Disk`](crate::disk::Disk). Reading bytes of any
//! kind ends in a value or a [`CodecError`] and never in a panic: they may be damaged, or of a later version.

mod blob_store;
mod codec;
#[cfg(test)]
pub mod format_tables;
mod hash;
mod set_hash;
mod stored_codes;
mod time;

pub use blob_store::{BlobStore, PublishGuard, TEMP_PREFIX, TempBlob};
pub use codec::{CodecError, Reader, Writer};
pub use hash::{Context, Hash, Hasher, ParseHashError};
pub use set_hash::SetHash;
pub(crate) use stored_codes::stored_codes;
pub use time::Time;
