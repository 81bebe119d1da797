//! The graph over real embeddings.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::tests::Flat;
use super::*;
use crate::vector::{Metric, PreparedVector};
use std::path::Path;

const DIM: usize = 384;

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
fn real_embeddings_are_found_with_a_recall_of_97_percent_and_find_themselves() {
    let Some(folder) = std::env::var_os("ENGRAMFS_TEST_DATA") else {
        eprintln!("skipped: ENGRAMFS_TEST_DATA names no folder with records.f16.bin and questions.f16.bin");
        return;
    };
    let rows = Flat::new(DIM, halves(&Path::new(&folder).join("records.f16.bin")));
    let queries = halves(&Path::new(&folder).join("questions.f16.bin"));
    let graph = build(rows.rows(), Metric::Cosine, Params::default(), &mut |_, _| true).unwrap();
    let graph = Graph::open(graph).unwrap();
    let (mut hits, mut asked) = (0, 0);
    for query in queries.chunks(DIM) {
        let truth = rows.ranked(&PreparedVector::new(Metric::Cosine, query.to_vec()), 0..rows.len() as u32);
        let found = rows.answers(&graph, query, 64);
        hits += truth[..10].iter().filter(|row| found[..10].contains(row)).count();
        asked += 10;
    }
    assert!(hits * 100 >= asked * 97, "{hits} of {asked}");
    for row in 0..rows.len() as u32 {
        let best = rows.answers(&graph, rows.vector(row), 64)[0];
        assert_eq!(rows.vector(best), rows.vector(row), "row {row} is found by its own vector");
    }
}
