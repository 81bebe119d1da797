//! One file or folder on three sides, and what to do with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node_map::{EntryKey, Id};
use super::{ContentVersion, Side};
use crate::object::{Hash, Time};
use crate::workspace::{FileKind, FileNode};

/// A file or folder that both sides changed, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDecision {
    /// Its path in the child, or where it is not there in the parent, or else in the base.
    pub path: Vec<u8>,
    /// The hash of what the base has, as [`Tree::hash_of`](crate::workspace::Tree::hash_of) gives it.
    pub base: Option<Hash>,
    /// The same of the child.
    pub child: Option<Hash>,
    /// The same of the parent.
    pub parent: Option<Hash>,
    /// Which side was taken where they contradict; `Both` where they do not; none when it waits.
    pub decision: Option<Side>,
}

/// What a file is on one side.
#[derive(Clone)]
pub(super) struct NodeVersion {
    pub node: Arc<FileNode>,
    pub places: BTreeSet<EntryKey>,
    pub hash: Option<Hash>,
    pub path: Vec<u8>,
}

/// One file on three sides. What stands only where nothing merges is not there.
pub(super) struct MergeItem {
    pub id: Id,
    pub base: Option<NodeVersion>,
    pub child: Option<NodeVersion>,
    pub parent: Option<NodeVersion>,
}

/// The content to give a file.
pub(super) enum NewBody {
    /// What it has in the result so far.
    Keep,
    /// The child's.
    Child,
    /// These bytes.
    Merged(Vec<u8>),
}

/// What to do with one file in the parent's tree.
pub(super) struct NodeChange {
    pub id: Id,
    /// Whether the parent does not have it.
    pub is_new: bool,
    pub remove: Vec<EntryKey>,
    pub add: Vec<EntryKey>,
    pub body: NewBody,
    pub mode: Option<u32>,
    /// All extended attributes to have; none leaves them as they are.
    pub xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl NodeChange {
    pub(super) fn nothing(id: Id) -> NodeChange {
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
    pub(super) fn is_folder(&self) -> bool {
        let seen = self.child.as_ref().or(self.parent.as_ref()).or(self.base.as_ref());
        seen.is_some_and(|seen| seen.node.kind() == FileKind::Directory)
    }

    pub(super) fn path(&self) -> Option<&[u8]> {
        self.child.as_ref().or(self.parent.as_ref()).or(self.base.as_ref()).map(|seen| seen.path.as_slice())
    }

    pub(super) fn undecided(&self, decision: Option<Side>) -> FileDecision {
        let hash = |seen: &Option<NodeVersion>| seen.as_ref().and_then(|seen| seen.hash);
        let path = self.path().unwrap_or_default().to_vec();
        FileDecision { path, base: hash(&self.base), child: hash(&self.child), parent: hash(&self.parent), decision }
    }

    pub(super) fn added(&self, child: &NodeVersion) -> NodeChange {
        NodeChange { is_new: true, add: child.places.iter().cloned().collect(), ..NodeChange::nothing(self.id) }
    }

    pub(super) fn removed(&self, parent: &NodeVersion) -> NodeChange {
        NodeChange { remove: parent.places.iter().cloned().collect(), ..NodeChange::nothing(self.id) }
    }
}

impl NodeVersion {
    /// Returns whether nothing changed: neither the thing itself nor where it stands.
    pub(super) fn is_as(&self, base: &NodeVersion) -> bool {
        let same_attributes = self.node.mode == base.node.mode && user_xattrs(&self.node).eq(user_xattrs(&base.node));
        same_attributes && self.places == base.places && same_body(&self.node, &base.node)
    }

    /// Returns a content of it as mergers know it.
    pub(super) fn version<'a>(&self, bytes: &'a [u8]) -> ContentVersion<'a> {
        ContentVersion { bytes, modified: self.node.mtime }
    }

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

pub(super) fn user_xattrs(node: &FileNode) -> impl Iterator<Item = (&[u8], &[u8])> {
    node.xattrs().filter(|(name, _)| name.starts_with(b"user."))
}
