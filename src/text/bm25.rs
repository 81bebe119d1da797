//! BM25: how well a document answers a query, by the words they share.
//!
//! The formula is Robertson and Zaragoza's ("The Probabilistic Relevance Framework: BM25 and
//! Beyond", 2009), with Lucene's `1 +` inside the logarithm, which keeps the weight of a word that
//! is in more than half of all documents above zero:
//!
//! ```text
//! score  = Σ over the query's distinct terms: idf · tf · (K1 + 1) / (tf + K1 · (1 − B + B · length / average))
//! idf    = ln(1 + (N − df + 0.5) / (df + 0.5))
//! ```

use std::collections::BTreeSet;

/// How soon further occurrences of a word stop counting: with 0 at once, and the later the larger it is.
pub const K1: f64 = 1.2;

/// How much a long document is held against itself: 0 not at all, 1 in full proportion.
pub const B: f64 = 0.75;

/// The size of everything a query looks at: all visible documents, whatever part holds them.
///
/// Every record counts as a document, one without words as a document of length 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// How many documents there are.
    pub documents: u64,
    /// The sum of their lengths, in tokens.
    pub length: u64,
}

impl Collection {
    /// Adds one document of `length` tokens.
    pub fn add(&mut self, length: u32) {
        self.documents += 1;
        self.length += u64::from(length);
    }

    /// Returns the mean length of a document in tokens; 1 where there are no words at all.
    pub fn average(&self) -> f64 {
        if self.length == 0 {
            return 1.0;
        }
        self.length as f64 / self.documents as f64
    }
}

/// Returns how much a term says that `holding` of `documents` documents contain: above 0, rarer is more.
///
/// `holding` above `documents` counts as `documents`.
pub fn idf(documents: u64, holding: u64) -> f64 {
    let absent = documents.saturating_sub(holding) as f64;
    (1.0 + (absent + 0.5) / (holding as f64 + 0.5)).ln()
}

/// Returns what one term adds to the score of a document that holds it `count` times in `length` tokens.
///
/// `average` is [`Collection::average`]. A count of 0 adds exactly 0.
///
/// ```
/// use engramfs::text::{Collection, idf, weight};
///
/// let mut all = Collection::default();
/// [80, 120].into_iter().for_each(|length| all.add(length));
/// let rare = idf(all.documents, 1);
/// assert!(rare > idf(all.documents, 2));
///
/// // Once in a document of average length a word adds what it says, and more often never K1 + 1 times as much.
/// assert!((weight(rare, 1, 100, all.average()) - rare).abs() < 1e-9);
/// assert!(weight(rare, 1000, 100, all.average()) < 2.2 * rare);
/// assert!(weight(rare, 1, 120, all.average()) < rare);
/// ```
pub fn weight(idf: f64, count: u32, length: u32, average: f64) -> f64 {
    let count = f64::from(count);
    let norm = 1.0 - B + B * f64::from(length) / average;
    idf * count * (K1 + 1.0) / (count + K1 * norm)
}

/// Terms that count as one word of the query: a word itself, or all words that share its stem.
#[derive(Clone, Debug, PartialEq)]
pub struct TermGroup {
    /// What the group counts beside others.
    pub weight: f64,
    /// Places of its terms among all that are looked for.
    pub members: Vec<usize>,
}

impl TermGroup {
    /// Returns a group of weight 1 for each of `count` terms.
    pub fn single_terms(count: usize) -> Vec<TermGroup> {
        (0..count).map(|term| TermGroup { weight: 1.0, members: vec![term] }).collect()
    }
}

/// Terms whose counts are weighed together.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// What they add to any score at most.
    pub bound: f64,
    /// Their places among all that are looked for.
    pub terms: BTreeSet<usize>,
}

/// A query's terms, weighed against one collection.
///
/// The terms of a group count as one term: its count in a document is the sum of theirs, and so is the number of
/// documents that hold it. It sums in the order of the groups given to it: a sum of floats is only the same
/// bits in the same order.
#[derive(Clone, Debug)]
pub struct Scorer {
    /// The weight times the idf of each group, and its terms.
    groups: Vec<(f64, Vec<usize>)>,
    average: f64,
}

impl Scorer {
    /// Makes a scorer; `holding[i]` is how many visible documents contain the i-th of the terms.
    pub fn new(collection: Collection, groups: Vec<TermGroup>, holding: &[u64]) -> Self {
        let weigh = |group: TermGroup| {
            let held: u64 = group.members.iter().map(|term| holding[*term]).sum();
            (group.weight * idf(collection.documents, held), group.members)
        };
        Self { groups: groups.into_iter().map(weigh).collect(), average: collection.average() }
    }

    /// Returns the terms by what they add to any score at most, the least first: terms that share a group are together.
    ///
    /// However often a document holds it, a group adds less than `K1 + 1` times its idf.
    pub fn clauses(&self) -> Vec<Clause> {
        let mut clauses: Vec<Clause> = Vec::new();
        for (idf, members) in &self.groups {
            let mut clause = Clause { bound: idf * (K1 + 1.0), terms: members.iter().copied().collect() };
            clauses.retain_mut(|other| {
                // A term in two groups adds to both. Weighed apart, its rows would be passed over by the bound of one
                // of them alone.
                let is_apart = other.terms.is_disjoint(&clause.terms);
                if !is_apart {
                    clause.bound += other.bound;
                    clause.terms.append(&mut other.terms);
                }
                is_apart
            });
            clauses.push(clause);
        }
        clauses.sort_by(|a, b| a.bound.total_cmp(&b.bound));
        clauses
    }

    /// Returns the score of a document of `length` tokens; `counts[i]` is how often it holds the i-th term.
    ///
    /// Above 0 when any count is, and never NaN.
    pub fn score(&self, length: u32, counts: &[u32]) -> f64 {
        let groups =
            self.groups.iter().map(|(idf, members)| (*idf, members.iter().map(|term| counts[*term]).sum::<u32>()));
        let held = groups.filter(|(_, count)| *count > 0);
        held.map(|(idf, count)| weight(idf, count, length, self.average)).fold(0.0, |sum, part| sum + part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idf_is_the_published_formula_and_stays_above_zero() {
        assert!((idf(10, 1) - (1.0f64 + 9.5 / 1.5).ln()).abs() < 1e-15);
        assert!(idf(10, 1) > idf(10, 2));
        assert!(idf(10, 10) > 0.0);
        assert!(idf(10, 11) > 0.0);
    }

    #[test]
    fn weight_by_hand() {
        // At average length the norm is 1: 2 occurrences give 2 · 2.2 / 3.2.
        assert!((weight(1.0, 2, 8, 8.0) - 1.375).abs() < 1e-15);
        assert!(weight(1.0, 2, 4, 8.0) > 1.375);
        assert!(weight(1.0, 2, 16, 8.0) < 1.375);
        assert_eq!(weight(1.0, 0, 0, 8.0), 0.0);
    }

    #[test]
    fn the_terms_of_a_group_count_as_one_term() {
        let mut collection = Collection::default();
        (0..10).for_each(|_| collection.add(8));
        let group = TermGroup { weight: 0.5, members: vec![0, 2] };
        let grouped = Scorer::new(collection, vec![group], &[1, 7, 2]);
        let one = Scorer::new(collection, TermGroup::single_terms(1), &[3]);
        assert_eq!(grouped.score(8, &[1, 9, 1]), 0.5 * one.score(8, &[2]));
        assert_eq!(grouped.score(8, &[0, 9, 0]), 0.0);
    }

    #[test]
    fn a_collection_without_words_divides_by_nothing() {
        let mut collection = Collection::default();
        assert_eq!(collection.average(), 1.0);
        collection.add(0);
        assert_eq!((collection.documents, collection.average()), (1, 1.0));
        collection.add(6);
        assert_eq!(collection.average(), 3.0);
        assert_eq!(Scorer::new(Collection::default(), TermGroup::single_terms(1), &[0]).score(0, &[0]), 0.0);
    }
}
