//! The passages of files that are nearest to a vector. All that the caller may read are looked at: their vectors are one
//! embedder's, and there is no graph over them.

use std::sync::Arc;

use super::SearchError;
use super::bm25_search::{FileRow, HitKey, HitRow};
use super::derived::DerivedVectors;
use super::file_scan::{FileScan, FileSource, PATH_STEPS};
use super::top::{Ranked, Top};
use crate::file_index::{FilePath, IndexSegment, VisiblePart};
use crate::segment::{DerivedColumns, SegmentError};
use crate::vector::{Code, PreparedVector};

/// Steps that it takes to compare a vector's code.
const CODE_STEPS: usize = 4;

/// A hit by vectors with its score under the metric; larger is better.
pub type VectorHit = Ranked<f32, HitKey, HitRow>;

type NearestRows = Top<f32, HitKey, HitRow>;

impl FileScan<'_> {
    /// Returns the `k` passages that score best for the query, best first; those without a vector are none of them.
    /// [`SearchError::Timeout`] once the time is over, [`SearchError::Segment`] if an index segment or its vectors
    /// can't be read or are damaged.
    pub fn nearest(&self, query: &PreparedVector, k: usize) -> Result<Vec<VectorHit>, SearchError> {
        let mut top = Top::new(k);
        if let Some(derived) = self.derived.filter(|derived| self.passes_filter && derived.dim == query.vector().len())
        {
            for part in self.files.parts() {
                self.collect_nearest(part, derived, query, &mut top)?;
            }
        }
        self.timer.check()?;
        Ok(top.into_sorted())
    }

    fn collect_nearest(
        &self,
        part: &VisiblePart,
        derived: &DerivedVectors,
        query: &PreparedVector,
        top: &mut NearestRows,
    ) -> Result<(), SearchError> {
        let file = part.segment.derived().get(&derived.embedder);
        let columns = file.as_ref().map(|file| file.columns()).transpose()?;
        let number = |row: u32| columns.as_ref().and_then(|columns: &DerivedColumns<'_>| columns.number(row));
        for row in part.visible_rows() {
            self.timer.spend(CODE_STEPS)?;
            // A passage has its vector in the file beside its segment or, until that is written, in `recent`. The code
            // is compared first in either case, so that few vectors are read.
            if let (Some(number), Some(file), Some(columns)) = (number(row), &file, &columns) {
                if may_enter(top, query, columns.code(number)) {
                    let (vector, (_, norm)) = (file.vector(number)?, columns.code(number));
                    self.offer_near(&part.segment, row, query.score(vector, norm), top)?;
                }
            } else if !derived.recent.is_empty()
                && let Some(found) = derived.recent.get(&part.segment.passage_location(row)?.key.vector_key())
                && may_enter(top, query, (found.code(), found.norm))
            {
                self.offer_near(&part.segment, row, query.score(&found.vector, found.norm), top)?;
            }
        }
        Ok(())
    }

    fn offer_near(
        &self,
        segment: &Arc<IndexSegment>,
        row: u32,
        score: f32,
        top: &mut NearestRows,
    ) -> Result<(), SearchError> {
        if top.worst().is_some_and(|worst| score < worst) {
            return Ok(());
        }
        self.timer.spend(PATH_STEPS)?;
        let passage = segment.passage_location(row)?;
        for FilePath { path, inode } in self.files.files_with_passage(segment, row)? {
            let key = HitKey::File { path, line: passage.line, start_byte: passage.start_byte };
            top.push(score, key, HitRow::File(FileRow { segment: segment.clone(), passage, inode }));
        }
        Ok(())
    }
}

impl FileSource<'_> {
    /// Returns whether any passage has a vector. Asks the counts that files of vectors keep, and reads no vector.
    /// [`SegmentError::Io`] or [`SegmentError::Damaged`] if the place of a passage in an unsealed segment can't be
    /// read.
    pub fn has_vectors(&self) -> Result<bool, SegmentError> {
        let Some(derived) = &self.derived else { return Ok(false) };
        for part in self.files.parts() {
            if part.segment.derived().get(&derived.embedder).is_some_and(|file| file.counts().embedded > 0) {
                return Ok(true);
            }
            // An unsealed segment has all its vectors in memory, so nothing else has to be looked at.
            if part.segment.name().is_none() && !derived.recent.is_empty() {
                for row in part.visible_rows() {
                    if derived.recent.contains_key(&part.segment.passage_location(row)?.key.vector_key()) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }
}

/// Returns whether a vector may be among the nearest, by its code.
fn may_enter(top: &NearestRows, query: &PreparedVector, (code, norm): (Code<'_>, f32)) -> bool {
    let Some(worst) = top.worst() else { return true };
    query.bounds(query.code_product(code, norm)).1 >= worst
}
