//! What can stand at a path.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::files::{Area, FilesOf};
use crate::memory::{BranchId, Document, Export, FILES_ROOT, HistoryFile, Setting, Time, View};

/// One thing in the tree. It is named by what it is and not by its path, so that renaming a branch
/// leaves its nodes alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Node {
    /// The directory of all root branches.
    Mount,
    Branch(BranchId),
    /// `taken` tells a checkpoint from a later one of the same label: the kernel never revives a
    /// directory that it saw removed.
    Checkpoint {
        branch: BranchId,
        label: Arc<str>,
        taken: Time,
    },
    /// What every branch and checkpoint has.
    Fixed(View, Fixed),
    Record(View, Arc<str>),
    /// Something in `files/` or `scratch/`, by its inode in the tree; the root is that directory itself.
    File(FilesOf, u64),
    /// A file in RAM, by its number in the branch.
    Temporary(BranchId, u64),
    /// `search/<text>`.
    Query(View, Arc<str>),
    Export(View, Export),
    Setting(View, Setting),
}

/// The fixed names of a branch's directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Fixed {
    Vectors,
    Branches,
    Checkpoints,
    Search,
    Exports,
    Config,
    Query,
    Ingest,
    Ctl,
    Errors,
    Document(Document),
    History(HistoryFile),
}

/// The directory of a branch, in the order of its listing. A new subtree is a line here, a [`Node`]
/// and its own file in this room.
const FIXED: [(&str, Fixed); 16] = [
    ("README.md", Fixed::Document(Document::Readme)),
    ("vectors", Fixed::Vectors),
    ("branches", Fixed::Branches),
    ("checkpoints", Fixed::Checkpoints),
    ("search", Fixed::Search),
    ("export", Fixed::Exports),
    ("query", Fixed::Query),
    ("ingest", Fixed::Ingest),
    ("ctl", Fixed::Ctl),
    ("config", Fixed::Config),
    ("status", Fixed::Document(Document::Status)),
    ("lineage", Fixed::History(HistoryFile::Lineage)),
    ("diff", Fixed::Document(Document::Diff)),
    ("conflicts", Fixed::Document(Document::Conflicts)),
    ("events.jsonl", Fixed::History(HistoryFile::Events)),
    ("errors", Fixed::Errors),
];

/// The files of `export/`.
const EXPORTS: [(&str, Export); 3] =
    [("vectors.npy", Export::Vectors), ("ids.txt", Export::Ids), ("records.jsonl", Export::Records)];

impl Fixed {
    pub fn all() -> impl Iterator<Item = (&'static str, Fixed)> {
        FIXED.into_iter()
    }

    pub fn from_name(name: &str) -> Option<Fixed> {
        FIXED.into_iter().find_map(|(known, fixed)| (known == name).then_some(fixed))
    }

    pub fn name(self) -> &'static str {
        FIXED.into_iter().find_map(|(name, fixed)| (fixed == self).then_some(name)).unwrap_or_default()
    }

    pub fn is_directory(self) -> bool {
        match self {
            Fixed::Vectors | Fixed::Branches | Fixed::Checkpoints | Fixed::Search | Fixed::Exports | Fixed::Config => {
                true
            }
            Fixed::Query | Fixed::Ingest | Fixed::Ctl | Fixed::Errors | Fixed::Document(_) | Fixed::History(_) => false,
        }
    }

    /// Returns the permission bits. Everybody who reaches a branch may fork it, and only the owner
    /// of a child may take it away again.
    pub fn mode(self) -> u32 {
        match self {
            Fixed::Branches => 0o1777,
            Fixed::Vectors | Fixed::Checkpoints | Fixed::Search | Fixed::Exports | Fixed::Config => 0o755,
            // Each verb checks its caller.
            Fixed::Query | Fixed::Ctl => 0o666,
            Fixed::Ingest => 0o644,
            Fixed::Errors | Fixed::Document(_) | Fixed::History(_) => 0o444,
        }
    }
}

/// Returns the files of `export/` with their names.
pub(super) fn exports() -> impl Iterator<Item = (&'static str, Export)> {
    EXPORTS.into_iter()
}

/// Tells whether a name in `vectors/` is a temporary: one that begins with `.` or lacks `.json`.
pub(super) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') || !name.ends_with(".json")
}

impl Node {
    pub fn of_view(view: &View, taken: Time) -> Node {
        match view {
            View::Branch(branch) => Node::Branch(*branch),
            View::Checkpoint(branch, label) => Node::Checkpoint { branch: *branch, label: label.clone(), taken },
        }
    }

    /// Returns the state that the node shows something of; nothing for the mount itself.
    pub fn view(&self) -> Option<View> {
        match self {
            Node::Mount => None,
            Node::Branch(branch) | Node::Temporary(branch, _) => Some(View::Branch(*branch)),
            Node::File(of, _) => Some(of.view.clone()),
            Node::Checkpoint { branch, label, .. } => Some(View::Checkpoint(*branch, label.clone())),
            Node::Fixed(view, _)
            | Node::Record(view, _)
            | Node::Query(view, _)
            | Node::Export(view, _)
            | Node::Setting(view, _) => Some(view.clone()),
        }
    }

    pub fn is_directory(&self) -> bool {
        match self {
            Node::Mount | Node::Branch(_) | Node::Checkpoint { .. } => true,
            Node::Fixed(_, fixed) => fixed.is_directory(),
            // The tree knows of the others.
            Node::File(_, inode) => *inode == FILES_ROOT,
            Node::Record(..) | Node::Temporary(..) | Node::Query(..) | Node::Export(..) | Node::Setting(..) => false,
        }
    }

    /// Tells whether a write to it may take long, so that no two handles should share a number.
    pub fn stands_apart(&self) -> bool {
        matches!(self, Node::Fixed(_, Fixed::Query | Fixed::Ctl | Fixed::Ingest))
    }

    /// Tells whether stat(2) shows the length 0, as in /proc, whatever can be read.
    pub fn shows_no_length(&self) -> bool {
        match self {
            Node::Query(..) => true,
            Node::Fixed(_, Fixed::Query | Fixed::Ingest | Fixed::Ctl | Fixed::Errors) => true,
            Node::Fixed(_, Fixed::Document(document)) => matches!(document, Document::Diff | Document::Conflicts),
            _ => false,
        }
    }

    /// Tells whether it is of `scratch/`.
    pub fn is_in_ram(&self) -> bool {
        matches!(self, Node::File(of, _) if of.area == Area::Scratch)
    }

    /// Returns the path below the branch's directory, as `errors` shows it.
    pub fn path(&self) -> String {
        let inside = match self {
            Node::Mount | Node::Branch(_) | Node::Checkpoint { .. } => String::new(),
            Node::Fixed(_, fixed) => fixed.name().to_owned(),
            Node::Record(_, id) => format!("vectors/{id}.json"),
            Node::Temporary(..) => "vectors".to_owned(),
            Node::File(of, _) => of.area.name().to_owned(),
            Node::Query(_, text) => format!("search/{text}"),
            Node::Export(_, export) => {
                format!(
                    "export/{}",
                    exports().find_map(|(name, found)| (found == *export).then_some(name)).unwrap_or_default()
                )
            }
            Node::Setting(_, setting) => format!("config/{}", setting.name()),
        };
        match self.view() {
            Some(View::Checkpoint(_, label)) => {
                format!("checkpoints/{label}/{inside}").trim_end_matches('/').to_owned()
            }
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

    #[test]
    fn every_fixed_name_leads_to_its_node_and_back() {
        for (name, fixed) in Fixed::all() {
            assert_eq!(Fixed::from_name(name), Some(fixed));
            assert_eq!(fixed.name(), name);
        }
        assert_eq!(Fixed::from_name("nothing"), None);
    }

    #[test]
    fn paths_are_those_below_the_branch() {
        let (branch, checkpoint) = (View::Branch(BranchId(7)), View::Checkpoint(BranchId(7), "v1".into()));
        assert_eq!(Node::Record(branch.clone(), "a".into()).path(), "vectors/a.json");
        assert_eq!(Node::Record(checkpoint.clone(), "a".into()).path(), "checkpoints/v1/vectors/a.json");
        assert_eq!(Node::of_view(&checkpoint, Time(1)).path(), "checkpoints/v1");
        assert_eq!(Node::Setting(branch.clone(), Setting::Strategy).path(), "config/strategy");
        assert_eq!(Node::Export(branch, Export::Vectors).path(), "export/vectors.npy");
    }

    #[test]
    fn a_checkpoint_taken_again_is_another_node() {
        let view = View::Checkpoint(BranchId(1), "v1".into());
        assert_ne!(Node::of_view(&view, Time(1)).fingerprint(), Node::of_view(&view, Time(2)).fingerprint());
        assert_eq!(Node::of_view(&view, Time(1)).fingerprint(), Node::of_view(&view, Time(1)).fingerprint());
    }

    #[test]
    fn temporaries_are_told_by_their_names() {
        assert!([".a.json.swp", "a.json~", "4913", ".json", "a.JSON"].into_iter().all(is_temporary));
        assert!(!is_temporary("a.json"));
    }
}
