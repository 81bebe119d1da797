//! Telling root branches that earlier states went for a full disk.

use crate::lineage::EntryOp;
use crate::memory::Error;
use crate::memory::catalog::BranchId;
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, about};
use crate::object::Writer;

/// Earlier states of all branches went, since the disk was full; each root branch gets an entry.
#[derive(Debug)]
pub struct DropKept(pub BranchId);

pub(super) const KEPT_DROPPED: CommandSpec =
    CommandSpec { code: 27, name: "kept_dropped", read: |input| Ok(Box::new(DropKept(BranchId::read(input)?))) };

impl Command for DropKept {
    fn spec(&self) -> &'static CommandSpec {
        &KEPT_DROPPED
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.0.0);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.0)?;
        Ok(about(context.catalog, log_record, branch, EntryOp::KeptDropped))
    }

    fn frees_room(&self) -> bool {
        true
    }
}
