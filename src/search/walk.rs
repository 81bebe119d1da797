//! A query's walk through the graph of one segment.

use std::cell::RefCell;

use super::SearchError;
use super::candidate_set::{CandidateSet, RowLocation};
use super::scan::{CodeColumns, Scan};
use crate::graph::{Beam, WalkScratch};
use crate::vector::PreparedVector;

#[derive(Default)]
struct WalkMemory {
    scored_nodes: Vec<(f32, u32)>,
    rows: Vec<u32>,
    scratch: WalkScratch,
}

thread_local! {
    static REUSED_BUFFERS: RefCell<WalkMemory> = RefCell::default();
}

/// A walk assumes that all rows are visible where at most one in `k` times this is hidden: a hidden row is then seldom among
/// the best `k`.
const FEW_HIDDEN_ONE_IN: u64 = 20;

/// Pools the best rows that a walk finds. Hidden rows are walked through.
///
/// If few rows are hidden, the first walk ignores that. If a hidden row is among the best, or many were found, the walk
/// is repeated with at most `ef` candidates, as many rows lie about equally far around hidden ones.
///
/// Returns the score below which the walk stopped, the floor of the next walk. If the segment has no graph for the
/// query's metric, that is the given floor. [`SearchError::Timeout`] once the time is over, [`SearchError::Segment`] if
/// the graph or a column is damaged.
pub fn walk(
    scan: &Scan<'_>,
    layer: usize,
    query: &PreparedVector,
    (beam, ef): (Beam, usize),
    pool: &mut CandidateSet,
) -> Result<f32, SearchError> {
    let segment = &scan.state.layers()[layer].segment;
    let Some(file) = segment.graph(query.metric()) else { return Ok(beam.floor) };
    let (graph, columns) = (file.graph()?, CodeColumns::from_segment(segment)?);
    let replaces = scan.derived_file(layer).filter(|file| file.counts().replaced > 0);
    let replaced = replaces.map(|file| file.columns()).transpose()?;
    let counts = |row| replaced.as_ref().is_none_or(|derived| derived.number(row).is_none());
    let sees = |row| scan.sees(layer, row) && counts(row);
    let floor = REUSED_BUFFERS.with_borrow_mut(|WalkMemory { scored_nodes, rows, scratch }| {
        let (mut floor, mut again) = (None, beam);
        if hides_few_rows(scan, layer, pool.k()) {
            let walked = graph.walk(query, None::<fn(u32) -> bool>, beam, scored_nodes, scratch);
            // Where one of the best `k` is hidden, or more than a quarter of all that was kept, the beam was too narrow
            // for the rows that count.
            let shown = scored_nodes.iter().filter(|&&(_, row)| sees(row)).count();
            let serves =
                scored_nodes.iter().take(pool.k()).all(|&(_, row)| sees(row)) && shown * 4 >= scored_nodes.len() * 3;
            floor = serves.then_some(walked);
            again.kept_max = ef.min(beam.kept_max);
        }
        let floor = floor.unwrap_or_else(|| graph.walk(query, Some(sees), again, scored_nodes, scratch));
        rows.clear();
        // A walk without a filter kept hidden rows as well.
        rows.extend(scored_nodes.iter().map(|&(_, row)| row).filter(|&row| sees(row)));
        columns.offer_best(rows, query, pool, |at| Some(RowLocation::Sealed(layer, rows[at])));
        floor
    });
    scan.check_time()?;
    Ok(floor)
}

/// Returns whether so few rows are hidden that hardly any is among the best `k` of a layer.
fn hides_few_rows(scan: &Scan<'_>, layer: usize, k: usize) -> bool {
    let (all, seen) = (scan.segment_rows(layer), scan.candidates_max(layer));
    u64::from(all - seen.min(all)) * k as u64 * FEW_HIDDEN_ONE_IN <= u64::from(all)
}
