//! Vectors as JSON, in a width that does not depend on the values.
//!
//! Each number is the shortest decimal that reads back to the same f32, padded with blanks to 16
//! bytes. So the length of every document, export and directory entry is known by arithmetic, with
//! nothing rendered.

/// Bytes of one number with its comma and padding.
pub const FLOAT_BYTES: usize = 16;

/// Returns how many bytes the JSON form of a vector with `dim` numbers has; without a vector it is `null`.
pub fn vector_bytes(dim: Option<usize>) -> usize {
    match dim {
        None => "null".len(),
        Some(dim) => "[]".len() + dim * FLOAT_BYTES,
    }
}

/// Appends a vector as a JSON array, or `null`: exactly [`vector_bytes`] bytes.
pub fn write_vector(out: &mut Vec<u8>, vector: Option<&[f32]>) {
    let Some(vector) = vector else {
        out.extend_from_slice(b"null");
        return;
    };
    out.push(b'[');
    for (index, value) in vector.iter().enumerate() {
        let end = out.len() + FLOAT_BYTES;
        write_number(out, *value);
        if index + 1 < vector.len() {
            out.push(b',');
        }
        out.resize(end, b' ');
    }
    out.push(b']');
}

/// Appends the shortest form in at most 15 bytes: sign, 9 digits, point and exponent.
fn write_number(out: &mut Vec<u8>, value: f32) {
    let begin = out.len();
    // Writing to a Vec can't fail, and every f32 has a form: one that is no number is `null`.
    let _ = serde_json::to_writer(&mut *out, &value);
    if out.len() - begin >= FLOAT_BYTES {
        out.truncate(begin);
        out.extend_from_slice(format!("{value:e}").as_bytes());
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn round_trip(vector: &[f32]) {
        let mut out = Vec::new();
        write_vector(&mut out, Some(vector));
        assert_eq!(out.len(), vector_bytes(Some(vector.len())));
        let read: Vec<f32> = serde_json::from_slice(&out).unwrap();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&read), bits(vector));
    }

    #[test]
    fn edge_values_read_back_to_the_same_bits_in_the_fixed_width() {
        round_trip(&[0.0, -0.0, 1.0, 0.5, f32::MAX, f32::MIN, f32::MIN_POSITIVE, -f32::from_bits(1)]);
        round_trip(&[-1.234_567_9e-5, 0.000_012_345_679, -9.876_543e15, 1.0e16, -0.1, 16_777_217.0]);
        round_trip(&[]);
        let mut out = Vec::new();
        write_vector(&mut out, Some(&[1.0, -0.5]));
        assert_eq!(String::from_utf8(out).unwrap(), format!("[{:16}{:16}]", "1.0,", "-0.5"));
    }

    #[test]
    fn a_sweep_over_all_exponents_reads_back() {
        let values: Vec<f32> = (0..200_000u32)
            .map(|n| f32::from_bits(n.wrapping_mul(2_654_435_761)))
            .filter(|value| value.is_finite())
            .collect();
        values.chunks(1000).for_each(round_trip);
    }
}
