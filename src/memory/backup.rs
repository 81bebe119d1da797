//! A consistent copy of a store, also while it is in use.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::maintenance::unfinished_purge;
use super::open::dir_entry_exists;
use super::store_path::{check_outside, is_store};
use super::transaction::contents::has_whole_content;
use super::unfinished_store::UnfinishedStore;
use super::verify::{VerifyOptions, verify};
use super::{CopyError, Error};
use crate::disk::{Disk, RealDisk};
use crate::journal::{Journal, JournalError, JournalFiles};
use crate::object::TEMP_PREFIX;

/// Copies that are tried, the first one among them; one is worthless once a seal came in between.
const COPY_ATTEMPTS_MAX: usize = 20;

/// Copies the store at `store` to `dest`, which must not exist or be an empty folder. The store may be in use. Returns
/// the number of `bytes`, the `tip` and the number of `entries`.
///
/// Segments never change, the manifest is replaced as a whole, and the journal only grows. So a copy of the manifest
/// first, then of the files it names, then of the journal, is a state that the store really had. If a seal comes in
/// between, the copy starts again. It is verified at the end, and holds the signing key.
///
/// Kind `NotFound` if there is no store, `Exists` if something is in `dest`, `Invalid` for a place within a store,
/// `Busy` if a seal came during each of 20 tries. Otherwise fails like [`verify`]. What it has made is removed after any failure.
pub fn backup(store: &Path, dest: &Path) -> Result<Value, Error> {
    let (bytes, verified) = copy_verified(store, dest)?;
    Ok(json!({ "bytes": bytes, "tip": verified["tip"], "entries": verified["entries"] }))
}

/// Makes a store in the folder `store`, which must not exist or be empty, out of the copy `backup`, which is verified
/// first and stays unchanged.
///
/// Every file is durable when this returns, with the permission bits it needs. Fails like [`backup`].
pub fn restore(backup: &Path, store: &Path) -> Result<Value, Error> {
    check_paths(backup, store)?;
    verify(backup, &VerifyOptions::default())?;
    let (bytes, verified) = copy_verified(backup, store)?;
    Ok(json!({
        "store": store.to_string_lossy(), "bytes": bytes, "branches": verified["branches"], "tip": verified["tip"],
        "entries": verified["entries"],
    }))
}

/// Returns how many bytes were copied, and what the check of the copy says.
fn copy_verified(store: &Path, dest: &Path) -> Result<(u64, Value), Error> {
    check_paths(store, dest)?;
    let (mut is_ours, unfinished) = (false, UnfinishedStore::new(dest));
    let copied = copy_until_unchanged(store, dest, &unfinished, &mut is_ours);
    if copied.is_err() {
        if is_ours {
            // What can't be removed stays, and the place is refused as not empty.
            let _ = unfinished.remove_content();
        }
        unfinished.remove_folders();
    }
    copied
}

fn copy_until_unchanged(
    store: &Path,
    dest: &Path,
    unfinished: &UnfinishedStore,
    is_ours: &mut bool,
) -> Result<(u64, Value), Error> {
    for _ in 0..COPY_ATTEMPTS_MAX {
        let copied = copy(&RealDisk::new(store), dest, is_ours);
        if let Some(bytes) = copied.map_err(|error| Error::io("the store could not be copied", error))? {
            return Ok((bytes, verify(dest, &VerifyOptions::default())?));
        }
        let removed = unfinished.remove_content();
        removed.map_err(|error| Error::io("an unfinished copy could not be removed", error))?;
    }
    Err(CopyError::Busy.into())
}

/// Refuses anything but a store, and a place for a copy that is not free.
fn check_paths(store: &Path, dest: &Path) -> Result<(), Error> {
    if !dir_entry_exists(store, "format")? {
        return Err(CopyError::Missing(store.to_owned()).into());
    }
    let holds_something = fs::read_dir(dest).is_ok_and(|mut entries| entries.next().is_some());
    if !is_store(dest) {
        // Before anything is made: a folder within a store would be a file that its check does not know.
        check_outside(dest, Some(store))?;
    }
    if holds_something {
        return Err(CopyError::NotEmpty(dest.to_owned()).into());
    }
    Ok(())
}

/// Copies once; `None` if the manifest changed meanwhile, or a file that was listed is gone. `is_ours` tells whether what is in
/// `dest` by then is of this copy.
fn copy(store: &RealDisk, dest: &Path, is_ours: &mut bool) -> io::Result<Option<u64>> {
    let copy = RealDisk::new(dest);
    copy.create_dir("")?;
    // The copy holds the signing key, so nobody else may read it, whatever the umask lets through.
    fs::set_permissions(dest, PermissionsExt::from_mode(0o700))?;
    // Of several copies to one place, the one that makes this file has it.
    let format = store.copy("format", &copy);
    *is_ours = !format.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
    let mut bytes = format?;
    for folder in ["journal", "segments"] {
        copy.create_dir(folder)?;
    }
    for name in ["key", "key.pub", "manifest"] {
        bytes += store.copy(name, &copy)?;
    }
    for folder in ["journal", "segments"] {
        // The newest journal file first: what is written to the one before it precedes all that is copied of it.
        for name in store.list(folder)?.into_iter().rev() {
            // It is still being written, and nothing names it.
            if name.starts_with(TEMP_PREFIX) {
                continue;
            }
            match store.copy(&format!("{folder}/{name}"), &copy) {
                Ok(copied) => bytes += copied,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
    // After the journal, so that an opening of the copy goes on with a purge whose entry it has. One that ended meanwhile has
    // changed the manifest.
    match store.copy(unfinished_purge::PATH, &copy) {
        Ok(copied) => bytes += copied,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Last, since a seal removes files only once it has renamed its manifest: the same one means that all were there.
    if read_file(store, "manifest")? != read_file(&copy, "manifest")? {
        return Ok(None);
    }
    cut_to_whole_frames(dest)?;
    for folder in ["journal", "segments", ""] {
        copy.sync_dir(folder)?;
    }
    Ok(Some(bytes))
}

fn read_file(disk: &RealDisk, path: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Cuts a frame that was being written while the journal was copied.
fn cut_to_whole_frames(dest: &Path) -> io::Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(dest));
    let names = disk.list("journal")?;
    let Some(first) = names.iter().filter_map(|name| Journal::parse_file_name(name)).min() else { return Ok(()) };
    let cut = || -> Result<(), JournalError> {
        let files =
            JournalFiles::list(&disk, first)?.replay::<JournalError>(true, |frame| Ok(has_whole_content(&frame)))?;
        // Whatever else is there, the check of the copy says what is wrong with it.
        if files.torn_tail().is_none_or(|torn| torn.cut_short) { files.resume(&disk).map(drop) } else { Ok(()) }
    };
    cut().map_err(io::Error::other)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::super::Kind;
    use super::*;
    use crate::memory::{Actor, Environment, Memory, OpenMode, RecordEdit, RecordInput, Revision, View};

    fn store_in(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("store");
        let owner = Actor { uid: 1, gid: 1, name: "ann".into() };
        Memory::open(&path, OpenMode::Create, "a test", Environment::real(owner)).unwrap().close().unwrap();
        path
    }

    /// As of one that is mounted: another process has it open, holds its lock and goes on writing.
    #[test]
    fn a_copy_of_a_store_in_use_is_what_it_was_at_one_moment() {
        let dir = tempfile::tempdir().unwrap();
        let store = store_in(dir.path());
        let owner = Actor { uid: 1, gid: 1, name: "ann".into() };
        let open = |path: &Path, mode| Memory::open(path, mode, "a test", Environment::real(owner.clone())).unwrap();
        let memory = open(&store, OpenMode::Existing);
        let main = memory.root("main").unwrap();
        let put = |n: u64| {
            let input = RecordInput { vector: None, text: Some("a text".into()), metadata: "{}".into() };
            memory.commit(&owner, main, vec![RecordEdit::Put { id: format!("r{n}").into(), input }]).unwrap();
        };
        (0..10).for_each(&put);
        memory.seal().unwrap();
        (10..20).for_each(&put);
        let (written, is_over) = (AtomicU64::new(20), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The end is for a test that fails.
                for n in 20..10_000 {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    put(n);
                    written.store(n + 1, Ordering::SeqCst);
                }
            });
            for round in 0..3 {
                let dest = dir.path().join(format!("copy-{round}"));
                let before = written.load(Ordering::SeqCst);
                backup(&store, &dest).unwrap();
                // One more may be written and not be counted yet.
                let after = written.load(Ordering::SeqCst) + 1;
                let copy = open(&dest, OpenMode::ReadOnly);
                let records = copy.status(&View::Branch(main)).unwrap()["records"].as_u64().unwrap();
                assert!((before..=after).contains(&records), "{before} {records} {after}");
                let snapshot = copy.snapshot(&View::Branch(main)).unwrap();
                assert!((0..records).all(|n| snapshot.get(&format!("r{n}")).unwrap().is_some()), "{records}");
            }
            is_over.store(true, Ordering::SeqCst);
        });
        memory.close().unwrap();
    }

    #[test]
    fn a_place_in_a_store_is_refused_by_whatever_path() {
        let dir = tempfile::tempdir().unwrap();
        let (store, other) = (store_in(dir.path()), dir.path().join("beside"));
        fs::create_dir(&other).unwrap();
        let other = store_in(&other);
        std::os::unix::fs::symlink(store.join("journal"), dir.path().join("link")).unwrap();
        let inside = [
            store.join("sub"),
            store.join("sub/deep"),
            store.join("segments"),
            other.join("sub"),
            dir.path().join("link/sub"),
            dir.path().join("beside/../store/sub"),
        ];
        for dest in inside {
            let error = backup(&store, &dest).unwrap_err();
            assert_eq!((error.kind(), error.code()), (Kind::Invalid, "inside_a_store"), "{}: {error}", dest.display());
        }
        let error = backup(&store, &dir.path().join("none/../store/sub")).unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Invalid, "leads_back"), "{error}");
        assert!(!dir.path().join("none").exists());
        verify(&store, &VerifyOptions::default()).unwrap();
        backup(&store, &dir.path().join("new/copy")).unwrap();
        for used in ["new/copy", "new"] {
            let error = backup(&store, &dir.path().join(used)).unwrap_err();
            assert_eq!((error.kind(), error.code()), (Kind::Exists, "exists"), "{used}: {error}");
        }
    }

    #[test]
    fn a_copy_that_is_begun_again_leaves_nothing_of_the_one_before_also_behind_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (store, real, link) = (store_in(dir.path()), dir.path().join("real"), dir.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let (unfinished, mut is_ours) = (UnfinishedStore::new(&link), false);
        copy(&RealDisk::new(&store), &link, &mut is_ours).unwrap().unwrap();
        assert!(is_ours && real.join("key").exists() && real.join("journal").is_dir());
        let error = copy(&RealDisk::new(&store), &link, &mut is_ours).unwrap_err();
        assert!(!is_ours && error.kind() == io::ErrorKind::AlreadyExists, "{error}");
        unfinished.remove_content().unwrap();
        assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
        backup(&store, &link).unwrap();
        verify(&real, &VerifyOptions::default()).unwrap();
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing_and_can_be_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (store, new, empty) = (store_in(dir.path()), dir.path().join("new/copy"), dir.path().join("empty"));
        fs::create_dir(&empty).unwrap();
        // Nothing else of it can be read after the journal.
        let (segments, kept) = (store.join("segments"), dir.path().join("kept"));
        fs::rename(&segments, &kept).unwrap();
        fs::write(&segments, "").unwrap();
        for dest in [&new, &empty] {
            assert_eq!(backup(&store, dest).unwrap_err().kind(), Kind::Damaged);
        }
        assert!(!dir.path().join("new").exists() && fs::read_dir(&empty).unwrap().count() == 0);
        fs::remove_file(&segments).unwrap();
        fs::rename(&kept, &segments).unwrap();
        for dest in [&new, &empty] {
            backup(&store, dest).unwrap();
        }
        // A copy that does not pass its check is none.
        fs::write(new.join("notes"), "foreign").unwrap();
        fs::write(store.join("journal/notes"), "foreign").unwrap();
        let other = dir.path().join("other");
        assert_eq!(backup(&store, &other).unwrap_err().kind(), Kind::Damaged);
        assert!(!other.exists() && new.join("notes").exists());
    }

    #[test]
    fn a_purge_that_is_not_finished_goes_into_the_copy() {
        use crate::memory::maintenance::unfinished_purge::UnfinishedPurge;
        let dir = tempfile::tempdir().unwrap();
        let (store, dest) = (store_in(dir.path()), dir.path().join("copy"));
        let mark = UnfinishedPurge { before: 1, segments: [crate::object::Hash([7; 32])].into(), quotes: Vec::new() };
        mark.save(&RealDisk::new(&store)).unwrap();
        backup(&store, &dest).unwrap();
        assert_eq!(UnfinishedPurge::read(&RealDisk::new(&dest)).unwrap(), Some(mark));
    }

    #[test]
    fn a_copy_has_no_file_of_archived_entries() {
        let dir = tempfile::tempdir().unwrap();
        let (store, dest) = (store_in(dir.path()), dir.path().join("copy"));
        let owner = Actor { uid: 1, gid: 1, name: "ann".into() };
        let memory = Memory::open(&store, OpenMode::Existing, "a test", Environment::real(owner.clone())).unwrap();
        let main = memory.root("main").unwrap();
        memory.checkpoint(&owner, main, "v1", None).unwrap();
        let newest = memory.lineage_lines(main, false).unwrap().pop().unwrap();
        let newest: Value = serde_json::from_str(&newest).unwrap();
        let before = Revision::parse(newest["time"].as_str().unwrap()).unwrap();
        let report = memory.archive_lineage(&owner, &before, false).unwrap();
        memory.close().unwrap();
        drop(memory);
        assert!(store.join(report["file"].as_str().unwrap()).exists(), "a control: {report}");
        backup(&store, &dest).unwrap();
        assert!(!dest.join("archive").exists());
    }

    #[test]
    fn a_batch_that_has_its_name_still_is_no_damage() {
        let dir = tempfile::tempdir().unwrap();
        let store = store_in(dir.path());
        fs::write(store.join("spill-0"), "half a batch").unwrap();
        verify(&store, &VerifyOptions::default()).unwrap();
        backup(&store, &dir.path().join("copy")).unwrap();
        assert!(!dir.path().join("copy/spill-0").exists());
    }

    #[test]
    fn a_special_file_is_named_and_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let store = store_in(dir.path());
        let journal = RealDisk::new(&store).list("journal").unwrap().remove(0);
        for name in ["format", "key", "key.pub", "manifest", &format!("journal/{journal}"), "journal", "segments"] {
            let (path, kept) = (store.join(name), dir.path().join("kept"));
            fs::rename(&path, &kept).unwrap();
            for found in ["a FIFO", "a symbolic link"] {
                if found == "a FIFO" {
                    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
                } else {
                    std::os::unix::fs::symlink(&kept, &path).unwrap();
                }
                let environment = || Environment::real(Actor { uid: 1, gid: 1, name: "ann".into() });
                let open = |mode| Memory::open(&store, mode, "a test", environment()).map(drop);
                let errors = [
                    verify(&store, &VerifyOptions::default()).map(drop),
                    backup(&store, &dir.path().join("copy")).map(drop),
                    open(OpenMode::Existing),
                    open(OpenMode::Create),
                    open(OpenMode::ReadOnly),
                ];
                for (at, outcome) in errors.into_iter().enumerate() {
                    let error = outcome.expect_err(&format!("{name} as {found}, {at}"));
                    assert_eq!(error.kind(), Kind::Damaged, "{name}: {error}");
                    assert!(error.to_string().contains(&format!("{name} is {found} and not a")), "{name}: {error}");
                }
                fs::remove_dir_all(dir.path().join("copy")).unwrap_or_default();
                fs::remove_file(&path).unwrap();
            }
            fs::rename(&kept, &path).unwrap();
        }
        verify(&store, &VerifyOptions::default()).unwrap();
    }
}
