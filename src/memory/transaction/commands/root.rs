//! Making a root branch. Its entry holds the settings that root branches have at that time, so that a replay by a later
//! version with other defaults makes the same branch.

use std::sync::Arc;

use crate::lineage::EntryOp;
use crate::memory::catalog::settings::Settings;
use crate::memory::catalog::{Branch, BranchId, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Actor, BranchError, Error, Memory};
use crate::object::Writer;

/// A root branch is made, which holds nothing.
#[derive(Debug)]
pub struct CreateRoot {
    /// Its name, which no other root branch has.
    pub name: Arc<str>,
    /// The settings that root branches have at that time: a later version may have other defaults.
    pub settings: Settings,
}

pub(super) const ROOT: CommandSpec = CommandSpec {
    code: 1,
    name: "root",
    read: |input| Ok(Box::new(CreateRoot { name: input.text()?.into(), settings: Settings::read(input)? })),
};

impl Command for CreateRoot {
    fn spec(&self) -> &'static CommandSpec {
        &ROOT
    }

    fn write(&self, out: &mut Writer) {
        self.settings.write(out.text(&self.name));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        context.check_name(&self.name)?;
        if context.catalog.roots.contains_key(&self.name) {
            return Err(BranchError::Exists(self.name.to_string()).into());
        }
        let (id, name) = (BranchId(context.seq), self.name.clone());
        let mut branch = Branch::new(id, name, None, Arc::default(), log_record.uid, log_record.time);
        branch.settings = self.settings.clone();
        let prepared = prepare_on_branch(context.catalog, log_record, &branch, EntryOp::Root);
        Ok(prepared.with_change(CatalogChange::Add(Box::new(branch))))
    }

    fn takes_memory(&self) -> bool {
        true
    }
}

impl Memory {
    /// Makes an empty root branch. Its name has 1 to 64 bytes.
    ///
    /// Kind `Exists` if a root branch has that name, `Invalid` if it is not a valid name.
    pub fn create_root(&self, who: &Actor, name: &str) -> Result<BranchId, Error> {
        let command = || Ok(CreateRoot { name: name.into(), settings: Settings::default() });
        Ok(BranchId(self.transact(who, &[], command)?.entry.branch_id))
    }
}
