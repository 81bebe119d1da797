//! `query`, `search/`, `ctl`, `config/` and generated files.

use std::ffi::OsStr;
use std::sync::mpsc;
use std::time::Duration;

use super::rig::{ANEW, ANN, ROOT, Rig, document};
use crate::fs::{AttrChanges, Caller, Errno, FsOptions};
use crate::memory::Setting;

fn with_records() -> Rig {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("apples and pears")).unwrap();
    rig.write("main/vectors/b.json", &document("pears alone")).unwrap();
    rig
}

fn headers(answer: &str) -> Vec<serde_json::Value> {
    let lines = answer.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter(|line| line.get("ok").is_some()).collect()
}

#[test]
fn echo_then_cat_shows_the_last_answers_of_the_same_user() {
    let mut rig = with_records();
    assert_eq!(rig.read("main/query").unwrap(), "");
    rig.write("main/query", "apples\npears\n").unwrap();
    let answer = rig.read("main/query").unwrap();
    assert_eq!(headers(&answer).iter().map(|header| header["hits"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    rig.who = ANN;
    assert_eq!(rig.read("main/query").unwrap(), "");
}

#[test]
fn no_scope_reaches_where_the_caller_can_not() {
    let mut rig = with_records();
    rig.mkdir("secret").unwrap();
    rig.write("secret/vectors/s.json", &document("pears in secret")).unwrap();
    let secret = rig.ino("secret").unwrap();
    let scoped = r#"{"text":"pears","scope":["branch","secret"]}"#;
    let ask = |rig: &Rig| rig.write("main/query", &format!("{scoped}\n"));
    rig.who = ANN;
    ask(&rig).unwrap();
    assert_eq!(headers(&rig.read("main/query").unwrap())[0]["hits"], 3);
    rig.fs.setattr(ROOT, secret, AttrChanges { mode: Some(0o700), ..AttrChanges::default() }, None).unwrap();
    assert_eq!(ask(&rig), Err(Errno::EACCES));
    assert_eq!(rig.last_error("main")["code"], "scope_not_reached");
    rig.who = ROOT;
    ask(&rig).unwrap();
    // A mount of one branch reaches nothing else, whoever asks.
    let main = rig.memory.root("main");
    let alone = rig.view(FsOptions { branch: main, ..FsOptions::default() });
    let query = alone.lookup(ROOT, 1, OsStr::new("query")).unwrap().attr.ino;
    let handle = alone.open(ROOT, query, libc::O_RDWR).unwrap();
    assert_eq!(alone.write(handle, 0, format!("{scoped}\n").as_bytes()), Err(Errno::EACCES));
    alone.write(handle, 0, scoped.replace("secret", "main").as_bytes()).unwrap();
}

#[test]
fn one_handle_writes_and_reads_in_turn_from_wherever() {
    let rig = with_records();
    let handle = rig.open("main/query", libc::O_RDWR).unwrap();
    rig.fs.write(handle, 0, b"apples\n").unwrap();
    let first = rig.read_on(handle, 7).unwrap();
    assert_eq!(headers(&first)[0]["q"], 0);
    assert_eq!(rig.read_on(handle, 0).unwrap(), first);
    let position = 7 + first.len() as u64;
    rig.fs.write(handle, position, b"pears\n").unwrap();
    let second = rig.read_on(handle, position + 6).unwrap();
    assert_eq!((headers(&second).len(), &headers(&second)[0]["q"]), (1, &1.into()));
}

#[test]
fn a_bad_query_fails_in_the_write_and_does_nothing() {
    let rig = with_records();
    rig.write("main/query", "apples\n").unwrap();
    let before = rig.read("main/query").unwrap();
    let handle = rig.open("main/query", libc::O_RDWR).unwrap();
    assert_eq!(rig.fs.write(handle, 0, b"pears\n{\"text\":\n"), Err(Errno::EINVAL));
    assert_eq!(rig.read_on(handle, 0).unwrap(), "");
    rig.fs.write(handle, 0, b"pears\n").unwrap();
    assert_eq!(headers(&rig.read_on(handle, 6).unwrap()).len(), 1);
    assert!(before.contains("apples"));
    assert_eq!(rig.last_error("main")["path"], "query");
    assert_eq!(rig.write("main/query", "{\"id\":\"none\"}\n"), Err(Errno::ENOENT), "as it is no bad one");
    assert_eq!(
        rig.write("main/query", "{\"text\":\"pears\",\"at\":99999}\n"),
        Err(Errno::ENOENT),
        "as there is no such state"
    );
}

#[test]
fn the_rest_of_a_line_that_was_refused_is_no_new_line() {
    let rig = with_records();
    for (path, good) in [("main/query", "pears\n"), ("main/ctl", "checkpoint v1\n")] {
        let handle = rig.open(path, libc::O_RDWR).unwrap();
        rig.fs.write(handle, 0, b"{\"text\":").unwrap();
        for _ in 0..3 {
            assert_eq!(rig.fs.write(handle, 8, b" apples\n"), Err(Errno::EINVAL), "{path}");
        }
        rig.fs.flush(handle).unwrap();
        let answer = rig.read_on(handle, 8).unwrap();
        assert!(answer.lines().all(|line| line.contains("\"status\":\"refused\"")), "{path}: {answer}");
        // A new line may follow at once.
        rig.fs.write(handle, 8, b"{\"text\":").unwrap();
        assert_eq!(rig.fs.write(handle, 16, b" apples\n"), Err(Errno::EINVAL), "{path}");
        rig.fs.write(handle, 16, good.as_bytes()).unwrap();
        assert_eq!(rig.read_on(handle, 16 + good.len() as u64).unwrap().lines().count().min(1), 1, "{path}");
    }
}

#[test]
fn a_line_that_is_too_long_is_refused_to_its_end() {
    let rig = with_records();
    let handle = rig.open("main/query", libc::O_RDWR).unwrap();
    let piece = vec![b'x'; 1 << 20];
    (0..4).for_each(|at| assert_eq!(rig.fs.write(handle, at << 20, &piece), Ok(1 << 20)));
    assert_eq!(rig.fs.write(handle, 4 << 20, &piece), Err(Errno::EFBIG));
    assert_eq!(rig.fs.write(handle, 4 << 20, b"its end\n"), Err(Errno::EFBIG));
    assert_eq!(rig.read_on(handle, 4 << 20).unwrap(), "");
    rig.fs.write(handle, 4 << 20, b"apples\n").unwrap();
    assert_eq!(headers(&rig.read_on(handle, 0).unwrap()).len(), 1);
    let handle = rig.open("main/ingest", libc::O_RDWR).unwrap();
    let piece = vec![b'x'; 9 << 20];
    assert_eq!(rig.fs.write(handle, 0, &piece), Ok(9 << 20));
    assert_eq!(rig.fs.write(handle, 9 << 20, &piece), Err(Errno::EFBIG));
    assert_eq!(rig.fs.flush(handle), Err(Errno::EFBIG));
    let end = b"{\"id\":\"n\",\"text\":\"n\"}\n";
    assert_eq!(rig.fs.write(handle, 9 << 20, end), Err(Errno::EFBIG));
    assert_eq!(rig.fs.flush(handle), Err(Errno::EFBIG));
    rig.fs.write(handle, 9 << 20, end).unwrap();
    rig.fs.flush(handle).unwrap();
    assert_eq!(rig.list("main/vectors"), ["a.json", "b.json", "n.json"]);
}

#[test]
fn a_write_that_was_cut_short_is_told_at_the_close() {
    let rig = with_records();
    let handle = rig.open("main/query", libc::O_WRONLY).unwrap();
    rig.fs.write(handle, 0, b"{\"text\":").unwrap();
    assert_eq!(rig.fs.write(handle, 8, b" apples\n"), Err(Errno::EINVAL));
    assert_eq!(rig.fs.flush(handle), Err(Errno::EINVAL));
    assert_eq!(rig.fs.flush(handle), Ok(()));
}

#[test]
fn a_query_without_a_line_end_is_answered_when_somebody_reads() {
    let rig = with_records();
    let handle = rig.open("main/query", libc::O_RDWR).unwrap();
    rig.fs.write(handle, 0, b"app").unwrap();
    rig.fs.write(handle, 3, b"les").unwrap();
    assert_eq!(headers(&rig.read_on(handle, 6).unwrap())[0]["hits"], 1);
    rig.write("main/query", "pears").unwrap();
    assert_eq!(headers(&rig.read("main/query").unwrap())[0]["hits"], 2);
}

#[test]
fn blank_lines_ask_nothing() {
    let rig = with_records();
    let handle = rig.open("main/query", libc::O_RDWR).unwrap();
    rig.fs.write(handle, 0, b"\n\r\napples\r\n").unwrap();
    assert_eq!(headers(&rig.read_on(handle, 0).unwrap()).len(), 1);
}

#[test]
fn a_name_in_search_is_a_query_that_is_asked_at_the_open() {
    let rig = with_records();
    assert_eq!(rig.stat("main/search/pears").unwrap().size, 0);
    let handle = rig.open("main/search/pears", libc::O_RDONLY).unwrap();
    rig.rm("main/vectors/b.json").unwrap();
    let answer = rig.read_on(handle, 0).unwrap();
    assert_eq!(headers(&answer)[0]["hits"], 2);
    assert_eq!(headers(&rig.read("main/search/pears").unwrap())[0]["hits"], 1);
    assert!(answer.contains("\"id\":\"a\""));
    assert!(rig.list("main/search").is_empty());
    assert_eq!(rig.rm("main/search/apples"), Err(Errno::EPERM));
    assert_eq!(rig.read("main/search/ "), Err(Errno::EINVAL));
}

#[test]
fn verbs_are_done_as_they_are_written_and_leave_an_outcome() {
    let rig = with_records();
    rig.write("main/ctl", "checkpoint v1\nfork x from v1\n").unwrap();
    assert_eq!(rig.list("main/checkpoints"), ["v1"]);
    let outcome = rig.read("main/ctl").unwrap();
    assert_eq!(outcome.lines().count(), 2);
    assert!(outcome.contains("\"branch\":\"main/x\""));
    rig.rm("main/vectors/a.json").unwrap();
    rig.write("main/ctl", "rollback v1").unwrap();
    assert_eq!(rig.list("main/vectors"), ["a.json", "b.json"]);
}

#[test]
fn promoting_needs_permission_to_write_to_the_parent() {
    let mut rig = with_records();
    rig.who = ANN;
    rig.mkdir("main/branches/ann").unwrap();
    rig.write("main/branches/ann/vectors/c.json", &document("from ann")).unwrap();
    rig.write("main/branches/ann/ctl", "promote --dry-run\n").unwrap();
    assert!(rig.read("main/branches/ann/ctl").unwrap().contains("ready"));
    assert_eq!(rig.write("main/branches/ann/ctl", "promote\n"), Err(Errno::EACCES));
    assert_eq!(rig.last_error("main/branches/ann")["code"], "parent_not_writable");
    let may = AttrChanges { mode: Some(0o777), ..AttrChanges::default() };
    rig.fs.setattr(super::rig::ROOT, rig.ino("main").unwrap(), may, None).unwrap();
    rig.write("main/branches/ann/ctl", "promote\n").unwrap();
    assert!(rig.ino("main/vectors/c.json").is_ok());
    assert!(rig.ino("main/branches/ann").is_ok());
}

#[test]
fn a_parent_that_was_closed_is_told_to_nobody_by_verbs_forks_or_open_files() {
    let mut rig = with_records();
    rig.who = ANN;
    rig.mkdir("main/branches/ann").unwrap();
    let (query, events) = (rig.open("main/query", libc::O_RDWR).unwrap(), rig.open("main/events.jsonl", 0).unwrap());
    let main = rig.ino("main").unwrap();
    let close = AttrChanges { mode: Some(0o700), ..AttrChanges::default() };
    rig.fs.setattr(ROOT, main, close, None).unwrap();
    for verb in ["pull", "pull --dry-run", "merge --dry-run", "merge", "promote", "promote --dry-run", "propose"] {
        assert_eq!(rig.write("main/branches/ann/ctl", &format!("{verb}\n")), Err(Errno::EACCES), "{verb}");
        assert_eq!(rig.last_error("main/branches/ann")["code"], "branch_closed", "{verb}");
    }
    assert_eq!(rig.open("main/branches/ann/conflicts", 0), Err(Errno::EACCES));
    for name in ["README.md", "status", "lineage", "search/apples", "export/ids.txt", "vectors/a.json", "ctl", "query"]
    {
        assert_eq!(rig.open(&format!("main/{name}"), libc::O_RDONLY), Err(Errno::EACCES), "{name}");
    }
    // As with descriptors that were opened before.
    assert_eq!(rig.mkdir("main/branches/again"), Err(Errno::EACCES));
    assert_eq!(rig.fs.opendir(ANN, rig.ino("main/vectors").unwrap()), Err(Errno::EACCES));
    assert_eq!(rig.fs.write(query, 0, b"apples\n"), Err(Errno::EACCES));
    assert_eq!(rig.fs.read(events, 0, 100), Err(Errno::EACCES));
    // Search without reading is not enough to fork, and what is one's own stays so.
    rig.fs.setattr(ROOT, main, AttrChanges { mode: Some(0o711), ..AttrChanges::default() }, None).unwrap();
    assert_eq!(rig.mkdir("main/branches/again"), Err(Errno::EACCES));
    assert_eq!(rig.write("main/branches/ann/ctl", "pull\n"), Err(Errno::EACCES));
    rig.read("main/status").unwrap();
    rig.write("main/branches/ann/ctl", "checkpoint v1\n").unwrap();
    rig.mkdir("main/branches/ann/branches/below").unwrap();
    rig.who = ROOT;
    rig.write("main/branches/ann/ctl", "pull\n").unwrap();
}

#[test]
fn refusals_are_shown_to_whom_they_happened_and_to_the_owner() {
    let mut rig = with_records();
    let codes = |rig: &Rig| -> Vec<serde_json::Value> {
        let lines = rig.read("main/errors").unwrap();
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["code"].clone()).collect()
    };
    let last = |rig: &Rig| -> serde_json::Value {
        serde_json::from_str::<serde_json::Value>(&rig.read("main/status").unwrap()).unwrap()["last_error"].clone()
    };
    rig.who = ANN;
    rig.write("main/query", "{\"secret\":1}\n").unwrap_err();
    rig.write("main/ctl", "gc\n").unwrap_err();
    rig.who = Caller { uid: 1001, gid: 1001, pid: 0 };
    assert_eq!((codes(&rig), last(&rig)), (vec![], serde_json::Value::Null));
    rig.write("main/ctl", "explode\n").unwrap_err();
    assert_eq!((codes(&rig), &last(&rig)["code"]), (vec!["bad_verb".into()], &"bad_verb".into()));
    rig.who = ANN;
    assert_eq!((codes(&rig).len(), &last(&rig)["code"]), (2, &"not_owner".into()));
    rig.who = ROOT;
    assert_eq!((codes(&rig).len(), &last(&rig)["code"]), (3, &"bad_verb".into()));
}

#[test]
fn a_refused_verb_is_answered_with_its_reason() {
    let rig = with_records();
    let handle = rig.open("main/ctl", libc::O_RDWR).unwrap();
    rig.fs.write(handle, 0, b"checkpoint v1\n").unwrap();
    assert_eq!(rig.fs.write(handle, 14, b"rollback nowhere\n"), Err(Errno::ENOENT));
    let answer = rig.read_on(handle, 0).unwrap();
    let lines: Vec<serde_json::Value> = answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["status"], &lines[1]["status"]), (2, &"taken".into(), &"refused".into()));
    assert_eq!((&lines[1]["errno"], lines[1]["code"].is_string()), (&"ENOENT".into(), true));
    assert!(lines[1]["message"].as_str().unwrap().contains("nowhere") && lines[1]["hint"].is_string());
    assert_eq!(rig.read("main/ctl").unwrap(), answer);
}

#[test]
fn what_has_a_hash_is_shown_to_who_may_read_it() {
    let mut rig = with_records();
    let show = |rig: &Rig, branch: &str, hash: &str| -> Result<String, Errno> {
        rig.write(&format!("{branch}/ctl"), &format!("show {hash}\n"))?;
        rig.read(&format!("{branch}/ctl"))
    };
    let entry = |rig: &Rig, branch: &str| -> [String; 2] {
        let lineage = rig.read(&format!("{branch}/lineage")).unwrap();
        let last: serde_json::Value = serde_json::from_str(lineage.lines().last().unwrap()).unwrap();
        [last["entry"].as_str().unwrap().to_owned(), last["seq"].to_string()]
    };
    let [hash, number] = entry(&rig, "main");
    let by_hash = show(&rig, "main", &hash).unwrap();
    assert_eq!(show(&rig, "main", &number).unwrap(), by_hash);
    let with_changes = show(&rig, "main", &format!("{number} --changes")).unwrap();
    let change = with_changes.strip_prefix(&by_hash).unwrap();
    assert!(change.lines().count() == 1 && change.contains("\"id\":\"b\""), "{with_changes}");
    rig.mkdir("main/branches/x").unwrap();
    rig.write("main/branches/x/vectors/x.json", &document("of x alone")).unwrap();
    let of_x = entry(&rig, "main/branches/x");
    for name in &of_x {
        assert!(show(&rig, "main", name).unwrap().contains("\"op\":\"commit\""), "{name}");
    }
    rig.who = ANN;
    let of_main = entry(&rig, "main");
    for (hidden, shown) in of_x.iter().zip(&of_main) {
        assert_eq!(show(&rig, "main", hidden), Err(Errno::ENOENT), "{hidden}");
        assert!(show(&rig, "main", shown).unwrap().contains(&of_main[0]), "{shown}");
    }
    assert_eq!(rig.write("main/ctl", "show nothing\n"), Err(Errno::EINVAL));
}

#[test]
fn a_merge_by_ctl_leaves_its_outcome_to_the_handle() {
    let rig = with_records();
    rig.mkdir("main/branches/x").unwrap();
    rig.write("main/branches/x/vectors/c.json", &document("x")).unwrap();
    let handle = rig.open("main/branches/x/ctl", libc::O_RDWR).unwrap();
    rig.fs.write(handle, 0, b"merge\n").unwrap();
    assert!(rig.read_on(handle, 6).unwrap().contains("merged"));
    assert_eq!(rig.fs.write(handle, 0, b"pull\n"), Err(Errno::ESTALE));
    assert_eq!(rig.ino("main/branches/x"), Err(Errno::ENOENT));
    assert!(rig.ino("main/vectors/c.json").is_ok());
}

#[test]
fn a_setting_is_one_value_a_file() {
    let rig = Rig::new();
    assert_eq!(rig.read("main/config/strategy").unwrap(), "newest-wins\n");
    rig.write("main/config/strategy", "child-wins\n").unwrap();
    assert_eq!(rig.read("main/config/strategy").unwrap(), "child-wins\n");
    assert_eq!(rig.stat("main/config/strategy").unwrap().size, 11);
    assert_eq!(rig.write("main/config/strategy", "best-wins\n"), Err(Errno::EINVAL));
    assert_eq!(rig.read("main/config/strategy").unwrap(), "child-wins\n");
    rig.write("main/config/task", "one\n").unwrap();
    rig.write("main/config/task", "").unwrap();
    assert_eq!(rig.read("main/config/task").unwrap(), "one\n");
    rig.write("main/config/task", "\n").unwrap();
    assert_eq!(rig.read("main/config/task").unwrap(), "");
    assert_eq!(rig.list("main/config").len(), Setting::ALL.len());
    assert_eq!(rig.read("main/config/embedder").unwrap(), "");
    assert_eq!(rig.write("main/config/embedder", "x\n"), Err(Errno::EPERM));
}

#[test]
fn a_value_may_come_line_by_line() {
    let rig = Rig::new();
    // Whole lines, and a full buffer of 4096 bytes that cuts one behind `te`, which names no kind.
    let cut = format!("# {}\ncore/** te", "x".repeat(4083));
    for [first, second] in [["core/** text manual\n", "** text\n"], [&cut, "xt manual\n"]] {
        let handle = rig.open("main/config/rules", ANEW).unwrap();
        rig.fs.write(handle, 0, first.as_bytes()).unwrap();
        rig.fs.write(handle, first.len() as u64, second.as_bytes()).unwrap();
        rig.fs.flush(handle).unwrap();
        assert_eq!(rig.read("main/config/rules").unwrap(), format!("{first}{second}"));
    }
}

#[test]
fn generated_files_have_their_exact_size_or_none_and_take_nothing() {
    let rig = with_records();
    for name in ["README.md", "status", "lineage", "diff", "conflicts", "events.jsonl", "errors", "export/ids.txt"] {
        let path = format!("main/{name}");
        let length = rig.read(&path).unwrap().len() as u64;
        let is_exact = !["diff", "conflicts", "errors"].contains(&name);
        assert_eq!(rig.stat(&path).unwrap().size, if is_exact { length } else { 0 }, "{name}");
        assert_eq!(rig.open(&path, libc::O_WRONLY), Err(Errno::EPERM), "{name}");
        assert_eq!(rig.rm(&path), Err(Errno::EPERM), "{name}");
    }
    assert_eq!(rig.read("main/export/ids.txt").unwrap(), "a\nb\n");
    for name in ["query", "ingest", "ctl"] {
        assert_eq!(rig.stat(&format!("main/{name}")).unwrap().size, 0);
        rig.truncate(&format!("main/{name}"), 0).unwrap();
    }
}

#[test]
fn a_status_has_the_same_length_for_all_branches_whatever_was_refused() {
    let rig = with_records();
    rig.mkdir("main/branches/x").unwrap();
    let length = rig.stat("main/status").unwrap().size;
    let name = "\u{1}".repeat(250);
    assert_eq!(rig.write(&format!("main/vectors/{name}.json"), "{}"), Err(Errno::EINVAL));
    rig.write("main/config/agent", &"\"".repeat(200)).unwrap();
    for branch in ["main", "main/branches/x"] {
        let status = rig.read(&format!("{branch}/status")).unwrap();
        assert_eq!((status.len() as u64, status.lines().count()), (length, 1), "{branch}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&status).unwrap()["records"], 2);
        assert_eq!(rig.stat(&format!("{branch}/status")).unwrap().size, length);
    }
    let status: serde_json::Value = serde_json::from_str(&rig.read("main/status").unwrap()).unwrap();
    assert_eq!(status["last_error"]["errno"], "EINVAL");
}

#[test]
fn looking_at_attributes_writes_nothing() {
    let rig = with_records();
    rig.write("main/config/strategy", "manual\n").unwrap();
    rig.write("main/files/a", "one\n").unwrap();
    rig.mkdir("main/branches/x").unwrap();
    rig.write("main/files/a", "of main\n").unwrap();
    rig.write("main/branches/x/files/a", "of x\n").unwrap();
    assert_eq!(rig.write("main/branches/x/ctl", "merge\n"), Err(Errno::EBUSY));
    // It resolves the conflict that was shown.
    rig.write("main/branches/x/files/a", "of both\n").unwrap();
    for name in ["conflicts", "diff", "errors", "status", "query", "search/apples"] {
        rig.stat(&format!("main/branches/x/{name}")).unwrap();
    }
    let resolves = |rig: &Rig| rig.read("main/branches/x/lineage").unwrap().contains("\"op\":\"resolve\"");
    assert!(!resolves(&rig));
    rig.read("main/branches/x/conflicts").unwrap();
    assert!(resolves(&rig));
}

#[test]
fn what_was_open_shows_the_state_at_its_open() {
    let rig = with_records();
    let handle = rig.open("main/export/ids.txt", libc::O_RDONLY).unwrap();
    rig.write("main/vectors/c.json", &document("later")).unwrap();
    assert_eq!(rig.read_on(handle, 0).unwrap(), "a\nb\n");
    assert_eq!(rig.fs.getattr(rig.who, rig.ino("main/export/ids.txt").unwrap(), Some(handle)).unwrap().size, 4);
}

#[test]
fn an_open_lineage_stays_and_the_next_one_goes_on_where_it_ends() {
    let rig = with_records();
    let handle = rig.open("main/lineage", libc::O_RDONLY).unwrap();
    let length = rig.stat("main/lineage").unwrap().size;
    rig.write("main/vectors/c.json", &document("later")).unwrap();
    let before = rig.read_on(handle, 0).unwrap();
    assert_eq!(before.len() as u64, length);
    assert_eq!(rig.fs.getattr(rig.who, rig.ino("main/lineage").unwrap(), Some(handle)).unwrap().size, length);
    let after = rig.read("main/lineage").unwrap();
    assert_eq!(after.lines().count(), before.lines().count() + 1);
    let next = rig.open("main/lineage", libc::O_RDONLY).unwrap();
    assert_eq!(before.clone() + &rig.read_on(next, length).unwrap(), after);
    let in_the_middle = rig.fs.read(next, length - 100, 50).unwrap();
    assert_eq!(in_the_middle, before.as_bytes()[before.len() - 100..before.len() - 50]);
}

#[test]
fn events_grow_under_their_reader_and_wake_who_waits() {
    let rig = with_records();
    let handle = rig.open("main/events.jsonl", libc::O_RDONLY).unwrap();
    assert_eq!(rig.fs.poll(handle, None), Ok(true));
    let before = rig.read_on(handle, 0).unwrap();
    let (sender, receiver) = mpsc::channel();
    assert_eq!(rig.fs.poll(handle, Some(Box::new(move || sender.send(()).unwrap()))), Ok(false));
    rig.write("main/vectors/c.json", &document("news")).unwrap();
    receiver.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(rig.fs.poll(handle, None), Ok(true));
    assert!(!rig.read_on(handle, before.len() as u64).unwrap().is_empty());
}

#[test]
fn who_seeks_to_the_end_of_the_events_waits_for_new_ones() {
    let rig = with_records();
    rig.write("main/shared/log/append", "an entry\n").unwrap();
    for path in ["main/events.jsonl", "main/shared/events.jsonl"] {
        let handle = rig.open(path, libc::O_RDONLY).unwrap();
        assert_eq!(rig.fs.poll(handle, None), Ok(true), "{path}");
        rig.fs.getattr(rig.who, rig.ino(path).unwrap(), Some(handle)).unwrap();
        assert_eq!(rig.fs.poll(handle, None), Ok(false), "{path}");
    }
}

#[test]
fn many_conversations_do_not_mix() {
    let rig = with_records();
    std::thread::scope(|scope| {
        for uid in 0..4 {
            let rig = &rig;
            scope.spawn(move || {
                let ino = rig.ino("main/query").unwrap();
                let handle = rig.fs.open(Caller { uid, gid: 0, pid: 0 }, ino, libc::O_RDWR).unwrap();
                let word = if uid % 2 == 0 { "apples" } else { "alone" };
                for turn in 0..100 {
                    rig.fs.write(handle, 0, format!("{{\"text\":\"{word}\",\"tag\":{turn}}}\n").as_bytes()).unwrap();
                    let answer = rig.read_on(handle, 0).unwrap();
                    assert_eq!(headers(&answer).len(), 1);
                    assert!(answer.contains(word), "{answer}");
                }
            });
        }
    });
}
