//! What a purge tells of what it took out.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::purge_search::PurgeSearch;
use crate::memory::catalog::{Branch, BranchId, Catalog};
use crate::memory::merging::purge::PurgePlan;
use crate::memory::{Actor, Error, Memory};
use crate::object::Hash;

/// What went so far, in all rounds of one purge.
#[derive(Default)]
pub(super) struct PurgeReport {
    /// Each id, or path with `files/` in front, with the hash of the version that went.
    pub versions: BTreeSet<(Arc<str>, Hash)>,
    /// Name paths of the branches that had something, now or earlier.
    pub branches: BTreeSet<Arc<str>>,
    /// Names of copies that stay, in branches that the caller may read.
    pub copies: BTreeSet<Arc<str>>,
    /// Names that no state had or ever had, as they were given.
    pub not_found: Vec<Arc<str>>,
    /// The purge's own entry; `None` if nothing went, and where it was only tried.
    pub entry: Option<Hash>,
}

impl PurgeReport {
    /// Returns the report of a purge that took nothing: no state had any of these.
    pub fn from_not_found(not_found: Vec<Arc<str>>) -> PurgeReport {
        PurgeReport { not_found, ..PurgeReport::default() }
    }

    /// Lists the copies under other names, in branches that the caller may read. Fails with `Gone` if the branch has
    /// ended, and with kind `Io` or `Damaged` if a state can't be read.
    pub fn look_for_copies(
        &mut self,
        memory: &Memory,
        who: &Actor,
        branch: BranchId,
        search: &PurgeSearch,
    ) -> Result<(), Error> {
        let catalog = memory.catalog().clone();
        let is_privileged = memory.is_privileged(who, &catalog);
        // A copy is told of only where the caller may look; its existence elsewhere is nobody else's business.
        let is_own = |seen: &Branch| is_privileged || catalog.owner_uid(seen) == who.uid;
        let seen = catalog.branches.iter().filter(|(id, seen)| is_own(seen) || **id == branch);
        let seen = Catalog { branches: seen.map(|(id, seen)| (*id, seen.clone())).collect(), ..Catalog::default() };
        let copies = PurgePlan::new(branch, Arc::new(search.copies()), memory.now()).find_affected(&seen)?.versions;
        self.copies = copies.into_iter().filter(|copy| !self.versions.contains(copy)).map(|(item, _)| item).collect();
        Ok(())
    }

    /// Returns the report as the caller is given it: `versions` is how many go, `items` their ids and paths, each once;
    /// `branches`, `copies` and `not_found` are lists of names, and `entry` the entry's hash, null if none was made.
    pub fn to_json(&self, dry_run: bool) -> Value {
        let names =
            |names: &mut dyn Iterator<Item = &Arc<str>>| names.map(|name| Value::from(&**name)).collect::<Value>();
        let items: BTreeSet<&str> = self.versions.iter().map(|(item, _)| &**item).collect();
        let branches: Vec<&str> = self.branches.iter().map(|path| &**path).collect();
        json!({
            "versions": self.versions.len(), "items": items, "branches": branches, "copies": names(&mut self.copies.iter()),
            "not_found": names(&mut self.not_found.iter()), "dry_run": dry_run, "entry": self.entry.map(|entry| entry.to_string()),
        })
    }
}
