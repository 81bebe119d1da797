//! The inner loop of a product: some rows with one panel of columns, all sums in registers.

use std::sync::OnceLock;

/// Columns of a panel: two registers of AVX-512 hold a line of it, four of AVX2.
pub(super) const PANEL: usize = 32;
/// The most rows that any variant takes at a time.
pub(super) const ROWS_MAX: usize = 8;

/// Puts the products of some rows with a panel into as many rows of sums.
type Sum = unsafe fn(&[&[f32]], &[[f32; PANEL]], &mut [[f32; PANEL]; ROWS_MAX]);

/// The loop for one instruction set. A value exists only where [`MatrixKernel::supported`] found the instructions.
#[derive(Clone, Copy)]
pub(super) struct MatrixKernel {
    rows: usize,
    sum: Sum,
}

impl MatrixKernel {
    /// Returns the variants that run on this processor, the fastest first.
    pub fn supported() -> Vec<MatrixKernel> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                found.push(MatrixKernel { rows: 8, sum: x86::sum_avx512 });
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                found.push(MatrixKernel { rows: 6, sum: x86::sum_avx2 });
            }
        }
        found.push(MatrixKernel { rows: 4, sum: sum_portable });
        found
    }

    /// Returns the fastest variant for this processor, found out once.
    pub fn best() -> MatrixKernel {
        static BEST: OnceLock<MatrixKernel> = OnceLock::new();
        *BEST.get_or_init(|| MatrixKernel::supported()[0])
    }

    /// Returns the most rows at a time: 4, 6 or 8, as the registers must hold all sums.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Multiplies up to [`MatrixKernel::rows`] rows, each as long as the panel is deep, with the panel.
    pub fn sum(&self, rows: &[&[f32]], panel: &[[f32; PANEL]], sums: &mut [[f32; PANEL]; ROWS_MAX]) {
        assert!(rows.len() <= self.rows && rows.iter().all(|row| row.len() == panel.len()), "rows fit the panel");
        // SAFETY: `supported` found the instructions of this variant on this processor.
        unsafe { (self.sum)(rows, panel, sums) }
    }
}

/// Runs the loop for as many rows as there are, each number of rows with a loop of its own.
macro_rules! by_count {
    ($block:ident, $rows:expr, $panel:expr, $sums:expr, [$($count:literal),*]) => {
        match $rows.len() {
            $($count => $block::<$count>($rows, $panel, $sums),)*
            _ => {}
        }
    };
}

fn sum_portable(rows: &[&[f32]], panel: &[[f32; PANEL]], sums: &mut [[f32; PANEL]; ROWS_MAX]) {
    for (row, sums) in rows.iter().zip(sums) {
        *sums = [0.0; PANEL];
        for (x, line) in row.iter().zip(panel) {
            sums.iter_mut().zip(line).for_each(|(sum, weight)| *sum += x * weight);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{PANEL, ROWS_MAX};
    use std::arch::x86_64::*;

    /// Adds to each row's sums its products with 32 columns; as many rows at a time as registers hold, which is 8.
    #[target_feature(enable = "avx512f")]
    pub(super) fn sum_avx512(rows: &[&[f32]], panel: &[[f32; PANEL]], sums: &mut [[f32; PANEL]; ROWS_MAX]) {
        by_count!(block_avx512, rows, panel, sums, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[target_feature(enable = "avx512f")]
    fn block_avx512<const N: usize>(rows: &[&[f32]], panel: &[[f32; PANEL]], sums: &mut [[f32; PANEL]; ROWS_MAX]) {
        // Of one length, so that the loop needs no check.
        let rows: [&[f32]; N] = std::array::from_fn(|row| &rows[row][..panel.len()]);
        let mut lanes = [[_mm512_setzero_ps(); 2]; N];
        for (at, line) in panel.iter().enumerate() {
            // SAFETY: a line holds 32 numbers, two registers full.
            let weights = unsafe { [_mm512_loadu_ps(line.as_ptr()), _mm512_loadu_ps(line.as_ptr().add(16))] };
            for row in 0..N {
                let x = _mm512_set1_ps(rows[row][at]);
                lanes[row][0] = _mm512_fmadd_ps(x, weights[0], lanes[row][0]);
                lanes[row][1] = _mm512_fmadd_ps(x, weights[1], lanes[row][1]);
            }
        }
        for (sums, lanes) in sums.iter_mut().zip(lanes) {
            // SAFETY: a row of sums has room for 32 numbers, two registers full.
            unsafe {
                _mm512_storeu_ps(sums.as_mut_ptr(), lanes[0]);
                _mm512_storeu_ps(sums.as_mut_ptr().add(16), lanes[1]);
            }
        }
    }

    /// The same with 6 rows at a time.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn sum_avx2(rows: &[&[f32]], panel: &[[f32; PANEL]], sums: &mut [[f32; PANEL]; ROWS_MAX]) {
        by_count!(block_avx2, rows, panel, sums, [1, 2, 3, 4, 5, 6]);
    }

    /// Half of the panel at a time: twelve sums are what sixteen registers have room for.
    #[target_feature(enable = "avx2,fma")]
    fn block_avx2<const N: usize>(rows: &[&[f32]], panel: &[[f32; PANEL]], sums: &mut [[f32; PANEL]; ROWS_MAX]) {
        let rows: [&[f32]; N] = std::array::from_fn(|row| &rows[row][..panel.len()]);
        for half in [0, PANEL / 2] {
            let mut lanes = [[_mm256_setzero_ps(); 2]; N];
            for (at, line) in panel.iter().enumerate() {
                let line = &line[half..half + PANEL / 2];
                // SAFETY: half a line holds 16 numbers, two registers full.
                let weights = unsafe { [_mm256_loadu_ps(line.as_ptr()), _mm256_loadu_ps(line.as_ptr().add(8))] };
                for row in 0..N {
                    let x = _mm256_set1_ps(rows[row][at]);
                    lanes[row][0] = _mm256_fmadd_ps(x, weights[0], lanes[row][0]);
                    lanes[row][1] = _mm256_fmadd_ps(x, weights[1], lanes[row][1]);
                }
            }
            for (sums, lanes) in sums.iter_mut().zip(lanes) {
                let sums = &mut sums[half..half + PANEL / 2];
                // SAFETY: half a row of sums has room for 16 numbers, two registers full.
                unsafe {
                    _mm256_storeu_ps(sums.as_mut_ptr(), lanes[0]);
                    _mm256_storeu_ps(sums.as_mut_ptr().add(8), lanes[1]);
                }
            }
        }
    }
}
