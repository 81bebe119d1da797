//! What callers do to a store.

use std::collections::HashMap;
use std::sync::Arc;

use super::bulk::Bulk;
use super::prepare::{check_vector, created};
use crate::branch::check_record_id;
use crate::lineage::SignedEntry;
use crate::memory::admission::disk_room::{DiskReservation, bulk_cost_of, cost_of};
use crate::memory::admission::quota::Usage;
use crate::memory::catalog::settings::{self, Setting, Settings, parse_duration};
use crate::memory::catalog::{BranchId, Catalog, Revision, StateSource, check_label};
use crate::memory::command::log_record::{Command, LogRecord, RecordChange};
use crate::memory::command::record_input::{RecordEdit, RecordInput};
use crate::memory::merging::find_state::FoundState;
use crate::memory::merging::merge::{AGAIN, ROUNDS, SMALL};
use crate::memory::merging::merge_budget::PlanError;
use crate::memory::merging::merge_plan::MergeContext;
use crate::memory::merging::rollback::Rollback;
use crate::memory::{Actor, BranchError, Error, Memory, RecordError};
use crate::object::{Hash, Time};
use crate::record::{Provenance, Version};
use crate::segment::{Row, Segment, write_segment};

/// Edits in one commit from which on the records go straight into a segment.
const BULK_EDITS: usize = 1024;
/// Bytes of records in one commit from which on they do: to sign and log more takes a while.
const BULK_BYTES: usize = 4 << 20;

/// What a commit did.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// Records written.
    pub put: u64,
    /// Records deleted.
    pub deleted: u64,
    /// The branch's head after it.
    pub head: Hash,
    /// The entry's hash.
    pub entry: Hash,
}

impl Receipt {
    fn of(entry: &SignedEntry) -> Receipt {
        let counts = entry.entry.counts;
        Receipt { put: counts.put, deleted: counts.deleted, head: entry.entry.head, entry: entry.hash }
    }

    /// Returns one line of JSON without its line end.
    pub fn to_json(&self) -> String {
        format!(
            "{{\"put\":{},\"deleted\":{},\"head\":\"{}\",\"entry\":\"{}\"}}",
            self.put, self.deleted, self.head, self.entry
        )
    }
}

impl Memory {
    /// Makes an empty root branch.
    pub fn create_root(&self, who: &Actor, name: &str) -> Result<BranchId, Error> {
        let entry = self.transact(who, &[], || Ok(Command::Root(name.into(), Settings::default())))?;
        Ok(BranchId(entry.entry.branch_id))
    }

    /// Forks a branch as it is now, or as it was at the checkpoint `from`.
    ///
    /// The cost depends on nothing that the branch holds. Kind `Exists` where the name is taken,
    /// `Invalid` where it is not a name.
    pub fn fork(&self, who: &Actor, parent: BranchId, name: &str, from: Option<&str>) -> Result<BranchId, Error> {
        let from = from.map(|text| self.find_state(parent, &Revision::parse(text)?)).transpose()?;
        self.fork_from(who, parent, name, from.as_ref(), None)
    }

    /// Forks a branch as it is now, or from a state that was found, for whoever forks or another user, whose branch it is
    /// from the beginning. Who may is not asked here.
    pub fn fork_from(
        &self,
        who: &Actor,
        parent: BranchId,
        name: &str,
        from: Option<&FoundState>,
        owner: Option<u32>,
    ) -> Result<BranchId, Error> {
        self.check_quota(parent, |_| Ok(Usage { branches: 1, ..Usage::default() }))?;
        let from = from.map(|state| state.source.clone());
        let command = || Ok(Command::Fork { parent, name: name.into(), from: from.clone(), owner });
        Ok(BranchId(self.transact(who, &[Some(parent)], command)?.entry.branch_id))
    }

    /// Throws a branch away. Kind `NotEmpty` while it has child branches.
    pub fn discard(&self, who: &Actor, branch: BranchId) -> Result<(), Error> {
        self.give_room()?;
        self.transact_in_room(who, &[Some(branch)], || Ok(Command::Discard(branch))).map(|_| ())
    }

    /// Gives a child branch another name.
    pub fn rename_branch(&self, who: &Actor, branch: BranchId, name: &str) -> Result<(), Error> {
        self.transact(who, &[Some(branch)], || Ok(Command::Rename(branch, name.into()))).map(|_| ())
    }

    /// Carries out edits as one atomic entry; of several edits of one id the last counts.
    ///
    /// No edits make no entry: the receipt then names the present head and tip.
    pub fn commit(&self, who: &Actor, branch: BranchId, edits: Vec<RecordEdit>) -> Result<Receipt, Error> {
        let edits = last_of_each(edits);
        if edits.is_empty() {
            let head = self.catalog().branch(branch)?.state.head();
            return Ok(Receipt { put: 0, deleted: 0, head, entry: self.tip() });
        }
        self.check_records(branch, &edits)?;
        if is_bulk(&edits) && !edits.iter().any(|edit| matches!(edit, RecordEdit::Rename { .. })) {
            return self.commit_bulk(who, branch, edits);
        }
        let _room = self.room_for(branch, &edits)?;
        let mut changes = Vec::with_capacity(edits.len());
        let mut renames = Vec::new();
        for edit in edits {
            match edit {
                RecordEdit::Put { id, draft } => {
                    changes.push(RecordChange::Put { id, content: draft.into_content(), from: None })
                }
                RecordEdit::Delete { id } => changes.push(RecordChange::Delete { id }),
                RecordEdit::Rename { from, to } => renames.push((from, to)),
            }
        }
        let command = || {
            for (from, to) in renames {
                changes.extend(self.renamed(branch, from, to)?);
            }
            Ok(Command::Commit(branch, changes))
        };
        Ok(Receipt::of(&*self.transact_in_room(who, &[Some(branch)], command)?))
    }

    /// Like [`Memory::commit`], but leaves records alone whose content is already so. An import that
    /// broke off can be repeated at little cost.
    pub fn import(&self, who: &Actor, branch: BranchId, edits: Vec<RecordEdit>) -> Result<Receipt, Error> {
        let state = self.catalog().branch(branch)?.state.clone();
        let mut fresh = Vec::with_capacity(edits.len());
        for edit in edits {
            let same = match (&edit, state.totals().records) {
                (_, 0) => false,
                (RecordEdit::Put { id, draft }, _) => match state.find(id)? {
                    Some(old) => old.hash()? == draft.clone().into_content().hash(id),
                    None => false,
                },
                _ => false,
            };
            if !same {
                fresh.push(edit);
            }
        }
        self.commit(who, branch, fresh)
    }

    /// The changes of a renaming: the content under the new id, and the old id gone.
    fn renamed(&self, branch: BranchId, from: Arc<str>, to: Arc<str>) -> Result<[RecordChange; 2], Error> {
        let state = self.catalog().branch(branch)?.state.clone();
        let Some(row) = state.find(&from)? else {
            return Err(RecordError::Missing(from.to_string()).into());
        };
        let content = row.version()?.content.clone();
        Ok([RecordChange::Put { id: to, content, from: Some(from.clone()) }, RecordChange::Delete { id: from }])
    }

    /// Writes the records into a segment first; the entry then names it.
    fn commit_bulk(&self, who: &Actor, branch: BranchId, edits: Vec<RecordEdit>) -> Result<Receipt, Error> {
        let _room = self.room_for(branch, &edits)?;
        drop(self.writer_for(who, &[Some(branch)])?);
        let (mut rows, mut deletes) = (Vec::with_capacity(edits.len()), Vec::new());
        let maker = VersionBuilder::new(self, who, branch)?;
        for edit in edits {
            match edit {
                RecordEdit::Put { id, draft } => rows.push(Row::Unsealed(Arc::new(maker.version(id, draft)?))),
                RecordEdit::Delete { id } | RecordEdit::Rename { from: id, .. } => deletes.push(id),
            }
        }
        let dim = maker.check(&rows)?;
        let _publishing = self.storage.segments.blobs.publishing();
        if rows.is_empty() {
            let changes = deletes.into_iter().map(|id| RecordChange::Delete { id }).collect();
            let command = || Ok(Command::Commit(branch, changes));
            return Ok(Receipt::of(&*self.transact_in_room(who, &[Some(branch)], command)?));
        }
        let name = write_segment(&self.storage.segments.blobs, &rows, dim)?;
        drop(rows);
        let segment = self.storage.segments.get_fresh(&name)?;
        let entry = self.commit_segment(who, branch, segment, deletes)?;
        self.maintenance.indexer.wake();
        Ok(Receipt::of(&entry))
    }

    /// Commits the rows of a segment. What the branch becomes is worked out before the lock is taken, and again for
    /// what has changed meanwhile: under the lock where that is little.
    fn commit_segment(
        &self,
        who: &Actor,
        branch: BranchId,
        segment: Arc<Segment>,
        deletes: Vec<Arc<str>>,
    ) -> Result<Arc<SignedEntry>, Error> {
        let name = segment.name();
        let catalog = self.catalog().clone();
        let mut bulk = Bulk::new(&catalog, branch, segment, &deletes, self.now())?;
        drop(catalog);
        for _ in 0..ROUNDS {
            let mut writer = self.writer_for(who, &[Some(branch)])?;
            if !bulk.holds(&self.catalog()) {
                let catalog = self.catalog().clone();
                match bulk.again(&catalog, AGAIN) {
                    Ok(again) => bulk = again,
                    Err(PlanError::Failed(error)) => return Err(error),
                    Err(PlanError::Exceeded) => {
                        drop(writer);
                        bulk = bulk.again(&catalog, usize::MAX)?;
                        continue;
                    }
                }
            }
            let time = self.next_time(&mut writer)?;
            let log_record = LogRecord {
                time,
                planned: bulk.time.min(time),
                uid: who.uid,
                command: Command::Bulk(branch, name, deletes),
            };
            let (entry, change) =
                self.execute_planned(&mut writer, log_record, |catalog, log_record| bulk.prepare(catalog, log_record))?;
            drop(writer);
            self.tell(change);
            return Ok(entry);
        }
        Err(BranchError::Moves.into())
    }

    /// Goes back to a checkpoint: under the lock where little differs, else worked out before.
    fn roll_back(
        &self,
        who: &Actor,
        branch: BranchId,
        source: &StateSource,
        patterns: Option<Vec<Arc<str>>>,
    ) -> Result<Receipt, Error> {
        let work_out = |catalog: &Catalog, time: Time, most: usize| {
            let context = MergeContext { catalog, packs: &self.storage.trees, time };
            Rollback::new(context, branch, source, patterns.as_deref(), most)
        };
        self.give_room()?;
        let (mut earlier, mut room): (Option<Rollback>, _) = (None, None);
        for _ in 0..ROUNDS {
            let mut writer = self.writer_for(who, &[Some(branch)])?;
            let (catalog, time) = (self.catalog().clone(), self.next_time(&mut writer)?);
            let planned = match earlier.take().filter(|earlier| earlier.holds(&catalog)) {
                Some(earlier) => Ok(earlier),
                None => work_out(&catalog, time, SMALL),
            };
            match planned {
                Ok(planned) if !planned.shrinks() && room.is_none() => {
                    drop(writer);
                    room = Some(self.take_room(cost_of(0, 0))?);
                    earlier = Some(planned);
                }
                Ok(planned) => {
                    drop(catalog);
                    let log_record =
                        LogRecord { time, planned: planned.time, uid: who.uid, command: planned.command() };
                    let done = self.execute_planned(&mut writer, log_record, |catalog, log_record| {
                        planned.prepare(catalog, log_record)
                    });
                    drop(writer);
                    let (entry, change) = done?;
                    self.tell(change);
                    return Ok(Receipt::of(&entry));
                }
                Err(PlanError::Failed(error)) => return Err(error),
                Err(PlanError::Exceeded) => {
                    drop(writer);
                    earlier = Some(work_out(&catalog, self.now(), usize::MAX)?);
                }
            }
        }
        Err(BranchError::Moves.into())
    }

    /// Returns whether edits only delete, and something.
    fn deletes(&self, branch: BranchId, edits: &[RecordEdit]) -> Result<bool, Error> {
        let state = self.catalog().branch(branch)?.state.clone();
        let mut some = false;
        for edit in edits {
            let RecordEdit::Delete { id } = edit else { return Ok(false) };
            some = some || state.find(id)?.is_some();
        }
        Ok(some)
    }

    /// Finds room for edits; those that only delete give some back.
    fn room_for(&self, branch: BranchId, edits: &[RecordEdit]) -> Result<Option<DiskReservation<'_>>, Error> {
        if self.deletes(branch, edits)? {
            return self.give_room().map(|()| None);
        }
        let is_bulk = is_bulk(edits);
        let cost = |edit: &RecordEdit| match edit {
            RecordEdit::Put { draft, .. } if is_bulk => bulk_cost_of(draft.bytes() as u64),
            RecordEdit::Put { draft, .. } => cost_of(draft.bytes() as u64, 0),
            _ => 0,
        };
        self.take_room(cost_of(0, 0) + edits.iter().map(cost).sum::<u64>()).map(Some)
    }

    /// Fails as a commit of this one record would, and changes nothing.
    pub fn check(&self, branch: BranchId, draft: &RecordInput) -> Result<(), Error> {
        let catalog = self.catalog();
        let settings = catalog.shared_settings(catalog.branch(branch)?)?;
        let content = draft.clone().into_content();
        let norm = content.vector.as_deref().map_or(0.0, crate::vector::norm);
        Ok(check_vector(settings.dim(), settings.metric(), &content, norm)?)
    }

    /// Takes a checkpoint; `text` says why.
    pub fn checkpoint(&self, who: &Actor, branch: BranchId, label: &str, text: Option<&str>) -> Result<(), Error> {
        // Not where commands are replayed: labels of earlier versions go on.
        check_label(label)?;
        let command = || Ok(Command::Checkpoint { branch, label: label.into(), text: text.unwrap_or_default().into() });
        self.transact(who, &[Some(branch)], command).map(|_| ())
    }

    /// Deletes a checkpoint.
    pub fn delete_checkpoint(&self, who: &Actor, branch: BranchId, label: &str) -> Result<(), Error> {
        self.give_room()?;
        self.transact_in_room(who, &[Some(branch)], || Ok(Command::Uncheckpoint(branch, label.into()))).map(|_| ())
    }

    /// Makes a branch's records those of a checkpoint, as a new commit; the state before stays
    /// readable for as long as `config/keep` says.
    pub fn rollback(&self, who: &Actor, branch: BranchId, label: &str) -> Result<Receipt, Error> {
        self.rollback_to(who, branch, &self.find_state(branch, &Revision::parse(label)?)?, &[])
    }

    /// Goes back to a state that was found: with all, or with the files at some paths.
    pub fn rollback_to(
        &self,
        who: &Actor,
        branch: BranchId,
        found: &FoundState,
        patterns: &[String],
    ) -> Result<Receipt, Error> {
        let patterns: Vec<Arc<str>> = patterns.iter().map(|pattern| pattern.as_str().into()).collect();
        self.roll_back(who, branch, &found.source, Some(patterns).filter(|patterns| !patterns.is_empty()))
    }

    /// Makes the files at some paths those of a checkpoint, and leaves all else. Patterns are those
    /// of `config/rules` behind `files/`; one that matches nothing changes nothing.
    pub fn rollback_files(
        &self,
        who: &Actor,
        branch: BranchId,
        label: &str,
        patterns: &[String],
    ) -> Result<Receipt, Error> {
        self.rollback_to(who, branch, &self.find_state(branch, &Revision::parse(label)?)?, patterns)
    }

    /// Writes a refusal into the lineage, at most one a second and branch; returns it, or kind `WouldWait` where it
    /// could not be written down for that.
    pub(in crate::memory) fn note_refusal(&self, who: &Actor, branch: BranchId, refusal: Error) -> Error {
        let now = self.now();
        let last = self.merging.refused.lock().get(&branch).copied();
        if last.is_some_and(|last| now < last.after(1_000_000_000)) {
            return refusal;
        }
        let reason = format!("{}: {refusal}", refusal.code());
        match self.transact(who, &[Some(branch)], || Ok(Command::Refuse(branch, reason.into()))) {
            Err(Error::WouldWait) => return Error::WouldWait,
            Err(error) => log::warn!("a refusal could not be noted in the lineage: {error}; {}", error.hint()),
            Ok(_) => drop(self.merging.refused.lock().insert(branch, now)),
        }
        refusal
    }

    /// Gives a setting a value.
    pub fn set(&self, who: &Actor, branch: BranchId, setting: Setting, value: &str) -> Result<(), Error> {
        // Rules take a while to parse, so not under the lock.
        let value = settings::check(setting, value)?;
        let command = || Ok(Command::Config(branch, setting, value.as_str().into()));
        let shortens = {
            let catalog = self.catalog();
            let before = catalog.branch(branch)?.settings.duration(setting).unwrap_or(i64::MAX);
            matches!(setting, Setting::Keep | Setting::Ttl) && parse_duration(&value).is_ok_and(|after| after < before)
        };
        // So that what is kept can be let go of on a full disk.
        let _room = if shortens { self.give_room().map(|()| None)? } else { Some(self.take_room(cost_of(0, 0))?) };
        self.transact_in_room(who, &[Some(branch)], command)?;
        let settings = self.catalog().branches.get(&branch).map(|branch| branch.settings.clone());
        if let Some(settings) = settings.filter(|_| setting == Setting::Rules) {
            // So that nobody parses them who holds it.
            settings.rules();
        }
        Ok(())
    }

    /// Gives a branch's directory permission bits.
    pub fn chmod(&self, who: &Actor, branch: BranchId, mode: u32) -> Result<(), Error> {
        self.transact(who, &[Some(branch)], || Ok(Command::Mode(branch, mode & 0o7777))).map(|_| ())
    }

    /// Gives a branch to another user, with what its owner has in `files/` and others may read. Who may is not asked here.
    pub fn chown(&self, who: &Actor, branch: BranchId, uid: u32) -> Result<(), Error> {
        self.transact(who, &[Some(branch)], || Ok(Command::Owner(branch, uid))).map(|_| ())
    }
}

/// Returns whether the records of a commit go straight into a segment.
fn is_bulk(edits: &[RecordEdit]) -> bool {
    let bytes = |edit: &RecordEdit| if let RecordEdit::Put { draft, .. } = edit { draft.bytes() } else { 0 };
    edits.len() >= BULK_EDITS || edits.iter().map(bytes).sum::<usize>() >= BULK_BYTES
}

/// Keeps the last edit of each id, in order of ids.
fn last_of_each(edits: Vec<RecordEdit>) -> Vec<RecordEdit> {
    let mut last: HashMap<Arc<str>, usize> = HashMap::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        last.insert(edit.id().clone(), index);
    }
    let mut kept: Vec<RecordEdit> = Vec::with_capacity(last.len());
    for (index, edit) in edits.into_iter().enumerate() {
        if last.get(edit.id()) == Some(&index) {
            kept.push(edit);
        }
    }
    kept.sort_by(|a, b| a.id().cmp(b.id()));
    kept
}

/// Makes the versions of a bulk commit, outside the writer's lock.
struct VersionBuilder {
    catalog: Catalog,
    branch: BranchId,
    stamp: Provenance,
}

impl VersionBuilder {
    fn new(memory: &Memory, who: &Actor, id: BranchId) -> Result<VersionBuilder, Error> {
        let catalog = memory.catalog().clone();
        let branch = catalog.branch(id)?;
        let agent = branch.settings.get(Setting::Agent);
        let agent = if agent.is_empty() { catalog.user(who.uid) } else { agent.clone() };
        let session = branch.settings.get(Setting::Session).clone();
        let now = memory.now();
        let stamp = Provenance { created: now, modified: now, branch: branch.path.clone(), agent, session };
        Ok(VersionBuilder { branch: id, stamp, catalog })
    }

    fn version(&self, id: Arc<str>, draft: RecordInput) -> Result<Version, Error> {
        let state = &self.catalog.branch(self.branch)?.state;
        let created: Time =
            if state.totals().records == 0 { self.stamp.created } else { created(state, self.stamp.created, &id)? };
        Ok(Version::new(id, draft.into_content(), Provenance { created, ..self.stamp.clone() }))
    }

    /// Checks all vectors and returns their dimension.
    fn check(&self, rows: &[Row]) -> Result<usize, Error> {
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
