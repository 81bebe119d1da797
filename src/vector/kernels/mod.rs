//! The inner loops, once for each instruction set, chosen at run time.
//!
//! Every variant follows one plan, so that all give the same bits:
//!
//! - a block is 64 values; value `i` of each block is added to lane `i`;
//! - a last, partial block is filled up with zeros, which change no sum;
//! - then lane `i` takes in lane `i + 32` for `i < 32`, and so on with 16, 8, 4, 2, 1.
//!
//! Fused multiply-add is left out on purpose: a portable one is slow, and with two loads for each
//! product it would save nothing.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use super::prefetch;
use std::sync::OnceLock;

/// How many values every loop takes at a time.
const BLOCK_VALUES: usize = 64;
/// Values in a block of half bytes: the low halves hold the first 64, the high halves the rest.
pub(super) const COARSE_BLOCK_VALUES: usize = 128;
/// Bytes in a block of half bytes: two values share one.
pub(super) const COARSE_BLOCK_BYTES: usize = COARSE_BLOCK_VALUES / 2;

/// Multiplies a code with those rows of codes that are named, one product each.
type Dots = unsafe fn(&[i8], &[i8], &[u32], &mut [i32]);
/// The same with rows of half bytes.
type DotsCoarse = unsafe fn(&[i8], &[u8], &[u32], &mut [i32]);

/// The kernels of one instruction set.
///
/// A value of this type exists only where [`Kernels::supported`] found the instructions present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernels {
    name: &'static str,
    dot: unsafe fn(&[f32], &[f32]) -> f32,
    l2_squared: unsafe fn(&[f32], &[f32]) -> f32,
    dot_i8: unsafe fn(&[i8], &[i8]) -> i32,
    dots_i8: Dots,
    dots_coarse: DotsCoarse,
}

/// Returns the code of half bytes of a row among codes of `blocks` blocks each, empty if there is none.
#[inline(always)]
fn coarse_code(codes: &[u8], blocks: usize, row: u32) -> &[[u8; COARSE_BLOCK_BYTES]] {
    let all = codes.as_chunks().0;
    all.get(row as usize * blocks..).and_then(|rest| rest.get(..blocks)).unwrap_or_default()
}

/// How many rows before its turn the code of a row is asked for. While memory brings it, those
/// before it are multiplied: rows that lie anywhere cost no more than rows in a line.
const ROWS_AHEAD: usize = 16;

/// Asks memory for the codes of some rows whose turn comes later.
#[inline(always)]
fn prefetch_rows(codes: &[i8], dim: usize, rows: &[u32]) {
    rows.iter().for_each(|&row| prefetch(code(codes, dim, row)));
}

/// Returns up to `count` rows that come `ROWS_AHEAD` behind those at a place, to be prefetched.
#[inline(always)]
fn rows_to_prefetch(rows: &[u32], at: usize, count: usize) -> &[u32] {
    let end = rows.len().min(at + ROWS_AHEAD + count);
    rows.get(at + ROWS_AHEAD..end).unwrap_or_default()
}

/// Returns the int8 code of a row among codes of equal length, empty if there is none.
#[inline(always)]
fn code(codes: &[i8], dim: usize, row: u32) -> &[i8] {
    codes.get(row as usize * dim..).and_then(|rest| rest.get(..dim)).unwrap_or_default()
}

impl Kernels {
    /// Returns all variants that this processor can run, the fastest first.
    pub(super) fn supported() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if avx512::is_supported() {
                found.push(avx512::KERNELS);
            }
            if avx2::is_supported() {
                found.push(avx2::KERNELS);
            }
        }
        found.push(portable::KERNELS);
        found
    }

    /// Returns the instruction set, as [`instruction_set`](super::instruction_set) tells it.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the inner product. Panics where the lengths differ, as the loops read both alike unchecked.
    pub(super) fn dot(&self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len(), "both vectors have one dimension");
        // SAFETY: `supported` found the instructions of this variant on this processor.
        unsafe { (self.dot)(a, b) }
    }

    /// Returns the squared distance. Panics where the lengths differ, as the loops read both alike unchecked.
    pub(super) fn l2_squared(&self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len(), "both vectors have one dimension");
        // SAFETY: `supported` found the instructions of this variant on this processor.
        unsafe { (self.l2_squared)(a, b) }
    }

    /// Returns the exact product of two codes. Panics where the lengths differ, as [`Kernels::dot`] does.
    pub(super) fn dot_i8(&self, a: &[i8], b: &[i8]) -> i32 {
        assert_eq!(a.len(), b.len(), "both codes have one dimension");
        // SAFETY: `supported` found the instructions of this variant on this processor.
        unsafe { (self.dot_i8)(a, b) }
    }

    /// Puts the inner products of a code with some rows of `codes`, all of its length, into `out`.
    ///
    /// Rows past the end give 0.
    #[inline]
    pub(super) fn dots_i8(&self, a: &[i8], codes: &[i8], rows: &[u32], out: &mut [i32]) {
        assert_eq!(rows.len(), out.len(), "one product a row");
        // SAFETY: `supported` found the instructions of this variant on this processor.
        unsafe { (self.dots_i8)(a, codes, rows, out) }
    }

    /// Puts the inner products of a code with some rows of raised half bytes into `out`.
    ///
    /// `a` is a whole number of blocks long, and the rows are as many. Rows past the end give 0.
    #[inline]
    pub(super) fn dots_coarse(&self, a: &[i8], codes: &[u8], rows: &[u32], out: &mut [i32]) {
        assert_eq!(rows.len(), out.len(), "one product a row");
        // SAFETY: `supported` found the instructions of this variant on this processor.
        unsafe { (self.dots_coarse)(a, codes, rows, out) }
    }
}

/// Returns the fastest variant for this processor, found out once.
pub(super) fn best() -> &'static Kernels {
    static BEST: OnceLock<Kernels> = OnceLock::new();
    BEST.get_or_init(|| Kernels::supported()[0])
}

/// Returns a partial block filled up with zeros, which change neither a product nor a distance.
fn pad_block<T: Copy + Default>(rest: &[T]) -> [T; BLOCK_VALUES] {
    let mut block = [T::default(); BLOCK_VALUES];
    block[..rest.len()].copy_from_slice(rest);
    block
}
