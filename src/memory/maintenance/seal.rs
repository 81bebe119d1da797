//! Sealing: unsealed versions move out of memory and journal into segments, in the background.
//!
//! 1. The journal is rotated: commands from now on go to a new file. The old one is flushed after that; a
//!    flush of the new one would flush it first.
//! 2. What the catalog at that moment holds unsealed is written into segments, the entries into an
//!    archive, and what has changed of the catalog since the last seal into a part of the manifest, which names the new
//!    journal file.
//!    Rows of older segments that are still seen are compacted into the new one, where that makes few
//!    segments of many or a graph worth while.
//! 3. The states in use are replaced by equal ones that see the segments.
//! 4. The old journal files are removed.
//!
//! A crash before the manifest is renamed leaves the old manifest with all journal files, after it
//! the new one with the new file: both give the same catalog.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use imbl::OrdMap;

use super::relocations::{Compaction, Relocations, SealedSegment};
use crate::journal::Journal;
use crate::memory::admission::disk_room::is_full;
use crate::memory::catalog::{Catalog, OrphanFile};
use crate::memory::history::{self, Archive};
use crate::memory::merging::merge::PLAN_ROUNDS_MAX;
use crate::memory::storage::manifest::{self, Manifest, StoredManifest};
use crate::memory::storage::read_file;
use crate::memory::{Error, Memory};
use crate::object::Hash;
use crate::sync::{Condvar, Mutex};
use crate::workspace::FileOp;

/// Bytes of commands after which a seal begins: some 4,000 records of 384 dimensions, which a query
/// scans in a tenth of a millisecond.
const SEAL_BYTES: u64 = 8 << 20;
/// Garbage of a store that nobody writes to is collected after one part in this many of the idle interval, to be done at its end.
const IDLE_GC_ONE_IN: u32 = 4;
/// Bytes of long writes after which a seal begins also while more of them come: reading them back at an opening takes a second.
const WRITTEN_BYTES_MAX: u64 = 1 << 30;

/// Branches that are relocated with the writer's lock held, when a seal ends.
const RELOCATED_UNDER_LOCK_MAX: usize = 16;

/// How long operations on files may wait for the entry that commits them.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct MaintenanceRequests {
    seal: bool,
    commit_pending: bool,
    stop: bool,
    /// Files without a name that are not open any more, to let go of.
    orphans: Vec<OrphanFile>,
    /// A seal that was asked for is under way, for which `wait_until_idle` waits.
    is_busy: bool,
}

/// What the maintenance thread does next; it commits pending operations and expires in any case.
struct MaintenanceWork {
    seal: bool,
    orphans: Vec<OrphanFile>,
    /// Nothing was asked of it for the delay of an idle collection, so compaction may take its time.
    is_idle: bool,
}

/// Returns when long writes pause: what is sealed while more of them come takes time and memory from who writes.
#[derive(Default)]
struct WriteQuiescence {
    /// Bytes of long writes at the last look: as many now mean that nobody writes.
    last_written_bytes: u64,
    /// The journal file that was begun when garbage was last collected while idle.
    last_gc_journal: Option<u64>,
}

impl WriteQuiescence {
    /// Returns whether it is time to seal so many bytes of long writes: none came since the last look, or there are too many.
    fn is_due(&mut self, written: u64) -> bool {
        let before = std::mem::replace(&mut self.last_written_bytes, written);
        written >= SEAL_BYTES && (written == before || written >= WRITTEN_BYTES_MAX)
    }
}

/// The thread that seals in the background, seen from outside. The thread does not hold the store.
#[derive(Clone, Default)]
pub(in crate::memory) struct MaintenanceThread(Arc<(Mutex<MaintenanceRequests>, Condvar)>);

impl MaintenanceThread {
    fn request(&self, change: impl FnOnce(&mut MaintenanceRequests)) {
        change(&mut self.0.0.lock());
        self.0.1.notify_all();
    }

    /// Asks for an entry about files within a second.
    pub(in crate::memory) fn commit_pending_soon(&self) {
        let mut requests = self.0.0.lock();
        if !requests.commit_pending {
            requests.commit_pending = true;
            self.0.1.notify_all();
        }
    }

    /// Asks to let go of a file without a name, within a second.
    pub(in crate::memory) fn drop_file_soon(&self, file: OrphanFile) {
        self.request(|requests| {
            requests.orphans.push(file);
            requests.commit_pending = true;
        });
    }

    /// Waits for a request; returns what to do, or `None` if the thread shall end.
    fn wait_for_work(&self, idle_interval: Duration) -> Option<MaintenanceWork> {
        let mut requests = self.0.0.lock();
        requests.is_busy = false;
        self.0.1.notify_all();
        let has_no_work =
            |requests: &mut MaintenanceRequests| !requests.seal && !requests.stop && !requests.commit_pending;
        let (mut requests, is_idle) = self.0.1.wait_timeout_while(requests, idle_interval, has_no_work);
        if !is_idle && !requests.seal && !requests.stop {
            (requests, _) =
                self.0.1.wait_timeout_while(requests, COMMIT_INTERVAL, |requests| !requests.seal && !requests.stop);
        }
        let work = MaintenanceWork { seal: requests.seal, orphans: std::mem::take(&mut requests.orphans), is_idle };
        (requests.seal, requests.commit_pending, requests.is_busy) = (false, false, work.seal);
        (!requests.stop).then_some(work)
    }

    /// Waits until no seal is asked for or under way, or the thread was told to end.
    pub(in crate::memory) fn wait_until_idle(&self) {
        let requests = self.0.0.lock();
        let sealing = |requests: &mut MaintenanceRequests| (requests.seal || requests.is_busy) && !requests.stop;
        drop(self.0.1.wait_while(requests, sealing));
    }

    /// Returns whether the thread was told to end, as long work asks between its parts.
    pub(in crate::memory) fn is_stopping(&self) -> bool {
        self.0.0.lock().stop
    }

    /// Tells the thread to end after the work at hand, and does not wait.
    pub(in crate::memory) fn stop(&self) {
        self.request(|requests| requests.stop = true);
    }
}

/// The store at the moment a new journal file began.
struct Rotation {
    /// The store as it was, whose states are not moved to new files yet.
    manifest: Manifest,
    /// Numbers of the older journal files, removed once a manifest names the new one.
    journals: Vec<u64>,
    /// Segments that commands in them name, which a seal that fails has to keep from the sweep.
    journal_segments: HashSet<Hash>,
    /// The most bytes that the seal writes of what stood in them alone.
    written_bytes_max: u64,
}

/// What is on disk before a seal, by which one that had no room for all of it is undone.
struct DiskBeforeSeal {
    names: HashSet<Hash>,
    manifest: Vec<u8>,
}

impl DiskBeforeSeal {
    fn read(memory: &Memory) -> Result<DiskBeforeSeal, Error> {
        let names = memory.storage.segments.blobs.names();
        let names = names.map_err(|error| Error::io("the segments' folder could not be read", error))?;
        Ok(DiskBeforeSeal { names, manifest: read_file(&*memory.disk, manifest::PATH)? })
    }
}

impl Memory {
    /// Writes everything unsealed into segments, and returns once that is durable. Small segments are merged in
    /// passing. On a full disk it is tried again with the reserve. Kind `Full` if that is not enough: what was not
    /// sealed stays in the journal.
    pub fn seal(&self) -> Result<(), Error> {
        self.seal_and_compact(&Compaction::Small)
    }

    /// Like [`Memory::seal`], and says which segments are compacted. Fails like [`Memory::seal`].
    pub(in crate::memory) fn seal_and_compact(&self, compaction: &Compaction) -> Result<(), Error> {
        self.commit_all_pending()?;
        self.seal_locked(&mut self.storage.manifest.lock(), compaction).map(drop)
    }

    /// Like [`Memory::seal_and_compact`], for a caller that holds the lock of `storage.manifest`; returns the catalog
    /// that the new manifest names. On a full disk it uses the reserve. Fails like [`Memory::seal`].
    pub(super) fn seal_locked(&self, stored: &mut StoredManifest, compaction: &Compaction) -> Result<Catalog, Error> {
        self.refuse_if_closed()?;
        let before = DiskBeforeSeal::read(self)?;
        let mut sealed = self.seal_once(stored, compaction, self.spare_bytes());
        if sealed.as_ref().is_err_and(is_full) {
            self.undo_failed_seal(stored, before)?;
            if self.admission.room.reserve.release_all() {
                sealed = self.seal_once(stored, compaction, 0);
            }
        }
        self.admission.room.reserve.fill();
        sealed
    }

    /// Removes what a seal made that had no room for all of it, where no manifest names that.
    fn undo_failed_seal(&self, stored: &StoredManifest, before: DiskBeforeSeal) -> Result<(), Error> {
        if read_file(&*self.disk, manifest::PATH)? != before.manifest {
            return Ok(());
        }
        let live = || {
            let mut live = self.live_files(stored);
            live.extend(&before.names);
            self.storage.segments.drop_dead(&live);
            self.storage.trees.drop_dead_packs(&live);
            live
        };
        let swept = self.storage.segments.blobs.sweep(live);
        swept.map(drop).map_err(|error| Error::io("what a seal could not finish could not be removed", error))
    }

    /// Seals once; older segments are compacted for at most `spare_bytes`. A failure leaves all older journal files in use.
    fn seal_once(
        &self,
        stored: &mut StoredManifest,
        compaction: &Compaction,
        spare_bytes: u64,
    ) -> Result<Catalog, Error> {
        let Rotation { manifest, journals, journal_segments, written_bytes_max } = self.rotate()?;
        self.admission.room.note_rotation(written_bytes_max);
        let (catalog, frees_files) =
            self.seal_rotated(stored, manifest, compaction, spare_bytes).inspect_err(|error| {
                // The log records that name these segments are still the only reference to their rows, so a sweep must keep them.
                self.storage.journal_segments.lock().extend(&journal_segments);
                // The next try comes sooner than after a seal, and not with every command. On a full disk it comes with room.
                let head_start = if is_full(error) { 0 } else { SEAL_BYTES / 2 };
                self.maintenance.seal_head_start_bytes.store(head_start, Ordering::Release);
            })?;
        self.maintenance.seal_head_start_bytes.store(0, Ordering::Release);
        // Only now: until the manifest names the new journal file, an opening replays these.
        for number in journals {
            let path = Journal::file_path(number);
            if let Err(error) = self.disk.remove(&path) {
                log::warn!("the journal file {path} is not needed any longer and stays: {error}");
            }
        }
        // A collection sweeps by itself, and reports failures.
        if frees_files
            && !stored.rewrites_early()
            && let Err(error) = self.sweep(stored, &catalog)
        {
            log::warn!("segments that others took the place of stay until the next gc: {error}");
        }
        self.maintenance.indexer.wake();
        self.maintenance.file_indexer.refresh();
        self.maintenance.embedding.wake();
        Ok(catalog)
    }

    /// Steps 2 and 3; returns the catalog that the manifest names, and whether others took the place of older files.
    fn seal_rotated(
        &self,
        stored: &mut StoredManifest,
        mut manifest: Manifest,
        compaction: &Compaction,
        spare_bytes: u64,
    ) -> Result<(Catalog, bool), Error> {
        let rotated = manifest.catalog.clone();
        let sealed = self.write_segments(&manifest.catalog, compaction, spare_bytes)?;
        let (before, blobs) = (self.history.archives().len(), &self.storage.segments.blobs);
        let archives = self.history.build_archives(blobs, manifest.seq)?;
        let archives = match compaction {
            Compaction::Rewrite(rewrite_set) => history::without_quotes(blobs, archives, &rewrite_set.quotes)?,
            _ => archives,
        };
        let drops_moved_entries =
            archives.first().map_or(0, |archive| archive.first) < manifest.catalog.start.first_seq;
        let archives = history::without_entries_before(blobs, archives, manifest.catalog.start.first_seq)?;
        manifest.archives = history::archive_names(&archives);
        let mut tree_sealer = self.pack_files(&manifest.catalog)?;
        let mut tree_relocator = self.repack_files(&manifest.catalog, compaction)?;
        let mut relocations = Relocations::new(&sealed, &mut tree_sealer, tree_relocator.as_mut());
        relocations.relocate_catalog(&mut manifest.catalog);
        let frees_state_files = manifest.catalog.write_retained(blobs)?;
        manifest.file_index = self.seal_file_index(spare_bytes);
        manifest.sidecars = manifest::reachable_sidecars(&manifest.catalog);
        manifest.sidecars.extend(self.storage.file_index.derived_files().iter().map(|file| file.name()));
        stored.expect_sidecars(&manifest.sidecars);
        let frees_manifest_files = stored.write_catalog(&manifest.catalog, blobs, &self.storage.trees, |parts| {
            manifest::write(&self.disk, &manifest, parts, &self.signing_key)
        })?;
        stored.note_sidecars(manifest.sidecars.clone());
        let frees_index_files = self.storage.file_index.replace_manifest_names(&manifest.file_index);
        let frees_files = frees_manifest_files
            || frees_index_files
            || frees_state_files
            || sealed.iter().any(SealedSegment::compacts)
            || drops_moved_entries
            || archives.len() < before;
        // The disk first: where the manifest can't be written, the catalog stays as it was.
        self.install_sealed(&mut relocations, rotated, &manifest, archives)?;
        self.admission.room.note_seal(stored.bytes());
        Ok((manifest.catalog, frees_files))
    }

    /// Begins a new journal file. It is made and the one before is flushed while others write; they wait for the
    /// exchange of the two alone.
    fn rotate(&self) -> Result<Rotation, Error> {
        self.sync()?;
        let old = self.journal().ok_or_else(|| Error::ReadOnly("it was opened for reading".to_owned()))?;
        let names =
            self.disk.list("journal").map_err(|error| Error::io("the journal's folder could not be read", error))?;
        let numbers = names.iter().filter_map(|name| Journal::parse_file_name(name));
        let journals = numbers.filter(|number| *number <= old.number()).collect();
        let new = Journal::create_after(&self.disk, &old, &self.environment.salt())?;
        let written_bytes_max = self.waiting_bytes_max();
        let (new, manifest, journal_segments) = self.swap_journal(new)?;
        // The manifest names the new file, so the old one must be on the device first. Until then its log records need their segments.
        new.flush_previous().inspect_err(|_| self.storage.journal_segments.lock().extend(&journal_segments))?;
        Ok(Rotation { manifest, journals, journal_segments, written_bytes_max })
    }

    /// Puts a new journal file in place of the one in use.
    fn swap_journal(&self, new: Journal) -> Result<(Arc<Journal>, Manifest, HashSet<Hash>), Error> {
        let mut writer = match self.writer_with_nothing_pending() {
            Ok(writer) => writer,
            Err(error) => {
                new.remove(&self.disk);
                return Err(error);
            }
        };
        if let Err(error) = new.begin() {
            new.remove(&self.disk);
            return Err(error.into());
        }
        let new = Arc::new(new);
        self.catalog.write().retained.pin_states_before_deletes();
        let manifest = Manifest {
            journal: new.number(),
            seq: writer.seq,
            tip: writer.tip,
            time: writer.time,
            archives: Vec::new(),
            file_index: Vec::new(),
            catalog: self.catalog().clone(),
            sidecars: Default::default(),
        };
        writer.journal = Some(new.clone());
        writer.link = writer.tip;
        (writer.unsealed_bytes, writer.written_bytes) = (0, 0);
        writer.clean_end = 0;
        Ok((new, manifest, std::mem::take(&mut *self.storage.journal_segments.lock())))
    }

    /// Puts equal, sealed states in place of those in use. What was changed since the rotation is moved while others
    /// write, as long as it is much.
    fn install_sealed(
        &self,
        relocations: &mut Relocations<'_>,
        rotated: Catalog,
        manifest: &Manifest,
        archives: Vec<Arc<Archive>>,
    ) -> Result<(), Error> {
        let (mut relocated, mut seen) = (manifest.catalog.branches.clone(), rotated.branches.clone());
        let (mut recent, mut seen_recent) = (OrdMap::new(), rotated.retained.recent.clone());
        for _ in 0..PLAN_ROUNDS_MAX {
            let present = self.catalog().clone();
            let count = relocations.catch_up(&mut relocated, &seen, &present.branches)
                + relocations.catch_up_recent(&mut recent, &seen_recent, &present);
            (seen, seen_recent) = (present.branches, present.retained.recent);
            if count <= RELOCATED_UNDER_LOCK_MAX {
                break;
            }
        }
        // Nothing is committed meanwhile, so that no branch gets a state that is not moved.
        let writer = self.writer()?;
        let present = self.catalog().clone();
        relocations.catch_up(&mut relocated, &seen, &present.branches);
        relocations.catch_up_recent(&mut recent, &seen_recent, &present);
        let mut retained = present.retained.clone();
        (retained.recent, retained.files) = (recent, manifest.catalog.retained.files.clone());
        if !Arc::ptr_eq(&rotated.retained.files, &present.retained.files) {
            // A purge replaced earlier states meanwhile, and those written here still have what it took out.
            retained = present.retained.clone();
            relocations.relocate_retained(&mut retained, &present.branches);
        }
        let rewrite_count = present.rewrite_count + u64::from(relocations.compacts());
        let installed = Catalog { branches: relocated, retained, rewrite_count, ..present };
        let before = std::mem::replace(&mut *self.catalog.write(), installed);
        let history = self.history.install(archives, manifest.catalog.start);
        drop(writer);
        // Freed with no lock held, as letting go of large states takes long.
        drop((before, history));
        Ok(())
    }

    /// Seals long writes, if no more of them come; the first look only notes how many there are.
    fn seal_when_quiet(&self, quiescence: &mut WriteQuiescence) -> Result<(), Error> {
        if !quiescence.is_due(self.written_bytes()) {
            return Ok(());
        }
        // Flushing this much takes time, in which more may come; a seal would then slow its writer down. So flush, and
        // look again.
        self.sync()?;
        if quiescence.is_due(self.written_bytes()) { self.seal_and_reclaim() } else { Ok(()) }
    }

    /// Asks the maintenance thread to seal where enough has gathered.
    pub(in crate::memory) fn wake_maintenance(&self) {
        if self.sealable_bytes() >= SEAL_BYTES {
            self.maintenance.thread.request(|requests| requests.seal = true);
        }
    }

    /// Starts the thread that seals, commits and expires in the background. It ends with the store.
    pub(in crate::memory) fn start_maintenance(self: &Arc<Self>) {
        let (memory, maintenance) = (Arc::downgrade(self), self.maintenance.thread.clone());
        let gc_delay = idle_gc_delay(self.environment.idle_interval);
        let last_gc_journal = self.journal().map(|journal| journal.number());
        let run = move || {
            let mut quiescence = WriteQuiescence { last_gc_journal, ..WriteQuiescence::default() };
            while let Some(work) = maintenance.wait_for_work(gc_delay)
                && let Some(memory) = memory.upgrade()
            {
                // After a panic in the middle of a change the writer guard has closed the store, so catching it here is safe.
                match catch_unwind(AssertUnwindSafe(|| memory.run_maintenance(&work, &mut quiescence))) {
                    // Closed meanwhile, or told to whoever had to write.
                    Ok(Err(error)) if memory.is_read_only() => log::debug!("nothing is sealed any more: {error}"),
                    Ok(Err(error)) => {
                        log::warn!("work in the background failed and will be tried again: {error}; {}", error.hint())
                    }
                    Ok(Ok(())) => {}
                    Err(_) => log::error!("work in the background ended in an internal error and will be tried again"),
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("maintenance".to_owned()).spawn(run) {
            log::warn!("sealing in the background is off, the journal will grow: {error}");
            self.maintenance.thread.stop();
        }
        self.wake_maintenance();
        // An earlier process may have left long writes, of which only a round of the thread takes note.
        self.maintenance.thread.commit_pending_soon();
    }

    /// One round of the maintenance thread: whatever was asked, pending operations are committed and files expire.
    fn run_maintenance(&self, work: &MaintenanceWork, quiescence: &mut WriteQuiescence) -> Result<(), Error> {
        for OrphanFile { who, branch, inode } in &work.orphans {
            if let Err(error) = self.edit_unguarded(who, *branch, FileOp::Drop { inode: *inode }) {
                log::debug!("a file without a name goes when the store is opened next: {error}");
            }
        }
        self.resolve_all_written();
        self.commit_all_pending()?;
        if self.admission.room.is_tight() {
            self.make_room();
        }
        self.finish_unfinished_purge();
        self.expire_if_due(self.environment.idle_interval)?;
        if work.is_idle {
            quiescence.last_gc_journal = self.gc_when_idle(quiescence.last_gc_journal)?;
            Ok(())
        } else if work.seal {
            self.seal_and_reclaim()
        } else if self.written_bytes() >= SEAL_BYTES {
            self.maintenance.thread.commit_pending_soon();
            self.seal_when_quiet(quiescence)
        } else {
            Ok(())
        }
    }

    /// Seals a store that is about to be closed: an opening, maybe by a later version, then replays nothing. A store that
    /// could not be sealed is closed all the same, unless a flush of its journal failed.
    pub(in crate::memory) fn seal_to_close(&self) -> Result<(), Error> {
        if self.sealable_bytes() == 0 && self.storage.file_index.bytes_in_memory() == 0 {
            return Ok(());
        }
        let Err(error) = self.seal() else { return Ok(()) };
        if self.is_read_only() {
            return Err(error);
        }
        log::warn!("the store could not be sealed and will take longer to open: {error}; {}", error.hint());
        Ok(())
    }

    /// Tells the maintenance thread to end, and waits for a seal that is under way.
    pub(in crate::memory) fn stop_maintenance(&self) {
        self.maintenance.thread.stop();
        drop(self.storage.manifest.lock());
    }
}

/// Returns how long nothing must have been written before garbage is collected.
fn idle_gc_delay(idle_interval: Duration) -> Duration {
    idle_interval / IDLE_GC_ONE_IN
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
