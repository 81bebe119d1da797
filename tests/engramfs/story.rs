//! A history that notes what was acknowledged and what was synced, and the check of what a disk
//! gives back.

mod recover;

use std::collections::BTreeMap;
use std::sync::Arc;

use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk};
use engramfs::memory::{
    Actor, BranchId, Error, ForkOptions, Hash, Kind, Lease, Memory, MergeVerb, RevertVerb, ReviewRequest, Setting,
    SharedLogEntryInput, SignalId,
};

use crate::support::{Chance, delete, main_of, open_on, put, who};

use recover::{LEASE, Picture, SignalPicture, signals};
pub use recover::{each_branch, picture, recover};

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
    /// A signal is claimed, written, changed or removed: that makes no entry.
    Signal,
    /// The lease of a branch is held until the process ends.
    Hold,
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
pub const SCRIPT: [Step; 59] = [
    Commit,
    Step::Signal,
    Sync,
    Fork,
    Hold,
    Step::Signal,
    Step::Signal,
    Propose,
    Commit,
    Review,
    Append,
    Checkpoint,
    Commit,
    Sync,
    Bulk,
    Step::Signal,
    Commit,
    Seal,
    Step::Signal,
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
    Step::Signal,
    Propose,
    Die,
    Step::Signal,
    Hold,
    Withdraw,
    Redo,
    Commit,
    Rollback,
    Merge,
    Undo,
    Step::Signal,
    Commit,
    Reopen,
    Step::Signal,
    Hold,
    Commit,
    Commit,
    Seal,
    RollbackEntry,
    Discard,
    Sync,
    BringBack,
    Append,
    Collect,
    Step::Signal,
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
        Step::Signal,
        Step::Signal,
        Step::Signal,
        Hold,
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
    /// The signals that were there, in order, while the last entry was that number. Those before a sync are left out.
    pub signals: BTreeMap<u64, Vec<SignalPicture>>,
    /// Number of the last acknowledged entry.
    pub acknowledged: u64,
    /// Number of the last entry that was acknowledged before a sync that was acknowledged.
    pub synced: u64,
}

impl Log {
    /// Returns what a process that died without a power cut must have left: all that was acknowledged.
    pub fn without_loss(&self) -> Log {
        let mut log = self.clone();
        log.keep_last_signals(self.acknowledged);
        log
    }

    fn keep_last_signals(&mut self, entry: u64) {
        if let Some(noted) = self.signals.get_mut(&entry) {
            noted.drain(..noted.len() - 1);
        }
    }
}

/// Who may approve of merges into `main`.
fn approver() -> Actor {
    Actor { uid: 2000, name: "bob".into(), ..who() }
}

/// A process that has the store open.
struct Process {
    memory: Arc<Memory>,
    kill: Box<dyn Fn()>,
}

impl Process {
    /// Opens the store through a disk of its own. Threads outlive the `Memory` for a moment, and those of a killed process
    /// change nothing more.
    fn start(disk: impl Disk) -> Result<Process, Error> {
        let disk = FaultyDisk::new(disk);
        let memory = open_on(Arc::new(disk.clone()))?;
        let fault = Fault { sticky: true, ..Fault::once(1, DiskCall::CHANGES, libc::EIO) };
        Ok(Process { memory, kill: Box::new(move || disk.plan(fault)) })
    }
}

pub struct Story {
    start: Box<dyn Fn() -> Result<Process, Error>>,
    kill: Box<dyn Fn()>,
    pub memory: Arc<Memory>,
    chance: Chance,
    count: usize,
    lease: Option<(BranchId, Lease)>,
    pub log: Log,
}

impl Story {
    pub fn begin<D: Disk + Clone>(disk: &D, seed: u64) -> Result<Story, Error> {
        let disk = disk.clone();
        let start = Box::new(move || Process::start(disk.clone()));
        let Process { memory, kill } = start()?;
        memory.set(&approver(), main_of(&memory), Setting::Approvers, "uid:2000")?;
        let (chance, log) = (Chance(seed), Log::default());
        let mut story = Story { start, kill, memory, chance, count: 0, lease: None, log };
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
            Step::Signal => self.signal(),
            Hold => self.hold(),
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
        self.log.acknowledged = self.memory.last_seq();
        let picture = (self.memory.tip(), picture(&self.memory));
        self.log.pictures.insert(self.log.acknowledged, picture);
        let mut signals = signals(&self.memory);
        signals.retain(|_, signal| signal.lifetime_text() != LEASE);
        self.log.signals.entry(self.log.acknowledged).or_default().push(signals);
    }

    fn durable(&mut self, work: impl FnOnce(&Story) -> Result<(), Error>) -> Result<(), Error> {
        let before = self.memory.last_seq();
        work(self)?;
        self.log.synced = self.log.synced.max(before);
        self.log.keep_last_signals(before);
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
            Merge => MergeVerb::Merge,
            Promote => MergeVerb::Promote,
            _ => MergeVerb::Pull,
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
        let options = ForkOptions { from: Some(&found), ..ForkOptions::default() };
        self.memory.fork_with(&who(), main, &format!("again{}", self.count), options).map(drop)
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
            [SharedLogEntryInput::parse(&line)?, SharedLogEntryInput::from_text(format!("more {}", self.count))?];
        self.memory.append_log(&who(), branch, &entries).map(drop)
    }

    fn signal(&mut self) -> Result<(), Error> {
        let (branch, memory) = (self.pick(|_| true), self.memory.clone());
        let key = |number: usize| Arc::from(format!("key{number}"));
        let one = key(self.chance.below(4));
        let Some(signal) = memory.signal(branch, &one)? else {
            return memory.claim_signal(&who(), branch, &one, 0o644).map(drop);
        };
        let opened = SignalId { key: &one, created: signal.created };
        match self.chance.below(6) {
            0 => memory.remove_signal(&who(), branch, &one),
            1 => memory.rename_signal(&who(), branch, (&one, &key(self.chance.below(4))), true),
            2 => memory.set_signal_mode(&who(), branch, opened, 0o600),
            3 => {
                let holds = self.lease.as_ref().is_some_and(|(held, _)| *held == branch);
                memory.set_signal_lifetime(&who(), branch, opened, if holds { LEASE } else { "1h" })
            }
            _ => memory.write_signal(&who(), branch, opened, format!("value {}", self.count).as_bytes()),
        }
    }

    /// At most one lease is held at a time, so that at most one is lost with the process.
    fn hold(&mut self) -> Result<(), Error> {
        if self.lease.is_none() {
            let branch = self.pick(|_| true);
            self.lease = Some((branch, self.memory.hold_lease(&who(), branch)?));
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Error> {
        let closed = self.durable(|story| story.memory.close());
        self.replace().and(closed)
    }

    fn replace(&mut self) -> Result<(), Error> {
        (self.kill)();
        Process { memory: self.memory, kill: self.kill } = (self.start)()?;
        // The store that it was held in is gone.
        self.lease = None;
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
