//! A cheap test that nearly all rows of a scan fail, so that few need their bounds worked out.

use std::ops::RangeInclusive;

use super::{CodeProduct, PreparedVector};
use crate::vector::metric::SieveTerms;

/// Lengths of queries and rows for which no term below leaves the range of f32, not even in its
/// square; others pass untested.
const NORM_PLAIN: RangeInclusive<f32> = 1e-6..=1e6;

/// What the sum of five terms in f32 can be off, as a share of the sum of their sizes: a term
/// passes four roundings, and four more as they are added, which makes less than half of this.
const ROUNDING_SLACK: f64 = 1e-6;

/// Tells from the product of two codes that a row's upper bound lies below some score.
///
/// The condition for that, with all that belongs to the row on one side, is a sum of five terms
/// whose factors depend on the query and the score alone.
#[derive(Clone, Copy, Debug)]
pub struct Sieve {
    product: f32,
    residual: f32,
    norm: f32,
    square: f32,
    rest: f32,
}

impl Sieve {
    /// Lets every row pass.
    const ALL: Sieve = Sieve { product: 0.0, residual: 0.0, norm: 0.0, square: 0.0, rest: f32::INFINITY };

    /// Returns whether a row may score as much as the query's threshold: its bounds say more.
    ///
    /// If this is false, the upper of [`PreparedVector::bounds`] is certainly below the threshold.
    #[must_use]
    #[inline]
    pub fn passes(&self, row: CodeProduct) -> bool {
        let CodeProduct { product, scale, residual, norm } = row;
        let certain = self.product * (product as f32 * scale) + self.residual * residual;
        let bound = certain + self.norm * norm + self.square * norm * norm + self.rest;
        // Written so that NaN passes, which only damaged rows make.
        !(bound < 0.0 && NORM_PLAIN.contains(&norm))
    }
}

impl PreparedVector {
    /// Puts the products of the query's code with those of some rows into `out`; the rows' codes lie one after the
    /// other in `codes`. Rows past the end give 0.
    ///
    /// # Panics
    ///
    /// When `out` is not as long as `rows`.
    #[inline]
    pub fn compute_products(&self, codes: &[i8], rows: &[u32], out: &mut [i32]) {
        self.kernels.dots_i8(&self.bytes, codes, rows, out);
    }

    /// Returns the test by which rows are dropped whose scores are certainly below `worst`.
    #[must_use]
    pub fn sieve(&self, worst: Option<f32>) -> Sieve {
        let Some(worst) = worst.filter(|_| NORM_PLAIN.contains(&self.norm)) else { return Sieve::ALL };
        // An upper bound is rounded to f32 and raised by one step: what is not above this is below
        // `worst` after that.
        let limit = f64::from(worst.next_down().next_down());
        let (a, q, more) = (f64::from(self.norm), f64::from(self.residual), 1.0 + self.rounding);
        // `product_error`, as so much for the row's residual and so much for its length; and what
        // computing the product here may lose.
        let lost = ROUNDING_SLACK * (a * more + q) * more;
        let (residual, norm) = ((a + q) * more + lost, q * more * more + lost);
        self.sieve_from_terms(self.metric.sieve_terms((limit, a, self.rounding), (residual, norm), ROUNDING_SLACK))
    }

    /// Rounds the factors up; those of what is never negative get their own slack.
    fn sieve_from_terms(&self, terms: SieveTerms) -> Sieve {
        let SieveTerms { product, residual, norm, square, rest } = terms;
        Sieve {
            product: product * self.scale,
            residual: round_up(residual * (1.0 + ROUNDING_SLACK)),
            norm: round_up(norm + ROUNDING_SLACK * norm.abs()),
            square: round_up(square),
            rest: round_up(rest),
        }
    }
}

/// Returns an f32 that is not below `x`. Zero stays zero: the number after it would slow down every
/// product a hundredfold.
fn round_up(x: f64) -> f32 {
    if x == 0.0 { 0.0 } else { (x as f32).next_up() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Metric;

    #[test]
    fn no_factor_is_so_small_that_products_with_it_are_slow() {
        for metric in Metric::ALL {
            for worst in [-1.0, -0.25, 0.0, 0.5] {
                let sieve = PreparedVector::new(metric, vec![0.5, -1.0, 0.25]).sieve(Some(worst));
                for factor in [sieve.product, sieve.residual, sieve.norm, sieve.square] {
                    assert!(factor == 0.0 || factor.is_normal(), "{metric}, {worst}: {sieve:?}");
                }
            }
        }
    }
}
