//! Archiving entries of a shared log: default queries leave them out from then on.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::branch::BranchVersion;
use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::shared_log::{SharedLogTotals, log_entry_id, log_entry_number};
use crate::memory::catalog::{Branch, BranchId, Catalog, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, labels, prepare_on_branch};
use crate::memory::command::shared_log_entry::write_entry_line;
use crate::memory::merging::merge::PLAN_ROUNDS_MAX;
use crate::memory::{Actor, BranchError, Error, Memory, SharedLogError};
use crate::object::{Hash, Writer};

/// Entries of a shared log up to some number are archived, as its totals say from then on.
#[derive(Debug)]
pub(super) struct ArchiveLog {
    /// The branch whose log it is, not the one that holds the entries.
    pub owner: BranchId,
    /// The totals with these archived; a replay takes them as they are.
    pub totals: SharedLogTotals,
}

pub(super) const ARCHIVE_LOG: CommandSpec = CommandSpec {
    code: 33,
    name: "archive_log",
    read: |input| Ok(Box::new(ArchiveLog { owner: BranchId::read(input)?, totals: SharedLogTotals::read(input)? })),
};

impl Command for ArchiveLog {
    fn spec(&self) -> &'static CommandSpec {
        &ARCHIVE_LOG
    }

    fn write(&self, out: &mut Writer) {
        self.totals.write(out.number(self.owner.0));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        prepare(context.catalog, log_record, context.catalog.branch(self.owner)?, (self.totals, None))
    }

    fn may_use_reserve(&self) -> bool {
        true
    }
}

/// The entries of a log behind those that are archived, as the state that queries look at.
struct UnarchivedEntries {
    /// Number of the last entry that was looked at.
    last_number: u64,
    state: BranchVersion,
}

impl UnarchivedEntries {
    /// Collects them from all of the log behind `archived`: a time that grows with their number.
    fn new(log: &Branch, archived: u64) -> Result<UnarchivedEntries, Error> {
        let part = UnarchivedEntries { last_number: archived, state: BranchVersion::default() };
        part.catch_up(log)
    }

    /// Adds those that have come since, which are few enough for the lock.
    fn catch_up(mut self, log: &Branch) -> Result<UnarchivedEntries, Error> {
        for row in log.state.rows(Some(&log_entry_id(self.last_number)))? {
            let row = row?;
            let Some(number) = log_entry_number(&row.id()?) else { break };
            self.last_number = number;
            self.state.put(row)?;
        }
        Ok(self)
    }
}

impl Memory {
    /// Archives all entries before number `before` in the log that a branch owns. Returns how many those are.
    ///
    /// They stay in the log's files, and queries find them if they name the scope `log`. Kind `Invalid` if the branch
    /// uses the log of another, or if `before` is past the next entry to come.
    pub fn archive_log(&self, who: &Actor, branch: BranchId, before: u64) -> Result<Value, Error> {
        self.ensure_room_to_free()?;
        for _ in 0..PLAN_ROUNDS_MAX {
            let catalog = self.catalog().clone();
            let (log, totals) = own_log(&catalog, branch)?;
            if before == 0 || before > totals.entries + 1 {
                return Err(SharedLogError::NoEntry { entries: totals.entries, asked: before.to_string() }.into());
            }
            let Some(log) = log.filter(|_| before - 1 > totals.archived) else { return Ok(answer(totals)) };
            let archived_bytes = totals.archived_bytes + bytes_between(log, totals.archived, before - 1)?;
            // The long part, worked out with no lock held; under the lock only what has come since is added.
            let live = UnarchivedEntries::new(log, before - 1)?;
            let mut writer = self.writer_for(who, &[])?;
            let now = self.catalog().clone();
            // A compaction has moved the rows, or somebody else has archived some.
            let (Some(log), totals) = own_log(&now, branch)? else { return Err(Error::Gone) };
            if now.rewrite_count != catalog.rewrite_count || totals.archived >= before {
                continue;
            }
            let totals = SharedLogTotals { archived: before - 1, archived_bytes, ..totals };
            let live = live.catch_up(log)?;
            let time = self.next_time(&mut writer)?;
            let command = Box::new(ArchiveLog { owner: branch, totals });
            let log_record = LogRecord { time, planned: time, uid: who.uid, command };
            let (_, change) = self.execute_planned(&mut writer, log_record, |catalog, log_record| {
                prepare(catalog, log_record, catalog.branch(branch)?, (totals, Some(live)))
            })?;
            drop(writer);
            self.notify(change);
            return Ok(answer(totals));
        }
        Err(BranchError::Moves.into())
    }

    /// Has the records that were put into a branch's log be its entries, of which some are archived; returns the log's head.
    ///
    /// Kind `Damaged` if numbers are missing.
    pub(in crate::memory) fn adopt_log(&self, who: &Actor, owner: BranchId, archived: u64) -> Result<Hash, Error> {
        let catalog = self.catalog().clone();
        let log = catalog.branch(catalog.branch(owner)?.log.ok_or(Error::Gone)?)?;
        let (mut entries, mut last) = (0, 0);
        for row in log.state.rows(None)? {
            let Some(number) = log_entry_number(&row?.id()?) else { break };
            (entries, last) = (entries + 1, number);
        }
        // A log without gaps is what offsets and entry numbers rest on, so an import may not bring another one.
        if entries != last || archived > entries {
            return Err(Error::damaged(format!("a log with {entries} entries ends with entry {last}")));
        }
        let (bytes, archived_bytes) = (bytes_between(log, 0, entries)?, bytes_between(log, 0, archived)?);
        let totals = SharedLogTotals { entries, bytes, archived, archived_bytes };
        let entry = self.transact(who, &[], || Ok(ArchiveLog { owner, totals }))?;
        Ok(entry.entry.head)
    }
}

/// Returns the branch with the entries of a branch's own log, once there are some, and what it holds.
fn own_log(catalog: &Catalog, branch: BranchId) -> Result<(Option<&Branch>, SharedLogTotals), Error> {
    let branch = catalog.branch(branch)?;
    let owner = catalog.log_owner(branch)?;
    if owner.id != branch.id {
        return Err(SharedLogError::NotOwn { path: branch.path.to_string(), owner: owner.path.to_string() }.into());
    }
    let log = branch.log.map(|log| catalog.branch(log)).transpose()?;
    Ok((log, log.and_then(|log| log.log_totals).unwrap_or_default()))
}

fn answer(totals: SharedLogTotals) -> Value {
    json!({ "status": "archived", "archived": totals.archived, "entries": totals.entries })
}

/// Returns how many bytes the lines of the entries `after + 1` to `last` have.
fn bytes_between(log: &Branch, after: u64, last: u64) -> Result<u64, Error> {
    let (mut bytes, mut line) = (0, Vec::new());
    for row in log.state.rows(Some(&log_entry_id(after)))? {
        let version = row?.version()?;
        let Some(number) = log_entry_number(&version.id).filter(|number| *number <= last) else { break };
        line.clear();
        write_entry_line(number, &version.content, &version.provenance, &mut line);
        bytes += line.len() as u64;
    }
    Ok(bytes)
}

/// Returns the entry, and what it changes; what stays is collected where it was not before. Fails with `Error::Damaged`
/// if the branch has no log, with `Error::Gone` if the catalog lacks the log's branch, or if an entry can't be read.
fn prepare(
    catalog: &Catalog,
    log_record: &LogRecord,
    owner: &Branch,
    (totals, live): (SharedLogTotals, Option<UnarchivedEntries>),
) -> Result<PreparedCommand, Error> {
    let log = catalog.branch(owner.log.ok_or_else(|| Error::damaged("there is no log to archive"))?)?;
    let live = live.map_or_else(|| UnarchivedEntries::new(log, totals.archived), Ok)?;
    let detail = Detail { label: Some(totals.archived.to_string().into()), ..Detail::default() };
    let prepared = PreparedCommand {
        labels: labels(catalog, owner, log_record.uid),
        ..prepare_on_branch(catalog, log_record, log, EntryOp::ArchiveLog).with_detail(detail)
    };
    let live = CatalogChange::Base(log.id, Arc::new(live.state));
    Ok(prepared.with_change(live).with_change(CatalogChange::LogTotals(log.id, totals)))
}
