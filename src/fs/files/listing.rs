//! The names in an open directory of files.

use super::open::OpenInode;
use crate::fs::errno::Failure;
use crate::fs::node::FsNode;
use crate::memory::{Directory, FileName, Tree, TreeError};

/// How many names are taken at a time.
const PAGE_NAMES: usize = 1_024;

/// The entries of a directory as they were at its open, or when it was rewound, loaded as far as
/// they were asked for.
pub(in crate::fs) struct FileNames {
    open: OpenInode,
    /// Its entries and not the tree: that would keep what was removed or written anew since, for as long as this is open.
    directory: Directory,
    loaded: Vec<(FileName, u64)>,
}

impl FileNames {
    /// Takes the entries that a directory has in a tree; nothing is loaded yet. ESTALE if the tree does not have it,
    /// ENOTDIR for a file.
    pub fn new(open: OpenInode, tree: &Tree) -> Result<FileNames, Failure> {
        let directory = directory_entries(tree, open.inode())?;
        Ok(FileNames { open, directory, loaded: Vec::new() })
    }

    /// Begins again with what the directory holds now. Fails like `MountContext::tree`; ESTALE if it was removed.
    pub fn rewind(&mut self) -> Result<(), Failure> {
        self.directory = directory_entries(&self.open.tree()?, self.open.inode())?;
        self.loaded.clear();
        Ok(())
    }

    /// Returns name and node of an entry, counted from 0; nothing past the end.
    pub fn get(&mut self, index: usize) -> Option<(FileName, FsNode)> {
        while self.loaded.len() <= index {
            let last = self.loaded.last().map(|(name, _)| name.clone());
            let before = self.loaded.len();
            // By the name behind which it goes on: the entries are a value, so no entry is missed or given twice.
            let page = self.directory.entries_after(last.as_deref()).take(PAGE_NAMES);
            self.loaded.extend(page.map(|(name, inode)| (name.clone(), inode)));
            if self.loaded.len() == before {
                return None;
            }
        }
        let (name, inode) = self.loaded.get(index)?;
        Some((name.clone(), FsNode::File(self.open.tree_id().clone(), *inode)))
    }
}

fn directory_entries(tree: &Tree, inode: u64) -> Result<Directory, Failure> {
    Ok(tree.node(inode)?.directory().ok_or(TreeError::NotDirectory)?.clone())
}
