//! Throwing a branch away. It must have no children, whose paths and bases lead through it, and `main` stays always.

use crate::lineage::EntryOp;
use crate::memory::catalog::{BranchId, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord, SharedEvent};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::merging::merge_plan;
use crate::memory::transaction::shared_log;
use crate::memory::{Actor, BranchError, Error, Memory};
use crate::object::Writer;

/// A branch is thrown away. Its last state stays for as long as its `config/keep` says.
#[derive(Debug)]
pub struct DiscardBranch(pub BranchId);

pub(super) const DISCARD: CommandSpec =
    CommandSpec { code: 11, name: "discard", read: |input| Ok(Box::new(DiscardBranch(BranchId::read(input)?))) };

impl Command for DiscardBranch {
    fn spec(&self) -> &'static CommandSpec {
        &DISCARD
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.0.0);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let catalog = context.catalog;
        let branch = catalog.branch(self.0)?;
        if branch.parent.is_none() && &*branch.name == "main" {
            return Err(BranchError::MainStays.into());
        }
        // A child without its parent would have no base to merge into, and no path.
        merge_plan::check_no_children(branch)?;
        shared_log::check_archived(catalog, branch)?;
        Ok(prepare_on_branch(catalog, log_record, branch, EntryOp::Discard)
            .with_change(CatalogChange::Remove(branch.id)))
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn committed_files_branch(&self) -> Option<BranchId> {
        Some(self.0)
    }

    fn invalidated_plans_branch(&self) -> Option<BranchId> {
        Some(self.0)
    }

    fn shared_event(&self) -> Option<SharedEvent<'_>> {
        Some(SharedEvent::Changed(self.0))
    }
}

impl Memory {
    /// Discards a branch with all that it holds. It can be brought back for as long as `config/keep` says.
    ///
    /// Kind `NotEmpty` while it has child branches, or if its own log has entries that were not archived. Kind
    /// `NotPermitted` for `main`.
    pub fn discard(&self, who: &Actor, branch: BranchId) -> Result<(), Error> {
        self.ensure_room_to_free()?;
        self.transact_without_reserving(who, &[Some(branch)], || Ok(DiscardBranch(branch))).map(drop)
    }
}
