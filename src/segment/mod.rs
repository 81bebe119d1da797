//! The immutable file of many record versions: layout, writer, mapped reader.
//!
//! A segment knows rows, not branches: which of its rows a branch sees is the branch's business.
//! Opening one reads its footer alone; every other block is hashed when it is first touched, and what is served of it
//! each time.

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
    /// The disk refused.
    #[error("the segment {name} could not be {what}: {source}")]
    Io {
        /// The file's name, or "a new one".
        name: String,
        /// What was tried.
        what: &'static str,
        /// The disk's own error.
        source: io::Error,
    },
    /// The bytes are not those that were written.
    #[error("the segment {name} is damaged: {reason}")]
    Damaged {
        /// The file's name.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

impl SegmentError {
    /// Returns what to do next.
    pub fn hint(&self) -> String {
        match self {
            SegmentError::Io { .. } => "free space or mend the disk, then try again".into(),
            SegmentError::Damaged { .. } => "restore the store from a backup".into(),
        }
    }
}
