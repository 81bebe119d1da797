//! Merging, promoting and pulling: worked out with no lock held, and done under the writer's lock only
//! as far as what it rests on has not changed.
//!
//! A small merge is worked out under the lock at once. A larger one is worked out by a job of its own;
//! then the lock is taken, and what has changed meanwhile is worked out again: there if that is little,
//! else by another job.

use std::sync::Arc;

use super::gate_check::{SummaryCheck, check_gate};
use super::integration::MergeBranches;
use super::merge_budget::{MergeBudget, PlanError};
use super::merge_plan::{self, MergeContext, MergePlan};
use super::merge_result::{MergeResult, conflicts_error};
use super::unit_use::UnitRetry;
use crate::lineage::{EntryOp, SignedEntry};
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::{BranchId, Catalog};
use crate::memory::command::log_record::LogRecord;
use crate::memory::command::merge_verb::MergeVerb;
use crate::memory::{Actor, BranchEvent, Error, Kind, Memory, MergeError};
use crate::object::Hash;
use crate::sync::Deadline;

/// How many times a plan is made again before the merge fails with `parent_moves`.
pub(in crate::memory) const PLAN_ROUNDS_MAX: usize = 10;
/// Most records and paths of a merge that is planned under the lock: some milliseconds.
pub(in crate::memory) const PLANNED_UNDER_LOCK_MAX: usize = 512;
/// Most bytes of contents that are merged under the lock for a plan made there.
const PLANNED_UNDER_LOCK_BYTES_MAX: u64 = 256 << 10;
/// Most records and paths that are revalidated under the lock: at most 50 milliseconds.
pub(in crate::memory) const REVALIDATED_UNDER_LOCK_MAX: usize = 4096;
/// Most bytes of contents that are merged under the lock when a plan is brought up to date.
const REVALIDATED_UNDER_LOCK_BYTES_MAX: u64 = 1 << 20;

/// How a merge is done; by default without a deadline, with any plan, and without a note.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// How long the caller can wait; `None`, the default, has no limit.
    pub deadline: Option<Deadline>,
    /// The hash of the expected plan, from a dry run; `None`, the default, accepts any.
    pub plan: Option<Hash>,
    /// A note for its entry; empty by default.
    pub note: Arc<str>,
}

#[derive(Clone, Copy)]
struct MergeRequest<'a> {
    who: &'a Actor,
    branch: BranchId,
    merge: MergeVerb,
    summary: SummaryCheck,
    note: &'a str,
}

/// What became of a merge under the lock; in the last two cases nothing has changed.
enum MergeAttempt {
    Done(Arc<SignedEntry>, BranchEvent),
    Refused(Error, Option<Arc<MergePlan>>),
    /// It takes longer than the lock may be held: it is planned without it, and tried again.
    TooLong,
}

impl Memory {
    /// Merges, promotes or pulls, in one entry. Files that were written but not committed get an entry first.
    ///
    /// With `dry_run` nothing is merged, and what prevents the merge is in [`MergeResult::blockers`]. Without it that
    /// is the error, and the refusal is an entry of the lineage: kind `Conflict` for conflicts that wait for a
    /// decision, `Refused` for a gate. Kind `Busy`, code `parent_moves`, if the parent changes faster than the merge
    /// can be planned.
    pub fn merge(&self, who: &Actor, branch: BranchId, merge: MergeVerb, dry_run: bool) -> Result<MergeResult, Error> {
        if dry_run {
            self.dry_run(who, branch, merge, None)
        } else {
            self.merge_with(who, branch, merge, MergeOptions::default())
        }
    }

    /// Like [`Memory::merge`], with options. Kind `Busy`, code `merge_too_long`, if planning takes longer than the
    /// deadline; it continues in the background for the next try. Kind `Busy`, code `plan_changed`, if the plan is not
    /// the expected one. Nothing is merged in either case.
    pub fn merge_with(
        &self,
        who: &Actor,
        branch: BranchId,
        merge: MergeVerb,
        options: MergeOptions,
    ) -> Result<MergeResult, Error> {
        // Before anything else: a file that was written to resolve a conflict must not be refused for that conflict.
        self.resolve_written_until(branch, options.deadline)?;
        // With no lock held: room is made by a collection, which seals.
        let _room = self.reserve_room(disk_cost_bytes(0, 0))?;
        let request = MergeRequest { who, branch, merge, summary: self.find_summary(branch)?, note: &options.note };
        match self.merge_retrying_units(request, &options)? {
            MergeAttempt::Done(entry, change) => {
                // The lock is let go of by now: a listener looks at the store itself.
                self.notify(change);
                Ok(merge_result(&entry))
            }
            MergeAttempt::Refused(error, planned) => Err(self.note_merge_refusal(request, error, planned)),
            MergeAttempt::TooLong => Err(MergeError::ParentMoves.into()),
        }
    }

    /// Merges, again for a while where a unit is in use.
    fn merge_retrying_units(&self, request: MergeRequest<'_>, options: &MergeOptions) -> Result<MergeAttempt, Error> {
        let mut retry = UnitRetry::new();
        loop {
            match self.merge_in_rounds(request, options)? {
                MergeAttempt::Refused(error, _) if retry.wait_for_retry(&error) => {}
                attempt => return Ok(attempt),
            }
        }
    }

    fn merge_in_rounds(&self, request: MergeRequest<'_>, options: &MergeOptions) -> Result<MergeAttempt, Error> {
        let MergeRequest { who, branch, merge, .. } = request;
        // Contents that one round merged are kept for the next, so that a round under the lock repeats none of that
        // work.
        let contents = self.merging.planner.contents(branch, merge);
        let small = MergeBudget {
            changes_max: PLANNED_UNDER_LOCK_MAX,
            merger: &contents.at_most(PLANNED_UNDER_LOCK_BYTES_MAX),
            ..MergeBudget::ALL
        };
        // Most merges are small, and one that is planned under the lock can't be overtaken.
        let at_once = self.try_merge(request, options.plan, |context| {
            MergePlan::new(context, branch, merge, Some(who), &small).map(Arc::new)
        })?;
        let MergeAttempt::TooLong = at_once else { return Ok(at_once) };
        for _ in 0..PLAN_ROUNDS_MAX {
            // With no lock held, as this may take minutes; only what has changed since is then worked out under the
            // lock.
            let plan = self.plan_in_background(who, branch, merge, options.deadline)?;
            let again = MergeBudget {
                changes_max: REVALIDATED_UNDER_LOCK_MAX,
                merger: &contents.at_most(REVALIDATED_UNDER_LOCK_BYTES_MAX),
                ..MergeBudget::ALL
            };
            let tried = self.try_merge(request, options.plan, |context| {
                match plan.is_current(context.catalog, context.time) {
                    true => Ok(plan.clone()),
                    false => plan.replan(context, Some(who), &again).map(Arc::new),
                }
            })?;
            let MergeAttempt::TooLong = tried else { return Ok(tried) };
        }
        Ok(MergeAttempt::TooLong)
    }

    /// Takes the lock, has `plan` give the plan for this moment, and does it if it is the one that is wanted.
    fn try_merge(
        &self,
        MergeRequest { who, branch, merge, summary, note }: MergeRequest<'_>,
        expected_plan: Option<Hash>,
        plan: impl FnOnce(MergeContext<'_>) -> Result<Arc<MergePlan>, PlanError>,
    ) -> Result<MergeAttempt, Error> {
        // The lock before the catalog: what is planned is what is merged.
        let mut writer = self.writer_for(who, &self.participants(branch, merge))?;
        let (catalog, time) = (self.catalog().clone(), self.next_time(&mut writer)?);
        let child = catalog.branch(branch)?;
        if !merge.is_revert() {
            catalog.parent(child)?;
        }
        if merge == MergeVerb::Merge
            && let Err(error) = merge_plan::check_no_children(child)
        {
            return Ok(MergeAttempt::Refused(error, None));
        }
        let planned = match plan(MergeContext { catalog: &catalog, packs: &self.storage.trees, time }) {
            Ok(planned) => planned,
            // Returning lets go of the writer lock: whoever writes meanwhile is why the plan is brought up to date next
            // time.
            Err(PlanError::Exceeded) => return Ok(MergeAttempt::TooLong),
            Err(PlanError::Failed(error)) => return Err(error),
        };
        // The hash first: a plan that nobody agreed to is not put to the gate.
        planned.check_hash(expected_plan)?;
        let at_gate = check_gate(&catalog, &planned, summary, time).err();
        drop(catalog);
        let obstacle = planned.obstacles().next();
        if let Some(error) = obstacle.or(at_gate) {
            return Ok(MergeAttempt::Refused(error, Some(planned)));
        }
        // Until the catalog is swapped: who opens a file then sees the merged one.
        let held = match self.hold_units(planned.rules(), &planned.replaced_files())? {
            Ok(held) => held,
            Err(in_use) => return Ok(MergeAttempt::Refused(in_use, Some(planned))),
        };
        let note: Arc<str> = note.into();
        let command = Box::new(MergeBranches { branch, merge, outcome: Arc::new(planned.outcome(&note)?) });
        let log_record = LogRecord { time, planned: planned.time, uid: who.uid, command };
        let (entry, change) = self.execute_planned(&mut writer, log_record, |catalog, log_record| {
            planned.prepare(catalog, log_record, note)
        })?;
        drop(held);
        Ok(MergeAttempt::Done(entry, change))
    }

    /// Returns the branches whose files take part, so that what was written to them becomes entries first.
    fn participants(&self, branch: BranchId, merge: MergeVerb) -> [Option<BranchId>; 2] {
        [Some(branch), self.parent_branch(branch).filter(|_| !merge.is_revert())]
    }

    /// Notes a refusal in the lineage, and which conflicts somebody was shown by it.
    fn note_merge_refusal(&self, request: MergeRequest<'_>, error: Error, planned: Option<Arc<MergePlan>>) -> Error {
        if let (Kind::Conflict, Some(planned)) = (error.kind(), &planned) {
            self.note_shown(request, planned);
        }
        // What is about the merge itself is noted; a full disk, a lack of time or a deadline says nothing about it.
        let is_verdict = matches!(error.kind(), Kind::Conflict | Kind::NotEmpty | Kind::Refused);
        if is_verdict || matches!(error.kind(), Kind::Denied | Kind::NotPermitted) {
            return self.note_refusal(request.who, request.branch, error);
        }
        error
    }

    /// Records which conflicts of files somebody is shown. Pending writes are committed first: they predate the
    /// author's knowledge of the conflict.
    fn note_shown(&self, MergeRequest { who, branch, merge, .. }: MergeRequest<'_>, planned: &MergePlan) {
        // Writing the file resolves a conflict with the parent, and none with an earlier state.
        if !merge.is_revert() && self.commit_and_announce(who, &[Some(branch)]).is_ok() {
            self.merging.acks.note_shown((branch, merge), who, planned.conflicts());
        }
    }

    /// Returns what a merge would do. What prevents it is in [`MergeResult::blockers`] and not an error: conflicts, a
    /// rule, a gate, files that are in use, and a plan other than `expected_plan`. Fails with `Gone` if the branch has
    /// ended, and if what it compares can't be read.
    pub fn dry_run(
        &self,
        who: &Actor,
        branch: BranchId,
        merge: MergeVerb,
        expected_plan: Option<Hash>,
    ) -> Result<MergeResult, Error> {
        // Before the plan is made: writing a file that was shown to be in conflict resolves that conflict.
        self.resolve_written(branch)?;
        // Taken for one effect: what was written to the files of both branches becomes entries, so that the plan and
        // the lineage name the same heads. A plan is then made with no lock held.
        if !self.is_read_only() {
            self.commit_and_announce(who, &self.participants(branch, merge))?;
        }
        let (planned, summary) = (self.plan_for(who, branch, merge)?, self.find_summary(branch)?);
        // All checks run, so that one dry run names every obstacle; `explore` reports the first alone. Units are last,
        // since looking at them may wait.
        let mut blockers = Vec::new();
        if merge == MergeVerb::Merge {
            blockers.extend(merge_plan::check_no_children(&planned.child).err());
        }
        if planned.is_blocked() {
            self.note_shown(MergeRequest { who, branch, merge, summary, note: "" }, &planned);
            blockers.push(conflicts_error(&planned));
        }
        blockers.extend(planned.rule_refusals.iter().cloned());
        let (catalog, now) = (self.catalog().clone(), self.now());
        blockers.extend(check_gate(&catalog, &planned, summary, now).err());
        blockers.extend(planned.check_hash(expected_plan).err());
        let mut retry = UnitRetry::new();
        blockers.extend(loop {
            match self.hold_units(planned.rules(), &planned.replaced_files())?.err() {
                Some(in_use) if retry.wait_for_retry(&in_use) => {}
                in_use => break in_use,
            }
        });
        let status = if blockers.is_empty() { "ready" } else { "blocked" };
        let conflicts = planned.conflicts().cloned().collect();
        Ok(MergeResult {
            status,
            branch: planned.path(),
            strategy: planned.strategy(),
            counts: planned.counts,
            not_merged: planned.not_merged.clone(),
            conflicts,
            blockers,
            plan: planned.hash,
            head: planned.merged.head(),
            entry: None,
            undo: None,
            reverted: Vec::new(),
        })
    }

    /// Returns what merges are worked out from: a catalog, stored contents, and the clock's present time.
    pub(in crate::memory) fn merge_context<'a>(&'a self, catalog: &'a Catalog) -> MergeContext<'a> {
        MergeContext { catalog, packs: &self.storage.trees, time: self.now() }
    }

    /// Returns the plan of a merge of this moment, made here if it is small. A larger one is made in the background,
    /// and waited for. Fails with `BranchError::NoParent` for a merge, promote or pull of a root branch, with
    /// `Error::Gone` if one of the two has ended, or if what differs can't be read.
    pub(in crate::memory) fn plan_for(
        &self,
        who: &Actor,
        branch: BranchId,
        merge: MergeVerb,
    ) -> Result<Arc<MergePlan>, Error> {
        let contents = self.merging.planner.contents(branch, merge);
        // Small plans are made here even for a dry run: a thread of the planner costs more than they do.
        let small = MergeBudget {
            changes_max: PLANNED_UNDER_LOCK_MAX,
            merger: &contents.at_most(PLANNED_UNDER_LOCK_BYTES_MAX),
            ..MergeBudget::ALL
        };
        let catalog = self.catalog().clone();
        match MergePlan::new(self.merge_context(&catalog), branch, merge, Some(who), &small) {
            Ok(planned) => Ok(Arc::new(planned)),
            Err(PlanError::Exceeded) => self.plan_in_background(who, branch, merge, None),
            Err(PlanError::Failed(error)) => Err(error),
        }
    }
}

fn merge_result(entry: &SignedEntry) -> MergeResult {
    let of_merge = entry.entry.detail.merge.as_ref();
    MergeResult {
        status: if entry.entry.op == EntryOp::Revert { "reverted" } else { "merged" },
        branch: entry.entry.branch.clone(),
        strategy: entry.entry.detail.strategy.unwrap_or_default().name(),
        counts: entry.entry.counts,
        not_merged: of_merge.map(|merge| merge.not_merged.clone()).unwrap_or_default(),
        conflicts: entry.entry.detail.conflicts.iter().filter(|item| item.is_conflict()).cloned().collect(),
        blockers: Vec::new(),
        plan: of_merge.map_or(Hash::ZERO, |merge| merge.plan),
        head: entry.entry.head,
        entry: Some(entry.hash),
        undo: Some(format!("revert {}", entry.entry.seq)),
        reverted: Vec::new(),
    }
}
