//! Passages of files, found by what they mean.

use std::collections::BTreeMap;

use engramfs::memory::{Attrs, BranchId, Credentials, Environment, FILES_ROOT, FileName, FileOp};

use super::*;
use crate::files::write;
use crate::support::{Chance, rounds};

const BEVERAGE: &str = r#"{"text":"a beverage","mode":"vector","k":1}"#;

/// Waits until all files are indexed and embedded, and asks; returns paths of files and ids of records.
fn found(memory: &Memory, branch: BranchId, line: &str) -> Vec<String> {
    memory.wait_until_files_indexed();
    memory.wait_until_embedded();
    names(&ask(memory, &View::Branch(branch), line))
}

fn names(answer: &Answer) -> Vec<String> {
    let hits = answer.hits.iter();
    hits.map(|hit| hit.file.as_ref().map_or_else(|| hit.id.to_string(), |file| file.path.to_string())).collect()
}

fn remove(memory: &Memory, branch: BranchId, name: &str) {
    let name = FileName::new(name.as_bytes()).unwrap();
    memory.edit(&who(), branch, FileOp::Unlink { parent: FILES_ROOT, name, keep: false }).unwrap();
}

/// Opens a store whose files are indexed at once, with an embedder.
fn opened(disk: &ForgetfulDisk, turn: usize) -> (Arc<Memory>, Arc<Told>) {
    let around = Environment { file_index_delay: Duration::ZERO, ..environment() };
    let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap();
    let told = embed(&memory, turn);
    (memory, told)
}

#[test]
fn files_are_found_by_what_they_mean_in_one_ranking_with_records() {
    let disk = ForgetfulDisk::new();
    let (memory, told) = opened(&disk, 0);
    let main = main_of(&memory);
    write(&memory, main, "brew.md", "# Notes\n\ngreen tea at four");
    write(&memory, main, "ops.txt", "the server is slow");
    let embedded = || told.texts.load(Ordering::SeqCst);
    assert_eq!(found(&memory, main, BEVERAGE), ["files/brew.md"]);
    let answer = ask(&memory, &View::Branch(main), "slow host");
    assert_eq!(
        (&*names(&answer)[0], answer.mode.to_string(), &answer.reason),
        ("files/ops.txt", "hybrid".into(), &None)
    );
    assert_eq!(answer.hits[0].text.as_deref(), Some("the server is slow"));
    memory.commit(&who(), main, vec![put("r", None, Some("tea, a drink and a beverage"))]).unwrap();
    assert_eq!(found(&memory, main, r#"{"text":"a beverage","mode":"vector","k":2}"#), ["files/brew.md", "r"]);
    let scopes = [r#"["branch"]"#, r#"["files"]"#];
    let of =
        |scope: &str| found(&memory, main, &format!(r#"{{"text":"beverage","mode":"vector","k":9,"scope":{scope}}}"#));
    assert_eq!(scopes.map(of), [vec!["r".to_owned()], vec!["files/brew.md".into(), "files/ops.txt".into()]]);

    // A copy and a fork embed nothing, and a fork goes its own way.
    let before = embedded();
    write(&memory, main, "copy.md", "# Notes\n\ngreen tea at four");
    let fork = memory.fork(&who(), main, "fork", None).unwrap();
    memory.wait_until_files_indexed();
    memory.wait_until_embedded();
    assert_eq!(embedded(), before);
    write(&memory, fork, "more.md", "the drink beverage tea machine");
    remove(&memory, fork, "brew.md");
    let all = r#"{"text":"beverage","mode":"vector","k":9,"scope":["files"]}"#;
    assert_eq!(found(&memory, fork, all), ["files/copy.md", "files/more.md", "files/ops.txt"]);
    assert_eq!(found(&memory, main, all), ["files/brew.md", "files/copy.md", "files/ops.txt"]);

    // Beside a seal, and out of its files: nothing is embedded again but queries.
    memory.seal().unwrap();
    assert_eq!(found(&memory, fork, all), ["files/copy.md", "files/more.md", "files/ops.txt"]);
    memory.close().unwrap();
    verify(&disk).unwrap();
    drop(memory);
    let (memory, told) = opened(&disk, 0);
    assert_eq!(found(&memory, main, all), ["files/brew.md", "files/copy.md", "files/ops.txt"]);
    assert_eq!(told.texts.load(Ordering::SeqCst), 3 + 1, "probes and the query");
    let given = r#"{"vector":[1,0,0,0],"k":1,"scope":["files"]}"#;
    assert_eq!(found(&memory, fork, given), ["files/copy.md"]);
}

#[test]
fn passages_that_the_caller_may_not_read_are_no_neighbours() {
    let disk = ForgetfulDisk::new();
    let (memory, _) = opened(&disk, 0);
    let main = main_of(&memory);
    write(&memory, main, "closed.md", "tea drink beverage");
    write(&memory, main, "open.md", "the server is slow");
    memory.set(&who(), main, Setting::Rules, "hidden.md text noindex\n** text").unwrap();
    write(&memory, main, "hidden.md", "beverage");
    let inode = memory.files(&View::Branch(main)).unwrap().resolve(b"closed.md").unwrap();
    let attrs = Attrs { mode: Some(0o600), ..Attrs::default() };
    memory.edit(&who(), main, FileOp::SetAttr { inode, attrs }).unwrap();
    let all = r#"{"text":"beverage","mode":"vector","k":9}"#;
    assert_eq!(found(&memory, main, all), ["files/closed.md", "files/open.md"]);
    let other = Credentials { uid: 1001, groups: vec![1001], knows_all_groups: true };
    let answer = memory.query_for(&other, &View::Branch(main), &Query::parse(all).unwrap()).unwrap();
    assert_eq!(names(&answer), ["files/open.md"]);
}

#[test]
fn a_changed_embedder_embeds_passages_anew_while_the_old_vectors_serve() {
    let disk = ForgetfulDisk::new();
    let (memory, _) = opened(&disk, 0);
    let main = main_of(&memory);
    write(&memory, main, "brew.md", "green tea at four");
    write(&memory, main, "ops.txt", "the server is slow");
    assert_eq!(found(&memory, main, BEVERAGE), ["files/brew.md"]);
    memory.seal().unwrap();
    memory.close().unwrap();
    drop(memory);
    let (memory, _) = opened(&disk, 1);
    memory.reembed(main).unwrap();
    assert_eq!(found(&memory, main, BEVERAGE), ["files/brew.md"]);
    assert_eq!(found(&memory, main, r#"{"vector":[0,1,0,0],"k":1}"#), ["files/brew.md"], "a vector of the new set");
    memory.close().unwrap();
    verify(&disk).unwrap();
}

/// Random work on files and the store: what is near is what a scan of all files says.
#[test]
fn nearest_passages_agree_with_a_scan_of_all_files() {
    for seed in 0..rounds(6) as u64 {
        let (disk, mut chance) = (ForgetfulDisk::new(), Chance(seed));
        let (mut memory, _) = opened(&disk, 0);
        let mut model: BTreeMap<String, String> = BTreeMap::new();
        for step in 0..60 {
            let main = main_of(&memory);
            match chance.below(10) {
                0..=4 => {
                    let words: Vec<&str> =
                        (0..1 + chance.below(4)).map(|_| TOPICS[chance.below(3)][chance.below(2)]).collect();
                    let (name, text) = (format!("f{}", chance.below(9)), format!("{} {step}", words.join(" ")));
                    write(&memory, main, &name, &text);
                    model.insert(name, text);
                }
                5 => {
                    if let Some(name) = model.keys().nth(chance.below(9)).cloned() {
                        remove(&memory, main, &name);
                        model.remove(&name);
                    }
                }
                6 => memory.seal().unwrap(),
                7 => drop(memory.gc(&who(), None, false).unwrap()),
                8 => {
                    memory.close().unwrap();
                    drop(memory);
                    memory = opened(&disk, 0).0;
                }
                _ => {
                    let line = r#"{"text":"drink the machine","mode":"vector","k":20}"#;
                    let mut near = found(&memory, main, line);
                    near.sort();
                    let all: Vec<String> = model.keys().map(|name| format!("files/{name}")).collect();
                    assert_eq!(near, all, "seed {seed}, step {step}");
                    check_order(&memory, main, line, &model);
                }
            }
        }
        memory.close().unwrap();
        verify(&disk).unwrap();
    }
}

/// Checks that hits have the scores of their texts, the best first.
fn check_order(memory: &Memory, main: BranchId, line: &str, model: &BTreeMap<String, String>) {
    let topics = Topics { told: Arc::default(), turn: 0 };
    let vector = |text: &str| topics.embed(TextKind::Document, &[text], Duration::MAX).unwrap().remove(0);
    let query = vector("drink the machine");
    let dot = |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
    let mut last = f32::INFINITY;
    for hit in ask(memory, &View::Branch(main), line).hits {
        let text = &model[hit.file.unwrap().path.strip_prefix("files/").unwrap()];
        let vector = vector(text);
        let similarity = dot(&vector, &query) / (dot(&vector, &vector) * dot(&query, &query)).sqrt();
        assert!((1.0 - hit.distance.unwrap() - similarity).abs() < 1e-5, "{text}");
        assert!(similarity <= last + 1e-5, "the best first");
        last = similarity;
    }
}

#[test]
fn a_passage_that_is_not_embedded_yet_is_found_by_its_words_and_noindex_is_never_embedded() {
    let (memory, told) = opened(&ForgetfulDisk::new(), 0);
    let (main, view) = (main_of(&memory), View::Branch(main_of(&memory)));
    memory.set(&who(), main, Setting::Rules, "hidden.md text noindex\n** text").unwrap();
    let before = told.texts.load(Ordering::SeqCst);
    write(&memory, main, "hidden.md", "tea");
    memory.wait_until_files_indexed();
    memory.wait_until_embedded();
    assert_eq!(told.texts.load(Ordering::SeqCst), before, "nothing of it is embedded");
    memory.commit(&who(), main, vec![put("a", None, Some("a drink"))]).unwrap();
    memory.wait_until_embedded();
    told.is_slow.store(true, Ordering::SeqCst);
    write(&memory, main, "brew.md", "green tea at four");
    memory.wait_until_files_indexed();
    let answer = ask(&memory, &view, "tea");
    told.is_slow.store(false, Ordering::SeqCst);
    assert!(names(&answer).contains(&"files/brew.md".to_owned()), "{:?}", names(&answer));
    assert_eq!(answer.reason.as_deref(), Some("files are still being embedded"));
    assert_eq!(status(&memory, &view)["index"]["unembedded"], 0, "that counts records alone");
    let all = r#"{"text":"a beverage","mode":"vector","k":9}"#;
    assert_eq!(found(&memory, main, all), ["a", "files/brew.md"]);
}

#[test]
fn a_file_that_is_not_indexed_yet_is_missed_by_its_meaning_too_and_that_is_told() {
    let around = Environment { file_index_delay: Duration::from_secs(600), ..environment() };
    let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
    embed(&memory, 0);
    let main = main_of(&memory);
    memory.commit(&who(), main, vec![put("r", None, Some("green tea at four"))]).unwrap();
    memory.wait_until_embedded();
    write(&memory, main, "large.txt", &"a drink\n".repeat(200_000));
    let answer = ask(&memory, &View::Branch(main), BEVERAGE);
    assert_eq!((names(&answer), answer.mode.to_string()), (vec!["r".to_owned()], "vector".to_owned()));
    let reason = answer.reason.unwrap_or_default();
    assert!(reason.ends_with("1 file is not indexed yet"), "{reason:?}");
}
