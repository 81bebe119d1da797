//! One user makes the server hold as much memory as legal calls can.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::mount::{Mount, as_user, say};
use crate::{ANN, BOB, row};

/// The word by which the program starts itself as the attacker.
pub const WORD: &str = "hold-memory";

/// What the server may take, and the limit of its address space.
const MEMORY: u64 = 512 << 20;
const ADDRESS_SPACE: u64 = 1536 << 20;
/// Longest that a small call of another user may take.
const WORST: Duration = Duration::from_millis(250);

/// Forks that ANN makes.
const FORKS: usize = 60;

type Attack = (&'static str, fn(&Path, bool));

const ATTACKS: [Attack; 10] = [
    ("scratch/ filled in 60 forks", scratch),
    ("63 MiB of temporaries in 60 forks", temporaries),
    ("60 MB of answers unread in 60 forks", answers),
    ("6 ingests of 1 GB not committed", ingests),
    ("400 records of 16 MB not committed", records),
    ("rollbacks between two states", rollbacks),
    ("posix_fallocate of 40 GiB, 49 times", reserved),
    ("config/rules written in a loop", rules),
    ("files with long names, hard links and attributes", names),
    ("500 handles on a long diff", diffs),
];

pub fn run(quick: bool, only: Option<&str>) {
    let mount = Mount::limited(&["--memory", "512M"], ADDRESS_SPACE);
    for (user, name) in [(ANN, "ann"), (BOB, "bob")] {
        let made = as_user(user, "mkdir").arg(mount.at("main/branches").join(name)).status().unwrap();
        assert!(made.success());
    }
    fill(&mount.at("main/ingest"), if quick { 1_000 } else { 4_000 });
    for (name, _) in ATTACKS.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only))) {
        attack(&mount, name, quick);
    }
}

/// Runs one attack as ANN, looks at the server meanwhile, and at what BOB's calls take.
fn attack(mount: &Mount, name: &str, quick: bool) {
    let program = std::env::current_exe().unwrap();
    let mut child = as_user(ANN, program);
    child.args([WORD, name]).arg(mount.at("main/branches/ann")).arg(if quick { "quick" } else { "whole" });
    let mut child = child.stdin(Stdio::null()).spawn().unwrap();
    let mut bob = as_user(BOB, std::env::current_exe().unwrap());
    let bob = bob.args([WORD, "small calls"]).arg(mount.at("main/branches/bob")).stdin(Stdio::piped());
    let mut bob = bob.stdout(Stdio::piped()).spawn().unwrap();
    let (mut most, begun) = (0, Instant::now());
    let alive = loop {
        let Some(now) = mount.anonymous_memory() else { break false };
        most = most.max(now);
        if child.try_wait().unwrap().is_some() || begun.elapsed() > Duration::from_secs(300) {
            break true;
        }
        sleep(Duration::from_millis(2));
    };
    let _ = child.kill();
    let _ = child.wait();
    drop(bob.stdin.take());
    let mut worst = String::new();
    bob.stdout.take().unwrap().read_to_string(&mut worst).unwrap();
    let served = bob.wait().unwrap().success();
    let worst = Duration::from_micros(worst.trim().parse().unwrap_or(u64::MAX));
    let held = alive && served && most <= MEMORY && worst < WORST;
    let state = if alive && served { "lives" } else { "died or refused others" };
    let measured = format!("{state}, {} MiB, {} ms", most >> 20, worst.as_millis());
    let bound = format!("≤ {} MiB, others' calls < {} ms", MEMORY >> 20, WORST.as_millis());
    row(&format!("memory: {name}"), &bound, &measured, held);
}

/// What the program does when it starts itself.
pub fn serve(words: &[String]) {
    let (name, branch) = (&words[0], Path::new(&words[1]));
    if name == "small calls" {
        return small_calls(branch);
    }
    let quick = words[2] == "quick";
    let (_, attack) = ATTACKS.iter().find(|(known, _)| known == name).unwrap();
    attack(branch, quick);
}

/// Small calls until standard input ends; prints the longest one's microseconds.
fn small_calls(branch: &Path) {
    let ended = std::thread::spawn(|| {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
    });
    let mut worst = Duration::ZERO;
    let mut number = 0u32;
    while !ended.is_finished() {
        number += 1;
        let begun = Instant::now();
        fs::metadata(branch.join("README.md")).unwrap();
        fs::write(branch.join("vectors/small.json"), format!("{{\"text\":\"note {number}\"}}")).unwrap();
        fs::read(branch.join("vectors/small.json")).unwrap();
        fs::write(branch.join("files/small"), number.to_string()).unwrap();
        worst = worst.max(begun.elapsed());
        sleep(Duration::from_millis(5));
    }
    println!("{}", worst.as_micros());
}

/// Records with vectors, for long answers.
fn fill(ingest: &Path, records: usize) {
    let mut file = File::options().write(true).open(ingest).unwrap();
    for number in 0..records {
        let vector: Vec<String> =
            (0..384).map(|at| format!("{:.4}", ((number * 31 + at * 7) % 97) as f32 / 97.0 + 0.01)).collect();
        writeln!(file, "{{\"id\":\"r{number}\",\"text\":\"word {number}\",\"vector\":[{}]}}", vector.join(","))
            .unwrap();
    }
    file.sync_all().unwrap();
}

fn forks(branch: &Path) -> Vec<std::path::PathBuf> {
    (0..FORKS)
        .map(|number| {
            let fork = branch.join(format!("branches/fork-{number}"));
            let _ = fs::create_dir(&fork);
            fork
        })
        .collect()
}

/// Writes until it is refused, or `most` bytes.
fn pour(file: &mut File, most: usize) {
    let bytes = vec![b'x'; 1 << 20];
    for _ in 0..most >> 20 {
        if file.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn scratch(branch: &Path, _: bool) {
    let mut kept = Vec::new();
    for fork in forks(branch) {
        for size in ["1000G", "1G"] {
            let _ = fs::write(fork.join("config/scratch_size"), size);
        }
        if let Ok(mut file) = File::create(fork.join("scratch/full")) {
            pour(&mut file, 100 << 20);
            kept.push(file);
        }
    }
    drop(kept);
    forks(branch).iter().for_each(|fork| drop(fs::remove_file(fork.join("scratch/full"))));
}

fn temporaries(branch: &Path, _: bool) {
    for fork in forks(branch) {
        if let Ok(mut file) = File::create(fork.join("vectors/.full")) {
            pour(&mut file, 63 << 20);
        }
        // Many small ones take more than their bytes.
        for number in 0..200 {
            let _ = fs::write(fork.join(format!("vectors/.{number}")), "x");
        }
    }
    for fork in forks(branch) {
        let _ = fs::remove_file(fork.join("vectors/.full"));
        (0..200).for_each(|number| drop(fs::remove_file(fork.join(format!("vectors/.{number}")))));
    }
}

fn answers(branch: &Path, quick: bool) {
    let mut kept = Vec::new();
    for fork in forks(branch).iter().take(if quick { 8 } else { FORKS }) {
        let mut query = File::options().read(true).write(true).open(fork.join("query")).unwrap();
        for _ in 0..12 {
            if query.write_all(b"{\"text\":\"word\",\"mode\":\"text\",\"k\":10000,\"include\":[\"vector\"]}\n").is_err()
            {
                break;
            }
        }
        kept.push(query);
    }
    drop(kept);
}

fn ingests(branch: &Path, quick: bool) {
    let mut kept = Vec::new();
    let text = "x".repeat(100_000);
    for _ in 0..6 {
        let mut ingest = File::options().write(true).open(branch.join("ingest")).unwrap();
        for number in 0..if quick { 500 } else { 10_000 } {
            if writeln!(ingest, "{{\"id\":\"i{number}\",\"text\":\"{text}\"}}").is_err() {
                break;
            }
        }
        kept.push(ingest);
    }
    // A signal ends this before anything is committed.
    sleep(Duration::from_millis(200));
    // What is not committed goes with a bad line.
    kept.iter_mut().for_each(|ingest| drop(ingest.write_all(b"{bad\n")));
}

fn records(branch: &Path, _: bool) {
    let mut kept = Vec::new();
    for number in 0..400 {
        let Ok(mut record) = File::create(branch.join(format!("vectors/b{number}.json"))) else { continue };
        if record.write_all(b"{\"text\":\"").is_ok() {
            pour(&mut record, 15 << 20);
        }
        kept.push(record);
    }
}

fn rollbacks(branch: &Path, quick: bool) {
    let ctl = branch.join("ctl");
    for label in ["one", "two"] {
        fs::write(branch.join("files/state"), label).unwrap();
        let _ = say(&ctl, &format!("checkpoint {label}"));
    }
    let mut control = File::options().write(true).open(&ctl).unwrap();
    for _ in 0..if quick { 1_000 } else { 50_000 } {
        let _ = control.write_all(b"rollback one\nrollback two\n");
    }
}

fn reserved(branch: &Path, _: bool) {
    for number in 0..49 {
        let file = File::create(branch.join(format!("files/reserved-{number}"))).unwrap();
        let _ = std::process::Command::new("fallocate")
            .args(["-l", "40GiB"])
            .arg(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
            .stderr(Stdio::null())
            .status();
    }
    (0..49).for_each(|number| drop(fs::remove_file(branch.join(format!("files/reserved-{number}")))));
}

fn rules(branch: &Path, quick: bool) {
    let begun = Instant::now();
    let mut number = 0;
    while begun.elapsed() < Duration::from_secs(if quick { 3 } else { 15 }) {
        number += 1;
        let rules: String = (0..900).map(|line| format!("path-{number}/folder-{line}/**/*.txt newest\n")).collect();
        let _ = fs::write(branch.join("config/rules"), rules[..rules.len().min(60_000)].rsplit_once('\n').unwrap().0);
    }
    let _ = fs::write(branch.join("config/rules"), "* newest");
}

fn names(branch: &Path, quick: bool) {
    let begun = Instant::now();
    let long = "n".repeat(240);
    let attribute = vec![b'x'; 60_000];
    for fork in forks(branch) {
        for number in 0..20_000 {
            let path = fork.join(format!("files/{long}{number}"));
            let over = begun.elapsed() > Duration::from_secs(if quick { 5 } else { 60 });
            if over || File::create(&path).is_err() {
                break;
            }
            if number % 16 == 0 {
                set_attribute(&path, &attribute);
            }
            let _ = fs::hard_link(&path, fork.join(format!("files/{long}{number}-again")));
        }
    }
    forks(branch).iter().for_each(|fork| drop(fs::remove_dir(fork)));
}

fn set_attribute(path: &Path, value: &[u8]) {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: both strings end in NUL, and the value is as long as is said.
    unsafe { libc::setxattr(path.as_ptr(), c"user.large".as_ptr(), value.as_ptr().cast(), value.len(), 0) };
}

fn diffs(branch: &Path, quick: bool) {
    let fork = branch.join("branches/long-diff");
    let _ = fs::create_dir(&fork);
    let mut ingest = File::options().write(true).open(fork.join("ingest")).unwrap();
    for number in 0..if quick { 5_000 } else { 50_000 } {
        writeln!(ingest, "{{\"id\":\"d{number}\",\"text\":\"word\"}}").unwrap();
    }
    drop(ingest);
    let mut kept = Vec::new();
    for _ in 0..500 {
        if let Ok(mut diff) = File::open(fork.join("diff")) {
            let _ = diff.read(&mut [0; 16]);
            kept.push(diff);
        }
    }
}
