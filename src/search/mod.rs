//! Queries to a state and their answers.
//!
//! The exact scan is the truth: it goes over the int8 copy of the visible rows with bounds that are
//! proven, and computes the score of every row that the bounds do not rule out. Large segments are
//! searched by a walk through their graph where that costs less; the answer then says that it is
//! not exact. Text queries are BM25 over the same visible rows, and a hybrid is the fusion of both
//! lists' ranks. Several sources are searched as one: with the counts, ranks and scores of their union. Passages of files are
//! one more source, found by their words, and by their vectors where there is an embedder. The words of quoted
//! phrases and identifiers count only where these stand as they are written.
//!
//! A query is parsed first ([`Query`], [`QueryError`]) and answered then: [`run_query()`] fails with a [`SearchError`], of
//! which [`SearchError::Segment`] is met wherever a segment is read, and [`SearchError::Timeout`] wherever work is
//! done.

mod answer;
mod bm25_search;
mod candidate_set;
mod derived;
mod exact_gate;
mod file_scan;
mod filter;
mod fusion;
mod matched_terms;
mod passage_search;
mod query;
mod query_timer;
mod run_query;
mod scan;
mod seen_rows;
mod top;
mod vector_search;
mod walk;

use thiserror::Error;

pub use answer::{Answer, FileLine, Hit, Score};
pub use derived::DerivedVectors;
pub use file_scan::{FileSource, PassageReader};
pub use filter::{Filter, FilterError};
pub use query::{Include, Mode, Query, QueryError};
pub use run_query::{SearchResult, SearchSource, run_query};
pub use vector_search::is_walked_after_larger;

use crate::segment::SegmentError;

/// Says why a query has no answer.
#[derive(Debug, Error)]
pub enum SearchError {
    /// Stored bytes can't be read or are damaged.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The vector is of another length than those it is compared with.
    #[error("the query's vector has {found} numbers, and vectors here have {expected}")]
    Dimension {
        /// Numbers in the query's vector.
        found: usize,
        /// Numbers in the vectors of the memory.
        expected: usize,
    },
    /// A vector of zeros under cosine.
    #[error("a vector of zeros has no direction to compare by cosine")]
    ZeroVector,
    /// The record that the query names is not there.
    #[error("there is no record {0} to compare with")]
    NoRecord(String),
    /// The time limit was reached, which had this many milliseconds.
    #[error("the query took longer than its {0} ms")]
    Timeout(u64),
}

impl SearchError {
    /// Returns what to do next, which the error's own text leaves out.
    pub fn hint(&self) -> String {
        match self {
            SearchError::Segment(error) => error.hint(),
            SearchError::Dimension { .. } => "use the embedding model that the memory was made with".into(),
            SearchError::ZeroVector => "ask with another vector or with text".into(),
            SearchError::NoRecord(..) => "list the records with ls, or with engramfs export".into(),
            SearchError::Timeout(..) => "ask for less or give a larger timeout_ms".into(),
        }
    }
}
