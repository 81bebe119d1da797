//! The indexer: the thread that builds the neighbour graphs of large segments in the background.
//!
//! A segment is searched by scan until its graph is there. The thread holds the segment and not the
//! store while it works, is never in the way of a writer or a reader, and stops within
//! milliseconds when told to. A finished graph is a file in the blob store; the seal that follows puts
//! its name into the manifest.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::relocations::{COMPACTED_ROWS_MAX, Compaction, sole_root_by_segment};
use super::unfinished_graph;
use crate::branch::{BranchVersion, Layer};
use crate::disk::Disk;
use crate::graph::{GraphBuilder, Params};
use crate::memory::catalog::Branch;
use crate::memory::{Error, Memory};
use crate::object::Hash;
use crate::search::is_walked_after_larger;
use crate::segment::{GraphFile, Segment, write_graph};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::vector::Metric;

/// Steps of a build after which the thread looks whether it is to stop.
const BATCH_STEPS: usize = 64;
/// Steps of a build after which it is saved: so much work is lost at most when the process dies.
const STEPS_BETWEEN_SAVES: usize = 100_000;
/// Beside a large segment a graph pays from one in this many of the rows on that make a segment large: what the walk of the
/// large one found tells early that little here is worth following.
const BESIDE_ONE_IN: u32 = 4;
/// So many quiet intervals are waited for at most, where seals never end.
const PAUSES_MAX: usize = 12;

#[derive(Default)]
struct IndexRequests {
    has_work: bool,
    stop: bool,
    /// A graph is being built or put in place.
    is_busy: bool,
    /// The segment at hand, and how many of its rows are done.
    current: Option<(Hash, u64)>,
    /// Grows with every step, so that a status can be compared with a later one.
    change_count: u64,
}

/// The thread that builds graphs, seen from outside.
#[derive(Clone, Default)]
pub(in crate::memory) struct Indexer(Arc<(Mutex<IndexRequests>, Condvar)>);

struct GraphTask {
    segment: Arc<Segment>,
    metric: Metric,
}

impl GraphTask {
    fn is_same(&self, other: &GraphTask) -> bool {
        self.segment.name() == other.segment.name() && self.metric == other.metric
    }
}

impl Indexer {
    fn lock(&self) -> MutexGuard<'_, IndexRequests> {
        self.0.0.lock()
    }

    fn request(&self, change: impl FnOnce(&mut IndexRequests)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    /// Asks the thread to look for segments that want a graph, as each seal does; does not wait.
    pub(in crate::memory) fn wake(&self) {
        self.request(|requests| requests.has_work = true);
    }

    /// Tells the thread to end: it does within [`BATCH_STEPS`] steps, and keeps what it has built of a graph.
    pub(in crate::memory) fn stop(&self) {
        self.request(|requests| requests.stop = true);
    }

    /// Waits for a request, and counts as idle meanwhile; false if the thread is to end.
    fn wait_for_request(&self) -> bool {
        let mut requests = self.lock();
        requests.is_busy = false;
        self.0.1.notify_all();
        let mut requests = self.0.1.wait_while(requests, |requests| !requests.has_work && !requests.stop);
        // Both change under one lock, so that `wait_until_idle` never sees a request that is neither waiting nor worked
        // on.
        (requests.has_work, requests.is_busy) = (false, !requests.stop);
        !requests.stop
    }

    /// Returns whether something was sealed since this was asked last.
    fn take_wake_request(&self) -> bool {
        std::mem::take(&mut self.lock().has_work)
    }

    /// Waits until nothing was sealed for `pause`, but no more than 12 times that; false if the thread is to end.
    fn wait_for_quiescence(&self, pause: Duration) -> bool {
        let mut requests = self.lock();
        for _ in 0..PAUSES_MAX {
            // Each new seal begins the wait anew; `PAUSES_MAX` bounds it, or a store that is always written to would
            // have no graph.
            requests.has_work = false;
            let (after, is_quiet) =
                self.0.1.wait_timeout_while(requests, pause, |requests| !requests.has_work && !requests.stop);
            requests = after;
            if is_quiet || requests.stop {
                break;
            }
        }
        !requests.stop
    }

    /// Waits until the thread is at rest: it has nothing to do, or was told to end and did.
    fn wait_until_idle(&self) {
        let resting = |requests: &mut IndexRequests| requests.is_busy || (requests.has_work && !requests.stop);
        drop(self.0.1.wait_while(self.lock(), resting));
    }

    /// Notes how many rows are done; false if the thread is to end.
    fn note_progress(&self, segment: Hash, rows: u64) -> bool {
        let mut requests = self.lock();
        requests.current = Some((segment, rows));
        requests.change_count += 1;
        !requests.stop
    }

    /// Returns a number that grows as the work goes on: a cached `status` with a smaller one is outdated.
    pub(in crate::memory) fn change_count(&self) -> u64 {
        self.lock().change_count
    }

    /// Notes that no graph is being built any longer.
    fn end_build(&self) {
        self.request(|requests| {
            requests.current = None;
            requests.change_count += 1;
        });
    }

    /// Returns the segment whose graph is being built, and how many rows are done; none while none is built.
    pub(in crate::memory) fn current(&self) -> Option<(Hash, u64)> {
        self.lock().current
    }
}

impl Memory {
    /// Starts the thread that builds graphs. It ends with the store.
    pub(in crate::memory) fn start_indexer(self: &Arc<Self>) {
        let (memory, disk, indexer) = (Arc::downgrade(self), self.disk.clone(), self.maintenance.indexer.clone());
        let life = move || {
            if let Err(error) = rustix::process::nice(19) {
                log::debug!("graphs are built at the usual priority: {error}");
            }
            while indexer.wait_for_request() {
                if catch_unwind(AssertUnwindSafe(|| build_all(&memory, &*disk, &indexer))).is_err() {
                    log::error!("a search graph ended in an internal error and is tried again later");
                    indexer.end_build();
                }
            }
        };
        self.maintenance.indexer.wake();
        if let Err(error) = std::thread::Builder::new().name("indexer".to_owned()).spawn(life) {
            log::warn!("no graphs are built, queries stay scans: {error}");
            self.maintenance.indexer.stop();
        }
    }

    /// Tells the indexer to end, and waits until it has: 64 steps of a build at most, and a save.
    pub(in crate::memory) fn stop_indexer(&self) {
        self.maintenance.indexer.stop();
        self.maintenance.indexer.wait_until_idle();
    }

    /// Blocks until running seals are finished and every segment that is large enough has its graph. There is no time
    /// limit. Returns at once in a store that was opened for reading, which builds none.
    pub fn wait_until_indexed(&self) {
        if !self.read_only {
            self.maintenance.thread.wait_until_idle();
            self.maintenance.indexer.wait_until_idle();
        }
    }

    /// Returns the segments of a state for whose graph queries under a metric wait: large ones of
    /// which it sees enough that they would be walked, and beside a large one also smaller ones.
    /// Branches share segments, so what a branch sees is seldom all.
    pub(in crate::memory) fn segments_without_graph<'a>(
        &self,
        state: &'a BranchVersion,
        metric: Metric,
    ) -> impl Iterator<Item = &'a Layer> {
        let rows = self.environment.graph_rows;
        let is_large = move |layer: &Layer| {
            layer.segment.dim() > 0 && layer.segment.rows() >= rows && layer.visible.count() >= rows / 2
        };
        let is_beside = state.layers().iter().any(is_large);
        let pays = move |layer: &Layer| {
            let (all, seen) = (layer.segment.rows(), layer.visible.count());
            layer.segment.dim() > 0 && all >= rows / BESIDE_ONE_IN && is_walked_after_larger(seen, all)
        };
        let wants = move |layer: &&Layer| is_large(layer) || is_beside && pays(layer);
        state.layers().iter().filter(wants).filter(move |layer| layer.segment.graph(metric).is_none())
    }

    /// Returns the segments that want a graph and have none, each once.
    fn graph_tasks(&self) -> Vec<GraphTask> {
        let catalog = self.catalog().clone();
        let mut tasks: Vec<GraphTask> = Vec::new();
        for branch in catalog.branches.values() {
            let Ok(settings) = catalog.shared_settings(branch) else { continue };
            let metric = settings.metric();
            for_each_queryable_state(branch, |state| {
                for layer in self.segments_without_graph(state, metric) {
                    let task = GraphTask { segment: layer.segment.clone(), metric };
                    if !tasks.iter().any(|other| other.is_same(&task)) {
                        tasks.push(task);
                    }
                }
            });
        }
        tasks
    }

    /// Returns the largest segment that wants a graph, after several were compacted into one.
    fn compact_and_pick_graph_task(&self) -> Option<GraphTask> {
        if self.graph_tasks().len() > 1 {
            if let Err(error) = self.seal_and_compact(&Compaction::WithoutGraph) {
                log::warn!("segments stay apart, and each gets a search graph of its own: {error}");
            }
            // The seal above woke the indexer as well; a segment that can't be compacted, for want of room or because it is damaged,
            // would otherwise stop each build at once.
            self.maintenance.indexer.take_wake_request();
        }
        self.graph_tasks().into_iter().max_by_key(|task| task.segment.rows())
    }

    /// Returns whether so much waits for a graph beside a segment that both should become one first, and can.
    fn is_outgrown(&self, task: &GraphTask) -> bool {
        // One with a graph for another metric stays as it is.
        let may = |segment: &Segment| segment.dim() == task.segment.dim() && segment.graphs().next().is_none();
        if !may(&task.segment) {
            return false;
        }
        let owners = sole_root_by_segment(&self.catalog_now());
        let owner = |segment: &Segment| owners.get(&segment.name()).copied().flatten();
        let joins = |other: &Segment| may(other) && owner(other) == owner(&task.segment);
        let mut rows: HashMap<Hash, u32> = self
            .graph_tasks()
            .iter()
            .filter(|other| joins(&other.segment))
            .map(|other| (other.segment.name(), other.segment.rows()))
            .collect();
        rows.remove(&task.segment.name());
        let others = rows.into_values().map(u64::from).sum::<u64>();
        let own = u64::from(task.segment.rows());
        others >= own / 2 && own + others <= u64::from(COMPACTED_ROWS_MAX)
    }

    /// Puts a finished graph onto the blob store and in use, and has the manifest name it.
    fn install_graph(&self, task: &GraphTask, bytes: &[u8]) -> Result<(), Error> {
        let _room = self.reserve_room(bytes.len() as u64)?;
        {
            // Nothing names the file before it is attached.
            let _publishing = self.storage.segments.blobs.begin_publishing();
            let name = write_graph(&self.storage.segments.blobs, &task.segment.name(), task.metric, bytes)?;
            let graph = GraphFile::open(&self.storage.segments.blobs, name)?;
            // Checked here, so that no query waits for it.
            graph.graph()?;
            task.segment.attach(Arc::new(graph));
        }
        // Until this seal the graph is known by its open segment alone; the manifest then names it for the next
        // opening.
        self.seal()
    }
}

/// Builds one graph after the other, until none is wanted or the thread is told to end.
fn build_all(memory: &Weak<Memory>, disk: &dyn Disk, indexer: &Indexer) {
    loop {
        let wanted = |memory: Arc<Memory>| (!memory.graph_tasks().is_empty()).then_some(memory.environment.index_delay);
        let Some(pause) = memory.upgrade().and_then(wanted) else { return };
        if !indexer.wait_for_quiescence(pause) {
            return;
        }
        // Chosen after the pause: what was sealed meanwhile may have become one segment with what was there.
        let Some(task) = memory.upgrade().and_then(|memory| memory.compact_and_pick_graph_task()) else { return };
        let is_outgrown = || memory.upgrade().is_some_and(|memory| memory.is_outgrown(&task));
        // The store is not held meanwhile, so that it can be closed; the task holds the segment.
        let built = build(disk, &task, indexer, is_outgrown);
        let Some(memory) = memory.upgrade().filter(|_| !indexer.lock().stop) else { return };
        if let Err(error) = built.and_then(|bytes| bytes.map_or(Ok(()), |bytes| memory.install_graph(&task, &bytes))) {
            log::warn!("a search graph could not be built and is tried again later: {error}");
            indexer.end_build();
            return;
        }
        indexer.end_build();
        // Only once the graph is in use: until then a crash would cost what was kept.
        unfinished_graph::discard(disk);
    }
}

/// Builds a graph, from where it was left off if it was; `None` if told to stop, or when more rows come that belong
/// into it before half of the work is done.
fn build(
    disk: &dyn Disk,
    task: &GraphTask,
    indexer: &Indexer,
    is_outgrown: impl Fn() -> bool,
) -> Result<Option<Vec<u8>>, Error> {
    let (name, metric, params) = (task.segment.name(), task.metric, Params::default());
    let rows = task.segment.graph_rows()?;
    log::info!("building the search graph of {} rows of segment {name}", task.segment.rows());
    let kept = unfinished_graph::resume(disk, &name, metric, || rows, params);
    let mut builder = kept.unwrap_or_else(|| GraphBuilder::new(rows, metric, params));
    let mut saved = builder.steps_done();
    while !builder.step(BATCH_STEPS) {
        let rows_done =
            builder.steps_done() as u64 * u64::from(task.segment.rows()) / builder.step_count().max(1) as u64;
        let stopped = !indexer.note_progress(name, rows_done);
        if stopped || builder.steps_done() - saved >= STEPS_BETWEEN_SAVES {
            saved = builder.steps_done();
            if let Err(error) = unfinished_graph::save(disk, &name, metric, &builder) {
                log::warn!("a half-built search graph could not be kept and may be built anew: {error}");
            }
        }
        // `is_outgrown` comes last, since it goes through all branches.
        if stopped || (builder.steps_done() < builder.step_count() / 2 && indexer.take_wake_request() && is_outgrown())
        {
            return Ok(None);
        }
    }
    Ok(Some(builder.finish()))
}

/// Calls `each` with the states of a branch that queries are put to.
fn for_each_queryable_state(branch: &Branch, mut each: impl FnMut(&BranchVersion)) {
    each(&branch.state);
    branch.frozen_states().for_each(|frozen| each(&frozen.state));
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
