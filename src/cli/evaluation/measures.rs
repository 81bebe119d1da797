//! Measures of one answer against the evidence that a person marked: recall, nDCG with binary gains and the reciprocal rank.

use std::collections::BTreeSet;

/// What one answer, or the mean of many, is worth; each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RetrievalScore {
    /// Evidence among the first k hits, of all evidence.
    pub recall: f64,
    /// Discounted gain of the first k hits, of that of the best order.
    pub ndcg: f64,
    /// One through the rank of the first hit that is evidence; 0 where none is among the first k.
    pub reciprocal_rank: f64,
}

impl RetrievalScore {
    /// Measures the first `k` of `hits`, which are distinct; `evidence` holds at least one.
    pub fn from_hits(hits: &[&str], evidence: &BTreeSet<&str>, k: usize) -> Self {
        let ranks: Vec<usize> = (0..hits.len().min(k)).filter(|at| evidence.contains(hits[*at])).collect();
        let best: f64 = (0..evidence.len().min(k)).map(gain).sum();
        Self {
            recall: ranks.len() as f64 / evidence.len() as f64,
            ndcg: ranks.iter().copied().map(gain).sum::<f64>() / best,
            reciprocal_rank: ranks.first().map_or(0.0, |at| 1.0 / (*at as f64 + 1.0)),
        }
    }
}

impl RetrievalScore {
    /// Adds one question's score to a sum, which [`RetrievalScore::divided_by`] makes a mean of.
    pub fn add(&mut self, other: RetrievalScore) {
        self.recall += other.recall;
        self.ndcg += other.ndcg;
        self.reciprocal_rank += other.reciprocal_rank;
    }

    /// Returns the mean of a sum over `count` questions.
    pub fn divided_by(self, count: usize) -> RetrievalScore {
        let count = count as f64;
        RetrievalScore {
            recall: self.recall / count,
            ndcg: self.ndcg / count,
            reciprocal_rank: self.reciprocal_rank / count,
        }
    }
}

/// The gain of evidence at a place counted from 0.
fn gain(at: usize) -> f64 {
    1.0 / (at as f64 + 2.0).log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_at_the_second_place() {
        let score = RetrievalScore::from_hits(&["x", "a", "y"], &BTreeSet::from(["a", "b"]), 10);
        // 1 / log2(3) = 0.63093, of 1 + 0.63093.
        assert_eq!((score.recall, score.reciprocal_rank), (0.5, 0.5));
        assert!((score.ndcg - 0.386_853).abs() < 1e-6, "{score:?}");
    }

    #[test]
    fn only_the_first_k_count_and_the_best_order_is_cut_there_too() {
        let evidence = BTreeSet::from(["a", "b"]);
        let score = RetrievalScore::from_hits(&["a", "b"], &evidence, 1);
        assert_eq!((score.recall, score.ndcg, score.reciprocal_rank), (0.5, 1.0, 1.0));
        assert_eq!(RetrievalScore::from_hits(&["x", "a"], &evidence, 1), RetrievalScore::default());
        assert_eq!(RetrievalScore::from_hits(&[], &evidence, 10), RetrievalScore::default());
    }
}
