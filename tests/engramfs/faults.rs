//! Every call of the disk fails in turn: nothing acknowledged is lost, the error says what kind it
//! is, and the store goes on wherever it can.

use std::sync::Arc;

use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::journal::Journal;
use engramfs::memory::{Error, Kind, View};

use crate::story::{Step, Story, recover};
use crate::support::{main_of, open_on, put, rounds, stride, texts, who};

use Step::{
    Append, BringBack, Close, Collect, Commit, Die, Discard, Fork, Merge, Promote, Redo, Reopen, Rollback,
    RollbackEntry, Seal, Sync, Undo,
};

const STEPS: [Step; 35] = [
    Commit,
    Step::Signal,
    Sync,
    Fork,
    Commit,
    Step::Checkpoint,
    Commit,
    Seal,
    Step::Signal,
    Commit,
    Fork,
    Commit,
    Promote,
    Undo,
    Append,
    Commit,
    Sync,
    Step::Signal,
    Die,
    Redo,
    RollbackEntry,
    Rollback,
    Discard,
    BringBack,
    Merge,
    Append,
    Close,
    Reopen,
    Append,
    Step::Signal,
    Commit,
    Seal,
    Collect,
    Commit,
    Sync,
];

const EACH: [&[DiskCall]; 11] = [
    &[DiskCall::Create],
    &[DiskCall::Open],
    &[DiskCall::Write],
    &[DiskCall::Sync],
    &[DiskCall::SyncDir],
    &[DiskCall::Rename],
    &[DiskCall::Remove],
    &[DiskCall::SetLen],
    &[DiskCall::Read],
    &[DiskCall::List],
    &[DiskCall::Map],
];

/// What a run with one failing call came to.
struct Run {
    story: Story,
    /// The call was made, so it failed.
    hit: bool,
    /// What the caller was told.
    told: Option<(Step, Error)>,
    /// It hit the seal of a close, which is a warning in the log: nothing is lost by it.
    in_close: bool,
}

/// Runs the steps with one fault. A step that fails is tried again, as a caller would.
fn run(faulty: &FaultyDisk<ForgetfulDisk>, fault: Fault) -> Run {
    let mut story = Story::begin(faulty, 2).unwrap();
    faulty.plan(fault);
    let (mut told, mut in_close) = (None, false);
    for step in STEPS {
        let was_hit = faulty.calls() >= fault.nth;
        let Err(error) = story.step(step) else {
            in_close |= step == Close && !was_hit && faulty.calls() >= fault.nth;
            continue;
        };
        assert!(told.is_none(), "{fault:?}: {step:?} fails once more: {error}");
        told = Some((step, error));
        if story.memory.is_read_only() && step == Close {
            story.step(Die).unwrap();
            continue;
        }
        if story.memory.is_read_only() && step != Reopen {
            check_read_only(&mut story, fault);
            break;
        }
        story.step(step).unwrap_or_else(|error| panic!("{fault:?}: {step:?} fails again: {error}"));
    }
    Run { hit: faulty.calls() >= fault.nth, story, told, in_close }
}

/// After a failed flush: nothing more is written, and reading goes on.
fn check_read_only(story: &mut Story, fault: Fault) {
    assert_eq!(fault.kinds, [DiskCall::Sync], "only a failed flush ends writing: {fault:?}");
    let before = texts(&story.memory, &View::Branch(main_of(&story.memory)));
    for step in [Commit, Sync, Seal] {
        let error = story.step(step).unwrap_err();
        assert_eq!(error.kind(), Kind::ReadOnly, "{step:?}: {error}");
    }
    assert_eq!(texts(&story.memory, &View::Branch(main_of(&story.memory))), before);
}

fn check_kind(fault: Fault, step: Step, error: &Error) {
    let right = match (fault.errno, error.kind()) {
        (libc::ENOSPC, kind) => kind == Kind::Full,
        (libc::EDQUOT, kind) => kind == Kind::Quota,
        (_, kind) => kind == Kind::Io,
    };
    assert!(right, "{fault:?}: {step:?} gives {:?}: {error}", error.kind());
    assert!(!error.to_string().is_empty() && !error.hint().is_empty());
}

/// Has one call fail after the other until a run makes fewer; returns how many failed outside of the seal of a close, and
/// how many of these the caller was told of.
fn fail_each(kinds: &'static [DiskCall], errno: i32, short_write: bool) -> (u64, u64) {
    let (mut failed, mut told) = (0, 0);
    for nth in (1..).step_by(stride(3)) {
        let faulty = FaultyDisk::losing_pages(ForgetfulDisk::new());
        let fault = Fault { nth, kinds, errno, short_write, sticky: false };
        let run = run(&faulty, fault);
        if let Some((step, error)) = &run.told {
            told += 1;
            check_kind(fault, *step, error);
        }
        failed += u64::from(run.hit && !run.in_close);
        let log = &run.story.log;
        let check = |disk: ForgetfulDisk, least| {
            recover(&disk, log, least).unwrap_or_else(|error| panic!("{fault:?}: {error}"))
        };
        check(faulty.inner().power_cut_keep_nothing(), log.synced);
        check(faulty.inner().power_cut(nth), log.synced);
        drop(run.story.memory);
        faulty.clear();
        check(faulty.inner().clone(), log.acknowledged);
        if !run.hit {
            return (failed, told);
        }
    }
    unreachable!("a run ends")
}

#[test]
fn every_call_that_fails_is_told_and_loses_nothing() {
    for kinds in EACH {
        for errno in [libc::EIO, libc::ENOSPC] {
            let (failed, told) = fail_each(kinds, errno, false);
            let wanted = if kinds == [DiskCall::SetLen] { 0 } else { 1 };
            assert!(failed >= wanted, "{kinds:?}: the history makes no such call");
            // A mark that can't be written and an old file that can't be measured and removed are no loss.
            let silent = matches!(
                kinds,
                [DiskCall::Write | DiskCall::Remove | DiskCall::Open | DiskCall::SyncDir | DiskCall::List]
            );
            // A seal goes the long way where it can't read what would shorten it.
            let shortened = if kinds == [DiskCall::Read] { failed / 20 } else { 0 };
            assert!(told + shortened >= failed || silent, "{kinds:?}, {errno}: {told} of {failed} were told");
            assert!(told * 2 >= failed || kinds == [DiskCall::Remove], "{kinds:?}: {told} of {failed}");
        }
    }
}

#[test]
fn every_write_that_is_half_done_is_undone() {
    for errno in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
        let (failed, told) = fail_each(&[DiskCall::Write], errno, true);
        assert!(failed > 10 && told * 2 > failed, "{told} of {failed}");
    }
}

/// A disk that is full for good: reading goes on, and when there is room again so does writing.
#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let faulty = FaultyDisk::new(ForgetfulDisk::new());
    let mut story = Story::begin(&faulty, 3).unwrap();
    story.step(Commit).unwrap();
    for round in 0..rounds(20) as u64 {
        let fault = Fault {
            nth: 1,
            kinds: &[DiskCall::Write, DiskCall::Create],
            errno: libc::ENOSPC,
            short_write: round.is_multiple_of(2),
            sticky: true,
        };
        faulty.plan(fault);
        let journals = || {
            let files = faulty.inner().files().into_iter();
            files.filter(|(path, _)| path.starts_with("journal/")).collect::<Vec<_>>()
        };
        let before = journals();
        for step in [Commit, Fork, Step::Checkpoint, Step::Bulk] {
            assert_eq!(story.step(step).unwrap_err().kind(), Kind::Full, "{step:?}");
            assert_eq!(journals(), before, "half a frame of {step:?} stays");
        }
        story.step(Seal).unwrap_err();
        texts(&story.memory, &View::Branch(main_of(&story.memory)));
        faulty.clear();
        story.step(Commit).unwrap();
        story.step(Sync).unwrap();
        recover(&faulty.inner().power_cut(round), &story.log, story.log.synced).unwrap();
    }
}

/// A half-written frame that can't be cut away either: nothing may be appended behind it.
#[test]
fn a_half_written_frame_that_stays_ends_writing() {
    let faulty = FaultyDisk::new(ForgetfulDisk::new());
    let mut story = Story::begin(&faulty, 3).unwrap();
    story.step(Commit).unwrap();
    faulty.plan(Fault {
        nth: 1,
        kinds: &[DiskCall::Write, DiskCall::SetLen],
        errno: libc::EIO,
        short_write: true,
        sticky: true,
    });
    assert_eq!(story.step(Commit).unwrap_err().kind(), Kind::Io);
    faulty.clear();
    assert_eq!(story.step(Commit).unwrap_err().kind(), Kind::ReadOnly);
    recover(faulty.inner(), &story.log, story.log.acknowledged).unwrap();
}

/// Fails each call of `work` in turn, on one and the same store, and returns how many failed.
fn fail_each_of(work: &dyn Fn(&mut Story) -> Result<(), Error>) -> u64 {
    let mut failures = 0;
    for nth in 1.. {
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        let mut story = Story::begin(&faulty, nth).unwrap();
        for step in [Commit, Fork, Commit, Seal, Commit, Step::Discard, Commit] {
            story.step(step).unwrap();
        }
        let sync_free: &[DiskCall] = &[
            DiskCall::Create,
            DiskCall::Open,
            DiskCall::Write,
            DiskCall::SyncDir,
            DiskCall::Rename,
            DiskCall::Remove,
            DiskCall::Read,
            DiskCall::List,
            DiskCall::Map,
        ];
        faulty.plan(Fault::once(nth, sync_free, libc::EIO));
        let result = work(&mut story);
        let hit = faulty.calls() >= nth;
        faulty.clear();
        failures += u64::from(result.is_err());
        recover(&faulty.inner().power_cut_keep_all(), &story.log, story.log.acknowledged)
            .unwrap_or_else(|error| panic!("call {nth}: {error}"));
        recover(&faulty.inner().power_cut(nth), &story.log, story.log.synced)
            .unwrap_or_else(|error| panic!("call {nth}: {error}"));
        story.step(Commit).unwrap();
        work(&mut story).unwrap_or_else(|error| panic!("after call {nth} failed: {error}"));
        recover(&faulty.inner().power_cut_keep_nothing(), &story.log, story.log.synced)
            .unwrap_or_else(|error| panic!("call {nth}: {error}"));
        if !hit {
            return failures;
        }
    }
    unreachable!("a run ends")
}

#[test]
fn a_seal_that_fails_anywhere_loses_nothing_and_the_next_one_succeeds() {
    let failures = fail_each_of(&|story| story.step(Seal));
    assert!(failures >= 15, "{failures}");
}

/// Nobody waits for the folder once older journal files are removed, so a power cut brings them back.
#[test]
fn journal_files_that_outlive_their_seal_are_not_read_and_go_with_the_next_one() {
    let disk = ForgetfulDisk::new();
    let mut story = Story::begin(&disk, 3).unwrap();
    for step in [Commit, Fork, Commit, Seal] {
        story.step(step).unwrap();
    }
    let cut = disk.power_cut_keep_nothing();
    assert_eq!(cut.list("journal").unwrap().len(), 2);
    recover(&cut, &story.log, story.log.synced).unwrap();
    // A reader of the old file would report this.
    let old = Journal::file_path(1);
    cut.flip(&old, cut.bytes(&old).unwrap().len() as u64 / 2, 1).unwrap();
    let memory = open_on(Arc::new(cut.clone())).unwrap();
    memory.seal().unwrap();
    assert_eq!(cut.list("journal").unwrap().len(), 1);
}

#[test]
fn a_collection_that_fails_anywhere_loses_nothing_and_the_next_one_succeeds() {
    let failures = fail_each_of(&|story| story.step(Collect));
    assert!(failures >= 15, "{failures}");
}

/// Making a store fails at each call; the next try makes a whole one.
#[test]
fn a_store_that_could_not_be_made_is_made_by_the_next_try() {
    for nth in 1.. {
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        faulty.plan(Fault::once(nth, DiskCall::ALL, libc::EIO));
        let first = open_on(Arc::new(faulty.clone()));
        let hit = faulty.calls() >= nth;
        faulty.clear();
        assert!(first.is_err() || !hit, "call {nth}");
        let cut = faulty.inner().power_cut(nth);
        let has = |path: &str| cut.bytes(path).is_ok();
        let others = ["format", "key", "key.pub", &Journal::file_path(1)];
        assert!(!has("manifest") || others.into_iter().all(has), "call {nth}: {:?}", cut.files());
        let memory = open_on(Arc::new(cut)).unwrap_or_else(|error| panic!("call {nth}: {error}"));
        memory.commit(&who(), main_of(&memory), vec![put("a", None, Some("text"))]).unwrap();
        let memory = open_on(Arc::new(faulty.clone())).unwrap_or_else(|error| panic!("call {nth}: {error}"));
        memory.commit(&who(), main_of(&memory), vec![put("a", None, Some("text"))]).unwrap();
        if !hit {
            // With a log record it is damage.
            let made = faulty.inner().power_cut_keep_all();
            made.remove("manifest").unwrap();
            assert_eq!(open_on(Arc::new(made)).err().unwrap().kind(), Kind::Damaged);
            return;
        }
    }
}
