//! Plain Rust for every processor; the compiler makes vector code of it where it can.

use super::{
    BLOCK_VALUES, COARSE_BLOCK_BYTES, COARSE_BLOCK_VALUES, Kernels, ROWS_AHEAD, coarse_code, code, pad_block,
    prefetch_rows, rows_to_prefetch,
};

/// The variant that runs everywhere, and that the others are checked against.
pub(super) const KERNELS: Kernels = Kernels { name: "portable", dot, l2_squared, dot_i8, dots_i8, dots_coarse };

fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |x, y| x * y)
}

fn l2_squared(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |x, y| (x - y) * (x - y))
}

/// Returns the sum of `term` over all pairs, in the order that the module promises.
#[inline(always)]
fn sum(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; BLOCK_VALUES];
    let mut add = |x: &[f32; BLOCK_VALUES], y: &[f32; BLOCK_VALUES]| {
        for i in 0..BLOCK_VALUES {
            lanes[i] += term(x[i], y[i]);
        }
    };
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for (x, y) in a.iter().zip(b) {
        add(x, y);
    }
    if !a_rest.is_empty() {
        add(&pad_block(a_rest), &pad_block(b_rest));
    }
    let mut width = BLOCK_VALUES;
    // Halves are added pairwise, as registers are: any other order would round otherwise than the other variants do.
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

/// The order of adding is free: whole numbers give the same sum in any.
fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum()
}

fn dots_i8(a: &[i8], codes: &[i8], rows: &[u32], out: &mut [i32]) {
    prefetch_rows(codes, a.len(), &rows[..rows.len().min(ROWS_AHEAD)]);
    for (at, (&row, out)) in rows.iter().zip(out).enumerate() {
        prefetch_rows(codes, a.len(), rows_to_prefetch(rows, at, 1));
        *out = dot_i8(a, code(codes, a.len(), row));
    }
}

fn dots_coarse(a: &[i8], codes: &[u8], rows: &[u32], out: &mut [i32]) {
    let blocks = a.as_chunks::<COARSE_BLOCK_VALUES>().0;
    for (&row, out) in rows.iter().zip(out) {
        *out = blocks.iter().zip(coarse_code(codes, blocks.len(), row)).map(|(x, y)| dot_block(x, y)).sum();
    }
}

#[inline(always)]
fn dot_block(x: &[i8; COARSE_BLOCK_VALUES], y: &[u8; COARSE_BLOCK_BYTES]) -> i32 {
    let (low, high) = x.split_at(COARSE_BLOCK_BYTES);
    let products = low.iter().zip(high).zip(y);
    products.map(|((&l, &h), &y)| i32::from(l) * i32::from(y & 15) + i32::from(h) * i32::from(y >> 4)).sum()
}
