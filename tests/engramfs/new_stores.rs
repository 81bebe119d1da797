//! Stores that are made and copied, and what is left where that fails.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::mount::{command, names, run};

/// Runs `engramfs` where no file may be longer than `bytes`, as on a disk that is full by then; returns its exit code.
fn run_with_files_up_to(bytes: u32, arguments: &[&str]) -> i32 {
    // Python ignores the signal that would end the program, and what it becomes does so, too.
    let code = format!(
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, {bytes})); \
         os.execv(sys.argv[1], sys.argv[1:])"
    );
    let mut python = command("python3", &["-c", &code, env!("CARGO_BIN_EXE_engramfs")]);
    python.args(arguments).output().unwrap().status.code().unwrap()
}

#[test]
fn what_can_t_be_made_whole_leaves_nothing_and_can_be_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (store, used) = (at("new/store"), at("used"));
    fs::create_dir(&used).unwrap();
    // The manifest of a new store is shorter, its journal longer.
    for place in [&store, &used] {
        assert_eq!(run_with_files_up_to(256, &["init", place]), 1);
    }
    assert_eq!((Path::new(&at("new")).exists(), names(Path::new(&used))), (false, vec!["lock".to_owned()]));
    for place in [&store, &used] {
        assert_eq!(run(&["init", place]).0, 0);
    }
    // A copy of it, too, and what is restored of that: the manifest is longer.
    let (copy, back) = (at("copies/monday"), at("back"));
    assert_eq!(run_with_files_up_to(64, &["backup", &store, &copy]), 1);
    assert!(!Path::new(&at("copies")).exists());
    assert_eq!(run(&["backup", &store, &copy]).0, 0);
    assert_eq!(run_with_files_up_to(64, &["restore", &copy, &back]), 1);
    assert!(!Path::new(&back).exists());
    assert_eq!(run(&["restore", &copy, &back]).0, 0);
}

#[test]
fn a_store_in_a_folder_that_was_there_is_closed_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (store, dump, input) = (at("store"), at("dump"), at("in.jsonl"));
    fs::write(&input, "{\"id\":\"a\",\"text\":\"tea\"}\n").unwrap();
    assert_eq!(run(&["init", &store]).0, 0);
    assert_eq!(run(&["backup", &store, &dump]).0, 0);
    let (created, by_import) = (at("created"), format!("{}:main", at("created")));
    let made: [(&[&str], &str); 4] = [
        (&["init", &at("new")], "new"),
        (&["import", "--create", &by_import, &input], "created"),
        (&["backup", &store, &at("copy")], "copy"),
        (&["restore", &dump, &at("back")], "back"),
    ];
    let is_root = fs::metadata(&store).unwrap().uid() == 0;
    for (arguments, name) in made {
        fs::create_dir(at(name)).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o777)).unwrap();
        if is_root {
            std::os::unix::fs::chown(at(name), Some(1001), None).unwrap();
        }
        let (code, _, said) = run(arguments);
        assert_eq!((code, fs::metadata(at(name)).unwrap().mode() & 0o7777), (0, 0o700), "{arguments:?}: {said}");
        let is_warned = said.contains("belongs to uid 1001 and not to uid 0, who makes it");
        assert_eq!(is_warned, is_root && arguments[0] != "import", "{arguments:?}: {said}");
    }
    // A store that is there stays as its owner has it.
    fs::set_permissions(&created, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run(&["import", "--create", &by_import, &input]).0, 0);
    assert_eq!(fs::metadata(&created).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn an_import_into_a_branch_that_a_new_store_has_not_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (store, input) = (at("store"), at("in.jsonl"));
    fs::write(&input, "{\"id\":\"a\",\"text\":\"tea\"}\n").unwrap();
    let import = |name_path: &str| run(&["import", "--create", &format!("{store}:{name_path}"), &input]);
    let (code, _, said) = import("other");
    assert!(code == 6 && said.contains(&format!("write {store}:main")) && !Path::new(&store).exists(), "{said}");
    assert_eq!((import("main").0, import("other").0, import("main").0), (0, 6, 0));
}
