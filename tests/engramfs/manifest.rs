//! The manifest grows by what is new, and holds equal states once.

use std::collections::HashSet;

use engramfs::disk::{Disk, ForgetfulDisk};
use engramfs::memory::{Hash, Memory, ShowTarget, View, Viewer};

use crate::support::{main_of, open, put, texts, verify, who};

fn names(disk: &ForgetfulDisk) -> HashSet<String> {
    disk.list("segments").unwrap().into_iter().collect()
}

/// Bytes of what the last seal wrote, beside those of the names in `before`.
fn written_since(disk: &ForgetfulDisk, before: &HashSet<String>) -> usize {
    let fresh: Vec<String> = names(disk).difference(before).cloned().collect();
    let blobs = fresh.iter().map(|name| disk.bytes(&format!("segments/{name}")).unwrap().len());
    blobs.sum::<usize>() + disk.bytes("manifest").unwrap().len()
}

fn reopened(disk: &ForgetfulDisk, memory: std::sync::Arc<Memory>) -> std::sync::Arc<Memory> {
    memory.close().unwrap();
    drop(memory);
    verify(disk).unwrap();
    open(disk).unwrap()
}

#[test]
fn a_seal_writes_what_is_new_and_not_all_branches() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("a", None, Some("all"))]).unwrap();
    for number in 0..500 {
        let branch = memory.fork(&who(), main, &format!("branch-{number:03}"), None).unwrap();
        memory.commit(&who(), branch, vec![put(&format!("own-{number}"), None, Some("one"))]).unwrap();
    }
    let before = names(&disk);
    memory.seal().unwrap();
    let all = written_since(&disk, &before);
    memory.commit(&who(), main, vec![put("b", None, Some("more"))]).unwrap();
    let before = names(&disk);
    memory.seal().unwrap();
    let one = written_since(&disk, &before);
    assert!(all > 1 << 20 && one < 16 << 10, "{all} bytes for all branches, {one} for one");
    let memory = reopened(&disk, memory);
    let branch = memory.resolve("main/branch-007").unwrap();
    let found = texts(&memory, &View::Branch(branch));
    assert_eq!(found, [("a".into(), "all".into()), ("own-7".into(), "one".into())]);
    assert_eq!(texts(&memory, &View::Branch(main)).len(), 2);
}

#[test]
fn states_of_one_head_are_kept_once_however_often_a_branch_goes_back_and_forth() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let mut heads: Vec<Hash> = Vec::new();
    for (label, id) in [("one", "a"), ("two", "b")] {
        memory.commit(&who(), main, vec![put(id, None, Some("text"))]).unwrap();
        memory.checkpoint(&who(), main, label, None).unwrap();
        heads.push(memory.status(&View::Branch(main)).unwrap()["head"].as_str().unwrap().parse().unwrap());
    }
    for _ in 0..200 {
        for label in ["one", "two"] {
            memory.rollback(&who(), main, label).unwrap();
        }
    }
    let before = names(&disk);
    memory.seal().unwrap();
    let archive = 200 << 10;
    assert!(written_since(&disk, &before) < archive, "{} bytes", written_since(&disk, &before));
    memory.rollback(&who(), main, "one").unwrap();
    for label in ["one", "two"] {
        memory.delete_checkpoint(&who(), main, label).unwrap();
    }
    let memory = reopened(&disk, memory);
    for head in heads {
        memory.show(main, ShowTarget::Hash(head), Viewer::OF_STORE).unwrap();
    }
}

#[test]
fn a_manifest_of_many_parts_is_written_anew_and_its_old_parts_go() {
    let disk = ForgetfulDisk::new();
    let mut memory = open(&disk).unwrap();
    let main = main_of(&memory);
    for number in 0..300 {
        let name = format!("b{number}");
        let branch = memory.fork(&who(), main, &name, None).unwrap();
        if number % 3 == 0 {
            memory.discard(&who(), branch).unwrap();
        }
        memory.seal().unwrap();
        if number % 100 == 50 {
            memory = reopened(&disk, memory);
        }
    }
    let size = disk.bytes("manifest").unwrap().len();
    assert!(size < 32 << 10, "{size} bytes");
    let memory = reopened(&disk, memory);
    for number in 0..300 {
        let found = memory.resolve(&format!("main/b{number}"));
        assert_eq!(found.is_err(), number % 3 == 0, "b{number}");
    }
    memory.gc(&who(), None, false).unwrap();
    drop(memory);
    verify(&disk).unwrap();
}
