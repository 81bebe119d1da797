//! What belongs together, without a mount: pulled, promoted, rolled back, and opened again.

use std::sync::Arc;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{BranchId, FILES_ROOT, Kind, Memory, MergeVerb, Setting, Side, View};

use crate::files::{read, rename, write};
use crate::support::{main_of, open, verify, who};

const HEADER: &str = "SQLite format 3\0";

/// Writes a database and its log.
fn store(memory: &Memory, branch: BranchId, database: &str, log: &str) {
    write(memory, branch, "m.db", &format!("{HEADER}{database}"));
    write(memory, branch, "m.db-wal", log);
}

fn found(memory: &Memory, branch: BranchId) -> (String, String) {
    let database = read(memory, branch, "m.db").unwrap();
    (database.strip_prefix(HEADER).unwrap().to_owned(), read(memory, branch, "m.db-wal").unwrap())
}

fn pair(database: &str, log: &str) -> (String, String) {
    (database.to_owned(), log.to_owned())
}

/// Lets a file of a branch be open for writing, until the next call.
fn open_for_writing(memory: &Memory, branch: BranchId, path: Option<&str>) {
    let inode = path.map(|path| memory.files(&View::Branch(branch)).unwrap().resolve(path.as_bytes()).unwrap());
    let open = move |of| inode.filter(|_| of == branch).into_iter().collect::<Vec<u64>>();
    memory.set_open_files(Some(Arc::new(open)));
}

#[test]
fn a_rollback_of_one_file_takes_what_belongs_to_it_along() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    store(&memory, main, "before", "log");
    write(&memory, main, "m.db2", "before");
    memory.checkpoint(&who(), main, "v1", None).unwrap();
    store(&memory, main, "checkpointed", "");
    for path in ["m.db-journal", "m.db2", "note"] {
        write(&memory, main, path, "after");
    }
    let rollback = || memory.rollback_files(&who(), main, "v1", &["files/m.db-wal".to_owned()]);
    let head = memory.status(&View::Branch(main)).unwrap()["head"].clone();
    open_for_writing(&memory, main, Some("m.db"));
    assert_eq!(rollback().unwrap_err().advice().code, "unit_in_use");
    assert_eq!(memory.rollback(&who(), main, "v1").unwrap_err().advice().code, "unit_in_use");
    assert_eq!(memory.status(&View::Branch(main)).unwrap()["head"], head);
    open_for_writing(&memory, main, Some("note"));
    rollback().unwrap();
    assert_eq!(found(&memory, main), pair("before", "log"));
    assert_eq!(read(&memory, main, "m.db-journal"), None);
    assert_eq!(read(&memory, main, "m.db2").unwrap(), "after", "it belongs to nothing");
    drop(memory);
    let memory = open(&disk).unwrap();
    assert_eq!(found(&memory, main), pair("before", "log"));
    memory.close().unwrap();
    verify(&disk).unwrap();
}

/// A blank of several bytes once kept the main file out of the rollback of its log, and the database was torn.
#[test]
fn a_unit_goes_back_as_a_whole_whatever_blanks_are_in_its_name() {
    for name in ["a b.db", "a\u{a0}b.db", "a\u{3000}b.db"] {
        let memory = open(&ForgetfulDisk::new()).unwrap();
        let main = main_of(&memory);
        let log = format!("{name}-wal");
        let write_both = |text: &str| {
            write(&memory, main, name, &format!("{HEADER}{text}"));
            write(&memory, main, &log, text);
        };
        let both = || (read(&memory, main, name).unwrap(), read(&memory, main, &log).unwrap());
        for pattern in ["files/*.db-wal".to_owned(), format!("files/{log}")] {
            write_both("before");
            let before = both();
            memory.checkpoint(&who(), main, "v1", None).unwrap();
            write_both("after");
            memory.rollback_files(&who(), main, "v1", std::slice::from_ref(&pattern)).unwrap();
            assert_eq!(both(), before, "{pattern}");
            memory.delete_checkpoint(&who(), main, "v1").unwrap();
        }
    }
}

#[test]
fn a_pull_and_a_promote_take_units_as_a_whole_and_an_opening_decides_nothing_again() {
    // A promote that is decided for the parent replaces what the branch has.
    for (merge, side) in
        [(MergeVerb::Pull, Side::Parent), (MergeVerb::Promote, Side::Child), (MergeVerb::Promote, Side::Parent)]
    {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        store(&memory, main, "base", "log");
        let fork = memory.fork(&who(), main, "x", None).unwrap();
        store(&memory, fork, "checkpointed", "");
        write(&memory, main, "m.db-wal", "log and more");
        let receiver = if side == Side::Parent { fork } else { main };
        let do_it = |dry_run| memory.merge(&who(), fork, merge, dry_run);
        let shown = do_it(true).unwrap();
        assert_eq!(shown.conflicts.iter().map(|it| &*it.id).collect::<Vec<_>>(), ["files/m.db"]);
        assert_eq!(do_it(false).unwrap_err().kind(), Kind::Conflict);
        memory.resolve_conflict(&who(), fork, "files/m.db-wal", side).unwrap();
        let plan = do_it(true).unwrap().plan;
        assert_ne!(shown.plan, plan, "what was decided is part of the plan");
        open_for_writing(&memory, receiver, Some("m.db-wal"));
        assert_eq!(do_it(true).unwrap().blockers[0].advice().code, "unit_in_use");
        assert_eq!(do_it(false).unwrap_err().advice().code, "unit_in_use");
        open_for_writing(&memory, receiver, None);
        let merged = do_it(false).unwrap();
        assert_eq!((merged.plan, merged.conflicts[0].decision), (plan, Some(side)));
        let expected = if side == Side::Child { pair("checkpointed", "") } else { pair("base", "log and more") };
        assert_eq!((found(&memory, main), found(&memory, fork)), (expected.clone(), expected.clone()));
        drop(memory);
        let memory = open(&disk).unwrap();
        assert_eq!((found(&memory, main), found(&memory, fork)), (expected.clone(), expected));
        memory.close().unwrap();
        verify(&disk).unwrap();
    }
}

#[test]
fn what_was_resolved_is_open_again_once_any_member_changes() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    store(&memory, main, "base", "log");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, fork, "m.db-wal", "of the child");
    write(&memory, main, "m.db-wal", "of the parent");
    let dry_run = || memory.merge(&who(), fork, MergeVerb::Merge, true).unwrap();
    memory.resolve_conflict(&who(), fork, "files/m.db", Side::Child).unwrap();
    let resolved = dry_run();
    assert_eq!(resolved.status, "ready");
    write(&memory, main, "m.db-shm", "a reader");
    assert_eq!((dry_run().status, dry_run().plan), ("ready", resolved.plan));
    write(&memory, main, "m.db-wal", "of the parent and more");
    assert_eq!(dry_run().status, "blocked");
    assert_ne!(dry_run().plan, resolved.plan);
    // Whoever was shown the conflict resolves it in words alone.
    for (path, text) in [("m.db-wal", "of both".to_owned()), ("m.db", format!("{HEADER}of both"))] {
        write(&memory, fork, path, &text);
        assert_eq!(dry_run().status, "blocked", "{path}");
    }
}

/// Renames the database of a fork and its log, while its parent gets something at the new name of the database.
fn renamed_onto(path: &str) -> (Arc<Memory>, BranchId, BranchId) {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    store(&memory, main, "base", "log");
    let child = memory.fork(&who(), main, "x", None).unwrap();
    for (from, to) in [("m.db", "n.db"), ("m.db-wal", "n.db-wal")] {
        memory.edit(&who(), child, rename((FILES_ROOT, from), (FILES_ROOT, to))).unwrap();
    }
    write(&memory, main, path, "of the parent");
    (memory, main, child)
}

#[test]
fn a_unit_whose_place_another_thing_has_blocks_the_merge() {
    let (memory, main, child) = renamed_onto("n.db/own");
    let dry = memory.merge(&who(), child, MergeVerb::Merge, true).unwrap();
    assert_eq!((dry.status, dry.blockers[0].code()), ("blocked", "conflicts"));
    assert_eq!(memory.merge(&who(), child, MergeVerb::Merge, false).unwrap_err().code(), "conflicts");
    assert_eq!(
        (found(&memory, main), read(&memory, main, "n.db/own").unwrap()),
        (pair("base", "log"), "of the parent".into())
    );
}

#[test]
fn a_unit_that_one_side_renamed_is_resolved_by_its_path_on_either_side() {
    for path in ["files/data", "files/moved", "files/data/2", "files/moved/2"] {
        let memory = open(&ForgetfulDisk::new()).unwrap();
        let main = main_of(&memory);
        memory.set(&who(), main, Setting::Rules, "/data/** unit\n/moved/** unit").unwrap();
        write(&memory, main, "data/1", "1");
        write(&memory, main, "data/2", "2");
        let fork = memory.fork(&who(), main, "x", None).unwrap();
        memory.edit(&who(), fork, rename((FILES_ROOT, "data"), (FILES_ROOT, "moved"))).unwrap();
        write(&memory, main, "data/2", "of the parent");
        assert_eq!(memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap_err().kind(), Kind::Conflict);
        memory.resolve_conflict(&who(), fork, path, Side::Child).unwrap();
        for merge in [MergeVerb::Merge, MergeVerb::Pull] {
            let planned = memory.merge(&who(), fork, merge, true).unwrap();
            let decisions: Vec<_> = planned.conflicts.iter().map(|item| item.decision).collect();
            assert_eq!((planned.status, decisions), ("ready", vec![Some(Side::Child)]), "{path}, {merge:?}");
        }
        memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
        assert_eq!((read(&memory, main, "moved/2").as_deref(), read(&memory, main, "data/2")), (Some("2"), None));
    }
}
