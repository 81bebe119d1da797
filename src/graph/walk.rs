//! The walk: from the entry towards the rows that are worth most to a question.

use super::layout::Graph;
use crate::vector::prefetch;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a question makes of the rows.
pub trait View {
    /// Returns about what a row is worth; larger is better. Must not be NaN.
    fn estimate(&self, row: u32) -> f32;

    /// Tells whether a row may be an answer. Others are walked through all the same.
    fn is_visible(&self, row: u32) -> bool;

    /// Is told that a row's estimate will be asked for soon; does nothing by default.
    fn prefetch(&self, _row: u32) {}
}

/// The memory of a walk, to be used again for the next, so that a question allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// One bit a row.
    visited: Vec<u64>,
    /// Rows whose links are still to be followed, the best on top.
    open: BinaryHeap<Ranked>,
    /// The best visible rows so far, the worst on top.
    best: BinaryHeap<Reverse<Ranked>>,
    /// Rows met for the first time in the list at hand.
    fresh: Vec<u32>,
}

impl Scratch {
    /// Forgets the last walk.
    fn reset(&mut self, rows: usize) {
        self.visited.clear();
        self.visited.resize(rows.div_ceil(64), 0);
        self.open.clear();
        self.best.clear();
    }

    /// Marks a row and tells whether it is new; a number that is no row never is.
    #[inline]
    fn is_first_visit(&mut self, row: u32, rows: u32) -> bool {
        if row >= rows {
            return false;
        }
        let (word, bit) = (&mut self.visited[row as usize / 64], 1 << (row % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

/// A row with its worth, as one number: compared by worth, then the lower row wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ranked(u64);

impl Ranked {
    /// Joins the two. An f32's bits order like numbers once those of negative ones are turned.
    #[inline]
    fn new(worth: f32, row: u32) -> Self {
        let bits = worth.to_bits();
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        Self(u64::from(ordered) << 32 | u64::from(!row))
    }

    /// Returns the row.
    #[inline]
    fn row(self) -> u32 {
        !(self.0 as u32)
    }

    /// Returns the worth.
    #[inline]
    fn worth(self) -> f32 {
        let ordered = (self.0 >> 32) as u32;
        f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
    }
}

impl<B: AsRef<[u8]>> Graph<B> {
    /// Puts the best visible rows into `found`, best first, about `ef` of the best there are.
    ///
    /// Keeps going until `ef` visible rows are held that no open row can beat, or all rows have
    /// been visited: fewer than `ef` come back only where fewer are visible. The larger `ef`, the
    /// more of the true nearest are among them, at a cost that grows in proportion; so it does with
    /// the share of hidden rows. What was in `found` is dropped.
    pub fn walk(&self, view: &impl View, ef: usize, found: &mut Vec<(f32, u32)>, scratch: &mut Scratch) {
        found.clear();
        scratch.reset(self.rows() as usize);
        if ef == 0 {
            return;
        }
        if let Some(start) = self.descend(view) {
            scratch.is_first_visit(start, self.rows());
            scratch.meet(view, start, ef);
        }
        while let Some(next) = scratch.open.pop() {
            if scratch.best.len() >= ef && scratch.best.peek().is_some_and(|worst| next < worst.0) {
                break;
            }
            self.follow(view, next.row(), ef, scratch);
        }
        found.extend(scratch.best.drain().map(|Reverse(ranked)| (ranked.worth(), ranked.row())));
        found.sort_unstable_by_key(|&(worth, row)| Reverse(Ranked::new(worth, row)));
    }

    /// Meets the rows that one row links to and that were not visited before.
    #[inline]
    fn follow(&self, view: &impl View, row: u32, ef: usize, scratch: &mut Scratch) {
        let list = self.list(0, row);
        let mut fresh = std::mem::take(&mut scratch.fresh);
        fresh.resize(list.len().max(fresh.len()), 0);
        let mut count = 0;
        for &near in list {
            // Written in any case and kept by counting: about half have been visited, in no
            // pattern, and a processor guesses wrong at a branch like that.
            fresh[count] = u32::from_le_bytes(near);
            count += usize::from(scratch.is_first_visit(fresh[count], self.rows()));
        }
        // Often the next to be followed is known already.
        if let Some(next) = scratch.open.peek() {
            prefetch(self.list(0, next.row()));
        }
        // All are asked for before the first is needed, so that memory answers them together.
        fresh[..count].iter().for_each(|&near| view.prefetch(near));
        for &near in &fresh[..count] {
            scratch.meet(view, near, ef);
        }
        scratch.fresh = fresh;
    }

    /// Goes down the upper levels, in each to the best row near, and returns a row of level 0.
    fn descend(&self, view: &impl View) -> Option<u32> {
        let top = self.levels() - 1;
        let mut row = self.row(top, self.entry())?;
        let mut best = Ranked::new(view.estimate(row), row);
        for level in (1..=top).rev() {
            // Only damaged bytes lack a row of a higher level in a lower one.
            let Some(mut place) = self.place(level, row) else {
                continue;
            };
            loop {
                let near = self.list(level, place).iter().map(|&near| u32::from_le_bytes(near));
                let ranked = near.filter_map(|near| {
                    let row = self.row(level, near)?;
                    Some((Ranked::new(view.estimate(row), row), near))
                });
                match ranked.max() {
                    Some((ranked, near)) if ranked > best => (best, place) = (ranked, near),
                    _ => break,
                }
            }
            row = best.row();
        }
        Some(row)
    }
}

impl Scratch {
    /// Takes in a row that is met for the first time.
    #[inline]
    fn meet(&mut self, view: &impl View, row: u32, ef: usize) {
        let ranked = Ranked::new(view.estimate(row), row);
        let is_full = self.best.len() >= ef;
        if is_full && self.best.peek().is_some_and(|worst| ranked < worst.0) {
            return;
        }
        self.open.push(ranked);
        if view.is_visible(row) {
            if !is_full {
                self.best.push(Reverse(ranked));
            } else if let Some(mut worst) = self.best.peek_mut() {
                *worst = Reverse(ranked);
            }
        }
    }
}
