//! Building a graph with hnsw_rs, and taking its lists out.

use super::adjacency::{Adjacency, Level};
use super::distance::Between;
use super::layout::{LEVELS_MAX, freeze};
use super::mend::Mender;
use super::source::{Params, Rows, in_parallel};
use crate::vector::{Metric, norm};
use hnsw_rs::hnsw::{Hnsw, Point};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Hierarchy<'a> = Hnsw<'a, u32, Between<'a>>;

/// Builds the graph of all rows and returns it frozen, for [`Graph::open`](super::Graph::open).
///
/// `progress` is told now and then, from any of the threads, how many rows are done; when it
/// returns false the work is given up and the result is `None`. Vectors are not copied; the
/// builder needs about 2 KiB a row besides, until it returns.
#[must_use]
pub fn build(
    rows: &dyn Rows,
    metric: Metric,
    params: Params,
    progress: &(dyn Fn(usize) -> bool + Sync),
) -> Option<Vec<u8>> {
    let count = rows.len();
    if count == 0 {
        return Some(freeze(&Adjacency { levels: vec![Level::default()], entry: 0 }));
    }
    let params = Params {
        m: params.m.clamp(2, 128),
        ef_construction: params.ef_construction.max(params.m),
        threads: params.threads.max(1),
    };
    let norms: Vec<f32> = (0..count as u32).map(|row| norm(rows.vector(row))).collect();
    let mut graph = linked(rows, &norms, metric, params, progress)?;
    let mender = Mender { rows, norms: &norms, metric, params };
    mender.mend(&mut graph, &|| progress(count))?;
    Some(freeze(&graph))
}

/// Lets hnsw_rs find the links of all rows; `None` when told to stop.
fn linked(
    rows: &dyn Rows,
    norms: &[f32],
    metric: Metric,
    params: Params,
    progress: &(dyn Fn(usize) -> bool + Sync),
) -> Option<Adjacency> {
    let Params { m, ef_construction, threads } = params;
    let distance = Between::new(rows, norms, metric);
    let hierarchy = Hnsw::new(m, norms.len(), LEVELS_MAX, ef_construction, distance);
    insert_all(&hierarchy, norms.len(), threads, progress).then(|| take_out(&hierarchy, norms.len()))
}

/// Inserts rows 0 to `count`, and tells whether it came to the end.
fn insert_all(
    hierarchy: &Hierarchy<'_>,
    count: usize,
    threads: usize,
    progress: &(dyn Fn(usize) -> bool + Sync),
) -> bool {
    // The first row alone: two threads that both find an empty graph would each begin one.
    hierarchy.insert((&[0], 0));
    let done = AtomicUsize::new(1);
    in_parallel(1..count, threads, &|rows| {
        for row in rows.clone() {
            hierarchy.insert((&[row as u32], row));
        }
        progress(done.fetch_add(rows.len(), Ordering::Relaxed) + rows.len())
    })
}

/// Takes the lists of all levels out of the builder's structure.
fn take_out(hierarchy: &Hierarchy<'_>, count: usize) -> Adjacency {
    let top = usize::from(hierarchy.get_max_level_observed());
    let mut levels: Vec<Level> = (0..=top).map(|level| members(hierarchy, level)).collect();
    levels[0].lists = vec![Vec::new(); count];
    for layer in 0..=top {
        // The builder keeps each point in the highest layer that it belongs to.
        for point in hierarchy.get_point_indexation().get_layer_iterator(layer) {
            take_lists(&point, &mut levels[..=layer]);
        }
    }
    Adjacency { levels, entry: 0 }
}

/// Returns a level with its members and without links.
fn members(hierarchy: &Hierarchy<'_>, level: usize) -> Level {
    let top = usize::from(hierarchy.get_max_level_observed());
    let points = (level..=top).flat_map(|layer| hierarchy.get_point_indexation().get_layer_iterator(layer));
    let mut members: Vec<u32> = points.map(|point| point.get_origin_id() as u32).collect();
    members.sort_unstable();
    Level { lists: vec![Vec::new(); members.len()], members }
}

/// Copies the lists of one point into the levels that it belongs to.
fn take_lists(point: &Arc<Point<'_, u32>>, levels: &mut [Level]) {
    let row = point.get_origin_id() as u32;
    for (level, found) in levels.iter_mut().zip(point.get_neighborhood_id()) {
        let Ok(place) = level.members.binary_search(&row) else {
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
