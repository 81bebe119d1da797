//! `files/`: what programs do to an ordinary file system, and what only branches have.

mod handles;
mod posix;
mod programs;
mod units;

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
    assert_eq!(rename("main/files/d", "main/branches/x"), libc::EEXIST);
    assert_eq!(rename("main/files/a", "main/branches/x"), libc::EISDIR, "of the kernel");
    assert_eq!(rename("main/files/d", "main/status"), libc::ENOTDIR, "of the kernel");
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

/// A file keeps its number when it is moved, and the kernel its pages: it went on showing the old ones under the new
/// name. The same for what a link leads to.
#[test]
fn what_a_merge_moves_and_changes_shows_its_new_content() {
    let mount = filled();
    std::os::unix::fs::symlink("a", mount.at("main/files/link")).unwrap();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    let mut open = File::open(mount.at("main/files/a")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(fs::read_link(mount.at("main/files/link")).unwrap().to_str(), Some("a"));
    mount.sh(
        "cd main/branches/x/files; mv a d/moved; printf X | dd of=d/moved conv=notrunc status=none; ln -sfn d link",
    );
    mount.sh("mv main/branches/x main/");
    assert_eq!(read(mount.at("main/files/d/moved")), "X of main\n");
    open.seek(SeekFrom::Start(0)).unwrap();
    text.clear();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "X of main\n");
    assert_eq!(fs::read_link(mount.at("main/files/link")).unwrap().to_str(), Some("d"));
}

/// A mapping stores without asking; what rules forbid must not stay in the kernel's cache for everybody.
#[test]
fn mappings_do_not_pass_by_the_rules() {
    let mount = filled();
    save(mount.at("main/config/rules"), "/d/** text write=uid:4711\n/a text append\n** text\n").unwrap();
    assert_eq!(errno(File::options().read(true).write(true).open(mount.at("main/files/d/b"))), libc::EACCES);
    assert_eq!(mount.refusal("main")["code"], "write_rule");
    assert_eq!(read(mount.at("main/files/d/b")), "b of main\n");
    let said = mount.python(
        "import mmap, os\nfile = os.open('main/files/a', os.O_RDWR)\nmapped = mmap.mmap(file, 10)\nmapped[0:1] = b'X'\n\
         try: mapped.flush()\nexcept OSError as error: print(error.errno)\nmapped.close(); os.close(file)",
    );
    assert_eq!(said, format!("{}\n", libc::EPERM));
    let mut waited = 0;
    while read(mount.at("main/files/a")) != "a of main\n" && waited < 40 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        waited += 1;
    }
    assert_eq!(read(mount.at("main/files/a")), "a of main\n");
}

/// What the kernel had of a file that a merge took away was shown again when a rollback brought it back.
#[test]
fn what_comes_back_shows_what_it_was() {
    let mount = filled();
    fs::create_dir(mount.at("main/checkpoints/v1")).unwrap();
    save(mount.at("main/files/a"), "A of later\n").unwrap();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    assert_eq!(read(mount.at("main/files/a")), "A of later\n");
    fs::remove_file(mount.at("main/branches/x/files/a")).unwrap();
    mount.sh("mv main/branches/x main/");
    mount.ctl("main", "rollback v1").unwrap();
    assert_eq!(read(mount.at("main/files/a")), "a of main\n");
}

/// Readers and mappings in the midst of it: a page that was read from the old files must not come to stay.
#[test]
fn reads_under_way_leave_no_old_pages_behind() {
    let mount = Mounted::new();
    let path = mount.at("main/files/f");
    let content = |turn: usize| vec![b'a' + (turn % 26) as u8; 200_000];
    fs::write(&path, content(0)).unwrap();
    fs::create_dir(mount.at("main/checkpoints/v0")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let open = File::open(&path).unwrap();
                let mut page = [0; 5_000];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    (0..40).for_each(|at| assert!(open.read_at(&mut page, at * 5_000).is_ok()));
                }
            });
        }
        for turn in 1..=40 {
            fs::create_dir(mount.at("main/branches/x")).unwrap();
            fs::write(mount.at("main/branches/x/files/f"), content(turn)).unwrap();
            match turn % 4 {
                0 => drop(mount.ctl("main", "rollback v0").unwrap()),
                1 => drop(mount.ctl("main/branches/x", "promote").unwrap()),
                _ => fs::rename(mount.at("main/branches/x"), mount.at("main/x")).unwrap(),
            }
            let expected = if turn % 4 == 0 { content(0) } else { content(turn) };
            assert!(fs::read(&path).unwrap() == expected, "turn {turn} shows old pages");
            if turn % 4 < 2 {
                fs::remove_dir(mount.at("main/branches/x")).unwrap();
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_handle_on_what_a_merge_or_rollback_takes_away_goes_on() {
    let mount = filled();
    fs::create_dir(mount.at("main/checkpoints/v1")).unwrap();
    save(mount.at("main/files/new"), "new\n").unwrap();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    let mut opened = ["main/files/a", "main/files/new"]
        .map(|path| File::options().read(true).write(true).open(mount.at(path)).unwrap());
    fs::remove_file(mount.at("main/branches/x/files/a")).unwrap();
    mount.sh("mv main/branches/x main/");
    fs::remove_file(mount.at("main/files/d/b")).unwrap();
    mount.ctl("main", "rollback v1").unwrap();
    for (file, text) in opened.iter_mut().zip(["a of main\n", "new\n"]) {
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"more\n").unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut all = String::new();
        file.read_to_string(&mut all).unwrap();
        assert_eq!(all, format!("{text}more\n"));
    }
    // The first one is back, and its handle is on what is there.
    assert_eq!(
        (names(mount.at("main/files")), opened[1].metadata().unwrap().nlink()),
        (vec!["a".into(), "d".into()], 0)
    );
    assert_eq!(read(mount.at("main/files/a")), "a of main\nmore\n");
    drop(opened);
    assert_eq!(mount.status("main")["files"], 2);
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

/// The files that the names led to before live on under others.
#[test]
fn names_lead_where_a_merge_put_them_at_once() {
    let mount = Mounted::new();
    let script = "cd main; echo A > files/a; mkdir files/d branches/c; mv branches/c/files/a branches/c/files/d/a; cat files/a
mv branches/c .; echo X > files/a; cat files/d/a
echo base > files/x; mkdir branches/c; (cd branches/c/files; mv x x.1; echo new > x); cat files/x; mv branches/c .; cat files/x
mkdir branches/c; (cd branches/c/files; ln x bak; echo child > t; mv t x); cat files/x; echo promote > branches/c/ctl
echo appended >> files/x; cat files/x files/bak
mkdir checkpoints/v; mv files/x files/y; echo other > files/x; cat files/y; echo 'rollback v' > ctl; cat files/x; ls files";
    let seen = mount.sh(script);
    let expected = "A\nA\nbase\nnew\nnew\nchild\nappended\nnew\nchild\nappended\nchild\nappended\na\nbak\nd\nx\nx.1\n";
    assert_eq!(seen, expected);
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
