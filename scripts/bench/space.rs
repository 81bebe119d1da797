//! Space that a store takes for what is alive in it, a minute after the last write and after `gc`, on the mount; entries that
//! fsync(2) makes; and what forks leave that were discarded.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::mounted::Mount;
use crate::row;

const MIB: f64 = (1 << 20) as f64;
/// What a load may leave: a minute after its end, and after a collection.
const BOUNDS: &str = "≤ 2 × / ≤ 1.2 ×";
/// Forks that are made, written to and discarded.
const FORKS: usize = 10_000;
/// fsyncs of one file, spread over most of a minute.
const FSYNCS: usize = 60_000;

/// What is written, and where.
type Load = fn(&Path);

const LOADS: [(&str, Load); 3] = [
    ("a file of 120 KiB saved 2,500 times", saves),
    ("SQLite, 30,000 commits", sqlite),
    ("32 MiB, 220,000 random writes of 4 KiB", random),
];

pub fn run() {
    for keep in ["0s", "30d"] {
        for (name, load) in LOADS {
            measure(name, load, keep);
        }
    }
    fsyncs();
    discards();
}

struct Site {
    _folder: tempfile::TempDir,
    store: PathBuf,
    mount: Mount,
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = (folder.path().join("store"), folder.path().join("mnt"));
        fs::create_dir(&path).unwrap();
        Site { mount: Mount::new(&store, &path), store, _folder: folder }
    }

    fn main(&self) -> PathBuf {
        self.mount.path.join("main")
    }

    /// Bytes on the disk beside the reserve.
    fn bytes(&self) -> f64 {
        allocated(&self.store) - allocated(&self.store.join("reserve"))
    }

    fn ctl(&self, verb: &str) -> Value {
        let mut file = File::options().read(true).write(true).open(self.main().join("ctl")).unwrap();
        file.write_all(format!("{verb}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        file.read_to_string(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.main().join("status")).unwrap()).unwrap()
    }

    /// What only retained states hold.
    fn kept(&self) -> f64 {
        self.status()["bytes_kept"].as_f64().unwrap()
    }
}

fn allocated(path: &Path) -> f64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0.0 };
    if !found.is_dir() {
        return found.blocks() as f64 * 512.0;
    }
    fs::read_dir(path).unwrap().map(|entry| allocated(&entry.unwrap().path())).sum()
}

fn measure(name: &str, load: Load, keep: &str) {
    let site = Site::new();
    fs::write(site.main().join("config/keep"), keep).unwrap();
    let empty = site.bytes();
    let start = Instant::now();
    load(&site.main().join("files"));
    let took = start.elapsed().as_secs_f64();
    let at_once = site.bytes() - empty;
    std::thread::sleep(Duration::from_secs(60));
    let live = allocated(&site.main().join("files"));
    let idle = site.bytes() - empty - site.kept();
    site.ctl("gc");
    let collected = site.bytes() - empty - site.kept();
    let measured = format!("{:.2} × / {:.2} ×", idle / live, collected / live);
    let how = format!(
        "`keep` {keep}; {took:.1} s; {:.2} MiB alive; {:.1} MiB at once, {:.1} after a minute, {:.1} after gc, {:.1} kept",
        live / MIB,
        at_once / MIB,
        idle / MIB,
        collected / MIB,
        site.kept() / MIB
    );
    row(&format!("store against live content: {name}"), BOUNDS, &measured, &how);
}

/// Bytes without a pattern, which differ by seed.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..count.div_ceil(8)).flat_map(|_| next()).take(count).collect()
}

fn saves(files: &Path) {
    for turn in 0..2_500 {
        fs::write(files.join("notes"), noise(turn, 120 << 10)).unwrap();
    }
}

fn sqlite(files: &Path) {
    let code = "import sqlite3, os
db = sqlite3.connect('t.db', isolation_level=None)
db.execute('pragma journal_mode=wal'); db.execute('create table t(id integer primary key, body blob)')
for n in range(30000): db.execute('insert into t(body) values (?)', (os.urandom(1500),))";
    let done = Command::new("python3").args(["-c", code]).current_dir(files).status().unwrap();
    assert!(done.success());
}

fn random(files: &Path) {
    const BLOCKS: u64 = 8_192;
    let file = File::options().write(true).create_new(true).open(files.join("image")).unwrap();
    file.write_all_at(&noise(1, 32 << 20), 0).unwrap();
    for turn in 0..220_000u64 {
        let block = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51;
        file.write_all_at(&noise(turn, 4_096), block % BLOCKS * 4_096).unwrap();
    }
}

fn fsyncs() {
    let site = Site::new();
    let entries = || fs::read_to_string(site.main().join("lineage")).unwrap().lines().count();
    let (before, start) = (entries(), Instant::now());
    let file = File::create(site.main().join("files/log")).unwrap();
    for turn in 0..FSYNCS {
        file.write_all_at(b"x", turn as u64).unwrap();
        file.sync_all().unwrap();
    }
    let took = start.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_secs(2));
    let (made, how) = (entries() - before, format!("{took:.1} s; at most 120 within a minute"));
    row("entries that 60,000 fsyncs of one file make", "≤ 120 a minute", &made.to_string(), &how);
}

/// Forks that are written to and discarded, beside a store that never had them.
fn discards() {
    let site = Site::new();
    fs::write(site.main().join("config/keep"), "0s").unwrap();
    site.ctl("gc");
    let fresh = site.bytes();
    let start = Instant::now();
    for turn in 0..FORKS {
        let fork = site.main().join(format!("branches/f{turn}"));
        fs::create_dir(&fork).unwrap();
        let lines = |n: usize| format!("{{\"id\":\"r{n}\",\"text\":\"edit {n} of turn {turn}\"}}\n");
        fs::write(fork.join("ingest"), (0..10).map(lines).collect::<String>()).unwrap();
        fs::remove_dir(&fork).unwrap();
    }
    let took = start.elapsed().as_secs_f64();
    site.ctl("gc");
    // A fork, a commit and a discard each.
    let (entries, more) = (3.0 * FORKS as f64, site.bytes() - fresh);
    let how = format!("{took:.1} s; {:.2} MiB more than before, lineage included, for {entries} entries", more / MIB);
    let figure = "within 10 % beside the lineage; ≤ 300 B an entry";
    row("10,000 × (fork, 10 edits, discard), then gc", figure, &format!("{:.0} B an entry", more / entries), &how);
}
