//! When the maintenance thread rests and seals.

use super::*;
use std::sync::mpsc::channel;

use crate::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use crate::memory::catalog::settings::Setting;
use crate::memory::maintenance::compact::RewriteSet;
use crate::memory::{
    Actor, BranchId, Environment, FILES_ROOT, FileName, FileOp, Kind, MergeOptions, MergeVerb, NewInode, OpenMode,
    PurgeOptions, RecordEdit, RecordInput, Revision, View,
};

#[test]
fn who_waits_for_maintenance_waits_while_a_seal_is_asked_for_and_under_way() {
    let maintenance = MaintenanceThread::default();
    maintenance.request(|requests| requests.seal = true);
    let ((tell, told), waiting) = (channel(), maintenance.clone());
    let waiter = std::thread::spawn(move || {
        waiting.wait_until_idle();
        tell.send(()).unwrap();
    });
    let moment = Duration::from_millis(50);
    assert!(told.recv_timeout(moment).is_err(), "it is asked for");
    assert!(maintenance.wait_for_work(Duration::ZERO).unwrap().seal);
    assert!(told.recv_timeout(moment).is_err(), "it is under way");
    assert!(!maintenance.wait_for_work(Duration::ZERO).unwrap().seal);
    told.recv_timeout(Duration::from_secs(20)).unwrap();
    waiter.join().unwrap();
}

#[test]
fn long_writes_are_sealed_once_they_pause_or_when_they_are_too_many() {
    let mut quiescence = WriteQuiescence::default();
    let mut is_now = |written: u64| quiescence.is_due(written);
    assert!(!is_now(SEAL_BYTES - 1) && !is_now(SEAL_BYTES - 1), "too few");
    assert!(!is_now(SEAL_BYTES) && !is_now(SEAL_BYTES * 2), "more came");
    assert!(is_now(SEAL_BYTES * 2) && is_now(SEAL_BYTES * 2), "no more came");
    assert!(!is_now(0) && !is_now(SEAL_BYTES), "sealed, and more came");
    assert!(is_now(WRITTEN_BYTES_MAX) && is_now(WRITTEN_BYTES_MAX * 2), "too many");
}

fn open(disk: &ForgetfulDisk, who: &Actor, mode: OpenMode) -> Result<Arc<Memory>, Error> {
    let environment = Environment { reserve_bytes: 0, ..Environment::real(who.clone()) };
    Memory::open_on(Arc::new(disk.clone()), mode, None, environment)
}

/// A store whose root branch keeps one state of an hour beside the newest.
fn with_thinned_states(who: &Actor) -> (ForgetfulDisk, Arc<Memory>, BranchId) {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk, who, OpenMode::Create).unwrap();
    let main = memory.root("main").unwrap();
    memory.set(who, main, Setting::KeepEvery, "1h").unwrap();
    (disk, memory, main)
}

/// Writes the one record anew, and returns the entry that did.
fn commit(memory: &Memory, who: &Actor, branch: BranchId, number: usize) -> u64 {
    let input = RecordInput { vector: None, text: Some(format!("{number}").into()), metadata: "{}".into() };
    memory.commit(who, branch, vec![RecordEdit::Put { id: "a".into(), input }]).unwrap();
    memory.last_seq()
}

fn head(memory: &Memory, branch: BranchId) -> Hash {
    memory.catalog().branch(branch).unwrap().state.head()
}

#[test]
fn an_opening_finds_what_was_gone_back_to_while_a_seal_wrote() {
    let who = Actor { uid: 0, gid: 0, name: "root".into() };
    let (disk, memory, main) = with_thinned_states(&who);
    let entries: Vec<u64> = (0..1_100).map(|number| commit(&memory, &who, main, number)).collect();
    let old = entries[10];
    // It need not stay, and nobody has said so yet.
    assert!(memory.catalog().outdated_states(memory.now()).unwrap().contains(&(main.0, old)));
    let Rotation { manifest, .. } = memory.rotate().unwrap();
    memory.rollback(&who, main, &old.to_string()).unwrap();
    let expected = head(&memory, main);
    memory.seal_rotated(&mut memory.storage.manifest.lock(), manifest, &Compaction::Small, u64::MAX).unwrap();
    memory.sync().unwrap();
    assert_eq!(head(&open(&disk.power_cut_keep_all(), &who, OpenMode::Existing).unwrap(), main), expected);
    memory.gc(&who, None, false).unwrap();
    assert_eq!(memory.rollback(&who, main, &old.to_string()).unwrap_err().code(), "not_kept");
}

#[test]
fn a_store_is_left_alone_after_15_seconds_and_sealed_from_64_kib_of_journal_on() {
    let who = Actor { uid: 0, gid: 0, name: "root".into() };
    let idle_interval = Environment::real(who.clone()).idle_interval;
    assert_eq!((idle_interval, idle_gc_delay(idle_interval)), (Duration::from_secs(60), Duration::from_secs(15)));
    let idle_interval = Duration::from_secs(3600);
    let environment = Environment { reserve_bytes: 0, idle_interval, ..Environment::real(who.clone()) };
    let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
    let main = memory.root("main").unwrap();
    let put = |text: String| {
        let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
        memory.commit(&who, main, vec![RecordEdit::Put { id: "a".into(), input }]).unwrap();
    };
    let length = || memory.journal().unwrap().length();
    let begun = memory.gc_when_idle(None).unwrap();
    put("x".repeat(60 << 10));
    assert!((60 << 10..64 << 10).contains(&length()), "{}", length());
    assert_eq!(memory.gc_when_idle(begun).unwrap(), begun, "nothing is sealed");
    put("x".repeat(4 << 10));
    let sealed = memory.gc_when_idle(begun).unwrap();
    assert!(sealed > begun && length() < 64 << 10, "it is sealed, and a new file begun");
}

#[test]
fn an_opening_finds_what_was_gone_back_to_after_states_were_thinned() {
    let who = Actor { uid: 0, gid: 0, name: "root".into() };
    let (disk, memory, main) = with_thinned_states(&who);
    (0..600).for_each(|number| _ = commit(&memory, &who, main, number));
    let Rotation { manifest, .. } = memory.rotate().unwrap();
    // One state came while the seal wrote, so that positions go on after it.
    commit(&memory, &who, main, 600);
    memory.seal_rotated(&mut memory.storage.manifest.lock(), manifest, &Compaction::Small, u64::MAX).unwrap();
    let entries: Vec<u64> = (601..2_651).map(|number| commit(&memory, &who, main, number)).collect();
    memory.rollback(&who, main, &entries[699].to_string()).unwrap();
    let expected = head(&memory, main);
    memory.sync().unwrap();
    let opened = open(&disk.power_cut_keep_all(), &who, OpenMode::Existing);
    assert_eq!(opened.map(|memory| head(&memory, main)).map_err(|error| error.to_string()), Ok(expected));
}

#[test]
fn the_state_before_a_rollback_stays_though_a_seal_had_written_it() {
    let who = Actor { uid: 0, gid: 0, name: "root".into() };
    let (_, memory, main) = with_thinned_states(&who);
    let [first, left] = [0, 1].map(|number| commit(&memory, &who, main, number));
    memory.seal().unwrap();
    memory.rollback(&who, main, &first.to_string()).unwrap();
    for seals in [false, true] {
        (0..1_100).for_each(|number| _ = commit(&memory, &who, main, number));
        if seals {
            memory.seal().unwrap();
        }
        let outdated = memory.catalog().outdated_states(memory.now()).unwrap();
        assert_eq!([first, left].map(|entry| outdated.contains(&(main.0, entry))), [true, false]);
    }
    memory.gc(&who, None, false).unwrap();
    memory.rollback(&who, main, &left.to_string()).unwrap();
}

fn root() -> Actor {
    Actor { uid: 0, gid: 0, name: "root".into() }
}

fn put(id: &str, text: &str) -> RecordEdit {
    let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
    RecordEdit::Put { id: id.into(), input }
}

fn write_file(memory: &Memory, branch: BranchId, name: &str, bytes: Vec<u8>) {
    let name = FileName::new(name.as_bytes()).unwrap();
    let make = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
    let inode = memory.edit(&root(), branch, make).unwrap().inode;
    memory.edit(&root(), branch, FileOp::Write { inode, offset: 0, bytes: bytes.into() }).unwrap();
}

/// Returns the one file of the store that holds some bytes, its length, and where they stand in it.
fn find_bytes(disk: &ForgetfulDisk, bytes: &[u8]) -> (String, u64, u64) {
    let mut found = disk.files().into_iter().filter(|(path, _)| path.starts_with("segments/"));
    let place = found.find_map(|(path, length)| {
        let content = disk.bytes(&path).unwrap();
        let place = content.windows(bytes.len()).position(|window| window == bytes)?;
        Some((path, length, place as u64))
    });
    place.unwrap()
}

/// One segment of nine is damaged, and it is the smallest, which each seal wants to write again first.
fn with_a_damaged_segment() -> (ForgetfulDisk, Arc<Memory>, BranchId) {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk, &root(), OpenMode::Create).unwrap();
    let main = memory.root("main").unwrap();
    memory.commit(&root(), main, vec![put("small", "damaged needle")]).unwrap();
    memory.seal().unwrap();
    for number in 0..8 {
        let edits = ["a", "b"].map(|id| put(&format!("{id}{number}"), "whole"));
        memory.commit(&root(), main, edits.into()).unwrap();
        memory.seal().unwrap();
    }
    memory.close().unwrap();
    drop(memory);
    let (path, _, place) = find_bytes(&disk, b"damaged needle");
    disk.flip(&path, place + 2, 1).unwrap();
    let memory = open(&disk, &root(), OpenMode::Existing).unwrap();
    (disk, memory, main)
}

#[test]
fn a_damaged_small_segment_is_no_reason_to_seal_nothing() {
    for compaction in [Compaction::Small, Compaction::WithoutGraph] {
        let (disk, memory, main) = with_a_damaged_segment();
        memory.commit(&root(), main, vec![put("new", "sealed all the same")]).unwrap();
        memory.seal_and_compact(&compaction).unwrap();
        find_bytes(&disk, b"sealed all the same");
        assert!(memory.catalog().branch(main).unwrap().state.unsealed().is_empty());
    }
}

#[test]
fn two_segments_without_a_graph_become_one() {
    let memory = open(&ForgetfulDisk::new(), &root(), OpenMode::Create).unwrap();
    let main = memory.root("main").unwrap();
    let segment_count = || memory.catalog().branch(main).unwrap().state.layers().len();
    for id in ["a", "b"] {
        memory.commit(&root(), main, vec![put(id, "a note")]).unwrap();
        memory.seal().unwrap();
    }
    assert_eq!(segment_count(), 2);
    memory.seal_and_compact(&Compaction::WithoutGraph).unwrap();
    assert_eq!(segment_count(), 1);
}

#[test]
fn seals_that_fail_leave_no_debt_beyond_what_waits() {
    let (_, memory, main) = with_a_damaged_segment();
    let segments = memory.storage.segments.list().iter().map(|segment| segment.name()).collect();
    let all = Compaction::Rewrite(Arc::new(RewriteSet { segments, ..RewriteSet::default() }));
    memory.commit(&root(), main, vec![put("new", "waits")]).unwrap();
    let before = memory.spare_bytes();
    for _ in 0..3 {
        assert_eq!(memory.seal_and_compact(&all).unwrap_err().kind(), Kind::Damaged);
    }
    assert!(before - memory.spare_bytes() < 1 << 20, "{before} {}", memory.spare_bytes());
}

#[test]
fn a_purge_that_cannot_be_finished_keeps_nothing_from_being_sealed() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk, &root(), OpenMode::Create).unwrap();
    let main = memory.root("main").unwrap();
    memory.commit(&root(), main, vec![put("secret", "hunter2")]).unwrap();
    for (name, byte) in [("one", b'1'), ("two", b'2')] {
        write_file(&memory, main, name, vec![byte; 200 << 10]);
        memory.seal().unwrap();
    }
    memory.close().unwrap();
    drop(memory);
    let (path, length, _) = find_bytes(&disk, &[b'1'; 1 << 10]);
    disk.flip(&path, length - 40, 1).unwrap();
    let memory = open(&disk, &root(), OpenMode::Existing).unwrap();
    let purged = memory.purge(&root(), main, &["secret".into()], PurgeOptions::default());
    assert_eq!(purged.unwrap_err().kind(), Kind::Damaged, "who asked for it is told");
    let number = || memory.journal().unwrap().number();
    memory.commit(&root(), main, vec![put("new", "sealed all the same")]).unwrap();
    let before = number();
    let work = MaintenanceWork { seal: true, orphans: Vec::new(), is_idle: false };
    memory.run_maintenance(&work, &mut WriteQuiescence::default()).unwrap();
    assert!(number() > before && memory.catalog().branch(main).unwrap().state.unsealed().is_empty());
    let before = number();
    let collected = memory.gc(&root(), None, false);
    assert!(number() > before, "{collected:?}");
    let purged = memory.purge(&root(), main, &["new".into()], PurgeOptions::default());
    assert_eq!(purged.unwrap_err().kind(), Kind::Damaged);
}

#[test]
fn a_purge_that_a_full_disk_left_over_is_finished_by_a_later_round() {
    let holds = |disk: &ForgetfulDisk| {
        disk.files().iter().any(|(path, _)| disk.bytes(path).unwrap().windows(7).any(|bytes| bytes == b"hunter2"))
    };
    let (mut finished, mut held) = (0, 0);
    // The files of the purge before its entry, and some of those after that.
    for nth in 1..20 {
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        let environment = Environment { reserve_bytes: 0, ..Environment::real(root()) };
        let memory = Memory::open_on(Arc::new(faulty.clone()), OpenMode::Create, None, environment).unwrap();
        memory.stop_maintenance();
        let main = memory.root("main").unwrap();
        memory.commit(&root(), main, vec![put("secret", "hunter2"), put("other", "stays")]).unwrap();
        memory.seal().unwrap();
        faulty.plan(Fault { sticky: true, ..Fault::once(nth, &[DiskCall::Create], libc::ENOSPC) });
        let purged = memory.purge(&root(), main, &["secret".into()], PurgeOptions::default());
        if purged.is_ok() {
            break;
        }
        let round = || {
            let work = MaintenanceWork { seal: false, orphans: Vec::new(), is_idle: false };
            memory.run_maintenance(&work, &mut WriteQuiescence::default())
        };
        if memory.is_purge_unfinished() {
            let _ = round();
            assert!(memory.is_purge_unfinished(), "there is no room yet: {nth}");
            held += usize::from(holds(faulty.inner()));
            faulty.clear();
            round().unwrap();
            assert!(!memory.is_purge_unfinished() && !holds(faulty.inner()), "{nth}");
            finished += 1;
        }
    }
    assert!(
        finished > 0 && held > 0,
        "the disk is full behind the entry {finished} times, and {held} times it held the bytes"
    );
}

#[test]
fn a_seal_leaves_files_in_the_index_that_were_written_while_it_ran() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk, &root(), OpenMode::Create).unwrap();
    let main = memory.root("main").unwrap();
    write_file(&memory, main, "before.txt", b"green tea".to_vec());
    memory.wait_until_files_indexed();
    let Rotation { manifest, .. } = memory.rotate().unwrap();
    write_file(&memory, main, "after.txt", b"black coffee".to_vec());
    memory.wait_until_files_indexed();
    let counts = || memory.visible_files(&View::Branch(main)).unwrap().unwrap().counts();
    assert_eq!(counts(), (2, 0), "a control");
    memory.seal_rotated(&mut memory.storage.manifest.lock(), manifest, &Compaction::Small, u64::MAX).unwrap();
    assert_eq!(counts(), (2, 0));
    assert_eq!(memory.storage.file_index.bytes_in_memory(), 0, "a control: it is in a file");
}

#[test]
fn a_rotation_that_fails_forgets_no_segment_that_a_command_names() {
    let mut failures = 0;
    for nth in 1..8 {
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        let environment = Environment { reserve_bytes: 0, ..Environment::real(root()) };
        let memory = Memory::open_on(Arc::new(faulty.clone()), OpenMode::Create, None, environment).unwrap();
        memory.stop_maintenance();
        let main = memory.root("main").unwrap();
        memory.commit(&root(), main, (0..1_100).map(|n| put(&format!("r{n}"), "text")).collect()).unwrap();
        let named = || memory.storage.journal_segments.lock().len();
        assert_eq!(named(), 1, "a control");
        // Its entry is written when the new file comes, so that the old one has something to flush after that.
        write_file(&memory, main, "file", b"pending".to_vec());
        faulty.plan(Fault::once(nth, &[DiskCall::Sync], libc::EIO));
        if memory.rotate().is_err() {
            failures += 1;
            assert_eq!(named(), 1, "flush {nth}");
        }
    }
    assert!(failures > 1, "the flushes of both files fail once");
}

#[test]
fn the_state_before_many_deletes_stays_though_a_seal_had_written_it() {
    let who = root();
    // Behind how many of the deletes, if at all.
    for sealed_behind in [None, Some(0), Some(1), Some(99)] {
        let (_, memory, main) = with_thinned_states(&who);
        memory.commit(&who, main, (0..1_200).map(|n| put(&format!("r{n}"), "text")).collect()).unwrap();
        let (full, head_before) = (memory.last_seq(), head(&memory, main));
        for n in 0..1_150 {
            if sealed_behind == Some(n) {
                memory.seal().unwrap();
            }
            memory.commit(&who, main, vec![RecordEdit::Delete { id: format!("r{n}").into() }]).unwrap();
        }
        memory.gc(&who, None, false).unwrap();
        memory.rollback(&who, main, &full.to_string()).unwrap();
        assert_eq!(head(&memory, main), head_before, "{sealed_behind:?}");
    }
}

/// Tells whether a state that no seal has written yet stays as long as any other.
fn is_pinned(memory: &Memory, branch: BranchId, entry: u64) -> bool {
    memory.catalog().retained.recent.get(&(branch, entry)).is_some_and(|recent| recent.retained.is_pinned)
}

#[test]
fn the_state_before_99_deletes_stays_no_longer_than_others_and_that_before_100_does() {
    let who = root();
    let (_, memory, main) = with_thinned_states(&who);
    memory.stop_maintenance();
    memory.commit(&who, main, (0..199).map(|n| put(&format!("r{n}"), "text")).collect()).unwrap();
    let full = memory.last_seq();
    let delete = |n: usize| {
        memory.commit(&who, main, vec![RecordEdit::Delete { id: format!("r{n}").into() }]).unwrap();
    };
    for n in 0..99 {
        delete(n);
    }
    memory.commit(&who, main, vec![put("between", "text")]).unwrap();
    let between = memory.last_seq();
    for n in 99..198 {
        delete(n);
    }
    assert!(!is_pinned(&memory, main, between), "99 in a row");
    delete(198);
    assert!(is_pinned(&memory, main, between), "100 in a row");
    assert!(!is_pinned(&memory, main, full), "one that was written between the deletes ends the row");
}

#[test]
fn the_state_before_a_merge_promote_pull_or_revert_stays_as_long_as_any_other() {
    let who = root();
    let (_, memory, main) = with_thinned_states(&who);
    memory.stop_maintenance();
    let child = memory.fork(&who, main, "child", None).unwrap();
    let write = |branch, id| {
        memory.commit(&who, branch, vec![put(id, "text")]).unwrap();
    };
    let check = |verb: &str, left: &[BranchId], step: &dyn Fn()| {
        let state = |branch: &BranchId| (*branch, memory.catalog().branch(*branch).unwrap().state_entry);
        let states: Vec<(BranchId, u64)> = left.iter().map(state).collect();
        let pinned = || states.iter().filter(|(branch, entry)| is_pinned(&memory, *branch, *entry)).count();
        assert_eq!(pinned(), 0, "a control, {verb}");
        step();
        assert_eq!(pinned(), states.len(), "{verb}");
    };
    let merge = |kind| {
        memory.merge(&who, child, kind, false).unwrap();
    };
    write(child, "a");
    check("promote", &[main, child], &|| merge(MergeVerb::Promote));
    write(main, "b");
    check("pull", &[child], &|| merge(MergeVerb::Pull));
    write(child, "c");
    check("merge", &[main], &|| merge(MergeVerb::Merge));
    write(main, "d");
    let entry = Revision::parse(&memory.last_seq().to_string()).unwrap();
    check("revert", &[main], &|| {
        memory.revert(&who, main, &entry, MergeOptions::default(), false).unwrap();
    });
}

/// Only what the journal has in memory alone could be lost by going on after one.
#[test]
fn a_failed_flush_of_another_file_than_the_journal_ends_no_writing() {
    let ([ended, goes_on], [ended_by_folders, goes_on_by_folders]) =
        (fail_each_flush(&[DiskCall::Sync]), fail_each_flush(&[DiskCall::SyncDir]));
    assert!(ended > 0, "the flush of the journal fails once");
    assert!(goes_on > 2, "{goes_on}: those of a header, a segment and the manifest do");
    assert_eq!(ended_by_folders, 0, "a folder's flush ends no writing");
    assert!(goes_on_by_folders > 2, "{goes_on_by_folders}: those of `journal/`, `segments/` and the root do");
}

/// Has each flush of a seal fail in turn; returns after how many of them writing ended, and after how many it went on.
fn fail_each_flush(kinds: &'static [DiskCall]) -> [usize; 2] {
    let (mut ended, mut goes_on) = (0, 0);
    for nth in 1.. {
        let faulty = FaultyDisk::losing_pages(ForgetfulDisk::new());
        let environment = Environment { reserve_bytes: 0, ..Environment::real(root()) };
        let memory = Memory::open_on(Arc::new(faulty.clone()), OpenMode::Create, None, environment).unwrap();
        memory.stop_maintenance();
        let main = memory.root("main").unwrap();
        memory.commit(&root(), main, vec![put("a", "text")]).unwrap();
        memory.sync().unwrap();
        // Flushed when the new file has come.
        memory.commit(&root(), main, vec![put("b", "text")]).unwrap();
        faulty.plan(Fault::once(nth, kinds, libc::EIO));
        if memory.seal().is_ok() {
            return [ended, goes_on];
        }
        if memory.is_read_only() {
            ended += 1;
            continue;
        }
        goes_on += 1;
        memory.commit(&root(), main, vec![put("c", "text")]).unwrap();
        memory.seal().unwrap();
        let written = head(&memory, main);
        let found = open(&faulty.inner().power_cut_keep_nothing(), &root(), OpenMode::Existing).unwrap();
        assert_eq!(head(&found, main), written, "{kinds:?}, flush {nth}");
    }
    unreachable!("a seal ends")
}

#[test]
fn a_damaged_pack_is_left_out_of_the_usage_of_files() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk, &root(), OpenMode::Create).unwrap();
    let main = memory.root("main").unwrap();
    for (name, byte) in [("one", b'1'), ("two", b'2')] {
        write_file(&memory, main, name, vec![byte; 200 << 10]);
        memory.seal().unwrap();
    }
    let packs =
        |memory: &Memory| memory.file_usage(&memory.catalog_now()).unwrap().iter().filter(|file| file.is_pack).count();
    assert_eq!(packs(&memory), 2);
    memory.close().unwrap();
    drop(memory);
    let (path, length, _) = find_bytes(&disk, &[b'1'; 1 << 10]);
    disk.flip(&path, length - 40, 1).unwrap();
    let memory = open(&disk, &root(), OpenMode::Existing).unwrap();
    assert_eq!(packs(&memory), 1);
}

/// A thread may come to its seal only after the store was closed, and another opening then has the same files.
#[test]
fn a_seal_after_close_changes_nothing_on_the_disk() {
    let disk = FaultyDisk::new(ForgetfulDisk::new());
    let environment = Environment { reserve_bytes: 0, ..Environment::real(root()) };
    let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap();
    memory.close().unwrap();
    disk.plan(Fault::once(0, &[DiskCall::Create, DiskCall::Write, DiskCall::Rename, DiskCall::Remove], libc::EIO));
    assert_eq!(memory.seal().unwrap_err().kind(), Kind::ReadOnly);
    assert_eq!(disk.calls(), 0);
}
