//! Small calls in other branches while something long runs.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::mount::{Mount, as_user, binary, say};
use crate::probe::{Busy, KINDS, Probe, Times, make_branch};
use crate::{ANN, BOB, row};

/// What a p99 may be in any case, and the worst call.
const P99_MICROS: u64 = 20_000;
const WORST_MICROS: u64 = 250_000;

/// How much is done.
#[derive(Clone, Copy)]
struct Size {
    rounds: usize,
    time: Duration,
    /// Files that are changed on both sides, and lines of each.
    files: usize,
    lines: usize,
    /// Records that are ingested.
    records: usize,
}

/// Something long that ANN does.
struct Long {
    name: &'static str,
    /// Threads of the machine that it uses.
    threads: usize,
    /// Done once, before.
    prepare: fn(&Mount, Size),
    /// Done again and again; `number` grows.
    run: fn(&Mount, Size, usize),
}

const ALL: [Long; 9] = [
    Long { name: "merge by ctl", threads: 1, prepare: prepare_merge, run: run_merge },
    Long { name: "ingest", threads: 1, prepare: nothing, run: run_ingest },
    Long { name: "seal and gc", threads: 1, prepare: nothing, run: run_gc },
    Long { name: "verify", threads: 1, prepare: fill, run: run_verify },
    Long { name: "backup", threads: 1, prepare: fill, run: run_backup },
    Long { name: "diff of 100,000 edits", threads: 1, prepare: fill, run: run_diff },
    Long { name: "question of 600 s", threads: 1, prepare: fill, run: run_question },
    Long { name: "merge by rename", threads: 1, prepare: prepare_merge, run: run_rename },
    Long { name: "rollbacks", threads: 1, prepare: prepare_rollback, run: run_rollback },
];

pub fn run(quick: bool, words: &[String]) {
    let size = match quick {
        true => Size { rounds: 1, time: Duration::from_secs(2), files: 6, lines: 20_000, records: 4_000 },
        false if words.iter().any(|word| word == "--once") => {
            Size { rounds: 1, time: Duration::from_secs(10), files: 60, lines: 60_000, records: 200_000 }
        }
        false => Size { rounds: 5, time: Duration::from_secs(10), files: 60, lines: 60_000, records: 200_000 },
    };
    let only = words.iter().find_map(|word| word.strip_prefix("--only="));
    for long in ALL.iter().filter(|long| only.is_none_or(|only| long.name.contains(only))) {
        measure(long, size);
    }
}

fn measure(long: &Long, size: Size) {
    let mount = Mount::new(&[]);
    let quiet = make_branch(BOB, &mount.at("main"), "quiet");
    let made = as_user(ANN, "mkdir").arg(mount.at("main/branches/loud")).status().unwrap();
    assert!(made.success());
    (long.prepare)(&mount, size);
    let (mut beside, mut alone) = (vec![Times::default(); KINDS.len()], vec![Times::default(); KINDS.len()]);
    let mut p99s: Vec<[Vec<u64>; 2]> = vec![Default::default(); KINDS.len()];
    let mut longest = Duration::ZERO;
    for round in 0..size.rounds {
        let busy = Busy::start(long.threads);
        let reference = Probe::start(BOB, &quiet, size.time).end();
        drop(busy);
        let ended = Arc::new(AtomicBool::new(false));
        let measured = std::thread::scope(|scope| {
            let (mount, ended) = (&mount, &ended);
            let work = scope.spawn(move || {
                let (mut number, mut longest) = (round * 1000, Duration::ZERO);
                while !ended.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    (long.run)(mount, size, number);
                    longest = longest.max(begun.elapsed());
                    number += 1;
                }
                longest
            });
            let measured = Probe::start(BOB, &quiet, size.time).end();
            ended.store(true, Ordering::Relaxed);
            longest = longest.max(work.join().unwrap());
            measured
        });
        for kind in 0..KINDS.len() {
            p99s[kind][0].push(measured[kind].p99());
            p99s[kind][1].push(reference[kind].p99());
            beside[kind].0.extend(&measured[kind].0);
            alone[kind].0.extend(&reference[kind].0);
        }
    }
    for kind in 0..KINDS.len() {
        let median = |times: &mut Vec<u64>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        let [measured, reference] = &mut p99s[kind];
        let (p99, bound) = (median(measured), (3 * median(reference)).max(P99_MICROS));
        let worst = beside[kind].worst();
        row(
            &format!("{} beside {}", KINDS[kind], long.name),
            &format!("p99 ≤ {} ms, worst < 250 ms", bound / 1000),
            &format!(
                "p50 {:.2} ms, p99 {:.2} ms, worst {:.0} ms of {}; beside busy threads p99 {:.2}, worst {:.0} ms; longest {:.1} s",
                beside[kind].p50() as f64 / 1e3,
                p99 as f64 / 1e3,
                worst as f64 / 1e3,
                beside[kind].0.len(),
                alone[kind].p99() as f64 / 1e3,
                alone[kind].worst() as f64 / 1e3,
                longest.as_secs_f64(),
            ),
            p99 <= bound && worst < WORST_MICROS,
        );
    }
}

fn nothing(_: &Mount, _: Size) {}

/// Runs a script of ANN's in their branch.
fn ann(mount: &Mount, script: &str) {
    let status = as_user(ANN, "sh").args(["-ec", script]).current_dir(mount.at("main/branches/loud")).status().unwrap();
    assert!(status.success(), "{script}");
}

/// Writes text files that are not alike.
fn write_texts(mount: &Mount, name: &str, size: Size, seed: usize) {
    let folder = mount.beside(name);
    fs::create_dir_all(&folder).unwrap();
    for file in 0..size.files {
        let mut out = BufWriter::new(File::create(folder.join(format!("t{file}.txt"))).unwrap());
        for line in 0..size.lines {
            let changed = (line + seed).is_multiple_of(97) && seed > 0;
            let word = if changed { seed } else { 0 };
            writeln!(out, "line {line} of the file {file} as it was written by {word}, with some words more").unwrap();
        }
    }
}

fn prepare_merge(mount: &Mount, size: Size) {
    for seed in [0, 1, 2] {
        write_texts(mount, &format!("texts{seed}"), size, seed);
    }
    let base = mount.beside("texts0");
    ann(mount, &format!("cp {}/* files/", base.display()));
}

/// Makes a child whose files are all changed, beside changes of its parent.
fn make_merge(mount: &Mount, number: usize) -> String {
    let name = format!("m{number}");
    let texts = |seed: usize| mount.beside(&format!("texts{seed}")).display().to_string();
    let script = format!(
        "cp {}/* files/; mkdir branches/{name}; cp {}/* branches/{name}/files/; cp {}/* files/",
        texts(0),
        texts(1),
        texts(2)
    );
    ann(mount, &script);
    name
}

fn run_merge(mount: &Mount, _: Size, number: usize) {
    let name = make_merge(mount, number);
    ann(mount, &format!("echo merge > branches/{name}/ctl"));
}

fn run_rename(mount: &Mount, _: Size, number: usize) {
    let name = make_merge(mount, number);
    // The kernel holds the directories meanwhile; those of other branches are not among them.
    ann(mount, &format!("until mv branches/{name} . 2>/dev/null; do sleep 1; done"));
}

pub fn lines_of(mount: &Mount, records: usize) -> std::path::PathBuf {
    let path = mount.beside("lines.jsonl");
    if !path.exists() {
        let mut out = BufWriter::new(File::create(&path).unwrap());
        for record in 0..records {
            let numbers: Vec<String> =
                (0..384).map(|at| format!("{:.4}", ((record * 31 + at * 17) % 1009) as f32 / 1009.0)).collect();
            writeln!(
                out,
                "{{\"id\":\"r{record}\",\"text\":\"some words of record {record}\",\"metadata\":{{\"n\":{}}},\"vector\":[{}]}}",
                record % 100,
                numbers.join(",")
            )
            .unwrap();
        }
    }
    path
}

fn run_ingest(mount: &Mount, size: Size, _: usize) {
    let lines = lines_of(mount, size.records);
    ann(mount, &format!("cat {} > ingest", lines.display()));
}

fn fill(mount: &Mount, size: Size) {
    run_ingest(mount, size, 0);
}

fn run_gc(mount: &Mount, size: Size, number: usize) {
    let some = size.records / 20;
    let lines = lines_of(mount, size.records);
    ann(mount, &format!("tail -n +{} {} | head -n {some} > ingest", number % 19 * some + 1, lines.display()));
    say(&mount.at("main/ctl"), "gc").unwrap();
}

fn run_verify(mount: &Mount, _: Size, _: usize) {
    engramfs(&["verify"], &mount.store);
}

fn run_backup(mount: &Mount, _: Size, number: usize) {
    let copy = mount.beside(&format!("copy{number}"));
    let done = Command::new(binary()).arg("backup").args([&mount.store, &copy]).stdout(Stdio::null()).status();
    assert!(done.unwrap().success());
    fs::remove_dir_all(copy).unwrap();
}

fn engramfs(words: &[&str], last: &Path) {
    let status = Command::new(binary()).args(words).arg(last).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
}

fn run_diff(mount: &Mount, _: Size, _: usize) {
    ann(mount, "cat diff > /dev/null");
}

fn run_question(mount: &Mount, _: Size, _: usize) {
    let numbers: Vec<String> = (0..384).map(|at| format!("{:.3}", (at % 7) as f32 - 3.0)).collect();
    let numbers = numbers.join(",");
    let query = format!(
        "{{\"vector\":[{numbers}],\"text\":\"some words of record\",\"exact\":true,\"k\":10000,\"timeout_ms\":600000}}"
    );
    let all = format!("{query}\n").repeat(4);
    let path = mount.beside("questions");
    fs::write(&path, all).unwrap();
    ann(mount, &format!("exec 3<>query; cat {} >&3; cat <&3 >/dev/null", path.display()));
}

fn prepare_rollback(mount: &Mount, _: Size) {
    ann(
        mount,
        "echo '{\"text\":\"one\"}' > vectors/a.json; mkdir checkpoints/one; \
                echo '{\"text\":\"two\"}' > vectors/a.json; mkdir checkpoints/two",
    );
}

fn run_rollback(mount: &Mount, _: Size, _: usize) {
    let lines = "rollback one\nrollback two\n".repeat(500);
    let path = mount.beside("rollbacks");
    fs::write(&path, lines).unwrap();
    ann(mount, &format!("cat {} > ctl", path.display()));
}
