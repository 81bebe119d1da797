//! The open segments of a store, each opened once, so that all states that see one share its graphs and what was checked of
//! it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::memory::Error;
use crate::object::{BlobStore, Hash};
use crate::segment::{DerivedFile, GraphFile, Segment, container_kind};
use crate::sync::{Mutex, MutexGuard};

/// The blob store, and the segments that are open of it.
pub(in crate::memory) struct Segments {
    /// The folder of all immutable files, of packs and archives too.
    pub blobs: BlobStore,
    /// Whether every byte of a segment is checked when it is opened, not only when it is touched.
    thorough: bool,
    open: Mutex<HashMap<Hash, Arc<Segment>>>,
}

impl Segments {
    /// Opens nothing yet. With `thorough` each file is read and checked whole when it is opened, as for a check of the store.
    pub fn new(blobs: BlobStore, thorough: bool) -> Segments {
        Segments { blobs, thorough, open: Mutex::default() }
    }

    /// Returns the segment with that name. It is opened once and kept; in a thorough store every byte is checked then.
    /// Fails with `Error::NoSegment` if the file is missing, and with `Error::Segment` if it is damaged or can't be
    /// read.
    pub fn get(&self, name: &Hash) -> Result<Arc<Segment>, Error> {
        // The lock is held while the file is opened: two objects for one file would have two sets of graphs.
        let mut open = self.lock_open();
        if let Some(segment) = open.get(name) {
            return Ok(segment.clone());
        }
        let segment = Arc::new(Segment::open(&self.blobs, *name)?);
        if self.thorough {
            segment.verify()?;
        }
        open.insert(*name, segment.clone());
        Ok(segment)
    }

    /// Opens a new segment and prefetches what queries search, so that the first query is not cold. Fails like
    /// [`Segments::get`], or like [`Segment::prefetch`].
    pub fn get_prefetched(&self, name: &Hash) -> Result<Arc<Segment>, Error> {
        let segment = self.get(name)?;
        if let Err(error) = segment.prefetch() {
            // Whoever tries again may write the same bytes, which have the same name, and is to find these.
            self.lock_open().remove(name);
            return Err(error.into());
        }
        Ok(segment)
    }

    /// Opens a graph, or a file of derived vectors, and gives it to its segment, where that is open. Fails if the file
    /// is missing, is neither of the two kinds, or is damaged. A segment that is not open is not an error.
    pub fn attach(&self, name: &Hash) -> Result<(), Error> {
        if container_kind(&self.blobs, *name)? == DerivedFile::KIND {
            return self.attach_derived(name);
        }
        let graph = GraphFile::open(&self.blobs, *name)?;
        if self.thorough {
            graph.verify()?;
        }
        if let Some(segment) = self.lock_open().get(&graph.segment()) {
            segment.attach(Arc::new(graph));
        }
        Ok(())
    }

    fn attach_derived(&self, name: &Hash) -> Result<(), Error> {
        let derived = DerivedFile::open(&self.blobs, *name)?;
        if self.thorough {
            derived.verify()?;
        }
        let segment = self.lock_open().get(&derived.segment()).cloned();
        if let Some(segment) = segment {
            segment.derived().attach(Arc::new(derived));
        }
        Ok(())
    }

    /// Closes all segments that are not in `live`. Readers that still hold one keep it open.
    pub fn drop_dead(&self, live: &HashSet<Hash>) {
        self.lock_open().retain(|name, _| live.contains(name));
    }

    /// Returns all open segments, including those that no state sees any longer.
    pub fn list(&self) -> Vec<Arc<Segment>> {
        self.lock_open().values().cloned().collect()
    }

    /// Returns how many are open, also those that no state sees any longer.
    pub fn count(&self) -> usize {
        self.lock_open().len()
    }

    fn lock_open(&self) -> MutexGuard<'_, HashMap<Hash, Arc<Segment>>> {
        self.open.lock()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
    use crate::memory::{Actor, Environment, Memory, OpenMode, RecordEdit, RecordInput};
    use crate::segment::FOLDER;

    /// A store with a segment of one record.
    fn sealed_store(disk: impl Disk + 'static) -> Arc<Memory> {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment { graph_rows: u32::MAX, reserve_bytes: 0, ..Environment::real(who.clone()) };
        let memory = Memory::open_on(Arc::new(disk), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let input = RecordInput { vector: None, text: Some("words".into()), metadata: "{\"n\":1}".into() };
        memory.commit(&who, main, vec![RecordEdit::Put { id: "a".into(), input }]).unwrap();
        memory.seal().unwrap();
        memory
    }

    #[test]
    fn a_segment_that_was_damaged_is_opened_anew_once_its_bytes_are_right() {
        let disk = ForgetfulDisk::new();
        let name = sealed_store(disk.clone()).storage.segments.list().remove(0).name();
        let blobs = BlobStore::open_existing(Arc::new(disk.clone()), FOLDER);
        let path = blobs.path(&name);
        let flip = |at: u64| disk.flip(&path, at, 1).unwrap();
        let is_met = |at: &u64| {
            flip(*at);
            let is_met = Segment::open(&blobs, name).is_ok_and(|segment| segment.prefetch().is_err());
            flip(*at);
            is_met
        };
        let at = (0..disk.bytes(&path).unwrap().len() as u64).find(is_met).unwrap();
        let segments = Segments::new(BlobStore::open_existing(Arc::new(disk.clone()), FOLDER), false);
        flip(at);
        assert!(segments.get_prefetched(&name).is_err());
        flip(at);
        assert!(segments.get_prefetched(&name).is_ok());
    }

    /// The first query by words or with a filter read and hashed the whole index.
    #[test]
    fn the_indexes_of_a_segment_are_checked_before_the_seal_puts_it_in_place() {
        let disk = FaultyDisk::new(ForgetfulDisk::new());
        let memory = sealed_store(disk.clone());
        // No thread but this one reads while calls are counted.
        memory.wait_until_indexed();
        let reads = |segment: &Segment| {
            disk.plan(Fault::once(0, &[DiskCall::Read], libc::EIO));
            segment.postings().unwrap();
            segment.facets().unwrap();
            disk.calls()
        };
        let sealed = memory.storage.segments.list().remove(0);
        assert_eq!(reads(&sealed), 0);
        let opened = Segment::open(&memory.storage.segments.blobs, sealed.name()).unwrap();
        assert_eq!(reads(&opened), 2, "a control: what is opened is checked at its first use");
    }
}
