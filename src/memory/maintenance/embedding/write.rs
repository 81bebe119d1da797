//! The files of derived vectors: written by the thread for segments that are there, and by a seal for those it makes.

use std::collections::HashSet;
use std::sync::Arc;

use super::EmbedderSlot;
use super::collect::EmbeddingGoal;
use crate::memory::admission::disk_room::DiskReservation;
use crate::memory::{Error, Memory};
use crate::object::Hash;
use crate::record::DerivedVector;
use crate::search::DerivedVectors;
use crate::segment::{DerivableTexts, DerivedFile, Segment};

impl Memory {
    /// Writes the vectors of a segment's rows that are there by now, and puts them in use. The next seal has the
    /// manifest name the file. Fails if the segment can't be read or the disk refuses the file.
    pub(super) fn write_derived(
        &self,
        slot: &EmbedderSlot,
        goal: &EmbeddingGoal,
        segment: &Arc<Segment>,
    ) -> Result<(), Error> {
        let mut hashes = HashSet::new();
        let texts = DerivableTexts::read(segment, |_, hash, _| _ = hashes.insert(hash))?;
        let vectors = slot.derived_vectors(&goal.record);
        let room = self.reserve_room(derived_bytes(segment, &vectors))?;
        self.install_derived(&texts, segment, &vectors, room)?;
        // Unsealed versions find their vectors in memory alone, so those of their texts stay there.
        let unsealed = self.unsealed_hashes(&goal.roots);
        let file = segment.derived().get(&goal.record.derived_set());
        let is_stored = |hash: &Hash| file.as_ref().is_some_and(|file| matches!(file.find(hash), Ok(Some(_))));
        let stored = hashes.into_iter().filter(|hash| !unsealed.contains(hash) && is_stored(hash));
        slot.remove_written(&goal.record.derived_set(), stored);
        self.maintenance.embedding.note_change();
        Ok(())
    }

    fn install_derived(
        &self,
        texts: &DerivableTexts,
        segment: &Arc<Segment>,
        vectors: &DerivedVectors,
        _room: DiskReservation<'_>,
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
        let blobs = &self.storage.segments.blobs;
        // Nothing names the file before it is attached.
        let _publishing = blobs.begin_publishing();
        let name = texts.write(blobs, &segment.name(), (&set, vectors.dim), &find)?;
        let file = DerivedFile::open(blobs, name)?;
        file.columns()?;
        segment.derived().attach(Arc::new(file));
        Ok(())
    }

    /// Gives a segment that a seal has written the vectors that there are of its rows: those in memory, and those in the
    /// files of segments whose rows moved into it, also of embedders that are not set now. The caller holds the lock of
    /// `storage.manifest`.
    pub(in crate::memory) fn carry_over_vectors(&self, segment: &Arc<Segment>) {
        let slots = self.maintenance.embedding.slots();
        let mut sets: Vec<DerivedVectors> = slots.iter().flat_map(|slot| slot.sets()).collect();
        for file in self.storage.segments.list().iter().flat_map(|segment| segment.derived().list()) {
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
            wanted.into_iter().try_for_each(|set| {
                // Room that is not there can't be made: a collection takes the lock that this seal holds.
                let room = self.reserve_free_room(derived_bytes(segment, set))?;
                self.install_derived(&texts, segment, set, room)
            })
        });
        if let Err(error) = done {
            // The records are what a seal must not lose.
            log::warn!("texts are embedded again: {error}");
        }
    }
}

/// Returns what a file of vectors of all rows takes: a vector and its code, and hash, number and bounds.
fn derived_bytes(segment: &Segment, vectors: &DerivedVectors) -> u64 {
    u64::from(segment.rows()) * (vectors.dim as u64 * 5 + 64)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::disk::{Disk, ForgetfulDisk};
    use crate::embed::{EmbedError, Embedder, TextKind};
    use crate::memory::{Actor, Environment, Kind, OpenMode, Query, RecordEdit, RecordInput, View};

    struct SameForAll;

    impl Embedder for SameForAll {
        fn name(&self) -> &str {
            "same"
        }

        fn description(&self) -> &[u8] {
            b"same"
        }

        fn batch_texts_max(&self) -> usize {
            4
        }

        fn embed(&self, _: TextKind, texts: &[&str], _: Duration) -> Result<Vec<Vec<f32>>, EmbedError> {
            Ok(vec![vec![1.0, 2.0]; texts.len()])
        }
    }

    #[test]
    fn a_seal_on_a_full_disk_waits_for_no_room_for_vectors() {
        let disk = ForgetfulDisk::new();
        disk.limit(16 << 20, 1 << 20);
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment { reserve_bytes: 1 << 20, ..Environment::real(who.clone()) };
        let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        memory.set_embedder(None, Box::new(SameForAll));
        let put = |id: &str, text: String| {
            let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
            memory.commit(&who, main, vec![RecordEdit::Put { id: id.into(), input }])
        };
        put("first", "green tea".into()).unwrap();
        memory.wait_until_embedded();
        memory.seal().unwrap();
        put("second", "black coffee".into()).unwrap();
        memory.wait_until_embedded();
        let others = disk.create("other").unwrap();
        others.allocate(disk.space().unwrap().available_bytes - (200 << 10)).unwrap();
        assert_eq!(put("large", "x".repeat(900 << 10)).unwrap_err().kind(), Kind::Full);
        memory.gc(&who, None, false).unwrap();
        assert!(memory.catalog().branch(main).unwrap().state.unsealed().is_empty());
        drop(others);
        disk.remove("other").unwrap();
        put("third", "white wine".into()).unwrap();
        memory.wait_until_embedded();
        let status = memory.status(&View::Branch(main)).unwrap();
        assert_eq!(status["index"]["unembedded"], 0, "{status}");
        let query = Query::parse(r#"{"vector":[1,2],"mode":"vector"}"#).unwrap();
        let hits = memory.query(&View::Branch(main), &query).unwrap().hits;
        let found: Vec<&str> = hits.iter().map(|hit| &*hit.id).collect();
        assert_eq!(found, ["first", "second", "third"], "each by the vector of its text");
    }
}
