//! `config/quota`: how much a branch and those below it may hold of their own.
//!
//! What each of them holds is counted when a quota is set above it, and brought up to date by what has changed in the
//! store since the last look, so that a check costs what was changed.

use std::collections::HashMap;
use std::sync::Arc;

use imbl::ordmap::DiffItem;

use crate::branch::{BranchVersion, differences, touched_at_most};
use crate::memory::catalog::{Branch, BranchId, Catalog, Quota};
use crate::memory::{Error, LimitError, Memory, Setting};
use crate::segment::SegmentError;
use crate::sync::{Mutex, Rank, may_wait};
use crate::workspace::{Attrs, FileNode, FileOp, Tree};

/// What branches hold of their own, or what something adds to that.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(in crate::memory) struct Usage {
    /// Logical bytes of records and files that differ from the base, and of states that are kept.
    pub bytes: i64,
    /// Records that differ from the base.
    pub records: i64,
    /// Branches below, at any depth.
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

/// What is known of usage, as of one version of the catalog.
pub(in crate::memory) struct Quotas(Mutex<KnownUsage>);

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas(Mutex::ranked(Rank::Quotas, KnownUsage::default()))
    }
}

#[derive(Default)]
struct KnownUsage {
    catalog: Catalog,
    /// What each branch below a quota holds itself.
    own_usage: HashMap<BranchId, Usage>,
    /// What each branch with a quota holds with all below it.
    total_usage: HashMap<BranchId, Usage>,
}

impl Memory {
    /// Fails where a branch, or one above it, would hold more than its quota with what `growth` adds. Kind `Quota`.
    pub(in crate::memory) fn check_quota(
        &self,
        branch: BranchId,
        growth: impl FnOnce(&Branch) -> Result<Usage, Error>,
    ) -> Result<(), Error> {
        let catalog = self.catalog().clone();
        let limits: Vec<(BranchId, Quota)> = above(&catalog, branch).filter_map(limit_of).collect();
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
            sum.bytes += self.maintenance.retained.below(&catalog, *id) as i64;
            check_quota(catalog.branch(*id)?, quota, sum, growth)
        })
    }

    /// As [`Memory::check_quota`], for written records, with the bytes that they have afterwards. Fails as that does.
    pub(in crate::memory) fn check_records<'a>(
        &self,
        branch: BranchId,
        records: impl Iterator<Item = (&'a Arc<str>, usize)>,
    ) -> Result<(), Error> {
        self.check_quota(branch, |branch| {
            let mut growth = Usage::default();
            for (id, bytes) in records {
                let before = record(&branch.state, &branch.base, id)?;
                let after = Usage { bytes: bytes as i64, records: 1, branches: 0 };
                growth = growth.plus(after.minus(before));
            }
            Ok(growth)
        })
    }

    /// As [`Memory::check_quota`], for an operation on files. Fails as that does.
    pub(in crate::memory) fn check_file(&self, branch: BranchId, op: &FileOp<'_>) -> Result<(), Error> {
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
            Ok(Usage { bytes: end.max(size) as i64 - before, ..Usage::default() })
        })
    }
}

impl KnownUsage {
    /// Counts what has changed since the last call. Where that fails the next one counts all anew.
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
        // Those whose quota is new: all below them is looked at.
        for id in fresh {
            let sum = self.sum(now, id)?;
            self.total_usage.insert(id, sum);
        }
        Ok(())
    }

    /// Counts a branch; returns it where it has a quota of its own.
    fn add(&mut self, now: &Catalog, new: &Branch) -> Result<Option<BranchId>, Error> {
        if is_governed(now, new) {
            let own = usage(new)?;
            self.own_usage.insert(new.id, own);
            self.count(now, new, own.plus(Usage { branches: 1, ..Usage::default() }));
        }
        Ok(limit_of(new).map(|(id, _)| id))
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
        match (limit_of(old), limit_of(new)) {
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
        for at in above(catalog, branch.id) {
            if let Some(sum) = self.total_usage.get_mut(&at.id) {
                *sum = sum.plus(change);
                if at.id == branch.id {
                    sum.branches -= change.branches;
                }
            }
        }
    }

    /// What a branch and all below it hold.
    fn sum(&mut self, now: &Catalog, top: BranchId) -> Result<Usage, Error> {
        let (mut sum, mut left) = (Usage { branches: -1, ..Usage::default() }, vec![top]);
        while let Some(id) = left.pop() {
            let branch = now.branch(id)?;
            let own = match self.own_usage.get(&id) {
                Some(own) => *own,
                None => usage(branch)?,
            };
            self.own_usage.insert(id, own);
            sum = sum.plus(own).plus(Usage { branches: 1, ..Usage::default() });
            left.extend(branch.children.values());
        }
        Ok(sum)
    }
}

/// Goes from a branch up to its root branch.
fn above(catalog: &Catalog, id: BranchId) -> impl Iterator<Item = &Branch> {
    let branch = |id| catalog.branches.get(&id).map(|branch| &**branch);
    std::iter::successors(branch(id), move |at| branch(at.parent?))
}

fn limit_of(branch: &Branch) -> Option<(BranchId, Quota)> {
    let text = branch.settings.get(Setting::Quota);
    if text.is_empty() { None } else { Quota::parse(text).map(|quota| (branch.id, quota)) }
}

fn is_governed(catalog: &Catalog, branch: &Branch) -> bool {
    above(catalog, branch.id).any(|branch| limit_of(branch).is_some())
}

/// What a branch holds of its own. It goes through all of its files.
fn usage(branch: &Branch) -> Result<Usage, Error> {
    let (base, state) = (&branch.base, &branch.state);
    let mut own = Usage::default();
    if base.totals().records == 0 {
        // Without a base all records are its own, and their sums are known.
        own = Usage { bytes: state.totals().raw as i64, records: state.totals().records as i64, branches: 0 };
    } else {
        for change in differences(base, state)? {
            own.records += 1;
            own.bytes += change.new.map_or(Ok(0), |row| row.totals().map(|totals| totals.raw as i64))?;
        }
    }
    own.bytes += state.files().inodes().map(|inode| file_bytes(state.files(), base.files(), inode)).sum::<i64>();
    Ok(own)
}

/// The same, from what it held before a change.
fn usage_after(before: Usage, old: &Branch, new: &Branch) -> Result<Usage, Error> {
    let same_base = old.base_seq == new.base_seq;
    if !same_base {
        return usage(new);
    }
    let mut own = before;
    for id in touched_at_most(&old.state, &new.state, usize::MAX)?.unwrap_or_default() {
        own = own.plus(record(&new.state, &new.base, &id)?).minus(record(&old.state, &new.base, &id)?);
    }
    let (files, base) = ((old.state.files(), new.state.files()), new.base.files());
    for inode in files.0.changed_nodes(files.1).map(|changed| changed.inode) {
        own.bytes += file_bytes(files.1, base, inode) - file_bytes(files.0, base, inode);
    }
    Ok(own)
}

/// What a record counts where it differs from the base.
fn record(state: &BranchVersion, base: &BranchVersion, id: &str) -> Result<Usage, SegmentError> {
    let (mine, bases) = (state.find(id)?, base.find(id)?);
    let hash = |row: &Option<crate::segment::Row>| row.as_ref().map(|row| row.hash()).transpose();
    if hash(&mine)? == hash(&bases)? {
        return Ok(Usage::default());
    }
    let bytes = mine.map_or(Ok(0), |row| row.totals().map(|totals| totals.raw as i64))?;
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

fn check_quota(holder: &Branch, quota: &Quota, sum: Usage, growth: Usage) -> Result<(), Error> {
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
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, MergeKind, OpenMode, RecordEdit, RecordPatch, View};
    use std::sync::Arc;

    #[test]
    fn words_are_sizes_and_numbers_each_once() {
        let quota = Quota::parse("bytes=1G records=5").unwrap();
        assert_eq!(quota, Quota { bytes: Some(1 << 30), records: Some(5), branches: None });
        assert_eq!(Quota::parse(""), Some(Quota::default()));
        for (size, bytes) in
            [("3", 3), ("3K", 3 << 10), ("3k", 3 << 10), ("3M", 3 << 20), ("3m", 3 << 20), ("3g", 3 << 30)]
        {
            assert_eq!(Quota::parse(&format!("bytes={size}")).unwrap().bytes, Some(bytes), "{size}");
        }
        let all = Quota { bytes: Some(1 << 10), records: Some(2), branches: Some(3) };
        for any_order in
            ["bytes=1K records=2 branches=3", "branches=3 bytes=1K records=2", "records=2 branches=3 bytes=1K"]
        {
            assert_eq!(Quota::parse(any_order), Some(all), "{any_order}");
        }
        for bad in [
            "bytes",
            "bytes=x",
            "bytes=K",
            "bytes=1T",
            "rows=1",
            "records=1 records=2",
            "bytes=1K records=1 bytes=1K",
            "branches=1 branches=1",
            "records=-1",
            "records=1G",
            "branches=1K",
        ] {
            assert_eq!(Quota::parse(bad), None, "{bad}");
        }
    }

    struct QuotaRig {
        memory: Arc<Memory>,
        who: Actor,
        main: BranchId,
    }

    fn rig() -> QuotaRig {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who.clone())).unwrap();
        let main = memory.root("main").unwrap();
        QuotaRig { memory, who, main }
    }

    impl QuotaRig {
        fn put(&self, branch: BranchId, id: &str, text: &str) -> Result<(), Error> {
            let patch = RecordPatch::parse(id, format!("{{\"text\":\"{text}\"}}").as_bytes())?.unwrap();
            self.memory.commit(&self.who, branch, vec![RecordEdit::Correct { id: id.into(), patch, line: 0 }]).map(drop)
        }

        fn quota(&self, branch: BranchId, value: &str) {
            self.memory.set(&self.who, branch, Setting::Quota, value).unwrap();
        }

        fn fork(&self, branch: BranchId, name: &str) -> Result<BranchId, Error> {
            self.memory.fork(&self.who, branch, name, None)
        }
    }

    fn is_over<T>(result: Result<T, Error>) -> bool {
        result.is_err_and(|error| matches!(error, Error::Limit(LimitError::Quota { .. })))
    }

    #[test]
    fn records_of_a_branch_and_all_below_count() {
        let rig = rig();
        rig.put(rig.main, "of-base", "x").unwrap();
        let top = rig.fork(rig.main, "top").unwrap();
        rig.quota(top, "records=3");
        let below = rig.fork(top, "below").unwrap();
        rig.put(top, "a", "x").unwrap();
        rig.put(below, "b", "x").unwrap();
        rig.put(below, "of-base", "changed").unwrap();
        assert!(is_over(rig.put(below, "c", "x")) && is_over(rig.put(top, "d", "x")));
        rig.put(below, "b", "again").unwrap();
        rig.put(rig.main, "elsewhere", "x").unwrap();
        rig.memory.commit(&rig.who, below, vec![RecordEdit::Delete { id: "b".into() }]).unwrap();
        rig.put(top, "d", "x").unwrap();
        rig.memory.discard(&rig.who, below).unwrap();
        rig.put(top, "e", "x").unwrap();
        assert!(is_over(rig.put(top, "f", "x")));
        rig.quota(top, "");
        rig.put(top, "f", "x").unwrap();
    }

    #[test]
    fn branches_and_bytes_have_limits_of_their_own() {
        let rig = rig();
        rig.quota(rig.main, "branches=2 bytes=1K");
        let one = rig.fork(rig.main, "one").unwrap();
        rig.fork(one, "two").unwrap();
        assert!(is_over(rig.fork(one, "three")) && is_over(rig.fork(rig.main, "three")));
        rig.put(one, "a", &"x".repeat(600)).unwrap();
        assert!(is_over(rig.put(rig.main, "b", &"x".repeat(600))));
        rig.memory.commit(&rig.who, one, vec![RecordEdit::Delete { id: "a".into() }]).unwrap();
        rig.put(rig.main, "b", &"x".repeat(600)).unwrap();
    }

    #[test]
    fn whoever_is_over_a_quota_may_remove_cut_merge_and_discard() {
        let rig = rig();
        let [child, other] = ["child", "other"].map(|name| rig.fork(rig.main, name).unwrap());
        for (branch, id) in [(rig.main, "a"), (rig.main, "b"), (child, "c")] {
            rig.put(branch, id, "x").unwrap();
        }
        let name = || crate::workspace::FileName::new(b"f").unwrap();
        let (parent, make) = (crate::workspace::ROOT, crate::workspace::Make::File);
        let create = FileOp::Create { parent, name: name(), make, mode: 0o644, uid: 0, gid: 0 };
        let edit = |op: FileOp<'_>| rig.memory.edit(&rig.who, rig.main, op).map(|outcome| outcome.inode).ok();
        let inode = edit(create).unwrap();
        edit(FileOp::Write { inode, offset: 0, bytes: vec![b'x'; 800].into() }).unwrap();
        rig.quota(rig.main, "records=1 bytes=10 branches=1");
        let refused = || is_over(rig.put(rig.main, "more", "x")) && is_over(rig.fork(rig.main, "more"));
        assert!(refused() && edit(FileOp::Write { inode, offset: 800, bytes: vec![b'x'].into() }).is_none());
        rig.memory.commit(&rig.who, rig.main, vec![RecordEdit::Delete { id: "a".into() }]).unwrap();
        edit(FileOp::SetAttr { inode, attrs: Attrs { size: Some(700), ..Attrs::default() } }).unwrap();
        rig.memory.merge(&rig.who, child, MergeKind::Merge, false).unwrap();
        assert!(is_over(rig.put(rig.main, "more", "x")), "b and c are there");
        edit(FileOp::Unlink { parent, name: name(), keep: false }).unwrap();
        rig.memory.discard(&rig.who, other).unwrap();
        rig.fork(rig.main, "more").unwrap();
    }

    #[test]
    fn files_count_by_their_size_where_they_differ() {
        let rig = rig();
        let create = |branch, name: &str| {
            let make = crate::workspace::Make::File;
            let op = FileOp::Create {
                parent: crate::workspace::ROOT,
                name: crate::workspace::FileName::new(name.as_bytes()).unwrap(),
                make,
                mode: 0o644,
                uid: 0,
                gid: 0,
            };
            rig.memory.edit(&rig.who, branch, op).map(|outcome| outcome.inode).ok().unwrap()
        };
        let write = |branch, inode, length: usize| {
            let op = FileOp::Write { inode, offset: 0, bytes: vec![b'x'; length].into() };
            rig.memory.edit(&rig.who, branch, op).is_ok()
        };
        let inherited = create(rig.main, "inherited");
        assert!(write(rig.main, inherited, 800));
        let fork = rig.fork(rig.main, "fork").unwrap();
        rig.quota(fork, "bytes=1000");
        let own = create(fork, "own");
        assert!(write(fork, own, 900) && !write(fork, own, 1001));
        assert!(!write(fork, inherited, 1), "the whole file would be its own");
        assert!(write(fork, own, 1000), "what is there already counts once");
        assert_eq!(rig.memory.files(&View::Branch(fork)).unwrap().node(own).unwrap().size(), 1000);
    }

    #[test]
    fn what_is_counted_step_by_step_is_what_is_counted_anew() {
        let rig = rig();
        for number in 0..20 {
            rig.put(rig.main, &number.to_string(), "base").unwrap();
        }
        rig.quota(rig.main, "records=100000");
        let mut seed = 3u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut branches = vec![rig.main];
        for step in 0..300 {
            let branch = branches[random(branches.len() as u64) as usize];
            let id = random(30).to_string();
            match random(10) {
                0 if branches.len() < 6 => branches.push(rig.fork(branch, &format!("b{step}")).unwrap()),
                1 if branch != rig.main => {
                    if rig.memory.merge(&rig.who, branch, MergeKind::Merge, false).is_ok() {
                        branches.retain(|other| *other != branch);
                    }
                }
                2 if branch != rig.main => drop(rig.memory.merge(&rig.who, branch, MergeKind::Pull, false)),
                3 => drop(rig.memory.commit(&rig.who, branch, vec![RecordEdit::Delete { id: id.as_str().into() }])),
                _ => rig.put(branch, &id, &"x".repeat(1 + random(40) as usize)).unwrap(),
            }
            rig.memory.check_quota(rig.main, |_| Ok(Usage::default())).unwrap();
            let catalog = rig.memory.catalog().clone();
            let known = rig.memory.admission.quotas.0.lock();
            let anew = KnownUsage::default().sum(&catalog, rig.main).unwrap();
            assert_eq!(known.total_usage[&rig.main], anew, "step {step}");
        }
    }
}
