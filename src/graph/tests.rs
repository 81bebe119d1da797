//! The graph over small made-up rows.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::vector::{Metric, PreparedVector, norm, quantize};

/// Vectors one after the other, with their compact columns.
pub(super) struct Flat {
    pub dim: usize,
    pub values: Vec<f32>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    norms: Vec<f32>,
}

impl Flat {
    pub(super) fn new(dim: usize, values: Vec<f32>) -> Self {
        let mut codes = vec![0; values.len()];
        let places = values.chunks(dim).zip(codes.chunks_mut(dim));
        let scales = places.map(|(vector, code)| quantize(vector, code).0).collect();
        let norms = values.chunks(dim).map(norm).collect();
        Self { dim, values, codes, scales, norms }
    }

    /// Rows that lie about some centres, with numbers from a small generator.
    fn clustered(count: usize, dim: usize, seed: u64) -> Self {
        let mut state = seed;
        let mut unit = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
        };
        let centres: Vec<f32> = (0..16 * dim).map(|_| unit()).collect();
        let value = |i: usize| centres[(i / dim * 7 % 16) * dim + i % dim] + 0.5 * unit();
        Self::new(dim, (0..count * dim).map(value).collect())
    }

    /// Takes the vectors of some rows away.
    fn without(mut self, lacks: fn(usize) -> bool) -> Self {
        for (row, norm) in self.norms.iter_mut().enumerate().filter(|&(row, _)| lacks(row)) {
            *norm = -1.0;
            self.scales[row] = 0.0;
        }
        self
    }

    pub(super) fn len(&self) -> usize {
        self.norms.len()
    }

    pub(super) fn rows(&self) -> VectorRows<'_> {
        VectorRows { dim: self.dim, codes: &self.codes, scales: &self.scales, norms: &self.norms }
    }

    pub(super) fn vector(&self, row: u32) -> &[f32] {
        &self.values[row as usize * self.dim..][..self.dim]
    }

    fn built(&self, metric: Metric) -> Vec<u8> {
        build(self.rows(), metric, Params::default(), &mut |_, _| true).unwrap()
    }

    /// Ranks rows by true score.
    pub(super) fn ranked(&self, query: &PreparedVector, rows: impl Iterator<Item = u32>) -> Vec<u32> {
        let score = |row: u32| query.score(self.vector(row), self.norms[row as usize]);
        let mut ranked: Vec<(f32, u32)> = rows.map(|row| (score(row), row)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.into_iter().map(|(_, row)| row).collect()
    }

    /// Walks, and ranks what is found by true score.
    pub(super) fn answers(&self, graph: &Graph<Vec<u8>>, query: &[f32], ef: usize) -> Vec<u32> {
        let query = PreparedVector::new(graph.metric(), query.to_vec());
        self.ranked(&query, walked(graph, &query, |_| true, ef).into_iter())
    }
}

fn walked(graph: &Graph<Vec<u8>>, query: &PreparedVector, visible: fn(u32) -> bool, ef: usize) -> Vec<u32> {
    let mut found = Vec::new();
    graph.walk(query, Some(visible), Beam::new(ef), &mut found, &mut WalkScratch::default());
    assert!(found.is_sorted_by(|a, b| a.0 > b.0 || (a.0 == b.0 && a.1 < b.1)), "best first, then by row");
    found.into_iter().map(|(_, row)| row).collect()
}

#[test]
fn most_true_neighbours_are_found_under_every_metric() {
    let rows = Flat::clustered(500, 24, 1);
    for metric in Metric::ALL {
        let graph = Graph::open(rows.built(metric)).unwrap();
        let mut hits = 0;
        for row in (0..500).step_by(5) {
            let query: Vec<f32> = rows.vector(row).iter().map(|x| x + 0.05).collect();
            let found = rows.answers(&graph, &query, 64);
            let truth = rows.ranked(&PreparedVector::new(metric, query), 0..500);
            hits += truth[..10].iter().filter(|row| found[..10].contains(row)).count();
        }
        assert!(hits >= 980, "{metric}: {hits} of 1000");
    }
}

#[test]
fn a_floor_spares_what_lies_below_it_and_nothing_above() {
    let rows = Flat::clustered(2000, 24, 12);
    let (least, ef) = (16, 64);
    for metric in Metric::ALL {
        let graph = Graph::open(rows.built(metric)).unwrap();
        let (mut full, mut spared, mut scratch) = (Vec::new(), Vec::new(), WalkScratch::default());
        let (mut wanted, mut hits) = (0, 0);
        for row in (0..2000).step_by(20) {
            let query = PreparedVector::new(metric, rows.vector(row).iter().map(|x| x + 0.05).collect());
            let visible = |row: u32| !row.is_multiple_of(3);
            graph.walk(&query, Some(visible), Beam::new(ef), &mut full, &mut scratch);
            for above in [0, 10, 40] {
                let beam = Beam { kept_min: least, floor: full[above].0, ..Beam::new(ef) };
                graph.walk(&query, Some(visible), beam, &mut spared, &mut scratch);
                let below = spared.iter().filter(|found| found.0 < beam.floor).count();
                assert!(spared.len() >= least && spared.len() <= ef && below <= least, "{metric}");
                wanted += above + 1;
                hits += full[..=above].iter().filter(|found| spared.contains(found)).count();
            }
        }
        assert!(hits * 100 >= wanted * 99, "{metric}: {hits} of {wanted}");
    }
}

#[test]
fn a_rising_floor_spares_what_lies_farther_off_and_finds_as_much() {
    let rows = Flat::clustered(2000, 24, 13);
    let (k, least, most) = (10, 16, 200);
    for metric in [Metric::Cosine, Metric::L2] {
        let graph = Graph::open(rows.built(metric)).unwrap();
        let (mut found, mut scratch) = (Vec::new(), WalkScratch::default());
        let (mut hits, mut kept) = (0, 0);
        for row in (0..2000).step_by(20) {
            let query = PreparedVector::new(metric, rows.vector(row).iter().map(|x| x + 0.05).collect());
            let visible = |row: u32| !row.is_multiple_of(3);
            let beam = Beam { kept_min: least, slack: Some(Slack { k, times: 1.1 }), ..Beam::new(most) };
            let floor = graph.walk(&query, Some(visible), beam, &mut found, &mut scratch);
            assert!(
                floor <= query.coarse_query().score_at_distance_times(found[k - 1].0, 1.1) || found.len() == most,
                "{metric}"
            );
            assert!(found.len() >= least && found.iter().filter(|found| found.0 < floor).count() <= least, "{metric}");
            kept += found.len();
            let found = rows.ranked(&query, found.iter().map(|found| found.1));
            let truth = rows.ranked(&query, (0..2000).filter(|&row| visible(row)));
            hits += truth[..k].iter().filter(|row| found[..k].contains(row)).count();
        }
        assert!(hits >= 990, "{metric}: {hits} of 1000");
        assert!(kept < 100 * most / 4, "{metric}: {kept} kept");
    }
}

#[test]
fn a_rising_floor_never_keeps_fewer_than_are_visible_and_wanted() {
    let rows = Flat::clustered(600, 16, 14);
    for metric in Metric::ALL {
        let graph = Graph::open(rows.built(metric)).unwrap();
        let (mut found, mut scratch) = (Vec::new(), WalkScratch::default());
        for (k, every) in [(1, 7), (10, 7), (40, 7), (200, 7), (10, 600)] {
            let visible = |row: u32| row.is_multiple_of(every);
            let seen = 600_usize.div_ceil(every as usize);
            let slack = Some(Slack { k, times: 1.0 });
            for row in [0, 77, 500] {
                let query = PreparedVector::new(metric, rows.vector(row).to_vec());
                let beam = Beam { kept_min: k, slack, ..Beam::new(3 * k) };
                graph.walk(&query, Some(visible), beam, &mut found, &mut scratch);
                assert!(found.len() >= k.min(seen), "{metric}: {} for {k} of {seen}", found.len());
                assert!(found.iter().all(|found| visible(found.1)));
            }
        }
    }
}

#[test]
fn every_row_finds_itself() {
    let rows = Flat::clustered(500, 16, 2);
    for metric in [Metric::Cosine, Metric::L2] {
        let graph = Graph::open(rows.built(metric)).unwrap();
        for row in 0..500 {
            assert_eq!(rows.answers(&graph, rows.vector(row), 64)[0], row, "{metric}");
        }
    }
}

#[test]
fn equal_rows_come_by_number() {
    let rows = Flat::new(2, [[1.0, 0.0], [0.0, 1.0]].concat().repeat(20));
    let graph = Graph::open(rows.built(Metric::Cosine)).unwrap();
    let query = PreparedVector::new(Metric::Cosine, vec![1.0, 0.1]);
    let expected: Vec<u32> = (0..20).map(|i| i * 2).chain((0..20).map(|i| i * 2 + 1)).collect();
    assert_eq!(walked(&graph, &query, |_| true, 40), expected);
}

#[test]
fn crowds_of_equal_rows_strand_nobody() {
    // Building drops links to and from a crowd of equals; repairs must bring all back.
    let mut rows = Flat::clustered(700, 8, 3);
    let crowd = rows.vector(5).to_vec();
    for share in [3, 30, 1] {
        for row in (0..700).filter(|row| row % share == 0) {
            rows.values[row * 8..][..8].copy_from_slice(&crowd);
        }
        let rows = Flat::new(8, rows.values.clone());
        for metric in Metric::ALL {
            let graph = Graph::open(rows.built(metric)).unwrap();
            for query in [5, 7, 100] {
                let query = PreparedVector::new(metric, rows.vector(query).to_vec());
                let mut found = walked(&graph, &query, |_| true, 700);
                found.sort_unstable();
                assert!(found.into_iter().eq(0..700), "{metric}: a walk with room for all finds all");
            }
        }
    }
}

#[test]
fn nodes_without_any_link_are_repaired() {
    let rows = Flat::clustered(200, 4, 4);
    let params = Params { links: 4, ef: 4, passes: 1 };
    let mut builder = GraphBuilder::new(rows.rows(), Metric::L2, params);
    builder.step(usize::MAX);
    for node in 0..200 {
        builder.growing.set_list(node, &[]);
    }
    let graph = Graph::open(builder.finish()).unwrap();
    for query in 0..200 {
        assert_eq!(rows.answers(&graph, rows.vector(query), 200).len(), 200);
    }
}

#[test]
fn hidden_rows_are_never_returned_and_visible_ones_still_fill_the_answer() {
    let rows = Flat::clustered(600, 16, 5);
    let graph = Graph::open(rows.built(Metric::Cosine)).unwrap();
    for visible in [tenth as fn(u32) -> bool, only_three, nobody] {
        for row in (0..600).step_by(60) {
            let query = PreparedVector::new(Metric::Cosine, rows.vector(row).to_vec());
            let found = walked(&graph, &query, visible, 20);
            assert!(found.iter().all(|&row| visible(row)));
            assert_eq!(found.len(), 20.min((0..600).filter(|&row| visible(row)).count()));
            let truth = rows.ranked(&query, (0..600).filter(|&row| visible(row)));
            let hits = truth.iter().take(10).filter(|row| found.contains(row)).count();
            assert!(hits + 1 >= truth.len().min(10), "{hits} of {}", truth.len());
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
fn rows_without_a_vector_are_left_out() {
    let rows = Flat::clustered(300, 8, 12).without(|row| row % 3 == 0);
    for metric in Metric::ALL {
        let graph = Graph::open(rows.built(metric)).unwrap();
        assert_eq!((graph.rows(), graph.nodes()), (300, 200));
        let mut found = rows.answers(&graph, rows.vector(0), 300);
        found.sort_unstable();
        assert!(found.into_iter().eq((0..300).filter(|row| row % 3 != 0)), "{metric}");
    }
    let bare = Flat::clustered(50, 8, 12).without(|_| true);
    let graph = Graph::open(bare.built(Metric::L2)).unwrap();
    assert!(bare.answers(&graph, bare.vector(0), 10).is_empty());
}

#[test]
fn none_one_and_two_rows_make_a_graph() {
    for count in 0..=2 {
        let rows = Flat::new(3, vec![1.0; count * 3]);
        let graph = Graph::open(rows.built(Metric::Cosine)).unwrap();
        let query = PreparedVector::new(Metric::Cosine, vec![1.0; 3]);
        assert_eq!(walked(&graph, &query, |_| true, 10), (0..count as u32).collect::<Vec<_>>());
        assert!(walked(&graph, &query, |_| true, 0).is_empty());
    }
    let none = VectorRows { dim: 0, codes: &[], scales: &[], norms: &[] };
    assert!(Graph::open(build(none, Metric::Dot, Params::default(), &mut |_, _| true).unwrap()).is_ok());
}

#[test]
fn queries_of_another_dimension_or_metric_find_nothing() {
    let rows = Flat::clustered(100, 4, 13);
    let graph = Graph::open(rows.built(Metric::Cosine)).unwrap();
    assert!(walked(&graph, &PreparedVector::new(Metric::L2, vec![1.0; 4]), |_| true, 10).is_empty());
    assert!(walked(&graph, &PreparedVector::new(Metric::Cosine, vec![1.0; 5]), |_| true, 10).is_empty());
}

#[test]
fn vectors_beyond_what_f32_can_square_are_built_over_and_found() {
    for size in [1e-40, 1e-25, 1e25, 1e38] {
        let rows = Flat::clustered(100, 4, 6);
        let rows = Flat::new(4, rows.values.iter().map(|x| x * size).collect());
        for metric in Metric::ALL {
            let graph = Graph::open(rows.built(metric)).unwrap();
            assert_eq!(rows.answers(&graph, rows.vector(9), 100).len(), 100, "{metric}, {size}");
        }
    }
}

#[test]
fn a_build_interrupted_anywhere_gives_the_same_bytes() {
    let rows = Flat::clustered(300, 12, 7);
    for metric in Metric::ALL {
        let whole = rows.built(metric);
        for every in [1, 97, 500] {
            let mut builder = GraphBuilder::new(rows.rows(), metric, Params::default());
            let mut steps = 0;
            while !builder.step(every) {
                steps += 1;
                assert_eq!(builder.steps_done(), steps * every);
                if steps % 10 == 1 || every > 1 {
                    let saved = builder.save();
                    builder = GraphBuilder::resume(rows.rows(), metric, Params::default(), &saved).unwrap();
                }
            }
            assert!(builder.finish() == whole, "{metric}, {every}");
        }
    }
}

#[test]
fn what_was_saved_is_refused_when_it_does_not_fit() {
    let (rows, others) = (Flat::clustered(60, 4, 8), Flat::clustered(60, 4, 9));
    let params = Params::default();
    let mut builder = GraphBuilder::new(rows.rows(), Metric::L2, params);
    builder.step(40);
    let saved = builder.save();
    assert!(GraphBuilder::resume(rows.rows(), Metric::L2, params, &saved).is_some());
    assert!(GraphBuilder::resume(others.rows(), Metric::L2, params, &saved).is_none());
    assert!(GraphBuilder::resume(rows.rows(), Metric::Dot, params, &saved).is_none());
    assert!(GraphBuilder::resume(rows.rows(), Metric::L2, Params { ef: 99, ..params }, &saved).is_none());
    for end in 0..saved.len() {
        assert!(GraphBuilder::resume(rows.rows(), Metric::L2, params, &saved[..end]).is_none());
    }
    for at in 0..saved.len() {
        let mut damaged = saved.clone();
        damaged[at] ^= 0x81;
        assert!(GraphBuilder::resume(rows.rows(), Metric::L2, params, &damaged).is_none(), "byte {at}");
    }
}

#[test]
fn progress_counts_up_to_all_steps_and_can_stop_the_work() {
    let rows = Flat::clustered(500, 8, 8);
    let mut calls = Vec::new();
    let params = Params::default();
    assert!(
        build(rows.rows(), Metric::Cosine, params, &mut |done, total| {
            calls.push((done, total));
            true
        })
        .is_some()
    );
    assert!(calls.is_sorted() && calls.iter().all(|&(done, total)| done < total && total == 2000));
    assert!(calls.len() > 20);
    assert_eq!(build(rows.rows(), Metric::Cosine, params, &mut |done, _| done < 200), None);
}

#[test]
fn bytes_that_are_no_graph_are_refused_with_the_reason() {
    let bytes = Flat::clustered(100, 4, 9).built(Metric::L2);
    assert!(bytes.len().is_multiple_of(64));
    assert_eq!(Graph::open(&bytes[..50]).unwrap_err(), GraphError::NotAGraph);
    assert_eq!(Graph::open(&bytes[1..]).unwrap_err(), GraphError::NotAGraph);
    let cut = Graph::open(&bytes[..bytes.len() - 1]).unwrap_err();
    assert_eq!(cut, GraphError::Damaged("number of bytes"));
    let mut newer = bytes.clone();
    newer[8] = 9;
    assert_eq!(Graph::open(newer).unwrap_err(), GraphError::OtherVersion(9));
}

#[test]
fn a_flipped_byte_never_panics_nor_hangs() {
    let rows = Flat::clustered(60, 4, 10);
    let mut scratch = WalkScratch::default();
    let mut found = Vec::new();
    for metric in Metric::ALL {
        let bytes = rows.built(metric);
        let query = PreparedVector::new(metric, rows.vector(1).to_vec());
        for at in 0..bytes.len() {
            for mask in [0x01, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= mask;
                let Ok(graph) = Graph::open(damaged) else {
                    continue;
                };
                graph.walk(&query, None::<fn(u32) -> bool>, Beam::new(60), &mut found, &mut scratch);
                assert!(found.len() <= 60 && found.iter().all(|&(score, row)| row < graph.rows() && !score.is_nan()));
            }
        }
    }
}

#[test]
fn random_lists_never_panic_nor_hang() {
    let rows = Flat::clustered(300, 4, 11);
    let bytes = rows.built(Metric::Cosine);
    let query = PreparedVector::new(Metric::Cosine, rows.vector(1).to_vec());
    let mut state = 1_u64;
    for _ in 0..50 {
        let mut damaged = bytes.clone();
        let end = damaged.len() - 1000;
        for byte in &mut damaged[64..end] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if state >> 61 == 0 {
                *byte = (state >> 40) as u8;
            }
        }
        let Ok(graph) = Graph::open(damaged) else {
            continue;
        };
        let mut found = Vec::new();
        graph.walk(&query, None::<fn(u32) -> bool>, Beam::new(300), &mut found, &mut WalkScratch::default());
        assert!(found.iter().all(|&(_, row)| row < 300));
    }
}
