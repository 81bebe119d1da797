//! Databases that both sides of a merge write to.

use std::fs;

use crate::mount::{Mounted, command, succeed};
use crate::support::rounds;

/// Makes a database in the branch `main` with its log beside it, which no process has open any more.
const CRASHED: &str = "import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1]); db.execute('pragma journal_mode=wal'); db.execute('pragma wal_autocheckpoint=0')
db.execute('create table if not exists t (v text)')
with db: db.execute('insert into t values (?)', (sys.argv[2],))
os._exit(0)";
/// Opens a database, has its log written back, and prints what it holds.
const OPENED: &str = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1]); assert db.execute('pragma integrity_check').fetchone()[0] == 'ok'
print(*sorted(v for v, in db.execute('select v from t')))";

fn sqlite(mount: &Mounted, code: &str, path: &str, word: &str) -> String {
    succeed(command("python3", &["-c", code, path, word]).current_dir(mount.at(""))).trim().to_owned()
}

#[test]
fn one_word_resolves_a_whole_unit_until_a_side_changes_any_of_it() {
    let mount = Mounted::new();
    let (own, above) = ("main/branches/x/files/m.db", "main/files/m.db");
    sqlite(&mount, CRASHED, above, "base");
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    sqlite(&mount, CRASHED, own, "child");
    assert_eq!(sqlite(&mount, OPENED, own, ""), "base child");
    sqlite(&mount, CRASHED, above, "parent");
    assert!(mount.ctl("main/branches/x", "merge").is_err());
    assert_eq!(mount.refusal("main/branches/x")["code"], "conflicts");
    mount.ctl("main/branches/x", "resolve files/m.db child").unwrap();
    sqlite(&mount, CRASHED, above, "again");
    assert!(mount.ctl("main/branches/x", "merge").is_err(), "the parent went on");
    mount.ctl("main/branches/x", "resolve files/m.db-wal child").unwrap();
    let merged = mount.ctl("main/branches/x", "merge").unwrap();
    let conflicts = merged["conflicts"].as_array().unwrap();
    assert_eq!(conflicts.iter().map(|it| &it["path"]).collect::<Vec<_>>(), ["files/m.db"], "{merged}");
    assert_eq!(sqlite(&mount, OPENED, above, ""), "base child");
    let lost: Vec<&str> =
        conflicts[0]["lost"].as_array().unwrap().iter().map(|it| it["text"].as_str().unwrap()).collect();
    let hash = lost.iter().find_map(|text| text.strip_prefix("m.db-wal ")).unwrap();
    let shown = mount.ctl("main", &format!("show {hash}")).unwrap();
    assert_eq!(shown["path"], "files/m.db-wal", "{shown}");
    let mount = mount.again(&[]);
    assert_eq!(sqlite(&mount, OPENED, above, ""), "base child", "an opening applies what was recorded");
}

#[test]
fn a_database_that_is_open_for_writing_is_not_replaced() {
    let mount = Mounted::new();
    sqlite(&mount, CRASHED, "main/files/m.db", "base");
    fs::create_dir(mount.at("main/checkpoints/before")).unwrap();
    for branch in ["x", "y", "z"] {
        fs::create_dir(mount.at(&format!("main/branches/{branch}"))).unwrap();
    }
    sqlite(&mount, CRASHED, "main/branches/x/files/m.db", "child");
    fs::write(mount.at("main/branches/y/files/note"), "y").unwrap();
    let open = fs::OpenOptions::new().read(true).write(true).open(mount.at("main/files/m.db-wal")).unwrap();
    let dry = mount.ctl("main/branches/x", "merge --dry-run").unwrap();
    assert_eq!((&dry["status"], &dry["blockers"][0]["code"]), (&"blocked".into(), &"unit_in_use".into()));
    for verb in ["merge", "promote"] {
        assert_eq!(mount.ctl("main/branches/x", verb).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        assert_eq!(mount.refusal("main/branches/x")["code"], "unit_in_use");
    }
    mount.ctl("main/branches/y", "merge").unwrap();
    // SAFETY: no other process maps or changes the file meanwhile.
    let map = unsafe { memmap2::MmapOptions::new().map_mut(&open) }.unwrap();
    drop(open);
    let refused = mount.ctl("main/branches/x", "merge").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBUSY), "a mapping holds the file open");
    drop(map);
    let _reader = fs::File::open(mount.at("main/files/m.db")).unwrap();
    // The kernel tells the server of a close a moment after it.
    let merged = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        mount.ctl("main/branches/x", "merge").ok()
    });
    assert!(merged.is_some());
    assert_eq!(sqlite(&mount, OPENED, "main/files/m.db", ""), "base child");
    fs::write(mount.at("main/branches/z/files/of-z"), "z").unwrap();
    let writable = |branch: &str| fs::File::options().write(true).open(mount.at(&format!("{branch}/files/m.db")));
    let _writers = ["main/branches/z", "main"].map(|branch| writable(branch).unwrap());
    for (branch, verb) in [("main/branches/z", "pull"), ("main/branches/z", "promote"), ("main", "rollback before")] {
        assert_eq!(mount.ctl(branch, verb).unwrap_err().raw_os_error(), Some(libc::EBUSY), "{verb}");
        assert_eq!(mount.refusal(branch)["code"], "unit_in_use", "{verb}");
    }
}

#[test]
fn merges_at_random_moments_leave_databases_that_open() {
    let mount = Mounted::new();
    let count = rounds(1) * 10;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/attack/databases.py");
    let outcome = succeed(command("python3", &[script, "sqlite", &count.to_string()]).arg(mount.at("main")));
    assert!(outcome.contains("0 torn"), "{outcome}");
}
