//! Requests about what is open. A handle outlives a branch that was merged or discarded, so whatever shows the branch asks
//! first whether it is still there, and gives ESTALE otherwise.

use std::ffi::OsStr;

use super::Filesystem;
use super::attr::EntryAttr;
use super::errno::{Errno, Failure};
use super::handle::{File, Handle};
use super::kernel_notifier::WakeCall;
use super::mount_context::OpenContext;
use crate::memory::FileKind;

impl Filesystem {
    /// Returns whether reading, writing or closing an open file may take more than a moment: queries, verbs and bulk
    /// writes do.
    pub fn takes_long(&self, handle: u64) -> bool {
        self.handles.get(handle).is_ok_and(|handle| handle.file().is_ok_and(File::takes_long))
    }

    /// Reads up to `size` bytes at `offset`; fewer only at the end. Of `query` and `ctl` the outcome of a line that was
    /// refused is read here, too.
    pub fn read(&self, handle: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        self.on_handle(handle, |handle, file| {
            if !file.outlives_branch() {
                handle.check_alive()?;
            }
            if file.is_live() {
                handle.context.as_ref().map_or(Ok(()), OpenContext::check_enter)?;
            }
            file.read(offset, size as usize)
        })
    }

    /// Writes, and returns how many bytes were taken; fewer than given when a later line of `query`
    /// or `ctl` fails.
    pub fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let taken = self.on_handle(handle, |handle, file| {
            handle.check_alive()?;
            file.write(offset, data)
        })?;
        // FUSE counts a write's bytes in a u32, so `taken` always fits.
        Ok(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    /// Returns whether the kernel may keep the pages of an open file in its cache: those of `files/` and `scratch/`
    /// alone.
    pub fn keeps_page_cache(&self, handle: u64) -> bool {
        self.handles.get(handle).is_ok_and(|handle| handle.file().is_ok_and(File::keeps_page_cache))
    }

    /// Returns whether writes of a handle may bypass the page cache: it writes a file whole, and nobody has that
    /// mapped.
    pub fn writes_directly(&self, handle: u64) -> bool {
        self.handles.get(handle).is_ok_and(|handle| handle.file().is_ok_and(File::writes_directly))
    }

    /// Takes setuid away from an open file, and setgid where the group may run it (else setgid gives no right): before
    /// a write by somebody who may not keep them. EBADF if the handle is closed, ESTALE if the file has gone.
    pub fn drop_rights(&self, handle: u64) -> Result<(), Errno> {
        self.on_handle(handle, |_, file| file.drop_rights())
    }

    /// Commits what the handle wrote since its last commit: at each close(2) of a descriptor. With nothing new it does
    /// nothing.
    ///
    /// What was written to a record and is none is EINVAL or EFBIG here, and goes with the handle.
    pub fn flush(&self, handle: u64) -> Result<(), Errno> {
        self.on_handle(handle, |_, file| file.commit())
    }

    /// Commits as [`Filesystem::flush`] does, and makes all that was acknowledged in the store durable. Fails like
    /// [`Filesystem::flush`], and with EIO or ENOSPC if the disk does not take it; then nothing can be written any
    /// more.
    pub fn fsync(&self, handle: u64) -> Result<(), Errno> {
        self.on_handle(handle, |open, file| {
            file.commit()?;
            self.operations(&open.node).sync()
        })
    }

    /// Drops a handle, with what no commit took.
    pub fn release(&self, handle: u64) {
        let Some(open) = self.handles.remove(handle) else { return };
        if open.node.needs_own_inode() {
            self.nodes.count_close(open.number);
        }
        if let Some(state) = open.waits_on() {
            state.remove_wake_call(handle);
        }
    }

    /// Returns whether a read would find something; true once it has ended, so that nobody waits. `waker` is called
    /// once when that may have changed, on a thread of its own. EBADF if the handle is closed.
    pub fn poll(&self, handle: u64, waker: Option<WakeCall>) -> Result<bool, Errno> {
        let open = self.handles.get(handle)?;
        // First the waker, then the look: what happens between them is seen.
        if let (Some(waker), Some(state)) = (waker, open.waits_on()) {
            state.add_wake_call(handle, waker);
        }
        let alive = open.check_alive().is_ok();
        Ok(!alive || open.file().map_err(|failure| failure.errno())?.is_readable())
    }

    /// Gives the names from the cookie `offset` on to `sink`, until it returns true for "full".
    ///
    /// `sink` takes a node number, the cookie of the next name, what it is, and the name. Fails if what the handle
    /// shows has gone.
    pub fn readdir(
        &self,
        handle: u64,
        offset: u64,
        sink: &mut dyn FnMut(u64, u64, FileKind, &OsStr) -> bool,
    ) -> Result<(), Errno> {
        let handle = self.handles.get(handle)?;
        let read = handle.check_alive().and_then(|()| self.operations(&handle.node).read_names(&handle, offset, sink));
        self.audit_handle(&handle, read)
    }

    /// The same with the attributes of each entry, and a look-up is counted for each but `.` and `..`. Attributes that
    /// are not at hand are left out: the kernel asks for them when they are needed. Fails like [`Filesystem::readdir`].
    pub fn readdirplus(
        &self,
        handle: u64,
        offset: u64,
        sink: &mut dyn FnMut(&EntryAttr, u64, &OsStr) -> bool,
    ) -> Result<(), Errno> {
        let handle = self.handles.get(handle)?;
        let read =
            handle.check_alive().and_then(|()| self.operations(&handle.node).read_entries(&handle, offset, sink));
        self.audit_handle(&handle, read)
    }

    /// Makes all that was acknowledged in the store durable, on behalf of a directory. If the flush fails nothing can
    /// be written any more.
    pub fn fsyncdir(&self, handle: u64) -> Result<(), Errno> {
        let handle = self.handles.get(handle)?;
        self.audit_handle(&handle, self.operations(&handle.node).sync())
    }

    /// Makes room for a range of a file, or a hole, as fallocate(2) with `mode`; EOPNOTSUPP for
    /// what is not a file in `files/` or `scratch/`, and for other modes than that call has there.
    pub fn fallocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        let open = self.handles.get(handle)?;
        let done = self.operations(&open.node).allocate(open.caller, offset, length, mode);
        self.audit_node(open.caller, &open.node, done)
    }

    /// Copies a range of bytes between two files of one `files/`, each given by handle and offset; whole chunks are
    /// shared. Returns how many bytes were copied: fewer at the end, and if nothing can be shared. EXDEV from one
    /// `files/` to another, EOPNOTSUPP for what is no file there: the caller then reads and writes.
    pub fn copy_range(&self, from: (u64, u64), to: (u64, u64), length: u64) -> Result<u32, Errno> {
        let (source, target) = (self.handles.get(from.0)?, self.handles.get(to.0)?);
        let operations = self.operations(&target.node);
        let copied = operations.copy_from(target.caller, (&source.node, from.1), to.1, length);
        self.audit_node(target.caller, &target.node, copied)
    }

    fn on_handle<T>(
        &self,
        handle: u64,
        act: impl FnOnce(&Handle, &dyn File) -> Result<T, Failure>,
    ) -> Result<T, Errno> {
        let handle = self.handles.get(handle)?;
        let done = handle.file().and_then(|file| act(&handle, file));
        self.audit_handle(&handle, done)
    }
}
