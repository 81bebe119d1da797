//! Freeing and barring names of agents.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::{BranchId, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Actor, AgentError, BranchError, Error, Memory};
use crate::object::{CodecError, Hash, Reader, Writer};

/// A name of an agent below a root branch is taken from whoever has it: it is free, or barred.
#[derive(Debug)]
pub(super) struct SetAgentName {
    /// The root branch below which the name is taken.
    pub root: BranchId,
    /// The agent's name, or `uid:N` for all names of a user.
    pub name: Arc<str>,
    /// Whether nobody may use it from now on; else it is free.
    pub bars: bool,
}

pub(super) const AGENT_NAME: CommandSpec =
    CommandSpec { code: 49, name: "agent_name", read: |input| Ok(Box::new(SetAgentName::read(input)?)) };

impl SetAgentName {
    fn read(input: &mut Reader<'_>) -> Result<SetAgentName, CodecError> {
        Ok(SetAgentName { root: BranchId::read(input)?, name: input.text()?.into(), bars: input.byte()? == 1 })
    }
}

impl Command for SetAgentName {
    fn spec(&self) -> &'static CommandSpec {
        &AGENT_NAME
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.root.0).text(&self.name).byte(u8::from(self.bars));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let root = context.catalog.branch(self.root)?;
        let op = if self.bars { EntryOp::BarAgent } else { EntryOp::FreeAgent };
        let detail = Detail { label: Some(self.name.clone()), ..Detail::default() };
        let prepared = prepare_on_branch(context.catalog, log_record, root, op).with_detail(detail);
        let holder = self.bars.then_some(AgentHolder::Barred);
        Ok(prepared.with_change(CatalogChange::Agent(root.id, self.name.clone(), holder)))
    }
}

impl Memory {
    /// Frees the name of an agent below a root branch, or bars it from all use. `name` is the agent's name, or `uid:N`
    /// for all names of that user. Returns the entry's hash.
    ///
    /// Kind `NotPermitted` if `root` is not a root branch, `NotFound` if a name is freed that nobody has.
    pub fn set_agent_name(&self, who: &Actor, root: BranchId, name: &str, bars: bool) -> Result<Hash, Error> {
        let name: Arc<str> = name.into();
        let command = || {
            let catalog = self.catalog();
            let root = catalog.branch(root)?;
            if root.parent.is_some() {
                let verb = if bars { "bar-agent" } else { "free-agent" };
                return Err(BranchError::NotRoot { verb, path: root.path.to_string() }.into());
            }
            if !bars && !root.agents.contains_key(&name) {
                return Err(AgentError::Unknown(name.to_string()).into());
            }
            Ok(SetAgentName { root: root.id, name: name.clone(), bars })
        };
        Ok(self.transact(who, &[], command)?.hash)
    }
}
