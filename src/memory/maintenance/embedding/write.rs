//! The files of derived vectors: written by the thread for segments that are there, and by a seal for those it makes.

use std::collections::HashSet;
use std::sync::Arc;

use super::EmbedderSlot;
use super::collect::EmbeddingGoal;
use crate::memory::{Error, Memory};
use crate::object::Hash;
use crate::record::DerivedVector;
use crate::search::DerivedVectors;
use crate::segment::{DerivableTexts, DerivedFile, Segment};

impl Memory {
    /// Writes the vectors of a segment's rows that are there by now, and puts them in use. The next seal has the manifest
    /// name the file. Fails where the segment can't be read or the disk refuses the file.
    pub(super) fn write_derived(
        &self,
        slot: &EmbedderSlot,
        goal: &EmbeddingGoal,
        segment: &Arc<Segment>,
    ) -> Result<(), Error> {
        let mut hashes = HashSet::new();
        let texts = DerivableTexts::read(segment, |_, hash, _| _ = hashes.insert(hash))?;
        self.install_derived(&texts, segment, &slot.vectors(&goal.record))?;
        // Unsealed versions find their vectors in memory alone, so those of their texts stay there.
        let unsealed = self.unsealed_hashes(&goal.roots);
        let file = segment.derived().of(&goal.record.set());
        let is_stored = |hash: &Hash| file.as_ref().is_some_and(|file| matches!(file.find(hash), Ok(Some(_))));
        let stored = hashes.into_iter().filter(|hash| !unsealed.contains(hash) && is_stored(hash));
        slot.forget(&goal.record.set(), stored);
        self.maintenance.embedding.step();
        Ok(())
    }

    fn install_derived(
        &self,
        texts: &DerivableTexts,
        segment: &Arc<Segment>,
        vectors: &DerivedVectors,
    ) -> Result<(), Error> {
        let set = vectors.embedder;
        let find = |hash: &Hash| {
            let stored = || match self.stored_vector(&set, hash) {
                Ok(found) => found.map(|vector| Arc::new(DerivedVector::new(vector))),
                Err(error) => {
                    log::warn!("a vector is made again: {error}");
                    None
                }
            };
            vectors.recent.get(hash).cloned().or_else(stored)
        };
        let row_bytes = vectors.dim as u64 * 5 + 64;
        let _room = self.take_room(u64::from(segment.rows()) * row_bytes)?;
        let blobs = &self.storage.segments.blobs;
        // Nothing names the file before it is attached.
        let _publishing = blobs.publishing();
        let name = texts.write(blobs, &segment.name(), (&set, vectors.dim), &find)?;
        let file = DerivedFile::open(blobs, name)?;
        file.columns()?;
        segment.derived().attach(Arc::new(file));
        Ok(())
    }

    /// Gives a segment that a seal has written the vectors that there are of its rows: those in memory, and those in the
    /// files of segments whose rows moved into it, also of embedders that are not set now.
    pub(in crate::memory) fn derive_sealed(&self, segment: &Arc<Segment>) {
        let slots = self.maintenance.embedding.slots();
        let mut sets: Vec<DerivedVectors> = slots.iter().flat_map(|slot| slot.sets()).collect();
        for file in self.storage.segments.all().iter().flat_map(|segment| segment.derived().all()) {
            if sets.iter().all(|set| set.embedder != file.embedder()) {
                let recent = Default::default();
                sets.push(DerivedVectors { embedder: file.embedder(), dim: file.dim(), recent });
            }
        }
        if sets.is_empty() {
            return;
        }
        let done = DerivableTexts::read(segment, |_, _, _| ()).map_err(Error::from).and_then(|texts| {
            let wanted = sets.iter().filter(|set| segment.dim() == 0 || segment.dim() == set.dim);
            wanted.into_iter().try_for_each(|set| self.install_derived(&texts, segment, set))
        });
        if let Err(error) = done {
            // The records are what a seal must not lose.
            log::warn!("texts are embedded again: {error}");
        }
    }
}
