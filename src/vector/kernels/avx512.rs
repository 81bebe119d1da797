//! AVX-512 with VNNI: sixteen lanes of f32 at a time, 64 of int8.

use super::{
    BLOCK_VALUES, COARSE_BLOCK_BYTES, COARSE_BLOCK_VALUES, Kernels, ROWS_AHEAD, coarse_code, code, pad_block,
    prefetch_rows, rows_to_prefetch,
};
use std::arch::x86_64::*;

/// The variant for server processors since about 2019.
pub(super) const KERNELS: Kernels = Kernels { name: "avx512", dot, l2_squared, dot_i8, dots_i8, dots_coarse };

/// How many f32 a register holds.
const WIDTH: usize = 16;

/// The running sums of the 64 lanes.
type Lanes = [__m512; BLOCK_VALUES / WIDTH];

/// Returns whether this processor has all parts of AVX-512 that are used here; some have only a few.
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni")
}

#[target_feature(enable = "avx512f")]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes: Lanes = [_mm512_setzero_ps(); _];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add_products(&mut lanes, x, y);
    }
    if !a_rest.is_empty() {
        add_products(&mut lanes, &pad_block(a_rest), &pad_block(b_rest));
    }
    fold(lanes)
}

#[target_feature(enable = "avx512f")]
fn l2_squared(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes: Lanes = [_mm512_setzero_ps(); _];
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
#[target_feature(enable = "avx512f")]
fn add_products(lanes: &mut Lanes, x: &[f32; BLOCK_VALUES], y: &[f32; BLOCK_VALUES]) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = _mm512_add_ps(*lane, _mm512_mul_ps(load(x, i), load(y, i)));
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add_squares(lanes: &mut Lanes, x: &[f32; BLOCK_VALUES], y: &[f32; BLOCK_VALUES]) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        let difference = _mm512_sub_ps(load(x, i), load(y, i));
        *lane = _mm512_add_ps(*lane, _mm512_mul_ps(difference, difference));
    }
}

/// Returns the sixteen values of a block that begin at `16 * i`.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &[f32; BLOCK_VALUES], i: usize) -> __m512 {
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

/// The instruction multiplies unsigned with signed bytes, so the first side is shifted up by 128, and 128 times the sum
/// of the second side is taken off at the end. Sums may wrap on the way; the result fits, so it comes out right.
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    let mut sums = [_mm512_setzero_si512(); 2];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add_codes(&mut sums, x, y);
    }
    if !a_rest.is_empty() {
        add_codes(&mut sums, &pad_block(a_rest), &pad_block(b_rest));
    }
    _mm512_reduce_add_epi32(_mm512_sub_epi32(sums[0], sums[1]))
}

/// Adds the products of one block to the first sum, and what is to be taken off to the second.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn add_codes(sums: &mut [__m512i; 2], x: &[i8; BLOCK_VALUES], y: &[i8; BLOCK_VALUES]) {
    let shift = _mm512_set1_epi8(i8::MIN);
    // SAFETY: each reference covers exactly the 64 bytes read; no alignment is asked for.
    let (x, y) = unsafe { (_mm512_loadu_si512(x.as_ptr().cast()), _mm512_loadu_si512(y.as_ptr().cast())) };
    sums[0] = _mm512_dpbusd_epi32(sums[0], _mm512_xor_si512(x, shift), y);
    sums[1] = _mm512_dpbusd_epi32(sums[1], shift, y);
}

/// Rows that are multiplied side by side: one load of the query serves all, and so does most of
/// the adding up at the end.
const SIDE_BY_SIDE: usize = 4;

/// Here the rows are shifted up, so that what is to be taken off is the same for all.
#[target_feature(enable = "avx512f,avx512vnni")]
fn dots_i8(a: &[i8], codes: &[i8], rows: &[u32], out: &mut [i32]) {
    let shift = _mm512_set1_epi8(i8::MIN);
    let (whole, a_rest) = a.as_chunks::<BLOCK_VALUES>();
    let a_rest = (!a_rest.is_empty()).then(|| pad_block(a_rest));
    let zero = _mm512_setzero_si512();
    let excess = whole.iter().chain(&a_rest).fold(zero, |sum, x| _mm512_dpbusd_epi32(sum, shift, load_code(x)));
    prefetch_rows(codes, a.len(), &rows[..rows.len().min(ROWS_AHEAD)]);
    let all = rows;
    for (number, (rows, out)) in rows.chunks(SIDE_BY_SIDE).zip(out.chunks_mut(SIDE_BY_SIDE)).enumerate() {
        prefetch_rows(codes, a.len(), rows_to_prefetch(all, number * SIDE_BY_SIDE, SIDE_BY_SIDE));
        let four = four_codes(rows, |row| code(codes, a.len(), row));
        // Each sum begins at minus what the shift by 128 adds to it.
        let mut sums = [_mm512_sub_epi32(zero, excess); SIDE_BY_SIDE];
        for (sum, code) in sums.iter_mut().zip(four) {
            let (b, b_rest) = code.as_chunks::<BLOCK_VALUES>();
            for (x, y) in whole.iter().zip(b) {
                *sum = _mm512_dpbusd_epi32(*sum, _mm512_xor_si512(load_code(y), shift), load_code(x));
            }
            if let Some(x) = &a_rest {
                *sum = _mm512_dpbusd_epi32(*sum, _mm512_xor_si512(load_code(&pad_block(b_rest)), shift), load_code(x));
            }
            // A row that is not there gives an empty code; its sum is still the start value.
            if code.len() < a.len() {
                *sum = zero;
            }
        }
        out.iter_mut().zip(fold_four(sums)).for_each(|(out, sum)| *out = sum);
    }
}

/// Returns four codes, the last one more often where there are fewer rows.
#[inline(always)]
fn four_codes<'a, T>(rows: &[u32], code: impl Fn(u32) -> &'a [T]) -> [&'a [T]; SIDE_BY_SIDE] {
    let at = |i: usize| rows[i.min(rows.len() - 1)];
    [code(at(0)), code(at(1)), code(at(2)), code(at(3))]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn fold_four([a, b, c, d]: [__m512i; SIDE_BY_SIDE]) -> [i32; SIDE_BY_SIDE] {
    let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    let all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let eight = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
    let four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
    let mut sums = [0; SIDE_BY_SIDE];
    // SAFETY: the array is exactly the sixteen bytes written; no alignment is asked for.
    unsafe { _mm_storeu_si128(sums.as_mut_ptr().cast(), four) };
    sums
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_code(block: &[i8; BLOCK_VALUES]) -> __m512i {
    // SAFETY: the reference covers exactly the 64 bytes read; no alignment is asked for.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512vnni")]
fn dots_coarse(a: &[i8], codes: &[u8], rows: &[u32], out: &mut [i32]) {
    let blocks = a.as_chunks::<COARSE_BLOCK_VALUES>().0;
    for (rows, out) in rows.chunks(SIDE_BY_SIDE).zip(out.chunks_mut(SIDE_BY_SIDE)) {
        let four = four_codes(rows, |row| coarse_code(codes, blocks.len(), row));
        let mut sums = [_mm512_setzero_si512(); SIDE_BY_SIDE];
        if four.iter().all(|code| code.len() == blocks.len()) {
            for (i, x) in blocks.iter().enumerate() {
                for (sum, code) in sums.iter_mut().zip(four) {
                    add_block(sum, x, &code[i]);
                }
            }
        } else {
            for (sum, code) in sums.iter_mut().zip(four) {
                blocks.iter().zip(code).for_each(|(x, y)| add_block(sum, x, y));
            }
        }
        out.iter_mut().zip(fold_four(sums)).for_each(|(out, sum)| *out = sum);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn add_block(sum: &mut __m512i, x: &[i8; COARSE_BLOCK_VALUES], y: &[u8; COARSE_BLOCK_BYTES]) {
    let low_bits = _mm512_set1_epi32(0x0F0F_0F0F);
    let [low, high] = x.as_chunks::<BLOCK_VALUES>().0 else { return };
    // SAFETY: the reference covers exactly the 64 bytes read; no alignment is asked for.
    let y = unsafe { _mm512_loadu_si512(y.as_ptr().cast()) };
    *sum = _mm512_dpbusd_epi32(*sum, _mm512_and_si512(y, low_bits), load_code(low));
    let raised = _mm512_and_si512(_mm512_srli_epi32::<4>(y), low_bits);
    *sum = _mm512_dpbusd_epi32(*sum, raised, load_code(high));
}
