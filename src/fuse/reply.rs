//! What the adapter's methods share: a guard around operations, and values in fuser's types.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry,
    ReplyOpen, Request,
};

use crate::fs::{self, Attr, Caller};

/// Bytes of a block in statfs(2).
pub(super) const BLOCK: u32 = 4_096;
/// Numbers of nodes are never given twice.
pub(super) const GENERATION: Generation = Generation(0);

/// Runs an operation; a panic is EIO for the caller and a line in the log, and the mount lives on.
pub(super) fn guard<T>(what: &str, operation: impl FnOnce() -> Result<T, fs::Errno>) -> Result<T, Errno> {
    let outcome = catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|_| {
        log::error!("{what} panicked; its caller got EIO");
        Err(fs::Errno::EIO)
    });
    outcome.map_err(|errno| Errno::from_i32(errno.0))
}

pub(super) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

pub(super) fn time(nanos: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos.max(0).unsigned_abs())
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    let modified = time(attr.modified.0);
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind: kind(attr.directory),
        perm: (attr.mode & 0o7777) as u16,
        // 1 for a directory tells find(1) not to count on it.
        nlink: 1,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

pub(super) fn kind(directory: bool) -> FileType {
    if directory { FileType::Directory } else { FileType::RegularFile }
}

/// Replies to what gives nothing back.
pub(super) fn answer(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

pub(super) fn answer_entry(reply: ReplyEntry, outcome: Result<fs::Entry, Errno>) {
    match outcome {
        Ok(entry) => reply.entry_with_ttls(&entry.attr.lifetime, &entry.lifetime, &file_attr(&entry.attr), GENERATION),
        Err(error) => reply.error(error),
    }
}

pub(super) fn answer_attr(reply: ReplyAttr, outcome: Result<Attr, Errno>) {
    match outcome {
        Ok(attr) => reply.attr(&attr.lifetime, &file_attr(&attr)),
        Err(error) => reply.error(error),
    }
}

pub(super) fn answer_open(reply: ReplyOpen, outcome: Result<u64, Errno>, flags: FopenFlags) {
    match outcome {
        Ok(handle) => reply.opened(FileHandle(handle), flags),
        Err(error) => reply.error(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_errno_and_no_end() {
        let outcome = guard("test", || -> Result<(), fs::Errno> { panic!("a bug") });
        assert_eq!(outcome.map_err(Errno::code), Err(libc::EIO));
        assert_eq!(guard("test", || Err::<(), _>(fs::Errno::ESTALE)).map_err(Errno::code), Err(libc::ESTALE));
    }

    #[test]
    fn times_before_1970_are_1970() {
        assert_eq!(time(-5), UNIX_EPOCH);
        assert_eq!(time(1_500_000_000), UNIX_EPOCH + Duration::from_millis(1_500));
    }
}
