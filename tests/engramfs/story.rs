//! A history that notes what was acknowledged and what was synced, and the check of what a disk
//! gives back.

use std::collections::BTreeMap;
use std::sync::Arc;

use engramfs::disk::{Disk, ForgetfulDisk};
use engramfs::memory::{
    Actor, BranchId, Error, Hash, Kind, Memory, MergeKind, RevertVerb, ReviewRequest, Setting, SharedLogEntryInput,
    View,
};

use crate::support::{Chance, delete, main_of, open, open_on, put, verify, who};

/// Heads and sizes by path; checkpoints as `path@label`.
pub type Picture = BTreeMap<String, (Hash, u64)>;

/// One thing a caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Commit,
    Bulk,
    Fork,
    Merge,
    Promote,
    Pull,
    Discard,
    Checkpoint,
    Rollback,
    /// The last change of `main` is taken back.
    Undo,
    Redo,
    /// The branch that ended last comes back.
    BringBack,
    /// A branch goes back to what it was before its last change.
    RollbackEntry,
    /// A child of `main` is proposed.
    Propose,
    /// An approver says something of what is proposed to `main`.
    Review,
    Withdraw,
    /// Entries come to the shared log.
    Append,
    Sync,
    Seal,
    Collect,
    /// A clean end.
    Close,
    /// A clean end, and a new beginning.
    Reopen,
    /// The process dies.
    Die,
}

use Step::*;

/// Every kind of step, in an order in which each has something to do.
pub const SCRIPT: [Step; 46] = [
    Commit,
    Sync,
    Fork,
    Propose,
    Commit,
    Review,
    Append,
    Checkpoint,
    Commit,
    Sync,
    Bulk,
    Commit,
    Seal,
    Undo,
    Fork,
    Commit,
    Propose,
    Pull,
    Review,
    Promote,
    Undo,
    Sync,
    Append,
    Propose,
    Die,
    Withdraw,
    Redo,
    Commit,
    Rollback,
    Merge,
    Undo,
    Commit,
    Reopen,
    Commit,
    Commit,
    Seal,
    RollbackEntry,
    Discard,
    Sync,
    BringBack,
    Append,
    Collect,
    Commit,
    Sync,
    Append,
    Commit,
];

/// The first of these; what follows concerns no bulk commit, and is quick to run again and again.
pub fn random_steps(chance: &mut Chance, count: usize) -> Vec<Step> {
    let all = [
        Commit,
        Commit,
        Commit,
        Commit,
        Fork,
        Fork,
        Merge,
        Promote,
        Pull,
        Discard,
        Checkpoint,
        Rollback,
        Undo,
        Redo,
        BringBack,
        RollbackEntry,
        Append,
        Append,
        Propose,
        Propose,
        Review,
        Withdraw,
        Sync,
        Sync,
        Seal,
        Collect,
        Reopen,
        Die,
    ];
    [Commit, Sync].into_iter().chain((0..count).map(|_| all[chance.below(all.len())])).collect()
}

/// What was acknowledged.
#[derive(Clone, Default)]
pub struct Log {
    /// Tip and content by number of the last entry.
    pub pictures: BTreeMap<u64, (Hash, Picture)>,
    /// Number of the last acknowledged entry.
    pub acknowledged: u64,
    /// Number of the last entry that was acknowledged before a sync that was acknowledged.
    pub synced: u64,
}

/// Who may approve of merges into `main`.
fn approver() -> Actor {
    Actor { uid: 2000, name: "bob".into(), ..who() }
}

pub struct Story {
    disk: Arc<dyn Disk>,
    pub memory: Arc<Memory>,
    chance: Chance,
    count: usize,
    pub log: Log,
}

impl Story {
    pub fn begin(disk: Arc<dyn Disk>, seed: u64) -> Result<Story, Error> {
        let memory = open_on(disk.clone())?;
        memory.set(&approver(), main_of(&memory), Setting::Approvers, "uid:2000")?;
        let mut story = Story { disk, memory, chance: Chance(seed), count: 0, log: Log::default() };
        story.note();
        Ok(story)
    }

    /// Does one step; what it acknowledged is noted.
    pub fn step(&mut self, step: Step) -> Result<(), Error> {
        self.count += 1;
        match step {
            Commit => self.commit(),
            Bulk => self.bulk(),
            Fork | Merge | Promote | Pull | Discard => self.shape(step),
            Checkpoint | Rollback => self.checkpoint(step),
            Undo => self.take_back(RevertVerb::Undo),
            Redo => self.take_back(RevertVerb::Redo),
            BringBack => self.bring_back(),
            RollbackEntry => self.rollback_entry(),
            Propose | Review | Withdraw => self.proposal(step),
            Append => self.append(),
            Sync => self.durable(|story| story.memory.sync()),
            Seal => self.durable(|story| story.memory.seal()),
            Collect => self.durable(|story| story.memory.gc(&who(), None, false).map(|_| ())),
            Close => self.durable(|story| story.memory.close()),
            Reopen => self.reopen(),
            Die => self.replace(),
        }?;
        self.note();
        Ok(())
    }

    fn note(&mut self) {
        self.log.acknowledged = self.memory.version();
        let picture = (self.memory.tip(), picture(&self.memory));
        self.log.pictures.insert(self.log.acknowledged, picture);
    }

    fn durable(&mut self, work: impl FnOnce(&Story) -> Result<(), Error>) -> Result<(), Error> {
        let before = self.memory.version();
        work(self)?;
        self.log.synced = self.log.synced.max(before);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Error> {
        let branch = self.pick(|_| true);
        let mut edits = Vec::new();
        for _ in 0..1 + self.chance.below(4) {
            let id = format!("r{}", self.chance.below(9));
            let text = format!("{} {}", self.count, "x".repeat(self.chance.below(700)));
            edits.push(if self.chance.one_in(4) {
                delete(&id)
            } else {
                put(&id, Some(vec![1.0, self.count as f32]), Some(&text))
            });
        }
        self.memory.commit(&who(), branch, edits).map(|_| ())
    }

    fn bulk(&mut self) -> Result<(), Error> {
        let text = format!("bulk {}", self.count);
        let edits = (0..1024).map(|n| put(&format!("b{n}"), None, Some(&text))).chain([delete("r1")]);
        self.memory.commit(&who(), main_of(&self.memory), edits.collect()).map(|_| ())
    }

    fn shape(&mut self, step: Step) -> Result<(), Error> {
        if step == Fork {
            let (parent, name) = (self.pick(|_| true), format!("f{}", self.count));
            return self.memory.fork(&who(), parent, &name, None).map(|_| ());
        }
        let memory = self.memory.clone();
        let child = self.pick(|id| memory.info(id).is_ok_and(|info| info.parent.is_some() && info.children == 0));
        if child == main_of(&self.memory) {
            return Ok(());
        }
        let join = match step {
            Discard => return self.memory.discard(&who(), child),
            Merge => MergeKind::Merge,
            Promote => MergeKind::Promote,
            _ => MergeKind::Pull,
        };
        self.memory.merge(&who(), child, join, false).map(|_| ())
    }

    fn checkpoint(&mut self, step: Step) -> Result<(), Error> {
        let main = main_of(&self.memory);
        match (step, self.memory.checkpoints(main)?.first()) {
            (Rollback, Some(label)) => self.memory.rollback(&who(), main, label).map(|_| ()),
            _ => self.memory.checkpoint(&who(), main, &format!("c{}", self.count), Some("why")),
        }
    }

    fn take_back(&mut self, verb: RevertVerb) -> Result<(), Error> {
        let done = self.memory.undo(&who(), main_of(&self.memory), verb, 1, false);
        // Not always is there something.
        done.map(drop).or_else(|error| if error.kind() == Kind::Invalid { Ok(()) } else { Err(error) })
    }

    fn bring_back(&mut self) -> Result<(), Error> {
        let main = main_of(&self.memory);
        let ended = self.memory.ended_children(&who(), main)?;
        let Some(seq) = ended.first().and_then(|ended| ended["seq"].as_u64()) else { return Ok(()) };
        let found = self.memory.find_ended(&who(), main, &seq.to_string())?;
        self.memory.fork_from(&who(), main, &format!("again{}", self.count), Some(&found), None).map(drop)
    }

    fn rollback_entry(&mut self) -> Result<(), Error> {
        let branch = self.pick(|_| true);
        let lines = self.memory.lineage_lines(branch, false)?;
        let seq = |line: &String| serde_json::from_str::<serde_json::Value>(line).ok()?["seq"].as_u64();
        let Some(before) = lines.iter().rev().nth(1).and_then(seq) else { return Ok(()) };
        // Not each entry gave the branch a state.
        let done = self.memory.rollback(&who(), branch, &before.to_string());
        done.map(drop).or_else(|error| if error.kind() == Kind::NotFound { Ok(()) } else { Err(error) })
    }

    fn proposal(&mut self, step: Step) -> Result<(), Error> {
        let (memory, main) = (self.memory.clone(), main_of(&self.memory));
        let children: Vec<BranchId> = memory.children(main)?.into_iter().map(|(_, child)| child).collect();
        let proposed = memory.proposals(main)?;
        let one = self.chance.below(proposed.len().max(children.len()).max(1));
        match (step, proposed.get(one % proposed.len().max(1)), children.get(one % children.len().max(1))) {
            (Propose, _, Some(child)) => memory.propose(&who(), *child, "please").map(drop),
            (Withdraw, Some((_, child, _)), _) => memory.withdraw(&who(), *child).map(drop),
            (Review, Some((name, child, _)), _) => {
                let page: serde_json::Value = serde_json::from_slice(&memory.plan_page(*child)?).unwrap_or_default();
                let plan = page["plan"].as_str().and_then(|plan| plan.parse().ok()).unwrap_or(Hash::ZERO);
                let request = ReviewRequest { name, plan, approves: !self.chance.one_in(3), text: "read it" };
                memory.review(&approver(), main, request).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn append(&mut self) -> Result<(), Error> {
        let branch = self.pick(|_| true);
        let line = format!(r#"{{"text":"told {}","event_id":{},"vector":[1,2]}}"#, self.count, self.count % 5);
        let entries =
            [SharedLogEntryInput::parse(&line)?, SharedLogEntryInput::of_text(format!("more {}", self.count))?];
        self.memory.append_log(&who(), branch, &entries).map(drop)
    }

    fn reopen(&mut self) -> Result<(), Error> {
        let closed = self.durable(|story| story.memory.close());
        self.replace().and(closed)
    }

    fn replace(&mut self) -> Result<(), Error> {
        self.memory = open_on(self.disk.clone())?;
        Ok(())
    }

    /// Picks a branch of those wanted, or main.
    fn pick(&mut self, wanted: impl Fn(BranchId) -> bool) -> BranchId {
        let mut all = Vec::new();
        each_branch(&self.memory, &mut |id| all.push(id));
        all.retain(|id| wanted(*id));
        if all.is_empty() { main_of(&self.memory) } else { all[self.chance.below(all.len())] }
    }
}

pub fn each_branch(memory: &Memory, each: &mut impl FnMut(BranchId)) {
    let mut todo: Vec<BranchId> = memory.roots().into_iter().map(|(_, id)| id).collect();
    while let Some(id) = todo.pop() {
        each(id);
        todo.extend(memory.children(id).unwrap().into_iter().map(|(_, child)| child));
    }
}

pub fn picture(memory: &Memory) -> Picture {
    let mut picture = Picture::new();
    each_branch(memory, &mut |id| {
        let path = memory.info(id).unwrap().path;
        if let Some(log) = memory.own_log(id).unwrap() {
            picture.insert(format!("{path}/shared"), (log.records.head(), log.entries));
        }
        for (name, child, entry) in memory.proposals(id).unwrap() {
            let page: serde_json::Value = serde_json::from_slice(&memory.plan_page(child).unwrap()).unwrap();
            let snapshot = memory.snapshot(&View::Proposal(child, entry)).unwrap();
            let proposal = format!("{path}: {name} proposes, {}", page["reviews"]);
            picture.insert(proposal, (snapshot.head(), snapshot.count()));
        }
        let mut add = |name: String, view: &View| {
            let snapshot = memory.snapshot(view).unwrap();
            picture.insert(name, (snapshot.head(), snapshot.count()));
        };
        add(path.to_string(), &View::Branch(id));
        for label in memory.checkpoints(id).unwrap() {
            add(format!("{path}@{label}"), &View::Checkpoint(id, label));
        }
    });
    picture
}

/// Opens the disk as after a crash: it must hold a state that was acknowledged, none older than
/// `least`, and pass every check. Returns the number of its last entry.
pub fn recover(disk: &ForgetfulDisk, log: &Log, least: u64) -> Result<u64, String> {
    let memory = open(disk).map_err(|error| format!("does not open: {error}"))?;
    let seq = memory.version();
    if seq < least {
        return Err(format!("entries up to {least} were acknowledged as safe, and {seq} are there"));
    }
    // Below the first noted entry stand those that made the store.
    if let Some((first, _)) = log.pictures.first_key_value()
        && seq > *first
    {
        match log.pictures.get(&seq) {
            None => return Err(format!("entry {seq} was never acknowledged as the last one")),
            Some((tip, _)) if *tip != memory.tip() => return Err(format!("entry {seq} is another one")),
            Some((_, noted)) if *noted != picture(&memory) => {
                return Err(format!("the records at entry {seq} are a mix"));
            }
            Some(_) => {}
        }
    }
    verify(disk).map_err(|error| format!("does not verify: {error}"))?;
    Ok(seq)
}
