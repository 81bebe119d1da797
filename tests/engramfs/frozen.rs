//! Stores to be frozen: another build opens, verifies and reads them, and gets the heads that were recorded.
//!
//! `scripts/freeze.sh VERSION` writes those of a version to `tests/data/stores/VERSION/`. They may be written again until the
//! version is tagged; from then on every build opens them.

mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engramfs::disk::{Disk, RealDisk};
use engramfs::journal::{FrameKind, JournalError, JournalFiles};
use engramfs::lineage::SIGNATURE_BYTES;
use engramfs::memory::{FILES_ROOT, Memory, MergeVerb, OpenMode, Tree, VerifyOptions, View, verify_on};
use serde_json::{Value, json};

use crate::story::{each_branch, picture};
use crate::support::{environment, main_of, put, who};

/// How the process that wrote a store left it.
const STORES: [&str; 3] = ["closed", "killed", "unsealed"];

/// Copies a store with the modes that it must have, which git does not keep.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// What is in a store, as a later build must find it.
fn content(memory: &Memory) -> Value {
    let heads: BTreeMap<String, Value> = picture(memory)
        .into_iter()
        .map(|(view, (head, records))| (view, json!({ "head": head.to_string(), "records": records })))
        .collect();
    let (mut records, mut files) = (BTreeMap::new(), BTreeMap::new());
    each_branch(memory, &mut |id| {
        let path = memory.info(id).unwrap().path.to_string();
        records.insert(path.clone(), stamps(memory, id));
        files.insert(path, paths(memory, id));
    });
    let (log, cursor) = (memory.shared_log(main_of(memory)).unwrap(), memory.cursor(main_of(memory)).unwrap());
    let closed: Vec<String> =
        memory.closed_logs(main_of(memory)).unwrap().iter().map(|name| name.to_string()).collect();
    let lines = String::from_utf8(log.lines_after(log.entry_count() - 2, 2).unwrap()).unwrap();
    let log = json!({ "entries": log.entry_count(), "bytes": log.bytes(), "last": lines, "cursor": cursor, "closed": closed });
    let signal = |key: &str| {
        let signal = memory.signal(main_of(memory), key).unwrap();
        signal.map(|it| format!("{} {:o} {:?} {:?}", it.owner, it.mode, it.lifetime_text(), it.value))
    };
    let signals = json!({ "stays": signal("stays"), "goes": signal("goes"), "lease": signal("lease") });
    let tip = memory.tip().to_string();
    json!({ "tip": tip, "heads": heads, "records": records, "files": files, "log": log, "signals": signals })
}

/// The number of records, and of some of them when they were made and changed. All documents are read.
fn stamps(memory: &Memory, branch: engramfs::memory::BranchId) -> BTreeMap<String, String> {
    let snapshot = memory.snapshot(&View::Branch(branch)).unwrap();
    let ids = snapshot.ids_after(None, usize::MAX).unwrap();
    let stamp = |id: &Arc<str>| {
        let record = snapshot.get(id).unwrap().unwrap();
        assert!(!record.to_document().is_empty());
        (id.to_string(), format!("{} {}", record.created(), record.modified()))
    };
    ids.iter().map(stamp).filter(|(id, _)| !id.starts_with("bulk-")).collect()
}

/// Each path with its size and the last bytes of its content. All contents are read.
fn paths(memory: &Memory, branch: engramfs::memory::BranchId) -> BTreeMap<String, String> {
    let tree = memory.files(&View::Branch(branch)).unwrap();
    let mut found = BTreeMap::new();
    collect(memory, &tree, FILES_ROOT, "", &mut found);
    found
}

fn collect(memory: &Memory, tree: &Tree, folder: u64, above: &str, found: &mut BTreeMap<String, String>) {
    for (name, inode) in tree.entries(folder, None).unwrap() {
        let path = format!("{above}/{}", String::from_utf8_lossy(name));
        if tree.entries(inode, None).is_ok() {
            collect(memory, tree, inode, &path, found);
            found.insert(path, "folder".into());
        } else {
            let bytes = tree.read(inode, 0, usize::MAX >> 1, memory.packs()).unwrap_or_default();
            let last = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(20)..]).into_owned();
            found.insert(path, format!("{} {last:?}", bytes.len()));
        }
    }
}

/// Writes the three stores and what is in them.
fn write(folder: &Path) {
    for name in STORES {
        let (work, target) = (tempfile::tempdir().unwrap(), folder.join(name));
        let memory = history::open(&RealDisk::new(work.path()));
        if name != "unsealed" {
            history::full_disk(&memory);
        }
        history::run(&memory, |memory| {
            if name != "unsealed" {
                memory.seal().unwrap();
                history::purge(memory);
            }
            if name == "closed" {
                history::archive(memory);
            }
        });
        if name != "unsealed" {
            history::embed(&memory);
        }
        if name == "closed" {
            memory.close().unwrap();
        }
        let expected = content(&memory);
        // Copied at work, as a process that is killed leaves it.
        copy(work.path(), &target.join("store"));
        fs::write(target.join("store/lock"), "").unwrap();
        fs::write(target.join("content.json"), serde_json::to_string_pretty(&expected).unwrap() + "\n").unwrap();
    }
}

/// Checks a store against what the build that wrote it recorded, and goes on with it.
fn check(frozen: &Path) {
    let work = tempfile::tempdir().unwrap();
    let place = work.path().join("store");
    copy(&frozen.join("store"), &place);
    let expected: Value = serde_json::from_slice(&fs::read(frozen.join("content.json")).unwrap()).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&place));
    let verified = verify_on(&disk, &VerifyOptions::default()).unwrap_or_else(|error| panic!("{frozen:?}: {error}"));
    assert_eq!(verified["tip"], expected["tip"], "{frozen:?}");
    let memory = Memory::open_on(disk.clone(), OpenMode::ReadOnly, None, environment()).unwrap();
    assert_eq!(content(&memory), expected, "{frozen:?}");
    drop(memory);
    let memory = Memory::open_on(disk.clone(), OpenMode::Existing, None, environment()).unwrap();
    assert_eq!(content(&memory)["heads"], expected["heads"], "{frozen:?}, opened for writing");
    let branch = memory.fork(&who(), main_of(&memory), "later", None).unwrap();
    memory.commit(&who(), branch, vec![put("later", Some(vec![1.0, 2.0, 3.0]), Some("of a later build"))]).unwrap();
    memory.merge(&who(), branch, MergeVerb::Merge, false).unwrap();
    memory.close().unwrap();
    verify_on(&disk, &VerifyOptions::default()).unwrap_or_else(|error| panic!("{frozen:?}, gone on with: {error}"));
}

#[test]
fn stores_of_every_version_open_verify_and_read() {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stores");
    let versions: Vec<PathBuf> = fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!versions.is_empty());
    for (version, name) in versions.iter().flat_map(|version| STORES.map(|name| (version, name))) {
        check(&version.join(name));
    }
}

/// With `ENGRAMFS_FREEZE` the stores stay in that folder.
#[test]
fn stores_of_this_build_hold_every_code_and_read_as_frozen_ones_must() {
    let work = tempfile::tempdir().unwrap();
    let folder = std::env::var_os("ENGRAMFS_FREEZE").map_or(work.path().to_owned(), PathBuf::from);
    write(&folder);
    STORES.iter().for_each(|name| check(&folder.join(name)));
    let (mut log_records, mut operations) = codes(&folder.join("unsealed/store"));
    // A drop concerns a file without a name: it stands in patches of merges alone.
    operations.insert(12);
    // The journal file with the record of an archive or a purge goes before that returns; with an embedder, and on a full
    // disk, seals come by themselves.
    log_records.extend([22, 23, 25, 27]);
    assert_eq!(log_records, documented("Log records"), "log records");
    assert_eq!(operations, documented("Operations on files"), "operations on files");
}

/// The codes of log records and of operations on files in a journal.
fn codes(store: &Path) -> (BTreeSet<u8>, BTreeSet<u8>) {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(store));
    let (mut log_records, mut operations) = (BTreeSet::new(), BTreeSet::new());
    let each = |frame: engramfs::journal::Frame<'_>| -> Result<bool, JournalError> {
        match frame.kind {
            FrameKind::Command => drop(log_records.insert(frame.payload[SIGNATURE_BYTES])),
            FrameKind::FileOp => {
                let mut input = engramfs::object::Reader::new(&frame.payload[32..]);
                let head = (input.number(), input.signed(), input.number());
                assert!(matches!(head, (Ok(_), Ok(_), Ok(_))));
                operations.insert(input.byte().unwrap());
            }
            // A long write.
            FrameKind::Content => drop(operations.insert(7)),
            _ => {}
        }
        Ok(true)
    };
    JournalFiles::list(&disk, 1).unwrap().replay(false, each).unwrap();
    (log_records, operations)
}

/// The codes in the first table of a section of FORMAT.md.
fn documented(section: &str) -> BTreeSet<u8> {
    let format = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/FORMAT.md")).unwrap();
    let (_, rest) = format.split_once(&format!("\n### {section}\n")).unwrap();
    let rows = rest.split("\n#").next().unwrap().lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(" | ").next())
        .flat_map(|codes| codes.split(", ").filter_map(|code| code.parse().ok()).collect::<Vec<u8>>())
        .collect()
}
