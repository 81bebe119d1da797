//! The forgetting double: a disk in memory that can lose power.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock};
use std::thread;

use super::{Disk, DiskFile, DiskSpace, check_dir_path, check_path};
use content::SimulatedFile;
use cut::CutOutcome;
use file::{ForgetfulFile, ForgetfulShared, guard};
use names::{Entries, Names, SimulatedEntry, SimulatedNode};

mod content;
mod cut;
mod file;
mod names;
mod space;
#[cfg(test)]
mod tests;

/// Keeps files in memory, the live image apart from the durable one; clones are handles to the same disk.
///
/// The root is there from the start. A power cut returns a new disk and leaves this one as it was, so one
/// run can be cut many times at the same moment. A file holds at most 4 GiB (`EFBIG`).
///
/// ```
/// use engramfs::disk::{Disk, ForgetfulDisk};
///
/// # fn main() -> std::io::Result<()> {
/// let disk = ForgetfulDisk::new();
/// let file = disk.create("notes")?;
/// file.write_all_at(b"safe", 0)?;
/// file.sync()?;
/// disk.sync_dir("")?;
/// file.write_all_at(b"lost", 0)?;
///
/// let after = disk.power_cut_keep_nothing();
/// assert_eq!(after.bytes("notes").unwrap(), b"safe");
/// assert_eq!(disk.bytes("notes").unwrap(), b"lost");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ForgetfulDisk {
    shared: Arc<ForgetfulShared>,
}

impl ForgetfulDisk {
    /// Returns an empty disk without a limit of room, which claims to have 1 TiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a disk as it might be found after the power failed now; the same seed gives the same one.
    ///
    /// Each unsynced write is kept, dropped or torn into 512-byte sectors, whatever becomes of the others;
    /// of the unsynced names in a folder a prefix survives. The new disk obeys syncs.
    pub fn power_cut(&self, seed: u64) -> Self {
        self.cut(CutOutcome::seeded(seed))
    }

    /// Returns the disk after a power cut that lost everything unsynced.
    pub fn power_cut_keep_nothing(&self) -> Self {
        self.cut(CutOutcome::Nothing)
    }

    /// Returns the disk after a power cut that lost nothing but the pages of failed syncs.
    pub fn power_cut_keep_all(&self) -> Self {
        self.cut(CutOutcome::Everything)
    }

    /// Makes the disk so large from now on: bytes in blocks of 4 KiB, and files.
    ///
    /// A write that goes beyond lands in part and is `StorageFull`, and so is a new file. What was removed keeps its room
    /// for as long as a handle is open on it. A power cut keeps the limit.
    pub fn limit(&self, bytes: u64, files: u64) {
        self.shared.space.limit(bytes, files);
    }

    /// Sets whether syncs return `Ok` without making anything durable, like a drive that lies; default no.
    ///
    /// The negative control of a crash test: with it the test must lose data. Earlier syncs keep their effect.
    pub fn ignore_sync(&self, yes: bool) {
        self.shared.ignores_sync.store(yes, Ordering::SeqCst);
    }

    /// Makes the calling thread's next sync of a file fail with `errno` and lose that file's unsynced bytes.
    ///
    /// They stay readable and later syncs succeed without them, as Linux does after a failed write-back.
    pub fn fail_next_sync(&self, errno: i32) {
        *guard(&self.shared.failing_sync) = Some((thread::current().id(), errno));
    }

    /// Flips the bits of `mask` in the byte at `offset`, live and durable: bit rot.
    ///
    /// `NotFound` without such a file, `InvalidInput` if it is shorter. Earlier maps keep their bytes.
    pub fn flip(&self, path: &str, offset: u64, mask: u8) -> io::Result<()> {
        let names = self.shared.read();
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        guard(names.file(path)?).flip(offset, mask)
    }

    /// Returns path and length in bytes of every live file, sorted by path.
    pub fn files(&self) -> Vec<(String, u64)> {
        let names = self.shared.read();
        let len = |node: &SimulatedNode| guard(node).live_bytes().len() as u64;
        names.files().map(|(path, node)| (path.to_owned(), len(node))).collect()
    }

    /// Returns the live bytes of a file. `NotFound` if there is none, `IsADirectory` for a folder.
    pub fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        let names = self.shared.read();
        Ok(guard(names.file(path)?).live_bytes().to_vec())
    }

    /// Puts a file with these bytes there, name and bytes durable, in place of one that may be there.
    ///
    /// Handles that are open stay with the old file. The folder must exist. `NotFound` if it does not, `InvalidInput`
    /// for a path that no [`Disk`] takes.
    pub fn replace(&self, path: &str, bytes: Vec<u8>) -> io::Result<()> {
        let node = Arc::new(Mutex::new(SimulatedFile::synced(bytes)));
        self.shared.write().insert_durable(check_path(path)?, node)
    }

    fn cut(&self, mut outcome: CutOutcome) -> Self {
        let names = self.shared.write();
        let mut entries: Entries = names.after_cut(&mut outcome);
        for entry in entries.values_mut() {
            if let SimulatedEntry::File(node) = entry {
                let bytes = guard(node).after_cut(&mut outcome);
                *node = Arc::new(Mutex::new(SimulatedFile::synced(bytes)));
            }
        }
        let names = RwLock::new(Names::synced(entries));
        Self {
            shared: Arc::new(ForgetfulShared {
                names,
                space: self.shared.space.with_same_limit(),
                ..ForgetfulShared::default()
            }),
        }
    }

    fn handle(&self, node: &SimulatedNode, writable: bool) -> Box<dyn DiskFile> {
        let (disk, node) = (Arc::clone(&self.shared), Arc::clone(node));
        guard(&node).handles += 1;
        Box::new(ForgetfulFile { disk, node, writable })
    }
}

impl Disk for ForgetfulDisk {
    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let node = SimulatedNode::default();
        let entry = SimulatedEntry::File(Arc::clone(&node));
        let mut names = self.shared.write();
        self.shared.space.admit_file(&names)?;
        names.create(check_path(path)?, entry)?;
        drop(names);
        Ok(self.handle(&node, true))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.handle(self.shared.read().file(check_path(path)?)?, false))
    }

    fn open_write(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.handle(self.shared.read().file(check_path(path)?)?, true))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = self.shared.write();
        let replaced = names.file(check_path(to)?).cloned();
        names.rename(check_path(from)?, to)?;
        self.shared.space.note_unlinked(replaced.ok());
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut names = self.shared.write();
        let removed = names.file(check_path(path)?).cloned();
        names.remove(path)?;
        self.shared.space.note_unlinked(removed.ok());
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.shared.read().list(check_dir_path(dir)?)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.shared.write().create_dir(check_dir_path(path)?)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut names = self.shared.write();
        names.check_folder(check_dir_path(path)?)?;
        if self.shared.obeys_sync() {
            names.sync(path);
        }
        Ok(())
    }

    fn mode(&self, path: &str) -> io::Result<u32> {
        let names = self.shared.read();
        match names.check_folder(check_dir_path(path)?) {
            Ok(()) => Ok(0o700),
            Err(_) => names.file(path).map(|_| 0o600),
        }
    }

    fn space(&self) -> io::Result<DiskSpace> {
        Ok(self.shared.space.space(&self.shared.read()))
    }
}
