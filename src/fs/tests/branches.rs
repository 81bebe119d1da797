//! Forks, checkpoints, merges by rename, and mounts of one branch or for reading only.

use std::ffi::OsStr;

use super::rig::{ANEW, ANN, ROOT, Rig, document};
use crate::fs::{AttrChanges, Caller, Errno, FsOptions};
use crate::memory::Time;

fn with_fork() -> Rig {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", &document("old")).unwrap();
    rig.mkdir("main/branches/x").unwrap();
    rig.write("main/branches/x/vectors/b.json", &document("new")).unwrap();
    rig
}

#[test]
fn a_fork_sees_its_parent_and_keeps_to_itself() {
    let rig = with_fork();
    assert_eq!(rig.list("main/branches"), ["x"]);
    assert_eq!(rig.list("main/branches/x/vectors"), ["a.json", "b.json"]);
    assert_eq!(rig.list("main/vectors"), ["a.json"]);
    assert_eq!(rig.stat("main/branches/x").unwrap().mode, 0o700);
    assert_eq!(rig.stat("main").unwrap().mode, 0o755);
    assert_eq!(rig.stat("main/branches").unwrap().mode, 0o1777);
    for (path, branch) in [("main/branches/x/files", "main/x"), ("main/files", "main")] {
        let created = rig.memory.info(rig.memory.resolve(branch).unwrap()).unwrap().created;
        let files = rig.stat(path).unwrap();
        assert_eq!([files.accessed, files.modified, files.changed], [created; 3], "{path}");
    }
}

#[test]
fn moving_a_branch_into_its_parent_merges_it() {
    let rig = with_fork();
    let handle = rig.open("main/branches/x/vectors/a.json", libc::O_RDONLY).unwrap();
    let directory = rig.ino("main/branches/x/vectors").unwrap();
    rig.rename("main/branches/x", "main/x", 0).unwrap();
    assert_eq!(rig.list("main/vectors"), ["a.json", "b.json"]);
    assert!(rig.list("main/branches").is_empty());
    assert_eq!(rig.ino("main/x"), Err(Errno::ENOENT));
    assert_eq!(rig.fs.read(handle, 0, 10), Err(Errno::ESTALE));
    assert_eq!(rig.fs.getattr(rig.who, directory, None), Err(Errno::ESTALE));
    assert_eq!(rig.fs.lookup(rig.who, directory, OsStr::new("a.json")), Err(Errno::ESTALE));
}

#[test]
fn the_parents_ctl_tells_of_merges_into_it_however_they_were_asked_for() {
    let mut rig = with_fork();
    let outcome = |rig: &Rig| serde_json::from_str::<serde_json::Value>(&rig.read("main/ctl").unwrap()).unwrap();
    rig.write("main/branches/x/ctl", "merge\n").unwrap();
    assert_eq!((outcome(&rig)["status"].as_str(), outcome(&rig)["put"].as_u64()), (Some("merged"), Some(1)));
    rig.who = ANN;
    assert_eq!(rig.read("main/ctl").unwrap(), "", "it is told to who merged");
    rig.who = ROOT;
    rig.mkdir("main/branches/y").unwrap();
    rig.mv("main/branches/y", "main/y").unwrap();
    assert_eq!(outcome(&rig)["put"], 0);
    rig.mkdir("main/branches/z").unwrap();
    rig.mkdir("main/branches/z/branches/below").unwrap();
    assert_eq!(rig.mv("main/branches/z", "main/z").unwrap_err(), Errno::ENOTEMPTY);
    let refused = outcome(&rig);
    assert_eq!((&refused["status"], &refused["code"]), (&"refused".into(), &"has_children".into()));
    rig.rmdir("main/branches/z/branches/below").unwrap();
    rig.write("main/config/strategy", "manual").unwrap();
    rig.write("main/branches/z/vectors/a.json", &document("z")).unwrap();
    rig.write("main/vectors/a.json", &document("main")).unwrap();
    assert_eq!(rig.mv("main/branches/z", "main/z").unwrap_err(), Errno::EBUSY);
    assert_eq!(outcome(&rig)["code"], "conflicts");
}

#[test]
fn the_branches_below_are_told_as_far_as_their_reader_may_enter() {
    let mut rig = with_fork();
    rig.write("main/branches/x/config/agent", "ann").unwrap();
    rig.write("main/branches/x/config/task", "tea").unwrap();
    rig.mkdir("main/branches/x/branches/y").unwrap();
    rig.mkdir("main/branches/a").unwrap();
    rig.write("main/branches/x/vectors/c.json", &document("later")).unwrap();
    rig.write("main/vectors/d.json", &document("parent")).unwrap();
    rig.write("main/vectors/a.json", &document("parent")).unwrap();
    let read = |rig: &Rig, path: &str| -> Vec<serde_json::Value> {
        rig.read(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let lines = read(&rig, "main/branches.jsonl");
    let keys = |line: &serde_json::Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let told = "agent ahead behind lease modified name own_edits owner proposed task".split(' ').collect::<Vec<_>>();
    assert!(lines.iter().all(|line| keys(line) == told && keys(&line["lease"]) == ["held", "since"]), "{lines:?}");
    let figures = |line: &serde_json::Value| {
        let number = |key: &str| line[key].as_u64().unwrap();
        (line["name"].as_str().unwrap().to_owned(), [number("own_edits"), number("ahead"), number("behind")])
    };
    let all: Vec<_> = lines.iter().map(figures).collect();
    let expected = [("main/a", [0, 0, 2]), ("main/x", [2, 2, 2]), ("main/x/y", [0, 0, 1])];
    assert_eq!(all, expected.map(|(name, figures)| (name.to_owned(), figures)));
    assert_eq!(
        (&lines[1]["agent"], &lines[1]["task"], &lines[1]["owner"]),
        (&"ann".into(), &"tea".into(), &ROOT.uid.into())
    );
    assert_eq!(figures(&read(&rig, "main/branches/x/branches.jsonl")[0]), all[2]);
    assert_eq!(rig.stat("main/branches.jsonl").unwrap().size, 0);
    assert!(rig.write("main/branches.jsonl", "x").is_err());
    rig.mkdir("main/checkpoints/v1").unwrap();
    assert_eq!(rig.read("main/checkpoints/v1/branches.jsonl").unwrap(), "");
    rig.who = ANN;
    let closed = read(&rig, "main/branches.jsonl");
    assert_eq!(closed.len(), 2, "nothing inside a closed branch is told");
    assert!(closed.iter().all(|line| keys(line) == ["modified", "name", "owner"]), "{closed:?}");
}

#[test]
fn an_open_lineage_shows_little_of_a_branch_from_the_moment_at_which_it_is_closed() {
    let mut rig = Rig::new();
    rig.who = ANN;
    rig.mkdir("main/branches/ann").unwrap();
    rig.write("main/branches/ann/vectors/c.json", &document("of ann")).unwrap();
    rig.who = ROOT;
    rig.write("main/branches/ann/ctl", "promote\n").unwrap();
    let chmod = |mode| {
        let changes = AttrChanges { mode: Some(mode), ..AttrChanges::default() };
        rig.fs.setattr(ANN, rig.ino("main/branches/ann").unwrap(), changes, None).unwrap();
    };
    let bob = Caller { uid: 1001, gid: 1001, pid: 0 };
    let open = |path: &str| rig.fs.open(bob, rig.ino(path).unwrap(), libc::O_RDONLY).unwrap();
    chmod(0o755);
    let [above, own] = ["main/lineage", "main/branches/ann/lineage"].map(open);
    let [all, all_own] = [above, own].map(|handle| rig.read_on(handle, 0).unwrap());
    let entries = all.matches("\"branch\":\"main/ann\"").count();
    assert!(entries > 0 && !all.contains("\"hidden\":true"), "a control: {all}");
    chmod(0o700);
    let little = rig.read_on(above, 0).unwrap();
    assert_eq!((little.len(), little.matches("\"hidden\":true").count()), (all.len(), entries), "{little}");
    assert!(!little.contains("main/ann"), "{little}");
    // To enter the branch itself was asked for at the open.
    assert_eq!(rig.read_on(own, 0).unwrap(), all_own);
    chmod(0o755);
    assert_eq!(rig.read_on(above, 0).unwrap(), all);
}

#[test]
fn status_counts_the_temporaries_of_its_own_branch() {
    let rig = with_fork();
    let count = |path: &str| {
        serde_json::from_str::<serde_json::Value>(&rig.read(path).unwrap()).unwrap()["temporaries"].clone()
    };
    rig.mkdir("main/checkpoints/v1").unwrap();
    assert_eq!(count("main/status"), 0);
    let length = rig.read("main/status").unwrap().len();
    rig.write("main/vectors/.a.json.swp", "x").unwrap();
    rig.write("main/vectors/.b.json.swp", "x").unwrap();
    assert_eq!(rig.write("main/vectors/b.json", "{\"nonsense\":1}"), Err(Errno::EINVAL));
    assert_eq!([count("main/status"), count("main/branches/x/status"), count("main/checkpoints/v1/status")], [2, 0, 0]);
    assert_eq!(rig.read("main/status").unwrap().len(), length);
    rig.rm("main/vectors/.a.json.swp").unwrap();
    assert_eq!(count("main/status"), 1);
}

#[test]
fn who_holds_something_of_a_branch_that_is_gone_is_told_what_became_of_it() {
    let mut rig = with_fork();
    let handle = rig.open("main/branches/x/vectors/b.json", libc::O_RDONLY).unwrap();
    let directory = rig.ino("main/branches/x/vectors").unwrap();
    rig.mv("main/branches/x", "main/x").unwrap();
    for _ in 0..2 {
        assert_eq!(rig.fs.read(handle, 0, 10), Err(Errno::ESTALE));
    }
    assert_eq!(rig.read("main/errors").unwrap().lines().count(), 1, "once is enough");
    let line = rig.last_error("main");
    assert_eq!((&line["errno"], &line["code"]), (&"ESTALE".into(), &"gone".into()));
    assert!(line["message"].as_str().unwrap().starts_with("main/x was merged into main at "), "{line}");
    rig.who = ANN;
    assert_eq!(rig.fs.lookup(ANN, directory, OsStr::new("b.json")), Err(Errno::ESTALE));
    assert_eq!(rig.last_error("main")["code"], "gone");
    rig.who = ROOT;
    rig.mkdir("main/branches/y").unwrap();
    let directory = rig.ino("main/branches/y").unwrap();
    rig.rmdir("main/branches/y").unwrap();
    assert_eq!(rig.fs.lookup(ROOT, directory, OsStr::new("status")), Err(Errno::ESTALE));
    assert!(rig.last_error("main")["message"].as_str().unwrap().starts_with("main/y was discarded at "));
    // The nearest branch above that lives tells it, and of a root branch there is none.
    for path in ["main/branches/z", "main/branches/z/branches/below", "other"] {
        rig.mkdir(path).unwrap();
    }
    let held = ["main/branches/z/branches/below", "other"].map(|path| rig.ino(path).unwrap());
    for path in ["main/branches/z/branches/below", "main/branches/z", "other"] {
        rig.rmdir(path).unwrap();
    }
    let before = rig.read("main/errors").unwrap().lines().count();
    for directory in held {
        assert_eq!(rig.fs.lookup(ROOT, directory, OsStr::new("status")), Err(Errno::ESTALE));
        assert_eq!(rig.read("main/errors").unwrap().lines().count(), before + 1);
    }
    assert!(rig.last_error("main")["message"].as_str().unwrap().starts_with("main/z/below was discarded at "));
}

#[test]
fn a_branch_is_renamed_in_its_place_and_nowhere_else() {
    let rig = with_fork();
    let ino = rig.ino("main/branches/x").unwrap();
    rig.mkdir("main/branches/z").unwrap();
    rig.mv("main/branches/x", "main/branches/y").unwrap();
    assert_eq!(rig.ino("main/branches/y"), Ok(ino));
    assert_eq!(rig.mv("main/branches/y", "main/branches/z").unwrap_err(), Errno::EEXIST);
    assert_eq!(rig.mv("main/branches/y", "main/other").unwrap_err(), Errno::EINVAL);
    assert_eq!(rig.mv("main/branches/y", "y").unwrap_err(), Errno::EINVAL);
    assert_eq!(rig.mv("main/branches/y", "main/branches/z/branches/y").unwrap_err(), Errno::EINVAL);
    assert_eq!(rig.mv("main/branches/y", "main/vectors/y").unwrap_err(), Errno::EINVAL);
    assert_eq!(rig.mv("main/branches/y", "main/vectors").unwrap_err(), Errno::EPERM);
    assert_eq!(rig.mv_flags("main/branches/y", "main/branches/w", libc::RENAME_WHITEOUT).unwrap_err(), Errno::EINVAL);
    rig.mv_flags("main/branches/y", "main/branches/w", libc::RENAME_NOREPLACE).unwrap();
    assert_eq!(rig.list("main/branches").len(), 2);
}

#[test]
fn a_branch_with_bytes_in_the_air_is_busy() {
    let rig = with_fork();
    let handle = rig.open("main/branches/x/vectors/c.json", ANEW).unwrap();
    rig.fs.write(handle, 0, b"{\"text\":").unwrap();
    assert_eq!(rig.mv("main/branches/x", "main/x").unwrap_err(), Errno::EBUSY);
    assert_eq!(rig.rmdir("main/branches/x"), Err(Errno::EBUSY));
    assert_eq!(rig.write("main/branches/x/ctl", "merge\n"), Err(Errno::EBUSY));
    assert_eq!(rig.last_error("main")["code"], "uncommitted_bytes");
    assert_eq!(rig.last_error("main/branches/x")["code"], "uncommitted_bytes");
    rig.fs.release(handle);
    rig.mv("main/branches/x", "main/x").unwrap();
}

#[test]
fn discarding_ends_a_branch_for_those_who_have_it_open() {
    let rig = with_fork();
    let writer = rig.open("main/branches/x/vectors/b.json", libc::O_WRONLY).unwrap();
    let query = rig.open("main/branches/x/query", libc::O_RDWR).unwrap();
    let listing = rig.fs.opendir(ROOT, rig.ino("main/branches/x/vectors").unwrap()).unwrap();
    rig.rmdir("main/branches/x").unwrap();
    assert_eq!(rig.fs.write(writer, 0, b"{"), Err(Errno::ESTALE));
    rig.fs.flush(writer).unwrap();
    assert_eq!(rig.fs.write(query, 0, b"old\n"), Err(Errno::ESTALE));
    assert_eq!(rig.fs.readdir(listing, 0, &mut |_, _, _, _| false), Err(Errno::ESTALE));
    let before = rig.mkdir("main/branches/x").unwrap();
    assert_eq!(rig.list("main/branches/x/vectors"), ["a.json"]);
    assert_eq!(rig.ino("main/branches/x"), Ok(before));
}

#[test]
fn what_has_children_stays_and_main_stays_always() {
    let rig = with_fork();
    rig.mkdir("main/branches/x/branches/y").unwrap();
    assert_eq!(rig.rmdir("main/branches/x"), Err(Errno::ENOTEMPTY));
    assert_eq!(rig.mv("main/branches/x", "main/x").unwrap_err(), Errno::ENOTEMPTY);
    assert_eq!(rig.rmdir("main"), Err(Errno::EPERM));
    assert_eq!(rig.last_error("main")["code"], "main_stays");
    rig.mkdir("other").unwrap();
    assert_eq!(rig.mv("other", "another").unwrap_err(), Errno::EINVAL);
    assert_eq!(rig.last_error("other")["code"], "root_name");
    assert_eq!(rig.mv("other", "main").unwrap_err(), Errno::EEXIST);
    assert_eq!(rig.last_error("other")["code"], "exists");
    rig.rmdir("other").unwrap();
    assert_eq!(rig.list(""), ["main"]);
}

#[test]
fn a_dry_run_says_how_many_child_branches_there_are_and_lists_the_conflicts() {
    let rig = with_fork();
    let dry_run = |verb: &str| -> serde_json::Value {
        rig.write("main/branches/x/ctl", &format!("{verb} --dry-run\n")).unwrap();
        serde_json::from_str(&rig.read("main/branches/x/ctl").unwrap()).unwrap()
    };
    assert_eq!(dry_run("merge")["status"], "ready", "a control");
    for child in ["y", "z"] {
        rig.mkdir(&format!("main/branches/x/branches/{child}")).unwrap();
    }
    rig.write("main/config/strategy", "manual").unwrap();
    rig.write("main/branches/x/vectors/a.json", &document("x")).unwrap();
    rig.write("main/vectors/a.json", &document("main")).unwrap();
    let blocked = dry_run("merge");
    assert_eq!((&blocked["status"], &blocked["conflicts"][0]["id"]), (&"blocked".into(), &"a".into()), "{blocked}");
    let blockers = blocked["blockers"].as_array().unwrap();
    let codes: Vec<&serde_json::Value> = blockers.iter().map(|blocker| &blocker["code"]).collect();
    assert_eq!(codes, ["has_children", "conflicts"]);
    assert_eq!(blockers[0]["message"], "main/x has child branches: 2");
    // The branch stays after a promote, and its children with it.
    let codes = dry_run("promote")["blockers"].clone();
    assert_eq!((codes.as_array().unwrap().len(), &codes[0]["code"]), (1, &"conflicts".into()));
}

#[test]
fn directories_are_made_where_they_mean_something() {
    let rig = with_fork();
    for path in ["main/folder", "main/vectors/folder", "main/config/folder", "main/export/folder", "main/search/folder"]
    {
        assert_eq!(rig.mkdir(path), Err(Errno::EPERM), "{path}");
    }
    for path in ["main/branches/vectors", "main/branches/.x", "bad name", "main/checkpoints/a b"] {
        assert_eq!(rig.mkdir(path), Err(Errno::EINVAL), "{path}");
    }
    assert_eq!(rig.mkdir("main/branches/x"), Err(Errno::EEXIST));
    for path in ["main/vectors", "main/branches", "main/config"] {
        assert_eq!(rig.rmdir(path), Err(Errno::EPERM), "{path}");
        assert_eq!(rig.mv(path, "main/branches/q").unwrap_err(), Errno::EPERM, "{path}");
    }
    assert_eq!(rig.open("main/file", ANEW), Err(Errno::EPERM));
}

#[test]
fn a_checkpoint_has_the_same_shape_and_never_changes() {
    let rig = with_fork();
    rig.mkdir("main/checkpoints/v1").unwrap();
    rig.write("main/vectors/a.json", &document("changed")).unwrap();
    assert_eq!(rig.list("main/checkpoints/v1"), rig.list("main"));
    assert!(rig.read("main/checkpoints/v1/vectors/a.json").unwrap().contains("old"));
    rig.write("main/checkpoints/v1/query", "old\n").unwrap();
    assert!(rig.read("main/checkpoints/v1/query").unwrap().contains("\"id\":\"a\""));
    assert_eq!(rig.write("main/checkpoints/v1/vectors/a.json", &document("x")), Err(Errno::EROFS));
    assert_eq!(rig.write("main/checkpoints/v1/vectors/new.json", &document("x")), Err(Errno::EROFS));
    assert_eq!(rig.write("main/checkpoints/v1/vectors/.tmp", "x"), Err(Errno::EROFS));
    assert_eq!(rig.rm("main/checkpoints/v1/vectors/a.json"), Err(Errno::EROFS));
    for name in ["ctl", "ingest", "config/task"] {
        assert_eq!(rig.open(&format!("main/checkpoints/v1/{name}"), libc::O_WRONLY), Err(Errno::EROFS), "{name}");
    }
    assert_eq!(rig.mkdir("main/checkpoints/v1/branches/y"), Err(Errno::EROFS));
    assert_eq!(rig.last_error("main")["path"], "checkpoints/v1/branches/y");
    assert_eq!(rig.mv("main/checkpoints/v1", "main/checkpoints/v2").unwrap_err(), Errno::EPERM);
    assert!(rig.last_error("main")["hint"].as_str().unwrap().contains("mkdir in checkpoints/"));
}

#[test]
fn a_checkpoint_that_is_taken_again_is_a_new_directory() {
    let rig = with_fork();
    let first = rig.mkdir("main/checkpoints/v1").unwrap();
    rig.rmdir("main/checkpoints/v1").unwrap();
    let second = rig.mkdir("main/checkpoints/v1").unwrap();
    assert_ne!(first, second);
    assert_eq!(rig.fs.getattr(rig.who, first, None), Err(Errno::ESTALE));
}

#[test]
fn the_directory_of_a_branch_takes_permission_bits() {
    let rig = with_fork();
    let changes = AttrChanges { mode: Some(0o750), ..AttrChanges::default() };
    assert_eq!(rig.fs.setattr(ROOT, rig.ino("main/branches/x").unwrap(), changes, None).unwrap().mode, 0o750);
    assert_eq!(rig.fs.setattr(ROOT, rig.ino("main/vectors").unwrap(), changes, None), Err(Errno::EPERM));
    rig.fs.setattr(ROOT, rig.ino("main/vectors").unwrap(), AttrChanges::default(), None).unwrap();
}

#[test]
fn a_record_goes_to_another_branch_as_to_another_file_system() {
    let rig = with_fork();
    assert_eq!(rig.mv("main/branches/x/vectors/b.json", "main/vectors/b.json").unwrap_err(), Errno::EXDEV);
    assert_eq!(rig.mv("main/vectors/a.json", "main/a.json").unwrap_err(), Errno::EPERM);
}

#[test]
fn a_mount_of_one_branch_ends_at_that_branch() {
    let mut rig = with_fork();
    let branch = rig.memory.resolve("main/x").unwrap();
    rig.fs = rig.view(FsOptions { branch: Some(branch), ..FsOptions::default() });
    assert_eq!(rig.list("vectors"), ["a.json", "b.json"]);
    assert_eq!(rig.mkdir("folder"), Err(Errno::EPERM));
    rig.mkdir("branches/y").unwrap();
    rig.write("branches/y/vectors/c.json", &document("y")).unwrap();
    rig.mv("branches/y", "y").unwrap();
    assert_eq!(rig.list("vectors"), ["a.json", "b.json", "c.json"]);
    assert_eq!(rig.write("ctl", "merge\n"), Err(Errno::EPERM));
    rig.write("ctl", "promote\n").unwrap();
    assert_eq!(rig.list("vectors"), ["a.json", "b.json", "c.json"]);
}

#[test]
fn a_read_only_mount_answers_and_changes_nothing() {
    let mut rig = with_fork();
    rig.fs = rig.view(FsOptions { read_only: true, ..FsOptions::default() });
    rig.write("main/query", "old\n").unwrap();
    assert!(rig.read("main/query").unwrap().contains("\"id\":\"a\""));
    assert!(rig.read("main/search/old").unwrap().contains("\"id\":\"a\""));
    rig.write("main/branches/x/ctl", "merge --dry-run\n").unwrap();
    assert_eq!(rig.write("main/branches/x/ctl", "promote\n"), Err(Errno::EROFS));
    assert_eq!(rig.write("main/vectors/a.json", &document("x")), Err(Errno::EROFS));
    assert_eq!(rig.write("main/vectors/.tmp", "x"), Err(Errno::EROFS));
    assert_eq!(rig.write("main/ingest", "{}\n"), Err(Errno::EROFS));
    assert_eq!(rig.write("main/config/task", "x\n"), Err(Errno::EROFS));
    assert_eq!(rig.mkdir("main/branches/y"), Err(Errno::EROFS));
    assert_eq!(rig.mkdir("main/checkpoints/v1"), Err(Errno::EROFS));
    assert_eq!(rig.rmdir("main/branches/x"), Err(Errno::EROFS));
    assert_eq!(rig.mv("main/branches/x", "main/x").unwrap_err(), Errno::EROFS);
    assert_eq!(rig.rm("main/vectors/a.json"), Err(Errno::EROFS));
    assert_eq!(rig.last_error("main")["errno"], "EROFS");
}

#[test]
fn a_branch_belongs_to_whom_made_it() {
    let mut rig = with_fork();
    rig.who = ANN;
    rig.mkdir("main/branches/mine").unwrap();
    assert_eq!(rig.stat("main/branches/mine").unwrap().uid, ANN.uid);
    assert_eq!(rig.stat("main/branches/mine/vectors/a.json").unwrap().uid, ANN.uid);
    assert_eq!(rig.stat("main/vectors/a.json").unwrap().uid, ROOT.uid);
}

#[test]
fn gc_ends_a_branch_whose_ttl_is_over_beside_uncommitted_bytes() {
    let seconds = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(1_700_000_000));
    let clock = seconds.clone();
    let rig = Rig::with_clock(move || Time(clock.load(std::sync::atomic::Ordering::Relaxed) * 1_000_000_000));
    rig.mkdir("main/branches/x").unwrap();
    rig.write("main/branches/x/config/ttl", "1h").unwrap();
    let handle = rig.open("main/branches/x/vectors/a.json", ANEW).unwrap();
    rig.fs.write(handle, 0, b"{\"text\":\"x\"").unwrap();
    assert_eq!(rig.write("main/branches/x/ctl", "merge\n"), Err(Errno::EBUSY), "a merge waits for them");
    for (passed, there) in [(3_599, true), (3_601, false)] {
        seconds.store(1_700_000_000 + passed, std::sync::atomic::Ordering::Relaxed);
        rig.write("main/ctl", "gc\n").unwrap();
        assert_eq!(rig.ino("main/branches/x").is_ok(), there, "{passed} s");
    }
    assert_eq!(rig.fs.flush(handle), Err(Errno::ESTALE));
}

#[test]
fn what_a_merge_answers_takes_it_back() {
    let rig = with_fork();
    let outcome = |branch: &str| -> serde_json::Value {
        serde_json::from_str(rig.read(&format!("{branch}/ctl")).unwrap().lines().last().unwrap()).unwrap()
    };
    let take_back = |receiver: &str| {
        let undo = outcome(receiver)["undo"].as_str().unwrap().to_owned();
        rig.write(&format!("{receiver}/ctl"), &format!("{undo}\n")).unwrap();
    };
    rig.write("main/branches/x/ctl", "promote\n").unwrap();
    assert_eq!(rig.list("main/vectors"), ["a.json", "b.json"]);
    let undo = outcome("main/branches/x")["undo"].as_str().unwrap().to_owned();
    rig.write("main/ctl", &undo).unwrap();
    assert_eq!(rig.list("main/vectors"), ["a.json"]);
    rig.write("main/vectors/c.json", &document("later")).unwrap();
    rig.write("main/branches/x/ctl", "pull\n").unwrap();
    assert!(rig.list("main/branches/x/vectors").contains(&"c.json".to_owned()));
    take_back("main/branches/x");
    assert!(!rig.list("main/branches/x/vectors").contains(&"c.json".to_owned()));
    // A discard says what brings the branch back.
    rig.rmdir("main/branches/x").unwrap();
    take_back("main");
    assert_eq!(rig.list("main/branches"), ["x"]);
    rig.write("main/branches/x/vectors/d.json", &document("of x")).unwrap();
    rig.write("main/branches/x/ctl", "merge\n").unwrap();
    assert!(rig.list("main/vectors").contains(&"d.json".to_owned()));
    take_back("main");
    assert!(!rig.list("main/vectors").contains(&"d.json".to_owned()));
}

#[test]
fn behind_a_gate_a_branchs_owner_merges_without_write_permission_and_nobody_else() {
    let mut rig = with_fork();
    let chmod = |rig: &Rig, path: &str, mode| {
        let may = AttrChanges { mode: Some(mode), ..AttrChanges::default() };
        let owner = Caller { uid: rig.stat(path).unwrap().uid, ..ROOT };
        rig.fs.setattr(owner, rig.ino(path).unwrap(), may, None).unwrap();
    };
    let bob = Caller { uid: 1001, gid: 1001, pid: 0 };
    let ask = |rig: &mut Rig, who, verb: &str| {
        rig.who = who;
        let asked = rig.write("main/branches/ann/ctl", &format!("{verb}\n"));
        rig.who = ROOT;
        asked
    };
    rig.who = ANN;
    rig.mkdir("main/branches/ann").unwrap();
    rig.write("main/branches/ann/vectors/c.json", &document("of ann")).unwrap();
    chmod(&rig, "main/branches/ann", 0o755);
    assert_eq!(ask(&mut rig, ANN, "promote"), Err(Errno::EACCES), "the gate is open");
    rig.write("main/config/gate", "deletes 9\n").unwrap();
    assert_eq!(ask(&mut rig, bob, "promote"), Err(Errno::EACCES));
    assert_eq!(ask(&mut rig, ANN, "promote"), Ok(()));
    assert!(rig.ino("main/vectors/c.json").is_ok());
    chmod(&rig, "main", 0o711);
    assert_eq!(ask(&mut rig, ANN, "promote"), Err(Errno::EACCES), "the branch would have what the parent has");
    assert_eq!(ask(&mut rig, bob, "merge"), Err(Errno::EACCES));
    assert_eq!(ask(&mut rig, ANN, "merge"), Ok(()));
    assert_eq!(rig.list("main/branches"), ["x"]);
}

/// The default scope names `branch` and `log`: of the branch that is asked, and no root branches.
#[test]
fn root_branches_that_are_called_like_a_scope_are_in_the_way_of_no_query() {
    let mut rig = with_fork();
    for name in ["log", "branch", "log:x"] {
        let closed = AttrChanges { mode: Some(0o700), ..AttrChanges::default() };
        rig.fs.setattr(ROOT, rig.mkdir(name).unwrap(), closed, None).unwrap();
    }
    let main = rig.memory.root("main");
    rig.who = ANN;
    rig.write("main/query", "old\n").unwrap();
    assert_eq!(
        rig.write("main/query", "{\"text\":\"old\",\"scope\":[\"log:x\"]}\n"),
        Err(Errno::EINVAL),
        "none was closed"
    );
    let alone = rig.view(FsOptions { branch: main, ..FsOptions::default() });
    let query = alone.lookup(ROOT, 1, OsStr::new("query")).unwrap().attr.ino;
    let handle = alone.open(ROOT, query, libc::O_RDWR).unwrap();
    alone.write(handle, 0, b"old\n").unwrap();
}
