//! Full disks: whatever filled one, deletes and collections go on, and so does what comes after them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engramfs::disk::{Disk, ForgetfulDisk};
use engramfs::memory::{
    Attrs, BranchId, EditError, Environment, Error, FILES_ROOT, FileName, FileOp, KEPT_DROPPED, Kind, Memory,
    MergeVerb, NewInode, OpenMode, RangeOp, Setting, SharedLogEntryInput, View, XattrMode,
};

use crate::shrink::run_steps;
use crate::support::{Chance, delete, environment, main_of, put, rounds, texts, verify, who};

const MIB: u64 = 1 << 20;
const FILE: usize = 200 << 10;

/// A store on a disk of that size.
fn store(bytes: u64, files: u64) -> (ForgetfulDisk, Arc<Memory>) {
    let disk = ForgetfulDisk::new();
    disk.limit(bytes, files);
    (disk.clone(), open(&disk))
}

fn open(disk: &ForgetfulDisk) -> Arc<Memory> {
    let around = Environment { reserve_bytes: 8 << 20, ..environment() };
    Memory::open_on(Arc::new(disk.clone()) as Arc<dyn Disk>, OpenMode::Create, None, around).unwrap()
}

fn inode_of(memory: &Memory, branch: BranchId, name: &str) -> Option<u64> {
    memory.files(&View::Branch(branch)).unwrap().lookup(FILES_ROOT, name.as_bytes()).ok()
}

fn full(error: EditError) -> Error {
    match error {
        EditError::Refused(error) => error,
        EditError::Tree(error) => panic!("{error}"),
    }
}

/// Makes a file, or gives it other bytes.
fn write(memory: &Memory, branch: BranchId, name: &str, bytes: &[u8]) -> Result<(), Error> {
    let inode = match inode_of(memory, branch, name) {
        Some(inode) => inode,
        None => {
            let (parent, name) = (FILES_ROOT, FileName::new(name.as_bytes()).unwrap());
            let op = FileOp::Create { parent, name, make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 };
            memory.edit(&who(), branch, op).map_err(full)?.inode
        }
    };
    memory.edit(&who(), branch, FileOp::Write { inode, offset: 0, bytes: bytes.into() }).map_err(full).map(drop)
}

fn unlink(memory: &Memory, branch: BranchId, name: &str) -> Result<(), Error> {
    let name = FileName::new(name.as_bytes()).unwrap();
    memory.edit(&who(), branch, FileOp::Unlink { parent: FILES_ROOT, name, keep: false }).map_err(full).map(drop)
}

fn truncate(memory: &Memory, branch: BranchId, name: &str) -> Result<(), Error> {
    let attrs = Attrs { size: Some(0), ..Attrs::default() };
    let inode = inode_of(memory, branch, name).unwrap();
    memory.edit(&who(), branch, FileOp::SetAttr { inode, attrs }).map_err(full).map(drop)
}

fn read(memory: &Memory, branch: BranchId, name: &str) -> Vec<u8> {
    let tree = memory.files(&View::Branch(branch)).unwrap();
    tree.read(inode_of(memory, branch, name).unwrap(), 0, 64 << 20, memory.packs()).unwrap()
}

/// Bytes of which no two chunks are equal.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut chance = Chance(seed);
    (0..count.div_ceil(8)).flat_map(|_| chance.next().to_le_bytes()).take(count).collect()
}

/// Repeats something until the disk is full; returns how often it was done.
fn until_full(mut step: impl FnMut(u64) -> Result<(), Error>) -> u64 {
    for number in 0..100_000 {
        if let Err(error) = step(number) {
            assert_eq!(error.kind(), Kind::Full, "{error}");
            assert!(error.to_string().contains("KiB are missing") || error.to_string().contains("inodes"), "{error}");
            return number;
        }
    }
    panic!("the disk never gets full");
}

#[test]
fn a_file_that_is_overwritten_again_and_again_fills_no_disk() {
    let (disk, memory) = store(8 * MIB, 1 << 20);
    for number in 0..251 {
        write(&memory, main_of(&memory), "file", &noise(number, FILE))
            .unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    assert!(read(&memory, main_of(&memory), "file") == noise(250, FILE));
    memory.close().unwrap();
    verify(&disk).unwrap();
}

/// A way to fill a disk, and to give something back.
struct Way {
    name: &'static str,
    fill: fn(&Memory, u64) -> Result<(), Error>,
    /// What was the `number`th thing goes, of as many as there are.
    give: fn(&Memory, u64) -> Result<(), Error>,
}

fn record(memory: &Memory, number: u64) -> Result<(), Error> {
    let text = format!("{:?}", noise(number, 700));
    memory
        .commit(&who(), main_of(memory), vec![put(&format!("r{number}"), Some(vec![1.0, 2.0]), Some(&text))])
        .map(drop)
}

fn bulk(memory: &Memory, number: u64) -> Result<(), Error> {
    let text = format!("{:?}", noise(number, 40));
    let edits = (0..1024).map(|row| put(&format!("b{number}-{row}"), None, Some(&text))).collect();
    memory.commit(&who(), main_of(memory), edits).map(drop)
}

fn merge(memory: &Memory, number: u64) -> Result<(), Error> {
    let child = memory.fork(&who(), main_of(memory), &format!("m{number}"), None)?;
    // A branch that stays would hold what its parent had at the fork.
    let written = write(memory, child, &format!("f{number}"), &noise(number, FILE));
    let merged = written.and_then(|()| memory.merge(&who(), child, MergeVerb::Merge, false).map(drop));
    if merged.is_err() {
        memory.discard(&who(), child).unwrap();
    }
    merged
}

fn discard_if_there(memory: &Memory, name: &str) -> Result<(), Error> {
    match memory.resolve(&format!("main/{name}")) {
        Ok(branch) => memory.discard(&who(), branch),
        Err(_) => Ok(()),
    }
}

const WAYS: [Way; 7] = [
    Way {
        name: "files",
        fill: |memory, number| write(memory, main_of(memory), &format!("f{number}"), &noise(number, FILE)),
        give: |memory, number| unlink(memory, main_of(memory), &format!("f{number}")),
    },
    Way {
        name: "small files",
        fill: |memory, number| write(memory, main_of(memory), &format!("f{number}"), &noise(number, 9000)),
        give: |memory, number| truncate(memory, main_of(memory), &format!("f{number}")),
    },
    Way {
        name: "records",
        fill: record,
        give: |memory, number| memory.commit(&who(), main_of(memory), vec![delete(&format!("r{number}"))]).map(drop),
    },
    Way {
        name: "ingest",
        fill: bulk,
        give: |memory, number| {
            let edits = (0..1024).map(|row| delete(&format!("b{number}-{row}"))).collect();
            memory.commit(&who(), main_of(memory), edits).map(drop)
        },
    },
    Way {
        name: "branches",
        fill: |memory, number| {
            let child = memory.fork(&who(), main_of(memory), &format!("m{number}"), None)?;
            write(memory, child, "file", &noise(number, FILE))
        },
        give: |memory, number| discard_if_there(memory, &format!("m{number}")),
    },
    Way {
        name: "merges",
        fill: merge,
        give: |memory, number| {
            discard_if_there(memory, &format!("m{number}"))?;
            let (main, name) = (main_of(memory), format!("f{number}"));
            if inode_of(memory, main, &name).is_some() { unlink(memory, main, &name) } else { Ok(()) }
        },
    },
    Way {
        name: "checkpoints",
        fill: |memory, number| {
            write(memory, main_of(memory), "file", &noise(number, FILE))?;
            memory.checkpoint(&who(), main_of(memory), &format!("c{number}"), None)
        },
        give: |memory, number| memory.delete_checkpoint(&who(), main_of(memory), &format!("c{number}")),
    },
];

#[test]
fn whatever_filled_a_disk_can_be_deleted_and_gives_its_room_back() {
    for way in &WAYS {
        let name = way.name;
        let (disk, memory) = store(8 * MIB, 1 << 20);
        let main = main_of(&memory);
        // What goes is gone at once.
        memory.set(&who(), main, Setting::Keep, "0s").unwrap();
        let count = until_full(|number| (way.fill)(&memory, number));
        assert!(count >= 3, "{name}: {count} fit");
        let free = disk.space().unwrap().free_bytes;
        assert!(free < 4 * MIB, "{name}: {free} bytes are free, and the disk is said to be full");
        drop(memory);
        // A full store opens, and deletes and collections go on there.
        let memory = open(&disk);
        memory.gc(&who(), None, false).unwrap_or_else(|error| panic!("{name}: {error}"));
        // What came half the way.
        let _ = (way.give)(&memory, count);
        for number in (0..count).filter(|number| number % 4 != 0) {
            (way.give)(&memory, number).unwrap_or_else(|error| panic!("{name}, {number} of {count}: {error}"));
        }
        let again = until_full(|number| (way.fill)(&memory, 100_000 + number));
        assert!(again >= count / 3, "{name}: {count} fit at first and {again} after most of it went");
        let _ = (way.give)(&memory, 100_000 + again);
        for number in 0..again {
            (way.give)(&memory, 100_000 + number).unwrap_or_else(|error| panic!("{name}, {number}: {error}"));
        }
        memory.gc(&who(), None, false).unwrap();
        (way.fill)(&memory, 200_000).unwrap_or_else(|error| panic!("{name}: {error}"));
        memory.close().unwrap();
        verify(&disk).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_rollback_to_a_smaller_state_works_on_a_full_disk_and_earlier_states_yield_to_what_is_written() {
    let (disk, memory) = store(8 * MIB, 1 << 20);
    let main = main_of(&memory);
    memory.checkpoint(&who(), main, "empty", None).unwrap();
    let told = Arc::new(AtomicBool::new(false));
    memory.on_change({
        let told = told.clone();
        Arc::new(move |event| _ = told.fetch_or(event.op == KEPT_DROPPED, Ordering::Relaxed))
    });
    let fill = |memory: &Memory| until_full(|number| write(memory, main, &format!("f{number}"), &noise(number, FILE)));
    let count = fill(&memory);
    memory.rollback(&who(), main, "empty").unwrap();
    let again = fill(&memory);
    assert!(again >= count * 3 / 4, "{count} fit at first, and {again} after all went");
    assert!(told.load(Ordering::Relaxed), "the owners heard nothing of states that went");
    let lineage = memory.lineage_lines(main, false).unwrap();
    assert!(lineage.iter().any(|line| line.contains(r#""op":"kept_dropped""#)), "the lineage says nothing of them");
    drop(memory);
    verify(&disk).unwrap();
}

#[test]
fn the_last_room_is_for_what_gives_some_back() {
    let (disk, memory) = store(8 * MIB, 1 << 20);
    let main = main_of(&memory);
    let edit = |op: FileOp<'_>| memory.edit(&who(), main, op).map_err(full).map(|outcome| outcome.inode);
    let name = |text: &str| FileName::new(text.as_bytes()).unwrap();
    let make = |text: &str, make| {
        edit(FileOp::Create { parent: FILES_ROOT, name: name(text), make, mode: 0o755, uid: 1000, gid: 1000 })
    };
    make("folder", NewInode::Directory).unwrap();
    write(&memory, main, "file", &noise(1, FILE)).unwrap();
    let inode = inode_of(&memory, main, "file").unwrap();
    edit(FileOp::SetXattr { inode, name: b"user.a".to_vec(), value: vec![1], mode: XattrMode::Any }).unwrap();
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.checkpoint(&who(), child, "with-file", None).unwrap();
    unlink(&memory, child, "file").unwrap();
    memory.propose(&who(), child, "").unwrap();
    memory.checkpoint(&who(), main, "label", None).unwrap();
    memory.append_log(&who(), main, &[SharedLogEntryInput::parse("an entry").unwrap()]).unwrap();
    record(&memory, 0).unwrap();
    until_full(|number| write(&memory, main, &format!("f{number}"), &noise(number + 2, FILE)));
    until_full(|number| memory.set(&who(), main, Setting::Task, &number.to_string()));
    let refused = [
        memory.set(&who(), main, Setting::Keep, "60d"),
        memory.fork(&who(), main, "more", None).map(drop),
        memory.checkpoint(&who(), main, "more", None),
        make("more", NewInode::File).map(drop),
        record(&memory, 1),
        // The branch would hold more than now.
        memory.rollback(&who(), child, "with-file").map(drop),
    ];
    for (at, outcome) in refused.into_iter().enumerate() {
        assert_eq!(outcome.unwrap_err().kind(), Kind::Full, "{at}");
    }
    memory.withdraw(&who(), child).unwrap();
    memory.archive_log(&who(), main, 2).unwrap();
    memory.commit(&who(), main, vec![delete("r0")]).unwrap();
    edit(FileOp::RemoveXattr { inode, name: b"user.a".to_vec() }).unwrap();
    edit(FileOp::Range { inode, what: RangeOp::Punch, offset: 0, length: 64 << 10, keep_size: true }).unwrap();
    truncate(&memory, main, "file").unwrap();
    edit(FileOp::Rmdir { parent: FILES_ROOT, name: name("folder"), keep: false }).unwrap();
    memory.set(&who(), main, Setting::Keep, "1h").unwrap();
    memory.set(&who(), child, Setting::Ttl, "1h").unwrap();
    memory.delete_checkpoint(&who(), main, "label").unwrap();
    memory.discard(&who(), child).unwrap();
    memory.close().unwrap();
    verify(&disk).unwrap();
}

#[test]
fn a_disk_without_inodes_takes_deletes_and_gives_them_back() {
    let (disk, memory) = store(1 << 30, 60);
    let main = main_of(&memory);
    let step = |memory: &Memory, number: u64| -> Result<(), Error> {
        record(memory, number)?;
        memory.fork(&who(), main, &format!("b{number}"), None)?;
        memory.seal()
    };
    let count = 20;
    (0..count).for_each(|number| step(&memory, number).unwrap());
    // Seals fold files, so that others have to take the last inodes.
    let others = (0..60).take_while(|number| disk.create(&format!("other-{number}")).is_ok()).count();
    assert!(others > 0 && disk.space().unwrap().inodes_free == 0, "{others}");
    // What seals combine gives inodes back, so that this may go on for ever.
    let count = count + (0..100).take_while(|number| step(&memory, count + number).is_ok()).count() as u64;
    drop(memory);
    let memory = open(&disk);
    for number in 0..count {
        memory.commit(&who(), main, vec![delete(&format!("r{number}"))]).unwrap();
        // The last step may have come half the way.
        if let Ok(branch) = memory.resolve(&format!("main/b{number}")) {
            memory.discard(&who(), branch).unwrap();
        }
    }
    memory.gc(&who(), None, false).unwrap();
    memory.close().unwrap();
    (0..others).for_each(|number| disk.remove(&format!("other-{number}")).unwrap());
    verify(&disk).unwrap();
}

#[test]
fn a_delete_takes_one_file_of_the_reserve_and_a_seal_goes_on_with_the_rest() {
    let (disk, memory) = store(64 * MIB, 1 << 20);
    let (main, pieces) = (main_of(&memory), || disk.list("reserve").unwrap().len());
    let commit = |edits| memory.commit(&who(), main, edits).unwrap();
    let fill = |name| disk.create(name).unwrap().allocate(disk.space().unwrap().free_bytes).unwrap();
    commit((0..200).map(|number| put(&format!("r{number}"), None, Some("text"))).collect());
    let whole = pieces();
    fill("one");
    // Their log records are longer than what is free of the journal's last block.
    for number in 0..200 {
        commit(vec![delete(&format!("r{number}"))]);
    }
    assert_eq!(pieces() + 1, whole);
    fill("two");
    memory.seal().unwrap();
    drop(memory);
    assert!(texts(&open(&disk), &View::Branch(main)).is_empty());
}

#[test]
fn a_disk_that_others_filled_takes_deletes_and_goes_on_when_they_leave() {
    let (disk, memory) = store(64 * MIB, 1 << 20);
    let main = main_of(&memory);
    for number in 0..40 {
        write(&memory, main, &format!("f{number}"), &noise(number, FILE)).unwrap();
    }
    // Nothing is sealed yet, and there is no room for it.
    disk.create("lost+found").unwrap().allocate(disk.space().unwrap().free_bytes).unwrap();
    assert_eq!(write(&memory, main, "f0", &noise(99, FILE)).unwrap_err().kind(), Kind::Full);
    for number in 0..20 {
        unlink(&memory, main, &format!("f{number}")).unwrap();
    }
    disk.remove("lost+found").unwrap();
    write(&memory, main, "more", b"bytes").unwrap();
    assert!(read(&memory, main, "f30") == noise(30, FILE));
    memory.close().unwrap();
    verify(&disk).unwrap();
}

#[test]
fn a_store_on_a_full_disk_opens_and_its_status_tells_of_a_short_reserve() {
    let (disk, memory) = store(64 * MIB, 1 << 20);
    let reserve = |memory: &Memory| {
        let status = memory.status(&View::Branch(main_of(memory))).unwrap();
        ["bytes", "total"].map(|key| status["reserve"][key].as_u64().unwrap())
    };
    let whole = reserve(&memory);
    assert!(whole[0] == whole[1] && whole[0] > 0, "{whole:?}");
    memory.close().unwrap();
    drop(memory);
    for piece in 0..8 {
        disk.remove(&format!("reserve/{piece:02}")).unwrap();
    }
    disk.create("lost+found").unwrap().allocate(disk.space().unwrap().free_bytes).unwrap();
    let memory = open(&disk);
    assert_eq!(reserve(&memory), [whole[0] / 2, whole[1]]);
    memory.close().unwrap();
    drop(memory);
    disk.remove("lost+found").unwrap();
    assert_eq!(reserve(&open(&disk)), whole);
}

/// What a store should hold.
#[derive(Default)]
struct Model {
    files: BTreeMap<String, Vec<u8>>,
    records: BTreeMap<String, String>,
}

impl Model {
    fn check(&self, memory: &Memory) {
        let main = main_of(memory);
        for (name, bytes) in &self.files {
            assert!(read(memory, main, name) == *bytes, "{name}");
        }
        let tree = memory.files(&View::Branch(main)).unwrap();
        assert_eq!(tree.entries(FILES_ROOT, None).unwrap().count(), self.files.len());
        let expected: Vec<_> = self.records.iter().map(|(id, text)| (id.clone(), text.clone())).collect();
        assert_eq!(texts(memory, &View::Branch(main)), expected);
    }

    /// Does something at random; what is refused changes nothing.
    fn step(&mut self, memory: &Memory, chance: &mut Chance) -> Result<(), Error> {
        let (main, seed) = (main_of(memory), chance.next());
        match chance.below(8) {
            0..4 => {
                let (name, bytes) = (format!("f{}", chance.below(40)), noise(seed, 1 + chance.below(2 * FILE)));
                let new = !self.files.contains_key(&name);
                let mut expected = self.files.get(&name).cloned().unwrap_or_default();
                let written = write(memory, main, &name, &bytes);
                if written.is_ok() {
                    let kept = expected.split_off(expected.len().min(bytes.len()));
                    self.files.insert(name, [bytes, kept].concat());
                } else if new && inode_of(memory, main, &name).is_some() {
                    // It was made, and its bytes had no room.
                    self.files.insert(name, Vec::new());
                }
                written
            }
            4..6 => {
                let (id, text) =
                    (format!("r{}", chance.below(60)), format!("{:?}", noise(seed, 1 + chance.below(3000))));
                memory.commit(&who(), main, vec![put(&id, Some(vec![1.0, 2.0]), Some(&text))])?;
                self.records.insert(id, text);
                Ok(())
            }
            6 => {
                let name = format!("s{seed}");
                let child = memory.fork(&who(), main, &name, None)?;
                memory.discard(&who(), child)
            }
            _ => self.give(memory, chance),
        }
    }

    /// Deletes something; that always works.
    fn give(&mut self, memory: &Memory, chance: &mut Chance) -> Result<(), Error> {
        let main = main_of(memory);
        if chance.one_in(3) && !self.records.is_empty() {
            let id = self.records.keys().nth(chance.below(self.records.len())).unwrap().clone();
            memory.commit(&who(), main, vec![delete(&id)])?;
            self.records.remove(&id);
        } else if !self.files.is_empty() {
            let name = self.files.keys().nth(chance.below(self.files.len())).unwrap().clone();
            if chance.one_in(2) {
                truncate(memory, main, &name)?;
                self.files.insert(name, Vec::new());
            } else {
                unlink(memory, main, &name)?;
                self.files.remove(&name);
            }
        }
        Ok(())
    }
}

#[test]
fn random_work_on_a_full_disk_is_done_or_refused_and_nothing_is_lost() {
    for seed in 0..rounds(3) as u64 {
        let mut chance = Chance(seed);
        // Each step is the seed of all that it does.
        let steps: Vec<u64> = (0..400).map(|_| chance.next()).collect();
        let refused = run_steps(seed, &steps, work_on_a_full_disk);
        assert!(refused > 3, "seed {seed}: the disk was full {refused} times");
    }
}

/// Returns how often the disk was full.
fn work_on_a_full_disk(steps: &[u64]) -> usize {
    let (disk, mut memory) = store(6 * MIB, 1 << 20);
    memory.set(&who(), main_of(&memory), Setting::Keep, "0s").unwrap();
    let (mut model, mut refused) = (Model::default(), 0);
    for seed in steps {
        let mut chance = Chance(*seed);
        if let Err(error) = model.step(&memory, &mut chance) {
            assert_eq!(error.kind(), Kind::Full, "{error}");
            refused += 1;
            (0..chance.below(8)).for_each(|_| model.give(&memory, &mut chance).unwrap());
        }
        if chance.one_in(40) {
            memory.sync().unwrap();
            memory = open(&if chance.one_in(2) { disk.clone() } else { disk.power_cut(*seed) });
            if !chance.one_in(2) {
                model.check(&memory);
            }
            memory = open(&disk);
        }
    }
    model.check(&memory);
    memory.close().unwrap();
    verify(&disk).unwrap();
    refused
}
