//! Archives without their first entries: what is left reads as if the lineage began there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::archive::Archive;
use super::read::HistoryReader;
use super::tail::HistoryTail;
use super::timeline::{BranchAttrs, LineLengths, TimelinePoint, TimelineStep, advance, is_parent_event};
use super::write::{FreshEntries, write};
use super::{HistorySnapshot, line_lengths};
use crate::lineage::{EntryOp, SignedEntry};
use crate::memory::Error;
use crate::memory::catalog::LineageStart;
use crate::object::BlobStore;
use crate::sync::{Rank, RwLock};

/// Entries of each archive that is written here; no more than the steps of so many are held in memory.
const BATCH_ENTRIES: u64 = 1 << 16;
/// Lengths of lines that are not shown any more: entries that move out count no bytes.
const NO_LINES: LineLengths = LineLengths { lineage_bytes: 0, events_bytes: 0 };

/// Where all branches stand on the way through the entries, counted anew from the first that stays.
#[derive(Default)]
struct BranchTimelines {
    points: BTreeMap<u64, TimelinePoint>,
    /// Steps by branch since they were last taken for an archive.
    steps: BTreeMap<u64, Vec<TimelineStep>>,
}

impl BranchTimelines {
    fn push(&mut self, signed: &SignedEntry, lengths: LineLengths) {
        let entry = &signed.entry;
        if entry.branch_id == 0 {
            return;
        }
        let point = |branch: u64| self.points.get(&branch).copied().unwrap_or_default();
        let (mut branch, mut parent) = (point(entry.branch_id), point(entry.parent_id));
        advance(entry, lengths, &mut branch, &mut parent);
        self.push_step(entry.seq, entry.branch_id, branch);
        if is_parent_event(entry) {
            self.push_step(entry.seq, entry.parent_id, parent);
        }
    }

    fn push_step(&mut self, seq: u64, branch: u64, point: TimelinePoint) {
        self.points.insert(branch, point);
        self.steps.entry(branch).or_default().push(TimelineStep { seq, totals: point.totals });
    }

    fn attrs(&self, branch: u64) -> BranchAttrs {
        self.points.get(&branch).map(|point| point.attrs).unwrap_or_default()
    }

    fn take_steps(&mut self) -> BTreeMap<u64, (BranchAttrs, Vec<TimelineStep>)> {
        let steps = std::mem::take(&mut self.steps);
        steps.into_iter().map(|(branch, steps)| (branch, (self.attrs(branch), steps))).collect()
    }
}

/// Returns archives whose first entry has the number `first`, with the rest of what these hold. Fails if an entry of
/// the rest can't be read or a new archive can't be written; the archives that were written until then are named by
/// nothing.
pub(in crate::memory) fn without_entries_before(
    blobs: &BlobStore,
    archives: Vec<Arc<Archive>>,
    first: u64,
) -> Result<Vec<Arc<Archive>>, Error> {
    let Some(begin) = archives.first().map(|archive| archive.first).filter(|begin| *begin < first) else {
        return Ok(archives);
    };
    let start = LineageStart { first_seq: begin, ..LineageStart::default() };
    let last = archives.last().map_or(0, |archive| archive.last());
    let attrs_before = archives[0].load_attrs_before(blobs)?;
    let tail = RwLock::with_rank(Rank::Leaf, HistoryTail::new(last + 1));
    let reader = HistoryReader::new(blobs, Arc::new(HistorySnapshot { start, archives, tail }));
    let mut attrs_before = attrs_after(&reader, attrs_before, first - 1)?;
    let point = |attrs: &BranchAttrs| TimelinePoint { attrs: *attrs, ..TimelinePoint::default() };
    let points = attrs_before.iter().map(|(branch, attrs)| (*branch, point(attrs))).collect();
    let mut branches = BranchTimelines { points, ..BranchTimelines::default() };
    let (mut cut, mut next) = (Vec::new(), first);
    for seq in first..=last {
        let signed = reader.entry(seq)?;
        branches.push(&signed, line_lengths(&signed));
        if seq + 1 == next + BATCH_ENTRIES || seq == last {
            // Only the first archive tells what was known before it; later ones follow from those in front of them.
            let attrs_before = std::mem::take(&mut attrs_before);
            let fresh = FreshEntries { first: next, last: seq, branches: branches.take_steps(), attrs_before };
            cut.push(Arc::new(write(blobs, &reader, &[], &fresh)?));
            next = seq + 1;
        }
    }
    Ok(cut)
}

/// Returns what is known, after an entry, of the branches that lived then.
fn attrs_after(
    reader: &HistoryReader<'_>,
    before: BTreeMap<u64, BranchAttrs>,
    last_seq: u64,
) -> Result<BTreeMap<u64, BranchAttrs>, Error> {
    let point = |attrs| TimelinePoint { attrs, ..TimelinePoint::default() };
    let points = before.into_iter().map(|(branch, attrs)| (branch, point(attrs))).collect();
    let mut branches = BranchTimelines { points, ..BranchTimelines::default() };
    for seq in reader.first()..=last_seq {
        let signed = reader.entry(seq)?;
        branches.push(&signed, NO_LINES);
        if matches!(signed.entry.op, EntryOp::Merge | EntryOp::Discard) {
            branches.points.remove(&signed.entry.branch_id);
        }
        // Only attributes are asked for, and the steps of all entries would take much memory.
        branches.steps.clear();
    }
    Ok(branches.points.into_iter().map(|(branch, point)| (branch, point.attrs)).collect())
}
