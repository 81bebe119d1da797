//! `files/` and `scratch/`: requests become operations on a branch's tree of files.
//!
//! ```text
//! operations  what can be asked of a node
//! attr, set   stat, setattr          ─┐
//! change      make, remove, rename   ─┤  each request takes the tree of this moment, a value, and
//! open        handles, read, write   ─┼─ changes it by one Memory::edit, which is atomic and
//! range       holes, copies          ─┤  written to the journal before it returns
//! xattr       extended attributes    ─┘
//! inode_map      (view, inode) ↔ the kernel's number       listing  open directories
//! open_inodes    who is open, so that what loses its last name lives on
//! removed_inodes what the kernel holds on to
//! invalidation   what the kernel must forget when a merge or a rollback changed it
//! scratch        the trees that are in RAM only
//! ```
//!
//! Who may do what is checked by the kernel, by the modes and owners that it is told. Nothing here
//! holds a lock while the tree is read or changed.

mod attr;
mod change;
mod inode_map;
mod invalidation;
mod listing;
mod mount_open_files;
mod open;
mod open_inodes;
mod operations;
mod range;
mod removed_inodes;
mod scratch;
mod set;
mod xattr;

use attr::{file_attr, name_lifetime};
pub(super) use inode_map::InodeMap;
pub(super) use listing::FileNames;
pub(super) use mount_open_files::MountOpenFiles;
pub(super) use open_inodes::OpenInodes;
pub(super) use removed_inodes::RemovedInodes;
pub(super) use scratch::Scratch;

use std::ffi::OsStr;

use super::Filesystem;
use super::attr::EntryAttr;
use super::errno::{Errno, Failure};
use super::mount_context::{Caller, MountContext, check_changeable};
use super::node::FsNode;
use crate::memory::{BranchId, EditError, Error, FileName, FileOp, FileOutcome, Time, Tree, View};

/// The two trees of files that a branch has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Area {
    /// `files/`: part of the branch.
    Files,
    /// `scratch/`: in RAM.
    Scratch,
}

impl Area {
    /// In the order of a listing.
    pub const ALL: [Area; 2] = [Area::Files, Area::Scratch];

    /// Returns the name of the tree's root in a branch's directory.
    pub fn name(self) -> &'static str {
        match self {
            Area::Files => "files",
            Area::Scratch => "scratch",
        }
    }
}

/// Whose files. `taken` tells a checkpoint from a later one of the same label, as in [`FsNode`], and
/// `scratch/` from that of an earlier session; it is zero for a branch's `files/`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileTreeId {
    /// Which of the two trees of the branch.
    pub area: Area,
    /// The branch, or the checkpoint, earlier state or proposal of it.
    pub view: View,
    /// When the view was taken, or the session began.
    pub taken: Time,
}

impl FileTreeId {
    /// Returns the id of a branch's `files/`. It stays the same while the branch lives: `taken` is 0.
    pub fn branch(branch: BranchId) -> FileTreeId {
        FileTreeId { area: Area::Files, view: View::Branch(branch), taken: Time::default() }
    }

    /// Returns the directory that holds the tree's root: its `..`.
    pub fn parent(&self) -> FsNode {
        FsNode::from_view(&self.view, self.taken)
    }
}

/// The operations of an inode in `files/` or `scratch/`.
pub(super) struct FileOps<'a> {
    /// The mount that was asked.
    pub fs: &'a Filesystem,
    /// The tree that the inode is in.
    pub files: &'a FileTreeId,
    /// The inode's number in its tree, which is not the one that the kernel has.
    pub inode: u64,
}

impl<'a> FileOps<'a> {
    fn with_inode(&self, inode: u64) -> FileOps<'a> {
        FileOps { inode, ..*self }
    }

    fn node(&self) -> FsNode {
        FsNode::File(self.files.clone(), self.inode)
    }

    /// Returns the tree of this moment, a value that no later change reaches.
    fn tree(&self) -> Result<Tree, Failure> {
        self.fs.mount.tree(self.files)
    }

    fn edit(&self, caller: Caller, op: FileOp<'_>) -> Result<FileOutcome, Failure> {
        self.fs.mount.edit(caller, self.files, op)
    }

    /// Counts a look-up of the inode as it is in `tree`.
    fn entry_in(&self, tree: &Tree) -> Result<EntryAttr, Failure> {
        let node = tree.node(self.inode)?;
        // Counted before the attributes are known to be good, as they carry the number; a failure takes it back.
        let ino = self.fs.nodes.remember(&self.node());
        let attr = file_attr(&self.fs.mount, ino, self.files, self.inode, (tree, node));
        let attr = attr.inspect_err(|_| self.fs.nodes.forget(ino, 1))?;
        Ok(EntryAttr { attr, generation: self.files.view.branch().0, lifetime: name_lifetime(self.files) })
    }
}

impl MountContext {
    /// Returns a tree in the directory of a branch or checkpoint; `None` for other nodes.
    pub fn files_in(&self, directory: &FsNode, area: Area) -> Option<FileTreeId> {
        let taken = match (area, directory) {
            (Area::Files, FsNode::Branch(_)) => Time::default(),
            (Area::Scratch, FsNode::Branch(branch)) => self.scratch.session_start(*branch),
            (_, FsNode::Checkpoint { taken, .. }) => *taken,
            (Area::Files, FsNode::At { branch, entry }) => self.memory.state_time(*branch, *entry).ok()?,
            (Area::Files, FsNode::Proposal { branch, entry }) => self.memory.proposal_time(*branch, *entry).ok()?,
            _ => return None,
        };
        Some(FileTreeId { area, view: directory.view()?, taken })
    }

    /// Returns the files as they are now; ESTALE if the branch, the checkpoint or the session is gone.
    pub fn tree(&self, tree_id: &FileTreeId) -> Result<Tree, Failure> {
        if let View::Checkpoint(branch, label) = &tree_id.view {
            let taken = self.memory.checkpoint_time(*branch, label).map_err(|_| Errno::ESTALE)?;
            // Another checkpoint may have the label by now, and the kernel must not take its files for these.
            if taken != tree_id.taken {
                return Err(Errno::ESTALE.into());
            }
        }
        match tree_id.area {
            Area::Files => Ok(self.memory.files(&tree_id.view)?),
            Area::Scratch => self.scratch_tree(tree_id),
        }
    }

    /// Changes the files by one operation; EROFS in a checkpoint and where nothing may change.
    pub fn edit(&self, caller: Caller, tree_id: &FileTreeId, op: FileOp) -> Result<FileOutcome, Failure> {
        Ok(self.edit_if_unchanged(caller, tree_id, op, |_| true)?.ok_or(Errno::EBUSY)?)
    }

    /// Like [`MountContext::edit`], if the files that it is done to are still as the caller has found them; nothing is
    /// done and returned where they are not. Fails like [`MountContext::edit`].
    pub fn edit_if_unchanged(
        &self,
        caller: Caller,
        tree_id: &FileTreeId,
        op: FileOp,
        is_as_found: impl FnOnce(&Tree) -> bool,
    ) -> Result<Option<FileOutcome>, Failure> {
        // Before the mount is asked, so that a checkpoint is refused for what it is in a read-only mount, too.
        check_changeable(&tree_id.view)?;
        self.check_not_read_only()?;
        if tree_id.area == Area::Scratch {
            // A name in RAM changes by requests of the kernel alone, of which it sends one at a time for a directory.
            return self.edit_scratch(tree_id, &op).map(Some);
        }
        match self.memory.edit_if_unchanged(&self.actor(caller), tree_id.view.branch(), op, is_as_found) {
            Err(EditError::Refused(Error::FileChanged)) => Ok(None),
            done => Ok(Some(done?)),
        }
    }
}

/// Checks a name that something is to get: ENAMETOOLONG, or EINVAL for what no name can be.
fn parse_name(name: &OsStr) -> Result<FileName, Failure> {
    Ok(FileName::new(name.as_encoded_bytes())?)
}
