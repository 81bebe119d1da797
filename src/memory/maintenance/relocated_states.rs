//! Earlier states on their way to other segments and packs: what they need, and how they are moved.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::relocations::{CompactionGroup, GroupKey, RelocatedState, Relocations, add_layers, large_root_branch};
use crate::branch::{BranchVersion, VisibleRows};
use crate::memory::catalog::{BranchId, Branches, Catalog, RecentState, RetainedStates};
use crate::object::Hash;
use crate::segment::Row;

/// Gathers what earlier states need beside what branches do, which the groups have already.
pub(super) fn add_retained(
    catalog: &Catalog,
    owners: &HashMap<Hash, Option<BranchId>>,
    groups: &mut BTreeMap<GroupKey, CompactionGroup>,
) {
    let root_of = |branch: BranchId| large_root_branch(catalog, catalog.branches.get(&branch)?);
    let mut add = |row: Row, root: Option<BranchId>| match row {
        Row::Unsealed(version) => {
            let dim = version.content.vector.as_ref().map_or(0, |vector| vector.len());
            groups.entry((dim, root)).or_default().unsealed.insert(Arc::as_ptr(&version), version);
        }
        Row::Sealed(segment, row) => {
            let group = groups.entry((segment.dim(), owners.get(&segment.name()).copied().flatten())).or_default();
            let none = || (segment.clone(), VisibleRows::none(segment.rows()));
            group.segments.entry(segment.name()).or_insert_with(none).1.set(row, true);
        }
    };
    let nothing = Arc::new(BranchVersion::default());
    let (mut seen, mut last, mut branch_before) = (HashSet::new(), None, None);
    // Each is compared with what it has most in common with, whose rows are there already: the one before it, and the first of
    // a branch with what the branch is now. Parents come before their children.
    for ((branch, _), recent) in &catalog.retained.recent {
        let root = root_of(*branch);
        if branch_before.replace(*branch) != Some(*branch) {
            last = catalog.branches.get(branch).map(|branch| &branch.state).or(last);
        }
        for state in [&recent.retained.base, &recent.retained.state] {
            if seen.insert(Arc::as_ptr(state)) {
                state.for_each_added(last.unwrap_or(&nothing), |row| add(row, root));
                last = Some(state);
            }
        }
    }
    // Most states in a file are changes, so what the file as a whole holds and its full states are all that is needed.
    for file in catalog.retained.files.iter() {
        for state in [file.held()].into_iter().chain(file.full_states()) {
            add_layers(state, owners, groups);
        }
    }
}

impl Relocations<'_> {
    /// Relocates earlier states: those that are in no file one by one, the newest of each branch first, and what files need.
    pub(in crate::memory) fn relocate_retained(&mut self, retained: &mut RetainedStates, branches: &Branches) {
        let recent = retained.recent.clone();
        self.relocate_recent(recent.iter(), branches, &mut retained.recent);
        let files = retained.files.iter().map(|file| Arc::new(file.relocated(|state| self.relocate_state(state))));
        retained.files = Arc::new(files.collect());
    }

    /// Puts earlier states that are in no file into a map, relocated. They are given in order of branch and entry, so that
    /// parents come before their children: each is moved like one that it has most in common with.
    fn relocate_recent<'b>(
        &mut self,
        recent: impl Iterator<Item = (&'b (BranchId, u64), &'b RecentState)>,
        branches: &Branches,
        into: &mut OrdMap<(BranchId, u64), RecentState>,
    ) {
        let all: Vec<_> = recent.collect();
        let mut last: Option<RelocatedState> = None;
        for of_branch in all.chunk_by(|one, other| one.0.0 == other.0.0) {
            let live = branches.get(&of_branch[0].0.0);
            // The present state is relocated by now, and the newest earlier one differs least from it.
            let mut like =
                live.map(|branch| (branch.state.clone(), self.relocate_state(&branch.state))).or(last.take());
            for (key, old) in of_branch.iter().rev() {
                let base = self.relocate_state_like(&old.retained.base, like.as_ref());
                let beside = like.take().unwrap_or_else(|| (old.retained.base.clone(), base.clone()));
                let state = self.relocate_state_like(&old.retained.state, Some(&beside));
                like = Some((old.retained.state.clone(), state.clone()));
                into.insert(**key, old.with_state(state, base));
            }
            last = like;
        }
    }

    /// Brings relocated earlier states that are in no file up to what has changed.
    pub(in crate::memory) fn catch_up_recent(
        &mut self,
        relocated: &mut OrdMap<(BranchId, u64), RecentState>,
        from: &OrdMap<(BranchId, u64), RecentState>,
        to: &Catalog,
    ) -> usize {
        let (mut fresh, mut count) = (Vec::new(), 0);
        for item in from.diff(&to.retained.recent) {
            count += 1;
            match item {
                DiffItem::Add(key, recent) | DiffItem::Update { new: (key, recent), .. } => fresh.push((key, recent)),
                DiffItem::Remove(key, _) => drop(relocated.remove(key)),
            }
        }
        self.relocate_recent(fresh.into_iter(), &to.branches, relocated);
        count
    }
}
