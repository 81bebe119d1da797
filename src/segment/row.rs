//! A version wherever it is: still loose in memory, or a row of a segment.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Segment, SegmentError, Totals};
use crate::object::Hash;
use crate::record::{Stamp, Version};

/// One version of a record, loose or sealed.
#[derive(Clone)]
pub enum Row {
    /// In memory and in the journal.
    Loose(Arc<Version>),
    /// In a segment.
    Sealed(Arc<Segment>, u32),
}

impl Row {
    /// Returns the record's id.
    pub fn id(&self) -> Result<Cow<'_, str>, SegmentError> {
        match self {
            Row::Loose(version) => Ok(Cow::Borrowed(&version.id)),
            Row::Sealed(segment, row) => segment.id(*row).map(Cow::Borrowed),
        }
    }

    /// Returns the content hash.
    pub fn hash(&self) -> Result<Hash, SegmentError> {
        match self {
            Row::Loose(version) => Ok(version.hash),
            Row::Sealed(segment, row) => segment.hash(*row),
        }
    }

    /// Returns the vector.
    pub fn vector(&self) -> Result<Option<&[f32]>, SegmentError> {
        match self {
            Row::Loose(version) => Ok(version.content.vector.as_deref()),
            Row::Sealed(segment, row) => segment.vector(*row),
        }
    }

    /// Returns who wrote it, and when.
    pub fn stamp(&self) -> Result<Stamp, SegmentError> {
        match self {
            Row::Loose(version) => Ok(version.stamp.clone()),
            Row::Sealed(segment, row) => segment.stamp(*row),
        }
    }

    /// Returns the whole version.
    pub fn version(&self) -> Result<Arc<Version>, SegmentError> {
        match self {
            Row::Loose(version) => Ok(version.clone()),
            Row::Sealed(segment, row) => segment.version(*row).map(Arc::new),
        }
    }

    /// Returns what it contributes to the sums of a branch.
    pub fn totals(&self) -> Result<Totals, SegmentError> {
        match self {
            Row::Loose(version) => Ok(totals_of(version)),
            Row::Sealed(segment, row) => segment.row_totals(*row),
        }
    }
}

/// Returns what a loose version contributes to the sums of a branch.
fn totals_of(version: &Version) -> Totals {
    let has_vector = version.content.vector.is_some();
    Totals {
        records: 1,
        vectors: u64::from(has_vector),
        id_lines: if has_vector { version.id.len() as u64 + 1 } else { 0 },
        json: u64::from(version.json_bytes),
        terms: u64::from(version.terms),
        raw: version.raw_bytes(),
    }
}
