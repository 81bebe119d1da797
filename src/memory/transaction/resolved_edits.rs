//! What edits of records come to: each applies to what the one before made, the first to the record as it is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::branch::BranchVersion;
use crate::memory::catalog::{BranchId, Catalog};
use crate::memory::command::record_change::RecordChange;
use crate::memory::command::record_input::{RecordEdit, check_vector};
use crate::memory::command::record_patch::RecordPatch;
use crate::memory::{Error, RecordError};
use crate::object::Time;
use crate::record::RecordContent;
use crate::segment::{Blocks, Row, SegmentError};
use crate::sync::Reservation;
use crate::vector::norm;

/// The outcome of edits on one state of a branch, and the parts of that state it depends on.
pub struct ResolvedEdits {
    state: Arc<BranchVersion>,
    records: BTreeMap<Arc<str>, ResolvedRecord>,
    /// Memory for versions that were read and that no edit changes.
    held: Reservation,
}

/// One record: the row that it has, and what the edits so far make of it.
struct ResolvedRecord {
    before: Option<Row>,
    after: EditOutcome,
    /// Whether the outcome depends on the version before, so that another one there makes the plan void.
    depends_on_before: bool,
}

enum EditOutcome {
    Unchanged,
    Version(ResolvedVersion),
    Deleted,
}

/// A version that edits lead to, all but its provenance.
#[derive(Clone)]
pub struct ResolvedVersion {
    /// Vector, text and metadata, as the edits so far leave them.
    pub content: RecordContent,
    /// Whether the text is newer than the vector; false if there is none.
    pub vector_stale: bool,
    /// The record whose `created` it keeps, if not its own.
    pub created_from: Option<Arc<str>>,
    /// Whether an earlier edit removed the record, so that it is another one since and keeps no `created`.
    pub is_recreated: bool,
    /// The line of the edit that gave it its vector, from 1; 0 if none did, or that edit has no line.
    vector_line: usize,
}

impl ResolvedEdits {
    /// Works out what edits come to; `held` counts what is read for it. Fails with `RecordError::Missing` if a record
    /// to rename is not there, with the `RecordError` of a content that can't be a record, which tells the line where
    /// the edit has one, and with `LimitError` if what is read is more than the user may hold.
    pub fn new(state: &Arc<BranchVersion>, edits: &[RecordEdit], held: Reservation) -> Result<ResolvedEdits, Error> {
        let mut resolved = ResolvedEdits { state: state.clone(), records: BTreeMap::new(), held };
        let mut blocks = Blocks::default();
        for edit in edits {
            match edit {
                RecordEdit::Put { id, input } => {
                    resolved.write(id, &RecordPatch::from_record(input), 0, &mut blocks)?
                }
                RecordEdit::Correct { id, patch, line } => resolved.write(id, patch, *line, &mut blocks)?,
                RecordEdit::Delete { id } => resolved.record(id)?.after = EditOutcome::Deleted,
                RecordEdit::Rename { from, to } => resolved.rename(from, to, &mut blocks)?,
            }
        }
        Ok(resolved)
    }

    fn record(&mut self, id: &Arc<str>) -> Result<&mut ResolvedRecord, SegmentError> {
        Ok(match self.records.entry(id.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let before = self.state.find(id)?;
                vacant.insert(ResolvedRecord { before, after: EditOutcome::Unchanged, depends_on_before: false })
            }
        })
    }

    /// Returns what a record is as far as the edits have come; what is not in memory is read and counted.
    fn current_version(&mut self, id: &Arc<str>, blocks: &mut Blocks) -> Result<Option<ResolvedVersion>, Error> {
        let record = self.record(id)?;
        if let EditOutcome::Unchanged = record.after {
            // From here on the outcome holds only while the version that was read is the present one.
            record.depends_on_before = true;
            let Some(row) = record.before.clone() else { return Ok(None) };
            let version = row.read_version(blocks)?;
            if let Row::Sealed(..) = row {
                self.held.grow(version.content.bytes() as u64)?;
            }
            let (content, vector_stale) = (version.content.clone(), version.provenance.vector_stale);
            self.record(id)?.after = EditOutcome::Version(ResolvedVersion {
                content,
                vector_stale,
                created_from: None,
                is_recreated: false,
                vector_line: 0,
            });
        }
        match &self.record(id)?.after {
            EditOutcome::Version(version) => Ok(Some(version.clone())),
            EditOutcome::Unchanged | EditOutcome::Deleted => Ok(None),
        }
    }

    fn write(&mut self, id: &Arc<str>, patch: &RecordPatch, line: usize, blocks: &mut Blocks) -> Result<(), Error> {
        let version = match self.resolve_unread(id, patch, line)? {
            Some(version) => version,
            None => {
                let before = self.current_version(id, blocks)?;
                let content = patch.apply_to(before.as_ref().map(|before| &before.content));
                let content = content.map_err(|error| if line > 0 { error.at_line(line) } else { error })?;
                let vector_stale = patch.vector_stale.unwrap_or_else(|| is_stale(before.as_ref(), &content));
                // Without a vector there is nothing that could be older than the text.
                let vector_stale = vector_stale && content.vector.is_some();
                let is_recreated = match &before {
                    Some(before) => before.is_recreated,
                    None => matches!(self.record(id)?.after, EditOutcome::Deleted),
                };
                let (vector_line, created_from) =
                    before.map_or((0, None), |before| (before.vector_line, before.created_from));
                let vector_line = if patch.vector.is_some() { line } else { vector_line };
                ResolvedVersion { content, vector_stale, created_from, is_recreated, vector_line }
            }
        };
        self.record(id)?.after = EditOutcome::Version(version);
        Ok(())
    }

    /// Returns the version of a patch that says all, where no text and no vector need be read to compare with: a record
    /// that is written again, as by an import that is repeated, or one without a vector.
    fn resolve_unread(
        &mut self,
        id: &Arc<str>,
        patch: &RecordPatch,
        line: usize,
    ) -> Result<Option<ResolvedVersion>, Error> {
        let record = self.record(id)?;
        // An edit of the same id that came before decides what a patch applies to, so only a first, whole one can go
        // unread.
        if !patch.is_whole() || !matches!(record.after, EditOutcome::Unchanged) {
            return Ok(None);
        }
        let Ok(content) = patch.apply_to(None) else { return Ok(None) };
        let vector_stale = match (&record.before, patch.vector_stale) {
            _ if content.vector.is_none() => false,
            (_, Some(stale)) => stale,
            (Some(row), None) if row.hash()? == content.hash(id) => {
                record.depends_on_before = true;
                row.provenance()?.vector_stale
            }
            (Some(_), None) => return Ok(None),
            (None, None) => {
                record.depends_on_before = true;
                false
            }
        };
        Ok(Some(ResolvedVersion { content, vector_stale, created_from: None, is_recreated: false, vector_line: line }))
    }

    fn rename(&mut self, from: &Arc<str>, to: &Arc<str>, blocks: &mut Blocks) -> Result<(), Error> {
        let Some(version) = self.current_version(from, blocks)? else {
            return Err(RecordError::Missing(from.to_string()).into());
        };
        if from != to {
            let origin = version.created_from.clone().unwrap_or_else(|| from.clone());
            let created_from = (!version.is_recreated).then_some(origin);
            self.record(to)?.after = EditOutcome::Version(ResolvedVersion { created_from, ..version });
            self.record(from)?.after = EditOutcome::Deleted;
        }
        Ok(())
    }

    /// Lets the outcome hold only while a record is not there. Fails with `RecordError::Exists` if it is.
    pub fn require_absent(&mut self, id: &Arc<str>) -> Result<(), Error> {
        let record = self.record(id)?;
        record.depends_on_before = true;
        if record.before.is_some() { Err(RecordError::Exists(id.to_string()).into()) } else { Ok(()) }
    }

    /// Leaves out what is already so, provenance aside. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the hash
    /// or the provenance of a version before can't be read.
    pub fn drop_unchanged(&mut self) -> Result<(), SegmentError> {
        for (id, record) in &mut self.records {
            if let (Some(row), EditOutcome::Version(version)) = (&record.before, &record.after)
                && row.hash()? == version.content.hash(id)
                && row.provenance()?.vector_stale == version.vector_stale
            {
                (record.after, record.depends_on_before) = (EditOutcome::Unchanged, true);
            }
        }
        Ok(())
    }

    /// Returns whether the outcome is the same on another state of the branch. Fails if a layer of that state can't be
    /// searched.
    pub fn has_same_outcome(&self, state: &Arc<BranchVersion>) -> Result<bool, SegmentError> {
        if Arc::ptr_eq(&self.state, state) {
            return Ok(true);
        }
        for (id, record) in self.records.iter().filter(|(_, record)| record.depends_on_before) {
            let same = match (&record.before, state.find(id)?) {
                (None, None) => true,
                (Some(Row::Unsealed(one)), Some(Row::Unsealed(other))) => Arc::ptr_eq(one, &other),
                (Some(Row::Sealed(one, at)), Some(Row::Sealed(other, row))) => one.name() == other.name() && *at == row,
                // A row that was sealed meanwhile counts as changed, so the plan is made again.
                _ => false,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the outcome depends on what a record was before.
    pub fn relies_on(&self, id: &str) -> bool {
        self.records.get(id).is_some_and(|record| record.depends_on_before)
    }

    /// Iterates over the versions that are written, in order of ids.
    pub fn puts(&self) -> impl Iterator<Item = (&Arc<str>, &ResolvedVersion)> {
        self.records.iter().filter_map(|(id, record)| match &record.after {
            EditOutcome::Version(version) => Some((id, version)),
            EditOutcome::Unchanged | EditOutcome::Deleted => None,
        })
    }

    /// Returns when the record of a version that is written was first written, where it was there before. `None` if the
    /// record is new, or removed and written anew. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the provenance
    /// of the version before can't be read.
    pub fn created(&self, id: &str, version: &ResolvedVersion) -> Result<Option<Time>, SegmentError> {
        let id = version.created_from.as_deref().unwrap_or(id);
        let known = self.records.get(id).filter(|_| !version.is_recreated);
        let origin = known.and_then(|record| record.before.as_ref());
        Ok(origin.map(Row::provenance).transpose()?.map(|provenance| provenance.created))
    }

    /// Iterates over the ids of the records that go, in order.
    pub fn deletes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.records.iter().filter_map(|(id, record)| matches!(record.after, EditOutcome::Deleted).then_some(id))
    }

    /// Returns whether edits only delete, and something that is there: such a commit may use the reserve.
    pub fn only_deletes(&self) -> bool {
        let mut some = false;
        let all = self.records.values().all(|record| {
            some = some || record.before.is_some();
            !matches!(record.after, EditOutcome::Version(_))
        });
        all && some
    }

    /// Returns the number of records that are written or deleted, and the bytes of the versions.
    pub fn size(&self) -> (usize, usize) {
        let bytes = self.puts().map(|(_, version)| version.content.bytes()).sum();
        (self.puts().count() + self.deletes().count(), bytes)
    }

    /// Returns the changes as they are logged. A record that gets another id is read before its old id goes, and one that was
    /// removed and written anew goes right before its new version comes.
    pub fn changes(&self) -> Vec<RecordChange> {
        let put = |id: &Arc<str>, version: &ResolvedVersion| {
            let ResolvedVersion { content, vector_stale, created_from, .. } = version.clone();
            RecordChange::Put { id: id.clone(), content, vector_stale, created_from }
        };
        let delete = |id: &Arc<str>| RecordChange::Delete { id: id.clone() };
        let kept = self.puts().filter(|(_, version)| !version.is_recreated).map(|(id, version)| put(id, version));
        let recreated = self.puts().filter(|(_, version)| version.is_recreated);
        let recreated = recreated.flat_map(|(id, version)| [delete(id), put(id, version)]);
        kept.chain(self.deletes().map(delete)).chain(recreated).collect()
    }

    /// Returns the error of a commit with the line it is about: the first one whose vector does not fit those before
    /// it. Without a line if there is none, or edits have no lines.
    pub fn at_line(&self, error: Error, catalog: &Catalog, branch: BranchId) -> Error {
        if !matches!(error, Error::Record(_)) {
            return error;
        }
        let settings = catalog.branch(branch).and_then(|branch| catalog.shared_settings(branch));
        let Ok(settings) = settings else { return error };
        let mut dim = settings.dim();
        let mut versions: Vec<&ResolvedVersion> = self.puts().map(|(_, version)| version).collect();
        // A first vector fixes how long all are, and lines are read in their order.
        versions.sort_by_key(|version| version.vector_line);
        for ResolvedVersion { content, vector_line, .. } in versions {
            let vector = content.vector.as_deref();
            match check_vector(dim, settings.metric(), content, vector.map_or(0.0, norm)) {
                Err(found) if *vector_line > 0 => return found.at_line(*vector_line).into(),
                Err(_) => return error,
                Ok(()) => dim = dim.or(vector.map(<[f32]>::len)),
            }
        }
        error
    }
}

/// Returns whether a version's text is newer than its vector: it differs from the one before and the vector's bits do not,
/// or that was so and the vector is still the same.
fn is_stale(before: Option<&ResolvedVersion>, content: &RecordContent) -> bool {
    let bits = |content: &RecordContent| -> Option<Vec<u32>> {
        content.vector.as_ref().map(|vector| vector.iter().map(|number| number.to_bits()).collect())
    };
    let Some(before) = before else { return false };
    bits(&before.content) == bits(content) && (before.vector_stale || before.content.text != content.text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn resolved(lines: &[&str]) -> Result<ResolvedEdits, Error> {
        let edit = |(line, number): (&&str, usize)| {
            RecordEdit::parse_line(line.as_bytes(), number, &|| "fresh".into()).unwrap().unwrap()
        };
        let edits: Vec<RecordEdit> = lines.iter().zip(1..).map(edit).collect();
        let budget: Arc<crate::sync::MemoryBudget> = Arc::default();
        ResolvedEdits::new(&Arc::default(), &edits, budget.empty_reservation(0))
    }

    fn only_version(lines: &[&str]) -> (Option<String>, bool) {
        let resolved = resolved(lines).unwrap();
        let versions: Vec<ResolvedVersion> = resolved.puts().map(|(_, version)| version.clone()).collect();
        let [version] = &versions[..] else { panic!("{}", versions.len()) };
        (version.content.text.as_ref().map(|text| text.to_string()), version.vector_stale)
    }

    #[test]
    fn each_line_of_one_id_applies_to_what_the_one_before_made() {
        let lines = [r#"{"id":"a","text":"x"}"#, r#"{"id":"a","vector":[1]}"#, r#"{"id":"a","metadata":{"k":1}}"#];
        let changes = resolved(&lines).unwrap().changes();
        let [RecordChange::Put { content, .. }] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((content.vector.as_deref(), &*content.metadata), (Some(&[1.0][..]), r#"{"k":1}"#));
        assert_eq!(only_version(&[lines[0], lines[2], r#"{"id":"a","text":"y","replace":true}"#]).0.unwrap(), "y");
        let after_a_delete = [lines[0], r#"{"id":"a","delete":true}"#, lines[2]];
        let error = resolved(&after_a_delete).err().unwrap();
        assert_eq!((error.code(), &error.to_string()[..7]), ("empty_record", "line 3:"));
        assert!(resolved(&after_a_delete[..2]).unwrap().puts().next().is_none());
    }

    #[test]
    fn a_record_that_is_removed_and_written_anew_goes_before_it_comes() {
        let lines = [r#"{"id":"a","delete":true}"#, r#"{"id":"a","text":"x"}"#, r#"{"id":"a","text":"y"}"#];
        for count in 2..=3 {
            let mut lines = lines[..count].to_vec();
            lines.push(r#"{"id":"b","text":"z"}"#);
            let changes = resolved(&lines).unwrap().changes();
            let kinds: Vec<(&str, bool)> = changes
                .iter()
                .map(|change| (&**change.id().unwrap(), matches!(change, RecordChange::Put { .. })))
                .collect();
            assert_eq!(kinds, [("b", true), ("a", false), ("a", true)]);
        }
    }

    #[test]
    fn a_vector_is_stale_from_a_change_of_the_text_until_its_own() {
        let lines = [
            (r#"{"id":"a","text":"x","vector":[1]}"#, false),
            (r#"{"id":"a","metadata":{"k":1}}"#, false),
            (r#"{"id":"a","text":"x"}"#, false),
            (r#"{"id":"a","text":"y"}"#, true),
            (r#"{"id":"a","text":"y"}"#, true),
            (r#"{"id":"a","text":"x","vector":[1],"replace":true}"#, true),
            (r#"{"id":"a","vector":[2]}"#, false),
            (r#"{"id":"a","vector":[2],"text":"z"}"#, true),
            (r#"{"id":"a","vector_stale":false}"#, false),
            (r#"{"id":"a","vector":[-0.0]}"#, false),
            (r#"{"id":"a","vector":[0],"text":"y"}"#, false),
            (r#"{"id":"a","vector_stale":true}"#, true),
            (r#"{"id":"a","vector_stale":null}"#, false),
            (r#"{"id":"a","text":"w"}"#, true),
            (r#"{"id":"a","vector":null}"#, false),
            (r#"{"id":"a","text":"v"}"#, false),
            (r#"{"id":"a","vector_stale":true}"#, false),
        ];
        for until in 1..=lines.len() {
            let so_far: Vec<&str> = lines[..until].iter().map(|(line, _)| *line).collect();
            assert_eq!(only_version(&so_far).1, lines[until - 1].1, "{}", lines[until - 1].0);
        }
    }
}
