//! What differs between two trees by path; it costs what differs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::touched::TouchedNames;
use super::tree::ROOT;
use super::{ChangedNode, Directory, FileName, FileNode, Tree, TreeTotals};
use crate::object::Hash;

/// An inode and its node.
pub type InodeNode = (u64, Arc<FileNode>);

/// A path at which two trees are not alike.
#[derive(Clone)]
pub struct TreeDifference {
    /// Names joined by `/`; empty for the root.
    pub path: Vec<u8>,
    /// What the older tree has there; `None` where it has nothing.
    pub old: Option<InodeNode>,
    /// What the newer tree has there; `None` where it has nothing.
    pub new: Option<InodeNode>,
}

impl TreeDifference {
    /// Returns whether there is nothing but a directory on both sides.
    pub fn has_only_directories(&self) -> bool {
        [&self.old, &self.new].into_iter().flatten().all(|(_, node)| node.directory().is_some())
    }

    /// Returns the hashes of both nodes: of kind, mode, content and user attributes, not of what is in a directory.
    pub fn hashes(&self) -> [Option<Hash>; 2] {
        [&self.old, &self.new].map(|there| there.as_ref().map(|(_, node)| node.hash_without_entries()))
    }

    /// Returns how the path differs.
    pub fn kind(&self) -> ChangeKind {
        match (&self.old, &self.new) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
            _ => ChangeKind::Modified,
        }
    }

    /// Returns whether everybody could list the path in each of the two trees that has it, whoever owns what is above it.
    pub fn is_listed_by_everybody(&self, [older, newer]: [&Tree; 2]) -> bool {
        let end = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
        let above = &self.path[..end];
        let is_listed = |tree: &Tree, there: &Option<InodeNode>| there.is_none() || tree.is_open_down_to(above);
        self.path.is_empty() || is_listed(older, &self.old) && is_listed(newer, &self.new)
    }

    /// Returns whether a third tree has at the path what the newer one has there.
    pub fn is_new_in(&self, tree: &Tree) -> bool {
        let there = tree.resolve(&self.path).ok().and_then(|inode| tree.node(inode).ok());
        there.map(|node| node.hash_without_entries()) == self.new.as_ref().map(|(_, node)| node.hash_without_entries())
    }

    /// Returns whether a directory is at the path, or was where nothing is now.
    pub fn is_directory(&self) -> bool {
        let seen = self.new.as_ref().or(self.old.as_ref());
        seen.is_some_and(|(_, node)| node.directory().is_some())
    }
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
pub struct PathChange {
    /// Names joined by `/`; empty for the root.
    pub path: Vec<u8>,
    /// How it differs.
    pub kind: ChangeKind,
}

/// A directory of each tree at one path.
struct TreePair {
    path: Vec<u8>,
    old: Option<u64>,
    new: Option<u64>,
}

impl Tree {
    /// Returns how a newer tree differs from this one, in bytewise order of paths.
    pub fn changes(&self, newer: &Tree) -> Vec<PathChange> {
        let all = self.differences(newer).into_iter();
        all.map(|it| PathChange { kind: it.kind(), path: it.path }).collect()
    }

    /// Returns whether the directory at a path, and all above it, are open to others than their owners.
    fn is_open_down_to(&self, path: &[u8]) -> bool {
        let is_open = |inode: u64| self.node(inode).is_ok_and(|node| node.is_open_to_others());
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let below = |inode: u64, name: &[u8]| if is_open(inode) { self.lookup(inode, name).ok() } else { None };
        names.try_fold(ROOT, below).is_some_and(is_open)
    }

    /// Returns every path at which a newer tree differs from this one, with both nodes, in bytewise
    /// order. Like the head it looks at no times, owners and inode numbers; a directory is there when
    /// it differs itself, not for what is in it.
    pub fn differences(&self, newer: &Tree) -> Vec<TreeDifference> {
        self.differences_at_most(newer, usize::MAX).unwrap_or_default()
    }

    /// The same, or `None` if more than `limit` paths differ; it then costs no more than `limit` do.
    pub fn differences_at_most(&self, newer: &Tree, limit: usize) -> Option<Vec<TreeDifference>> {
        let mut found = Vec::new();
        // Heads are mostly known, so that equal trees cost nothing, whatever they hold.
        if self.hash() == newer.hash() {
            return Some(found);
        }
        // Directories are touched with what is in them, so there may be more inodes than paths.
        if !self.has_changed_at_most(newer, limit.saturating_mul(4)) {
            return None;
        }
        let touched = TouchedNames::diff(&self.nodes, &newer.nodes);
        let mut pairs = Vec::from_iter(self.compare(newer, Vec::new(), (Some(ROOT), Some(ROOT)), &mut found));
        while let Some(pair) = pairs.pop() {
            let before = pair.old.and_then(|inode| self.directory(inode).ok());
            let after = pair.new.and_then(|inode| newer.directory(inode).ok());
            for name in names(&pair, (before, after), &touched) {
                let child = |directory: Option<&Directory>| directory.and_then(|directory| directory.get(name));
                let slash: &[u8] = if pair.path.is_empty() { b"" } else { b"/" };
                let path = [&pair.path, slash, name].concat();
                pairs.extend(self.compare(newer, path, (child(before), child(after)), &mut found));
            }
            if found.len() > limit {
                return None;
            }
        }
        found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Some(found)
    }

    /// Returns at how many paths a newer tree differs where this one holds nothing, without a look at each. `None` if
    /// it holds something.
    pub fn differences_from_empty(&self, newer: &Tree) -> Option<u64> {
        let root = |tree: &Tree| tree.node(ROOT).ok().map(|node| node.hash_without_entries());
        let TreeTotals { files, directories, hard_links, .. } = newer.totals();
        let differs = u64::from(root(self) != root(newer));
        (self.totals() == TreeTotals::default()).then(|| files + directories + hard_links + differs)
    }

    /// Returns whether a newer tree has another node for at most `limit` inodes.
    pub fn has_changed_at_most(&self, newer: &Tree, limit: usize) -> bool {
        limit == usize::MAX || self.changed_nodes(newer).take(limit.saturating_add(1)).count() <= limit
    }

    /// Goes through every inode of which a newer tree has another node, whatever differs in it, times
    /// and owners included; orphans count, too. Two nodes may be alike all the same.
    pub fn changed_nodes<'a>(&'a self, newer: &'a Tree) -> impl Iterator<Item = ChangedNode<'a>> {
        self.nodes.diff(&newer.nodes)
    }

    /// Notes a path where both trees differ; returns the directories below which to go on.
    fn compare(
        &self,
        newer: &Tree,
        path: Vec<u8>,
        (old, new): (Option<u64>, Option<u64>),
        found: &mut Vec<TreeDifference>,
    ) -> Option<TreePair> {
        let before = old.and_then(|inode| self.node(inode).ok());
        let after = new.and_then(|inode| newer.node(inode).ok());
        let below = |inode: Option<u64>, node: Option<&Arc<FileNode>>| {
            inode.filter(|_| node.is_some_and(|node| node.directory().is_some()))
        };
        let (old_below, new_below) = (below(old, before), below(new, after));
        let hash = |tree: &Tree, inode: Option<u64>| inode.and_then(|inode| tree.node_hash(inode));
        // A directory's hash covers all that is in it, so below equal ones nothing has to be looked at.
        let goes_on = hash(self, old_below) != hash(newer, new_below);
        let pair = goes_on.then(|| TreePair { path: path.clone(), old: old_below, new: new_below });
        if before.map(|node| node.hash_without_entries()) != after.map(|node| node.hash_without_entries()) {
            let place = |inode: Option<u64>, node: Option<&Arc<FileNode>>| inode.zip(node.cloned());
            found.push(TreeDifference { path, old: place(old, before), new: place(new, after) });
        }
        pair
    }
}

/// Returns the names to look at below a pair of directories.
fn names<'a>(
    pair: &TreePair,
    (old, new): (Option<&'a Directory>, Option<&'a Directory>),
    touched: &'a TouchedNames,
) -> Vec<&'a FileName> {
    match pair.new.filter(|new| pair.old == Some(*new)) {
        // One directory on both sides: names whose entries and nodes both trees share can't differ, so only the others
        // are met.
        Some(inode) => touched.names(inode).iter().collect(),
        // Different inodes at the path, or only one: every name on either side may differ.
        None => {
            let all = [old, new].into_iter().flatten().flat_map(|directory| directory.entries.keys());
            all.collect::<BTreeSet<&FileName>>().into_iter().collect()
        }
    }
}
