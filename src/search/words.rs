//! Text questions: BM25 over the visible records, as in one fresh index over them.

use std::sync::Arc;

use super::SearchError;
use super::scan::{Scan, Scored};
use super::top::Top;
use crate::segment::Row;
use crate::text::{Collection, Scorer, Union, question_terms};

/// Rows between two looks at the clock.
const ROWS_AT_ONCE: usize = 4096;

/// Returns the `k` records with the best scores: best first, equal scores by id. Records with none
/// of the question's words have no score and are never returned.
pub fn best(scan: &Scan<'_>, text: &str, k: usize) -> Result<Vec<Scored<f64>>, SearchError> {
    let terms = question_terms(text);
    let totals = scan.state.totals();
    let collection = Collection { documents: totals.records, length: totals.terms };
    let scorer = Scorer::new(collection, &holding(scan, &terms)?);
    let mut top: Top<f64, Arc<str>, Row> = Top::new(k);
    for version in scan.state.loose().values() {
        let words = version.words();
        let counts: Vec<u32> = terms.iter().map(|term| words.count(term)).collect();
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let score = scorer.score(version.terms, &counts);
        if admits(&top, score) && scan.filter.is_none_or(|filter| filter.matches(version.metadata())) {
            top.push(score, version.id.clone(), Row::Loose(version.clone()));
        }
    }
    for (number, layer) in scan.state.layers().iter().enumerate() {
        let postings = layer.segment.postings()?;
        let mut union = Union::new(&postings, &terms);
        let (mut from, mut steps) = (0, 0);
        while let Some((row, counts)) = union.seek(from) {
            from = row + 1;
            steps += 1;
            if steps % ROWS_AT_ONCE == 0 {
                scan.check_time()?;
            }
            if row < layer.segment.rows() && scan.sees(number, row) {
                let score = scorer.score(postings.length(row), counts);
                if admits(&top, score) {
                    top.push(score, layer.segment.id(row)?.into(), Row::Sealed(layer.segment.clone(), row));
                }
            }
        }
    }
    Ok(top.into_sorted().into_iter().map(|entry| Scored { row: entry.payload, score: entry.score }).collect())
}

/// Tells whether a record with that score may be among the best.
fn admits(top: &Top<f64, Arc<str>, Row>, score: f64) -> bool {
    top.worst().is_none_or(|worst| score >= worst)
}

/// How many visible records hold each term.
fn holding(scan: &Scan<'_>, terms: &[Box<str>]) -> Result<Vec<u64>, SearchError> {
    let mut holding = vec![0; terms.len()];
    for version in scan.state.loose().values() {
        let words = version.words();
        for (count, term) in holding.iter_mut().zip(terms) {
            *count += u64::from(words.count(term) > 0);
        }
    }
    for layer in scan.state.layers() {
        let postings = layer.segment.postings()?;
        for (count, term) in holding.iter_mut().zip(terms) {
            let Some(list) = postings.term(term) else { continue };
            *count += match layer.visible.is_all() {
                true => u64::from(list.documents()),
                false => {
                    list.filter(|(row, _)| *row < layer.segment.rows() && layer.visible.contains(*row)).count() as u64
                }
            };
        }
        scan.check_time()?;
    }
    Ok(holding)
}
