//! One line of `query` becomes a query, or an error that says what to write instead.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::filter::{Filter, FilterError};
use fields::{Fields, default_scope};

mod fields;
#[cfg(test)]
mod tests;

/// How many hits are asked for where `k` is left out.
const K_DEFAULT: usize = 10;
/// The valid values of `k`, the number of hits; others are refused.
pub const K_RANGE: RangeInclusive<usize> = 1..=10_000;
/// The valid values of `ef`, the beam of a walk through a graph, in nodes; others are refused.
pub const EF_RANGE: RangeInclusive<usize> = 1..=100_000;
/// How many milliseconds a query may take if `timeout_ms` is left out.
pub const TIMEOUT_MS_DEFAULT: u64 = 2_000;
/// The valid values of `timeout_ms`, in milliseconds; others are refused.
pub const TIMEOUT_MS_RANGE: RangeInclusive<u64> = 1..=600_000;
/// The most bytes of a `tag`, as JSON; a longer one is refused.
pub const TAG_BYTES_MAX: usize = 1_024;
/// Bytes of the line that a header repeats.
pub const ECHO_BYTES_MAX: usize = 80;

/// Why a line is not a query.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The line is blank, or asks for nothing.
    #[error("the query asks for nothing")]
    Empty,
    /// A line that begins with `{` is not a JSON object of the right shape.
    #[error("the query is not understood: {source}")]
    Json {
        /// The error of the JSON parser, with the column.
        #[from]
        source: serde_json::Error,
    },
    /// One key has a value of the wrong kind or size.
    #[error("{key:?} is {found}")]
    Field {
        /// The key whose value is wrong.
        key: &'static str,
        /// The value that was given, shortened.
        found: String,
        /// What to write instead.
        expected: &'static str,
    },
    /// `id` is given together with `vector` or `text`.
    #[error("\"id\" stands beside {other:?}, and one query has one or the other")]
    Both {
        /// The key beside it.
        other: &'static str,
    },
    /// The filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

impl QueryError {
    /// Returns what to do next, which the error's own text leaves out.
    pub fn hint(&self) -> String {
        match self {
            QueryError::Empty => "write some words, or an object with \"text\", \"vector\" or \"id\"".into(),
            QueryError::Json { .. } => "write one object on one line like {\"text\": \"words\", \"k\": 5}".into(),
            QueryError::Field { expected, .. } => format!("write {expected}"),
            QueryError::Both { .. } => "leave one of them out".into(),
            QueryError::Filter(error) => error.hint(),
        }
    }
}

/// How records are compared with the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the distance of vectors.
    Vector,
    /// By words, with BM25.
    Text,
    /// By both, fused by rank.
    Hybrid,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vector => "vector",
            Self::Text => "text",
            Self::Hybrid => "hybrid",
        })
    }
}

/// What hits carry beside what they always do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Include {
    /// Their vector; false by default.
    pub vector: bool,
    /// Who wrote them, and when; false by default.
    pub stamp: bool,
}

/// A query, checked as far as possible without records.
///
/// It has at least one of `vector`, `text` and `id`; `id` stands alone. In a line, null is the same as leaving a key
/// out.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The vector to search near: one or more finite numbers. Its length is checked when the query is answered.
    pub vector: Option<Vec<f32>>,
    /// The words to look for; never blank.
    pub text: Option<String>,
    /// Id of the record to search near, which must be in the branch.
    pub id: Option<String>,
    /// The most hits, 1 to 10,000; 10 by default.
    pub k: usize,
    /// The mode asked for; `None`, the default, chooses by what is available.
    pub mode: Option<Mode>,
    /// The condition on a record's metadata; `None`, the default, for any.
    pub filter: Option<Filter>,
    /// Whether the answer must be proven exact; false by default.
    pub exact: bool,
    /// The beam of the walk, 1 to 100,000; `None`, the default, leaves it to the search.
    pub ef: Option<usize>,
    /// The earlier state to search: a label, an entry or a time; `None`, the default, for the present one.
    pub at: Option<String>,
    /// What is searched, each named once: `branch`, `log`, `files` (the default is all three), root branches by name,
    /// or closed logs as `log:NAME`.
    pub scope: Vec<String>,
    /// What hits carry beside what they always do.
    pub include: Include,
    /// Whether hits explain their scores; false by default.
    pub explain: bool,
    /// Repeated in the answer's header: any JSON of up to 1 KiB; null by default.
    pub tag: Value,
    /// How many milliseconds it may take, 1 to 600,000; 2,000 by default.
    pub timeout_ms: u64,
    /// The beginning of the line, at most 80 bytes and cut between characters.
    pub echo: String,
}

impl Query {
    /// Parses one line: a JSON object when it begins with `{`, otherwise bare text.
    ///
    /// White space around the line and a byte-order mark before it do not count. Fails with a [`QueryError`] for a key
    /// that is unknown or given twice, a wrong type, a number out of range, and a query for nothing.
    ///
    /// ```
    /// use engramfs::search::Query;
    ///
    /// let words = Query::parse("green tea").unwrap();
    /// assert_eq!((words.text.as_deref(), words.k), (Some("green tea"), 10));
    ///
    /// let near = Query::parse(r#"{"vector": [0.5, 1.0], "k": 3, "filter": {"user": "ann"}}"#).unwrap();
    /// assert_eq!((near.vector, near.k), (Some(vec![0.5, 1.0]), 3));
    ///
    /// let error = Query::parse(r#"{"text": "tea", "k": 0}"#).unwrap_err();
    /// println!("{error}; {}", error.hint());
    /// ```
    pub fn parse(line: &str) -> Result<Self, QueryError> {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}').trim_end();
        if !line.starts_with('{') {
            return Self::from_text(line);
        }
        let mut fields: Fields = serde_json::from_str(line)?;
        let query = Self {
            vector: fields.vector.take(),
            text: fields.take_string("text")?,
            id: fields.take_string("id")?,
            k: fields.take_integer("k", K_RANGE, "a whole number from 1 to 10000")?.unwrap_or(K_DEFAULT),
            mode: fields.take_mode()?,
            filter: fields.take_filter()?,
            exact: fields.take_flag("exact")?,
            ef: fields.take_integer("ef", EF_RANGE, "a whole number from 1 to 100000")?,
            at: fields.take_revision()?,
            scope: fields.take_scope()?,
            include: fields.take_include()?,
            explain: fields.take_flag("explain")?,
            tag: fields.take_tag()?,
            timeout_ms: fields
                .take_integer("timeout_ms", TIMEOUT_MS_RANGE, "a whole number of milliseconds from 1 to 600000")?
                .unwrap_or(TIMEOUT_MS_DEFAULT),
            echo: shorten(line, ECHO_BYTES_MAX).to_owned(),
        };
        query.validate()
    }

    /// Returns whether it has the default scope.
    pub fn has_default_scope(&self) -> bool {
        self.scope == default_scope()
    }

    /// Returns the query for some words alone, with everything else at its default.
    ///
    /// [`QueryError::Empty`] if the text is blank.
    pub fn from_text(text: &str) -> Result<Self, QueryError> {
        let query = Self {
            vector: None,
            text: Some(text.to_owned()),
            id: None,
            k: K_DEFAULT,
            mode: None,
            filter: None,
            exact: false,
            ef: None,
            at: None,
            scope: default_scope(),
            include: Include::default(),
            explain: false,
            tag: Value::Null,
            timeout_ms: TIMEOUT_MS_DEFAULT,
            echo: shorten(text, ECHO_BYTES_MAX).to_owned(),
        };
        query.validate()
    }

    /// Returns whether its answer may depend on words: it has a text, or names a record. In mode `vector`, too: where there is
    /// no vector to compare with, words answer.
    pub fn may_use_words(&self) -> bool {
        self.text.is_some() || self.id.is_some()
    }

    /// Passes a query on when it asks for something, and for one thing.
    fn validate(self) -> Result<Self, QueryError> {
        let blank = |text: &Option<String>| text.as_ref().is_some_and(|text| text.trim().is_empty());
        let is_empty = self.vector.is_none() && self.text.is_none() && self.id.is_none();
        if is_empty || blank(&self.text) || blank(&self.id) {
            return Err(QueryError::Empty);
        }
        match (&self.id, &self.vector, &self.text) {
            (Some(_), Some(_), _) => Err(QueryError::Both { other: "vector" }),
            (Some(_), None, Some(_)) => Err(QueryError::Both { other: "text" }),
            _ => Ok(self),
        }
    }
}

/// Returns the beginning of `text`, at most `len` bytes and cut between characters.
fn shorten(text: &str, len: usize) -> &str {
    &text[..text.floor_char_boundary(len)]
}
