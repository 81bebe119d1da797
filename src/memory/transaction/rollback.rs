//! Going back to an earlier state.

use std::sync::Arc;

use super::commit::CommitReceipt;
use super::transact::LogTail;
use crate::lineage::SignedEntry;
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::{BranchId, Catalog, Revision, StateSource};
use crate::memory::command::log_record::LogRecord;
use crate::memory::merging::find_state::FoundState;
use crate::memory::merging::merge::{PLAN_ROUNDS_MAX, PLANNED_UNDER_LOCK_MAX};
use crate::memory::merging::merge_budget::PlanError;
use crate::memory::merging::merge_plan::MergeContext;
use crate::memory::merging::rollback::RollbackPlan;
use crate::memory::merging::unit_use::UnitRetry;
use crate::memory::{Actor, BranchError, BranchEvent, Error, Memory};
use crate::object::Time;

impl Memory {
    /// Goes back to a checkpoint: under the lock where little differs, else worked out before.
    fn roll_back_to_source(
        &self,
        who: &Actor,
        branch: BranchId,
        source: &StateSource,
        patterns: Option<Vec<Arc<str>>>,
    ) -> Result<CommitReceipt, Error> {
        let plan = |catalog: &Catalog, time: Time, changes_max: usize| {
            let context = MergeContext { catalog, packs: &self.storage.trees, time };
            RollbackPlan::new(context, branch, source, patterns.as_deref(), changes_max)
        };
        self.ensure_room_to_free()?;
        let (mut earlier, mut room): (Option<RollbackPlan>, _) = (None, None);
        let (mut retry, mut rounds) = (UnitRetry::new(), 0);
        while rounds < PLAN_ROUNDS_MAX {
            let mut writer = self.writer_for(who, &[Some(branch)])?;
            let (catalog, time) = (self.catalog().clone(), self.next_time(&mut writer)?);
            // Each round takes the lock anew, and a plan that no longer holds is made again: under the lock as long as
            // that is little.
            let planned = match earlier.take().filter(|earlier| earlier.is_current(&catalog, time)) {
                Some(earlier) => Ok(earlier),
                None => plan(&catalog, time, PLANNED_UNDER_LOCK_MAX),
            };
            match planned {
                Ok(planned) if !planned.is_shrinking() && room.is_none() => {
                    // Room is found with no lock held; under the writer lock the plan is checked again.
                    drop(writer);
                    room = Some(self.reserve_room(disk_cost_bytes(0, 0))?);
                    earlier = Some(planned);
                }
                Ok(planned) => {
                    drop(catalog);
                    let done = self.commit_rollback(who, &mut writer, time, &planned);
                    drop(writer);
                    match done {
                        Ok((entry, change)) => {
                            self.notify(change);
                            return Ok(CommitReceipt::from_entry(&entry));
                        }
                        Err(error) if retry.wait_for_retry(&error) => earlier = Some(planned),
                        Err(error) => return Err(error),
                    }
                }
                Err(PlanError::Failed(error)) => return Err(error),
                Err(PlanError::Exceeded) => {
                    // Only rounds that something came between are counted: finding room and waiting for a unit end by
                    // themselves.
                    rounds += 1;
                    drop(writer);
                    earlier = Some(plan(&catalog, self.now(), usize::MAX)?);
                }
            }
        }
        Err(BranchError::Moves.into())
    }

    /// Does a rollback that was worked out, unless it would replace a unit that is in use.
    fn commit_rollback(
        &self,
        who: &Actor,
        writer: &mut LogTail,
        time: Time,
        planned: &RollbackPlan,
    ) -> Result<(Arc<SignedEntry>, BranchEvent), Error> {
        let (branch, after) = planned.replaced_files();
        // Held until the catalog is swapped, so that a file of a unit is not opened for writing between the look and
        // the swap.
        let _held = self.hold_units(branch.settings.rules(), &[(branch, after)])??;
        let log_record = LogRecord { time, planned: planned.time, uid: who.uid, command: Box::new(planned.command()) };
        self.execute_planned(writer, log_record, |catalog, log_record| planned.prepare(catalog, log_record))
    }

    /// Makes a branch's records those of a checkpoint, as a new commit; the state before stays
    /// readable for as long as `config/keep` says. `label` may also name an earlier state.
    ///
    /// Kind `NotFound` as of [`Memory::find_state`], `Busy` where the branch changes faster than this can be worked out
    /// (`branch_moves`) or has files of a unit open for writing that would be replaced (`unit_in_use`).
    pub fn rollback(&self, who: &Actor, branch: BranchId, label: &str) -> Result<CommitReceipt, Error> {
        self.rollback_to(who, branch, &self.find_state(branch, &Revision::parse(label)?)?, &[])
    }

    /// Goes back to a state that was found: with all, or with the files at some paths where there are patterns. Kinds as of
    /// [`Memory::rollback`], and `Invalid` for a pattern that can't be read.
    pub fn rollback_to(
        &self,
        who: &Actor,
        branch: BranchId,
        found: &FoundState,
        patterns: &[String],
    ) -> Result<CommitReceipt, Error> {
        let patterns: Vec<Arc<str>> = patterns.iter().map(|pattern| pattern.as_str().into()).collect();
        self.roll_back_to_source(who, branch, &found.source, Some(patterns).filter(|patterns| !patterns.is_empty()))
    }

    /// Makes the files at some paths those of a checkpoint, and leaves all else. Patterns are those
    /// of `config/rules` behind `files/`; one that matches nothing changes nothing. Kinds as of [`Memory::rollback_to`].
    pub fn rollback_files(
        &self,
        who: &Actor,
        branch: BranchId,
        label: &str,
        patterns: &[String],
    ) -> Result<CommitReceipt, Error> {
        self.rollback_to(who, branch, &self.find_state(branch, &Revision::parse(label)?)?, patterns)
    }
}
