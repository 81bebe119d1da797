//! The compact copy of a vector: one int8 a dimension and one scale for all.

/// A vector in int8, as it is stored: `scale * bytes` approximates the vector.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// One number a dimension, -127 to 127.
    pub bytes: &'a [i8],
    /// What one step of a byte is worth; 0 for a zero vector.
    pub scale: f32,
    /// The length of the difference between the vector and its code, never less than the truth.
    pub residual: f32,
}

/// Writes the int8 code of a vector to `out` and returns its scale and residual.
///
/// The largest magnitude becomes 127 and zero stays zero. The residual is rounded up, so that a
/// bound that is built on it holds. Finite values are taken for granted.
///
/// ```
/// use engramfs::vector::quantize;
///
/// let mut bytes = [0; 3];
/// let (scale, residual) = quantize(&[254.0, -128.0, 0.5], &mut bytes);
/// assert_eq!((scale, bytes), (2.0, [127, -64, 0]));
/// // What is left out is the 0.5, which is less than half a step.
/// assert!(residual > 0.5 && residual < 0.500_001);
/// ```
///
/// # Panics
///
/// When `out` has another length than `v`.
pub fn quantize(v: &[f32], out: &mut [i8]) -> (f32, f32) {
    assert_eq!(v.len(), out.len(), "a code has one byte a dimension");
    let largest = v.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let scale = largest / 127.0;
    // Values so small that a step of theirs rounds to nothing: the code is zero, the residual all.
    let per_step = if scale > 0.0 { 1.0 / f64::from(scale) } else { 0.0 };
    let mut squares = 0.0_f64;
    for (byte, &x) in out.iter_mut().zip(v) {
        let step = round_to_nearest((f64::from(x) * per_step).clamp(-127.0, 127.0));
        *byte = step as i8;
        let missing = f64::from(x) - f64::from(scale) * step;
        squares += missing * missing;
    }
    (scale, round_up(squares.sqrt()))
}

/// Returns the whole number nearest to a small number.
///
/// Adding 1.5 * 2^52 pushes all fraction bits out, which is a single addition on every processor,
/// where a call to round is a function call on some.
#[inline]
fn round_to_nearest(x: f64) -> f64 {
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    (x + SHIFT) - SHIFT
}

/// Returns an f32 that is certainly not less than a length computed in f64.
fn round_up(length: f64) -> f32 {
    // A sum of 65,536 squares in f64 is right to 1e-11; the margin is far above that and far below
    // one step of f32, so that it costs one step at most.
    if length == 0.0 { 0.0 } else { ((length * (1.0 + 1e-9)) as f32).next_up() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length_of_difference(v: &[f32], bytes: &[i8], scale: f32) -> f64 {
        let square = |(&x, &b): (&f32, &i8)| (f64::from(x) - f64::from(scale) * f64::from(b)).powi(2);
        v.iter().zip(bytes).map(square).sum::<f64>().sqrt()
    }

    #[test]
    fn the_largest_value_becomes_127_and_the_residual_bounds_the_error() {
        let v = [0.5, -1.0, 0.25, 0.0, 0.003];
        let mut bytes = [0; 5];
        let (scale, residual) = quantize(&v, &mut bytes);
        assert_eq!(bytes, [64, -127, 32, 0, 0]);
        assert!(f64::from(residual) >= length_of_difference(&v, &bytes, scale));
        assert!(residual < 0.5 * scale * 5.0_f32.sqrt());
    }

    #[test]
    fn a_zero_vector_has_scale_and_residual_zero() {
        let mut bytes = [1; 3];
        assert_eq!(quantize(&[0.0, -0.0, 0.0], &mut bytes), (0.0, 0.0));
        assert_eq!(bytes, [0; 3]);
    }

    #[test]
    fn extreme_values_keep_a_true_residual() {
        for v in [[1e-45, -1e-45, 0.0], [1e-43, 3e-44, -1e-43], [f32::MAX, f32::MIN, 1.0], [1e-38, 1e38, 0.0]] {
            let mut bytes = [0; 3];
            let (scale, residual) = quantize(&v, &mut bytes);
            assert!(scale.is_finite());
            assert!(f64::from(residual) >= length_of_difference(&v, &bytes, scale), "{v:?}");
        }
    }
}
