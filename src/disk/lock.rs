//! The lock that gives one process the store.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::folder::Folder;

const NAME: &str = "lock";
/// Longest holder text that is read back, in bytes; more than a line of ours ever has.
const HOLDER_BYTES_MAX: usize = 4096;

/// Holds a store for this process; dropping it lets the next one in.
///
/// It is an flock(2) on an open file: the kernel releases it when the process dies, however it dies. Child
/// processes started by exec do not inherit it. A fork without exec shares it, and a drop in either process
/// releases it for both: fork first, then lock.
#[derive(Debug)]
#[must_use = "the store is released as soon as the lock is dropped"]
pub struct Lock {
    file: File,
}

/// Tells why a store could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process, or another lock of this one, has the store.
    #[error("{} is held by {holder}", path.display())]
    Held {
        /// Path of the lock file that is taken.
        path: PathBuf,
        /// What the holder wrote about itself, or "another process" when it wrote nothing.
        holder: String,
    },
    /// The lock file could not be opened, locked or written.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// Path of the lock file that failed.
        path: PathBuf,
        /// The error of opening, locking or writing it.
        source: io::Error,
    },
}

impl Lock {
    /// Locks the file `lock` in the folder `root`, creating it, and writes `holder` into it as its only line.
    /// [`LockError::Held`] with the other one's line where a process has it, [`LockError::Io`] if the file can't be
    /// opened, locked or written. A full disk is not an error: the line is empty then.
    pub(super) fn acquire(root: &Path, holder: &str) -> Result<Self, LockError> {
        let path = root.join(NAME);
        let failed = |source| LockError::Io { path: path.clone(), source };
        let open = || Folder::open_root(root)?.open_file(NAME, NAME, OFlags::RDWR | OFlags::CREATE);
        let file = open().map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = read_holder(&file);
                return Err(LockError::Held { path, holder });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // Only the first line is read back, so a line end in the holder's text must not cut it off.
        let line = holder.replace(char::is_control, " ") + "\n";
        // Written before the rest is cut, so that who reads at this moment finds a whole first line.
        match file.write_all_at(line.as_bytes(), 0) {
            Ok(()) => file.set_len(line.len() as u64).map_err(failed)?,
            // The lock holds without the name, too: a store on a full disk can be opened.
            Err(error) if is_full(&error) => file.set_len(0).map_err(failed)?,
            Err(error) => return Err(failed(error)),
        }
        Ok(Self { file })
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Best effort: a name left behind misleads only who reads the file manually. The file itself stays,
        // since removing it would let two processes lock two files of one name.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// Returns the first line of the lock file, or a phrase in its place.
fn read_holder(file: &File) -> String {
    let mut bytes = [0; HOLDER_BYTES_MAX];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..read]);
    match text.lines().next().map(str::trim) {
        None | Some("") => "another process".to_owned(),
        Some(line) => line.to_owned(),
    }
}
