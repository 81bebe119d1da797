//! Numbering the nodes so that what is near in space lies near in the file. Each node gets exactly one number, whatever
//! the links are, or one could not be found any more.

use super::growing::GrowingGraph;
use super::walk::Adjacency;
use std::collections::VecDeque;

/// Nodes in one cluster: some pages full.
const CLUSTER_NODES: usize = 256;

/// Returns the nodes in the order in which they shall lie in the file.
///
/// A walk then meets fewer pages and cache lines. Around a node as many are gathered as its links,
/// theirs, and so on lead to; the next begins with the first that was seen and not taken.
pub(super) fn locality_order(growing: &GrowingGraph<'_>) -> Vec<u32> {
    let nodes = growing.nodes();
    let mut order = Vec::with_capacity(nodes);
    let mut is_placed = vec![false; nodes];
    let mut seeds = VecDeque::new();
    let mut open = VecDeque::new();
    // Every node is a seed at last, so that none is left out.
    for first in 0..nodes as u32 {
        seeds.push_back(first);
        while let Some(seed) = seeds.pop_front() {
            open.push_back(seed);
            let end = order.len() + CLUSTER_NODES;
            while let Some(node) = open.pop_front() {
                if std::mem::replace(&mut is_placed[node as usize], true) {
                    continue;
                }
                order.push(node);
                if order.len() >= end {
                    break;
                }
                open.extend(growing.neighbours(node).filter(|&near| !is_placed[near as usize]));
            }
            seeds.extend(open.drain(..));
        }
    }
    order
}
