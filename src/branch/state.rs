//! All records and files of a branch at one moment.

use std::sync::{Arc, OnceLock};

use imbl::OrdMap;

use super::{MemTable, VisibleRows};
use crate::object::{Context, Hash, Hasher, SetHash, Time};
use crate::record::Version;
use crate::segment::{Row, RowTotals, Segment, SegmentError};
use crate::workspace::Tree;

static HEAD_CONTEXT: Context = Context::new("engramfs 2026 head v2");
static RECORDS_CONTEXT: Context = Context::new("engramfs 2026 records v1");

/// A segment, and which of its rows the branch sees.
#[derive(Clone)]
pub struct Layer {
    /// The shared, immutable rows.
    pub segment: Arc<Segment>,
    /// Which of them the branch sees.
    pub visible: VisibleRows,
}

/// The records of a branch, which are unsealed versions and rows of segments, and its files.
///
/// **Invariant:** an id is visible in one place at most, so a look-up never depends on how many levels of forks lie
/// above. A clone shares everything with its original until one of them changes.
///
/// ```
/// use std::sync::Arc;
///
/// use engramfs::branch::{BranchVersion, differences};
/// use engramfs::object::Time;
/// use engramfs::record::{Provenance, RecordContent, Version};
/// use engramfs::segment::Row;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let provenance = Provenance {
///     created: Time(1),
///     modified: Time(1),
///     branch: "main".into(),
///     agent: "ann".into(),
///     session: "".into(),
///     task: "".into(),
///     uid: 1000,
///     vector_stale: false,
/// };
/// let content = RecordContent { vector: None, text: Some("at four".into()), metadata: "{}".into() };
/// let parent = BranchVersion::default();
/// let mut fork = parent.clone();
/// fork.put(Row::Unsealed(Arc::new(Version::new("tea".into(), content, provenance))))?;
/// assert!(fork.find("tea")?.is_some() && parent.find("tea")?.is_none());
/// assert_eq!(differences(&parent, &fork)?.len(), 1);
///
/// fork.delete("tea", Time(2))?;
/// assert_eq!(fork.head(), parent.head(), "heads say what is there, not how it came about");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct BranchVersion {
    /// Segments of which something is seen, each once.
    pub(super) layers: Vec<Layer>,
    /// Versions that are in no segment yet.
    pub(super) unsealed: MemTable,
    /// The set hash of all visible versions: one that comes is added, one that goes is taken out.
    pub(super) record_set_hash: Arc<SetHash>,
    /// Over all visible versions, kept up as `record_set_hash` is.
    pub(super) totals: RowTotals,
    /// When records were deleted that are not there again.
    pub(super) deletions: OrdMap<Arc<str>, Time>,
    /// The tree of `files/`; its hash is part of the head.
    pub(super) files: Tree,
    /// Computed when [`BranchVersion::head`] is first asked for; a change of the content empties it.
    pub(super) head: OnceLock<Hash>,
}

impl BranchVersion {
    /// Returns the hash of the content: the same for equal records, whatever their history.
    pub fn head(&self) -> Hash {
        *self.head.get_or_init(|| BranchVersion::compute_head(&self.record_set_hash, &self.files))
    }

    /// Returns the head of a state whose records have that set hash, with those files.
    pub fn compute_head(record_set_hash: &SetHash, files: &Tree) -> Hash {
        let mut hasher = Hasher::new(&HEAD_CONTEXT);
        hasher.field(&record_set_hash.hash(&RECORDS_CONTEXT).0);
        hasher.field(&files.hash().0);
        hasher.finish()
    }

    /// Returns the set hash of all visible records; files are not in it.
    pub fn record_set_hash(&self) -> &SetHash {
        &self.record_set_hash
    }

    /// Returns the tree of `files/`, which the head covers beside the records.
    pub fn files(&self) -> &Tree {
        &self.files
    }

    /// Puts equal files in place that are stored elsewhere, so that the head stays.
    pub fn replace_by_equal_files(&mut self, files: Tree) {
        self.files = files;
    }

    /// Puts other files in place, which changes the head.
    pub fn set_files(&mut self, files: Tree) {
        self.files = files;
        self.head = OnceLock::new();
    }

    /// Returns what the visible records add up to. It is kept up with each change, so asking costs nothing.
    pub fn totals(&self) -> RowTotals {
        self.totals
    }

    /// Returns the segments of which something is visible, each once.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Returns the versions that are in no segment yet.
    pub fn unsealed(&self) -> &MemTable {
        &self.unsealed
    }

    /// Returns when a record was deleted, if it was and is not there again.
    pub fn deleted_at(&self, id: &str) -> Option<Time> {
        self.deletions.get(id).copied()
    }

    /// Returns how many deleted records are known with the time of their delete.
    pub fn timed_delete_count(&self) -> usize {
        self.deletions.len()
    }

    /// Returns the visible version of a record. It costs a look-up in the memtable and a binary search in each layer.
    /// [`SegmentError::Io`] or [`SegmentError::Damaged`] if the ids of a layer's segment can't be read, or are damaged.
    pub fn find(&self, id: &str) -> Result<Option<Row>, SegmentError> {
        if let Some(version) = self.unsealed.get(id) {
            return Ok(Some(Row::Unsealed(version.clone())));
        }
        for layer in &self.layers {
            if let Some(row) = find_in(layer, id, 0)?.1 {
                return Ok(Some(Row::Sealed(layer.segment.clone(), row)));
            }
        }
        Ok(None)
    }

    /// Makes a version the visible one of its record, and forgets when that was deleted. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if the row, or the version before it, can't be read or its segment is damaged.
    pub fn put(&mut self, row: Row) -> Result<(), SegmentError> {
        // Read before anything changes: a row that can't be read must leave the state as it was.
        let (id, hash, totals) = (Arc::<str>::from(&*row.id()?), row.hash()?, row.totals()?);
        // The old version goes before the new one comes, as an id is visible in one place at most.
        self.hide_record(&id)?;
        self.deletions.remove(&id);
        match row {
            Row::Unsealed(version) => {
                self.unsealed.insert(version);
            }
            Row::Sealed(segment, row) => self.layer_mut(&segment).visible.set(row, true),
        }
        self.update_record_set_hash(|hashes| hashes.add(&hash));
        self.totals.add(totals);
        // Only now: the layer that lost the old row may be the one that shows the new one.
        self.drop_invisible_layers();
        Ok(())
    }

    /// Deletes a record, and notes when; returns whether it was there. Of one that is not there nothing is noted.
    /// [`SegmentError::Io`] or [`SegmentError::Damaged`] if the version can't be read or its segment is damaged.
    pub fn delete(&mut self, id: &str, time: Time) -> Result<bool, SegmentError> {
        let there = self.hide_record(id)?;
        self.drop_invisible_layers();
        // A second delete must not move the time of the first one, which newest-wins compares.
        if there {
            self.deletions.insert(id.into(), time);
        }
        Ok(there)
    }

    /// Copies a record from another state: its version, or the time of its deletion. Fails like [`BranchVersion::put`]
    /// and [`BranchVersion::delete`].
    pub fn copy_record(&mut self, id: &Arc<str>, other: &BranchVersion) -> Result<(), SegmentError> {
        if let Some(row) = other.find(id)? {
            return self.put(row);
        }
        self.hide_record(id)?;
        self.drop_invisible_layers();
        match other.deletions.get(id) {
            Some(time) => self.deletions.insert(id.clone(), *time),
            None => self.deletions.remove(id),
        };
        Ok(())
    }

    /// Notes when an absent record was deleted, if it was not removed by a delete.
    pub fn note_deleted(&mut self, id: &str, time: Time) {
        self.deletions.insert(id.into(), time);
    }

    /// Makes all rows of a segment visible; ids must be distinct in it. After an error the state is unspecified: change
    /// a clone.
    pub fn put_segment(&mut self, segment: &Arc<Segment>) -> Result<(), SegmentError> {
        let mut hints = vec![0; self.layers.len()];
        for row in 0..segment.rows() {
            let id = segment.id(row)?;
            self.deletions.remove(id);
            // Hidden rows leave their layers in place until the end, since `hints` go by the places of the layers.
            if let Some(old) = self.find_from_hints(id, &mut hints)? {
                self.hide(&old)?;
            }
        }
        let visible = VisibleRows::all(segment.rows());
        // Last: until here `hints` and the layers are parallel, and no id is found in the new one.
        self.layers.push(Layer { segment: segment.clone(), visible });
        self.update_record_set_hash(|hashes| hashes.add_all(segment.record_set_hash()));
        self.totals.add(segment.totals());
        self.drop_invisible_layers();
        Ok(())
    }

    /// Lets go of segments of which nothing is seen any longer.
    pub(super) fn drop_invisible_layers(&mut self) {
        self.layers.retain(|layer| layer.visible.count() > 0);
    }

    /// Returns the same content with those unsealed versions sealed that `row_of` finds in `segment`.
    pub fn with_versions_sealed(
        &self,
        segment: &Arc<Segment>,
        row_of: impl Fn(&Arc<Version>) -> Option<u32>,
    ) -> BranchVersion {
        let mut next = self.clone();
        for version in self.unsealed.values() {
            if let Some(row) = row_of(version) {
                // Set hash, totals and head stay as they are: the same versions are visible, only elsewhere.
                next.unsealed.remove(&version.id);
                next.layer_mut(segment).visible.set(row, true);
            }
        }
        next
    }

    /// Returns the same content with the layers of some segments seen through `segment`; `row_of`
    /// knows its row for a row of theirs. Layers of which it does not know every visible row stay.
    pub fn relocated(&self, segment: &Arc<Segment>, row_of: impl Fn(&Hash, u32) -> Option<u32>) -> BranchVersion {
        let mut next = self.clone();
        next.layers.clear();
        for layer in &self.layers {
            let name = layer.segment.name();
            let rows: Option<Vec<u32>> = layer.visible.iter().map(|row| row_of(&name, row)).collect();
            match rows {
                Some(rows) if name != segment.name() => {
                    let visible = &mut next.layer_mut(segment).visible;
                    rows.into_iter().for_each(|row| visible.set(row, true));
                }
                // The new segment is a layer already where versions were sealed into it.
                _ if name == segment.name() => next.layer_mut(segment).visible.union_with(&layer.visible),
                _ => next.layers.push(layer.clone()),
            }
        }
        next
    }

    /// Hides the visible version of a record and notes no delete; returns whether there was one. A layer may be left of
    /// which nothing is seen: [`BranchVersion::drop_invisible_layers`] comes after it. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if a segment can't be read or is damaged; nothing is hidden then.
    pub(super) fn hide_record(&mut self, id: &str) -> Result<bool, SegmentError> {
        match self.find(id)? {
            None => Ok(false),
            Some(old) => self.hide(&old).map(|()| true),
        }
    }

    fn hide(&mut self, old: &Row) -> Result<(), SegmentError> {
        // Read first, so that an error leaves the row visible, and set hash and totals right.
        let (hash, totals) = (old.hash()?, old.totals()?);
        match old {
            Row::Unsealed(version) => {
                self.unsealed.remove(&version.id);
            }
            Row::Sealed(segment, row) => self.layer_mut(segment).visible.set(*row, false),
        }
        self.update_record_set_hash(|hashes| hashes.remove(&hash));
        self.totals.subtract(totals);
        Ok(())
    }

    /// Like [`BranchVersion::find`], for ids in ascending order: `hints` keep each layer's place.
    fn find_from_hints(&self, id: &str, hints: &mut [u32]) -> Result<Option<Row>, SegmentError> {
        if let Some(version) = self.unsealed.get(id) {
            return Ok(Some(Row::Unsealed(version.clone())));
        }
        for (layer, hint) in self.layers.iter().zip(hints) {
            let (place, found) = find_in(layer, id, *hint)?;
            *hint = place;
            if let Some(row) = found {
                return Ok(Some(Row::Sealed(layer.segment.clone(), row)));
            }
        }
        Ok(None)
    }

    fn layer_mut(&mut self, segment: &Arc<Segment>) -> &mut Layer {
        let name = segment.name();
        let index = match self.layers.iter().position(|layer| layer.segment.name() == name) {
            Some(index) => index,
            None => {
                let visible = VisibleRows::none(segment.rows());
                self.layers.push(Layer { segment: segment.clone(), visible });
                self.layers.len() - 1
            }
        };
        &mut self.layers[index]
    }

    /// Changes the set hash of all versions, and forgets the head that was computed from it.
    fn update_record_set_hash(&mut self, change: impl FnOnce(&mut SetHash)) {
        change(Arc::make_mut(&mut self.record_set_hash));
        self.head = OnceLock::new();
    }
}

/// Returns where `id` is or would be in a layer at or after `from`, and its visible row.
fn find_in(layer: &Layer, id: &str, from: u32) -> Result<(u32, Option<u32>), SegmentError> {
    let start = layer.segment.lower_bound(id, from)?;
    let mut row = start;
    // An id may stand in several rows of a segment, of which a branch sees one at most.
    while row < layer.segment.rows() && layer.segment.id(row)? == id {
        if layer.visible.contains(row) {
            return Ok((start, Some(row)));
        }
        row += 1;
    }
    Ok((start, None))
}
