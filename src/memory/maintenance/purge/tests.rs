//! What a purge leaves on the disk, also where other work comes between its steps.

use super::*;
use crate::disk::{Disk, ForgetfulDisk};
use crate::memory::{
    Environment, FILES_ROOT, FileName, FileOp, Kind, MergeVerb, NewInode, OpenMode, RecordEdit, RecordInput, Revision,
    Setting, VerifyOptions, verify_on,
};

fn open(disk: &ForgetfulDisk) -> Arc<Memory> {
    let environment = Environment { graph_rows: u32::MAX, reserve_bytes: 0, ..Environment::real(who()) };
    Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap()
}

fn who() -> Actor {
    Actor { uid: 0, gid: 0, name: "root".into() }
}

fn write(memory: &Memory, branch: BranchId, bytes: &str) {
    let name = FileName::new(b"dump.jsonl").unwrap();
    let make = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
    let there = memory.files(&crate::memory::View::Branch(branch)).unwrap().resolve(b"dump.jsonl");
    let inode = there.unwrap_or_else(|_| memory.edit(&who(), branch, make).unwrap().inode);
    memory.edit(&who(), branch, FileOp::Write { inode, offset: 0, bytes: bytes.as_bytes().into() }).unwrap();
}

/// The store dies before the purge is finished, and what was noted before its entry is not all.
#[test]
fn what_was_sealed_and_merged_between_the_note_and_the_entry_goes_too() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    let main = memory.root("main").unwrap();
    let input = RecordInput { vector: None, text: Some("hunter2".into()), metadata: "{}".into() };
    memory.commit(&who(), main, vec![RecordEdit::Put { id: "leak".into(), input }]).unwrap();
    write(&memory, main, "{\"event_id\":1,\"v\":0}\n");
    let child = memory.fork(&who(), main, "child", None).unwrap();
    write(&memory, child, "{\"event_id\":1,\"v\":\"hunter2\"}\n");
    write(&memory, main, "{\"event_id\":1,\"v\":\"other\"}\n");
    memory.commit_all_pending().unwrap();
    let items = ["leak", "files/dump.jsonl"].map(Arc::from);
    let (mut search, catalog) = (PurgeSearch::new(items.into(), false), memory.catalog().clone());
    search.scan_catalog(&memory, &catalog, main).unwrap();
    let mut purge = PurgePlan::new(main, Arc::new(search.selection()), memory.planned_time());
    let mark = search.mark(&memory, &purge.find_affected(&catalog).unwrap().versions).unwrap();
    assert_eq!((mark.segments.len(), mark.quotes.len()), (0, 0));
    mark.save(&disk).unwrap();
    memory.seal().unwrap();
    memory.merge(&who(), child, MergeVerb::Promote, false).unwrap();
    memory.commit_purge(&who(), &mut purge, &mut PurgeReport::default()).unwrap();
    memory.sync().unwrap();
    let disk = disk.power_cut_keep_nothing();
    drop(memory);
    let holds = |path: &str| disk.bytes(path).unwrap().windows(7).any(|window| window == b"hunter2");
    assert!(disk.files().iter().any(|(path, _)| holds(path)), "a control");
    let memory = open(&disk);
    let left: Vec<String> = disk.files().into_iter().map(|(path, _)| path).filter(|path| holds(path)).collect();
    assert_eq!(left, [""; 0]);
    memory.close().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    verify_on(&disk, &VerifyOptions::default()).unwrap();
}

/// Makes the entry of a purge of one item, which is not finished after that.
fn leave_purge_unfinished(memory: &Memory, disk: &ForgetfulDisk, main: BranchId, item: &str) {
    memory.commit_all_pending().unwrap();
    let (mut search, catalog) = (PurgeSearch::new([item.into()].into(), false), memory.catalog().clone());
    search.scan_catalog(memory, &catalog, main).unwrap();
    let mut purge = PurgePlan::new(main, Arc::new(search.selection()), memory.planned_time());
    search.mark(memory, &purge.find_affected(&catalog).unwrap().versions).unwrap().save(disk).unwrap();
    memory.commit_purge(&who(), &mut purge, &mut PurgeReport::default()).unwrap();
}

fn holds_secret(disk: &ForgetfulDisk) -> bool {
    disk.files().iter().any(|(path, _)| disk.bytes(path).unwrap().windows(7).any(|window| window == b"hunter2"))
}

/// What comes after the search is looked through once the purge has its entry, so the search has to read up to there.
#[test]
fn the_lines_that_the_newest_entry_quotes_go() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    memory.stop_maintenance();
    let main = memory.root("main").unwrap();
    write(&memory, main, "{\"event_id\":1,\"v\":0}\n");
    let child = memory.fork(&who(), main, "child", None).unwrap();
    write(&memory, child, "{\"event_id\":1,\"v\":\"hunter2\"}\n");
    write(&memory, main, "{\"event_id\":1,\"v\":\"other\"}\n");
    memory.merge(&who(), child, MergeVerb::Promote, false).unwrap();
    let quotes = |line: &String| line.contains("hunter2");
    assert!(memory.lineage_lines(main, false).unwrap().last().is_some_and(quotes), "a control");
    memory.purge(&who(), main, &["files/dump.jsonl".into()], PurgeOptions::default()).unwrap();
    assert!(!memory.lineage_lines(main, false).unwrap().iter().any(quotes));
    assert!(!holds_secret(&disk));
}

#[test]
fn gc_finishes_a_purge_that_is_left_over_or_says_that_it_could_not() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    memory.stop_maintenance();
    let main = memory.root("main").unwrap();
    write(&memory, main, "hunter2");
    leave_purge_unfinished(&memory, &disk, main, "files/dump.jsonl");
    let is_left = || memory.gc(&who(), None, false).unwrap()["purge_unfinished"].clone();
    let running = PurgeGuard::begin(&memory.maintenance.purge.is_running).unwrap();
    assert_eq!(is_left(), true);
    drop(running);
    assert_eq!(is_left(), false);
    assert!(!holds_secret(&disk));
}

/// An opening has no file that a handle alone held, and makes the entry of the purge again.
#[test]
fn a_purge_of_a_file_that_was_deleted_while_open_is_no_damage_for_an_opening() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    memory.stop_maintenance();
    let main = memory.root("main").unwrap();
    write(&memory, main, "hunter2");
    memory.commit_all_pending().unwrap();
    let name = FileName::new(b"dump.jsonl").unwrap();
    memory.edit(&who(), main, FileOp::Unlink { parent: FILES_ROOT, name, keep: true }).unwrap();
    memory.seal().unwrap();
    assert_eq!(memory.catalog().branch(main).unwrap().state.files().orphans().count(), 1, "a control");
    leave_purge_unfinished(&memory, &disk, main, "files/dump.jsonl");
    memory.sync().unwrap();
    let disk = disk.power_cut_keep_nothing();
    open(&disk).close().unwrap();
    assert!(!holds_secret(&disk));
}

/// A process lets go of states that an opening still has from the journal, and makes the entry of the purge again.
#[test]
fn a_purge_after_states_were_thinned_is_no_damage_for_an_opening() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    memory.stop_maintenance();
    let main = memory.root("main").unwrap();
    memory.set(&who(), main, Setting::KeepEvery, "1h").unwrap();
    for number in 0..2_100 {
        let input = RecordInput { vector: None, text: Some(format!("hunter2 {number}").into()), metadata: "{}".into() };
        memory.commit(&who(), main, vec![RecordEdit::Put { id: "a".into(), input }]).unwrap();
    }
    assert!(memory.catalog().retained.recent.len() < 2_000, "a control");
    leave_purge_unfinished(&memory, &disk, main, "a");
    memory.sync().unwrap();
    let disk = disk.power_cut_keep_nothing();
    open(&disk).close().unwrap();
    assert!(!holds_secret(&disk));
}

/// What is left of it is looked up by its entry.
#[test]
fn the_entry_of_a_purge_moves_out_of_the_lineage_once_that_is_finished() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    memory.stop_maintenance();
    let main = memory.root("main").unwrap();
    let input = RecordInput { vector: None, text: Some("hunter2".into()), metadata: "{}".into() };
    memory.commit(&who(), main, vec![RecordEdit::Put { id: "leak".into(), input }]).unwrap();
    leave_purge_unfinished(&memory, &disk, main, "leak");
    let later = Revision::parse("2200-01-01T00:00:00Z").unwrap();
    let running = PurgeGuard::begin(&memory.maintenance.purge.is_running).unwrap();
    assert_eq!(memory.archive_lineage(&who(), &later, false).unwrap_err().code(), "purge_running");
    drop(running);
    memory.archive_lineage(&who(), &later, false).unwrap();
    assert!(UnfinishedPurge::read(&disk).unwrap().is_none() && !holds_secret(&disk));
    let purged = memory.purge(&who(), main, &["leak".into()], PurgeOptions::default());
    assert_eq!(purged.unwrap_err().code(), "nothing_to_purge");
    memory.close().unwrap();
}

#[test]
fn one_purge_runs_at_a_time() {
    let memory = open(&ForgetfulDisk::new());
    let main = memory.root("main").unwrap();
    let refusal = || {
        let error = memory.purge(&who(), main, &["none".into()], PurgeOptions::default()).unwrap_err();
        (error.kind(), error.code())
    };
    let running = PurgeGuard::begin(&memory.maintenance.purge.is_running).unwrap();
    assert_eq!(refusal(), (crate::memory::Kind::Busy, "purge_running"));
    drop(running);
    assert_eq!(refusal(), (crate::memory::Kind::NotFound, "nothing_to_purge"));
}

/// It reads every state that is kept, and any owner of a branch may ask for it.
#[test]
fn one_dry_run_is_worked_out_at_a_time() {
    let memory = open(&ForgetfulDisk::new());
    let main = memory.root("main").unwrap();
    let dry_run = || {
        let options = PurgeOptions { dry_run: true, with_copies: false };
        memory.purge(&who(), main, &["none".into()], options).unwrap_err().code()
    };
    assert_eq!(dry_run(), "nothing_to_purge");
    let tried = PurgeGuard::begin(&memory.maintenance.purge.is_dry_running).unwrap();
    assert_eq!(dry_run(), "purge_running");
    drop(tried);
    assert_eq!(dry_run(), "nothing_to_purge");
}

/// The history is looked through without a lock, and a seal that compacts may come meanwhile.
#[test]
fn states_that_a_compaction_moved_during_a_purge_stay_as_it_moved_them() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    let main = memory.root("main").unwrap();
    let put = |id: &str, text: String| {
        let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
        memory.commit(&who(), main, vec![RecordEdit::Put { id: id.into(), input }]).unwrap();
    };
    memory.set(&who(), main, Setting::KeepEvery, "0s").unwrap();
    put("b", "stays".into());
    memory.seal().unwrap();
    // So many that the next seal does not write the file of these states again.
    (0..20).for_each(|number| put("a", format!("hunter2 {number}")));
    memory.seal().unwrap();
    // The present state has no row of the first segment any longer, so nothing but the file of states leads to it.
    put("b", "newer".into());
    let (mut search, catalog) = (PurgeSearch::new(["a".into()].into(), false), memory.catalog().clone());
    search.scan_catalog(&memory, &catalog, main).unwrap();
    let mut purge = PurgePlan::new(main, Arc::new(search.selection()), memory.planned_time());
    let mark = search.mark(&memory, &purge.find_affected(&catalog).unwrap().versions).unwrap();
    drop(catalog);
    let segments = memory.storage.segments.list().iter().map(|segment| segment.name()).collect();
    let rewrite_set = RewriteSet { segments, ..RewriteSet::default() };
    memory.seal_and_compact(&Compaction::Rewrite(Arc::new(rewrite_set))).unwrap();
    mark.save(&disk).unwrap();
    memory.commit_purge(&who(), &mut purge, &mut PurgeReport::default()).unwrap();
    memory.finish_purge(&mut memory.storage.manifest.lock()).unwrap();
    memory.close().unwrap();
    drop(memory);
    let memory = open(&disk);
    assert!(memory.catalog().branch(main).unwrap().state.find("b").unwrap().is_some());
    memory.close().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    verify_on(&disk, &VerifyOptions::default()).unwrap();
}

/// In another root branch the owner of `main` was named alone, who may purge no signals there, and not its own owner.
#[test]
fn who_may_not_purge_is_told_who_may() {
    let memory = open(&ForgetfulDisk::new());
    let [ann, bob] = [(1001, "ann"), (1002, "bob")].map(|(uid, name)| Actor { uid, gid: uid, name: name.into() });
    let notes = memory.create_root(&ann, "notes").unwrap();
    let fork = memory.fork(&bob, notes, "bobs", None).unwrap();
    let input = RecordInput { vector: None, text: Some("hunter2".into()), metadata: "{}".into() };
    memory.commit(&ann, notes, vec![RecordEdit::Put { id: "leak".into(), input }]).unwrap();
    memory.claim_signal(&ann, notes, &"tea".into(), 0o644).unwrap();
    let purge =
        |who: &Actor, branch, item: &str| memory.purge(who, branch, &[item.to_owned()], PurgeOptions::default());
    for (branch, item, who_may, of_main) in
        [(notes, "leak", "owns all of these", true), (fork, "shared/signals/tea", "of that branch", false)]
    {
        let refused = purge(&bob, branch, item).unwrap_err();
        assert!(refused.hint().contains(who_may) && refused.hint().contains("main") == of_main, "{}", refused.hint());
        assert_eq!((refused.code(), refused.kind()), ("not_owner", Kind::Denied));
        assert!(refused.to_string().contains("notes"), "{refused}");
        purge(&ann, notes, item).unwrap();
    }
}
