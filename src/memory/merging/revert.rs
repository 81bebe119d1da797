//! Taking back what entries did to a branch: a three-way merge of the state before them into the present one, with the state
//! after them as the base.

use std::sync::Arc;

use super::find_state::StateSearch;
use super::merge::MergeOptions;
use super::merge_budget::PlanError;
use super::merge_plan::MergeContext;
use super::merge_result::{MergeResult, RevertSummary};
use crate::branch::{BranchVersion, differences_at_most};
use crate::lineage::SignedEntry;
use crate::memory::catalog::{Branch, BranchId, BranchRef, Catalog, Revision, RevisionPoint, StateSource};
use crate::memory::command::merge_outcome::BaseOutcome;
use crate::memory::command::merge_verb::{MergeVerb, RevertVerb, RevertedEntries};
use crate::memory::storage::trees::tree_error;
use crate::memory::{Actor, Error, Memory, MergeError};
use crate::merge::Action;
use crate::merge::files::{FileMerge, GuardScope, MergeTrees, ReaderGuard, Rules, plan_files};
use crate::workspace::Tree;

/// Returns a branch as it was before some entries, with its state after them as the base. [`Error::NotKept`] if one of
/// the two states is past `config/keep`.
pub(super) fn branch_before(
    catalog: &Catalog,
    branch: &BranchRef,
    entries: RevertedEntries,
) -> Result<BranchRef, Error> {
    let state = |entry: u64| Ok::<_, Error>(catalog.resolve_source(branch, &StateSource::Entry(entry))?.state);
    let mut before = branch.clone();
    let restored = before.make_mut();
    (restored.state, restored.base) = (state(entries.before)?, state(entries.last)?);
    // The name goes into new ids under keep-both, where that of the branch would not say that this is an earlier
    // version.
    restored.name = "before".into();
    Ok(before)
}

/// Returns the bases that a branch had before and after some entries; `None` if they did not change it.
fn bases(
    catalog: &Catalog,
    branch: &Branch,
    entries: RevertedEntries,
) -> Result<Option<[Arc<BranchVersion>; 2]>, Error> {
    let base = |entry: u64| Ok::<_, Error>(catalog.resolve_source(branch, &StateSource::Entry(entry))?.base);
    let (before, after) = (base(entries.before)?, base(entries.last)?);
    Ok((before.head() != after.head()).then_some([before, after]))
}

/// Returns the base that a branch gets when entries are taken back, and how it comes about. What they brought into the base goes
/// from it, too: a later merge would else take away what the branch never decided to delete.
///
/// [`PlanError::Exceeded`] if more than `limit` records or paths differ.
pub(super) fn base_before(
    context: MergeContext<'_>,
    branch: &Branch,
    entries: RevertedEntries,
    limit: usize,
) -> Result<(Option<Arc<BranchVersion>>, BaseOutcome), PlanError> {
    let Some([before, after]) = bases(context.catalog, branch, entries)? else {
        return Ok((None, BaseOutcome::Stays));
    };
    // Nothing has changed the base since, so it is simply the one before.
    if branch.base.head() == after.head() {
        return Ok((Some(before), BaseOutcome::AsBefore));
    }
    let mut base = with_records_restored(&branch.base, &before, &after, limit)?;
    let all = Rules::parse("** whole").unwrap_or_default();
    let file_merge = FileMerge {
        guard: ReaderGuard::new(branch.uid, GuardScope::EarlierFiles),
        ..FileMerge::fast_forward(&all, context.packs, limit, context.time)
    };
    let trees = MergeTrees { base: after.files(), child: before.files(), parent: branch.base.files() };
    let (tree, patch) = plan_files(trees, &file_merge)?.without_removed(context.time, context.packs)?;
    base.set_files(tree);
    Ok((Some(Arc::new(base)), BaseOutcome::Patched(Arc::new(patch))))
}

/// Returns the base that a recorded outcome leads to; `None` if it stays. Kind `Damaged` if the outcome changes a base
/// that the entries did not change.
pub(super) fn replayed_base(
    context: &MergeContext<'_>,
    branch: &Branch,
    entries: RevertedEntries,
    outcome: &BaseOutcome,
) -> Result<Option<Arc<BranchVersion>>, Error> {
    if *outcome == BaseOutcome::Stays {
        return Ok(None);
    }
    let changed = || Error::damaged("the recorded outcome changes a base that its entries did not".to_owned());
    let [before, after] = bases(context.catalog, branch, entries)?.ok_or_else(changed)?;
    let BaseOutcome::Patched(patch) = outcome else { return Ok(Some(before)) };
    let mut base = with_records_restored(&branch.base, &before, &after, usize::MAX)?;
    let patched = |own: &Tree| own.apply_patch(patch, before.files(), context.time, context.packs).map_err(tree_error);
    base.set_files(patched(branch.base.files())?);
    Ok(Some(Arc::new(base)))
}

/// Returns a state with what `before` and `after` have differently as `before` has it; [`PlanError::Exceeded`] beyond `limit`.
fn with_records_restored(
    state: &BranchVersion,
    before: &BranchVersion,
    after: &BranchVersion,
    limit: usize,
) -> Result<BranchVersion, PlanError> {
    let mut state = BranchVersion::clone(state);
    for change in differences_at_most(after, before, limit)?.ok_or(PlanError::Exceeded)? {
        Action::from_difference(&change, before).apply(&mut state)?;
    }
    Ok(state)
}

/// The entries that a revert takes back.
pub(super) struct RevertTarget {
    /// The first and the last of them, and what gave the state before.
    pub entries: RevertedEntries,
    /// The last of them, whose word and time stand for all in results.
    pub last: Arc<SignedEntry>,
}

impl RevertTarget {
    fn summary(&self) -> RevertSummary {
        let entry = &self.last.entry;
        RevertSummary { entries: self.entries.label(), op: entry.op.name(), time: entry.time.to_string() }
    }
}

impl Memory {
    /// Takes back what one entry did to a branch, as a new entry; later changes stay. With `dry_run` nothing is done,
    /// and what prevents it is in [`MergeResult::blockers`]. Conflicts and options are those of [`Memory::merge_with`].
    ///
    /// Code `not_revertible` if the entry did not change the branch's content, `not_kept` if the state before or after
    /// it is past `config/keep`. Otherwise fails like [`Memory::merge_with`].
    pub fn revert(
        &self,
        who: &Actor,
        branch: BranchId,
        entry: &Revision,
        options: MergeOptions,
        dry_run: bool,
    ) -> Result<MergeResult, Error> {
        let target = self.find_revert_target(branch, entry)?;
        self.revert_entries(who, branch, &target, options, dry_run)
    }

    /// Takes entries back, or tells what that would come to. Fails like `Memory::merge_with` and `Memory::dry_run`.
    pub(super) fn revert_entries(
        &self,
        who: &Actor,
        branch: BranchId,
        target: &RevertTarget,
        options: MergeOptions,
        dry_run: bool,
    ) -> Result<MergeResult, Error> {
        let merge = MergeVerb::Revert(target.entries);
        let result = match dry_run {
            true => self.dry_run(who, branch, merge, options.plan)?,
            false => self.merge_with(who, branch, merge, options)?,
        };
        Ok(MergeResult { reverted: vec![target.summary()], ..result })
    }

    /// Returns the entry that a revision names, with the state before it.
    fn find_revert_target(&self, branch: BranchId, revision: &Revision) -> Result<RevertTarget, Error> {
        let search = StateSearch::new(self, branch)?;
        let not_revertible = || Error::from(MergeError::NotRevertible(revision.to_string()));
        let signed = match revision.point() {
            Some(RevisionPoint::Number(seq)) if (1..=search.reader.newest()).contains(&seq) => {
                search.reader.entry(seq)?
            }
            Some(RevisionPoint::Entry(hash)) => search.reader.find_by_hash(&hash)?.ok_or_else(not_revertible)?,
            _ => return Err(not_revertible()),
        };
        // A branch has the number of the entry that made it, and before that one there is no state.
        if signed.entry.seq <= search.branch.id.0 || !search.changes_state(&signed.entry) {
            return Err(not_revertible());
        }
        let seq = signed.entry.seq;
        // The last change of content, and not the entry before: what lies between may be settings, of which no state is
        // kept.
        let before = search.state_before(seq)?.ok_or_else(|| Error::NotKept(revision.to_string()))?;
        Ok(RevertTarget {
            entries: RevertedEntries { before, first: seq, last: seq, verb: RevertVerb::Revert },
            last: signed,
        })
    }
}
