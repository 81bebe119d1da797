//! What can be wrong with an embedder that is asked to make all vectors anew.

use thiserror::Error;

use super::{Advice, Kind};

/// Why vectors are not made anew.
#[derive(Debug, Clone, Error)]
pub enum EmbedderError {
    /// The store is mounted without an embedder. Kind `Unsupported`.
    #[error("no embedder is set")]
    NotSet,
    /// The embedder does not answer, for this reason. Kind `Busy`.
    #[error("the embedder does not answer: {0}")]
    NotReached(String),
    /// Its vectors would fit none of those that were written. Kind `Invalid`.
    #[error("vectors of the embedder have {found} numbers, and vectors here have {expected}")]
    Dimension {
        /// Numbers in a vector of the embedder.
        found: usize,
        /// Numbers in the vectors of the records.
        expected: usize,
    },
}

impl EmbedderError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            EmbedderError::NotSet => {
                Advice::new(Kind::Unsupported, "no_embedder", "mount with --embed, and ask in the mount")
            }
            EmbedderError::NotReached(_) => {
                Advice::new(Kind::Busy, "embedder_missing", "see that the embedder runs; it is tried again by itself")
            }
            EmbedderError::Dimension { .. } => {
                Advice::new(Kind::Invalid, "wrong_dimension", "set an embedder whose vectors are as long")
            }
        }
    }
}
