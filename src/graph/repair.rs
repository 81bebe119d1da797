//! Links that building left out, so that every row can be found.
//!
//! Building drops links that others make superfluous, and so it strands a few nodes: hardly
//! anybody links to them any more, or a crowd of equal rows links only among itself. They are
//! looked for in three ways, each of which finds what the one before cannot: by asking for every
//! node, by following all links from the entry, and by following them backwards.

use super::build::GraphBuilder;
use super::walk::Adjacency;
use crate::vector::Estimates;

/// How many near nodes a repairing walk keeps: fewer than a query does, so that it finds less.
const REPAIR_EF: usize = 32;

impl GraphBuilder<'_> {
    /// Looks for a node as a query would, and links to it from a near one when it is not found.
    pub(super) fn link_if_not_found(&mut self, node: u32) {
        let near = self.search_neighbours(node, REPAIR_EF);
        let mut own = Estimates::default();
        self.growing.space.query(node).estimate_many(self.growing.coarse_rows(), &[node], &mut own);
        let is_found = near.iter().any(|&(score, other)| other == node || score >= own.scores[0]);
        // Only where there is room: what can be reached by no walk at all is found once more by `repair_connectivity`.
        if !is_found && let Some(&(_, from)) = near.iter().find(|&&(_, near)| self.growing.has_room(near)) {
            self.growing.push_link(from, node);
        }
    }

    /// Adds links until every node can be reached from every other.
    pub(super) fn repair_connectivity(&mut self) {
        // Forwards before backwards: the last slot of each list is kept for the second, and the first may still use the
        // others.
        if self.growing.nodes() > 0 {
            self.link_to_stranded();
            self.link_from_stranded();
        }
    }

    /// Gives every node that cannot be reached from the first a link from a near one that can.
    fn link_to_stranded(&mut self) {
        let mut reached = vec![false; self.growing.nodes()];
        mark_reachable(|node, open| open.extend(self.growing.neighbours(node)), 0, &mut reached);
        for node in 0..self.growing.nodes() as u32 {
            if !reached[node as usize] {
                let near: Vec<u32> =
                    self.search_neighbours(node, REPAIR_EF).into_iter().map(|(_, near)| near).collect();
                let mut able = near.into_iter().filter(|&near| reached[near as usize]);
                // Where nothing near is reached, the node before is: by now all lower ones are.
                let nearest = able.next().unwrap_or(node - 1);
                // A full list gives up a link rather than its last slot, which `link_from_stranded` counts on.
                if self.growing.has_room(nearest) {
                    self.growing.push_link(nearest, node);
                } else {
                    self.growing.splice_into_last_link(nearest, node);
                }
                mark_reachable(|node, open| open.extend(self.growing.neighbours(node)), node, &mut reached);
            }
        }
    }

    /// Gives every node that cannot reach the first a link to a near one that can.
    fn link_from_stranded(&mut self) {
        let mut reversed = vec![Vec::new(); self.growing.nodes()];
        for node in 0..self.growing.nodes() as u32 {
            self.growing.neighbours(node).for_each(|near| reversed[near as usize].push(node));
        }
        let mut returning = vec![false; self.growing.nodes()];
        mark_reachable(|node, open| open.extend(&reversed[node as usize]), 0, &mut returning);
        for node in 0..self.growing.nodes() as u32 {
            if !returning[node as usize] {
                let near = self.search_neighbours(node, REPAIR_EF);
                let to = near.into_iter().map(|(_, near)| near).find(|&near| returning[near as usize]);
                // Node 0 is where returning begins, so it serves where nothing near returns.
                self.growing.push_link(node, to.unwrap_or(0));
                mark_reachable(|node, open| open.extend(&reversed[node as usize]), node, &mut returning);
            }
        }
    }
}

/// Marks everything that can be reached from a node; `next` adds what one leads to.
fn mark_reachable(next: impl Fn(u32, &mut Vec<u32>), from: u32, reached: &mut [bool]) {
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut reached[node as usize], true) {
            next(node, &mut open);
        }
    }
}
