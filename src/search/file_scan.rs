//! The files of a branch as one of the sources that a query looks at.

use std::sync::Arc;

use super::SearchError;
use super::bm25_search::{BestRows, FileRow, HitKey, HitRow, score_rows};
use super::derived::DerivedVectors;
use super::exact_gate::AdmittedRows;
use super::filter::Filter;
use super::matched_terms::TERM_STEPS;
use super::query_timer::QueryTimer;
use crate::file_index::{FilePath, IndexSegment, PassageLocation, PermittedFiles};
use crate::segment::SegmentError;
use crate::text::Scorer;

/// Steps that it takes to find the files that show a passage.
pub(super) const PATH_STEPS: usize = 64;

/// Reads the text of a passage of a segment, which is at that place of the file with that inode number. Fails with
/// [`SegmentError::Damaged`] if the file has other bytes there, with [`SegmentError::Io`] if it can't be read.
pub type PassageReader<'a> = dyn Fn(&IndexSegment, &PassageLocation, u64) -> Result<String, SegmentError> + 'a;

/// The files of a branch that the caller may read.
pub struct FileSource<'a> {
    /// What hits from there name as their source.
    pub source: Arc<str>,
    /// Name path of the branch whose files they are.
    pub branch: Arc<str>,
    /// What the caller may read of what is indexed: nothing else counts, not even in the statistics.
    pub files: PermittedFiles,
    /// The vectors that an embedder made of their passages; `None` without an embedder.
    pub derived: Option<DerivedVectors>,
    /// Reads the text of a passage; asked for those that are answered, and those that may have a phrase.
    pub read: &'a PassageReader<'a>,
}

/// The files that a query looks at, beside the records of its sources.
pub struct FileScan<'a> {
    /// What the caller may read; nothing else counts, not even in the statistics.
    pub files: &'a PermittedFiles,
    /// The same, with what reads it.
    pub(super) source: &'a FileSource<'a>,
    /// `None` without an embedder.
    pub(super) derived: Option<&'a DerivedVectors>,
    /// The time limit of the query, shared with the scans of records.
    pub timer: &'a QueryTimer<'a>,
    /// Whether the filter lets files through, which have no metadata.
    pub(super) passes_filter: bool,
}

impl<'a> FileScan<'a> {
    /// Scans the files that the caller may read. A filter on metadata excludes all files.
    pub fn new(source: &'a FileSource<'a>, filter: Option<&Filter>, timer: &'a QueryTimer<'a>) -> FileScan<'a> {
        let passes_filter = filter.is_none_or(|filter| filter.matches(&serde_json::Value::Null));
        FileScan { files: &source.files, source, derived: source.derived.as_ref(), timer, passes_filter }
    }

    /// Offers the passages that hold some of the terms, each of which counts in a part where `admitted` says.
    /// [`SearchError::Timeout`] once the time is over, [`SearchError::Segment`] if an index segment can't be read or is
    /// damaged.
    pub fn score(
        &self,
        (terms, admitted): (&[Box<str>], &[AdmittedRows]),
        scorer: &Scorer,
        top: &mut BestRows,
    ) -> Result<(), SearchError> {
        if !self.passes_filter {
            return Ok(());
        }
        for (part, admitted) in self.files.parts().iter().zip(admitted) {
            self.timer.spend(terms.len() * TERM_STEPS)?;
            let postings = part.segment.postings()?;
            let lists = terms.iter().map(|term| postings.term(term)).collect();
            score_rows((part, self.timer), (&postings, lists, admitted), scorer, top, |row, score, top| {
                self.offer(&part.segment, row, score, top)
            })?;
        }
        Ok(())
    }

    fn offer(&self, segment: &Arc<IndexSegment>, row: u32, score: f64, top: &mut BestRows) -> Result<(), SearchError> {
        self.timer.spend(PATH_STEPS)?;
        let passage = segment.passage_location(row)?;
        // Several files may show one indexed passage, and each of them is a hit of its own.
        for FilePath { path, inode } in self.files.files_with_passage(segment, row)? {
            let key = HitKey::File { path, line: passage.line, start_byte: passage.start_byte };
            let segment = segment.clone();
            top.push(score, key, HitRow::File(FileRow { segment, passage, inode }));
        }
        Ok(())
    }
}
