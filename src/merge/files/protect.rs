//! Keeps closed to the reader what a merge brings of files that were closed to them: owner, group and mode come along.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::apply::TreeEditor;
use super::node_change::{NewBody, NodeChange, same_body, user_xattrs};
use super::node_map::NodeId;
use super::reader_guard::directories_upwards;
use super::{GuardScope, ReaderGuard, Side};
use crate::workspace::{Attrs, FileKind, FileName, FileNode, FileOp, Tree, TreeError};

/// Bits with which a program runs with the rights of its owner or its group.
pub(super) const SET_ID_BITS: u32 = 0o6000;
/// The attribute with which a program has rights of root.
const CAPABILITIES: &[u8] = b"security.capability";
/// What is left of a mode that is for the owner alone; nothing runs with their rights.
pub(super) const OWNER_BITS: u32 = 0o1700;

impl TreeEditor<'_, '_> {
    /// Returns whom the result must show nothing of the child's that is closed to them: nobody where it is not their branch's.
    pub(super) fn receiving_guard(&self) -> Option<ReaderGuard> {
        self.guard.filter(|guard| guard.scope != GuardScope::Plan)
    }

    /// Returns the child's file where a change takes something of it and it is closed to the reader.
    pub(super) fn closed_source(&self, change: &NodeChange) -> Option<Arc<FileNode>> {
        let guard = self.receiving_guard()?;
        if change.xattrs.is_none() && matches!(change.body, NewBody::Keep) {
            return None;
        }
        let node = self.child_node(change.id)?;
        guard.shuts_out(self.resolver.trees.child, &node).then_some(node)
    }

    /// Puts a copy of the child's file in the place of one that the reader may have open, so that no handle shows them
    /// the content that comes where they could not get at that; returns the inode to change. A file that this merge
    /// closes is renewed at once, so that one which was closed to them, and is as it came, can stay the same file.
    /// Fails like [`TreeEditor::apply`].
    pub(super) fn renew(&mut self, change: &NodeChange, inode: u64) -> Result<u64, TreeError> {
        let (Some(guard), Some(source)) = (self.receiving_guard(), self.child_node(change.id)) else {
            return Ok(inode);
        };
        let (giver, node) = (self.resolver.trees.child, self.tree.node(inode)?);
        if node.kind() == FileKind::Directory {
            return Ok(inode);
        }
        let is_closed = guard.shuts_out(&self.tree, node);
        let may_stay = match change.body {
            // What else it holds came from no closed file, and is renewed with the next content.
            NewBody::Keep => is_closed || !same_body(node, &source) || !self.closes(change, node, guard),
            NewBody::Child | NewBody::Merged(_) => {
                let comes_closed = guard.shuts_out(giver, &source) || guard.is_out_of_reach(giver, &source);
                !comes_closed || is_closed && self.is_as_it_came(change.id, node)
            }
        };
        if may_stay { Ok(inode) } else { self.replace_by_copy(change.id, inode) }
    }

    /// Returns whether a change closes a file to the reader, whatever becomes of its content.
    fn closes(&self, change: &NodeChange, node: &FileNode, guard: ReaderGuard) -> bool {
        let closes_by_mode = |mode: u32| {
            let mut after = FileNode::clone(node);
            after.mode = mode;
            self.tree.owner(node) != guard.uid && !after.is_open_to_others()
        };
        self.closed_source(change).is_some() || change.mode.is_some_and(closes_by_mode)
    }

    /// Returns whether a file holds what it was last brought, and nobody has written to it since.
    fn is_as_it_came(&self, id: NodeId, node: &FileNode) -> bool {
        let trees = &self.resolver.trees;
        let base = trees.base_inode(id).and_then(|inode| trees.base.node(inode).ok());
        base.is_some_and(|base| same_body(base, node) && base.written == node.written)
    }

    /// Puts a copy of the child's file in the place of one, under all its names; returns its inode.
    fn replace_by_copy(&mut self, id: NodeId, inode: u64) -> Result<u64, TreeError> {
        let node = self.tree.node(inode)?;
        let names: Vec<(u64, FileName)> = node.names().map(|(directory, name)| (directory, name.clone())).collect();
        let mut made = None;
        for (parent, name) in names {
            self.apply(FileOp::Unlink { parent, name: name.clone(), keep: true })?;
            match made {
                None => made = self.graft(id, parent, &name)?,
                Some(inode) => drop(self.apply(FileOp::Link { inode, parent, name })?),
            }
        }
        Ok(made.unwrap_or(inode))
    }

    /// Gives a file owner, group and mode of the closed one that something of it comes from. Where only a part does, it
    /// runs with nobody's rights, as after a write. Fails like [`TreeEditor::apply`].
    pub(super) fn take_protection(
        &mut self,
        change: &NodeChange,
        inode: u64,
        source: &FileNode,
    ) -> Result<(), TreeError> {
        let is_whole = matches!(change.body, NewBody::Child) || source.kind() == FileKind::Directory;
        let (own, uid) = (self.tree.node(inode)?, self.resolver.trees.child.owner(source));
        // An attribute alone changes nothing of what a program does.
        let keeps_set_id = is_whole || matches!(change.body, NewBody::Keep) && self.tree.owner(own) == uid;
        let mode = if keeps_set_id { source.mode } else { source.mode & !SET_ID_BITS };
        self.protect(inode, uid, source.gid, mode)
    }

    /// Gives a file that took the place of another one what the merge makes of that one's owner, group and mode. Fails
    /// like [`TreeEditor::apply`].
    pub(super) fn keep_protection(
        &mut self,
        change: &NodeChange,
        inode: u64,
        before: &FileNode,
    ) -> Result<(), TreeError> {
        let uid = self.resolver.trees.parent.owner(before);
        self.protect(inode, uid, before.gid, change.mode.unwrap_or(before.mode))
    }

    /// Gives a file or directory owner, group and mode, where it has others. Fails like [`TreeEditor::apply`].
    pub(super) fn protect(&mut self, inode: u64, uid: u32, gid: u32, mode: u32) -> Result<(), TreeError> {
        let node = self.tree.node(inode)?;
        if (self.tree.owner(node), node.gid, node.mode) == (uid, gid, mode) {
            return Ok(());
        }
        let attrs = Attrs { mode: Some(mode), uid: Some(uid), gid: Some(gid), ..Attrs::default() };
        self.apply(FileOp::SetAttr { inode, attrs }).map(drop)
    }

    /// Takes from somebody else's file the bits and capabilities with which it runs with other rights than those of who
    /// runs it, once it has content of the branch that is merged: a write by the branch's owner would do the same.
    /// Fails like [`TreeEditor::apply`].
    pub(super) fn drop_set_id(&mut self, change: &NodeChange, inode: u64) -> Result<(), TreeError> {
        let Some(guard) = self.guard.filter(|guard| guard.scope == GuardScope::Plan) else { return Ok(()) };
        let node = self.tree.node(inode)?;
        let has_new_content = !matches!(change.body, NewBody::Keep) && node.kind() != FileKind::Directory;
        if !has_new_content || self.tree.owner(node) == guard.uid {
            return Ok(());
        }
        let (mode, has_capabilities) = (node.mode, node.xattr(CAPABILITIES).is_some());
        if has_capabilities {
            self.apply(FileOp::RemoveXattr { inode, name: CAPABILITIES.to_vec() })?;
        }
        if mode & SET_ID_BITS != 0 {
            let attrs = Attrs { mode: Some(mode & !SET_ID_BITS), ..Attrs::default() };
            self.apply(FileOp::SetAttr { inode, attrs })?;
        }
        Ok(())
    }

    /// Leaves out of the changes what would open to the reader a file that the parent has closed: a mode that was for other
    /// content, or that the reader gave a file of their own, and a place outside of a closed directory. What the parent of a
    /// branch that pulls did, opens. That is decided for the parent, and told as a conflict.
    pub(super) fn keep_closed(&mut self, changes: &mut [NodeChange]) {
        let Some(guard) = self.guard else { return };
        for change in changes.iter_mut() {
            if change.mode.is_some() && self.has_mode_of_pull(change, guard) {
                change.mode = None;
            }
            if change.is_new || change.mode.is_none() && change.add.is_empty() {
                continue;
            }
            let parent = self.resolver.trees.parent;
            let inode = self.resolver.trees.parent_inode(change.id);
            let Some(own) = inode.and_then(|inode| parent.node(inode).ok()) else { continue };
            let asks_for_mode = match guard.scope {
                GuardScope::Plan => self.is_mode_of_another(change, parent.owner(own)),
                // Directories are settled once all that is in them is there.
                GuardScope::Files | GuardScope::EarlierFiles => own.kind() != FileKind::Directory,
            };
            let opens = asks_for_mode && sets_more_bits(change, own) && guard.shuts_out(parent, own);
            let may_leave = !change.add.is_empty() && guard.scope != GuardScope::Files;
            let leaves = may_leave && guard.is_out_of_reach(parent, own) && self.leaves_closed(change, own, guard);
            if !(opens || leaves) || self.is_taken_whole(change, own) {
                continue;
            }
            if opens {
                change.mode = None;
            }
            if leaves {
                change.add.clear();
                change.remove.clear();
            }
            let decision = self.resolver.item(change.id).to_decision(Some(Side::Parent));
            self.resolver.record_decision(decision);
        }
    }

    /// Returns whether a new place of something is outside of a closed directory in which the parent has it. It has to be within
    /// on both sides: a directory on the way may move out in the child, with what the parent holds there, too.
    fn leaves_closed(&self, change: &NodeChange, own: &FileNode, guard: ReaderGuard) -> bool {
        let trees = &self.resolver.trees;
        let directories: BTreeSet<u64> = own.names().map(|(directory, _)| directory).collect();
        let left = directories.into_iter().flat_map(|directory| guard.closed_directories(trees.parent, directory));
        let left: BTreeSet<u64> = left.collect();
        let in_child = left.iter().map(|inode| trees.child_inode(trees.id_in_parent(*inode)?));
        let Some(left_in_child) = in_child.collect::<Option<BTreeSet<u64>>>() else { return true };
        let is_within = |tree: &Tree, directory: Option<u64>, closed: &BTreeSet<u64>| {
            let above = directory.map(|directory| directories_upwards(tree, directory)).unwrap_or_default();
            closed.iter().all(|directory| above.contains(directory))
        };
        let stays = |directory: NodeId| {
            is_within(trees.parent, self.directory_in_parent(directory), &left)
                && is_within(trees.child, trees.child_inode(directory), &left_in_child)
        };
        let places: BTreeSet<NodeId> = change.add.iter().map(|(directory, _)| *directory).collect();
        !places.into_iter().all(stays)
    }

    /// Returns the parent's inode of a directory, or of the first above it that the parent has.
    fn directory_in_parent(&self, directory: NodeId) -> Option<u64> {
        let trees = &self.resolver.trees;
        let mut at = directory;
        loop {
            if let Some(inode) = trees.parent_inode(at) {
                return Some(inode);
            }
            let node = self.child_node(at)?;
            let (above, _) = node.names().next()?;
            at = trees.id_in_child(above)?;
        }
    }

    /// Returns whether nobody but a pull has given a file the mode that it has in the branch that is merged.
    fn has_mode_of_pull(&self, change: &NodeChange, guard: ReaderGuard) -> bool {
        let trees = &self.resolver.trees;
        let base = trees.base_inode(change.id).and_then(|inode| trees.base.node(inode).ok());
        let child = self.child_node(change.id);
        base.zip(child).is_some_and(|(base, child)| guard.is_mode_of_pull(trees, base, &child))
    }

    /// Returns whether a file belongs, on the side that gives, to somebody other than its owner or root, who may set its mode.
    fn is_mode_of_another(&self, change: &NodeChange, owner: u32) -> bool {
        let giver = self.child_node(change.id).map(|node| self.resolver.trees.child.owner(&node));
        giver.is_some_and(|uid| uid != 0 && uid != owner)
    }

    /// Returns whether a file belongs to the reader on the side that gives.
    fn is_readers(&self, change: &NodeChange, guard: ReaderGuard) -> bool {
        self.child_node(change.id).is_some_and(|node| self.resolver.trees.child.owner(&node) == guard.uid)
    }

    /// Returns whether a file of the parent becomes in all that can be read of it what the child's is; of a directory, whether it
    /// holds the same, and something: an empty one may be closed for what is to come.
    fn is_taken_whole(&self, change: &NodeChange, own: &FileNode) -> bool {
        let Some(child) = self.child_node(change.id) else { return false };
        if own.kind() == FileKind::Directory {
            let trees = &self.resolver.trees;
            let inodes = trees.child_inode(change.id).zip(trees.parent_inode(change.id));
            return inodes.is_some_and(|(child, parent)| {
                trees.child.node_hash(child) == trees.parent.node_hash(parent)
                    || own.directory().is_some_and(|own| !own.is_empty())
                        && same_entries((trees.child, child), (trees.parent, parent))
            });
        }
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

    /// Gives a file back to the reader that a revert or rollback makes again what it was while it was theirs. Fails
    /// like [`TreeEditor::apply`].
    pub(super) fn give_back(&mut self, change: &NodeChange, inode: u64, before: &FileNode) -> Result<(), TreeError> {
        let Some(guard) = self.guard.filter(|guard| guard.scope == GuardScope::EarlierFiles) else { return Ok(()) };
        let Some(child) = self.child_node(change.id).filter(|child| child.kind() != FileKind::Directory) else {
            return Ok(());
        };
        if self.is_readers(change, guard)
            && guard.shuts_out(self.resolver.trees.parent, before)
            && self.is_taken_whole(change, before)
        {
            let mode = self.tree.node(inode)?.mode;
            self.protect(inode, guard.uid, child.gid, mode)?;
        }
        Ok(())
    }

    /// Puts a copy in the place of a file of the parent that the reader may have open and that is about to be closed,
    /// where it holds what the child's does. Fails like [`TreeEditor::apply`].
    pub(super) fn renew_closed(&mut self, id: NodeId, inode: u64) -> Result<u64, TreeError> {
        let (Some(guard), Some(source)) = (self.receiving_guard(), self.child_node(id)) else { return Ok(inode) };
        let (node, is_parents) = (self.tree.node(inode)?, self.resolver.trees.parent_inode(id) == Some(inode));
        let may_stay = !is_parents || guard.shuts_out(&self.tree, node) || !same_body(node, &source);
        if may_stay || node.kind() == FileKind::Directory {
            return Ok(inode);
        }
        let own = node.xattrs().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let made = self.replace_by_copy(id, inode)?;
        self.set_xattrs(made, &own)?;
        Ok(made)
    }
}

/// Returns whether a change gives group or others bits of the mode that they have not yet.
pub(super) fn sets_more_bits(change: &NodeChange, own: &FileNode) -> bool {
    change.mode.is_some_and(|mode| mode & !own.mode & 0o077 != 0)
}

/// Returns whether two directories hold the same, whatever their own modes.
fn same_entries((one, of_one): (&Tree, u64), (other, of_other): (&Tree, u64)) -> bool {
    let (Ok(first), Ok(second)) = (one.entries(of_one, None), other.entries(of_other, None)) else { return false };
    let first = first.map(|(name, inode)| (name, one.node_hash(inode)));
    first.eq(second.map(|(name, inode)| (name, other.node_hash(inode))))
}
