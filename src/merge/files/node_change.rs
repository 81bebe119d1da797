//! One file or directory on three sides, and what to do with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node_map::{DirEntryKey, NodeId};
use super::{ContentVersion, Side};
use crate::object::{Hash, Time};
use crate::workspace::{FileKind, FileNode};

/// A file or directory that both sides changed, and what became of it. Sides are those of
/// [`MergeTrees`](super::MergeTrees): in a pull the child is the parent that users know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDecision {
    /// Its path in the child, or where it is not there in the parent, or else in the base.
    pub path: Vec<u8>,
    /// The hash of what the base has, as [`Tree::node_hash`](crate::workspace::Tree::node_hash) gives it.
    pub base: Option<Hash>,
    /// The same of the child.
    pub child: Option<Hash>,
    /// The same of the parent.
    pub parent: Option<Hash>,
    /// Which side was taken where they contradict; `Both` if they do not; `None` if it waits.
    pub decision: Option<Side>,
}

/// What a file or directory is on one side.
#[derive(Clone)]
pub(super) struct NodeVersion {
    /// The node, with the content and the attributes that merge.
    pub node: Arc<FileNode>,
    /// Its names, each with the directory that has it; those where nothing merges left out.
    pub places: BTreeSet<DirEntryKey>,
    /// That of all below it, where it is a directory.
    pub hash: Option<Hash>,
    /// The path of the first of them, by which rules are found.
    pub path: Vec<u8>,
}

/// One file on three sides. What stands only where nothing merges is not there.
pub(super) struct MergeItem {
    /// The same file on all sides, whatever its numbers there.
    pub id: NodeId,
    /// `None` if neither began with it.
    pub base: Option<NodeVersion>,
    /// `None` if the branch that gives does not have it.
    pub child: Option<NodeVersion>,
    /// `None` if the branch that receives does not have it.
    pub parent: Option<NodeVersion>,
}

/// The content to give a file.
pub(super) enum NewBody {
    /// What it has in the result so far: the parent's.
    Keep,
    /// The child's, which the patch names by its inode.
    Child,
    /// These bytes, which neither side has, so that the patch holds them.
    Merged(Vec<u8>),
}

/// What to do with one file in the parent's tree.
pub(super) struct NodeChange {
    /// The file, which may have other inode numbers on each side.
    pub id: NodeId,
    /// Whether the parent does not have it, so that it is made from the child's.
    pub is_new: bool,
    /// Names to take away, each with its directory.
    pub remove: Vec<DirEntryKey>,
    /// Names to give, each with its directory.
    pub add: Vec<DirEntryKey>,
    /// Where its content comes from.
    pub body: NewBody,
    /// Permission bits to have; none leaves them as they are.
    pub mode: Option<u32>,
    /// All extended attributes to have; none leaves them as they are.
    pub xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl NodeChange {
    /// Returns the change that leaves a file as it is, for others to be made of.
    pub(super) fn empty(id: NodeId) -> NodeChange {
        NodeChange {
            id,
            is_new: false,
            remove: Vec::new(),
            add: Vec::new(),
            body: NewBody::Keep,
            mode: None,
            xattrs: None,
        }
    }
}

impl MergeItem {
    /// Returns whether it is a directory on the first side that has it, of child, parent and base.
    pub(super) fn is_directory(&self) -> bool {
        let seen = self.child.as_ref().or(self.parent.as_ref()).or(self.base.as_ref());
        seen.is_some_and(|seen| seen.node.kind() == FileKind::Directory)
    }

    /// Returns its path on the first side that has it, of child, parent and base.
    pub(super) fn path(&self) -> Option<&[u8]> {
        self.child.as_ref().or(self.parent.as_ref()).or(self.base.as_ref()).map(|seen| seen.path.as_slice())
    }

    /// Returns what a decision on it says of its versions; `decision` is put in as it is.
    pub(super) fn to_decision(&self, decision: Option<Side>) -> FileDecision {
        let hash = |seen: &Option<NodeVersion>| seen.as_ref().and_then(|seen| seen.hash);
        let path = self.path().unwrap_or_default().to_vec();
        FileDecision { path, base: hash(&self.base), child: hash(&self.child), parent: hash(&self.parent), decision }
    }

    /// Returns the change that gives the parent the child's file with all its names.
    pub(super) fn add_all_names(&self, child: &NodeVersion) -> NodeChange {
        NodeChange { is_new: true, add: child.places.iter().cloned().collect(), ..NodeChange::empty(self.id) }
    }

    /// Returns the change that takes all names away that the parent has for it.
    pub(super) fn remove_all_names(&self, parent: &NodeVersion) -> NodeChange {
        NodeChange { remove: parent.places.iter().cloned().collect(), ..NodeChange::empty(self.id) }
    }
}

impl NodeVersion {
    /// Returns whether nothing changed: neither the node itself nor its places.
    pub(super) fn is_unchanged_from(&self, base: &NodeVersion) -> bool {
        let same_attributes = self.node.mode == base.node.mode && user_xattrs(&self.node).eq(user_xattrs(&base.node));
        same_attributes && self.places == base.places && same_body(&self.node, &base.node)
    }

    /// Returns a content of it as mergers know it.
    pub(super) fn content_version<'a>(&self, bytes: &'a [u8]) -> ContentVersion<'a> {
        ContentVersion { bytes, modified: self.node.mtime }
    }

    /// Returns when a side changed it, as `newest-wins` counts: mtime where the content differs from the base, else
    /// ctime.
    pub(super) fn changed_at(&self, base: &NodeVersion) -> Time {
        if same_body(&self.node, &base.node) { self.node.ctime } else { self.node.mtime }
    }
}

/// Returns whether two files are of one kind and hold the same, whatever their modes and attributes.
pub fn same_body(one: &FileNode, other: &FileNode) -> bool {
    one.kind() == other.kind()
        && one.content_hash() == other.content_hash()
        && one.target() == other.target()
        && one.rdev() == other.rdev()
}

/// Iterates over the extended attributes that merge: those of the namespace `user.`.
pub(super) fn user_xattrs(node: &FileNode) -> impl Iterator<Item = (&[u8], &[u8])> {
    node.xattrs().filter(|(name, _)| name.starts_with(b"user."))
}
