//! Random operations against a plain model: every branch must hold what the model says, at every
//! step, through seals, crashes and reopenings; equal content must have equal heads.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{BranchId, Kind, Memory, MergeKind, MergeTerms, Query, Revision, Setting, Side, View};

use crate::shrink::run_steps;
use crate::support::{Chance, delete, main_of, open, put, rounds, texts, verify, who};

/// A value, and when it was written; none is a delete.
type Value = (Option<String>, u64);

#[derive(Clone, Default)]
struct ModelBranch {
    path: String,
    parent: Option<usize>,
    records: BTreeMap<String, (String, u64)>,
    graves: BTreeMap<String, u64>,
    base: BTreeMap<String, String>,
    checkpoints: BTreeMap<String, BTreeMap<String, (String, u64)>>,
    checkpoint_graves: BTreeMap<String, BTreeMap<String, u64>>,
    checkpoint_bases: BTreeMap<String, BTreeMap<String, String>>,
    strategy: &'static str,
    alive: bool,
    /// What it was behind each entry that changed it, and its base then.
    history: Vec<(u64, ModelState)>,
}

#[derive(Clone)]
struct ModelState {
    records: BTreeMap<String, (String, u64)>,
    graves: BTreeMap<String, u64>,
    base: BTreeMap<String, String>,
}

impl ModelBranch {
    fn values(&self) -> BTreeMap<String, String> {
        self.records.iter().map(|(id, (text, _))| (id.clone(), text.clone())).collect()
    }

    fn change(&self, id: &str) -> Value {
        match self.records.get(id) {
            Some((text, time)) => (Some(text.clone()), *time),
            None => (None, self.graves.get(id).copied().unwrap_or(0)),
        }
    }

    /// Notes what it is behind an entry.
    fn note(&mut self, seq: u64) {
        if self.history.last().is_none_or(|(last, _)| *last < seq) {
            let (records, graves, base) = (self.records.clone(), self.graves.clone(), self.base.clone());
            self.history.push((seq, ModelState { records, graves, base }));
        }
    }

    fn with(&self, state: &ModelState, base: &ModelState) -> ModelBranch {
        let base = ModelBranch { records: base.records.clone(), ..Default::default() }.values();
        ModelBranch { records: state.records.clone(), graves: state.graves.clone(), base, ..self.clone() }
    }

    fn set(&mut self, id: &str, value: Value) {
        match value {
            (Some(text), time) => {
                self.graves.remove(id);
                self.records.insert(id.to_owned(), (text, time));
            }
            (None, time) => {
                if self.records.remove(id).is_some() {
                    self.graves.insert(id.to_owned(), time);
                }
            }
        }
    }
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
enum Action {
    Write,
    Fork,
    Join(MergeKind),
    Discard,
    CheckpointOrRollback,
    Strategy,
    Revert,
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
        let action = match chance.below(22) {
            0..=7 => Write,
            8..=10 => Fork,
            11..=12 => Join(MergeKind::Merge),
            13 => Join(MergeKind::Promote),
            14 => Join(MergeKind::Pull),
            15 => Discard,
            16 => CheckpointOrRollback,
            17 => Strategy,
            18..=19 => Revert,
            20 if chance.one_in(4) => Collect,
            20 => Seal,
            _ => Reopen,
        };
        Step(action, chance.next())
    }
}

/// The plain three-way merge: for each id by the truth table.
fn three_way(child: &ModelBranch, parent: &ModelBranch, name: &str, strategy: &str) -> Option<ModelBranch> {
    let mut result = parent.clone();
    let ids = child.base.keys().chain(child.records.keys()).collect::<std::collections::BTreeSet<_>>();
    for id in ids {
        let base = child.base.get(id);
        let (ours, theirs) = (parent.change(id), child.change(id));
        if theirs.0.as_ref() == base {
            continue;
        }
        let take = if ours.0.as_ref() == base {
            true
        } else if ours.0 == theirs.0 {
            false
        } else if strategy == "keep-both" && base.is_none() {
            let ids = (1..).map(|n| if n == 1 { format!("{id}~{name}") } else { format!("{id}~{name}~{n}") });
            let of_all = [&parent.records, &child.records, &result.records];
            let is_free = |id: &String| of_all.iter().all(|records| !records.contains_key(id));
            let id = ids.into_iter().find(is_free).unwrap();
            result.set(&id, theirs.clone());
            false
        } else {
            match strategy {
                "child-wins" => true,
                "parent-wins" => false,
                "manual" => return None,
                _ => ours.1 <= theirs.1,
            }
        };
        if take {
            result.set(id, theirs);
        }
    }
    Some(result)
}

struct World {
    disk: ForgetfulDisk,
    memory: Arc<Memory>,
    branches: Vec<ModelBranch>,
    ids: HashMap<usize, BranchId>,
    clock: u64,
    chance: Chance,
}

impl World {
    fn new() -> World {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = ModelBranch { path: "main".into(), alive: true, strategy: "newest-wins", ..Default::default() };
        let ids = HashMap::from([(0, main_of(&memory))]);
        let mut main = main;
        main.note(ids[&0].0);
        World { disk, memory, branches: vec![main], ids, clock: 0, chance: Chance(0) }
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
        self.branches[at].note(self.memory.version());
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
        let branch = self.branches[at].clone();
        if branch.history.len() < 2 {
            return;
        }
        let place = 1 + self.chance.below(branch.history.len() - 1);
        let ((_, before), (seq, after)) = (&branch.history[place - 1], &branch.history[place]);
        let expected = three_way(&branch.with(before, after), &branch, "before", branch.strategy);
        let entry = Revision::parse(&seq.to_string()).unwrap();
        let revert = |dry| self.memory.revert(&who(), self.ids[&at], &entry, MergeTerms::default(), dry);
        let (dry, done) = (revert(true).unwrap(), revert(false));
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
        branch.note(self.memory.version());
    }

    fn join(&mut self, at: usize, join: MergeKind) {
        let Some(parent) = self.branches[at].parent else {
            assert_eq!(self.memory.merge(&who(), self.ids[&at], join, false).unwrap_err().kind(), Kind::Invalid);
            return;
        };
        let strategy = self.branches[if join == MergeKind::Pull { at } else { parent }].strategy;
        let expected = self.merged(at, parent, strategy);
        let dry = self.memory.merge(&who(), self.ids[&at], join, true).unwrap();
        let done = self.memory.merge(&who(), self.ids[&at], join, false);
        self.tick();
        if join == MergeKind::Merge && self.has_children(at) {
            assert_eq!(done.unwrap_err().kind(), Kind::NotEmpty);
            return;
        }
        let Some(merged) = expected else {
            assert!(dry.is_blocked());
            assert_eq!(done.unwrap_err().kind(), Kind::Conflict);
            self.settle(at, parent, join);
            return;
        };
        let done = done.unwrap();
        assert_eq!((dry.counts, dry.head), (done.counts, done.head));
        self.enact(at, parent, join, merged);
    }

    fn enact(&mut self, at: usize, parent: usize, join: MergeKind, merged: ModelBranch) {
        let (records, graves) = (merged.records, merged.graves);
        let values: BTreeMap<String, String> =
            records.iter().map(|(id, (text, _))| (id.clone(), text.clone())).collect();
        if join == MergeKind::Pull {
            self.branches[at].base = self.branches[parent].values();
        } else {
            self.branches[parent].records.clone_from(&records);
            self.branches[parent].graves.clone_from(&graves);
            self.branches[at].base = values;
        }
        if join == MergeKind::Merge {
            self.branches[at].alive = false;
            assert_eq!(self.memory.info(self.ids[&at]).unwrap_err().kind(), Kind::Gone);
        } else {
            self.branches[at].records = records;
            self.branches[at].graves = graves;
            self.branches[at].note(self.memory.version());
        }
        if join != MergeKind::Pull {
            self.branches[parent].note(self.memory.version());
        }
    }

    /// Settles every conflict for one side by hand, and tries again.
    fn settle(&mut self, at: usize, parent: usize, join: MergeKind) {
        let side = if self.chance.one_in(2) { Side::Child } else { Side::Parent };
        let dry = self.memory.merge(&who(), self.ids[&at], join, true).unwrap();
        for conflict in &dry.conflicts {
            self.memory.resolve_conflict(&who(), self.ids[&at], &conflict.id, side).unwrap();
        }
        let word = if side == Side::Child { "child-wins" } else { "parent-wins" };
        let merged = self.merged(at, parent, word).unwrap();
        if join == MergeKind::Merge && self.has_children(at) {
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
            branch.note(self.memory.version());
        } else {
            self.memory.checkpoint(&who(), self.ids[&at], &label, None).unwrap();
            branch.checkpoints.insert(label.clone(), branch.records.clone());
            branch.checkpoint_bases.insert(label.clone(), branch.base.clone());
            branch.checkpoint_graves.insert(label, branch.graves.clone());
        }
    }

    fn strategy(&mut self, at: usize) {
        let all = ["child-wins", "parent-wins", "newest-wins", "keep-both", "manual"];
        let strategy = all[self.chance.below(all.len())];
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
        let answer = self.memory.ask(&View::Branch(self.ids[&at]), &Query::parse(&line).unwrap()).unwrap();
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
            let mut world = World::new();
            for (number, step) in steps.iter().enumerate() {
                world.step(*step);
                if number % 5 == 0 {
                    world.check();
                }
            }
            world.check();
            world.memory.close().unwrap();
            verify(&world.disk).unwrap();
        });
    }
}
