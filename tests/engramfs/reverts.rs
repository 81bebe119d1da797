//! Taking back what entries did: `revert`, `undo` and `redo`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Actor, BranchId, Environment, Error, FILES_ROOT, FileName, FileOp, Memory, MergeOptions, MergeResult, MergeVerb,
    NewInode, OpenMode, RevertVerb, Revision, Setting, Time, View,
};

use crate::support::{delete, environment, main_of, open, put, texts, verify, who};

fn ann() -> Actor {
    Actor { uid: 1001, gid: 1001, name: "ann".into() }
}

struct Rig {
    disk: ForgetfulDisk,
    memory: Arc<Memory>,
    main: BranchId,
}

impl Rig {
    fn new() -> Rig {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        Rig { disk, memory, main }
    }

    fn set(&self, branch: BranchId, id: &str, text: &str) -> u64 {
        self.memory.commit(&who(), branch, vec![put(id, None, Some(text))]).unwrap();
        self.newest()
    }

    fn newest(&self) -> u64 {
        self.newest_of(self.main)
    }

    /// The number of the newest entry of a branch's lineage.
    fn newest_of(&self, branch: BranchId) -> u64 {
        let lines = self.memory.lineage_lines(branch, false).unwrap();
        let seq = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64();
        lines.iter().filter_map(seq).max().unwrap()
    }

    /// Whether an entry of the root branch is one of file operations.
    fn changed_files(&self, seq: u64) -> bool {
        let lines = self.memory.lineage_lines(self.main, false).unwrap();
        let entries = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        entries.into_iter().any(|entry| entry["seq"] == seq && entry["op"] == "files")
    }

    /// Which entries the newest entry of the root branch took back.
    fn taken_back(&self) -> String {
        let line = self.memory.lineage_lines(self.main, false).unwrap().pop().unwrap();
        let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(entry["op"], "revert");
        entry["checkpoint"].as_str().unwrap().to_owned()
    }

    fn texts(&self, branch: BranchId) -> Vec<String> {
        texts(&self.memory, &View::Branch(branch)).into_iter().map(|(id, text)| format!("{id}={text}")).collect()
    }

    fn revert(&self, branch: BranchId, seq: u64) -> Result<MergeResult, Error> {
        let entry = Revision::parse(&seq.to_string()).unwrap();
        self.memory.revert(&who(), branch, &entry, MergeOptions::default(), false)
    }

    fn undo(&self, branch: BranchId) -> Result<MergeResult, Error> {
        self.memory.undo(&who(), branch, RevertVerb::Undo, 1, false)
    }

    fn redo(&self, branch: BranchId) -> Result<MergeResult, Error> {
        self.memory.undo(&who(), branch, RevertVerb::Redo, 1, false)
    }

    fn head(&self, branch: BranchId) -> String {
        self.memory.status(&View::Branch(branch)).unwrap()["head"].as_str().unwrap().to_owned()
    }

    fn write(&self, branch: BranchId, name: &str, bytes: &str) {
        let tree = self.memory.files(&View::Branch(branch)).unwrap();
        let named = FileName::new(name.as_bytes()).unwrap();
        let make =
            FileOp::Create { parent: FILES_ROOT, name: named, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
        let found = tree.resolve(name.as_bytes());
        let inode = found.unwrap_or_else(|_| self.memory.edit(&who(), branch, make).unwrap().inode);
        self.memory.edit(&who(), branch, FileOp::Write { inode, offset: 0, bytes: bytes.as_bytes().into() }).unwrap();
        // Any command makes an entry of what was written.
        self.memory.set(&who(), branch, Setting::Task, "tidy").unwrap();
    }

    fn read(&self, branch: BranchId, name: &str) -> Option<String> {
        let tree = self.memory.files(&View::Branch(branch)).unwrap();
        let inode = tree.resolve(name.as_bytes()).ok()?;
        Some(String::from_utf8(tree.read(inode, 0, 1 << 20, self.memory.packs()).unwrap()).unwrap())
    }

    /// Opens the store again as after a crash, and checks that all branches are as they were.
    fn reopened(self) -> Rig {
        let paths = ["main", "main/x"];
        let heads = |memory: &Memory| paths.map(|path| memory.resolve(path).ok().map(|id| head_of(memory, id)));
        let before = heads(&self.memory);
        self.memory.sync().unwrap();
        let disk = self.disk.power_cut_keep_all();
        drop(self.memory);
        let memory = open(&disk).unwrap();
        assert_eq!(heads(&memory), before);
        let main = main_of(&memory);
        Rig { disk, memory, main }
    }

    fn end(self) {
        self.memory.close().unwrap();
        verify(&self.disk).unwrap();
    }
}

fn head_of(memory: &Memory, branch: BranchId) -> String {
    memory.status(&View::Branch(branch)).unwrap()["head"].as_str().unwrap().to_owned()
}

#[test]
fn a_revert_takes_back_one_entry_and_keeps_what_came_later() {
    let rig = Rig::new();
    rig.set(rig.main, "a", "one");
    let wrong = rig.set(rig.main, "b", "wrong");
    rig.set(rig.main, "c", "later");
    let result = rig.revert(rig.main, wrong).unwrap();
    assert_eq!(
        (result.status, result.counts.deleted, &*result.reverted[0].entries),
        ("reverted", 1, &*wrong.to_string())
    );
    assert_eq!((rig.texts(rig.main), rig.taken_back()), (vec!["a=one".into(), "c=later".into()], wrong.to_string()));
    // A revert of the revert brings it back.
    rig.revert(rig.main, rig.newest()).unwrap();
    assert_eq!(rig.texts(rig.main), ["a=one", "b=wrong", "c=later"]);
    rig.reopened().end();
}

#[test]
fn what_was_changed_again_is_decided_by_the_strategy_of_the_branch() {
    for (strategy, expected) in [("parent-wins", "a=later"), ("child-wins", "a=one"), ("newest-wins", "a=later")] {
        let rig = Rig::new();
        rig.memory.set(&who(), rig.main, Setting::Strategy, strategy).unwrap();
        rig.set(rig.main, "a", "one");
        let wrong = rig.set(rig.main, "a", "wrong");
        rig.set(rig.main, "a", "later");
        let result = rig.revert(rig.main, wrong).unwrap();
        assert_eq!((result.conflicts.len(), rig.texts(rig.main)), (1, vec![expected.to_owned()]), "{strategy}");
        rig.reopened().end();
    }
    let rig = Rig::new();
    rig.memory.set(&who(), rig.main, Setting::Strategy, "manual").unwrap();
    rig.set(rig.main, "a", "one");
    let wrong = rig.set(rig.main, "a", "wrong");
    rig.set(rig.main, "a", "later");
    let entry = Revision::parse(&wrong.to_string()).unwrap();
    let dry = rig.memory.revert(&who(), rig.main, &entry, MergeOptions::default(), true).unwrap();
    assert_eq!((dry.status, dry.conflicts.len()), ("blocked", 1));
    let refused = rig.revert(rig.main, wrong).unwrap_err();
    assert_eq!((refused.code(), refused.hint().contains("config/strategy")), ("conflicts", true));
    assert!(!refused.hint().contains("resolve ID") && !dry.blockers[0].hint().contains("resolve ID"));
    assert_eq!(rig.texts(rig.main), ["a=later"]);
    rig.memory.set(&who(), rig.main, Setting::Strategy, "child-wins").unwrap();
    rig.revert(rig.main, wrong).unwrap();
    assert_eq!(rig.texts(rig.main), ["a=one"]);
    rig.end();
}

#[test]
fn a_poisoned_merge_goes_and_weeks_of_later_work_stay() {
    let rig = Rig::new();
    let ids = |tag: &str| (0..2_000).map(|n| put(&format!("{tag}{n}"), None, Some(tag))).collect::<Vec<_>>();
    rig.memory.commit(&who(), rig.main, ids("base")).unwrap();
    let bad = rig.memory.fork(&who(), rig.main, "x", None).unwrap();
    rig.memory.commit(&who(), bad, ids("poison")).unwrap();
    rig.write(bad, "note", "poison\n");
    rig.memory.merge(&who(), bad, MergeVerb::Merge, false).unwrap();
    let merge = rig.newest();
    rig.memory.commit(&who(), rig.main, ids("later")).unwrap();
    rig.write(rig.main, "other", "later\n");
    rig.memory.gc(&who(), None, false).unwrap();
    let entry = Revision::parse(&merge.to_string()).unwrap();
    let dry = rig.memory.revert(&who(), rig.main, &entry, MergeOptions::default(), true).unwrap();
    let terms = MergeOptions { plan: Some(dry.plan), ..MergeOptions::default() };
    let result = rig.memory.revert(&who(), rig.main, &entry, terms, false).unwrap();
    assert_eq!((result.counts.put, result.counts.deleted, result.counts.files), (0, 2_000, 1));
    let left = rig.texts(rig.main);
    assert!(left.len() == 4_000 && !left.iter().any(|line| line.contains("poison")));
    assert_eq!((rig.read(rig.main, "note"), rig.read(rig.main, "other").as_deref()), (None, Some("later\n")));
    rig.reopened().end();
}

#[test]
fn after_a_pull_is_taken_back_the_next_merge_deletes_nothing_of_the_parent() {
    for goes_on in [false, true] {
        let rig = Rig::new();
        rig.set(rig.main, "a", "one");
        let x = rig.memory.fork(&who(), rig.main, "x", None).unwrap();
        rig.set(rig.main, "b", "pulled");
        rig.write(rig.main, "pulled", "1");
        rig.memory.merge(&who(), x, MergeVerb::Pull, false).unwrap();
        let pull = rig.newest_of(x);
        if goes_on {
            // A second pull, so that the base is no longer the one after the first.
            rig.set(rig.main, "c", "second");
            rig.write(rig.main, "second", "2");
            rig.memory.merge(&who(), x, MergeVerb::Pull, false).unwrap();
        }
        rig.revert(x, pull).unwrap();
        let own: &[&str] = if goes_on { &["a=one", "c=second"] } else { &["a=one"] };
        assert_eq!(rig.texts(x), own);
        assert_eq!(rig.read(x, "pulled"), None);
        rig.set(x, "d", "own");
        let rig = rig.reopened();
        let x = rig.memory.resolve("main/x").unwrap();
        rig.memory.merge(&who(), x, MergeVerb::Merge, false).unwrap();
        let all: &[&str] =
            if goes_on { &["a=one", "b=pulled", "c=second", "d=own"] } else { &["a=one", "b=pulled", "d=own"] };
        assert_eq!(rig.texts(rig.main), all);
        assert!(rig.read(rig.main, "pulled").is_some());
        rig.end();
    }
}

#[test]
fn after_a_promote_is_taken_back_the_next_one_brings_only_what_is_new() {
    let rig = Rig::new();
    let x = rig.memory.fork(&who(), rig.main, "x", None).unwrap();
    rig.set(x, "a", "first");
    rig.memory.merge(&who(), x, MergeVerb::Promote, false).unwrap();
    let promote = rig.newest();
    rig.revert(rig.main, promote).unwrap();
    assert_eq!((rig.texts(rig.main).len(), rig.texts(x)), (0, vec!["a=first".to_owned()]));
    rig.set(x, "b", "second");
    rig.memory.merge(&who(), x, MergeVerb::Promote, false).unwrap();
    assert_eq!(rig.texts(rig.main), ["b=second"]);
    rig.reopened().end();
}

#[test]
fn undo_takes_the_callers_own_newest_and_redo_gives_it_back() {
    let rig = Rig::new();
    rig.memory.chmod(&who(), rig.main, 0o777).unwrap();
    let start = rig.head(rig.main);
    rig.set(rig.main, "a", "one");
    rig.set(rig.main, "b", "two");
    let both = rig.head(rig.main);
    rig.memory.commit(&ann(), rig.main, vec![put("c", None, Some("of ann"))]).unwrap();
    assert_eq!(rig.undo(rig.main).unwrap().reverted[0].op, "commit");
    assert_eq!(rig.texts(rig.main), ["a=one", "c=of ann"]);
    rig.undo(rig.main).unwrap();
    assert_eq!(rig.texts(rig.main), ["c=of ann"]);
    assert_eq!(rig.undo(rig.main).unwrap_err().code(), "nothing_to_undo");
    rig.redo(rig.main).unwrap();
    assert_eq!(rig.texts(rig.main), ["a=one", "c=of ann"], "what was undone last comes back first");
    rig.redo(rig.main).unwrap();
    assert_eq!(rig.redo(rig.main).unwrap_err().code(), "nothing_to_redo");
    rig.memory.undo(&ann(), rig.main, RevertVerb::Undo, 1, false).unwrap();
    assert_eq!(rig.head(rig.main), both);
    rig.memory.undo(&who(), rig.main, RevertVerb::Undo, 2, false).unwrap();
    assert_eq!(rig.head(rig.main), start);
    rig.reopened().end();
}

/// A change that was redone has two entries that put it there, and counts once.
#[test]
fn undo_of_the_last_n_is_undo_n_times_also_behind_a_redo() {
    let changed_and_redone = || {
        let rig = Rig::new();
        for id in ["a", "b", "c"] {
            rig.set(rig.main, id, "one");
        }
        rig.undo(rig.main).unwrap();
        rig.redo(rig.main).unwrap();
        assert_eq!(rig.texts(rig.main), ["a=one", "b=one", "c=one"]);
        rig
    };
    let once = changed_and_redone();
    let result = once.memory.undo(&who(), once.main, RevertVerb::Undo, 2, false).unwrap();
    assert_eq!((once.texts(once.main), result.reverted.len()), (vec!["a=one".into()], 2));
    let twice = changed_and_redone();
    twice.undo(twice.main).unwrap();
    twice.undo(twice.main).unwrap();
    assert_eq!(twice.head(twice.main), once.head(once.main));
    // A revert of a change stands before it, too: both count, as the first undo puts the change there again.
    let reverted = Rig::new();
    reverted.set(reverted.main, "a", "one");
    let change = reverted.set(reverted.main, "b", "one");
    reverted.revert(reverted.main, change).unwrap();
    reverted.memory.undo(&who(), reverted.main, RevertVerb::Undo, 2, false).unwrap();
    assert_eq!(reverted.texts(reverted.main), ["a=one"]);
    for rig in [once, twice, reverted] {
        rig.reopened().end();
    }
}

#[test]
fn deletions_soon_after_each_other_are_undone_together() {
    let rig = Rig::new();
    rig.memory.commit(&who(), rig.main, (0..50).map(|n| put(&format!("r{n}"), None, Some("a"))).collect()).unwrap();
    let before = rig.head(rig.main);
    rig.set(rig.main, "own", "stays");
    for n in 0..50 {
        rig.memory.commit(&who(), rig.main, vec![delete(&format!("r{n}"))]).unwrap();
    }
    let result = rig.undo(rig.main).unwrap();
    assert_eq!((result.counts.put, result.reverted.len()), (50, 1));
    let last = rig.newest() - 1;
    assert_eq!(rig.taken_back(), format!("{}..{last}", last - 49));
    assert_eq!(rig.texts(rig.main).len(), 51);
    rig.undo(rig.main).unwrap();
    assert_eq!(rig.head(rig.main), before);
    rig.reopened().end();
}

#[test]
fn files_come_back_also_those_that_never_merge() {
    let rig = Rig::new();
    rig.memory.set(&who(), rig.main, Setting::Rules, "cache/** never\n*.tmp never").unwrap();
    rig.write(rig.main, "a.tmp", "before");
    rig.write(rig.main, "b", "1\n2\n3\n");
    rig.write(rig.main, "a.tmp", "after!");
    rig.write(rig.main, "b", "1\n2\n3\n4\n");
    rig.memory.undo(&who(), rig.main, RevertVerb::Undo, 2, false).unwrap();
    assert_eq!(rig.read(rig.main, "a.tmp").as_deref(), Some("before"));
    assert_eq!(rig.read(rig.main, "b").as_deref(), Some("1\n2\n3\n"));
    rig.reopened().end();
}

/// An entry about files gathers what was done for up to a second, so that many deletions make several.
#[test]
fn deletions_of_files_within_two_seconds_are_undone_together() {
    let now = Arc::new(AtomicI64::new(1_700_000_000_000_000_000));
    let clock = now.clone();
    let around = Environment { clock: Box::new(move || Time(clock.load(Ordering::Relaxed))), ..environment() };
    let disk = ForgetfulDisk::new();
    let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap();
    let main = main_of(&memory);
    let rig = Rig { disk, memory, main };
    let commit = |task: &str| rig.memory.set(&who(), rig.main, Setting::Task, task).unwrap();
    for name in ["a", "b", "c"] {
        rig.write(rig.main, name, "text");
    }
    commit("made");
    for (name, nanos_later) in [("a", 0), ("b", 2_500_000_000), ("c", 1_500_000_000)] {
        now.fetch_add(nanos_later, Ordering::Relaxed);
        let unlink = FileOp::Unlink { parent: FILES_ROOT, name: FileName::new(name.as_bytes()).unwrap(), keep: false };
        rig.memory.edit(&who(), rig.main, unlink).unwrap();
        commit(name);
    }
    let there = || ["a", "b", "c"].map(|name| rig.read(rig.main, name).is_some());
    assert_eq!(rig.undo(rig.main).unwrap().reverted.len(), 1);
    assert_eq!(there(), [false, true, true], "b and c went together, and a before them");
    rig.undo(rig.main).unwrap();
    assert_eq!(there(), [true; 3]);
    // Of records they are one within a second, to the nanosecond.
    for id in ["a", "b", "c"] {
        rig.set(rig.main, id, "text");
    }
    for (id, nanos_later) in [("a", 1_000_000_000), ("b", 1_000_000_001), ("c", 1_000_000_000)] {
        now.fetch_add(nanos_later, Ordering::Relaxed);
        rig.memory.commit(&who(), rig.main, vec![delete(id)]).unwrap();
    }
    rig.undo(rig.main).unwrap();
    assert_eq!(rig.texts(rig.main), ["b=text", "c=text"]);
    rig.end();
}

#[test]
fn only_what_changed_the_content_can_be_taken_back() {
    let rig = Rig::new();
    rig.set(rig.main, "a", "one");
    rig.memory.checkpoint(&who(), rig.main, "v1", None).unwrap();
    let checkpoint = rig.newest();
    for seq in [1, checkpoint, 99] {
        assert_eq!(rig.revert(rig.main, seq).unwrap_err().code(), "not_revertible", "{seq}");
    }
    // Nor what merges and promotes did to other branches.
    let [other, child] = ["other", "child"].map(|name| rig.memory.fork(&who(), rig.main, name, None).unwrap());
    let makes = rig.newest_of(child);
    assert_eq!(rig.revert(child, makes).unwrap_err().code(), "not_revertible", "what made the branch");
    for merge in [MergeVerb::Promote, MergeVerb::Merge] {
        rig.set(child, "c", &format!("{merge:?}"));
        rig.memory.merge(&who(), child, merge, false).unwrap();
        let seq = rig.newest();
        assert_eq!(rig.revert(other, seq).unwrap_err().code(), "not_revertible", "{merge:?}");
        rig.revert(rig.main, seq).unwrap();
    }
    rig.memory.set(&who(), rig.main, Setting::Keep, "0s").unwrap();
    let after = rig.set(rig.main, "b", "two");
    rig.memory.gc(&who(), None, false).unwrap();
    assert_eq!(rig.revert(rig.main, after).unwrap_err().code(), "not_kept");
    rig.end();
}

#[test]
fn a_revert_obeys_the_rules_that_restrict_writes_and_touches_no_child() {
    let rig = Rig::new();
    rig.write(rig.main, "log", "one\n");
    let before = rig.newest();
    rig.write(rig.main, "log", "one\ntwo\n");
    rig.memory.set(&who(), rig.main, Setting::Task, "later").unwrap();
    let wrote = (before + 1..=rig.newest()).find(|&seq| rig.changed_files(seq)).unwrap();
    let x = rig.memory.fork(&who(), rig.main, "x", None).unwrap();
    let entry = Revision::parse(&wrote.to_string()).unwrap();
    for rules in ["log append", "log write=uid:4711"] {
        rig.memory.set(&who(), rig.main, Setting::Rules, rules).unwrap();
        let refused = rig.memory.revert(&ann(), rig.main, &entry, MergeOptions::default(), false);
        assert!(refused.is_err(), "{rules}: {:?}", refused.map(|done| done.to_json()));
        assert_eq!(rig.read(rig.main, "log").as_deref(), Some("one\ntwo\n"), "{rules}");
    }
    rig.memory.set(&who(), rig.main, Setting::Rules, "").unwrap();
    rig.memory.revert(&ann(), rig.main, &entry, MergeOptions::default(), false).unwrap();
    assert_eq!([rig.main, x].map(|branch| rig.read(branch, "log").unwrap()), ["one\n", "one\ntwo\n"]);
    rig.end();
}

#[test]
fn where_one_undo_is_refused_those_before_it_are_done() {
    let rig = Rig::new();
    rig.memory.set(&who(), rig.main, Setting::Strategy, "manual").unwrap();
    rig.set(rig.main, "a", "one");
    rig.memory.commit(&ann(), rig.main, vec![put("a", None, Some("of ann"))]).unwrap();
    rig.set(rig.main, "b", "two");
    let refused = rig.memory.undo(&who(), rig.main, RevertVerb::Undo, 2, false).unwrap_err();
    assert_eq!((refused.code(), rig.texts(rig.main)), ("conflicts", vec!["a=of ann".to_owned()]));
    rig.end();
}
