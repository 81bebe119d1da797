//! The only module that opens data files: one trait between engramfs and the disk.
//!
//! [`RealDisk`] is the folder a store lives in. [`ForgetfulDisk`] keeps everything in memory and can lose
//! power at any moment. [`FaultyDisk`] wraps either and fails the N-th call. One contract suite runs over all.
//!
//! What is assumed of a disk, and what the doubles may break within these bounds:
//!
//! 1. Bytes of a file survive a power cut once [`DiskFile::sync`] returned `Ok`; names in a folder survive once
//!    [`Disk::sync_dir`] of that folder returned `Ok`. Neither makes the other durable.
//! 2. Of a write that was not synced each 512-byte sector holds the old or the new bytes, whatever became of
//!    its neighbours, of earlier and of later writes. Bytes that were never written read as zeros.
//! 3. Names change in order within a folder: what survives of unsynced changes is a prefix. A rename is never
//!    half done, even between two folders.
//! 4. After a failed sync nothing is known about the unsynced bytes, and a later sync that succeeds proves
//!    nothing about them: the kernel may have dropped them.

use std::io;

mod fault;
mod faulty;
mod folder;
mod forgetful;
mod lock;
mod mapped;
mod real;
mod sigbus;
#[cfg(test)]
mod tests;

pub use fault::{DiskCall, Fault};
pub use faulty::FaultyDisk;
pub use folder::WrongType;
pub use forgetful::ForgetfulDisk;
pub use lock::{Lock, LockError};
pub use mapped::Mapped;
pub use real::RealDisk;
pub use sigbus::install_sigbus_handler;

/// Gives access to the files of one store and to nothing else.
///
/// Paths are relative to the store's root, '/'-separated, and `""` is the root itself where a folder is
/// meant. A path that is absolute, has an empty, `.` or `..` component or holds a NUL fails with
/// `InvalidInput`, and one through a file with `NotADirectory`. No symbolic link below the root is followed, and
/// nothing is waited for. All methods may be called from many threads.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file of mode 0600, open for reading and writing.
    ///
    /// `AlreadyExists` if the name is taken; `NotFound` if the folder is missing.
    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading only. `NotFound` if there is none, `IsADirectory` for a folder; all but
    /// regular files are refused.
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading and writing. Fails like [`Disk::open`].
    fn open_write(&self, path: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Moves a plain file to another name, replacing the file that has it; readers see the old or the new one.
    ///
    /// Between two folders, sync both. Open handles stay with the file they were opened on. `NotFound` if `from`, or
    /// the folder of `to`, is missing; `IsADirectory` if `to` is a folder.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes the name of a plain file; open handles keep reading it. `NotFound` if it is missing, `IsADirectory` for
    /// a folder.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Returns the names in a folder, files and folders alike, sorted bytewise.
    ///
    /// A name that is not UTF-8 comes with replacement characters: it can be reported, not opened. `NotFound` if the
    /// folder is missing, `NotADirectory` for a file.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Creates a folder of mode 0700, or does nothing when it is there already.
    ///
    /// `""` makes the root and its missing parents, durably. Else the parent must exist and needs a [`Disk::sync_dir`]
    /// afterwards. `AlreadyExists` if a file has the name.
    fn create_dir(&self, path: &str) -> io::Result<()>;

    /// Makes the names in a folder durable: what was created, renamed and removed there. `NotFound` if the folder is
    /// missing. After any other error it is not known which of them are durable.
    fn sync_dir(&self, path: &str) -> io::Result<()>;

    /// Returns the permission bits (as in `0o600`) of a file or folder. `NotFound` if nothing has the name.
    fn mode(&self, path: &str) -> io::Result<u32>;

    /// Returns how full the file system below the store is. Fails if the file system does not tell, such as `NotFound`
    /// before the root is made.
    fn space(&self) -> io::Result<DiskSpace>;
}

/// Removes the name of a plain file, if one is there. Fails like [`Disk::remove`] for all but `NotFound`.
pub fn remove_if_exists(disk: &dyn Disk, path: &str) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads and writes one open file at offsets given by the caller; it has no position of its own.
#[expect(clippy::len_without_is_empty, reason = "the length is asked of the disk and can fail")]
pub trait DiskFile: Send + Sync {
    /// Returns the length in bytes. Fails if the disk can't be asked.
    fn len(&self) -> io::Result<u64>;

    /// Fills `buf` from `offset`; `UnexpectedEof` if the file ends before, `buf` is then unspecified.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`, retrying interruptions and short writes; a gap reads as zeros.
    ///
    /// After an error any part of `buf` may have been written.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file, or extends it with zeros, to `len` bytes. `InvalidInput` for a file that was opened for reading
    /// only, `FileTooLarge` for more bytes than a file of the disk can have.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes an empty file `len` bytes of zeros that have room on the disk; `StorageFull` if there is not so much.
    ///
    /// If the file system can't set room aside it is filled with bytes that don't compress, [`filler`].
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Makes data and length durable (fdatasync), not the file's name: that is [`Disk::sync_dir`].
    ///
    /// After an error do not retry and trust the second answer: see assumption 4 of this module.
    fn sync(&self) -> io::Result<()>;

    /// Maps the whole file for reading; an empty file gives no bytes.
    ///
    /// For files that no longer change: what a later write shows in the mapping is unspecified, and a file cut short
    /// under a mapping of [`RealDisk`] ends the process: see [`install_sigbus_handler`]. Fails if the process may have
    /// no more mappings, or the disk can't be asked.
    fn map(&self) -> io::Result<Mapped>;
}

impl std::fmt::Debug for dyn DiskFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskFile")
    }
}

/// Returns how full a file system is; bytes and inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Size of the file system in bytes, whether used or not.
    pub total_bytes: u64,
    /// Bytes that no file holds, including those reserved for root.
    pub free_bytes: u64,
    /// Bytes that an ordinary user can still fill.
    pub available_bytes: u64,
    /// Inodes; 0 when the file system does not count them.
    pub inodes_total: u64,
    /// Inodes not in use.
    pub inodes_free: u64,
}

/// Bytes of a block of [`filler`].
pub const FILLER_BYTES: usize = 4096;

/// Returns a block of a file that takes up room, by its number: bytes that no file system can compress.
pub fn filler(number: u64) -> [u8; FILLER_BYTES] {
    let (mut block, mut word) = ([0; FILLER_BYTES], number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for bytes in block.chunks_exact_mut(8) {
        // xorshift64 (Marsaglia 2003) is fast, and leaves no pattern that a compressing file system could make use of.
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    block
}

/// Accepts the path of a file or, as `""`, the root.
fn check_dir_path(path: &str) -> io::Result<&str> {
    if path.is_empty() { Ok(path) } else { check_path(path) }
}

/// Accepts a path that cannot leave the root.
fn check_path(path: &str) -> io::Result<&str> {
    let bad = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
    if path.split('/').any(bad) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{path:?} is not a path inside the store; use names joined by '/', without '.' or '..'"),
        ));
    }
    Ok(path)
}
