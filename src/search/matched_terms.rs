//! Which words of the searched records a query looks for, and how many records hold each.

use std::collections::BTreeSet;

use super::SearchError;
use super::scan::Scan;
use crate::text::{Language, QueryTerms, STEM_WEIGHT, TermGroup, stem_prefix};

/// What it takes to find a term in an index, in steps of the clock.
pub const TERM_STEPS: usize = 64;
/// What it takes to count a term in a record.
const COUNT_STEPS: usize = 4;
/// What it takes to find the stem of a word.
const STEM_STEPS: usize = 8;

/// Terms that some visible record holds: the query's words, and words that share their stems.
pub struct MatchedTerms {
    /// The terms, each once.
    pub terms: Vec<Box<str>>,
    /// What counts as one word.
    pub groups: Vec<TermGroup>,
    /// How many visible records of all places hold each term.
    pub holding: Vec<u64>,
}

impl MatchedTerms {
    /// Looks for the words of a text in all places.
    pub fn find(scans: &[Scan<'_>], text: &str, language: Option<&Language>) -> Result<MatchedTerms, SearchError> {
        let QueryTerms { exact, stems } = QueryTerms::of(text, language);
        let mut words: Vec<(f64, Vec<Box<str>>)> =
            exact.into_iter().map(|(term, weight)| (weight, vec![term])).collect();
        for stem in language.into_iter().flat_map(|language| stems.iter().map(move |stem| (language, stem))) {
            words.push((STEM_WEIGHT, sharing_stem(scans, stem.0, stem.1)?.into_iter().collect()));
        }
        let all: BTreeSet<&Box<str>> = words.iter().flat_map(|(_, terms)| terms).collect();
        let all: Vec<Box<str>> = all.into_iter().cloned().collect();
        let holding = holding(scans, &all)?;
        let (terms, holding): (Vec<Box<str>>, Vec<u64>) =
            all.into_iter().zip(holding).filter(|(_, holding)| *holding > 0).unzip();
        let group = |(weight, words): (f64, Vec<Box<str>>)| {
            let members: Vec<usize> = words.iter().filter_map(|word| terms.binary_search(word).ok()).collect();
            (!members.is_empty()).then_some(TermGroup { weight, members })
        };
        let groups = words.into_iter().filter_map(group).collect();
        Ok(MatchedTerms { terms, groups, holding })
    }
}

/// Returns the terms in all places that have a stem.
fn sharing_stem(scans: &[Scan<'_>], language: &Language, stem: &str) -> Result<BTreeSet<Box<str>>, SearchError> {
    let (prefix, mut found) = (stem_prefix(stem), BTreeSet::new());
    let mut consider = |term: &str| {
        if !found.contains(term) && language.stem(term).is_some_and(|other| *other == *stem) {
            found.insert(Box::from(term));
        }
    };
    for scan in scans {
        for version in scan.state.unsealed().values() {
            scan.clock.spend(COUNT_STEPS)?;
            version.words().starting_with(prefix).for_each(|(term, _)| consider(term));
        }
        for layer in scan.state.layers() {
            scan.clock.spend(TERM_STEPS)?;
            for term in layer.segment.postings()?.terms_starting_with(prefix) {
                scan.clock.spend(STEM_STEPS)?;
                consider(term);
            }
        }
    }
    Ok(found)
}

/// Returns how many visible records of all places hold each term.
fn holding(scans: &[Scan<'_>], terms: &[Box<str>]) -> Result<Vec<u64>, SearchError> {
    let mut holding = vec![0; terms.len()];
    for scan in scans {
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
    }
    Ok(holding)
}
