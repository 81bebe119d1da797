//! A question's walk through the graph of one segment.

use std::cell::RefCell;

use super::SearchError;
use super::pool::{Place, Pool};
use super::scan::{Columns, Scan};
use crate::graph::{Breadth, Scratch};
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

/// Pools the best rows that a walk finds. Hidden rows are walked through.
///
/// Returns the worth below which the walk did not look on, to be the floor of the next.
pub fn walk(
    scan: &Scan<'_>,
    layer: usize,
    question: &Prepared,
    breadth: Breadth,
    pool: &mut Pool,
) -> Result<f32, SearchError> {
    let segment = &scan.state.layers()[layer].segment;
    let Some(file) = segment.graph(question.metric()) else { return Ok(breadth.floor) };
    let (graph, columns) = (file.graph()?, Columns::of(segment)?);
    let floor = KEPT.with_borrow_mut(|Kept { found, rows, scratch }| {
        let visible = (!scan.sees_all(layer)).then_some(|row| scan.sees(layer, row));
        let floor = graph.walk(question, visible, breadth, found, scratch);
        rows.clear();
        rows.extend(found.iter().map(|&(_, row)| row));
        columns.sift(rows, question, pool, |row| Some(Place::Sealed(layer, row)));
        floor
    });
    scan.check_time()?;
    Ok(floor)
}
