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

use std::sync::OnceLock;

/// How many values every loop takes at a time.
const BLOCK: usize = 64;

/// The kernels of one instruction set.
///
/// A value of this type exists only where [`Kernels::supported`] found the instructions present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernels {
    name: &'static str,
    dot: unsafe fn(&[f32], &[f32]) -> f32,
    l2_squared: unsafe fn(&[f32], &[f32]) -> f32,
    dot_i8: unsafe fn(&[i8], &[i8]) -> i32,
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

    /// Returns the name of the instruction set.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the inner product.
    pub(super) fn dot(&self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len(), "both vectors have one dimension");
        // SAFETY: `supported` found the instructions of this variant on this processor.
        unsafe { (self.dot)(a, b) }
    }

    /// Returns the squared euclidean distance.
    pub(super) fn l2_squared(&self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len(), "both vectors have one dimension");
        // SAFETY: `supported` found the instructions of this variant on this processor.
        unsafe { (self.l2_squared)(a, b) }
    }

    /// Returns the inner product of two codes.
    pub(super) fn dot_i8(&self, a: &[i8], b: &[i8]) -> i32 {
        assert_eq!(a.len(), b.len(), "both codes have one dimension");
        // SAFETY: `supported` found the instructions of this variant on this processor.
        unsafe { (self.dot_i8)(a, b) }
    }
}

/// Returns the fastest variant for this processor, found out once.
pub(super) fn best() -> &'static Kernels {
    static BEST: OnceLock<Kernels> = OnceLock::new();
    BEST.get_or_init(|| Kernels::supported()[0])
}

/// Returns a partial block filled up with zeros.
fn padded<T: Copy + Default>(rest: &[T]) -> [T; BLOCK] {
    let mut block = [T::default(); BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    block
}
