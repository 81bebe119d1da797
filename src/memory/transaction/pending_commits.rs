//! Commits what was done to the files of all branches, for who then needs the writer lock with nothing pending.

use super::writer::WriterGuard;
use crate::memory::catalog::BranchId;
use crate::memory::merging::merge::PLAN_ROUNDS_MAX;
use crate::memory::{Error, Memory};

/// Branches that may be left for one hold of the writer's lock, some 150 µs each; more are where writers outrun the rounds.
const BRANCHES_UNDER_LOCK_MAX: usize = 16;

impl Memory {
    /// Returns the right to write, with all that was done to files standing in entries. Fails like
    /// [`Memory::commit_all_pending`].
    pub(in crate::memory) fn writer_with_nothing_pending(&self) -> Result<WriterGuard<'_>, Error> {
        self.commit_until_few_pending(|| self.commit_pending_round())?;
        // Mostly few have come since, so this is quick under the lock.
        let branches: Vec<Option<BranchId>> = self.writer()?.pending.keys().copied().map(Some).collect();
        let mut writer = self.writer_for(&self.environment.owner, &branches)?;
        let late: Vec<BranchId> = writer.pending.keys().copied().collect();
        late.into_iter().try_for_each(|branch| self.commit_pending(&mut writer, branch))?;
        Ok(writer)
    }

    /// Repeats `commit_round`, which returns how many branches it committed, until few have something pending: those
    /// are committed in one hold of the lock. Fails like `commit_round`.
    fn commit_until_few_pending(&self, mut commit_round: impl FnMut() -> Result<usize, Error>) -> Result<(), Error> {
        for _ in 0..PLAN_ROUNDS_MAX {
            let committed = commit_round()?;
            let pending = self.writer()?.pending.len();
            // Where as many come as a round commits, another one leaves as many again, and makes an entry for each.
            let is_outrun = committed > BRANCHES_UNDER_LOCK_MAX && pending >= committed;
            if pending <= BRANCHES_UNDER_LOCK_MAX || is_outrun {
                break;
            }
        }
        Ok(())
    }

    /// Like [`Memory::commit_all_pending`], for whoever seals and so holds a lock: listeners are told by another
    /// thread. The writer's lock is let go of between branches. Returns how many there were.
    fn commit_pending_round(&self) -> Result<usize, Error> {
        let branches: Vec<BranchId> = self.writer()?.pending.keys().copied().collect();
        for branch in &branches {
            drop(self.writer_for(&self.environment.owner, &[Some(*branch)])?);
            let (me, branch) = (self.weak_self.clone(), *branch);
            self.merging.planner.run(move || {
                if let Some(memory) = me.upgrade() {
                    memory.announce_files(branch);
                }
            });
        }
        Ok(branches.len())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, FILES_ROOT, FileName, FileOp, NewInode, OpenMode};

    fn store_with_64_branches() -> (Arc<Memory>, Actor, Vec<BranchId>) {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment { reserve_bytes: 0, ..Environment::real(who.clone()) };
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        memory.stop_maintenance();
        let branches = (0..64).map(|number| memory.create_root(&who, &format!("b{number}")).unwrap()).collect();
        (memory, who, branches)
    }

    /// Makes a file in each of some branches.
    fn write(memory: &Memory, who: &Actor, branches: &[BranchId], name: &str) {
        for branch in branches {
            let name = FileName::new(name.as_bytes()).unwrap();
            let make = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
            memory.edit(who, *branch, make).unwrap();
        }
    }

    #[test]
    fn branches_are_committed_without_the_lock_until_few_are_left_or_as_many_come() {
        let (memory, who, branches) = store_with_64_branches();
        let shrinking: Vec<usize> = (0..64).rev().collect();
        // How many branches are written to during each round, how many rounds that makes, and what they leave.
        let cases: [(&str, &[usize], usize, usize); 4] = [
            ("few", &[16], 1, 16),
            ("ever fewer", &[40, 20, 16], 3, 16),
            ("as many", &[64, 64], 1, 64),
            ("too slowly fewer", &shrinking, PLAN_ROUNDS_MAX, 64 - PLAN_ROUNDS_MAX),
        ];
        for (case, coming, expected, left) in cases {
            write(&memory, &who, &branches, &format!("{case} before"));
            let mut rounds = 0;
            let round = || -> Result<usize, Error> {
                let committed = memory.commit_pending_round()?;
                write(&memory, &who, &branches[..coming[rounds]], &format!("{case} {rounds}"));
                rounds += 1;
                Ok(committed)
            };
            memory.commit_until_few_pending(round).unwrap();
            assert_eq!((rounds, memory.writer().unwrap().pending.len()), (expected, left), "{case}");
            assert!(memory.writer_with_nothing_pending().unwrap().pending.is_empty(), "{case}");
        }
    }

    #[test]
    fn a_round_that_found_few_says_nothing_of_the_next() {
        let (memory, who, branches) = store_with_64_branches();
        let mut coming = [64, 0].into_iter();
        let round = || -> Result<usize, Error> {
            let committed = memory.commit_pending_round()?;
            write(&memory, &who, &branches[..coming.next().unwrap_or(0)], "file");
            Ok(committed)
        };
        memory.commit_until_few_pending(round).unwrap();
        assert!(memory.writer().unwrap().pending.is_empty());
    }
}
