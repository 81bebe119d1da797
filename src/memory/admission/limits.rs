//! Limits of what a store holds in memory.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use crate::memory::catalog::signals::SignalChange;
use crate::memory::catalog::{Branch, BranchId, Catalog};
use crate::memory::command::log_record::Command;
use crate::memory::{Error, LimitError, Memory};
use crate::sync::{MemoryMeter, Mutex, OverBudget, Reservation};
use crate::workspace::Tree;

/// Bytes that a command is taken to need in memory beside those of its log record.
const COMMAND_BYTES: u64 = 1024;
/// Earlier states may take one in so many of the bytes that names and attributes of files may.
const RETAINED_ONE_IN: u64 = 4;

/// The memory that names and attributes of files take, in the share of each user.
#[derive(Default)]
pub(in crate::memory) struct FilesHeld {
    users: Mutex<HashMap<u32, Reservation>>,
    /// Bytes of it that only checkpoints, proposals and bases of forks hold, as of the last seal.
    frozen_bytes: Mutex<HashMap<u32, u64>>,
    /// Bytes that those of all users may take: half of `--memory`. Without a limit it is never set.
    limit_bytes: OnceLock<u64>,
}

impl FilesHeld {
    /// Returns how many bytes those of earlier states may take beside those of branches: a fourth of what these may, or all
    /// without a limit.
    pub(in crate::memory) fn retained_limit_bytes(&self) -> u64 {
        self.limit_bytes.get().map_or(u64::MAX, |bytes| bytes / RETAINED_ONE_IN)
    }

    /// Returns how many bytes a user holds and how many all do, with what is frozen.
    fn own_and_all_bytes(&self, catalog: &Catalog, uid: u32) -> (u64, u64) {
        let ((own, all), frozen) = (catalog.metadata_bytes.own_and_all_bytes(uid), self.frozen_bytes.lock());
        (own + frozen.get(&uid).copied().unwrap_or_default(), all + frozen.values().sum::<u64>())
    }
}

/// The memory that signals take, in the share of each user, by uid.
pub(in crate::memory) type SignalsHeld = Mutex<HashMap<u32, Reservation>>;

impl Memory {
    /// Limits what the server holds in memory to about `limit_bytes`, as counted by `measure`. Callers may hold three
    /// quarters of it, and with `several_users` each user a quarter. Call it once, before the store is served; without
    /// it there is no limit.
    ///
    /// Returns a warning if names and attributes of the store's files alone take more than half: nothing can be written
    /// then.
    pub fn limit_memory(&self, limit_bytes: u64, several_users: bool, measure: MemoryMeter) -> Option<String> {
        let budget_bytes = limit_bytes / 4 * 3;
        self.admission.budget.limit(budget_bytes, if several_users { limit_bytes / 4 } else { budget_bytes });
        self.admission.budget.watch(limit_bytes / 8 * 7, measure);
        // Only the first call sets it (OnceLock).
        let files_max_bytes = *self.admission.files_held.limit_bytes.get_or_init(|| limit_bytes / 2);
        let all = self.catalog().metadata_bytes.own_and_all_bytes(0).1;
        if all <= files_max_bytes {
            return None;
        }
        let needed = (2 * all).div_ceil(1 << 20);
        let reason = format!(
            "the names and attributes of its files take {} MiB of memory, and {} MiB are what --memory leaves for them; \
             it is read-only, mount it with --memory {needed}M or more",
            all >> 20,
            files_max_bytes >> 20
        );
        if let Ok(mut writer) = self.writer() {
            writer.close_reason.get_or_insert("its files need more memory than --memory leaves for them");
        }
        Some(reason)
    }

    /// Admits what a branch's files take more than before. Kind `Quota` or `Full`.
    pub(in crate::memory) fn admit_files(
        &self,
        catalog: &Catalog,
        branch: BranchId,
        before: &Tree,
        after: &Tree,
    ) -> Result<(), Error> {
        let (before, after) = (before.totals().metadata_bytes(), after.totals().metadata_bytes());
        let owner = catalog.branch(branch)?.uid;
        let (own, all) = self.admission.files_held.own_and_all_bytes(catalog, owner);
        let more = after.saturating_sub(before);
        let mut users = self.admission.files_held.users.lock();
        let held = users.entry(owner).or_insert_with(|| self.admission.budget.empty_reservation(owner));
        if more == 0 {
            // The reservation never grows here, so that what makes less is never refused.
            return Ok(held.resize((own + after).saturating_sub(before).min(held.bytes()))?);
        }
        let limit_bytes = self.admission.files_held.limit_bytes.get().copied().unwrap_or(u64::MAX);
        if all.saturating_add(more) > limit_bytes {
            return Err(LimitError::FileNames(limit_bytes >> 20).into());
        }
        let uncounted = own.saturating_sub(held.bytes());
        Ok(held.resize(own + more).map_err(|over| match over.is_shared {
            true => over,
            // What a seal found and could not count is held, too; without it the user would seem to have room.
            false => OverBudget { held_bytes: over.held_bytes + uncounted, ..over },
        })?)
    }

    /// Counts again what the files of a user's branches take, after something that always works.
    pub(in crate::memory) fn recount_file_metadata(&self, catalog: &Catalog, owner: u32) {
        let (own, _) = self.admission.files_held.own_and_all_bytes(catalog, owner);
        let mut users = self.admission.files_held.users.lock();
        if let Some(held) = users.get_mut(&owner) {
            // What can't be admitted is counted by the next operation.
            let _ = held.resize(own);
            if own == 0 {
                users.remove(&owner);
            }
        }
    }

    /// Counts what only checkpoints, proposals and bases of forks hold of the names and attributes of files. If no
    /// limit is set nothing is counted.
    pub(in crate::memory) fn recount_frozen_metadata(&self, catalog: &Catalog) {
        if self.admission.files_held.limit_bytes.get().is_none() {
            return;
        }
        let frozen = catalog.frozen_metadata_bytes();
        let before = std::mem::replace(&mut *self.admission.files_held.frozen_bytes.lock(), frozen.clone());
        // Who held something before is counted, too: what went since has to be given back to them.
        for owner in before.into_keys().chain(frozen.into_keys()) {
            self.recount_file_metadata(catalog, owner);
        }
    }

    /// Admits what signals of a shared log take more than before. Kind `Quota` or `Full`.
    pub(in crate::memory) fn admit_signals(
        &self,
        catalog: &Catalog,
        owner: &Branch,
        changes: &[SignalChange],
    ) -> Result<(), Error> {
        let mut users: HashMap<u32, (u64, u64)> = HashMap::new();
        let mut seen = HashSet::new();
        for change in changes {
            // A signal counts once, also where it has ended, is removed and another one takes its key.
            if let Some(before) = owner.signals.get(change.key()).filter(|_| seen.insert(change.key())) {
                users.entry(before.owner).or_default().0 += before.bytes();
            }
            if let SignalChange::Set(_, signal) = change {
                users.entry(signal.owner).or_default().1 += signal.bytes();
            }
        }
        // Sums are made before the lock is taken, and by user, as a rename may take from one user and give to another.
        let mut users: Vec<_> = users.into_iter().collect();
        // Who gives something back comes last: where another user has no room, nothing has changed.
        users.sort_unstable_by_key(|(_, (less, more))| more <= less);
        let mut accounts = self.admission.signals_held.lock();
        for (uid, (less, more)) in users {
            let held = accounts.entry(uid).or_insert_with(|| self.admission.budget.empty_reservation(uid));
            let own = (catalog.signal_bytes.own_and_all_bytes(uid).0 + more).saturating_sub(less);
            match held.resize(own) {
                Err(error) if more > less => return Err(error.into()),
                // Less is always admitted, and counted by the next change where it was not.
                _ => {}
            }
        }
        Ok(())
    }

    /// Admits what a command leaves in memory, unless it gives something back. Kind `Full`.
    pub(in crate::memory) fn admit_command(&self, command: &dyn Command, bytes: usize) -> Result<(), Error> {
        if !command.takes_memory() {
            return Ok(());
        }
        Ok(self.admission.budget.admit(bytes as u64 + COMMAND_BYTES)?)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, EditError, Environment, FILES_ROOT, FileName, FileOp, NewInode, OpenMode, XattrMode};

    #[test]
    fn callers_have_three_quarters_of_the_memory_and_one_of_several_a_fourth() {
        let limit_bytes: u64 = 64 << 20;
        for (several_users, share) in [(false, 48 << 20), (true, 16 << 20)] {
            let environment = Environment::real(Actor { uid: 0, gid: 0, name: "root".into() });
            let disk = Arc::new(ForgetfulDisk::new());
            let memory = Memory::open_on(disk, OpenMode::Create, None, environment).unwrap();
            assert_eq!(memory.limit_memory(limit_bytes, several_users, Box::new(|_| 0)), None);
            let budget = &memory.admission.budget;
            assert_eq!(budget.user_limit_bytes(), share);
            let free = (48 << 20) - budget.held_bytes();
            let parts = [free / 3, free / 3, free - free / 3 * 2];
            let held: Vec<Reservation> =
                (1..).zip(parts).map(|(uid, bytes)| budget.reserve(uid, bytes).unwrap()).collect();
            assert!(budget.reserve(4, 1).is_err_and(|over| over.is_shared), "{several_users}");
            drop(held);
            assert_eq!(memory.admission.files_held.retained_limit_bytes(), limit_bytes / 8, "of earlier states");
        }
    }

    /// Checkpoints are taken between two seals that together hold more than anybody asked for at once.
    #[test]
    fn who_has_no_room_is_told_what_checkpoints_hold_that_only_a_seal_found() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment { reserve_bytes: 0, ..Environment::real(who.clone()) };
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        assert_eq!(memory.limit_memory(8 << 20, true, Box::new(|_| 0)), None);
        let main = memory.root("main").unwrap();
        let name = |name: &[u8]| FileName::new(name).unwrap();
        let make = |name| {
            let make = NewInode::File;
            memory.edit(&who, main, FileOp::Create { parent: FILES_ROOT, name, make, mode: 0o644, uid: 0, gid: 0 })
        };
        for number in 0..3 {
            let inode = make(name(b"file")).unwrap().inode;
            for number in 0..17 {
                let (name, value) = (format!("user.{number}").into_bytes(), vec![1; 60_000]);
                memory.edit(&who, main, FileOp::SetXattr { inode, name, value, mode: XattrMode::Any }).unwrap();
            }
            memory.checkpoint(&who, main, &format!("with-file-{number}"), None).unwrap();
            let unlink = FileOp::Unlink { parent: FILES_ROOT, name: name(b"file"), keep: false };
            memory.edit(&who, main, unlink).unwrap();
        }
        memory.seal_and_reclaim().unwrap();
        let refused = make(name(b"more")).unwrap_err();
        let EditError::Refused(refused) = refused else { panic!("{refused:?}") };
        assert_eq!(refused.code(), "memory_share");
        // Three times about a MB, of at most 2 MiB.
        assert!(refused.to_string().contains("holds 2 MiB"), "{refused}");
    }
}
