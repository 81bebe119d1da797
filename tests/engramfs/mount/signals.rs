//! `shared/signals/`, `shared/events.jsonl`, `lease` and `engramfs wait`, as agents with shells see them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::users::{act, assert_refused, shared};
use super::{Mounted, Site, command, engramfs, lines, names, output, read, run};
use crate::support::{Chance, rounds};

fn events(mount: &Mounted) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = lines(&mount.sh("cat main/shared/events.jsonl"));
    assert!(all.iter().zip(1..).all(|(line, seq)| line["seq"] == seq));
    all.iter().map(|line| (text(&line["event"]), text(&line["key"]))).collect()
}

fn is_there(mount: &Mounted, key: &str) -> bool {
    mount.has(&format!("main/shared/signals/{key}"))
}

/// Waits until something is so; what can't be is a failure after ten seconds.
#[track_caller]
pub fn eventually(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !what() {
        assert!(Instant::now() < end, "it does not come");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_is_a_small_file_that_all_branches_see_and_that_outlives_the_server() {
    let mount = Mounted::new();
    mount.sh("mkdir main/branches/a main/branches/b; echo planner > main/branches/a/config/agent
              echo red > main/branches/a/shared/signals/light; umask 077; echo 1 > main/shared/signals/secret");
    assert_eq!(names(mount.at("main/shared")), ["events.jsonl", "log", "signals"]);
    assert_eq!(names(mount.at("main/branches/b/shared/signals")), ["light", "secret"]);
    let facts = |path: &str| {
        let found = fs::metadata(mount.at(path)).unwrap();
        (found.mode() & 0o7777, found.len())
    };
    assert_eq!(facts("main/shared/signals"), (0o1777, 0));
    assert_eq!([facts("main/shared/signals/light"), facts("main/shared/signals/secret")], [(0o644, 4), (0o600, 2)]);
    mount.sh(
        "echo green > main/branches/b/shared/signals/light; mv main/shared/signals/secret main/shared/signals/known
              chmod 644 main/shared/signals/known",
    );
    assert_eq!(read(mount.at("main/branches/a/shared/signals/light")), "green\n");
    let xattr = "import os; print([os.getxattr('main/shared/signals/light', n).decode() for n in sorted(os.listxattr('main/shared/signals/light'))])";
    assert!(mount.python(xattr).contains("['root', '', '', '0']"), "{}", mount.python(xattr));
    let all = events(&mount);
    let all: Vec<(&str, &str)> = all.iter().map(|(event, key)| (&**event, &**key)).collect();
    assert_eq!(
        all,
        [
            ("claimed", "light"),
            ("signal", "light"),
            ("claimed", "secret"),
            ("signal", "secret"),
            ("signal", "light"),
            ("cleared", "secret"),
            ("signal", "known")
        ]
    );
    let told = lines(&mount.sh("cat main/shared/events.jsonl"));
    assert_eq!(
        (&told[1]["value"], &told[1]["agent"], &told[1]["branch"]),
        (&"red\n".into(), &"planner".into(), &"main/a".into())
    );
    assert_eq!((&told[3]["bytes"], told[3].get("value")), (&2.into(), None), "not all may read it");
    assert_eq!(told[5]["reason"], "renamed");
    let mount = mount.unmounted_and_again();
    assert_eq!(names(mount.at("main/shared/signals")), ["known", "light"]);
    assert_eq!(read(mount.at("main/shared/signals/light")), "green\n");
    mount.sh("rm main/shared/signals/known");
    let mount = mount.again(&[]);
    assert_eq!(names(mount.at("main/shared/signals")), ["light"]);
}

#[test]
fn what_no_signal_can_be_is_refused_and_says_why() {
    let mount = Mounted::new();
    let fails = |script: &str, code: &str| {
        mount.sh(&format!("cd main/shared/signals; ! ({script}) 2> /dev/null"));
        assert_eq!(mount.refusal("main")["code"], code, "{script}");
    };
    mount.sh("echo old > main/shared/signals/x");
    fails("echo 1 > 'a b'", "bad_signal_key");
    fails(&format!("echo 1 > {}", "k".repeat(201)), "bad_signal_key");
    fails("head -c 65537 /dev/zero > x", "signal_too_long");
    fails("mkdir d", "not_permitted");
    fails("ln x y", "not_permitted");
    fails("echo lease > ../../config/signal_ttl; echo 1 > y", "no_lease");
    fails("echo soon > ../../config/signal_ttl", "bad_setting");
    fails("echo world > ../../config/signal_scope", "bad_setting");
    fails("truncate -s 3 ../events.jsonl", "not_permitted");
    mount.sh("mkdir main/checkpoints/c; ! (echo 1 > main/checkpoints/c/shared/signals/z) 2> /dev/null");
    assert_eq!(read(mount.at("main/shared/signals/x")), "old\n");
    assert_eq!(names(mount.at("main/shared/signals")), ["x"]);
    mount.sh("head -c 65536 /dev/zero > main/shared/signals/x; [ $(stat -c %s main/shared/signals/x) = 65536 ]");
}

#[test]
fn readers_see_the_old_value_or_the_new_and_never_an_empty_one() {
    let mount = Mounted::new();
    let path = mount.at("main/shared/signals/k");
    fs::write(&path, "first").unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| (0..300).for_each(|n| fs::write(&path, format!("value {n}")).unwrap()));
        while !writer.is_finished() {
            let seen = fs::read_to_string(&path).unwrap();
            assert!(seen == "first" || seen.starts_with("value "), "{seen:?}");
        }
    });
    assert_eq!(read(&path), "value 299");
    mount.sh(": > main/shared/signals/k");
    assert_eq!(read(&path), "value 299", "emptying alone changes nothing");
}

#[test]
fn a_signal_ends_with_its_time_its_session_or_its_lease() {
    let mount = Mounted::new();
    mount.sh("mkdir main/branches/a; cd main/branches/a; echo 400ms > config/signal_ttl; echo 1 > shared/signals/short
              echo '' > config/signal_ttl; echo 1 > shared/signals/long; echo session > config/signal_scope; echo 1 > shared/signals/own");
    assert_eq!(names(mount.at("main/shared/signals")), ["long", "own", "short"]);
    thread::sleep(Duration::from_millis(450));
    assert!(!is_there(&mount, "short"));
    mount.sh("set -C; echo again > main/shared/signals/short");
    mount.sh("echo second > main/branches/a/config/session");
    assert_eq!(names(mount.at("main/shared/signals")), ["long", "short"]);
    mount.sh("cd main/branches/a; echo store > config/signal_scope; echo lease > config/signal_ttl");
    let lease = File::open(mount.at("main/branches/a/lease")).unwrap();
    mount.sh("echo 1 > main/branches/a/shared/signals/working");
    assert!(is_there(&mount, "working"));
    drop(lease);
    eventually(|| !is_there(&mount, "working"));
    eventually(|| events(&mount).contains(&("cleared".into(), "working".into())));
    let told = lines(&mount.sh("cat main/shared/events.jsonl"));
    let ends: Vec<(&str, &str)> =
        told.iter().filter_map(|line| Some((line["key"].as_str()?, line["reason"].as_str()?))).collect();
    assert_eq!(ends, [("short", "expired"), ("own", "session"), ("working", "lease")]);
    mount.python("import os; os.setxattr('main/shared/signals/long', 'user.engramfs.ttl', b'300ms')");
    eventually(|| !is_there(&mount, "long"));
}

#[test]
fn who_writes_to_a_signal_that_has_ended_is_told_and_takes_nothing_from_who_has_it_now() {
    let mount = Mounted::new();
    let mut file = File::create(mount.at("main/shared/signals/job")).unwrap();
    mount.sh("rm main/shared/signals/job; echo other > main/shared/signals/job");
    file.write_all(b"mine").unwrap();
    assert_eq!(super::errno(super::close(file)), libc::ESTALE);
    assert_eq!(mount.refusal("main")["code"], "signal_ended");
    assert_eq!(read(mount.at("main/shared/signals/job")), "other\n");
}

#[test]
fn a_lease_is_seen_by_the_parent_and_by_the_next_server_when_it_is_lost() {
    let site = Site::new();
    let server = site.serve(&[]);
    let main = site.mnt.join("main");
    fs::write(main.join("config/child_ttl"), "1s\n").unwrap();
    fs::create_dir(main.join("branches/a")).unwrap();
    assert_eq!(read(main.join("branches/a/config/ttl")), "1s\n");
    let lease = File::open(main.join("branches/a/lease")).unwrap();
    let status = || -> Value { serde_json::from_str(&read(main.join("branches/a/status"))).unwrap() };
    assert_eq!(status()["lease"]["held"], true);
    assert_eq!(fs::metadata(main.join("branches/a/lease")).unwrap().mode() & 0o7777, 0o600);
    assert!(status()["lease"]["since"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() <= jiff::Timestamp::now());
    assert_eq!(lines(&read(main.join("branches.jsonl")))[0]["lease"], status()["lease"]);
    thread::sleep(Duration::from_millis(1100));
    fs::write(main.join("ctl"), "gc\n").unwrap();
    assert!(main.join("branches/a").exists(), "somebody works there");
    server.crash();
    drop(lease);
    let _server = site.serve(&[]);
    let last = || lines(&read(main.join("events.jsonl"))).pop().unwrap();
    assert_eq!(
        (&last()["event"], &last()["branch"], last().get("head")),
        (&"lease_lost".into(), &"main/a".into(), None)
    );
    assert_eq!(status()["lease"], serde_json::json!({ "held": false, "since": null }));
    let before = lines(&read(main.join("events.jsonl"))).len();
    drop(File::open(main.join("branches/a/lease")).unwrap());
    eventually(|| lines(&read(main.join("events.jsonl"))).len() > before);
    assert_eq!(last()["event"], "lease_lost");
    thread::sleep(Duration::from_millis(1100));
    fs::write(main.join("ctl"), "gc\n").unwrap();
    assert!(!main.join("branches/a").exists());
}

#[test]
fn signals_belong_to_their_writers_and_leases_and_names_of_agents_to_their_owners() {
    let Some(mount) = shared() else { return };
    act(&mount, 1001, "mkdir main/branches/ann; cd main/branches/ann; echo planner > config/agent; echo 1 > shared/signals/x; echo 1 > shared/signals/agent:planner:busy").unwrap();
    act(&mount, 1002, "mkdir main/branches/bob; cat main/branches/bob/shared/signals/x").unwrap();
    for script in [
        "echo 2 > main/branches/bob/shared/signals/x",
        "rm -f main/branches/bob/shared/signals/x",
        "echo purge shared/signals/x > main/branches/bob/ctl",
        "echo purge --dry-run shared/signals/x > main/branches/bob/ctl",
        "mv main/branches/bob/shared/signals/x main/branches/bob/shared/signals/y",
        "echo 2 > main/shared/signals/new",
        "echo 2 > main/branches/bob/shared/signals/agent:planner:new",
        "echo planner > main/branches/bob/config/agent",
        "echo uid:1001 > main/branches/bob/config/agent",
        "echo root > main/branches/bob/config/agent",
        "cat main/lease",
        "cat main/branches/ann/lease",
        "echo free-agent planner > main/ctl",
    ] {
        assert_refused(&mount, 1002, script);
        let code = script.contains("agent:planner").then(|| mount.refusal("main/branches/bob")["code"].clone());
        assert!(code.is_none_or(|code| code == "agents_signal"), "{script}");
    }
    act(
        &mount,
        1002,
        "echo worker > main/branches/bob/config/agent; (set -C; echo b > main/branches/bob/shared/signals/claim)",
    )
    .unwrap();
    act(&mount, 1001, "! (set -C; echo a > main/branches/ann/shared/signals/claim) 2> /dev/null").unwrap();
    mount.sh("echo 'free-agent planner' > main/ctl");
    act(&mount, 1002, "echo planner > main/branches/bob/config/agent").unwrap();
    let agent = |branch: &str, uid| act(&mount, uid, &format!("cat main/branches/{branch}/config/agent")).unwrap();
    assert_eq!((agent("bob", 1002), agent("ann", 1001)), ("planner\n".into(), "uid:1001\n".into()));
    mount.sh("echo 'bar-agent uid:1002' > main/ctl");
    assert_eq!(agent("bob", 1002), "uid:1002\n");
    assert_refused(&mount, 1002, "echo other > main/branches/bob/config/agent");
    let mount = mount.again(&["--allow-other"]);
    assert_refused(&mount, 1002, "echo other > main/branches/bob/config/agent");
    // Root removes any, and who owns the log's branch.
    mount.sh("rm main/shared/signals/x main/shared/signals/agent:planner:busy");
}

#[test]
fn wait_returns_when_signals_are_there_and_at_once_if_they_are() {
    let mount = Mounted::new();
    let wait = |arguments: &[&str]| {
        let mut all = vec!["wait"];
        all.extend(arguments);
        engramfs(&all).current_dir(mount.at("main")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let told = |child: std::process::Child| {
        let done = child.wait_with_output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stdout).unwrap())
    };
    mount.sh("echo v > main/shared/signals/a");
    assert_eq!(told(wait(&["shared/signals/a"])), (0, "a\tv\n".into()));
    assert_eq!(told(wait(&["shared/signals/a", "--new", "--timeout", "200ms"])).0, 1);
    assert_eq!(told(wait(&["shared/signals/none", "--timeout", "100ms"])).0, 1);
    assert_eq!(told(wait(&["files/none", "--timeout", "100ms"])).0, 6);
    let waiting = [
        wait(&["shared/signals/b", "--timeout", "20s"]),
        wait(&["shared/signals/w:*", "--count", "3", "--timeout", "20s"]),
        wait(&["shared/signals/light", "--value", "green", "--timeout", "20s"]),
        wait(&["shared/signals/a", "--new", "--timeout", "20s", "--json"]),
    ];
    thread::sleep(Duration::from_millis(300));
    mount.sh("cd main/shared/signals; echo late > b; for i in 1 2 3; do echo $i > w:$i; done; echo red > light; sleep 0.1; echo green > light; printf n > a");
    let [late, barrier, light, new] = waiting.map(told);
    assert_eq!(late.0, 0);
    assert_eq!(barrier.0, 0);
    assert_eq!(
        barrier.1.lines().map(|line| line.split('\t').next().unwrap()).collect::<Vec<_>>(),
        ["w:1", "w:2", "w:3"]
    );
    assert_eq!(light, (0, "light\tgreen\n".into()));
    assert_eq!(new.0, 0);
    assert_eq!(serde_json::from_str::<Value>(&new.1).unwrap()["key"], "a");
}

#[test]
fn who_follows_the_events_is_woken_by_each() {
    let mount = Mounted::new();
    mount.sh("mkdir main/branches/a");
    let mut tail = command("tail", &["-n", "0", "-f", "main/branches/a/shared/events.jsonl"]);
    let mut tail = tail.current_dir(mount.at("")).stdout(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    mount.sh("echo said > main/shared/log/append; echo 1 > main/shared/signals/k; echo t > main/branches/a/vectors/r.json; echo promote > main/branches/a/ctl");
    let seen: Vec<Value> = BufReader::new(tail.stdout.take().unwrap())
        .lines()
        .take(4)
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    tail.kill().unwrap();
    tail.wait().unwrap();
    let kinds: Vec<&str> = seen.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["log", "claimed", "signal", "promote"]);
    assert_eq!((&seen[0]["text"], &seen[0]["entry_id"]), (&"said".into(), &1.into()));
    assert_eq!((&seen[3]["branch"], &seen[3]["put"], seen[3].get("ids")), (&"main/a".into(), &1.into(), None));
}

#[test]
fn events_of_a_branch_name_what_a_commit_changed_and_the_parent_hears_of_what_it_gets() {
    let mount = Mounted::new();
    mount.sh(
        "mkdir main/branches/a; cd main/branches/a; echo text > vectors/one.json; rm vectors/one.json; mkdir files/d
        for n in $(seq 10 40); do echo \"{\\\"id\\\":\\\"r$n\\\",\\\"text\\\":\\\"t\\\"}\"; done > ingest; echo x > files/d/f; echo promote > ctl",
    );
    let items = |path: &str| -> Vec<(String, Value)> {
        let all = lines(&read(mount.at(path)));
        all.iter().map(|line| (line["event"].as_str().unwrap().to_owned(), line["items"].clone())).collect()
    };
    let first: Vec<String> = (10..30).map(|n| format!("r{n}")).collect();
    let own = items("main/branches/a/events.jsonl");
    let commits: Vec<&Value> = own.iter().filter(|(event, _)| event == "commit").map(|(_, items)| items).collect();
    assert_eq!(commits, [&serde_json::json!(["one"]), &serde_json::json!(["one"]), &serde_json::json!(first)]);
    let files: Vec<String> =
        own.iter().filter(|(event, _)| event == "files").map(|(_, items)| items.to_string()).collect();
    // Each second, and what comes between, has an entry of its own.
    assert_eq!(files.concat().replace("][", ","), "[\"files/d\",\"files/d/f\"]");
    // What is in the parent now is named there, and nothing before.
    let told = items("main/events.jsonl");
    let named: Vec<_> = told.iter().filter(|(_, items)| !items.is_null()).collect();
    assert_eq!(named, [&("promote".to_owned(), serde_json::json!(first))]);
    let mount = mount.unmounted_and_again();
    assert!(read(mount.at("main/branches/a/events.jsonl")).contains("[\"one\"]"), "also of sealed entries");
}

const CLAIMANTS: usize = 6;
const KEYS: usize = 60;

/// Claims each key until somebody has it, and says which ones it got. A claim whose server died may have counted: then the
/// key holds the claimant's name, or nothing yet, which nobody else can have written.
const CLAIM: &str = "
import os, sys, time
folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for n in range(count):
    key = os.path.join(folder, 'task:%d' % n)
    while True:
        try:
            with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), 'w') as file:
                file.write(name)
            print(n, flush=True)
            break
        except FileExistsError:
            break
        except OSError:
            time.sleep(0.002)
";

#[test]
fn a_key_has_one_claimant_whenever_the_server_dies() {
    let mut chance = Chance(3);
    for _ in 0..rounds(1) {
        let site = Site::new();
        let mut server = Some(site.serve(&[]));
        (0..CLAIMANTS).for_each(|n| fs::create_dir(site.mnt.join(format!("main/branches/c{n}"))).unwrap());
        let running = AtomicU64::new(CLAIMANTS as u64);
        let won: Vec<(usize, Vec<usize>)> = thread::scope(|scope| {
            let claimants: Vec<_> = (0..CLAIMANTS)
                .map(|n| {
                    let folder = site.mnt.join(format!("main/branches/c{n}/shared/signals"));
                    let running = &running;
                    scope.spawn(move || {
                        let name = format!("c{n}");
                        let mut script =
                            command("python3", &["-c", CLAIM, folder.to_str().unwrap(), &name, &KEYS.to_string()]);
                        let done = output(&mut script);
                        running.fetch_sub(1, Ordering::Relaxed);
                        let told = String::from_utf8(done.stdout).unwrap();
                        (n, told.lines().map(|line| line.parse().unwrap()).collect())
                    })
                })
                .collect();
            while running.load(Ordering::Relaxed) > 0 {
                thread::sleep(Duration::from_millis(20 + chance.below(80) as u64));
                server.take().unwrap().crash();
                server = Some(site.serve(&[]));
            }
            claimants.into_iter().map(|claimant| claimant.join().unwrap()).collect()
        });
        let mut winners = BTreeMap::new();
        for (n, keys) in won {
            for key in keys {
                assert!(winners.insert(key, n).is_none(), "two won task {key}");
            }
        }
        let signals = site.mnt.join("main/shared/signals");
        assert_eq!(names(&signals).len(), KEYS);
        for (key, n) in winners {
            assert_eq!(read(signals.join(format!("task:{key}"))), format!("c{n}"));
        }
        drop(server);
        assert_eq!(run(&["verify", site.store.to_str().unwrap()]).0, 0);
    }
}
