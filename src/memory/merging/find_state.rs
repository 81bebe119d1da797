//! From a revision, as a user writes it, to the state that it names.

use serde_json::{Value, json};

use crate::lineage::{Entry, EntryOp};
use crate::memory::catalog::{BranchId, BranchRef, Revision, RevisionPoint, StateSource};
use crate::memory::history::HistoryReader;
use crate::memory::{Error, Memory};
use crate::object::{Hash, Time};

/// A state that a revision names.
#[derive(Clone, Debug)]
pub struct FoundState {
    /// Where it is taken from.
    pub source: StateSource,
    /// The entry that it stands behind.
    entry: u64,
    time: Time,
}

impl FoundState {
    /// Returns what the result of a verb says of it.
    pub fn to_json(&self) -> Value {
        let label = self.source.label().map(|label| &**label);
        json!({ "entry": self.entry, "time": self.time.to_string(), "checkpoint": label })
    }
}

impl Memory {
    /// Finds the state of a branch that a revision names.
    ///
    /// Kind `NotFound`, by code: `no_such_checkpoint`; `no_such_state` for what lies before the branch was made, in the future or
    /// outside of its lineage; `not_kept`.
    pub fn find_state(&self, branch: BranchId, revision: &Revision) -> Result<FoundState, Error> {
        let branch = self.catalog().branch_ref(branch)?.clone();
        if let Some(checkpoint) = branch.checkpoints.get(revision.label()) {
            let source = StateSource::Checkpoint(revision.label().clone());
            return Ok(FoundState { source, entry: checkpoint.seq, time: checkpoint.time });
        }
        let Some(point) = revision.point() else { return Err(Error::NoCheckpoint(revision.to_string())) };
        let none = || Error::NoState(revision.to_string());
        let search = StateSearch { branch, reader: self.history_reader() };
        let found = match point {
            RevisionPoint::Number(seq) => search.behind(seq)?,
            RevisionPoint::Entry(hash) => {
                search.behind(search.reader.entry_with(&hash)?.ok_or_else(none)?.entry.seq)?
            }
            RevisionPoint::At(time) => search.until(time, self.now())?,
            RevisionPoint::Before(age) => {
                let now = self.now();
                search.until(now.after(age.saturating_neg()), now)?
            }
        };
        match found {
            StateOutcome::Found(state) => Ok(state),
            StateOutcome::NeverWas => Err(none()),
            StateOutcome::Dropped => Err(Error::NotKept(revision.to_string())),
        }
    }
}

/// What became of a search.
enum StateOutcome {
    Found(FoundState),
    /// The branch never had it.
    NeverWas,
    /// It had it, and it is not kept.
    Dropped,
}

struct StateSearch<'a> {
    branch: BranchRef,
    reader: HistoryReader<'a>,
}

impl StateSearch<'_> {
    /// Looks for the state after an entry.
    fn behind(&self, seq: u64) -> Result<StateOutcome, Error> {
        if seq < self.branch.id.0 || seq > self.reader.newest() {
            return Ok(StateOutcome::NeverWas);
        }
        if seq < self.reader.first() {
            return Ok(StateOutcome::Dropped);
        }
        let signed = self.reader.entry(seq)?;
        if !self.concerns(&signed.entry) {
            return Ok(StateOutcome::NeverWas);
        }
        Ok(self.after(&signed.entry)?.map_or(StateOutcome::Dropped, StateOutcome::Found))
    }

    /// Looks for the newest kept state at or before a time.
    fn until(&self, time: Time, now: Time) -> Result<StateOutcome, Error> {
        if time < self.branch.created || time > now {
            return Ok(StateOutcome::NeverWas);
        }
        let mut upto = self.reader.newest();
        while let Some(step) =
            self.reader.last_step(self.branch.id.0, upto)?.filter(|step| step.seq >= self.branch.id.0)
        {
            let signed = self.reader.entry(step.seq)?;
            if signed.entry.time <= time
                && let Some(found) = self.after(&signed.entry)?
            {
                return Ok(StateOutcome::Found(found));
            }
            upto = step.seq - 1;
        }
        Ok(StateOutcome::Dropped)
    }

    /// Tells whether an entry is a step of the branch's content.
    fn concerns(&self, entry: &Entry) -> bool {
        entry.branch_id == self.branch.id.0 || (entry.parent_id == self.branch.id.0 && entry.reaches_parent())
    }

    /// Returns the state that an entry left the branch with, where it is readable.
    fn after(&self, entry: &Entry) -> Result<Option<FoundState>, Error> {
        if !self.concerns(entry) {
            return Ok(None);
        }
        let found = |source| FoundState { source, entry: entry.seq, time: entry.time };
        if let Some((label, _)) = self.branch.checkpoints.iter().find(|(_, checkpoint)| checkpoint.seq == entry.seq) {
            return Ok(Some(found(StateSource::Checkpoint(label.clone()))));
        }
        // The entry of a promote names the parent's head.
        if entry.op == EntryOp::Promote && entry.branch_id == self.branch.id.0 {
            return Ok(None);
        }
        let source = StateSource::Head { state: entry.head, base: self.base_after(entry.seq)? };
        Ok(self.branch.source(&source).is_ok().then(|| found(source)))
    }

    /// Returns the head of the base that the branch had after an entry: the next entry of its own tells.
    fn base_after(&self, mut seq: u64) -> Result<Hash, Error> {
        let all = (self.branch.id.0, self.reader.newest());
        while let Some((_, next)) = self.reader.seek(all, seq, |step| Ok(step.seq))? {
            let signed = self.reader.entry(next.seq)?;
            if signed.entry.branch_id == self.branch.id.0 {
                return Ok(signed.entry.base);
            }
            seq = next.seq;
        }
        Ok(self.branch.base.head())
    }
}
