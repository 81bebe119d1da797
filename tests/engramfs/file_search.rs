//! Text files as answers to queries: what is found, and what becomes of the index.

mod model;

use std::sync::Arc;
use std::time::Duration;

use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::memory::{
    Actor, Attrs, BranchId, Credentials, Environment, Error, FILES_ROOT, FileName, FileOp, Memory, OpenMode, Query,
    Setting, ShowTarget, View, Viewer,
};

use crate::files::{read, write};
use crate::support::{Chance, environment, main_of, open_on, put, verify, who};

/// Opens a store whose files are indexed in the background at once.
fn open(disk: &ForgetfulDisk) -> Result<Arc<Memory>, Error> {
    let around = Environment { file_index_delay: Duration::ZERO, ..environment() };
    Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around)
}

fn found(memory: &Memory, branch: BranchId, text: &str) -> Vec<String> {
    let answer = memory.query(&View::Branch(branch), &Query::from_text(text).unwrap()).unwrap();
    assert_eq!(answer.reason, None);
    answer
        .hits
        .iter()
        .map(|hit| hit.file.as_ref().map_or_else(|| hit.id.to_string(), |file| file.path.replacen("files/", "", 1)))
        .collect()
}

/// The files of the index: those that begin with its kind.
fn index_files(disk: &ForgetfulDisk) -> Vec<String> {
    let is_index = |path: &String| {
        let bytes = disk.bytes(path).unwrap();
        let length = u64::from_le_bytes(bytes[bytes.len() - 16..bytes.len() - 8].try_into().unwrap()) as usize;
        bytes[bytes.len() - 16 - length] == 0x78
    };
    let paths = disk.files().into_iter().map(|(path, _)| path).filter(|path| path.starts_with("segments/"));
    paths.filter(is_index).collect()
}

#[test]
fn a_store_that_is_opened_again_has_its_index_and_forks_share_it() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    (0..50)
        .for_each(|n| write(&memory, main, &format!("d{}/n{n}.md", n % 5), &format!("# Note {n}\n\nheron number{n}")));
    memory.wait_until_files_indexed();
    memory.seal().unwrap();
    let files = index_files(&disk);
    assert_eq!(files.len(), 1);
    for n in 0..20 {
        let fork = memory.fork(&who(), main, &format!("f{n}"), None).unwrap();
        assert_eq!(found(&memory, fork, &format!("number{n}")), [format!("d{}/n{n}.md", n % 5)]);
    }
    memory.seal().unwrap();
    assert_eq!(index_files(&disk), files, "forks add nothing");
    memory.close().unwrap();
    let memory = open(&disk).unwrap();
    memory.wait_until_files_indexed();
    assert_eq!(found(&memory, main, "number7"), ["d2/n7.md"]);
    memory.close().unwrap();
    assert_eq!(index_files(&disk), files, "nothing was indexed again");
    verify(&disk).unwrap();
}

#[test]
fn what_is_killed_before_a_seal_is_found_after_the_next_opening() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    (0..400).for_each(|n| write(&memory, main, &format!("n{n}.txt"), &format!("word number{n}")));
    memory.sync().unwrap();
    let disk = disk.power_cut_keep_nothing();
    drop(memory);
    assert_eq!(index_files(&disk), [""; 0], "a control: no file holds the index");
    let memory = open(&disk).unwrap();
    memory.wait_until_files_indexed();
    for n in 0..400 {
        let name = format!("n{n}.txt");
        assert_eq!(read(&memory, main, &name), Some(format!("word number{n}")));
        assert_eq!(found(&memory, main, &format!("number{n}")), [name]);
    }
}

#[test]
fn a_damaged_or_missing_index_is_made_again_and_never_in_the_way() {
    for harm in ["flip", "cut", "remove"] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        (0..300).for_each(|n| write(&memory, main, &format!("n{n}.txt"), &format!("a word and number{n}")));
        memory.wait_until_files_indexed();
        memory.close().unwrap();
        let [path] = &index_files(&disk)[..] else { panic!("one file") };
        let bytes = disk.bytes(path).unwrap();
        for at in (64..bytes.len()).step_by(bytes.len() / 16) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            match harm {
                "flip" => {}
                "cut" => bytes.truncate(at),
                _ => bytes.clear(),
            }
            disk.remove(path).unwrap();
            if harm != "remove" {
                disk.create(path).unwrap().write_all_at(&bytes, 0).unwrap();
            }
            assert!(verify(&disk).is_err(), "{harm} at {at}");
            let memory = open(&disk).unwrap();
            memory.wait_until_files_indexed();
            for n in [0, 150, 299] {
                assert_eq!(found(&memory, main, &format!("number{n}")), [format!("n{n}.txt")], "{harm} at {at}");
            }
            memory.close().unwrap();
            verify(&disk).unwrap();
            if harm == "remove" {
                break;
            }
        }
    }
}

#[test]
fn a_full_disk_keeps_the_index_in_memory_and_loses_nothing() {
    let faulty = Arc::new(FaultyDisk::new(ForgetfulDisk::new()));
    let memory = open_on(faulty.clone()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "a.txt", "a first heron");
    memory.seal().unwrap();
    write(&memory, main, "b.txt", "a second heron");
    assert_eq!(found(&memory, main, "second"), ["b.txt"]);
    faulty.plan(Fault { sticky: true, ..Fault::once(1, &[DiskCall::Create, DiskCall::Write], libc::ENOSPC) });
    memory.seal().unwrap_err();
    assert_eq!(found(&memory, main, "heron"), ["a.txt", "b.txt"]);
    faulty.clear();
    memory.seal().unwrap();
    assert_eq!(found(&memory, main, "heron"), ["a.txt", "b.txt"]);
    memory.close().unwrap();
    let memory = open_on(faulty).unwrap();
    assert_eq!(found(&memory, main, "second"), ["b.txt"]);
}

#[test]
fn a_purge_takes_the_words_out_of_the_index() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "leak.md", "the password is hunter2");
    write(&memory, main, "other.md", "a harmless heron");
    assert_eq!(found(&memory, main, "hunter2"), ["leak.md"]);
    memory.seal().unwrap();
    let holds = |path: &str| disk.bytes(path).unwrap().windows(7).any(|window| window == b"hunter2");
    let [path] = &index_files(&disk)[..] else { panic!("one file") };
    assert!(holds(path), "a control");
    memory.purge(&who(), main, &["files/leak.md".to_owned()], Default::default()).unwrap();
    assert_eq!(disk.files().into_iter().map(|(path, _)| path).filter(|path| holds(path)).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(found(&memory, main, "hunter2"), [""; 0]);
    assert_eq!(found(&memory, main, "heron"), ["other.md"]);
    memory.close().unwrap();
    verify(&disk).unwrap();
}

#[test]
fn what_nothing_has_any_longer_leaves_the_index() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Keep, "0s").unwrap();
    (0..40).for_each(|n| write(&memory, main, &format!("n{n}.md"), &format!("stone{n} {}", "filler ".repeat(100))));
    memory.wait_until_files_indexed();
    memory.seal().unwrap();
    let size =
        |disk: &ForgetfulDisk| index_files(disk).iter().map(|path| disk.bytes(path).unwrap().len()).sum::<usize>();
    let before = size(&disk);
    (0..40).filter(|n| n % 4 > 0).for_each(|n| {
        let name = FileName::new(format!("n{n}.md").as_bytes()).unwrap();
        memory.edit(&who(), main, FileOp::Unlink { parent: FILES_ROOT, name, keep: false }).unwrap();
    });
    memory.gc(&who(), None, false).unwrap();
    assert!(size(&disk) < before / 2, "{} of {before}", size(&disk));
    assert_eq!(found(&memory, main, "stone8"), ["n8.md"]);
    assert_eq!(found(&memory, main, "stone9"), [""; 0]);
}

/// One name of the file is closed to the caller, under the other one a rule hides it: it counted for the scores of others.
#[test]
fn a_file_that_is_hidden_under_the_one_name_and_closed_under_the_other_counts_for_nothing() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "/hidden/** noindex\n** text").unwrap();
    write(&memory, main, "shut/a.txt", "a heron");
    write(&memory, main, "hidden/b.txt", "nothing");
    let tree = memory.files(&View::Branch(main)).unwrap();
    let inode = |path: &str| tree.resolve(path.as_bytes()).unwrap();
    let name = FileName::new(b"a.txt").unwrap();
    memory.edit(&who(), main, FileOp::Link { inode: inode("shut/a.txt"), parent: inode("hidden"), name }).unwrap();
    let attrs = Attrs { mode: Some(0o700), ..Attrs::default() };
    memory.edit(&who(), main, FileOp::SetAttr { inode: inode("shut"), attrs }).unwrap();
    memory.commit(&who(), main, vec![put("r", None, Some("a heron"))]).unwrap();
    let reader = Credentials { uid: 1001, groups: Vec::new(), knows_all_groups: true };
    let ask = |scope: &str| {
        let query = Query::parse(&format!("{{\"text\":\"heron\",\"scope\":[{scope}]}}")).unwrap();
        let answer = memory.query_for(&reader, &View::Branch(main), &query).unwrap();
        answer.hits.iter().map(|hit| (hit.id.to_string(), hit.score.value())).collect::<Vec<_>>()
    };
    assert_eq!(ask("\"branch\",\"files\""), ask("\"branch\""));
}

#[test]
fn what_is_in_files_that_only_the_branchs_owner_may_enter_is_shown_to_them_alone() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "a.txt", "a heron");
    let attrs = Attrs { mode: Some(0o700), ..Attrs::default() };
    memory.edit(&who(), main, FileOp::SetAttr { inode: FILES_ROOT, attrs }).unwrap();
    // Its files are those of main, and its owner is another.
    let fork = memory.fork(&Actor { uid: 1001, ..who() }, main, "x", None).unwrap();
    let tree = memory.files(&View::Branch(main)).unwrap();
    let hash = tree.node(tree.resolve(b"a.txt").unwrap()).unwrap().content_hash().unwrap();
    let query = Query::from_text("heron").unwrap();
    for (branch, uid, expected) in [(main, 1000, true), (main, 1001, false), (fork, 1000, false), (fork, 1001, true)] {
        let reader = Credentials { uid, groups: vec![uid], knows_all_groups: true };
        let found = memory.query_for(&reader, &View::Branch(branch), &query).unwrap().hits.len();
        let viewer = Viewer { reader: Some(&reader), may_read: &|other| other == branch, ..Viewer::UNRESTRICTED };
        let is_shown = memory.show(branch, ShowTarget::Hash(hash), viewer).is_ok();
        assert_eq!((found == 1, is_shown), (expected, expected), "{branch:?} to {uid}");
    }
}

#[test]
fn scopes_filters_and_modes_choose_among_records_and_files() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "a/b.md", "# Herons\n\nwade in water");
    memory.commit(&who(), main, vec![put("r", Some(vec![1.0, 0.0]), Some("a heron wades"))]).unwrap();
    let ask = |query: &str| {
        let answer = memory.query(&View::Branch(main), &Query::parse(query).unwrap()).unwrap();
        let hits = answer.hits.iter().map(|hit| hit.source.to_string()).collect::<Vec<_>>().join(" ");
        (answer.mode.to_string(), hits)
    };
    let both = |mode: &str, hits: &str| (mode.to_owned(), hits.to_owned());
    assert_eq!(ask(r#"{"text":"heron"}"#), both("text", "branch files"));
    assert_eq!(ask(r#"{"text":"heron","scope":["branch"]}"#), both("text", "branch"));
    assert_eq!(ask(r#"{"text":"heron","scope":["log","files"]}"#), both("text", "files"));
    assert_eq!(ask(r#"{"text":"heron","scope":["log"]}"#), both("text", ""));
    assert_eq!(ask(r#"{"text":"heron","vector":[1,0]}"#), both("hybrid", "branch files"));
    assert_eq!(ask(r#"{"text":"heron","vector":[1,0],"mode":"vector"}"#), both("vector", "branch"));
    assert_eq!(ask(r#"{"text":"heron","filter":{"kind":"note"}}"#), both("text", ""));
    for filter in [r#"{"kind":{"$ne":"x"}}"#, r#"{"kind":{"$exists":false}}"#, r#"{"kind":{"$nin":["x"]}}"#] {
        assert_eq!(ask(&format!(r#"{{"text":"heron","filter":{filter}}}"#)), both("text", "branch files"), "{filter}");
    }
    let answer = memory.query(&View::Branch(main), &Query::from_text("water").unwrap()).unwrap();
    let line: serde_json::Value = serde_json::from_str(answer.to_lines(0).lines().nth(1).unwrap()).unwrap();
    assert_eq!((&line["path"], &line["line"], &line["source"]), (&"files/a/b.md".into(), &1.into(), &"files".into()));
    assert!(line.get("id").is_none() && line["text"] == "# Herons\n\nwade in water" && line["branch"] == "main");
}

#[test]
fn a_file_that_is_cut_at_the_limit_is_found_up_to_there() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    // The words around are such that the limit lies within the first character of the line behind the boundary.
    let lines = |bytes: usize| "é line\n".repeat(bytes / 8);
    let text = format!("early {}boundary {}late", lines((4 << 20) - 16), lines(16));
    assert!(!text.is_char_boundary(4 << 20));
    write(&memory, main, "big.txt", &text);
    memory.wait_until_files_indexed();
    assert_eq!(found(&memory, main, "early"), ["big.txt"]);
    assert_eq!(found(&memory, main, "boundary"), ["big.txt"]);
    assert_eq!(found(&memory, main, "late"), [""; 0]);
}

#[test]
fn a_query_indexes_small_files_itself_and_leaves_a_large_one_to_the_background() {
    let around = Environment { file_index_delay: Duration::from_secs(600), ..environment() };
    let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "a-large.txt", &"a heron wades\n".repeat(100_000));
    write(&memory, main, "small.txt", "a heron");
    let query = Query::parse(r#"{"text":"heron","timeout_ms":60000}"#).unwrap();
    let ask = || memory.query(&View::Branch(main), &query).unwrap();
    let answer = ask();
    let paths: Vec<&str> = answer.hits.iter().filter_map(|hit| hit.file.as_ref()).map(|file| &*file.path).collect();
    assert_eq!((paths, answer.reason), (vec!["files/small.txt"], Some("1 file is not indexed yet".to_owned())));
    write(&memory, main, "another.txt", &"a heron stands\n".repeat(100_000));
    assert_eq!(ask().reason.as_deref(), Some("2 files are not indexed yet"));
    let expect_left = |counts: &[usize]| {
        for count in counts {
            assert_eq!(ask().reason, Some(format!("{count} files are not indexed yet")));
        }
    };
    for (name, bytes) in [("a", 1 << 20), ("b", 1 << 20), ("c", (1 << 20) + 1)] {
        write(&memory, main, name, &name.repeat(bytes));
    }
    expect_left(&[4, 3, 3]);
    (0..1_026).for_each(|n| write(&memory, main, &format!("n{n}.txt"), &format!("note {n}")));
    expect_left(&[5, 3]);
}

#[test]
fn a_zero_byte_in_the_first_64_kib_makes_a_file_no_text_and_its_name_is_not_searched() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for (name, zero_at) in [("within", (64 << 10) - 1), ("behind", 64 << 10)] {
        let mut text = "a heron\n".repeat(8 << 10);
        text.truncate(zero_at);
        write(&memory, main, name, &format!("{text}\0"));
    }
    write(&memory, main, "database.db", "SQLite format 3\0 a heron");
    memory.wait_until_files_indexed();
    let mut paths = found(&memory, main, "heron");
    paths.dedup();
    assert_eq!(paths, ["behind"]);
    assert_eq!(found(&memory, main, "behind"), [""; 0], "a name is no text");
    let index = memory.status(&View::Branch(main)).unwrap()["index"].clone();
    assert_eq!((&index["files"], &index["files_indexed"]), (&3.into(), &3.into()), "what is no text counts as indexed");
}

#[test]
fn an_index_of_more_than_16_mib_goes_to_a_file_without_a_seal() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let mut chance = Chance(7);
    for (n, files) in [0, 0, 0, 1].into_iter().enumerate() {
        let words: String = (0..180_000).map(|_| format!("{:x} ", chance.next() >> 20)).collect();
        write(&memory, main, &format!("n{n}"), &words);
        memory.wait_until_files_indexed();
        assert_eq!(index_files(&disk).len(), files, "with {} files of 2 MiB of words", n + 1);
    }
}
