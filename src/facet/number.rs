//! Numbers of JSON as keys whose order is the exact order of the numbers.

use serde_json::Number;

use super::layout::KEY_BYTES;

/// A number: the nearest float, and what an integer of 64 bits is above or below it.
///
/// Keys are equal exactly when the numbers are: 1 and 1.0 have the same key, 2^53 + 1 and 2^53 not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NumberKey {
    float: u64,
    remainder: u16,
}

/// Added to what is left of an integer, so that it is never negative; it is 1024 at most.
const REMAINDER_BIAS: i128 = 1 << 15;
const REMAINDER_BITS: u32 = u16::BITS;

impl NumberKey {
    /// Returns the key of a number; equal numbers have equal keys, also where one is written as a float.
    pub(super) fn from_number(number: &Number) -> Self {
        let (float, remainder) = match number.as_i128() {
            Some(whole) => {
                let nearest = whole as f64;
                (nearest, whole - nearest as i128)
            }
            None => (number.as_f64().expect("a number is an integer of 64 bits or a float"), 0),
        };
        Self { float: ordered_bits(float), remainder: (remainder + REMAINDER_BIAS) as u16 }
    }

    /// Returns the key as bits, of which the lower 80 are in use.
    pub(super) fn bits(self) -> u128 {
        u128::from(self.float) << REMAINDER_BITS | u128::from(self.remainder)
    }

    /// Returns the stored form: the 80 bits that are in use, little-endian.
    pub(super) fn to_bytes(self) -> [u8; KEY_BYTES] {
        *self.bits().to_le_bytes().first_chunk().expect("a u128 has more bytes than a key")
    }
}

/// Returns bits that are ordered as the floats are; -0 and 0 have the same.
fn ordered_bits(float: f64) -> u64 {
    // Adding 0 makes 0 of -0 and leaves all else alone.
    let bits = (float + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn key(value: Value) -> NumberKey {
        NumberKey::from_number(value.as_number().unwrap())
    }

    #[test]
    fn keys_are_ordered_as_numbers_are() {
        let ascending = [
            json!(-1e300),
            json!(i64::MIN),
            json!(i64::MIN + 1),
            json!(-1.5),
            json!(-1),
            json!(-5e-324),
            json!(0),
            json!(5e-324),
            json!(0.5),
            json!(1),
            json!(9_007_199_254_740_992_u64),
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_994_u64),
            json!(i64::MAX),
            json!(9_223_372_036_854_775_808_u64),
            json!(u64::MAX - 1),
            json!(u64::MAX),
            json!(18_446_744_073_709_551_616.0),
            json!(1e300),
        ];
        assert!(ascending.windows(2).all(|pair| key(pair[0].clone()) < key(pair[1].clone())));
    }

    #[test]
    fn equal_numbers_have_one_key() {
        assert_eq!(key(json!(1)), key(json!(1.0)));
        assert_eq!(key(json!(0)), key(json!(-0.0)));
        assert_eq!(key(json!(9_223_372_036_854_775_808_u64)), key(json!(9_223_372_036_854_775_808.0)));
    }
}
