//! Sums over a tree, kept while it changes.

use super::node::{Body, FileNode};

/// What the files of a tree add up to; what no name leads to is not in it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TreeTotals {
    /// Inodes that are not directories; hard links count once.
    pub files: u64,
    /// Number of directories, without the root.
    pub directories: u64,
    /// Sizes of all files in bytes, holes included.
    pub bytes: u64,
    /// Bytes that their chunks take up.
    pub allocated_bytes: u64,
    /// Bytes of names and values of extended attributes, those of directories included.
    pub xattr_bytes: u64,
    /// Hard links: names of inodes that are not directories, beside their first ones.
    pub hard_links: u64,
}

/// What an inode with a name takes up in memory beside its extended attributes, in bytes.
const INODE_BYTES: u64 = 1024;
/// What one more name of an inode takes up in memory, in bytes.
const HARD_LINK_BYTES: u64 = 512;

impl TreeTotals {
    /// Returns what one node adds.
    pub(super) fn from_node(node: &FileNode) -> TreeTotals {
        let xattr_bytes = node.xattrs().map(|(name, value)| (name.len() + value.len()) as u64).sum();
        let none = TreeTotals { xattr_bytes, ..TreeTotals::default() };
        let hard_links = node.nlink().saturating_sub(1).into();
        match &node.body {
            Body::Directory(_) => TreeTotals { directories: 1, ..none },
            Body::File(content) => TreeTotals {
                files: 1,
                bytes: content.size(),
                allocated_bytes: content.allocated_bytes(),
                hard_links,
                ..none
            },
            _ => TreeTotals { files: 1, hard_links, ..none },
        }
    }

    /// Returns about how many bytes of memory names and attributes take up.
    pub fn metadata_bytes(&self) -> u64 {
        INODE_BYTES * (self.files + self.directories) + HARD_LINK_BYTES * self.hard_links + self.xattr_bytes
    }

    /// Counts what a node adds now instead of what it added before.
    pub(super) fn replace(&mut self, before: TreeTotals, after: TreeTotals) {
        self.subtract(before);
        self.add(after);
    }

    /// Adds what other nodes add up to.
    pub(super) fn add(&mut self, other: TreeTotals) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes += other.bytes;
        self.allocated_bytes += other.allocated_bytes;
        self.xattr_bytes += other.xattr_bytes;
        self.hard_links += other.hard_links;
    }

    /// Takes away what was added before.
    pub(super) fn subtract(&mut self, other: TreeTotals) {
        self.files -= other.files;
        self.directories -= other.directories;
        self.bytes -= other.bytes;
        self.allocated_bytes -= other.allocated_bytes;
        self.xattr_bytes -= other.xattr_bytes;
        self.hard_links -= other.hard_links;
    }
}
