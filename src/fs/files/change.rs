//! Making, linking, removing and renaming files.

use std::ffi::OsStr;
use std::sync::Arc;

use super::{FilesOf, name_of};
use crate::fs::attr::EntryAttr;
use crate::fs::change::fixed;
use crate::fs::errno::{Errno, Failure};
use crate::fs::mount_context::Caller;
use crate::fs::node::FsNode;
use crate::fs::refusal::ShapeRefusal;
use crate::fs::{Filesystem, branches};
use crate::memory::{FILES_ROOT, FileName, FileOp, Make, RenameHow, Tree, TreeError};

impl Filesystem {
    /// Makes a file, fifo, socket or device in `files/`; EPERM elsewhere. `mode` has the kind in the
    /// bits of `S_IFMT`, `device` counts for devices only.
    pub fn mknod(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32, device: u32) -> Result<EntryAttr, Errno> {
        let make = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => Make::File,
            libc::S_IFIFO => Make::Fifo,
            libc::S_IFSOCK => Make::Socket,
            libc::S_IFCHR => Make::CharDevice(device),
            libc::S_IFBLK => Make::BlockDevice(device),
            _ => return Err(Errno::EINVAL),
        };
        self.make_at(caller, parent, name, make, mode)
    }

    /// Makes a symbolic link in `files/`; EPERM elsewhere.
    pub fn symlink(&self, caller: Caller, parent: u64, name: &OsStr, target: &OsStr) -> Result<EntryAttr, Errno> {
        self.make_at(caller, parent, name, Make::Symlink(target.as_encoded_bytes().to_vec()), 0o777)
    }

    /// Gives a file one more name; EXDEV where the two are not in the same `files/`, EPERM where
    /// nothing has two names.
    pub fn link(&self, caller: Caller, ino: u64, parent: u64, name: &OsStr) -> Result<EntryAttr, Errno> {
        let (node, parent) = (self.nodes.node(ino)?, self.nodes.node(parent)?);
        let linked = match (&node, &parent) {
            (FsNode::File(of, inode), FsNode::File(target, directory)) if of == target => name_of(name)
                .and_then(|name| {
                    let op = FileOp::Link { inode: *inode, parent: *directory, name };
                    self.mount.edit(caller, of, op)
                })
                .and_then(|_| self.present_entry(of, *inode)),
            (FsNode::File(..), _) | (_, FsNode::File(..)) => Err(Errno::EXDEV.into()),
            _ => Err(ShapeRefusal::OneName.into()),
        };
        self.audit_at(caller, &parent, name, linked)
    }

    fn make_at(&self, caller: Caller, parent: u64, name: &OsStr, make: Make, mode: u32) -> Result<EntryAttr, Errno> {
        let parent = self.nodes.node(parent)?;
        let made = match &parent {
            FsNode::File(of, directory) => self.make_file(caller, of, *directory, name, make, mode),
            _ => Err(ShapeRefusal::NoSpecialHere.into()),
        };
        self.audit_at(caller, &parent, name, made)
    }

    /// Makes an inode with a name in a directory. A directory with setgid passes its group on.
    pub(in crate::fs) fn make_file(
        &self,
        caller: Caller,
        of: &FilesOf,
        directory: u64,
        name: &OsStr,
        make: Make,
        mode: u32,
    ) -> Result<EntryAttr, Failure> {
        let inode = self.make_inode(caller, of, directory, name, make, mode)?;
        self.present_entry(of, inode)
    }

    /// The same, and returns the inode.
    pub(super) fn make_inode(
        &self,
        caller: Caller,
        of: &FilesOf,
        directory: u64,
        name: &OsStr,
        make: Make,
        mode: u32,
    ) -> Result<u64, Failure> {
        let (name, mode) = (name_of(name)?, mode & 0o7777);
        let op = FileOp::Create { parent: directory, name, make, mode, uid: caller.uid, gid: caller.gid };
        Ok(self.mount.edit(caller, of, op)?.inode)
    }

    /// Takes the name of a file away, or of an empty directory.
    pub(in crate::fs) fn remove_file(
        &self,
        caller: Caller,
        of: &FilesOf,
        directory: u64,
        name: &OsStr,
        is_directory: bool,
    ) -> Result<(), Failure> {
        let name = name_of(name)?;
        let tree = self.mount.tree(of)?;
        let inode = tree.lookup(directory, &name)?;
        self.without_name(caller, of, &tree, Some(inode), |keep| match is_directory {
            true => FileOp::Rmdir { parent: directory, name, keep },
            false => FileOp::Unlink { parent: directory, name, keep },
        })
    }

    /// Renames within one `files/`. `flags` are those of renameat2(2), without `RENAME_WHITEOUT`.
    pub(in crate::fs) fn rename_file(
        &self,
        caller: Caller,
        of: &FilesOf,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> Result<(), Failure> {
        let how = match flags {
            0 => RenameHow::Plain,
            libc::RENAME_NOREPLACE => RenameHow::NoReplace,
            libc::RENAME_EXCHANGE => RenameHow::Exchange,
            _ => return Err(Errno::EINVAL.into()),
        };
        let (name, new_name) = (name_of(from.1)?, name_of(to.1)?);
        let (parent, new_parent) = (from.0, to.0);
        let tree = self.mount.tree(of)?;
        let replaced = match how {
            RenameHow::Plain => target(&tree, new_parent, &new_name)?,
            RenameHow::NoReplace | RenameHow::Exchange => None,
        };
        self.without_name(caller, of, &tree, replaced, |keep| FileOp::Rename {
            parent,
            name,
            new_parent,
            new_name,
            how,
            keep,
        })
    }

    /// Does what takes a name of `inode` away. If that was the last one and the inode is open, it
    /// stays until its last handle is closed.
    fn without_name(
        &self,
        caller: Caller,
        of: &FilesOf,
        tree: &Tree,
        inode: Option<u64>,
        op: impl FnOnce(bool) -> FileOp<'static>,
    ) -> Result<(), Failure> {
        let leaving = inode.map(|inode| self.mount.opened.leave((of.clone(), inode)));
        let keep = leaving.as_ref().is_some_and(|leaving| leaving.is_open);
        let Some(gone) = self.mount.edit(caller, of, op(keep))?.gone else { return Ok(()) };
        match leaving.filter(|leaving| leaving.is_open) {
            Some(leaving) if leaving.orphaned() => {
                self.mount.edit(caller, of, FileOp::Drop { inode: gone })?;
            }
            Some(_) => {}
            None => {
                let last = tree.node(gone).map(Arc::clone);
                let number = self.nodes.number(&FsNode::File(of.clone(), gone));
                last.into_iter().for_each(|last| self.mount.removed.keep(number, last));
            }
        }
        Ok(())
    }

    /// Renames what is in `files/` or shall be: within one of them, and from one to another not at
    /// all, so that mv(1) copies. A branch can't be moved there.
    pub(in crate::fs) fn rename_at(
        &self,
        caller: Caller,
        from: (&FsNode, &OsStr),
        to: (&FsNode, &OsStr),
        flags: u32,
    ) -> Result<(), Failure> {
        if flags & libc::RENAME_WHITEOUT != 0 {
            return Err(ShapeRefusal::Whiteout.into());
        }
        match (from.0, to.0) {
            (FsNode::File(of, parent), FsNode::File(other, new_parent)) if of == other => {
                self.rename_file(caller, of, (*parent, from.1), (*new_parent, to.1), flags)
            }
            _ => Err(self.cannot_cross(from, to)?),
        }
    }

    /// Returns why something can't be moved into `files/` or out of it.
    fn cannot_cross(&self, from: (&FsNode, &OsStr), to: (&FsNode, &OsStr)) -> Result<Failure, Failure> {
        let node = self.find(from.0, from.1)?;
        self.check_target(&node, to.0, to.1)?;
        Ok(match &node {
            FsNode::Branch(branch) => branches::elsewhere(&self.mount.memory.info(*branch)?),
            FsNode::File(_, inode) if *inode != FILES_ROOT => Errno::EXDEV.into(),
            FsNode::Record(..) | FsNode::Temporary(..) => Errno::EXDEV.into(),
            other => fixed(other),
        })
    }
}

/// Returns the inode that has a name, if any.
fn target(tree: &Tree, directory: u64, name: &FileName) -> Result<Option<u64>, Failure> {
    match tree.lookup(directory, name) {
        Ok(inode) => Ok(Some(inode)),
        Err(TreeError::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
