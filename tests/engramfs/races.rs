//! What was decided without the writer's lock is decided again under it: others act at every moment in between.
//!
//! The store asks its clock on the way. There another thread does something, if nobody holds the lock just then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Actor, BranchId, EditError, Environment, Error, FILES_ROOT, FileName, FileOp, Kind, Memory, NewInode, OpenMode,
    RecordEdit, Setting, Time, View,
};
use engramfs::sync::without_waiting;

use crate::support::{environment, main_of, put, texts, who};

type Act = Box<dyn Fn(&Memory) -> Result<(), Error> + Send>;

/// What is done at which look at the clock, counted down.
#[derive(Default)]
struct Meanwhile {
    store: Option<Arc<Memory>>,
    act: Option<(usize, Act)>,
    /// It was done.
    done: bool,
}

fn open() -> (Arc<Memory>, Arc<Mutex<Meanwhile>>) {
    let meanwhile = Arc::new(Mutex::new(Meanwhile::default()));
    let (seen, usual) = (meanwhile.clone(), environment().clock);
    let clock = move || {
        look(&seen);
        usual()
    };
    let around = Environment { clock: Box::new(clock), ..environment() };
    let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
    meanwhile.lock().unwrap().store = Some(memory.clone());
    (memory, meanwhile)
}

fn look(meanwhile: &Mutex<Meanwhile>) {
    let due = {
        let mut meanwhile = meanwhile.lock().unwrap();
        if let Some((count, _)) = &mut meanwhile.act {
            *count = count.saturating_sub(1);
        }
        let due = meanwhile.act.take_if(|(count, _)| *count == 0);
        due.map(|(_, act)| (act, meanwhile.store.clone().unwrap()))
    };
    if let Some((act, memory)) = due {
        let done = std::thread::spawn(move || without_waiting(|| act(&memory)).is_ok()).join().unwrap();
        meanwhile.lock().unwrap().done = done;
    }
}

/// Lets something happen at the `nth` look at the clock.
fn plan(meanwhile: &Mutex<Meanwhile>, nth: usize, act: Act) {
    let mut meanwhile = meanwhile.lock().unwrap();
    (meanwhile.act, meanwhile.done) = (Some((nth, act)), false);
}

/// Returns whether it happened.
fn happened(meanwhile: &Mutex<Meanwhile>) -> bool {
    let mut meanwhile = meanwhile.lock().unwrap();
    meanwhile.act = None;
    meanwhile.done
}

fn create(memory: &Memory, who: &Actor, branch: BranchId, name: &str) -> Result<u64, EditError> {
    let name = FileName::new(name.as_bytes()).unwrap();
    let op = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o666, uid: who.uid, gid: who.gid };
    Ok(memory.edit(who, branch, op)?.inode)
}

fn is_there(memory: &Memory, branch: BranchId, name: &str) -> bool {
    memory.files(&View::Branch(branch)).unwrap().lookup(FILES_ROOT, name.as_bytes()).is_ok()
}

#[test]
fn a_rule_that_is_set_while_an_operation_is_under_way_binds_it() {
    let mut bound = 0;
    for (nth, before) in (1..6).flat_map(|nth| [(nth, ""), (nth, "other text write=uid:7")]) {
        let (memory, meanwhile) = open();
        let (main, bob) = (main_of(&memory), Actor { uid: 1001, ..who() });
        memory.set(&who(), main, Setting::Rules, before).unwrap();
        create(&memory, &bob, main, "first").unwrap();
        let rule = move |memory: &Memory| {
            assert!(!is_there(memory, main, "file"));
            memory.set(&who(), main, Setting::Rules, "** text write=uid:1000")
        };
        plan(&meanwhile, nth, Box::new(rule));
        let made = create(&memory, &bob, main, "file");
        if happened(&meanwhile) {
            bound += 1;
            assert!(matches!(made, Err(EditError::Refused(error)) if error.kind() == Kind::Denied), "look {nth}");
            assert!(!is_there(&memory, main, "file"));
        }
    }
    assert!(bound > 0, "the rule is set in between");
}

#[test]
fn a_file_whose_lifetime_is_taken_away_while_a_collection_looks_stays() {
    static NOW: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(1_700_000_000_000_000_000);
    let mut kept = 0;
    for nth in 1..12 {
        let meanwhile = Arc::new(Mutex::new(Meanwhile::default()));
        let seen = meanwhile.clone();
        let clock = move || {
            look(&seen);
            Time(NOW.fetch_add(1_000, std::sync::atomic::Ordering::Relaxed))
        };
        let around = Environment { clock: Box::new(clock), ..environment() };
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
        meanwhile.lock().unwrap().store = Some(memory.clone());
        let main = main_of(&memory);
        memory.set(&who(), main, Setting::Rules, "** text ttl=1h").unwrap();
        create(&memory, &who(), main, "file").unwrap();
        NOW.fetch_add(7_200_000_000_000, std::sync::atomic::Ordering::Relaxed);
        let there = Arc::new(Mutex::new(false));
        let seen = there.clone();
        let rule = move |memory: &Memory| {
            memory.set(&who(), main, Setting::Rules, "")?;
            *seen.lock().unwrap() = is_there(memory, main, "file");
            Ok(())
        };
        plan(&meanwhile, nth, Box::new(rule));
        memory.gc(&who(), None, false).unwrap();
        if happened(&meanwhile) && *there.lock().unwrap() {
            kept += 1;
            assert!(is_there(&memory, main, "file"), "look {nth}");
        }
    }
    assert!(kept > 1, "the rule goes in between");
}

#[test]
fn two_bulk_commits_fix_one_dimension() {
    let rows =
        |dim: usize| (0..1024).map(|row| put(&format!("r{row}"), Some(vec![1.0; dim]), None)).collect::<Vec<_>>();
    let mut refused = 0;
    for nth in 1..8 {
        let (memory, meanwhile) = open();
        let main = main_of(&memory);
        let [one, other] = ["one", "other"].map(|name| memory.fork(&who(), main, name, None).unwrap());
        let edits = rows(3);
        plan(&meanwhile, nth, Box::new(move |memory| memory.commit(&who(), other, edits.clone()).map(drop)));
        let done = memory.commit(&who(), one, rows(2));
        if happened(&meanwhile) {
            refused += 1;
            assert_eq!(done.unwrap_err().code(), "wrong_dimension", "look {nth}");
        }
    }
    assert!(refused > 1, "the other one comes first");
}

/// A line of `ingest`.
fn line(text: &str) -> RecordEdit {
    RecordEdit::parse_line(text.as_bytes(), 1, &|| "fresh".into()).unwrap().unwrap()
}

fn document(memory: &Memory, branch: BranchId, id: &str) -> serde_json::Value {
    let record = memory.snapshot(&View::Branch(branch)).unwrap().get(id).unwrap().unwrap();
    serde_json::from_slice(&record.to_document()).unwrap()
}

#[test]
fn two_who_correct_different_keys_of_one_record_both_count() {
    // Commits of few edits, and of more than are worked out again under the lock.
    for more in [0, 100] {
        let (memory, _) = open();
        let main = main_of(&memory);
        memory.commit(&who(), main, vec![line(r#"{"id":"x","vector":[1,2],"text":"old"}"#)]).unwrap();
        let correct = |key: &str| {
            for n in 0..150 {
                let others = (0..more).map(|row| line(&format!(r#"{{"id":"{key}{row}","text":"beside {n}"}}"#)));
                let value = if key == "text" { format!("\"text {n}\"") } else { format!("{{\"n\":{n}}}") };
                let edit = line(&format!(r#"{{"id":"x","{key}":{value}}}"#));
                memory.commit(&who(), main, others.chain([edit]).collect()).unwrap();
                if n % 40 == 0 {
                    memory.seal().unwrap();
                }
                // What was written here is there, whatever the other one did in between.
                assert_eq!(
                    document(&memory, main, "x")[key],
                    serde_json::from_str::<serde_json::Value>(&value).unwrap()
                );
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| correct("text"));
            scope.spawn(|| correct("metadata"));
        });
        let after = document(&memory, main, "x");
        assert!(after["text"] == "text 149" && after["metadata"]["n"] == 149 && after["vector"][1] == 2.0, "{after}");
    }
}

#[test]
fn a_bulk_commit_corrects_what_others_left_at_its_moment() {
    let mut between = 0;
    for (nth, seals) in (1..10).flat_map(|nth| [(nth, false), (nth, true)]) {
        let (memory, meanwhile) = open();
        let main = main_of(&memory);
        let old = (0..1100).map(|row| put(&format!("r{row}"), Some(vec![1.0, 2.0]), Some("old")));
        memory.commit(&who(), main, old.collect()).unwrap();
        if seals {
            memory.seal().unwrap();
        }
        let other = |memory: &Memory| {
            let main = main_of(memory);
            let vector = if document(memory, main, "r5")["text"] == "old" { "[3,4]" } else { "[5,6]" };
            let edit = line(&format!(r#"{{"id":"r5","vector":{vector},"metadata":{{"k":2}}}}"#));
            memory.commit(&who(), main, vec![edit]).map(drop)
        };
        plan(&meanwhile, nth, Box::new(other));
        let corrections = (0..1100).map(|row| line(&format!(r#"{{"id":"r{row}","text":"new"}}"#)));
        let receipt = memory.commit(&who(), main, corrections.collect()).unwrap();
        assert_eq!(receipt.put, 1100);
        if happened(&meanwhile) {
            let after = document(&memory, main, "r5");
            let first = after["vector"][0] == 3.0;
            between += usize::from(first);
            assert!(after["text"] == "new" && after["metadata"]["k"] == 2, "look {nth}: {after}");
            // Whoever came second left the vector, or changed it.
            assert_eq!(after["vector_stale"] == true, first, "look {nth}: {after}");
        }
    }
    assert!(between > 0, "the other one comes in between");
}

#[test]
fn a_bulk_commit_keeps_what_others_wrote_beside_its_records_meanwhile() {
    let mut between = 0;
    for nth in 1..10 {
        let (memory, meanwhile) = open();
        let main = main_of(&memory);
        // Ids before, among and behind those of the commit, and one that it writes, too.
        let other = |memory: &Memory| {
            let edits = ["a", "r5x", "z", "r7"].map(|id| put(id, None, Some("of the other")));
            memory.commit(&who(), main_of(memory), edits.into()).map(drop)
        };
        plan(&meanwhile, nth, Box::new(other));
        let rows = (0..1024).map(|row| put(&format!("r{row}"), None, Some("new")));
        let receipt = memory.commit(&who(), main, rows.collect()).unwrap();
        if happened(&meanwhile) {
            let found: BTreeMap<String, String> = texts(&memory, &View::Branch(main)).into_iter().collect();
            let text = |id: &str| found.get(id).map(String::as_str);
            assert_eq!(["a", "r5x", "z"].map(text), [Some("of the other"); 3], "look {nth}");
            let came_last = receipt.head == memory.snapshot(&View::Branch(main)).unwrap().head();
            between += usize::from(came_last);
            assert_eq!(text("r7"), Some(if came_last { "new" } else { "of the other" }), "look {nth}");
            assert_eq!(found.len(), 1024 + 3, "look {nth}");
        }
    }
    assert!(between > 0, "the other one comes in between");
}

#[test]
fn a_record_is_deleted_as_the_version_that_was_read_only() {
    let (memory, _) = open();
    let main = main_of(&memory);
    let read = || memory.snapshot(&View::Branch(main)).unwrap().get("x").unwrap().unwrap();
    memory.commit(&who(), main, vec![put("x", None, Some("old"))]).unwrap();
    let old = read();
    memory.commit(&who(), main, vec![put("x", None, Some("newer"))]).unwrap();
    let tip = memory.tip();
    assert!(!memory.delete_version(&who(), main, &old).unwrap());
    // The same content, written again, is another version.
    memory.commit(&who(), main, vec![put("x", None, Some("old"))]).unwrap();
    assert!(!memory.delete_version(&who(), main, &old).unwrap() && memory.tip() != tip);
    let newest = read();
    memory.seal().unwrap();
    assert!(memory.delete_version(&who(), main, &newest).unwrap(), "it is the same where it was sealed");
    assert!(!memory.delete_version(&who(), main, &newest).unwrap(), "it is gone");
}
