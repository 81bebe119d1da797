//! From a query to its answer.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::{FileLine, Hit, Score};
use super::bm25_search::{FileRow, HitKey, HitRow, TextHit};
use super::derived::DerivedVectors;
use super::file_scan::{FileScan, FileSource};
use super::fusion::fuse;
use super::passage_search::VectorHit;
use super::query_timer::QueryTimer;
use super::scan::{Scan, Scored};
use super::top::Ranked;
use super::vector_search::{SearchParams, nearest};
use super::{Mode, Query, SearchError, bm25_search};
use crate::branch::BranchVersion;
use crate::segment::{Blocks, Row, SegmentError};
use crate::text::{Language, QueryTerms};
use crate::vector::{Metric, PreparedVector};

/// How many of each list's best records are fused at least.
const FUSED_MIN: usize = 100;
/// How many times `k` of them are, where that is more.
const FUSED_PER_K: usize = 4;

/// One source of records that is searched, as it was when the query began.
#[derive(Clone)]
pub struct SearchSource {
    /// What hits from there name as their source.
    pub source: Arc<str>,
    /// The branch version to search, whatever becomes of the branch meanwhile.
    pub state: Arc<BranchVersion>,
    /// The vectors that an embedder made of its texts; of the dimension of its own vectors, if it has any.
    pub derived: Option<DerivedVectors>,
    /// Whether its records are the entries of a log, whose ids are numbers.
    pub is_log: bool,
}

/// The hits of a query, and how they were found.
pub struct SearchResult {
    /// Best first, `k` of them at most.
    pub hits: Vec<Hit>,
    /// The mode in which it was answered: where that asked for can't be had, another.
    pub mode: Mode,
    /// Why not in the mode asked for; `None` if it was.
    pub reason: Option<String>,
    /// Whether the hits are proven to be the best: no graph was walked.
    pub exact: bool,
}

struct ResolvedQuery {
    vector: Option<PreparedVector>,
    text: Option<String>,
    mode: Mode,
    reason: Option<String>,
}

/// Answers a query to a branch, which comes first, from sources and files, ranked as one. A record named by id is looked
/// for in that branch, whether or not it is one of the sources.
///
/// `no_vector` says why a text has none, with what to do; `check_deadline` is asked now and then whether to give up,
/// and its error is returned. If the mode that is asked for can't be had the answer is in another one and says why.
/// [`SearchError::NoRecord`] if the branch does not have the record, [`SearchError::Dimension`] if a source's vectors
/// have another length than the query's, [`SearchError::ZeroVector`] under cosine.
pub fn run_query(
    (asked, sources, files): (&SearchSource, &[SearchSource], Option<&FileSource<'_>>),
    metric: Metric,
    language: Option<&Language>,
    query: &Query,
    no_vector: &str,
    check_deadline: &dyn Fn() -> Option<SearchError>,
) -> Result<SearchResult, SearchError> {
    let timer = QueryTimer::new(check_deadline);
    let resolved = resolve_query(asked, metric, query, no_vector)?;
    let mut scans = Vec::with_capacity(sources.len());
    for (number, source) in sources.iter().enumerate() {
        // All sources are compared with one vector, so one of another dimension refuses the query; leaving that source
        // out would make the answer look complete.
        if let (Some(vector), Some(dim)) =
            (&resolved.vector, vector_dim(&source.state).or(source.derived.as_ref().map(|derived| derived.dim)))
            && vector.vector().len() != dim
        {
            return Err(SearchError::Dimension { found: vector.vector().len(), expected: dim });
        }
        scans.push(Scan::new(number, &source.state, source.derived.as_ref(), query.filter.as_ref(), &timer)?);
    }
    let file_scan = files.map(|source| FileScan::new(source, query.filter.as_ref(), &timer));
    let text_hits = |text: &str, k| {
        let mut words = QueryTerms::parse(text, language);
        // The text of a record is compared with, and nobody asked for what is quoted or named in it.
        if query.id.is_some() {
            words.unbind();
        }
        bm25_search::best(&scans, file_scan.as_ref(), words, language, k)
    };
    let nearest_hits = |vector: &PreparedVector, k| nearest_hits(&scans, file_scan.as_ref(), (vector, query), k);
    let builder = HitBuilder { sources, files, query, blocks: Blocks::default() };
    let (hits, exact) = collect_hits(builder, &resolved, nearest_hits, text_hits)?;
    Ok(SearchResult { hits, mode: resolved.mode, reason: resolved.reason, exact })
}

/// Works out what to compare with, and in which mode; a mode that can't be had is said with a reason.
fn resolve_query(
    asked: &SearchSource,
    metric: Metric,
    query: &Query,
    no_vector: &str,
) -> Result<ResolvedQuery, SearchError> {
    let (mut vector, mut text) = (query.vector.clone(), query.text.clone());
    if let Some(id) = &query.id {
        let row = asked.state.find(id)?.ok_or_else(|| SearchError::NoRecord(id.clone()))?;
        let (version, derived) = (row.version()?, asked.derived.as_ref());
        // A record has a derived vector only where it has none of its own, or one that is older than its text, so the
        // derived one is asked for first.
        vector = derived.map(|derived| derived.for_row(&row)).transpose()?.flatten();
        vector = vector.or_else(|| version.content.vector.as_deref().map(<[f32]>::to_vec));
        // A query by a record compares with its vector; its text serves where it has none or is asked for.
        if vector.is_none() || matches!(query.mode, Some(Mode::Text | Mode::Hybrid)) {
            text = version.content.text.as_deref().map(str::to_owned);
        }
    }
    let at_hand = match (vector.is_some(), text.is_some()) {
        (true, true) => Mode::Hybrid,
        (true, false) => Mode::Vector,
        _ => Mode::Text,
    };
    let (mode, reason) = match (query.mode, at_hand) {
        (None, mode) => (mode, None),
        (Some(asked), Mode::Hybrid) => (asked, None),
        (Some(asked), mode) if asked == mode => (mode, None),
        (Some(asked), Mode::Vector) => {
            (Mode::Vector, Some(format!("{asked} was asked for, and there is no text to compare with")))
        }
        (Some(asked), mode) => {
            (mode, Some(format!("{asked} was asked for, and there is no vector to compare with: {no_vector}")))
        }
    };
    let vector = vector.filter(|_| mode != Mode::Text).map(|vector| PreparedVector::new(metric, vector));
    if metric.needs_direction() && vector.as_ref().is_some_and(|vector| vector.norm() == 0.0) {
        return Err(SearchError::ZeroVector);
    }
    Ok(ResolvedQuery { vector, text: text.filter(|_| mode != Mode::Vector), mode, reason })
}

/// The dimension of a state's vectors, if it has any.
fn vector_dim(state: &BranchVersion) -> Option<usize> {
    let sealed = state.layers().iter().map(|layer| layer.segment.dim()).find(|dim| *dim > 0);
    sealed.or_else(|| {
        state.unsealed().values().find_map(|version| version.content.vector.as_ref().map(|vector| vector.len()))
    })
}

/// Returns the `k` records and passages that score best for a vector, best first, and whether none can be missing.
fn nearest_hits(
    scans: &[Scan<'_>],
    files: Option<&FileScan<'_>>,
    (vector, query): (&PreparedVector, &Query),
    k: usize,
) -> Result<(Vec<VectorHit>, bool), SearchError> {
    let records = nearest(scans, vector, k, SearchParams { exact: query.exact, ef: query.ef })?;
    let record = |found: Scored<f32>| {
        let (id, payload) = (HitKey::Record(found.id, found.source_index), HitRow::Record(found.row));
        Ranked { score: found.score, id, payload }
    };
    let mut all: Vec<VectorHit> = records.hits.into_iter().map(record).collect();
    if let Some(files) = files {
        // Each list has the best `k` of its kind under the same metric, so the best `k` of both are among them.
        all.extend(files.nearest(vector, k)?);
        all.sort_by(|one, other| other.score.total_cmp(&one.score).then_with(|| one.id.cmp(&other.id)));
        all.truncate(k);
    }
    Ok((all, records.exact))
}

/// Returns the hits, and whether they are proven to be the best.
fn collect_hits(
    mut builder: HitBuilder<'_>,
    resolved: &ResolvedQuery,
    nearest_hits: impl Fn(&PreparedVector, usize) -> Result<(Vec<VectorHit>, bool), SearchError>,
    text_hits: impl Fn(&str, usize) -> Result<Vec<TextHit>, SearchError>,
) -> Result<(Vec<Hit>, bool), SearchError> {
    let query = builder.query;
    match (&resolved.vector, &resolved.text) {
        (Some(vector), None) => {
            let (found, exact) = nearest_hits(vector, query.k)?;
            let mut hit = |found: &VectorHit| {
                let explain = || json!({ "mode": "vector", "score": found.score });
                builder.hit(found, Score::Single(found.score), Some(vector.distance(found.score)), explain)
            };
            Ok((found.iter().map(&mut hit).collect::<Result<_, _>>()?, exact))
        }
        (None, Some(text)) => {
            let found = text_hits(text, query.k)?;
            let mut hit = |found: &TextHit| {
                let explain = || json!({ "mode": "text", "score": found.score });
                builder.hit(found, Score::Double(found.score), None, explain)
            };
            // BM25 passes over only those rows whose upper bound is too low, so an answer by words is always exact.
            Ok((found.iter().map(&mut hit).collect::<Result<_, _>>()?, true))
        }
        (Some(vector), Some(text)) => {
            // Deeper than `k`: what is good in both lists may be among the best of neither.
            let depth = fused_depth(query.k);
            let (nearest, exact) = nearest_hits(vector, depth)?;
            let matching = text_hits(text, depth)?;
            Ok((builder.fused_hits(&nearest, &matching, vector)?, exact))
        }
        (None, None) => Ok((Vec::new(), true)),
    }
}

/// Returns how many of each list's best are fused where `k` hits are wanted.
fn fused_depth(k: usize) -> usize {
    k.saturating_mul(FUSED_PER_K).max(FUSED_MIN)
}

/// Returns the metadata of an entry without what its log keeps there.
fn without_log_keys(metadata: &str) -> Arc<str> {
    let mut keys: serde_json::Map<String, Value> = serde_json::from_str(metadata).unwrap_or_default();
    keys.retain(|key, _| !key.starts_with('@'));
    Value::Object(keys).to_string().into()
}

/// Turns ranked rows into hits: reads what the query wants shown, of those rows alone that are answered.
struct HitBuilder<'a> {
    sources: &'a [SearchSource],
    files: Option<&'a FileSource<'a>>,
    query: &'a Query,
    blocks: Blocks,
}

impl HitBuilder<'_> {
    fn hit<S>(
        &mut self,
        found: &Ranked<S, HitKey, HitRow>,
        score: Score,
        distance: Option<f32>,
        explain: impl FnOnce() -> Value,
    ) -> Result<Hit, SegmentError> {
        match (&found.id, &found.payload) {
            (HitKey::Record(id, source_index), HitRow::Record(row)) => {
                self.record_hit((row, id, *source_index), score, distance, explain)
            }
            (HitKey::File { path, line, .. }, HitRow::File(row)) => {
                let path = format!("files/{}", String::from_utf8_lossy(path));
                let file = FileLine { path: path.into(), line: *line };
                self.passage_hit((row, file), score, distance, explain)
            }
            _ => unreachable!("a key is of what it names"),
        }
    }

    fn passage_hit(
        &self,
        (row, file): (&FileRow, FileLine),
        score: Score,
        distance: Option<f32>,
        explain: impl FnOnce() -> Value,
    ) -> Result<Hit, SegmentError> {
        let source = self.files.expect("only what is searched has hits");
        let text = (source.read)(&row.segment, &row.passage, row.inode)?;
        Ok(Hit {
            id: "".into(),
            entry_id: None,
            file: Some(file),
            score,
            distance,
            source: source.source.clone(),
            branch: source.branch.clone(),
            provenance: None,
            text: Some(text.into()),
            metadata: "{}".into(),
            vector: None,
            explain: self.query.explain.then(explain),
        })
    }

    fn record_hit(
        &mut self,
        (row, id, source_index): (&Row, &Arc<str>, usize),
        score: Score,
        distance: Option<f32>,
        explain: impl FnOnce() -> Value,
    ) -> Result<Hit, SegmentError> {
        let id = id.clone();
        let (provenance, text, metadata) = match row {
            Row::Unsealed(version) => {
                let content = &version.content;
                (version.provenance.clone(), content.text.clone(), content.metadata.clone())
            }
            Row::Sealed(segment, row) => {
                let (provenance, content) = segment.provenance_and_content(*row, &mut self.blocks)?;
                (provenance, content.text, content.metadata)
            }
        };
        let branch = provenance.branch.clone();
        let provenance = self.query.include.stamp.then_some(provenance);
        let vector = if self.query.include.vector {
            // Not the mapped column that was searched: what is shown comes from a block that was hashed for this
            // answer.
            row.verified_vector(&mut self.blocks)?.map(|vector| vector.to_vec())
        } else {
            None
        };
        let explain = self.query.explain.then(explain);
        let SearchSource { source, is_log, .. } = &self.sources[source_index];
        let source = source.clone();
        // The id of a log's entry is its number with leading zeros, which only keeps entries in order; the number
        // itself is shown instead.
        let (id, entry_id, metadata) = match is_log {
            true => ("".into(), id.parse().ok(), without_log_keys(&metadata)),
            false => (id, None, metadata),
        };
        Ok(Hit {
            id,
            entry_id,
            file: None,
            score,
            distance,
            source,
            branch,
            provenance,
            text,
            metadata,
            vector,
            explain,
        })
    }

    fn fused_hits(
        &mut self,
        nearest: &[VectorHit],
        matching: &[TextHit],
        vector: &PreparedVector,
    ) -> Result<Vec<Hit>, SearchError> {
        let near_keys: Vec<HitKey> = nearest.iter().map(|found| found.id.clone()).collect();
        let word_keys: Vec<HitKey> = matching.iter().map(|found| found.id.clone()).collect();
        let by_vector: HashMap<&HitKey, &VectorHit> = near_keys.iter().zip(nearest).collect();
        let by_words: HashMap<&HitKey, &TextHit> = word_keys.iter().zip(matching).collect();
        let mut hits = Vec::new();
        for fused in fuse([&near_keys, &word_keys]).into_iter().take(self.query.k) {
            let (near, matching) = (by_vector.get(&fused.id), by_words.get(&fused.id));
            let explain = || {
                json!({
                    "mode": "hybrid", "score": fused.score,
                    "vector": { "rank": fused.ranks[0], "score": near.map(|found| found.score) },
                    "text": { "rank": fused.ranks[1], "score": matching.map(|found| found.score) },
                })
            };
            let distance = near.map(|found| vector.distance(found.score));
            let score = Score::Double(fused.score);
            // What both lists have is built once, from either of them: they were found in the same branch versions.
            hits.push(match (near, matching) {
                (Some(found), _) => self.hit(found, score, distance, explain)?,
                (None, Some(found)) => self.hit(found, score, None, explain)?,
                (None, None) => continue,
            });
        }
        Ok(hits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_list_the_best_100_are_fused_or_four_for_each_hit_wanted() {
        assert_eq!([1, 10, 25, 26, 10_000].map(fused_depth), [100, 100, 100, 104, 40_000]);
    }
}
