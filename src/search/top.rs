//! The best k of a stream, in memory for k.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Entries that a [`Top`] has room for from the start; a larger `k` costs memory only as it fills.
const CAPACITY_AT_FIRST: usize = 256;

/// One entry of a [`Top`]: `score`, then `id` to order equal scores, and what the caller keeps with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked<S, I, P> {
    /// The score: larger is better, and never NaN.
    pub score: S,
    /// Among equal scores the smaller one comes first.
    pub id: I,
    /// Any value of the caller; it does not affect the order.
    pub payload: P,
}

/// The best `k` of all entries pushed: larger scores first, equal scores by id ascending.
///
/// Which entries are kept does not depend on the order of pushing, as long as no two share score
/// and id. `S` is `f32` or `f64`; a NaN never enters. -0.0 equals 0.0.
#[derive(Clone, Debug)]
pub struct Top<S, I, P> {
    k: usize,
    /// The worst kept entry is the heap's greatest.
    heap: BinaryHeap<ByWorst<S, I, P>>,
}

impl<S: PartialOrd + Copy, I: Ord, P> Top<S, I, P> {
    /// Returns an empty collection of at most `k` entries; with `k` 0 nothing is ever kept.
    pub fn new(k: usize) -> Self {
        Self { k, heap: BinaryHeap::with_capacity(k.min(CAPACITY_AT_FIRST)) }
    }

    /// Returns the worst kept score once there are `k` entries, or nothing before.
    ///
    /// An entry with a lesser score can't enter any more, one with the same score can by its id:
    /// so a scan may skip what is strictly below.
    pub fn worst(&self) -> Option<S> {
        if self.heap.len() < self.k {
            return None;
        }
        self.heap.peek().map(|ByWorst(entry)| entry.score)
    }

    /// Offers an entry and tells whether it was kept; the worst one leaves when there are more than `k`.
    pub fn push(&mut self, score: S, id: I, payload: P) -> bool {
        // Only NaN does not compare with itself. In the heap it would equal every score, and the order would depend on
        // the pushes.
        if score.partial_cmp(&score).is_none() {
            return false;
        }
        let entry = ByWorst(Ranked { score, id, payload });
        if self.heap.len() < self.k {
            self.heap.push(entry);
            return true;
        }
        match self.heap.peek_mut() {
            Some(mut worst) if entry < *worst => {
                *worst = entry;
                true
            }
            _ => false,
        }
    }

    /// Returns the kept entries, best first.
    pub fn into_sorted(self) -> Vec<Ranked<S, I, P>> {
        self.heap.into_sorted_vec().into_iter().map(|ByWorst(entry)| entry).collect()
    }
}

/// Orders entries so that the worse is the greater: by score descending, then by id ascending.
#[derive(Clone, Debug)]
struct ByWorst<S, I, P>(Ranked<S, I, P>);

impl<S: PartialOrd, I: Ord, P> Ord for ByWorst<S, I, P> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = other.0.score.partial_cmp(&self.0.score).unwrap_or(Ordering::Equal);
        by_score.then_with(|| self.0.id.cmp(&other.0.id))
    }
}

impl<S: PartialOrd, I: Ord, P> PartialOrd for ByWorst<S, I, P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S: PartialOrd, I: Ord, P> PartialEq for ByWorst<S, I, P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<S: PartialOrd, I: Ord, P> Eq for ByWorst<S, I, P> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(k: usize, entries: &[(f32, &'static str)]) -> Vec<(f32, &'static str)> {
        let mut top = Top::new(k);
        for &(score, id) in entries {
            top.push(score, id, ());
        }
        top.into_sorted().into_iter().map(|entry| (entry.score, entry.id)).collect()
    }

    #[test]
    fn the_best_are_kept_in_order_and_ties_go_by_id() {
        let entries = [(0.5, "d"), (0.9, "c"), (0.5, "a"), (0.1, "z"), (0.5, "b")];
        assert_eq!(best(3, &entries), [(0.9, "c"), (0.5, "a"), (0.5, "b")]);
        let mut backwards = entries;
        backwards.reverse();
        assert_eq!(best(3, &backwards), best(3, &entries));
        assert_eq!(best(9, &entries).len(), 5);
        assert_eq!(best(0, &entries), []);
    }

    #[test]
    fn any_k_and_any_order_equal_a_full_sort() {
        let ids: Vec<String> = (0..200).map(|i| format!("{i:03}")).collect();
        for k in [1, 7, 199, 200] {
            let mut top = Top::new(k);
            let mut all = Vec::new();
            for i in 0..200usize {
                let at = i * 77 % 200;
                let score = f64::from((at * 31 % 13) as u32);
                top.push(score, &*ids[at], at);
                all.push((score, &*ids[at]));
            }
            all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
            let got: Vec<_> = top.into_sorted().iter().map(|entry| (entry.score, entry.id)).collect();
            assert_eq!(got, all[..k]);
        }
    }

    #[test]
    fn nan_never_enters_and_infinities_do() {
        let entries = [(f32::NAN, "n"), (f32::NEG_INFINITY, "low"), (f32::INFINITY, "high"), (f32::NAN, "m")];
        assert_eq!(best(3, &entries), [(f32::INFINITY, "high"), (f32::NEG_INFINITY, "low")]);
        assert_eq!(best(2, &[(-0.0, "b"), (0.0, "c"), (-0.0, "a")]), [(-0.0, "a"), (-0.0, "b")]);
    }

    #[test]
    fn worst_is_known_once_full() {
        let mut top = Top::new(2);
        assert!(top.push(1.0, "a", ()));
        assert_eq!((top.worst(), top.heap.len()), (None, 1));
        assert!(top.push(3.0, "b", ()));
        assert_eq!(top.worst(), Some(1.0));
        assert!(top.push(2.0, "c", ()));
        assert_eq!(top.worst(), Some(2.0));
        assert!(!top.push(1.5, "d", ()));
        assert!(!top.push(2.0, "d", ()), "the tie is lost by id");
        assert!(top.push(2.0, "b2", ()), "the tie is won by id");
    }
}
