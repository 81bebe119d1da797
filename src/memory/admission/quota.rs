//! `config/quota`: how much a branch and those below it may hold of their own.
//!
//! What each of them holds is counted when a quota is set above it, and brought up to date by what has changed in the
//! store since the last look, so that a check costs what was changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use imbl::ordmap::DiffItem;

use crate::branch::{BranchVersion, changed_ids_at_most, differences};
use crate::memory::catalog::{Branch, BranchId, Catalog, Quota};
use crate::memory::{Error, LimitError, Memory, Setting};
use crate::segment::SegmentError;
use crate::sync::{Mutex, Rank, may_wait};
use crate::workspace::{Attrs, FileNode, FileOp, Tree};

/// Changed records up to which each is looked up, however few a branch holds of its own.
const RECOUNTED_MIN: usize = 1024;

/// What branches hold of their own, or what something adds to that; negative for what it gives back.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(in crate::memory) struct Usage {
    /// Logical bytes of records and files that differ from the base, and of states that are kept.
    pub bytes: i64,
    /// Records that differ from the base, deleted ones among them.
    pub records: i64,
    /// Branches below, at any depth; those that hold a shared log do not count.
    pub branches: i64,
}

impl Usage {
    fn plus(self, other: Usage) -> Usage {
        Usage {
            bytes: self.bytes + other.bytes,
            records: self.records + other.records,
            branches: self.branches + other.branches,
        }
    }

    fn minus(self, other: Usage) -> Usage {
        Usage {
            bytes: self.bytes - other.bytes,
            records: self.records - other.records,
            branches: self.branches - other.branches,
        }
    }
}

/// Usage as of one version of the catalog: a check counts only what has changed since that one.
pub(in crate::memory) struct Quotas(Mutex<KnownUsage>);

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas(Mutex::with_rank(Rank::Quotas, KnownUsage::default()))
    }
}

#[derive(Default)]
struct KnownUsage {
    catalog: Catalog,
    /// What each branch that a quota governs holds itself, without those below it.
    own_usage: HashMap<BranchId, Usage>,
    /// What each branch with a quota holds with all below it, kept so that a check reads one sum for each.
    total_usage: HashMap<BranchId, Usage>,
}

impl Memory {
    /// Fails if a branch, or one above it, would hold more than its quota with what `growth` adds. Kind `Quota`.
    pub(in crate::memory) fn check_quota(
        &self,
        branch: BranchId,
        growth: impl FnOnce(&Branch) -> Result<Usage, Error>,
    ) -> Result<(), Error> {
        let catalog = self.catalog().clone();
        let limits: Vec<(BranchId, Quota)> = branch_and_ancestors(&catalog, branch).filter_map(own_quota).collect();
        if limits.is_empty() {
            return Ok(());
        }
        // Counting may go through whole branches.
        if !may_wait() {
            return Err(Error::WouldWait);
        }
        let growth = growth(catalog.branch(branch)?)?;
        let mut known = self.admission.quotas.0.lock();
        known.bring_up_to_date(&catalog)?;
        limits.iter().try_for_each(|(id, quota)| {
            let mut sum = known.total_usage.get(id).copied().unwrap_or_default();
            sum.bytes += self.maintenance.retained.for_subtree(&catalog, *id) as i64;
            check_limits(catalog.branch(*id)?, quota, sum, growth)
        })
    }

    /// As [`Memory::check_quota`], for written records, with the bytes that they have afterwards, those of their ids
    /// included. Fails like [`Memory::check_quota`].
    pub(in crate::memory) fn check_record_quota<'a>(
        &self,
        branch: BranchId,
        records: impl Iterator<Item = (&'a Arc<str>, usize)>,
    ) -> Result<(), Error> {
        self.check_quota(branch, |branch| {
            let mut growth = Usage::default();
            for (id, bytes) in records {
                let before = record_usage(&branch.state, &branch.base, id)?;
                let after = Usage { bytes: bytes as i64, records: 1, branches: 0 };
                growth = growth.plus(after.minus(before));
            }
            Ok(growth)
        })
    }

    /// As [`Memory::check_quota`], for an operation on files. Fails like [`Memory::check_quota`].
    pub(in crate::memory) fn check_file_quota(&self, branch: BranchId, op: &FileOp<'_>) -> Result<(), Error> {
        let (inode, end) = match op {
            FileOp::Write { inode, offset, bytes } => (*inode, offset.saturating_add(bytes.len() as u64)),
            FileOp::Copy { to, to_offset, length, .. } => (*to, to_offset.saturating_add(*length)),
            FileOp::Range { inode, offset, length, keep_size: false, .. } => (*inode, offset.saturating_add(*length)),
            FileOp::SetAttr { inode, attrs: Attrs { size: Some(size), .. } } => (*inode, *size),
            _ => return Ok(()),
        };
        self.check_quota(branch, |branch| {
            let (files, base) = (branch.state.files(), branch.base.files());
            let size = files.node(inode).map_or(0, |node| node.size());
            let before = file_bytes(files, base, inode);
            // A cut leaves less than what was there; only a size that is the present one leaves the content as it is.
            let after = match op {
                FileOp::SetAttr { .. } if end == size => before,
                FileOp::SetAttr { .. } => end as i64,
                _ => end.max(size) as i64,
            };
            Ok(Usage { bytes: after - before, ..Usage::default() })
        })
    }
}

impl KnownUsage {
    /// Counts what has changed since the last call. If that fails the next one counts all anew.
    fn bring_up_to_date(&mut self, now: &Catalog) -> Result<(), Error> {
        self.count_changes(now).inspect_err(|_| *self = KnownUsage::default())
    }

    fn count_changes(&mut self, now: &Catalog) -> Result<(), Error> {
        let before = std::mem::replace(&mut self.catalog, now.clone());
        let mut fresh = Vec::new();
        for change in before.branches.diff(&now.branches) {
            match change {
                DiffItem::Add(_, new) => fresh.extend(self.add(now, new)?),
                DiffItem::Remove(_, old) => self.remove(&before, old),
                DiffItem::Update { old: (_, old), new: (_, new) } => {
                    fresh.extend(self.update(now, old, new)?);
                }
            }
        }
        // No sum was kept of a branch whose quota is new, so all below it is counted once.
        for id in fresh {
            let sum = self.sum(now, id)?;
            self.total_usage.insert(id, sum);
        }
        Ok(())
    }

    /// Counts a branch below some quota; returns it where it has one of its own, whose sum is then made anew.
    fn add(&mut self, now: &Catalog, new: &Branch) -> Result<Option<BranchId>, Error> {
        if counts_in_quota(now, new) {
            let own = branch_usage(new)?;
            self.own_usage.insert(new.id, own);
            self.count(now, new, own.plus(Usage { branches: 1, ..Usage::default() }));
        }
        Ok(own_quota(new).map(|(id, _)| id))
    }

    fn remove(&mut self, before: &Catalog, old: &Branch) {
        self.total_usage.remove(&old.id);
        if let Some(own) = self.own_usage.remove(&old.id) {
            self.count(before, old, Usage::default().minus(own.plus(Usage { branches: 1, ..Usage::default() })));
        }
    }

    fn update(&mut self, now: &Catalog, old: &Branch, new: &Branch) -> Result<Option<BranchId>, Error> {
        if let Some(before) = self.own_usage.get(&new.id).copied() {
            let after = usage_after(before, old, new)?;
            self.own_usage.insert(new.id, after);
            self.count(now, new, after.minus(before));
        }
        match (own_quota(old), own_quota(new)) {
            (None, Some((id, _))) => Ok(Some(id)),
            (Some((id, _)), None) => {
                self.total_usage.remove(&id);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Adds to the sums of a branch and of those above it; itself it is not below.
    fn count(&mut self, catalog: &Catalog, branch: &Branch, change: Usage) {
        for at in branch_and_ancestors(catalog, branch.id) {
            if let Some(sum) = self.total_usage.get_mut(&at.id) {
                *sum = sum.plus(change);
                if at.id == branch.id {
                    sum.branches -= change.branches;
                }
            }
        }
    }

    /// What a branch and all below it hold. Its own number of branches begins at -1, as it is not below itself.
    fn sum(&mut self, now: &Catalog, top: BranchId) -> Result<Usage, Error> {
        let (mut sum, mut left) = (Usage { branches: -1, ..Usage::default() }, vec![top]);
        while let Some(id) = left.pop() {
            let branch = now.branch(id)?;
            let own = match self.own_usage.get(&id) {
                Some(own) => *own,
                None => branch_usage(branch)?,
            };
            self.own_usage.insert(id, own);
            sum = sum.plus(own).plus(Usage { branches: 1, ..Usage::default() });
            left.extend(branch.children.values());
        }
        Ok(sum)
    }
}

/// Goes from a branch up to its root branch.
fn branch_and_ancestors(catalog: &Catalog, id: BranchId) -> impl Iterator<Item = &Branch> {
    let branch = |id| catalog.branches.get(&id).map(|branch| &**branch);
    std::iter::successors(branch(id), move |at| branch(at.parent?))
}

fn own_quota(branch: &Branch) -> Option<(BranchId, Quota)> {
    let text = branch.settings.get(Setting::Quota);
    if text.is_empty() { None } else { Quota::parse(text).map(|quota| (branch.id, quota)) }
}

/// Returns whether a branch counts in a quota. One that holds a shared log does not, as it is nobody's child: what was
/// appended is no edit of the branch above it.
fn counts_in_quota(catalog: &Catalog, branch: &Branch) -> bool {
    branch.log_totals.is_none() && branch_and_ancestors(catalog, branch.id).any(|branch| own_quota(branch).is_some())
}

/// What a branch holds of its own. It costs what differs from its base.
fn branch_usage(branch: &Branch) -> Result<Usage, Error> {
    let (base, state) = (branch.base.files(), branch.state.files());
    let mut own = own_records(branch)?;
    own.bytes += unshared_inodes(branch).map(|inode| file_bytes(state, base, inode)).sum::<i64>();
    Ok(own)
}

/// The inodes that a branch does not share with its base, those that only one of the two has among them. Others count
/// nothing.
fn unshared_inodes(branch: &Branch) -> impl Iterator<Item = u64> {
    branch.base.files().changed_nodes(branch.state.files()).map(|changed| changed.inode)
}

/// What a branch's records count.
fn own_records(branch: &Branch) -> Result<Usage, SegmentError> {
    let (base, state) = (&branch.base, &branch.state);
    if base.totals().records == 0 {
        // Without a base all records are its own, and their sums are known.
        let totals = state.totals();
        return Ok(Usage { bytes: totals.raw_bytes as i64, records: totals.records as i64, branches: 0 });
    }
    let mut own = Usage::default();
    for change in differences(base, state)? {
        own.records += 1;
        own.bytes += change.new.map_or(Ok(0), |row| row.totals().map(|totals| totals.raw_bytes as i64))?;
    }
    Ok(own)
}

/// The same, from what it held before a change: it costs what changed, unless the base is another.
fn usage_after(before: Usage, old: &Branch, new: &Branch) -> Result<Usage, Error> {
    let same_base = old.base_seq == new.base_seq;
    if !same_base {
        return branch_usage(new);
    }
    let mut own = before.plus(record_growth(before, old, new)?);
    let (files, base) = ((old.state.files(), new.state.files()), new.base.files());
    for inode in files.0.changed_nodes(files.1).map(|changed| changed.inode) {
        own.bytes += file_bytes(files.1, base, inode) - file_bytes(files.0, base, inode);
    }
    Ok(own)
}

/// What a change adds to what a branch's records count, where the base is the same.
fn record_growth(before: Usage, old: &Branch, new: &Branch) -> Result<Usage, SegmentError> {
    let Some(ids) = recounted_ids(before, old, new)? else {
        return Ok(own_records(new)?.minus(own_records(old)?));
    };
    let mut growth = Usage::default();
    for id in ids {
        growth =
            growth.plus(record_usage(&new.state, &new.base, &id)?).minus(record_usage(&old.state, &new.base, &id)?);
    }
    Ok(growth)
}

/// The ids whose records may count otherwise than before; `None` where it costs less to count all that a branch holds of
/// its own. A seal or a compaction moves rows of the base, which are many more.
fn recounted_ids(before: Usage, old: &Branch, new: &Branch) -> Result<Option<BTreeSet<Arc<str>>>, SegmentError> {
    // Equal records differ alike from an equal base, wherever they are stored.
    if old.state.record_set_hash() == new.state.record_set_hash() {
        return Ok(Some(BTreeSet::new()));
    }
    if new.base.totals().records == 0 {
        return Ok(None);
    }
    let limit = usize::try_from(before.records).unwrap_or_default().max(RECOUNTED_MIN);
    changed_ids_at_most(&old.state, &new.state, limit)
}

/// What a record counts: one and its bytes where it differs from the base, no bytes where it was deleted, else nothing.
fn record_usage(state: &BranchVersion, base: &BranchVersion, id: &str) -> Result<Usage, SegmentError> {
    let (mine, bases) = (state.find(id)?, base.find(id)?);
    let hash = |row: &Option<crate::segment::Row>| row.as_ref().map(|row| row.hash()).transpose();
    if hash(&mine)? == hash(&bases)? {
        return Ok(Usage::default());
    }
    let bytes = mine.map_or(Ok(0), |row| row.totals().map(|totals| totals.raw_bytes as i64))?;
    Ok(Usage { bytes, records: 1, branches: 0 })
}

/// What a file counts where its content differs from that of the base: all of it.
fn file_bytes(files: &Tree, base: &Tree, inode: u64) -> i64 {
    let content = |node: &FileNode| (node.content().map_or(0, |content| content.size()), node.content_hash());
    let Ok(node) = files.node(inode) else { return 0 };
    let size = node.content().map_or(0, |content| content.size());
    match base.node(inode) {
        Ok(bases) if std::sync::Arc::ptr_eq(bases, node) => 0,
        Ok(bases) if bases.size() == node.size() && content(bases) == content(node) => 0,
        _ => size as i64,
    }
}

fn check_limits(holder: &Branch, quota: &Quota, sum: Usage, growth: Usage) -> Result<(), Error> {
    let checks = [
        ("bytes", quota.bytes, sum.bytes, growth.bytes),
        ("records", quota.records, sum.records, growth.records),
        ("branches", quota.branches, sum.branches, growth.branches),
    ];
    for (what, limit, held, more) in checks {
        let Some(limit) = limit else { continue };
        if more > 0 && held + more > i64::try_from(limit).unwrap_or(i64::MAX) {
            return Err(LimitError::Quota { path: holder.path.to_string(), what, held, more, limit }.into());
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
