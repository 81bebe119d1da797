//! What exists: branches with their versions, settings and checkpoints, at one moment.
//!
//! A clone of the [`Catalog`] costs the same whatever it holds; readers keep one, the writer swaps in the next.

pub mod agents;
mod branch;
mod branch_files;
mod branch_numbers;
mod change;
mod embedder_record;
mod proposal;
mod quota;
mod reachable;
mod retained;
mod revision;
pub mod settings;
pub mod shared_log;
pub mod signals;
mod view;

use std::sync::Arc;

use imbl::OrdMap;

use crate::memory::{BranchError, Error};
use crate::object::Hash;
use branch_files::BytesByUser;
use settings::{Setting, Settings};
use shared_log::OWN_LOG;

pub use branch::{Branch, BranchId, BranchRef, Checkpoint, LeaseState, Resolution, ResolvedSource, StateSource};
pub(in crate::memory) use branch::{log_owner, name_path};
pub(in crate::memory) use branch_files::{OrphanFile, with_owner, without_orphans};
pub use branch_numbers::{BRANCH_NUMBERS, BranchNumbers};
pub use change::CatalogChange;
pub(in crate::memory) use embedder_record::EmbedderRecord;
pub use proposal::{Proposal, Review};
pub(in crate::memory) use quota::Quota;
pub(in crate::memory) use reachable::{for_each_branch_state, for_each_state, reachable_blobs};
pub(in crate::memory) use retained::{EndedBranch, NEWEST_STATES_KEPT, RecentState, RetainedStates};
pub use revision::{Revision, RevisionPoint, check_label};
pub(in crate::memory) use view::ResolvedView;
pub use view::View;

/// Branches by id, including those that hold the entries of logs.
pub type Branches = OrdMap<BranchId, BranchRef>;

/// All branches, and what entries of all kinds refer to. A clone costs the same whatever it holds.
#[derive(Clone, Default)]
pub struct Catalog {
    /// Every living branch, and the branches that hold the entries of their logs.
    pub branches: Branches,
    /// The root branches by name, with which every name path begins.
    pub roots: OrdMap<Arc<str>, BranchId>,
    /// The name that each uid's entries carry: the first that the store saw, unless an import brought another.
    pub users: OrdMap<u32, Arc<str>>,
    /// Bytes of memory that names and attributes of files take beyond those of the bases, by who owns the branches.
    pub metadata_bytes: BytesByUser,
    /// Bytes of memory that signals take, by the owners of the signals, who need not own the branch.
    pub signal_bytes: BytesByUser,
    /// The small numbers of the living branches, and which one comes next.
    pub numbers: BranchNumbers,
    /// Where the lineage begins: after the last entry that was moved out.
    pub start: LineageStart,
    /// Earlier states of branches, and branches that have ended and can be brought back.
    pub retained: RetainedStates,
    /// How often compaction or a purge has rewritten sealed rows, chunks or earlier states since the store was opened. A state
    /// that was made of states of an earlier count may name files that are gone, or hold what was purged.
    pub rewrite_count: u64,
}

/// The first entry that the store holds. Earlier ones were archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineageStart {
    /// Its number; 1 where none was moved out.
    pub first_seq: u64,
    /// Hash of the entry before it, its `prev`; zeros for none.
    pub prev: Hash,
}

impl Default for LineageStart {
    fn default() -> LineageStart {
        LineageStart { first_seq: 1, prev: Hash::ZERO }
    }
}

impl Catalog {
    /// Returns a branch; [`Error::Gone`] if none that lives has that id.
    pub fn branch(&self, id: BranchId) -> Result<&Branch, Error> {
        self.branches.get(&id).map(|branch| &**branch).ok_or(Error::Gone)
    }

    /// Returns the state of a source, for a branch that goes back to it or is forked from it. [`Error::NoCheckpoint`]
    /// or [`Error::NotKept`] if it is not there; else fails like [`Catalog::retained_state`].
    pub fn resolve_source(&self, branch: &Branch, source: &StateSource) -> Result<ResolvedSource, Error> {
        match source {
            StateSource::Checkpoint(label) => {
                let Checkpoint { state, base, seq, cursor, .. } = branch.checkpoint(label)?;
                Ok(ResolvedSource { state: state.clone(), base: base.clone(), source_seq: *seq, cursor: Some(*cursor) })
            }
            StateSource::Entry(entry) if *entry == branch.state_entry => {
                let (state, base) = (without_orphans(&branch.state), branch.base.clone());
                Ok(ResolvedSource { state, base, source_seq: *entry, cursor: None })
            }
            StateSource::Entry(entry) => match self.retained_state(branch.id, branch.uid, *entry) {
                // The entry of a checkpoint gave the branch no other state, so that none is retained by its number.
                Err(Error::NotKept(_)) if let Some((_, checkpoint)) = branch.checkpoint_at(*entry) => {
                    let (state, base) = (checkpoint.state.clone(), checkpoint.base.clone());
                    Ok(ResolvedSource { state, base, source_seq: *entry, cursor: None })
                }
                found => found,
            },
            StateSource::Ended(entry) => {
                let ended = self.retained.ended.get(entry).ok_or_else(|| Error::NotKept(entry.to_string()))?;
                self.retained_state(ended.id, ended.uid, ended.last_entry)
            }
        }
    }

    /// Returns what a branch was behind an entry, with files as its present owner has them. [`Error::NotKept`] if that
    /// is gone; kind `Io` or `Damaged` if the file of states that has it can't be read.
    pub fn retained_state(&self, branch: BranchId, owner: u32, entry: u64) -> Result<ResolvedSource, Error> {
        let found = self.retained.find(branch, entry)?.ok_or_else(|| Error::NotKept(entry.to_string()))?;
        let state = with_owner(&found.state, found.owner, owner);
        Ok(ResolvedSource { state, base: found.base, source_seq: entry, cursor: None })
    }

    /// Returns a branch as a reference that outlasts this version of the catalog. [`Error::Gone`] as for
    /// [`Catalog::branch`].
    pub fn branch_ref(&self, id: BranchId) -> Result<&BranchRef, Error> {
        self.branches.get(&id).ok_or(Error::Gone)
    }

    /// Changes a branch, if it is there. Its `last_entry_seq` and what its files take up stay as they were: [`Catalog::apply`]
    /// sees to those.
    pub fn change(&mut self, id: BranchId, change: impl FnOnce(&mut Branch)) {
        if let Some(branch) = self.branches.get_mut(&id) {
            change(branch.make_mut());
        }
    }

    /// Returns a branch's parent; [`BranchError::NoParent`] for a root branch.
    pub fn parent(&self, branch: &Branch) -> Result<&Branch, Error> {
        let id = branch.parent.ok_or_else(|| BranchError::NoParent(branch.name.to_string()))?;
        self.branch(id)
    }

    /// Returns the settings that all branches below a root branch share. [`Error::Gone`] if its root branch is not in
    /// this version of the catalog.
    pub fn shared_settings(&self, branch: &Branch) -> Result<&Settings, Error> {
        Ok(&self.branch(branch.root)?.settings)
    }

    /// Returns the recorded embedder of all branches below a root branch, without its probes; `None` if no mount has
    /// recorded one. [`Error::Gone`] as in [`Catalog::shared_settings`].
    pub fn embedder(&self, branch: &Branch) -> Result<Option<EmbedderRecord>, Error> {
        Ok(EmbedderRecord::parse_without_probes(self.shared_settings(branch)?.get(Setting::Embedder)))
    }

    /// Returns a setting's value as the branch shows it, without a line end, empty if it is unset. [`Error::Gone`] as
    /// in [`Catalog::shared_settings`].
    pub fn setting(&self, branch: &Branch, setting: Setting) -> Result<Arc<str>, Error> {
        let settings = if setting.is_shared() { self.shared_settings(branch)? } else { &branch.settings };
        let value = settings.get(setting);
        if setting == Setting::Agent {
            return Ok(self.agent(branch, branch.uid));
        }
        if setting == Setting::Log && branch.parent.is_none() {
            return Ok(OWN_LOG.into());
        }
        if setting == Setting::Embedder {
            return Ok(EmbedderRecord::parse_without_probes(value)
                .map_or_else(|| "".into(), |record| record.describe().into()));
        }
        Ok(value.clone())
    }

    /// Returns the name that a uid's entries carry; `uid-N` where the store has not seen it.
    pub fn user(&self, uid: u32) -> Arc<str> {
        self.users.get(&uid).cloned().unwrap_or_else(|| format!("uid-{uid}").into())
    }

    /// Returns the branch at a name path. Names are joined by `/`, the root branch first. [`Error::NoBranch`] if one of
    /// them is not there.
    pub fn resolve(&self, path: &str) -> Result<BranchId, Error> {
        let mut names = path.split('/');
        let root = names.next().and_then(|name| self.roots.get(name));
        let mut id = *root.ok_or_else(|| Error::NoBranch(path.to_owned()))?;
        for name in names {
            id = *self.branch(id)?.children.get(name).ok_or_else(|| Error::NoBranch(path.to_owned()))?;
        }
        Ok(id)
    }

    /// Returns the number of branches above a branch, 0 for a root branch.
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
