//! What a power cut may and may not do.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::*;

const SEEDS: u64 = 2000;

/// A disk with one durable file "a" of these bytes, and a handle to it.
fn with_file(bytes: &[u8]) -> (ForgetfulDisk, Box<dyn DiskFile>) {
    let disk = ForgetfulDisk::new();
    disk.replace("a", bytes.to_vec()).unwrap();
    let file = disk.open_write("a").unwrap();
    (disk, file)
}

fn after_cuts(disk: &ForgetfulDisk, path: &str) -> BTreeSet<Vec<u8>> {
    (0..SEEDS).map(|seed| disk.power_cut(seed).bytes(path).unwrap()).collect()
}

fn names_after_cuts(disk: &ForgetfulDisk) -> BTreeSet<Vec<String>> {
    let names = |seed| disk.power_cut(seed).files().into_iter().map(|(path, _)| path).collect();
    (0..SEEDS).map(names).collect()
}

fn sets<const N: usize>(sets: [&[&str]; N]) -> BTreeSet<Vec<String>> {
    let owned = |set: &[&str]| set.iter().map(|&name| name.to_owned()).collect();
    sets.into_iter().map(owned).collect()
}

#[test]
fn synced_bytes_survive_every_cut_and_unsynced_ones_may_not() {
    let (disk, file) = with_file(b"");
    file.write_all_at(b"synced", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(after_cuts(&disk, "a"), BTreeSet::from([b"synced".to_vec()]));
    file.write_all_at(b"SYN", 0).unwrap();
    assert_eq!(after_cuts(&disk, "a"), BTreeSet::from([b"SYNced".to_vec(), b"synced".to_vec()]));
    assert_eq!(disk.power_cut_keep_nothing().bytes("a").unwrap(), b"synced");
    assert_eq!(disk.power_cut_keep_all().bytes("a").unwrap(), b"SYNced");
    assert_eq!(disk.bytes("a").unwrap(), b"SYNced", "the cut disk goes on");
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let (disk, file) = with_file(&[0; 5000]);
    for at in 0..40 {
        file.write_all_at(&[at as u8 + 1; 700], at * 100).unwrap();
    }
    disk.create("b").unwrap();
    for seed in 0..50 {
        let (one, two) = (disk.power_cut(seed), disk.power_cut(seed));
        assert_eq!(one.files(), two.files());
        assert_eq!(one.bytes("a").unwrap(), two.bytes("a").unwrap());
    }
    assert!(after_cuts(&disk, "a").len() > 100, "seeds must differ");
}

#[test]
fn a_later_write_can_survive_an_earlier_one() {
    let (disk, file) = with_file(b"....");
    file.write_all_at(b"1", 0).unwrap();
    file.write_all_at(b"2", 3).unwrap();
    let expected = [b"....", b"1...", b"...2", b"1..2"].map(|bytes| bytes.to_vec());
    assert_eq!(after_cuts(&disk, "a"), BTreeSet::from(expected));
}

#[test]
fn a_torn_write_leaves_old_or_new_sectors_and_no_other_bytes() {
    let (disk, file) = with_file(&[b'o'; 2048]);
    file.write_all_at(&[b'n'; 1500], 300).unwrap();
    let mut patterns = BTreeSet::new();
    for bytes in after_cuts(&disk, "a") {
        assert_eq!(bytes.len(), 2048);
        assert!(bytes[..300].iter().chain(&bytes[1800..]).all(|&byte| byte == b'o'));
        let inside = [300..512, 512..1024, 1024..1536, 1536..1800];
        for sector in inside.clone() {
            let first = bytes[sector.start];
            assert!(first == b'o' || first == b'n');
            assert!(bytes[sector].iter().all(|&byte| byte == first), "a sector is not torn");
        }
        patterns.insert(inside.map(|sector| bytes[sector.start]));
    }
    assert_eq!(patterns.len(), 16, "every subset of the four sectors comes up");
}

#[test]
fn a_torn_append_is_cut_short_or_has_zeros() {
    let (disk, file) = with_file(b"head");
    file.write_all_at(&[b'n'; 1020], 4).unwrap();
    let found = after_cuts(&disk, "a");
    let lengths: BTreeSet<usize> = found.iter().map(Vec::len).collect();
    assert_eq!(lengths, BTreeSet::from([4, 512, 1024]));
    for bytes in &found {
        assert!(bytes.starts_with(b"head"));
        assert!(bytes[4..].iter().all(|&byte| byte == b'n' || byte == 0));
    }
    let zeros = |bytes: &&Vec<u8>| bytes.len() == 1024 && bytes[4..].iter().all(|&byte| byte == 0);
    assert!(found.iter().find(zeros).is_some(), "the length can come without the bytes");
}

#[test]
fn set_len_is_kept_or_lost() {
    let (disk, file) = with_file(b"12345");
    file.set_len(2).unwrap();
    assert_eq!(after_cuts(&disk, "a"), BTreeSet::from([b"12".to_vec(), b"12345".to_vec()]));
    file.sync().unwrap();
    assert_eq!(disk.power_cut_keep_nothing().bytes("a").unwrap(), b"12");
    file.set_len(0).unwrap();
    file.write_all_at(b"new", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(
        after_cuts(&disk, "a"),
        BTreeSet::from([b"new".to_vec()]),
        "a synced change is settled and not played again"
    );
}

#[test]
fn a_name_needs_sync_dir_and_bytes_need_sync() {
    let disk = ForgetfulDisk::new();
    let file = disk.create("a").unwrap();
    file.write_all_at(b"data", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(names_after_cuts(&disk), sets([&[], &["a"]]));
    disk.sync_dir("").unwrap();
    assert_eq!(after_cuts(&disk, "a"), BTreeSet::from([b"data".to_vec()]));
    let late = disk.create("b").unwrap();
    late.write_all_at(b"data", 0).unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(after_cuts(&disk, "b"), BTreeSet::from([b"".to_vec(), b"\0\0\0\0".to_vec(), b"data".to_vec()]));
}

#[test]
fn names_of_one_folder_survive_as_a_prefix() {
    let disk = ForgetfulDisk::new();
    disk.create("a").unwrap();
    disk.create("b").unwrap();
    disk.remove("a").unwrap();
    disk.create("c").unwrap();
    assert_eq!(names_after_cuts(&disk), sets([&[], &["a"], &["a", "b"], &["b"], &["b", "c"]]));
}

#[test]
fn folders_are_independent_of_each_other() {
    let disk = ForgetfulDisk::new();
    disk.create_dir("d").unwrap();
    disk.create_dir("e").unwrap();
    disk.sync_dir("").unwrap();
    disk.create("d/1").unwrap();
    disk.create("e/2").unwrap();
    assert_eq!(names_after_cuts(&disk), sets([&[], &["d/1"], &["e/2"], &["d/1", "e/2"]]));
    disk.sync_dir("d").unwrap();
    assert_eq!(names_after_cuts(&disk), sets([&["d/1"], &["d/1", "e/2"]]));
}

#[test]
fn a_folder_without_a_durable_name_takes_its_files_along() {
    let disk = ForgetfulDisk::new();
    disk.create_dir("d").unwrap();
    disk.create("d/a").unwrap();
    disk.sync_dir("d").unwrap();
    assert_eq!(names_after_cuts(&disk), sets([&[], &["d/a"]]));
    let empty = disk.power_cut_keep_nothing();
    assert_eq!(empty.list("d").unwrap_err().kind(), ErrorKind::NotFound);
    disk.sync_dir("").unwrap();
    assert_eq!(names_after_cuts(&disk), sets([&["d/a"]]));
}

#[test]
fn a_replacing_rename_shows_the_old_or_the_new_file() {
    let (disk, _) = with_file(b"old");
    let new = disk.create("new").unwrap();
    new.write_all_at(b"new", 0).unwrap();
    new.sync().unwrap();
    disk.rename("new", "a").unwrap();
    assert_eq!(after_cuts(&disk, "a"), BTreeSet::from([b"old".to_vec(), b"new".to_vec()]));
    disk.sync_dir("").unwrap();
    assert_eq!(after_cuts(&disk, "a"), BTreeSet::from([b"new".to_vec()]));
    assert_eq!(names_after_cuts(&disk), sets([&["a"]]));
}

#[test]
fn a_rename_before_the_sync_of_the_bytes_loses_them() {
    let (disk, _) = with_file(b"old");
    disk.create("new").unwrap().write_all_at(b"new", 0).unwrap();
    disk.rename("new", "a").unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(disk.power_cut_keep_nothing().bytes("a").unwrap(), b"");
}

#[test]
fn a_rename_between_folders_is_never_half_done() {
    for synced in [None, Some(""), Some("d")] {
        let (disk, _) = with_file(b"moved");
        disk.create_dir("d").unwrap();
        disk.sync_dir("").unwrap();
        disk.create("early").unwrap();
        disk.create("d/first").unwrap();
        disk.rename("a", "d/a").unwrap();
        disk.create("last").unwrap();
        if let Some(folder) = synced {
            disk.sync_dir(folder).unwrap();
        }
        for names in names_after_cuts(&disk) {
            let has = |path: &str| names.iter().any(|name| name == path);
            assert!(has("a") != has("d/a"), "{names:?} after syncing {synced:?}");
            assert!(has("d/a") || synced.is_none(), "{names:?}");
            // Either folder keeps a prefix: what came before the rename if it survived, nothing after it if not.
            assert!(!has("d/a") || (has("early") && has("d/first")), "{names:?}");
            assert!(!has("last") || has("d/a"), "{names:?}");
        }
    }
}

#[test]
fn a_removed_file_comes_back_until_the_folder_is_synced() {
    let (disk, _) = with_file(b"data");
    disk.remove("a").unwrap();
    assert_eq!(disk.power_cut_keep_nothing().bytes("a").unwrap(), b"data");
    disk.sync_dir("").unwrap();
    assert!(disk.power_cut_keep_nothing().files().is_empty());
}

#[test]
fn ignored_syncs_lose_data_and_only_while_ignored() {
    let (disk, file) = with_file(b"old");
    disk.ignore_sync(true);
    file.write_all_at(b"new", 0).unwrap();
    file.sync().unwrap();
    disk.create("b").unwrap();
    disk.sync_dir("").unwrap();
    let after = disk.power_cut_keep_nothing();
    assert_eq!(after.bytes("a").unwrap(), b"old");
    assert_eq!(after.files().len(), 1);
    disk.ignore_sync(false);
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    let after = disk.power_cut_keep_nothing();
    assert_eq!(after.bytes("a").unwrap(), b"new");
    assert_eq!(after.files().len(), 2);
}

#[test]
fn a_cut_disk_shares_nothing_with_the_old_one() {
    let (disk, file) = with_file(b"1");
    let after = disk.power_cut_keep_all();
    file.write_all_at(b"2", 0).unwrap();
    disk.create("b").unwrap();
    assert_eq!(after.bytes("a").unwrap(), b"1");
    assert_eq!(after.files().len(), 1);
    let again = after.power_cut_keep_nothing();
    assert_eq!(again.bytes("a").unwrap(), b"1", "what survived is durable");
}

#[test]
fn clones_are_handles_to_the_same_disk() {
    let disk = ForgetfulDisk::new();
    disk.clone().create("a").unwrap();
    assert_eq!(disk.files(), [("a".to_owned(), 0)]);
}

#[test]
fn a_flip_is_seen_by_open_handles_and_outlives_sync_and_cut() {
    let (disk, file) = with_file(b"aaaa");
    file.write_all_at(b"bb", 2).unwrap();
    disk.flip("a", 0, 1).unwrap();
    disk.flip("a", 3, 1).unwrap();
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"`abc");
    file.sync().unwrap();
    assert_eq!(disk.power_cut_keep_nothing().bytes("a").unwrap(), b"`abc");
    assert_eq!(disk.flip("a", 4, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(disk.flip("b", 0, 1).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn replace_plants_a_durable_file() {
    let disk = ForgetfulDisk::new();
    assert_eq!(disk.replace("d/a", vec![]).unwrap_err().kind(), ErrorKind::NotFound);
    disk.create_dir("d").unwrap();
    disk.sync_dir("").unwrap();
    disk.replace("d/a", b"1".to_vec()).unwrap();
    disk.replace("d/a", b"22".to_vec()).unwrap();
    assert_eq!(disk.power_cut_keep_nothing().files(), [("d/a".to_owned(), 2)]);
}

#[test]
fn an_armed_sync_failure_hits_this_thread_only_and_once() {
    let (disk, file) = with_file(b"");
    file.write_all_at(b"x", 0).unwrap();
    disk.fail_next_sync(libc::EIO);
    std::thread::scope(|scope| {
        let other = disk.create("b").unwrap();
        scope.spawn(move || other.sync().unwrap());
    });
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(libc::EIO));
    file.sync().unwrap();
    assert_eq!(disk.power_cut_keep_all().bytes("a").unwrap(), b"");
}

#[test]
fn a_limited_disk_takes_what_fits_and_gives_room_back() {
    let (disk, file) = with_file(b"");
    let full = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    disk.limit(3 * 4096, 2);
    full(file.write_all_at(&[1; 4 * 4096], 0));
    assert_eq!(disk.bytes("a").unwrap(), [1; 3 * 4096], "a part of it landed");
    file.write_all_at(&[2; 10], 4096).unwrap();
    let other = disk.create("b").unwrap();
    full(disk.create("c").map(drop));
    full(other.allocate(1));
    disk.remove("a").unwrap();
    full(other.allocate(1));
    drop(file);
    other.allocate(2 * 4096).unwrap();
    assert_eq!(disk.space().unwrap().free_bytes, 4096);
    full(disk.power_cut_keep_all().create("c").unwrap().allocate(3 * 4096));
}

#[test]
fn an_absurd_offset_is_an_error_and_not_an_empty_memory() {
    let (_, file) = with_file(b"");
    assert_eq!(file.write_all_at(b"x", u64::MAX).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(file.set_len(1 << 60).unwrap_err().kind(), ErrorKind::FileTooLarge);
}

#[test]
fn a_cut_is_one_instant_for_all_files() {
    let disk = ForgetfulDisk::new();
    let (data, index) = (disk.create("data").unwrap(), disk.create("index").unwrap());
    disk.sync_dir("").unwrap();
    // What is copied between the two files gives the writer time to slip in, if it could.
    for number in 0..200 {
        disk.replace(&format!("filler-{number}"), vec![0; 4096]).unwrap();
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for at in 0..20_000 {
                data.write_all_at(b"d", at).unwrap();
                data.sync().unwrap();
                index.write_all_at(b"i", at).unwrap();
                index.sync().unwrap();
            }
        });
        while !writer.is_finished() {
            let after = disk.power_cut_keep_nothing();
            let len = |path| after.bytes(path).unwrap().len();
            assert!(len("index") <= len("data"), "the index points to data that is there");
        }
    });
}
