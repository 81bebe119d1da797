//! Who owns a file that a merge makes.

use crate::workspace::{FileNode, Tree};

/// Whose new files become whose. Files that are there before keep their owners.
#[derive(Clone, Copy, Debug)]
pub struct NewOwner {
    /// Uid of the owner of the giving branch. Files of other users keep their owners.
    pub from_uid: u32,
    /// Uid of the owner of the receiving branch. If it is the same, no owner changes.
    pub to_uid: u32,
    /// Whether only that is handed over which everybody may read.
    pub world_readable_only: bool,
}

impl NewOwner {
    /// Returns who owns what a branch or its parent gets from the other, by their owners. The branch gets what it could read
    /// by now, as in a fork; what it gives away belongs to the parent's owner as the parent's own files do.
    pub fn for_transfer(branch_uid: u32, parent_uid: u32, to_branch: bool) -> NewOwner {
        let (from_uid, to_uid) = if to_branch { (parent_uid, branch_uid) } else { (branch_uid, parent_uid) };
        NewOwner { from_uid, to_uid, world_readable_only: to_branch }
    }

    /// Returns the new owner's uid of a file from the giving branch; `None` if it keeps its own.
    pub(super) fn new_uid(&self, node: &FileNode, tree: &Tree) -> Option<u32> {
        let passes = if self.world_readable_only { node.is_open_to_others() } else { node.is_transferable() };
        (self.from_uid != self.to_uid && passes && tree.owner(node) == self.from_uid).then_some(self.to_uid)
    }
}
