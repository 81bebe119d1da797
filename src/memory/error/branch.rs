//! Why branches, checkpoints and settings stay as they are.

use thiserror::Error;

use super::{Advice, Kind};
use crate::merge::files::RuleError;

/// Why a branch or a checkpoint is not made, renamed or discarded.
#[derive(Debug, Clone, Error)]
pub enum BranchError {
    /// A sibling, another root branch or a closed log has the name. Kind `Exists`.
    #[error("there is a branch {0} already")]
    Exists(String),
    /// The label is taken. Kind `Exists`.
    #[error("the branch has a checkpoint {0} already")]
    CheckpointExists(String),
    /// The branch `main` was to be discarded, which every store has. Kind `NotPermitted`.
    #[error("main was made with the store and can't be discarded")]
    MainStays,
    /// A root branch was to be renamed or moved, by whose name all paths below it begin. Kind `Invalid`.
    #[error("{0} is a root branch, which keeps its name and its place")]
    RootName(String),
    /// A root branch was to be merged, promoted or proposed, or was to pull. Kind `Invalid`.
    #[error("{0} is a root branch and has no parent")]
    NoParent(String),
    /// A verb was asked of a child branch that is for root branches. Kind `NotPermitted`.
    #[error("{verb} is for root branches, and {path} is none")]
    NotRoot {
        /// The verb's word.
        verb: &'static str,
        /// Name path of the branch.
        path: String,
    },
    /// The branch was to end while it has child branches. Kind `NotEmpty`.
    #[error("{path} has child branches: {count}")]
    HasChildren {
        /// Name path of the branch.
        path: String,
        /// How many it has itself, without those below them.
        count: usize,
    },
    /// A fork was to belong to another user from the beginning. Kind `NotPermitted`.
    #[error("only root gives a branch to another user")]
    OnlyRootSetsOwner,
    /// A fork was to begin with two states. Kind `Invalid`.
    #[error("a fork begins with one state, not with two")]
    TwoSources,
    /// No branch with that name was discarded or merged, as far as the caller may know. Kind `NotFound`.
    #[error("no branch {0} was discarded or merged here that is still kept")]
    NoEndedBranch(String),
    /// A branch that seemed expired was written to before it was discarded. Kind `Busy`.
    #[error("the branch was written to")]
    InUse,
    /// The branch was changed whenever something had been worked out for it. Kind `Busy`.
    #[error("the branch changes faster than this can be worked out")]
    Moves,
}

impl BranchError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            BranchError::Exists(_) => Advice::new(Kind::Exists, "exists", "choose another name"),
            BranchError::CheckpointExists(_) => {
                Advice::new(Kind::Exists, "exists", "choose another label, or rmdir that one first")
            }
            BranchError::MainStays => {
                Advice::new(Kind::NotPermitted, "main_stays", "discard its child branches, or remove the store")
            }
            BranchError::RootName(_) => {
                Advice::new(Kind::Invalid, "root_name", "leave it, or make another root branch")
            }
            BranchError::NoParent(_) => {
                Advice::new(Kind::Invalid, "no_parent", "ask for it in a branch under branches/")
            }
            BranchError::NotRoot { .. } => {
                Advice::new(Kind::NotPermitted, "not_a_root_branch", "write it to the ctl of the root branch")
            }
            BranchError::HasChildren { .. } => {
                Advice::new(Kind::NotEmpty, "has_children", "merge or discard them first")
            }
            BranchError::OnlyRootSetsOwner => {
                Advice::new(Kind::NotPermitted, "only_root_gives", "leave out the owner, or have root fork it")
            }
            BranchError::TwoSources => Advice::new(Kind::Invalid, "two_sources", "leave out one of them"),
            BranchError::NoEndedBranch(_) => {
                Advice::new(Kind::NotFound, "no_such_state", "list what there is with engramfs branches --discarded")
            }
            BranchError::InUse => Advice::new(Kind::Busy, "in_use", "wait until it expires"),
            BranchError::Moves => Advice::new(Kind::Busy, "branch_moves", "try again when less is written to it"),
        }
    }
}

/// Why a setting keeps its value.
#[derive(Debug, Clone, Error)]
pub enum SettingError {
    /// The setting has no such value. Kind `Invalid`.
    #[error("'{shown}' is no value for config/{setting}")]
    Value {
        /// Its name in `config/`.
        setting: &'static str,
        /// The value, cut to 80 characters.
        shown: String,
        /// What to write instead, for the hint.
        expected: &'static str,
    },
    /// The text of `config/rules` does not parse. Kind `Invalid`, with the hint of the rule that is wrong.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// Vectors were written under the present value. Kind `Busy`.
    #[error("{0} is fixed since the first vector was written")]
    Fixed(&'static str),
    /// A branch can't keep for longer than its parent. Kind `Invalid`.
    #[error("config/{setting} is at most that of the parent, {most}")]
    LongerThanParent {
        /// Its name in `config/`.
        setting: &'static str,
        /// The parent's value, as it was written.
        most: String,
    },
    /// Only the store sets it: it names the embedder of its vectors. Kind `NotPermitted`.
    #[error("config/{0} is set by the store, and read-only")]
    SetByStore(&'static str),
}

impl SettingError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            SettingError::Value { expected, .. } => {
                Advice::new(Kind::Invalid, "bad_setting", format!("write {expected}"))
            }
            SettingError::Rules(error) => Advice::new(Kind::Invalid, "bad_rules", error.hint.clone()),
            SettingError::LongerThanParent { .. } => {
                Advice::new(Kind::Invalid, "above_parent", "write less, or raise it in the parent first")
            }
            SettingError::SetByStore(_) => {
                Advice::new(Kind::NotPermitted, "derived", "set the embedder with engramfs mount --embed")
            }
            SettingError::Fixed(_) => Advice::new(Kind::Busy, "fixed", "make another root branch for other vectors"),
        }
    }
}
