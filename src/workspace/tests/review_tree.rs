//! What of a proposed tree is open to those who decide on it.

use super::*;
use crate::workspace::NoPacks;

/// Who proposes.
const ANN: u32 = 1001;

/// Makes an inode with an owner and a mode at a time that no other one of the test has.
fn add(tree: &mut Tree, parent: u64, text: &str, make: NewInode, (uid, mode): (u32, u32)) -> u64 {
    let born = Time(100 + tree.next_inode() as i64);
    let op = FileOp::Create { parent, name: name(text.as_bytes()), make, mode, uid, gid: uid };
    tree.apply(&op, born, &NoPacks).unwrap().inode
}

fn file(tree: &mut Tree, parent: u64, text: &str, who: (u32, u32)) -> u64 {
    add(tree, parent, text, NewInode::File, who)
}

fn directory(tree: &mut Tree, parent: u64, text: &str, who: (u32, u32)) -> u64 {
    add(tree, parent, text, NewInode::Directory, who)
}

fn rename(tree: &mut Tree, (parent, from): (u64, &str), (new_parent, to): (u64, &str)) {
    let (name, new_name) = (name(from.as_bytes()), name(to.as_bytes()));
    let op = FileOp::Rename { parent, name, new_parent, new_name, mode: RenameMode::Plain, keep: false };
    tree.apply(&op, Time(9000), &NoPacks).unwrap();
}

fn link(tree: &mut Tree, inode: u64, parent: u64, text: &str) {
    tree.apply(&FileOp::Link { inode, parent, name: name(text.as_bytes()) }, Time(9000), &NoPacks).unwrap();
}

/// Owner and mode at a path.
fn at(tree: &Tree, path: &str) -> (u32, u32) {
    let node = tree.node(tree.resolve(path.as_bytes()).unwrap()).unwrap();
    (tree.owner(node), node.mode)
}

fn entries(tree: &Tree, path: &str) -> Vec<String> {
    let entries = tree.entries(tree.resolve(path.as_bytes()).unwrap(), None).unwrap();
    entries.map(|(name, _)| String::from_utf8(name.to_vec()).unwrap()).collect()
}

#[test]
fn what_its_owner_added_or_changed_is_opened_and_all_else_stays() {
    let mut base = Tree::default();
    let public = file(&mut base, ROOT, "public", (0, 0o644));
    file(&mut base, ROOT, "kept", (0, 0o644));
    let private = file(&mut base, ROOT, "private", (0, 0o600));
    let group = file(&mut base, ROOT, "group", (0, 0o660));
    let shut = directory(&mut base, ROOT, "shut", (0, 0o700));
    file(&mut base, shut, "inner", (0, 0o644));
    let mut fork = base.clone();
    fork.transfer_owner(0, ANN);
    file(&mut fork, ROOT, "new", (ANN, 0o600));
    write(&mut fork, public, 0, b"changed");
    write(&mut fork, group, 0, b"changed");
    rename(&mut fork, (ROOT, "private"), (ROOT, "moved"));
    link(&mut fork, private, ROOT, "linked");
    let own = directory(&mut fork, ROOT, "own", (ANN, 0o700));
    file(&mut fork, own, "note", (ANN, 0o600));
    file(&mut fork, own, "of-another", (7, 0o644));
    let shown = fork.for_reviewers(&base, ANN);
    for (path, expected) in [
        ("new", (ANN, 0o444)),
        ("public", (ANN, 0o444)),
        ("kept", (ANN, 0o644)),
        ("group", (0, 0o660)),
        ("moved", (0, 0o600)),
        ("linked", (0, 0o600)),
        ("shut", (0, 0o700)),
        ("shut/inner", (ANN, 0o644)),
        ("own", (ANN, 0o555)),
        ("own/note", (ANN, 0o444)),
        ("own/of-another", (7, 0)),
        ("", (ANN, 0o755)),
    ] {
        assert_eq!(at(&shown, path), expected, "{path}");
    }
    assert_eq!(fork.totals(), shown.totals(), "nothing is left out of what everybody may search");
    assert!(base.for_reviewers(&base, 0).is_clone_of(&base));
}

#[test]
fn a_directory_that_is_opened_holds_what_differs_and_nothing_else() {
    let mut base = Tree::default();
    let public = file(&mut base, ROOT, "public", (ANN, 0o644));
    let shut = directory(&mut base, ROOT, "shut", (ANN, 0o700));
    file(&mut base, shut, "kept", (ANN, 0o644));
    link(&mut base, public, shut, "linked");
    let below = directory(&mut base, shut, "below", (ANN, 0o755));
    let changed = file(&mut base, below, "changed", (ANN, 0o644));
    file(&mut base, below, "kept", (ANN, 0o644));
    let deep = directory(&mut base, shut, "deep", (ANN, 0o755));
    directory(&mut base, deep, "deeper", (ANN, 0o755));
    file(&mut base, deep, "kept", (ANN, 0o644));
    let other = directory(&mut base, ROOT, "other", (ANN, 0o700));
    file(&mut base, other, "moved", (ANN, 0o644));
    file(&mut base, other, "kept", (ANN, 0o644));
    add(&mut base, other, "link", NewInode::Symlink(b"target".to_vec()), (ANN, 0o777));
    let mut proposed = base.clone();
    write(&mut proposed, changed, 0, b"changed");
    file(&mut proposed, shut, "new", (ANN, 0o600));
    rename(&mut proposed, (other, "moved"), (shut, "moved"));
    rename(&mut proposed, (other, "link"), (shut, "link"));
    let shown = proposed.for_reviewers(&base, ANN);
    assert_eq!(entries(&shown, "shut"), ["below", "link", "moved", "new"]);
    assert_eq!(entries(&shown, "shut/below"), ["changed"]);
    assert_eq!(entries(&shown, "other"), ["kept"]);
    for (path, mode) in [
        ("shut", 0o555),
        ("shut/new", 0o444),
        ("shut/below", 0o555),
        ("shut/below/changed", 0o444),
        // It was read by nobody where it was, and moving it opens it to nobody.
        ("shut/moved", 0),
        ("shut/link", 0),
        ("other", 0o700),
        ("other/kept", 0o644),
        ("public", 0o644),
    ] {
        assert_eq!(at(&shown, path), (ANN, mode), "{path}");
    }
    assert_eq!(shown.node(public).unwrap().nlink(), 1);
    // Nothing of what is left out is there under its number either.
    assert_eq!(shown.inodes().count(), 10);
    assert_eq!(shown.totals(), added_up(&shown));
}

#[test]
fn what_was_only_moved_or_linked_is_opened_to_nobody() {
    let mut base = Tree::default();
    let private = file(&mut base, ROOT, "private", (ANN, 0o600));
    let shut = directory(&mut base, ROOT, "shut", (ANN, 0o700));
    file(&mut base, shut, "inner", (ANN, 0o644));
    let mut proposed = base.clone();
    rename(&mut proposed, (ROOT, "shut"), (ROOT, "renamed"));
    rename(&mut proposed, (ROOT, "private"), (ROOT, "moved"));
    link(&mut proposed, private, ROOT, "linked");
    let shown = proposed.for_reviewers(&base, ANN);
    let modes = ["moved", "linked", "renamed", "renamed/inner"].map(|path| at(&shown, path).1);
    assert_eq!(modes, [0o600, 0o600, 0o700, 0o644]);
    // Its owner may open it after all.
    let attrs = Attrs { mode: Some(0o640), ..Attrs::default() };
    proposed.apply(&FileOp::SetAttr { inode: private, attrs }, Time(9001), &NoPacks).unwrap();
    assert_eq!(at(&proposed.for_reviewers(&base, ANN), "moved"), (ANN, 0o444));
}

/// A pull may give a file another number than the parent has it under.
#[test]
fn a_file_is_known_again_under_another_number_and_name() {
    let (mut base, mut proposed) = (Tree::default(), Tree::default());
    let add = |tree: &mut Tree, text: &[u8], born: i64| {
        let (name, make) = (name(text), NewInode::File);
        let op = FileOp::Create { parent: ROOT, name, make, mode: 0o600, uid: ANN, gid: ANN };
        tree.apply(&op, Time(born), &NoPacks).unwrap().inode
    };
    add(&mut base, b"other", 5);
    assert_ne!(add(&mut base, b"private", 6), add(&mut proposed, b"moved", 6));
    add(&mut proposed, b"new", 7);
    let shown = proposed.for_reviewers(&base, ANN);
    assert_eq!((at(&shown, "moved").1, at(&shown, "new").1), (0o600, 0o444));
}
