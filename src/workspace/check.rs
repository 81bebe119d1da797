//! Whether a tree is whole after a delta.

use std::collections::HashSet;

use super::load::{DeltaChanges, EntryLink, change_node};
use super::node::Body;
use super::tree::ROOT;
use super::{FileName, Tree, TreeError};

impl Tree {
    /// Checks what the changes could have broken: every name leads to an inode, and every inode
    /// touched has a name and is below the root. The base is whole, so nothing else is looked at.
    /// `TreeError::Stored` with what is broken.
    pub(super) fn check_changes(&self, changes: &DeltaChanges) -> Result<(), TreeError> {
        let has_entry = |parent: u64, name: &FileName, inode: u64| {
            self.nodes.get(parent).and_then(|node| node.directory()).is_some_and(|it| it.get(name) == Some(inode))
        };
        let is_left =
            |(parent, name, inode): &EntryLink| has_entry(*parent, name, *inode) && !self.nodes.contains(*inode);
        if changes.removed_names.iter().any(is_left) {
            return Err(TreeError::Stored("an entry leads nowhere"));
        }
        let entries = changes.removed.iter().chain(&changes.set).chain(&changes.removed_names);
        let named = entries.flat_map(|(parent, _, inode)| [*parent, *inode]);
        let all: HashSet<u64> = changes.inodes.iter().copied().chain(named).collect();
        // Kept for all inodes, so that no directory is climbed twice.
        let mut reachable = HashSet::from([ROOT]);
        for inode in all {
            let Some(node) = self.nodes.get(inode) else { continue };
            let names = node.names().count();
            if node.is_nameless() || (node.directory().is_some() && inode != ROOT && names != 1) {
                return Err(TreeError::Stored("an inode has no name, or a directory several"));
            }
            if !node.names().all(|(parent, name)| has_entry(parent, name, inode)) {
                return Err(TreeError::Stored("an inode has a name that is no entry"));
            }
            self.check_reachable(inode, &mut reachable)?;
        }
        Ok(())
    }

    /// Returns whether there is an inode with that number and it is a directory.
    pub(super) fn is_directory(&self, inode: u64) -> bool {
        self.nodes.get(inode).is_some_and(|node| node.directory().is_some())
    }

    /// Counts the directories in a directory.
    pub(super) fn count_subdirectories(&mut self, inode: u64) {
        let Ok(directory) = self.directory(inode) else { return };
        let count = directory.entries.values().filter(|child| self.is_directory(**child)).count() as u32;
        if count != directory.subdirectories {
            change_node(self, inode, |node| {
                if let Body::Directory(directory) = &mut node.body {
                    directory.subdirectories = count;
                }
            });
        }
    }

    /// Checks that an inode is below the root and not in a circle.
    fn check_reachable(&self, inode: u64, reachable: &mut HashSet<u64>) -> Result<(), TreeError> {
        let (mut at, mut way) = (inode, HashSet::new());
        while !reachable.contains(&at) {
            let above = self.nodes.get(at).and_then(|node| node.names().next().map(|(parent, _)| parent));
            match above {
                // Meeting a directory again means a circle, which never reaches the root.
                Some(above) if way.insert(at) => at = above,
                _ => return Err(TreeError::Stored("a directory is not below the root")),
            }
        }
        reachable.extend(way);
        Ok(())
    }
}
