//! What a branch was behind each of its entries: against what the entries say, over seals, crashes and collections.

use std::collections::{BTreeMap, BTreeSet};

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    BranchId, Error, FILES_ROOT, FileName, FileOp, ForkOptions, FoundState, Kind, Memory, MergeOptions, MergeVerb,
    NewInode, RevertVerb, Revision, Setting, ShowTarget, View, Viewer,
};
use serde_json::Value;

use crate::support::{Chance, delete, main_of, open, put, rounds, texts, verify, who};

fn write(memory: &Memory, branch: BranchId, name: &str, bytes: &str) {
    let tree = memory.files(&View::Branch(branch)).unwrap();
    let named = FileName::new(name.as_bytes()).unwrap();
    let make = FileOp::Create { parent: FILES_ROOT, name: named, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
    let inode = tree.resolve(name.as_bytes()).unwrap_or_else(|_| memory.edit(&who(), branch, make).unwrap().inode);
    memory.edit(&who(), branch, FileOp::Write { inode, offset: 0, bytes: bytes.as_bytes().into() }).unwrap();
}

fn lineage(memory: &Memory, branch: BranchId) -> Vec<Value> {
    let lines = memory.lineage_lines(branch, false).unwrap();
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The head that a branch had behind an entry, by what the entry says.
fn signed_head(entry: &Value, path: &str) -> Option<String> {
    let is_own = entry["branch"] == path;
    let says = match entry["op"].as_str().unwrap() {
        "root" | "fork" | "commit" | "files" | "rollback" | "revert" | "pull" => is_own,
        "merge" | "promote" => !is_own && entry["parent"] == path,
        _ => false,
    };
    says.then(|| entry["head"].as_str().unwrap().to_owned())
}

fn begin_with(found: &FoundState) -> ForkOptions<'_> {
    ForkOptions { from: Some(found), ..ForkOptions::default() }
}

fn head_behind(memory: &Memory, branch: BranchId, seq: u64, name: &str) -> Result<String, Error> {
    let found = memory.find_state(branch, &Revision::parse(&seq.to_string())?)?;
    let fork = memory.fork_with(&who(), branch, name, begin_with(&found))?;
    let head = memory.status(&View::Branch(fork))?["head"].as_str().unwrap().to_owned();
    memory.discard(&who(), fork)?;
    Ok(head)
}

fn branch_step(memory: &Memory, branches: &mut Vec<BranchId>, step: usize, chance: &mut Chance) {
    let at = chance.below(branches.len());
    let (main, branch) = (branches[0], branches[at]);
    match chance.below(8) {
        // Not always is there something to take back, or nothing in its way.
        6 => drop(memory.undo(&who(), branch, RevertVerb::Undo, 1 + chance.below(3), false)),
        7 if chance.one_in(2) => drop(memory.undo(&who(), branch, RevertVerb::Redo, 1, false)),
        0 | 1 if branches.len() < 6 => {
            branches.push(memory.fork(&who(), branch, &format!("b{step}"), None).unwrap());
        }
        2 if branch != main => drop(memory.merge(&who(), branch, MergeVerb::Promote, false)),
        3 if branch != main => drop(memory.merge(&who(), branch, MergeVerb::Pull, false)),
        4 if branch != main => {
            let ends = if chance.one_in(2) {
                memory.discard(&who(), branch)
            } else {
                memory.merge(&who(), branch, MergeVerb::Merge, false).map(drop)
            };
            if ends.is_ok() {
                branches.remove(at);
            }
        }
        _ => {
            let seqs: Vec<u64> = lineage(memory, branch).iter().filter_map(|line| line["seq"].as_u64()).collect();
            let seq = seqs[chance.below(seqs.len())];
            // Not each entry of the lineage is a step of the branch.
            if chance.one_in(2) {
                drop(memory.rollback(&who(), branch, &seq.to_string()));
            } else {
                let entry = Revision::parse(&seq.to_string()).unwrap();
                drop(memory.revert(&who(), branch, &entry, MergeOptions::default(), false));
            }
        }
    }
}

fn history(seed: u64) {
    let (disk, mut chance) = (ForgetfulDisk::new(), Chance(seed));
    let memory = open(&disk).unwrap();
    let mut branches = vec![main_of(&memory)];
    memory.set(&who(), branches[0], Setting::KeepEvery, "0s").unwrap();
    for step in 0..150 {
        let branch = branches[chance.below(branches.len())];
        let id = format!("r{}", chance.below(8));
        match chance.below(12) {
            0..4 => {
                let vector = chance.one_in(2).then(|| chance.vector(3));
                memory.commit(&who(), branch, vec![put(&id, vector, Some(&format!("text {step}")))]).unwrap();
            }
            4 => drop(memory.commit(&who(), branch, vec![delete(&id)])),
            5 | 6 => write(&memory, branch, &format!("f{}", chance.below(4)), &format!("bytes {step} ").repeat(2000)),
            7 | 8 => branch_step(&memory, &mut branches, step, &mut chance),
            9 => memory.seal().unwrap(),
            10 if chance.one_in(3) => {
                if chance.one_in(2) {
                    memory.close().unwrap();
                }
                memory.sync().unwrap();
                drop(memory);
                let kept = disk.power_cut_keep_all();
                let memory = open(&kept).unwrap();
                return history_goes_on(seed, &kept, &memory, &branches, chance);
            }
            _ => drop(memory.gc(&who(), None, false).unwrap()),
        }
    }
    check(seed, &memory, &branches, &mut chance);
    memory.close().unwrap();
    verify(&disk).unwrap();
}

/// Many deletes in a row, each an entry of its own, as `rm -r` makes them: what was there before comes back.
#[test]
fn the_state_before_many_deletes_stays() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::KeepEvery, "1h").unwrap();
    let name = |number: u64| format!("r{number}");
    for number in 0..2_500 {
        memory.commit(&who(), main, vec![put(&name(number), None, Some("a text"))]).unwrap();
    }
    let before = lineage(&memory, main).last().unwrap()["seq"].as_u64().unwrap();
    for number in 0..2_500 {
        memory.commit(&who(), main, vec![delete(&name(number))]).unwrap();
    }
    for number in 0..20 {
        memory.commit(&who(), main, vec![put(&name(number), None, Some("another text"))]).unwrap();
    }
    memory.gc(&who(), None, false).unwrap();
    memory.close().unwrap();
    drop(memory);
    let memory = open(&disk).unwrap();
    let find = |seq: u64| memory.find_state(main, &Revision::parse(&seq.to_string()).unwrap());
    assert_eq!(find(before - 1).unwrap_err().code(), "not_kept");
    memory.rollback(&who(), main, &before.to_string()).unwrap();
    assert_eq!(texts(&memory, &View::Branch(main)).len(), 2_500);
    memory.close().unwrap();
    verify(&disk).unwrap();
}

/// The same store behind an opening.
fn history_goes_on(seed: u64, disk: &ForgetfulDisk, memory: &Memory, branches: &[BranchId], mut chance: Chance) {
    check(seed, memory, branches, &mut chance);
    memory.seal().unwrap();
    memory.gc(&who(), None, false).unwrap();
    check(seed, memory, branches, &mut chance);
    memory.close().unwrap();
    verify(disk).unwrap();
}

fn check(seed: u64, memory: &Memory, branches: &[BranchId], chance: &mut Chance) {
    for branch in branches {
        let path = memory.info(*branch).unwrap().path.to_string();
        let says = |line: &Value| Some((line["seq"].as_u64()?, signed_head(line, &path)?));
        let heads: Vec<(u64, String)> =
            lineage(memory, *branch).iter().filter_map(says).filter(|(seq, _)| *seq >= branch.0).collect();
        for _ in 0..12.min(heads.len()) {
            let (seq, head) = &heads[chance.below(heads.len())];
            let name = format!("look-{}", chance.next());
            assert_eq!(head_behind(memory, *branch, *seq, &name).unwrap(), *head, "seed {seed}, {path}, entry {seq}");
        }
    }
}

#[test]
fn a_branch_is_found_as_each_of_its_entries_says_that_it_was() {
    for seed in 1..=rounds(12) as u64 {
        history(seed);
    }
}

#[test]
fn a_discarded_branch_comes_back_with_its_own_edits_and_can_still_be_merged() {
    for seals in [false, true] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        memory.commit(&who(), main, vec![put("a", None, Some("base")), put("b", None, Some("base"))]).unwrap();
        let x = memory.fork(&who(), main, "x", None).unwrap();
        memory.set(&who(), x, Setting::Task, "tidy").unwrap();
        memory.commit(&who(), x, vec![put("a", None, Some("of x"))]).unwrap();
        write(&memory, x, "note", "of x");
        memory.discard(&who(), x).unwrap();
        memory.commit(&who(), main, vec![put("b", None, Some("later"))]).unwrap();
        if seals {
            memory.gc(&who(), None, false).unwrap();
        }
        let found = memory.find_ended(&who(), main, "x").unwrap();
        let listed = memory.ended_children(&who(), main).unwrap();
        assert_eq!((listed.len(), &listed[0]["name"], &listed[0]["seq"]), (1, &"x".into(), &found.to_json()["entry"]));
        let back = memory.fork_with(&who(), main, "x", begin_with(&found)).unwrap();
        assert_eq!(memory.setting(&View::Branch(back), Setting::Task).unwrap(), "tidy");
        let in_back: BTreeMap<_, _> = texts(&memory, &View::Branch(back)).into_iter().collect();
        assert_eq!((&*in_back["a"], &*in_back["b"]), ("of x", "base"));
        memory.sync().unwrap();
        drop(memory);
        let kept = disk.power_cut_keep_all();
        let memory = open(&kept).unwrap();
        let back = memory.resolve("main/x").unwrap();
        memory.merge(&who(), back, MergeVerb::Merge, false).unwrap();
        let merged: BTreeMap<_, _> = texts(&memory, &View::Branch(main)).into_iter().collect();
        assert_eq!((&*merged["a"], &*merged["b"]), ("of x", "later"));
        assert!(memory.files(&View::Branch(main)).unwrap().resolve(b"note").is_ok());
        memory.close().unwrap();
        verify(&kept).unwrap();
    }
}

/// The branch still had the state when `keep` was 0 and a collection let go of it.
#[test]
fn the_last_state_of_a_branch_stays_though_a_collection_had_let_go_of_it() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let x = memory.fork(&who(), main, "x", None).unwrap();
    memory.commit(&who(), x, vec![put("a", None, Some("of x"))]).unwrap();
    memory.set(&who(), x, Setting::Keep, "0s").unwrap();
    memory.gc(&who(), None, false).unwrap();
    memory.set(&who(), x, Setting::Keep, "1d").unwrap();
    memory.discard(&who(), x).unwrap();
    for _ in 0..2 {
        let found = memory.find_ended(&who(), main, "x").unwrap();
        let back = memory.fork_with(&who(), main, "back", begin_with(&found)).unwrap();
        assert_eq!(texts(&memory, &View::Branch(back)), [("a".to_owned(), "of x".to_owned())]);
        memory.discard(&who(), back).unwrap();
        memory.seal().unwrap();
    }
}

#[test]
fn who_did_not_own_a_discarded_branch_does_not_find_it() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let ann = engramfs::memory::Actor { uid: 1001, gid: 1001, name: "ann".into() };
    let bob = engramfs::memory::Actor { uid: 1002, gid: 1002, name: "bob".into() };
    let x = memory.fork(&ann, main, "x", None).unwrap();
    memory.checkpoint(&ann, x, "v1", None).unwrap();
    memory.discard(&ann, x).unwrap();
    let code =
        |who: &engramfs::memory::Actor, name: &str| memory.find_ended(who, main, name).map_err(|error| error.code());
    let root = engramfs::memory::Actor { uid: 0, gid: 0, name: "root".into() };
    assert!(code(&ann, "x").is_ok() && code(&root, "x").is_ok());
    assert_eq!(code(&bob, "x").unwrap_err(), "no_such_state");
    assert_eq!(code(&ann, "y").unwrap_err(), "no_such_state");
    for back_by in [&root, &ann] {
        let found = memory.find_ended(back_by, main, "x").unwrap();
        let back = memory.fork_with(back_by, main, "x", begin_with(&found)).unwrap();
        let info = memory.info(back).unwrap();
        assert_eq!((info.uid, info.checkpoints), (1001, 0));
        memory.checkpoint(&ann, back, "v1", None).unwrap();
        memory.discard(&ann, back).unwrap();
    }
    // A merged one is found by the parent's owner, too.
    let merged = memory.fork(&ann, main, "merged", None).unwrap();
    memory.merge(&who(), merged, MergeVerb::Merge, false).unwrap();
    let found = memory.find_ended(&who(), main, "merged").unwrap();
    let back = memory.fork_with(&who(), main, "merged", begin_with(&found)).unwrap();
    assert_eq!(memory.info(back).unwrap().uid, who().uid);
}

/// Only the newest thousand and the newest of each minute stay of a branch that is written all the time.
#[test]
fn of_many_states_the_newest_stay_and_one_of_each_while() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::KeepEvery, "1h").unwrap();
    for number in 0..2_600 {
        memory.commit(&who(), main, vec![put("a", None, Some(&format!("text {number}")))]).unwrap();
        if number == 1_300 {
            memory.seal().unwrap();
        }
    }
    memory.gc(&who(), None, false).unwrap();
    let lines = lineage(&memory, main);
    let commits: Vec<u64> =
        lines.iter().filter(|line| line["op"] == "commit").filter_map(|line| line["seq"].as_u64()).collect();
    let find = |seq: u64| memory.find_state(main, &Revision::parse(&seq.to_string()).unwrap());
    assert!(find(commits[2_599]).is_ok() && find(commits[1_650]).is_ok());
    assert_eq!(find(commits[700]).unwrap_err().code(), "not_kept");
    memory.close().unwrap();
    verify(&disk).unwrap();
}

/// Each head is in one place alone.
#[test]
fn a_hash_is_looked_up_in_all_that_a_branch_was_its_merged_children_and_its_parent() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let commit =
        |branch, id: &str, text: &str| memory.commit(&who(), branch, vec![put(id, None, Some(text))]).unwrap().head;
    let base = commit(main, "r", "base");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let closed = Viewer { may_read: &|_| false, ..Viewer::UNRESTRICTED };
    let is_shown =
        |head, viewer| memory.show(fork, ShowTarget::Hash(head), viewer).map(|shown| shown.to_line()).is_ok();
    memory.set(&who(), fork, Setting::Keep, "0s").unwrap();
    let dropped = commit(fork, "r", "dropped");
    let checkpoint = commit(fork, "r", "checkpoint");
    memory.checkpoint(&who(), fork, "v1", None).unwrap();
    memory.set(&who(), fork, Setting::Keep, "30d").unwrap();
    let present = commit(fork, "r", "present");
    assert_eq!([dropped, base, checkpoint, present].map(|head| is_shown(head, closed)), [false, true, true, true]);
    commit(fork, "s", "later");
    assert!(is_shown(present, closed), "an earlier state");
    let child = memory.fork(&who(), fork, "y", None).unwrap();
    let of_child = commit(child, "t", "of the child");
    commit(fork, "s", "meanwhile");
    assert!(!is_shown(of_child, Viewer::UNRESTRICTED), "a child that goes on");
    memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
    assert!(is_shown(of_child, closed), "a child that was merged");
    let of_parent = [commit(main, "r", "before"), commit(main, "r", "now")];
    assert_eq!(
        of_parent.map(|head| (is_shown(head, Viewer::UNRESTRICTED), is_shown(head, closed))),
        [(true, false); 2]
    );
}

#[test]
fn a_file_is_shown_by_the_hash_of_its_bytes_too_and_as_text_where_it_is_some() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "text", "words");
    write(&memory, main, "bytes", "words");
    let inode = memory.files(&View::Branch(main)).unwrap().resolve(b"bytes").unwrap();
    memory.edit(&who(), main, FileOp::Write { inode, offset: 0, bytes: vec![0xff].into() }).unwrap();
    for (name, bytes, text) in [("text", &b"words"[..], Value::from("words")), ("bytes", b"\xffords", Value::Null)] {
        let tree = memory.files(&View::Branch(main)).unwrap();
        let node = tree.node(tree.resolve(name.as_bytes()).unwrap()).unwrap();
        for hash in [node.hash().unwrap(), node.content_hash().unwrap()] {
            let shown = memory.show(main, ShowTarget::Hash(hash), Viewer::UNRESTRICTED).unwrap();
            let line: Value = serde_json::from_str(&shown.line).unwrap();
            assert_eq!((shown.content.as_deref(), &line["text"]), (Some(bytes), &text), "{name}");
        }
    }
}

#[test]
fn no_branch_is_set_to_keep_states_longer_than_its_parent() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Keep, "2d").unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let keep = |value: &str| memory.set(&who(), fork, Setting::Keep, value);
    assert_eq!(keep("49h").unwrap_err().kind(), Kind::Invalid);
    keep("1h").unwrap();
    keep("48h").unwrap();
    memory.set(&who(), main, Setting::Keep, "60d").unwrap();
    keep("49h").unwrap();
}

#[test]
fn of_the_children_that_ended_the_latest_1000_are_listed() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for number in 0..1_001 {
        let child = memory.fork(&who(), main, &format!("x{number}"), None).unwrap();
        memory.discard(&who(), child).unwrap();
    }
    let listed = memory.ended_children(&who(), main).unwrap();
    assert_eq!((listed.len(), &listed[0]["name"], &listed[999]["name"]), (1_000, &"x1000".into(), &"x1".into()));
    let keys: BTreeSet<&str> = listed[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["name", "seq", "op", "owner", "created", "ended"]));
}
