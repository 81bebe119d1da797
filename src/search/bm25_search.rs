//! Text queries: BM25 over the visible records, as in one fresh index over them.

use std::sync::Arc;

use super::SearchError;
use super::scan::{Scan, Scored};
use super::top::Top;
use crate::segment::Row;
use crate::text::{Collection, Scorer, Union, question_terms};

/// What it takes to find a term in an index, in steps of the clock.
const TERM_STEPS: usize = 64;
/// What it takes to count a term in a record.
const COUNT_STEPS: usize = 4;

/// Returns the `k` records with the best scores: best first, equal scores by id. Records with none
/// of the query's words have no score and are never returned.
pub fn best(scan: &Scan<'_>, text: &str, k: usize) -> Result<Vec<Scored<f64>>, SearchError> {
    let (terms, holding) = terms_held(scan, text)?;
    let totals = scan.state.totals();
    let collection = Collection { documents: totals.records, length: totals.terms };
    let scorer = Scorer::new(collection, &holding);
    let mut top: Top<f64, Arc<str>, Row> = Top::new(k);
    let mut counts = vec![0; terms.len()];
    for version in scan.state.unsealed().values() {
        scan.clock.spend(1 + terms.len())?;
        let words = version.words();
        counts.iter_mut().zip(&terms).for_each(|(count, term)| *count = words.count(term));
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let score = scorer.score(version.terms, &counts);
        if admits(&top, score) && scan.lets_through(version.metadata()) {
            top.push(score, version.id.clone(), Row::Unsealed(version.clone()));
        }
    }
    for (number, layer) in scan.state.layers().iter().enumerate() {
        scan.clock.spend(terms.len() * TERM_STEPS)?;
        let postings = layer.segment.postings()?;
        let (mut union, mut from) = (Union::new(&postings, &terms), 0);
        while let Some((row, counts)) = union.seek(from) {
            from = row + 1;
            scan.clock.spend(1 + terms.len())?;
            if row < layer.segment.rows() && scan.sees(number, row) {
                let score = scorer.score(postings.length(row), counts);
                if admits(&top, score) {
                    top.push(score, layer.segment.id(row)?.into(), Row::Sealed(layer.segment.clone(), row));
                }
            }
        }
    }
    scan.check_time()?;
    Ok(top.into_sorted().into_iter().map(|entry| Scored { row: entry.payload, score: entry.score }).collect())
}

/// Tells whether a record with that score may be among the best.
fn admits(top: &Top<f64, Arc<str>, Row>, score: f64) -> bool {
    top.worst().is_none_or(|worst| score >= worst)
}

/// Returns the terms of a query that some visible record holds, and how many hold each.
fn terms_held(scan: &Scan<'_>, text: &str) -> Result<(Vec<Box<str>>, Vec<u64>), SearchError> {
    let terms = question_terms(text);
    let holding = holding(scan, &terms)?;
    Ok(terms.into_iter().zip(holding).filter(|(_, holding)| *holding > 0).unzip())
}

/// How many visible records hold each term.
fn holding(scan: &Scan<'_>, terms: &[Box<str>]) -> Result<Vec<u64>, SearchError> {
    let mut holding = vec![0; terms.len()];
    for version in scan.state.unsealed().values() {
        let words = version.words();
        scan.clock.spend(terms.len() * COUNT_STEPS)?;
        for (count, term) in holding.iter_mut().zip(terms) {
            *count += u64::from(words.count(term) > 0);
        }
    }
    for layer in scan.state.layers() {
        let postings = layer.segment.postings()?;
        for (count, term) in holding.iter_mut().zip(terms) {
            scan.clock.spend(TERM_STEPS)?;
            let Some(list) = postings.term(term) else { continue };
            if layer.visible.is_all() {
                *count += u64::from(list.documents());
                continue;
            }
            scan.clock.spend(list.documents() as usize)?;
            *count +=
                list.filter(|(row, _)| *row < layer.segment.rows() && layer.visible.contains(*row)).count() as u64;
        }
    }
    Ok(holding)
}
