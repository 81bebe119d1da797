//! Merges in process, and what they write.

use engramfs::memory::{BranchId, FILES_ROOT, FileName, FileOp, Memory, MergeVerb, NewInode, View};

use crate::store::{bytes_of, edit, fill, open, who};
use crate::{micros, p50, row};

pub fn run() {
    for (edits, figure) in [(100, "< 2 ms"), (10_000, "< 100 ms")] {
        let mut times = Vec::new();
        for _ in 0..5 {
            times.push(merge(edits));
        }
        let how = format!("20,000 records, 1 % conflicts, newest-wins; median of {} merges", times.len());
        row(&format!("merge of {edits} edits"), figure, &format!("{:.2} ms", p50(times) / 1e3), &how);
    }
    log_bytes();
}

fn merge(edits: usize) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path());
    let main = fill(&memory, 20_000);
    let fork = memory.fork(&who(), main, "agent-7", None).unwrap();
    let mut seed = 3;
    // Below the size from which a commit goes into a segment, as agents write.
    for start in (0..edits).step_by(500) {
        let batch = (start..edits.min(start + 500)).map(|n| edit(format!("row-{:08}", n * 2), &mut seed));
        memory.commit(&who(), fork, batch.collect()).unwrap();
    }
    let both = (0..edits / 100).map(|n| edit(format!("row-{:08}", n * 200), &mut seed));
    memory.commit(&who(), main, both.collect()).unwrap();
    micros(|| {
        let outcome = memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
        assert_eq!(outcome.conflicts.len(), edits / 100);
    })
}

const ITEMS: usize = 10_000;

/// What a merge adds to the log, beside the contents that it joins.
fn log_bytes() {
    let records = |both: usize| move |memory: &Memory, main: BranchId| changed_records(memory, main, both);
    measure_log("records that the branch changed", &records(0));
    measure_log("records, of which both sides changed every second", &records(2));
    measure_log("files that the branch added", &|memory, main| changed_files(memory, main, 0));
    measure_log("files that the branch changed", &|memory, main| changed_files(memory, main, ITEMS));
}

fn measure_log(what: &str, prepare: &dyn Fn(&Memory, BranchId) -> BranchId) {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path());
    let fork = prepare(&memory, memory.root("main").unwrap());
    memory.seal().unwrap();
    let before = bytes_of(&folder.path().join("journal"));
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    let each = (bytes_of(&folder.path().join("journal")) - before) as f64 / ITEMS as f64;
    row("bytes of a merge in the log, an item", "≤ 40", &format!("{each:.1}"), &format!("{ITEMS} {what}"));
}

/// Forks and changes records in the branch, and each `both`-th in the parent as well.
fn changed_records(memory: &Memory, main: BranchId, both: usize) -> BranchId {
    let commit = |branch: BranchId, step: usize, seed: u64| {
        let mut seed = seed;
        let edits: Vec<_> = (0..ITEMS).step_by(step).map(|n| edit(format!("row-{n:08}"), &mut seed)).collect();
        memory.commit(&who(), branch, edits).unwrap();
    };
    commit(main, 1, 1);
    let fork = memory.fork(&who(), main, "agent-7", None).unwrap();
    commit(fork, 1, 2);
    if both > 0 {
        commit(main, both, 3);
    }
    fork
}

/// Makes files, forks when there are `shared` of them, and writes all of them in the branch.
fn changed_files(memory: &Memory, main: BranchId, shared: usize) -> BranchId {
    let put = |branch: BranchId, n: usize| {
        let name = FileName::new(format!("notes-{n:05}.md").as_bytes()).unwrap();
        let tree = memory.files(&View::Branch(branch)).unwrap();
        let inode = tree.resolve(&name).or_else(|_| {
            let make = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
            memory.edit(&who(), branch, make).map(|made| made.inode)
        });
        let bytes = format!("note {n} of {branch:?}").into_bytes().into();
        memory.edit(&who(), branch, FileOp::Write { inode: inode.unwrap(), offset: 0, bytes }).unwrap();
    };
    (0..shared).for_each(|n| put(main, n));
    let fork = memory.fork(&who(), main, "agent-7", None).unwrap();
    (0..ITEMS).for_each(|n| put(fork, n));
    fork
}
