//! The store's own files: the manifest, segments that are open, and where trees of files are stored.

pub mod file_index;
pub mod manifest;
pub mod segments;
pub mod trees;

use std::collections::HashSet;
use std::io;

use crate::disk::Disk;
use crate::memory::Error;
use crate::object::Hash;
use crate::sync::Mutex;

/// The store's own files as far as they are open, with the locks that guard them.
pub(in crate::memory) struct Storage {
    /// What the manifest says. Guards sealing, compaction and sweeping: one at a time.
    pub manifest: Mutex<manifest::StoredManifest>,
    /// Segments by name, each open once, so that all states share what was checked of it.
    pub segments: segments::Segments,
    /// Open packs, and the snapshots that trees of files are stored against.
    pub trees: trees::TreeStore,
    /// The index of files, and who is indexing what.
    pub file_index: file_index::FileIndex,
    /// Segments that a journal frame names and that are therefore never swept before the next seal.
    pub journal_segments: Mutex<HashSet<Hash>>,
}

/// Reads a small file whole. Kind `Damaged` if it is missing, `Io` if the disk fails.
pub(in crate::memory) fn read_file(disk: &dyn Disk, path: &str) -> Result<Vec<u8>, Error> {
    let read = || -> io::Result<Vec<u8>> {
        let file = disk.open(path)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    read().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::damaged(format!("the file {path} is missing from the store")),
        _ => Error::io(format!("the file {path} could not be read"), error),
    })
}
