//! Attacks on a mount by users who may do no more than POSIX lets them: `scripts/attack.sh`.
//!
//! Each part prints a row for each of its bounds: what was done, the bound, what was measured, and whether it held. The
//! exit code is 1 where one did not. The program under attack is this package's, or the one that ENGRAMFS_BINARY names.
#![expect(clippy::unwrap_used, reason = "an attack may panic")]
#![expect(clippy::print_stdout, reason = "an attack prints what it found")]

mod full;
mod history;
mod memory;
mod mount;
mod probe;
mod shares;
mod stalls;

use std::sync::atomic::{AtomicBool, Ordering};

/// The users who attack and are attacked.
const ANN: u32 = 64_001;
const BOB: u32 = 64_002;

static FAILED: AtomicBool = AtomicBool::new(false);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // The program starts itself as the users whose calls it measures.
    if words.first().is_some_and(|word| word == probe::WORD) {
        return probe::serve(&words[1..]);
    }
    if words.first().is_some_and(|word| word == memory::WORD) {
        return memory::serve(&words[1..]);
    }
    if words.first().is_some_and(|word| word == shares::WORD) {
        return shares::serve(&words[1..]);
    }
    let quick = words.iter().any(|word| word == "--quick");
    let chosen: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let wants = |name: &str| chosen.is_empty() || chosen.iter().any(|word| *word == name);
    println!("| attack | bound | measured | held |\n|---|---|---|---|");
    if wants("stalls") {
        stalls::run(quick, &words);
    }
    if wants("shares") {
        shares::run(quick);
    }
    if wants("memory") {
        memory::run(quick, words.iter().find_map(|word| word.strip_prefix("--only=")));
    }
    if wants("history") {
        history::run(quick);
    }
    if wants("full") {
        full::run(quick);
    }
    if FAILED.load(Ordering::Relaxed) {
        std::process::exit(1);
    }
}

/// Prints one row of the table.
fn row(attack: &str, bound: &str, measured: &str, held: bool) {
    println!("| {attack} | {bound} | {measured} | {} |", if held { "yes" } else { "**no**" });
    FAILED.fetch_or(!held, Ordering::Relaxed);
}
