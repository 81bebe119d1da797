//! Who wrote a version, where and when: filters find it, and hits show it.

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Actor, BranchId, Memory, MergeVerb, Query, RecordEdit, RecordInput, RecordPatch, Setting, ShowTarget, View, Viewer,
};
use serde_json::{Value, json};

use crate::support::{delete, main_of, open, put, record_input, verify, who};

fn found(memory: &Memory, branch: BranchId, filter: &Value) -> Vec<String> {
    let query = json!({ "text": "word", "k": 100, "filter": filter }).to_string();
    let answer = memory.query(&View::Branch(branch), &Query::parse(&query).unwrap()).unwrap();
    let mut ids: Vec<String> = answer.hits.iter().map(|hit| hit.id.to_string()).collect();
    ids.sort();
    ids
}

#[test]
fn filters_find_versions_by_who_wrote_them_where_and_when() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let bob = Actor { uid: 1002, gid: 1002, name: "bob".into() };
    memory.commit(&who(), main, vec![put("first", None, Some("a word"))]).unwrap();
    let child = memory.fork(&bob, main, "bobs", None).unwrap();
    for (setting, value) in [(Setting::Agent, "planner"), (Setting::Session, "s1"), (Setting::Task, "t1")] {
        memory.set(&bob, child, setting, value).unwrap();
    }
    memory
        .commit(&bob, child, vec![put("second", None, Some("a word more")), put("third", None, Some("word"))])
        .unwrap();
    let middle = memory.snapshot(&View::Branch(child)).unwrap().get("second").unwrap().unwrap().created().to_string();
    memory.merge(&bob, child, MergeVerb::Merge, false).unwrap();
    memory.commit(&who(), main, vec![put("first", None, Some("another word"))]).unwrap();
    for sealed in [false, true] {
        if sealed {
            memory.seal().unwrap();
        }
        let by = |filter: Value| found(&memory, main, &filter).join(" ");
        assert_eq!(by(json!({ "@agent": "planner" })), "second third", "{sealed}");
        assert_eq!(by(json!({ "@session": "s1", "@task": "t1" })), "second third");
        assert_eq!(by(json!({ "@uid": 1002 })), "second third");
        assert_eq!(by(json!({ "@uid": { "$ne": 1002 } })), "first");
        assert_eq!(by(json!({ "@branch": { "$in": ["main", "main/other"] } })), "first");
        assert_eq!(by(json!({ "@created": { "$gte": middle } })), "second third");
        assert_eq!(by(json!({ "@created": { "$lt": middle } })), "first");
        assert_eq!(by(json!({ "@modified": { "$gt": middle } })), "first", "it was changed later");
        assert_eq!(by(json!({ "$or": [{ "@task": "t1" }, { "@task": "" }] })), "first second third");
    }
    let refused = Query::parse(r#"{"text":"word","filter":{"@created":{"$gt":"yesterday"}}}"#).unwrap_err();
    assert!(refused.hint().contains("2026-01-31T12:00:00Z"), "{refused}; {}", refused.hint());
}

#[test]
fn keys_of_the_metadata_do_not_say_who_wrote_a_version() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let input = RecordInput {
        metadata: r#"{"@uid":7,"@agent":"forged","@other":1}"#.into(),
        ..record_input(None, Some("word"))
    };
    memory.commit(&who(), main, vec![RecordEdit::Put { id: "a".into(), input }]).unwrap();
    for sealed in [false, true] {
        if sealed {
            memory.seal().unwrap();
        }
        let by = |filter: Value| found(&memory, main, &filter).join(" ");
        assert_eq!([by(json!({ "@uid": 7 })), by(json!({ "@agent": "forged" }))], ["", ""], "{sealed}");
        assert_eq!([by(json!({ "@uid": who().uid })), by(json!({ "@other": 1 }))], ["a", "a"], "{sealed}");
    }
}

#[test]
fn a_commit_of_1024_edits_or_4_mib_has_the_time_at_which_it_began() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let words = |count: usize| (0..count).map(|number| put(&format!("r{number}"), None, Some("word"))).collect();
    let long = |bytes: usize| vec![put("r7", None, Some(&"x".repeat(bytes)))];
    let commits: [(Vec<RecordEdit>, bool); 4] =
        [(words(1_023), false), (words(1_024), true), (long((4 << 20) - 1_000), false), (long(4 << 20), true)];
    for (edits, is_begin) in commits {
        let before = memory.now();
        memory.commit(&who(), main, edits).unwrap();
        let line: Value = serde_json::from_str(memory.lineage_lines(main, false).unwrap().last().unwrap()).unwrap();
        let modified = memory.snapshot(&View::Branch(main)).unwrap().get("r7").unwrap().unwrap().modified();
        let is_of_the_entry = modified.to_string() == line["time"];
        assert_eq!((modified > before, is_of_the_entry), (true, !is_begin), "{modified}, {line}");
    }
}

#[test]
fn created_stays_with_a_record_that_is_replaced_or_renamed_and_ends_with_a_delete() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let times = |id: &str| {
        let record = memory.snapshot(&View::Branch(main)).unwrap().get(id).unwrap().unwrap();
        (record.created(), record.modified())
    };
    for sealed in [false, true] {
        let commit = |edit: RecordEdit| {
            memory.commit(&who(), main, vec![edit]).unwrap();
            if sealed {
                memory.seal().unwrap();
            }
        };
        commit(put("a", None, Some("one")));
        let first = times("a");
        commit(put("a", None, Some("two")));
        assert!(times("a").0 == first.0 && times("a").1 > first.1, "{sealed}");
        commit(RecordEdit::Rename { from: "a".into(), to: "b".into() });
        assert_eq!(times("b").0, first.0, "{sealed}");
        commit(delete("b"));
        commit(put("b", None, Some("three")));
        assert!(times("b").0 > first.1, "{sealed}");
        // Within one commit, a small one and one that goes into a segment.
        for many in [0, 2_000] {
            let before = times("b");
            let rest = (0..many).map(|number| put(&format!("many{number}"), None, Some("x")));
            let edits = [delete("b"), put("b", None, Some("four")), put("b", None, Some("five"))];
            let receipt = memory.commit(&who(), main, edits.into_iter().chain(rest).collect()).unwrap();
            assert_eq!((receipt.put, receipt.deleted), (many + 1, 0));
            assert!(times("b").0 > before.1, "{sealed}, {many}");
        }
        let before = times("b");
        let rename = RecordEdit::Rename { from: "b".into(), to: "c".into() };
        memory.commit(&who(), main, vec![rename, put("b", None, Some("another"))]).unwrap();
        assert!(times("c").0 == before.0 && times("b").0 > before.1, "{sealed}");
    }
    drop(memory);
    open(&disk).unwrap();
}

#[test]
fn hits_carry_the_stamp_where_that_is_asked_for() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("a", Some(vec![1.0]), Some("word"))]).unwrap();
    let lines = |include: &str| {
        let query = Query::parse(&format!(r#"{{"text":"word","include":{include}}}"#)).unwrap();
        let lines = memory.query(&View::Branch(main), &query).unwrap().to_lines(0);
        serde_json::from_str::<Value>(lines.lines().nth(1).unwrap()).unwrap()
    };
    let hit = lines(r#"["stamp"]"#);
    assert_eq!((&hit["uid"], &hit["session"], hit.get("vector")), (&who().uid.into(), &"".into(), None));
    assert!(hit["agent"].is_string() && hit["created"] == hit["modified"], "{hit}");
    assert!(lines(r#"["vector","stamp"]"#)["vector"].is_array());
    assert_eq!(lines("[]").get("agent"), None);
    assert!(Query::parse(r#"{"text":"word","include":["text"]}"#).is_err());
}

#[test]
fn the_name_of_a_uid_is_written_down_once_before_its_first_entry_and_in_no_branch() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let bob = Actor { uid: 1002, gid: 1002, name: "bob".into() };
    let before = memory.last_seq();
    let child = memory.fork(&bob, main, "bobs", None).unwrap();
    memory.commit(&bob, child, vec![put("first", None, Some("a word"))]).unwrap();
    let entry = |seq: u64| -> Value {
        let shown = memory.show(main, ShowTarget::Entry(seq), Viewer::UNRESTRICTED).unwrap();
        serde_json::from_str(&shown.line).unwrap()
    };
    let entries: Vec<Value> = (before + 1..=memory.last_seq()).map(entry).collect();
    let facts = |entry: &Value| json!([entry["op"], entry["uid"], entry["branch"]]);
    let expected =
        [json!(["user", 1002, ""]), json!(["fork", 1002, "main/bobs"]), json!(["commit", 1002, "main/bobs"])];
    assert_eq!(entries.iter().map(facts).collect::<Vec<_>>(), expected);
    assert_eq!(entries[0]["text"], "bob");
    for branch in [main, child] {
        let lines = memory.lineage_lines(branch, false).unwrap();
        assert!(!lines.iter().any(|line| line.contains(r#""op":"user""#)), "{lines:?}");
    }
}

/// Says whether the vector of `a` is stale, and nothing else.
fn flag(memory: &Memory, branch: BranchId, vector_stale: bool) {
    let patch = RecordPatch { vector_stale: Some(vector_stale), ..RecordPatch::default() };
    memory.commit(&who(), branch, vec![RecordEdit::Correct { id: "a".into(), patch, line: 0 }]).unwrap();
}

/// The record `a` as its file shows it.
fn document(memory: &Memory, branch: BranchId) -> Value {
    let record = memory.snapshot(&View::Branch(branch)).unwrap().get("a").unwrap().unwrap();
    serde_json::from_slice(&record.to_document()).unwrap()
}

#[test]
fn a_merge_and_a_pull_carry_a_vector_that_was_called_stale_or_fresh() {
    for (vector_stale, merge) in [true, false]
        .into_iter()
        .flat_map(|stale| [MergeVerb::Merge, MergeVerb::Promote, MergeVerb::Pull].map(|merge| (stale, merge)))
    {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        memory.commit(&who(), main, vec![put("a", Some(vec![1.0, 0.0]), Some("one"))]).unwrap();
        flag(&memory, main, !vector_stale);
        let child = memory.fork(&who(), main, "x", None).unwrap();
        flag(&memory, child, vector_stale);
        let flagged = document(&memory, child);
        memory.merge(&who(), child, merge, false).unwrap();
        let (receiver, path) = if merge == MergeVerb::Pull { (child, "main/x") } else { (main, "main") };
        assert_eq!(document(&memory, receiver), flagged, "{merge:?}");
        memory.sync().unwrap();
        let disk = disk.power_cut_keep_all();
        drop(memory);
        let memory = open(&disk).unwrap();
        assert_eq!(document(&memory, memory.resolve(path).unwrap()), flagged, "{merge:?} replayed");
        memory.close().unwrap();
        drop(memory);
        verify(&disk).unwrap();
    }
}

#[test]
fn a_record_that_the_parent_changed_keeps_what_is_said_there_of_its_vector() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("a", Some(vec![1.0, 0.0]), Some("one"))]).unwrap();
    flag(&memory, main, true);
    let child = memory.fork(&who(), main, "x", None).unwrap();
    flag(&memory, child, false);
    let patch = RecordPatch { text: Some(Some("two".into())), ..RecordPatch::default() };
    memory.commit(&who(), main, vec![RecordEdit::Correct { id: "a".into(), patch, line: 0 }]).unwrap();
    let result = memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
    let after = document(&memory, main);
    assert_eq!((&after["text"], &after["vector_stale"], result.conflicts.len()), (&json!("two"), &json!(true), 0));
}
