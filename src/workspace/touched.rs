//! Which entries of which directories two trees do not have alike, found from what they do not share.

use std::collections::{BTreeSet, HashMap};

use imbl::ordmap::DiffItem;

use super::node::Node;
use super::tree::Nodes;
use super::{Kind, Name};

/// Names by the directory they are in.
#[derive(Default)]
pub(super) struct Touched(pub HashMap<u64, BTreeSet<Name>>);

impl Touched {
    /// Looks at everything that two trees do not share.
    ///
    /// An entry that differs belongs to an inode whose names differ, so the inodes are all there is
    /// to look at. Every directory above a touched one is touched, too, in both trees.
    pub fn between(old: &Nodes, new: &Nodes) -> Touched {
        let mut touched = Touched::default();
        for item in old.diff(new) {
            match item {
                DiffItem::Add(inode, node) | DiffItem::Remove(inode, node) => touched.node(*inode, node),
                DiffItem::Update { old: (inode, old), new: (_, new) } => touched.update(*inode, old, new),
            }
        }
        let directories: Vec<u64> = touched.0.keys().copied().collect();
        for nodes in [old, new] {
            directories.iter().for_each(|directory| touched.above(*directory, nodes));
        }
        touched
    }

    fn update(&mut self, inode: u64, old: &Node, new: &Node) {
        // Times and owners do not count.
        if old.links != new.links || old.kind() != new.kind() || old.own_hash() != new.own_hash() {
            if old.links != new.links || old.kind() != new.kind() {
                self.node(inode, old);
            }
            self.node(inode, new);
        }
    }

    fn node(&mut self, inode: u64, node: &Node) {
        if node.kind() == Kind::Directory {
            self.0.entry(inode).or_default();
        }
        for (parent, name) in node.names() {
            self.0.entry(parent).or_default().insert(name.clone());
        }
    }

    /// Touches the entries that lead to a directory, from the root down.
    fn above(&mut self, directory: u64, nodes: &Nodes) {
        let mut at = directory;
        while let Some((parent, name)) = nodes.get(&at).and_then(|node| node.0.names().next()) {
            if !self.0.entry(parent).or_default().insert(name.clone()) {
                break;
            }
            at = parent;
        }
    }
}
