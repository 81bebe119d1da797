//! AVX2: eight lanes of f32 at a time, sixteen of int8.

use super::{
    BLOCK_VALUES, COARSE_BLOCK_BYTES, COARSE_BLOCK_VALUES, Kernels, ROWS_AHEAD, coarse_code, code, pad_block,
    prefetch_rows, rows_to_prefetch,
};
use std::arch::x86_64::*;

/// The variant for processors since about 2013.
pub(super) const KERNELS: Kernels = Kernels { name: "avx2", dot, l2_squared, dot_i8, dots_i8, dots_coarse };

/// How many f32 a register holds.
const WIDTH: usize = 8;

/// The running sums of the 64 lanes.
type Lanes = [__m256; BLOCK_VALUES / WIDTH];

/// Returns whether this processor has AVX2, the one extension that is used here.
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx2")
}

#[target_feature(enable = "avx2")]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes: Lanes = [_mm256_setzero_ps(); _];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add_products(&mut lanes, x, y);
    }
    if !a_rest.is_empty() {
        add_products(&mut lanes, &pad_block(a_rest), &pad_block(b_rest));
    }
    fold(lanes)
}

#[target_feature(enable = "avx2")]
fn l2_squared(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes: Lanes = [_mm256_setzero_ps(); _];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add_squares(&mut lanes, x, y);
    }
    if !a_rest.is_empty() {
        add_squares(&mut lanes, &pad_block(a_rest), &pad_block(b_rest));
    }
    fold(lanes)
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_products(lanes: &mut Lanes, x: &[f32; BLOCK_VALUES], y: &[f32; BLOCK_VALUES]) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = _mm256_add_ps(*lane, _mm256_mul_ps(load(x, i), load(y, i)));
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_squares(lanes: &mut Lanes, x: &[f32; BLOCK_VALUES], y: &[f32; BLOCK_VALUES]) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        let difference = _mm256_sub_ps(load(x, i), load(y, i));
        *lane = _mm256_add_ps(*lane, _mm256_mul_ps(difference, difference));
    }
}

/// Returns the eight values of a block that begin at `8 * i`.
#[inline]
#[target_feature(enable = "avx2")]
fn load(block: &[f32; BLOCK_VALUES], i: usize) -> __m256 {
    let eight = &block.as_chunks::<WIDTH>().0[i];
    // SAFETY: the reference covers exactly the eight values read; no alignment is asked for.
    unsafe { _mm256_loadu_ps(eight.as_ptr()) }
}

/// Returns the sum of all lanes, halving their number six times.
#[inline]
#[target_feature(enable = "avx2")]
fn fold(mut lanes: Lanes) -> f32 {
    let mut registers = lanes.len();
    while registers > 1 {
        registers /= 2;
        for i in 0..registers {
            lanes[i] = _mm256_add_ps(lanes[i], lanes[i + registers]);
        }
    }
    let four = _mm_add_ps(_mm256_castps256_ps128(lanes[0]), _mm256_extractf128_ps::<1>(lanes[0]));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// The values are widened to 16 bits first: the instruction that multiplies bytes saturates.
#[target_feature(enable = "avx2")]
fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    let mut sums = [_mm256_setzero_si256(); 4];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add_codes(&mut sums, x, y);
    }
    if !a_rest.is_empty() {
        add_codes(&mut sums, &pad_block(a_rest), &pad_block(b_rest));
    }
    fold_whole(_mm256_add_epi32(_mm256_add_epi32(sums[0], sums[1]), _mm256_add_epi32(sums[2], sums[3])))
}

#[inline]
#[target_feature(enable = "avx2")]
fn fold_whole(sum: __m256i) -> i32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_codes(sums: &mut [__m256i; 4], x: &[i8; BLOCK_VALUES], y: &[i8; BLOCK_VALUES]) {
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(widen(x, i), widen(y, i)));
    }
}

/// Returns the sixteen values of a block that begin at `16 * i`, as 16-bit numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn widen(block: &[i8; BLOCK_VALUES], i: usize) -> __m256i {
    let sixteen = &block.as_chunks::<16>().0[i];
    // SAFETY: the reference covers exactly the sixteen bytes read; no alignment is asked for.
    _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(sixteen.as_ptr().cast()) })
}

#[target_feature(enable = "avx2")]
fn dots_i8(a: &[i8], codes: &[i8], rows: &[u32], out: &mut [i32]) {
    prefetch_rows(codes, a.len(), &rows[..rows.len().min(ROWS_AHEAD)]);
    for (at, (&row, out)) in rows.iter().zip(out).enumerate() {
        prefetch_rows(codes, a.len(), rows_to_prefetch(rows, at, 1));
        *out = dot_i8(a, code(codes, a.len(), row));
    }
}

#[target_feature(enable = "avx2")]
fn dots_coarse(a: &[i8], codes: &[u8], rows: &[u32], out: &mut [i32]) {
    let blocks = a.as_chunks::<COARSE_BLOCK_VALUES>().0;
    for (&row, out) in rows.iter().zip(out) {
        let mut sum = _mm256_setzero_si256();
        for (x, y) in blocks.iter().zip(coarse_code(codes, blocks.len(), row)) {
            sum = add_block(sum, x, y);
        }
        *out = fold_whole(sum);
    }
}

/// Adds the products of one block of half bytes to the sum.
///
/// Two products of a byte with a half byte make at most 3,840, and eight times that fits 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn add_block(sum: __m256i, x: &[i8; COARSE_BLOCK_VALUES], y: &[u8; COARSE_BLOCK_BYTES]) -> __m256i {
    const HALF: usize = COARSE_BLOCK_BYTES / 2;
    let x = x.as_chunks::<HALF>().0;
    let low_bits = _mm256_set1_epi8(15);
    let mut sixteens = _mm256_setzero_si256();
    for (i, y) in y.as_chunks::<HALF>().0.iter().enumerate() {
        // SAFETY: each reference covers exactly the 32 bytes read; no alignment is asked for.
        let (y, x_low, x_high) = unsafe {
            let load = |bytes: *const i8| _mm256_loadu_si256(bytes.cast());
            (load(y.as_ptr().cast()), load(x[i].as_ptr()), load(x[i + 2].as_ptr()))
        };
        let (y_low, y_high) = (_mm256_and_si256(y, low_bits), _mm256_and_si256(_mm256_srli_epi16::<4>(y), low_bits));
        sixteens = _mm256_add_epi16(sixteens, _mm256_maddubs_epi16(y_low, x_low));
        sixteens = _mm256_add_epi16(sixteens, _mm256_maddubs_epi16(y_high, x_high));
    }
    _mm256_add_epi32(sum, _mm256_madd_epi16(sixteens, _mm256_set1_epi16(1)))
}
