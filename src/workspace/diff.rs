//! What differs between two trees by path; it costs what differs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::touched::Touched;
use super::tree::ROOT;
use super::{Name, Node, Tree, Unlike};

/// An inode and its node.
pub type Place = (u64, Arc<Node>);

/// A path at which two trees are not alike.
#[derive(Clone)]
pub struct Difference {
    /// Names joined by `/`; empty for the root.
    pub path: Vec<u8>,
    /// What the older tree has there.
    pub old: Option<Place>,
    /// What the newer tree has there.
    pub new: Option<Place>,
}

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is there now.
    Added,
    /// It is another kind, or has another mode, content, target or user attribute.
    Modified,
    /// It is gone.
    Deleted,
}

/// A path that differs, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Names joined by `/`; empty for the root.
    pub path: Vec<u8>,
    /// How it differs.
    pub kind: ChangeKind,
}

/// A directory of each tree at one path.
struct Pair {
    path: Vec<u8>,
    old: Option<u64>,
    new: Option<u64>,
}

impl Tree {
    /// Returns how a newer tree differs from this one, in bytewise order of paths.
    pub fn changes(&self, newer: &Tree) -> Vec<Change> {
        let kind = |it: &Difference| match (&it.old, &it.new) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
            _ => ChangeKind::Modified,
        };
        let all = self.differences(newer).into_iter();
        all.map(|it| Change { kind: kind(&it), path: it.path }).collect()
    }

    /// Returns every path at which a newer tree differs from this one, with both nodes, in bytewise
    /// order. Like the head it looks at no times, owners and inode numbers; a directory is there when
    /// it differs itself, not for what is in it.
    pub fn differences(&self, newer: &Tree) -> Vec<Difference> {
        let mut found = Vec::new();
        if self.hash() == newer.hash() {
            return found;
        }
        let touched = Touched::between(&self.nodes, &newer.nodes);
        self.compare(newer, Vec::new(), Some(ROOT), Some(ROOT), &mut found);
        let mut pairs = vec![Pair { path: Vec::new(), old: Some(ROOT), new: Some(ROOT) }];
        while let Some(pair) = pairs.pop() {
            for name in self.names(newer, &pair, &touched) {
                let child = |tree: &Tree, parent: Option<u64>| tree.directory(parent?).ok()?.get(&name);
                let (old, new) = (child(self, pair.old), child(newer, pair.new));
                let slash: &[u8] = if pair.path.is_empty() { b"" } else { b"/" };
                let path = [&pair.path, slash, &name].concat();
                pairs.extend(self.compare(newer, path, old, new, &mut found));
            }
        }
        found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        found
    }

    /// Goes through every inode of which a newer tree has another node, whatever differs in it, times
    /// and owners included; orphans count, too. Two nodes may be alike all the same.
    pub fn unlike<'a>(&'a self, newer: &'a Tree) -> impl Iterator<Item = Unlike<'a>> {
        self.nodes.diff(&newer.nodes)
    }

    /// Notes a path where both trees differ; returns the directories below which to go on.
    fn compare(
        &self,
        newer: &Tree,
        path: Vec<u8>,
        old: Option<u64>,
        new: Option<u64>,
        found: &mut Vec<Difference>,
    ) -> Option<Pair> {
        let place =
            |tree: &Tree, inode: Option<u64>| inode.and_then(|inode| Some((inode, tree.node(inode).ok()?.clone())));
        let (before, after) = (place(self, old), place(newer, new));
        let own = |place: &Option<Place>| place.as_ref().map(|(_, node)| node.own_hash());
        let below =
            |place: &Option<Place>| place.as_ref().filter(|(_, node)| node.directory().is_some()).map(|it| it.0);
        let pair = Pair { path: path.clone(), old: below(&before), new: below(&after) };
        if own(&before) != own(&after) {
            found.push(Difference { path, old: before, new: after });
        }
        let hash = |tree: &Tree, inode: Option<u64>| inode.and_then(|inode| tree.hash_of(inode));
        (hash(self, pair.old) != hash(newer, pair.new)).then_some(pair)
    }

    /// Returns the names to look at below a pair of directories.
    fn names(&self, newer: &Tree, pair: &Pair, touched: &Touched) -> BTreeSet<Name> {
        match (pair.old, pair.new) {
            (Some(old), Some(new)) if old == new => touched.names(new).iter().cloned().collect(),
            // Two directories that have nothing to do with each other, or one alone.
            (old, new) => {
                let directories = [old.map(|inode| self.directory(inode)), new.map(|inode| newer.directory(inode))];
                directories.into_iter().flatten().flatten().flat_map(|it| it.entries.keys().cloned()).collect()
            }
        }
    }
}
