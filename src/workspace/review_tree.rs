//! What of a tree is open to those who decide whether it is merged.
//!
//! Whoever proposes a tree shows what is their own and new in it, whatever its mode: they could copy it to a place that
//! others read. Nothing else may become readable by that. So all that the base has, or that belongs to somebody else,
//! keeps owner and mode. A directory that not everybody may search has to let readers pass to what is shown in it; it
//! then holds nothing else, since nothing but its mode may have kept them from the rest.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::tree::ROOT;
use super::{FileName, FileNode, Tree, TreeDifference, TreeError};
use crate::object::Time;

/// The mode of what is shown, unless it is a directory.
const FILE_MODE: u32 = 0o444;
/// The mode of a directory that is opened.
const DIRECTORY_MODE: u32 = 0o555;
/// The mode of what a directory that is opened holds and does not show.
const NO_ACCESS_MODE: u32 = 0;
const SEARCH: u32 = 0o1;

impl Tree {
    /// Returns this tree as reviewers of a proposal may see it. `owner` is the uid that proposes it, `base` the tree it
    /// began with.
    ///
    /// What belongs to `owner` and is not in the base has mode 0444, whatever it had. Directories of theirs on the way
    /// to it that not everybody may search have 0555, and hold nothing that the base has at that path; what else they
    /// hold has mode 0. All else is as in this tree. It costs what differs, and what such directories no longer hold.
    pub fn for_reviewers(&self, base: &Tree, owner: u32) -> Tree {
        let changes = ProposedChanges::new(base, self, owner);
        let mut shown = self.clone();
        let mut waiting = vec![(ROOT, false)];
        while let Some((directory, is_behind_opened)) = waiting.pop() {
            let is_readable = changes.is_readable(directory);
            if is_behind_opened && !is_readable {
                shown.set_mode(directory, NO_ACCESS_MODE);
                continue;
            }
            let is_opened = is_readable && (is_behind_opened || changes.is_restricted(directory));
            let differing = changes.differing(directory);
            if is_opened {
                // Emptied before it is opened: what can't be taken out of it stays behind its mode.
                if shown.retain_entries(directory, &differing).is_err() {
                    continue;
                }
                shown.set_mode(directory, DIRECTORY_MODE);
            }
            for inode in differing.into_values() {
                if changes.is_directory(inode) {
                    waiting.push((inode, is_opened));
                } else if changes.is_readable(inode) {
                    shown.set_mode(inode, FILE_MODE);
                } else if is_opened {
                    shown.set_mode(inode, NO_ACCESS_MODE);
                }
            }
        }
        shown
    }

    fn set_mode(&mut self, inode: u64, mode: u32) {
        // By `node_mut`, since who owns a node follows from the mode that it had.
        if let Ok(node) = self.node_mut(inode) {
            node.mode = mode;
        }
    }

    /// Takes all names but some out of a directory, with what is below them. `TreeError::NotDirectory`, or
    /// `TreeError::Stale` for what is not in the tree.
    fn retain_entries(&mut self, directory: u64, kept: &BTreeMap<FileName, u64>) -> Result<(), TreeError> {
        let time = self.node(directory)?.mtime;
        let others = self.entries(directory, None)?.filter(|(name, _)| !kept.contains_key(*name));
        let mut gone: Vec<(u64, FileName, u64)> =
            others.map(|(name, inode)| (directory, name.clone(), inode)).collect();
        let mut seen = 0;
        while let Some((_, _, inode)) = gone.get(seen) {
            let inode = *inode;
            if self.node(inode)?.directory().is_some() {
                gone.extend(self.entries(inode, None)?.map(|(name, child)| (inode, name.clone(), child)));
            }
            seen += 1;
        }
        // From the end: what is in a directory goes before the directory.
        for (parent, name, inode) in gone.into_iter().rev() {
            if self.remove_name(parent, &name, inode, time)? {
                self.remove_nameless(inode);
            }
        }
        Ok(())
    }
}

/// A tree that somebody proposes, held against its base.
struct ProposedChanges<'a> {
    base: &'a Tree,
    proposed: &'a Tree,
    owner: u32,
    /// Nodes of the base that are others in the proposed tree, or under other numbers, by their times of birth.
    replaced: HashMap<Time, &'a Arc<FileNode>>,
    /// By directory, the entries at or below which something is there that the base has not got at that path.
    differing: HashMap<u64, BTreeMap<FileName, u64>>,
    /// What the owner made or changed, and all directories on the way to it, whoever owns these.
    readable: HashSet<u64>,
}

impl<'a> ProposedChanges<'a> {
    fn new(base: &'a Tree, proposed: &'a Tree, owner: u32) -> ProposedChanges<'a> {
        let replaced = base.changed_nodes(proposed).filter_map(|changed| changed.old);
        let replaced = replaced.map(|node| (node.crtime, node)).collect();
        let (differing, readable) = (HashMap::new(), HashSet::new());
        let mut changes = ProposedChanges { base, proposed, owner, replaced, differing, readable };
        for TreeDifference { path, new, .. } in base.differences(proposed) {
            if let Some((inode, node)) = new {
                changes.add(&path, inode, &node);
            }
        }
        changes
    }

    /// Takes in what the proposed tree has at a path where the base has something else or nothing.
    fn add(&mut self, path: &[u8], inode: u64, node: &FileNode) {
        let is_change = self.is_owned(inode, node) && !self.is_in_base(inode, node);
        let mut above = ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let (Ok(child), Ok(name)) = (self.proposed.lookup(above, name), FileName::new(name)) else { return };
            self.differing.entry(above).or_default().insert(name, child);
            if is_change {
                self.readable.insert(above);
            }
            above = child;
        }
        if is_change {
            self.readable.insert(inode);
        }
    }

    /// The root belongs to the owner of the branch, whoever it belonged to when it was written.
    fn is_owned(&self, inode: u64, node: &FileNode) -> bool {
        inode == ROOT || self.proposed.owner(node) == self.owner
    }

    /// Returns whether the base has the same, under one of its names or, since it was moved or linked, under another.
    fn is_in_base(&self, inode: u64, node: &FileNode) -> bool {
        let hash = node.hash_without_entries();
        let under_number = self.base.node(inode).ok().into_iter().chain(self.replaced.get(&node.crtime).copied());
        let mut moved = under_number.filter(|other| other.crtime == node.crtime);
        if moved.any(|other| other.hash_without_entries() == hash) {
            return true;
        }
        node.names().any(|(directory, name)| {
            let Some(directory) = self.proposed.path(directory) else { return false };
            let there = self.base.resolve(&[&directory[..], &**name].join(&b'/'));
            let there = there.and_then(|other| self.base.node(other));
            there.is_ok_and(|other| other.hash_without_entries() == hash)
        })
    }

    /// Returns whether something is the owner's to open, and is new or on the way to what is.
    fn is_readable(&self, inode: u64) -> bool {
        self.readable.contains(&inode) && self.proposed.node(inode).is_ok_and(|node| self.is_owned(inode, node))
    }

    fn is_directory(&self, inode: u64) -> bool {
        self.proposed.node(inode).is_ok_and(|node| node.directory().is_some())
    }

    /// Returns whether not everybody may search a directory.
    fn is_restricted(&self, directory: u64) -> bool {
        self.proposed.node(directory).is_ok_and(|node| node.mode & node.mode >> 3 & node.mode >> 6 & SEARCH == 0)
    }

    /// Returns the entries of a directory at or below which the base differs.
    fn differing(&self, directory: u64) -> BTreeMap<FileName, u64> {
        self.differing.get(&directory).cloned().unwrap_or_default()
    }
}
