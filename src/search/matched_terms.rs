//! Which words of the searched records and files a query looks for, and how many of them hold each.

use std::collections::BTreeSet;

use super::SearchError;
use super::exact_gate::{AdmittedRows, ExactGate, retain_held};
use super::file_scan::FileScan;
use super::query_timer::QueryTimer;
use super::scan::Scan;
use super::seen_rows::{LayerRows, SEEK_STEPS, SeenRows, count_seen};
use crate::text::{Language, PostingList, Postings, QueryTerms, STEM_WEIGHT, TermGroup, stem_prefix};

/// What it takes to find a term in an index, in steps of the timer.
pub const TERM_STEPS: usize = 64;
/// What it takes to count a term in a record.
const COUNT_STEPS: usize = 4;
/// What it takes to find the stem of a word.
const STEM_STEPS: usize = 8;

/// Terms that some visible record holds: the query's words, and words that share their stems.
pub struct MatchedTerms<'a> {
    /// The terms, each once, sorted.
    pub terms: Vec<Box<str>>,
    /// What counts as one word.
    pub groups: Vec<TermGroup>,
    /// In how many visible records of all sources each term counts.
    pub record_counts: Vec<u64>,
    /// The index of each layer of each source, in order.
    pub layers: Vec<LayerTerms<'a>>,
    /// Where each term counts in each part of the files, in order.
    pub parts: Vec<AdmittedRows>,
    /// In which unsealed records each term counts.
    pub gate: ExactGate,
}

/// The index of one layer and what it has of the terms.
pub struct LayerTerms<'a> {
    /// The inverted index, in which `lists` lie.
    pub postings: Postings<'a>,
    /// Of each term where it is in the index; `None` if it is not.
    pub lists: Vec<Option<PostingList<'a>>>,
    /// Where each term counts.
    pub admitted: AdmittedRows,
}

impl<'a> MatchedTerms<'a> {
    /// Looks for the words of a query in all sources. Words that no source holds are left out. [`SearchError::Timeout`]
    /// once the time is over, [`SearchError::Segment`] if postings can't be read or are damaged.
    pub fn find(
        scans: &'a [Scan<'_>],
        files: Option<&FileScan<'_>>,
        words: QueryTerms,
        language: Option<&Language>,
    ) -> Result<Self, SearchError> {
        let QueryTerms { exact, stems, phrases, mut bound } = words;
        let mut words: Vec<(f64, Vec<Box<str>>)> =
            exact.into_iter().map(|(term, weight)| (weight, vec![term])).collect();
        for stem in language.into_iter().flat_map(|language| stems.iter().map(move |stem| (language, stem))) {
            let terms = terms_with_stem(scans, files, stem.0, stem.1)?;
            // As a word with that stem it counts wherever it is.
            bound.retain(|term, _| !terms.contains(term));
            words.push((STEM_WEIGHT, terms.into_iter().collect()));
        }
        let all: BTreeSet<&Box<str>> = words.iter().flat_map(|(_, terms)| terms).collect();
        let all: Vec<Box<str>> = all.into_iter().cloned().collect();
        let mut gate = ExactGate::new(&all, phrases, &bound);
        let (mut layers, mut parts) = (Vec::new(), Vec::new());
        let mut record_counts = count_records(scans, (&all, &gate), &mut layers)?;
        if let Some(files) = files {
            add_files(&mut record_counts, files, (&all, &gate), &mut parts)?;
        }
        // Lists and counts are parallel: a term that nobody holds goes from all.
        for layer in &mut layers {
            retain_held(&mut layer.lists, &record_counts);
            layer.admitted.retain_held(&record_counts);
        }
        parts.iter_mut().for_each(|admitted| admitted.retain_held(&record_counts));
        gate.retain_held(&record_counts);
        let (terms, record_counts): (Vec<Box<str>>, Vec<u64>) =
            all.into_iter().zip(record_counts).filter(|(_, record_counts)| *record_counts > 0).unzip();
        let group = |(weight, words): (f64, Vec<Box<str>>)| {
            // `terms` came out of a `BTreeSet` and lost some, so it is still in order.
            let members: Vec<usize> = words.iter().filter_map(|word| terms.binary_search(word).ok()).collect();
            (!members.is_empty()).then_some(TermGroup { weight, members })
        };
        let groups = words.into_iter().filter_map(group).collect();
        Ok(MatchedTerms { terms, groups, record_counts, layers, parts, gate })
    }
}

/// Returns the terms in all sources that have a stem.
fn terms_with_stem(
    scans: &[Scan<'_>],
    files: Option<&FileScan<'_>>,
    language: &Language,
    stem: &str,
) -> Result<BTreeSet<Box<str>>, SearchError> {
    let (prefix, mut found) = (stem_prefix(stem), BTreeSet::new());
    let consider = |term: &str, found: &mut BTreeSet<Box<str>>| {
        if !found.contains(term) && language.stem(term).is_some_and(|other| *other == *stem) {
            found.insert(Box::from(term));
        }
    };
    for scan in scans {
        for version in scan.state.unsealed().values() {
            scan.timer.spend(COUNT_STEPS)?;
            version.term_frequencies().starting_with(prefix).for_each(|(term, _)| consider(term, &mut found));
        }
        for layer in scan.state.layers() {
            let spend = || scan.timer.spend(STEM_STEPS);
            found.extend(layer.segment.terms_with_stem(language, stem, spend)?.iter().cloned());
        }
    }
    for (part, files) in files.into_iter().flat_map(|files| files.files.parts().iter().map(move |part| (part, files))) {
        files.timer.spend(TERM_STEPS)?;
        // But for irregular ones, all terms with the stem begin with `prefix`, so few have to be stemmed.
        for term in part.segment.postings()?.terms_starting_with(prefix) {
            files.timer.spend(STEM_STEPS)?;
            consider(term, &mut found);
        }
    }
    Ok(found)
}

/// Returns in how many visible records of all sources each term counts, and adds all layers.
fn count_records<'a>(
    scans: &'a [Scan<'_>],
    (terms, gate): (&[Box<str>], &ExactGate),
    layers: &mut Vec<LayerTerms<'a>>,
) -> Result<Vec<u64>, SearchError> {
    let mut record_counts = vec![0; terms.len()];
    for scan in scans {
        for version in scan.state.unsealed().values() {
            let frequencies = version.term_frequencies();
            scan.timer.spend(terms.len() * COUNT_STEPS)?;
            let held = gate.held_by(scan, version);
            for ((number, count), term) in record_counts.iter_mut().enumerate().zip(terms) {
                *count += u64::from(frequencies.count(term) > 0 && gate.admits(number, &held));
            }
        }
        for layer in scan.state.layers() {
            let postings = layer.segment.postings()?;
            let admitted = gate.rows_in_layer(scan, layer, &postings)?;
            let rows = (&LayerRows::new(layer, None), &admitted);
            let lists = count_terms(&mut record_counts, terms, &postings, rows, scan.timer)?;
            layers.push(LayerTerms { postings, lists, admitted });
        }
    }
    Ok(record_counts)
}

/// Adds in how many passages of files each term counts, one that several files show in each, and where.
fn add_files(
    record_counts: &mut [u64],
    files: &FileScan<'_>,
    (terms, gate): (&[Box<str>], &ExactGate),
    parts: &mut Vec<AdmittedRows>,
) -> Result<(), SearchError> {
    for part in files.files.parts() {
        let postings = part.segment.postings()?;
        let admitted = gate.rows_in_part(files, part, &postings)?;
        count_terms(record_counts, terms, &postings, (part, &admitted), files.timer)?;
        parts.push(admitted);
    }
    Ok(())
}

/// Adds how often the rows of one index count in which each term does, and returns the terms' lists.
fn count_terms<'p>(
    record_counts: &mut [u64],
    terms: &[Box<str>],
    postings: &Postings<'p>,
    (seen, admitted): (&impl SeenRows, &AdmittedRows),
    timer: &QueryTimer<'_>,
) -> Result<Vec<Option<PostingList<'p>>>, SearchError> {
    let mut lists = Vec::with_capacity(terms.len());
    for ((number, count), term) in record_counts.iter_mut().enumerate().zip(terms) {
        timer.spend(TERM_STEPS)?;
        let list = postings.term(term);
        if let Some(list) = &list {
            *count += match admitted.rows_in_list(number, list) {
                Some(mut rows) => rows.try_fold(0, |sum, row| {
                    timer.spend(SEEK_STEPS)?;
                    Ok::<u64, SearchError>(sum + u64::from(seen.times(row)))
                })?,
                None => count_seen(seen, list.clone(), timer)?,
            };
        }
        lists.push(list);
    }
    Ok(lists)
}
