//! What a path can lead to.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::control::{ControlDirectory, ControlFile};
use super::files::FileTreeId;
use crate::memory::{BranchId, Export, FILES_ROOT, Setting, Time, View};

/// Bytes of the longest name; the kernel leaves this check to the file system.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// One thing in the tree. It is named by what it is and not by its path, so that renaming a branch
/// leaves its nodes alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum FsNode {
    /// The directory of all root branches.
    Mount,
    /// The directory of a branch.
    Branch(BranchId),
    /// `taken` tells a checkpoint from a later one of the same label: the kernel never revives a
    /// directory that it saw removed.
    Checkpoint { branch: BranchId, label: Arc<str>, taken: Time },
    /// What a branch was behind an entry.
    At { branch: BranchId, entry: u64 },
    /// What a branch proposed by an entry.
    Proposal { branch: BranchId, entry: u64 },
    /// A directory that every branch and checkpoint has.
    Directory(View, ControlDirectory),
    /// A file that every branch and checkpoint has.
    Control(View, ControlFile),
    /// `vectors/ID.json`.
    Record(View, Arc<str>),
    /// Something in `files/` or `scratch/`, by its inode in the tree; the root is that directory itself.
    File(FileTreeId, u64),
    /// A file in RAM, by its number in the branch.
    Temporary(BranchId, u64),
    /// `search/<text>`.
    Query(View, Arc<str>),
    /// A file of `export/`.
    Export(View, Export),
    /// A file of `config/`.
    Setting(View, Setting),
    /// Something in `shared/`.
    Shared(View, SharedNode),
    /// A signal by its key, and by when that was claimed: a later one of the same key is another.
    Signal(View, Arc<str>, Time),
}

/// An entry of `shared/`, as a branch shows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum SharedNode {
    /// `log/`.
    Log,
    /// `log/append`, which takes entries.
    Append,
    /// `log/entries.jsonl`.
    Entries,
    /// `log/unread`: the entries behind the cursor.
    Unread,
    /// `log/cursor`: how far the branch has read.
    Cursor,
    /// `log/after/`, which lists nothing: every number of an entry is a name.
    AfterDirectory,
    /// `log/after/N`: the entries behind number N, 1,000 at most.
    After(u64),
    /// `log/last/`, which lists nothing: every number but 0 is a name.
    LastDirectory,
    /// `log/last/N`: the last N entries.
    Last(u64),
    /// `log/closed/`: the logs of branches that have ended.
    ClosedDirectory,
    /// The log of a branch that has ended, by its name and the entry that ended it.
    Closed(Arc<str>),
    /// `entries.jsonl` of that log.
    ClosedEntries(Arc<str>),
    /// `signals/`: a file for each signal.
    Signals,
    /// `events.jsonl`: what happens in the log and to the signals.
    Events,
}

/// The files of `shared/log/`.
const LOG_FILES: [(&str, SharedNode); 7] = [
    ("append", SharedNode::Append),
    ("entries.jsonl", SharedNode::Entries),
    ("unread", SharedNode::Unread),
    ("cursor", SharedNode::Cursor),
    ("after", SharedNode::AfterDirectory),
    ("last", SharedNode::LastDirectory),
    ("closed", SharedNode::ClosedDirectory),
];

/// The fixed entries of `shared/`.
const SHARED: [(&str, SharedNode); 3] =
    [("log", SharedNode::Log), ("signals", SharedNode::Signals), ("events.jsonl", SharedNode::Events)];

impl SharedNode {
    /// Returns the fixed entries of `shared/` with their names, in the order of a listing.
    pub fn all() -> impl Iterator<Item = (&'static str, SharedNode)> {
        SHARED.into_iter()
    }

    /// Returns the files of `log/` with their names, in the order of a listing.
    pub fn log_files() -> impl Iterator<Item = (&'static str, SharedNode)> {
        LOG_FILES.into_iter()
    }

    /// Returns whether it holds names; everything else in `shared/` is a file.
    pub fn is_directory(&self) -> bool {
        matches!(
            self,
            SharedNode::Log
                | SharedNode::AfterDirectory
                | SharedNode::LastDirectory
                | SharedNode::ClosedDirectory
                | SharedNode::Closed(_)
                | SharedNode::Signals
        )
    }

    /// Returns the permission bits: entries are appended, and the cursor moved, by the branch's owner, and signals removed by
    /// theirs.
    pub fn mode(&self) -> u32 {
        match self {
            SharedNode::Signals => 0o1777,
            SharedNode::Append | SharedNode::Cursor => 0o644,
            directory if directory.is_directory() => 0o755,
            _ => 0o444,
        }
    }

    /// Returns the path below `shared/`.
    fn path(&self) -> String {
        let fixed = LOG_FILES.iter().find_map(|(name, node)| (node == self).then_some(*name));
        match self {
            SharedNode::Log => "log".to_owned(),
            SharedNode::Signals => "signals".to_owned(),
            SharedNode::Events => "events.jsonl".to_owned(),
            SharedNode::After(entry) => format!("log/after/{entry}"),
            SharedNode::Last(count) => format!("log/last/{count}"),
            SharedNode::Closed(name) => format!("log/closed/{name}"),
            SharedNode::ClosedEntries(name) => format!("log/closed/{name}/entries.jsonl"),
            _ => format!("log/{}", fixed.unwrap_or_default()),
        }
    }
}

/// The files of `export/`.
const EXPORTS: [(&str, Export); 3] =
    [("vectors.npy", Export::Vectors), ("ids.txt", Export::Ids), ("records.jsonl", Export::Records)];

/// Returns the files of `export/` with their names, in the order of a listing.
pub(super) fn exports() -> impl Iterator<Item = (&'static str, Export)> {
    EXPORTS.into_iter()
}

impl FsNode {
    /// Returns the directory of a view; `taken` as for [`FsNode::Checkpoint`].
    pub fn from_view(view: &View, taken: Time) -> FsNode {
        match view {
            View::Branch(branch) => FsNode::Branch(*branch),
            View::Checkpoint(branch, label) => FsNode::Checkpoint { branch: *branch, label: label.clone(), taken },
            View::At(branch, entry) => FsNode::At { branch: *branch, entry: *entry },
            View::Proposal(branch, entry) => FsNode::Proposal { branch: *branch, entry: *entry },
        }
    }

    /// Returns the state that the node shows something of; `None` for the mount itself.
    pub fn view(&self) -> Option<View> {
        match self {
            FsNode::Mount => None,
            FsNode::Branch(branch) | FsNode::Temporary(branch, _) => Some(View::Branch(*branch)),
            FsNode::File(tree_id, _) => Some(tree_id.view.clone()),
            FsNode::Checkpoint { branch, label, .. } => Some(View::Checkpoint(*branch, label.clone())),
            FsNode::At { branch, entry } => Some(View::At(*branch, *entry)),
            FsNode::Proposal { branch, entry } => Some(View::Proposal(*branch, *entry)),
            FsNode::Directory(view, _)
            | FsNode::Control(view, _)
            | FsNode::Record(view, _)
            | FsNode::Query(view, _)
            | FsNode::Export(view, _)
            | FsNode::Setting(view, _)
            | FsNode::Shared(view, _)
            | FsNode::Signal(view, ..) => Some(view.clone()),
        }
    }

    /// Returns whether it is a directory, as far as the node alone says that: of `files/` and `scratch/` it knows the
    /// roots.
    pub fn is_directory(&self) -> bool {
        match self {
            FsNode::Mount | FsNode::Branch(_) => true,
            FsNode::Checkpoint { .. } | FsNode::At { .. } | FsNode::Proposal { .. } => true,
            FsNode::Directory(..) => true,
            FsNode::Shared(_, shared) => shared.is_directory(),
            // For other inodes ask the tree.
            FsNode::File(_, inode) => *inode == FILES_ROOT,
            FsNode::Control(..)
            | FsNode::Record(..)
            | FsNode::Temporary(..)
            | FsNode::Query(..)
            | FsNode::Export(..)
            | FsNode::Setting(..)
            | FsNode::Signal(..) => false,
        }
    }

    /// Returns whether a write to it may take long, so that no two handles should share a number.
    pub fn needs_own_inode(&self) -> bool {
        match self {
            FsNode::Control(_, file) => file.has_slow_writes(),
            _ => matches!(self, FsNode::Shared(_, SharedNode::Append)),
        }
    }

    /// Returns whether stat(2) shows the length 0, as in /proc, whatever can be read.
    pub fn shows_no_length(&self) -> bool {
        match self {
            FsNode::Query(..) => true,
            FsNode::Shared(_, shared) => !matches!(
                shared,
                SharedNode::Entries | SharedNode::ClosedEntries(_) | SharedNode::Cursor | SharedNode::Events
            ),
            FsNode::Control(_, file) => !file.has_length(),
            _ => false,
        }
    }

    /// Returns whose file it is and its inode, where it is one of `files/` or `scratch/`.
    pub fn file(&self) -> Option<(&FileTreeId, u64)> {
        match self {
            FsNode::File(tree_id, inode) => Some((tree_id, *inode)),
            _ => None,
        }
    }

    /// Returns the path below the branch's directory, as `errors` shows it. Of a file of `files/` or `scratch/` it is that
    /// directory, since only its tree knows the rest.
    pub fn path(&self) -> String {
        let inside = match self {
            FsNode::Mount | FsNode::Branch(_) => String::new(),
            FsNode::Checkpoint { .. } | FsNode::At { .. } | FsNode::Proposal { .. } => String::new(),
            FsNode::Directory(_, directory) => directory.name().to_owned(),
            FsNode::Control(_, file) => file.name().to_owned(),
            FsNode::Record(_, id) => format!("vectors/{id}.json"),
            FsNode::Temporary(..) => "vectors".to_owned(),
            FsNode::File(tree_id, _) => tree_id.area.name().to_owned(),
            FsNode::Query(_, text) => format!("search/{text}"),
            FsNode::Export(_, export) => {
                format!(
                    "export/{}",
                    exports().find_map(|(name, found)| (found == *export).then_some(name)).unwrap_or_default()
                )
            }
            FsNode::Setting(_, setting) => format!("config/{}", setting.name()),
            FsNode::Shared(_, shared) => format!("shared/{}", shared.path()),
            FsNode::Signal(_, key, _) => format!("shared/signals/{key}"),
        };
        match self.view() {
            Some(View::Checkpoint(_, label)) => {
                format!("checkpoints/{label}/{inside}").trim_end_matches('/').to_owned()
            }
            Some(View::At(_, entry)) => format!("at/{entry}/{inside}").trim_end_matches('/').to_owned(),
            // The branch above shows it; its name is not known here.
            Some(View::Proposal(_, entry)) => format!("proposal {entry}/{inside}").trim_end_matches('/').to_owned(),
            _ => inside,
        }
    }

    /// Returns a number that is the node's own for as long as this process lives, except for collisions of 62 bits:
    /// nothing has to be remembered for the names of a listing.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        (hasher.finish() >> 2).max(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_below_the_branch() {
        let (branch, checkpoint) = (View::Branch(BranchId(7)), View::Checkpoint(BranchId(7), "v1".into()));
        assert_eq!(FsNode::Record(branch.clone(), "a".into()).path(), "vectors/a.json");
        assert_eq!(FsNode::Record(checkpoint.clone(), "a".into()).path(), "checkpoints/v1/vectors/a.json");
        assert_eq!(FsNode::from_view(&checkpoint, Time(1)).path(), "checkpoints/v1");
        assert_eq!(FsNode::Setting(branch.clone(), Setting::Strategy).path(), "config/strategy");
        assert_eq!(FsNode::Export(branch, Export::Vectors).path(), "export/vectors.npy");
    }

    #[test]
    fn a_checkpoint_taken_again_is_another_node() {
        let view = View::Checkpoint(BranchId(1), "v1".into());
        assert_ne!(FsNode::from_view(&view, Time(1)).fingerprint(), FsNode::from_view(&view, Time(2)).fingerprint());
        assert_eq!(FsNode::from_view(&view, Time(1)).fingerprint(), FsNode::from_view(&view, Time(1)).fingerprint());
    }
}
