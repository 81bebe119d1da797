//! What a merge of trees keeps closed to the owner of the branch that receives.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::test_files::TestFiles;
use super::{
    FileMerge, FilePlan, GuardScope, Loser, MergeAll, MergeTrees, NewOwner, ReaderGuard, Rules, Side, Strategy,
    plan_files,
};
use crate::object::Time;
use crate::workspace::{Attrs, FileOp, NoPacks, Tree};

/// The owner of the branch that receives.
pub(super) const ANN: u32 = 1000;

/// Gives a file to a user, with a mode.
pub(super) fn set(files: &mut TestFiles, path: &str, uid: u32, mode: u32) {
    let inode = files.tree.resolve(path.as_bytes()).unwrap();
    let attrs = Attrs { mode: Some(mode), uid: Some(uid), gid: Some(uid), ..Attrs::default() };
    files.apply(FileOp::SetAttr { inode, attrs }).unwrap();
}

pub(super) fn write(files: &mut TestFiles, path: &str, text: &str, uid: u32, mode: u32) {
    files.write(path, text);
    set(files, path, uid, mode);
}

/// Merges what a side gives into Ann's files, and checks that the log holds it.
pub(super) fn merged(
    base: &TestFiles,
    giver: &TestFiles,
    own: &TestFiles,
    strategy: Strategy,
    scope: GuardScope,
) -> FilePlan {
    merged_by("*.log union id\n** text", [base, giver, own], strategy, scope)
}

/// The same by rules.
pub(super) fn merged_by(
    rules: &str,
    [base, giver, own]: [&TestFiles; 3],
    strategy: Strategy,
    scope: GuardScope,
) -> FilePlan {
    let trees = MergeTrees { base: &base.tree, child: &giver.tree, parent: &own.tree };
    let rules = Rules::parse(rules).unwrap();
    let time = Time(1_000_000);
    let how = FileMerge {
        rules: &rules,
        strategy,
        resolved: &|_| None,
        packs: &NoPacks,
        merger: &MergeAll,
        paths_max: usize::MAX,
        time,
        new_owner: (scope == GuardScope::Files).then(|| NewOwner::for_transfer(ANN, 0, true)),
        guard: Some(ReaderGuard { uid: ANN, scope }),
        writes: false,
    };
    let plan = plan_files(trees, &how).unwrap();
    let replayed = own.tree.apply_patch(&plan.patch, &giver.tree, time, &NoPacks).unwrap();
    assert_eq!(replayed.hash(), plan.tree.hash());
    assert!(replayed.inodes().eq(plan.tree.inodes()));
    for inode in replayed.inodes() {
        let [one, other] = [&replayed, &plan.tree].map(|tree| {
            let node = tree.node(inode).unwrap();
            (tree.owner(node), node.gid, node.mode)
        });
        assert_eq!(one, other, "owners are replayed, too");
    }
    plan
}

/// Owner, group, mode and text of a file.
pub(super) fn file(tree: &Tree, path: &str) -> (u32, u32, u32, String) {
    let node = tree.node(tree.resolve(path.as_bytes()).unwrap()).unwrap();
    let text = node.read(0, 1 << 20, &NoPacks).unwrap();
    (tree.owner(node), node.gid, node.mode, String::from_utf8(text).unwrap())
}

/// `private` of root, which Ann replaced by her own.
fn replaced_by_anns(path: &str, text: &str) -> [TestFiles; 2] {
    let mut base = TestFiles::new();
    write(&mut base, path, "", 0, 0o600);
    let mut own = base.later(100);
    own.rm(path);
    write(&mut own, path, text, ANN, 0o644);
    [base, own]
}

#[test]
fn content_that_is_closed_comes_with_its_owner_group_and_mode() {
    let [base, own] = replaced_by_anns("a", "ann's\n");
    let mut giver = base.later(200);
    write(&mut giver, "a", "secret\n", 0, 0o600);
    let plan = merged(&base, &giver, &own, Strategy::ChildWins, GuardScope::Files);
    assert_eq!(file(&plan.tree, "a"), (0, 0, 0o600, "secret\n".into()));
    // A handle on Ann's file goes on to show that.
    let old = own.tree.resolve(b"a").unwrap();
    assert_eq!(plan.removed, [old]);
    assert_eq!(plan.tree.node(old).unwrap().read(0, 100, &NoPacks).unwrap(), b"ann's\n");
    assert_eq!(plan.conflicts().map(|conflict| conflict.decision).collect::<Vec<_>>(), [Some(Side::Child)]);
    let kept = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!(file(&kept.tree, "a"), (ANN, ANN, 0o644, "ann's\n".into()), "nothing of it came");
    // Merged again it changes nothing, and back it takes nothing from root.
    let again = merged(&giver, &giver, &TestFiles::from_tree(&plan.tree), Strategy::ChildWins, GuardScope::Files);
    assert!(again.patch.changes.is_empty());
    let back = merged(&giver, &TestFiles::from_tree(&plan.tree), &giver, Strategy::ChildWins, GuardScope::Plan);
    assert!(back.patch.changes.is_empty());
}

#[test]
fn a_part_of_a_closed_file_closes_what_it_comes_into() {
    for (mode, expected) in [(0o600, 0o600), (0o640, 0o640), (0o4711, 0o711)] {
        let [base, own] = replaced_by_anns("a.log", "{\"id\":1}\n");
        let mut giver = base.later(200);
        write(&mut giver, "a.log", "{\"id\":2}\n", 0, mode);
        let plan = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
        let text = "{\"id\":1}\n{\"id\":2}\n";
        assert_eq!(file(&plan.tree, "a.log"), (0, 0, expected, text.into()), "{mode:o}");
        assert_ne!(plan.tree.resolve(b"a.log").unwrap(), own.tree.resolve(b"a.log").unwrap());
    }
    // An attribute is a part of it, too.
    let [mut base, _] = replaced_by_anns("a", "");
    set(&mut base, "a", ANN, 0o644);
    let (own, mut giver) = (base.later(100), base.later(200));
    giver.tag("a", "user.note", "secret");
    set(&mut giver, "a", 0, 0o600);
    let plan = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!(file(&plan.tree, "a"), (0, 0, 0o600, String::new()));
}

#[test]
fn an_attribute_alone_leaves_a_closed_program_its_rights_unless_it_is_another_one() {
    for (uid, mode, text, expected) in
        [(0, 0o4700, "a program\n", 0o4700), (ANN, 0o644, "a program\n", 0o4700), (ANN, 0o644, "ann's\n", 0o700)]
    {
        let mut base = TestFiles::new();
        write(&mut base, "tool", "a program\n", uid, mode);
        let (mut own, mut giver) = (base.later(100), base.later(200));
        write(&mut own, "tool", text, uid, mode);
        set(&mut giver, "tool", 0, 0o4700);
        giver.tag("tool", "user.note", "secret");
        let plan = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
        assert_eq!(file(&plan.tree, "tool"), (0, 0, expected, text.into()));
        let node = plan.tree.node(plan.tree.resolve(b"tool").unwrap()).unwrap();
        assert!(node.xattr(b"user.note").is_some());
    }
}

#[test]
fn what_anybody_could_read_or_is_anns_changes_no_owner() {
    for (uid, mode) in [(0, 0o644), (ANN, 0o600), (ANN, 0o644)] {
        let [base, own] = replaced_by_anns("a", "ann's\n");
        let mut giver = base.later(200);
        write(&mut giver, "a", "told\n", uid, mode);
        let plan = merged(&base, &giver, &own, Strategy::ChildWins, GuardScope::Files);
        assert_eq!(file(&plan.tree, "a").0, ANN, "{uid} {mode:o}");
        assert_eq!(plan.tree.resolve(b"a").unwrap(), own.tree.resolve(b"a").unwrap(), "it is the same file");
    }
}

#[test]
fn a_file_that_was_open_at_the_fork_is_closed_with_its_next_content() {
    let mut base = TestFiles::new();
    base.write("a", "known\n");
    base.link("a", "b");
    set(&mut base, "a", 0, 0o644);
    let mut own = base.later(100);
    own.tree.transfer_owner(0, ANN);
    let mut giver = base.later(200);
    set(&mut giver, "a", 0, 0o600);
    let closed = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!(file(&closed.tree, "a").0, ANN, "a mode alone brings nothing");
    giver.write("a", "secret\n");
    let plan = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    for path in ["a", "b"] {
        assert_eq!(file(&plan.tree, path), (0, 0, 0o600, "secret\n".into()), "{path}");
    }
    assert_eq!(plan.tree.resolve(b"a").unwrap(), plan.tree.resolve(b"b").unwrap(), "hard links stay hard links");
    // From then on root's file changes in its place.
    let mut later = giver.later(300);
    later.write("a", "more\n");
    let own = TestFiles::from_tree(&plan.tree);
    let next = merged(&giver, &later, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!(file(&next.tree, "b"), (0, 0, 0o600, "more\n".into()));
    assert_eq!(next.tree.resolve(b"b").unwrap(), plan.tree.resolve(b"b").unwrap());
}

#[test]
fn lines_of_a_closed_file_that_lose_are_counted_and_not_told() {
    let [base, mut own] = replaced_by_anns("a.log", "");
    let mut giver = base.later(50);
    write(&mut giver, "a.log", "{\"id\":1,\"v\":\"secret\"}\n", 0, 0o600);
    own.write("a.log", "{\"id\":1,\"v\":\"ann\"}\n");
    for scope in [GuardScope::Plan, GuardScope::Files] {
        let plan = merged(&base, &giver, &own, Strategy::ParentWins, scope);
        assert_eq!(plan.losers.iter().map(|lost| &lost.what).collect::<Vec<_>>(), [&Loser::ClosedPart(Side::Child)]);
    }
    set(&mut giver, "a.log", 0, 0o644);
    let told = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert!(matches!(told.losers[..], [super::FileLoser { what: Loser::Part { .. }, .. }]));
}

/// An entry is read by all who may read the branch, so it doesn't matter whose the file is.
#[test]
fn lines_of_a_file_that_not_everybody_may_read_are_counted_and_not_told() {
    let mut base = TestFiles::new();
    base.mkdir("d").write("d/a.log", "");
    set(&mut base, "d", ANN, 0o755);
    set(&mut base, "d/a.log", ANN, 0o644);
    let (mut giver, mut own) = (base.later(50), base.later(100));
    giver.write("d/a.log", "{\"id\":1,\"v\":\"secret\"}\n");
    own.write("d/a.log", "{\"id\":1,\"v\":\"own\"}\n");
    let lost = |giver: &TestFiles, own: &TestFiles| {
        let plan = merged(&base, giver, own, Strategy::ParentWins, GuardScope::Plan);
        plan.losers.into_iter().map(|lost| lost.what).collect::<Vec<_>>()
    };
    assert!(matches!(lost(&giver, &own)[..], [Loser::Part { side: Side::Child, .. }]), "a control");
    // By another name anybody may read it.
    for (path, is_linked) in [("d/a.log", false), ("d", false), ("", false), ("d", true)] {
        for closed in [Side::Child, Side::Parent] {
            let (mut giver, mut own) = (giver.clone(), own.clone());
            let side = if closed == Side::Child { &mut giver } else { &mut own };
            side.chmod(path, 0o700);
            if is_linked {
                side.link("d/a.log", "open.log");
            }
            assert_eq!(lost(&giver, &own) == [Loser::ClosedPart(Side::Child)], !is_linked, "{path} {closed:?}");
        }
    }
}

/// A revert brings a mode of one time and leaves the content of another.
#[test]
fn a_mode_of_an_earlier_state_opens_no_content_that_came_later() {
    let mut before = TestFiles::new();
    write(&mut before, "a", "told\n", 0, 0o644);
    let mut after = before.later(100);
    set(&mut after, "a", 0, 0o600);
    let mut own = after.later(100);
    own.write("a", "secret\n");
    let plan = merged(&after, &before, &own, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!(file(&plan.tree, "a"), (0, 0, 0o600, "secret\n".into()));
    assert_eq!(plan.conflicts().map(|conflict| conflict.decision).collect::<Vec<_>>(), [Some(Side::Parent)]);
    let undone = merged(&after, &before, &after, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!(file(&undone.tree, "a"), (0, 0, 0o644, "told\n".into()), "the content that the mode was for");
}

#[test]
fn an_earlier_state_brings_no_closed_content_and_gives_back_what_was_anns() {
    let [base, own] = replaced_by_anns("a", "ann's\n");
    let back = merged(&own, &base, &own, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!(file(&back.tree, "a"), (0, 0, 0o600, String::new()));
    let closed = TestFiles::from_tree(&back.tree);
    let again = merged(&closed, &own, &closed, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!(file(&again.tree, "a"), (ANN, ANN, 0o644, "ann's\n".into()));
}

/// Owner, group and mode of a directory.
pub(super) fn directory(tree: &Tree, path: &str) -> (u32, u32, u32) {
    let node = tree.node(tree.resolve(path.as_bytes()).unwrap()).unwrap();
    (tree.owner(node), node.gid, node.mode)
}

#[test]
fn what_comes_into_a_closed_folder_closes_the_one_that_is_there() {
    let mut base = TestFiles::new();
    base.mkdir("d");
    set(&mut base, "d", 0, 0o700);
    let (mut own, mut giver) = (base.later(100), base.later(200));
    own.rmdir("d").mkdir("d").mkdir("d/in");
    set(&mut own, "d", ANN, 0o755);
    write(&mut own, "d/own", "ann's", ANN, 0o644);
    let nothing = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!(directory(&nothing.tree, "d"), (ANN, ANN, 0o755), "nothing came into it");
    // Deeper, too, where both made the folder that it comes into.
    giver.mkdir("d/in");
    write(&mut giver, "d/in/new", "secret", 0, 0o644);
    let plan = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!(directory(&plan.tree, "d"), (0, 0, 0o700));
    assert_eq!([file(&plan.tree, "d/in/new").3, file(&plan.tree, "d/own").3], ["secret", "ann's"]);
    let told: Vec<_> = plan.conflicts().map(|conflict| (&conflict.path[..], conflict.decision)).collect();
    assert_eq!(told, [(&b"d"[..], Some(Side::Child))], "the mode that Ann gave it is lost");
    let result = TestFiles::from_tree(&plan.tree);
    let again = merged(&giver, &giver, &result, Strategy::ChildWins, GuardScope::Files);
    assert!(again.patch.changes.is_empty());
    let back = merged(&giver, &result, &giver, Strategy::ChildWins, GuardScope::Plan);
    assert_eq!(directory(&back.tree, "d"), (0, 0, 0o700));
    assert_eq!([file(&back.tree, "d/in/new").3, file(&back.tree, "d/own").3], ["secret", "ann's"]);
}

/// As at a fork: what anybody could read is Ann's.
pub(super) fn fork(base: &TestFiles) -> TestFiles {
    let mut own = base.later(100);
    own.tree.transfer_owner(0, ANN);
    own
}

#[test]
fn a_folder_that_is_closed_after_the_fork_closes_what_changes_in_it() {
    let mut base = TestFiles::new();
    base.mkdir("d").write("d/a", "known");
    set(&mut base, "d", 0, 0o755);
    set(&mut base, "d/a", 0, 0o644);
    let (own, mut giver) = (fork(&base), base.later(200));
    set(&mut giver, "d", 0, 0o700);
    giver.write("d/a", "secret");
    let plan = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!((directory(&plan.tree, "d"), plan.conflicts().count()), ((0, 0, 0o700), 0));
    assert_eq!(file(&plan.tree, "d/a"), (ANN, 0, 0o644, "secret".into()), "as a fork would have it");
    assert_ne!(plan.tree.resolve(b"d/a").unwrap(), own.tree.resolve(b"d/a").unwrap(), "a handle shows nothing of it");
}

/// The parent moves the protection of a file to its folder, so that only modes change.
#[test]
fn a_mode_that_opens_a_file_below_a_closed_folder_closes_that() {
    let mut base = TestFiles::new();
    base.mkdir("d");
    set(&mut base, "d", 0, 0o755);
    write(&mut base, "d/s", "secret", 0, 0o600);
    let (own, mut giver) = (fork(&base), base.later(200));
    assert_eq!((directory(&own.tree, "d").0, file(&own.tree, "d/s").0), (ANN, 0));
    set(&mut giver, "d", 0, 0o700);
    set(&mut giver, "d/s", 0, 0o644);
    let plan = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!((directory(&plan.tree, "d"), file(&plan.tree, "d/s").2), ((0, 0, 0o700), 0o644));
}

#[test]
fn a_folder_of_anns_stays_hers_for_files_that_are_closed_themselves_and_goes_with_a_word() {
    let mut base = TestFiles::new();
    base.mkdir("notes");
    set(&mut base, "notes", 0, 0o700);
    let mut own = base.later(100);
    own.rmdir("notes").mkdir("notes");
    set(&mut own, "notes", ANN, 0o700);
    write(&mut own, "notes/own", "ann's", ANN, 0o600);
    for (mode, owner, told) in [(0o600, ANN, 0), (0o644, 0, 1)] {
        let mut giver = base.later(200);
        write(&mut giver, "notes/new", "secret", 0, mode);
        let plan = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
        assert_eq!((directory(&plan.tree, "notes").0, plan.conflicts().count()), (owner, told), "{mode:o}");
        assert_eq!(
            (file(&plan.tree, "notes/new").0, file(&plan.tree, "notes/new").2),
            (if told == 0 { 0 } else { ANN }, mode)
        );
    }
}

#[test]
fn root_reads_all_so_that_nothing_is_kept_from_a_branch_of_roots() {
    assert!(ReaderGuard::new(0, GuardScope::Files).is_none());
    assert_eq!(ReaderGuard::new(ANN, GuardScope::Files).map(|guard| guard.uid), Some(ANN));
}

#[test]
fn what_comes_to_a_place_outside_of_its_closed_folder_is_closed_itself() {
    let mut base = TestFiles::new();
    base.mkdir("d").mkdir("d/in");
    set(&mut base, "d", 0, 0o755);
    set(&mut base, "d/in", 0, 0o755);
    let (mut own, mut giver) = (fork(&base), base.later(200));
    own.mv("d/in", "out");
    set(&mut giver, "d", 0, 0o700);
    write(&mut giver, "d/in/new", "secret", 0, 0o644);
    let plan = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!(file(&plan.tree, "out/new"), (0, 0, 0o600, "secret".into()));
    assert_eq!(directory(&plan.tree, "out").0, ANN);
    // Where it has another name that anybody reaches, it is no secret.
    giver.link("d/in/new", "told");
    let told = merged(&base, &giver, &own, Strategy::ParentWins, GuardScope::Files);
    assert_eq!(file(&told.tree, "out/new"), (ANN, 0, 0o644, "secret".into()));
}

#[test]
fn an_earlier_mode_or_place_opens_no_closed_folder_that_holds_more_by_now() {
    let mut before = TestFiles::new();
    before.mkdir("d").write("d/a", "told").write("x", "told");
    set(&mut before, "d", 0, 0o755);
    set(&mut before, "x", ANN, 0o644);
    let mut after = before.later(100);
    after.mkdir("s").mv("x", "s/x");
    set(&mut after, "s", 0, 0o700);
    set(&mut after, "d", 0, 0o700);
    let mut own = after.later(100);
    own.write("d/a", "secret").write("s/x", "secret");
    let plan = merged(&after, &before, &own, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!((directory(&plan.tree, "d"), directory(&plan.tree, "s")), ((0, 0, 0o700), (0, 0, 0o700)));
    assert_eq!([file(&plan.tree, "d/a").3, file(&plan.tree, "s/x").3], ["secret", "secret"]);
    assert!(plan.tree.resolve(b"x").is_err());
    let undone = merged(&after, &before, &after, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!(undone.tree.hash(), before.tree.hash());
    // A folder that was Ann's is hers again.
    set(&mut before, "d", ANN, 0o755);
    let given = merged(&after, &before, &after, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!(directory(&given.tree, "d"), (ANN, ANN, 0o755));
}

#[test]
fn a_merge_opens_nothing_of_the_parent_that_is_closed_to_the_branchs_owner() {
    let mut base = TestFiles::new();
    base.write("a", "").write("b", "");
    for path in ["a", "b"] {
        set(&mut base, path, 0, 0o600);
    }
    base.mkdir("d").mkdir("e").write("e/c", "known");
    set(&mut base, "d", 0, 0o700);
    for (path, mode) in [("e", 0o755), ("e/c", 0o644)] {
        set(&mut base, path, 0, mode);
    }
    let (mut anns, mut parent) = (fork(&base), base.later(200));
    anns.rm("a").rmdir("d").mkdir("d").mv("e/c", "c");
    write(&mut anns, "a", "", ANN, 0o644);
    set(&mut anns, "d", ANN, 0o755);
    set(&mut anns, "b", 0, 0o644);
    parent.write("a", "secret").write("b", "root's").write("d/new", "secret").write("e/c", "secret");
    set(&mut parent, "e", 0, 0o700);
    let plan = merged(&base, &anns, &parent, Strategy::ChildWins, GuardScope::Plan);
    assert_eq!(file(&plan.tree, "a"), (0, 0, 0o600, "secret".into()));
    assert_eq!((directory(&plan.tree, "d"), file(&plan.tree, "e/c").3), ((0, 0, 0o700), "secret".into()));
    assert_eq!(file(&plan.tree, "b").2, 0o644, "root has opened it in the branch");
    let told: Vec<_> = plan.conflicts().map(|conflict| (&conflict.path[..], conflict.decision)).collect();
    let parents = Some(Side::Parent);
    assert_eq!(told, [(&b"a"[..], parents), (&b"c"[..], parents), (&b"d"[..], parents)]);
    // Whose it is in the branch makes no difference, unless they own it or are root.
    set(&mut anns, "a", 1002, 0o644);
    let others = merged(&base, &anns, &parent, Strategy::ChildWins, GuardScope::Plan);
    assert_eq!(file(&others.tree, "a"), (0, 0, 0o600, "secret".into()));
    set(&mut anns, "a", ANN, 0o644);
    // Content of her own she may open.
    anns.write("a", "ann's");
    let own = merged(&base, &anns, &parent, Strategy::ChildWins, GuardScope::Plan);
    assert_eq!(file(&own.tree, "a"), (0, 0, 0o644, "ann's".into()));
}

#[test]
fn a_merge_leaves_no_program_of_somebody_else_with_rights_for_content_that_it_brings() {
    for (uid, expected) in [(0, 0o755), (ANN, 0o6755)] {
        let mut base = TestFiles::new();
        write(&mut base, "tool", "root's\n", uid, 0o6755);
        base.tag("tool", "security.capability", "all");
        let mut child = base.later(100);
        child.rm("tool");
        write(&mut child, "tool", "ann's\n", ANN, 0o6755);
        let plan = merged(&base, &child, &base, Strategy::ChildWins, GuardScope::Plan);
        let (owner, _, mode, text) = file(&plan.tree, "tool");
        assert_eq!((owner, mode, text.as_str()), (uid, expected, "ann's\n"));
        let node = plan.tree.node(plan.tree.resolve(b"tool").unwrap()).unwrap();
        assert_eq!(node.xattr(b"security.capability").is_some(), uid == ANN);
    }
}
