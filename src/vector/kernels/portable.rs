//! Plain Rust for every processor; the compiler makes vector code of it where it can.

use super::{BLOCK, Kernels, padded};

/// The variant that runs everywhere, and that the others are checked against.
pub(super) const KERNELS: Kernels = Kernels { name: "portable", dot, l2_squared, dot_i8 };

/// Returns the inner product.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |x, y| x * y)
}

/// Returns the squared euclidean distance.
fn l2_squared(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |x, y| (x - y) * (x - y))
}

/// Returns the sum of `term` over all pairs, in the order that the module promises.
#[inline(always)]
fn sum(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; BLOCK];
    let mut add = |x: &[f32; BLOCK], y: &[f32; BLOCK]| {
        for i in 0..BLOCK {
            lanes[i] += term(x[i], y[i]);
        }
    };
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add(x, y);
    }
    if !a_rest.is_empty() {
        add(&padded(a_rest), &padded(b_rest));
    }
    let mut width = BLOCK;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

/// Returns the inner product of two codes. Whole numbers need no order.
fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum()
}
