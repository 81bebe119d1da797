//! What all handles of a forgetting disk share, and one open file of it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, ThreadId};

use super::content::SimulatedFile;
use super::names::{Names, SimulatedNode};
use super::space::{SimulatedSpace, allocated_bytes};
use crate::disk::{DiskFile, Mapped};

/// The state behind all clones of a disk and all its open files.
#[derive(Default)]
pub(super) struct ForgetfulShared {
    /// Whoever touches a file holds this for reading, so that a cut, which writes, is one instant for all.
    pub(super) names: RwLock<Names>,
    /// Set for a disk that lies: its syncs succeed and make nothing durable.
    pub(super) ignores_sync: AtomicBool,
    /// The thread whose next file sync fails, and with which errno.
    pub(super) failing_sync: Mutex<Option<(ThreadId, i32)>>,
    /// How much fits on the disk; no limit by default.
    pub(super) space: SimulatedSpace,
}

impl ForgetfulShared {
    /// Locks the names for an operation on bytes: beside others, never beside a power cut.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the names for a power cut, or a change of names: beside nothing else.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a sync makes anything durable.
    pub(super) fn obeys_sync(&self) -> bool {
        !self.ignores_sync.load(Ordering::SeqCst)
    }

    /// Returns the errno that this thread's sync is to fail with, once.
    pub(super) fn take_injected_errno(&self) -> Option<i32> {
        let this = thread::current().id();
        let doomed = guard(&self.failing_sync).take_if(|(thread, _)| *thread == this)?;
        Some(doomed.1)
    }
}

/// Locks; a test that panicked elsewhere does not matter to the bytes.
pub(super) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open handle, which goes on to work when the name of its file is gone.
pub(super) struct ForgetfulFile {
    /// The disk that it is on, for its locks, its room and the syncs that are to fail.
    pub(super) disk: Arc<ForgetfulShared>,
    /// Its bytes, which stay reachable when the name goes.
    pub(super) node: SimulatedNode,
    /// Whether it was opened for writing; else writes and changes of its length fail.
    pub(super) writable: bool,
}

impl ForgetfulFile {
    /// Works on the bytes, never in the middle of a power cut.
    fn content<T>(&self, work: impl FnOnce(&mut SimulatedFile) -> T) -> T {
        // Held for the whole operation: a power cut takes the lock for writing, and so falls before it or behind it.
        let _instant = self.disk.read();
        work(&mut guard(&self.node))
    }

    /// Returns how many of `count` bytes at `offset` there is room for.
    fn fits(&self, offset: u64, count: u64) -> usize {
        let names = self.disk.read();
        let length = guard(&self.node).live_bytes().len() as u64;
        let Some(left) = self.disk.space.free_bytes(&names) else { return count as usize };
        let room = left.saturating_add(allocated_bytes(length));
        count.min(room.saturating_sub(offset)) as usize
    }

    fn check_writable(&self, errno: i32) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
    }
}

impl Drop for ForgetfulFile {
    fn drop(&mut self) {
        guard(&self.node).handles -= 1;
    }
}

impl DiskFile for ForgetfulFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.content(|content| content.live_bytes().len() as u64))
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.content(|content| content.read(buf, offset))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable(libc::EBADF)?;
        let fits = self.fits(offset, buf.len() as u64);
        self.content(|content| content.write(&buf[..fits], offset))?;
        if fits == buf.len() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOSPC)) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable(libc::EINVAL)?;
        self.content(|content| content.set_len(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.fits(0, len) as u64 != len {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        if let Some(errno) = self.disk.take_injected_errno() {
            self.content(SimulatedFile::lose_pages);
            return Err(io::Error::from_raw_os_error(errno));
        }
        if self.disk.obeys_sync() {
            self.content(SimulatedFile::sync);
        }
        Ok(())
    }

    fn map(&self) -> io::Result<Mapped> {
        Ok(self.content(|content| Mapped::from_bytes(content.live_bytes())))
    }
}
