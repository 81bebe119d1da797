//! A BERT-like model that runs in this process, from its own files.

mod bert;
mod files;
mod layer;
mod onnx;
mod safetensors;
mod tokens;
mod weights;

use std::path::Path;
use std::time::Duration;

use super::{EmbedError, Embedder, TextKind, check_vectors};
use crate::sync::Deadline;
use bert::Bert;
pub use files::holds_model;
use files::{ModelFiles, Pooling};
use tokens::TextTokenizer;
#[cfg(test)]
pub use weights::f16_to_f32;

/// Texts that one call takes: more are no faster, and the time limit is looked at between them.
const BATCH_TEXTS: usize = 16;

/// A model, its tokenizer, and what is done with the output.
pub struct ModelEmbedder {
    name: String,
    description: Vec<u8>,
    bert: Bert,
    tokenizer: TextTokenizer,
    pooling: Pooling,
    normalize: bool,
    /// The text put before a query and before a document.
    prefixes: [String; 2],
}

impl ModelEmbedder {
    /// Reads the model in a folder, in the form of Hugging Face and sentence-transformers. [`EmbedError::Model`] if a
    /// file of it is missing, damaged, or of a model that can't be run here.
    pub fn open(folder: &Path) -> Result<ModelEmbedder, EmbedError> {
        let files = ModelFiles::read(folder)?;
        let bert = Bert::new(&files)?;
        let tokenizer = TextTokenizer::new(&files, bert.vocabulary_size(), bert.position_count())?;
        let ModelFiles { name, description, pooling, normalize, prefixes, .. } = files;
        Ok(ModelEmbedder { name, description, bert, tokenizer, pooling, normalize, prefixes })
    }

    fn pool(&self, tokens: &[f32]) -> Vec<f32> {
        let dim = self.bert.dim();
        let mut vector = tokens[..dim].to_vec();
        if self.pooling == Pooling::Mean {
            for token in tokens[dim..].chunks_exact(dim) {
                vector.iter_mut().zip(token).for_each(|(sum, x)| *sum += x);
            }
            let count = (tokens.len() / dim) as f32;
            vector.iter_mut().for_each(|sum| *sum /= count);
        }
        if self.normalize {
            let norm = crate::vector::norm(&vector).max(f32::MIN_POSITIVE);
            vector.iter_mut().for_each(|x| *x /= norm);
        }
        vector
    }
}

impl Embedder for ModelEmbedder {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &[u8] {
        &self.description
    }

    fn batch_texts_max(&self) -> usize {
        BATCH_TEXTS
    }

    fn embed(&self, kind: TextKind, texts: &[&str], limit: Duration) -> Result<Vec<Vec<f32>>, EmbedError> {
        let (deadline, mut vectors) = (Deadline::from_now(limit), Vec::with_capacity(texts.len()));
        let prefix = &self.prefixes[usize::from(kind == TextKind::Document)];
        for some in texts.chunks(BATCH_TEXTS) {
            if deadline.remaining().is_zero() {
                return Err(EmbedError::TimedOut(limit.as_millis() as u64));
            }
            let sequences =
                some.iter().map(|text| self.tokenizer.tokens(prefix, text)).collect::<Result<Vec<_>, _>>()?;
            let states = self.bert.run(&sequences);
            let mut from = 0;
            for sequence in &sequences {
                let until = from + sequence.len() * self.bert.dim();
                vectors.push(self.pool(&states[from..until]));
                from = until;
            }
        }
        check_vectors(vectors, texts.len())
    }
}
