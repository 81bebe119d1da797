//! Telling root branches that earlier states were dropped to free disk or memory.

use crate::lineage::EntryOp;
use crate::memory::Error;
use crate::memory::catalog::BranchId;
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::object::Writer;

/// Earlier states were dropped before their `keep` was over, since the disk was full or their trees took too much memory. Each
/// root branch gets an entry, as forks may end before anybody looks.
#[derive(Debug)]
pub struct NoteDroppedStates(pub BranchId);

pub(super) const KEPT_DROPPED: CommandSpec = CommandSpec {
    code: 27,
    name: "kept_dropped",
    read: |input| Ok(Box::new(NoteDroppedStates(BranchId::read(input)?))),
};

impl Command for NoteDroppedStates {
    fn spec(&self) -> &'static CommandSpec {
        &KEPT_DROPPED
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.0.0);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.0)?;
        Ok(prepare_on_branch(context.catalog, log_record, branch, EntryOp::KeptDropped))
    }

    fn may_use_reserve(&self) -> bool {
        true
    }
}
