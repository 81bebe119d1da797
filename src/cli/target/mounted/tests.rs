//! Ordinary files stand in for a mount's, as far as they can.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::*;

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
