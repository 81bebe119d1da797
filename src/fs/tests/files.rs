//! `files/` without a kernel: what only handles, notices and several requests at once show.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use super::rig::{ANN, ROOT, Rig};
use crate::fs::files::MountOpenFiles;
use crate::fs::{AttrChanges, Errno, FileKind, FsOptions, Kernel, TimeSet};
use crate::memory::{BranchId, OpenFiles, OpensBlocked, Time, View, WritersBlocked};
use crate::sync::{Mutex, without_waiting};

/// A branch with a directory and two files.
fn filled() -> Rig {
    let rig = Rig::new();
    rig.mkdir("main/files/d").unwrap();
    rig.write("main/files/a", "a of main").unwrap();
    rig.write("main/files/d/b", "b of main").unwrap();
    rig
}

/// What the kernel was told.
#[derive(Default)]
struct Told {
    files: Mutex<Vec<u64>>,
    contents: Mutex<Vec<u64>>,
}

impl Kernel for Told {
    fn forget_content(&self, ino: u64) {
        self.contents.lock().push(ino);
        self.forget_attributes(ino);
    }

    fn forget_attributes(&self, ino: u64) {
        self.files.lock().push(ino);
    }

    fn forget_names(&self) {}
}

impl Told {
    fn by(rig: &Rig) -> Arc<Told> {
        let told = Arc::new(Told::default());
        rig.fs.set_kernel(Some(told.clone()));
        told
    }
}

#[test]
fn a_file_is_made_written_read_and_removed() {
    let rig = filled();
    assert_eq!(rig.list("main/files"), ["a", "d"]);
    assert_eq!(rig.read("main/files/d/b").unwrap(), "b of main");
    let stat = rig.stat("main/files/a").unwrap();
    assert_eq!((stat.kind, stat.size, stat.links, stat.mode), (FileKind::File, 9, 1, 0o644));
    assert_eq!((rig.rm("main/files/d"), rig.rmdir("main/files/d")), (Err(Errno::EISDIR), Err(Errno::ENOTEMPTY)));
    rig.rm("main/files/d/b").unwrap();
    rig.rmdir("main/files/d").unwrap();
    assert_eq!((rig.list("main/files"), rig.stat("main/files/d")), (vec!["a".to_owned()], Err(Errno::ENOENT)));
}

/// What changes a file in its place, or beside a mapping, must go by the pages that others have.
#[test]
fn only_who_writes_a_file_whole_goes_past_the_pages() {
    let rig = filled();
    let past = |path: &str, flags: i32| {
        let handle = rig.open(path, flags).unwrap();
        let past = rig.fs.writes_directly(handle);
        rig.fs.release(handle);
        past
    };
    let new = libc::O_WRONLY | libc::O_CREAT;
    for (path, flags, expected) in [
        ("main/files/new", new, true),
        ("main/files/new", new | libc::O_TRUNC, true),
        ("main/files/a", libc::O_WRONLY | libc::O_TRUNC, true),
        ("main/files/new", new, false),
        ("main/files/a", libc::O_WRONLY, false),
        ("main/files/log", new | libc::O_APPEND, false),
        ("main/files/both", libc::O_RDWR | libc::O_CREAT, false),
        ("main/files/a", libc::O_RDWR | libc::O_TRUNC, false),
        ("main/files/a", libc::O_RDONLY | libc::O_TRUNC, false),
        ("main/files/a", libc::O_RDONLY, false),
    ] {
        assert_eq!(past(path, flags), expected, "{path}, {flags:#o}");
    }
    let mapped = rig.open("main/files/a", libc::O_RDWR).unwrap();
    assert!(!past("main/files/a", libc::O_WRONLY | libc::O_TRUNC), "a mapping may store to it");
    assert!(past("main/files/d/b", libc::O_WRONLY | libc::O_TRUNC), "not to that one");
    rig.fs.release(mapped);
    assert!(past("main/files/a", libc::O_WRONLY | libc::O_TRUNC));
}

#[test]
fn the_root_is_the_branchs_owners_and_keeps_its_place() {
    let mut rig = filled();
    rig.who = ANN;
    rig.mkdir("main/branches/ann").unwrap();
    let root = rig.stat("main/branches/ann/files").unwrap();
    assert_eq!((root.kind, root.uid, root.mode), (FileKind::Directory, ANN.uid, 0o755));
    let ino = rig.ino("main/branches/ann/files").unwrap();
    let give = |uid| rig.fs.setattr(ANN, ino, AttrChanges { uid: Some(uid), ..AttrChanges::default() }, None).map(drop);
    assert_eq!((give(ANN.uid), give(0)), (Ok(()), Err(Errno::EPERM)));
    assert_eq!(rig.last_error("main/branches/ann")["path"], "files");
    assert_eq!(rig.rmdir("main/branches/ann/files"), Err(Errno::EPERM));
    rig.who = ROOT;
    assert_eq!(
        (rig.mv("main/files/a", "main/status"), rig.mv("main/files", "main/x")),
        (Err(Errno::EPERM), Err(Errno::EPERM))
    );
}

#[test]
fn an_orphan_goes_with_its_last_handle() {
    let rig = filled();
    let (first, second) = (rig.open("main/files/a", libc::O_RDWR).unwrap(), rig.open("main/files/a", 0).unwrap());
    let main = View::Branch(rig.memory.root("main").unwrap());
    rig.rm("main/files/a").unwrap();
    rig.fs.write(first, 0, b"A").unwrap();
    rig.fs.release(first);
    assert_eq!(rig.read_on(second, 0).unwrap(), "A of main");
    assert_eq!(rig.memory.files(&main).unwrap().orphans().count(), 1);
    rig.fs.release(second);
    assert_eq!(rig.memory.files(&main).unwrap().orphans().count(), 0);
    // The same for what a rename replaces.
    rig.write("main/files/a", "again").unwrap();
    let handle = rig.open("main/files/a", 0).unwrap();
    rig.mv("main/files/d/b", "main/files/a").unwrap();
    assert_eq!(
        (rig.read_on(handle, 0).unwrap(), rig.read("main/files/a").unwrap()),
        ("again".into(), "b of main".into())
    );
    rig.fs.release(handle);
    assert_eq!(rig.memory.files(&main).unwrap().orphans().count(), 0);
}

#[test]
fn what_the_kernel_still_holds_has_attributes_after_its_end() {
    let rig = filled();
    rig.rm("main/files/d/b").unwrap();
    let directory = rig.ino("main/files/d").unwrap();
    rig.rmdir("main/files/d").unwrap();
    assert_eq!(rig.fs.getattr(rig.who, directory, None).unwrap().links, 0);
    let handle = rig.fs.opendir(ROOT, directory).unwrap();
    assert_eq!(rig.list_from(handle, 0), []);
    rig.fs.release(handle);
    rig.fs.forget(directory, 2);
    assert_eq!(rig.fs.getattr(rig.who, directory, None), Err(Errno::ESTALE));
}

#[test]
fn a_listing_tells_of_nothing_that_is_gone() {
    let rig = filled();
    rig.write("main/files/c", "").unwrap();
    let handle = rig.fs.opendir(ROOT, rig.ino("main/files").unwrap()).unwrap();
    rig.rm("main/files/a").unwrap();
    rig.write("main/files/new", "").unwrap();
    let mut names = Vec::new();
    let mut sink = |entry: &crate::fs::EntryAttr, _: u64, name: &OsStr| {
        names.push((name.to_owned(), entry.attr.kind));
        false
    };
    // From behind the two dots on; from the beginning it would be listed again.
    rig.fs.readdirplus(handle, 2, &mut sink).unwrap();
    assert_eq!(names, [("c".into(), FileKind::File), ("d".into(), FileKind::Directory)]);
    let all: Vec<String> = rig.list_from(handle, 0).into_iter().map(|(name, _)| name).collect();
    assert_eq!(all, [".", "..", "c", "d", "new"]);
}

#[test]
fn lists_with_attributes_work_out_no_document() {
    let rig = filled();
    let found = |list: Vec<(String, crate::fs::Attr)>, name: &str| {
        list.into_iter().find_map(|(found, attr)| (found == name).then_some(attr)).unwrap()
    };
    let status = found(rig.entries("main"), "status");
    assert!(status.lifetime.is_zero(), "the kernel asks before it believes");
    // A length that the kernel was told stays: another one would cut what somebody has mapped.
    let told = rig.stat("main/status").unwrap();
    assert_eq!((status.size, found(rig.entries("main"), "status").size), (0, told.size));
    assert_eq!(found(rig.entries("main/files"), "a"), rig.stat("main/files/a").unwrap());
}

#[test]
fn rights_go_when_somebody_else_writes() {
    let rig = filled();
    let ino = rig.ino("main/files/a").unwrap();
    let chmod = |mode| {
        rig.fs.setattr(ROOT, ino, AttrChanges { mode: Some(mode), ..AttrChanges::default() }, None).unwrap().mode
    };
    let set = |who, changes| rig.fs.setattr(who, ino, changes, None).unwrap().mode;
    let size = AttrChanges { size: Some(3), ..AttrChanges::default() };
    chmod(0o6755);
    assert_eq!((set(ROOT, size), set(ANN, size)), (0o6755, 0o755));
    chmod(0o6745);
    assert_eq!(set(ROOT, AttrChanges { gid: Some(7), ..AttrChanges::default() }), 0o2745);
    chmod(0o4755);
    let handle = rig.fs.open(ANN, ino, libc::O_RDWR).unwrap();
    rig.fs.drop_rights(handle).unwrap();
    assert_eq!(rig.stat("main/files/a").unwrap().mode, 0o755);
    chmod(0o4755);
    let emptied = rig.fs.open(ANN, ino, libc::O_WRONLY | libc::O_TRUNC).unwrap();
    assert_eq!((rig.stat("main/files/a").unwrap().mode, rig.stat("main/files/a").unwrap().size), (0o755, 0));
    rig.fs.release(handle);
    rig.fs.release(emptied);
    // Before these the kernel asks for nothing.
    let source = rig.open("main/files/d/b", libc::O_RDONLY).unwrap();
    for (who, left) in [(ROOT, 0o4755), (ANN, 0o755)] {
        let target = rig.fs.open(who, ino, libc::O_WRONLY).unwrap();
        let copy = || rig.fs.copy_range((source, 0), (target, 0), 4).map(drop);
        let allocate = || rig.fs.fallocate(target, 0, 10, 0);
        let punch = || rig.fs.fallocate(target, 0, 10, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE);
        for change in [&copy as &dyn Fn() -> Result<(), Errno>, &allocate, &punch] {
            chmod(0o4755);
            rig.fs.setxattr(ROOT, ino, OsStr::new("security.capability"), b"all", 0).unwrap();
            change().unwrap();
            assert_eq!(rig.stat("main/files/a").unwrap().mode, left);
            assert_eq!(rig.fs.getxattr(ino, OsStr::new("security.capability")), Err(Errno::ENODATA));
        }
        rig.fs.release(target);
    }
}

#[test]
fn a_program_that_runs_is_not_emptied() {
    const RUN: i32 = 0x20;
    let rig = filled();
    let running = rig.open("main/files/a", RUN).unwrap();
    assert_eq!(rig.open("main/files/a", libc::O_RDONLY | libc::O_TRUNC), Err(Errno::ETXTBSY));
    assert_eq!(rig.read("main/files/a").unwrap(), "a of main");
    rig.fs.release(running);
    // What nobody runs is emptied for readers, too.
    let emptied = rig.open("main/files/a", libc::O_RDONLY | libc::O_TRUNC).unwrap();
    assert_eq!(rig.stat("main/files/a").unwrap().size, 0);
    rig.fs.release(emptied);
}

#[test]
fn times_are_set_to_the_nanosecond_and_now() {
    let rig = filled();
    let ino = rig.ino("main/files/a").unwrap();
    let changes = AttrChanges {
        accessed: Some(TimeSet::At(Time(-1))),
        modified: Some(TimeSet::At(Time(1_234_567_890_123_456_789))),
        ..AttrChanges::default()
    };
    let before = rig.memory.now();
    let attr = rig.fs.setattr(ROOT, ino, changes, None).unwrap();
    assert_eq!((attr.accessed, attr.modified), (Time(-1), Time(1_234_567_890_123_456_789)));
    assert!(attr.changed >= before);
    let now = AttrChanges { modified: Some(TimeSet::Now), ..AttrChanges::default() };
    assert!(rig.fs.setattr(ROOT, ino, now, None).unwrap().modified >= before);
}

#[test]
fn a_read_only_mount_and_a_checkpoint_refuse_with_a_reason() {
    let rig = filled();
    rig.mkdir("main/checkpoints/v1").unwrap();
    assert_eq!(rig.write("main/checkpoints/v1/files/a", "x"), Err(Errno::EROFS));
    assert_eq!(rig.mkdir("main/checkpoints/v1/files/new"), Err(Errno::EROFS));
    assert_eq!(rig.last_error("main")["path"], "checkpoints/v1/files/new");
    assert_eq!(rig.read("main/checkpoints/v1/files/d/b").unwrap(), "b of main");
    let frozen = rig.view(FsOptions { read_only: true, ..FsOptions::default() });
    let root =
        ["main", "files"].iter().fold(1, |ino, name| frozen.lookup(ROOT, ino, OsStr::new(name)).unwrap().attr.ino);
    assert_eq!(frozen.mkdir(ROOT, root, OsStr::new("new"), 0o755).unwrap_err(), Errno::EROFS);
    let file = frozen.lookup(ROOT, root, OsStr::new("a")).unwrap().attr.ino;
    assert_eq!(frozen.open(ROOT, file, libc::O_RDWR).unwrap_err(), Errno::EROFS);
    assert!(frozen.open(ROOT, file, libc::O_RDONLY).is_ok());
}

#[test]
fn the_kernel_forgets_what_a_merge_changed_and_nothing_else() {
    let rig = filled();
    rig.write("main/files/same", "same").unwrap();
    rig.mkdir("main/branches/x").unwrap();
    rig.write("main/branches/x/files/a", "a of x").unwrap();
    rig.write("main/branches/x/files/d/new", "new").unwrap();
    rig.rm("main/branches/x/files/d/b").unwrap();
    let [root, directory, a, b, same] =
        ["", "/d", "/a", "/d/b", "/same"].map(|name| rig.ino(&format!("main/files{name}")).unwrap());
    let told = Told::by(&rig);
    rig.mv("main/branches/x", "main/x").unwrap();
    // The change returns when the kernel has heard.
    let files = told.files.lock().clone();
    assert!([a, b, directory].iter().all(|ino| files.contains(ino)), "{files:?}");
    assert!(!files.contains(&same) && !files.contains(&root), "{files:?}");
}

#[test]
fn the_kernel_forgets_the_pages_of_what_was_moved_and_changed_or_comes_back() {
    let rig = filled();
    rig.mkdir("main/checkpoints/v1").unwrap();
    rig.mkdir("main/branches/x").unwrap();
    let (a, b) = (rig.ino("main/files/a").unwrap(), rig.ino("main/files/d/b").unwrap());
    rig.mv("main/branches/x/files/a", "main/branches/x/files/moved").unwrap();
    rig.write("main/branches/x/files/moved", "A of x").unwrap();
    let told = Told::by(&rig);
    let contents = || std::mem::take(&mut *told.contents.lock());
    rig.mv("main/branches/x", "main/x").unwrap();
    assert_eq!((contents(), rig.ino("main/files/moved").unwrap()), (vec![a], a));
    // A change of times alone is told to the kernel, too, and keeps its pages.
    let changes = AttrChanges { modified: Some(TimeSet::At(Time(7))), ..AttrChanges::default() };
    rig.fs.setattr(ROOT, b, changes, None).unwrap();
    rig.rm("main/files/moved").unwrap();
    told.files.lock().clear();
    rig.write("main/ctl", "rollback v1\n").unwrap();
    assert_eq!(contents(), [a], "the kernel may know it from before it went");
    assert!(told.files.lock().contains(&b));
}

/// It would refuse the new owner, and let the former one write, for as long as it keeps them.
#[test]
fn the_kernel_forgets_the_attributes_of_files_that_are_given_away_with_their_branch() {
    let rig = filled();
    rig.mkdir("main/branches/x").unwrap();
    rig.mkdir("main/branches/x/checkpoints/v1").unwrap();
    let paths = ["", "/files/a", "/files/d/b", "/checkpoints/v1/files/a"];
    let [branch, a, b, earlier] = paths.map(|path| rig.ino(&format!("main/branches/x{path}")).unwrap());
    let told = Told::by(&rig);
    let changes = AttrChanges { uid: Some(ANN.uid), ..AttrChanges::default() };
    rig.fs.setattr(ROOT, branch, changes, None).unwrap();
    for path in &paths[1..] {
        assert_eq!(rig.stat(&format!("main/branches/x{path}")).unwrap().uid, ANN.uid, "{path}");
    }
    let files = told.files.lock().clone();
    assert!([a, b, earlier].iter().all(|ino| files.contains(ino)), "{files:?}");
    assert!(told.contents.lock().is_empty(), "their pages are still right");
}

#[test]
fn a_merge_that_takes_an_open_file_away_leaves_it_to_its_handles() {
    let rig = filled();
    let main = View::Branch(rig.memory.root("main").unwrap());
    rig.mkdir("main/branches/x").unwrap();
    rig.rm("main/branches/x/files/a").unwrap();
    rig.rm("main/branches/x/files/d/b").unwrap();
    let handle = rig.open("main/files/a", libc::O_RDWR).unwrap();
    let ino = rig.ino("main/files/a").unwrap();
    rig.mv("main/branches/x", "main/x").unwrap();
    assert_eq!((rig.list("main/files"), rig.list("main/files/d").len()), (vec!["d".to_owned()], 0));
    assert_eq!(rig.read_on(handle, 0).unwrap(), "a of main");
    rig.fs.write(handle, 0, b"A").unwrap();
    assert_eq!(
        (rig.read_on(handle, 0).unwrap().as_str(), rig.fs.getattr(rig.who, ino, None).unwrap().links),
        ("A of main", 0)
    );
    assert_eq!(rig.memory.files(&main).unwrap().orphans().count(), 1);
    rig.fs.release(handle);
    assert_eq!(rig.memory.files(&main).unwrap().orphans().count(), 0);
}

#[test]
fn the_kernel_forgets_the_open_files_of_a_branch_that_goes() {
    let rig = filled();
    rig.mkdir("main/branches/x").unwrap();
    let (open, closed) = (rig.ino("main/branches/x/files/a").unwrap(), rig.ino("main/branches/x/files/d/b").unwrap());
    let handle = rig.open("main/branches/x/files/a", libc::O_RDWR).unwrap();
    let told = Told::by(&rig);
    rig.rmdir("main/branches/x").unwrap();
    let files = told.files.lock().clone();
    assert!(files.contains(&open) && !files.contains(&closed));
    assert_eq!(rig.fs.read(handle, 0, 9), Err(Errno::ESTALE));
    assert_eq!(rig.fs.write(handle, 0, b"x"), Err(Errno::ESTALE));
    assert_eq!(rig.fs.getattr(rig.who, open, None), Err(Errno::ESTALE));
    rig.fs.release(handle);
}

#[test]
fn what_is_opened_while_it_is_removed_is_there_or_gone() {
    let rig = Rig::new();
    for _ in 0..50 {
        rig.write("main/files/f", "text").unwrap();
        let ino = rig.ino("main/files/f").unwrap();
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| rig.fs.open(ROOT, ino, libc::O_RDONLY));
            rig.rm("main/files/f").unwrap();
            match opened.join().unwrap() {
                Ok(handle) => {
                    assert_eq!(rig.read_on(handle, 0).unwrap(), "text");
                    rig.fs.release(handle);
                }
                Err(errno) => assert_eq!(errno, Errno::ESTALE),
            }
        });
    }
    let main = View::Branch(rig.memory.root("main").unwrap());
    assert_eq!(rig.memory.files(&main).unwrap().orphans().count(), 0);
}

/// Says which files are open, and then has somebody open one more before the store goes on.
struct OpensMeanwhile {
    rig: Arc<Rig>,
    of_mount: MountOpenFiles,
    ino: u64,
    opened: Mutex<Vec<Result<u64, Errno>>>,
}

impl OpensMeanwhile {
    fn open_one(&self) {
        let open = || without_waiting(|| self.rig.fs.open(ROOT, self.ino, libc::O_RDONLY));
        let opened = std::thread::scope(|scope| scope.spawn(open).join().unwrap());
        self.opened.lock().push(opened);
    }
}

impl OpenFiles for OpensMeanwhile {
    fn open_inodes(&self, branch: BranchId) -> Vec<u64> {
        let open = self.of_mount.open_inodes(branch);
        self.open_one();
        open
    }

    fn block_writers(&self, branch: BranchId) -> (Vec<u64>, WritersBlocked) {
        self.of_mount.block_writers(branch)
    }

    fn block_opens(&self, branch: BranchId) -> (Vec<u64>, OpensBlocked) {
        let open = self.of_mount.block_opens(branch);
        self.open_one();
        open
    }
}

/// A handle that was given out is good for the file, however late it came.
#[test]
fn nobody_gets_a_file_that_a_rollback_is_about_to_take_away() {
    let rig = Arc::new(Rig::new());
    rig.write("main/ctl", "checkpoint before\n").unwrap();
    rig.write("main/files/f", "text").unwrap();
    let ino = rig.ino("main/files/f").unwrap();
    let of_mount = MountOpenFiles(Arc::downgrade(&rig.fs.mount));
    let meanwhile = Arc::new(OpensMeanwhile { rig: rig.clone(), of_mount, ino, opened: Mutex::default() });
    rig.memory.set_open_files(Some(meanwhile.clone()));
    rig.write("main/ctl", "rollback before\n").unwrap();
    // Each of the two would keep the other alive.
    rig.memory.set_open_files(None);
    let opened = meanwhile.opened.lock().clone();
    let read = opened.iter().map(|opened| opened.and_then(|handle| rig.read_on(handle, 0))).collect::<Vec<_>>();
    assert_eq!(read, [Err(Errno::EAGAIN)], "who may wait opens it afterwards, and finds it gone");
    assert_eq!(rig.fs.open(ROOT, ino, libc::O_RDONLY), Err(Errno::ESTALE));
}

#[test]
fn each_operation_is_a_nanosecond_later_where_the_clock_stands_still() {
    let rig = Rig::with_clock(|| Time(1_700_000_000_000_000_000));
    rig.write("main/files/f", "x").unwrap();
    let mut before = rig.stat("main/files/f").unwrap();
    for size in [5, 3, 9] {
        rig.truncate("main/files/f", size).unwrap();
        assert_eq!(rig.read("main/files/f").unwrap().len() as u64, size);
        let after = rig.stat("main/files/f").unwrap();
        assert!(after.changed > before.changed && after.modified > before.modified, "{before:?}, {after:?}");
        assert_eq!(after.accessed, before.accessed, "reading moves nothing");
        before = after;
    }
}

#[test]
fn the_kernel_keeps_names_and_attributes_of_files_for_a_second_at_most() {
    let rig = filled();
    let files = rig.ino("main/files").unwrap();
    for name in ["a", "d"] {
        let entry = rig.fs.lookup(rig.who, files, OsStr::new(name)).unwrap();
        assert!(entry.lifetime <= Duration::from_secs(1) && entry.attr.lifetime <= Duration::from_secs(1), "{name}");
    }
    assert_eq!(rig.fs.lookup(rig.who, files, OsStr::new("none")).unwrap_err(), Errno::ENOENT, "it is kept not at all");
}

#[test]
fn nothing_that_is_always_there_gives_way_to_a_file() {
    let rig = filled();
    rig.mkdir("main/branches/x").unwrap();
    for (onto, errno) in [
        ("main/status", Errno::EPERM),
        ("main/config/strategy", Errno::EPERM),
        ("main/export/ids.txt", Errno::EPERM),
        ("main/branches/x", Errno::EEXIST),
        ("main/branches/y", Errno::EXDEV),
    ] {
        assert_eq!(rig.mv("main/files/a", onto), Err(errno), "{onto}");
    }
    assert_eq!(rig.read("main/files/a").unwrap(), "a of main");
}
