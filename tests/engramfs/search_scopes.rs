//! Queries to several places, and what a language makes of their words.

use std::collections::BTreeSet;
use std::sync::Arc;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{BranchId, Kind, Memory, MergeVerb, Query, RecordEdit, Setting, SharedLogEntryInput, View};
use engramfs::search::Hit;
use serde_json::{Value, json};

use crate::files::write;
use crate::support::{Chance, delete, holding, main_of, open, put, record_input, rounds, who};

const DIM: usize = 8;
const WORDS: [&str; 12] = [
    "agent", "agents", "branch", "branches", "merging", "merged", "query", "queries", "store", "e0308", "std::io",
    "the",
];

/// Ids with the bits of their scores, as one query finds them.
fn found(memory: &Memory, branch: BranchId, query: &Value) -> Vec<(String, u64)> {
    let answer = memory.query(&View::Branch(branch), &Query::parse(&query.to_string()).unwrap()).unwrap();
    answer.hits.iter().map(|hit| (hit.id.to_string(), hit.score.value().to_bits())).collect()
}

fn ids(memory: &Memory, branch: BranchId, query: &Value) -> Vec<String> {
    found(memory, branch, query).into_iter().map(|(id, _)| id).collect()
}

fn record(chance: &mut Chance, id: String) -> RecordEdit {
    let words: Vec<&str> = (0..1 + chance.below(12)).map(|_| WORDS[chance.below(WORDS.len())]).collect();
    let vector = (!chance.one_in(4)).then(|| chance.vector(DIM));
    put(&id, vector, Some(&words.join(" ")))
}

/// Two root branches give the answer that one gives which holds the records of both, to the last bit of each score.
#[test]
fn two_places_are_ranked_as_one_that_holds_both() {
    for seed in 0..rounds(6) as u64 {
        let memory = open(&ForgetfulDisk::new()).unwrap();
        let [all, left, right] = ["all", "left", "right"].map(|name| memory.create_root(&who(), name).unwrap());
        let mut chance = Chance(seed);
        let nowhere = Query::parse(r#"{"text":"x","scope":["nowhere"]}"#).unwrap();
        assert_eq!(memory.query(&View::Branch(all), &nowhere).unwrap_err().kind(), Kind::Invalid);
        for n in 0..300 {
            let edit = record(&mut chance, format!("r{n:03}"));
            let half = if chance.one_in(5) { right } else { left };
            memory.commit(&who(), half, vec![edit.clone()]).unwrap();
            memory.commit(&who(), all, vec![edit]).unwrap();
            if chance.one_in(120) {
                memory.seal().unwrap();
            }
        }
        for _ in 0..20 {
            let text: Vec<&str> = (0..3).map(|_| WORDS[chance.below(WORDS.len())]).collect();
            let (text, vector, k) = (text.join(" "), chance.vector(DIM), 1 + chance.below(30));
            for query in [
                json!({ "text": text, "k": k }),
                json!({ "vector": vector, "k": k }),
                json!({ "text": text, "vector": vector, "k": k }),
            ] {
                let mut both = query.clone();
                both["scope"] = json!(["branch", "right"]);
                assert_eq!(found(&memory, left, &both), found(&memory, all, &query), "seed {seed}: {query}");
            }
        }
    }
}

/// 40 records of another root branch with one weak word took the first ranks above ten right answers: each place had
/// statistics of its own.
#[test]
fn a_small_place_with_a_weak_word_does_not_rank_above_right_answers() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, other) = (main_of(&memory), memory.create_root(&who(), "other").unwrap());
    let text = |n: usize| if n < 10 { format!("rotate the signing keys {n}") } else { format!("how to do thing {n}") };
    memory.commit(&who(), main, (0..2_000).map(|n| put(&format!("m{n:04}"), None, Some(&text(n)))).collect()).unwrap();
    let weak = (0..40).map(|n| put(&format!("o{n:02}"), None, Some(&format!("how {n}"))));
    memory.commit(&who(), other, weak.collect()).unwrap();
    memory.set(&who(), main, Setting::Language, "none").unwrap();
    let query = json!({ "text": "how rotate signing keys", "scope": ["branch", "other"] });
    let hits = ids(&memory, main, &query);
    assert!(hits.len() == 10 && hits.iter().all(|id| id.starts_with("m000")), "{hits:?}");
}

#[test]
fn the_scope_of_a_closed_log_means_all_of_its_name() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let close_case = |text: &str| {
        let case = memory.fork(&who(), main, "case", None).unwrap();
        memory.set(&who(), case, Setting::Log, "own").unwrap();
        memory.append_log(&who(), case, &[SharedLogEntryInput::parse(text).unwrap()]).unwrap();
        memory.merge(&who(), case, MergeVerb::Merge, false).unwrap();
    };
    let found = |scope: &[&str]| {
        let query = Query::parse(&json!({ "text": "needle", "scope": scope }).to_string()).unwrap();
        let answer = memory.query(&View::Branch(main), &query).unwrap();
        let mut hits: Vec<_> = answer.hits.into_iter().map(|hit| (hit.source.to_string(), hit.entry_id)).collect();
        hits.sort_unstable();
        hits
    };
    close_case("a needle");
    assert_eq!(found(&["log:case"]), [("log:case".to_owned(), Some(1))]);
    for _ in 0..2 {
        close_case("another needle");
    }
    let names: Vec<String> = memory.closed_logs(main).unwrap().iter().map(|name| format!("log:{name}")).collect();
    let mut all: Vec<_> = names.iter().map(|name| (name.clone(), Some(1))).collect();
    all.sort_unstable();
    assert_eq!((found(&["log:case"]), all.len()), (all.clone(), 3));
    assert_eq!(found(&[names[0].as_str()]), [(names[0].clone(), Some(1))]);
    assert_eq!(found(&[names[0].as_str(), "log:case"]), all, "none is found twice");
}

#[test]
fn words_match_by_their_stems_behind_the_words_themselves() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let texts = [
        ("exact", "the agent reported connections"),
        ("stem", "the agent reported a connection"),
        ("none", "the agent reported a disconnect"),
        ("code", "error E0308 was connecting"),
    ];
    memory.commit(&who(), main, texts.map(|(id, text)| put(id, None, Some(text))).into()).unwrap();
    for sealed in [false, true] {
        if sealed {
            memory.seal().unwrap();
        }
        let asked = |text: &str| ids(&memory, main, &json!({ "text": text }));
        assert_eq!(asked("what connections are there")[0], "exact");
        assert_eq!(asked("connections").len(), 3);
        assert_eq!(asked("\"connections\""), ["exact"]);
        assert_eq!(asked("E0308"), ["code"]);
        assert_eq!(asked("the a").len(), 3, "stop words alone are looked for");
    }
    memory.set(&who(), main, Setting::Language, "none").unwrap();
    assert_eq!(ids(&memory, main, &json!({ "text": "connections" })), ["exact"]);
    assert!(memory.set(&who(), main, Setting::Language, "xx").is_err());
    let fork = memory.fork(&who(), main, "fork", None).unwrap();
    assert_eq!(memory.setting(&View::Branch(fork), Setting::Language).unwrap(), "none");
}

/// Words with a stem are looked up by the letters that it begins with.
#[test]
fn a_word_that_begins_otherwise_than_its_stem_is_found_as_it_is() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let texts = [("dying", "a dying heron"), ("dies", "a heron dies"), ("plural", "alte Häuser")];
    memory.commit(&who(), main, texts.map(|(id, text)| put(id, None, Some(text))).into()).unwrap();
    let asked = |text: &str| ids(&memory, main, &json!({ "text": text }));
    assert_eq!((asked("dies"), asked("dying")), (vec!["dies".to_owned()], vec!["dying".to_owned(), "dies".to_owned()]));
    memory.set(&who(), main, Setting::Language, "de").unwrap();
    assert_eq!((asked("Haus"), asked("Häuser")), (vec![], vec!["plural".to_owned()]));
}

/// A sentence without spaces was one word, which no query contained.
#[test]
fn a_word_of_a_script_without_spaces_finds_its_records() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let texts = [
        ("chinese", "我们决定在下周二迁移数据库到新的服务器"),
        ("japanese", "会議は来週の火曜日に東京で開催されます"),
        ("thai", "เราตัดสินใจย้ายฐานข้อมูลไปยังเซิร์ฟเวอร์ใหม่"),
        ("mixed", "错误E0308出现在std::io模块"),
        ("latin", "error E0277 appears in std::fs"),
    ];
    memory.commit(&who(), main, texts.map(|(id, text)| put(id, None, Some(text))).into()).unwrap();
    for is_sealed in [false, true] {
        if is_sealed {
            memory.seal().unwrap();
        }
        for (query, expected) in [
            ("数据库", "chinese"),
            ("服务器", "chinese"),
            ("什么时候迁移?", "chinese"),
            ("火曜日", "japanese"),
            ("東京", "japanese"),
            ("ฐานข้อมูล", "thai"),
            ("เซิร์ฟเวอร์", "thai"),
            ("错误", "mixed"),
            ("E0308", "mixed"),
            ("std::io", "mixed"),
            ("E0277", "latin"),
        ] {
            let found = ids(&memory, main, &json!({ "text": query }));
            assert_eq!(found.first().map(String::as_str), Some(expected), "{query}: {found:?}, sealed {is_sealed}");
        }
    }
}

#[test]
fn the_head_of_an_answer_is_that_of_the_branch_asked_wherever_it_looked() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let [left, right] = ["left", "right"].map(|name| memory.create_root(&who(), name).unwrap());
    memory.commit(&who(), right, vec![put("r", None, Some("branch"))]).unwrap();
    let head = memory.snapshot(&View::Branch(left)).unwrap().head();
    for scope in [json!(["branch"]), json!(["branch", "right"]), json!(["right"]), json!(["log"]), json!(["files"])] {
        let query = Query::parse(&json!({ "text": "branch", "scope": scope }).to_string()).unwrap();
        assert_eq!(memory.query(&View::Branch(left), &query).unwrap().head, head, "{scope}");
    }
}

/// The ids, sources and scores of the hits of one query.
fn told(memory: &Memory, branch: BranchId, query: &Value) -> Vec<(String, String, f64)> {
    let answer = memory.query(&View::Branch(branch), &Query::parse(&query.to_string()).unwrap()).unwrap();
    let hits = answer.hits.iter();
    hits.map(|hit| (hit.id.to_string(), hit.source.to_string(), hit.score.value())).collect()
}

#[test]
fn one_id_comes_once_from_each_place_by_the_metric_and_language_of_who_asks() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, other) = (main_of(&memory), memory.create_root(&who(), "other").unwrap());
    memory.set(&who(), other, Setting::Metric, "l2").unwrap();
    memory.set(&who(), main, Setting::Language, "none").unwrap();
    memory.commit(&who(), main, vec![put("x", Some(vec![1.0, 0.0]), Some("heron"))]).unwrap();
    memory.commit(&who(), other, vec![put("x", Some(vec![3.0, 0.0]), Some("herons"))]).unwrap();
    let hit = |source: &str, score| ("x".to_owned(), source.to_owned(), score);
    let near = |scope: [&str; 2]| json!({ "vector": [1, 0], "scope": scope });
    assert_eq!(told(&memory, main, &near(["branch", "other"])), [hit("branch", 1.0), hit("other", 1.0)]);
    assert_eq!(told(&memory, other, &near(["branch", "main"])), [hit("main", 0.0), hit("branch", -2.0)]);
    let stems = |scope: [&str; 2]| json!({ "text": "heron", "scope": scope });
    let sources = |branch, scope| told(&memory, branch, &stems(scope)).into_iter().map(|(_, source, _)| source);
    assert!(sources(main, ["branch", "other"]).eq(["branch"]), "without stems `herons` is another word");
    assert!(sources(other, ["branch", "main"]).eq(["main", "branch"]));
}

#[test]
fn a_query_by_id_takes_the_record_s_words_where_a_mode_asks_for_them() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let edits = vec![put("a", Some(vec![1.0, 0.0]), Some("heron")), put("words", None, Some("a heron wades"))];
    memory.commit(&who(), main, edits).unwrap();
    assert_eq!(ids(&memory, main, &json!({ "id": "a" })), ["a"], "the vector alone");
    for mode in ["text", "hybrid"] {
        assert_eq!(ids(&memory, main, &json!({ "id": "a", "mode": mode })), ["a", "words"], "{mode}");
    }
}

#[test]
fn a_reason_is_given_where_the_mode_asked_for_can_not_be_had_and_only_there() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("a", Some(vec![1.0, 0.0]), Some("heron"))]).unwrap();
    let no_text = |asked: &str| Some(format!("{asked} was asked for, and there is no text to compare with"));
    for (query, mode, reason) in [
        (json!({ "text": "heron", "mode": "text" }), "text", None),
        (json!({ "vector": [1, 0], "mode": "vector" }), "vector", None),
        (json!({ "id": "a", "mode": "vector" }), "vector", None),
        (json!({ "text": "heron", "vector": [1, 0], "mode": "hybrid" }), "hybrid", None),
        (json!({ "vector": [1, 0], "mode": "hybrid" }), "vector", no_text("hybrid")),
        (json!({ "vector": [1, 0], "mode": "text" }), "vector", no_text("text")),
    ] {
        let answer = memory.query(&View::Branch(main), &Query::parse(&query.to_string()).unwrap()).unwrap();
        assert_eq!((answer.mode.to_string(), answer.reason), (mode.to_owned(), reason), "{query}");
    }
}

#[test]
fn equal_scores_put_passages_behind_records_by_path_and_line() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for path in ["b.md", "a.md"] {
        write(&memory, main, path, "# heron wades\n\n# heron wades\n");
    }
    memory.commit(&who(), main, vec![put("z", None, Some("heron wades"))]).unwrap();
    let answer = memory.query(&View::Branch(main), &Query::from_text("heron").unwrap()).unwrap();
    assert!(answer.hits.iter().all(|hit| hit.score.value().to_bits() == answer.hits[0].score.value().to_bits()));
    let places: Vec<String> = (answer.hits.iter())
        .map(|hit| hit.file.as_ref().map_or_else(|| hit.id.to_string(), |at| format!("{}:{}", at.path, at.line)))
        .collect();
    assert_eq!(places, ["z", "files/a.md:1", "files/a.md:3", "files/b.md:1", "files/b.md:3"]);
}

/// The words in backticks of the first cells of a table of the page; of the row `id` of all its cells.
fn fields_of_the_page(table: &str) -> BTreeSet<String> {
    let page = include_str!("../../docs/SEMANTICS.md");
    let (_, rows) = page.split_once(&format!("\n| {table} | meaning |\n|---|---|\n")).unwrap();
    let rows = rows.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| if row.starts_with("| `id`") { row } else { row.split('|').nth(1).unwrap() });
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn answers_have_the_fields_of_the_page() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("r", Some(vec![1.0]), Some("a heron"))]).unwrap();
    memory.append_log(&who(), main, &[SharedLogEntryInput::parse("another heron").unwrap()]).unwrap();
    write(&memory, main, "note.md", "a third heron");
    let (mut headers, mut hits) = (BTreeSet::new(), BTreeSet::new());
    for query in [
        json!({ "text": "heron", "include": ["vector", "stamp"], "explain": true }),
        json!({ "text": "heron", "mode": "vector" }),
        json!({ "text": "heron", "at": "-0s" }),
    ] {
        let answer = memory.query(&View::Branch(main), &Query::parse(&query.to_string()).unwrap()).unwrap().to_lines(0);
        for (at, line) in answer.lines().enumerate() {
            let line: Value = serde_json::from_str(line).unwrap();
            let all = if at == 0 { &mut headers } else { &mut hits };
            all.extend(line.as_object().unwrap().keys().cloned());
        }
    }
    assert_eq!(headers, fields_of_the_page("header field"));
    assert_eq!(hits, fields_of_the_page("hit field"));
}

/// The record that a query names is that of the branch that is asked, wherever it looks for others.
#[test]
fn a_query_by_id_compares_with_the_record_of_the_branch_that_is_asked() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let other = memory.create_root(&who(), "other").unwrap();
    memory.commit(&who(), main, vec![put("a", Some(vec![1.0, 0.0]), Some("heron"))]).unwrap();
    let far_and_near = [put("a", Some(vec![0.0, 1.0]), None), put("near", Some(vec![1.0, 0.1]), None)];
    memory.commit(&who(), other, far_and_near.to_vec()).unwrap();
    write(&memory, main, "notes.md", "a heron stands\n");
    let found = |scope: Value| ids(&memory, main, &json!({ "id": "a", "scope": scope }));
    assert_eq!(found(json!(["other"])), ["near", "a"]);
    assert_eq!(found(json!(["branch", "other"])), ["a", "near", "a"]);
    let words = Query::parse(r#"{"id":"a","mode":"text","scope":["files"]}"#).unwrap();
    assert_eq!(memory.query(&View::Branch(main), &words).unwrap().hits.len(), 1);
    let missing = Query::parse(r#"{"id":"near","scope":["other"]}"#).unwrap();
    assert_eq!(memory.query(&View::Branch(main), &missing).unwrap_err().kind(), Kind::NotFound);
}

const PHRASES: [&str; 8] = [
    "the disk was corrupted at night",
    "corrupted was the disk at night",
    "ERR_CONN_42 failed",
    "see net::ERR_CONN_42/retry, which failed",
    "conn 42 err failed at night",
    "ERR_CONN_43 failed",
    "agents merged the corrupted disk",
    "an agent merges what failed",
];

/// A sealed store with a fork for each name, whose records and passages have some of `PHRASES` and the name.
fn forks_with_records(disk: &ForgetfulDisk, forks: &[(&str, usize)]) -> Arc<Memory> {
    let memory = open(disk).unwrap();
    for (name, count) in forks {
        let (fork, mut chance) = (memory.fork(&who(), main_of(&memory), name, None).unwrap(), Chance(*count as u64));
        let record = |n: usize| {
            let other = PHRASES[chance.below(PHRASES.len())];
            let text = format!("{}. {other}, in {name}", PHRASES[n % PHRASES.len()]);
            let metadata = json!({ "n": n % 250 }).as_object().unwrap().clone();
            // Those of a small fork lie between those of a large one.
            let id = format!("{:04}-{name}", n * 2_000 / *count);
            RecordEdit::Put { id: id.into(), input: record_input(None, Some(&text)).with_metadata(metadata) }
        };
        let edits: Vec<RecordEdit> = (0..*count).map(record).collect();
        // In parts, since 1,024 at once would be a segment of their own before the seal.
        for part in edits.chunks(500) {
            memory.commit(&who(), fork, part.to_vec()).unwrap();
        }
        let passage = |n: usize| format!("{name} {n}: {}\n\n", format!("{}. ", PHRASES[n % PHRASES.len()]).repeat(20));
        write(&memory, fork, "notes.txt", &(0..*count / 4).map(passage).collect::<String>());
        memory.query(&View::Branch(fork), &Query::from_text("disk").unwrap()).unwrap();
    }
    memory.seal().unwrap();
    memory
}

/// The ids, or paths and lines, of the hits, with the bits of their scores.
fn places(memory: &Memory, fork: &str, query: &Value) -> Vec<(String, u64)> {
    let view = View::Branch(memory.resolve(&format!("main/{fork}")).unwrap());
    let answer = memory.query(&view, &Query::parse(&query.to_string()).unwrap()).unwrap();
    let place = |hit: &Hit| match &hit.file {
        Some(file) => format!("{}:{}", file.path, file.line),
        None => hit.id.to_string(),
    };
    answer.hits.iter().map(|hit| (place(hit), hit.score.value().to_bits())).collect()
}

/// Where few rows of a segment are visible the others are leapt over; where many are, each is looked at.
#[test]
fn few_rows_among_those_of_another_branch_answer_as_in_a_store_of_their_own() {
    let disk = ForgetfulDisk::new();
    let (few, many) = (("heron", 8), ("osprey", 2_000));
    let shared = forks_with_records(&disk, &[few, many]);
    let segments = |text: &str| -> Vec<String> {
        holding(&disk, text).into_iter().filter(|path| path.starts_with("segments/")).collect()
    };
    assert_eq!(segments("in heron"), segments("in osprey"));
    assert_eq!(segments("in heron").len(), 1, "the records of both are in one segment");
    let words = ["disk night", "an agent merging", "osprey", "\"disk was corrupted\""];
    let exact =
        ["\"disk was corrupted\" failed", "ERR_CONN_42", "has ERR_CONN_42 failed?", "ERR_CONN_42 \"was the disk\""];
    for (name, count) in [few, many] {
        let alone = forks_with_records(&ForgetfulDisk::new(), &[(name, count)]);
        for is_edited in [false, true] {
            for memory in [&shared, &alone].into_iter().filter(|_| is_edited) {
                let branch = memory.resolve(&format!("main/{name}")).unwrap();
                let edits = vec![delete(&format!("0000-{name}")), put("new", None, Some("the night was corrupted"))];
                memory.commit(&who(), branch, edits).unwrap();
            }
            for (text, k) in words.iter().chain(&exact).flat_map(|text| [(*text, 3), (*text, 100)]) {
                for filter in [json!({}), json!({ "n": { "$lt": 3 } }), json!({ "n": { "$gte": 3 } })] {
                    let query = json!({ "text": text, "k": k, "filter": filter });
                    let found = places(&shared, name, &query);
                    assert_eq!(found, places(&alone, name, &query), "{name}, edited {is_edited}: {query}");
                    let may_be_none = text == "osprey" || filter != json!({});
                    assert!(may_be_none || !found.is_empty(), "{name}, edited {is_edited}: {query}");
                }
            }
        }
    }
}
