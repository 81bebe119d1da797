//! Carrying out an op: names. What concerns one inode alone is in `change`. All checks come before the first change, as an op
//! that fails leaves the tree as it was.

use super::node::{Body, Directory, FileNode};
use super::op::{FileOp, FileOutcome, NewInode, RenameMode};
use super::pack::Packs;
use super::{FileContent, FileKind, FileName, Tree, TreeError};
use crate::object::Time;

/// Most names of a file, and most directories in a directory.
pub const LINKS_MAX: u32 = 65_000;
/// Longest target of a symbolic link, in bytes: a path of the kernel without its NUL.
const TARGET_BYTES_MAX: usize = 4095;
const SETGID: u32 = 0o2000;

impl Tree {
    /// Carries out an op at `time`; on an error, which the op's variant says, nothing has changed.
    ///
    /// The same ops in the same order give the same tree with the same inode numbers. `packs` is asked when some bytes
    /// of a sealed chunk are kept and others change.
    pub fn apply(&mut self, op: &FileOp, time: Time, packs: &dyn Packs) -> Result<FileOutcome, TreeError> {
        let done = |inode: u64| FileOutcome { inode, unlinked: None };
        match op {
            FileOp::Create { parent, name, make, mode, uid, gid } => {
                self.create(*parent, name, make, [*mode, *uid, *gid], time).map(done)
            }
            FileOp::Link { inode, parent, name } => self.link(*inode, *parent, name, time).map(|()| done(*inode)),
            FileOp::Unlink { parent, name, keep } => self.unlink(*parent, name, *keep, time),
            FileOp::Rmdir { parent, name, keep } => self.rmdir(*parent, name, *keep, time),
            FileOp::Rename { parent, name, new_parent, new_name, mode: RenameMode::Exchange, keep: _ } => {
                self.exchange((*parent, name), (*new_parent, new_name), time).map(done)
            }
            FileOp::Rename { parent, name, new_parent, new_name, mode, keep } => {
                let replace = *mode == RenameMode::Plain;
                self.rename((*parent, name), (*new_parent, new_name), replace, *keep, time)
            }
            FileOp::Drop { inode } => {
                if self.orphans.remove(inode).is_some() {
                    self.remove_nameless(*inode);
                }
                Ok(done(*inode))
            }
            _ => self.change(op, time, packs).map(done),
        }
    }

    /// Returns the inode of a name that may be free, in a directory that is not removed.
    fn find(&self, parent: u64, name: &FileName) -> Result<Option<u64>, TreeError> {
        let node = self.node(parent)?;
        let directory = node.directory().ok_or(TreeError::NotDirectory)?;
        if node.is_nameless() {
            return Err(TreeError::NotFound);
        }
        Ok(directory.get(name))
    }

    /// Checks that a directory takes a new name. `TreeError::Exists` if the name is taken, `TreeError::TooManyLinks` if
    /// the directory has as many subdirectories as there may be.
    pub(super) fn check_free(&self, parent: u64, name: &FileName, is_directory: bool) -> Result<(), TreeError> {
        if self.find(parent, name)?.is_some() {
            return Err(TreeError::Exists);
        }
        self.check_room(parent, is_directory)
    }

    fn check_room(&self, parent: u64, is_directory: bool) -> Result<(), TreeError> {
        // A directory has two links beside its subdirectories: its name and its own `.`.
        let full = is_directory && self.directory(parent)?.subdirectories >= LINKS_MAX - 2;
        if full { Err(TreeError::TooManyLinks) } else { Ok(()) }
    }

    fn create(
        &mut self,
        parent: u64,
        name: &FileName,
        make: &NewInode,
        [mut mode, uid, mut gid]: [u32; 3],
        time: Time,
    ) -> Result<u64, TreeError> {
        let body = new_body(make)?;
        let is_directory = matches!(body, Body::Directory(_));
        self.check_free(parent, name, is_directory)?;
        // As on other file systems: what is made in a setgid directory gets its group, and a directory the bit as well.
        let above = self.node(parent)?;
        if above.mode & SETGID != 0 {
            gid = above.gid;
            mode |= if is_directory { SETGID } else { 0 };
        }
        let inode = self.add(FileNode::new(body, mode, uid, gid, time));
        self.add_name(parent, name, inode, time)?;
        Ok(inode)
    }

    fn link(&mut self, inode: u64, parent: u64, name: &FileName, time: Time) -> Result<(), TreeError> {
        let node = self.node(inode)?;
        if node.kind() == FileKind::Directory {
            return Err(TreeError::NotPermitted);
        }
        if node.is_nameless() {
            return Err(TreeError::NotFound);
        }
        // Every check comes before `add_name`, which can't be taken back.
        if node.nlink() >= LINKS_MAX {
            return Err(TreeError::TooManyLinks);
        }
        self.check_free(parent, name, false)?;
        self.add_name(parent, name, inode, time)
    }

    fn unlink(&mut self, parent: u64, name: &FileName, keep: bool, time: Time) -> Result<FileOutcome, TreeError> {
        let inode = self.find(parent, name)?.ok_or(TreeError::NotFound)?;
        if self.node(inode)?.kind() == FileKind::Directory {
            return Err(TreeError::IsDirectory);
        }
        self.remove((parent, name), inode, keep, time)
    }

    fn rmdir(&mut self, parent: u64, name: &FileName, keep: bool, time: Time) -> Result<FileOutcome, TreeError> {
        let inode = self.find(parent, name)?.ok_or(TreeError::NotFound)?;
        if !self.directory(inode)?.is_empty() {
            return Err(TreeError::NotEmpty);
        }
        self.remove((parent, name), inode, keep, time)
    }

    /// Takes a name of an inode away, and the inode with its last one.
    fn remove(&mut self, from: (u64, &FileName), inode: u64, keep: bool, time: Time) -> Result<FileOutcome, TreeError> {
        // The name goes in any case; with `keep` the inode stays as an orphan, since a handle still reads and writes
        // it.
        let is_last = self.remove_name(from.0, from.1, inode, time)?;
        if is_last && keep {
            self.orphans.insert(inode);
        } else if is_last {
            self.remove_nameless(inode);
        }
        Ok(FileOutcome { inode, unlinked: is_last.then_some(inode) })
    }

    fn rename(
        &mut self,
        from: (u64, &FileName),
        to: (u64, &FileName),
        replace: bool,
        keep: bool,
        time: Time,
    ) -> Result<FileOutcome, TreeError> {
        let inode = self.find(from.0, from.1)?.ok_or(TreeError::NotFound)?;
        let target = self.find(to.0, to.1)?;
        if target.is_some() && !replace {
            return Err(TreeError::Exists);
        }
        // Two names of one inode: POSIX says that nothing happens.
        if target == Some(inode) {
            return Ok(FileOutcome { inode, unlinked: None });
        }
        // All checks come before the first change, since an error must leave the tree as it was.
        self.check_move(inode, from.0, to.0, target)?;
        // The target goes before the inode comes, so that the directory never has more directories than it may.
        let unlinked = match target {
            Some(target) => self.remove(to, target, keep, time)?.unlinked,
            None => None,
        };
        self.remove_name(from.0, from.1, inode, time)?;
        self.add_name(to.0, to.1, inode, time)?;
        Ok(FileOutcome { inode, unlinked })
    }

    /// Checks whether an inode can take the place of `target` in another directory or the same.
    fn check_move(&self, inode: u64, from: u64, to: u64, target: Option<u64>) -> Result<(), TreeError> {
        let is_directory = self.node(inode)?.kind() == FileKind::Directory;
        if is_directory && self.is_within(to, inode)? {
            return Err(TreeError::Invalid("a directory can't be moved into itself"));
        }
        // With a target of the same kind, or within one directory, the number of links does not grow, so room is not
        // asked for.
        let Some(target) = target else {
            return if from == to { Ok(()) } else { self.check_room(to, is_directory) };
        };
        // A directory above the inode holds it, so it is not empty: nothing is ever moved over its own ancestor.
        match (is_directory, self.node(target)?.directory()) {
            (true, None) => Err(TreeError::NotDirectory),
            (false, Some(_)) => Err(TreeError::IsDirectory),
            (true, Some(directory)) if !directory.is_empty() => Err(TreeError::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Returns whether a directory is `above` or somewhere in it. `TreeError::Stale` if a directory on the way up is
    /// not in the tree.
    pub(super) fn is_within(&self, directory: u64, above: u64) -> Result<bool, TreeError> {
        let mut at = directory;
        loop {
            if at == above {
                return Ok(true);
            }
            // A directory has one name only, so the first one leads up to the root.
            match self.node(at)?.names().next() {
                Some((parent, _)) => at = parent,
                None => return Ok(false),
            }
        }
    }

    fn exchange(&mut self, one: (u64, &FileName), other: (u64, &FileName), time: Time) -> Result<u64, TreeError> {
        let first = self.find(one.0, one.1)?.ok_or(TreeError::NotFound)?;
        let second = self.find(other.0, other.1)?.ok_or(TreeError::NotFound)?;
        for (inode, into, out_of, back) in [(first, other.0, one.0, second), (second, one.0, other.0, first)] {
            let is_directory = self.node(inode)?.kind() == FileKind::Directory;
            if is_directory && self.is_within(into, inode)? {
                return Err(TreeError::Invalid("a directory can't be moved into itself"));
            }
            // Where a directory comes back in exchange, the number of links does not grow.
            let swaps = into == out_of || self.node(back)?.kind() == FileKind::Directory;
            if !swaps {
                self.check_room(into, is_directory)?;
            }
        }
        // Two names of one inode, or one name twice: nothing changes, as in `rename`.
        if first == second {
            return Ok(first);
        }
        // Both names go before either is given again: a name has to be free, and counts of subdirectories must not grow on
        // the way.
        self.remove_name(one.0, one.1, first, time)?;
        self.remove_name(other.0, other.1, second, time)?;
        self.add_name(one.0, one.1, second, time)?;
        self.add_name(other.0, other.1, first, time)?;
        Ok(first)
    }
}

fn new_body(make: &NewInode) -> Result<Body, TreeError> {
    Ok(match make {
        NewInode::File => Body::File(FileContent::default()),
        NewInode::Directory => Body::Directory(Directory::default()),
        NewInode::Symlink(target) if target.is_empty() => return Err(TreeError::NotFound),
        NewInode::Symlink(target) if target.len() > TARGET_BYTES_MAX => return Err(TreeError::NameTooLong),
        NewInode::Symlink(target) => Body::Symlink(target.as_slice().into()),
        NewInode::Fifo => Body::Fifo,
        NewInode::Socket => Body::Socket,
        NewInode::CharDevice(rdev) => Body::CharDevice(*rdev),
        NewInode::BlockDevice(rdev) => Body::BlockDevice(*rdev),
    })
}
