//! Merge, promote and pull: which states are joined, and what becomes of them.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::act::{Act, Join};
use super::prepare::{Prepared, Step, about};
use super::trees::stored;
use super::world::{Branch, Kept, World};
use super::{Error, Kind};
use crate::branch::{State, differences};
use crate::lineage::{Counts, Decision, Detail, Part, Side};
use crate::merge::files::{FileDecision, FileMerge, FilePlan, Loser, Rules, Trees, plan_files};
use crate::merge::{Plan, Sides, Strategy, plan};
use crate::object::{Hash, Time};
use crate::workspace::{Op, Packs, Tree};

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

/// What a join is worked out from.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// All branches.
    pub world: &'a World,
    /// Where the contents of files are read.
    pub packs: &'a dyn Packs,
    /// When it is done.
    pub time: Time,
}

/// The plan of a join, for records and files.
pub struct Joint {
    /// What becomes of the records.
    pub records: Plan,
    /// What becomes of the files of the branch that receives.
    pub files: FilePlan,
    /// Everything that both sides changed: records by id, then files by path.
    pub both_changed: Vec<Decision>,
}

impl Joint {
    /// Returns what both sides changed differently.
    pub fn conflicts(&self) -> impl Iterator<Item = &Decision> {
        self.both_changed.iter().filter(|item| item.decision != Some(Side::Both))
    }

    /// Returns whether some conflict waits for a decision by hand.
    pub fn is_blocked(&self) -> bool {
        self.both_changed.iter().any(|item| item.decision.is_none())
    }

    /// Returns whether one side's version of something was not kept.
    fn has_losers(&self) -> bool {
        self.conflicts().next().is_some() || !self.files.losers.is_empty()
    }
}

/// A join worked out: its plan and the state that results.
pub struct Worked {
    /// The plan, seen from the child.
    pub plan: Joint,
    /// The result.
    pub merged: Arc<State>,
    /// What changes in the branch that receives.
    pub counts: Counts,
}

/// Refuses a branch with child branches.
pub fn without_children(branch: &Branch) -> Result<(), Error> {
    if branch.children.is_empty() {
        return Ok(());
    }
    let message = format!("{} has {} child branches", branch.path, branch.children.len());
    Err(Error::new(Kind::NotEmpty, "has_children", message, "merge or discard them first"))
}

/// Plans a join with the strategy and rules that the contract names: the parent's, for a pull the
/// branch's own.
pub fn plan_of(table: Table<'_>, branch: &Branch, join: Join) -> Result<Joint, Error> {
    let parent = table.world.parent(branch)?;
    let strategy = strategy_of(branch, parent, join);
    let sides = Sides { base: &branch.base, child: &branch.state, parent: &parent.state };
    let resolved = |item: &Decision| {
        let resolution = branch.resolutions.get(&item.id)?;
        (resolution.child == item.child && resolution.parent == item.parent).then_some(resolution.side)
    };
    let records = plan(&sides, strategy, resolved)?;
    let files = plan_of_files(table, branch, join, &resolved)?;
    let mut both_changed = records.both_changed.clone();
    both_changed.extend(file_decisions(&files, join));
    Ok(Joint { records, files, both_changed })
}

/// Plans what becomes of the files of the branch that receives. Its numbers of files stay; so for a
/// pull the branch stands where the parent does otherwise.
fn plan_of_files(
    table: Table<'_>,
    branch: &Branch,
    join: Join,
    resolved: &dyn Fn(&Decision) -> Option<Side>,
) -> Result<FilePlan, Error> {
    let parent = table.world.parent(branch)?;
    let (base, own, above) = (branch.base.files(), branch.state.files(), parent.state.files());
    let pulls = join == Join::Pull;
    let (giver, receiver) = if pulls { (above, own) } else { (own, above) };
    let strategy = strategy_of(branch, parent, join);
    let resolved = |item: &FileDecision| resolved(&decision(item, join)).map(|side| seen_from(side, join));
    let turned = pulls.then(|| branch.settings.rules().turned());
    let how = FileMerge {
        rules: turned.as_ref().unwrap_or_else(|| parent.settings.rules()),
        strategy: if pulls { strategy.turned() } else { strategy },
        resolved: &resolved,
        packs: table.packs,
        time: table.time,
    };
    plan_files(Trees { base, child: giver, parent: receiver }, &how).map_err(stored)
}

/// Turns a side of the plan of files into the one that users know, and back.
fn seen_from(side: Side, join: Join) -> Side {
    match (side, join) {
        (Side::Child, Join::Pull) => Side::Parent,
        (Side::Parent, Join::Pull) => Side::Child,
        (side, _) => side,
    }
}

fn decision(item: &FileDecision, join: Join) -> Decision {
    let id = format!("files/{}", String::from_utf8_lossy(&item.path)).into();
    let decision = item.decision.map(|side| seen_from(side, join));
    let (child, parent) = if join == Join::Pull { (item.parent, item.child) } else { (item.child, item.parent) };
    Decision { id, base: item.base, child, parent, decision, ..Decision::default() }
}

/// Lines and entries that an entry of the lineage shows of one file, and bytes of each.
const LOST_MAX: usize = 64;
const LOST_BYTES_MAX: usize = 1000;

/// Returns the decisions on files, each with what was not kept of a file that both sides keep, and
/// why it did not merge by its kind.
fn file_decisions(plan: &FilePlan, join: Join) -> Vec<Decision> {
    let mut parts: HashMap<&[u8], Vec<Part>> = HashMap::new();
    for lost in &plan.losers {
        if let Loser::Part { side, bytes } = &lost.what {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOST_BYTES_MAX)]).into();
            parts.entry(&lost.path).or_default().push(Part { side: seen_from(*side, join), text });
        }
    }
    let notes: HashMap<&[u8], Arc<str>> =
        plan.notes.iter().map(|(path, note)| (&path[..], note.to_string().into())).collect();
    let with_minutes = |item: &FileDecision| {
        let mut lost = parts.remove(&item.path[..]).unwrap_or_default();
        let lost_more = lost.len().saturating_sub(LOST_MAX) as u64;
        lost.truncate(LOST_MAX);
        Decision { lost, lost_more, note: notes.get(&item.path[..]).cloned(), ..decision(item, join) }
    };
    plan.both_changed.iter().map(with_minutes).collect()
}

fn strategy_of(branch: &Branch, parent: &Branch, join: Join) -> Strategy {
    if join == Join::Pull { branch.settings.strategy() } else { parent.settings.strategy() }
}

/// Works a join out without doing it.
pub fn work_out(table: Table<'_>, branch: &Branch, join: Join) -> Result<Worked, Error> {
    let parent = table.world.parent(branch)?;
    let plan = plan_of(table, branch, join)?;
    let mut merged = plan.records.apply(&parent.state)?;
    let mut files = plan.files.tree.clone();
    for inode in &plan.files.removed {
        files.apply(&Op::Drop { inode: *inode }, table.time, table.packs).map_err(stored)?;
    }
    merged.set_files(files);
    let mut counts = Counts { files: plan.files.files, ..Counts::default() };
    if join == Join::Pull {
        for change in differences(&branch.state, &merged)? {
            if change.new.is_some() { counts.put += 1 } else { counts.deleted += 1 }
        }
    } else {
        counts.put = plan.records.actions.iter().filter(|action| action.take.is_some()).count() as u64;
        counts.deleted = plan.records.actions.len() as u64 - counts.put;
    }
    Ok(Worked { plan, merged: Arc::new(merged), counts })
}

/// Returns a branch's new state after a promote: the parent's content, with each file that stays
/// under the number that it has in the branch, since handles are open on it.
fn promoted(table: Table<'_>, branch: &Branch, merged: &Arc<State>) -> Result<Arc<State>, Error> {
    let own = branch.state.files();
    let mut state = State::clone(merged);
    if own.hash() == merged.files().hash() {
        // The same content, and maybe under other numbers.
        state.set_files(own.clone());
        return Ok(Arc::new(state));
    }
    let all = Rules::parse("** whole").unwrap_or_default();
    let how = FileMerge {
        rules: &all,
        strategy: Strategy::ChildWins,
        resolved: &|_| None,
        packs: table.packs,
        time: table.time,
    };
    let trees = Trees { base: own, child: merged.files(), parent: own };
    state.set_files(plan_files(trees, &how).map_err(stored)?.tree);
    Ok(Arc::new(state))
}

/// Returns a branch's files with those at the patterns as `wanted` has them, and how many differ.
pub fn restored(table: Table<'_>, branch: &Branch, wanted: &Tree, patterns: &[Arc<str>]) -> Result<(Tree, u64), Error> {
    let bad = |pattern: &str| {
        let message = format!("'{pattern}' is no pattern of files to roll back");
        Error::new(Kind::Invalid, "bad_pattern", message, "write files/ and a path or pattern, such as files/notes/**")
    };
    let mut text = String::new();
    for pattern in patterns {
        // Blanks end a word in rules; any one character stands for them.
        let inside = pattern.strip_prefix("files/").filter(|inside| !inside.is_empty()).ok_or_else(|| bad(pattern))?;
        let inside = inside.trim_end_matches('/').replace(char::is_whitespace, "?");
        text.push_str(&format!("/{inside} whole\n/{inside}/** whole\n"));
    }
    let rules = Rules::parse(&format!("{text}** never")).map_err(|_| bad(&patterns.join(" ")))?;
    let own = branch.state.files();
    let how = FileMerge {
        rules: &rules,
        strategy: Strategy::ChildWins,
        resolved: &|_| None,
        packs: table.packs,
        time: table.time,
    };
    let plan = plan_files(Trees { base: own, child: wanted, parent: own }, &how).map_err(stored)?;
    let mut files = plan.tree;
    for inode in &plan.removed {
        files.apply(&Op::Drop { inode: *inode }, table.time, table.packs).map_err(stored)?;
    }
    Ok((files, plan.files))
}

/// Returns the error for a merge that waits for `resolve`.
pub fn conflict(plan: &Joint) -> Error {
    let open: Vec<&str> =
        plan.both_changed.iter().filter(|item| item.decision.is_none()).map(|item| &*item.id).collect();
    let shown = open.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if open.len() > 5 { ", …" } else { "" };
    let message =
        format!("{} records or files were changed on both sides and wait for a decision: {shown}{more}", open.len());
    Error::new(
        Kind::Conflict,
        "conflicts",
        message,
        "see the branch's file conflicts, then write 'resolve ID child' or 'resolve ID parent' to its ctl; a file is \
         settled as well by writing it in the branch",
    )
}

/// Prepares a join.
pub fn join(table: Table<'_>, act: &Act, branch: &Branch, join: Join) -> Result<Prepared, Error> {
    let world = table.world;
    let parent = world.parent(branch)?;
    if join == Join::Merge {
        without_children(branch)?;
    }
    let worked = work_out(table, branch, join)?;
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
    if worked.plan.has_losers() {
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
            prepared.steps.push(Step::State(branch.id, promoted(table, branch, &worked.merged)?));
            prepared.steps.push(Step::Base(branch.id, worked.merged));
        }
    }
    Ok(prepared)
}
