//! Text queries: BM25 over the visible records of all sources and the files, as in one fresh index over them.

use std::sync::Arc;

use super::SearchError;
use super::exact_gate::{AdmittedRows, ExactGate};
use super::file_scan::FileScan;
use super::matched_terms::{LayerTerms, MatchedTerms};
use super::query_timer::QueryTimer;
use super::scan::Scan;
use super::seen_rows::{SeenRows, SeenWalk};
use super::top::{Ranked, Top};
use crate::file_index::{IndexSegment, PassageLocation};
use crate::segment::Row;
use crate::text::{CollectionTotals, Language, MaxScore, PostingList, Postings, QueryTerms, Scorer};

/// Identifies a record or passage that has words of a query. Equal scores are ordered by id, then by source; files come
/// last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HitKey {
    /// A record, and the number of its source: the same id in two sources is two hits.
    Record(Arc<str>, usize),
    /// A passage of a file. Several files may show one passage: each is a hit.
    File {
        /// The file's path below `files/`; it need not be UTF-8.
        path: Vec<u8>,
        /// The passage's first line.
        line: u32,
        /// Offset of its first byte, as several passages may begin in one long line.
        start_byte: u32,
    },
}

/// Where a hit is read from, once it is known to be among the best.
#[derive(Clone)]
pub enum HitRow {
    /// A record's version, in a segment or in memory.
    Record(Row),
    /// A passage, whose text is read from the file only for hits that are answered.
    File(FileRow),
}

/// A passage that is a hit, by its place in the index and the file that shows it.
#[derive(Clone)]
pub struct FileRow {
    /// The segment that the passage was found in, which this keeps open.
    pub segment: Arc<IndexSegment>,
    /// Where in the file its text is, and the key that this text must still have.
    pub passage: PassageLocation,
    /// The file's number in the tree of the branch: the text is read from this file.
    pub inode: u64,
}

/// A hit by words with its BM25 score.
pub type TextHit = Ranked<f64, HitKey, HitRow>;

/// The best hits by words, of records and passages together; equal scores go by [`HitKey`].
pub type BestRows = Top<f64, HitKey, HitRow>;

/// Returns the `k` records and passages of all sources with the best scores, best first. What holds none of the query's
/// words has no score and is never returned. Equal scores go by id. [`SearchError::Timeout`] once the time is over,
/// [`SearchError::Segment`] if postings can't be read or are damaged.
pub fn best(
    scans: &[Scan<'_>],
    files: Option<&FileScan<'_>>,
    words: QueryTerms,
    language: Option<&Language>,
    k: usize,
) -> Result<Vec<TextHit>, SearchError> {
    let MatchedTerms { terms, groups, record_counts, layers, parts, gate } =
        MatchedTerms::find(scans, files, words, language)?;
    let mut collection = files.map_or_else(CollectionTotals::default, |files| files.files.passage_totals());
    // A term weighs by how rare it is in all sources together. With counts of each source alone, scores of different
    // sources could not be compared.
    for totals in scans.iter().map(|scan| scan.state.totals()) {
        collection.documents += totals.records;
        collection.length += totals.terms;
    }
    let scorer = Scorer::new(collection, groups, &record_counts);
    let (mut top, mut layers): (BestRows, _) = (Top::new(k), layers.into_iter());
    for scan in scans {
        score_unsealed(scan, (&terms, &gate), &scorer, &mut top)?;
        // `MatchedTerms` lists the layers of all sources one after the other, in the order of `scans`.
        for (number, terms) in layers.by_ref().take(scan.state.layers().len()).enumerate() {
            score_layer(scan, number, terms, &scorer, &mut top)?;
        }
        scan.check_time()?;
    }
    if let Some(files) = files {
        files.score((&terms, &parts), &scorer, &mut top)?;
        files.timer.check()?;
    }
    Ok(top.into_sorted())
}

fn score_unsealed(
    scan: &Scan<'_>,
    (terms, gate): (&[Box<str>], &ExactGate),
    scorer: &Scorer,
    top: &mut BestRows,
) -> Result<(), SearchError> {
    let mut counts = vec![0; terms.len()];
    for version in scan.state.unsealed().values() {
        scan.timer.spend(1 + terms.len())?;
        let frequencies = version.term_frequencies();
        let held = gate.held_by(scan, version);
        for ((number, count), term) in counts.iter_mut().enumerate().zip(terms) {
            *count = if gate.admits(number, &held) { frequencies.count(term) } else { 0 };
        }
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let score = scorer.score(version.terms, &counts);
        // The filter comes last, since most versions fall short of the floor. An equal score may still enter by its id.
        if score >= score_floor(top) && scan.passes_filter(version) {
            let id = HitKey::Record(version.id.clone(), scan.source_index);
            top.push(score, id, HitRow::Record(Row::Unsealed(version.clone())));
        }
    }
    Ok(())
}

fn score_layer(
    scan: &Scan<'_>,
    number: usize,
    LayerTerms { postings, lists, admitted }: LayerTerms<'_>,
    scorer: &Scorer,
    top: &mut BestRows,
) -> Result<(), SearchError> {
    let (segment, seen) = (&scan.state.layers()[number].segment, scan.seen_rows(number));
    score_rows((&seen, scan.timer), (&postings, lists, &admitted), scorer, top, |row, score, top| {
        let id = HitKey::Record(segment.id(row)?.into(), scan.source_index);
        top.push(score, id, HitRow::Record(Row::Sealed(segment.clone(), row)));
        Ok(())
    })
}

/// Calls `offer` with the seen rows of one index that may be among the best, and their scores. Fails like `offer`, and
/// with [`SearchError::Timeout`] once the time is over.
pub fn score_rows(
    (seen, timer): (&impl SeenRows, &QueryTimer<'_>),
    (postings, lists, admitted): (&Postings<'_>, Vec<Option<PostingList<'_>>>, &AdmittedRows),
    scorer: &Scorer,
    top: &mut BestRows,
    mut offer: impl FnMut(u32, f64, &mut BestRows) -> Result<(), SearchError>,
) -> Result<(), SearchError> {
    let mut walk = SeenWalk::new(seen, postings.rows(), 1 + lists.len(), timer);
    let mut rows = MaxScore::new(lists, scorer);
    while let Some(row) = walk.next(|from| rows.seek(from, score_floor(top)))? {
        let admits = |term| admitted.admits(term, row);
        // The score is 0 where all words that the row holds are bound to phrases that it lacks.
        if let Some(score) = rows.score(row, postings.length(row), scorer, score_floor(top), admits)
            && score > 0.0
            && score >= score_floor(top)
        {
            offer(row, score, top)?;
        }
    }
    Ok(())
}

/// The least score with which something may be among the best.
fn score_floor(top: &BestRows) -> f64 {
    top.worst().unwrap_or(f64::NEG_INFINITY)
}
