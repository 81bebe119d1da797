//! The hierarchy over a sample of the nodes, found by hnsw_rs.

use super::hierarchy::{LEVELS_MAX, Level};
use super::space::{Distances, VectorSpace};
use hnsw_rs::anndists::dist::distances::Distance;
use hnsw_rs::hnsw::{Hnsw, Point};
use std::cell::RefCell;
use std::sync::Arc;

/// One node in this many is in the sample.
pub(super) const SAMPLE_ONE_IN: usize = 32;
/// Links of a sampled node in the upper levels of the hierarchy; twice that in the lowest.
const SAMPLE_LINKS: usize = 12;
/// Beam width of the searches for a sampled node's links.
const BUILD_EF: usize = 80;

/// The distance between nodes that are named by their numbers.
///
/// hnsw_rs copies what it inserts. Given a node's number in place of its vector it copies four
/// bytes, and the codes are read where they lie.
struct NodeDistance<'a>(&'a VectorSpace<'a>);

impl Distance<u32> for NodeDistance<'_> {
    fn eval(&self, a: &[u32], b: &[u32]) -> f32 {
        thread_local!(static MEMORY: RefCell<Distances> = RefCell::default());
        MEMORY.with_borrow_mut(|memory| {
            self.0.measure_distances(a[0], &b[..1], memory);
            memory.values[0]
        })
    }
}

type HnswGraph<'a> = Hnsw<'a, u32, NodeDistance<'a>>;

/// Returns the levels over the sampled nodes, the lowest first.
pub(super) fn sample_levels(space: &VectorSpace<'_>) -> Vec<Level> {
    let sampled = space.len().div_ceil(SAMPLE_ONE_IN);
    if sampled == 0 {
        return Vec::new();
    }
    let found: HnswGraph<'_> = Hnsw::new(SAMPLE_LINKS, sampled, LEVELS_MAX, BUILD_EF, NodeDistance(space));
    for i in 0..sampled {
        let node = i * SAMPLE_ONE_IN;
        found.insert((&[node as u32], node));
    }
    extract_levels(&found)
}

/// Takes the lists of all levels out of the builder's structure.
fn extract_levels(found: &HnswGraph<'_>) -> Vec<Level> {
    let top = usize::from(found.get_max_level_observed());
    let mut levels: Vec<Level> = (0..=top).map(|level| members(found, level)).collect();
    for layer in 0..=top {
        // The builder keeps each point in the highest layer that it belongs to, with the lists of all layers below.
        for point in found.get_point_indexation().get_layer_iterator(layer) {
            copy_lists(&point, &mut levels[..=layer]);
        }
    }
    levels
}

fn members(found: &HnswGraph<'_>, level: usize) -> Level {
    let top = usize::from(found.get_max_level_observed());
    let points = (level..=top).flat_map(|layer| found.get_point_indexation().get_layer_iterator(layer));
    let mut members: Vec<u32> = points.map(|point| point.get_origin_id() as u32).collect();
    members.sort_unstable();
    Level { lists: vec![Vec::new(); members.len()], members }
}

/// Copies the lists of one point into the levels that it belongs to.
fn copy_lists(point: &Arc<Point<'_, u32>>, levels: &mut [Level]) {
    let node = point.get_origin_id() as u32;
    for (level, found) in levels.iter_mut().zip(point.get_neighborhood_id()) {
        let Ok(place) = level.members.binary_search(&node) else {
            continue;
        };
        // The builder also notes neighbours that are not in the level themselves; they have no
        // list there and would end the walk.
        let links = found.iter().filter_map(|near| level.members.binary_search(&(near.d_id as u32)).ok());
        let list = &mut level.lists[place];
        for near in links {
            if near != place && !list.contains(&(near as u32)) {
                list.push(near as u32);
            }
        }
    }
}
