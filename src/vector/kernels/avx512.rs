//! AVX-512 with VNNI: sixteen lanes of f32 at a time, 64 of int8.

use super::{BLOCK, Kernels, padded};
use std::arch::x86_64::*;

/// The variant for server processors since about 2019.
pub(super) const KERNELS: Kernels = Kernels { name: "avx512", dot, l2_squared, dot_i8 };

/// How many f32 a register holds.
const WIDTH: usize = 16;

/// The running sums of the 64 lanes.
type Lanes = [__m512; BLOCK / WIDTH];

/// Tells whether this processor has all parts of AVX-512 that are used here.
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni")
}

/// Returns the inner product.
#[target_feature(enable = "avx512f")]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes: Lanes = [_mm512_setzero_ps(); _];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add_products(&mut lanes, x, y);
    }
    if !a_rest.is_empty() {
        add_products(&mut lanes, &padded(a_rest), &padded(b_rest));
    }
    fold(lanes)
}

/// Returns the squared euclidean distance.
#[target_feature(enable = "avx512f")]
fn l2_squared(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes: Lanes = [_mm512_setzero_ps(); _];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add_squares(&mut lanes, x, y);
    }
    if !a_rest.is_empty() {
        add_squares(&mut lanes, &padded(a_rest), &padded(b_rest));
    }
    fold(lanes)
}

/// Adds the products of one block to the lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_products(lanes: &mut Lanes, x: &[f32; BLOCK], y: &[f32; BLOCK]) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = _mm512_add_ps(*lane, _mm512_mul_ps(load(x, i), load(y, i)));
    }
}

/// Adds the squared differences of one block to the lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_squares(lanes: &mut Lanes, x: &[f32; BLOCK], y: &[f32; BLOCK]) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        let difference = _mm512_sub_ps(load(x, i), load(y, i));
        *lane = _mm512_add_ps(*lane, _mm512_mul_ps(difference, difference));
    }
}

/// Returns the sixteen values of a block that begin at `16 * i`.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &[f32; BLOCK], i: usize) -> __m512 {
    let sixteen = &block.as_chunks::<WIDTH>().0[i];
    // SAFETY: the reference covers exactly the sixteen values read; no alignment is asked for.
    unsafe { _mm512_loadu_ps(sixteen.as_ptr()) }
}

/// Returns the sum of all lanes, halving their number six times.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(lanes: Lanes) -> f32 {
    let sixteen = _mm512_add_ps(_mm512_add_ps(lanes[0], lanes[2]), _mm512_add_ps(lanes[1], lanes[3]));
    let upper = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(sixteen)));
    let eight = _mm256_add_ps(_mm512_castps512_ps256(sixteen), upper);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// Returns the inner product of two codes.
///
/// The instruction multiplies unsigned with signed bytes, so the first side is shifted up by 128,
/// and 128 times the sum of the second side is taken off at the end. Sums may wrap on the way; the
/// result fits, so it comes out right.
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    let mut sums = [_mm512_setzero_si512(); 2];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add_codes(&mut sums, x, y);
    }
    if !a_rest.is_empty() {
        add_codes(&mut sums, &padded(a_rest), &padded(b_rest));
    }
    _mm512_reduce_add_epi32(_mm512_sub_epi32(sums[0], sums[1]))
}

/// Adds the products of one block to the first sum, and what is to be taken off to the second.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn add_codes(sums: &mut [__m512i; 2], x: &[i8; BLOCK], y: &[i8; BLOCK]) {
    let shift = _mm512_set1_epi8(i8::MIN);
    // SAFETY: each reference covers exactly the 64 bytes read; no alignment is asked for.
    let (x, y) = unsafe { (_mm512_loadu_si512(x.as_ptr().cast()), _mm512_loadu_si512(y.as_ptr().cast())) };
    sums[0] = _mm512_dpbusd_epi32(sums[0], _mm512_xor_si512(x, shift), y);
    sums[1] = _mm512_dpbusd_epi32(sums[1], shift, y);
}
