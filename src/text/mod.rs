//! Text: how words are cut, how a document is scored, how a segment's words are stored.
//!
//! * [`for_each_term`] cuts text into terms; a query and a document are cut by the same function.
//! * [`QueryTerms`] is what a query looks for in a [`Language`]: its words without stop words, and their stems.
//! * [`ExactPhrase`] is what it wants as it is written, which the terms of an index alone can't tell.
//! * [`for_each_document_term`] says what a record's document is: its text and the strings in its metadata.
//! * [`CollectionTotals`] and [`Scorer`] are BM25 over whatever records the caller says are visible.
//! * [`MaxScore`] goes through a segment's lists of a query, past what can't be among the best.
//! * [`PostingsWriter`] and [`Postings`] are the immutable inverted index of one segment: bytes
//!   in, bytes out. [`TermFrequencies`] is the same for one record that is in no segment yet.
//!
//! A score is a function of the query, the document and the visible collection alone. So the
//! caller sums `documents`, `length` and the document frequencies over all parts it sees (segments
//! through a visibility bitmap, and scanned records), makes one [`Scorer`] of the sums, and every
//! part then gives the same bits that one fresh index over the visible records would give.
//!
//! This module uses nothing of ours: it knows rows, not ids, and neither files nor branches.
//!
//! ```
//! use engramfs::text::{CollectionTotals, Scorer, TermGroup, for_each_term};
//!
//! let mut terms = Vec::new();
//! for_each_term("Open std::io", &mut |term| terms.push(term.to_owned()));
//! for wanted in ["open", "std", "io", "std::io"] {
//!     assert!(terms.iter().any(|term| term == wanted), "the compound is a term beside its words");
//! }
//!
//! // Two of three documents hold the term: in the shorter one it says more.
//! let mut collection = CollectionTotals::default();
//! [4, 8, 6].into_iter().for_each(|length| collection.add(length));
//! let scorer = Scorer::new(collection, TermGroup::single_terms(1), &[2]);
//! assert!(scorer.score(4, &[1]) > scorer.score(8, &[1]));
//! assert_eq!(scorer.score(6, &[0]), 0.0);
//! ```

mod bm25;
mod language;
mod layout;
mod max_score;
mod phrase;
mod postings;
mod query_terms;
mod spaceless;
mod tokens;
mod writer;

#[cfg(test)]
mod tests;

pub use bm25::{B, Clause, CollectionTotals, K1, Scorer, TermGroup, idf, weight};
pub use language::{Language, stem_prefix};
pub use max_score::MaxScore;
pub use phrase::Phrase;
pub use postings::{PostingList, Postings, TextError};
pub use query_terms::{ExactPhrase, QueryTerms, STEM_WEIGHT};
pub use tokens::{TERM_BYTES_MAX, TermFrequencies, for_each_document_term, for_each_term};
pub use writer::PostingsWriter;
