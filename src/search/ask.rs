//! From a query to its answer.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::{Hit, Score};
use super::clock::QueryTimer;
use super::fusion::fuse;
use super::scan::{Scan, Scored};
use super::vector_search::SearchParams;
use super::{Mode, Query, SearchError, bm25_search};
use crate::branch::BranchVersion;
use crate::segment::{Blocks, Row, SegmentError};
use crate::vector::{Metric, PreparedVector};

/// How many of each part's best records are fused; ranks behind add less than 0.001.
const FUSED_MIN: usize = 1000;

/// One place that is searched.
pub struct SearchSource {
    /// What hits from there name as their source.
    pub source: Arc<str>,
    /// The branch version to search.
    pub state: Arc<BranchVersion>,
}

/// What a query came to.
pub struct SearchResult {
    /// The hits, best first.
    pub hits: Vec<Hit>,
    /// How it was answered.
    pub mode: Mode,
    /// Why not in the mode asked for.
    pub reason: Option<String>,
    /// Whether the hits are proven to be the best: no graph was walked.
    pub exact: bool,
}

/// What a query compares records with.
struct ResolvedQuery {
    vector: Option<PreparedVector>,
    text: Option<String>,
    mode: Mode,
    reason: Option<String>,
}

/// Answers a query from one or more places. The first is the branch that is asked; a record
/// named by id is looked for there. `late` is asked now and then whether to give up.
pub fn ask(
    places: &[SearchSource],
    metric: Metric,
    query: &Query,
    late: &dyn Fn() -> Option<SearchError>,
) -> Result<SearchResult, SearchError> {
    let clock = QueryTimer::new(late);
    let wanted = wanted(places, metric, query)?;
    let (mut hits, mut exact) = (Vec::new(), true);
    for place in places {
        if let (Some(vector), Some(dim)) = (&wanted.vector, dim_of(&place.state))
            && vector.vector().len() != dim
        {
            return Err(SearchError::Dimension { found: vector.vector().len(), expected: dim });
        }
        let scan = Scan::new(&place.state, query.filter.as_ref(), &clock)?;
        let (found, proven) = hits_of(&scan, &place.source, &wanted, query)?;
        hits.extend(found);
        exact &= proven;
    }
    if places.len() > 1 {
        hits.sort_by(|a, b| b.score.value().total_cmp(&a.score.value()).then_with(|| a.id.cmp(&b.id)));
        hits.truncate(query.k);
    }
    Ok(SearchResult { hits, mode: wanted.mode, reason: wanted.reason, exact })
}

/// Works out what to compare with, and in which mode; a mode that can't be had is said with a reason.
fn wanted(places: &[SearchSource], metric: Metric, query: &Query) -> Result<ResolvedQuery, SearchError> {
    let (mut vector, mut text) = (query.vector.clone(), query.text.clone());
    if let Some(id) = &query.id {
        let row = places.first().map(|place| place.state.find(id)).transpose()?.flatten();
        let version = row.ok_or_else(|| SearchError::NoRecord(id.clone()))?.version()?;
        vector = version.content.vector.as_deref().map(<[f32]>::to_vec);
        // VectorSearch to a record means its vector; its text serves where it has none or is asked for.
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
            (mode, Some(format!("{asked} was asked for, and there is no vector to compare with; no embedder is set")))
        }
    };
    let vector = vector.filter(|_| mode != Mode::Text).map(|vector| PreparedVector::new(metric, vector));
    if metric == Metric::Cosine && vector.as_ref().is_some_and(|vector| vector.norm() == 0.0) {
        return Err(SearchError::ZeroVector);
    }
    Ok(ResolvedQuery { vector, text: text.filter(|_| mode != Mode::Vector), mode, reason })
}

/// The dimension of a state's vectors, if it has any.
fn dim_of(state: &BranchVersion) -> Option<usize> {
    let sealed = state.layers().iter().map(|layer| layer.segment.dim()).find(|dim| *dim > 0);
    sealed.or_else(|| {
        state.unsealed().values().find_map(|version| version.content.vector.as_ref().map(|vector| vector.len()))
    })
}

/// Returns the hits in one place, and whether they are proven to be the best.
fn hits_of(
    scan: &Scan<'_>,
    source: &Arc<str>,
    wanted: &ResolvedQuery,
    query: &Query,
) -> Result<(Vec<Hit>, bool), SearchError> {
    let mut make = HitBuilder { source, query, blocks: Blocks::default() };
    let effort = SearchParams { exact: query.exact, ef: query.ef };
    match (&wanted.vector, &wanted.text) {
        (Some(vector), None) => {
            let nearest = scan.nearest(vector, query.k, effort)?;
            let mut hit = |found: &Scored<f32>| {
                let explain = || json!({ "mode": "vector", "score": found.score });
                make.hit(&found.row, Score::Single(found.score), Some(vector.distance(found.score)), explain)
            };
            Ok((nearest.found.iter().map(&mut hit).collect::<Result<_, _>>()?, nearest.exact))
        }
        (None, Some(text)) => {
            let found = bm25_search::best(scan, text, query.k)?;
            let mut hit = |found: &Scored<f64>| {
                let explain = || json!({ "mode": "text", "score": found.score });
                make.hit(&found.row, Score::Double(found.score), None, explain)
            };
            Ok((found.iter().map(&mut hit).collect::<Result<_, _>>()?, true))
        }
        (Some(vector), Some(text)) => {
            let depth = query.k.max(FUSED_MIN);
            let (near, worded) = (scan.nearest(vector, depth, effort)?, bm25_search::best(scan, text, depth)?);
            Ok((make.fused(&near.found, &worded, vector)?, near.exact))
        }
        (None, None) => Ok((Vec::new(), true)),
    }
}

/// Makes hits of rows.
struct HitBuilder<'a> {
    source: &'a Arc<str>,
    query: &'a Query,
    blocks: Blocks,
}

impl HitBuilder<'_> {
    fn hit(
        &mut self,
        row: &Row,
        score: Score,
        distance: Option<f32>,
        explain: impl FnOnce() -> Value,
    ) -> Result<Hit, SegmentError> {
        let (id, branch, text, metadata) = match row {
            Row::Unsealed(version) => {
                let content = &version.content;
                (version.id.clone(), version.stamp.branch.clone(), content.text.clone(), content.metadata.clone())
            }
            Row::Sealed(segment, row) => {
                let (stamp, content) = segment.shown(*row, &mut self.blocks)?;
                (segment.id(*row)?.into(), stamp.branch, content.text, content.metadata)
            }
        };
        let vector = if self.query.include_vector {
            row.served_vector(&mut self.blocks)?.map(|vector| vector.to_vec())
        } else {
            None
        };
        let explain = self.query.explain.then(explain);
        Ok(Hit { id, score, distance, source: self.source.clone(), branch, text, metadata, vector, explain })
    }

    /// Fuses the two lists by their ranks.
    fn fused(
        &mut self,
        near: &[Scored<f32>],
        worded: &[Scored<f64>],
        vector: &PreparedVector,
    ) -> Result<Vec<Hit>, SearchError> {
        let id = |row: &Row| -> Result<Arc<str>, SegmentError> { Ok(Arc::from(&*row.id()?)) };
        let near_ids: Vec<Arc<str>> = near.iter().map(|found| id(&found.row)).collect::<Result<_, _>>()?;
        let word_ids: Vec<Arc<str>> = worded.iter().map(|found| id(&found.row)).collect::<Result<_, _>>()?;
        let by_vector: HashMap<&str, &Scored<f32>> = near_ids.iter().map(|id| &**id).zip(near).collect();
        let by_words: HashMap<&str, &Scored<f64>> = word_ids.iter().map(|id| &**id).zip(worded).collect();
        let mut hits = Vec::new();
        for fused in fuse([&near_ids, &word_ids]).into_iter().take(self.query.k) {
            let (near, worded) = (by_vector.get(&*fused.id), by_words.get(&*fused.id));
            let Some(row) = near.map(|found| &found.row).or(worded.map(|found| &found.row)) else { continue };
            let explain = || {
                json!({
                    "mode": "hybrid", "score": fused.score,
                    "vector": { "rank": fused.ranks[0], "score": near.map(|found| found.score) },
                    "text": { "rank": fused.ranks[1], "score": worded.map(|found| found.score) },
                })
            };
            let distance = near.map(|found| vector.distance(found.score));
            hits.push(self.hit(row, Score::Double(fused.score), distance, explain)?);
        }
        Ok(hits)
    }
}
