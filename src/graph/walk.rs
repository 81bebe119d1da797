//! The walk: from the hierarchy towards the nodes that are worth most to a question.

use crate::vector::{CoarseQuestion, CoarseRows, Estimates, prefetch};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The lists that a walk follows: those of a finished graph, or of one that is being built.
pub(super) trait Lists {
    /// Returns the number of nodes.
    fn nodes(&self) -> usize;

    /// Returns the coarse copies of all nodes.
    fn coarse(&self) -> CoarseRows<'_>;

    /// Returns the numbers that a node links to; what is no node is passed over.
    fn list(&self, node: u32) -> &[[u8; 4]];
}

/// The memory of a walk, to be used again for the next, so that a question allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// One bit a node.
    visited: Vec<u64>,
    /// Nodes whose links are still to be followed, the best on top.
    open: BinaryHeap<Ranked>,
    /// The best visible nodes so far, the worst on top.
    best: BinaryHeap<Reverse<Ranked>>,
    /// Nodes met for the first time, in the list at hand.
    fresh: Vec<u32>,
    /// Those of the list before, on their way from memory.
    fetched: Vec<u32>,
    /// What they are worth.
    estimates: Estimates,
    /// What a walk has found, between two walks.
    ranked: Vec<Ranked>,
}

/// A node with its worth, as one number: compared by worth, then the lower node wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ranked(u64);

impl Ranked {
    /// Joins the two. An f32's bits order like numbers once those of negative ones are turned.
    #[inline]
    pub fn new(worth: f32, node: u32) -> Self {
        let bits = worth.to_bits();
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        Self(u64::from(ordered) << 32 | u64::from(!node))
    }

    /// Returns the node.
    #[inline]
    pub fn node(self) -> u32 {
        !(self.0 as u32)
    }

    /// Returns the worth.
    #[inline]
    pub fn worth(self) -> f32 {
        let ordered = (self.0 >> 32) as u32;
        f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
    }
}

/// Puts the best visible nodes near `start` into `found`, best first, about `ef` of the best.
pub(super) fn walk(
    lists: &impl Lists,
    question: &CoarseQuestion,
    visible: impl Fn(u32) -> bool,
    (start, ef): (u32, usize),
    found: &mut Vec<Ranked>,
    scratch: &mut Scratch,
) {
    found.clear();
    scratch.reset(lists.nodes());
    if ef == 0 || start as usize >= lists.nodes() {
        return;
    }
    scratch.is_first_visit(start, lists.nodes());
    scratch.meet(Ranked::new(question.estimate(lists.coarse(), start), start), &visible, ef);
    // While memory brings the nodes of one list, those of the list before are judged.
    loop {
        let next = scratch.next(ef);
        if let Some(next) = next {
            scratch.gather(lists, next);
        } else if scratch.fetched.is_empty() {
            break;
        }
        scratch.judge(lists, question, &visible, ef);
        std::mem::swap(&mut scratch.fresh, &mut scratch.fetched);
    }
    found.extend(scratch.best.drain().map(|Reverse(ranked)| ranked));
    found.sort_unstable_by_key(|&ranked| Reverse(ranked));
}

impl Scratch {
    /// Lends the memory for what a walk finds.
    pub(super) fn take_ranked(&mut self) -> Vec<Ranked> {
        std::mem::take(&mut self.ranked)
    }

    /// Takes the memory back.
    pub(super) fn give_ranked(&mut self, ranked: Vec<Ranked>) {
        self.ranked = ranked;
    }

    /// Forgets the last walk.
    fn reset(&mut self, nodes: usize) {
        self.visited.clear();
        self.visited.resize(nodes.div_ceil(64), 0);
        self.open.clear();
        self.best.clear();
        self.fresh.clear();
        self.fetched.clear();
    }

    /// Marks a node and tells whether it is new; a number that is no node never is.
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
    fn next(&mut self, ef: usize) -> Option<u32> {
        let next = *self.open.peek()?;
        if self.best.len() >= ef && self.best.peek().is_some_and(|worst| next < worst.0) {
            return None;
        }
        self.open.pop().map(Ranked::node)
    }

    /// Asks memory for those nodes that one node links to and that were not visited before.
    #[inline]
    fn gather(&mut self, lists: &impl Lists, node: u32) {
        let list = lists.list(node);
        let mut fresh = std::mem::take(&mut self.fresh);
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
        if let Some(next) = self.open.peek() {
            prefetch(lists.list(next.node()));
        }
        let coarse = lists.coarse();
        fresh.iter().for_each(|&near| coarse.fetch(near));
        self.fresh = fresh;
    }

    /// Meets the nodes that were asked for before.
    #[inline]
    fn judge(&mut self, lists: &impl Lists, question: &CoarseQuestion, visible: &impl Fn(u32) -> bool, ef: usize) {
        let (mut fetched, mut estimates) = (std::mem::take(&mut self.fetched), std::mem::take(&mut self.estimates));
        question.estimates(lists.coarse(), &fetched, &mut estimates);
        for (&near, &worth) in fetched.iter().zip(&estimates.worths) {
            self.meet(Ranked::new(worth, near), visible, ef);
        }
        fetched.clear();
        (self.fetched, self.estimates) = (fetched, estimates);
    }

    /// Takes in a node that is met for the first time.
    #[inline]
    fn meet(&mut self, ranked: Ranked, visible: &impl Fn(u32) -> bool, ef: usize) {
        let is_full = self.best.len() >= ef;
        if is_full && self.best.peek().is_some_and(|worst| ranked < worst.0) {
            return;
        }
        self.open.push(ranked);
        if visible(ranked.node()) {
            if !is_full {
                self.best.push(Reverse(ranked));
            } else if let Some(mut worst) = self.best.peek_mut() {
                *worst = Reverse(ranked);
            }
        }
    }
}
