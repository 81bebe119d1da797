//! Inodes without a name, which live for as long as some handle has them open.

use super::links::Links;
use super::node::{Body, Directory, FileNode};
use super::{FileContent, Tree};

impl Tree {
    /// Iterates over the inodes that have no name any longer and are kept for their open handles.
    pub fn orphans(&self) -> impl Iterator<Item = u64> {
        self.orphans.iter().copied()
    }

    /// Removes all orphans: at load, and from a clone that outlives the handles.
    pub fn drop_orphans(&mut self) {
        for inode in std::mem::take(&mut self.orphans) {
            self.remove_nameless(inode);
        }
    }

    /// Takes the place of `old` under open handles: of the inodes in `open`, those that have no
    /// name here live on without one, as they were there. All other orphans go.
    pub fn keep_open_inodes(&mut self, old: &Tree, open: &[u64]) {
        let is_open = |inode: &u64| open.contains(inode);
        let (stay, go) = self.orphans.iter().copied().partition::<Vec<u64>, _>(is_open);
        self.orphans = stay.into_iter().collect();
        go.into_iter().for_each(|inode| self.remove_nameless(inode));
        for inode in open.iter().copied().filter(|inode| !self.nodes.contains(*inode)).collect::<Vec<u64>>() {
            if let Ok(node) = old.node(inode) {
                self.adopt(inode, old.detached(node));
            }
        }
    }

    /// Adds an inode of another tree under its own number, without names and entries.
    fn adopt(&mut self, inode: u64, mut node: FileNode) {
        self.invalidate_hashes();
        // A detached node has the owner of then, which no earlier transfer of this tree may change.
        (node.links, node.epoch) = (Links::None, self.transfers.epoch());
        if let Body::Directory(directory) = &mut node.body {
            *directory = Directory::default();
        }
        if node.content().is_some_and(FileContent::is_unsealed) {
            self.unsealed.insert(inode);
        }
        self.nodes.insert(inode, node.into());
        self.orphans.insert(inode);
    }
}
