//! The weights of a model by the names that they have in BERT, out of a file of one form or another.

/// Numbers with their shape, row by row.
#[derive(Debug)]
pub struct WeightTensor {
    /// Its dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Row-major; as many as the product of the shape.
    pub values: Vec<f32>,
}

/// A file of weights. Errors say what is wrong with the one that was asked for, behind its name: "is missing".
pub trait WeightSource {
    /// Returns the tensor of a name. Fails if there is none, or if its numbers are of a type that can't be read.
    fn tensor(&self, name: &str) -> Result<WeightTensor, String>;

    /// Returns the matrix of a linear map: a row of weights for each output. Fails like [`WeightSource::tensor`], or if
    /// the file does not tell which matrix it is.
    fn matrix(&self, map: &str) -> Result<WeightTensor, String> {
        self.tensor(&format!("{map}.weight"))
    }
}

/// Returns the numbers of f32, little-endian.
pub fn decode_f32(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

/// Returns the numbers of IEEE half floats, little-endian.
pub fn decode_f16(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|two| f16_to_f32(u16::from_le_bytes(*two))).collect()
}

/// Returns the numbers of bfloat16, little-endian.
pub fn decode_bf16(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|two| f32::from_bits(u32::from(u16::from_le_bytes(*two)) << 16)).collect()
}

/// Returns the value of an IEEE half float.
pub fn f16_to_f32(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15) << 31, (bits >> 10) & 31, u32::from(bits & 1023));
    match exponent {
        0 => f32::from_bits(sign | (fraction as f32 / 16_777_216.0).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        exponent => f32::from_bits(sign | (u32::from(exponent) + 112) << 23 | fraction << 13),
    }
}
