//! The vectors of passages: found by the passage's key, and kept beside the segment whose rows they are.

use super::index_segment::IndexSegment;
use crate::object::Hash;
use crate::segment::{DerivedFiles, SegmentError};

impl IndexSegment {
    /// Returns of each row by what its vector is found: the hash of the passage as it is embedded. [`SegmentError::Io`]
    /// or [`SegmentError::Damaged`] if the columns of places can't be read or are damaged.
    pub fn vector_keys(&self) -> Result<Vec<Hash>, SegmentError> {
        (0..self.rows()).map(|row| Ok(self.passage_location(row)?.key.vector_key())).collect()
    }

    /// Returns the files of derived vectors for its passages, one for each embedder.
    pub fn derived(&self) -> &DerivedFiles {
        &self.derived
    }
}
