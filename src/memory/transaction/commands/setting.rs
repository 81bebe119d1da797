//! Giving a setting a value. A replay checks it again except for rules, which take a while to parse and are parsed
//! before the command is made.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::settings::{Setting, check, parse_duration_nanos};
use crate::memory::catalog::{BranchId, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord, SharedEvent};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::transaction::shared_log;
use crate::memory::{Actor, Error, Memory, SettingError};
use crate::object::{CodecError, Reader, Writer};

/// A setting gets a value.
#[derive(Debug)]
pub(super) struct ChangeSetting {
    /// The branch through which it is set; the value of a shared setting goes to its root branch.
    pub branch: BranchId,
    /// Which one; [`Setting::Embedder`] is refused, as it has a command of its own.
    pub setting: Setting,
    /// The value as it was written; all but rules are checked when the command is prepared.
    pub value: Arc<str>,
}

pub(super) const CONFIG: CommandSpec =
    CommandSpec { code: 13, name: "config", read: |input| Ok(Box::new(ChangeSetting::read(input)?)) };

impl ChangeSetting {
    fn read(input: &mut Reader<'_>) -> Result<ChangeSetting, CodecError> {
        let (branch, setting) = (BranchId::read(input)?, Setting::from_code(input.byte()?)?);
        Ok(ChangeSetting { branch, setting, value: input.text()?.into() })
    }
}

impl Command for ChangeSetting {
    fn spec(&self) -> &'static CommandSpec {
        &CONFIG
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).byte(self.setting.code()).text(&self.value);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (catalog, setting) = (context.catalog, self.setting);
        let branch = catalog.branch(self.branch)?;
        if setting == Setting::Embedder {
            return Err(SettingError::SetByStore(setting.name()).into());
        }
        // Rules were parsed before the command was made.
        let is_checked = setting == Setting::Rules;
        let value = if is_checked { self.value.clone() } else { check(setting, &self.value)?.into() };
        if setting == Setting::Keep
            && let Some(parent) = branch.parent.and_then(|id| catalog.branches.get(&id))
            && parse_duration_nanos(&value)
                .is_ok_and(|keep| parent.settings.duration_nanos(Setting::Keep).is_some_and(|most| keep > most))
        {
            let most = parent.settings.get(Setting::Keep).to_string();
            return Err(SettingError::LongerThanParent { setting: setting.name(), most }.into());
        }
        if setting == Setting::Log {
            shared_log::check_log_setting(catalog, branch, value.as_ref())?;
        }
        // What all vectors below a root branch depend on is one value, at the root, whichever branch it was set
        // through.
        let target = if setting.is_shared() { catalog.branch(branch.root)? } else { branch };
        if setting.is_shared() && target.vectors_fixed && **target.settings.get(setting) != *value {
            return Err(SettingError::Fixed(setting.name()).into());
        }
        let detail = Detail { label: Some(setting.name().into()), text: Some(value.clone()), ..Detail::default() };
        let prepared = prepare_on_branch(catalog, log_record, branch, EntryOp::Config).with_detail(detail);
        let is_new_agent = setting == Setting::Agent
            && !value.is_empty()
            && !catalog.branch(branch.root)?.agents.contains_key(&*value);
        let prepared = prepared.with_change(CatalogChange::Set(target.id, setting, value.clone()));
        // Whoever uses a name first has it.
        let holder = CatalogChange::Agent(branch.root, value, Some(AgentHolder::User(branch.uid)));
        Ok(if is_new_agent { prepared.with_change(holder) } else { prepared })
    }

    fn may_use_reserve(&self) -> bool {
        matches!(self.setting, Setting::Keep | Setting::Ttl)
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn shared_event(&self) -> Option<SharedEvent<'_>> {
        Some(SharedEvent::Changed(self.branch))
    }
}

impl Memory {
    /// Sets a setting. Line ends at the end of `value` are ignored.
    ///
    /// Kind `Invalid` if the setting can't have the value. Kind `NotPermitted` for [`Setting::Embedder`], which the
    /// store sets itself, and for an agent's name that is barred or belongs to another user. Kind `Busy` if the setting
    /// is fixed by vectors or log entries that are already there.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{Actor, Environment, Error, Kind, Memory, OpenMode, Setting, View};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
    /// # let environment = Environment::real(ann.clone());
    /// # let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
    /// # let main = memory.root("main").unwrap();
    /// assert_eq!(memory.setting(&View::Branch(main), Setting::Keep)?, "30d", "the default");
    /// memory.set(&ann, main, Setting::Keep, "7d\n")?;
    /// assert_eq!(memory.setting(&View::Branch(main), Setting::Keep)?, "7d");
    ///
    /// // A branch keeps its earlier states no longer than its parent.
    /// let trial = memory.fork(&ann, main, "trial", None)?;
    /// assert_eq!(memory.set(&ann, trial, Setting::Keep, "8d").unwrap_err().code(), "above_parent");
    ///
    /// let error = memory.set(&ann, main, Setting::Metric, "hamming").unwrap_err();
    /// assert_eq!((error.kind(), &*error.hint()), (Kind::Invalid, "write cosine, l2 or dot"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&self, who: &Actor, branch: BranchId, setting: Setting, value: &str) -> Result<(), Error> {
        if setting == Setting::Embedder {
            return Err(SettingError::SetByStore(setting.name()).into());
        }
        // Rules take a while to parse, so not under the lock.
        let value = check(setting, value)?;
        let command = || {
            if setting == Setting::Agent && !value.is_empty() {
                let catalog = self.catalog();
                // Under the lock, or two users could take one name at the same time.
                catalog.check_agent(catalog.branch(branch)?, &value)?;
            }
            Ok(ChangeSetting { branch, setting, value: value.as_str().into() })
        };
        let shortens = {
            let catalog = self.catalog();
            let before = catalog.branch(branch)?.settings.duration_nanos(setting).unwrap_or(i64::MAX);
            matches!(setting, Setting::Keep | Setting::Ttl)
                && parse_duration_nanos(&value).is_ok_and(|after| after < before)
        };
        // So that what is kept can be let go of on a full disk.
        let _room = if shortens {
            self.ensure_room_to_free().map(|()| None)?
        } else {
            Some(self.reserve_room(disk_cost_bytes(0, 0))?)
        };
        self.transact_without_reserving(who, &[Some(branch)], command)?;
        let settings = self.catalog().branches.get(&branch).map(|branch| branch.settings.clone());
        if let Some(settings) = settings.filter(|_| setting == Setting::Rules) {
            // Parse now, without the writer lock, so that no holder of the lock has to.
            settings.rules();
        }
        Ok(())
    }
}
