//! An answer and its lines.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Mode;
use crate::object::Hash;
use crate::record::Provenance;

/// A score as it was computed; vectors in f32, texts and ranks in f64.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Score {
    /// Of a comparison of vectors.
    Single(f32),
    /// Of BM25 or rank fusion.
    Double(f64),
}

impl Score {
    /// Returns the score as f64, which has room for every f32.
    pub fn value(self) -> f64 {
        match self {
            Score::Single(score) => f64::from(score),
            Score::Double(score) => score,
        }
    }
}

/// Where a passage of a file begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine {
    /// The file's path with `files/` in front; bytes that are no UTF-8 are replaced.
    pub path: Arc<str>,
    /// Number of its line, from 1.
    pub line: u32,
}

/// One record, or a passage of a file, that answers.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The record's id; empty for a passage and an entry of a log.
    pub id: Arc<str>,
    /// The number of an entry of a log; `None` for a record and for a passage.
    pub entry_id: Option<u64>,
    /// Where the passage is; `None` for a record and for an entry.
    pub file: Option<FileLine>,
    /// The score: larger is better.
    pub score: Score,
    /// Distance under the metric; `None` if no vectors were compared.
    pub distance: Option<f32>,
    /// `branch`, `log`, `files`, `log:NAME` for a closed log, or the name of another root branch.
    pub source: Arc<str>,
    /// Name path of the branch that wrote the version, or whose file it is.
    pub branch: Arc<str>,
    /// Who wrote it, and when, if [`Include::stamp`](super::Include::stamp) is set; `None` for a passage.
    pub provenance: Option<Provenance>,
    /// The text of the record or passage; `None` for a record without one.
    pub text: Option<Arc<str>>,
    /// The record's metadata as canonical JSON.
    pub metadata: Arc<str>,
    /// The vector, if [`Include::vector`](super::Include::vector) is set.
    pub vector: Option<Vec<f32>>,
    /// How the score was computed, if the query asked for it.
    pub explain: Option<Value>,
}

/// The answer to one query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What was found, best first; equal scores by id.
    pub hits: Vec<Hit>,
    /// The mode in which it was answered; it may differ from the one asked for.
    pub mode: Mode,
    /// Why another mode was used than the one asked for; `None` if it was not.
    pub reason: Option<String>,
    /// Name path of the branch that was asked.
    pub branch: Arc<str>,
    /// Head of the branch version that was searched.
    pub head: Hash,
    /// The earlier state that was searched, as JSON; `None` if the query named none.
    pub at: Option<Value>,
    /// Whether the hits are proven to be the best: no graph was walked.
    pub exact: bool,
    /// Duration from query to answer, in microseconds.
    pub micros: u64,
    /// The beginning of the query's line, see [`Query::echo`](super::Query::echo).
    pub query: String,
    /// The query's `tag` as it was given; null if it had none.
    pub tag: Value,
}

#[derive(Serialize)]
struct HeaderLine<'a> {
    q: usize,
    ok: bool,
    hits: usize,
    mode: String,
    branch: &'a str,
    head: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a Value>,
    exact: bool,
    us: u64,
    #[serde(rename = "question")]
    query: &'a str,
    tag: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct HitStamp<'a> {
    agent: &'a str,
    session: &'a str,
    task: &'a str,
    uid: u32,
    created: String,
    modified: String,
}

impl HitStamp<'_> {
    fn from_provenance(provenance: &Provenance) -> HitStamp<'_> {
        HitStamp {
            agent: &provenance.agent,
            session: &provenance.session,
            task: &provenance.task,
            uid: provenance.uid,
            created: provenance.created.to_string(),
            modified: provenance.modified.to_string(),
        }
    }
}

#[derive(Serialize)]
struct HitLine<'a> {
    q: usize,
    rank: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    score: Score,
    distance: Option<f32>,
    source: &'a str,
    branch: &'a str,
    #[serde(flatten)]
    stamp: Option<HitStamp<'a>>,
    text: Option<&'a str>,
    metadata: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    vector: Option<&'a [f32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<&'a Value>,
}

impl Answer {
    /// Returns the header line and one line a hit; `q` is the query's number in its handle.
    pub fn to_lines(&self, q: usize) -> String {
        let header = HeaderLine {
            q,
            ok: true,
            hits: self.hits.len(),
            mode: self.mode.to_string(),
            branch: &self.branch,
            head: self.head.to_string(),
            at: self.at.as_ref(),
            exact: self.exact,
            us: self.micros,
            query: &self.query,
            tag: &self.tag,
            reason: self.reason.as_deref(),
        };
        let mut out = serde_json::to_string(&header).unwrap_or_default();
        out.push('\n');
        for (hit, rank) in self.hits.iter().zip(1..) {
            out.push_str(&hit.to_line(q, rank));
            out.push('\n');
        }
        out
    }
}

impl Hit {
    fn to_line(&self, q: usize, rank: usize) -> String {
        let empty = RawValue::NULL;
        let metadata = serde_json::from_str::<&RawValue>(&self.metadata).unwrap_or(empty);
        let line = HitLine {
            q,
            rank,
            id: (self.file.is_none() && self.entry_id.is_none()).then_some(&*self.id),
            entry_id: self.entry_id,
            path: self.file.as_ref().map(|file| &*file.path),
            line: self.file.as_ref().map(|file| file.line),
            score: self.score,
            distance: self.distance,
            source: &self.source,
            branch: &self.branch,
            stamp: self.provenance.as_ref().map(HitStamp::from_provenance),
            text: self.text.as_deref(),
            metadata,
            vector: self.vector.as_deref(),
            explain: self.explain.as_ref(),
        };
        serde_json::to_string(&line).unwrap_or_default()
    }
}
