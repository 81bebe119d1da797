//! Taking and deleting checkpoints. A checkpoint and its line in the shared log are one command, so that a crash leaves
//! both or neither.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::{BranchId, CatalogChange, Checkpoint, check_label};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord, SharedEvent};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::command::record_change::SharedLogAppend;
use crate::memory::command::shared_log_entry::SharedLogEntryInput;
use crate::memory::transaction::shared_log::{plan_append, prepare_append};
use crate::memory::{Actor, BranchError, Error, Memory};
use crate::object::{CodecError, Hash, Reader, Writer};

/// What a branch holds stays under a label.
#[derive(Debug)]
pub(super) struct TakeCheckpoint {
    /// The branch of which it is taken.
    pub branch: BranchId,
    /// The label, which no other checkpoint of the branch has.
    pub label: Arc<str>,
    /// What is said about it, which its entry has; empty for nothing.
    pub text: Arc<str>,
    /// What that becomes in the shared log; `None` if nothing is said, or the checkpoint is taken again by an import.
    pub log: Option<SharedLogAppend>,
}

/// A checkpoint goes.
#[derive(Debug)]
pub(super) struct DeleteCheckpoint {
    /// The branch that has it.
    pub branch: BranchId,
    /// Its label; the command is refused where no checkpoint has it.
    pub label: Arc<str>,
}

pub(super) const CHECKPOINT: CommandSpec =
    CommandSpec { code: 5, name: "checkpoint", read: |input| Ok(Box::new(TakeCheckpoint::read(input)?)) };

pub(super) const UNCHECKPOINT: CommandSpec = CommandSpec {
    code: 6,
    name: "uncheckpoint",
    read: |input| Ok(Box::new(DeleteCheckpoint { branch: BranchId::read(input)?, label: input.text()?.into() })),
};

impl TakeCheckpoint {
    fn read(input: &mut Reader<'_>) -> Result<TakeCheckpoint, CodecError> {
        let (branch, label, text) = (BranchId::read(input)?, input.text()?.into(), input.text()?.into());
        let log = if input.byte()? == 1 { Some(SharedLogAppend::read(input)?) } else { None };
        Ok(TakeCheckpoint { branch, label, text, log })
    }
}

impl Command for TakeCheckpoint {
    fn spec(&self) -> &'static CommandSpec {
        &CHECKPOINT
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).text(&self.label).text(&self.text).byte(u8::from(self.log.is_some()));
        self.log.iter().fold(out, |out, log| log.write(out));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (catalog, label, text) = (context.catalog, &self.label, &self.text);
        let branch = catalog.branch(self.branch)?;
        context.check_name(label)?;
        if branch.checkpoints.contains_key(label) {
            return Err(BranchError::CheckpointExists(label.to_string()).into());
        }
        let text_detail = (!text.is_empty()).then(|| text.clone());
        let detail = Detail { label: Some(label.clone()), text: text_detail, ..Detail::default() };
        let checkpoint = Checkpoint::from_branch(branch, text, log_record.time);
        let prepared = prepare_on_branch(catalog, log_record, branch, EntryOp::Checkpoint).with_detail(detail);
        let prepared = prepared.with_change(CatalogChange::Checkpoint(branch.id, label.clone(), checkpoint));
        let Some(growth) = &self.log else { return Ok(prepared) };
        // Its changes join those of the checkpoint, so that a crash leaves both the checkpoint and its line or neither.
        let logged = prepare_append(context, log_record, (catalog.log_owner(branch)?, branch), growth)?;
        Ok(logged.changes.into_iter().fold(prepared, PreparedCommand::with_change))
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn shared_event(&self) -> Option<SharedEvent<'_>> {
        self.log.as_ref().map(|growth| SharedEvent::Appended(self.branch, &growth.changes))
    }
}

impl Command for DeleteCheckpoint {
    fn spec(&self) -> &'static CommandSpec {
        &UNCHECKPOINT
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).text(&self.label);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.branch)?;
        branch.checkpoint(&self.label)?;
        let detail = Detail { label: Some(self.label.clone()), ..Detail::default() };
        let prepared =
            prepare_on_branch(context.catalog, log_record, branch, EntryOp::Uncheckpoint).with_detail(detail);
        Ok(prepared.with_change(CatalogChange::RemoveCheckpoint(branch.id, self.label.clone())))
    }

    fn may_use_reserve(&self) -> bool {
        true
    }
}

impl Memory {
    /// Takes a checkpoint. `text`, up to 64 KiB, says why; unless blank, it is appended to the shared log, too.
    ///
    /// Kind `Exists` if the label is taken, `Invalid` if it is not a valid label, `TooLarge` for a longer text. With a
    /// text also `Denied` if the caller does not own the branch.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{Actor, Environment, Error, Kind, Memory, OpenMode, RecordEdit, RecordInput, View};
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
    /// memory.checkpoint(&ann, main, "empty", None)?;
    /// memory.commit(&ann, main, put("tea", "tea is at four"))?;
    ///
    /// // A checkpoint is read like a branch, and a rollback is one more commit.
    /// assert_eq!(memory.snapshot(&View::Checkpoint(main, "empty".into()))?.count(), 0);
    /// memory.rollback(&ann, main, "empty")?;
    /// assert_eq!(memory.snapshot(&View::Branch(main))?.count(), 0);
    ///
    /// memory.delete_checkpoint(&ann, main, "empty")?;
    /// assert_eq!(memory.rollback(&ann, main, "empty").unwrap_err().kind(), Kind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self, who: &Actor, branch: BranchId, label: &str, text: Option<&str>) -> Result<(), Error> {
        self.checkpoint_entry(who, branch, label, text).map(drop)
    }

    /// Takes a checkpoint, and returns the hash of its entry, which names the state when the label is gone. Fails like
    /// [`Memory::checkpoint`].
    pub fn checkpoint_entry(
        &self,
        who: &Actor,
        branch: BranchId,
        label: &str,
        text: Option<&str>,
    ) -> Result<Hash, Error> {
        // Not where commands are replayed: labels of earlier versions go on.
        check_label(label)?;
        let text = text.filter(|text| !text.trim().is_empty());
        let entry = text.map(|text| SharedLogEntryInput::from_text(text.to_owned())).transpose()?;
        self.take_checkpoint(who, branch, (label, text), entry.as_ref())
    }

    /// Takes a checkpoint without an entry in the shared log, for an import. Kind `Exists` if the label is taken,
    /// `Invalid` if it is not a valid label.
    pub fn import_checkpoint(
        &self,
        who: &Actor,
        branch: BranchId,
        label: &str,
        text: Option<&str>,
    ) -> Result<(), Error> {
        check_label(label)?;
        self.take_checkpoint(who, branch, (label, text), None).map(drop)
    }

    fn take_checkpoint(
        &self,
        who: &Actor,
        branch: BranchId,
        (label, text): (&str, Option<&str>),
        entry: Option<&SharedLogEntryInput>,
    ) -> Result<Hash, Error> {
        let command = || {
            let log = match entry {
                Some(entry) => {
                    let catalog = self.catalog().clone();
                    Some(plan_append(&catalog, who.uid, catalog.branch(branch)?, std::slice::from_ref(entry))?.0)
                }
                None => None,
            };
            Ok(TakeCheckpoint { branch, label: label.into(), text: text.unwrap_or_default().into(), log })
        };
        let _room = self.reserve_room(disk_cost_bytes(text.map_or(0, |text| text.len() as u64), 0))?;
        Ok(self.transact_without_reserving(who, &[Some(branch)], command)?.hash)
    }

    /// Deletes a checkpoint. Kind `NotFound` if the branch has no checkpoint with that label.
    pub fn delete_checkpoint(&self, who: &Actor, branch: BranchId, label: &str) -> Result<(), Error> {
        self.ensure_room_to_free()?;
        let command = || Ok(DeleteCheckpoint { branch, label: label.into() });
        self.transact_without_reserving(who, &[Some(branch)], command).map(drop)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Environment, OpenMode, Revision};

    /// Builds before the rule for labels took such checkpoints.
    #[test]
    fn a_checkpoint_whose_label_reads_as_an_entry_stays_and_comes_first() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = ForgetfulDisk::new();
        let open = || {
            let environment = Environment::real(who.clone());
            Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap()
        };
        let mut memory = open();
        let main = memory.root("main").unwrap();
        let found = |memory: &Memory, name: &str| {
            let found = memory.find_state(main, &Revision::parse(name).unwrap()).unwrap().to_json();
            (found["entry"].to_string(), found["checkpoint"].as_str().unwrap().to_owned())
        };
        memory.checkpoint(&who, main, "v1", None).unwrap();
        let label = found(&memory, "v1").0;
        memory.take_checkpoint(&who, main, (&label, None), None).unwrap();
        let newest = found(&memory, &label);
        assert!(newest.1 == label && newest.0 != label, "{newest:?}");
        // By its log record, then by the manifest.
        for closes in [false, true] {
            if closes {
                memory.close().unwrap();
            }
            drop(memory);
            memory = open();
            assert_eq!((found(&memory, &label), found(&memory, &format!("@{label}")).1), (newest.clone(), "v1".into()));
        }
        memory.delete_checkpoint(&who, main, &label).unwrap();
    }
}
