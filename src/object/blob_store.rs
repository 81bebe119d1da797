//! The folder of immutable files, each named by a hash of its content.
//!
//! A file gets its name before anything refers to it, and a sweep removes what nothing refers to. So whoever
//! makes files holds a [`PublishGuard`] until something refers to them, and a sweep leaves alone what gets its
//! name under one, or while it runs.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Hash;
use crate::disk::{Disk, DiskFile};
use crate::sync::Mutex;

/// Prefix of files that are still being written; what a crash left of them goes with the next sweep.
pub const TEMP_PREFIX: &str = "draft-";

/// A folder of files that never change once they have their name.
///
/// ```
/// use std::collections::HashSet;
/// use std::sync::Arc;
///
/// use engramfs::disk::ForgetfulDisk;
/// use engramfs::object::{BlobStore, Context, Hash};
///
/// # fn main() -> std::io::Result<()> {
/// static NOTE: Context = Context::new("a note of an example");
/// let name = Hash::digest(&NOTE, b"tea");
///
/// let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), "notes")?;
/// let temp_blob = blobs.create()?;
/// temp_blob.write_at(b"tea", 0)?;
/// temp_blob.persist(&name)?;
/// assert_eq!(blobs.open(&name)?.len()?, 3);
///
/// // A sweep removes each file that nothing refers to.
/// blobs.sweep(HashSet::new)?;
/// assert!(blobs.open(&name).is_err());
/// # Ok(())
/// # }
/// ```
pub struct BlobStore {
    disk: Arc<dyn Disk>,
    folder: &'static str,
    next_number: AtomicU64,
    fresh: Mutex<FreshNames>,
}

/// What a sweep leaves alone although nothing refers to it.
#[derive(Default)]
struct FreshNames {
    /// Numbers of the temporary files that are being written.
    temp_blob_numbers: HashSet<u64>,
    /// How many publish files.
    publishing: usize,
    is_sweeping: bool,
    /// Files that got their names while somebody published or a sweep ran.
    names: HashSet<Hash>,
}

impl FreshNames {
    /// Forgets names that nobody is about to refer to any more.
    fn clear_if_idle(&mut self) {
        if self.publishing == 0 && !self.is_sweeping {
            self.names.clear();
        }
    }
}

/// Protects files from a sweep: while this is held, no file that gets its name is removed.
pub struct PublishGuard<'a>(&'a BlobStore);

impl Drop for PublishGuard<'_> {
    fn drop(&mut self) {
        let mut fresh = self.0.fresh.lock();
        fresh.publishing -= 1;
        fresh.clear_if_idle();
    }
}

/// Marks a sweep as running until it is dropped, also by a panic.
struct SweepGuard<'a>(&'a BlobStore);

impl Drop for SweepGuard<'_> {
    fn drop(&mut self) {
        let mut fresh = self.0.fresh.lock();
        fresh.is_sweeping = false;
        fresh.clear_if_idle();
    }
}

impl BlobStore {
    /// Returns the blob store in `folder`, which is made if it is not there.
    ///
    /// `AlreadyExists` if a file has the folder's name; its parent must be there.
    pub fn new(disk: Arc<dyn Disk>, folder: &'static str) -> io::Result<BlobStore> {
        disk.create_dir(folder)?;
        Ok(BlobStore::open_existing(disk, folder))
    }

    /// Returns the blob store in a `folder` that is there already, and touches nothing.
    pub fn open_existing(disk: Arc<dyn Disk>, folder: &'static str) -> BlobStore {
        BlobStore { disk, folder, next_number: AtomicU64::new(0), fresh: Mutex::default() }
    }

    /// Starts a file that has no name yet.
    ///
    /// Names of temporary files left by a crash are skipped. Fails with the error of the disk.
    pub fn create(&self) -> io::Result<TempBlob<'_>> {
        loop {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            // Noted before the file is there: a sweep that lists the file must find its number here.
            self.fresh.lock().temp_blob_numbers.insert(number);
            let path = format!("{}/{TEMP_PREFIX}{number}", self.folder);
            let made = self.disk.create(&path);
            if made.is_err() {
                self.fresh.lock().temp_blob_numbers.remove(&number);
            }
            match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => return Ok(TempBlob { blobs: self, number, path, file, is_persisted: false }),
            }
        }
    }

    /// Opens the file with that name for reading; its bytes are not checked yet. `NotFound` if no file has that name.
    pub fn open(&self, name: &Hash) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(&self.path(name))
    }

    /// Returns the path of a file with that name, below the store's root. It need not exist.
    pub fn path(&self, name: &Hash) -> String {
        format!("{}/{name}", self.folder)
    }

    /// Protects files that are about to get their names from a sweep, until something refers to them.
    pub fn begin_publishing(&self) -> PublishGuard<'_> {
        self.fresh.lock().publishing += 1;
        PublishGuard(self)
    }

    /// Removes all files that are not in `live`, temporary ones included. Returns how many bytes that freed. One sweep runs at
    /// a time.
    ///
    /// `live` is called after the names in the store were listed: a file that gets its name later stays in any case.
    ///
    /// Fails with the error of the disk; some of the files may be removed then.
    pub fn sweep(&self, live: impl FnOnce() -> HashSet<Hash>) -> io::Result<u64> {
        self.fresh.lock().is_sweeping = true;
        let _sweeping = SweepGuard(self);
        let names = self.disk.list(self.folder)?;
        let (live, mut freed) = (live(), 0);
        for name in names.iter().filter(|name| !is_named(name, &live)) {
            let path = format!("{}/{name}", self.folder);
            // A temporary file that has been listed may have its name by now, or be dropped.
            let Some(bytes) = none_if_missing(self.disk.open(&path).and_then(|file| file.len()))? else { continue };
            // Under the lock: nobody gives the name again between the look and the removal.
            let fresh = self.fresh.lock();
            let number = name.strip_prefix(TEMP_PREFIX).and_then(|number| number.parse().ok());
            if number.is_some_and(|number| fresh.temp_blob_numbers.contains(&number)) || is_named(name, &fresh.names) {
                continue;
            }
            if none_if_missing(self.disk.remove(&path))?.is_some() {
                freed += bytes;
            }
        }
        // Until the folder is synced a power cut may bring removed files back, which a purge must not allow.
        if freed > 0 {
            self.disk.sync_dir(self.folder)?;
        }
        Ok(freed)
    }

    /// Returns the names of all finished files; temporary ones are left out. Fails like `Disk::list`, if the folder is missing
    /// or can't be read.
    pub fn names(&self) -> io::Result<HashSet<Hash>> {
        Ok(self.disk.list(self.folder)?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Returns the names of all files in the folder that are not in `live`. Files without a hash as their name (`draft-N`) are
    /// among them. Fails like [`BlobStore::names`].
    pub fn unreferenced(&self, live: &HashSet<Hash>) -> io::Result<Vec<String>> {
        let mut names = self.disk.list(self.folder)?;
        names.retain(|name| !is_named(name, live));
        Ok(names)
    }
}

/// Returns none where the file is not there.
fn none_if_missing<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn is_named(name: &str, names: &HashSet<Hash>) -> bool {
    name.parse::<Hash>().is_ok_and(|hash| names.contains(&hash))
}

/// A file that is being written and has no name yet; dropping it removes it.
pub struct TempBlob<'a> {
    blobs: &'a BlobStore,
    number: u64,
    path: String,
    file: Box<dyn DiskFile>,
    is_persisted: bool,
}

impl TempBlob<'_> {
    /// Writes bytes at an offset. Gaps read as zeros; the order of the writes does not matter. Fails with the error of
    /// the disk; part of the bytes may be written then.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Makes the file durable under its name: data, then the name, then the folder.
    ///
    /// A file that has the name already is replaced: it has the same bytes. After an error the file may have its name,
    /// and a power cut may take it away again.
    pub fn persist(mut self, name: &Hash) -> io::Result<()> {
        self.file.sync()?;
        {
            let mut fresh = self.blobs.fresh.lock();
            // Noted before the rename: a sweep that lists the file under its name must find it here.
            fresh.names.insert(*name);
            fresh.clear_if_idle();
        }
        self.blobs.disk.rename(&self.path, &self.blobs.path(name))?;
        self.is_persisted = true;
        self.blobs.disk.sync_dir(self.blobs.folder)
    }
}

impl Drop for TempBlob<'_> {
    fn drop(&mut self) {
        if !self.is_persisted
            && let Err(error) = self.blobs.disk.remove(&self.path)
        {
            log::warn!("the unfinished file {} stays until the next sweep: {error}", self.path);
        }
        self.blobs.fresh.lock().temp_blob_numbers.remove(&self.number);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};

    const NONE: fn() -> HashSet<Hash> = HashSet::new;

    fn blobs() -> BlobStore {
        BlobStore::new(Arc::new(ForgetfulDisk::new()), "segments").unwrap()
    }

    fn put(blobs: &BlobStore, name: u8) -> Hash {
        let (blob, name) = (blobs.create().unwrap(), Hash([name; 32]));
        blob.write_at(b"content", 0).unwrap();
        blob.persist(&name).unwrap();
        name
    }

    #[test]
    fn a_sweep_removes_what_nothing_refers_to_and_what_a_crash_left() {
        let blobs = blobs();
        let (live, _dead) = (put(&blobs, 1), put(&blobs, 2));
        std::mem::forget(blobs.create().unwrap());
        blobs.fresh.lock().temp_blob_numbers.clear();
        blobs.sweep(|| HashSet::from([live])).unwrap();
        assert_eq!(blobs.disk.list("segments").unwrap(), [live.to_string()]);
    }

    #[test]
    fn what_is_being_published_or_written_stays() {
        let blobs = blobs();
        let (publishing, blob) = (blobs.begin_publishing(), blobs.create().unwrap());
        let name = put(&blobs, 1);
        blobs.sweep(NONE).unwrap();
        blobs.open(&name).unwrap();
        blob.persist(&Hash([2; 32])).unwrap();
        drop(publishing);
        blobs.sweep(NONE).unwrap();
        assert!(blobs.disk.list("segments").unwrap().is_empty());
    }

    #[test]
    fn a_temporary_file_that_is_renamed_or_dropped_after_a_sweep_has_listed_it_fails_nothing() {
        let blobs = blobs();
        let dead = put(&blobs, 1);
        let (renamed, dropped) = (blobs.create().unwrap(), blobs.create().unwrap());
        blobs
            .sweep(|| {
                renamed.persist(&Hash([2; 32])).unwrap();
                drop(dropped);
                HashSet::new()
            })
            .unwrap();
        assert!(blobs.open(&dead).is_err(), "what comes after them is swept");
        blobs.open(&Hash([2; 32])).unwrap();
    }

    #[test]
    fn what_gets_its_name_while_a_sweep_runs_stays() {
        let blobs = blobs();
        let old = put(&blobs, 1);
        let mut again = None;
        blobs
            .sweep(|| {
                // The same content, and nothing refers to it yet when the sweep asks.
                let publishing = blobs.begin_publishing();
                again = Some(put(&blobs, 1));
                drop(publishing);
                HashSet::new()
            })
            .unwrap();
        assert_eq!(again, Some(old));
        blobs.open(&old).unwrap();
    }

    /// If the rename came before the sync, a power cut between them could leave the name with part of the content.
    #[test]
    fn a_file_that_a_power_cut_leaves_under_its_name_is_whole() {
        const FAILING: [&[DiskCall]; 2] = [&[DiskCall::Sync], &[DiskCall::SyncDir]];
        let (name, mut found) = (Hash([1; 32]), 0);
        for kinds in FAILING {
            let forgetful = ForgetfulDisk::new();
            let faulty = FaultyDisk::new(forgetful.clone());
            let blobs = BlobStore::new(Arc::new(faulty.clone()), "segments").unwrap();
            forgetful.sync_dir("").unwrap();
            let blob = blobs.create().unwrap();
            blob.write_at(b"content", 0).unwrap();
            faulty.plan(Fault::once(1, kinds, libc::EIO));
            blob.persist(&name).unwrap_err();
            for seed in 0..32 {
                if let Ok(bytes) = forgetful.power_cut(seed).bytes(&blobs.path(&name)) {
                    assert_eq!(bytes, b"content", "{kinds:?} failed, seed {seed}");
                    found += 1;
                }
            }
        }
        assert!(found > 0, "no cut left the name, so nothing was tested");
    }
}
