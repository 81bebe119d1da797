//! Commits of records: what edits come to is worked out on a state of the branch, and committed while that holds.

use std::sync::Arc;

use super::bulk::{BulkCommit, CommitSegment};
use super::commands::CommitRecords;
use super::resolved_edits::{ResolvedEdits, ResolvedVersion};
use super::shared_log::cursor_at;
use crate::branch::{BranchVersion, check_record_id};
use crate::lineage::SignedEntry;
use crate::memory::admission::disk_room::{DiskReservation, bulk_disk_cost_bytes, disk_cost_bytes};
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{BranchId, Catalog};
use crate::memory::command::log_record::LogRecord;
use crate::memory::command::record_change::RecordChange;
use crate::memory::command::record_input::{RecordEdit, check_vector};
use crate::memory::command::record_patch::RecordPatch;
use crate::memory::merging::merge::{PLAN_ROUNDS_MAX, REVALIDATED_UNDER_LOCK_MAX};
use crate::memory::merging::merge_budget::PlanError;
use crate::memory::{Actor, BranchError, Error, ImportedRecord, Memory, Record, RecordError};
use crate::object::{Hash, Time};
use crate::record::{Provenance, RecordContent, Version};
use crate::segment::{Row, Segment, SegmentError, write_segment};
use crate::sync::without_waiting;

/// Edits in one commit from which on the records go straight into a segment.
const BULK_EDITS: usize = 1024;
/// Edits in one commit that are worked out again under the lock where the branch has changed; more are planned anew.
const REPLAN_EDITS_MAX: usize = 64;
/// Bytes of records in one commit from which on they do: to sign and log more takes a while.
const BULK_BYTES: usize = 4 << 20;

/// What a commit did; all 0 if there was nothing to do.
#[derive(Clone, Debug)]
pub struct CommitReceipt {
    /// How many records were written; unchanged ones of an import do not count.
    pub put: u64,
    /// How many records were deleted; missing ones do not count.
    pub deleted: u64,
    /// The branch's head after the commit.
    pub head: Hash,
    /// The entry's hash; without an entry the tip.
    pub entry: Hash,
}

impl CommitReceipt {
    /// Returns what an entry says of its commit.
    pub(super) fn from_entry(entry: &SignedEntry) -> CommitReceipt {
        let counts = entry.entry.counts;
        CommitReceipt { put: counts.put, deleted: counts.deleted, head: entry.entry.head, entry: entry.hash }
    }

    /// Returns one line of JSON without its line end: `put`, `deleted`, `head` and `entry`.
    pub fn to_json(&self) -> String {
        format!(
            "{{\"put\":{},\"deleted\":{},\"head\":\"{}\",\"entry\":\"{}\"}}",
            self.put, self.deleted, self.head, self.entry
        )
    }
}

/// How edits are committed; by default all of them, whatever records there are, and without a cursor.
#[derive(Clone, Debug, Default)]
pub struct CommitOptions {
    /// Whether records are left alone whose content is already so: an import that broke off is then repeated at little cost.
    pub skip_unchanged: bool,
    /// The entry up to which the branch has read its shared log from then on; none, the default, leaves its cursor alone.
    pub cursor: Option<u64>,
    /// The record that must not be there at the moment of the commit; none, the default, asks for nothing.
    pub absent: Option<Arc<str>>,
}

impl Memory {
    /// Applies edits as one atomic entry. Several edits of one id apply in order. Without edits there is no entry: the
    /// receipt then names the present head and tip.
    ///
    /// Kind `Invalid` if a record breaks a rule, `Quota` beyond a quota of the branch or one above it, `Gone` if the
    /// branch has ended. Kind `Busy`, code `branch_moves`, if it changes faster than the edits can be applied.
    pub fn commit(&self, who: &Actor, branch: BranchId, edits: Vec<RecordEdit>) -> Result<CommitReceipt, Error> {
        self.commit_with(who, branch, edits, &CommitOptions::default())
    }

    /// Like [`Memory::commit`], with options. If no edit changes anything, a cursor moves without an entry in the lineage.
    ///
    /// Fails like [`Memory::commit`], and with kind `Invalid`, code `beyond_the_log`, if the shared log has no entry
    /// `cursor` yet, or kind `Exists`, code `record_exists`, if the record `absent` exists.
    pub fn commit_with(
        &self,
        who: &Actor,
        branch: BranchId,
        edits: Vec<RecordEdit>,
        options: &CommitOptions,
    ) -> Result<CommitReceipt, Error> {
        let cursor = options.cursor;
        // Edits are worked out without the writer's lock, and done under the lock if that still holds.
        let resolve = || -> Result<ResolvedEdits, Error> {
            let state = self.catalog().branch(branch)?.state.clone();
            let held = self.admission.budget.empty_reservation(who.uid);
            let mut resolved = ResolvedEdits::new(&state, &edits, held)?;
            if options.skip_unchanged {
                resolved.drop_unchanged()?;
            }
            options.absent.as_ref().map_or(Ok(()), |id| resolved.require_absent(id))?;
            Ok(resolved)
        };
        for round in 1..=PLAN_ROUNDS_MAX {
            let mut resolved = resolve()?;
            let (count, bytes) = resolved.size();
            if count == 0 {
                cursor.map_or(Ok(()), |entry| self.move_cursor(who, branch, entry))?;
                let head = self.catalog().branch(branch)?.state.head();
                return Ok(CommitReceipt { put: 0, deleted: 0, head, entry: self.tip() });
            }
            // The quota is asked with no lock held, as counting may go through whole branches; room on the disk is
            // taken after that.
            let puts = resolved.puts().map(|(id, version)| (id, id.len() + version.content.bytes()));
            self.check_record_quota(branch, puts)?;
            let is_bulk = count >= BULK_EDITS || bytes >= BULK_BYTES;
            let cost = edits_disk_cost(&resolved, is_bulk);
            let _room = match without_waiting(|| self.reserve_for(cost)) {
                Err(Error::WouldWait) => {
                    // A collection gives back no file that this holds on to.
                    drop(resolved);
                    let room = self.reserve_for(cost)?;
                    resolved = resolve()?;
                    room
                }
                room => room?,
            };
            let done = if is_bulk && resolved.puts().all(|(_, version)| version.created_from.is_none()) {
                self.commit_bulk(who, branch, (&resolved, cursor))
            } else {
                // The last time in any case: who writes much is not outrun by those who write little.
                let replan =
                    (edits.len() <= REPLAN_EDITS_MAX || round == PLAN_ROUNDS_MAX).then_some(&resolve as &dyn Fn() -> _);
                self.commit_few(who, branch, (&resolved, cursor), replan)
            };
            if let Some(entry) = done.map_err(|error| resolved.at_line(error, &self.catalog_now(), branch))? {
                return Ok(CommitReceipt::from_entry(&entry));
            }
        }
        Err(BranchError::Moves.into())
    }

    /// Commits what edits come to; `replan` plans them again under the lock where that is little. `None` if it no
    /// longer holds.
    fn commit_few(
        &self,
        who: &Actor,
        branch: BranchId,
        (resolved, cursor): (&ResolvedEdits, Option<u64>),
        replan: Option<&dyn Fn() -> Result<ResolvedEdits, Error>>,
    ) -> Result<Option<Arc<SignedEntry>>, Error> {
        let mut holds = true;
        let command = || {
            let state = self.catalog().branch(branch)?.state.clone();
            let mut changes = resolved.changes();
            // Compared under the writer lock, as this closure runs there: what was worked out without it may rest on
            // what has changed.
            if !resolved.has_same_outcome(&state)? {
                changes =
                    replan.map(|replan| replan()).transpose()?.map(|resolved| resolved.changes()).unwrap_or_default();
            }
            holds = !changes.is_empty();
            if let Some(entry) = cursor {
                changes.push(RecordChange::Cursor(cursor_at(&self.catalog(), branch, entry)?));
            }
            // Only an error ends this without an entry; `holds` tells the two cases apart below.
            if holds { Ok(CommitRecords { branch, changes }) } else { Err(BranchError::Moves.into()) }
        };
        match self.transact_without_reserving(who, &[Some(branch)], command) {
            Err(_) if !holds => Ok(None),
            done => done.map(Some),
        }
    }

    /// Writes the records into a segment first; the entry then names it. `None` if the outcome no longer holds.
    fn commit_bulk(
        &self,
        who: &Actor,
        branch: BranchId,
        (resolved, cursor): (&ResolvedEdits, Option<u64>),
    ) -> Result<Option<Arc<SignedEntry>>, Error> {
        // Gives a user who is new an entry with their name, which the versions below may have as their agent.
        drop(self.writer_for(who, &[Some(branch)])?);
        let maker = VersionBuilder::new(self, who, branch)?;
        let rows = resolved.puts().map(|(id, version)| {
            Ok(Row::Unsealed(Arc::new(maker.version(id.clone(), version.clone(), resolved.created(id, version)?))))
        });
        let rows = rows.collect::<Result<Vec<Row>, Error>>()?;
        // Deletes alone make no segment, however many they are, and are an ordinary command.
        if rows.is_empty() {
            return self.commit_few(who, branch, (resolved, cursor), None);
        }
        let dim = maker.check_rows(&rows)?;
        // Until an entry refers to the segment: a sweep would remove it.
        let _publishing = self.storage.segments.blobs.begin_publishing();
        let name = write_segment(&self.storage.segments.blobs, &rows, dim)?;
        // The versions are in the segment by now, and need not be held while the branch is worked out.
        drop(rows);
        let segment = self.storage.segments.get_prefetched(&name)?;
        let deletes = resolved.deletes().cloned().collect();
        let relied =
            ReadSet { is_unchanged: &|state| resolved.has_same_outcome(state), contains: &|id| resolved.relies_on(id) };
        let entry = self.commit_segment(who, branch, segment, (deletes, cursor), &relied)?;
        self.maintenance.indexer.wake();
        Ok(entry)
    }

    /// Commits the rows of a segment. What the branch becomes is worked out before the lock is taken, and again for
    /// what has changed meanwhile: under the lock where that is little. `None` if rows were made of versions that are
    /// no longer there.
    fn commit_segment(
        &self,
        who: &Actor,
        branch: BranchId,
        segment: Arc<Segment>,
        (deletes, cursor): (Vec<Arc<str>>, Option<u64>),
        relied: &ReadSet<'_>,
    ) -> Result<Option<Arc<SignedEntry>>, Error> {
        let name = segment.name();
        // The clock is asked without the catalog's lock: in one statement the guard would last until its end.
        let catalog = self.catalog().clone();
        let time = self.now();
        let mut bulk = BulkCommit::new(&catalog, branch, segment, &deletes, time)?;
        if !(relied.is_unchanged)(&catalog.branch(branch)?.state)? {
            return Ok(None);
        }
        drop(catalog);
        let replan =
            |bulk: &BulkCommit, catalog: &Catalog, changes_max| bulk.replan(catalog, changes_max, relied.contains);
        for _ in 0..PLAN_ROUNDS_MAX {
            let mut writer = self.writer_for(who, &[Some(branch)])?;
            let time = self.next_time(&mut writer)?;
            if !bulk.is_current(&self.catalog(), time) {
                let catalog = self.catalog().clone();
                // A compaction has moved what it was worked out from, so there is nothing to compare the branch with;
                // or the clock was set back since.
                if !bulk.is_in_place(&catalog, time) {
                    drop(writer);
                    if !(relied.is_unchanged)(&catalog.branch(branch)?.state)? {
                        return Ok(None);
                    }
                    bulk = bulk.recompute(&catalog, self.now())?;
                    continue;
                }
                let newer = match replan(&bulk, &catalog, REVALIDATED_UNDER_LOCK_MAX) {
                    Err(PlanError::Exceeded) => {
                        drop(writer);
                        let Some(newer) = replan(&bulk, &catalog, usize::MAX)? else { return Ok(None) };
                        bulk = newer;
                        continue;
                    }
                    newer => newer?,
                };
                let Some(newer) = newer else { return Ok(None) };
                bulk = newer;
            }
            // Asked again under the lock: the entry must be in the log that the branch has at this moment.
            let cursor = cursor.map(|entry| cursor_at(&self.catalog(), branch, entry)).transpose()?;
            let command = Box::new(CommitSegment { branch, segment: name, deletes, cursor });
            let log_record = LogRecord { time, planned: bulk.time, uid: who.uid, command };
            let (entry, change) = self.execute_planned(&mut writer, log_record, |catalog, log_record| {
                bulk.prepare(catalog, log_record, cursor)
            })?;
            drop(writer);
            self.notify(change);
            return Ok(Some(entry));
        }
        Err(BranchError::Moves.into())
    }

    /// Commits records of another store, keeping who wrote them and when, and deletes others. Fails like
    /// [`Memory::commit`].
    pub fn import_records(
        &self,
        who: &Actor,
        branch: BranchId,
        mut records: Vec<ImportedRecord>,
        deletes: &[Arc<str>],
    ) -> Result<(), Error> {
        if records.is_empty() && deletes.is_empty() {
            return Ok(());
        }
        if records.is_empty() {
            let changes = deletes.iter().map(|id| RecordChange::Delete { id: id.clone() }).collect();
            return self.transact(who, &[Some(branch)], || Ok(CommitRecords { branch, changes })).map(drop);
        }
        self.check_record_quota(branch, records.iter().map(|record| (record.id(), record.bytes())))?;
        let bytes = records.iter().map(ImportedRecord::bytes).sum::<usize>();
        let _room = self.reserve_room(disk_cost_bytes(0, 0) + bulk_disk_cost_bytes(bytes as u64))?;
        // A segment has its rows in the order of ids.
        records.sort_by(|one, other| one.id().cmp(other.id()));
        let rows: Vec<Row> =
            records.into_iter().map(|ImportedRecord(version)| Row::Unsealed(Arc::new(version))).collect();
        let dim = VersionBuilder::new(self, who, branch)?.check_rows(&rows)?;
        // Until an entry refers to the segment: a sweep would remove it.
        let _publishing = self.storage.segments.blobs.begin_publishing();
        let name = write_segment(&self.storage.segments.blobs, &rows, dim)?;
        let segment = self.storage.segments.get_prefetched(&name)?;
        // They are whole versions, so that what others do meanwhile changes nothing in them.
        let relied = ReadSet { is_unchanged: &|_| Ok(true), contains: &|_| false };
        self.commit_segment(who, branch, segment, (deletes.to_vec(), None), &relied)?;
        self.maintenance.indexer.wake();
        Ok(())
    }

    /// Deletes a record if its present version is still `record`. Returns whether it was. Kind `Gone` if the branch has
    /// ended.
    pub fn delete_version(&self, who: &Actor, branch: BranchId, record: &Record) -> Result<bool, Error> {
        self.ensure_room_to_free()?;
        let mut is_there = true;
        let command = || {
            let state = self.catalog().branch(branch)?.state.clone();
            is_there = state.find(record.id())?.map_or(Ok(false), |row| record.is_version(&row))?;
            let delete = RecordChange::Delete { id: record.id().into() };
            if is_there { Ok(CommitRecords { branch, changes: vec![delete] }) } else { Err(BranchError::Moves.into()) }
        };
        match self.transact_without_reserving(who, &[Some(branch)], command) {
            Err(_) if !is_there => Ok(false),
            done => done.map(|_| true),
        }
    }

    /// Finds room for edits that cost so many bytes; those that only delete may use the reserve.
    fn reserve_for(&self, cost: Option<u64>) -> Result<Option<DiskReservation<'_>>, Error> {
        match cost {
            Some(cost) => self.reserve_room(cost).map(Some),
            None => self.ensure_room_to_free().map(|()| None),
        }
    }

    /// Checks the vector of a correction as a commit would, and changes nothing. Kind `Invalid` if it has another
    /// length than the vectors of the memory, a number that is not finite, or no direction under cosine.
    pub fn check_patch_vector(&self, branch: BranchId, patch: &RecordPatch) -> Result<(), Error> {
        let catalog = self.catalog();
        let root = catalog.branch(catalog.branch(branch)?.root)?;
        let settings = &root.settings;
        let dim = settings.dim().or_else(|| self.embedder_dim(root));
        let vector = patch.vector.clone().flatten();
        let norm = vector.as_deref().map_or(0.0, crate::vector::norm);
        let content = RecordContent { vector, text: None, metadata: "".into() };
        Ok(check_vector(dim, settings.metric(), &content, norm)?)
    }

    /// Checks a correction as a commit at this moment would, and changes nothing. Fails like
    /// [`Memory::check_patch_vector`], and with kind `Invalid` if nothing would be left of the record.
    pub fn check_correction(&self, branch: BranchId, id: &str, patch: &RecordPatch) -> Result<(), Error> {
        self.check_patch_vector(branch, patch)?;
        if patch.may_leave_nothing() {
            let state = self.catalog().branch(branch)?.state.clone();
            let before = state.find(id)?.map(|row| row.version()).transpose()?;
            patch.apply_to(before.as_ref().map(|version| &version.content))?;
        }
        Ok(())
    }
}

/// Returns what edits cost; `None` if they only delete.
fn edits_disk_cost(resolved: &ResolvedEdits, is_bulk: bool) -> Option<u64> {
    let cost = |content: &RecordContent| match content.bytes() as u64 {
        bytes if is_bulk => bulk_disk_cost_bytes(bytes),
        bytes => disk_cost_bytes(bytes, 0),
    };
    let versions = resolved.puts().map(|(_, version)| cost(&version.content)).sum::<u64>();
    (!resolved.only_deletes()).then_some(disk_cost_bytes(0, 0) + versions)
}

/// What the rows of a segment were made of, looked at again under the lock.
struct ReadSet<'a> {
    /// Whether a state still has what was read.
    is_unchanged: &'a dyn Fn(&Arc<BranchVersion>) -> Result<bool, SegmentError>,
    /// Whether what was read is of that record.
    contains: &'a dyn Fn(&str) -> bool,
}

/// Makes the versions of a bulk commit, outside the writer's lock.
struct VersionBuilder {
    catalog: Catalog,
    branch: BranchId,
    provenance: Provenance,
}

impl VersionBuilder {
    fn new(memory: &Memory, who: &Actor, id: BranchId) -> Result<VersionBuilder, Error> {
        let catalog = memory.catalog().clone();
        let branch = catalog.branch(id)?;
        let agent = catalog.agent(branch, who.uid);
        let session = branch.settings.get(Setting::Session).clone();
        let (now, branch, task) = (memory.now(), branch.path.clone(), branch.settings.get(Setting::Task).clone());
        let (uid, vector_stale) = (who.uid, false);
        let provenance = Provenance { created: now, modified: now, branch, agent, session, task, uid, vector_stale };
        Ok(VersionBuilder { branch: id, provenance, catalog })
    }

    fn version(&self, id: Arc<str>, resolved: ResolvedVersion, created: Option<Time>) -> Version {
        let ResolvedVersion { content, vector_stale, .. } = resolved;
        let created = created.unwrap_or(self.provenance.created);
        Version::new(id, content, Provenance { created, vector_stale, ..self.provenance.clone() })
    }

    /// Checks ids and vectors, and returns the dimension; 0 if no row has a vector.
    fn check_rows(&self, rows: &[Row]) -> Result<usize, Error> {
        let settings = self.catalog.shared_settings(self.catalog.branch(self.branch)?)?;
        let mut dim = settings.dim();
        for row in rows {
            let Row::Unsealed(version) = row else { continue };
            check_record_id(&version.id)?;
            let named = |error| RecordError::Record { id: version.id.to_string(), source: Box::new(error) };
            check_vector(dim, settings.metric(), &version.content, version.norm).map_err(named)?;
            dim = dim.or(version.content.vector.as_ref().map(|vector| vector.len()));
        }
        let vectors = rows.iter().any(|row| matches!(row, Row::Unsealed(version) if version.content.vector.is_some()));
        Ok(if vectors { dim.unwrap_or(0) } else { 0 })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Environment, OpenMode, RecordInput};

    fn who() -> Actor {
        Actor { uid: 0, gid: 0, name: "root".into() }
    }

    fn memory() -> (Arc<Memory>, BranchId) {
        let memory =
            Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, Environment::real(who())).unwrap();
        let main = memory.root("main").unwrap();
        (memory, main)
    }

    fn put(id: &str) -> RecordEdit {
        let input = RecordInput { vector: Some([1.0, 2.0].into()), text: Some("x".into()), metadata: "{}".into() };
        RecordEdit::Put { id: id.into(), input }
    }

    #[test]
    fn an_import_that_is_repeated_writes_nothing_again() {
        let (memory, main) = memory();
        let options = CommitOptions { skip_unchanged: true, ..CommitOptions::default() };
        assert_eq!(memory.commit_with(&who(), main, vec![put("a")], &options).unwrap().put, 1);
        let before = memory.last_seq();
        assert_eq!(memory.commit_with(&who(), main, vec![put("a")], &options).unwrap().put, 0);
        assert_eq!(memory.last_seq(), before);
    }

    #[test]
    fn a_rename_that_may_replace_nothing_is_void_once_the_other_record_has_come() {
        let (memory, main) = memory();
        memory.commit(&who(), main, vec![put("old")]).unwrap();
        let state = || memory.catalog().branch(main).unwrap().state.clone();
        let edits = || vec![RecordEdit::Rename { from: "old".into(), to: "new".into() }];
        let planned = || ResolvedEdits::new(&state(), &edits(), memory.admission.budget.empty_reservation(0)).unwrap();
        let (control, mut resolved, new) = (planned(), planned(), Arc::<str>::from("new"));
        resolved.require_absent(&new).unwrap();
        memory.commit(&who(), main, vec![put("new")]).unwrap();
        assert!(control.has_same_outcome(&state()).unwrap());
        assert!(!resolved.has_same_outcome(&state()).unwrap());
        let options = CommitOptions { absent: Some(new), ..CommitOptions::default() };
        let refused = memory.commit_with(&who(), main, edits(), &options).err().unwrap();
        assert_eq!(refused.code(), "record_exists");
        assert!(state().find("old").unwrap().is_some());
    }

    #[test]
    fn deletes_are_committed_without_any_imported_record() {
        let (memory, main) = memory();
        memory.commit(&who(), main, vec![put("goes"), put("stays")]).unwrap();
        memory.import_records(&who(), main, Vec::new(), &["goes".into()]).unwrap();
        let state = memory.catalog().branch(main).unwrap().state.clone();
        assert!(state.find("goes").unwrap().is_none() && state.find("stays").unwrap().is_some());
    }
}
