//! Shared logs: whose log a branch has, what it holds, and how far each branch has read.
//!
//! The entries of a log are the records of a branch of their own, to which no name leads: so they are sealed, indexed,
//! searched and verified as all records are. It is made with the first entry, below the branch whose log it is. Its base holds
//! those that were not archived. An entry's id is its number with leading zeros; a record beside it remembers the `event_id`
//! that a user gave it.

use std::sync::Arc;

use super::{Branch, BranchId, Catalog, CatalogChange};
use crate::memory::Error;
use crate::object::{CodecError, Hash, Reader, Time, Writer};

/// The name of the branch that holds the entries of a log, which no other branch can have.
pub const LOG_BRANCH_NAME: &str = "shared";
/// The value of `config/log` by which a branch has a log of its own.
pub const OWN_LOG: &str = "own";

/// How much a log holds; archived entries count, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedLogTotals {
    /// Its entries, which have the numbers from 1 to this one.
    pub entries: u64,
    /// Bytes of their lines in `entries.jsonl`, those of archived ones included.
    pub bytes: u64,
    /// Entries up to this one were archived: queries look at them only where they are asked to.
    pub archived: u64,
    /// Bytes of the lines of those entries, which `bytes` counts, too.
    pub archived_bytes: u64,
}

impl SharedLogTotals {
    /// Appends the stored form: four numbers, in the order of the fields.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        out.number(self.entries).number(self.bytes).number(self.archived).number(self.archived_bytes)
    }

    /// Reads the stored form. [`CodecError::Short`] if the bytes end before its four numbers do.
    pub fn read(input: &mut Reader<'_>) -> Result<SharedLogTotals, CodecError> {
        let (entries, bytes) = (input.number()?, input.number()?);
        Ok(SharedLogTotals { entries, bytes, archived: input.number()?, archived_bytes: input.number()? })
    }
}

/// How far a branch has read a log. It starts at 0 when the branch gets another log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedLogCursor {
    /// Id of the branch that owns the log, 0 for none.
    pub owner: u64,
    /// Number of the last entry that was read; 0 for none.
    pub entry: u64,
}

impl SharedLogCursor {
    /// Returns the last entry that was read of a log, counted from 1: 0 of one that it does not count for.
    pub fn position_in(&self, owner: BranchId) -> u64 {
        if self.owner == owner.0 { self.entry } else { 0 }
    }

    /// Appends the stored form: two numbers, in the order of the fields.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        out.number(self.owner).number(self.entry)
    }

    /// Reads the stored form. [`CodecError::Short`] if the bytes end before its two numbers do.
    pub fn read(input: &mut Reader<'_>) -> Result<SharedLogCursor, CodecError> {
        Ok(SharedLogCursor { owner: input.number()?, entry: input.number()? })
    }
}

/// Returns the id of the record that is an entry: its number in 20 digits, zeros in front, so that ids sort as entries
/// do.
pub fn log_entry_id(entry: u64) -> Arc<str> {
    format!("{entry:020}").into()
}

/// Returns the number of the entry that a record of a log is; `None` for one that remembers an `event_id`.
pub fn log_entry_number(id: &str) -> Option<u64> {
    id.parse().ok().filter(|_| id.len() == 20)
}

/// Names an entry to a purge: by its number, in the log that a branch has or in one that was closed into that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntryName<'a> {
    /// The name of the closed log, `NAME@SEQ` or its first part; `None` for the present log.
    pub closed: Option<&'a str>,
    /// The entry's number in that log, from 1.
    pub number: u64,
}

impl LogEntryName<'_> {
    /// What the names of entries begin with, as the paths of their log do.
    pub const PREFIX: &'static str = "shared/log/";

    /// Reads `shared/log/NUMBER` and `shared/log/closed/NAME/NUMBER`, numbers from 1; `None` for anything else.
    pub fn parse(name: &str) -> Option<LogEntryName<'_>> {
        let rest = name.strip_prefix(LogEntryName::PREFIX)?;
        let (closed, number) = match rest.strip_prefix("closed/") {
            Some(rest) => rest.split_once('/').map(|(closed, number)| (Some(closed), number))?,
            None => (None, rest),
        };
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|number| is_number && *number > 0)?;
        Some(LogEntryName { closed, number })
    }
}

/// Returns the id of the record that remembers a user's `event_id`, by its hash.
pub fn event_record_id(uid: u32, event: &Hash) -> Arc<str> {
    format!("@{uid}:{event}").into()
}

impl Branch {
    /// Makes the branch that holds the entries of another's log, empty and owned by that one's owner.
    pub fn new_log(id: BranchId, owner: &Branch, time: Time) -> Branch {
        let mut log = Branch::new(id, LOG_BRANCH_NAME.into(), Some(owner), Arc::default(), owner.uid, time);
        log.log_totals = Some(SharedLogTotals::default());
        log
    }
}

/// Parses the name of a closed log, `NAME@ENTRY`: the branch that had it, and the entry that ended it. `None` for
/// anything else.
pub fn parse_closed_name(text: &str) -> Option<(&str, u64)> {
    let (name, seq) = text.rsplit_once('@')?;
    Some((name, seq.parse().ok()?))
}

impl Branch {
    /// Returns the name of a log that is closed into its own. One that ends now is later than all of its name, also where logs
    /// came from another store, whose entries had other numbers; any other keeps its name where that is free.
    fn closed_log_name(&self, name: Arc<str>, ends_now: bool) -> Arc<str> {
        let Some((branch, seq)) = parse_closed_name(&name) else { return name };
        let same = self.closed_logs.keys().filter_map(|known| parse_closed_name(known));
        let last = same.filter(|(known, _)| *known == branch).map(|(_, seq)| seq).max();
        match last.filter(|last| self.closed_logs.contains_key(&name) || ends_now && *last >= seq) {
            Some(last) => format!("{branch}@{}", last.saturating_add(1)).into(),
            None => name,
        }
    }
}

impl Catalog {
    /// Returns the owner of the log that a branch uses: itself or the nearest branch above with a log of its own.
    /// [`Error::Gone`] if that is not in this version of the catalog.
    pub fn log_owner<'a>(&'a self, branch: &'a Branch) -> Result<&'a Branch, Error> {
        if branch.log_owner == branch.id { Ok(branch) } else { self.branch(branch.log_owner) }
    }

    /// Returns the branch that holds the entries of a branch's log, once there are some. Fails with `Error::Gone` if
    /// the log's owner or holder is not in this version of the catalog.
    pub fn shared_log(&self, branch: &Branch) -> Result<Option<&Branch>, Error> {
        self.log_owner(branch)?.log.map(|log| self.branch(log)).transpose()
    }

    /// Returns the closed logs that a name means in the log that a branch uses, each with its `NAME@SEQ`: by that the
    /// one, by `NAME` all of branches that were called so, the latest last. Empty if there is none. Fails with
    /// `Error::Gone` like [`Catalog::shared_log`].
    pub fn closed_logs_named(&self, branch: &Branch, name: &str) -> Result<Vec<(Arc<str>, &Branch)>, Error> {
        let closed = &self.log_owner(branch)?.closed_logs;
        if let Some(log) = closed.get(name) {
            return Ok(vec![(name.into(), self.branch(*log)?)]);
        }
        let ended = |known: &str| parse_closed_name(known).filter(|(branch, _)| *branch == name).map(|(_, seq)| seq);
        let named = closed.iter().filter_map(|(known, log)| Some((ended(known)?, known.clone(), *log)));
        let mut logs: Vec<(u64, Arc<str>, BranchId)> = named.collect();
        logs.sort_unstable();
        logs.into_iter().map(|(_, known, log)| Ok((known, self.branch(log)?))).collect()
    }

    /// Returns a closed log in the log that a branch uses, by `NAME@SEQ`, or by `NAME` the latest one. `None` if no log
    /// has that name. Fails with `Error::Gone` like [`Catalog::shared_log`].
    pub fn closed_log(&self, branch: &Branch, name: &str) -> Result<Option<&Branch>, Error> {
        Ok(self.closed_logs_named(branch, name)?.pop().map(|(_, log)| log))
    }

    /// Returns the branch that holds an entry which a purge of a branch names, once there is one. Fails with
    /// `Error::Gone` as [`Catalog::shared_log`] does.
    pub fn entry_log(&self, branch: &Branch, name: LogEntryName<'_>) -> Result<Option<&Branch>, Error> {
        name.closed.map_or_else(|| self.shared_log(branch), |closed| self.closed_log(branch, closed))
    }

    /// Returns the uid of a branch's owner. A log, open or closed, belongs to the owner of the branch that has it now.
    pub fn owner_uid(&self, branch: &Branch) -> u32 {
        let holder = branch.parent.filter(|_| branch.log_totals.is_some()).and_then(|id| self.branches.get(&id));
        holder.map_or(branch.uid, |holder| holder.uid)
    }

    /// Returns whether a branch holds the entries of a log: such a one is nobody's child and has no directory.
    pub fn is_log(&self, branch: BranchId) -> bool {
        self.branches.get(&branch).is_some_and(|branch| branch.log_totals.is_some())
    }

    /// Returns what the names of a log's entries begin with: see [`LogEntryName`].
    pub fn log_entry_prefix(&self, log: &Branch) -> String {
        let owner = log.parent.and_then(|owner| self.branches.get(&owner));
        let closed = owner.and_then(|owner| owner.closed_logs.iter().find(|(_, closed)| **closed == log.id));
        let closed = closed.map(|(name, _)| format!("closed/{name}/")).unwrap_or_default();
        format!("{}{closed}", LogEntryName::PREFIX)
    }

    /// Returns how many entries a branch's log has, and how many of them it has read. Both are 0 before the first
    /// entry; what was read of another log does not count. Fails with `Error::Gone` like [`Catalog::shared_log`].
    pub fn log_progress(&self, branch: &Branch) -> Result<(SharedLogTotals, u64), Error> {
        let owner = self.log_owner(branch)?;
        let totals = owner.log.map(|log| self.branch(log)).transpose()?.and_then(|log| log.log_totals);
        Ok((totals.unwrap_or_default(), branch.cursor.position_in(owner.id)))
    }

    /// Returns how many entries a branch's log has, archived ones included; 0 if its log can't be found.
    pub(super) fn log_entry_count(&self, branch: &Branch) -> u64 {
        self.log_progress(branch).map_or(0, |(totals, _)| totals.entries)
    }

    /// Has the log of a branch that ends stay with the log above it, or go where there is none.
    pub(super) fn close_log(&mut self, ended: &Branch, seq: u64) {
        let above = ended.parent.and_then(|parent| self.branches.get(&parent)).cloned();
        let above = above.and_then(|parent| self.log_owner(&parent).ok().map(|owner| owner.id));
        let own = ended.log.map(|log| (Arc::from(format!("{}@{seq}", ended.name)), log));
        for (name, log) in ended.closed_logs.iter().map(|(name, log)| (name.clone(), *log)).chain(own) {
            match above {
                Some(owner) => {
                    let is_own = ended.log == Some(log);
                    let name = self.branches[&owner].closed_log_name(name, is_own);
                    self.change(log, |log| log.parent = Some(owner));
                    self.change(owner, |owner| _ = owner.closed_logs.insert(name, log));
                    self.recompute_derived_fields(log);
                }
                None => self.apply_change(CatalogChange::Remove(log), seq, Time::default()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_entries_are_in_the_order_of_their_numbers_and_before_those_of_events() {
        let ids: Vec<Arc<str>> = [1, 9, 10, 1_000_000, u64::MAX].map(log_entry_id).into();
        assert!(ids.is_sorted());
        assert_eq!(ids.iter().map(|id| log_entry_number(id)).collect::<Vec<_>>()[2..4], [Some(10), Some(1_000_000)]);
        let event = event_record_id(7, &Hash([1; 32]));
        assert!(ids.iter().all(|id| *id < event) && log_entry_number(&event).is_none());
    }

    #[test]
    fn names_of_entries_are_paths_with_a_number() {
        let parse = |name| LogEntryName::parse(name).map(|name| (name.closed, name.number));
        assert_eq!(parse("shared/log/7"), Some((None, 7)));
        assert_eq!(parse("shared/log/closed/case-1@9/12"), Some((Some("case-1@9"), 12)));
        for name in
            ["shared/log/", "shared/log/0", "shared/log/+1", "shared/log/closed/7", "shared/log/last/1", "log/1"]
        {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
