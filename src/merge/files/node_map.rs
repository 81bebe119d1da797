//! Which file of one tree is which file of another.
//!
//! A file keeps its time of birth, which no two files of a store share, in all trees, wherever it is
//! moved and merged to; nearly always it also keeps its inode number, which is looked at first. A
//! file that was written again and renamed over the old one, as editors do, was born later but stands
//! at the same place: it is the successor of the old one. New files of both sides are the same when they
//! stand at the same place.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;

use super::Rules;
use crate::workspace::{FileKind, FileName, FileNode, ROOT, Tree};

/// The three trees of a merge. The parent is always the one that receives.
#[derive(Clone, Copy)]
pub struct MergeTrees<'a> {
    /// What both began with: the files of the child's base.
    pub base: &'a Tree,
    /// The tree that gives: that of the branch that is merged, or in a pull the parent's.
    pub child: &'a Tree,
    /// The tree that receives: that of the parent, or in a pull the branch's own.
    pub parent: &'a Tree,
}

/// One file or directory, on whatever side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum NodeId {
    /// It was in the base, with that inode number.
    Base(u64),
    /// The child added it, under that number; maybe the parent did, too.
    Child(u64),
    /// The parent alone added it, under that number.
    Parent(u64),
}

/// A name in a directory, which has an id of its own, so that it is known in all trees.
pub(super) type DirEntryKey = (NodeId, FileName);

/// Whether two inodes may be one file: a directory and a file never are.
fn same_kind(one: (&Tree, u64), other: (&Tree, u64)) -> bool {
    let is_directory =
        |(tree, inode): (&Tree, u64)| tree.node(inode).is_ok_and(|node| node.kind() == FileKind::Directory);
    is_directory(one) == is_directory(other)
}

fn path_components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// Files that a side has under other numbers than the base: it got them by a merge.
#[derive(Default)]
struct InodeRemap {
    /// The side's number for one of the base.
    base_to_side: HashMap<u64, u64>,
    /// The base's number for one of the side.
    side_to_base: HashMap<u64, u64>,
}

impl InodeRemap {
    /// Looks at what the two do not share.
    fn from_trees(base: &Tree, side: &Tree) -> InodeRemap {
        let born = |node: &FileNode| (node.nlink() > 0).then_some((node.crtime, node.kind() == FileKind::Directory));
        let (mut old, mut new) = (HashMap::new(), HashMap::new());
        for changed in base.changed_nodes(side) {
            let births = [changed.old, changed.new].map(|node| node.and_then(|node| born(node)));
            // The file kept its number, as most do, and needs no entry.
            if births[0] == births[1] {
                continue;
            }
            old.extend(births[0].map(|birth| (birth, changed.inode)));
            new.extend(births[1].map(|birth| (birth, changed.inode)));
        }
        let pairs = old.into_iter().filter_map(|(birth, here)| Some((here, *new.get(&birth)?)));
        let base_to_side: HashMap<u64, u64> = pairs.collect();
        InodeRemap {
            side_to_base: base_to_side.iter().map(|(here, base_to_side)| (*base_to_side, *here)).collect(),
            base_to_side,
        }
    }
}

/// The trees of a merge, and which of their inodes are the same file.
pub(super) struct NodeMap<'a> {
    trees: MergeTrees<'a>,
    /// Found when a number leads nowhere.
    child_remap: OnceCell<InodeRemap>,
    parent_remap: OnceCell<InodeRemap>,
}

impl<'a> Deref for NodeMap<'a> {
    type Target = MergeTrees<'a>;

    fn deref(&self) -> &MergeTrees<'a> {
        &self.trees
    }
}

impl<'a> NodeMap<'a> {
    /// Takes the trees as they are; what has other numbers on a side is found when it is first asked for.
    pub(super) fn new(trees: MergeTrees<'a>) -> NodeMap<'a> {
        NodeMap { trees, child_remap: OnceCell::new(), parent_remap: OnceCell::new() }
    }

    fn inode_remap(&self, side: &Tree) -> &InodeRemap {
        // Compared by address, as equal trees may stand on both sides.
        let known = if std::ptr::eq(side, self.child) { &self.child_remap } else { &self.parent_remap };
        known.get_or_init(|| InodeRemap::from_trees(self.base, side))
    }

    /// Returns whether an inode with that number is one and the same file in the base and on a side.
    fn is_shared(&self, side: &Tree, inode: u64) -> bool {
        let born = |tree: &Tree| tree.node(inode).ok().filter(|node| node.nlink() > 0).map(|node| node.crtime);
        inode == ROOT || born(side).is_some_and(|time| born(self.base) == Some(time))
    }

    /// Returns the number that a side has for a file of the base, if it has this very file.
    fn find_on_side(&self, side: &Tree, inode: u64) -> Option<u64> {
        if self.is_shared(side, inode) { Some(inode) } else { self.inode_remap(side).base_to_side.get(&inode).copied() }
    }

    /// Returns the number that the base has for a file of a side, if it has this very file.
    fn find_in_base(&self, side: &Tree, inode: u64) -> Option<u64> {
        if self.is_shared(side, inode) { Some(inode) } else { self.inode_remap(side).side_to_base.get(&inode).copied() }
    }

    /// Returns the inode that a side has of one that the base has.
    pub(super) fn successor(&self, side: &Tree, inode: u64) -> Option<u64> {
        if let Some(same) = self.find_on_side(side, inode) {
            return Some(same);
        }
        // A file that was written again has another birth, so only its place leads to it. Each directory on the way is
        // followed to where the side has it now, since that may have been renamed.
        let path = self.base.path(inode)?;
        let (mut at, mut from) = (ROOT, ROOT);
        for name in path_components(&path) {
            from = self.base.lookup(from, name).ok()?;
            at = match self.find_on_side(side, from) {
                Some(same) => same,
                None => self.find_added(side, at, name)?,
            };
            if !same_kind((self.base, from), (side, at)) {
                return None;
            }
        }
        Some(at)
    }

    /// Returns the inode of a name if the base does not have it.
    fn find_added(&self, side: &Tree, directory: u64, name: &[u8]) -> Option<u64> {
        let inode = side.lookup(directory, name).ok()?;
        self.find_in_base(side, inode).is_none().then_some(inode)
    }

    /// Returns the id of an inode of the base. Always some, so that it can stand beside [`NodeMap::id_in_child`].
    pub(super) fn id_in_base(&self, inode: u64) -> Option<NodeId> {
        Some(NodeId::Base(inode))
    }

    /// Returns what an inode of the child is: a file of the base, by birth or by place, or a new one.
    pub(super) fn id_in_child(&self, inode: u64) -> Option<NodeId> {
        if let Some(origin) = self.find_in_base(self.child, inode) {
            return Some(NodeId::Base(origin));
        }
        let path = self.child.path(inode)?;
        let (mut at, mut id) = (ROOT, NodeId::Base(ROOT));
        for name in path_components(&path) {
            at = self.child.lookup(at, name).ok()?;
            id = self.successor_id(self.child, id, name, at).unwrap_or(NodeId::Child(at));
        }
        Some(id)
    }

    /// Returns what an inode of the parent is: a file of the base, one that the child added at the same place, or a new
    /// one.
    pub(super) fn id_in_parent(&self, inode: u64) -> Option<NodeId> {
        if let Some(origin) = self.find_in_base(self.parent, inode) {
            return Some(NodeId::Base(origin));
        }
        let path = self.parent.path(inode)?;
        let (mut at, mut id) = (ROOT, NodeId::Base(ROOT));
        for name in path_components(&path) {
            at = self.parent.lookup(at, name).ok()?;
            let successor_id = self.successor_id(self.parent, id, name, at);
            id = successor_id.or_else(|| self.added_by_both(id, name, at)).unwrap_or(NodeId::Parent(at));
        }
        Some(id)
    }

    /// Returns what an inode is that a side has at a place, where the base had it.
    fn successor_id(&self, side: &Tree, directory: NodeId, name: &[u8], inode: u64) -> Option<NodeId> {
        if let Some(origin) = self.find_in_base(side, inode) {
            return Some(NodeId::Base(origin));
        }
        let NodeId::Base(directory) = directory else { return None };
        let old = self.base.lookup(directory, name).ok()?;
        (self.successor(side, old) == Some(inode)).then_some(NodeId::Base(old))
    }

    /// Returns what an inode is that the parent added at a place, where the child added one, too.
    fn added_by_both(&self, directory: NodeId, name: &[u8], inode: u64) -> Option<NodeId> {
        let counterpart = self.find_added(self.child, self.child_inode(directory)?, name)?;
        let is_new = self.successor_id(self.child, directory, name, counterpart).is_none();
        (is_new && same_kind((self.child, counterpart), (self.parent, inode))).then_some(NodeId::Child(counterpart))
    }

    /// Returns the base's inode of a file; `None` if the base does not have it.
    pub(super) fn base_inode(&self, id: NodeId) -> Option<u64> {
        if let NodeId::Base(inode) = id { Some(inode) } else { None }
    }

    /// Returns the child's inode of a file; `None` if the child does not have it.
    pub(super) fn child_inode(&self, id: NodeId) -> Option<u64> {
        match id {
            NodeId::Base(inode) => self.successor(self.child, inode),
            NodeId::Child(inode) => Some(inode),
            NodeId::Parent(_) => None,
        }
    }

    /// Returns the parent's inode of a file; `None` if the parent does not have it.
    pub(super) fn parent_inode(&self, id: NodeId) -> Option<u64> {
        let inode = match id {
            NodeId::Base(inode) => return self.successor(self.parent, inode),
            NodeId::Parent(inode) => return Some(inode),
            NodeId::Child(inode) => inode,
        };
        let path = self.child.path(inode)?;
        let (mut at, mut own, mut directory) = (ROOT, ROOT, NodeId::Base(ROOT));
        for name in path_components(&path) {
            own = self.child.lookup(own, name).ok()?;
            let successor_id = self.successor_id(self.child, directory, name, own);
            // What the base had at a place is followed from the base. What the child added corresponds only to what the
            // parent added there, too.
            at = match successor_id {
                Some(NodeId::Base(old)) => self.successor(self.parent, old)?,
                _ => self.parent_counterpart(directory, at, name, own)?,
            };
            directory = successor_id.unwrap_or(NodeId::Child(own));
        }
        Some(at)
    }

    /// Returns whether the parent has nothing that the base has not, nor lacks anything.
    pub(super) fn parent_is_base(&self) -> bool {
        self.parent.is_clone_of(self.base)
    }

    /// Returns whether a directory of the base is on both sides, at the path that it has in the base.
    pub(super) fn is_in_place(&self, directory: u64) -> bool {
        let path = self.base.path(directory);
        let stays = |side: &Tree| self.is_shared(side, directory) && side.path(directory) == path;
        path.is_some() && stays(self.child) && (self.parent_is_base() || stays(self.parent))
    }

    /// Returns whether the child has a file under the number and the names that it has in the base.
    fn keeps_names_in_child(&self, id: NodeId) -> bool {
        let NodeId::Base(inode) = id else { return false };
        let is_same = |old: &FileNode, new: &FileNode| {
            old.names().eq(new.names()) && new.names().all(|(directory, _)| self.is_shared(self.child, directory))
        };
        self.is_shared(self.child, inode)
            && self.base.node(inode).is_ok_and(|old| self.child.node(inode).is_ok_and(|new| is_same(old, new)))
    }

    /// Returns what the base had where the child has a file, and what the child has where the base
    /// had it.
    pub(super) fn replaced(&self, id: NodeId) -> Vec<NodeId> {
        let mut found = Vec::new();
        // A file that stays where it was replaces nothing, which is so for most: looking up its names would be for
        // nothing.
        if self.keeps_names_in_child(id) {
            return found;
        }
        let names = |tree: &Tree, inode: Option<u64>| -> Vec<(u64, FileName)> {
            let node = inode.and_then(|inode| tree.node(inode).ok());
            node.into_iter().flat_map(|node| node.names().map(|(directory, name)| (directory, name.clone()))).collect()
        };
        for (directory, name) in names(self.child, self.child_inode(id)) {
            let directory = self.id_in_child(directory).and_then(|directory| self.base_inode(directory));
            found.extend(directory.and_then(|directory| self.base.lookup(directory, &name).ok()).map(NodeId::Base));
        }
        for (directory, name) in names(self.base, self.base_inode(id)) {
            let there =
                self.successor(self.child, directory).and_then(|directory| self.child.lookup(directory, &name).ok());
            found.extend(there.and_then(|inode| self.id_in_child(inode)));
        }
        found
    }

    /// Returns what the parent added where the child added an inode.
    fn parent_counterpart(&self, directory: NodeId, at: u64, name: &[u8], own: u64) -> Option<u64> {
        let counterpart = self.find_added(self.parent, at, name)?;
        let is_new = self.successor_id(self.parent, directory, name, counterpart).is_none();
        (is_new && same_kind((self.child, own), (self.parent, counterpart))).then_some(counterpart)
    }
}

/// Returns the places of an inode, without those that do not merge, and the path of the first.
pub(super) fn places(
    tree: &Tree,
    inode: u64,
    rules: &Rules,
    id: impl Fn(u64) -> Option<NodeId>,
) -> (BTreeSet<DirEntryKey>, Option<Vec<u8>>) {
    let (mut places, mut first) = (BTreeSet::new(), None);
    let Ok(node) = tree.node(inode) else { return (places, first) };
    for (directory, name) in node.names() {
        let Some(mut path) = tree.path(directory) else { continue };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        // A file keeps those of its names that merge; without one it is not there for the merge.
        if never_merges(rules, &path, node.kind() == FileKind::Directory) {
            continue;
        }
        if let Some(directory) = id(directory) {
            places.insert((directory, name.clone()));
            first.get_or_insert(path);
        }
    }
    (places, first)
}

/// Whether a path does not merge. A rule for all that is in a directory is for the directory, too.
pub(super) fn never_merges(rules: &Rules, path: &[u8], is_directory: bool) -> bool {
    if is_directory {
        return rules.rule_for(&[path, b"/"].concat()).kind.never_merges();
    }
    rules.rule_for(path).kind.never_merges()
}
