//! How far two rows lie apart, as the builder of the graph needs it.

use super::source::Rows;
use crate::vector::{self, Metric};
use hnsw_rs::anndists::dist::distances::Distance;

/// The distance between rows that are named by their numbers.
///
/// The builder copies what it inserts. Given a row's number in place of its vector it copies four
/// bytes, and the vectors are read where they lie.
pub(super) struct Between<'a> {
    rows: &'a dyn Rows,
    metric: Metric,
    norms: &'a [f32],
    /// For the inner product: what each row lacks to the length of the longest, else empty.
    missing: Vec<f32>,
    longest: f32,
}

impl<'a> Between<'a> {
    /// Prepares for the rows whose lengths are given.
    pub fn new(rows: &'a dyn Rows, norms: &'a [f32], metric: Metric) -> Self {
        let longest = norms.iter().copied().fold(0.0, f32::max);
        let lack = |&norm: &f32| ((longest - norm) * (longest + norm)).max(0.0).sqrt();
        let missing = match metric {
            Metric::Dot => norms.iter().map(lack).collect(),
            Metric::Cosine | Metric::L2 => Vec::new(),
        };
        Self { rows, metric, norms, missing, longest }
    }

    /// Returns the distance between two rows: 0 or more, never NaN, in the order of the metric.
    ///
    /// The inner product is no distance: a row may be nearer to another than to itself. So each
    /// row is given one more dimension that brings it to the length of the longest (Bachrach and
    /// others, 2014). A question has 0 there, so that its products, and their order, stay.
    pub fn rows(&self, a: u32, b: u32) -> f32 {
        let (i, j) = (a as usize, b as usize);
        let (x, y) = (self.rows.vector(a), self.rows.vector(b));
        let distance = match self.metric {
            Metric::Cosine => 1.0 - vector::dot(x, y) / (self.norms[i] * self.norms[j]),
            Metric::L2 => vector::l2_squared(x, y),
            Metric::Dot => self.longest * self.longest - vector::dot(x, y) - self.missing[i] * self.missing[j],
        };
        // Lengths beyond what f32 can square end here; such a row is found by mending, not by its
        // distance. `max` also turns NaN, which the builder would panic at, into the far end.
        if distance.is_nan() { f32::MAX } else { distance.max(0.0) }
    }
}

impl Distance<u32> for Between<'_> {
    fn eval(&self, a: &[u32], b: &[u32]) -> f32 {
        self.rows(a[0], b[0])
    }
}
