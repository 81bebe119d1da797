//! How trees of files are stored: contents in packs, the tree itself as a snapshot and what differs
//! from it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::disk::Disk;
use crate::memory::Error;
use crate::object::{BlobStore, Hash};
use crate::segment::{FOLDER, SegmentError};
use crate::sync::Mutex;
use crate::workspace::{Pack, Packs, Tree, TreeError, read_snapshot, verify_snapshot, write_snapshot};

/// Bytes of a difference from which on a new snapshot is written, where it is also a fourth of the
/// snapshot.
const DELTA_BYTES_MAX: usize = 256 << 10;

/// The open packs of a store, and the snapshots against which trees are stored.
pub(in crate::memory) struct TreeStore {
    blobs: BlobStore,
    /// Whether every byte is checked when a file is opened, not only when it is touched.
    thorough: bool,
    packs: Mutex<HashMap<Hash, Arc<Pack>>>,
    snapshots: Mutex<Vec<TreeSnapshot>>,
}

/// A tree that is stored in a file of its own, and its bytes there: others are stored as what they differ in.
#[derive(Clone)]
struct TreeSnapshot {
    name: Hash,
    tree: Tree,
    bytes: usize,
}

/// A tree as stored in the manifest: a snapshot and a difference from it.
pub(in crate::memory) struct StoredTree {
    /// Name of the snapshot's file, zeros for the empty tree.
    pub snapshot: Hash,
    /// The difference from the snapshot, as returned by [`Tree::delta_from`].
    pub delta: Vec<u8>,
}

impl Packs for TreeStore {
    fn pack(&self, name: &Hash) -> Result<Arc<Pack>, SegmentError> {
        // Held while the pack is opened, so that two readers open and check it once.
        let mut packs = self.packs.lock();
        if let Some(pack) = packs.get(name) {
            return Ok(pack.clone());
        }
        let pack = Arc::new(Pack::open(&self.blobs, *name)?);
        if self.thorough {
            pack.verify()?;
        }
        packs.insert(*name, pack.clone());
        Ok(pack)
    }

    fn holder(&self, hash: &Hash) -> Option<Arc<Pack>> {
        let open: Vec<Arc<Pack>> = self.packs.lock().values().cloned().collect();
        open.into_iter().find(|pack| pack.contains(hash))
    }
}

impl TreeStore {
    /// Opens nothing yet; packs and snapshots are in the blob store of `disk`.
    pub fn new(disk: Arc<dyn Disk>, thorough: bool) -> TreeStore {
        let blobs = BlobStore::open_existing(disk, FOLDER);
        TreeStore { blobs, thorough, packs: Mutex::default(), snapshots: Mutex::default() }
    }

    /// Returns the stored form of a tree without unsealed contents; writes a new snapshot where it has moved far from
    /// those there are. Fails if an unsealed chunk can't be read, or if a snapshot can't be written.
    pub fn store(&self, tree: &Tree) -> Result<StoredTree, Error> {
        // Clones, so that no lock is held while a file is written.
        let snapshots = self.snapshots.lock().clone();
        let empty = TreeSnapshot { name: Hash::ZERO, tree: Tree::default(), bytes: 0 };
        let mut nearest: Option<StoredTree> = None;
        for snapshot in std::iter::once(&empty).chain(snapshots.iter()) {
            let best = nearest.as_ref().map_or(usize::MAX, |found| found.delta.len() - 1);
            // One at a time, and none to its end that is too long: large trees have many snapshots that are nothing like
            // them.
            let bytes_max = DELTA_BYTES_MAX.max(snapshot.bytes / 4).min(best);
            if let Some(delta) = tree.delta_within(&snapshot.tree, bytes_max).map_err(tree_error)? {
                nearest = Some(StoredTree { snapshot: snapshot.name, delta });
            }
        }
        if let Some(nearest) = nearest {
            return Ok(nearest);
        }
        // Written before it is pushed: a snapshot that others refer to has to be on the disk.
        let name = write_snapshot(&self.blobs, tree).map_err(tree_error)?;
        let bytes = tree.delta_from(&Tree::default()).map_err(tree_error)?.len();
        self.snapshots.lock().push(TreeSnapshot { name, tree: tree.clone(), bytes });
        // The tree is its own snapshot now. The stored form has a difference in any case, and this is the shortest.
        let delta = tree.delta_from(tree).map_err(tree_error)?;
        Ok(StoredTree { snapshot: name, delta })
    }

    /// Returns the tree of a stored form. Kind `Damaged` if the snapshot or the difference is not what was written.
    pub fn load(&self, stored_tree: &StoredTree) -> Result<Tree, Error> {
        let base =
            if stored_tree.snapshot == Hash::ZERO { Tree::default() } else { self.snapshot(&stored_tree.snapshot)? };
        base.with_delta(&stored_tree.delta).map_err(tree_error)
    }

    fn snapshot(&self, name: &Hash) -> Result<Tree, Error> {
        let mut snapshots = self.snapshots.lock();
        if let Some(found) = snapshots.iter().find(|snapshot| snapshot.name == *name) {
            return Ok(found.tree.clone());
        }
        let read = if self.thorough { verify_snapshot } else { read_snapshot };
        let tree = read(&self.blobs, *name).map_err(tree_error)?;
        let bytes = tree.delta_from(&Tree::default()).map_err(tree_error)?.len();
        snapshots.push(TreeSnapshot { name: *name, tree: tree.clone(), bytes });
        Ok(tree)
    }

    /// Lets go of snapshots that a new manifest does not name.
    pub fn drop_unnamed_snapshots(&self, named: &HashSet<Hash>) {
        self.snapshots.lock().retain(|snapshot| named.contains(&snapshot.name));
    }

    /// Lets go of all snapshots: trees are stored anew, against new ones.
    pub fn forget_snapshots(&self) {
        self.snapshots.lock().clear();
    }

    /// Closes all packs that are not in `live`. Readers that still hold one keep it open.
    pub fn drop_dead_packs(&self, live: &HashSet<Hash>) {
        self.packs.lock().retain(|name, _| live.contains(name));
    }

    /// Returns the names of the snapshots that trees are stored against: their files must stay.
    pub fn snapshot_names(&self) -> Vec<Hash> {
        self.snapshots.lock().iter().map(|snapshot| snapshot.name).collect()
    }
}

/// Turns an error of stored trees into the store's: of kind `Damaged` unless a segment or the disk says otherwise.
pub(in crate::memory) fn tree_error(error: TreeError) -> Error {
    match error {
        TreeError::Segment(error) => error.into(),
        error => Error::damaged(format!("a tree of files can't be read or written: {error}")),
    }
}
