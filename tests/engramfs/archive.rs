//! Old entries that move out of a store, and what is checked of them.

use std::sync::Arc;

use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::memory::{
    Environment, Error, Memory, MergeOptions, MergeVerb, OpenMode, PurgeOptions, RevertVerb, Revision, Setting,
    ShowTarget, VerifyOptions, View, Viewer, verify_on,
};
use serde_json::{Value, json};

use crate::files::write;
use crate::support::{environment, main_of, open, open_on, put, texts, verify, who};

/// A store with forks, merges and discards; returns the time of its newest entry.
fn fill(memory: &Memory) -> Revision {
    let main = main_of(memory);
    for round in 0..5 {
        let child = memory.fork(&who(), main, &format!("x{round}"), None).unwrap();
        memory.commit(&who(), child, vec![put(&format!("r{round}"), None, Some("text"))]).unwrap();
        match round % 2 {
            0 => drop(memory.merge(&who(), child, MergeVerb::Merge, false).unwrap()),
            _ => memory.discard(&who(), child).unwrap(),
        }
    }
    newest(memory)
}

/// Returns the time of the newest entry of `main`.
fn newest(memory: &Memory) -> Revision {
    let line = memory.lineage_lines(main_of(memory), false).unwrap().pop().unwrap();
    Revision::parse(serde_json::from_str::<Value>(&line).unwrap()["time"].as_str().unwrap()).unwrap()
}

/// Makes some entries more; returns the time of the last.
fn write_on(memory: &Memory, entries: usize) -> Revision {
    for n in 0..entries {
        memory.commit(&who(), main_of(memory), vec![put("again", None, Some(&n.to_string()))]).unwrap();
    }
    newest(memory)
}

fn archive(memory: &Memory, before: &Revision) -> Value {
    memory.archive_lineage(&who(), before, false).unwrap()
}

fn expecting(disk: &ForgetfulDisk, tip: &str) -> Result<Value, Error> {
    let options = VerifyOptions { expect_tip: Some(tip.parse().unwrap()), ..VerifyOptions::default() };
    verify_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &options)
}

fn files(disk: &ForgetfulDisk) -> Vec<String> {
    disk.files().into_iter().map(|(path, _)| path).filter(|path| path.starts_with("archive/")).collect()
}

#[test]
fn entries_move_to_a_file_and_the_chain_is_checked_with_it_and_without() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let before = fill(&memory);
    let tip = memory.tip().to_string();
    let would = memory.archive_lineage(&who(), &before, true).unwrap();
    assert_eq!((files(&disk).len(), &would["dry_run"]), (0, &json!(true)));
    let report = archive(&memory, &before);
    assert_eq!((&report["entries"], &report["last"]), (&would["entries"], &would["last"]));
    assert_eq!(files(&disk), [report["file"].as_str().unwrap()]);
    let line = memory.lineage_lines(main_of(&memory), false).unwrap();
    assert_eq!(line.len(), 1, "the newest entry is not before its own time");
    let gone = memory.show(main_of(&memory), ShowTarget::Entry(2), Viewer::UNRESTRICTED).unwrap_err();
    assert_eq!((gone.code(), gone.kind()), ("archived", engramfs::memory::Kind::NotFound));
    let kept = memory.find_state(main_of(&memory), &Revision::parse("2").unwrap()).unwrap();
    assert_eq!(kept.to_json()["entry"], 2, "states stay");
    assert_eq!(archive(&memory, &before)["entries"], 0, "nothing is left to move");
    memory.close().unwrap();
    drop(memory);

    let checked = expecting(&disk, &tip).unwrap();
    assert_eq!((&checked["archived"], &checked["archived_missing"]), (&report["entries"], &json!([])));
    expecting(&disk, report["tip"].as_str().unwrap()).unwrap();
    let path = &files(&disk)[0];
    let bytes = disk.bytes(path).unwrap();
    let mut wrong = bytes.clone();
    wrong[200] ^= 1;
    disk.open_write(path).unwrap().write_all_at(&wrong, 0).unwrap();
    verify(&disk).unwrap_err();
    disk.open_write(path).unwrap().write_all_at(&bytes, 0).unwrap();
    disk.remove(path).unwrap();
    let checked = verify(&disk).unwrap();
    assert_eq!((&checked["archived"], &checked["archived_missing"]), (&json!(0), &json!([[1, report["last"]]])));
    let missing = expecting(&disk, report["tip"].as_str().unwrap()).unwrap_err().to_string();
    assert!(missing.contains("put the missing ones back"), "{missing}");
}

#[test]
fn a_second_file_follows_the_first_and_a_file_of_another_store_does_not() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let first = archive(&memory, &fill(&memory));
    let second = archive(&memory, &write_on(&memory, 5));
    assert_eq!(second["first"], first["last"].as_u64().unwrap() + 1);
    memory.close().unwrap();
    drop(memory);
    assert_eq!(verify(&disk).unwrap()["archived"], second["last"]);
    let name = |report: &Value| report["file"].as_str().unwrap().to_owned();
    let last = disk.bytes(&name(&second)).unwrap();
    disk.remove(&name(&first)).unwrap();
    assert_eq!(verify(&disk).unwrap()["archived_missing"], json!([[1, first["last"]]]));

    let other = ForgetfulDisk::new();
    let environment = Environment { entropy: Box::new(|bytes| bytes.fill(8)), ..environment() };
    let memory = Memory::open_on(Arc::new(other.clone()), OpenMode::Create, None, environment).unwrap();
    archive(&memory, &write_on(&memory, 40));
    let mine = files(&other)[0].clone();
    other.remove(&mine).unwrap();
    other.create(&name(&second)).unwrap().write_all_at(&last, 0).unwrap();
    memory.close().unwrap();
    drop(memory);
    verify(&other).unwrap_err();
}

/// Moves all entries of so far out, but for one of a setting.
fn archive_all(memory: &Memory) {
    memory.set(&who(), main_of(memory), Setting::Task, "behind what moves").unwrap();
    archive(memory, &newest(memory));
}

fn of_entry(seq: u64) -> Revision {
    Revision::parse(&seq.to_string()).unwrap()
}

#[test]
fn a_kept_state_of_an_entry_that_moved_is_found_and_the_first_change_behind_it_taken_back() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let texts = || texts(&memory, &View::Branch(main)).into_iter().map(|(id, text)| id + &text).collect::<Vec<_>>();
    memory.commit(&who(), main, vec![put("a", None, Some("1"))]).unwrap();
    memory.commit(&who(), main, vec![put("b", None, Some("1"))]).unwrap();
    let moved = memory.last_seq();
    archive_all(&memory);
    let setting = moved + 1;
    let wanted = |seq| memory.find_state(main, &of_entry(seq)).unwrap().source;
    assert_eq!(wanted(moved), wanted(setting), "while nothing has changed");
    memory.commit(&who(), main, vec![put("b", None, Some("2"))]).unwrap();
    let first = memory.last_seq();
    memory.commit(&who(), main, vec![put("c", None, Some("1"))]).unwrap();
    assert_eq!(wanted(moved), wanted(setting));
    let shown = memory.show_changes(&who(), main, ShowTarget::Entry(first), Viewer::UNRESTRICTED).unwrap().line;
    assert!(shown.contains("modified"), "{shown}");

    memory.revert(&who(), main, &of_entry(first), MergeOptions::default(), false).unwrap();
    assert_eq!(texts(), ["a1", "b1", "c1"]);
    let undo = |verb| memory.undo(&who(), main, verb, 1, false);
    // The revert, the commit of `c` and the first change, which is not the revert's any more.
    for left in [&["a1", "b2", "c1"][..], &["a1", "b2"], &["a1", "b1"]] {
        undo(RevertVerb::Undo).unwrap();
        assert_eq!(texts(), left);
    }
    assert_eq!(undo(RevertVerb::Undo).unwrap_err().code(), "nothing_to_undo", "whose the others are is not known");
    undo(RevertVerb::Redo).unwrap();
    assert_eq!(texts(), ["a1", "b2"]);
    memory.close().unwrap();
    drop(memory);
    verify(&disk).unwrap();
}

/// Of more changes than the newest 1,000 one a minute is kept, so the newest kept one need not be the one before the first.
#[test]
fn behind_an_archive_no_older_state_passes_for_the_one_before_the_first_change() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("a", None, Some("pinned"))]).unwrap();
    let child = memory.fork(&who(), main, "x", None).unwrap();
    memory.commit(&who(), child, vec![put("b", None, Some("merged"))]).unwrap();
    memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
    archive_all(&memory);
    memory.commit(&who(), main, vec![put("c", None, Some("first"))]).unwrap();
    let first = memory.last_seq();
    write_on(&memory, 999);
    memory.gc(&who(), None, false).unwrap();
    let refused = memory.revert(&who(), main, &of_entry(first), MergeOptions::default(), false).unwrap_err();
    assert_eq!(refused.code(), "not_kept");
    assert!(texts(&memory, &View::Branch(main)).contains(&("b".to_owned(), "merged".to_owned())));
}

#[test]
fn a_damaged_file_of_moved_entries_is_named_and_may_go() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    archive(&memory, &fill(&memory));
    memory.close().unwrap();
    drop(memory);
    let path = files(&disk)[0].clone();
    let whole = disk.bytes(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for bytes in [&whole[..whole.len() - 10], &whole[..0], &flipped[..]] {
        disk.remove(&path).unwrap();
        disk.create(&path).unwrap().write_all_at(bytes, 0).unwrap();
        let error = verify(&disk).unwrap_err();
        assert!(error.to_string().starts_with(&format!("the file {path} of entries that were moved out")), "{error}");
        assert!(error.hint().contains("move this one away") && !error.hint().contains("backup"), "{}", error.hint());
    }
    disk.remove(&path).unwrap();
    verify(&disk).unwrap();
}

/// Moves the entry of a merge that did not keep a line of `a.jsonl` with a secret in it.
fn archive_lost_line(memory: &Memory) {
    let main = main_of(memory);
    let child = memory.fork(&who(), main, "x", None).unwrap();
    write(memory, main, "a.jsonl", "{\"event_id\":1,\"v\":\"hunter2\"}\n");
    write(memory, child, "a.jsonl", "{\"event_id\":1,\"v\":\"other\"}\n");
    memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
    archive(memory, &fill(memory));
}

fn purge_lost_line(memory: &Memory) -> Result<Value, Error> {
    memory.purge(&who(), main_of(memory), &["files/a.jsonl".into()], PurgeOptions::default())
}

/// Tells whether the secret stands in a file that was moved.
fn holds_lost_line(disk: &ForgetfulDisk) -> bool {
    files(disk).iter().any(|path| disk.bytes(path).unwrap().windows(7).any(|part| part == b"hunter2"))
}

#[test]
fn a_purge_takes_lost_lines_out_of_files_that_were_moved() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    archive_lost_line(&memory);
    assert!(holds_lost_line(&disk), "a control");
    purge_lost_line(&memory).unwrap();
    assert!(!holds_lost_line(&disk));
    memory.close().unwrap();
    drop(memory);
    assert_eq!(verify(&disk).unwrap()["archived_missing"], json!([]));
}

#[test]
fn a_purge_succeeds_only_where_it_could_look_for_files_that_were_moved() {
    let mut refused = 0;
    for nth in 1.. {
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        let memory = open_on(Arc::new(faulty.clone())).unwrap();
        archive_lost_line(&memory);
        faulty.plan(Fault::once(nth, &[DiskCall::List], libc::EIO));
        let purged = purge_lost_line(&memory);
        assert!(purged.is_err() || !holds_lost_line(faulty.inner()), "listing {nth} failed");
        refused += usize::from(purged.is_err());
        if faulty.calls() < nth {
            break;
        }
    }
    assert!(refused > 0);
}

/// Cuts the power at every call that changes the disk: no entry is lost, and the next call goes on.
#[test]
fn an_archive_that_is_cut_off_anywhere_loses_no_entry() {
    let (mut absent, mut finished) = (0, 0);
    for nth in 1.. {
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        let memory = open_on(Arc::new(faulty.clone())).unwrap();
        let before = fill(&memory);
        memory.sync().unwrap();
        let (tip, seq) = (memory.tip().to_string(), memory.last_seq());
        let fault = Fault { nth, kinds: DiskCall::CHANGES, errno: libc::EIO, short_write: nth % 2 == 0, sticky: true };
        faulty.plan(fault);
        let done = memory.archive_lineage(&who(), &before, false).is_ok();
        drop(memory);
        for disk in [
            faulty.inner().power_cut(nth),
            faulty.inner().power_cut_keep_nothing(),
            faulty.inner().power_cut_keep_all(),
        ] {
            let memory = open(&disk).unwrap_or_else(|error| panic!("call {nth}: {error}"));
            let has_entry = memory.last_seq() > seq;
            assert!(!done || has_entry, "call {nth}: what was acknowledged is absent");
            memory.close().unwrap();
            drop(memory);
            let checked = expecting(&disk, &tip).unwrap_or_else(|error| panic!("call {nth}: {error}"));
            assert_eq!(checked["archived_missing"], json!([]), "call {nth}");
            let memory = open(&disk).unwrap();
            archive(&memory, &before);
            memory.close().unwrap();
            drop(memory);
            let checked = expecting(&disk, &tip).unwrap_or_else(|error| panic!("call {nth}: {error}"));
            assert_eq!((&checked["archived"], files(&disk).len()), (&json!(seq - 1), 1), "call {nth}");
            (absent, finished) = if has_entry { (absent, finished + 1) } else { (absent + 1, finished) };
        }
        if faulty.calls() < nth {
            break;
        }
    }
    assert!(absent > 5 && finished > 5, "{absent} absent, {finished} finished");
}
