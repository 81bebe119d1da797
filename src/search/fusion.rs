//! Reciprocal rank fusion: one order out of several, by ranks alone.
//!
//! Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
//! Learning Methods", 2009. Scores of different kinds (a cosine and a BM25 sum) are never compared.

use std::collections::BTreeMap;

/// The k of reciprocal rank fusion: the larger, the less first ranks count above later ones.
///
/// The paper has 60 for long lists of many systems; with two lists a record in the middle of both would then beat the
/// first of one.
pub const RRF_K: f64 = 10.0;

/// An id that some list holds, with its score by ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused<I, const N: usize> {
    /// What the lists name it by; equal scores are ordered by it, ascending.
    pub id: I,
    /// The sum of `1 / (RRF_K + rank)` over the lists that hold the id.
    pub score: f64,
    /// The id's rank in each list, from 1; `None` if the list lacks it.
    pub ranks: [Option<u32>; N],
}

/// Fuses `N` lists of ids, each best first, into one: by score descending, then by id ascending.
///
/// An id that a list names twice counts at its first place.
pub fn fuse<I: Ord + Clone, const N: usize>(lists: [&[I]; N]) -> Vec<Fused<I, N>> {
    let mut all: BTreeMap<&I, [Option<u32>; N]> = BTreeMap::new();
    for (list, ids) in lists.into_iter().enumerate() {
        for (rank, id) in (1..).zip(ids) {
            all.entry(id).or_insert([None; N])[list].get_or_insert(rank);
        }
    }
    let reciprocal = |rank: &u32| 1.0 / (RRF_K + f64::from(*rank));
    let fused = all.into_iter().map(|(id, ranks)| {
        let score = ranks.iter().flatten().map(reciprocal).fold(0.0, |sum, part| sum + part);
        Fused { id: id.clone(), score, ranks }
    });
    let mut fused: Vec<_> = fused.collect();
    // Stable, and the map gave the ids in order: so equal scores stay by id.
    fused.sort_by(|a, b| b.score.total_cmp(&a.score));
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_sums_of_reciprocal_ranks() {
        let fused = fuse([&["a", "b", "c"], &["b", "d"]]);
        let order: Vec<_> = fused.iter().map(|hit| hit.id).collect();
        assert_eq!(order, ["b", "a", "d", "c"]);
        assert_eq!(fused[0].score, 1.0 / 12.0 + 1.0 / 11.0);
        assert_eq!(fused[0].ranks, [Some(2), Some(1)]);
        assert_eq!((fused[2].score, fused[2].ranks), (1.0 / 12.0, [None, Some(2)]));
    }

    #[test]
    fn equal_scores_go_by_id() {
        let fused = fuse([&["y", "x"], &["x", "y"]]);
        assert_eq!(fused[0].score, fused[1].score);
        assert_eq!((fused[0].id, fused[1].id), ("x", "y"));
    }

    #[test]
    fn empty_lists_and_doubles() {
        assert!(fuse::<&str, 2>([&[], &[]]).is_empty());
        let fused = fuse([&["a", "a", "b"][..], &[]]);
        assert_eq!((fused[0].ranks, fused[1].ranks), ([Some(1), None], [Some(3), None]));
    }
}
