//! The nearest records to a vector: a walk through the graphs of large segments, a scan of the rest.
//!
//! Every row that is looked at goes into one pool with proven bounds on its score, wherever it is
//! stored. Rows that the `k`-th best lower bound rules out are dropped, the others are scored in
//! f32. So the answer is exact among the rows looked at, and exact altogether where no graph was
//! walked.

use std::cmp::Reverse;
use std::sync::Arc;

use super::SearchError;
use super::candidate_set::{CandidateSet, RowLocation};
use super::scan::{BATCH_ROWS, CodeColumns, ROWS_PER_SIEVE, Scan, Scored};
use super::top::{Ranked, Top};
use super::walk::walk;
use crate::graph::{Beam, Slack};
use crate::record::Version;
use crate::segment::{Row, SegmentError};
use crate::vector::{self, Metric, PreparedVector, prefetch};

/// `ef` where the query does not give it: this many times `k`, and at least [`ef_default`].
const EF_PER_K: usize = 3;
/// The beam keeps and follows at least this many nodes whatever their scores, unless `ef` is less.
const BEAM_NODES_MIN: usize = 16;
/// Where another graph was walked before, that minimum is one part in this many of `k`: its results already bound the scores.
const BEAM_NODES_MIN_K_ONE_IN: usize = 4;
/// The beam keeps at most this many times `ef` nodes, however many lie within the slack.
const BEAM_NODES_MAX_PER_EF: usize = 3;
/// How much farther than the `k`-th best a node may lie to be followed, as a share of that distance, where `ef` is
/// [`REFERENCE_EF_PER_K`] times `k`.
const SLACK_AT_REFERENCE: f32 = 0.02;
/// What the slack gains each time `ef` grows by the factor e.
const SLACK_PER_E_FOLD: f32 = 0.0357;
/// The `ef`, in multiples of `k`, at which [`SLACK_AT_REFERENCE`] was measured.
const REFERENCE_EF_PER_K: f32 = 2.4;
/// A walk costs as much as scanning this many rows for each candidate that `ef` asks for: less where
/// few lie within the slack, more where many do.
const ROWS_PER_CANDIDATE: u64 = 48;
/// The same where a walk keeps `ef` whatever they score.
const ROWS_PER_CANDIDATE_WITHOUT_SLACK: u64 = 32;

/// How many versions before its turn the code of one is asked for; the version itself as many before.
const VERSIONS_AHEAD: usize = 16;
/// How many candidates before its turn the vector of one is asked for.
const VECTORS_AHEAD: usize = 2;

/// How thorough a search by vectors is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchParams {
    /// Whether every row must be looked at.
    pub exact: bool,
    /// The beam of walks, in nodes; `None` for the default of the metric.
    pub ef: Option<usize>,
}

/// What a search by vectors found.
pub struct VectorSearchResult {
    /// Best first, equal scores by id.
    pub hits: Vec<Scored<f32>>,
    /// Whether nothing can be missing: no graph was walked.
    pub exact: bool,
}

/// Returns the `ef` with which ten answers had a recall of 0.99 at least.
///
/// Measured on 20,000 real vectors, all but `dot` on 118,053 too; for `l2` and `dot` with lengths that
/// vary as exp(N(0, 0.5)), which makes long vectors the neighbours of nearly all others.
fn ef_default(metric: Metric) -> usize {
    match metric {
        Metric::Cosine => 128,
        Metric::L2 => 128,
        Metric::Dot => 512,
    }
}

/// Returns the `ef` for the best `k`: what the query gives, or the default one, and never less than `k`.
fn effective_ef(metric: Metric, k: usize, given: Option<usize>) -> usize {
    given.unwrap_or(ef_default(metric).max(k.saturating_mul(EF_PER_K))).max(k)
}

/// Returns the beam of a walk for the best `k` that finds about as much as one that keeps `ef`,
/// whatever they score, and looks at fewer rows for it.
///
/// What lies a little farther off than the `k`-th best so far is followed, and no more: a query in
/// a crowd needs many candidates and one that stands alone few (Al-Jazzazi and others, "Distance
/// adaptive beam search", 2025).
fn beam(metric: Metric, k: usize, ef: usize) -> Beam {
    if !metric.is_distance() {
        return Beam::new(ef);
    }
    let slack = SLACK_AT_REFERENCE + SLACK_PER_E_FOLD * (ef as f32 / (REFERENCE_EF_PER_K * k as f32)).ln();
    let slack = Slack { k, times: 1.0 + slack.max(0.0) };
    Beam {
        kept_max: ef.saturating_mul(BEAM_NODES_MAX_PER_EF),
        kept_min: k.max(BEAM_NODES_MIN).min(ef),
        slack: Some(slack),
        ..Beam::new(ef)
    }
}

/// Returns whether a walk of `ef` candidates, each as expensive as the scan of a number of rows, costs less than a scan
/// of `seen` rows of a segment of `all`.
///
/// Where few rows are visible or match, a walk passes through many others: its cost grows as their
/// share falls.
fn walk_pays(seen: u32, all: u32, ef: usize, rows_per_candidate: u64) -> bool {
    let seen = u64::from(seen);
    seen * seen > (ef as u64 * rows_per_candidate).saturating_mul(u64::from(all))
}

/// Returns whether a graph of a segment of `all` rows, of which `seen` are visible, would be walked after that of a
/// larger one.
pub fn is_walked_after_larger(seen: u32, all: u32) -> bool {
    walk_pays(seen, all, BEAM_NODES_MIN, ROWS_PER_CANDIDATE)
}

/// Returns the `k` records of all sources that score best: best first, equal scores by id, then by source.
/// [`SearchError::Timeout`] once the time is over, [`SearchError::Segment`] if vectors can't be read or are damaged.
pub fn nearest(
    scans: &[Scan<'_>],
    query: &PreparedVector,
    k: usize,
    params: SearchParams,
) -> Result<VectorSearchResult, SearchError> {
    let (mut pool, mut exact, mut floor) = (CandidateSet::new(k), true, None);
    for (number, scan) in scans.iter().enumerate() {
        pool.begin_source(number);
        exact &= scan.collect_candidates(query, params, &mut pool, &mut floor)?;
    }
    Ok(VectorSearchResult { hits: rescore(scans, query, pool)?, exact })
}

/// Scores what the bounds leave in doubt, the likeliest first.
fn rescore(scans: &[Scan<'_>], query: &PreparedVector, pool: CandidateSet) -> Result<Vec<Scored<f32>>, SearchError> {
    let mut top: Top<f32, (Arc<str>, usize), Row> = Top::new(pool.k());
    let candidates = pool.into_candidates();
    for (number, candidate) in candidates.iter().enumerate() {
        let scan = &scans[candidate.source];
        let later = candidates.get(number + VECTORS_AHEAD);
        later.into_iter().for_each(|later| scans[later.source].prefetch(&later.location));
        if number.is_multiple_of(BATCH_ROWS) {
            scan.check_time()?;
        }
        // Bounds fall from here on. One that equals the worst score is still looked at: ids decide between equal
        // scores.
        if top.worst().is_some_and(|worst| candidate.upper_bound < worst) {
            break;
        }
        let (row, score) = match &candidate.location {
            RowLocation::Unsealed(version) => {
                let score = version.content.vector.as_deref().map(|vector| query.score(vector, version.norm));
                (Row::Unsealed(version.clone()), score)
            }
            RowLocation::Sealed(layer, row) => scan.score_sealed(query, *layer, *row)?,
            RowLocation::UnsealedDerived(version, derived) => {
                (Row::Unsealed(version.clone()), Some(query.score(&derived.vector, derived.norm)))
            }
            RowLocation::SealedDerived(layer, row, number) => {
                let vector = scan.derived_vector(*layer, *number)?;
                let score = vector.map(|vector| query.score(vector, vector::norm(vector)));
                (Row::Sealed(scan.state.layers()[*layer].segment.clone(), *row), score)
            }
        };
        if let Some(score) = score
            // Asked before the push, so that an id is read only for a row that may enter.
            && top.worst().is_none_or(|worst| score >= worst)
        {
            top.push(score, (Arc::from(&*row.id()?), scan.source_index), row);
        }
    }
    let scored = |entry: Ranked<f32, (Arc<str>, usize), Row>| {
        let (id, source_index) = entry.id;
        Scored { source_index, id, row: entry.payload, score: entry.score }
    };
    Ok(top.into_sorted().into_iter().map(scored).collect())
}

impl Scan<'_> {
    /// Pools what may be among the best; returns whether nothing can be missing. `floor` is what the walks of other sources have
    /// found to be not worth while, and those of this one.
    fn collect_candidates(
        &self,
        query: &PreparedVector,
        params: SearchParams,
        pool: &mut CandidateSet,
        floor: &mut Option<f32>,
    ) -> Result<bool, SearchError> {
        let (k, mut exact) = (pool.k(), true);
        let ef = effective_ef(query.metric(), k, params.ef);
        let ef_least = k.max(BEAM_NODES_MIN).min(ef);
        // A smaller beam for walks of other graphs: the best `k` may all have been found already.
        let later_kept_min = BEAM_NODES_MIN.max(k / BEAM_NODES_MIN_K_ONE_IN).min(ef_least);
        let mut beam = beam(query.metric(), k, ef);
        // The floor that the walk of a large graph finds spares the walks of smaller graphs and of further sources what
        // can't be among the best.
        if let Some(floor) = *floor {
            (beam.floor, beam.kept_min) = (floor, later_kept_min);
        }
        let layers = self.largest_first();
        for &layer in &layers {
            let share = f64::from(self.segment_rows(layer)) / f64::from(self.segment_rows(layers[0]));
            let kept = ((ef as f64 * share) as usize).max(ef_least);
            if self.should_walk(layer, query, kept, params.exact)? {
                // The graph has the rows' own vectors alone, so the derived ones are scanned beside the walk.
                self.scan_derived(layer, query, pool)?;
                beam.floor = walk(self, layer, query, (beam, ef), pool)?;
                (beam.kept_min, *floor) = (later_kept_min, Some(beam.floor));
                exact = false;
            } else {
                self.scan_layer(layer, query, pool)?;
            }
        }
        self.scan_unsealed(query, pool)?;
        self.scan_recent(query, pool)?;
        Ok(exact)
    }

    /// Returns the numbers of the layers, that of the most rows first.
    fn largest_first(&self) -> Vec<usize> {
        let mut layers: Vec<usize> = (0..self.state.layers().len()).collect();
        layers.sort_by_key(|layer| Reverse(self.segment_rows(*layer)));
        layers
    }

    /// Returns whether a segment's graph is there and costs less than a scan of the rows in query.
    fn should_walk(&self, layer: usize, query: &PreparedVector, ef: usize, exact: bool) -> Result<bool, SearchError> {
        let segment = &self.state.layers()[layer].segment;
        if exact || segment.graph(query.metric()).is_none() {
            return Ok(false);
        }
        let per_candidate =
            if query.metric().is_distance() { ROWS_PER_CANDIDATE } else { ROWS_PER_CANDIDATE_WITHOUT_SLACK };
        Ok(walk_pays(self.candidates_max(layer), segment.rows(), ef, per_candidate))
    }

    /// Pools every row in query of one segment.
    fn scan_layer(&self, layer: usize, query: &PreparedVector, pool: &mut CandidateSet) -> Result<(), SearchError> {
        let seen = &self.state.layers()[layer];
        if seen.visible.count() == 0 {
            return Ok(());
        }
        self.scan_derived(layer, query, pool)?;
        if seen.segment.dim() == 0 {
            return Ok(());
        }
        let replaces = self.derived_file(layer).filter(|file| file.counts().replaced > 0);
        let replaced = replaces.map(|file| file.columns()).transpose()?;
        let columns = CodeColumns::from_segment(&seen.segment)?;
        let mut rows = Vec::with_capacity(BATCH_ROWS);
        for start in (0..seen.segment.rows()).step_by(BATCH_ROWS) {
            self.rows_in(layer, start..start + BATCH_ROWS as u32, &mut rows);
            if let Some(derived) = &replaced {
                // A vector that is older than its text does not count: its row was pooled above with the derived one.
                rows.retain(|row| derived.number(*row).is_none());
            }
            columns.offer_best(&rows, query, pool, |at| Some(RowLocation::Sealed(layer, rows[at])));
            self.check_time()?;
        }
        Ok(())
    }

    /// Pools the versions that are in no segment. They come last: what was pooled before spares
    /// most of them a look at their metadata.
    fn scan_unsealed(&self, query: &PreparedVector, pool: &mut CandidateSet) -> Result<(), SearchError> {
        let place = |version: &Arc<Version>| {
            let counts = !self.is_stale(version) && self.passes_filter(version);
            counts.then(|| RowLocation::Unsealed(version.clone()))
        };
        let (table, seen) = self.state.unsealed().cached();
        let columns = CodeColumns::from_codes(table.codes());
        let mut rows = Vec::with_capacity(seen.count() as usize);
        seen.for_each(0..u32::MAX, |row| rows.push(row));
        columns.offer_best(&rows, query, pool, |at| place(table.version(rows[at])));
        self.scan_uncached(query, pool, place)
    }

    /// Pools the unsealed versions that are not in the cache of codes.
    fn scan_uncached(
        &self,
        query: &PreparedVector,
        pool: &mut CandidateSet,
        location: impl Fn(&Arc<Version>) -> Option<RowLocation>,
    ) -> Result<(), SearchError> {
        let versions: Vec<&Arc<Version>> = self.state.unsealed().uncached().collect();
        let mut sieve = query.sieve(pool.worst());
        for (at, version) in versions.iter().enumerate() {
            // A code is found over its version, so this is asked for before that, and both in time.
            if let Some(later) = versions.get(at + 2 * VERSIONS_AHEAD) {
                prefetch(std::slice::from_ref(&***later));
            }
            if let Some(code) = versions.get(at + VERSIONS_AHEAD).and_then(|later| later.code()) {
                prefetch(code.bytes);
            }
            if at.is_multiple_of(ROWS_PER_SIEVE) {
                sieve = query.sieve(pool.worst());
            }
            if let Some(found) = version.code().map(|code| query.code_product(code, version.norm))
                && sieve.passes(found)
            {
                let bounds = query.bounds(found);
                if pool.admits(bounds.1)
                    && let Some(location) = location(version)
                {
                    pool.offer(bounds, location);
                }
            }
        }
        self.check_time()
    }

    /// Has a vector brought near. What is wrong with it is said when it is scored.
    fn prefetch(&self, location: &RowLocation) {
        let vector = match location {
            RowLocation::Unsealed(version) => version.content.vector.as_deref(),
            RowLocation::Sealed(layer, row) => self.state.layers()[*layer].segment.vector(*row).ok().flatten(),
            RowLocation::UnsealedDerived(_, derived) => Some(&derived.vector[..]),
            RowLocation::SealedDerived(layer, _, number) => self.derived_vector(*layer, *number).ok().flatten(),
        };
        vector.into_iter().for_each(prefetch);
    }

    fn derived_vector(&self, layer: usize, number: u32) -> Result<Option<&[f32]>, SegmentError> {
        self.derived_file(layer).map(|file| file.vector(number)).transpose()
    }

    fn score_sealed(&self, query: &PreparedVector, layer: usize, row: u32) -> Result<(Row, Option<f32>), SegmentError> {
        let segment = &self.state.layers()[layer].segment;
        let norm = segment.norm(row)?;
        let score = segment.vector(row)?.map(|vector| query.score(vector, norm));
        Ok((Row::Sealed(segment.clone(), row), score))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_so_wide_by_default_and_never_narrower_than_the_hits_wanted() {
        let widths = |metric| {
            [(10, None), (100, None), (1_000, None), (10, Some(64)), (100, Some(64))]
                .map(|(k, given)| effective_ef(metric, k, given))
        };
        assert_eq!(widths(Metric::Cosine), [128, 300, 3_000, 64, 100]);
        assert_eq!(widths(Metric::L2), widths(Metric::Cosine));
        assert_eq!(widths(Metric::Dot), [512, 512, 3_000, 64, 100]);
    }

    #[test]
    fn a_walk_follows_what_lies_little_farther_and_more_for_a_larger_ef() {
        for metric in [Metric::Cosine, Metric::L2] {
            for k in [1, 10, 1_000] {
                let times = |ef: usize| beam(metric, k, ef).slack.unwrap().times;
                let at = |share: f32| times((share * 2.4 * k as f32).round() as usize);
                assert!((at(10.0) - 1.102_2).abs() < 1e-3, "{metric}, k {k}: {}", at(10.0));
                assert!((at(100.0) - 1.184_4).abs() < 1e-3, "{metric}, k {k}: {}", at(100.0));
                assert!(times(k) >= 1.0 && times(usize::MAX).is_finite());
                let Beam { kept_max: most, kept_min: least, .. } = beam(metric, k, 12 * k);
                assert!(most == 36 * k && least >= k && least <= 12 * k);
            }
        }
        let plain = beam(Metric::Dot, 10, 64);
        assert!(plain.slack.is_none() && plain.kept_max == 64 && plain.kept_min == 64);
    }
}
