//! Made-up sources that break each rule, and some that just don't.

use super::super::source::sources;
use super::*;

/// Made-up files below a made-up lib.rs that names them all.
fn tree(files: &[(&str, &str)]) -> Vec<Source> {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    sources(files.collect(), &["lib.rs"])
}

fn map() -> Map {
    let edges = |module: &str, uses: &[&str]| (module.to_owned(), uses.iter().map(|name| (*name).to_owned()).collect());
    Map {
        modules: Edges::from([edges("a", &["b"]), edges("b", &[])]),
        crates: BTreeMap::from([("k".to_owned(), vec!["a".to_owned()])]),
        limits: Vec::new(),
        folders: vec!["a/low".to_owned(), "a/high".to_owned()],
    }
}

#[test]
fn an_import_from_a_folder_below_is_found() {
    let using = |folder: &str, other: &str| {
        let (own, used) = (format!("a/{folder}/x.rs"), format!("a/{other}/y.rs"));
        let text = format!("use crate::a::{other}::y::Z;");
        upward_folders(&tree(&[("a/mod.rs", ""), (&own, &text), (&used, "")]), &map())
    };
    assert!(using("high", "low").is_empty());
    assert_eq!(using("low", "high"), ["a/low imports from a/high, which stands below it"]);
}

#[test]
fn a_folder_that_the_table_leaves_out_is_found() {
    let found = |files: &[(&str, &str)]| upward_folders(&tree(files), &map());
    let other = ("a/other/y.rs", "");
    assert_eq!(
        found(&[("a/low/x.rs", "use crate::a::other::y::Z;"), other]),
        ["a/other has no row in the table of folders"]
    );
    assert!(found(&[("a/low/x.rs", "use crate::a::low::z::Z;"), ("a/low/z.rs", ""), other]).is_empty());
    assert!(found(&[("b/x/f.rs", "use crate::b::y::g::Z;"), ("b/y/g.rs", "")]).is_empty(), "a module without rows");
}

#[test]
fn an_edge_that_is_not_in_the_table_is_found() {
    assert!(forbidden_edges(&tree(&[("a.rs", "use crate::b::X; use crate::a::Y; // crate::c")]), &map()).is_empty());
    assert_eq!(forbidden_edges(&tree(&[("b/x.rs", "fn f() { crate::a::g() }")]), &map()).len(), 1);
    assert_eq!(forbidden_edges(&tree(&[("a.rs", "use crate::{b, c};")]), &map()).len(), 1);
}

#[test]
fn climbing_out_of_a_module_is_found() {
    assert!(
        climbs(&tree(&[("a/x.rs", "use super::Y;\n#[cfg(test)]\nmod tests {\n use super::super::Y; }")])).is_empty()
    );
    assert_eq!(climbs(&tree(&[("a/mod.rs", "use super::b::Y;"), ("a/x.rs", "use super::super::b::Y;")])).len(), 2);
}

#[test]
fn rows_without_modules_and_modules_without_rows_are_found() {
    assert!(strange_rows(&tree(&[("a.rs", ""), ("b/mod.rs", ""), ("lib.rs", "")]), &map()).is_empty());
    assert_eq!(strange_rows(&tree(&[("a.rs", ""), ("b.rs", ""), ("c.rs", "")]), &map()), ["c has no row in the table"]);
    // The row, its mention in a's row, and nothing else.
    assert_eq!(strange_rows(&tree(&[("a.rs", "")]), &map()).len(), 2);
}

#[test]
fn a_cycle_is_found() {
    assert!(cycles(&map().modules).is_empty());
    let tree =
        tree(&[("a.rs", "crate::b::x();"), ("b.rs", "crate::c::x();"), ("c.rs", "crate::a::x();"), ("d.rs", "")]);
    assert_eq!(cycles(&edges(&tree)), ["a cycle: a -> b -> c -> a"]);
}

#[test]
fn a_cycle_of_folders_is_found_and_files_beside_them_are_not_looked_at() {
    let (x, y) = (("m/x/mod.rs", "use super::{root, y::A};"), ("m/y/deep.rs", "use crate::m::x::B;"));
    let beside = [("m/mod.rs", "use self::x::B;"), ("m/root.rs", "use super::x::B; use super::y::A;")];
    let fine =
        tree(&[beside[0], beside[1], x, ("m/y/deep.rs", "use super::mod_y; use crate::n::z::C;"), ("n/z/mod.rs", "")]);
    assert_eq!(folder_edges(&fine), Edges::from([("m/x".to_owned(), BTreeSet::from(["m/y".to_owned()]))]));
    assert!(cycles(&folder_edges(&fine)).is_empty());
    let broken = tree(&[beside[0], beside[1], x, y]);
    assert_eq!(cycles(&folder_edges(&broken)), ["a cycle: m/x -> m/y -> m/x"]);
    let only_tests = ("m/y/deep.rs", "#[cfg(test)]\nmod tests {\n use crate::m::x::B; }");
    assert!(cycles(&folder_edges(&tree(&[x, only_tests]))).is_empty());
}

#[test]
fn giants_are_found() {
    let (fit, long) = ("\n".repeat(68), "\n".repeat(70));
    assert!(giants(&tree(&[("a.rs", &format!("fn f() {{{fit}}}"))])).is_empty());
    assert_eq!(giants(&tree(&[("a.rs", &format!("fn f() {{{long}}}"))])).len(), 1);
    assert!(giants(&tree(&[("a.rs", &"//\n".repeat(500))])).is_empty());
    assert_eq!(giants(&tree(&[("a.rs", &"//\n".repeat(501))])).len(), 1);
}

#[test]
fn what_is_unfinished_is_found() {
    assert!(unfinished(&tree(&[("a.rs", "// the word todo in small letters")])).is_empty());
    for text in [concat!("// TO", "DO: later"), concat!("// FIX", "ME"), concat!("db", "g!(x);")] {
        assert_eq!(unfinished(&tree(&[("a.rs", text)])).len(), 1, "{text}");
    }
}

#[test]
fn a_file_that_no_mod_names_is_found() {
    let named = [("lib.rs", "pub mod a;"), ("a/mod.rs", "mod x;"), ("a/x.rs", "")];
    assert!(forgotten(&tree(&named), &["lib.rs"]).is_empty());
    assert_eq!(
        forgotten(&tree(&[named[0], ("a/mod.rs", "// mod x;"), named[2]]), &["lib.rs"]),
        ["no mod names a/x.rs"]
    );
}

/// What `used_elsewhere` finds in made-up files when only `places` may use `words`.
fn elsewhere(words: &[&str], places: &[&str], files: &[(&str, &str)]) -> Vec<String> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    used_elsewhere(&tree(files), &Limit { words: owned(words), places: owned(places) })
}

#[test]
fn printing_outside_the_command_line_is_found() {
    let found = |file| elsewhere(&["println!", "stderr()"], &["cli/"], &[("cli/mod.rs", "println!(x);"), file]);
    assert!(found(("a.rs", "command.stderr(x);\n#[cfg(test)]\nmod t {\n println!(x); }")).is_empty());
    assert_eq!(found(("a.rs", "println!(x);")).len(), 1);
    assert_eq!(found(("a.rs", "let _ = writeln!(io::stderr(), x);")).len(), 1);
}

#[test]
fn files_opened_outside_the_disk_are_found_and_so_are_needless_exceptions() {
    let found = |files: &[(&str, &str)]| elsewhere(&["std::fs"], &["disk/", "a/x.rs"], files);
    let (disk, excused) = (("disk/mod.rs", "use std::fs;"), ("a/x.rs", "use std::fs::File;"));
    assert!(found(&[disk, excused, ("b.rs", "use std::os::unix::fs::X;")]).is_empty());
    assert_eq!(found(&[disk, excused, ("b.rs", "use std::{fmt, fs};")]).len(), 1);
    assert_eq!(found(&[disk]), ["a/x.rs may use std::fs and does not need to"]);
}

#[test]
fn unsafe_code_elsewhere_is_found() {
    let found = |file| elsewhere(&["unsafe"], &["disk/"], &[("disk/x.rs", "unsafe { f() }"), file]);
    assert!(found(("a.rs", "// unsafe")).is_empty());
    assert_eq!(found(("segment/mod.rs", "unsafe { f() }")).len(), 1);
    assert_eq!(found(("a.rs", "#[cfg(test)]\nmod t {\n unsafe { f() } }")).len(), 1);
}

#[test]
fn a_crate_named_outside_its_module_is_found() {
    assert!(crates_elsewhere(&tree(&[("a.rs", "use k::X;"), ("b.rs", "use kk::X;")]), &map()).is_empty());
    assert_eq!(crates_elsewhere(&tree(&[("b.rs", "use k::X;")]), &map()).len(), 1);
}

#[test]
fn a_clock_elsewhere_is_found() {
    let found = |file| elsewhere(&["Instant", "recv_timeout"], &["fuse/"], &[("fuse/x.rs", "Instant::now()"), file]);
    assert!(found(("memory/gc.rs", "Instantly::now()")).is_empty());
    assert_eq!(found(("memory/gc.rs", "receiver.recv_timeout(limit)")).len(), 1);
}

#[test]
fn a_test_that_a_page_names_and_nobody_wrote_is_found() {
    let tree = tree(&[("a.rs", "fn it_is_as_said() {}")]);
    let sources: Vec<&Source> = tree.iter().collect();
    assert!(missing_tests("`it_is_as_said`, `a_name`, it_is_not_as_quoted", &sources).is_empty());
    assert_eq!(missing_tests("x `it_is_not_there_yet` y", &sources).len(), 1);
}

#[test]
fn a_code_of_an_error_is_no_test() {
    assert_eq!(quoted_tests("`not_a_root_branch` `it_is_as_said`").collect::<Vec<_>>(), ["it_is_as_said"]);
    for (code, file) in [("not_a_root_branch", "memory"), ("temporary_lost", "fs")] {
        assert!(error_codes().any(|known| known == code), "{code} of {file}");
    }
}

#[test]
fn a_crash_case_without_a_test_is_found() {
    let page = |rows: &str| format!("x\n\n## Crash cases\n\n| # | test |\n|---|---|\n{rows}\n## Other\n\n| a | b |\n");
    assert!(untested_crashes(&page("| 1 | `it_is_as_said` |\n")).is_empty());
    assert_eq!(untested_crashes(&page("| 1 | `it_is_as_said` |\n| 2 | as 1, `gc` |\n")).len(), 1);
    assert_eq!(untested_crashes(&page("")).len(), 1);
    assert_eq!(untested_crashes("| 1 | `it_is_as_said` |\n").len(), 1);
}

#[test]
fn a_test_in_two_crash_cases_is_found() {
    let page = |rows: &str| format!("x\n\n## Crash cases\n\n| # | test |\n|---|---|\n{rows}");
    let once = page("| 1 | `it_is_as_said`, and again `it_is_as_said` |\n| 2 | `it_is_as_told` |\n");
    assert!(repeated_crash_tests(&once).is_empty());
    assert_eq!(repeated_crash_tests(&page("| 1 | `it_is_as_said` |\n| 2 | `it_is_as_said` |\n")).len(), 1);
}

#[test]
fn a_test_of_crashes_in_no_crash_case_is_found() {
    let cuts = "#[test]\nfn it_cuts_the_power() {\n disk.power_cut(1);\n}\n";
    let fails = "#[test]\nfn it_has_calls_fail() {\n Fault::once(1);\n}\n";
    let neither = "#[test]\nfn it_does_neither_of_both() {\n FaultyDisk::new();\n}\nfn f() {\n disk.power_cut(2);\n}\n";
    let inline = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn it_looks_at_a_row() {\n    }\n    #[test]\n    \
                  fn it_looks_at_another() {\n    }\n    fn f() {\n        disk.power_cut(3);\n    }\n}\n";
    let elsewhere = "#[test]\nfn it_stands_beside_no_case() {\n disk.power_cut(4);\n}\n";
    let tree = tree(&[("a.rs", &[cuts, fails, neither].concat()), ("b.rs", inline), ("c.rs", elsewhere)]);
    let sources: Vec<&Source> = tree.iter().collect();
    let page = "x\n\n## Crash cases\n\n`it_looks_at_a_row`\n\n| # | test |\n|---|---|\n| 1 | `it_cuts_the_power` |\n";
    let unlisted = |exceptions: &[&str]| unlisted_crash_tests(page, &sources, exceptions);
    assert_eq!(unlisted(&[]), ["the test it_has_calls_fail is in no crash case"]);
    assert!(unlisted(&["it_has_calls_fail"]).is_empty());
    assert_eq!(unlisted(&["it_has_calls_fail", "it_cuts_the_power"]).len(), 1);
}

#[test]
fn types_of_one_name_are_found_where_others_see_them() {
    let one = ("a/x.rs", "pub(super) struct Place<'a> {\npub enum Error {\nstruct Own;\n");
    let other = (
        "b.rs",
        "pub enum Error {\npub type Placed = ();\nstruct Own;\n#[cfg(test)]\nmod tests {\npub struct Place;\n}\n",
    );
    assert!(repeated_types(&tree(&[one, other])).is_empty());
    let found = repeated_types(&tree(&[one, ("b.rs", "pub type Place = u64;")]));
    assert_eq!(found, ["Place names several types: a/x.rs, b.rs"]);
}
