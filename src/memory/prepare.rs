//! From an act to what it changes: the rules of the store, and nothing written yet.

use std::sync::Arc;

use super::act::{Act, Change, Deed};
use super::bulk::Bulk;
use super::effort::Effort;
use super::joining::{Planned, Table};
use super::record_input::check_numbers;
use super::rolling_back::Rollback;
use super::settings::Setting;
use super::world::{Branch, BranchId, Checkpoint, Kept, Resolution, World};
use super::{Error, Kind, joining};
use crate::branch::{State, check_name, check_record_id};
use crate::lineage::{Counts, Detail, Op, Side};
use crate::object::{Hash, Time};
use crate::record::{Content, Stamp, Version};
use crate::segment::{Row, Segment};
use crate::vector::Metric;
use crate::workspace::Packs;

/// One change of the world.
pub enum Step {
    /// A branch appears.
    Add(Box<Branch>),
    /// A branch disappears.
    Remove(BranchId),
    /// A branch's records become these.
    State(BranchId, Arc<State>),
    /// A branch's base becomes this.
    Base(BranchId, Arc<State>),
    /// A state stays readable.
    Keep(BranchId, Kept),
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

/// An act that is allowed, with all that follows from it.
pub struct Prepared {
    /// What the entry says was done.
    pub op: Op,
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
    /// The changes of the world.
    pub steps: Vec<Step>,
}

/// What [`prepare`] looks at.
pub struct Ground<'a> {
    /// The world as it is.
    pub world: &'a World,
    /// `seq` of the entry to come.
    pub seq: u64,
    /// Where the contents of files are read.
    pub packs: &'a dyn Packs,
    /// Opens the segment of a bulk commit.
    pub segment: &'a dyn Fn(&Hash) -> Result<Arc<Segment>, Error>,
}

impl<'a> Ground<'a> {
    fn table(&self, act: &Act) -> Table<'a> {
        Table { world: self.world, packs: self.packs, time: act.planned }
    }
}

/// Checks an act against the rules and works out what it changes.
pub fn prepare(ground: &Ground<'_>, act: &Act) -> Result<Prepared, Error> {
    let world = ground.world;
    match &act.deed {
        Deed::Root(name) => root(ground, act, name),
        Deed::Fork { parent, name, from } => fork(ground, act, *parent, name, from.as_deref()),
        Deed::User(name) => Ok(user(act, name)),
        Deed::Clock => Ok(clock(world, act)),
        Deed::Commit(branch, changes) => commit(world, act, world.branch(*branch)?, changes),
        Deed::Bulk(branch, segment, deletes) => {
            let segment = (ground.segment)(segment)?;
            Bulk::new(world, *branch, segment, deletes, act.planned)?.prepare(world, act)
        }
        Deed::Checkpoint { branch, label, text } => checkpoint(world, act, world.branch(*branch)?, label, text),
        Deed::Uncheckpoint(branch, label) => uncheckpoint(world, act, world.branch(*branch)?, label),
        Deed::Rollback(branch, label) => {
            Rollback::new(ground.table(act), *branch, label, None, usize::MAX).map_err(Error::from)?.prepare(world, act)
        }
        Deed::RollbackFiles { branch, label, patterns } => {
            let planned = Rollback::new(ground.table(act), *branch, label, Some(patterns), usize::MAX);
            planned.map_err(Error::from)?.prepare(world, act)
        }
        Deed::Join(branch, join) => {
            let planned = Planned::new(ground.table(act), *branch, *join, None, &Effort::ALL);
            planned.map_err(Error::from)?.prepare(world, act)
        }
        Deed::Discard(branch) => discard(world, act, world.branch(*branch)?),
        Deed::Rename(branch, name) => rename(world, act, world.branch(*branch)?, name),
        Deed::Config(branch, setting, value) => config(world, act, world.branch(*branch)?, *setting, value),
        Deed::Mode(branch, mode) => {
            let branch = world.branch(*branch)?;
            let detail =
                Detail { label: Some("mode".into()), text: Some(format!("{mode:04o}").into()), ..Detail::default() };
            Ok(about(world, act, branch, Op::Config).with_detail(detail).step(Step::Mode(branch.id, *mode)))
        }
        Deed::Resolve { branch, id, resolution } => resolve(world, act, world.branch(*branch)?, id, resolution),
        Deed::Files(branch, count) => {
            let mut prepared = about(world, act, world.branch(*branch)?, Op::Files);
            prepared.counts.files = *count;
            Ok(prepared)
        }
        Deed::Refuse(branch, reason) => {
            let detail = Detail { text: Some(reason.clone()), ..Detail::default() };
            Ok(about(world, act, world.branch(*branch)?, Op::Refuse).with_detail(detail))
        }
    }
}

/// The entry of an act on a branch that changes nothing yet.
pub(super) fn about(world: &World, act: &Act, branch: &Branch, op: Op) -> Prepared {
    let parent = branch.parent.and_then(|id| world.branches.get(&id));
    let parent = parent.map(|parent| (parent.id, parent.path.clone()));
    Prepared {
        op,
        branch: branch.id,
        path: branch.path.clone(),
        parent,
        base: branch.base.head(),
        head: branch.state.head(),
        counts: Counts::default(),
        detail: Detail::default(),
        labels: labels(world, branch, act.uid),
        steps: Vec::new(),
    }
}

impl Prepared {
    pub(super) fn with_detail(mut self, detail: Detail) -> Prepared {
        self.detail = detail;
        self
    }

    pub(super) fn step(mut self, step: Step) -> Prepared {
        self.steps.push(step);
        self
    }

    /// The branch's records become `state`.
    pub(super) fn with_state(mut self, state: State) -> Prepared {
        self.head = state.head();
        let branch = self.branch;
        self.step(Step::State(branch, Arc::new(state)))
    }
}

/// Agent, session and task of who acts in a branch.
fn labels(world: &World, branch: &Branch, uid: u32) -> [Arc<str>; 3] {
    let agent = branch.settings.get(Setting::Agent);
    let agent = if agent.is_empty() { world.user(uid) } else { agent.clone() };
    [agent, branch.settings.get(Setting::Session).clone(), branch.settings.get(Setting::Task).clone()]
}

fn exists(path: &str) -> Error {
    Error::new(Kind::Exists, "exists", format!("there is a branch {path} already"), "choose another name")
}

fn root(ground: &Ground<'_>, act: &Act, name: &Arc<str>) -> Result<Prepared, Error> {
    check_name(name)?;
    if ground.world.roots.contains_key(name) {
        return Err(exists(name));
    }
    let branch = Branch::new(BranchId(ground.seq), name.clone(), None, Arc::default(), act.uid, act.time);
    let prepared = about(ground.world, act, &branch, Op::Root);
    Ok(prepared.step(Step::Add(Box::new(branch))))
}

fn fork(
    ground: &Ground<'_>,
    act: &Act,
    parent: BranchId,
    name: &Arc<str>,
    from: Option<&str>,
) -> Result<Prepared, Error> {
    check_name(name)?;
    let parent = ground.world.branch(parent)?;
    if parent.children.contains_key(name) {
        return Err(exists(&format!("{}/{name}", parent.path)));
    }
    let state = match from {
        None => without_orphans(&parent.state),
        Some(label) => find_checkpoint(parent, label)?.state.clone(),
    };
    let branch = Branch::new(BranchId(ground.seq), name.clone(), Some(parent), state, act.uid, act.time);
    let detail = Detail { label: from.map(Arc::from), ..Detail::default() };
    let prepared = about(ground.world, act, &branch, Op::Fork).with_detail(detail);
    Ok(prepared.step(Step::Add(Box::new(branch))))
}

/// Returns the state without files that only open handles of its branch still hold.
fn without_orphans(state: &Arc<State>) -> Arc<State> {
    if state.files().orphans().next().is_none() {
        return state.clone();
    }
    let (mut state, mut files) = (State::clone(state), state.files().clone());
    files.drop_orphans();
    state.set_files(files);
    Arc::new(state)
}

fn user(act: &Act, name: &Arc<str>) -> Prepared {
    let detail = Detail { text: Some(name.clone()), ..Detail::default() };
    of_store(Op::User, detail, name.clone(), Step::User(act.uid, name.clone()))
}

fn clock(world: &World, act: &Act) -> Prepared {
    of_store(Op::Clock, Detail::default(), world.user(act.uid), Step::Clock(act.time))
}

/// The entry of an act that concerns no branch.
fn of_store(op: Op, detail: Detail, user: Arc<str>, step: Step) -> Prepared {
    Prepared {
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
pub(super) fn check_vector(dim: Option<usize>, metric: Metric, content: &Content, norm: f32) -> Result<(), Error> {
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

fn commit(world: &World, act: &Act, branch: &Branch, changes: &[Change]) -> Result<Prepared, Error> {
    let mut prepared = about(world, act, branch, Op::Commit);
    let settings = world.shared_settings(branch)?;
    let (mut dim, metric) = (settings.dim(), settings.metric());
    let mut state = (*branch.state).clone();
    for change in changes {
        match change {
            Change::Delete { id } => prepared.counts.deleted += u64::from(state.delete(id, act.time)?),
            Change::Put { id, content, from } => {
                check_record_id(id)?;
                let stamp = stamp(act, &prepared, created(&state, act.time, from.as_deref().unwrap_or(id))?);
                let version = Version::new(id.clone(), content.clone(), stamp);
                check_vector(dim, metric, content, version.norm)?;
                dim = dim.or(content.vector.as_ref().map(|vector| vector.len()));
                state.put(Row::Loose(Arc::new(version)))?;
                prepared.counts.put += 1;
            }
        }
    }
    fix(world, branch, dim, state.totals().vectors > 0, &mut prepared)?;
    Ok(prepared.with_state(state))
}

/// Fixes dimension and metric once there is a vector.
pub(super) fn fix(
    world: &World,
    branch: &Branch,
    dim: Option<usize>,
    vectors: bool,
    prepared: &mut Prepared,
) -> Result<(), Error> {
    if let Some(dim) = dim
        && vectors
        && !world.branch(branch.root)?.vectors_fixed
    {
        prepared.steps.push(Step::Set(branch.root, Setting::Dim, dim.to_string().into()));
        prepared.steps.push(Step::Fix(branch.root));
    }
    Ok(())
}

/// When the record was first written: a replacement keeps it.
pub(super) fn created(state: &State, now: Time, id: &str) -> Result<Time, Error> {
    Ok(match state.find(id)? {
        Some(old) => old.stamp()?.created,
        None => now,
    })
}

fn stamp(act: &Act, prepared: &Prepared, created: Time) -> Stamp {
    let [agent, session, _] = prepared.labels.clone();
    Stamp { created, modified: act.time, branch: prepared.path.clone(), agent, session }
}

pub(super) fn find_checkpoint<'a>(branch: &'a Branch, label: &str) -> Result<&'a Checkpoint, Error> {
    branch.checkpoints.get(label).ok_or_else(|| Error::no_checkpoint(label))
}

fn checkpoint(world: &World, act: &Act, branch: &Branch, label: &Arc<str>, text: &Arc<str>) -> Result<Prepared, Error> {
    check_name(label)?;
    if branch.checkpoints.contains_key(label) {
        let message = format!("the branch has a checkpoint {label} already");
        return Err(Error::new(Kind::Exists, "exists", message, "choose another label, or rmdir that one first"));
    }
    let text_detail = (!text.is_empty()).then(|| text.clone());
    let detail = Detail { label: Some(label.clone()), text: text_detail, ..Detail::default() };
    let checkpoint = Checkpoint { state: without_orphans(&branch.state), seq: 0, time: act.time, text: text.clone() };
    let prepared = about(world, act, branch, Op::Checkpoint).with_detail(detail);
    Ok(prepared.step(Step::Checkpoint(branch.id, label.clone(), checkpoint)))
}

fn uncheckpoint(world: &World, act: &Act, branch: &Branch, label: &Arc<str>) -> Result<Prepared, Error> {
    find_checkpoint(branch, label)?;
    let detail = Detail { label: Some(label.clone()), ..Detail::default() };
    let prepared = about(world, act, branch, Op::Uncheckpoint).with_detail(detail);
    Ok(prepared.step(Step::Uncheckpoint(branch.id, label.clone())))
}

fn discard(world: &World, act: &Act, branch: &Branch) -> Result<Prepared, Error> {
    if branch.parent.is_none() && &*branch.name == "main" {
        let message = "main was made with the store and can't be discarded";
        return Err(Error::new(
            Kind::NotPermitted,
            "main_stays",
            message,
            "discard its child branches, or remove the store",
        ));
    }
    joining::without_children(branch)?;
    Ok(about(world, act, branch, Op::Discard).step(Step::Remove(branch.id)))
}

fn rename(world: &World, act: &Act, branch: &Branch, name: &Arc<str>) -> Result<Prepared, Error> {
    check_name(name)?;
    if branch.parent.is_none() {
        let message = format!("{} is a root branch and keeps its name", branch.name);
        return Err(Error::new(Kind::Invalid, "root_name", message, "make another root branch instead"));
    }
    let parent = world.parent(branch)?;
    if parent.children.contains_key(name) {
        return Err(exists(&format!("{}/{name}", parent.path)));
    }
    let detail = Detail { label: Some(branch.name.clone()), text: Some(name.clone()), ..Detail::default() };
    let prepared = about(world, act, branch, Op::Rename).with_detail(detail);
    Ok(prepared.step(Step::Rename(branch.id, name.clone())))
}

fn config(world: &World, act: &Act, branch: &Branch, setting: Setting, value: &Arc<str>) -> Result<Prepared, Error> {
    // Rules were parsed before the act was made.
    let is_checked = setting == Setting::Rules;
    let value = if is_checked { value.clone() } else { super::settings::check(setting, value)?.into() };
    let target = if setting.is_shared() { world.branch(branch.root)? } else { branch };
    if setting.is_shared() && target.vectors_fixed && **target.settings.get(setting) != *value {
        let message = format!("{} is fixed since the first vector was written", setting.name());
        return Err(Error::new(Kind::Busy, "fixed", message, "make another root branch for other vectors"));
    }
    let detail = Detail { label: Some(setting.name().into()), text: Some(value.clone()), ..Detail::default() };
    let prepared = about(world, act, branch, Op::Config).with_detail(detail);
    Ok(prepared.step(Step::Set(target.id, setting, value)))
}

fn resolve(
    world: &World,
    act: &Act,
    branch: &Branch,
    id: &Arc<str>,
    resolution: &Resolution,
) -> Result<Prepared, Error> {
    world.parent(branch)?;
    let text = if resolution.side == Side::Child { "child" } else { "parent" };
    let detail = Detail { label: Some(id.clone()), text: Some(text.into()), ..Detail::default() };
    let prepared = about(world, act, branch, Op::Resolve).with_detail(detail);
    Ok(prepared.step(Step::Resolve(branch.id, id.clone(), resolution.clone())))
}
