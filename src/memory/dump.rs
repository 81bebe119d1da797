//! What a dump takes out of a store, and how another store takes it in: records with who wrote them and when.

use std::sync::Arc;

use serde::Deserialize;

use super::catalog::Branch;
use super::catalog::shared_log::SharedLogTotals;
use super::command::record_change::SharedLogAppend;
use super::command::record_input::RecordEdit;
use super::transaction::shared_log::{AppendEntries, event_record_in};
use super::{Actor, BranchId, Error, Memory, RecordError, Snapshot, Tree};
use crate::object::{Hash, Time};
use crate::record::{Provenance, Version};

/// A version of a record as a line of an export has it, with who wrote it and when.
pub struct ImportedRecord(pub(in crate::memory) Version);

/// What a line says beside the content; none of it may be missing but `vector_stale`.
#[derive(Deserialize)]
struct ImportedRecordKeys {
    id: String,
    created: String,
    modified: String,
    branch: String,
    agent: String,
    session: String,
    task: String,
    uid: u32,
    #[serde(default)]
    vector_stale: bool,
}

impl ImportedRecord {
    /// Parses a line of an export; errors name it by `number`, counted from 1.
    pub fn parse(line: &[u8], number: usize) -> Result<ImportedRecord, Error> {
        let failed = |error: serde_json::Error| RecordError::NotARecord(Arc::new(error)).at_line(number);
        let keys: ImportedRecordKeys = serde_json::from_slice(line).map_err(failed)?;
        let time =
            |text: &str| text.parse::<Time>().map_err(|_| RecordError::NotATime(text.to_owned()).at_line(number));
        let (created, modified) = (time(&keys.created)?, time(&keys.modified)?);
        let edit = RecordEdit::parse_line(line, number, &|| keys.id.as_str().into())?;
        let Some(RecordEdit::Correct { id, patch, .. }) = edit else {
            return Err(RecordError::Delete.at_line(number).into());
        };
        let content = patch.apply_to(None).map_err(|error| error.at_line(number))?;
        let [branch, agent, session, task] = [keys.branch, keys.agent, keys.session, keys.task].map(Arc::from);
        let (uid, vector_stale) = (keys.uid, keys.vector_stale);
        let provenance = Provenance { created, modified, branch, agent, session, task, uid, vector_stale };
        Ok(ImportedRecord(Version::new(id, content, provenance)))
    }

    /// Returns the record's id, without `.json`.
    pub fn id(&self) -> &Arc<str> {
        &self.0.id
    }

    /// Returns about how many bytes it takes: callers cut their commits by the sum.
    pub fn bytes(&self) -> usize {
        self.0.raw_bytes() as usize
    }
}

impl Snapshot {
    /// Returns the tree of files of the same moment as the records; contents are read with [`Memory::packs`].
    pub fn files(&self) -> &Tree {
        self.state.files()
    }

    /// Returns whether it has this very version of a record, provenance included. False where there is no record with
    /// that id, too. Kind `Io` or `Damaged` if the hash or the provenance of its version can't be read.
    pub fn contains(&self, record: &ImportedRecord) -> Result<bool, Error> {
        let Some(row) = self.state.find(&record.0.id)? else { return Ok(false) };
        Ok(row.hash()? == record.0.hash && row.provenance()? == record.0.provenance)
    }
}

impl Memory {
    /// Returns the base of a branch: the state of its parent at the fork, or at the last merge or pull. Fails only with
    /// `Gone`, if the branch has ended.
    pub fn base(&self, branch: BranchId) -> Result<Snapshot, Error> {
        Ok(Snapshot::new(self.catalog().branch(branch)?.base.clone()))
    }

    /// Returns the text that a checkpoint was taken with, empty for none. Kind `NotFound` if there is no such
    /// checkpoint.
    pub fn checkpoint_text(&self, branch: BranchId, label: &str) -> Result<Arc<str>, Error> {
        let catalog = self.catalog();
        let checkpoint = catalog.branch(branch)?.checkpoints.get(label);
        checkpoint.map(|checkpoint| checkpoint.text.clone()).ok_or_else(|| Error::NoCheckpoint(label.to_string()))
    }
}

/// The entries of a branch's own shared log, as records.
pub struct OwnLog {
    /// The entries by their numbers, and beside them what is remembered of events.
    pub records: Snapshot,
    /// How many entries it has, the archived ones among them.
    pub entries: u64,
    /// Entries up to this one are archived; 0 if none is.
    pub archived: u64,
}

impl Memory {
    /// Returns the shared log that a branch owns; `None` if it uses the log of a branch above, or has no entries yet.
    /// Fails only with `Gone`, if the branch has ended.
    pub fn own_log(&self, branch: BranchId) -> Result<Option<OwnLog>, Error> {
        let catalog = self.catalog();
        let Some(log) = catalog.branch(branch)?.log else { return Ok(None) };
        Ok(Some(OwnLog::from_branch(catalog.branch(log)?)))
    }

    /// Starts an import of a shared log into a branch that has none. Entries are added with [`SharedLogImport::push`],
    /// and become visible when the import is finished.
    ///
    /// Fails like any change, and with `Gone` if the branch has ended.
    pub fn import_log(&self, who: &Actor, owner: BranchId) -> Result<SharedLogImport<'_>, Error> {
        let growth = SharedLogAppend { totals: SharedLogTotals::default(), changes: Vec::new() };
        let command = || Ok(AppendEntries { owner, via: owner, growth });
        let log = BranchId(self.transact(who, &[], command)?.entry.branch_id);
        Ok(SharedLogImport { memory: self, who: who.clone(), owner, log, batch: Vec::new() })
    }
}

impl Memory {
    /// Returns the closed logs below a branch that owns a log, by `NAME@SEQ`: each is the log of a branch that has
    /// ended. Fails only with `Gone`, if the branch has ended.
    pub fn own_closed_logs(&self, branch: BranchId) -> Result<Vec<(Arc<str>, OwnLog)>, Error> {
        let catalog = self.catalog();
        let logs = catalog.branch(branch)?.closed_logs.iter();
        logs.map(|(name, log)| Ok((name.clone(), OwnLog::from_branch(catalog.branch(*log)?)))).collect()
    }
}

impl OwnLog {
    fn from_branch(log: &Branch) -> OwnLog {
        let SharedLogTotals { entries, archived, .. } = log.log_totals.unwrap_or_default();
        OwnLog { records: Snapshot::new(log.state.clone()), entries, archived }
    }
}

/// A log that is being taken in; its entries count once [`SharedLogImport::finish`] was called.
pub struct SharedLogImport<'a> {
    memory: &'a Memory,
    who: Actor,
    owner: BranchId,
    log: BranchId,
    batch: Vec<ImportedRecord>,
}

/// Entries and events of one commit, together: so many are held in memory.
const BATCH_ENTRIES: usize = 16_384;

impl SharedLogImport<'_> {
    /// Adds an entry, and what is to be remembered of its event. Every 16,384 of both are committed at once. Fails like
    /// a commit of them; entries that were committed before stay in the log, uncounted.
    pub fn push(&mut self, entry: ImportedRecord) -> Result<(), Error> {
        if let Some(event) = event_record_in(&entry.0) {
            let version = Version::new(event.0, event.1, entry.0.provenance.clone());
            self.batch.push(ImportedRecord(version));
        }
        self.batch.push(entry);
        if self.batch.len() < BATCH_ENTRIES { Ok(()) } else { self.commit() }
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.memory.import_records(&self.who, self.log, std::mem::take(&mut self.batch), &[])
    }

    /// Has the log begin with these entries, of which some are archived; returns its head. Fails like
    /// [`SharedLogImport::push`], and as the entry that counts them.
    pub fn finish(mut self, archived: u64) -> Result<Hash, Error> {
        self.commit()?;
        self.memory.adopt_log(&self.who, self.owner, archived)
    }

    /// Does the same, and has the log be one that was closed, with that name; the branch begins another one. Kind
    /// `Exists` if a closed log has the name, `Invalid` if it is none
    /// ([`check_closed_name`](super::check_closed_name)).
    pub fn finish_closed(self, archived: u64, name: &str) -> Result<Hash, Error> {
        let (memory, who, owner) = (self.memory, self.who.clone(), self.owner);
        let head = self.finish(archived)?;
        memory.import_closed_log(&who, owner, name)?;
        Ok(head)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::record::write_export_line;

    #[test]
    fn a_line_of_an_export_comes_back_to_the_byte() {
        let line = concat!(
            r#"{"id":"a\"b","text":"t","metadata":{"k":[1.0]},"created":"2026-01-01T00:00:00.000000001Z","#,
            r#""modified":"2026-01-02T00:00:00.000000000Z","branch":"main/x","agent":"ann","session":"s","task":"","#,
            r#""uid":7,"vector_stale":true,"vector":[1.5]}"#
        );
        let record = ImportedRecord::parse(line.as_bytes(), 1).unwrap();
        let mut out = Vec::new();
        write_export_line(&mut out, &record.0);
        let again = ImportedRecord::parse(&out, 1).unwrap();
        assert!(again.0 == record.0 && again.0.provenance.vector_stale && again.0.provenance.uid == 7);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value, serde_json::from_str::<serde_json::Value>(line).unwrap());
    }

    #[test]
    fn a_line_without_who_and_when_is_refused_with_its_number() {
        for line in [r#"{"id":"a","text":"t"}"#, r#"{"id":"a","delete":true}"#, "text", ""] {
            let error = ImportedRecord::parse(line.as_bytes(), 7).err().unwrap();
            assert!(error.to_string().starts_with("line 7: "), "{error}");
        }
    }
}
