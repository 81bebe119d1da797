//! From a revision, as a user writes it, to the state that it names.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::branch::StateInfo;
use crate::lineage::{Entry, SignedEntry};
use crate::memory::catalog::{
    Branch, BranchId, BranchRef, Catalog, EndedBranch, NEWEST_STATES_KEPT, Revision, RevisionPoint, StateSource, View,
};
use crate::memory::history::HistoryReader;
use crate::memory::{Actor, BranchError, Error, Memory};
use crate::object::Time;

/// A state that a revision names: where it is taken from, and since when the branch had it.
#[derive(Clone, Debug)]
pub struct FoundState {
    /// Where it is read from: a checkpoint by its label only if the revision is that.
    pub source: StateSource,
    /// The label of the checkpoint that has the state, also if the revision is its entry or a time; `None` if it is none.
    pub checkpoint: Option<Arc<str>>,
    /// The entry that the revision leads to, behind which the branch had the state.
    entry: u64,
    time: Time,
}

impl FoundState {
    /// Returns what the result of a verb says of it: `entry`, `time` and `checkpoint`, the label, null if it is none.
    pub fn to_json(&self) -> Value {
        json!({ "entry": self.entry, "time": self.time.to_string(), "checkpoint": self.checkpoint.as_deref() })
    }

    /// Returns it as a view of the branch in which it was found. Fails with code `not_kept` for the last state of a branch
    /// that has ended, which can be forked alone.
    pub fn view(&self, branch: BranchId) -> Result<View, Error> {
        match (&self.checkpoint, &self.source) {
            (Some(label), _) | (None, StateSource::Checkpoint(label)) => Ok(View::Checkpoint(branch, label.clone())),
            (None, StateSource::Entry(entry)) => Ok(View::At(branch, *entry)),
            (None, StateSource::Ended(entry)) => Err(Error::NotKept(entry.to_string())),
        }
    }
}

impl Memory {
    /// Finds the state of a branch that a revision names: a checkpoint, an entry or a time.
    ///
    /// Kind `NotFound`, with the code `no_such_checkpoint`; `no_such_state` for a time or entry before the branch was
    /// made, in the future, or of another branch; or `not_kept` if it is past `config/keep`.
    pub fn find_state(&self, branch: BranchId, revision: &Revision) -> Result<FoundState, Error> {
        let search = StateSearch::new(self, branch)?;
        let branch = &search.branch;
        // Labels first: one that reads as an entry or a time can't be given, so nothing else is hidden by this.
        if let Some(checkpoint) = branch.checkpoints.get(revision.label()) {
            let (label, entry, time) = (revision.label().clone(), checkpoint.seq, checkpoint.time);
            return Ok(FoundState {
                source: StateSource::Checkpoint(label.clone()),
                checkpoint: Some(label),
                entry,
                time,
            });
        }
        let Some(point) = revision.point() else { return Err(Error::NoCheckpoint(revision.to_string())) };
        let none = || Error::NoState(revision.to_string());
        let found = match point {
            RevisionPoint::Number(seq) => search.find_after(seq)?,
            RevisionPoint::Entry(hash) => {
                search.find_after(search.reader.find_by_hash(&hash)?.ok_or_else(none)?.entry.seq)?
            }
            RevisionPoint::At(time) => search.find_at(time, self.now())?,
            RevisionPoint::NanosAgo(age) => {
                let now = self.now();
                search.find_at(now.plus_nanos(age.saturating_neg()), now)?
            }
        };
        match found {
            StateOutcome::Found(state) => Ok(state),
            StateOutcome::NeverExisted => Err(none()),
            StateOutcome::Dropped => Err(Error::NotKept(revision.to_string())),
        }
    }
}

impl Memory {
    /// Finds the last state of a child branch that was discarded or merged, by its name (of several the latest) or by
    /// the entry that ended it.
    ///
    /// Root and its former owner find it, and a merged one also the owner of `branch`; for all others there is none:
    /// code `no_such_state`. Code `not_kept` if it is past `config/keep`, kind `Gone` if `branch` has ended.
    pub fn find_ended(&self, who: &Actor, branch: BranchId, name: &str) -> Result<FoundState, Error> {
        let catalog = self.catalog().clone();
        let mut found = ended_children(&catalog, who, catalog.branch(branch)?);
        let found = found.find(|(entry, ended)| *ended.name == *name || name.parse() == Ok(**entry));
        let (entry, ended) = found.ok_or_else(|| BranchError::NoEndedBranch(name.to_owned()))?;
        let kept = catalog.retained.newest_at_or_before(ended.id, ended.last_entry)?;
        if kept.is_none_or(|kept| kept.key.1 != ended.last_entry) {
            return Err(Error::NotKept(name.to_owned()));
        }
        Ok(FoundState { source: StateSource::Ended(*entry), checkpoint: None, entry: *entry, time: ended.ended })
    }
}

/// Children of a branch that have ended and are listed at once, at most.
const LISTED_MAX: usize = 1_000;

/// Iterates over the children of a branch that have ended, as far as a user may find them, the latest first.
fn ended_children<'a>(
    catalog: &'a Catalog,
    who: &'a Actor,
    branch: &'a Branch,
) -> impl Iterator<Item = (&'a u64, &'a Arc<EndedBranch>)> {
    catalog.retained.ended.iter().rev().filter(|(_, ended)| {
        let may = who.uid == 0 || who.uid == ended.uid || (ended.is_merged && who.uid == branch.uid);
        may && ended.parent == Some(branch.id)
    })
}

impl Memory {
    /// Returns the child branches that were discarded or merged and that the caller may bring back, the latest first,
    /// at most 1,000. Each is an object with its name, the entry that ended it, its owner, and when it was made and
    /// ended. Fails only with `Gone`, if `branch` has ended.
    pub fn ended_children(&self, who: &Actor, branch: BranchId) -> Result<Vec<Value>, Error> {
        let catalog = self.catalog().clone();
        let line = |(entry, ended): (&u64, &Arc<EndedBranch>)| {
            json!({
                "name": &*ended.name, "seq": entry, "op": if ended.is_merged { "merge" } else { "discard" }, "owner": ended.uid,
                "created": ended.created.to_string(), "ended": ended.ended.to_string(),
            })
        };
        Ok(ended_children(&catalog, who, catalog.branch(branch)?).take(LISTED_MAX).map(line).collect())
    }
}

/// What became of a search, by which [`Error::NoState`] and [`Error::NotKept`] are told apart.
enum StateOutcome {
    Found(FoundState),
    /// The branch never had it: before it was made, in the future, or an entry of others.
    NeverExisted,
    /// It had it, and `config/keep` or a full disk has let go of it.
    Dropped,
}

/// A branch with its lineage, as of one moment: what is found is not outdated by what others write.
pub(in crate::memory) struct StateSearch<'a> {
    /// What existed at that moment.
    pub catalog: Catalog,
    /// The branch in that catalog.
    pub branch: BranchRef,
    /// Reads the entries of that moment or of one soon after.
    pub reader: HistoryReader<'a>,
}

impl<'a> StateSearch<'a> {
    /// Begins a search in a branch as it is now. Fails with `Error::Gone` if it has ended.
    pub fn new(memory: &'a Memory, branch: BranchId) -> Result<StateSearch<'a>, Error> {
        let catalog = memory.catalog().clone();
        let branch = catalog.branch_ref(branch)?.clone();
        Ok(StateSearch { catalog, branch, reader: memory.history_reader() })
    }

    /// Looks for the state behind an entry, as a checkpoint or as a kept state.
    fn find_after(&self, seq: u64) -> Result<StateOutcome, Error> {
        // A branch has the number of the entry that made it, so no entry before that can concern it.
        if seq < self.branch.id.0 || seq > self.reader.newest() {
            return Ok(StateOutcome::NeverExisted);
        }
        if seq < self.reader.first() {
            // Of an entry that was moved out nothing is known but the states that are kept by its number.
            let kept = self.kept_after(seq, seq)?;
            return Ok(kept.map_or(StateOutcome::Dropped, |kept| self.found(kept, seq)));
        }
        let signed = self.reader.entry(seq)?;
        if !self.involves_branch(&signed.entry) {
            return Ok(StateOutcome::NeverExisted);
        }
        // A checkpoint holds its state for as long as it is there, so it is found whatever `config/keep` has let go of.
        if let Some(checkpoint) = self.checkpoint_at(seq) {
            return Ok(StateOutcome::Found(checkpoint));
        }
        let Some(change) = self.last_change(signed)? else { return Ok(StateOutcome::Dropped) };
        let kept = self.kept_after(change, seq)?;
        Ok(kept.map_or(StateOutcome::Dropped, |kept| self.found(kept, seq)))
    }

    /// Returns what is known of the state that `change` gave the branch, and that it still had behind the entry `seq`;
    /// `None` if it is not kept. Only the state of this very change counts: the newest that is kept may be an older one,
    /// and not what the branch had.
    fn kept_after(&self, change: u64, seq: u64) -> Result<Option<StateInfo>, Error> {
        let kept = self.catalog.retained.newest_at_or_before(self.branch.id, seq)?;
        Ok(kept.into_iter().chain([self.present_state()]).find(|kept| kept.key.1 == change))
    }

    /// Looks for the newest kept state at or before a time; never there for a time after `now`.
    fn find_at(&self, time: Time, now: Time) -> Result<StateOutcome, Error> {
        if time < self.branch.created || time > now {
            return Ok(StateOutcome::NeverExisted);
        }
        let kept = self.catalog.retained.newest_at(self.branch.id, time)?;
        let kept = kept.into_iter().chain(Some(self.present_state()).filter(|present| present.time <= time));
        // Of one branch, so that the key with the later entry is the greater.
        let kept = kept.max_by_key(|kept| kept.key);
        let checkpoints = self.branch.checkpoints.values().filter(|checkpoint| checkpoint.time <= time);
        let checkpoint = checkpoints.map(|checkpoint| checkpoint.seq).max();
        Ok(match (kept, checkpoint) {
            // The later of the two wins: both were the branch's state by that time, and only the last one still was.
            (Some(kept), checkpoint) if checkpoint.is_none_or(|seq| seq < kept.key.1) => self.found(kept, kept.key.1),
            (_, Some(seq)) => self.checkpoint_at(seq).map_or(StateOutcome::Dropped, StateOutcome::Found),
            (_, None) => StateOutcome::Dropped,
        })
    }

    /// What is known of the branch's present state, which is there however short `config/keep` is.
    fn present_state(&self) -> StateInfo {
        let (id, time) = (self.branch.id.0, self.branch.changed);
        StateInfo { key: (id, self.branch.state_entry), time, is_pinned: false }
    }

    fn found(&self, kept: StateInfo, entry: u64) -> StateOutcome {
        let source = StateSource::Entry(kept.key.1);
        StateOutcome::Found(FoundState { source, checkpoint: None, entry, time: kept.time })
    }

    /// Returns the number of the entry that gave the branch the state that it has behind an entry. `None` and failures
    /// as of [`StateSearch::state_before`].
    fn last_change(&self, signed: Arc<SignedEntry>) -> Result<Option<u64>, Error> {
        if self.changes_state(&signed.entry) {
            return Ok(Some(signed.entry.seq));
        }
        self.state_before(signed.entry.seq)
    }

    /// Returns the number of the entry that gave the branch the state before an entry of the lineage. `None` if the
    /// branch was made after that, or the entry that is looked for was moved out and its state is not kept. Fails like
    /// [`StateSearch::change_before`], or if a file of states can't be read.
    pub fn state_before(&self, seq: u64) -> Result<Option<u64>, Error> {
        if let Some(change) = self.change_before(seq)? {
            return Ok(Some(change.entry.seq));
        }
        let (id, first) = (self.branch.id, self.reader.first());
        if id.0 >= first {
            return Ok(None);
        }
        if self.branch.state_entry < first {
            return Ok(Some(self.branch.state_entry));
        }
        // Of a branch with more steps than newest states stay, the state may be one that `config/keep_every` has let go
        // of. The newest that is kept would be an older one then.
        if self.reader.step_count(id.0)? >= NEWEST_STATES_KEPT as u64 {
            return Ok(None);
        }
        Ok(self.catalog.retained.newest_at_or_before(id, first - 1)?.map(|kept| kept.key.1))
    }

    /// Returns the last entry before another that gave the branch another state; `None` if that was moved out, or the
    /// branch was made after it. Kind `Io` or `Damaged` if the history can't be read.
    pub fn change_before(&self, seq: u64) -> Result<Option<Arc<SignedEntry>>, Error> {
        // Steps of a branch include entries that changed no content, such as settings, and these are walked over.
        let mut at = seq;
        loop {
            let before = self.reader.last_step(self.branch.id.0, at - 1)?;
            let first = self.branch.id.0.max(self.reader.first());
            let Some(step) = before.filter(|step| step.seq >= first) else { return Ok(None) };
            let signed = self.reader.entry(step.seq)?;
            if self.changes_state(&signed.entry) {
                return Ok(Some(signed));
            }
            at = step.seq;
        }
    }

    /// Returns whether an entry is one of the branch's own, or a merge or promote of a child into it.
    fn involves_branch(&self, entry: &Entry) -> bool {
        entry.branch_id == self.branch.id.0 || (entry.parent_id == self.branch.id.0 && entry.merges_into_parent())
    }

    /// Returns whether an entry gave the branch another state, as [`Entry::changes_state`] says.
    pub fn changes_state(&self, entry: &Entry) -> bool {
        entry.changes_state(self.branch.id.0)
    }

    fn checkpoint_at(&self, seq: u64) -> Option<FoundState> {
        let (label, checkpoint) = self.branch.checkpoint_at(seq)?;
        let (source, time) = (StateSource::Entry(seq), checkpoint.time);
        Some(FoundState { source, checkpoint: Some(label.clone()), entry: seq, time })
    }
}
