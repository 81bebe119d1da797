//! The file `branches.jsonl`: the branches below one, how far ahead of their bases they are and how far behind their parents.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::documents::LeaseStatus;
use crate::branch::{BranchVersion, differences};
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{Branch, BranchId, Catalog};
use crate::memory::{Error, Memory};

/// What everybody may know of a branch who may enter its parent: what ls(1) shows.
#[derive(Serialize)]
struct RestrictedLine<'a> {
    name: &'a str,
    owner: u32,
    modified: String,
}

/// What those may know who may enter the branch, as a line of `branches.jsonl`.
#[derive(Serialize)]
struct BranchLine<'a> {
    name: &'a str,
    agent: &'a str,
    task: &'a str,
    owner: u32,
    modified: String,
    own_edits: u64,
    ahead: u64,
    behind: u64,
    lease: LeaseStatus,
    proposed: bool,
}

/// Counts what differs between two states; children forked at one moment share the work.
#[derive(Default)]
struct ChangeCounts(HashMap<[*const BranchVersion; 2], u64>);

impl ChangeCounts {
    /// Returns how many records and paths differ. The catalog of the caller keeps both states where they are.
    fn count_changes(&mut self, old: &Arc<BranchVersion>, new: &Arc<BranchVersion>) -> Result<u64, Error> {
        if Arc::ptr_eq(old, new) {
            return Ok(0);
        }
        let key = [Arc::as_ptr(old), Arc::as_ptr(new)];
        if let Some(count) = self.0.get(&key) {
            return Ok(*count);
        }
        let count = count_differences(old, new)?;
        self.0.insert(key, count);
        Ok(count)
    }
}

fn count_differences(old: &BranchVersion, new: &BranchVersion) -> Result<u64, Error> {
    let records = match old.totals().records {
        // Without a base every record is an edit; comparing might take long and would count the same.
        0 => new.totals().records,
        _ => differences(old, new)?.len() as u64,
    };
    let (old, new) = (old.files(), new.files());
    let paths = old.differences_from_empty(new).unwrap_or_else(|| old.differences(new).len() as u64);
    Ok(records + paths)
}

impl Memory {
    /// Returns the branches below one, at any depth, as JSON Lines: parents before children, siblings by name. Empty if
    /// there are none.
    ///
    /// If `may_enter` returns false for a branch, its line has only what a listing shows, and those below it are left out.
    /// No merge is planned. Fails with `Gone` if the branch has ended, and if versions that are counted can't be read.
    pub fn branches_below(&self, branch: BranchId, may_enter: &dyn Fn(BranchId) -> bool) -> Result<Vec<u8>, Error> {
        let catalog = self.catalog().clone();
        let mut lines = Vec::new();
        let mut counts = ChangeCounts::default();
        let mut left = children(&catalog, catalog.branch(branch)?);
        while let Some(child) = left.pop() {
            let modified = child.changed.to_string();
            if may_enter(child.id) {
                line((&catalog, child), LeaseStatus::for_branch(self, child.id), &mut counts, modified, &mut lines)?;
                left.extend(children(&catalog, child));
            } else {
                push(&RestrictedLine { name: &child.path, owner: child.uid, modified }, &mut lines);
            }
        }
        Ok(lines)
    }
}

/// Returns the children of a branch, the last one by name first, as a stack takes them.
fn children<'a>(catalog: &'a Catalog, branch: &Branch) -> Vec<&'a Branch> {
    let mut children: Vec<&Branch> =
        branch.children.values().filter_map(|id| catalog.branches.get(id)).map(|child| &**child).collect();
    children.reverse();
    children
}

fn line(
    (catalog, branch): (&Catalog, &Branch),
    lease: LeaseStatus,
    counts: &mut ChangeCounts,
    modified: String,
    lines: &mut Vec<u8>,
) -> Result<(), Error> {
    let ahead = counts.count_changes(&branch.base, &branch.state)?;
    let agent = catalog.setting(branch, Setting::Agent)?;
    let line = BranchLine {
        name: &branch.path,
        agent: &agent,
        task: branch.settings.get(Setting::Task),
        owner: branch.uid,
        modified,
        own_edits: ahead,
        ahead,
        behind: counts.count_changes(&branch.base, &catalog.parent(branch)?.state)?,
        lease,
        proposed: branch.proposal.is_some(),
    };
    push(&line, lines);
    Ok(())
}

fn push(line: &impl Serialize, lines: &mut Vec<u8>) {
    lines.extend(serde_json::to_vec(line).unwrap_or_default());
    lines.push(b'\n');
}
