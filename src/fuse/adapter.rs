//! The kernel's requests, handed to [`Filesystem`] and answered with what it says. No decision is
//! made here.
//!
//! Every request gets its reply, also after a panic: operations run inside [`catch_panic`], replies are
//! sent outside of it.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::dispatch::{Call, Dispatcher};
use super::kernel;
use super::reply::{
    answer, answer_attr, answer_create, answer_data, answer_entry, answer_open, answer_statfs, answer_write,
    answer_xattr, caller, catch_panic, file_attr, file_type, open_flags, time_set,
};
use crate::fs::{AttrChanges, EntryAttr, Filesystem, WakeCall};

/// A [`Filesystem`] as the FUSE session wants it.
pub struct Adapter {
    fs: Arc<Filesystem>,
    dispatcher: Dispatcher<Filesystem>,
    /// The kernel drops the pages that a write past them covers.
    direct_write_invalidates: bool,
}

impl Adapter {
    /// Wraps a file system; keep the other `Arc` to connect it with the session's notifier.
    pub fn new(fs: Arc<Filesystem>) -> Adapter {
        let dispatcher = Dispatcher::new(Arc::clone(&fs));
        Adapter { fs, dispatcher, direct_write_invalidates: false }
    }

    /// Does an operation on an open file and has the reply sent.
    fn on_handle<T: 'static>(
        &self,
        call: Call,
        handle: FileHandle,
        operation: impl Fn(&Filesystem) -> Result<T, crate::fs::Errno> + Send + 'static,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        if self.fs.takes_long(handle.0) {
            self.dispatcher.serve_long(call, operation, reply);
        } else {
            self.dispatcher.serve(call, &(), move |fs, ()| operation(fs), reply);
        }
    }

    /// Does an operation without an argument that would have to be copied.
    fn serve<T>(
        &self,
        call: Call,
        operation: impl Fn(&Filesystem) -> Result<T, crate::fs::Errno> + Send + 'static,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        self.dispatcher.serve(call, &(), move |fs, ()| operation(fs), reply);
    }

    /// Fills a reply, and has it sent. An operation that gives up has put nothing into it.
    fn fill<R: Send + 'static>(
        &self,
        call: Call,
        mut reply: R,
        read: impl Fn(&Filesystem, &mut R) -> Result<(), crate::fs::Errno> + Send + 'static,
        send: impl FnOnce(R, Result<(), Errno>) + Send + 'static,
    ) {
        if let Some(outcome) = self.dispatcher.try_without_waiting(call, |fs| read(fs, &mut reply)) {
            return send(reply, outcome);
        }
        let read = move |fs: &Filesystem| {
            let outcome = read(fs, &mut reply);
            Ok((reply, outcome))
        };
        // After a panic the reply has gone, and said EIO.
        let send = |filled: Result<(R, Result<(), crate::fs::Errno>), Errno>| {
            if let Ok((reply, outcome)) = filled {
                send(reply, outcome.map_err(|errno| Errno::from_i32(errno.0)));
            }
        };
        self.dispatcher.spawn_blocking(call, read, send);
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.direct_write_invalidates = kernel::negotiate(config);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let caller = caller(request);
        let lookup = move |fs: &Filesystem, name: &OsStr| fs.lookup(caller, parent.0, name);
        self.dispatcher.serve(Call::new("lookup", request), name, lookup, |found| answer_entry(reply, found));
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookup_count: u64) {
        self.fs.forget(ino.0, lookup_count);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let (caller, handle) = (caller(request), handle.map(|handle| handle.0));
        let look = move |fs: &Filesystem| fs.getattr(caller, ino.0, handle);
        self.serve(Call::new("getattr", request), look, |attr| answer_attr(reply, attr));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (accessed, modified) = (atime.map(time_set), mtime.map(time_set));
        let changes = AttrChanges { mode, uid, gid, size, accessed, modified };
        let (caller, handle) = (caller(request), handle.map(|handle| handle.0));
        let set = move |fs: &Filesystem| fs.setattr(caller, ino.0, changes, handle);
        self.serve(Call::new("setattr", request), set, |attr| answer_attr(reply, attr));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let caller = caller(request);
        let make = move |fs: &Filesystem, name: &OsStr| fs.mkdir(caller, parent.0, name, mode & !umask);
        self.dispatcher.serve(Call::new("mkdir", request), name, make, |made| answer_entry(reply, made));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let caller = caller(request);
        let remove = move |fs: &Filesystem, name: &OsStr| fs.rmdir(caller, parent.0, name);
        let (call, reply) = (Call::new("rmdir", request), |removed| answer(reply, removed));
        if self.fs.may_block(parent.0) {
            // The kernel forgets what was open in a branch before this returns.
            let name = name.to_owned();
            self.dispatcher.serve_long(call, move |fs| remove(fs, &name), reply);
        } else {
            self.dispatcher.serve(call, name, remove, reply);
        }
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let caller = caller(request);
        let remove = move |fs: &Filesystem, name: &OsStr| fs.unlink(caller, parent.0, name);
        self.dispatcher.serve(Call::new("unlink", request), name, remove, |removed| answer(reply, removed));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (caller, flags) = (caller(request), flags.bits());
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        let rename = move |fs: &Filesystem| fs.rename(caller, (parent.0, &name), (new_parent.0, &new_name), flags);
        let (call, reply) = (Call::new("rename", request), |renamed| answer(reply, renamed));
        if self.fs.may_block(parent.0) {
            // A rename may be a merge, which takes long.
            self.dispatcher.serve_long(call, rename, reply);
        } else {
            self.serve(call, rename, reply);
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let caller = caller(request);
        let make = move |fs: &Filesystem, name: &OsStr| fs.mknod(caller, parent.0, name, mode & !umask, rdev);
        self.dispatcher.serve(Call::new("mknod", request), name, make, |made| answer_entry(reply, made));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (caller, name) = (caller(request), name.to_owned());
        let make = move |fs: &Filesystem, target: &Path| fs.symlink(caller, parent.0, &name, target.as_os_str());
        self.dispatcher.serve(Call::new("symlink", request), target, make, |made| answer_entry(reply, made));
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        self.serve(Call::new("readlink", request), move |fs| fs.readlink(ino.0), |target| answer_data(reply, target));
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let caller = caller(request);
        let link = move |fs: &Filesystem, name: &OsStr| fs.link(caller, ino.0, parent.0, name);
        self.dispatcher.serve(Call::new("link", request), name, link, |made| answer_entry(reply, made));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (caller, direct_write_invalidates, call) =
            (caller(request), self.direct_write_invalidates, Call::new("open", request));
        let open = move |fs: &Filesystem| {
            let handle = fs.open(caller, ino.0, flags.0)?;
            Ok((handle, open_flags(fs, direct_write_invalidates, handle)))
        };
        if self.fs.may_block(ino.0) {
            // What is generated is generated now, and that may take long.
            self.dispatcher.serve_long(call, open, |opened| answer_open(reply, opened));
        } else {
            self.serve(call, open, |opened| answer_open(reply, opened));
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, direct_write_invalidates) = (caller(request), self.direct_write_invalidates);
        let create = move |fs: &Filesystem, name: &OsStr| {
            let (entry, handle) = fs.create(caller, parent.0, name, mode & !umask, flags)?;
            Ok((entry, handle, open_flags(fs, direct_write_invalidates, handle)))
        };
        self.dispatcher.serve(Call::new("create", request), name, create, |created| answer_create(reply, created));
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = move |fs: &Filesystem| fs.read(handle.0, offset, size);
        self.on_handle(Call::new("read", request), handle, read, |bytes| answer_data(reply, bytes));
    }

    fn write(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let strips = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        // The kernel sends a flush of its own only after what was written through pages.
        let lasts = flags.0 & libc::O_DSYNC != 0 && self.fs.writes_directly(handle.0);
        let write = move |fs: &Filesystem, data: &[u8]| {
            if strips {
                fs.drop_rights(handle.0)?;
            }
            let taken = fs.write(handle.0, offset, data)?;
            if lasts {
                fs.fsync(handle.0)?;
            }
            Ok(taken)
        };
        let (call, reply) = (Call::new("write", request), |written| answer_write(reply, written));
        if lasts || self.fs.takes_long(handle.0) {
            let data = data.to_vec();
            self.dispatcher.serve_long(call, move |fs| write(fs, &data), reply);
        } else {
            self.dispatcher.serve(call, data, write, reply);
        }
    }

    fn flush(&self, request: &Request, _ino: INodeNo, handle: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        let flush = move |fs: &Filesystem| fs.flush(handle.0);
        self.on_handle(Call::new("flush", request), handle, flush, |flushed| answer(reply, flushed));
    }

    fn fsync(&self, request: &Request, _ino: INodeNo, handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let sync = move |fs: &Filesystem| fs.fsync(handle.0);
        self.dispatcher.serve_long(Call::new("fsync", request), sync, |synced| answer(reply, synced));
    }

    fn release(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let release = move |fs: &Filesystem| {
            fs.release(handle.0);
            Ok(())
        };
        self.serve(Call::new("release", request), release, |released| answer(reply, released));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let caller = caller(request);
        let open = move |fs: &Filesystem| Ok((fs.opendir(caller, ino.0)?, FopenFlags::empty()));
        self.serve(Call::new("opendir", request), open, |opened| answer_open(reply, opened));
    }

    fn readdir(&self, request: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        let read = move |fs: &Filesystem, reply: &mut ReplyDirectory| {
            let mut sink = |ino, next, what, name: &OsStr| reply.add(INodeNo(ino), next, file_type(what), name);
            fs.readdir(handle.0, offset, &mut sink)
        };
        self.fill(Call::new("readdir", request), reply, read, |reply, outcome| match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let read = move |fs: &Filesystem, reply: &mut ReplyDirectoryPlus| {
            let mut sink = |entry: &EntryAttr, next, name: &OsStr| {
                let (attr, lifetime) = (file_attr(&entry.attr), entry.lifetime.min(entry.attr.lifetime));
                reply.add(attr.ino, next, name, &lifetime, &attr, Generation(entry.generation))
            };
            fs.readdirplus(handle.0, offset, &mut sink)
        };
        self.fill(Call::new("readdirplus", request), reply, read, |reply, outcome| match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        });
    }

    fn releasedir(&self, request: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let release = move |fs: &Filesystem| {
            fs.release(handle.0);
            Ok(())
        };
        self.serve(Call::new("releasedir", request), release, |released| answer(reply, released));
    }

    fn fsyncdir(&self, request: &Request, _ino: INodeNo, handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let sync = move |fs: &Filesystem| fs.fsyncdir(handle.0);
        self.dispatcher.serve_long(Call::new("fsyncdir", request), sync, |synced| answer(reply, synced));
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.serve(Call::new("statfs", request), move |fs| fs.statfs(ino.0), |space| answer_statfs(reply, space));
    }

    fn poll(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        notifier: PollNotifier,
        _events: PollEvents,
        flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let wake = move || notifier.notify().unwrap_or_else(|error| log::debug!("a poll was not woken: {error}"));
        let waker = flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY).then(|| Box::new(wake) as WakeCall);
        // A write is answered once it is done and waits for no reader, so it is always possible.
        let writable = PollEvents::POLLOUT | PollEvents::POLLWRNORM;
        match catch_panic("poll", || self.fs.poll(handle.0, waker)) {
            Ok(true) => reply.poll(PollEvents::POLLIN | PollEvents::POLLRDNORM | writable),
            Ok(false) => reply.poll(writable),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (caller, name) = (caller(request), name.to_owned());
        let set = move |fs: &Filesystem, value: &[u8]| fs.setxattr(caller, ino.0, &name, value, flags);
        self.dispatcher.serve(Call::new("setxattr", request), value, set, |set| answer(reply, set));
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let get = move |fs: &Filesystem, name: &OsStr| fs.getxattr(ino.0, name);
        self.dispatcher.serve(Call::new("getxattr", request), name, get, move |value| answer_xattr(reply, size, value));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = caller(request);
        let list = move |fs: &Filesystem| fs.listxattr(caller, ino.0);
        self.serve(Call::new("listxattr", request), list, move |names| answer_xattr(reply, size, names));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let caller = caller(request);
        let remove = move |fs: &Filesystem, name: &OsStr| fs.removexattr(caller, ino.0, name);
        self.dispatcher.serve(Call::new("removexattr", request), name, remove, |removed| answer(reply, removed));
    }

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // ENOSYS, once, makes the kernel do it by itself.
        reply.error(Errno::ENOSYS);
    }

    // ENOSYS here would say so for the whole mount and for ever; each file answers for itself.

    fn lseek(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        // An offset that does not fit lies behind the end of any file.
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        let seek = move |fs: &Filesystem| fs.seek(ino.0, handle.0, offset, whence);
        self.serve(Call::new("lseek", request), seek, |found| match found {
            Ok(found) => reply.offset(found.cast_signed()),
            Err(error) => reply.error(error),
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _from: INodeNo,
        from_handle: FileHandle,
        from_offset: u64,
        _to: INodeNo,
        to_handle: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = ((from_handle.0, from_offset), (to_handle.0, to_offset));
        let copy = move |fs: &Filesystem| fs.copy_range(from, to, length);
        self.dispatcher.serve_long(Call::new("copy_file_range", request), copy, |copied| answer_write(reply, copied));
    }

    fn fallocate(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate = move |fs: &Filesystem| fs.fallocate(handle.0, offset, length, mode);
        self.dispatcher.serve_long(Call::new("fallocate", request), allocate, |done| answer(reply, done));
    }

    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}
