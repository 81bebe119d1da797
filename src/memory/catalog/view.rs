//! What a directory shows of a branch: its present version, or a checkpoint.

use std::sync::Arc;

use super::{Branch, BranchId, Catalog};
use crate::branch::BranchVersion;
use crate::memory::Error;

/// What a directory shows: a branch as it is now, or one of its checkpoints.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum View {
    /// A branch as it is at the moment of reading.
    Branch(BranchId),
    /// The checkpoint of that label.
    Checkpoint(BranchId, Arc<str>),
}

impl View {
    /// Returns the branch it belongs to.
    pub fn branch(&self) -> BranchId {
        match self {
            View::Branch(branch) | View::Checkpoint(branch, _) => *branch,
        }
    }
}

/// The state and base that a view shows, with its branch.
pub(in crate::memory) struct ResolvedView<'a> {
    pub branch: &'a Branch,
    pub state: Arc<BranchVersion>,
    /// The number of the last entry before it, for a checkpoint.
    pub until: Option<u64>,
}

impl<'a> ResolvedView<'a> {
    /// Looks a view up.
    pub fn new(catalog: &'a Catalog, view: &View) -> Result<ResolvedView<'a>, Error> {
        let branch = catalog.branch(view.branch())?;
        match view {
            View::Branch(_) => Ok(ResolvedView { branch, state: branch.state.clone(), until: None }),
            View::Checkpoint(_, label) => {
                let checkpoint = branch.checkpoint(label)?;
                Ok(ResolvedView { branch, state: checkpoint.state.clone(), until: Some(checkpoint.seq) })
            }
        }
    }
}
