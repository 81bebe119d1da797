//! What a mount holds in memory of files: what callers can no longer reach goes, and the rest counts.

use std::ffi::OsStr;

use super::rig::{ROOT, Rig};

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
    let held = rig.fs.mount.removed.find(ino).unwrap();
    assert_eq!((held.content().unwrap().next_data(0), held.xattrs().count()), (None, 0));
}
