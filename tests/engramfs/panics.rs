//! A panic at each call of the disk: what was under way is done whole or not at all, nothing more is written by a
//! process in which a change may be half done, and the store opens.

use std::panic::{AssertUnwindSafe, catch_unwind};

use engramfs::disk::{DiskCall, FaultyDisk, ForgetfulDisk};
use engramfs::memory::{BranchId, EditError, Error, FILES_ROOT, FileName, FileOp, Kind, Memory, NewInode, View};

use crate::story::{Log, Step, Story, picture};
use crate::support::{main_of, open, stride, verify, who};

/// What is done, one after the other.
#[derive(Clone, Copy, Debug)]
enum Do {
    Step(Step),
    /// Writes a file, long enough that its bytes stay in the journal.
    Write(u8),
    /// Writes a few bytes of it.
    Change(u8),
    Unlink,
}

use Do::{Change, Unlink, Write};
use Step::{Bulk, Collect, Commit, Fork, Merge, Promote, Rollback, Seal, Sync};

const SCRIPT: [Do; 21] = [
    Do::Step(Commit),
    Write(1),
    Do::Step(Sync),
    Do::Step(Fork),
    Do::Step(Commit),
    Change(2),
    Do::Step(Step::Checkpoint),
    Do::Step(Seal),
    Write(3),
    Do::Step(Bulk),
    Do::Step(Commit),
    Do::Step(Promote),
    Do::Step(Merge),
    Do::Step(Sync),
    Change(4),
    Do::Step(Rollback),
    Do::Step(Collect),
    Unlink,
    Do::Step(Commit),
    Do::Step(Fork),
    Do::Step(Seal),
];

const LONG: usize = 100 << 10;

/// What the file may hold: nothing where it is not there.
type Bytes = Option<Vec<u8>>;

fn inode(memory: &Memory, main: BranchId) -> Option<u64> {
    memory.files(&View::Branch(main)).unwrap().lookup(FILES_ROOT, b"file").ok()
}

fn read(memory: &Memory) -> Bytes {
    let main = main_of(memory);
    let tree = memory.files(&View::Branch(main)).unwrap();
    inode(memory, main).map(|inode| tree.read(inode, 0, 1 << 20, memory.packs()).unwrap())
}

fn edit(memory: &Memory, what: Do) -> Result<(), Error> {
    let main = main_of(memory);
    let name = || FileName::new(b"file").unwrap();
    let make =
        || FileOp::Create { parent: FILES_ROOT, name: name(), make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 };
    let done = match (what, inode(memory, main)) {
        (Unlink, Some(_)) => {
            memory.edit(&who(), main, FileOp::Unlink { parent: FILES_ROOT, name: name(), keep: false })
        }
        (Unlink, None) => return Ok(()),
        (_, None) => memory.edit(&who(), main, make()),
        (Write(byte), Some(inode)) => {
            memory.edit(&who(), main, FileOp::Write { inode, offset: 0, bytes: vec![byte; LONG].into() })
        }
        (Change(byte), Some(inode)) => {
            memory.edit(&who(), main, FileOp::Write { inode, offset: 10, bytes: vec![byte; 100].into() })
        }
        (Do::Step(_), _) => return Ok(()),
    };
    done.map(drop).map_err(|error| match error {
        EditError::Refused(error) => error,
        EditError::Tree(error) => panic!("{error}"),
    })
}

fn perform(story: &mut Story, what: Do) -> Result<(), Error> {
    match what {
        Do::Step(step) => story.step(step),
        // The first one makes the file.
        what if inode(&story.memory, main_of(&story.memory)).is_none() => {
            edit(&story.memory, what).and_then(|()| edit(&story.memory, what))
        }
        what => edit(&story.memory, what),
    }
}

/// Returns what the file is after something.
fn after(what: Do, now: &Bytes, saved: &Bytes) -> Bytes {
    match (what, now.clone()) {
        (Write(byte), _) => Some(vec![byte; LONG]),
        (Change(byte), Some(mut bytes)) => {
            bytes[10..110].fill(byte);
            Some(bytes)
        }
        (Do::Step(Rollback), _) => saved.clone(),
        (Do::Step(_), now) => now,
        (Change(_) | Unlink, _) => None,
    }
}

/// Checks what a disk gives back: nothing of what was acknowledged is missing, and the file is one of `files`.
fn check(disk: &ForgetfulDisk, log: &Log, least: u64, files: Option<&[Bytes]>) {
    let memory = open(disk).unwrap();
    let seq = memory.last_seq();
    assert!(seq >= least, "entries up to {least} were acknowledged, and {seq} are there");
    if let Some(files) = files {
        // What was done to files since gets its entry when the store is opened.
        if seq == log.acknowledged {
            assert!(log.pictures[&seq] == (memory.tip(), picture(&memory)), "entry {seq} is another one");
        }
        let found = read(&memory);
        assert!(files.contains(&found), "the file is none of those that were written");
    }
    verify(disk).unwrap();
}

/// What a store does in which a change may be half done: reading. What an opening finds stays the same.
fn check_closed(story: &mut Story, disk: &ForgetfulDisk) {
    let reopened = || {
        let memory = open(&disk.power_cut_keep_all()).unwrap();
        (memory.last_seq(), picture(&memory), read(&memory))
    };
    let on_disk = reopened();
    let before = (picture(&story.memory), read(&story.memory));
    for what in [Do::Step(Commit), Change(9), Do::Step(Fork), Do::Step(Seal), Do::Step(Collect)] {
        let error = perform(story, what).unwrap_err();
        assert_eq!(error.kind(), Kind::ReadOnly, "{what:?}: {error}");
    }
    assert!(before == (picture(&story.memory), read(&story.memory)));
    assert!(on_disk == reopened(), "what was refused is on the disk");
}

/// Runs the script with a panic at one call; returns whether it came to that, and whether the store was closed by it.
fn run(nth: u64) -> (bool, bool) {
    let faulty = FaultyDisk::new(ForgetfulDisk::new());
    let mut story = Story::begin(&faulty, 5).unwrap();
    faulty.plan_panic(nth, DiskCall::ALL);
    let (mut files, mut panicked, mut closed): (Vec<Bytes>, _, _) = (vec![None], false, false);
    // Known without a look at the disk, which might panic.
    let (mut now, mut saved): (Bytes, Bytes) = (None, None);
    for what in SCRIPT {
        let (before, after) = (now.clone(), after(what, &now, &saved));
        let done = catch_unwind(AssertUnwindSafe(|| perform(&mut story, what)));
        match done {
            // It came to a thread in the background.
            Ok(Err(error)) if error.kind() == Kind::ReadOnly => panicked = true,
            Ok(done) => {
                done.unwrap_or_else(|error| panic!("call {nth}: {what:?}: {error}"));
                if matches!(what, Do::Step(Step::Checkpoint)) {
                    saved = after.clone();
                }
                now = after;
                files = vec![now.clone()];
                continue;
            }
            Err(_) => panicked = true,
        }
        // Either it was done or it was not; a file may have been made and not written.
        files = vec![before, after, Some(Vec::new())];
        if story.memory.is_read_only() {
            closed = true;
            check_closed(&mut story, faulty.inner());
            break;
        }
        // It was nobody's change that broke off: all goes on.
        if let Err(error) = perform(&mut story, what) {
            // A flush broke off, which the next one is told.
            assert_eq!(error.kind(), Kind::ReadOnly, "call {nth}: {what:?} again: {error}");
            closed = true;
            check_closed(&mut story, faulty.inner());
            break;
        }
        now = read(&story.memory);
        files = vec![now.clone()];
    }
    let log = story.log.clone();
    check(&faulty.inner().power_cut_keep_nothing(), &log, log.synced, None);
    check(&faulty.inner().power_cut(nth), &log, log.synced, None);
    drop(story);
    faulty.clear();
    check(faulty.inner(), &log, log.acknowledged, Some(&files));
    (panicked, closed)
}

#[test]
fn a_panic_anywhere_leaves_nothing_half_done_and_nothing_lost() {
    let (mut panics, mut closings) = (0, 0);
    for nth in (1..).step_by(stride(3)) {
        let (panicked, closed) = run(nth);
        if !panicked {
            break;
        }
        panics += 1;
        closings += u64::from(closed);
    }
    assert!(panics > 40 && closings > 4 && closings < panics, "{panics} panics closed {closings} stores");
}
