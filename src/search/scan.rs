//! What a question looks at: the rows that a state shows and a filter lets through.

use super::SearchError;
use super::filter::Filter;
use crate::branch::State;
use crate::segment::{Row, Segment, SegmentError};
use crate::vector::{Code, prefetch};
use roaring::RoaringBitmap;

/// Rows between two looks at the clock.
pub const ROWS_AT_ONCE: u32 = 4096;

/// How far ahead of the row at hand codes are fetched.
const ROWS_AHEAD: usize = 12;

/// The state that is searched, and the rules of the search.
pub struct Scan<'a> {
    /// What is searched.
    pub state: &'a State,
    /// Only records that match.
    pub filter: Option<&'a Filter>,
    /// Of each layer, the rows that match the filter; empty without one.
    chosen: Vec<RoaringBitmap>,
    /// Tells whether the time limit was reached, with the error for it.
    late: &'a dyn Fn() -> Option<SearchError>,
}

/// A record and its score.
pub struct Scored<S> {
    /// Where it stands.
    pub row: Row,
    /// Larger is better.
    pub score: S,
}

impl<'a> Scan<'a> {
    /// Prepares a search; finds out which rows match the filter.
    pub fn new(
        state: &'a State,
        filter: Option<&'a Filter>,
        late: &'a dyn Fn() -> Option<SearchError>,
    ) -> Result<Scan<'a>, SearchError> {
        let mut chosen = Vec::new();
        if let Some(filter) = filter {
            for layer in state.layers() {
                chosen.push(filter.select(&layer.segment, late)?);
            }
        }
        Ok(Scan { state, filter, chosen, late })
    }

    /// Tells whether a row of a layer's segment may be an answer.
    #[inline]
    pub fn sees(&self, layer: usize, row: u32) -> bool {
        self.state.layers()[layer].visible.contains(row)
            && self.chosen.get(layer).is_none_or(|chosen| chosen.contains(row))
    }

    /// Returns how many rows of a layer may be answers at most.
    pub fn rows_of(&self, layer: usize) -> u32 {
        let visible = self.state.layers()[layer].visible.count();
        self.chosen.get(layer).map_or(visible, |chosen| visible.min(chosen.len() as u32))
    }

    /// Calls `each` with the rows of a layer that may be answers, in order.
    pub fn each_row(
        &self,
        layer: usize,
        each: &mut impl FnMut(u32) -> Result<(), SearchError>,
    ) -> Result<(), SearchError> {
        let visible = &self.state.layers()[layer].visible;
        match self.chosen.get(layer) {
            None => visible.iter().try_for_each(each),
            Some(chosen) => chosen.iter().filter(|row| visible.contains(*row)).try_for_each(each),
        }
    }

    /// Fails once the time limit is reached.
    pub fn check_time(&self) -> Result<(), SearchError> {
        (self.late)().map_or(Ok(()), Err)
    }
}

/// The columns of a segment that bounds are made of.
pub struct Columns<'a> {
    dim: usize,
    codes: &'a [i8],
    scales: &'a [f32],
    residuals: &'a [f32],
    norms: &'a [f32],
}

impl<'a> Columns<'a> {
    /// Returns the columns of a segment; the first call reads and checks them whole.
    pub fn of(segment: &'a Segment) -> Result<Columns<'a>, SegmentError> {
        let (scales, residuals) = segment.scales()?;
        Ok(Columns { dim: segment.dim(), codes: segment.codes()?, scales, residuals, norms: segment.norms()? })
    }

    /// Has the code of a row that comes soon in a scan brought near: memory is what it waits for.
    #[inline]
    pub fn fetch(&self, row: u32) {
        self.fetch_row(row.saturating_add(ROWS_AHEAD as u32));
    }

    /// Has the code of a row brought near.
    #[inline]
    pub fn fetch_row(&self, row: u32) {
        let start = row as usize * self.dim;
        if let Some(code) = self.codes.get(start..start + self.dim) {
            prefetch(code);
        }
    }

    /// Returns a row's code and norm; nothing where it has no vector.
    #[inline]
    pub fn row(&self, row: u32) -> Option<(Code<'a>, f32)> {
        let at = row as usize;
        let norm = *self.norms.get(at)?;
        let bytes = self.codes.get(at * self.dim..(at + 1) * self.dim)?;
        (norm >= 0.0).then(|| (Code { bytes, scale: self.scales[at], residual: self.residuals[at] }, norm))
    }
}
