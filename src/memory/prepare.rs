//! From a command to what it changes: the rules of the store, and nothing written yet.

use std::sync::Arc;

use super::bulk::Bulk;
use super::catalog::{Branch, BranchId, Catalog, Checkpoint, Resolution, RetainedState};
use super::log_record::{Command, LogRecord, RecordChange};
use super::merge_budget::MergeBudget;
use super::merge_plan::{MergeContext, MergePlan};
use super::record_input::check_numbers;
use super::rolling_back::Rollback;
use super::settings::Setting;
use super::{Error, Kind, merge_plan};
use crate::branch::{BranchVersion, check_name, check_record_id};
use crate::lineage::{Counts, Detail, EntryOp, Side};
use crate::object::{Hash, Time};
use crate::record::{Provenance, RecordContent, Version};
use crate::segment::{Row, Segment};
use crate::vector::Metric;
use crate::workspace::Packs;

/// One change of the catalog.
pub enum CatalogChange {
    /// A branch appears.
    Add(Box<Branch>),
    /// A branch disappears.
    Remove(BranchId),
    /// A branch's records become these.
    State(BranchId, Arc<BranchVersion>),
    /// A branch's base becomes this.
    Base(BranchId, Arc<BranchVersion>),
    /// A state stays readable.
    Keep(BranchId, RetainedState),
    /// A checkpoint appears.
    Checkpoint(BranchId, Arc<str>, Checkpoint),
    /// A checkpoint disappears.
    Uncheckpoint(BranchId, Arc<str>),
    /// A branch is called otherwise.
    Rename(BranchId, Arc<str>),
    /// A setting gets a value.
    Set(BranchId, Setting, Arc<str>),
    /// The first vector fixes dimension and metric of a root branch.
    Fix(BranchId),
    /// Permission bits.
    Mode(BranchId, u32),
    /// A conflict is settled.
    Resolve(BranchId, Arc<str>, Resolution),
    /// A uid gets its name.
    User(u32, Arc<str>),
    /// What lies behind this time in the future was left and changed at this time.
    Clock(Time),
}

/// A command that is allowed, with all that follows from it.
pub struct PreparedCommand {
    /// What the entry says was done.
    pub op: EntryOp,
    /// The branch it is about; the new one for a fork.
    pub branch: BranchId,
    /// Its name path.
    pub path: Arc<str>,
    /// Its parent.
    pub parent: Option<(BranchId, Arc<str>)>,
    /// Head of its base.
    pub base: Hash,
    /// Head that results.
    pub head: Hash,
    /// What changes.
    pub counts: Counts,
    /// Particulars of the operation.
    pub detail: Detail,
    /// Labels of who acts: agent, session, task.
    pub labels: [Arc<str>; 3],
    /// The changes of the catalog.
    pub steps: Vec<CatalogChange>,
}

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
}

impl<'a> PlanContext<'a> {
    fn merge_context(&self, log_record: &LogRecord) -> MergeContext<'a> {
        MergeContext { catalog: self.catalog, packs: self.packs, time: log_record.planned }
    }
}

/// Checks a command against the rules and works out what it changes.
pub fn prepare(context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
    let catalog = context.catalog;
    match &log_record.command {
        Command::Root(name) => root(context, log_record, name),
        Command::Fork { parent, name, from } => fork(context, log_record, *parent, name, from.as_deref()),
        Command::User(name) => Ok(user(log_record, name)),
        Command::Clock => Ok(clock(catalog, log_record)),
        Command::Commit(branch, changes) => commit(catalog, log_record, catalog.branch(*branch)?, changes),
        Command::Bulk(branch, segment, deletes) => {
            let segment = (context.segment)(segment)?;
            Bulk::new(catalog, *branch, segment, deletes, log_record.planned)?.prepare(catalog, log_record)
        }
        Command::Checkpoint { branch, label, text } => {
            checkpoint(catalog, log_record, catalog.branch(*branch)?, label, text)
        }
        Command::Uncheckpoint(branch, label) => uncheckpoint(catalog, log_record, catalog.branch(*branch)?, label),
        Command::Rollback(branch, label) => {
            Rollback::new(context.merge_context(log_record), *branch, label, None, usize::MAX)
                .map_err(Error::from)?
                .prepare(catalog, log_record)
        }
        Command::RollbackFiles { branch, label, patterns } => {
            let planned = Rollback::new(context.merge_context(log_record), *branch, label, Some(patterns), usize::MAX);
            planned.map_err(Error::from)?.prepare(catalog, log_record)
        }
        Command::Merge(branch, merge) => {
            let planned = MergePlan::new(context.merge_context(log_record), *branch, *merge, None, &MergeBudget::ALL);
            planned.map_err(Error::from)?.prepare(catalog, log_record)
        }
        Command::Discard(branch) => discard(catalog, log_record, catalog.branch(*branch)?),
        Command::Rename(branch, name) => rename(catalog, log_record, catalog.branch(*branch)?, name),
        Command::Config(branch, setting, value) => {
            config(catalog, log_record, catalog.branch(*branch)?, *setting, value)
        }
        Command::Mode(branch, mode) => {
            let branch = catalog.branch(*branch)?;
            let detail =
                Detail { label: Some("mode".into()), text: Some(format!("{mode:04o}").into()), ..Detail::default() };
            Ok(about(catalog, log_record, branch, EntryOp::Config)
                .with_detail(detail)
                .step(CatalogChange::Mode(branch.id, *mode)))
        }
        Command::Resolve { branch, id, resolution } => {
            resolve(catalog, log_record, catalog.branch(*branch)?, id, resolution)
        }
        Command::Files(branch, count) => {
            let mut prepared = about(catalog, log_record, catalog.branch(*branch)?, EntryOp::Files);
            prepared.counts.files = *count;
            Ok(prepared)
        }
        Command::Refuse(branch, reason) => {
            let detail = Detail { text: Some(reason.clone()), ..Detail::default() };
            Ok(about(catalog, log_record, catalog.branch(*branch)?, EntryOp::Refuse).with_detail(detail))
        }
    }
}

/// The entry of a command on a branch that changes nothing yet.
pub(super) fn about(catalog: &Catalog, log_record: &LogRecord, branch: &Branch, op: EntryOp) -> PreparedCommand {
    let parent = branch.parent.and_then(|id| catalog.branches.get(&id));
    let parent = parent.map(|parent| (parent.id, parent.path.clone()));
    PreparedCommand {
        op,
        branch: branch.id,
        path: branch.path.clone(),
        parent,
        base: branch.base.head(),
        head: branch.state.head(),
        counts: Counts::default(),
        detail: Detail::default(),
        labels: labels(catalog, branch, log_record.uid),
        steps: Vec::new(),
    }
}

impl PreparedCommand {
    pub(super) fn with_detail(mut self, detail: Detail) -> PreparedCommand {
        self.detail = detail;
        self
    }

    pub(super) fn step(mut self, step: CatalogChange) -> PreparedCommand {
        self.steps.push(step);
        self
    }

    /// The branch's records become `state`.
    pub(super) fn with_state(mut self, state: BranchVersion) -> PreparedCommand {
        self.head = state.head();
        let branch = self.branch;
        self.step(CatalogChange::State(branch, Arc::new(state)))
    }
}

/// Agent, session and task of who acts in a branch.
fn labels(catalog: &Catalog, branch: &Branch, uid: u32) -> [Arc<str>; 3] {
    let agent = branch.settings.get(Setting::Agent);
    let agent = if agent.is_empty() { catalog.user(uid) } else { agent.clone() };
    [agent, branch.settings.get(Setting::Session).clone(), branch.settings.get(Setting::Task).clone()]
}

fn exists(path: &str) -> Error {
    Error::new(Kind::Exists, "exists", format!("there is a branch {path} already"), "choose another name")
}

fn root(context: &PlanContext<'_>, log_record: &LogRecord, name: &Arc<str>) -> Result<PreparedCommand, Error> {
    check_name(name)?;
    if context.catalog.roots.contains_key(name) {
        return Err(exists(name));
    }
    let branch =
        Branch::new(BranchId(context.seq), name.clone(), None, Arc::default(), log_record.uid, log_record.time);
    let prepared = about(context.catalog, log_record, &branch, EntryOp::Root);
    Ok(prepared.step(CatalogChange::Add(Box::new(branch))))
}

fn fork(
    context: &PlanContext<'_>,
    log_record: &LogRecord,
    parent: BranchId,
    name: &Arc<str>,
    from: Option<&str>,
) -> Result<PreparedCommand, Error> {
    check_name(name)?;
    let parent = context.catalog.branch(parent)?;
    if parent.children.contains_key(name) {
        return Err(exists(&format!("{}/{name}", parent.path)));
    }
    let state = match from {
        None => without_orphans(&parent.state),
        Some(label) => find_checkpoint(parent, label)?.state.clone(),
    };
    let branch = Branch::new(BranchId(context.seq), name.clone(), Some(parent), state, log_record.uid, log_record.time);
    let detail = Detail { label: from.map(Arc::from), ..Detail::default() };
    let prepared = about(context.catalog, log_record, &branch, EntryOp::Fork).with_detail(detail);
    Ok(prepared.step(CatalogChange::Add(Box::new(branch))))
}

/// Returns the state without files that only open handles of its branch still hold.
fn without_orphans(state: &Arc<BranchVersion>) -> Arc<BranchVersion> {
    if state.files().orphans().next().is_none() {
        return state.clone();
    }
    let (mut state, mut files) = (BranchVersion::clone(state), state.files().clone());
    files.drop_orphans();
    state.set_files(files);
    Arc::new(state)
}

fn user(log_record: &LogRecord, name: &Arc<str>) -> PreparedCommand {
    let detail = Detail { text: Some(name.clone()), ..Detail::default() };
    of_store(EntryOp::User, detail, name.clone(), CatalogChange::User(log_record.uid, name.clone()))
}

fn clock(catalog: &Catalog, log_record: &LogRecord) -> PreparedCommand {
    of_store(EntryOp::Clock, Detail::default(), catalog.user(log_record.uid), CatalogChange::Clock(log_record.time))
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
        counts: Counts::default(),
        detail,
        labels: [user, "".into(), "".into()],
        steps: vec![step],
    }
}

/// Checks a vector against what is fixed below a root branch, or against the first one.
pub(super) fn check_vector(
    dim: Option<usize>,
    metric: Metric,
    content: &RecordContent,
    norm: f32,
) -> Result<(), Error> {
    let Some(vector) = &content.vector else { return Ok(()) };
    check_numbers(vector)?;
    if let Some(dim) = dim
        && dim != vector.len()
    {
        let message = format!("the vector has {} numbers, and vectors here have {dim}", vector.len());
        return Err(Error::new(
            Kind::Invalid,
            "wrong_dimension",
            message,
            "use the embedding model that the memory was made with",
        ));
    }
    if metric == Metric::Cosine && norm == 0.0 {
        let message = "a vector of zeros has no direction to compare by cosine";
        return Err(Error::new(Kind::Invalid, "zero_vector", message, "leave the vector out, or use another metric"));
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
            RecordChange::Delete { id } => prepared.counts.deleted += u64::from(state.delete(id, log_record.time)?),
            RecordChange::Put { id, content, from } => {
                check_record_id(id)?;
                let stamp =
                    stamp(log_record, &prepared, created(&state, log_record.time, from.as_deref().unwrap_or(id))?);
                let version = Version::new(id.clone(), content.clone(), stamp);
                check_vector(dim, metric, content, version.norm)?;
                dim = dim.or(content.vector.as_ref().map(|vector| vector.len()));
                state.put(Row::Unsealed(Arc::new(version)))?;
                prepared.counts.put += 1;
            }
        }
    }
    fix(catalog, branch, dim, state.totals().vectors > 0, &mut prepared)?;
    Ok(prepared.with_state(state))
}

/// Fixes dimension and metric once there is a vector.
pub(super) fn fix(
    catalog: &Catalog,
    branch: &Branch,
    dim: Option<usize>,
    vectors: bool,
    prepared: &mut PreparedCommand,
) -> Result<(), Error> {
    if let Some(dim) = dim
        && vectors
        && !catalog.branch(branch.root)?.vectors_fixed
    {
        prepared.steps.push(CatalogChange::Set(branch.root, Setting::Dim, dim.to_string().into()));
        prepared.steps.push(CatalogChange::Fix(branch.root));
    }
    Ok(())
}

/// When the record was first written: a replacement keeps it.
pub(super) fn created(state: &BranchVersion, now: Time, id: &str) -> Result<Time, Error> {
    Ok(match state.find(id)? {
        Some(old) => old.stamp()?.created,
        None => now,
    })
}

fn stamp(log_record: &LogRecord, prepared: &PreparedCommand, created: Time) -> Provenance {
    let [agent, session, _] = prepared.labels.clone();
    Provenance { created, modified: log_record.time, branch: prepared.path.clone(), agent, session }
}

pub(super) fn find_checkpoint<'a>(branch: &'a Branch, label: &str) -> Result<&'a Checkpoint, Error> {
    branch.checkpoints.get(label).ok_or_else(|| Error::no_checkpoint(label))
}

fn checkpoint(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    label: &Arc<str>,
    text: &Arc<str>,
) -> Result<PreparedCommand, Error> {
    check_name(label)?;
    if branch.checkpoints.contains_key(label) {
        let message = format!("the branch has a checkpoint {label} already");
        return Err(Error::new(Kind::Exists, "exists", message, "choose another label, or rmdir that one first"));
    }
    let text_detail = (!text.is_empty()).then(|| text.clone());
    let detail = Detail { label: Some(label.clone()), text: text_detail, ..Detail::default() };
    let checkpoint =
        Checkpoint { state: without_orphans(&branch.state), seq: 0, time: log_record.time, text: text.clone() };
    let prepared = about(catalog, log_record, branch, EntryOp::Checkpoint).with_detail(detail);
    Ok(prepared.step(CatalogChange::Checkpoint(branch.id, label.clone(), checkpoint)))
}

fn uncheckpoint(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    label: &Arc<str>,
) -> Result<PreparedCommand, Error> {
    find_checkpoint(branch, label)?;
    let detail = Detail { label: Some(label.clone()), ..Detail::default() };
    let prepared = about(catalog, log_record, branch, EntryOp::Uncheckpoint).with_detail(detail);
    Ok(prepared.step(CatalogChange::Uncheckpoint(branch.id, label.clone())))
}

fn discard(catalog: &Catalog, log_record: &LogRecord, branch: &Branch) -> Result<PreparedCommand, Error> {
    if branch.parent.is_none() && &*branch.name == "main" {
        let message = "main was made with the store and can't be discarded";
        return Err(Error::new(
            Kind::NotPermitted,
            "main_stays",
            message,
            "discard its child branches, or remove the store",
        ));
    }
    merge_plan::without_children(branch)?;
    Ok(about(catalog, log_record, branch, EntryOp::Discard).step(CatalogChange::Remove(branch.id)))
}

fn rename(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    name: &Arc<str>,
) -> Result<PreparedCommand, Error> {
    check_name(name)?;
    if branch.parent.is_none() {
        let message = format!("{} is a root branch and keeps its name", branch.name);
        return Err(Error::new(Kind::Invalid, "root_name", message, "make another root branch instead"));
    }
    let parent = catalog.parent(branch)?;
    if parent.children.contains_key(name) {
        return Err(exists(&format!("{}/{name}", parent.path)));
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
    // Rules were parsed before the command was made.
    let is_checked = setting == Setting::Rules;
    let value = if is_checked { value.clone() } else { super::settings::check(setting, value)?.into() };
    let target = if setting.is_shared() { catalog.branch(branch.root)? } else { branch };
    if setting.is_shared() && target.vectors_fixed && **target.settings.get(setting) != *value {
        let message = format!("{} is fixed since the first vector was written", setting.name());
        return Err(Error::new(Kind::Busy, "fixed", message, "make another root branch for other vectors"));
    }
    let detail = Detail { label: Some(setting.name().into()), text: Some(value.clone()), ..Detail::default() };
    let prepared = about(catalog, log_record, branch, EntryOp::Config).with_detail(detail);
    Ok(prepared.step(CatalogChange::Set(target.id, setting, value)))
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
