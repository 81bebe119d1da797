//! What the mount keeps in RAM for a branch.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::errors::ErrorLog;
use super::kernel_notifier::WakeCall;
use super::temporary::Temporaries;
use crate::memory::BranchId;
use crate::sync::Mutex;

/// The state of a branch that is in RAM alone: refusals, temporaries and who waits. It ends with the mount or the
/// branch, whichever is first.
#[derive(Default)]
pub(super) struct MountBranchState {
    /// What was refused last in the branch, as `errors` shows it.
    pub errors: ErrorLog,
    /// Files in `vectors/` that are no records yet.
    pub temporaries: Temporaries,
    wake_calls: Mutex<HashMap<u64, WakeCall>>,
    is_gone: AtomicBool,
}

impl MountBranchState {
    /// Runs `call` at the branch's next change; a later one of the same handle takes its place.
    pub fn add_wake_call(&self, handle: u64, call: WakeCall) {
        self.wake_calls.lock().insert(handle, call);
    }

    /// Takes back the call of a handle that nobody waits with any longer; one that was made is gone already.
    pub fn remove_wake_call(&self, handle: u64) {
        self.wake_calls.lock().remove(&handle);
    }

    /// Takes out the calls that wake all who wait: each is made once.
    pub fn take_wake_calls(&self) -> Vec<WakeCall> {
        self.wake_calls.lock().drain().map(|(_, call)| call).collect()
    }

    /// Returns whether the branch was merged or discarded; it stays so for ever.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}

/// The states of all branches that were touched since the mount.
#[derive(Default)]
pub(super) struct MountBranchStates {
    states: Mutex<HashMap<BranchId, Arc<MountBranchState>>>,
}

impl MountBranchStates {
    /// Returns the state of a branch, made when there is none.
    pub fn get_or_insert(&self, branch: BranchId) -> Arc<MountBranchState> {
        self.states.lock().entry(branch).or_default().clone()
    }

    /// Returns the state of a branch where there is one.
    pub fn get(&self, branch: BranchId) -> Option<Arc<MountBranchState>> {
        self.states.lock().get(&branch).cloned()
    }

    /// Returns all branches that were touched, with their states.
    pub fn list(&self) -> Vec<(BranchId, Arc<MountBranchState>)> {
        self.states.lock().iter().map(|(branch, state)| (*branch, state.clone())).collect()
    }

    /// Ends a branch: open handles find it gone, everything else is dropped with the last of them.
    pub fn forget(&self, branch: BranchId) {
        if let Some(state) = self.states.lock().remove(&branch) {
            state.is_gone.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buried_branch_is_gone_for_those_who_hold_it() {
        let states = MountBranchStates::default();
        let state = states.get_or_insert(BranchId(1));
        states.forget(BranchId(1));
        assert!(state.is_gone());
        assert!(!states.get_or_insert(BranchId(1)).is_gone());
    }
}
