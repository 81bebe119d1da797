//! A question's walk through the graph of one segment.

use std::cell::RefCell;

use super::SearchError;
use super::pool::Pool;
use super::scan::{Columns, Scan};
use crate::graph::Scratch;
use crate::vector::Prepared;

/// The memory of a walk, kept for the next one.
#[derive(Default)]
struct Kept {
    found: Vec<(f32, u32)>,
    rows: Vec<u32>,
    scratch: Scratch,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// Pools the best rows that a walk of breadth `ef` finds. Hidden rows are walked through.
pub fn walk(scan: &Scan<'_>, layer: usize, question: &Prepared, ef: usize, pool: &mut Pool) -> Result<(), SearchError> {
    let segment = &scan.state.layers()[layer].segment;
    let Some(file) = segment.graph(question.metric()) else { return Ok(()) };
    let (graph, columns) = (file.graph()?, Columns::of(segment)?);
    KEPT.with_borrow_mut(|Kept { found, rows, scratch }| {
        let visible = (!scan.sees_all(layer)).then_some(|row| scan.sees(layer, row));
        graph.walk(question, visible, ef, found, scratch);
        rows.clear();
        rows.extend(found.iter().map(|&(_, row)| row));
        columns.sift(rows, layer, question, pool);
    });
    scan.check_time()
}
