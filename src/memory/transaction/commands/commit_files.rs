//! Making an entry of operations on files that are in the journal already.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::BranchId;
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord, read_texts, write_texts};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::transaction::transact::LogTail;
use crate::memory::{Error, Memory};
use crate::object::{CodecError, Reader, Writer};

/// Files were changed by operations, which the journal holds already: so this names paths and no contents.
#[derive(Debug)]
pub(super) struct CommitFiles {
    /// The branch whose files they are.
    pub branch: BranchId,
    /// How many paths differ; one that changed twice may count twice.
    pub count: u64,
    /// The first of them, as many as an entry names, each with `files/` in front.
    pub paths: Vec<Arc<str>>,
}

pub(super) const FILES: CommandSpec =
    CommandSpec { code: 18, name: "files", read: |input| Ok(Box::new(CommitFiles::read(input)?)) };

impl CommitFiles {
    fn read(input: &mut Reader<'_>) -> Result<CommitFiles, CodecError> {
        Ok(CommitFiles { branch: BranchId::read(input)?, count: input.number()?, paths: read_texts(input)? })
    }
}

impl Command for CommitFiles {
    fn spec(&self) -> &'static CommandSpec {
        &FILES
    }

    fn write(&self, out: &mut Writer) {
        write_texts(&self.paths, out.number(self.branch.0).number(self.count));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.branch)?;
        let prepared = prepare_on_branch(context.catalog, log_record, branch, EntryOp::Files);
        let mut prepared = prepared.with_detail(Detail::from_items(self.paths.iter().cloned()));
        prepared.counts.files = self.count;
        Ok(prepared)
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn committed_files_branch(&self) -> Option<BranchId> {
        Some(self.branch)
    }
}

impl Memory {
    /// Makes one entry of what was done to a branch's files since its last one. Fails like [`Memory::execute_at`], and
    /// they are still pending then; with none there is nothing to do.
    pub(in crate::memory) fn commit_pending(&self, log_tail: &mut LogTail, branch: BranchId) -> Result<(), Error> {
        let Some(pending) = log_tail.pending.get(&branch) else { return Ok(()) };
        let (uid, before) = (pending.uid, pending.before.clone());
        // The state itself and no clone of its files: what is hashed here is known when its head is asked for.
        let Some(after) = self.catalog().branches.get(&branch).map(|branch| branch.state.clone()) else {
            // The branch has ended, and what was done to its files went with it: no entry could name its head.
            log_tail.pending.remove(&branch);
            return Ok(());
        };
        let (count, paths) = pending.count_changed_paths(after.files());
        let paths = Detail::from_items(paths).items;
        // Not `next_time`: a clock that jumped must not keep operations that are done from getting their entry.
        let time = self.pending_entry_time(log_tail);
        self.execute_at(log_tail, time, uid, Box::new(CommitFiles { branch, count, paths }))?;
        // After the entry: what resolves a conflict is a version that the lineage has.
        self.merging.acks.note_written(branch, uid, &before, after.files());
        Ok(())
    }
}
