//! What each entry adds to the files `lineage` and `events.jsonl` of its branch and of that branch's parent.
//!
//! Both files only grow. An entry appends its line to its own branch's. A merge appends to the parent's `lineage` what
//! the child has and the parent does not, the merge's own line last; a fork or pull appends to the child's what the parent
//! has and the child does not. So a branch's `lineage` is *own* lines, which include those of branches that were merged into it,
//! and lines *from its parent*:
//!
//! ```text
//!  entry            1 root  2 commit  3 fork x  4 commit  5 in x    6 merge x
//!  main's lineage   1       2                   4                   3 5 6
//!  x's lineage                        1 2 3               5         6
//!  x's own                            3                   5         6
//! ```
//!
//! Each entry is a step in the timeline of its branch, and of the parent where that shows it. A step holds the
//! totals up to it, so the line at an offset is found by binary search, and no list of lines is kept.

use crate::lineage::{AccessChange, Entry, EntryOp};
use crate::memory::catalog::Branch;

/// Lengths in bytes of a branch's two history files up to some entry. They lead from an offset to its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineTotals {
    /// Bytes of its own lines in `lineage`, which its parent gets by a merge.
    pub own_bytes: u64,
    /// Bytes of `own_bytes` that its parent has already got by merges and promotes.
    pub merged_bytes: u64,
    /// Length of `lineage` in bytes: its own lines, and those from its parent.
    pub lineage_bytes: u64,
    /// Length of `events.jsonl` in bytes: its own lines, and those of children that concern it.
    pub events_bytes: u64,
}

/// One entry in the timeline of a branch. A search for an offset compares its totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineStep {
    /// Number of the entry; in a timeline they ascend.
    pub seq: u64,
    /// The totals with this entry's lines included.
    pub totals: LineTotals,
}

/// Where a branch belongs and who may enter it; of one that has ended, at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchAttrs {
    /// Id of its parent, 0 for none.
    pub parent: u64,
    /// Uid of who owns it then.
    pub uid: u32,
    /// Permission bits of its directory then.
    pub mode: u32,
}

/// Totals and attributes of a branch as an entry leaves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelinePoint {
    /// Bytes of the two files, the entry's lines included.
    pub totals: LineTotals,
    /// Parent, owner and mode from the entry on.
    pub attrs: BranchAttrs,
}

/// Bytes of an entry's line in each of the two files.
#[derive(Clone, Copy, Debug)]
pub struct LineLengths {
    /// Bytes in `lineage`, the line end included.
    pub lineage_bytes: u64,
    /// Bytes in `events.jsonl`, the line end included.
    pub events_bytes: u64,
}

/// Returns whether the `events.jsonl` of the parent shows the entry.
pub fn is_parent_event(entry: &Entry) -> bool {
    entry.parent_id != 0 && entry.op.is_parent_event()
}

/// Returns whether the parent's timeline point has to be known before the entry is added: it shows the entry, or its lines are taken.
pub fn needs_parent(entry: &Entry) -> bool {
    is_parent_event(entry) || takes_from_parent(entry)
}

fn takes_from_parent(entry: &Entry) -> bool {
    entry.parent_id != 0 && matches!(entry.op, EntryOp::Fork | EntryOp::Pull)
}

/// Adds an entry to the totals and attributes of its branch and, where that shows the entry, to those of its parent.
pub fn advance(entry: &Entry, lengths: LineLengths, branch: &mut TimelinePoint, parent: &mut TimelinePoint) {
    let totals = &mut branch.totals;
    totals.own_bytes += lengths.lineage_bytes;
    totals.lineage_bytes += lengths.lineage_bytes;
    totals.events_bytes += lengths.events_bytes;
    if takes_from_parent(entry) {
        // Of the parent's lines, `merged_bytes` came from this branch, which has them as its own already.
        totals.lineage_bytes = totals.own_bytes + parent.totals.lineage_bytes.saturating_sub(totals.merged_bytes);
    }
    match entry.op.access_change() {
        AccessChange::All => {
            let mode = if entry.parent_id == 0 { Branch::ROOT_MODE } else { Branch::CHILD_MODE };
            branch.attrs = BranchAttrs { parent: entry.parent_id, uid: entry.owner().unwrap_or(entry.uid), mode };
        }
        AccessChange::Owner => branch.attrs.uid = entry.owner().unwrap_or(branch.attrs.uid),
        AccessChange::Mode if entry.detail.label.as_deref() == Some("mode") => {
            let mode = entry.detail.text.as_deref().and_then(|text| u32::from_str_radix(text, 8).ok());
            branch.attrs.mode = mode.unwrap_or(branch.attrs.mode);
        }
        AccessChange::Mode | AccessChange::Nothing => {}
    }
    if !is_parent_event(entry) {
        return;
    }
    parent.totals.events_bytes += lengths.events_bytes;
    if entry.merges_into_parent() {
        // Only what the parent has not got yet: a branch that was promoted lives on and merges the rest later.
        let gain = totals.own_bytes - totals.merged_bytes;
        parent.totals.own_bytes += gain;
        parent.totals.lineage_bytes += gain;
        totals.merged_bytes = totals.own_bytes;
    }
}
