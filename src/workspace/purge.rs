//! Taking files out of a tree for good, whatever has them open.

use std::collections::HashSet;

use super::node::Body;
use super::{FileNode, Tree, TreeError};
use crate::object::{Hash, Time};

/// Which files of a tree to remove: all that match one of the three fields.
#[derive(Clone, Debug, Default)]
pub struct PurgedFiles {
    /// The entries at these paths, with all that is below them.
    pub paths: Vec<Vec<u8>>,
    /// Files of these contents.
    pub contents: HashSet<Hash>,
    /// Files that were made at these times, whatever they are called by now.
    pub births: HashSet<Time>,
}

/// A file that was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgedFile {
    /// Where it stood; empty for one without a name.
    pub path: Vec<u8>,
    /// Its hash; `None` for a directory.
    pub hash: Option<Hash>,
    /// The hash of its content, where it is a file that has some.
    pub content: Option<Hash>,
    /// When it was made; `None` for a directory.
    pub birth: Option<Time>,
}

impl FileNode {
    fn is_not_directory(&self) -> bool {
        !matches!(self.body, Body::Directory(_))
    }

    /// Returns the hash of what a file says, where it says something.
    pub fn nonempty_content_hash(&self) -> Option<Hash> {
        if self.size() == 0 { None } else { self.content_hash() }
    }
}

impl Tree {
    /// Returns the inodes of what goes, directories before what is in them; one may be there twice.
    fn purged_inodes(&self, files: &PurgedFiles) -> Vec<u64> {
        let PurgedFiles { paths, contents, births } = files;
        let mut chosen: Vec<u64> = paths.iter().filter_map(|path| self.resolve(path).ok()).collect();
        let mut at = 0;
        while let Some(inode) = chosen.get(at).copied() {
            at += 1;
            let below = self.entries(inode, None).into_iter().flatten().map(|(_, inode)| inode);
            chosen.extend(below);
        }
        if !contents.is_empty() || !births.is_empty() {
            let is_one = |node: &FileNode| births.contains(&node.crtime) && node.is_not_directory();
            let has = |node: &FileNode| {
                is_one(node)
                    || (!contents.is_empty()
                        && node.nonempty_content_hash().is_some_and(|hash| contents.contains(&hash)))
            };
            chosen.extend(self.nodes.iter().filter(|(_, node)| has(node)).map(|(inode, _)| inode));
        }
        chosen
    }

    /// Returns what [`Tree::without_purged`] takes out; one file may be there twice.
    pub fn files_to_purge(&self, files: &PurgedFiles) -> Vec<PurgedFile> {
        let purged_file = |inode: u64| {
            let node = self.nodes.get(inode)?;
            let (path, birth) = (self.path(inode).unwrap_or_default(), node.is_not_directory().then_some(node.crtime));
            Some(PurgedFile { path, hash: node.hash(), content: node.nonempty_content_hash(), birth })
        };
        self.purged_inodes(files).into_iter().filter_map(purged_file).collect()
    }

    /// Returns the tree without what goes, under all its names and open or not; `None` if it has nothing of that.
    /// `files/` itself stays. Costs a look at every node where contents or births are given. `TreeError::Stale` if the
    /// directory of a name is not in the tree; a whole tree has all of them.
    pub fn without_purged(&self, files: &PurgedFiles, time: Time) -> Result<Option<Tree>, TreeError> {
        let chosen = self.purged_inodes(files);
        if chosen.is_empty() {
            return Ok(None);
        }
        let mut tree = self.clone();
        // From the back, since what is in a directory comes behind it: each directory is empty when its turn comes.
        for inode in chosen.into_iter().rev().filter(|inode| *inode != super::ROOT) {
            let Some(node) = tree.nodes.get(inode).cloned() else { continue };
            for (parent, name) in node.names() {
                tree.remove_name(parent, name, inode, time)?;
            }
            tree.orphans.remove(&inode);
            tree.remove_nameless(inode);
        }
        Ok(Some(tree))
    }
}
