//! Giving a branch another name. Branches are named by the number of the entry that made them, so only paths change;
//! root branches keep theirs.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::{BranchId, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Actor, BranchError, Error, Memory};
use crate::object::Writer;

/// A child branch gets another name.
#[derive(Debug)]
pub(super) struct RenameBranch {
    /// The branch; the command is refused for a root branch.
    pub branch: BranchId,
    /// The new name, which none of its siblings has.
    pub name: Arc<str>,
}

pub(super) const RENAME: CommandSpec = CommandSpec {
    code: 12,
    name: "rename",
    read: |input| Ok(Box::new(RenameBranch { branch: BranchId::read(input)?, name: input.text()?.into() })),
};

impl Command for RenameBranch {
    fn spec(&self) -> &'static CommandSpec {
        &RENAME
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).text(&self.name);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (catalog, name) = (context.catalog, &self.name);
        let branch = catalog.branch(self.branch)?;
        context.check_name(name)?;
        if branch.parent.is_none() {
            return Err(BranchError::RootName(branch.name.to_string()).into());
        }
        let parent = catalog.parent(branch)?;
        if parent.children.contains_key(name) {
            return Err(BranchError::Exists(format!("{}/{name}", parent.path)).into());
        }
        let detail = Detail { label: Some(branch.name.clone()), text: Some(name.clone()), ..Detail::default() };
        let prepared = prepare_on_branch(catalog, log_record, branch, EntryOp::Rename).with_detail(detail);
        Ok(prepared.with_change(CatalogChange::Rename(branch.id, name.clone())))
    }
}

impl Memory {
    /// Renames a child branch. Kind `Exists` if a sibling has the name, `Invalid` if it is not a valid name, or if the
    /// branch is a root branch.
    pub fn rename_branch(&self, who: &Actor, branch: BranchId, name: &str) -> Result<(), Error> {
        self.transact(who, &[Some(branch)], || Ok(RenameBranch { branch, name: name.into() })).map(drop)
    }
}
