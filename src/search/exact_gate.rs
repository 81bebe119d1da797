//! Words that a query has in quoted phrases and identifiers alone count only where one of these stands as it is written:
//! `err` of `ERR_CONN_42` is no word of a document that has `ERR_CONN_43`.
//!
//! An index does not know where in a document its words are: of the rows that hold all words of a phrase, the texts are
//! read.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use serde_json::Value;

use super::SearchError;
use super::file_scan::{FileScan, PATH_STEPS};
use super::matched_terms::TERM_STEPS;
use super::query_timer::QueryTimer;
use super::scan::Scan;
use super::seen_rows::{LayerRows, SEEK_STEPS, SeenRows, SeenWalk};
use crate::branch::Layer;
use crate::file_index::VisiblePart;
use crate::record::Version;
use crate::text::{ExactPhrase, Phrase, PostingList, Postings};

/// What it takes to read the document of a row, beside its bytes, in steps of the timer.
const ROW_STEPS: usize = 64;

/// Of each term the visible rows of one index in which it counts if they hold it; all for `None`, and for each term if it
/// is empty.
pub struct AdmittedRows(Vec<Option<RoaringBitmap>>);

impl AdmittedRows {
    /// Returns whether a term counts in a row that holds it.
    #[inline]
    pub fn admits(&self, term: usize, row: u32) -> bool {
        self.0.get(term).and_then(Option::as_ref).is_none_or(|rows| rows.contains(row))
    }

    /// Returns the visible rows of a term's list in which it counts; `None` if it counts in all. A row may have a phrase
    /// and not hold each of its terms: `net::c++` has `c++`, and is itself the term.
    pub fn rows_in_list(&self, term: usize, list: &PostingList<'_>) -> Option<impl Iterator<Item = u32>> {
        let rows = self.0.get(term)?.as_ref()?;
        let (mut list, mut at) = (list.clone(), None);
        Some(rows.iter().filter(move |row| holds(&mut list, &mut at, *row)))
    }

    /// Drops the terms of which `counts` is 0.
    pub fn retain_held(&mut self, counts: &[u64]) {
        retain_held(&mut self.0, counts);
    }
}

/// The exact phrases of a query, and which of its terms are bound to them.
pub struct ExactGate {
    phrases: Vec<ExactPhrase>,
    /// Of each term the places of its phrases; empty for one that counts wherever it is.
    bound: Vec<Vec<usize>>,
}

impl ExactGate {
    /// Binds those of the terms that `bound` has.
    pub fn new(
        terms: &[Box<str>],
        phrases: Vec<ExactPhrase>,
        bound: &BTreeMap<Box<str>, BTreeSet<usize>>,
    ) -> ExactGate {
        // Without phrases no list is kept, however many terms there are.
        let terms: &[Box<str>] = if phrases.is_empty() { &[] } else { terms };
        let places = |term: &str| bound.get(term).into_iter().flatten().copied().collect::<Vec<usize>>();
        ExactGate { phrases, bound: terms.iter().map(|term| places(term)).collect() }
    }

    /// Drops the terms of which `counts` is 0.
    pub fn retain_held(&mut self, counts: &[u64]) {
        retain_held(&mut self.bound, counts);
    }

    /// Returns which of the phrases an unsealed version has; of those that have to be looked for in its text it has none
    /// once the time is over.
    pub fn held_by(&self, scan: &Scan<'_>, version: &Version) -> Vec<bool> {
        let has_term = |term: &str| version.term_frequencies().count(term) > 0;
        let (text, metadata) = (version.content.text.as_deref(), &version.content.metadata);
        let has = |ExactPhrase { term, phrase }: &ExactPhrase| {
            term.as_deref().is_some_and(has_term)
                || phrase.terms().all(has_term)
                    && !scan.timer.charge(text.map_or(0, str::len) + metadata.len())
                    && phrase.is_in_document(text, &version.content.metadata_value())
        };
        self.phrases.iter().map(has).collect()
    }

    /// Returns whether a term counts in a version of which `held` are the phrases that it has.
    pub fn admits(&self, term: usize, held: &[bool]) -> bool {
        self.bound.get(term).is_none_or(|places| places.is_empty() || places.iter().any(|place| held[*place]))
    }

    /// Returns where in a layer each term counts. [`SearchError::Timeout`] once the time is over,
    /// [`SearchError::Segment`] if a row can't be read or is damaged.
    pub fn rows_in_layer(
        &self,
        scan: &Scan<'_>,
        layer: &Layer,
        postings: &Postings<'_>,
    ) -> Result<AdmittedRows, SearchError> {
        let segment = &layer.segment;
        self.admitted(postings, scan.timer, &LayerRows::new(layer, None), |phrase, row| {
            let (text, metadata) = segment.text_and_metadata(row)?;
            scan.timer.spend(ROW_STEPS + text.as_ref().map_or(0, String::len) + metadata.len())?;
            if text.is_some_and(|text| phrase.is_in(&text)) {
                return Ok(true);
            }
            let metadata: Value = serde_json::from_str(&metadata).unwrap_or_default();
            Ok(phrase.is_in_document(None, &metadata))
        })
    }

    /// Returns where in a part of the files each term counts. A phrase has to stand in the passage itself, or be one term
    /// of it. Fails like [`FileScan::score`], and if a passage can't be read from its file.
    pub fn rows_in_part(
        &self,
        files: &FileScan<'_>,
        part: &VisiblePart,
        postings: &Postings<'_>,
    ) -> Result<AdmittedRows, SearchError> {
        self.admitted(postings, files.timer, part, |phrase, row| {
            files.timer.spend(PATH_STEPS)?;
            let passage = part.segment.passage_location(row)?;
            // Whichever of the files that show a passage: all have the same text.
            let paths = files.files.files_with_passage(&part.segment, row)?;
            let Some(file) = paths.first() else { return Ok(false) };
            files.timer.spend(ROW_STEPS + passage.length_bytes as usize)?;
            Ok(phrase.is_in(&(files.source.read)(&part.segment, &passage, file.inode)?))
        })
    }

    /// Returns where each term counts: in the seen rows that hold one of its phrases as a term, or of which `has`
    /// says that they have it.
    fn admitted(
        &self,
        postings: &Postings<'_>,
        timer: &QueryTimer<'_>,
        seen: &impl SeenRows,
        has: impl Fn(&Phrase, u32) -> Result<bool, SearchError>,
    ) -> Result<AdmittedRows, SearchError> {
        let mut rows = Vec::with_capacity(self.phrases.len());
        for ExactPhrase { term, phrase } in &self.phrases {
            let (mut whole, mut at) = (term.as_ref().and_then(|term| postings.term(term)), None);
            rows.push(rows_with_phrase(postings, phrase, (seen, timer), |row| {
                if let Some(list) = &mut whole {
                    timer.spend(SEEK_STEPS)?;
                    if holds(list, &mut at, row) {
                        return Ok(true);
                    }
                }
                has(phrase, row)
            })?);
        }
        let admitted = |places: &Vec<usize>| {
            let union = |all: RoaringBitmap, place: &usize| all | &rows[*place];
            (!places.is_empty()).then(|| places.iter().fold(RoaringBitmap::new(), union))
        };
        Ok(AdmittedRows(self.bound.iter().map(admitted).collect()))
    }
}

/// Returns the seen rows that hold all words of a phrase and of which `has` says that they have it; it is asked of rows
/// that ascend.
fn rows_with_phrase(
    postings: &Postings<'_>,
    phrase: &Phrase,
    (seen, timer): (&impl SeenRows, &QueryTimer<'_>),
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
    let Some((mut rarest, _)) = lists.next() else { return Ok(found) };
    let mut others: Vec<(PostingList<'_>, Option<u32>)> = lists.collect();
    let mut walk = SeenWalk::new(seen, rarest.documents(), 1 + others.len(), timer);
    while let Some(row) = walk.next_in(&mut rarest)? {
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

/// Drops the items of the terms that nobody holds; of terms without items nothing.
pub fn retain_held<T>(items: &mut Vec<T>, counts: &[u64]) {
    let mut counts = counts.iter();
    items.retain(|_| counts.next().is_some_and(|count| *count > 0));
}
