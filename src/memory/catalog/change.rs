//! Changes of the catalog: what an entry does to it, step by step.

use std::sync::Arc;

use imbl::OrdMap;

use super::agents::AgentHolder;
use super::branch::{log_owner, name_path};
use super::branch_files::{file_metadata_bytes, without_orphans};
use super::settings::{Setting, Settings};
use super::shared_log::{SharedLogCursor, SharedLogTotals};
use super::{Branch, BranchId, BranchRef, Catalog, Checkpoint, LeaseState, LineageStart, Proposal, Resolution, Review};
use crate::branch::{BranchVersion, RetainedState, StateKey};
use crate::lineage::EntryOp;
use crate::object::{Hash, Time};

/// One change of the catalog; an entry brings about several, in order.
pub enum CatalogChange {
    /// A branch appears, and gets its number: a root branch, a child, or the holder of a log, which is no child.
    Add(Box<Branch>),
    /// A branch ends, with its signals. Its log stays with the log above, or goes where there is none.
    Remove(BranchId),
    /// A branch's records and files become these; its base stays.
    State(BranchId, Arc<BranchVersion>),
    /// A branch's base becomes this; what was resolved against the one before is forgotten.
    Base(BranchId, Arc<BranchVersion>),
    /// A checkpoint appears; it gets the `seq` of the entry when that is applied.
    Checkpoint(BranchId, Arc<str>, Checkpoint),
    /// The checkpoint with that label goes.
    RemoveCheckpoint(BranchId, Arc<str>),
    /// A child branch gets another name, by which its proposal ends.
    Rename(BranchId, Arc<str>),
    /// A setting gets a value. Another session ends the signals of the one before.
    Set(BranchId, Setting, Arc<str>),
    /// All settings get values; no session ends by that.
    Settings(BranchId, Settings),
    /// The first vector fixes dimension and metric of a root branch.
    FixDimAndMetric(BranchId),
    /// The directory of a branch gets other permission bits.
    Mode(BranchId, u32),
    /// A branch belongs to another user, with the files that its owner had and others may read.
    Owner(BranchId, u32),
    /// A conflict is resolved, for as long as both sides have the versions of the resolution.
    Resolve(BranchId, Arc<str>, Resolution),
    /// A uid gets the name that its entries carry.
    User(u32, Arc<str>),
    /// Something was purged from states of these branches, which are replaced as a whole.
    Purged(Vec<BranchRef>),
    /// Something was purged from earlier states, which are replaced; these files of them are removed.
    PurgedStates(Vec<(StateKey, RetainedState)>, Vec<Hash>),
    /// The clock went back: branches changed later than this time count as changed at this time.
    Clock(Time),
    /// A branch that holds the entries of a log has these totals from now on.
    LogTotals(BranchId, SharedLogTotals),
    /// Somebody works in a branch, or nobody does any longer.
    Lease(BranchId, LeaseState),
    /// A name of an agent below a root branch has that holder, or none and is free.
    Agent(BranchId, Arc<str>, Option<AgentHolder>),
    /// A branch proposes its state to its parent, with no review yet, or nothing any longer.
    Proposal(BranchId, Option<Checkpoint>),
    /// An approver said something of what a branch proposes.
    Review(BranchId, u32, Review),
    /// A branch's own log becomes one that was closed, with that name.
    CloseLog(BranchId, Arc<str>),
    /// The last entry of a branch's shared log when it got its base.
    LogAtBase(BranchId, u64),
    /// A branch has read its shared log so far; a rollback to a checkpoint sets it back.
    Cursor(BranchId, SharedLogCursor),
    /// The lineage begins behind entries that were moved out.
    LineageStart(LineageStart),
}

/// Returns the branches whose records, files or base an entry changes, each once and in order of their ids.
fn changed_branches(branch: BranchId, op: EntryOp, changes: &[CatalogChange]) -> Vec<BranchId> {
    let changed = |change: &CatalogChange| match change {
        CatalogChange::Add(branch) => branch.log_totals.is_none().then_some(branch.id),
        CatalogChange::State(id, _) | CatalogChange::Base(id, _) => Some(*id),
        _ => None,
    };
    let mut ids: Vec<BranchId> = changes.iter().filter_map(changed).collect();
    ids.extend((op == EntryOp::Files).then_some(branch));
    ids.sort_unstable();
    ids.dedup();
    ids
}

impl Catalog {
    /// Carries out the changes of an entry about `branch` in their order, keeps the states that they leave, and can't fail.
    pub fn apply(&mut self, branch: BranchId, op: EntryOp, changes: Vec<CatalogChange>, seq: u64, time: Time) {
        let mut changed = changed_branches(branch, op, &changes);
        // What was appended to a log stays: it has no earlier states.
        changed.retain(|id| self.branches.get(id).is_none_or(|branch| branch.log_totals.is_none()));
        // Before the changes, which replace the states that are to stay.
        if op.is_taken_back_whole() {
            changed.iter().filter_map(|id| self.branches.get(id)).for_each(|branch| self.retained.pin(branch));
        }
        for change in &changes {
            if let CatalogChange::State(id, state) = change
                && let Some(branch) = self.branches.get(id).filter(|branch| branch.log_totals.is_none())
            {
                let deletes = op == EntryOp::Commit && state.totals().records < branch.state.totals().records;
                self.retained.track_deletes(branch, deletes);
            }
        }
        for change in changes {
            if let CatalogChange::Remove(id) = change
                && let Some(branch) = self.branches.get(&id)
            {
                // What is remembered of a branch is read from it before it goes.
                self.retained.end(branch, seq, time, op == EntryOp::Merge);
            }
            self.apply_change(change, seq, time);
        }
        self.change_branch(branch, seq, |_| ());
        for id in changed {
            let Some(branch) = self.branches.get_mut(&id) else { continue };
            branch.make_mut().state_entry = seq;
            self.retained.push(branch, seq, time, false);
        }
    }

    /// Carries out one change of the entry `seq`. Nothing is checked, and of a branch that is not there nothing
    /// changes.
    ///
    /// A change of a branch's state or base has to count anew how much memory its files take: through
    /// [`Catalog::change_branch_counted`], or by itself where the owner changes or the branch comes or goes. Any other goes
    /// through [`Catalog::change_branch`]. One that gives a branch another state also sets `state_seq`, by which plans notice;
    /// one that rewrites earlier states raises `rewrite_count` instead.
    pub(super) fn apply_change(&mut self, change: CatalogChange, seq: u64, time: Time) {
        match change {
            CatalogChange::Add(branch) => self.add(*branch, seq),
            CatalogChange::Remove(id) => self.remove(id, seq),
            CatalogChange::User(uid, name) => {
                self.users.insert(uid, name);
            }
            CatalogChange::State(id, state) => self.change_branch_counted(id, seq, |branch| {
                branch.state = state;
                branch.state_seq = seq;
                branch.changed = time;
            }),
            CatalogChange::Base(id, base) => self.set_base(id, base, seq),
            CatalogChange::Checkpoint(id, label, checkpoint) => self.change_branch(id, seq, |branch| {
                branch.checkpoints.insert(label, Checkpoint { seq, ..checkpoint });
            }),
            CatalogChange::RemoveCheckpoint(id, label) => self.change_branch(id, seq, |branch| {
                branch.checkpoints.remove(&label);
            }),
            CatalogChange::Purged(branches) => {
                branches.into_iter().for_each(|branch| self.replace_purged_branch(branch, seq, time))
            }
            CatalogChange::PurgedStates(states, files) => {
                // A plan that rests on an earlier state has no `state_seq` to compare, as one on a branch has.
                self.retained.replace(states, &files);
                self.rewrite_count += 1;
            }
            CatalogChange::Clock(now) => self.clamp_change_times(now),
            CatalogChange::LineageStart(start) => self.start = start,
            CatalogChange::Rename(id, name) => self.rename(id, name, seq),
            CatalogChange::Set(id, setting, value) => self.change_setting(id, setting, &value, seq),
            // Ends no session, as a new one that is set would: signals are imported after all settings.
            CatalogChange::Settings(id, settings) => {
                self.change_branch(id, seq, |branch| branch.settings = settings);
                self.recompute_derived_fields(id);
            }
            CatalogChange::CloseLog(id, name) => self.change_branch(id, seq, |branch| {
                if let Some(log) = branch.log.take() {
                    branch.closed_logs.insert(name, log);
                }
            }),
            CatalogChange::LogAtBase(id, entry) => self.change_branch(id, seq, |branch| branch.log_at_base = entry),
            CatalogChange::LogTotals(id, totals) => {
                self.change_branch(id, seq, |branch| branch.log_totals = Some(totals))
            }
            CatalogChange::Lease(id, lease) => self.change_branch(id, seq, |branch| branch.lease = lease),
            CatalogChange::Agent(root, name, holder) => self.change_branch(root, seq, |root| {
                match holder {
                    Some(holder) => root.agents.insert(name, holder),
                    None => root.agents.remove(&name),
                };
            }),
            CatalogChange::Proposal(id, frozen) => self.change_branch(id, seq, |branch| {
                branch.proposal = frozen.map(|frozen| Arc::new(Proposal::new(Checkpoint { seq, ..frozen })));
            }),
            CatalogChange::Review(id, uid, review) => self.change_branch(id, seq, |branch| {
                if let Some(proposal) = &mut branch.proposal {
                    Arc::make_mut(proposal).reviews.insert(uid, review);
                }
            }),
            CatalogChange::Cursor(id, cursor) => self.change_branch(id, seq, |branch| branch.cursor = cursor),
            CatalogChange::FixDimAndMetric(id) => self.change_branch(id, seq, |branch| branch.vectors_fixed = true),
            CatalogChange::Mode(id, mode) => self.change_branch(id, seq, |branch| branch.mode = mode),
            CatalogChange::Owner(id, uid) => self.change_owner(id, uid, seq),
            CatalogChange::Resolve(id, item, resolution) => self.change_branch(id, seq, |branch| {
                branch.resolutions.insert(item, resolution);
            }),
        }
    }

    /// Gives a branch another value of a setting. The signals of a session end where another session begins.
    fn change_setting(&mut self, id: BranchId, setting: Setting, value: &str, seq: u64) {
        let before = self.branches.get(&id).filter(|branch| **branch.settings.get(setting) != *value).cloned();
        if let (Setting::Session, Some(branch)) = (setting, before) {
            self.end_session(&branch);
        }
        self.change_branch(id, seq, |branch| branch.settings = branch.settings.with_setting(setting, value));
        if setting == Setting::Log {
            self.recompute_derived_fields(id);
        }
    }

    fn set_base(&mut self, id: BranchId, base: Arc<BranchVersion>, seq: u64) {
        let log_at_base = self.branches.get(&id).map_or(0, |branch| self.log_entry_count(branch));
        // Files without a name live for handles on the branch that has them: a base would keep their room when those are closed.
        let base = without_orphans(&base);
        self.change_branch_counted(id, seq, |branch| {
            (branch.base, branch.base_seq, branch.log_at_base) = (base, seq, log_at_base);
            // What was resolved was resolved against the base before; a rollback may bring the same two versions back.
            branch.resolutions = OrdMap::new();
        });
    }

    /// Moves times of change that are in the future back to `now`, or such branches would not expire for as long.
    fn clamp_change_times(&mut self, now: Time) {
        let ahead = self.branches.values().filter(|branch| branch.changed > now).map(|branch| branch.id);
        for id in ahead.collect::<Vec<BranchId>>() {
            self.change(id, |branch| branch.changed = branch.changed.min(now));
        }
    }

    /// Puts a branch in the place of itself. Nothing that was worked out for it before holds any longer.
    fn replace_purged_branch(&mut self, purged: BranchRef, seq: u64, time: Time) {
        self.change_branch_counted(purged.id, seq, |branch| {
            if !Arc::ptr_eq(&branch.state, &purged.state) {
                branch.changed = time;
            }
            let (cursor, signals, lease) = (branch.cursor, branch.signals.clone(), branch.lease);
            let (agents, log_at_base, log_owner) = (branch.agents.clone(), branch.log_at_base, branch.log_owner);
            let (last_entry_seq, state_seq, base_seq, changed) = (seq, seq, seq, branch.changed);
            *branch = Branch {
                last_entry_seq,
                state_seq,
                base_seq,
                changed,
                cursor,
                signals,
                lease,
                agents,
                log_at_base,
                log_owner,
                ..Branch::clone(&purged)
            };
        });
    }

    fn change_branch(&mut self, id: BranchId, seq: u64, change: impl FnOnce(&mut Branch)) {
        if let Some(branch) = self.branches.get_mut(&id) {
            let branch = branch.make_mut();
            branch.last_entry_seq = seq;
            change(branch);
        }
    }

    /// As `change_branch`, for what may change how much memory a branch's files take: the owner's sum follows.
    fn change_branch_counted(&mut self, id: BranchId, seq: u64, change: impl FnOnce(&mut Branch)) {
        let before = self.branches.get(&id).map_or(0, |branch| file_metadata_bytes(branch));
        self.change_branch(id, seq, change);
        if let Some(branch) = self.branches.get(&id) {
            self.metadata_bytes.replace(branch.uid, before, file_metadata_bytes(branch));
        }
    }

    fn add(&mut self, mut branch: Branch, seq: u64) {
        branch.number = self.numbers.allocate();
        let parent = branch.parent.and_then(|id| self.branches.get(&id));
        // One that is brought back may have had a log of its own.
        branch.log_owner = log_owner(parent.map(|parent| &**parent), &branch);
        branch.log_at_base = self.log_entry_count(&branch);
        self.metadata_bytes.replace(branch.uid, 0, file_metadata_bytes(&branch));
        match branch.parent {
            None => {
                self.roots.insert(branch.name.clone(), branch.id);
            }
            Some(parent) if branch.log_totals.is_some() => {
                self.change_branch(parent, seq, |owner| owner.log = Some(branch.id))
            }
            Some(parent) => self.change_branch(parent, seq, |parent| {
                parent.children.insert(branch.name.clone(), branch.id);
            }),
        }
        self.branches.insert(branch.id, BranchRef::new(branch));
    }

    fn remove(&mut self, id: BranchId, seq: u64) {
        let Some(branch) = self.branches.remove(&id) else { return };
        self.metadata_bytes.replace(branch.uid, file_metadata_bytes(&branch), 0);
        self.numbers.free(branch.number);
        self.close_log(&branch, seq);
        self.end_session(&branch);
        self.uncount_signals(&branch);
        match branch.parent {
            // The branch that holds a log ends with its parent, which is gone already.
            Some(_) if branch.log_totals.is_some() => {}
            None => {
                self.roots.remove(&branch.name);
            }
            Some(parent) => self.change_branch(parent, seq, |parent| {
                parent.children.remove(&branch.name);
            }),
        }
    }

    fn rename(&mut self, id: BranchId, name: Arc<str>, seq: u64) {
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let branch = branch.make_mut();
        let old = std::mem::replace(&mut branch.name, name.clone());
        // A proposal names the branch by its old name, so it ends with a rename.
        branch.proposal = None;
        branch.last_entry_seq = seq;
        if let Some(parent) = branch.parent {
            self.change_branch(parent, seq, |parent| {
                parent.children.remove(&old);
                parent.children.insert(name, id);
            });
        }
        self.recompute_derived_fields(id);
    }

    /// Works out path and log owner of a branch and of all below it, after a name, a parent or a setting changed.
    pub(super) fn recompute_derived_fields(&mut self, top: BranchId) {
        let mut left = vec![top];
        while let Some(id) = left.pop() {
            let Some(branch) = self.branches.get(&id) else { continue };
            let parent = branch.parent.and_then(|id| self.branches.get(&id)).map(|parent| &**parent);
            let (path, log_owner) = (name_path(parent, &branch.name), log_owner(parent, branch));
            left.extend(branch.children.values().chain(branch.closed_logs.values()).chain(&branch.log));
            // Versions of a branch are compared by address: one that does not change keeps its own.
            if (&path, log_owner) != (&branch.path, branch.log_owner)
                && let Some(branch) = self.branches.get_mut(&id)
            {
                let branch = branch.make_mut();
                (branch.path, branch.log_owner) = (path, log_owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `main`, `main/a/b/d` and `main/e`, whose ids are 1 to 5 in the order of their names.
    fn catalog_of_five() -> Catalog {
        let mut catalog = Catalog::default();
        for (id, name, parent) in
            [(1, "main", None), (2, "a", Some(1)), (3, "b", Some(2)), (4, "d", Some(3)), (5, "e", Some(1))]
        {
            let parent = parent.and_then(|id| catalog.branches.get(&BranchId(id)).cloned());
            let state = Arc::new(BranchVersion::default());
            catalog.add(Branch::new(BranchId(id), name.into(), parent.as_deref(), state, 0, Time(0)), id);
        }
        catalog
    }

    #[test]
    fn a_new_name_is_in_the_paths_of_all_below_it() {
        let mut catalog = catalog_of_five();
        let paths =
            |catalog: &Catalog| (1..6).map(|id| catalog.branches[&BranchId(id)].path.to_string()).collect::<Vec<_>>();
        assert_eq!(paths(&catalog), ["main", "main/a", "main/a/b", "main/a/b/d", "main/e"]);
        let before = catalog.clone();
        catalog.rename(BranchId(2), "c".into(), 6);
        assert_eq!(paths(&catalog), ["main", "main/c", "main/c/b", "main/c/b/d", "main/e"]);
        assert_eq!(paths(&before)[3], "main/a/b/d", "an earlier catalog stays as it was");
        assert_eq!(catalog.resolve("main/c/b/d").ok(), Some(BranchId(4)));
    }

    #[test]
    fn a_branch_that_comes_with_a_log_of_its_own_owns_it() {
        let mut catalog = catalog_of_five();
        let parent = catalog.branches[&BranchId(2)].clone();
        let mut branch = Branch::new(BranchId(6), "f".into(), Some(&parent), Arc::default(), 0, Time(0));
        branch.settings = branch.settings.with_setting(Setting::Log, "own");
        catalog.add(branch, 6);
        assert_eq!(catalog.branches[&BranchId(6)].log_owner, BranchId(6));
    }

    #[test]
    fn a_log_is_that_of_all_below_it_but_those_with_a_log_of_their_own() {
        let mut catalog = catalog_of_five();
        let settings =
            |catalog: &Catalog, id, log| catalog.branches[&BranchId(id)].settings.with_setting(Setting::Log, log);
        let owners =
            |catalog: &Catalog| (1..6).map(|id| catalog.branches[&BranchId(id)].log_owner.0).collect::<Vec<_>>();
        assert_eq!(owners(&catalog), [1, 1, 1, 1, 1]);
        catalog.change_setting(BranchId(2), Setting::Log, "own", 6);
        assert_eq!(owners(&catalog), [1, 2, 2, 2, 1]);
        let all = settings(&catalog, 4, "own");
        catalog.apply_change(CatalogChange::Settings(BranchId(4), all), 7, Time(0));
        assert_eq!(owners(&catalog), [1, 2, 2, 4, 1]);
        let before = catalog.clone();
        catalog.change_setting(BranchId(2), Setting::Log, "inherit", 8);
        assert_eq!(owners(&catalog), [1, 1, 1, 4, 1]);
        assert_eq!(owners(&before), [1, 2, 2, 4, 1], "an earlier catalog stays as it was");
        assert!(
            catalog.branches[&BranchId(5)] == before.branches[&BranchId(5)],
            "one that is not below does not change"
        );
    }
}
