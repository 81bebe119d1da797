//! Keeps closed to the reader what a merge brings of files that were closed to them: owner, group and mode come along.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::apply::TreeEditor;
use super::node_change::{NewBody, NodeChange, same_body, user_xattrs};
use super::{GuardScope, Side};
use crate::workspace::{Attrs, FileKind, FileName, FileNode, FileOp, TreeError};

/// Bits with which a program runs with the rights of its owner or its group.
const SET_ID_BITS: u32 = 0o6000;

impl TreeEditor<'_, '_> {
    /// Returns the child's file where a change takes something of it and it is closed to the reader.
    pub(super) fn closed_source(&self, change: &NodeChange) -> Option<Arc<FileNode>> {
        let guard = self.guard?;
        if change.xattrs.is_none() && matches!(change.body, NewBody::Keep) {
            return None;
        }
        let node = self.child_node(change.id)?;
        guard.shuts_out(self.resolver.trees.child, &node).then_some(node)
    }

    /// Puts a copy of the child's file in the place of one that the reader may have open, so that no handle shows them the
    /// content that comes; returns the inode to change. One that was closed to them stays the same file.
    pub(super) fn renew(&mut self, change: &NodeChange, inode: u64) -> Result<u64, TreeError> {
        let node = self.tree.node(inode)?;
        let is_closed = self.guard.is_none_or(|guard| guard.shuts_out(&self.tree, node));
        if is_closed || matches!(change.body, NewBody::Keep) {
            return Ok(inode);
        }
        let names: Vec<(u64, FileName)> = node.names().map(|(directory, name)| (directory, name.clone())).collect();
        let mut made = None;
        for (parent, name) in names {
            self.apply(FileOp::Unlink { parent, name: name.clone(), keep: true })?;
            match made {
                None => made = self.graft(change.id, parent, &name)?,
                Some(inode) => drop(self.apply(FileOp::Link { inode, parent, name })?),
            }
        }
        Ok(made.unwrap_or(inode))
    }

    /// Gives a file owner, group and mode of the closed one that something of it comes from. Where only a part does, it
    /// runs with nobody's rights, as after a write.
    pub(super) fn take_protection(
        &mut self,
        change: &NodeChange,
        inode: u64,
        source: &FileNode,
    ) -> Result<(), TreeError> {
        let is_whole = matches!(change.body, NewBody::Child) || source.kind() == FileKind::Directory;
        let mode = if is_whole { source.mode } else { source.mode & !SET_ID_BITS };
        self.protect(inode, self.resolver.trees.child.owner(source), source.gid, mode)
    }

    fn protect(&mut self, inode: u64, uid: u32, gid: u32, mode: u32) -> Result<(), TreeError> {
        let node = self.tree.node(inode)?;
        if (self.tree.owner(node), node.gid, node.mode) == (uid, gid, mode) {
            return Ok(());
        }
        let attrs = Attrs { mode: Some(mode), uid: Some(uid), gid: Some(gid), ..Attrs::default() };
        self.apply(FileOp::SetAttr { inode, attrs }).map(drop)
    }

    /// Leaves out of the changes what would open to the reader a file whose content is not the one that the mode was for:
    /// the parent has that closed, and it stays so. It is decided for the parent, and told as a conflict.
    pub(super) fn keep_closed(&mut self, changes: &mut [NodeChange]) {
        let Some(guard) = self.guard else { return };
        for change in changes.iter_mut().filter(|change| !change.is_new && change.mode.is_some()) {
            let parent = self.resolver.trees.parent;
            let inode = self.resolver.trees.parent_inode(change.id);
            let Some(own) = inode.and_then(|inode| parent.node(inode).ok()) else { continue };
            let opens = change.mode.is_some_and(|mode| mode & !own.mode != 0);
            let is_file = own.kind() != FileKind::Directory;
            if opens && is_file && guard.shuts_out(parent, own) && !self.is_taken_whole(change, own) {
                change.mode = None;
                let decision = self.resolver.item(change.id).to_decision(Some(Side::Parent));
                self.resolver.record_decision(decision);
            }
        }
    }

    /// Returns whether a file of the parent becomes in all that can be read of it what the child's is.
    fn is_taken_whole(&self, change: &NodeChange, own: &FileNode) -> bool {
        let Some(child) = self.child_node(change.id) else { return false };
        let same_content = match change.body {
            NewBody::Keep => same_body(own, &child),
            NewBody::Child => true,
            NewBody::Merged(_) => false,
        };
        let user_attributes = |node: &FileNode| -> BTreeMap<Vec<u8>, Vec<u8>> {
            user_xattrs(node).map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
        };
        let mut after = change.xattrs.clone().unwrap_or_else(|| user_attributes(own));
        after.retain(|name, _| name.starts_with(b"user."));
        same_content && after == user_attributes(&child)
    }

    /// Gives a file back to the reader that a revert or rollback makes again what it was while it was theirs.
    pub(super) fn give_back(&mut self, change: &NodeChange, inode: u64, before: &FileNode) -> Result<(), TreeError> {
        let Some(guard) = self.guard.filter(|guard| guard.scope == GuardScope::EarlierFiles) else { return Ok(()) };
        let Some(child) = self.child_node(change.id).filter(|child| child.kind() != FileKind::Directory) else {
            return Ok(());
        };
        let was_theirs = self.resolver.trees.child.owner(&child) == guard.uid;
        if was_theirs && guard.shuts_out(self.resolver.trees.parent, before) && self.is_taken_whole(change, before) {
            let mode = self.tree.node(inode)?.mode;
            self.protect(inode, guard.uid, child.gid, mode)?;
        }
        Ok(())
    }
}
