//! Signals that are purged. They are in no state and no entry: what one said goes from memory, and its bytes from the disk.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::purge::{PurgeOptions, Running, nothing_found};
use super::purge_report::PurgeReport;
use crate::memory::catalog::BranchId;
use crate::memory::{Actor, Error, Kind, Memory};

/// What the names of signals begin with, as their paths do.
const PREFIX: &str = "shared/signals/";

/// Tells whether a name is that of a signal.
pub(super) fn is_signal(item: &str) -> bool {
    item.strip_prefix(PREFIX).is_some_and(|key| !key.is_empty())
}

impl Memory {
    /// Purges signals, named as `shared/signals/KEY`, with the other items. Fails with `PurgeError::NothingFound` where
    /// none of all items is there, and as a purge of the other items does.
    pub(super) fn purge_with_signals(
        &self,
        who: &Actor,
        branch: BranchId,
        (signals, items): (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>),
        options: PurgeOptions,
    ) -> Result<Value, Error> {
        // The others first: their rights are checked by that, before any signal goes.
        let mut report = self.purge_others(who, branch, items, options)?;
        // Before a signal goes: where another purge runs, this one is refused and nothing has changed.
        let running = || Running::begin(&self.maintenance.purge.is_running);
        let _running = if options.dry_run { None } else { Some(running()?) };
        let (mut gone, mut missing) = (Vec::new(), Vec::new());
        for item in signals {
            let is_gone = self.take_signal(who, branch, &item, options)?;
            if is_gone { gone.push(item) } else { missing.push(item) }
        }
        if !options.dry_run {
            let owner = {
                let catalog = self.catalog();
                catalog.log_owner(catalog.branch(branch)?)?.id
            };
            // The lines of events in memory show values of signals, so they go, too.
            self.events.drop_lines(owner);
            let catalog = self.catalog().clone();
            self.drop_dead_bytes(&catalog)?;
        }
        extend(&mut report["items"], &gone);
        extend(&mut report["not_found"], &missing);
        if report["items"].as_array().is_some_and(Vec::is_empty) {
            return Err(nothing_found(&missing));
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
        let nothing = PurgeReport::of_missing(items.iter().cloned().collect()).to_json(options.dry_run);
        if items.is_empty() {
            return Ok(nothing);
        }
        match self.purge_states(who, branch, items, options) {
            Err(error) if error.kind() == Kind::NotFound => Ok(nothing),
            purged => purged,
        }
    }

    /// Removes a signal, unless that is just tried; returns whether it is there.
    fn take_signal(&self, who: &Actor, branch: BranchId, item: &str, options: PurgeOptions) -> Result<bool, Error> {
        let key: Arc<str> = item.strip_prefix(PREFIX).unwrap_or_default().into();
        if options.dry_run {
            return Ok(self.signal(branch, &key)?.is_some());
        }
        match self.remove_signal(who, branch, &key) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
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
            let options = PurgeOptions { dry_run: false, copies: false };
            memory.purge(&who, main, &["shared/signals/tea".into()], options)
        };
        let running = Running::begin(&memory.maintenance.purge.is_running).unwrap();
        assert_eq!(purge().unwrap_err().code(), "purge_running");
        assert!(memory.signal(main, "tea").unwrap().is_some());
        drop(running);
        purge().unwrap();
        assert!(memory.signal(main, "tea").unwrap().is_none());
    }
}
