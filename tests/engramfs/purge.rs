//! What leaked and must go: from every state, and every byte of it from the disk.

use std::sync::Arc;

use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::memory::{
    Actor, BranchId, FILES_ROOT, FileName, FileOp, Kind, Memory, MergeVerb, OpenMode, PurgeOptions, RecordEdit,
    Setting, View,
};

use crate::files::{read, rename, write};
use crate::support::{Chance, delete, environment, holding, main_of, open, open_on, put, rounds, texts, verify, who};

const WITH_COPIES: PurgeOptions = PurgeOptions { with_copies: true, dry_run: false };
const NEEDLE: &str = "hunter2-correct-horse";

fn say(memory: &Memory, branch: BranchId, id: &str, text: &str) {
    memory.commit(&who(), branch, vec![put(id, Some(vec![1.0, 2.0]), Some(text))]).unwrap();
}

fn purge(memory: &Memory, items: &[&str]) -> serde_json::Value {
    let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
    memory.purge(&who(), main_of(memory), &items, WITH_COPIES).unwrap()
}

fn secret() -> String {
    format!("the password is {NEEDLE}")
}

/// A secret in every kind of state: present, base, checkpoint, proposal, kept, in forks, renamed, overwritten, sealed and not.
fn spread(memory: &Memory, seals: bool) -> [BranchId; 3] {
    let main = main_of(memory);
    let seal = || {
        if seals {
            memory.seal().unwrap()
        }
    };
    say(memory, main, "tea", "green");
    say(memory, main, "password", &secret());
    seal();
    memory.checkpoint(&who(), main, "before", None).unwrap();
    let child = memory.fork(&who(), main, "child", None).unwrap();
    let sibling = memory.fork(&who(), main, "sibling", None).unwrap();
    say(memory, child, "password", &format!("{NEEDLE}, proposed by the child"));
    memory.propose(&who(), child, "").unwrap();
    say(memory, child, "password", &format!("{NEEDLE}, changed by the child"));
    seal();
    let grandchild = memory.fork(&who(), child, "grandchild", None).unwrap();
    let rename = RecordEdit::Rename { from: "password".into(), to: "hidden".into() };
    memory.commit(&who(), sibling, vec![rename]).unwrap();
    say(memory, main, "password", &format!("{NEEDLE}, second"));
    memory.rollback(&who(), main, "before").unwrap();
    seal();
    say(memory, main, "coffee", "black");
    [child, sibling, grandchild]
}

#[test]
fn no_byte_of_a_purged_record_is_in_the_store_and_nothing_brings_it_back() {
    for seals in [false, true] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        let [child, sibling, grandchild] = spread(&memory, seals);
        assert!(!holding(&disk, NEEDLE).is_empty(), "a control");
        let report = purge(&memory, &["password"]);
        assert_eq!(holding(&disk, NEEDLE), [""; 0], "{report}");
        let (_, _, entry) = memory.proposals(main).unwrap().remove(0);
        assert!(texts(&memory, &View::Proposal(child, entry)).iter().all(|(id, _)| id != "password"));
        assert_eq!(report["items"], serde_json::json!(["hidden", "password"]));
        assert_eq!(report["not_found"], serde_json::json!([]));
        assert_eq!(report["branches"].as_array().unwrap().len(), 4);
        verify(&disk).unwrap();
        let ids = |branch| texts(&memory, &View::Branch(branch)).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(main), ["coffee", "tea"]);
        assert_eq!(ids(sibling), ["tea"]);
        assert_eq!(texts(&memory, &View::Checkpoint(main, "before".into())).len(), 1);
        memory.rollback(&who(), main, "before").unwrap();
        for branch in [grandchild, child, sibling] {
            let result = memory.merge(&who(), branch, MergeVerb::Merge, false).unwrap();
            assert!(result.conflicts.is_empty(), "{}", result.to_json());
        }
        assert_eq!(ids(main), ["tea"]);
        memory.close().unwrap();
        verify(&disk).unwrap();
        let memory = open(&disk).unwrap();
        assert_eq!((holding(&disk, NEEDLE), texts(&memory, &View::Branch(main)).len()), (vec![], 1));
        let line =
            memory.lineage_lines(main, false).unwrap().into_iter().find(|line| line.contains("\"purge\"")).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((line["uid"].as_u64(), line["text"].as_str()), (Some(1000), Some("password")));
        assert_eq!(line["counts"]["deleted"], report["versions"]);
        assert_eq!(line["purged"].as_array().unwrap().len() as u64, report["versions"].as_u64().unwrap());
    }
}

#[test]
fn what_was_deleted_or_overwritten_long_ago_goes_too() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    say(&memory, main, "password", &secret());
    say(&memory, main, "tea", "green");
    memory.seal().unwrap();
    say(&memory, main, "password", "changed");
    memory.seal().unwrap();
    memory.commit(&who(), main, vec![delete("password")]).unwrap();
    memory.seal().unwrap();
    assert!(!holding(&disk, NEEDLE).is_empty(), "a control");
    let report = purge(&memory, &["password", "pasword"]);
    assert_eq!(report["not_found"], serde_json::json!(["pasword"]));
    assert_eq!(holding(&disk, NEEDLE), [""; 0]);
    verify(&disk).unwrap();
    assert_eq!(texts(&memory, &View::Branch(main)).len(), 1);
}

/// What came and went between two seals is in no state and no segment.
#[test]
fn what_only_the_journal_and_packs_hold_goes_too() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, engramfs::memory::Setting::Keep, "0s").unwrap();
    write(&memory, main, "sealed", NEEDLE);
    write(&memory, main, "keep", "kept");
    memory.seal().unwrap();
    let unlink = |name: &str| {
        let name = FileName::new(name.as_bytes()).unwrap();
        memory.edit(&who(), main, FileOp::Unlink { parent: FILES_ROOT, name, keep: false }).unwrap();
    };
    unlink("sealed");
    memory.seal().unwrap();
    say(&memory, main, "password", &secret());
    memory.commit(&who(), main, vec![delete("password")]).unwrap();
    write(&memory, main, "short", NEEDLE);
    unlink("short");
    assert_eq!(holding(&disk, NEEDLE).len(), 2, "a control: the pack and the journal");
    let names = ["files/short", "files/sealed"].map(String::from);
    let dry_run = PurgeOptions { dry_run: true, ..PurgeOptions::default() };
    for options in [dry_run, PurgeOptions::default()] {
        let error = memory.purge(&who(), main, &names, options).unwrap_err();
        assert_eq!((error.code(), error.kind()), ("nothing_to_purge", Kind::NotFound));
        assert_eq!(holding(&disk, NEEDLE).is_empty(), !options.dry_run);
    }
    let lines = memory.lineage_lines(main, false).unwrap();
    assert!(lines.iter().all(|line| !line.contains("\"op\":\"purge\"")), "no entry says so");
    assert_eq!(read(&memory, main, "keep").as_deref(), Some("kept"));
    verify(&disk).unwrap();
}

#[test]
fn a_purge_takes_so_many_names_and_no_more() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    say(&memory, main, "n7", "text");
    let mut names: Vec<String> = (0..1000).map(|number| format!("n{number}")).collect();
    let before = memory.tip();
    names.push("one-more".to_owned());
    let error = memory.purge(&who(), main, &names, PurgeOptions::default()).unwrap_err();
    assert_eq!((error.code(), error.kind(), memory.tip()), ("too_many_names", Kind::TooLarge, before));
    names.pop();
    assert_eq!(
        memory.purge(&who(), main, &names, PurgeOptions::default()).unwrap()["items"],
        serde_json::json!(["n7"])
    );
}

/// Names are what is asked for: what only says the same stays, and is told.
#[test]
fn copies_stay_and_are_told_unless_they_are_asked_for() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, bob) = (main_of(&memory), Actor { uid: 1001, gid: 1001, name: "bob".into() });
    for id in ["password", "twin", "tea"] {
        say(&memory, main, id, if id == "tea" { "green" } else { NEEDLE });
    }
    write(&memory, main, "a.txt", NEEDLE);
    write(&memory, main, "b.txt", NEEDLE);
    let child = memory.fork(&bob, main, "child", None).unwrap();
    memory.commit(&bob, child, vec![put("bobs", Some(vec![1.0, 2.0]), Some(NEEDLE))]).unwrap();
    memory.checkpoint(&who(), main, "both", None).unwrap();
    let items = ["password".to_owned(), "files/a.txt".to_owned(), "nothing".to_owned()];
    let version = memory.last_seq();
    let dry = memory.purge(&who(), main, &items, PurgeOptions { dry_run: true, with_copies: false }).unwrap();
    assert_eq!((memory.last_seq(), dry["entry"].is_null()), (version, true));
    let report = memory.purge(&who(), main, &items, PurgeOptions::default()).unwrap();
    for report in [dry, report] {
        assert_eq!(report["items"], serde_json::json!(["files/a.txt", "password"]));
        assert_eq!(report["copies"], serde_json::json!(["bobs", "files/b.txt", "twin"]));
        assert_eq!(report["not_found"], serde_json::json!(["nothing"]));
        assert_eq!(report["branches"], serde_json::json!(["main", "main/child"]));
    }
    assert_eq!(read(&memory, main, "b.txt").as_deref(), Some(NEEDLE));
    assert_eq!(texts(&memory, &View::Checkpoint(main, "both".into())).len(), 2);
    let report = purge(&memory, &["twin", "files/b.txt"]);
    assert_eq!((report["copies"].as_array().unwrap().len(), holding(&disk, NEEDLE)), (0, vec![]));
    assert_eq!(texts(&memory, &View::Branch(child)).len(), 1);
    verify(&disk).unwrap();
}

#[test]
fn copies_in_branches_of_others_are_told_to_root_and_the_owner_of_main_alone() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let [root, bob, eve] =
        [(0, "root"), (1001, "bob"), (1002, "eve")].map(|(uid, name)| Actor { uid, gid: uid, name: name.into() });
    let [of_bob, of_eve] = [(&bob, "b"), (&eve, "e")].map(|(who, name)| memory.fork(who, main, name, None).unwrap());
    say(&memory, of_bob, "password", NEEDLE);
    say(&memory, of_bob, "twin", NEEDLE);
    say(&memory, of_eve, "eves", NEEDLE);
    for (caller, told) in [(&root, vec!["eves", "twin"]), (&who(), vec!["eves", "twin"]), (&bob, vec!["twin"])] {
        let dry_run = PurgeOptions { dry_run: true, with_copies: false };
        let report = memory.purge(caller, of_bob, &["password".to_owned()], dry_run).unwrap();
        assert_eq!(report["copies"], serde_json::json!(told), "uid {}", caller.uid);
    }
    let report = memory.purge(&bob, of_bob, &["password".to_owned()], PurgeOptions::default()).unwrap();
    assert_eq!(report["copies"], serde_json::json!(["twin"]));
}

/// The parent's strategy has its delete win over what the child writes, and a purge is none.
#[test]
fn what_is_written_under_a_purged_name_merges_as_new() {
    for is_purged in [true, false] {
        let memory = open(&ForgetfulDisk::new()).unwrap();
        let main = main_of(&memory);
        memory.set(&who(), main, Setting::Strategy, "parent-wins").unwrap();
        say(&memory, main, "password", &secret());
        let child = memory.fork(&who(), main, "child", None).unwrap();
        if is_purged {
            purge(&memory, &["password"]);
        } else {
            memory.commit(&who(), main, vec![delete("password")]).unwrap();
        }
        say(&memory, child, "password", "changed");
        let result = memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
        assert_eq!(result.conflicts.is_empty(), is_purged, "{}", result.to_json());
        assert_eq!(texts(&memory, &View::Branch(main)).len(), usize::from(is_purged));
    }
}

/// A file is followed to its former names, and not what stood at its name before it.
#[test]
fn a_file_goes_under_its_former_names_too() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "log.1", "of yesterday");
    write(&memory, main, "old-name", NEEDLE);
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.checkpoint(&who(), main, "before", None).unwrap();
    for (from, to) in [("log.1", "log.2"), ("old-name", "log.1")] {
        memory.edit(&who(), main, rename((FILES_ROOT, from), (FILES_ROOT, to))).unwrap();
    }
    memory.seal().unwrap();
    let report = memory.purge(&who(), main, &["files/log.1".into()], PurgeOptions::default()).unwrap();
    assert_eq!(report["items"], serde_json::json!(["files/log.1", "files/old-name"]));
    assert_eq!(holding(&disk, NEEDLE), [""; 0]);
    assert_eq!(read(&memory, main, "log.2").as_deref(), Some("of yesterday"));
    assert_eq!((read(&memory, child, "old-name"), read(&memory, child, "log.1")), (None, None));
    verify(&disk).unwrap();
}

/// The head that an entry names is that of what was there; rollbacks find what is left of it.
#[test]
fn entries_before_a_purge_lead_to_what_is_left() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    say(&memory, main, "password", &secret());
    say(&memory, main, "tea", "green");
    memory.checkpoint(&who(), main, "kept", None).unwrap();
    let entry = memory.last_seq() - 1;
    for n in 0..2 {
        say(&memory, main, "coffee", &n.to_string());
        memory.rollback(&who(), main, "kept").unwrap();
        purge(&memory, &["password"]);
        say(&memory, main, "password", &secret());
        say(&memory, main, "water", &n.to_string());
    }
    purge(&memory, &["password"]);
    let ids = |memory: &Memory| texts(memory, &View::Branch(main)).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(ids(&memory), ["tea", "water"]);
    memory.close().unwrap();
    let memory = open(&disk).unwrap();
    memory.rollback(&who(), main, &entry.to_string()).unwrap();
    assert_eq!(ids(&memory), ["tea"]);
    verify(&disk).unwrap();
}

/// Lines that a merge lost are quoted by its entry, in the journal and in archives.
#[test]
fn files_go_with_their_copies_and_the_lines_that_entries_quote() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let long = format!("{NEEDLE}\n{}", "x".repeat(200 << 10));
    write(&memory, main, "keep.txt", "kept");
    write(&memory, main, "dump.jsonl", "{\"event_id\":1}\n");
    write(&memory, main, "keys/long.txt", &long);
    memory.seal().unwrap();
    let child = memory.fork(&who(), main, "child", None).unwrap();
    write(&memory, child, "dump.jsonl", &format!("{{\"event_id\":1,\"v\":\"{NEEDLE}\"}}\n"));
    write(&memory, child, "copy.txt", &long);
    write(&memory, main, "dump.jsonl", "{\"event_id\":1,\"v\":\"other\"}\n");
    memory.commit(&who(), main, vec![put("a", None, Some("text"))]).unwrap();
    memory.merge(&who(), child, MergeVerb::Promote, false).unwrap();
    memory.seal().unwrap();
    // The entry moves to the middle of an archive, with others behind it.
    for n in 0..6 {
        say(&memory, main, "tea", &n.to_string());
        memory.seal().unwrap();
    }
    write(&memory, main, "dump.jsonl", "clean\n");
    let before = memory.lineage_lines(main, false).unwrap();
    assert!(before.iter().any(|line| line.contains("\"lost\"") && line.contains(NEEDLE)), "a control");
    let report = purge(&memory, &["files/dump.jsonl", "files/keys"]);
    assert_eq!(holding(&disk, NEEDLE), [""; 0], "{report}");
    verify(&disk).unwrap();
    assert_eq!(read(&memory, main, "keep.txt").as_deref(), Some("kept"));
    assert!(["dump.jsonl", "copy.txt", "keys/long.txt"].iter().all(|path| read(&memory, main, path).is_none()));
    let after = memory.lineage_lines(main, false).unwrap();
    let lengths = |lines: &[String]| lines.iter().map(String::len).collect::<Vec<_>>();
    assert_eq!(lengths(&after[..before.len()]), lengths(&before));
    memory.close().unwrap();
    let memory = open(&disk).unwrap();
    assert!(memory.merge(&who(), child, MergeVerb::Merge, false).unwrap().conflicts.is_empty());
    verify(&disk).unwrap();
}

#[test]
fn who_does_not_own_all_that_holds_it_may_not() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, bob) = (main_of(&memory), Actor { uid: 1001, gid: 1001, name: "bob".into() });
    let child = memory.fork(&bob, main, "child", None).unwrap();
    memory.commit(&bob, child, vec![put("own", None, Some("bob's"))]).unwrap();
    say(&memory, main, "password", &secret());
    let other = memory.fork(&bob, main, "other", None).unwrap();
    let error = memory.purge(&bob, other, &["password".into()], PurgeOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("main")), (Kind::Denied, true));
    let eve = Actor { uid: 1002, gid: 1002, name: "eve".into() };
    let below = memory.fork(&bob, child, "below", None).unwrap();
    let outside = memory.fork(&eve, main, "outside", None).unwrap();
    memory.chmod(&bob, below, 0o755).unwrap();
    let said = || memory.purge(&eve, outside, &["own".into()], PurgeOptions::default()).unwrap_err().to_string();
    assert!(!said().contains("main/"), "neither who has it nor what is below a closed branch is told: {}", said());
    memory.chmod(&bob, child, 0o755).unwrap();
    assert!(said().contains("main/child, main/child/below"), "{}", said());
    let more: Vec<BranchId> = (0..4).map(|n| memory.fork(&bob, child, &format!("more-{n}"), None).unwrap()).collect();
    more.iter().for_each(|branch| memory.chmod(&bob, *branch, 0o755).unwrap());
    assert_eq!((said().matches("main/child").count(), said().contains(", …")), (5, true), "{}", said());
    more.into_iter().for_each(|branch| memory.discard(&bob, branch).unwrap());
    memory.discard(&bob, below).unwrap();
    let error = memory.purge(&bob, main, &["own".into()], PurgeOptions::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "the entry would be in another's branch");
    assert_eq!(memory.purge(&bob, child, &["own".into()], PurgeOptions::default()).unwrap()["versions"], 1);
    for bad in ["", "a/b", "files/", "files//"] {
        assert_eq!(
            memory.purge(&who(), main, &[bad.into()], PurgeOptions::default()).unwrap_err().kind(),
            Kind::Invalid,
            "{bad:?}"
        );
    }
    let version = memory.last_seq();
    memory.purge(&bob, other, &["password".into()], PurgeOptions::default()).unwrap_err();
    assert_eq!((memory.last_seq(), disk.files().iter().any(|(path, _)| path == "purge.part")), (version, false));
    purge(&memory, &["password"]);
    assert!(holding(&disk, NEEDLE).is_empty());
}

#[test]
fn root_and_the_owner_of_main_purge_what_only_another_users_branch_has() {
    let (bob, root) =
        (Actor { uid: 1001, gid: 1001, name: "bob".into() }, Actor { uid: 0, gid: 0, name: "root".into() });
    let eve = Actor { uid: 1002, gid: 1002, name: "eve".into() };
    for privileged in [root, who()] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        let child = memory.fork(&bob, main, "child", None).unwrap();
        memory.commit(&bob, child, vec![put("password", None, Some(&secret()))]).unwrap();
        memory.purge(&eve, child, &["password".into()], PurgeOptions::default()).unwrap_err();
        assert!(!holding(&disk, NEEDLE).is_empty(), "a control");
        let report = memory.purge(&privileged, main, &["password".into()], PurgeOptions::default()).unwrap();
        assert_eq!((report["versions"].as_u64(), holding(&disk, NEEDLE)), (Some(1), vec![]), "{privileged:?}");
        assert!(texts(&memory, &View::Branch(child)).is_empty());
    }
}

/// Cuts the power at every call that changes the disk: a purge is absent, or the next opening finishes it.
#[test]
fn a_purge_that_is_cut_off_anywhere_is_absent_or_finished() {
    let (mut absent, mut finished) = (0, 0);
    for nth in 1.. {
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        let memory = open_on(Arc::new(faulty.clone())).unwrap();
        let [child, sibling, grandchild] = spread(&memory, nth % 3 != 0);
        memory.sync().unwrap();
        let seq = memory.last_seq();
        let branches = [main_of(&memory), child, sibling, grandchild];
        let all = |memory: &Memory| branches.map(|branch| texts(memory, &View::Branch(branch)));
        let before = all(&memory);
        let half = nth % 2 == 0;
        faulty.plan(Fault { nth, kinds: DiskCall::CHANGES, errno: libc::EIO, short_write: half, sticky: true });
        let done = memory.purge(&who(), main_of(&memory), &["password".into()], WITH_COPIES).is_ok();
        drop(memory);
        for disk in [
            faulty.inner().power_cut(nth),
            faulty.inner().power_cut_keep_nothing(),
            faulty.inner().power_cut_keep_all(),
        ] {
            let memory = open(&disk).unwrap_or_else(|error| panic!("call {nth}: {error}"));
            let has_entry = memory.last_seq() > seq;
            assert!(!disk.files().iter().any(|(path, _)| path == "purge.part"), "call {nth}");
            assert!(has_entry || all(&memory) == before, "call {nth}: a part was purged");
            memory.gc(&who(), None, false).unwrap();
            let left = holding(&disk, NEEDLE);
            assert_eq!(left.is_empty(), has_entry, "call {nth}, done {done}: {left:?}");
            assert!(!done || has_entry, "call {nth}: a purge that was acknowledged is absent");
            verify(&disk).unwrap_or_else(|error| panic!("call {nth}: {error}"));
            (absent, finished) = if has_entry { (absent, finished + 1) } else { (absent + 1, finished) };
        }
        if faulty.calls() < nth {
            break;
        }
    }
    assert!(absent > 5 && finished > 30, "{absent} absent, {finished} finished");
}

/// Random histories with purges of one id: after each its text is nowhere, and branches are what they were without it.
#[test]
fn purges_in_random_histories_leave_the_rest_as_it_was() {
    for seed in 0..rounds(30) as u64 {
        let (disk, mut chance) = (ForgetfulDisk::new(), Chance(seed));
        let mut memory = open(&disk).unwrap();
        for step in 0..40 {
            let ids = |memory: &Memory, branch| texts(memory, &View::Branch(branch));
            let mut branches = vec![main_of(&memory)];
            let mut at = 0;
            while at < branches.len() {
                branches.extend(memory.children(branches[at]).unwrap().into_iter().map(|(_, id)| id));
                at += 1;
            }
            let branch = branches[chance.below(branches.len())];
            match chance.below(12) {
                0..=3 => say(&memory, branch, &format!("r{}", chance.below(4)), &format!("text {}", chance.below(3))),
                4 => say(&memory, branch, "password", &format!("{NEEDLE} {}", chance.below(3))),
                5 => drop(memory.commit(&who(), branch, vec![delete("password")]).unwrap()),
                6 if branches.len() < 6 => drop(memory.fork(&who(), branch, &format!("b{step}"), None).unwrap()),
                7 => drop(memory.merge(&who(), branch, MergeVerb::Promote, false)),
                8 => drop(memory.merge(&who(), branch, MergeVerb::Merge, false)),
                9 => memory.seal().unwrap(),
                10 => {
                    memory.checkpoint(&who(), branch, &format!("c{step}"), None).unwrap();
                    if chance.one_in(2) {
                        memory = open(&disk).unwrap();
                    }
                }
                _ => {
                    let without = |memory: &Memory| {
                        let all: Vec<_> = branches.iter().map(|branch| ids(memory, *branch)).collect();
                        all.into_iter()
                            .map(|mut all| {
                                all.retain(|(id, _)| id != "password");
                                all
                            })
                            .collect::<Vec<_>>()
                    };
                    let before = without(&memory);
                    if let Err(error) = memory.purge(&who(), branch, &["password".into()], PurgeOptions::default()) {
                        assert_eq!(error.code(), "nothing_to_purge", "seed {seed}, step {step}");
                    }
                    let after: Vec<_> = branches.iter().map(|branch| ids(&memory, *branch)).collect();
                    assert_eq!(after, before, "seed {seed}, step {step}");
                    assert_eq!(holding(&disk, NEEDLE), [""; 0], "seed {seed}, step {step}");
                    verify(&disk).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                }
            }
        }
        drop(memory);
        let disk: Arc<dyn Disk> = Arc::new(disk);
        Memory::open_on(disk, OpenMode::Existing, None, environment()).unwrap().close().unwrap();
    }
}

#[test]
fn what_a_purge_takes_from_a_branch_and_its_base_makes_no_room_in_a_quota() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    say(&memory, main, "password", &secret());
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.set(&who(), child, Setting::Quota, "records=1").unwrap();
    say(&memory, child, "tea", "green");
    purge(&memory, &["password"]);
    let error = memory.commit(&who(), child, vec![put("coffee", None, Some("black"))]).unwrap_err();
    assert_eq!(error.kind(), Kind::Quota, "{error}");
}
