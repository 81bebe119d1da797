//! `purge`: records and files go from every state, and their bytes from the disk.
//!
//! 1. All versions are looked for, and copies of them, on a snapshot.
//! 2. The files that hold their bytes are noted (`unfinished_purge`), durably.
//! 3. A seal, and behind it one entry, which takes them out of every state of every branch.
//! 4. A seal begins a new journal file and writes again, without them, all that held their bytes: segments, packs, archives,
//!    snapshots and parts of the manifest. What those were, and old journal files, is removed; then the note.
//!
//! A crash before the entry leaves all as it was. After it, the next opening or `gc` does 4. Another writer may write the same
//! content between 1 and 4: then all is done again for that.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::compact::RewriteSet;
use super::purge_report::PurgeReport;
use super::purge_search::PurgeSearch;
use super::purge_signals::is_signal;
use super::relocations::Compaction;
use super::unfinished_graph;
use super::unfinished_purge::UnfinishedPurge;
use crate::branch::check_record_id;
use crate::journal::Journal;
use crate::lineage::{Entry, EntryOp, SignedEntry};
use crate::memory::catalog::shared_log::LogEntryName;
use crate::memory::catalog::{BranchId, Catalog};
use crate::memory::command::log_record::LogRecord;
use crate::memory::history::{MovedEntries, PurgedItems};
use crate::memory::merging::merge::PLAN_ROUNDS_MAX;
use crate::memory::merging::purge::PurgePlan;
use crate::memory::storage::manifest::StoredManifest;
use crate::memory::{Actor, BranchError, BranchEvent, Error, Memory, PurgeError};
use crate::object::Hash;

/// Whether a purge is under way, or one of an earlier process is not finished.
#[derive(Default)]
pub(in crate::memory) struct PurgeState {
    /// Set while one runs, so that a second is refused.
    pub(super) is_running: AtomicBool,
    /// Whether a dry run is under way: it reads every state that is kept.
    is_dry_running: AtomicBool,
    is_unfinished: AtomicBool,
}

/// Holds the right to be the one purge, or the one dry run, that is under way.
pub(super) struct PurgeGuard<'a>(&'a AtomicBool);

impl<'a> PurgeGuard<'a> {
    /// Sets the flag until this is dropped; [`PurgeError::Running`] if it is set.
    pub fn begin(flag: &'a AtomicBool) -> Result<PurgeGuard<'a>, Error> {
        if flag.swap(true, Ordering::AcqRel) { Err(PurgeError::Running.into()) } else { Ok(PurgeGuard(flag)) }
    }
}

impl Drop for PurgeGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// While it lives no earlier state goes that is in no file yet. Who makes one holds the lock of `storage.manifest`, under which alone
/// another catalog is put in place.
struct RetentionHold<'a>(&'a Memory);

impl<'a> RetentionHold<'a> {
    fn begin(memory: &'a Memory) -> Result<RetentionHold<'a>, Error> {
        let _writer = memory.writer()?;
        memory.catalog.write().retained.keeps_all = true;
        Ok(RetentionHold(memory))
    }
}

impl Drop for RetentionHold<'_> {
    fn drop(&mut self) {
        self.0.catalog.write().retained.keeps_all = false;
    }
}

/// How a purge is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeOptions {
    /// Also removes copies: records with other ids and files elsewhere that have the same content. False by default.
    pub with_copies: bool,
    /// Only reports what would be removed; false by default. One dry run at a time, as it reads every kept state.
    pub dry_run: bool,
}

impl Memory {
    /// Removes records (by id), files (`files/PATH`), entries of the shared log (`shared/log/NUMBER`) and signals
    /// (`shared/signals/KEY`) from every state of every branch below the root branch of `branch`, and their bytes from
    /// the disk. Returns what was removed. Of an entry of the log its writer and time stay. A file that was renamed
    /// goes under its former names, too.
    ///
    /// Fails with [`PurgeError::NotOwner`] unless the caller is root, owns `main`, or owns `branch` and each branch
    /// that has one of the items. Kind `NotFound` if nothing has such a name, `Busy` while another purge runs.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{
    ///     Actor, Environment, Error, Memory, OpenMode, PurgeOptions, RecordEdit, RecordInput, View,
    /// };
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
    /// # let environment = Environment::real(ann.clone());
    /// # let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
    /// # let main = memory.root("main").unwrap();
    /// # let put = |id: &str, text: &str| {
    /// #     let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
    /// #     vec![RecordEdit::Put { id: id.into(), input }]
    /// # };
    /// memory.commit(&ann, main, put("leak", "hunter2"))?;
    /// let trial = memory.fork(&ann, main, "trial", None)?;
    /// memory.checkpoint(&ann, main, "monday", None)?;
    /// memory.purge(&ann, main, &["leak".to_owned()], PurgeOptions::default())?;
    ///
    /// for view in [View::Branch(main), View::Branch(trial), View::Checkpoint(main, "monday".into())] {
    ///     assert!(memory.snapshot(&view)?.get("leak")?.is_none());
    /// }
    /// let again = memory.purge(&ann, main, &["leak".to_owned()], PurgeOptions::default());
    /// assert_eq!(again.unwrap_err().code(), "nothing_to_purge");
    /// # Ok(())
    /// # }
    /// ```
    pub fn purge(
        &self,
        who: &Actor,
        branch: BranchId,
        items: &[String],
        options: PurgeOptions,
    ) -> Result<Value, Error> {
        let items = parse_items(items)?;
        // Asked before anything is looked for, so that nobody learns from an answer what a branch of others holds.
        self.check_owner(who, &self.catalog_now(), &[branch].into())?;
        let (signals, items): (BTreeSet<_>, BTreeSet<_>) = items.into_iter().partition(|item| is_signal(item));
        match signals.is_empty() {
            true => self.purge_states(who, branch, items, options),
            false => self.purge_with_signals(who, branch, (signals, items), options),
        }
    }

    /// Takes records, files and entries of logs out of every state. Fails with `PurgeError::Running` if another purge
    /// is under way, with `PurgeError::NothingFound` if nothing has such a name, with `PurgeError::NotOwner` if a
    /// branch of somebody else has some of it and the caller is not privileged, and with `BranchError::Moves` if
    /// branches get it again as fast as it is purged.
    pub(super) fn purge_states(
        &self,
        who: &Actor,
        branch: BranchId,
        items: BTreeSet<Arc<str>>,
        options: PurgeOptions,
    ) -> Result<Value, Error> {
        let mut search = PurgeSearch::new(items, options.with_copies);
        if options.dry_run {
            let _tried = PurgeGuard::begin(&self.maintenance.purge.is_dry_running)?;
            return self.preview_purge(who, branch, &mut search);
        }
        let _running = self.exclude_purges()?;
        let mut report = PurgeReport::default();
        self.purge_once(who, branch, &mut search, &mut report)?;
        // Before the names are forgotten: copies are known only by what the named records said.
        report.look_for_copies(self, who, branch, &search)?;
        report.not_found = search.not_found();
        search.forget_names();
        for _ in 0..PLAN_ROUNDS_MAX {
            // What came between the search and the entry has to be known by its hash, since the names may be anybody's
            // by now.
            search.note(&report.versions.iter().cloned().collect::<Vec<_>>());
            let catalog = self.catalog().clone();
            search.scan_catalog(self, &catalog, branch)?;
            let left = PurgePlan::new(branch, Arc::new(search.selection()), self.now()).find_affected(&catalog)?;
            drop(catalog);
            if left.holders.is_empty() && !search.has_rows() {
                return Ok(report.to_json(false));
            }
            self.purge_once(who, branch, &mut search, &mut report)?;
            search.forget_names();
        }
        Err(BranchError::Moves.into())
    }

    /// Finishes a purge that an earlier process, or a full disk, left over; no other one begins until what is returned
    /// is dropped. Fails with [`PurgeError::Running`] if one is under way, or if one can't be finished.
    pub(super) fn exclude_purges(&self) -> Result<PurgeGuard<'_>, Error> {
        let running = PurgeGuard::begin(&self.maintenance.purge.is_running)?;
        self.finish_purge(&mut self.storage.manifest.lock())?;
        Ok(running)
    }

    /// Returns what a purge would take out as of now, by the same steps; nothing is written.
    fn preview_purge(&self, who: &Actor, branch: BranchId, search: &mut PurgeSearch) -> Result<Value, Error> {
        let catalog = self.catalog().clone();
        search.scan_catalog(self, &catalog, branch)?;
        let purged = PurgePlan::new(branch, Arc::new(search.selection()), self.now()).find_affected(&catalog)?;
        if search.found_nothing(&search.mark(self, &purged.versions)?) {
            return Err(nothing_found_error(&search.not_found()));
        }
        self.check_owner(who, &catalog, &purged.holders)?;
        let mut report = PurgeReport { not_found: search.not_found(), ..PurgeReport::default() };
        report.branches.extend(purged.branches.iter().map(|branch| branch.path.clone()));
        report.versions = purged.versions;
        report.look_for_copies(self, who, branch, search)?;
        Ok(report.to_json(true))
    }

    /// Looks, takes out what was found, and has its bytes go.
    fn purge_once(
        &self,
        who: &Actor,
        branch: BranchId,
        search: &mut PurgeSearch,
        report: &mut PurgeReport,
    ) -> Result<(), Error> {
        self.commit_all_pending()?;
        let catalog = self.catalog().clone();
        search.scan_catalog(self, &catalog, branch)?;
        let mut purge = PurgePlan::new(branch, Arc::new(search.selection()), self.planned_time());
        let purged = purge.find_affected(&catalog)?;
        self.check_owner(who, &catalog, &purged.holders)?;
        let mark = search.mark(self, &purged.versions)?;
        if purged.holders.is_empty() && search.found_nothing(&mark) {
            self.drop_dead_bytes(&catalog)?;
            return Err(nothing_found_error(&search.not_found()));
        }
        // Before the entry: after a crash behind it the next opening finds by the mark whose bytes have to go.
        mark.save(&*self.disk)?;
        drop(catalog);
        self.commit_purge(who, &mut purge, report)?;
        self.finish_purge(&mut self.storage.manifest.lock())
    }

    /// Makes the entry that takes it out of every state; the bytes are still on the disk afterwards.
    fn commit_purge(&self, who: &Actor, purge: &mut PurgePlan, report: &mut PurgeReport) -> Result<(), Error> {
        self.ensure_room_to_free()?;
        // Gives a new user an entry with their name; below only the store's owner gets one.
        drop(self.writer_for(who, &[])?);
        let (holders, change) = self.make_purge_entry(&mut self.storage.manifest.lock(), who, purge, report)?;
        self.notify(change);
        self.forget_cached_results();
        self.forget_events(&holders);
        // Only once the entry is there: without it the note on the disk means nothing.
        self.maintenance.purge.is_unfinished.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes the entry, and returns the branches that had something. An opening after a crash makes it again, and has to find
    /// the same versions in earlier states. But a process lets go of some that an opening still has from the last manifest and the
    /// journal. So a seal comes first, and from then on none goes. The caller holds the lock of `storage.manifest`.
    fn make_purge_entry(
        &self,
        stored: &mut StoredManifest,
        who: &Actor,
        purge: &mut PurgePlan,
        report: &mut PurgeReport,
    ) -> Result<(BTreeSet<BranchId>, BranchEvent), Error> {
        let _kept = RetentionHold::begin(self)?;
        self.seal_locked(stored, &Compaction::Small)?;
        // Worked out again before the writer lock is taken: the seal has put other states in place of those before.
        purge.find_affected(&self.catalog_now())?;
        let mut holders = BTreeSet::new();
        let (entry, change) = {
            let mut writer = self.writer_with_nothing_pending()?;
            let time = self.next_time(&mut writer)?;
            let planned = purge.clamp_time(time);
            let log_record = LogRecord { time, planned, uid: who.uid, command: Box::new(purge.command()) };
            self.execute_planned(&mut writer, log_record, |catalog, log_record| {
                let after = purge.find_affected(catalog)?;
                // Again, under the writer lock: another branch may have got something of it since.
                self.check_owner(who, catalog, &after.holders)?;
                report.versions.extend(after.versions);
                report.branches.extend(after.branches.iter().map(|branch| branch.path.clone()));
                holders = after.holders;
                purge.prepare(catalog, log_record)
            })?
        };
        // Later rounds take what came meanwhile; the first entry is the one that was asked for.
        report.entry.get_or_insert(entry.hash);
        Ok((holders, change))
    }

    /// Returns a time that no later entry is before, for work done without the lock: it may be ahead of the clock.
    fn planned_time(&self) -> crate::object::Time {
        self.now().max(self.last_time())
    }

    /// Returns whether a user may purge everything: root, and the owner of `main`, whose store it is.
    pub(super) fn is_privileged(&self, who: &Actor, catalog: &Catalog) -> bool {
        let main = catalog.roots.get("main").and_then(|main| catalog.branches.get(main)).map(|main| main.uid);
        who.uid == 0 || main == Some(who.uid)
    }

    /// Refuses who may not take something out of all these branches. It names those that are open to everybody: what a closed
    /// branch holds and what is below it is its owner's alone to tell.
    fn check_owner(&self, who: &Actor, catalog: &Catalog, holders: &BTreeSet<BranchId>) -> Result<(), Error> {
        if self.is_privileged(who, catalog) {
            return Ok(());
        }
        let live = holders.iter().filter_map(|id| catalog.branches.get(id)).map(|it| (catalog.owner_uid(it), it.id));
        let ended = catalog.retained.ended.values().filter(|it| holders.contains(&it.id)).map(|it| (it.uid, it.id));
        let others: Vec<BranchId> = live.chain(ended).filter(|(uid, _)| *uid != who.uid).map(|(_, id)| id).collect();
        if others.is_empty() {
            return Ok(());
        }
        let open: Vec<&str> = others.into_iter().filter_map(|id| world_readable_path(catalog, id)).collect();
        let (shown, more) = (open.iter().take(5).copied().collect::<Vec<_>>().join(", "), open.len() > 5);
        let named = if open.is_empty() { "none of which is open to all".into() } else { shown };
        Err(PurgeError::NotOwner { branches: named + if more { ", …" } else { "" } }.into())
    }

    /// Lets go of documents and merge plans, of all branches: any may have been worked out from states that had it.
    fn forget_cached_results(&self) {
        let branches: Vec<BranchId> = self.catalog().branches.keys().copied().collect();
        for branch in branches {
            self.documents.lock().forget(branch);
            self.merging.planner.forget(branch);
        }
    }

    /// Has the events go that show entries of logs from which something went.
    fn forget_events(&self, holders: &BTreeSet<BranchId>) {
        let catalog = self.catalog().clone();
        let logs = holders.iter().filter(|id| catalog.is_log(**id)).filter_map(|id| catalog.branches.get(id));
        logs.filter_map(|log| log.parent).for_each(|owner| self.events.drop_lines(owner));
    }

    /// Finishes a purge of an earlier process. If that fails, for want of room say, it is tried again in the
    /// background.
    pub(in crate::memory) fn resume_purge(&self) -> Result<(), Error> {
        let is_unfinished = UnfinishedPurge::read(&*self.disk)?.is_some();
        self.maintenance.purge.is_unfinished.store(is_unfinished, Ordering::Release);
        self.finish_unfinished_purge();
        Ok(())
    }

    /// Returns whether a purge has its entry, and bytes of what it took out are on the disk still.
    pub(super) fn is_purge_unfinished(&self) -> bool {
        self.maintenance.purge.is_unfinished.load(Ordering::Acquire)
    }

    /// Finishes a purge in the background, if one is left over and none is under way. If that fails it is logged, so
    /// that the work behind it goes on; the purge stays left over, and the next call tries again.
    pub(in crate::memory) fn finish_unfinished_purge(&self) {
        if !self.is_purge_unfinished() {
            return;
        }
        let Ok(_running) = PurgeGuard::begin(&self.maintenance.purge.is_running) else { return };
        if let Err(error) = self.finish_purge(&mut self.storage.manifest.lock()) {
            log::warn!("a purge could not be finished and will be tried again: {error}; {}", error.hint());
        }
    }

    /// Has the bytes of a purge go whose entry is written; does nothing where there is none. The caller holds the lock of `storage.manifest`.
    fn finish_purge(&self, stored: &mut StoredManifest) -> Result<(), Error> {
        let Some(mark) = UnfinishedPurge::read(&*self.disk)? else { return Ok(()) };
        if let Some(purge) = self.first_purge_after(mark.before)? {
            let quoted = purged_items(&purge.entry);
            let rewrite_set = self.files_to_rewrite(mark, &purge.entry, &quoted)?;
            self.rewrite(stored, rewrite_set)?;
            MovedEntries::open(&self.disk)?.purge(&quoted)?;
            unfinished_graph::discard(&*self.disk);
        }
        // The mark goes last: after a crash before this the next opening repeats the whole step.
        UnfinishedPurge::remove(&*self.disk)?;
        self.maintenance.purge.is_unfinished.store(false, Ordering::Release);
        Ok(())
    }

    /// Writes again what holds bytes that are to go, and removes the old files.
    fn rewrite(&self, stored: &mut StoredManifest, rewrite_set: RewriteSet) -> Result<(), Error> {
        // Parts of the manifest and snapshots hold ids and paths, so none of them may stay.
        stored.request_rewrite();
        self.storage.trees.forget_snapshots();
        self.purge_file_index();
        let sealed = self.seal_locked(stored, &Compaction::Rewrite(Arc::new(rewrite_set)))?;
        // The new manifest is durable by now, so no opening needs the files that go.
        self.sweep(stored, &sealed)?;
        self.remove_old_journals()
    }

    /// Has the bytes go that no state has: what came and went between two seals has no name that could be found. Fails
    /// if there is no room for the new files, and as a seal does.
    pub(super) fn drop_dead_bytes(&self, catalog: &Catalog) -> Result<(), Error> {
        self.ensure_room_to_free()?;
        let rewrite_set = RewriteSet { packs: self.packs_with_dead_chunks(catalog)?, ..RewriteSet::default() };
        self.rewrite(&mut self.storage.manifest.lock(), rewrite_set)
    }

    /// Returns the first purge's entry behind an entry; `None` if the process ended before it was made.
    fn first_purge_after(&self, seq: u64) -> Result<Option<Arc<SignedEntry>>, Error> {
        let reader = self.history_reader();
        for seq in seq + 1..=reader.newest() {
            let signed = reader.entry(seq)?;
            if signed.entry.op == EntryOp::Purge {
                return Ok(Some(signed));
            }
        }
        Ok(None)
    }

    /// Returns what holds bytes of a purge: what was noted before its entry, and what seals and merges made in between.
    fn files_to_rewrite(
        &self,
        mark: UnfinishedPurge,
        purge: &Entry,
        quoted: &PurgedItems,
    ) -> Result<RewriteSet, Error> {
        let mut segments: HashSet<Hash> = mark.segments.into_iter().collect();
        for segment in self.storage.segments.list() {
            let mut hashes = segment.hashes()?.chunks_exact(32).filter_map(|hash| hash.try_into().ok().map(Hash));
            if hashes.any(|hash| quoted.versions.contains(&hash)) {
                segments.insert(segment.name());
            }
        }
        // Looked up after the entry: chunks that nothing has are exactly those that it took out, or that were dead
        // before.
        let packs = self.packs_with_dead_chunks(&self.catalog_now())?;
        let mut quotes = mark.quotes;
        quotes.extend(self.history.quotes(&self.storage.segments.blobs, mark.before + 1..purge.seq, quoted)?);
        Ok(RewriteSet { segments, packs, quotes })
    }

    /// Removes journal files before the one in use; a seal passes over those that it can't remove.
    fn remove_old_journals(&self) -> Result<(), Error> {
        let Some(journal) = self.journal() else { return Ok(()) };
        let remove = || -> std::io::Result<()> {
            let numbers: HashSet<u64> =
                self.disk.list("journal")?.iter().filter_map(|name| Journal::parse_file_name(name)).collect();
            for number in numbers.into_iter().filter(|number| *number < journal.number()) {
                self.disk.remove(&Journal::file_path(number))?;
            }
            // Before the mark goes: a removal that a power cut undoes would leave the bytes, and nothing would tell.
            self.disk.sync_dir("journal")
        };
        remove().map_err(|error| Error::io("an old journal file could not be removed", error))
    }
}

/// Returns what a purge took out, as decisions on merges name it.
fn purged_items(purge: &Entry) -> PurgedItems {
    let gone = &purge.detail.conflicts;
    PurgedItems {
        names: gone.iter().map(|version| version.id.clone()).collect(),
        versions: gone.iter().filter_map(|version| version.base).collect(),
    }
}

/// Names of one purge at the most: its entry holds them all, and they are at most a path long each.
const NAMES_MAX: usize = 1_000;

/// Checks what is to go: ids, `files/PATH`, `shared/log/NUMBER`, `shared/log/closed/NAME/NUMBER` or `shared/signals/KEY`.
fn parse_items(items: &[String]) -> Result<BTreeSet<Arc<str>>, Error> {
    if items.len() > NAMES_MAX {
        return Err(PurgeError::TooMany { named: items.len(), limit: NAMES_MAX }.into());
    }
    items.iter().map(|item| parse_item(item)).collect()
}

/// Returns [`PurgeError::NothingFound`] with the first five names.
pub(super) fn nothing_found_error(names: &[Arc<str>]) -> Error {
    let shown: Vec<String> = names.iter().take(5).map(|name| format!("'{name}'")).collect();
    let more = if names.len() > shown.len() { ", …" } else { "" };
    PurgeError::NothingFound(shown.join(", ") + more).into()
}

fn parse_item(item: &str) -> Result<Arc<str>, Error> {
    if LogEntryName::parse(item).is_some() || is_signal(item) {
        return Ok(item.into());
    }
    match item.strip_prefix("files/") {
        Some(path) if path.split('/').any(|name| !name.is_empty()) => Ok(item.trim_end_matches('/').into()),
        Some(_) => Err(PurgeError::BadItem(item.to_owned()).into()),
        None => check_record_id(item).map(|()| item.into()).map_err(|_| PurgeError::BadItem(item.to_owned()).into()),
    }
}

/// Returns the name path of a living branch if everybody may read it and all branches above it.
fn world_readable_path(catalog: &Catalog, id: BranchId) -> Option<&str> {
    let branch = catalog.branches.get(&id)?;
    let mut at = Some(branch);
    while let Some(above) = at {
        if above.mode & 0o5 != 0o5 {
            return None;
        }
        at = above.parent.and_then(|parent| catalog.branches.get(&parent));
    }
    Some(&branch.path)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
