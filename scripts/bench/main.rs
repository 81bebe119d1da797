//! The figures of docs/BENCHMARKS.md, each measured in this one run: `scripts/bench.sh store`.
//!
//! Prints one Markdown row a figure. Sizes are rows of 384 dimensions; the large store's vectors are
//! random, since no figure here depends on what they say.
#![expect(clippy::unwrap_used, reason = "a bench may panic")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod bare;
mod files;
mod history;
mod merging;
mod mounted;
mod real;
mod search;
mod sizes;
mod space;
mod store;

use std::time::Instant;

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    // The bench starts itself as the file system that it measures beside.
    if chosen.first().is_some_and(|word| word == bare::WORD) {
        return bare::serve(chosen[1].as_ref(), chosen.len() > 2);
    }
    let wants = |name: &str| chosen.is_empty() || chosen.iter().any(|word| word == name);
    println!("| what | figure | measured | how |\n|---|---|---|---|");
    let large = store::rows_of_large();
    if wants("sizes") {
        sizes::run();
    }
    if wants("merge") {
        merging::run();
    }
    if wants("history") {
        history::run();
    }
    if wants("fork") {
        store::forks(20_000);
        store::forks(large);
    }
    if wants("real") {
        real::run();
    }
    if wants("mounted") {
        mounted::run(large);
    }
    if wants("files") {
        files::run();
    }
    if wants("space") {
        space::run();
    }
    // Last: its tables follow that of the figures.
    if wants("search") {
        search::run();
    }
}

/// Prints one row of the table.
pub fn row(what: &str, figure: &str, measured: &str, how: &str) {
    println!("| {what} | {figure} | {measured} | {how} |");
}

/// Runs `work` and returns its microseconds.
pub fn micros(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

/// Returns the median.
pub fn p50(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the CPU seconds of this process, its own threads and finished children.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (11..15).map(|at| fields[at].parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Returns the resident bytes of a process that no other process shares through the page cache.
pub fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
