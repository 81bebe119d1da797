//! What can be asked of a node, and which of the two trees answers.
//!
//! The control tree is made of what the memory knows: branches, checkpoints, records, `ctl` and the
//! like. The trees below `files/` and `scratch/` are POSIX files. Both answer the same requests;
//! what a tree has no meaning for it refuses by the defaults here.

use std::ffi::OsStr;
use std::ops::Deref;
use std::time::Duration;

use super::Filesystem;
use super::attr::{Attr, AttrChanges, EntryAttr, StatFs};
use super::control::ControlNodeOps;
use super::errno::{Errno, Failure};
use super::files::FileOps;
use super::handle::Handle;
use super::listing::{EntrySink, NameSink};
use super::mount_context::Caller;
use super::node::FsNode;
use super::refusal::LayoutRefusal;
use crate::memory::{NewInode, XattrMode};

/// A name in a directory; whether something has it is not looked at.
pub(super) type ParentAndName<'a> = (&'a FsNode, &'a OsStr);

/// The operations on a node, as the caller may do them: who may reach the node at all was checked by
/// the kernel. Failures are written to `errors` by who calls these.
pub(super) trait NodeOperations {
    /// Returns the path below the branch's directory, as `errors` shows it.
    fn path(&self) -> String;

    /// Returns whether opening it, and changing the directories in it, may take more than a moment.
    fn may_block(&self) -> bool;

    /// Finds a name in a directory: ENOENT, ENOTDIR, ENAMETOOLONG, or ESTALE if its branch is gone.
    fn find(&self, name: &OsStr) -> Result<FsNode, Failure>;

    /// Finds a name in a directory, and counts a look-up of the node found. Fails like [`NodeOperations::find`].
    fn lookup(&self, name: &OsStr) -> Result<EntryAttr, Failure>;

    /// Counts a look-up of the node; ENOENT if it is not there.
    fn entry(&self) -> Result<EntryAttr, Failure>;

    /// Returns how long a name that leads to the node may be kept.
    fn name_lifetime(&self) -> Duration;

    /// Returns the attributes, with the length that a handle of the node sees. ENOENT or ESTALE if it has gone.
    fn attributes(&self, ino: u64, handle: Option<u64>) -> Result<Attr, Failure>;

    /// Changes attributes, as far as there is something to change. EPERM for what has fixed ones, EROFS if nothing may
    /// change, ESTALE if it has gone; EINVAL for a record that is cut without an open handle, and for a time out of
    /// range.
    fn set_attributes(&self, caller: Caller, changes: AttrChanges, handle: Option<u64>) -> Result<(), Failure>;

    /// Returns the room where the node's content is, in bytes, and how many inodes there are. EIO if the disk can't be
    /// asked, ESTALE if `scratch/` has gone.
    fn statfs(&self) -> Result<StatFs, Failure>;

    /// Makes durable what was acknowledged of it. EIO or ENOSPC if the disk does not take it, ESTALE if the node has
    /// gone.
    fn sync(&self) -> Result<(), Failure>;

    /// Opens a file; `flags` are those of open(2). EISDIR for a directory, EACCES for whom the branch is closed, EROFS
    /// for whoever wants to change what stays, ESTALE or ENOENT if it has gone.
    fn open(&self, caller: Caller, ino: u64, flags: i32) -> Result<u64, Failure>;

    /// Makes a file in a directory and opens it. EEXIST if it is there and `flags` have `O_EXCL`, EPERM if no file can
    /// be made; else it fails like [`NodeOperations::open`].
    fn create(&self, caller: Caller, name: &OsStr, mode: u32, flags: i32) -> Result<(EntryAttr, u64), Failure>;

    /// Opens the listing of a directory. ENOTDIR for a file, EACCES for whom the branch is closed, ESTALE or ENOENT if
    /// it has gone.
    fn open_directory(&self, caller: Caller, ino: u64) -> Result<u64, Failure>;

    /// Gives the names of an open directory from the cookie `offset` on to `sink`. ENOTDIR for the handle of a file,
    /// ESTALE if the directory has gone.
    fn read_names(&self, handle: &Handle, offset: u64, sink: NameSink<'_>) -> Result<(), Failure>;

    /// The same with attributes, and a look-up is counted for each but `.` and `..`. Fails like
    /// [`NodeOperations::read_names`].
    fn read_entries(&self, handle: &Handle, offset: u64, sink: EntrySink<'_>) -> Result<(), Failure>;

    /// Makes a directory; EEXIST if the name is taken, EPERM if a directory means nothing.
    fn create_directory(&self, caller: Caller, name: &OsStr, mode: u32) -> Result<EntryAttr, Failure>;

    /// Removes a directory; ENOENT, ENOTDIR or ENOTEMPTY as rmdir(2), EPERM for what stays.
    fn remove_directory(&self, caller: Caller, name: &OsStr) -> Result<(), Failure>;

    /// Removes anything but a directory; ENOENT or EISDIR as unlink(2), EPERM for what stays.
    fn unlink(&self, caller: Caller, name: &OsStr) -> Result<(), Failure>;

    /// Moves what has a name in this directory; `flags` are those of renameat2(2). ENOENT if it is not there, EXDEV if
    /// it would have to be copied, EPERM for what stays under its name, EINVAL for flags that mean nothing here; a
    /// rename that merges fails like the merge.
    fn rename(&self, caller: Caller, name: &OsStr, to: ParentAndName<'_>, flags: u32) -> Result<(), Failure>;

    /// Gives the node one more name in the directory `parent`. EXDEV in another tree, EPERM if nothing has two names.
    fn link(&self, caller: Caller, parent: ParentAndName<'_>) -> Result<EntryAttr, Failure>;

    /// Refuses a rename that would replace the node under its name, where nothing may.
    fn check_replaceable(&self, name: &OsStr) -> Result<(), Failure>;

    /// Returns why the node can't be moved from one tree to another. Fails if the branch that it is has ended.
    fn cross_tree_refusal(&self) -> Result<Failure, Failure>;

    /// Returns where data or a hole begins from `offset` on, for the handle that asks. ENXIO past the end.
    fn seek(&self, ino: u64, handle: u64, offset: u64, whence: i32) -> Result<u64, Failure>;

    /// Makes a file of another kind than a directory. EPERM outside of `files/` and `scratch/`; EEXIST if the name is
    /// taken.
    fn create_node(&self, _caller: Caller, _name: &OsStr, _make: NewInode, _mode: u32) -> Result<EntryAttr, Failure> {
        Err(LayoutRefusal::NoSpecialHere.into())
    }

    /// Returns the target of a symbolic link; EINVAL for anything else.
    fn read_link(&self) -> Result<Vec<u8>, Failure> {
        Err(Errno::EINVAL.into())
    }

    /// Returns an extended attribute; ENODATA if there is none with that name.
    fn xattr(&self, _name: &OsStr) -> Result<Vec<u8>, Failure> {
        Err(Errno::ENODATA.into())
    }

    /// Returns the names of all extended attributes that `caller` may see, each with a NUL behind it. ESTALE if a file
    /// has gone; anything else has none by default.
    fn xattr_names(&self, _caller: Caller) -> Result<Vec<u8>, Failure> {
        Ok(Vec::new())
    }

    /// Sets an extended attribute; EOPNOTSUPP if there are none.
    fn set_xattr(&self, _caller: Caller, _name: &OsStr, _value: &[u8], _mode: XattrMode) -> Result<(), Failure> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Removes an extended attribute; ENODATA if there is none with that name.
    fn remove_xattr(&self, _caller: Caller, _name: &OsStr) -> Result<(), Failure> {
        Err(Errno::ENODATA.into())
    }

    /// Makes room for a range, or a hole, as fallocate(2) with `mode`. EOPNOTSUPP for anything but a file in `files/`
    /// or `scratch/`.
    fn allocate(&self, _caller: Caller, _offset: u64, _length: u64, _mode: i32) -> Result<(), Failure> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Copies `length` bytes from one file's offset to an offset here, and returns how many that were. EXDEV from
    /// another tree, EOPNOTSUPP for anything but a file there.
    fn copy_from(&self, _caller: Caller, _source: (&FsNode, u64), _offset: u64, _length: u64) -> Result<u32, Failure> {
        Err(Errno::EOPNOTSUPP.into())
    }
}

/// The operations of one node, whichever tree it is in.
pub(super) enum AnyNodeOps<'a> {
    /// Branches, and what is generated.
    Control(ControlNodeOps<'a>),
    /// `files/` and `scratch/`.
    File(FileOps<'a>),
}

impl<'a> Deref for AnyNodeOps<'a> {
    type Target = dyn NodeOperations + 'a;

    fn deref(&self) -> &Self::Target {
        match self {
            AnyNodeOps::Control(node) => node,
            AnyNodeOps::File(file) => file,
        }
    }
}

impl Filesystem {
    /// Returns the operations of a node: the one place that tells the two trees apart.
    pub(super) fn operations<'a>(&'a self, node: &'a FsNode) -> AnyNodeOps<'a> {
        match node.file() {
            Some((files, inode)) => AnyNodeOps::File(FileOps { fs: self, files, inode }),
            None => AnyNodeOps::Control(ControlNodeOps { fs: self, node }),
        }
    }

    /// Refuses to replace what always has to be where it is.
    pub(super) fn check_target(&self, node: &FsNode, (parent, name): ParentAndName<'_>) -> Result<(), Failure> {
        match self.operations(parent).find(name) {
            Ok(target) if target != *node => self.operations(&target).check_replaceable(name),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Refuses to move something from one tree to another: mv(1) then copies what can be copied.
    pub(super) fn refuse_crossing(
        &self,
        (parent, name): ParentAndName<'_>,
        to: ParentAndName<'_>,
        flags: u32,
    ) -> Result<(), Failure> {
        check_whiteout(flags)?;
        let node = self.operations(parent).find(name)?;
        self.check_target(&node, to)?;
        Err(self.operations(&node).cross_tree_refusal()?)
    }
}

/// Refuses what only a union file system has a use for, `RENAME_WHITEOUT` (EINVAL).
pub(super) fn check_whiteout(flags: u32) -> Result<(), Failure> {
    match flags & libc::RENAME_WHITEOUT {
        0 => Ok(()),
        _ => Err(LayoutRefusal::Whiteout.into()),
    }
}

/// Returns the refusal to move or remove what is always there, or to move a checkpoint.
pub(super) fn fixed_node_refusal(node: &FsNode) -> Failure {
    match node {
        FsNode::Checkpoint { label, .. } => LayoutRefusal::CheckpointStays(label.to_string()).into(),
        _ => LayoutRefusal::Fixed(node.path().to_string()).into(),
    }
}
