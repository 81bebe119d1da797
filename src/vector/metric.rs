//! The metrics: names and codes, and all that is computed otherwise under one than under another.
//!
//! What a metric means stands here alone. [`PreparedVector`](super::PreparedVector), its sieve, the coarse copies and the
//! graph do what is the same for all of them.

use std::fmt;
use std::str::FromStr;

use super::kernels::Kernels;
use super::prepared::{UNDERFLOW, dot_f64, round_down, round_up, to_f32};

/// How two vectors are compared. Codes and names are stored, and stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The cosine of the angle between two vectors; the default.
    #[default]
    Cosine,
    /// The euclidean distance; a score is that below zero, so that larger is better.
    L2,
    /// The inner product, which is no distance: see [`Metric::graph_distance`] for what graphs do.
    Dot,
}

impl Metric {
    /// All metrics, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Cosine, Self::L2, Self::Dot];

    /// All names in the order of [`Metric::ALL`], as the hint of a refused setting lists them.
    pub const NAMES: &'static str = "cosine, l2 or dot";

    /// Returns the byte that segments and graphs store, 0 to 2; a number is never given to another metric.
    #[must_use]
    pub fn to_code(self) -> u8 {
        match self {
            Self::Cosine => 0,
            Self::L2 => 1,
            Self::Dot => 2,
        }
    }

    /// Returns the metric of a stored number, `None` for a number never given out.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.to_code() == code)
    }

    /// Returns the name that users write: `cosine`, `l2` or `dot`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cosine => "cosine",
            Self::L2 => "l2",
            Self::Dot => "dot",
        }
    }
}

impl Metric {
    /// Returns whether a vector of zeros can't be compared: it has no direction.
    #[must_use]
    pub fn needs_direction(self) -> bool {
        match self {
            Self::Cosine => true,
            Self::L2 | Self::Dot => false,
        }
    }

    /// Returns whether scores follow a distance, so that a walk may skip what is much farther away.
    #[must_use]
    pub fn is_distance(self) -> bool {
        match self {
            Self::Cosine | Self::L2 => true,
            Self::Dot => false,
        }
    }

    /// Returns the distance that belongs to a score: smaller is better.
    pub(super) fn distance(self, score: f32) -> f32 {
        match self {
            Self::Cosine => 1.0 - score,
            // Subtracting from zero, where negating would make a minus zero.
            Self::L2 | Self::Dot => 0.0 - score,
        }
    }
}

/// Scores, and bounds on them.
impl Metric {
    /// Returns the score of two vectors whose lengths allow sums in f32: larger is better.
    #[inline]
    pub(super) fn score(self, kernels: &Kernels, (a, a_norm): (&[f32], f32), (b, b_norm): (&[f32], f32)) -> f32 {
        match self {
            Self::Cosine => (kernels.dot(a, b) / (a_norm * b_norm)).clamp(-1.0, 1.0),
            Self::L2 => 0.0 - kernels.l2_squared(a, b).sqrt(),
            Self::Dot => kernels.dot(a, b),
        }
    }

    /// Returns the score in f64, for lengths that f32 cannot square.
    pub(super) fn score_in_f64(self, a: &[f32], b: &[f32]) -> f32 {
        match self {
            Self::Cosine => {
                let lengths = (dot_f64(a, a) * dot_f64(b, b)).sqrt();
                let similarity = if lengths > 0.0 { dot_f64(a, b) / lengths } else { 0.0 };
                (similarity as f32).clamp(-1.0, 1.0)
            }
            Self::L2 => {
                let squares = a.iter().zip(b).map(|(&x, &y)| f64::from(x) - f64::from(y)).map(|d| d * d);
                to_f32(0.0 - squares.fold(0.0, |sum, square| sum + square).sqrt())
            }
            Self::Dot => to_f32(dot_f64(a, b)),
        }
    }

    /// Returns least and largest score, both finite: a product or distance beyond f32 is cut to them.
    pub(super) fn range(self) -> (f32, f32) {
        match self {
            Self::Cosine => (-1.0, 1.0),
            Self::L2 => (f32::MIN, 0.0),
            Self::Dot => (f32::MIN, f32::MAX),
        }
    }

    /// Returns bounds on the score as computed, where the product of vectors of lengths `a` and `b` is at most `off` from
    /// `product`. `rounding` bounds the relative error of a sum in f32.
    #[inline]
    pub(super) fn bounds(self, (product, off): (f64, f64), (a, b): (f64, f64), rounding: f64) -> (f32, f32) {
        match self {
            Self::Cosine => {
                let per_length = 1.0 / (a * b);
                let (middle, off) = (product * per_length, off * per_length + rounding);
                (round_down(middle - off).max(-1.0), round_up(middle + off).min(1.0))
            }
            Self::L2 => {
                let middle = a * a + b * b - 2.0 * product;
                let off = 2.0 * off + (a * a + b * b) * rounding;
                let near = (middle - off).max(0.0) * (1.0 - rounding) - UNDERFLOW;
                let far = (middle + off).max(0.0) * (1.0 + rounding) + UNDERFLOW;
                (round_down(-far.sqrt()), round_up(-near.max(0.0).sqrt()).min(0.0))
            }
            Self::Dot => {
                let off = off + a * b * rounding + UNDERFLOW;
                (round_down(product - off), round_up(product + off))
            }
        }
    }

    /// Returns the factors of the sum that is negative for a row only where the upper of its bounds lies below `limit`, the
    /// query's length being `a`. `per_residual` and `per_norm` are what the product can be off, `slack` what the sum can
    /// be, as a share.
    pub(super) fn sieve_terms(
        self,
        (limit, a, rounding): (f64, f64, f64),
        (per_residual, per_norm): (f64, f64),
        slack: f64,
    ) -> SieveTerms {
        match self {
            Self::Cosine => {
                let norm = per_norm + rounding * a - limit * a + slack * (per_norm + limit.abs() * a);
                SieveTerms { product: 1.0, residual: per_residual, norm, square: 0.0, rest: 0.0 }
            }
            Self::L2 => {
                let far = (limit * limit + UNDERFLOW) / (1.0 - rounding);
                let square = rounding - 1.0 + slack;
                let rest = a * a * square + far * (1.0 + slack);
                SieveTerms { product: 2.0, residual: 2.0 * per_residual, norm: 2.0 * per_norm, square, rest }
            }
            Self::Dot => {
                let (norm, rest) = (per_norm + rounding * a, UNDERFLOW - limit + slack * limit.abs());
                SieveTerms { product: 1.0, residual: per_residual, norm, square: 0.0, rest }
            }
        }
    }
}

/// What the product of codes, a row's residual, its length, and the square of that are multiplied with; and what is added.
pub(super) struct SieveTerms {
    /// Factor of the product of the codes.
    pub product: f32,
    /// Factor of the length of what the row's code leaves out.
    pub residual: f64,
    /// Factor of the row's euclidean length.
    pub norm: f64,
    /// Factor of the square of that length.
    pub square: f64,
    /// Added to the sum of all.
    pub rest: f64,
}

/// What coarse copies and graphs compute: a row has a weight, with which the product of codes is multiplied, and a size.
impl Metric {
    /// Returns what a step of a row's code is worth, and the row's size, from its scale, its length and what it lacks to the
    /// longest.
    pub(super) fn factors(self, scale: f32, norm: f32, extra_dimension: f32) -> (f64, f32) {
        match self {
            Self::Cosine if norm > 0.0 => (f64::from(scale) / f64::from(norm), 0.0),
            Self::Cosine => (0.0, 0.0),
            Self::L2 => (f64::from(scale), norm),
            Self::Dot => (f64::from(scale), extra_dimension),
        }
    }

    /// Returns about the score that follows from the product of two vectors and their sizes.
    #[inline]
    pub(super) fn estimate(self, product: f64, a_size: f64, b_size: f64) -> f64 {
        match self {
            Self::Cosine | Self::Dot => product + a_size * b_size,
            Self::L2 => 0.0 - (a_size * a_size + b_size * b_size - 2.0 * product).max(0.0).sqrt(),
        }
    }

    /// Returns about what estimates are wrong by, from the typical error of products of unit vectors and the query's size;
    /// under l2 that of the squares of distances.
    pub(super) fn estimate_error(self, error: f64, size: f64) -> f64 {
        match self {
            Self::Cosine | Self::Dot => error,
            Self::L2 => 2.0 * error * size * size,
        }
    }

    /// Returns about the score of what lies `times` as far off as one of the score `near`, and farther by what estimates are
    /// wrong by; the least of all where scores follow no distance.
    #[inline]
    pub(super) fn score_at_distance_times(self, near: f64, times: f64, error: f64) -> f64 {
        match self {
            // The square of the distance is 2 (1 - score).
            Self::Cosine => 1.0 - (1.0 - near).max(0.0) * times * times - error,
            Self::L2 => -(near * near * times * times + error).sqrt(),
            Self::Dot => f64::from(f32::MIN),
        }
    }

    /// Returns how far two rows lie apart for a graph, from their product and sizes; `longest` is the length of the longest
    /// of all.
    ///
    /// The inner product is not a distance: a row may be nearer to another than to itself. So each row is given one more
    /// dimension that brings it to the length of the longest (Bachrach and others, 2014). A query has 0 there, so that
    /// its products, and their order, stay.
    #[inline]
    #[must_use]
    pub fn graph_distance(self, product: f64, a_size: f64, b_size: f64, longest: f64) -> f64 {
        match self {
            Self::Cosine => 1.0 - product,
            Self::L2 => a_size * a_size + b_size * b_size - 2.0 * product,
            Self::Dot => longest * longest - product - a_size * b_size,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text that was given as a metric's name; names are lower-case, so `L2` is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metric {0:?} is unknown")]
pub struct UnknownMetric(pub String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, UnknownMetric> {
        Self::ALL.into_iter().find(|metric| metric.name() == name).ok_or_else(|| UnknownMetric(name.to_owned()))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for metric in Metric::ALL {
            assert_eq!(metric.to_string().parse::<Metric>().unwrap(), metric);
            assert_eq!(Metric::from_code(metric.to_code()), Some(metric));
        }
        assert_eq!(Metric::ALL.map(Metric::to_code), [0, 1, 2]);
        assert_eq!(Metric::ALL.map(Metric::name).join(", "), Metric::NAMES.replace(" or ", ", "));
    }

    #[test]
    fn the_page_of_the_format_has_the_codes_of_all_metrics() {
        let codes = Metric::ALL.map(|metric| format!("{} {}", metric.to_code(), metric.name())).join(", ");
        let page = include_str!("../../docs/FORMAT.md");
        assert!(page.contains(&format!("\nA metric is one byte: {codes}.\n")), "{codes}");
    }

    #[test]
    fn what_is_no_metric_is_refused_with_the_allowed_names() {
        assert_eq!(Metric::from_code(3), None);
        let error = "L2".parse::<Metric>().unwrap_err();
        assert_eq!(error.to_string(), "metric \"L2\" is unknown");
    }
}
