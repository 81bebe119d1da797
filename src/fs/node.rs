//! What can stand at a path.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::files::FilesOf;
use crate::memory::{BranchId, Document, Export, FILES_ROOT, HistoryFile, Setting, Time, View};

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
    /// What every branch and checkpoint has.
    Control(View, ControlNode),
    /// `vectors/ID.json`.
    Record(View, Arc<str>),
    /// Something in `files/` or `scratch/`, by its inode in the tree; the root is that directory itself.
    File(FilesOf, u64),
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

/// What stands in `shared/`, as a branch shows it.
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
    /// `log/after/`.
    AfterDirectory,
    /// The entries after one.
    After(u64),
    /// `log/last/`.
    LastDirectory,
    /// The last entries, so many.
    Last(u64),
    /// `log/closed/`.
    ClosedDirectory,
    /// The log of a branch that has ended, by its name and the entry that ended it.
    Closed(Arc<str>),
    /// Its entries.
    ClosedEntries(Arc<str>),
    /// `signals/`.
    Signals,
    /// `events.jsonl`.
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

/// What stands in `shared/`.
const SHARED: [(&str, SharedNode); 3] =
    [("log", SharedNode::Log), ("signals", SharedNode::Signals), ("events.jsonl", SharedNode::Events)];

impl SharedNode {
    /// Returns what stands in `shared/` with its names.
    pub fn all() -> impl Iterator<Item = (&'static str, SharedNode)> {
        SHARED.into_iter()
    }

    /// Returns the files of `log/` with their names.
    pub fn log_files() -> impl Iterator<Item = (&'static str, SharedNode)> {
        LOG_FILES.into_iter()
    }

    /// Tells whether it is a directory.
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

/// The fixed names of a branch's directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ControlNode {
    /// `vectors/`: the records.
    Vectors,
    /// `branches/`: the child branches.
    Branches,
    /// `checkpoints/`, where mkdir(2) takes one.
    Checkpoints,
    /// `search/`: each name in it is a query.
    Search,
    /// `at/`: earlier states.
    At,
    /// `proposals/`: what child branches propose.
    Proposals,
    /// Of a proposal alone.
    Plan,
    /// `export/`.
    Exports,
    /// `config/`: a file for each setting.
    Config,
    /// `shared/`: the log and the signals of all branches.
    Shared,
    /// `query`, which takes queries and gives their answers.
    Query,
    /// `ingest`, which takes many records in one commit.
    Ingest,
    /// `ctl`, which takes verbs.
    Ctl,
    /// `errors`: what was refused last.
    Errors,
    /// `branches.jsonl`.
    BranchList,
    /// `lease`, held as long as it is open.
    Lease,
    /// A document that changes with the branch alone.
    Document(Document),
    /// `lineage` or `events.jsonl`.
    History(HistoryFile),
}

/// The directory of a branch, in the order of its listing. A new subtree is a line here, a [`FsNode`]
/// and its own file in this module.
const FIXED: [(&str, ControlNode); 21] = [
    ("README.md", ControlNode::Document(Document::Readme)),
    ("vectors", ControlNode::Vectors),
    ("branches", ControlNode::Branches),
    ("branches.jsonl", ControlNode::BranchList),
    ("lease", ControlNode::Lease),
    ("checkpoints", ControlNode::Checkpoints),
    ("search", ControlNode::Search),
    ("shared", ControlNode::Shared),
    ("at", ControlNode::At),
    ("proposals", ControlNode::Proposals),
    ("export", ControlNode::Exports),
    ("query", ControlNode::Query),
    ("ingest", ControlNode::Ingest),
    ("ctl", ControlNode::Ctl),
    ("config", ControlNode::Config),
    ("status", ControlNode::Document(Document::Status)),
    ("lineage", ControlNode::History(HistoryFile::Lineage)),
    ("diff", ControlNode::Document(Document::Diff)),
    ("conflicts", ControlNode::Document(Document::Conflicts)),
    ("events.jsonl", ControlNode::History(HistoryFile::Events)),
    ("errors", ControlNode::Errors),
];

/// What a proposal has beside these.
const PLAN: (&str, ControlNode) = ("plan", ControlNode::Plan);

/// The files of `export/`.
const EXPORTS: [(&str, Export); 3] =
    [("vectors.npy", Export::Vectors), ("ids.txt", Export::Ids), ("records.jsonl", Export::Records)];

impl ControlNode {
    /// Returns what every view has, with its names, in the order of a listing.
    pub fn all() -> impl Iterator<Item = (&'static str, ControlNode)> {
        FIXED.into_iter()
    }

    /// Returns what the directory of a view has.
    pub fn of_view(view: &View) -> impl Iterator<Item = (&'static str, ControlNode)> {
        let plan = matches!(view, View::Proposal(..)).then_some(PLAN);
        ControlNode::all().chain(plan)
    }

    /// Returns what has a name in the directory of a view.
    pub fn from_name(view: &View, name: &str) -> Option<ControlNode> {
        ControlNode::of_view(view).find_map(|(known, fixed)| (known == name).then_some(fixed))
    }

    /// Returns its name in the directory.
    pub fn name(self) -> &'static str {
        FIXED.into_iter().chain([PLAN]).find_map(|(name, fixed)| (fixed == self).then_some(name)).unwrap_or_default()
    }

    /// Tells whether it is a directory.
    pub fn is_directory(self) -> bool {
        match self {
            ControlNode::Vectors
            | ControlNode::Branches
            | ControlNode::Checkpoints
            | ControlNode::Search
            | ControlNode::At
            | ControlNode::Proposals
            | ControlNode::Exports
            | ControlNode::Shared
            | ControlNode::Config => true,
            ControlNode::Query
            | ControlNode::Ingest
            | ControlNode::Ctl
            | ControlNode::Errors
            | ControlNode::BranchList
            | ControlNode::Lease
            | ControlNode::Plan
            | ControlNode::Document(_)
            | ControlNode::History(_) => false,
        }
    }

    /// Returns the permission bits. Everybody who reaches a branch may fork it, and only the owner
    /// of a child may take it away again.
    pub fn mode(self) -> u32 {
        match self {
            ControlNode::Branches => 0o1777,
            ControlNode::Vectors
            | ControlNode::Checkpoints
            | ControlNode::Search
            | ControlNode::At
            | ControlNode::Proposals
            | ControlNode::Exports
            | ControlNode::Shared
            | ControlNode::Config => 0o755,
            // Everybody may write: each query and verb checks its caller's rights itself.
            ControlNode::Query | ControlNode::Ctl => 0o666,
            ControlNode::Ingest => 0o644,
            // For the owner alone: holding the lease says that a process of the owner is alive.
            ControlNode::Lease => 0o600,
            ControlNode::Errors
            | ControlNode::BranchList
            | ControlNode::Plan
            | ControlNode::Document(_)
            | ControlNode::History(_) => 0o444,
        }
    }
}

/// Returns the files of `export/` with their names.
pub(super) fn exports() -> impl Iterator<Item = (&'static str, Export)> {
    EXPORTS.into_iter()
}

impl FsNode {
    /// Returns the directory of a view; `taken` as of [`FsNode::Checkpoint`].
    pub fn of_view(view: &View, taken: Time) -> FsNode {
        match view {
            View::Branch(branch) => FsNode::Branch(*branch),
            View::Checkpoint(branch, label) => FsNode::Checkpoint { branch: *branch, label: label.clone(), taken },
            View::At(branch, entry) => FsNode::At { branch: *branch, entry: *entry },
            View::Proposal(branch, entry) => FsNode::Proposal { branch: *branch, entry: *entry },
        }
    }

    /// Returns the state that the node shows something of; nothing for the mount itself.
    pub fn view(&self) -> Option<View> {
        match self {
            FsNode::Mount => None,
            FsNode::Branch(branch) | FsNode::Temporary(branch, _) => Some(View::Branch(*branch)),
            FsNode::File(of, _) => Some(of.view.clone()),
            FsNode::Checkpoint { branch, label, .. } => Some(View::Checkpoint(*branch, label.clone())),
            FsNode::At { branch, entry } => Some(View::At(*branch, *entry)),
            FsNode::Proposal { branch, entry } => Some(View::Proposal(*branch, *entry)),
            FsNode::Control(view, _)
            | FsNode::Record(view, _)
            | FsNode::Query(view, _)
            | FsNode::Export(view, _)
            | FsNode::Setting(view, _)
            | FsNode::Shared(view, _)
            | FsNode::Signal(view, ..) => Some(view.clone()),
        }
    }

    /// Tells whether it is a directory, as far as the node alone says that: of `files/` and `scratch/` it knows the
    /// roots.
    pub fn is_directory(&self) -> bool {
        match self {
            FsNode::Mount | FsNode::Branch(_) => true,
            FsNode::Checkpoint { .. } | FsNode::At { .. } | FsNode::Proposal { .. } => true,
            FsNode::Control(_, fixed) => fixed.is_directory(),
            FsNode::Shared(_, shared) => shared.is_directory(),
            // The tree knows which other inodes are directories.
            FsNode::File(_, inode) => *inode == FILES_ROOT,
            FsNode::Record(..)
            | FsNode::Temporary(..)
            | FsNode::Query(..)
            | FsNode::Export(..)
            | FsNode::Setting(..)
            | FsNode::Signal(..) => false,
        }
    }

    /// Tells whether a write to it may take long, so that no two handles should share a number.
    pub fn needs_own_inode(&self) -> bool {
        matches!(
            self,
            FsNode::Control(_, ControlNode::Query | ControlNode::Ctl | ControlNode::Ingest)
                | FsNode::Shared(_, SharedNode::Append)
        )
    }

    /// Tells whether stat(2) shows the length 0, as in /proc, whatever can be read.
    pub fn shows_no_length(&self) -> bool {
        match self {
            FsNode::Query(..) => true,
            FsNode::Shared(_, shared) => !matches!(
                shared,
                SharedNode::Entries | SharedNode::ClosedEntries(_) | SharedNode::Cursor | SharedNode::Events
            ),
            FsNode::Control(_, ControlNode::Query | ControlNode::Ingest | ControlNode::Ctl) => true,
            FsNode::Control(_, ControlNode::Errors | ControlNode::BranchList) => true,
            FsNode::Control(_, ControlNode::Lease | ControlNode::Plan) => true,
            FsNode::Control(_, ControlNode::Document(document)) => {
                matches!(document, Document::Diff | Document::Conflicts)
            }
            _ => false,
        }
    }

    /// Returns whose file it is and its inode, where it is one of `files/` or `scratch/`.
    pub fn file(&self) -> Option<(&FilesOf, u64)> {
        match self {
            FsNode::File(of, inode) => Some((of, *inode)),
            _ => None,
        }
    }

    /// Returns the path below the branch's directory, as `errors` shows it.
    pub fn path(&self) -> String {
        let inside = match self {
            FsNode::Mount | FsNode::Branch(_) => String::new(),
            FsNode::Checkpoint { .. } | FsNode::At { .. } | FsNode::Proposal { .. } => String::new(),
            FsNode::Control(_, fixed) => fixed.name().to_owned(),
            FsNode::Record(_, id) => format!("vectors/{id}.json"),
            FsNode::Temporary(..) => "vectors".to_owned(),
            FsNode::File(of, _) => of.area.name().to_owned(),
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

    /// Returns a number that is the node's own for as long as this process lives, but for
    /// collisions of 62 bits: nothing has to be remembered for the names of a listing.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        (hasher.finish() >> 2).max(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::files::Area;
    use crate::memory::check_name;

    #[test]
    fn no_branch_can_have_the_name_of_a_node() {
        for name in ControlNode::all().map(|(name, _)| name).chain(Area::ALL.map(Area::name)) {
            assert!(check_name(name).is_err(), "{name} belongs into RESERVED of branch/names.rs");
        }
    }

    #[test]
    fn every_fixed_name_leads_to_its_node_and_back() {
        for (name, fixed) in ControlNode::all() {
            assert_eq!(ControlNode::from_name(&View::Branch(BranchId(1)), name), Some(fixed));
            assert_eq!(fixed.name(), name);
        }
        assert_eq!(ControlNode::from_name(&View::Branch(BranchId(1)), "plan"), None);
        assert_eq!(ControlNode::from_name(&View::Proposal(BranchId(1), 7), "plan"), Some(ControlNode::Plan));
    }

    #[test]
    fn paths_are_those_below_the_branch() {
        let (branch, checkpoint) = (View::Branch(BranchId(7)), View::Checkpoint(BranchId(7), "v1".into()));
        assert_eq!(FsNode::Record(branch.clone(), "a".into()).path(), "vectors/a.json");
        assert_eq!(FsNode::Record(checkpoint.clone(), "a".into()).path(), "checkpoints/v1/vectors/a.json");
        assert_eq!(FsNode::of_view(&checkpoint, Time(1)).path(), "checkpoints/v1");
        assert_eq!(FsNode::Setting(branch.clone(), Setting::Strategy).path(), "config/strategy");
        assert_eq!(FsNode::Export(branch, Export::Vectors).path(), "export/vectors.npy");
    }

    #[test]
    fn a_checkpoint_taken_again_is_another_node() {
        let view = View::Checkpoint(BranchId(1), "v1".into());
        assert_ne!(FsNode::of_view(&view, Time(1)).fingerprint(), FsNode::of_view(&view, Time(2)).fingerprint());
        assert_eq!(FsNode::of_view(&view, Time(1)).fingerprint(), FsNode::of_view(&view, Time(1)).fingerprint());
    }
}
