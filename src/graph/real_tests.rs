//! The graph over real embeddings, walked over int8 codes as a segment's is.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::tests::Flat;
use super::*;
use crate::vector::{Code, Metric, Prepared, norm, prefetch, quantize};
use std::path::Path;

const DIM: usize = 384;

/// The compact copy of all rows.
struct Coded<'a> {
    rows: &'a Flat,
    bytes: Vec<i8>,
    scales: Vec<(f32, f32)>,
    norms: Vec<f32>,
}

impl<'a> Coded<'a> {
    fn new(rows: &'a Flat) -> Self {
        let mut bytes = vec![0; rows.len() * DIM];
        let vectors = (0..rows.len() as u32).map(|row| rows.vector(row));
        let scales = vectors.clone().zip(bytes.chunks_mut(DIM)).map(|(v, code)| quantize(v, code)).collect();
        Self { rows, scales, norms: vectors.map(norm).collect(), bytes }
    }

    /// Walks over the codes and ranks what is found by true score.
    fn answers(&self, graph: &Graph<Vec<u8>>, question: &[f32], ef: usize) -> Vec<u32> {
        let question = Prepared::new(Metric::Cosine, question.to_vec());
        let mut found = Vec::new();
        graph.walk(&Asked { coded: self, question: &question }, ef, &mut found, &mut Scratch::default());
        self.ranked(&question, found.into_iter().map(|(_, row)| row))
    }

    /// Ranks rows by true score.
    fn ranked(&self, question: &Prepared, rows: impl Iterator<Item = u32>) -> Vec<u32> {
        let score = |row: u32| question.score(self.rows.vector(row), self.norms[row as usize]);
        let mut ranked: Vec<(f32, u32)> = rows.map(|row| (score(row), row)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.into_iter().map(|(_, row)| row).collect()
    }
}

/// The codes under a question.
struct Asked<'a> {
    coded: &'a Coded<'a>,
    question: &'a Prepared,
}

impl Asked<'_> {
    fn bytes(&self, row: u32) -> &[i8] {
        &self.coded.bytes[row as usize * DIM..][..DIM]
    }
}

impl View for Asked<'_> {
    fn estimate(&self, row: u32) -> f32 {
        let (scale, residual) = self.coded.scales[row as usize];
        let code = Code { bytes: self.bytes(row), scale, residual };
        self.question.estimate(code, self.coded.norms[row as usize])
    }

    fn is_visible(&self, _: u32) -> bool {
        true
    }

    fn prefetch(&self, row: u32) {
        prefetch(self.bytes(row));
    }
}

/// Reads half floats, little-endian.
fn halves(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks().0.iter().map(|&half| widened(u16::from_le_bytes(half))).collect()
}

/// Returns the f32 that a finite half float stands for.
fn widened(half: u16) -> f32 {
    let (exponent, fraction) = (u32::from(half >> 10 & 31), u32::from(half & 1023));
    let size = match exponent {
        0 => fraction as f32 / (1 << 24) as f32,
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    if half >> 15 == 1 { -size } else { size }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn real_embeddings_are_found_with_a_recall_of_98_percent_and_find_themselves() {
    let Some(folder) = std::env::var_os("ENGRAMFS_TEST_DATA") else {
        eprintln!("skipped: ENGRAMFS_TEST_DATA names no folder with records.f16.bin and questions.f16.bin");
        return;
    };
    let rows = Flat { dim: DIM, values: halves(&Path::new(&folder).join("records.f16.bin")) };
    let questions = halves(&Path::new(&folder).join("questions.f16.bin"));
    let params = Params { threads: 2, ..Params::default() };
    let graph = Graph::open(build(&rows, Metric::Cosine, params, &|_| true).unwrap()).unwrap();
    let coded = Coded::new(&rows);
    let (mut hits, mut asked) = (0, 0);
    for question in questions.chunks(DIM) {
        let prepared = Prepared::new(Metric::Cosine, question.to_vec());
        let truth = coded.ranked(&prepared, 0..rows.len() as u32);
        let found = coded.answers(&graph, question, 64);
        hits += truth[..10].iter().filter(|row| found[..10].contains(row)).count();
        asked += 10;
    }
    assert!(hits * 100 >= asked * 98, "{hits} of {asked}");
    for row in 0..rows.len() as u32 {
        let best = coded.answers(&graph, rows.vector(row), 64)[0];
        assert_eq!(rows.vector(best), rows.vector(row), "row {row} is found by its own vector");
    }
}
