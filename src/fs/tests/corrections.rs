//! Corrections, bare text and names in `vectors/` and `ingest`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use serde_json::Value;

use super::rig::{ANEW, Rig};
use crate::fs::errno::Errno;
use crate::memory::{Actor, Memory, RecordEdit, Time, View};
use crate::sync::without_waiting;

fn record(rig: &Rig, id: &str) -> Value {
    serde_json::from_str(&rig.read(&format!("main/vectors/{id}.json")).unwrap()).unwrap()
}

/// A record with a vector, a text and metadata.
fn whole(rig: &Rig) -> &'static str {
    rig.write("main/vectors/x.json", r#"{"vector":[1,2],"text":"old","metadata":{"k":1,"l":2}}"#).unwrap();
    "main/vectors/x.json"
}

#[test]
fn a_correction_keeps_what_it_leaves_out_and_null_removes_it() {
    let rig = Rig::new();
    let path = whole(&rig);
    let created = record(&rig, "x")["created"].clone();
    rig.write(path, r#"{"text":"new"}"#).unwrap();
    let after = record(&rig, "x");
    assert_eq!(
        (&after["text"], after["vector"][1].as_f64(), &after["metadata"]["l"]),
        (&"new".into(), Some(2.0), &2.into())
    );
    assert_eq!((&after["created"], &after["vector_stale"]), (&created, &Value::Bool(true)));
    rig.write("main/ingest", "{\"id\":\"x\",\"metadata\":{\"m\":3}}\n{\"id\":\"x\",\"vector\":[3,4]}\n").unwrap();
    let after = record(&rig, "x");
    assert_eq!(after["metadata"].to_string(), r#"{"m":3}"#);
    assert!(after["text"] == "new" && after["vector"][0] == 3.0 && after.get("vector_stale").is_none(), "{after}");
    rig.write(path, r#"{"vector":null,"metadata":null}"#).unwrap();
    let after = record(&rig, "x");
    assert!(after["text"] == "new" && after["vector"].is_null() && after["metadata"] == serde_json::json!({}));
    rig.write(path, r#"{"vector":[5,6],"replace":true}"#).unwrap();
    assert!(record(&rig, "x")["text"].is_null());
}

#[test]
fn a_record_written_whole_has_a_stale_vector_if_its_text_alone_is_new() {
    let rig = Rig::new();
    let path = whole(&rig);
    let is_stale = || record(&rig, "x")["vector_stale"] == true;
    for whole in [r#"{"vector":[1,2],"text":"new","metadata":{}}"#, r#"{"vector":[1,2],"text":"newer","replace":true}"#]
    {
        for _ in 0..2 {
            rig.write(path, whole).unwrap();
            assert!(is_stale(), "also when it is written again");
        }
    }
    rig.write(path, r#"{"vector":[2,2],"text":"newest","metadata":{}}"#).unwrap();
    assert!(!is_stale());
    rig.write(path, r#"{"vector":[2,2],"text":"newest","metadata":{"k":1}}"#).unwrap();
    assert!(!is_stale());
}

#[test]
fn what_is_left_with_neither_text_nor_vector_fails_in_the_write() {
    let rig = Rig::new();
    let path = whole(&rig);
    for document in [r#"{"text":null,"vector":null}"#, r#"{"metadata":{},"replace":true}"#] {
        let handle = rig.open(path, ANEW).unwrap();
        assert_eq!(rig.fs.write(handle, 0, document.as_bytes()), Err(Errno::EINVAL), "{document}");
        assert_eq!(rig.last_error("main")["code"], "empty_record");
        rig.fs.release(handle);
        let line = document.replacen('{', "{\"id\":\"x\",", 1) + "\n";
        let handle = rig.open("main/ingest", libc::O_WRONLY).unwrap();
        assert_eq!(rig.fs.write(handle, 0, line.as_bytes()), Err(Errno::EINVAL), "{line}");
        rig.fs.release(handle);
    }
    assert_eq!(rig.write("main/vectors/new.json", r#"{"metadata":{"a":1}}"#), Err(Errno::EINVAL));
    // What a line before it made is not there yet, so that it fails at the commit, which names the line.
    let lines = "{\"id\":\"x\",\"vector\":null}\n\n{\"id\":\"x\",\"text\":null}\n";
    assert_eq!(rig.write("main/ingest", lines), Err(Errno::EINVAL));
    assert!(rig.last_error("main")["message"].as_str().unwrap().starts_with("line 3: "));
    assert_eq!((&record(&rig, "x")["text"], rig.list("main/vectors").len()), (&"old".into(), 1));
}

#[test]
fn bare_text_sets_the_text_and_keeps_the_rest() {
    let rig = Rig::new();
    let path = whole(&rig);
    rig.write(path, "tea at four\n").unwrap();
    let after = record(&rig, "x");
    assert!(after["text"] == "tea at four" && after["vector"][0] == 1.0 && after["metadata"]["k"] == 1, "{after}");
    let head = rig.read("main/status").unwrap();
    for blank in ["", "\n", " \t\n", "\u{feff}\n"] {
        rig.write(path, blank).unwrap();
        rig.write("main/vectors/blank.json", blank).unwrap();
    }
    assert_eq!(rig.read("main/status").unwrap(), head);
    assert_eq!(rig.write(path, "[1, 2]"), Err(Errno::EINVAL));
    assert_eq!(rig.last_error("main")["code"], "bad_document");
    rig.write(path, "\u{feff}\n {\"text\":\"a document\"}").unwrap();
    assert_eq!(record(&rig, "x")["text"], "a document");
    let handle = rig.open(path, ANEW).unwrap();
    assert_eq!(rig.fs.write(handle, 0, b"caf\xe9 au lait"), Err(Errno::EINVAL));
    rig.fs.release(handle);
}

#[test]
fn text_over_a_document_or_behind_it_is_refused() {
    let rig = Rig::new();
    let path = whole(&rig);
    let handle = rig.open(path, libc::O_WRONLY).unwrap();
    rig.fs.write(handle, 0, b"tea").unwrap();
    assert_eq!(rig.fs.flush(handle), Err(Errno::EINVAL));
    rig.fs.release(handle);
    let handle = rig.open(path, libc::O_WRONLY | libc::O_APPEND).unwrap();
    assert_eq!(rig.fs.write(handle, 0, b"more\n"), Err(Errno::EINVAL));
    assert_eq!(rig.last_error("main")["code"], "append");
    rig.fs.release(handle);
    assert_eq!(record(&rig, "x")["text"], "old");
    let handle = rig.open("main/vectors/new.json", libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND).unwrap();
    rig.fs.write(handle, 0, b"two ").unwrap();
    rig.fs.write(handle, 0, b"writes\n").unwrap();
    rig.fs.flush(handle).unwrap();
    rig.fs.release(handle);
    assert_eq!(record(&rig, "new")["text"], "two writes");
}

#[test]
fn lines_of_text_become_records_of_their_own() {
    let rig = Rig::new();
    rig.write("main/ingest", "tea at four\n\n[a list]\n{\"id\":\"b\",\"text\":\"c\"}\nlast, without an end").unwrap();
    assert!(rig.read("main/ingest").unwrap().starts_with("{\"put\":4,"));
    let ids = rig.list("main/vectors");
    let text = |name: &String| record(&rig, name.strip_suffix(".json").unwrap())["text"].as_str().unwrap().to_owned();
    // Ids made within one millisecond are in no order.
    let texts: std::collections::BTreeSet<String> = ids.iter().map(text).collect();
    assert_eq!(texts, ["[a list]", "c", "last, without an end", "tea at four"].map(str::to_owned).into());
    std::thread::sleep(std::time::Duration::from_millis(2));
    rig.write("main/ingest", "later").unwrap();
    let is_given = |name: &String| name != "b.json";
    let given: Vec<String> = rig.list("main/vectors").into_iter().filter(is_given).collect();
    assert!(given.iter().all(|id| id.len() == 36 + ".json".len() && id[14..].starts_with('7')), "{given:?}");
    assert_eq!(given.iter().max().map(text), Some("later".to_owned()), "they are in order of time");
}

#[test]
fn names_that_are_no_records_and_no_temporaries_are_refused_with_a_hint() {
    let rig = Rig::new();
    whole(&rig);
    for name in ["notes", "x.txt", "x.json.tmp", "x.jsonl"] {
        let path = format!("main/vectors/{name}");
        assert_eq!(rig.write(&path, "text"), Err(Errno::EINVAL), "{name}");
        let error = rig.last_error("main");
        assert_eq!((&error["code"], &error["path"]), (&"not_a_record_name".into(), &format!("vectors/{name}").into()));
        assert!(error["hint"].as_str().unwrap().contains("ID.json"));
        assert_eq!(rig.mv("main/vectors/x.json", &path), Err(Errno::EINVAL), "{name}");
        assert_eq!(rig.mv("main/vectors/none.json", &path), Err(Errno::ENOENT), "{name}");
        rig.write("main/vectors/.tmp", "text").unwrap();
        assert_eq!(rig.mv("main/vectors/.tmp", &path), Err(Errno::EINVAL), "{name}");
        assert_eq!(rig.rm(&path), Err(Errno::ENOENT), "{name}");
    }
    // A saver's name that is no backup's would lose the record.
    assert_eq!(rig.mv("main/vectors/x.json", "main/vectors/sedabcdef"), Err(Errno::EINVAL));
    assert_eq!(rig.list("main/vectors"), [".tmp", "x.json"]);
    rig.write("main/vectors/sedabc.json", "a record").unwrap();
    assert_eq!(record(&rig, "sedabc")["text"], "a record");
    rig.mv("main/vectors/sedabc.json", "main/vectors/x.json").unwrap();
    let after = record(&rig, "x");
    assert!(after["text"] == "a record" && after["vector"].is_null() && after["metadata"] == serde_json::json!({}));
}

#[test]
fn temporaries_that_a_mount_loses_are_told_by_the_next_one() {
    let rig = Rig::new();
    rig.write("main/vectors/.draft", "text").unwrap();
    rig.write("main/vectors/a.json~", "text").unwrap();
    rig.write("main/vectors/.gone", "text").unwrap();
    rig.rm("main/vectors/.gone").unwrap();
    rig.fs.end();
    let next = rig.mounted_again();
    let errors = next.read("main/errors").unwrap();
    let lines: Vec<Value> = errors.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let paths: Vec<&Value> = lines.iter().map(|line| &line["path"]).collect();
    assert_eq!(paths, ["vectors/.draft", "vectors/a.json~"]);
    assert_eq!(lines[0]["code"], "temporary_lost");
    next.fs.end();
    assert_eq!(next.mounted_again().read("main/errors").unwrap(), "");
}

/// Writes the text `newer` to the record `x`, where nobody holds the writer's lock.
fn write_newer(memory: &Arc<Memory>) -> bool {
    let memory = memory.clone();
    let write = move || {
        let edit = RecordEdit::parse_line(br#"{"id":"x","text":"newer"}"#, 1, &|| "x".into()).unwrap().unwrap();
        let main = memory.root("main").unwrap();
        let is_there = memory.snapshot(&View::Branch(main)).unwrap().get("x").unwrap().is_some();
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        is_there && without_waiting(|| memory.commit(&who, main, vec![edit])).is_ok()
    };
    std::thread::spawn(write).join().unwrap()
}

#[test]
fn what_others_write_while_a_record_is_set_aside_is_set_aside_with_it() {
    let mut between = 0;
    for nth in 1..8 {
        // Another one writes at a look at the clock.
        let (looks, memory) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(OnceLock::<Weak<Memory>>::new()));
        let (counted, store, written) = (looks.clone(), memory.clone(), Arc::new(AtomicUsize::new(0)));
        let (ticks, writes) = (AtomicUsize::new(0), written.clone());
        let rig = Rig::with_clock(move || {
            if counted.fetch_sub(1, Ordering::Relaxed) == 1 {
                let memory = store.get().and_then(Weak::upgrade).unwrap();
                writes.fetch_add(usize::from(write_newer(&memory)), Ordering::Relaxed);
            }
            Time(1_700_000_000_000_000_000 + ticks.fetch_add(1, Ordering::Relaxed) as i64)
        });
        memory.set(Arc::downgrade(&rig.memory)).unwrap();
        let path = whole(&rig);
        looks.store(nth, Ordering::Relaxed);
        rig.mv(path, "main/vectors/x.json~").unwrap();
        looks.store(usize::MAX, Ordering::Relaxed);
        let aside: Value = serde_json::from_str(&rig.read("main/vectors/x.json~").unwrap()).unwrap();
        assert_eq!(rig.list("main/vectors"), ["x.json~"]);
        if written.load(Ordering::Relaxed) > 0 {
            between += 1;
            assert_eq!((&aside["text"], &aside["metadata"]["k"]), (&"newer".into(), &1.into()), "look {nth}");
        }
    }
    assert!(between > 0, "the other one comes in between");
}
