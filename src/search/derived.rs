//! Derived vectors, searched like given ones.

use std::sync::Arc;

use imbl::HashMap;

use super::SearchError;
use super::candidate_set::{CandidateSet, RowLocation};
use super::scan::{BATCH_ROWS, CodeColumns, Scan};
use crate::branch::BranchVersion;
use crate::object::Hash;
use crate::record::{DerivedVector, Version};
use crate::segment::{DerivedFile, Row, SegmentError};
use crate::vector::PreparedVector;

/// The vectors of one embedder at one moment. Those of sealed rows are found by their segments. A clone costs the same
/// however many there are.
#[derive(Clone)]
pub struct DerivedVectors {
    /// Identity of the embedder: vectors of another one are never looked at.
    pub embedder: Hash,
    /// How many numbers each vector has.
    pub dim: usize,
    /// Vectors of unsealed versions, and of rows whose file is not written yet, by the hash of the text.
    pub recent: HashMap<Hash, Arc<DerivedVector>>,
}

impl DerivedVectors {
    /// Returns the derived vector of an unsealed version; `None` if there is none yet, or never one.
    pub fn for_version(&self, version: &Version) -> Option<&Arc<DerivedVector>> {
        self.recent.get(&version.derivable_text_hash()?)
    }

    /// Returns the derived vector of a row, a copy; `None` if there is none yet. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if the file of derived vectors can't be read or is damaged.
    pub fn for_row(&self, row: &Row) -> Result<Option<Vec<f32>>, SegmentError> {
        match row {
            Row::Unsealed(version) => Ok(self.for_version(version).map(|derived| derived.vector.clone())),
            Row::Sealed(segment, row) => {
                let Some(file) = segment.derived().get(&self.embedder) else { return Ok(None) };
                let number = file.columns()?.number(*row);
                number.map(|number| file.vector(number).map(<[f32]>::to_vec)).transpose()
            }
        }
    }

    /// Returns how many records of a state have a text to embed that is not embedded yet. Of a segment for which the
    /// embedder has no file yet all rows without a vector count. [`SegmentError::Io`] or [`SegmentError::Damaged`] if a
    /// column of a segment, or of its derived vectors, can't be read or is damaged.
    pub fn unembedded(&self, state: &BranchVersion) -> Result<u64, SegmentError> {
        let wants =
            |version: &&Arc<Version>| version.derivable_text_hash().is_some() && self.for_version(version).is_none();
        let mut unembedded = state.unsealed().values().filter(wants).count() as u64;
        for layer in state.layers() {
            match layer.segment.derived().get(&self.embedder) {
                Some(file) if file.counts().unembedded_rows == 0 => {}
                Some(file) if layer.visible.are_all_visible() => unembedded += u64::from(file.counts().unembedded_rows),
                Some(file) => {
                    let columns = file.columns()?;
                    unembedded += layer.visible.iter().filter(|row| columns.is_unembedded(*row)).count() as u64;
                }
                // Not looked at yet. Those whose vector is older than their text are known once it is.
                None if layer.segment.dim() == 0 => unembedded += u64::from(layer.visible.count()),
                None => {
                    let norms = layer.segment.norms()?;
                    unembedded += layer.visible.iter().filter(|row| norms[*row as usize] < 0.0).count() as u64;
                }
            }
        }
        Ok(unembedded)
    }

    /// Returns whether any record of a state has a derived vector.
    pub fn has_any(&self, state: &BranchVersion) -> bool {
        let has = |file: Arc<DerivedFile>| file.counts().embedded > 0;
        state.layers().iter().any(|layer| layer.segment.derived().get(&self.embedder).is_some_and(has))
            || state.unsealed().values().any(|version| self.for_version(version).is_some())
    }
}

impl Scan<'_> {
    /// Returns whether an unsealed version's own vector is older than its text, and a derived one counts instead.
    pub fn is_stale(&self, version: &Version) -> bool {
        version.provenance.vector_stale && self.derived.is_some_and(|derived| derived.for_version(version).is_some())
    }

    /// Pools the rows of a layer that have a derived vector. The int8 copies are compared, no vector is read.
    /// [`SearchError::Timeout`] once the time is over, [`SearchError::Segment`] if the file of derived vectors is
    /// damaged.
    pub fn scan_derived(
        &self,
        layer: usize,
        query: &PreparedVector,
        pool: &mut CandidateSet,
    ) -> Result<(), SearchError> {
        let Some(file) = self.derived_file(layer).filter(|file| file.counts().embedded > 0) else { return Ok(()) };
        let derived = file.columns()?;
        let columns = CodeColumns::from_derived(&derived);
        let (mut rows, mut numbers) = (Vec::with_capacity(BATCH_ROWS), Vec::with_capacity(BATCH_ROWS));
        for start in (0..self.segment_rows(layer)).step_by(BATCH_ROWS) {
            self.rows_in(layer, start..start + BATCH_ROWS as u32, &mut rows);
            rows.retain(|row| derived.number(*row).is_some());
            numbers.clear();
            numbers.extend(rows.iter().filter_map(|row| derived.number(*row)));
            // `rows` keeps only those with a number, so that both lists are parallel.
            let place = |at: usize| Some(RowLocation::SealedDerived(layer, rows[at], numbers[at]));
            columns.offer_best(&numbers, query, pool, place);
            self.check_time()?;
        }
        Ok(())
    }

    /// Pools the unsealed versions that have a derived vector. [`SearchError::Timeout`] once the time is over.
    pub fn scan_recent(&self, query: &PreparedVector, pool: &mut CandidateSet) -> Result<(), SearchError> {
        let Some(derived) = self.derived.filter(|derived| !derived.recent.is_empty()) else { return Ok(()) };
        for (at, version) in self.state.unsealed().values().enumerate() {
            if at.is_multiple_of(BATCH_ROWS) {
                self.check_time()?;
            }
            let Some(found) = derived.for_version(version) else { continue };
            let bounds = query.bounds(query.code_product(found.code(), found.norm));
            if pool.admits(bounds.1) && self.passes_filter(version) {
                pool.offer(bounds, RowLocation::UnsealedDerived(version.clone(), found.clone()));
            }
        }
        self.check_time()
    }

    /// Returns the vectors that were derived for the rows of a layer; `None` if there are none yet.
    pub fn derived_file(&self, layer: usize) -> Option<&Arc<DerivedFile>> {
        self.derived_files.get(layer)?.as_ref()
    }
}
