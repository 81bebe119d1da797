//! How the conflicts of one file are decided, and what follows for its attributes and names.

use std::collections::{BTreeMap, BTreeSet};

use super::node_change::{NodeChange, NodeVersion, user_xattrs};
use super::node_map::DirEntryKey;
use super::{Side, Strategy};
use crate::object::Time;
use crate::workspace::FileNode;

/// How conflicts of one file are decided: its names, mode, attributes and content by one strategy and the same times.
pub(super) struct ConflictPolicy {
    /// The rule's own or else the branch's; where a person has chosen a side, that one.
    pub strategy: Strategy,
    /// When the child changed it, when the parent did.
    pub times: [Time; 2],
    /// What was decided so far: `Both` while there was no conflict, none once one waits.
    pub decision: Option<Side>,
}

impl ConflictPolicy {
    /// One for what no side contradicts: it is never asked.
    pub(super) fn none() -> ConflictPolicy {
        ConflictPolicy { strategy: Strategy::Manual, times: [Time::default(); 2], decision: Some(Side::Both) }
    }

    /// Returns the side that a conflict is decided for; `None` if a person decides.
    pub(super) fn winner(&self) -> Option<Side> {
        let [child, parent] = self.times;
        self.strategy.winner(child, parent)
    }

    /// Takes a decision into the file's: one that waits outdoes all, one for a side outdoes `Both`.
    pub(super) fn note(&mut self, decision: Option<Side>) {
        if self.decision.is_some() && decision != Some(Side::Both) {
            self.decision = decision;
        }
    }

    /// Decides which of two things is taken of which the base's is a third, and notes how a conflict was decided; returns whether
    /// it is the child's.
    pub(super) fn decide_for_child<T: PartialEq>(&mut self, base: Option<T>, child: T, parent: T) -> bool {
        if child == parent || base.as_ref() == Some(&child) {
            return false;
        }
        if base.as_ref() == Some(&parent) {
            return true;
        }
        let winner = self.winner();
        self.note(winner);
        winner == Some(Side::Child)
    }

    /// Returns the attributes to have, if the child gives some; all but the user's stay the parent's.
    pub(super) fn xattrs(
        &mut self,
        base: Option<&FileNode>,
        child: &FileNode,
        parent: &FileNode,
    ) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
        // A name that only the base has was removed by both sides, and nothing is left to decide.
        let all: BTreeSet<&[u8]> = user_xattrs(child).chain(user_xattrs(parent)).map(|(name, _)| name).collect();
        let mut taken = Vec::new();
        for name in all {
            let value = |node: &FileNode| node.xattr(name).map(<[u8]>::to_vec);
            if self.decide_for_child(Some(base.and_then(value)), value(child), value(parent)) {
                taken.push((name.to_vec(), value(child)));
            }
        }
        if taken.is_empty() {
            return None;
        }
        // All of the parent's, so that those that are not the user's, such as capabilities, stay as they are.
        let own = parent.xattrs().map(|(name, value)| (name.to_vec(), value.to_vec()));
        let mut result: BTreeMap<Vec<u8>, Vec<u8>> = own.collect();
        for (name, value) in taken {
            match value {
                Some(value) => drop(result.insert(name, value)),
                None => drop(result.remove(&name)),
            }
        }
        Some(result)
    }
}

/// Merges the places: what either side added or took away, unless both moved the same name or
/// nothing would be left; then one side's places count.
pub(super) fn merge_names(
    change: &mut NodeChange,
    base: Option<&NodeVersion>,
    child: &NodeVersion,
    parent: &NodeVersion,
    policy: &mut ConflictPolicy,
) {
    let none = BTreeSet::new();
    let (base, child, parent) = (base.map_or(&none, |base| &base.places), &child.places, &parent.places);
    if child == parent || child == base {
        return;
    }
    let gone = |side: &BTreeSet<DirEntryKey>| -> BTreeSet<DirEntryKey> { base.difference(side).cloned().collect() };
    let (gone_child, gone_parent) = (gone(child), gone(parent));
    let mut wanted: BTreeSet<DirEntryKey> = parent.difference(&gone_child).cloned().collect();
    wanted.extend(child.difference(base).cloned());
    // Both took the same name away: with the additions of both, a file that each side moved would have two names.
    if !gone_child.is_disjoint(&gone_parent) || wanted.is_empty() {
        wanted = if policy.decide_for_child(None, child, parent) { child.clone() } else { parent.clone() };
    }
    change.remove = parent.difference(&wanted).cloned().collect();
    change.add = wanted.difference(parent).cloned().collect();
}
