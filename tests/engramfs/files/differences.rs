//! What `diff` lists of files, and what comparisons show of them.

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Actor, Attrs, BranchId, Credentials, FILES_ROOT, FileName, FileOp, Kind, MergeVerb, NewInode, PurgeOptions,
    RenameMode, Setting, ShowTarget, Side, View, Viewer, XattrMode,
};
use serde_json::Value;

use super::{folders, write};
use crate::support::{holding, main_of, open, who};

#[test]
fn diff_lists_a_renamed_file_at_both_names_and_directories_for_their_own_changes() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for path in ["old", "stays/inside", "chmodded/inside", "tagged/inside"] {
        write(&memory, main, path, "base");
    }
    let [chmodded, tagged, _] = ["chmodded", "tagged", "gone"].map(|path| folders(&memory, main, path));
    let x = memory.fork(&who(), main, "x", None).unwrap();
    let named = |bytes: &[u8]| FileName::new(bytes).unwrap();
    let (name, new_name) = (named(b"old"), named(b"new"));
    let (parent, new_parent, mode) = (FILES_ROOT, FILES_ROOT, RenameMode::Plain);
    memory.edit(&who(), x, FileOp::Rename { parent, name, new_parent, new_name, mode, keep: false }).unwrap();
    write(&memory, x, "stays/inside", "changed");
    folders(&memory, x, "made");
    let (name, make) = (named(b"odd\xff"), NewInode::File);
    memory.edit(&who(), x, FileOp::Create { parent, name, make, mode: 0o644, uid: 0, gid: 0 }).unwrap();
    memory.edit(&who(), x, FileOp::Rmdir { parent, name: named(b"gone"), keep: false }).unwrap();
    let attrs = Attrs { mode: Some(0o700), ..Attrs::default() };
    memory.edit(&who(), x, FileOp::SetAttr { inode: chmodded, attrs }).unwrap();
    let (name, value) = (b"user.tag".to_vec(), b"new".to_vec());
    memory.edit(&who(), x, FileOp::SetXattr { inode: tagged, name, value, mode: XattrMode::Any }).unwrap();
    let diff = memory.diff(&View::Branch(x)).unwrap();
    let lines = std::str::from_utf8(&diff).unwrap().lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let listed: Vec<String> =
        lines.map(|line| format!("{} {}", line["path"].as_str().unwrap(), line["change"].as_str().unwrap())).collect();
    let expected = [
        "chmodded modified",
        "gone deleted",
        "made added",
        "new added",
        "odd\u{fffd} added",
        "old deleted",
        "stays/inside modified",
        "tagged modified",
    ];
    assert_eq!(listed, expected.map(|line| format!("files/{line}")));
}

#[test]
fn a_name_that_is_not_utf_8_is_resolved_as_it_is_listed_and_rolled_back_by_question_marks() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Strategy, "manual").unwrap();
    let (name, make) = (FileName::new(b"odd\xff").unwrap(), NewInode::File);
    let create = FileOp::Create { parent: FILES_ROOT, name, make, mode: 0o644, uid: 0, gid: 0 };
    let inode = memory.edit(&who(), main, create).unwrap().inode;
    let fill = |branch: BranchId, text: &str| {
        memory.edit(&who(), branch, FileOp::Write { inode, offset: 0, bytes: text.as_bytes().into() }).unwrap();
    };
    let text = || {
        let tree = memory.files(&View::Branch(main)).unwrap();
        String::from_utf8(tree.read(tree.resolve(b"odd\xff").unwrap(), 0, 100, memory.packs()).unwrap()).unwrap()
    };
    fill(main, "base");
    memory.checkpoint(&who(), main, "v1", None).unwrap();
    let x = memory.fork(&who(), main, "x", None).unwrap();
    fill(main, "main");
    fill(x, "fork");
    let merge = || memory.merge(&who(), x, MergeVerb::Merge, false).map_err(|error| error.kind());
    assert_eq!(merge().unwrap_err(), Kind::Conflict);
    let listed = "files/odd\u{fffd}";
    memory.resolve_conflict(&who(), x, listed, Side::Child).unwrap();
    merge().unwrap();
    assert_eq!(text(), "fork");
    for (pattern, expected, refused) in [(listed, "fork", Some("no_match")), ("files/odd?", "base", None)] {
        let done = memory.rollback_files(&who(), main, "v1", &[pattern.to_owned()]);
        assert_eq!((done.err().map(|error| error.code()), text().as_str()), (refused, expected), "{pattern}");
    }
}

#[test]
fn a_path_that_two_files_in_conflict_have_alike_resolves_neither() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Strategy, "manual").unwrap();
    let named = |bytes: &[u8]| FileName::new(bytes).unwrap();
    let create = |name: &[u8]| {
        let make = NewInode::File;
        let op = FileOp::Create { parent: FILES_ROOT, name: named(name), make, mode: 0o644, uid: 0, gid: 0 };
        memory.edit(&who(), main, op).unwrap().inode
    };
    let inodes = [create(b"odd\xff"), create(b"odd\xfe")];
    let fill = |branch: BranchId, text: &str| {
        for inode in inodes {
            memory.edit(&who(), branch, FileOp::Write { inode, offset: 0, bytes: text.as_bytes().into() }).unwrap();
        }
    };
    fill(main, "base");
    let x = memory.fork(&who(), main, "x", None).unwrap();
    fill(main, "main");
    fill(x, "fork");
    let listed = "files/odd\u{fffd}";
    let resolve = |path: &str| memory.resolve_conflict(&who(), x, path, Side::Child);
    assert_eq!(resolve(listed).unwrap_err().code(), "several_files");
    let open_conflicts = || {
        let planned = memory.merge(&who(), x, MergeVerb::Merge, true).unwrap();
        planned.conflicts.iter().filter(|item| item.decision.is_none()).count()
    };
    assert_eq!(open_conflicts(), 2);

    // As the hint says.
    let (parent, new_parent, mode) = (FILES_ROOT, FILES_ROOT, RenameMode::Plain);
    let (name, new_name) = (named(b"odd\xfe"), named(b"even"));
    memory.edit(&who(), x, FileOp::Rename { parent, name, new_parent, new_name, mode, keep: false }).unwrap();
    resolve("files/even").unwrap();
    assert_eq!(open_conflicts(), 1);
    resolve(listed).unwrap();
    memory.merge(&who(), x, MergeVerb::Merge, false).unwrap();
}

#[test]
fn a_comparison_shows_the_text_of_ones_own_files_up_to_64_kib() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let x = memory.fork(&who(), main, "x", None).unwrap();
    let limit = 64 << 10;
    for (path, length) in [("limit", limit), ("longer", limit + 1)] {
        write(&memory, x, path, &"t".repeat(length));
    }
    let shown = |uid: u32| -> Vec<(Value, Option<usize>)> {
        let asker = Actor { uid, gid: uid, name: "asker".into() };
        let found = memory.compare(&asker, x, [Some("/main"), None], Viewer::UNRESTRICTED).unwrap();
        let lines = found.line.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| (line["after"]["size"].clone(), line["after"]["text"].as_str().map(str::len))).collect()
    };
    let sizes = [limit, limit + 1].map(Value::from);
    let expected = |texts: [Option<usize>; 2]| sizes.clone().into_iter().zip(texts).collect::<Vec<_>>();
    for (uid, text) in [(who().uid, Some(limit)), (0, Some(limit)), (4711, None)] {
        assert_eq!(shown(uid), expected([text, None]), "{uid}");
    }
}

#[test]
fn a_comparison_with_another_branch_asks_to_read_that() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let x = memory.fork(&who(), main, "x", None).unwrap();
    for (may_read_it, expected) in [(true, None), (false, Some(Kind::NotFound))] {
        let viewer = Viewer { may_read: &|branch| may_read_it || branch != main, reader: None, bytes_max: u64::MAX };
        let compared = memory.compare(&who(), x, [Some("/main"), None], viewer);
        assert_eq!(compared.err().map(|error| error.kind()), expected);
    }
}

#[test]
fn the_lines_of_diff_are_of_files_that_their_reader_could_list() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "shut/before.txt", "base");
    let shut = folders(&memory, main, "shut");
    let attrs = Attrs { mode: Some(0o700), ..Attrs::default() };
    memory.edit(&who(), main, FileOp::SetAttr { inode: shut, attrs }).unwrap();
    let x = memory.fork(&who(), main, "x", None).unwrap();
    write(&memory, x, "shut/before.txt", "later");
    write(&memory, x, "shut/acme.txt", "a secret");
    write(&memory, x, "open.txt", "for all");
    let view = View::Branch(x);
    let whole = memory.diff(&view).unwrap();
    let told = |uid: u32| {
        let reader = Credentials { uid, groups: vec![uid], knows_all_groups: true };
        memory.diff_for(&view, &reader).unwrap()
    };
    assert_eq!((told(0), told(who().uid)), (whole.clone(), whole.clone()));
    assert_eq!(&*told(4711), b"{\"kind\":\"file\",\"path\":\"files/open.txt\",\"change\":\"added\"}\n");
    // By their old names, too, once the folder has another one.
    let [name, new_name] = [&b"shut"[..], b"away"].map(|name| FileName::new(name).unwrap());
    let (parent, new_parent, mode) = (FILES_ROOT, FILES_ROOT, RenameMode::Plain);
    memory.edit(&who(), x, FileOp::Rename { parent, name, new_parent, new_name, mode, keep: false }).unwrap();
    let lines = String::from_utf8(told(4711).to_vec()).unwrap();
    let paths = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["path"].clone());
    assert_eq!(paths.collect::<Vec<_>>(), ["files/away", "files/open.txt", "files/shut"]);
}

/// `diff` tells everybody who can list a file its hash, which is no key to its bytes.
#[test]
fn a_file_is_shown_to_those_alone_who_could_read_it_by_a_path() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for (name, make, mode) in [("shut", NewInode::File, 0o600), ("closed", NewInode::Directory, 0o700)] {
        let name = FileName::new(name.as_bytes()).unwrap();
        let op = FileOp::Create { parent: FILES_ROOT, name, make, mode, uid: who().uid, gid: who().gid };
        memory.edit(&who(), main, op).unwrap();
    }
    let paths = [("shut", "a secret"), ("closed/inside", "another secret")];
    paths.iter().for_each(|(path, text)| write(&memory, main, path, text));
    let tree = memory.files(&View::Branch(main)).unwrap();
    let node = |path: &str| tree.node(tree.resolve(path.as_bytes()).unwrap()).unwrap();
    let hashes = paths.map(|(path, _)| node(path).content_hash().unwrap());
    let shown = |uid: u32, hash| {
        let reader = Credentials { uid, groups: vec![uid], knows_all_groups: true };
        let viewer = Viewer { reader: Some(&reader), ..Viewer::UNRESTRICTED };
        memory.show(main, ShowTarget::Hash(hash), viewer).ok().and_then(|shown| shown.content)
    };
    let check = || {
        for (hash, (path, text)) in hashes.iter().zip(paths) {
            assert_eq!(shown(who().uid, *hash).as_deref(), Some(text.as_bytes()), "{path}");
            assert_eq!(shown(4711, *hash), None, "{path}");
        }
    };
    check();
    memory.checkpoint(&who(), main, "v1", None).unwrap();
    paths.iter().for_each(|(path, _)| write(&memory, main, path, "later"));
    check();
    // The same bytes where everybody may read them.
    write(&memory, main, "open", "a secret");
    assert_eq!(shown(4711, hashes[0]).as_deref(), Some(&b"a secret"[..]));
}

#[test]
fn a_file_whose_name_is_not_utf_8_is_purged_once_it_is_renamed() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let (name, make) = (FileName::new(b"odd\xff").unwrap(), NewInode::File);
    let create = FileOp::Create { parent: FILES_ROOT, name: name.clone(), make, mode: 0o644, uid: 1000, gid: 1000 };
    let inode = memory.edit(&who(), main, create).unwrap().inode;
    memory.edit(&who(), main, FileOp::Write { inode, offset: 0, bytes: "a secret word".as_bytes().into() }).unwrap();
    memory.checkpoint(&who(), main, "v1", None).unwrap();
    let purge = |item: &str| memory.purge(&who(), main, &[item.to_owned()], PurgeOptions::default());
    let refused = purge("files/odd\u{fffd}").unwrap_err();
    assert_eq!((refused.code(), refused.hint().contains("rename the file first")), ("nothing_to_purge", true));
    assert!(purge("files/other").unwrap_err().hint().starts_with("check the names"));
    // As the hint says.
    let (parent, new_parent, mode) = (FILES_ROOT, FILES_ROOT, RenameMode::Plain);
    let new_name = FileName::new(b"odd").unwrap();
    memory.edit(&who(), main, FileOp::Rename { parent, name, new_parent, new_name, mode, keep: false }).unwrap();
    let report = purge("files/odd").unwrap();
    assert_eq!(report["items"], serde_json::json!(["files/odd", "files/odd\u{fffd}"]));
    assert_eq!(holding(&disk, "a secret word"), [""; 0]);
}

/// A branch without a base is not compared with it path by path, and counts the same.
#[test]
fn own_edits_are_the_lines_of_diff_where_there_was_nothing_before() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for branch in [main, fork] {
        write(&memory, branch, "notes/a", "one");
        let inode = memory.files(&View::Branch(branch)).unwrap().resolve(b"notes/a").unwrap();
        let name = FileName::new(b"another name").unwrap();
        memory.edit(&who(), branch, FileOp::Link { inode, parent: FILES_ROOT, name }).unwrap();
        let attrs = Attrs { mode: Some(0o700), ..Attrs::default() };
        memory.edit(&who(), branch, FileOp::SetAttr { inode: FILES_ROOT, attrs }).unwrap();
        let lines = memory.diff(&View::Branch(branch)).unwrap().iter().filter(|byte| **byte == b'\n').count();
        assert_eq!((lines, memory.status(&View::Branch(branch)).unwrap()["own_edits"].clone()), (4, Value::from(4)));
    }
    let below = memory.branches_below(main, &|_| true).unwrap();
    let below: Value = serde_json::from_slice(&below).unwrap();
    assert_eq!((&below["own_edits"], &below["behind"]), (&Value::from(4), &Value::from(4)));
}
