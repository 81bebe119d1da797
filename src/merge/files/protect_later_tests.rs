//! What stays closed to the owner of a branch over more than one merge.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::protect_tests::{file, fork, merged, set, write};
use super::test_files::TestFiles;
use super::{GuardScope, Strategy};
use crate::workspace::NoPacks;

/// A third user, whose files stay theirs in Ann's branch.
const BEA: u32 = 1002;

/// Pulls into files what a parent has, over the strategy by which its side wins.
fn pulled(base: &TestFiles, parent: &TestFiles, own: &TestFiles) -> TestFiles {
    let plan = merged(base, parent, own, Strategy::ChildWins, GuardScope::Files);
    assert!(!plan.is_blocked());
    TestFiles::from_tree(&plan.tree)
}

/// A pull that brings a mode alone closes a file that Ann has open, and the next one brings a secret into it.
#[test]
fn a_handle_from_before_a_file_was_closed_shows_nothing_of_what_comes_later() {
    for kept in ["known", "the branch's"] {
        let mut base = TestFiles::new();
        write(&mut base, "a", "known", BEA, 0o644);
        base.tag("a", "user.note", "known").link("a", "b");
        let (mut own, mut parent) = (fork(&base), base.later(200));
        if kept != "known" {
            own.write("a", kept);
        }
        let held = own.tree.resolve(b"a").unwrap();
        parent.chmod("a", 0o600);
        let closed = pulled(&base, &parent, &own);
        assert_eq!(file(&closed.tree, "a"), (BEA, BEA, 0o600, kept.into()));
        let node = closed.tree.node(closed.tree.resolve(b"a").unwrap()).unwrap();
        assert_eq!(node.xattr(b"user.note"), Some(&b"known"[..]));
        let mut later = parent.later(300);
        later.write("a", "secret");
        let told = pulled(&parent, &later, &closed);
        assert_eq!(file(&told.tree, "b"), (BEA, BEA, 0o600, "secret".into()), "{kept}");
        assert_ne!(told.tree.resolve(b"b").unwrap(), held, "{kept}");
        assert_eq!(told.tree.resolve(b"a").unwrap(), told.tree.resolve(b"b").unwrap(), "hard links stay hard links");
        assert_eq!(told.tree.node(held).unwrap().read(0, 100, &NoPacks).unwrap(), kept.as_bytes());
    }
}

/// The parent moves a file into a folder that is closed, which the branch has moved out of that.
#[test]
fn a_handle_on_a_file_that_is_closed_for_its_new_place_shows_nothing_of_what_comes_later() {
    let mut base = TestFiles::new();
    base.mkdir("d").mkdir("d/in").write("f", "known");
    for (path, mode) in [("d", 0o755), ("d/in", 0o755), ("f", 0o644)] {
        set(&mut base, path, 0, mode);
    }
    let (mut own, mut parent) = (fork(&base), base.later(200));
    own.mv("d/in", "out");
    let held = own.tree.resolve(b"f").unwrap();
    set(&mut parent, "d", 0, 0o700);
    parent.mv("f", "d/in/f");
    let closed = pulled(&base, &parent, &own);
    assert_eq!(file(&closed.tree, "out/f"), (0, 0, 0o600, "known".into()));
    let mut later = parent.later(300);
    later.write("d/in/f", "secret");
    let told = pulled(&parent, &later, &closed);
    assert_eq!(file(&told.tree, "out/f"), (0, 0, 0o600, "secret".into()));
    assert_ne!(told.tree.resolve(b"out/f").unwrap(), held);
}
