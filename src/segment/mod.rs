//! The immutable file of many record versions: layout, writer, mapped reader.
//!
//! A segment knows rows, not branches: which of its rows a branch sees is the branch's business.
//! Opening one reads its footer alone; every other block is hashed when it is first touched, and what is served of it
//! each time.
//!
//! Functions fail in two ways. [`SegmentError::Io`] is the disk's own refusal, [`SegmentError::Damaged`] says that
//! bytes are not those that were written: where a block does not match its hash, and also where a row, a section or a
//! vector is asked for that the file does not have, since numbers of rows come out of files too. So a wrong number is
//! an error and no panic. What a function says beside that is particular to it. After [`Container::recheck`] found
//! damage nothing more is handed out of the file.
//!
//! ```
//! use std::sync::Arc;
//!
//! use engramfs::disk::ForgetfulDisk;
//! use engramfs::object::{BlobStore, Time};
//! use engramfs::record::{Provenance, RecordContent, Version};
//! use engramfs::segment::{FOLDER, Row, Segment, write_segment};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), FOLDER)?;
//! let provenance = Provenance {
//!     created: Time(0),
//!     modified: Time(0),
//!     branch: "main".into(),
//!     agent: "ann".into(),
//!     session: "".into(),
//!     task: "".into(),
//!     uid: 1000,
//!     vector_stale: false,
//! };
//! let content = RecordContent { vector: Some([0.6, 0.8].into()), text: Some("tea".into()), metadata: "{}".into() };
//! let rows = [Row::Unsealed(Arc::new(Version::new("a".into(), content, provenance)))];
//!
//! let segment = Segment::open(&blobs, write_segment(&blobs, &rows, 2)?)?;
//! assert_eq!((segment.rows(), segment.dim()), (1, 2));
//! assert_eq!((segment.id(0)?, segment.vector(0)?), ("a", Some(&[0.6, 0.8][..])));
//! assert!(segment.id(1).is_err());
//! # Ok(())
//! # }
//! ```

mod blocks;
mod columns;
mod container;
mod container_writer;
mod derived_file;
mod graph_file;
mod row;
mod stem_cache;
#[cfg(test)]
mod tests;
mod totals;
mod writer;

use std::io;

use thiserror::Error;

pub use blocks::Blocks;
pub use columns::Segment;
pub use container::{Container, container_kind};
pub use container_writer::ContainerWriter;
pub use derived_file::{DerivableTexts, DerivedColumns, DerivedCounts, DerivedFile, DerivedFiles};
pub use graph_file::{GraphFile, write_graph};
pub use row::Row;
pub use totals::RowTotals;
pub use writer::write_segment;

/// The folder of segments below the store's root.
pub const FOLDER: &str = "segments";

/// Says why a segment can't be read or written.
#[derive(Debug, Error)]
pub enum SegmentError {
    /// The disk refused: by what `source` says, such as `NotFound` for a missing file.
    #[error("the segment {name} could not be {what}: {source}")]
    Io {
        /// The file's name, or "a new one".
        name: String,
        /// What could not be done to it, for the message: a participle such as `written`.
        what: &'static str,
        /// The disk's own error.
        source: io::Error,
    },
    /// The bytes are not those that were written.
    #[error("the segment {name} is damaged: {reason}")]
    Damaged {
        /// The file's name, the hash of its footer in hex.
        name: String,
        /// What is wrong, as the end of the message.
        reason: String,
    },
}

impl SegmentError {
    /// Returns what to do next; the error's text does not say it.
    pub fn hint(&self) -> String {
        match self {
            SegmentError::Io { .. } => "free space or mend the disk, then try again".into(),
            SegmentError::Damaged { .. } => "restore the store from a backup".into(),
        }
    }
}
