//! What the adapter's methods share: a guard around operations, and values in fuser's types.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
};

use crate::fs::{self, Attr, Caller, FileKind, Time, TimeSet};

/// Bytes of a block in statfs(2).
const BLOCK_BYTES: u32 = 4_096;
/// Free inodes that statfs(2) shows: there is no limit that anybody reaches.
const INODES_FREE: u64 = 1 << 32;
/// Bytes of the longest name, as statfs(2) tells it.
const NAME_BYTES_MAX: u32 = 255;
/// Runs an operation; a panic is EIO for the caller and a line in the log, and the mount lives on.
pub(super) fn catch_panic<T>(what: &str, operation: impl FnOnce() -> Result<T, fs::Errno>) -> Result<T, Errno> {
    let outcome = catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|_| {
        log::error!("{what} panicked; its caller got EIO");
        Err(fs::Errno::EIO)
    });
    outcome.map_err(|errno| Errno::from_i32(errno.0))
}

/// Returns who sent a request, with the primary group alone: the protocol has no others.
pub(super) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

/// Returns a moment as fuser takes it, also one before 1970.
pub(super) fn time(time: Time) -> SystemTime {
    let distance = Duration::from_nanos(time.0.unsigned_abs());
    if time.0 < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// Returns a time to set, out of what fuser makes of the kernel's seconds and nanoseconds: before
/// 1970 it takes both for negative, and the kernel means the seconds alone.
pub(super) fn time_set(time: TimeOrNow) -> TimeSet {
    let TimeOrNow::SpecificTime(time) = time else { return TimeSet::Now };
    let (seconds, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i128::from(after.as_secs()), after.subsec_nanos()),
        // In 128 bits, since the seconds of a u64 in nanoseconds fit no 64.
        Err(error) => (-i128::from(error.duration().as_secs()), error.duration().subsec_nanos()),
    };
    let nanos = seconds * 1_000_000_000 + i128::from(nanos);
    i64::try_from(nanos).map_or(TimeSet::OutOfRange, |nanos| TimeSet::At(Time(nanos)))
}

/// Returns attributes as fuser takes them. The time of birth is left out: the protocol has none on Linux.
pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.accessed),
        mtime: time(attr.modified),
        ctime: time(attr.changed),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.device,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Returns the kind in fuser's words, of which there is one for each.
pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Open flags of a file in `files/`. The page cache stays valid between opens, since the kernel makes every change itself or is
/// told of it, and close(2) has nothing to flush.
const CACHED_FILE: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);
/// The same for a handle whose writes bypass the page cache; the kernel drops the pages that a write covers.
const DIRECT_WRITE_FILE: FopenFlags = CACHED_FILE.union(FopenFlags::FOPEN_DIRECT_IO);
/// Open flags of a generated file: it may change at any moment, so reads bypass the page cache.
const GENERATED_FILE: FopenFlags = FopenFlags::FOPEN_DIRECT_IO;

/// Returns the open flags of a handle. A handle that writes a file whole does not need the page cache; without it the kernel
/// copies once less, and does not ask for `security.capability` before the first write.
pub(super) fn open_flags(fs: &fs::Filesystem, direct_write_invalidates: bool, handle: u64) -> FopenFlags {
    if !fs.keeps_page_cache(handle) {
        GENERATED_FILE
    } else if direct_write_invalidates && fs.writes_directly(handle) {
        DIRECT_WRITE_FILE
    } else {
        CACHED_FILE
    }
}

/// Replies that all went well, with no data, or with the errno.
pub(super) fn answer(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// Replies with a name's node and how long the kernel may believe it.
pub(super) fn answer_entry(reply: ReplyEntry, outcome: Result<fs::EntryAttr, Errno>) {
    match outcome {
        Ok(entry) => reply.entry_with_ttls(
            &entry.attr.lifetime,
            &entry.lifetime,
            &file_attr(&entry.attr),
            Generation(entry.generation),
        ),
        Err(error) => reply.error(error),
    }
}

/// Replies with attributes and how long the kernel may believe them.
pub(super) fn answer_attr(reply: ReplyAttr, outcome: Result<Attr, Errno>) {
    match outcome {
        Ok(attr) => reply.attr(&attr.lifetime, &file_attr(&attr)),
        Err(error) => reply.error(error),
    }
}

/// Replies with bytes, as many as there are, or with the errno.
pub(super) fn answer_data(reply: ReplyData, outcome: Result<Vec<u8>, Errno>) {
    match outcome {
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error),
    }
}

/// Replies with how many bytes were taken, which may be fewer than came.
pub(super) fn answer_write(reply: ReplyWrite, outcome: Result<u32, Errno>) {
    match outcome {
        Ok(taken) => reply.written(taken),
        Err(error) => reply.error(error),
    }
}

/// Replies with the length where `size` is 0, and with ERANGE if the caller has too little room.
pub(super) fn answer_xattr(reply: ReplyXattr, size: u32, outcome: Result<Vec<u8>, Errno>) {
    match outcome {
        Ok(bytes) if size == 0 => reply.size(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error),
    }
}

/// Replies with a handle and how the file behaves.
pub(super) fn answer_open(reply: ReplyOpen, outcome: Result<(u64, FopenFlags), Errno>) {
    match outcome {
        Ok((handle, flags)) => reply.opened(FileHandle(handle), flags),
        Err(error) => reply.error(error),
    }
}

/// Replies with a new file's node and its handle.
pub(super) fn answer_create(reply: ReplyCreate, outcome: Result<(fs::EntryAttr, u64, FopenFlags), Errno>) {
    match outcome {
        Ok((entry, handle, flags)) => {
            reply.created(
                &entry.lifetime,
                &file_attr(&entry.attr),
                Generation(entry.generation),
                FileHandle(handle),
                flags,
            );
        }
        Err(error) => reply.error(error),
    }
}

/// Replies with the room on the disk, in blocks; inodes never run out.
pub(super) fn answer_statfs(reply: ReplyStatfs, outcome: Result<fs::StatFs, Errno>) {
    let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
    match outcome {
        Ok(space) => reply.statfs(
            blocks(space.total_bytes),
            blocks(space.free_bytes),
            blocks(space.available_bytes),
            space.inodes + INODES_FREE,
            INODES_FREE,
            BLOCK_BYTES,
            NAME_BYTES_MAX,
            BLOCK_BYTES,
        ),
        Err(error) => reply.error(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_errno_and_no_end() {
        let outcome = catch_panic("test", || -> Result<(), fs::Errno> { panic!("a bug") });
        assert_eq!(outcome.map_err(Errno::code), Err(libc::EIO));
        assert_eq!(catch_panic("test", || Err::<(), _>(fs::Errno::ESTALE)).map_err(Errno::code), Err(libc::ESTALE));
    }

    #[test]
    fn times_before_1970_keep_their_fractions() {
        assert_eq!(time(Time(-500_000_000)), UNIX_EPOCH - Duration::from_millis(500));
        assert_eq!(time(Time(1_500_000_000)), UNIX_EPOCH + Duration::from_millis(1_500));
        // What fuser makes of the seconds -2 and the nanoseconds 250,000,000, which is -1.75 s.
        let read = TimeOrNow::SpecificTime(UNIX_EPOCH - Duration::new(2, 250_000_000));
        assert_eq!(time_set(read), TimeSet::At(Time(-1_750_000_000)));
        assert_eq!(time_set(TimeOrNow::Now), TimeSet::Now);
    }

    #[test]
    fn a_time_beyond_64_bits_is_told_and_not_another_one() {
        let years = |years: u64| UNIX_EPOCH + Duration::from_secs(years * 31_556_952);
        assert!(matches!(time_set(TimeOrNow::SpecificTime(years(291))), TimeSet::At(_)));
        assert_eq!(time_set(TimeOrNow::SpecificTime(years(293))), TimeSet::OutOfRange);
    }
}
