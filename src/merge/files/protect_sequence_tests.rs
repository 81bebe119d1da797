//! What stays closed to the owner of a branch over more than one merge.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::protect_tests::{ANN, directory, file, fork, merged, merged_by, set, write};
use super::test_files::TestFiles;
use super::{GuardScope, Side, Strategy};
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

/// A closed folder of root, with a file that anybody might read, as Ann's fork has both.
fn closed_folder() -> [TestFiles; 2] {
    let mut base = TestFiles::new();
    base.mkdir("d").mkdir("d/in").write("d/in/deep", "deep");
    set(&mut base, "d", 0, 0o700);
    set(&mut base, "d/in", 0, 0o755);
    set(&mut base, "d/in/deep", 0, 0o644);
    write(&mut base, "d/s", "secret", 0, 0o644);
    let own = fork(&base);
    assert_eq!((directory(&own.tree, "d").0, file(&own.tree, "d/s").0), (0, ANN));
    [base, own]
}

#[test]
fn a_rule_of_the_branch_keeps_no_file_open_of_a_folder_that_is_opened() {
    let by_rule = |rules: &str, sides: [&TestFiles; 3]| {
        TestFiles::from_tree(&merged_by(rules, sides, Strategy::ParentWins, GuardScope::Files).tree)
    };
    for (folder, rules) in [("d", "d/s never\n** text"), ("x", "x/s never\n** text")] {
        let [base, mut own] = closed_folder();
        let kept = format!("{folder}/s");
        if folder != "d" {
            own.mv("d", folder);
        }
        let mut without = base.later(200);
        without.rm("d/s");
        let mut opened = without.later(10);
        set(&mut opened, "d", 0, 0o755);
        let secret = (0, 0, 0o600, "secret".to_owned());
        let at_once = by_rule(rules, [&base, &opened, &own]);
        assert_eq!((directory(&at_once.tree, folder).2, file(&at_once.tree, &kept)), (0o755, secret.clone()));
        // The pull that opens the folder meets nothing of the file.
        let first = by_rule(rules, [&base, &without, &own]);
        let second = by_rule("** text", [&without, &opened, &first]);
        assert_eq!((directory(&second.tree, folder).2, file(&second.tree, &kept)), (0o755, secret));
    }
    // What anybody may read by now in the parent, the branch keeps as it is.
    let [base, own] = closed_folder();
    let mut opened = base.later(200);
    set(&mut opened, "d", 0, 0o755);
    let told = by_rule("d/s never\n** text", [&base, &opened, &own]);
    assert_eq!(file(&told.tree, "d/s"), (ANN, 0, 0o644, "secret".into()));
}

/// What is in a closed folder is Ann's in her fork, as far as its own mode goes.
#[test]
fn what_the_parent_closes_by_itself_in_place_of_its_folder_stays_closed() {
    let [base, own] = closed_folder();
    let mut closed = base.later(200);
    closed.chmod("d/s", 0o600).chmod("d/in", 0o700);
    let mut opened = closed.later(10);
    set(&mut opened, "d", 0, 0o755);
    let at_once = pulled(&base, &opened, &own);
    let later = pulled(&closed, &opened, &pulled(&base, &closed, &own));
    for result in [at_once, later] {
        assert_eq!(directory(&result.tree, "d"), (0, 0, 0o755));
        assert_eq!(file(&result.tree, "d/s"), (0, 0, 0o600, "secret".into()));
        assert_eq!(directory(&result.tree, "d/in"), (0, 0, 0o700));
    }
    // So it is where the earlier state comes back that was undone.
    let before = own.later(1);
    let after = pulled(&base, &opened, &own);
    let undone = merged(&after, &before, &after, Strategy::ChildWins, GuardScope::EarlierFiles);
    let undone = TestFiles::from_tree(&undone.tree);
    assert_eq!(directory(&undone.tree, "d"), (0, 0, 0o700));
    let redone = merged(&undone, &after, &undone, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!(file(&redone.tree, "d/s"), (0, 0, 0o600, "secret".into()));
    assert_eq!(directory(&redone.tree, "d/in"), (0, 0, 0o700));
}

/// The folder had the mode of the parent's, so that of it the owner alone changes.
#[test]
fn an_undone_pull_gives_back_a_folder_that_it_closed_for_what_came_into_it() {
    let mut base = TestFiles::new();
    base.mkdir("notes");
    set(&mut base, "notes", 0, 0o700);
    let mut own = base.later(100);
    own.rmdir("notes").mkdir("notes");
    set(&mut own, "notes", ANN, 0o700);
    write(&mut own, "notes/own", "ann's", ANN, 0o600);
    let mut parent = base.later(200);
    parent.mkdir("notes/in").mkdir("notes/in/deep");
    write(&mut parent, "notes/in/deep/new", "secret", 0, 0o644);
    let after = pulled(&base, &parent, &own);
    assert_eq!(directory(&after.tree, "notes"), (0, 0, 0o700));
    let undone = merged(&after, &own, &after, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!((directory(&undone.tree, "notes"), undone.conflicts().count()), ((ANN, ANN, 0o700), 0));
    assert_eq!(undone.tree.hash(), own.tree.hash());
    // What root put there since keeps it closed, and that is told.
    let mut later = after.later(10);
    write(&mut later, "notes/more", "secret", 0, 0o644);
    let held = merged(&after, &own, &later, Strategy::ChildWins, GuardScope::EarlierFiles);
    assert_eq!((directory(&held.tree, "notes"), file(&held.tree, "notes/more").3), ((0, 0, 0o700), "secret".into()));
    let told: Vec<_> = held.conflicts().map(|conflict| (&conflict.path[..], conflict.decision)).collect();
    assert_eq!(told, [(&b"notes"[..], Some(Side::Parent))]);
}

#[test]
fn many_names_of_a_file_in_many_closed_folders_close_all_of_these_and_the_file_where_one_does_not() {
    let mut base = TestFiles::new();
    for number in 0..300 {
        let folder = format!("d{number}");
        base.mkdir(&folder).mkdir(&format!("{folder}/in"));
        set(&mut base, &folder, 0, 0o755);
        set(&mut base, &format!("{folder}/in"), 0, 0o755);
    }
    let mut parent = base.later(1000);
    write(&mut parent, "d0/in/a", "secret", 0, 0o644);
    for number in 0..300 {
        set(&mut parent, &format!("d{number}"), 0, 0o700);
        if number > 0 {
            parent.link("d0/in/a", &format!("d{number}/in/a"));
        }
    }
    for moved in [None, Some("d299/in")] {
        let mut own = fork(&base);
        if let Some(from) = moved {
            own.mv(from, "out");
        }
        let result = pulled(&base, &parent, &own);
        assert!((0..300).all(|number| directory(&result.tree, &format!("d{number}")) == (0, 0, 0o700)));
        let expected = if moved.is_some() { (0, 0, 0o600) } else { (ANN, 0, 0o644) };
        let (uid, gid, mode, text) = file(&result.tree, "d0/in/a");
        assert_eq!(((uid, gid, mode), text.as_str()), (expected, "secret"));
    }
}

/// What a pull closed in a branch, to which the parent moved nothing.
#[test]
fn a_mode_with_which_a_pull_closed_a_file_is_no_change_of_the_branch() {
    let mut base = TestFiles::new();
    base.mkdir("d").mkdir("d/in");
    set(&mut base, "d", 0, 0o755);
    set(&mut base, "d/in", 0, 0o755);
    let (mut own, mut parent) = (fork(&base), base.later(200));
    own.mv("d/in", "out");
    set(&mut parent, "d", 0, 0o700);
    write(&mut parent, "d/in/new", "secret", 0, 0o644);
    let branch = pulled(&base, &parent, &own);
    assert_eq!(file(&branch.tree, "out/new"), (0, 0, 0o600, "secret".into()));
    let merge = |into: &TestFiles| merged(&parent, &branch, into, Strategy::ChildWins, GuardScope::Plan);
    let back = merge(&parent);
    assert_eq!(file(&back.tree, "d/in/new"), (0, 0, 0o644, "secret".into()));
    // Nor does it contradict what the parent does.
    let (mut set_since, mut gone) = (parent.later(10), parent.later(10));
    set_since.chmod("d/in/new", 0o640);
    gone.rm("d/in/new");
    let (set_since, gone) = (merge(&set_since), merge(&gone));
    assert_eq!(file(&set_since.tree, "d/in/new").2, 0o640);
    assert!(gone.tree.resolve(b"d/in/new").is_err());
    for plan in [back, set_since, gone] {
        let told: Vec<_> = plan.conflicts().map(|conflict| &conflict.path[..]).collect();
        assert_eq!(told, [b"out"], "the folder stays where it is closed");
    }
}

#[test]
fn setuid_that_a_pull_took_from_joined_content_stays_with_the_parent() {
    let mut base = TestFiles::new();
    write(&mut base, "a", "1\n2\n3\n4\n5\n", 0, 0o600);
    let (mut own, mut parent) = (base.later(100), base.later(200));
    own.rm("a");
    write(&mut own, "a", "one\n2\n3\n4\n5\n", ANN, 0o644);
    write(&mut parent, "a", "1\n2\n3\n4\nfive\n", 0, 0o4711);
    let branch = pulled(&base, &parent, &own);
    assert_eq!(file(&branch.tree, "a"), (0, 0, 0o711, "one\n2\n3\n4\nfive\n".into()));
    let mut later = parent.later(10);
    write(&mut later, "a", "root's\n", 0, 0o4711);
    let sides = [&parent, &branch, &later];
    let back = merged_by("** whole", sides, Strategy::ParentWins, GuardScope::Plan);
    assert_eq!(file(&back.tree, "a"), (0, 0, 0o4711, "root's\n".into()));
}

/// The owner of a file closes it in Ann's branch, and means it.
#[test]
fn a_mode_that_the_owner_of_a_file_gave_it_in_the_branch_is_merged() {
    let mut base = TestFiles::new();
    write(&mut base, "a", "bea's", BEA, 0o644);
    let mut branch = fork(&base);
    branch.chmod("a", 0o600);
    let plan = merged(&base, &branch, &base, Strategy::ChildWins, GuardScope::Plan);
    assert_eq!(file(&plan.tree, "a"), (BEA, BEA, 0o600, "bea's".into()));
}

#[test]
fn a_unit_that_a_pull_closed_is_whole_and_unchanged() {
    let mut base = TestFiles::new();
    base.mkdir("d").mkdir("d/in");
    set(&mut base, "d", 0, 0o755);
    set(&mut base, "d/in", 0, 0o755);
    let (mut own, mut parent) = (fork(&base), base.later(200));
    own.mv("d/in", "out");
    set(&mut parent, "d", 0, 0o700);
    let db = |text: &str| format!("SQLite format 3\0{text}");
    write(&mut parent, "d/in/m.db", &db("secret"), 0, 0o644);
    write(&mut parent, "d/in/m.db-wal", "log", 0, 0o644);
    let branch = pulled(&base, &parent, &own);
    assert_eq!(file(&branch.tree, "out/m.db"), (0, 0, 0o600, db("secret")));
    assert_eq!(file(&branch.tree, "out/m.db-wal"), (0, 0, 0o600, "log".into()));
    let mut later = parent.later(10);
    later.write("d/in/m.db", &db("more"));
    let back = merged(&parent, &branch, &later, Strategy::Manual, GuardScope::Plan);
    assert!(back.units.is_empty() && back.tree.resolve(b"out").is_err());
    assert_eq!(file(&back.tree, "d/in/m.db"), (0, 0, 0o644, db("more")));
}

#[test]
fn what_is_renamed_within_a_closed_folder_leaves_nothing() {
    let mut base = TestFiles::new();
    base.mkdir("d").mkdir("d/in").write("d/a", "known").write("d/b", "known").write("d/c", "known");
    for (path, mode) in [("d", 0o755), ("d/in", 0o755), ("d/a", 0o644), ("d/b", 0o644), ("d/c", 0o644)] {
        set(&mut base, path, 0, mode);
    }
    let (mut branch, mut parent) = (fork(&base), base.later(200));
    branch.mv("d/a", "d/renamed").mkdir("d/made").mv("d/b", "d/made/b").mv("d/c", "c");
    set(&mut parent, "d", 0, 0o700);
    parent.write("d/a", "secret").write("d/b", "secret").write("d/c", "secret");
    let plan = merged(&base, &branch, &parent, Strategy::ChildWins, GuardScope::Plan);
    assert_eq!(["d/renamed", "d/made/b", "d/c"].map(|path| file(&plan.tree, path).3), ["secret"; 3]);
    let told: Vec<_> = plan.conflicts().map(|conflict| (&conflict.path[..], conflict.decision)).collect();
    assert_eq!(told, [(&b"c"[..], Some(Side::Parent))], "it alone would have left the folder");
}

/// The folder that moves holds what anybody knows, and in the branch a file takes that one's place.
#[test]
fn nothing_leaves_a_closed_folder_by_a_folder_that_moves_out_of_it() {
    let mut base = TestFiles::new();
    base.mkdir("d").mkdir("d/in").write("d/in/g", "known").write("d/f", "known");
    for (path, mode) in [("d", 0o755), ("d/in", 0o755), ("d/in/g", 0o644), ("d/f", 0o644)] {
        set(&mut base, path, 0, mode);
    }
    let (mut branch, mut parent) = (fork(&base), base.later(200));
    branch.rm("d/in/g").mv("d/f", "d/in/g").mv("d/in", "out");
    set(&mut parent, "d", 0, 0o700);
    parent.write("d/f", "secret");
    let plan = merged(&base, &branch, &parent, Strategy::ChildWins, GuardScope::Plan);
    assert_eq!(file(&plan.tree, "d/f").3, "secret");
    assert!(plan.tree.resolve(b"out/g").is_err());
}

#[test]
fn a_folder_is_opened_by_a_merge_whose_branch_holds_the_same_in_it() {
    for (text, mode, told) in [(Some("known"), 0o755, 0), (Some("secret"), 0o700, 1), (None, 0o700, 1)] {
        let mut base = TestFiles::new();
        base.mkdir("d");
        set(&mut base, "d", 0, 0o700);
        if text.is_some() {
            write(&mut base, "d/a", "known", 0, 0o644);
        }
        let (mut branch, mut parent) = (fork(&base), base.later(200));
        if let Some(text) = text {
            branch.rm("d/a");
            parent.write("d/a", text);
        }
        branch.rmdir("d").mkdir("d");
        set(&mut branch, "d", ANN, 0o755);
        if text.is_some() {
            write(&mut branch, "d/a", "known", ANN, 0o644);
        }
        let plan = merged(&base, &branch, &parent, Strategy::ChildWins, GuardScope::Plan);
        assert_eq!(directory(&plan.tree, "d"), (0, 0, mode), "{text:?}");
        let conflicts = plan.conflicts().filter(|conflict| conflict.decision == Some(Side::Parent));
        assert_eq!(conflicts.count(), told, "{text:?}");
    }
}
