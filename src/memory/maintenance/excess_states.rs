//! Earlier states that go before their time, because the names and attributes of their files take too much memory.
//!
//! A file of states holds changes on disk, but whole states that changes begin with in memory. Those of branches that have
//! ended share nothing with what is in use: without a bound, one user's discarded branches would take the memory of all.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::branch::{BranchVersion, FullState, StateKey};
use crate::memory::Error;
use crate::memory::catalog::{BranchId, Catalog};

/// What is let go of leaves so many fourths of the limit in use, so that not every seal has to.
const FOURTHS_LEFT: u64 = 3;

impl Catalog {
    /// Returns the states that must go so that the files of earlier states take no more than `limit_bytes` of memory:
    /// of the user whose states take most, the oldest first. Kind `Io` or `Damaged` if a file of states can't be read.
    pub(in crate::memory) fn excess_states(&self, limit_bytes: u64) -> Result<HashSet<StateKey>, Error> {
        let states = self.retained.files.iter().flat_map(|file| file.full_states());
        // At most so much: mostly they share nearly all with what is in use.
        let bytes_at_most: u64 = states.map(|state| state.files().totals().metadata_bytes()).sum();
        if bytes_at_most <= limit_bytes {
            return Ok(HashSet::new());
        }
        let mut users: HashMap<u32, Vec<(u64, FullState)>> = HashMap::new();
        for (bytes, full_state) in self.full_states_by_age()? {
            users.entry(full_state.owner).or_default().push((bytes, full_state));
        }
        let sum = |full_states: &[(u64, FullState)]| full_states.iter().map(|(bytes, _)| bytes).sum::<u64>();
        let mut sums: HashMap<u32, u64> = users.iter().map(|(uid, full_states)| (*uid, sum(full_states))).collect();
        let mut all_bytes: u64 = sums.values().sum();
        let mut gone = HashSet::new();
        if all_bytes <= limit_bytes {
            return Ok(gone);
        }
        // Always of the user who holds most by then, so that those who hold little lose nothing while others have more.
        while all_bytes > limit_bytes / 4 * FOURTHS_LEFT
            && let Some((uid, own_bytes)) = sums.iter_mut().max_by_key(|(uid, bytes)| (**bytes, **uid))
            && let Some((bytes, full_state)) = users.get_mut(uid).and_then(Vec::pop)
        {
            gone.extend(full_state.needed_by);
            *own_bytes -= bytes;
            all_bytes -= bytes;
        }
        Ok(gone)
    }

    /// Returns the whole states that files of states hold, the newest first, with the bytes of memory that the names and
    /// attributes of its files take beyond those of what is newer, or in use.
    fn full_states_by_age(&self) -> Result<Vec<(u64, FullState)>, Error> {
        let mut full_states = Vec::new();
        for file in self.retained.files.iter() {
            full_states.extend(file.full_states_in_use()?);
        }
        full_states.sort_by_key(|full_state| Reverse(full_state.needed_by.last().map(|(_, entry)| *entry)));
        let mut newer: HashMap<u64, Arc<BranchVersion>> = HashMap::new();
        let measured = full_states.into_iter().map(|full_state| {
            let branch = full_state.needed_by.first().map_or(0, |(branch, _)| *branch);
            // Measured against what is newer and stays in any case, since trees share all that has not changed between
            // them.
            let next = newer.get(&branch).cloned().or_else(|| self.nearest_in_use(BranchId(branch)));
            let bytes = full_state.state.files().metadata_bytes_beyond(next.unwrap_or_default().files());
            newer.insert(branch, full_state.state.clone());
            (bytes, full_state)
        });
        Ok(measured.collect())
    }

    /// Returns the state of a branch, or of the nearest one above it that has not ended.
    fn nearest_in_use(&self, id: BranchId) -> Option<Arc<BranchVersion>> {
        let mut at = Some(id);
        while let Some(id) = at {
            if let Some(branch) = self.branches.get(&id) {
                return Some(branch.state.clone());
            }
            at = self.retained.ended.values().find(|ended| ended.id == id).and_then(|ended| ended.parent);
        }
        None
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::{Disk, ForgetfulDisk};
    use crate::memory::{Actor, Environment, FILES_ROOT, FileName, FileOp, Memory, NewInode, OpenMode};
    use crate::workspace::XattrMode;

    /// Attributes of this many bytes in each fork.
    const FORK_BYTES: usize = 1 << 20;

    fn user(uid: u32) -> Actor {
        Actor { uid, gid: uid, name: format!("user-{uid}").into() }
    }

    fn open(disk: Arc<dyn Disk>) -> Arc<Memory> {
        let environment = Environment { reserve_bytes: 0, ..Environment::real(user(0)) };
        let memory = Memory::open_on(disk, OpenMode::Create, None, environment).unwrap();
        memory.limit_memory(64 << 20, true, Box::new(|_| 0));
        memory
    }

    /// Makes a fork with much in its files, seals it and discards it; returns it with the entry that gave it its last state.
    fn discarded(memory: &Memory, who: &Actor, main: BranchId, number: u32) -> (BranchId, u64) {
        let fork = memory.fork(who, main, &format!("fork-{number}"), None).unwrap();
        let name = FileName::new(b"file").unwrap();
        let make = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: who.uid, gid: 0 };
        let inode = memory.edit(who, fork, make).unwrap().inode;
        for number in 0..FORK_BYTES / 60_000 {
            let name = format!("user.{number}").into_bytes();
            let set = FileOp::SetXattr { inode, name, value: vec![1; 60_000], mode: XattrMode::Any };
            memory.edit(who, fork, set).unwrap();
        }
        memory.seal_and_reclaim().unwrap();
        let entry = memory.catalog().branch(fork).unwrap().state_entry;
        memory.discard(who, fork).unwrap();
        (fork, entry)
    }

    #[test]
    fn of_the_user_whose_discarded_branches_take_most_memory_the_oldest_go_first() {
        let disk = ForgetfulDisk::new();
        let memory = open(Arc::new(disk.clone()));
        let (main, ann, bob) = (memory.root("main").unwrap(), user(1001), user(1002));
        let limit_bytes = memory.admission.files_held.retained_limit_bytes();
        let one = discarded(&memory, &bob, main, 0);
        let many: Vec<_> = (1..=20).map(|number| discarded(&memory, &ann, main, number)).collect();
        memory.seal_and_reclaim().unwrap();
        memory.seal_and_reclaim().unwrap();
        let held = |memory: &Memory| {
            let full_states = memory.catalog().clone().full_states_by_age().unwrap();
            full_states.iter().map(|(bytes, _)| bytes).sum::<u64>()
        };
        assert!((1..=limit_bytes).contains(&held(&memory)), "{} of {limit_bytes}", held(&memory));
        let is_kept = |memory: &Memory, (branch, entry): (BranchId, u64)| {
            memory.catalog().clone().retained.find(branch, entry).unwrap().is_some()
        };
        let kept = |memory: &Memory| many.iter().map(|it| is_kept(memory, *it)).collect::<Vec<_>>();
        assert!(is_kept(&memory, one), "what another user kept stays");
        let lineage = memory.lineage_lines(main, false).unwrap();
        assert!(lineage.iter().any(|line| line.contains(r#""op":"kept_dropped""#)), "nobody is told");
        assert!(!kept(&memory)[0] && kept(&memory)[19] && kept(&memory).is_sorted(), "{:?}", kept(&memory));
        let before = (kept(&memory), held(&memory));
        memory.close().unwrap();
        drop(memory);
        let memory = open(Arc::new(disk.clone()));
        assert_eq!((kept(&memory), held(&memory)), before);
        memory.close().unwrap();
    }
}
