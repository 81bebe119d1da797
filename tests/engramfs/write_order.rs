//! The order in which a store writes, flushes, names and removes its files, call by call.

use std::io;
use std::sync::{Arc, Mutex};

use engramfs::disk::{Disk, DiskCall, DiskFile, DiskSpace, Fault, FaultyDisk, ForgetfulDisk, Mapped};
use engramfs::journal::Journal;
use engramfs::memory::Memory;

use crate::support::{main_of, open_on, put, who};

/// A call that changes the disk, with the path that it was made for; for a rename that is the new name.
type Call = (DiskCall, String);

/// A disk that notes each call that changes it, also one that fails; clones share the notes.
#[derive(Clone)]
struct TracedDisk {
    inner: FaultyDisk<ForgetfulDisk>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl TracedDisk {
    fn note(&self, call: DiskCall, path: &str) {
        self.calls.lock().unwrap().push((call, path.to_owned()));
    }

    /// Returns the calls since the last time this was asked.
    fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    fn file(&self, path: &str, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(TracedFile { disk: self.clone(), path: path.to_owned(), inner })
    }
}

impl Disk for TracedDisk {
    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.note(DiskCall::Create, path);
        Ok(self.file(path, self.inner.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.inner.open(path)
    }

    fn open_write(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(path, self.inner.open_write(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.note(DiskCall::Rename, to);
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.note(DiskCall::Remove, path);
        self.inner.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.note(DiskCall::SyncDir, path);
        self.inner.sync_dir(path)
    }

    fn mode(&self, path: &str) -> io::Result<u32> {
        self.inner.mode(path)
    }

    fn space(&self) -> io::Result<DiskSpace> {
        self.inner.space()
    }
}

/// A file with the path under which it was opened, which it may have lost by a rename.
struct TracedFile {
    disk: TracedDisk,
    path: String,
    inner: Box<dyn DiskFile>,
}

impl DiskFile for TracedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.disk.note(DiskCall::Write, &self.path);
        self.inner.write_all_at(buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.note(DiskCall::SetLen, &self.path);
        self.inner.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.disk.note(DiskCall::Write, &self.path);
        self.inner.allocate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.note(DiskCall::Sync, &self.path);
        self.inner.sync()
    }

    fn map(&self) -> io::Result<Mapped> {
        self.inner.map()
    }
}

/// A new store on a disk that has noted nothing yet.
fn traced() -> (TracedDisk, Arc<Memory>) {
    let disk = TracedDisk { inner: FaultyDisk::new(ForgetfulDisk::new()), calls: Arc::default() };
    let memory = open_on(Arc::new(disk.clone())).unwrap();
    disk.take();
    (disk, memory)
}

/// Returns the places of such calls among all; a path that ends in `/` stands for all in that folder.
fn places(calls: &[Call], call: DiskCall, path: &str) -> Vec<usize> {
    let is_path = |other: &str| other == path || (path.ends_with('/') && other.starts_with(path));
    let same = calls.iter().enumerate().filter(|(_, (kind, other))| *kind == call && is_path(other));
    same.map(|(place, _)| place).collect()
}

fn first(calls: &[Call], call: DiskCall, path: &str) -> usize {
    let found = places(calls, call, path).first().copied();
    found.unwrap_or_else(|| panic!("no {call:?} of {path:?}: {calls:#?}"))
}

fn last(calls: &[Call], call: DiskCall, path: &str) -> usize {
    let found = places(calls, call, path).last().copied();
    found.unwrap_or_else(|| panic!("no {call:?} of {path:?}: {calls:#?}"))
}

/// Returns the place of the first such call behind another place.
fn next(calls: &[Call], from: usize, call: DiskCall, path: &str) -> usize {
    let found = places(calls, call, path).into_iter().find(|place| *place > from);
    found.unwrap_or_else(|| panic!("no {call:?} of {path:?} behind call {from}: {calls:#?}"))
}

#[test]
fn a_frame_follows_the_segment_that_it_names() {
    let (disk, memory) = traced();
    let edits = (0..1_100).map(|n| put(&format!("r{n}"), None, Some("text"))).collect();
    memory.commit(&who(), main_of(&memory), edits).unwrap();
    let calls = disk.take();
    let is_named = next(&calls, last(&calls, DiskCall::Rename, "segments/"), DiskCall::SyncDir, "segments");
    assert!(is_named < first(&calls, DiskCall::Write, "journal/"), "{calls:#?}");
}

#[test]
fn a_half_written_frame_is_cut_before_another_follows() {
    let (disk, memory) = traced();
    let commit = || memory.commit(&who(), main_of(&memory), vec![put("a", None, Some("text"))]);
    disk.inner.plan(Fault { short_write: true, ..Fault::once(1, &[DiskCall::Write], libc::EIO) });
    assert!(commit().is_err());
    disk.inner.clear();
    commit().unwrap();
    let calls = disk.take();
    let written = places(&calls, DiskCall::Write, "journal/");
    let cut = next(&calls, written[0], DiskCall::SetLen, "journal/");
    assert!(cut < written[1], "{calls:#?}");
}

#[test]
fn a_new_journal_file_has_its_header_before_its_name_and_its_name_before_a_frame() {
    let (disk, memory) = traced();
    memory.commit(&who(), main_of(&memory), vec![put("a", None, Some("text"))]).unwrap();
    memory.seal().unwrap();
    let (calls, new) = (disk.take(), Journal::file_path(2));
    let written = places(&calls, DiskCall::Write, &new);
    let flushed = next(&calls, written[0], DiskCall::Sync, &new);
    let named = next(&calls, flushed, DiskCall::SyncDir, "journal");
    assert!(named < written[1], "{calls:#?}");
}

#[test]
fn a_seal_makes_the_manifest_durable_after_all_that_it_names() {
    let (disk, memory) = traced();
    memory.commit(&who(), main_of(&memory), vec![put("a", None, Some("text"))]).unwrap();
    memory.seal().unwrap();
    let (calls, old, new) = (disk.take(), Journal::file_path(1), Journal::file_path(2));
    let begun = places(&calls, DiskCall::Write, &new)[1];
    let old_is_flushed = next(&calls, begun, DiskCall::Sync, &old);
    assert!(last(&calls, DiskCall::Write, &old) < old_is_flushed, "{calls:#?}");
    assert!(old_is_flushed < first(&calls, DiskCall::Create, "segments/"), "{calls:#?}");
    let are_named = next(&calls, last(&calls, DiskCall::Rename, "segments/"), DiskCall::SyncDir, "segments");
    let made = first(&calls, DiskCall::Create, "manifest.new");
    assert!(are_named < made, "{calls:#?}");
    let written = next(&calls, made, DiskCall::Write, "manifest.new");
    let flushed = next(&calls, written, DiskCall::Sync, "manifest.new");
    let renamed = first(&calls, DiskCall::Rename, "manifest");
    assert!(flushed < renamed, "{calls:#?}");
    next(&calls, renamed, DiskCall::SyncDir, "");
}

#[test]
fn nothing_is_removed_before_a_manifest_that_does_not_name_it_is_durable() {
    let (disk, memory) = traced();
    let fork = memory.fork(&who(), main_of(&memory), "x", None).unwrap();
    memory.commit(&who(), fork, vec![put("a", None, Some("text"))]).unwrap();
    memory.seal().unwrap();
    let seal = disk.take();
    memory.discard(&who(), fork).unwrap();
    let collections = [(); 2].map(|()| {
        memory.gc(&who(), None, false).unwrap();
        disk.take()
    });
    let mut removed = [0, 0];
    for calls in collections.into_iter().chain([seal]) {
        // Each of them writes a manifest: what the one before names may go only after that.
        let mut is_durable = false;
        let renamed = first(&calls, DiskCall::Rename, "manifest");
        for (place, (call, path)) in calls.iter().enumerate() {
            is_durable |= place > renamed && *call == DiskCall::SyncDir && path.is_empty();
            let folder = path.split_once('/').map_or("", |(folder, _)| folder);
            if *call == DiskCall::Remove && ["journal", "segments"].contains(&folder) {
                assert!(is_durable, "{path} is removed too early: {calls:#?}");
                removed[usize::from(folder == "segments")] += 1;
            }
        }
    }
    assert!(removed.iter().all(|count| *count > 0), "journal files and others: {removed:?}");
}
