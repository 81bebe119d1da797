//! The shared log: entries come once, stay, and are found; cursors, logs of their own, and archiving.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Actor, BranchId, CommitOptions, Document, Kind, Memory, MergeVerb, Query, RecordEdit, Setting, SharedLogEntryInput,
    SharedLogPosition, ShowTarget, View, Viewer,
};
use serde_json::Value;

use crate::support::{Chance, main_of, open, put, rounds, verify, who};

fn entry(line: &str) -> SharedLogEntryInput {
    SharedLogEntryInput::parse(line).unwrap()
}

fn append(memory: &Memory, via: BranchId, lines: &[&str]) -> (u64, u64) {
    let entries: Vec<SharedLogEntryInput> = lines.iter().map(|line| entry(line)).collect();
    let receipt = memory.append_log(&who(), via, &entries).unwrap();
    (receipt.appended, receipt.repeated)
}

/// A commit after which a branch has read its log up to an entry.
fn read_up_to(entry: u64) -> CommitOptions {
    CommitOptions { cursor: Some(entry), ..CommitOptions::default() }
}

/// All lines, parsed.
fn lines(memory: &Memory, branch: BranchId) -> Vec<Value> {
    let log = memory.shared_log(branch).unwrap();
    let bytes = log.lines_after(0, u64::MAX).unwrap();
    assert_eq!(bytes.len() as u64, log.bytes());
    String::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn texts(memory: &Memory, branch: BranchId) -> Vec<String> {
    lines(memory, branch).iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

fn hits(memory: &Memory, branch: BranchId, query: &str) -> Vec<(Option<u64>, String, String)> {
    let answer = memory.query(&View::Branch(branch), &Query::parse(query).unwrap()).unwrap();
    answer.hits.iter().map(|hit| (hit.entry_id, hit.id.to_string(), hit.source.to_string())).collect()
}

fn lineage(memory: &Memory, branch: BranchId) -> usize {
    memory.lineage_lines(branch, false).unwrap().len()
}

#[test]
fn entries_have_numbers_without_gaps_and_say_who_wrote_them_through_which_branch() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let agent = memory.fork(&who(), main, "agent-7", None).unwrap();
    memory.set(&who(), agent, Setting::Agent, "planner").unwrap();
    memory.set(&who(), agent, Setting::Task, "ship it").unwrap();
    assert_eq!(append(&memory, main, &["plain words"]), (1, 0));
    assert_eq!(
        append(
            &memory,
            agent,
            &[r#"{"text":"done","vector":[1,2],"kind":"result","event_id":"e1","metadata":{"n":1}}"#, "more"]
        ),
        (2, 0)
    );
    let found = lines(&memory, agent);
    assert_eq!(found, lines(&memory, main), "there is one log below a root branch");
    let numbers: Vec<u64> = found.iter().map(|line| line["entry_id"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let line = &found[1];
    assert_eq!(
        (&line["agent"], &line["task"], &line["branch"]),
        (&"planner".into(), &"ship it".into(), &"main/agent-7".into())
    );
    assert_eq!((&line["kind"], &line["event_id"], &line["metadata"]["n"]), (&"result".into(), &"e1".into(), &1.into()));
    assert!(found[0].get("kind").is_none() && line["uid"] == who().uid && line["time"].is_string());
    assert!(found.iter().all(|line| line.get("vector").is_none()), "the lines leave out vectors");
    assert_eq!(hits(&memory, main, r#"{"vector":[1,2],"k":1}"#)[0].0, Some(2), "which queries find");
    let status = memory.status(&View::Branch(agent)).unwrap();
    assert_eq!((&status["log_entries"], &status["unread"]), (&3.into(), &3.into()));
    assert_eq!(status["records"], 0, "entries are no records of the branch");
    // The last batch is the newest entry of the store.
    let shown = |seq: u64| -> Value {
        let shown = memory.show(main, ShowTarget::Entry(seq), Viewer::UNRESTRICTED).unwrap();
        serde_json::from_str(&shown.line).unwrap()
    };
    let [batch, before] = [0, 1].map(|age| shown(memory.last_seq() - age));
    assert_eq!([&batch["op"], &before["op"]], ["append", "append"]);
    assert!(batch["head"].is_string() && batch["head"] != before["head"], "{batch}");
    let has_batch = |branch| memory.lineage_lines(branch, false).unwrap().iter().any(|line| line.contains("append"));
    assert!(!has_batch(main) && !has_batch(agent));
    drop(memory);
    verify(&disk).unwrap();
}

#[test]
fn what_a_user_repeats_adds_nothing_and_others_may_use_the_same_name() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let other = Actor { uid: 1002, gid: 1002, name: "bob".into() };
    let bobs = memory.fork(&other, main, "bob", None).unwrap();
    let event = r#"{"text":"once","event_id":"e"}"#;
    assert_eq!(append(&memory, main, &[event, event]), (1, 1));
    let before = lineage(&memory, main);
    assert_eq!(append(&memory, main, &[event]), (0, 1));
    assert_eq!(lineage(&memory, main), before);
    memory.seal().unwrap();
    assert_eq!(append(&memory, main, &[event, "new"]), (1, 1));
    assert_eq!(memory.append_log(&other, bobs, &[entry(event)]).unwrap().appended, 1);
    assert_eq!(texts(&memory, main), ["once", "new", "once"]);
    let refused = memory.append_log(&other, main, &[entry("through a branch of another")]).unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (Kind::Denied, "not_branch_owner"));
}

#[test]
fn lines_are_read_at_any_offset_whatever_was_sealed() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, mut chance) = (main_of(&memory), Chance(7));
    for round in 0..6 {
        for n in 0..chance.below(120) {
            append(&memory, main, &[&format!("{round} {n} {}", "ü".repeat(chance.below(300)))]);
        }
        if round % 2 == 0 {
            memory.seal().unwrap();
        }
        let log = memory.shared_log(main).unwrap();
        let whole = log.lines_after(0, u64::MAX).unwrap();
        let mut near = SharedLogPosition::default();
        for _ in 0..200 {
            let (offset, size) = (chance.below(whole.len() + 10), chance.below(3000));
            let expected = whole.get(offset..whole.len().min(offset + size)).unwrap_or_default();
            assert!(log.read(offset as u64, size, &mut near).unwrap() == expected, "{size} bytes at {offset}");
        }
        let last = log.lines_after(log.entry_count().saturating_sub(3), 3).unwrap();
        assert!(whole.ends_with(&last));
    }
}

#[test]
fn a_cursor_moves_without_an_entry_and_goes_with_checkpoints_and_forks() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    append(&memory, main, &["1", "2", "3", "4"]);
    let a = memory.fork(&who(), main, "a", None).unwrap();
    let before = lineage(&memory, a);
    memory.move_cursor(&who(), a, 2).unwrap();
    assert_eq!((memory.cursor(a).unwrap(), memory.cursor(main).unwrap(), lineage(&memory, a)), (2, 0, before));
    assert_eq!(memory.move_cursor(&who(), a, 5).unwrap_err().code(), "beyond_the_log");
    memory.checkpoint(&who(), a, "two", None).unwrap();
    memory.commit_with(&who(), a, vec![put("work", None, Some("done"))], &read_up_to(4)).unwrap();
    assert_eq!(memory.cursor(a).unwrap(), 4);
    let b = memory.fork(&who(), a, "b", None).unwrap();
    let c = memory.fork(&who(), a, "c", Some("two")).unwrap();
    assert_eq!((memory.cursor(b).unwrap(), memory.cursor(c).unwrap()), (4, 2));
    memory.rollback(&who(), a, "two").unwrap();
    assert_eq!(memory.cursor(a).unwrap(), 2, "a rollback to a checkpoint takes the cursor along");
    let many = (0..1_100).map(|n| put(&format!("m{n}"), None, Some("many"))).collect::<Vec<RecordEdit>>();
    assert!(memory.commit_with(&who(), c, many.clone(), &read_up_to(99)).is_err());
    memory.commit_with(&who(), c, many, &read_up_to(1)).unwrap();
    assert_eq!((memory.cursor(c).unwrap(), memory.snapshot(&View::Branch(c)).unwrap().count()), (1, 1_100));
    memory.move_cursor(&who(), c, 2).unwrap();
    // Work and cursor count together or not at all.
    assert!(memory.commit_with(&who(), b, vec![put("w", None, Some("x"))], &read_up_to(99)).is_err());
    assert!(memory.snapshot(&View::Branch(b)).unwrap().get("w").unwrap().is_none());
    memory.commit_with(&who(), b, Vec::<RecordEdit>::new(), &read_up_to(3)).unwrap();
    for seal in [false, true] {
        if seal {
            memory.seal().unwrap();
        }
        memory.sync().unwrap();
        let disk = disk.power_cut_keep_nothing();
        let memory = open(&disk).unwrap();
        let cursors = ["main", "main/a", "main/a/b", "main/a/c"].map(|path| memory.resolve(path).unwrap());
        assert_eq!(cursors.map(|branch| memory.cursor(branch).unwrap()), [0, 2, 3, 2], "{seal}");
        drop(memory);
        verify(&disk).unwrap();
    }
}

#[test]
fn a_case_has_a_log_of_its_own_that_stays_readable_when_it_is_closed() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    append(&memory, main, &["of the house"]);
    let case = memory.fork(&who(), main, "case-42", None).unwrap();
    memory.set(&who(), case, Setting::Log, "own").unwrap();
    let sub = memory.fork(&who(), case, "sub", None).unwrap();
    assert_eq!(memory.set(&who(), case, Setting::Log, "inherit").unwrap_err().code(), "log_in_use");
    append(&memory, sub, &["a clue about the ledger", "another"]);
    append(&memory, case, &["closed"]);
    assert_eq!((texts(&memory, main).len(), texts(&memory, sub).len()), (1, 3));
    assert_eq!(memory.cursor(sub).unwrap(), 0);
    memory.merge(&who(), sub, MergeVerb::Merge, false).unwrap();
    memory.merge(&who(), case, MergeVerb::Merge, false).unwrap();
    for reopened in [false, true] {
        let memory = if reopened {
            memory.seal().unwrap();
            open(&disk.power_cut_keep_nothing()).unwrap()
        } else {
            memory.clone()
        };
        let main = main_of(&memory);
        let closed = memory.closed_logs(main).unwrap();
        assert!(closed.len() == 1 && closed[0].starts_with("case-42@"), "{closed:?}");
        let log = memory.closed_log(main, &closed[0]).unwrap();
        assert_eq!(log.entry_count(), 3);
        assert_eq!(hits(&memory, main, "ledger"), []);
        for name in ["case-42", &closed[0]] {
            let found = hits(&memory, main, &format!(r#"{{"text":"ledger","scope":["branch","log:{name}"]}}"#));
            assert_eq!(found, [(Some(1), String::new(), format!("log:{name}"))]);
        }
    }
    assert_eq!(memory.set(&who(), main, Setting::Log, "inherit").unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn the_events_of_a_log_take_no_memory_once_its_branch_has_ended() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    // Makes events of main, too, which hears of the merge later.
    append(&memory, main, &["of the house"]);
    let before = memory.budget().held_bytes();
    for merges in [false, true] {
        let case = memory.fork(&who(), main, "case", None).unwrap();
        memory.set(&who(), case, Setting::Log, "own").unwrap();
        append(&memory, case, &["a clue"]);
        assert!(memory.budget().held_bytes() > before, "its owner's share has them");
        match merges {
            true => drop(memory.merge(&who(), case, MergeVerb::Merge, false).unwrap()),
            false => memory.discard(&who(), case).unwrap(),
        }
        assert_eq!(memory.budget().held_bytes(), before, "merged: {merges}");
    }
}

#[test]
fn a_root_branch_with_entries_that_nobody_archived_stays() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let notes = memory.create_root(&who(), "notes").unwrap();
    append(&memory, notes, &["one", "two"]);
    let refused = memory.discard(&who(), notes).unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (Kind::NotEmpty, "log_not_archived"));
    memory.archive_log(&who(), notes, 3).unwrap();
    memory.discard(&who(), notes).unwrap();
    assert_eq!(memory.root("notes"), None);
}

#[test]
fn a_root_branch_into_which_a_log_was_closed_can_go() {
    for merges in [false, true] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let notes = memory.create_root(&who(), "notes").unwrap();
        let case = memory.fork(&who(), notes, "case", None).unwrap();
        memory.set(&who(), case, Setting::Log, "own").unwrap();
        append(&memory, case, &["a clue"]);
        match merges {
            true => drop(memory.merge(&who(), case, MergeVerb::Merge, false).unwrap()),
            false => memory.discard(&who(), case).unwrap(),
        }
        append(&memory, notes, &["of the house"]);
        assert_eq!(memory.closed_logs(notes).unwrap().len(), 1, "merged: {merges}");
        let refused = memory.discard(&who(), notes).unwrap_err();
        assert_eq!(refused.to_string(), "the shared log of notes has entries that were not archived: 1");
        memory.archive_log(&who(), notes, 2).unwrap();
        memory.discard(&who(), notes).unwrap();
        memory.sync().unwrap();
        let cut = disk.power_cut_keep_nothing();
        assert_eq!(open(&cut).unwrap().root("notes"), None, "merged: {merges}");
        verify(&cut).unwrap();
    }
}

#[test]
fn archived_entries_stay_in_the_files_and_out_of_default_queries() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    append(&memory, main, &["the red door", "the red gate", "the red key"]);
    memory.seal().unwrap();
    assert_eq!(hits(&memory, main, "red").len(), 3);
    assert_eq!(memory.archive_log(&who(), main, 9).unwrap_err().code(), "beyond_the_log");
    memory.archive_log(&who(), main, 3).unwrap();
    append(&memory, main, &["the red roof"]);
    let all = r#"{"text":"red","scope":["log"]}"#;
    for cut in [None, Some(false), Some(true)] {
        let memory = match cut {
            None => memory.clone(),
            Some(seal) => {
                if seal {
                    memory.seal().unwrap();
                }
                memory.sync().unwrap();
                open(&disk.power_cut_keep_nothing()).unwrap()
            }
        };
        let main = main_of(&memory);
        let mut live: Vec<u64> = hits(&memory, main, "red").iter().filter_map(|hit| hit.0).collect();
        live.sort_unstable();
        assert_eq!((live, hits(&memory, main, all).len()), (vec![3, 4], 4), "{cut:?}");
        assert_eq!(texts(&memory, main).len(), 4);
        let status = memory.status(&View::Branch(main)).unwrap();
        let log = memory.shared_log(main).unwrap();
        let live_bytes = log.lines_after(2, 2).unwrap().len();
        assert_eq!(status["log_bytes"], live_bytes);
    }
    let child = memory.fork(&who(), main, "child", None).unwrap();
    assert_eq!(memory.archive_log(&who(), child, 2).unwrap_err().code(), "not_own_log");
}

#[test]
fn a_text_of_a_checkpoint_is_an_entry_of_the_same_commit() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    memory.checkpoint(&who(), main, "v1", Some("before the migration")).unwrap();
    memory.checkpoint(&who(), main, "v2", None).unwrap();
    assert_eq!(texts(&memory, main), ["before the migration"]);
    assert_eq!(memory.checkpoint(&who(), main, "v1", Some("again")).unwrap_err().kind(), Kind::Exists);
    assert_eq!(texts(&memory, main).len(), 1);
    memory.sync().unwrap();
    let cut = disk.power_cut_keep_nothing();
    assert_eq!(texts(&open(&cut).unwrap(), main), ["before the migration"]);
    verify(&cut).unwrap();
}

#[test]
fn who_follows_the_events_hears_of_a_checkpoint_with_a_text() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.checkpoint(&who(), child, "v1", Some("before the migration")).unwrap();
    memory.checkpoint(&who(), child, "v2", None).unwrap();
    let start = memory.shared_events(main).unwrap().start;
    let events = String::from_utf8(memory.read_shared_events(main, start, 1 << 16).unwrap()).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((&events[0]["event"], &events[0]["branch"]), (&Value::from("log"), &Value::from("main/child")));
    assert_eq!((&events[0]["entry_id"], &events[0]["text"]), (&Value::from(1), &Value::from("before the migration")));
}

#[test]
fn the_log_is_ranked_with_the_records_as_one() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let filler = (0..1_990).map(|n| put(&format!("r{n}"), None, Some(&format!("number {n} of many about nothing"))));
    let right = (0..10).map(|n| put(&format!("right{n}"), None, Some(&format!("solar panel inverter {n}"))));
    memory.commit(&who(), main, filler.chain(right).collect()).unwrap();
    let earlier = memory.last_seq();
    let weak: Vec<String> =
        (0..40).map(|n| if n < 3 { format!("the panel met {n}") } else { format!("entry {n}") }).collect();
    append(&memory, main, &weak.iter().map(String::as_str).collect::<Vec<_>>());
    let found = hits(&memory, main, "solar panel inverter");
    assert!(found.iter().all(|(entry, id, _)| entry.is_none() && id.starts_with("right")), "{found:?}");
    let more = hits(&memory, main, r#"{"text":"solar panel inverter","k":20}"#);
    assert_eq!(more.iter().filter(|(entry, ..)| entry.is_some()).count(), 3);
    memory.checkpoint(&who(), main, "v1", None).unwrap();
    let query = Query::parse(r#"{"text":"solar panel inverter","k":20}"#).unwrap();
    let of_checkpoint = memory.query(&View::Checkpoint(main, "v1".into()), &query).unwrap();
    assert!(of_checkpoint.hits.len() == 10 && of_checkpoint.hits.iter().all(|hit| hit.entry_id.is_none()));
    memory.commit(&who(), main, vec![put("later", None, Some("something else"))]).unwrap();
    let of_earlier = hits(&memory, main, &format!(r#"{{"text":"solar panel inverter","k":20,"at":"{earlier}"}}"#));
    assert!(of_earlier.len() == 10 && of_earlier.iter().all(|(entry, ..)| entry.is_none()), "{of_earlier:?}");
    let vector = r#"{"vector":[1,2],"mode":"vector"}"#;
    assert_eq!(hits(&memory, main, vector), [], "in mode vector only what has a vector is a hit");
    append(&memory, main, &[r#"{"text":"with numbers","vector":[1,2]}"#]);
    assert_eq!(hits(&memory, main, vector), [(Some(41), String::new(), "log".to_owned())]);
}

/// Random work on logs and cursors, with seals, crashes and reopenings, against a plain model.
#[test]
fn no_acknowledged_entry_is_lost_or_doubled() {
    for seed in 0..rounds(6) as u64 {
        one_history(seed);
    }
}

#[derive(Clone, Default)]
struct Model {
    entries: Vec<String>,
    events: BTreeSet<usize>,
    cursors: BTreeMap<String, u64>,
}

fn one_history(seed: u64) {
    let (mut chance, mut disk) = (Chance(seed + 1), ForgetfulDisk::new());
    let mut memory: Arc<Memory> = open(&disk).unwrap();
    let mut model = Model::default();
    model.cursors.insert("main".into(), 0);
    for step in 0..120 {
        let paths: Vec<String> = model.cursors.keys().cloned().collect();
        let path = paths[chance.below(paths.len())].clone();
        let branch = memory.resolve(&path).unwrap();
        match chance.below(10) {
            0..=4 => {
                let mut batch = Vec::new();
                for n in 0..=chance.below(4) {
                    let (text, event) = (format!("{step}.{n}"), chance.below(40));
                    if event < 20 {
                        batch.push(entry(&format!(r#"{{"text":"{text}","event_id":{event}}}"#)));
                        if !model.events.insert(event) {
                            continue;
                        }
                    } else {
                        batch.push(entry(&text));
                    }
                    model.entries.push(text);
                }
                memory.append_log(&who(), branch, &batch).unwrap();
            }
            5 => {
                let entry = chance.below(model.entries.len() + 1) as u64;
                memory.move_cursor(&who(), branch, entry).unwrap();
                model.cursors.insert(path, entry);
            }
            6 if paths.len() < 6 => {
                let name = format!("b{step}");
                memory.fork(&who(), branch, &name, None).unwrap();
                model.cursors.insert(format!("{path}/{name}"), model.cursors[&path]);
            }
            7 => memory.seal().unwrap(),
            8 => drop(memory.gc(&who(), None, false).unwrap()),
            _ => {
                memory.sync().unwrap();
                drop(memory);
                disk = disk.power_cut_keep_nothing();
                memory = open(&disk).unwrap();
            }
        }
        if step % 20 == 19 {
            assert_eq!(texts(&memory, main_of(&memory)), model.entries, "seed {seed}, step {step}");
            for (path, cursor) in &model.cursors {
                assert_eq!(memory.cursor(memory.resolve(path).unwrap()).unwrap(), *cursor, "seed {seed}, {path}");
            }
        }
    }
    drop(memory);
    verify(&disk).unwrap();
}

#[test]
fn a_page_asks_for_a_long_log_to_be_archived() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let page = || String::from_utf8(memory.document(&View::Branch(main), Document::Readme).unwrap().to_vec()).unwrap();
    assert!(!page().contains("archive-log") && page().len() <= 2_400);
    let long = "x".repeat(60_000);
    (0..18).for_each(|_| assert_eq!(append(&memory, main, &[&long]), (1, 0)));
    assert!(page().contains("archive-log") && page().len() <= 2_400, "{}", page());
    memory.archive_log(&who(), main, 18).unwrap();
    assert!(!page().contains("archive-log"));
}

#[test]
fn an_entry_or_time_leaves_the_cursor_also_where_it_is_a_checkpoint() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    append(&memory, main, &["1", "2", "3"]);
    memory.move_cursor(&who(), main, 1).unwrap();
    memory.checkpoint(&who(), main, "one", None).unwrap();
    let taken: Value = serde_json::from_str(memory.lineage_lines(main, false).unwrap().last().unwrap()).unwrap();
    memory.move_cursor(&who(), main, 2).unwrap();
    for name in [taken["seq"].to_string(), taken["time"].as_str().unwrap().to_owned()] {
        memory.commit(&who(), main, vec![put("work", None, Some("done"))]).unwrap();
        memory.rollback(&who(), main, &name).unwrap();
        assert_eq!((memory.cursor(main).unwrap(), memory.snapshot(&View::Branch(main)).unwrap().count()), (2, 0));
    }
    let fork = memory.fork(&who(), main, "fork", Some(&taken["seq"].to_string())).unwrap();
    memory.sync().unwrap();
    let again = open(&disk.power_cut_keep_nothing()).unwrap();
    assert_eq!([main, fork].map(|branch| again.cursor(branch).unwrap()), [2, 2], "replayed");
    memory.rollback(&who(), main, "one").unwrap();
    assert_eq!(memory.cursor(main).unwrap(), 1, "the label means the checkpoint");
}

#[test]
fn a_rollback_to_an_entry_leaves_the_cursor_and_another_log_begins_at_0() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    append(&memory, main, &["1", "2", "3"]);
    let a = memory.fork(&who(), main, "a", None).unwrap();
    memory.move_cursor(&who(), a, 1).unwrap();
    memory.commit(&who(), a, vec![put("work", None, Some("done"))]).unwrap();
    let newest: Value = serde_json::from_str(memory.lineage_lines(a, false).unwrap().last().unwrap()).unwrap();
    let entry = newest["seq"].to_string();
    memory.move_cursor(&who(), a, 2).unwrap();
    memory.commit(&who(), a, vec![put("work", None, Some("done again"))]).unwrap();
    memory.rollback(&who(), a, &entry).unwrap();
    assert_eq!(memory.cursor(a).unwrap(), 2);
    memory.set(&who(), a, Setting::Log, "own").unwrap();
    assert_eq!(memory.cursor(a).unwrap(), 0, "of the log that it has now");
    append(&memory, a, &["of its own"]);
    assert_eq!(memory.set(&who(), a, Setting::Log, "inherit").unwrap_err().code(), "log_in_use", "it has entries");
}
