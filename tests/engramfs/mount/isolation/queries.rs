//! Fifteen users ask at once for what lies in branches of others: the nearest record of each query, and its words.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use super::super::users::shared;
use super::super::{Mounted, checked, lines, save};
use super::AGENTS;
use crate::support::{Chance, rounds};

const FIRST_UID: u32 = 4301;
/// Records of a branch; half of them are in segments, which hold rows of all branches.
const RECORDS: usize = 40;
const DIM: usize = 8;
/// Questions of a test that are answered; many more are refused.
const QUESTIONS: usize = 500;
/// Threads of each user, each with handles of its own.
const THREADS: usize = 2;

fn uid(user: usize) -> u32 {
    FIRST_UID + user as u32
}

/// Makes the calling thread act as a user, and no other: the functions of the C library change all threads.
fn act_as(user: usize) {
    let id = libc::c_long::from(uid(user));
    // SAFETY: the calls take numbers, and an empty list at no address.
    checked(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) } as i32).unwrap();
    // SAFETY: as above.
    checked(unsafe { libc::syscall(libc::SYS_setresgid, id, id, id) } as i32).unwrap();
    // SAFETY: as above.
    checked(unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) } as i32).unwrap();
}

/// What a user has: in its branch and its log, and in a root branch that is closed, too.
struct Secrets {
    vectors: Vec<Vec<f32>>,
    /// Numbers and hashes of entries of its branch.
    entries: Vec<String>,
}

/// A word that stands in one record alone.
fn word(user: usize, number: usize) -> String {
    format!("word{user}x{number}")
}

fn document(kind: &str, user: usize, number: usize, vector: &[f32]) -> String {
    let (id, text) = (format!("{kind}{user}-{number}"), format!("tea {} of{user}x", word(user, number)));
    json!({"id": id, "vector": vector, "text": text, "metadata": {"group": number % 4}}).to_string() + "\n"
}

/// Fills a user's places with one half of the records.
fn fill(mnt: &Path, user: usize, vectors: &[Vec<f32>], numbers: std::ops::Range<usize>) {
    let branch = mnt.join(format!("main/branches/q{user}"));
    let all = |kind: &str| -> String { numbers.clone().map(|n| document(kind, user, n, &vectors[n])).collect() };
    save(branch.join("ingest"), &all("q")).unwrap();
    save(mnt.join(format!("vault{user}/ingest")), &all("v")).unwrap();
    let entry = |n: usize| json!({"text": format!("tea {}", word(user, n)), "vector": vectors[n]}).to_string() + "\n";
    save(branch.join("shared/log/append"), &numbers.clone().map(entry).collect::<String>()).unwrap();
    let notes: String = numbers.map(|n| format!("tea {}\n\n", word(user, n))).collect();
    save(branch.join("files/notes.md"), &notes).unwrap();
}

fn make(mount: &Mounted, user: usize, chance: &mut Chance) -> Secrets {
    let vault = mount.at(&format!("vault{user}"));
    fs::create_dir(&vault).unwrap();
    fs::set_permissions(&vault, Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&vault, Some(uid(user)), None).unwrap();
    let vectors: Vec<Vec<f32>> = (0..RECORDS).map(|_| chance.vector(DIM)).collect();
    let branch = mount.at(&format!("main/branches/q{user}"));
    let work = || {
        act_as(user);
        fs::create_dir(&branch).unwrap();
        save(branch.join("config/log"), "own\n").unwrap();
        fill(&mount.at(""), user, &vectors, 0..RECORDS / 2);
        fs::create_dir(branch.join("checkpoints/mark")).unwrap();
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap());
    let own = lines(&fs::read_to_string(branch.join("lineage")).unwrap());
    let entries = own.iter().flat_map(|entry| [entry["seq"].to_string(), entry["entry"].as_str().unwrap().to_owned()]);
    Secrets { entries: entries.collect(), vectors }
}

/// Who asks, in which of its threads, and of whom.
#[derive(Clone, Copy)]
struct Asker<'a> {
    user: usize,
    secrets: &'a [Secrets],
}

/// A query, the user whose records are meant, and whether it can't but be answered with `k` own records.
struct Attempt {
    query: Value,
    is_plain: bool,
}

impl Asker<'_> {
    fn attempt(self, chance: &mut Chance, tag: &str) -> Attempt {
        let other = (self.user + 1 + chance.below(AGENTS - 1)) % AGENTS;
        let number = chance.below(RECORDS);
        let mode = ["vector", "hybrid", "text"][chance.below(3)];
        let (vector, text) = (&self.secrets[other].vectors[number], format!("{} of{other}x tea", word(other, number)));
        let mut query = json!({"vector": vector, "text": text, "mode": mode, "k": 1 + chance.below(RECORDS), "tag": tag, "timeout_ms": 60_000});
        let mut is_plain = mode == "vector";
        if chance.one_in(2) {
            is_plain = false;
            query["filter"] = match chance.below(4) {
                0 => json!({"group": number % 4}),
                1 => json!({"@uid": uid(other)}),
                2 => json!({"@branch": format!("main/q{other}")}),
                _ => json!({"$or": [{"group": {"$lt": 9}}, {"@uid": {"$ne": uid(self.user)}}]}),
            };
        }
        if chance.one_in(2) {
            is_plain = false;
            let places = [
                ("branch", ""),
                ("log", ""),
                ("files", ""),
                ("main", ""),
                ("..", ""),
                ("../q", "*"),
                ("q", "*"),
                ("main/q", "*"),
                ("main/branches/q", "*"),
                ("log:q", "*"),
                ("log:main/q", "*"),
                ("checkpoints/mark", ""),
                ("mark", ""),
                ("vault", "*"),
                ("log:vault", "*"),
            ];
            let place = |chance: &mut Chance| {
                let (name, whose) = places[chance.below(places.len())];
                if whose.is_empty() { name.to_owned() } else { format!("{name}{other}") }
            };
            query["scope"] =
                (0..=chance.below(2)).map(|_| place(chance)).collect::<BTreeSet<_>>().into_iter().collect();
        } else if chance.one_in(3) {
            is_plain = false;
            let entries = &self.secrets[other].entries;
            let own = ["mark", "-1s", "-1m"].map(str::to_owned);
            let all = [&own[..], &entries[..]].concat();
            query["at"] = all[chance.below(all.len())].clone().into();
        }
        if chance.one_in(3) {
            query["include"] = json!(["vector", "stamp"]);
            query["explain"] = true.into();
        }
        Attempt { query, is_plain }
    }

    /// Checks that an answer is that of the query, and of what its asker may read.
    fn check(self, attempt: &Attempt, answer: &[Value]) {
        let Attempt { query, is_plain } = attempt;
        let (header, hits) = answer.split_first().unwrap();
        assert_eq!(header["tag"], query["tag"], "the answer to another query: {query} {header}");
        assert_eq!(header["hits"], hits.len(), "{query} {header}");
        if *is_plain && header["branch"] != "main" {
            assert_eq!(header["hits"], query["k"], "{query} {header}");
        }
        for hit in hits {
            let own = format!("q{}-", self.user);
            let id = hit["id"].as_str();
            let is_own = id.is_none_or(|id| id.starts_with(&own) || id == "a");
            let text = hit["text"].as_str().unwrap_or_default();
            let words =
                (0..AGENTS).filter(|user| *user != self.user).any(|user| text.contains(&format!("word{user}x")));
            assert!(is_own && !words, "uid {} asked {query} and got {hit}", uid(self.user));
        }
        self.check_nearest(attempt, hits);
    }

    /// Checks a plain query's best record against a look at all of the asker's records.
    fn check_nearest(self, attempt: &Attempt, hits: &[Value]) {
        let best = hits.iter().find(|hit| hit.get("id").is_some());
        let (Some(best), true) = (best, attempt.is_plain) else { return };
        let asked: Vec<f32> = serde_json::from_value(attempt.query["vector"].clone()).unwrap();
        let cosine = |vector: &[f32]| -> f64 {
            let product =
                |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            product(&asked, vector) / (product(&asked, &asked) * product(vector, vector)).sqrt()
        };
        let nearest = self.secrets[self.user].vectors.iter().map(|vector| cosine(vector)).fold(-1.0, f64::max);
        assert!((best["score"].as_f64().unwrap() - nearest).abs() < 1e-4, "{}: {best}, not {nearest}", attempt.query);
    }

    /// Asks up to three queries by one write, and returns how many were answered. A bad one is refused with those behind it.
    fn ask(self, query: &mut File, attempts: &[Attempt]) -> usize {
        let text: String = attempts.iter().map(|attempt| attempt.query.to_string() + "\n").collect();
        let written = write_all(query, text.as_bytes());
        let mut answer = String::new();
        query.read_to_string(&mut answer).unwrap();
        let answered: Vec<Value> = lines(&answer);
        let starts: Vec<usize> = (0..answered.len()).filter(|at| answered[*at].get("ok").is_some()).collect();
        assert!(written.is_err() || starts.len() == attempts.len(), "{text}{answer}");
        for (n, at) in starts.iter().enumerate() {
            let end = starts.get(n + 1).copied().unwrap_or(answered.len());
            self.check(&attempts[n], &answered[*at..end]);
        }
        starts.len()
    }
}

/// Writes all, as far as it is taken.
fn write_all(query: &mut File, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        text = &text[query.write(text)?..];
    }
    Ok(())
}

fn open(mount: &Mounted, branch: &str) -> File {
    File::options().read(true).write(true).open(mount.at(&format!("{branch}/query"))).unwrap()
}

/// Asks as one thread of a user, its own branch and main, until so many queries were answered; returns how many were asked for that.
fn interrogate(mount: &Mounted, asker: Asker<'_>, thread: usize, count: usize) -> usize {
    act_as(asker.user);
    let mut chance = Chance((asker.user * THREADS + thread) as u64);
    let mut queries = [open(mount, &format!("main/branches/q{}", asker.user)), open(mount, "main")];
    let (mut asked, mut answered) = (0, 0);
    while answered < count {
        let tags = (0..=chance.below(3)).map(|n| format!("{}.{thread}.{}", asker.user, asked + n)).collect::<Vec<_>>();
        let attempts: Vec<Attempt> = tags.iter().map(|tag| asker.attempt(&mut chance, tag)).collect();
        let query = &mut queries[usize::from(chance.one_in(4))];
        answered += asker.ask(query, &attempts);
        asked += attempts.len();
    }
    asked
}

#[test]
fn no_query_brings_anything_of_a_closed_branch_and_each_handle_gets_its_own_answers() {
    let Some(mount) = shared() else { return };
    let mut chance = Chance(24);
    let secrets: Vec<Secrets> = (0..AGENTS).map(|user| make(&mount, user, &mut chance)).collect();
    mount.ctl("main", "gc").unwrap();
    thread::scope(|scope| {
        for (user, own) in secrets.iter().enumerate() {
            let mnt = mount.at("");
            scope.spawn(move || {
                act_as(user);
                fill(&mnt, user, &own.vectors, RECORDS / 2..RECORDS);
            });
        }
    });
    let count = rounds(QUESTIONS).div_ceil(AGENTS * THREADS);
    let asked: usize = thread::scope(|scope| {
        let askers = (0..AGENTS * THREADS).map(|n| {
            let asker = Asker { user: n / THREADS, secrets: &secrets };
            let mount = &mount;
            scope.spawn(move || interrogate(mount, asker, n % THREADS, count))
        });
        let askers: Vec<_> = askers.collect();
        askers.into_iter().map(|asker| asker.join().unwrap()).sum()
    });
    assert!(asked > rounds(QUESTIONS), "some are refused");
    every_record_is_found_where_it_is(&mount, &secrets);
}

/// The control: the same queries, asked where the records are, bring them.
fn every_record_is_found_where_it_is(mount: &Mounted, secrets: &[Secrets]) {
    for (user, own) in secrets.iter().enumerate() {
        for (place, kind) in [(format!("main/branches/q{user}"), "q"), (format!("vault{user}"), "v")] {
            let mut query = open(mount, &place);
            let line = json!({"vector": own.vectors[user], "k": 1, "scope": ["branch"]});
            write_all(&mut query, format!("{line}\n").as_bytes()).unwrap();
            let mut answer = String::new();
            query.read_to_string(&mut answer).unwrap();
            assert_eq!(lines(&answer)[1]["id"], format!("{kind}{user}-{user}"));
        }
    }
}
