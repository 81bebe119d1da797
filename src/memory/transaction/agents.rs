//! Freeing and barring names of agents.

use std::sync::Arc;

use super::prepare::PlanContext;
use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::{BranchId, CatalogChange};
use crate::memory::command::log_record::{Command, LogRecord};
use crate::memory::command::prepared::{PreparedCommand, about};
use crate::memory::{Actor, AgentError, Error, Memory};
use crate::object::Hash;

impl Memory {
    /// Takes the name of an agent below a root branch from whoever has it, and bars it if nobody shall: a name, or `uid:N` for
    /// all names of a user. Returns the entry's hash.
    ///
    /// Kind `Invalid` for anything but a root branch, `NotFound` where a name is freed that nobody has.
    pub fn set_agent_name(&self, who: &Actor, root: BranchId, name: &str, bars: bool) -> Result<Hash, Error> {
        let name: Arc<str> = name.into();
        let command = || {
            let catalog = self.catalog();
            let root = catalog.branch(root)?;
            if root.parent.is_some() {
                return Err(AgentError::NotRoot(root.path.to_string()).into());
            }
            if !bars && !root.agents.contains_key(&name) {
                return Err(AgentError::Unknown(name.to_string()).into());
            }
            Ok(Command::AgentName { root: root.id, name: name.clone(), bars })
        };
        Ok(self.transact(who, &[], command)?.hash)
    }
}

/// Works out the entry by which a name of agents is barred below a root branch, or is free again. Fails with
/// `Error::Gone` where the root branch is not in the catalog.
pub(super) fn prepare_agent_name(
    context: &PlanContext<'_>,
    log_record: &LogRecord,
    root: BranchId,
    name: &Arc<str>,
    bars: bool,
) -> Result<PreparedCommand, Error> {
    let op = if bars { EntryOp::BarAgent } else { EntryOp::FreeAgent };
    let detail = Detail { label: Some(name.clone()), ..Detail::default() };
    let prepared = about(context.catalog, log_record, context.catalog.branch(root)?, op).with_detail(detail);
    Ok(prepared.step(CatalogChange::Agent(root, name.clone(), bars.then_some(AgentHolder::Barred))))
}
