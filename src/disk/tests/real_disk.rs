//! What is special in the real disk: its root, its modes and its lock.

use super::*;

fn real() -> (TempFolder, RealDisk) {
    let folder = TempFolder::new();
    let disk = RealDisk::new(&folder.0);
    disk.create_dir("").unwrap();
    (folder, disk)
}

#[test]
fn makes_the_parents_of_its_root() {
    let folder = TempFolder::new();
    let disk = RealDisk::new(folder.0.join("deep/store"));
    assert_eq!(kind(disk.list("")), ErrorKind::NotFound);
    disk.create_dir("").unwrap();
    write(&disk, "a", b"here");
    assert_eq!(std::fs::read(folder.0.join("deep/store/a")).unwrap(), b"here");
}

#[test]
fn a_file_in_the_place_of_the_root_is_an_error() {
    let (folder, disk) = real();
    write(&disk, "file", b"");
    let inside = RealDisk::new(folder.0.join("file"));
    assert_eq!(kind(inside.create_dir("")), ErrorKind::AlreadyExists);
}

#[test]
fn a_large_file_that_was_removed_is_let_go_by_another_thread() {
    let (folder, disk) = real();
    let file = disk.create("large").unwrap();
    file.set_len(1 << 30).unwrap();
    disk.remove("large").unwrap();
    drop(file);
    let is_open = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let mut links = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
        links.any(|path| path.starts_with(&folder.0))
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while is_open() {
        assert!(std::time::Instant::now() < end, "it is still open");
        std::thread::yield_now();
    }
}

#[test]
fn symbolic_links_are_not_followed() {
    let (folder, disk) = real();
    std::fs::write(folder.0.join("target"), "secret").unwrap();
    std::os::unix::fs::symlink("target", folder.0.join("link")).unwrap();
    assert!(disk.open("link").is_err());
    assert!(disk.open_write("link").is_err());
    assert!(disk.create("link").is_err());
}

#[test]
fn what_is_no_regular_file_is_named_and_never_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (folder, disk) = real();
    mknodat(CWD, folder.0.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::os::unix::net::UnixListener::bind(folder.0.join("socket")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.0.join("link")).unwrap();
    for (name, found) in [("fifo", "a FIFO"), ("socket", "a socket"), ("link", "a symbolic link")] {
        for error in [disk.open(name).unwrap_err(), disk.open_write(name).unwrap_err()] {
            assert_eq!(error.to_string(), format!("{name} is {found} and not a regular file"));
        }
    }
    std::fs::rename(folder.0.join("fifo"), folder.0.join("lock")).unwrap();
    let error = disk.lock("pid 1").unwrap_err();
    assert!(error.to_string().contains("lock is a FIFO and not a regular file"), "{error}");
}

#[test]
fn a_link_in_the_place_of_a_folder_leads_nowhere() {
    let (folder, disk) = real();
    let elsewhere = folder.0.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("file"), "of somebody else").unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.0.join("journal")).unwrap();
    let errors = [
        disk.open("journal/file").map(drop),
        disk.create("journal/new").map(drop),
        disk.list("journal").map(drop),
        disk.create_dir("journal"),
        disk.sync_dir("journal"),
        disk.mode("journal/file").map(drop),
        disk.remove("journal/file"),
        disk.rename("journal/file", "file"),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.to_string(), "journal is a symbolic link and not a folder");
    }
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1);
}

#[test]
fn the_root_may_be_behind_a_link() {
    let (folder, disk) = real();
    disk.create_dir("store").unwrap();
    std::os::unix::fs::symlink("store", folder.0.join("link")).unwrap();
    let linked = RealDisk::new(folder.0.join("link"));
    linked.create_dir("").unwrap();
    write(&linked, "a", b"here");
    assert_eq!(content(&disk, "store/a"), b"here");
}

#[test]
fn a_copy_has_what_was_there_when_it_began() {
    let (folder, disk) = real();
    let other = RealDisk::new(folder.0.join("copy"));
    other.create_dir("").unwrap();
    write(&disk, "a", b"content");
    assert_eq!(disk.copy("a", &other).unwrap(), 7);
    assert_eq!(content(&other, "a"), b"content");
    assert_eq!(other.mode("a").unwrap(), 0o600);
    assert_eq!(kind(disk.copy("a", &other)), ErrorKind::AlreadyExists);
}

#[test]
fn reports_a_mode_that_is_too_wide() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, disk) = real();
    write(&disk, "key", b"");
    let wide = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(folder.0.join("key"), wide).unwrap();
    assert_eq!(disk.mode("key").unwrap(), 0o644);
}

#[test]
fn a_second_lock_names_the_first_holder() {
    let (folder, disk) = real();
    let lock = disk.lock("pid 123,\nmounted at /mnt/x").unwrap();
    assert_eq!(disk.mode("lock").unwrap(), 0o600);
    assert_eq!(std::fs::read(folder.0.join("lock")).unwrap(), b"pid 123, mounted at /mnt/x\n");
    match disk.lock("pid 456") {
        Err(LockError::Held { holder, .. }) => assert_eq!(holder, "pid 123, mounted at /mnt/x"),
        other => panic!("{other:?}"),
    }
    assert_eq!(content(&disk, "lock"), b"pid 123, mounted at /mnt/x\n", "the loser wrote nothing");
    drop(lock);
    assert_eq!(content(&disk, "lock"), b"");
    drop(disk.lock("pid 456").unwrap());
}

#[test]
fn a_stale_longer_holder_is_overwritten() {
    let (folder, disk) = real();
    std::fs::write(folder.0.join("lock"), "a very long line of a process that was killed\nx").unwrap();
    let _lock = disk.lock("pid 7").unwrap();
    assert_eq!(content(&disk, "lock"), b"pid 7\n");
}

#[test]
fn a_lock_without_a_root_is_an_io_error() {
    let folder = TempFolder::new();
    let error = RealDisk::new(&folder.0).lock("pid 1").unwrap_err();
    assert!(matches!(error, LockError::Io { .. }), "{error}");
}
