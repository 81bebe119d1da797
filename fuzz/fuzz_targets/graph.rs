//! The neighbour graph of a segment, walked with and without hidden rows, and a build that was interrupted.
#![no_main]

use engramfs::graph::{Beam, Graph, GraphBuilder, Params, VectorRows, WalkScratch};
use engramfs::vector::{DIM_MAX, Metric, PreparedVector};

/// The rows that a saved build is of; the corpus holds builds over them.
const DIM: usize = 4;
const ROWS: usize = 24;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let codes: Vec<i8> = (0..ROWS * DIM).map(|i| (i * 37 % 255) as u8 as i8).collect();
    let rows = VectorRows { dim: DIM, codes: &codes, scales: &[0.01; ROWS], norms: &[1.0; ROWS] };
    if let Some(mut build) = GraphBuilder::resume(rows, Metric::L2, Params::default(), bytes) {
        while !build.step(8) {}
        walk(&build.finish());
    }
    walk(bytes);
});

fn walk(bytes: &[u8]) {
    let Ok(graph) = Graph::open(bytes) else { return };
    assert!(graph.dim() <= DIM_MAX);
    let vector = (0..graph.dim()).map(|i| (i % 7) as f32 - 3.0).collect();
    let query = PreparedVector::new(graph.metric(), vector);
    let (mut found, mut scratch) = (Vec::new(), WalkScratch::default());
    for most in [1, 10, 1000] {
        graph.walk(&query, None::<fn(u32) -> bool>, Beam::new(most), &mut found, &mut scratch);
        assert!(found.len() <= most && found.iter().all(|(_, row)| *row < graph.rows()));
        graph.walk(&query, Some(|row: u32| row % 2 == 0), Beam::new(most), &mut found, &mut scratch);
        assert!(found.iter().all(|(_, row)| row % 2 == 0));
    }
}
