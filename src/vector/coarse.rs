//! The coarse copy of a vector: four bits a dimension, for walks over many rows.
//!
//! A row takes half the bytes of its int8 code, which is what a walk through a large graph waits
//! for. The estimate is not exact; whoever walks keeps more rows than asked for and scores them.

use super::Metric;
use super::kernels::{self, COARSE_BLOCK_BYTES, COARSE_BLOCK_VALUES, Kernels};
use super::prefetch;

/// Added to a code before it is stored in a half byte: -8 to 7 becomes 0 to 15.
const NIBBLE_BIAS: i32 = 8;
/// Bytes of a row's factors: two f32, weight and size.
const FACTORS_BYTES: usize = 8;

/// The typical quantization error of four bits, as a share of the vector's length.
const QUANTIZATION_ERROR: f64 = 0.15;

/// Rows in four bits, as they lie in a file: the codes of all, then the factors of all.
///
/// A code is its half bytes in blocks of 128 values, so that it is whole cache lines where the first
/// one begins with one. The factors are two little-endian f32: what one step is worth (under cosine
/// divided by the row's length), and the row's size: its length under l2, under the inner product
/// what it lacks to the longest, 0 under cosine.
#[derive(Clone, Copy, Debug)]
pub struct CoarseRows<'a> {
    codes: &'a [u8],
    factors: &'a [[u8; FACTORS_BYTES]],
    code_bytes: usize,
}

impl<'a> CoarseRows<'a> {
    /// Takes bytes as rows of `dim` dimensions; rows after the last whole one are all zero.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'a [u8], dim: usize) -> Self {
        let code_bytes = code_bytes(dim);
        let (codes, factors) = bytes.split_at(bytes.len() / Self::row_bytes(dim) * code_bytes);
        Self { codes, factors: factors.as_chunks().0, code_bytes }
    }

    /// Returns the number of bytes that one row takes, code and factors.
    #[must_use]
    #[inline]
    pub const fn row_bytes(dim: usize) -> usize {
        code_bytes(dim) + FACTORS_BYTES
    }

    /// Returns the slots of all rows of `dim` dimensions that the bytes have room for.
    pub fn rows_mut(bytes: &mut [u8], dim: usize) -> impl Iterator<Item = CoarseRowMut<'_>> {
        let code_bytes = code_bytes(dim);
        let (codes, factors) = bytes.split_at_mut(bytes.len() / Self::row_bytes(dim) * code_bytes);
        let codes = codes.chunks_exact_mut(code_bytes.max(1));
        codes.zip(factors.as_chunks_mut().0).map(|(code, factors)| CoarseRowMut { code, factors })
    }

    /// Asks memory for a row without waiting for it; no result depends on that.
    #[inline]
    pub fn prefetch(&self, row: u32) {
        prefetch(self.code(row));
        prefetch(self.factors.get(row as usize).map_or(&[], <[u8; FACTORS_BYTES]>::as_slice));
    }

    /// Returns the code of one row; empty past the end, so that a damaged row number is no panic.
    #[inline]
    fn code(&self, row: u32) -> &'a [u8] {
        let at = row as usize * self.code_bytes;
        self.codes.get(at..at + self.code_bytes).unwrap_or_default()
    }

    #[inline]
    fn factors(&self, row: u32) -> (f32, f32) {
        let [a, b, c, d, e, f, g, h] = self.factors.get(row as usize).copied().unwrap_or_default();
        (f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]))
    }
}

const fn code_bytes(dim: usize) -> usize {
    dim.div_ceil(COARSE_BLOCK_VALUES) * COARSE_BLOCK_BYTES
}

/// Where one row is written: its code and its factors, which lie apart.
#[derive(Debug)]
pub struct CoarseRowMut<'a> {
    code: &'a mut [u8],
    factors: &'a mut [u8; FACTORS_BYTES],
}

impl CoarseRowMut<'_> {
    /// Writes a row that is written elsewhere already.
    ///
    /// # Panics
    ///
    /// When there is no such row, or it has another dimension.
    pub fn copy(self, rows: CoarseRows<'_>, row: u32) {
        self.code.copy_from_slice(rows.code(row));
        *self.factors = rows.factors[row as usize];
    }
}

/// A row as an int8 code, with what its coarse copy and comparisons with it need.
#[derive(Clone, Copy, Debug)]
pub struct CoarseSource<'a> {
    /// The int8 code, see [`quantize`](super::quantize).
    pub bytes: &'a [i8],
    /// What one step of the int8 code is worth: a value is about its code times this.
    pub scale: f32,
    /// The row's length, as [`norm`](super::norm) gives it.
    pub norm: f32,
    /// Under the inner product what the row lacks to the longest of all, so that all rows with it
    /// as one more dimension are equally long; otherwise ignored. A query has 0.
    pub extra_dimension: f32,
}

impl CoarseSource<'_> {
    /// Returns the weight with which the product of codes is multiplied, before the coarse code's own scale, and the row's size,
    /// which is added. See [`Metric`].
    #[must_use]
    pub fn factors(&self, metric: Metric) -> (f64, f32) {
        metric.factors(self.scale, self.norm, self.extra_dimension)
    }

    /// Writes the row's coarse copy.
    ///
    /// # Panics
    ///
    /// When the place is for another dimension.
    pub fn write(&self, metric: Metric, place: CoarseRowMut<'_>) {
        let CoarseRowMut { code, factors } = place;
        assert_eq!(code.len(), code_bytes(self.bytes.len()), "a coarse row has a fixed length");
        let table = best_rounding_table(self.bytes);
        // Both halves hold a zero, so that what lies behind the last dimension adds nothing to a product.
        code.fill(NIBBLE_BIAS as u8 * 0x11);
        // The product with the row itself shall come out exact, which takes the shrinking that
        // rounding brings out of all estimates.
        let (mut own, mut estimated) = (0_i64, 0_i64);
        for (i, &byte) in self.bytes.iter().enumerate() {
            let value = i32::from(table[usize::from(byte as u8)]);
            own += i64::from(byte) * i64::from(byte);
            estimated += i64::from(byte) * i64::from(value);
            let (at, shift) = (
                i / COARSE_BLOCK_VALUES * COARSE_BLOCK_BYTES + i % COARSE_BLOCK_BYTES,
                i % COARSE_BLOCK_VALUES / COARSE_BLOCK_BYTES * 4,
            );
            code[at] = code[at] & !(0xF << shift) | ((value + NIBBLE_BIAS) as u8) << shift;
        }
        let share = if estimated > 0 { own as f64 / estimated as f64 } else { 0.0 };
        let (weight, size) = self.factors(metric);
        factors[..4].copy_from_slice(&super::prepared::to_f32(weight * share).to_le_bytes());
        factors[4..].copy_from_slice(&size.to_le_bytes());
    }
}

/// Returns the coarse values that int8 ones become, when `step` of the latter make one of the former.
fn rounding_table(step: f32) -> [i8; 256] {
    // Adding 1.5 * 2^23 rounds to the nearest whole number, the same on every processor.
    const SHIFT: f32 = 12_582_912.0;
    std::array::from_fn(|raw| {
        let byte = f32::from(raw as u8 as i8);
        ((byte / step + SHIFT) - SHIFT).clamp(-8.0, 7.0) as i8
    })
}

/// Returns the table by which the coarse code points most nearly where the int8 code does.
///
/// A step that the largest value needs wastes resolution on all others; a smaller one cuts off the
/// largest.
fn best_rounding_table(bytes: &[i8]) -> [i8; 256] {
    let largest = f32::from(bytes.iter().map(|byte| byte.unsigned_abs()).max().unwrap_or(0).max(1));
    let mut counts = [0_i64; 256];
    bytes.iter().for_each(|&byte| counts[usize::from(byte as u8)] += 1);
    let likeness = |table: &[i8; 256]| {
        let (mut along, mut length) = (0, 0);
        for (raw, (&count, &value)) in counts.iter().zip(table).enumerate() {
            along += count * i64::from(raw as u8 as i8) * i64::from(value);
            length += count * i64::from(value) * i64::from(value);
        }
        if length == 0 { 0.0 } else { along as f64 * along as f64 / length as f64 }
    };
    // Only what is strictly better takes its place, so that of equally good steps always the same one is used.
    let mut best = rounding_table(largest / 7.0);
    for levels in [8.0, 9.0, 10.5, 12.0, 14.0] {
        let other = rounding_table(largest / levels);
        if likeness(&other) > likeness(&best) {
            best = other;
        }
    }
    best
}

/// Reusable buffers for estimates of several rows.
#[derive(Clone, Debug, Default)]
pub struct Estimates {
    products: Vec<i32>,
    /// About the scores of the rows, in the order that was asked for.
    pub scores: Vec<f32>,
}

/// A query in int8, ready to be compared with coarse rows.
#[derive(Clone, Debug)]
pub struct CoarseQuery {
    metric: Metric,
    /// The code, filled up with zeros to whole blocks.
    bytes: Vec<i8>,
    /// What the products of the code with a row's raised values have too much.
    excess: i32,
    weight: f64,
    size: f64,
    /// About what products are wrong by; under l2 twice that, the squares of distances.
    error: f64,
    kernels: &'static Kernels,
}

impl CoarseQuery {
    /// Makes a query of a vector's int8 code, for rows of the same dimension that were written under the same metric.
    /// The code is filled up with zeros to whole blocks, as rows are.
    #[must_use]
    pub fn new(metric: Metric, source: CoarseSource<'_>) -> Self {
        let mut bytes = source.bytes.to_vec();
        bytes.resize(source.bytes.len().next_multiple_of(COARSE_BLOCK_VALUES), 0);
        let (weight, size) = source.factors(metric);
        let excess = NIBBLE_BIAS * source.bytes.iter().map(|&byte| i32::from(byte)).sum::<i32>();
        // The error of each dimension is by chance, so that of the whole goes with the root.
        let (error, size) = (QUANTIZATION_ERROR / (source.bytes.len().max(1) as f64).sqrt(), f64::from(size));
        let error = metric.estimate_error(error, size);
        Self { metric, bytes, excess, weight, size, error, kernels: kernels::best() }
    }

    /// Puts about the scores of some rows into `out`, in their order; what was in it is dropped.
    ///
    /// Larger is better, as in [`PreparedVector::score`](super::PreparedVector::score), and never NaN. The rows
    /// must have been written under this metric and dimension; what lies behind their end is 0.
    #[inline]
    pub fn estimate_many(&self, rows: CoarseRows<'_>, places: &[u32], out: &mut Estimates) {
        out.products.resize(places.len(), 0);
        self.kernels.dots_coarse(&self.bytes, rows.codes, places, &mut out.products);
        let products = places.iter().zip(&out.products);
        out.scores.clear();
        out.scores.extend(products.map(|(&place, &product)| self.score(product, rows.factors(place))));
    }

    /// Returns about the score of one row, the same bits as [`CoarseQuery::estimate_many`] gives.
    #[must_use]
    #[inline]
    pub fn estimate(&self, rows: CoarseRows<'_>, place: u32) -> f32 {
        let mut product = [0];
        self.kernels.dots_coarse(&self.bytes, rows.codes, &[place], &mut product);
        self.score(product[0], rows.factors(place))
    }

    /// Returns an estimate of the score of a row `times` as far from the query as one of this score, lowered by the
    /// error of estimates.
    ///
    /// Far is meant as the euclidean distance, between vectors of unit length under cosine. The inner
    /// product is not a distance: there the least of all comes back.
    #[must_use]
    #[inline]
    pub fn score_at_distance_times(&self, score: f32, times: f32) -> f32 {
        let (near, times) = (f64::from(score), f64::from(times));
        let far = self.metric.score_at_distance_times(near, times, self.error);
        score.min(far as f32)
    }

    #[inline]
    #[expect(clippy::manual_clamp, reason = "clamp would keep NaN")]
    fn score(&self, product: i32, (weight, size): (f32, f32)) -> f32 {
        let product = f64::from(product - self.excess) * self.weight * f64::from(weight);
        let score = self.metric.estimate(product, self.size, f64::from(size));
        // In this form NaN, which only damaged factors make, becomes the least of all; and minus
        // zero becomes zero, so that equal numbers have equal bits.
        (score as f32).max(f32::MIN).min(f32::MAX) + 0.0
    }
}
