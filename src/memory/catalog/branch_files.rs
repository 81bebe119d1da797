//! The files of branches, in a version of the catalog, and what they take up in memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use imbl::OrdMap;

use super::{Branch, BranchId, BranchRef, Catalog, Checkpoint};
use crate::branch::BranchVersion;
use crate::memory::Actor;
use crate::object::Time;
use crate::workspace::Tree;

/// Returns how many bytes of memory the names and attributes of a branch's files take beyond those of its base.
pub fn file_metadata_bytes(branch: &Branch) -> u64 {
    let bytes = |state: &BranchVersion| state.files().totals().metadata_bytes();
    bytes(&branch.state).saturating_sub(bytes(&branch.base))
}

/// Returns a state whose files belong to another user, as far as others may read them.
pub(in crate::memory) fn with_owner(state: &Arc<BranchVersion>, from: u32, to: u32) -> Arc<BranchVersion> {
    if from == to {
        return state.clone();
    }
    let (mut given, mut files) = (BranchVersion::clone(state), state.files().clone());
    files.transfer_owner(from, to);
    // Owners are in no head, so that the head of the state stays as it is known.
    given.replace_by_equal_files(files);
    Arc::new(given)
}

/// A file without a name that handles held, and the user whose operation lets go of it.
pub(in crate::memory) struct OrphanFile {
    /// The user in whose name it is dropped.
    pub who: Actor,
    /// The branch in whose tree it is an orphan.
    pub branch: BranchId,
    /// Its number in that tree.
    pub inode: u64,
}

/// Bytes of memory by user; whoever holds nothing has no entry.
#[derive(Clone, Default)]
pub struct BytesByUser {
    bytes_by_user: OrdMap<u32, u64>,
    total_bytes: u64,
}

impl BytesByUser {
    /// Returns how many bytes a user holds, 0 for an unknown one, and how many all do.
    pub fn own_and_all_bytes(&self, uid: u32) -> (u64, u64) {
        (self.bytes_by_user.get(&uid).copied().unwrap_or(0), self.total_bytes)
    }

    /// Counts that something a user holds takes so much now and no longer what it took before.
    pub fn replace(&mut self, uid: u32, before: u64, after: u64) {
        if before == after {
            return;
        }
        self.total_bytes = self.total_bytes - before + after;
        let own = self.own_and_all_bytes(uid).0 - before + after;
        if own == 0 {
            self.bytes_by_user.remove(&uid)
        } else {
            self.bytes_by_user.insert(uid, own)
        };
    }
}

/// Returns the state without files that only open handles of its branch still hold.
pub(in crate::memory) fn without_orphans(state: &Arc<BranchVersion>) -> Arc<BranchVersion> {
    if state.files().orphans().next().is_none() {
        return state.clone();
    }
    let (mut state, mut files) = (BranchVersion::clone(state), state.files().clone());
    files.drop_orphans();
    state.set_files(files);
    Arc::new(state)
}

impl Catalog {
    /// Counts anew what its branches take up, for a catalog that was read from a manifest.
    pub fn with_recounted_bytes(mut self) -> Catalog {
        self.metadata_bytes = BytesByUser::default();
        self.signal_bytes = BytesByUser::default();
        for branch in self.branches.values() {
            self.metadata_bytes.replace(branch.uid, 0, file_metadata_bytes(branch));
            for signal in branch.signals.values() {
                self.signal_bytes.replace(signal.owner, 0, signal.bytes());
            }
        }
        self
    }

    /// Returns how many bytes of memory the names and attributes of files take that nothing but checkpoints, proposals
    /// and bases of forks still holds, by the owners of these. Costs what differs from one such state of a branch to
    /// the next.
    pub(in crate::memory) fn frozen_metadata_bytes(&self) -> HashMap<u32, u64> {
        let mut frozen: HashMap<BranchId, Vec<(u64, u32, &BranchVersion)>> = HashMap::new();
        for branch in self.branches.values() {
            let own = branch.frozen_states().map(|frozen| (frozen.seq, branch.uid, &*frozen.state));
            frozen.entry(branch.id).or_default().extend(own);
            // Counted with the states of the parent, which had it once, so that only what differs from its neighbours
            // counts.
            if let Some(parent) = branch.parent {
                frozen.entry(parent).or_default().push((branch.base_seq, branch.uid, &branch.base));
            }
        }
        let mut bytes_by_user = HashMap::new();
        for (id, mut states) in frozen {
            states.sort_by_key(|(seq, ..)| Reverse(*seq));
            let mut newer = self.branches.get(&id).map(|branch| &*branch.state);
            for (_, uid, state) in states {
                let beyond = newer.map_or(0, |newer| state.files().metadata_bytes_beyond(newer.files()));
                *bytes_by_user.entry(uid).or_default() += beyond;
                newer = Some(state);
            }
        }
        bytes_by_user
    }

    /// Gives a branch to another user, with its files also in checkpoints and what they take up in memory, and with its logs.
    /// Earlier states are given to whoever owns it when they are read.
    pub(in crate::memory) fn change_owner(&mut self, id: BranchId, to: u32, seq: u64) {
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let (from, held) = (branch.uid, file_metadata_bytes(branch));
        let give = |old: &Checkpoint| Checkpoint { state: with_owner(&old.state, from, to), ..old.clone() };
        let Ok(()) = branch.replace_frozen(|old| Ok::<_, Infallible>(Some(give(old))));
        let branch = branch.make_mut();
        (branch.uid, branch.last_entry_seq, branch.state_seq) = (to, seq, seq);
        branch.state = with_owner(&branch.state, from, to);
        let logs: Vec<BranchId> = branch.closed_logs.values().copied().chain(branch.log).collect();
        self.metadata_bytes.replace(from, held, 0);
        self.metadata_bytes.replace(to, 0, held);
        for log in logs {
            // One that was closed into it may be of somebody else.
            self.change(log, |log| log.uid = if log.uid == from { to } else { log.uid });
        }
    }

    /// Lets go of files that were deleted while open: nothing is open any more.
    pub(in crate::memory) fn drop_orphans(&mut self) {
        let has_orphans = |branch: &&BranchRef| branch.state.files().orphans().next().is_some();
        let branches: Vec<BranchId> = self.branches.values().filter(has_orphans).map(|branch| branch.id).collect();
        for branch in branches {
            self.change(branch, |branch| {
                let mut files = branch.state.files().clone();
                files.drop_orphans();
                Arc::make_mut(&mut branch.state).set_files(files);
            });
        }
    }

    /// Puts other files in place of a branch's, for an operation that no entry has committed yet: `file_op_count` grows,
    /// `last_entry_seq` stays.
    pub(in crate::memory) fn edit(&mut self, id: BranchId, files: Tree, time: Time) {
        if let Some(branch) = self.branches.get_mut(&id) {
            let before = file_metadata_bytes(branch);
            let branch = branch.make_mut();
            Arc::make_mut(&mut branch.state).set_files(files);
            branch.changed = time;
            branch.file_op_count += 1;
            self.metadata_bytes.replace(branch.uid, before, file_metadata_bytes(branch));
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use crate::disk::ForgetfulDisk;
    use crate::memory::{
        Actor, EditError, Environment, FILES_ROOT, FileName, FileOp, Memory, MergeVerb, NewInode, OpenMode, View,
    };
    use crate::workspace::XattrMode;

    #[test]
    fn a_user_holds_the_names_and_attributes_that_a_branch_has_beyond_its_base() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment::real(who.clone());
        let disk = std::sync::Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let make = |branch, name: &str| {
            let name = FileName::new(name.as_bytes()).unwrap();
            let make = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
            memory.edit(&who, branch, make).unwrap();
        };
        let held = || memory.catalog().metadata_bytes.own_and_all_bytes(0).0;
        let empty = held();
        make(main, "one");
        let one = held();
        assert!(one > empty, "{one} and {empty} before");
        let child = memory.fork(&who, main, "child", None).unwrap();
        assert_eq!(held(), one, "what a fork has of its parent is held once");
        make(child, "two");
        assert!(held() > one);
        memory.discard(&who, child).unwrap();
        assert_eq!(held(), one);
    }

    #[test]
    fn a_base_has_no_file_that_handles_of_the_parent_alone_hold() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = std::sync::Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who.clone())).unwrap();
        let main = memory.root("main").unwrap();
        let name = FileName::new(b"file").unwrap();
        let make = FileOp::Create {
            parent: FILES_ROOT,
            name: name.clone(),
            make: NewInode::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
        };
        memory.edit(&who, main, make).unwrap();
        let child = memory.fork(&who, main, "child", None).unwrap();
        memory.edit(&who, main, FileOp::Unlink { parent: FILES_ROOT, name, keep: true }).unwrap();
        memory.merge(&who, child, MergeVerb::Pull, false).unwrap();
        let catalog = memory.catalog();
        assert_eq!(catalog.branch(main).unwrap().state.files().orphans().count(), 1, "a control");
        assert_eq!(catalog.branch(child).unwrap().base.files().orphans().count(), 0);
    }

    /// What a branch no longer has, others hold: forks of it, or checkpoints.
    #[test]
    fn what_only_forks_and_checkpoints_hold_counts_for_their_owner_until_they_go() {
        let [root, ann] = [0, 1001].map(|uid| Actor { uid, gid: uid, name: format!("{uid}").into() });
        for forks in [true, false] {
            let disk = std::sync::Arc::new(ForgetfulDisk::new());
            let environment = Environment { reserve_bytes: 0, ..Environment::real(root.clone()) };
            let memory = Memory::open_on(disk, OpenMode::Create, None, environment).unwrap();
            memory.limit_memory(64 << 20, true, Box::new(|_| 0));
            let main = memory.root("main").unwrap();
            let branch = memory.fork(&ann, main, "ann", None).unwrap();
            let fill = |number: u32| {
                let name = FileName::new(b"file").unwrap();
                let make = NewInode::File;
                let make =
                    FileOp::Create { parent: FILES_ROOT, name: name.clone(), make, mode: 0o644, uid: 1001, gid: 0 };
                let inode = memory.edit(&ann, branch, make)?.inode;
                for number in 0..17 {
                    let (name, value) = (format!("user.{number}").into_bytes(), vec![1; 60_000]);
                    memory.edit(&ann, branch, FileOp::SetXattr { inode, name, value, mode: XattrMode::Any })?;
                }
                let name_of = format!("it-{number}");
                if forks {
                    memory.fork(&ann, branch, &name_of, None).unwrap();
                } else {
                    memory.checkpoint(&ann, branch, &name_of, None).unwrap();
                }
                memory.edit(&ann, branch, FileOp::Unlink { parent: FILES_ROOT, name, keep: false }).unwrap();
                memory.seal_and_reclaim().unwrap();
                Ok::<_, EditError>(())
            };
            let refused = (0..40).find(|number| fill(*number).is_err());
            assert!(refused.is_some_and(|number| (14..=16).contains(&number)), "{refused:?}");
            // It breaks no rule, so the lineage says nothing of it.
            let (before, tree) = (memory.last_seq(), memory.files(&View::Branch(branch)).unwrap());
            let (inode, name) = (tree.resolve(b"file").unwrap(), b"user.more".to_vec());
            let set = FileOp::SetXattr { inode, name, value: vec![1; 60_000], mode: XattrMode::Any };
            let refused = memory.edit(&ann, branch, set).unwrap_err();
            let EditError::Refused(refused) = refused else { panic!("{refused:?}") };
            assert_eq!(refused.code(), "memory_share");
            // What the seals counted is in the sentence: 15 to 17 times about a MB of at most 16 MiB.
            assert!(
                ["holds 14", "holds 15", "holds 16"].iter().any(|held| refused.to_string().contains(held)),
                "{refused}"
            );
            assert_eq!(memory.last_seq(), before);
            for number in 0..8 {
                if forks {
                    let fork = memory.catalog().branch(branch).unwrap().children[format!("it-{number}").as_str()];
                    memory.discard(&ann, fork).unwrap();
                } else {
                    memory.delete_checkpoint(&ann, branch, &format!("it-{number}")).unwrap();
                }
            }
            memory.seal_and_reclaim().unwrap();
            let name = FileName::new(b"file").unwrap();
            let _ = memory.edit(&ann, branch, FileOp::Unlink { parent: FILES_ROOT, name, keep: false });
            fill(100).unwrap();
        }
    }
}
