//! What became of branches that are gone, for whoever still holds something of them.

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
        let refusal = match (change.op, parent) {
            ("merge", Some(parent)) => Refusal::Merged { path, parent: parent.to_owned(), time },
            _ => Refusal::Discarded { path, time },
        };
        self.remember(change.branch, change.parent, refusal);
    }

    fn remember(&self, branch: BranchId, parent: Option<BranchId>, refusal: Refusal) {
        let branch_end = BranchEnd { branch, parent, refusal: Arc::new(refusal), informed_uids: HashSet::new() };
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

    /// Returns the parent of a branch that is gone; `None` for a root branch, and for one whose end is not remembered.
    pub fn parent(&self, branch: BranchId) -> Option<BranchId> {
        self.branches.lock().iter().find(|branch_end| branch_end.branch == branch)?.parent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: BranchId = BranchId(u64::MAX);

    /// As many branches that were discarded, numbered from 0 on.
    fn with_ends(count: u64) -> EndedBranches {
        let ended = EndedBranches::default();
        for number in 0..count {
            let refusal = Refusal::Discarded { path: format!("main/b{number}"), time: Time(0) };
            ended.remember(BranchId(number), Some(PARENT), refusal);
        }
        ended
    }

    #[test]
    fn the_last_1024_branches_that_ended_are_remembered() {
        let ended = with_ends(1_025);
        let told = |number: u64| {
            let (why, parent) = ended.take_unreported(BranchId(number), 1000)?;
            Some((why.to_string().contains(&format!("main/b{number} ")), parent))
        };
        assert_eq!((told(0), ended.parent(BranchId(0))), (None, None));
        for number in 1..1_025 {
            assert_eq!(ended.parent(BranchId(number)), Some(PARENT), "{number}");
            assert_eq!(told(number), Some((true, Some(PARENT))), "{number}");
        }
    }

    #[test]
    fn of_a_branch_that_ended_64_users_are_told_once_each() {
        let ended = with_ends(2);
        let is_told = |number: u64, uid: u32| ended.take_unreported(BranchId(number), uid).is_some();
        assert!((0..64).all(|uid| is_told(0, uid)));
        assert_eq!([is_told(0, 64), is_told(0, 0)], [false, false]);
        assert!(is_told(1, 64), "of each branch others are told");
    }
}
