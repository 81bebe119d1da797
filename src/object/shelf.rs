//! The folder of immutable files, each named by a hash of its content.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Hash;
use crate::disk::{Disk, DiskFile};

/// Prefix of files that are still being written; what a crash left of them goes with the next sweep.
const DRAFT: &str = "draft-";

/// A folder of files that never change once they have their name.
pub struct Shelf {
    disk: Arc<dyn Disk>,
    folder: &'static str,
    drafts: AtomicU64,
}

impl Shelf {
    /// Returns the shelf in `folder`, which is made if it is not there.
    pub fn new(disk: Arc<dyn Disk>, folder: &'static str) -> io::Result<Shelf> {
        disk.make_dir(folder)?;
        Ok(Shelf::over(disk, folder))
    }

    /// Returns the shelf in a `folder` that is there already, and touches nothing.
    pub fn over(disk: Arc<dyn Disk>, folder: &'static str) -> Shelf {
        Shelf { disk, folder, drafts: AtomicU64::new(0) }
    }

    /// Starts a file that has no name yet.
    pub fn draft(&self) -> io::Result<Draft<'_>> {
        loop {
            let number = self.drafts.fetch_add(1, Ordering::Relaxed);
            let path = format!("{}/{DRAFT}{number}", self.folder);
            match self.disk.create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => return Ok(Draft { shelf: self, path, file, kept: false }),
            }
        }
    }

    /// Opens the file of that name for reading; its bytes are not checked yet.
    pub fn open(&self, name: &Hash) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(&self.path(name))
    }

    /// Returns the path of a file below the store's root.
    pub fn path(&self, name: &Hash) -> String {
        format!("{}/{name}", self.folder)
    }

    /// Removes what is not in `live`, drafts too, and returns how many bytes that freed.
    pub fn sweep(&self, live: &HashSet<Hash>) -> io::Result<u64> {
        let mut freed = 0;
        for name in self.disk.list(self.folder)? {
            if name.parse::<Hash>().is_ok_and(|hash| live.contains(&hash)) {
                continue;
            }
            let path = format!("{}/{name}", self.folder);
            freed += self.disk.open(&path)?.len()?;
            self.disk.remove(&path)?;
        }
        if freed > 0 {
            self.disk.sync_dir(self.folder)?;
        }
        Ok(freed)
    }

    /// Returns the names of all files in the folder that are not in `live`.
    pub fn strangers(&self, live: &HashSet<Hash>) -> io::Result<Vec<String>> {
        let mut names = self.disk.list(self.folder)?;
        names.retain(|name| !name.parse::<Hash>().is_ok_and(|hash| live.contains(&hash)));
        Ok(names)
    }
}

/// A file that is being written and has no name yet; dropping it removes it.
pub struct Draft<'a> {
    shelf: &'a Shelf,
    path: String,
    file: Box<dyn DiskFile>,
    kept: bool,
}

impl Draft<'_> {
    /// Writes bytes at an offset.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Makes the file durable under its name: data, then the name, then the folder.
    pub fn keep(mut self, name: &Hash) -> io::Result<()> {
        self.file.sync()?;
        self.shelf.disk.rename(&self.path, &self.shelf.path(name))?;
        self.kept = true;
        self.shelf.disk.sync_dir(self.shelf.folder)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = self.shelf.disk.remove(&self.path)
        {
            log::warn!("the unfinished file {} stays until the next sweep: {error}", self.path);
        }
    }
}
