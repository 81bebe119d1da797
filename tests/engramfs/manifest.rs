//! The manifest grows by what is new, and holds equal states once.

use std::collections::HashSet;

use engramfs::disk::{Disk, ForgetfulDisk};
use engramfs::memory::{Actor, Hash, Memory, ShowTarget, View, Viewer};

use crate::files::write;
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

/// Bytes of all journal files.
fn journal_bytes(disk: &ForgetfulDisk) -> u64 {
    disk.files().into_iter().filter(|(path, _)| path.starts_with("journal/")).map(|(_, length)| length).sum()
}

#[test]
fn a_fork_writes_as_much_at_any_size_and_depth() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let cost_of_a_fork = |user: &Actor, parent, name: &str| {
        let before = journal_bytes(&disk);
        memory.fork(user, parent, name, None).unwrap();
        journal_bytes(&disk) - before
    };
    let bob = Actor { uid: 1001, gid: 1001, name: "bob".into() };
    // The first one of each notes who the user is.
    for (user, name) in [(&who(), "first"), (&bob, "first-of-bob")] {
        memory.fork(user, main, name, None).unwrap();
    }
    let small = cost_of_a_fork(&who(), main, "small");
    memory
        .commit(&who(), main, (0..3_000).map(|n| put(&format!("r{n}"), Some(vec![1.0, 2.0]), Some("text"))).collect())
        .unwrap();
    for number in 0..300 {
        write(&memory, main, &format!("f{number}"), "some text");
    }
    memory.sync().unwrap();
    // The entry that gathers what was done to files belongs to them.
    memory.checkpoint(&who(), main, "full", None).unwrap();
    let large = cost_of_a_fork(&who(), main, "large");
    // Its owner gets all these files.
    let given = cost_of_a_fork(&bob, main, "given");
    let mut branch = main;
    for _ in 0..20 {
        branch = memory.fork(&who(), branch, "d", None).unwrap();
        memory.commit(&who(), branch, vec![put("own", None, Some("text"))]).unwrap();
    }
    let deep = cost_of_a_fork(&who(), branch, "depth");
    // Numbers are longer, and so are paths.
    assert!(large < small + 64 && deep < small + 192, "{small}, {large} and {deep} bytes");
    assert!(given < small + 64, "{small} bytes, and {given} for another owner");
    let memory = reopened(&disk, memory);
    let deepest = memory.resolve(&format!("main{}/depth", "/d".repeat(20))).unwrap();
    assert_eq!(texts(&memory, &View::Branch(deepest)).len(), 3_001);
    let files = memory.files(&View::Branch(memory.resolve("main/given").unwrap())).unwrap();
    let owner = |path: &str| files.owner(files.node(files.resolve(path.as_bytes()).unwrap()).unwrap());
    assert!((0..300).all(|number| owner(&format!("f{number}")) == bob.uid));
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
        memory.show(main, ShowTarget::Hash(head), Viewer::UNRESTRICTED).unwrap();
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
    let files = names(&disk).len();
    memory.gc(&who(), None, false).unwrap();
    let collected = disk.bytes("manifest").unwrap().len();
    // Each part takes the 32 bytes of its name in the manifest, and a file.
    assert!(collected + 20 * 32 < size, "{collected} bytes after a collection, {size} before");
    assert!(names(&disk).len() + 20 < files, "{} files after a collection, {files} before", names(&disk).len());
    drop(memory);
    verify(&disk).unwrap();
}
