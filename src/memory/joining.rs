//! Merge, promote and pull: which states are joined, and what becomes of them.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::act::{Act, Join};
use super::prepare::{Prepared, Step, about};
use super::world::{Branch, Kept, World};
use super::{Error, Kind};
use crate::branch::{State, differences};
use crate::lineage::{Counts, Decision, Detail};
use crate::merge::{Plan, Sides, Strategy, plan};
use crate::object::Hash;

/// What a merge, promote or pull did, or would do.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `merged`, `ready` or `blocked`.
    pub status: &'static str,
    /// What changes in the branch that receives.
    pub counts: Counts,
    /// What both sides changed differently.
    pub conflicts: Vec<Decision>,
    /// What stands in the way.
    pub blockers: Vec<Error>,
    /// The head that results.
    pub head: Hash,
    /// The entry's hash; none for a dry run.
    pub entry: Option<Hash>,
}

#[derive(Serialize)]
struct Blocker<'a> {
    code: &'a str,
    message: &'a str,
    hint: &'a str,
}

#[derive(Serialize)]
struct Line<'a> {
    status: &'a str,
    put: u64,
    deleted: u64,
    files: u64,
    conflicts: Vec<Value>,
    blockers: Vec<Blocker<'a>>,
    head: String,
    entry: Option<String>,
}

impl Outcome {
    /// Returns whether it can't be done as things are.
    pub fn is_blocked(&self) -> bool {
        !self.blockers.is_empty()
    }

    /// Returns one line of JSON without its line end.
    pub fn to_json(&self) -> String {
        let blocker = |error: &Error| -> (String, String) { (error.message.clone(), error.hint.clone()) };
        let texts: Vec<_> = self.blockers.iter().map(blocker).collect();
        let blockers = self.blockers.iter().zip(&texts);
        let line = Line {
            status: self.status,
            put: self.counts.put,
            deleted: self.counts.deleted,
            files: self.counts.files,
            conflicts: self.conflicts.iter().map(Decision::to_json).collect(),
            blockers: blockers.map(|(error, (message, hint))| Blocker { code: error.code, message, hint }).collect(),
            head: self.head.to_string(),
            entry: self.entry.map(|hash| hash.to_string()),
        };
        serde_json::to_string(&line).unwrap_or_default()
    }
}

/// A join worked out: its plan and the state that results.
pub struct Worked {
    /// The plan, seen from the child.
    pub plan: Plan,
    /// The result.
    pub merged: Arc<State>,
    /// What changes in the branch that receives.
    pub counts: Counts,
}

/// Refuses a branch with child branches.
pub fn without_children(world: &World, branch: &Branch) -> Result<(), Error> {
    if branch.children.is_empty() {
        return Ok(());
    }
    let message = format!("{} has {} child branches", world.path(branch), branch.children.len());
    Err(Error::new(Kind::NotEmpty, "has_children", message, "merge or discard them first"))
}

/// Plans a join with the strategy that the contract names: the parent's, for a pull the branch's own.
pub fn plan_of(world: &World, branch: &Branch, join: Join) -> Result<Plan, Error> {
    let parent = world.parent(branch)?;
    let strategy = strategy_of(branch, parent, join);
    let sides = Sides { base: &branch.base, child: &branch.state, parent: &parent.state };
    let resolved = |item: &Decision| {
        let resolution = branch.resolutions.get(&item.id)?;
        (resolution.child == item.child && resolution.parent == item.parent).then_some(resolution.side)
    };
    Ok(plan(&sides, strategy, resolved)?)
}

fn strategy_of(branch: &Branch, parent: &Branch, join: Join) -> Strategy {
    if join == Join::Pull { branch.settings.strategy() } else { parent.settings.strategy() }
}

/// Works a join out without doing it.
pub fn work_out(world: &World, branch: &Branch, join: Join) -> Result<Worked, Error> {
    let parent = world.parent(branch)?;
    let plan = plan_of(world, branch, join)?;
    let merged = Arc::new(plan.apply(&parent.state)?);
    let mut counts = Counts::default();
    if join == Join::Pull {
        for change in differences(&branch.state, &merged)? {
            if change.new.is_some() { counts.put += 1 } else { counts.deleted += 1 }
        }
    } else {
        counts.put = plan.actions.iter().filter(|action| action.take.is_some()).count() as u64;
        counts.deleted = plan.actions.len() as u64 - counts.put;
    }
    Ok(Worked { plan, merged, counts })
}

/// Returns the error for a merge that waits for `resolve`.
pub fn conflict(plan: &Plan) -> Error {
    let open: Vec<&str> =
        plan.both_changed.iter().filter(|item| item.decision.is_none()).map(|item| &*item.id).collect();
    let shown = open.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if open.len() > 5 { ", …" } else { "" };
    let message =
        format!("{} records were changed on both sides and the strategy is manual: {shown}{more}", open.len());
    Error::new(
        Kind::Conflict,
        "conflicts",
        message,
        "see the branch's file conflicts, then write 'resolve ID child' or 'resolve ID parent' to its ctl",
    )
}

/// Prepares a join.
pub fn join(world: &World, act: &Act, branch: &Branch, join: Join) -> Result<Prepared, Error> {
    let parent = world.parent(branch)?;
    if join == Join::Merge {
        without_children(world, branch)?;
    }
    let worked = work_out(world, branch, join)?;
    if worked.plan.is_blocked() {
        return Err(conflict(&worked.plan));
    }
    let mut prepared = about(world, act, branch, join.op()).with_detail(Detail {
        strategy: Some(strategy_of(branch, parent, join).name()),
        conflicts: worked.plan.both_changed.clone(),
        ..Detail::default()
    });
    prepared.head = worked.merged.head();
    prepared.counts = worked.counts;
    let receiver = if join == Join::Pull { branch } else { parent };
    if worked.plan.conflicts().next().is_some() {
        // The losers are only there; they stay readable by their hashes.
        for state in [&parent.state, &branch.state] {
            prepared.steps.push(Step::Keep(receiver.id, Kept { state: state.clone(), time: act.time }));
        }
    }
    prepared.steps.push(Step::State(receiver.id, worked.merged.clone()));
    match join {
        Join::Merge => prepared.steps.push(Step::Remove(branch.id)),
        Join::Pull => prepared.steps.push(Step::Base(branch.id, parent.state.clone())),
        Join::Promote => {
            prepared.steps.push(Step::State(branch.id, worked.merged.clone()));
            prepared.steps.push(Step::Base(branch.id, worked.merged));
        }
    }
    Ok(prepared)
}
