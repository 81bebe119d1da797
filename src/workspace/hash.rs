//! The hash of a tree: by directory, and within large ones by groups of names.
//!
//! The names of a directory in order are cut into groups in front of each boundary; whether a name
//! is a boundary depends on the name alone, so equal directories have equal groups, whatever their
//! history. A directory's hash covers its own attributes and the hashes of its groups, a group's
//! hash its names and the hashes of what they lead to. One change in a directory of 100,000 names
//! so costs one group of about 16 names and the list of groups.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use super::node::{Directory, FileNode};
use super::nodes::Nodes;
use super::touched::TouchedNames;
use super::tree::ROOT;
use super::{FileName, Tree};
use crate::object::{Context, Hash};

static DIRECTORY_CONTEXT: Context = Context::new("engramfs 2026 file directory v1");
static GROUP_CONTEXT: Context = Context::new("engramfs 2026 file names v1");
/// One name in 16 is a boundary: 2 to the power of this.
const GROUP_BITS: u32 = 4;

/// What is known of the hashes of a tree.
pub(super) struct HashMemo {
    /// The nodes that they are of: what a later tree does not share with them is hashed again.
    pub nodes: Nodes,
    /// Every directory's.
    pub directories: OrdMap<u64, Groups>,
}

/// The hash of a directory and of its groups.
#[derive(Clone)]
pub(super) struct Groups {
    /// The directory's, which [`Tree::node_hash`] gives.
    pub hash: Hash,
    groups: Arc<Vec<Group>>,
}

/// A run of names that are hashed together, so that a change of one name rehashes its group and not the whole directory.
#[derive(Clone)]
struct Group {
    /// The boundary it begins with; the first begins with none.
    begin: Option<FileName>,
    hash: Hash,
}

impl Tree {
    /// Returns the head of the files: the same for equal trees, whatever their history.
    ///
    /// It covers path, kind, mode, content, link target, device number and `user.` attributes, and
    /// nothing else. Lazy: what did not change since it was last asked for, here or in the tree this
    /// one is a clone of, is not hashed again.
    pub fn hash(&self) -> Hash {
        self.hash_memo().directories.get(&ROOT).map_or(Hash::ZERO, |root| root.hash)
    }

    /// Returns the hash of one inode and all below it, or `None` if there is no such inode.
    pub fn node_hash(&self, inode: u64) -> Option<Hash> {
        let node = self.node(inode).ok()?;
        node.hash().or_else(|| self.hash_memo().directories.get(&inode).map(|known| known.hash))
    }

    /// Returns the hashes of all directories, made now from those of an older tree where they are not known.
    pub(super) fn hash_memo(&self) -> &Arc<HashMemo> {
        self.hash_memo.get_or_init(|| Arc::new(HashMemo::update(self.older_hash_memo.as_deref(), &self.nodes)))
    }
}

impl HashMemo {
    /// Hashes what is not known from an older tree.
    fn update(older: Option<&HashMemo>, nodes: &Nodes) -> HashMemo {
        let none = Nodes::default();
        let touched = TouchedNames::diff(older.map_or(&none, |older| &older.nodes), nodes);
        let directories = older.map(|older| older.directories.clone()).unwrap_or_default();
        let mut memo = HashMemo { nodes: nodes.clone(), directories };
        for inode in touched.directories() {
            if nodes.get(inode).is_none_or(|node| node.directory().is_none()) {
                memo.directories.remove(&inode);
            }
        }
        for inode in order(&touched, nodes) {
            let Some(node) = nodes.get(inode) else { continue };
            let Some(directory) = node.directory() else { continue };
            let groups = match memo.directories.get(&inode) {
                Some(known) => memo.regrouped(directory, known, touched.names(inode)),
                None => memo.grouped(directory),
            };
            memo.directories.insert(inode, Groups { hash: directory_hash(node, &groups), groups: Arc::new(groups) });
        }
        memo
    }

    /// Returns the hash of what an entry leads to; directories must be hashed before those above them.
    fn child_hash(&self, inode: u64) -> Hash {
        let of_directory = || self.directories.get(&inode).map(|known| known.hash);
        self.nodes.get(inode).and_then(|node| node.hash().or_else(of_directory)).unwrap_or(Hash::ZERO)
    }

    fn grouped(&self, directory: &Directory) -> Vec<Group> {
        let boundaries = directory.entries.keys().filter(|name| is_boundary(name)).cloned().map(Some);
        let begins = std::iter::once(None).chain(boundaries);
        let mut groups: Vec<Group> = begins.map(|begin| Group { begin, hash: Hash::ZERO }).collect();
        (0..groups.len()).for_each(|place| self.hash_group(directory, &mut groups, place));
        groups
    }

    /// Hashes those groups in which names changed.
    fn regrouped(&self, directory: &Directory, known: &Groups, names: &[FileName]) -> Vec<Group> {
        let mut groups = known.groups.to_vec();
        let mut split = Vec::new();
        for name in names {
            let place = find_group(&groups, name);
            let is_begin = groups[place].begin.as_ref() == Some(name);
            let must_begin = is_boundary(name) && directory.entries.contains_key(&**name);
            if must_begin && !is_begin {
                groups.insert(place + 1, Group { begin: Some(name.clone()), hash: Hash::ZERO });
                split.push(name);
            } else if is_begin && !must_begin {
                groups.remove(place);
            }
        }
        let mut stale: Vec<usize> = names.iter().map(|name| find_group(&groups, name)).collect();
        // A new group took its names from the one before it, whose hash changed with that.
        stale.extend(split.into_iter().map(|name| find_group(&groups, name) - 1));
        stale.sort_unstable();
        stale.dedup();
        stale.into_iter().for_each(|place| self.hash_group(directory, &mut groups, place));
        groups
    }

    /// Hashes the names from a boundary to the next.
    fn hash_group(&self, directory: &Directory, groups: &mut [Group], place: usize) {
        let end = groups.get(place + 1).and_then(|next| next.begin.as_deref());
        let from = groups[place].begin.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let mut bytes = Vec::with_capacity(1024);
        for (name, inode) in directory.entries.range::<_, [u8]>((from, end.map_or(Bound::Unbounded, Bound::Excluded))) {
            // The length comes first, as in a field of a hasher, or two lists of names could give the same bytes.
            bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(&self.child_hash(*inode).0);
        }
        groups[place].hash = Hash::digest(&GROUP_CONTEXT, &bytes);
    }
}

/// Returns the place of the group that a name is in: the last that does not begin behind it.
fn find_group(groups: &[Group], name: &FileName) -> usize {
    // At least 1, because the first group begins with none, which is less than any name.
    groups.partition_point(|group| group.begin.as_ref() <= Some(name)) - 1
}

fn directory_hash(node: &FileNode, groups: &[Group]) -> Hash {
    let mut bytes = Vec::with_capacity(32 * (groups.len() + 1));
    bytes.extend_from_slice(&node.hash_without_entries().0);
    groups.iter().for_each(|group| bytes.extend_from_slice(&group.hash.0));
    Hash::digest(&DIRECTORY_CONTEXT, &bytes)
}

/// Returns the touched directories that a name leads to, each before those above it.
fn order(touched: &TouchedNames, nodes: &Nodes) -> Vec<u64> {
    let mut depths = HashMap::from([(ROOT, 0)]);
    for inode in touched.directories() {
        let (mut at, mut chain) = (inode, Vec::new());
        // Stops at a known depth, so that a long chain is climbed once for all directories in it.
        while !depths.contains_key(&at)
            && let Some((above, _)) = nodes.get(at).and_then(|node| node.names().next())
        {
            chain.push(at);
            at = above;
        }
        if let Some(depth) = depths.get(&at).copied() {
            depths.extend(chain.into_iter().rev().zip(depth + 1..));
        }
    }
    let mut order: Vec<(u32, u64)> =
        touched.directories().filter_map(|inode| Some((*depths.get(&inode)?, inode))).collect();
    order.sort_unstable_by_key(|(depth, inode)| (Reverse(*depth), *inode));
    order.into_iter().map(|(_, inode)| inode).collect()
}

/// Returns whether a group begins with a name. FNV-1a, with its bits mixed, as that of short names
/// hardly reaches the upper ones.
fn is_boundary(name: &[u8]) -> bool {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, step);
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> (64 - GROUP_BITS) == 0
}
