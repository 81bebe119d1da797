//! What the head covers and what not.

use super::super::{Attrs, FileOp, NoPacks, ROOT, RangeOp, Tree, XattrMode};
use super::{create, mkdir, name, write};
use crate::object::{Hash, Time};

fn set(tree: &mut Tree, inode: u64, attrs: Attrs) {
    tree.apply(&FileOp::SetAttr { inode, attrs }, Time(9), &NoPacks).unwrap();
}

#[test]
fn an_empty_tree_has_its_well_known_head() {
    let head = "a0ba969d8030d36193b02d4000d176df222048b75c929b276e882b9aa820f79e";
    assert_eq!(Tree::default().hash().to_string(), head);
    // Owners and times are not in it.
    assert_eq!(Tree::new(0o755, 7, 8, Time(9)).hash(), Tree::default().hash());
    assert_ne!(Tree::new(0o700, 0, 0, Time(0)).hash(), Tree::default().hash());
}

#[test]
fn a_large_directory_has_the_same_head_whatever_its_history() {
    let names: Vec<Vec<u8>> = (0..3000).map(|number| format!("file-{number}").into_bytes()).collect();
    let mut forward = Tree::default();
    for text in &names {
        create(&mut forward, ROOT, text);
        if text.ends_with(b"7") {
            forward.hash();
        }
    }
    let mut backward = Tree::default();
    let passing = mkdir(&mut backward, ROOT, b"passing");
    for text in names.iter().rev() {
        create(&mut backward, passing, text);
        let (new_name, mode) = (name(text), super::super::RenameMode::Plain);
        let op = FileOp::Rename { parent: passing, name: name(text), new_parent: ROOT, new_name, mode, keep: false };
        backward.apply(&op, Time(3), &NoPacks).unwrap();
        if text.ends_with(b"9") {
            backward.hash();
            let op = FileOp::Unlink { parent: ROOT, name: name(text), keep: false };
            backward.apply(&op, Time(3), &NoPacks).unwrap();
            backward.hash();
            create(&mut backward, ROOT, text);
        }
    }
    assert_ne!(forward.hash(), backward.hash());
    backward.apply(&FileOp::Rmdir { parent: ROOT, name: name(b"passing"), keep: false }, Time(4), &NoPacks).unwrap();
    assert_eq!(forward.hash(), backward.hash());
    assert!(forward.changes(&backward).is_empty());
}

#[test]
fn times_owners_numbers_links_and_holes_do_not_count() {
    let mut one = Tree::default();
    let file = create(&mut one, ROOT, b"a");
    write(&mut one, file, 0, &[0; 200_000]);
    let other = create(&mut one, ROOT, b"b");
    write(&mut one, other, 0, &[0; 200_000]);

    let mut two = Tree::default();
    let gone = create(&mut two, ROOT, b"gone");
    two.apply(&FileOp::Unlink { parent: ROOT, name: name(b"gone"), keep: true }, Time(8), &NoPacks).unwrap();
    write(&mut two, gone, 0, b"an orphan");
    let file = create(&mut two, ROOT, b"b");
    set(
        &mut two,
        file,
        Attrs { uid: Some(5), gid: Some(6), size: Some(200_000), atime: Some(Time(-1)), ..Attrs::default() },
    );
    two.apply(&FileOp::Link { inode: file, parent: ROOT, name: name(b"a") }, Time(8), &NoPacks).unwrap();
    assert_eq!(one.hash(), two.hash());
    assert!(one.changes(&two).is_empty());

    let allocate = |what| FileOp::Range { inode: file, what, offset: 0, length: 150_000, keep_size: true };
    two.apply(&allocate(RangeOp::Allocate), Time(8), &NoPacks).unwrap();
    assert!(two.node(file).unwrap().blocks() > 0);
    assert_eq!(one.hash(), two.hash());
}

#[test]
fn the_mode_of_the_root_counts_as_content() {
    let mut tree = Tree::default();
    let head = tree.hash();
    set(&mut tree, ROOT, Attrs { mode: Some(0o700), ..Attrs::default() });
    assert_ne!(tree.hash(), head);
    set(&mut tree, ROOT, Attrs { mode: Some(0o755), ..Attrs::default() });
    assert_eq!(tree.hash(), head);
}

#[test]
fn mode_content_size_and_user_attributes_count() {
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"a");
    let mut heads = vec![tree.hash()];
    let mut differs = |tree: &Tree| {
        assert!(!heads.contains(&tree.hash()));
        heads.push(tree.hash());
    };
    set(&mut tree, file, Attrs { mode: Some(0o600), ..Attrs::default() });
    differs(&tree);
    write(&mut tree, file, 70_000, b"x");
    differs(&tree);
    set(&mut tree, file, Attrs { size: Some(70_002), ..Attrs::default() });
    differs(&tree);
    let xattr =
        |name: &[u8]| FileOp::SetXattr { inode: file, name: name.to_vec(), value: b"v".to_vec(), mode: XattrMode::Any };
    tree.apply(&xattr(b"user.a"), Time(1), &NoPacks).unwrap();
    differs(&tree);
    let head: Hash = tree.hash();
    tree.apply(&xattr(b"security.a"), Time(1), &NoPacks).unwrap();
    assert_eq!(tree.hash(), head);
}
