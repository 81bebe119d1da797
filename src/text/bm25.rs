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

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How soon further occurrences of a word stop counting: with 0 at once, and the later the larger it is.
pub const K1: f64 = 1.2;

/// How strongly scores are normalized by length: 0 is not at all, 1 is fully.
pub const B: f64 = 0.75;

/// The size of everything a query looks at: all visible documents, whatever part holds them.
///
/// Every record counts as a document, one without words as a document of length 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionTotals {
    /// How many documents there are.
    pub documents: u64,
    /// The sum of their lengths, in tokens.
    pub length: u64,
}

impl CollectionTotals {
    /// Adds one document of `length` tokens.
    pub fn add(&mut self, length: u32) {
        self.documents += 1;
        self.length += u64::from(length);
    }

    /// Returns the mean length of a document in tokens; 1 where there are no words at all.
    pub fn average_length(&self) -> f64 {
        if self.length == 0 {
            return 1.0;
        }
        self.length as f64 / self.documents as f64
    }
}

/// Returns the inverse document frequency of a term that `holding` of `documents` documents contain. It is above 0, and
/// larger for rarer terms.
///
/// `holding` above `documents` counts as `documents`.
pub fn idf(documents: u64, holding: u64) -> f64 {
    let absent = documents.saturating_sub(holding) as f64;
    (1.0 + (absent + 0.5) / (holding as f64 + 0.5)).ln()
}

/// Returns what one term adds to the score of a document that holds it `count` times in `length` tokens.
///
/// `average` is [`CollectionTotals::average_length`]. A count of 0 adds exactly 0.
///
/// ```
/// use engramfs::text::{CollectionTotals, idf, weight};
///
/// let mut all = CollectionTotals::default();
/// [80, 120].into_iter().for_each(|length| all.add(length));
/// let rare = idf(all.documents, 1);
/// assert!(rare > idf(all.documents, 2));
///
/// // Once in a document of average length a word adds what it says, and more often never K1 + 1 times as much.
/// assert!((weight(rare, 1, 100, all.average_length()) - rare).abs() < 1e-9);
/// assert!(weight(rare, 1000, 100, all.average_length()) < 2.2 * rare);
/// assert!(weight(rare, 1, 120, all.average_length()) < rare);
/// ```
pub fn weight(idf: f64, count: u32, length: u32, average: f64) -> f64 {
    let count = f64::from(count);
    let norm = 1.0 - B + B * f64::from(length) / average;
    idf * count * (K1 + 1.0) / (count + K1 * norm)
}

/// Terms that count as one word of the query: a word itself, or all words that share its stem.
#[derive(Clone, Debug, PartialEq)]
pub struct TermGroup {
    /// Factor of the group's idf; 1 for a word on its own.
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
    average_length: f64,
}

impl Scorer {
    /// Makes a scorer; `holding[i]` is how many visible documents contain the i-th of the terms.
    pub fn new(collection: CollectionTotals, groups: Vec<TermGroup>, holding: &[u64]) -> Self {
        let weigh = |group: TermGroup| {
            let held: u64 = group.members.iter().map(|term| holding[*term]).sum();
            (group.weight * idf(collection.documents, held), group.members)
        };
        Self { groups: groups.into_iter().map(weigh).collect(), average_length: collection.average_length() }
    }

    /// Returns the terms by what they add to any score at most, the least first: terms that share a group are together.
    ///
    /// However often a document holds it, a group adds less than `K1 + 1` times its idf.
    pub fn clauses(&self) -> Vec<Clause> {
        // A term in two groups adds to both. Weighed apart, its rows would be passed over by the bound of one of them
        // alone, so groups are one clause where terms join them, be it through others.
        let (mut joined, mut held_by): (Vec<usize>, HashMap<usize, usize>) =
            ((0..self.groups.len()).collect(), HashMap::new());
        for (group, (_, members)) in self.groups.iter().enumerate() {
            for term in members {
                let (one, other) =
                    (find_root(&mut joined, *held_by.entry(*term).or_insert(group)), find_root(&mut joined, group));
                joined[one.max(other)] = one.min(other);
            }
        }
        let mut clauses: BTreeMap<usize, Clause> = BTreeMap::new();
        for (group, (idf, members)) in self.groups.iter().enumerate() {
            let none = || Clause { bound: 0.0, terms: BTreeSet::new() };
            let clause = clauses.entry(find_root(&mut joined, group)).or_insert_with(none);
            clause.bound += idf * (K1 + 1.0);
            clause.terms.extend(members);
        }
        let mut clauses: Vec<Clause> = clauses.into_values().collect();
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
        held.map(|(idf, count)| weight(idf, count, length, self.average_length)).fold(0.0, |sum, part| sum + part)
    }
}

/// Returns the first of the groups that one is joined to: each is joined to one before it, the first to itself. The way
/// gets shorter with each call.
fn find_root(joined: &mut [usize], group: usize) -> usize {
    let mut at = group;
    while joined[at] != at {
        joined[at] = joined[joined[at]];
        at = joined[at];
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_terms_join_are_one_clause() {
        let mut collection = CollectionTotals::default();
        (0..10).for_each(|_| collection.add(8));
        let group = |weight: f64, members: &[usize]| TermGroup { weight, members: members.to_vec() };
        // 0 and 1 are joined by the third group, 3 and 4 by none, and the last has no terms.
        let groups = vec![
            group(1.0, &[0]),
            group(1.0, &[1, 2]),
            group(0.5, &[2, 0]),
            group(1.0, &[3]),
            group(2.0, &[4]),
            group(1.0, &[]),
        ];
        let clauses = Scorer::new(collection, groups, &[1; 5]).clauses();
        let terms: Vec<Vec<usize>> = clauses.iter().map(|clause| clause.terms.iter().copied().collect()).collect();
        assert!(clauses.windows(2).all(|pair| pair[0].bound <= pair[1].bound));
        let bound =
            |terms: &[usize]| clauses.iter().find(|clause| clause.terms.iter().eq(terms)).map(|clause| clause.bound);
        let most = |weight: f64, held| weight * idf(10, held) * (K1 + 1.0);
        let joined = most(1.0, 1) + most(1.0, 2) + most(0.5, 2);
        assert!(bound(&[0, 1, 2]).is_some_and(|bound| (bound - joined).abs() < 1e-12), "{terms:?}");
        assert_eq!((bound(&[3]), bound(&[4])), (Some(most(1.0, 1)), Some(most(2.0, 1))));
        assert_eq!(terms.len(), 4);
    }

    /// A record of some megabytes is a query, too, with a word and a stem for each of its words.
    #[test]
    fn clauses_of_very_many_words_take_no_time() {
        let words = 200_000;
        let mut groups = TermGroup::single_terms(words);
        groups.extend((0..words / 2).map(|stem| TermGroup { weight: 0.5, members: vec![2 * stem, 2 * stem + 1] }));
        let scorer = Scorer::new(CollectionTotals { documents: 10, length: 10 }, groups, &vec![1; words]);
        assert_eq!(scorer.clauses().len(), words / 2);
    }

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
        let mut collection = CollectionTotals::default();
        (0..10).for_each(|_| collection.add(8));
        let group = TermGroup { weight: 0.5, members: vec![0, 2] };
        let grouped = Scorer::new(collection, vec![group], &[1, 7, 2]);
        let one = Scorer::new(collection, TermGroup::single_terms(1), &[3]);
        assert_eq!(grouped.score(8, &[1, 9, 1]), 0.5 * one.score(8, &[2]));
        assert_eq!(grouped.score(8, &[0, 9, 0]), 0.0);
    }

    #[test]
    fn a_collection_without_words_divides_by_nothing() {
        let mut collection = CollectionTotals::default();
        assert_eq!(collection.average_length(), 1.0);
        collection.add(0);
        assert_eq!((collection.documents, collection.average_length()), (1, 1.0));
        collection.add(6);
        assert_eq!(collection.average_length(), 3.0);
        assert_eq!(Scorer::new(CollectionTotals::default(), TermGroup::single_terms(1), &[0]).score(0, &[0]), 0.0);
    }
}
