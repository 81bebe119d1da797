//! Permission bits of a branch's directory, and whose the branch is.

use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{BranchId, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord, read_u32};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Actor, Error, Memory};
use crate::object::Writer;

/// The directory of a branch gets other permission bits.
#[derive(Debug)]
pub(super) struct ChangeMode {
    /// The branch; kind `Gone` if it has ended.
    pub branch: BranchId,
    /// The permission bits with setuid, setgid and sticky: 12 bits.
    pub bits: u32,
}

/// A branch is given to another user, with its files that others may read.
#[derive(Debug)]
pub(super) struct ChangeOwner {
    /// The branch; kind `Gone` if it has ended.
    pub branch: BranchId,
    /// Uid of the new owner.
    pub uid: u32,
}

pub(super) const MODE: CommandSpec = CommandSpec {
    code: 14,
    name: "mode",
    read: |input| Ok(Box::new(ChangeMode { branch: BranchId::read(input)?, bits: read_u32(input)? })),
};

pub(super) const OWNER: CommandSpec = CommandSpec {
    code: 21,
    name: "owner",
    read: |input| Ok(Box::new(ChangeOwner { branch: BranchId::read(input)?, uid: read_u32(input)? })),
};

impl Command for ChangeMode {
    fn spec(&self) -> &'static CommandSpec {
        &MODE
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).number(u64::from(self.bits));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.branch)?;
        let (label, text) = (Some("mode".into()), Some(format!("{:04o}", self.bits).into()));
        let detail = Detail { label, text, ..Detail::default() };
        let prepared = prepare_on_branch(context.catalog, log_record, branch, EntryOp::Config).with_detail(detail);
        Ok(prepared.with_change(CatalogChange::Mode(branch.id, self.bits)))
    }
}

impl Command for ChangeOwner {
    fn spec(&self) -> &'static CommandSpec {
        &OWNER
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).number(u64::from(self.uid));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (catalog, uid) = (context.catalog, self.uid);
        let branch = catalog.branch(self.branch)?;
        let detail = Detail { text: Some(uid.to_string().into()), ..Detail::default() };
        let prepared = prepare_on_branch(catalog, log_record, branch, EntryOp::Owner).with_detail(detail);
        let prepared = prepared.with_change(CatalogChange::Owner(branch.id, uid));
        // The name of its agent goes with its settings.
        let agent = branch.settings.get(Setting::Agent);
        let holder = catalog.branches.get(&branch.root).and_then(|root| root.agents.get(agent));
        // Only where it is the former owner's: a name that is barred, or somebody else's, does not change hands with a
        // branch.
        if holder == Some(&AgentHolder::User(branch.uid)) {
            let holder = CatalogChange::Agent(branch.root, agent.clone(), Some(AgentHolder::User(uid)));
            return Ok(prepared.with_change(holder));
        }
        Ok(prepared)
    }
}

impl Memory {
    /// Sets the permission bits of a branch's directory: the lower 12 bits of `mode`. Kind `Gone` if the branch has
    /// ended.
    pub fn chmod(&self, who: &Actor, branch: BranchId, mode: u32) -> Result<(), Error> {
        self.transact(who, &[Some(branch)], || Ok(ChangeMode { branch, bits: mode & 0o7777 })).map(drop)
    }

    /// Gives a branch to the user `uid`, with those files of its present owner that others may read. Rights are not
    /// checked here. Kind `Gone` if the branch has ended.
    pub fn chown(&self, who: &Actor, branch: BranchId, uid: u32) -> Result<(), Error> {
        self.transact(who, &[Some(branch)], || Ok(ChangeOwner { branch, uid })).map(drop)
    }
}
