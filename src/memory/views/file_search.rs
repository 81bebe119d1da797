//! The files of a view as queries see them: kept by view, and brought up to date by what was written since.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::file_index::{
    Credentials, HiddenPaths, IndexKey, IndexableContent, PermittedFiles, VisibleFiles, index_contents,
};
use crate::memory::catalog::settings::{Setting, Settings};
use crate::memory::catalog::{BranchId, ResolvedView, View};
use crate::memory::storage::file_index::ClaimLimits;
use crate::memory::{Error, Memory};
use crate::sync::{Mutex, may_wait};
use crate::workspace::Tree;

/// Views that are kept; of more the one that was used longest ago goes.
const VIEWS_MAX: usize = 512;
/// What a query indexes itself; what is larger is left to the thread, so that no query waits for a large file.
const INLINE: ClaimLimits = ClaimLimits { files: 1_024, bytes: 1 << 20, allows_larger: false };
/// How long a query waits for what others are indexing, so that it misses little that was just written.
const INDEXING_TIMEOUT: Duration = Duration::from_millis(100);
/// How often files are looked up again after damage was found in the index.
const ATTEMPTS_MAX: usize = 4;

/// What of the index each view shows, for those that were asked lately.
#[derive(Default)]
pub(in crate::memory) struct FileViews(Mutex<CachedViews>);

#[derive(Default)]
struct CachedViews {
    views: HashMap<View, (Arc<VisibleFiles>, u64)>,
    /// Grows with each use of any view, by which the one that was used longest ago is found.
    uses: u64,
    /// Grows with each change of what is kept.
    changes: u64,
    /// How often all was let go of.
    clear_count: u64,
}

impl FileViews {
    /// Returns what is kept of a view, if it is; of the views the one that was used longest ago is dropped first.
    pub fn get(&self, view: &View) -> Option<Arc<VisibleFiles>> {
        let mut kept = self.0.lock();
        kept.uses += 1;
        let uses = kept.uses;
        let (files, used) = kept.views.get_mut(view)?;
        *used = uses;
        Some(files.clone())
    }

    /// Returns a number that is another one once something else is kept.
    pub fn change_count(&self) -> u64 {
        self.0.lock().changes
    }

    /// Returns how often all views were let go of.
    fn clear_count(&self) -> u64 {
        self.0.lock().clear_count
    }

    /// Keeps what was looked up when all views had been let go of `clear_count` times; nothing if they have been since.
    fn put(&self, view: &View, files: Arc<VisibleFiles>, clear_count: u64) {
        let mut kept = self.0.lock();
        if kept.clear_count != clear_count {
            return;
        }
        kept.uses += 1;
        kept.changes += 1;
        let uses = kept.uses;
        let mut evicted = None;
        if kept.views.len() >= VIEWS_MAX && !kept.views.contains_key(view) {
            let oldest = kept.views.iter().min_by_key(|(_, (_, used))| *used).map(|(view, _)| view.clone());
            evicted = oldest.and_then(|oldest| kept.views.remove(&oldest));
        }
        let replaced = kept.views.insert(view.clone(), (files, uses));
        // Not under the lock: each may be the last to hold a large tree.
        drop(kept);
        drop((evicted, replaced));
    }

    /// Lets go of all views, as after a purge: the next query of each looks at all of its files.
    pub fn clear(&self) {
        let mut kept = self.0.lock();
        kept.changes += 1;
        kept.clear_count += 1;
        let was = std::mem::take(&mut kept.views);
        drop(kept);
        drop(was);
    }

    /// Drops the views that `is_there` does not know, each with no lock held; returns the others.
    pub fn drop_unless(&self, is_there: impl Fn(&View) -> bool) -> Vec<View> {
        let views: Vec<View> = self.0.lock().views.keys().cloned().collect();
        let (live, gone): (Vec<View>, Vec<View>) = views.into_iter().partition(is_there);
        gone.iter().for_each(|view| {
            let was = self.0.lock().views.remove(view);
            drop(was);
        });
        live
    }
}

/// A view's files at one moment, and by which rules they are hidden.
struct ViewFiles {
    tree: Tree,
    hidden: HiddenPaths,
    /// Views that it has most in common with: what is kept of one of these is brought up to date.
    bases: Vec<View>,
}

/// What a query may search, and what it misses.
pub(in crate::memory) struct SearchableFiles {
    /// What the caller may read of what is indexed: hits are looked for in nothing else.
    pub files: PermittedFiles,
    /// Files of the view that are not indexed yet, which the answer says.
    pub missing: u64,
}

impl Memory {
    /// Returns what the index shows of a view as it is now; `None` if the view has no files. Fails like a view that is
    /// not there. A damaged index segment is let go of and the look repeated; after some rounds its error is returned.
    pub(in crate::memory) fn visible_files(&self, view: &View) -> Result<Option<Arc<VisibleFiles>>, Error> {
        for _ in 1..ATTEMPTS_MAX {
            let version = self.storage.file_index.segment_set().version;
            match self.visible_files_once(view) {
                // The next look goes without what was damaged.
                Err(error) if self.storage.file_index.drop_broken_and_may_retry(&error, version) => {}
                // What can't be searched for a content was passed over.
                Ok(_) if self.storage.file_index.drop_broken() => {}
                found => return found,
            }
        }
        self.visible_files_once(view)
    }

    fn visible_files_once(&self, view: &View) -> Result<Option<Arc<VisibleFiles>>, Error> {
        // Noted first: what is looked up before a purge may hold what that takes out.
        let (clear_count, set) = (self.file_views.clear_count(), self.storage.file_index.segment_set());
        let Some(ViewFiles { tree, hidden, bases }) = self.view_files(view)? else { return Ok(None) };
        let base = bases.iter().find_map(|view| self.file_views.get(view));
        if let Some(kept) = base.as_ref().filter(|kept| kept.is_current_for(&tree, &hidden, &set)) {
            if self.file_views.get(view).is_none() {
                self.file_views.put(view, kept.clone(), clear_count);
            }
            return Ok(Some(kept.clone()));
        }
        let none = || Arc::new(VisibleFiles::none(hidden.clone()));
        let files = Arc::new(base.unwrap_or_else(none).updated_for(&tree, &hidden, &set)?);
        self.file_views.put(view, files.clone(), clear_count);
        Ok(Some(files))
    }

    fn view_files(&self, view: &View) -> Result<Option<ViewFiles>, Error> {
        let catalog = self.catalog().clone();
        let seen = ResolvedView::new(&catalog, view)?;
        let tree = seen.shown_files(view);
        if tree.totals().files == 0 {
            return Ok(None);
        }
        let parent = seen.branch.parent.map(View::Branch);
        let bases = [view.clone(), View::Branch(view.branch())].into_iter().chain(parent).collect();
        Ok(Some(ViewFiles { tree, hidden: hidden_paths(&seen.branch.settings), bases }))
    }

    /// Returns the files of a view that a caller may search; little that is not indexed yet is indexed before. `None`
    /// if the view has no files. Fails like `Memory::visible_files`, or if an index segment can't be read.
    pub(in crate::memory) fn searchable_files(
        &self,
        view: &View,
        reader: &Credentials,
    ) -> Result<Option<SearchableFiles>, Error> {
        let (owner, purge_count) = (self.info(view.branch())?.uid, self.storage.file_index.purge_count());
        let Some(mut files) = self.visible_files(view)? else { return Ok(None) };
        if files.counts().1 > 0 {
            self.index_now(view.branch(), &files, purge_count)?;
            files = self.visible_files(view)?.unwrap_or(files);
            if files.counts().1 > 0 {
                self.maintenance.file_indexer.wake(view.branch());
            }
        }
        let missing = files.counts().1;
        Ok(Some(SearchableFiles { files: files.permitted(reader, owner)?, missing }))
    }

    /// Indexes what is not indexed yet, as far as that is little, and waits a moment for what others are at.
    fn index_now(&self, branch: BranchId, files: &VisibleFiles, purge_count: u64) -> Result<(), Error> {
        let index = &self.storage.file_index;
        let claim = index.claim(files.unindexed(), purge_count, INLINE);
        let bytes = claim.contents.iter().map(IndexableContent::bytes).sum();
        // Without memory to spare it goes on with what is indexed.
        if !claim.contents.is_empty() && self.admission.budget.admit(bytes).is_ok() {
            let indexed = index_contents(claim.contents.clone(), self.packs());
            index.publish(claim, indexed);
            self.merge_small_index_segments(branch)?;
            self.maintenance.embedding.wake();
        }
        // More than that is seldom indexed within INDEXING_TIMEOUT, so the answer comes without it.
        if files.counts().1 <= INLINE.files as u64 && may_wait() {
            let left: Vec<IndexKey> = files.unindexed().map(|content| content.key).collect();
            index.wait_for(&left, INDEXING_TIMEOUT);
        }
        Ok(())
    }
}

/// Returns which paths the rules of a branch keep out of the index.
fn hidden_paths(settings: &Settings) -> HiddenPaths {
    let rules = settings.get(Setting::Rules).clone();
    if !settings.rules().has_noindex() {
        // Without a `noindex` the rest of the rules does not matter to the index.
        return HiddenPaths { rules: "".into(), hides: None };
    }
    let settings = settings.clone();
    HiddenPaths { rules, hides: Some(Arc::new(move |path| settings.rules().rule_for(path).noindex)) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, BranchId, Environment, FILES_ROOT, FileName, FileOp, NewInode, OpenMode};
    use crate::sync::Deadline;

    fn store_with_a_file() -> (Arc<Memory>, Actor, BranchId) {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        // The thread that indexes files does nothing, so that queries alone do.
        let around = Environment { file_index_delay: Duration::from_secs(600), ..Environment::real(who.clone()) };
        let memory = Memory::open_on(disk, OpenMode::Create, None, around).unwrap();
        let main = memory.root("main").unwrap();
        let name = FileName::new(b"a").unwrap();
        let op = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
        memory.edit(&who, main, op).unwrap();
        (memory, who, main)
    }

    #[test]
    fn of_views_the_512_that_were_asked_last_are_kept() {
        let (kept, none) = (FileViews::default(), HiddenPaths { rules: "".into(), hides: None });
        let view = |number| View::Branch(BranchId(number));
        let put = |number| kept.put(&view(number), Arc::new(VisibleFiles::none(none.clone())), 0);
        (0..512).for_each(put);
        assert!(kept.get(&view(0)).is_some());
        put(512);
        let gone: Vec<u64> = (0..=512).filter(|number| kept.get(&view(*number)).is_none()).collect();
        assert_eq!(gone, [1]);
    }

    /// Belongs to a view, and counts where it is dropped while others can look views up.
    struct DropProbe {
        kept: Weak<FileViews>,
        unlocked_drops: Arc<AtomicUsize>,
    }

    impl DropProbe {
        fn hides(&self) -> bool {
            self.kept.upgrade().is_none()
        }
    }

    impl Drop for DropProbe {
        fn drop(&mut self) {
            // From a thread without locks: in one that has this lock, debug builds panic at the attempt.
            let is_free = |kept: &FileViews| {
                std::thread::scope(|scope| {
                    scope.spawn(|| kept.0.try_lock().is_some()).join().is_ok_and(|is_free| is_free)
                })
            };
            if self.kept.upgrade().is_some_and(|kept| is_free(&kept)) {
                self.unlocked_drops.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn views_that_are_replaced_or_evicted_are_dropped_without_the_lock() {
        let (kept, unlocked_drops) = (Arc::new(FileViews::default()), Arc::new(AtomicUsize::new(0)));
        let put = |number| {
            let probe = DropProbe { kept: Arc::downgrade(&kept), unlocked_drops: unlocked_drops.clone() };
            let hidden = HiddenPaths { rules: "".into(), hides: Some(Arc::new(move |_: &[u8]| probe.hides())) };
            kept.put(&View::Branch(BranchId(number)), Arc::new(VisibleFiles::none(hidden)), 0);
        };
        (0..512).for_each(put);
        assert_eq!(unlocked_drops.load(Ordering::Relaxed), 0);
        put(0);
        assert_eq!(unlocked_drops.load(Ordering::Relaxed), 1, "replaced");
        put(512);
        assert_eq!(unlocked_drops.load(Ordering::Relaxed), 2, "evicted");
    }

    #[test]
    fn what_was_looked_up_before_a_purge_is_not_kept() {
        let (kept, view) = (FileViews::default(), View::Branch(BranchId(1)));
        let files = || Arc::new(VisibleFiles::none(HiddenPaths { rules: "".into(), hides: None }));
        let before = kept.clear_count();
        kept.clear();
        kept.put(&view, files(), before);
        assert!(kept.get(&view).is_none());
        kept.put(&view, files(), kept.clear_count());
        assert!(kept.get(&view).is_some());
    }

    #[test]
    fn a_query_waits_100_ms_for_what_others_are_indexing() {
        let (memory, _, main) = store_with_a_file();
        let view = View::Branch(main);
        let query = crate::memory::Query::from_text("words").unwrap();
        let files = memory.visible_files(&view).unwrap().unwrap();
        let index = &memory.storage.file_index;
        let claim = index.claim(files.unindexed(), index.purge_count(), INLINE);
        assert_eq!(claim.contents.len(), 1);
        let until = Deadline::from_now(Duration::from_millis(100));
        assert_eq!(memory.query(&view, &query).unwrap().reason.as_deref(), Some("1 file is not indexed yet"));
        assert_eq!(until.remaining(), Duration::ZERO);
        drop(claim);
        assert_eq!(memory.query(&view, &query).unwrap().reason, None);
        let page = include_str!("../../../docs/SEMANTICS.md");
        assert!(page.contains(&format!("waits up to {} ms for what", INDEXING_TIMEOUT.as_millis())));
    }

    #[test]
    fn a_fork_shares_what_is_kept_of_its_parent() {
        let (memory, who, main) = store_with_a_file();
        let fork = memory.fork(&who, main, "x", None).unwrap();
        let [of_main, of_fork] =
            [main, fork].map(|branch| memory.visible_files(&View::Branch(branch)).unwrap().unwrap());
        assert!(Arc::ptr_eq(&of_main, &of_fork));
    }

    #[test]
    fn a_status_that_was_read_before_a_query_counts_the_files_after_it() {
        let (memory, who, main) = store_with_a_file();
        let query = crate::memory::Query::from_text("words").unwrap();
        memory.query(&View::Branch(main), &query).unwrap();
        // What the fork shows is indexed already, so that its first query adds nothing to the index.
        let fork = View::Branch(memory.fork(&who, main, "x", None).unwrap());
        let files = || memory.status(&fork).unwrap()["index"]["files"].clone();
        assert_eq!(files(), serde_json::Value::Null);
        memory.query(&fork, &query).unwrap();
        assert_eq!(files(), 1);
    }
}
