//! What went wrong once, here or elsewhere, and must not again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{Environment, Kind, Memory, MergeVerb, OpenMode, Query, Setting, View};

use crate::support::{Chance, delete, main_of, open, put, verify, who};

const DIM: usize = 16;

fn ask(memory: &Memory, view: &View, vector: &[f32], k: usize) -> Vec<(String, f32)> {
    let line = serde_json::json!({ "vector": vector, "k": k }).to_string();
    let answer = memory.query(view, &Query::parse(&line).unwrap()).unwrap();
    answer.hits.iter().map(|hit| (hit.id.to_string(), hit.score.value() as f32)).collect()
}

/// A parent of 2,000 records, sealed or unsealed, and a fork of it.
fn forked(sealed: bool) -> (ForgetfulDisk, std::sync::Arc<Memory>, View) {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let mut chance = Chance(1);
    let edits = |from: usize, chance: &mut Chance| {
        (from..from + 500).map(|n| put(&format!("r{n:05}"), Some(chance.vector(DIM)), None)).collect()
    };
    for part in 0..4 {
        let edits = edits(part * 500, &mut chance);
        memory.commit(&who(), main, edits).unwrap();
    }
    if sealed {
        memory.seal().unwrap();
    }
    let fork = memory.fork(&who(), main, "fork", None).unwrap();
    (disk, memory, View::Branch(fork))
}

/// The nearest peer filters its index's answers afterwards: with the 60 nearest deleted nothing is left.
#[test]
fn deleting_the_60_nearest_leaves_10_right_hits() {
    for sealed in [false, true] {
        let (_disk, memory, fork) = forked(sealed);
        let query = Chance(9).vector(DIM);
        let before = ask(&memory, &fork, &query, 70);
        let gone = before[..60].iter().map(|(id, _)| delete(id)).collect();
        memory.commit(&who(), fork.branch(), gone).unwrap();
        assert_eq!(ask(&memory, &fork, &query, 10), before[60..]);
        let main = View::Branch(main_of(&memory));
        assert_eq!(ask(&memory, &main, &query, 70), before, "the parent is untouched");
    }
}

/// The nearest peer answers with the versions that were overridden.
#[test]
fn overriding_the_60_nearest_shows_no_stale_version() {
    for sealed in [false, true] {
        let (_disk, memory, fork) = forked(sealed);
        let query = Chance(9).vector(DIM);
        let before = ask(&memory, &fork, &query, 70);
        let away: Vec<f32> = query.iter().map(|number| -number).collect();
        let moved = before[..60].iter().map(|(id, _)| put(id, Some(away.clone()), None)).collect();
        memory.commit(&who(), fork.branch(), moved).unwrap();
        assert_eq!(ask(&memory, &fork, &query, 10), before[60..]);
        let farthest = ask(&memory, &fork, &away, 60);
        let overridden: std::collections::BTreeSet<_> = before[..60].iter().map(|(id, _)| id).collect();
        assert!(farthest.iter().all(|(id, score)| overridden.contains(id) && *score > 0.999));
    }
}

/// At depth 64 with edits on each level, a chain of forks lost recall elsewhere.
#[test]
fn depth_64_answers_like_a_fresh_store_with_the_same_content() {
    let (_disk, memory, fork) = forked(true);
    let mut chance = Chance(5);
    let mut at = fork.branch();
    for level in 0..64 {
        let edits = (0..100).map(|_| {
            let id = format!("r{:05}", chance.below(4000));
            if chance.one_in(4) { delete(&id) } else { put(&id, Some(chance.vector(DIM)), None) }
        });
        memory.commit(&who(), at, edits.collect()).unwrap();
        if level % 20 == 7 {
            memory.seal().unwrap();
        }
        at = memory.fork(&who(), at, "deeper", None).unwrap();
    }
    let deep = View::Branch(at);
    let snapshot = memory.snapshot(&deep).unwrap();
    let disk = ForgetfulDisk::new();
    let fresh = open(&disk).unwrap();
    let records = snapshot.ids_after(None, usize::MAX).unwrap();
    let copy = records.iter().map(|id| put(id, snapshot.get(id).unwrap().unwrap().vector().map(<[f32]>::to_vec), None));
    fresh.commit(&who(), main_of(&fresh), copy.collect()).unwrap();
    let fresh_view = View::Branch(main_of(&fresh));
    assert_eq!(fresh.snapshot(&fresh_view).unwrap().head(), snapshot.head());
    for seed in 0..50 {
        let query = Chance(1000 + seed).vector(DIM);
        assert_eq!(ask(&memory, &deep, &query, 10), ask(&fresh, &fresh_view, &query, 10));
    }
}

/// A deleted id that comes back was hidden by its own tombstone elsewhere.
#[test]
fn an_id_that_was_deleted_and_put_again_is_found() {
    for sealed in [false, true] {
        let (_disk, memory, fork) = forked(sealed);
        let query = Chance(77).vector(DIM);
        memory.commit(&who(), fork.branch(), vec![delete("r00042")]).unwrap();
        if sealed {
            memory.seal().unwrap();
        }
        memory.commit(&who(), fork.branch(), vec![put("r00042", Some(query.clone()), Some("back"))]).unwrap();
        assert_eq!(ask(&memory, &fork, &query, 1)[0].0, "r00042");
    }
}

/// The journal's two locks were taken in opposite orders by `sync` and by a write: four threads
/// stood still within a second.
#[test]
fn forks_commits_seals_and_syncs_side_by_side_never_stand_still() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let (done, all) = std::sync::mpsc::channel();
    for thread in 0..4 {
        let (memory, done) = (memory.clone(), done.clone());
        std::thread::spawn(move || {
            for round in 0..150 {
                let fork = memory.fork(&who(), main, &format!("t{thread}-{round}"), None).unwrap();
                memory.commit(&who(), fork, vec![put("x", None, Some("text"))]).unwrap();
                memory.sync().unwrap();
                if round % 50 == 7 {
                    memory.seal().unwrap();
                }
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..4 {
        all.recv_timeout(std::time::Duration::from_secs(60)).expect("all four threads come to their end");
    }
    assert_eq!(memory.children(main).unwrap().len(), 600);
    memory.close().unwrap();
    crate::support::verify(&disk).unwrap();
}

/// A pull brought a file, a rollback of that file took it away again, and the next merge deleted it in the parent: the
/// base still had it.
#[test]
fn what_a_rollback_of_files_took_away_again_stays_in_the_parent() {
    use crate::files::{read, write};
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "changed", "base\n");
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    memory.checkpoint(&who(), fork, "before", None).unwrap();
    write(&memory, main, "notes/new", "of the parent\n");
    write(&memory, main, "changed", "of the parent\n");
    write(&memory, main, "elsewhere", "of the parent\n");
    memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap();
    let patterns = ["files/notes/**".to_owned(), "files/changed".to_owned()];
    memory.rollback_files(&who(), fork, "before", &patterns).unwrap();
    assert_eq!((read(&memory, fork, "notes/new"), read(&memory, fork, "changed")), (None, Some("base\n".into())));
    // Out of the log, then out of a manifest.
    drop(memory);
    let memory = open(&disk).unwrap();
    memory.seal().unwrap();
    memory.close().unwrap();
    drop(memory);
    let memory = open(&disk).unwrap();
    assert!(read(&memory, fork, "elsewhere").is_some());
    let dry = memory.merge(&who(), fork, MergeVerb::Merge, true).unwrap();
    assert_eq!((dry.counts.files, dry.conflicts.len()), (0, 0));
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    for path in ["notes/new", "changed", "elsewhere"] {
        assert_eq!(read(&memory, main, path).unwrap(), "of the parent\n", "{path}");
    }
    memory.close().unwrap();
    verify(&disk).unwrap();
}

/// Only `gc` discarded it, so that branches nobody collected stayed for ever.
#[test]
fn a_branch_ends_by_itself_when_its_ttl_is_over() {
    let around = Environment { idle_interval: Duration::from_millis(100), ..Environment::real(who()) };
    let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
    let main = main_of(&memory);
    let fork = |name: &str, ttl: &str| {
        let fork = memory.fork(&who(), main, name, None).unwrap();
        memory.set(&who(), fork, Setting::Ttl, ttl).unwrap();
        fork
    };
    let (idle, other) = (fork("idle", "1s"), fork("other", "1h"));
    let start = Instant::now();
    while memory.info(idle).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is there still");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(start.elapsed() >= Duration::from_millis(900), "it ended too early");
    assert!(memory.info(other).is_ok());
}

/// A query in mode `vector` falls back to words where it has no vector to compare with, and looked at records alone then.
#[test]
fn words_of_files_answer_where_there_is_no_vector() {
    use crate::files::write;
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, view) = (main_of(&memory), View::Branch(main_of(&memory)));
    memory.commit(&who(), main, vec![put("a", None, Some("green tea"))]).unwrap();
    write(&memory, main, "brew.md", "tea leaves");
    for query in [r#"{"text":"tea","mode":"vector"}"#, r#"{"id":"a","mode":"vector"}"#] {
        let answer = memory.query(&view, &Query::parse(query).unwrap()).unwrap();
        assert_eq!((answer.mode.to_string(), answer.hits.len()), ("text".to_owned(), 2), "{query}");
    }
}

/// A rollback of files with a mistyped name told of success and made an entry.
#[test]
fn a_rollback_of_files_that_match_nothing_is_refused() {
    use crate::files::write;
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    write(&memory, main, "notes/a", "one");
    memory.checkpoint(&who(), main, "v1", None).unwrap();
    write(&memory, main, "later", "one");
    let roll_back = |patterns: &[&str]| {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        memory.rollback_files(&who(), main, "v1", &patterns).map(drop).map_err(|error| (error.code(), error.kind()))
    };
    let refused = Err(("no_match", Kind::NotFound));
    // What was written to files becomes an entry by the first.
    assert_eq!(roll_back(&["files/typo*"]), refused);
    let entries = memory.last_seq();
    assert_eq!(roll_back(&["files/typo*", "files/nots/**"]), refused);
    assert_eq!(memory.last_seq(), entries);
    assert_eq!(roll_back(&["files/notes/a"]), Ok(()), "a file that is as it was matches");
    assert_eq!(roll_back(&["files/typo*", "files/later"]), Ok(()), "one that matches is enough");
    assert_eq!(crate::files::read(&memory, main, "later"), None);
}
