//! From a filter to the rows of a segment that match it.

use roaring::RoaringBitmap;
use serde_json::Value;

use super::{Filter, Node, Test};
use crate::facet::{Bound, Facets, Rows};
use crate::search::SearchError;
use crate::segment::{Segment, SegmentError};

#[cfg(test)]
mod tests;

/// Rows looked at between two looks at the clock.
const ROWS_AT_ONCE: usize = 256;

impl Filter {
    /// Returns exactly the rows of a segment that match, those included that a branch does not see.
    ///
    /// The index gives most of them; the metadata of rows that it leaves open is read, at about a
    /// microsecond a row. `late` is asked now and then whether to give up.
    pub fn select(
        &self,
        segment: &Segment,
        late: &dyn Fn() -> Option<SearchError>,
    ) -> Result<RoaringBitmap, SearchError> {
        let Rows { mut sure, unsure } = self.narrow(&segment.facets()?);
        for (number, row) in unsure.iter().enumerate() {
            if number.is_multiple_of(ROWS_AT_ONCE) {
                late().map_or(Ok(()), Err)?;
            }
            if self.matches(&metadata(segment, row)?) {
                sure.insert(row);
            }
        }
        Ok(sure)
    }

    /// Returns the rows that match as far as the index alone can tell; reads no row.
    pub fn narrow(&self, facets: &Facets<'_>) -> Rows {
        self.0.rows(facets)
    }
}

fn metadata(segment: &Segment, row: u32) -> Result<Value, SegmentError> {
    Ok(serde_json::from_str(&segment.words(row)?.1).unwrap_or_default())
}

impl Node {
    fn rows(&self, facets: &Facets<'_>) -> Rows {
        match self {
            Self::All(nodes) => all(facets, nodes.iter().map(|node| node.rows(facets))),
            Self::Any(nodes) => nodes.iter().map(|node| node.rows(facets)).fold(Rows::none(), Rows::or),
            Self::Not(node) => node.rows(facets).not(facets.rows()),
            Self::Key(key, test) => test.rows(facets, key),
        }
    }
}

impl Test {
    fn rows(&self, facets: &Facets<'_>, key: &str) -> Rows {
        match self {
            Self::Exists(true) => facets.present(key),
            Self::Exists(false) => facets.present(key).not(facets.rows()),
            Self::All(tests) => all_of_one_key(facets, key, tests),
            Self::Not(test) => test.rows(facets, key).not(facets.rows()),
            Self::Equal(operand) => facets.equal(key, operand),
            Self::OneOf(operands) => facets.one_of(key, operands),
            Self::Order(operand, wanted) => facets.ordered(key, &[Bound { operand, wanted: *wanted }]),
        }
    }
}

/// Both ends of a range are looked up together: each alone may have most of the rows.
fn all_of_one_key(facets: &Facets<'_>, key: &str, tests: &[Test]) -> Rows {
    let bound = |test| match test {
        &Test::Order(ref operand, wanted) => Some(Bound { operand, wanted }),
        _ => None,
    };
    let bounds: Vec<Bound<'_>> = tests.iter().filter_map(bound).collect();
    let range = (!bounds.is_empty()).then(|| facets.ordered(key, &bounds));
    let others = tests.iter().filter(|test| bound(test).is_none());
    all(facets, range.into_iter().chain(others.map(|test| test.rows(facets, key))))
}

/// Returns the rows that are in all of `parts`; every row where there are none.
fn all(facets: &Facets<'_>, mut parts: impl Iterator<Item = Rows>) -> Rows {
    let first = parts.next().unwrap_or_else(|| Rows::all(facets.rows()));
    parts.fold(first, Rows::and)
}
