//! Appending to a shared log, and moving along it.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::json;

use super::commands::provenance;
use super::files::split_mac;
use super::transact::LogTail;
use crate::journal::FrameKind;
use crate::lineage::EntryOp;
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::shared_log::{OWN_LOG, SharedLogCursor, event_record_id, log_entry_id, log_entry_number};
use crate::memory::catalog::{Branch, BranchId, Catalog, CatalogChange};
use crate::memory::command::log_record::{COMMAND_BYTES, Command, CommandSpec, LogRecord, SharedEvent};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, fix_dim_and_metric, labels, prepare_on_branch};
use crate::memory::command::record_change::{RecordChange, SharedLogAppend};
use crate::memory::command::record_input::check_vector;
use crate::memory::command::shared_log_entry::{EVENT_KEY, SharedLogEntryInput, write_entry_line};
use crate::memory::{Actor, BranchError, Error, Memory, SharedLogError};
use crate::object::{CodecError, Context, Hash, Reader, Time, Writer};
use crate::record::{Provenance, RecordContent, Version};
use crate::segment::Row;
use crate::sync::allow_waiting;

static EVENT: Context = Context::new("engramfs 2026 event id v1");

/// One entry in so many stores its offset in the log's text, from which those of the others are counted.
pub(in crate::memory) const OFFSET_EVERY: u64 = 64;

/// What became of entries that were to be appended, all of them or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendReceipt {
    /// How many entries are new.
    pub appended: u64,
    /// The number of the first new entry; if none is new, that of the next entry to come.
    pub first: u64,
    /// The number of the last new entry; if none is new, that of the log's last entry.
    pub last: u64,
    /// How many entries were skipped, as their writer had appended their `event_id` before.
    pub repeated: u64,
}

impl AppendReceipt {
    /// Returns one line of JSON without its line end. If nothing is new, `first` and `last` are null.
    pub fn to_json(&self) -> String {
        let number = |number: u64| (self.appended > 0).then_some(number);
        let (first, last) = (number(self.first), number(self.last));
        json!({ "appended": self.appended, "first": first, "last": last, "repeated": self.repeated }).to_string()
    }
}

/// Entries come to a shared log.
#[derive(Debug)]
pub(in crate::memory) struct AppendEntries {
    /// The branch whose log it is; at the first entry it has none yet.
    pub owner: BranchId,
    /// The branch through which they come, whose agent and session they have.
    pub via: BranchId,
    /// The entries, and what the log holds with them.
    pub growth: SharedLogAppend,
}

pub(super) const APPEND: CommandSpec =
    CommandSpec { code: 32, name: "append", read: |input| Ok(Box::new(AppendEntries::read(input)?)) };

impl AppendEntries {
    fn read(input: &mut Reader<'_>) -> Result<AppendEntries, CodecError> {
        let (owner, via) = (BranchId::read(input)?, BranchId::read(input)?);
        Ok(AppendEntries { owner, via, growth: SharedLogAppend::read(input)? })
    }
}

impl Command for AppendEntries {
    fn spec(&self) -> &'static CommandSpec {
        &APPEND
    }

    fn write(&self, out: &mut Writer) {
        self.growth.write(out.number(self.owner.0).number(self.via.0));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (owner, via) = (context.catalog.branch(self.owner)?, context.catalog.branch(self.via)?);
        prepare_append(context, log_record, (owner, via), &self.growth)
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn shared_event(&self) -> Option<SharedEvent<'_>> {
        Some(SharedEvent::Appended(self.via, &self.growth.changes))
    }
}

impl Memory {
    /// Appends entries to the shared log of the branch `via`, all or none of them.
    ///
    /// An entry is skipped if the same user has appended one with its `event_id` before. Kind `Denied` if the caller
    /// does not own the branch, `Invalid` if a vector has another length than those below the root branch.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{Actor, Environment, Error, Memory, OpenMode, SharedLogEntryInput};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
    /// # let environment = Environment::real(ann.clone());
    /// # let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
    /// # let main = memory.root("main").unwrap();
    /// let entry = SharedLogEntryInput::parse(r#"{"text": "all tests pass", "event_id": "run-17"}"#)?;
    /// let receipt = memory.append_log(&ann, main, &[entry.clone()])?;
    /// assert_eq!((receipt.appended, receipt.last), (1, 1));
    /// // Appended again, as after a crash, it counts once.
    /// assert_eq!(memory.append_log(&ann, main, &[entry])?.repeated, 1);
    ///
    /// // Each branch reads the log at its own pace.
    /// let trial = memory.fork(&ann, main, "trial", None)?;
    /// let log = memory.shared_log(trial)?;
    /// let unread = log.lines_after(memory.cursor(trial)?, 100)?;
    /// assert!(String::from_utf8_lossy(&unread).contains("all tests pass"));
    /// memory.move_cursor(&ann, trial, log.entry_count())?;
    /// assert_eq!(memory.cursor(trial)?, 1);
    /// assert_eq!(memory.move_cursor(&ann, trial, 2).unwrap_err().code(), "beyond_the_log");
    /// # Ok(())
    /// # }
    /// ```
    pub fn append_log(
        &self,
        who: &Actor,
        via: BranchId,
        entries: &[SharedLogEntryInput],
    ) -> Result<AppendReceipt, Error> {
        let bytes = entries.iter().map(|entry| entry.bytes() as u64).sum::<u64>();
        let _room = self.reserve_room(disk_cost_bytes(bytes, 0))?;
        let (mut receipt, mut nothing_new) = (AppendReceipt::default(), false);
        let command = || {
            let catalog = self.catalog().clone();
            let branch = catalog.branch(via)?;
            let (growth, planned) = plan_append(&catalog, who.uid, branch, entries)?;
            receipt = planned;
            // An error is the one way to end a command without an entry, so `nothing_new` tells it from a failure
            // below.
            nothing_new = receipt.appended == 0;
            if nothing_new {
                return Err(BranchError::Moves.into());
            }
            Ok(AppendEntries { owner: catalog.log_owner(branch)?.id, via, growth })
        };
        match self.transact_without_reserving(who, &[], command) {
            Err(_) if nothing_new => Ok(receipt),
            done => done.map(|_| receipt),
        }
    }

    /// Notes that a branch has read its shared log up to the entry with this number; 0 is before the first. That makes
    /// no entry of the lineage.
    ///
    /// Kind `Invalid`, code `beyond_the_log`, past the last entry.
    pub fn move_cursor(&self, who: &Actor, branch: BranchId, entry: u64) -> Result<(), Error> {
        let _room = self.reserve_room(disk_cost_bytes(0, 0))?;
        let mut writer = self.writer_for(who, &[])?;
        let journal = writer.writable()?;
        let cursor = cursor_at(&self.catalog(), branch, entry)?;
        let mut out = Writer::new();
        cursor.write(out.number(branch.0));
        let bytes = out.finish();
        let code = writer.frame_mac(FrameKind::Cursor, &[&bytes]);
        allow_waiting();
        self.append(&journal, FrameKind::Cursor, &[&code.0, &bytes], true)?;
        writer.link = code;
        writer.unsealed_bytes += bytes.len() as u64 + COMMAND_BYTES;
        self.catalog.write().change(branch, |branch| branch.cursor = cursor);
        Ok(())
    }
}

/// Returns the cursor of a branch that has read its log up to an entry. [`SharedLogError::NoEntry`] after the last
/// entry.
pub(super) fn cursor_at(catalog: &Catalog, branch: BranchId, entry: u64) -> Result<SharedLogCursor, Error> {
    let branch = catalog.branch(branch)?;
    let (totals, _) = catalog.log_progress(branch)?;
    if entry > totals.entries {
        return Err(SharedLogError::NoEntry { entries: totals.entries, asked: entry.to_string() }.into());
    }
    Ok(SharedLogCursor { owner: catalog.log_owner(branch)?.id.0, entry })
}

impl LogTail {
    /// Moves a cursor as the journal says. Kind `Damaged` if the code does not follow from the frames before, or the
    /// bytes can't be read.
    pub(in crate::memory) fn replay_cursor(&mut self, catalog: &mut Catalog, bytes: &[u8]) -> Result<(), Error> {
        let damaged = |what: String| Error::damaged(format!("a cursor in the journal {what}"));
        let (code, bytes) = split_mac(bytes).ok_or_else(|| damaged("has no code".to_owned()))?;
        self.verify_and_advance(FrameKind::Cursor, &code, &[bytes])?;
        let mut input = Reader::new(bytes);
        let mut read = || Ok::<_, CodecError>((BranchId(input.number()?), SharedLogCursor::read(&mut input)?));
        let (branch, cursor) = read().map_err(|error| damaged(format!("can't be read: {error}")))?;
        self.unsealed_bytes += bytes.len() as u64 + COMMAND_BYTES;
        catalog.change(branch, |branch| branch.cursor = cursor);
        Ok(())
    }
}

/// Works out what entries come to in the log of the branch `via`, and what becomes of each. Nothing changes.
/// [`SharedLogError::NotOwner`] for a user who is neither root nor owns `via`.
pub(super) fn plan_append(
    catalog: &Catalog,
    uid: u32,
    via: &Branch,
    entries: &[SharedLogEntryInput],
) -> Result<(SharedLogAppend, AppendReceipt), Error> {
    if uid != 0 && uid != via.uid {
        return Err(SharedLogError::NotOwner { uid, path: via.path.to_string() }.into());
    }
    let owner = catalog.log_owner(via)?;
    let log = owner.log.map(|log| catalog.branch(log)).transpose()?;
    let mut totals = log.and_then(|log| log.log_totals).unwrap_or_default();
    let mut receipt = AppendReceipt { first: totals.entries + 1, ..AppendReceipt::default() };
    let [agent, session, task] = labels(catalog, via, uid);
    // Only the length of a line is needed here, and a time always takes the same number of bytes.
    let (created, modified, branch) = (Time::default(), Time::default(), via.path.clone());
    let provenance = Provenance { created, modified, branch, agent, session, task, uid, vector_stale: false };
    let (mut changes, mut seen, mut line) = (Vec::new(), HashSet::new(), Vec::new());
    for entry in entries {
        let event = entry.event_id.as_ref().map(|event| event_record(uid, event, totals.entries + 1));
        if let Some((event, _)) = &event {
            // The same event may come twice in one batch, too.
            let is_known = log.map(|log| log.state.find(event)).transpose()?.flatten().is_some();
            if is_known || !seen.insert(event.clone()) {
                receipt.repeated += 1;
                continue;
            }
        }
        let number = totals.entries + 1;
        let content = entry.content((number % OFFSET_EVERY == 1).then_some(totals.bytes));
        line.clear();
        write_entry_line(number, &content, &provenance, &mut line);
        // Counted line by line: readers ask for offsets in the log's text, and every OFFSET_EVERY-th entry stores its
        // offset.
        (totals.entries, totals.bytes) = (number, totals.bytes + line.len() as u64);
        changes.push(put_change(log_entry_id(number), content));
        changes.extend(event.map(|(id, content)| put_change(id, content)));
    }
    (receipt.appended, receipt.last) = (totals.entries + 1 - receipt.first, totals.entries);
    Ok((SharedLogAppend { totals, changes }, receipt))
}

/// Returns the record that remembers a user's `event_id` by its hash, and of which entry it is.
fn event_record(uid: u32, event: &str, entry: u64) -> (Arc<str>, RecordContent) {
    let metadata = json!({ "entry": entry }).to_string().into();
    let id = event_record_id(uid, &Hash::digest(&EVENT, event.as_bytes()));
    (id, RecordContent { vector: None, text: None, metadata })
}

/// Returns the record that remembers the `event_id` of an entry, if it has one.
pub(in crate::memory) fn event_record_in(entry: &Version) -> Option<(Arc<str>, RecordContent)> {
    let metadata: serde_json::Value = serde_json::from_str(&entry.content.metadata).ok()?;
    Some(event_record(entry.provenance.uid, metadata.get(EVENT_KEY)?.as_str()?, log_entry_number(&entry.id)?))
}

fn put_change(id: Arc<str>, content: RecordContent) -> RecordChange {
    RecordChange::Put { id, content, vector_stale: false, created_from: None }
}

/// Adds entries to the log of `owner`, in the name of who writes through the branch `via`. Fails like [`check_vector`]
/// for a vector that does not fit.
pub(super) fn prepare_append(
    context: &PlanContext<'_>,
    log_record: &LogRecord,
    (owner, via): (&Branch, &Branch),
    SharedLogAppend { totals, changes }: &SharedLogAppend,
) -> Result<PreparedCommand, Error> {
    let catalog = context.catalog;
    let (known, made);
    let log = match owner.log {
        Some(log) => {
            known = catalog.branch(log)?;
            known
        }
        None => {
            made = Branch::new_log(BranchId(context.seq), owner, log_record.time);
            &made
        }
    };
    let labels = prepare_on_branch(catalog, log_record, via, EntryOp::Append).labels;
    let mut prepared = PreparedCommand { labels, ..prepare_on_branch(catalog, log_record, log, EntryOp::Append) };
    let settings = catalog.shared_settings(owner)?;
    let (mut dim, metric) = (settings.dim(), settings.metric());
    let mut state = (*log.state).clone();
    // Queries with the default scope search `base`, which holds what is not archived. While nothing is archived it is
    // the same value as `state`, and needs no update of its own.
    let mut live = (!Arc::ptr_eq(&log.base, &log.state)).then(|| (*log.base).clone());
    for change in changes {
        let RecordChange::Put { id, content, .. } = change else {
            // A log only grows. A delete in such a command was written by nobody who followed the format.
            return Err(Error::damaged("entries of a shared log can't go"));
        };
        let provenance = Provenance { branch: via.path.clone(), ..provenance(log_record, &prepared, log_record.time) };
        let version = Version::new(id.clone(), content.clone(), provenance);
        check_vector(dim, metric, content, version.norm)?;
        dim = dim.or(content.vector.as_ref().map(|vector| vector.len()));
        let row = Row::Unsealed(Arc::new(version));
        if let Some(live) = live.as_mut().filter(|_| log_entry_number(id).is_some()) {
            live.put(row.clone())?;
        }
        state.put(row)?;
    }
    let totals = *totals;
    // Records that remember an `event_id` are no entries and do not count.
    prepared.counts.put = totals.entries.saturating_sub(log.log_totals.unwrap_or_default().entries);
    fix_dim_and_metric(catalog, owner, dim, state.totals().vectors > 0, &mut prepared)?;
    prepared.head = state.head();
    let state = Arc::new(state);
    let live = live.map_or_else(|| state.clone(), Arc::new);
    if owner.log.is_none() {
        let log = Branch { state, base: live, log_totals: Some(totals), ..log.clone() };
        return Ok(prepared.with_change(CatalogChange::Add(Box::new(log))));
    }
    let prepared =
        prepared.with_change(CatalogChange::State(log.id, state)).with_change(CatalogChange::Base(log.id, live));
    Ok(prepared.with_change(CatalogChange::LogTotals(log.id, totals)))
}

/// Refuses to let a root branch go whose log has entries that nobody archived. Those of logs that were closed into it count
/// as archived, as the end of their branch took them out of default queries.
pub(super) fn check_archived(catalog: &Catalog, branch: &Branch) -> Result<(), Error> {
    let Some(log) = branch.log.filter(|_| branch.parent.is_none()) else { return Ok(()) };
    let totals = catalog.branch(log)?.log_totals.unwrap_or_default();
    match totals.entries.saturating_sub(totals.archived) {
        0 => Ok(()),
        entries => Err(SharedLogError::NotArchived { path: branch.path.to_string(), entries }.into()),
    }
}

/// Refuses to change whose log a branch has where others, or entries, depend on it.
pub(super) fn check_log_setting(catalog: &Catalog, branch: &Branch, value: &str) -> Result<(), Error> {
    if branch.parent.is_none() && value != OWN_LOG {
        return Err(SharedLogError::RootHasOwn.into());
    }
    let is_used = branch.log.is_some() || !branch.closed_logs.is_empty() || !branch.children.is_empty();
    if is_used && *catalog.setting(branch, Setting::Log)? != *value {
        return Err(SharedLogError::InUse(branch.path.to_string()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::AppendReceipt;

    #[test]
    fn a_receipt_names_entries_only_where_some_are_new() {
        let receipt = AppendReceipt { appended: 2, first: 5, last: 6, repeated: 1 };
        assert_eq!(receipt.to_json(), r#"{"appended":2,"first":5,"last":6,"repeated":1}"#);
        let again = AppendReceipt { appended: 0, first: 7, last: 6, repeated: 3 };
        assert_eq!(again.to_json(), r#"{"appended":0,"first":null,"last":null,"repeated":3}"#);
    }
}
