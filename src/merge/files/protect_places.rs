//! Keeps directories closed to the reader that close what is in them, and closes those in their places.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::apply::TreeEditor;
use super::node_change::{NewBody, NodeChange};
use super::node_map::NodeId;
use super::protect::{OWNER_BITS, sets_more_bits};
use super::reader_guard::{all_directories_upwards, directories_upwards};
use super::{GuardScope, ReaderGuard, Side};
use crate::workspace::{FileKind, FileNode, TreeError};

/// What becomes of a directory that an earlier state has otherwise.
struct SettledDirectory {
    id: NodeId,
    inode: u64,
    /// Owner, group and mode; none leaves those that it has by now.
    protection: Option<(u32, u32, u32)>,
    /// Whether it does not become what it was.
    is_held_back: bool,
}

impl TreeEditor<'_, '_> {
    /// Closes the directories into which something comes that was below closed ones: the same directories get owner,
    /// group and mode of those, and what does not lie below them is closed itself. Fails like [`TreeEditor::apply`].
    pub(super) fn close_places(&mut self, changes: &[NodeChange]) -> Result<(), TreeError> {
        let Some(guard) = self.receiving_guard() else { return Ok(()) };
        let giver = self.resolver.trees.child;
        // Much may lie in one directory: each is closed once.
        let mut made: HashMap<u64, Option<u64>> = HashMap::new();
        for change in changes {
            let takes_part = change.xattrs.is_some() || !matches!(change.body, NewBody::Keep);
            if !(change.is_new || takes_part || !change.add.is_empty() || self.opens_closed(change, guard)) {
                continue;
            }
            let Some(node) = self.child_node(change.id) else { continue };
            // What is closed itself needs no closed directory.
            if guard.shuts_out(giver, &node) {
                continue;
            }
            let directories: BTreeSet<u64> = node.names().map(|(directory, _)| directory).collect();
            // By the innermost, above which are the same closed ones, whichever name leads to it.
            let mut covers: BTreeMap<u64, Vec<Option<u64>>> = BTreeMap::new();
            let mut is_within_reach = false;
            for directory in directories {
                let closed = guard.closed_directories(giver, directory);
                let Some(innermost) = closed.first() else {
                    is_within_reach = true;
                    continue;
                };
                if covers.contains_key(innermost) {
                    continue;
                }
                let mut above = Vec::with_capacity(closed.len());
                for directory in &closed {
                    let inode = match made.get(directory) {
                        Some(inode) => *inode,
                        None => self.close_directory(*directory)?,
                    };
                    made.insert(*directory, inode);
                    above.push(inode);
                }
                covers.insert(*innermost, above);
            }
            // By another name anybody may read it.
            if !is_within_reach {
                self.close_uncovered(change.id, &covers)?;
            }
        }
        Ok(())
    }

    /// Returns whether a change lets the reader into what the parent's tree has closed to them by its own mode.
    fn opens_closed(&self, change: &NodeChange, guard: ReaderGuard) -> bool {
        let parent = self.resolver.trees.parent;
        let own = self.resolver.trees.parent_inode(change.id).and_then(|inode| parent.node(inode).ok());
        own.is_some_and(|own| sets_more_bits(change, own) && guard.shuts_out(parent, own))
    }

    /// Gives a directory of the result owner, group and mode that it has in the child; returns its inode, if it is
    /// there. If the parent's had another mode, or another owner who had made it, that is told as a conflict.
    fn close_directory(&mut self, directory: u64) -> Result<Option<u64>, TreeError> {
        let giver = self.resolver.trees.child;
        let Some(id) = self.resolver.trees.id_in_child(directory) else { return Ok(None) };
        let Some(inode) = self.inode(id).filter(|inode| self.is_directory(*inode)) else { return Ok(None) };
        let source = giver.node(directory)?;
        let (own, uid) = (self.tree.node(inode)?, giver.owner(source));
        let trees = &self.resolver.trees;
        let base = trees.base_inode(id).and_then(|inode| trees.base.node(inode).ok());
        // One that the base has follows its original; one that was made since is taken from who made it.
        let is_made_since = base.is_none_or(|base| base.crtime != own.crtime);
        let is_taken_away = own.mode != source.mode || is_made_since && self.tree.owner(own) != uid;
        self.protect(inode, uid, source.gid, source.mode)?;
        if is_taken_away {
            self.resolver.record_closing(id, Side::Child);
        }
        Ok(Some(inode))
    }

    /// Closes a file where the parent has moved what it is in out of the directories that close it: `covers` has those of the
    /// result by the innermost of the child's.
    fn close_uncovered(&mut self, id: NodeId, covers: &BTreeMap<u64, Vec<Option<u64>>>) -> Result<(), TreeError> {
        let (Some(inode), Some(innermost)) = (self.inode(id), covers.keys().next()) else { return Ok(()) };
        let node = self.tree.node(inode)?;
        // A directory that is not in the result covers nothing.
        let whole = covers.values().filter_map(|above| above.iter().copied().collect::<Option<Vec<u64>>>());
        let mut by_first: HashMap<u64, Vec<Vec<u64>>> = HashMap::new();
        for above in whole {
            by_first.entry(above.first().copied().unwrap_or_default()).or_default().push(above);
        }
        let is_covered = |directory: u64| {
            let above = directories_upwards(&self.tree, directory);
            let mut candidates = above.iter().filter_map(|directory| by_first.get(directory)).flatten();
            candidates.any(|cover| cover.iter().all(|directory| above.contains(directory)))
        };
        let directories: BTreeSet<u64> = node.names().map(|(directory, _)| directory).collect();
        // Of a link anybody may read the target, whatever its mode.
        if node.kind() == FileKind::Symlink || directories.into_iter().all(is_covered) {
            return Ok(());
        }
        let (giver, mode) = (self.resolver.trees.child, node.mode & OWNER_BITS);
        let source = giver.node(*innermost)?;
        let inode = self.renew_closed(id, inode)?;
        self.protect(inode, giver.owner(source), source.gid, mode)
    }

    /// Decides on directories that are closed to the reader and that an earlier state has otherwise, or that may have
    /// been closed for what goes now: those that hold what they held then are the reader's again, if they were, and
    /// others stay closed. Fails like [`TreeEditor::apply`].
    pub(super) fn settle_directories(&mut self, changes: &[NodeChange]) -> Result<(), TreeError> {
        let Some(guard) = self.guard.filter(|guard| guard.scope == GuardScope::EarlierFiles) else { return Ok(()) };
        let modes = changes.iter().filter(|change| !change.is_new && change.mode.is_some());
        let modes: HashMap<NodeId, &NodeChange> = modes.map(|change| (change.id, change)).collect();
        let mut ids = self.directories_above(changes);
        ids.extend(modes.keys().copied());
        // All are looked at before the first one changes: each change has the hashes of the tree worked out again.
        let mut settled = Vec::new();
        for id in ids {
            let opens = |own: &FileNode| modes.get(&id).is_some_and(|change| sets_more_bits(change, own));
            settled.extend(self.settle_directory(id, guard, opens)?);
        }
        for SettledDirectory { id, inode, protection, is_held_back } in settled {
            if let Some((uid, gid, mode)) = protection {
                self.protect(inode, uid, gid, mode)?;
            }
            if is_held_back {
                self.resolver.record_closing(id, Side::Parent);
            }
        }
        Ok(())
    }

    /// Returns the directories above what changes, where it is in the parent and where the child has it.
    fn directories_above(&self, changes: &[NodeChange]) -> BTreeSet<NodeId> {
        let trees = &self.resolver.trees;
        let mut around: [BTreeSet<u64>; 2] = Default::default();
        for change in changes {
            let places = [(trees.parent, trees.parent_inode(change.id)), (trees.child, trees.child_inode(change.id))];
            for (directories, (tree, inode)) in around.iter_mut().zip(places) {
                let node = inode.and_then(|inode| tree.node(inode).ok());
                directories.extend(node.into_iter().flat_map(|node| node.names()).map(|(directory, _)| directory));
            }
        }
        let [own, givers] = around;
        let own = all_directories_upwards(trees.parent, own).into_iter().filter_map(|inode| trees.id_in_parent(inode));
        let givers = all_directories_upwards(trees.child, givers).into_iter();
        own.chain(givers.filter_map(|inode| trees.id_in_child(inode))).collect()
    }

    /// Returns what becomes of a directory, if that is to be settled; `opens` tells whether a change would open it.
    fn settle_directory(
        &self,
        id: NodeId,
        guard: ReaderGuard,
        opens: impl Fn(&FileNode) -> bool,
    ) -> Result<Option<SettledDirectory>, TreeError> {
        let trees = &self.resolver.trees;
        let (child, parent) = (trees.child, trees.parent);
        let own = trees.parent_inode(id).and_then(|own| parent.node(own).ok());
        let (Some(source), Some(own)) = (trees.child_inode(id), own) else { return Ok(None) };
        let Some(inode) = self.inode(id).filter(|inode| self.is_directory(*inode)) else { return Ok(None) };
        if !guard.shuts_out(parent, own) {
            return Ok(None);
        }
        let node = child.node(source)?;
        let was_readers = child.owner(node) == guard.uid && !guard.is_out_of_reach(child, node);
        let base = trees.base_inode(id).and_then(|inode| trees.base.node(inode).ok());
        let was_taken = was_readers && base.is_some_and(|base| trees.base.owner(base) != guard.uid);
        let holds_the_same = self.tree.node_hash(inode) == child.node_hash(source);
        let (protection, is_held_back) = match () {
            () if holds_the_same && was_readers => (Some((guard.uid, node.gid, node.mode)), false),
            () if holds_the_same => return Ok(None),
            () if opens(own) => (Some((parent.owner(own), own.gid, own.mode)), true),
            () => (None, was_taken),
        };
        Ok(Some(SettledDirectory { id, inode, protection, is_held_back }))
    }
}
