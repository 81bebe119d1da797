//! Writing and deleting records. All changes of a command are one entry and one step of the state: a reader sees either
//! none of them or all.

use std::sync::Arc;

use crate::branch::{BranchVersion, check_record_id};
use crate::lineage::{Detail, EntryOp};
use crate::memory::Error;
use crate::memory::catalog::{BranchId, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, fix_dim_and_metric, prepare_on_branch};
use crate::memory::command::record_change::RecordChange;
use crate::memory::command::record_input::check_vector;
use crate::object::{CodecError, Reader, Time, Writer};
use crate::record::{Provenance, Version};
use crate::segment::Row;

/// Records are written and deleted, by one entry; 1,024 edits or more are `CommitSegment`.
#[derive(Debug)]
pub struct CommitRecords {
    /// The branch that holds the records, and whose agent and session they name.
    pub branch: BranchId,
    /// What changes, in the order in which it is applied: one record may change twice. A delete right before a put of the
    /// same id makes another record of it, and is no delete that counts.
    pub changes: Vec<RecordChange>,
}

pub(super) const COMMIT: CommandSpec =
    CommandSpec { code: 3, name: "commit", read: |input| Ok(Box::new(CommitRecords::read(input)?)) };

impl CommitRecords {
    fn read(input: &mut Reader<'_>) -> Result<CommitRecords, CodecError> {
        let (branch, count) = (BranchId::read(input)?, input.length()?);
        let changes = (0..count).map(|_| RecordChange::read(input)).collect::<Result<_, _>>()?;
        Ok(CommitRecords { branch, changes })
    }

    /// Returns whether the next change writes the record anew that this one deletes.
    fn is_recreated(&self, at: usize) -> bool {
        let (change, next) = (&self.changes[at], self.changes.get(at + 1));
        matches!((change, next), (RecordChange::Delete { id }, Some(RecordChange::Put { id: next, .. })) if id == next)
    }
}

impl Command for CommitRecords {
    fn spec(&self) -> &'static CommandSpec {
        &COMMIT
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).number(self.changes.len() as u64);
        self.changes.iter().for_each(|change| change.write(out));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let catalog = context.catalog;
        let branch = catalog.branch(self.branch)?;
        let mut prepared = prepare_on_branch(catalog, log_record, branch, EntryOp::Commit);
        let settings = catalog.shared_settings(branch)?;
        let (mut dim, metric) = (settings.dim(), settings.metric());
        let mut state = (*branch.state).clone();
        for (at, change) in self.changes.iter().enumerate() {
            match change {
                RecordChange::Cursor(cursor) => prepared.changes.push(CatalogChange::Cursor(branch.id, *cursor)),
                RecordChange::Delete { id } => {
                    let was_there = state.delete(id, log_record.time)?;
                    prepared.counts.deleted += u64::from(was_there && !self.is_recreated(at));
                }
                RecordChange::Put { id, content, vector_stale, created_from } => {
                    check_record_id(id)?;
                    // Looked up before the put below replaces the row that knows it.
                    let created = created_time(&state, log_record.time, created_from.as_deref().unwrap_or(id))?;
                    let provenance =
                        Provenance { vector_stale: *vector_stale, ..provenance(log_record, &prepared, created) };
                    let version = Version::new(id.clone(), content.clone(), provenance);
                    check_vector(dim, metric, content, version.norm)?;
                    dim = dim.or(content.vector.as_ref().map(|vector| vector.len()));
                    state.put(Row::Unsealed(Arc::new(version)))?;
                    prepared.counts.put += 1;
                }
            }
        }
        // Last, when the dimension of all records is known: the first vector below a root branch fixes it for all.
        fix_dim_and_metric(catalog, branch, dim, state.totals().vectors > 0, &mut prepared)?;
        let named = self.changes.iter().enumerate().filter(|(at, _)| !self.is_recreated(*at));
        let detail = Detail::from_items(named.filter_map(|(_, change)| change.id()).cloned());
        Ok(prepared.with_detail(detail).with_state(state))
    }

    fn may_use_reserve(&self) -> bool {
        self.changes.iter().all(|change| matches!(change, RecordChange::Delete { .. }))
    }

    fn takes_memory(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, RecordChange::Put { .. }))
    }
}

/// When the record was first written: a replacement keeps it.
fn created_time(state: &BranchVersion, now: Time, id: &str) -> Result<Time, Error> {
    Ok(match state.find(id)? {
        Some(old) => old.provenance()?.created,
        None => now,
    })
}

/// Returns what a version says of who writes it; its vector is not stale.
pub(in crate::memory::transaction) fn provenance(
    log_record: &LogRecord,
    prepared: &PreparedCommand,
    created: Time,
) -> Provenance {
    let [agent, session, task] = prepared.labels.clone();
    let (modified, branch, uid) = (log_record.time, prepared.path.clone(), log_record.uid);
    Provenance { created, modified, branch, agent, session, task, uid, vector_stale: false }
}
