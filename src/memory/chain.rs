//! The one way in which anything changes: prepare, sign, append, enact.

use std::collections::HashMap;
use std::sync::Arc;

use super::act::{Act, Deed, Join};
use super::clock::Moment;
use super::files::Pending;
use super::prepare::{Ground, Prepared, Step, prepare};
use super::room::cost_of;
use super::world::{BranchId, BranchRef, World};
use super::writer::WriterGuard;
use super::{Actor, Change, Error, Memory, Replaced};
use crate::journal::{Journal, Kind};
use crate::lineage::{Entry, MacKey, Op, PublicKey, SignedEntry};
use crate::object::{self, Context, Hash, Time};
use crate::sync::{may_wait, no_longer_hurried};

/// Records and files of a state that is let go of by the thread that replaced it; more may take a while.
const LET_GO_AT_ONCE: u64 = 16 << 10;

static ACT_CONTEXT: Context = Context::new("engramfs 2026 act v2");
static LINK_CONTEXT: Context = Context::new("engramfs 2026 journal link v1");
static END_CONTEXT: Context = Context::new("engramfs 2026 clean end v1");

/// The end of the chain of entries.
pub(super) struct Chain {
    /// Number of the last entry.
    pub seq: u64,
    /// Hash of the last entry.
    pub tip: Hash,
    /// Time of the last entry; the next one is later.
    pub time: Time,
    /// When something was written last, or the store was opened.
    pub moment: Moment,
    /// Makes the codes of operations on files.
    pub mac: MacKey,
    /// What the next operation is bound to: it follows from all entries and operations since the journal file began,
    /// or since the store was closed last.
    pub link: Hash,
    /// Where the next entry goes; none when the store was opened for reading.
    pub journal: Option<Arc<Journal>>,
    /// Bytes in the journal since the last seal.
    pub loose_bytes: u64,
    /// Bytes of long writes in the journal since the last seal, which take no memory.
    pub written_bytes: u64,
    /// Length of the journal just behind a clean end.
    pub ended_at: u64,
    /// What was done to files and stands in no entry yet.
    pub pending: HashMap<BranchId, Pending>,
    /// Why nothing more is taken.
    pub closed: Option<&'static str>,
}

impl Chain {
    /// Returns why nothing can be written, if so.
    pub fn refusal(&self) -> Option<String> {
        if let Some(reason) = self.closed {
            return Some(reason.to_owned());
        }
        match &self.journal {
            None => Some("the store was opened for reading only".to_owned()),
            Some(journal) => journal.failure(),
        }
    }

    pub(super) fn writable(&self) -> Result<Arc<Journal>, Error> {
        match (self.refusal(), &self.journal) {
            (None, Some(journal)) => Ok(journal.clone()),
            (reason, _) => Err(Error::read_only(&reason.unwrap_or_default())),
        }
    }

    /// Makes the entry of a prepared act, all but its signature.
    pub fn entry(&self, prepared: &Prepared, act: &Act, bytes: &[u8], key: &PublicKey) -> Entry {
        let [agent, session, task] = prepared.labels.clone();
        Entry {
            seq: self.seq + 1,
            op: prepared.op,
            branch: prepared.path.clone(),
            branch_id: prepared.branch.0,
            parent: prepared.parent.as_ref().map(|(_, path)| path.clone()),
            parent_id: prepared.parent.as_ref().map_or(0, |(id, _)| id.0),
            time: act.time,
            agent,
            session,
            task,
            uid: act.uid,
            base: prepared.base,
            head: prepared.head,
            counts: prepared.counts,
            detail: prepared.detail.clone(),
            act: Hash::of(&ACT_CONTEXT, bytes),
            prev: self.tip,
            key: key.hash(),
        }
    }

    /// Moves behind an entry.
    pub fn advance(&mut self, entry: &SignedEntry) {
        self.link = Hash::of(&LINK_CONTEXT, &[self.link.0, entry.hash.0].concat());
        self.seq = entry.entry.seq;
        self.tip = entry.hash;
        self.time = entry.entry.time;
    }

    /// Returns the code that binds an operation, the bytes in `parts`, to all before it.
    pub fn code(&self, kind: Kind, parts: &[&[u8]]) -> Hash {
        let kind: &[u8] = if kind == Kind::Content { b"content" } else { b"edit" };
        self.mac.code(&self.link, &[&[kind], parts].concat())
    }

    /// Checks the code of an operation that was read, and moves behind it.
    pub fn follow(&mut self, kind: Kind, code: &Hash, parts: &[&[u8]]) -> Result<(), Error> {
        if self.code(kind, parts) != *code {
            return Err(Error::damaged(format!(
                "an operation on files in the journal behind entry {} was not written by a process of this store, or \
                 one before it was changed, removed or moved",
                self.seq
            )));
        }
        self.link = *code;
        Ok(())
    }

    /// Returns how many operations on files stand in no entry yet.
    pub fn unsigned(&self) -> u64 {
        self.pending.values().map(Pending::operations).sum()
    }

    /// Returns what a clean end at `offset` of the journal signs.
    pub fn end_hash(&self, offset: u64) -> Hash {
        let mut out = object::Writer::new();
        out.hash(&self.tip).number(offset);
        Hash::of(&END_CONTEXT, out.as_slice())
    }
}

impl Memory {
    /// Does what `deed` returns, as one entry, and tells the listeners. Nothing changes between what
    /// `deed` sees and what is done. What was done to the files of `branches` stands in entries before.
    pub(super) fn act(
        &self,
        who: &Actor,
        branches: &[Option<BranchId>],
        deed: impl FnOnce() -> Result<Deed, Error>,
    ) -> Result<Arc<SignedEntry>, Error> {
        let _room = self.take_room(cost_of(0, 0))?;
        self.act_in_room(who, branches, deed)
    }

    /// Like [`Memory::act`], for who found room for it, or gives room back.
    pub(super) fn act_in_room(
        &self,
        who: &Actor,
        branches: &[Option<BranchId>],
        deed: impl FnOnce() -> Result<Deed, Error>,
    ) -> Result<Arc<SignedEntry>, Error> {
        let (entry, change) = {
            let mut writer = self.writer_for(who, branches)?;
            let deed = deed()?;
            self.perform(&mut writer, who.uid, deed)?
        };
        self.tell(change);
        Ok(entry)
    }

    /// Returns the right to write, with what was done to the files of some branches standing in entries:
    /// an entry names their heads.
    ///
    /// What takes long to gather is worked out before, without the lock.
    pub(super) fn writer_for(&self, who: &Actor, branches: &[Option<BranchId>]) -> Result<WriterGuard<'_>, Error> {
        loop {
            let mut writer = self.writer()?;
            writer.writable()?;
            self.introduce(&mut writer, who)?;
            let branches = branches.iter().flatten();
            let Some((branch, before)) = branches.clone().find_map(|branch| writer.takes_long(*branch)) else {
                branches.into_iter().try_for_each(|branch| self.gather(&mut writer, *branch))?;
                return Ok(writer);
            };
            drop(writer);
            if !may_wait() {
                return Err(Error::would_wait());
            }
            self.prepare_gather(branch, &before)?;
        }
    }

    /// Writes down the name of a uid that was never seen before.
    fn introduce(&self, chain: &mut Chain, who: &Actor) -> Result<(), Error> {
        if !self.world().users.contains_key(&who.uid) {
            self.perform(chain, who.uid, Deed::User(who.name.clone()))?;
        }
        Ok(())
    }

    /// Works out what a deed changes, and does it.
    pub(super) fn perform(&self, chain: &mut Chain, uid: u32, deed: Deed) -> Result<(Arc<SignedEntry>, Change), Error> {
        let time = match &deed {
            Deed::Files(..) => self.time_of_gathering(chain),
            _ => self.next_time(chain)?,
        };
        let seq = chain.seq + 1;
        self.perform_planned(chain, Act { time, planned: time, uid, deed }, |world, act| {
            let segment = |name: &Hash| self.segments.get(name);
            prepare(&Ground { world, seq, packs: &self.trees, segment: &segment }, act)
        })
    }

    /// Does an act whose outcome `prepare` gives: signs, appends, swaps the world.
    pub(super) fn perform_planned(
        &self,
        chain: &mut Chain,
        act: Act,
        prepare: impl FnOnce(&World, &Act) -> Result<Prepared, Error>,
    ) -> Result<(Arc<SignedEntry>, Change), Error> {
        let journal = chain.writable()?;
        let prepared = prepare(&self.world(), &act)?;
        let bytes = act.to_bytes();
        self.admit_act(&act.deed, bytes.len())?;
        let signed = SignedEntry::sign(chain.entry(&prepared, &act, &bytes, &self.public), &self.key);
        self.history.make_ready(&self.segments.blobs, &signed.entry)?;
        no_longer_hurried();
        self.append(&journal, Kind::Command, &[&signed.signature, &bytes], act.deed.gives())?;
        chain.loose_bytes += bytes.len() as u64 + super::seal::ACT_BYTES;
        if let Deed::Files(branch, _) | Deed::Discard(branch) | Deed::Join(branch, Join::Merge) = &act.deed {
            chain.pending.remove(branch);
        }
        if let Deed::Discard(branch) | Deed::Join(branch, _) = &act.deed {
            self.shown.forget_branch(*branch);
            self.planner.forget(*branch);
        }
        if let Deed::Bulk(_, segment, _) = &act.deed {
            self.named.lock().insert(*segment);
            chain.loose_bytes += prepared.counts.put * super::seal::BULK_ROW_BYTES;
        }
        let (branch, what) = (prepared.branch, prepared.op.name());
        let parent = prepared.parent.as_ref().map(|(id, _)| *id);
        let was = {
            let world = self.world();
            let is = |id: BranchId| world.branches.get(&id).cloned();
            [Some(branch), parent].into_iter().flatten().filter_map(is).collect()
        };
        let (signed, files) = self.enact(chain, prepared, signed);
        Ok((signed, Change { branch, parent, what, files, was }))
    }

    /// Swaps the world for the one after the entry; returns the files that others were put in place
    /// of.
    fn enact(
        &self,
        chain: &mut Chain,
        mut prepared: Prepared,
        signed: SignedEntry,
    ) -> (Arc<SignedEntry>, Vec<Replaced>) {
        chain.advance(&signed);
        let replaces = matches!(prepared.op, Op::Merge | Op::Promote | Op::Pull | Op::Rollback);
        let replaced = if replaces { self.replace(&self.world(), &mut prepared.steps) } else { Vec::new() };
        let owners: Vec<u32> = {
            let world = self.world();
            let parent = prepared.parent.as_ref().map(|(id, _)| *id);
            let of = |id: BranchId| world.branches.get(&id).map(|branch| branch.uid);
            [Some(prepared.branch), parent].into_iter().flatten().filter_map(of).collect()
        };
        self.world.write().enact(prepared.branch, prepared.steps, signed.entry.seq, signed.entry.time);
        owners.into_iter().for_each(|owner| self.recount_files(&self.world(), owner));
        self.history.push(&signed);
        (Arc::new(signed), replaced)
    }

    /// Lets open files live on in the files that are about to be put in place of others; returns
    /// both. An opening knows nothing of this, as no entry and no head does.
    fn replace(&self, world: &World, steps: &mut [Step]) -> Vec<Replaced> {
        let mut replaced = Vec::new();
        for step in steps {
            let Step::State(branch, state) = step else { continue };
            let Some(before) = world.branches.get(branch).map(|branch| branch.state.files().clone()) else { continue };
            let open = self.open_files(*branch);
            if !open.is_empty() || state.files().orphans().next().is_some() {
                let mut files = state.files().clone();
                files.keep_open(&before, &open);
                Arc::make_mut(state).set_files(files);
            }
            replaced.push(Replaced { branch: *branch, before, after: state.files().clone() });
        }
        replaced
    }

    pub(super) fn tell(&self, change: Change) {
        // Taken out: a listener looks at the store itself.
        let listeners = self.listeners.lock().clone();
        for listener in listeners {
            listener(&change);
        }
        if self.world().branch(change.branch).is_err() {
            self.forget_ended(change.branch);
        }
        self.wake_keeper();
        let items = |branch: &BranchRef| branch.state.totals().records + branch.state.files().totals().files;
        let replaces = !change.files.is_empty() || change.what == Op::Discard.name();
        if replaces && change.was.iter().map(items).sum::<u64>() > LET_GO_AT_ONCE {
            self.planner.run(move || drop(change));
        }
    }

    /// Lets go of what is remembered of a branch that has ended.
    fn forget_ended(&self, branch: BranchId) {
        self.refused.lock().remove(&branch);
        self.expiry.forget(branch);
        self.documents.lock().forget(branch);
        self.shown.forget_branch(branch);
        self.planner.forget(branch);
    }

    /// Makes everything acknowledged so far durable; all who wait share one device flush.
    pub fn sync(&self) -> Result<(), Error> {
        // One that is replaced meanwhile is flushed before the one that follows it.
        let Some(journal) = self.journal() else { return Ok(()) };
        Ok(journal.sync(journal.length())?)
    }

    /// Writes a signed end and takes nothing more. Calling it again does nothing.
    pub fn close(&self) -> Result<(), Error> {
        self.stop_indexer();
        self.stop_keeper();
        if !self.is_read_only() {
            self.gather_all()?;
            self.seal_to_close();
        }
        let mut chain = self.writer()?;
        if chain.closed.replace("the store was closed").is_some() {
            return Ok(());
        }
        let Some(journal) = chain.journal.clone() else { return Ok(()) };
        let offset = journal.length();
        if offset != chain.ended_at {
            // The end vouches for all before it, so that must be safe first.
            journal.finish()?;
            let signature = self.key.sign(&chain.end_hash(offset));
            chain.ended_at = self.append(&journal, Kind::End, &[&signature], true)?;
        }
        drop(chain);
        Ok(journal.finish()?)
    }
}

/// Reads the payload of an act's frame: the signature and the act's bytes.
pub(super) fn split(payload: &[u8]) -> Option<([u8; crate::lineage::SIGNATURE_BYTES], &[u8])> {
    let (signature, bytes) = payload.split_at_checked(crate::lineage::SIGNATURE_BYTES)?;
    Some((signature.try_into().ok()?, bytes))
}
