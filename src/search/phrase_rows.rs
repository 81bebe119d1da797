//! Which rows have a phrase. An index does not know where in a document its words are: of the rows that hold all words
//! of the phrase, the texts are read.

use roaring::RoaringBitmap;
use serde_json::Value;

use super::SearchError;
use super::file_scan::{FileScan, PATH_STEPS};
use super::matched_terms::TERM_STEPS;
use super::query_timer::QueryTimer;
use super::scan::Scan;
use crate::branch::Layer;
use crate::file_index::VisiblePart;
use crate::record::Version;
use crate::text::{Phrase, PostingList, Postings};

/// What it takes to read the document of a row, beside its bytes, in steps of the timer.
const ROW_STEPS: usize = 64;

/// Returns the rows of a layer that may be answers and have a phrase. `is_known` says of some rows that they have it,
/// and spares reading them. [`SearchError::Timeout`] once the time is over, [`SearchError::Segment`] if postings or a
/// row can't be read or are damaged.
pub fn rows_in_layer(
    layer: &Layer,
    phrase: &Phrase,
    timer: &QueryTimer<'_>,
    is_wanted: impl Fn(u32) -> bool,
    is_known: impl Fn(u32) -> bool,
) -> Result<RoaringBitmap, SearchError> {
    let segment = &layer.segment;
    rows_with_phrase(&segment.postings()?, phrase, timer, |row| {
        // A damaged list may name a row that the segment has not got.
        if row >= segment.rows() || !layer.visible.contains(row) || !is_wanted(row) {
            return Ok(false);
        }
        if is_known(row) {
            return Ok(true);
        }
        let (text, metadata) = segment.text_and_metadata(row)?;
        timer.spend(ROW_STEPS + text.as_ref().map_or(0, String::len) + metadata.len())?;
        if text.is_some_and(|text| phrase.is_in(&text)) {
            return Ok(true);
        }
        let metadata: Value = serde_json::from_str(&metadata).unwrap_or_default();
        Ok(phrase.is_in_document(None, &metadata))
    })
}

impl Scan<'_> {
    /// Returns whether an unsealed version has a phrase; none has once the time is over.
    pub fn version_has(&self, version: &Version, phrase: &Phrase) -> bool {
        let frequencies = version.term_frequencies();
        if phrase.terms().any(|term| frequencies.count(term) == 0) {
            return false;
        }
        let (text, metadata) = (version.content.text.as_deref(), &version.content.metadata);
        !self.timer.charge(text.map_or(0, str::len) + metadata.len())
            && phrase.is_in_document(text, &version.content.metadata_value())
    }
}

impl FileScan<'_> {
    /// Returns the rows of a part that the caller may see and that have a phrase, in the passage itself: the headings
    /// above it do not count. `is_known` says of some rows that they have it, and spares reading them. Fails like
    /// [`FileScan::score`], and if a passage can't be read from its file.
    pub fn rows_in_part(
        &self,
        part: &VisiblePart,
        phrase: &Phrase,
        is_known: impl Fn(u32) -> bool,
    ) -> Result<RoaringBitmap, SearchError> {
        rows_with_phrase(&part.segment.postings()?, phrase, self.timer, |row| {
            if part.file_count(row) == 0 {
                return Ok(false);
            }
            if is_known(row) {
                return Ok(true);
            }
            self.timer.spend(PATH_STEPS)?;
            let passage = part.segment.passage_location(row)?;
            // Whichever of the files that show a passage: all have the same text.
            let files = self.files.files_with_passage(&part.segment, row)?;
            let Some(file) = files.first() else { return Ok(false) };
            self.timer.spend(ROW_STEPS + passage.length_bytes as usize)?;
            Ok(phrase.is_in(&(self.source.read)(&part.segment, &passage, file.inode)?))
        })
    }
}

/// Returns the rows that hold all words of a phrase and of which `has` says that they have it.
fn rows_with_phrase(
    postings: &Postings<'_>,
    phrase: &Phrase,
    timer: &QueryTimer<'_>,
    mut has: impl FnMut(u32) -> Result<bool, SearchError>,
) -> Result<RoaringBitmap, SearchError> {
    let (mut lists, mut found) = (Vec::new(), RoaringBitmap::new());
    for term in phrase.terms() {
        timer.spend(TERM_STEPS)?;
        let Some(list) = postings.term(term) else { return Ok(found) };
        lists.push((list, None));
    }
    // The rarest word leads, so that the other lists are passed over in leaps.
    lists.sort_by_key(|(list, _)| list.documents());
    let mut lists = lists.into_iter();
    let Some((rarest, _)) = lists.next() else { return Ok(found) };
    let mut others: Vec<(PostingList<'_>, Option<u32>)> = lists.collect();
    for (row, _) in rarest {
        timer.spend(1 + others.len())?;
        if others.iter_mut().all(|(list, at)| holds(list, at, row)) && has(row)? {
            found.insert(row);
        }
    }
    Ok(found)
}

/// Returns whether a list has a row; `at` is the row that it was brought to last. Rows ascend from call to call.
fn holds(list: &mut PostingList<'_>, at: &mut Option<u32>, row: u32) -> bool {
    if at.is_none_or(|at| at < row) {
        *at = list.seek(row).map(|(found, _)| found);
    }
    *at == Some(row)
}
