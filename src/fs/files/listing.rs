//! The names in an open directory of files.

use super::open::OpenInode;
use crate::fs::errno::Failure;
use crate::fs::node::FsNode;
use crate::memory::{FileName, Tree};

/// How many names are taken at a time.
const PAGE_NAMES: usize = 1_024;

/// The entries of a directory as they were at its open, or when it was rewound, loaded as far as
/// they were asked for.
pub(in crate::fs) struct FileNames {
    open: OpenInode,
    tree: Tree,
    loaded: Vec<(FileName, u64)>,
}

impl FileNames {
    /// Takes a directory and the tree as it is now; nothing is loaded yet.
    pub fn new(open: OpenInode, tree: Tree) -> FileNames {
        FileNames { open, tree, loaded: Vec::new() }
    }

    /// Begins again with what the directory holds now. Fails as `MountContext::tree` does.
    pub fn rewind(&mut self) -> Result<(), Failure> {
        self.tree = self.open.tree()?;
        self.loaded.clear();
        Ok(())
    }

    /// Returns name and node of an entry, counted from 0; nothing behind the end. ESTALE where the directory was
    /// removed from that tree.
    pub fn get(&mut self, index: usize) -> Result<Option<(FileName, FsNode)>, Failure> {
        while self.loaded.len() <= index {
            let last = self.loaded.last().map(|(name, _)| name.clone());
            let before = self.loaded.len();
            // By the name behind which it goes on: the tree is a value, so no entry is missed or given twice.
            let page = self.tree.entries(self.open.inode(), last.as_deref())?.take(PAGE_NAMES);
            self.loaded.extend(page.map(|(name, inode)| (name.clone(), inode)));
            if self.loaded.len() == before {
                return Ok(None);
            }
        }
        Ok(self
            .loaded
            .get(index)
            .map(|(name, inode)| (name.clone(), FsNode::File(self.open.tree_id().clone(), *inode))))
    }
}
