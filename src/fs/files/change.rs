//! Making, removing and renaming files.

use std::ffi::OsStr;
use std::sync::Arc;

use super::open_inodes::UnlinkGuard;
use super::{FileOps, parse_name};
use crate::fs::errno::{Errno, Failure};
use crate::fs::mount_context::Caller;
use crate::memory::{BranchError, FileName, FileOp, NewInode, RenameMode, Tree, TreeError};

/// How often a name is looked up anew that leads to another file whenever it is to be taken away.
const ATTEMPTS_MAX: usize = 10;

impl FileOps<'_> {
    /// Makes an inode with a name in the directory. A directory with setgid passes its group on. EINVAL or ENAMETOOLONG
    /// for what no entry can be called, EEXIST if the name is taken, and as any edit may.
    pub(super) fn create_inode(&self, caller: Caller, name: &OsStr, make: NewInode, mode: u32) -> Result<u64, Failure> {
        let (name, mode) = (parse_name(name)?, mode & 0o7777);
        let op = FileOp::Create { parent: self.inode, name, make, mode, uid: caller.uid, gid: caller.gid };
        Ok(self.edit(caller, op)?.inode)
    }

    /// Takes the name of a file away, or of an empty directory. ENOENT if there is nothing with that name, ENOTEMPTY,
    /// ENOTDIR or EISDIR as in unlink(2) and rmdir(2), and as any edit may.
    pub(super) fn remove(&self, caller: Caller, name: &OsStr, is_directory: bool) -> Result<(), Failure> {
        let (name, directory) = (parse_name(name)?, self.inode);
        let found = |tree: &Tree| -> Result<_, Failure> { Ok(Some(tree.lookup(directory, &name)?)) };
        self.without_name(caller, found, |keep| match is_directory {
            true => FileOp::Rmdir { parent: directory, name: name.clone(), keep },
            false => FileOp::Unlink { parent: directory, name: name.clone(), keep },
        })
    }

    /// Renames what has a name in this directory within the tree. `flags` are those of renameat2(2), without
    /// `RENAME_WHITEOUT`. EINVAL for other flags, else as rename(2): ENOENT, EEXIST, ENOTEMPTY, EISDIR, ENOTDIR,
    /// ENAMETOOLONG, and EROFS if nothing may change.
    pub(super) fn rename_within(
        &self,
        caller: Caller,
        name: &OsStr,
        (new_parent, new_name): (u64, &OsStr),
        flags: u32,
    ) -> Result<(), Failure> {
        let mode = match flags {
            0 => RenameMode::Plain,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL.into()),
        };
        let (name, new_name, parent) = (parse_name(name)?, parse_name(new_name)?, self.inode);
        let replaced = |tree: &Tree| match mode {
            RenameMode::Plain => find_inode(tree, new_parent, &new_name),
            RenameMode::NoReplace | RenameMode::Exchange => Ok(None),
        };
        self.without_name(caller, replaced, |keep| FileOp::Rename {
            parent,
            name: name.clone(),
            new_parent,
            new_name: new_name.clone(),
            mode,
            keep,
        })
    }

    /// Does what takes a name of the inode away that `found` gives. If that was the last one and the inode is open, it
    /// stays until its last handle is closed. EBUSY if the name leads to another file whenever it is to be taken away.
    fn without_name(
        &self,
        caller: Caller,
        found: impl Fn(&Tree) -> Result<Option<u64>, Failure>,
        op: impl Fn(bool) -> FileOp<'static>,
    ) -> Result<(), Failure> {
        for _ in 0..ATTEMPTS_MAX {
            let tree = self.tree()?;
            let inode = found(&tree)?;
            // From here on whoever opens the inode waits until it is known whether it stays.
            let unlink = inode.map(|inode| self.fs.mount.open_inodes.begin_unlink((self.files.clone(), inode)));
            // Nobody can open it between this look and the edit, since `begin_unlink` has them wait.
            let keep = unlink.as_ref().is_some_and(|unlink| unlink.is_open);
            // The edit goes by name, and a merge may have put another inode there, of which nothing is known here.
            let still = |now: &Tree| found(now).is_ok_and(|there| there == inode);
            if let Some(done) = self.fs.mount.edit_if_unchanged(caller, self.files, op(keep), still)? {
                if let Some(unlinked) = done.unlinked {
                    self.drop_unlinked(caller, &tree, unlinked, unlink);
                }
                return Ok(());
            }
        }
        Err(BranchError::Moves.into())
    }

    /// Sees to an inode that has lost its last name. The name is gone by now, so what fails here is not told: the inode then
    /// goes later.
    fn drop_unlinked(&self, caller: Caller, before: &Tree, inode: u64, unlink: Option<UnlinkGuard<'_>>) {
        match unlink.filter(|unlink| unlink.is_open) {
            Some(unlink) if unlink.mark_orphaned() => self.fs.mount.drop_orphan(caller, self.files, inode),
            Some(_) => {}
            None => {
                // The kernel may still hold it without a handle, as a working directory, and asks for its attributes.
                let last = before.node(inode).map(|node| Arc::new(before.detached(node).stat_only()));
                let number = self.fs.nodes.number(&self.with_inode(inode).node());
                last.into_iter().for_each(|last| self.fs.mount.removed_inodes.insert(number, last));
            }
        }
    }
}

/// Returns the inode that has a name, if any.
fn find_inode(tree: &Tree, directory: u64, name: &FileName) -> Result<Option<u64>, Failure> {
    match tree.lookup(directory, name) {
        Ok(inode) => Ok(Some(inode)),
        Err(TreeError::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
