//! What differs between two versions of a unit, by the names in it, wherever the unit is.

use std::collections::BTreeMap;

use super::node_change::{same_body, user_xattrs};
use super::unit::{UnitFinder, UnitLayout, UnitRoot};
use crate::workspace::{FileNode, Tree};

/// A member that two versions of a unit have differently, or that one of them lacks.
pub(super) struct MemberDifference {
    /// Its inode in the old version, if it is there.
    pub old: Option<u64>,
    /// The same in the new one.
    pub new: Option<u64>,
    /// Whether it tells a change; what a database makes anew at its opening does not.
    pub is_relevant: bool,
    /// Whether both versions hold the same, with the same attributes, under another mode.
    pub is_of_mode_alone: bool,
}

/// A unit in one tree; without a root it is not there.
pub(super) type UnitVersion<'a, 'b> = (&'b UnitFinder<'a>, Option<UnitRoot>);

/// Returns every member that differs between two versions of a unit. It costs what the directories hold that differ.
pub(super) fn diff_members(old: UnitVersion<'_, '_>, new: UnitVersion<'_, '_>) -> Vec<MemberDifference> {
    let parts =
        |(finder, root): UnitVersion<'_, '_>| root.map(|root| finder.members_at_root(&root)).unwrap_or_default();
    let layout = old.1.or(new.1).map_or(UnitLayout::Companions, |root| root.layout);
    let is_irrelevant = |(finder, _): UnitVersion<'_, '_>, inode: Option<u64>| {
        inode.is_none_or(|inode| finder.is_irrelevant(layout, inode))
    };
    let mut found = Vec::new();
    let mut todo: Vec<_> = pair_by_name(parts(old), parts(new)).collect();
    while let Some((name, [before, after])) = todo.pop() {
        let hash = |tree: &Tree, inode: Option<u64>| inode.and_then(|inode| tree.node_hash(inode));
        // The hash of a directory covers all that is below it, so that equal subtrees are not entered.
        if hash(old.0.tree, before) == hash(new.0.tree, after) {
            continue;
        }
        let node = |tree: &Tree, inode: Option<u64>| inode.and_then(|inode| tree.node(inode).ok()).cloned();
        let (one, other) = (node(old.0.tree, before), node(new.0.tree, after));
        let (one, other) = (one.as_deref(), other.as_deref());
        if !is_same_node(one, other) {
            // The root has no name here, and always counts.
            let is_relevant = name.is_empty() || !(is_irrelevant(old, before) && is_irrelevant(new, after));
            let is_of_mode_alone = one.zip(other).is_some_and(|(one, other)| holds_same(one, other));
            found.push(MemberDifference { old: before, new: after, is_relevant, is_of_mode_alone });
        }
        let inside = |(finder, root): UnitVersion<'_, '_>, inode: Option<u64>| -> Vec<(Vec<u8>, u64)> {
            let (Some(root), Some(inode)) = (root, inode) else { return Vec::new() };
            let Ok(entries) = finder.tree.entries(inode, None) else { return Vec::new() };
            let own = entries.filter(|(_, inode)| finder.is_member(&root, *inode));
            own.map(|(entry, inode)| ([&name[..], b"/", entry].concat(), inode)).collect()
        };
        todo.extend(pair_by_name(inside(old, before), inside(new, after)));
    }
    found
}

/// Brings what two sides have under one name together.
fn pair_by_name(
    old: Vec<(Vec<u8>, u64)>,
    new: Vec<(Vec<u8>, u64)>,
) -> impl Iterator<Item = (Vec<u8>, [Option<u64>; 2])> {
    let mut all: BTreeMap<Vec<u8>, [Option<u64>; 2]> = BTreeMap::new();
    for (side, list) in [old, new].into_iter().enumerate() {
        list.into_iter().for_each(|(name, inode)| all.entry(name).or_default()[side] = Some(inode));
    }
    all.into_iter()
}

/// Returns whether two nodes are alike, whatever is in them where they are directories.
fn is_same_node(one: Option<&FileNode>, other: Option<&FileNode>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.mode == other.mode && holds_same(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn holds_same(one: &FileNode, other: &FileNode) -> bool {
    same_body(one, other) && user_xattrs(one).eq(user_xattrs(other))
}
