//! A question's walk through the graph of one segment.

use std::cell::RefCell;

use super::SearchError;
use super::pool::{Place, Pool};
use super::scan::{Columns, Scan};
use crate::graph::Scratch;
use crate::vector::Prepared;

thread_local! {
    /// The memory of this thread's walks: what was found, and what the walk itself needs.
    static SCRATCH: RefCell<(Vec<(f32, u32)>, Scratch)> = RefCell::default();
}

/// Pools the best rows that a walk of breadth `ef` finds. Hidden rows are walked through.
pub fn walk(scan: &Scan<'_>, layer: usize, question: &Prepared, ef: usize, pool: &mut Pool) -> Result<(), SearchError> {
    let segment = &scan.state.layers()[layer].segment;
    let Some(file) = segment.graph(question.metric()) else { return Ok(()) };
    let (graph, columns) = (file.graph()?, Columns::of(segment)?);
    SCRATCH.with_borrow_mut(|(found, scratch)| {
        graph.walk(question, |row| scan.sees(layer, row), ef, found, scratch);
        for &(_, row) in found.iter() {
            if let Some((code, norm)) = columns.row(row) {
                pool.offer(question.bounds(code, norm), Place::Sealed(layer, row));
            }
        }
    });
    scan.check_time()
}
