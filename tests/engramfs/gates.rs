//! Attacks on a gate, at random, against a plain model of who has approved of what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Actor, BranchId, Environment, Hash, Memory, MergeOptions, MergeVerb, OpenMode, RevertVerb, ReviewRequest, Setting,
    SharedLogEntryInput, Time,
};

use crate::files::write;
use crate::support::{Chance, delete, environment, main_of, put, rounds, verify};

/// Nanoseconds of an hour.
const HOUR_NANOS: i64 = 3_600_000_000_000;
/// How long an approval holds, as the contract says.
const HOLDS: i64 = 24 * HOUR_NANOS;

fn user(uid: u32) -> Actor {
    Actor { uid, gid: uid, name: format!("u{uid}").into() }
}

/// The owner of `main`, those who may be approvers, and authors.
const OWNER: u32 = 1;
const REVIEWERS: [u32; 4] = [10, 11, 12, 13];
const AUTHORS: [u32; 2] = [10, 20];

/// The last word of a reviewer: whether it approves, of which plan, for which heads, and when.
type Word = (bool, Hash, [Hash; 2], i64);

/// What there is beside the store: the child, its words, the gate and the approvers.
struct Attack {
    memory: Arc<Memory>,
    clock: Arc<AtomicI64>,
    main: BranchId,
    chance: Chance,
    /// The child and its owner.
    child: (BranchId, u32),
    name: String,
    is_proposed: bool,
    words: BTreeMap<u32, Word>,
    /// How many approvals the gate asks for, and whether they are strict.
    gate: (usize, bool),
    approvers: Vec<u32>,
    /// Plans that were seen, to try again.
    plans: Vec<Hash>,
    count: usize,
    attempts: usize,
    passed: usize,
}

fn open(disk: &ForgetfulDisk, clock: &Arc<AtomicI64>) -> Arc<Memory> {
    let (ticks, running) = (clock.clone(), clock.clone());
    let now = Box::new(move || Time(ticks.fetch_add(1_000, Ordering::Relaxed)));
    let uptime = Box::new(move || Duration::from_nanos(running.load(Ordering::Relaxed).cast_unsigned()));
    let environment = Environment { clock: now, uptime, owner: user(OWNER), ..environment() };
    Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap()
}

impl Attack {
    fn new(disk: &ForgetfulDisk, seed: u64) -> Attack {
        let clock = Arc::new(AtomicI64::new(1_700_000_000_000_000_000));
        let memory = open(disk, &clock);
        let main = main_of(&memory);
        let mut attack = Attack {
            memory,
            clock,
            main,
            chance: Chance(seed),
            child: (main, 0),
            name: String::new(),
            is_proposed: false,
            words: BTreeMap::new(),
            gate: (1, false),
            approvers: Vec::new(),
            plans: Vec::new(),
            count: 0,
            attempts: 0,
            passed: 0,
        };
        attack.settings();
        attack.fork();
        attack
    }

    fn settings(&mut self) {
        self.gate = (1 + self.chance.below(2), self.chance.one_in(3));
        let strict = if self.gate.1 { " strict" } else { "" };
        self.memory.set(&user(OWNER), self.main, Setting::Gate, &format!("approval {}{strict}", self.gate.0)).unwrap();
        self.approvers = REVIEWERS.into_iter().filter(|_| !self.chance.one_in(3)).collect();
        let lines: Vec<String> = self.approvers.iter().map(|uid| format!("uid:{uid}")).collect();
        self.memory.set(&user(OWNER), self.main, Setting::Approvers, &lines.join("\n")).unwrap();
    }

    fn fork(&mut self) {
        let owner = AUTHORS[self.chance.below(AUTHORS.len())];
        // A name comes back.
        self.name = format!("x{}", self.chance.below(2));
        let child = self.memory.fork(&user(owner), self.main, &self.name, None).unwrap();
        (self.child, self.is_proposed) = ((child, owner), false);
        self.words.clear();
        self.write();
    }

    /// Few values, so that contents and plans come back.
    fn write(&mut self) {
        let (child, owner) = self.child;
        let (branch, uid) = if self.chance.one_in(4) { (self.main, OWNER) } else { (child, owner) };
        let text = format!("text {}", self.chance.below(3));
        if self.chance.one_in(3) {
            return write(&self.memory, branch, "notes", &text);
        }
        let id = format!("r{}", self.chance.below(2));
        let edit = if self.chance.one_in(4) { delete(&id) } else { put(&id, None, Some(&text)) };
        self.memory.commit(&user(uid), branch, vec![edit]).unwrap();
    }

    fn plan(&self) -> (Hash, [Hash; 2]) {
        let found = self.memory.dry_run(&user(self.child.1), self.child.0, MergeVerb::Promote, None).unwrap();
        let head = |branch| self.memory.snapshot(&engramfs::memory::View::Branch(branch)).unwrap().head();
        (found.plan, [head(self.child.0), head(self.main)])
    }

    fn propose(&mut self) {
        self.memory.propose(&user(self.child.1), self.child.0, "").unwrap();
        self.is_proposed = true;
        self.words.clear();
        self.plans.push(self.plan().0);
    }

    fn review(&mut self) {
        let uid = if self.chance.one_in(4) { 99 } else { REVIEWERS[self.chance.below(REVIEWERS.len())] };
        let page = self.memory.plan_page(self.child.0).ok();
        let page: Option<serde_json::Value> = page.and_then(|page| serde_json::from_slice(&page).ok());
        let hash = |key: &str| page.as_ref().and_then(|page| page[key].as_str()?.parse().ok()).unwrap_or(Hash::ZERO);
        let current: Hash = hash("plan");
        let old = self.plans.get(self.chance.below(self.plans.len().max(1))).copied();
        let plan = if self.chance.one_in(3) { old.unwrap_or(current) } else { current };
        let approves = !self.chance.one_in(5);
        let request = ReviewRequest { name: &self.name, plan, approves, text: "" };
        let said = self.memory.review(&user(uid), self.main, request);
        let may = self.is_proposed && uid != self.child.1 && self.approvers.contains(&uid) && plan == current;
        assert_eq!(said.is_ok(), may, "{said:?}");
        if may {
            let heads = [hash("child_head"), hash("parent_head")];
            self.words.insert(uid, (approves, plan, heads, self.clock.load(Ordering::Relaxed)));
        }
    }

    /// Whether the model lets a merge of the present state pass.
    fn passes(&self) -> bool {
        let ((plan, heads), now) = (self.plan(), self.clock.load(Ordering::Relaxed));
        let counts = |uid: &u32, word: &Word| {
            *uid != self.child.1 && self.approvers.contains(uid) && word.1 == plan && now - word.3 <= HOLDS
        };
        let words = || self.words.iter().filter(|(uid, word)| counts(uid, word)).map(|(_, word)| word);
        let approvals = words().filter(|word| word.0 && (!self.gate.1 || word.2 == heads)).count();
        words().all(|word| word.0) && approvals >= self.gate.0
    }

    fn merge(&mut self) {
        let expected = self.passes();
        let uid = [self.child.1, OWNER, 0][self.chance.below(3)];
        let kind = if self.chance.one_in(2) { MergeVerb::Promote } else { MergeVerb::Merge };
        let done = self.memory.merge_with(&user(uid), self.child.0, kind, MergeOptions::default());
        self.attempts += 1;
        assert_eq!(done.is_ok(), expected, "{done:?} by {uid} at attempt {}", self.attempts);
        match done {
            Err(error) => assert!(["gate_pending", "gate_refused"].contains(&error.code()), "{error}"),
            Ok(_) => {
                self.passed += 1;
                self.is_proposed = false;
                self.words.clear();
                if kind == MergeVerb::Merge { self.fork() } else { self.write() }
            }
        }
    }

    fn step(&mut self) {
        self.count += 1;
        match self.chance.below(20) {
            0..=1 => self.write(),
            2..=4 => self.propose(),
            5..=10 => self.review(),
            11 => drop(self.clock.fetch_add(self.chance.below(30) as i64 * HOUR_NANOS, Ordering::Relaxed)),
            12 if self.chance.one_in(3) => self.settings(),
            13 if self.is_proposed && self.chance.one_in(3) => {
                self.memory.withdraw(&user(self.child.1), self.child.0).unwrap();
                (self.is_proposed, self.words) = (false, BTreeMap::new());
            }
            14 if self.chance.one_in(4) => {
                self.memory.discard(&user(self.child.1), self.child.0).unwrap();
                self.fork();
            }
            15 if self.chance.one_in(4) => {
                // Given to somebody who may have approved.
                let to = REVIEWERS[self.chance.below(REVIEWERS.len())];
                self.memory.chown(&user(0), self.child.0, to).unwrap();
                self.child.1 = to;
            }
            _ => self.merge(),
        }
    }
}

/// Rules, replays, races with the parent, expiry, one's own word, another's branch: nothing passes that the model does not let pass.
#[test]
fn no_merge_passes_a_gate_that_the_model_does_not_let_pass() {
    let (mut attempts, mut passed) = (0, 0);
    for seed in 0..rounds(6) as u64 {
        let disk = ForgetfulDisk::new();
        let mut attack = Attack::new(&disk, seed + 1);
        for _ in 0..200 {
            attack.step();
            if attack.chance.one_in(60) {
                attack.memory.close().unwrap();
                attack.memory = open(&disk, &attack.clock);
            }
        }
        attack.memory.close().unwrap();
        verify(&disk).unwrap();
        attempts += attack.attempts;
        passed += attack.passed;
    }
    assert!(passed > 0 && attempts > 2 * passed, "{passed} of {attempts}: both sorts came");
}

/// A summary opens the gate for what was done since the branch got its base, which a promote sets anew.
#[test]
fn a_summary_that_was_written_before_the_base_opens_no_gate() {
    let memory = open(&ForgetfulDisk::new(), &Arc::new(AtomicI64::new(1_700_000_000_000_000_000)));
    let (main, author) = (main_of(&memory), user(AUTHORS[1]));
    memory.set(&user(OWNER), main, Setting::Gate, "summary").unwrap();
    let child = memory.fork(&author, main, "x", None).unwrap();
    let promote = |text: &str| {
        memory.commit(&author, child, vec![put("a", None, Some(text))]).unwrap();
        let done = memory.merge_with(&author, child, MergeVerb::Promote, MergeOptions::default());
        done.map(drop).map_err(|error| error.code())
    };
    let tell = |text: &str| memory.append_log(&author, child, &[SharedLogEntryInput::parse(text).unwrap()]).unwrap();
    assert_eq!(promote("one"), Err("gate_pending"));
    tell("the first");
    tell("what one is");
    assert_eq!(promote("one"), Ok(()));
    assert_eq!(promote("two"), Err("gate_pending"));
    tell("what two is");
    assert_eq!(promote("two"), Ok(()));
}

/// Who is asked has to be one when it is merged, not only when the word is given.
#[test]
fn the_word_of_who_is_no_approver_any_more_opens_no_gate() {
    let memory = open(&ForgetfulDisk::new(), &Arc::new(AtomicI64::new(1_700_000_000_000_000_000)));
    let (main, author) = (main_of(&memory), user(AUTHORS[1]));
    let approvers = |list: &str| memory.set(&user(OWNER), main, Setting::Approvers, list).unwrap();
    memory.set(&user(OWNER), main, Setting::Gate, "approval 1").unwrap();
    approvers("uid:10");
    let child = memory.fork(&author, main, "x", None).unwrap();
    memory.commit(&author, child, vec![put("a", None, Some("text"))]).unwrap();
    memory.propose(&author, child, "").unwrap();
    let plan = memory.dry_run(&author, child, MergeVerb::Merge, None).unwrap().plan;
    memory.review(&user(10), main, ReviewRequest { name: "x", plan, approves: true, text: "" }).unwrap();
    let merge = || memory.merge_with(&author, child, MergeVerb::Merge, MergeOptions::default());
    approvers("uid:11");
    assert_eq!(merge().map(drop).map_err(|error| error.code()), Err("gate_pending"));
    approvers("uid:10 uid:11");
    merge().unwrap();
}

/// Whoever reads the lineage later learns why, and of which plan.
#[test]
fn the_lineage_of_the_parent_has_what_approvers_said_of_a_proposal() {
    let memory = open(&ForgetfulDisk::new(), &Arc::new(AtomicI64::new(1_700_000_000_000_000_000)));
    let (main, author) = (main_of(&memory), user(AUTHORS[1]));
    memory.set(&user(OWNER), main, Setting::Approvers, "uid:10").unwrap();
    let child = memory.fork(&author, main, "x", None).unwrap();
    memory.commit(&author, child, vec![put("a", None, Some("text"))]).unwrap();
    memory.propose(&author, child, "").unwrap();
    let plan = memory.dry_run(&author, child, MergeVerb::Merge, None).unwrap().plan;
    for (approves, op, text) in [(false, "reject", "cites no source"), (true, "approve", "it does")] {
        memory.review(&user(10), main, ReviewRequest { name: "x", plan, approves, text }).unwrap();
        let line = memory.lineage_lines(main, false).unwrap().pop().unwrap();
        let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
        let said = ["op", "proposal", "plan", "text"].map(|key| entry[key].as_str().unwrap_or_default());
        assert_eq!(said, [op, "x", plan.to_string().as_str(), text]);
    }
}

#[test]
fn pulls_reverts_writes_and_discards_pass_a_gate() {
    let memory = open(&ForgetfulDisk::new(), &Arc::new(AtomicI64::new(1_700_000_000_000_000_000)));
    let (main, who) = (main_of(&memory), user(OWNER));
    let x = memory.fork(&who, main, "x", None).unwrap();
    let below = memory.fork(&who, x, "below", None).unwrap();
    for branch in [main, x] {
        memory.set(&who, branch, Setting::Gate, "approval 1").unwrap();
    }
    let commit = |branch, id: &str| memory.commit(&who, branch, vec![put(id, None, Some("text"))]).unwrap();
    commit(main, "a");
    memory.merge(&who, x, MergeVerb::Pull, false).unwrap();
    commit(x, "b");
    memory.undo(&who, x, RevertVerb::Undo, 1, false).unwrap();
    commit(below, "c");
    let refused = memory.merge(&who, below, MergeVerb::Promote, false).unwrap_err();
    assert_eq!(refused.code(), "gate_pending", "a control");
    memory.discard(&who, below).unwrap();
}
