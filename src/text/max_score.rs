//! Going through the posting lists of a whole query at once, past rows that can't be among the best.
//!
//! MaxScore (Turtle and Flood, "Query Evaluation: Strategies and Optimizations", 1995): each clause has a bound, the most that it
//! adds to any score. Clauses whose bounds together stay below the worst score that still counts can bring no row up by
//! themselves: rows come from the other clauses alone, and these are asked for single rows.

use super::postings::PostingList;
use super::{Clause, Scorer};

/// Sums of bounds are compared with scores that were added up in another order.
const ROUNDING: f64 = 1.0 + 1e-9;

/// The rows of one index that hold at least one of a query's terms, ascending, each once.
///
/// How many visible rows hold a term, which a scorer must know before, is cheaper counted list by list:
/// [`PostingList::documents`] where no row is hidden, and by going through the list otherwise.
pub struct MaxScore<'a> {
    /// By bound, the least first.
    clauses: Vec<Vec<Cursor<'a>>>,
    /// What the clauses before each one add at most, and all of them.
    bounds_below: Vec<f64>,
    /// The first clause that rows come from.
    essential: usize,
    /// How often the row at hand holds each term.
    counts: Vec<u32>,
}

struct Cursor<'a> {
    term: usize,
    list: PostingList<'a>,
    /// The posting it is at: a row, and how often that holds the term.
    posting: (u32, u32),
}

/// Goes to `row` or the next one behind it in each list, and drops the lists that have ended; returns the least row.
fn seek(cursors: &mut Vec<Cursor<'_>>, row: u32) -> Option<u32> {
    let mut least = None;
    cursors.retain_mut(|cursor| {
        if cursor.posting.0 < row {
            match cursor.list.seek(row) {
                Some(posting) => cursor.posting = posting,
                None => return false,
            }
        }
        least = Some(least.map_or(cursor.posting.0, |least: u32| least.min(cursor.posting.0)));
        true
    });
    least
}

impl<'a> MaxScore<'a> {
    /// Begins with the lists of the terms that `scorer` was made of, where the index has them.
    pub fn new(lists: Vec<Option<PostingList<'a>>>, scorer: &Scorer) -> MaxScore<'a> {
        let (counts, mut lists) = (vec![0; lists.len()], lists);
        let mut cursor = |term: &usize| {
            let mut list = lists[*term].take()?;
            let posting = list.next()?;
            Some(Cursor { term: *term, list, posting })
        };
        let (mut clauses, mut bounds_below, mut sum) = (Vec::new(), vec![0.0], 0.0);
        for Clause { bound, terms } in scorer.clauses() {
            let cursors: Vec<Cursor<'_>> = terms.iter().filter_map(&mut cursor).collect();
            if !cursors.is_empty() {
                sum += bound;
                bounds_below.push(sum * ROUNDING);
                clauses.push(cursors);
            }
        }
        MaxScore { clauses, bounds_below, essential: 0, counts }
    }

    /// Returns the next row that is `from` or above, beside those whose score is certainly below `floor`; `None` if no
    /// such row is left. `from` and `floor` never fall from call to call.
    pub fn seek(&mut self, from: u32, floor: f64) -> Option<u32> {
        // The floor only rises, so a clause that became inessential stays so, and its lists need not be at `from`.
        while self.essential < self.clauses.len() && self.bounds_below[self.essential + 1] < floor {
            self.essential += 1;
        }
        self.clauses[self.essential..].iter_mut().filter_map(|cursors| seek(cursors, from)).min()
    }

    /// Returns the score of a row that [`MaxScore::seek`] gave, a document of `length` tokens; `None` if it is below
    /// `floor`. Of its terms those count that `admits` lets through; the score is 0 if none does.
    pub fn score(
        &mut self,
        row: u32,
        length: u32,
        scorer: &Scorer,
        floor: f64,
        admits: impl Fn(usize) -> bool,
    ) -> Option<f64> {
        self.counts.fill(0);
        for at in self.essential..self.clauses.len() {
            self.count(at, row, &admits);
        }
        let mut score = scorer.score(length, &self.counts);
        for at in (0..self.essential).rev() {
            // From the largest bound down: what the rest can add shrinks fastest that way.
            if score * ROUNDING + self.bounds_below[at + 1] < floor {
                return None;
            }
            if seek(&mut self.clauses[at], row) == Some(row) {
                self.count(at, row, &admits);
                // Computed anew instead of added to: the sum is to be the same bits as without any of this.
                score = scorer.score(length, &self.counts);
            }
        }
        Some(score)
    }

    /// Notes how often the row at hand holds the terms of a clause whose lists are at it, or behind it.
    fn count(&mut self, clause: usize, row: u32, admits: &impl Fn(usize) -> bool) {
        for cursor in &self.clauses[clause] {
            if cursor.posting.0 == row && admits(cursor.term) {
                self.counts[cursor.term] = cursor.posting.1;
            }
        }
    }
}
