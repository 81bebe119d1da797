//! Files without a mount: rules, rollback, merging, and what is left of what lost.

mod differences;
mod entries;
mod lifetimes;
mod lost_lines;

use engramfs::disk::{Disk, ForgetfulDisk};
use engramfs::memory::{
    Actor, Attrs, BranchId, Document, EditError, FILES_ROOT, FileName, FileOp, Hash, Kind, Memory, MergeVerb, NewInode,
    Setting, ShowTarget, Time, View, Viewer, XattrMode,
};

use crate::support::{main_of, open, put, verify, who};

/// Makes a file or gives it other bytes.
pub fn write(memory: &Memory, branch: BranchId, path: &str, bytes: &str) {
    try_write(memory, &who(), branch, path, bytes).unwrap();
}

pub fn try_write(memory: &Memory, who: &Actor, branch: BranchId, path: &str, bytes: &str) -> Result<(), EditError> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = folders(memory, branch, folder);
    let tree = memory.files(&View::Branch(branch)).unwrap();
    let inode = match tree.lookup(parent, name.as_bytes()) {
        Ok(inode) => {
            let attrs = Attrs { size: Some(0), ..Attrs::default() };
            memory.edit(who, branch, FileOp::SetAttr { inode, attrs })?;
            inode
        }
        Err(_) => memory.edit(who, branch, create(parent, name, NewInode::File))?.inode,
    };
    memory.edit(who, branch, FileOp::Write { inode, offset: 0, bytes: bytes.as_bytes().into() })?;
    Ok(())
}

fn create(parent: u64, name: &str, make: NewInode) -> FileOp<'static> {
    FileOp::Create { parent, name: FileName::new(name.as_bytes()).unwrap(), make, mode: 0o755, uid: 1000, gid: 1000 }
}

fn folders(memory: &Memory, branch: BranchId, path: &str) -> u64 {
    path.split('/').filter(|name| !name.is_empty()).fold(FILES_ROOT, |parent, name| {
        let tree = memory.files(&View::Branch(branch)).unwrap();
        tree.lookup(parent, name.as_bytes())
            .unwrap_or_else(|_| memory.edit(&who(), branch, create(parent, name, NewInode::Directory)).unwrap().inode)
    })
}

pub fn read(memory: &Memory, branch: BranchId, path: &str) -> Option<String> {
    read_in(memory, &View::Branch(branch), path)
}

fn read_in(memory: &Memory, view: &View, path: &str) -> Option<String> {
    let tree = memory.files(view).unwrap();
    let inode = tree.resolve(path.as_bytes()).ok()?;
    Some(String::from_utf8(tree.read(inode, 0, 1 << 20, memory.packs()).unwrap()).unwrap())
}

fn refused(result: Result<(), EditError>) -> engramfs::memory::Error {
    match result {
        Err(EditError::Refused(error)) => error,
        other => panic!("{other:?} should have been refused"),
    }
}

#[test]
fn only_those_whom_a_rule_names_may_write_there_and_the_refusal_is_an_entry() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "plans/** text write=uid:1001,gid:50\n** text").unwrap();
    folders(&memory, main, "notes");
    write(&memory, main, "notes/a", "free");
    let ann = who();
    let bob = Actor { uid: 1001, ..who() };
    let staff = Actor { uid: 7, gid: 50, ..who() };
    let plans = memory.edit(&bob, main, create(FILES_ROOT, "plans", NewInode::Directory));
    assert!(plans.is_ok(), "{plans:?}");
    let error = refused(try_write(&memory, &ann, main, "plans/p", "no"));
    assert_eq!((error.kind(), error.code()), (Kind::Denied, "write_rule"));
    assert_eq!(read(&memory, main, "plans/p"), None);
    try_write(&memory, &bob, main, "plans/p", "by bob").unwrap();
    try_write(&memory, &staff, main, "plans/q", "by staff").unwrap();
    let inode = memory.files(&View::Branch(main)).unwrap().resolve(b"plans/p").unwrap();
    for op in [
        FileOp::Unlink { parent: folders(&memory, main, "plans"), name: FileName::new(b"p").unwrap(), keep: false },
        FileOp::Link { inode, parent: FILES_ROOT, name: FileName::new(b"free").unwrap() },
        FileOp::SetAttr { inode, attrs: Attrs { mode: Some(0o777), ..Attrs::default() } },
    ] {
        assert_eq!(refused(memory.edit(&ann, main, op).map(|_| ())).kind(), Kind::Denied);
    }
    let lines = memory.lineage_lines(main, false).unwrap();
    assert!(lines.iter().any(|line| line.contains("\"op\":\"refuse\"") && line.contains("write_rule")), "{lines:#?}");
}

pub fn rename(from: (u64, &str), to: (u64, &str)) -> FileOp<'static> {
    let name = |name: &str| FileName::new(name.as_bytes()).unwrap();
    let mode = engramfs::memory::RenameMode::Plain;
    FileOp::Rename { parent: from.0, name: name(from.1), new_parent: to.0, new_name: name(to.1), mode, keep: false }
}

#[test]
fn a_rule_binds_what_is_in_a_directory_that_is_moved() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let bob = Actor { uid: 1001, ..who() };
    memory.set(&who(), main, Setting::Rules, "plans/** text write=uid:1001\nlogs/** text append\n** text").unwrap();
    let (work, free) = (folders(&memory, main, "work"), folders(&memory, main, "free/deep"));
    let plans = memory.edit(&bob, main, create(work, "plans", NewInode::Directory)).unwrap().inode;
    memory.edit(&bob, main, create(plans, "p", NewInode::File)).unwrap();
    write(&memory, main, "work/logs/l", "line");
    write(&memory, main, "free/deep/f", "free");
    let refusal = |who: &Actor, op| refused(memory.edit(who, main, op).map(|_| ())).code();
    // Away from where the rule is for, and to there.
    assert_eq!(refusal(&who(), rename((FILES_ROOT, "work"), (FILES_ROOT, "w"))), "write_rule");
    assert_eq!(refusal(&who(), rename((FILES_ROOT, "free"), (work, "plans"))), "write_rule");
    assert_eq!(refusal(&who(), rename((FILES_ROOT, "free"), (FILES_ROOT, "plans"))), "write_rule");
    // A log may not go anywhere, whoever moves it.
    assert_eq!(refusal(&bob, rename((FILES_ROOT, "work"), (FILES_ROOT, "w"))), "append_rule");
    memory.edit(&who(), main, rename((FILES_ROOT, "free"), (FILES_ROOT, "still-free"))).unwrap();
    memory.edit(&bob, main, rename((free, "f"), (plans, "f"))).unwrap();
}

#[test]
fn a_merge_does_not_do_what_the_parents_rules_forbid() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let (owner, bob, eve) = (who(), Actor { uid: 1001, ..who() }, Actor { uid: 1002, ..who() });
    memory.set(&owner, main, Setting::Rules, "plans/** text write=uid:1001\nlogs/** text append\n** text").unwrap();
    folders(&memory, main, "plans");
    folders(&memory, main, "logs");
    write(&memory, main, "logs/l", "one\n");
    let forked = |name: &str| {
        let fork = memory.fork(&eve, main, name, None).unwrap();
        memory.set(&eve, fork, Setting::Rules, "** text").unwrap();
        fork
    };
    let x = forked("x");
    try_write(&memory, &eve, x, "plans/p", "by eve").unwrap();
    for join in [MergeVerb::Merge, MergeVerb::Promote] {
        let error = memory.merge(&eve, x, join, false).unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Denied, "write_rule"));
    }
    let dry = memory.merge(&eve, x, MergeVerb::Merge, true).unwrap();
    assert_eq!((dry.status, dry.blockers[0].code()), ("blocked", "write_rule"));
    assert_eq!(read(&memory, main, "plans/p"), None);
    // Whom the rule names may, and so may the owner, who sets the rules.
    memory.merge(&bob, x, MergeVerb::Promote, false).unwrap();
    try_write(&memory, &eve, x, "plans/p", "by eve again").unwrap();
    memory.merge(&owner, x, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "plans/p").unwrap(), "by eve again");
    // A log gets longer and no other, whoever merges.
    let y = forked("y");
    try_write(&memory, &eve, y, "logs/l", "one\ntwo\n").unwrap();
    memory.merge(&owner, y, MergeVerb::Promote, false).unwrap();
    try_write(&memory, &eve, y, "logs/l", "another\n").unwrap();
    let error = memory.merge(&owner, y, MergeVerb::Merge, false).unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::NotPermitted, "append_rule"));
    assert_eq!(read(&memory, main, "logs/l").unwrap(), "one\ntwo\n");
    let lines = memory.lineage_lines(y, false).unwrap();
    assert!(lines.iter().any(|line| line.contains("\"op\":\"refuse\"") && line.contains("append_rule")), "{lines:#?}");
}

#[test]
fn a_log_that_may_only_be_appended_to_keeps_every_byte() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "logs/** text append\n** text").unwrap();
    let logs = folders(&memory, main, "logs");
    let inode = memory.edit(&who(), main, create(logs, "l", NewInode::File)).unwrap().inode;
    let at = |offset: u64, bytes: &'static str| FileOp::Write { inode, offset, bytes: bytes.as_bytes().into() };
    memory.edit(&who(), main, at(0, "one\n")).unwrap();
    memory.edit(&who(), main, at(4, "two\n")).unwrap();
    let cut = Attrs { size: Some(2), ..Attrs::default() };
    let name = || FileName::new(b"l").unwrap();
    let forbidden = [
        at(3, "x"),
        FileOp::SetAttr { inode, attrs: cut },
        FileOp::Unlink { parent: logs, name: name(), keep: false },
        FileOp::Rename {
            parent: logs,
            name: name(),
            new_parent: FILES_ROOT,
            new_name: name(),
            mode: engramfs::memory::RenameMode::Plain,
            keep: false,
        },
    ];
    for op in forbidden {
        let error = refused(memory.edit(&who(), main, op).map(|_| ()));
        assert_eq!((error.kind(), error.code()), (Kind::NotPermitted, "append_rule"));
    }
    let time = Time(7);
    let attrs = Attrs { mode: Some(0o600), uid: Some(1001), gid: Some(1002), mtime: Some(time), ..Attrs::default() };
    memory.edit(&who(), main, FileOp::SetAttr { inode, attrs }).unwrap();
    let tree = memory.files(&View::Branch(main)).unwrap();
    let node = tree.node(inode).unwrap();
    assert_eq!((node.mode, tree.owner(node), node.gid, node.mtime), (0o600, 1001, 1002, time));
    assert_eq!(read(&memory, main, "logs/l").unwrap(), "one\ntwo\n");
}

#[test]
fn a_rollback_may_be_limited_to_files_at_some_paths() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    for path in ["notes/a", "notes/deep/b", "other/c"] {
        write(&memory, main, path, "before");
    }
    let mark = |value: &str, mode: u32| {
        let inode = memory.files(&View::Branch(main)).unwrap().resolve(b"notes/a").unwrap();
        let (name, value, attrs) = (b"user.k".to_vec(), value.into(), Attrs { mode: Some(mode), ..Attrs::default() });
        memory.edit(&who(), main, FileOp::SetXattr { inode, name, value, mode: XattrMode::Any }).unwrap();
        memory.edit(&who(), main, FileOp::SetAttr { inode, attrs }).unwrap();
    };
    mark("before", 0o640);
    memory.commit(&who(), main, vec![put("r", None, Some("before"))]).unwrap();
    memory.checkpoint(&who(), main, "v1", None).unwrap();
    for path in ["notes/a", "notes/deep/b", "notes/new", "other/c"] {
        write(&memory, main, path, "after");
    }
    mark("after", 0o600);
    memory.commit(&who(), main, vec![put("r", None, Some("after"))]).unwrap();
    let receipt = memory.rollback_files(&who(), main, "v1", &["files/notes/**".to_owned()]).unwrap();
    assert_eq!((receipt.put, receipt.deleted), (0, 0));
    assert_eq!(read(&memory, main, "notes/a").unwrap(), "before");
    let tree = memory.files(&View::Branch(main)).unwrap();
    let node = tree.node(tree.resolve(b"notes/a").unwrap()).unwrap();
    assert_eq!((node.mode, node.xattr(b"user.k")), (0o640, Some(&b"before"[..])));
    assert_eq!(read(&memory, main, "notes/deep/b").unwrap(), "before");
    assert_eq!(read(&memory, main, "notes/new"), None);
    assert_eq!(read(&memory, main, "other/c").unwrap(), "after");
    assert_eq!(crate::support::texts(&memory, &View::Branch(main)), [("r".to_owned(), "after".to_owned())]);
    let before = memory.status(&View::Branch(main)).unwrap()["head"].clone();
    let refused = memory.rollback_files(&who(), main, "v1", &["files/none/**".to_owned()]).unwrap_err();
    assert_eq!((refused.code(), &memory.status(&View::Branch(main)).unwrap()["head"]), ("no_match", &before));
    write(&memory, main, "notes/deep/b", "again");
    memory.rollback_files(&who(), main, "v1", &["files/notes".to_owned()]).unwrap();
    assert_eq!(read(&memory, main, "notes/deep/b").unwrap(), "before", "what is in a directory goes with it");
    for bad in ["notes/**", "files/", "files/[a"] {
        assert_eq!(
            memory.rollback_files(&who(), main, "v1", &[bad.to_owned()]).unwrap_err().kind(),
            Kind::Invalid,
            "{bad}"
        );
    }
    memory.rollback(&who(), main, "v1").unwrap();
    assert_eq!(read(&memory, main, "other/c").unwrap(), "before");
    let entry = memory.lineage_lines(main, false).unwrap().pop().unwrap();
    let entry: serde_json::Value = serde_json::from_str(&entry).unwrap();
    assert_eq!((&entry["op"], &entry["counts"]["files"]), (&"rollback".into(), &1.into()), "{entry}");
    memory.close().unwrap();
    verify(&disk).unwrap();
}

#[test]
fn a_rollback_brings_back_owners_times_and_links_also_of_what_never_merges() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "cache/** never\n** text").unwrap();
    let edit = |op| memory.edit(&who(), main, op).unwrap().inode;
    for folder in ["cache", "notes"] {
        write(&memory, main, &format!("{folder}/a"), "before");
        let (parent, name) = (folders(&memory, main, folder), FileName::new(b"b").unwrap());
        let inode = memory.files(&View::Branch(main)).unwrap().lookup(parent, b"a").unwrap();
        edit(FileOp::Link { inode, parent, name });
        edit(FileOp::SetAttr { inode, attrs: Attrs { uid: Some(1001), mtime: Some(Time(7)), ..Attrs::default() } });
    }
    memory.checkpoint(&who(), main, "v1", None).unwrap();
    for folder in ["cache", "notes"] {
        let parent = folders(&memory, main, folder);
        let inode = memory.files(&View::Branch(main)).unwrap().lookup(parent, b"a").unwrap();
        edit(FileOp::SetAttr { inode, attrs: Attrs { uid: Some(1002), ..Attrs::default() } });
        edit(FileOp::Unlink { parent, name: FileName::new(b"b").unwrap(), keep: false });
        write(&memory, main, &format!("{folder}/a"), "after");
    }
    memory.rollback(&who(), main, "v1").unwrap();
    let tree = memory.files(&View::Branch(main)).unwrap();
    for folder in ["cache", "notes"] {
        let [a, b] = ["a", "b"].map(|name| tree.resolve(format!("{folder}/{name}").as_bytes()).unwrap());
        let node = tree.node(a).unwrap();
        assert_eq!((a == b, node.nlink(), tree.owner(node), node.mtime), (true, 2, 1001, Time(7)), "{folder}");
        assert_eq!(read(&memory, main, &format!("{folder}/b")).unwrap(), "before");
    }
}

#[test]
fn a_merge_keeps_modes_and_times_and_gives_joined_content_its_own_time() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for path in ["taken", "joined"] {
        write(&memory, main, path, "1\n2\n3\n4\n5\n");
    }
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    let numbers = |branch, path: &str| memory.files(&View::Branch(branch)).unwrap().resolve(path.as_bytes()).unwrap();
    let set = |branch, path, attrs| {
        memory.edit(&who(), branch, FileOp::SetAttr { inode: numbers(branch, path), attrs }).unwrap()
    };
    set(main, "taken", Attrs { uid: Some(1001), ..Attrs::default() });
    for (time, path) in [(7, "new"), (8, "taken"), (9, "joined")] {
        write(&memory, fork, path, "child\n2\n3\n4\n5\n");
        set(fork, path, Attrs { mtime: Some(Time(time)), ..Attrs::default() });
    }
    set(fork, "new", Attrs { mode: Some(0o640), ..Attrs::default() });
    set(fork, "taken", Attrs { uid: Some(1002), ..Attrs::default() });
    write(&memory, main, "joined", "1\n2\n3\n4\nparent\n");
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "joined").unwrap(), "child\n2\n3\n4\nparent\n");
    let tree = memory.files(&View::Branch(main)).unwrap();
    let node = |path| tree.node(numbers(main, path)).unwrap();
    assert_eq!((node("new").mode, node("new").mtime), (0o640, Time(7)));
    assert_eq!((tree.owner(node("taken")), node("taken").mtime), (1001, Time(8)));
    let merge = memory.lineage_lines(main, false).unwrap().pop().unwrap();
    let merge: serde_json::Value = serde_json::from_str(&merge).unwrap();
    assert_eq!((&merge["op"], &merge["time"]), (&"merge".into(), &node("joined").mtime.to_string().into()));
}

#[test]
fn what_lost_a_merge_is_read_again_by_its_hash() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "agent_state/s", "base");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, main, "agent_state/s", "of the parent");
    write(&memory, fork, "agent_state/s", "of the child");
    let outcome = memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    assert_eq!(read(&memory, main, "agent_state/s").unwrap(), "of the child");
    let [conflict] = &outcome.conflicts[..] else { panic!("{:?}", outcome.conflicts) };
    assert_eq!(&*conflict.id, "files/agent_state/s");
    let shown = memory.show(main, ShowTarget::Hash(conflict.parent.unwrap()), Viewer::UNRESTRICTED).unwrap();
    assert_eq!(shown.content.unwrap(), b"of the parent");
}

/// A promote ends no branch: its owner reads what it decided against, also where the parent is closed.
#[test]
fn what_lost_a_promote_is_read_by_who_may_not_read_the_parent() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "s", "base");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, main, "s", "of the parent");
    write(&memory, fork, "s", "of the child");
    let outcome = memory.merge(&who(), fork, MergeVerb::Promote, false).unwrap();
    assert_eq!(read(&memory, main, "s").unwrap(), "of the child");
    let closed = Viewer { may_read: &|_| false, ..Viewer::UNRESTRICTED };
    let shown = memory.show(fork, ShowTarget::Hash(outcome.conflicts[0].parent.unwrap()), closed).unwrap();
    assert_eq!(shown.content.unwrap(), b"of the parent");
}

/// The entry, and `conflicts` before it, name each line that a union leaves out.
#[test]
fn lines_that_lose_are_in_the_entry_of_the_merge() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "e.jsonl", "{\"event_id\":1}\n");
    write(&memory, main, "core/b", "\0base");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, fork, "e.jsonl", "{\"event_id\":1,\"v\":\"child\"}\n");
    write(&memory, fork, "notes", "\0child");
    write(&memory, main, "e.jsonl", "{\"event_id\":1,\"v\":\"parent\"}\n");
    write(&memory, main, "notes", "\0parent");
    let before =
        String::from_utf8(memory.document(&View::Branch(fork), Document::Conflicts).unwrap().to_vec()).unwrap();
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    let entry = memory.lineage_lines(main, false).unwrap().into_iter().find(|line| line.contains("\"op\":\"merge\""));
    for minutes in [before, entry.clone().unwrap()] {
        assert!(minutes.contains(r#"{"side":"child","text":"{\"event_id\":1,\"v\":\"child\"}"}"#), "{minutes}");
        assert!(minutes.contains("merged as a whole: it is binary"), "{minutes}");
    }
    memory.seal().unwrap();
    memory.close().unwrap();
    drop(memory);
    verify(&disk).unwrap();
    let memory = open(&disk).unwrap();
    assert!(memory.lineage_lines(main_of(&memory), false).unwrap().contains(&entry.unwrap()));
}

#[test]
fn the_page_of_a_branch_shows_its_files() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "notes/a", "text");
    let page = memory.document(&View::Branch(main), Document::Readme).unwrap();
    let page = String::from_utf8_lossy(&page);
    assert!(page.contains("files/todo.md") && page.contains(" 1 files,"), "{page}");
}

#[test]
fn own_edits_are_the_lines_of_diff() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "notes/a", "base");
    write(&memory, main, "notes/b", "base");
    memory.commit(&who(), main, vec![put("r", None, Some("record"))]).unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, fork, "notes/a", "longer than before");
    write(&memory, fork, "new/c", "c");
    let inode = memory.files(&View::Branch(fork)).unwrap().resolve(b"notes").unwrap();
    let name = FileName::new(b"b").unwrap();
    memory.edit(&who(), fork, FileOp::Unlink { parent: inode, name, keep: false }).unwrap();
    memory.commit(&who(), fork, vec![put("s", None, Some("another"))]).unwrap();
    for (branch, edits, deleted) in [(fork, 5, 1), (main, 4, 0)] {
        let status = memory.status(&View::Branch(branch)).unwrap();
        let lines = memory.diff(&View::Branch(branch)).unwrap().iter().filter(|byte| **byte == b'\n').count();
        assert_eq!((status["own_edits"].as_u64(), status["deleted"].as_u64()), (Some(edits), Some(deleted)));
        assert_eq!(lines as u64, edits);
    }
    memory.checkpoint(&who(), fork, "v1", None).unwrap();
    let status = memory.status(&View::Branch(fork)).unwrap();
    let counts = ["records", "files", "depth", "children", "checkpoints"].map(|key| status[key].as_u64().unwrap());
    assert_eq!(counts, [2, 2, 1, 0, 1], "inherited ones too");
    assert!(status["bytes_own"].as_u64().unwrap() > 19 && status["bytes_shared"].as_u64().unwrap() > 0, "{status}");
}

#[test]
fn a_pull_and_a_promote_leave_each_file_its_number() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "a", "base");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, main, "of-parent", "p");
    write(&memory, fork, "of-child", "c");
    let number = |branch, path: &str| memory.files(&View::Branch(branch)).unwrap().resolve(path.as_bytes()).unwrap();
    let before = (number(fork, "a"), number(fork, "of-child"));
    memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap();
    assert_eq!((number(fork, "a"), number(fork, "of-child")), before);
    assert_eq!(read(&memory, fork, "of-parent").unwrap(), "p");
    memory.merge(&who(), fork, MergeVerb::Promote, false).unwrap();
    assert_eq!((number(fork, "a"), number(fork, "of-child")), before);
    assert_eq!(read(&memory, main, "of-child").unwrap(), "c");
    let head = |branch| memory.snapshot(&View::Branch(branch)).unwrap().head();
    assert_eq!(head(main), head(fork));
}

#[test]
fn files_survive_seals_reopening_and_gc_and_verify_reads_them() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let big: String = (0..40_000).map(|n| format!("{n}\n")).collect();
    write(&memory, main, "big", &big);
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for round in 0..6 {
        write(&memory, fork, &format!("d{round}/f"), &format!("round {round}"));
        memory.seal().unwrap();
    }
    memory.gc(&who(), None, false).unwrap();
    let head: Hash = memory.snapshot(&View::Branch(fork)).unwrap().head();
    memory.close().unwrap();
    drop(memory);
    verify(&disk).unwrap();
    let again = open(&disk).unwrap();
    assert_eq!(again.snapshot(&View::Branch(fork)).unwrap().head(), head);
    assert_eq!(read(&again, fork, "big").unwrap(), big);
    assert_eq!(read(&again, fork, "d3/f").unwrap(), "round 3");
    again.discard(&who(), fork).unwrap();
    again.gc(&who(), None, false).unwrap();
    assert_eq!(read(&again, main, "big").unwrap(), big);
    assert!(disk.list("segments").unwrap().len() >= 2);
    again.close().unwrap();
    verify(&disk).unwrap();
}

#[test]
fn verify_finds_a_changed_byte_in_every_file_that_holds_files() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "notes/a", "some text that stands in a pack");
    memory.seal().unwrap();
    memory.close().unwrap();
    drop(memory);
    verify(&disk).unwrap();
    for name in disk.list("segments").unwrap() {
        let file = disk.open_write(&format!("segments/{name}")).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 70).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 70).unwrap();
        assert!(verify(&disk).is_err(), "a changed byte in {name} was not found");
        file.write_all_at(&byte, 70).unwrap();
    }
    verify(&disk).unwrap();
}

#[test]
fn in_a_pull_a_rule_that_names_a_side_means_the_same_side_as_in_a_merge() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "mine/** whole child-wins\ntheirs/** whole parent-wins\n** text").unwrap();
    write(&memory, main, "mine/a", "base");
    write(&memory, main, "theirs/a", "base");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for path in ["mine/a", "theirs/a"] {
        write(&memory, main, path, "parent");
        write(&memory, fork, path, "child");
    }
    memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap();
    assert_eq!(read(&memory, fork, "mine/a").unwrap(), "child");
    assert_eq!(read(&memory, fork, "theirs/a").unwrap(), "parent");
}
