//! Who must not come to read by a merge what was closed to them.

use std::collections::BTreeSet;

use super::MergeTrees;
use super::node_change::same_body;
use super::protect::{OWNER_BITS, SET_ID_BITS};
use crate::workspace::{FileNode, ROOT, Tree};

/// A user to whom a merge opens nothing that was closed to them: the owner of the branch that is merged, pulls or goes
/// back.
#[derive(Clone, Copy, Debug)]
pub struct ReaderGuard {
    /// Uid of the owner of that branch.
    pub uid: u32,
    /// What of the merge they come to read.
    pub scope: GuardScope,
}

/// What the owner of a branch comes to read of a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardScope {
    /// The plan alone: the other branch receives, with the modes and places that they gave.
    Plan,
    /// The files, too: their branch receives what its parent has by now.
    Files,
    /// The files, too: their branch receives what it had itself, and content and mode of a file may be of two times.
    EarlierFiles,
}

impl ReaderGuard {
    /// Returns the guard against a user; `None` for root, who may read all.
    pub fn new(uid: u32, scope: GuardScope) -> Option<ReaderGuard> {
        (uid != 0).then_some(ReaderGuard { uid, scope })
    }

    /// Returns whether a file is somebody else's, and a fork would leave it so. What is above it is not looked at. The root,
    /// which has no name, is always the branch owner's.
    pub(super) fn shuts_out(self, tree: &Tree, node: &FileNode) -> bool {
        !node.is_open_to_others() && tree.owner(node) != self.uid && node.names().next().is_some()
    }

    /// Returns whether the mode that a file has in the branch that is merged is one with which a pull closed it there, or that it
    /// got with joined content: nobody has set it, and the parent's file keeps its own. One that its owner set so in the branch
    /// can't be told from it where they own nothing there that others may read.
    pub(super) fn is_mode_of_pull(self, trees: &MergeTrees<'_>, base: &FileNode, own: &FileNode) -> bool {
        if self.scope != GuardScope::Plan || !self.shuts_out(trees.child, own) {
            return false;
        }
        let parents_owner = trees.parent.node(ROOT).ok().map(|root| trees.parent.owner(root));
        let owner = trees.base.owner(base);
        // What others may read and the parent's owner has is given to the branch's owner, who has it no longer.
        let is_taken = trees.child.owner(own) != owner || parents_owner == Some(owner);
        let is_closed = base.is_open_to_others() && is_taken && own.mode == base.mode & OWNER_BITS;
        let mode_of_joined = base.mode & !SET_ID_BITS;
        is_closed || own.mode != base.mode && own.mode == mode_of_joined && !same_body(base, own)
    }

    /// Returns the directories that shut the reader out, from one upwards.
    pub(super) fn closed_directories(self, tree: &Tree, directory: u64) -> Vec<u64> {
        let is_closed = |inode: &u64| tree.node(*inode).is_ok_and(|node| self.shuts_out(tree, node));
        directories_upwards(tree, directory).into_iter().filter(is_closed).collect()
    }

    /// Returns whether the reader can't get to a file, whatever its own mode is: all its names are below directories that
    /// shut them out.
    pub(super) fn is_out_of_reach(self, tree: &Tree, node: &FileNode) -> bool {
        let mut names = node.names().peekable();
        names.peek().is_some() && names.all(|(directory, _)| !self.closed_directories(tree, directory).is_empty())
    }
}

/// Returns whether everybody who gets to `files/` may read a file, whoever it belongs to: its own mode lets them, and those of all
/// directories above one of its names, the root among them.
pub(super) fn is_open_to_everybody(tree: &Tree, node: &FileNode) -> bool {
    let is_open = |inode: u64| tree.node(inode).is_ok_and(|node| node.is_open_to_others());
    let is_reached = |directory: u64| is_open(ROOT) && directories_upwards(tree, directory).into_iter().all(is_open);
    node.is_open_to_others() && node.names().any(|(directory, _)| is_reached(directory))
}

/// Returns a directory and those above it, without the root.
pub(super) fn directories_upwards(tree: &Tree, directory: u64) -> Vec<u64> {
    let (mut found, mut at) = (Vec::new(), directory);
    while at != ROOT
        && let Some((above, _)) = tree.node(at).ok().and_then(|node| node.names().next())
    {
        found.push(at);
        at = above;
    }
    found
}

/// Returns all of some directories and those above them, without the root. It costs what it finds.
pub(super) fn all_directories_upwards(tree: &Tree, directories: BTreeSet<u64>) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for directory in directories {
        let mut at = directory;
        // Above one that was met are those that were met with it.
        while at != ROOT
            && found.insert(at)
            && let Some((above, _)) = tree.node(at).ok().and_then(|node| node.names().next())
        {
            at = above;
        }
    }
    found
}
