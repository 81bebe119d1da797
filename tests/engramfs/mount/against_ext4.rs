//! Random operations, each done on the mount and on an ordinary directory: outcomes, trees, bytes and errnos are equal.

use std::cell::Cell;
use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{Site, checked, rename_with};
use crate::shrink::run_steps;
use crate::support::{Chance, rounds};

/// Operations of one history.
const STEPS: usize = 300;
/// Open files that a history holds.
const SLOTS: usize = 4;
/// Behind this no file grows.
const LONGEST: usize = 200_000;

/// A file by its name, or one that is open whatever became of its name.
#[derive(Clone, Debug)]
enum Target {
    Path(String),
    Slot(usize),
}

/// The length and first byte of what is written.
type Bytes = (usize, u8);

#[derive(Clone, Debug)]
enum Step {
    Create { path: String, exclusive: bool },
    Open(usize, String),
    Close(usize),
    Write(Target, u64, Bytes),
    Append(String, Bytes),
    Read(Target, u64, usize),
    Resize(Target, u64),
    Allocate(Target, i32, u64, u64),
    Copy { from: (Target, u64), to: (Target, u64), length: usize },
    MakeDir(String),
    RemoveDir(String),
    Unlink(String),
    Rename(String, String, u32),
    Link(String, String),
    Symlink(String, String),
    MakeFifo(String),
    Mode(String, u32),
    SetXattr(String, String, Bytes, i32),
    RemoveXattr(String, String),
    Look(Target),
}

/// Few names, so that they meet; up to three deep.
fn path(chance: &mut Chance) -> String {
    let depth = 1 + chance.below(3).min(chance.below(3));
    let parts: Vec<&str> = (0..depth).map(|_| ["a", "b", "c", "d", "e"][chance.below(5)]).collect();
    parts.join("/")
}

fn target(chance: &mut Chance) -> Target {
    if chance.one_in(3) { Target::Slot(chance.below(SLOTS)) } else { Target::Path(path(chance)) }
}

/// Mostly where blocks and chunks begin and end, or near it.
fn place(chance: &mut Chance) -> usize {
    match chance.below(3) {
        0 => chance.below(40),
        1 => (chance.below(LONGEST / 4096) * 4096 + chance.below(3)).saturating_sub(1),
        _ => chance.below(LONGEST),
    }
}

fn bytes(chance: &mut Chance) -> Bytes {
    let length = if chance.one_in(2) { chance.below(200) } else { chance.below(70_000) };
    (length, chance.below(256) as u8)
}

fn xattr(chance: &mut Chance) -> String {
    ["user.a", "user.b", "trusted.c", "user.odd"][chance.below(4)].to_owned()
}

fn step(chance: &mut Chance) -> Step {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    match chance.below(34) {
        0..5 => Step::Create { path: path(chance), exclusive: chance.one_in(4) },
        5 | 6 => Step::Open(chance.below(SLOTS), path(chance)),
        7 => Step::Close(chance.below(SLOTS)),
        8..12 => Step::Write(target(chance), place(chance) as u64, bytes(chance)),
        12 => Step::Append(path(chance), bytes(chance)),
        13 | 14 => Step::Read(target(chance), place(chance) as u64, place(chance)),
        15 | 16 => Step::Resize(target(chance), place(chance) as u64),
        17 | 18 => {
            let mode = [0, KEEP, PUNCH, PUNCH, ZERO, ZERO | KEEP][chance.below(6)];
            Step::Allocate(target(chance), mode, place(chance) as u64, chance.below(20_000) as u64)
        }
        19 => {
            let (from, to) = ((target(chance), place(chance) as u64), (target(chance), place(chance) as u64));
            Step::Copy { from, to, length: chance.below(70_000) }
        }
        20..23 => Step::MakeDir(path(chance)),
        23 => Step::RemoveDir(path(chance)),
        24 => Step::Unlink(path(chance)),
        25..28 => {
            let flags = [0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE][chance.below(4)];
            Step::Rename(path(chance), path(chance), flags)
        }
        28 => Step::Link(path(chance), path(chance)),
        29 => Step::Symlink(path(chance), path(chance)),
        30 => {
            if chance.one_in(3) {
                Step::MakeFifo(path(chance))
            } else {
                Step::Look(target(chance))
            }
        }
        31 => Step::Mode(path(chance), (chance.next() & 0o7777) as u32),
        32 => {
            let flags = [0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE][chance.below(4)];
            Step::SetXattr(path(chance), xattr(chance), (chance.below(100), 7), flags)
        }
        _ => Step::RemoveXattr(path(chance), xattr(chance)),
    }
}

/// A directory in which the steps are done, and the files that are open there.
struct Side {
    root: PathBuf,
    open: [Option<File>; SLOTS],
}

impl Side {
    fn new(root: PathBuf) -> Side {
        fs::create_dir(&root).unwrap();
        Side { root, open: Default::default() }
    }

    /// Does a step: what it shows, or its errno.
    fn act(&mut self, step: &Step) -> Result<String, i32> {
        self.attempt(step).map_err(|error| error.raw_os_error().unwrap())
    }

    fn attempt(&mut self, step: &Step) -> io::Result<String> {
        let at = |path: &str| self.root.join(path);
        match step {
            Step::Create { path, exclusive } => {
                let mut options = File::options();
                options.write(true).create(true).truncate(!exclusive).create_new(*exclusive);
                // A pipe would wait for a reader.
                std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
                shown(options.open(at(path)))
            }
            Step::Open(slot, path) => {
                self.open[*slot] = Some(file_at(&at(path))?);
                Ok(String::new())
            }
            Step::Close(slot) => {
                self.open[*slot] = None;
                Ok(String::new())
            }
            Step::Write(target, offset, bytes) => {
                self.with(target, |file| shown(file.write_at(&content(*bytes), *offset)))
            }
            Step::Append(path, bytes) => {
                let mut options = File::options();
                std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
                shown(io::Write::write(&mut options.append(true).open(at(path))?, &content(*bytes)))
            }
            Step::Read(target, offset, length) => self.with(target, |file| {
                let mut bytes = vec![0; *length];
                let read = file.read_at(&mut bytes, *offset)?;
                Ok(format!("{read} bytes, {}", blake3::hash(&bytes[..read])))
            }),
            Step::Resize(target, length) => self.with(target, |file| shown(file.set_len(*length))),
            Step::Allocate(target, mode, offset, length) => self.with(target, |file| {
                let (offset, length) = (offset.cast_signed(), length.cast_signed());
                // SAFETY: the descriptor is open, and no memory is handed over.
                shown(checked(unsafe { libc::fallocate(file.as_raw_fd(), *mode, offset, length) }))
            }),
            Step::Copy { from, to, length } => self
                .with(&from.0, |source| self.with(&to.0, |sink| shown(copy((source, from.1), (sink, to.1), *length)))),
            Step::MakeDir(path) => shown(fs::create_dir(at(path))),
            Step::RemoveDir(path) => shown(fs::remove_dir(at(path))),
            Step::Unlink(path) => shown(fs::remove_file(at(path))),
            Step::Rename(from, to, flags) => shown(rename_with(&at(from), &at(to), *flags)),
            Step::Link(from, to) => shown(fs::hard_link(at(from), at(to))),
            Step::Symlink(to, path) => shown(std::os::unix::fs::symlink(to, at(path))),
            Step::MakeFifo(path) => {
                let path = text(at(path));
                // SAFETY: the path ends with NUL and lives through the call.
                shown(checked(unsafe { libc::mkfifo(path.as_ptr(), 0o640) }))
            }
            Step::Mode(path, mode) => shown(fs::set_permissions(at(path), Permissions::from_mode(*mode))),
            Step::SetXattr(path, name, bytes, flags) => {
                let (path, name, value) = (text(at(path)), text(name), content(*bytes));
                let (start, length) = (value.as_ptr().cast(), value.len());
                // SAFETY: both names end with NUL, and all three live through the call.
                shown(checked(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), start, length, *flags) }))
            }
            Step::RemoveXattr(path, name) => {
                let (path, name) = (text(at(path)), text(name));
                // SAFETY: both names end with NUL and live through the call.
                shown(checked(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) }))
            }
            Step::Look(Target::Path(path)) => fs::metadata(at(path)).map(|stat| described(&stat)),
            Step::Look(slot) => self.with(slot, |file| file.metadata().map(|stat| described(&stat))),
        }
    }

    fn with(&self, target: &Target, work: impl FnOnce(&File) -> io::Result<String>) -> io::Result<String> {
        match target {
            Target::Path(path) => work(&file_at(&self.root.join(path))?),
            Target::Slot(slot) => work(self.open[*slot].as_ref().ok_or(io::Error::from_raw_os_error(libc::EBADF))?),
        }
    }
}

fn file_at(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.read(true).write(true).open(path)
}

fn shown<T: std::fmt::Debug>(result: io::Result<T>) -> io::Result<String> {
    // What is opened has another descriptor on each side.
    result.map(|value| if size_of::<T>() == size_of::<File>() { String::new() } else { format!("{value:?}") })
}

fn content((length, first): Bytes) -> Vec<u8> {
    (0..length).map(|n| first.wrapping_add((n % 251) as u8)).collect()
}

fn copy(from: (&File, u64), to: (&File, u64), length: usize) -> io::Result<usize> {
    let (mut start, mut end) = (from.1.cast_signed(), to.1.cast_signed());
    // SAFETY: both descriptors are open, and both offsets live through the call.
    let copied =
        unsafe { libc::copy_file_range(from.0.as_raw_fd(), &raw mut start, to.0.as_raw_fd(), &raw mut end, length, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

fn text(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap()
}

/// What stat(2) must show alike: no times, and no size of a directory, which is each file system's own matter.
fn described(stat: &fs::Metadata) -> String {
    let size = if stat.is_dir() { 0 } else { stat.size() };
    format!("{:o} {} links, {}:{}, {size} bytes", stat.mode(), stat.nlink(), stat.uid(), stat.gid())
}

/// The whole tree below a directory, one line a name.
fn picture(folder: &Path) -> String {
    let mut lines = String::new();
    let mut names: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        let stat = fs::symlink_metadata(&path).unwrap();
        let kind = stat.file_type();
        let content = if kind.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else if kind.is_file() {
            blake3::hash(&fs::read(&path).unwrap()).to_string()
        } else if kind.is_fifo() {
            "a pipe".to_owned()
        } else {
            picture(&path)
        };
        let name = path.file_name().unwrap().display();
        writeln!(lines, "{name}: {}, xattrs {:?}, {content}", described(&stat), xattrs(&path)).unwrap();
    }
    lines
}

fn xattrs(path: &Path) -> Vec<(CString, Vec<u8>)> {
    let path = text(path);
    let mut names = vec![0u8; 4096];
    // SAFETY: the buffer has the length that is told.
    let length = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(length).unwrap());
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = CString::new(name).unwrap();
        let mut value = vec![0u8; 4096];
        // SAFETY: the buffer has the length that is told.
        let length = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        value.truncate(usize::try_from(length).unwrap());
        found.push((name, value));
    }
    found.sort();
    found
}

/// Which inode each name leads to, counted in the order of first sight: hard links on both sides are the same.
fn links(folder: &Path) -> String {
    let mut seen = Vec::new();
    let mut lines = String::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let stat = fs::symlink_metadata(&path).unwrap();
            let known = seen.iter().position(|ino| *ino == stat.ino());
            let number = known.unwrap_or_else(|| {
                seen.push(stat.ino());
                seen.len() - 1
            });
            writeln!(lines, "{} {number}", path.file_name().unwrap().display()).unwrap();
            if stat.is_dir() {
                folders.push(path);
            }
        }
    }
    lines
}

fn whole(folder: &Path) -> (String, String) {
    (picture(folder), links(folder))
}

/// Does one history on both sides and returns how many steps succeeded; the sides stay open, so that what has no name
/// lives on.
fn history(mount: &Path, plain: &Path, seed: u64) -> (usize, [Side; 2]) {
    let mut chance = Chance(seed);
    let steps: Vec<Step> = (0..STEPS).map(|_| step(&mut chance)).collect();
    let runs = Cell::new(0);
    run_steps(seed, &steps, |steps| {
        // What is run again after a failure has folders of its own.
        let run = runs.replace(runs.get() + 1);
        let name = if run == 0 { seed.to_string() } else { format!("{seed}-{run}") };
        on_both_sides([Side::new(mount.join(&name)), Side::new(plain.join(&name))], steps)
    })
}

fn on_both_sides(mut sides: [Side; 2], steps: &[Step]) -> (usize, [Side; 2]) {
    let mut done = 0;
    for (n, step) in steps.iter().enumerate() {
        let [ours, theirs] = sides.each_mut().map(|side| side.act(step));
        done += usize::from(ours.is_ok());
        assert_eq!(ours, theirs, "step {n}, {step:?}; ours, theirs");
        if n % 60 == 59 || n + 1 == steps.len() {
            let [ours, theirs] = sides.each_ref().map(|side| whole(&side.root));
            assert_eq!(ours, theirs, "after step {n}; ours, theirs");
        }
    }
    (done, sides)
}

#[test]
fn random_operations_do_what_they_do_on_an_ordinary_file_system() {
    let site = Site::new();
    let server = site.serve(&[]);
    let plain = tempfile::tempdir().unwrap();
    let count = rounds(20);
    let (mut open, mut done) = (Vec::new(), 0);
    for seed in 0..count {
        let (succeeded, sides) = history(&site.mnt.join("main/files"), plain.path(), seed as u64);
        done += succeeded;
        if seed % 2 == 0 {
            open.push(sides);
        }
    }
    assert!(done > count * STEPS / 5, "only {done} steps did something");
    // A fork has it all at once, a rollback brings it all back, and a new mount after a crash reads the same.
    let at = |branch: &str, seed: usize| whole(&site.mnt.join(format!("{branch}/files/{seed}")));
    let expected: Vec<_> = (0..count).map(|seed| whole(&plain.path().join(seed.to_string()))).collect();
    fs::create_dir(site.mnt.join("main/branches/x")).unwrap();
    (0..count).for_each(|seed| assert_eq!(at("main/branches/x", seed), expected[seed], "the fork, seed {seed}"));
    fs::create_dir(site.mnt.join("main/branches/x/checkpoints/v1")).unwrap();
    fs::remove_dir_all(site.mnt.join("main/branches/x/files/0")).unwrap();
    fs::rename(site.mnt.join("main/branches/x/files/1"), site.mnt.join("main/branches/x/files/moved")).unwrap();
    fs::write(site.mnt.join("main/branches/x/ctl"), "rollback v1\n").unwrap();
    (0..2).for_each(|seed| assert_eq!(at("main/branches/x", seed), expected[seed], "rolled back, seed {seed}"));
    server.crash();
    let _server = site.serve(&[]);
    (0..count).for_each(|seed| {
        assert_eq!(at("main", seed), expected[seed], "after a crash, seed {seed}");
        assert_eq!(at("main/branches/x", seed), expected[seed], "the fork after a crash, seed {seed}");
    });
}
