//! What a query looks at: the rows that a state shows and a filter lets through.

use std::ops::Range;
use std::sync::Arc;

use super::SearchError;
use super::candidate_set::{CandidateSet, RowLocation};
use super::derived::DerivedVectors;
use super::filter::Filter;
use super::query_timer::QueryTimer;
use super::seen_rows::{LayerRows, SeenRows};
use crate::branch::{BranchVersion, Codes};
use crate::record::Version;
use crate::segment::{DerivedColumns, DerivedFile, Row, Segment, SegmentError};
use crate::vector::{CodeProduct, PreparedVector};
use roaring::RoaringBitmap;

/// Number of rows between two looks at the clock.
pub const BATCH_ROWS: usize = 4096;

/// Rows that are multiplied in one go.
const ROWS_SIDE_BY_SIDE: usize = 256;

/// Rows that are held against one threshold before it is looked up again.
pub const ROWS_PER_SIEVE: usize = 32;

/// One source of a query, with the rows that its filter lets through worked out before.
pub struct Scan<'a> {
    /// Number of the source among all that are searched.
    pub source_index: usize,
    /// The records that are searched, as they were when the query began.
    pub state: &'a BranchVersion,
    /// Only records that match.
    pub filter: Option<&'a Filter>,
    /// `None` without an embedder.
    pub derived: Option<&'a DerivedVectors>,
    /// Of each layer, those of its rows; empty without an embedder.
    pub(super) derived_files: Vec<Option<Arc<DerivedFile>>>,
    /// Of each layer, the visible rows that match the filter, and some hidden ones; empty without one.
    matching_rows: Vec<RoaringBitmap>,
    /// What a look at one record's metadata takes, in steps of the timer.
    filter_steps: usize,
    /// The time limit of the query, which all its sources share.
    pub timer: &'a QueryTimer<'a>,
}

/// A row with its exact score, and the number of the source that it is from.
pub struct Scored<S> {
    /// As [`Scan::source_index`]: one id in two sources is two rows.
    pub source_index: usize,
    /// The record's id, which equal scores are ordered by.
    pub id: Arc<str>,
    /// The version that was scored; its hit shows text and metadata.
    pub row: Row,
    /// Larger is better.
    pub score: S,
}

impl<'a> Scan<'a> {
    /// Prepares a search; finds out which rows match the filter. [`SearchError::Timeout`] once the time is over,
    /// [`SearchError::Segment`] if the index of the metadata or a row can't be read. Without a filter it never fails.
    pub fn new(
        source_index: usize,
        state: &'a BranchVersion,
        derived: Option<&'a DerivedVectors>,
        filter: Option<&'a Filter>,
        timer: &'a QueryTimer<'a>,
    ) -> Result<Scan<'a>, SearchError> {
        let mut matching_rows = Vec::new();
        if let Some(filter) = filter {
            for layer in state.layers() {
                matching_rows.push(filter.select(layer, timer)?);
            }
        }
        let file = |derived: &DerivedVectors| {
            state.layers().iter().map(|layer| layer.segment.derived().get(&derived.embedder)).collect()
        };
        let (derived_files, filter_steps) = (derived.map(file).unwrap_or_default(), filter.map_or(0, Filter::weight));
        Ok(Scan { source_index, state, filter, derived, derived_files, matching_rows, filter_steps, timer })
    }

    /// Returns whether a row of a layer's segment may be an answer.
    #[inline]
    pub fn sees(&self, layer: usize, row: u32) -> bool {
        self.state.layers()[layer].visible.contains(row)
            && self.matching_rows.get(layer).is_none_or(|chosen| chosen.contains(row))
    }

    /// Returns the rows of a layer that may be answers.
    pub fn seen_rows(&self, layer: usize) -> LayerRows<'_> {
        LayerRows::new(&self.state.layers()[layer], self.matching_rows.get(layer))
    }

    /// Returns the number of rows in a layer's segment, visible or not.
    pub fn segment_rows(&self, layer: usize) -> u32 {
        self.state.layers()[layer].segment.rows()
    }

    /// Returns the most rows of a layer that can be answers.
    pub fn candidates_max(&self, layer: usize) -> u32 {
        self.seen_rows(layer).count_max() as u32
    }

    /// Puts the rows of a layer that may be answers into `rows`, in order.
    pub fn rows_in(&self, layer: usize, range: Range<u32>, rows: &mut Vec<u32>) {
        rows.clear();
        let visible = &self.state.layers()[layer].visible;
        match self.matching_rows.get(layer) {
            None => visible.for_each(range, |row| rows.push(row)),
            // Not a loop: a bitmap goes through its containers itself, which is faster.
            Some(chosen) => chosen.range(range).for_each(|row| {
                if visible.contains(row) {
                    rows.push(row);
                }
            }),
        }
    }

    /// Fails once the time limit is reached, with the error of the query's timer.
    pub fn check_time(&self) -> Result<(), SearchError> {
        self.timer.check()
    }

    /// Returns whether the filter lets an unsealed version through; nothing does once the time is over.
    pub fn passes_filter(&self, version: &Version) -> bool {
        let matches =
            |filter: &Filter| !self.timer.charge(self.filter_steps) && filter.matches(version.filterable_metadata());
        self.filter.is_none_or(matches)
    }
}

/// The columns from which bounds are computed, of a segment or of unsealed versions.
pub struct CodeColumns<'a> {
    codes: &'a [i8],
    scales: &'a [f32],
    residuals: &'a [f32],
    norms: &'a [f32],
}

impl<'a> CodeColumns<'a> {
    /// Returns the columns of a segment; the first call reads and checks them whole. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if one of them can't be read or is damaged.
    pub fn from_segment(segment: &'a Segment) -> Result<CodeColumns<'a>, SegmentError> {
        let (scales, residuals) = segment.scales()?;
        Ok(CodeColumns { codes: segment.codes()?, scales, residuals, norms: segment.norms()? })
    }

    /// Takes the columns of unsealed versions, by their place in the cache.
    pub fn from_codes(codes: &'a Codes) -> CodeColumns<'a> {
        let Codes { bytes, scales, residuals, norms } = codes;
        CodeColumns { codes: bytes, scales, residuals, norms }
    }

    /// Uses the columns of derived vectors, which have numbers of their own and not those of rows.
    pub fn from_derived(derived: &DerivedColumns<'a>) -> CodeColumns<'a> {
        let DerivedColumns { codes, scales, residuals, norms, .. } = *derived;
        CodeColumns { codes, scales, residuals, norms }
    }

    /// Offers those of some rows that may be among the best; `location` says where a row is, by its place in `rows`, or that
    /// it is not an answer.
    pub fn offer_best(
        &self,
        rows: &[u32],
        query: &PreparedVector,
        pool: &mut CandidateSet,
        location: impl Fn(usize) -> Option<RowLocation>,
    ) {
        let mut products = [0; ROWS_SIDE_BY_SIDE];
        let mut at = 0;
        for rows in rows.chunks(ROWS_SIDE_BY_SIDE) {
            let products = &mut products[..rows.len()];
            query.compute_products(self.codes, rows, products);
            for (rows, products) in rows.chunks(ROWS_PER_SIEVE).zip(products.chunks(ROWS_PER_SIEVE)) {
                // Made again every few rows: as better rows enter, the pool's worst rises, and the sieve lets fewer through.
                let sieve = query.sieve(pool.worst());
                for (&row, &product) in rows.iter().zip(products) {
                    at += 1;
                    if let Some(found) = self.code_product(row, product)
                        && sieve.passes(found)
                    {
                        let bounds = query.bounds(found);
                        if pool.admits(bounds.1)
                            && let Some(location) = location(at - 1)
                        {
                            pool.offer(bounds, location);
                        }
                    }
                }
            }
        }
    }

    /// Returns what is known of a row by its code; `None` if it has no vector.
    #[inline]
    fn code_product(&self, row: u32, product: i32) -> Option<CodeProduct> {
        let at = row as usize;
        let (&norm, &scale, &residual) = (self.norms.get(at)?, self.scales.get(at)?, self.residuals.get(at)?);
        (norm >= 0.0).then_some(CodeProduct { product, scale, residual, norm })
    }
}
