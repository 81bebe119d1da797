//! Text queries: BM25 over the visible records of all places, as in one fresh index over them.

use std::sync::Arc;

use super::SearchError;
use super::matched_terms::{MatchedTerms, TERM_STEPS};
use super::scan::{Scan, Scored};
use super::top::{Ranked, Top};
use crate::segment::Row;
use crate::text::{Collection, Language, Scorer, Union};

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
    let MatchedTerms { terms, groups, holding } = MatchedTerms::find(scans, text, language)?;
    let mut collection = Collection::default();
    for totals in scans.iter().map(|scan| scan.state.totals()) {
        collection.documents += totals.records;
        collection.length += totals.terms;
    }
    let scorer = Scorer::new(collection, groups, &holding);
    let mut top: BestRows = Top::new(k);
    for scan in scans {
        score_unsealed(scan, &terms, &scorer, &mut top)?;
        score_layers(scan, &terms, &scorer, &mut top)?;
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
        if admits(top, score) && scan.lets_through(version.metadata()) {
            top.push(score, (version.id.clone(), scan.place), Row::Unsealed(version.clone()));
        }
    }
    Ok(())
}

fn score_layers(scan: &Scan<'_>, terms: &[Box<str>], scorer: &Scorer, top: &mut BestRows) -> Result<(), SearchError> {
    for (number, layer) in scan.state.layers().iter().enumerate() {
        scan.clock.spend(terms.len() * TERM_STEPS)?;
        let postings = layer.segment.postings()?;
        let (mut union, mut from) = (Union::new(&postings, terms), 0);
        while let Some((row, counts)) = union.seek(from) {
            from = row + 1;
            scan.clock.spend(1 + terms.len())?;
            if row < layer.segment.rows() && scan.sees(number, row) {
                let score = scorer.score(postings.length(row), counts);
                if admits(top, score) {
                    let id = (layer.segment.id(row)?.into(), scan.place);
                    top.push(score, id, Row::Sealed(layer.segment.clone(), row));
                }
            }
        }
    }
    Ok(())
}

/// Tells whether a record with that score may be among the best.
fn admits(top: &BestRows, score: f64) -> bool {
    top.worst().is_none_or(|worst| score >= worst)
}
