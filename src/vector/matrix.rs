//! Products of matrices in f32, for the layers of an embedding model.
//!
//! Unlike the kernels that score records these multiply and add in one step where the processor can, so results
//! differ in their last bits from one processor to another. Nothing that is hashed may depend on them.

mod kernels;

use kernels::{MatrixKernel, PANEL};

/// A matrix that others are multiplied with, its columns side by side in panels of one width.
pub struct PackedMatrix {
    depth: usize,
    columns: usize,
    panels: Vec<[f32; PANEL]>,
}

/// Rows of a matrix that lie at equal distances in a slice.
#[derive(Clone, Copy)]
pub struct StridedRows<'a> {
    /// The first row begins where this does.
    pub data: &'a [f32],
    /// Numbers from the beginning of a row to that of the next.
    pub stride: usize,
    /// How many rows are multiplied; `data` may hold numbers after the last.
    pub count: usize,
}

impl PackedMatrix {
    /// Packs a matrix of `depth` rows. `value` returns its number by column and row.
    pub fn pack(columns: usize, depth: usize, value: impl Fn(usize, usize) -> f32) -> PackedMatrix {
        let mut panels = vec![[0.0; PANEL]; columns.div_ceil(PANEL) * depth];
        for (number, panel) in panels.chunks_mut(depth.max(1)).enumerate() {
            let first = number * PANEL;
            for (row, line) in panel.iter_mut().enumerate() {
                for (lane, place) in line.iter_mut().enumerate().take(columns - first) {
                    *place = value(first + lane, row);
                }
            }
        }
        PackedMatrix { depth, columns, panels }
    }

    /// Packs a matrix whose columns lie one after the other, as the weights of a layer do.
    ///
    /// # Panics
    ///
    /// When `weights` is not a whole number of columns of `depth` numbers.
    pub fn from_columns(weights: &[f32], depth: usize) -> PackedMatrix {
        let columns = weights.len() / depth;
        assert_eq!(columns * depth, weights.len(), "whole columns");
        PackedMatrix::pack(columns, depth, |column, row| weights[column * depth + row])
    }

    /// Multiplies rows with the matrix, adds `bias` to each, and puts the rows into `out`, at distances of `stride`.
    ///
    /// # Panics
    ///
    /// When a row is shorter than the matrix is deep, `bias` than it has columns, or `out` than the rows are.
    pub fn multiply(&self, rows: StridedRows<'_>, bias: Option<&[f32]>, out: &mut [f32], stride: usize) {
        let kernel = MatrixKernel::best();
        let mut sums = [[0.0; PANEL]; kernels::ROWS_MAX];
        for (number, panel) in self.panels.chunks(self.depth.max(1)).enumerate() {
            let first = number * PANEL;
            let width = PANEL.min(self.columns - first);
            for start in (0..rows.count).step_by(kernel.rows()) {
                let count = kernel.rows().min(rows.count - start);
                let mut block: [&[f32]; kernels::ROWS_MAX] = [&[]; _];
                for (row, place) in block.iter_mut().enumerate().take(count) {
                    *place = &rows.data[(start + row) * rows.stride..][..self.depth];
                }
                kernel.sum(&block[..count], panel, &mut sums);
                for (row, sums) in sums.iter().enumerate().take(count) {
                    let out = &mut out[(start + row) * stride + first..][..width];
                    match bias {
                        None => out.copy_from_slice(&sums[..width]),
                        Some(bias) => {
                            let bias = &bias[first..first + width];
                            out.iter_mut().zip(sums).zip(bias).for_each(|((out, sum), bias)| *out = sum + bias);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_gives_the_product_for_any_size() {
        let value = |seed: usize| ((seed * 7919 + 13) % 101) as f32 / 50.0 - 1.0;
        for (count, depth, columns) in [(1, 1, 1), (7, 32, 33), (8, 31, 64), (9, 384, 96), (13, 65, 5)] {
            let input: Vec<f32> = (0..count * (depth + 3) + 1).map(value).collect();
            let weights: Vec<f32> = (0..columns * depth).map(|n| value(n + 5)).collect();
            let bias: Vec<f32> = (0..columns).map(|n| value(n + 9)).collect();
            let packed = PackedMatrix::pack(columns, depth, |column, row| weights[column * depth + row]);
            let rows = StridedRows { data: &input, stride: depth + 3, count };
            let mut out = vec![7.0; count * (columns + 2)];
            packed.multiply(rows, Some(&bias), &mut out, columns + 2);
            for row in 0..count {
                for column in 0..columns {
                    let terms = (0..depth).map(|d| input[row * (depth + 3) + d] * weights[column * depth + d]);
                    let expected = terms.sum::<f32>() + bias[column];
                    let found = out[row * (columns + 2) + column];
                    assert!((found - expected).abs() < 1e-3, "{count} × {depth} × {columns}: {found} {expected}");
                }
                let behind = &out[row * (columns + 2) + columns..][..2];
                assert_eq!(behind, [7.0, 7.0], "what lies between the rows stays");
            }
        }
    }

    #[test]
    fn all_kernels_of_this_processor_agree() {
        let rows: Vec<Vec<f32>> =
            (0..8).map(|row| (0..70).map(|d| ((row * 31 + d * 17) % 23) as f32 - 11.0).collect()).collect();
        let panel: Vec<[f32; PANEL]> =
            (0..70).map(|d| std::array::from_fn(|lane| ((d * 13 + lane * 5) % 19) as f32 - 9.0)).collect();
        for kernel in MatrixKernel::supported() {
            for count in 1..=kernel.rows() {
                let block: Vec<&[f32]> = rows[..count].iter().map(Vec::as_slice).collect();
                let mut sums = [[0.0; PANEL]; kernels::ROWS_MAX];
                kernel.sum(&block, &panel, &mut sums);
                for (row, sums) in block.iter().zip(&sums) {
                    for (lane, sum) in sums.iter().enumerate() {
                        // Whole numbers, so that the order of the sum does not matter.
                        let expected: f32 = row.iter().zip(&panel).map(|(x, line)| x * line[lane]).sum();
                        assert_eq!(*sum, expected, "{} rows at a time", kernel.rows());
                    }
                }
            }
        }
    }
}
