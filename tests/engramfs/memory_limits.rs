//! What `--memory` leaves for the server: who is refused what, and what goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Actor, Attrs, BranchId, EditError, FILES_ROOT, FileName, FileOp, Kind, Memory, NewInode, Query, Setting, View,
    Viewer,
};

use crate::support::{delete, main_of, open, put, who};

/// Makes an empty file; an error is told by its kind and code.
fn make(memory: &Memory, who: &Actor, branch: BranchId, name: &str) -> Result<u64, (Kind, &'static str)> {
    let name = FileName::new(name.as_bytes()).unwrap();
    let (uid, gid) = (who.uid, who.gid);
    let op = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid, gid };
    memory.edit(who, branch, op).map(|outcome| outcome.inode).map_err(|error| match error {
        EditError::Refused(error) => (error.kind(), error.code()),
        EditError::Tree(error) => panic!("{error}"),
    })
}

/// Makes files until one is refused; returns how many were made, and why no more.
fn make_until_refused(memory: &Memory, who: &Actor, branch: BranchId) -> (u64, (Kind, &'static str)) {
    for number in 0..1_000 {
        if let Err(refusal) = make(memory, who, branch, &format!("f{number}")) {
            return (number, refusal);
        }
    }
    panic!("there is no limit");
}

fn unlink(memory: &Memory, name: &str) {
    let op = FileOp::Unlink { parent: FILES_ROOT, name: FileName::new(name.as_bytes()).unwrap(), keep: false };
    memory.edit(&who(), main_of(memory), op).unwrap();
}

#[test]
fn names_of_files_take_half_of_the_memory_and_a_store_with_more_opens_read_only() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    assert_eq!(memory.limit_memory(64 << 10, false, Box::new(|_| 0)), None);
    let (count, refusal) = make_until_refused(&memory, &who(), main);
    assert_eq!(refusal, (Kind::Full, "memory_full"));
    assert!((28..=32).contains(&count), "{count} files of 1 KiB each in 32 KiB");
    memory.commit(&who(), main, vec![put("a", None, Some("records have room"))]).unwrap();
    unlink(&memory, "f0");
    make(&memory, &who(), main, "again").unwrap();
    memory.close().unwrap();
    drop(memory);
    let memory = open(&disk).unwrap();
    let reason = memory.limit_memory(32 << 10, false, Box::new(|_| 0)).unwrap();
    assert!(reason.contains("read-only") && reason.contains("--memory 1M"), "{reason}");
    let refused = memory.commit(&who(), main, vec![delete("a")]).unwrap_err();
    assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
}

#[test]
fn one_of_several_users_has_a_quarter_of_the_memory() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, bob) = (main_of(&memory), Actor { uid: 1002, gid: 1002, name: "bob".into() });
    let bobs = memory.fork(&bob, main, "bobs", None).unwrap();
    assert_eq!(memory.limit_memory(64 << 10, true, Box::new(|_| 0)), None);
    let (count, refusal) = make_until_refused(&memory, &who(), main);
    assert_eq!(refusal, (Kind::Quota, "memory_share"));
    assert!((12..=16).contains(&count), "{count} files of 1 KiB each in 16 KiB");
    make(&memory, &bob, bobs, "of another").unwrap();
    unlink(&memory, "f0");
    make(&memory, &who(), main, "again").unwrap();
}

#[test]
fn while_the_process_takes_too_much_what_gives_some_back_goes_on() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let taken = Arc::new(AtomicU64::new(0));
    let measured = taken.clone();
    memory.limit_memory(1 << 30, false, Box::new(move |_| measured.load(Ordering::Relaxed)));
    let child = memory.fork(&who(), main, "child", None).unwrap();
    let megabyte = "x".repeat(1 << 20);
    let commit = |id: &str| memory.commit(&who(), main, vec![put(id, None, Some(&megabyte))]);
    taken.store((1 << 30) / 8 * 7, Ordering::Relaxed);
    for number in 0..5 {
        commit(&format!("seven eighths {number}")).unwrap();
    }
    let inode = make(&memory, &who(), main, "file").unwrap();
    memory.edit(&who(), main, FileOp::Write { inode, offset: 0, bytes: vec![1; 5_000].into() }).unwrap();
    let note = make(&memory, &who(), main, "note").unwrap();
    memory.edit(&who(), main, FileOp::Write { inode: note, offset: 0, bytes: b"a heron".to_vec().into() }).unwrap();
    commit("a").unwrap();
    taken.store((1 << 30) / 8 * 7 + 1, Ordering::Relaxed);
    let refused = (0..8).find_map(|number| commit(&format!("b{number}")).err()).expect("it is measured now and then");
    assert_eq!((refused.kind(), refused.code()), (Kind::Full, "memory_full"), "{refused}");
    assert_eq!(memory.set(&who(), main, Setting::Task, "t").unwrap_err().code(), "memory_full");
    assert_eq!(memory.fork(&who(), main, "more", None).unwrap_err().code(), "memory_full");
    let found = |memory: &Memory| {
        let answer = memory.query(&View::Branch(main), &Query::from_text("heron").unwrap()).unwrap();
        (answer.hits.len(), answer.reason)
    };
    assert_eq!(found(&memory), (0, Some("2 files are not indexed yet".to_owned())));
    memory.commit(&who(), main, vec![delete("a")]).unwrap();
    let attrs = Attrs { size: Some(10), ..Attrs::default() };
    memory.edit(&who(), main, FileOp::SetAttr { inode, attrs }).unwrap();
    unlink(&memory, "file");
    memory.discard(&who(), child).unwrap();
    memory.gc(&who(), None, false).unwrap();
    taken.store(0, Ordering::Relaxed);
    commit("c").unwrap();
    assert_eq!(found(&memory), (1, None));
}

#[test]
fn a_comparison_holds_no_more_than_there_is_memory_for() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.checkpoint(&who(), main, "empty", None).unwrap();
    for n in 0..100 {
        memory.commit(&who(), main, vec![put(&format!("r{n}"), None, Some(&"word ".repeat(1_000)))]).unwrap();
    }
    let compare =
        || memory.compare(&who(), main, [Some("empty"), None], Viewer::UNRESTRICTED).map(|shown| shown.line.len());
    assert!(compare().unwrap() > 500_000);
    assert_eq!(memory.limit_memory(256 << 10, false, Box::new(|_| 0)), None);
    let refused = compare().unwrap_err();
    assert!(matches!(refused.kind(), Kind::Full | Kind::Quota), "{refused}");
}
