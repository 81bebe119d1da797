//! Rows that may be among the best, with proven bounds on their scores.

use std::sync::Arc;

use super::top::Top;
use crate::record::{DerivedVector, Version};

/// Where the vector of a candidate is, for the exact score.
pub enum RowLocation {
    /// In no segment.
    Unsealed(Arc<Version>),
    /// The layer's number, and the row's in its segment.
    Sealed(usize, u32),
    /// In no segment, found by a derived vector.
    UnsealedDerived(Arc<Version>, Arc<DerivedVector>),
    /// The same of a row of a layer, with the number of the derived vector.
    SealedDerived(usize, u32, u32),
}

/// A row that may be among the best by the bounds on its score.
pub struct Candidate {
    /// Upper bound of its score.
    pub upper_bound: f32,
    /// Number of the source among all that are searched.
    pub source: usize,
    /// Where its vector is, for the exact score.
    pub location: RowLocation,
}

/// All candidates so far. A row is ruled out by its upper bound being below the `k`-th best lower
/// bound: then `k` others are certainly better.
pub struct CandidateSet {
    k: usize,
    source: usize,
    lower_bounds: Top<f32, u32, ()>,
    candidates: Vec<Candidate>,
}

impl CandidateSet {
    /// Begins empty; the best `k` are wanted.
    pub fn new(k: usize) -> CandidateSet {
        CandidateSet { k, source: 0, lower_bounds: Top::new(k), candidates: Vec::new() }
    }

    /// Returns how many rows are wanted; more may be in doubt.
    pub fn k(&self) -> usize {
        self.k
    }

    /// What is offered from now on is in that source.
    pub fn begin_source(&mut self, source: usize) {
        self.source = source;
    }

    /// Returns the score below which a row is ruled out, once `k` were taken in; none before.
    #[inline]
    pub fn worst(&self) -> Option<f32> {
        self.lower_bounds.worst()
    }

    /// Returns whether a row with that upper bound may be among the best.
    #[inline]
    pub fn admits(&self, upper: f32) -> bool {
        self.worst().is_none_or(|worst| upper >= worst)
    }

    /// Takes a row in, with its lower and upper bound, unless it is ruled out.
    #[inline]
    pub fn offer(&mut self, (lower, upper_bound): (f32, f32), location: RowLocation) {
        if self.admits(upper_bound) {
            // The number keeps entries with equal bounds apart, as `Top` demands of score and id together.
            self.lower_bounds.push(lower, self.candidates.len() as u32, ());
            self.candidates.push(Candidate { upper_bound, source: self.source, location });
        }
    }

    /// Returns the rows that are left in doubt, the largest upper bound first.
    pub fn into_candidates(mut self) -> Vec<Candidate> {
        if let Some(worst) = self.lower_bounds.worst() {
            // The worst lower bound rose with each row taken in, so it now rules out rows that came early.
            self.candidates.retain(|candidate| candidate.upper_bound >= worst);
        }
        self.candidates.sort_unstable_by(|a, b| b.upper_bound.total_cmp(&a.upper_bound));
        self.candidates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(k: usize, bounds: &[(f32, f32)]) -> Vec<u32> {
        let mut set = CandidateSet::new(k);
        for (row, bounds) in bounds.iter().enumerate() {
            set.offer(*bounds, RowLocation::Sealed(0, row as u32));
        }
        let row = |candidate: Candidate| match candidate.location {
            RowLocation::Sealed(_, row) => Some(row),
            _ => None,
        };
        let mut rows: Vec<u32> = set.into_candidates().into_iter().filter_map(row).collect();
        rows.sort_unstable();
        rows
    }

    /// Ids decide among equal scores, so a row whose upper bound is just the worst lower bound may still be one of the best.
    #[test]
    fn a_row_whose_bound_ties_with_the_worst_stays_in_doubt_and_one_just_below_does_not() {
        let below = 0.5_f32.next_down();
        assert_eq!(offered(2, &[(0.9, 0.9), (0.5, 0.5), (0.2, 0.5), (0.2, below)]), [0, 1, 2]);
        // In the other order the early rows are ruled out at the end.
        assert_eq!(offered(2, &[(0.2, below), (0.2, 0.5), (0.5, 0.5), (0.9, 0.9)]), [1, 2, 3]);
    }

    #[test]
    fn all_rows_stay_until_there_are_k() {
        assert_eq!(offered(3, &[(0.9, 0.9), (-0.1, 0.0)]), [0, 1]);
    }
}
