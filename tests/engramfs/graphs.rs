//! Queries that walk graphs: what is true of scans is true of them, but for proven exactness.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engramfs::disk::{Disk, ForgetfulDisk};
use engramfs::memory::{Answer, Environment, Hash, Memory, OpenMode, Query, RecordEdit, View};

use crate::support::{Chance, delete, environment, main_of, put, verify, who};

const DIM: usize = 16;
const ROWS: usize = 8_000;

/// Opens a store in which every segment of 64 rows gets a graph.
fn open(disk: &ForgetfulDisk) -> Arc<Memory> {
    open_with(disk, 64)
}

/// Opens a store in which every segment of so many rows gets a graph.
fn open_with(disk: &ForgetfulDisk, graph_rows: u32) -> Arc<Memory> {
    let around = Environment { graph_rows, ..environment() };
    Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap()
}

fn note(number: usize, chance: &mut Chance) -> RecordEdit {
    let metadata = serde_json::json!({ "bucket": number % 1000 }).as_object().unwrap().clone();
    let input = crate::support::record_input(Some(chance.vector(DIM)), None).with_metadata(metadata);
    RecordEdit::Put { id: format!("r{number:05}").into(), input }
}

/// A store of 8,000 records with their graph, and a fork of it. The graph is built once for all tests.
fn store_with_graph() -> (ForgetfulDisk, Arc<Memory>, View) {
    static STORE: OnceLock<ForgetfulDisk> = OnceLock::new();
    let disk = STORE.get_or_init(|| {
        let (disk, memory, _) = indexed_with(64);
        memory.close().unwrap();
        disk
    });
    let disk = disk.power_cut_keep_all();
    let memory = open(&disk);
    let fork = memory.resolve("main/fork").unwrap();
    (disk, memory, View::Branch(fork))
}

fn indexed_with(graph_rows: u32) -> (ForgetfulDisk, Arc<Memory>, View) {
    let disk = ForgetfulDisk::new();
    let memory = open_with(&disk, graph_rows);
    let mut chance = Chance(1);
    let edits = (0..ROWS).map(|number| note(number, &mut chance)).collect();
    memory.commit(&who(), main_of(&memory), edits).unwrap();
    memory.wait_until_indexed();
    let fork = memory.fork(&who(), main_of(&memory), "fork", None).unwrap();
    (disk, memory, View::Branch(fork))
}

fn ask(memory: &Memory, view: &View, vector: &[f32], k: usize, more: &serde_json::Value) -> Answer {
    let mut line = serde_json::json!({ "vector": vector, "k": k });
    line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    memory.query(view, &Query::parse(&line.to_string()).unwrap()).unwrap()
}

fn ids(answer: &Answer) -> Vec<String> {
    answer.hits.iter().map(|hit| hit.id.to_string()).collect()
}

/// Asks 50 queries by walk and by scan; returns the share of true hits, and whether any walk was one.
fn recall(memory: &Memory, view: &View, more: &serde_json::Value) -> (f64, bool) {
    let (mut hits, mut wanted, mut walked) = (0, 0, false);
    for seed in 0..50 {
        let query = Chance(1000 + seed).vector(DIM);
        let found = ask(memory, view, &query, 10, more);
        let mut exactly = more.clone();
        exactly["exact"] = true.into();
        let truth = ask(memory, view, &query, 10, &exactly);
        assert!(truth.exact);
        assert_eq!(found.hits.len(), truth.hits.len(), "as many answers as there are");
        let truth: BTreeSet<String> = ids(&truth).into_iter().collect();
        hits += ids(&found).iter().filter(|id| truth.contains(*id)).count();
        wanted += truth.len();
        walked |= !found.exact;
    }
    (hits as f64 / wanted as f64, walked)
}

fn plain() -> serde_json::Value {
    serde_json::json!({})
}

#[test]
fn a_walk_finds_99_of_100_and_says_that_it_proves_nothing() {
    let (_disk, memory, fork) = store_with_graph();
    let (recall, walked) = recall(&memory, &fork, &plain());
    assert!(walked, "nothing was walked");
    assert!(recall >= 0.99, "recall {recall}");
}

#[test]
fn deleted_and_overridden_rows_are_walked_through_and_never_shown() {
    let (_disk, memory, fork) = store_with_graph();
    let query = Chance(9).vector(DIM);
    let nearest = ids(&ask(&memory, &fork, &query, 120, &serde_json::json!({ "exact": true })));
    let away: Vec<f32> = query.iter().map(|number| -number).collect();
    let mut edits: Vec<RecordEdit> = nearest[..60].iter().map(|id| delete(id)).collect();
    edits.extend(nearest[60..110].iter().map(|id| put(id, Some(away.clone()), None)));
    memory.commit(&who(), fork.branch(), edits).unwrap();
    let answer = ask(&memory, &fork, &query, 10, &plain());
    assert!(!answer.exact);
    assert_eq!(ids(&answer), nearest[110..]);
    let main = View::Branch(main_of(&memory));
    assert_eq!(ids(&ask(&memory, &main, &query, 60, &plain()))[..10], nearest[..10], "the parent is untouched");
}

/// With so few rows hidden a walk takes them for visible until it finds one among the best.
#[test]
fn a_few_hidden_rows_are_never_shown_and_change_nothing_else() {
    let (_disk, memory, fork) = store_with_graph();
    let main = View::Branch(main_of(&memory));
    let queries: Vec<Vec<f32>> = (0..8).map(|seed| Chance(2000 + seed).vector(DIM)).collect();
    let before: Vec<Vec<String>> = queries.iter().map(|query| ids(&ask(&memory, &main, query, 60, &plain()))).collect();
    // The nearest of the first query, the tenth of the second, the eleventh of the third, and so on.
    let hidden: Vec<&String> = [0, 9, 10, 11, 5, 20, 40, 2].iter().zip(&before).map(|(&at, ids)| &ids[at]).collect();
    let edits = hidden.iter().map(|id| delete(id)).collect();
    memory.commit(&who(), fork.branch(), edits).unwrap();
    for (query, before) in queries.iter().zip(&before) {
        let answer = ask(&memory, &fork, query, 10, &plain());
        assert!(!answer.exact);
        let left: Vec<String> = before.iter().filter(|id| !hidden.contains(id)).take(10).cloned().collect();
        assert_eq!(ids(&answer), left);
        assert_eq!(ids(&ask(&memory, &main, query, 10, &plain())), before[..10]);
    }
}

/// A walk that takes hidden rows for visible may find little else.
#[test]
fn hidden_rows_that_lie_together_leave_as_many_answers() {
    let (_disk, memory, fork) = store_with_graph();
    let query = Chance(2100).vector(DIM);
    let nearest = ids(&ask(&memory, &fork, &query, 50, &serde_json::json!({ "exact": true })));
    memory.commit(&who(), fork.branch(), nearest[..40].iter().map(|id| delete(id)).collect()).unwrap();
    let narrow = ask(&memory, &fork, &query, 10, &serde_json::json!({ "ef": 10 }));
    assert!(!narrow.exact);
    assert_eq!(narrow.hits.len(), 10);
    assert_eq!(ids(&ask(&memory, &fork, &query, 10, &plain())), nearest[40..]);
}

#[test]
fn a_chain_of_64_forks_is_walked_and_loses_nothing() {
    let (_disk, memory, fork) = store_with_graph();
    let mut chance = Chance(5);
    let mut at = fork.branch();
    for level in 0..64 {
        let edits = (0..10).map(|_| {
            let number = chance.below(ROWS + 500);
            if chance.one_in(4) { delete(&format!("r{number:05}")) } else { note(number, &mut chance) }
        });
        memory.commit(&who(), at, edits.collect()).unwrap();
        if level == 40 {
            memory.seal().unwrap();
        }
        at = memory.fork(&who(), at, "deeper", None).unwrap();
    }
    for settled in [false, true] {
        if settled {
            memory.seal().unwrap();
            memory.wait_until_indexed();
        }
        let (recall, walked) = recall(&memory, &View::Branch(at), &plain());
        assert!(walked && recall >= 0.99, "settled {settled}: walked {walked}, recall {recall}");
    }
}

/// A walk of a small graph follows what beats the large one's last candidate only: also where all
/// answers are in the small one, and its rows are met far from them.
#[test]
fn a_small_graph_beside_a_large_one_loses_nothing() {
    let (disk, memory, fork) = store_with_graph();
    let mut chance = Chance(6);
    let edits = (ROWS..ROWS + 2_000).map(|number| {
        let near = Chance(1000 + (number % 25) as u64).vector(DIM);
        let vector = near.iter().zip(chance.vector(DIM)).map(|(near, far)| near + 0.3 * far).collect();
        put(&format!("r{number:05}"), Some(if number % 3 == 0 { vector } else { chance.vector(DIM) }), None)
    });
    memory.commit(&who(), fork.branch(), edits.collect()).unwrap();
    memory.wait_until_indexed();
    assert_eq!(graphs(&disk).len(), 2);
    let (recall, walked) = recall(&memory, &fork, &plain());
    assert!(walked && recall >= 0.99, "walked {walked}, recall {recall}");
}

#[test]
fn loose_versions_answer_as_they_do_once_sealed() {
    let (_disk, memory, fork) = store_with_graph();
    let mut chance = Chance(7);
    for _ in 0..40 {
        let edits = (0..40).map(|_| {
            let number = chance.below(ROWS + 1000);
            if chance.one_in(4) { delete(&format!("r{number:05}")) } else { note(number, &mut chance) }
        });
        memory.commit(&who(), fork.branch(), edits.collect()).unwrap();
    }
    let filters = [1000, 500, 50, 5].map(|limit| serde_json::json!({ "bucket": { "$lt": limit } }));
    let asked = || -> Vec<Vec<(String, String)>> {
        let ask = |number: usize| {
            let more = serde_json::json!({ "exact": true, "filter": filters[number % filters.len()] });
            let answer = ask(&memory, &fork, &Chance(2000 + number as u64).vector(DIM), 10, &more);
            answer.hits.iter().map(|hit| (hit.id.to_string(), format!("{:?}", hit.score))).collect()
        };
        (0..80).map(ask).collect()
    };
    let unsealed = asked();
    memory.seal().unwrap();
    memory.wait_until_indexed();
    assert_eq!(asked(), unsealed);
}

#[test]
fn filters_of_every_selectivity_find_what_there_is() {
    let (_disk, memory, fork) = store_with_graph();
    for (limit, walks) in [(900, true), (500, false), (100, false), (10, false), (1, false)] {
        let filter = serde_json::json!({ "filter": { "bucket": { "$lt": limit } } });
        let (recall, walked) = recall(&memory, &fork, &filter);
        assert!(recall >= 0.99, "filter {limit}: recall {recall}");
        assert_eq!(walked, walks, "filter {limit}");
    }
}

#[test]
fn a_branch_that_sees_few_rows_of_a_large_segment_gets_all_it_has() {
    let (_disk, memory, fork) = store_with_graph();
    let gone = (0..ROWS).filter(|number| number % 1000 != 7).map(|number| delete(&format!("r{number:05}"))).collect();
    memory.commit(&who(), fork.branch(), gone).unwrap();
    let answer = ask(&memory, &fork, &Chance(3).vector(DIM), 100, &plain());
    assert_eq!((answer.hits.len(), answer.exact), (ROWS / 1000, true));
}

#[test]
fn small_segments_become_one_with_a_graph_once_they_have_the_rows_together() {
    let memory = open(&ForgetfulDisk::new());
    let (main, mut chance) = (main_of(&memory), Chance(1));
    let query = Chance(5).vector(DIM);
    // The least breadth, so that a walk costs less than a scan of 64 rows.
    let ask = || ask(&memory, &View::Branch(main), &query, 1, &serde_json::json!({ "ef": 1 })).exact;
    for (round, exact) in [(0, true), (1, true), (2, false), (3, false)] {
        let edits = (0..30).map(|number| note(round * 30 + number, &mut chance)).collect();
        memory.commit(&who(), main, edits).unwrap();
        memory.seal().unwrap();
        memory.wait_until_indexed();
        assert_eq!(ask(), exact, "after {} rows", (round + 1) * 30);
    }
    let (recall, _) = recall(&memory, &View::Branch(main), &plain());
    assert!(recall >= 0.99, "recall {recall}");
}

#[test]
fn what_an_import_brings_in_several_segments_gets_one_graph() {
    let disk = ForgetfulDisk::new();
    let around = Environment { graph_rows: 64, index_delay: Duration::from_millis(500), ..environment() };
    let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap();
    let mut chance = Chance(1);
    for batch in 0..3 {
        let edits = (0..2500).map(|number| note(batch * 2500 + number, &mut chance)).collect();
        memory.commit(&who(), main_of(&memory), edits).unwrap();
        memory.seal().unwrap();
    }
    memory.wait_until_indexed();
    let graphs = disk.list("segments").unwrap().iter().filter(|name| is_graph(&disk, name)).count();
    assert_eq!(graphs, 1);
    let (recall, walked) = recall(&memory, &View::Branch(main_of(&memory)), &plain());
    assert!(walked && recall >= 0.99, "recall {recall}");
}

#[test]
fn a_small_segment_gets_a_graph_beside_a_large_one_only() {
    let graph_rows = ROWS as u32;
    let commit = |memory: &Memory, branch, count: usize| {
        let mut chance = Chance(3);
        let edits = (0..count).map(|number| note(ROWS + number, &mut chance)).collect();
        memory.commit(&who(), branch, edits).unwrap();
        memory.seal().unwrap();
        memory.wait_until_indexed();
    };
    let alone = ForgetfulDisk::new();
    let memory = open_with(&alone, graph_rows);
    commit(&memory, main_of(&memory), 2500);
    assert_eq!(graphs(&alone).len(), 0);

    let (disk, memory, fork) = indexed_with(graph_rows);
    let few = memory.fork(&who(), main_of(&memory), "few", None).unwrap();
    commit(&memory, few, 1000);
    assert_eq!(graphs(&disk).len(), 1, "a scan of so few costs less");
    commit(&memory, fork.branch(), 2500);
    assert_eq!(graphs(&disk).len(), 2);
    let (recall, walked) = recall(&memory, &fork, &plain());
    assert!(walked && recall >= 0.99, "recall {recall}");
}

#[test]
fn a_store_that_is_left_alone_seals_its_edits_and_gives_them_a_graph() {
    let disk = ForgetfulDisk::new();
    let around = Environment { graph_rows: 64, idle_interval: Duration::from_millis(50), ..environment() };
    let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap();
    let mut chance = Chance(2);
    let edits = (0..3000).map(|number| note(number, &mut chance)).collect();
    memory.commit(&who(), main_of(&memory), edits).unwrap();
    let start = std::time::Instant::now();
    while graphs(&disk).is_empty() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(graphs(&disk).len(), 1, "nobody asked for a seal");
}

#[test]
fn a_graph_outlives_the_process_and_verify_reads_it() {
    let (disk, memory, fork) = store_with_graph();
    let before = ids(&ask(&memory, &fork, &Chance(4).vector(DIM), 10, &plain()));
    memory.close().unwrap();
    drop(memory);
    let again = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment()).unwrap();
    let answer = ask(&again, &fork, &Chance(4).vector(DIM), 10, &plain());
    assert!(!answer.exact, "the graph is there without being built");
    assert_eq!(ids(&answer), before);
    verify(&disk).unwrap();
}

#[test]
fn gc_keeps_the_graphs_of_what_lives_and_removes_the_others() {
    let (disk, memory, fork) = store_with_graph();
    memory.set(&who(), main_of(&memory), engramfs::memory::Setting::Keep, "0s").unwrap();
    memory.set(&who(), fork.branch(), engramfs::memory::Setting::Keep, "0s").unwrap();
    memory.gc(&who(), None, false).unwrap();
    assert_eq!(graphs(&disk).len(), 1);
    assert!(!ask(&memory, &fork, &Chance(4).vector(DIM), 10, &plain()).exact);
    let gone = (0..ROWS).map(|number| delete(&format!("r{number:05}"))).collect();
    memory.commit(&who(), main_of(&memory), gone).unwrap();
    memory.discard(&who(), fork.branch()).unwrap();
    memory.gc(&who(), None, false).unwrap();
    assert_eq!(graphs(&disk).len(), 0);
    memory.close().unwrap();
    verify(&disk).unwrap();
}

#[test]
fn a_store_that_is_closed_while_a_graph_is_built_goes_on_with_it_later() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    let mut chance = Chance(1);
    let edits = (0..ROWS).map(|number| note(number, &mut chance)).collect();
    memory.commit(&who(), main_of(&memory), edits).unwrap();
    let view = View::Branch(main_of(&memory));
    assert!(ask(&memory, &view, &chance.vector(DIM), 10, &plain()).exact, "answered at once, by scan");
    memory.close().unwrap();
    drop(memory);
    verify(&disk).unwrap();
    let memory = open(&disk);
    memory.wait_until_indexed();
    assert!(!ask(&memory, &view, &chance.vector(DIM), 10, &plain()).exact);
}

/// The power may fail between a graph's file and the manifest that is to name it.
#[test]
fn a_graph_that_no_manifest_names_is_removed_by_gc_or_built_again_as_it_was() {
    let (disk, mut chance) = (ForgetfulDisk::new(), Chance(3));
    let memory = open_with(&disk, u32::MAX);
    let edits = (0..200).map(|number| note(number, &mut chance)).collect();
    memory.commit(&who(), main_of(&memory), edits).unwrap();
    memory.close().unwrap();
    drop(memory);
    let cut = disk.power_cut_keep_all();
    let memory = open(&disk);
    memory.wait_until_indexed();
    memory.close().unwrap();
    let names = graphs(&disk);
    let [name] = &names[..] else { panic!("one graph, found {names:?}") };
    let path = format!("segments/{name}");
    cut.replace(&path, disk.bytes(&path).unwrap()).unwrap();
    verify(&cut).unwrap();
    let again = cut.power_cut_keep_all();
    let memory = open_with(&cut, u32::MAX);
    memory.gc(&who(), None, false).unwrap();
    assert_eq!(graphs(&cut), [""; 0]);
    let memory = open(&again);
    memory.wait_until_indexed();
    memory.gc(&who(), None, false).unwrap();
    assert_eq!(graphs(&again), names);
}

#[test]
fn a_damaged_graph_is_found_at_its_first_walk_and_never_walked() {
    let (disk, memory, fork) = store_with_graph();
    memory.close().unwrap();
    drop(memory);
    let graphs = graphs(&disk);
    let [graph] = &graphs[..] else { panic!("one graph, found {graphs:?}") };
    let file = disk.open_write(&format!("segments/{graph}")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 1000).unwrap();
    assert!(verify(&disk).is_err());
    let again = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment()).unwrap();
    let query = serde_json::json!({ "vector": Chance(4).vector(DIM), "k": 10 }).to_string();
    let error = again.query(&fork, &Query::parse(&query).unwrap()).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
}

/// Names of the files in the blob store that are whole and hold a graph.
fn graphs(disk: &ForgetfulDisk) -> Vec<String> {
    let mut names = disk.list("segments").unwrap();
    names.retain(|name| name.parse::<Hash>().is_ok() && is_graph(disk, name));
    names
}

/// The footer of a graph's file names its kind; a file that has just gone is none.
fn is_graph(disk: &ForgetfulDisk, name: &str) -> bool {
    let Ok(file) = disk.open(&format!("segments/{name}")) else { return false };
    let length = file.len().unwrap();
    let mut trailer = [0; 16];
    file.read_exact_at(&mut trailer, length - 16).unwrap();
    let footer = u64::from_le_bytes(trailer[..8].try_into().unwrap());
    let mut kind = [0];
    file.read_exact_at(&mut kind, length - 16 - footer).unwrap();
    kind[0] == 4
}

#[test]
fn status_counts_the_records_that_wait_for_no_graph() {
    let around = Environment { graph_rows: 64, index_delay: std::time::Duration::from_secs(3_600), ..environment() };
    let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
    let (main, mut chance) = (main_of(&memory), Chance(1));
    let told = |indexed: usize, rows: usize, building: bool| {
        let index = memory.status(&View::Branch(main)).unwrap()["index"].clone();
        let expected = (&indexed.into(), &rows.into(), &building.into());
        assert_eq!((&index["indexed"], &index["rows"], &index["building"]), expected);
    };
    memory.commit(&who(), main, (0..10).map(|number| note(number, &mut chance)).collect()).unwrap();
    told(10, 10, false);
    memory.commit(&who(), main, (10..ROWS).map(|number| note(number, &mut chance)).collect()).unwrap();
    told(10, ROWS, true);
    let (_disk, memory, fork) = store_with_graph();
    let index = memory.status(&fork).unwrap()["index"].clone();
    assert_eq!((&index["indexed"], &index["building"]), (&ROWS.into(), &false.into()));
}
