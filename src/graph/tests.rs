//! The graph over small made-up rows, and over real embeddings where they are at hand.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::layout::freeze;
use super::*;
use crate::vector::{Metric, Prepared, norm};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Vectors one after the other.
pub(super) struct Flat {
    pub dim: usize,
    pub values: Vec<f32>,
}

impl Rows for Flat {
    fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    fn vector(&self, row: u32) -> &[f32] {
        &self.values[row as usize * self.dim..][..self.dim]
    }
}

impl Flat {
    /// Rows that lie about some centres, with numbers from a small generator.
    fn clustered(count: usize, dim: usize, seed: u64) -> Self {
        let mut state = seed;
        let mut unit = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
        };
        let centres: Vec<f32> = (0..16 * dim).map(|_| unit()).collect();
        let value = |i: usize| centres[(i / dim * 7 % 16) * dim + i % dim] + 0.5 * unit();
        Self { dim, values: (0..count * dim).map(value).collect() }
    }

    /// Returns the rows as a question sees them whose vector is given.
    fn seen_by(&self, metric: Metric, vector: &[f32], visible: fn(u32) -> bool) -> Seen<'_> {
        Seen { rows: self, question: Prepared::new(metric, vector.to_vec()), visible }
    }

    /// Returns the `k` best visible rows by looking at all.
    fn exact(&self, seen: &Seen<'_>, k: usize) -> Vec<u32> {
        let visible = (0..self.len() as u32).filter(|&row| seen.is_visible(row));
        let mut all: Vec<(f32, u32)> = visible.map(|row| (seen.estimate(row), row)).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        all.into_iter().take(k).map(|(_, row)| row).collect()
    }
}

/// Rows under a question, estimated by their true score.
struct Seen<'a> {
    rows: &'a Flat,
    question: Prepared,
    visible: fn(u32) -> bool,
}

impl View for Seen<'_> {
    fn estimate(&self, row: u32) -> f32 {
        let vector = self.rows.vector(row);
        self.question.score(vector, norm(vector))
    }

    fn is_visible(&self, row: u32) -> bool {
        (self.visible)(row)
    }
}

fn built(rows: &Flat, metric: Metric) -> Vec<u8> {
    build(rows, metric, Params::default(), &|_| true).unwrap()
}

fn walked(graph: &Graph<impl AsRef<[u8]>>, seen: &Seen<'_>, ef: usize) -> Vec<u32> {
    let mut found = Vec::new();
    graph.walk(seen, ef, &mut found, &mut Scratch::default());
    found.into_iter().map(|(_, row)| row).collect()
}

#[test]
fn most_true_neighbours_are_found_under_every_metric() {
    let rows = Flat::clustered(500, 24, 1);
    for metric in Metric::ALL {
        let graph = Graph::open(built(&rows, metric)).unwrap();
        let mut hits = 0;
        for row in (0..500).step_by(5) {
            let question: Vec<f32> = rows.vector(row).iter().map(|x| x + 0.05).collect();
            let seen = rows.seen_by(metric, &question, |_| true);
            let found = walked(&graph, &seen, 64);
            hits += rows.exact(&seen, 10).iter().filter(|row| found[..10].contains(row)).count();
        }
        assert!(hits >= 980, "{metric}: {hits} of 1000");
    }
}

#[test]
fn every_row_finds_itself() {
    let rows = Flat::clustered(500, 16, 2);
    for metric in [Metric::Cosine, Metric::L2] {
        let graph = Graph::open(built(&rows, metric)).unwrap();
        for row in 0..500 {
            let seen = rows.seen_by(metric, rows.vector(row), |_| true);
            assert_eq!(walked(&graph, &seen, 64)[0], row, "{metric}");
        }
    }
}

#[test]
fn answers_come_best_first_and_equal_rows_by_number() {
    let rows = Flat { dim: 2, values: [[1.0, 0.0], [0.0, 1.0]].concat().repeat(20) };
    let graph = Graph::open(built(&rows, Metric::Cosine)).unwrap();
    let seen = rows.seen_by(Metric::Cosine, &[1.0, 0.1], |_| true);
    let expected: Vec<u32> = (0..20).map(|i| i * 2).chain((0..20).map(|i| i * 2 + 1)).collect();
    assert_eq!(walked(&graph, &seen, 40), expected);
}

#[test]
fn crowds_of_equal_rows_strand_nobody() {
    // A builder drops links to and from a crowd of equals; mending must bring all back.
    let mut rows = Flat::clustered(300, 8, 3);
    let crowd = rows.vector(5).to_vec();
    for row in (0..300).filter(|row| row % 3 == 0) {
        rows.values[row * 8..][..8].copy_from_slice(&crowd);
    }
    for metric in Metric::ALL {
        let graph = Graph::open(built(&rows, metric)).unwrap();
        for question in [5, 7, 100] {
            let seen = rows.seen_by(metric, rows.vector(question), |_| true);
            let mut found = walked(&graph, &seen, 300);
            found.sort_unstable();
            assert!(found.into_iter().eq(0..300), "{metric}: a walk with room for all finds all");
        }
    }
}

#[test]
fn rows_without_any_link_are_mended() {
    use super::adjacency::{Adjacency, Level};
    let rows = Flat::clustered(50, 4, 4);
    let level = Level { members: (0..50).collect(), lists: vec![Vec::new(); 50] };
    let mut bare = Adjacency { levels: vec![level], entry: 0 };
    let norms: Vec<f32> = (0..50).map(|row| norm(rows.vector(row))).collect();
    let params = Params { m: 2, ..Params::default() };
    let mender = mend::Mender { rows: &rows, norms: &norms, metric: Metric::L2, params };
    mender.mend(&mut bare, &|| true).unwrap();
    let graph = Graph::open(freeze(&bare)).unwrap();
    for question in 0..50 {
        let seen = rows.seen_by(Metric::L2, rows.vector(question), |_| true);
        assert_eq!(walked(&graph, &seen, 50).len(), 50);
    }
}

#[test]
fn hidden_rows_are_never_returned_and_visible_ones_still_fill_the_answer() {
    let rows = Flat::clustered(600, 16, 5);
    let graph = Graph::open(built(&rows, Metric::Cosine)).unwrap();
    for (visible, ef) in [(tenth as fn(u32) -> bool, 20), (only_three, 20), (nobody, 20)] {
        for row in (0..600).step_by(60) {
            let seen = rows.seen_by(Metric::Cosine, rows.vector(row), visible);
            let found = walked(&graph, &seen, ef);
            assert!(found.iter().all(|&row| visible(row)));
            assert_eq!(found.len(), ef.min((0..600).filter(|&row| visible(row)).count()));
            let truth = rows.exact(&seen, 10);
            let hits = truth.iter().filter(|row| found.contains(row)).count();
            assert!(hits + 1 >= truth.len(), "{hits} of {}", truth.len());
        }
    }
}

fn tenth(row: u32) -> bool {
    row % 10 == 3
}

fn only_three(row: u32) -> bool {
    row < 3
}

fn nobody(_: u32) -> bool {
    false
}

#[test]
fn none_one_and_two_rows_make_a_graph() {
    for count in 0..=2 {
        let rows = Flat { dim: 3, values: vec![1.0; count * 3] };
        let graph = Graph::open(built(&rows, Metric::Cosine)).unwrap();
        let seen = rows.seen_by(Metric::Cosine, &[1.0; 3], |_| true);
        assert_eq!(walked(&graph, &seen, 10), (0..count as u32).collect::<Vec<_>>());
        assert!(walked(&graph, &seen, 0).is_empty());
    }
}

#[test]
fn vectors_beyond_what_f32_can_square_are_built_over_and_found() {
    for size in [1e-40, 1e-25, 1e25, 1e38] {
        let mut rows = Flat::clustered(100, 4, 6);
        rows.values.iter_mut().for_each(|x| *x *= size);
        for metric in Metric::ALL {
            let graph = Graph::open(built(&rows, metric)).unwrap();
            let seen = rows.seen_by(metric, rows.vector(9), |_| true);
            assert_eq!(walked(&graph, &seen, 100).len(), 100);
        }
    }
}

#[test]
fn one_thread_builds_the_same_bytes_again_and_two_build_a_good_graph() {
    let rows = Flat::clustered(300, 12, 7);
    assert!(built(&rows, Metric::L2) == built(&rows, Metric::L2));
    let params = Params { threads: 2, ..Params::default() };
    let graph = Graph::open(build(&rows, Metric::L2, params, &|_| true).unwrap()).unwrap();
    for row in 0..300 {
        let seen = rows.seen_by(Metric::L2, rows.vector(row), |_| true);
        assert_eq!(walked(&graph, &seen, 64)[0], row);
    }
}

#[test]
fn progress_counts_up_to_all_rows_and_can_stop_the_work() {
    let rows = Flat::clustered(500, 8, 8);
    let most = AtomicUsize::new(0);
    let watch = |done: usize| most.fetch_max(done, Ordering::Relaxed) < usize::MAX;
    assert!(build(&rows, Metric::Cosine, Params::default(), &watch).is_some());
    assert_eq!(most.into_inner(), 500);
    assert_eq!(build(&rows, Metric::Cosine, Params::default(), &|done| done < 200), None);
}

#[test]
fn bytes_that_are_no_graph_are_refused_with_the_reason() {
    let bytes = built(&Flat::clustered(100, 4, 9), Metric::L2);
    assert!(bytes.len().is_multiple_of(64));
    assert_eq!(Graph::open(&bytes[..100]).unwrap_err(), GraphError::NotAGraph);
    assert_eq!(Graph::open(&bytes[1..]).unwrap_err(), GraphError::NotAGraph);
    let cut = Graph::open(&bytes[..bytes.len() - 1]).unwrap_err();
    assert_eq!(cut, GraphError::Damaged("number of bytes"));
    let mut newer = bytes.clone();
    newer[8] = 9;
    assert_eq!(Graph::open(newer).unwrap_err(), GraphError::Newer(9));
}

#[test]
fn a_flipped_byte_never_panics_nor_hangs() {
    let rows = Flat::clustered(60, 4, 10);
    let bytes = built(&rows, Metric::Cosine);
    let seen = rows.seen_by(Metric::Cosine, rows.vector(1), |_| true);
    let mut scratch = Scratch::default();
    let mut found = Vec::new();
    for at in 0..bytes.len() {
        for mask in [0x01, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= mask;
            let Ok(graph) = Graph::open(damaged) else {
                continue;
            };
            graph.walk(&seen, 60, &mut found, &mut scratch);
            assert!(found.len() <= 60 && found.iter().all(|&(_, row)| row < 60));
        }
    }
}

#[test]
fn random_lists_never_panic_nor_hang() {
    let rows = Flat::clustered(300, 4, 11);
    let bytes = built(&rows, Metric::Cosine);
    let seen = rows.seen_by(Metric::Cosine, rows.vector(1), |_| true);
    let mut state = 1_u64;
    for _ in 0..50 {
        let mut damaged = bytes.clone();
        for byte in &mut damaged[192..] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if state >> 61 == 0 {
                *byte = (state >> 40) as u8;
            }
        }
        let found = walked(&Graph::open(damaged).unwrap(), &seen, 300);
        assert!(found.iter().all(|&row| row < 300));
    }
}
