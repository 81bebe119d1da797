//! The hash of a tree: by directory, and within large ones by groups of names.
//!
//! The names of a directory in order are cut into groups in front of each boundary; whether a name
//! is a boundary is told by the name alone, so equal directories have equal groups, whatever their
//! history. A directory's hash covers its own attributes and the hashes of its groups, a group's
//! hash its names and the hashes of what they lead to. One change in a directory of 100,000 names
//! so costs one group of about 16 names and the list of groups.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use super::node::{Directory, Node};
use super::touched::Touched;
use super::tree::{Nodes, ROOT};
use super::{Name, Tree};
use crate::object::{Hash, Hasher};

const DIRECTORY_CONTEXT: &str = "engramfs 2026 file directory v1";
const GROUP_CONTEXT: &str = "engramfs 2026 file names v1";
/// One name in so many is a boundary: 2 to the power of this.
const GROUP_BITS: u32 = 4;

/// What is known of the hashes of a tree.
pub(super) struct Memo {
    /// The tree they are of.
    pub nodes: Nodes,
    /// Every directory's.
    pub directories: OrdMap<u64, Groups>,
}

/// The hash of a directory and of its groups.
#[derive(Clone)]
pub(super) struct Groups {
    pub hash: Hash,
    /// Each with the boundary it begins with; the first begins with none.
    groups: Arc<Vec<(Option<Name>, Hash)>>,
}

impl Tree {
    /// Returns the head of the files: the same for equal trees, whatever their history.
    ///
    /// It covers path, kind, mode, content, link target, device number and `user.` attributes, and
    /// nothing else. Lazy: what did not change since it was last asked for, here or in the tree this
    /// one is a clone of, is not hashed again.
    pub fn hash(&self) -> Hash {
        self.memo().directories.get(&ROOT).map_or(Hash::ZERO, |root| root.hash)
    }

    /// Returns the hash of one inode and all below it, or nothing when there is no such inode.
    pub fn hash_of(&self, inode: u64) -> Option<Hash> {
        let node = self.node(inode).ok()?;
        node.hash().or_else(|| self.memo().directories.get(&inode).map(|known| known.hash))
    }

    pub(super) fn memo(&self) -> &Arc<Memo> {
        self.memo.get_or_init(|| Arc::new(Memo::update(self.older.as_deref(), &self.nodes)))
    }
}

impl Memo {
    /// Hashes what is not known from an older tree.
    fn update(older: Option<&Memo>, nodes: &Nodes) -> Memo {
        let none = OrdMap::new();
        let touched = Touched::between(older.map_or(&none, |older| &older.nodes), nodes);
        let directories = older.map(|older| older.directories.clone()).unwrap_or_default();
        let mut memo = Memo { nodes: nodes.clone(), directories };
        for inode in touched.0.keys() {
            if nodes.get(inode).is_none_or(|node| node.0.directory().is_none()) {
                memo.directories.remove(inode);
            }
        }
        for inode in order(&touched, nodes) {
            let Some(node) = nodes.get(&inode) else { continue };
            let (Some(directory), Some(names)) = (node.directory(), touched.0.get(&inode)) else { continue };
            let groups = match memo.directories.get(&inode) {
                Some(known) => memo.regrouped(directory, known, names),
                None => memo.grouped(directory),
            };
            memo.directories.insert(inode, Groups { hash: directory_hash(node, &groups), groups: Arc::new(groups) });
        }
        memo
    }

    /// Returns the hash of what an entry leads to; directories must be hashed before those above them.
    fn child(&self, inode: u64) -> Hash {
        let of_directory = || self.directories.get(&inode).map(|known| known.hash);
        self.nodes.get(&inode).and_then(|node| node.hash().or_else(of_directory)).unwrap_or(Hash::ZERO)
    }

    /// Hashes all groups of a directory.
    fn grouped(&self, directory: &Directory) -> Vec<(Option<Name>, Hash)> {
        let boundaries = directory.entries.keys().filter(|name| is_boundary(name)).cloned().map(Some);
        let begins: Vec<Option<Name>> = std::iter::once(None).chain(boundaries).collect();
        let hash = |place: usize| self.group(directory, begins[place].as_ref(), begins.get(place + 1));
        (0..begins.len()).map(|place| (begins[place].clone(), hash(place))).collect()
    }

    /// Hashes those groups in which names changed.
    fn regrouped(&self, directory: &Directory, known: &Groups, names: &BTreeSet<Name>) -> Vec<(Option<Name>, Hash)> {
        let mut groups: Vec<(Option<Name>, Option<Hash>)> =
            known.groups.iter().map(|(begin, hash)| (begin.clone(), Some(*hash))).collect();
        for name in names {
            // The group that a name is in is the last that does not begin behind it.
            let behind = groups.partition_point(|(begin, _)| begin.as_ref() <= Some(name));
            let is_begin = groups[behind - 1].0.as_ref() == Some(name);
            groups[behind - 1].1 = None;
            let must_begin = is_boundary(name) && directory.entries.contains_key(&**name);
            if must_begin && !is_begin {
                groups.insert(behind, (Some(name.clone()), None));
            } else if is_begin && !must_begin {
                groups.remove(behind - 1);
                groups[behind - 2].1 = None;
            }
        }
        let begins: Vec<Option<Name>> = groups.iter().map(|(begin, _)| begin.clone()).collect();
        let hash = |place: usize| self.group(directory, begins[place].as_ref(), begins.get(place + 1));
        let all = groups.into_iter().enumerate();
        all.map(|(place, (begin, known))| (begin, known.unwrap_or_else(|| hash(place)))).collect()
    }

    /// Hashes the names from a boundary to the next.
    fn group(&self, directory: &Directory, begin: Option<&Name>, end: Option<&Option<Name>>) -> Hash {
        let mut hasher = Hasher::new(GROUP_CONTEXT);
        let end = end.and_then(Option::as_ref);
        let from = begin.map_or(Bound::Unbounded, |begin| Bound::Included(&**begin));
        let names = directory.entries.range::<_, [u8]>((from, Bound::Unbounded));
        for (name, inode) in names.take_while(|(name, _)| end.is_none_or(|end| *name < end)) {
            hasher.field(name);
            hasher.update(&self.child(*inode).0);
        }
        hasher.finish()
    }
}

fn directory_hash(node: &Node, groups: &[(Option<Name>, Hash)]) -> Hash {
    let mut hasher = Hasher::new(DIRECTORY_CONTEXT);
    hasher.update(&node.own_hash().0);
    for (_, hash) in groups {
        hasher.update(&hash.0);
    }
    hasher.finish()
}

/// Returns the touched directories, each before those above it.
fn order(touched: &Touched, nodes: &Nodes) -> Vec<u64> {
    let mut order = vec![ROOT];
    let mut at = 0;
    while let Some(directory) = order.get(at).and_then(|inode| nodes.get(inode)).and_then(|node| node.0.directory()) {
        let below = touched.0.get(&order[at]).into_iter().flatten().filter_map(|name| directory.get(name));
        let is_directory = |inode: &u64| nodes.get(inode).is_some_and(|node| node.0.directory().is_some());
        order.extend(below.filter(|inode| touched.0.contains_key(inode) && is_directory(inode)));
        at += 1;
    }
    order.reverse();
    order
}

/// Returns whether a group begins with a name. FNV-1a, with its bits mixed, as that of short names
/// hardly reaches the upper ones.
fn is_boundary(name: &[u8]) -> bool {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, step);
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> (64 - GROUP_BITS) == 0
}
