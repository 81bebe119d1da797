//! Signals that are purged. They are in no state and no entry: what one said goes from memory, and its bytes from the disk.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::purge::{PurgeGuard, PurgeOptions, nothing_found_error};
use super::purge_report::PurgeReport;
use crate::memory::catalog::BranchId;
use crate::memory::{Actor, Error, Kind, Memory, PurgeError};

/// What the names of signals begin with, as their paths do.
const PREFIX: &str = "shared/signals/";

/// Returns whether a name is that of a signal: the prefix, and something behind it.
pub(super) fn is_signal(item: &str) -> bool {
    item.strip_prefix(PREFIX).is_some_and(|key| !key.is_empty())
}

impl Memory {
    /// Purges signals, named as `shared/signals/KEY`, with the other items. Fails with `PurgeError::NothingFound` if
    /// none of all items is there, with `PurgeError::SignalNotOwner` for a signal of somebody else, before anything goes,
    /// and as a purge of the other items does.
    pub(super) fn purge_with_signals(
        &self,
        who: &Actor,
        branch: BranchId,
        (signals, items): (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>),
        options: PurgeOptions,
    ) -> Result<Value, Error> {
        // All rights are asked for before anything goes: neither half of a purge can be taken back.
        let [mut gone, mut missing] = self.signals_to_purge(who, branch, signals)?;
        let mut report = self.purge_others(who, branch, items, options)?;
        if !options.dry_run {
            // Before a signal goes: where another purge runs, this one is refused and no signal has gone.
            let _running = PurgeGuard::begin(&self.maintenance.purge.is_running)?;
            let removed = self.remove_signals(who, branch, gone);
            let catalog = self.catalog().clone();
            // The lines of events in memory show values of signals, so they go, too; also where one signal was refused.
            self.events.drop_lines(catalog.log_owner(catalog.branch(branch)?)?.id);
            self.drop_dead_bytes(&catalog)?;
            let [removed, ended] = removed?;
            gone = removed;
            missing.extend(ended);
        }
        extend(&mut report["items"], &gone);
        extend(&mut report["not_found"], &missing);
        if report["items"].as_array().is_some_and(Vec::is_empty) {
            return Err(nothing_found_error(&missing));
        }
        Ok(report)
    }

    /// Purges the items that are not signals; where none of them is found, the report says so.
    fn purge_others(
        &self,
        who: &Actor,
        branch: BranchId,
        items: BTreeSet<Arc<str>>,
        options: PurgeOptions,
    ) -> Result<Value, Error> {
        let nothing = PurgeReport::from_not_found(items.iter().cloned().collect()).to_json(options.dry_run);
        if items.is_empty() {
            return Ok(nothing);
        }
        match self.purge_states(who, branch, items, options) {
            Err(error) if error.kind() == Kind::NotFound => Ok(nothing),
            purged => purged,
        }
    }

    /// Returns which signals are there, and which are not. Fails with `PurgeError::SignalNotOwner` if one is somebody
    /// else's.
    fn signals_to_purge(
        &self,
        who: &Actor,
        branch: BranchId,
        items: BTreeSet<Arc<str>>,
    ) -> Result<[Vec<Arc<str>>; 2], Error> {
        let catalog = self.catalog().clone();
        let log_owner = catalog.log_owner(catalog.branch(branch)?)?;
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for item in items {
            match self.signal(branch, signal_key(&item))? {
                None => missing.push(item),
                Some(signal) if signal.can_be_purged_by(who.uid, log_owner.uid) => there.push(item),
                Some(_) => return Err(PurgeError::SignalNotOwner { path: log_owner.path.to_string() }.into()),
            }
        }
        Ok([there, missing])
    }

    /// Removes signals; returns those that it removed, and those that have ended since they were looked at. Fails like
    /// [`Memory::purge_signal`].
    fn remove_signals(&self, who: &Actor, branch: BranchId, items: Vec<Arc<str>>) -> Result<[Vec<Arc<str>>; 2], Error> {
        let (mut gone, mut ended) = (Vec::new(), Vec::new());
        for item in items {
            match self.purge_signal(who, branch, &signal_key(&item).into()) {
                Ok(()) => gone.push(item),
                Err(error) if error.kind() == Kind::NotFound => ended.push(item),
                Err(error) => return Err(error),
            }
        }
        Ok([gone, ended])
    }
}

fn signal_key(item: &str) -> &str {
    item.strip_prefix(PREFIX).unwrap_or_default()
}

fn extend(list: &mut Value, more: &[Arc<str>]) {
    if let Value::Array(list) = list {
        list.extend(more.iter().map(|item| Value::from(&**item)));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Environment, OpenMode};

    #[test]
    fn a_purge_that_is_refused_since_another_one_runs_leaves_the_signals() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who.clone())).unwrap();
        let main = memory.root("main").unwrap();
        memory.claim_signal(&who, main, &"tea".into(), 0o644).unwrap();
        let purge = || {
            let options = PurgeOptions { dry_run: false, with_copies: false };
            memory.purge(&who, main, &["shared/signals/tea".into()], options)
        };
        let running = PurgeGuard::begin(&memory.maintenance.purge.is_running).unwrap();
        assert_eq!(purge().unwrap_err().code(), "purge_running");
        assert!(memory.signal(main, "tea").unwrap().is_some());
        drop(running);
        purge().unwrap();
        assert!(memory.signal(main, "tea").unwrap().is_none());
    }
}
