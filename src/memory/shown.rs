//! Conflicts of files by hand that somebody was shown: if they then write the file in the branch, that settles it.
//!
//! A write tells what is wanted only from who knows of the other version. So it counts after a merge, promote or pull
//! of theirs was refused for the conflict, or a dry run named it, and for as long as the parent's version is the one
//! that they were shown. It becomes a `resolve` for the child as soon as the files are gathered: entries alone decide
//! what a merge does. What was shown is known in memory alone; after an opening it has to be shown again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::act::{Deed, Join};
use super::chain::Chain;
use super::joining;
use super::world::{BranchId, World};
use super::{Actor, Error, Memory};
use crate::lineage::{Decision, Side};
use crate::merge::files::same_body;
use crate::object::Hash;
use crate::workspace::{Kind, Node, Tree};

/// A conflict as it was shown.
#[derive(Clone)]
struct Showing {
    /// What was tried.
    join: Join,
    /// The parent's version.
    parent: Option<Hash>,
    /// The uids of those who were shown it.
    to: HashSet<u32>,
}

type Showings = HashMap<Arc<str>, Showing>;

/// What was shown of each branch, by the ids of the conflicts.
#[derive(Default)]
pub(super) struct Shown(Mutex<HashMap<BranchId, Showings>>);

impl Shown {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<BranchId, Showings>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn any_of(&self, branch: BranchId) -> bool {
        self.with(|all| all.contains_key(&branch))
    }

    /// Notes the open conflicts of files that somebody is shown.
    fn note<'a>(&self, (branch, join): (BranchId, Join), to: &Actor, items: impl Iterator<Item = &'a Decision>) {
        for item in items.filter(|item| item.is_file() && item.decision.is_none()) {
            let fresh = Showing { join, parent: item.parent, to: HashSet::new() };
            self.with(|all| {
                let showing = all.entry(branch).or_default().entry(item.id.clone()).or_insert_with(|| fresh.clone());
                if showing.parent != item.parent {
                    *showing = fresh;
                }
                showing.join = join;
                showing.to.insert(to.uid);
            });
        }
    }

    /// Forgets a conflict: what is written after that settles nothing.
    pub(super) fn forget(&self, branch: BranchId, id: &str) {
        self.with(|all| {
            if let Some(showings) = all.get_mut(&branch) {
                showings.remove(id);
                if showings.is_empty() {
                    all.remove(&branch);
                }
            }
        });
    }

    /// Forgets all of a branch: both sides are one again, or it is gone.
    pub(super) fn forget_branch(&self, branch: BranchId) {
        self.with(|all| all.remove(&branch));
    }

    /// Returns what somebody was shown and wrote between two states of the files.
    fn written(&self, branch: BranchId, uid: u32, before: &Tree, after: &Tree) -> Showings {
        let mut written = self.with(|all| all.get(&branch).cloned()).unwrap_or_default();
        written.retain(|id, showing| {
            let path = id.strip_prefix("files/").unwrap_or_default().as_bytes();
            showing.to.contains(&uid) && is_written(path, before, after)
        });
        written
    }
}

/// Returns whether a file has other bytes, came or went. What is in a folder is not the folder.
fn is_written(path: &[u8], before: &Tree, after: &Tree) -> bool {
    fn file<'a>(tree: &'a Tree, path: &[u8]) -> Option<&'a Node> {
        tree.resolve(path).ok().and_then(|inode| tree.node(inode).ok()).map(|node| &**node)
    }
    let (old, new) = (file(before, path), file(after, path));
    let is_folder = |node: Option<&Node>| node.is_some_and(|node| node.kind() == Kind::Directory);
    match (old, new) {
        _ if is_folder(old) || is_folder(new) => false,
        (Some(old), Some(new)) => !same_body(old, new),
        (old, new) => old.is_some() != new.is_some(),
    }
}

impl Memory {
    /// Notes what somebody's merge, promote or pull stumbled over. What was written until now is gathered before: it was
    /// written by who did not know.
    pub(super) fn note_shown(&self, who: &Actor, branch: BranchId, join: Join) {
        let mut chain = self.chain();
        if chain.writable().is_err() || self.gather(&mut chain, branch).is_err() {
            return;
        }
        let world = self.world().clone();
        let plan = world.branch(branch).and_then(|branch| joining::plan_of(self.table(&world), branch, join));
        if let Ok(plan) = plan {
            self.shown.note((branch, join), who, plan.conflicts());
        }
    }

    /// Settles for the child what somebody wrote who was shown it. Where that can't be done the conflict stays open.
    pub(super) fn settle(&self, chain: &mut Chain, branch: BranchId, uid: u32, before: &Tree, after: &Tree) {
        let written = self.shown.written(branch, uid, before, after);
        for join in [Join::Merge, Join::Promote, Join::Pull] {
            let of_join = |id: &str| written.get(id).filter(|showing| showing.join == join);
            if !written.keys().any(|id| of_join(id).is_some()) {
                continue;
            }
            let world: World = self.world().clone();
            let plan = world.branch(branch).and_then(|branch| joining::plan_of(self.table(&world), branch, join));
            for item in plan.iter().flat_map(|plan| plan.conflicts()).filter(|item| item.decision.is_none()) {
                if of_join(&item.id).is_some_and(|showing| showing.parent == item.parent)
                    && let Err(error) = self.perform(chain, uid, Deed::Resolve(branch, item.id.clone(), Side::Child))
                {
                    log::info!("{} was written, and that does not settle its conflict: {error}", item.id);
                }
            }
        }
    }

    /// Does so for what was written just now, for somebody who is about to look.
    pub(super) fn settle_written(&self, branch: BranchId) {
        if self.shown.any_of(branch) {
            let mut chain = self.chain();
            if chain.writable().is_ok()
                && let Err(error) = self.gather(&mut chain, branch)
            {
                log::warn!("what was written could not be gathered: {error}");
            }
        }
    }

    /// Settles one conflict for as long as both sides stay as they are; what is written after that opens it again.
    pub fn resolve_conflict(&self, who: &Actor, branch: BranchId, id: &str, side: Side) -> Result<(), Error> {
        self.shown.forget(branch, id);
        self.act(who, || Ok(Deed::Resolve(branch, id.into(), side))).map(|_| ())
    }
}
