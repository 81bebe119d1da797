//! Half floats, which embeddings are often kept in.

/// Returns the value of an IEEE 754 binary16, which every f32 can hold exactly.
pub fn to_f32(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let exponent = u32::from(half >> 10) & 0x1f;
    let fraction = u32::from(half) & 0x3ff;
    let magnitude = match exponent {
        // Subnormal: fraction × 2⁻²⁴; both factors and the product are exact.
        0 => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        0x1f => 0x7f80_0000 | fraction << 13,
        // The bias is 15 here and 127 there.
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::to_f32;

    #[test]
    fn every_kind_of_half_keeps_its_value() {
        let known = [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x7c00, f32::INFINITY),
        ];
        for (half, value) in known {
            assert_eq!(to_f32(half), value, "{half:#06x}");
        }
        assert!(to_f32(0x8000).is_sign_negative() && to_f32(0x7e00).is_nan());
    }
}
