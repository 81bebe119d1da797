//! Keeps closed what a closed directory alone has kept from the reader, once the giver has it in another way.

use std::collections::BTreeSet;

use super::apply::TreeEditor;
use super::node_change::{NodeChange, same_body};
use super::node_map::NodeId;
use super::protect::OWNER_BITS;
use super::{GuardScope, ReaderGuard};
use crate::workspace::{FileKind, FileNode, TreeDifference, TreeError};

/// Owner, group and mode.
type Protection = (u32, u32, u32);

impl TreeEditor<'_, '_> {
    /// Closes what is out of the reader's reach by its directories alone and that the giver has closed by its own mode,
    /// in another place, or no longer: those directories may be opened by this merge, or by a later one, which meets
    /// nothing of it. `changes` are made, and `others` are differences of which the result may have nothing. Fails like
    /// [`TreeEditor::apply`].
    pub(super) fn close_kept(
        &mut self,
        changes: &[NodeChange],
        others: [&[TreeDifference]; 2],
    ) -> Result<(), TreeError> {
        let Some(guard) = self.receiving_guard() else { return Ok(()) };
        let mut ids: BTreeSet<NodeId> = changes.iter().map(|change| change.id).collect();
        // A rollback of files or a revert changes only what it brings back, so others are looked at for a pull alone.
        if guard.scope == GuardScope::Files {
            let before = others.into_iter().flatten().filter_map(|difference| difference.old.as_ref());
            ids.extend(before.map(|(inode, _)| NodeId::Base(*inode)));
        }
        for id in ids {
            let Some((inode, (uid, gid, mode))) = self.missing_protection(id, guard) else { continue };
            let inode = self.renew_closed(id, inode)?;
            self.protect(inode, uid, gid, mode)?;
        }
        Ok(())
    }

    /// Returns the inode that is to be closed of something that was out of reach, and how.
    fn missing_protection(&self, id: NodeId, guard: ReaderGuard) -> Option<(u64, Protection)> {
        let trees = &self.resolver.trees;
        let inode = self.inode(id)?;
        // What came under a new number is as the giver has it.
        let (own, node) = (trees.parent.node(inode).ok()?, self.tree.node(inode).ok()?);
        // Of a link anybody may read the target, whatever its mode.
        let is_open = node.kind() != FileKind::Symlink && !guard.shuts_out(&self.tree, node);
        if !is_open || !guard.is_out_of_reach(trees.parent, own) {
            return None;
        }
        let protection = match self.child_node(id).filter(|source| same_body(source, node)) {
            Some(source) if guard.shuts_out(trees.child, &source) => {
                Some((trees.child.owner(&source), source.gid, source.mode))
            }
            // In the same place the same directories close it.
            Some(source) => {
                let is_in_place =
                    trees.child_inode(id).and_then(|inode| trees.child.path(inode)) == self.tree.path(inode);
                let is_given = is_in_place || !guard.is_out_of_reach(trees.child, &source);
                if is_given { None } else { self.closing_protection(own, node, guard) }
            }
            None => {
                let base = trees.base_inode(id).and_then(|inode| trees.base.node(inode).ok());
                let is_kept = base.is_some_and(|base| same_body(base, node)) && node.kind() != FileKind::Directory;
                let counts = is_kept && guard.scope == GuardScope::Files;
                if counts { self.closing_protection(own, node, guard) } else { None }
            }
        };
        Some((inode, protection?))
    }

    /// Returns what closes a file as the innermost closed directory does in which it was.
    fn closing_protection(&self, own: &FileNode, node: &FileNode, guard: ReaderGuard) -> Option<Protection> {
        let receiver = self.resolver.trees.parent;
        let (directory, _) = own.names().next()?;
        let closed = receiver.node(*guard.closed_directories(receiver, directory).first()?).ok()?;
        Some((receiver.owner(closed), closed.gid, node.mode & OWNER_BITS))
    }
}
