//! Requests during which another one comes: where the first has the right to write, and where it has it not yet.

use super::rig::{ANN, ROOT, Rig};
use crate::fs::errno::Errno;
use crate::fs::{AttrChanges, Caller};
use crate::memory::{Actor, FILES_ROOT, FileName, FileOp, RenameMode};
use crate::sync::without_waiting;

/// Looks at the clock that a request makes at most.
const LOOKS_MAX: usize = 8;

/// A store whose shared log has 200 entries.
fn with_entries(rig: &Rig) {
    rig.write("main/shared/log/append", &"entry\n".repeat(200)).unwrap();
}

#[test]
fn a_cursor_that_had_to_wait_moves_when_the_close_is_repeated() {
    let mut gave_up = 0;
    for nth in 1..LOOKS_MAX {
        let (rig, looks) = Rig::with_looks();
        with_entries(&rig);
        let cursor = rig.open("main/shared/log/cursor", libc::O_WRONLY).unwrap();
        rig.fs.write(cursor, 0, b"1").unwrap();
        let mut flushed = Ok(());
        looks.during(
            nth,
            || rig.write("main/vectors/x.json", "text").unwrap(),
            || flushed = without_waiting(|| rig.fs.flush(cursor)),
        );
        gave_up += usize::from(flushed == Err(Errno::EAGAIN));
        rig.fs.flush(cursor).unwrap();
        assert_eq!(rig.read("main/shared/log/cursor").unwrap(), "1\n", "look {nth}");
        rig.fs.release(cursor);
    }
    assert!(gave_up > 0, "some look is under the writer's lock");
}

#[test]
fn a_line_for_the_cursor_that_had_to_wait_is_repeated_on_top_of_what_was_before_it() {
    let mut gave_up = 0;
    for nth in 1..LOOKS_MAX {
        for (first, rest) in [("12", "3\n"), ("", "123\n")] {
            let (rig, looks) = Rig::with_looks();
            with_entries(&rig);
            let cursor = rig.open("main/shared/log/cursor", libc::O_WRONLY).unwrap();
            if !first.is_empty() {
                rig.fs.write(cursor, 0, first.as_bytes()).unwrap();
            }
            let write = || rig.fs.write(cursor, first.len() as u64, rest.as_bytes());
            let mut taken = Err(Errno::EAGAIN);
            let is_held = looks.during(
                nth,
                || rig.write("main/vectors/x.json", "text").unwrap(),
                || taken = without_waiting(write),
            );
            gave_up += usize::from(is_held && taken == Err(Errno::EAGAIN));
            assert_eq!(taken.or_else(|_| write()), Ok(rest.len() as u32));
            assert_eq!(rig.read("main/shared/log/cursor").unwrap(), "123\n", "look {nth}");
            rig.fs.release(cursor);
        }
    }
    assert!(gave_up > 0, "some look is under the writer's lock");
}

#[test]
fn a_cursor_that_is_refused_is_told_at_each_close_and_a_whole_line_of_it_once() {
    let rig = Rig::new();
    with_entries(&rig);
    let cursor = rig.open("main/shared/log/cursor", libc::O_WRONLY).unwrap();
    rig.fs.write(cursor, 0, b"201").unwrap();
    assert_eq!((rig.fs.flush(cursor), rig.fs.flush(cursor)), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
    rig.fs.write(cursor, 0, b"20").unwrap();
    assert_eq!(rig.fs.write(cursor, 2, b"1\n"), Err(Errno::EINVAL));
    rig.fs.flush(cursor).unwrap();
    assert_eq!(rig.read("main/shared/log/cursor").unwrap(), "0\n", "the beginning of a number is none");
    rig.fs.write(cursor, 0, b"7").unwrap();
    rig.fs.flush(cursor).unwrap();
    rig.fs.release(cursor);
    assert_eq!(rig.read("main/shared/log/cursor").unwrap(), "7\n");
}

#[test]
fn a_write_to_a_temporary_while_it_becomes_a_record_is_refused() {
    let mut refused = 0;
    for nth in 1..LOOKS_MAX {
        let (rig, looks) = Rig::with_looks();
        rig.write("main/vectors/.x.json", "first").unwrap();
        let temporary = rig.open("main/vectors/.x.json", libc::O_WRONLY).unwrap();
        let mut written = None;
        looks.during(
            nth,
            || rig.mv("main/vectors/.x.json", "main/vectors/x.json").unwrap(),
            || written = Some(rig.fs.write(temporary, 0, b"later")),
        );
        let record: serde_json::Value = serde_json::from_str(&rig.read("main/vectors/x.json").unwrap()).unwrap();
        let expected = match written {
            None => "first",
            Some(Ok(_)) => "later",
            Some(Err(errno)) => {
                assert_eq!(errno, Errno::ESTALE);
                refused += 1;
                "first"
            }
        };
        assert_eq!(record["text"], expected, "look {nth}");
        rig.fs.release(temporary);
    }
    assert!(refused > 0, "some look is after the copy");
}

#[test]
fn a_temporary_that_could_not_become_a_record_takes_writes_again() {
    let rig = Rig::new();
    rig.write("main/vectors/.x.json", r#"{"metadata":{}}"#).unwrap();
    let temporary = rig.open("main/vectors/.x.json", libc::O_WRONLY).unwrap();
    let rename = || rig.mv("main/vectors/.x.json", "main/vectors/x.json");
    assert_eq!(rename(), Err(Errno::EINVAL));
    assert_eq!(rig.fs.write(temporary, 0, br#"{"text":"now"}  "#), Ok(16));
    rename().unwrap();
    assert_eq!(rig.fs.write(temporary, 0, b"later"), Err(Errno::ESTALE));
}

#[test]
fn a_file_that_is_open_and_takes_a_name_that_is_being_removed_stays_for_its_handle() {
    let who = Actor { uid: 0, gid: 0, name: "root".into() };
    let name = |name: &str| FileName::new(name.as_bytes()).unwrap();
    let remove: fn(&Rig) -> Result<(), Errno> = |rig| rig.rm("main/files/a");
    let replace: fn(&Rig) -> Result<(), Errno> = |rig| rig.mv("main/files/c", "main/files/a");
    for (what, act) in [("rm", remove), ("mv", replace)] {
        let mut between = 0;
        for nth in 1..LOOKS_MAX {
            let (rig, looks) = Rig::with_looks();
            for (name, text) in [("a", "old"), ("b", "open"), ("c", "third")] {
                rig.write(&format!("main/files/{name}"), text).unwrap();
            }
            let handle = rig.open("main/files/b", libc::O_RDONLY).unwrap();
            let main = rig.memory.root("main").unwrap();
            let op = FileOp::Rename {
                parent: FILES_ROOT,
                name: name("b"),
                new_parent: FILES_ROOT,
                new_name: name("a"),
                mode: RenameMode::Plain,
                keep: false,
            };
            let mut renamed = false;
            looks.during(
                nth,
                || act(&rig).unwrap(),
                || renamed = without_waiting(|| rig.memory.edit(&who, main, op).is_ok()),
            );
            between += usize::from(renamed);
            assert_eq!(rig.read_on(handle, 0), Ok("open".into()), "{what}, look {nth}");
            rig.fs.release(handle);
        }
        assert!(between > 0, "{what}: the other one comes in between");
    }
}

#[test]
fn a_create_that_finds_a_file_opens_it_for_who_may_alone() {
    let rig = Rig::new();
    let create = |who: Caller, path: &str, flags: i32| {
        let (directory, name) = path.rsplit_once('/').unwrap();
        let made = rig.fs.create(who, rig.ino(directory).unwrap(), name.as_ref(), 0o644, flags | libc::O_CREAT);
        made.map(|(_, handle)| rig.fs.release(handle))
    };
    let chmod = |path: &str, mode: u32| {
        let changes = AttrChanges { mode: Some(mode), ..AttrChanges::default() };
        rig.fs.setattr(ROOT, rig.ino(path).unwrap(), changes, None).unwrap();
    };
    rig.fs.mkdir(ANN, rig.ino("main/branches").unwrap(), "anns".as_ref(), 0o755).unwrap();
    // Claims through two branches come side by side.
    let through = "main/branches/anns/shared/signals/secret";
    for (path, through) in [("main/files/secret", "main/files/secret"), ("main/shared/signals/secret", through)] {
        rig.write(path, "secret").unwrap();
        for (mode, flags, found) in [
            (0o600, libc::O_RDWR, Err(Errno::ESTALE)),
            (0o600, libc::O_RDONLY, Err(Errno::ESTALE)),
            (0o600, libc::O_WRONLY | libc::O_TRUNC, Err(Errno::ESTALE)),
            (0o644, libc::O_RDWR, Err(Errno::ESTALE)),
            (0o644, libc::O_RDONLY, Ok(())),
            (0o666, libc::O_RDWR, Ok(())),
        ] {
            chmod(path, mode);
            assert_eq!(create(ANN, through, flags), found, "{path} {mode:o} {flags:o}");
            create(ROOT, path, flags & !libc::O_TRUNC).unwrap();
        }
        assert_eq!(rig.read(path).unwrap(), "secret");
    }
    chmod("main/files/secret", 0o644);
    let emptied = create(ANN, "main/files/secret", libc::O_RDONLY | libc::O_TRUNC);
    assert_eq!((emptied, rig.read("main/files/secret").unwrap()), (Err(Errno::ESTALE), "secret".into()));
    // Where a link leads, and what a FIFO is read by, the kernel knows.
    let files = rig.ino("main/files").unwrap();
    rig.fs.symlink(ROOT, files, "link".as_ref(), "secret".as_ref()).unwrap();
    assert_eq!(create(ROOT, "main/files/link", libc::O_RDONLY), Err(Errno::ESTALE));
}

#[test]
fn a_branch_with_an_unfinished_line_of_the_log_is_busy() {
    let rig = Rig::new();
    rig.mkdir("main/branches/x").unwrap();
    let handle = rig.open("main/branches/x/shared/log/append", libc::O_WRONLY).unwrap();
    rig.fs.write(handle, 0, b"step 3 done").unwrap();
    assert_eq!(rig.mv("main/branches/x", "main/x").unwrap_err(), Errno::EBUSY);
    assert_eq!(rig.rmdir("main/branches/x"), Err(Errno::EBUSY));
    assert_eq!(rig.write("main/branches/x/ctl", "merge\n"), Err(Errno::EBUSY));
    assert_eq!(rig.last_error("main/branches/x")["code"], "uncommitted_bytes");
    rig.fs.flush(handle).unwrap();
    rig.mv("main/branches/x", "main/x").unwrap();
    assert!(rig.read("main/shared/log/entries.jsonl").unwrap().contains("step 3 done"));
}
