//! Conflicts of files that wait for a decision by hand, and what resolves them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use engramfs::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::memory::{
    Actor, Attrs, BranchId, Document, Environment, FileName, FileOp, Hash, Kind, Memory, MergeVerb, OpenMode,
    RevertVerb, Setting, ShowTarget, Side, Time, View, Viewer,
};

use crate::files::{read, write};
use crate::support::{environment, main_of, open, put, texts, verify, who};

/// A branch whose file and the parent's contradict under `manual`.
fn contradicting(memory: &Memory) -> (BranchId, BranchId) {
    let main = main_of(memory);
    memory.set(&who(), main, Setting::Rules, "core/** text manual").unwrap();
    write(memory, main, "core/plan", "base\n");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(memory, main, "core/plan", "parent\n");
    write(memory, fork, "core/plan", "child\n");
    (main, fork)
}

fn is_refused(memory: &Memory, fork: BranchId) -> bool {
    memory.merge(&who(), fork, MergeVerb::Merge, false).is_err_and(|error| error.kind() == Kind::Conflict)
}

#[test]
fn all_three_versions_of_an_open_conflict_are_readable() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    let lines = memory.document(&View::Branch(fork), Document::Conflicts).unwrap();
    let line: serde_json::Value = serde_json::from_slice(&lines).unwrap();
    assert_eq!((&line["path"], &line["decision"]), (&"files/core/plan".into(), &serde_json::Value::Null));
    for side in ["base", "child", "parent"] {
        let hash: Hash = line[side].as_str().unwrap().parse().unwrap();
        assert_eq!(
            memory.show(fork, ShowTarget::Hash(hash), Viewer::UNRESTRICTED).unwrap().content.unwrap(),
            format!("{side}\n").as_bytes()
        );
    }
    // Something of one's own: write it, and take the child's.
    write(&memory, fork, "core/plan", "of both\n");
    memory.resolve_conflict(&who(), fork, "files/core/plan", Side::Child).unwrap();
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "of both\n");
}

#[test]
fn what_is_resolved_under_another_strategy_counts_once_it_is_manual() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for (branch, text) in [(fork, "child"), (main, "parent")] {
        memory.commit(&who(), branch, vec![put("tea", None, Some(text))]).unwrap();
    }
    let decided = || memory.merge(&who(), fork, MergeVerb::Merge, true).unwrap().conflicts[0].decision;
    let resolve = |side| memory.resolve_conflict(&who(), fork, "tea", side).unwrap();
    // Under newest-wins, which takes the parent's.
    assert_eq!(
        (resolve(Side::Parent), resolve(Side::Child), decided()),
        (None, Some("newest-wins"), Some(Side::Parent))
    );
    memory.set(&who(), main, Setting::Strategy, "manual").unwrap();
    assert_eq!(decided(), Some(Side::Child));
    assert_eq!((resolve(Side::Parent), decided()), (None, Some(Side::Parent)));
}

#[test]
fn a_conflict_by_hand_blocks_the_merge_until_it_is_resolved() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    memory.commit(&who(), fork, vec![put("tea", None, Some("of the child"))]).unwrap();
    let records = || memory.status(&View::Branch(main)).unwrap()["records"].clone();
    let error = memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert_eq!((read(&memory, main, "core/plan").unwrap().as_str(), records()), ("parent\n", 0.into()));
    memory.resolve_conflict(&who(), fork, "files/core/plan", Side::Parent).unwrap();
    let entries = memory.lineage_lines(fork, false).unwrap();
    assert!(entries.iter().any(|line| line.contains(r#""id":"files/core/plan","text":"parent""#)), "{entries:#?}");
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!((read(&memory, main, "core/plan").unwrap().as_str(), records()), ("parent\n", 1.into()));
}

#[test]
fn writing_the_file_resolves_a_conflict_that_was_shown() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, fork) = contradicting(&memory);
    // Whoever writes without knowing of the other side resolves nothing.
    write(&memory, fork, "core/plan", "child again\n");
    assert!(is_refused(&memory, fork) && is_refused(&memory, fork));
    write(&memory, fork, "core/plan", "both\n");
    let conflicts = memory.document(&View::Branch(fork), Document::Conflicts).unwrap();
    assert!(String::from_utf8_lossy(&conflicts).contains(r#""decision":"child""#), "{conflicts:?}");
    write(&memory, fork, "core/plan", "both, and better\n");
    memory.document(&View::Branch(fork), Document::Conflicts).unwrap();
    let entries = memory.lineage_lines(fork, false).unwrap();
    assert_eq!(entries.iter().filter(|line| line.contains(r#""op":"resolve""#)).count(), 2, "{entries:#?}");
    let outcome = memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(outcome.conflicts[0].decision, Some(Side::Child));
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "both, and better\n");
    let head = memory.snapshot(&View::Branch(main)).unwrap().head();
    drop(memory);
    // Entries alone decide: the resolution is one, so an opening does the same merge.
    let memory = open(&disk).unwrap();
    assert_eq!(memory.snapshot(&View::Branch(main)).unwrap().head(), head);
    verify(&disk).unwrap();
}

#[test]
fn the_hint_of_a_conflict_says_what_decides_it() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "/u/** unit\ncore/** text manual").unwrap();
    write(&memory, main, "u/a", "base\n");
    write(&memory, main, "core/plan", "base\n");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let hint = || {
        let error = memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap_err();
        assert_eq!(error.code(), "conflicts");
        error.hint().into_owned()
    };
    write(&memory, main, "u/a", "parent\n");
    write(&memory, fork, "u/a", "child\n");
    let of_unit = hint();
    assert!(of_unit.contains("resolve it for the child") && !of_unit.contains("as well by writing"), "{of_unit}");
    write(&memory, main, "core/plan", "parent\n");
    write(&memory, fork, "core/plan", "child\n");
    let of_both = hint();
    assert!(of_both.contains("a file that is in no unit is resolved as well by writing it"), "{of_both}");
    // As the hints say.
    write(&memory, fork, "u/a", "of both\n");
    memory.resolve_conflict(&who(), fork, "files/u", Side::Child).unwrap();
    let of_file = hint();
    assert!(of_file.contains("a file is resolved as well by writing it") && !of_file.contains("unit"), "{of_file}");
    write(&memory, fork, "core/plan", "both\n");
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "u/a").unwrap() + &read(&memory, main, "core/plan").unwrap(), "of both\nboth\n");
}

#[test]
fn what_was_shown_is_forgotten_when_the_store_is_closed_until_it_is_shown_again() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, fork) = contradicting(&memory);
    assert!(is_refused(&memory, fork));
    memory.close().unwrap();
    drop(memory);
    let memory = open(&disk).unwrap();
    write(&memory, fork, "core/plan", "of what nobody remembers\n");
    assert!(is_refused(&memory, fork));
    write(&memory, fork, "core/plan", "both\n");
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "both\n");
}

#[test]
fn listeners_hear_of_a_conflict_that_a_write_resolved() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (_, fork) = contradicting(&memory);
    assert!(is_refused(&memory, fork));
    let heard = Arc::new(Mutex::new(Vec::new()));
    memory.on_change({
        let heard = heard.clone();
        Arc::new(move |event| heard.lock().unwrap().push(event.op))
    });
    write(&memory, fork, "core/plan", "both\n");
    memory.document(&View::Branch(fork), Document::Conflicts).unwrap();
    let heard = heard.lock().unwrap();
    assert!(heard.contains(&"files") && heard.contains(&"resolve"), "{heard:?}");
}

#[test]
fn listeners_hear_of_what_a_dry_run_commits() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    let heard = Arc::new(Mutex::new(Vec::new()));
    memory.on_change({
        let heard = heard.clone();
        Arc::new(move |event| heard.lock().unwrap().push((event.branch, event.op)))
    });
    for branch in [main, fork] {
        write(&memory, branch, "note", "written just now\n");
    }
    memory.merge(&who(), fork, MergeVerb::Merge, true).unwrap();
    let heard = heard.lock().unwrap();
    assert!([main, fork].iter().all(|branch| heard.contains(&(*branch, "files"))), "{heard:?}");
}

#[test]
fn a_dry_run_shows_a_conflict_as_well_and_deleting_the_file_resolves_it() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    assert!(memory.merge(&who(), fork, MergeVerb::Pull, true).unwrap().is_blocked());
    // What was written before it, and gathered after it, resolves nothing.
    assert!(is_refused(&memory, fork));
    let tree = memory.files(&View::Branch(fork)).unwrap();
    let unlink =
        FileOp::Unlink { parent: tree.resolve(b"core").unwrap(), name: FileName::new(b"plan").unwrap(), keep: false };
    memory.edit(&who(), fork, unlink).unwrap();
    assert!(!memory.merge(&who(), fork, MergeVerb::Merge, true).unwrap().is_blocked());
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "core/plan"), None);
}

#[test]
fn a_write_resolves_nothing_where_the_parent_went_on_or_words_had_resolved_it() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    assert!(is_refused(&memory, fork));
    write(&memory, main, "core/plan", "parent again\n");
    write(&memory, fork, "core/plan", "of what was shown\n");
    assert!(is_refused(&memory, fork));
    memory.resolve_conflict(&who(), fork, "files/core/plan", Side::Parent).unwrap();
    write(&memory, fork, "core/plan", "void\n");
    assert!(is_refused(&memory, fork));
    write(&memory, fork, "core/plan", "now it is known\n");
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "now it is known\n");
}

#[test]
fn words_that_resolved_nothing_leave_it_to_a_write() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    assert!(is_refused(&memory, fork));
    // For a moment there is no conflict to resolve.
    write(&memory, main, "core/plan", "base\n");
    let resolved = memory.resolve_conflict(&who(), fork, "files/core/plan", Side::Parent);
    assert_eq!(resolved.unwrap_err().kind(), Kind::NotFound);
    write(&memory, main, "core/plan", "parent\n");
    write(&memory, fork, "core/plan", "both\n");
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "both\n");
}

#[test]
fn nobody_is_told_that_a_file_will_replace_a_directory_that_holds_something() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Strategy, "manual").unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, fork, "n", "file");
    write(&memory, main, "n/in", "held");
    let refused = memory.resolve_conflict(&who(), fork, "files/n", Side::Child).unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (Kind::Invalid, "folder_in_the_way"));
    memory.resolve_conflict(&who(), fork, "files/n", Side::Parent).unwrap();
    // No rule decides it by now, so that it is refused as before, and what was said stays.
    let refused = memory.resolve_conflict(&who(), fork, "files/n", Side::Child).unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (Kind::Invalid, "folder_in_the_way"));
    assert_eq!(memory.resolve_conflict(&who(), fork, "files/n", Side::Parent).unwrap(), None);
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "n/in").unwrap(), "held");
}

#[test]
fn only_who_was_shown_a_conflict_resolves_it_by_writing_and_not_by_a_change_of_mode() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    let other = Actor { uid: 1001, gid: 1001, name: "bob".into() };
    memory.set(&who(), main, Setting::Rules, "core/** text manual").unwrap();
    assert!(memory.merge(&other, fork, MergeVerb::Promote, false).is_err());
    write(&memory, fork, "core/plan", "of one who knows nothing\n");
    assert!(is_refused(&memory, fork));
    let inode = memory.files(&View::Branch(fork)).unwrap().resolve(b"core/plan").unwrap();
    let attrs = Attrs { mode: Some(0o600), ..Attrs::default() };
    memory.edit(&who(), fork, FileOp::SetAttr { inode, attrs }).unwrap();
    assert!(is_refused(&memory, fork));
    write(&memory, fork, "core/plan", "of one who knows\n");
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "of one who knows\n");
}

#[test]
fn what_was_shown_before_a_promote_counts_no_more_after_it() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    assert!(is_refused(&memory, fork));
    write(&memory, fork, "core/plan", "both\n");
    memory.merge(&who(), fork, MergeVerb::Promote, false).unwrap();
    // The parent goes back to the very version that was shown.
    write(&memory, main, "core/plan", "parent\n");
    write(&memory, fork, "core/plan", "child\n");
    assert!(is_refused(&memory, fork));
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "parent\n");
}

/// Unlike a promote, which makes both sides one again.
#[test]
fn what_was_shown_still_counts_after_something_else_was_taken_back() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    memory.commit(&who(), fork, vec![put("tea", None, Some("of the child"))]).unwrap();
    assert!(is_refused(&memory, fork));
    memory.undo(&who(), fork, RevertVerb::Undo, 1, false).unwrap();
    assert_eq!(texts(&memory, &View::Branch(fork)), [], "a control: the record was taken back");
    write(&memory, fork, "core/plan", "both\n");
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "both\n");
}

#[test]
fn a_write_that_resolves_a_conflict_is_held_against_the_rules_of_the_parent() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    memory.set(&who(), main, Setting::Rules, "core/** text manual append").unwrap();
    assert!(is_refused(&memory, fork));
    write(&memory, fork, "core/plan", "both\n");
    let error = memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap_err();
    assert_eq!(error.kind(), Kind::NotPermitted);
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "parent\n");
}

#[test]
fn a_conflict_that_a_pull_showed_is_resolved_for_the_pull() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    // Only the branch itself leaves it to somebody's hand.
    memory.set(&who(), main, Setting::Rules, "** whole parent-wins").unwrap();
    assert!(memory.merge(&who(), fork, MergeVerb::Pull, false).is_err());
    write(&memory, fork, "core/plan", "both\n");
    memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap();
    assert_eq!(read(&memory, fork, "core/plan").unwrap(), "both\n");
}

#[test]
fn a_conflict_that_only_a_pull_has_is_resolved_in_words() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = contradicting(&memory);
    // The branch has the rules that it inherited.
    memory.set(&who(), main, Setting::Rules, "core/** never").unwrap();
    assert!(memory.merge(&who(), fork, MergeVerb::Merge, true).unwrap().conflicts.is_empty());
    assert!(memory.merge(&who(), fork, MergeVerb::Pull, false).is_err());
    memory.resolve_conflict(&who(), fork, "files/core/plan", Side::Parent).unwrap();
    memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap();
    assert_eq!(read(&memory, fork, "core/plan").unwrap(), "parent\n");
}

#[test]
fn what_time_removes_resolves_no_conflict() {
    static NOW: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
    let around = Environment {
        clock: Box::new(|| Time(NOW.fetch_add(1_000, Ordering::Relaxed))),
        uptime: Box::new(|| std::time::Duration::from_nanos(NOW.load(Ordering::Relaxed).cast_unsigned())),
        ..environment()
    };
    let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
    let (main, fork) = contradicting(&memory);
    memory.set(&who(), fork, Setting::Rules, "core/** text manual ttl=1h").unwrap();
    assert!(is_refused(&memory, fork));
    NOW.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    memory.gc(&who(), None, false).unwrap();
    assert_eq!(read(&memory, fork, "core/plan"), None);
    assert!(is_refused(&memory, fork));
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "parent\n");
}

#[test]
fn a_write_below_a_directory_does_not_resolve_what_contradicts_of_the_directory() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "core/plan", "base\n");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for (branch, mode) in [(main, 0o700), (fork, 0o750)] {
        let inode = memory.files(&View::Branch(branch)).unwrap().resolve(b"core").unwrap();
        let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
        memory.edit(&who(), branch, FileOp::SetAttr { inode, attrs }).unwrap();
    }
    memory.set(&who(), main, Setting::Strategy, "manual").unwrap();
    let hint = || memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap_err().hint().into_owned();
    let of_directory = hint();
    assert!(of_directory.contains("resolves nothing of the directory"), "{of_directory}");
    assert!(!of_directory.contains("as well by writing"), "{of_directory}");
    write(&memory, fork, "core/plan", "child\n");
    assert!(is_refused(&memory, fork));
    write(&memory, main, "core/plan", "parent\n");
    let of_both = hint();
    assert!(of_both.contains("a file is resolved as well by writing it"), "{of_both}");
    assert!(of_both.contains("resolves nothing of the directory"), "{of_both}");
    // As the hint says.
    write(&memory, fork, "core/plan", "of both\n");
    memory.resolve_conflict(&who(), fork, "files/core", Side::Child).unwrap();
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "core/plan").unwrap(), "of both\n");
}

#[test]
fn a_write_of_a_record_does_not_resolve_its_conflict() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Strategy, "manual").unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let put_tea = |branch, text| memory.commit(&who(), branch, vec![put("tea", None, Some(text))]).unwrap();
    put_tea(main, "of the parent");
    put_tea(fork, "of the child");
    assert!(is_refused(&memory, fork));
    put_tea(fork, "of both");
    assert!(is_refused(&memory, fork));
    memory.resolve_conflict(&who(), fork, "tea", Side::Child).unwrap();
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
}

#[test]
fn a_write_that_could_not_be_noted_resolves_the_conflict_at_the_next_try() {
    let mut failures = 0;
    for nth in 1..6 {
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        let memory = Memory::open_on(Arc::new(faulty.clone()), OpenMode::Create, None, environment()).unwrap();
        let (main, fork) = contradicting(&memory);
        assert!(is_refused(&memory, fork));
        write(&memory, fork, "core/plan", "of both\n");
        faulty.plan(Fault::once(nth, &[DiskCall::Write], libc::ENOSPC));
        let first = memory.merge(&who(), fork, MergeVerb::Merge, false);
        faulty.clear();
        if first.is_err() {
            failures += 1;
            memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
        }
        assert_eq!(read(&memory, main, "core/plan").unwrap(), "of both\n", "a failure at write {nth}");
    }
    assert!(failures > 1, "of the entry of the files, of the resolution and of the merge");
}
