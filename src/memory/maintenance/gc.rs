//! Letting go of what nobody needs: expired branches, states past `config/keep`, unreachable segments.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::compact::CompactionPolicy;
use super::relocations::Compaction;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{Branch, BranchId, Catalog, LeaseState};
use crate::memory::storage::manifest::StoredManifest;
use crate::memory::transaction::commands::{DiscardBranch, NoteDroppedStates};
use crate::memory::{Actor, BranchError, BranchEvent, Error, KEPT_DROPPED, Kind, LimitError, Memory};
use crate::object::{Hash, Time};

/// Bytes of the journal from which on a store that is left alone is sealed.
const IDLE_GC_JOURNAL_BYTES: u64 = 64 << 10;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// What the labels of checkpoints begin with that `engramfs guard` takes, by which gc lists those that nobody ended.
pub const GUARD_PREFIX: &str = "guard-";

impl Memory {
    /// Collects garbage. Returns what was removed; with `dry_run` what would be.
    ///
    /// A branch is discarded when its `config/ttl` has run out; the default, an empty `ttl`, never does. With
    /// `older_than` only branches that nobody has written to for that long are. Guards that nobody ended are listed,
    /// and stay. An unfinished purge is finished first; if that fails, the report says so.
    ///
    /// Fails with a [`ClockError`](crate::memory::ClockError) if the clock jumped, except in a dry run, and with kind
    /// `Io` or `Damaged` if a file of the store can't be read or written. What was removed before a failure stays
    /// removed.
    pub fn gc(&self, who: &Actor, older_than: Option<Duration>, dry_run: bool) -> Result<Value, Error> {
        let age = BranchExpiry { now: self.now(), min_age: older_than.unwrap_or_default() };
        let catalog = self.catalog().clone();
        let expired = expired_branches(&catalog, &age);
        if dry_run {
            let path = |id: &BranchId| catalog.branches.get(id).map(|branch| branch.path.to_string());
            let paths: Vec<String> = expired.iter().filter_map(path).collect();
            let states = catalog.outdated_states(age.now)?.len();
            let (files, bytes) = (self.expire_files(true)?, self.unreachable_bytes()?);
            let guards = open_guards(&catalog, age.now);
            return Ok(json!({
                "dry_run": true, "branches": paths, "states": states, "files": files, "bytes": bytes,
                "open_guards": guards, "purge_unfinished": self.is_purge_unfinished(),
            }));
        }
        drop(catalog);
        // With a clock that jumped ahead, everything would look expired.
        self.check_clock()?;
        let mut paths = Vec::new();
        for branch in expired {
            paths.extend(self.discard_expired(who, branch, age.min_age)?);
        }
        let files = self.expire_files(false)?;
        // With no lock held, so that listeners can be told of what expired; a seal has another thread do that.
        self.commit_all_pending()?;
        self.finish_unfinished_purge();
        let policy = if self.admission.room.is_tight() { CompactionPolicy::TIGHT } else { CompactionPolicy::GC };
        let (states, bytes) = self.run_gc(&mut self.storage.manifest.lock(), age.now, policy)?;
        let guards = open_guards(&self.catalog_now(), age.now);
        Ok(json!({
            "dry_run": false, "branches": paths, "states": states, "files": files, "bytes": bytes,
            "open_guards": guards, "purge_unfinished": self.is_purge_unfinished(),
        }))
    }

    /// Lets go of what is outdated, seals, removes what nothing reaches, and compacts; returns how many states went and
    /// how many bytes that freed. The caller holds the lock of `storage.manifest`. Fails like a seal, or if a file
    /// can't be removed or written again. On a disk that is nearly full a failed compaction is logged only.
    pub(in crate::memory) fn run_gc(
        &self,
        stored: &mut StoredManifest,
        now: Time,
        policy: CompactionPolicy,
    ) -> Result<(usize, u64), Error> {
        // Before the seal, which leaves out what is outdated. By a clock that jumped everything would be.
        let states = if self.check_clock().is_ok() { self.drop_outdated_states(now)? } else { 0 };
        self.gc_file_index();
        // While this is set parts of the manifest become one as soon as that saves something, and a seal leaves the
        // sweep to this.
        stored.set_rewrites_early(true);
        let reclaimed = self.seal_sweep_compact(stored, policy);
        // After a failure, too, or later seals would leave their files to a collection that may never come.
        stored.set_rewrites_early(false);
        Ok((states, reclaimed?))
    }

    /// Seals, sweeps, compacts and fills the reserve, in this order; returns how many bytes were freed.
    fn seal_sweep_compact(&self, stored: &mut StoredManifest, policy: CompactionPolicy) -> Result<u64, Error> {
        // The catalog that was sealed holds files that compaction frees.
        let sealed = self.seal_locked(stored, &Compaction::Small)?;
        let swept = self.sweep(stored, &sealed)?;
        drop(sealed);
        let compacted = self.compact(stored, policy);
        // Filled with what was just given back, before anybody else writes to it: the next full disk needs the reserve
        // again.
        self.admission.room.reserve.fill();
        match compacted {
            Ok(more) => Ok(swept + more),
            // The sweep has freed room already, which is what a full disk needed.
            Err(error) if self.admission.room.is_tight() => {
                log::warn!("files of which little is needed stay as they are: {error}; {}", error.hint());
                Ok(swept)
            }
            Err(error) => Err(error),
        }
    }

    /// Collects on a disk that is full. The caller holds the lock of `storage.manifest`. Fails like
    /// `Memory::run_gc`.
    pub(in crate::memory) fn gc_on_full_disk(&self, stored: &mut StoredManifest) -> Result<(usize, u64), Error> {
        self.run_gc(stored, self.now(), CompactionPolicy::TIGHT)
    }

    /// Seals, and removes what that left without use; for the maintenance thread. Fails like a commit of pending
    /// operations and a seal; where only the removal fails it is logged.
    pub(in crate::memory) fn seal_and_reclaim(&self) -> Result<(), Error> {
        self.commit_all_pending()?;
        // With a clock that jumped ahead, everything would look expired.
        if self.check_clock().is_ok() {
            // Under the lock, as in a collection: a purge that makes its entry goes by the branches that are remembered.
            let _stored = self.storage.manifest.lock();
            self.drop_outdated_states(self.now())?;
        }
        if self.drop_excess_states()? {
            self.announce_dropped_states();
        }
        // After states went: what only they held counts for nobody any more.
        self.recount_frozen_metadata(&self.catalog_now());
        let mut stored = self.storage.manifest.lock();
        let sealed = self.seal_locked(&mut stored, &Compaction::Small)?;
        let reclaimed = self.sweep(&stored, &sealed).and_then(|_| {
            drop(sealed);
            self.compact_if_mostly_dead(&mut stored)
        });
        if let Err(error) = reclaimed {
            log::warn!("what nobody needs stays on the disk for now: {error}; {}", error.hint());
        }
        Ok(())
    }

    /// Returns how many bytes wait for a seal; more behind one that failed, so that the next one comes sooner.
    pub(in crate::memory) fn sealable_bytes(&self) -> u64 {
        self.unsealed_bytes() + self.maintenance.seal_head_start_bytes.load(Ordering::Acquire)
    }

    /// Collects garbage while nothing else is to be done, if anything may have come to be some since `last_gc_journal`:
    /// the number of the journal file that the last collection began. Returns that of this one. Fails like
    /// `Memory::run_gc`; nothing is done where the clock can't be trusted.
    pub(in crate::memory) fn gc_when_idle(&self, last_gc_journal: Option<u64>) -> Result<Option<u64>, Error> {
        let Some(journal) = self.journal() else { return Ok(last_gc_journal) };
        let indexed = self.storage.file_index.bytes_in_memory();
        // Without room for it the index stays in memory, however often this is tried.
        let unsealed = self.sealable_bytes().max(if indexed <= self.spare_bytes() { indexed } else { 0 });
        let is_small = journal.length() < IDLE_GC_JOURNAL_BYTES && unsealed < IDLE_GC_JOURNAL_BYTES;
        let now = self.now();
        let has_outdated = || self.catalog_now().outdated_states(now).is_ok_and(|outdated| !outdated.is_empty());
        if is_small && Some(journal.number()) == last_gc_journal && !has_outdated() || self.check_clock().is_err() {
            return Ok(last_gc_journal);
        }
        self.commit_all_pending()?;
        self.run_gc(&mut self.storage.manifest.lock(), now, CompactionPolicy::IDLE)?;
        Ok(self.journal().map(|journal| journal.number()))
    }

    /// Discards the branches whose `config/ttl` has run out, each in its owner's name. The first branch where it fails
    /// ends it; those before it are discarded then.
    pub(in crate::memory) fn discard_all_expired(&self) -> Result<(), Error> {
        let age = BranchExpiry { now: self.now(), min_age: Duration::ZERO };
        let catalog = self.catalog().clone();
        for id in expired_branches(&catalog, &age) {
            let uid = catalog.branch(id)?.uid;
            let owner = Actor { uid, name: catalog.user(uid), gid: 0 };
            self.discard_expired(&owner, id, age.min_age)?;
        }
        Ok(())
    }

    /// Discards a branch, if that is still due when nobody else writes; returns its path.
    fn discard_expired(&self, who: &Actor, branch: BranchId, min_age: Duration) -> Result<Option<String>, Error> {
        let mut path = None;
        let command = || {
            let catalog = self.catalog();
            let branch = catalog.branch(branch)?;
            // Asked again under the writer lock, as somebody may have written to the branch, or forked it, since it was
            // found.
            if !(BranchExpiry { now: self.now(), min_age }).expires(branch) || !branch.children.is_empty() {
                return Err(BranchError::InUse.into());
            }
            path = Some(branch.path.to_string());
            Ok(DiscardBranch(branch.id))
        };
        self.ensure_room_to_free()?;
        match self.transact_without_reserving(who, &[Some(branch)], command) {
            Err(error) if matches!(error.kind(), Kind::Busy | Kind::Gone) => Ok(None),
            done => done.map(|_| path),
        }
    }

    /// Lets go of the older half of the earlier states: they are no reason for a full disk. Returns whether there were
    /// any. Fails only with `WouldWait`, on a thread that must not wait for the writer.
    pub(in crate::memory) fn drop_oldest_states(&self) -> Result<bool, Error> {
        let _writer = self.writer()?;
        Ok(self.catalog.write().retained.drop_oldest())
    }

    /// Tells the root branches that earlier states went for a full disk, or for their memory: in their lineage, or where not even an entry
    /// has room, those who listen. Called with no lock held.
    pub(in crate::memory) fn announce_dropped_states(&self) {
        let told = Error::from(LimitError::KeptDropped);
        log::warn!("{told}; {}", told.hint());
        for (_, branch) in self.roots() {
            let command = || Ok(NoteDroppedStates(branch));
            if let Err(error) = self.transact_without_reserving(&self.environment.owner, &[Some(branch)], command) {
                log::warn!("the lineage does not say so: {error}; {}", error.hint());
                self.notify(BranchEvent::for_root(branch, KEPT_DROPPED));
            }
        }
    }

    /// Has nobody find earlier states that need not stay readable, and the next seal let go of them; returns how many.
    fn drop_outdated_states(&self, now: Time) -> Result<usize, Error> {
        let mut outdated = self.catalog_now().outdated_states(now)?;
        let count = outdated.len();
        let _writer = self.writer()?;
        let mut catalog = self.catalog.write();
        // Nobody may find again what a seal is about to leave out.
        outdated.extend(catalog.retained.excess.iter());
        catalog.retained.outdated = Arc::new(outdated);
        catalog.forget_ended_branches(now);
        Ok(count)
    }

    /// Has nobody find earlier states whose files take too much memory, and the next seal let go of them; returns
    /// whether there were any. Kind `Io` or `Damaged` if a file of states can't be read.
    fn drop_excess_states(&self) -> Result<bool, Error> {
        let excess = self.catalog_now().excess_states(self.admission.files_held.retained_limit_bytes())?;
        let found = !excess.is_empty();
        if !found && self.catalog().retained.excess.is_empty() {
            return Ok(false);
        }
        let _writer = self.writer()?;
        let mut catalog = self.catalog.write();
        Arc::make_mut(&mut catalog.retained.outdated).extend(&excess);
        catalog.retained.excess = Arc::new(excess);
        Ok(found)
    }

    /// Removes the files that nothing reaches. The caller holds the lock of `storage.manifest` and gives the catalog
    /// that the manifest names: what went out of use since then is needed still, by an opening after a crash. Returns
    /// how many bytes that freed. Fails with `Error::Disk` if a file can't be removed.
    pub(in crate::memory) fn sweep(&self, stored: &StoredManifest, sealed: &Catalog) -> Result<u64, Error> {
        let live = || {
            let mut live = self.live_files(stored);
            // Both catalogs count: the manifest on the disk names the files of `sealed`, and readers have those of the
            // present one.
            live.extend(live_files(sealed));
            self.storage.segments.drop_dead(&live);
            self.storage.trees.drop_dead_packs(&live);
            live
        };
        self.storage
            .segments
            .blobs
            .sweep(live)
            .map_err(|error| Error::io("unreachable segments could not be removed", error))
    }

    /// Returns the names of all files in the blob store that are needed, by the catalog, the manifest or the journal.
    pub(in crate::memory) fn live_files(&self, stored: &StoredManifest) -> HashSet<Hash> {
        let mut live = live_files(&self.catalog_now());
        live.extend(stored.names());
        live.extend(self.history.archives().iter().map(|archive| archive.name));
        live.extend(self.storage.trees.snapshot_names());
        live.extend(self.storage.file_index.live_files());
        live.extend(self.storage.journal_segments.lock().iter());
        live
    }

    fn unreachable_bytes(&self) -> Result<u64, Error> {
        let live = self.live_files(&self.storage.manifest.lock());
        let unreferenced = self.storage.segments.blobs.unreferenced(&live);
        let unreferenced = unreferenced.map_err(|error| Error::io("the segments' folder could not be read", error))?;
        let length =
            |name: &String| self.disk.open(&format!("{}/{name}", crate::segment::FOLDER)).and_then(|file| file.len());
        Ok(unreferenced.iter().filter_map(|name| length(name).ok()).sum())
    }
}

/// Returns the names of all files that a catalog needs: segments with graphs and vectors, packs, files of states.
pub(in crate::memory) fn live_files(catalog: &Catalog) -> HashSet<Hash> {
    crate::memory::catalog::reachable_blobs(catalog)
}

/// Returns the guards that nobody has ended: they are listed and stay, since only who began one knows whether its step
/// went well.
fn open_guards(catalog: &Catalog, now: Time) -> Vec<Value> {
    let guards = catalog.branches.values().flat_map(|branch| {
        let labels = branch.checkpoints.iter().filter(|(label, _)| label.starts_with(GUARD_PREFIX));
        labels.map(|(label, checkpoint)| (&branch.path, label, checkpoint.time))
    });
    let line = |(path, label, taken): (&Arc<str>, &Arc<str>, Time)| {
        let age = now.0.saturating_sub(taken.0).max(0) / NANOS_PER_SECOND;
        json!({ "branch": &**path, "checkpoint": &**label, "taken": taken.to_string(), "age": format!("{age}s") })
    };
    guards.map(line).collect()
}

/// How old a branch must be to expire.
struct BranchExpiry {
    now: Time,
    /// What it must be at least, beside its `config/ttl`; 0 if nobody asks for more.
    min_age: Duration,
}

impl BranchExpiry {
    fn expires(&self, branch: &Branch) -> bool {
        // A lease holder may be at work without having written for long.
        let idle_since = match branch.lease {
            LeaseState::Free => branch.changed,
            LeaseState::Held => return false,
            LeaseState::Lost(time) => branch.changed.max(time),
        };
        let age = self.now.0 - idle_since.0;
        let least = i64::try_from(self.min_age.as_nanos()).unwrap_or(i64::MAX);
        branch.parent.is_some()
            && branch.settings.duration_nanos(Setting::Ttl).is_some_and(|ttl| age >= ttl)
            && age >= least
    }
}

/// Returns expired branches, children before their parents.
fn expired_branches(catalog: &Catalog, age: &BranchExpiry) -> Vec<BranchId> {
    let branches = catalog.branches.values().map(|branch| &**branch);
    let mut chosen: Vec<(u64, &Branch)> =
        branches.filter(|branch| age.expires(branch)).map(|branch| (catalog.depth(branch), branch)).collect();
    // The deepest come first, so that a parent whose children all go is known to be free by its own turn.
    chosen.sort_by_key(|(depth, branch)| (Reverse(*depth), branch.id));
    let mut gone = HashSet::new();
    let mut order = Vec::new();
    for (_, branch) in chosen {
        // A living child keeps its parent.
        if branch.children.values().all(|child| gone.contains(child)) {
            gone.insert(branch.id);
            order.push(branch.id);
        }
    }
    order
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
    use crate::memory::environment::TestClock;
    use crate::memory::{Environment, OpenMode, RecordEdit, RecordInput};

    fn put(text: &str) -> Vec<RecordEdit> {
        let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
        vec![RecordEdit::Put { id: "a".into(), input }]
    }

    #[test]
    fn a_collection_that_failed_leaves_later_seals_their_sweep() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let mut failures = 0;
        for nth in 1.. {
            let disk = Arc::new(FaultyDisk::new(ForgetfulDisk::new()));
            let memory = Memory::open_on(disk.clone(), OpenMode::Create, None, Environment::real(who.clone())).unwrap();
            memory.commit(&who, memory.root("main").unwrap(), put("turn")).unwrap();
            disk.plan(Fault::once(nth, DiskCall::CHANGES, libc::EIO));
            let outcome = memory.gc(&who, None, false);
            if disk.calls() < nth {
                break;
            }
            failures += usize::from(outcome.is_err());
            assert!(!memory.storage.manifest.lock().rewrites_early(), "a failure at change {nth}");
        }
        assert!(failures > 20, "{failures}: from the rotation of the journal to the manifest");
    }

    #[test]
    fn a_collection_whose_seal_fails_has_its_discards_in_the_journal_and_removed_no_file() {
        let (who, clock) = (Actor { uid: 0, gid: 0, name: "root".into() }, TestClock::default());
        let disk = FaultyDisk::new(ForgetfulDisk::new());
        let environment = clock.environment(who.clone());
        let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap();
        memory.stop_maintenance();
        let fork = memory.fork(&who, memory.root("main").unwrap(), "x", None).unwrap();
        memory.set(&who, fork, Setting::Ttl, "1h").unwrap();
        memory.commit(&who, fork, put("of the fork alone")).unwrap();
        memory.seal().unwrap();
        clock.advance(2 * 3_600_000_000_000);
        let sealed = disk.inner().list("segments").unwrap();
        assert!(!sealed.is_empty() && memory.resolve("main/x").is_ok(), "a control");
        disk.plan(Fault { sticky: true, ..Fault::once(1, &[DiskCall::Rename], libc::EIO) });
        memory.gc(&who, None, false).unwrap_err();
        let cut = disk.inner().power_cut_keep_nothing();
        let kept = cut.list("segments").unwrap();
        assert!(sealed.iter().all(|name| kept.contains(name)), "{kept:?}");
        let found = Memory::open_on(Arc::new(cut), OpenMode::Existing, None, clock.environment(who)).unwrap();
        assert!(found.resolve("main/x").is_err());
    }

    #[test]
    fn a_collection_in_need_drops_no_state_by_a_clock_that_jumped() {
        const DAY_NANOS: i64 = 86_400_000_000_000;
        let (who, clock) = (Actor { uid: 0, gid: 0, name: "root".into() }, TestClock::default());
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, clock.environment(who.clone())).unwrap();
        let main = memory.root("main").unwrap();
        let first = memory.commit(&who, main, put("first")).unwrap().entry;
        clock.advance(DAY_NANOS / 24);
        memory.commit(&who, main, put("second")).unwrap();
        clock.set_wrong_by(365 * DAY_NANOS);
        memory.gc_on_full_disk(&mut memory.storage.manifest.lock()).unwrap();
        clock.set_wrong_by(0);
        memory.rollback(&who, main, &first.to_string()).unwrap();
    }
}
