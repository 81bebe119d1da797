//! Passages of files: which are to be embedded next, and the files of their vectors.

use std::collections::HashSet;
use std::sync::Arc;

use super::EmbedderSlot;
use super::collect::{BATCH_TEXTS, EmbeddingGoal, EmbeddingTask};
use super::worker::UNWRITTEN_MIN;
use crate::file_index::{Credentials, IndexSegment, PermittedFiles, VisiblePart};
use crate::memory::admission::disk_room::DiskReservation;
use crate::memory::catalog::View;
use crate::memory::storage::file_index::segments_in_memory;
use crate::memory::{Error, Memory};
use crate::object::Hash;
use crate::record::DerivedVector;
use crate::search::DerivedVectors;
use crate::segment::{DerivableTexts, DerivedFile};

/// Passages without a vector in the set: those to embed, and those whose vector another segment's file has.
#[derive(Default)]
struct PassageSearch {
    seen_keys: HashSet<Hash>,
    /// Texts to embed, by the key of their passage.
    texts: Vec<(Hash, String)>,
    /// Vectors that another segment has.
    reused: Vec<(Hash, Arc<DerivedVector>)>,
}

impl Memory {
    /// Returns what is to be done next for passages that some branch below the root branches shows. `None` if nothing
    /// is to be done, or where a damaged index segment was let go of. Kind `Io` or `Damaged` if the index of files or a
    /// passage can't be read.
    pub(super) fn next_passages(
        &self,
        slot: &EmbedderSlot,
        goal: &EmbeddingGoal,
    ) -> Result<Option<EmbeddingTask>, Error> {
        let vectors = slot.derived_vectors(&goal.record);
        if let Some(segment) = self.unwritten_passages(&vectors, UNWRITTEN_MIN)? {
            return Ok(Some(EmbeddingTask::WritePassages(segment)));
        }
        match self.search_passages(slot, goal, &vectors) {
            Ok(search) => {
                if !search.reused.is_empty() {
                    slot.insert(&goal.record, search.reused);
                    self.maintenance.embedding.note_change();
                }
                if !search.texts.is_empty() {
                    return Ok(Some(EmbeddingTask::Embed(search.texts, None)));
                }
            }
            // The contents of what was dropped are indexed anew, and their passages come back here then.
            Err(_) if self.storage.file_index.drop_broken() => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(self.unwritten_passages(&slot.derived_vectors(&goal.record), 1)?.map(EmbeddingTask::WritePassages))
    }

    fn search_passages(
        &self,
        slot: &EmbedderSlot,
        goal: &EmbeddingGoal,
        vectors: &DerivedVectors,
    ) -> Result<PassageSearch, Error> {
        // What is embedded is shown to those alone who may read it.
        let everything = Credentials { uid: 0, groups: Vec::new(), knows_all_groups: true };
        let (catalog, mut search) = (self.catalog().clone(), PassageSearch::default());
        for branch in self.branches_with_files() {
            let is_wanted = catalog.branches.get(&branch).is_some_and(|branch| goal.roots.contains(&branch.root));
            let files = if is_wanted { self.visible_files(&View::Branch(branch))? } else { None };
            let Some(files) = files else { continue };
            let files = files.permitted(&everything, everything.uid)?;
            for part in files.parts() {
                self.search_part((&files, part), slot, vectors, &mut search)?;
            }
        }
        Ok(search)
    }

    fn search_part(
        &self,
        (files, part): (&PermittedFiles, &VisiblePart),
        slot: &EmbedderSlot,
        vectors: &DerivedVectors,
        search: &mut PassageSearch,
    ) -> Result<(), Error> {
        let file = part.segment.derived().get(&vectors.embedder);
        let columns = file.as_ref().map(|file| file.columns()).transpose()?;
        for row in part.visible_rows() {
            if search.texts.len() == BATCH_TEXTS {
                break;
            }
            let location = part.segment.passage_location(row)?;
            let key = location.key.vector_key();
            let is_done = columns.as_ref().is_some_and(|columns| columns.number(row).is_some());
            if is_done || vectors.recent.contains_key(&key) || slot.is_refused(&key) || !search.seen_keys.insert(key) {
                continue;
            }
            if let Some(vector) = self.stored_passage(&vectors.embedder, &key)? {
                search.reused.push((key, Arc::new(DerivedVector::new(vector))));
            } else if let Some(file) = files.files_with_passage(&part.segment, row)?.first() {
                search.texts.push((key, files.text((&part.segment, &location), file.inode, self.packs())?));
            }
        }
        Ok(())
    }

    fn stored_passage(&self, set: &Hash, key: &Hash) -> Result<Option<Vec<f32>>, Error> {
        for segment in &self.storage.file_index.segment_set().segments {
            if let Some(file) = segment.derived().get(set)
                && let Some(vector) = file.find(key)?
            {
                return Ok(Some(vector.to_vec()));
            }
        }
        Ok(None)
    }

    /// Returns a segment that has a file, and `least` vectors in memory that no file of the set has.
    fn unwritten_passages(&self, vectors: &DerivedVectors, least: usize) -> Result<Option<Arc<IndexSegment>>, Error> {
        if vectors.recent.is_empty() {
            return Ok(None);
        }
        for segment in self.storage.file_index.segment_set().segments.iter().filter(|segment| segment.name().is_some())
        {
            let file = segment.derived().get(&vectors.embedder);
            let columns = file.as_ref().map(|file| file.columns()).transpose()?;
            let is_stored = |row: u32| columns.as_ref().is_some_and(|columns| columns.number(row).is_some());
            let keys = segment.vector_keys()?.into_iter().zip(0u32..);
            let unwritten = keys.filter(|(key, row)| vectors.recent.contains_key(key) && !is_stored(*row));
            if unwritten.take(least).count() == least {
                return Ok(Some(segment.clone()));
            }
        }
        Ok(None)
    }

    /// Writes the vectors of a segment's passages that are there by now, and puts them in use. The next seal has the
    /// manifest name the file. Fails if the segment can't be read or the disk refuses the file.
    pub(super) fn write_passages(
        &self,
        slot: &EmbedderSlot,
        goal: &EmbeddingGoal,
        segment: &Arc<IndexSegment>,
    ) -> Result<(), Error> {
        self.install_passages(segment, &slot.derived_vectors(&goal.record), |bytes| self.reserve_room(bytes))?;
        self.forget_passages(slot, segment)?;
        self.maintenance.embedding.note_change();
        Ok(())
    }

    fn install_passages<'a>(
        &'a self,
        segment: &Arc<IndexSegment>,
        vectors: &DerivedVectors,
        reserve_room: impl FnOnce(u64) -> Result<DiskReservation<'a>, Error>,
    ) -> Result<(), Error> {
        let Some(name) = segment.name() else { return Ok(()) };
        let (set, keys) = (vectors.embedder, segment.vector_keys()?);
        let find = |key: &Hash| {
            let stored = || self.stored_passage(&set, key).ok().flatten().map(DerivedVector::new).map(Arc::new);
            vectors.recent.get(key).cloned().or_else(stored)
        };
        if !keys.iter().any(|key| find(key).is_some()) {
            return Ok(());
        }
        // Four bytes a number for the vector and one for its code, and some 50 for hash, number and bounds.
        let row_bytes = vectors.dim as u64 * 5 + 64;
        let _room = reserve_room(keys.len() as u64 * row_bytes)?;
        let blobs = &self.storage.segments.blobs;
        // Nothing names the file before it is attached.
        let _publishing = blobs.begin_publishing();
        let name = DerivableTexts::from_hashes(keys.into_iter()).write(blobs, &name, (&set, vectors.dim), &find)?;
        let file = DerivedFile::open(blobs, name)?;
        file.columns()?;
        segment.derived().attach(Arc::new(file));
        Ok(())
    }

    /// Lets go of vectors in memory that a segment's files have, and that no segment in memory needs.
    fn forget_passages(&self, slot: &EmbedderSlot, segment: &IndexSegment) -> Result<(), Error> {
        let mut needed = HashSet::new();
        for segment in segments_in_memory(&self.storage.file_index.segment_set()) {
            // A segment that is not written yet finds its vectors in memory alone.
            needed.extend(segment.vector_keys()?);
        }
        let keys = segment.vector_keys()?;
        for file in segment.derived().list() {
            let is_stored = |key: &&Hash| !needed.contains(*key) && matches!(file.find(key), Ok(Some(_)));
            slot.remove_written(&file.embedder(), keys.iter().filter(is_stored).copied());
        }
        Ok(())
    }

    /// Gives a segment of the index that was just written the vectors that there are of its passages: those in memory, and
    /// those beside the segments that it takes the place of. The caller holds the lock of `storage.manifest`.
    pub(in crate::memory) fn carry_over_passage_vectors(
        &self,
        segment: &Arc<IndexSegment>,
        before: &[Arc<IndexSegment>],
    ) {
        let mut sets: Vec<DerivedVectors> =
            self.maintenance.embedding.slots().iter().flat_map(|slot| slot.sets()).collect();
        for file in before.iter().flat_map(|segment| segment.derived().list()) {
            if sets.iter().all(|set| set.embedder != file.embedder()) {
                let recent = Default::default();
                sets.push(DerivedVectors { embedder: file.embedder(), dim: file.dim(), recent });
            }
        }
        // Room that is not there can't be made: a collection takes the lock that the caller holds.
        let reserve_room = |bytes| self.reserve_free_room(bytes);
        if let Err(error) = sets.iter().try_for_each(|set| self.install_passages(segment, set, reserve_room)) {
            log::warn!("passages are embedded again: {error}");
        }
    }

    /// Lets go of vectors in memory that are in files beside the segments that are in files.
    pub(in crate::memory) fn forget_written_passages(&self) {
        for slot in self.maintenance.embedding.slots() {
            for segment in &self.storage.file_index.segment_set().segments {
                if let Err(error) = self.forget_passages(&slot, segment) {
                    log::debug!("vectors of passages stay in memory: {error}");
                }
            }
        }
    }
}
