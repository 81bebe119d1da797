//! The built program on stores that are not mounted.

use std::fs;

use serde_json::Value;

use crate::mount::{lines, run};

/// A folder for a test, and the paths of things in it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

fn json(arguments: &[&str]) -> (i32, Value) {
    let (code, out, err) = run(&[arguments, &["--json"]].concat());
    let line = if code == 0 { out } else { err };
    (code, lines(&line).pop().unwrap())
}

#[test]
fn init_makes_a_store_once_and_in_an_empty_folder_only() {
    let folder = Folder::new();
    let store = folder.at("store");
    let (code, made) = json(&["init", &store]);
    assert_eq!((code, &made["target"]), (0, &Value::from(format!("{store}:main"))));
    assert_eq!(json(&["status", &format!("{store}:main")]).1["tip"], made["tip"]);
    let (code, error) = json(&["init", &store]);
    assert_eq!((code, &error["code"]), (1, &Value::from("exists")));
    fs::create_dir(folder.at("used")).unwrap();
    fs::write(folder.at("used/notes.txt"), "mine").unwrap();
    let (code, error) = json(&["init", &folder.at("used")]);
    assert_eq!((code, &error["code"]), (1, &Value::from("not_a_store")));
    assert_eq!(fs::read_dir(folder.at("used")).unwrap().count(), 1);
    fs::create_dir(folder.at("empty")).unwrap();
    assert_eq!(run(&["init", &folder.at("empty")]).0, 0);
    assert_eq!(run(&["verify", &folder.at("empty")]).0, 0);
}

#[test]
fn a_backup_is_checked_and_becomes_a_store() {
    let folder = Folder::new();
    let (store, copy, back) = (folder.at("store"), folder.at("copy"), folder.at("back"));
    run(&["init", &store]);
    run(&["fork", &format!("{store}:main"), "x"]);
    let (_, backup) = json(&["backup", &store, &copy]);
    let (code, restored) = json(&["restore", &copy, &back]);
    assert_eq!((code, &restored["branches"], &restored["tip"]), (0, &Value::from(2), &backup["tip"]));
    assert_eq!(restored["entries"], backup["entries"]);
    assert_eq!(run(&["fork", &format!("{back}:main/x"), "y"]).0, 0);
    let (code, error) = json(&["restore", &copy, &back]);
    assert_eq!((code, &error["code"]), (1, &Value::from("exists")));
    assert_eq!(json(&["restore", &folder.at("none"), &folder.at("new")]).0, 6);
    // A damaged backup is told before anything is made.
    let mut manifest = fs::read(format!("{copy}/manifest")).unwrap();
    let middle = manifest.len() / 2;
    manifest[middle] ^= 1;
    fs::write(format!("{copy}/manifest"), manifest).unwrap();
    assert_eq!(json(&["restore", &copy, &folder.at("new")]).0, 4);
    assert!(fs::metadata(folder.at("new")).is_err());
}

#[test]
fn a_store_of_the_first_format_is_refused_with_how_to_take_it_over() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    fs::write(format!("{store}/format"), "engramfs store, format 1\n").unwrap();
    for arguments in
        [&["status", &format!("{store}:main")][..], &["verify", &store], &["backup", &store, &folder.at("c")]]
    {
        let (code, error) = json(arguments);
        assert_eq!((code, &error["code"]), (1, &Value::from("old_format")), "{arguments:?}");
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.contains("engramfs 0.1.0") && hint.contains("export") && hint.contains("cp -a"), "{hint}");
    }
}

#[test]
fn states_are_named_by_label_entry_and_time() {
    let folder = Folder::new();
    let target = format!("{}:main", folder.at("store"));
    run(&["init", &folder.at("store")]);
    run(&["checkpoint", &target, "v1"]);
    let log = lines(&run(&["log", &target, "--json"]).1);
    let taken = log.iter().find(|line| line["op"] == "checkpoint").unwrap()["seq"].to_string();
    for state in ["v1", &taken, &format!("@{taken}"), "-0m"] {
        let (code, rolled) = json(&["rollback", &target, state]);
        assert_eq!(code, 0, "{state}: {rolled}");
    }
    assert_eq!(json(&["rollback", &target, &taken]).1["from"]["checkpoint"], "v1");
    assert_eq!(run(&["fork", "--from", "-0m", &target, "x"]).0, 0);
    for (state, told) in [("99", "no_such_state"), ("-5d", "no_such_state"), ("v9", "no_such_checkpoint")] {
        let (code, error) = json(&["rollback", &target, state]);
        assert_eq!((code, &error["code"]), (6, &Value::from(told)), "{state}");
    }
    assert_eq!(json(&["checkpoint", &target, "12"]).1["code"], "bad_name");
}
