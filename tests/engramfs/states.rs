//! States of a branch that are named by a label, an entry or a time.

use std::sync::Arc;

use engramfs::branch::{StateFile, WrittenStates};
use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{BranchId, Error, Kind, Memory, MergeVerb, Revision, Setting, View};
use engramfs::object::{BlobStore, Time};
use engramfs::segment::ContainerWriter;
use serde_json::Value;

use crate::support::{delete, main_of, open, put, texts, verify, who};

fn entry(memory: &Memory, branch: BranchId, at: usize) -> Value {
    let lines = memory.lineage_lines(branch, false).unwrap();
    serde_json::from_str(&lines[at]).unwrap()
}

fn newest(memory: &Memory, branch: BranchId) -> Value {
    entry(memory, branch, memory.lineage_lines(branch, false).unwrap().len() - 1)
}

fn code(result: Result<impl Sized, Error>) -> (&'static str, Kind) {
    let error = result.map(drop).unwrap_err();
    (error.code(), error.kind())
}

fn write(memory: &Memory, branch: BranchId, text: &str) -> Value {
    memory.commit(&who(), branch, vec![put("a", None, Some(text))]).unwrap();
    newest(memory, branch)
}

fn text_of(memory: &Memory, branch: BranchId) -> String {
    texts(memory, &View::Branch(branch)).into_iter().map(|(_, text)| text).collect()
}

fn made(name: &str, disk: &ForgetfulDisk) -> (Arc<Memory>, BranchId) {
    let memory = open(disk).unwrap();
    let branch = memory.fork(&who(), main_of(&memory), name, None).unwrap();
    (memory, branch)
}

#[test]
fn a_checkpoint_is_found_by_its_label_its_entry_and_its_time() {
    let disk = ForgetfulDisk::new();
    let (memory, x) = made("x", &disk);
    write(&memory, x, "one");
    memory.checkpoint(&who(), x, "v1", None).unwrap();
    let taken = newest(&memory, x);
    write(&memory, x, "two");
    let seq = taken["seq"].to_string();
    let names = ["v1", &seq, taken["entry"].as_str().unwrap(), taken["time"].as_str().unwrap()];
    for (at, name) in names.into_iter().enumerate() {
        let fork = memory.fork(&who(), x, &format!("fork-{at}"), Some(name)).unwrap();
        assert_eq!(text_of(&memory, fork), "one", "{name}");
        memory.rollback(&who(), x, name).unwrap();
        assert_eq!(text_of(&memory, x), "one", "{name}");
        write(&memory, x, "two");
    }
    let found = memory.find_state(x, &Revision::parse(&seq).unwrap()).unwrap().to_json();
    assert_eq!((&found["checkpoint"], &found["entry"]), (&Value::from("v1"), &taken["seq"]));
    memory.close().unwrap();
    verify(&disk).unwrap();
}

#[test]
fn a_kept_state_is_found_by_its_entry_also_after_a_crash_and_a_reopening() {
    let disk = ForgetfulDisk::new();
    let (memory, x) = made("x", &disk);
    memory.checkpoint(&who(), x, "v0", None).unwrap();
    let kept = write(&memory, x, "kept");
    memory.rollback(&who(), x, "v0").unwrap();
    write(&memory, x, "later");
    let seq = kept["seq"].to_string();
    let receipt = memory.rollback(&who(), x, &seq).unwrap();
    assert_eq!(
        (text_of(&memory, x).as_str(), receipt.head.to_string()),
        ("kept", kept["head"].as_str().unwrap().into())
    );
    let fork = memory.fork(&who(), x, "again", Some(&format!("@{seq}"))).unwrap();
    let tip = memory.tip();
    memory.sync().unwrap();
    drop(memory);
    // The log is replayed: it names the states by their entries.
    let memory = open(&disk.power_cut_keep_all()).unwrap();
    assert_eq!((memory.tip(), text_of(&memory, x).as_str(), text_of(&memory, fork).as_str()), (tip, "kept", "kept"));
    memory.close().unwrap();
}

#[test]
fn a_rollback_to_an_entry_sets_the_base_back_to_what_it_was_then() {
    let disk = ForgetfulDisk::new();
    let (memory, x) = made("x", &disk);
    let main = main_of(&memory);
    write(&memory, x, "mine");
    memory.checkpoint(&who(), x, "before", None).unwrap();
    let before = newest(&memory, x);
    memory.commit(&who(), main, vec![put("b", None, Some("of the parent"))]).unwrap();
    memory.merge(&who(), x, MergeVerb::Pull, false).unwrap();
    memory.rollback(&who(), x, &before["seq"].to_string()).unwrap();
    memory.merge(&who(), x, MergeVerb::Merge, false).unwrap();
    assert_eq!(text_of(&memory, main), "mineof the parent");
}

#[test]
fn what_was_never_there_is_told_from_what_is_not_kept() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let early = write(&memory, main, "early");
    let x = memory.fork(&who(), main, "x", None).unwrap();
    memory.set(&who(), x, Setting::Keep, "0s").unwrap();
    let dropped = write(&memory, x, "dropped");
    write(&memory, x, "present");
    let other = memory.fork(&who(), main, "other", None).unwrap();
    let elsewhere = write(&memory, other, "elsewhere");
    let rollback = |name: &str| code(memory.rollback(&who(), x, name));
    let never = ("no_such_state", Kind::NotFound);
    for name in [
        &early["seq"].to_string(),
        early["entry"].as_str().unwrap(),
        early["time"].as_str().unwrap(),
        &elsewhere["seq"].to_string(),
        "99999",
        "2999-01-01T00:00:00Z",
        "-9000d",
        &"0".repeat(64),
    ] {
        assert_eq!(rollback(name), never, "{name}");
    }
    assert_eq!(rollback(&dropped["seq"].to_string()), ("not_kept", Kind::NotFound));
    assert_eq!(rollback("v9"), ("no_such_checkpoint", Kind::NotFound));
    assert_eq!(rollback("no/name"), ("bad_name", Kind::Invalid));
    assert_eq!(text_of(&memory, x), "present");
}

#[test]
fn a_time_means_the_newest_kept_state_at_or_before_it() {
    let disk = ForgetfulDisk::new();
    let (memory, x) = made("x", &disk);
    memory.set(&who(), x, Setting::Keep, "0s").unwrap();
    write(&memory, x, "one");
    memory.checkpoint(&who(), x, "v1", None).unwrap();
    let dropped = write(&memory, x, "dropped");
    write(&memory, x, "present");
    let found = memory.find_state(x, &Revision::parse(dropped["time"].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!(found.to_json()["checkpoint"], "v1");
    memory.commit(&who(), x, vec![delete("a")]).unwrap();
    memory.rollback(&who(), x, "-0m").unwrap();
    assert_eq!(text_of(&memory, x), "", "now is the present state");
}

#[test]
fn labels_that_read_as_something_else_are_refused() {
    let disk = ForgetfulDisk::new();
    let (memory, x) = made("x", &disk);
    for label in ["12", "-10m", "-30s", "@v1", "2026-01-01T00:00:00Z", &"ab".repeat(32)] {
        assert_eq!(code(memory.checkpoint(&who(), x, label, None)), ("bad_name", Kind::Invalid), "{label}");
    }
    memory.checkpoint(&who(), x, "v12", None).unwrap();
}

/// States of one branch are looked for by halves.
#[test]
fn a_file_of_states_that_are_not_in_order_is_damage() {
    let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), "segments").unwrap();
    let row = |entry: u64| [1, entry, 0, 0, 0].map(u64::to_le_bytes).concat();
    for (entries, is_whole) in [([1, 2], true), ([2, 1], false), ([1, 1], false)] {
        let mut out = ContainerWriter::new(&blobs).unwrap();
        for section in [Vec::new(), Vec::new(), entries.map(row).concat()] {
            out.begin().unwrap();
            out.write(&section).unwrap();
        }
        let name = out.finish(0x7C, &[]).unwrap();
        let written = WrittenStates { name, held: Arc::default(), full_states: Vec::new() };
        assert_eq!(StateFile::open(&blobs, written).unwrap().infos().is_ok(), is_whole, "{entries:?}");
    }
}

#[test]
fn the_newest_state_at_a_time_is_never_one_of_another_branch() {
    let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), "segments").unwrap();
    let row = |[branch, entry, time]: [u64; 3]| [branch, entry, time, 0, 0].map(u64::to_le_bytes).concat();
    let mut out = ContainerWriter::new(&blobs).unwrap();
    for section in [Vec::new(), Vec::new(), [[1, 1, 10], [1, 2, 20], [2, 3, 15]].map(row).concat()] {
        out.begin().unwrap();
        out.write(&section).unwrap();
    }
    let name = out.finish(0x7C, &[]).unwrap();
    let states =
        StateFile::open(&blobs, WrittenStates { name, held: Arc::default(), full_states: Vec::new() }).unwrap();
    let newest = |branch, time| states.newest_at(branch, Time(time)).unwrap().map(|info| info.key.1);
    assert_eq!([(1, 30), (2, 30), (3, 30)].map(|(branch, time)| newest(branch, time)), [Some(2), Some(3), None]);
    assert_eq!([9, 10, 19, 20].map(|time| newest(1, time)), [None, Some(1), Some(1), Some(2)]);
}

/// The entry of a promote gives both branches their state.
#[test]
fn a_state_behind_a_promote_is_found_by_its_entry_and_its_time_in_both_branches() {
    let (memory, x) = made("x", &ForgetfulDisk::new());
    memory.commit(&who(), main_of(&memory), vec![put("of main", None, Some("and more"))]).unwrap();
    write(&memory, x, "promoted");
    memory.merge(&who(), x, MergeVerb::Promote, false).unwrap();
    let promote = newest(&memory, x);
    assert_eq!(promote["op"], "promote");
    for branch in [x, main_of(&memory)] {
        for name in [promote["seq"].to_string(), promote["time"].as_str().unwrap().to_owned()] {
            write(&memory, branch, "later");
            memory.rollback(&who(), branch, &name).unwrap();
            assert_eq!(text_of(&memory, branch), "promotedand more", "{name}");
        }
    }
}

/// Both sides decide by time: the later of a change of the child and the delete that a rollback of the parent is.
#[test]
fn what_a_rollback_removes_counts_as_deleted_at_its_time() {
    for child_is_later in [false, true] {
        let memory = open(&ForgetfulDisk::new()).unwrap();
        let main = main_of(&memory);
        memory.checkpoint(&who(), main, "v1", None).unwrap();
        write(&memory, main, "base");
        let x = memory.fork(&who(), main, "x", None).unwrap();
        if child_is_later {
            memory.rollback(&who(), main, "v1").unwrap();
        }
        write(&memory, x, "of the child");
        if !child_is_later {
            memory.rollback(&who(), main, "v1").unwrap();
        }
        memory.merge(&who(), x, MergeVerb::Merge, false).unwrap();
        assert_eq!(text_of(&memory, main), if child_is_later { "of the child" } else { "" });
    }
}
