//! Starting, ending, dying and coming back.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::{Mounted, Site, errno, json, lines, names, read, run, save};
use crate::support::{Chance, rounds};

const BATCH: usize = 20;

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// What a writer knows to be so, since the call returned.
enum Fact {
    /// A batch of `BATCH` records with this prefix.
    Batch(String),
    Record(String, String),
    NoRecord(String),
    /// A branch with one record of its own.
    Branch(String),
    NoBranch(String),
}

/// Writers note here what they begin and what was acknowledged.
#[derive(Default)]
struct Notes {
    facts: Mutex<Vec<Fact>>,
    /// Prefixes of batches, acknowledged or not.
    batches: Mutex<Vec<String>>,
    /// Branches to be merged, each with one record of its name.
    merges: Mutex<Vec<String>>,
}

impl Notes {
    fn fact(&self, fact: Fact) {
        self.facts.lock().unwrap().push(fact);
    }

    fn ingest(&self, main: &str, prefix: &str) -> io::Result<()> {
        self.batches.lock().unwrap().push(prefix.to_owned());
        let line = |n| format!("{{\"id\":\"{prefix}-{n:02}\",\"vector\":[1,{n},3],\"text\":\"batch {prefix}\"}}\n");
        save(format!("{main}/ingest"), &(0..BATCH).map(line).collect::<String>())?;
        self.fact(Fact::Batch(prefix.to_owned()));
        Ok(())
    }

    fn rewrite(&self, main: &str, id: &str, turn: usize) -> io::Result<()> {
        let path = format!("{main}/vectors/{id}.json");
        for version in 0..3 {
            let text = format!("{turn} {version}");
            save(&path, &format!("{{\"text\":\"{text}\"}}"))?;
            self.fact(Fact::Record(id.to_owned(), text));
        }
        if turn.is_multiple_of(2) {
            fs::remove_file(&path)?;
            self.fact(Fact::NoRecord(id.to_owned()));
        }
        Ok(())
    }

    fn merge(&self, main: &str, name: &str) -> io::Result<()> {
        let path = format!("{main}/branches/{name}");
        fs::create_dir(&path)?;
        save(format!("{path}/vectors/{name}.json"), "{\"text\":\"merged\"}")?;
        self.fact(Fact::Branch(name.to_owned()));
        self.merges.lock().unwrap().push(name.to_owned());
        fs::rename(&path, format!("{main}/{name}"))?;
        self.fact(Fact::NoBranch(name.to_owned()));
        self.fact(Fact::Record(name.to_owned(), "merged".into()));
        Ok(())
    }

    fn fork(&self, main: &str, name: &str, keep: bool) -> io::Result<()> {
        let path = format!("{main}/branches/{name}");
        fs::create_dir(&path)?;
        save(format!("{path}/vectors/{name}.json"), "{\"text\":\"forked\"}")?;
        self.fact(Fact::Branch(name.to_owned()));
        if !keep {
            fs::remove_dir(&path)?;
            self.fact(Fact::NoBranch(name.to_owned()));
        }
        Ok(())
    }

    /// Four writers at work until the mount dies under them.
    fn write(&self, main: &str, round: usize) {
        thread::scope(|scope| {
            scope.spawn(|| (0..).try_for_each(|n| self.ingest(main, &format!("i{round}-{n}"))));
            scope.spawn(|| (0..).try_for_each(|n| self.rewrite(main, &format!("r{round}-{}", n % 50), n)));
            scope.spawn(|| (0..).try_for_each(|n| self.merge(main, &format!("m{round}-{n}"))));
            scope.spawn(|| {
                (0..).try_for_each(|n| {
                    self.fork(main, &format!("{}{round}-{n}", if n == 3 { "k" } else { "f" }), n == 3)
                })
            });
        });
    }

    /// Holds a mount against the notes: the last fact about a thing is so, batches and merges are whole or absent.
    fn check(&self, main: &str) {
        let records: HashSet<String> = names(format!("{main}/vectors")).into_iter().collect();
        let branches: HashSet<String> = names(format!("{main}/branches")).into_iter().collect();
        let has = |id: &str| records.contains(&format!("{id}.json"));
        for prefix in &*self.batches.lock().unwrap() {
            let count = (0..BATCH).filter(|n| has(&format!("{prefix}-{n:02}"))).count();
            assert!(count == 0 || count == BATCH, "batch {prefix} is there by {count} records of {BATCH}");
        }
        for name in &*self.merges.lock().unwrap() {
            assert_ne!(has(name), branches.contains(name), "merge of {name}");
        }
        let facts = self.facts.lock().unwrap();
        // What came after the last acknowledged fact about a record may have counted too.
        let last_records: HashSet<usize> = last_of(&facts);
        for (at, fact) in facts.iter().enumerate() {
            match fact {
                Fact::Batch(prefix) => assert!(has(&format!("{prefix}-00")), "acknowledged batch {prefix}"),
                Fact::Branch(name) if name.starts_with('f') => {}
                Fact::Branch(name) if branches.contains(name) => {
                    assert_eq!(
                        names(format!("{main}/branches/{name}/vectors"))
                            .iter()
                            .filter(|file| file.contains(name.as_str()))
                            .count(),
                        1
                    );
                }
                Fact::Branch(name) => assert!(has(name) && name.starts_with('m'), "the fork {name} is lost"),
                Fact::NoBranch(name) => assert!(!branches.contains(name), "{name} is back"),
                Fact::Record(id, text) if last_records.contains(&at) => assert_record(main, id, text, has(id)),
                Fact::Record(..) | Fact::NoRecord(_) => {}
            }
        }
    }
}

/// Indices of the last fact about each record.
fn last_of(facts: &[Fact]) -> HashSet<usize> {
    let mut last = std::collections::HashMap::new();
    for (at, fact) in facts.iter().enumerate() {
        if let Fact::Record(id, _) | Fact::NoRecord(id) = fact {
            last.insert(id, at);
        }
    }
    last.into_values().collect()
}

/// A record is as acknowledged, or as the one write under way when the process died would have it.
fn assert_record(main: &str, id: &str, text: &str, there: bool) {
    let number = |text: &str| {
        text.split_once(' ')
            .and_then(|(turn, version)| Some(turn.parse::<usize>().ok()? * 3 + version.parse::<usize>().ok()?))
    };
    if !there {
        // The delete after an even turn's last version may have counted.
        assert!(number(text).is_some_and(|n| n % 6 == 2), "{id} is lost; it was {text:?}");
        return;
    }
    let now = json(format!("{main}/vectors/{id}.json"))["text"].as_str().unwrap().to_owned();
    let at_least = number(&now).zip(number(text)).is_some_and(|(now, then)| now >= then);
    assert!(now == text || at_least, "{id} went back from {text:?} to {now:?}");
}

#[test]
fn what_was_acknowledged_outlives_the_process_whenever_it_is_killed() {
    let (mut chance, mut facts) = (Chance(0x5eed), 0);
    for _ in 0..rounds(1) {
        let site = Site::new();
        let history: Vec<Notes> = (0..10).map(|round| kill_at_work(&site, round, &mut chance)).collect();
        let (code, _, said) = run(&["verify", text(&site.store)]);
        assert_eq!(code, 0, "{said}");
        let _server = site.serve(&[]);
        history.iter().for_each(|notes| notes.check(text(&site.mnt.join("main"))));
        facts += history.iter().map(|notes| notes.facts.lock().unwrap().len()).sum::<usize>();
    }
    // Of all rounds: on a busy machine a few kills may come before much is written.
    assert!(facts > 60, "the writers were at work");
}

/// Kills the server at a random moment while four writers are at work, mounts anew and holds the mount against the notes.
fn kill_at_work(site: &Site, round: usize, chance: &mut Chance) -> Notes {
    let (server, notes, main) = (site.serve(&[]), Notes::default(), site.mnt.join("main"));
    let pause = Duration::from_millis(chance.below(150) as u64);
    thread::scope(|scope| {
        let writers = scope.spawn(|| notes.write(text(&main), round));
        thread::sleep(pause);
        server.crash();
        writers.join().unwrap();
    });
    // A name may be known for a second yet, what a file holds is asked for each time.
    assert_eq!(errno(fs::read(main.join("status"))), libc::ENOTCONN, "a dead mount stays");
    let _server = site.serve(&[]);
    notes.check(text(&main));
    notes
}

#[test]
fn signals_end_a_mount_cleanly() {
    let site = Site::new();
    for (signal, code) in [(libc::SIGTERM, 0), (libc::SIGINT, 130)] {
        let mut server = site.serve(&[]);
        save(site.mnt.join(format!("main/vectors/s{signal}.json")), "{\"text\":\"x\"}").unwrap();
        let held = File::open(site.mnt.join("main/status")).unwrap();
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(code));
        assert_eq!(names(&site.mnt), [] as [&str; 0], "nothing is mounted any more");
        drop(held);
        assert_eq!(run(&["verify", text(&site.store)]).0, 0);
    }
    let server = site.serve(&[]);
    assert_eq!(names(site.mnt.join("main/vectors")).len(), 2);
    drop(server);
}

#[test]
fn a_store_has_one_process_at_a_time() {
    let mount = Mounted::new();
    let (store, other) = (mount.beside("store"), mount.beside("other"));
    fs::create_dir(&other).unwrap();
    // One that waited would outlast the server, and then have the store.
    for arguments in [
        &["mount", text(&store), text(&other)][..],
        &["fork", &format!("{}:main", store.display()), "x"],
        &["merge", "--dry-run", &format!("{}:main/x", store.display())],
        &["gc", text(&store)],
        &["gc", "--dry-run", text(&store)],
        &["archive", text(&store), "--before", "2026-01-01T00:00:00Z"],
    ] {
        let (code, _, said) = run(arguments);
        assert_eq!(code, 5, "{arguments:?}: {said}");
        assert!(said.starts_with("engramfs: ") && said.contains("in use"), "{said}");
    }
    for looks in [&["--before", "2026-01-01T00:00:00Z", "--dry-run"][..], &["--print"]] {
        let (code, _, said) = run(&[&["archive", text(&store)][..], looks].concat());
        assert_eq!(code, 0, "{looks:?}: {said}");
    }
    let (code, _, said) = run(&["mount", "--json", text(&store), text(&other)]);
    let error: serde_json::Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!((code, &error["code"]), (5, &"locked".into()));
    assert!(error["hint"].is_string());
    assert_eq!(run(&["mount", text(&mount.beside("second")), text(&mount.at(""))]).0, 5, "the mountpoint is taken");
}

#[test]
fn a_mount_in_the_background_answers_when_the_command_returns() {
    let site = Site::new();
    let arguments = ["mount", text(&site.store), text(&site.mnt)];
    assert_eq!(run(&arguments).0, 0);
    assert_eq!(names(&site.mnt), ["main"]);
    save(site.mnt.join("main/vectors/a.json"), "{\"text\":\"x\"}").unwrap();
    let (code, _, said) = run(&["umount", text(&site.mnt)]);
    assert_eq!((code, said.as_str(), names(&site.mnt).len()), (0, "", 0));
    let branch = format!("{}:main", site.store.display());
    let (code, status, _) = run(&["status", "--json", &branch]);
    assert_eq!((code, &lines(&status)[0]["records"]), (0, &1.into()));
}

#[test]
fn a_log_in_the_store_keeps_a_mount_from_starting_only_where_it_would_be_new() {
    let site = Site::new();
    let log = site.store.join("mount.log");
    let arguments = ["mount", "--json", "--log", text(&log), text(&site.store), text(&site.mnt)];
    assert_eq!(run(&["init", text(&site.store)]).0, 0);
    let (code, _, said) = run(&arguments);
    assert_eq!((code, &lines(&said)[0]["code"]), (1, &"inside_a_store".into()), "{said}");
    assert!(!log.exists());
    fs::write(&log, "of the last mount\n").unwrap();
    assert_eq!(run(&arguments).0, 0);
    assert_eq!(names(&site.mnt), ["main"]);
    assert!(read(&log).starts_with("of the last mount\n"));
    assert_eq!(run(&["umount", text(&site.mnt)]).0, 0);
}

#[test]
fn a_mount_for_reading_goes_without_waiting_for_the_one_that_writes() {
    let site = Site::new();
    let side = site.beside("side");
    fs::create_dir(&side).unwrap();
    assert_eq!(run(&["mount", text(&site.store), text(&site.mnt)]).0, 0);
    assert_eq!(run(&["mount", "--read-only", text(&site.store), text(&side)]).0, 0);
    let (code, _, said) = run(&["umount", text(&side)]);
    assert_eq!((code, said.as_str()), (0, ""));
    save(site.mnt.join("main/vectors/a.json"), "{\"text\":\"x\"}").unwrap();
    let (code, _, said) = run(&["umount", text(&site.mnt)]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn the_clock_is_told_and_set_right_by_a_verb() {
    let site = Site::new();
    assert_eq!(run(&["mount", text(&site.store), text(&site.mnt)]).0, 0);
    assert!(fs::read_to_string(site.mnt.join("main/status")).unwrap().contains("\"clock\":\"ok\""));
    let (code, said, _) = run(&["clock", "--json", text(&site.store)]);
    assert_eq!((code, &lines(&said)[0]["clock"]), (0, &"ok".into()));
    assert_eq!(run(&["clock", "--reset", text(&site.store)]).0, 5, "it is mounted");
    assert_eq!(run(&["umount", text(&site.mnt)]).0, 0);
    let (code, said, _) = run(&["clock", "--reset", "--json", text(&site.store)]);
    assert_eq!((code, &lines(&said)[0]["reset"]), (0, &false.into()));
    let (_, said, _) = run(&["doctor", "--json"]);
    assert!(!said.contains("\"clock\""), "no mount was named");
}

/// A server that is stopped answers nothing, as one that hangs does.
#[test]
fn a_mount_that_hangs_is_examined_and_taken_away() {
    let site = Site::new();
    let server = site.serve(&[]);
    server.signal(libc::SIGSTOP);
    // Until then the kernel may answer out of what it remembers.
    thread::sleep(Duration::from_secs(2));
    let (code, said, _) = run(&["doctor", text(&site.mnt)]);
    assert!(code != 0 && said.contains("does not answer"), "{said}");
    let (code, _, said) = run(&["umount", "--lazy", text(&site.mnt)]);
    assert_eq!(code, 0, "{said}");
    server.signal(libc::SIGCONT);
}

#[test]
fn mountpoints_that_cannot_be_are_refused() {
    let site = Site::new();
    File::create(site.beside("file")).unwrap();
    let mount = |store: &std::path::Path, mnt: &std::path::Path| run(&["mount", text(store), text(mnt)]).0;
    assert_eq!(mount(&site.store, &site.beside("none")), 1);
    assert_eq!(mount(&site.store, &site.beside("file")), 1);
    fs::create_dir(&site.store).unwrap();
    assert_eq!(
        (mount(&site.store, &site.store), mount(&site.store, &site.beside(""))),
        (2, 2),
        "it would hide its store"
    );
    fs::write(site.beside("mnt/../none.txt"), "mine").unwrap();
    let folder = site.beside("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("letter.txt"), "mine").unwrap();
    assert_eq!(
        (mount(&folder, &site.mnt), names(&folder)),
        (1, vec!["letter.txt".to_owned()]),
        "nothing of others is touched"
    );
    assert_eq!(run(&["mount", text(&site.store), text(&site.mnt), "--branch", "main/none"]).0, 6);
    assert_eq!(run(&["mount", text(&site.beside("no-store")), text(&site.mnt), "--read-only"]).0, 6);
    assert_eq!(names(&site.mnt), [] as [&str; 0]);
}

#[test]
fn a_mount_of_one_branch_shows_nothing_else() {
    let site = Site::new();
    let server = site.serve(&[]);
    fs::create_dir(site.mnt.join("main/branches/x")).unwrap();
    drop(server);
    let server = site.serve(&["--branch", "main/x"]);
    let at = |path: &str| site.mnt.join(path);
    assert_eq!(json(at("status"))["path"], "main/x");
    assert_eq!(errno(fs::create_dir(at("new"))), libc::EPERM);
    save(at("vectors/a.json"), "{\"text\":\"x\"}").unwrap();
    fs::create_dir(at("branches/y")).unwrap();
    save(at("branches/y/vectors/b.json"), "{\"text\":\"y\"}").unwrap();
    fs::rename(at("branches/y"), at("y")).unwrap();
    assert_eq!(names(at("vectors")), ["a.json", "b.json"]);
    let write = |verb: &str| File::options().write(true).open(at("ctl")).unwrap().write_all(verb.as_bytes());
    assert_eq!((errno(write("merge\n")), errno(write("gc\n"))), (libc::EPERM, libc::EPERM));
    for verb in ["merge", "discard"] {
        let (code, _, error) = run(&[verb, text(&site.mnt)]);
        assert!(code == 1 && error.contains("the branch that is mounted can't end while it is"), "{verb}: {error}");
    }
    write("promote\n").unwrap();
    drop(server);
    let _server = site.serve(&[]);
    assert_eq!(names(at("main/vectors")), ["a.json", "b.json"]);
}

#[test]
fn a_read_only_mount_answers_and_changes_nothing() {
    let site = Site::new();
    let server = site.serve(&[]);
    save(site.mnt.join("main/vectors/a.json"), "{\"text\":\"tea\"}").unwrap();
    fs::create_dir(site.mnt.join("main/branches/x")).unwrap();
    drop(server);
    let journal = || {
        let files = names(site.store.join("journal")).into_iter().map(|name| site.store.join("journal").join(name));
        files.map(|path| fs::read(path).unwrap()).collect::<Vec<_>>()
    };
    let before = journal();
    let _server = site.serve(&["--read-only"]);
    let at = |path: &str| site.mnt.join("main").join(path);
    for path in ["vectors/a.json", "vectors/b.json", "vectors/.tmp"] {
        assert_eq!(errno(save(at(path), "{\"text\":\"x\"}")), libc::EROFS, "{path}");
    }
    for (path, content) in [("ctl", "checkpoint v1\n"), ("ingest", "{\"text\":\"x\"}\n"), ("config/agent", "x\n")] {
        let file = File::options().write(true).open(at(path));
        assert_eq!(errno(file.and_then(|mut file| file.write_all(content.as_bytes()))), libc::EROFS, "{path}");
    }
    assert_eq!(errno(fs::remove_file(at("vectors/a.json"))), libc::EROFS);
    assert_eq!(errno(fs::create_dir(at("branches/y"))), libc::EROFS);
    assert_eq!(errno(fs::create_dir(at("checkpoints/v"))), libc::EROFS);
    assert_eq!(errno(fs::remove_dir(at("branches/x"))), libc::EROFS);
    assert_eq!(errno(fs::rename(at("branches/x"), at("x"))), libc::EROFS);
    assert_eq!(errno(fs::create_dir(site.mnt.join("other"))), libc::EROFS);
    let mut query = File::options().read(true).write(true).open(at("query")).unwrap();
    query.write_all(b"tea\n").unwrap();
    let mut answer = String::new();
    query.read_to_string(&mut answer).unwrap();
    assert_eq!((&lines(&answer)[0]["hits"], &lines(&read(at("search/tea")))[0]["hits"]), (&1.into(), &1.into()));
    assert_eq!(journal(), before);
}

#[test]
fn a_reader_of_events_is_woken_by_what_happens() {
    let mount = Mounted::new();
    let mut events = File::open(mount.at("main/events.jsonl")).unwrap();
    let mut seen = String::new();
    events.read_to_string(&mut seen).unwrap();
    let mut poll = libc::pollfd { fd: events.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd that lives through the call.
    let mut wait = |ms| unsafe { libc::poll(&raw mut poll, 1, ms) };
    assert_eq!(wait(50), 0, "nothing happens");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            fs::create_dir(mount.at("main/branches/x")).unwrap();
        });
        assert_eq!(wait(5_000), 1);
    });
    let mut news = String::new();
    events.read_to_string(&mut news).unwrap();
    assert_eq!((&lines(&news)[0]["event"], &lines(&news)[0]["branch"]), (&"fork".into(), &"main/x".into()));
}

#[test]
fn verbs_do_the_same_on_a_mount_and_on_a_closed_store() {
    let site = Site::new();
    let server = site.serve(&[]);
    let file = site.beside("records.jsonl");
    fs::write(&file, "{\"id\":\"i\",\"vector\":[1,2],\"text\":\"imported\"}\n").unwrap();
    let (mounted, closed) = (site.mnt.join("main"), format!("{}:main", site.store.display()));
    verbs(text(&mounted), &format!("{}/branches/x", mounted.display()), &file);
    assert_eq!(run(&["gc", "--dry-run", text(&site.mnt)]).0, 0);
    drop(server);
    run(&["mount", text(&site.store), text(&site.mnt)]);
    assert_eq!(run(&["umount", text(&site.mnt)]).0, 0);
    verbs(&closed, &format!("{closed}/x"), &file);
    assert_eq!(run(&["gc", "--dry-run", text(&site.store)]).0, 0);
    let backup = site.beside("backup");
    assert_eq!(run(&["backup", text(&site.store), text(&backup)]).0, 0);
    let (code, said, _) = run(&["verify", "--json", text(&backup)]);
    let tip = lines(&said)[0]["tip"].as_str().unwrap().to_owned();
    assert_eq!((code, run(&["verify", text(&site.store), "--expect-tip", &tip]).0), (0, 0));
    assert_eq!(run(&["verify", text(&site.store), "--expect-tip", &"0".repeat(64)]).0, 4);
}

/// Forks x below `main`, works in it and merges it, all by verbs that speak JSON.
fn verbs(main: &str, x: &str, file: &std::path::Path) {
    for (arguments, code) in [
        (&["fork", main, "x"][..], 0),
        (&["fork", main, "x"], 1),
        (&["import", x, text(file)], 0),
        (&["diff", x], 0),
        (&["query", x, "imported"], 0),
        (&["query", x, "{\"text\":\"x\",\"k\":0}"], 1),
        (&["merge", "--dry-run", x], 0),
        (&["promote", x], 0),
        (&["pull", x], 0),
        (&["merge", x], 0),
        (&["status", x], 6),
        (&["rollback", main, "none"], 6),
        (&["fork", "--from", "none", main, "y"], 6),
        (&["discard", main], 1),
        (&["show", main, &"0".repeat(64)], 6),
        (&["show", main, "2"], 0),
        (&["show", main, "99999"], 6),
        (&["show", main, "two"], 2),
        (&["status", main], 0),
        (&["log", main], 0),
        (&["fly", main], 2),
    ] {
        let (exit, out, said) = run(&[arguments, &["--json"]].concat());
        assert_eq!(exit, code, "{arguments:?}: {said}");
        if code == 0 {
            lines(&out);
        } else {
            let error: serde_json::Value = serde_json::from_str(said.trim()).unwrap();
            assert!(error["code"].is_string() && error["message"].is_string() && error["hint"].is_string(), "{said}");
            assert_eq!(error["code"] == "usage", code == 2, "{said}");
        }
    }
}
