//! What is to be embedded next.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::EmbedderSlot;
use crate::branch::{BranchVersion, VisibleRows};
use crate::file_index::IndexSegment;
use crate::memory::catalog::{BranchId, Catalog, EmbedderRecord};
use crate::memory::{Error, Memory};
use crate::object::Hash;
use crate::record::DerivedVector;
use crate::segment::{DerivableTexts, Segment};

/// Texts that are looked for at a time, so that those of new records come before the rest.
pub(super) const BATCH_TEXTS: usize = 512;

/// A set of vectors, and below which root branches it counts, or is to.
pub(super) struct EmbeddingGoal {
    /// The embedder and the dimension, as an entry has them or will.
    pub record: EmbedderRecord,
    /// The root branches: texts of all branches below them are embedded.
    pub roots: Vec<BranchId>,
}

/// What is to be done next for a set, as little as the thread does between two looks at what is new.
pub(super) enum EmbeddingTask {
    /// These texts are to be embedded; of the rows of a segment where it is named.
    Embed(Vec<(Hash, String)>, Option<Arc<Segment>>),
    /// All texts of a segment are embedded that can be: its file is to be written.
    Write(Arc<Segment>),
    /// The same for passages of files.
    WritePassages(Arc<IndexSegment>),
}

impl Memory {
    /// Returns what is to be done next for a set: texts of unsealed versions first, then segments, the smallest first,
    /// then passages of files. `None` if nothing is to be done. Kind `Io` or `Damaged` if a segment or the index of
    /// files can't be read.
    pub(super) fn next_embedding(
        &self,
        slot: &EmbedderSlot,
        goal: &EmbeddingGoal,
    ) -> Result<Option<EmbeddingTask>, Error> {
        let states = queryable_states(&self.catalog_now(), &goal.roots);
        let texts = self.unsealed_texts(slot, goal, &states)?;
        if !texts.is_empty() {
            return Ok(Some(EmbeddingTask::Embed(texts, None)));
        }
        let mut segments: Vec<(Arc<Segment>, VisibleRows)> = seen_segments(&states).into_values().collect();
        segments.sort_by_key(|(segment, _)| segment.rows());
        for (segment, seen) in segments {
            if let Some(task) = self.segment_task(slot, goal, segment, &seen)? {
                return Ok(Some(task));
            }
        }
        self.next_passages(slot, goal)
    }

    fn unsealed_texts(
        &self,
        slot: &EmbedderSlot,
        goal: &EmbeddingGoal,
        states: &[Arc<BranchVersion>],
    ) -> Result<Vec<(Hash, String)>, Error> {
        let vectors = slot.derived_vectors(&goal.record);
        let (mut texts, mut seen, mut found) = (Vec::new(), HashSet::new(), Vec::new());
        for version in states.iter().flat_map(|state| state.unsealed().values()) {
            let (Some(hash), Some(text)) = (version.derivable_text_hash(), version.derivable_text()) else { continue };
            // Branches share versions and texts, so each text is looked at once.
            if vectors.recent.contains_key(&hash) || !seen.insert(hash) || slot.is_refused(&hash) {
                continue;
            }
            match self.stored_vector(&goal.record.derived_set(), &hash)? {
                Some(vector) => found.push((hash, Arc::new(DerivedVector::new(vector)))),
                None => texts.push((hash, text.to_owned())),
            }
            if texts.len() == BATCH_TEXTS {
                break;
            }
        }
        if !found.is_empty() {
            slot.insert(&goal.record, found);
            self.maintenance.embedding.note_change();
        }
        Ok(texts)
    }

    fn segment_task(
        &self,
        slot: &EmbedderSlot,
        goal: &EmbeddingGoal,
        segment: Arc<Segment>,
        seen: &VisibleRows,
    ) -> Result<Option<EmbeddingTask>, Error> {
        let (set, vectors) = (goal.record.derived_set(), slot.derived_vectors(&goal.record));
        let file = segment.derived().get(&set);
        if let Some(file) = &file {
            let columns = file.columns()?;
            // Rows that no branch shows may wait for ever, and no text is embedded for them.
            if file.counts().unembedded_rows == 0 || !seen.iter().any(|row| columns.is_unembedded(row)) {
                return Ok(None);
            }
        }
        let (mut wanted, mut texts, mut has_new) = (HashSet::new(), Vec::new(), file.is_none());
        DerivableTexts::read(&segment, |row, hash, text| {
            if seen.contains(row) && texts.len() < BATCH_TEXTS && wanted.insert(hash) {
                if vectors.recent.contains_key(&hash) {
                    has_new = true;
                } else if !slot.is_refused(&hash) {
                    texts.push((hash, text.to_owned()));
                }
            }
        })?;
        // A text that another segment has is not embedded again.
        let mut kept = Vec::new();
        for (hash, text) in texts {
            match self.stored_vector(&set, &hash)? {
                None => kept.push((hash, text)),
                Some(_) => has_new |= !self.has_vector(&segment, &set, &hash)?,
            }
        }
        if !kept.is_empty() {
            return Ok(Some(EmbeddingTask::Embed(kept, Some(segment))));
        }
        Ok(has_new.then_some(EmbeddingTask::Write(segment)))
    }

    fn has_vector(&self, segment: &Segment, set: &Hash, text: &Hash) -> Result<bool, Error> {
        let Some(file) = segment.derived().get(set) else { return Ok(false) };
        Ok(file.find(text)?.is_some())
    }

    /// Returns the vector of a text out of the files of a set. `None` if no file has it. Kind `Io` or `Damaged` if a
    /// file of the set is damaged or can't be read.
    pub(super) fn stored_vector(&self, set: &Hash, text: &Hash) -> Result<Option<Vec<f32>>, Error> {
        for segment in self.storage.segments.list() {
            if let Some(file) = segment.derived().get(set)
                && let Some(vector) = file.find(text)?
            {
                return Ok(Some(vector.to_vec()));
            }
        }
        Ok(None)
    }

    /// Returns the hashes of all texts of unsealed versions below some root branches.
    pub(super) fn unsealed_hashes(&self, roots: &[BranchId]) -> HashSet<Hash> {
        let states = queryable_states(&self.catalog_now(), roots);
        states
            .iter()
            .flat_map(|state| state.unsealed().values())
            .filter_map(|version| version.derivable_text_hash())
            .collect()
    }
}

/// Returns the states below some root branches that queries are put to, each once.
fn queryable_states(catalog: &Catalog, roots: &[BranchId]) -> Vec<Arc<BranchVersion>> {
    let (mut seen, mut states) = (HashSet::new(), Vec::new());
    for branch in catalog.branches.values().filter(|branch| roots.contains(&branch.root)) {
        let frozen = branch.frozen_states().map(|frozen| &frozen.state);
        for state in [&branch.state].into_iter().chain(frozen) {
            if seen.insert(Arc::as_ptr(state)) {
                states.push(state.clone());
            }
        }
    }
    states
}

fn seen_segments(states: &[Arc<BranchVersion>]) -> BTreeMap<Hash, (Arc<Segment>, VisibleRows)> {
    let mut segments = BTreeMap::new();
    for layer in states.iter().flat_map(|state| state.layers()) {
        let none = || (layer.segment.clone(), VisibleRows::none(layer.segment.rows()));
        let (_, seen) = segments.entry(layer.segment.name()).or_insert_with(none);
        seen.union_with(&layer.visible);
    }
    segments
}
