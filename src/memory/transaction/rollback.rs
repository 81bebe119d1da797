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

    /// Sets a branch back to a checkpoint, an entry or a time, as a new commit. The state before it stays readable for
    /// as long as `config/keep` says.
    ///
    /// Fails like [`Memory::find_state`]. Kind `Busy`, code `branch_moves`, if the branch changes faster than this can
    /// be worked out; code `unit_in_use`, if it would replace files of a unit that are open for writing.
    pub fn rollback(&self, who: &Actor, branch: BranchId, label: &str) -> Result<CommitReceipt, Error> {
        self.rollback_to(who, branch, &self.find_state(branch, &Revision::parse(label)?)?, &[])
    }

    /// Sets a branch back to a state that was found. With patterns, such as `files/notes/**`, only the files that match
    /// are. Fails like [`Memory::rollback`], with kind `Invalid` for a pattern that can't be parsed, and with code `no_match` if
    /// all match nothing in the branch, in the state and in the bases of both.
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

    /// Sets only those files back to a checkpoint that match a pattern. Patterns are those of `config/rules` after
    /// `files/`. Fails like [`Memory::rollback_to`].
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
