//! The built program on stores that are not mounted.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::mount::{engramfs, lines, run};

/// A folder for a test, and the paths of things in it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

pub fn json(arguments: &[&str]) -> (i32, Value) {
    let (code, out, err) = run(&[arguments, &["--json"]].concat());
    let line = if code == 0 { out } else { err };
    (code, lines(&line).pop().unwrap())
}

#[test]
fn init_makes_a_store_once_and_in_an_empty_folder_only() {
    let folder = Folder::new();
    let store = folder.at("store");
    let (code, made) = json(&["init", &store]);
    assert_eq!((code, &made["target"]), (0, &Value::from(format!("{store}:main"))));
    assert_eq!(json(&["status", &format!("{store}:main")]).1["tip"], made["tip"]);
    let (code, error) = json(&["init", &store]);
    assert_eq!((code, &error["code"]), (1, &Value::from("exists")));
    fs::create_dir(folder.at("used")).unwrap();
    fs::write(folder.at("used/notes.txt"), "mine").unwrap();
    let (code, error) = json(&["init", &folder.at("used")]);
    assert_eq!((code, &error["code"]), (1, &Value::from("not_a_store")));
    assert_eq!(fs::read_dir(folder.at("used")).unwrap().count(), 1);
    fs::create_dir(folder.at("empty")).unwrap();
    assert_eq!(run(&["init", &folder.at("empty")]).0, 0);
    assert_eq!(run(&["verify", &folder.at("empty")]).0, 0);
}

#[test]
fn an_argument_that_is_not_utf_8_is_refused_with_what_to_do() {
    let target = format!("{}:main", Folder::new().at("store"));
    let mut command = engramfs(&["purge", "--json", &target]);
    let done = command.arg(OsStr::from_bytes(b"files/odd\xff")).output().unwrap();
    let error = lines(&String::from_utf8(done.stderr).unwrap()).pop().unwrap();
    assert_eq!((done.status.code(), &error["code"]), (Some(2), &Value::from("usage")));
    assert!(error["hint"].as_str().unwrap().contains("renamed first"), "{error}");
}

#[test]
fn nothing_is_put_into_the_folder_of_another_store() {
    let folder = Folder::new();
    let [store, dump, notes, mnt] = ["store", "dump", "notes", "mnt"].map(|name| folder.at(name));
    let (main, inside, deep) = (format!("{store}:main"), format!("{store}/in"), format!("{store}/in/deep"));
    let [new, log, lines] = [format!("{inside}:main"), format!("{store}/log"), format!("{store}/all.jsonl")];
    let [beside, ids] = [folder.at("all.npy"), format!("{store}/ids")];
    run(&["init", &store]);
    for made in [&notes, &mnt] {
        fs::create_dir(made).unwrap();
    }
    fs::write(format!("{notes}/a.md"), "a note").unwrap();
    assert_eq!(run(&["export", "--all", &main, &dump]).0, 0);
    let tries: [&[&str]; 9] = [
        &["init", &inside],
        &["init", &deep],
        &["mount", "--foreground", &inside, &mnt],
        &["mount", "--log", &log, &store, &mnt],
        &["import", "--create", &new, &notes],
        &["import", "--all", &dump, &deep],
        &["export", "--all", &main, &deep],
        &["export", &main, &lines],
        &["export", &main, &beside, "--ids", &ids],
    ];
    for arguments in tries {
        let (code, error) = json(arguments);
        assert_eq!((code, &error["code"]), (1, &Value::from("inside_a_store")), "{arguments:?}: {error}");
        assert_eq!(run(&["verify", &store]).0, 0, "{arguments:?} left something there");
    }
    // One that lies in another from before is opened and not made.
    let moved = folder.at("moved");
    run(&["init", &moved]);
    fs::rename(&moved, &inside).unwrap();
    assert_eq!(run(&["import", "--create", &new, &notes]).0, 0);
}

#[test]
fn verify_names_what_is_no_file_of_a_store_and_has_it_moved_out() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    fs::create_dir(format!("{store}/archive")).unwrap();
    for foreign in ["notes.txt", "journal/copy", "segments/copy", "archive/copy"] {
        let path = format!("{store}/{foreign}");
        fs::write(&path, "a note").unwrap();
        let (code, error) = json(&["verify", &store]);
        assert_eq!((code, &error["code"]), (4, &Value::from("damaged")));
        let said = error["message"].as_str().unwrap();
        assert!(said.contains(&format!("the file {foreign} does not belong")), "{said}");
        assert_eq!(error["hint"], "move it out of the store's folder, then try again");
        fs::rename(&path, folder.at("out")).unwrap();
        assert_eq!(run(&["verify", &store]).0, 0, "as the hint says");
    }
}

#[test]
fn a_given_key_that_is_none_is_no_damage_of_the_store() {
    let folder = Folder::new();
    let (store, key) = (folder.at("store"), folder.at("hostname"));
    run(&["init", &store]);
    fs::write(&key, "a host\n").unwrap();
    let (code, error) = json(&["verify", &store, "--public-key", &key]);
    assert_eq!((code, &error["code"]), (1, &Value::from("bad_public_key")));
    assert!(error["message"].as_str().unwrap().starts_with(&format!("{key}: ")), "{error}");
    assert_eq!(run(&["verify", &store, "--public-key", &format!("{store}/key.pub")]).0, 0, "a control");
}

#[test]
fn the_manual_and_completions_are_json_where_that_is_wanted() {
    for (arguments, key) in [(&["man", "merge"], "roff"), (&["completions", "bash"], "script")] {
        let (code, answer) = json(arguments);
        assert_eq!((code, answer[key].as_str()), (0, Some(&*run(arguments).1)));
    }
}

#[test]
fn a_reserve_of_which_nothing_can_be_made_is_said_once() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    assert_eq!(run(&["gc", &store]).2, "", "a control");
    fs::remove_dir_all(format!("{store}/reserve")).unwrap();
    fs::write(format!("{store}/reserve"), "").unwrap();
    let (code, _, said) = run(&["gc", &store]);
    let warnings =
        said.matches("of the reserve of 8388608 bytes for deletes and gc on a full disk 0 are there").count();
    assert_eq!((code, warnings), (0, 1), "{said}");
}

#[test]
fn a_backup_is_checked_and_becomes_a_store() {
    let folder = Folder::new();
    let (store, copy, back) = (folder.at("store"), folder.at("copy"), folder.at("back"));
    run(&["init", &store]);
    run(&["fork", &format!("{store}:main"), "x"]);
    let (_, backup) = json(&["backup", &store, &copy]);
    let (code, restored) = json(&["restore", &copy, &back]);
    assert_eq!((code, &restored["branches"], &restored["tip"]), (0, &Value::from(2), &backup["tip"]));
    assert_eq!(restored["entries"], backup["entries"]);
    assert_eq!((&restored["bytes"], restored["bytes"].as_u64() > Some(0)), (&backup["bytes"], true));
    assert_eq!(run(&["fork", &format!("{back}:main/x"), "y"]).0, 0);
    let (code, error) = json(&["restore", &copy, &back]);
    assert_eq!((code, &error["code"]), (1, &Value::from("exists")));
    assert_eq!(json(&["restore", &folder.at("none"), &folder.at("new")]).0, 6);
    // A damaged backup is told before anything is made.
    let mut manifest = fs::read(format!("{copy}/manifest")).unwrap();
    let middle = manifest.len() / 2;
    manifest[middle] ^= 1;
    fs::write(format!("{copy}/manifest"), manifest).unwrap();
    assert_eq!(json(&["restore", &copy, &folder.at("new")]).0, 4);
    assert!(fs::metadata(folder.at("new")).is_err());
}

/// As cp without -p may make one.
#[test]
fn a_store_whose_key_others_may_read_is_refused_until_that_is_put_right() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    let (target, key) = (format!("{store}:main"), format!("{store}/key"));
    for mode in [0o640, 0o604] {
        fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
        for arguments in [&["status", &target][..], &["fork", &target, "x"], &["verify", &store]] {
            let (code, error) = json(arguments);
            assert_eq!((code, &error["code"]), (1, &Value::from("key")), "{mode:o} {arguments:?}");
            assert!(error["hint"].as_str().unwrap().contains("chmod 600"), "{error}");
        }
    }
    fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(json(&["fork", &target, "x"]).0, 0);
}

#[test]
fn a_store_of_the_first_format_is_refused_with_how_to_take_it_over() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    fs::write(format!("{store}/format"), "engramfs store, format 1\n").unwrap();
    for arguments in
        [&["status", &format!("{store}:main")][..], &["verify", &store], &["backup", &store, &folder.at("c")]]
    {
        let (code, error) = json(arguments);
        assert_eq!((code, &error["code"]), (1, &Value::from("old_format")), "{arguments:?}");
        let hint = error["hint"].as_str().unwrap();
        assert_ne!(env!("CARGO_PKG_VERSION"), "0.1.0", "the hint names another build than this one");
        assert!(hint.contains("engramfs 0.1.0") && hint.contains("export") && hint.contains("cp -a"), "{hint}");
    }
}

#[test]
fn a_discarded_branch_is_listed_and_comes_back() {
    let folder = Folder::new();
    let target = format!("{}:main", folder.at("store"));
    run(&["init", &folder.at("store")]);
    assert_eq!(run(&["fork", &target, "x"]).0, 0);
    run(&["fork", &target, "y"]);
    assert_eq!(run(&["discard", &format!("{target}/x")]).0, 0);
    assert_eq!(run(&["merge", &format!("{target}/y")]).0, 0);
    let listed = lines(&run(&["branches", "--discarded", "--json", &target]).1);
    let named: Vec<(&Value, &Value)> = listed.iter().map(|line| (&line["name"], &line["op"])).collect();
    assert_eq!(named, [(&Value::from("y"), &Value::from("merge")), (&Value::from("x"), &Value::from("discard"))]);
    assert!(run(&["branches", "--discarded", &target]).1.contains("x  discard"));
    let seq = listed[1]["seq"].to_string();
    assert_eq!(run(&["fork", "--from-discarded", &seq, &target, "again"]).0, 0);
    assert_eq!(json(&["fork", "--from-discarded", "z", &target, "z"]).1["code"], "no_such_state");
    let both = ["fork", "--from-discarded", "x", "--from", "-0m", &target, "both"];
    assert_eq!((json(&both).0, &json(&both).1["code"]), (1, &Value::from("two_sources")));
}

#[test]
fn a_purge_that_finds_nothing_is_6() {
    let folder = Folder::new();
    run(&["init", &folder.at("store")]);
    let (code, error) = json(&["purge", &format!("{}:main", folder.at("store")), "nothing"]);
    assert_eq!((code, &error["code"]), (6, &Value::from("nothing_to_purge")));
}

#[test]
fn states_are_named_by_label_entry_and_time() {
    let folder = Folder::new();
    let target = format!("{}:main", folder.at("store"));
    run(&["init", &folder.at("store")]);
    run(&["checkpoint", &target, "v1"]);
    let log = lines(&run(&["log", &target, "--json"]).1);
    let taken = log.iter().find(|line| line["op"] == "checkpoint").unwrap()["seq"].to_string();
    for state in ["v1", &taken, &format!("@{taken}"), "-0m"] {
        let (code, rolled) = json(&["rollback", &target, state]);
        assert_eq!(code, 0, "{state}: {rolled}");
    }
    assert_eq!(json(&["rollback", &target, &taken]).1["from"]["checkpoint"], "v1");
    let (code, forked) = json(&["fork", "--from", "-0m", &target, "x"]);
    assert!(code == 0 && forked["from"]["entry"].is_u64(), "{forked}");
    let (code, out, said) = run(&["fork", "--from", &taken, &target, "y"]);
    assert_eq!((code, out, said.contains("as it was at checkpoint v1")), (0, format!("{target}/y\n"), true), "{said}");
    let asked = lines(&run(&["query", &target, "keys", "--at", "-0m", "--json"]).1).remove(0);
    assert!(asked["at"]["entry"].is_u64() && asked["at"]["time"].is_string(), "{asked}");
    for (state, told) in [("99", "no_such_state"), ("-5d", "no_such_state"), ("v9", "no_such_checkpoint")] {
        let (code, error) = json(&["rollback", &target, state]);
        assert_eq!((code, &error["code"]), (6, &Value::from(told)), "{state}");
    }
    assert_eq!(json(&["checkpoint", &target, "12"]).1["code"], "bad_name");
}

#[test]
fn times_before_now_begin_with_a_dash_on_the_command_line() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    let main = format!("{store}:main");
    for arguments in
        [&["fork", "--from", "-2h", &main, "x"][..], &["rollback", &main, "-10m"], &["rollback", &main, "-90s"]]
    {
        let (code, error) = json(arguments);
        assert_eq!((code, &error["code"]), (6, &Value::from("no_such_state")), "{arguments:?}");
    }
    std::thread::sleep(std::time::Duration::from_millis(1100));
    run(&["checkpoint", &main, "v1"]);
    let (code, back) = json(&["rollback", &main, "-1s"]);
    assert_eq!((code, back["from"].is_object()), (0, true), "{back}");
    assert_eq!(json(&["checkpoint", &main, "-1s"]).0, 2);
}

#[test]
fn a_plan_that_changed_is_refused_as_by_a_gate() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    let (main, x) = (format!("{store}:main"), format!("{store}:main/x"));
    run(&["fork", &main, "x"]);
    let (code, error) = json(&["merge", "--if-plan", &"0".repeat(64), &x]);
    assert_eq!((code, &error["code"]), (3, &Value::from("plan_changed")));
}

#[test]
fn a_conflict_is_resolved_by_a_command() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    let (main, x) = (format!("{store}:main"), format!("{store}:main/x"));
    run(&["fork", &main, "x"]);
    assert_eq!(json(&["resolve", &x, "tea", "child"]).0, 6);
    assert_eq!(json(&["resolve", &x, "tea", "both"]).0, 2);
}

#[test]
fn branches_are_shown_as_a_tree_and_as_lines() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    let main = format!("{store}:main");
    assert_eq!(run(&["branches", &main, "--json"]).1, "");
    run(&["fork", &main, "x"]);
    run(&["fork", &format!("{main}/x"), "y"]);
    let (code, tree, _) = run(&["branches", &main]);
    let rows: Vec<Vec<&str>> = tree.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((code, rows.len(), rows[0][0], rows[1][0]), (0, 2, "x", "y"), "{tree}");
    assert!(tree.contains("\n  y ") && tree.contains("0 ahead, 0 behind"), "{tree}");
    let names: Vec<Value> =
        lines(&run(&["branches", &main, "--json"]).1).iter().map(|line| line["name"].clone()).collect();
    assert_eq!(names, ["main/x", "main/x/y"]);
}

#[test]
fn a_purge_of_unknown_names_fails_with_nothing_to_purge() {
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    let (code, error) = json(&["purge", &format!("{store}:main"), "pasword", "files/none"]);
    assert_eq!((code, &error["code"]), (6, &Value::from("nothing_to_purge")));
}

#[test]
fn a_store_that_may_not_be_entered_is_not_called_missing() {
    use std::os::unix::process::CommandExt;
    let folder = Folder::new();
    let store = folder.at("store");
    run(&["init", &store]);
    if fs::metadata("/proc/self").map(|it| std::os::unix::fs::MetadataExt::uid(&it)).ok() != Some(0) {
        return;
    }
    let (main, dest) = (format!("{store}:main"), folder.at("dest"));
    let program = folder.at("engramfs");
    fs::copy(env!("CARGO_BIN_EXE_engramfs"), &program).unwrap();
    fs::set_permissions(folder.0.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for arguments in
        [&["verify", &store][..], &["backup", &store, &dest], &["restore", &store, &dest], &["status", &main]]
    {
        let ran =
            std::process::Command::new(&program).args(arguments).arg("--json").uid(1001).gid(1001).output().unwrap();
        let error: Value = serde_json::from_slice(&ran.stderr).unwrap();
        assert_eq!((ran.status.code(), &error["code"]), (Some(1), &Value::from("permission_denied")), "{arguments:?}");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("owner")));
    }
}

#[test]
fn an_export_says_what_its_format_left_out() {
    let folder = Folder::new();
    let target = format!("{}:main", folder.at("store"));
    let lines = "{\"id\":\"a\",\"text\":\"one\"}\n{\"id\":\"b\",\"vector\":[1,2]}\n{\"id\":\"c\",\"text\":\"three\"}\n";
    fs::write(folder.at("in.jsonl"), lines).unwrap();
    run(&["import", "--create", &target, &folder.at("in.jsonl")]);
    for name in ["out.npy", "out.fvecs"] {
        let (code, told) = json(&["export", &target, &folder.at(name)]);
        let found = (code, &told["records"], &told["left_out"], &told["reason"], &told["kept_by"]);
        assert_eq!(found, (0, &Value::from(1), &Value::from(2), &Value::from("no_vector"), &Value::from(".jsonl")));
        let (_, _, words) = run(&["export", &target, &folder.at(name)]);
        assert!(words.contains("2 of 3 records have no vector") && words.contains(".jsonl"), "{words}");
    }
    // Each ending that the hint of another one names can be typed.
    let (code, refused) = json(&["export", &target, &folder.at("out")]);
    assert_eq!((code, &refused["hint"]), (2, &Value::from("end its name in .jsonl, .npy or .fvecs")));
    let (_, told) = json(&["export", &target, &folder.at("out.jsonl")]);
    assert_eq!(
        (&told["records"], &told["left_out"], &told["reason"]),
        (&Value::from(3), &Value::from(0), &Value::Null)
    );
}

#[test]
fn two_states_are_compared_with_both_texts() {
    let folder = Folder::new();
    let (store, input) = (folder.at("store"), folder.at("input.jsonl"));
    let main = format!("{store}:main");
    let import = |text: &str| {
        fs::write(&input, text).unwrap();
        assert_eq!(run(&["import", &main, &input]).0, 0);
    };
    run(&["init", &store]);
    import("{\"id\":\"a\",\"text\":\"same\\nold\"}\n{\"id\":\"gone\",\"text\":\"x\"}\n");
    run(&["checkpoint", &main, "v1"]);
    import("{\"id\":\"a\",\"text\":\"same\\nnew\"}\n{\"id\":\"gone\",\"delete\":true}\n");
    let (code, out, _) = run(&["diff", &main, "v1"]);
    assert_eq!((code, &*out), (0, "M  vectors/a.json\n     - old\n     + new\nD  vectors/gone.json\n     - x\n"));
    let changes = lines(&run(&["diff", &main, "v1", "--json"]).1);
    assert_eq!(
        (&changes[0]["before"]["text"], &changes[0]["after"]["text"]),
        (&"same\nold".into(), &"same\nnew".into())
    );
    // The other way round, and from an entry to the checkpoint.
    let back = lines(&run(&["diff", &main, "-0s", "v1", "--json"]).1);
    assert_eq!((&back[1]["id"], &back[1]["change"]), (&"gone".into(), &"added".into()));
    run(&["fork", &main, "x"]);
    let child = format!("{main}/x");
    run(&["import", &child, &input]);
    assert_eq!(run(&["diff", &main, "v1", &child]).1, out);
    assert_eq!(json(&["diff", &main, &folder.at("elsewhere")]).0, 6);
    assert_eq!(json(&["diff", &main, "no-such-label"]).1["code"], "no_such_checkpoint");

    let newest = lines(&run(&["log", &main, "--json"]).1).pop().unwrap();
    let shown = lines(&run(&["show", &main, &newest["seq"].to_string(), "--changes"]).1);
    assert_eq!((shown.len(), &shown[0]["op"], &shown[1]["id"]), (3, &"commit".into(), &"a".into()));
    // What can be looked at is listed, and is what a query is asked of.
    let kept = lines(&run(&["log", &main, "--kept", "--json"]).1);
    assert!(kept.iter().any(|line| line["seq"] == newest["seq"]), "{kept:?}");
    let hit_count = |at: &str| lines(&run(&["query", &main, "--at", at, "old", "--json"]).1)[0]["hits"].clone();
    assert_eq!((hit_count("v1"), hit_count("-0s")), (1.into(), 0.into()));
    // An agent reads what it did before it takes that back.
    let (code, told, _) = run(&["undo", &main]);
    assert!(code == 0 && told.starts_with("reverted main, entry ") && told.contains("takes it back"), "{told}");
    assert_eq!(run(&["diff", &main, "v1"]).1, "");
    // What a merged branch did stands in the lineage, and is no state of the branch it was merged into.
    let own = lines(&run(&["log", &child, "--json"]).1).pop().unwrap();
    assert_eq!(run(&["merge", &child]).0, 0);
    let has = |arguments: &[&str]| lines(&run(arguments).1).iter().any(|line| line["seq"] == own["seq"]);
    assert!(has(&["log", &main, "--json"]) && !has(&["log", &main, "--kept", "--json"]));
}

#[test]
fn a_promote_and_a_pull_are_tried_on_the_command_line_too() {
    let folder = Folder::new();
    let store = folder.at("store");
    let (main, x) = (format!("{store}:main"), format!("{store}:main/x"));
    assert_eq!((run(&["init", &store]).0, run(&["fork", &main, "x"]).0), (0, 0));
    let import = |branch: &str, id: &str| {
        fs::write(folder.at("in.jsonl"), format!("{{\"id\":\"{id}\",\"text\":\"one\"}}\n")).unwrap();
        assert_eq!(run(&["import", branch, &folder.at("in.jsonl")]).0, 0);
    };
    let records = |branch: &str| json(&["status", branch]).1["records"].clone();
    for (verb, from, to) in [("promote", &x, &main), ("pull", &main, &x)] {
        import(from, verb);
        let before = records(to);
        let (code, tried) = json(&[verb, "--dry-run", &x]);
        assert_eq!((code, &tried["status"], &tried["put"]), (0, &"ready".into(), &1.into()), "{verb}: {tried}");
        assert_eq!(records(to), before, "{verb}");
        let plan = tried["plan"].as_str().unwrap();
        assert_eq!(json(&[verb, &x, "--if-plan", plan]).0, 0, "{verb}");
        assert_eq!(records(to), before.as_u64().unwrap() + 1, "{verb}");
    }
}
