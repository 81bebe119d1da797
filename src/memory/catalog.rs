//! All branches of a store at one moment.

use std::ops::Deref;
use std::sync::Arc;

use imbl::OrdMap;

use super::branch_files::{Holdings, files_held};
use super::prepare::CatalogChange;
use super::settings::{Setting, Settings};
use super::{Error, Kind};
use crate::branch::BranchVersion;
use crate::lineage::Side;
use crate::object::{CodecError, Hash, Reader, Time, Writer};

/// Names a branch for ever: the `seq` of the entry that made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BranchId(pub u64);

/// What a directory shows: a branch as it is now, or one of its checkpoints.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum View {
    /// The branch.
    Branch(BranchId),
    /// The checkpoint of that label.
    Checkpoint(BranchId, Arc<str>),
}

impl View {
    /// Returns the branch it belongs to.
    pub fn branch(&self) -> BranchId {
        match self {
            View::Branch(branch) | View::Checkpoint(branch, _) => *branch,
        }
    }
}

/// A named state of a branch.
#[derive(Clone)]
pub struct Checkpoint {
    /// The records.
    pub state: Arc<BranchVersion>,
    /// `seq` of the entry that took it.
    pub seq: u64,
    /// When it was taken.
    pub time: Time,
    /// What was said about it.
    pub text: Arc<str>,
}

/// A state that stays readable for a while.
#[derive(Clone)]
pub struct RetainedState {
    /// The records.
    pub state: Arc<BranchVersion>,
    /// When it was left; where that was more than once, the last time.
    pub time: Time,
}

impl PartialEq for Checkpoint {
    fn eq(&self, other: &Checkpoint) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
            && (self.seq, self.time, &self.text) == (other.seq, other.time, &other.text)
    }
}

impl PartialEq for RetainedState {
    fn eq(&self, other: &RetainedState) -> bool {
        Arc::ptr_eq(&self.state, &other.state) && self.time == other.time
    }
}

/// A conflict settled manually, for as long as both sides stay as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The side chosen.
    pub side: Side,
    /// The child's version then.
    pub child: Option<Hash>,
    /// The parent's version then.
    pub parent: Option<Hash>,
}

impl Resolution {
    /// Appends the stored form.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        out.byte(u8::from(self.side == Side::Parent));
        out.hash(&self.child.unwrap_or(Hash::ZERO)).hash(&self.parent.unwrap_or(Hash::ZERO))
    }

    /// Reads the stored form.
    pub fn read(input: &mut Reader<'_>) -> Result<Resolution, CodecError> {
        let side = match input.byte()? {
            0 => Side::Child,
            1 => Side::Parent,
            code => return Err(CodecError::Code(code)),
        };
        let version = |hash: Hash| (hash != Hash::ZERO).then_some(hash);
        Ok(Resolution { side, child: version(input.hash()?), parent: version(input.hash()?) })
    }
}

/// One branch.
#[derive(Clone)]
pub struct Branch {
    /// Its number.
    pub id: BranchId,
    /// Its name.
    pub name: Arc<str>,
    /// The names from the root branch down to its own, joined by `/`. Kept, since every answer and entry
    /// tells it, and putting it together at depth 64 takes some 3 µs.
    pub path: Arc<str>,
    /// Its parent; none for a root branch.
    pub parent: Option<BranchId>,
    /// The root branch above it, or itself.
    pub root: BranchId,
    /// The uid that made it.
    pub uid: u32,
    /// Permission bits of its directory.
    pub mode: u32,
    /// When it was made.
    pub created: Time,
    /// When it last changed.
    pub changed: Time,
    /// `seq` of the last entry that concerns it.
    pub stamp: u64,
    /// Its records.
    pub state: Arc<BranchVersion>,
    /// What it began with, or last merged with.
    pub base: Arc<BranchVersion>,
    /// Its settings.
    pub settings: Settings,
    /// Its checkpoints by label.
    pub checkpoints: OrdMap<Arc<str>, Checkpoint>,
    /// Its child branches by name.
    pub children: OrdMap<Arc<str>, BranchId>,
    /// Earlier states and states of losers that stay readable, by head: of those with one head the first.
    pub kept: OrdMap<Hash, RetainedState>,
    /// Conflicts settled manually, by id.
    pub resolutions: OrdMap<Arc<str>, Resolution>,
    /// Operations on its files since the store was opened.
    pub edits: u64,
    /// `seq` of the last entry since the store was opened that gave it another state. Unlike the
    /// state's address, this stays when the state moves into new segments.
    pub state_seq: u64,
    /// The same of its base.
    pub base_seq: u64,
    /// Of a root branch: whether a vector was ever written below it, which fixes `dim` and `metric`.
    pub vectors_fixed: bool,
}

impl Branch {
    /// Returns whether it has the state that it had in another version of the catalog, wherever that is stored.
    pub fn has_state_of(&self, other: &Branch) -> bool {
        (self.state_seq, self.edits) == (other.state_seq, other.edits)
    }

    /// Mode of a new root branch's directory.
    pub const ROOT_MODE: u32 = 0o755;
    /// Mode of a new child branch's directory.
    pub const CHILD_MODE: u32 = 0o700;

    /// Makes a branch without checkpoints and children, whose base is its state.
    pub fn new(
        id: BranchId,
        name: Arc<str>,
        parent: Option<&Branch>,
        state: Arc<BranchVersion>,
        uid: u32,
        time: Time,
    ) -> Branch {
        Branch {
            id,
            path: name_path(parent, &name),
            name,
            parent: parent.map(|parent| parent.id),
            root: parent.map_or(id, |parent| parent.root),
            uid,
            mode: if parent.is_some() { Branch::CHILD_MODE } else { Branch::ROOT_MODE },
            created: time,
            changed: time,
            stamp: id.0,
            base: state.clone(),
            state,
            settings: parent.map_or_else(Settings::default, |parent| parent.settings.for_fork()),
            checkpoints: OrdMap::new(),
            children: OrdMap::new(),
            kept: OrdMap::new(),
            resolutions: OrdMap::new(),
            edits: 0,
            state_seq: id.0,
            base_seq: id.0,
            vectors_fixed: false,
        }
    }

    /// Keeps a state readable. One of equal content that is kept already stays, for longer.
    pub fn keep(&mut self, kept: RetainedState) {
        let RetainedState { state, time } = kept;
        self.kept.entry(state.head()).or_insert(RetainedState { state, time }).time = time;
    }
}

/// A branch as a version of the catalog has it. It equals itself alone, so that a comparison of two
/// versions finds the branches that changed, at the cost of what changed.
#[derive(Clone)]
pub struct BranchRef(Arc<Branch>);

impl BranchRef {
    /// Takes a branch over.
    pub fn new(branch: Branch) -> BranchRef {
        BranchRef(Arc::new(branch))
    }

    /// Returns the branch to change it; other versions of the catalog keep theirs.
    pub fn make_mut(&mut self) -> &mut Branch {
        Arc::make_mut(&mut self.0)
    }
}

impl PartialEq for BranchRef {
    fn eq(&self, other: &BranchRef) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for BranchRef {
    type Target = Branch;

    fn deref(&self) -> &Branch {
        &self.0
    }
}

/// Returns the path of a branch of that name.
fn name_path(parent: Option<&Branch>, name: &Arc<str>) -> Arc<str> {
    parent.map_or_else(|| name.clone(), |parent| format!("{}/{name}", parent.path).into())
}

/// Branches by number.
pub type Branches = OrdMap<BranchId, BranchRef>;

/// All branches, and what entries of all kinds refer to. A clone costs the same whatever it holds.
#[derive(Clone, Default)]
pub struct Catalog {
    /// Every living branch.
    pub branches: Branches,
    /// The root branches by name.
    pub roots: OrdMap<Arc<str>, BranchId>,
    /// The name each uid had when it was first seen.
    pub users: OrdMap<u32, Arc<str>>,
    /// Memory that names and attributes of files take, by who owns the branches.
    pub held: Holdings,
}

impl Catalog {
    /// Returns a branch, or the error that it is gone.
    pub fn branch(&self, id: BranchId) -> Result<&Branch, Error> {
        self.branches.get(&id).map(|branch| &**branch).ok_or_else(Error::gone)
    }

    /// Returns a branch to hold on to, or the error that it is gone.
    pub fn branch_ref(&self, id: BranchId) -> Result<&BranchRef, Error> {
        self.branches.get(&id).ok_or_else(Error::gone)
    }

    /// Changes a branch, if it is there.
    pub fn change(&mut self, id: BranchId, change: impl FnOnce(&mut Branch)) {
        if let Some(branch) = self.branches.get_mut(&id) {
            change(branch.make_mut());
        }
    }

    /// Returns a branch's parent; the error says that a root branch has none.
    pub fn parent(&self, branch: &Branch) -> Result<&Branch, Error> {
        let id = branch.parent.ok_or_else(|| {
            let message = format!("{} is a root branch and has no parent", branch.name);
            Error::new(Kind::Invalid, "no_parent", message, "merge, promote and pull are for branches under branches/")
        })?;
        self.branch(id)
    }

    /// Returns the settings that all branches below a root branch share.
    pub fn shared_settings(&self, branch: &Branch) -> Result<&Settings, Error> {
        Ok(&self.branch(branch.root)?.settings)
    }

    /// Returns a setting's value as the branch shows it.
    pub fn setting(&self, branch: &Branch, setting: Setting) -> Result<Arc<str>, Error> {
        let settings = if setting.is_shared() { self.shared_settings(branch)? } else { &branch.settings };
        let value = settings.get(setting);
        if setting == Setting::Agent && value.is_empty() {
            return Ok(self.user(branch.uid));
        }
        Ok(value.clone())
    }

    /// Returns the name that a uid's entries carry.
    pub fn user(&self, uid: u32) -> Arc<str> {
        self.users.get(&uid).cloned().unwrap_or_else(|| format!("uid-{uid}").into())
    }

    /// Returns the branch at a name path.
    pub fn resolve(&self, path: &str) -> Result<BranchId, Error> {
        let mut names = path.split('/');
        let root = names.next().and_then(|name| self.roots.get(name));
        let mut id = *root.ok_or_else(|| Error::no_branch(path))?;
        for name in names {
            id = *self.branch(id)?.children.get(name).ok_or_else(|| Error::no_branch(path))?;
        }
        Ok(id)
    }

    /// Returns the number of branches above a branch.
    pub fn depth(&self, branch: &Branch) -> u64 {
        let mut depth = 0;
        let mut at = branch;
        while let Some(parent) = at.parent.and_then(|id| self.branches.get(&id)) {
            depth += 1;
            at = parent;
        }
        depth
    }
}

impl Catalog {
    /// Carries out the steps of an entry about `branch` with that `seq` and time.
    pub fn apply(&mut self, branch: BranchId, steps: Vec<CatalogChange>, seq: u64, time: Time) {
        steps.into_iter().for_each(|step| self.step(step, seq, time));
        self.touch(branch, seq, |_| ());
    }

    fn step(&mut self, step: CatalogChange, seq: u64, time: Time) {
        match step {
            CatalogChange::Add(branch) => self.add(*branch, seq),
            CatalogChange::Remove(id) => self.remove(id, seq),
            CatalogChange::User(uid, name) => {
                self.users.insert(uid, name);
            }
            CatalogChange::State(id, state) => self.touch_counted(id, seq, |branch| {
                branch.state = state;
                branch.state_seq = seq;
                branch.changed = time;
            }),
            CatalogChange::Base(id, base) => self.touch_counted(id, seq, |branch| {
                branch.base = base;
                branch.base_seq = seq;
            }),
            CatalogChange::Keep(id, kept) => self.touch(id, seq, |branch| branch.keep(kept)),
            CatalogChange::Checkpoint(id, label, checkpoint) => self.touch(id, seq, |branch| {
                branch.checkpoints.insert(label, Checkpoint { seq, ..checkpoint });
            }),
            CatalogChange::Uncheckpoint(id, label) => self.touch(id, seq, |branch| {
                branch.checkpoints.remove(&label);
            }),
            CatalogChange::Clock(now) => self.follow_clock(now),
            CatalogChange::Rename(id, name) => self.rename(id, name, seq),
            CatalogChange::Set(id, setting, value) => {
                self.touch(id, seq, |branch| branch.settings = branch.settings.with(setting, &value));
            }
            CatalogChange::Fix(id) => self.touch(id, seq, |branch| branch.vectors_fixed = true),
            CatalogChange::Mode(id, mode) => self.touch(id, seq, |branch| branch.mode = mode),
            CatalogChange::Resolve(id, item, resolution) => self.touch(id, seq, |branch| {
                branch.resolutions.insert(item, resolution);
            }),
        }
    }

    /// Has nothing be left or changed in the future.
    fn follow_clock(&mut self, now: Time) {
        let is_ahead = |branch: &&BranchRef| branch.changed > now || branch.kept.values().any(|kept| kept.time > now);
        let ahead: Vec<BranchId> = self.branches.values().filter(is_ahead).map(|branch| branch.id).collect();
        for id in ahead {
            self.change(id, |branch| {
                branch.changed = branch.changed.min(now);
                let kept = branch
                    .kept
                    .iter()
                    .map(|(head, kept)| (*head, RetainedState { time: kept.time.min(now), ..kept.clone() }));
                branch.kept = kept.collect();
            });
        }
    }

    fn touch(&mut self, id: BranchId, seq: u64, change: impl FnOnce(&mut Branch)) {
        if let Some(branch) = self.branches.get_mut(&id) {
            let branch = branch.make_mut();
            branch.stamp = seq;
            change(branch);
        }
    }

    /// As [`Catalog::touch`], for what may change how much a branch takes up.
    fn touch_counted(&mut self, id: BranchId, seq: u64, change: impl FnOnce(&mut Branch)) {
        let before = self.branches.get(&id).map_or(0, |branch| files_held(branch));
        self.touch(id, seq, change);
        if let Some(branch) = self.branches.get(&id) {
            self.held.replace(branch.uid, before, files_held(branch));
        }
    }

    fn add(&mut self, branch: Branch, seq: u64) {
        self.held.replace(branch.uid, 0, files_held(&branch));
        match branch.parent {
            None => {
                self.roots.insert(branch.name.clone(), branch.id);
            }
            Some(parent) => self.touch(parent, seq, |parent| {
                parent.children.insert(branch.name.clone(), branch.id);
            }),
        }
        self.branches.insert(branch.id, BranchRef::new(branch));
    }

    fn remove(&mut self, id: BranchId, seq: u64) {
        let Some(branch) = self.branches.remove(&id) else { return };
        self.held.replace(branch.uid, files_held(&branch), 0);
        match branch.parent {
            None => {
                self.roots.remove(&branch.name);
            }
            Some(parent) => self.touch(parent, seq, |parent| {
                parent.children.remove(&branch.name);
            }),
        }
    }

    fn rename(&mut self, id: BranchId, name: Arc<str>, seq: u64) {
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let branch = branch.make_mut();
        let old = std::mem::replace(&mut branch.name, name.clone());
        branch.stamp = seq;
        if let Some(parent) = branch.parent {
            self.touch(parent, seq, |parent| {
                parent.children.remove(&old);
                parent.children.insert(name, id);
            });
        }
        self.lay_paths(id);
    }

    /// Works out the paths of a branch and of all below it, after a name on the way changed.
    pub(super) fn lay_paths(&mut self, top: BranchId) {
        let mut left = vec![top];
        while let Some(id) = left.pop() {
            let Some(branch) = self.branches.get(&id) else { continue };
            let path =
                name_path(branch.parent.and_then(|id| self.branches.get(&id)).map(|parent| &**parent), &branch.name);
            left.extend(branch.children.values());
            if let Some(branch) = self.branches.get_mut(&id) {
                branch.make_mut().path = path;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_is_in_the_paths_of_all_below_it() {
        let mut catalog = Catalog::default();
        for (id, name, parent) in
            [(1, "main", None), (2, "a", Some(1)), (3, "b", Some(2)), (4, "d", Some(3)), (5, "e", Some(1))]
        {
            let parent = parent.and_then(|id| catalog.branches.get(&BranchId(id)).cloned());
            let branch = Branch::new(
                BranchId(id),
                name.into(),
                parent.as_deref(),
                Arc::new(BranchVersion::default()),
                0,
                Time(0),
            );
            catalog.add(branch, id);
        }
        let paths =
            |catalog: &Catalog| (1..6).map(|id| catalog.branches[&BranchId(id)].path.to_string()).collect::<Vec<_>>();
        assert_eq!(paths(&catalog), ["main", "main/a", "main/a/b", "main/a/b/d", "main/e"]);
        let before = catalog.clone();
        catalog.rename(BranchId(2), "c".into(), 6);
        assert_eq!(paths(&catalog), ["main", "main/c", "main/c/b", "main/c/b/d", "main/e"]);
        assert_eq!(paths(&before)[3], "main/a/b/d", "an earlier world stays as it was");
        assert_eq!(catalog.resolve("main/c/b/d").ok(), Some(BranchId(4)));
    }
}
