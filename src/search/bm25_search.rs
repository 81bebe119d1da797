//! Text queries: BM25 over the visible records of all places, as in one fresh index over them.

use std::sync::Arc;

use super::SearchError;
use super::matched_terms::{LayerTerms, MatchedTerms};
use super::scan::{Scan, Scored};
use super::top::{Ranked, Top};
use crate::segment::Row;
use crate::text::{Collection, Language, MaxScore, Scorer};

/// The best records so far: equal scores in the order of ids, then of places.
type BestRows = Top<f64, (Arc<str>, usize), Row>;

/// Returns the `k` records of all places with the best scores: best first, equal scores by id, then by place. Records with
/// none of the query's words have no score and are never returned.
pub fn best(
    scans: &[Scan<'_>],
    text: &str,
    language: Option<&Language>,
    k: usize,
) -> Result<Vec<Scored<f64>>, SearchError> {
    let MatchedTerms { terms, groups, holding, layers } = MatchedTerms::find(scans, text, language)?;
    let mut collection = Collection::default();
    for totals in scans.iter().map(|scan| scan.state.totals()) {
        collection.documents += totals.records;
        collection.length += totals.terms;
    }
    let scorer = Scorer::new(collection, groups, &holding);
    let (mut top, mut layers): (BestRows, _) = (Top::new(k), layers.into_iter());
    for scan in scans {
        score_unsealed(scan, &terms, &scorer, &mut top)?;
        for (number, terms) in layers.by_ref().take(scan.state.layers().len()).enumerate() {
            score_layer(scan, number, terms, &scorer, &mut top)?;
        }
        scan.check_time()?;
    }
    let scored = |entry: Ranked<f64, (Arc<str>, usize), Row>| {
        let (id, place) = entry.id;
        Scored { place, id, row: entry.payload, score: entry.score }
    };
    Ok(top.into_sorted().into_iter().map(scored).collect())
}

fn score_unsealed(scan: &Scan<'_>, terms: &[Box<str>], scorer: &Scorer, top: &mut BestRows) -> Result<(), SearchError> {
    let mut counts = vec![0; terms.len()];
    for version in scan.state.unsealed().values() {
        scan.clock.spend(1 + terms.len())?;
        let words = version.words();
        counts.iter_mut().zip(terms).for_each(|(count, term)| *count = words.count(term));
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let score = scorer.score(version.terms, &counts);
        if score >= floor(top) && scan.lets_through(version.metadata()) {
            top.push(score, (version.id.clone(), scan.place), Row::Unsealed(version.clone()));
        }
    }
    Ok(())
}

fn score_layer(
    scan: &Scan<'_>,
    number: usize,
    LayerTerms { postings, lists }: LayerTerms<'_>,
    scorer: &Scorer,
    top: &mut BestRows,
) -> Result<(), SearchError> {
    let (segment, steps) = (&scan.state.layers()[number].segment, 1 + lists.len());
    let (mut rows, mut from) = (MaxScore::new(lists, scorer), 0);
    while let Some(row) = rows.seek(from, floor(top)) {
        from = row + 1;
        scan.clock.spend(steps)?;
        if row < segment.rows()
            && scan.sees(number, row)
            && let Some(score) = rows.score(row, postings.length(row), scorer, floor(top))
            && score >= floor(top)
        {
            let id = (segment.id(row)?.into(), scan.place);
            top.push(score, id, Row::Sealed(segment.clone(), row));
        }
    }
    Ok(())
}

/// The least score with which a record may be among the best.
fn floor(top: &BestRows) -> f64 {
    top.worst().unwrap_or(f64::NEG_INFINITY)
}
