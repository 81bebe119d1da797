//! One step of the lineage and its canonical bytes.

use std::sync::Arc;

use super::decision::EntryForm;
use super::entry_op::NewState;
use super::{Decision, EntryOp, Key, PublicKey, SIGNATURE_BYTES, Strategy};
use crate::object::{CodecError, Context, Hash, Reader, Time, Writer};

static CONTEXT: Context = Context::new("engramfs 2026 lineage entry v1");

/// How many items a step put and deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many records were written, new or not.
    pub put: u64,
    /// How many records were deleted; missing ones do not count.
    pub deleted: u64,
    /// How many paths in `files/` differ afterwards.
    pub files: u64,
}

/// Details whose meaning depends on the step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The branch whose proposal it is about, a checkpoint's label, a setting's name, the name before a renaming, the
    /// last entry that was moved out, the entries that were taken back.
    pub label: Option<Arc<str>>,
    /// What was said of a proposal, a checkpoint's text, a setting's value, a refusal's reason, the owner that a branch
    /// was given, the hash of the last entry that was moved out, the verb that took entries back.
    pub text: Option<Arc<str>>,
    /// The strategy of the branch that received a merge; `None` for steps that merge nothing.
    pub strategy: Option<Strategy>,
    /// A merge's conflicts with their decisions; the versions that a purge took out, each as the base.
    pub conflicts: Vec<Decision>,
    /// The states that a merge, promote, pull or revert was based on; `None` for all other steps.
    pub merge: Option<MergeDetail>,
    /// The first records by id, and files by path with `files/` in front, that changed: at most [`ITEMS_MAX`].
    pub items: Vec<Arc<str>>,
    /// The plan that was approved or rejected. For a merge see [`MergeDetail::plan`].
    pub plan: Option<Hash>,
}

/// The most items that an entry names.
pub const ITEMS_MAX: usize = 20;
/// Bytes of all of them together at most.
const ITEMS_BYTES_MAX: usize = 1024;
/// Flags of the byte that says which parts of a detail follow, in this order.
const HAS_MERGE: u8 = 1;
const HAS_ITEMS: u8 = 2;
const HAS_PLAN: u8 = 4;

/// The states that a merge, promote or pull was based on, and what it left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeDetail {
    /// The branch's head before; in a revert that of the state before the entries.
    pub child_head: Hash,
    /// Its parent's head before; in a revert the branch's own.
    pub parent_head: Hash,
    /// The hash of all that it took and decided, as in approvals and dry runs.
    pub plan: Hash,
    /// The paths left out by a rule, each with `files/` in front.
    pub not_merged: Vec<Arc<str>>,
}

impl MergeDetail {
    fn write(&self, out: &mut Writer) {
        out.hash(&self.child_head).hash(&self.parent_head).hash(&self.plan).number(self.not_merged.len() as u64);
        self.not_merged.iter().fold(&mut *out, |out, path| out.text(path));
    }

    fn read(input: &mut Reader<'_>) -> Result<MergeDetail, CodecError> {
        let [child_head, parent_head, plan] = [input.hash()?, input.hash()?, input.hash()?];
        let not_merged = (0..input.length()?).map(|_| input.text().map(Arc::from)).collect::<Result<_, _>>()?;
        Ok(MergeDetail { child_head, parent_head, plan, not_merged })
    }
}

impl Detail {
    /// Returns a detail that names the first of some items, as many as an entry has room for.
    pub fn from_items<T: Into<Arc<str>>>(items: impl IntoIterator<Item = T>) -> Detail {
        let mut bytes = 0;
        let fits = |item: &Arc<str>| {
            bytes += item.len();
            bytes <= ITEMS_BYTES_MAX
        };
        let items = items.into_iter().map(T::into).take(ITEMS_MAX).take_while(fits).collect();
        Detail { items, ..Detail::default() }
    }

    /// Returns the uid to which an operation gave a branch: an entry `owner`, or a fork for another user. `None` for
    /// all others, whose text means something else.
    pub fn owner(&self, op: EntryOp) -> Option<u32> {
        let tells = matches!(op, EntryOp::Fork | EntryOp::Owner);
        self.text.as_deref().filter(|_| tells).and_then(|text| text.parse().ok())
    }
}

/// One step of the lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the store, from 1.
    pub seq: u64,
    /// The step. It decides what label and text of the detail mean.
    pub op: EntryOp,
    /// Name path of the branch that acted or was acted upon.
    pub branch: Arc<str>,
    /// The branch's number: the `seq` of the entry that made it.
    pub branch_id: u64,
    /// Name path of the branch's parent; `None` for a root branch.
    pub parent: Option<Arc<str>>,
    /// The parent's number, 0 for none.
    pub parent_id: u64,
    /// When it was done: later than the entry before, except after the clock was reset ([`EntryOp::Clock`]).
    pub time: Time,
    /// The agent at work: `config/agent` of the branch, else the caller's user name, or `uid:N` where that is not
    /// theirs.
    pub agent: Arc<str>,
    /// The branch's `config/session`; empty for none.
    pub session: Arc<str>,
    /// The branch's `config/task`; empty for none.
    pub task: Arc<str>,
    /// Uid of the caller, or of the user who wrote the committed files.
    pub uid: u32,
    /// Head of the branch's base at that moment.
    pub base: Hash,
    /// Head after the step: that of the branch, or after a merge or promote that of the parent.
    pub head: Hash,
    /// What changed; all 0 for steps that change no content.
    pub counts: Counts,
    /// What is particular to the kind of step.
    pub detail: Detail,
    /// Hash of the stored log record, from which a replay makes the same entry.
    pub log_record: Hash,
    /// Hash of the entry before in the store.
    pub prev: Hash,
    /// Hash of the public key under which its signature verifies.
    pub key: Hash,
}

impl Entry {
    /// Returns the uid to which the step gave the branch; `None` if it gave it to nobody.
    pub fn owner(&self) -> Option<u32> {
        self.detail.owner(self.op)
    }

    fn canonical_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.number(self.seq).byte(self.op.code()).text(&self.branch).number(self.branch_id);
        out.optional_text(self.parent.as_deref()).number(self.parent_id).signed(self.time.0);
        out.text(&self.agent).text(&self.session).text(&self.task).number(u64::from(self.uid));
        out.hash(&self.base).hash(&self.head);
        out.number(self.counts.put).number(self.counts.deleted).number(self.counts.files);
        self.detail.write(&mut out, EntryForm::Signed);
        out.hash(&self.log_record).hash(&self.prev).hash(&self.key);
        out.finish()
    }

    /// Returns the entry's own hash: that of its canonical bytes.
    pub fn hash(&self) -> Hash {
        Hash::digest(&CONTEXT, &self.canonical_bytes())
    }

    /// Returns whether the operation changed the state of the branch with that number. A merge changes only that of the
    /// parent. A purge changes none: it rewrites existing states.
    pub fn changes_state(&self, branch_id: u64) -> bool {
        let (is_own, is_from_child) = (self.branch_id == branch_id, self.parent_id == branch_id);
        match self.op.new_state() {
            NewState::Nobody => false,
            NewState::Branch => is_own,
            NewState::Parent => is_from_child,
            NewState::Both => is_own || is_from_child,
        }
    }

    /// Returns whether the entry belongs to a merge into its parent.
    pub fn merges_into_parent(&self) -> bool {
        matches!(self.op, EntryOp::Merge | EntryOp::Promote)
    }
}

impl Detail {
    /// Appends its part of an entry's bytes: as they are hashed, or as they are stored.
    pub(super) fn write(&self, out: &mut Writer, form: EntryForm) {
        out.optional_text(self.label.as_deref())
            .optional_text(self.text.as_deref())
            .optional_text(self.strategy.map(Strategy::name));
        out.number(self.conflicts.len() as u64);
        self.conflicts.iter().for_each(|conflict| conflict.write(out, form));
        let has = |part: bool, flag: u8| if part { flag } else { 0 };
        let (merge, items) = (has(self.merge.is_some(), HAS_MERGE), has(!self.items.is_empty(), HAS_ITEMS));
        out.byte(merge | items | has(self.plan.is_some(), HAS_PLAN));
        if let Some(merge) = &self.merge {
            merge.write(out);
        }
        if !self.items.is_empty() {
            self.items.iter().fold(out.number(self.items.len() as u64), |out, item| out.text(item));
        }
        self.plan.inspect(|plan| _ = out.hash(plan));
    }

    /// Reads the stored form back; [`CodecError::Code`] for a part that this version does not know,
    /// [`CodecError::Text`] for another strategy.
    pub(super) fn read(input: &mut Reader<'_>) -> Result<Detail, CodecError> {
        let label = input.optional_text()?.map(Arc::from);
        let text = input.optional_text()?.map(Arc::from);
        let strategy = input.optional_text()?.map(str::parse).transpose().map_err(|_| CodecError::Text)?;
        let count = input.length()?;
        let conflicts = (0..count).map(|_| Decision::read(input)).collect::<Result<_, _>>()?;
        let has = input.byte()?;
        if has & !(HAS_MERGE | HAS_ITEMS | HAS_PLAN) != 0 {
            return Err(CodecError::Code(has));
        }
        let merge = (has & HAS_MERGE != 0).then(|| MergeDetail::read(input)).transpose()?;
        let count = if has & HAS_ITEMS != 0 { input.length()? } else { 0 };
        let items = (0..count).map(|_| input.text().map(Arc::from)).collect::<Result<_, _>>()?;
        let plan = (has & HAS_PLAN != 0).then(|| input.hash()).transpose()?;
        Ok(Detail { label, text, strategy, conflicts, merge, items, plan })
    }
}

/// An entry with its hash and the signature over it, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedEntry {
    /// What was hashed and signed.
    pub entry: Entry,
    /// Hash of the canonical bytes, which the next entry names as `prev`.
    pub hash: Hash,
    /// The store's ed25519 signature over the hash.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl SignedEntry {
    /// Hashes and signs an entry. Its fields are not checked.
    pub fn sign(entry: Entry, key: &Key) -> SignedEntry {
        let hash = entry.hash();
        let signature = key.sign(&hash);
        SignedEntry { entry, hash, signature }
    }

    /// Returns whether hash and signature belong to the entry. Whether it follows the one before is not checked.
    pub fn verifies(&self, key: &PublicKey) -> bool {
        self.entry.hash() == self.hash && key.verifies(&self.hash, &self.signature)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
