//! What a query wants as it is written: quoted phrases and identifiers.

use std::collections::BTreeSet;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{Answer, BranchId, Memory, Query, RecordEdit, RecordInput, Setting, SharedLogEntryInput, View};
use engramfs::search::Hit;
use serde_json::{Value, json};

use crate::files::write;
use crate::support::{main_of, open, put, who};

fn ask(memory: &Memory, branch: BranchId, query: &Value) -> Answer {
    memory.query(&View::Branch(branch), &Query::parse(&query.to_string()).unwrap()).unwrap()
}

/// The ids and paths of the hits, and the texts of entries, best first.
fn places(memory: &Memory, branch: BranchId, query: &Value) -> Vec<String> {
    let answer = ask(memory, branch, query);
    let place = |hit: &Hit| match (&hit.file, hit.entry_id) {
        (Some(file), _) => file.path.to_string(),
        (None, Some(_)) => hit.text.as_deref().unwrap().to_owned(),
        (None, None) => hit.id.to_string(),
    };
    answer.hits.iter().map(place).collect()
}

fn set(places: &[String]) -> BTreeSet<&str> {
    places.iter().map(String::as_str).collect()
}

/// A quoted phrase was as good as its words in any order, and then a condition on every hit.
#[test]
fn the_words_of_a_phrase_count_only_where_it_stands_in_records_entries_and_files() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let title = json!({ "title": ["The disk was corrupted"] }).as_object().unwrap().clone();
    let input = RecordInput::from_vector(vec![1.0]).unwrap().with_metadata(title);
    let mut edits = vec![
        put("right", None, Some("a note of some length: at night the DISK, was corrupted badly")),
        put("wrong", None, Some("the corrupted disk was badly")),
        RecordEdit::Put { id: "title".into(), input },
    ];
    edits.extend((0..60).map(|n| put(&format!("w{n:02}"), None, Some("corrupted disk was"))));
    memory.commit(&who(), main, edits).unwrap();
    let entries = ["disk was corrupted", "was corrupted: disk"].map(|text| SharedLogEntryInput::parse(text).unwrap());
    memory.append_log(&who(), main, &entries).unwrap();
    write(&memory, main, "p1.txt", "the disk was corrupted badly\n");
    write(&memory, main, "p2.txt", "the corrupted disk was badly\n");
    let right = BTreeSet::from(["disk was corrupted", "files/p1.txt", "right", "title"]);
    let wrong = BTreeSet::from(["files/p2.txt", "wrong"]);
    let two_words = BTreeSet::from(["was corrupted: disk"]);
    for language in ["en", "none"] {
        memory.set(&who(), main, Setting::Language, language).unwrap();
        for is_sealed in [false, true] {
            let asked = |text: &str| places(&memory, main, &json!({ "text": text, "k": 100 }));
            assert_eq!(set(&asked("\"disk was corrupted\"")), right, "{language}, sealed {is_sealed}");
            let found = asked("\"disk was corrupted\" badly");
            assert_eq!(set(&found[..4]), right, "where the phrase stands all words count: {found:?}");
            assert_eq!(set(&found[4..]), wrong, "elsewhere those outside of it: {found:?}");
            assert_eq!(set(&asked("“Was Corrupted” \"badly\"")), &(&right | &wrong) | &two_words);
            assert_eq!(asked("\"disks was corrupted\""), [""; 0]);
            assert_eq!(asked("\"disks was corrupted\" badly").len(), 4);
            assert_eq!(asked("\"disk was corrupted\" corrupted").len(), 67, "a word outside counts everywhere");
            assert_eq!(asked("disk was corrupted").len(), 67, "without quotes all have the words");
            assert!(ask(&memory, main, &json!({ "text": "\"was corrupted\"" })).exact);
            memory.seal().unwrap();
        }
    }
}

/// No text has the title, and the question had no answer.
#[test]
fn a_question_that_quotes_what_no_text_has_is_answered_by_its_other_words() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let records = [
        put("fan", Some(vec![0.0, 1.0]), Some("Melanie likes Vivaldi and other composers")),
        put("year", Some(vec![1.0, 0.0]), Some("There are four seasons in a year")),
    ];
    memory.commit(&who(), main, records.into()).unwrap();
    write(&memory, main, "year.txt", "of the four, two seasons\n");
    let query = json!({ "text": "Would Melanie enjoy the song \"The Four Seasons\" by Vivaldi?" });
    let mut hybrid = query.clone();
    hybrid["vector"] = json!([1, 0]);
    for is_sealed in [false, true] {
        assert_eq!(places(&memory, main, &query), ["fan"], "sealed {is_sealed}");
        assert_eq!(set(&places(&memory, main, &hybrid)), BTreeSet::from(["fan", "year"]));
        memory.seal().unwrap();
    }
}

/// What is nearest by its vector was no hit without the phrase.
#[test]
fn a_phrase_restricts_neither_what_vectors_find_nor_a_query_by_id() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let angle = |n: u16| f32::from(n) * 0.007;
    let record = |n: u16| {
        let text = if n >= 198 { "the disk was corrupted" } else { "corrupted was the disk" };
        put(&format!("r{n:03}"), Some(vec![angle(n).cos(), angle(n).sin()]), Some(text))
    };
    let quoting = put("quoting", Some(vec![0.0, -1.0]), Some("says \"the disk\" or \"so it was\""));
    memory.commit(&who(), main, (0..200).map(record).chain([quoting]).collect()).unwrap();
    for is_sealed in [false, true] {
        let query = json!({ "text": "\"disk was corrupted\"", "vector": [1, 0], "k": 4 });
        let answer = ask(&memory, main, &query);
        assert_eq!((answer.mode.to_string(), answer.exact), ("hybrid".to_owned(), true));
        let both = BTreeSet::from(["r000", "r001", "r198", "r199"]);
        assert_eq!(set(&places(&memory, main, &query)), both, "sealed {is_sealed}");
        let by_vector = json!({ "text": "\"disk was corrupted\"", "vector": [1, 0], "k": 2, "mode": "vector" });
        assert_eq!(places(&memory, main, &by_vector), ["r000", "r001"]);
        let by_id = json!({ "id": "quoting", "mode": "text", "k": 300 });
        assert_eq!(places(&memory, main, &by_id).len(), 201, "what a record quotes counts as its words");
        memory.seal().unwrap();
    }
}

/// The second record has the phrase, and not the term `err_conn_42`.
#[test]
fn a_phrase_scores_alike_in_memory_and_in_a_segment() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let texts = [("alone", "ERR_CONN_42 failed"), ("within", "net::ERR_CONN_42 failed"), ("other", "42 failed")];
    memory.commit(&who(), main, texts.map(|(id, text)| put(id, None, Some(text))).into()).unwrap();
    let scores = || -> Vec<(String, f64)> {
        let answer = ask(&memory, main, &json!({ "text": "\"ERR_CONN_42 failed\"" }));
        answer.hits.iter().map(|hit| (hit.id.to_string(), hit.score.value())).collect()
    };
    let in_memory = scores();
    assert_eq!(in_memory.iter().map(|(id, _)| &**id).collect::<Vec<_>>(), ["alone", "within"]);
    memory.seal().unwrap();
    assert_eq!(scores(), in_memory);
}

/// A record with `ERR_CONN_42` was a hit for `ERR_CONN_43`, as they share two words.
#[test]
fn an_identifier_matches_as_a_whole_and_its_words_by_themselves_do_not() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let texts = [
        ("other", "ERR_CONN_42 failed"),
        ("same", "err_conn_43 failed"),
        ("longer", "see net::ERR_CONN_43/retry"),
        ("apart", "conn 43, err"),
        ("version", "version 1.2.3"),
        ("next", "version 1.2.4 of 3"),
        ("unit", "after 20 years"),
    ];
    memory.commit(&who(), main, texts.map(|(id, text)| put(id, None, Some(text))).into()).unwrap();
    write(&memory, main, "e.txt", "ERR_CONN_42 failed\n");
    write(&memory, main, "f.txt", "ERR_CONN_43 at last\n\nconn err 43\n");
    for language in ["en", "none"] {
        memory.set(&who(), main, Setting::Language, language).unwrap();
        for is_sealed in [false, true] {
            let asked = |text: &str| places(&memory, main, &json!({ "text": text, "k": 20 }));
            let found = asked("ERR_CONN_43");
            assert_eq!(set(&found), BTreeSet::from(["files/f.txt", "longer", "same"]), "sealed {is_sealed}");
            assert_ne!(found[2], "same", "the whole ranks before a longer name");
            assert_eq!(asked("ERR_CONN_44"), [""; 0]);
            assert_eq!(asked("1.2.3"), ["version"]);
            let found = asked("why has ERR_CONN_43 failed?");
            assert_eq!(found[0], "same");
            assert!(found.iter().any(|place| place == "other"), "other words count as before: {found:?}");
            assert!(asked("conn of ERR_CONN_44").iter().any(|place| place == "apart"));
            assert!(asked("a 20-year plan").iter().any(|place| place == "unit"));
            memory.seal().unwrap();
        }
    }
}
