//! When operations on files become an entry.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{Actor, Attrs, FileOp, HistoryFile, Memory, MergeVerb, Setting, Side};
use serde_json::Value;

use super::{folders, try_write, write};
use crate::support::{main_of, open, put, who};

/// Operation and uid of the entries of files, settings and merges of the root branch; of equal ones in a row the first, since
/// what takes more than a second has several.
fn entries(memory: &Memory) -> Vec<(String, u64)> {
    let lines = memory.lineage_lines(main_of(memory), false).unwrap();
    let entry = |line: &String| {
        let entry: Value = serde_json::from_str(line).unwrap();
        (entry["op"].as_str().unwrap().to_owned(), entry["uid"].as_u64().unwrap())
    };
    let mut found: Vec<_> = lines.iter().map(entry).collect();
    found.retain(|(op, _)| ["files", "config", "merge"].contains(&op.as_str()));
    found.dedup();
    found
}

#[test]
fn operations_on_files_get_an_entry_before_a_command_another_uid_and_the_close() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let bob = Actor { uid: 1001, gid: 1001, name: "bob".into() };
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.commit(&who(), child, vec![put("r", None, Some("text"))]).unwrap();
    let all = [("files", 1000), ("config", 1000), ("files", 1000), ("files", 1001), ("files", 1000), ("merge", 1000)];
    let mut expected: Vec<_> = all.map(|(op, uid)| (op.to_owned(), uid)).into();
    write(&memory, main, "a", "before a command");
    memory.set(&who(), main, Setting::Task, "tidy").unwrap();
    assert_eq!(entries(&memory), expected[..2]);
    write(&memory, main, "b", "before another uid");
    try_write(&memory, &bob, main, "c", "by that").unwrap();
    assert_eq!(entries(&memory)[..3], expected[..3]);
    write(&memory, main, "d", "before a merge into the branch");
    memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
    assert_eq!(entries(&memory), expected);
    try_write(&memory, &bob, main, "e", "before the close").unwrap();
    memory.close().unwrap();
    drop(memory);
    expected.push(("files".to_owned(), 1001));
    assert_eq!(entries(&open(&disk).unwrap()), expected);
}

#[test]
fn operations_on_files_get_an_entry_by_themselves_within_seconds() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let began = Instant::now();
    write(&memory, main_of(&memory), "a", "nothing follows");
    while entries(&memory).is_empty() {
        // The page says a second or two; more is for slow machines. Rounds of the idle store, which commit, too, come after 15 s.
        assert!(began.elapsed() < Duration::from_secs(12), "there is no entry yet");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Without the entry of the other branch, what is brought together would not be what its lineage says.
#[test]
fn what_brings_two_branches_together_commits_the_files_of_both_first() {
    for merge in [Some(MergeVerb::Merge), Some(MergeVerb::Promote), Some(MergeVerb::Pull), None] {
        let memory = open(&ForgetfulDisk::new()).unwrap();
        let main = main_of(&memory);
        let child = memory.fork(&who(), main, "child", None).unwrap();
        for (branch, text) in [(main, "parent"), (child, "child")] {
            memory.commit(&who(), branch, vec![put("r", None, Some(text))]).unwrap();
            write(&memory, branch, text, "pending");
        }
        match merge {
            Some(merge) => drop(memory.merge(&who(), child, merge, false).unwrap()),
            None => assert_eq!(memory.resolve_conflict(&who(), child, "r", Side::Child).unwrap(), None),
        }
        let lines = memory.lineage_lines(main, true).unwrap();
        let all: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let committed: BTreeSet<&str> =
            all.iter().filter(|entry| entry["op"] == "files").map(|entry| entry["branch"].as_str().unwrap()).collect();
        assert_eq!(committed, BTreeSet::from(["main", "main/child"]), "{merge:?}");
        assert_ne!(all.last().unwrap()["op"], "files", "{merge:?}: its own entry is the last");
    }
}

/// All who may enter the branch read its events; what folders hold that are closed to some is only counted there.
#[test]
fn events_name_no_file_that_not_everybody_could_list() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let inode = folders(&memory, main, "shut");
    let attrs = Attrs { mode: Some(0o700), ..Attrs::default() };
    memory.edit(&who(), main, FileOp::SetAttr { inode, attrs }).unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for (branch, names) in [(main, ["shut/acme", "open"]), (fork, ["shut/globex", "shown"])] {
        names.iter().for_each(|name| write(&memory, branch, name, "text"));
    }
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    let history = (main, HistoryFile::Events, memory.last_seq());
    let events = String::from_utf8(memory.read_history(history, 0, 1 << 20, &|_, _| true).unwrap()).unwrap();
    assert!(["files/shut\"", "files/open", "files/shown"].iter().all(|name| events.contains(name)), "{events}");
    assert!(["acme", "globex"].iter().all(|name| !events.contains(name)), "{events}");
    let merge: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&merge["event"], &merge["files"]), (&"merge".into(), &2.into()));
}
