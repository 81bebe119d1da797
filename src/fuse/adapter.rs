//! The kernel's requests, handed to [`Filesystem`] and answered with what it says. No decision is
//! made here.
//!
//! Every request gets its reply, also after a panic: operations run inside [`guard`], replies are
//! sent outside of it.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, Notifier, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::reply::{BLOCK, GENERATION, answer, answer_attr, answer_entry, answer_open, caller, file_attr, guard, kind};
use crate::fs::{Changes, Errand, Filesystem, Kernel};

/// What this file system can do with, of what a kernel offers. Nothing else is asked for.
const WANTED: [InitFlags; 4] = [
    // Open carries O_TRUNC, so that emptying is the matter of one handle.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // Generated files are read past the page cache, and mapped nevertheless.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // Look-ups in one directory do not wait for each other.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Pages of a mapping go when the file's time or length changes.
    InitFlags::FUSE_AUTO_INVAL_DATA,
];
/// Bytes of the longest name.
const NAME_MAX: u32 = 255;

/// A [`Filesystem`] as the FUSE session wants it.
pub struct Adapter {
    fs: Arc<Filesystem>,
}

impl Adapter {
    /// Wraps a file system; keep the other `Arc` to connect it with the session's notifier.
    pub fn new(fs: Arc<Filesystem>) -> Adapter {
        Adapter { fs }
    }
}

/// Lets `fs` send notices to the kernel from now on. To be called when the mount answers; at its
/// end `fs.set_kernel(None)` lets go.
pub fn connect(fs: &Filesystem, notifier: Notifier) {
    fs.set_kernel(Some(Arc::new(Mounted(notifier))));
}

struct Mounted(Notifier);

impl Kernel for Mounted {
    fn forget_name(&self, parent: u64, name: &OsStr) {
        if let Err(error) = self.0.inval_entry(INodeNo(parent), name) {
            log::debug!("the kernel did not take a notice: {error}");
        }
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // An older kernel lacks some of them; what is missing then is said where it is used.
        WANTED
            .iter()
            .filter_map(|flag| config.add_capabilities(*flag).err())
            .for_each(|flag| log::info!("this kernel lacks {flag:?}"));
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, guard("lookup", || self.fs.lookup(parent.0, name)));
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        self.fs.forget(ino.0, lookups);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        answer_attr(reply, guard("getattr", || self.fs.getattr(ino.0, handle.map(|handle| handle.0))));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes { mode, uid, gid, size };
        answer_attr(
            reply,
            guard("setattr", || self.fs.setattr(caller(request), ino.0, changes, handle.map(|handle| handle.0))),
        );
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        answer_entry(reply, guard("mkdir", || self.fs.mkdir(caller(request), parent.0, name)));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, guard("rmdir", || self.fs.rmdir(caller(request), parent.0, name)));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, guard("unlink", || self.fs.unlink(caller(request), parent.0, name)));
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
        let rename = || self.fs.rename(caller(request), (parent.0, name), (new_parent.0, new_name), flags.bits());
        let renamed = guard("rename", rename);
        let (afterwards, outcome) =
            renamed.map_or_else(|error| (None, Err(error)), |afterwards| (Some(afterwards), Ok(())));
        answer(reply, outcome);
        // Only now: the kernel holds both directories until it has the reply.
        afterwards.into_iter().for_each(|afterwards| self.fs.announce(afterwards));
    }

    fn mknod(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn symlink(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _target: &std::path::Path,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn link(&self, _request: &Request, _ino: INodeNo, _parent: INodeNo, _name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        answer_open(
            reply,
            guard("open", || self.fs.open(caller(request), ino.0, flags.0)),
            FopenFlags::FOPEN_DIRECT_IO,
        );
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
        match guard("create", || self.fs.create(caller(request), parent.0, name, mode & !umask, flags)) {
            Ok((entry, handle)) => {
                reply.created(
                    &entry.lifetime,
                    &file_attr(&entry.attr),
                    GENERATION,
                    FileHandle(handle),
                    FopenFlags::FOPEN_DIRECT_IO,
                );
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match guard("read", || self.fs.read(handle.0, offset, size)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match guard("write", || self.fs.write(handle.0, offset, data)) {
            Ok(taken) => reply.written(taken),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        answer(reply, guard("flush", || self.fs.flush(handle.0)));
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer(reply, guard("fsync", || self.fs.fsync(handle.0)));
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let release = || {
            self.fs.release(handle.0);
            Ok(())
        };
        answer(reply, guard("release", release));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        answer_open(reply, guard("opendir", || self.fs.opendir(caller(request), ino.0)), FopenFlags::empty());
    }

    fn readdir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut sink = |ino, next, directory, name: &OsStr| reply.add(INodeNo(ino), next, kind(directory), name);
        match guard("readdir", || self.fs.readdir(handle.0, offset, &mut sink)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let release = || {
            self.fs.release(handle.0);
            Ok(())
        };
        answer(reply, guard("releasedir", release));
    }

    fn fsyncdir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer(reply, guard("fsyncdir", || self.fs.fsyncdir(handle.0)));
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        match guard("statfs", || self.fs.statfs()) {
            Ok(space) => {
                reply.statfs(
                    blocks(space.total),
                    blocks(space.free),
                    blocks(space.available),
                    0,
                    0,
                    BLOCK,
                    NAME_MAX,
                    BLOCK,
                );
            }
            Err(error) => reply.error(error),
        }
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
        let waker = flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY).then(|| Box::new(wake) as Errand);
        let writable = PollEvents::POLLOUT | PollEvents::POLLWRNORM;
        match guard("poll", || self.fs.poll(handle.0, waker)) {
            Ok(true) => reply.poll(PollEvents::POLLIN | PollEvents::POLLRDNORM | writable),
            Ok(false) => reply.poll(writable),
            Err(error) => reply.error(error),
        }
    }

    // No file carries extended attributes. ENOSYS would say so for the whole mount and for ever;
    // these say it for one name.

    fn setxattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn getxattr(&self, _request: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENODATA);
    }

    fn listxattr(&self, _request: &Request, _ino: INodeNo, size: u32, reply: ReplyXattr) {
        if size == 0 { reply.size(0) } else { reply.data(&[]) }
    }

    fn removexattr(&self, _request: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENODATA);
    }

    // ENOSYS, once, makes the kernel do these by itself.

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _from: INodeNo,
        _from_handle: FileHandle,
        _from_offset: u64,
        _to: INodeNo,
        _to_handle: FileHandle,
        _to_offset: u64,
        _length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
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
