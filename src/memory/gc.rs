//! Letting go of what nobody needs: expired branches, states past `config/keep`, unreachable segments.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::act::Deed;
use super::moves::Fold;
use super::settings::Setting;
use super::world::{Branch, BranchId, World};
use super::{Actor, Error, Memory, seal};
use crate::object::{Hash, Time};

impl Memory {
    /// Collects garbage and returns what went, or with `dry_run` what would go.
    ///
    /// A branch goes when its `config/ttl` has run out, and an empty `ttl` never does; with
    /// `older_than`, only those that were not written for at least so long.
    pub fn gc(&self, who: &Actor, older_than: Option<Duration>, dry_run: bool) -> Result<Value, Error> {
        let now = self.now();
        let expired = self.expired(now, older_than);
        let paths: Vec<String> = {
            let world = self.world();
            let branch = |id: &BranchId| world.branches.get(id).map(|branch| branch.path.to_string());
            expired.iter().filter_map(branch).collect()
        };
        if dry_run {
            let states = self.world().branches.values().map(|branch| outdated(branch, now).count()).sum::<usize>();
            let (files, bytes) = (self.expire_files(true)?, self.unreachable_bytes()?);
            return Ok(json!({ "dry_run": true, "branches": paths, "states": states, "files": files, "bytes": bytes }));
        }
        for branch in &expired {
            self.act(who, &[Some(*branch)], || Ok(Deed::Discard(*branch)))?;
        }
        let files = self.expire_files(false)?;
        let _one = self.sealing.lock();
        let states = self.drop_outdated(now);
        let sealed = self.seal_alone(Fold::Small)?;
        let bytes = self.sweep(&sealed)?;
        Ok(json!({ "dry_run": false, "branches": paths, "states": states, "files": files, "bytes": bytes }))
    }

    /// Returns expired branches, children before their parents.
    fn expired(&self, now: Time, older_than: Option<Duration>) -> Vec<BranchId> {
        let world = self.world();
        let least = older_than.map_or(0, |age| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
        let is_expired = |branch: &Branch| {
            let age = now.0 - branch.changed.0;
            branch.settings.duration(Setting::Ttl).is_some_and(|ttl| age >= ttl) && age >= least
        };
        let branches = world.branches.values().map(|branch| &**branch);
        let mut chosen: Vec<&Branch> =
            branches.filter(|branch| branch.parent.is_some() && is_expired(branch)).collect();
        chosen.sort_by_key(|branch| std::cmp::Reverse((world.depth(branch), branch.id)));
        let mut gone = HashSet::new();
        for branch in chosen {
            // A living child keeps its parent.
            if branch.children.values().all(|child| gone.contains(child)) {
                gone.insert(branch.id);
            }
        }
        let mut order: Vec<BranchId> = gone.into_iter().collect();
        order.sort_by_key(|id| std::cmp::Reverse(world.branches.get(id).map(|branch| world.depth(branch))));
        order
    }

    fn drop_outdated(&self, now: Time) -> usize {
        let mut world = self.world.write();
        let mut dropped = 0;
        world.each_branch(|branch| {
            let before = branch.kept.len();
            let keep = branch.settings.duration(Setting::Keep).unwrap_or(i64::MAX);
            branch.kept.retain(|kept| now.0 - kept.time.0 < keep);
            dropped += before - branch.kept.len();
        });
        dropped
    }

    /// Removes the files that nothing reaches. Called by who holds `sealing`, with the world that the manifest names:
    /// what went out of use since then is needed still, by an opening after a crash.
    pub(super) fn sweep(&self, sealed: &World) -> Result<u64, Error> {
        let live = || {
            let mut live = self.live_files();
            live.extend(live_files(sealed));
            self.segments.retain(&live);
            self.trees.retain_packs(&live);
            live
        };
        self.segments.shelf.sweep(live).map_err(|error| Error::io("unreachable segments could not be removed", &error))
    }

    /// Returns the names of all files on the shelf that are needed.
    pub(super) fn live_files(&self) -> HashSet<Hash> {
        let mut live = live_files(&self.world());
        live.extend(self.history.read().archives.iter().map(|archive| archive.name));
        live.extend(self.trees.snapshots());
        live.extend(self.named.lock().iter());
        live
    }

    fn unreachable_bytes(&self) -> Result<u64, Error> {
        let strangers = self.segments.shelf.strangers(&self.live_files());
        let strangers = strangers.map_err(|error| Error::io("the segments' folder could not be read", &error))?;
        let length =
            |name: &String| self.disk.open(&format!("{}/{name}", crate::segment::FOLDER)).and_then(|file| file.len());
        Ok(strangers.iter().filter_map(|name| length(name).ok()).sum())
    }
}

/// Returns the names of all segments that a world needs.
pub(super) fn live_files(world: &World) -> HashSet<Hash> {
    seal::segments_of(world)
}

fn outdated(branch: &Branch, now: Time) -> impl Iterator<Item = &Arc<crate::branch::State>> {
    let keep = branch.settings.duration(Setting::Keep).unwrap_or(i64::MAX);
    branch.kept.iter().filter(move |kept| now.0 - kept.time.0 >= keep).map(|kept| &kept.state)
}
