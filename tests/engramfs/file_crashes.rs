//! Operations on files at power cuts: those before a sync are there, of later ones the first few, and what has no entry
//! yet gets one when the store is opened.

use std::sync::Arc;

use engramfs::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::memory::{BranchId, FILES_ROOT, FileName, FileOp, Memory, MergeVerb, RenameMode, View};

use crate::support::{main_of, make_file, open, open_on, put, stride, verify, who};

/// What is done, one after the other.
#[derive(Clone, Copy, Debug)]
enum Do {
    Create(&'static str),
    /// So many bytes are written.
    Write(&'static str, usize),
    Rename(&'static str, &'static str),
    /// The file stays open.
    Unlink(&'static str),
    /// The file that was unlinked last is written to.
    WriteUnnamed,
    Commit,
    /// A file of a fork is written to, and the fork merged.
    Merge,
    Sync,
    Seal,
    Collect,
}

use Do::{Collect, Commit, Create, Merge, Rename, Seal, Sync, Unlink, Write, WriteUnnamed};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Bytes of a write that stay in the journal.
const LONG: usize = 100_001;

const SCRIPT: [Do; 25] = [
    Create("a"),
    Write("a", 10),
    Sync,
    Rename("a", "b"),
    Create("a"),
    Write("a", LONG),
    Unlink("b"),
    WriteUnnamed,
    Sync,
    Create("c"),
    Commit,
    Write("c", 20),
    Seal,
    WriteUnnamed,
    Rename("c", "b"),
    Write("b", 30),
    Sync,
    Commit,
    Merge,
    Collect,
    Write("a", 5),
    Create("c"),
    Unlink("c"),
    Rename("a", "c"),
    Write("c", 40),
];

/// What the files hold, each of `NAMES`.
type Files = Vec<Option<Vec<u8>>>;

fn files(memory: &Memory) -> Files {
    let tree = memory.files(&View::Branch(main_of(memory))).unwrap();
    let read = |inode| tree.read(inode, 0, 1 << 20, memory.packs()).unwrap();
    NAMES.iter().map(|name| tree.resolve(name.as_bytes()).ok().map(read)).collect()
}

/// Does one thing; returns whether it was acknowledged.
fn perform(memory: &Memory, what: Do, unnamed: &mut u64) -> bool {
    let main = main_of(memory);
    let name = |name: &str| FileName::new(name.as_bytes()).unwrap();
    let inode = |name: &str| memory.files(&View::Branch(main)).unwrap().lookup(FILES_ROOT, name.as_bytes()).unwrap();
    let edit = |op: FileOp<'_>| memory.edit(&who(), main, op).is_ok();
    let write =
        |inode: u64, length: usize| edit(FileOp::Write { inode, offset: 0, bytes: vec![length as u8; length].into() });
    match what {
        Create(path) => make_file(memory, path).is_ok(),
        Write(path, length) => write(inode(path), length),
        Rename(from, to) => edit(FileOp::Rename {
            parent: FILES_ROOT,
            name: name(from),
            new_parent: FILES_ROOT,
            new_name: name(to),
            mode: RenameMode::Plain,
            keep: false,
        }),
        Unlink(path) => {
            *unnamed = inode(path);
            edit(FileOp::Unlink { parent: FILES_ROOT, name: name(path), keep: true })
        }
        WriteUnnamed => write(*unnamed, 50),
        Commit => memory.commit(&who(), main, vec![put("r", None, Some(&memory.last_seq().to_string()))]).is_ok(),
        Merge => memory.fork(&who(), main, "fork", None).is_ok_and(|fork| merge(memory, fork)),
        Sync => memory.sync().is_ok(),
        Seal => memory.seal().is_ok(),
        Collect => memory.gc(&who(), None, false).is_ok(),
    }
}

/// Writes to a file of a fork and merges it; returns whether both were acknowledged.
fn merge(memory: &Memory, fork: BranchId) -> bool {
    let inode = memory.files(&View::Branch(fork)).unwrap().lookup(FILES_ROOT, b"a").unwrap();
    let op = FileOp::Write { inode, offset: 0, bytes: b"of the fork"[..].into() };
    memory.edit(&who(), fork, op).is_ok() && memory.merge(&who(), fork, MergeVerb::Merge, false).is_ok()
}

/// What a run of the script came to.
struct Run {
    disk: ForgetfulDisk,
    /// What the files held after each step that was acknowledged.
    states: Vec<Files>,
    /// The number of the state that was synced last.
    synced: usize,
    /// What was done to files last has no entry that a caller asked for.
    is_pending: bool,
    is_done: bool,
}

/// Runs the script up to the `nth` call that changes the disk: from there on nothing reaches it.
fn run(nth: u64, ignore_sync: bool) -> Run {
    let faulty = FaultyDisk::new(ForgetfulDisk::new());
    let memory = open_on(Arc::new(faulty.clone())).unwrap();
    memory.sync().unwrap();
    faulty.inner().ignore_sync(ignore_sync);
    let half = nth.is_multiple_of(2);
    faulty.plan(Fault { nth, kinds: DiskCall::CHANGES, errno: libc::EIO, short_write: half, sticky: true });
    let (mut states, mut synced, mut is_pending, mut unnamed) = (vec![files(&memory)], 0, false, 0);
    for what in SCRIPT {
        if !perform(&memory, what, &mut unnamed) {
            break;
        }
        match what {
            Sync => synced = states.len(),
            Seal | Collect => (synced, is_pending) = (states.len(), false),
            Commit | Merge => is_pending = false,
            WriteUnnamed => {}
            Create(_) | Write(..) | Rename(..) | Unlink(_) => is_pending = true,
        }
        states.push(files(&memory));
    }
    let is_done = faulty.calls() < nth;
    Run { disk: faulty.inner().clone(), states, synced, is_pending, is_done }
}

/// Checks what a disk gives back: the files are in one of the states, and nothing is left of those without a name.
fn check(disk: &ForgetfulDisk, allowed: &[Files], is_pending: bool) -> Result<(), String> {
    let memory = open(disk).map_err(|error| format!("does not open: {error}"))?;
    if !allowed.contains(&files(&memory)) {
        return Err("the files are in none of the states since the sync".to_owned());
    }
    let main = main_of(&memory);
    if memory.files(&View::Branch(main)).unwrap().orphans().next().is_some() {
        return Err("a file that was deleted while open is still there".to_owned());
    }
    let last = memory.lineage_lines(main, false).unwrap().pop().unwrap_or_default();
    let last: serde_json::Value = serde_json::from_str(&last).unwrap_or_default();
    if is_pending && last["op"] != "files" {
        return Err(format!("what was done to files has no entry: {last}"));
    }
    verify(disk).map(drop).map_err(|error| format!("does not verify: {error}"))
}

#[test]
fn what_was_done_to_files_and_synced_survives_a_power_cut_at_every_call() {
    for nth in (1..).step_by(stride(3)) {
        let run = run(nth, false);
        let check = |cut: ForgetfulDisk, first: usize, is_pending: bool| {
            check(&cut, &run.states[first..], is_pending).unwrap_or_else(|error| panic!("call {nth}: {error}"));
        };
        check(run.disk.power_cut_keep_nothing(), run.synced, false);
        (0..2).for_each(|cut| check(run.disk.power_cut(nth * 1000 + cut), run.synced, false));
        // The process died and the machine did not.
        check(run.disk.power_cut_keep_all(), run.states.len() - 1, run.is_pending);
        if run.is_done {
            break;
        }
    }
}

/// The negative control: with a drive that lies about syncs the same check must find losses.
#[test]
fn a_drive_that_ignores_syncs_of_files_is_found_out() {
    let run = run(u64::MAX, true);
    let error = check(&run.disk.power_cut_keep_nothing(), &run.states[run.synced..], false).unwrap_err();
    assert!(error.contains("none of the states"), "{error}");
}
