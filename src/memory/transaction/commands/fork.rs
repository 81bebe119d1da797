//! Forking a branch. The new one shares its state with the parent until either changes, so it costs the same whatever
//! the parent holds.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::admission::quota::Usage;
use crate::memory::catalog::settings::{Setting, check};
use crate::memory::catalog::{Branch, BranchId, CatalogChange, Revision, StateSource, with_owner, without_orphans};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::merging::find_state::FoundState;
use crate::memory::{Actor, BranchError, Error, Memory};
use crate::object::{CodecError, Reader, Writer};

/// A child branch begins with a state of its parent.
#[derive(Debug)]
pub(super) struct ForkBranch {
    /// The branch that is forked.
    pub parent: BranchId,
    /// The child's name, which none of its siblings has.
    pub name: Arc<str>,
    /// The state of the parent it starts from, or the present one.
    pub from: Option<StateSource>,
    /// Uid of its owner; `None` for whoever forks. Only root may name another user.
    pub owner: Option<u32>,
    /// Its [`Setting::Ttl`] in place of the one that it would begin with.
    pub ttl: Option<Arc<str>>,
}

pub(super) const FORK: CommandSpec =
    CommandSpec { code: 2, name: "fork", read: |input| Ok(Box::new(ForkBranch::read(input)?)) };

pub(super) const FORK_WITH_TTL: CommandSpec =
    CommandSpec { code: 29, name: "fork_with_ttl", read: |input| Ok(Box::new(ForkBranch::read_with_ttl(input)?)) };

impl ForkBranch {
    fn read(input: &mut Reader<'_>) -> Result<ForkBranch, CodecError> {
        let (parent, name, from) = (BranchId::read(input)?, input.text()?.into(), StateSource::read(input)?);
        // One more than the owner's number, or 0 for none.
        let owner = input.number()?.checked_sub(1).map(|uid| u32::try_from(uid).map_err(|_| CodecError::Number));
        Ok(ForkBranch { parent, name, from, owner: owner.transpose()?, ttl: None })
    }

    fn read_with_ttl(input: &mut Reader<'_>) -> Result<ForkBranch, CodecError> {
        let fork = ForkBranch::read(input)?;
        Ok(ForkBranch { ttl: Some(input.text()?.into()), ..fork })
    }
}

impl Command for ForkBranch {
    fn spec(&self) -> &'static CommandSpec {
        if self.ttl.is_some() { &FORK_WITH_TTL } else { &FORK }
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.parent.0).text(&self.name);
        match &self.from {
            None => out.byte(0),
            Some(source) => source.write(out),
        };
        out.number(self.owner.map_or(0, |uid| u64::from(uid) + 1));
        if let Some(ttl) = &self.ttl {
            out.text(ttl);
        }
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (catalog, name) = (context.catalog, &self.name);
        // Checked against the names of now only for a new fork; a replay takes a name that was allowed when it was
        // given.
        context.check_name(name)?;
        let parent = catalog.branch(self.parent)?;
        if parent.children.contains_key(name) {
            return Err(BranchError::Exists(format!("{}/{name}", parent.path)).into());
        }
        let from_state = self.from.as_ref().map(|source| catalog.resolve_source(parent, source)).transpose()?;
        // Files without a name live for handles that are open on them in the parent, and nobody has them open in the
        // fork.
        let state = without_orphans(from_state.as_ref().map_or(&parent.state, |from| &from.state));
        let ended = match &self.from {
            Some(StateSource::Ended(entry)) => catalog.retained.ended.get(entry),
            _ => None,
        };
        // Root brings a branch back for whom it belonged to.
        let whoever = ended.filter(|_| log_record.uid == 0).map_or(log_record.uid, |ended| ended.uid);
        let owner = self.owner.unwrap_or(whoever);
        let state = with_owner(&state, ended.map_or(parent.uid, |ended| ended.uid), owner);
        let mut branch = Branch::new(BranchId(context.seq), name.clone(), Some(parent), state, owner, log_record.time);
        if let Some(cursor) = from_state.as_ref().and_then(|from| from.cursor) {
            branch.cursor = cursor;
        }
        if let (Some(ended), Some(from)) = (ended, from_state) {
            // The base comes back as well, so that the branch's own edits can still be merged.
            (branch.base, branch.settings, branch.mode) = (from.base, ended.settings.clone(), ended.mode);
        }
        if let Some(ttl) = &self.ttl {
            branch.settings = branch.settings.with_setting(Setting::Ttl, &check(Setting::Ttl, ttl)?);
        }
        let text = (owner != log_record.uid).then(|| owner.to_string().into());
        let label = self.from.as_ref().and_then(StateSource::label).cloned();
        let detail = Detail { label, text, ..Detail::default() };
        let prepared = prepare_on_branch(catalog, log_record, &branch, EntryOp::Fork).with_detail(detail);
        Ok(prepared.with_change(CatalogChange::Add(Box::new(branch))))
    }

    fn takes_memory(&self) -> bool {
        true
    }
}

/// How a branch is forked; by default as it is now, for whoever forks, with the settings that forks inherit.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForkOptions<'a> {
    /// The state to fork from; none, the default, for the present one.
    pub from: Option<&'a FoundState>,
    /// Uid of the owner of the fork; none, the default, for whoever forks.
    pub owner: Option<u32>,
    /// Its [`Setting::Ttl`], set in the same entry; none, the default, for the inherited one.
    pub ttl: Option<&'a str>,
}

impl Memory {
    /// Forks a branch as it is now, or as it was at `from`: a checkpoint's label, an entry or a time. It takes constant
    /// time, whatever the branch holds.
    ///
    /// Kind `Exists` if the name is taken, `Invalid` if it is not a valid name, `Quota` if a branch above may have no
    /// more branches. With `from` it also fails like [`Memory::find_state`].
    pub fn fork(&self, who: &Actor, parent: BranchId, name: &str, from: Option<&str>) -> Result<BranchId, Error> {
        let from = from.map(|text| self.find_state(parent, &Revision::parse(text)?)).transpose()?;
        self.fork_with(who, parent, name, ForkOptions { from: from.as_ref(), ..ForkOptions::default() })
    }

    /// Forks a branch with options. Rights are not checked here.
    ///
    /// Kind `Exists` if the name is taken, `Invalid` if it is not a valid name or `ttl` is not a valid value, `Quota` if
    /// a branch above may have no more branches.
    pub fn fork_with(
        &self,
        who: &Actor,
        parent: BranchId,
        name: &str,
        options: ForkOptions<'_>,
    ) -> Result<BranchId, Error> {
        self.check_quota(parent, |_| Ok(Usage { branches: 1, ..Usage::default() }))?;
        let ForkOptions { from, owner, ttl } = options;
        let from = from.map(|state| state.source.clone());
        let command = || Ok(ForkBranch { parent, name: name.into(), from, owner, ttl: ttl.map(Arc::from) });
        Ok(BranchId(self.transact(who, &[Some(parent)], command)?.entry.branch_id))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};
    use crate::memory::{Environment, Kind, OpenMode, View};
    use crate::object::{Hash, Time};

    /// A name may be reserved by a later release than the one that gave it to a branch.
    #[test]
    fn a_name_that_is_reserved_by_now_can_be_replayed_and_not_given() {
        let environment = Environment::real(Actor { uid: 0, gid: 0, name: "root".into() });
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        let catalog = memory.catalog().clone();
        let segment = |name: &Hash| memory.storage.segments.get(name);
        let fork = |is_replayed| {
            let packs = &memory.storage.trees;
            let context = PlanContext { catalog: &catalog, seq: 9, packs, segment: &segment, is_replayed };
            let (parent, name) = (catalog.roots["main"], "vectors".into());
            let command = Box::new(ForkBranch { parent, name, from: None, owner: None, ttl: None });
            let log_record = LogRecord { time: Time(1), planned: Time(1), uid: 0, command };
            log_record.command.prepare(&context, &log_record)
        };
        assert!(fork(true).is_ok());
        assert_eq!(fork(false).err().map(|error| error.kind()), Some(Kind::Invalid));
    }

    /// Nothing else ends a fork that nobody comes back for.
    #[test]
    fn a_fork_has_its_ttl_or_is_not_there() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let mut refused = 0;
        for nth in 1..6 {
            let disk = Arc::new(FaultyDisk::new(ForgetfulDisk::new()));
            let memory = Memory::open_on(disk.clone(), OpenMode::Create, None, Environment::real(who.clone())).unwrap();
            let main = memory.root("main").unwrap();
            // From then on, or a change that frees room would use what is kept for it.
            disk.plan(Fault { sticky: true, ..Fault::once(nth, &[DiskCall::Write], libc::ENOSPC) });
            let options = ForkOptions { ttl: Some("1h"), ..ForkOptions::default() };
            let outcome = memory.fork_with(&who, main, "z", options);
            refused += usize::from(outcome.is_err());
            disk.clear();
            let ttl = |memory: &Memory| {
                let fork = memory.child(main, "z")?;
                Some(memory.setting(&View::Branch(fork), Setting::Ttl).unwrap())
            };
            let found = ttl(&memory);
            assert_eq!(found.as_deref(), outcome.is_ok().then_some("1h"), "a disk that is full at write {nth}");
            let after_a_crash = Arc::new(disk.inner().power_cut_keep_all());
            let memory =
                Memory::open_on(after_a_crash, OpenMode::Existing, None, Environment::real(who.clone())).unwrap();
            assert_eq!(ttl(&memory), found, "replayed");
        }
        assert!(0 < refused && refused < 5, "{refused} of the writes are of the fork");
    }
}
