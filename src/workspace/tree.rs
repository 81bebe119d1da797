//! All files of a branch at one moment.

use std::sync::{Arc, OnceLock};

use imbl::OrdSet;

use super::hash::HashMemo;
use super::links::Links;
use super::node::{Body, Directory, FileNode};
use super::nodes::Nodes;
use super::owners::Transfers;
use super::pack::Packs;
use super::{FileKind, FileName, NAME_BYTES_MAX, TreeError, TreeTotals};
use crate::object::Time;

/// The inode number of a tree's root.
pub const ROOT: u64 = 1;

/// A tree of files. It is a value: a clone costs the same whatever it holds, and no clone ever sees
/// another's later changes.
///
/// **Invariants:** an entry of a directory and the name in its inode are there together; every inode has a name that
/// leads to it from the root, except for the root and the orphans.
#[derive(Clone)]
pub struct Tree {
    /// All inodes by number, orphans included.
    pub(super) nodes: Nodes,
    /// The number of the next inode; it only grows.
    pub(super) next_inode: u64,
    /// Sums over what has a name.
    pub(super) totals: TreeTotals,
    /// To whom files were given, in order.
    pub(super) transfers: Transfers,
    /// Inodes without a name that some handle has open.
    pub(super) orphans: OrdSet<u64>,
    /// All files with a chunk that is in no pack yet; one that was changed may be here without such a chunk.
    pub(super) unsealed: OrdSet<u64>,
    /// What is known of the hashes of this tree, once asked for.
    pub(super) hash_memo: OnceLock<Arc<HashMemo>>,
    /// The same of an earlier state.
    pub(super) older_hash_memo: Option<Arc<HashMemo>>,
}

impl Tree {
    /// Returns this tree as it is once `before`, with the very same inodes, has become `moved`; `None` if they are not
    /// the same.
    pub fn with_relocation(&self, before: &Tree, moved: &Tree) -> Option<Tree> {
        let is_same =
            self.nodes.ptr_eq(&before.nodes) && self.next_inode == before.next_inode && self.orphans == before.orphans;
        is_same.then(|| moved.clone().with_transfers(self.transfers.clone()))
    }

    /// Returns whether both hold the very same inodes and owners. Equal trees need not.
    pub fn is_clone_of(&self, other: &Tree) -> bool {
        // Comparing the roots of the maps costs nothing; trees that became equal by different ways count as different.
        self.nodes.ptr_eq(&other.nodes) && self.transfers == other.transfers
    }
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new(0o755, 0, 0, Time(0))
    }
}

impl Tree {
    /// Makes an empty tree whose root has that mode and owner.
    pub fn new(mode: u32, uid: u32, gid: u32, time: Time) -> Tree {
        let mut root = FileNode::new(Body::Directory(Directory::default()), mode, uid, gid, time);
        root.links = Links::Root;
        let mut nodes = Nodes::default();
        nodes.insert(ROOT, Arc::new(root));
        Tree {
            nodes,
            next_inode: ROOT + 1,
            totals: TreeTotals::default(),
            transfers: Transfers::default(),
            orphans: OrdSet::new(),
            unsealed: OrdSet::new(),
            hash_memo: OnceLock::new(),
            older_hash_memo: None,
        }
    }

    /// Returns what the files add up to. It is kept up with each change, so asking costs nothing.
    pub fn totals(&self) -> TreeTotals {
        self.totals
    }

    /// Returns about how many bytes of memory names and attributes take up that another tree has otherwise or not at all.
    /// Costs what differs.
    pub fn metadata_bytes_beyond(&self, other: &Tree) -> u64 {
        let new = other.nodes.diff(&self.nodes).filter_map(|changed| changed.new);
        new.map(|node| TreeTotals::from_node(node).metadata_bytes()).sum()
    }

    /// Returns the number that the next inode gets; whatever has one not below it is newer than this tree.
    pub fn next_inode(&self) -> u64 {
        self.next_inode
    }

    /// Reserves all inode numbers below `next`: a branch that went back to an earlier tree must not reuse numbers of
    /// other files.
    pub fn reserve_inodes_below(&mut self, next: u64) {
        self.next_inode = self.next_inode.max(next);
    }

    /// Returns an inode; `Stale` if there is none with that number.
    pub fn node(&self, inode: u64) -> Result<&Arc<FileNode>, TreeError> {
        self.nodes.get(inode).ok_or(TreeError::Stale)
    }

    /// Iterates over the numbers of all inodes, also of those without a name.
    pub fn inodes(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.nodes.iter().map(|(inode, _)| inode)
    }

    /// Returns the inode of a name in a directory.
    ///
    /// `NotFound`; `NotDirectory`, `NameTooLong`, or `Stale` for an unknown parent.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<u64, TreeError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(TreeError::NameTooLong);
        }
        self.directory(parent)?.get(name).ok_or(TreeError::NotFound)
    }

    /// Returns the inode at a path of names joined by `/`; empty is the root. Links are not followed.
    ///
    /// `NotFound`, `NotDirectory` for a name below what is none, `NameTooLong`.
    pub fn resolve(&self, path: &[u8]) -> Result<u64, TreeError> {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.try_fold(ROOT, |inode, name| self.lookup(inode, name))
    }

    /// Returns the path of an inode by the first of its names; `None` for an orphan or unknown number.
    pub fn path(&self, inode: u64) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut ancestor = inode;
        while ancestor != ROOT {
            let (parent, name) = self.nodes.get(ancestor)?.names().next()?;
            names.push(name);
            ancestor = parent;
        }
        names.reverse();
        Some(names.iter().map(|name| &***name).collect::<Vec<&[u8]>>().join(&b'/'))
    }

    /// Iterates over the entries of a directory whose names are behind `after`, or all, in bytewise order.
    /// `NotDirectory`.
    pub fn entries(
        &self,
        inode: u64,
        after: Option<&[u8]>,
    ) -> Result<impl Iterator<Item = (&FileName, u64)> + use<'_>, TreeError> {
        Ok(self.directory(inode)?.entries_after(after))
    }

    /// Returns up to `length` bytes of a file from `offset`, fewer at its end. `IsDirectory`, `Invalid` for what is no file,
    /// `Stale` for an inode that has gone, and what `packs` fails with where content can't be read or is damaged.
    pub fn read(&self, inode: u64, offset: u64, length: usize, packs: &dyn Packs) -> Result<Vec<u8>, TreeError> {
        self.node(inode)?.read(offset, length, packs)
    }

    /// Returns whether some chunk may not be in a pack yet. False is certain.
    pub fn is_unsealed(&self) -> bool {
        !self.unsealed.is_empty()
    }

    /// Returns a directory's entries, or `NotDirectory`.
    pub(super) fn directory(&self, inode: u64) -> Result<&Directory, TreeError> {
        self.node(inode)?.directory().ok_or(TreeError::NotDirectory)
    }

    /// Returns the present owner's uid of a node. [`FileNode`] itself has the owner at its last write.
    pub fn owner(&self, node: &FileNode) -> u32 {
        self.transfers.current_owner(node)
    }

    /// Gives everything that `from` owns and others may read to another user. It costs the same whatever the tree holds.
    pub fn transfer_owner(&mut self, from: u32, to: u32) {
        self.transfers = self.transfers.with_transfer(from, to);
    }

    /// Returns to whom files were given so far.
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Returns the same files with other transfers: those that the tree was stored with.
    pub fn with_transfers(self, transfers: Transfers) -> Tree {
        Tree { transfers, ..self }
    }

    /// Returns a copy of a node for another tree, or for a handle, that has its present owner.
    pub fn detached(&self, node: &FileNode) -> FileNode {
        // Another tree has other transfers, so the owner is settled here, and the epoch lies behind all that may be
        // there.
        FileNode { uid: self.owner(node), epoch: u32::MAX, ..node.clone() }
    }

    /// Returns an inode to change it. What is known of hashes becomes what was known. `TreeError::Stale` if there is
    /// none with that number.
    pub(super) fn node_mut(&mut self, inode: u64) -> Result<&mut FileNode, TreeError> {
        let (owner, epoch) = (self.owner(self.node(inode)?), self.transfers.epoch());
        let node = self.node_mut_keeping_stored_owner(inode)?;
        // Freeze the owner as of now: it follows from mode and epoch, and a later chmod must not change it.
        (node.uid, node.epoch) = (owner, epoch);
        Ok(node)
    }

    /// The same while a tree is read, which knows no transfers yet: its owner and epoch stay. `TreeError::Stale` if
    /// there is none with that number.
    pub(super) fn node_mut_keeping_stored_owner(&mut self, inode: u64) -> Result<&mut FileNode, TreeError> {
        self.invalidate_hashes();
        let node = Arc::make_mut(self.nodes.get_mut(inode).ok_or(TreeError::Stale)?);
        // Its own hash covers mode, content and attributes, any of which may change now.
        node.hash.take();
        Ok(node)
    }

    /// Forgets the hashes of the tree, which is about to change; they still help to find the next ones.
    pub(super) fn invalidate_hashes(&mut self) {
        if let Some(memo) = self.hash_memo.take() {
            self.older_hash_memo = Some(memo);
        }
    }

    /// Says that this tree is about to become much like another, whose hashes then help to find its own.
    pub fn seed_hashes_from(&mut self, other: &Tree) {
        if let Some(memo) = other.hash_memo.get() {
            self.hash_memo.take();
            self.older_hash_memo = Some(memo.clone());
        }
    }

    /// Adds a node without a name and returns its number.
    pub(super) fn add(&mut self, mut node: FileNode) -> u64 {
        self.invalidate_hashes();
        // Transfers that were made before it must not take it from its owner.
        node.epoch = self.transfers.epoch();
        let inode = self.next_inode;
        self.next_inode += 1;
        if node.content().is_some_and(|content| content.is_unsealed()) {
            self.unsealed.insert(inode);
        }
        self.nodes.insert(inode, Arc::new(node));
        inode
    }

    /// Removes a node without a name, which no totals count.
    pub(super) fn remove_nameless(&mut self, inode: u64) {
        self.invalidate_hashes();
        self.nodes.remove(inode);
        self.unsealed.remove(&inode);
    }

    /// Gives an inode a name that is free, and touches it and the directory. `TreeError::Stale` if one of the two is
    /// not in the tree.
    pub(super) fn add_name(&mut self, parent: u64, name: &FileName, inode: u64, time: Time) -> Result<(), TreeError> {
        let node = self.node_mut(inode)?;
        // The totals have an inode from its first name on.
        let before = if node.is_nameless() { TreeTotals::default() } else { TreeTotals::from_node(node) };
        node.links.insert(parent, name.clone());
        node.ctime = time;
        let (is_directory, after) = (node.kind() == FileKind::Directory, TreeTotals::from_node(node));
        self.totals.replace(before, after);
        let node = self.node_mut(parent)?;
        (node.mtime, node.ctime) = (time, time);
        if let Body::Directory(directory) = &mut node.body {
            directory.entries.insert(name.clone(), inode);
            directory.subdirectories += u32::from(is_directory);
        }
        Ok(())
    }

    /// Takes the name of an inode away, and touches it and the directory; returns whether it was the last.
    /// `TreeError::Stale` if one of the two is not in the tree.
    pub(super) fn remove_name(
        &mut self,
        parent: u64,
        name: &FileName,
        inode: u64,
        time: Time,
    ) -> Result<bool, TreeError> {
        let node = self.node_mut(inode)?;
        let before = TreeTotals::from_node(node);
        node.links.remove(parent, name);
        node.ctime = time;
        let (is_directory, is_last) = (node.kind() == FileKind::Directory, node.is_nameless());
        // With its last name it leaves the totals, so that `remove_nameless` has nothing to take back.
        let after = if is_last { TreeTotals::default() } else { TreeTotals::from_node(node) };
        self.totals.replace(before, after);
        let node = self.node_mut(parent)?;
        (node.mtime, node.ctime) = (time, time);
        if let Body::Directory(directory) = &mut node.body {
            directory.entries.remove(&**name);
            directory.subdirectories -= u32::from(is_directory);
        }
        Ok(is_last)
    }
}
