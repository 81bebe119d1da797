//! Which call fails, how, and what a failed call leaves behind.

use super::*;

type Faulty = FaultyDisk<ForgetfulDisk>;

fn with_file() -> (Faulty, Box<dyn DiskFile>) {
    let disk = FaultyDisk::new(ForgetfulDisk::new());
    let file = disk.create("a").unwrap();
    disk.sync_dir("").unwrap();
    (disk, file)
}

fn code<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// One call of every kind, in the order of `DiskCall::ALL`.
fn one_of_each(disk: &dyn Disk) -> io::Result<()> {
    let file = disk.create("a")?;
    disk.open("a")?;
    file.write_all_at(b"abc", 0)?;
    file.sync()?;
    disk.sync_dir("")?;
    disk.rename("a", "b")?;
    disk.remove("b")?;
    file.set_len(3)?;
    file.read_exact_at(&mut [0; 3], 0)?;
    disk.list("")?;
    file.map().map(|_| ())
}

#[test]
fn the_loop_over_n_fails_every_call_once_and_ends() {
    let mut failures = 0;
    for nth in 1.. {
        let disk = FaultyDisk::new(ForgetfulDisk::new());
        disk.plan(Fault::once(nth, DiskCall::ALL, libc::EIO));
        let result = one_of_each(&disk);
        if disk.calls() < nth {
            result.unwrap();
            break;
        }
        assert_eq!(code(result), Some(libc::EIO), "call {nth}");
        assert_eq!(disk.calls(), nth);
        failures += 1;
    }
    assert_eq!(failures, DiskCall::ALL.len());
}

#[test]
fn each_kind_fails_alone() {
    for kind in DiskCall::ALL {
        let disk = FaultyDisk::new(ForgetfulDisk::new());
        disk.plan(Fault::once(1, std::slice::from_ref(kind), libc::ENOSPC));
        assert_eq!(code(one_of_each(&disk)), Some(libc::ENOSPC), "{kind:?}");
        assert_eq!(disk.calls(), 1, "{kind:?}");
        disk.plan(Fault::once(0, std::slice::from_ref(kind), libc::ENOSPC));
        let _ = disk.remove("a").or_else(|_| disk.remove("b"));
        one_of_each(&disk).unwrap();
    }
}

#[test]
fn a_failed_write_changes_nothing_and_a_short_one_half() {
    let (disk, file) = with_file();
    disk.plan(Fault::once(2, &[DiskCall::Write], libc::ENOSPC));
    file.write_all_at(b"....", 0).unwrap();
    assert_eq!(code(file.write_all_at(b"abcd", 0)), Some(libc::ENOSPC));
    assert_eq!(read(&*file), b"....");
    disk.plan(Fault { short_write: true, ..Fault::once(1, &[DiskCall::Write], libc::EIO) });
    assert_eq!(code(file.write_all_at(b"abcd", 0)), Some(libc::EIO));
    assert_eq!(read(&*file), b"ab..");
    file.write_all_at(b"abcd", 0).unwrap();
}

#[test]
fn a_sticky_fault_stays_until_cleared() {
    let (disk, file) = with_file();
    disk.plan(Fault { sticky: true, ..Fault::once(2, DiskCall::CHANGES, libc::ENOSPC) });
    file.write_all_at(b"a", 0).unwrap();
    assert_eq!(code(file.write_all_at(b"b", 1)), Some(libc::ENOSPC));
    assert_eq!(code(disk.create("b")), Some(libc::ENOSPC));
    assert_eq!(code(disk.clone().rename("a", "b")), Some(libc::ENOSPC));
    file.read_exact_at(&mut [0], 0).unwrap();
    assert_eq!(disk.calls(), 4, "a read does not count");
    disk.clear();
    file.write_all_at(b"b", 1).unwrap();
    assert_eq!(disk.calls(), 1, "without a plan every kind counts");
}

#[test]
fn a_failed_sync_makes_nothing_durable() {
    let (disk, file) = with_file();
    file.write_all_at(b"data", 0).unwrap();
    disk.plan(Fault::once(1, &[DiskCall::Sync], libc::EIO));
    assert_eq!(code(file.sync()), Some(libc::EIO));
    assert!(disk.inner().power_cut_keep_nothing().bytes("a").unwrap().is_empty());
    file.sync().unwrap();
    assert_eq!(disk.inner().power_cut_keep_nothing().bytes("a").unwrap(), b"data");
}

#[test]
fn lost_pages_stay_lost_though_the_next_sync_succeeds() {
    let disk = FaultyDisk::losing_pages(ForgetfulDisk::new());
    let file = disk.create("a").unwrap();
    let other = disk.create("b").unwrap();
    disk.sync_dir("").unwrap();
    file.write_all_at(b"lost", 0).unwrap();
    other.write_all_at(b"safe", 0).unwrap();
    disk.plan(Fault::once(1, &[DiskCall::Sync], libc::EIO));
    assert_eq!(code(file.sync()), Some(libc::EIO));
    file.write_all_at(b"kept", 4).unwrap();
    file.sync().unwrap();
    other.sync().unwrap();
    assert_eq!(read(&*file), b"lostkept");
    let after = disk.inner().power_cut_keep_all();
    assert_eq!(after.bytes("a").unwrap(), b"\0\0\0\0kept");
    assert_eq!(after.bytes("b").unwrap(), b"safe");
}
