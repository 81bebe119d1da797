//! What counts in a quota, step by step and anew.

use super::*;
use crate::disk::ForgetfulDisk;
use crate::memory::{
    Actor, EditError, Environment, MergeVerb, OpenMode, PurgeOptions, RecordEdit, RecordInput, RecordPatch,
    SharedLogEntryInput, View,
};
use crate::workspace::ROOT;

mod steps;

#[test]
fn words_are_sizes_and_numbers_each_once() {
    let quota = Quota::parse("bytes=1G records=5").unwrap();
    assert_eq!(quota, Quota { bytes: Some(1 << 30), records: Some(5), branches: None });
    assert_eq!(Quota::parse(""), Some(Quota::default()));
    for (size, bytes) in [("3", 3), ("3K", 3 << 10), ("3k", 3 << 10), ("3M", 3 << 20), ("3m", 3 << 20), ("3g", 3 << 30)]
    {
        assert_eq!(Quota::parse(&format!("bytes={size}")).unwrap().bytes, Some(bytes), "{size}");
    }
    let all = Quota { bytes: Some(1 << 10), records: Some(2), branches: Some(3) };
    for any_order in ["bytes=1K records=2 branches=3", "branches=3 bytes=1K records=2", "records=2 branches=3 bytes=1K"]
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

    /// Puts that many records in one commit.
    fn put_many(&self, branch: BranchId, count: usize) {
        let edit = |number: usize| {
            let input = RecordInput { vector: None, text: Some("x".into()), metadata: "{}".into() };
            RecordEdit::Put { id: format!("many-{number}").into(), input }
        };
        // A larger commit would make a segment of its own, which no seal moves.
        for number in (0..count).step_by(1_000) {
            let edits = (number..count.min(number + 1_000)).map(edit).collect();
            self.memory.commit(&self.who, branch, edits).unwrap();
        }
    }

    fn branch(&self, branch: BranchId) -> Branch {
        self.memory.catalog().branch(branch).unwrap().clone()
    }

    fn quota(&self, branch: BranchId, value: &str) {
        self.memory.set(&self.who, branch, Setting::Quota, value).unwrap();
    }

    fn fork(&self, branch: BranchId, name: &str) -> Result<BranchId, Error> {
        self.memory.fork(&self.who, branch, name, None)
    }

    fn append(&self, branch: BranchId, text: &str) {
        let entry = SharedLogEntryInput::parse(text).unwrap();
        self.memory.append_log(&self.who, branch, &[entry]).unwrap();
    }

    fn create_file(&self, branch: BranchId, name: &str) -> u64 {
        let op = FileOp::Create {
            parent: ROOT,
            name: file_name(name),
            make: crate::workspace::NewInode::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
        };
        self.memory.edit(&self.who, branch, op).map(|outcome| outcome.inode).ok().unwrap()
    }

    /// Tells whether an operation was done.
    fn edit(&self, branch: BranchId, op: FileOp<'_>) -> bool {
        self.memory.edit(&self.who, branch, op).is_ok()
    }

    /// Writes at the beginning of a file; tells whether that was done.
    fn write_file(&self, branch: BranchId, inode: u64, bytes: &[u8]) -> bool {
        self.edit(branch, FileOp::Write { inode, offset: 0, bytes: bytes.into() })
    }

    fn purge(&self, branch: BranchId, item: String) -> Result<(), Error> {
        self.memory.purge(&self.who, branch, &[item], PurgeOptions::default()).map(drop)
    }
}

fn file_name(name: &str) -> crate::workspace::FileName {
    crate::workspace::FileName::new(name.as_bytes()).unwrap()
}

fn unlink(name: &str, keep: bool) -> FileOp<'static> {
    FileOp::Unlink { parent: ROOT, name: file_name(name), keep }
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
    rig.memory.commit(&rig.who, below, vec![RecordEdit::Delete { id: "of-base".into() }]).unwrap();
    assert!(is_over(rig.put(top, "e", "x")), "what is deleted differs, too");
    rig.memory.discard(&rig.who, below).unwrap();
    rig.put(top, "e", "x").unwrap();
    assert!(is_over(rig.put(top, "f", "x")));
    rig.quota(top, "");
    rig.put(top, "f", "x").unwrap();
}

#[test]
fn concurrent_calls_exceed_a_quota_by_what_they_add_at_most() {
    const WRITERS: u64 = 4;
    let rig = rig();
    rig.quota(rig.main, "records=20");
    let until_refused = |writer: u64| {
        let refusal = (0..=20).find_map(|n| rig.put(rig.main, &format!("r{writer}-{n}"), "x").err());
        assert!(is_over(Err::<(), _>(refusal.unwrap())), "writer {writer} was refused for another reason");
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || until_refused(writer));
        }
    });
    let records = rig.memory.status(&View::Branch(rig.main)).unwrap()["records"].as_u64().unwrap();
    assert!((20..20 + WRITERS).contains(&records), "{records} records");
}

#[test]
fn ids_numbers_texts_and_metadata_count_in_a_quota_of_bytes() {
    let rig = rig();
    let (vector, text) = (Some(vec![1.0_f32; 10].into()), Some("x".repeat(20).into()));
    let input = RecordInput { vector, text, metadata: "{}".into() };
    let put = || {
        let edit = RecordEdit::Put { id: "ten-bytes-".into(), input: input.clone() };
        rig.memory.commit(&rig.who, rig.main, vec![edit])
    };
    rig.quota(rig.main, "bytes=71");
    assert!(is_over(put()));
    rig.quota(rig.main, "bytes=72");
    put().unwrap();
    assert!(is_over(rig.put(rig.main, "b", "x")), "all of it is taken");
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
    let (parent, make) = (ROOT, crate::workspace::NewInode::File);
    let create = FileOp::Create { parent, name: name(), make, mode: 0o644, uid: 0, gid: 0 };
    let edit = |op: FileOp<'_>| rig.memory.edit(&rig.who, rig.main, op).map(|outcome| outcome.inode).ok();
    let inode = edit(create).unwrap();
    edit(FileOp::Write { inode, offset: 0, bytes: vec![b'x'; 800].into() }).unwrap();
    rig.quota(rig.main, "records=1 bytes=10 branches=1");
    let refused = || is_over(rig.put(rig.main, "more", "x")) && is_over(rig.fork(rig.main, "more"));
    assert!(refused() && edit(FileOp::Write { inode, offset: 800, bytes: vec![b'x'].into() }).is_none());
    rig.memory.commit(&rig.who, rig.main, vec![RecordEdit::Delete { id: "a".into() }]).unwrap();
    edit(FileOp::SetAttr { inode, attrs: Attrs { size: Some(700), ..Attrs::default() } }).unwrap();
    rig.memory.merge(&rig.who, child, MergeVerb::Merge, false).unwrap();
    assert!(is_over(rig.put(rig.main, "more", "x")), "b and c are there");
    edit(FileOp::Unlink { parent, name: name(), keep: false }).unwrap();
    rig.memory.discard(&rig.who, other).unwrap();
    rig.fork(rig.main, "more").unwrap();
}

#[test]
fn files_count_by_their_size_where_they_differ() {
    let rig = rig();
    let write = |branch, inode, length: usize| rig.write_file(branch, inode, &vec![b'x'; length]);
    let inherited = rig.create_file(rig.main, "inherited");
    assert!(write(rig.main, inherited, 800));
    let fork = rig.fork(rig.main, "fork").unwrap();
    rig.quota(fork, "bytes=1000");
    let own = rig.create_file(fork, "own");
    assert!(write(fork, own, 900) && !write(fork, own, 1001));
    assert!(!write(fork, inherited, 1), "the whole file would be its own");
    assert!(write(fork, own, 1000), "what is there already counts once");
    assert_eq!(rig.memory.files(&View::Branch(fork)).unwrap().node(own).unwrap().size(), 1000);
}

#[test]
fn a_file_of_the_same_length_counts_where_its_bytes_differ() {
    let rig = rig();
    let [same, other] = ["same", "other"].map(|name| {
        let inode = rig.create_file(rig.main, name);
        assert!(rig.write_file(rig.main, inode, &[b'x'; 800]));
        inode
    });
    let fork = rig.fork(rig.main, "fork").unwrap();
    rig.quota(fork, "bytes=1000");
    assert!(rig.write_file(fork, same, &[b'x'; 800]));
    assert!(rig.write_file(fork, other, &[b'y'; 800]), "what was written with the same bytes counts for nothing");
    let own = rig.create_file(fork, "own");
    assert!(!rig.write_file(fork, own, &[b'x'; 201]), "the other file is the fork's own");
    assert!(rig.write_file(fork, own, &[b'x'; 200]));
}

/// Its former length is none of the branch's own: what is left of it is.
#[test]
fn a_file_of_the_base_counts_what_a_cut_leaves_of_it() {
    let rig = rig();
    let edit = |branch, op: FileOp<'_>| match rig.memory.edit(&rig.who, branch, op) {
        Ok(outcome) => Ok(outcome.inode),
        Err(EditError::Refused(error)) => Err(error),
        Err(other) => panic!("{other:?}"),
    };
    let create = |name: &[u8]| FileOp::Create {
        parent: ROOT,
        name: crate::workspace::FileName::new(name).unwrap(),
        make: crate::workspace::NewInode::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let inodes = [b"a", b"b", b"c"].map(|name| {
        let inode = edit(rig.main, create(name)).ok().unwrap();
        edit(rig.main, FileOp::Write { inode, offset: 0, bytes: vec![b'x'; 8000].into() }).ok().unwrap();
        inode
    });
    let fork = rig.fork(rig.main, "fork").unwrap();
    rig.quota(fork, "bytes=1000");
    let cut = |file: usize, size: u64| {
        edit(fork, FileOp::SetAttr { inode: inodes[file], attrs: Attrs { size: Some(size), ..Attrs::default() } })
    };
    cut(0, 0).unwrap();
    cut(1, 900).unwrap();
    assert!(is_over(cut(2, 101)) && is_over(cut(2, 9000)) && is_over(cut(0, 101)));
    cut(2, 8000).unwrap();
    cut(2, 100).unwrap();
    assert!(is_over(cut(0, 1)), "all of the quota is used");
    rig.memory.check_quota(fork, |_| Ok(Usage::default())).unwrap();
    let catalog = rig.memory.catalog().clone();
    assert_eq!(branch_usage(catalog.branch(fork).unwrap()).unwrap().bytes, 1000);
}

/// It is no branch that somebody made, and what is in it is no edit of the branch above it.
#[test]
fn a_shared_log_counts_for_no_quota() {
    let rig = rig();
    rig.quota(rig.main, "branches=1 records=1 bytes=100");
    for number in 0..3 {
        rig.append(rig.main, &number.to_string());
    }
    rig.memory.archive_log(&rig.who, rig.main, 3).unwrap();
    rig.put(rig.main, "a", "x").unwrap();
    let case = rig.fork(rig.main, "case").unwrap();
    assert!(is_over(rig.put(rig.main, "b", "x")) && is_over(rig.fork(rig.main, "other")), "the control");
    rig.memory.set(&rig.who, case, Setting::Log, "own").unwrap();
    rig.append(case, "of the case");
    rig.memory.merge(&rig.who, case, MergeVerb::Merge, false).unwrap();
    rig.fork(rig.main, "other").unwrap();
}

/// The ids that are looked up to count what has changed; `None` if all that the branch holds of its own is counted.
fn recounted(old: &Branch, new: &Branch) -> Option<usize> {
    let before = branch_usage(old).unwrap();
    assert_eq!(usage_after(before, old, new).unwrap(), counted_whole(new));
    recounted_ids(before, old, new).unwrap().map(|ids| ids.len())
}

fn moved_or_changed(old: &Branch, new: &Branch) -> usize {
    changed_ids_at_most(&old.state, &new.state, usize::MAX).unwrap().unwrap().len()
}

/// What a branch holds, by a look at each of its records and inodes and at those of its base.
fn counted_whole(branch: &Branch) -> Usage {
    let (base, state) = (&branch.base, &branch.state);
    let mut ids = BTreeSet::new();
    for version in [base, state] {
        for row in version.rows(None).unwrap() {
            ids.insert(row.unwrap().id().unwrap().to_string());
        }
    }
    let mut own = ids.iter().map(|id| record_usage(state, base, id).unwrap()).fold(Usage::default(), Usage::plus);
    own.bytes += state.files().inodes().map(|inode| file_bytes(state.files(), base.files(), inode)).sum::<i64>();
    own
}

/// They would be looked up in every branch below a quota while others wait.
#[test]
fn records_that_a_seal_only_moved_are_not_counted_again() {
    let rig = rig();
    for number in 0..20 {
        rig.put(rig.main, &number.to_string(), "base").unwrap();
    }
    let fork = rig.fork(rig.main, "fork").unwrap();
    rig.put(fork, "own", "x").unwrap();
    rig.memory.commit(&rig.who, fork, vec![RecordEdit::Delete { id: "3".into() }]).unwrap();
    let before = rig.branch(fork);
    rig.memory.seal().unwrap();
    let sealed = rig.branch(fork);
    assert_eq!(moved_or_changed(&before, &sealed), 20, "the control: all that are there moved");
    assert_eq!(recounted(&before, &sealed), Some(0));
    rig.put(fork, "own", "again").unwrap();
    assert_eq!(recounted(&sealed, &rig.branch(fork)), Some(1));
    rig.put(fork, "own", "x").unwrap();
    assert_eq!(recounted(&sealed, &rig.branch(fork)), Some(0), "changed and changed back");
}

#[test]
fn a_write_beside_many_moved_records_costs_what_a_branch_holds_of_its_own() {
    let rig = rig();
    let count = 2 * RECOUNTED_MIN;
    rig.put_many(rig.main, count);
    let fork = rig.fork(rig.main, "fork").unwrap();
    rig.put(fork, "many-1", "own").unwrap();
    let [before, main_before] = [fork, rig.main].map(|branch| rig.branch(branch));
    rig.memory.seal().unwrap();
    for branch in [fork, rig.main] {
        rig.put(branch, "many-2", "changed").unwrap();
        rig.memory.commit(&rig.who, branch, vec![RecordEdit::Delete { id: "many-3".into() }]).unwrap();
    }
    let (after, main_after) = (rig.branch(fork), rig.branch(rig.main));
    assert_eq!(moved_or_changed(&before, &after), count, "the control");
    assert_eq!(recounted(&before, &after), None);
    assert_eq!(differences(&after.base, &after.state).unwrap().len(), 3, "what is gone through in place of them");
    assert_eq!(recounted(&main_before, &main_after), None, "sums of a branch without a base are known");
}

/// A fork is counted before the next write below the quota, and all others wait for that.
#[test]
fn inodes_that_a_fork_shares_with_its_base_are_not_gone_through() {
    let rig = rig();
    let inodes: Vec<u64> = (0..50).map(|number| rig.create_file(rig.main, &number.to_string())).collect();
    for inode in &inodes {
        assert!(rig.write_file(rig.main, *inode, b"base"));
    }
    let fork = rig.fork(rig.main, "fork").unwrap();
    let counted = || {
        let branch = rig.branch(fork);
        let usage = branch_usage(&branch).unwrap();
        assert_eq!(usage, counted_whole(&branch));
        (unshared_inodes(&branch).count(), usage.bytes)
    };
    assert!(rig.branch(fork).state.files().inodes().count() > 50, "the control");
    assert_eq!(counted(), (0, 0));
    assert!(rig.write_file(fork, inodes[0], b"more than base"));
    assert_eq!(counted(), (1, 14));
    assert!(rig.edit(fork, unlink("1", false)));
    assert_eq!(counted(), (3, 14), "the root, and what is gone");
    rig.memory.seal().unwrap();
    assert_eq!(counted().1, 14);
}
