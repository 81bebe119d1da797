//! A shared log as its files show it: lines of entries, read by number and by offset.

use std::sync::Arc;

use crate::branch::BranchVersion;
use crate::memory::catalog::BranchId;
use crate::memory::catalog::shared_log::{SharedLogTotals, log_entry_id, log_entry_number};
use crate::memory::command::shared_log_entry::{OFFSET_KEY, write_entry_line};
use crate::memory::transaction::shared_log::OFFSET_EVERY;
use crate::memory::{Error, Memory, SharedLogError};
use crate::object::Time;

/// The entries of a shared log at one moment: cheap to take, holds no lock, never changes.
#[derive(Clone)]
pub struct SharedLog {
    /// The branch that owns the log; the branches below it share it.
    pub owner: BranchId,
    /// When the last entry came; for a log without entries, when its branch was made.
    pub changed: Time,
    state: Arc<BranchVersion>,
    totals: SharedLogTotals,
}

/// A place in the lines of a log: that an entry begins at an offset.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedLogPosition {
    /// Number of the entry, from 1 on; 0 if no place is known yet.
    pub entry: u64,
    /// How many bytes the lines before it have: where its line begins in `entries.jsonl`.
    pub offset: u64,
}

impl Memory {
    /// Returns the shared log that a branch uses: its own or that of a branch above. Empty until somebody appends to
    /// it. Fails only with `Gone`, if the branch has ended.
    pub fn shared_log(&self, branch: BranchId) -> Result<SharedLog, Error> {
        let catalog = self.catalog();
        let owner = catalog.log_owner(catalog.branch(branch)?)?;
        let (changed, state, totals) = match owner.log {
            Some(log) => {
                let log = catalog.branch(log)?;
                (log.changed, log.state.clone(), log.log_totals.unwrap_or_default())
            }
            None => (owner.created, Arc::default(), SharedLogTotals::default()),
        };
        Ok(SharedLog { owner: owner.id, changed, state, totals })
    }

    /// Returns the names of the closed logs in the shared log that a branch uses, in bytewise order. Each is
    /// `NAME@SEQ`, with the number of the entry that closed it. Fails only with `Gone`, if the branch has ended.
    pub fn closed_logs(&self, branch: BranchId) -> Result<Vec<Arc<str>>, Error> {
        let catalog = self.catalog();
        let owner = catalog.log_owner(catalog.branch(branch)?)?;
        Ok(owner.closed_logs.keys().cloned().collect())
    }

    /// Returns a closed log, by `NAME@SEQ`, or by `NAME` the latest one. Kind `NotFound` if there is none.
    pub fn closed_log(&self, branch: BranchId, name: &str) -> Result<SharedLog, Error> {
        let catalog = self.catalog();
        let branch = catalog.branch(branch)?;
        let (owner, log) = (catalog.log_owner(branch)?, catalog.closed_log(branch, name)?);
        let log = log.ok_or_else(|| SharedLogError::NoClosed(name.chars().take(80).collect()))?;
        let (state, totals) = (log.state.clone(), log.log_totals.unwrap_or_default());
        Ok(SharedLog { owner: owner.id, changed: log.changed, state, totals })
    }

    /// Returns the number of the last entry of its shared log that a branch has read; 0 for none. Fails only with
    /// `Gone`, if the branch has ended.
    pub fn cursor(&self, branch: BranchId) -> Result<u64, Error> {
        let catalog = self.catalog();
        Ok(catalog.log_progress(catalog.branch(branch)?)?.1)
    }
}

impl SharedLog {
    /// Returns the number of entries, archived ones included. It is also the number of the last one.
    pub fn entry_count(&self) -> u64 {
        self.totals.entries
    }

    /// Returns the length of all lines in bytes, archived ones included.
    pub fn bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// Returns the lines of up to `limit` entries after number `entry`, 0 for the beginning; fewer only at the end.
    /// Kind `Damaged` if an entry is missing or not what was written.
    pub fn lines_after(&self, entry: u64, limit: u64) -> Result<Vec<u8>, Error> {
        let last = self.totals.entries.min(entry.saturating_add(limit));
        let mut out = Vec::new();
        self.for_each_after(entry, |number, line| {
            if number <= last {
                out.extend_from_slice(line);
            }
            number < last
        })?;
        Ok(out)
    }

    /// Returns up to `size` bytes of the lines from byte `offset` on; fewer only at the end. `near` is where the search
    /// for the offset starts, and is moved to where this read ended.
    ///
    /// Kind `Damaged` if an entry is missing or not what was written; `near` stays unchanged then.
    pub fn read(&self, offset: u64, size: usize, near: &mut SharedLogPosition) -> Result<Vec<u8>, Error> {
        let end = self.totals.bytes.min(offset.saturating_add(size as u64));
        let mut out = Vec::new();
        if offset >= end {
            return Ok(out);
        }
        let is_near = near.entry > 0 && near.offset <= offset && offset - near.offset < (size as u64).max(1 << 16);
        let mut at = if is_near { *near } else { self.nearest_stored_offset(offset)? };
        self.for_each_after(at.entry - 1, |number, line| {
            at.entry = number;
            let next = at.offset + line.len() as u64;
            if next > offset {
                let from = offset.saturating_sub(at.offset) as usize;
                let to = line.len().min((end - at.offset) as usize);
                out.extend_from_slice(&line[from..to]);
            }
            let goes_on = next < end;
            if next <= end {
                (at.entry, at.offset) = (number + 1, next);
            }
            goes_on
        })?;
        *near = at;
        Ok(out)
    }

    /// Returns the last entry that tells its offset and begins at or before one: every 64th does.
    fn nearest_stored_offset(&self, offset: u64) -> Result<SharedLogPosition, Error> {
        let (mut low, mut high) = (0, (self.totals.entries - 1) / OFFSET_EVERY);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.entry_offset(middle * OFFSET_EVERY + 1)? <= offset { low = middle } else { high = middle - 1 }
        }
        let entry = low * OFFSET_EVERY + 1;
        Ok(SharedLogPosition { entry, offset: self.entry_offset(entry)? })
    }

    fn entry_offset(&self, entry: u64) -> Result<u64, Error> {
        let row = self.state.find(&log_entry_id(entry))?.ok_or_else(|| missing_entry(entry))?;
        let version = row.version()?;
        let metadata: serde_json::Value = serde_json::from_str(&version.content.metadata).unwrap_or_default();
        metadata[OFFSET_KEY].as_u64().ok_or_else(|| missing_entry(entry))
    }

    /// Gives each entry behind one with its line, until `each` has enough.
    fn for_each_after(&self, entry: u64, mut each: impl FnMut(u64, &[u8]) -> bool) -> Result<(), Error> {
        let (mut line, mut expected) = (Vec::new(), entry);
        for row in self.state.rows(Some(&log_entry_id(entry)))? {
            let row = row?;
            // The records of event ids sort behind all entries.
            let Some(number) = log_entry_number(&row.id()?) else { break };
            expected += 1;
            if number != expected {
                return Err(missing_entry(expected));
            }
            let version = row.version()?;
            line.clear();
            write_entry_line(number, &version.content, &version.provenance, &mut line);
            if !each(number, &line) {
                break;
            }
        }
        Ok(())
    }
}

fn missing_entry(entry: u64) -> Error {
    Error::damaged(format!("entry {entry} of a shared log is missing, or not whole"))
}
