//! The disk a store really lives on: one folder of the host's file system.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::Builder;

use rustix::fs::{FallocateFlags, Mode, OFlags, chmod, fallocate, statvfs};
use rustix::io::Errno;

use super::folder::{FOLDER_MODE, Folder};
use super::lock::{Lock, LockError};
use super::{Disk, DiskFile, DiskSpace, FILLER_BYTES, Mapped, check_dir_path, check_path, filler};

/// Freeing more than this takes longer than starting a thread.
const COSTLY_BYTES: u64 = 16 << 20;

/// Keeps a store in a folder of the host. Below that no symbolic link is followed and nothing is waited for.
#[derive(Clone, Debug)]
pub struct RealDisk {
    root: PathBuf,
}

impl RealDisk {
    /// Returns the disk whose root is the folder `root`, which need not exist yet; touches nothing.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Takes the store for this process alone, without waiting, until the returned [`Lock`] is dropped.
    ///
    /// `holder` says who has it ("pid 123, mounted at /mnt/x") and is written to the file `lock`; the root
    /// must exist. [`LockError::Held`] names the holder when another process has the store.
    pub fn lock(&self, holder: &str) -> Result<Lock, LockError> {
        Lock::acquire(&self.root, holder)
    }

    /// Closes the root to all but its owner, as folders are that the disk makes. Fails like chmod(2), with EPERM if it
    /// belongs to another user.
    pub fn make_root_private(&self) -> io::Result<()> {
        Ok(chmod(&self.root, Mode::from_raw_mode(FOLDER_MODE))?)
    }

    /// Copies a file that may be growing to the same path on another disk, where it must not exist; returns its bytes.
    /// The length is that of the beginning: what is appended meanwhile is left out. The bytes are durable then, the
    /// name is not. `AlreadyExists` if it does; after any other error a part of it may be left there.
    pub fn copy(&self, path: &str, other: &RealDisk) -> io::Result<u64> {
        let from = self.file(path, OFlags::RDONLY)?;
        // EXCL, so that a copy never writes into a file that somebody has open under that name.
        let mut to = other.file(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        // Only the present length: where `other` is this same disk, the copy would otherwise chase its own end.
        let length = from.metadata()?.len();
        let copied = io::copy(&mut from.take(length), &mut to)?;
        to.sync_all()?;
        Ok(copied)
    }

    fn file(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let (folder, name) = Folder::open_parent(&self.root, check_path(path)?)?;
        folder.open_file(name, path, flags)
    }

    fn handle(&self, path: &str, flags: OFlags) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile(self.file(path, flags)?)))
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.handle(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.handle(path, OFlags::RDONLY)
    }

    fn open_write(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.handle(path, OFlags::RDWR)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (folder, name) = Folder::open_parent(&self.root, check_path(from)?)?;
        let (other, new_name) = Folder::open_parent(&self.root, check_path(to)?)?;
        folder.rename(name, &other, new_name)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (folder, name) = Folder::open_parent(&self.root, check_path(path)?)?;
        folder.remove(name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Folder::open_at(&self.root, check_dir_path(dir)?)?.names()?;
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        if path.is_empty() {
            return create_root_folder(&self.root);
        }
        let (folder, name) = Folder::open_parent(&self.root, check_path(path)?)?;
        folder.create_folder(name, path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        Folder::open_at(&self.root, check_dir_path(path)?)?.sync()
    }

    fn mode(&self, path: &str) -> io::Result<u32> {
        let (folder, name) = Folder::open_parent(&self.root, check_dir_path(path)?)?;
        folder.mode(name)
    }

    fn space(&self) -> io::Result<DiskSpace> {
        let found = statvfs(&self.root)?;
        Ok(DiskSpace {
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            free_bytes: found.f_bfree.saturating_mul(found.f_frsize),
            available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            inodes_total: found.f_files,
            inodes_free: found.f_ffree,
        })
    }
}

fn create_folder(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the root and its missing parents, each durable in the folder above it.
///
/// Nothing above the root can be named through [`Disk::sync_dir`], so it is synced here.
fn create_root_folder(path: &Path) -> io::Result<()> {
    let above = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    let made = match create_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_root_folder(above)?;
            create_folder(path)?
        }
        other => other?,
    };
    // A folder that was there is durable already, or somebody else's to sync.
    if made { Folder::open_root(above)?.sync() } else { Ok(()) }
}

/// Takes up room where the file system can't set it aside.
fn write_filler(file: &File, len: u64) -> io::Result<()> {
    let blocks = (0..len).step_by(FILLER_BYTES).zip(0..);
    blocks.into_iter().try_for_each(|(at, number)| {
        let count = (len - at).min(FILLER_BYTES as u64) as usize;
        file.write_all_at(&filler(number)[..count], at)
    })
}

struct RealFile(File);

impl RealFile {
    /// Returns whether closing it takes long: the last handle of a removed file frees its room.
    fn is_costly_to_close(&self) -> bool {
        self.0.metadata().is_ok_and(|found| found.nlink() == 0 && found.len() > COSTLY_BYTES)
    }
}

impl Drop for RealFile {
    /// Who drops it may hold a lock.
    fn drop(&mut self) {
        if self.is_costly_to_close()
            && let Ok(last) = self.0.try_clone()
        {
            // Where no thread can be had the closure is dropped here, and the file with it.
            let _ = Builder::new().name("closer".to_owned()).spawn(move || drop(last));
        }
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_filler(&self.0, len),
            other => Ok(other?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        // The length is data to fdatasync(2) where it is needed to read the file back, so a grown journal is covered.
        self.0.sync_data()
    }

    fn map(&self) -> io::Result<Mapped> {
        // SAFETY: the caller maps only files that no longer change (see `DiskFile::map`); they lie in a folder
        // of mode 0700, and the store's lock lets no other engramfs process write there.
        let map = unsafe { memmap2::Mmap::map(&self.0)? };
        Ok(Mapped::from_map(map))
    }
}
