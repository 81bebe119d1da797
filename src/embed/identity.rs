//! By what an embedder is known again.

use std::time::Duration;

use super::{EmbedError, Embedder, TextKind};
use crate::vector;

/// The texts whose vectors show whether an embedder still is what it was. Never to be changed: stores hold their vectors.
pub const PROBES: [&str; 3] = [
    "The quick brown fox jumps over the lazy dog.",
    "memory budget exceeded while sealing segment 42: E_NOSPC",
    "Как настроить резервное копирование базы данных?",
];

/// The least cosine between a probe's vector and the one that it had before.
const COSINE_MIN: f32 = 0.999;

/// All that decides which vectors an embedder makes.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedderIdentity {
    /// What people call it: it is shown, and two embedders may have the same.
    pub name: String,
    /// How many numbers each vector has, as the answer for the probes showed.
    pub dim: usize,
    /// What is hashed beside the dimension.
    pub description: Vec<u8>,
    /// The vectors of [`PROBES`], in their order.
    pub probes: Vec<Vec<f32>>,
}

impl EmbedderIdentity {
    /// Asks an embedder, within `limit`, for the vectors of the probes and with them for its dimension, and takes its name
    /// and description. Fails like [`Embedder::embed`].
    pub fn probe(embedder: &dyn Embedder, limit: Duration) -> Result<EmbedderIdentity, EmbedError> {
        let probes = embedder.embed(TextKind::Document, &PROBES, limit)?;
        let dim = probes.first().map_or(0, Vec::len);
        let (name, description) = (embedder.name().to_owned(), embedder.description().to_vec());
        Ok(EmbedderIdentity { name, dim, description, probes })
    }
}

/// Returns whether the vectors of the probes are what they were: as many, and each at a cosine of 0.999 at least, since
/// rounding differs between processors.
pub fn vectors_match(before: &[Vec<f32>], now: &[Vec<f32>]) -> bool {
    let cosine = |a: &[f32], b: &[f32]| vector::dot(a, b) / (vector::norm(a) * vector::norm(b));
    let is_near = |(a, b): (&Vec<f32>, &Vec<f32>)| a.len() == b.len() && cosine(a, b) >= COSINE_MIN;
    before.len() == now.len() && before.iter().zip(now).all(is_near)
}
