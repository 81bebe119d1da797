//! From a filter to the rows of a segment that match it.

use roaring::RoaringBitmap;
use serde_json::Value;

use super::{Filter, FilterNode, Predicate};
use crate::branch::Layer;
use crate::facet::{Bound, Facets, RowSet};
use crate::record::filterable_metadata;
use crate::search::SearchError;
use crate::search::query_timer::QueryTimer;
use crate::segment::Segment;

#[cfg(test)]
mod tests;

/// What it takes to read the metadata of a row, beside its bytes, in steps of the timer.
const ROW_STEPS: usize = 64;
/// What it takes to look one value up, in steps of the timer.
const VALUE_STEPS: usize = 512;
/// Values that are looked up at once.
const BATCH_VALUES: usize = 256;

impl Filter {
    /// Returns the rows of a layer that match: exactly those of the visible ones, and of the hidden ones some or all.
    ///
    /// The index gives most of them; the metadata of visible rows that it leaves open is read, at about a microsecond a
    /// row. [`SearchError::Timeout`] once the time is over, [`SearchError::Segment`] if the index or a row can't be read or
    /// is damaged.
    pub fn select(&self, layer: &Layer, timer: &QueryTimer<'_>) -> Result<RoaringBitmap, SearchError> {
        let segment = &layer.segment;
        let RowSet { mut certain, uncertain } = self.rows_by_index(&segment.facets()?, timer)?;
        // A row that the segment has not got counts as visible: reading it says that the index is damaged.
        let is_hidden = |row: u32| row < segment.rows() && !layer.visible.contains(row);
        let weight = ROW_STEPS + self.weight();
        for row in &uncertain {
            // The rows of other branches in the segment may be many times those of this one.
            if is_hidden(row) {
                timer.spend(1)?;
                continue;
            }
            timer.spend(weight)?;
            if self.matches(&filterable_row(segment, row, timer)?) {
                certain.insert(row);
            }
        }
        Ok(certain)
    }

    /// Returns the rows that match as far as the index alone can tell; reads no row. Fails only with
    /// [`SearchError::Timeout`], once the time is over.
    pub fn rows_by_index(&self, facets: &Facets<'_>, timer: &QueryTimer<'_>) -> Result<RowSet, SearchError> {
        let rows = self.0.rows(facets, timer);
        // `rows` returns any set once the time is over. This fails then, so that such a set is never an answer.
        timer.spend(0)?;
        Ok(rows)
    }
}

fn filterable_row(segment: &Segment, row: u32, timer: &QueryTimer<'_>) -> Result<Value, SearchError> {
    let (text, metadata) = segment.text_and_metadata(row)?;
    // The text lies beside the metadata, and is checked with it.
    timer.spend(text.as_ref().map_or(0, String::len) + metadata.len())?;
    let metadata = serde_json::from_str(&metadata).unwrap_or_default();
    Ok(filterable_metadata(metadata, &segment.provenance(row)?))
}

impl FilterNode {
    /// Returns the rows that match; any once the time is over.
    fn rows(&self, facets: &Facets<'_>, timer: &QueryTimer<'_>) -> RowSet {
        match self {
            Self::All(nodes) => intersect_all(facets, nodes.iter().map(|node| node.rows(facets, timer))),
            Self::Any(nodes) => nodes.iter().map(|node| node.rows(facets, timer)).fold(RowSet::none(), RowSet::or),
            Self::Not(node) => node.rows(facets, timer).not(facets.rows()),
            Self::Key(key, test) => test.rows(facets, key, timer),
        }
    }
}

impl Predicate {
    fn rows(&self, facets: &Facets<'_>, key: &str, timer: &QueryTimer<'_>) -> RowSet {
        if timer.charge(VALUE_STEPS) {
            return RowSet::none();
        }
        match self {
            Self::Exists(true) => facets.rows_with_path(key),
            Self::Exists(false) => facets.rows_with_path(key).not(facets.rows()),
            Self::All(tests) => rows_passing_all(facets, key, tests, timer),
            Self::Not(test) => test.rows(facets, key, timer).not(facets.rows()),
            Self::Equal(operand) => facets.rows_equal_to(key, operand),
            Self::OneOf(operands) => {
                let some = |operands: &[Value]| match timer.charge(operands.len() * VALUE_STEPS) {
                    true => RowSet::none(),
                    false => facets.rows_equal_to_any(key, operands),
                };
                operands.chunks(BATCH_VALUES).map(some).fold(facets.rows_equal_to_any(key, &[]), RowSet::or)
            }
            Self::Order(operand, wanted) => facets.rows_in_bounds(key, &[Bound { operand, wanted: *wanted }]),
        }
    }
}

/// Both ends of a range are looked up together: each alone may have most of the rows.
fn rows_passing_all(facets: &Facets<'_>, key: &str, tests: &[Predicate], timer: &QueryTimer<'_>) -> RowSet {
    let bound = |test| match test {
        &Predicate::Order(ref operand, wanted) => Some(Bound { operand, wanted }),
        _ => None,
    };
    let bounds: Vec<Bound<'_>> = tests.iter().filter_map(bound).collect();
    let range = (!bounds.is_empty()).then(|| facets.rows_in_bounds(key, &bounds));
    let others = tests.iter().filter(|test| bound(test).is_none());
    intersect_all(facets, range.into_iter().chain(others.map(|test| test.rows(facets, key, timer))))
}

/// Returns the rows that are in all of `parts`; every row where there are none.
fn intersect_all(facets: &Facets<'_>, mut parts: impl Iterator<Item = RowSet>) -> RowSet {
    let first = parts.next().unwrap_or_else(|| RowSet::all(facets.rows()));
    parts.fold(first, RowSet::and)
}
