//! What the agents below a branch have beside records and files, as a dump takes it out of a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::snapshot::Snapshot;
use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::signals::{Signal, SignalLifetime};
use crate::memory::catalog::{BranchId, LeaseState};
use crate::memory::{Error, Memory};
use crate::object::Time;

/// The settings of a branch as they are stored: one that nobody has set has its default value.
pub struct StoredSettings {
    /// In the order of [`Setting::ALL`].
    pub values: Vec<(Setting, Arc<str>)>,
    /// Whether the rules came from a parent: they say nothing of writes to the branch itself.
    pub inherits_rules: bool,
}

/// The signals of a branch's own shared log that have not ended.
pub struct OwnSignals {
    /// By key, those that end with no lease: a lease can't be taken over.
    pub signals: Vec<(Arc<str>, Arc<Signal>)>,
    /// How many end with a lease, and are not among them.
    pub leased: u64,
}

/// The frozen state that a branch proposes, for an export.
pub struct ProposedState {
    /// The state of the branch when it was proposed; later edits are not in it.
    pub state: Snapshot,
    /// The base of the branch at that time; a merge compares with it.
    pub base: Snapshot,
    /// When it was proposed: the time of that entry.
    pub time: Time,
    /// What the proposer said about it; may be empty.
    pub text: Arc<str>,
    /// How many approvers said something of it.
    pub reviews: usize,
}

impl Memory {
    /// Returns the name that entries have for each uid, in order of uids: the first one that the store saw, or an
    /// imported one.
    pub fn users(&self) -> Vec<(u32, Arc<str>)> {
        self.catalog().users.iter().map(|(uid, name)| (*uid, name.clone())).collect()
    }

    /// Returns the names of agents below the root branch of a branch. Each maps to the uid that may use it, or to
    /// `None` if it is barred. Fails only with `Gone`, if the branch has ended.
    pub fn agents(&self, branch: BranchId) -> Result<BTreeMap<Arc<str>, Option<u32>>, Error> {
        let catalog = self.catalog();
        let root = catalog.branch(catalog.branch(branch)?.root)?;
        let holder = |holder: &AgentHolder| if let AgentHolder::User(uid) = holder { Some(*uid) } else { None };
        Ok(root.agents.iter().map(|(name, known)| (name.clone(), holder(known))).collect())
    }

    /// Returns the settings of a branch in the order of [`Setting::ALL`]; shared ones have the value of the root
    /// branch. Fails only with `Gone`, if the branch has ended.
    pub fn stored_settings(&self, branch: BranchId) -> Result<StoredSettings, Error> {
        let catalog = self.catalog();
        let branch = catalog.branch(branch)?;
        let value = |setting: Setting| match setting {
            // The stored value: the name in effect also depends on who holds it in other branches.
            Setting::Agent => Ok((setting, branch.settings.get(setting).clone())),
            _ => Ok((setting, catalog.setting(branch, setting)?)),
        };
        let values = Setting::ALL.into_iter().map(value).collect::<Result<_, Error>>()?;
        Ok(StoredSettings { values, inherits_rules: branch.settings.has_inherited_rules() })
    }

    /// Returns the number of the last entry that a branch's shared log had when the branch got its base: entries count from
    /// 1, and 0 stands for an empty log. Fails only with `Gone`, if the branch has ended.
    pub fn log_at_base(&self, branch: BranchId) -> Result<u64, Error> {
        Ok(self.catalog().branch(branch)?.log_at_base)
    }

    /// Returns the proposal of a branch; `None` if it proposes nothing. Fails only with `Gone`, if the branch has
    /// ended.
    pub fn proposed_state(&self, branch: BranchId) -> Result<Option<ProposedState>, Error> {
        let catalog = self.catalog();
        let proposal = catalog.branch(branch)?.proposal.as_ref();
        Ok(proposal.map(|proposal| ProposedState {
            state: Snapshot::new(proposal.frozen.state.clone()),
            base: Snapshot::new(proposal.frozen.base.clone()),
            time: proposal.frozen.time,
            text: proposal.frozen.text.clone(),
            reviews: proposal.reviews.len(),
        }))
    }

    /// Returns the signals of the shared log that a branch owns. Those that end with a lease are only counted, as no
    /// other store could hold the lease. Fails only with `Gone`, if the branch has ended.
    pub fn own_signals(&self, branch: BranchId) -> Result<OwnSignals, Error> {
        let catalog = self.catalog().clone();
        let now = self.now();
        let signals = &catalog.branch(branch)?.signals;
        let is_leased = |signal: &Signal| matches!(signal.lifetime, SignalLifetime::Lease(_));
        let is_held = |signal: &Signal| {
            let publisher = catalog.branches.get(&signal.publisher.branch);
            publisher.is_some_and(|publisher| publisher.lease == LeaseState::Held)
        };
        let leased = signals.values().filter(|signal| is_leased(signal) && is_held(signal)).count();
        let live = signals.iter().filter(|(_, signal)| !is_leased(signal) && self.is_live(signal, now));
        let signals = live.map(|(key, signal)| (key.clone(), signal.clone())).collect();
        Ok(OwnSignals { signals, leased: leased as u64 })
    }
}
