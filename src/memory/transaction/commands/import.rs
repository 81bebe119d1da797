//! Giving a branch what it had in the store that a dump was taken from.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::user::RegisterUser;
use crate::branch::check_name;
use crate::lineage::{Detail, EntryOp};
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::agents::{AGENT_NAMES_MAX, AgentHolder};
use crate::memory::catalog::settings::{Setting, check};
use crate::memory::catalog::shared_log::parse_closed_name;
use crate::memory::catalog::{BranchId, CatalogChange};
use crate::memory::command::imported::ImportedState;
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Actor, AgentError, BranchError, Error, Memory, SharedLogError};
use crate::object::Writer;

/// The largest number that a closed log may bring, so that later ones have room.
const CLOSED_SEQ_MAX: u64 = u64::MAX >> 1;

/// A branch gets something that it had in the store that it comes from.
#[derive(Debug)]
pub(super) struct ImportBranch {
    /// The branch as this store has it.
    pub branch: BranchId,
    /// What it gets.
    pub state: ImportedState,
}

pub(super) const IMPORT: CommandSpec = CommandSpec {
    code: 28,
    name: "import",
    read: |input| Ok(Box::new(ImportBranch::new(BranchId::read(input)?, ImportedState::read(input)?))),
};

impl ImportBranch {
    /// Names what a branch gets; all rules are left to the command's own.
    pub fn new(branch: BranchId, state: ImportedState) -> ImportBranch {
        ImportBranch { branch, state }
    }
}

impl Command for ImportBranch {
    fn spec(&self) -> &'static CommandSpec {
        &IMPORT
    }

    fn write(&self, out: &mut Writer) {
        self.state.write(out.number(self.branch.0));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.branch)?;
        let (label, text) = self.state.label();
        let detail = Detail { label: Some(label.into()), text, ..Detail::default() };
        let prepared = prepare_on_branch(context.catalog, log_record, branch, EntryOp::Import).with_detail(detail);
        let change = match &self.state {
            ImportedState::Settings(settings) => CatalogChange::Settings(branch.id, settings.clone()),
            ImportedState::Agent(name, holder) => CatalogChange::Agent(branch.id, name.clone(), *holder),
            ImportedState::ClosedLog(name) if branch.closed_logs.contains_key(name) => {
                return Err(BranchError::Exists(name.to_string()).into());
            }
            ImportedState::ClosedLog(name) => CatalogChange::CloseLog(branch.id, name.clone()),
            ImportedState::LogAtBase(entry) => CatalogChange::LogAtBase(branch.id, *entry),
        };
        Ok(prepared.with_change(change))
    }
}

impl Memory {
    /// Sets the name of a uid to the one that another store has for it. Kind `Invalid` unless it is one line of at most
    /// 200 bytes.
    pub fn import_user(&self, uid: u32, name: &str) -> Result<(), Error> {
        let who = Actor { uid, gid: 0, name: check(Setting::Agent, name)?.into() };
        let _room = self.reserve_room(disk_cost_bytes(0, 0))?;
        // Where the uid is new, that writes its name down.
        let mut writer = self.writer_for(&who, &[])?;
        if self.catalog().user(uid) == who.name {
            return Ok(());
        }
        let (_, change) = self.execute(&mut writer, uid, RegisterUser { name: who.name })?;
        drop(writer);
        self.notify(change);
        Ok(())
    }

    /// Sets settings of a branch as they were in another store. Neither rights nor limits of the branches above are
    /// checked. Settings shared below a root branch, and whose log the branch uses, stay. Kind `Invalid` for a value
    /// that the setting can't have.
    pub fn import_settings(
        &self,
        who: &Actor,
        branch: BranchId,
        values: &[(Setting, String)],
        inherits_rules: bool,
    ) -> Result<(), Error> {
        // Rules take a while to parse, so not under the lock.
        let own = values.iter().filter(|(setting, _)| !setting.is_shared() && *setting != Setting::Log);
        let checked = own.map(|(setting, value)| Ok((*setting, check(*setting, value)?)));
        let checked = checked.collect::<Result<Vec<_>, Error>>()?;
        let settings = || {
            let before = self.catalog().branch(branch)?.settings.clone();
            let after = checked
                .iter()
                .fold(before.clone(), |settings, (setting, value)| settings.with_setting(*setting, value));
            Ok::<_, Error>((before, if inherits_rules { after.with_inherited_rules() } else { after }))
        };
        let (before, after) = settings()?;
        let is_same = |setting: Setting| before.get(setting) == after.get(setting);
        if Setting::ALL.into_iter().all(is_same) && before.has_same_rules(&after) {
            return Ok(());
        }
        // Worked out again under the lock, since settings that are not imported may have changed.
        let command = || Ok(ImportBranch::new(branch, ImportedState::Settings(settings()?.1)));
        self.transact(who, &[Some(branch)], command).map(drop)
    }

    /// Replaces all names of agents below a root branch: each maps to the uid that may use it, or to `None` if it is
    /// barred. Each name that changes makes one entry.
    ///
    /// Kind `Invalid` if `config/agent` can't have a name, `Quota` if one user has more than [`AGENT_NAMES_MAX`] of
    /// them; nothing has changed then. After a later failure the names before it are changed.
    pub fn import_agents(
        &self,
        who: &Actor,
        root: BranchId,
        names: &BTreeMap<Arc<str>, Option<u32>>,
    ) -> Result<(), Error> {
        let mut wanted = BTreeMap::new();
        let mut held: BTreeMap<u32, usize> = BTreeMap::new();
        for (name, uid) in names {
            check(Setting::Agent, name)?;
            if let Some(uid) = uid {
                let held = held.entry(*uid).or_default();
                *held += 1;
                if *held > AGENT_NAMES_MAX {
                    return Err(AgentError::TooMany(*uid).into());
                }
            }
            wanted.insert(name.clone(), uid.map_or(AgentHolder::Barred, AgentHolder::User));
        }
        // All names are checked by now, so that one that can't be taken refuses the import before anything changes.
        let present = self.catalog().branch(root)?.agents.clone();
        let gone = present.keys().filter(|name| !wanted.contains_key(*name)).map(|name| (name.clone(), None));
        let other = wanted.iter().filter(|(name, holder)| present.get(*name) != Some(holder));
        for (name, holder) in gone.chain(other.map(|(name, holder)| (name.clone(), Some(*holder)))) {
            self.transact(who, &[], || Ok(ImportBranch::new(root, ImportedState::Agent(name, holder))))?;
        }
        Ok(())
    }

    /// Closes the branch's own log under that name; the branch begins a new one then.
    ///
    /// Kind `Invalid` for anything but `NAME@SEQ`, `Exists` if there is one with that name.
    pub(in crate::memory) fn import_closed_log(&self, who: &Actor, owner: BranchId, name: &str) -> Result<(), Error> {
        check_closed_name(name)?;
        self.transact(who, &[], || Ok(ImportBranch::new(owner, ImportedState::ClosedLog(name.into())))).map(drop)
    }

    /// Sets which entry of the shared log was the last one when the branch got its base; 0 for none. Kind `Invalid` for
    /// an entry past the end of the log.
    pub fn import_log_at_base(&self, who: &Actor, branch: BranchId, entry: u64) -> Result<(), Error> {
        let command = || {
            let catalog = self.catalog();
            let (totals, _) = catalog.log_progress(catalog.branch(branch)?)?;
            if entry > totals.entries {
                return Err(SharedLogError::NoEntry { entries: totals.entries, asked: entry.to_string() }.into());
            }
            Ok(ImportBranch::new(branch, ImportedState::LogAtBase(entry)))
        };
        self.transact(who, &[], command).map(drop)
    }
}

/// Refuses anything but the name of a closed log, with code `bad_log_name`: the name of a branch, `@`, and a number in
/// its one form.
pub fn check_closed_name(text: &str) -> Result<(), Error> {
    let bad = || SharedLogError::ClosedName(text.chars().take(80).collect());
    let (name, seq) = parse_closed_name(text).ok_or_else(bad)?;
    check_name(name).map_err(|_| bad())?;
    if seq > CLOSED_SEQ_MAX || format!("{name}@{seq}") != text { Err(bad().into()) } else { Ok(()) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Environment, Kind, OpenMode};

    #[test]
    fn a_user_may_be_imported_with_just_as_many_names_as_it_may_have() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who.clone())).unwrap();
        let main = memory.root("main").unwrap();
        let names = |count: usize| (0..count).map(|name| (format!("ann-{name}").into(), Some(1000))).collect();
        memory.import_agents(&who, main, &names(AGENT_NAMES_MAX)).unwrap();
        assert_eq!(memory.catalog().branch(main).unwrap().agents.len(), AGENT_NAMES_MAX);
        let error = memory.import_agents(&who, main, &names(AGENT_NAMES_MAX + 1)).unwrap_err();
        assert_eq!(error.kind(), Kind::Quota);
    }
}
