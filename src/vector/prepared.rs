//! A query's vector, made ready once and then compared with many rows.

use super::coarse::{CoarseQuery, CoarseSource};
use super::code::{Code, quantize};
use super::kernels::{self, Kernels};
use super::{Metric, NORM_SAFE, norm};

mod sieve;

pub use sieve::Sieve;

/// The product of the codes of a query and a row, with what bounds of their score need of the row.
#[derive(Clone, Copy, Debug)]
pub struct CodeProduct {
    /// The inner product of the two codes, exact: 65,536 products of 127 by 127 fit an i32.
    pub product: i32,
    /// What one step of the row's code is worth, as [`Code::scale`].
    pub scale: f32,
    /// The length of what the row's code leaves out, never less than the truth.
    pub residual: f32,
    /// The row's euclidean length, in f32.
    pub norm: f32,
}

/// A query's vector under a metric, with what every comparison needs of it.
///
/// Scores follow one rule for all metrics: larger is better.
///
/// ```
/// use engramfs::vector::{Code, Metric, PreparedVector, norm, quantize};
///
/// let row = [0.6, 0.8];
/// let mut bytes = [0; 2];
/// let (scale, residual) = quantize(&row, &mut bytes);
///
/// let query = PreparedVector::new(Metric::Cosine, vec![1.0, 0.0]);
/// let score = query.score(&row, norm(&row));
/// assert!((score - 0.6).abs() < 1e-6);
/// // The code alone rules out most rows.
/// let (lower, upper) = query.bounds(query.code_product(Code { bytes: &bytes, scale, residual }, norm(&row)));
/// assert!(lower <= score && score <= upper);
/// ```
#[derive(Clone, Debug)]
pub struct PreparedVector {
    metric: Metric,
    vector: Vec<f32>,
    norm: f32,
    bytes: Vec<i8>,
    scale: f32,
    residual: f32,
    /// Bound on the relative error of a sum of products in f32, at this dimension.
    rounding: f64,
    kernels: &'static Kernels,
}

impl PreparedVector {
    /// Makes a vector ready; its values must be finite.
    #[must_use]
    pub fn new(metric: Metric, vector: Vec<f32>) -> Self {
        let mut bytes = vec![0; vector.len()];
        let (scale, residual) = quantize(&vector, &mut bytes);
        Self {
            metric,
            norm: norm(&vector),
            rounding: rounding(vector.len()),
            vector,
            bytes,
            scale,
            residual,
            kernels: kernels::best(),
        }
    }

    /// Returns the metric of its scores; a graph that was built under another one finds nothing for it.
    #[must_use]
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the vector as it was given: not scaled to unit length, under no metric.
    #[must_use]
    pub fn vector(&self) -> &[f32] {
        &self.vector
    }

    /// Returns the euclidean length of the vector; 0 only for a vector of zeros, which has no direction.
    #[must_use]
    pub fn norm(&self) -> f32 {
        self.norm
    }

    /// Returns the query for coarse rows: a copy of its int8 code, so ask once a query and not once a row.
    #[must_use]
    pub fn coarse_query(&self) -> CoarseQuery {
        let source = CoarseSource { bytes: &self.bytes, scale: self.scale, norm: self.norm, extra_dimension: 0.0 };
        CoarseQuery::new(self.metric, source)
    }

    /// Returns the score of a row: larger is better, and always finite.
    ///
    /// The cosine similarity, clamped to -1 to 1 and 0 when either vector is zero; or minus the
    /// euclidean distance; or the inner product. `row_norm` must be `norm(row)`. A product or
    /// distance beyond the range of f32 is given as the largest finite f32.
    #[must_use]
    pub fn score(&self, row: &[f32], row_norm: f32) -> f32 {
        if !self.is_safe(row_norm) {
            return self.score_in_f64(row);
        }
        self.metric.score(self.kernels, (&self.vector, self.norm), (row, row_norm))
    }

    /// Returns the distance that belongs to a score: smaller is better.
    ///
    /// 1 minus the similarity for cosine, the euclidean distance for l2, minus the product for dot.
    #[must_use]
    pub fn distance(&self, score: f32) -> f32 {
        self.metric.distance(score)
    }

    /// Multiplies the query's code with that of one row.
    ///
    /// # Panics
    ///
    /// When the code has another dimension.
    #[must_use]
    #[inline]
    pub fn code_product(&self, code: Code<'_>, row_norm: f32) -> CodeProduct {
        let product = self.kernels.dot_i8(&self.bytes, code.bytes);
        CodeProduct { product, scale: code.scale, residual: code.residual, norm: row_norm }
    }

    /// Returns a lower and an upper bound on [`PreparedVector::score`], from a row's code alone.
    ///
    /// The bounds are proven, not likely: they hold for the score as computed, rounding included.
    /// They say nothing (the whole range of the metric) for rows or queries whose length lies
    /// outside 1e-15 to 1e15.
    #[must_use]
    #[inline]
    pub fn bounds(&self, row: CodeProduct) -> (f32, f32) {
        let row_norm = row.norm;
        if !self.is_safe(row_norm) {
            return self.metric.range();
        }
        let product = (self.product(row), self.product_error(row.residual, row_norm));
        self.metric.bounds(product, (f64::from(self.norm), f64::from(row_norm)), self.rounding)
    }

    #[inline]
    fn product(&self, row: CodeProduct) -> f64 {
        f64::from(row.product) * f64::from(self.scale) * f64::from(row.scale)
    }

    /// Returns how far the product of the codes can be from the product of the vectors.
    ///
    /// With q = q' + r and x = x' + s, the codes primed: q·x - q'·x' = q·s + r·x', and by Cauchy
    /// and Schwarz that is at most |q| |s| + |r| |x'|, where |x'| <= |x| + |s|.
    #[inline]
    fn product_error(&self, residual: f32, row_norm: f32) -> f64 {
        let row_code_norm = f64::from(row_norm) * (1.0 + self.rounding) + f64::from(residual);
        let off = f64::from(self.norm) * f64::from(residual) + f64::from(self.residual) * row_code_norm;
        off * (1.0 + self.rounding)
    }

    /// Returns whether both lengths allow sums in f32.
    #[inline]
    fn is_safe(&self, row_norm: f32) -> bool {
        NORM_SAFE.contains(&self.norm) && NORM_SAFE.contains(&row_norm)
    }

    /// Returns the score in f64, for lengths that f32 cannot square.
    #[cold]
    fn score_in_f64(&self, row: &[f32]) -> f32 {
        assert_eq!(self.vector.len(), row.len(), "both vectors have one dimension");
        self.metric.score_in_f64(&self.vector, row)
    }
}

/// What up to 65,536 products in f32 can lose when they fall below the smallest f32.
pub(super) const UNDERFLOW: f64 = 1e-40;

/// Returns a bound on the relative error of a sum of products, its factors' lengths included.
///
/// The kernels add in 64 lanes and then fold six times, so that an f32 passes dim / 64 + 6
/// additions besides at most three roundings of its own; a norm adds one and a half to that, a
/// quotient two. Sixteen covers these with room for the f64 arithmetic around them.
fn rounding(dim: usize) -> f64 {
    (dim.div_ceil(64) + 16) as f64 * f64::from(f32::EPSILON) / 2.0 * 1.01
}

/// Returns the inner product, summed in f64, where no f32 overflows or vanishes.
pub(super) fn dot_f64(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).fold(0.0, |sum, (&x, &y)| sum + f64::from(x) * f64::from(y))
}

/// Returns the nearest finite f32.
#[inline]
pub(super) fn to_f32(x: f64) -> f32 {
    (x as f32).clamp(f32::MIN, f32::MAX)
}

/// Returns an f32 that is not above `x`.
#[inline]
pub(super) fn round_down(x: f64) -> f32 {
    (x as f32).next_down()
}

/// Returns an f32 that is not below `x`.
#[inline]
pub(super) fn round_up(x: f64) -> f32 {
    (x as f32).next_up()
}
