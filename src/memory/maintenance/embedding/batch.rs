//! A batch of texts for an embedder, and what becomes of the others when one of them can't be embedded.

use std::sync::Arc;
use std::time::Duration;

use super::EmbedderSlot;
use crate::embed::{EmbedError, PROBES, TextKind};
use crate::memory::catalog::EmbedderRecord;
use crate::object::Hash;
use crate::record::DerivedVector;

/// Time that an embedder may take for a batch of documents: nobody waits for it, unlike for a query.
pub(super) const DOCUMENTS_TIMEOUT: Duration = Duration::from_secs(120);

/// A text behind the hash under which its vector is kept, which many records may share.
pub(super) type KeyedText = (Hash, String);

/// Embeds batches for one set of vectors, on the embedder's own thread.
pub(super) struct BatchEmbedder<'a> {
    /// The embedder that is asked, and where the vectors go.
    pub slot: &'a EmbedderSlot,
    /// The set that the vectors are for.
    pub record: &'a EmbedderRecord,
    /// Called after each call that gave vectors: while one text is waited for, status shows those of the others.
    pub progress: &'a dyn Fn(),
}

impl BatchEmbedder<'_> {
    /// Embeds texts and keeps their vectors in the slot; returns how many that are.
    ///
    /// If the batch fails and the embedder still embeds something else, each of its texts is asked for alone, so that
    /// one at which an embedder hangs or ends costs the others a time limit and not their vectors. Fails if it embeds
    /// nothing else.
    pub(super) fn embed(&self, batch: &[KeyedText]) -> Result<usize, EmbedError> {
        match self.embed_texts(batch) {
            Ok(count) => Ok(count),
            Err(error) => {
                self.check_alive(error)?;
                self.embed_singly(batch)
            }
        }
    }

    /// Asks for one text after the other, and a second time for those at which the embedder failed: that may have been its
    /// restart. One that fails twice stays without a vector.
    fn embed_singly(&self, batch: &[KeyedText]) -> Result<usize, EmbedError> {
        let (mut count, mut failed) = (0, Vec::new());
        for text in batch {
            match self.embed_texts(std::slice::from_ref(text)) {
                Ok(one) => count += one,
                Err(error) => {
                    self.check_alive(error)?;
                    failed.push(text);
                }
            }
            if self.slot.is_stopping() {
                return Ok(count);
            }
        }
        for text in failed {
            match self.embed_texts(std::slice::from_ref(text)) {
                Ok(one) => count += one,
                Err(error) => {
                    self.check_alive(error.clone())?;
                    self.refuse(text, &error);
                }
            }
        }
        Ok(count)
    }

    /// Fails with the error where it is about the embedder and not about some texts: then a probe has no vector, either.
    fn check_alive(&self, error: EmbedError) -> Result<(), EmbedError> {
        let probe = self.slot.embedder.embed(TextKind::Document, &PROBES[..1], DOCUMENTS_TIMEOUT);
        let is_alive = probe.is_ok_and(|vectors| vectors.iter().all(|vector| vector.len() == self.record.dim));
        if is_alive { Ok(()) } else { Err(error) }
    }

    fn refuse(&self, (hash, _): &KeyedText, error: &EmbedError) {
        log::warn!("a text stays without a vector until the next mount: {error}");
        self.slot.note_refused(*hash);
    }

    fn embed_texts(&self, batch: &[KeyedText]) -> Result<usize, EmbedError> {
        let texts: Vec<&str> = batch.iter().map(|(_, text)| text.as_str()).collect();
        let vectors = self.slot.embedder.embed(TextKind::Document, &texts, DOCUMENTS_TIMEOUT)?;
        let (dim, found) = (self.record.dim, vectors.first().map_or(self.record.dim, Vec::len));
        if found != dim {
            return Err(EmbedError::Unreachable(format!("its vectors have {found} numbers now, and had {dim}")));
        }
        let keyed = batch.iter().zip(vectors);
        let keyed = keyed.map(|((hash, _), vector)| (*hash, Arc::new(DerivedVector::new(vector))));
        self.slot.insert(self.record, keyed.collect());
        (self.progress)();
        Ok(batch.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_text_is_that_of_the_page() {
        let said = format!("({} s) or ends, stays without a vector", DOCUMENTS_TIMEOUT.as_secs());
        let page = include_str!("../../../../docs/SEMANTICS.md");
        assert!(page.contains(&said), "docs/SEMANTICS.md does not say: {said}");
    }
}
