//! Who must not come to read by a merge what was closed to them.

use crate::workspace::{FileNode, Tree};

/// A user to whom a merge opens nothing that was closed to them: the owner of the branch that is merged, pulls or goes
/// back.
#[derive(Clone, Copy, Debug)]
pub struct ReaderGuard {
    /// The owner of that branch.
    pub uid: u32,
    /// What of the merge they come to read.
    pub scope: GuardScope,
}

/// What the owner of a branch comes to read of a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardScope {
    /// The plan alone, with the lines that lose: the other branch receives.
    Plan,
    /// The files, too: their branch receives what its parent has by now.
    Files,
    /// The files, too: their branch receives what it had itself, and content and mode of a file may be of two times.
    EarlierFiles,
}

impl ReaderGuard {
    /// Returns whether a file is somebody else's, and a fork would leave it so. What is above it is not looked at.
    pub(super) fn shuts_out(self, tree: &Tree, node: &FileNode) -> bool {
        !node.is_open_to_others() && tree.owner(node) != self.uid
    }
}
