//! Single rules of POSIX and of the module, where chance seldom comes by.

use super::super::apply::LINKS_MAX;
use super::super::{
    Attrs, FILE_BYTES_MAX, FileOp, NewInode, NoPacks, ROOT, RangeOp, Tree, TreeChange, TreeError, XattrMode,
};
use super::{create, made, mkdir, name, variant, write};
use crate::object::Time;

fn fails(tree: &mut Tree, op: &FileOp) -> String {
    variant(&tree.apply(op, Time(5), &NoPacks).unwrap_err())
}

#[test]
fn a_file_takes_so_many_links_and_no_more() {
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"f");
    let link = |number: u32| FileOp::Link { inode: file, parent: ROOT, name: name(format!("l{number}").as_bytes()) };
    for number in 1..LINKS_MAX {
        tree.apply(&link(number), Time(1), &NoPacks).unwrap();
    }
    assert_eq!(fails(&mut tree, &link(LINKS_MAX)), "TooManyLinks");
    assert_eq!(tree.node(file).unwrap().nlink(), 65_000, "as the page says");
}

#[test]
fn a_directory_takes_so_many_directories_and_no_more() {
    let mut tree = Tree::default();
    for number in 0..LINKS_MAX - 2 {
        mkdir(&mut tree, ROOT, number.to_string().as_bytes());
    }
    let make = |make| FileOp::Create { parent: ROOT, name: name(b"more"), make, mode: 0o755, uid: 0, gid: 0 };
    assert_eq!(fails(&mut tree, &make(NewInode::Directory)), "TooManyLinks");
    tree.apply(&make(NewInode::File), Time(1), &NoPacks).unwrap();
    assert_eq!(tree.node(ROOT).unwrap().nlink(), LINKS_MAX);
    tree.apply(&FileOp::Rmdir { parent: ROOT, name: name(b"7"), keep: false }, Time(1), &NoPacks).unwrap();
    mkdir(&mut tree, ROOT, b"again");
}

#[test]
fn sizes_targets_and_attributes_have_their_limits() {
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"f");
    let size = |size| FileOp::SetAttr { inode: file, attrs: Attrs { size: Some(size), ..Attrs::default() } };
    assert_eq!(fails(&mut tree, &size(FILE_BYTES_MAX + 1)), "TooLarge");
    tree.apply(&size(FILE_BYTES_MAX), Time(1), &NoPacks).unwrap();
    for offset in [FILE_BYTES_MAX, u64::MAX] {
        assert_eq!(fails(&mut tree, &FileOp::Write { inode: file, offset, bytes: vec![1].into() }), "TooLarge");
        let what = RangeOp::Allocate;
        assert_eq!(
            fails(&mut tree, &FileOp::Range { inode: file, what, offset, length: 1, keep_size: true }),
            "TooLarge"
        );
    }
    let xattr = |name: &[u8], bytes| FileOp::SetXattr {
        inode: file,
        name: name.to_vec(),
        value: vec![0; bytes],
        mode: XattrMode::Any,
    };
    assert_eq!(fails(&mut tree, &xattr(b"user.a", 65_537)), "AttributeTooLarge");
    assert_eq!(fails(&mut tree, &xattr(&[b'u'; 256], 1)), "AttributeName");
    for number in 0..15 {
        tree.apply(&xattr(&[b'a' + number], 65_536), Time(1), &NoPacks).unwrap();
    }
    tree.apply(&xattr(&[b'u'; 255], 1), Time(1), &NoPacks).unwrap();
    // What the names and values so far leave of 1 MiB, without the name of the last one.
    let left = (1 << 20) - 15 * (1 + 65_536) - (255 + 1) - 1;
    assert_eq!(fails(&mut tree, &xattr(b"z", left + 1)), "NoSpace");
    tree.apply(&xattr(b"z", left), Time(1), &NoPacks).unwrap();
    let link = |length: usize| {
        let make = NewInode::Symlink(vec![b'x'; length]);
        FileOp::Create { parent: ROOT, name: name(b"l"), make, mode: 0o777, uid: 0, gid: 0 }
    };
    assert_eq!(fails(&mut tree, &link(4_096)), "NameTooLong");
    tree.apply(&link(4_095), Time(1), &NoPacks).unwrap();
    assert!(matches!(tree.lookup(ROOT, &[b'x'; 256]), Err(TreeError::NameTooLong)));
}

#[test]
fn a_setgid_directory_gives_its_group_on() {
    let mut tree = Tree::default();
    let top = mkdir(&mut tree, ROOT, b"d");
    let attrs = Attrs { mode: Some(0o2775), gid: Some(50), ..Attrs::default() };
    tree.apply(&FileOp::SetAttr { inode: top, attrs }, Time(1), &NoPacks).unwrap();
    let file = create(&mut tree, top, b"f");
    let inner = mkdir(&mut tree, top, b"d");
    assert_eq!((tree.node(file).unwrap().gid, tree.node(file).unwrap().mode), (50, 0o644));
    assert_eq!((tree.node(inner).unwrap().gid, tree.node(inner).unwrap().mode), (50, 0o2644));
}

#[test]
fn each_name_of_a_file_counts_as_memory() {
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"f");
    let one = tree.totals().metadata_bytes();
    for names in 1..=3_u64 {
        let op = FileOp::Link { inode: file, parent: ROOT, name: name(format!("l{names}").as_bytes()) };
        tree.apply(&op, Time(3), &NoPacks).unwrap();
        assert_eq!((tree.totals().hard_links, tree.totals().files), (names, 1));
    }
    assert!(tree.totals().metadata_bytes() > one);
    for gone in ["f", "l2", "l3"] {
        let op = FileOp::Unlink { parent: ROOT, name: name(gone.as_bytes()), keep: false };
        tree.apply(&op, Time(4), &NoPacks).unwrap();
    }
    assert_eq!(tree.totals().metadata_bytes(), one);
}

#[test]
fn an_orphan_lives_until_it_is_dropped() {
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"f");
    write(&mut tree, file, 0, b"still here");
    let unlinked =
        tree.apply(&FileOp::Unlink { parent: ROOT, name: name(b"f"), keep: true }, Time(3), &NoPacks).unwrap().unlinked;
    assert_eq!(unlinked, Some(file));
    assert_eq!(tree.node(file).unwrap().nlink(), 0);
    assert_eq!(tree.totals(), Tree::default().totals());
    write(&mut tree, file, 5, b"!");
    assert_eq!(tree.read(file, 0, 99, &NoPacks).unwrap(), b"still!here");
    assert_eq!(tree.totals(), Tree::default().totals());
    assert_eq!(tree.hash(), Tree::default().hash());
    let mut fork = tree.clone();
    fork.drop_orphans();
    assert!(fork.node(file).is_err() && tree.node(file).is_ok());
    tree.apply(&FileOp::Drop { inode: file }, Time(4), &NoPacks).unwrap();
    assert!(matches!(tree.node(file), Err(TreeError::Stale)));
    // A number is never given twice.
    assert_ne!(create(&mut tree, ROOT, b"f"), file);
}

#[test]
fn nothing_is_made_in_a_removed_directory() {
    let mut tree = Tree::default();
    let directory = mkdir(&mut tree, ROOT, b"d");
    tree.apply(&FileOp::Rmdir { parent: ROOT, name: name(b"d"), keep: true }, Time(1), &NoPacks).unwrap();
    let create = FileOp::Create { parent: directory, name: name(b"f"), make: NewInode::File, mode: 0, uid: 0, gid: 0 };
    assert_eq!(fails(&mut tree, &create), "NotFound");
}

#[test]
fn holes_are_found_and_take_no_space() {
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"f");
    write(&mut tree, file, 200_000, b"data");
    let node = tree.node(file).unwrap().clone();
    let content = node.content().unwrap();
    assert_eq!((content.next_data(0), content.next_data(200_003)), (Some(196_608), Some(200_003)));
    assert_eq!((content.next_data(200_004), content.next_hole(200_004)), (None, None));
    assert_eq!((content.next_hole(0), content.next_hole(200_000)), (Some(0), Some(200_004)));
    assert_eq!(node.blocks(), 8);
    let punch = FileOp::Range { inode: file, what: RangeOp::Punch, offset: 0, length: 300_000, keep_size: true };
    tree.apply(&punch, Time(1), &NoPacks).unwrap();
    let node = tree.node(file).unwrap();
    assert_eq!((node.blocks(), node.size()), (0, 200_004));
    assert_eq!(node.content().unwrap().next_data(0), None);
    assert_eq!(tree.read(file, 199_990, 100, &NoPacks).unwrap(), [0; 14]);
}

#[test]
fn data_is_found_where_it_begins_and_not_in_the_hole_behind_it() {
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"f");
    for offset in [0, 65_536, 200_000] {
        write(&mut tree, file, offset, b"data");
    }
    let content = tree.node(file).unwrap().content().unwrap();
    let found = [0, 3, 4, 65_539, 65_540].map(|offset| content.next_data(offset));
    assert_eq!(found, [0, 3, 65_536, 65_539, 196_608].map(Some));
}

#[test]
fn a_cut_file_that_grows_again_shows_zeros() {
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"f");
    write(&mut tree, file, 0, &[7; 100_000]);
    for size in [70_000, 10, 100_000] {
        let attrs = Attrs { size: Some(size), ..Attrs::default() };
        tree.apply(&FileOp::SetAttr { inode: file, attrs }, Time(1), &NoPacks).unwrap();
    }
    let bytes = tree.read(file, 0, 200_000, &NoPacks).unwrap();
    assert!(bytes.len() == 100_000 && bytes[..10] == [7; 10] && bytes[10..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_copy_shares_whole_chunks() {
    let mut tree = Tree::default();
    let (from, to) = (create(&mut tree, ROOT, b"f"), create(&mut tree, ROOT, b"t"));
    write(&mut tree, from, 0, &[3; 150_000]);
    let op = FileOp::Copy { from, from_offset: 0, to, to_offset: 0, length: 1 << 30 };
    tree.apply(&op, Time(1), &NoPacks).unwrap();
    let content = |inode| tree.node(inode).unwrap().content().unwrap().clone();
    let (one, other) = (content(from), content(to));
    assert!(one.chunks.iter().zip(other.chunks.iter()).all(|(one, other)| one == other));
    assert_eq!((other.size(), one.hash()), (150_000, other.hash()));
}

/// A chunk that is shared comes whole, so that one that is copied in part must not be shared.
#[test]
fn a_copy_neither_takes_nor_overwrites_what_lies_behind_its_range() {
    // The range ends with the source alone, then with the target alone.
    for (source, target, copied) in [("new", "old text", "new text"), ("new text", "old", "new\0\0\0\0\0")] {
        let mut tree = Tree::default();
        let (from, to) = (create(&mut tree, ROOT, b"f"), create(&mut tree, ROOT, b"t"));
        write(&mut tree, from, 0, source.as_bytes());
        write(&mut tree, to, 0, target.as_bytes());
        let copy = FileOp::Copy { from, from_offset: 0, to, to_offset: 0, length: 3 };
        tree.apply(&copy, Time(3), &NoPacks).unwrap();
        // A file that grows shows what its last chunk has behind its end.
        let attrs = Attrs { size: Some(8), ..Attrs::default() };
        tree.apply(&FileOp::SetAttr { inode: to, attrs }, Time(4), &NoPacks).unwrap();
        assert_eq!(tree.read(to, 0, 99, &NoPacks).unwrap(), copied.as_bytes(), "{source:?} over {target:?}");
    }
}

#[test]
fn appends_share_one_buffer_also_while_older_trees_are_held() {
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"log");
    let mut held = Vec::new();
    for number in 0..300u32 {
        write(&mut tree, file, u64::from(number) * 4, &number.to_le_bytes());
        held.push(tree.clone());
    }
    let mut fork = held[100].clone();
    write(&mut fork, file, 404, b"fork");
    for (number, tree) in held.iter().enumerate() {
        let bytes = tree.read(file, 0, 10_000, &NoPacks).unwrap();
        assert_eq!(bytes.len(), number * 4 + 4);
        assert!(bytes.chunks(4).zip(0u32..).all(|(bytes, number)| bytes == number.to_le_bytes()));
    }
    assert_eq!(fork.read(file, 404, 10, &NoPacks).unwrap(), b"fork");
}

#[test]
fn grafted_and_replaced_nodes_take_everything_but_number_and_names() {
    let mut source = Tree::default();
    let file = create(&mut source, ROOT, b"f");
    write(&mut source, file, 0, b"theirs");
    let link = made(&mut source, ROOT, b"l", NewInode::Symlink(b"f".to_vec()));
    let mut tree = Tree::default();
    let directory = mkdir(&mut tree, ROOT, b"d");
    let node = source.node(file).unwrap().clone();
    let copy = tree.graft(directory, b"copy", &node, Time(9)).unwrap();
    assert_eq!(tree.read(copy, 0, 99, &NoPacks).unwrap(), b"theirs");
    assert_eq!(tree.node(copy).unwrap().mtime, node.mtime);
    assert!(matches!(tree.graft(directory, b"copy", &node, Time(9)), Err(TreeError::Exists)));
    tree.replace(copy, source.node(link).unwrap(), Time(10)).unwrap();
    assert_eq!(tree.node(copy).unwrap().target(), Some(&b"f"[..]));
    assert_eq!(tree.path(copy).unwrap(), b"d/copy");
    assert_eq!(tree.totals().bytes, 0);
    assert!(matches!(tree.replace(directory, &node, Time(1)), Err(TreeError::IsDirectory)));
}

/// The lifetime of a file counts from then on.
#[test]
fn a_replacement_counts_as_written_where_bytes_or_target_are_others() {
    let file = |text: &[u8]| {
        let mut tree = Tree::default();
        let inode = create(&mut tree, ROOT, b"f");
        write(&mut tree, inode, 0, text);
        tree
    };
    let link = |target: &[u8]| {
        let mut tree = Tree::default();
        made(&mut tree, ROOT, b"f", NewInode::Symlink(target.to_vec()));
        tree
    };
    for (mut tree, other, is_written) in [
        (file(b"same"), file(b"same"), false),
        (file(b"old"), file(b"new"), true),
        (link(b"same"), link(b"same"), false),
        (link(b"old"), link(b"new"), true),
    ] {
        let inode = tree.resolve(b"f").unwrap();
        let (before, change) = (tree.node(inode).unwrap().written, TreeChange::Replace { from: inode, inode });
        tree.make_change(&change, (&other, true), Time(9), &NoPacks).unwrap();
        assert_eq!(tree.node(inode).unwrap().written, if is_written { Time(9) } else { before });
    }
}
