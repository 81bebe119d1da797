//! The parts of a layer: dense maps, normalization, attention, and the functions between.

use crate::vector::{PackedMatrix, StridedRows};

/// A linear map with a bias.
pub struct Dense {
    weights: PackedMatrix,
    bias: Vec<f32>,
    input_dim: usize,
}

impl Dense {
    /// Makes the map of one matrix, or of several side by side, each with one row of `input_dim` weights for each output.
    pub fn new(parts: &[(Vec<f32>, Vec<f32>)], input_dim: usize) -> Dense {
        let weights: Vec<f32> = parts.iter().flat_map(|(weights, _)| weights.iter().copied()).collect();
        let bias = parts.iter().flat_map(|(_, bias)| bias.iter().copied()).collect();
        Dense { weights: PackedMatrix::from_columns(&weights, input_dim), bias, input_dim }
    }

    /// Maps rows that lie one after the other.
    pub fn apply(&self, input: &[f32]) -> Vec<f32> {
        let (count, width) = (input.len() / self.input_dim, self.bias.len());
        let mut out = vec![0.0; count * width];
        let rows = StridedRows { data: input, stride: self.input_dim, count };
        self.weights.multiply(rows, Some(&self.bias), &mut out, width);
        out
    }
}

/// Scales each row to mean 0 and variance 1, and that by weights.
pub struct LayerNorm {
    /// A factor for each number of a row.
    pub weight: Vec<f32>,
    /// What is added to it then.
    pub bias: Vec<f32>,
    /// What is added to the variance, so that none is 0.
    pub epsilon: f32,
}

impl LayerNorm {
    /// Normalizes rows in place, which lie one after the other; a part of a row at the end stays as it is.
    pub fn apply(&self, rows: &mut [f32]) {
        for row in rows.chunks_exact_mut(self.weight.len()) {
            let count = row.len() as f32;
            let mean = row.iter().sum::<f32>() / count;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
            let scale = (variance + self.epsilon).sqrt().recip();
            let parameters = self.weight.iter().zip(&self.bias);
            row.iter_mut().zip(parameters).for_each(|(x, (weight, bias))| *x = (*x - mean) * scale * weight + bias);
        }
    }
}

/// Adds numbers one to one, up to the end of the shorter slice.
pub fn add(sum: &mut [f32], other: &[f32]) {
    sum.iter_mut().zip(other).for_each(|(sum, x)| *sum += x);
}

/// Attends within one sequence: for each token `qkv` holds query, key and value of all heads, one after the other.
pub fn attend(qkv: &[f32], (hidden, heads): (usize, usize), out: &mut [f32]) {
    let count = out.len() / hidden;
    let (stride, depth) = (3 * hidden, hidden / heads);
    let scale = (depth as f32).sqrt().recip();
    let mut scores = vec![0.0; count * count];
    for head in 0..heads {
        let at = head * depth;
        let keys = PackedMatrix::pack(count, depth, |token, d| qkv[token * stride + hidden + at + d] * scale);
        keys.multiply(StridedRows { data: &qkv[at..], stride, count }, None, &mut scores, count);
        scores.chunks_exact_mut(count).for_each(softmax);
        let values = PackedMatrix::pack(depth, count, |d, token| qkv[token * stride + 2 * hidden + at + d]);
        values.multiply(StridedRows { data: &scores, stride: count, count }, None, &mut out[at..], hidden);
    }
}

fn softmax(row: &mut [f32]) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for x in &mut *row {
        *x = exp(*x - most);
        sum += *x;
    }
    row.iter_mut().for_each(|x| *x /= sum);
}

/// The activation x Φ(x), in place.
pub fn gelu(rows: &mut [f32]) {
    for x in rows {
        *x = 0.5 * *x * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
    }
}

/// The error function, right to 2e-7: Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26. Without
/// branches, so that the compiler computes many side by side.
#[inline]
fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * magnitude);
    let polynomial = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_7) * t - 0.284_496_74) * t + 0.254_829_6) * t;
    (1.0 - polynomial * exp(-magnitude * magnitude)).copysign(x)
}

/// The exponential function of what is not above 0, right to 2e-7 of its value: 2 to the whole part, by the exponent's
/// bits, times a polynomial of the rest.
#[inline]
fn exp(x: f32) -> f32 {
    let x = x.max(-87.0);
    let whole = (x * std::f32::consts::LOG2_E + 0.5).floor();
    // ln 2 in two parts, so that nothing is lost in the difference.
    let rest = (x - whole * 0.693_359_4) + whole * 2.121_944_4e-4;
    let polynomial = ((((1.388_731_6e-3 * rest + 8.332_996e-3) * rest + 4.166_579_4e-2) * rest + 0.166_666_65) * rest
        + 0.5)
        * rest
        * rest
        + rest
        + 1.0;
    polynomial * f32::from_bits(((whole as i32 + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_functions_are_near_the_slow_ones() {
        for step in -8_700..=0 {
            let x = step as f32 / 100.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= exact * 3e-7, "exp {x}");
        }
        // By its series, which converges everywhere.
        let series = |x: f64| {
            let (mut sum, mut term) = (0.0, x);
            for n in 0..200 {
                sum += term / f64::from(2 * n + 1);
                term *= -x * x / f64::from(n + 1);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        };
        for step in -400..=400 {
            let x = step as f32 / 100.0;
            assert!((f64::from(erf(x)) - series(f64::from(x))).abs() < 6e-7, "erf {x}");
        }
    }
}
