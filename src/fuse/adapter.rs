//! The kernel's requests, handed to [`Filesystem`] and answered with what it says. No decision is
//! made here.
//!
//! Every request gets its reply, also after a panic: operations run inside [`guard`], replies are
//! sent outside of it.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::patience::Patience;
use super::release;
use super::reply::{
    BLOCK, GENERATED, GENERATION, PAGED, PAST_PAGES, answer, answer_attr, answer_data, answer_entry, answer_open,
    answer_written, answer_xattr, caller, file_attr, guard, kind, time_set,
};
use crate::fs::{Changes, Entry, Errand, Filesystem};

/// What this file system can do with, of what a kernel offers. Nothing else is asked for.
const WANTED: [InitFlags; 7] = [
    // Open carries O_TRUNC, so that emptying is the matter of one handle.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // Generated files are read past the page cache, and mapped nevertheless.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // Look-ups in one directory do not wait for each other.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Pages go when they are said to be stale: what is written here through the kernel is not.
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    // A listing brings the attributes of what is in files/, so that nobody asks for each of them.
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    // Setuid and setgid are cleared here: the kernel would ask for the capabilities of a file
    // before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];
/// Requests that the kernel sends ahead of those who wait, such as reading ahead.
const BACKGROUND: u16 = 64;
/// Free inodes that statfs(2) shows: there is no limit that anybody reaches.
const INODES_FREE: u64 = 1 << 32;
/// Bytes of the longest name.
const NAME_MAX: u32 = 255;

/// A [`Filesystem`] as the FUSE session wants it.
pub struct Adapter {
    fs: Arc<Filesystem>,
    patience: Patience,
    /// The kernel drops the pages that a write past them covers.
    drops_pages: bool,
}

impl Adapter {
    /// Wraps a file system; keep the other `Arc` to connect it with the session's notifier.
    pub fn new(fs: Arc<Filesystem>) -> Adapter {
        Adapter { fs, patience: Patience::new(), drops_pages: false }
    }

    /// Does an operation on an open file where there is time for it, and has the reply sent.
    fn on_handle<T: 'static>(
        &self,
        what: &'static str,
        handle: FileHandle,
        operation: impl FnOnce(&Filesystem) -> Result<T, crate::fs::Errno> + Send + 'static,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let (fs, takes_long) = (Arc::clone(&self.fs), self.fs.takes_long(handle.0));
        let work = move || guard(what, || operation(&fs));
        if takes_long { self.patience.run(work, reply) } else { reply(work()) }
    }

    /// Returns how an open file in `files/` behaves. Who writes a file whole has no use for pages, and
    /// without them the kernel copies once less and does not ask for the rights of the file first.
    fn manner(&self, handle: u64) -> FopenFlags {
        if self.drops_pages && self.fs.goes_past_pages(handle) { PAST_PAGES } else { PAGED }
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // An older kernel lacks some of them; what is missing then is said where it is used.
        WANTED
            .iter()
            .filter_map(|flag| config.add_capabilities(*flag).err())
            .for_each(|flag| log::info!("this kernel lacks {flag:?}"));
        self.drops_pages = release::drops_pages(&rustix::system::uname().release().to_string_lossy());
        // Any number but 0 is taken.
        let _ = config.set_max_background(BACKGROUND);
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
        let changes = Changes { mode, uid, gid, size, accessed, modified };
        answer_attr(
            reply,
            guard("setattr", || self.fs.setattr(caller(request), ino.0, changes, handle.map(|handle| handle.0))),
        );
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        answer_entry(reply, guard("mkdir", || self.fs.mkdir(caller(request), parent.0, name, mode & !umask)));
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
        let (fs, caller, flags) = (Arc::clone(&self.fs), caller(request), flags.bits());
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        // It may be a merge.
        let rename = move || guard("rename", || fs.rename(caller, (parent.0, &name), (new_parent.0, &new_name), flags));
        if self.fs.is_file(parent.0) {
            answer(reply, rename());
        } else {
            self.patience.run(rename, |renamed| answer(reply, renamed));
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
        answer_entry(reply, guard("mknod", || self.fs.mknod(caller(request), parent.0, name, mode & !umask, rdev)));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str();
        answer_entry(reply, guard("symlink", || self.fs.symlink(caller(request), parent.0, name, target)));
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        answer_data(reply, guard("readlink", || self.fs.readlink(ino.0)));
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, guard("link", || self.fs.link(caller(request), ino.0, parent.0, name)));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (fs, caller) = (Arc::clone(&self.fs), caller(request));
        let open = move || guard("open", || fs.open(caller, ino.0, flags.0));
        if self.fs.is_file(ino.0) {
            let opened = open();
            let manner = opened.as_ref().map_or(PAGED, |handle| self.manner(*handle));
            return answer_open(reply, opened, manner);
        }
        // What is generated is generated now, and that may take long.
        self.patience.run(open, |opened| answer_open(reply, opened, GENERATED));
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
                    if self.fs.is_file(parent.0) { self.manner(handle) } else { GENERATED },
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
        let answer = |outcome| answer_data(reply, outcome);
        self.on_handle("read", handle, move |fs| fs.read(handle.0, offset, size), answer);
    }

    fn write(
        &self,
        _request: &Request,
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
        let lasts = flags.0 & libc::O_DSYNC != 0 && self.fs.goes_past_pages(handle.0);
        let fs = Arc::clone(&self.fs);
        let write = move |data: &[u8]| {
            if strips {
                fs.drop_rights(handle.0)?;
            }
            let taken = fs.write(handle.0, offset, data)?;
            if lasts {
                fs.fsync(handle.0)?;
            }
            Ok(taken)
        };
        if !lasts && !self.fs.takes_long(handle.0) {
            return answer_written(reply, guard("write", || write(data)));
        }
        let data = data.to_vec();
        self.patience.run(move || guard("write", || write(&data)), |written| answer_written(reply, written));
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        self.on_handle("flush", handle, move |fs| fs.flush(handle.0), |outcome| answer(reply, outcome));
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let fs = Arc::clone(&self.fs);
        self.patience.run(move || guard("fsync", || fs.fsync(handle.0)), |synced| answer(reply, synced));
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
        let mut sink = |ino, next, what, name: &OsStr| reply.add(INodeNo(ino), next, kind(what), name);
        match guard("readdir", || self.fs.readdir(handle.0, offset, &mut sink)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut sink = |entry: &Entry, next, name: &OsStr| {
            let lifetime = entry.lifetime.min(entry.attr.lifetime);
            reply.add(INodeNo(entry.attr.ino), next, name, &lifetime, &file_attr(&entry.attr), GENERATION)
        };
        match guard("readdirplus", || self.fs.readdirplus(handle.0, offset, &mut sink)) {
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
        let fs = Arc::clone(&self.fs);
        self.patience.run(move || guard("fsyncdir", || fs.fsyncdir(handle.0)), |synced| answer(reply, synced));
    }

    fn statfs(&self, _request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        match guard("statfs", || self.fs.statfs(ino.0)) {
            Ok(space) => {
                reply.statfs(
                    blocks(space.total),
                    blocks(space.free),
                    blocks(space.available),
                    space.inodes + INODES_FREE,
                    INODES_FREE,
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
        answer(reply, guard("setxattr", || self.fs.setxattr(caller(request), ino.0, name, value, flags)));
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer_xattr(reply, size, guard("getxattr", || self.fs.getxattr(ino.0, name)));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        answer_xattr(reply, size, guard("listxattr", || self.fs.listxattr(caller(request), ino.0)));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, guard("removexattr", || self.fs.removexattr(caller(request), ino.0, name)));
    }

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // ENOSYS, once, makes the kernel do it by itself.
        reply.error(Errno::ENOSYS);
    }

    // ENOSYS here would say so for the whole mount and for ever; each file answers for itself.

    fn lseek(&self, _request: &Request, ino: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        // Behind the end, as is everything that is too far for a number.
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        match guard("lseek", || self.fs.seek(ino.0, handle.0, offset, whence)) {
            Ok(found) => reply.offset(found.cast_signed()),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
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
        answer_written(reply, guard("copy_file_range", || self.fs.copy_range(from, to, length)));
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer(reply, guard("fallocate", || self.fs.fallocate(handle.0, offset, length, mode)));
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
