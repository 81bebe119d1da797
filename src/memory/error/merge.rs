//! Why a merge, a rollback or an operation on files is not done.

use thiserror::Error;

use super::{Advice, Kind};
use crate::object::Hash;

/// Why a merge is not done, or a conflict not resolved.
#[derive(Debug, Clone, Error)]
pub enum MergeError {
    /// Both sides changed something, and nobody decided. Kind `Conflict`.
    #[error("records or files changed on both sides wait for a decision, {count} in all: {shown}")]
    Conflicts {
        /// How many wait; those that a strategy decided are not counted.
        count: usize,
        /// The first five of them, by id or path.
        shown: String,
        /// Whether some of them are files for which a write decides.
        has_files: bool,
        /// Whether some of them are directories outside of units, for which no write decides.
        has_directories: bool,
        /// Whether some of them are units, for which no write decides.
        has_units: bool,
    },
    /// What a revert, undo or redo takes back was changed again since, and nobody decided; no `resolve` does. Kind `Conflict`.
    #[error("records or files changed on both sides wait for a decision, {count} in all: {shown}")]
    RevertConflicts {
        /// How many wait; those that a strategy decided are not counted.
        count: usize,
        /// The first five of them, by id or path.
        shown: String,
    },
    /// What was to be resolved is not in conflict. Kind `NotFound`.
    #[error("{0} is not in conflict")]
    NoConflict(String),
    /// What was to be resolved is the path of several files: bytes that are not UTF-8 are replaced in it. Kind `Invalid`.
    #[error("{0} stands for several files in conflict")]
    SeveralFiles(String),
    /// The side that was chosen needs the place of a directory. Kind `Invalid`.
    #[error("{0} can't be resolved so: the other side has a directory there that holds something")]
    FolderInTheWay(String),
    /// A process has a file of a unit open for writing in the branch that would get another version of it. Kind `Busy`.
    #[error("files/{0} is open for writing in the branch that would get another version of it")]
    UnitInUse(String),
    /// The parent was changed whenever the merge had been worked out. Kind `Busy`.
    #[error("the parent changes faster than the merge can be worked out")]
    ParentMoves,
    /// The plan is not the one that was agreed to. Kind `Busy`.
    #[error("the plan is no longer {wanted}: it is {found}")]
    PlanChanged {
        /// The hash of the plan that was asked for.
        wanted: Hash,
        /// The hash of the plan as it is now, which can be asked for next.
        found: Hash,
    },
    /// Names can't be looked up while a rename takes place, so it may not take long. Kind `Busy`.
    #[error("the merge takes more than a rename may take: meanwhile no name could be looked up beside it")]
    TooLong,
    /// The entry did not change the content of the branch. Kind `Invalid`.
    #[error("{0} is no entry that changed records or files of this branch")]
    NotRevertible(String),
    /// The caller has done nothing in the branch that is not undone yet. Kind `Invalid`.
    #[error("there is nothing left to undo: you changed nothing in this branch that is kept and not undone yet")]
    NothingToUndo,
    /// The caller has undone nothing in the branch that is not redone yet. Kind `Invalid`.
    #[error("there is nothing to redo: you have undone nothing in this branch that is kept and not redone yet")]
    NothingToRedo,
    /// No pattern of what to roll back. Kind `Invalid`.
    #[error("'{0}' is no pattern of files to roll back")]
    Pattern(String),
    /// No file matches what to roll back. Kind `NotFound`.
    #[error("nothing matches {0}, neither in the branch nor in the state that it was to go back to")]
    NoMatch(String),
}

impl MergeError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            MergeError::Conflicts { has_files, has_directories, has_units, .. } => {
                Advice::new(Kind::Conflict, "conflicts", conflicts_hint(*has_files, *has_directories, *has_units))
            }
            MergeError::RevertConflicts { .. } => Advice::new(
                Kind::Conflict,
                "conflicts",
                "set the branch's config/strategy to another one than manual for the time, or, where a file waits by its rule or as a \
                 unit, a rule with a strategy in config/rules, then try again: resolve decides conflicts with the parent alone",
            ),
            MergeError::NoConflict(_) => Advice::new(
                Kind::NotFound,
                "no_conflict",
                "see the branch's file conflicts, or run engramfs merge --dry-run TARGET, which lists them",
            ),
            MergeError::SeveralFiles(_) => Advice::new(
                Kind::Invalid,
                "several_files",
                "write the path of one as conflicts lists it; of two that read alike, rename one in the branch first",
            ),
            MergeError::FolderInTheWay(_) => Advice::new(
                Kind::Invalid,
                "folder_in_the_way",
                "move away what is in the directory, or resolve for the other side",
            ),
            MergeError::UnitInUse(_) => Advice::new(
                Kind::Busy,
                "unit_in_use",
                "close it there, or end the program that has it open, then try again",
            ),
            MergeError::ParentMoves => Advice::new(
                Kind::Busy,
                "parent_moves",
                "try again when less is written to it, or merge in smaller steps",
            ),
            MergeError::PlanChanged { .. } => Advice::new(
                Kind::Busy,
                "plan_changed",
                "see with merge --dry-run what it would do now, then ask for that plan",
            ),
            MergeError::TooLong => Advice::new(
                Kind::Busy,
                "merge_too_long",
                "write merge to the branch's ctl, or move it again in a while: it is worked out in the background",
            ),
            MergeError::NotRevertible(_) => Advice::new(
                Kind::Invalid,
                "not_revertible",
                "write the number or the hash of a commit, files, merge, pull, promote, rollback or revert of this branch, as log has it",
            ),
            MergeError::NothingToUndo => Advice::new(
                Kind::Invalid,
                "nothing_to_undo",
                "revert an entry of others by its number, or roll the whole branch back; log has the entries",
            ),
            MergeError::NothingToRedo => {
                Advice::new(Kind::Invalid, "nothing_to_redo", "undo something first, which redo can then do again")
            }
            MergeError::Pattern(_) => {
                Advice::new(Kind::Invalid, "bad_pattern", "write files/ and a path or pattern, such as files/notes/**")
            }
            MergeError::NoMatch(_) => Advice::new(
                Kind::NotFound,
                "no_match",
                "name files that are there: diff with that state lists those that differ from it",
            ),
        }
    }
}

fn conflicts_hint(has_files: bool, has_directories: bool, has_units: bool) -> String {
    let files = match (has_files, has_units) {
        (true, false) => "; a file is resolved as well by writing it in the branch",
        (true, true) => "; a file that is in no unit is resolved as well by writing it in the branch",
        (false, _) => "",
    };
    let directories =
        if has_directories { "; what is written in a directory resolves nothing of the directory" } else { "" };
    let units = if has_units {
        "; a unit is taken whole from one side: for other content write that in the branch first, then resolve it for \
         the child"
    } else {
        ""
    };
    format!(
        "see the branch's file conflicts, then write 'resolve ID child' or 'resolve ID parent' to its ctl, or run \
         engramfs resolve TARGET ID child|parent{files}{directories}{units}"
    )
}

/// Which rule of a branch forbids an operation on its files.
#[derive(Debug, Clone, Error)]
pub enum RuleRefusal {
    /// The rule names who may write, and not them. Kind `Denied`.
    #[error("uid {uid} may not write files/{path}: the rule '{pattern}' names others")]
    Writer {
        /// The uid that wanted to write.
        uid: u32,
        /// The file, below `files/`.
        path: String,
        /// The rule's pattern.
        pattern: String,
    },
    /// The rule lets files grow only. Kind `NotPermitted`.
    #[error("files/{path} may only be appended to: the rule '{pattern}' says so")]
    Append {
        /// The file, below `files/`.
        path: String,
        /// The rule's pattern.
        pattern: String,
    },
}

impl RuleRefusal {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            RuleRefusal::Writer { .. } => {
                Advice::new(Kind::Denied, "write_rule", "write elsewhere, or have the owner change config/rules")
            }
            RuleRefusal::Append { .. } => {
                Advice::new(Kind::NotPermitted, "append_rule", "append to it, or have the owner change config/rules")
            }
        }
    }
}
