//! Noting in the lineage that a merge, or a write to files, was refused.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::BranchId;
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Actor, Error, Memory};
use crate::object::Writer;

/// A merge, or a write that a rule forbids, was refused, and why.
#[derive(Debug)]
pub(super) struct NoteRefusal {
    /// The branch in whose lineage it is noted.
    pub branch: BranchId,
    /// The code and the message of the error, with `: ` between.
    pub reason: Arc<str>,
}

pub(super) const REFUSE: CommandSpec = CommandSpec {
    code: 16,
    name: "refuse",
    read: |input| Ok(Box::new(NoteRefusal { branch: BranchId::read(input)?, reason: input.text()?.into() })),
};

impl Command for NoteRefusal {
    fn spec(&self) -> &'static CommandSpec {
        &REFUSE
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).text(&self.reason);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.branch)?;
        let detail = Detail { text: Some(self.reason.clone()), ..Detail::default() };
        Ok(prepare_on_branch(context.catalog, log_record, branch, EntryOp::Refuse).with_detail(detail))
    }
}

impl Memory {
    /// Writes a refusal into the lineage, at most one a second and branch; returns it, or kind `WouldWait` if it could
    /// not be written down for that.
    pub(in crate::memory) fn note_refusal(&self, who: &Actor, branch: BranchId, refusal: Error) -> Error {
        let now = self.now();
        let last = self.merging.refused_at.lock().get(&branch).copied();
        // A program that tries again in a loop must not fill the lineage with its refusals.
        if last.is_some_and(|last| now < last.plus_nanos(1_000_000_000)) {
            return refusal;
        }
        let reason = format!("{}: {refusal}", refusal.code());
        match self.transact(who, &[Some(branch)], || Ok(NoteRefusal { branch, reason: reason.into() })) {
            // The whole request is repeated on a thread that may wait, and is refused and noted there.
            Err(Error::WouldWait) => return Error::WouldWait,
            Err(error) => log::warn!("a refusal could not be noted in the lineage: {error}; {}", error.hint()),
            Ok(_) => drop(self.merging.refused_at.lock().insert(branch, now)),
        }
        refusal
    }
}
