//! Conflicts of files by hand that somebody was shown: who writes the file in the branch after that has settled it.
//!
//! A write tells what is wanted only from somebody who knows of the other version. So it counts after a merge, promote
//! or pull was refused for the conflict, or a dry run named it, and for as long as the parent's version is the one
//! that was shown. It becomes a `resolve` for the child as soon as the files are gathered: entries alone decide what
//! a merge does. What was shown is known in memory alone; after an opening it has to be shown again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::act::{Deed, Join};
use super::chain::Chain;
use super::joining;
use super::world::{BranchId, World};
use super::{Actor, Memory};
use crate::lineage::{Decision, Side};
use crate::object::Hash;

/// The versions of a file that stood against each other when the conflict was shown.
struct Versions {
    child: Option<Hash>,
    parent: Option<Hash>,
}

/// The conflicts of each branch that were shown, by their ids.
#[derive(Default)]
pub(super) struct Shown(Mutex<HashMap<BranchId, HashMap<Arc<str>, Versions>>>);

impl Shown {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<BranchId, HashMap<Arc<str>, Versions>>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn any_of(&self, branch: BranchId) -> bool {
        self.with(|all| all.contains_key(&branch))
    }

    /// Notes the open conflicts of files. One that was shown before counts from then on, unless the parent has another
    /// version now.
    pub(super) fn note<'a>(&self, world: &World, branch: BranchId, items: impl Iterator<Item = &'a Decision>) {
        let open = |item: &&Decision| item.is_file() && item.decision.is_none();
        self.with(|all| {
            all.retain(|branch, _| world.branches.contains_key(branch));
            for item in items.filter(open) {
                let of_branch = all.entry(branch).or_default();
                if of_branch.get(&item.id).is_none_or(|shown| shown.parent != item.parent) {
                    of_branch.insert(item.id.clone(), Versions { child: item.child, parent: item.parent });
                }
            }
        });
    }

    /// Forgets a conflict that was settled in words: what is written after that reopens it.
    pub(super) fn forget(&self, branch: BranchId, id: &str) {
        self.with(|all| all.get_mut(&branch).map(|of_branch| of_branch.remove(id)));
    }

    /// Returns the open conflicts of which the child has another version since they were shown.
    fn written<'a>(&self, branch: BranchId, items: impl Iterator<Item = &'a Decision>) -> Vec<Arc<str>> {
        self.with(|all| {
            let Some(of_branch) = all.get(&branch) else { return Vec::new() };
            let is_written = |item: &&Decision| {
                let since = |shown: &Versions| shown.parent == item.parent && shown.child != item.child;
                item.decision.is_none() && of_branch.get(&item.id).is_some_and(since)
            };
            items.filter(is_written).map(|item| item.id.clone()).collect()
        })
    }
}

impl Memory {
    /// Notes what a refused merge, promote or pull stumbled over.
    pub(super) fn note_shown(&self, branch: BranchId, join: Join) {
        let world = self.world().clone();
        let plan = world.branch(branch).and_then(|branch| joining::plan_of(self.table(&world), branch, join));
        if let Ok(plan) = plan {
            self.shown.note(&world, branch, plan.conflicts());
        }
    }

    /// Settles for the child what was written since it was shown. Where that can't be done the conflict stays open.
    pub(super) fn settle(&self, chain: &mut Chain, branch: BranchId, uid: u32) {
        if !self.shown.any_of(branch) {
            return;
        }
        let written = {
            let world = self.world().clone();
            let plan = world.branch(branch).and_then(|seen| joining::plan_of(self.table(&world), seen, Join::Merge));
            plan.map_or_else(|_| Vec::new(), |plan| self.shown.written(branch, plan.conflicts()))
        };
        for id in written {
            if let Err(error) = self.perform(chain, uid, Deed::Resolve(branch, id.clone(), Side::Child)) {
                log::info!("{id} was written after its conflict was shown, and that does not settle it: {error}");
            }
        }
    }

    /// Does so for what was written just now, for somebody who is about to look.
    pub(super) fn settle_written(&self, branch: BranchId) {
        if self.shown.any_of(branch) {
            let mut chain = self.chain();
            if let Err(error) = self.gather(&mut chain, branch) {
                log::warn!("what was written could not be gathered: {error}");
            }
        }
    }

    /// Settles one conflict for as long as both sides stay as they are.
    pub fn resolve_conflict(&self, who: &Actor, branch: BranchId, id: &str, side: Side) -> Result<(), super::Error> {
        self.act(who, || Ok(Deed::Resolve(branch, id.into(), side)))?;
        self.shown.forget(branch, id);
        Ok(())
    }
}
