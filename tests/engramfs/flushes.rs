//! Which files the built program flushes to the device, as strace sees it.
//!
//! All other tests of power cuts run on a disk that is simulated; here the real one has to make the system calls.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mount::{Site, command, engramfs, names, read, save, succeed};

/// Returns the program, to be given arguments, under strace: each fsync(2) and fdatasync(2) becomes a line of `trace`.
fn traced(trace: &Path) -> Command {
    let version = command("strace", &["-V"]).output();
    let is_there = version.is_ok_and(|version| version.status.success());
    assert!(is_there, "there is no strace, which shows what is flushed: scripts/setup.sh installs it");
    let mut strace = command("strace", &["-f", "-y", "-e", "trace=fsync,fdatasync", "-o"]);
    strace.arg(trace).arg(env!("CARGO_BIN_EXE_engramfs"));
    strace
}

/// Returns the paths that were flushed until now, in order. A line is `PID fsync(5</the/path>) = 0`.
fn flushed(trace: &Path) -> Vec<PathBuf> {
    let path = |line: &str| {
        let (_, descriptor) = line.split_once("sync(")?;
        let (_, path) = descriptor.split_once('<')?;
        Some(PathBuf::from(path.split_once('>')?.0))
    };
    read(trace).lines().filter_map(path).collect()
}

/// Returns all files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for name in names(&folder) {
            let path = folder.join(name);
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

/// Returns the folder of a test as the kernel names it, which is what strace shows.
fn real(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap()
}

#[test]
fn a_store_flushes_its_files_and_the_folders_that_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = real(folder.path());
    let (store, trace, input) = (root.join("store"), root.join("trace"), root.join("in.jsonl"));
    fs::write(&input, "{\"id\":\"a\",\"text\":\"one\"}\n").unwrap();
    succeed(traced(&trace).args(["import", "--create"]).arg(format!("{}:main", store.display())).arg(&input));
    let paths = flushed(&trace);
    for folder in [root.clone(), store.clone(), store.join("journal"), store.join("segments")] {
        assert!(paths.contains(&folder), "{} is not in {paths:?}", folder.display());
    }
    for name in ["format", "key", "key.pub", "manifest.new"] {
        assert!(paths.contains(&store.join(name)), "{name} is not in {paths:?}");
    }
    for name in ["journal", "segments"] {
        let folder = store.join(name);
        // Segments are flushed under another name, before their hash is known: so these are counted.
        let flushed: BTreeSet<&PathBuf> = paths.iter().filter(|path| path.parent() == Some(&*folder)).collect();
        let there = names(&folder);
        assert!(!there.is_empty() && flushed.len() >= there.len(), "{there:?} are in {name}, flushed was {paths:?}");
    }
}

#[test]
fn a_backup_and_a_restore_flush_every_file_and_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = real(folder.path());
    let trace = root.join("trace");
    succeed(engramfs(&["init"]).arg(root.join("store")));
    for (verb, from, to) in [("backup", "store", "copy"), ("restore", "copy", "back")] {
        let made = root.join(to);
        succeed(traced(&trace).arg(verb).arg(root.join(from)).arg(&made));
        let (paths, mut expected) = (flushed(&trace), files_below(&made));
        assert!(expected.len() > 5, "{expected:?}");
        expected.extend([made.join("journal"), made.join("segments"), made, root.clone()]);
        expected.retain(|path| !paths.contains(path));
        assert!(expected.is_empty(), "{verb} did not flush {expected:?}");
    }
}

#[test]
fn an_export_flushes_every_file() {
    let site = Site::new();
    let mut server = site.serve(&[]);
    save(site.mnt.join("main/vectors/a.json"), "{\"text\":\"one\",\"vector\":[1,2]}\n").unwrap();
    save(site.mnt.join("main/files/plan.md"), "tea\n").unwrap();
    succeed(engramfs(&["umount"]).arg(&site.mnt));
    assert!(server.wait().success());
    let (trace, root) = (site.beside("trace"), real(&site.beside("")));
    let target = format!("{}:main", site.store.display());
    let (dump, unfinished) = (root.join("dump"), root.join("dump.part"));
    succeed(traced(&trace).args(["export", "--all", &target]).arg(&dump));
    let (paths, files) = (flushed(&trace), files_below(&dump));
    assert!(files.iter().any(|path| path.ends_with("files/plan.md")), "{files:?}");
    for path in files {
        let written = unfinished.join(path.strip_prefix(&dump).unwrap());
        assert!(paths.contains(&written), "{} is not in {paths:?}", written.display());
    }
    for (format, files) in [("out.jsonl", 1), ("out.npy", 2)] {
        succeed(traced(&trace).args(["export", &target]).arg(root.join(format)));
        // Under names that nobody can know before.
        let is_written =
            |path: &&PathBuf| path.parent() == Some(&*root) && path.extension().is_some_and(|end| end == "part");
        let flushed = flushed(&trace);
        assert_eq!(flushed.iter().filter(is_written).count(), files, "{format}: {flushed:?}");
    }
}

#[test]
fn an_fsync_of_a_record_or_a_file_flushes_the_journal() {
    let site = Site::new();
    let trace = site.beside("trace");
    let mut server = site.serve_by(traced(&trace), &[]);
    let journal = real(&site.store).join("journal");
    let main = site.mnt.join("main");
    for (name, content, synced) in [
        ("vectors/a.json", "{\"text\":\"one\"}\n", "vectors/a.json"),
        ("files/plan.md", "tea\n", "files/plan.md"),
        ("vectors/b.json", "{\"text\":\"two\"}\n", "vectors"),
        ("files/log.md", "tea\n", "files"),
    ] {
        let before = flushed(&trace).len();
        let mut file = File::create(main.join(name)).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        if synced != name {
            // It is closed before, so that its directory alone is flushed.
            file = File::open(main.join(synced)).unwrap();
        }
        file.sync_all().unwrap();
        let paths = flushed(&trace).split_off(before);
        assert!(paths.iter().any(|path| path.parent() == Some(&*journal)), "{synced}: {paths:?}");
    }
    succeed(engramfs(&["umount"]).arg(&site.mnt));
    assert!(server.wait().success());
}
