//! Units: databases of which each side has its own, known by their layouts.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use super::test_files::{TestFiles, listing};
use super::tests::Chance;
use super::tree_tests::{conflicts, plan_by};
use super::unit::UnitFinder;
use super::{FileLoser, FilePlan, Loser, Rules, Side, Strategy, replaced_unit};
use crate::object::Time;
use crate::workspace::{FileName, FileOp, NewInode, NoPacks, ROOT, Tree};

const RULES: &str = "**/pg/never never\n** text";

fn db(text: &str) -> String {
    format!("SQLite format 3\0{text}")
}

fn plan(sides: &[TestFiles; 3], chosen: Option<Side>) -> FilePlan {
    plan_by(RULES, &sides[0], &sides[1], &sides[2], Strategy::NewestWins, chosen)
}

/// A base with a database, and both sides.
fn three() -> [TestFiles; 3] {
    let mut base = TestFiles::new();
    base.write("m.db", &db("base")).write("m.db-wal", "log").write("m.db-shm", "shm").write("note", "n");
    let (child, parent) = (base.later(100), base.later(200));
    [base, child, parent]
}

fn text(plan: &FilePlan, path: &str) -> Option<String> {
    listing(&plan.tree).get(path).map(|text| text.replace("SQLite format 3\0", ""))
}

#[test]
fn a_checkpoint_on_one_side_and_a_log_on_the_other_are_a_conflict() {
    let [base, mut child, mut parent] = three();
    child.write("m.db", &db("checkpointed")).write("m.db-wal", "");
    parent.write("m.db-wal", "log and more");
    let sides = [base, child, parent];
    let blocked = plan(&sides, None);
    assert_eq!(conflicts(&blocked), [("m.db".into(), None)]);
    assert_eq!(blocked.units[0].members, [b"m.db".to_vec(), b"m.db-wal".to_vec()].into());
    assert_eq!(blocked.tree.hash(), sides[2].tree.hash());
    let taken = plan(&sides, Some(Side::Child));
    assert_eq!((text(&taken, "m.db"), text(&taken, "m.db-wal")), (Some("checkpointed".into()), Some(String::new())));
    assert_eq!(lost(&taken), (Side::Parent, parts(&sides[2], Side::Parent)));
    let kept = plan(&sides, Some(Side::Parent));
    assert_eq!((text(&kept, "m.db"), text(&kept, "m.db-wal")), (Some("base".into()), Some("log and more".into())));
    assert_eq!(lost(&kept), (Side::Child, parts(&sides[1], Side::Child)));
}

/// Whose version of a unit was lost, and what of it is listed.
fn lost(plan: &FilePlan) -> (Side, Vec<Loser>) {
    let mut lost: Vec<Loser> = plan.losers.iter().map(|lost| lost.what.clone()).collect();
    assert!(plan.losers.iter().all(|lost| lost.path == b"m.db"));
    let Loser::File(side) = lost.remove(0) else { panic!("{lost:?}") };
    (side, lost)
}

/// Both files of a side's database, each with its hash; an empty log says nothing.
fn parts(of: &TestFiles, side: Side) -> Vec<Loser> {
    let node = |path: &str| of.tree.node(of.tree.resolve(path.as_bytes()).unwrap()).unwrap().clone();
    let files = ["m.db", "m.db-wal"].into_iter();
    files.map(|path| Loser::Part { side, bytes: format!("{path} {}", node(path).hash().unwrap()).into() }).collect()
}

#[test]
fn versions_of_a_unit_have_hashes_that_change_with_any_member() {
    let [base, mut child, mut parent] = three();
    child.write("m.db-wal", "child");
    parent.write("m.db-wal", "parent");
    let versions = |child: &TestFiles, parent: &TestFiles| {
        let found = plan(&[base.clone(), child.clone(), parent.clone()], None).both_changed.remove(0);
        [found.base, found.child, found.parent].map(Option::unwrap)
    };
    let before = versions(&child, &parent);
    assert_eq!(std::collections::BTreeSet::from(before).len(), 3);
    parent.write("m.db-shm", "read");
    assert_eq!(versions(&child, &parent), before, "it says nothing");
    parent.write("m.db-wal", "parent and more");
    let after = versions(&child, &parent);
    assert!(after[..2] == before[..2] && after[2] != before[2]);
    child.write("m.db-wal", "").write("m.db", &db("checkpointed"));
    let main = child.tree.resolve(b"m.db").unwrap();
    assert_eq!(versions(&child, &parent)[1], child.tree.node_hash(main).unwrap(), "of an only file it is the file's");
}

#[test]
fn what_says_nothing_is_no_change_of_a_unit() {
    let [base, mut child, mut parent] = three();
    child.write("m.db-shm", "read").write("m.db-journal", "");
    parent.write("m.db", &db("written")).rm("m.db-wal");
    let merged = plan(&[base, child, parent.clone()], None);
    assert_eq!((merged.both_changed.len(), merged.tree.hash()), (0, parent.tree.hash()));
    let [base, mut child, mut parent] = three();
    child.write("m.db-wal", "more");
    parent.write("m.db-shm", "read").write("m.db-journal", "");
    let merged = plan(&[base, child.clone(), parent], None);
    assert_eq!((merged.both_changed.len(), merged.tree.hash()), (0, child.tree.hash()));
}

#[test]
fn a_mode_or_an_attribute_of_a_member_is_a_change_of_its_unit() {
    let [base, child, mut parent] = three();
    parent.write("m.db", &db("parent"));
    let (mut closed, mut tagged) = (child.clone(), child);
    closed.chmod("m.db-wal", 0o600);
    tagged.tag("m.db-wal", "user.x", "child");
    for child in [closed, tagged] {
        assert_eq!(conflicts(&plan(&[base.clone(), child, parent.clone()], None)), [("m.db".into(), None)]);
    }
}

/// A file of another program may be called like the shared memory or the log of a database.
#[test]
fn in_a_directory_only_what_is_beside_its_database_says_nothing() {
    let mut base = TestFiles::new();
    base.mkdir("any").write("any/m.db", &db("base")).write("any/m.db-shm", "base").write("any/cache-shm", "base");
    base.write("note", "base");
    let mut parent = base.later(200);
    parent.write("note", "parent");
    for (path, text, counts) in [
        ("any/m.db-shm", "child", false),
        ("any/m.db-wal", "", false),
        ("any/cache-shm", "child", true),
        ("any/new-shm", "child", true),
        ("any/empty-wal", "", true),
    ] {
        let mut child = base.later(100);
        child.write(path, text);
        let merged = plan_by("/any/** unit\n** text", &base, &child, &parent, Strategy::NewestWins, None);
        let mut expected = parent.clone();
        if counts {
            expected.write(path, text);
        }
        assert_eq!(listing(&merged.tree), listing(&expected.tree), "{path}");
    }
}

#[test]
fn a_unit_is_taken_as_a_whole_from_one_side() {
    for (directory, files, rules) in [
        ("pg", ["PG_VERSION", "base", "wal"], RULES),
        ("t.lance", ["_versions/1", "data/1", "data/2"], RULES),
        ("ch", ["chroma.sqlite3", "11111111-2222-3333-4444-555555555555/data.bin", "chroma.sqlite3-wal"], RULES),
        ("any", ["a", "b", "c"], "/any/** unit"),
    ] {
        let mut base = TestFiles::new();
        base.mkdir(directory).write("note", "n");
        let mut paths = Vec::new();
        for file in files {
            if let Some((inner, _)) = file.split_once('/')
                && base.tree.resolve(format!("{directory}/{inner}").as_bytes()).is_err()
            {
                base.mkdir(&format!("{directory}/{inner}"));
            }
            paths.push(format!("{directory}/{file}"));
            base.write(&paths[paths.len() - 1], "base");
        }
        let (mut child, mut parent) = (base.later(100), base.later(200));
        child.write(&paths[1], "child").rm(&paths[2]).write("note", "child");
        parent.write(&paths[2], "parent");
        let plan = |chosen| plan_by(rules, &base, &child, &parent, Strategy::NewestWins, chosen);
        assert!(plan(None).is_blocked() && conflicts(&plan(None)).iter().any(|(path, _)| path == directory));
        let blocked = plan(None);
        let decision = blocked.both_changed.iter().find(|it| it.path == directory.as_bytes()).unwrap();
        let own = child.tree.node_hash(child.tree.resolve(directory.as_bytes()).unwrap());
        assert_eq!(decision.child == own, directory != "ch", "the directory of Chroma holds more than the unit");
        assert_eq!(listing(&plan(Some(Side::Child)).tree), listing(&child.tree), "{directory}");
        let mut kept = parent.clone();
        kept.write("note", "child");
        let taken = plan(Some(Side::Parent));
        assert_eq!(listing(&taken.tree), listing(&kept.tree), "{directory}");
        let lost: Vec<Loser> = taken.losers.into_iter().map(|lost| lost.what).collect();
        let hash = child.tree.node(child.tree.resolve(paths[1].as_bytes()).unwrap()).unwrap().hash().unwrap();
        let part = Loser::Part { side: Side::Child, bytes: format!("{} {hash}", paths[1]).into() };
        assert_eq!(lost, [Loser::File(Side::Child), part], "not what both have alike, nor what was removed");
        let ruled = plan_by(
            &format!("/{directory}/** unit child-wins\n{rules}"),
            &base,
            &child,
            &parent,
            Strategy::Manual,
            None,
        );
        assert_eq!(listing(&ruled.tree), listing(&child.tree), "the rule says who wins");
    }
}

#[test]
fn beside_a_database_of_chroma_other_names_than_those_of_indexes_merge_on_their_own() {
    const PATHS: [(&str, bool); 5] = [
        ("ch/11111111-2222-3333-4444-555555555555/data.bin", true),
        ("ch/11111111-2222-3333-4444-55555555555/data.bin", false),
        ("ch/11111111-2222-3333-4444-55555555555g/data.bin", false),
        ("ch/notes/data.bin", false),
        ("ch/66666666-2222-3333-4444-555555555555", false),
    ];
    let mut base = TestFiles::new();
    base.mkdir("ch").write("ch/chroma.sqlite3", &db("base"));
    for (path, _) in PATHS {
        if let Some(directory) = path.strip_suffix("/data.bin") {
            base.mkdir(directory);
        }
        base.write(path, "base");
    }
    let mut child = base.later(100);
    child.write("ch/chroma.sqlite3", &db("child"));
    for (path, is_member) in PATHS {
        let mut parent = base.later(200);
        parent.write(path, "parent");
        let merged = plan_by(RULES, &base, &child, &parent, Strategy::NewestWins, None);
        assert_eq!(merged.is_blocked(), is_member, "{path}");
        if !is_member {
            parent.write("ch/chroma.sqlite3", &db("child"));
            assert_eq!(listing(&merged.tree), listing(&parent.tree), "{path}");
        }
    }
}

#[test]
fn a_unit_follows_its_directory_and_goes_with_it() {
    let mut base = TestFiles::new();
    base.mkdir("d").write("d/m.db", &db("base")).write("d/m.db-wal", "log");
    let (mut child, mut parent) = (base.later(100), base.later(200));
    child.mv("d", "e");
    parent.write("d/m.db-wal", "more");
    let moved = plan(&[base.clone(), child, parent.clone()], None);
    assert_eq!((conflicts(&moved).len(), text(&moved, "e/m.db-wal")), (0, Some("more".into())));
    let mut child = base.later(100);
    child.rm("d/m.db").rm("d/m.db-wal").rmdir("d");
    assert_eq!(listing(&plan(&[base.clone(), child.clone(), base.clone()], None).tree), listing(&child.tree));
    let sides = [base, child, parent];
    assert!(plan(&sides, None).is_blocked());
    assert_eq!(listing(&plan(&sides, Some(Side::Child)).tree).len(), 0);
    assert_eq!(plan(&sides, Some(Side::Parent)).tree.hash(), sides[2].tree.hash());
}

#[test]
fn a_unit_that_was_only_renamed_has_changed() {
    let [base, mut child, mut parent] = three();
    child.mv("m.db", "n.db").mv("m.db-wal", "n.db-wal").mv("m.db-shm", "n.db-shm");
    let moved = plan(&[base.clone(), child.clone(), base.clone()], None);
    assert_eq!((conflicts(&moved).len(), listing(&moved.tree)), (0, listing(&child.tree)));
    parent.mv("m.db", "p.db").mv("m.db-wal", "p.db-wal").mv("m.db-shm", "p.db-shm");
    let sides = [base, child, parent];
    assert!(plan(&sides, None).is_blocked());
    assert_eq!(listing(&plan(&sides, Some(Side::Child)).tree), listing(&sides[1].tree));
}

#[test]
fn a_unit_is_in_use_only_where_it_is_replaced() {
    let [base, mut child, _] = three();
    let (rules, main) = (Rules::default(), base.tree.resolve(b"m.db-shm").unwrap());
    let in_use = |child: &TestFiles, inode| replaced_unit(&rules, &NoPacks, &base.tree, &child.tree, &[inode]).unwrap();
    child.write("note", "child");
    assert_eq!(in_use(&child, main), None);
    child.write("m.db-wal", "more");
    assert_eq!(in_use(&child, main), Some(b"m.db".to_vec()));
    assert_eq!(in_use(&child, base.tree.resolve(b"note").unwrap()), None);
}

#[test]
fn a_unit_that_has_no_name_any_more_is_in_use_as_long_as_it_is_open() {
    let mut base = TestFiles::new();
    base.write("m.db", &db("base"));
    let (main, mut after) = (base.tree.resolve(b"m.db").unwrap(), base.later(100));
    let (parent, name) = after.place("m.db").unwrap();
    after.apply(FileOp::Unlink { parent, name, keep: true }).unwrap();
    let in_use = replaced_unit(&Rules::default(), &NoPacks, &base.tree, &after.tree, &[main]).unwrap();
    assert_eq!(in_use, Some(b"m.db".to_vec()));
}

#[test]
fn what_is_left_beside_a_database_that_one_side_removed_goes_with_it() {
    let [base, mut child, mut parent] = three();
    child.write("m.db", &db("child"));
    parent.rm("m.db").write("m.db-journal", "fits no longer");
    let sides = [base, child, parent];
    let taken = plan(&sides, Some(Side::Child));
    assert_eq!(listing(&taken.tree), listing(&sides[1].tree));
    assert_eq!(plan(&sides, Some(Side::Parent)).tree.hash(), sides[2].tree.hash());
    let turned = [sides[0].clone(), sides[2].clone(), sides[1].clone()];
    assert_eq!(
        plan(&turned, Some(Side::Parent)).tree.hash(),
        turned[2].tree.hash(),
        "the child's journal is not added"
    );
}

#[test]
fn what_a_rule_names_for_itself_is_no_companion() {
    let [base, mut child, mut parent] = three();
    child.write("m.db", &db("child"));
    parent.write("m.db-wal", "of the parent");
    let merged = plan_by("*-wal never\n** text", &base, &child, &parent, Strategy::Manual, None);
    assert!(!merged.is_blocked());
    assert_eq!(
        (text(&merged, "m.db"), text(&merged, "m.db-wal")),
        (Some("child".into()), Some("of the parent".into()))
    );
}

#[test]
fn random_units_are_one_side_as_a_whole_or_block() {
    const PATHS: [&str; 9] =
        ["a.db", "a.db-wal", "a.db-journal", "a.db-shm", "pg/PG_VERSION", "pg/x", "pg/y", "pg/never", "z"];
    let (mut chance, mut outcomes) = (Chance(11), [0; 3]);
    let shake = |files: &mut TestFiles, chance: &mut Chance| {
        for _ in 0..chance.below(5) {
            let path = *chance.pick(&PATHS.each_ref());
            match chance.below(4) {
                0 if files.tree.resolve(path.as_bytes()).is_ok() => drop(files.rm(path)),
                1 => drop(files.save(path, &db(&chance.below(9).to_string()))),
                _ => drop(files.write(path, &db(&chance.below(9).to_string()))),
            }
        }
    };
    for round in 0..3_000 {
        let mut base = TestFiles::new();
        base.mkdir("pg").write("pg/PG_VERSION", "15").write("a.db", &db("base"));
        shake(&mut base, &mut chance);
        let (mut child, mut parent) = (base.later(100), base.later(200));
        shake(&mut child, &mut chance);
        shake(&mut parent, &mut chance);
        for chosen in [None, Some(Side::Child), Some(Side::Parent)] {
            let plan = plan_by(RULES, &base, &child, &parent, Strategy::NewestWins, chosen);
            if plan.is_blocked() {
                assert!(
                    chosen.is_none() && plan.tree.hash() == parent.tree.hash(),
                    "round {round}, {chosen:?}: {:?} {:?}",
                    plan.both_changed,
                    [&base, &child, &parent].map(|side| listing(&side.tree)),
                );
                outcomes[0] += 1;
                continue;
            }
            for unit in ["a.db", "pg"] {
                let unit_files = |files: &BTreeMap<String, String>| -> Vec<(String, String)> {
                    let own = files.iter().filter(|(path, _)| path.starts_with(unit) && !path.ends_with("never"));
                    own.filter(|(path, _)| !path.ends_with("-shm")).map(|(a, b)| (a.clone(), b.clone())).collect()
                };
                let [merged, ours, theirs] =
                    [&plan.tree, &child.tree, &parent.tree].map(|tree| unit_files(&listing(tree)));
                let is_unit = [&base, &child, &parent].iter().all(|side| {
                    let main = if unit == "pg" { "pg/PG_VERSION" } else { "a.db" };
                    side.tree.resolve(main.as_bytes()).is_ok()
                });
                assert!(
                    !is_unit || merged == ours || merged == theirs,
                    "round {round}: {unit} {merged:?} {ours:?} {theirs:?}"
                );
                outcomes[1 + usize::from(merged == ours)] += usize::from(is_unit);
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 500), "{outcomes:?}");
}

#[test]
fn a_database_of_duckdb_is_told_by_its_bytes() {
    let duck = |text: &str| format!("checksumDUCK{text}");
    let mut base = TestFiles::new();
    base.write("d.db", &duck("base")).write("d.db.wal", "log");
    let (mut child, mut parent) = (base.later(100), base.later(200));
    child.write("d.db", &duck("checkpointed")).write("d.db.wal", "");
    parent.write("d.db.wal", "log and more");
    let sides = [base, child, parent];
    assert_eq!(conflicts(&plan(&sides, None)), [("d.db".into(), None)]);
    assert_eq!(listing(&plan(&sides, Some(Side::Child)).tree), listing(&sides[1].tree));
}

#[test]
fn a_database_without_companions_that_both_changed_is_a_unit() {
    // The newest wins only where it is no database, though a text begins nearly as one does, or a rule says otherwise.
    for (begin, rules, decided) in [
        ("SQLite format 3\0", RULES, None),
        ("SQLite format 3\0", "", None),
        ("SQLite format 3\0", "*.db whole", Some(Side::Parent)),
        ("SQLite format 3 ", RULES, Some(Side::Parent)),
    ] {
        let mut base = TestFiles::new();
        base.write("m.db", &format!("{begin}base"));
        let (mut child, mut parent) = (base.later(100), base.later(200));
        child.write("m.db", &format!("{begin}child"));
        parent.write("m.db", &format!("{begin}parent"));
        let merged = plan_by(rules, &base, &child, &parent, Strategy::NewestWins, None);
        assert_eq!(conflicts(&merged), [("m.db".into(), decided)], "{begin:?} {rules}");
    }
}

#[test]
fn a_rule_makes_a_unit_of_a_file_and_its_companions_or_of_a_directory() {
    for (main, rules) in [("a.kv", "*.kv unit\n** text"), ("a.set/data", "*.set unit\n** text")] {
        for companion in ["-wal", "-journal", ".wal", "-other"] {
            let mut base = TestFiles::new();
            base.mkdir("a.set").write(main, "base");
            let other = format!("{main}{companion}");
            let (mut child, mut parent) = (base.later(100), base.later(200));
            child.write(main, "child");
            parent.write(&other, "parent");
            let merged = plan_by(rules, &base, &child, &parent, Strategy::NewestWins, None);
            let is_member = main.contains('/') || companion != "-other";
            assert_eq!(merged.is_blocked(), is_member, "{other}");
        }
    }
}

/// A database and a table of Lance within PostgreSQL's directory, or within one that a rule names, are no units of
/// their own.
#[test]
fn units_within_a_unit_are_decided_with_the_outermost() {
    for (outer, rules) in [("pg", RULES), ("any", "/any/** unit\n** text")] {
        let at = |path: &str| format!("{outer}/{path}");
        let mut base = TestFiles::new();
        base.mkdir(outer).mkdir(&at("d")).mkdir(&at("d/t.lance")).mkdir(&at("d/t.lance/_versions"));
        base.write(&at("PG_VERSION"), "15").write(&at("d/m.db"), &db("base")).write(&at("d/m.db-wal"), "log");
        base.write(&at("d/t.lance/_versions/1"), "base");
        let (mut child, mut parent) = (base.later(100), base.later(200));
        child.write(&at("d/m.db"), &db("child"));
        let plan = |child: &TestFiles, parent: &TestFiles, chosen| {
            plan_by(rules, &base, child, parent, Strategy::NewestWins, chosen)
        };
        assert_eq!(listing(&plan(&child, &base, None).tree), listing(&child.tree), "one side alone changed it");
        for changed in ["d/m.db-wal", "d/t.lance/_versions/1", "other"] {
            parent.write(&at(changed), "parent");
            let blocked = plan(&child, &parent, None);
            assert_eq!(conflicts(&blocked), [(outer.to_owned(), None)], "{changed}");
            assert_eq!(listing(&plan(&child, &parent, Some(Side::Child)).tree), listing(&child.tree), "{changed}");
            assert_eq!(listing(&plan(&child, &parent, Some(Side::Parent)).tree), listing(&parent.tree), "{changed}");
            parent = base.later(200);
        }
    }
}

/// Once what the parent had put at a new name of a member went with the parent's version of the unit, and no conflict said so.
#[test]
fn a_renamed_unit_replaces_no_file_of_the_parent_unasked() {
    for name in ["n.db", "n.db-wal"] {
        let [base, mut child, mut parent] = three();
        child.mv("m.db", "n.db").mv("m.db-wal", "n.db-wal").mv("m.db-shm", "n.db-shm");
        parent.write(name, "of the parent");
        let sides = [base, child, parent];
        let by = |strategy| plan_by(RULES, &sides[0], &sides[1], &sides[2], strategy, None);
        for strategy in [Strategy::Manual, Strategy::NewestWins, Strategy::ParentWins] {
            let blocked = by(strategy);
            assert!(blocked.is_blocked(), "{name} {strategy}");
            assert_eq!(text(&blocked, name).as_deref(), Some("of the parent"), "{strategy}");
        }
        let taken = by(Strategy::ChildWins);
        assert_eq!(listing(&taken.tree), listing(&sides[1].tree));
        assert_eq!(taken.losers, [FileLoser { path: name.into(), what: Loser::File(Side::Parent) }]);
    }
}

/// A process that makes a directory in a directory without end must not end the server: a look at a file there takes no
/// more stack than at any other.
#[test]
fn a_unit_is_looked_for_however_deep_a_file_lies() {
    let (mut tree, mut inode) = (Tree::default(), ROOT);
    let mut make = |parent: u64, name: &str, make: NewInode| {
        let name = FileName::new(name.as_bytes()).unwrap();
        tree.apply(&FileOp::Create { parent, name, make, mode: 0o755, uid: 1, gid: 1 }, Time(1), &NoPacks)
            .unwrap()
            .inode
    };
    for _ in 0..3_000 {
        inode = make(inode, "d", NewInode::Directory);
    }
    let file = make(inode, "f", NewInode::File);
    let look = move || {
        let rules = Rules::parse(RULES).unwrap();
        UnitFinder::new(&tree, &rules, &NoPacks).root(file, true).unwrap().is_none()
    };
    // A quarter of the stack that threads of the server have, so that a recursion over directories overflows here first.
    assert!(std::thread::Builder::new().stack_size(512 << 10).spawn(look).unwrap().join().unwrap());
}
