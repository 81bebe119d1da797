//! Links that the builder left out, so that every row can be found.
//!
//! A graph of this kind drops links that others make superfluous, and so it strands a few rows:
//! hardly anybody links to them any more, or a crowd of equal rows links only among itself. They
//! are looked for in three ways, each of which finds what the one before cannot: by asking for
//! every row, by following all links from the entry, and by following them backwards.

use super::adjacency::{Adjacency, reach};
use super::layout::{Graph, freeze};
use super::source::{Params, Rows, in_parallel};
use super::walk::{Scratch, View};
use crate::vector::{Metric, Prepared};
use std::sync::Mutex;

/// How many near rows a mending walk keeps: fewer than a question does, so that it finds less.
const EF: usize = 32;

/// Why the list that threads share can always be locked.
const NEVER_POISONED: &str = "no thread panics while it holds the list";

/// What a graph was built from, and so can be mended with.
pub(super) struct Mender<'a> {
    pub rows: &'a dyn Rows,
    pub norms: &'a [f32],
    pub metric: Metric,
    pub params: Params,
}

impl Mender<'_> {
    /// Adds links to level 0 until every row finds itself, can be reached from the entry, and
    /// reaches it; `None` when `go_on` says to stop.
    pub fn mend(&self, graph: &mut Adjacency, go_on: &(dyn Fn() -> bool + Sync)) -> Option<()> {
        let Some(entry) = graph.entry_row() else {
            return Some(());
        };
        for (row, near) in self.lost(&frozen(graph), go_on)? {
            let from = near.into_iter().find(|&near| self.has_room(graph, near));
            if let Some(from) = from {
                graph.levels[0].lists[from as usize].push(row);
            }
        }
        self.link_to_stranded(graph, entry);
        self.link_from_stranded(graph, entry);
        Some(())
    }

    /// Tells whether a row may get one more link: the builder gives `2 * m`, mending goes to twice
    /// that, which keeps every list short.
    fn has_room(&self, graph: &Adjacency, row: u32) -> bool {
        graph.levels[0].lists[row as usize].len() < 4 * self.params.m
    }

    /// Returns the rows that a walk for their own vector does not find, each with what it did find.
    fn lost(&self, graph: &Graph<Vec<u8>>, go_on: &(dyn Fn() -> bool + Sync)) -> Option<Vec<(u32, Vec<u32>)>> {
        let lost = Mutex::new(Vec::new());
        let all = in_parallel(0..self.norms.len(), self.params.threads, &|rows| {
            let mut scratch = Scratch::default();
            let found: Vec<_> = rows.filter_map(|row| self.found_instead(graph, row as u32, &mut scratch)).collect();
            lost.lock().expect(NEVER_POISONED).extend(found);
            go_on()
        });
        let mut lost = lost.into_inner().expect(NEVER_POISONED);
        lost.sort_unstable();
        all.then_some(lost)
    }

    /// Returns a row with the rows that its own walk finds, unless it or an equal is among them.
    fn found_instead(&self, graph: &Graph<Vec<u8>>, row: u32, scratch: &mut Scratch) -> Option<(u32, Vec<u32>)> {
        let near = self.near(row, |_| true);
        let own = near.estimate(row);
        let mut found = Vec::new();
        graph.walk(&near, EF, &mut found, scratch);
        let is_lost = found.iter().all(|&(worth, other)| other != row && worth < own);
        (is_lost && !found.is_empty()).then(|| (row, found.into_iter().map(|(_, other)| other).collect()))
    }

    /// Gives every row that cannot be reached from the entry a link from a near row that can, or
    /// where none near has room, from the one mended before it.
    fn link_to_stranded(&self, graph: &mut Adjacency, entry: u32) {
        let mut reached = vec![false; self.norms.len()];
        reach(&graph.levels[0].lists, entry, &mut reached);
        if reached.iter().all(|&reached| reached) {
            return;
        }
        let walkable = frozen(graph);
        let mut last = entry;
        for row in 0..self.norms.len() as u32 {
            if !reached[row as usize] {
                let allowed = |near: u32| reached[near as usize] && self.has_room(graph, near);
                let from = self.nearest(&walkable, row, allowed).unwrap_or(last);
                graph.levels[0].lists[from as usize].push(row);
                last = row;
                reach(&graph.levels[0].lists, row, &mut reached);
            }
        }
    }

    /// Gives every row that cannot reach the entry a link to a near row that can.
    fn link_from_stranded(&self, graph: &mut Adjacency, entry: u32) {
        let mut returning = vec![false; self.norms.len()];
        let reversed = graph.levels[0].reversed();
        reach(&reversed, entry, &mut returning);
        if returning.iter().all(|&returning| returning) {
            return;
        }
        let walkable = frozen(graph);
        for row in 0..self.norms.len() as u32 {
            if !returning[row as usize] {
                let to = self.nearest(&walkable, row, |near| returning[near as usize]).unwrap_or(entry);
                graph.levels[0].lists[row as usize].push(to);
                reach(&reversed, row, &mut returning);
            }
        }
    }

    /// Returns the nearest of the allowed rows that a walk finds.
    fn nearest(&self, graph: &Graph<Vec<u8>>, row: u32, allowed: impl Fn(u32) -> bool) -> Option<u32> {
        let mut found = Vec::new();
        graph.walk(&self.near(row, allowed), EF, &mut found, &mut Scratch::default());
        found.first().map(|&(_, near)| near)
    }

    /// Returns the view of a row that looks for others like it.
    fn near<F: Fn(u32) -> bool>(&self, row: u32, allowed: F) -> Near<'_, F> {
        let question = Prepared::new(self.metric, self.rows.vector(row).to_vec());
        Near { mender: self, question, allowed }
    }
}

/// Freezes a graph to walk over it.
fn frozen(graph: &Adjacency) -> Graph<Vec<u8>> {
    Graph::open(freeze(graph)).expect("what has just been frozen opens")
}

/// The rows near to one, of those that are allowed.
struct Near<'a, F> {
    mender: &'a Mender<'a>,
    question: Prepared,
    allowed: F,
}

impl<F: Fn(u32) -> bool> View for Near<'_, F> {
    fn estimate(&self, row: u32) -> f32 {
        self.question.score(self.mender.rows.vector(row), self.mender.norms[row as usize])
    }

    fn is_visible(&self, row: u32) -> bool {
        (self.allowed)(row)
    }
}
