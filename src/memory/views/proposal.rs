//! The file `plan` of a proposal: what its merge would do, what the gate still asks for, and what reviewers said of it.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::branch::differences;
use crate::lineage::Decision;
use crate::memory::catalog::{BranchId, Proposal, Review};
use crate::memory::merging::file_decisions::file_id;
use crate::memory::merging::proposal_plan::ProposalPlan;
use crate::memory::{Error, Memory};
use crate::object::Time;
use crate::workspace::{FileNode, TreeDifference};

/// The members of `plan`, in their order, each on a line of its own.
#[derive(Serialize)]
struct PlanPage<'a> {
    name: &'a str,
    branch: &'a str,
    parent: &'a str,
    owner: u32,
    agent: &'a str,
    proposed: String,
    text: &'a str,
    status: &'a str,
    plan: String,
    put: u64,
    deleted: u64,
    files: u64,
    child_head: String,
    parent_head: String,
    strategy: &'a str,
    not_merged: Vec<&'a str>,
    conflicts: Vec<Value>,
    blockers: Vec<Value>,
    gate: Vec<Value>,
    approvers: Vec<String>,
    reviews: Vec<Value>,
    changes: Vec<Value>,
}

impl Memory {
    /// Returns the bytes of `proposals/NAME/plan`: what a merge of the proposal would do to the parent as it is now.
    /// Kind `NotFound` if the branch proposes nothing.
    pub fn plan_page(&self, branch: BranchId) -> Result<Vec<u8>, Error> {
        let examined = self.examine_proposal(branch)?;
        let ProposalPlan { plan, catalog, blockers, requirements } = &examined;
        let child = catalog.branch(branch)?;
        let (parent, proposal) = (catalog.parent(child)?, child.current_proposal()?);
        let [child_head, parent_head] = plan.heads().map(|head| head.to_string());
        let page = PlanPage {
            name: &child.name,
            branch: &child.path,
            parent: &parent.path,
            owner: child.uid,
            agent: &catalog.agent(child, child.uid),
            proposed: proposal.frozen.time.to_string(),
            text: &proposal.frozen.text,
            status: if blockers.is_empty() { "ready" } else { "blocked" },
            plan: plan.hash.to_string(),
            put: plan.counts.put,
            deleted: plan.counts.deleted,
            files: plan.counts.files,
            child_head,
            parent_head,
            strategy: plan.strategy(),
            not_merged: plan.not_merged.iter().map(|path| &**path).collect(),
            conflicts: plan.conflicts().map(Decision::to_json).collect(),
            blockers: blockers.iter().map(blocker).collect(),
            gate: requirements.iter().map(|it| json!({ "condition": *it.condition, "missing": it.missing })).collect(),
            approvers: parent.settings.approvers().iter().map(|uid| format!("uid:{uid}")).collect(),
            reviews: reviews(proposal),
            changes: changes(proposal)?,
        };
        Ok(lines(&serde_json::to_value(page).unwrap_or_default()))
    }

    /// Returns the proposal of a branch as a JSON object, as `ctl` shows it to whoever proposed it. Kind `NotFound` if
    /// it proposes nothing.
    pub fn proposal_result(&self, branch: BranchId) -> Result<Value, Error> {
        let ProposalPlan { plan, blockers, .. } = self.examine_proposal(branch)?;
        let status = if blockers.is_empty() { "ready" } else { "blocked" };
        Ok(json!({
            "status": "proposed", "merge": status, "branch": *plan.path(), "plan": plan.hash.to_string(),
            "put": plan.counts.put, "deleted": plan.counts.deleted, "files": plan.counts.files,
            "blockers": blockers.iter().map(blocker).collect::<Vec<_>>(), "head": plan.heads()[0].to_string(),
        }))
    }

    /// Returns the child branches with a proposal, in bytewise order of names: name, branch, and the number of the
    /// entry that proposed it. Empty if there are none. Fails only with `Gone`, if the branch has ended.
    pub fn proposals(&self, branch: BranchId) -> Result<Vec<(Arc<str>, BranchId, u64)>, Error> {
        let catalog = self.catalog().clone();
        let children = catalog.branch(branch)?.children.iter();
        let children = children.filter_map(|(name, id)| Some((name, catalog.branches.get(id)?)));
        let proposing = children.filter_map(|(name, child)| {
            let entry = child.proposal.as_ref()?.frozen.seq;
            Some((name.clone(), child.id, entry))
        });
        Ok(proposing.collect())
    }

    /// Returns the child branch with this name and the number of the entry that proposed; `None` if it proposes
    /// nothing, or there is no such branch. Fails only with `Gone`, if the parent has ended.
    pub fn proposal(&self, branch: BranchId, name: &str) -> Result<Option<(BranchId, u64)>, Error> {
        let catalog = self.catalog();
        let child = catalog.branch(branch)?.children.get(name).and_then(|child| catalog.branches.get(child));
        Ok(child.and_then(|child| Some((child.id, child.proposal.as_ref()?.frozen.seq))))
    }

    /// Returns when a branch made the proposal of this entry. Kind `NotFound` if it was replaced or withdrawn.
    pub fn proposal_time(&self, branch: BranchId, entry: u64) -> Result<Time, Error> {
        let catalog = self.catalog();
        let branch = catalog.branch(branch)?;
        let proposal = branch.proposal_at(entry).ok_or_else(|| Error::NotKept(entry.to_string()))?;
        Ok(proposal.frozen.time)
    }

    /// Returns whether the parent of a branch has a gate that is not open; false for a root branch. Fails only with
    /// `Gone`, if the branch has ended.
    pub fn is_gated(&self, branch: BranchId) -> Result<bool, Error> {
        let catalog = self.catalog();
        let branch = catalog.branch(branch)?;
        Ok(branch.parent.is_some() && !catalog.parent(branch)?.settings.gate().is_open())
    }

    /// Returns whether a user may look at the proposal of a branch: root, the owners of the branch and its parent, and
    /// the approvers of the parent. Kind `Invalid` for a root branch, `Gone` if it has ended.
    pub fn may_review(&self, uid: u32, branch: BranchId) -> Result<bool, Error> {
        let catalog = self.catalog();
        let child = catalog.branch(branch)?;
        let parent = catalog.parent(child)?;
        Ok([0, child.uid, parent.uid].contains(&uid) || parent.settings.approvers().contains(&uid))
    }
}

fn blocker(error: &Error) -> Value {
    let advice = error.advice();
    json!({ "code": advice.code, "message": error.to_string(), "hint": advice.hint })
}

fn reviews(proposal: &Proposal) -> Vec<Value> {
    let line = |(uid, review): (&u32, &Review)| {
        json!({
            "uid": uid, "approves": review.approves, "plan": review.plan.to_string(), "time": review.time.to_string(),
            "text": *review.text,
        })
    };
    proposal.reviews.iter().map(line).collect()
}

/// Returns what the branch changed: of files with the modes that they have, since all shows as readable in a proposal.
fn changes(proposal: &Proposal) -> Result<Vec<Value>, Error> {
    let (base, state) = (&proposal.frozen.base, &proposal.frozen.state);
    let mut lines = Vec::new();
    for change in differences(base, state)? {
        let what = change_name(change.old.is_some(), change.new.is_some());
        lines.push(json!({ "kind": "record", "id": *change.id, "change": what }));
    }
    for TreeDifference { path, old, new } in base.files().differences(state.files()) {
        let mode = |side: &Option<(u64, Arc<FileNode>)>| side.as_ref().map(|(_, node)| format!("{:04o}", node.mode));
        let what = change_name(old.is_some(), new.is_some());
        lines.push(json!({
            "kind": "file", "path": *file_id(&path), "change": what, "mode": mode(&new), "mode_before": mode(&old),
        }));
    }
    Ok(lines)
}

fn change_name(in_base: bool, in_proposal: bool) -> &'static str {
    match (in_base, in_proposal) {
        (false, _) => "added",
        (true, true) => "modified",
        (true, false) => "deleted",
    }
}

/// Returns an object with each member on a line, and each element of a list, so that grep(1) finds them.
fn lines(page: &Value) -> Vec<u8> {
    let members = page.as_object().into_iter().flatten();
    let member = |(key, value): (&String, &Value)| match value.as_array().filter(|list| !list.is_empty()) {
        Some(list) => {
            let list: Vec<String> = list.iter().map(|item| format!("  {item}")).collect();
            format!("{}: [\n{}\n]", Value::from(key.as_str()), list.join(",\n"))
        }
        None => format!("{}: {value}", Value::from(key.as_str())),
    };
    format!("{{\n{}\n}}\n", members.map(member).collect::<Vec<_>>().join(",\n")).into_bytes()
}
