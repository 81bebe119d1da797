//! `vectors/` and `ingest`.

use super::rig::{ANEW, ROOT, Rig, document};
use crate::fs::{AttrChanges, Errno};

fn text(rig: &Rig, path: &str) -> String {
    let document: serde_json::Value = serde_json::from_str(&rig.read(path).unwrap()).unwrap();
    document["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_record_counts_when_it_is_closed_and_its_size_is_exact() {
    let rig = Rig::new();
    let handle = rig.open("main/vectors/a.json", ANEW).unwrap();
    rig.fs.write(handle, 0, document("hello").as_bytes()).unwrap();
    assert_eq!(rig.ino("main/vectors/a.json"), Err(Errno::ENOENT));
    rig.fs.flush(handle).unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "hello");
    assert_eq!(rig.stat("main/vectors/a.json").unwrap().size, rig.read("main/vectors/a.json").unwrap().len() as u64);
    assert_eq!(rig.list("main/vectors"), ["a.json"]);
}

#[test]
fn readers_see_the_old_document_until_the_new_one_is_whole() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("old")).unwrap();
    let handle = rig.open("main/vectors/a.json", ANEW).unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "old");
    rig.fs.flush(handle).unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "old");
    rig.fs.write(handle, 0, document("new").as_bytes()).unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "old");
    rig.fs.fsync(handle).unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "new");
}

#[test]
fn emptying_alone_changes_nothing() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("kept")).unwrap();
    rig.write("main/vectors/a.json", "").unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "kept");
    rig.write("main/vectors/never.json", "").unwrap();
    assert_eq!(rig.ino("main/vectors/never.json"), Err(Errno::ENOENT));
}

#[test]
fn what_is_wrong_for_certain_fails_in_the_write_and_says_why() {
    let rig = Rig::new();
    for bad in ["{\"vektor\":[1]}", "{\"id\":\"b\",\"text\":\"x\"}", "[1,2]"] {
        assert_eq!(rig.write("main/vectors/a.json", bad), Err(Errno::EINVAL), "{bad}");
    }
    let line = rig.last_error("main");
    assert_eq!((line["path"].as_str(), line["errno"].as_str()), (Some("vectors/a.json"), Some("EINVAL")));
    assert!(!line["hint"].as_str().unwrap().is_empty());
    assert!(rig.list("main/vectors").is_empty());
}

#[test]
fn a_vector_of_another_length_fails_in_the_write() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("three")).unwrap();
    let handle = rig.open("main/vectors/b.json", ANEW).unwrap();
    assert_eq!(rig.fs.write(handle, 0, b"{\"vector\":[1,2]}"), Err(Errno::EINVAL));
    rig.fs.flush(handle).unwrap();
    assert_eq!(rig.list("main/vectors"), ["a.json"]);
}

#[test]
fn an_incomplete_document_waits_for_its_rest() {
    let rig = Rig::new();
    let (first, rest) = ("{\"text\":\"in two", " parts\"}");
    let handle = rig.open("main/vectors/a.json", ANEW).unwrap();
    rig.fs.write(handle, 0, first.as_bytes()).unwrap();
    assert_eq!(rig.fs.flush(handle), Err(Errno::EINVAL));
    rig.fs.write(handle, first.len() as u64, rest.as_bytes()).unwrap();
    rig.fs.flush(handle).unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "in two parts");
}

#[test]
fn an_incomplete_document_goes_with_its_handle() {
    let rig = Rig::new();
    assert_eq!(rig.write("main/vectors/a.json", "{\"text\":"), Err(Errno::EINVAL));
    assert!(rig.list("main/vectors").is_empty());
    assert_eq!(rig.rmdir("main"), Err(Errno::EPERM));
}

#[test]
fn an_editor_may_write_over_a_longer_document_and_cut_the_rest() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("a rather long text that will be replaced")).unwrap();
    let handle = rig.open("main/vectors/a.json", libc::O_RDWR).unwrap();
    assert!(rig.read_on(handle, 0).unwrap().contains("rather long"));
    rig.fs.write(handle, 0, document("short").as_bytes()).unwrap();
    rig.ftruncate(handle, "main/vectors/a.json", document("short").len() as u64).unwrap();
    rig.fs.flush(handle).unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "short");
}

#[test]
fn appending_to_a_whole_document_fails_at_once() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("whole")).unwrap();
    let handle = rig.open("main/vectors/a.json", libc::O_WRONLY | libc::O_APPEND).unwrap();
    assert_eq!(rig.fs.write(handle, 0, document("more").as_bytes()), Err(Errno::EINVAL));
    rig.fs.flush(handle).unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "whole");
}

#[test]
fn a_record_is_cut_by_its_handle_only() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("whole")).unwrap();
    assert_eq!(rig.truncate("main/vectors/a.json", 0), Err(Errno::EINVAL));
    assert_eq!(rig.last_error("main")["code"], "truncate");
}

#[test]
fn a_document_without_end_is_too_large() {
    let rig = Rig::new();
    let handle = rig.open("main/vectors/a.json", ANEW).unwrap();
    assert_eq!(rig.fs.write(handle, 16 << 20, b"x"), Err(Errno::EFBIG));
    assert_eq!(rig.last_error("main")["code"], "too_large");
}

/// The kernel makes several requests of a long write(2): its writer sees a short write, and may send no rest.
#[test]
fn a_document_whose_rest_was_refused_fails_at_each_fsync_and_close() {
    let (rig, path) = (Rig::new(), "main/vectors/a.json");
    rig.write(path, &document("whole")).unwrap();
    let texts = |length: usize| vec![b'a'; length];
    for (mode, first, second, refused) in [
        (libc::O_TRUNC, texts(9 << 20), texts(9 << 20), Errno::EFBIG),
        (libc::O_TRUNC | libc::O_APPEND, texts(9 << 20), texts(9 << 20), Errno::EFBIG),
        (libc::O_TRUNC, texts(100), [texts(100), vec![0xff]].concat(), Errno::EINVAL),
    ] {
        let before = rig.read("main/errors").unwrap().lines().count();
        let handle = rig.open(path, libc::O_WRONLY | mode).unwrap();
        rig.fs.write(handle, 0, &first).unwrap();
        assert_eq!(rig.fs.write(handle, first.len() as u64, &second), Err(refused));
        assert_eq!([rig.fs.fsync(handle), rig.fs.flush(handle), rig.fs.flush(handle)], [Err(refused); 3]);
        assert_eq!(rig.fs.write(handle, first.len() as u64, b"the rest"), Err(refused));
        assert_eq!(rig.read("main/errors").unwrap().lines().count(), before + 1, "told once");
        assert_eq!(text(&rig, path), "whole");
        if mode & libc::O_APPEND == 0 {
            rig.fs.write(handle, 0, document("shorter").as_bytes()).unwrap();
            rig.fs.flush(handle).unwrap();
            assert_eq!(text(&rig, path), "shorter", "who begins anew has seen the refusal");
        }
        rig.ftruncate(handle, path, 0).unwrap();
        rig.fs.write(handle, 0, document("anew").as_bytes()).unwrap();
        rig.fs.flush(handle).unwrap();
        rig.fs.release(handle);
        assert_eq!(text(&rig, path), "anew");
        rig.write(path, &document("whole")).unwrap();
    }
}

/// The half of a patch and the rest of what was there may well be a document.
#[test]
fn a_patch_of_which_a_part_was_refused_changes_nothing() {
    let (rig, path) = (Rig::new(), "main/vectors/a.json");
    for (mode, is_from_start) in [(0, false), (0, true), (libc::O_TRUNC, false)] {
        rig.write(path, &document("aaaaaaaaaa")).unwrap();
        let handle = rig.open(path, libc::O_RDWR | mode).unwrap();
        if mode != 0 {
            rig.fs.write(handle, 0, document("aaaaaaaaaa").as_bytes()).unwrap();
            rig.fs.fsync(handle).unwrap();
        }
        let before = rig.read_on(handle, 0).unwrap();
        let place = before.find("aaaa").unwrap();
        let start = if is_from_start { 0 } else { place };
        let taken = format!("{}bbbb", &before[start..place]);
        rig.fs.write(handle, start as u64, taken.as_bytes()).unwrap();
        let refused = format!("bb\",\"unknown\":1}}{}", " ".repeat(before.len()));
        assert_eq!(rig.fs.write(handle, place as u64 + 4, refused.as_bytes()), Err(Errno::EINVAL));
        assert_eq!([rig.fs.fsync(handle), rig.fs.flush(handle)], [Err(Errno::EINVAL); 2], "{mode} {is_from_start}");
        assert_eq!(text(&rig, path), "aaaaaaaaaa");
        rig.fs.write(handle, 0, document("anew").as_bytes()).unwrap();
        rig.fs.flush(handle).unwrap();
        rig.fs.release(handle);
        assert_eq!(text(&rig, path), "anew");
    }
}

#[test]
fn a_patch_that_was_refused_alone_leaves_the_document_to_the_next() {
    let (rig, path) = (Rig::new(), "main/vectors/a.json");
    rig.write(path, &document("aaaa")).unwrap();
    let handle = rig.open(path, libc::O_RDWR).unwrap();
    let before = rig.read_on(handle, 0).unwrap();
    let end = before.rfind('}').unwrap() as u64;
    assert_eq!(rig.fs.write(handle, end, b",\"unknown\":1}"), Err(Errno::EINVAL));
    rig.fs.write(handle, before.find("aaaa").unwrap() as u64, b"bbbb").unwrap();
    rig.fs.flush(handle).unwrap();
    assert_eq!(text(&rig, path), "bbbb");
}

#[test]
fn rights_and_times_of_records_are_accepted_and_stay() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("a")).unwrap();
    let changes = AttrChanges { mode: Some(0o600), uid: Some(7), gid: Some(7), ..AttrChanges::default() };
    let attr = rig.fs.setattr(ROOT, rig.ino("main/vectors/a.json").unwrap(), changes, None).unwrap();
    assert_eq!((attr.mode, attr.uid), (0o644, 0));
}

#[test]
fn an_open_record_outlives_its_name() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("read me")).unwrap();
    let (ino, handle) =
        (rig.ino("main/vectors/a.json").unwrap(), rig.open("main/vectors/a.json", libc::O_RDONLY).unwrap());
    rig.rm("main/vectors/a.json").unwrap();
    assert!(rig.read_on(handle, 0).unwrap().contains("read me"));
    assert!(rig.fs.getattr(rig.who, ino, None).unwrap().size > 0);
    rig.fs.release(handle);
    assert_eq!(rig.fs.getattr(rig.who, ino, None), Err(Errno::ENOENT));
}

/// As what is written to a file goes where its name has gone.
#[test]
fn an_open_record_is_written_under_its_new_name_and_after_its_removal_nowhere() {
    let rig = Rig::new();
    for name in ["a", "b"] {
        rig.write(&format!("main/vectors/{name}.json"), &document(name)).unwrap();
    }
    let open = |name: &str| {
        let handle = rig.open(&format!("main/vectors/{name}.json"), ANEW).unwrap();
        rig.fs.write(handle, 0, br#"{"id":"a","text":"written"}"#).unwrap();
        handle
    };
    let moved = open("a");
    let replaced = rig.open("main/vectors/b.json", ANEW).unwrap();
    rig.fs.write(replaced, 0, b"replaced").unwrap();
    rig.mv("main/vectors/a.json", "main/vectors/b.json").unwrap();
    for handle in [replaced, moved] {
        rig.fs.flush(handle).unwrap();
        rig.fs.release(handle);
    }
    assert_eq!(rig.list("main/vectors"), ["b.json"]);
    assert_eq!(text(&rig, "main/vectors/b.json"), "written");

    rig.mv("main/vectors/b.json", "main/vectors/a.json").unwrap();
    let removed = open("a");
    rig.rm("main/vectors/a.json").unwrap();
    rig.fs.flush(removed).unwrap();
    rig.fs.release(removed);
    assert!(rig.list("main/vectors").is_empty());
}

#[test]
fn an_atomic_saver_commits_by_renaming() {
    let rig = Rig::new();
    rig.write("main/vectors/.a.json.tmp", &document("saved")).unwrap();
    assert_eq!(rig.list("main/vectors"), [".a.json.tmp"]);
    rig.mv("main/vectors/.a.json.tmp", "main/vectors/a.json").unwrap();
    assert_eq!(rig.list("main/vectors"), ["a.json"]);
    assert_eq!(text(&rig, "main/vectors/a.json"), "saved");
}

#[test]
fn a_temporary_that_is_no_record_stays_one() {
    let rig = Rig::new();
    rig.write("main/vectors/.notes", "{no record").unwrap();
    assert_eq!(rig.mv("main/vectors/.notes", "main/vectors/a.json").unwrap_err(), Errno::EINVAL);
    assert_eq!(rig.read("main/vectors/.notes").unwrap(), "{no record");
}

#[test]
fn an_editors_backup_takes_the_text_along() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("first")).unwrap();
    let before = rig.read("main/vectors/a.json").unwrap();
    rig.mv("main/vectors/a.json", "main/vectors/a.json~").unwrap();
    assert_eq!(rig.ino("main/vectors/a.json"), Err(Errno::ENOENT));
    assert_eq!(rig.read("main/vectors/a.json~").unwrap(), before);
    rig.write("main/vectors/a.json", &document("second")).unwrap();
    rig.rm("main/vectors/a.json~").unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "second");
}

#[test]
fn a_record_may_be_renamed_onto_another_unless_that_is_forbidden() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("a")).unwrap();
    rig.write("main/vectors/b.json", &document("b")).unwrap();
    let only_new = rig.mv_flags("main/vectors/a.json", "main/vectors/b.json", libc::RENAME_NOREPLACE);
    assert_eq!(only_new.unwrap_err(), Errno::EEXIST);
    let exchange = rig.mv_flags("main/vectors/a.json", "main/vectors/b.json", libc::RENAME_EXCHANGE);
    assert_eq!(exchange.unwrap_err(), Errno::EINVAL);
    rig.mv("main/vectors/a.json", "main/vectors/b.json").unwrap();
    assert_eq!(rig.list("main/vectors"), ["b.json"]);
    assert_eq!(text(&rig, "main/vectors/b.json"), "a");
}

#[test]
fn of_two_who_make_a_record_with_o_excl_one_succeeds() {
    let rig = Rig::new();
    let exclusive = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    let [first, second] = [(); 2].map(|()| rig.open("main/vectors/a.json", exclusive).unwrap());
    for (handle, text) in [(first, "first"), (second, "second")] {
        rig.fs.write(handle, 0, document(text).as_bytes()).unwrap();
    }
    rig.fs.fsync(first).unwrap();
    assert_eq!(rig.fs.flush(second), Err(Errno::EEXIST));
    assert_eq!(rig.last_error("main")["code"], "record_exists");
    rig.fs.release(second);
    assert_eq!(text(&rig, "main/vectors/a.json"), "first");
    // The one that made it may go on.
    rig.ftruncate(first, "main/vectors/a.json", 0).unwrap();
    rig.fs.write(first, 0, document("again").as_bytes()).unwrap();
    rig.fs.flush(first).unwrap();
    assert_eq!(text(&rig, "main/vectors/a.json"), "again");
}

#[test]
fn temporaries_are_cut_and_read_like_files_and_a_fork_has_none() {
    let rig = Rig::new();
    rig.write("main/vectors/.swap", "0123456789").unwrap();
    rig.truncate("main/vectors/.swap", 4).unwrap();
    assert_eq!(rig.read("main/vectors/.swap").unwrap(), "0123");
    rig.mkdir("main/branches/x").unwrap();
    assert!(rig.list("main/branches/x/vectors").is_empty());
}

#[test]
fn names_that_no_record_can_have_are_refused() {
    let rig = Rig::new();
    let long = format!("main/vectors/{}.json", "x".repeat(201));
    assert_eq!(rig.write(&long, &document("x")), Err(Errno::EINVAL));
    let too_long = format!("main/vectors/{}", "x".repeat(256));
    assert_eq!(rig.ino(&too_long), Err(Errno::ENAMETOOLONG));
    assert_eq!(rig.mkdir("main/vectors/folder"), Err(Errno::EPERM));
}

#[test]
fn a_batch_counts_as_a_whole() {
    let rig = Rig::new();
    rig.write("main/ingest", "{\"id\":\"a\",\"text\":\"one\"}\n{\"id\":\"b\",\"text\":\"two\"}").unwrap();
    assert_eq!(rig.list("main/vectors"), ["a.json", "b.json"]);
    assert!(rig.read("main/ingest").unwrap().contains("\"put\":2"));
    assert_eq!(rig.write("main/ingest", "{\"id\":\"c\",\"text\":\"three\"}\n{nonsense}\n"), Err(Errno::EINVAL));
    assert!(rig.last_error("main")["message"].as_str().unwrap().contains("line 2"));
    assert_eq!(rig.list("main/vectors"), ["a.json", "b.json"]);
}

#[test]
fn after_a_bad_line_nothing_counts_up_to_the_next_commit() {
    let rig = Rig::new();
    let handle = rig.open("main/ingest", libc::O_WRONLY).unwrap();
    rig.fs.write(handle, 0, b"{\"id\":\"a\",\"text\":\"one\"}\n").unwrap();
    assert_eq!(rig.fs.write(handle, 25, b"{nonsense}\n"), Err(Errno::EINVAL));
    assert_eq!(rig.fs.write(handle, 25, b"{\"id\":\"b\",\"text\":\"two\"}\n"), Err(Errno::EINVAL));
    assert_eq!(rig.fs.flush(handle), Err(Errno::EINVAL));
    assert_eq!(rig.fs.fsync(handle), Err(Errno::EINVAL));
    rig.fs.write(handle, 25, b"{\"id\":\"c\",\"text\":\"three\"}\n").unwrap();
    rig.fs.flush(handle).unwrap();
    assert_eq!(rig.list("main/vectors"), ["c.json"]);
}

#[test]
fn a_batch_that_skips_what_is_unchanged_leaves_it_alone_and_moves_the_cursor() {
    let rig = Rig::new();
    let (skip, line) = ("{\"skip_unchanged\": true}\n", "{\"id\":\"a\",\"text\":\"one\"}\n");
    let ingested = |lines: &[&str]| {
        rig.write("main/ingest", &lines.concat()).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&rig.read("main/ingest").unwrap()).unwrap();
        answer["put"].as_u64().unwrap()
    };
    rig.write("main/shared/log/append", "entry\n").unwrap();
    assert_eq!(ingested(&[skip, line]), 1);
    let state = || (rig.memory.last_seq(), rig.read("main/vectors/a.json").unwrap());
    let before = state();
    assert_eq!(ingested(&[skip, line, "{\"cursor\":1}\n"]), 0);
    assert_eq!(state(), before, "neither an entry nor another time");
    assert_eq!(rig.read("main/shared/log/cursor").unwrap(), "1\n");
    assert_eq!(ingested(&[skip, line, "{\"id\":\"b\",\"text\":\"two\"}\n"]), 1);
    let handle = rig.open("main/ingest", libc::O_WRONLY).unwrap();
    for (batch, is_written) in [([skip, line].concat(), false), (line.to_owned(), true)] {
        let before = rig.memory.last_seq();
        rig.fs.write(handle, 0, batch.as_bytes()).unwrap();
        rig.fs.fsync(handle).unwrap();
        assert_eq!(rig.memory.last_seq() > before, is_written, "{batch}");
    }
    rig.fs.release(handle);
    assert_eq!(rig.write("main/ingest", &[line, skip].concat()), Err(Errno::EINVAL), "behind a record it is one");
    assert_eq!(rig.write("main/ingest", &[skip, line, "{nonsense}\n"].concat()), Err(Errno::EINVAL));
    let message = rig.last_error("main")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("line 2"), "the line that skips does not count: {message}");
}

#[test]
fn a_line_in_two_writes_is_one_line() {
    let rig = Rig::new();
    let handle = rig.open("main/ingest", libc::O_RDWR).unwrap();
    rig.fs.write(handle, 0, b"{\"id\":\"a\",").unwrap();
    assert_eq!(rig.fs.flush(handle), Err(Errno::EINVAL));
    rig.fs.write(handle, 10, b"\"text\":\"x\"}\n").unwrap();
    assert!(rig.read_on(handle, 22).unwrap().contains("\"put\":1"));
    assert_eq!(rig.list("main/vectors"), ["a.json"]);
    rig.write("main/ingest", "{\"id\":\"a\",\"delete\":true}\n").unwrap();
    assert!(rig.list("main/vectors").is_empty());
}
