//! The lists of a graph while it is being made.

use super::hierarchy::Level;
use super::layout::EMPTY;
use super::space::{Distances, VectorSpace};
use super::walk::Adjacency;
use crate::vector::CoarseRows;

/// A list may grow to this many times its final length before it is pruned: pruning seldom, it
/// costs little, and a walk meanwhile finds more.
const DEGREE_SLACK: f32 = 1.5;

/// A candidate is dropped where one that is nearer to the node is this many times nearer to it than the
/// node is. Above 1, rows in crowds keep links that lead out of them (Subramanya and others,
/// "DiskANN", 2019, whose α is about the distance; this is about its square).
const ALPHA: f32 = 1.05;

/// Every node's neighbours with their distances, in slots of equal number.
pub(super) struct GrowingGraph<'a> {
    /// The nodes and their distances, which links are chosen by.
    pub space: VectorSpace<'a>,
    slots: usize,
    /// How many links pruning leaves: one less than a finished list has room for, so that a repair can always add one.
    links_kept: usize,
    links: Vec<[u8; 4]>,
    distances: Vec<f32>,
    counts: Vec<u8>,
    scratch: GrowingScratch,
}

/// What pruning needs, to be used again.
#[derive(Default)]
struct GrowingScratch {
    distances: Distances,
    /// Candidates, the nearest first.
    candidates: Vec<(f32, u32)>,
    unexamined: Vec<u32>,
    /// What selecting has dropped, for `fill_up` to take from.
    dropped: Vec<(f32, u32)>,
}

impl Adjacency for GrowingGraph<'_> {
    #[inline]
    fn nodes(&self) -> usize {
        self.counts.len()
    }

    #[inline]
    fn coarse_rows(&self) -> CoarseRows<'_> {
        self.space.coarse_rows()
    }

    #[inline]
    fn list(&self, node: u32) -> &[[u8; 4]] {
        &self.links[node as usize * self.slots..][..usize::from(self.counts[node as usize])]
    }
}

impl<'a> GrowingGraph<'a> {
    /// Begins without links; a node will have `links_max` of them at last, the last but by a repair.
    pub fn new(space: VectorSpace<'a>, links_max: usize) -> Self {
        // One slot of the finished list stays free for repairs, which can then always add a link.
        let links_kept = links_max - 1;
        let slots = ((links_kept as f32 * DEGREE_SLACK) as usize).min(usize::from(u8::MAX));
        let nodes = space.len();
        Self {
            links: vec![EMPTY; nodes * slots],
            distances: vec![0.0; nodes * slots],
            counts: vec![0; nodes],
            space,
            slots,
            links_kept,
            scratch: GrowingScratch::default(),
        }
    }

    /// Takes the lists of the lowest level as the first links.
    pub fn link_from_levels(&mut self, levels: &[Level]) {
        let Some(lowest) = levels.first() else {
            return;
        };
        for (&node, list) in lowest.members.iter().zip(&lowest.lists) {
            self.scratch.unexamined.clear();
            self.scratch.unexamined.extend(list.iter().map(|&place| lowest.members[place as usize]));
            self.set_list_from_scratch(node, self.links_kept);
        }
    }

    /// Iterates over the links that a node has now, in the order of its list.
    pub fn neighbours(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        self.list(node).iter().map(|&near| u32::from_le_bytes(near))
    }

    /// Links a node with the best of the candidates and of its present neighbours, both ways.
    pub fn connect(&mut self, node: u32, candidates: impl Iterator<Item = u32>) {
        let mut memory = std::mem::take(&mut self.scratch);
        memory.unexamined.clear();
        memory.unexamined.extend(candidates.filter(|&near| near != node));
        let found = memory.unexamined.len();
        memory.unexamined.extend(self.neighbours(node));
        // Few are named twice, and looking through so short a list costs less than a set.
        for i in (found..memory.unexamined.len()).rev() {
            if memory.unexamined[..found].contains(&memory.unexamined[i]) {
                memory.unexamined.swap_remove(i);
            }
        }
        self.space.measure_distances(node, &memory.unexamined, &mut memory.distances);
        memory.candidates.clear();
        memory.candidates.extend(memory.distances.values.iter().copied().zip(memory.unexamined.iter().copied()));
        self.scratch = memory;
        self.select_diverse();
        self.fill_up();
        let chosen = std::mem::take(&mut self.scratch.candidates);
        self.set_list(node, &chosen);
        for &(distance, near) in &chosen {
            self.add(near, node, distance);
        }
        self.scratch.candidates = chosen;
    }

    /// Replaces a node's list. `chosen` has each link with its distance, and no more than a list has slots.
    pub fn set_list(&mut self, node: u32, chosen: &[(f32, u32)]) {
        let at = node as usize * self.slots;
        for (i, &(distance, near)) in chosen.iter().enumerate() {
            self.links[at + i] = near.to_le_bytes();
            self.distances[at + i] = distance;
        }
        self.counts[node as usize] = chosen.len() as u8;
    }

    /// Adds one link, and prunes the list when it is full.
    fn add(&mut self, node: u32, near: u32, distance: f32) {
        let (at, count) = (node as usize * self.slots, usize::from(self.counts[node as usize]));
        if self.list(node).contains(&near.to_le_bytes()) {
            return;
        }
        if count < self.slots {
            self.links[at + count] = near.to_le_bytes();
            self.distances[at + count] = distance;
            self.counts[node as usize] += 1;
            return;
        }
        let chosen = std::mem::take(&mut self.scratch.candidates);
        self.scratch.candidates.push((distance, near));
        self.prune(node);
        self.scratch.candidates = chosen;
    }

    /// Prunes a node's list together with the candidates in memory.
    fn prune(&mut self, node: u32) {
        let at = node as usize * self.slots;
        let count = usize::from(self.counts[node as usize]);
        let links = self.links[at..at + count].iter().map(|&near| u32::from_le_bytes(near));
        self.scratch.candidates.extend(self.distances[at..at + count].iter().copied().zip(links));
        self.select_diverse();
        let chosen = std::mem::take(&mut self.scratch.candidates);
        self.set_list(node, &chosen);
        self.scratch.candidates = chosen;
    }

    /// Prunes a list that is longer than a finished one may be.
    pub fn prune_if_too_long(&mut self, node: u32) {
        if usize::from(self.counts[node as usize]) > self.links_kept {
            self.scratch.candidates.clear();
            self.prune(node);
        }
    }

    /// Returns whether a finished list can take one more link and keep its last slot.
    pub fn has_room(&self, node: u32) -> bool {
        usize::from(self.counts[node as usize]) < self.links_kept
    }

    /// Adds a link to a finished list, at most one to a list without room.
    pub fn push_link(&mut self, node: u32, near: u32) {
        let count = &mut self.counts[node as usize];
        self.links[node as usize * self.slots + usize::from(*count)] = near.to_le_bytes();
        *count += 1;
    }

    /// Puts a node that nothing depends on into the last link of another: what could be reached
    /// over that link still can.
    pub fn splice_into_last_link(&mut self, from: u32, node: u32) {
        let last = from as usize * self.slots + usize::from(self.counts[from as usize]) - 1;
        // Links are replaced from here on without their distances, as nothing is pruned any more once repairs have
        // begun.
        let to = std::mem::replace(&mut self.links[last], node.to_le_bytes());
        if !self.list(node).contains(&to) {
            if self.has_room(node) {
                self.counts[node as usize] += 1;
            }
            let last = node as usize * self.slots + usize::from(self.counts[node as usize]) - 1;
            self.links[last] = to;
        }
    }

    /// Restores saved lists: for each node the number of its links, and the links. Returns whether they are valid.
    pub fn restore(&mut self, mut saved: &[[u8; 4]]) -> bool {
        for node in 0..self.counts.len() as u32 {
            let Some((count, rest)) = saved.split_first() else {
                return false;
            };
            let count = u32::from_le_bytes(*count) as usize;
            if count > self.slots || count > rest.len() {
                return false;
            }
            let (list, rest) = rest.split_at(count);
            self.scratch.unexamined.clear();
            self.scratch.unexamined.extend(list.iter().map(|&near| u32::from_le_bytes(near)));
            // The sum over the bytes shows damage, not forgery: a number beyond the nodes would be an index out of
            // range later.
            if self.scratch.unexamined.iter().any(|&near| near as usize >= self.counts.len()) {
                return false;
            }
            self.set_list_from_scratch(node, count);
            saved = rest;
        }
        saved.is_empty()
    }

    /// Replaces a node's list by the first of those in memory.
    fn set_list_from_scratch(&mut self, node: u32, links_max: usize) {
        self.space.measure_distances(node, &self.scratch.unexamined, &mut self.scratch.distances);
        let near = self.scratch.distances.values.iter().copied().zip(self.scratch.unexamined.iter().copied());
        let chosen: Vec<(f32, u32)> = near.take(links_max).collect();
        self.set_list(node, &chosen);
    }

    /// Leaves those candidates that lead in different directions: each is nearer to the node than to
    /// any that is nearer than itself, or as good as, see [`ALPHA`].
    fn select_diverse(&mut self) {
        let GrowingScratch { distances, candidates, unexamined, dropped } = &mut self.scratch;
        candidates.sort_unstable_by(by_distance);
        dropped.clear();
        let mut chosen = 0;
        while chosen < candidates.len() && chosen < self.links_kept {
            let (_, node) = candidates[chosen];
            chosen += 1;
            unexamined.clear();
            unexamined.extend(candidates[chosen..].iter().map(|&(_, near)| near));
            // Each round drops what the one just chosen serves better, so only those that are left are compared again.
            self.space.measure_distances(node, unexamined, distances);
            let mut kept = chosen;
            for (i, &apart) in distances.values.iter().enumerate() {
                let candidate = candidates[chosen + i];
                if apart * ALPHA >= candidate.0 {
                    candidates[kept] = candidate;
                    kept += 1;
                } else {
                    dropped.push(candidate);
                }
            }
            candidates.truncate(kept);
        }
        candidates.truncate(self.links_kept);
    }

    /// Takes the nearest of those that selecting dropped, until the list is full. For a node's own
    /// list that pays; lists that others have added to would only be pruned more often.
    fn fill_up(&mut self) {
        let GrowingScratch { candidates, dropped, .. } = &mut self.scratch;
        // Equally near ones go by their numbers, so that the same rows always give the same graph.
        dropped.sort_unstable_by(by_distance);
        candidates.extend(dropped.iter().take(self.links_kept - candidates.len()));
        candidates.sort_unstable_by(by_distance);
    }
}

/// Orders candidates: the nearest first, and of equally near ones the lower number.
fn by_distance(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}
