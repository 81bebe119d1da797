//! What a graph is built from: codes, scales and lengths. Equal ones give equal bytes, which a build that goes on after
//! an interruption counts on.

/// The compact columns of a segment, by row number from 0; vectors themselves are not needed.
#[derive(Clone, Copy, Debug)]
pub struct VectorRows<'a> {
    /// The dimension of all vectors: a row has so many codes.
    pub dim: usize,
    /// The int8 codes, row after row, see [`quantize`](crate::vector::quantize).
    pub codes: &'a [i8],
    /// What one step of each row's code is worth, as [`Code::scale`](crate::vector::Code::scale).
    pub scales: &'a [f32],
    /// The length of each row's vector; negative where a row has none, and so no place in the graph.
    pub norms: &'a [f32],
}

impl<'a> VectorRows<'a> {
    /// Returns the number of rows, those without a vector included; the shortest column counts.
    #[must_use]
    pub fn len(&self) -> usize {
        let whole = self.codes.len().checked_div(self.dim).unwrap_or(self.norms.len());
        self.norms.len().min(self.scales.len()).min(whole).min(ROWS_MAX)
    }

    /// Returns whether [`VectorRows::len`] is 0: a graph of that finds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rows with a vector, ascending: a graph built of them has its nodes in this order at first.
    pub(super) fn rows_with_vector(&self) -> Vec<u32> {
        (0..self.len() as u32).filter(|&row| self.norms[row as usize] >= 0.0).collect()
    }

    /// Returns the code of a row. Panics behind the shortest column, which [`VectorRows::len`] keeps out.
    pub(super) fn code(&self, row: u32) -> &'a [i8] {
        &self.codes[row as usize * self.dim..][..self.dim]
    }
}

/// More rows than fit a segment. Rows behind it are left out.
const ROWS_MAX: usize = 1 << 31;

/// How a graph is built. Equal rows and parameters give equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The most links that a row gets; 4 to 128. More make a walk find more and each of its steps
    /// dearer.
    pub links: usize,
    /// How many candidates are kept while a row's links are looked for; more is slower and finds
    /// better ones.
    pub ef: usize,
    /// How often every row's links are looked for, 1 to 4. A second time costs as much as the first
    /// and lets a walk find the same with a fifth fewer steps.
    pub passes: usize,
}

impl Params {
    /// Returns 4 to 128 links, 1 to 4 passes, and at least as many candidates as links.
    pub(super) fn clamped(self) -> Self {
        let links = self.links.clamp(4, 128);
        Self { links, ef: self.ef.max(links), passes: self.passes.clamp(1, 4) }
    }
}

impl Default for Params {
    /// Returns 32 links, 150 candidates and two passes.
    fn default() -> Self {
        Self { links: 32, ef: 150, passes: 2 }
    }
}
