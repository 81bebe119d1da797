//! Commits of many records: they are in a segment, and what the branch becomes is worked out before the
//! writer's lock is taken.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::branch::{BranchVersion, changed_ids_at_most};
use crate::lineage::{Counts, Detail, EntryOp, ITEMS_MAX};
use crate::memory::catalog::shared_log::SharedLogCursor;
use crate::memory::catalog::{Branch, BranchId, BranchRef, Catalog, CatalogChange};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord, read_texts, write_texts};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, fix_dim_and_metric, prepare_on_branch};
use crate::memory::merging::merge_budget::PlanError;
use crate::memory::{Error, RecordError};
use crate::object::{CodecError, Hash, Reader, Time, Writer};
use crate::segment::{Segment, SegmentError};

/// Many records are written, which are in a segment that the log record names, and others deleted.
#[derive(Debug)]
pub(super) struct CommitSegment {
    /// The branch that gets the records.
    pub branch: BranchId,
    /// The segment, which was written before the command.
    pub segment: Hash,
    /// Ids of the records that are deleted.
    pub deletes: Vec<Arc<str>>,
    /// How far the branch has read the shared log from then on, where that changes.
    pub cursor: Option<SharedLogCursor>,
}

pub(super) const BULK: CommandSpec =
    CommandSpec { code: 4, name: "bulk", read: |input| Ok(Box::new(CommitSegment::read(input)?)) };

impl CommitSegment {
    fn read(input: &mut Reader<'_>) -> Result<CommitSegment, CodecError> {
        let (branch, segment, deletes) = (BranchId::read(input)?, input.hash()?, read_texts(input)?);
        let cursor = if input.byte()? == 1 { Some(SharedLogCursor::read(input)?) } else { None };
        Ok(CommitSegment { branch, segment, deletes, cursor })
    }
}

impl Command for CommitSegment {
    fn spec(&self) -> &'static CommandSpec {
        &BULK
    }

    fn write(&self, out: &mut Writer) {
        write_texts(&self.deletes, out.number(self.branch.0).hash(&self.segment)).byte(u8::from(self.cursor.is_some()));
        self.cursor.iter().fold(out, |out, cursor| cursor.write(out));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (catalog, segment) = (context.catalog, (context.segment)(&self.segment)?);
        let bulk = BulkCommit::new(catalog, self.branch, segment, &self.deletes, log_record.planned)?;
        bulk.prepare(catalog, log_record, self.cursor)
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn segment(&self) -> Option<Hash> {
        Some(self.segment)
    }
}

/// A commit of many records, worked out on one state of a branch.
pub struct BulkCommit {
    segment: Arc<Segment>,
    deletes: Arc<HashSet<Arc<str>>>,
    branch: BranchRef,
    /// [`Catalog::rewrite_count`] when it was worked out: after another one its state may be in files that are going.
    rewrite_count: u64,
    state: BranchVersion,
    deleted: u64,
    /// When it was worked out; deletes are of this moment.
    pub time: Time,
}

impl BulkCommit {
    /// Computes the state of a branch with the rows of a segment added and some records deleted. Fails with
    /// `Error::Gone` if the branch is not in the catalog, with `RecordError::BulkDimension` if the vectors do not fit
    /// those below its root branch, or if rows can't be read.
    pub fn new(
        catalog: &Catalog,
        branch: BranchId,
        segment: Arc<Segment>,
        deletes: &[Arc<str>],
        time: Time,
    ) -> Result<BulkCommit, Error> {
        BulkCommit::from_segment(catalog, branch, segment, Arc::new(deletes.iter().cloned().collect()), time)
    }

    fn from_segment(
        catalog: &Catalog,
        branch: BranchId,
        segment: Arc<Segment>,
        deletes: Arc<HashSet<Arc<str>>>,
        time: Time,
    ) -> Result<BulkCommit, Error> {
        let branch = catalog.branch_ref(branch)?.clone();
        check_dimension(catalog, &branch, &segment)?;
        let (mut state, mut deleted) = (BranchVersion::clone(&branch.state), 0);
        for id in &*deletes {
            deleted += u64::from(state.delete(id, time)?);
        }
        // Rows come after deletes, here and in a replay alike: an id that is in both is written.
        state.put_segment(&segment)?;
        Ok(BulkCommit { segment, deletes, branch, rewrite_count: catalog.rewrite_count, state, deleted, time })
    }

    /// Works it out again for what has changed in the branch since; [`PlanError::Exceeded`] if that is more than
    /// `changes_max` records, `None` if one of them is a record that the outcome `relies` on.
    pub fn replan(
        &self,
        catalog: &Catalog,
        changes_max: usize,
        relies: &dyn Fn(&str) -> bool,
    ) -> Result<Option<BulkCommit>, PlanError> {
        let branch = catalog.branch_ref(self.branch.id)?.clone();
        check_dimension(catalog, &branch, &self.segment)?;
        let touched =
            changed_ids_at_most(&self.branch.state, &branch.state, changes_max)?.ok_or(PlanError::Exceeded)?;
        let (mut state, mut deleted) = (self.state.clone(), self.deleted);
        for id in touched {
            if relies(&id) {
                return Ok(None);
            }
            // Its own row replaces whatever the branch has got meanwhile.
            if self.writes(&id)? {
                continue;
            }
            state.copy_record(&id, &branch.state)?;
            if self.deletes.contains(&id) {
                // The record may have come or gone since it was counted.
                deleted -= u64::from(self.branch.state.find(&id)?.is_some());
                deleted += u64::from(state.delete(&id, self.time)?);
            }
        }
        // Records alone were worked out; the files are those of the branch as it is by now.
        state.set_files(branch.state.files().clone());
        let (segment, deletes) = (self.segment.clone(), self.deletes.clone());
        Ok(Some(BulkCommit {
            segment,
            deletes,
            branch,
            rewrite_count: self.rewrite_count,
            state,
            deleted,
            time: self.time,
        }))
    }

    /// Returns whether the branch has the state that this was worked out on, in the same files, for an entry with that
    /// time.
    pub fn is_current(&self, catalog: &Catalog, time: Time) -> bool {
        self.is_in_place(catalog, time)
            && catalog.branch(self.branch.id).is_ok_and(|branch| branch.has_same_state(&self.branch))
    }

    /// Returns whether its input is still in the same files, and no delete is later than an entry with that time.
    pub fn is_in_place(&self, catalog: &Catalog, time: Time) -> bool {
        self.rewrite_count == catalog.rewrite_count && self.time <= time
    }

    /// Computes the commit anew on this catalog, with `time` for its deletes. Fails like [`BulkCommit::new`].
    pub fn recompute(&self, catalog: &Catalog, time: Time) -> Result<BulkCommit, Error> {
        BulkCommit::from_segment(catalog, self.branch.id, self.segment.clone(), self.deletes.clone(), time)
    }

    fn writes(&self, id: &str) -> Result<bool, SegmentError> {
        let row = self.segment.lower_bound(id, 0)?;
        Ok(row < self.segment.rows() && self.segment.id(row)? == id)
    }

    /// Returns the entry of the commit and its changes of a catalog. `cursor` is the new cursor of the branch in its
    /// shared log. Fails with `Error::Gone` if the branch has ended since, and with `RecordError::BulkDimension` if
    /// another branch has fixed a dimension meanwhile.
    pub fn prepare(
        &self,
        catalog: &Catalog,
        log_record: &LogRecord,
        cursor: Option<SharedLogCursor>,
    ) -> Result<PreparedCommand, Error> {
        let branch = catalog.branch(self.branch.id)?;
        // Another branch may have fixed the dimension since the plan was made.
        check_dimension(catalog, branch, &self.segment)?;
        let mut prepared = prepare_on_branch(catalog, log_record, branch, EntryOp::Commit);
        prepared.counts = Counts { put: u64::from(self.segment.rows()), deleted: self.deleted, files: 0 };
        prepared = prepared.with_detail(Detail::from_items(self.first_ids()?));
        let dim = (self.segment.dim() > 0).then_some(self.segment.dim());
        fix_dim_and_metric(catalog, branch, dim, self.segment.totals().vectors > 0, &mut prepared)?;
        if let Some(cursor) = cursor {
            prepared = prepared.with_change(CatalogChange::Cursor(branch.id, cursor));
        }
        Ok(prepared.with_state(self.state.clone()))
    }
}

impl BulkCommit {
    /// Returns the first ids that it writes, and behind them those that it deletes, as many of either as an entry names.
    fn first_ids(&self) -> Result<Vec<Arc<str>>, Error> {
        let rows = self.segment.rows().min(ITEMS_MAX as u32);
        let mut ids: Vec<Arc<str>> =
            (0..rows).map(|row| self.segment.id(row).map(Arc::from)).collect::<Result<_, _>>()?;
        let mut first: BTreeSet<&Arc<str>> = BTreeSet::new();
        for id in &*self.deletes {
            first.insert(id);
            // A set of this many ids at the most is kept, since all deletes together may be any number.
            if first.len() > ITEMS_MAX {
                first.pop_last();
            }
        }
        ids.extend(first.into_iter().cloned());
        Ok(ids)
    }
}

fn check_dimension(catalog: &Catalog, branch: &Branch, segment: &Segment) -> Result<(), Error> {
    let settings = catalog.shared_settings(branch)?;
    let dim = (segment.dim() > 0).then_some(segment.dim());
    if settings.dim().is_none_or(|fixed| dim.is_none_or(|dim| dim == fixed)) {
        return Ok(());
    }
    Err(RecordError::BulkDimension { found: segment.dim(), expected: settings.dim().unwrap_or(0) }.into())
}
