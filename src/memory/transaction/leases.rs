//! Leases: who works in which branch. A lease is held by an open file, and the kernel closes that with its process.
//!
//! That a lease was taken is a frame of the journal with a keyed hash, that it was lost is an entry, which the parent hears of.
//! So an opening after a crash finds the leases that were lost with the server.

use std::collections::HashMap;
use std::sync::Weak;

use super::files::split_mac;
use super::transact::LogTail;
use crate::journal::FrameKind;
use crate::lineage::EntryOp;
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::{BranchId, Catalog, CatalogChange, LeaseState};
use crate::memory::command::log_record::{COMMAND_BYTES, Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Actor, BranchError, Error, Memory};
use crate::object::{Reader, Time, Writer};
use crate::sync::{Mutex, allow_waiting};

/// The leases that are held. A branch of which nobody holds the lease has no entry.
#[derive(Default)]
pub(in crate::memory) struct Leases(Mutex<HashMap<BranchId, HeldLease>>);

#[derive(Clone, Copy)]
struct HeldLease {
    since: Time,
    holders: u64,
}

/// Holds the lease of a branch until it is dropped.
pub struct Lease {
    memory: Weak<Memory>,
    branch: BranchId,
}

impl Leases {
    /// Returns since when the lease of a branch is held: since its first holder took it. `None` if nobody holds it.
    pub fn held_since(&self, branch: BranchId) -> Option<Time> {
        self.0.lock().get(&branch).map(|held| held.since)
    }

    /// Takes one holder away; returns whether it was the last, whose end is to be noted in the log.
    fn remove_holder(&self, branch: BranchId) -> bool {
        let mut leases = self.0.lock();
        let Some(held) = leases.get_mut(&branch) else { return false };
        held.holders -= 1;
        let is_last = held.holders == 0;
        if is_last {
            leases.remove(&branch);
        }
        is_last
    }

    /// Adds a holder; false if there is none yet.
    fn add_holder(&self, branch: BranchId) -> bool {
        self.0.lock().get_mut(&branch).map(|held| held.holders += 1).is_some()
    }
}

/// Nobody holds the lease of a branch any longer.
#[derive(Debug)]
pub(super) struct LoseLease(pub BranchId);

pub(super) const LEASE_LOST: CommandSpec =
    CommandSpec { code: 48, name: "lease_lost", read: |input| Ok(Box::new(LoseLease(BranchId::read(input)?))) };

impl Command for LoseLease {
    fn spec(&self) -> &'static CommandSpec {
        &LEASE_LOST
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.0.0);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.0)?;
        let lost = CatalogChange::Lease(branch.id, LeaseState::Lost(log_record.time));
        Ok(prepare_on_branch(context.catalog, log_record, branch, EntryOp::LeaseLost).with_change(lost))
    }

    fn may_use_reserve(&self) -> bool {
        true
    }
}

impl Memory {
    /// Takes the lease of a branch, beside others who may hold it. It is held until the last [`Lease`] is dropped. Only
    /// the first to take it writes to the journal.
    ///
    /// Rights are not checked here. Kind `ReadOnly` in a store that was opened for reading. Kind `Full` or `Quota` if
    /// there is no room for the journal's frame.
    pub fn hold_lease(&self, who: &Actor, branch: BranchId) -> Result<Lease, Error> {
        // Made only for one who is counted: dropping it takes one holder away, which on a failure would be somebody else.
        let lease = || Lease { memory: self.weak_self.clone(), branch };
        if self.leases.add_holder(branch) {
            return Ok(lease());
        }
        let _room = self.reserve_room(disk_cost_bytes(0, 0))?;
        // A lease that was lost a moment ago gets its entry before the new one.
        self.note_lost_lease(branch)?;
        let mut writer = self.writer_for(who, &[])?;
        let journal = writer.writable()?;
        // Under the lock: a frame about a branch that has ended meanwhile could not be replayed.
        self.catalog().branch(branch)?;
        // Under the lock again: another caller may have taken it meanwhile.
        if self.leases.add_holder(branch) {
            return Ok(lease());
        }
        let since = self.next_time(&mut writer)?;
        let mut out = Writer::new();
        let bytes = out.number(branch.0).as_slice().to_vec();
        let code = writer.frame_mac(FrameKind::Lease, &[&bytes]);
        allow_waiting();
        // The frame comes before the lease is known, so that each holder is one whom an opening after a crash knows of.
        self.append(&journal, FrameKind::Lease, &[&code.0, &bytes], true)?;
        writer.link = code;
        writer.unsealed_bytes += bytes.len() as u64 + COMMAND_BYTES;
        self.catalog.write().change(branch, |branch| branch.lease = LeaseState::Held);
        self.leases.0.lock().insert(branch, HeldLease { since, holders: 1 });
        Ok(lease())
    }

    /// Returns since when the lease of a branch is held; `None` if nobody holds it. Takes no writer lock.
    pub fn lease_since(&self, branch: BranchId) -> Option<Time> {
        self.leases.held_since(branch)
    }

    /// Makes an entry of it that nobody holds the lease of a branch any longer, if that is so and in none yet. Fails
    /// like any change, but not where somebody has taken the lease meanwhile.
    pub(in crate::memory) fn note_lost_lease(&self, branch: BranchId) -> Result<(), Error> {
        let is_lost = || {
            let catalog = self.catalog();
            let held = catalog.branches.get(&branch).filter(|branch| branch.lease == LeaseState::Held);
            held.filter(|_| self.leases.held_since(branch).is_none()).map(|branch| branch.uid)
        };
        let Some(owner) = is_lost() else { return Ok(()) };
        let owner = Actor { uid: owner, gid: 0, name: self.catalog().user(owner) };
        // Under the lock again: somebody may have taken it.
        let command = || is_lost().map(|_| LoseLease(branch)).ok_or_else(|| BranchError::InUse.into());
        self.ensure_room_to_free()?;
        match self.transact_without_reserving(&owner, &[], command) {
            Err(_) if is_lost().is_none() => Ok(()),
            noted => noted.map(drop),
        }
    }

    /// Notes all leases that are held as lost: nobody can hold them any longer. If that can't be written the next
    /// opening does so.
    pub(in crate::memory) fn lose_all_leases(&self) {
        // Cleared before the entries are made: `note_lost_lease` asks whether somebody holds the lease.
        self.leases.0.lock().clear();
        let catalog = self.catalog().clone();
        let held = catalog.branches.values().filter(|branch| branch.lease == LeaseState::Held);
        for branch in held {
            if let Err(error) = self.note_lost_lease(branch.id) {
                log::warn!("the lineage does not say that the lease of {} was lost: {error}", branch.path);
            }
        }
    }
}

impl LogTail {
    /// Takes a lease as the journal says. Kind `Damaged` if the code does not follow from the frames before, or the
    /// bytes can't be read.
    pub(in crate::memory) fn replay_lease(&mut self, catalog: &mut Catalog, bytes: &[u8]) -> Result<(), Error> {
        let damaged = |what: String| Error::damaged(format!("a lease in the journal {what}"));
        let (code, bytes) = split_mac(bytes).ok_or_else(|| damaged("has no code".to_owned()))?;
        self.verify_and_advance(FrameKind::Lease, &code, &[bytes])?;
        let branch = Reader::new(bytes).number().map_err(|error| damaged(format!("can't be read: {error}")))?;
        self.unsealed_bytes += bytes.len() as u64 + COMMAND_BYTES;
        catalog.change(BranchId(branch), |branch| branch.lease = LeaseState::Held);
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.upgrade()
            && memory.leases.remove_holder(self.branch)
        {
            memory.maintenance.signal_expiry.wake_for_lost_lease(self.branch);
        }
    }
}
