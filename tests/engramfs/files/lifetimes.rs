//! Files and branches that expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Actor, Attrs, Environment, FileOp, ForkOptions, Memory, MergeVerb, OpenMode, Setting, Time, View,
};

use serde_json::Value;

use super::{read, refused, try_write, write};
use crate::support::{environment, main_of, who};

fn with_clock(disk: &ForgetfulDisk, now: &'static AtomicI64) -> Arc<Memory> {
    let around = Environment {
        clock: Box::new(|| Time(now.fetch_add(1_000, Ordering::Relaxed))),
        uptime: Box::new(|| std::time::Duration::from_nanos(now.load(Ordering::Relaxed).cast_unsigned())),
        ..environment()
    };
    Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap()
}

#[test]
fn a_file_goes_when_its_rule_says_so_unless_it_is_open_or_its_rule_has_no_ttl() {
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let memory = with_clock(&ForgetfulDisk::new(), &NOW);
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "episodic/** never ttl=1h\n** text").unwrap();
    for path in ["episodic/old", "episodic/open", "notes/old"] {
        write(&memory, main, path, "x");
    }
    let held = memory.files(&View::Branch(main)).unwrap().resolve(b"episodic/open").unwrap();
    memory.set_open_files(Some(std::sync::Arc::new(move |_| vec![held])));
    memory.gc(&who(), None, false).unwrap();
    assert!(read(&memory, main, "episodic/old").is_some(), "not old yet");
    NOW.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    write(&memory, main, "episodic/young", "x");
    assert_eq!(memory.gc(&who(), None, true).unwrap()["files"], 1);
    assert!(read(&memory, main, "episodic/old").is_some(), "a dry run takes nothing");
    assert_eq!(memory.gc(&who(), None, false).unwrap()["files"], 1);
    let there = |path: &str| read(&memory, main, path).is_some();
    assert!(!there("episodic/old"));
    assert!(there("episodic/open") && there("episodic/young") && there("notes/old"));
    memory.set_open_files(None);
    assert_eq!(memory.gc(&who(), None, false).unwrap()["files"], 1);
    assert!(!there("episodic/open"));
}

/// Where nobody says which files are open, nobody says when the last handle of one is closed, either.
#[test]
fn a_file_that_expires_lives_on_without_a_name_only_where_somebody_tells_of_open_files() {
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let memory = with_clock(&ForgetfulDisk::new(), &NOW);
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "episodic/** never ttl=1h\n** text").unwrap();
    let nameless_after_its_time = |path: &str| {
        write(&memory, main, path, "x");
        NOW.fetch_add(3_600_000_000_000, Ordering::Relaxed);
        assert_eq!(memory.gc(&who(), None, false).unwrap()["files"], 1);
        memory.files(&View::Branch(main)).unwrap().orphans().count()
    };
    assert_eq!(nameless_after_its_time("episodic/first"), 0);
    memory.set_open_files(Some(Arc::new(|_| vec![u64::MAX])));
    assert_eq!(nameless_after_its_time("episodic/second"), 1, "a handle may have been opened meanwhile");
}

#[test]
fn a_file_that_expires_is_deleted_in_the_name_of_the_owner_of_its_branch() {
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let memory = with_clock(&ForgetfulDisk::new(), &NOW);
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "episodic/** text ttl=1h\n** text").unwrap();
    let owner = Actor { uid: 1001, gid: 1001, name: "bob".into() };
    let options = ForkOptions { owner: Some(owner.uid), ..ForkOptions::default() };
    let theirs = memory.fork_with(&who(), main, "theirs", options).unwrap();
    try_write(&memory, &owner, theirs, "episodic/old", "x").unwrap();
    NOW.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    assert_eq!(memory.gc(&who(), None, false).unwrap()["files"], 1);
    let line: Value = serde_json::from_str(memory.lineage_lines(theirs, false).unwrap().last().unwrap()).unwrap();
    assert_eq!((&line["op"], &line["uid"]), (&"files".into(), &owner.uid.into()), "{line}");
}

#[test]
fn a_fork_inherits_the_lifetime_of_a_rule() {
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let memory = with_clock(&ForgetfulDisk::new(), &NOW);
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "episodic/** text ttl=1h\n** text").unwrap();
    let fork = memory.fork(&who(), main, "fork", None).unwrap();
    for path in ["episodic/old", "notes/old"] {
        write(&memory, fork, path, "x");
    }
    NOW.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    memory.gc(&who(), None, false).unwrap();
    assert!(read(&memory, fork, "episodic/old").is_none() && read(&memory, fork, "notes/old").is_some());
}

/// By the store's clock since the last write or merge of the content: a copy brings the mtime of its original along, and
/// a fork or a pull writes nothing.
#[test]
fn a_lifetime_counts_from_the_last_write_or_merge_whatever_the_mtime() {
    const MINUTE_NANOS: i64 = 60_000_000_000;
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let disk = ForgetfulDisk::new();
    let memory = with_clock(&disk, &NOW);
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "tmp/** text ttl=1h\n** text").unwrap();
    let gone_by_now = |memory: &Memory| memory.gc(&who(), None, false).unwrap()["files"].as_u64().unwrap();
    let long_ago = |memory: &Memory, branch, path: &str| {
        let inode = memory.files(&View::Branch(branch)).unwrap().resolve(path.as_bytes()).unwrap();
        let attrs = Attrs { mtime: Some(Time(1)), ..Attrs::default() };
        memory.edit(&who(), branch, FileOp::SetAttr { inode, attrs }).unwrap();
    };
    write(&memory, main, "tmp/copied", "x");
    long_ago(&memory, main, "tmp/copied");
    assert_eq!(gone_by_now(&memory), 0);

    NOW.fetch_add(50 * MINUTE_NANOS, Ordering::Relaxed);
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let puller = memory.fork(&who(), main, "puller", None).unwrap();
    write(&memory, fork, "tmp/merged", "x");
    long_ago(&memory, fork, "tmp/merged");
    NOW.fetch_add(5 * MINUTE_NANOS, Ordering::Relaxed);
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    memory.merge(&who(), puller, MergeVerb::Pull, false).unwrap();
    // What counts is stored.
    memory.close().unwrap();
    drop(memory);
    let memory = with_clock(&disk, &NOW);
    let there = |memory: &Memory, branch| ["tmp/copied", "tmp/merged"].map(|path| read(memory, branch, path).is_some());
    assert_eq!(gone_by_now(&memory), 0);
    NOW.fetch_add(6 * MINUTE_NANOS, Ordering::Relaxed);
    assert_eq!(gone_by_now(&memory), 2, "the copy is an hour old in both branches");
    assert_eq!((there(&memory, main), there(&memory, puller)), ([false, true], [false, true]));
    NOW.fetch_add(52 * MINUTE_NANOS, Ordering::Relaxed);
    assert_eq!(gone_by_now(&memory), 0, "an hour after the write, and not yet after the merge");
    NOW.fetch_add(3 * MINUTE_NANOS, Ordering::Relaxed);
    assert_eq!(gone_by_now(&memory), 2);
    assert_eq!((there(&memory, main), there(&memory, puller)), ([false, false], [false, false]));
}

#[test]
fn a_lifetime_begins_anew_where_a_merge_changes_a_file_that_was_there() {
    const MINUTE_NANOS: i64 = 60_000_000_000;
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let memory = with_clock(&ForgetfulDisk::new(), &NOW);
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "tmp/** text ttl=1h\n** text").unwrap();
    write(&memory, main, "tmp/a", "old");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    NOW.fetch_add(50 * MINUTE_NANOS, Ordering::Relaxed);
    write(&memory, fork, "tmp/a", "new");
    NOW.fetch_add(5 * MINUTE_NANOS, Ordering::Relaxed);
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    NOW.fetch_add(57 * MINUTE_NANOS, Ordering::Relaxed);
    assert_eq!(memory.gc(&who(), None, false).unwrap()["files"], 0, "an hour after the write, not after the merge");
    NOW.fetch_add(4 * MINUTE_NANOS, Ordering::Relaxed);
    assert_eq!(memory.gc(&who(), None, false).unwrap()["files"], 1);
}

/// A merge brings files that expire without an operation on them.
#[test]
fn files_that_a_merge_brought_expire_though_nothing_else_changes() {
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let memory = with_clock(&ForgetfulDisk::new(), &NOW);
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "tmp/** text ttl=1h\n** text").unwrap();
    write(&memory, main, "notes", "x");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, fork, "tmp/merged", "x");
    assert_eq!(memory.gc(&who(), None, false).unwrap()["files"], 0, "now it is known that nothing expires in main");
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    NOW.fetch_add(3_601_000_000_000, Ordering::Relaxed);
    assert_eq!(memory.gc(&who(), None, false).unwrap()["files"], 1);
}

/// A living child keeps its parent, whatever their lifetimes are.
#[test]
fn branches_expire_children_before_parents_and_none_above_one_that_stays() {
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let memory = with_clock(&ForgetfulDisk::new(), &NOW);
    let main = main_of(&memory);
    let fork = |parent, name: &str, ttl: &str| {
        let branch = memory.fork(&who(), parent, name, None).unwrap();
        memory.set(&who(), branch, Setting::Ttl, ttl).unwrap();
        branch
    };
    let gone = fork(main, "gone", "1h");
    fork(fork(gone, "a", "1h"), "b", "1h");
    let kept = fork(main, "kept", "1h");
    fork(kept, "in-use", "");
    fork(kept, "out-of-use", "1h");
    NOW.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    let older = std::time::Duration::from_secs(7_200);
    assert_eq!(memory.gc(&who(), Some(older), true).unwrap()["branches"], serde_json::json!([]));
    let ended = serde_json::json!(["main/gone/a/b", "main/gone/a", "main/kept/out-of-use", "main/gone"]);
    let found = memory.gc(&who(), None, false).unwrap()["branches"].clone();
    let sorted = |value: &serde_json::Value| {
        let mut paths: Vec<String> = value.as_array().unwrap().iter().map(|path| path.to_string()).collect();
        paths.sort();
        paths
    };
    assert_eq!(sorted(&found), sorted(&ended));
    let place = |path: &str| found.as_array().unwrap().iter().position(|one| one == path).unwrap();
    assert!(place("main/gone/a/b") < place("main/gone/a") && place("main/gone/a") < place("main/gone"));
    assert!(memory.resolve("main/kept/in-use").is_ok() && memory.resolve("main/gone").is_err());
}

#[test]
fn a_lifetime_ends_what_only_others_may_write_and_what_may_only_be_appended_to() {
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let memory = with_clock(&ForgetfulDisk::new(), &NOW);
    let main = main_of(&memory);
    write(&memory, main, "logs/l", "line");
    memory.set(&who(), main, Setting::Rules, "logs/** text append write=uid:1001 ttl=1h\n** text").unwrap();
    assert_eq!(refused(try_write(&memory, &who(), main, "logs/l", "other")).code(), "write_rule");
    NOW.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    assert_eq!(memory.gc(&who(), None, false).unwrap()["files"], 1);
    assert_eq!(read(&memory, main, "logs/l"), None);
}
