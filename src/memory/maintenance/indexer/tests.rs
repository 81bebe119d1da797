//! Power cuts while a graph that is half built is being kept, and what the next opening makes of it.

use std::collections::HashSet;

use super::*;
use crate::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use crate::memory::{Actor, Environment, OpenMode, RecordEdit, RecordInput, View, verify_on};
use crate::search::Query;

/// How many calls that change the disk it takes to keep a build: what was left of the last time is removed, a file made,
/// written, flushed and renamed.
const CALLS: u64 = 5;
const ROWS: u64 = 80;
const DIM: u64 = 4;

/// Numbers that look like chance.
fn vector(seed: u64) -> Vec<f32> {
    (0..DIM).map(|at| ((seed * DIM + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 8e6 - 1.0).collect()
}

fn who() -> Actor {
    Actor { uid: 0, gid: 0, name: "root".into() }
}

fn open(disk: &ForgetfulDisk, graph_rows: u32) -> Arc<Memory> {
    let (index_delay, idle_interval) = (Duration::ZERO, Duration::from_secs(3600));
    let around = Environment { graph_rows, index_delay, idle_interval, reserve_bytes: 0, ..Environment::real(who()) };
    Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap()
}

/// A store of sealed records for which nobody has built a graph yet.
fn without_a_graph() -> ForgetfulDisk {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk, u32::MAX);
    let put = |number: u64| {
        let input = RecordInput { vector: Some(vector(number).into()), text: None, metadata: "{}".into() };
        RecordEdit::Put { id: format!("r{number:03}").into(), input }
    };
    memory.commit(&who(), memory.root("main").unwrap(), (0..ROWS).map(put).collect()).unwrap();
    memory.close().unwrap();
    disk
}

fn segment(memory: &Memory) -> Arc<Segment> {
    let catalog = memory.catalog().clone();
    let layers = catalog.branch(memory.root("main").unwrap()).unwrap().state.layers();
    assert_eq!(layers.len(), 1);
    layers[0].segment.clone()
}

/// Builds the graph of a store until it is told to stop, which is at once; at the `nth` call that changes the disk while
/// that is kept the power fails.
fn stopped(store: &ForgetfulDisk, nth: u64) -> ForgetfulDisk {
    let faulty = FaultyDisk::new(store.power_cut_keep_all());
    let memory = open(faulty.inner(), u32::MAX);
    let (task, indexer) = (GraphTask { segment: segment(&memory), metric: Metric::Cosine }, Indexer::default());
    indexer.stop();
    faulty.plan(Fault { sticky: true, short_write: true, ..Fault::once(nth, DiskCall::CHANGES, libc::EIO) });
    assert!(build(&faulty, &task, &indexer, || false).unwrap().is_none());
    assert!(nth <= CALLS || faulty.calls() == CALLS, "{}", faulty.calls());
    faulty.inner().clone()
}

/// What becomes of a store whose graph is built.
#[derive(Clone, PartialEq)]
struct BuiltGraph {
    /// The hash of what is in the graph.
    graph: Hash,
    /// Files that are left of the build.
    left: Vec<String>,
    /// Answers by walking the graph.
    answers: Vec<String>,
    /// How often the build told of its progress: once less where it began with the steps that were kept.
    change_count: u64,
}

fn built_graph(disk: &ForgetfulDisk) -> BuiltGraph {
    let memory = open(disk, 64);
    memory.wait_until_indexed();
    let change_count = memory.maintenance.indexer.change_count();
    let graph = segment(&memory).graph(Metric::Cosine).unwrap().name();
    let ask = |seed: u64| {
        let query = serde_json::json!({ "vector": vector(1000 + seed), "k": 1, "ef": 1 }).to_string();
        let answer = memory.query(&View::Branch(memory.root("main").unwrap()), &Query::parse(&query).unwrap()).unwrap();
        assert!(!answer.exact, "the graph is walked");
        answer.hits.iter().map(|hit| format!("{} {:?}", hit.id, hit.score)).collect()
    };
    let answers = (0..20).map(ask).collect::<Vec<Vec<String>>>().concat();
    memory.close().unwrap();
    verify_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &Default::default()).unwrap();
    let left = disk.files().into_iter().map(|(path, _)| path).filter(|path| path.contains(".part")).collect();
    BuiltGraph { graph, left, answers, change_count }
}

#[test]
fn a_power_cut_while_an_unfinished_graph_is_kept_ends_in_the_same_graph() {
    let store = without_a_graph();
    let whole = built_graph(&store.power_cut_keep_all());
    assert_eq!(whole.left, [""; 0]);
    let mut outcomes = HashMap::new();
    for nth in 1..=CALLS + 1 {
        let disk = stopped(&store, nth);
        for cut in [disk.power_cut_keep_nothing(), disk.power_cut_keep_all(), disk.power_cut(nth)] {
            verify_on(&(Arc::new(cut.clone()) as Arc<dyn Disk>), &Default::default()).unwrap();
            let left = [unfinished_graph::PATH, unfinished_graph::NEW_PATH].map(|path| cut.bytes(path).ok());
            outcomes.insert(left, (nth, cut));
        }
    }
    let kept: HashSet<bool> = outcomes.keys().map(|left| left[0].is_some()).collect();
    assert_eq!(kept.len(), 2, "with and without a build that is kept");
    for (left, (nth, cut)) in &outcomes {
        let change_count = whole.change_count - u64::from(left[0].is_some());
        assert!(built_graph(cut) == BuiltGraph { change_count, ..whole.clone() }, "call {nth}");
    }
}

/// The control: a file that is not what was written is reported by `verify`, and never built on.
#[test]
fn an_unfinished_graph_that_was_damaged_is_built_anew() {
    let store = without_a_graph();
    let whole = built_graph(&store.power_cut_keep_all());
    let disk = stopped(&store, CALLS + 1);
    let length = disk.bytes(unfinished_graph::PATH).unwrap().len() as u64;
    for at in [8, length / 2, length - 1] {
        let damaged = disk.power_cut_keep_all();
        damaged.flip(unfinished_graph::PATH, at, 1).unwrap();
        let found = verify_on(&(Arc::new(damaged.clone()) as Arc<dyn Disk>), &Default::default());
        assert!(found.unwrap_err().to_string().contains(unfinished_graph::PATH));
        assert!(built_graph(&damaged) == whole, "byte {at}");
    }
}
