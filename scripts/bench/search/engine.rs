//! What answers queries in this process: our own memory, and hnsw_rs as it comes.

use std::path::Path;
use std::sync::Arc;

use engramfs::memory::{Memory, Query, View};
use engramfs::search::Filter;
use hnsw_rs::prelude::{AnnT, DistCosine, Hnsw, HnswIo};

use super::K;
use super::corpus::{Corpus, dot};
use super::curve::Truth;
use crate::{cpu_seconds, micros};

/// The ids and scores that answer one query, best first.
pub type Found = Vec<(Arc<str>, f32)>;

/// Something that answers all queries of a corpus.
pub trait Engine {
    fn name(&self) -> &str;

    /// Answers all queries once, searching so broadly; returns CPU
    /// microseconds a query, and the answers. Time that the machine gave to others does not count.
    fn pass(&mut self, ef: Option<usize>) -> (f64, Vec<Found>);
}

/// A view of our own memory.
pub struct Ours<'a> {
    name: String,
    memory: &'a Memory,
    view: View,
    queries: Vec<Query>,
}

impl<'a> Ours<'a> {
    pub fn new(name: &str, memory: &'a Memory, view: View, corpus: &Corpus, filter: Option<&Filter>) -> Ours<'a> {
        let query = |vector: &Vec<f32>| Query {
            vector: Some(vector.clone()),
            text: None,
            k: K,
            filter: filter.cloned(),
            timeout_ms: 600_000,
            ..Query::from_text("a bench").unwrap()
        };
        Ours { name: name.to_owned(), memory, view, queries: corpus.queries.iter().map(query).collect() }
    }

    /// Scans for the exact answers.
    pub fn truth(&mut self) -> Truth {
        self.queries.iter_mut().for_each(|query| query.exact = true);
        let (_, answers) = self.pass(None);
        self.queries.iter_mut().for_each(|query| query.exact = false);
        Truth(answers)
    }

    /// Asks the first query alone; returns microseconds.
    pub fn first(&self) -> f64 {
        micros(|| drop(self.memory.query(&self.view, &self.queries[0]).unwrap()))
    }

    /// Returns how many answers call themselves exact with default settings.
    pub fn exact(&self) -> usize {
        let exact = |query: &&Query| self.memory.query(&self.view, query).unwrap().exact;
        self.queries.iter().filter(exact).count()
    }
}

impl Engine for Ours<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn pass(&mut self, ef: Option<usize>) -> (f64, Vec<Found>) {
        self.queries.iter_mut().for_each(|query| query.ef = ef);
        let mut answers = Vec::with_capacity(self.queries.len());
        let us = thread_micros(|| {
            for query in &self.queries {
                answers.push(self.memory.query(&self.view, query).unwrap().hits);
            }
        });
        let found = |hit: engramfs::search::Hit| (hit.id, hit.score.value() as f32);
        (
            us / self.queries.len() as f64,
            answers.into_iter().map(|hits| hits.into_iter().map(found).collect()).collect(),
        )
    }
}

/// hnsw_rs with its own cosine distance.
pub struct HnswRs<'a> {
    graph: Hnsw<'static, f32, DistCosine>,
    corpus: &'a Corpus,
    pub build_cpu_s: f64,
}

impl<'a> HnswRs<'a> {
    /// Builds the graph on one thread, or reads the one that an earlier run left in the folder.
    pub fn new(corpus: &'a Corpus, folder: &Path) -> HnswRs<'a> {
        let built = folder.join("hnsw_rs.cpu");
        if let Ok(seconds) = std::fs::read_to_string(&built) {
            // What was read borrows from its reader: both stay until the end of the process.
            let reader = Box::leak(Box::new(HnswIo::new(folder, "hnsw_rs")));
            return HnswRs { graph: reader.load_hnsw().unwrap(), corpus, build_cpu_s: seconds.parse().unwrap() };
        }
        let graph = Hnsw::new(16, corpus.rows(), 16, 200, DistCosine);
        let before = cpu_seconds();
        (0..corpus.rows()).for_each(|row| graph.insert_slice((corpus.vector(row), row)));
        let build_cpu_s = cpu_seconds() - before;
        graph.file_dump(folder, "hnsw_rs").unwrap();
        std::fs::write(&built, build_cpu_s.to_string()).unwrap();
        HnswRs { graph, corpus, build_cpu_s }
    }
}

impl Engine for HnswRs<'_> {
    fn name(&self) -> &str {
        "hnsw_rs"
    }

    fn pass(&mut self, ef: Option<usize>) -> (f64, Vec<Found>) {
        let mut answers = Vec::with_capacity(self.corpus.queries.len());
        let us = thread_micros(|| {
            for query in &self.corpus.queries {
                answers.push(self.graph.search(query, K, ef.unwrap_or(64)));
            }
        });
        let us = us / answers.len() as f64;
        let ids = |hits: Vec<hnsw_rs::prelude::Neighbour>| hits.iter().map(|hit| hit.d_id).collect::<Vec<_>>();
        (us, scored(self.corpus, &answers.into_iter().map(ids).collect::<Vec<_>>()))
    }
}

/// Runs `work` and returns the CPU microseconds that this thread spent on it.
pub fn thread_micros(work: impl FnOnce()) -> f64 {
    let before = thread_seconds();
    work();
    (thread_seconds() - before) * 1e6
}

fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec that nothing else uses, and the call only writes to it.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "every Linux has the clock of a thread");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns what row numbers stand for, with their true scores.
pub fn scored(corpus: &Corpus, answers: &[Vec<usize>]) -> Vec<Found> {
    let found = |query: &[f32], row: usize| (corpus.names[row].clone(), dot(query, corpus.vector(row)));
    let each = |(query, rows): (&Vec<f32>, &Vec<usize>)| rows.iter().map(|row| found(query, *row)).collect();
    corpus.queries.iter().zip(answers).map(each).collect()
}
