//! Going back to a checkpoint, as a whole or for some files.

use std::sync::Arc;

use super::merge_budget::PlanError;
use super::merge_plan::{self, MergeContext};
use crate::branch::{BranchVersion, differences_at_most};
use crate::lineage::{Counts, Detail, EntryOp};
use crate::memory::Error;
use crate::memory::catalog::CatalogChange;
use crate::memory::catalog::{BranchId, BranchRef, Catalog, RetainedState};
use crate::memory::command::log_record::LogRecord;
use crate::memory::command::prepared::{PreparedCommand, about};
use crate::object::Time;

/// A rollback that was worked out.
pub struct Rollback {
    branch: BranchRef,
    label: Arc<str>,
    /// The entry that took the checkpoint: another one may get its label.
    taken: u64,
    patterns: Option<Arc<str>>,
    state: BranchVersion,
    /// The base that the branch gets back: a merge then deletes nothing that a pull had brought.
    base: Option<Arc<BranchVersion>>,
    counts: Counts,
    /// When; what goes has gone since this moment.
    pub time: Time,
}

impl Rollback {
    /// Works out the state that a branch goes back to; with `patterns` only files at these paths do.
    ///
    /// [`PlanError::Exceeded`] where more than `most` records or paths differ.
    pub fn new(
        context: MergeContext<'_>,
        branch: BranchId,
        label: &Arc<str>,
        patterns: Option<&[Arc<str>]>,
        most: usize,
    ) -> Result<Rollback, PlanError> {
        let branch = context.catalog.branch_ref(branch)?;
        let checkpoint = branch.checkpoint(label)?;
        let (state, counts) = match patterns {
            None => whole(branch, &checkpoint.state, context.time, most)?,
            Some(patterns) => {
                let (files, count) = merge_plan::restored(context, branch, checkpoint.state.files(), patterns, most)?;
                let mut state = BranchVersion::clone(&branch.state);
                state.set_files(files);
                (state, Counts { files: count, ..Counts::default() })
            }
        };
        Ok(Rollback {
            branch: branch.clone(),
            label: label.clone(),
            taken: checkpoint.seq,
            patterns: patterns.map(|patterns| patterns.join(" ").into()),
            state,
            base: patterns.is_none().then(|| checkpoint.base.clone()),
            counts,
            time: context.time,
        })
    }

    /// Returns whether branch and checkpoint are as they were.
    pub fn holds(&self, catalog: &Catalog) -> bool {
        let Ok(branch) = catalog.branch(self.branch.id) else { return false };
        let same_checkpoint = branch.checkpoints.get(&self.label).is_some_and(|found| found.seq == self.taken);
        same_checkpoint && branch.has_state_of(&self.branch)
    }

    /// Returns whether the branch holds less after it.
    pub fn shrinks(&self) -> bool {
        let bytes = |state: &BranchVersion| state.totals().raw + state.files().totals().allocated;
        bytes(&self.state) < bytes(&self.branch.state)
    }

    /// Returns the entry of the rollback and what it changes in a catalog in which this holds.
    pub fn prepare(&self, catalog: &Catalog, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = catalog.branch(self.branch.id)?;
        let detail = Detail { label: Some(self.label.clone()), text: self.patterns.clone(), ..Detail::default() };
        let mut prepared = about(catalog, log_record, branch, EntryOp::Rollback).with_detail(detail);
        prepared.counts = self.counts;
        let kept = RetainedState { state: branch.state.clone(), time: log_record.time };
        let prepared = prepared.with_state(self.state.clone()).step(CatalogChange::Keep(branch.id, kept));
        Ok(match &self.base {
            Some(base) => prepared.step(CatalogChange::Base(branch.id, base.clone())),
            None => prepared,
        })
    }
}

/// Returns the state of a checkpoint as the branch has it then, and what differs from the present one.
fn whole(
    branch: &BranchRef,
    wanted: &Arc<BranchVersion>,
    time: Time,
    most: usize,
) -> Result<(BranchVersion, Counts), PlanError> {
    let mut state = BranchVersion::clone(wanted);
    let mut files = state.files().clone();
    let changed = branch.state.files().differences_at_most(&files, most).ok_or(PlanError::Exceeded)?;
    let mut counts = Counts { files: changed.len() as u64, ..Counts::default() };
    // A number that a handle may still hold is never given to another file.
    files.reserve(branch.state.files().next_inode());
    state.set_files(files);
    for change in differences_at_most(&branch.state, &state, most)?.ok_or(PlanError::Exceeded)? {
        if change.new.is_some() {
            counts.put += 1;
        } else {
            counts.deleted += 1;
            state.mourn(&change.id, time);
        }
    }
    Ok((state, counts))
}
