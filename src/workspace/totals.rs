//! Sums over a tree, kept while it changes.

use super::node::Body;
use super::tree::Held;

/// What the files of a tree add up to; what no name leads to is not in it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Inodes that are not directories; hard links count once.
    pub files: u64,
    /// Directories without the root.
    pub directories: u64,
    /// Sizes of all files.
    pub bytes: u64,
    /// Bytes that their chunks take up.
    pub allocated: u64,
}

impl Totals {
    /// Adds a node.
    pub(super) fn add(&mut self, node: Option<&Held>) {
        let Some(node) = node else { return };
        match &node.body {
            Body::Directory(_) => self.directories += 1,
            Body::File(content) => {
                self.files += 1;
                self.bytes += content.size();
                self.allocated += content.allocated();
            }
            _ => self.files += 1,
        }
    }

    /// Takes out a node that was added as it is.
    pub(super) fn subtract(&mut self, node: Option<&Held>) {
        let Some(node) = node else { return };
        match &node.body {
            Body::Directory(_) => self.directories -= 1,
            Body::File(content) => {
                self.files -= 1;
                self.bytes -= content.size();
                self.allocated -= content.allocated();
            }
            _ => self.files -= 1,
        }
    }

    /// Adds a tree up anew.
    #[cfg(test)]
    pub(super) fn of(tree: &super::Tree) -> Totals {
        let mut totals = Totals::default();
        for (inode, held) in &tree.nodes {
            if *inode != super::ROOT && !held.is_nameless() {
                totals.add(Some(held));
            }
        }
        totals
    }
}
