//! What a mount holds in memory of files: what callers can no longer reach goes, and the rest counts.

use std::ffi::OsStr;
use std::sync::Arc;

use super::rig::{ROOT, Rig};
use crate::fs::Errno;
use crate::fs::files::Area;
use crate::fs::node::FsNode;

/// As a descriptor of `O_PATH` holds it, of which the server hears nothing.
#[test]
fn of_a_removed_file_that_the_kernel_still_holds_no_bytes_are_kept() {
    let rig = Rig::new();
    rig.write("main/scratch/a", "some bytes").unwrap();
    let ino = rig.ino("main/scratch/a").unwrap();
    rig.fs.setxattr(ROOT, ino, OsStr::new("user.a"), b"value", 0).unwrap();
    let before = rig.fs.getattr(ROOT, ino, None).unwrap();
    rig.rm("main/scratch/a").unwrap();
    let after = rig.fs.getattr(ROOT, ino, None).unwrap();
    assert_eq!((after.size, after.blocks, after.links), (before.size, before.blocks, 0));
    let held = rig.fs.mount.removed_inodes.find(ino).unwrap();
    assert_eq!((held.content().unwrap().next_data(0), held.xattrs().count()), (None, 0));
}

#[test]
fn an_open_directory_holds_names_and_no_files() {
    let rig = Rig::new();
    rig.write("main/scratch/a", "some bytes").unwrap();
    let held = {
        let main = FsNode::Branch(rig.memory.root("main").unwrap());
        let tree = rig.fs.mount.tree(&rig.fs.mount.files_in(&main, Area::Scratch).unwrap()).unwrap();
        Arc::downgrade(tree.node(tree.resolve(b"a").unwrap()).unwrap())
    };
    let directory = rig.fs.opendir(ROOT, rig.ino("main/scratch").unwrap()).unwrap();
    assert!(held.upgrade().is_some());
    rig.rm("main/scratch/a").unwrap();
    assert!(held.upgrade().is_none(), "the file is gone with its last name");
    rig.fs.release(directory);
}

#[test]
fn each_name_of_a_file_in_scratch_counts_until_it_goes() {
    let rig = Rig::new();
    let scratch = || rig.ino("main/scratch").unwrap();
    let free = || rig.fs.statfs(scratch()).unwrap().free_bytes;
    let whole = free();
    for name in ["a", "b"] {
        rig.write(&format!("main/scratch/{name}"), "").unwrap();
    }
    let a = rig.ino("main/scratch/a").unwrap();
    let name = |number: usize| format!("a{number}");
    for number in 0..10 {
        rig.fs.link(ROOT, a, scratch(), OsStr::new(&name(number))).unwrap();
    }
    assert_eq!(whole - free(), 2 * 1024 + 10 * 512);
    rig.mv("main/scratch/b", "main/scratch/a0").unwrap();
    assert_eq!(whole - free(), 2 * 1024 + 9 * 512, "a name that is replaced is gone, and its file is not");
    rig.rm("main/scratch/a").unwrap();
    (0..10).for_each(|number| rig.rm(&format!("main/scratch/{}", name(number))).unwrap());
    assert_eq!(free(), whole);
}

#[test]
fn in_scratch_content_counts_in_units_of_4_kib_and_an_attribute_by_its_bytes() {
    let rig = Rig::new();
    let free = || rig.fs.statfs(rig.ino("main/scratch").unwrap()).unwrap().free_bytes;
    let whole = free();
    rig.write("main/scratch/a", "x").unwrap();
    assert_eq!(whole - free(), 1024 + 4096);
    rig.write("main/scratch/a", &"x".repeat(4097)).unwrap();
    assert_eq!(whole - free(), 1024 + 2 * 4096);
    let a = rig.ino("main/scratch/a").unwrap();
    rig.fs.setxattr(ROOT, a, OsStr::new("user.name"), b"value", 0).unwrap();
    assert_eq!(whole - free(), 1024 + 2 * 4096 + ("user.name".len() + "value".len()) as u64);
}

#[test]
fn the_beginning_of_a_line_counts_for_whoever_writes_it() {
    let rig = Rig::new();
    assert_eq!(rig.memory.limit_memory(8 << 20, true, Box::new(|_| 0)), None);
    let [one, other] = [(); 2].map(|()| rig.open("main/query", libc::O_RDWR).unwrap());
    let beginning = vec![b'x'; 1_500_000];
    rig.fs.write(one, 0, &beginning).unwrap();
    assert_eq!(rig.fs.write(other, 0, &beginning), Err(Errno::EDQUOT));
    rig.fs.release(one);
    assert_eq!(rig.fs.write(other, 0, &beginning), Ok(1_500_000));
}
