//! Derived vectors: made behind the writers' backs, shared, in no head, and said where they are missing.

mod passages;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use engramfs::disk::{Disk, ForgetfulDisk};
use engramfs::embed::{EmbedError, Embedder, TextKind};
use engramfs::memory::{
    Answer, Document, Export, Memory, MergeVerb, OpenMode, Query, RecordPatch, Setting, SharedLogEntryInput, View,
    verify_on,
};

use crate::support::{environment, main_of, open, put, verify, who};

/// What a made-up embedder shares with its test.
#[derive(Default)]
struct Told {
    texts: AtomicUsize,
    is_down: AtomicBool,
    /// Documents wait, queries do not.
    is_slow: AtomicBool,
}

/// Maps a text to the topics that it names: words that mean the same count for one.
/// With a turn of 1 it is another one by what it says of itself, with 2 by its vectors alone.
struct Topics {
    told: Arc<Told>,
    turn: usize,
}

const TOPICS: [&[&str]; 3] = [&["tea", "drink", "beverage"], &["server", "machine", "host"], &["invoice", "bill"]];

impl Embedder for Topics {
    fn name(&self) -> &str {
        "topics"
    }

    fn description(&self) -> &[u8] {
        if self.turn == 1 { b"topics, turned" } else { b"topics" }
    }

    fn batch_texts_max(&self) -> usize {
        4
    }

    fn embed(&self, kind: TextKind, texts: &[&str], _: Duration) -> Result<Vec<Vec<f32>>, EmbedError> {
        while kind == TextKind::Document && self.told.is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.told.is_down.load(Ordering::SeqCst) {
            return Err(EmbedError::Unreachable("it is down".to_owned()));
        }
        if texts.contains(&"poison") {
            return Err(EmbedError::Refused("poison".to_owned()));
        }
        if texts.contains(&"hang") {
            return Err(EmbedError::TimedOut(1));
        }
        self.told.texts.fetch_add(texts.len(), Ordering::SeqCst);
        let vector = |text: &&str| {
            let mut vector = vec![0.01; 4];
            for (topic, words) in TOPICS.iter().enumerate() {
                let count = words.iter().filter(|word| text.contains(**word)).count();
                vector[(topic + self.turn) % 3] += count as f32;
            }
            if self.turn == 2 {
                vector[3] += 1.0;
            }
            vector
        };
        Ok(texts.iter().map(vector).collect())
    }
}

fn embed(memory: &Arc<Memory>, turn: usize) -> Arc<Told> {
    let told = Arc::<Told>::default();
    memory.set_embedder(None, Box::new(Topics { told: told.clone(), turn }));
    memory.wait_until_embedded();
    told
}

fn ask(memory: &Memory, view: &View, line: &str) -> Answer {
    memory.query(view, &Query::parse(line).unwrap()).unwrap()
}

fn ids(answer: &Answer) -> Vec<&str> {
    answer.hits.iter().map(|hit| &*hit.id).collect()
}

fn status(memory: &Memory, view: &View) -> serde_json::Value {
    memory.status(view).unwrap()
}

/// A store with an embedder and three texts.
fn embedded() -> (ForgetfulDisk, Arc<Memory>, Arc<Told>, View) {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let told = embed(&memory, 0);
    let main = main_of(&memory);
    let texts = [("a", "green tea at four"), ("b", "the server is slow"), ("c", "pay the invoice")];
    let edits = texts.map(|(id, text)| put(id, None, Some(text)));
    memory.commit(&who(), main, edits.into()).unwrap();
    memory.wait_until_embedded();
    (disk, memory, told, View::Branch(main))
}

const MEANING: &str = r#"{"text":"a beverage","mode":"vector","k":1}"#;

#[test]
fn a_paraphrase_is_found_and_no_head_changes() {
    let (disk, memory, told, view) = embedded();
    let head = status(&memory, &view)["head"].clone();
    let plain = open(&ForgetfulDisk::new()).unwrap();
    for (id, text) in [("a", "green tea at four"), ("b", "the server is slow"), ("c", "pay the invoice")] {
        plain.commit(&who(), main_of(&plain), vec![put(id, None, Some(text))]).unwrap();
    }
    assert_eq!(status(&plain, &View::Branch(main_of(&plain)))["head"], head, "the head of one without an embedder");
    for _ in 0..2 {
        let answer = ask(&memory, &view, MEANING);
        assert_eq!((ids(&answer), answer.mode.to_string(), &answer.reason), (vec!["a"], "vector".to_owned(), &None));
        let answer = ask(&memory, &view, "a slow host");
        assert_eq!((ids(&answer)[0], answer.mode.to_string()), ("b", "hybrid".to_owned()));
        assert_eq!(
            ids(&ask(&memory, &view, r#"{"id":"c","k":1}"#)),
            ["c"],
            "nearest to a record by its derived vector"
        );
        assert_eq!(status(&memory, &view)["index"]["unembedded"], 0);
        // Once unsealed, once out of the segment's file.
        memory.seal().unwrap();
    }
    assert_eq!(told.texts.load(Ordering::SeqCst), 3 + 3 + 4, "probes, texts, queries: each text once");
    assert_eq!(status(&memory, &view)["head"].clone(), head);
    memory.close().unwrap();
    drop(memory);
    verify(&disk).unwrap();
    let memory = open(&disk).unwrap();
    let told = embed(&memory, 0);
    assert_eq!(ids(&ask(&memory, &view, MEANING)), ["a"]);
    assert_eq!(told.texts.load(Ordering::SeqCst), 3 + 1, "an opening embeds the probes alone");
    let config = memory.setting(&view, Setting::Embedder).unwrap();
    assert!(config.starts_with("topics 4 "), "{config}");
    assert!(memory.set(&who(), main_of(&memory), Setting::Embedder, "").is_err(), "read-only");
    let readme = memory.document(&view, Document::Readme).unwrap();
    assert!(String::from_utf8_lossy(&readme).contains("match meaning and words"));
}

#[test]
fn forks_and_merges_share_vectors_and_see_their_own() {
    let (_, memory, told, view) = embedded();
    let fork = memory.fork(&who(), main_of(&memory), "x", None).unwrap();
    memory
        .commit(&who(), fork, vec![put("a", None, Some("the machine room")), put("d", None, Some("pay the invoice"))])
        .unwrap();
    memory.wait_until_embedded();
    assert_eq!(told.texts.load(Ordering::SeqCst), 3 + 3 + 1, "one text is new, whatever the branch");
    let in_fork = View::Branch(fork);
    let nothing = ask(&memory, &in_fork, MEANING);
    assert!(nothing.hits[0].distance.unwrap() > 0.5, "its own text has nothing of tea any more");
    assert_eq!(ids(&ask(&memory, &view, MEANING)), ["a"], "the parent has its own text");
    let near = ask(&memory, &in_fork, r#"{"text":"bill","mode":"vector","k":2}"#);
    assert_eq!(ids(&near), ["c", "d"]);
    memory.seal().unwrap();
    assert_eq!(ids(&ask(&memory, &in_fork, r#"{"text":"bill","mode":"vector","k":2}"#)), ["c", "d"]);
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    memory.wait_until_embedded();
    assert_eq!(ids(&ask(&memory, &view, r#"{"text":"host","mode":"vector","k":2}"#)), ["a", "b"]);
    memory.gc(&who(), None, false).unwrap();
    assert_eq!(ids(&ask(&memory, &view, r#"{"text":"host","mode":"vector","k":2}"#)), ["a", "b"], "compacted");
    assert_eq!(told.texts.load(Ordering::SeqCst), 3 + 3 + 1 + 6, "nothing was embedded twice");
}

#[test]
fn a_vector_that_is_older_than_its_text_gives_way_to_the_derived_one() {
    let (_, memory, _, view) = embedded();
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("v", Some(vec![0.0, 0.0, 0.0, 1.0]), Some("a drink"))]).unwrap();
    memory.wait_until_embedded();
    let own = r#"{"vector":[0,0,0,1],"k":1}"#;
    assert_eq!(ids(&ask(&memory, &view, own)), ["v"], "its own vector counts");
    memory.commit(&who(), main, vec![put("v", Some(vec![0.0, 0.0, 0.0, 1.0]), Some("another drink"))]).unwrap();
    memory.wait_until_embedded();
    for sealed in [false, true] {
        let near = ask(&memory, &view, r#"{"text":"tea","mode":"vector","k":2}"#);
        let mut found = ids(&near);
        found.sort_unstable();
        assert_eq!(found, ["a", "v"], "sealed: {sealed}");
        let best = ask(&memory, &view, own);
        assert!(
            best.hits.iter().all(|hit| &*hit.id != "v" || hit.distance.unwrap() > 0.5),
            "the old one is passed over"
        );
        memory.seal().unwrap();
    }
}

#[test]
fn what_is_missing_is_said_and_words_answer() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, view) = (main_of(&memory), View::Branch(main_of(&memory)));
    memory.commit(&who(), main, vec![put("a", None, Some("green tea"))]).unwrap();
    let answer = ask(&memory, &view, r#"{"text":"tea","mode":"vector"}"#);
    let reason = answer.reason.clone().unwrap();
    assert!(
        answer.mode.to_string() == "text" && reason.contains("words are matched") && reason.contains("--embed"),
        "{reason}"
    );
    assert_eq!((ids(&answer), status(&memory, &view)["embedder"].is_null()), (vec!["a"], true));
    assert_eq!(status(&memory, &view)["index"]["unembedded"], 1);
    let told = embed(&memory, 0);
    assert_eq!(ask(&memory, &view, "tea").mode.to_string(), "hybrid");
    told.is_down.store(true, Ordering::SeqCst);
    let answer = ask(&memory, &view, "tea");
    assert_eq!((ids(&answer), answer.mode.to_string()), (vec!["a"], "text".to_owned()));
    assert!(answer.reason.unwrap().starts_with("embedder_missing"));
    memory.commit(&who(), main, vec![put("b", None, Some("a host"))]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(status(&memory, &view)["embedder"]["state"], "missing");
    told.is_down.store(false, Ordering::SeqCst);
    let is_back = || status(&memory, &view)["index"]["unembedded"] == 0;
    assert!(
        (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            is_back()
        }),
        "it is tried again"
    );
    memory.close().unwrap();
    drop(memory);
    let memory = open(&disk).unwrap();
    let answer = ask(&memory, &view, "tea");
    assert!(answer.reason.unwrap().starts_with("embedder_missing"), "the vectors are there and their embedder is not");
}

/// How many files of a store have a vector of a text, which each set finds by the text's hash.
fn files_with_vector(disk: &ForgetfulDisk, text: &str) -> usize {
    let hash = engramfs::record::text_hash(text);
    let has_hash = |path: &str| disk.bytes(path).unwrap().windows(hash.0.len()).any(|bytes| bytes == hash.0);
    disk.files().into_iter().filter(|(path, _)| has_hash(path)).count()
}

#[test]
fn another_embedder_is_told_and_reembed_makes_its_vectors_count() {
    let (disk, memory, _, view) = embedded();
    memory.close().unwrap();
    drop(memory);
    assert_eq!(files_with_vector(&disk, "green tea at four"), 1);
    let memory = open(&disk).unwrap();
    embed(&memory, 2);
    let reason = ask(&memory, &view, "a beverage").reason.unwrap();
    assert!(reason.starts_with("embedder_changed"), "the identity is the same: {reason}");
    memory.close().unwrap();
    drop(memory);
    let memory = open(&disk).unwrap();
    let told = embed(&memory, 1);
    let answer = ask(&memory, &view, "a beverage");
    assert!(answer.reason.unwrap().starts_with("embedder_changed") && answer.mode.to_string() == "text");
    assert_eq!(ids(&ask(&memory, &view, r#"{"id":"a","k":1}"#)), ["a"], "the old set serves what needs no embedder");
    assert_eq!(told.texts.load(Ordering::SeqCst), 3);
    memory.reembed(main_of(&memory)).unwrap();
    memory.wait_until_embedded();
    assert_eq!(ids(&ask(&memory, &view, MEANING)), ["a"]);
    let lineage = memory.lineage_lines(main_of(&memory), false).unwrap();
    assert_eq!(lineage.iter().filter(|line| line.contains(r#""op":"embedder""#)).count(), 2);
    memory.seal().unwrap();
    memory.gc(&who(), None, false).unwrap();
    assert_eq!(files_with_vector(&disk, "green tea at four"), 1, "those of the embedder before are gone");
    memory.close().unwrap();
    verify(&disk).unwrap();
    drop(memory);
    let memory = open(&disk).unwrap();
    embed(&memory, 1);
    assert_eq!(ids(&ask(&memory, &view, MEANING)), ["a"]);
}

/// Nothing shows that an embedder gave bad vectors for a while, so all of them may be asked for again.
#[test]
fn reembed_has_an_unchanged_embedder_make_the_vectors_of_one_root_branch_anew() {
    let (_, memory, told, view) = embedded();
    let other = memory.create_root(&who(), "other").unwrap();
    memory.commit(&who(), other, vec![put("d", None, Some("a drink"))]).unwrap();
    memory.wait_until_embedded();
    assert_eq!(told.texts.load(Ordering::SeqCst), 3 + 3 + 1, "probes, and each text once");
    memory.reembed(main_of(&memory)).unwrap();
    memory.wait_until_embedded();
    assert_eq!(told.texts.load(Ordering::SeqCst), 3 + 3 + 1 + 3, "the three texts of main once more");
    assert_eq!(status(&memory, &view)["embedder"]["reembedding"], false);
    let lineage = memory.lineage_lines(main_of(&memory), false).unwrap();
    assert_eq!(lineage.iter().filter(|line| line.contains(r#""op":"embedder""#)).count(), 2);
    assert_eq!(ids(&ask(&memory, &view, MEANING)), ["a"]);
    assert_eq!(ids(&ask(&memory, &View::Branch(other), MEANING)), ["d"]);
}

#[test]
fn a_text_that_is_refused_stops_no_other() {
    let (_, memory, _, view) = embedded();
    let texts = ["poison", "a drink", "a bill", "a host"];
    let edits = texts.iter().map(|text| put(text, None, Some(text))).collect();
    memory.commit(&who(), main_of(&memory), edits).unwrap();
    memory.wait_until_embedded();
    assert_eq!(status(&memory, &view)["index"]["unembedded"], 1);
    let answer = ask(&memory, &view, "a beverage");
    assert_eq!(answer.reason.as_deref(), Some("1 of 7 records are not embedded yet"));
}

#[test]
fn a_text_on_which_the_embedder_hangs_stops_no_other() {
    let (_, memory, told, view) = embedded();
    let before = told.texts.load(Ordering::SeqCst);
    let texts = ["hang", "a drink", "a bill", "poison", "a host"];
    let edits = texts.iter().map(|text| put(text, None, Some(text))).collect();
    memory.commit(&who(), main_of(&memory), edits).unwrap();
    memory.wait_until_embedded();
    assert_eq!(status(&memory, &view)["index"]["unembedded"], 2);
    assert_eq!(status(&memory, &view)["embedder"]["state"], "ready");
    assert!(told.texts.load(Ordering::SeqCst) > before + 3, "probes tell a text's fault from an outage");
}

#[test]
fn an_outage_costs_no_text_its_vector() {
    let (_, memory, told, view) = embedded();
    told.is_down.store(true, Ordering::SeqCst);
    let texts = ["a drink", "a bill", "a host"];
    let edits = texts.iter().map(|text| put(text, None, Some(text))).collect();
    memory.commit(&who(), main_of(&memory), edits).unwrap();
    while status(&memory, &view)["embedder"]["state"] == "ready" {
        std::thread::sleep(Duration::from_millis(5));
    }
    told.is_down.store(false, Ordering::SeqCst);
    while status(&memory, &view)["embedder"]["state"] != "ready" {
        std::thread::sleep(Duration::from_millis(5));
    }
    memory.wait_until_embedded();
    assert_eq!(status(&memory, &view)["index"]["unembedded"], 0);
}

#[test]
fn vectors_of_another_length_turn_the_embedder_off_with_a_reason() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, view) = (main_of(&memory), View::Branch(main_of(&memory)));
    memory.commit(&who(), main, vec![put("a", Some(vec![1.0, 0.0]), Some("tea"))]).unwrap();
    embed(&memory, 0);
    let answer = ask(&memory, &view, "tea");
    let reason = answer.reason.unwrap();
    assert!(reason.starts_with("embedder_changed") && reason.contains("have 2 numbers"), "{reason}");
    assert_eq!(answer.mode.to_string(), "text");
    assert!(memory.reembed(main).is_err());
}

/// A fork is anybody's, and the length that it fixed would hold for the root branch.
#[test]
fn while_an_embedder_serves_no_vector_of_another_length_turns_it_off() {
    let (_, memory, _, view) = embedded();
    let fork = memory.fork(&who(), main_of(&memory), "x", None).unwrap();
    let short = |count: usize| (0..count).map(|n| put(&format!("v{n}"), Some(vec![1.0, 2.0]), None)).collect();
    for count in [1, 5_000] {
        assert_eq!(memory.commit(&who(), fork, short(count)).unwrap_err().code(), "wrong_dimension", "{count}");
    }
    let entry = SharedLogEntryInput::parse(r#"{"text":"an entry","vector":[1,2]}"#).unwrap();
    assert_eq!(memory.append_log(&who(), fork, &[entry]).unwrap_err().code(), "wrong_dimension");
    let patch = RecordPatch { vector: Some(Some([1.0, 2.0].into())), ..RecordPatch::default() };
    assert_eq!(memory.check_patch_vector(fork, &patch).unwrap_err().code(), "wrong_dimension", "told in the write");
    assert_eq!(memory.set(&who(), fork, Setting::Dim, "2").unwrap_err().code(), "fixed");

    memory.commit(&who(), fork, vec![put("v", Some(vec![0.0, 0.0, 0.0, 1.0]), None)]).unwrap();
    let answer = ask(&memory, &view, MEANING);
    assert_eq!((answer.reason.as_deref(), ids(&answer)), (None, vec!["a"]));
}

#[test]
fn a_power_cut_costs_vectors_at_most_and_a_bulk_commit_is_embedded() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    embed(&memory, 0);
    let view = View::Branch(main_of(&memory));
    let edits = (0..2_000).map(|n| put(&format!("r{n:04}"), None, Some(&format!("bill {n}")))).collect();
    memory.commit(&who(), main_of(&memory), edits).unwrap();
    memory.wait_until_embedded();
    let files = disk.list("segments").unwrap();
    memory.commit(&who(), main_of(&memory), vec![put("z", None, Some("tea"))]).unwrap();
    memory.sync().unwrap();
    memory.wait_until_embedded();
    assert_eq!(status(&memory, &view)["index"]["unembedded"], 0);
    assert_eq!(disk.list("segments").unwrap(), files, "no file holds the vector of the last record");
    let head = status(&memory, &view)["head"].clone();
    let after = disk.power_cut(7);
    let memory = Memory::open_on(Arc::new(after.clone()), OpenMode::Existing, None, environment()).unwrap();
    assert_eq!(status(&memory, &view)["head"].clone(), head);
    assert_eq!(status(&memory, &view)["records"], 2_001);
    let told = embed(&memory, 0);
    assert_eq!(status(&memory, &view)["index"]["unembedded"], 0);
    assert_eq!(ids(&ask(&memory, &view, MEANING)), ["z"]);
    assert!(told.texts.load(Ordering::SeqCst) < 2_000, "what a file holds is not embedded again");
    verify_on(&(Arc::new(after) as Arc<dyn Disk>), &Default::default()).unwrap();
}

#[test]
fn derived_vectors_are_shown_by_no_export_and_no_answer() {
    let (_, memory, _, view) = embedded();
    for sealed in [false, true] {
        let answer = ask(&memory, &view, r#"{"text":"a beverage","mode":"vector","include":["vector"]}"#);
        assert!(answer.hits.len() == 3 && answer.hits.iter().all(|hit| hit.vector.is_none()), "sealed: {sealed}");
        let snapshot = memory.snapshot(&view).unwrap();
        let mut lines = vec![0; snapshot.export_length(Export::Records) as usize];
        snapshot.export_read(Export::Records, 0, &mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        assert_eq!((lines.lines().count(), lines.matches(r#""vector":null"#).count()), (3, 3), "{lines}");
        assert_eq!(snapshot.export_length(Export::Ids), 0, "no row has a vector");
        memory.seal().unwrap();
    }
}

#[test]
fn reembedding_that_a_restart_cut_off_has_to_be_asked_for_again() {
    let (disk, memory, _, view) = embedded();
    memory.close().unwrap();
    drop(memory);
    let memory = open(&disk).unwrap();
    let told = embed(&memory, 1);
    told.is_down.store(true, Ordering::SeqCst);
    memory.reembed(main_of(&memory)).unwrap();
    assert_eq!(status(&memory, &view)["embedder"]["reembedding"], true);
    memory.close().unwrap();
    drop(memory);
    let memory = open(&disk).unwrap();
    let told = embed(&memory, 1);
    assert_eq!(status(&memory, &view)["embedder"]["reembedding"], false);
    assert_eq!(
        (status(&memory, &view)["embedder"]["state"].as_str(), told.texts.load(Ordering::SeqCst)),
        (Some("changed"), 3)
    );
    memory.reembed(main_of(&memory)).unwrap();
    memory.wait_until_embedded();
    assert_eq!(ids(&ask(&memory, &view, MEANING)), ["a"]);
}

#[test]
fn the_thread_of_an_embedder_ends_when_another_takes_its_place_and_when_the_store_is_closed() {
    let (_disk, memory, first, _main) = embedded();
    let is_released = |told: &Arc<Told>| {
        // The thread holds the embedder, which holds what it shares with the test.
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Arc::strong_count(told) == 1
        })
    };
    let second = embed(&memory, 0);
    assert!(is_released(&first), "replaced");
    memory.close().unwrap();
    drop(memory);
    assert!(is_released(&second), "closed");
}
