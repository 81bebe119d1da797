//! Which entries of which directories two trees do not have alike, found from what they do not share.

use std::collections::{HashMap, HashSet};

use super::node::FileNode;
use super::nodes::Nodes;
use super::{FileKind, FileName};

/// Names by the directory they are in, each once and in order.
#[derive(Default)]
pub(super) struct TouchedNames(HashMap<u64, Vec<FileName>>);

impl TouchedNames {
    /// Looks at everything that two trees do not share.
    ///
    /// An entry that differs belongs to an inode whose names differ, so the inodes are all there is
    /// to look at. Every directory above a touched one is touched, too, in both trees.
    pub fn diff(old: &Nodes, new: &Nodes) -> TouchedNames {
        let mut touched = TouchedNames::default();
        for changed in old.diff(new) {
            match (changed.old, changed.new) {
                (Some(old), Some(new)) => touched.update(changed.inode, old, new),
                (old, new) => old.into_iter().chain(new).for_each(|node| touched.touch_node(changed.inode, node)),
            }
        }
        let directories: Vec<u64> = touched.directories().collect();
        for nodes in [old, new] {
            let mut visited = HashSet::new();
            directories.iter().for_each(|directory| touched.touch_ancestors(*directory, nodes, &mut visited));
        }
        for names in touched.0.values_mut() {
            names.sort_unstable();
            names.dedup();
        }
        touched
    }

    /// Iterates over the touched directories, in no order.
    pub fn directories(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    /// Returns the touched names in a directory, in order; none if nothing in it was touched.
    pub fn names(&self, directory: u64) -> &[FileName] {
        self.0.get(&directory).map(Vec::as_slice).unwrap_or_default()
    }

    fn update(&mut self, inode: u64, old: &FileNode, new: &FileNode) {
        // Times and owners are in no hash, so only these changes touch it.
        if old.links != new.links || old.kind() != new.kind() {
            self.touch_node(inode, old);
            self.touch_node(inode, new);
        } else if old.hash_without_entries() != new.hash_without_entries() {
            self.touch_node(inode, new);
        }
    }

    fn touch_node(&mut self, inode: u64, node: &FileNode) {
        if node.kind() == FileKind::Directory {
            self.0.entry(inode).or_default();
        }
        for (parent, name) in node.names() {
            self.0.entry(parent).or_default().push(name.clone());
        }
    }

    /// Touches the entries that lead to a directory, from the root down.
    fn touch_ancestors(&mut self, directory: u64, nodes: &Nodes, visited: &mut HashSet<u64>) {
        let mut at = directory;
        while visited.insert(at)
            && let Some((parent, name)) = nodes.get(at).and_then(|node| node.names().next())
        {
            self.0.entry(parent).or_default().push(name.clone());
            at = parent;
        }
    }
}
