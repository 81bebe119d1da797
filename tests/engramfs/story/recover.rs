//! What a store holds, and the check of what a disk gives back.

use std::collections::BTreeMap;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{BranchId, Hash, Memory, Signal, View};

use super::Log;
use crate::support::{open, verify};

/// Heads and sizes by path; checkpoints as `path@label`.
pub(super) type Picture = BTreeMap<String, (Hash, u64)>;

/// Signals by path of a branch that sees them, and key.
pub(super) type SignalPicture = BTreeMap<String, Signal>;

/// The lifetime of a signal that ends with its publisher's lease.
pub(super) const LEASE: &str = "lease";

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

/// The signals that each branch sees.
pub(super) fn signals(memory: &Memory) -> SignalPicture {
    let mut found = SignalPicture::new();
    each_branch(memory, &mut |id| {
        let path = memory.info(id).unwrap().path;
        for (key, _) in memory.signals(id).unwrap() {
            let signal = memory.signal(id, &key).unwrap().unwrap();
            found.insert(format!("{path}/{key}"), Signal::clone(&signal));
        }
    });
    found
}

/// Opens the disk as after a crash: it must hold a state that was acknowledged, none older than
/// `least`, and pass every check. Returns the number of its last entry.
pub fn recover(disk: &ForgetfulDisk, log: &Log, least: u64) -> Result<u64, String> {
    let memory = open(disk).map_err(|error| format!("does not open: {error}"))?;
    let (seq, tip) = last_before_opening(&memory, log);
    if seq < least {
        return Err(format!("entries up to {least} were acknowledged as safe, and {seq} are there"));
    }
    // Below the first noted entry stand those that made the store.
    if let Some((first, _)) = log.pictures.first_key_value()
        && seq > *first
    {
        match log.pictures.get(&seq) {
            None => return Err(format!("entry {seq} was never acknowledged as the last one")),
            Some((noted, _)) if *noted != tip => return Err(format!("entry {seq} is another one")),
            Some((_, noted)) if *noted != picture(&memory) => {
                return Err(format!("the records at entry {seq} are a mix"));
            }
            Some(_) => check_signals(&memory, log, seq)?,
        }
    }
    verify(disk).map_err(|error| format!("does not verify: {error}"))?;
    Ok(seq)
}

/// Returns the last entry of a store as it was before it was opened: an opening signs that a lease was lost with the process.
fn last_before_opening(memory: &Memory, log: &Log) -> (u64, Hash) {
    let (seq, tip) = (memory.last_seq(), memory.tip());
    let is_noted = log.pictures.get(&seq).is_some_and(|(noted, _)| *noted == tip);
    let mut lost = None;
    each_branch(memory, &mut |id| {
        let last = memory.lineage_lines(id, false).unwrap().pop();
        let last: serde_json::Value = last.and_then(|line| serde_json::from_str(&line).ok()).unwrap_or_default();
        if (&last["seq"], &last["op"]) == (&seq.into(), &"lease_lost".into()) {
            lost = last["prev"].as_str().and_then(|prev| prev.parse().ok());
        }
    });
    lost.filter(|_| !is_noted).map_or((seq, tip), |prev| (seq - 1, prev))
}

/// Checks that the signals are as they were at some moment while an entry was the last one.
fn check_signals(memory: &Memory, log: &Log, seq: u64) -> Result<(), String> {
    let found = signals(memory);
    if found.values().any(|signal| signal.lifetime_text() == LEASE) {
        return Err(format!("a signal outlives the lease that it ends with: {found:?}"));
    }
    match log.signals.get(&seq) {
        Some(noted) if noted.contains(&found) => Ok(()),
        noted => Err(format!("the signals at entry {seq} are {found:?}, and were {noted:?}")),
    }
}
