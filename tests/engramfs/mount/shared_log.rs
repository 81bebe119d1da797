//! `shared/log/` as shells, other users and agents that die see it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::users::{act, assert_refused, shared};
use super::{Mounted, Site, command, lines, names, read, run};
use crate::support::{Chance, rounds};

fn texts(text: &str) -> Vec<String> {
    lines(text).iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_agent_writes_reads_and_remembers_how_far_with_echo_and_cat() {
    let mount = Mounted::new();
    mount.sh("mkdir main/branches/a; cd main/branches/a/shared/log; echo 'the pump is broken' > append
              printf '%s\\n' '{\"text\":\"ordered a new one\",\"kind\":\"order\"}' 'it comes on Monday' > append");
    assert_eq!(names(mount.at("main/shared")), ["events.jsonl", "log", "signals"]);
    assert_eq!(
        names(mount.at("main/shared/log")),
        ["after", "append", "closed", "cursor", "entries.jsonl", "last", "unread"]
    );
    assert_eq!(texts(&mount.sh("cat main/shared/log/last/2")), ["ordered a new one", "it comes on Monday"]);
    assert_eq!(texts(&mount.sh("cat main/shared/log/after/2")), ["it comes on Monday"]);
    assert_eq!(texts(&mount.sh("cd main/branches/a/shared/log; echo 1 > cursor; cat unread")).len(), 2);
    assert_eq!(mount.sh("cat main/branches/a/shared/log/cursor main/shared/log/cursor"), "1\n0\n");
    let told =
        mount.sh("cd main/shared/log; printf 'two\\nthree\\nunfinished' > ../../../../lines; exec 3<>append; echo one >&3; cat ../../../../lines >&3; cat <&3");
    let told: Vec<(Value, Value)> =
        lines(&told).iter().map(|line| (line["appended"].clone(), line["last"].clone())).collect();
    assert_eq!(told, [(1.into(), 4.into()), (2.into(), 6.into()), (1.into(), 7.into())]);
    let size = fs::metadata(mount.at("main/shared/log/entries.jsonl")).unwrap().len();
    assert_eq!(size, read(mount.at("main/shared/log/entries.jsonl")).len() as u64);
    let found = lines(&mount.sh("echo pump > main/branches/a/query; cat main/branches/a/query"));
    assert_eq!((&found[1]["source"], &found[1]["entry_id"], found[1].get("id")), (&"log".into(), &1.into(), None));
    assert_eq!(mount.sh("echo two > main/branches/a/ingest; printf '{\"text\":\"x\"}\\n{\"cursor\":5}\\n' > main/branches/a/ingest; cat main/branches/a/shared/log/cursor"), "5\n");
    let mount = mount.unmounted_and_again();
    assert_eq!(read(mount.at("main/shared/log/entries.jsonl")).len() as u64, size);
    assert_eq!(
        (mount.status("main")["log_entries"].clone(), mount.status("main/branches/a")["unread"].clone()),
        (7.into(), 2.into())
    );
    assert_eq!(run(&["umount", mount.at("").to_str().unwrap()]).0, 0);
}

#[test]
fn what_breaks_a_rule_is_refused_and_changes_nothing() {
    let mount = Mounted::new();
    let log = "main/shared/log";
    let fails = |script: &str, code: &str| {
        let whole = format!("! ({script}) 2> /dev/null");
        mount.sh(&whole);
        assert_eq!(mount.refusal("main")["code"], code, "{script}");
    };
    fails(&format!("printf 'good\\n{{\"text\":7}}\\n' > ../bad; cat ../bad > {log}/append"), "bad_entry");
    fails(&format!("head -c 70000 /dev/zero | tr '\\0' x > {log}/append"), "entry_too_long");
    fails(&format!("seq 1001 > {log}/append"), "too_many_entries");
    fails(&format!("echo 3 > {log}/cursor"), "beyond_the_log");
    fails(&format!("echo three > {log}/cursor"), "no_number");
    fails("echo own > main/config/log; echo inherit > main/config/log", "bad_setting");
    for script in
        ["rm LOG/entries.jsonl", "echo x > LOG/entries.jsonl", "touch LOG/new", "rmdir LOG", "mv LOG/append LOG/other"]
    {
        mount.sh(&format!("! ({}) 2> /dev/null", script.replace("LOG", log)));
    }
    assert_eq!(read(mount.at("main/shared/log/entries.jsonl")), "");
    mount.sh(&format!("seq 1000 > {log}/append"));
    assert_eq!(lines(&mount.sh(&format!("cat {log}/unread"))).len(), 1000);
    mount.sh("mkdir main/checkpoints/c; ! (echo x > main/checkpoints/c/shared/log/append) 2> /dev/null");
}

#[test]
fn each_piece_of_a_longer_write_is_a_batch_of_its_own() {
    let mount = Mounted::new();
    let [good, bad] = [format!("{:x<4095}\n", ""), format!("{:<4095}\n", "{\"text\":7}")];
    let entries = [good.repeat(511), bad].concat();
    // From the beginning of a page on, since the kernel cuts by pages.
    let mut buffer = vec![0u8; entries.len() + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    let pages = &mut buffer[start..start + entries.len()];
    pages.copy_from_slice(entries.as_bytes());
    let mut log = File::options().write(true).open(mount.at("main/shared/log/append")).unwrap();
    assert_eq!(log.write(pages).unwrap(), 1 << 20, "the piece before the one that is refused");
    drop(log);
    assert_eq!(mount.refusal("main")["code"], "bad_entry");
    assert_eq!(mount.status("main")["log_entries"], 256);
}

#[test]
fn only_the_owner_of_a_branch_writes_through_it_and_all_below_a_root_branch_read() {
    let Some(mount) = shared() else { return };
    act(&mount, 1001, "mkdir main/branches/ann; echo hello > main/branches/ann/shared/log/append").unwrap();
    act(&mount, 1002, "mkdir main/branches/bob; cat main/branches/bob/shared/log/entries.jsonl | grep -q hello")
        .unwrap();
    assert_refused(&mount, 1002, "echo x > main/shared/log/append");
    assert_refused(&mount, 1002, "echo x > main/branches/ann/shared/log/append");
    assert_refused(&mount, 1002, "echo 0 > main/shared/log/cursor");
    assert_refused(&mount, 1002, "cat main/branches/ann/shared/log/cursor");
    let line = &lines(&mount.sh("cat main/shared/log/last/1"))[0];
    assert_eq!((&line["uid"], &line["branch"]), (&1001.into(), &"main/ann".into()));
}

#[test]
fn who_follows_the_log_sees_what_others_append() {
    let mount = Mounted::new();
    mount.sh("mkdir main/branches/a; echo first > main/shared/log/append");
    let mut tail = command("tail", &["-n", "+1", "-f", "main/branches/a/shared/log/entries.jsonl"]);
    let mut tail = tail.current_dir(mount.at("")).stdout(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    mount.sh("for i in 1 2 3; do echo more $i > main/shared/log/append; done");
    let mut seen = Vec::new();
    while seen.iter().filter(|byte| **byte == b'\n').count() < 4 {
        let mut buffer = [0; 4096];
        let count = tail.stdout.as_mut().unwrap().read(&mut buffer).unwrap();
        seen.extend(&buffer[..count]);
    }
    tail.kill().unwrap();
    tail.wait().unwrap();
    assert_eq!(texts(&String::from_utf8(seen).unwrap()), ["first", "more 1", "more 2", "more 3"]);
}

const WRITERS: usize = 8;
const EACH: usize = 120;

/// Appends until it is acknowledged: an agent can't know whether an append counted whose server died.
fn append_surely(log: &Path, event: &str) {
    let line = format!("{{\"text\":\"{event}\",\"event_id\":\"{event}\"}}\n");
    loop {
        let append = || -> io::Result<()> {
            let mut file = File::options().write(true).open(log)?;
            file.write_all(line.as_bytes())
        };
        if append().is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn writers_that_try_again_lose_and_double_nothing_whenever_the_server_dies() {
    let mut chance = Chance(11);
    for _ in 0..rounds(1) {
        let site = Site::new();
        let mut server = Some(site.serve(&[]));
        for n in 0..WRITERS {
            fs::create_dir(site.mnt.join(format!("main/branches/w{n}"))).unwrap();
        }
        // What was acknowledged and not synced outlives the process, so the branches are there.
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|n| {
                    let log = site.mnt.join(format!("main/branches/w{n}/shared/log/append"));
                    scope.spawn(move || (0..EACH).for_each(|number| append_surely(&log, &format!("w{n}-{number}"))))
                })
                .collect();
            while writers.iter().any(|writer| !writer.is_finished()) {
                thread::sleep(Duration::from_millis(20 + chance.below(120) as u64));
                server.take().unwrap().crash();
                server = Some(site.serve(&[]));
            }
        });
        let all = read(site.mnt.join("main/shared/log/entries.jsonl"));
        let mut found = texts(&all);
        assert!(lines(&all).iter().zip(1..).all(|(line, number)| line["entry_id"] == number), "numbers have no gaps");
        found.sort();
        let mut wanted: Vec<String> =
            (0..WRITERS).flat_map(|n| (0..EACH).map(move |number| format!("w{n}-{number}"))).collect();
        wanted.sort();
        assert_eq!(found, wanted);
        for n in 0..WRITERS {
            let log = read(site.mnt.join(format!("main/branches/w{n}/shared/log/entries.jsonl")));
            let own: Vec<String> = texts(&log).into_iter().filter(|text| text.starts_with(&format!("w{n}-"))).collect();
            assert!(
                own.iter().zip(0..).all(|(text, number)| *text == format!("w{n}-{number}")),
                "in the order of their writer"
            );
        }
        assert_eq!(fs::metadata(site.mnt.join("main/shared/log/append")).unwrap().len(), 0);
        assert_eq!(fs::metadata(site.mnt.join("main/shared/log/append")).unwrap().mode() & 0o777, 0o644);
        drop(server);
        assert_eq!(run(&["verify", site.store.to_str().unwrap()]).0, 0);
    }
}

/// Reads what is new, does the work, and moves the cursor in the commit of the work; again and again.
const AGENT: &str = "
import json, sys, time
branch = sys.argv[1]
while True:
    try:
        for line in open(branch + '/shared/log/unread').read().splitlines():
            number = json.loads(line)['entry_id']
            with open(branch + '/ingest', 'w') as ingest:
                ingest.write(json.dumps({'text': 'done %d' % number}) + '\\n' + json.dumps({'cursor': number}) + '\\n')
            time.sleep(0.005)
    except OSError:
        pass
    time.sleep(0.002)
";

#[test]
fn an_agent_that_is_killed_and_resumes_does_each_piece_of_work_once() {
    let (site, mut chance) = (Site::new(), Chance(5));
    let mut server = Some(site.serve(&[]));
    let branch = site.mnt.join("main/branches/worker");
    fs::create_dir(&branch).unwrap();
    let count = rounds(70);
    // 1,000 entries are the most that one write may bring.
    for number in (0..count).step_by(1_000) {
        let tasks: String = (number..count.min(number + 1_000)).map(|n| format!("task {n}\n")).collect();
        fs::write(site.mnt.join("main/shared/log/append"), tasks).unwrap();
    }
    let cursor = || fs::read_to_string(branch.join("shared/log/cursor")).unwrap_or_default();
    let mut killed = 0;
    while cursor() != format!("{count}\n") {
        let mut agent = command("python3", &["-c", AGENT, branch.to_str().unwrap()]).spawn().unwrap();
        thread::sleep(Duration::from_millis(60 + chance.below(120) as u64));
        if chance.one_in(3) {
            server.take().unwrap().crash();
            server = Some(site.serve(&[]));
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        killed += 1;
    }
    assert!(killed > 1, "it was killed at work");
    let done = read(branch.join("export/records.jsonl"));
    let mut done = texts(&done);
    done.sort();
    let mut wanted: Vec<String> = (1..=count).map(|number| format!("done {number}")).collect();
    wanted.sort();
    assert_eq!(done, wanted);
}
