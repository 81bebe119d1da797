//! The walk: from the hierarchy towards the nodes that score best for a query.

use super::hierarchy::DescentScratch;
use crate::vector::{CoarseQuery, CoarseRows, Estimates, prefetch};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The lists that a walk follows: those of a finished graph, or of one that is being built.
pub(super) trait Adjacency {
    fn nodes(&self) -> usize;

    fn coarse_rows(&self) -> CoarseRows<'_>;

    /// Returns the numbers that a node links to; what is not a node is passed over.
    fn list(&self, node: u32) -> &[[u8; 4]];
}

/// Which nodes may be found. The walk passes through the others all the same: without them the graph would fall apart.
pub(super) trait Visibility {
    /// Asks memory for what [`Visibility::is_visible`] reads.
    fn prefetch(&self, node: u32);

    /// Returns whether a node may be found. Asked some time after `prefetch`, when memory has answered.
    fn is_visible(&self, node: u32) -> bool;

    /// Whether every node may be found, so that none has to be asked for.
    const ALL: bool = false;
}

/// Hides no node: for queries without a filter, and for building.
pub(super) struct AllVisible;

impl Visibility for AllVisible {
    fn prefetch(&self, _: u32) {}

    fn is_visible(&self, _: u32) -> bool {
        true
    }

    const ALL: bool = true;
}

/// The memory of a walk, to be used again for the next, so that a query allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct WalkScratch {
    /// One bit a node.
    visited: Vec<u64>,
    /// Nodes whose links are still to be followed, the best on top.
    frontier: BinaryHeap<RankedNode>,
    /// The best visible nodes so far, the worst on top.
    best: BinaryHeap<Reverse<RankedNode>>,
    /// The best of these, as many as the floor follows, the worst on top.
    top: BinaryHeap<Reverse<RankedNode>>,
    /// What scores lower is kept among the least only: that of the beam, or higher by now.
    min_score: f32,
    /// Nodes good enough for `best`, of which is not known yet whether they are visible.
    unfiltered: Vec<RankedNode>,
    /// Nodes met for the first time, in the list at hand.
    unvisited: Vec<u32>,
    /// Those of the list before, on their way from memory.
    prefetched: Vec<u32>,
    /// Their estimated scores.
    estimates: Estimates,
    /// What a walk has found, between two walks.
    ranked: Vec<RankedNode>,
    /// For the way down to where it begins.
    pub(super) descent: DescentScratch,
}

/// A node with its score, as one number: compared by score, then the lower node wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedNode(u64);

impl RankedNode {
    /// Joins the two. An f32's bits order like numbers once those of negative ones are turned.
    #[inline]
    pub fn new(score: f32, node: u32) -> Self {
        let bits = score.to_bits();
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        Self(u64::from(ordered) << 32 | u64::from(!node))
    }

    /// Returns the node. It is kept inverted, so that the lower of two equal scores is the greater.
    #[inline]
    pub fn node(self) -> u32 {
        !(self.0 as u32)
    }

    /// Returns the score, with the bits that it was made of.
    #[inline]
    pub fn score(self) -> f32 {
        let ordered = (self.0 >> 32) as u32;
        f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
    }
}

/// How far a walk goes.
#[derive(Clone, Copy, Debug)]
pub struct Beam {
    /// So many are kept at most, and followed while they may lead to better ones.
    pub kept_max: usize,
    /// So many are kept whatever they score, which leads a walk to where the best are.
    pub kept_min: usize,
    /// What scores lower is kept and followed among the best [`Beam::kept_min`] only.
    pub floor: f32,
    /// How the floor rises while the walk finds better ones; `None` where it stays.
    pub slack: Option<Slack>,
}

/// A floor that lies a little farther from the query than the best so far.
#[derive(Clone, Copy, Debug)]
pub struct Slack {
    /// The floor follows the worst of the best `k` visible nodes so far.
    pub k: usize,
    /// It lies `times` times as far from the query; see [`CoarseQuery::score_at_distance_times`].
    pub times: f32,
}

impl Beam {
    /// Keeps `kept` nodes, whatever they score.
    #[must_use]
    pub fn new(kept: usize) -> Self {
        Self { kept_max: kept, kept_min: kept, floor: f32::NEG_INFINITY, slack: None }
    }
}

/// Puts the best visible nodes near `start` into `found`, best first. Returns the score below which no
/// more than [`Beam::kept_min`] were kept.
pub(super) fn walk(
    lists: &impl Adjacency,
    query: &CoarseQuery,
    visible: &impl Visibility,
    (start, beam): (u32, Beam),
    found: &mut Vec<RankedNode>,
    scratch: &mut WalkScratch,
) -> f32 {
    found.clear();
    scratch.reset(lists.nodes(), beam);
    // The start comes out of the bytes of the hierarchy, which may be damaged.
    if beam.kept_max == 0 || start as usize >= lists.nodes() {
        return beam.floor;
    }
    scratch.is_first_visit(start, lists.nodes());
    scratch.prefetched.push(start);
    // While memory brings the nodes of one list, those of the list before are judged, and those of
    // the list before that are seen or not.
    loop {
        let next = scratch.next(beam);
        if let Some(next) = next {
            scratch.prefetch_links(lists, next);
        } else if scratch.prefetched.is_empty() {
            break;
        }
        scratch.keep_visible(query, visible, beam);
        scratch.score_prefetched(lists, query, visible, beam);
        std::mem::swap(&mut scratch.unvisited, &mut scratch.prefetched);
    }
    // Once more, for the nodes of the last list that was judged.
    scratch.keep_visible(query, visible, beam);
    let worst = scratch.best.peek().filter(|_| scratch.is_full(beam)).map(|worst| worst.0.score());
    found.extend(scratch.best.drain().map(|Reverse(ranked)| ranked));
    found.sort_unstable_by_key(|&ranked| Reverse(ranked));
    worst.map_or(scratch.min_score, |worst| worst.max(scratch.min_score))
}

impl WalkScratch {
    /// Lends the memory for what a walk finds.
    pub(super) fn take_ranked(&mut self) -> Vec<RankedNode> {
        std::mem::take(&mut self.ranked)
    }

    /// Takes back what [`WalkScratch::take_ranked`] lent, so that the next walk allocates nothing.
    pub(super) fn reuse_ranked(&mut self, ranked: Vec<RankedNode>) {
        self.ranked = ranked;
    }

    fn reset(&mut self, nodes: usize, beam: Beam) {
        self.visited.clear();
        self.visited.resize(nodes.div_ceil(64), 0);
        self.frontier.clear();
        self.best.clear();
        self.top.clear();
        self.min_score = beam.floor;
        self.unfiltered.clear();
        self.unvisited.clear();
        self.prefetched.clear();
    }

    /// Marks a node and tells whether it is new; a number that is not a node never is.
    #[inline]
    fn is_first_visit(&mut self, node: u32, nodes: usize) -> bool {
        if node as usize >= nodes {
            return false;
        }
        let (word, bit) = (&mut self.visited[node as usize / 64], 1 << (node % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }

    /// Takes the best node whose links are still to be followed, unless it is too far off.
    #[inline]
    fn next(&mut self, beam: Beam) -> Option<u32> {
        let next = *self.frontier.peek()?;
        // Neither it nor any other is followed any more, unless a node that is still on its way proves better.
        if !self.admits(next, beam) {
            return None;
        }
        self.frontier.pop().map(RankedNode::node)
    }

    /// Asks memory for those nodes that one node links to and that were not visited before.
    #[inline]
    fn prefetch_links(&mut self, lists: &impl Adjacency, node: u32) {
        let list = lists.list(node);
        let mut fresh = std::mem::take(&mut self.unvisited);
        fresh.resize(list.len(), 0);
        let mut count = 0;
        for &near in list {
            // Written in any case and kept by counting: about half have been visited, in no
            // pattern, and a processor guesses wrong at a branch like that.
            fresh[count] = u32::from_le_bytes(near);
            count += usize::from(self.is_first_visit(fresh[count], lists.nodes()));
        }
        fresh.truncate(count);
        // Often the next to be followed is known already.
        if let Some(next) = self.frontier.peek() {
            prefetch(lists.list(next.node()));
        }
        let coarse = lists.coarse_rows();
        fresh.iter().for_each(|&near| coarse.prefetch(near));
        self.unvisited = fresh;
    }

    /// Meets the nodes that were asked for before.
    #[inline]
    fn score_prefetched(&mut self, lists: &impl Adjacency, query: &CoarseQuery, visible: &impl Visibility, beam: Beam) {
        let (mut fetched, mut estimates) = (std::mem::take(&mut self.prefetched), std::mem::take(&mut self.estimates));
        query.estimate_many(lists.coarse_rows(), &fetched, &mut estimates);
        for (&near, &score) in fetched.iter().zip(&estimates.scores) {
            self.consider(RankedNode::new(score, near), query, visible, beam);
        }
        fetched.clear();
        (self.prefetched, self.estimates) = (fetched, estimates);
    }

    /// Takes in a node that is met for the first time.
    #[inline]
    fn consider<S: Visibility>(&mut self, ranked: RankedNode, query: &CoarseQuery, visible: &S, beam: Beam) {
        if !self.admits(ranked, beam) {
            return;
        }
        self.frontier.push(ranked);
        if S::ALL {
            self.push_visible(ranked, query, beam);
        } else {
            visible.prefetch(ranked.node());
            self.unfiltered.push(ranked);
        }
    }

    /// Keeps those of the nodes met before that are visible.
    #[inline]
    fn keep_visible(&mut self, query: &CoarseQuery, visible: &impl Visibility, beam: Beam) {
        let mut unseen = std::mem::take(&mut self.unfiltered);
        for &ranked in &unseen {
            // Asked again, as the floor may have risen since; and before the look at visibility, which waits for
            // memory.
            if self.admits(ranked, beam) && visible.is_visible(ranked.node()) {
                self.push_visible(ranked, query, beam);
            }
        }
        unseen.clear();
        self.unfiltered = unseen;
    }

    /// Returns whether a node is to be followed, and to be kept where it is visible.
    #[inline]
    fn admits(&self, ranked: RankedNode, beam: Beam) -> bool {
        match self.best.peek() {
            Some(worst) if self.is_full(beam) => ranked >= worst.0,
            _ => self.best.len() < beam.kept_min || ranked.score() >= self.min_score,
        }
    }

    /// Keeps a visible node, instead of the worst where it is full.
    #[inline]
    fn push_visible(&mut self, ranked: RankedNode, query: &CoarseQuery, beam: Beam) {
        if !self.is_full(beam) {
            self.best.push(Reverse(ranked));
        } else if let Some(mut worst) = self.best.peek_mut() {
            *worst = Reverse(ranked);
        }
        if let Some(slack) = beam.slack {
            self.raise_floor(ranked, query, (slack, beam.kept_min));
        }
    }

    /// Has the floor follow the best, of which there may be one more, and lets go what comes to lie below.
    #[inline]
    fn raise_floor(&mut self, ranked: RankedNode, query: &CoarseQuery, (slack, least): (Slack, usize)) {
        if self.top.len() < slack.k {
            self.top.push(Reverse(ranked));
        } else if let Some(mut worst) = self.top.peek_mut().filter(|worst| worst.0 < ranked) {
            *worst = Reverse(ranked);
        } else {
            return;
        }
        if let Some(worst) = self.top.peek().filter(|_| self.top.len() == slack.k) {
            // Never lower than before: nodes that were let go would be missing below the floor that the caller is told.
            self.min_score = self.min_score.max(query.score_at_distance_times(worst.0.score(), slack.times));
            while self.best.len() > least && self.best.peek().is_some_and(|worst| worst.0.score() < self.min_score) {
                self.best.pop();
            }
        }
    }

    /// Returns whether one goes where one comes: there are `most`, or `least` of which one is below the floor.
    #[inline]
    fn is_full(&self, beam: Beam) -> bool {
        self.best.len() >= beam.kept_max
            || self.best.len() >= beam.kept_min
                && self.best.peek().is_some_and(|worst| worst.0.score() < self.min_score)
    }
}
