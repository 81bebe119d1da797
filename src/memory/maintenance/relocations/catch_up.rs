//! Branches that changed while a seal wrote, relocated like what they were before.

use std::sync::Arc;

use imbl::ordmap::DiffItem;

use super::{RelocatedState, Relocations};
use crate::memory::catalog::{BranchRef, Branches};

impl Relocations<'_> {
    /// Brings relocated branches up to what has changed from one version of the catalog to another; returns how many
    /// had. Where few records of a branch have changed that costs these, since the last of it is done under the writer
    /// lock. A changed tree of files costs all of its files that are not sealed.
    pub(in crate::memory) fn catch_up(&mut self, relocated: &mut Branches, from: &Branches, to: &Branches) -> usize {
        let mut count = 0;
        for item in from.diff(to) {
            count += 1;
            match item {
                DiffItem::Add(id, branch) | DiffItem::Update { new: (id, branch), .. } => {
                    let like = self.find_like(branch, from, to);
                    relocated.insert(*id, self.relocate_branch(branch, like.as_ref()));
                }
                DiffItem::Remove(id, _) => drop(relocated.remove(id)),
            }
        }
        count
    }

    /// Returns the relocated state that a changed branch has most in common with: its own before or, of a new branch,
    /// that of its parent; `None` if that has not moved.
    fn find_like(&self, branch: &BranchRef, from: &Branches, to: &Branches) -> Option<RelocatedState> {
        let before = from.get(&branch.id).or_else(|| to.get(&branch.parent?))?;
        let (old, new) = self.done.get(&Arc::as_ptr(&before.state))?;
        // Like one that stays as it is, another one would become an equal copy of itself.
        (!Arc::ptr_eq(old, new)).then(|| (old.clone(), new.clone()))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::branch::BranchVersion;
    use crate::disk::ForgetfulDisk;
    use crate::memory::maintenance::relocations::{Compaction, SealedSegment};
    use crate::memory::{
        Actor, BranchId, Environment, FILES_ROOT, FileName, FileOp, Memory, NewInode, OpenMode, RecordEdit, RecordInput,
    };

    fn root() -> Actor {
        Actor { uid: 0, gid: 0, name: "root".into() }
    }

    fn open() -> (Arc<Memory>, BranchId) {
        let environment = Environment { graph_rows: u32::MAX, reserve_bytes: 0, ..Environment::real(root()) };
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        memory.stop_maintenance();
        let main = memory.root("main").unwrap();
        (memory, main)
    }

    fn put(id: &str, text: &str) -> RecordEdit {
        let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
        RecordEdit::Put { id: id.into(), input }
    }

    fn delete(id: &str) -> RecordEdit {
        RecordEdit::Delete { id: id.into() }
    }

    fn commit(memory: &Memory, branch: BranchId, edits: Vec<RecordEdit>) {
        memory.commit(&root(), branch, edits).unwrap();
    }

    fn make_file(memory: &Memory, branch: BranchId, name: &str) {
        let name = FileName::new(name.as_bytes()).unwrap();
        let make = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
        let inode = memory.edit(&root(), branch, make).unwrap().inode;
        memory.edit(&root(), branch, FileOp::Write { inode, offset: 0, bytes: b"text".as_slice().into() }).unwrap();
    }

    /// Returns where each record of a state is, in order of ids, and what else the state consists of.
    fn describe(state: &BranchVersion) -> (Vec<(String, String)>, String) {
        let mut places = Vec::new();
        for layer in state.layers() {
            for row in layer.visible.iter() {
                places.push((layer.segment.id(row).unwrap().to_string(), format!("{} {row}", layer.segment.name())));
            }
        }
        places.extend(state.unsealed().values().map(|version| {
            let address = Arc::as_ptr(version);
            (version.id.to_string(), format!("{address:p}"))
        }));
        places.sort();
        let (records, deletes) = (state.totals().records, state.timed_delete_count());
        let files = (state.files().hash(), state.files().is_unsealed());
        // Computed from the hash of its records, as the head that it has already is that of the state before.
        let mut recomputed = state.clone();
        recomputed.set_files(state.files().clone());
        (places, format!("{} {records} {deletes} {} {}", recomputed.head(), files.0, files.1))
    }

    #[test]
    fn what_changed_while_a_seal_wrote_becomes_what_it_would_be_relocated_as_a_whole() {
        let (memory, main) = open();
        for n in 0..2 {
            commit(&memory, main, ["a", "b", "c"].map(|id| put(&format!("{id}{n}"), "sealed")).into());
            memory.seal().unwrap();
        }
        commit(&memory, main, (0..300).map(|n| put(&format!("u{n}"), "unsealed")).collect());
        make_file(&memory, main, "one");
        let child = memory.fork(&root(), main, "child", None).unwrap();
        commit(&memory, child, vec![put("own", "text")]);
        memory.commit_all_pending().unwrap();
        let rotated = memory.catalog().clone();
        let sealed = memory.write_segments(&rotated, &Compaction::WithoutGraph, u64::MAX).unwrap();
        assert!(sealed.iter().all(SealedSegment::compacts), "a control");
        let mut tree_sealer = memory.pack_files(&rotated).unwrap();
        let mut relocated = rotated.clone();
        let present = {
            let mut relocations = Relocations::new(&sealed, &mut tree_sealer, None);
            relocations.relocate_catalog(&mut relocated);
            commit(&memory, main, vec![put("new", "text"), put("u1", "again"), put("a0", "again"), delete("b0")]);
            memory.checkpoint(&root(), main, "label", None).unwrap();
            let late = memory.fork(&root(), main, "late", None).unwrap();
            commit(&memory, main, vec![put("u2", "again"), delete("u3"), put("c1", "again"), delete("b1")]);
            commit(&memory, late, vec![put("u4", "again"), delete("u5")]);
            commit(&memory, child, vec![put("own", "again"), delete("a1")]);
            make_file(&memory, main, "two");
            let present = memory.catalog().clone();
            relocations.catch_up(&mut relocated.branches, &rotated.branches, &present.branches);
            present
        };
        let mut whole = Relocations::new(&sealed, &mut tree_sealer, None);
        assert!(present.branches.len() >= 3 && relocated.branches.len() == present.branches.len());
        for (id, branch) in &present.branches {
            let (found, expected) = (relocated.branches.get(id).unwrap(), whole.relocate_branch(branch, None));
            assert_eq!(describe(&found.state), describe(&expected.state), "{}", branch.path);
            assert_eq!(found.state.head(), branch.state.head(), "{}", branch.path);
            assert_eq!(describe(&found.base), describe(&expected.base), "{}", branch.path);
            assert_eq!(found.checkpoints.len(), expected.checkpoints.len());
            for (label, checkpoint) in &expected.checkpoints {
                let found = found.checkpoints.get(label).unwrap();
                assert_eq!(describe(&found.state), describe(&checkpoint.state), "{label}");
            }
        }
    }

    #[test]
    fn what_a_changed_branch_shares_with_what_it_was_is_not_looked_up_again() {
        let (memory, main) = open();
        commit(&memory, main, (0..300).map(|n| put(&format!("u{n}"), "unsealed")).collect());
        let rotated = memory.catalog().clone();
        let sealed = memory.write_segments(&rotated, &Compaction::Small, u64::MAX).unwrap();
        let mut tree_sealer = memory.pack_files(&rotated).unwrap();
        let mut relocations = Relocations::new(&sealed, &mut tree_sealer, None);
        let mut relocated = rotated.clone();
        relocations.relocate_catalog(&mut relocated);
        commit(&memory, main, vec![put("one", "text")]);
        let late = memory.fork(&root(), main, "late", None).unwrap();
        commit(&memory, main, vec![put("two", "text")]);
        commit(&memory, late, vec![put("three", "text")]);
        // What is looked up from now on is found nowhere, and would stay where it is.
        relocations.sealed = &[];
        let present = memory.catalog().clone();
        relocations.catch_up(&mut relocated.branches, &rotated.branches, &present.branches);
        for branch in [main, late] {
            let branch = relocated.branches.get(&branch).unwrap();
            assert_eq!((branch.state.totals().records, branch.state.unsealed().values().count()), (302, 2));
        }
        let base = &relocated.branches.get(&late).unwrap().base;
        assert_eq!((base.totals().records, base.unsealed().values().count()), (301, 1));
    }
}
