//! Stores to measure, and forks in process.

use std::path::Path;
use std::sync::Arc;

use engramfs::memory::{Actor, BranchId, Environment, Memory, OpenMode, RecordEdit, RecordInput};

use crate::{micros, p50, row};

pub const DIM: usize = 384;

/// Rows of the large store: 1,000,000, or `ENGRAMFS_BENCH_ROWS`.
pub fn rows_of_large() -> usize {
    std::env::var("ENGRAMFS_BENCH_ROWS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000)
}

pub fn who() -> Actor {
    Actor { uid: 0, gid: 0, name: "root".into() }
}

pub fn open(path: &Path) -> Arc<Memory> {
    // A thread of the store that was just closed may hold it a moment longer.
    for _ in 0..1000 {
        match Memory::open(path, OpenMode::Create, "bench", Environment::real(who())) {
            Err(error) if error.kind() == engramfs::memory::Kind::Locked => {
                std::thread::sleep(std::time::Duration::from_millis(1))
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("the store stays locked");
}

/// A cheap random vector.
pub fn vector(seed: &mut u64) -> Vec<f32> {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..DIM).map(|_| next()).collect()
}

/// A record like the real ones: a sentence and a little metadata.
pub fn edit(id: String, seed: &mut u64) -> RecordEdit {
    let text =
        "A sentence of about the length that notes of agents have, so that sizes are true to life and not flattering.";
    let mut input = RecordInput::from_vector(vector(seed)).unwrap();
    input.text = Some(text.into());
    let metadata =
        serde_json::Map::from_iter([("package".to_owned(), "example".into()), ("words".to_owned(), 21.into())]);
    RecordEdit::Put { id: id.into(), input: input.with_metadata(metadata) }
}

/// Fills `main` with bare vectors, in batches that go straight into segments.
pub fn fill(memory: &Memory, rows: usize) -> BranchId {
    let main = memory.root("main").unwrap();
    let mut seed = 1;
    for start in (0..rows).step_by(65_536) {
        let edits = (start..rows.min(start + 65_536)).map(|n| {
            let input = RecordInput::from_vector(vector(&mut seed)).unwrap();
            RecordEdit::Put { id: format!("row-{n:08}").into(), input }
        });
        memory.commit(&who(), main, edits.collect()).unwrap();
    }
    main
}

/// Returns the sum of the lengths of all files below a folder.
pub fn bytes_of(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
    let length = |entry: std::fs::DirEntry| {
        if entry.path().is_dir() { bytes_of(&entry.path()) } else { entry.metadata().unwrap().len() }
    };
    entries.map(length).sum()
}

fn fork_p50(memory: &Memory, parent: BranchId, prefix: &str) -> f64 {
    let fork = |n: usize| micros(|| assert!(memory.fork(&who(), parent, &format!("{prefix}{n:03}"), None).is_ok()));
    p50((0..500).map(fork).collect())
}

pub fn forks(rows: usize) {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path());
    let main = fill(&memory, rows);
    memory.fork(&who(), main, "warm-up", None).unwrap();
    let growth = |n: usize| {
        let before = bytes_of(folder.path());
        memory.fork(&who(), main, &format!("agent-{n}"), None).unwrap();
        bytes_of(folder.path()).checked_sub(before)
    };
    // A seal or an index build in between changes the length by something else, so the least of some forks counts.
    let bytes = (0..9).filter_map(growth).min().unwrap();
    let how = format!("{rows} records");
    row("bytes a fork adds to the store, name of 7 letters, signed", "≤ 162", &bytes.to_string(), &how);
    let few = fork_p50(&memory, main, "few-");
    row(
        "fork in process, acknowledged, p50",
        "< 40 µs",
        &format!("{few:.1} µs"),
        &format!("{how}, 1 to 500 siblings, depth 1"),
    );
    for n in 0..10_000 {
        memory.fork(&who(), main, &format!("sib-{n:05}"), None).unwrap();
    }
    let many = fork_p50(&memory, main, "many");
    row(
        "the same with 10,000 siblings",
        "the same",
        &format!("{many:.1} µs"),
        &format!("{:.2} × that with few", many / few),
    );
    let mut deep = main;
    for _ in 0..64 {
        deep = memory.fork(&who(), deep, "deeper1", None).unwrap();
    }
    let depth = fork_p50(&memory, deep, "deep");
    row(
        "the same at depth 64",
        "the same",
        &format!("{depth:.1} µs"),
        &format!("{:.2} × that at depth 1", depth / few),
    );
    let start = std::time::Instant::now();
    let one = 50;
    for n in 0..one {
        memory.fork(&who(), main, &format!("dur-{n:04}"), None).unwrap();
        memory.sync().unwrap();
    }
    let alone = start.elapsed().as_secs_f64() / f64::from(one);
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..15 {
            let memory = &memory;
            scope.spawn(move || {
                for n in 0..50 {
                    memory.fork(&who(), main, &format!("t{thread:02}-{n:04}"), None).unwrap();
                    memory.sync().unwrap();
                }
            });
        }
    });
    let shared = start.elapsed().as_secs_f64() / (15.0 * 50.0);
    row(
        "a fork made durable (fsync): alone; 15 at once, each",
        "one flush, shared",
        &format!("{:.0} µs; {:.0} µs", alone * 1e6, shared * 1e6),
        &format!("{:.1} forks a flush's time", alone / shared),
    );
    memory.close().unwrap();
    drop(memory);
    let open_time = p50((0..5).map(|_| micros(|| open(folder.path()).close().unwrap())).collect());
    row(
        "opening in process",
        "< 100 ms",
        &format!("{:.1} ms", open_time / 1e3),
        &format!("{how}, 11,000 branches since the last seal"),
    );
}
