//! Embedders: what makes vectors of texts.
//!
//! An [`Embedder`] is a model's files that run in this process, a server that is asked over HTTP, or a command that
//! stays. This module knows no store: texts go in, vectors come out. Who calls it holds no lock.

mod http;
mod identity;
mod model;
mod process;
mod spec;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;

use std::time::Duration;

use thiserror::Error;

pub use identity::{EmbedderIdentity, PROBES, vectors_match};
pub use model::holds_model;
pub use spec::EmbedderSpec;

/// What a text is to an embedder; some models want them marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// The text of a query.
    Query,
    /// What is stored, and found by queries.
    Document,
}

impl TextKind {
    /// Returns the word that servers and commands are told.
    pub fn name(self) -> &'static str {
        match self {
            TextKind::Query => "query",
            TextKind::Document => "document",
        }
    }
}

/// Why there are no vectors.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EmbedError {
    /// The text has none of the forms of an embedder.
    #[error("{0:?} is no embedder")]
    Spec(String),
    /// The folder of a model is incomplete, or the model can't be run here.
    #[error("the model in {folder} can't be used: {reason}")]
    Model {
        /// Path of the model's folder, for the message.
        folder: String,
        /// What is wrong in it, in words for the message.
        reason: String,
    },
    /// It did not answer within this many milliseconds.
    #[error("the embedder did not answer within {0} ms")]
    TimedOut(u64),
    /// It can't be reached, or ended.
    #[error("the embedder does not answer: {0}")]
    Unreachable(String),
    /// It refused for good, with this message: a repetition would be refused, too.
    #[error("the embedder refused the texts: {0}")]
    Refused(String),
    /// Its answer is not one vector of numbers for each text.
    #[error("the embedder's answer can't be used: {0}")]
    Answer(String),
}

impl EmbedError {
    /// Returns what to do next, which the error's own text leaves out.
    pub fn hint(&self) -> String {
        match self {
            EmbedError::Spec(_) => {
                "write a folder with a model's files, URL#MODEL of a server, or cmd:COMMAND".to_owned()
            }
            EmbedError::Model { .. } => {
                "give a folder with config.json, tokenizer.json and model.safetensors or model.onnx of a BERT-like model; \
                 scripts/models.sh fetches one"
                    .to_owned()
            }
            EmbedError::TimedOut(_) | EmbedError::Unreachable(_) => {
                "see that the embedder runs; it is tried again by itself".to_owned()
            }
            EmbedError::Refused(_) => "see what the embedder takes, and whether its key is set".to_owned(),
            EmbedError::Answer(_) => "see that it is an embedder of texts, and that it fits the request".to_owned(),
        }
    }
}

/// Makes vectors of texts. Equal texts of one kind get the same vector, except for rounding.
pub trait Embedder: Send + Sync {
    /// Returns what people call it; the vectors do not depend on it.
    fn name(&self) -> &str;

    /// Returns all that decides what vectors it makes, beside their dimension, in a form to be hashed.
    fn description(&self) -> &[u8];

    /// Returns how many texts one call should take.
    fn batch_texts_max(&self) -> usize;

    /// Returns one vector for each text, in their order, all of one length and finite, within a time limit.
    ///
    /// [`EmbedError::TimedOut`] and [`EmbedError::Unreachable`] may be gone at the next try; [`EmbedError::Refused`]
    /// and [`EmbedError::Answer`] come again for the same texts.
    fn embed(&self, kind: TextKind, texts: &[&str], limit: Duration) -> Result<Vec<Vec<f32>>, EmbedError>;
}

/// Checks that there is one vector of finite numbers for each text, all of one length and none of them all zeros.
fn check_vectors(vectors: Vec<Vec<f32>>, texts: usize) -> Result<Vec<Vec<f32>>, EmbedError> {
    let bad_answer = |what: String| Err(EmbedError::Answer(what));
    if vectors.len() != texts {
        return bad_answer(format!("{} vectors came for {texts} texts", vectors.len()));
    }
    let dim = vectors.first().map_or(1, Vec::len);
    if dim == 0 || dim > crate::vector::DIM_MAX {
        return bad_answer(format!("its vectors have {dim} numbers"));
    }
    for vector in &vectors {
        if vector.len() != dim {
            return bad_answer(format!("one vector has {dim} numbers and another one {}", vector.len()));
        }
        if !vector.iter().all(|number| number.is_finite()) {
            return bad_answer("a vector has a number that is not finite".to_owned());
        }
        if vector.iter().all(|number| *number == 0.0) {
            return bad_answer("a vector is all zeros".to_owned());
        }
    }
    Ok(vectors)
}
