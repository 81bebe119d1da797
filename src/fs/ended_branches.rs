//! What became of branches that are gone, for who still holds something of them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::refusal::Refusal;
use crate::memory::{BranchEvent, BranchId, Time};
use crate::sync::Mutex;

/// How many branches are remembered.
const BRANCHES_MAX: usize = 1_024;
/// How many users are told of one branch.
const USERS_MAX: usize = 64;

/// The last branches that were merged or discarded.
#[derive(Default)]
pub(super) struct EndedBranches {
    branches: Mutex<VecDeque<BranchEnd>>,
}

struct BranchEnd {
    branch: BranchId,
    parent: Option<BranchId>,
    /// The refusal of everything that is tried there.
    refusal: Arc<Refusal>,
    /// Uids of who was told; once they are [`USERS_MAX`], nobody else is.
    informed_uids: HashSet<u32>,
}

impl EndedBranches {
    /// Notes the end of a branch, in place of the oldest where [`BRANCHES_MAX`] are remembered.
    pub fn note(&self, change: &BranchEvent, parent: Option<&str>, time: Time) {
        let path = change.path_before().unwrap_or("the branch");
        let path = path.to_owned();
        let refusal = Arc::new(match (change.op, parent) {
            ("merge", Some(parent)) => Refusal::Merged { path, parent: parent.to_owned(), time },
            _ => Refusal::Discarded { path, time },
        });
        let branch_end =
            BranchEnd { branch: change.branch, parent: change.parent, refusal, informed_uids: HashSet::new() };
        let mut branches = self.branches.lock();
        branches.push_back(branch_end);
        if branches.len() > BRANCHES_MAX {
            branches.pop_front();
        }
    }

    /// Returns what became of a branch, with its parent, unless the user was told before.
    pub fn take_unreported(&self, branch: BranchId, uid: u32) -> Option<(Arc<Refusal>, Option<BranchId>)> {
        let mut branches = self.branches.lock();
        let branch_end = branches.iter_mut().find(|branch_end| branch_end.branch == branch)?;
        let is_new = branch_end.informed_uids.len() < USERS_MAX && branch_end.informed_uids.insert(uid);
        is_new.then(|| (branch_end.refusal.clone(), branch_end.parent))
    }

    /// Returns the parent of a branch that is gone; none for a root branch, and for one whose end is not remembered.
    pub fn parent(&self, branch: BranchId) -> Option<BranchId> {
        self.branches.lock().iter().find(|branch_end| branch_end.branch == branch)?.parent
    }
}
