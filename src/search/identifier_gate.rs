//! Words that a query has in identifiers alone count only where one of these is: `err` of `ERR_CONN_42` is no word of a
//! document that has `ERR_CONN_43`.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;

use super::SearchError;
use super::file_scan::FileScan;
use super::phrase_rows::rows_in_layer;
use super::scan::Scan;
use crate::branch::Layer;
use crate::file_index::VisiblePart;
use crate::record::Version;
use crate::text::{Identifier, Postings};

/// Of each term the rows of one index in which it counts; all for `None`, and for each term if it is empty.
pub struct AdmittedRows(Vec<Option<RoaringBitmap>>);

impl AdmittedRows {
    /// Returns whether a term counts in a row that holds it.
    #[inline]
    pub fn admits(&self, term: usize, row: u32) -> bool {
        self.of_term(term).is_none_or(|rows| rows.contains(row))
    }

    /// Returns the visible rows in which a term counts; `None` if it counts wherever it is.
    pub fn of_term(&self, term: usize) -> Option<&RoaringBitmap> {
        self.0.get(term).and_then(Option::as_ref)
    }

    /// Drops the terms of which `counts` is 0.
    pub fn retain_held(&mut self, counts: &[u64]) {
        retain_held(&mut self.0, counts);
    }
}

/// The identifiers of a query, and which of its terms are bound to them.
pub struct IdentifierGate {
    identifiers: Vec<Identifier>,
    /// Of each term the places of its identifiers; empty for one that counts wherever it is.
    bound: Vec<Vec<usize>>,
}

impl IdentifierGate {
    /// Binds those of the terms that `bound` has.
    pub fn new(
        terms: &[Box<str>],
        identifiers: Vec<Identifier>,
        bound: &BTreeMap<Box<str>, BTreeSet<usize>>,
    ) -> IdentifierGate {
        // Without identifiers no list is kept, however many terms there are.
        let terms: &[Box<str>] = if identifiers.is_empty() { &[] } else { terms };
        let places = |term: &str| bound.get(term).into_iter().flatten().copied().collect::<Vec<usize>>();
        IdentifierGate { identifiers, bound: terms.iter().map(|term| places(term)).collect() }
    }

    /// Drops the terms of which `counts` is 0.
    pub fn retain_held(&mut self, counts: &[u64]) {
        retain_held(&mut self.bound, counts);
    }

    /// Returns which of the identifiers an unsealed version has.
    pub fn held_by(&self, scan: &Scan<'_>, version: &Version) -> Vec<bool> {
        let has = |identifier: &Identifier| {
            identifier.term.as_ref().is_some_and(|term| version.term_frequencies().count(term) > 0)
                || scan.version_has(version, &identifier.phrase)
        };
        self.identifiers.iter().map(has).collect()
    }

    /// Returns whether a term counts in a version of which `held` are the identifiers that it has.
    pub fn admits(&self, term: usize, held: &[bool]) -> bool {
        self.bound.get(term).is_none_or(|places| places.is_empty() || places.iter().any(|place| held[*place]))
    }

    /// Returns where in a layer each term counts. Fails like [`rows_in_layer`].
    pub fn rows_in_layer(
        &self,
        scan: &Scan<'_>,
        layer: &Layer,
        postings: &Postings<'_>,
    ) -> Result<AdmittedRows, SearchError> {
        self.admitted(postings, |identifier, whole| {
            rows_in_layer(layer, &identifier.phrase, scan.timer, |_| true, |row| whole.contains(row))
        })
    }

    /// Returns where in a part of the files each term counts. Fails like [`FileScan::rows_in_part`].
    pub fn rows_in_part(
        &self,
        files: &FileScan<'_>,
        part: &VisiblePart,
        postings: &Postings<'_>,
    ) -> Result<AdmittedRows, SearchError> {
        self.admitted(postings, |identifier, whole| {
            files.rows_in_part(part, &identifier.phrase, |row| whole.contains(row))
        })
    }

    /// Returns where each term counts, by where each identifier is: `find` is given the rows that hold its whole as a
    /// term.
    fn admitted(
        &self,
        postings: &Postings<'_>,
        find: impl Fn(&Identifier, &RoaringBitmap) -> Result<RoaringBitmap, SearchError>,
    ) -> Result<AdmittedRows, SearchError> {
        let mut rows = Vec::with_capacity(self.identifiers.len());
        for identifier in &self.identifiers {
            let list = identifier.term.as_ref().and_then(|term| postings.term(term));
            let whole: RoaringBitmap = list.into_iter().flatten().map(|(row, _)| row).collect();
            rows.push(find(identifier, &whole)?);
        }
        let admitted = |places: &Vec<usize>| {
            let union = |all: RoaringBitmap, place: &usize| all | &rows[*place];
            (!places.is_empty()).then(|| places.iter().fold(RoaringBitmap::new(), union))
        };
        Ok(AdmittedRows(self.bound.iter().map(admitted).collect()))
    }
}

/// Drops the items of the terms that nobody holds; of terms without items nothing.
pub fn retain_held<T>(items: &mut Vec<T>, counts: &[u64]) {
    let mut counts = counts.iter();
    items.retain(|_| counts.next().is_some_and(|count| *count > 0));
}
