//! Merging trees: each test makes a base, changes it on two sides and looks at the result.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::test_files::{TestFiles, listing};
use super::tests::Chance;
use super::{FileMerge, FilePlan, Loser, MergeAll, MergeTrees, Rules, Side, Strategy, plan_files};
use crate::object::{Reader, Time, Writer};
use crate::workspace::{FileNode, FileOp, NewInode, NoPacks, RenameMode, Tree, TreePatch};

const RULES: &str = "tmp/** never\n*.bin whole\n*.log union id\n** text";

pub(super) fn plan_by(
    rules: &str,
    base: &TestFiles,
    child: &TestFiles,
    parent: &TestFiles,
    strategy: Strategy,
    chosen: Option<Side>,
) -> FilePlan {
    let trees = MergeTrees { base: &base.tree, child: &child.tree, parent: &parent.tree };
    let (rules, time) = (Rules::parse(rules).unwrap(), Time(1_000_000));
    let file_merge = FileMerge {
        rules: &rules,
        strategy,
        resolved: &|_| chosen,
        packs: &NoPacks,
        merger: &MergeAll,
        paths_max: usize::MAX,
        time,
        new_owner: None,
        guard: None,
        writes: true,
    };
    let plan = plan_files(trees, &file_merge).unwrap();
    same_kind(&plan, &plan_files(trees, &file_merge).unwrap(), "a plan is the same each time");
    let decided = super::plan::plan_by(trees, &file_merge, |_, _| None).unwrap();
    same_kind(&plan, &decided, "what the child alone changed needs no decision");
    let mut bytes = Writer::new();
    plan.patch.write(&mut bytes);
    let patch = TreePatch::read(&mut Reader::new(bytes.as_slice())).unwrap();
    assert_eq!(patch, plan.patch);
    same_tree(
        &plan.tree,
        &trees.parent.apply_patch(&patch, trees.child, time, &NoPacks).unwrap(),
        "the patch makes the tree",
    );
    plan
}

fn same_kind(one: &FilePlan, other: &FilePlan, why: &str) {
    assert_eq!((&one.both_changed, &one.losers), (&other.both_changed, &other.losers), "{why}");
    assert_eq!(
        (&one.fallbacks, &one.removed, one.changed_files),
        (&other.fallbacks, &other.removed, other.changed_files),
        "{why}"
    );
    same_tree(&one.tree, &other.tree, why);
}

fn same_tree(one: &Tree, other: &Tree, why: &str) {
    assert_eq!(one.hash(), other.hash(), "{why}");
    assert_eq!((one.next_inode(), one.totals()), (other.next_inode(), other.totals()), "{why}");
    for changed in one.changed_nodes(other) {
        let owners = (changed.old.map(|node| one.owner(node)), changed.new.map(|node| other.owner(node)));
        assert_eq!(owners.0, owners.1, "{why}");
        let [one, other] = [changed.old, changed.new].map(Option::unwrap);
        let attributes = |node: &FileNode| (node.mode, node.gid, node.hash());
        let times = |node: &FileNode| [node.atime, node.mtime, node.ctime, node.crtime];
        assert_eq!((attributes(one), times(one)), (attributes(other), times(other)), "{why}");
        assert!(one.names().eq(other.names()) && one.xattrs().eq(other.xattrs()), "{why}");
    }
    // What is known of the hashes of others was made use of, and led to the same.
    let mut anew = Tree::default();
    anew = anew.with_delta(&one.delta_from(&anew).unwrap()).unwrap();
    assert_eq!(anew.hash(), one.hash(), "{why}");
}

fn plan(base: &TestFiles, child: &TestFiles, parent: &TestFiles, strategy: Strategy) -> FilePlan {
    plan_by(RULES, base, child, parent, strategy, None)
}

/// Merges and compares with what is expected, whatever the strategy; there must be no conflict.
fn clean(base: &TestFiles, child: &TestFiles, parent: &TestFiles, expect: &[(&str, &str)]) {
    for strategy in Strategy::ALL {
        let plan = plan(base, child, parent, strategy);
        assert_eq!(conflicts(&plan), [], "{strategy}");
        assert_eq!(plan.losers, []);
        assert_eq!(shown(&plan.tree), expect);
    }
}

fn shown(tree: &Tree) -> Vec<(&'static str, &'static str)> {
    let leak = |text: String| -> &'static str { text.leak() };
    listing(tree).into_iter().map(|(path, text)| (leak(path), leak(text))).collect()
}

pub(super) fn conflicts(plan: &FilePlan) -> Vec<(String, Option<Side>)> {
    plan.conflicts().map(|it| (String::from_utf8_lossy(&it.path).into_owned(), it.decision)).collect()
}

/// A base with a directory and two files, and both sides, the parent the later one.
fn three() -> [TestFiles; 3] {
    let mut base = TestFiles::new();
    base.mkdir("d").write("a", "1\n2\n3\n4\n").write("d/b", "b\n");
    let (child, parent) = (base.later(100), base.later(200));
    [base, child, parent]
}

const A: (&str, &str) = ("a", "1\n2\n3\n4\n");
const B: (&str, &str) = ("d/b", "b\n");
const D: (&str, &str) = ("d/", "");

#[test]
fn changes_of_one_side_are_taken() {
    let [base, mut child, mut parent] = three();
    child.write("new", "n").mkdir("e").write("e/x", "x").rm("d/b");
    parent.write("a", "parent");
    clean(&base, &child, &parent, &[("a", "parent"), D, ("e/", ""), ("e/x", "x"), ("new", "n")]);
    let plan = plan(&base, &child, &parent, Strategy::Manual);
    assert_eq!((plan.changed_files, plan.both_changed.len(), plan.removed.len()), (3, 0, 1));
}

#[test]
fn contents_that_both_changed_merge_by_their_kind() {
    let [base, mut child, mut parent] = three();
    child.write("a", "one\n2\n3\n4\n").write("x.log", "{\"id\":1}\n");
    parent.save("a", "1\n2\n3\nfour\n").write("x.log", "{\"id\":2}\n");
    clean(&base, &child, &parent, &[("a", "one\n2\n3\nfour\n"), D, B, ("x.log", "{\"id\":2}\n{\"id\":1}\n")]);
    let plan = plan(&base, &child, &parent, Strategy::Manual);
    assert_eq!((plan.changed_files, plan.both_changed.len()), (2, 2));
    assert!(plan.both_changed.iter().all(|it| it.decision == Some(Side::Both)));
}

#[test]
fn a_conflict_is_decided_by_strategy_time_or_hand() {
    let [base, mut child, mut parent] = three();
    child.write("a", "child\n").mkdir("c");
    parent.write("a", "parent\n");
    for (strategy, chosen, winner, text) in [
        (Strategy::ChildWins, None, Some(Side::Child), "child\n"),
        (Strategy::ParentWins, None, Some(Side::Parent), "parent\n"),
        (Strategy::NewestWins, None, Some(Side::Parent), "parent\n"),
        (Strategy::Manual, Some(Side::Child), Some(Side::Child), "child\n"),
        (Strategy::Manual, Some(Side::Parent), Some(Side::Parent), "parent\n"),
    ] {
        let plan = plan_by(RULES, &base, &child, &parent, strategy, chosen);
        assert_eq!(conflicts(&plan), [("a".into(), winner)]);
        assert_eq!(shown(&plan.tree), [("a", text), ("c/", ""), D, B]);
        assert_eq!(plan.losers.len(), 1);
        let hashes = &plan.both_changed[0];
        assert_eq!(hashes.child, child.tree.node_hash(child.tree.resolve(b"a").unwrap()));
        assert!(hashes.base.is_some() && hashes.parent.is_some() && hashes.base != hashes.parent);
    }
    let newest = plan_by("* newest", &base, &child, &parent, Strategy::ChildWins, None);
    assert_eq!(conflicts(&newest), [("a".into(), Some(Side::Parent))], "whatever the branch says");
    let plan = plan(&base, &child, &parent, Strategy::Manual);
    assert!(plan.is_blocked());
    assert_eq!((conflicts(&plan), plan.tree.hash()), (vec![("a".into(), None)], parent.tree.hash()));
}

#[test]
fn a_rename_and_a_change_both_apply() {
    let [base, mut child, mut parent] = three();
    child.mv("a", "d/z").mv("d", "e");
    parent.write("a", "changed").write("d/b", "B\n").write("d/new", "n");
    clean(&base, &child, &parent, &[("e/", ""), ("e/b", "B\n"), ("e/new", "n"), ("e/z", "changed")]);
    clean(&base, &parent, &child, &[("e/", ""), ("e/b", "B\n"), ("e/new", "n"), ("e/z", "changed")]);
    let inode = |files: &TestFiles, path: &[u8]| files.tree.resolve(path).unwrap();
    let plan = plan(&base, &child, &parent, Strategy::Manual);
    assert_eq!(plan.tree.resolve(b"e/z").unwrap(), inode(&parent, b"a"), "a moved file keeps its inode");
}

/// As savers replace a file. What both sides added at one path has no base.
#[test]
fn a_file_that_another_was_renamed_over_is_the_same_and_so_are_two_that_were_added_at_one_path() {
    let [base, mut child, mut parent] = three();
    child.write(".a.tmp", "changed").mv(".a.tmp", "a").write("new", "child");
    parent.mv("a", "z").write("new", "parent");
    for (strategy, new) in [(Strategy::ChildWins, "child"), (Strategy::ParentWins, "parent")] {
        let plan = plan(&base, &child, &parent, strategy);
        let shown = listing(&plan.tree);
        let found: Vec<(&str, &str)> = shown.iter().map(|(path, bytes)| (&**path, &**bytes)).collect();
        assert_eq!(found, [D, ("d/b", "b\n"), ("new", new), ("z", "changed")]);
        let [decision] = &plan.both_changed.iter().filter(|it| &*it.path == b"new").collect::<Vec<_>>()[..] else {
            panic!()
        };
        assert!(decision.base.is_none());
    }
}

#[test]
fn files_that_change_places_do_so() {
    let [base, mut child, mut parent] = three();
    child.mv("a", "t").mv("d/b", "a").mv("t", "d/b");
    parent.write("a", "A");
    clean(&base, &child, &parent, &[("a", "b\n"), D, ("d/b", "A")]);
    // The names that files have meanwhile may be taken.
    parent.write(".moving-0", "p").write(".moving-1", "p");
    let taken = [(".moving-0", "p"), (".moving-1", "p")];
    clean(&base, &child, &parent, &[&taken[..], &[("a", "b\n"), D, ("d/b", "A")]].concat());
    parent.rm(".moving-0").rm(".moving-1");
    let mut child = base.later(100);
    child.mkdir("x").mv("d", "x/d").mv("x", "d");
    clean(&base, &child, &parent, &[("a", "A"), ("d/", ""), ("d/d/", ""), ("d/d/b", "b\n")]);
}

#[test]
fn two_new_names_for_one_file_are_a_conflict() {
    let [base, mut child, mut parent] = three();
    child.mv("a", "c");
    parent.mv("a", "p");
    for (strategy, winner, name) in [(Strategy::ChildWins, Side::Child, "c"), (Strategy::ParentWins, Side::Parent, "p")]
    {
        let plan = plan(&base, &child, &parent, strategy);
        assert_eq!(conflicts(&plan), [("c".into(), Some(winner))]);
        let mut expect = vec![(name, A.1), D, B];
        expect.sort();
        assert_eq!(shown(&plan.tree), expect);
    }
    assert!(plan(&base, &child, &parent, Strategy::Manual).is_blocked());
    parent.mv("p", "c");
    clean(&base, &child, &parent, &[("c", A.1), D, B]);
}

#[test]
fn a_delete_against_a_change_is_a_conflict() {
    let [base, mut child, mut parent] = three();
    child.rm("a").write("d/b", "changed");
    parent.write("a", "changed").rm("d/b");
    for (strategy, expect) in [
        (Strategy::ChildWins, vec![D, ("d/b", "changed")]),
        (Strategy::ParentWins, vec![("a", "changed"), D]),
        (Strategy::NewestWins, vec![("a", "changed"), D]),
    ] {
        let plan = plan(&base, &child, &parent, strategy);
        assert_eq!(plan.conflicts().count(), 2);
        assert_eq!(shown(&plan.tree), expect, "{strategy}");
        assert_eq!(plan.losers.len(), 1, "a delete leaves nothing to keep");
    }
    assert!(plan(&base, &child, &parent, Strategy::Manual).is_blocked());
    let plan = plan(&base, &parent, &child, Strategy::NewestWins);
    assert_eq!(shown(&plan.tree), [("a", "changed"), D], "by time from the other side, too");
    let [base, mut child, mut parent] = three();
    child.rm("a");
    parent.rm("a");
    clean(&base, &child, &parent, &[D, B]);
}

#[test]
fn modes_and_attributes_merge_apart_from_content() {
    let [base, mut child, mut parent] = three();
    child.chmod("a", 0o755).tag("a", "user.x", "c").write("d/b", "B").chmod("d", 0o700);
    parent.write("a", "changed").tag("a", "user.y", "p").tag("a", "security.z", "p").chmod("d/b", 0o600);
    clean(&base, &child, &parent, &[("a", "changed"), D, ("d/b", "B")]);
    let plan = plan(&base, &child, &parent, Strategy::Manual);
    let node = |path: &[u8]| plan.tree.node(plan.tree.resolve(path).unwrap()).unwrap().clone();
    assert_eq!((node(b"a").mode, node(b"d/b").mode, node(b"d").mode), (0o755, 0o600, 0o700));
    let tags: Vec<&[u8]> = node(b"a").xattrs().map(|(name, _)| name.to_vec().leak() as &[u8]).collect();
    assert_eq!(tags, [&b"security.z"[..], b"user.x", b"user.y"]);
}

#[test]
fn two_modes_of_one_file_are_a_conflict() {
    let [base, mut child, mut parent] = three();
    child.chmod("a", 0o700).write("a", "1\n2\n3\nchild\n");
    parent.chmod("a", 0o600);
    for (strategy, mode) in [(Strategy::ChildWins, 0o700), (Strategy::ParentWins, 0o600)] {
        let plan = plan(&base, &child, &parent, strategy);
        let node = plan.tree.node(plan.tree.resolve(b"a").unwrap()).unwrap();
        assert_eq!((node.mode, plan.conflicts().count()), (mode, 1));
        assert_eq!(listing(&plan.tree)["a"], "1\n2\n3\nchild\n", "the content is no conflict");
    }
}

/// The child changes `a` first and the parent later; where the contents differ, only the child has written one.
#[test]
fn the_later_write_counts_where_contents_differ_and_the_later_change_elsewhere() {
    let [base, mut child, mut parent] = three();
    child.chmod("a", 0o700).tag("a", "user.x", "child");
    parent.chmod("a", 0o600).tag("a", "user.x", "parent");
    for (is_written, winner, mode) in [(false, Side::Parent, 0o600), (true, Side::Child, 0o700)] {
        if is_written {
            child.write("a", "child");
        }
        let plan = plan(&base, &child, &parent, Strategy::NewestWins);
        assert_eq!(conflicts(&plan), [("a".into(), Some(winner))]);
        let node = plan.tree.node(plan.tree.resolve(b"a").unwrap()).unwrap();
        let word: &[u8] = if is_written { b"child" } else { b"parent" };
        assert_eq!((node.mode, node.xattr(b"user.x")), (mode, Some(word)));
    }
}

#[test]
fn a_directory_follows_what_is_in_it() {
    let [base, mut child, mut parent] = three();
    child.rm("d/b").rmdir("d");
    parent.write("d/new", "n");
    clean(&base, &child, &parent, &[A, D, ("d/new", "n")]);
    clean(&base, &parent, &child, &[A, D, ("d/new", "n")]);
    let [base, mut child, mut parent] = three();
    child.mkdir("new").mkdir("new/in").write("new/in/c", "c");
    parent.mkdir("new").write("new/p", "p");
    let expect = [A, D, B, ("new/", ""), ("new/in/", ""), ("new/in/c", "c"), ("new/p", "p")];
    clean(&base, &child, &parent, &expect);
    clean(&base, &parent, &child, &expect);
}

#[test]
fn two_things_at_one_name_are_a_conflict() {
    let [base, mut child, mut parent] = three();
    child.mkdir("x").write("x/c", "c").mv("a", "y");
    parent.write("x", "file").write("y", "other");
    for (strategy, expect) in [
        (Strategy::ChildWins, vec![D, B, ("x/", ""), ("x/c", "c"), ("y", A.1)]),
        (Strategy::ParentWins, vec![A, D, B, ("x", "file"), ("y", "other")]),
    ] {
        let plan = plan(&base, &child, &parent, strategy);
        assert_eq!(shown(&plan.tree), expect, "{strategy}");
        assert!(plan.conflicts().count() >= 2 && !plan.losers.is_empty());
    }
    assert!(plan(&base, &child, &parent, Strategy::Manual).is_blocked());
    // A directory that holds something is not removed for a name.
    let plan = plan(&base, &parent, &child, Strategy::ChildWins);
    assert_eq!(listing(&plan.tree)["x/c"], "c");
    assert!(plan.losers.iter().any(|lost| lost.path == b"x" && lost.what == Loser::File(Side::Child)));
}

#[test]
fn a_directory_comes_back_in_place_of_a_file_where_the_strategy_says_so() {
    let [base, mut child, mut parent] = three();
    child.write("d/c", "c").write("d/e", "e");
    parent.rm("d/b").rmdir("d").write("d", "file");
    let (with_child, with_parent) = (vec![A, D, ("d/c", "c"), ("d/e", "e")], vec![A, ("d", "file")]);
    for (strategy, chosen, decision) in [
        (Strategy::ChildWins, None, Some(Side::Child)),
        (Strategy::ParentWins, None, Some(Side::Parent)),
        (Strategy::NewestWins, None, Some(Side::Parent)),
        (Strategy::Manual, Some(Side::Child), Some(Side::Child)),
        (Strategy::Manual, Some(Side::Parent), Some(Side::Parent)),
        (Strategy::Manual, None, None),
    ] {
        let plan = plan_by(RULES, &base, &child, &parent, strategy, chosen);
        assert_eq!(conflicts(&plan)[0], ("d".into(), decision), "{strategy}");
        let is_childs = decision == Some(Side::Child);
        assert_eq!(shown(&plan.tree), if is_childs { &with_child[..] } else { &with_parent }, "{strategy}");
        // The file goes, and two come, where it is the child's; else what is below is refused as well.
        let expected = if is_childs { (1, 3) } else { (3, 0) };
        assert_eq!((conflicts(&plan).len(), plan.changed_files), expected, "{strategy}");
    }
    let mut later = base.later(300);
    later.write("d/c", "c").write("d/e", "e");
    assert_eq!(shown(&plan(&base, &later, &parent, Strategy::NewestWins).tree), with_child);
}

#[test]
fn directories_moved_into_each_other_stay_with_the_parent() {
    let [mut base, ..] = three();
    base.mkdir("e");
    let (mut child, mut parent) = (base.later(1), base.later(2));
    child.mv("d", "e/d");
    parent.mv("e", "d/e");
    let plan = plan(&base, &child, &parent, Strategy::ChildWins);
    assert_eq!(shown(&plan.tree), [A, D, B, ("d/e/", "")]);
    assert_eq!(conflicts(&plan), [("e/d".into(), Some(Side::Parent))]);
}

#[test]
fn links_and_binaries_are_whole_and_hard_links_survive() {
    let [mut base, ..] = three();
    base.make("s", NewInode::Symlink(b"base".to_vec()), 0o777).unwrap();
    base.link("a", "hard");
    let (mut child, mut parent) = (base.later(1), base.later(2));
    for (side, word) in [(&mut child, "child"), (&mut parent, "parent")] {
        side.rm("s").make("s", NewInode::Symlink(word.into()), 0o777).unwrap();
        side.write("x.bin", word);
    }
    child.link("a", "d/hard").write("new", "n").link("new", "d/new");
    parent.write("a", "changed");
    let plan = plan(&base, &child, &parent, Strategy::ChildWins);
    assert_eq!(conflicts(&plan).len(), 2);
    let list = listing(&plan.tree);
    assert_eq!((list["s"].as_str(), list["x.bin"].as_str()), ("-> child", "child"));
    assert_eq!((list["hard"].as_str(), list["d/hard"].as_str()), ("changed", "changed"));
    let inode = |path: &[u8]| plan.tree.resolve(path).unwrap();
    assert_eq!(inode(b"d/hard"), inode(b"a"));
    assert_eq!(inode(b"d/new"), inode(b"new"));
    assert_eq!(plan.tree.node(inode(b"a")).unwrap().nlink(), 3);
}

#[test]
fn paths_that_never_merge_stay_as_the_parent_has_them() {
    let [mut base, ..] = three();
    base.mkdir("tmp").write("tmp/x", "base").write("tmp/y", "base");
    let (mut child, mut parent) = (base.later(100), base.later(1));
    child.write("tmp/x", "child").write("tmp/new", "n").rm("tmp/y").mv("a", "tmp/a").mv("tmp/x", "x").mkdir("d/tmp");
    parent.write("tmp/x", "parent");
    clean(&base, &child, &parent, &[D, B, ("tmp/", ""), ("tmp/x", "parent"), ("tmp/y", "base"), ("x", "child")]);
}

#[test]
fn an_exception_inside_a_directory_that_never_merges_brings_the_directory() {
    let rules = "/tmp/keep whole\ntmp/** never";
    let [base, mut child, parent] = three();
    child.mkdir("tmp").write("tmp/keep", "k").write("tmp/drop", "d");
    let plan = plan_by(rules, &base, &child, &parent, Strategy::Manual, None);
    assert_eq!(shown(&plan.tree), [A, D, B, ("tmp/", ""), ("tmp/keep", "k")]);
}

#[test]
fn one_number_for_two_files_does_not_make_them_one() {
    let [base, mut child, mut parent] = three();
    child.write("c", "child").write("both", "c");
    parent.write("p", "parent").write("both", "p");
    let inode = |files: &TestFiles, path: &[u8]| files.tree.resolve(path).unwrap();
    assert_eq!(inode(&child, b"c"), inode(&parent, b"p"));
    let plan_for = |base: &TestFiles| plan(base, &child, &parent, Strategy::ChildWins);
    assert_eq!(shown(&plan_for(&base).tree), [A, ("both", "c"), ("c", "child"), D, B, ("p", "parent")]);
    // As after a rollback across a pull: the base has what the child does not come from.
    assert_eq!(shown(&plan_for(&parent).tree), [A, ("both", "c"), ("c", "child"), D, B]);
}

/// Does something at random.
fn shake(files: &mut TestFiles, chance: &mut Chance) {
    const PATHS: [&str; 9] = ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "c/a"];
    for _ in 0..chance.below(6) {
        let (path, other) = (*chance.pick(&PATHS.each_ref()), *chance.pick(&PATHS.each_ref()));
        let text = format!("{}\nsame\nsame\n{}\n", chance.below(3), chance.below(3));
        let _ = match chance.below(8) {
            0 => files.make(path, NewInode::Directory, 0o755),
            1 | 2 => files.make(path, NewInode::File, 0o644),
            3 => files.rename(path, other, RenameMode::Plain),
            4 => files.rename(path, other, RenameMode::Exchange),
            5 => files.place(path).and_then(|(parent, name)| files.apply(FileOp::Unlink { parent, name, keep: false })),
            6 => files.place(path).and_then(|(parent, name)| files.apply(FileOp::Rmdir { parent, name, keep: false })),
            _ => files
                .tree
                .resolve(path.as_bytes())
                .and_then(|inode| files.apply(FileOp::Write { inode, offset: 0, bytes: text.as_bytes().into() })),
        };
    }
}

#[test]
fn random_trees_merge_without_loss_of_what_one_side_alone_changed() {
    let mut chance = Chance(7);
    let (mut both, mut clean) = (0, 0);
    for round in 0..3_000 {
        let mut base = TestFiles::new();
        shake(&mut base, &mut chance);
        shake(&mut base, &mut chance);
        let (mut child, mut parent) = (base.later(100), base.later(110));
        shake(&mut child, &mut chance);
        let only_child = plan(&base, &child, &base, Strategy::Manual);
        assert!(
            !only_child.is_blocked(),
            "round {round}: {:?} {:?} {:?}",
            listing(&base.tree),
            listing(&child.tree),
            only_child.both_changed
        );
        assert_eq!(listing(&only_child.tree), listing(&child.tree), "round {round}");
        assert_eq!(only_child.tree.hash(), child.tree.hash());
        shake(&mut parent, &mut chance);
        assert_eq!(plan(&base, &base, &parent, Strategy::Manual).tree.hash(), parent.tree.hash());
        for strategy in Strategy::ALL {
            let merged = plan(&base, &child, &parent, strategy);
            both += usize::from(merged.both_changed.is_empty());
            if strategy != Strategy::Manual {
                assert!(!merged.is_blocked());
            }
            let no_room = listing(&merged.tree).keys().all(|path| !path.starts_with(".moving"));
            assert!(no_room, "round {round}");
            let orphans: Vec<u64> = merged.tree.orphans().collect();
            assert!(
                orphans.iter().all(|inode| merged.removed.contains(inode)) && orphans.len() == merged.removed.len()
            );
            let other = plan(&base, &parent, &child, strategy);
            if merged.conflicts().next().is_none() && other.conflicts().next().is_none() {
                clean += 1;
                assert_eq!(listing(&merged.tree), listing(&other.tree), "round {round}: from either side");
            }
        }
    }
    assert!(both > 1_000 && clean > 1_000, "{both} {clean}");
}
