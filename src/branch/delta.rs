//! The stored form of the records of a state: how it differs from an earlier one. Versions are named by what they are,
//! not by where they are stored, so that moving them changes nothing here.
//!
//! ```text
//!  records n, n × (id · 0 nothing | 1 deleted at time | 2 content hash, modified)
//! ```

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use imbl::ordmap::DiffItem;

use super::{BranchVersion, Layer, VisibleRows, changed_ids_at_most};
use crate::object::{CodecError, Hash, Reader, Time, Writer};
use crate::segment::{Row, Segment, SegmentError};
use crate::workspace::TreeError;

/// Records that two states may have differently for one to be moved like the other.
const RELOCATED_ONE_BY_ONE_MAX: usize = 512;

/// Codes of what a record becomes.
mod code {
    /// No record, and no deletion that is remembered; nothing follows.
    pub const NOTHING: u8 = 0;
    /// No record; the time of its deletion follows.
    pub const DELETED: u8 = 1;
    /// The hash and time that identify a version follow.
    pub const VERSION: u8 = 2;
}

/// Versions of records by what they are, wherever they are stored.
#[derive(Default)]
pub struct VersionIndex {
    rows: HashMap<Hash, Vec<(Arc<Segment>, u32)>>,
}

impl VersionIndex {
    /// Indexes all visible rows of some layers. Reads the hash of each row. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if a hash can't be read or its segment is damaged.
    pub fn new(layers: &[Layer]) -> Result<VersionIndex, SegmentError> {
        let mut rows: HashMap<Hash, Vec<(Arc<Segment>, u32)>> = HashMap::new();
        for layer in layers {
            for row in layer.visible.iter() {
                rows.entry(layer.segment.hash(row)?).or_default().push((layer.segment.clone(), row));
            }
        }
        Ok(VersionIndex { rows })
    }

    /// Returns the version of that content that was written then; `None` if there is none of the content.
    fn find(&self, hash: &Hash, modified: Time) -> Result<Option<Row>, SegmentError> {
        let Some(found) = self.rows.get(hash) else { return Ok(None) };
        // Equal content may have been written several times, which only the time tells apart.
        for (segment, row) in found.iter().filter(|_| found.len() > 1) {
            if segment.provenance(*row)?.modified == modified {
                return Ok(Some(Row::Sealed(segment.clone(), *row)));
            }
        }
        Ok(found.first().map(|(segment, row)| Row::Sealed(segment.clone(), *row)))
    }
}

/// Why a delta can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// The bytes are none that this version wrote.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A segment could not be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A tree of files could not be read or written.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The version with this content hash is in none of the rows at hand.
    #[error("the version {0} is not there")]
    Missing(Hash),
}

/// The rows that some states need, by segment.
#[derive(Default)]
pub struct NeededRows {
    layers: HashMap<Hash, Layer>,
}

impl NeededRows {
    /// Adds a row; one in memory is in no segment.
    pub fn add(&mut self, row: &Row) {
        if let Row::Sealed(segment, row) = row {
            let none = || Layer { segment: segment.clone(), visible: VisibleRows::none(segment.rows()) };
            self.layers.entry(segment.name()).or_insert_with(none).visible.set(*row, true);
        }
    }

    /// Returns the rows as layers, in an order that does not vary.
    pub fn into_layers(self) -> Vec<Layer> {
        let mut layers: Vec<Layer> = self.layers.into_values().collect();
        layers.sort_by_key(|layer| layer.segment.name());
        layers
    }
}

impl BranchVersion {
    /// Returns the rows of `layers` as a value that can be stored and moved like a state. It is not a valid state: one
    /// id may be visible more than once.
    pub fn from_layers(layers: Vec<Layer>) -> BranchVersion {
        BranchVersion { layers, ..BranchVersion::default() }
    }

    /// Appends what the records of this state are other than those of `before`, and notes the rows that it names;
    /// returns how many there are, or `None` if there are more than `limit`. If it returns nothing, nothing was
    /// appended. After an error part of them may be appended.
    pub fn write_delta(
        &self,
        before: &BranchVersion,
        limit: usize,
        rows: &mut NeededRows,
        out: &mut Writer,
    ) -> Result<Option<usize>, SegmentError> {
        // All ids are known before the first byte is written, so that nothing is appended where there are too many.
        let Some(ids) = changed_ids_at_most(before, self, limit)? else { return Ok(None) };
        out.number(ids.len() as u64);
        for id in &ids {
            out.text(id);
            match (self.find(id)?, self.deleted_at(id)) {
                (Some(row), _) => {
                    out.byte(code::VERSION).hash(&row.hash()?).signed(row.provenance()?.modified.0);
                    rows.add(&row);
                }
                (None, Some(time)) => drop(out.byte(code::DELETED).signed(time.0)),
                (None, None) => drop(out.byte(code::NOTHING)),
            }
        }
        Ok(Some(ids.len()))
    }

    /// Returns this state with a delta applied. `versions` must have all rows that the delta names.
    ///
    /// [`DeltaError::Missing`] if it has not, [`DeltaError::Codec`] if the bytes are no delta.
    pub fn with_delta(&self, input: &mut Reader<'_>, versions: &VersionIndex) -> Result<BranchVersion, DeltaError> {
        let mut state = self.clone();
        for _ in 0..input.length()? {
            let id: Arc<str> = input.text()?.into();
            match input.byte()? {
                code::NOTHING => {
                    state.delete(&id, Time(0))?;
                    // `delete` notes a time, which the state had none of.
                    state.deletions.remove(&id);
                }
                code::DELETED => {
                    let time = Time(input.signed()?);
                    state.delete(&id, time)?;
                    // Also where the record was not there, of which `delete` notes nothing.
                    state.note_deleted(&id, time);
                }
                code::VERSION => {
                    let (hash, modified) = (input.hash()?, Time(input.signed()?));
                    state.put(versions.find(&hash, modified)?.ok_or(DeltaError::Missing(hash))?)?;
                }
                other => return Err(CodecError::Code(other).into()),
            }
        }
        state.head = OnceLock::new();
        Ok(state)
    }

    /// Reads over such a delta. Ids and hashes are not checked. [`CodecError::Code`] for a change that this version
    /// does not know.
    pub fn skip_delta(input: &mut Reader<'_>) -> Result<(), CodecError> {
        for _ in 0..input.length()? {
            input.text()?;
            match input.byte()? {
                code::NOTHING => {}
                code::DELETED => drop(input.signed()?),
                code::VERSION => drop((input.hash()?, input.signed()?)),
                other => return Err(CodecError::Code(other)),
            }
        }
        Ok(())
    }

    /// Calls `each` with every version that is visible in this state and not in `before`.
    pub fn for_each_added(&self, before: &BranchVersion, mut each: impl FnMut(Row)) {
        for change in before.unsealed().diff(self.unsealed()) {
            if let DiffItem::Add(_, version) | DiffItem::Update { new: (_, version), .. } = change {
                each(Row::Unsealed(version.clone()));
            }
        }
        for layer in self.layers() {
            let sealed = |row| Row::Sealed(layer.segment.clone(), row);
            match before.layers().iter().find(|other| other.segment.name() == layer.segment.name()) {
                None => layer.visible.iter().for_each(|row| each(sealed(row))),
                Some(other) => layer.visible.differences(&other.visible, |row| {
                    // A row that only `before` sees differs as well, and is none that this state sees beyond it.
                    if layer.visible.contains(row) {
                        each(sealed(row));
                    }
                }),
            }
        }
    }

    /// Returns this state as it is once `before` has become `moved`, an equal state that is stored elsewhere: what both
    /// share is as there, and of the rest `place` tells where versions are now. `None` if they share so little that
    /// this takes long. [`SegmentError::Io`] or [`SegmentError::Damaged`] if an id, or a row that differs, can't be
    /// read.
    pub fn with_relocation(
        &self,
        before: &BranchVersion,
        moved: &BranchVersion,
        place: impl Fn(&Row) -> Option<Row>,
    ) -> Result<Option<BranchVersion>, SegmentError> {
        let Some(touched) = changed_ids_at_most(before, self, RELOCATED_ONE_BY_ONE_MAX)? else { return Ok(None) };
        let mut next = moved.clone();
        for id in touched {
            // First the version as this state has it stored, and then the same one at its new place, where it was
            // moved.
            next.copy_record(&id, self)?;
            if let Some(row) = next.find(&id)?.and_then(|row| place(&row)) {
                next.put(row)?;
            }
        }
        next.replace_by_equal_files(self.files.clone());
        // The content is that of this state, so its head need not be worked out again.
        next.head = self.head.clone();
        Ok(Some(next))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// A rollback notes a time for each record that it takes away, whether or not a delete did.
    #[test]
    fn the_time_of_a_delete_stays_where_the_record_was_not_there_before() {
        let (mut before, mut after) = (BranchVersion::default(), BranchVersion::default());
        before.note_deleted("later", Time(3));
        before.note_deleted("forgotten", Time(4));
        after.note_deleted("later", Time(5));
        after.note_deleted("new", Time(6));
        let (mut out, mut rows) = (Writer::new(), NeededRows::default());
        assert_eq!(after.write_delta(&before, 2, &mut rows, &mut out).unwrap(), None);
        assert!(out.as_slice().is_empty());
        assert_eq!(after.write_delta(&before, 3, &mut rows, &mut out).unwrap(), Some(3));
        let read = before.with_delta(&mut Reader::new(out.as_slice()), &VersionIndex::default()).unwrap();
        let times = ["later", "forgotten", "new"].map(|id| read.deleted_at(id));
        assert_eq!(times, [Some(Time(5)), None, Some(Time(6))]);
        let mut input = Reader::new(out.as_slice());
        BranchVersion::skip_delta(&mut input).unwrap();
        assert!(input.is_empty());
    }
}
