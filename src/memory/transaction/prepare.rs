//! From a command to what it changes: the rules of the store, and nothing written yet.

use std::sync::Arc;

use super::agents::prepare_agent_name;
use super::archive_log;
use super::bulk::Bulk;
use super::import;
use super::proposals;
use super::shared_log;
use crate::branch::{BranchVersion, check_name, check_record_id};
use crate::lineage::{Counts, Detail, EntryOp, Side};
use crate::memory::catalog::LeaseState;
use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::settings::{Setting, Settings, parse_duration};
use crate::memory::catalog::{
    Branch, BranchId, Catalog, CatalogChange, Checkpoint, EmbedderRecord, LineageStart, Resolution, StateSource,
    with_owner, without_orphans,
};
use crate::memory::command::log_record::{Command, LogRecord};
use crate::memory::command::prepared::{PreparedCommand, about, fix};
use crate::memory::command::record_change::RecordChange;
use crate::memory::command::record_input::check_numbers;
use crate::memory::merging::integration::Integration;
use crate::memory::merging::merge_plan;
use crate::memory::merging::merge_plan::MergeContext;
use crate::memory::merging::purge::Purge;
use crate::memory::merging::rollback::Rollback;
use crate::memory::{BranchError, Error, Kind, RecordError, SettingError};
use crate::object::{Hash, Time};
use crate::record::{Provenance, RecordContent, Version};
use crate::segment::{Row, Segment};
use crate::vector::Metric;
use crate::workspace::Packs;

/// What [`prepare`] looks at.
pub struct PlanContext<'a> {
    /// The catalog as it is.
    pub catalog: &'a Catalog,
    /// `seq` of the entry to come.
    pub seq: u64,
    /// Where the contents of files are read.
    pub packs: &'a dyn Packs,
    /// Opens the segment of a bulk commit.
    pub segment: &'a dyn Fn(&Hash) -> Result<Arc<Segment>, Error>,
    /// Whether it was done once, maybe by an earlier release.
    pub is_replayed: bool,
}

impl<'a> PlanContext<'a> {
    fn merge_context(&self, log_record: &LogRecord) -> MergeContext<'a> {
        MergeContext { catalog: self.catalog, packs: self.packs, time: log_record.planned }
    }

    /// Checks the name of a branch or checkpoint. One that an earlier release took stays, also where it is reserved by now.
    fn check_name(&self, name: &str) -> Result<(), Error> {
        if self.is_replayed { Ok(()) } else { Ok(check_name(name)?) }
    }

    /// Notes the head that the log holds of a command that was replayed, or the entry that can't be.
    fn recorded(&self, replayed: Result<PreparedCommand, Error>, head: Hash) -> Result<PreparedCommand, Error> {
        match replayed {
            Ok(prepared) => Ok(PreparedCommand { recorded_head: Some(head), ..prepared }),
            Err(error) if error.kind() == Kind::Damaged => {
                Err(Error::damaged(format!("entry {} can't be applied: {error}", self.seq)))
            }
            Err(error) => Err(error),
        }
    }
}

/// Checks a command against the rules and works out what it changes. Fails with the error of a rule that it breaks.
pub fn prepare(context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
    let catalog = context.catalog;
    match &log_record.command {
        Command::Root(name, settings) => root(context, log_record, name, settings),
        Command::Fork { parent, name, from, owner } => fork(context, log_record, *parent, name, from.as_ref(), *owner),
        Command::User(name) => Ok(user(log_record, name)),
        Command::Clock => Ok(clock(catalog, log_record)),
        Command::Archive(last, hash) => archive(context, log_record, *last, *hash),
        Command::Purge(branch, selection) => {
            Purge::new(*branch, selection.clone(), log_record.planned).prepare(catalog, log_record)
        }
        Command::Commit(branch, changes) => commit(catalog, log_record, catalog.branch(*branch)?, changes),
        Command::Append { owner, via, growth } => {
            shared_log::prepare_append(context, log_record, (catalog.branch(*owner)?, catalog.branch(*via)?), growth)
        }
        Command::ArchiveLog { owner, totals } => {
            archive_log::prepare(catalog, log_record, catalog.branch(*owner)?, (*totals, None))
        }
        Command::Bulk { branch, segment, deletes, .. } => {
            let segment = (context.segment)(segment)?;
            Bulk::new(catalog, *branch, segment, deletes, log_record.planned)?.prepare(catalog, log_record)
        }
        Command::Checkpoint { branch, label, text, log } => {
            let branch = catalog.branch(*branch)?;
            let prepared = checkpoint(context, log_record, branch, label, text)?;
            let Some(growth) = log else { return Ok(prepared) };
            let logged = shared_log::prepare_append(context, log_record, (catalog.log_owner(branch)?, branch), growth)?;
            Ok(logged.steps.into_iter().fold(prepared, PreparedCommand::step))
        }
        Command::Uncheckpoint(branch, label) => uncheckpoint(catalog, log_record, catalog.branch(*branch)?, label),
        Command::Rollback(branch, source) => {
            Rollback::new(context.merge_context(log_record), *branch, source, None, usize::MAX)
                .map_err(Error::from)?
                .prepare(catalog, log_record)
        }
        // Here and for a merge what was recorded is applied, not decided again: a later release might decide otherwise.
        Command::RollbackFiles { branch, source, patterns, outcome } => {
            let replayed = Rollback::replay(context.merge_context(log_record), *branch, source, patterns, outcome)
                .and_then(|rollback| rollback.prepare(catalog, log_record));
            context.recorded(replayed, outcome.head)
        }
        Command::Merge(branch, merge, outcome) => {
            let replayed = Integration::replay(&context.merge_context(log_record), *branch, *merge, outcome)
                .and_then(|integration| integration.prepare(catalog, log_record));
            context.recorded(replayed, outcome.head)
        }
        Command::Discard(branch) => discard(catalog, log_record, catalog.branch(*branch)?),
        Command::Rename(branch, name) => rename(context, log_record, catalog.branch(*branch)?, name),
        Command::Config(branch, setting, value) => {
            config(catalog, log_record, catalog.branch(*branch)?, *setting, value)
        }
        Command::Mode(branch, bits) => Ok(mode(catalog, log_record, catalog.branch(*branch)?, *bits)),
        Command::Owner(branch, uid) => Ok(owner(catalog, log_record, catalog.branch(*branch)?, *uid)),
        Command::Resolve { branch, id, resolution } => {
            resolve(catalog, log_record, catalog.branch(*branch)?, id, resolution)
        }
        Command::Files(branch, count, paths) => {
            Ok(files(catalog, log_record, catalog.branch(*branch)?, (*count, paths)))
        }
        Command::Embedder(branch, value) => embedder(catalog, log_record, catalog.branch(*branch)?, value),
        Command::AgentName { root, name, bars } => prepare_agent_name(context, log_record, *root, name, *bars),
        Command::Import(branch, state) => import::prepare(catalog, log_record, catalog.branch(*branch)?, state),
        Command::LeaseLost(branch) => Ok(lease_lost(catalog, log_record, catalog.branch(*branch)?)),
        Command::Propose(branch, text) => proposals::propose(context, log_record, *branch, text),
        Command::Withdraw(branch) => proposals::withdraw(context, log_record, *branch),
        Command::Review { parent, child, review } => proposals::review(context, log_record, (*parent, *child), review),
        Command::KeptDropped(branch) => Ok(about(catalog, log_record, catalog.branch(*branch)?, EntryOp::KeptDropped)),
        Command::Refuse(branch, reason) => Ok(refuse(catalog, log_record, catalog.branch(*branch)?, reason)),
    }
}

fn files(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    (count, paths): (u64, &[Arc<str>]),
) -> PreparedCommand {
    let prepared = about(catalog, log_record, branch, EntryOp::Files);
    let mut prepared = prepared.with_detail(Detail::of_items(paths.iter().cloned()));
    prepared.counts.files = count;
    prepared
}

fn exists(path: impl Into<String>) -> Error {
    BranchError::Exists(path.into()).into()
}

fn root(
    context: &PlanContext<'_>,
    log_record: &LogRecord,
    name: &Arc<str>,
    settings: &Settings,
) -> Result<PreparedCommand, Error> {
    context.check_name(name)?;
    if context.catalog.roots.contains_key(name) {
        return Err(exists(&**name));
    }
    let mut branch =
        Branch::new(BranchId(context.seq), name.clone(), None, Arc::default(), log_record.uid, log_record.time);
    branch.settings = settings.clone();
    let prepared = about(context.catalog, log_record, &branch, EntryOp::Root);
    Ok(prepared.step(CatalogChange::Add(Box::new(branch))))
}

fn fork(
    context: &PlanContext<'_>,
    log_record: &LogRecord,
    parent: BranchId,
    name: &Arc<str>,
    from: Option<&StateSource>,
    owner: Option<u32>,
) -> Result<PreparedCommand, Error> {
    context.check_name(name)?;
    let parent = context.catalog.branch(parent)?;
    if parent.children.contains_key(name) {
        return Err(exists(format!("{}/{name}", parent.path)));
    }
    let from_state = from.map(|source| context.catalog.source(parent, source)).transpose()?;
    let state = without_orphans(from_state.as_ref().map_or(&parent.state, |from| &from.state));
    let ended = match from {
        Some(StateSource::Ended(entry)) => context.catalog.retained.ended.get(entry),
        _ => None,
    };
    // Root brings a branch back for whom it belonged to.
    let whoever = ended.filter(|_| log_record.uid == 0).map_or(log_record.uid, |ended| ended.uid);
    let owner = owner.unwrap_or(whoever);
    let state = with_owner(&state, ended.map_or(parent.uid, |ended| ended.uid), owner);
    let mut branch = Branch::new(BranchId(context.seq), name.clone(), Some(parent), state, owner, log_record.time);
    if let Some(cursor) = from_state.as_ref().and_then(|from| from.cursor) {
        branch.cursor = cursor;
    }
    if let (Some(ended), Some(from)) = (ended, from_state) {
        // The base comes back as well, so that the branch's own edits can still be merged.
        (branch.base, branch.settings, branch.mode) = (from.base, ended.settings.clone(), ended.mode);
    }
    let text = (owner != log_record.uid).then(|| owner.to_string().into());
    let detail = Detail { label: from.and_then(StateSource::label).cloned(), text, ..Detail::default() };
    let prepared = about(context.catalog, log_record, &branch, EntryOp::Fork).with_detail(detail);
    Ok(prepared.step(CatalogChange::Add(Box::new(branch))))
}

fn mode(catalog: &Catalog, log_record: &LogRecord, branch: &Branch, bits: u32) -> PreparedCommand {
    let detail = Detail { label: Some("mode".into()), text: Some(format!("{bits:04o}").into()), ..Detail::default() };
    let prepared = about(catalog, log_record, branch, EntryOp::Config).with_detail(detail);
    prepared.step(CatalogChange::Mode(branch.id, bits))
}

fn owner(catalog: &Catalog, log_record: &LogRecord, branch: &Branch, uid: u32) -> PreparedCommand {
    let detail = Detail { text: Some(uid.to_string().into()), ..Detail::default() };
    let prepared = about(catalog, log_record, branch, EntryOp::Owner).with_detail(detail);
    let prepared = prepared.step(CatalogChange::Owner(branch.id, uid));
    // The name of its agent goes with its settings.
    let agent = branch.settings.get(Setting::Agent);
    let holder = catalog.branches.get(&branch.root).and_then(|root| root.agents.get(agent));
    if holder == Some(&AgentHolder::User(branch.uid)) {
        return prepared.step(CatalogChange::Agent(branch.root, agent.clone(), Some(AgentHolder::User(uid))));
    }
    prepared
}

fn user(log_record: &LogRecord, name: &Arc<str>) -> PreparedCommand {
    let detail = Detail { text: Some(name.clone()), ..Detail::default() };
    of_store(EntryOp::User, detail, name.clone(), CatalogChange::User(log_record.uid, name.clone()))
}

fn clock(catalog: &Catalog, log_record: &LogRecord) -> PreparedCommand {
    of_store(EntryOp::Clock, Detail::default(), catalog.user(log_record.uid), CatalogChange::Clock(log_record.time))
}

fn archive(context: &PlanContext<'_>, log_record: &LogRecord, last: u64, hash: Hash) -> Result<PreparedCommand, Error> {
    if last < context.catalog.start.first || last >= context.seq {
        return Err(Error::NoEntry(last));
    }
    let detail =
        Detail { label: Some(last.to_string().into()), text: Some(hash.to_string().into()), ..Detail::default() };
    let step = CatalogChange::Begin(LineageStart { first: last + 1, prev: hash });
    Ok(of_store(EntryOp::Archive, detail, context.catalog.user(log_record.uid), step))
}

/// The entry of a command that concerns no branch.
fn of_store(op: EntryOp, detail: Detail, user: Arc<str>, step: CatalogChange) -> PreparedCommand {
    PreparedCommand {
        op,
        branch: BranchId(0),
        path: "".into(),
        parent: None,
        base: Hash::ZERO,
        head: Hash::ZERO,
        recorded_head: None,
        counts: Counts::default(),
        detail,
        labels: [user, "".into(), "".into()],
        steps: vec![step],
    }
}

/// Checks the vector, where there is one, against what is fixed below a root branch, or against the first one.
/// [`RecordError::Dimension`] or `ZeroVector` (under cosine), else as [`check_numbers`].
pub(in crate::memory) fn check_vector(
    dim: Option<usize>,
    metric: Metric,
    content: &RecordContent,
    norm: f32,
) -> Result<(), RecordError> {
    let Some(vector) = &content.vector else { return Ok(()) };
    check_numbers(vector)?;
    if let Some(dim) = dim
        && dim != vector.len()
    {
        return Err(RecordError::Dimension { found: vector.len(), expected: dim });
    }
    if metric == Metric::Cosine && norm == 0.0 {
        return Err(RecordError::ZeroVector);
    }
    Ok(())
}

fn commit(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    changes: &[RecordChange],
) -> Result<PreparedCommand, Error> {
    let mut prepared = about(catalog, log_record, branch, EntryOp::Commit);
    let settings = catalog.shared_settings(branch)?;
    let (mut dim, metric) = (settings.dim(), settings.metric());
    let mut state = (*branch.state).clone();
    for change in changes {
        match change {
            RecordChange::Cursor(cursor) => prepared.steps.push(CatalogChange::Cursor(branch.id, *cursor)),
            RecordChange::Delete { id } => prepared.counts.deleted += u64::from(state.delete(id, log_record.time)?),
            RecordChange::Put { id, content, vector_stale, from } => {
                check_record_id(id)?;
                let created = created(&state, log_record.time, from.as_deref().unwrap_or(id))?;
                let provenance =
                    Provenance { vector_stale: *vector_stale, ..provenance(log_record, &prepared, created) };
                let version = Version::new(id.clone(), content.clone(), provenance);
                check_vector(dim, metric, content, version.norm)?;
                dim = dim.or(content.vector.as_ref().map(|vector| vector.len()));
                state.put(Row::Unsealed(Arc::new(version)))?;
                prepared.counts.put += 1;
            }
        }
    }
    fix(catalog, branch, dim, state.totals().vectors > 0, &mut prepared)?;
    let prepared = prepared.with_detail(Detail::of_items(changes.iter().filter_map(RecordChange::id).cloned()));
    Ok(prepared.with_state(state))
}

/// When the record was first written: a replacement keeps it.
pub(in crate::memory) fn created(state: &BranchVersion, now: Time, id: &str) -> Result<Time, Error> {
    Ok(match state.find(id)? {
        Some(old) => old.provenance()?.created,
        None => now,
    })
}

/// Returns what a version says of who writes it; its vector is not stale.
pub(super) fn provenance(log_record: &LogRecord, prepared: &PreparedCommand, created: Time) -> Provenance {
    let [agent, session, task] = prepared.labels.clone();
    let (modified, branch, uid) = (log_record.time, prepared.path.clone(), log_record.uid);
    Provenance { created, modified, branch, agent, session, task, uid, vector_stale: false }
}

fn checkpoint(
    context: &PlanContext<'_>,
    log_record: &LogRecord,
    branch: &Branch,
    label: &Arc<str>,
    text: &Arc<str>,
) -> Result<PreparedCommand, Error> {
    context.check_name(label)?;
    let catalog = context.catalog;
    if branch.checkpoints.contains_key(label) {
        return Err(BranchError::CheckpointExists(label.to_string()).into());
    }
    let text_detail = (!text.is_empty()).then(|| text.clone());
    let detail = Detail { label: Some(label.clone()), text: text_detail, ..Detail::default() };
    let checkpoint = Checkpoint::of(branch, text, log_record.time);
    let prepared = about(catalog, log_record, branch, EntryOp::Checkpoint).with_detail(detail);
    Ok(prepared.step(CatalogChange::Checkpoint(branch.id, label.clone(), checkpoint)))
}

fn uncheckpoint(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    label: &Arc<str>,
) -> Result<PreparedCommand, Error> {
    branch.checkpoint(label)?;
    let detail = Detail { label: Some(label.clone()), ..Detail::default() };
    let prepared = about(catalog, log_record, branch, EntryOp::Uncheckpoint).with_detail(detail);
    Ok(prepared.step(CatalogChange::Uncheckpoint(branch.id, label.clone())))
}

fn discard(catalog: &Catalog, log_record: &LogRecord, branch: &Branch) -> Result<PreparedCommand, Error> {
    if branch.parent.is_none() && &*branch.name == "main" {
        return Err(BranchError::MainStays.into());
    }
    merge_plan::without_children(branch)?;
    shared_log::check_archived(catalog, branch)?;
    Ok(about(catalog, log_record, branch, EntryOp::Discard).step(CatalogChange::Remove(branch.id)))
}

fn rename(
    context: &PlanContext<'_>,
    log_record: &LogRecord,
    branch: &Branch,
    name: &Arc<str>,
) -> Result<PreparedCommand, Error> {
    context.check_name(name)?;
    let catalog = context.catalog;
    if branch.parent.is_none() {
        return Err(BranchError::RootName(branch.name.to_string()).into());
    }
    let parent = catalog.parent(branch)?;
    if parent.children.contains_key(name) {
        return Err(exists(format!("{}/{name}", parent.path)));
    }
    let detail = Detail { label: Some(branch.name.clone()), text: Some(name.clone()), ..Detail::default() };
    let prepared = about(catalog, log_record, branch, EntryOp::Rename).with_detail(detail);
    Ok(prepared.step(CatalogChange::Rename(branch.id, name.clone())))
}

fn config(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    setting: Setting,
    value: &Arc<str>,
) -> Result<PreparedCommand, Error> {
    if setting == Setting::Embedder {
        return Err(SettingError::Derived(setting.name()).into());
    }
    // Rules were parsed before the command was made.
    let is_checked = setting == Setting::Rules;
    let value =
        if is_checked { value.clone() } else { crate::memory::catalog::settings::check(setting, value)?.into() };
    if setting == Setting::Keep
        && let Some(parent) = branch.parent.and_then(|id| catalog.branches.get(&id))
        && parse_duration(&value)
            .is_ok_and(|keep| parent.settings.duration(Setting::Keep).is_some_and(|most| keep > most))
    {
        let most = parent.settings.get(Setting::Keep).to_string();
        return Err(SettingError::AboveParent { setting: setting.name(), most }.into());
    }
    if setting == Setting::Log {
        shared_log::check_setting(catalog, branch, value.as_ref())?;
    }
    let target = if setting.is_shared() { catalog.branch(branch.root)? } else { branch };
    if setting.is_shared() && target.vectors_fixed && **target.settings.get(setting) != *value {
        return Err(SettingError::Fixed(setting.name()).into());
    }
    let detail = Detail { label: Some(setting.name().into()), text: Some(value.clone()), ..Detail::default() };
    let prepared = about(catalog, log_record, branch, EntryOp::Config).with_detail(detail);
    let is_new_agent =
        setting == Setting::Agent && !value.is_empty() && !catalog.branch(branch.root)?.agents.contains_key(&*value);
    let prepared = prepared.step(CatalogChange::Set(target.id, setting, value.clone()));
    // Whoever uses a name first has it.
    let holder = CatalogChange::Agent(branch.root, value, Some(AgentHolder::User(branch.uid)));
    Ok(if is_new_agent { prepared.step(holder) } else { prepared })
}

fn lease_lost(catalog: &Catalog, log_record: &LogRecord, branch: &Branch) -> PreparedCommand {
    let lost = CatalogChange::Lease(branch.id, LeaseState::Lost(log_record.time));
    about(catalog, log_record, branch, EntryOp::LeaseLost).step(lost)
}

fn refuse(catalog: &Catalog, log_record: &LogRecord, branch: &Branch, reason: &Arc<str>) -> PreparedCommand {
    let detail = Detail { text: Some(reason.clone()), ..Detail::default() };
    about(catalog, log_record, branch, EntryOp::Refuse).with_detail(detail)
}

/// Has the vectors of an embedder count below a root branch.
fn embedder(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    value: &Arc<str>,
) -> Result<PreparedCommand, Error> {
    crate::memory::catalog::settings::check(Setting::Embedder, value)?;
    let record = EmbedderRecord::parse_head(value).ok_or(SettingError::Derived(Setting::Embedder.name()))?;
    let text = format!("{} {}", record.dim, record.identity).into();
    let detail = Detail { label: Some(record.name), text: Some(text), ..Detail::default() };
    let prepared = about(catalog, log_record, branch, EntryOp::Embedder).with_detail(detail);
    Ok(prepared.step(CatalogChange::Set(branch.root, Setting::Embedder, value.clone())))
}

fn resolve(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    id: &Arc<str>,
    resolution: &Resolution,
) -> Result<PreparedCommand, Error> {
    catalog.parent(branch)?;
    let text = if resolution.side == Side::Child { "child" } else { "parent" };
    let detail = Detail { label: Some(id.clone()), text: Some(text.into()), ..Detail::default() };
    let prepared = about(catalog, log_record, branch, EntryOp::Resolve).with_detail(detail);
    Ok(prepared.step(CatalogChange::Resolve(branch.id, id.clone(), resolution.clone())))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, Memory, OpenMode};
    use crate::object::Time;

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
            let command = Command::Fork { parent, name, from: None, owner: None };
            prepare(&context, &LogRecord { time: Time(1), planned: Time(1), uid: 0, command })
        };
        assert!(fork(true).is_ok());
        assert_eq!(fork(false).err().map(|error| error.kind()), Some(Kind::Invalid));
    }
}
