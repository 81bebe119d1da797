//! `export --all` and `import --all`: what comes back has the same heads everywhere.

mod shared;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use engramfs::memory::{
    Actor, Attrs, BranchId, Document, FILES_ROOT, FileName, FileOp, Memory, MergeVerb, NewInode, OpenMode, RecordEdit,
    Setting, SharedLogEntryInput, View, XattrMode,
};
use serde_json::{Value, json};

use crate::mount::{Mounted, command, lines, output, run, succeed};
use crate::story::{each_branch, picture};
use crate::support::{Chance, delete, environment, main_of, rounds, verify_folder, who};

fn open(store: &Path, mode: OpenMode) -> Arc<Memory> {
    Memory::open(store, mode, "a test", environment()).unwrap()
}

/// A random history of records, files, forks and merges.
struct Past {
    memory: Arc<Memory>,
    chance: Chance,
}

impl Past {
    fn pick(&mut self) -> BranchId {
        let mut all = Vec::new();
        each_branch(&self.memory, &mut |id| all.push(id));
        all[self.chance.below(all.len())]
    }

    fn step(&mut self, number: usize) {
        let (branch, memory) = (self.pick(), self.memory.clone());
        let name = format!("n{number}");
        // What can't be just now is no step.
        let _ = match self.chance.below(15) {
            0..=3 => self.write(branch, number),
            4 | 5 => memory.fork(&who(), branch, &name, None).map(drop),
            6 => memory.checkpoint(&who(), branch, &name, Some("why").filter(|_| number.is_multiple_of(2))),
            7 => memory.merge(&who(), branch, MergeVerb::Pull, false).map(drop),
            8 => memory.merge(&who(), branch, MergeVerb::Promote, false).map(drop),
            9 => memory.merge(&who(), branch, MergeVerb::Merge, false).map(drop),
            10 => {
                let settings = [(Setting::Task, &*name), (Setting::Strategy, "parent-wins"), (Setting::Keep, "20d")];
                let (setting, value) = settings[self.chance.below(3)];
                memory.set(&who(), branch, setting, value).and_then(|()| memory.chmod(&who(), branch, 0o750))
            }
            11 => {
                let line = json!({ "text": name, "event_id": number, "vector": self.chance.vector(3), "kind": "k" });
                let entries = [
                    SharedLogEntryInput::parse(&line.to_string()).unwrap(),
                    SharedLogEntryInput::from_text(name).unwrap(),
                ];
                memory.append_log(&who(), branch, &entries).map(drop)
            }
            12 => memory.move_cursor(&who(), branch, self.chance.below(4) as u64),
            13 => memory.set(&who(), branch, Setting::Log, "own"),
            _ => match memory.checkpoints(branch).unwrap().first() {
                Some(label) => memory.rollback(&who(), branch, label).map(drop),
                None => Ok(()),
            },
        };
        self.files(branch, number);
    }

    fn write(&mut self, branch: BranchId, number: usize) -> Result<(), engramfs::memory::Error> {
        let line = |text: String| RecordEdit::parse_line(text.as_bytes(), 1, &|| "fresh".into()).unwrap().unwrap();
        let edits = (0..1 + self.chance.below(5)).map(|_| {
            let id = format!("r{}", self.chance.below(20));
            match self.chance.below(4) {
                0 => delete(&id),
                1 => line(json!({ "id": id, "text": format!("corrected {number}") }).to_string()),
                2 => line(
                    json!({ "id": id, "text": null, "vector": self.chance.vector(3), "metadata": { "n": number } })
                        .to_string(),
                ),
                _ => line(
                    json!({ "id": id, "text": format!("\"quoted\"\n{number}"), "vector": self.chance.vector(3) })
                        .to_string(),
                ),
            }
        });
        let edits = edits.collect();
        let actor = Actor { uid: 1000 + self.chance.below(2) as u32, ..who() };
        self.memory.commit(&actor, branch, edits).map(drop)
    }

    /// One file, folder or link of every kind, with attributes.
    fn files(&mut self, branch: BranchId, number: usize) {
        let edit = |op: FileOp<'_>| self.memory.edit(&who(), branch, op).map(|outcome| outcome.inode);
        let name = |text: &[u8]| FileName::new(text).unwrap();
        let makes = [
            NewInode::File,
            NewInode::Directory,
            NewInode::Symlink(b"some/where".to_vec()),
            NewInode::Fifo,
            NewInode::File,
        ];
        let make = makes[self.chance.below(makes.len())].clone();
        let (is_file, is_folder) = (make == NewInode::File, make == NewInode::Directory);
        let own = name(format!("f{number}").as_bytes());
        let (uid, gid) = (1000, 7);
        let Ok(inode) = edit(FileOp::Create { parent: FILES_ROOT, name: own, make, mode: 0o640, uid, gid }) else {
            return;
        };
        if is_file {
            let bytes = vec![number as u8; 1 + self.chance.below(200_000)];
            edit(FileOp::Write { inode, offset: 1 << 21, bytes: bytes.into() }).unwrap();
            edit(FileOp::Link { inode, parent: FILES_ROOT, name: name(format!("link{number}").as_bytes()) }).unwrap();
            let value = vec![0xff, number as u8];
            edit(FileOp::SetXattr { inode, name: b"user.tag".to_vec(), value, mode: XattrMode::Any }).unwrap();
        }
        if is_folder {
            let odd = name(b"odd \xff name");
            edit(FileOp::Create { parent: inode, name: odd, make: NewInode::File, mode: 0o4755, uid: 0, gid: 0 })
                .unwrap();
            let attrs = Attrs { mode: Some(0o2750), mtime: Some(engramfs::memory::Time(77)), ..Attrs::default() };
            edit(FileOp::SetAttr { inode, attrs }).unwrap();
        }
    }
}

/// What a store has beside its heads.
fn content(memory: &Memory) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    each_branch(memory, &mut |id| {
        let (info, view) = (memory.info(id).unwrap(), View::Branch(id));
        let snapshot = memory.snapshot(&view).unwrap();
        let ids = snapshot.ids_after(None, usize::MAX).unwrap();
        let document = |id: &Arc<str>| String::from_utf8(snapshot.get(id).unwrap().unwrap().to_document()).unwrap();
        let settings: Vec<String> =
            Setting::ALL.iter().map(|setting| memory.setting(&view, *setting).unwrap()).collect();
        let diff = String::from_utf8(memory.document(&view, Document::Diff).unwrap().to_vec()).unwrap();
        let base = memory.base(id).unwrap().head().to_string();
        let log = memory.shared_log(id).unwrap().lines_after(0, u64::MAX).unwrap();
        let value = json!({
            "records": ids.iter().map(document).collect::<Vec<_>>(), "settings": settings, "diff": diff, "base": base,
            "owner": info.uid, "mode": info.mode, "log": String::from_utf8(log).unwrap(), "cursor": memory.cursor(id).unwrap(),
        });
        all.insert(info.path.to_string(), value);
    });
    all
}

/// All files of a folder, with their bytes; the manifest without what is the store's own.
fn tree(folder: &Path, at: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = format!("{:?}", path.strip_prefix(folder).unwrap());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            tree(folder, &path, found);
        } else if kind.is_file() && entry.file_name() != "manifest.json" {
            found.insert(name, fs::read(path).unwrap());
        }
    }
}

#[test]
fn a_dump_becomes_a_store_with_the_same_heads_bases_settings_and_files() {
    for seed in 0..rounds(2) as u64 {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let memory = open(&at("store"), OpenMode::Create);
        let mut past = Past { memory: memory.clone(), chance: Chance(seed) };
        for number in 0..60 {
            past.step(number);
            if number == 30 {
                memory.seal().unwrap();
            }
        }
        let (heads, before) = (picture(&memory), content(&memory));
        assert!(heads.len() > 4, "seed {seed}");
        drop(past);
        memory.close().unwrap();
        drop(memory);
        let [store, dump, back, again] = ["store", "dump", "back", "again"].map(|name| at(name).display().to_string());
        let (code, _, error) = run(&["export", "--all", &format!("{store}:main"), &dump]);
        assert_eq!(code, 0, "seed {seed}: {error}");
        let (code, _, error) = run(&["import", "--all", &dump, &back]);
        assert_eq!(code, 0, "seed {seed}: {error}");
        verify_folder(&at("back"));
        let memory = open(&at("back"), OpenMode::Existing);
        assert_eq!(picture(&memory), heads, "seed {seed}");
        let after = content(&memory);
        for (path, value) in &before {
            assert_eq!(after[path], *value, "seed {seed}: {path}");
        }
        // It goes on as a store does.
        memory.commit(&who(), main_of(&memory), vec![delete("r1")]).unwrap();
        memory.rollback(&who(), main_of(&memory), "none").unwrap_err();
        memory.close().unwrap();
        drop(memory);
        // What is dumped of a copy that nobody changed is the same to the byte.
        fs::remove_dir_all(at("back")).unwrap();
        assert_eq!(run(&["import", "--all", &dump, &back]).0, 0);
        assert_eq!(run(&["export", "--all", &format!("{back}:main"), &again]).0, 0);
        let (mut one, mut other) = (BTreeMap::new(), BTreeMap::new());
        tree(&at("dump"), &at("dump"), &mut one);
        tree(&at("again"), &at("again"), &mut other);
        assert!(one.len() > 20 && one == other, "seed {seed}");
    }
}

/// A dump of a small store.
fn dumped() -> (tempfile::TempDir, [String; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["store", "dump", "back"].map(|name| folder.path().join(name).display().to_string());
    let memory = open(Path::new(&paths[0]), OpenMode::Create);
    let main = main_of(&memory);
    let line = |text: &str| vec![RecordEdit::parse_line(text.as_bytes(), 1, &|| "x".into()).unwrap().unwrap()];
    memory.commit(&who(), main, line(r#"{"id":"a","text":"black tea","vector":[1,2]}"#)).unwrap();
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.commit(&who(), main, line(r#"{"id":"b","text":"in main"}"#)).unwrap();
    memory.commit(&who(), child, line(r#"{"id":"a","text":"green tea"}"#)).unwrap();
    Past { memory: memory.clone(), chance: Chance(1) }.files(child, 1);
    memory.close().unwrap();
    drop(memory);
    assert_eq!(run(&["export", "--all", &format!("{}:main", paths[0]), &paths[1]]).0, 0);
    (folder, paths)
}

#[test]
fn a_dump_that_was_changed_is_refused_and_leaves_no_store() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 7] = [
        ("head_differs", |dump| {
            let path = dump.join("main/records.jsonl");
            fs::write(&path, fs::read_to_string(&path).unwrap().replace("in main", "in Main")).unwrap();
        }),
        ("damaged_dump", |dump| fs::write(dump.join("main/records.jsonl"), "no record\n").unwrap()),
        ("damaged_dump", |dump| {
            fs::write(dump.join("main/branches/child/files.jsonl"), "{}\n").unwrap();
        }),
        ("damaged_dump", |dump| {
            let path = dump.join("manifest.json");
            fs::write(&path, fs::read_to_string(&path).unwrap().replace("\"main/branches/child\"", "\"../main\""))
                .unwrap();
        }),
        ("damaged_dump", |dump| fs::write(dump.join("manifest.json"), "{").unwrap()),
        ("dump_version", |dump| {
            let path = dump.join("manifest.json");
            fs::write(&path, fs::read_to_string(&path).unwrap().replace("\"version\": 1", "\"version\": 2")).unwrap();
        }),
        ("file", |dump| fs::remove_file(dump.join("main/config/rules")).unwrap()),
    ];
    for (at, (code, change)) in changes.into_iter().enumerate() {
        let (folder, [_, dump, back]) = dumped();
        change(Path::new(&dump));
        let (exit, _, error) = run(&["import", "--all", &dump, &back, "--json"]);
        let error = lines(&error).pop().unwrap();
        assert_eq!(error["code"], code, "{at}: {error}");
        assert_eq!(exit, if code == "file" || code == "dump_version" { 1 } else { 4 }, "{at}: {error}");
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["dump", "store"], "{at}");
    }
    // The control: one that nobody changed is taken, once, and neither is written over.
    let (folder, [store, dump, back]) = dumped();
    // With a slash behind it, as shells complete names.
    let (again, slash) = (folder.path().join("again").display().to_string() + "/", dump.clone() + "/");
    assert_eq!(run(&["export", "--all", &format!("{store}:main"), &again]).0, 0);
    assert_eq!(run(&["import", "--all", &slash, &(back.clone() + "/")]).0, 0);
    // What is closed to others in the store is so in these.
    for folder in [&dump, &again, &back] {
        assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700, "{folder}");
    }
    assert_eq!(run(&["export", "--all", &format!("{store}:main"), "."]).0, 2, "it is there");
    assert_eq!(run(&["import", "--all", &dump, &back]).0, 2);
    assert_eq!(run(&["export", "--all", &format!("{store}:main"), &dump]).0, 2);
}

#[test]
fn no_pipe_in_a_dump_is_waited_for_and_no_link_followed() {
    for name in ["manifest.json", "main/records.jsonl", "main/files.jsonl", "main/config/rules"] {
        for is_link in [false, true] {
            let (folder, [_, dump, back]) = dumped();
            let (path, kept) = (Path::new(&dump).join(name), folder.path().join("kept"));
            fs::rename(&path, &kept).unwrap();
            if is_link {
                std::os::unix::fs::symlink(&kept, &path).unwrap();
            } else {
                succeed(command("mkfifo", &[]).arg(&path));
            }
            let program = env!("CARGO_BIN_EXE_engramfs");
            let done = output(&mut command("timeout", &["30", program, "import", "--all", &dump, &back]));
            assert_eq!(done.status.code(), Some(if is_link { 1 } else { 4 }), "{name}: {done:?}");
            assert!(!Path::new(&back).exists());
        }
    }
}

#[test]
fn a_branch_below_is_dumped_with_its_base() {
    let (folder, [store, _, back]) = dumped();
    let dump = folder.path().join("below").display().to_string();
    assert_eq!(run(&["export", "--all", &format!("{store}:main/child"), &dump]).0, 0);
    assert_eq!(run(&["import", "--all", &dump, &back]).0, 0);
    let child_diff = |store: &str| run(&["diff", &format!("{store}:main/child"), "--json"]).1;
    assert!(child_diff(&store).lines().count() > 1);
    assert_eq!(child_diff(&back), child_diff(&store));
    let text = run(&["status", &format!("{back}:main"), "--json"]).1;
    assert_eq!(lines(&text).pop().unwrap()["records"], 1, "what is above has the base");
}

/// Once the second name of a pipe ended the export: a pipe has no file in the dump that could be linked.
#[test]
fn pipes_and_sockets_with_several_names_come_back() {
    let (_folder, [store, dump, back]) = dumped();
    let memory = open(Path::new(&store), OpenMode::Existing);
    let main = main_of(&memory);
    let edit = |op: FileOp<'_>| memory.edit(&who(), main, op).ok().unwrap().inode;
    let name = |name: &str| FileName::new(name.as_bytes()).unwrap();
    let kinds = [
        ("p", NewInode::Fifo),
        ("s", NewInode::Socket),
        ("d", NewInode::CharDevice(7)),
        ("l", NewInode::Symlink(b"p".into())),
    ];
    for (first, make) in kinds {
        let inode =
            edit(FileOp::Create { parent: FILES_ROOT, name: name(first), make, mode: 0o644, uid: 1000, gid: 1000 });
        edit(FileOp::Link { inode, parent: FILES_ROOT, name: name(&format!("{first}2")) });
    }
    let head = picture(&memory);
    memory.close().unwrap();
    drop(memory);
    fs::remove_dir_all(&dump).unwrap();
    let (code, _, error) = run(&["export", "--all", &format!("{store}:main"), &dump]);
    assert_eq!(code, 0, "{error}");
    let (code, _, error) = run(&["import", "--all", &dump, &back]);
    assert_eq!(code, 0, "{error}");
    let memory = open(Path::new(&back), OpenMode::Existing);
    assert_eq!(picture(&memory), head);
    let tree = memory.files(&View::Branch(main_of(&memory))).unwrap();
    for first in ["p", "s", "d", "l"] {
        let inode = |name: &str| tree.resolve(name.as_bytes()).unwrap();
        assert_eq!(inode(first), inode(&format!("{first}2")), "{first}");
    }
    memory.close().unwrap();
}

/// Once a file of 1 TiB with a few bytes filled the disk of its dump.
#[test]
fn holes_are_holes_in_a_dump() {
    let (_folder, [store, dump, back]) = dumped();
    let memory = open(Path::new(&store), OpenMode::Existing);
    let main = main_of(&memory);
    let edit = |op: FileOp<'_>| memory.edit(&who(), main, op).ok().unwrap().inode;
    let (name, size) = (FileName::new(b"sparse").unwrap(), 64u64 << 20);
    let inode =
        edit(FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 });
    for offset in [0, (30 << 20) + 77, size - 1] {
        edit(FileOp::Write { inode, offset, bytes: b"x"[..].into() });
    }
    edit(FileOp::SetAttr { inode, attrs: Attrs { size: Some(size + (1 << 20)), ..Attrs::default() } });
    let heads = picture(&memory);
    memory.close().unwrap();
    drop(memory);
    fs::remove_dir_all(&dump).unwrap();
    let (code, _, error) = run(&["export", "--all", &format!("{store}:main"), &dump]);
    assert_eq!(code, 0, "{error}");
    let found = fs::metadata(format!("{dump}/main/files/sparse")).unwrap();
    assert_eq!(found.len(), size + (1 << 20));
    assert!(found.blocks() * 512 <= 8 << 20, "{} blocks", found.blocks());
    assert_eq!(run(&["import", "--all", &dump, &back]).0, 0);
    let memory = open(Path::new(&back), OpenMode::Existing);
    assert_eq!(picture(&memory), heads);
    memory.close().unwrap();
}

#[test]
fn a_mounted_branch_is_dumped_beside_its_server() {
    let mount = Mounted::new();
    mount.sh("echo 'black tea' > main/vectors/a.json; mkdir main/branches/x main/files/d; echo text > main/files/d/f");
    mount.sh("ln main/files/d/f main/files/g; echo more > main/branches/x/files/h");
    let (dump, back) = (mount.beside("dump").display().to_string(), mount.beside("back").display().to_string());
    let (code, _, error) = run(&["export", "--all", &mount.at("main").display().to_string(), &dump]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(fs::read_to_string(format!("{dump}/main/files/d/f")).unwrap(), "text\n");
    let records = mount.beside("records.jsonl").display().to_string();
    assert_eq!(run(&["export", &mount.at("main").display().to_string(), &records]).0, 0);
    assert_eq!(lines(&fs::read_to_string(records).unwrap()).len(), 1, "without --all the record alone");
    assert_eq!(run(&["import", "--all", &dump, &back]).0, 0);
    for branch in ["main", "main/x"] {
        let head = lines(&run(&["status", &format!("{back}:{branch}"), "--json"]).1).pop().unwrap()["head"].clone();
        assert_eq!(head, mount.status(&branch.replace('/', "/branches/"))["head"], "{branch}");
    }
}

#[test]
fn settings_that_a_branch_has_already_are_imported_without_an_entry() {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path(), OpenMode::Create);
    let main = main_of(&memory);
    let entries = || memory.lineage_lines(main, false).unwrap().len();
    let import = |task: &str| {
        memory.import_settings(&who(), main, &[(Setting::Task, task.to_owned())], false).unwrap();
        entries()
    };
    let before = entries();
    assert_eq!([import("one"), import("one"), import("two")], [before + 1, before + 1, before + 2]);
}
