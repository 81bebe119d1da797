//! A version wherever it is: still unsealed in memory, or a row of a segment.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Blocks, RowTotals, Segment, SegmentError};
use crate::object::Hash;
use crate::record::{Provenance, Version};

/// One version of a record, unsealed or sealed.
///
/// Of an unsealed one no method fails. [`Row::read_version`] and those whose names begin with `verified_` read what is in a
/// segment through the disk and check it; the others take it from the mapping, where it was checked when it was first
/// touched.
#[derive(Clone)]
pub enum Row {
    /// In memory and in the journal.
    Unsealed(Arc<Version>),
    /// In a segment.
    Sealed(Arc<Segment>, u32),
}

impl Row {
    /// Returns the record's id. Never fails for an unsealed version, else like [`Segment::id`].
    pub fn id(&self) -> Result<Cow<'_, str>, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(Cow::Borrowed(&version.id)),
            Row::Sealed(segment, row) => segment.id(*row).map(Cow::Borrowed),
        }
    }

    /// Returns the content hash. Never fails for an unsealed version, else like [`Segment::hash`].
    pub fn hash(&self) -> Result<Hash, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(version.hash),
            Row::Sealed(segment, row) => segment.hash(*row),
        }
    }

    /// Returns the vector, if it has one. Never fails for an unsealed version, else where the segment's vectors are
    /// damaged.
    pub fn vector(&self) -> Result<Option<&[f32]>, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(version.content.vector.as_deref()),
            Row::Sealed(segment, row) => segment.vector(*row),
        }
    }

    /// Returns who wrote it, and when. Never fails for an unsealed version, else where the payload can't be read or
    /// parsed.
    pub fn provenance(&self) -> Result<Provenance, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(version.provenance.clone()),
            Row::Sealed(segment, row) => segment.provenance(*row),
        }
    }

    /// Returns the whole version; what is in a segment is read and checked now. Fails like [`Row::read_version`].
    pub fn version(&self) -> Result<Arc<Version>, SegmentError> {
        self.read_version(&mut Blocks::default())
    }

    /// Returns the whole version, for a reply that reads many; `blocks` are those of the reply. Fails if a block of the
    /// row is not what was written; never for an unsealed version.
    pub fn read_version(&self, blocks: &mut Blocks) -> Result<Arc<Version>, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(version.clone()),
            Row::Sealed(segment, row) => segment.version(*row, blocks).map(Arc::new),
        }
    }

    /// Returns the id to serve it: what is in a segment is read and checked for this reply. Never fails for an unsealed
    /// version, else like [`Segment::verified_id`].
    pub fn verified_id(&self, blocks: &mut Blocks) -> Result<Cow<'_, str>, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(Cow::Borrowed(&version.id)),
            Row::Sealed(segment, row) => segment.verified_id(*row, blocks).map(Cow::Owned),
        }
    }

    /// Returns how many numbers the vector has, where it decides what is served. `None` if it has no vector. Never
    /// fails for an unsealed version, else like [`Segment::verified_has_vector`].
    pub fn verified_dim(&self, blocks: &mut Blocks) -> Result<Option<usize>, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(version.content.vector.as_ref().map(|vector| vector.len())),
            Row::Sealed(segment, row) => Ok(segment.verified_has_vector(*row, blocks)?.then_some(segment.dim())),
        }
    }

    /// Returns the vector to serve it, if it has one: what is in a segment is read and checked for this reply. Never
    /// fails for an unsealed version, else like [`Segment::verified_vector`].
    pub fn verified_vector(&self, blocks: &mut Blocks) -> Result<Option<Arc<[f32]>>, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(version.content.vector.clone()),
            Row::Sealed(segment, row) => segment.verified_vector(*row, blocks),
        }
    }

    /// Returns the bytes of id, text, metadata and provenance as JSON, where they decide what is served. Never fails
    /// for an unsealed version, else like [`Segment::verified_json_bytes`].
    pub fn verified_json_bytes(&self, blocks: &mut Blocks) -> Result<u32, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(version.json_bytes),
            Row::Sealed(segment, row) => segment.verified_json_bytes(*row, blocks),
        }
    }

    /// Returns what it contributes to the sums of a branch. Never fails for an unsealed version, else like
    /// [`Segment::row_totals`].
    pub fn totals(&self) -> Result<RowTotals, SegmentError> {
        match self {
            Row::Unsealed(version) => Ok(version_totals(version)),
            Row::Sealed(segment, row) => segment.row_totals(*row),
        }
    }
}

/// Returns what a version contributes to the sums of a branch.
pub(super) fn version_totals(version: &Version) -> RowTotals {
    let has_vector = version.content.vector.is_some();
    RowTotals {
        records: 1,
        vectors: u64::from(has_vector),
        id_line_bytes: if has_vector { version.id.len() as u64 + 1 } else { 0 },
        json_bytes: u64::from(version.json_bytes),
        terms: u64::from(version.terms),
        raw_bytes: version.raw_bytes(),
    }
}
