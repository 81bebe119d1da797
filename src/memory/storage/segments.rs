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

    /// Opens a new segment and prefetches its vector columns, so that the first query is not cold. Fails like
    /// [`Segments::get`], or if the columns of vectors can't be read.
    pub fn get_prefetched(&self, name: &Hash) -> Result<Arc<Segment>, Error> {
        let segment = self.get(name)?;
        segment.prefetch()?;
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
