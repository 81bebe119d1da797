//! Vectors that an embedder made of texts: no content, in no head, found by the text's hash.

use crate::object::{Context, Hash};
use crate::vector::{self, Code};

static CONTEXT: Context = Context::new("engramfs 2026 embedded text v1");

/// Returns the hash by which the vector of a text is found: equal texts share one.
pub fn text_hash(text: &str) -> Hash {
    Hash::digest(&CONTEXT, text.as_bytes())
}

/// A vector that an embedder made, with what queries compare: worked out once, when it is made, and not again by each query.
#[derive(Clone, Debug, PartialEq)]
pub struct DerivedVector {
    /// Finite numbers.
    pub vector: Vec<f32>,
    /// Euclidean length.
    pub norm: f32,
    bytes: Box<[i8]>,
    scale: f32,
    residual: f32,
}

impl DerivedVector {
    /// Computes the length and the int8 copy of a vector of finite numbers.
    pub fn new(vector: Vec<f32>) -> DerivedVector {
        let mut bytes = vec![0; vector.len()].into_boxed_slice();
        let (scale, residual) = vector::quantize(&vector, &mut bytes);
        DerivedVector { norm: vector::norm(&vector), vector, bytes, scale, residual }
    }

    /// Returns the int8 copy that was made with the vector, and no new one.
    pub fn code(&self) -> Code<'_> {
        Code { bytes: &self.bytes, scale: self.scale, residual: self.residual }
    }
}
