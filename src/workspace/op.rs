//! What can be done to a tree, as values with canonical bytes: the journal holds these and not trees, so an op must give the
//! same tree whenever it is replayed.

use std::borrow::Cow;

use super::FileName;
use crate::object::Time;

/// The kind of a new inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewInode {
    /// Empty at first, as what open(2) creates.
    File,
    /// An empty directory. It inherits setgid.
    Directory,
    /// With its target, 1 to 4095 bytes.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket, as bind(2) makes it.
    Socket,
    /// With the number of the device, as mknod(2) gave it.
    CharDevice(u32),
    /// With the number of the device, as mknod(2) gave it.
    BlockDevice(u32),
}

/// What a rename does with the name that it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces what has it.
    Plain,
    /// Fails with `Exists` if something has it.
    NoReplace,
    /// Gives the old name to what has it; `NotFound` if nothing has it.
    Exchange,
}

/// Whether an extended attribute must be there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Either way.
    Any,
    /// It must not: `Exists`.
    Create,
    /// It must: `NoAttribute`.
    Replace,
}

/// What is done with a range of a file (fallocate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeOp {
    /// Makes a hole; the size always stays.
    Punch,
    /// Makes zeros that take up space.
    Zero,
    /// Takes up space and changes no byte.
    Allocate,
}

/// New values of attributes; what is none stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Permission bits, 12 of them.
    pub mode: Option<u32>,
    /// New owner's uid. Rights are not checked here.
    pub uid: Option<u32>,
    /// New group's gid. Rights are not checked here.
    pub gid: Option<u32>,
    /// The size of a file; mtime follows unless it is given too.
    pub size: Option<u64>,
    /// When it was last read.
    pub atime: Option<Time>,
    /// When its content last changed.
    pub mtime: Option<Time>,
}

/// One change of a tree. The bytes of a write may be borrowed: they are many.
///
/// Whether the caller may is not asked here: permissions and sticky directories are the kernel's,
/// and the clearing of setuid and setgid after a write is a `SetAttr` of the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields that need words have them")]
pub enum FileOp<'a> {
    /// Makes an inode. In a directory with setgid it gets that directory's group, and a directory the bit.
    ///
    /// `Exists` if the name is taken, `NotFound` in a directory that was removed, `TooManyLinks` beyond 65,000
    /// directories in one. Of a link's target `NameTooLong`, and `NotFound` for an empty one.
    Create { parent: u64, name: FileName, make: NewInode, mode: u32, uid: u32, gid: u32 },
    /// Gives an inode one more name. `NotPermitted` for a directory, `NotFound` for an orphan, `TooManyLinks` beyond
    /// 65,000 names, `Exists` if the name is taken.
    Link { inode: u64, parent: u64, name: FileName },
    /// Takes a name of anything but a directory away. `keep`: a handle is open, so that the inode stays as an orphan
    /// after its last name. `NotFound` if nothing has the name, `IsDirectory` if a directory does.
    Unlink { parent: u64, name: FileName, keep: bool },
    /// Removes an empty directory. `keep` as for `Unlink`. `NotFound` if nothing has the name, `NotDirectory` or
    /// `NotEmpty` if what has it can't be removed.
    Rmdir { parent: u64, name: FileName, keep: bool },
    /// Moves a name. `keep` is for what is replaced. Two names of one inode stay as they are, as POSIX says.
    ///
    /// `NotFound` if nothing has the name, `Invalid` for a directory that would be below itself; `IsDirectory`,
    /// `NotDirectory` or `NotEmpty` if what has the new name can't be replaced.
    Rename { parent: u64, name: FileName, new_parent: u64, new_name: FileName, mode: RenameMode, keep: bool },
    /// Sets attributes. A size is `TooLarge` beyond 16 TiB, `IsDirectory` and `Invalid` for anything but a file.
    SetAttr { inode: u64, attrs: Attrs },
    /// Writes bytes at a place of a file; a gap in front of them reads as zeros. `TooLarge` if they would end behind 16
    /// TiB.
    Write { inode: u64, offset: u64, bytes: Cow<'a, [u8]> },
    /// Changes a range. `keep_size`: the file does not grow where the range ends behind it. `Invalid` for an empty one,
    /// `TooLarge` behind 16 TiB.
    Range { inode: u64, what: RangeOp, offset: u64, length: u64, keep_size: bool },
    /// Copies bytes from file to file; whole chunks are shared. Fewer where `from` ends before. `Invalid` if both
    /// ranges are of one file and overlap.
    Copy { from: u64, from_offset: u64, to: u64, to_offset: u64, length: u64 },
    /// Sets an extended attribute. `AttributeName` and `AttributeTooLarge` for more than 255 bytes and 64 KiB,
    /// `NoSpace` for more than 1 MiB of all attributes.
    SetXattr { inode: u64, name: Vec<u8>, value: Vec<u8>, mode: XattrMode },
    /// Removes an extended attribute; `NoAttribute` if there is none with that name.
    RemoveXattr { inode: u64, name: Vec<u8> },
    /// The last handle of an orphan is closed; of anything else nothing changes.
    Drop { inode: u64 },
}

/// What an op did, by the inodes that it touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOutcome {
    /// The inode that was made, linked, moved, unlinked or changed.
    pub inode: u64,
    /// The inode that lost its last name: an orphan if it was to be kept, else removed.
    pub unlinked: Option<u64>,
}
