//! What a merge, promote or pull does to the catalog: from a plan that was just made, or from the outcome in the log.

use std::sync::Arc;

use super::merge_plan::{MergeContext, check_no_children, merged_branches};
use super::revert::replayed_base;
use crate::branch::{BranchVersion, RecordDifferences, differences_with_flags_at_most};
use crate::lineage::{Counts, Decision, Detail, MergeDetail};
use crate::memory::Error;
use crate::memory::catalog::{Branch, BranchId, Catalog, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord, SharedEvent};
use crate::memory::command::merge_outcome::{MergeOutcome, RecordOutcome};
use crate::memory::command::merge_verb::{MergeVerb, RevertedEntries};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::storage::trees::tree_error;
use crate::merge::{Action, Sides, decision_on, plan_stale_flag};
use crate::object::{CodecError, Hash, Reader, Writer};
use crate::workspace::Tree;

/// A branch and its parent come together, or entries of a branch are taken back: what that does was planned before.
#[derive(Debug)]
pub(in crate::memory) struct MergeBranches {
    /// The branch that is merged, promoted, pulls, or takes back entries. It receives in the last two.
    pub branch: BranchId,
    /// Merge, promote, pull or revert.
    pub merge: MergeVerb,
    /// What the plan came to. It is in the log, so that a replay applies it and plans nothing.
    pub outcome: Arc<MergeOutcome>,
}

pub(in crate::memory) const MERGE: CommandSpec = CommandSpec {
    code: 8,
    name: "merge",
    read: |input| Ok(Box::new(MergeBranches::read(BranchId::read(input)?, MergeVerb::Merge, input)?)),
};

pub(in crate::memory) const PROMOTE: CommandSpec = CommandSpec {
    code: 9,
    name: "promote",
    read: |input| Ok(Box::new(MergeBranches::read(BranchId::read(input)?, MergeVerb::Promote, input)?)),
};

pub(in crate::memory) const PULL: CommandSpec = CommandSpec {
    code: 10,
    name: "pull",
    read: |input| Ok(Box::new(MergeBranches::read(BranchId::read(input)?, MergeVerb::Pull, input)?)),
};

pub(in crate::memory) const REVERT: CommandSpec = CommandSpec {
    code: 26,
    name: "revert",
    read: |input| {
        let (branch, entries) = (BranchId::read(input)?, RevertedEntries::read(input)?);
        Ok(Box::new(MergeBranches::read(branch, MergeVerb::Revert(entries), input)?))
    },
};

impl MergeBranches {
    fn read(branch: BranchId, merge: MergeVerb, input: &mut Reader<'_>) -> Result<MergeBranches, CodecError> {
        Ok(MergeBranches { branch, merge, outcome: Arc::new(MergeOutcome::read(input, merge)?) })
    }
}

impl Command for MergeBranches {
    fn spec(&self) -> &'static CommandSpec {
        match self.merge {
            MergeVerb::Merge => &MERGE,
            MergeVerb::Promote => &PROMOTE,
            MergeVerb::Pull => &PULL,
            MergeVerb::Revert(_) => &REVERT,
        }
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0);
        if let MergeVerb::Revert(entries) = self.merge {
            entries.write(out);
        }
        self.outcome.write(self.merge, out);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let merge_context = MergeContext::new(context, log_record);
        let replayed = Integration::replay(&merge_context, self.branch, self.merge, &self.outcome)
            .and_then(|integration| integration.prepare(context.catalog, log_record));
        context.with_recorded_head(replayed, self.outcome.head)
    }

    fn committed_files_branch(&self) -> Option<BranchId> {
        (self.merge == MergeVerb::Merge).then_some(self.branch)
    }

    fn invalidated_plans_branch(&self) -> Option<BranchId> {
        (!self.merge.is_revert()).then_some(self.branch)
    }

    fn shared_event(&self) -> Option<SharedEvent<'_>> {
        match self.merge {
            MergeVerb::Merge | MergeVerb::Promote => Some(SharedEvent::Merged(self.branch, self.spec().name)),
            MergeVerb::Pull | MergeVerb::Revert(_) => None,
        }
    }
}

/// A merge, promote or pull with the states that it leads to.
pub struct Integration {
    /// Which of them it is, or a revert.
    pub merge: MergeVerb,
    /// The branch that is merged, promoted, pulls or is reverted, even where its parent receives.
    pub branch: BranchId,
    /// The state that the branch gets that receives: the parent, for a pull or a revert the branch itself.
    pub merged: Arc<BranchVersion>,
    /// The head of the child's state; for a revert that of the state before the entries.
    pub child_head: Hash,
    /// The branch's own state after a promote; `None` for all others.
    pub promoted: Option<Arc<BranchVersion>>,
    /// The branch's base after a revert, where that changes.
    pub base: Option<Arc<BranchVersion>>,
    /// Everything that both sides changed: records by id, then files by path.
    pub both_changed: Vec<Decision>,
    /// How many records are put and deleted and how many files change in the branch that receives.
    pub counts: Counts,
    /// The hash of what was to be taken and decided, which the entry names.
    pub plan: Hash,
    /// The paths that a rule left out, each with `files/` in front.
    pub not_merged: Vec<Arc<str>>,
    /// What the caller said about it, which the entry has; empty for nothing.
    pub note: Arc<str>,
    /// The first records and files that change in the branch that receives, as many as an entry names.
    pub items: Vec<Arc<str>>,
}

impl Integration {
    /// Applies an outcome from the log. Nothing is decided here: whatever a later release would decide, the result is
    /// the one that was recorded. Kind `Damaged` if what the outcome refers to is not there.
    pub fn replay(
        context: &MergeContext<'_>,
        branch: BranchId,
        merge: MergeVerb,
        outcome: &MergeOutcome,
    ) -> Result<Integration, Error> {
        let (child, parent) = merged_branches(context.catalog, branch, merge)?;
        let (mut merged, mut both_changed) = merged_records(&child, &parent, outcome)?;
        let patched =
            |own: &Tree, patch, other| own.apply_patch(patch, other, context.time, context.packs).map_err(tree_error);
        let (own, above) = (child.state.files(), parent.state.files());
        // Patches are of the receiver's tree, whose inode numbers stay, so the sides are those under which the plan was
        // made.
        let (giver, receiver) = if merge == MergeVerb::Pull { (above, own) } else { (own, above) };
        merged.set_files(patched(receiver, &outcome.files, giver)?);
        // A promote gives the branch the merged records, and the merged files by a patch of its own tree.
        let mut promoted = None;
        if let Some(patch) = &outcome.promoted {
            let mut state = merged.clone();
            state.set_files(patched(own, patch, merged.files())?);
            promoted = Some(Arc::new(state));
        }
        let base = match merge {
            MergeVerb::Revert(entries) => replayed_base(context, &parent, entries, &outcome.base)?,
            MergeVerb::Merge | MergeVerb::Promote | MergeVerb::Pull => None,
        };
        let trees = [child.base.files(), own, above];
        for decision in &outcome.decisions {
            both_changed.push(
                decision
                    .decision(trees)
                    .ok_or_else(|| missing_from_outcome("a file that both sides changed is not at its path".into()))?,
            );
        }
        Ok(Integration {
            merge,
            branch,
            merged: Arc::new(merged),
            child_head: child.state.head(),
            promoted,
            base,
            both_changed,
            counts: outcome.counts,
            plan: outcome.plan,
            not_merged: outcome.not_merged.clone(),
            note: outcome.note.clone(),
            items: outcome.items.clone(),
        })
    }

    /// Returns the entry and what changes in the catalog. Kind `NotEmpty` for the merge of a branch with child
    /// branches; it also fails if a root branch has no parent.
    pub fn prepare(self, catalog: &Catalog, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = catalog.branch(self.branch)?;
        let parent = if self.merge.is_revert() { branch } else { catalog.parent(branch)? };
        // A replay comes here without `try_merge`, which has asked this of a merge of now before it planned anything.
        if self.merge == MergeVerb::Merge {
            check_no_children(branch)?;
        }
        let receiver = if self.merge == MergeVerb::Pull { branch } else { parent };
        let (label, text) = match self.merge {
            MergeVerb::Revert(entries) => (Some(entries.label().into()), Some(entries.verb.name().into())),
            MergeVerb::Merge | MergeVerb::Promote | MergeVerb::Pull => {
                (None, (!self.note.is_empty()).then(|| self.note.clone()))
            }
        };
        let mut prepared = prepare_on_branch(catalog, log_record, branch, self.merge.op()).with_detail(Detail {
            label,
            text,
            strategy: Some(receiver.settings.strategy()),
            conflicts: self.both_changed,
            merge: Some(MergeDetail {
                child_head: self.child_head,
                parent_head: parent.state.head(),
                plan: self.plan,
                not_merged: self.not_merged,
            }),
            items: self.items,
            plan: None,
        });
        prepared.head = self.merged.head();
        prepared.counts = self.counts;
        prepared.changes.push(CatalogChange::State(receiver.id, self.merged.clone()));
        match self.merge {
            MergeVerb::Merge => prepared.changes.push(CatalogChange::Remove(branch.id)),
            MergeVerb::Pull => prepared.changes.push(CatalogChange::Base(branch.id, parent.state.clone())),
            MergeVerb::Promote => {
                // The branch goes on from what its parent has now, under its own inode numbers, and its proposal is
                // answered.
                let promoted = self.promoted.unwrap_or_else(|| self.merged.clone());
                prepared.changes.push(CatalogChange::State(branch.id, promoted));
                prepared.changes.push(CatalogChange::Proposal(branch.id, None));
                prepared.changes.push(CatalogChange::Base(branch.id, self.merged));
            }
            MergeVerb::Revert(_) => {
                prepared.changes.extend(self.base.map(|base| CatalogChange::Base(branch.id, base)));
            }
        }
        Ok(prepared)
    }
}

/// Returns the parent's records with the branch's versions where they were taken, and what both sides changed.
fn merged_records(
    child: &Branch,
    parent: &Branch,
    outcome: &MergeOutcome,
) -> Result<(BranchVersion, Vec<Decision>), Error> {
    let sides = Sides { base: &child.base, child: &child.state, parent: &parent.state, name: &child.name };
    let differences = differences_with_flags_at_most(sides.base, sides.child, usize::MAX)?;
    let RecordDifferences { content: changes, stale_flags } = differences.unwrap_or_default();
    // Outcomes are recorded in the order of the changes, without ids. Another number of them would apply each to a
    // wrong record.
    if changes.len() as u64 != outcome.records.len() {
        let (found, recorded) = (changes.len(), outcome.records.len());
        return Err(missing_from_outcome(format!("{found} records differ between branch and base, not {recorded}")));
    }
    let (mut merged, mut both_changed) = (BranchVersion::clone(sides.parent), Vec::new());
    // Ids are recorded for kept-both outcomes alone, in the same order, so they are taken as such outcomes come.
    let mut other_ids = outcome.records.kept_ids().cloned();
    for (change, outcome) in changes.iter().zip(outcome.records.iter()) {
        let mut kept_as = None;
        if matches!(outcome, RecordOutcome::Taken | RecordOutcome::Child) {
            Action::from_difference(change, sides.child).apply(&mut merged)?;
        }
        if outcome == RecordOutcome::Both {
            let id = other_ids.next().ok_or_else(|| missing_from_outcome("a record that is kept has no id".into()))?;
            Action::keep_under_id(change, id.clone())?.map_or(Ok(()), |action| action.apply(&mut merged))?;
            kept_as = Some(id);
        }
        if let Some(side) = outcome.side() {
            both_changed.push(Decision { decision: Some(side), kept_as, ..decision_on(change, &sides)? });
        }
    }
    // Which flags are carried follows from the states alone, so no outcome is recorded for them.
    for change in &stale_flags {
        plan_stale_flag(change, &sides)?.map_or(Ok(()), |action| action.apply(&mut merged))?;
    }
    Ok((merged, both_changed))
}

fn missing_from_outcome(found: String) -> Error {
    Error::damaged(format!("what its recorded outcome refers to is not there: {found}"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::{Disk, ForgetfulDisk};
    use crate::memory::command::merge_outcome::RecordOutcomes;
    use crate::memory::merging::merge_budget::MergeBudget;
    use crate::memory::merging::merge_plan::MergePlan;
    use crate::memory::{
        Actor, Environment, Kind, Memory, OpenMode, RecordEdit, RecordInput, VerifyOptions, verify_on,
    };

    fn who() -> Actor {
        Actor { uid: 0, gid: 0, name: "root".into() }
    }

    fn put(memory: &Memory, branch: BranchId, text: &str) {
        let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
        memory.commit(&who(), branch, vec![RecordEdit::Put { id: "a".into(), input }]).unwrap();
    }

    /// A store whose branch `child` changed a record that its parent changed, too.
    fn conflict() -> (ForgetfulDisk, Arc<Memory>, BranchId, BranchId) {
        let disk = ForgetfulDisk::new();
        let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, Environment::real(who())).unwrap();
        let main = memory.catalog().roots["main"];
        put(&memory, main, "base");
        let child = memory.fork(&who(), main, "child", None).unwrap();
        put(&memory, main, "of the parent");
        put(&memory, child, "of the child");
        (disk, memory, main, child)
    }

    fn plan(memory: &Memory, child: BranchId) -> MergePlan {
        let (catalog, budget) = (memory.catalog().clone(), MergeBudget::ALL);
        MergePlan::new(memory.merge_context(&catalog), child, MergeVerb::Merge, None, &budget).unwrap()
    }

    fn record_text(memory: &Memory, branch: BranchId) -> String {
        let catalog = memory.catalog();
        let row = catalog.branch(branch).unwrap().state.find("a").unwrap().unwrap();
        row.version().unwrap().content.text.clone().unwrap().to_string()
    }

    fn verified(disk: &ForgetfulDisk) -> Result<(), Error> {
        verify_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &VerifyOptions::default()).map(drop)
    }

    #[test]
    fn an_opening_applies_the_recorded_outcome_and_decides_nothing_again() {
        let (disk, memory, main, child) = conflict();
        let decided = plan(&memory, child).outcome(&Arc::default()).unwrap();
        assert_eq!(decided.records.iter().collect::<Vec<_>>(), [RecordOutcome::Child]);
        // As another version might have decided it.
        let (mut records, mut merged) = (RecordOutcomes::default(), decided);
        records.push(RecordOutcome::Parent, None);
        (merged.records, merged.head) = (records, memory.catalog().branch(main).unwrap().state.head());
        let mut writer = memory.writer().unwrap();
        memory
            .execute(
                &mut writer,
                0,
                MergeBranches { branch: child, merge: MergeVerb::Merge, outcome: Arc::new(merged) },
            )
            .unwrap();
        drop(writer);
        assert_eq!(record_text(&memory, main), "of the parent");
        memory.sync().unwrap();
        verified(&disk).unwrap();
        let again =
            Memory::open_on(Arc::new(disk.power_cut_keep_all()), OpenMode::Existing, None, Environment::real(who()));
        assert_eq!(record_text(&again.unwrap(), main), "of the parent");
    }

    #[test]
    fn an_entry_that_another_version_applied_otherwise_is_not_called_forged() {
        let (disk, memory, _, child) = conflict();
        let plan = plan(&memory, child);
        let mut outcome = plan.outcome(&Arc::default()).unwrap();
        outcome.head = crate::object::Hash([1; 32]);
        let recorded = outcome.head;
        let (branch, merge) = (child, MergeVerb::Merge);
        let command = Box::new(MergeBranches { branch, merge, outcome: Arc::new(outcome) });
        let mut writer = memory.writer().unwrap();
        let time = memory.next_time(&mut writer).unwrap();
        let log_record = LogRecord { time, planned: plan.time, uid: 0, command };
        memory
            .execute_planned(&mut writer, log_record, |catalog, log_record| {
                Ok(PreparedCommand { head: recorded, ..plan.prepare(catalog, log_record, Arc::default())? })
            })
            .unwrap();
        drop(writer);
        memory.sync().unwrap();
        let error = verified(&disk).unwrap_err();
        assert!(error.to_string().contains("is genuine and led to the head 0101"), "{error}");
        assert_eq!((error.kind(), error.code()), (Kind::Unsupported, "other_version"), "{}", error.hint());
    }

    #[test]
    fn an_outcome_for_other_records_is_damage() {
        let (_, memory, _, child) = conflict();
        let mut outcome = plan(&memory, child).outcome(&Arc::default()).unwrap();
        outcome.records.push(RecordOutcome::Taken, None);
        let catalog = memory.catalog().clone();
        let replayed = Integration::replay(&memory.merge_context(&catalog), child, MergeVerb::Merge, &outcome);
        let error = replayed.err().unwrap();
        assert!(error.to_string().contains("1 records differ between branch and base, not 2"), "{error}");
    }
}
