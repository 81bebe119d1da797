//! What a merge, promote or pull did or would do, as users read it.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::merge_plan::MergePlan;
use crate::lineage::{Counts, Decision};
use crate::memory::{Advice, Error, MergeError};
use crate::object::Hash;

/// What a merge, promote, pull or revert did, or would do.
#[derive(Clone, Debug)]
pub struct MergeResult {
    /// `merged` or `reverted`; of a dry run `ready` or `blocked`.
    pub status: &'static str,
    /// The name path of the branch that was merged, promoted or pulled.
    pub branch: Arc<str>,
    /// The strategy that decides conflicts: that of the receiving branch.
    pub strategy: &'static str,
    /// How many records are put and deleted, and how many files change, in the receiving branch.
    pub counts: Counts,
    /// The paths left out by a rule, each with `files/` in front.
    pub not_merged: Vec<Arc<str>>,
    /// What both sides changed differently, decided or not.
    pub conflicts: Vec<Decision>,
    /// Everything that prevents the merge; empty if nothing does.
    pub blockers: Vec<Error>,
    /// The hash of all that the merge takes and decides. Changes elsewhere do not alter it.
    pub plan: Hash,
    /// The head of the receiving branch afterwards.
    pub head: Hash,
    /// The entry's hash; `None` for a dry run.
    pub entry: Option<Hash>,
    /// The line of `ctl` that takes it back, for the receiving branch; `None` for a dry run.
    pub undo: Option<String>,
    /// The entries that a revert takes back; none for anything else.
    pub reverted: Vec<RevertSummary>,
}

/// Entries that a revert takes back together, by one entry of its own.
#[derive(Clone, Debug, Serialize)]
pub struct RevertSummary {
    /// Their numbers: `N`, or `N..M`.
    pub entries: String,
    /// What they did, as the lineage calls what the last of them did.
    pub op: &'static str,
    /// When the last of them was made, in RFC 3339.
    pub time: String,
}

#[derive(Serialize)]
struct Blocker {
    code: &'static str,
    message: String,
    hint: Cow<'static, str>,
}

#[derive(Serialize)]
struct MergeResultLine<'a> {
    status: &'static str,
    branch: &'a str,
    strategy: &'static str,
    put: u64,
    deleted: u64,
    files: u64,
    not_merged: Vec<&'a str>,
    conflicts: Vec<Value>,
    blockers: Vec<Blocker>,
    plan: String,
    head: String,
    entry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    undo: Option<&'a str>,
    #[serde(skip_serializing_if = "<[RevertSummary]>::is_empty")]
    reverted: &'a [RevertSummary],
}

impl MergeResult {
    /// Returns whether something prevents the merge; only a dry run returns that as a result.
    pub fn is_blocked(&self) -> bool {
        !self.blockers.is_empty()
    }

    /// Joins two results in order: the counts and lists of both, the hashes and head of the second.
    pub fn followed_by(mut self, next: MergeResult) -> MergeResult {
        let Counts { put, deleted, files } = next.counts;
        let sum = Counts {
            put: self.counts.put + put,
            deleted: self.counts.deleted + deleted,
            files: self.counts.files + files,
        };
        self.not_merged.extend(next.not_merged.iter().cloned());
        self.conflicts.extend(next.conflicts.iter().cloned());
        self.blockers.extend(next.blockers.iter().cloned());
        self.reverted.extend(next.reverted.iter().cloned());
        let MergeResult { not_merged, conflicts, blockers, reverted, .. } = self;
        let status = if self.status == "blocked" { self.status } else { next.status };
        MergeResult { status, counts: sum, not_merged, conflicts, blockers, reverted, ..next }
    }

    /// Returns one line of JSON without its line end: an object of `status`, `branch`, `strategy`, the numbers `put`,
    /// `deleted` and `files`, the lists `not_merged`, `conflicts` and `blockers`, and the hashes `plan`, `head` and
    /// `entry`, this one null if there is none. `undo` and `reverted` are left out where nothing is in them.
    pub fn to_json(&self) -> String {
        let blocker = |error: &Error| {
            let Advice { code, hint, .. } = error.advice();
            Blocker { code, message: error.to_string(), hint }
        };
        let line = MergeResultLine {
            status: self.status,
            branch: &self.branch,
            strategy: self.strategy,
            put: self.counts.put,
            deleted: self.counts.deleted,
            files: self.counts.files,
            not_merged: self.not_merged.iter().map(|path| &**path).collect(),
            conflicts: self.conflicts.iter().map(Decision::to_json).collect(),
            blockers: self.blockers.iter().map(blocker).collect(),
            plan: self.plan.to_string(),
            head: self.head.to_string(),
            entry: self.entry.map(|hash| hash.to_string()),
            undo: self.undo.as_deref(),
            reverted: &self.reverted,
        };
        serde_json::to_string(&line).unwrap_or_default()
    }
}

/// Returns that conflicts of a plan wait for a decision: how many, the first five, and by its kind what decides them.
pub fn conflicts_error(plan: &MergePlan) -> Error {
    let open: Vec<&Decision> = plan.conflicts().filter(|item| item.decision.is_none()).collect();
    let more = if open.len() > 5 { ", …" } else { "" };
    let shown = open.iter().take(5).map(|item| &*item.id).collect::<Vec<_>>().join(", ") + more;
    let count = open.len();
    if plan.merge.is_revert() {
        return MergeError::RevertConflicts { count, shown }.into();
    }
    let is_unit = |item: &Decision| plan.unit_decision(&item.id).is_some();
    let has_units = open.iter().any(|item| is_unit(item));
    let (directories, files): (Vec<&Decision>, Vec<&Decision>) =
        open.into_iter().filter(|item| item.is_file() && !is_unit(item)).partition(|item| is_directory(plan, item));
    let (has_files, has_directories) = (!files.is_empty(), !directories.is_empty());
    MergeError::Conflicts { count, shown, has_files, has_directories, has_units }.into()
}

/// Returns whether a conflict is about a directory: what the branch has at that path, or else its parent or base.
fn is_directory(plan: &MergePlan, item: &Decision) -> bool {
    let Some(path) = item.id.strip_prefix("files/") else { return false };
    let found = [&plan.child.state, &plan.parent.state, &plan.child.base].into_iter().find_map(|state| {
        let tree = state.files();
        tree.resolve(path.as_bytes()).and_then(|inode| tree.node(inode)).ok()
    });
    found.is_some_and(|node| node.directory().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(status: &'static str) -> MergeResult {
        MergeResult {
            status,
            branch: "main".into(),
            strategy: "manual",
            counts: Counts::default(),
            not_merged: Vec::new(),
            conflicts: Vec::new(),
            blockers: Vec::new(),
            plan: Hash::ZERO,
            head: Hash::ZERO,
            entry: None,
            undo: None,
            reverted: Vec::new(),
        }
    }

    #[test]
    fn of_several_results_one_that_is_blocked_blocks_them_all() {
        for [first, next, both] in
            [["ready", "ready", "ready"], ["blocked", "ready", "blocked"], ["ready", "blocked", "blocked"]]
        {
            assert_eq!(result(first).followed_by(result(next)).status, both, "{first}, then {next}");
        }
    }
}
