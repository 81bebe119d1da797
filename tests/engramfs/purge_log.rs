//! Purges of entries of shared logs: the text goes, and the log stays whole.

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Actor, BranchId, Kind, Memory, MergeVerb, PurgeOptions, Setting, SharedLogEntryInput, SignalId,
};
use serde_json::{Value, json};

use crate::support::{Chance, holding, main_of, open, put, rounds, verify, who};

const NEEDLE: &str = "hunter2-correct-horse";
const WITH_COPIES: PurgeOptions = PurgeOptions { with_copies: true, dry_run: false };

fn append(memory: &Memory, branch: BranchId, lines: &[&str]) {
    let entries: Vec<_> = lines.iter().map(|line| SharedLogEntryInput::parse(line).unwrap()).collect();
    memory.append_log(&who(), branch, &entries).unwrap();
}

fn purge(memory: &Memory, branch: BranchId, item: &str, options: PurgeOptions) -> Value {
    memory.purge(&who(), branch, &[item.to_owned()], options).unwrap()
}

/// The lines of a log, as text.
fn lines(memory: &Memory, branch: BranchId) -> Vec<Value> {
    let log = memory.shared_log(branch).unwrap();
    let all = log.lines_after(0, u64::MAX).unwrap();
    assert_eq!(all.len() as u64, log.bytes(), "offsets stay");
    String::from_utf8(all).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn texts(memory: &Memory, branch: BranchId) -> Vec<String> {
    lines(memory, branch).iter().map(|line| line["text"].as_str().unwrap().trim_end().to_owned()).collect()
}

#[test]
fn the_log_of_a_branch_that_is_given_away_is_its_new_owners_to_purge() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let [ann, bob] = [1001, 1002].map(|uid| Actor { uid, gid: uid, name: format!("user {uid}").into() });
    let case = memory.fork(&ann, main_of(&memory), "case", None).unwrap();
    memory.set(&ann, case, Setting::Log, "own").unwrap();
    let entries = ["an entry", "two"].map(|line| SharedLogEntryInput::parse(line).unwrap());
    memory.append_log(&ann, case, &entries).unwrap();
    let inside = memory.fork(&ann, case, "inside", None).unwrap();
    memory.chown(&who(), case, bob.uid).unwrap();
    let purge = |who: &Actor, branch: BranchId| {
        memory.purge(who, branch, &["shared/log/1".into()], PurgeOptions::default()).map_err(|error| error.code())
    };
    assert_eq!(purge(&ann, inside).unwrap_err(), "not_owner");
    purge(&bob, case).unwrap();
    assert_eq!(texts(&memory, case), ["purged", "two"]);
}

#[test]
fn a_log_that_was_closed_is_the_owners_to_purge_whose_branch_has_it_now() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let [ann, bob] = [1001, 1002].map(|uid| Actor { uid, gid: uid, name: format!("user {uid}").into() });
    let project = memory.fork(&ann, main_of(&memory), "project", None).unwrap();
    memory.set(&ann, project, Setting::Log, "own").unwrap();
    let [case, other] = ["case", "other"].map(|name| memory.fork(&bob, project, name, None).unwrap());
    memory.set(&bob, case, Setting::Log, "own").unwrap();
    memory.append_log(&bob, case, &[SharedLogEntryInput::parse(NEEDLE).unwrap()]).unwrap();
    memory.merge(&who(), case, MergeVerb::Merge, false).unwrap();
    let closed = memory.closed_logs(project).unwrap().remove(0);
    let purge = |who: &Actor, branch: BranchId| {
        let name = format!("shared/log/closed/{closed}/1");
        memory.purge(who, branch, &[name], PurgeOptions::default()).map_err(|error| error.code())
    };
    assert_eq!(purge(&bob, other).unwrap_err(), "not_owner");
    purge(&ann, project).unwrap();
}

#[test]
fn a_purged_entry_of_a_log_leaves_who_wrote_it_and_when() {
    for seals in [false, true] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        let leak = format!(
            r#"{{"text":"it is {NEEDLE}","kind":"note","event_id":"e","vector":[1,2],"metadata":{{"k":"{NEEDLE}"}}}}"#
        );
        append(&memory, main, &["one", &leak, "three"]);
        let before = lines(&memory, main);
        if seals {
            memory.seal().unwrap();
        }
        append(&memory, main, &["four"]);
        assert!(!holding(&disk, NEEDLE).is_empty(), "a control");
        let events = memory.shared_events(main).unwrap();
        let report = purge(&memory, main, "shared/log/2", PurgeOptions::default());
        assert_eq!((&report["items"], &report["versions"]), (&json!(["shared/log/2"]), &json!(1)));
        assert_eq!(holding(&disk, NEEDLE), [""; 0]);
        let newest: Value = serde_json::from_str(memory.lineage_lines(main, false).unwrap().last().unwrap()).unwrap();
        assert_eq!((&newest["op"], &newest["entry"]), (&json!("purge"), &report["entry"]), "of who was asked");
        assert_eq!(report["branches"], json!(["main/shared"]), "what had it");
        assert_eq!(texts(&memory, main), ["one", "purged", "three", "four"]);
        let after = &lines(&memory, main)[1];
        for key in ["entry_id", "time", "agent", "session", "task", "branch", "uid", "kind", "event_id"] {
            assert_eq!(after[key], before[1][key], "{key}");
        }
        assert_eq!(after["metadata"], json!({}));
        let kept = memory.shared_events(main).unwrap();
        assert_eq!((kept.start, kept.end), (events.end, events.end), "events that show it go");
        let again = memory.append_log(&who(), main, &[SharedLogEntryInput::parse(&leak).unwrap()]).unwrap();
        assert_eq!((again.appended, again.repeated), (0, 1), "its event_id stays known");
        let error = memory.purge(&who(), main, &["shared/log/2".into()], PurgeOptions::default()).unwrap_err();
        assert_eq!(error.code(), "nothing_to_purge");
        append(&memory, main, &["five"]);
        verify(&disk).unwrap();
        let killed = open(&disk.power_cut_keep_all()).unwrap();
        assert_eq!(texts(&killed, main_of(&killed)), ["one", "purged", "three", "four", "five"]);
        memory.close().unwrap();
        verify(&disk).unwrap();
        assert_eq!(texts(&open(&disk).unwrap(), main), ["one", "purged", "three", "four", "five"]);
    }
}

/// Ids of records are no names of entries, though entries are stored as records.
#[test]
fn a_purged_record_takes_no_entry_of_a_log_with_it() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    append(&memory, main, &["one", "two"]);
    let id = "00000000000000000001";
    memory.seal().unwrap();
    let error = memory.purge(&who(), main, &[id.to_owned()], PurgeOptions::default()).unwrap_err();
    assert_eq!(error.code(), "nothing_to_purge", "an entry of the log, and no record, has that id");
    memory.commit(&who(), main, vec![put(id, None, Some("two"))]).unwrap();
    memory.seal().unwrap();
    let report = purge(&memory, main, id, PurgeOptions::default());
    assert_eq!((&report["items"], &report["copies"]), (&json!([id]), &json!(["shared/log/2"])));
    assert_eq!(texts(&memory, main), ["one", "two"]);
    memory.commit(&who(), main, vec![put("again", None, Some("two"))]).unwrap();
    let report = purge(&memory, main, "again", WITH_COPIES);
    assert_eq!(report["items"], json!(["again", "shared/log/2"]));
    assert_eq!(texts(&memory, main), ["one", "pur"], "as far as it fits");
    verify(&disk).unwrap();
}

#[test]
fn entries_of_archived_and_closed_logs_go_by_their_paths() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    append(&memory, main, &["one", NEEDLE, "three"]);
    memory.archive_log(&who(), main, 3).unwrap();
    let case = memory.fork(&who(), main, "case", None).unwrap();
    memory.set(&who(), case, Setting::Log, "own").unwrap();
    append(&memory, case, &["of the case", &format!("{NEEDLE} in the case")]);
    memory.merge(&who(), case, MergeVerb::Merge, false).unwrap();
    let closed = memory.closed_logs(main).unwrap().remove(0);
    let name = format!("shared/log/closed/{closed}/2");
    let report = purge(&memory, main, &name, PurgeOptions::default());
    assert_eq!(report["items"], json!([name]));
    let log = memory.closed_log(main, &closed).unwrap();
    let line = String::from_utf8(log.lines_after(1, 1).unwrap()).unwrap();
    assert!(line.contains("\"text\":\"purged"), "{line}");
    assert_eq!(texts(&memory, main)[1], NEEDLE);
    purge(&memory, main, "shared/log/2", PurgeOptions::default());
    assert_eq!((holding(&disk, NEEDLE), texts(&memory, main)[1].as_str()), (vec![], "purged"));
    for wrong in ["shared/log/0", "shared/log/two", "shared/log/closed/2", "shared/signals/"] {
        let error = memory.purge(&who(), main, &[wrong.into()], PurgeOptions::default()).unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Invalid, "bad_item"), "{wrong}");
    }
    let missing = ["shared/log/9", "shared/log/closed/none/1"].map(String::from);
    let error = memory.purge(&who(), main, &missing, PurgeOptions::default()).unwrap_err();
    assert_eq!(error.code(), "nothing_to_purge");
    verify(&disk).unwrap();
}

#[test]
fn a_purged_signal_is_gone_with_all_values_that_it_had() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let key = "key".into();
    let signal = memory.claim_signal(&who(), main, &key, 0o644).unwrap();
    memory.write_signal(&who(), main, SignalId { key: &key, created: signal.created }, NEEDLE.as_bytes()).unwrap();
    memory.seal().unwrap();
    assert!(!holding(&disk, NEEDLE).is_empty(), "a control");
    memory.write_signal(&who(), main, SignalId { key: &key, created: signal.created }, b"replaced").unwrap();
    memory.seal().unwrap();
    let item = "shared/signals/key";
    let would =
        memory.purge(&who(), main, &[item.to_owned()], PurgeOptions { dry_run: true, with_copies: false }).unwrap();
    assert_eq!((&would["items"], memory.signals(main).unwrap().len()), (&json!([item]), 1));
    let other = Actor { uid: 1001, ..who() };
    memory.purge(&other, main, &[item.to_owned()], PurgeOptions::default()).unwrap_err();
    let names = [item, "shared/signals/none", "nothing"].map(String::from);
    let report = memory.purge(&who(), main, &names, PurgeOptions::default()).unwrap();
    assert_eq!((&report["items"], &report["entry"]), (&json!([item]), &Value::Null));
    assert_eq!(report["not_found"], json!(["nothing", "shared/signals/none"]));
    assert_eq!((holding(&disk, NEEDLE), memory.signals(main).unwrap().len()), (vec![], 0));
    let error = memory.purge(&who(), main, &[item.to_owned()], PurgeOptions::default()).unwrap_err();
    assert_eq!(error.code(), "nothing_to_purge");
    verify(&disk).unwrap();
}

/// Purges among appends, seals and crashes, against a list.
#[test]
fn purges_of_entries_in_random_histories_leave_the_other_lines_as_they_were() {
    for seed in 0..rounds(20) as u64 {
        let (disk, mut chance) = (ForgetfulDisk::new(), Chance(seed));
        let mut memory = open(&disk).unwrap();
        let mut model: Vec<String> = Vec::new();
        for step in 0..60 {
            let main = main_of(&memory);
            match chance.below(8) {
                0..=3 => {
                    let text = format!("entry of step {step}{}", "x".repeat(chance.below(300)));
                    append(&memory, main, &[&text, "and one more"]);
                    model.extend([text, "and one more".to_owned()]);
                }
                4 => memory.seal().unwrap(),
                5 => memory = open(&disk.power_cut_keep_all()).map(|_| open(&disk).unwrap()).unwrap(),
                6 => drop(memory.gc(&who(), None, false).unwrap()),
                _ if !model.is_empty() => {
                    let entry = 1 + chance.below(model.len());
                    let done = memory.purge(&who(), main, &[format!("shared/log/{entry}")], PurgeOptions::default());
                    assert_eq!(done.is_err(), model[entry - 1] == "purged", "seed {seed}, step {step}");
                    model[entry - 1] = "purged".to_owned();
                    verify(&disk).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                }
                _ => {}
            }
            let found = texts(&memory, main_of(&memory));
            let other = found.iter().zip(&model).find(|(found, model)| found != model);
            assert_eq!((other, found.len()), (None, model.len()), "seed {seed}, step {step}");
        }
    }
}
