//! Plans of merges: what they name, when they stay the same, and merges that ask for one.

use std::collections::BTreeMap;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Attrs, BranchId, Document, FILES_ROOT, FileName, FileOp, Kind, Memory, MergeOptions, MergeResult, MergeVerb,
    NewInode, RenameMode, Setting, ShowTarget, View, Viewer,
};

use crate::files::{read, try_write, write};
use crate::support::{Chance, delete, main_of, open, put, rounds, verify, who};

fn dry(memory: &Memory, branch: BranchId, merge: MergeVerb) -> MergeResult {
    memory.merge(&who(), branch, merge, true).unwrap()
}

fn named(result: &MergeResult) -> Vec<&str> {
    result.not_merged.iter().map(|path| &**path).collect()
}

fn remove(memory: &Memory, branch: BranchId, name: &str) {
    let name = FileName::new(name.as_bytes()).unwrap();
    memory.edit(&who(), branch, FileOp::Unlink { parent: FILES_ROOT, name, keep: false }).unwrap();
}

/// A branch that changed, added and deleted what a rule leaves out, and some that it does not.
fn with_left_out(memory: &Memory) -> (BranchId, BranchId) {
    let main = main_of(memory);
    memory.set(&who(), main, Setting::Rules, "cache/keep/** text\ncache/** never\n*.tmp never").unwrap();
    for path in ["cache/old", "cache/same", "a.tmp", "gone.tmp"] {
        write(memory, main, path, "base\n");
    }
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(memory, fork, "cache/old", "changed\n");
    write(memory, fork, "cache/new/deep", "added\n");
    write(memory, fork, "cache/keep/a", "merges\n");
    write(memory, fork, "both.tmp", "alike\n");
    write(memory, main, "both.tmp", "alike\n");
    write(memory, fork, "notes", "merges\n");
    remove(memory, fork, "gone.tmp");
    (main, fork)
}

#[test]
fn what_a_rule_leaves_out_is_named_and_stays_readable() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, fork) = with_left_out(&memory);
    let wanted = ["files/cache/new/deep", "files/cache/old", "files/gone.tmp"];
    for merge in [MergeVerb::Merge, MergeVerb::Promote] {
        assert_eq!(named(&dry(&memory, fork, merge)), wanted);
    }
    let head = memory.status(&View::Branch(fork)).unwrap()["head"].as_str().unwrap().to_owned();
    let done = memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(named(&done), wanted);
    assert_eq!(read(&memory, main, "cache/old").unwrap(), "base\n");
    assert_eq!(read(&memory, main, "cache/keep/a").unwrap(), "merges\n");
    let line: serde_json::Value = serde_json::from_str(&done.to_json()).unwrap();
    assert_eq!(line["not_merged"], serde_json::json!(wanted));
    let entry = memory.lineage_lines(main, false).unwrap().pop().unwrap();
    let entry: serde_json::Value = serde_json::from_str(&entry).unwrap();
    assert_eq!((&entry["not_merged"], &entry["plan"]), (&line["not_merged"], &line["plan"]));
    assert_eq!(entry["child_head"], head);
    for again in [false, true] {
        let memory = if again { open(&disk).unwrap() } else { memory.clone() };
        let shown = memory.show(main, ShowTarget::Hash(head.parse().unwrap()), Viewer::UNRESTRICTED);
        assert!(shown.is_ok(), "the branch's state is kept");
        memory.close().unwrap();
    }
    verify(&disk).unwrap();
}

#[test]
fn a_pull_names_what_it_leaves_out_of_the_parent() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "*.tmp never").unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, main, "of.tmp", "parent\n");
    write(&memory, fork, "own.tmp", "child\n");
    assert_eq!(named(&memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap()), ["files/of.tmp"]);
    assert_eq!(read(&memory, fork, "of.tmp"), None);
    let diff = String::from_utf8(memory.document(&View::Branch(fork), Document::Diff).unwrap().to_vec()).unwrap();
    let lines: Vec<serde_json::Value> = diff.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let left_out = lines.iter().find(|line| line["path"] == "files/of.tmp").unwrap();
    assert_eq!(left_out["change"], "deleted");
    // What the pull left out is in the base now, and so is missing in the branch.
    assert_eq!(named(&dry(&memory, fork, MergeVerb::Merge)), ["files/of.tmp", "files/own.tmp"]);
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "of.tmp").unwrap(), "parent\n");
}

#[test]
fn a_merge_is_done_if_its_plan_is_the_one_that_was_asked_for() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("a", None, Some("base"))]).unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    memory.commit(&who(), fork, vec![put("a", None, Some("child"))]).unwrap();
    for merge in [MergeVerb::Pull, MergeVerb::Promote, MergeVerb::Merge] {
        let plan = dry(&memory, fork, merge).plan;
        memory.commit(&who(), fork, vec![put("a", None, Some(&format!("{merge:?}")))]).unwrap();
        memory.commit(&who(), main, vec![put("a", None, Some(&format!("of main {merge:?}")))]).unwrap();
        let entries = memory.lineage_lines(fork, false).unwrap().len();
        let terms = MergeOptions { plan: Some(plan), ..MergeOptions::default() };
        let error = memory.merge_with(&who(), fork, merge, terms).unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Busy, "plan_changed"));
        assert_eq!(memory.lineage_lines(fork, false).unwrap().len(), entries, "nothing was done");
        let blocked = memory.dry_run(&who(), fork, merge, Some(plan)).unwrap();
        assert_eq!((blocked.status, blocked.blockers[0].code()), ("blocked", "plan_changed"));
        let plan = Some(blocked.plan);
        memory.commit(&who(), main, vec![put("elsewhere", None, Some("main goes on"))]).unwrap();
        let plan = if merge == MergeVerb::Pull { Some(dry(&memory, fork, merge).plan) } else { plan };
        let done = memory.merge_with(&who(), fork, merge, MergeOptions { plan, ..MergeOptions::default() }).unwrap();
        assert_eq!(Some(done.plan), plan);
    }
}

#[test]
fn the_id_under_which_a_version_is_kept_is_in_the_plan() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Strategy, "keep-both").unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    memory.commit(&who(), fork, vec![put("a", None, Some("child"))]).unwrap();
    memory.commit(&who(), main, vec![put("a", None, Some("parent"))]).unwrap();
    let planned = || dry(&memory, fork, MergeVerb::Merge).plan;
    let plan = planned();
    memory.commit(&who(), main, vec![put("a~y", None, Some("no id that the merge gives"))]).unwrap();
    assert_eq!(planned(), plan, "a control");
    memory.commit(&who(), main, vec![put("a~x", None, Some("now it gives another"))]).unwrap();
    assert_ne!(planned(), plan);
}

#[test]
fn settings_and_the_branch_are_in_the_plan() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let forks = ["x", "y"].map(|name| memory.fork(&who(), main, name, None).unwrap());
    for fork in forks {
        memory.commit(&who(), fork, vec![put("a", None, Some("child"))]).unwrap();
    }
    let mut plans = vec![dry(&memory, forks[0], MergeVerb::Merge).plan, dry(&memory, forks[1], MergeVerb::Merge).plan];
    let of_parent = [(Setting::Strategy, "manual"), (Setting::Rules, "* whole"), (Setting::Gate, "deletes 9")];
    for (setting, value) in of_parent {
        memory.set(&who(), main, setting, value).unwrap();
        plans.push(dry(&memory, forks[0], MergeVerb::Merge).plan);
    }
    // What the branch itself has set counts for a pull alone.
    memory.set(&who(), forks[0], Setting::Strategy, "child-wins").unwrap();
    assert_eq!(dry(&memory, forks[0], MergeVerb::Merge).plan, *plans.last().unwrap());
    plans.sort();
    plans.dedup();
    assert_eq!(plans.len(), 5);
}

/// What the parent has at each item that the child changed.
type Touched = BTreeMap<String, Option<String>>;

fn step(memory: &Memory, branch: BranchId, chance: &mut Chance, name: usize) {
    let value = format!("{}\n", chance.below(3));
    match chance.below(5) {
        0 => drop(memory.commit(&who(), branch, vec![delete(&format!("r{name}"))]).unwrap()),
        1 | 2 => drop(memory.commit(&who(), branch, vec![put(&format!("r{name}"), None, Some(&value))]).unwrap()),
        _ => write(memory, branch, &format!("f{name}"), &value),
    }
}

fn touched(memory: &Memory, main: BranchId, names: &[usize]) -> Touched {
    let records = crate::support::texts(memory, &View::Branch(main)).into_iter().collect::<BTreeMap<_, _>>();
    let of_name = |name: &usize| {
        let (record, file) = (format!("r{name}"), format!("f{name}"));
        let file_there = read(memory, main, &file);
        [(record.clone(), records.get(&record).cloned()), (file, file_there)]
    };
    names.iter().flat_map(of_name).collect()
}

/// Whatever the parent does, the plan is a function of what it has where the child changed something.
#[test]
fn a_plan_stays_while_the_parent_touches_nothing_of_it() {
    let (mut stayed, mut changed) = (0, 0);
    for seed in 0..rounds(6) as u64 {
        let mut chance = Chance(seed);
        let memory = open(&ForgetfulDisk::new()).unwrap();
        let main = main_of(&memory);
        // Times decide nothing then.
        memory.set(&who(), main, Setting::Strategy, "child-wins").unwrap();
        memory.set(&who(), main, Setting::Rules, "* text").unwrap();
        for name in 0..12 {
            memory.commit(&who(), main, vec![put(&format!("r{name}"), None, Some("base\n"))]).unwrap();
            write(&memory, main, &format!("f{name}"), "base\n");
        }
        let fork = memory.fork(&who(), main, "x", None).unwrap();
        for name in 0..6 {
            memory.commit(&who(), fork, vec![put(&format!("r{name}"), None, Some("child\n"))]).unwrap();
            write(&memory, fork, &format!("f{name}"), "child\n");
        }
        let mut known: BTreeMap<Touched, String> = BTreeMap::new();
        for round in 0..40 {
            let of_child: Vec<usize> = (0..6).collect();
            let plan = dry(&memory, fork, MergeVerb::Merge).plan.to_string();
            let there = touched(&memory, main, &of_child);
            match known.get(&there) {
                Some(before) => {
                    assert_eq!(*before, plan, "seed {seed}, round {round}: nothing of the plan was touched");
                    stayed += 1;
                }
                None => {
                    let is_new = known.values().all(|other| *other != plan);
                    assert!(is_new, "seed {seed}, round {round}: something of the plan was touched");
                    known.insert(there, plan);
                    changed += 1;
                }
            }
            if chance.one_in(10) {
                memory.seal().unwrap();
            }
            let name = if chance.one_in(3) { chance.below(6) } else { 6 + chance.below(8) };
            step(&memory, main, &mut chance, name);
        }
    }
    assert!(stayed > 50 && changed > 20, "{stayed} stayed, {changed} changed");
}

#[test]
fn a_result_counts_what_is_put_and_what_is_deleted_apart() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let all = ["a", "b", "c", "d"].map(|id| put(id, None, Some("base")));
    memory.commit(&who(), main, all.into()).unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    memory.commit(&who(), fork, vec![put("a", None, Some("child")), put("new", None, Some("n")), delete("b")]).unwrap();
    memory
        .commit(&who(), main, vec![put("c", None, Some("parent")), put("other", None, Some("o")), delete("d")])
        .unwrap();
    for merge in [MergeVerb::Pull, MergeVerb::Promote] {
        let counts = dry(&memory, fork, merge).counts;
        assert_eq!((counts.put, counts.deleted), (2, 1), "{merge:?}");
    }
}

/// What the parent has already does not change it, and a directory is counted by the entry of the branch alone.
#[test]
fn files_are_counted_as_the_receiving_branch_changes_and_directories_by_other_entries_alone() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "a", "base");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for (path, bytes) in [("a", "child"), ("new/deep/b", "b"), ("same", "s")] {
        write(&memory, fork, path, bytes);
    }
    write(&memory, main, "same", "s");
    write(&memory, main, "of/parent", "p");
    let pull = dry(&memory, fork, MergeVerb::Pull).counts;
    assert_eq!((pull.put, pull.deleted, pull.files), (0, 0, 1), "the file in of/");
    memory.merge(&who(), fork, MergeVerb::Promote, false).unwrap();
    let counted = |op: &str, branch: &str| {
        let lines = memory.lineage_lines(main, false).unwrap();
        let mut entries = lines.iter().rev().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let newest = entries.find(|entry| entry["op"] == op && entry["branch"] == branch);
        newest.unwrap()["counts"]["files"].clone()
    };
    assert_eq!((counted("promote", "main/x"), counted("files", "main/x")), (2.into(), 5.into()));
}

#[test]
fn a_gate_counts_directories_and_further_names_which_files_leaves_out() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for path in ["old/a", "mode/b", "c"] {
        write(&memory, main, path, "base");
    }
    memory.set(&who(), main, Setting::Gate, "puts 0\ndeletes 0").unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let edit = |op| memory.edit(&who(), fork, op).unwrap();
    let [made, link, old, new] = ["made", "link", "old", "new"].map(|name| FileName::new(name.as_bytes()).unwrap());
    let (parent, new_parent, make) = (FILES_ROOT, FILES_ROOT, NewInode::Directory);
    edit(FileOp::Create { parent, name: made, make, mode: 0o755, uid: 1000, gid: 1000 });
    edit(FileOp::Rename { parent, name: old, new_parent, new_name: new, mode: RenameMode::Plain, keep: false });
    let tree = memory.files(&View::Branch(fork)).unwrap();
    let at = |path: &[u8]| tree.resolve(path).unwrap();
    edit(FileOp::SetAttr { inode: at(b"mode"), attrs: Attrs { mode: Some(0o775), ..Attrs::default() } });
    edit(FileOp::Link { inode: at(b"c"), parent, name: link });
    let tried = dry(&memory, fork, MergeVerb::Merge);
    assert_eq!((tried.counts.files, tried.blockers.len()), (0, 1));
    let told = tried.blockers[0].to_string();
    // made, mode, link and new/a; old/a.
    assert!(told.contains("there are 4 puts") && told.contains("there are 1 deletes"), "{told}");
}

#[test]
fn a_plan_of_a_pull_changes_with_all_that_the_parent_has_and_with_the_branchs_own_settings() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let mut plans = vec![dry(&memory, fork, MergeVerb::Pull).plan];
    memory.set(&who(), main, Setting::Strategy, "manual").unwrap();
    assert_eq!(dry(&memory, fork, MergeVerb::Pull).plan, plans[0], "what the parent has set counts for merges");
    memory.set(&who(), fork, Setting::Strategy, "child-wins").unwrap();
    plans.push(dry(&memory, fork, MergeVerb::Pull).plan);
    memory.commit(&who(), main, vec![put("of main", None, Some("parent"))]).unwrap();
    plans.push(dry(&memory, fork, MergeVerb::Pull).plan);
    memory.commit(&who(), fork, vec![put("own", None, Some("child"))]).unwrap();
    plans.push(dry(&memory, fork, MergeVerb::Pull).plan);
    plans.sort();
    plans.dedup();
    assert_eq!(plans.len(), 4);
}

/// What both sides changed: alike, joined and differently.
#[test]
fn conflicts_list_all_that_both_sides_changed_and_a_result_what_differs() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Strategy, "parent-wins").unwrap();
    write(&memory, main, "joined", "1\n2\n3\n4\n5\n");
    memory.commit(&who(), main, vec![put("same", None, Some("before"))]).unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for (branch, side, lines) in [(fork, "child", "child\n2\n3\n4\n5\n"), (main, "parent", "1\n2\n3\n4\nparent\n")] {
        memory.commit(&who(), branch, vec![put("same", None, Some("alike")), put("other", None, Some(side))]).unwrap();
        write(&memory, branch, "joined", lines);
    }
    memory.commit(&who(), fork, vec![put("alone", None, Some("of one side"))]).unwrap();
    memory.checkpoint(&who(), fork, "v1", None).unwrap();
    let listed = |view: View| {
        let bytes = memory.document(&view, Document::Conflicts).unwrap();
        let lines = std::str::from_utf8(&bytes).unwrap().lines();
        lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let decisions = |lines: &[serde_json::Value]| -> BTreeMap<String, String> {
        let name = |line: &serde_json::Value| line.get("id").or(line.get("path")).unwrap().as_str().unwrap().to_owned();
        lines.iter().map(|line| (name(line), line["decision"].as_str().unwrap().to_owned())).collect()
    };
    let all = [("files/joined", "both"), ("other", "parent"), ("same", "both")];
    let all = all.map(|(name, decision)| (name.to_owned(), decision.to_owned())).into();
    let lines = listed(View::Branch(fork));
    assert_eq!(decisions(&lines), all);
    let texts_of_sides = |id: &str| {
        let line = lines.iter().find(|line| line["id"] == id).unwrap();
        ["base_text", "child_text", "parent_text"].map(|key| line[key].as_str().map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(texts_of_sides("other"), [None, some("child"), some("parent")]);
    assert_eq!(texts_of_sides("same"), [some("before"), some("alike"), some("alike")]);
    assert!(lines.iter().any(|line| line["id"] == "other" && line["base"].is_null()));
    let file = lines.iter().find(|line| line["path"] == "files/joined").unwrap();
    assert_eq!(file.get("base_text"), None, "{file}");
    assert!(listed(View::Branch(main)).is_empty() && listed(View::Checkpoint(fork, "v1".into())).is_empty());
    let result = memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(result.conflicts.iter().map(|conflict| &*conflict.id).collect::<Vec<_>>(), ["other"]);
    let entry = memory.lineage_lines(main, false).unwrap().pop().unwrap();
    let entry: serde_json::Value = serde_json::from_str(&entry).unwrap();
    assert_eq!(decisions(entry["conflicts"].as_array().unwrap()), all);
}

/// If any of them dated the delete anew, the parent's edit, which came in between, would lose.
#[test]
fn forks_checkpoints_and_merges_keep_the_time_of_a_delete_until_the_record_is_written_again() {
    for written_again in [false, true] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        memory.commit(&who(), main, vec![put("a", None, Some("base")), put("b", None, Some("base"))]).unwrap();
        let child = memory.fork(&who(), main, "child", None).unwrap();
        let below = memory.fork(&who(), child, "below", None).unwrap();
        memory.commit(&who(), below, vec![delete("a")]).unwrap();
        memory.commit(&who(), main, vec![put("a", None, Some("later")), put("b", None, Some("later"))]).unwrap();
        memory.commit(&who(), below, vec![delete("b")]).unwrap();
        memory.merge(&who(), below, MergeVerb::Merge, false).unwrap();
        memory.checkpoint(&who(), child, "v1", None).unwrap();
        memory.seal().unwrap();
        drop(memory);
        let memory = open(&disk).unwrap();
        let last = memory.fork(&who(), child, "last", Some("v1")).unwrap();
        if written_again {
            memory.commit(&who(), last, vec![put("a", None, Some("again"))]).unwrap();
        }
        memory.merge(&who(), last, MergeVerb::Merge, false).unwrap();
        memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
        let expected = if written_again { "again" } else { "later" };
        assert_eq!(crate::support::texts(&memory, &View::Branch(main)), [("a".to_owned(), expected.to_owned())]);
    }
}

#[test]
fn keep_both_decides_files_as_newest_wins_does() {
    for (first, expected) in [("child", "of main"), ("main", "of the child")] {
        let memory = open(&ForgetfulDisk::new()).unwrap();
        let main = main_of(&memory);
        memory.set(&who(), main, Setting::Strategy, "keep-both").unwrap();
        let child = memory.fork(&who(), main, "child", None).unwrap();
        let mut sides = [(child, "of the child"), (main, "of main")];
        if first == "main" {
            sides.reverse();
        }
        for (branch, text) in sides {
            write(&memory, branch, "f", text);
        }
        let result = memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
        assert_eq!((result.conflicts.len(), read(&memory, main, "f").as_deref()), (1, Some(expected)));
        let tree = memory.files(&View::Branch(main)).unwrap();
        assert_eq!(tree.entries(FILES_ROOT, None).unwrap().count(), 1, "no file has another name");
    }
}

#[test]
fn no_rule_that_restricts_writes_binds_a_pull_or_a_rollback() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for (path, text) in [("logs/l", "one"), ("plans/p", "old")] {
        write(&memory, main, path, text);
    }
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    memory.set(&who(), fork, Setting::Rules, "plans/** text write=uid:1001\nlogs/** text append\n** text").unwrap();
    memory.checkpoint(&who(), fork, "v1", None).unwrap();
    for (path, text) in [("logs/l", "other"), ("plans/p", "new")] {
        assert!(try_write(&memory, &who(), fork, path, text).is_err(), "a control: the rules of {path} bind a write");
        write(&memory, main, path, text);
    }
    let found = || ["logs/l", "plans/p"].map(|path| read(&memory, fork, path).unwrap());
    memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap();
    assert_eq!(found(), ["other", "new"]);
    memory.rollback(&who(), fork, "v1").unwrap();
    assert_eq!(found(), ["one", "old"]);
}

#[test]
fn the_heads_of_base_and_parent_are_each_in_the_plan_of_a_pull() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    // What never merges moves heads and is taken by no pull.
    memory.set(&who(), main, Setting::Rules, "*.tmp never").unwrap();
    write(&memory, main, "a.tmp", "one");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let plan_at = |bytes: &str| {
        write(&memory, main, "a.tmp", bytes);
        let result = dry(&memory, fork, MergeVerb::Pull);
        assert_eq!((named(&result), result.counts.put, result.counts.files), (vec!["files/a.tmp"], 0, 0));
        result.plan
    };
    let (two, three) = (plan_at("two"), plan_at("three"));
    assert!(two != three, "the parent's head is another one");
    assert_eq!(plan_at("two"), two, "all is as it was");
    // The base goes on to what the parent has for this moment, and nothing else does.
    write(&memory, main, "a.tmp", "four");
    memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap();
    assert_eq!(read(&memory, fork, "a.tmp").unwrap(), "one");
    assert!(plan_at("two") != two, "the base's head is another one");
}

#[test]
fn after_a_promote_the_parents_new_content_is_the_branchs_own_and_its_base() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    memory.commit(&who(), fork, vec![put("of x", None, Some("child"))]).unwrap();
    memory.commit(&who(), main, vec![put("of main", None, Some("parent"))]).unwrap();
    write(&memory, main, "note", "parent\n");
    memory.merge(&who(), fork, MergeVerb::Promote, false).unwrap();
    let [of_main, of_fork] = [main, fork].map(|branch| memory.status(&View::Branch(branch)).unwrap());
    assert_eq!((&of_fork["head"], &of_fork["base"]), (&of_main["head"], &of_main["head"]));
    assert_eq!((&of_fork["records"], &of_fork["own_edits"]), (&2.into(), &0.into()));
}

#[test]
fn after_a_fork_and_after_a_pull_the_base_is_what_the_parent_has() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("of main", None, Some("old"))]).unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let figure = |branch, name: &str| memory.status(&View::Branch(branch)).unwrap()[name].clone();
    assert_eq!(figure(fork, "base"), figure(main, "head"));
    memory.commit(&who(), fork, vec![put("of x", None, Some("child"))]).unwrap();
    memory.commit(&who(), main, vec![put("of main", None, Some("new"))]).unwrap();
    memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap();
    assert_eq!(figure(fork, "base"), figure(main, "head"));
    assert_ne!(figure(fork, "base"), figure(fork, "head"), "a control");
    assert_eq!((figure(fork, "records"), figure(fork, "own_edits")), (2.into(), 1.into()));
}

#[test]
fn after_a_promote_a_branch_has_the_parents_files_where_a_rule_is_never() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, fork) = with_left_out(&memory);
    let done = memory.merge(&who(), fork, MergeVerb::Promote, false).unwrap();
    assert_eq!(named(&done), ["files/cache/new/deep", "files/cache/old", "files/gone.tmp"]);
    for branch in [main, fork] {
        let content = |path: &str| read(&memory, branch, path);
        assert_eq!((content("cache/old").as_deref(), content("cache/new/deep")), (Some("base\n"), None));
        assert_eq!((content("gone.tmp").as_deref(), content("notes").as_deref()), (Some("base\n"), Some("merges\n")));
    }
}
