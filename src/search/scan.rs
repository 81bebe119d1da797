//! The exact scan: every visible row, by proven bounds first, by its score where they leave doubt.

use std::sync::Arc;

use super::SearchError;
use super::filter::Filter;
use super::top::Top;
use crate::branch::State;
use crate::segment::{Row, Segment, SegmentError};
use crate::vector::{Code, Prepared, prefetch};

/// Rows between two looks at the clock.
const ROWS_AT_ONCE: u32 = 4096;

/// How far ahead of the row at hand codes are fetched.
const ROWS_AHEAD: usize = 12;

/// The state that is scanned, and the rules of the scan.
pub struct Scan<'a> {
    /// What is searched.
    pub state: &'a State,
    /// Only records that match.
    pub filter: Option<&'a Filter>,
    /// Tells whether the time limit was reached, with the error for it.
    pub late: &'a dyn Fn() -> Option<SearchError>,
}

/// A row that the bounds do not rule out.
struct Candidate {
    upper: f32,
    layer: usize,
    row: u32,
}

/// A record and its score.
pub struct Scored<S> {
    /// Where it stands.
    pub row: Row,
    /// Larger is better.
    pub score: S,
}

impl Scan<'_> {
    /// Returns the `k` records that are worth most to the question: best first, equal scores by id,
    /// and as if every score had been computed.
    pub fn nearest(&self, question: &Prepared, k: usize) -> Result<Vec<Scored<f32>>, SearchError> {
        let mut top: Top<f32, Arc<str>, Row> = Top::new(k);
        for version in self.state.loose().values() {
            let Some(vector) = &version.content.vector else { continue };
            let score = question.score(vector, version.norm);
            let row = Row::Loose(version.clone());
            if top.worst().is_none_or(|worst| score >= worst) && self.matches(&row)? {
                top.push(score, version.id.clone(), row);
            }
        }
        let mut candidates = self.candidates(question, k, top.worst())?;
        if self.filter.is_some() {
            // The likeliest first, so that few rows need their metadata looked at.
            candidates.sort_unstable_by(|a, b| b.upper.total_cmp(&a.upper));
        }
        for (number, candidate) in candidates.iter().enumerate() {
            if number.is_multiple_of(ROWS_AT_ONCE as usize) {
                self.check_time()?;
            }
            if top.worst().is_some_and(|worst| candidate.upper < worst) {
                if self.filter.is_some() { break } else { continue }
            }
            let segment = &self.state.layers()[candidate.layer].segment;
            let Some(score) = score_of(question, segment, candidate.row)? else { continue };
            let row = Row::Sealed(segment.clone(), candidate.row);
            if top.worst().is_none_or(|worst| score >= worst) && self.matches(&row)? {
                let id = Arc::from(segment.id(candidate.row)?);
                top.push(score, id, row);
            }
        }
        Ok(top.into_sorted().into_iter().map(|entry| Scored { row: entry.payload, score: entry.score }).collect())
    }

    /// Bounds every visible sealed row. Without a filter, rows below the `k`-th best lower bound
    /// are ruled out at once.
    fn candidates(&self, question: &Prepared, k: usize, worst: Option<f32>) -> Result<Vec<Candidate>, SearchError> {
        let mut candidates = Vec::new();
        let mut lowers: Top<f32, u64, ()> = Top::new(k);
        for (layer, seen) in self.state.layers().iter().enumerate() {
            if seen.segment.dim() == 0 || seen.visible.count() == 0 {
                continue;
            }
            let columns = Columns::of(&seen.segment)?;
            let mut budget = 0;
            for row in seen.visible.iter() {
                if budget == 0 {
                    self.check_time()?;
                    budget = ROWS_AT_ONCE;
                }
                budget -= 1;
                columns.fetch(row);
                let Some((code, norm)) = columns.row(row) else { continue };
                let (lower, upper) = question.bounds(code, norm);
                let ruled_out = |worst: f32| upper < worst;
                if self.filter.is_none() {
                    if worst.is_some_and(ruled_out) || lowers.worst().is_some_and(ruled_out) {
                        continue;
                    }
                    lowers.push(lower, (layer as u64) << 32 | u64::from(row), ());
                }
                candidates.push(Candidate { upper, layer, row });
            }
        }
        if let Some(worst) = lowers.worst() {
            candidates.retain(|candidate| candidate.upper >= worst);
        }
        Ok(candidates)
    }

    /// Returns whether a record matches the filter.
    pub fn matches(&self, row: &Row) -> Result<bool, SegmentError> {
        let Some(filter) = self.filter else { return Ok(true) };
        let metadata = match row {
            Row::Loose(version) => version.content.metadata_value(),
            Row::Sealed(segment, row) => serde_json::from_str(&segment.words(*row)?.1).unwrap_or_default(),
        };
        Ok(filter.matches(&metadata))
    }

    /// Fails once the time limit is reached.
    pub fn check_time(&self) -> Result<(), SearchError> {
        (self.late)().map_or(Ok(()), Err)
    }
}

fn score_of(question: &Prepared, segment: &Segment, row: u32) -> Result<Option<f32>, SegmentError> {
    let vector = segment.vector(row)?;
    let norm = segment.norm(row)?;
    Ok(vector.map(|vector| question.score(vector, norm)))
}

/// The columns of a segment that bounds are made of.
struct Columns<'a> {
    dim: usize,
    codes: &'a [i8],
    scales: &'a [f32],
    residuals: &'a [f32],
    norms: &'a [f32],
}

impl<'a> Columns<'a> {
    fn of(segment: &'a Segment) -> Result<Columns<'a>, SegmentError> {
        let (scales, residuals) = segment.scales()?;
        Ok(Columns { dim: segment.dim(), codes: segment.codes()?, scales, residuals, norms: segment.norms()? })
    }

    /// Has the code of a row that comes soon brought near: memory is what a scan waits for.
    fn fetch(&self, row: u32) {
        let start = (row as usize + ROWS_AHEAD) * self.dim;
        if let Some(code) = self.codes.get(start..start + self.dim) {
            prefetch(code);
        }
    }

    /// Returns a row's code and norm; nothing where it has no vector.
    fn row(&self, row: u32) -> Option<(Code<'a>, f32)> {
        let at = row as usize;
        let norm = self.norms[at];
        let bytes = &self.codes[at * self.dim..(at + 1) * self.dim];
        (norm >= 0.0).then(|| (Code { bytes, scale: self.scales[at], residual: self.residuals[at] }, norm))
    }
}
