//! Operations on files, each with its length, carried out on one tree. Whatever they did, the tree can be stored.
#![no_main]

use engramfs::object::Time;
use engramfs::workspace::{DirectWrite, FileOp, NoPacks, Tree};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (mut tree, mut rest, mut time) = (Tree::default(), bytes, 0);
    while !rest.is_empty() {
        let (op, behind) = engramfs_fuzz::split(rest);
        rest = behind;
        let Ok(op) = FileOp::from_bytes(op) else { continue };
        let written = op.to_bytes();
        assert_eq!(FileOp::from_bytes(&written).expect("what was written can be read"), op);
        if let FileOp::Write { offset, bytes, .. } = &op {
            let _ = DirectWrite::from_verified(*offset, bytes);
        }
        time += 1;
        let before = tree.hash();
        if tree.apply(&op, Time(time), &NoPacks).is_err() {
            assert_eq!(tree.hash(), before, "an operation that fails changes nothing");
        }
    }
    let delta = tree.delta_from(&Tree::default()).expect("nothing is on a disk");
    let stored = Tree::default().with_delta(&delta).expect("what was written can be read");
    assert_eq!(stored.hash(), tree.hash());
    for inode in stored.inodes().take(100) {
        let path = stored.path(inode).expect("no orphan is stored");
        assert_eq!(stored.resolve(&path).expect("a path leads to its inode"), inode);
    }
});
