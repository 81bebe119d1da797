//! The stored form of a tree, and a second one on top of it. What they give can be stored and read back.
#![no_main]

use engramfs::workspace::{NoPacks, Tree};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (first, second) = engramfs_fuzz::split(bytes);
    let mut tree = Tree::default();
    for delta in [first, second] {
        let Ok(next) = tree.with_delta(delta) else { return };
        let again = next.delta_from(&tree).expect("nothing is on a disk");
        assert_eq!(tree.with_delta(&again).expect("what was written can be read").hash(), next.hash());
        tree = next;
    }
    for inode in tree.inodes().take(100) {
        let _ = tree.path(inode);
        let Some(content) = tree.node(inode).expect("it was listed").content() else { continue };
        let _ = content.read(content.size().saturating_sub(100), 100, &NoPacks);
        let (_, _) = (content.next_data(0), content.next_hole(0));
    }
});
