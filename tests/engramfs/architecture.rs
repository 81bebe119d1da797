//! The modules stand as docs/ARCHITECTURE.md says: the tables there and in CONTRIBUTING.md are read and held against the source.
//!
//! The rules are pure functions over source text, each tested with made-up input that breaks it; here
//! they are applied to the project itself.

mod claims;
mod comments;
mod dependencies;
mod failures;
mod map;
mod names;
mod rules;
mod samples;
mod source;

use std::path::Path;

use map::Map;
use source::{Source, sources};

/// Where the library and the program begin.
const SRC_ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// What docs/SEMANTICS.md says without a test: figures that were measured, what the kernel does, and what is not promised.
const WITHOUT_TEST: [&str; 8] = [
    "- **Beyond reach** are backups",
    "These commands start programs that their caller names",
    "- While a store is served its [lineage](#old-lineage) only grows",
    "- **`ls -l` of a directory of 118,000 records**",
    "- **A handle on a file of a checkpoint that was deleted**",
    "- **A store through a mapping can undo a write beside it**",
    "- **Buffered io_uring is 27 to 68 times slower**",
    "The verb `mcp`.",
];

/// Tests that stand beside those of crash cases, cut the power or count calls, and show no case: a control of the checks themselves,
/// the journal of an earlier version, and a store that is closed.
const WITHOUT_CRASH_CASE: [&str; 3] = [
    "the_check_finds_losses_other_entries_and_mixes",
    "a_file_without_a_salt_is_read_and_carried_on",
    "a_seal_after_close_changes_nothing_on_the_disk",
];

/// Functions whose names may end in `_of`: predicates, each with an argument that completes the phrase.
const ENDING_IN_OF: [&str; 2] = ["is_clone_of", "is_prefix_of"];

/// Names that may have a word that elsewhere tells nothing: mount(8) has a helper, and common is what two share.
const WITH_EMPTY_WORDS: [&str; 5] =
    ["may_ask_helper", "helper_options", "common_prefix_length", "common_lines_bound", "greatest_common_divisor"];

/// Names in comments that the code has not: of the kernel, of programs, of a format and of what is shown, and a beginning of names.
const ELSEWHERE: [&str; 14] = [
    "FMODE_EXEC",
    "FUSE_NOTIFY_INC_EPOCH",
    "O_PATH",
    "default_permissions",
    "st_ino",
    "cat",
    "df",
    "echo",
    "initializer",
    "E0308",
    "Z",
    "happi",
    "te",
    "verified_",
];

/// Every file below a folder of the project whose name ends in `.` and `extension`.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut found, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} holds .{extension} files");
    found
}

fn src() -> Vec<Source> {
    sources(files("src", "rs"), &SRC_ROOTS)
}

fn tests() -> Vec<Source> {
    sources(files("tests/engramfs", "rs"), &["main.rs"])
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn page() -> Map {
    map::read(&[read("docs/ARCHITECTURE.md"), read("CONTRIBUTING.md")].concat()).unwrap()
}

/// Fails with all findings.
fn none(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn modules_use_only_what_the_table_allows() {
    none(rules::forbidden_edges(&src(), &page()));
    none(rules::climbs(&src()));
}

#[test]
fn the_table_names_every_module_and_nothing_else() {
    none(rules::strange_rows(&src(), &page()));
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    none(rules::cycles(&rules::edges(&src())));
    none(rules::cycles(&page().modules));
}

#[test]
fn no_folders_of_a_module_use_each_other_in_a_circle() {
    none(rules::cycles(&rules::folder_edges(&src())));
}

#[test]
fn folders_of_a_module_import_only_from_those_above_them() {
    none(rules::upward_folders(&src(), &page()));
}

#[test]
fn files_and_functions_stay_small() {
    none([rules::giants(&src()), rules::giants(&tests())].concat());
}

#[test]
fn a_name_of_a_type_means_one_thing() {
    none(rules::repeated_types(&src()));
}

#[test]
fn a_name_of_a_function_says_what_it_gives_or_does() {
    none(names::functions_ending_in_of(&src(), &ENDING_IN_OF));
}

#[test]
fn a_name_tells_something_of_what_it_names() {
    none(names::names_that_tell_nothing(&src(), &WITH_EMPTY_WORDS));
}

#[test]
fn the_names_in_comments_are_there() {
    none(comments::stale_names(&src(), &ELSEWHERE));
}

#[test]
fn public_functions_say_when_they_fail() {
    none(failures::silent(&src()));
}

#[test]
fn each_error_has_a_sample() {
    none(samples::missing(&src()));
}

#[test]
fn nothing_is_left_unfinished() {
    none([rules::unfinished(&src()), rules::unfinished(&tests())].concat());
}

#[test]
fn no_file_is_forgotten() {
    none(rules::forgotten(&src(), &SRC_ROOTS));
    none(rules::forgotten(&tests(), &["main.rs"]));
}

#[test]
fn what_only_some_may_use_is_used_there_alone() {
    none(page().limits.iter().flat_map(|limit| rules::used_elsewhere(&src(), limit)).collect());
    none(rules::crates_elsewhere(&src(), &page()));
}

/// A guard in an argument is held until the statement ends.
#[test]
fn no_call_is_made_with_the_lock_of_the_catalog_held() {
    let is_held = |line: &str| line.contains("&self.catalog().clone()") || line.contains("self.catalog().clone().");
    let mut findings = Vec::new();
    for (name, text) in files("src", "rs") {
        let held = text.lines().zip(1..).filter(|(line, _)| is_held(line));
        findings.extend(held.map(|(line, number)| format!("{name}:{number}: {}: take `catalog_now`", line.trim())));
    }
    none(findings);
}

#[test]
fn the_tests_that_pages_name_are_there() {
    let (src, tests) = (src(), tests());
    let all: Vec<&Source> = src.iter().chain(&tests).collect();
    for (_, page) in files("docs", "md") {
        none(rules::missing_tests(&page, &all));
    }
}

#[test]
fn each_claim_of_the_semantics_names_a_test() {
    none(claims::untested(&read("docs/SEMANTICS.md"), &WITHOUT_TEST));
}

#[test]
fn the_files_and_methods_that_the_architecture_names_are_there() {
    let page = read("docs/ARCHITECTURE.md");
    for page in [&page, &read("docs/SUBSYSTEMS.md")] {
        none(names::missing_files(page, &src(), &tests()));
        none(names::missing_items(page, &src()));
    }
    none(names::strange_steps(&page, &src()));
}

#[test]
fn each_crash_case_names_its_test() {
    none(rules::untested_crashes(&read("docs/FORMAT.md")));
}

#[test]
fn each_test_of_crashes_stands_in_one_crash_case() {
    let (page, src, tests) = (read("docs/FORMAT.md"), src(), tests());
    let all: Vec<&Source> = src.iter().chain(&tests).collect();
    none(rules::repeated_crash_tests(&page));
    none(rules::unlisted_crash_tests(&page, &all, &WITHOUT_CRASH_CASE));
}

#[test]
fn every_dependency_says_what_it_is_for() {
    none(dependencies::unexplained(&read("Cargo.toml"), &read("Cargo.lock")));
}
