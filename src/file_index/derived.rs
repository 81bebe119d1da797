//! The vectors of passages: found by the passage's key, and kept beside the segment whose rows they are.

use std::sync::Arc;

use super::index_segment::IndexSegment;
use crate::object::Hash;
use crate::segment::{DerivedFile, SegmentError};

impl IndexSegment {
    /// Returns by what the vector of each row is found.
    pub fn vector_keys(&self) -> Result<Vec<Hash>, SegmentError> {
        (0..self.rows()).map(|row| Ok(self.place(row)?.key.vector_key())).collect()
    }

    /// Gives the segment the vectors that an embedder made for it, in place of those that it made before; a file of another
    /// segment is not taken.
    pub fn attach_derived(&self, derived: Arc<DerivedFile>) {
        if Some(derived.segment()) == self.name() {
            self.derived.attach(derived);
        }
    }

    /// Lets go of the vectors of all embedders but some.
    pub fn retain_derived(&self, keep: impl Fn(&Hash) -> bool) {
        self.derived.retain(keep);
    }

    /// Returns the files of derived vectors that it has.
    pub fn derived_files(&self) -> Vec<Arc<DerivedFile>> {
        self.derived.all()
    }

    /// Returns the vectors that an embedder made for it.
    pub fn derived(&self, embedder: &Hash) -> Option<Arc<DerivedFile>> {
        self.derived.of(embedder)
    }
}
