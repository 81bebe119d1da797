//! A user who makes small calls and measures each.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::mount::{as_user, ask};

/// The first word of the command line of a probe.
pub const WORD: &str = "probe";

/// The calls that are measured.
pub const KINDS: [&str; 6] = ["stat", "ls", "read", "write", "question", "fork"];

/// The place of queries among them.
pub const QUESTION: usize = 4;

/// How long calls of one kind took, in microseconds.
#[derive(Clone, Default, Debug)]
pub struct Times(pub Vec<u64>);

impl Times {
    pub fn p99(&self) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(0)
    }

    pub fn p50(&self) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }

    pub fn worst(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

/// A probe that runs.
pub struct Probe(Child);

impl Probe {
    /// Starts `uid` on calls of all kinds in a branch for so long.
    pub fn start(uid: u32, branch: &Path, time: Duration) -> Probe {
        let child = as_user(uid, std::env::current_exe().unwrap())
            .arg(WORD)
            .arg(branch)
            .arg(time.as_millis().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Probe(child)
    }

    /// Waits for its end; returns the times of each kind.
    pub fn end(self) -> Vec<Times> {
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "a probe failed");
        let text = String::from_utf8(output.stdout).unwrap();
        let line = |line: &str| Times(line.split_whitespace().map(|word| word.parse().unwrap()).collect());
        text.lines().map(line).collect()
    }
}

/// Makes what a probe needs: a branch of its own.
pub fn make_branch(uid: u32, parent: &Path, name: &str) -> PathBuf {
    let branch = parent.join("branches").join(name);
    let status = as_user(uid, "mkdir").arg(&branch).status().unwrap();
    assert!(status.success());
    let script = "mkdir files/sixty && for n in $(seq 60); do echo x > files/sixty/$n; done \
                  && echo \"{\\\"text\\\":\\\"$(printf '%01024d' 7)\\\"}\" > vectors/kib.json \
                  && for n in $(seq 20); do echo \"{\\\"text\\\":\\\"word number $n of some\\\"}\" > vectors/r$n.json; done";
    let status = as_user(uid, "sh").args(["-ec", script]).current_dir(&branch).status().unwrap();
    assert!(status.success());
    branch
}

/// The life of a probe: calls of all kinds in turn, with a pause between two turns.
pub fn serve(words: &[String]) {
    let (branch, time) = (PathBuf::from(&words[0]), Duration::from_millis(words[1].parse().unwrap()));
    let mut query = File::options().read(true).write(true).open(branch.join("query")).unwrap();
    let mut times = vec![Times::default(); KINDS.len()];
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < time {
        number += 1;
        let mut calls: [&mut dyn FnMut(); 6] = [
            &mut || assert!(fs::metadata(branch.join("README.md")).unwrap().is_file()),
            &mut || assert_eq!(fs::read_dir(branch.join("files/sixty")).unwrap().count(), 60),
            // The kernel keeps no pages of records.
            &mut || assert!(fs::read(branch.join("vectors/kib.json")).unwrap().len() > 1024),
            &mut || fs::write(branch.join("files/small"), number.to_string()).unwrap(),
            &mut || {
                let answer = ask(&mut query, "some word").unwrap();
                assert!(answer.contains("\"ok\":true"), "{answer}");
            },
            &mut || fs::create_dir(branch.join(format!("branches/f{number}"))).unwrap(),
        ];
        for (kind, call) in calls.iter_mut().enumerate() {
            let begun = Instant::now();
            call();
            times[kind].0.push(begun.elapsed().as_micros() as u64);
        }
        fs::remove_dir(branch.join(format!("branches/f{number}"))).unwrap();
        std::thread::sleep(Duration::from_micros(500));
    }
    for times in times {
        println!("{}", times.0.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    }
}

/// Threads that compute and do nothing else, in processes of their own.
pub struct Busy(Vec<Child>);

impl Busy {
    pub fn start(threads: usize) -> Busy {
        let one = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Busy((0..threads).map(|_| one()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
