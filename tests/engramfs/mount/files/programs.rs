//! Programs that know nothing of engramfs and lean on what a file system promises.

use std::fs;

use crate::mount::{Mounted, Site, command, read, succeed};

#[test]
fn git_works_in_a_branch_and_in_its_fork() {
    let mount = Mounted::new();
    mount.sh("cd main/files; git init -q r; cd r; git config user.email a@b; git config user.name ann; \
         for i in $(seq 50); do echo $i > f$i; done; git add .; git commit -qm one; \
         for i in $(seq 25); do echo more >> f$i; done; git commit -qam two; git gc -q; git fsck --strict");
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    mount.sh(
        "cd main/branches/x/files/r; [ -z \"$(git status --porcelain)\" ]; git checkout -qb y; rm f1; git commit -qam three; \
         git fsck --strict; cd ../../../../files/r; [ $(git rev-list --count --all) = 2 ]; [ -z \"$(git status --porcelain)\" ]",
    );
}

#[test]
fn sqlite_works_in_both_modes_and_survives_a_crash() {
    let site = Site::new();
    let server = site.serve(&[]);
    let code = "import sqlite3, sys
for mode in ('wal', 'delete'):
    db = sqlite3.connect(mode + '.db'); assert db.execute('pragma journal_mode=' + mode).fetchone()[0] == mode
    db.execute('create table if not exists t (k integer primary key, v text)')
    for batch in range(20):
        with db: db.executemany('insert into t (v) values (?)', [('x' * (i % 700),) for i in range(100)])
    with db: db.execute('delete from t where k % 3 = 0')
    other = sqlite3.connect(mode + '.db'); assert other.execute('select count(*) from t').fetchone()[0] == 1334
    assert other.execute('pragma integrity_check').fetchone()[0] == 'ok'
    print('works')
    db.execute('begin immediate'); db.execute('insert into t (v) values (1)')
    # Left behind as a crash leaves it.
    globals()['kept' + mode] = (db, other)
import os; sys.stdout.flush(); os._exit(0)";
    let files = site.mnt.join("main/files");
    assert_eq!(succeed(command("python3", &["-c", code]).current_dir(&files)), "works\nworks\n");
    server.crash();
    let _server = site.serve(&[]);
    let check = "import sqlite3
for mode in ('wal', 'delete'):
    db = sqlite3.connect(mode + '.db'); assert db.execute('pragma integrity_check').fetchone()[0] == 'ok'
    print(db.execute('select count(*) from t').fetchone()[0])";
    assert_eq!(succeed(command("python3", &["-c", check]).current_dir(&files)), "1334\n1334\n");
}

#[test]
fn copiers_and_archivers_bring_a_tree_back_as_it_was() {
    let mount = Mounted::new();
    mount.sh(
        "mkdir ../t; cd ../t; mkdir -p a/b; echo one > a/one; ln a/one a/two; ln -s ../a/one a/b/soft; mkfifo a/pipe; \
         head -c 200000 /dev/urandom > a/b/data; chmod 600 a/b/data; truncate -s 2M a/sparse; \
         find . -exec touch -h -d '2001-02-03 04:05:06.789012345' {} +",
    );
    let listing =
        "find . -printf '%P %y %s %m %n %T@ %l\\n' | grep -v '^ ' | sort; find . -type f | sort | xargs sha256sum";
    let original = mount.sh(&format!("cd ../t; {listing}"));
    for (name, copy) in [
        ("cp", "cp -a ../t/. main/files/cp/"),
        ("rsync", "rsync -aH ../t/ main/files/rsync/"),
        ("tar", "tar cf - --format=posix -C ../t . | tar xf - -C main/files/tar"),
    ] {
        mount.sh(&format!("mkdir main/files/{name}; {copy}"));
        assert_eq!(mount.sh(&format!("cd main/files/{name}; {listing}")), original, "{name}");
    }
    mount.sh("rsync -aH --delete main/files/cp/ ../back/; diff -r --no-dereference -x pipe ../back ../t");
    mount.sh("rm -rf main/files/*; [ -z \"$(ls main/files)\" ]");
}

#[test]
fn vim_and_locks_work() {
    let mount = Mounted::new();
    mount.sh(
        "cd main/files; echo black tea > f; vim -es -u NONE -c 'set backup backupskip=' -c '%s/black/green/' -c wq f",
    );
    assert_eq!(
        (read(mount.at("main/files/f")), read(mount.at("main/files/f~"))),
        ("green tea\n".into(), "black tea\n".into())
    );
    let code = "import fcntl, os, subprocess, sys
os.chdir('main/files'); f = open('f', 'r+'); g = open('f', 'r+')
fcntl.flock(f, fcntl.LOCK_EX)
try: fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB); assert False
except BlockingIOError: pass
fcntl.flock(f, fcntl.LOCK_UN); fcntl.lockf(f, fcntl.LOCK_EX, 4, 0)
child = 'import fcntl; g = open(\"f\", \"r+\"); fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 4, 8); fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 4, 0)'
assert b'BlockingIOError' in subprocess.run([sys.executable, '-c', child], capture_output=True).stderr
print('locked')";
    assert_eq!(mount.python(code).trim(), "locked");
}
