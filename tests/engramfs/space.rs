use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::fs::{Caller, Filesystem, FsOptions};
use engramfs::memory::{
    BranchId, Document, Environment, FILES_ROOT, FileName, FileOp, Memory, OpenMode, Setting, View,
};

use crate::files::{read, try_write, write};
use crate::support::{Chance, environment, main_of, open, open_on, rounds, stride, verify, who};

const ALL: &[DiskCall] = &[
    DiskCall::Create,
    DiskCall::Open,
    DiskCall::Write,
    DiskCall::Sync,
    DiskCall::SyncDir,
    DiskCall::Rename,
    DiskCall::Remove,
    DiskCall::SetLen,
    DiskCall::Read,
    DiskCall::List,
    DiskCall::Map,
];

/// Text that no two chunks have in common.
fn text(chance: &mut Chance, bytes: usize) -> String {
    (0..bytes / 16).map(|_| format!("{:016x}", chance.next())).collect()
}

fn used(disk: &ForgetfulDisk) -> u64 {
    let length = |path: &String| disk.open(path).and_then(|file| file.len()).unwrap_or_default();
    disk.files().into_iter().map(|(path, _)| length(&path)).sum()
}

/// Writes files in rounds with a seal behind each, so that every pack has something that lives; returns what lives.
fn scattered(memory: &Memory, chance: &mut Chance) -> BTreeMap<String, String> {
    let (main, mut files) = (main_of(memory), BTreeMap::new());
    memory.set(&who(), main, Setting::Keep, "0s").unwrap();
    for round in 0..8 {
        for n in (0..12).filter(|n| round == 0 || (n + round) % 3 > 0) {
            let (name, bytes) = (format!("f{n}"), text(chance, 50_000));
            write(memory, main, &name, &bytes);
            files.insert(name, bytes);
        }
        let (name, bytes) = (format!("once{round}"), text(chance, 3000));
        write(memory, main, &name, &bytes);
        files.insert(name, bytes);
        memory.seal().unwrap();
    }
    files
}

fn bytes_of(files: &BTreeMap<String, String>) -> u64 {
    files.values().map(|bytes| bytes.len() as u64).sum()
}

fn check(memory: &Memory, branch: BranchId, files: &BTreeMap<String, String>) {
    for (name, bytes) in files {
        assert!(read(memory, branch, name).as_ref() == Some(bytes), "{name} has other bytes");
    }
}

#[test]
fn a_store_that_is_left_alone_thins_its_packs() {
    let disk = ForgetfulDisk::new();
    let around = Environment { idle_interval: Duration::from_secs(2), ..environment() };
    let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap();
    let files = scattered(&memory, &mut Chance(1));
    let (live, start) = (bytes_of(&files), Instant::now());
    assert!(used(&disk) > 2 * live, "the packs hold what nobody needs");
    while used(&disk) > live * 3 / 2 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(used(&disk) <= live * 3 / 2, "{} bytes for {live}", used(&disk));
    check(&memory, main_of(&memory), &files);
    memory.close().unwrap();
    verify(&disk).unwrap();
}

#[test]
fn a_collection_leaves_little_more_than_what_lives_and_one_pack_of_many_small_ones() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let mut files = scattered(&memory, &mut Chance(2));
    for round in 0..40 {
        let name = format!("small{round}");
        write(&memory, main_of(&memory), &name, &format!("number {round}"));
        files.insert(name, format!("number {round}"));
        memory.seal().unwrap();
    }
    memory.gc(&who(), None, false).unwrap();
    let (live, names) = (bytes_of(&files), disk.list("segments").unwrap());
    assert!(used(&disk) <= live * 12 / 10, "{} bytes for {live}", used(&disk));
    // A pack, a part of the manifest, and archives of entries.
    assert!(names.len() <= 12, "{names:?}");
    let again = memory.gc(&who(), None, false).unwrap();
    assert!(again["bytes"].as_u64().unwrap() < 64 << 10, "a second collection finds nothing: {again}");
    check(&memory, main_of(&memory), &files);
}

#[test]
fn packs_of_tiny_chunks_are_not_written_again_and_again() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    for n in 0..3000 {
        write(&memory, main_of(&memory), &format!("f{n}"), &format!("{n}"));
    }
    memory.gc(&who(), None, false).unwrap();
    let packs = |disk: &ForgetfulDisk| {
        let long = |name: &&String| disk.open(&format!("segments/{name}")).unwrap().len().unwrap() > 100_000;
        disk.list("segments").unwrap().iter().filter(long).cloned().collect::<Vec<_>>()
    };
    let before = packs(&disk);
    memory.gc(&who(), None, false).unwrap();
    assert!(before.iter().any(|name| packs(&disk).contains(name)), "the pack was written again");
}

#[test]
fn who_reads_an_older_tree_reads_on_while_its_packs_are_thinned() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let files = scattered(&memory, &mut Chance(3));
    let tree = memory.files(&View::Branch(main)).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..20 {
                for (name, bytes) in &files {
                    let inode = tree.resolve(name.as_bytes()).unwrap();
                    assert!(tree.read(inode, 0, 1 << 20, memory.packs()).unwrap() == bytes.as_bytes(), "{name}");
                }
            }
        });
        for _ in 0..3 {
            memory.gc(&who(), None, false).unwrap();
        }
        reader.join().unwrap();
    });
}

/// Fails a call of one of these kinds while a collection thins packs, with all later ones if it is `sticky`.
fn fail_one(template: &ForgetfulDisk, files: &BTreeMap<String, String>, fault: Fault) -> bool {
    let faulty = FaultyDisk::losing_pages(template.power_cut_keep_nothing());
    let memory = open_on(Arc::new(faulty.clone())).unwrap();
    let main = main_of(&memory);
    faulty.plan(fault);
    let _ = memory.gc(&who(), None, false);
    let hit = faulty.calls() >= fault.nth;
    if !fault.sticky {
        faulty.clear();
        check(&memory, main, files);
    }
    let cuts = [faulty.inner().power_cut_keep_nothing(), faulty.inner().power_cut(fault.nth)];
    drop(memory);
    for disk in cuts.into_iter().chain([faulty.inner().clone()]) {
        let again = open(&disk).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        check(&again, main, files);
        again.gc(&who(), None, false).unwrap();
        check(&again, main, files);
        assert!(used(&disk) <= bytes_of(files) * 3 / 2, "{fault:?}: {} bytes are left", used(&disk));
        again.close().unwrap();
        verify(&disk).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    }
    hit
}

#[test]
fn every_call_that_fails_while_packs_are_thinned_loses_nothing() {
    let template = ForgetfulDisk::new();
    let memory = open(&template).unwrap();
    let files = scattered(&memory, &mut Chance(4));
    memory.close().unwrap();
    drop(memory);
    assert!(used(&template) > bytes_of(&files) * 2, "a control: the packs hold what nobody needs");
    for (errno, sticky) in [(libc::EIO, false), (libc::ENOSPC, false), (libc::EIO, true)] {
        let mut nth = 1;
        while fail_one(&template, &files, Fault { nth, kinds: ALL, errno, short_write: false, sticky }) {
            nth += stride(3) as u64;
        }
        assert!(nth > 20, "a collection makes {nth} calls");
    }
}

#[test]
fn random_histories_of_files_are_what_a_plain_map_says_whatever_is_thinned() {
    for seed in 0..rounds(4) as u64 {
        history(seed);
    }
}

fn history(seed: u64) {
    let (disk, mut chance) = (ForgetfulDisk::new(), Chance(seed));
    let mut memory = open(&disk).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Keep, "0s").unwrap();
    let mut branches = vec![(main, BTreeMap::new())];
    for step in 0..120 {
        let at = chance.below(branches.len());
        let (branch, name) = (branches[at].0, format!("f{}", chance.below(6)));
        match chance.below(10) {
            0..5 => {
                let length = [10, 4000, 70_000, 200_000][chance.below(4)];
                let bytes = text(&mut chance, length);
                write(&memory, branch, &name, &bytes);
                branches[at].1.insert(name, bytes);
            }
            5 if branches[at].1.remove(&name).is_some() => {
                let (parent, name) = (FILES_ROOT, FileName::new(name.as_bytes()).unwrap());
                memory.edit(&who(), branch, FileOp::Unlink { parent, name, keep: false }).unwrap();
            }
            6 if branches.len() < 4 => {
                let fork = memory.fork(&who(), main, &format!("b{step}"), None).unwrap();
                branches.push((fork, branches[0].1.clone()));
            }
            7 if at > 0 => {
                memory.discard(&who(), branch).unwrap();
                branches.remove(at);
            }
            8 => memory.seal().unwrap(),
            9 if chance.one_in(3) => {
                memory.close().unwrap();
                drop(memory);
                memory = open(&disk).unwrap();
            }
            9 => drop(memory.gc(&who(), None, false).unwrap()),
            _ => {}
        }
        for (branch, files) in &branches {
            let tree = memory.files(&View::Branch(*branch)).unwrap();
            assert_eq!(tree.totals().files, files.len() as u64, "seed {seed}, step {step}");
            check(&memory, *branch, files);
        }
    }
    memory.close().unwrap();
    verify(&disk).unwrap();
}

#[test]
fn status_tells_what_retained_states_alone_hold() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, mut chance) = (main_of(&memory), Chance(5));
    let status = || -> serde_json::Value {
        serde_json::from_slice(&memory.document(&View::Branch(main), Document::Status).unwrap()).unwrap()
    };
    write(&memory, main, "a", &text(&mut chance, 200_000));
    memory.checkpoint(&who(), main, "one", None).unwrap();
    write(&memory, main, "a", &text(&mut chance, 100_000));
    assert_eq!(status()["bytes_kept"], 0, "{}", status());
    memory.rollback(&who(), main, "one").unwrap();
    memory.gc(&who(), None, false).unwrap();
    let kept = status()["bytes_kept"].as_u64().unwrap();
    assert!((100_000..110_000).contains(&kept), "{}", status());
    let since = status()["kept_since"].clone();
    let entries = memory.lineage_lines(main, false).unwrap();
    let times = entries.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["time"].clone());
    assert!(times.clone().any(|time| time == since), "{since}");
    let child = memory.fork(&who(), main, "child", None).unwrap();
    write(&memory, child, "b", &text(&mut chance, 150_000));
    memory.discard(&who(), child).unwrap();
    memory.gc(&who(), None, false).unwrap();
    let with_child = status()["bytes_kept"].as_u64().unwrap();
    assert!((kept + 150_000..kept + 165_000).contains(&with_child), "an ended child's count: {}", status());
    assert_eq!(status()["kept_since"], since);
    memory.set(&who(), main, Setting::Keep, "0s").unwrap();
    memory.gc(&who(), None, false).unwrap();
    let left = status()["bytes_kept"].as_u64().unwrap();
    assert!(
        status()["kept_since"].is_null() && (150_000..165_000).contains(&left),
        "the child keeps its own: {}",
        status()
    );
}

/// Who owns a branch looks there and not into the lineage.
#[test]
fn earlier_states_that_went_for_a_full_disk_are_told_in_errors_and_events() {
    let disk = ForgetfulDisk::new();
    disk.limit(8 << 20, 1 << 20);
    let around = Environment { reserve_bytes: 8 << 20, ..environment() };
    let memory = Memory::open_on(Arc::new(disk), OpenMode::Create, None, around).unwrap();
    let mounted = Filesystem::new(memory.clone(), FsOptions::default());
    let (main, mut chance) = (main_of(&memory), Chance(7));
    memory.checkpoint(&who(), main, "empty", None).unwrap();
    // What the first round wrote is an earlier state, which goes in the second.
    for _ in 0..2 {
        let mut write = |n: u32| try_write(&memory, &who(), main, &format!("f{n}"), &text(&mut chance, 200 << 10));
        assert!((0..1_000).any(|n| write(n).is_err()), "the disk never gets full");
        memory.rollback(&who(), main, "empty").unwrap();
    }
    let caller = Caller { uid: who().uid, gid: who().gid, pid: 0 };
    let lookup = |parent, name: &str| mounted.lookup(caller, parent, OsStr::new(name)).unwrap().attr.ino;
    let read = |name: &str| {
        let handle = mounted.open(caller, lookup(lookup(1, "main"), name), libc::O_RDONLY).unwrap();
        let bytes = mounted.read(handle, 0, 4 << 20).unwrap();
        mounted.release(handle);
        String::from_utf8(bytes).unwrap()
    };
    let (errors, events) = (read("errors"), read("events.jsonl"));
    assert!(errors.contains(r#""code":"kept_dropped""#), "{errors}");
    assert!(events.contains(r#""event":"kept_dropped""#), "{events}");
}
