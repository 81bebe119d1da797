//! Many heavy queries of one user beside small queries of another.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::mount::{Mount, as_user};
use crate::probe::Probe;
use crate::{ANN, BOB, row};

/// The word by which the program starts itself as one who asks.
pub const WORD: &str = "ask-heavily";

const ASKERS: usize = 24;
/// How much longer BOB may wait beside all of them than beside one.
const FACTOR: u64 = 5;

pub fn run(quick: bool) {
    let (records, time) = if quick { (5_000, 3) } else { (100_000, 20) };
    let mount = Mount::new(&[]);
    let quiet = crate::probe::make_branch(BOB, &mount.at("main"), "quiet");
    let loud = mount.at("main/branches/loud");
    assert!(as_user(ANN, "mkdir").arg(&loud).status().unwrap().success());
    let lines = crate::stalls::lines_of(&mount, records);
    let script = format!("cat {} > ingest", lines.display());
    assert!(as_user(ANN, "sh").args(["-ec", &script]).current_dir(&loud).status().unwrap().success());
    let time = Duration::from_secs(time);
    let measure = |askers: usize| {
        let _askers = Askers::start(askers, &loud);
        std::thread::sleep(Duration::from_millis(500));
        let times = Probe::start(BOB, &quiet, time).end();
        times[crate::probe::QUESTION].clone()
    };
    let rounds: Vec<[u64; 2]> = (0..if quick { 1 } else { 5 }).map(|_| [1, ASKERS].map(|n| measure(n).p99())).collect();
    let median = |which: usize| {
        let mut p99s: Vec<u64> = rounds.iter().map(|round| round[which]).collect();
        p99s.sort_unstable();
        p99s[p99s.len() / 2]
    };
    let (one, all) = (median(0), median(1));
    row(
        &format!("a query beside {ASKERS} heavy askers of another user"),
        &format!("p99 ≤ {FACTOR} × beside one"),
        &format!(
            "p99 {:.2} ms, beside one {:.2} ms: {:.2} ×",
            all as f64 / 1e3,
            one as f64 / 1e3,
            all as f64 / one as f64
        ),
        all <= FACTOR * one,
    );
}

/// Processes of ANN's that ask all the time.
struct Askers(Vec<Child>);

impl Askers {
    fn start(count: usize, branch: &Path) -> Askers {
        let one = || {
            let mut child = as_user(ANN, std::env::current_exe().unwrap());
            child.arg(WORD).arg(branch).stdin(Stdio::null()).spawn().unwrap()
        };
        Askers((0..count).map(|_| one()).collect())
    }
}

impl Drop for Askers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The life of one who asks: every record is compared, until this is killed.
pub fn serve(words: &[String]) {
    let branch = Path::new(&words[0]);
    let numbers: Vec<String> = (0..384).map(|at| format!("{:.3}", (at % 7) as f32 - 3.0)).collect();
    let line =
        format!("{{\"vector\":[{}],\"text\":\"some words of record\",\"exact\":true,\"k\":1000}}", numbers.join(","));
    let mut query = fs::File::options().read(true).write(true).open(branch.join("query")).unwrap();
    loop {
        let answer = crate::mount::ask(&mut query, &line).unwrap();
        assert!(answer.contains("\"ok\":true"), "{answer}");
    }
}
