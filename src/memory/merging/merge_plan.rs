//! Merge, promote and pull: what becomes of two branches, worked out from one version of the catalog.
//!
//! Nothing here takes a lock or changes anything; `merging` says when it is worked out.

use std::sync::Arc;

use super::changed_paths::{changed_paths, first_items};
use super::file_decisions::{file_decisions, file_id, reader_guard, shown_decision, swap_in_pull};
use super::integration::Integration;
use super::merge_budget::{MergeBudget, PlanError};
use super::merge_result::conflicts_error;
use super::plan_hash::PlanParts;
use super::record_merge::RecordMerge;
use super::revert::{base_before, branch_before};
use crate::branch::BranchVersion;
use crate::lineage::{Counts, Decision, Side, Strategy};
use crate::memory::admission::guard;
use crate::memory::catalog::{Branch, BranchId, BranchRef, Catalog};
use crate::memory::command::log_record::LogRecord;
use crate::memory::command::merge_outcome::{BaseOutcome, MergeOutcome, StoredDecision};
use crate::memory::command::merge_verb::MergeVerb;
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::PreparedCommand;
use crate::memory::{Actor, BranchError, Error, MergeError};
use crate::merge::Sides;
use crate::merge::files::{FileDecision, FileMerge, FilePlan, MergeTrees, NewOwner, Rules, UnitConflict, plan_files};
use crate::merge::gate::{GateFindings, MergeExtent};
use crate::object::{Hash, Time};
use crate::workspace::{Packs, Tree, TreePatch};

/// What a merge is worked out from.
#[derive(Clone, Copy)]
pub struct MergeContext<'a> {
    /// One version of the catalog, with both branches. A plan is compared with later ones to see whether it still holds.
    pub catalog: &'a Catalog,
    /// The packs from which contents of files are read.
    pub packs: &'a dyn Packs,
    /// When it is worked out, which is the time of what the merge changes.
    pub time: Time,
}

impl<'a> MergeContext<'a> {
    /// Returns the context of a log record, with the time at which it was planned.
    pub fn new(context: &PlanContext<'a>, log_record: &LogRecord) -> MergeContext<'a> {
        MergeContext { catalog: context.catalog, packs: context.packs, time: log_record.planned }
    }
}

/// A merge, promote, pull or revert that was worked out. It holds the states it rests on, so that they can be compared.
#[derive(Clone)]
pub struct MergePlan {
    /// Which of the four it is; a revert has its entries with it.
    pub merge: MergeVerb,
    /// When it was worked out: times in the outcome are this one, and the entry's time is not before it.
    pub time: Time,
    /// [`Catalog::rewrite_count`] at that time: after another one no state here may be used.
    rewrite_count: u64,
    /// The branch as it was; in a revert as it was before the entries.
    pub child: BranchRef,
    /// Its parent as it was; in a revert the branch itself.
    pub parent: BranchRef,
    records: RecordMerge,
    files: Arc<FilePlan>,
    /// Everything that both sides changed: records by id, then files by path.
    pub both_changed: Vec<Decision>,
    /// The new state of the receiving branch, valid while both branches are unchanged.
    pub merged: Arc<BranchVersion>,
    /// What turns the files of the branch that receives into the merged ones, as the log holds them.
    patch: Arc<TreePatch>,
    /// The branch's own state after a promote, and what turns its files into those.
    promoted: Option<(Arc<BranchVersion>, Arc<TreePatch>)>,
    /// The branch's base after a revert, where that changes, and how.
    base: Option<Arc<BranchVersion>>,
    base_outcome: BaseOutcome,
    /// How many records are put and deleted and how many files change in the branch that receives.
    pub counts: Counts,
    /// What the rules of the parent forbid; empty if they forbid nothing, or were not asked.
    pub rule_refusals: Vec<Error>,
    /// What the gate of the parent finds in what it changes; empty for pulls and reverts.
    findings: GateFindings,
    /// The paths that a rule left out, each with `files/` in front.
    pub not_merged: Vec<Arc<str>>,
    /// The first records and files that change in the branch that receives.
    items: Vec<Arc<str>>,
    /// The hash of what the merge takes and decides, as in `plan`. It depends neither on times nor on who merges.
    pub hash: Hash,
}

/// Refuses a branch with child branches, whose bases and paths lead through it: [`BranchError::HasChildren`].
pub fn check_no_children(branch: &Branch) -> Result<(), Error> {
    if branch.children.is_empty() {
        return Ok(());
    }
    Err(BranchError::HasChildren { path: branch.path.to_string(), count: branch.children.len() }.into())
}

/// Returns the two branches that a merge brings together: a branch and its parent; for a revert the branch as it was
/// before, and the branch. [`BranchError::NoParent`] for a root branch, [`Error::NotKept`] if a revert needs a state
/// that is not kept.
pub fn merged_branches(catalog: &Catalog, branch: BranchId, merge: MergeVerb) -> Result<(BranchRef, BranchRef), Error> {
    let branch = catalog.branch_ref(branch)?;
    Ok(match merge {
        MergeVerb::Revert(entries) => (branch_before(catalog, branch, entries)?, branch.clone()),
        MergeVerb::Merge | MergeVerb::Promote | MergeVerb::Pull => {
            (branch.clone(), catalog.branch_ref(catalog.parent(branch)?.id)?.clone())
        }
    })
}

/// What a merge is worked out from: both branches as the context's catalog has them, and who asks.
struct MergeSides<'a> {
    context: MergeContext<'a>,
    merge: MergeVerb,
    child: BranchRef,
    parent: BranchRef,
    /// Who does it; nobody where it is not asked what the rules of the parent forbid.
    who: Option<&'a Actor>,
}

impl<'a> MergeSides<'a> {
    fn new(
        context: MergeContext<'a>,
        branch: BranchId,
        merge: MergeVerb,
        who: Option<&'a Actor>,
    ) -> Result<MergeSides<'a>, Error> {
        let (child, parent) = merged_branches(context.catalog, branch, merge)?;
        Ok(MergeSides { context, merge, child, parent, who })
    }

    /// The branch whose settings count: the parent, for a pull the branch itself.
    fn settings_branch(&self) -> &Branch {
        if self.merge == MergeVerb::Pull { &self.child } else { &self.parent }
    }

    fn strategy(&self) -> Strategy {
        self.settings_branch().settings.strategy()
    }

    fn sides(&self) -> Sides<'_> {
        Sides { base: &self.child.base, child: &self.child.state, parent: &self.parent.state, name: &self.child.name }
    }

    fn resolved(&self, item: &Decision) -> Option<Side> {
        let resolution = self.child.resolutions.get(&item.id)?;
        (resolution.child == item.child && resolution.parent == item.parent).then_some(resolution.side)
    }

    fn plan_records(&self, merge_budget: &MergeBudget<'_>) -> Result<RecordMerge, PlanError> {
        let receives = self.merge == MergeVerb::Pull;
        RecordMerge::plan(&self.sides(), receives, self.strategy(), &|item| self.resolved(item), merge_budget)
    }

    /// Plans what becomes of the files of the branch that receives. Its inode numbers stay, so in a pull the branch
    /// takes the place that the parent has in a merge.
    fn plan_files(&self, merge_budget: &MergeBudget<'_>) -> Result<FilePlan, PlanError> {
        let (merge, pulls) = (self.merge, self.merge == MergeVerb::Pull);
        let (base, own, above) = (self.child.base.files(), self.child.state.files(), self.parent.state.files());
        let (giver, receiver) = if pulls { (above, own) } else { (own, above) };
        let resolved =
            |it: &FileDecision| self.resolved(&shown_decision(it, merge)).map(|side| swap_in_pull(side, merge));
        let rules = match merge {
            MergeVerb::Pull => Some(self.child.settings.rules().with_sides_swapped()),
            MergeVerb::Revert(_) => Some(self.parent.settings.rules().with_all_merging()),
            MergeVerb::Merge | MergeVerb::Promote => None,
        };
        let strategy = self.strategy();
        let file_merge = FileMerge {
            rules: rules.as_ref().unwrap_or_else(|| self.parent.settings.rules()),
            strategy: if pulls { strategy.with_sides_swapped() } else { strategy },
            resolved: &resolved,
            packs: self.context.packs,
            merger: merge_budget.merger,
            paths_max: merge_budget.changes_max,
            time: self.context.time,
            new_owner: Some(NewOwner::for_transfer(self.child.uid, self.parent.uid, pulls)),
            guard: reader_guard(self.child.uid, merge),
            writes: matches!(merge, MergeVerb::Merge | MergeVerb::Promote),
        };
        // A file that has another inode number in the receiver is looked for in all that differs between base and receiver.
        merge_budget.check(base.has_changed_at_most(receiver, merge_budget.changes_max.saturating_mul(16)))?;
        Ok(plan_files(MergeTrees { base, child: giver, parent: receiver }, &file_merge)?)
    }

    /// Returns a branch's new state after a promote: the parent's content, with each file that stays
    /// under the number that it has in the branch, since handles are open on it.
    fn promoted_version(
        &self,
        merged: &Arc<BranchVersion>,
        merge_budget: &MergeBudget<'_>,
    ) -> Result<(Arc<BranchVersion>, Arc<TreePatch>), PlanError> {
        let own = self.child.state.files();
        let mut state = BranchVersion::clone(merged);
        if own.hash() == merged.files().hash() {
            state.set_files(own.clone());
            return Ok((Arc::new(state), Arc::default()));
        }
        let all = Rules::parse("** whole").unwrap_or_default();
        let file_merge = FileMerge {
            new_owner: Some(NewOwner::for_transfer(self.child.uid, self.parent.uid, true)),
            guard: reader_guard(self.child.uid, MergeVerb::Pull),
            ..FileMerge::fast_forward(&all, self.context.packs, merge_budget.changes_max, self.context.time)
        };
        let trees = MergeTrees { base: own, child: merged.files(), parent: own };
        let plan = plan_files(trees, &file_merge)?;
        state.set_files(plan.tree);
        Ok((Arc::new(state), Arc::new(plan.patch)))
    }

    fn hash(
        &self,
        records: &RecordMerge,
        files: &FilePlan,
        both_changed: &[Decision],
        not_merged: &[Arc<str>],
    ) -> Hash {
        let mut taken = vec![files.taken_hash];
        if self.merge == MergeVerb::Pull {
            // A pull takes what the parent has and the base has not.
            taken.extend([self.child.base.head(), self.parent.state.head()]);
        }
        taken.extend(records.hashes());
        PlanParts { taken: &taken, both_changed, not_merged, receiver: self.settings_branch(), child: self.child.id }
            .hash()
    }

    fn finish(
        &self,
        records: RecordMerge,
        files: Arc<FilePlan>,
        merge_budget: &MergeBudget<'_>,
    ) -> Result<MergePlan, PlanError> {
        let MergeContext { packs, time, .. } = self.context;
        let (tree, patch) = files.without_removed(time, packs)?;
        let mut merged = records.merged().clone();
        merged.set_files(tree);
        let merged = Arc::new(merged);
        let promoted = match self.merge {
            MergeVerb::Promote => Some(self.promoted_version(&merged, merge_budget)?),
            MergeVerb::Merge | MergeVerb::Pull | MergeVerb::Revert(_) => None,
        };
        let (base, base_outcome) = match self.merge {
            MergeVerb::Revert(entries) => base_before(self.context, &self.parent, entries, merge_budget.changes_max)?,
            MergeVerb::Merge | MergeVerb::Promote | MergeVerb::Pull => (None, BaseOutcome::Stays),
        };
        let mut both_changed: Vec<Decision> = records.both_changed().cloned().collect();
        both_changed.extend(file_decisions(&files, self.merge));
        let counts = Counts { files: files.changed_files, ..records.counts() };
        let rule_refusals = self.find_refusals(&merged, merge_budget)?;
        let findings = self.findings(&merged, &both_changed, merge_budget)?;
        let not_merged: Vec<Arc<str>> = files.not_merged.iter().map(|path| file_id(path)).collect();
        // After all decisions: the hash is what somebody agrees to, so it covers each of them.
        let hash = self.hash(&records, &files, &both_changed, &not_merged);
        let receiver = if self.merge == MergeVerb::Pull { &self.child.state } else { &self.parent.state };
        let items = first_items((receiver, &merged), (self.merge, &records), counts, merge_budget.changes_max)?;
        Ok(MergePlan {
            merge: self.merge,
            time,
            rewrite_count: self.context.catalog.rewrite_count,
            child: self.child.clone(),
            parent: self.parent.clone(),
            records,
            files,
            both_changed,
            merged,
            patch: Arc::new(patch),
            promoted,
            base,
            base_outcome,
            counts,
            rule_refusals,
            findings,
            not_merged,
            items,
            hash,
        })
    }

    /// Returns what the rules of the parent forbid; a pull takes what they have let pass before.
    fn find_refusals(&self, merged: &BranchVersion, merge_budget: &MergeBudget<'_>) -> Result<Vec<Error>, PlanError> {
        let Some(who) = self.who.filter(|_| self.merge != MergeVerb::Pull) else { return Ok(Vec::new()) };
        let Some(rules) = self.parent.settings.binding_rules() else { return Ok(Vec::new()) };
        let (owner, packs) = (self.parent.uid, self.context.packs);
        let (before, after) = (self.parent.state.files(), merged.files());
        let differences = before.differences_at_most(after, merge_budget.changes_max).ok_or(PlanError::Exceeded)?;
        let refusals = guard::merge_refusals(&guard::MergeReceiver { rules, owner, differences, packs }, who);
        Ok(refusals.map_or_else(|error| vec![error], |refusals| refusals.into_iter().map(Error::from).collect()))
    }

    /// Returns what the gate of the parent says; it lets all pulls and reverts pass.
    fn findings(
        &self,
        merged: &BranchVersion,
        both_changed: &[Decision],
        merge_budget: &MergeBudget<'_>,
    ) -> Result<GateFindings, PlanError> {
        let gate = self.parent.settings.gate();
        if gate.is_open() || !matches!(self.merge, MergeVerb::Merge | MergeVerb::Promote) {
            return Ok(GateFindings::default());
        }
        let changed =
            changed_paths(&self.parent.state, merged, merge_budget.changes_max)?.ok_or(PlanError::Exceeded)?;
        let conflicts = both_changed.iter().filter(|decision| decision.is_conflict()).count() as u64;
        Ok(gate.examine(&MergeExtent { changed: &changed, conflicts }))
    }
}

impl MergePlan {
    /// Plans a merge. [`PlanError::Exceeded`] if that takes more than the budget.
    pub fn new(
        context: MergeContext<'_>,
        branch: BranchId,
        merge: MergeVerb,
        who: Option<&Actor>,
        merge_budget: &MergeBudget<'_>,
    ) -> Result<MergePlan, PlanError> {
        let pair = MergeSides::new(context, branch, merge, who)?;
        let records = pair.plan_records(merge_budget)?;
        merge_budget.pause();
        let files = Arc::new(pair.plan_files(merge_budget)?);
        pair.finish(records, files, merge_budget)
    }

    /// Returns whether the states it is based on are unchanged, and it can be an entry with that time.
    pub fn is_current(&self, catalog: &Catalog, time: Time) -> bool {
        let (Ok(child), Ok(parent)) = (catalog.branch(self.child.id), catalog.branch(self.parent.id)) else {
            return false;
        };
        self.rewrite_count == catalog.rewrite_count
            && self.time <= time
            && self.has_same_child(child)
            && parent.has_same_state(&self.parent)
            && parent.base_seq == self.parent.base_seq
            && self.has_same_rules(child, parent)
    }

    fn has_same_child(&self, child: &Branch) -> bool {
        // The states before and after entries never change.
        let has_states =
            self.merge.is_revert() || child.has_same_state(&self.child) && self.child.base_seq == child.base_seq;
        has_states && self.child.resolutions == child.resolutions
    }

    fn has_same_rules(&self, child: &Branch, parent: &Branch) -> bool {
        let (planned, present) =
            if self.merge == MergeVerb::Pull { (&*self.child, child) } else { (&*self.parent, parent) };
        planned.settings.merges_like(&present.settings)
    }

    /// Updates the plan for what has changed since, or plans again from the start. [`PlanError::Exceeded`] beyond the
    /// budget.
    pub fn replan(
        &self,
        context: MergeContext<'_>,
        who: Option<&Actor>,
        merge_budget: &MergeBudget<'_>,
    ) -> Result<MergePlan, PlanError> {
        let pair = MergeSides::new(context, self.child.id, self.merge, who)?;
        // Rows were moved, or the clock was set back: nothing of it can be kept.
        let is_in_place = self.rewrite_count == context.catalog.rewrite_count && self.time <= context.time;
        if !is_in_place || !self.has_same_child(&pair.child) || !self.has_same_rules(&pair.child, &pair.parent) {
            return MergePlan::new(context, self.child.id, self.merge, who, merge_budget);
        }
        let records = match pair.parent.has_same_state(&self.parent) {
            true => self.records.clone(),
            false => self.records.replan(
                &self.parent.state,
                &pair.sides(),
                pair.strategy(),
                &|item| pair.resolved(item),
                merge_budget,
            )?,
        };
        merge_budget.pause();
        if self.parent.state.files().is_clone_of(pair.parent.state.files()) {
            // The plan of the files is kept as it is, with the times in it, so the rest gets the same time.
            let pair = MergeSides { context: MergeContext { time: self.time, ..context }, ..pair };
            return pair.finish(records, self.files.clone(), merge_budget);
        }
        let files = Arc::new(pair.plan_files(merge_budget)?);
        pair.finish(records, files, merge_budget)
    }

    /// Returns the receiving branch, and after it a promoted one, each with its new files.
    pub fn replaced_files(&self) -> Vec<(&Branch, &Tree)> {
        let receiver = if self.merge == MergeVerb::Pull { &self.child } else { &self.parent };
        let promoted = self.promoted.iter().map(|(state, _)| (&*self.child, state.files()));
        [(&**receiver, self.merged.files())].into_iter().chain(promoted).collect()
    }

    /// Returns the rules that decide it: those of the receiving branch.
    pub fn rules(&self) -> &Rules {
        self.settings_branch().settings.rules()
    }

    /// Returns the name of the strategy that decides conflicts: that of the receiving branch.
    pub fn strategy(&self) -> &'static str {
        self.settings_branch().settings.strategy().name()
    }

    /// Returns the path of the branch that is merged, promoted or reverted, or that pulls.
    pub fn path(&self) -> Arc<str> {
        self.child.path.clone()
    }

    fn settings_branch(&self) -> &Branch {
        if self.merge == MergeVerb::Pull { &self.child } else { &self.parent }
    }

    /// Returns the units that both sides changed differently.
    pub fn units(&self) -> &[UnitConflict] {
        &self.files.units
    }

    /// Returns what both sides changed differently, whether it was decided or waits.
    pub fn conflicts(&self) -> impl Iterator<Item = &Decision> {
        self.both_changed.iter().filter(|item| item.is_conflict())
    }

    /// Returns whether some conflict waits for a manual decision.
    pub fn is_blocked(&self) -> bool {
        self.both_changed.iter().any(|item| item.decision.is_none())
    }

    /// Returns what the parent's gate says of the changes, apart from reviews and summaries.
    pub fn findings(&self) -> &GateFindings {
        &self.findings
    }

    /// Returns whether the branch that receives it has a gate that is not open for it.
    pub fn is_gated(&self) -> bool {
        matches!(self.merge, MergeVerb::Merge | MergeVerb::Promote) && !self.parent.settings.gate().is_open()
    }

    /// Returns the heads of the branch and of its parent that it was worked out for.
    pub fn heads(&self) -> [Hash; 2] {
        [self.child.state.head(), self.parent.state.head()]
    }

    /// Returns why it can't be done: rules, then open conflicts. Nothing if it can; gates are asked by themselves.
    pub fn obstacles(&self) -> impl Iterator<Item = Error> {
        self.rule_refusals.iter().cloned().chain(self.is_blocked().then(|| conflicts_error(self)))
    }

    /// Fails with [`MergeError::PlanChanged`] if somebody wants the plan of another hash.
    pub fn check_hash(&self, expected: Option<Hash>) -> Result<(), Error> {
        match expected.filter(|expected| *expected != self.hash) {
            None => Ok(()),
            Some(expected) => Err(MergeError::PlanChanged { wanted: expected, found: self.hash }.into()),
        }
    }

    /// Returns what the log holds of it: its outcome. Fails while a conflict waits for a decision.
    pub fn outcome(&self, note: &Arc<str>) -> Result<MergeOutcome, Error> {
        let trees = [self.child.base.files(), self.child.state.files(), self.parent.state.files()];
        let on_files = self.both_changed.iter().filter(|decision| decision.is_file());
        Ok(MergeOutcome {
            head: self.merged.head(),
            counts: self.counts,
            plan: self.hash,
            not_merged: self.not_merged.clone(),
            note: note.clone(),
            items: self.items.clone(),
            records: self.records.outcomes().ok_or_else(|| conflicts_error(self))?,
            files: self.patch.clone(),
            decisions: on_files.map(|decision| StoredDecision::new(decision, trees)).collect(),
            promoted: self.promoted.as_ref().map(|(_, patch)| patch.clone()),
            base: self.base_outcome.clone(),
        })
    }

    /// Returns the entry of the merge and what it changes in a catalog in which the plan holds. Kind `Conflict` while a
    /// conflict waits for a decision.
    pub fn prepare(&self, catalog: &Catalog, log_record: &LogRecord, note: Arc<str>) -> Result<PreparedCommand, Error> {
        if self.is_blocked() {
            return Err(conflicts_error(self));
        }
        let integration = Integration {
            merge: self.merge,
            branch: self.child.id,
            merged: self.merged.clone(),
            child_head: self.child.state.head(),
            promoted: self.promoted.as_ref().map(|(state, _)| state.clone()),
            base: self.base.clone(),
            both_changed: self.both_changed.clone(),
            counts: self.counts,
            plan: self.hash,
            not_merged: self.not_merged.clone(),
            note,
            items: self.items.clone(),
        };
        integration.prepare(catalog, log_record)
    }
}
