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
fn the_result_of_a_merge_comes_from_its_entry() {
    let result_in = |text: &str, name_path: &str| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        merge_result(&Lineage::of_file(file).unwrap(), name_path).unwrap()
    };
    let result = result_in(&format!("{{\"op\":\"root\"}}\n{MERGE}\n{{\"op\":\"commit\"}}\n"), "main/x");
    assert_eq!(
        (&result["put"], &result["status"], &result["conflicts"][0]["id"]),
        (&json!(2), &json!("merged"), &json!("a"))
    );
    assert_eq!(result_in(MERGE, "main/y"), json!({"status": "merged"}));
}

#[test]
fn a_merge_is_a_rename_into_the_parent() {
    let dir = branch();
    let x = dir.path().join("branches/x");
    let result = Mounted::new(&x).join(Join::Merge, false).unwrap();
    assert_eq!(result["entry"], "e");
    assert!(dir.path().join("x").is_dir() && !x.exists());
}

#[test]
fn a_root_branch_has_nothing_to_merge_into() {
    let dir = branch();
    let failure = Mounted::new(dir.path()).join(Join::Merge, false).unwrap_err();
    assert_eq!(failure.code, "no_parent");
}

#[test]
fn a_fork_is_a_mkdir_and_a_taken_name_says_so() {
    let dir = branch();
    let main = Mounted::new(dir.path());
    main.fork("y", None).unwrap();
    assert!(dir.path().join("branches/y").is_dir());
    assert_eq!(main.fork("y", None).unwrap_err().code, "eexist");
}

#[test]
fn entries_of_a_subtree_are_gathered_in_order_without_repeats() {
    let dir = branch();
    let mut found = BTreeMap::new();
    Mounted::new(dir.path()).gather(&mut found).unwrap();
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn exports_of_a_quiet_branch_open_at_once() {
    let dir = branch();
    fs::create_dir(dir.path().join("export")).unwrap();
    fs::write(dir.path().join("export/ids.txt"), "a\n").unwrap();
    let mut readers = Mounted::new(dir.path()).exports(&[Export::Ids]).unwrap();
    let mut text = String::new();
    readers[0].read_to_string(&mut text).unwrap();
    assert_eq!(text, "a\n");
}
