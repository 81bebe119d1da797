//! The indexer of files: the thread that indexes what is written to `files/`, and keeps the segments of that index few.
//!
//! It wakes soon after a write, works in small steps on snapshots and holds no lock while it reads or indexes. Queries index
//! little themselves (`views/file_search.rs`), so it is never waited for. What is in memory goes to files at a seal, or before
//! where it is much.

use std::collections::{BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::file_index::{IndexKey, IndexSegment, IndexableContent, index_contents, merge_segments};
use crate::memory::catalog::{BranchId, BranchRef, Catalog, ResolvedView, View};
use crate::memory::storage::file_index::{ClaimLimits, segments_in_memory, segments_to_merge};
use crate::memory::{Error, Memory};
use crate::object::Hash;
use crate::sync::{Condvar, Mutex};
use crate::workspace::Tree;

/// What a step takes; between two of them the thread holds no store and looks whether it is to end.
const STEP_LIMITS: ClaimLimits = ClaimLimits { files: 1_024, bytes: 4 << 20, allows_larger: true };
/// Bytes in memory from which on they go to a file without a seal.
const MEMORY_BYTES_MAX: u64 = 16 << 20;
/// Segments of fewer bytes are merged by queries, too. Larger ones are left to the thread: what is merged may be of other
/// branches, and the query would wait for it.
const INLINE_MERGE_BYTES: u64 = 16 << 10;

/// A segment is written again where nothing has more than one in so many of its contents.
const DEAD_ONE_IN: u32 = 4;

#[derive(Default)]
struct FileIndexRequests {
    /// Branches that were written to since they were last looked at.
    branches: BTreeSet<BranchId>,
    /// Every branch is to be looked at, as after an opening.
    all: bool,
    /// What is kept of views is to follow what a seal put in place.
    refresh: bool,
    stop: bool,
    is_busy: bool,
}

impl FileIndexRequests {
    fn is_idle(&self) -> bool {
        !self.all && !self.refresh && self.branches.is_empty()
    }
}

struct FileIndexWork {
    branches: BTreeSet<BranchId>,
    all: bool,
    refresh: bool,
}

/// The thread that indexes files, seen from outside.
#[derive(Clone, Default)]
pub(in crate::memory) struct FileIndexer(Arc<(Mutex<FileIndexRequests>, Condvar)>);

impl FileIndexer {
    /// Asks the thread to look at a branch soon.
    pub fn wake(&self, branch: BranchId) {
        let mut requests = self.0.0.lock();
        let is_first = requests.branches.is_empty();
        requests.branches.insert(branch);
        drop(requests);
        // The thread waits for the first request alone, and then for more of them; waking it for each write would cost
        // the writers.
        if is_first {
            self.0.1.notify_all();
        }
    }

    /// Asks the thread to let go of trees that a seal has put others in place of.
    pub fn refresh(&self) {
        self.request(|requests| requests.refresh = true);
    }

    fn request(&self, change: impl FnOnce(&mut FileIndexRequests)) {
        change(&mut self.0.0.lock());
        self.0.1.notify_all();
    }

    /// Tells the thread to end after the step at hand; does not wait.
    pub fn stop(&self) {
        self.request(|requests| requests.stop = true);
    }

    fn is_stopping(&self) -> bool {
        self.0.0.lock().stop
    }

    /// Waits until the thread is at rest: it has nothing to do, or was told to end and did.
    fn wait_until_idle(&self) {
        let working = |requests: &mut FileIndexRequests| requests.is_busy || (!requests.stop && !requests.is_idle());
        drop(self.0.1.wait_while(self.0.0.lock(), working));
    }

    /// Waits for a request, and then for more; returns what to do, or nothing to end.
    fn wait_for_work(&self, delay: Duration) -> Option<FileIndexWork> {
        let mut requests = self.0.0.lock();
        requests.is_busy = false;
        self.0.1.notify_all();
        let idle = |requests: &mut FileIndexRequests| !requests.stop && requests.is_idle();
        let requests = self.0.1.wait_while(requests, idle);
        let (mut requests, _) = self.0.1.wait_timeout_while(requests, delay, |requests| !requests.stop);
        requests.is_busy = !requests.stop;
        let FileIndexRequests { branches, all, refresh, .. } = &mut *requests;
        let (branches, all) = (std::mem::take(branches), std::mem::take(all));
        let work = FileIndexWork { branches, all, refresh: std::mem::take(refresh) };
        (!requests.stop).then_some(work)
    }
}

impl Memory {
    /// Starts the thread that indexes files, all branches first. It ends with the store; without it queries index alone.
    pub(in crate::memory) fn start_file_indexer(self: &Arc<Self>) {
        let (memory, indexer) = (Arc::downgrade(self), self.maintenance.file_indexer.clone());
        let delay = self.environment.file_index_delay;
        let life = move || {
            while let Some(work) = indexer.wait_for_work(delay) {
                if catch_unwind(AssertUnwindSafe(|| index_branches(&memory, &indexer, work))).is_err() {
                    log::error!("the indexing of files ended in an internal error and is tried again later");
                }
            }
        };
        self.maintenance.file_indexer.request(|requests| requests.all = true);
        if let Err(error) = std::thread::Builder::new().name("file-indexer".to_owned()).spawn(life) {
            log::warn!("files are indexed by queries alone: {error}");
            self.maintenance.file_indexer.stop();
        }
    }

    /// Tells the indexer of files to end, and waits until its step is done.
    pub(in crate::memory) fn stop_file_indexer(&self) {
        self.maintenance.file_indexer.stop();
        self.maintenance.file_indexer.wait_until_idle();
    }

    /// Blocks until all files written so far are indexed, or the indexer has been told to stop. There is no time limit.
    pub fn wait_until_files_indexed(&self) {
        self.maintenance.file_indexer.wait_until_idle();
    }

    /// Indexes some of what a branch has; returns whether there may be more.
    fn index_step(&self, branch: BranchId) -> Result<bool, Error> {
        let view = View::Branch(branch);
        // Noted before the tree is looked at: what is indexed from before a purge must not be published behind it.
        let purge_count = self.storage.file_index.purge_count();
        let Some(files) = self.visible_files(&view)? else { return Ok(false) };
        let claim = self.storage.file_index.claim(files.unindexed(), purge_count, STEP_LIMITS);
        let bytes = claim.contents.iter().map(IndexableContent::bytes).sum();
        if claim.contents.is_empty() {
            return Ok(false);
        }
        self.admission.budget.admit(bytes)?;
        let indexed = index_contents(claim.contents.clone(), self.packs());
        self.storage.file_index.publish(claim, indexed);
        // Merged as it grows, since each search has to look into every segment.
        self.merge_index_segments_in_memory(u64::MAX)?;
        self.maintenance.embedding.wake();
        Ok(true)
    }

    /// Moves the index to a file where it takes much memory, and returns whether it takes little then. In a store that is opened
    /// for reading it stays.
    fn relieve_memory(&self) -> Result<bool, Error> {
        let takes_much = || self.storage.file_index.bytes_in_memory() > MEMORY_BYTES_MAX;
        if takes_much() && !self.is_read_only() {
            self.seal()?;
        }
        Ok(self.is_read_only() || !takes_much())
    }

    /// Merges what is due of the small segments in memory, after a query to a branch has added one, and leaves larger ones
    /// to the thread. Fails if one of them is damaged; those stay as they are then.
    pub(in crate::memory) fn merge_small_index_segments(&self, branch: BranchId) -> Result<(), Error> {
        let is_alone = self.maintenance.file_indexer.is_stopping();
        self.merge_index_segments_in_memory(if is_alone { u64::MAX } else { INLINE_MERGE_BYTES })?;
        if !self.due_in_memory(u64::MAX).is_empty() {
            self.maintenance.file_indexer.wake(branch);
        }
        Ok(())
    }

    /// Makes one segment of many small ones in memory, as long as there are that many, of those that have fewer bytes than
    /// `bytes_below`. Fails if one of them is damaged; those stay as they are then.
    fn merge_index_segments_in_memory(&self, bytes_below: u64) -> Result<(), Error> {
        loop {
            let due = self.due_in_memory(bytes_below);
            if due.is_empty() {
                return Ok(());
            }
            // Refused where somebody else merged one of them meanwhile; then fewer are due.
            self.storage.file_index.replace(&due, merge_segments(&due, |_| true)?);
        }
    }

    fn due_in_memory(&self, bytes_below: u64) -> Vec<Arc<IndexSegment>> {
        let segments = segments_in_memory(&self.storage.file_index.segment_set());
        segments_to_merge(segments.into_iter().filter(|segment| segment.bytes() < bytes_below))
    }

    /// Moves what is indexed in memory to a file, without contents that nothing has any longer, and makes one file of
    /// many. If the disk refuses, or has fewer bytes to spare, it stays as it is: all of it can be made again. Returns
    /// the files that there are. The caller holds the lock of `storage.manifest`.
    pub(in crate::memory) fn seal_file_index(&self, spare_bytes: u64) -> Vec<Hash> {
        let seal = || -> Result<(), Error> {
            let index = &self.storage.file_index;
            let memory = segments_in_memory(&index.segment_set());
            // The present contents, looked up behind the segments: the index goes on while a seal writes the catalog of
            // its beginning, and has contents that are newer than that.
            let live = || live_contents(&self.catalog_now());
            if !memory.is_empty() && index.bytes_in_memory() <= spare_bytes {
                let live = live();
                let merged = merge_segments(&memory, |key| live.contains(key))?;
                let file = merged.map(|merged| merged.persist(&self.storage.segments.blobs)).transpose()?;
                file.iter().for_each(|file| self.carry_over_passage_vectors(file, &memory));
                // In use before anything is let go of, so that queries find each passage in the one or the other.
                index.replace(&memory, file);
                self.forget_written_passages();
            }
            let due = segments_to_merge(
                index.segment_set().segments.iter().filter(|segment| segment.name().is_some()).cloned(),
            );
            if !due.is_empty() && due.iter().map(|segment| segment.bytes()).sum::<u64>() <= spare_bytes {
                self.rewrite_index(&due, &live())?;
            }
            Ok(())
        };
        if let Err(error) = seal() {
            self.storage.file_index.drop_broken();
            log::warn!("a part of the index of files stays in memory for now: {error}");
        }
        self.storage.file_index.names()
    }

    /// Lets go of what of the index nothing has any longer, as far as that is much.
    pub(in crate::memory) fn gc_file_index(&self) {
        if let Err(error) = self.prune_file_index(&self.catalog_now(), DEAD_ONE_IN) {
            self.storage.file_index.drop_broken();
            log::warn!("the index of files stays as large as it is for now: {error}");
        }
    }

    /// Writes again, without contents that nothing has, the segments of which that is a good part: one in `one_in` or more.
    fn prune_file_index(&self, catalog: &Catalog, one_in: u32) -> Result<(), Error> {
        let live = live_contents(catalog);
        for segment in &self.storage.file_index.segment_set().segments {
            let mut dead = 0;
            for n in 0..segment.contents() {
                dead += u32::from(!live.contains(&segment.key(n)?));
            }
            if dead > 0 && dead.saturating_mul(one_in) >= segment.contents() {
                self.rewrite_index(std::slice::from_ref(segment), &live)?;
            }
        }
        Ok(())
    }

    /// Makes one segment of some, in a file if one of them has a file.
    fn rewrite_index(&self, segments: &[Arc<IndexSegment>], live: &HashSet<IndexKey>) -> Result<(), Error> {
        let mut merged = merge_segments(segments, |key| live.contains(key))?;
        if segments.iter().any(|segment| segment.name().is_some()) {
            merged = merged.map(|merged| merged.persist(&self.storage.segments.blobs)).transpose()?;
            merged.iter().for_each(|merged| self.carry_over_passage_vectors(merged, segments));
        }
        self.storage.file_index.replace(segments, merged);
        Ok(())
    }

    /// Takes out of the index, and of what is kept in memory of it, what no branch has any longer. What can't be written again
    /// goes as a whole, and is made again later.
    pub(in crate::memory) fn purge_file_index(&self) {
        let index = &self.storage.file_index;
        // Noted first: a thread that indexes contents of before the purge then has what it made refused.
        index.note_purge();
        self.file_views.clear();
        if let Err(error) = self.prune_file_index(&self.catalog_now(), u32::MAX) {
            log::warn!("the index of files is made again: {error}");
            index.replace(&index.segment_set().segments, None);
        }
    }
}

/// Indexes what is new in some branches, or in all, until nothing is or the thread is told to end.
fn index_branches(memory: &Weak<Memory>, indexer: &FileIndexer, work: FileIndexWork) {
    let Some(store) = memory.upgrade() else { return };
    if work.refresh {
        store.refresh_file_views(|| indexer.is_stopping());
    }
    // Also those that queries made, whatever becomes of the branches.
    if let Err(error) = store.merge_index_segments_in_memory(u64::MAX) {
        store.note_failed_indexing(&error);
    }
    let branches = if work.all { store.branches_with_files() } else { work.branches.into_iter().collect() };
    drop(store);
    for branch in branches {
        loop {
            // Upgraded for one step at a time, so that the thread never keeps a store from being closed.
            let Some(store) = memory.upgrade().filter(|_| !indexer.is_stopping()) else { return };
            match store.relieve_memory().and_then(|is_relieved| Ok(is_relieved && store.index_step(branch)?)) {
                Ok(true) => {}
                // The branch has ended meanwhile.
                Ok(false) | Err(Error::Gone) => break,
                Err(error) => {
                    store.note_failed_indexing(&error);
                    break;
                }
            }
        }
    }
}

impl Memory {
    fn note_failed_indexing(&self, error: &Error) {
        self.storage.file_index.drop_broken();
        log::warn!("files could not be indexed and are tried again later: {error}");
    }

    /// Brings what is kept of views up to date, and drops it of those that are gone.
    fn refresh_file_views(&self, is_over: impl Fn() -> bool) {
        let catalog = self.catalog().clone();
        let is_there = |view: &View| ResolvedView::new(&catalog, view).is_ok();
        for view in self.file_views.drop_unless(is_there) {
            if is_over() {
                return;
            }
            if let Err(error) = self.visible_files(&view) {
                log::debug!("the files of a view could not be looked at: {error}");
            }
        }
    }

    /// Returns the branches that have files, without those that have just the files of their parents.
    pub(in crate::memory) fn branches_with_files(&self) -> Vec<BranchId> {
        let catalog = self.catalog().clone();
        let has_own = |(_, branch): &(&BranchId, &BranchRef)| {
            let parent = branch.parent.and_then(|parent| catalog.branches.get(&parent));
            let files = branch.state.files();
            files.totals().files > 0 && !parent.is_some_and(|parent| parent.state.files().is_clone_of(files))
        };
        catalog.branches.iter().filter(has_own).map(|(id, _)| *id).collect()
    }
}

/// Returns the contents that queries may find: those of all branches and checkpoints. Trees that share most cost what they do
/// not share.
fn live_contents(catalog: &Catalog) -> HashSet<IndexKey> {
    let (mut live, mut before) = (HashSet::new(), Tree::default());
    for branch in catalog.branches.values() {
        let frozen = branch.frozen_states().map(|frozen| &frozen.state);
        for state in std::iter::once(&branch.state).chain(frozen) {
            let nodes = before.changed_nodes(state.files()).filter_map(|changed| changed.new);
            live.extend(nodes.filter_map(|node| IndexableContent::from_node(node)).map(|content| content.key));
            before = state.files().clone();
        }
    }
    live
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, FILES_ROOT, FileName, FileOp, NewInode, OpenMode, Query};

    #[test]
    fn queries_merge_small_segments_and_leave_those_of_16_kib_to_the_thread() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        // The thread waits, so that queries alone index.
        let around = Environment { file_index_delay: Duration::from_secs(600), ..Environment::real(who.clone()) };
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
        let main = memory.root("main").unwrap();
        let (name, make) = (FileName::new(b"a").unwrap(), NewInode::File);
        let create = FileOp::Create { parent: FILES_ROOT, name, make, mode: 0o644, uid: 0, gid: 0 };
        let inode = memory.edit(&who, main, create).unwrap().inode;
        let segments_after = |texts: &[String]| {
            for text in texts {
                memory.edit(&who, main, FileOp::Write { inode, offset: 0, bytes: text.as_bytes().into() }).unwrap();
                memory.query(&View::Branch(main), &Query::from_text("words").unwrap()).unwrap();
            }
            memory.storage.file_index.segment_set().segments.len()
        };
        let small: Vec<String> = (0..8).map(|n| format!("words {n}")).collect();
        assert_eq!(segments_after(&small), 1);
        let words = |n: usize| (0..4_000).map(|word| format!("word{n}of{word} ")).collect();
        let large: [String; 8] = std::array::from_fn(words);
        assert_eq!(segments_after(&large), 9);
        assert!(
            memory.maintenance.file_indexer.0.0.lock().branches.contains(&main),
            "the thread is asked to merge them"
        );
        let work = FileIndexWork { branches: BTreeSet::new(), all: false, refresh: false };
        index_branches(&Arc::downgrade(&memory), &memory.maintenance.file_indexer, work);
        assert_eq!(memory.storage.file_index.segment_set().segments.len(), 2);
        memory.maintenance.file_indexer.stop();
        assert_eq!(
            segments_after(&large.map(|text| text.replace("of", "by"))),
            3,
            "without a thread queries merge all"
        );
        let page = include_str!("../../../docs/TUNING.md");
        assert!(page.contains(&format!("a query merges those below {} KiB itself", INLINE_MERGE_BYTES >> 10)));
    }
}
