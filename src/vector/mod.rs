//! Vectors as plain arithmetic: metrics, distance kernels and the compact int8 copy of a vector.
//!
//! It knows no record, no branch and no file: slices go in, numbers come out. Queries use [`PreparedVector`], writers of
//! segments the free functions.
//!
//! **Invariant: equal bits in, equal bits out.** Each kernel adds in one fixed order that depends on
//! the length alone, and multiplies and adds without fusing. So a score is the same on every
//! processor, at every alignment, and in whatever segment the row is stored. [`PackedMatrix`] alone is outside of it.
//!
//! ```
//! use engramfs::vector::{Metric, PreparedVector, norm};
//!
//! # fn main() -> Result<(), engramfs::vector::UnknownMetric> {
//! let metric: Metric = "cosine".parse()?;
//! let query = PreparedVector::new(metric, vec![3.0, 4.0]);
//! let (near, far) = ([6.0, 8.0], [4.0, -3.0]);
//! let score = query.score(&near, norm(&near));
//! assert!((score - 1.0).abs() < 1e-6 && query.distance(score) < 1e-6, "the length does not count");
//! assert!(query.score(&far, norm(&far)) < score);
//! assert!("hamming".parse::<Metric>().is_err());
//! # Ok(())
//! # }
//! ```

mod coarse;
mod code;
mod kernels;
mod matrix;
mod metric;
mod prepared;
#[cfg(test)]
mod tests;

pub use coarse::{CoarseQuery, CoarseRowMut, CoarseRows, CoarseSource, Estimates};
pub use code::{Code, quantize};
pub use matrix::{PackedMatrix, StridedRows};
pub use metric::{Metric, UnknownMetric};
pub use prepared::{CodeProduct, PreparedVector, Sieve};

/// The largest number of dimensions a vector may have.
pub const DIM_MAX: usize = 65_536;

/// Norms in this range can be squared and multiplied in f32 with nothing lost to overflow or
/// underflow; whatever lies outside is computed in f64.
const NORM_SAFE: std::ops::RangeInclusive<f32> = 1e-15..=1e15;

/// Returns the name of the instruction set that the kernels use on this processor, such as `avx2`; `portable` where they
/// have none for it.
#[must_use]
pub fn instruction_set() -> &'static str {
    kernels::best().name()
}

/// Returns the inner product of two vectors of equal length.
///
/// The sum is kept in f32: values whose squares leave the range of f32 give infinity or NaN here.
/// [`PreparedVector::score`] does not have that limit.
///
/// # Panics
///
/// When the lengths differ.
#[must_use]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    kernels::best().dot(a, b)
}

/// Returns the inner product of two int8 codes of equal length, exactly.
///
/// Up to [`DIM_MAX`] values the sum fits an i32 whatever the values are.
///
/// # Panics
///
/// When the lengths differ.
#[must_use]
pub fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    kernels::best().dot_i8(a, b)
}

/// Puts the inner products of a code with some rows of `codes`, which lie one after the other and are as long as it,
/// into `out`, exactly; rows past the end give 0.
///
/// # Panics
///
/// When `out` is not as long as `rows`.
pub fn dots_i8(a: &[i8], codes: &[i8], rows: &[u32], out: &mut [i32]) {
    kernels::best().dots_i8(a, codes, rows, out);
}

/// Returns the euclidean length of a vector.
///
/// Right for tiny and huge values as well; a length beyond the range of f32 is given as the
/// largest finite f32. 0 only for a vector whose values are all zero, or too small for their
/// length to be told from 0.
#[must_use]
pub fn norm(a: &[f32]) -> f32 {
    let fast = dot(a, a).sqrt();
    if NORM_SAFE.contains(&fast) { fast } else { prepared::to_f32(prepared::dot_f64(a, a).sqrt()) }
}

/// Asks the processor to bring a slice into its cache, without waiting for it.
///
/// Only ever a hint: it changes no result, and on other processors than x86-64 it does nothing.
#[inline]
pub fn prefetch<T>(slice: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(slice)).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address stays inside the slice, SSE belongs to every x86-64 processor, and
        // a prefetch reads nothing that the program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().cast::<i8>().add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slice;
}
