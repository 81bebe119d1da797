//! Building a graph: row after row is looked for in what there is, and linked with what is found.

use super::growing::GrowingGraph;
use super::hierarchy::{self, Hierarchy};
use super::layout::{self, GraphParts};
use super::order;
use super::sample::{self, SAMPLE_ONE_IN};
use super::source::{Params, VectorRows};
use super::space::VectorSpace;
use super::walk::{Adjacency, AllVisible, Beam, WalkScratch, walk};
use crate::vector::Metric;

/// A graph that is being built, a few rows at a time; [`GraphBuilder::save`] makes bytes of it that outlast the
/// process.
pub struct GraphBuilder<'a> {
    /// Within their limits, see `Params::clamped`.
    pub(super) params: Params,
    /// The lists of links as they grow: until they are pruned they may be longer than finished ones.
    pub(super) growing: GrowingGraph<'a>,
    /// The hierarchy's bytes; `hierarchy` says where in them each level lies.
    pub(super) section: Vec<u8>,
    /// The levels, found over a sample before the first step. Walks for a row begin in them.
    pub(super) hierarchy: Hierarchy,
    /// How many steps are done, of all passes: see [`GraphBuilder::step_count`].
    pub(super) steps_done: usize,
    /// The memory of walks, used again for each row.
    pub(super) scratch: WalkScratch,
}

/// Builds the graph of all rows and returns it frozen, for [`Graph::open`](super::Graph::open).
///
/// `progress` is told now and then how many steps are done and how many there are in all; when it
/// returns false the work is given up and the result is `None`.
#[must_use]
pub fn build(
    rows: VectorRows<'_>,
    metric: Metric,
    params: Params,
    progress: &mut dyn FnMut(usize, usize) -> bool,
) -> Option<Vec<u8>> {
    let mut builder = GraphBuilder::new(rows, metric, params);
    while !builder.step(STEP) {
        if !progress(builder.steps_done(), builder.step_count()) {
            return None;
        }
    }
    Some(builder.finish())
}

/// How many steps are done between two calls of `progress`.
const STEP: usize = 64;

impl<'a> GraphBuilder<'a> {
    /// Begins, and has hnsw_rs find the hierarchy over a sample of the rows.
    #[must_use]
    pub fn new(rows: VectorRows<'a>, metric: Metric, params: Params) -> Self {
        let params = params.clamped();
        let space = VectorSpace::new(rows, metric);
        let levels = sample::sample_levels(&space);
        let section = hierarchy::freeze(&levels);
        // The hierarchy comes before the links, as every walk for a row begins in it.
        let hierarchy = Hierarchy::open(&section).expect("what has just been frozen opens");
        let mut growing = GrowingGraph::new(space, params.links);
        growing.link_from_levels(&levels);
        Self { params, growing, section, hierarchy, steps_done: 0, scratch: WalkScratch::default() }
    }

    /// Returns how many steps are done, those before an interruption included.
    #[must_use]
    pub fn steps_done(&self) -> usize {
        self.steps_done
    }

    /// Returns how many steps there are: for each row with a vector one a pass and two that take
    /// little time.
    #[must_use]
    pub fn step_count(&self) -> usize {
        (self.params.passes + 2) * self.growing.nodes()
    }

    /// Does up to `steps` more steps and tells whether all are done.
    pub fn step(&mut self, steps: usize) -> bool {
        let nodes = self.growing.nodes();
        let end = self.step_count().min(self.steps_done.saturating_add(steps));
        while self.steps_done < end {
            let node = permuted_node(self.steps_done % nodes, nodes);
            match self.steps_done / nodes {
                pass if pass < self.params.passes => self.link(node, pass),
                // All lists are shortened before the first is checked, so that a check sees the links that the finished
                // graph has.
                pass if pass == self.params.passes => self.growing.prune_if_too_long(node),
                _ => self.link_if_not_found(node),
            }
            self.steps_done += 1;
        }
        self.steps_done == self.step_count()
    }

    /// Looks for a node and links it with what is found. Those of the sample are linked already
    /// when the first pass begins; later ones find better links in what is by then complete.
    fn link(&mut self, node: u32, pass: usize) {
        if pass > 0 || !(node as usize).is_multiple_of(SAMPLE_ONE_IN) {
            let near = self.search_neighbours(node, self.params.ef);
            self.growing.connect(node, near.into_iter().map(|(_, near)| near));
        }
    }

    /// Returns what a walk for a node finds, each with its score, best first.
    pub(super) fn search_neighbours(&mut self, node: u32, ef: usize) -> Vec<(f32, u32)> {
        let query = self.growing.space.query(node);
        let mut found = self.scratch.take_ranked();
        let (section, rows) = (&self.section, self.growing.coarse_rows());
        if let Some(start) = self.hierarchy.descend(section, &query, rows, &mut self.scratch.descent) {
            walk(&self.growing, &query, &AllVisible, (start, Beam::new(ef)), &mut found, &mut self.scratch);
        }
        let near = found.iter().map(|ranked| (ranked.score(), ranked.node())).collect();
        self.scratch.reuse_ranked(found);
        near
    }

    /// Does the steps that are left, repairs what can't be reached, numbers the nodes anew and returns the graph's bytes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        while !self.step(usize::MAX) {}
        // Before the renumbering, which looks for an order by following the links, those that repairs add included.
        self.repair_connectivity();
        let order = order::locality_order(&self.growing);
        let mut renumbered = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&node, place)| renumbered[node as usize] = place);
        // After the last walk: from here on the section names nodes by their new numbers, and the lists by their old
        // ones.
        self.hierarchy.renumber(&mut self.section, &renumbered);
        let space = &self.growing.space;
        let nodes: Vec<u32> = order.iter().map(|&node| space.nodes[node as usize]).collect();
        let parts = GraphParts {
            rows: space.rows.len(),
            dim: space.rows.dim,
            metric: space.metric,
            slots: self.params.links,
            nodes: &nodes,
            hierarchy: &self.section,
        };
        layout::freeze(&parts, |place, coarse, links| {
            let node = order[place as usize];
            coarse.copy(space.coarse_rows(), node);
            for (slot, near) in links.iter_mut().zip(self.growing.neighbours(node)) {
                *slot = renumbered[near as usize].to_le_bytes();
            }
        })
    }
}

/// Returns the number at a place when so many are visited in an order without a pattern.
///
/// Rows come sorted by id, and neighbours in that order are often neighbours in space; a graph
/// that grows everywhere at once has better links than one that grows from one end.
fn permuted_node(place: usize, all: usize) -> u32 {
    let all = all as u64;
    // Steps of the golden ratio scatter most evenly; without a common divisor they miss nobody.
    let mut stride = (all as f64 * 0.618_033_988_749_895) as u64 | 1;
    while greatest_common_divisor(stride, all) != 1 {
        stride += 2;
    }
    (place as u64 * stride % all) as u32
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
