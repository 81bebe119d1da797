//! A history with every kind of log record and every kind of operation on files.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use engramfs::disk::{Disk, DiskFile, DiskSpace, RealDisk};
use engramfs::embed::{EmbedError, Embedder, TextKind};
use engramfs::memory::{
    Actor, Attrs, BranchId, CommitOptions, Environment, FILES_ROOT, FileName, FileOp, ForkOptions, Kind, Memory,
    MergeOptions, MergeVerb, NewInode, OpenMode, PurgeOptions, RangeOp, RenameMode, RevertVerb, ReviewRequest,
    Revision, Setting, SharedLogEntryInput, ShowTarget, Side, SignalId, Time, Viewer, XattrMode,
};

use crate::files::write;
use crate::support::{delete, environment, main_of, put, who};

/// The clock of the history: it runs ahead until it is set right.
static CLOCK: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);
const DAY_NANOS: i64 = 86_400_000_000_000;

/// Makes a store at a folder that is empty.
pub fn open(disk: &RealDisk) -> Arc<Memory> {
    let environment = Environment {
        clock: Box::new(|| Time(CLOCK.fetch_add(1_000, Ordering::Relaxed))),
        uptime: Box::new(|| std::time::Duration::from_nanos(CLOCK.load(Ordering::Relaxed).cast_unsigned())),
        ..environment()
    };
    let disk: Arc<dyn Disk> = Arc::new(Crowded(disk.clone()));
    Memory::open_on(disk, OpenMode::Create, None, environment).unwrap()
}

/// Whether others have filled the disk.
static FULL: AtomicBool = AtomicBool::new(false);

/// A disk that is full now and then.
struct Crowded(RealDisk);

impl Disk for Crowded {
    fn space(&self) -> io::Result<DiskSpace> {
        let available_bytes = if FULL.load(Ordering::Relaxed) { 0 } else { 1 << 30 };
        Ok(DiskSpace { available_bytes, ..self.0.space()? })
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.create(path)
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(path)
    }

    fn open_write(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.open_write(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.0.create_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.0.sync_dir(path)
    }

    fn mode(&self, path: &str) -> io::Result<u32> {
        self.0.mode(path)
    }
}

/// An embedder that looks at the length of a text alone.
struct Lengths;

impl Embedder for Lengths {
    fn name(&self) -> &str {
        "lengths"
    }

    fn description(&self) -> &[u8] {
        b"lengths"
    }

    fn batch_texts_max(&self) -> usize {
        8
    }

    fn embed(&self, _: TextKind, texts: &[&str], _: Duration) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| vec![text.len() as f32, 1.0, 0.5]).collect())
    }
}

/// Does everything once; `seal` is called where a store may be sealed.
pub fn run(memory: &Memory, seal: impl Fn(&Memory)) {
    let main = main_of(memory);
    clock(memory, main);
    records(memory, main);
    files(memory, main);
    seal(memory);
    let child = branches(memory, main);
    seal(memory);
    merges(memory, main, child);
    settings(memory, main);
    logs(memory, main);
    blackboard(memory, main);
    proposals(memory, main);
    imports(memory);
    let notes = memory.create_root(&who(), "notes").unwrap();
    memory.set(&who(), notes, Setting::Gate, "approval 2 for files/core/** strict\nonly vectors/*\nsummary").unwrap();
    memory.fork(&who(), main, "alive", None).unwrap();
    write(memory, main, "pending.md", "in no entry yet\n");
}

fn record(id: &str, n: u32) -> engramfs::memory::RecordEdit {
    put(id, Some(vec![n as f32, 1.0, 0.5]), Some(&format!("text {n} of {id}")))
}

/// Something is written a year ahead, and the clock is set right.
fn clock(memory: &Memory, main: BranchId) {
    CLOCK.fetch_add(365 * DAY_NANOS, Ordering::Relaxed);
    let ahead = memory.commit(&who(), main, vec![record("ahead", 1)]);
    assert_eq!(ahead.map(drop).map_err(|error| error.kind()), Ok(()));
    CLOCK.fetch_sub(365 * DAY_NANOS, Ordering::Relaxed);
    memory.reset_clock(&who()).unwrap();
}

/// The disk is full for a while, so that earlier states go.
pub fn full_disk(memory: &Memory) {
    let main = main_of(memory);
    for n in 0..3 {
        memory.commit(&who(), main, vec![record("early", n)]).unwrap();
    }
    // What is known of the disk's room is forgotten at a seal.
    memory.seal().unwrap();
    FULL.store(true, Ordering::Relaxed);
    let refused = memory.commit(&who(), main, vec![record("refused", 1)]);
    assert_eq!(refused.map(drop).map_err(|error| error.kind()), Err(Kind::Full));
    FULL.store(false, Ordering::Relaxed);
    memory.commit(&who(), main, vec![delete("early")]).unwrap();
}

fn records(memory: &Memory, main: BranchId) {
    memory.commit(&who(), main, (0..6).map(|n| record(&format!("r{n}"), n)).collect()).unwrap();
    memory.commit(&who(), main, vec![put("words", None, Some("no vector")), delete("r5")]).unwrap();
    let many = (0..1_100).map(|n| put(&format!("bulk-{n:04}"), None, Some("of a large commit")));
    memory.commit(&who(), main, many.chain([delete("r4")]).collect()).unwrap();
}

fn name(text: &str) -> FileName {
    FileName::new(text.as_bytes()).unwrap()
}

/// Every operation on files.
fn files(memory: &Memory, main: BranchId) {
    let edit = |op: FileOp<'_>| memory.edit(&who(), main, op).unwrap().inode;
    let make = |at: u64, called: &str, make: NewInode| {
        edit(FileOp::Create { parent: at, name: name(called), make, mode: 0o755, uid: 1000, gid: 1000 })
    };
    let folder = make(FILES_ROOT, "folder", NewInode::Directory);
    let empty = make(FILES_ROOT, "empty", NewInode::Directory);
    let file = make(folder, "file", NewInode::File);
    make(folder, "link", NewInode::Symlink(b"file".into()));
    make(folder, "pipe", NewInode::Fifo);
    edit(FileOp::Write { inode: file, offset: 0, bytes: vec![b'x'; 150_000].into() });
    edit(FileOp::Write { inode: file, offset: 7, bytes: b"short"[..].into() });
    edit(FileOp::Range { inode: file, what: RangeOp::Punch, offset: 65_536, length: 65_536, keep_size: true });
    edit(FileOp::Copy { from: file, from_offset: 0, to: file, to_offset: 200_000, length: 10 });
    edit(FileOp::Link { inode: file, parent: FILES_ROOT, name: name("hard") });
    edit(FileOp::SetXattr { inode: file, name: b"user.kind".into(), value: b"note".into(), mode: XattrMode::Any });
    edit(FileOp::SetXattr { inode: file, name: b"user.gone".into(), value: b"x".into(), mode: XattrMode::Any });
    edit(FileOp::RemoveXattr { inode: file, name: b"user.gone".into() });
    edit(FileOp::SetAttr { inode: file, attrs: Attrs { mode: Some(0o640), ..Attrs::default() } });
    let (new_name, mode) = (name("moved"), RenameMode::Plain);
    edit(FileOp::Rename { parent: FILES_ROOT, name: name("empty"), new_parent: folder, new_name, mode, keep: false });
    edit(FileOp::Rmdir { parent: folder, name: name("moved"), keep: false });
    assert_ne!(empty, file);
    let open = make(FILES_ROOT, "open", NewInode::File);
    edit(FileOp::Unlink { parent: FILES_ROOT, name: name("open"), keep: true });
    memory.drop_file_soon(who(), main, open);
    write(memory, main, "both.txt", "one\ntwo\nthree\n");
    write(memory, main, "log.jsonl", "{\"event_id\":1}\n");
}

/// Checkpoints, rollbacks, names, ends; returns a branch with edits of every kind.
fn branches(memory: &Memory, main: BranchId) -> BranchId {
    memory.checkpoint(&who(), main, "first", Some("as it began")).unwrap();
    memory.checkpoint(&who(), main, "gone", None).unwrap();
    memory.delete_checkpoint(&who(), main, "gone").unwrap();
    memory.commit(&who(), main, vec![record("late", 9)]).unwrap();
    write(memory, main, "both.txt", "lost by the rollback\n");
    memory.rollback_files(&who(), main, "first", &["files/both.txt".into()]).unwrap();
    memory.undo(&who(), main, RevertVerb::Undo, 1, false).unwrap();
    memory.undo(&who(), main, RevertVerb::Redo, 1, false).unwrap();
    memory.rollback(&who(), main, "first").unwrap();
    let lost = memory.fork(&who(), main, "lost", Some("first")).unwrap();
    memory.commit(&who(), lost, vec![record("r0", 70)]).unwrap();
    memory.rename_branch(&who(), lost, "renamed").unwrap();
    memory.discard(&who(), lost).unwrap();
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.commit(&who(), child, vec![record("r1", 80), record("r2", 81), delete("r3")]).unwrap();
    write(memory, child, "both.txt", "one\ntwo\nTHREE\n");
    write(memory, child, "log.jsonl", "{\"event_id\":1}\n{\"event_id\":2}\n");
    child
}

/// Pull, promote, merge, a conflict that is refused and then resolved.
fn merges(memory: &Memory, main: BranchId, child: BranchId) {
    memory.commit(&who(), main, vec![record("r1", 90), record("from-main", 91)]).unwrap();
    write(memory, main, "both.txt", "ONE\ntwo\nthree\n");
    write(memory, main, "log.jsonl", "{\"event_id\":1}\n{\"event_id\":3}\n");
    memory.merge(&who(), child, MergeVerb::Pull, false).unwrap();
    memory.commit(&who(), child, vec![record("r6", 82)]).unwrap();
    let terms = MergeOptions { note: "half of it".into(), ..MergeOptions::default() };
    memory.merge_with(&who(), child, MergeVerb::Promote, terms).unwrap();
    memory.commit(&who(), child, vec![record("r2", 83)]).unwrap();
    memory.commit(&who(), main, vec![record("r2", 92)]).unwrap();
    memory.set(&who(), main, Setting::Strategy, "manual").unwrap();
    let refused = memory.merge(&who(), child, MergeVerb::Merge, false).unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict);
    memory.resolve_conflict(&who(), child, "r2", Side::Parent).unwrap();
    memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
}

/// Something that leaked goes.
pub fn purge(memory: &Memory) {
    let main = main_of(memory);
    memory.commit(&who(), main, vec![record("leak", 5)]).unwrap();
    memory.checkpoint(&who(), main, "leaked", None).unwrap();
    memory.purge(&who(), main, &["leak".into()], PurgeOptions::default()).unwrap();
    memory.delete_checkpoint(&who(), main, "leaked").unwrap();
}

/// Texts are embedded.
pub fn embed(memory: &Arc<Memory>) {
    memory.commit(&who(), main_of(memory), vec![put("plain", None, Some("a text alone"))]).unwrap();
    memory.set_embedder(None, Box::new(Lengths));
    memory.wait_until_embedded();
}

/// The older half of the entries moves out.
pub fn archive(memory: &Memory) {
    let half = memory.show(main_of(memory), ShowTarget::Entry(memory.last_seq() / 2), Viewer::UNRESTRICTED).unwrap();
    let half: serde_json::Value = serde_json::from_str(&half.line).unwrap();
    let before = Revision::parse(half["time"].as_str().unwrap()).unwrap();
    let report = memory.archive_lineage(&who(), &before, false).unwrap();
    assert!(report["entries"].as_u64().unwrap() > 0, "{report}");
}

/// Entries of two logs, of which one is closed, and cursors.
fn logs(memory: &Memory, main: BranchId) {
    let entry = |line: &str| SharedLogEntryInput::parse(line).unwrap();
    let with_all = r#"{"text":"all of it","kind":"note","event_id":"e","vector":[1,2,3],"metadata":{"a":1}}"#;
    let many = (0..130).map(|n| entry(&format!("line {n}"))).chain([entry(with_all)]);
    memory.append_log(&who(), main, &many.collect::<Vec<_>>()).unwrap();
    let case = memory.fork(&who(), main, "case", None).unwrap();
    memory.set(&who(), case, Setting::Log, "own").unwrap();
    memory.append_log(&who(), case, &[entry("of the case")]).unwrap();
    memory.move_cursor(&who(), case, 1).unwrap();
    memory.discard(&who(), case).unwrap();
    memory.archive_log(&who(), main, 70).unwrap();
    let read = CommitOptions { cursor: Some(100), ..CommitOptions::default() };
    memory.commit_with(&who(), main, vec![record("read", 1)], &read).unwrap();
}

/// Signals of all kinds, a lease that was lost and one that is held, names of agents.
fn blackboard(memory: &Memory, main: BranchId) {
    let lease = memory.hold_lease(&who(), main).unwrap();
    let key = |text: &str| Arc::<str>::from(text);
    for (name, lifetime) in [("stays", ""), ("ends", "1h"), ("lease", "lease"), ("goes", "")] {
        let signal = memory.claim_signal(&who(), main, &key(name), 0o640).unwrap();
        let key = key(name);
        let id = SignalId { key: &key, created: signal.created };
        memory.write_signal(&who(), main, id, b"value").unwrap();
        memory.set_signal_lifetime(&who(), main, id, lifetime).unwrap();
    }
    memory.remove_signal(&who(), main, &key("goes")).unwrap();
    memory.rename_signal(&who(), main, (&key("ends"), &key("ended")), true).unwrap();
    let before = memory.last_seq();
    drop(lease);
    while memory.last_seq() == before {
        std::thread::yield_now();
    }
    // It is held when the process ends.
    std::mem::forget(memory.hold_lease(&who(), main).unwrap());
    memory.set_agent_name(&who(), main, "rogue", true).unwrap();
    memory.set_agent_name(&who(), main, "rogue", false).unwrap();
    memory.set_agent_name(&who(), main, "barred", true).unwrap();
}

/// What a root branch had in the store that it comes from.
fn imports(memory: &Memory) {
    let cases = memory.create_root(&who(), "cases").unwrap();
    memory.import_settings(&who(), cases, &[(Setting::Task, "taken over".into())], true).unwrap();
    let names = [("ann".into(), Some(1000)), ("rogue".into(), None)].into();
    memory.import_agents(&who(), cases, &names).unwrap();
    memory.import_log(&who(), cases).unwrap().finish_closed(0, "case@7").unwrap();
    memory.append_log(&who(), cases, &[SharedLogEntryInput::parse("goes on").unwrap()]).unwrap();
    // Longer than any later build will be away.
    let options = ForkOptions { ttl: Some("36500d"), ..ForkOptions::default() };
    let child = memory.fork_with(&who(), cases, "child", options).unwrap();
    memory.import_log_at_base(&who(), child, 1).unwrap();
}

/// A proposal that was approved and one that was taken back.
fn proposals(memory: &Memory, main: BranchId) {
    let approver = Actor { uid: 4242, ..who() };
    memory.set(&who(), main, Setting::Approvers, "uid:4242").unwrap();
    let [stays, goes] = ["proposes", "withdraws"].map(|name| memory.fork(&who(), main, name, None).unwrap());
    memory.commit(&who(), stays, vec![record("proposed", 3)]).unwrap();
    write(memory, stays, "proposed.md", "as it was proposed\n");
    memory.propose(&who(), stays, "please").unwrap();
    let plan = memory.dry_run(&who(), stays, MergeVerb::Merge, None).unwrap().plan;
    let review = |approves| ReviewRequest { name: "proposes", plan, approves, text: "read it" };
    memory.review(&approver, main, review(false)).unwrap();
    memory.review(&approver, main, review(true)).unwrap();
    memory.propose(&who(), goes, "").unwrap();
    memory.withdraw(&who(), goes).unwrap();
}

fn settings(memory: &Memory, main: BranchId) {
    memory.set(&who(), main, Setting::Agent, "planner").unwrap();
    memory.set(&who(), main, Setting::Strategy, "newest-wins").unwrap();
    memory.chmod(&who(), main, 0o750).unwrap();
    let root = Actor { uid: 0, ..who() };
    memory.chown(&root, main, 1001).unwrap();
    memory.chown(&root, main, who().uid).unwrap();
}
