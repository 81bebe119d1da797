//! What a directory shows of a branch: its present version, a checkpoint, an earlier state, or what it proposes.

use std::sync::Arc;

use super::{Branch, BranchId, Catalog, ResolvedSource, StateSource};
use crate::branch::BranchVersion;
use crate::memory::Error;
use crate::workspace::Tree;

/// What a directory shows: a branch now, one of its checkpoints, an earlier state, or its proposal.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum View {
    /// A branch as it is at the moment of reading.
    Branch(BranchId),
    /// The checkpoint with that label; it may be deleted and taken anew under the same view.
    Checkpoint(BranchId, Arc<str>),
    /// What the branch was behind the entry with that number, which gave it that state.
    At(BranchId, u64),
    /// What the branch proposed to its parent by the entry with that number.
    Proposal(BranchId, u64),
}

impl View {
    /// Returns the branch whose state is shown, which may have ended since.
    pub fn branch(&self) -> BranchId {
        match self {
            View::Branch(branch) | View::Checkpoint(branch, _) | View::At(branch, _) | View::Proposal(branch, _) => {
                *branch
            }
        }
    }
}

/// The state and base that a view shows, with its branch.
pub(in crate::memory) struct ResolvedView<'a> {
    /// The branch that the view is of, as it is now, whatever the view shows.
    pub branch: &'a Branch,
    /// The records and files that the view shows.
    pub state: Arc<BranchVersion>,
    /// What `diff` compares it with: the branch's base of that moment.
    pub base: Arc<BranchVersion>,
    /// The number of the last entry before it, unless it is the present one.
    pub last_seq: Option<u64>,
}

impl<'a> ResolvedView<'a> {
    /// Looks a view up; an earlier state may be read from disk. Fails with [`Error::Gone`], [`Error::NoCheckpoint`] or
    /// [`Error::NotKept`].
    pub fn new(catalog: &'a Catalog, view: &View) -> Result<ResolvedView<'a>, Error> {
        let branch = catalog.branch(view.branch())?;
        let source = match view {
            View::Branch(_) => {
                let (state, base) = (branch.state.clone(), branch.base.clone());
                return Ok(ResolvedView { branch, state, base, last_seq: None });
            }
            View::Proposal(_, entry) => {
                let proposal = branch.proposal_at(*entry).ok_or_else(|| Error::NotKept(entry.to_string()))?;
                let (state, base) = (proposal.frozen.state.clone(), proposal.frozen.base.clone());
                return Ok(ResolvedView { branch, state, base, last_seq: Some(*entry) });
            }
            View::Checkpoint(_, label) => StateSource::Checkpoint(label.clone()),
            View::At(_, entry) => StateSource::Entry(*entry),
        };
        let ResolvedSource { state, base, source_seq, .. } = catalog.resolve_source(branch, &source)?;
        Ok(ResolvedView { branch, state, base, last_seq: Some(source_seq) })
    }

    /// Returns the files that a viewer sees. Those changed by a proposal are readable for its reviewers.
    pub fn shown_files(&self, view: &View) -> Tree {
        match (view, &self.branch.proposal) {
            (View::Proposal(..), Some(proposal)) => proposal.shown_files(self.branch.uid),
            _ => self.state.files().clone(),
        }
    }
}
