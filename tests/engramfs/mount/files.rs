//! `files/`: what programs do to an ordinary file system, and what only branches have.

mod posix;
mod programs;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use super::{Mounted, Site, errno, names, read, rename_with, save};

/// A mount with a folder and two files in main.
fn filled() -> Mounted {
    let mount = Mounted::new();
    fs::create_dir(mount.at("main/files/d")).unwrap();
    save(mount.at("main/files/a"), "a of main\n").unwrap();
    save(mount.at("main/files/d/b"), "b of main\n").unwrap();
    mount
}

#[test]
fn a_fork_sees_what_was_written_before_it_and_nothing_later() {
    let mount = filled();
    let mut open = File::options().append(true).open(mount.at("main/files/a")).unwrap();
    open.write_all(b"written, not closed\n").unwrap();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    open.write_all(b"later\n").unwrap();
    save(mount.at("main/files/new"), "later").unwrap();
    fs::remove_file(mount.at("main/files/d/b")).unwrap();
    assert_eq!(read(mount.at("main/branches/x/files/a")), "a of main\nwritten, not closed\n");
    assert_eq!(names(mount.at("main/branches/x/files")), ["a", "d"]);
    assert_eq!(read(mount.at("main/branches/x/files/d/b")), "b of main\n");
    save(mount.at("main/branches/x/files/a"), "a of x\n").unwrap();
    assert_eq!(read(mount.at("main/files/a")), "a of main\nwritten, not closed\nlater\n");
    assert_eq!(names(mount.at("main/files/d")), Vec::<String>::new());
}

#[test]
fn a_checkpoint_keeps_files_as_they_were_and_takes_no_change() {
    let mount = filled();
    fs::create_dir(mount.at("main/checkpoints/v1")).unwrap();
    save(mount.at("main/files/a"), "changed\n").unwrap();
    fs::remove_dir_all(mount.at("main/files/d")).unwrap();
    let frozen = |name: &str| mount.at(&format!("main/checkpoints/v1/files/{name}"));
    assert_eq!((read(frozen("a")), read(frozen("d/b"))), ("a of main\n".into(), "b of main\n".into()));
    for refused in [
        save(frozen("a"), "x"),
        save(frozen("new"), "x"),
        fs::create_dir(frozen("new")),
        fs::remove_file(frozen("a")),
        fs::remove_dir(frozen("d")),
        fs::rename(frozen("a"), frozen("c")),
        fs::hard_link(frozen("a"), frozen("c")),
        std::os::unix::fs::symlink("a", frozen("c")),
        fs::set_permissions(frozen("a"), std::os::unix::fs::PermissionsExt::from_mode(0o600)),
    ] {
        assert_eq!(errno(refused), libc::EROFS);
    }
    // Taken again under the same label it is another one.
    fs::remove_dir(mount.at("main/checkpoints/v1")).unwrap();
    fs::create_dir(mount.at("main/checkpoints/v1")).unwrap();
    assert_eq!((read(frozen("a")), frozen("d").exists()), ("changed\n".into(), false));
}

#[test]
fn a_handle_on_a_discarded_branch_is_stale() {
    let mount = filled();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    let mut open = File::options().read(true).write(true).open(mount.at("main/branches/x/files/a")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "a of main\n");
    fs::remove_dir(mount.at("main/branches/x")).unwrap();
    assert_eq!(errno(open.write_all(b"x")), libc::ESTALE);
    // The kernel has dropped the pages that it had.
    assert_eq!(errno(open.read_at(&mut [0; 8], 0)), libc::ESTALE);
    assert_eq!(errno(open.metadata()), libc::ESTALE);
}

#[test]
fn files_stay_in_their_branch() {
    let mount = filled();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    mount.put("main/vectors/r.json", "a record");
    let rename = |from: &str, to: &str| errno(fs::rename(mount.at(from), mount.at(to)));
    assert_eq!(rename("main/files/a", "main/branches/x/files/c"), libc::EXDEV);
    assert_eq!(rename("main/files/a", "main/vectors/c.json"), libc::EXDEV);
    assert_eq!(rename("main/files/a", "main/a"), libc::EXDEV);
    assert_eq!(rename("main/vectors/r.json", "main/files/r.json"), libc::EXDEV);
    assert_eq!(rename("main/branches/x", "main/files/x"), libc::EINVAL);
    assert_eq!(rename("main/files", "main/branches/x/files/sub"), libc::EPERM);
    assert_eq!(rename("main/files", "main/other"), libc::EPERM);
    assert_eq!(rename("main/files/a", "main/status"), libc::EPERM);
    assert_eq!(errno(fs::remove_dir(mount.at("main/files"))), libc::EPERM);
    let link = fs::hard_link(mount.at("main/files/a"), mount.at("main/branches/x/files/c"));
    assert_eq!(errno(link), libc::EXDEV);
    let whiteout = rename_with(&mount.at("main/files/a"), &mount.at("main/files/c"), libc::RENAME_WHITEOUT);
    assert_eq!(errno(whiteout), libc::EINVAL);
    mount.sh("mv main/files/a main/branches/x/files/moved; mv main/vectors/r.json main/files/");
    assert_eq!(read(mount.at("main/branches/x/files/moved")), "a of main\n");
    assert_eq!(super::json(mount.at("main/files/r.json"))["text"], "a record");
    assert!(!mount.has("main/files/a") && !mount.has("main/vectors/r.json"));
}

#[test]
fn what_a_merge_brings_is_seen_at_once() {
    let mount = filled();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    save(mount.at("main/branches/x/files/a"), "a of x, which is longer\n").unwrap();
    save(mount.at("main/branches/x/files/d/new"), "new\n").unwrap();
    fs::remove_file(mount.at("main/branches/x/files/d/b")).unwrap();
    // All of this is in the kernel's caches before.
    let mut open = File::open(mount.at("main/files/a")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), names(mount.at("main/files/d"))), ("a of main\n", vec!["b".to_owned()]));
    assert!(!mount.has("main/files/d/new"));
    mount.sh("mv main/branches/x main/");
    open.seek(SeekFrom::Start(0)).unwrap();
    text.clear();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "a of x, which is longer\n");
    assert_eq!(names(mount.at("main/files/d")), ["new"]);
    assert_eq!((mount.has("main/files/d/b"), read(mount.at("main/files/d/new"))), (false, "new\n".into()));
}

#[test]
fn a_rollback_brings_files_back_under_the_eyes_of_their_readers() {
    let mount = filled();
    fs::create_dir(mount.at("main/checkpoints/v1")).unwrap();
    save(mount.at("main/files/a"), "changed and longer than before\n").unwrap();
    fs::remove_file(mount.at("main/files/d/b")).unwrap();
    save(mount.at("main/files/new"), "new\n").unwrap();
    assert_eq!((read(mount.at("main/files/a")).len(), mount.has("main/files/d/b")), (31, false));
    mount.ctl("main", "rollback v1").unwrap();
    assert_eq!(
        (read(mount.at("main/files/a")), read(mount.at("main/files/d/b"))),
        ("a of main\n".into(), "b of main\n".into())
    );
    assert!(!mount.has("main/files/new"));
    assert_eq!(names(mount.at("main/files")), ["a", "d"]);
}

#[test]
fn a_new_mount_shows_what_the_old_one_took() {
    let site = Site::new();
    let tree = |site: &Site| {
        let script = "find . -printf '%P %y %s %m %n %T@ %l\\n' | sort; find . -type f | sort | xargs sha256sum; \
                      python3 -c \"import os; print(os.getxattr('b', 'user.k'))\"";
        super::succeed(super::command("bash", &["-ec", script]).current_dir(site.mnt.join("main/files")))
    };
    let mut server = site.serve(&[]);
    let script = "mkdir -p d/e; echo text > a; ln a d/hard; ln -s ../a d/soft; mkfifo d/fifo; truncate -s 1M sparse; \
                  printf x >> sparse; head -c 300000 /dev/urandom > b; chmod 4750 b; touch -d '2001-02-03 04:05:06.789' a; \
                  python3 -c \"import os; os.setxattr('b', 'user.k', b'v')\"";
    super::succeed(super::command("bash", &["-ec", script]).current_dir(site.mnt.join("main/files")));
    let before = tree(&site);
    assert!(before.contains("d/soft l") && before.contains("981173106.789") && before.contains("b'v'"), "{before}");
    server.signal(libc::SIGTERM);
    server.wait();
    let server = site.serve(&[]);
    assert_eq!(tree(&site), before);
    let file = fs::metadata(site.mnt.join("main/files/a")).unwrap();
    assert_eq!((file.nlink(), file.mtime(), file.mtime_nsec()), (2, 981_173_106, 789_000_000));
    // A crash is no different: each write is in the journal when it returns.
    fs::write(site.mnt.join("main/files/last"), "the last word").unwrap();
    server.crash();
    let _server = site.serve(&[]);
    assert_eq!(read(site.mnt.join("main/files/last")), "the last word");
}
