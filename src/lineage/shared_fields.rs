//! What consecutive entries of a branch have in common, held and written once, and the rest of an entry.

use std::sync::Arc;

use super::EntryOp;
use super::decision::EntryForm;
use super::entry::{Counts, Detail, Entry};
use super::{SIGNATURE_BYTES, SignedEntry};
use crate::object::{CodecError, Hash, Reader, Time, Writer};

/// What most consecutive entries of a branch have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFields {
    branch: Arc<str>,
    branch_id: u64,
    parent: Option<Arc<str>>,
    parent_id: u64,
    labels: [Arc<str>; 3],
    uid: u32,
    base: Hash,
    key: Hash,
}

impl SharedFields {
    /// Copies them out of an entry; the texts stay shared with it.
    pub fn from_entry(entry: &Entry) -> SharedFields {
        SharedFields {
            branch: entry.branch.clone(),
            branch_id: entry.branch_id,
            parent: entry.parent.clone(),
            parent_id: entry.parent_id,
            labels: [entry.agent.clone(), entry.session.clone(), entry.task.clone()],
            uid: entry.uid,
            base: entry.base,
            key: entry.key,
        }
    }

    /// Appends all but the key, which a chunk has once for all its entries.
    pub(super) fn write(&self, out: &mut Writer) {
        out.text(&self.branch).number(self.branch_id).optional_text(self.parent.as_deref()).number(self.parent_id);
        self.labels.iter().fold(&mut *out, |out, label| out.text(label));
        out.number(u64::from(self.uid)).hash(&self.base);
    }

    /// Reads what [`SharedFields::write`] wrote. [`CodecError::Number`] for a uid of more than 32 bits.
    pub(super) fn read(input: &mut Reader<'_>, key: Hash) -> Result<SharedFields, CodecError> {
        Ok(SharedFields {
            branch: input.text()?.into(),
            branch_id: input.number()?,
            parent: input.optional_text()?.map(Arc::from),
            parent_id: input.number()?,
            labels: [input.text()?.into(), input.text()?.into(), input.text()?.into()],
            uid: u32::try_from(input.number()?).map_err(|_| CodecError::Number)?,
            base: input.hash()?,
            key,
        })
    }
}

impl SignedEntry {
    /// Appends all fields of an entry except [`SharedFields`], its number, and the hash of the entry before.
    pub fn write_unshared_fields(&self, out: &mut Writer) {
        let entry = &self.entry;
        out.raw(&self.signature).byte(entry.op.code()).signed(entry.time.0).hash(&entry.head);
        out.number(entry.counts.put).number(entry.counts.deleted).number(entry.counts.files);
        entry.detail.write(out, EntryForm::Stored);
        out.hash(&entry.log_record);
    }

    /// Reads what [`SignedEntry::write_unshared_fields`] wrote. The hash is worked out from what was read. `seq` and `prev` come
    /// from the entries before. [`CodecError::Code`] for an op that this version does not know.
    pub fn read_unshared_fields(
        input: &mut Reader<'_>,
        common: &SharedFields,
        seq: u64,
        prev: Hash,
    ) -> Result<SignedEntry, CodecError> {
        let signature = input.raw(SIGNATURE_BYTES)?.try_into().map_err(|_| CodecError::Short)?;
        let [agent, session, task] = common.labels.clone();
        let (op, time, head) = (EntryOp::from_code(input.byte()?)?, Time(input.signed()?), input.hash()?);
        let counts = Counts { put: input.number()?, deleted: input.number()?, files: input.number()? };
        let entry = Entry {
            seq,
            op,
            branch: common.branch.clone(),
            branch_id: common.branch_id,
            parent: common.parent.clone(),
            parent_id: common.parent_id,
            time,
            agent,
            session,
            task,
            uid: common.uid,
            base: common.base,
            head,
            counts,
            // This and the hash behind it are read in the order of their lines.
            detail: Detail::read(input)?,
            log_record: input.hash()?,
            prev,
            key: common.key,
        };
        Ok(SignedEntry { hash: entry.hash(), entry, signature })
    }
}
