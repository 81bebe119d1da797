//! `scratch/`: ordinary files in RAM, which end with the mount and with the session.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use super::{Mounted, Site, errno, names, read, rename_with, save};

#[test]
fn programs_find_an_ordinary_file_system_there() {
    let mount = Mounted::new();
    let said = mount.sh(
        "cd main/scratch; mkdir d; echo one > a; echo two >> a; ln a b; ln -s a s; mkfifo p; chmod 600 a; cp -p a d/c
         truncate -s 1M hole; mv d e; tar cf t.tar e s a; mkdir out; tar xf t.tar -C out; cat out/e/c; readlink out/s
         git init -q r; cd r; echo x > f; git add f; git -c user.name=n -c user.email=e commit -qm m; git fsck --strict
         git log --format=%s; cd ..; rm -r r out; stat -c %h a; ls",
    );
    assert_eq!(said, "one\ntwo\na\nm\n2\na\nb\ne\nhole\np\ns\nt.tar\n");
    let hole = fs::metadata(mount.at("main/scratch/hole")).unwrap();
    assert_eq!((hole.len(), hole.blocks()), (1 << 20, 0));
    let unlinked = File::options().read(true).append(true).open(mount.at("main/scratch/e/c")).unwrap();
    fs::remove_file(mount.at("main/scratch/e/c")).unwrap();
    (&unlinked).write_all(b"three\n").unwrap();
    let mut bytes = [0; 14];
    unlinked.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"one\ntwo\nthree\n");
}

#[test]
fn it_is_no_part_of_the_branch() {
    let mount = Mounted::new();
    save(mount.at("main/scratch/a"), "a").unwrap();
    let before = mount.status("main");
    save(mount.at("main/scratch/b"), "b").unwrap();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    fs::create_dir(mount.at("main/checkpoints/v1")).unwrap();
    assert_eq!(names(mount.at("main/branches/x/scratch")), Vec::<String>::new());
    assert_eq!(names(mount.at("main/checkpoints/v1/scratch")), Vec::<String>::new());
    assert_eq!(errno(save(mount.at("main/checkpoints/v1/scratch/a"), "a")), libc::EROFS);
    save(mount.at("main/branches/x/scratch/c"), "c").unwrap();
    let open = File::open(mount.at("main/branches/x/scratch/c")).unwrap();
    fs::rename(mount.at("main/branches/x"), mount.at("main/x")).unwrap();
    assert_eq!(names(mount.at("main/scratch")), ["a", "b"]);
    assert_eq!(errno((&open).read(&mut [0; 4])), libc::ESTALE);
    let after = mount.status("main");
    assert_eq!((&after["head"], &after["files"]), (&before["head"], &before["files"]));
    for (from, to) in [("scratch/a", "files/a"), ("scratch/a", "branches/x"), ("scratch/a", "vectors/a.json")] {
        let moved = rename_with(&mount.at(&format!("main/{from}")), &mount.at(&format!("main/{to}")), 0);
        assert_eq!(errno(moved), libc::EXDEV, "{to}");
    }
    assert_eq!(errno(fs::hard_link(mount.at("main/scratch/a"), mount.at("main/files/a"))), libc::EXDEV);
    mount.sh("mv main/scratch/a main/files/; cp main/files/a main/scratch/copy");
    assert_eq!((read(mount.at("main/files/a")), read(mount.at("main/scratch/copy"))), ("a".into(), "a".into()));
    assert_eq!(errno(fs::remove_dir(mount.at("main/scratch"))), libc::EPERM);
}

#[test]
fn it_holds_no_more_than_its_size_and_says_so() {
    let mount = Mounted::new();
    save(mount.at("main/config/scratch_size"), "256K").unwrap();
    let file = File::create(mount.at("main/scratch/f")).unwrap();
    let half = vec![7u8; 128 << 10];
    file.write_all_at(&half, 0).unwrap();
    assert_eq!(errno(file.write_all_at(&half, 128 << 10)), libc::ENOSPC);
    assert_eq!(file.metadata().unwrap().len(), 128 << 10, "what was refused changed nothing");
    let refusal = mount.refusal("main");
    assert_eq!((&refusal["errno"], &refusal["code"]), (&"ENOSPC".into(), &"scratch_full".into()));
    // Names and attributes take up room too, and so does what is deleted and open.
    let made = (0..1000).map(|number| save(mount.at(&format!("main/scratch/{number}")), "")).find(Result::is_err);
    assert_eq!(errno(made.unwrap()), libc::ENOSPC);
    fs::remove_file(mount.at("main/scratch/f")).unwrap();
    assert_eq!(errno(save(mount.at("main/scratch/more"), "")), libc::ENOSPC);
    drop(file);
    let room = || mount.sh("df --output=size,avail -B1024 main/scratch | tail -1 | awk '{print $1, ($2 > 100)}'");
    let mut waited = 0;
    while room() != "256 1\n" && waited < 100 {
        // The kernel lets go of a file after close(2) returned.
        std::thread::sleep(std::time::Duration::from_millis(50));
        waited += 1;
    }
    assert_eq!(room(), "256 1\n");
    save(mount.at("main/scratch/more"), "more").unwrap();
    save(mount.at("main/config/scratch_size"), "1K").unwrap();
    assert_eq!(errno(save(mount.at("main/scratch/other"), "")), libc::ENOSPC);
    fs::remove_file(mount.at("main/scratch/more")).unwrap();
    assert_eq!(read(mount.at("main/config/scratch_size")), "1K\n");
}

#[test]
fn a_new_session_or_task_ends_it_and_the_old_one_set_again_does_not() {
    let mount = Mounted::new();
    save(mount.at("main/config/session"), "one").unwrap();
    fs::create_dir(mount.at("main/scratch/d")).unwrap();
    save(mount.at("main/scratch/d/a"), "of one").unwrap();
    let open = File::open(mount.at("main/scratch/d/a")).unwrap();
    open.read_exact_at(&mut [0; 6], 0).unwrap();
    save(mount.at("main/config/session"), "one").unwrap();
    save(mount.at("main/config/agent"), "sweeper").unwrap();
    assert_eq!(read(mount.at("main/scratch/d/a")), "of one");
    save(mount.at("main/config/session"), "two").unwrap();
    assert!(!mount.has("main/scratch/d/a"));
    assert_eq!(names(mount.at("main/scratch")), Vec::<String>::new());
    // Also what the kernel had of it, of which it need not ask for more.
    assert_eq!(errno(open.read_at(&mut [0; 4], 0)), libc::ESTALE);
    assert_eq!(errno(File::create(mount.at("main/scratch/d/new"))), libc::ENOENT);
    save(mount.at("main/scratch/b"), "of two").unwrap();
    save(mount.at("main/config/session"), "one").unwrap();
    assert_eq!(names(mount.at("main/scratch")), Vec::<String>::new());
    save(mount.at("main/scratch/c"), "of a task").unwrap();
    save(mount.at("main/config/task"), "sweep").unwrap();
    assert_eq!(names(mount.at("main/scratch")), Vec::<String>::new(), "a new task ends it, too");
}

#[test]
fn an_unmount_ends_it() {
    let site = Site::new();
    let mut server = site.serve(&[]);
    save(site.mnt.join("main/scratch/a"), "a").unwrap();
    server.signal(libc::SIGTERM);
    assert!(server.wait().success());
    let _server = site.serve(&[]);
    assert_eq!(names(site.mnt.join("main/scratch")), Vec::<String>::new());
}

#[test]
fn it_belongs_to_the_branchs_owner() {
    let mount = Mounted::new();
    let root = fs::metadata(mount.at("main/scratch")).unwrap();
    assert_eq!((root.uid(), root.permissions().mode() & 0o7777), (0, 0o755));
    // A rule for files says nothing here.
    save(mount.at("main/config/rules"), "logs/** text write=uid:4711 append\n").unwrap();
    fs::create_dir(mount.at("main/scratch/logs")).unwrap();
    save(mount.at("main/scratch/logs/a"), "a").unwrap();
    save(mount.at("main/scratch/logs/a"), "b").unwrap();
    assert_eq!(read(mount.at("main/scratch/logs/a")), "b");
}
