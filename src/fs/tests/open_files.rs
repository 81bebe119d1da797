//! What open files tell: that there is more to read, and that a value was refused.

use super::rig::{ANEW, ROOT, Rig};
use crate::fs::errno::Errno;

/// Polls what a handle has not seen the end of yet, and returns what hears when it is woken.
fn polled(rig: &Rig, handle: u64) -> std::sync::mpsc::Receiver<()> {
    rig.read_on(handle, 0).unwrap();
    let (wake, woken) = std::sync::mpsc::channel();
    let waker = move || wake.send(()).unwrap();
    assert_eq!(rig.fs.poll(handle, Some(Box::new(waker))), Ok(false));
    woken
}

#[test]
fn who_polls_a_shared_log_hears_of_branches_far_below() {
    const SOON: std::time::Duration = std::time::Duration::from_secs(5);
    let rig = Rig::new();
    rig.mkdir("main/branches/a").unwrap();
    rig.mkdir("main/branches/a/branches/b").unwrap();
    let b = "main/branches/a/branches/b";
    rig.write(&format!("{b}/config/signal_scope"), "session").unwrap();
    rig.write(&format!("{b}/shared/signals/key"), "value").unwrap();
    let above = rig.open("main/shared/events.jsonl", libc::O_RDONLY).unwrap();
    let woken = polled(&rig, above);
    rig.write(&format!("{b}/config/session"), "another").unwrap();
    woken.recv_timeout(SOON).expect("the signal has ended");
    assert_eq!(rig.fs.poll(above, None), Ok(true));
    for file in ["shared/events.jsonl", "shared/log/entries.jsonl"] {
        let inside = rig.open(&format!("{b}/{file}"), libc::O_RDONLY).unwrap();
        let woken = polled(&rig, inside);
        rig.rmdir(b).unwrap();
        woken.recv_timeout(SOON).expect("the branch has ended");
        assert_eq!(rig.fs.poll(inside, None), Ok(true));
        rig.mkdir(b).unwrap();
    }
}

#[test]
fn what_follows_a_refused_line_of_a_setting_is_refused_until_it_is_begun_again() {
    let rig = Rig::new();
    rig.write("main/config/approvers", "uid:0\n").unwrap();
    let handle = rig.open("main/config/gate", ANEW).unwrap();
    assert_eq!(rig.fs.write(handle, 0, b"foo\n"), Err(Errno::EINVAL));
    assert_eq!(rig.fs.write(handle, 0, b"approval 1\n"), Err(Errno::EINVAL));
    assert_eq!((rig.fs.flush(handle), rig.fs.fsync(handle)), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
    assert_ne!(rig.read("main/config/gate").unwrap(), "approval 1\n");
    rig.ftruncate(handle, "main/config/gate", 0).unwrap();
    rig.fs.write(handle, 0, b"approval 1\n").unwrap();
    rig.fs.flush(handle).unwrap();
    rig.fs.release(handle);
    assert_eq!(rig.read("main/config/gate").unwrap(), "approval 1\n");
    let handle = rig.open("main/config/rules", ANEW).unwrap();
    for bad in [&b"\xff\n"[..], &b"a".repeat(65 << 10)] {
        let refused = rig.fs.write(handle, 0, bad).unwrap_err();
        assert_eq!(rig.fs.write(handle, 0, b"** text\n"), Err(refused));
        assert_eq!(rig.fs.flush(handle), Err(refused));
        rig.ftruncate(handle, "main/config/rules", 0).unwrap();
    }
    rig.fs.flush(handle).unwrap();
    rig.fs.release(handle);
}

#[test]
fn each_write_of_a_setting_of_one_line_counts_before_the_close() {
    let rig = Rig::new();
    let handle = rig.open("main/config/task", ANEW).unwrap();
    for value in ["one\n", "another\n"] {
        rig.fs.write(handle, 0, value.as_bytes()).unwrap();
        assert_eq!(rig.read("main/config/task").unwrap(), value);
    }
    rig.fs.write(handle, 0, b"\x07").unwrap_err();
    rig.fs.write(handle, 0, b"third\n").unwrap();
    assert_eq!(rig.read("main/config/task").unwrap(), "third\n", "what was refused ends nothing");
    rig.fs.release(handle);
}

#[test]
fn the_attributes_of_a_signal_are_there_for_who_wants_to_make_or_to_replace_one() {
    let rig = Rig::new();
    rig.write("main/shared/signals/key", "value").unwrap();
    let ino = rig.ino("main/shared/signals/key").unwrap();
    let set = |name: &str, flags: i32| rig.fs.setxattr(ROOT, ino, name.as_ref(), b"1h", flags);
    assert_eq!(set("user.engramfs.ttl", libc::XATTR_CREATE), Err(Errno::EEXIST));
    assert_eq!(rig.fs.getxattr(ino, "user.engramfs.ttl".as_ref()).unwrap(), b"");
    assert_eq!(set("user.engramfs.ttl", libc::XATTR_REPLACE), Ok(()));
    assert_eq!(rig.fs.getxattr(ino, "user.engramfs.ttl".as_ref()).unwrap(), b"3600s");
    assert_eq!(set("user.engramfs.uid", libc::XATTR_CREATE), Err(Errno::EPERM));
}

#[test]
fn a_control_file_is_readable_until_its_answer_is_read_to_the_end() {
    let rig = Rig::new();
    let handle = rig.open("main/ctl", libc::O_RDWR).unwrap();
    let readable = || rig.fs.poll(handle, None).unwrap();
    assert!(readable(), "the last answer, which may be none");
    for line in ["checkpoint one\n", "checkpoint two\n"] {
        rig.fs.write(handle, 0, line.as_bytes()).unwrap();
        assert!(readable());
        rig.fs.read(handle, 0, 1).unwrap();
        assert!(readable(), "the rest of it");
        rig.read_on(handle, 1).unwrap();
        assert!(!readable());
    }
    rig.fs.write(handle, 0, b"checkpoint thr").unwrap();
    assert!(readable(), "a read ends the line");
}
