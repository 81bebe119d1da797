//! What a branch was, in `at/`, and taking back what was done.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json as value};

use super::users::{act, assert_refused, shared};
use super::{Mounted, engramfs, errno, json, lines, names, run, save, succeed};

/// Asks one query of a branch and returns the hits' ids.
fn ask(mount: &Mounted, branch: &str, query: &Value) -> Vec<String> {
    let mut file = File::options().read(true).write(true).open(mount.at(&format!("{branch}/query"))).unwrap();
    file.write_all(format!("{query}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    file.read_to_string(&mut answer).unwrap();
    let answer = lines(&answer);
    answer[1..].iter().map(|hit| hit["id"].as_str().unwrap().to_owned()).collect()
}

/// The number of the newest entry of a branch.
fn newest(mount: &Mounted, branch: &str) -> u64 {
    let lineage = fs::read_to_string(mount.at(&format!("{branch}/lineage"))).unwrap();
    lines(&lineage).iter().filter_map(|line| line["seq"].as_u64()).max().unwrap()
}

#[test]
fn an_earlier_state_has_the_shape_of_a_branch_and_never_changes() {
    let mount = Mounted::new();
    mount.put("main/vectors/a.json", "apple of old");
    fs::write(mount.at("main/files/note.md"), "old\n").unwrap();
    mount.put("main/vectors/b.json", "banana");
    let head = mount.status("main")["head"].clone();
    let entry = newest(&mount, "main");
    mount.put("main/vectors/a.json", "apple of new");
    fs::remove_file(mount.at("main/vectors/b.json")).unwrap();
    fs::write(mount.at("main/files/note.md"), "new\n").unwrap();
    mount.put("main/vectors/c.json", "apple, too");

    fs::create_dir(mount.at("other")).unwrap();
    mount.put("other/vectors/o.json", "apple of now");
    let mut both = ask(&mount, "main", &value!({ "text": "apple", "at": entry, "scope": ["branch", "other"] }));
    both.sort();
    assert_eq!(both, ["a", "o"], "the other root branch as it is now");
    let old = |path: &str| mount.at(&format!("main/at/{entry}/{path}"));
    for seals in [false, true] {
        if seals {
            mount.ctl("main", "gc").unwrap();
        }
        assert_eq!(names(old("vectors")), ["a.json", "b.json"]);
        assert_eq!(mount.text(&format!("main/at/{entry}/vectors/a.json")), "apple of old");
        assert_eq!(fs::read_to_string(old("files/note.md")).unwrap(), "old\n");
        assert_eq!(mount.status(&format!("main/at/{entry}"))["head"], head);
        assert_eq!(fs::read_to_string(old("export/records.jsonl")).unwrap().lines().count(), 2);
        assert_eq!(ask(&mount, &format!("main/at/{entry}"), &value!({ "text": "apple" })), ["a"]);
        assert_eq!(ask(&mount, "main", &value!({ "text": "apple", "at": entry })), ["a"]);
        assert_eq!(ask(&mount, "main", &value!({ "text": "apple" })).len(), 2);
    }
    for path in ["vectors/n.json", "vectors/a.json", "files/note.md"] {
        assert_eq!(errno(save(old(path), "{\"text\":\"n\"}")), libc::EROFS, "{path}");
        assert_eq!(mount.refusal("main")["code"], "earlier_state", "{path}");
    }
    let ctl = File::options().write(true).open(old("ctl"));
    assert_eq!(errno(ctl.and_then(|mut ctl| ctl.write_all(b"pull\n"))), libc::EROFS);
    assert_eq!(errno(fs::remove_file(old("vectors/a.json"))), libc::EROFS);
    assert_eq!(names(mount.at("main/at")), [] as [&str; 0], "what can be named is not listed");
    for nothing in ["99999", "nothing", "2001-01-01T00:00:00Z"] {
        assert_eq!(errno(fs::metadata(mount.at(&format!("main/at/{nothing}")))), libc::ENOENT, "{nothing}");
    }
    fs::create_dir(mount.at("main/checkpoints/v1")).unwrap();
    assert_eq!(names(mount.at("main/at/v1/vectors")), ["a.json", "c.json"]);
}

#[test]
fn who_may_not_read_a_branch_sees_nothing_of_what_it_was() {
    let Some(mount) = shared() else { return };
    fs::write(mount.at("main/files/open.md"), "for all\n").unwrap();
    fs::set_permissions(mount.at("main/files/open.md"), PermissionsExt::from_mode(0o644)).unwrap();
    mount.put("main/vectors/b.json", "later");
    let entry = newest(&mount, "main");
    let look = format!("cat main/at/{entry}/vectors/a.json main/at/{entry}/files/open.md");
    let diff = format!("echo diff {entry} > main/ctl");
    act(&mount, 1001, &look).unwrap();
    act(&mount, 1001, &diff).unwrap();
    // To enter and not to read.
    fs::set_permissions(mount.at("main"), PermissionsExt::from_mode(0o711)).unwrap();
    act(&mount, 1001, "echo discarded > main/ctl").unwrap();
    assert_refused(&mount, 1001, &diff);
    assert_refused(&mount, 1001, &look);
    assert_refused(&mount, 1001, &format!("cat main/at/{entry}/files/open.md"));
    let query = format!("exec 3<>main/query; echo '{{\"text\":\"main\",\"at\":{entry}}}' >&3");
    assert_refused(&mount, 1001, &query);
}

#[test]
fn an_agent_takes_back_its_own_mistakes_by_what_the_page_says() {
    let mount = Mounted::new();
    assert!(fs::read_to_string(mount.at("main/README.md")).unwrap().contains("echo undo > ctl"));
    for n in 0..20 {
        mount.put(&format!("main/vectors/r{n}.json"), "a");
    }
    let before = mount.status("main")["head"].clone();
    for n in 0..20 {
        fs::remove_file(mount.at(&format!("main/vectors/r{n}.json"))).unwrap();
    }
    let outcome = mount.ctl("main", "undo").unwrap();
    assert_eq!((&outcome["status"], &outcome["put"]), (&value!("reverted"), &value!(20)), "{outcome}");
    assert_eq!(mount.status("main")["head"], before);
    mount.ctl("main", "redo").unwrap();
    assert_eq!(names(mount.at("main/vectors")), [] as [&str; 0]);
    mount.ctl("main", "undo").unwrap();

    // A merge by mv says in ctl how to take it back, and so does rmdir.
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    mount.put("main/branches/x/vectors/bad.json", "poison");
    fs::rename(mount.at("main/branches/x"), mount.at("main/x")).unwrap();
    let told: Value = json(mount.at("main/ctl"));
    mount.put("main/vectors/later.json", "stays");
    mount.ctl("main", told["undo"].as_str().unwrap()).unwrap();
    assert!(!mount.at("main/vectors/bad.json").exists() && mount.at("main/vectors/later.json").exists());
    fs::create_dir(mount.at("main/branches/y")).unwrap();
    mount.put("main/branches/y/vectors/own.json", "own");
    fs::remove_dir(mount.at("main/branches/y")).unwrap();
    let told: Value = json(mount.at("main/ctl"));
    mount.ctl("main", told["undo"].as_str().unwrap()).unwrap();
    assert_eq!(mount.text("main/branches/y/vectors/own.json"), "own");
    assert_eq!(errno(mount.ctl("main/branches/y", "redo")), libc::EINVAL);
    assert_eq!(mount.refusal("main/branches/y")["code"], "nothing_to_redo");
}

#[test]
fn states_are_compared_through_a_mount_as_in_a_store() {
    let mount = Mounted::new();
    mount.put("main/vectors/a.json", "old");
    let entry = newest(&mount, "main").to_string();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    let (main, child) = (mount.at("main").display().to_string(), mount.at("main/branches/x").display().to_string());
    assert_eq!(run(&["diff", &main, &entry]).1, "", "nothing differs");
    fs::write(mount.at("main/branches/x/files/only.md"), "one\n").unwrap();
    assert_eq!(run(&["diff", &main, &entry, &child]).1, "A  files/only.md\n     + one\n", "one change");
    mount.put("main/branches/x/vectors/a.json", "new");
    let (code, out, _) = run(&["diff", &main, &entry, &child]);
    assert_eq!((code, &*out), (0, "M  vectors/a.json\n     - old\n     + new\nA  files/only.md\n     + one\n"));
    let shown = lines(&run(&["show", &main, &entry, "--changes"]).1);
    assert_eq!((shown.len(), &shown[0]["op"], &shown[1]["change"]), (2, &value!("commit"), &value!("added")));
}

#[test]
fn a_branch_to_compare_with_may_be_a_bare_name_and_a_label_comes_first() {
    let mount = Mounted::new();
    mount.sh("mkdir main/branches/fo");
    mount.put("main/branches/fo/vectors/b.json", "of fo");
    let diff = |folder: &str, words: &[&str]| {
        let all = [&["diff", "--json"][..], words].concat();
        lines(&succeed(engramfs(&all).current_dir(mount.at(folder))))
    };
    for (folder, words) in [
        ("", ["main/branches/fo", "main"]),
        ("main", ["branches/fo", "."]),
        ("main/branches", ["fo", ".."]),
        ("main/branches", ["fo", "../../main"]),
    ] {
        let found = diff(folder, &words);
        assert_eq!((found.len(), &found[0]["id"], &found[0]["change"]), (1, &"b".into(), &"added".into()), "{words:?}");
    }
    mount.sh("mkdir main/branches/fo/checkpoints/main");
    assert_eq!(diff("", &["main/branches/fo", "main"]), [] as [Value; 0], "the checkpoint");
    let fo = mount.at("main/branches/fo").display().to_string();
    assert_eq!(run(&["diff", &fo, "none"]).0, 6, "neither a label nor a branch");
}
