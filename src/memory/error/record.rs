//! Why a record, or a batch of them, is not taken.

use std::sync::Arc;

use thiserror::Error;

use super::{Advice, Kind};
use crate::branch::NameError;

const SHAPE: &str = "write {\"vector\":[…], \"text\":\"…\", \"metadata\":{…}}, or bare text";
const DELETE_ALONE: &str = "write {\"id\":\"…\",\"delete\":true} alone";
const SAME_MODEL: &str = "use the embedding model that the memory was made with";

/// Why a record is not taken.
#[derive(Debug, Clone, Error)]
pub enum RecordError {
    /// The document is longer than 16 MiB. Kind `TooLarge`.
    #[error("the document has {0} bytes, and 16 MiB is the most")]
    TooLarge(usize),
    /// More bytes could make the document right. Kind `Invalid`.
    #[error("the document ends in the middle")]
    Incomplete,
    /// The document is not JSON. Kind `Invalid`.
    #[error("the document is not JSON: {0}")]
    NotJson(#[source] Arc<serde_json::Error>),
    /// The document is JSON of another shape. Kind `Invalid`.
    #[error("the document is no record: {}", without_list(.0))]
    NotARecord(#[source] Arc<serde_json::Error>),
    /// A list, which a bare vector may have been meant as. Kind `Invalid`.
    #[error("a record is an object or bare text, and what begins with [ is neither")]
    BareArray,
    /// What should be a time in RFC 3339 is none. Kind `Invalid`.
    #[error("{0:?} is no time")]
    NotATime(String),
    /// Bare text is no UTF-8 from this byte on. Kind `Invalid`.
    #[error("the text is no UTF-8 at byte {0}")]
    NotUtf8(usize),
    /// A document holds the key `delete`, which is for lines of `ingest`. Kind `Invalid`.
    #[error("'delete' is a key of lines of ingest, and of no record's document")]
    Delete,
    /// A line deletes and holds a content, so that one of the two is a mistake. Kind `Invalid`.
    #[error("a line that deletes holds more than the id")]
    DeleteWithContent,
    /// A line deletes and names no record. Kind `Invalid`.
    #[error("a line that deletes names no id")]
    NoId,
    /// The document names another record than its file. Kind `Invalid`.
    #[error("the document says id '{said}', and the file is {id}.json")]
    OtherId {
        /// What the document says, cut to 80 characters.
        said: String,
        /// The id that the file's name gives.
        id: String,
    },
    /// Neither a vector nor a text. Kind `Invalid`.
    #[error("neither a vector nor a text is left, and a record needs one")]
    Empty,
    /// The vector is something else than an array of numbers. Kind `Invalid`.
    #[error("the vector is no array of numbers")]
    NotNumbers,
    /// No memory has vectors of that length. Kind `Invalid`.
    #[error("the vector has {0} numbers, and 1 to 65536 are possible")]
    VectorLength(usize),
    /// A number is NaN or infinite as an f32; its place, from 0. Kind `Invalid`.
    #[error("number {0} of the vector is not finite as an f32")]
    NotFinite(usize),
    /// The vector is of another length than those of the memory. Kind `Invalid`.
    #[error("the vector has {found} numbers, and vectors here have {expected}")]
    Dimension {
        /// How many numbers it has.
        found: usize,
        /// How many the vectors of the memory have.
        expected: usize,
    },
    /// The same, of all vectors of a bulk commit. Kind `Invalid`.
    #[error("the vectors have {found} numbers, and vectors here have {expected}")]
    BulkDimension {
        /// How many numbers they have.
        found: usize,
        /// How many the vectors of the memory have.
        expected: usize,
    },
    /// A vector of zeros under cosine, which compares directions. Kind `Invalid`.
    #[error("a vector of zeros has no direction to compare by cosine")]
    ZeroVector,
    /// There is no such record. Kind `NotFound`.
    #[error("there is no record {0}")]
    Missing(String),
    /// There is such a record, and the caller wants to make a new one. Kind `Exists`.
    #[error("there is a record {0} already")]
    Exists(String),
    /// The id is not allowed.
    #[error(transparent)]
    Id(#[from] NameError),
    /// One line of a batch is wrong, and none of it is taken.
    #[error("line {number}: {source}")]
    Line {
        /// The line, from 1.
        number: usize,
        /// What is wrong, whose advice counts for this error, too, except for a hint that speaks of a record's file.
        source: Box<RecordError>,
    },
    /// One record of a batch is wrong, and none of it is taken.
    #[error("record {id}: {source}")]
    Record {
        /// Its id, since a batch need not have lines.
        id: String,
        /// What is wrong, whose advice counts for this error, too.
        source: Box<RecordError>,
    },
}

/// Returns what is wrong without the keys that could stand there: the parser's list has those of lines of `ingest` and those
/// that only reading adds, and the hint says what to write.
fn without_list(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let Some((what, list)) = text.split_once(", expected one of ") else { return text };
    format!("{what}{}", list.rfind(" at line ").map_or("", |place| &list[place..]))
}

impl RecordError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        let invalid = |code, hint| Advice::new(Kind::Invalid, code, hint);
        match self {
            RecordError::TooLarge(_) => Advice::new(
                Kind::TooLarge,
                "too_large",
                "keep it in files/ and a summary here, or write several records",
            ),
            RecordError::Incomplete => invalid("incomplete", SHAPE),
            RecordError::NotJson(_) => invalid("not_json", SHAPE),
            RecordError::NotARecord(_) | RecordError::BareArray | RecordError::NotNumbers => {
                invalid("bad_document", SHAPE)
            }
            RecordError::NotATime(_) => invalid("bad_document", "write a time in RFC 3339, as 2026-01-31T09:00:00Z"),
            RecordError::Delete => {
                invalid("bad_document", "rm the file, or write {\"id\":\"…\",\"delete\":true} to ingest")
            }
            RecordError::DeleteWithContent => invalid("bad_document", DELETE_ALONE),
            RecordError::NotUtf8(_) => invalid("not_utf8", "write text in UTF-8"),
            RecordError::NoId => invalid("no_id", DELETE_ALONE),
            RecordError::OtherId { .. } => invalid("other_id", "leave out the id, or write to that record's file"),
            RecordError::Empty => invalid("empty_record", "write a text or a vector; rm the file to delete the record"),
            RecordError::VectorLength(_) => invalid("wrong_dimension", "write 1 to 65536 numbers"),
            RecordError::NotFinite(_) => invalid("not_finite", "write finite numbers, or leave the vector out"),
            RecordError::Dimension { .. } | RecordError::BulkDimension { .. } => invalid("wrong_dimension", SAME_MODEL),
            RecordError::ZeroVector => invalid("zero_vector", "leave the vector out, or use another metric"),
            RecordError::Missing(_) => Advice::new(Kind::NotFound, "no_such_record", "list the records with ls"),
            RecordError::Exists(_) => {
                Advice::new(Kind::Exists, "record_exists", "read that one, or write without O_EXCL or RENAME_NOREPLACE")
            }
            RecordError::Id(error) => super::name_advice(error),
            RecordError::Line { source, .. } if matches!(**source, RecordError::Empty) => {
                invalid("empty_record", "write a text or a vector there, or \"delete\":true to delete the record")
            }
            RecordError::Line { source, .. } | RecordError::Record { source, .. } => source.advice(),
        }
    }

    /// Wraps it with its line of a batch, counted from 1; kind and code stay those of the reason.
    pub fn at_line(self, number: usize) -> RecordError {
        RecordError::Line { number, source: Box::new(self) }
    }
}
