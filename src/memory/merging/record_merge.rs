//! The records of a merge: what becomes of each, and how that is kept right while the parent goes on.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::Vector;

use super::merge_budget::{MergeBudget, PlanError};
use super::plan_hash;
use crate::branch::{
    BranchVersion, RecordDifference, RecordDifferences, changed_ids_at_most, differences_at_most,
    differences_with_flags_at_most,
};
use crate::lineage::Strategy;
use crate::lineage::{Counts, Decision, Side};
use crate::memory::command::merge_outcome::{RecordOutcome, RecordOutcomes};
use crate::merge::{Action, Sides, plan_one, plan_stale_flag};
use crate::object::{Context, Hash, Hasher};
use crate::segment::{Row, SegmentError};

/// Records that are planned between two pauses, and that one hash of the plan covers: a merge that is planned again after the
/// parent has gone on hashes only the groups that hold one of its changes.
const BATCH_RECORDS: usize = 1024;

/// Gives the side chosen manually for a record; `None` if a version is not the one it was chosen for.
type Resolved<'a> = &'a dyn Fn(&Decision) -> Option<Side>;

/// What becomes of one record that the child changed; without an action the parent's version stays.
#[derive(Clone)]
struct PlannedRecord {
    action: Option<Action>,
    /// What was decided, where both sides changed it.
    decision: Option<Decision>,
}

/// The records of a merge, worked out with no lock held; it counts for the states it was made from alone.
#[derive(Clone)]
pub struct RecordMerge {
    /// What the child changed, in order of ids, and what becomes of each.
    changes: Arc<Vec<RecordDifference>>,
    outcomes: Vector<PlannedRecord>,
    /// Records of which the child changed nothing but whether the vector is stale, in order of ids.
    stale_flags: Arc<Vec<RecordDifference>>,
    /// The parent's records with the actions done; the files are the parent's.
    merged: BranchVersion,
    /// Whether the child receives, as in a pull: counts are then of what changes in it.
    child_receives: bool,
    counts: Counts,
    /// A hash of each 1,024 records, of what is taken and decided, so that following one record hashes few again.
    hashes: Vector<Hash>,
}

static TAKEN: Context = Context::new("engramfs 2026 merge plan records v1");

impl RecordMerge {
    /// Works out what becomes of the records. [`PlanError::Exceeded`] if the child changed more than the budget has.
    pub fn plan(
        sides: &Sides<'_>,
        child_receives: bool,
        strategy: Strategy,
        resolved: Resolved<'_>,
        merge_budget: &MergeBudget<'_>,
    ) -> Result<RecordMerge, PlanError> {
        let RecordDifferences { content: changes, stale_flags } =
            differences_with_flags_at_most(sides.base, sides.child, merge_budget.changes_max)?
                .ok_or(PlanError::Exceeded)?;
        let mut outcomes = Vector::new();
        let mut merged = sides.parent.clone();
        for (number, change) in changes.iter().enumerate() {
            // Planned on what the records before it made: under keep-both an id may be taken by then.
            let (action, decision) = plan_one(change, sides, &merged, strategy, resolved)?;
            if let Some(action) = &action {
                action.apply(&mut merged)?;
            }
            outcomes.push_back(PlannedRecord { action, decision });
            if number % BATCH_RECORDS == BATCH_RECORDS - 1 {
                merge_budget.pause();
            }
        }
        for change in &stale_flags {
            plan_stale_flag(change, sides)?.map_or(Ok(()), |action| action.apply(&mut merged))?;
        }
        let (counts, hashes) = (Counts::default(), Vector::new());
        let (changes, stale_flags) = (Arc::new(changes), Arc::new(stale_flags));
        let mut plan = RecordMerge { changes, outcomes, stale_flags, merged, child_receives, counts, hashes };
        plan.counts = plan.count(sides, merge_budget)?;
        for number in 0..plan.changes.len().div_ceil(BATCH_RECORDS) {
            plan.hashes.push_back(plan.batch_hash(number)?);
        }
        Ok(plan)
    }

    /// Works it out again for a parent that has gone on from `before`; it costs what the parent changed.
    /// [`PlanError::Exceeded`] if that is more than the budget has.
    pub fn replan(
        &self,
        before: &BranchVersion,
        sides: &Sides<'_>,
        strategy: Strategy,
        resolved: Resolved<'_>,
        merge_budget: &MergeBudget<'_>,
    ) -> Result<RecordMerge, PlanError> {
        // What the child changed stays; only records that the parent touched since can come out otherwise.
        let touched =
            changed_ids_at_most(before, sides.parent, merge_budget.changes_max)?.ok_or(PlanError::Exceeded)?;
        let was_added = |id: &Arc<str>| {
            let found = self.changes.binary_search_by(|change| change.id.cmp(id));
            found.is_ok_and(|at| self.changes[at].old.is_none())
        };
        if strategy == Strategy::KeepBoth && touched.iter().any(|id| id.contains('~') || was_added(id)) {
            // Versions that are both kept get ids that are free, and which are free depends on these records.
            return RecordMerge::plan(sides, self.child_receives, strategy, resolved, merge_budget);
        }
        let mut plan = self.clone();
        let mut stale = BTreeSet::new();
        for id in touched {
            stale.extend(plan.replan_record(&id, sides, strategy, resolved)?.map(|at| at / BATCH_RECORDS));
        }
        for number in stale {
            plan.hashes[number] = plan.batch_hash(number)?;
        }
        Ok(plan)
    }

    /// Returns the hash of some records in order: of each its id and versions, and the decision where both sides changed it.
    fn batch_hash(&self, number: usize) -> Result<Hash, SegmentError> {
        let mut hasher = Hasher::new(&TAKEN);
        for at in number * BATCH_RECORDS..self.changes.len().min((number + 1) * BATCH_RECORDS) {
            let change = &self.changes[at];
            match &self.outcomes[at].decision {
                Some(decision) => plan_hash::add_decision(&mut hasher, decision),
                None => {
                    let hash = |row: &Option<Row>| row.as_ref().map(Row::hash).transpose();
                    plan_hash::add_change(&mut hasher, change.id.as_bytes(), [hash(&change.old)?, hash(&change.new)?]);
                }
            }
        }
        Ok(hasher.finish())
    }

    /// Returns one hash for every 1,024 records, in order of ids: of what is taken and decided for them.
    pub fn hashes(&self) -> impl Iterator<Item = &Hash> {
        self.hashes.iter()
    }

    /// Works out again what becomes of one record; returns its place where the child changed it.
    fn replan_record(
        &mut self,
        id: &Arc<str>,
        sides: &Sides<'_>,
        strategy: Strategy,
        resolved: Resolved<'_>,
    ) -> Result<Option<usize>, SegmentError> {
        // What this record counted for goes first: afterwards `merged` no longer shows what it was.
        self.count_one(id, sides.child, false)?;
        let (mut action, mut place) = (None, None);
        if let Ok(at) = self.changes.binary_search_by(|change| change.id.cmp(id)) {
            let (taken, decision) = plan_one(&self.changes[at], sides, &self.merged, strategy, resolved)?;
            action.clone_from(&taken);
            self.count_action(taken.as_ref(), true);
            let before = std::mem::replace(&mut self.outcomes[at], PlannedRecord { action: taken, decision });
            self.count_action(before.action.as_ref(), false);
            place = Some(at);
        } else if let Ok(at) = self.stale_flags.binary_search_by(|change| change.id.cmp(id)) {
            action = plan_stale_flag(&self.stale_flags[at], sides)?;
        }
        // As the parent has it first: what an action leaves behind depends on that.
        self.merged.copy_record(id, sides.parent)?;
        action.map_or(Ok(()), |action| action.apply(&mut self.merged))?;
        self.count_one(id, sides.child, true)?;
        Ok(place)
    }

    fn count(&self, sides: &Sides<'_>, merge_budget: &MergeBudget<'_>) -> Result<Counts, PlanError> {
        let mut counts = Counts::default();
        if self.child_receives {
            // A pull counts what changes in the child, which is not what it takes: both may have made the same change.
            let differing =
                differences_at_most(sides.child, &self.merged, merge_budget.changes_max)?.ok_or(PlanError::Exceeded)?;
            counts.put = differing.iter().filter(|change| change.new.is_some()).count() as u64;
            counts.deleted = differing.len() as u64 - counts.put;
        } else {
            let actions = self.outcomes.iter().filter_map(|outcome| outcome.action.as_ref());
            counts.put = actions.clone().filter(|action| action.take.is_some()).count() as u64;
            counts.deleted = actions.count() as u64 - counts.put;
        }
        Ok(counts)
    }

    /// Adds an action to the counts of a merge into the parent, or takes it out.
    fn count_action(&mut self, action: Option<&Action>, adds: bool) {
        if let (Some(action), false) = (action, self.child_receives) {
            let count = if action.take.is_some() { &mut self.counts.put } else { &mut self.counts.deleted };
            *count = if adds { *count + 1 } else { *count - 1 };
        }
    }

    /// Adds what differs between the child and the result to the counts of a pull, or takes it out.
    fn count_one(&mut self, id: &str, child: &BranchVersion, adds: bool) -> Result<(), SegmentError> {
        if !self.child_receives {
            return Ok(());
        }
        let hash = |row: Option<Row>| row.map(|row| row.hash()).transpose();
        let (own, merged) = (hash(child.find(id)?)?, hash(self.merged.find(id)?)?);
        if own != merged {
            let count = if merged.is_some() { &mut self.counts.put } else { &mut self.counts.deleted };
            *count = if adds { *count + 1 } else { *count - 1 };
        }
        Ok(())
    }

    /// Returns the resulting records, still with the files of the parent.
    pub fn merged(&self) -> &BranchVersion {
        &self.merged
    }

    /// Returns how many records change in the branch that receives; it counts no files.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the ids of the records that change in a receiving parent, in the order of the child's changes.
    pub fn changed_ids(&self) -> impl Iterator<Item = &Arc<str>> {
        let changed = self.changes.iter().zip(&self.outcomes).filter(|(_, outcome)| outcome.action.is_some());
        changed.map(|(change, outcome)| {
            let kept_as = outcome.decision.as_ref().and_then(|decision| decision.kept_as.as_ref());
            kept_as.unwrap_or(&change.id)
        })
    }

    /// Returns the outcome of each record that the child changed; `None` while one waits for a decision.
    pub fn outcomes(&self) -> Option<RecordOutcomes> {
        let mut outcomes = RecordOutcomes::default();
        for planned in &self.outcomes {
            let decision = planned.decision.as_ref();
            outcomes
                .push(RecordOutcome::from_decision(decision)?, decision.and_then(|decision| decision.kept_as.clone()));
        }
        Some(outcomes)
    }

    /// Returns every record that both sides changed, in order of ids.
    pub fn both_changed(&self) -> impl Iterator<Item = &Decision> {
        self.outcomes.iter().filter_map(|outcome| outcome.decision.as_ref())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::record::{Provenance, RecordContent, Version};

    /// Others wait for their turn meanwhile, and nothing else lets them have it before all records are planned.
    #[test]
    fn a_plan_pauses_after_each_1024_records() {
        let base = BranchVersion::default();
        let mut child = base.clone();
        for number in 0..2_100 {
            let content = RecordContent { vector: None, text: Some("a text".into()), metadata: "{}".into() };
            let version = Version::new(format!("r{number}").into(), content, Provenance::sample());
            child.put(Row::Unsealed(Arc::new(version))).unwrap();
        }
        let sides = Sides { base: &base, child: &child, parent: &base, name: "child" };
        let paused = Cell::new(0);
        let pause = || paused.set(paused.get() + 1);
        let merge_budget = MergeBudget { pause: &pause, ..MergeBudget::ALL };
        let plan = RecordMerge::plan(&sides, false, Strategy::NewestWins, &|_| None, &merge_budget).unwrap();
        assert_eq!((plan.counts().put, paused.get()), (2_100, 2));
    }
}
