//! Sums over a tree, kept while it changes.

use super::node::{Body, Node};

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
    /// Returns what one node adds.
    pub(super) fn of(node: &Node) -> Totals {
        match &node.body {
            Body::Directory(_) => Totals { directories: 1, ..Totals::default() },
            Body::File(content) => {
                Totals { files: 1, directories: 0, bytes: content.size(), allocated: content.allocated() }
            }
            _ => Totals { files: 1, ..Totals::default() },
        }
    }

    pub(super) fn add(&mut self, other: Totals) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes += other.bytes;
        self.allocated += other.allocated;
    }

    pub(super) fn subtract(&mut self, other: Totals) {
        self.files -= other.files;
        self.directories -= other.directories;
        self.bytes -= other.bytes;
        self.allocated -= other.allocated;
    }
}
