//! Disks that a user fills in every way there is: deletes, collections and mounts go on, and so does the work after them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::mount::{Mount, as_user, binary};
use crate::{ANN, row};

/// Something to fill and empty a disk with, as lines for a shell in the user's branch.
struct Way {
    name: &'static str,
    /// Goes on until something fails, and prints how often it was done.
    fill: &'static str,
    /// Done before, where there is room.
    before: &'static str,
    /// Gives back what the filling took; every command must succeed.
    give: &'static str,
}

const WAYS: [Way; 7] = [
    Way {
        name: "files",
        fill: "while head -c 200000 /dev/urandom > files/f$i; do i=$((i+1)); done",
        before: "",
        give: "set -- files/f*; : > $1; for f in $@; do rm $f; done",
    },
    Way {
        name: "records",
        fill: "while head -c 3000 /dev/urandom | base64 -w0 | sed 's/.*/{\"text\":\"&\"}/' > $TMP/r \
               && cp $TMP/r vectors/r$i.json; do i=$((i+1)); done",
        before: "",
        give: "n=0; for r in vectors/*.json; do [ $((n%8)) = 7 ] || rm $r; n=$((n+1)); done",
    },
    Way {
        name: "ingest",
        fill: "while seq 1200 | sed \"s/.*/{\\\"id\\\":\\\"b$i-&\\\",\\\"text\\\":\\\"$(head -c 200 /dev/urandom | base64 -w0 \
               | tr -d /+=) &\\\"}/\" > $TMP/r && cat $TMP/r > ingest; do i=$((i+1)); done",
        before: "",
        give: "ls vectors | sed 's/\\(.*\\).json/{\"id\":\"\\1\",\"delete\":true}/' > $TMP/d; cat $TMP/d > ingest",
    },
    Way {
        name: "branches",
        fill: "while mkdir branches/b$i && head -c 200000 /dev/urandom > branches/b$i/files/f; do i=$((i+1)); done",
        before: "",
        give: "for b in branches/*; do rmdir $b; done",
    },
    Way {
        name: "merges",
        fill: "while mkdir branches/m$i && head -c 200000 /dev/urandom > branches/m$i/files/f$i \
               && $ENGRAMFS merge branches/m$i >/dev/null; do i=$((i+1)); done",
        before: "",
        give: "for b in branches/*; do [ ! -d $b ] || rmdir $b; done; for f in files/f*; do rm $f; done",
    },
    Way {
        name: "rollbacks",
        // Earlier states make room, so that this goes on until the lineage has filled the disk.
        fill: "while [ $((i % 1000000)) -lt 500 ] && head -c 200000 /dev/urandom > files/f \
               && $ENGRAMFS rollback . c >/dev/null; do i=$((i+1)); done",
        before: "echo 30d > config/keep; [ -d checkpoints/c ] || mkdir checkpoints/c",
        give: "rm -f files/f; echo 0s > config/keep",
    },
    Way {
        name: "mmap",
        fill: "while python3 -c '
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.ftruncate(f, 200000)
m = mmap.mmap(f, 200000); m[:] = os.urandom(200000); m.flush(); os.fsync(f)' files/f$i; do i=$((i+1)); done",
        before: "",
        give: "for f in files/f*; do truncate -s 0 $f; done; rm files/f*",
    },
];

/// A file system of its own, for a store.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// Mounts one; nothing where this machine has no such file system.
    fn new(kind: &str, options: &str) -> Option<Disk> {
        let folder = tempfile::tempdir().unwrap();
        let (path, image) = (folder.path().join("disk"), folder.path().join("image"));
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        if kind == "tmpfs" {
            mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        } else {
            fs::File::create(&image).unwrap().set_len(48 << 20).unwrap();
            let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).stderr(Stdio::null()).status();
            made.ok().filter(|made| made.success())?;
            mount.args(["-t", "ext4", "-o", "loop"]).arg(&image);
        }
        mount.arg(&path).stderr(Stdio::null()).status().unwrap().success().then_some(Disk { folder })
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("disk/store")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path().join("disk")).status();
    }
}

pub fn run(quick: bool) {
    let disks: &[(&str, &str, &str)] = match quick {
        true => &[("tmpfs of 16 MB", "tmpfs", "size=16m")],
        false => &[
            ("tmpfs of 48 MB", "tmpfs", "size=48m"),
            ("tmpfs of 120 inodes", "tmpfs", "size=48m,nr_inodes=120"),
            ("ext4 of 48 MB", "ext4", ""),
        ],
    };
    for (name, kind, options) in disks {
        if Disk::new(kind, options).is_none() {
            println!("| full: {name} | – | this machine can't mount it | – |");
            continue;
        }
        let few_inodes = options.contains("nr_inodes");
        if !few_inodes {
            overwrite(&Disk::new(kind, options).unwrap(), name);
        }
        for way in WAYS.iter().filter(|way| !few_inodes || way.name == "files") {
            fill_and_empty(&Disk::new(kind, options).unwrap(), name, way);
        }
    }
}

/// Runs lines of a shell as ANN in their branch.
fn shell(mount: &Mount, lines: &str) -> Output {
    let temporary = mount.beside("tmp");
    fs::create_dir_all(&temporary).unwrap();
    std::os::unix::fs::chown(&temporary, Some(ANN), Some(ANN)).unwrap();
    // The build's folder may be closed to ANN.
    let program = mount.beside("engramfs");
    if !program.exists() {
        fs::copy(binary(), &program).unwrap();
    }
    let mut command = as_user(ANN, "sh");
    command.args(["-c", &format!("cd \"$MNT/main/branches/ann\" || exit 9; {lines}")]);
    command.env("ENGRAMFS", program).env("MNT", &mount.path).env("TMP", temporary).output().unwrap()
}

fn fill(mount: &Mount, way: &Way, from: u64) -> u64 {
    let output = shell(mount, &format!("i={from}; {{ {}; }} 2>/dev/null; echo $i", way.fill));
    String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().unwrap_or(from) - from
}

fn prepare(mount: &Mount, way: &Way) -> Result<(), String> {
    let output = shell(mount, &format!("set -e; {}", way.before));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("there is no room after all went: {}", said.trim())) }
}

fn engramfs(arguments: &[&str], path: &Path) -> Result<(), String> {
    let output = Command::new(binary()).args(arguments).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{arguments:?}: {}", said.trim())) }
}

fn mount(disk: &Disk) -> Mount {
    let mount = Mount::over(disk.store(), &[]);
    let _ = as_user(ANN, "mkdir").arg(mount.at("main/branches/ann")).stderr(Stdio::null()).status();
    mount
}

/// 200 KB of which 50 MB were written.
fn overwrite(disk: &Disk, name: &str) {
    let mount = mount(disk);
    let lines =
        "for n in $(seq 251); do head -c 200000 /dev/urandom > files/f || { echo $n; exit 1; }; done; rm files/f";
    let output = shell(&mount, lines);
    let measured = match output.status.success() {
        true => "all done".to_owned(),
        false => format!("the write {} failed", String::from_utf8_lossy(&output.stdout).trim()),
    };
    row(&format!("full: {name}: a file overwritten"), "251 times", &measured, output.status.success());
}

fn fill_and_empty(disk: &Disk, name: &str, way: &Way) {
    let outcome = try_fill_and_empty(disk, way);
    let held = outcome.is_ok();
    let measured = outcome.unwrap_or_else(|error| error.replace('\n', " "));
    row(&format!("full: {name}: {}", way.name), "deletes, gc, mounts and work go on", &measured, held);
}

/// Gives back all of it, and fills the disk again; returns how much fits.
fn empty_and_fill(mount: &Mount, way: &Way, from: u64) -> Result<u64, String> {
    let output = shell(mount, &format!("trap 'tail -n 1 errors >&2' EXIT; set -e; {}", way.give));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("giving back failed: {}", said.trim()));
    }
    engramfs(&["gc"], &mount.path)?;
    prepare(mount, way)?;
    Ok(fill(mount, way, from))
}

fn try_fill_and_empty(disk: &Disk, way: &Way) -> Result<String, String> {
    let mounted = mount(disk);
    prepare(&mounted, way)?;
    let first = fill(&mounted, way, 0);
    if first < 3 {
        return Err(format!("only {first} fit"));
    }
    (0..20).try_for_each(|_| engramfs(&["gc"], &mounted.path))?;
    let again = empty_and_fill(&mounted, way, 1_000_000)?;
    if again < first / 3 {
        return Err(format!("{first} fit at first, and {again} after all went"));
    }
    // Full again: unmounted, collected, mounted, emptied.
    drop(mounted);
    engramfs(&["gc"], &disk.store())?;
    let mounted = mount(disk);
    let third = empty_and_fill(&mounted, way, 2_000_000)?;
    if third < first / 3 {
        return Err(format!("{first} fit at first, and {third} after a mount anew"));
    }
    drop(mounted);
    engramfs(&["verify"], &disk.store())?;
    Ok(format!("{first}, {again} and {third} fit"))
}
