//! Forks, merges, discards and checkpoints as mkdir(2), rename(2) and rmdir(2).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::{Mounted, close, errno, json, lines, names, read, rename_with, save};

/// A mount with the records a and b in main, and a fork x.
fn forked() -> Mounted {
    let mount = Mounted::new();
    mount.put("main/vectors/a.json", "a of main");
    mount.put("main/vectors/b.json", "b of main");
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    mount
}

/// Times decide who is newer, and a clock may be coarse.
fn later() {
    std::thread::sleep(Duration::from_millis(5));
}

#[test]
fn a_fork_starts_as_its_parent_and_then_goes_its_own_way() {
    let mount = forked();
    assert_eq!(mount.status("main/branches/x")["head"], mount.status("main")["head"]);
    mount.put("main/vectors/c.json", "later");
    mount.put("main/branches/x/vectors/a.json", "a of x");
    fs::remove_file(mount.at("main/branches/x/vectors/b.json")).unwrap();
    assert_eq!(names(mount.at("main/vectors")), ["a.json", "b.json", "c.json"]);
    assert_eq!(names(mount.at("main/branches/x/vectors")), ["a.json"]);
    assert_eq!(
        (mount.text("main/vectors/a.json"), mount.text("main/branches/x/vectors/a.json")),
        ("a of main".into(), "a of x".into())
    );

    let status = mount.status("main/branches/x");
    assert_eq!(
        (&status["path"], &status["parent"], &status["own_edits"]),
        (&"main/x".into(), &"main".into(), &2.into())
    );
    let changes: Vec<String> = lines(&read(mount.at("main/branches/x/diff")))
        .iter()
        .map(|line| format!("{} {}", line["id"], line["change"]))
        .collect();
    assert_eq!(changes, ["\"a\" \"modified\"", "\"b\" \"deleted\""]);
    assert_eq!(mount.status("main")["children"], 1);
}

#[test]
fn a_fork_may_have_its_ttl_from_the_beginning() {
    let mount = forked();
    mount.ctl("main", "fork y ttl 2h").unwrap();
    assert_eq!(read(mount.at("main/branches/y/config/ttl")).trim_end(), "2h");
    assert_eq!(errno(mount.ctl("main", "fork z ttl soon")), libc::EINVAL);
    let message = mount.refusal("main")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("soon"), "{message}");
    assert_eq!(names(mount.at("main/branches")), ["x", "y"]);
    mount.ctl("main", "fork z ttl 1s").unwrap();
    assert!(mount.has("main/branches/z/vectors/a.json"));
    std::thread::sleep(Duration::from_millis(1_100));
    mount.ctl("main", "gc").unwrap();
    assert_eq!(names(mount.at("main/branches")), ["x", "y"]);
}

#[test]
fn names_of_branches_have_rules() {
    let mount = forked();
    let fork = |name: &str| fs::create_dir(mount.at(&format!("main/branches/{name}")));
    assert_eq!(errno(fork("x")), libc::EEXIST);
    fork(&"n".repeat(64)).unwrap();
    fork("a_b.c-d:e@f").unwrap();
    for bad in [&"n".repeat(65), ".x", "a b", "ü", "vectors", "README.md", "files", "events.jsonl"] {
        assert_eq!(errno(fork(bad)), libc::EINVAL, "{bad}");
        assert_eq!(mount.refusal("main")["errno"], "EINVAL");
    }
    assert_eq!(errno(fs::create_dir(mount.at("status"))), libc::EINVAL);
    fs::create_dir(mount.at("other")).unwrap();
    assert_eq!(mount.status("other")["records"], 0);
    assert_eq!(errno(fs::rename(mount.at("other"), mount.at("another"))), libc::EINVAL);
    fs::remove_dir(mount.at("other")).unwrap();
    assert_eq!((errno(fs::remove_dir(mount.at("main"))), names(mount.at(""))), (libc::EPERM, vec!["main".to_owned()]));
}

#[test]
fn the_fixed_names_stay() {
    let mount = forked();
    for name in [
        "vectors",
        "branches",
        "checkpoints",
        "search",
        "export",
        "config",
        "at",
        "proposals",
        "shared",
        "files",
        "scratch",
    ] {
        assert_eq!(errno(fs::remove_dir(mount.at(&format!("main/{name}")))), libc::EPERM, "{name}");
        assert_eq!(errno(fs::rename(mount.at(&format!("main/{name}")), mount.at("main/moved"))), libc::EPERM, "{name}");
    }
    for name in [
        "query",
        "ingest",
        "ctl",
        "status",
        "lineage",
        "diff",
        "conflicts",
        "errors",
        "README.md",
        "branches.jsonl",
        "events.jsonl",
        "lease",
        "config/agent",
        "export/ids.txt",
    ] {
        assert_eq!(errno(fs::remove_file(mount.at(&format!("main/{name}")))), libc::EPERM, "{name}");
        assert_eq!(
            errno(fs::rename(mount.at("main/vectors/a.json"), mount.at(&format!("main/{name}")))),
            libc::EPERM,
            "{name}"
        );
    }
    for place in ["main/new", "main/config/new", "main/export/new", "main/vectors/new"] {
        assert_eq!(errno(fs::create_dir(mount.at(place))), libc::EPERM, "{place}");
    }
    for place in [
        "new",
        "main/new",
        "main/branches/new",
        "main/checkpoints/new",
        "main/export/new",
        "main/status",
        "main/search/new",
    ] {
        assert_eq!(errno(File::create(mount.at(place))), libc::EPERM, "{place}");
    }
}

#[test]
fn mv_to_the_parent_merges_in_one_commit_and_ends_the_branch() {
    let mount = forked();
    mount.put("main/branches/x/vectors/c.json", "c of x");
    fs::remove_file(mount.at("main/branches/x/vectors/b.json")).unwrap();
    let head = mount.status("main/branches/x")["head"].clone();
    mount.sh("mv main/branches/x main/");
    assert_eq!(names(mount.at("main/vectors")), ["a.json", "c.json"]);
    assert_eq!((mount.has("main/branches/x"), mount.has("main/x")), (false, false));
    let last = lines(&read(mount.at("main/lineage"))).pop().unwrap();
    assert_eq!(
        (&last["op"], &last["branch"], &last["parent"], &last["head"]),
        (&"merge".into(), &"main/x".into(), &"main".into(), &head)
    );
    assert_eq!((&last["counts"]["put"], &last["counts"]["deleted"]), (&1.into(), &1.into()));
    // The name is free again.
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    assert_eq!(names(mount.at("main/branches/x/vectors")).len(), 2);
}

#[test]
fn renames_of_branches_lead_to_few_places() {
    let mount = forked();
    for path in ["main/branches/y", "main/branches/x/branches/z"] {
        fs::create_dir(mount.at(path)).unwrap();
    }
    let rename = |from: &str, to: &str| rename_with(&mount.at(from), &mount.at(to), 0);
    for to in [
        "main/z",
        "z",
        "main/branches/z",
        "main/branches/x/other",
        "main/branches/x/vectors/z",
        "main/branches/x/checkpoints/z",
        "main/branches/y/branches/z",
    ] {
        assert_eq!(errno(rename("main/branches/x/branches/z", to)), libc::EINVAL, "{to}");
    }
    for bad in ["main/branches/status", "main/branches/a b"] {
        assert_eq!(errno(rename("main/branches/y", bad)), libc::EINVAL, "{bad}");
    }
    assert_eq!(errno(rename("main/branches/y", "main/branches/x")), libc::EEXIST);
    for flags in [libc::RENAME_EXCHANGE, libc::RENAME_WHITEOUT] {
        assert_eq!(errno(rename_with(&mount.at("main/branches/y"), &mount.at("main/branches/x"), flags)), libc::EINVAL);
    }
    assert_eq!(errno(rename("main/branches/x", "main/x")), libc::ENOTEMPTY, "it has a child");
    rename("main/branches/y", "main/branches/renamed").unwrap();
    assert_eq!(names(mount.at("main/branches")), ["renamed", "x"]);
    assert_eq!(mount.status("main/branches/renamed")["path"], "main/renamed");
    let mv = mount.sh("mv main/branches/x/branches/z main/ 2>&1 || true");
    assert!(
        mv.contains("mv:") && mount.has("main/branches/x/branches/z/status"),
        "mv neither copies nor removes: {mv}"
    );
}

#[test]
fn a_discard_takes_everything_but_not_what_is_still_wanted() {
    let mount = forked();
    fs::create_dir(mount.at("main/branches/x/branches/y")).unwrap();
    assert_eq!(errno(fs::remove_dir(mount.at("main/branches/x"))), libc::ENOTEMPTY);
    fs::remove_dir(mount.at("main/branches/x/branches/y")).unwrap();

    let mut half = File::create(mount.at("main/branches/x/vectors/c.json")).unwrap();
    half.write_all(b"{\"text\":\"c\"").unwrap();
    assert_eq!(errno(fs::remove_dir(mount.at("main/branches/x"))), libc::EBUSY);
    assert_eq!(errno(fs::rename(mount.at("main/branches/x"), mount.at("main/x"))), libc::EBUSY);
    assert_eq!(mount.refusal("main")["code"], "uncommitted_bytes");
    half.write_all(b"}").unwrap();
    close(half).unwrap();

    let mut record = File::open(mount.at("main/branches/x/vectors/c.json")).unwrap();
    let mut query = File::options().read(true).write(true).open(mount.at("main/branches/x/query")).unwrap();
    let mut new = File::create(mount.at("main/branches/x/vectors/d.json")).unwrap();
    fs::remove_dir(mount.at("main/branches/x")).unwrap();
    assert_eq!(errno(record.read(&mut [0; 9])), libc::ESTALE);
    assert_eq!(errno(query.write(b"tea\n")), libc::ESTALE);
    assert_eq!(errno(new.write(b"{\"text\":\"d\"}")), libc::ESTALE);
    assert_eq!((names(mount.at("main/branches")), names(mount.at("main/vectors")).len()), (vec![], 2));
}

#[test]
fn each_strategy_decides_conflicts_its_way() {
    let mount = Mounted::new();
    for (strategy, child_last, winner) in [
        ("child-wins", false, "child"),
        ("parent-wins", true, "parent"),
        ("newest-wins", true, "child"),
        ("newest-wins", false, "parent"),
    ] {
        save(mount.at("main/config/strategy"), strategy).unwrap();
        mount.put("main/vectors/k.json", "base");
        fs::create_dir(mount.at("main/branches/x")).unwrap();
        let (parent, child) = (("main/vectors/k.json", "parent"), ("main/branches/x/vectors/k.json", "child"));
        for (path, text) in if child_last { [parent, child] } else { [child, parent] } {
            later();
            mount.put(path, text);
        }
        let conflict = lines(&read(mount.at("main/branches/x/conflicts"))).pop().unwrap();
        assert_eq!((&conflict["id"], &conflict["decision"]), (&"k".into(), &winner.into()), "{strategy}");
        fs::rename(mount.at("main/branches/x"), mount.at("main/x")).unwrap();
        assert_eq!(mount.text("main/vectors/k.json"), winner, "{strategy}");
        let last = lines(&read(mount.at("main/lineage"))).pop().unwrap();
        assert_eq!(last["conflicts"][0]["decision"], winner);
    }
}

#[test]
fn manual_conflicts_block_until_they_are_resolved() {
    let mount = forked();
    save(mount.at("main/config/strategy"), "manual\n").unwrap();
    mount.put("main/vectors/a.json", "parent");
    mount.put("main/branches/x/vectors/a.json", "child");
    let head = mount.status("main")["head"].clone();
    assert_eq!(errno(fs::rename(mount.at("main/branches/x"), mount.at("main/x"))), libc::EBUSY);
    assert_eq!((mount.status("main")["head"].clone(), mount.has("main/branches/x")), (head, true));
    let plan = mount.ctl("main/branches/x", "merge --dry-run").unwrap();
    assert_eq!((&plan["status"], &plan["conflicts"][0]["id"]), (&"blocked".into(), &"a".into()));
    assert!(plan["blockers"][0]["hint"].is_string());

    mount.ctl("main/branches/x", "resolve a child").unwrap();
    mount.put("main/vectors/a.json", "parent again");
    assert_eq!(errno(mount.ctl("main/branches/x", "promote")), libc::EBUSY, "a later change voids what was resolved");
    mount.ctl("main/branches/x", "resolve a child").unwrap();
    let plan = mount.ctl("main/branches/x", "merge --dry-run").unwrap();
    assert_eq!(plan["status"], "ready");
    let done = mount.ctl("main/branches/x", "promote").unwrap();
    assert_eq!((&done["status"], &done["head"]), (&"merged".into(), &plan["head"]));
    assert_eq!((mount.text("main/vectors/a.json"), mount.has("main/branches/x")), ("child".into(), true));
}

#[test]
fn pull_brings_the_parents_changes_and_keeps_ones_own() {
    let mount = forked();
    mount.put("main/vectors/c.json", "c of main");
    fs::remove_file(mount.at("main/vectors/b.json")).unwrap();
    mount.put("main/branches/x/vectors/d.json", "d of x");
    let done = mount.ctl("main/branches/x", "pull").unwrap();
    assert_eq!((&done["put"], &done["deleted"]), (&1.into(), &1.into()));
    assert_eq!(names(mount.at("main/branches/x/vectors")), ["a.json", "c.json", "d.json"]);
    let status = mount.status("main/branches/x");
    assert_eq!((&status["base"], &status["own_edits"]), (&mount.status("main")["head"], &1.into()));
    assert_eq!(errno(mount.ctl("main/branches/x", "explode")), libc::EINVAL);
    assert_eq!(mount.refusal("main/branches/x")["code"], "bad_verb");
}

#[test]
fn checkpoints_never_change_and_rollback_returns_to_them() {
    let mount = forked();
    let head = mount.status("main")["head"].clone();
    let before = json(mount.at("main/vectors/a.json"));
    fs::create_dir(mount.at("main/checkpoints/v1")).unwrap();
    assert_eq!(errno(fs::create_dir(mount.at("main/checkpoints/v1"))), libc::EEXIST);
    later();
    mount.put("main/vectors/a.json", "changed");
    assert_ne!(json(mount.at("main/vectors/a.json"))["modified"], before["modified"], "a control");
    fs::remove_file(mount.at("main/vectors/b.json")).unwrap();
    assert_eq!(names(mount.at("main/checkpoints/v1/vectors")), ["a.json", "b.json"]);
    assert_eq!(mount.text("main/checkpoints/v1/vectors/a.json"), "a of main");

    let old = |path: &str| mount.at(&format!("main/checkpoints/v1/{path}"));
    for path in ["vectors/n.json", "vectors/a.json", "vectors/.tmp"] {
        assert_eq!(errno(save(old(path), "{\"text\":\"n\"}")), libc::EROFS, "{path}");
    }
    for (path, content) in [("ctl", "pull\n"), ("ingest", "{\"text\":\"n\"}\n"), ("config/agent", "n\n")] {
        let file = File::options().write(true).open(old(path));
        assert_eq!(errno(file.and_then(|mut file| file.write_all(content.as_bytes()))), libc::EROFS, "{path}");
    }
    assert_eq!(errno(fs::remove_file(old("vectors/a.json"))), libc::EROFS);
    assert_eq!(errno(fs::rename(old("vectors/a.json"), old("vectors/c.json"))), libc::EROFS);
    assert_eq!(errno(fs::create_dir(old("branches/n"))), libc::EROFS);
    let mut query = File::options().read(true).write(true).open(old("query")).unwrap();
    query.write_all(b"main\n").unwrap();
    let mut answer = String::new();
    query.read_to_string(&mut answer).unwrap();
    assert_eq!(lines(&answer)[0]["hits"], 2);

    assert_eq!(errno(mount.ctl("main", "rollback none")), libc::ENOENT);
    mount.ctl("main", "rollback v1").unwrap();
    assert_eq!((mount.status("main")["head"].clone(), json(mount.at("main/vectors/a.json"))), (head, before));
    fs::remove_dir(mount.at("main/checkpoints/v1")).unwrap();
    assert_eq!(names(mount.at("main/checkpoints")), [] as [&str; 0]);
}

#[test]
fn a_merge_after_a_rolled_back_pull_or_promote_takes_nothing_away() {
    for act in ["pull", "promote"] {
        let mount = forked();
        fs::create_dir(mount.at("main/branches/y")).unwrap();
        let y = "main/branches/y";
        mount.put(&format!("{y}/vectors/own.json"), "own");
        mount.ctl(y, "checkpoint before").unwrap();
        mount.put(&format!("{y}/vectors/later.json"), "later");
        for id in ["p1", "p2", "p3"] {
            mount.put(&format!("main/vectors/{id}.json"), id);
        }
        fs::write(mount.at("main/files/plan.md"), "the parent's").unwrap();
        mount.ctl(y, act).unwrap();
        assert!(mount.at(&format!("{y}/files/plan.md")).exists() && mount.at(&format!("{y}/vectors/p1.json")).exists());
        mount.ctl(y, "rollback before").unwrap();
        mount.put(&format!("{y}/vectors/after.json"), "after");

        fs::rename(mount.at(y), mount.at("main/y")).unwrap();
        let mut expected = vec!["a.json", "after.json", "b.json", "own.json", "p1.json", "p2.json", "p3.json"];
        if act == "promote" {
            expected.insert(3, "later.json");
        }
        assert_eq!(names(mount.at("main/vectors")), expected, "{act}");
        assert_eq!(fs::read_to_string(mount.at("main/files/plan.md")).unwrap(), "the parent's", "{act}");
    }
}

#[test]
fn a_branch_can_start_from_a_checkpoint() {
    let mount = forked();
    mount.ctl("main", "checkpoint v1 before the flood").unwrap();
    mount.put("main/vectors/c.json", "later");
    save(mount.at("main/config/strategy"), "keep-both").unwrap();
    mount.ctl("main", "fork old from v1").unwrap();
    assert_eq!(read(mount.at("main/branches/old/config/strategy")), "keep-both\n", "settings are those of now");
    assert_eq!(names(mount.at("main/branches/old/vectors")), ["a.json", "b.json"]);
    assert_eq!(errno(mount.ctl("main", "fork old from v1")), libc::EEXIST);
    assert_eq!(errno(mount.ctl("main", "fork older from v0")), libc::ENOENT);
}

#[test]
fn thirty_branches_below_each_other_merge_up_to_the_root() {
    let mount = forked();
    let path = |depth: usize| format!("main{}", "/branches/d".repeat(depth));
    for depth in 1..=30 {
        fs::create_dir(mount.at(&path(depth))).unwrap();
        mount.put(&format!("{}/vectors/d{depth}.json", path(depth)), "deep");
    }
    assert_eq!(mount.status(&path(30))["depth"], 30);
    assert_eq!(names(mount.at(&format!("{}/vectors", path(30)))).len(), 32);
    for depth in (1..=30).rev() {
        fs::rename(mount.at(&path(depth)), mount.at(&format!("{}/d", path(depth - 1)))).unwrap();
    }
    assert_eq!(names(mount.at("main/vectors")).len(), 32);
}

#[test]
fn who_stands_in_a_merged_branch_harms_nobody() {
    let mount = forked();
    let mut sleeper = super::command("sleep", &["60"]).current_dir(mount.at("main/branches/x")).spawn().unwrap();
    fs::rename(mount.at("main/branches/x"), mount.at("main/x")).unwrap();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    mount.put("main/branches/x/vectors/n.json", "new");
    let inode = fs::metadata(mount.at("main/branches/x")).unwrap().ino();
    assert_ne!(fs::metadata(format!("/proc/{}/cwd", sleeper.id())).map(|old| old.ino()).ok(), Some(inode));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(json(mount.at("main/branches/x/vectors/n.json"))["text"], "new");
}
