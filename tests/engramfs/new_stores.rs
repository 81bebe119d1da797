//! Stores that are made and copied, and what is left where that fails.

use std::fs;
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
