//! Every command is prepared, signed, appended to the journal and applied to the catalog here, and nowhere else.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::clock::ClockReading;
use super::commands::read_log_record;
use super::files::PendingFiles;
use super::writer::WriterGuard;
use crate::journal::{FrameKind, Journal};
use crate::lineage::{Entry, EntryOp, MacKey, PublicKey, SignedEntry};
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::CatalogChange;
use crate::memory::catalog::{BranchId, BranchRef, Catalog};
use crate::memory::command::log_record::{BULK_ROW_BYTES, COMMAND_BYTES, Command, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::PreparedCommand;
use crate::memory::{Actor, BranchEvent, Error, Memory, OpensBlocked, ReplacedFiles};
use crate::object::{self, Context, Hash, Time};
use crate::sync::{allow_waiting, may_wait};

/// A state with more records and files than this is dropped on another thread, since freeing it takes a while.
const DROPPED_INLINE_MAX: u64 = 16 << 10;

static COMMAND_CONTEXT: Context = Context::new("engramfs 2026 act v2");
static LINK_CONTEXT: Context = Context::new("engramfs 2026 journal link v1");
static END_CONTEXT: Context = Context::new("engramfs 2026 clean end v1");

/// The end of the chain of entries. Only who holds the right to write sees it, so that no two entries get one number.
pub(in crate::memory) struct LogTail {
    /// Number of the last entry; 0 before the first.
    pub seq: u64,
    /// Hash of the last entry, which the next one has as `prev`.
    pub tip: Hash,
    /// Time of the last entry; the next one is later.
    pub time: Time,
    /// When something was written last, or the store was opened, by two clocks: their difference shows that one was set.
    pub last_clock_reading: ClockReading,
    /// Makes the codes of operations on files, in the place of a signature for each.
    pub mac_key: MacKey,
    /// What the next operation is bound to: it follows from all entries and operations since the journal file began,
    /// or since the store was closed last.
    pub link: Hash,
    /// Where the next entry goes; `None` if the store was opened for reading.
    pub journal: Option<Arc<Journal>>,
    /// Bytes in the journal since the last seal.
    pub unsealed_bytes: u64,
    /// Bytes of long writes in the journal since the last seal, which take no memory.
    pub written_bytes: u64,
    /// Length of the journal just behind a clean end.
    pub clean_end: u64,
    /// What was done to files and is in no entry yet, by branch; a journal file begins without any.
    pub pending: HashMap<BranchId, PendingFiles>,
    /// Why nothing more is taken: a panic, too little memory, or the end of the store. None while it can be written to.
    pub close_reason: Option<&'static str>,
}

impl LogTail {
    /// Returns why nothing can be written, in words for [`Error::ReadOnly`]; none while it can.
    pub fn refusal(&self) -> Option<String> {
        if let Some(reason) = self.close_reason {
            return Some(reason.to_owned());
        }
        match &self.journal {
            None => Some("the store was opened for reading only".to_owned()),
            Some(journal) => journal.failure(),
        }
    }

    /// Returns the journal to append to, or [`Error::ReadOnly`] with [`LogTail::refusal`].
    pub(in crate::memory) fn writable(&self) -> Result<Arc<Journal>, Error> {
        match (self.refusal(), &self.journal) {
            (None, Some(journal)) => Ok(journal.clone()),
            (reason, _) => Err(Error::ReadOnly(reason.unwrap_or_default())),
        }
    }

    /// Makes the entry of a prepared command after the last one, all but its signature; `bytes` are its log record.
    pub fn entry(&self, prepared: &PreparedCommand, log_record: &LogRecord, bytes: &[u8], key: &PublicKey) -> Entry {
        let [agent, session, task] = prepared.labels.clone();
        Entry {
            seq: self.seq + 1,
            op: prepared.op,
            branch: prepared.path.clone(),
            branch_id: prepared.branch.0,
            parent: prepared.parent.as_ref().map(|(_, path)| path.clone()),
            parent_id: prepared.parent.as_ref().map_or(0, |(id, _)| id.0),
            time: log_record.time,
            agent,
            session,
            task,
            uid: log_record.uid,
            base: prepared.base,
            head: prepared.head,
            counts: prepared.counts,
            detail: prepared.detail.clone(),
            log_record: Hash::digest(&COMMAND_CONTEXT, bytes),
            prev: self.tip,
            key: key.hash(),
        }
    }

    /// Counts a command that was appended or read back, with the bytes of its log record and the records that it puts:
    /// what a seal is worth, and what is pending no more. Returns the segment that only this log record names.
    pub fn note_command(&mut self, command: &dyn Command, bytes: usize, put: u64) -> Option<Hash> {
        self.unsealed_bytes += bytes as u64 + COMMAND_BYTES;
        if let Some(branch) = command.committed_files_branch() {
            self.pending.remove(&branch);
        }
        let segment = command.segment()?;
        self.unsealed_bytes += put * BULK_ROW_BYTES;
        Some(segment)
    }

    /// Moves behind an entry that was appended, to which all that comes next is bound.
    pub fn advance(&mut self, entry: &SignedEntry) {
        self.link = Hash::digest(&LINK_CONTEXT, &[self.link.0, entry.hash.0].concat());
        self.seq = entry.entry.seq;
        self.tip = entry.hash;
        self.time = entry.entry.time;
    }

    /// Returns the code that binds an operation, the bytes in `parts`, to all before it.
    pub fn frame_mac(&self, kind: FrameKind, parts: &[&[u8]]) -> Hash {
        let kind: &[u8] = match kind {
            FrameKind::Content => b"content",
            FrameKind::Cursor => b"cursor",
            FrameKind::Signals => b"signals",
            FrameKind::Lease => b"lease",
            _ => b"edit",
        };
        self.mac_key.mac(&self.link, &[&[kind], parts].concat())
    }

    /// Checks the code of an operation that was read, and advances past it. Kind `Damaged` if it is another code: the
    /// operation was not written by this store, or one before it was changed.
    pub fn verify_and_advance(&mut self, kind: FrameKind, code: &Hash, parts: &[&[u8]]) -> Result<(), Error> {
        if self.frame_mac(kind, parts) != *code {
            return Err(Error::damaged(format!(
                "an operation on files in the journal behind entry {} was not written by a process of this store, or \
                 one before it was changed, removed or moved",
                self.seq
            )));
        }
        self.link = *code;
        Ok(())
    }

    /// Returns how many operations on files are in no entry yet.
    pub fn pending_operations(&self) -> u64 {
        self.pending.values().map(PendingFiles::operation_count).sum()
    }

    /// Returns what a clean end at `offset` of the journal signs.
    pub fn end_hash(&self, offset: u64) -> Hash {
        let mut out = object::Writer::new();
        out.hash(&self.tip).number(offset);
        Hash::digest(&END_CONTEXT, out.as_slice())
    }
}

impl Memory {
    /// Does what `command` returns, as one entry, and tells the listeners. Nothing changes between what `command` sees
    /// and what is done. What was done to the files of `branches` becomes entries first. Fails like `command`, and then
    /// there is no entry.
    pub(in crate::memory) fn transact<C: Command>(
        &self,
        who: &Actor,
        branches: &[Option<BranchId>],
        command: impl FnOnce() -> Result<C, Error>,
    ) -> Result<Arc<SignedEntry>, Error> {
        let _room = self.reserve_room(disk_cost_bytes(0, 0))?;
        self.transact_without_reserving(who, branches, command)
    }

    /// Like [`Memory::transact`], for whoever found room for it, or gives room back. Fails like [`Memory::transact`].
    pub(in crate::memory) fn transact_without_reserving<C: Command>(
        &self,
        who: &Actor,
        branches: &[Option<BranchId>],
        command: impl FnOnce() -> Result<C, Error>,
    ) -> Result<Arc<SignedEntry>, Error> {
        let (entry, change) = {
            let mut writer = self.writer_for(who, branches)?;
            let command = command()?;
            self.execute(&mut writer, who.uid, command)?
        };
        self.notify(change);
        Ok(entry)
    }

    /// Takes the right to write, once what was done to the files of some branches is in entries:
    /// an entry names their heads.
    ///
    /// What takes long to commit is worked out before, without the lock. Fails with `Error::ReadOnly` if nothing can be
    /// written, and with `Error::WouldWait` on a thread that must not block where another one has the lock or a commit
    /// takes long.
    pub(in crate::memory) fn writer_for(
        &self,
        who: &Actor,
        branches: &[Option<BranchId>],
    ) -> Result<WriterGuard<'_>, Error> {
        loop {
            let mut writer = self.writer()?;
            writer.writable()?;
            // A user's name comes first, so that no entry has a uid whose name the lineage does not know.
            self.register_user(&mut writer, who)?;
            let branches = branches.iter().flatten();
            let Some((branch, before)) = branches.clone().find_map(|branch| writer.find_slow_pending(*branch)) else {
                branches.into_iter().try_for_each(|branch| self.commit_pending(&mut writer, *branch))?;
                return Ok(writer);
            };
            // Others write meanwhile, so all is looked at again once the lock is back.
            drop(writer);
            if !may_wait() {
                return Err(Error::WouldWait);
            }
            self.prepare_commit(branch, &before)?;
        }
    }

    /// Works out what a command changes, and does it. Fails with `ClockError` if the clock was set by more than a day
    /// since the last write, or no later time is left, and else as `Command::prepare` and [`Memory::execute_planned`]
    /// do.
    pub(in crate::memory) fn execute(
        &self,
        log_tail: &mut LogTail,
        uid: u32,
        command: impl Command,
    ) -> Result<(Arc<SignedEntry>, BranchEvent), Error> {
        let time = self.next_time(log_tail)?;
        self.execute_at(log_tail, time, uid, Box::new(command))
    }

    /// The same with the time that the entry is to have. Fails like [`Memory::execute_planned`] and the command's
    /// `prepare` do.
    pub(in crate::memory) fn execute_at(
        &self,
        log_tail: &mut LogTail,
        time: Time,
        uid: u32,
        command: Box<dyn Command>,
    ) -> Result<(Arc<SignedEntry>, BranchEvent), Error> {
        let seq = log_tail.seq + 1;
        self.execute_planned(log_tail, LogRecord { time, planned: time, uid, command }, |catalog, log_record| {
            let (packs, segment) = (&self.storage.trees, |name: &Hash| self.storage.segments.get(name));
            let context = PlanContext { catalog, seq, packs, segment: &segment, is_replayed: false };
            log_record.command.prepare(&context, log_record)
        })
    }

    /// Does a command whose outcome `prepare` gives: signs, appends, swaps the catalog. Fails like `prepare` and
    /// [`Memory::check_embedder_dim`], with `Error::ReadOnly` if nothing can be written, with `LimitError` if memory has no room for the command, and with
    /// `Error::Journal` if the frame can't be appended. There is no entry then.
    pub(in crate::memory) fn execute_planned(
        &self,
        log_tail: &mut LogTail,
        log_record: LogRecord,
        prepare: impl FnOnce(&Catalog, &LogRecord) -> Result<PreparedCommand, Error>,
    ) -> Result<(Arc<SignedEntry>, BranchEvent), Error> {
        let journal = log_tail.writable()?;
        let prepared = {
            let catalog = self.catalog();
            let prepared = prepare(&catalog, &log_record)?;
            self.check_embedder_dim(&catalog, &prepared.changes)?;
            prepared
        };
        let (command, bytes) = (&*log_record.command, log_record.to_bytes());
        debug_assert!(
            read_log_record(&bytes).is_ok_and(|read| read.to_bytes() == bytes),
            "{command:?} could not be read back"
        );
        // Memory is asked for before the entry is signed: a refusal must leave neither a frame nor an entry.
        self.admit_command(command, bytes.len())?;
        let signed =
            SignedEntry::sign(log_tail.entry(&prepared, &log_record, &bytes, &self.public_key), &self.signing_key);
        // Whatever `push` needs of archives is read now, since after the append nothing may fail any more.
        self.history.prepare_push(&self.storage.segments.blobs, &signed.entry)?;
        // From here on the request can't be repeated on another thread, so this one may block.
        allow_waiting();
        // Every check comes before the append: once the frame is written, the command has happened.
        self.append(&journal, FrameKind::Command, &[&signed.signature, &bytes], command.may_use_reserve())?;
        if let Some(segment) = log_tail.note_command(command, bytes.len(), prepared.counts.put) {
            self.storage.journal_segments.lock().insert(segment);
        }
        if let Some(branch) = command.invalidated_plans_branch() {
            self.merging.acks.forget_branch(branch);
            self.merging.planner.forget(branch);
        }
        let (branch, op) = (prepared.branch, prepared.op.name());
        let parent = prepared.parent.as_ref().map(|(id, _)| *id);
        // Read before the swap, since a merged child and its signals are in no catalog after it.
        let context = self.shared_event_context(command);
        // Kept, so that what goes is dropped with no lock held.
        let previous = {
            let catalog = self.catalog();
            let branch_of = |id: BranchId| catalog.branches.get(&id).cloned();
            [Some(branch), parent].into_iter().flatten().filter_map(branch_of).collect()
        };
        let (signed, files) = self.apply(log_tail, prepared, signed);
        if let Some(context) = context {
            self.note_shared_events(&context, command, &signed);
        }
        Ok((signed, BranchEvent { branch, parent, op, files, previous }))
    }

    /// Swaps the catalog for the one after the entry; returns the files that others were put in place
    /// of.
    fn apply(
        &self,
        log_tail: &mut LogTail,
        mut prepared: PreparedCommand,
        signed: SignedEntry,
    ) -> (Arc<SignedEntry>, Vec<ReplacedFiles>) {
        // From here on memory follows the journal: the entry is in it, so all that is left can't fail.
        log_tail.advance(&signed);
        let (replaced, held) = if prepared.op.replaces_content() {
            self.keep_open_files(&self.catalog(), &mut prepared.changes)
        } else {
            Default::default()
        };
        let parent = prepared.parent.as_ref().map(|(id, _)| *id);
        let owners = || {
            let catalog = self.catalog();
            let branches =
                [Some(prepared.branch), parent].into_iter().flatten().chain(replaced.iter().map(|it| it.branch));
            let owner_of = |id: BranchId| Some(catalog.branches.get(&id)?.uid);
            branches.filter_map(owner_of).collect::<BTreeSet<u32>>()
        };
        // Asked before and after: a branch may end, or get another owner.
        let before = owners();
        self.catalog.write().apply(prepared.branch, prepared.op, prepared.changes, signed.entry.seq, signed.entry.time);
        drop(held);
        let owners: BTreeSet<u32> = before.into_iter().chain(owners()).collect();
        owners.into_iter().for_each(|owner| self.recount_file_metadata(&self.catalog(), owner));
        // After the catalog: whoever reads of an entry finds what it did.
        self.history.push(&signed);
        (Arc::new(signed), replaced)
    }

    /// Lets open files live on in the files that are about to be put in place of others; returns both, and what keeps
    /// more from being opened until that is done. An opening knows nothing of this, as no entry and no head does.
    fn keep_open_files(
        &self,
        catalog: &Catalog,
        changes: &mut [CatalogChange],
    ) -> (Vec<ReplacedFiles>, Vec<OpensBlocked>) {
        let (mut replaced, mut guards) = (Vec::new(), Vec::new());
        for change in changes {
            if let CatalogChange::Purged(branches) = change {
                // Nothing lives on that is open: it would keep its bytes.
                replaced.extend(branches.iter().filter_map(|after| replaced_files(catalog, after)));
            }
            let CatalogChange::State(branch, state) = change else { continue };
            let Some(before) = catalog.branches.get(branch).map(|branch| branch.state.files().clone()) else {
                continue;
            };
            // Held before the list: who opened before is in it, and who opens later finds the files that come.
            let (open, held) = self.block_opens(*branch).unzip();
            guards.extend(held);
            let open = open.unwrap_or_default();
            if !open.is_empty() || state.files().orphans().next().is_some() {
                let mut files = state.files().clone();
                files.keep_open_inodes(&before, &open);
                Arc::make_mut(state).set_files(files);
            }
            replaced.push(ReplacedFiles { branch: *branch, before, after: state.files().clone() });
        }
        (replaced, guards)
    }

    /// Tells all listeners of a change, and wakes the threads that have something to do then. No lock may be held.
    pub(in crate::memory) fn notify(&self, change: BranchEvent) {
        // Taken out: a listener looks at the store itself.
        let listeners = self.listeners.lock().clone();
        for listener in listeners {
            listener(&change);
        }
        if self.catalog().branch(change.branch).is_err() {
            self.forget_ended_branch(change.branch);
        }
        self.wake_maintenance();
        self.maintenance.embedding.wake();
        let item_count = |branch: &BranchRef| branch.state.totals().records + branch.state.files().totals().files;
        let replaces = !change.files.is_empty() || change.op == EntryOp::Discard.name();
        if replaces && change.previous.iter().map(item_count).sum::<u64>() > DROPPED_INLINE_MAX {
            self.merging.planner.run(move || drop(change));
        }
    }

    /// Lets go of what is remembered in memory of a branch that has ended; its states stay as `config/keep` says.
    fn forget_ended_branch(&self, branch: BranchId) {
        self.merging.refused_at.lock().remove(&branch);
        self.maintenance.expiry.forget(branch);
        self.documents.lock().forget(branch);
        self.events.forget(branch);
        self.file_views.drop_unless(|view| view.branch() != branch);
        self.merging.acks.forget_branch(branch);
        self.merging.planner.forget(branch);
    }

    /// Makes everything acknowledged so far durable. Concurrent callers share one flush of the device. Fails with the
    /// disk's error; after that every write fails with kind `ReadOnly`.
    pub fn sync(&self) -> Result<(), Error> {
        // If a seal replaces the file meanwhile, a flush of the new one flushes this one first.
        let Some(journal) = self.journal() else { return Ok(()) };
        Ok(journal.sync(journal.length())?)
    }

    /// Closes the store for writing, with a signed end. Closing it again does nothing. Fails with the disk's error: the
    /// store is then as if the process had died.
    pub fn close(&self) -> Result<(), Error> {
        // The threads end first, since each of them may write and a clean end has to be last.
        self.stop_indexer();
        self.maintenance.signal_expiry.stop();
        self.stop_file_indexer();
        self.maintenance.embedding.stop();
        self.stop_maintenance();
        if !self.is_read_only() {
            self.lose_all_leases();
            self.commit_all_pending()?;
            self.seal_to_close()?;
        }
        // A thread that was told to end may have begun a seal since: it is waited for, and later ones are refused.
        let _sealing = self.storage.manifest.lock();
        let mut log_tail = self.writer()?;
        if log_tail.close_reason.replace("the store was closed").is_some() {
            return Ok(());
        }
        let Some(journal) = log_tail.journal.clone() else { return Ok(()) };
        let offset = journal.length();
        // A clean end that nothing follows is still good.
        if offset != log_tail.clean_end {
            // The end vouches for all before it, so that must be safe first.
            journal.finish()?;
            let signature = self.signing_key.sign(&log_tail.end_hash(offset));
            log_tail.clean_end = self.append(&journal, FrameKind::End, &[&signature], true)?;
        }
        drop(log_tail);
        Ok(journal.finish()?)
    }

    /// Fails with `Error::ReadOnly` once the store is closed: nothing on its disk may change then. The caller holds the
    /// lock of `storage.manifest`, which [`Memory::close`] takes, too.
    pub(in crate::memory) fn refuse_if_closed(&self) -> Result<(), Error> {
        let reason = self.writer()?.close_reason;
        reason.map_or(Ok(()), |reason| Err(Error::ReadOnly(reason.to_owned())))
    }
}

/// Returns the files of a branch before and after something was purged from it; `None` if they are the same.
fn replaced_files(catalog: &Catalog, after: &BranchRef) -> Option<ReplacedFiles> {
    let before = catalog.branches.get(&after.id)?.state.files();
    let files = after.state.files();
    let is_same = before.is_clone_of(files);
    (!is_same).then(|| ReplacedFiles { branch: after.id, before: before.clone(), after: files.clone() })
}

/// Reads the payload of a command's frame: the signature and the command's bytes. `None` if it is too short.
pub(in crate::memory) fn split_signature(payload: &[u8]) -> Option<([u8; crate::lineage::SIGNATURE_BYTES], &[u8])> {
    let (signature, bytes) = payload.split_at_checked(crate::lineage::SIGNATURE_BYTES)?;
    Some((signature.try_into().ok()?, bytes))
}
