//! What callers do to a store.

use std::sync::Arc;

use super::shared_log::plan_append;
use super::transact::LogTail;
use crate::lineage::SignedEntry;
use crate::memory::admission::disk_room::cost_of;
use crate::memory::admission::quota::Usage;
use crate::memory::catalog::settings::{self, Setting, Settings, parse_duration};
use crate::memory::catalog::{BranchId, Catalog, Revision, StateSource, check_label};
use crate::memory::command::log_entry::SharedLogEntryInput;
use crate::memory::command::log_record::{Command, LogRecord};
use crate::memory::merging::find_state::FoundState;
use crate::memory::merging::merge::{PLAN_ROUNDS_MAX, PLANNED_UNDER_LOCK_MAX};
use crate::memory::merging::merge_budget::PlanError;
use crate::memory::merging::merge_plan::MergeContext;
use crate::memory::merging::rollback::Rollback;
use crate::memory::merging::unit_use::UnitRetry;
use crate::memory::{Actor, BranchError, BranchEvent, Error, Memory, SettingError};
use crate::object::{Hash, Time};

/// What a commit did.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// Records written.
    pub put: u64,
    /// Records deleted.
    pub deleted: u64,
    /// The branch's head after it.
    pub head: Hash,
    /// The entry's hash.
    pub entry: Hash,
}

impl Receipt {
    /// Returns what an entry says of itself.
    pub(super) fn of(entry: &SignedEntry) -> Receipt {
        let counts = entry.entry.counts;
        Receipt { put: counts.put, deleted: counts.deleted, head: entry.entry.head, entry: entry.hash }
    }

    /// Returns one line of JSON without its line end.
    pub fn to_json(&self) -> String {
        format!(
            "{{\"put\":{},\"deleted\":{},\"head\":\"{}\",\"entry\":\"{}\"}}",
            self.put, self.deleted, self.head, self.entry
        )
    }
}

impl Memory {
    /// Makes an empty root branch.
    ///
    /// Kind `Exists` where a root branch has that name, `Invalid` where no branch can have the name: 1 to 64 bytes.
    pub fn create_root(&self, who: &Actor, name: &str) -> Result<BranchId, Error> {
        let entry = self.transact(who, &[], || Ok(Command::Root(name.into(), Settings::default())))?;
        Ok(BranchId(entry.entry.branch_id))
    }

    /// Forks a branch as it is now, or as it was at the checkpoint `from`.
    ///
    /// The cost depends on nothing that the branch holds. Kind `Exists` where the name is taken,
    /// `Invalid` where it is not a name, `Quota` where a branch above may have no more, and for `from` those of
    /// [`Memory::find_state`].
    pub fn fork(&self, who: &Actor, parent: BranchId, name: &str, from: Option<&str>) -> Result<BranchId, Error> {
        let from = from.map(|text| self.find_state(parent, &Revision::parse(text)?)).transpose()?;
        self.fork_from(who, parent, name, from.as_ref(), None)
    }

    /// Forks a branch as it is now, or from a state that was found, for whoever forks or another user, whose branch it is
    /// from the beginning. Who may is not asked here.
    ///
    /// Kind `Exists` where the name is taken, `Invalid` where it is not a name, `Quota` where a branch above may have no more.
    pub fn fork_from(
        &self,
        who: &Actor,
        parent: BranchId,
        name: &str,
        from: Option<&FoundState>,
        owner: Option<u32>,
    ) -> Result<BranchId, Error> {
        self.check_quota(parent, |_| Ok(Usage { branches: 1, ..Usage::default() }))?;
        let from = from.map(|state| state.source.clone());
        let command = || Ok(Command::Fork { parent, name: name.into(), from: from.clone(), owner });
        Ok(BranchId(self.transact(who, &[Some(parent)], command)?.entry.branch_id))
    }

    /// Throws a branch away. Kind `NotEmpty` while it has child branches, or its own log has entries that were not archived;
    /// `NotPermitted` for `main`.
    pub fn discard(&self, who: &Actor, branch: BranchId) -> Result<(), Error> {
        self.give_room()?;
        self.transact_in_room(who, &[Some(branch)], || Ok(Command::Discard(branch))).map(|_| ())
    }

    /// Gives a child branch another name. Kind `Exists` where a sibling has it, `Invalid` where no branch can have it,
    /// and for a root branch.
    pub fn rename_branch(&self, who: &Actor, branch: BranchId, name: &str) -> Result<(), Error> {
        self.transact(who, &[Some(branch)], || Ok(Command::Rename(branch, name.into()))).map(|_| ())
    }

    /// Goes back to a checkpoint: under the lock where little differs, else worked out before.
    fn roll_back(
        &self,
        who: &Actor,
        branch: BranchId,
        source: &StateSource,
        patterns: Option<Vec<Arc<str>>>,
    ) -> Result<Receipt, Error> {
        let plan = |catalog: &Catalog, time: Time, changes_max: usize| {
            let context = MergeContext { catalog, packs: &self.storage.trees, time };
            Rollback::new(context, branch, source, patterns.as_deref(), changes_max)
        };
        self.give_room()?;
        let (mut earlier, mut room): (Option<Rollback>, _) = (None, None);
        let (mut retry, mut rounds) = (UnitRetry::new(), 0);
        while rounds < PLAN_ROUNDS_MAX {
            let mut writer = self.writer_for(who, &[Some(branch)])?;
            let (catalog, time) = (self.catalog().clone(), self.next_time(&mut writer)?);
            let planned = match earlier.take().filter(|earlier| earlier.is_current(&catalog)) {
                Some(earlier) => Ok(earlier),
                None => plan(&catalog, time, PLANNED_UNDER_LOCK_MAX),
            };
            match planned {
                Ok(planned) if !planned.shrinks() && room.is_none() => {
                    // Room is found with no lock held; under it what was worked out is checked again.
                    drop(writer);
                    room = Some(self.take_room(cost_of(0, 0))?);
                    earlier = Some(planned);
                }
                Ok(planned) => {
                    drop(catalog);
                    let done = self.commit_rollback(who, &mut writer, time, &planned);
                    drop(writer);
                    match done {
                        Ok((entry, change)) => {
                            self.notify(change);
                            return Ok(Receipt::of(&entry));
                        }
                        Err(error) if retry.wait_for_retry(&error) => earlier = Some(planned),
                        Err(error) => return Err(error),
                    }
                }
                Err(PlanError::Failed(error)) => return Err(error),
                Err(PlanError::Exceeded) => {
                    rounds += 1;
                    drop(writer);
                    earlier = Some(plan(&catalog, self.now(), usize::MAX)?);
                }
            }
        }
        Err(BranchError::Moves.into())
    }

    /// Does a rollback that was worked out, unless it would replace a unit that is in use.
    fn commit_rollback(
        &self,
        who: &Actor,
        writer: &mut LogTail,
        time: Time,
        planned: &Rollback,
    ) -> Result<(Arc<SignedEntry>, BranchEvent), Error> {
        let (branch, after) = planned.replaced_files();
        let _held = self.hold_units(branch.settings.rules(), &[(branch, after)])??;
        let log_record = LogRecord { time, planned: planned.time, uid: who.uid, command: planned.command() };
        self.execute_planned(writer, log_record, |catalog, log_record| planned.prepare(catalog, log_record))
    }

    /// Takes a checkpoint; `text` says why, and is appended to the shared log, too, unless it is blank.
    ///
    /// Kind `Exists` where the label is taken, `Invalid` where it is none, `TooLarge` for a text over 64 KiB, and, with a text,
    /// `Denied` for who does not own the branch.
    pub fn checkpoint(&self, who: &Actor, branch: BranchId, label: &str, text: Option<&str>) -> Result<(), Error> {
        // Not where commands are replayed: labels of earlier versions go on.
        check_label(label)?;
        let text = text.filter(|text| !text.trim().is_empty());
        let entry = text.map(|text| SharedLogEntryInput::of_text(text.to_owned())).transpose()?;
        self.take_checkpoint(who, branch, (label, text), entry.as_ref())
    }

    /// Takes a checkpoint without an entry in the shared log, as where one is taken again. Kind `Exists` where the
    /// label is taken, `Invalid` where it is none.
    pub fn import_checkpoint(
        &self,
        who: &Actor,
        branch: BranchId,
        label: &str,
        text: Option<&str>,
    ) -> Result<(), Error> {
        check_label(label)?;
        self.take_checkpoint(who, branch, (label, text), None)
    }

    fn take_checkpoint(
        &self,
        who: &Actor,
        branch: BranchId,
        (label, text): (&str, Option<&str>),
        entry: Option<&SharedLogEntryInput>,
    ) -> Result<(), Error> {
        let command = || {
            let log = match entry {
                Some(entry) => {
                    let catalog = self.catalog().clone();
                    Some(plan_append(&catalog, who.uid, catalog.branch(branch)?, std::slice::from_ref(entry))?.0)
                }
                None => None,
            };
            Ok(Command::Checkpoint { branch, label: label.into(), text: text.unwrap_or_default().into(), log })
        };
        let _room = self.take_room(cost_of(text.map_or(0, |text| text.len() as u64), 0))?;
        self.transact_in_room(who, &[Some(branch)], command).map(|_| ())
    }

    /// Deletes a checkpoint. Kind `NotFound` where the branch has none of that label.
    pub fn delete_checkpoint(&self, who: &Actor, branch: BranchId, label: &str) -> Result<(), Error> {
        self.give_room()?;
        self.transact_in_room(who, &[Some(branch)], || Ok(Command::Uncheckpoint(branch, label.into()))).map(|_| ())
    }

    /// Makes a branch's records those of a checkpoint, as a new commit; the state before stays
    /// readable for as long as `config/keep` says. `label` may also name an earlier state.
    ///
    /// Kind `NotFound` as of [`Memory::find_state`], `Busy` where the branch changes faster than this can be worked out
    /// (`branch_moves`) or has files of a unit open for writing that would be replaced (`unit_in_use`).
    pub fn rollback(&self, who: &Actor, branch: BranchId, label: &str) -> Result<Receipt, Error> {
        self.rollback_to(who, branch, &self.find_state(branch, &Revision::parse(label)?)?, &[])
    }

    /// Goes back to a state that was found: with all, or with the files at some paths where there are patterns. Kinds as of
    /// [`Memory::rollback`], and `Invalid` for a pattern that can't be read.
    pub fn rollback_to(
        &self,
        who: &Actor,
        branch: BranchId,
        found: &FoundState,
        patterns: &[String],
    ) -> Result<Receipt, Error> {
        let patterns: Vec<Arc<str>> = patterns.iter().map(|pattern| pattern.as_str().into()).collect();
        self.roll_back(who, branch, &found.source, Some(patterns).filter(|patterns| !patterns.is_empty()))
    }

    /// Makes the files at some paths those of a checkpoint, and leaves all else. Patterns are those
    /// of `config/rules` behind `files/`; one that matches nothing changes nothing. Kinds as of [`Memory::rollback_to`].
    pub fn rollback_files(
        &self,
        who: &Actor,
        branch: BranchId,
        label: &str,
        patterns: &[String],
    ) -> Result<Receipt, Error> {
        self.rollback_to(who, branch, &self.find_state(branch, &Revision::parse(label)?)?, patterns)
    }

    /// Writes a refusal into the lineage, at most one a second and branch; returns it, or kind `WouldWait` where it
    /// could not be written down for that.
    pub(in crate::memory) fn note_refusal(&self, who: &Actor, branch: BranchId, refusal: Error) -> Error {
        let now = self.now();
        let last = self.merging.refused_at.lock().get(&branch).copied();
        if last.is_some_and(|last| now < last.after(1_000_000_000)) {
            return refusal;
        }
        let reason = format!("{}: {refusal}", refusal.code());
        match self.transact(who, &[Some(branch)], || Ok(Command::Refuse(branch, reason.into()))) {
            Err(Error::WouldWait) => return Error::WouldWait,
            Err(error) => log::warn!("a refusal could not be noted in the lineage: {error}; {}", error.hint()),
            Ok(_) => drop(self.merging.refused_at.lock().insert(branch, now)),
        }
        refusal
    }

    /// Gives a setting a value, of which line ends behind it are no part.
    ///
    /// Kind `Invalid` where the setting has no such value, `NotPermitted` for [`Setting::Embedder`] and for an agent's name
    /// that is another's or barred, `Busy` where vectors or entries of the log have fixed it.
    pub fn set(&self, who: &Actor, branch: BranchId, setting: Setting, value: &str) -> Result<(), Error> {
        if setting == Setting::Embedder {
            return Err(SettingError::Derived(setting.name()).into());
        }
        // Rules take a while to parse, so not under the lock.
        let value = settings::check(setting, value)?;
        let command = || {
            if setting == Setting::Agent && !value.is_empty() {
                let catalog = self.catalog();
                catalog.check_agent(catalog.branch(branch)?, &value)?;
            }
            Ok(Command::Config(branch, setting, value.as_str().into()))
        };
        let shortens = {
            let catalog = self.catalog();
            let before = catalog.branch(branch)?.settings.duration(setting).unwrap_or(i64::MAX);
            matches!(setting, Setting::Keep | Setting::Ttl) && parse_duration(&value).is_ok_and(|after| after < before)
        };
        // So that what is kept can be let go of on a full disk.
        let _room = if shortens { self.give_room().map(|()| None)? } else { Some(self.take_room(cost_of(0, 0))?) };
        self.transact_in_room(who, &[Some(branch)], command)?;
        let settings = self.catalog().branches.get(&branch).map(|branch| branch.settings.clone());
        if let Some(settings) = settings.filter(|_| setting == Setting::Rules) {
            // Parse now, without the writer lock, so that no holder of the lock has to.
            settings.rules();
        }
        Ok(())
    }

    /// Gives a branch's directory permission bits, the lower 12 of `mode`. Kind `Gone` where the branch has ended.
    pub fn chmod(&self, who: &Actor, branch: BranchId, mode: u32) -> Result<(), Error> {
        self.transact(who, &[Some(branch)], || Ok(Command::Mode(branch, mode & 0o7777))).map(|_| ())
    }

    /// Gives a branch to another user, with what its owner has in `files/` and others may read. Who may is not asked here.
    /// Kind `Gone` where the branch has ended.
    pub fn chown(&self, who: &Actor, branch: BranchId, uid: u32) -> Result<(), Error> {
        self.transact(who, &[Some(branch)], || Ok(Command::Owner(branch, uid))).map(|_| ())
    }
}
