//! Ordinary files stand in for a mount's, as far as they can.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::RefCell;

use super::*;
use crate::cli::formats::RowPosition;
use crate::cli::target::Target;

const MERGE: &str = concat!(
    r#"{"seq":3,"op":"merge","branch":"main/x","head":"h","entry":"e","#,
    r#""counts":{"put":2,"deleted":1,"files":0},"conflicts":[{"id":"a"}]}"#
);

/// A directory with the files of a branch, as far as ordinary files can stand in for them.
fn branch() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let x = dir.path().join("branches/x");
    fs::create_dir_all(&x).unwrap();
    for place in [dir.path(), &x] {
        fs::write(place.join("status"), "{\"path\":\"main/x\",\"head\":\"h\"}\n").unwrap();
        fs::write(place.join("ctl"), "").unwrap();
    }
    fs::write(dir.path().join("lineage"), format!("{{\"seq\":1,\"op\":\"root\"}}\n{MERGE}\n")).unwrap();
    fs::write(x.join("lineage"), "{\"seq\":1,\"op\":\"root\"}\n{\"seq\":2,\"op\":\"fork\"}\n").unwrap();
    dir
}

#[test]
fn an_answer_that_is_no_result_is_told_as_such() {
    let dir = branch();
    // An ordinary file answers with what was written to it.
    let failure = MountedBranch::new(dir.path()).run(&Verb::parse("merge").unwrap()).unwrap_err();
    assert_eq!(failure.code, "not_json");
    assert_eq!(fs::read_to_string(dir.path().join("ctl")).unwrap(), "merge\n");
}

#[test]
fn entries_of_a_subtree_are_gathered_in_order_without_repeats() {
    let dir = branch();
    let mut found = BTreeMap::new();
    MountedBranch::new(dir.path()).collect_lineage(&mut found).unwrap();
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn exports_of_a_quiet_branch_open_at_once() {
    let dir = branch();
    fs::create_dir(dir.path().join("export")).unwrap();
    fs::write(dir.path().join("export/ids.txt"), "a\n").unwrap();
    let mut exports = MountedBranch::new(dir.path()).exports(&[Export::Ids]).unwrap();
    let mut text = String::new();
    exports.readers[0].read_to_string(&mut text).unwrap();
    assert_eq!(text, "a\n");
}

#[test]
fn an_import_asks_to_leave_alone_what_is_already_so() {
    let dir = branch();
    fs::write(dir.path().join("ingest"), "").unwrap();
    let row = InputRow::Line { position: RowPosition::Line(1), bytes: b"{\"id\":\"a\"}".to_vec() };
    // An ordinary file answers with what was written to it.
    assert_eq!(MountedBranch::new(dir.path()).put(vec![row]).unwrap_err().code, "not_json");
    let written = fs::read_to_string(dir.path().join("ingest")).unwrap();
    assert_eq!(written, "{\"skip_unchanged\":true}\n{\"id\":\"a\"}\n");
}

#[test]
fn a_server_that_can_not_leave_alone_what_is_so_gets_the_rows_without_asking_for_it() {
    let row = || InputRow::Line { position: RowPosition::Line(1), bytes: b"{\"id\":\"a\"}".to_vec() };
    for (message, batches) in [("line 1: unknown field `skip_unchanged`", 2), ("line 2: the vector is zero", 1)] {
        let written = RefCell::new(Vec::new());
        let earlier_server = |lines: &[u8]| {
            written.borrow_mut().push(String::from_utf8(lines.to_vec()).unwrap());
            match written.borrow().len() {
                1 => Err(CommandError::new(Exit::Failed, "bad_document", message, "hint")),
                _ => Ok("answer".to_owned()),
            }
        };
        let answer = write_batch(vec![row()], earlier_server);
        let expected = ["{\"skip_unchanged\":true}\n{\"id\":\"a\"}\n", "{\"id\":\"a\"}\n"];
        assert_eq!(*written.borrow(), expected[..batches]);
        assert_eq!(answer.is_ok(), batches == 2, "{message}");
    }
}

#[test]
fn a_mountpoint_is_told_from_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("inside")).unwrap();
    assert!(is_mountpoint(Path::new("/proc")) && !is_mountpoint(&dir.path().join("inside")));
}

#[test]
fn the_path_of_a_branch_that_has_ended_is_told_with_how_and_when() {
    let dir = branch();
    let event = |op: &str, name: &str, time: &str| {
        format!("{{\"branch\":\"main/{name}\",\"event\":\"{op}\",\"time\":\"{time}\"}}\n")
    };
    let events = [
        event("fork", "old", "t1"),
        event("discard", "old", "t2"),
        event("fork", "old", "t3"),
        event("merge", "old", "t4"),
        event("discard", "other", "t5"),
        event("fork", "there", "t6"),
    ];
    fs::write(dir.path().join("events.jsonl"), events.concat()).unwrap();
    let at = |path: &str| how_branch_ended(&dir.path().join(path));
    assert_eq!(at("branches/old").as_deref(), Some("main/old was merged into its parent at t4"), "its last end");
    assert_eq!(at("branches/other").as_deref(), Some("main/other was discarded at t5"));
    for path in ["branches/there", "branches/never", "files/old"] {
        assert_eq!(at(path), None, "{path}");
    }
    let refused = Target::parse(&dir.path().join("branches/old")).unwrap_err();
    assert_eq!((refused.exit, refused.code.as_str()), (Exit::Missing, "gone"));
}
