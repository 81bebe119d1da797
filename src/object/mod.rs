//! Names of things by their content, the bytes they are hashed from, moments, and the shelf of immutable files.
//!
//! An object never changes once its [`Hash`] exists, and nothing is handed out whose bytes did not
//! hash to its name.

mod codec;
mod hash;
mod shelf;
mod sum;
mod time;

pub use codec::{CodecError, Reader, Writer};
pub use hash::{Context, Hash, Hasher, ParseHashError};
pub use shelf::{Draft, Publishing, Shelf};
pub use sum::SetHash;
pub use time::Time;
