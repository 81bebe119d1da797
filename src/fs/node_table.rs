//! Which nodes the kernel knows, and by which numbers.

use std::collections::HashMap;
use std::sync::Arc;

use super::errno::Errno;
use super::files::InodeMap;
use super::node::FsNode;
use crate::sync::Mutex;

/// The number of the mount's root.
pub(super) const ROOT: u64 = 1;

/// Nodes by number, each for as long as the kernel holds look-ups of it.
///
/// A number is the node's fingerprint, or the next free one above it. The root is never forgotten.
/// Inode numbers of files encode what they name, and need no place in the table.
///
/// The kernel lets one writer at a time into a node (its inode's lock), and some writes take long:
/// those of [`FsNode::needs_own_inode`]. Such a number is given to nobody else while a handle is open on
/// it: who opens the file meanwhile gets another number, and waits for nobody.
pub(super) struct NodeTable {
    root: FsNode,
    inode_map: Arc<InodeMap>,
    known: Mutex<HashMap<u64, TableEntry>>,
}

struct TableEntry {
    node: FsNode,
    lookup_count: u64,
    /// The length that the kernel was told last.
    reported_length: u64,
    /// Open handles of nodes that are kept apart.
    handle_count: u64,
}

impl TableEntry {
    fn new(node: FsNode) -> TableEntry {
        TableEntry { node, lookup_count: 0, reported_length: 0, handle_count: 0 }
    }
}

impl NodeTable {
    /// Knows nothing yet but the root, which is number 1.
    pub fn new(root: FsNode, inode_map: Arc<InodeMap>) -> NodeTable {
        NodeTable { root, inode_map, known: Mutex::default() }
    }

    /// Returns the number of a node without counting a look-up.
    pub fn number(&self, node: &FsNode) -> u64 {
        if let Some(number) = self.file_number(node) {
            return number;
        }
        self.find_number(&self.known.lock(), node)
    }

    /// Returns the number of a node that the kernel is about to be told of, and counts that
    /// look-up.
    pub fn remember(&self, node: &FsNode) -> u64 {
        if let Some((tree_id, inode)) = node.file()
            && let Some(number) = self.inode_map.remember(tree_id, inode)
        {
            return number;
        }
        let mut known = self.known.lock();
        let number = self.find_number(&known, node);
        if number != ROOT {
            known.entry(number).or_insert_with(|| TableEntry::new(node.clone())).lookup_count += 1;
        }
        number
    }

    /// Notes the length that the kernel is about to be told of a node.
    pub fn note_length(&self, number: u64, length: u64) {
        if let Some(known) = self.known.lock().get_mut(&number) {
            known.reported_length = length;
        }
    }

    /// Returns the length in bytes that the kernel was last told; 0 if it does not know the node.
    pub fn reported_length(&self, number: u64) -> u64 {
        self.known.lock().get(&number).map_or(0, |known| known.reported_length)
    }

    /// Counts a handle that was opened on a node that is kept apart.
    pub fn count_open(&self, number: u64) {
        if let Some(known) = self.known.lock().get_mut(&number) {
            known.handle_count += 1;
        }
    }

    /// Stops counting a handle.
    pub fn count_close(&self, number: u64) {
        if let Some(known) = self.known.lock().get_mut(&number) {
            known.handle_count = known.handle_count.saturating_sub(1);
        }
    }

    /// Takes back look-ups of a number; its node is forgotten with the last one.
    pub fn forget(&self, number: u64, lookup_count: u64) {
        // Numbers of files are in no table, so both are told; each knows only its own.
        self.inode_map.forget(number, lookup_count);
        let mut known = self.known.lock();
        let Some(entry) = known.get_mut(&number) else {
            return;
        };
        entry.lookup_count = entry.lookup_count.saturating_sub(lookup_count);
        if entry.lookup_count == 0 {
            known.remove(&number);
        }
    }

    /// Returns the node of a number; ESTALE for one that was never given or is forgotten.
    pub fn node(&self, number: u64) -> Result<FsNode, Errno> {
        if number == ROOT {
            return Ok(self.root.clone());
        }
        if let Some((tree_id, inode)) = self.inode_map.find(number) {
            return Ok(FsNode::File(tree_id, inode));
        }
        self.known.lock().get(&number).map(|known| known.node.clone()).ok_or(Errno::ESTALE)
    }

    fn file_number(&self, node: &FsNode) -> Option<u64> {
        let (tree_id, inode) = node.file()?;
        self.inode_map.ino(tree_id, inode)
    }

    fn find_number(&self, known: &HashMap<u64, TableEntry>, node: &FsNode) -> u64 {
        if *node == self.root {
            return ROOT;
        }
        let mut number = node.fingerprint();
        // A number that is taken by another node, or by an open one that needs its own, is passed over; the rest is
        // free or ours.
        while known.get(&number).is_some_and(|other| other.node != *node || other.handle_count > 0) {
            number += 1;
        }
        number
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::fs::control::ControlFile;
    use crate::memory::{BranchId, View};

    fn table(root: FsNode) -> NodeTable {
        NodeTable::new(root, Arc::new(InodeMap::new(Box::new(|_| 0))))
    }

    #[test]
    fn a_node_lives_until_its_last_look_up_is_taken_back() {
        let table = table(FsNode::Mount);
        let node = FsNode::Branch(BranchId(4));
        let number = table.remember(&node);
        assert_eq!(table.remember(&node), number);
        table.forget(number, 1);
        assert_eq!(table.node(number).unwrap(), node);
        table.forget(number, 1);
        assert_eq!(table.node(number), Err(Errno::ESTALE));
        assert_eq!(table.number(&node), number);
    }

    #[test]
    fn the_root_is_number_one_whatever_it_is_and_stays() {
        let table = table(FsNode::Branch(BranchId(4)));
        assert_eq!(table.remember(&FsNode::Branch(BranchId(4))), ROOT);
        table.forget(ROOT, 100);
        assert_eq!(table.node(ROOT).unwrap(), FsNode::Branch(BranchId(4)));
    }

    #[test]
    fn two_nodes_of_one_fingerprint_have_two_numbers() {
        let table = table(FsNode::Mount);
        let (first, second) = (FsNode::Branch(BranchId(1)), FsNode::Branch(BranchId(2)));
        table
            .known
            .lock()
            .insert(first.fingerprint(), TableEntry { lookup_count: 1, ..TableEntry::new(second.clone()) });
        assert_eq!(table.remember(&first), first.fingerprint() + 1);
        assert_eq!(table.node(first.fingerprint()).unwrap(), second);
    }

    #[test]
    fn an_open_node_that_needs_its_own_inode_shares_the_number_with_nobody() {
        let table = table(FsNode::Mount);
        let node = FsNode::Control(View::Branch(BranchId(4)), ControlFile::Query);
        let first = table.remember(&node);
        assert_eq!(table.remember(&node), first, "nobody has opened it yet");
        table.count_open(first);
        let second = table.remember(&node);
        assert_ne!(second, first);
        assert_eq!(table.node(second).unwrap(), node);
        table.count_close(first);
        assert_eq!(table.number(&node), first);
    }
}
