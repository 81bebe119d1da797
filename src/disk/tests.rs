//! The contract of [`Disk`], run over every implementation.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

mod faulty_disk;
mod real_disk;

/// A folder of its own for one test, removed at the end.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("engramfs-disk-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs each check on a fresh disk of every kind, as a test of its own.
macro_rules! contract {
    ($($check:ident)*) => {
        mod real {
            $(#[test] fn $check() {
                let folder = super::TempFolder::new();
                let disk = super::RealDisk::new(&folder.0);
                super::Disk::create_dir(&disk, "").unwrap();
                super::$check(&disk);
            })*
        }
        mod forgetful {
            $(#[test] fn $check() { super::$check(&super::ForgetfulDisk::new()); })*
        }
        mod faulty {
            $(#[test] fn $check() { super::$check(&super::FaultyDisk::new(super::ForgetfulDisk::new())); })*
        }
    };
}

contract! {
    a_written_file_reads_back
    create_refuses_a_taken_name
    what_is_missing_is_not_found
    a_folder_is_no_file_and_a_file_no_folder
    a_read_past_the_end_is_an_error
    a_gap_reads_as_zeros
    set_len_cuts_and_extends
    a_reading_handle_cannot_write
    open_write_keeps_what_is_there
    rename_replaces_and_handles_stay
    rename_moves_between_folders
    remove_leaves_open_handles_alone
    list_is_sorted_and_one_level_deep
    create_dir_may_be_repeated
    modes_are_private
    paths_cannot_leave_the_root
    map_gives_the_whole_file_aligned
    map_of_an_empty_file_is_empty
    space_is_plausible
    allocated_bytes_take_room
    many_threads_write_one_file
}

fn write(disk: &dyn Disk, path: &str, bytes: &[u8]) {
    disk.create(path).unwrap().write_all_at(bytes, 0).unwrap();
}

fn read(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn content(disk: &dyn Disk, path: &str) -> Vec<u8> {
    read(&*disk.open(path).unwrap())
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.kind(),
    }
}

fn a_written_file_reads_back(disk: &dyn Disk) {
    let file = disk.create("a").unwrap();
    assert_eq!(file.len().unwrap(), 0);
    file.write_all_at(b"hello world", 0).unwrap();
    file.write_all_at(b"W", 6).unwrap();
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(read(&*file), b"hello World");
    assert_eq!(content(disk, "a"), b"hello World");
    let mut part = [0; 3];
    disk.open("a").unwrap().read_exact_at(&mut part, 4).unwrap();
    assert_eq!(&part, b"o W");
}

fn create_refuses_a_taken_name(disk: &dyn Disk) {
    write(disk, "a", b"first");
    assert_eq!(kind(disk.create("a")), ErrorKind::AlreadyExists);
    assert_eq!(content(disk, "a"), b"first");
    disk.create_dir("d").unwrap();
    assert_eq!(kind(disk.create("d")), ErrorKind::AlreadyExists);
}

fn what_is_missing_is_not_found(disk: &dyn Disk) {
    assert_eq!(kind(disk.open("a")), ErrorKind::NotFound);
    assert_eq!(kind(disk.open_write("a")), ErrorKind::NotFound);
    assert_eq!(kind(disk.create("d/a")), ErrorKind::NotFound);
    assert_eq!(kind(disk.rename("a", "b")), ErrorKind::NotFound);
    assert_eq!(kind(disk.remove("a")), ErrorKind::NotFound);
    assert_eq!(kind(disk.list("d")), ErrorKind::NotFound);
    assert_eq!(kind(disk.create_dir("d/e")), ErrorKind::NotFound);
    assert_eq!(kind(disk.sync_dir("d")), ErrorKind::NotFound);
    assert_eq!(kind(disk.mode("a")), ErrorKind::NotFound);
    write(disk, "a", b"kept");
    assert_eq!(kind(disk.rename("a", "d/a")), ErrorKind::NotFound);
    assert_eq!(content(disk, "a"), b"kept");
}

fn a_folder_is_no_file_and_a_file_no_folder(disk: &dyn Disk) {
    disk.create_dir("d").unwrap();
    write(disk, "f", b"");
    assert_eq!(kind(disk.open("d")), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.open_write("d")), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.remove("d")), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.rename("f", "d")), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.create_dir("f")), ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.list("f")), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.sync_dir("f")), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.create("f/a")), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.open("f/a")), ErrorKind::NotADirectory);
}

fn a_read_past_the_end_is_an_error(disk: &dyn Disk) {
    write(disk, "a", b"12345");
    let file = disk.open("a").unwrap();
    let mut two = [0; 2];
    assert_eq!(kind(file.read_exact_at(&mut two, 4)), ErrorKind::UnexpectedEof);
    assert_eq!(kind(file.read_exact_at(&mut two, 1 << 40)), ErrorKind::UnexpectedEof);
    file.read_exact_at(&mut two, 3).unwrap();
    file.read_exact_at(&mut [], 1 << 40).unwrap();
}

fn a_gap_reads_as_zeros(disk: &dyn Disk) {
    let file = disk.create("a").unwrap();
    file.write_all_at(b"end", 5).unwrap();
    assert_eq!(read(&*file), b"\0\0\0\0\0end");
    file.write_all_at(b"", 100).unwrap();
    assert_eq!(file.len().unwrap(), 8, "no bytes extend no file");
}

fn set_len_cuts_and_extends(disk: &dyn Disk) {
    let file = disk.create("a").unwrap();
    file.write_all_at(b"12345", 0).unwrap();
    file.set_len(2).unwrap();
    file.set_len(4).unwrap();
    assert_eq!(read(&*file), b"12\0\0");
}

fn a_reading_handle_cannot_write(disk: &dyn Disk) {
    write(disk, "a", b"12345");
    let file = disk.open("a").unwrap();
    assert!(file.write_all_at(b"x", 0).is_err());
    assert!(file.set_len(0).is_err());
    file.sync().unwrap();
    assert_eq!(read(&*file), b"12345");
}

fn open_write_keeps_what_is_there(disk: &dyn Disk) {
    write(disk, "a", b"12345");
    let file = disk.open_write("a").unwrap();
    file.write_all_at(b"6", 5).unwrap();
    assert_eq!(read(&*file), b"123456");
}

fn rename_replaces_and_handles_stay(disk: &dyn Disk) {
    write(disk, "old", b"old");
    write(disk, "new", b"new");
    let old = disk.open("old").unwrap();
    let new = disk.open_write("new").unwrap();
    disk.rename("new", "old").unwrap();
    new.write_all_at(b"!", 3).unwrap();
    assert_eq!(content(disk, "old"), b"new!");
    assert_eq!(read(&*old), b"old");
    assert_eq!(disk.list("").unwrap(), ["old"]);
    disk.rename("old", "old").unwrap();
    assert_eq!(content(disk, "old"), b"new!");
}

fn rename_moves_between_folders(disk: &dyn Disk) {
    disk.create_dir("d").unwrap();
    write(disk, "a", b"moved");
    disk.rename("a", "d/b").unwrap();
    assert_eq!(disk.list("").unwrap(), ["d"]);
    assert_eq!(content(disk, "d/b"), b"moved");
}

fn remove_leaves_open_handles_alone(disk: &dyn Disk) {
    write(disk, "a", b"still here");
    let file = disk.open_write("a").unwrap();
    disk.remove("a").unwrap();
    assert_eq!(kind(disk.open("a")), ErrorKind::NotFound);
    file.write_all_at(b"S", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(read(&*file), b"Still here");
    write(disk, "a", b"another");
    assert_eq!(read(&*file), b"Still here");
}

fn list_is_sorted_and_one_level_deep(disk: &dyn Disk) {
    assert!(disk.list("").unwrap().is_empty());
    disk.create_dir("d").unwrap();
    disk.create_dir("d/e").unwrap();
    for path in ["d/2", "d/10", "d/e/deep", "d-1", "a", "ä"] {
        write(disk, path, b"");
    }
    assert_eq!(disk.list("").unwrap(), ["a", "d", "d-1", "ä"]);
    assert_eq!(disk.list("d").unwrap(), ["10", "2", "e"]);
    assert_eq!(disk.list("d/e").unwrap(), ["deep"]);
}

fn create_dir_may_be_repeated(disk: &dyn Disk) {
    disk.create_dir("").unwrap();
    disk.create_dir("d").unwrap();
    write(disk, "d/a", b"kept");
    disk.create_dir("d").unwrap();
    disk.create_dir("").unwrap();
    assert_eq!(content(disk, "d/a"), b"kept");
    disk.sync_dir("d").unwrap();
    disk.sync_dir("").unwrap();
}

fn modes_are_private(disk: &dyn Disk) {
    disk.create_dir("d").unwrap();
    write(disk, "d/a", b"");
    assert_eq!(disk.mode("d/a").unwrap(), 0o600);
    assert_eq!(disk.mode("d").unwrap(), 0o700);
    assert_eq!(disk.mode("").unwrap(), 0o700);
}

fn paths_cannot_leave_the_root(disk: &dyn Disk) {
    disk.create_dir("d").unwrap();
    for path in ["/etc", "..", "d/../a", "d//a", "d/", "./a", "a\0b"] {
        assert_eq!(kind(disk.create(path)), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.open(path)), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.open_write(path)), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.remove(path)), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.rename(path, "x")), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.rename("x", path)), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.list(path)), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.create_dir(path)), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.sync_dir(path)), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(kind(disk.mode(path)), ErrorKind::InvalidInput, "{path:?}");
    }
    assert_eq!(kind(disk.create("")), ErrorKind::InvalidInput);
    assert_eq!(disk.list("").unwrap(), ["d"]);
}

fn map_gives_the_whole_file_aligned(disk: &dyn Disk) {
    let bytes: Vec<u8> = (0..10_000).map(|at: u32| (at % 251) as u8).collect();
    write(disk, "a", &bytes);
    let mapped = disk.open("a").unwrap().map().unwrap();
    disk.remove("a").unwrap();
    assert_eq!(&*mapped, &bytes[..], "the mapping outlives handle and name");
    assert_eq!(mapped.as_ptr().addr() % 64, 0);
    std::thread::spawn(move || assert_eq!(mapped[250], 250)).join().unwrap();
}

fn map_of_an_empty_file_is_empty(disk: &dyn Disk) {
    let file = disk.create("a").unwrap();
    assert!(file.map().unwrap().is_empty());
}

fn space_is_plausible(disk: &dyn Disk) {
    let space = disk.space().unwrap();
    assert!(space.total_bytes >= 1 << 20, "{space:?}");
    assert!(space.available_bytes <= space.free_bytes && space.free_bytes <= space.total_bytes, "{space:?}");
    assert!(space.inodes_free <= space.inodes_total, "{space:?}");
}

fn allocated_bytes_take_room(disk: &dyn Disk) {
    let file = disk.create("a").unwrap();
    file.allocate(1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    let bytes = read(&*file);
    let blocks = bytes.chunks(FILLER_BYTES).zip(0..);
    assert!(blocks.into_iter().all(|(block, number)| block == [0; FILLER_BYTES] || block == filler(number)));
}

fn many_threads_write_one_file(disk: &dyn Disk) {
    let file = disk.create("a").unwrap();
    std::thread::scope(|scope| {
        for part in 0..4u8 {
            let file = &file;
            scope.spawn(move || {
                for at in 0..50 {
                    file.write_all_at(&[part; 7], u64::from(part) * 350 + at * 7).unwrap();
                    file.sync().unwrap();
                }
            });
        }
    });
    let expected: Vec<u8> = (0..4u8).flat_map(|part| [part; 350]).collect();
    assert_eq!(read(&*file), expected);
}
