//! Random operations against a plain model: every branch must hold what the model says, at every
//! step, through seals, crashes and reopenings; equal content must have equal heads.

mod branch;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    BranchId, ForkOptions, Kind, Memory, MergeOptions, MergeResult, MergeVerb, Query, RevertVerb, Revision, Setting,
    Side, View,
};

use crate::shrink::run_steps;
use crate::support::{Chance, delete, main_of, open, put, rounds, texts, verify, who};
use branch::{ModelBranch, three_way};

/// What a step does.
#[derive(Clone, Copy, Debug)]
enum Action {
    Write,
    Fork,
    Join(MergeVerb),
    Discard,
    CheckpointOrRollback,
    Strategy,
    Revert,
    Undo(RevertVerb),
    BringBack,
    Collect,
    Seal,
    Reopen,
}

use Action::*;

/// An action, and the seed of all that it draws, so that a step stays itself where others before it are left out.
#[derive(Clone, Copy, Debug)]
struct Step(Action, u64);

impl Step {
    fn random(chance: &mut Chance) -> Step {
        let action = match chance.below(26) {
            0..=7 => Write,
            8..=10 => Fork,
            11..=12 => Join(MergeVerb::Merge),
            13 => Join(MergeVerb::Promote),
            14 => Join(MergeVerb::Pull),
            15 => Discard,
            16 => CheckpointOrRollback,
            17 => Strategy,
            18..=19 => Revert,
            20..=21 => Undo(RevertVerb::Undo),
            22 => Undo(RevertVerb::Redo),
            23 => BringBack,
            24 if chance.one_in(4) => Collect,
            24 => Seal,
            _ => Reopen,
        };
        Step(action, chance.next())
    }
}

struct Harness {
    disk: ForgetfulDisk,
    memory: Arc<Memory>,
    branches: Vec<ModelBranch>,
    ids: HashMap<usize, BranchId>,
    clock: u64,
    chance: Chance,
}

impl Harness {
    fn new() -> Harness {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = ModelBranch { path: "main".into(), alive: true, strategy: "newest-wins", ..Default::default() };
        let ids = HashMap::from([(0, main_of(&memory))]);
        let mut main = main;
        main.note(ids[&0].0);
        Harness { disk, memory, branches: vec![main], ids, clock: 0, chance: Chance(0) }
    }

    fn pick(&mut self) -> usize {
        let alive: Vec<usize> = (0..self.branches.len()).filter(|at| self.branches[*at].alive).collect();
        alive[self.chance.below(alive.len())]
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn has_children(&self, at: usize) -> bool {
        self.branches.iter().any(|branch| branch.alive && branch.parent == Some(at))
    }

    fn step(&mut self, Step(action, seed): Step) {
        self.chance = Chance(seed);
        let at = self.pick();
        match action {
            Write => self.write(at),
            Fork => self.fork(at),
            Join(kind) => self.join(at, kind),
            Discard => self.discard(at),
            CheckpointOrRollback => self.checkpoint_or_rollback(at),
            Strategy => self.strategy(at),
            Revert => self.revert(at),
            Undo(verb) => self.undo(at, verb),
            BringBack => self.bring_back(at),
            Collect => drop(self.memory.gc(&who(), None, false).unwrap()),
            Seal => self.memory.seal().unwrap(),
            Reopen => self.reopen(),
        }
    }

    fn write(&mut self, at: usize) {
        let count = 1 + self.chance.below(4);
        let mut edits = BTreeMap::new();
        for _ in 0..count {
            let id = format!("r{}", self.chance.below(12));
            // Few values, so that both sides often change to the same.
            let value = (!self.chance.one_in(3)).then(|| format!("text {}", self.chance.below(4)));
            edits.insert(id, value);
        }
        let time = self.tick();
        let list = edits.iter().map(|(id, value)| match value {
            Some(text) => put(id, Some(vector_of(text)), Some(text)),
            None => delete(id),
        });
        let receipt = self.memory.commit(&who(), self.ids[&at], list.collect()).unwrap();
        assert_eq!(receipt.put as usize, edits.values().flatten().count());
        for (id, value) in edits {
            self.branches[at].set(&id, (value, time));
        }
        self.branches[at].note(self.memory.last_seq());
    }

    fn fork(&mut self, at: usize) {
        if self.branches.iter().filter(|branch| branch.alive).count() > 12 {
            return;
        }
        let name = format!("b{}", self.branches.len());
        let labels: Vec<String> = self.branches[at].checkpoints.keys().cloned().collect();
        let from =
            (!labels.is_empty() && self.chance.one_in(2)).then(|| labels[self.chance.below(labels.len())].clone());
        let id = self.memory.fork(&who(), self.ids[&at], &name, from.as_deref()).unwrap();
        self.tick();
        let parent = &self.branches[at];
        let (records, graves) = match &from {
            Some(label) => (parent.checkpoints[label].clone(), parent.checkpoint_graves[label].clone()),
            None => (parent.records.clone(), parent.graves.clone()),
        };
        let mut child = ModelBranch {
            path: format!("{}/{name}", parent.path),
            parent: Some(at),
            records,
            graves,
            strategy: parent.strategy,
            alive: true,
            ..Default::default()
        };
        child.base = child.values();
        child.note(id.0);
        self.branches.push(child);
        self.ids.insert(self.branches.len() - 1, id);
    }

    fn merged(&self, child: usize, parent: usize, strategy: &str) -> Option<ModelBranch> {
        let (child, parent) = (&self.branches[child], &self.branches[parent]);
        three_way(child, parent, child.path.rsplit('/').next().unwrap(), strategy)
    }

    /// Takes back what an entry did, anywhere in the branch's history.
    fn revert(&mut self, at: usize) {
        let history = &self.branches[at].history;
        if history.len() < 2 {
            return;
        }
        let seq = history[1 + self.chance.below(history.len() - 1)].0;
        let entry = Revision::parse(&seq.to_string()).unwrap();
        let revert = |dry| self.memory.revert(&who(), self.ids[&at], &entry, MergeOptions::default(), dry);
        let (dry, done) = (revert(true).unwrap(), revert(false));
        self.take_back(at, seq, seq, &dry, done);
    }

    /// Takes back the newest entry that was not taken back, or gives back the last one that was undone.
    fn undo(&mut self, at: usize, verb: RevertVerb) {
        let undo = |dry| self.memory.undo(&who(), self.ids[&at], verb, 1, dry);
        let Ok(dry) = undo(true) else {
            let code = undo(false).unwrap_err().code();
            assert_eq!(code, if verb == RevertVerb::Undo { "nothing_to_undo" } else { "nothing_to_redo" });
            return;
        };
        let done = undo(false);
        let entries = &dry.reverted[0].entries;
        let (first, last) = entries.split_once("..").unwrap_or((entries, entries));
        let (first, last) = (first.parse().unwrap(), last.parse().unwrap());
        self.take_back(at, first, last, &dry, done);
    }

    /// Expects a merge of what the branch was before some entries, with what it was behind them as the base.
    fn take_back(
        &mut self,
        at: usize,
        first: u64,
        last: u64,
        dry: &MergeResult,
        done: Result<MergeResult, engramfs::memory::Error>,
    ) {
        let branch = self.branches[at].clone();
        let place = |seq: u64| branch.history.iter().position(|(entry, _)| *entry == seq).unwrap();
        let (before, after) = (&branch.history[place(first) - 1].1, &branch.history[place(last)].1);
        let expected = three_way(&branch.with(before, after), &branch, "before", branch.strategy);
        self.tick();
        let Some(merged) = expected else {
            assert!(dry.is_blocked());
            assert_eq!(done.unwrap_err().kind(), Kind::Conflict);
            return;
        };
        let done = done.unwrap();
        assert_eq!((dry.counts, dry.head), (done.counts, done.head));
        let branch = &mut self.branches[at];
        (branch.records, branch.graves) = (merged.records, merged.graves);
        for id in before.base.keys().chain(after.base.keys()) {
            match before.base.get(id) {
                same if same == after.base.get(id) => {}
                Some(text) => drop(branch.base.insert(id.clone(), text.clone())),
                None => drop(branch.base.remove(id)),
            }
        }
        branch.note(self.memory.last_seq());
    }

    /// Forks a child that was discarded or merged, as it was then, with its base.
    fn bring_back(&mut self, at: usize) {
        let ended: Vec<usize> = (0..self.branches.len())
            .filter(|child| !self.branches[*child].alive && self.branches[*child].parent == Some(at))
            .collect();
        if ended.is_empty() || self.branches.iter().filter(|branch| branch.alive).count() > 12 {
            return;
        }
        let ended = self.branches[ended[self.chance.below(ended.len())]].clone();
        let found = self.memory.find_ended(&who(), self.ids[&at], ended.path.rsplit('/').next().unwrap()).unwrap();
        let name = format!("b{}", self.branches.len());
        let options = ForkOptions { from: Some(&found), ..ForkOptions::default() };
        let id = self.memory.fork_with(&who(), self.ids[&at], &name, options).unwrap();
        self.tick();
        let path = format!("{}/{name}", self.branches[at].path);
        let mut child = ModelBranch { path, alive: true, ..ended };
        (child.checkpoints, child.checkpoint_graves, child.checkpoint_bases) = Default::default();
        child.history.clear();
        child.note(id.0);
        self.branches.push(child);
        self.ids.insert(self.branches.len() - 1, id);
    }

    fn join(&mut self, at: usize, join: MergeVerb) {
        let Some(parent) = self.branches[at].parent else {
            assert_eq!(self.memory.merge(&who(), self.ids[&at], join, false).unwrap_err().kind(), Kind::Invalid);
            return;
        };
        let strategy = self.branches[if join == MergeVerb::Pull { at } else { parent }].strategy;
        let expected = self.merged(at, parent, strategy);
        let dry = self.memory.merge(&who(), self.ids[&at], join, true).unwrap();
        let done = self.memory.merge(&who(), self.ids[&at], join, false);
        self.tick();
        if join == MergeVerb::Merge && self.has_children(at) {
            assert_eq!(done.unwrap_err().kind(), Kind::NotEmpty);
            return;
        }
        let Some(merged) = expected else {
            assert!(dry.is_blocked());
            assert_eq!(done.unwrap_err().kind(), Kind::Conflict);
            self.resolve_all(at, parent, join);
            return;
        };
        let done = done.unwrap();
        assert_eq!((dry.counts, dry.head), (done.counts, done.head));
        self.enact(at, parent, join, merged);
    }

    fn enact(&mut self, at: usize, parent: usize, join: MergeVerb, merged: ModelBranch) {
        let (records, graves) = (merged.records, merged.graves);
        let values: BTreeMap<String, String> =
            records.iter().map(|(id, (text, _))| (id.clone(), text.clone())).collect();
        if join == MergeVerb::Pull {
            self.branches[at].base = self.branches[parent].values();
        } else {
            self.branches[parent].records.clone_from(&records);
            self.branches[parent].graves.clone_from(&graves);
            // What was merged comes back as it was before.
            if join == MergeVerb::Promote {
                self.branches[at].base = values;
            }
        }
        if join == MergeVerb::Merge {
            self.branches[at].alive = false;
            assert_eq!(self.memory.info(self.ids[&at]).unwrap_err().kind(), Kind::Gone);
        } else {
            self.branches[at].records = records;
            self.branches[at].graves = graves;
            self.branches[at].note(self.memory.last_seq());
        }
        if join != MergeVerb::Pull {
            self.branches[parent].note(self.memory.last_seq());
        }
    }

    /// Resolves every conflict for one side by hand, and tries again.
    fn resolve_all(&mut self, at: usize, parent: usize, join: MergeVerb) {
        let side = if self.chance.one_in(2) { Side::Child } else { Side::Parent };
        let dry = self.memory.merge(&who(), self.ids[&at], join, true).unwrap();
        for conflict in &dry.conflicts {
            self.memory.resolve_conflict(&who(), self.ids[&at], &conflict.id, side).unwrap();
        }
        let word = if side == Side::Child { "child-wins" } else { "parent-wins" };
        let merged = self.merged(at, parent, word).unwrap();
        if join == MergeVerb::Merge && self.has_children(at) {
            return;
        }
        self.memory.merge(&who(), self.ids[&at], join, false).unwrap();
        self.enact(at, parent, join, merged);
    }

    fn discard(&mut self, at: usize) {
        let result = self.memory.discard(&who(), self.ids[&at]);
        if at == 0 {
            assert_eq!(result.unwrap_err().kind(), Kind::NotPermitted);
        } else if self.has_children(at) {
            assert_eq!(result.unwrap_err().kind(), Kind::NotEmpty);
        } else {
            result.unwrap();
            self.branches[at].alive = false;
        }
    }

    fn checkpoint_or_rollback(&mut self, at: usize) {
        let label = format!("c{}", self.chance.below(3));
        let time = self.tick();
        let branch = &mut self.branches[at];
        if let Some(records) = branch.checkpoints.get(&label).cloned() {
            self.memory.rollback(&who(), self.ids[&at], &label).unwrap();
            let gone: Vec<String> = branch.records.keys().filter(|id| !records.contains_key(*id)).cloned().collect();
            branch.graves = branch.checkpoint_graves[&label].clone();
            branch.graves.extend(gone.into_iter().map(|id| (id, time)));
            branch.records = records;
            branch.base = branch.checkpoint_bases[&label].clone();
            branch.note(self.memory.last_seq());
        } else {
            self.memory.checkpoint(&who(), self.ids[&at], &label, None).unwrap();
            branch.checkpoints.insert(label.clone(), branch.records.clone());
            branch.checkpoint_bases.insert(label.clone(), branch.base.clone());
            branch.checkpoint_graves.insert(label, branch.graves.clone());
        }
    }

    fn strategy(&mut self, at: usize) {
        let all = engramfs::lineage::Strategy::ALL;
        let strategy = all[self.chance.below(all.len())].name();
        self.memory.set(&who(), self.ids[&at], Setting::Strategy, strategy).unwrap();
        self.branches[at].strategy = strategy;
    }

    /// A clean end, or the death of the process: nothing acknowledged may be missing.
    fn reopen(&mut self) {
        if self.chance.one_in(2) {
            self.memory.close().unwrap();
        }
        self.memory = open(&self.disk).unwrap();
    }

    fn check(&mut self) {
        let mut heads: HashMap<Vec<(String, String)>, engramfs::memory::Hash> = HashMap::new();
        for (at, branch) in self.branches.iter().enumerate().filter(|(_, branch)| branch.alive) {
            let id = self.memory.resolve(&branch.path).unwrap();
            assert_eq!(id, self.ids[&at]);
            let view = View::Branch(id);
            let expected: Vec<(String, String)> = branch.values().into_iter().collect();
            assert_eq!(texts(&self.memory, &view), expected, "{}", branch.path);
            let snapshot = self.memory.snapshot(&view).unwrap();
            assert_eq!(*heads.entry(expected).or_insert(snapshot.head()), snapshot.head(), "{}", branch.path);
            for (label, records) in &branch.checkpoints {
                let view = View::Checkpoint(id, label.as_str().into());
                let expected: Vec<_> = records.iter().map(|(id, (text, _))| (id.clone(), text.clone())).collect();
                assert_eq!(texts(&self.memory, &view), expected, "{} at {label}", branch.path);
            }
        }
        let at = self.pick();
        self.ask(at);
    }

    /// The nearest records are those of a plain scan over the model.
    fn ask(&mut self, at: usize) {
        if self.memory.setting(&View::Branch(self.ids[&at]), Setting::Dim).unwrap().is_empty() {
            return;
        }
        let query = self.chance.vector(3);
        let line = serde_json::json!({ "vector": query, "k": 5 }).to_string();
        let answer = self.memory.query(&View::Branch(self.ids[&at]), &Query::parse(&line).unwrap()).unwrap();
        let prepared = engramfs::vector::PreparedVector::new(engramfs::vector::Metric::Cosine, query);
        let mut expected: Vec<(f32, String)> = self.branches[at]
            .values()
            .into_iter()
            .map(|(id, text)| {
                let vector = vector_of(&text);
                (prepared.score(&vector, engramfs::vector::norm(&vector)), id)
            })
            .collect();
        expected.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        expected.truncate(5);
        let found: Vec<(f32, String)> =
            answer.hits.iter().map(|hit| (hit.score.value() as f32, hit.id.to_string())).collect();
        assert_eq!(found, expected);
    }
}

/// A vector that follows from the text, so that equal texts are equal records.
fn vector_of(text: &str) -> Vec<f32> {
    let seed = text.bytes().fold(1u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    Chance(seed).vector(3)
}

#[test]
fn random_histories_agree_with_the_model() {
    for seed in 0..rounds(30) as u64 {
        let mut chance = Chance(seed);
        let steps: Vec<Step> = (0..300).map(|_| Step::random(&mut chance)).collect();
        run_steps(seed, &steps, |steps| {
            let mut harness = Harness::new();
            for (number, step) in steps.iter().enumerate() {
                harness.step(*step);
                if number % 5 == 0 {
                    harness.check();
                }
            }
            harness.check();
            harness.memory.close().unwrap();
            verify(&harness.disk).unwrap();
        });
    }
}
