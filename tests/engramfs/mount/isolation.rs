//! Fifteen users with closed branches on one mount, each against all others, and who counts as whom.

/// Root, owners, others, groups, user namespaces and sandboxes: a table of who may do what.
mod identities;
/// Queries whose nearest answers lie in branches of others.
mod queries;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::users::shared;
use super::{Mounted, command, run};
use crate::support::{Chance, rounds};

/// How many users attack one another.
const AGENTS: usize = 15;
/// The uid of the first.
const FIRST_UID: u32 = 4101;
/// How long they do it.
const SECONDS: usize = 3;
/// What an agent is: a Python program, in the order in which its parts need one another.
const AGENT: &str = concat!(
    include_str!("isolation/agent.py"),
    include_str!("isolation/owner.py"),
    include_str!("isolation/attacker.py")
);

/// A process that works in its own branch and attacks the others.
struct Agent {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Agent {
    /// Starts it as a user, with the secret of its canaries, which no other user can find in /proc.
    fn start(mount: &Mounted, (uid, number, seconds): (u32, usize, usize), secret: &str) -> Agent {
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
        let words = [mount.at(""), mount.site.store.clone()].map(|path| path.display().to_string());
        let numbers = [number, AGENTS, seconds].map(|number| number.to_string());
        let mut process = command("setpriv", &[&ids[0], &ids[1], "--clear-groups", "python3", "-c", AGENT])
            .args([words[0].trim_end_matches('/'), &words[1]])
            .args(numbers)
            // The shell of whoever runs this may find a program that is theirs alone.
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = process.stdin.take().unwrap();
        input.write_all(format!("{secret}\n").as_bytes()).unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Agent { process, input, output }
    }

    /// Waits until its branch is there.
    fn ready(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }

    fn go(&mut self) {
        self.input.write_all(b"go\n").unwrap();
    }

    /// Returns what it did, by name, and what it found.
    fn end(mut self) -> (BTreeMap<String, u64>, Vec<Value>) {
        let mut report = String::new();
        self.output.read_to_string(&mut report).unwrap();
        if !self.process.wait().unwrap().success() {
            return (BTreeMap::new(), vec![json!("it ended before its time, as it said on standard error")]);
        }
        let report: Value = serde_json::from_str(&report).unwrap();
        (serde_json::from_value(report["done"].clone()).unwrap(), report["wrong"].as_array().unwrap().clone())
    }
}

#[test]
fn who_attacks_a_closed_branch_on_any_way_learns_nothing_and_its_owner_reads_what_they_wrote() {
    let Some(mount) = shared() else { return };
    let mut chance = Chance(22);
    let mut agents: Vec<Agent> = (0..AGENTS)
        .map(|n| {
            let about = (FIRST_UID + n as u32, n, rounds(SECONDS));
            Agent::start(&mount, about, &format!("{:016x}", chance.next()))
        })
        .collect();
    agents.iter_mut().for_each(Agent::ready);
    agents.iter_mut().for_each(Agent::go);
    let (mut done, mut wrong) = (BTreeMap::<String, u64>::new(), Vec::new());
    for (n, agent) in agents.into_iter().enumerate() {
        let (did, found) = agent.end();
        did.into_iter().for_each(|(what, times)| *done.entry(what).or_default() += times);
        wrong.extend(found.into_iter().map(|finding| json!({"agent": n, "finding": finding})));
    }
    assert!(wrong.is_empty(), "{} findings: {wrong:#?}", wrong.len());
    let all = "by_path around moves changes by_handle by_process races queries verbs told hold pry doors handles checks bytes";
    let missing: Vec<&str> = all.split(' ').filter(|what| !done.contains_key(*what)).collect();
    assert!(missing.is_empty(), "never done: {missing:?} of {done:?}");
    let mut root = Agent::start(&mount, (0, 99, 1), "");
    root.ready();
    root.go();
    let (did, found) = root.end();
    assert!(!found.is_empty(), "a control: root finds canaries by the same attacks, of which it did {did:?}");
    assert_eq!(run(&["verify", mount.site.store.to_str().unwrap()]).0, 0);
}
