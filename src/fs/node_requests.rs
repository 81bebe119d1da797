//! Requests about a node: find it, call its operation, note in `errors` what was refused.

use std::ffi::OsStr;

use super::Filesystem;
use super::attr::{Attr, AttrChanges, EntryAttr, StatFs};
use super::control::ControlDirectory;
use super::errno::{Errno, Failure};
use super::mount_context::Caller;
use super::node::FsNode;
use crate::memory::{NewInode, XattrMode};

impl Filesystem {
    /// Returns whether opening a node, or removing or renaming in it, may take long. Operations in `files/` do not.
    pub fn may_block(&self, ino: u64) -> bool {
        self.nodes.node(ino).map_or(true, |node| self.operations(&node).may_block())
    }

    /// Finds a name in a directory, and counts a look-up of the node found.
    ///
    /// ENOENT, ENOTDIR, ENAMETOOLONG, or ESTALE if the directory's branch was merged or discarded.
    pub fn lookup(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<EntryAttr, Errno> {
        let parent = self.nodes.node(parent)?;
        let found = self.check_lookup(caller, &parent, name).and_then(|()| self.operations(&parent).lookup(name));
        self.audit_at(caller, &parent, name, found)
    }

    /// Refuses a look at a proposal, or at what is in one, to who may not look at it.
    fn check_lookup(&self, caller: Caller, parent: &FsNode, name: &OsStr) -> Result<(), Failure> {
        if let FsNode::Directory(_, ControlDirectory::Proposals) = parent {
            return self.mount.check_visible(caller, &self.operations(parent).find(name)?);
        }
        self.mount.check_visible(caller, parent)
    }

    /// Takes back look-ups that [`EntryAttr`]s stood for.
    pub fn forget(&self, ino: u64, lookup_count: u64) {
        self.nodes.forget(ino, lookup_count);
        self.mount.removed_inodes.forget(ino);
    }

    /// Returns the attributes of a node; of an open file with the length that this handle sees. ESTALE for a number
    /// that names nothing; refused for a node of a proposal that the caller may not look at.
    pub fn getattr(&self, caller: Caller, ino: u64, handle: Option<u64>) -> Result<Attr, Errno> {
        let node = self.nodes.node(ino)?;
        let seen = if handle.is_none() { self.mount.check_visible(caller, &node) } else { Ok(()) };
        let found = seen.and_then(|()| self.operations(&node).attributes(ino, handle));
        self.audit_node(caller, &node, found)
    }

    /// Changes attributes, as far as there is something to change.
    ///
    /// Records, `query` and the like accept what editors and archivers do to files, and keep what
    /// they are. A branch's directory takes permission bits; fixed names none (EPERM). A record is
    /// cut by its handle only (EINVAL).
    pub fn setattr(&self, caller: Caller, ino: u64, changes: AttrChanges, handle: Option<u64>) -> Result<Attr, Errno> {
        let node = self.nodes.node(ino)?;
        let operations = self.operations(&node);
        let set = operations.set_attributes(caller, changes, handle);
        let set = set.and_then(|()| operations.attributes(ino, handle));
        self.audit_node(caller, &node, set)
    }

    /// Returns the room on the store's device, and how many inodes the files of the branch have that
    /// `ino` belongs to. ESTALE for a number that names nothing.
    pub fn statfs(&self, ino: u64) -> Result<StatFs, Errno> {
        let node = self.nodes.node(ino)?;
        let statfs = self.operations(&node).statfs();
        self.audit_node(None, &node, statfs)
    }

    /// Opens a file and returns the handle. `flags` are those of open(2).
    ///
    /// Generated files show the state of this moment. EPERM for writing to one, EROFS for writing
    /// where nothing changes. A bad query in `search/<text>` fails here.
    pub fn open(&self, caller: Caller, ino: u64, flags: i32) -> Result<u64, Errno> {
        let node = self.nodes.node(ino)?;
        let seen = self.mount.check_visible(caller, &node);
        let opened = seen.and_then(|()| self.operations(&node).open(caller, ino, flags));
        self.audit_node(caller, &node, opened)
    }

    /// Makes a file in `files/` or `vectors/` and opens it. A record is there once a commit took its document.
    ///
    /// EEXIST if it is there and `flags` have `O_EXCL`, EPERM if no file can be made, EINVAL for a name in `vectors/`
    /// that is no record's, ENOSPC or EDQUOT if room is short.
    pub fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(EntryAttr, u64), Errno> {
        let parent = self.nodes.node(parent)?;
        let created = self.operations(&parent).create(caller, name, mode, flags);
        self.audit_at(caller, &parent, name, created)
    }

    /// Opens a directory and returns the handle. Its listing stays as it is now; in `files/`, until it is read from the
    /// beginning again. ENOTDIR for anything else.
    pub fn opendir(&self, caller: Caller, ino: u64) -> Result<u64, Errno> {
        let node = self.nodes.node(ino)?;
        let seen = self.mount.check_visible(caller, &node);
        let opened = seen.and_then(|()| self.operations(&node).open_directory(caller, ino));
        self.audit_node(caller, &node, opened)
    }

    /// Makes a root branch, a fork, a checkpoint or a directory in `files/`; EPERM if a directory means none of these.
    /// `mode` is for `files/`.
    pub fn mkdir(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> Result<EntryAttr, Errno> {
        let parent = self.nodes.node(parent)?;
        let made = self.operations(&parent).create_directory(caller, name, mode);
        self.audit_at(caller, &parent, name, made)
    }

    /// Makes a file, fifo, socket or device in `files/`; EPERM elsewhere. `mode` has the kind in the
    /// bits of `S_IFMT`, `device` counts for devices only.
    pub fn mknod(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32, device: u32) -> Result<EntryAttr, Errno> {
        let make = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => NewInode::File,
            libc::S_IFIFO => NewInode::Fifo,
            libc::S_IFSOCK => NewInode::Socket,
            libc::S_IFCHR => NewInode::CharDevice(device),
            libc::S_IFBLK => NewInode::BlockDevice(device),
            _ => return Err(Errno::EINVAL),
        };
        self.create_at(caller, parent, name, make, mode)
    }

    /// Makes a symbolic link in `files/`; EPERM elsewhere.
    pub fn symlink(&self, caller: Caller, parent: u64, name: &OsStr, target: &OsStr) -> Result<EntryAttr, Errno> {
        self.create_at(caller, parent, name, NewInode::Symlink(target.as_encoded_bytes().to_vec()), 0o777)
    }

    fn create_at(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        make: NewInode,
        mode: u32,
    ) -> Result<EntryAttr, Errno> {
        let parent = self.nodes.node(parent)?;
        let made = self.operations(&parent).create_node(caller, name, make, mode);
        self.audit_at(caller, &parent, name, made)
    }

    /// Gives a file one more name. EXDEV if the two are not in the same `files/`, EPERM for what can't have two names.
    pub fn link(&self, caller: Caller, ino: u64, parent: u64, name: &OsStr) -> Result<EntryAttr, Errno> {
        let (node, parent) = (self.nodes.node(ino)?, self.nodes.node(parent)?);
        let linked = self.operations(&node).link(caller, (&parent, name));
        self.audit_at(caller, &parent, name, linked)
    }

    /// Discards a branch with all that is in it, deletes a checkpoint, or removes an empty directory
    /// in `files/`.
    ///
    /// EPERM for `main` and fixed names, ENOTEMPTY while the branch has child branches, EBUSY while
    /// a handle holds bytes of it that no commit took.
    pub fn rmdir(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let parent = self.nodes.node(parent)?;
        let removed = self.operations(&parent).remove_directory(caller, name);
        self.audit_at(caller, &parent, name, removed)
    }

    /// Removes a record in this branch, a temporary, or a file in `files/`; EPERM for everything else.
    pub fn unlink(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let parent = self.nodes.node(parent)?;
        let removed = self.operations(&parent).unlink(caller, name);
        self.audit_at(caller, &parent, name, removed)
    }

    /// Renames: within `files/` anything, within `vectors/` records and temporaries, within
    /// `branches/` a branch; from `branches/` to the parent's directory under the same name it
    /// merges. `flags` are those of renameat2(2); outside of `files/` only `RENAME_NOREPLACE` has a
    /// meaning.
    ///
    /// EEXIST onto a branch, EINVAL to anywhere else, EPERM for fixed names, and what a merge is
    /// refused for.
    pub fn rename(&self, caller: Caller, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> Result<(), Errno> {
        let (parent, new_parent) = (self.nodes.node(from.0)?, self.nodes.node(to.0)?);
        let renamed = self.operations(&parent).rename(caller, from.1, (&new_parent, to.1), flags);
        self.audit_at(caller, &parent, from.1, renamed)
    }

    /// Returns the target of a symbolic link; EINVAL for anything else.
    pub fn readlink(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.node(ino)?;
        let target = self.operations(&node).read_link();
        self.audit_node(None, &node, target)
    }

    /// Returns an extended attribute; ENODATA if there is none with that name.
    pub fn getxattr(&self, ino: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.node(ino)?;
        let value = self.operations(&node).xattr(name);
        self.audit_node(None, &node, value)
    }

    /// Returns the names of all extended attributes that `caller` may see, each with a NUL behind it. ESTALE for a
    /// number that names nothing.
    pub fn listxattr(&self, caller: Caller, ino: u64) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.node(ino)?;
        let names = self.operations(&node).xattr_names(caller);
        self.audit_node(caller, &node, names)
    }

    /// Sets an extended attribute; `flags` are those of setxattr(2).
    ///
    /// EOPNOTSUPP for what is generated and for names in `system.` or in no namespace.
    pub fn setxattr(&self, caller: Caller, ino: u64, name: &OsStr, value: &[u8], flags: i32) -> Result<(), Errno> {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let node = self.nodes.node(ino)?;
        let set = self.operations(&node).set_xattr(caller, name, value, mode);
        self.audit_node(caller, &node, set)
    }

    /// Removes an extended attribute; ENODATA if there is none with that name.
    pub fn removexattr(&self, caller: Caller, ino: u64, name: &OsStr) -> Result<(), Errno> {
        // A node that is gone has no attribute of that name either.
        let node = self.nodes.node(ino).map_err(|_| Errno::ENODATA)?;
        let removed = self.operations(&node).remove_xattr(caller, name);
        self.audit_node(caller, &node, removed)
    }

    /// Returns where data (`SEEK_DATA`) or a hole (`SEEK_HOLE`) begins, from `offset` on; ENXIO past the end. A
    /// generated file has no hole but the one past its end.
    pub fn seek(&self, ino: u64, handle: u64, offset: u64, whence: i32) -> Result<u64, Errno> {
        let node = self.nodes.node(ino)?;
        let found = self.operations(&node).seek(ino, handle, offset, whence);
        self.audit_node(None, &node, found)
    }
}
