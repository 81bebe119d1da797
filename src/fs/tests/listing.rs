//! Directories as readdir(3) and its friends see them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rig::{ANN, ROOT, Rig, document};
use crate::fs::{Attr, AttrChanges, Errno};

fn with_records(count: usize) -> Rig {
    let rig = Rig::new();
    let lines: String = (0..count).map(|number| format!("{{\"id\":\"r{number:05}\",\"text\":\"x\"}}\n")).collect();
    rig.write("main/ingest", &lines).unwrap();
    rig
}

/// The names in a branch's directory that the page's table of control files has, in order.
fn names_on_the_page() -> BTreeSet<String> {
    let page = include_str!("../../../docs/SEMANTICS.md");
    let (_, table) = page.split_once("| file | write | read |\n").unwrap();
    let rows = table.lines().skip(1).map_while(|row| row.strip_prefix("| `"));
    rows.map(|row| row.split(['`', '/']).next().unwrap().to_owned()).collect()
}

#[test]
fn every_branch_has_the_same_names() {
    let rig = Rig::new();
    rig.mkdir("main/branches/x").unwrap();
    rig.mkdir("main/checkpoints/v1").unwrap();
    rig.write("main/vectors/a.json", &document("apples")).unwrap();
    let lineage = rig.read("main/lineage").unwrap();
    let newest: Value = serde_json::from_str(lineage.lines().last().unwrap()).unwrap();
    rig.write("main/vectors/a.json", &document("pears")).unwrap();
    rig.write("main/branches/x/vectors/b.json", &document("plums")).unwrap();
    rig.write("main/branches/x/ctl", "propose\n").unwrap();
    let earlier = format!("main/at/{}", newest["seq"]);
    let expected = names_on_the_page();
    let without_scratch: BTreeSet<_> = expected.iter().filter(|name| *name != "scratch").cloned().collect();
    let of_a_proposal: BTreeSet<_> = without_scratch.iter().cloned().chain(["plan".to_owned()]).collect();
    for (directory, wanted) in [
        ("main", &expected),
        ("main/branches/x", &expected),
        ("main/checkpoints/v1", &expected),
        (earlier.as_str(), &without_scratch),
        ("main/proposals/x", &of_a_proposal),
    ] {
        let names = rig.list(directory);
        assert!(names.iter().all(|name| rig.stat(&format!("{directory}/{name}")).is_ok()), "{directory}");
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), *wanted, "{directory}");
    }
    assert_eq!(rig.list("main/export"), ["vectors.npy", "ids.txt", "records.jsonl"]);
}

#[test]
fn what_tells_of_other_branches_is_empty_where_nothing_changes_any_more() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("base")).unwrap();
    rig.mkdir("main/branches/x").unwrap();
    rig.mkdir("main/branches/x/branches/below").unwrap();
    rig.write("main/branches/x/vectors/a.json", &document("of x")).unwrap();
    let lineage = rig.read("main/branches/x/lineage").unwrap();
    let newest: Value = serde_json::from_str(lineage.lines().last().unwrap()).unwrap();
    rig.mkdir("main/branches/x/checkpoints/v1").unwrap();
    rig.write("main/vectors/a.json", &document("of main")).unwrap();
    rig.write("main/branches/x/vectors/b.json", &document("later")).unwrap();
    rig.write("main/branches/x/ctl", "propose\n").unwrap();
    for name in ["branches.jsonl", "conflicts"] {
        assert_eq!(rig.read(&format!("main/branches/x/{name}")).unwrap().lines().count(), 1, "a control: {name}");
        let earlier = format!("main/branches/x/at/{}", newest["seq"]);
        for directory in ["main/branches/x/checkpoints/v1", &earlier, "main/proposals/x"] {
            assert_eq!(rig.read(&format!("{directory}/{name}")).unwrap(), "", "{directory}/{name}");
        }
    }
    assert_eq!(rig.read("main/conflicts").unwrap(), "", "a root branch has no parent");
}

/// The kernel takes them, if only for a moment, and a call of somebody else that it checks then is decided by them.
#[test]
fn a_listing_tells_owner_and_mode_as_stat_does() {
    let mut rig = Rig::new();
    rig.who = ANN;
    rig.mkdir("main/branches/ann").unwrap();
    let branch = "main/branches/ann";
    for (name, bytes) in [
        ("config/log", "own"),
        ("vectors/a.json", &document("apples")),
        ("vectors/.temporary", "x"),
        ("files/f", "bytes"),
        ("shared/signals/key", "value"),
        ("shared/log/append", "entry\n"),
        ("ctl", "propose\n"),
    ] {
        rig.write(&format!("{branch}/{name}"), bytes).unwrap();
    }
    for name in ["shared/signals/key", "vectors/.temporary"] {
        let mode = AttrChanges { mode: Some(0o600), ..AttrChanges::default() };
        rig.fs.setattr(ANN, rig.ino(&format!("{branch}/{name}")).unwrap(), mode, None).unwrap();
    }
    rig.mkdir(&format!("{branch}/checkpoints/c")).unwrap();
    let mut seen = 0;
    let checkpoint = "checkpoints/c/";
    for folder in
        ["", "vectors", "files", "export", "config", "shared", "shared/log", "shared/signals", checkpoint, "main"]
    {
        let folder =
            if folder == "main" { "main/proposals/ann/vectors".to_owned() } else { format!("{branch}/{folder}") };
        for (name, told) in rig.entries(&folder) {
            let there = rig.stat(&format!("{folder}/{name}")).unwrap();
            let rights = |attr: Attr| (attr.ino, attr.kind, attr.mode, attr.uid, attr.gid);
            assert_eq!(rights(told), rights(there), "{folder}/{name}");
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn a_temporary_has_the_owner_and_group_that_chown_gives_it() {
    let rig = Rig::new();
    rig.write("main/vectors/.saver", "x").unwrap();
    let owner = || {
        let attr = rig.stat("main/vectors/.saver").unwrap();
        (attr.uid, attr.gid)
    };
    assert_eq!(owner(), (ROOT.uid, ROOT.gid));
    let changes = AttrChanges { uid: Some(1000), gid: Some(100), ..AttrChanges::default() };
    rig.fs.setattr(ROOT, rig.ino("main/vectors/.saver").unwrap(), changes, None).unwrap();
    assert_eq!(owner(), (1000, 100));
}

#[test]
fn a_long_listing_is_whole_and_in_order() {
    let rig = with_records(2_500);
    let names = rig.list("main/vectors");
    assert_eq!(names.len(), 2_500);
    assert!(names.is_sorted());
}

#[test]
fn a_listing_stays_as_it_was_at_open() {
    let rig = with_records(10);
    let handle = rig.fs.opendir(ROOT, rig.ino("main/vectors").unwrap()).unwrap();
    rig.rm("main/vectors/r00003.json").unwrap();
    rig.write("main/ingest", "{\"id\":\"another\",\"text\":\"x\"}\n").unwrap();
    let names: Vec<_> = rig.list_from(handle, 0).into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"r00003.json".to_owned()) && !names.contains(&"another.json".to_owned()));
}

#[test]
fn any_cookie_leads_back_to_its_place() {
    let rig = with_records(2_500);
    rig.write("main/vectors/.temporary", "x").unwrap();
    let handle = rig.fs.opendir(ROOT, rig.ino("main/vectors").unwrap()).unwrap();
    let all = rig.list_from(handle, 0);
    assert_eq!(all.len(), 2_503);
    for place in [2_499, 1_026, 1_027, 3, 0, 2_050] {
        assert_eq!(rig.list_from(handle, all[place].1), all[place + 1..], "behind {place}");
    }
    assert_eq!(rig.list_from(handle, 0), all);
    assert!(rig.list_from(handle, 1_000_000).is_empty());
}

#[test]
fn a_cookie_that_was_never_given_is_walked_to() {
    let rig = with_records(2_500);
    let all = rig.list_from(rig.fs.opendir(ROOT, rig.ino("main/vectors").unwrap()).unwrap(), 0);
    let fresh = rig.fs.opendir(ROOT, rig.ino("main/vectors").unwrap()).unwrap();
    assert_eq!(rig.list_from(fresh, 2_400), all[2_400..]);
}

#[test]
fn numbers_in_a_listing_are_those_of_stat() {
    let rig = with_records(3);
    let handle = rig.fs.opendir(ROOT, rig.ino("main/vectors").unwrap()).unwrap();
    let mut numbers = Vec::new();
    rig.fs
        .readdir(handle, 2, &mut |ino, _, _, name| {
            numbers.push((ino, name.to_owned()));
            false
        })
        .unwrap();
    for (ino, name) in numbers {
        assert_eq!(rig.stat(&format!("main/vectors/{}", name.to_str().unwrap())).unwrap().ino, ino);
    }
    rig.fs
        .readdir(handle, 1, &mut |ino, _, _, _| {
            assert_eq!(ino, rig.ino("main").unwrap());
            true
        })
        .unwrap();
}

#[test]
fn who_looks_for_a_state_that_never_was_is_told_so_and_of_other_names_nothing() {
    let rig = Rig::new();
    rig.mkdir("main/branches/x").unwrap();
    let find = |name: &str| rig.ino(&format!("main/branches/x/at/{name}"));
    for name in ["v1", ".git", "a b"] {
        assert_eq!(find(name), Err(Errno::ENOENT), "{name}");
    }
    assert_eq!(rig.read("main/branches/x/errors").unwrap(), "");
    let hash = "a".repeat(64);
    for name in ["1", "@1", "99999", "2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z", &hash] {
        assert_eq!(find(name), Err(Errno::ENOENT), "{name}");
        let error = rig.last_error("main/branches/x");
        assert_eq!((&error["code"], &error["path"]), (&"no_such_state".into(), &format!("at/{name}").into()));
    }
}

#[test]
fn files_are_no_directories_and_directories_no_files() {
    let rig = with_records(1);
    assert_eq!(rig.fs.opendir(ROOT, rig.ino("main/query").unwrap()), Err(Errno::ENOTDIR));
    assert_eq!(rig.fs.open(ROOT, rig.ino("main/vectors").unwrap(), libc::O_RDONLY), Err(Errno::EISDIR));
    assert_eq!(rig.ino("main/query/deeper"), Err(Errno::ENOTDIR));
    assert_eq!(rig.fs.getattr(rig.who, 42, None), Err(Errno::ESTALE));
    assert_eq!(rig.fs.read(42, 0, 1), Err(Errno::EBADF));
}
