//! Files that the child alone changed, where they stand: most of what most merges take over, and
//! there is nothing to decide.

use std::collections::HashMap;
use std::sync::Arc;

use super::Rules;
use super::conflict_policy::ConflictPolicy;
use super::node_change::{NewBody, NodeChange, same_body};
use super::node_map::{NodeId, NodeMap};
use crate::workspace::{FileNode, TreeDifference};

/// Tells such files from all others.
pub(super) struct OneSidedFinder<'a, 'b> {
    trees: &'b NodeMap<'a>,
    rules: &'b Rules,
    /// Directories that were looked at: whether they are the same on all sides, at the same path.
    directories: HashMap<u64, bool>,
}

impl<'a, 'b> OneSidedFinder<'a, 'b> {
    /// Begins with no directory looked at.
    pub(super) fn new(trees: &'b NodeMap<'a>, rules: &'b Rules) -> OneSidedFinder<'a, 'b> {
        OneSidedFinder { trees, rules, directories: HashMap::new() }
    }

    /// Returns what becomes of a file that has one name, the same on all sides, and that the parent
    /// has as the base had it; the inner none where nothing becomes of it. It is what a decision
    /// between all sides would give.
    pub(super) fn change(&mut self, difference: &TreeDifference) -> Option<Option<NodeChange>> {
        let ((inode, old), (number, new)) = (difference.old.as_ref()?, difference.new.as_ref()?);
        // No directory is among them: each has two links at least.
        let has_one_link = |node: &FileNode| node.nlink() == 1;
        // The number alone does not tell: another file may have it in the other tree. No two files share a birth.
        let stayed = inode == number && old.crtime == new.crtime && has_one_link(old) && has_one_link(new);
        if !stayed || !old.names().eq(new.names()) || !Arc::ptr_eq(self.trees.parent.node(*inode).ok()?, old) {
            return None;
        }
        if !self.is_in_place(old.names().next()?.0) {
            return None;
        }
        if self.rules.rule_for(&difference.path).kind.never_merges() {
            return Some(None);
        }
        let body = if same_body(old, new) { NewBody::Keep } else { NewBody::Child };
        let xattrs = ConflictPolicy::none().xattrs(Some(old), new, old);
        let mode = Some(new.mode).filter(|mode| *mode != old.mode);
        Some(Some(NodeChange { body, mode, xattrs, ..NodeChange::empty(NodeId::Base(*inode)) }))
    }

    /// Returns whether a directory is the same on all sides, at the same path.
    fn is_in_place(&mut self, directory: u64) -> bool {
        *self.directories.entry(directory).or_insert_with(|| self.trees.is_in_place(directory))
    }
}
