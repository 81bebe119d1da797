//! What agents share goes with a dump: names, signals, closed logs, proposals, and settings whoever wrote them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use engramfs::memory::{
    Actor, BranchId, Hash, Memory, MergeVerb, OpenMode, PurgeOptions, ReviewRequest, Setting, SharedLogEntryInput,
    SharedLogPosition, SignalId, View,
};
use serde_json::{Value, json};

use super::{open, tree};
use crate::mount::{lines, run};
use crate::story::{each_branch, picture};
use crate::support::{main_of, put, verify_folder, who};

fn bob() -> Actor {
    Actor { uid: 1001, gid: 1001, name: "bob".into() }
}

fn append(memory: &Memory, who: &Actor, branch: BranchId, lines: &[&str]) {
    let entries: Vec<_> = lines.iter().map(|line| SharedLogEntryInput::parse(line).unwrap()).collect();
    memory.append_log(who, branch, &entries).unwrap();
}

/// Publishes a signal through a branch.
fn publish(memory: &Memory, who: &Actor, via: BranchId, key: &str, (value, lifetime): (&[u8], &str)) {
    let key: Arc<str> = key.into();
    let signal = memory.claim_signal(who, via, &key, 0o640).unwrap();
    memory.write_signal(who, via, SignalId { key: &key, created: signal.created }, value).unwrap();
    memory.set_signal_lifetime(who, via, SignalId { key: &key, created: signal.created }, lifetime).unwrap();
}

/// A case with a log of its own, which is closed.
fn case(memory: &Memory, main: BranchId, lines: &[&str]) {
    let case = memory.fork(&who(), main, "case", None).unwrap();
    memory.set(&who(), case, Setting::Log, "own").unwrap();
    append(memory, &who(), case, lines);
    memory.discard(&who(), case).unwrap();
}

/// A branch of bob that proposed something, was approved of, and went on.
fn proposing(memory: &Memory, main: BranchId) -> BranchId {
    let (branch, reviewer) =
        (memory.fork(&bob(), main, "fix", None).unwrap(), Actor { uid: 1002, gid: 1002, name: "carl".into() });
    memory.set(&bob(), branch, Setting::Agent, "builder").unwrap();
    append(memory, &bob(), branch, &[r#"{"text":"begun"}"#]);
    memory.commit(&bob(), branch, vec![put("a", None, Some("as proposed"))]).unwrap();
    memory.propose(&bob(), branch, "please read").unwrap();
    let page: Value = serde_json::from_slice(&memory.plan_page(branch).unwrap()).unwrap();
    let plan: Hash = page["plan"].as_str().unwrap().parse().unwrap();
    memory.review(&reviewer, main, ReviewRequest { name: "fix", plan, approves: true, text: "fine" }).unwrap();
    memory.commit(&who(), main, vec![put("later", None, Some("in main, behind the proposal"))]).unwrap();
    memory.merge(&bob(), branch, MergeVerb::Pull, false).unwrap();
    memory.commit(&bob(), branch, vec![put("b", None, Some("behind the pull"))]).unwrap();
    branch
}

fn fill(memory: &Memory) {
    let main = main_of(memory);
    memory.set(&who(), main, Setting::Keep, "25d").unwrap();
    memory.set(&who(), main, Setting::Rules, "/policy/** text write=uid:1000\n** text").unwrap();
    memory.set(&who(), main, Setting::Gate, "approval 1\nsummary").unwrap();
    memory.set(&who(), main, Setting::Approvers, "uid:1002").unwrap();
    let kept = memory.fork(&who(), main, "kept", None).unwrap();
    memory.set(&who(), main, Setting::Keep, "10d").unwrap();
    memory.set(&who(), kept, Setting::Rules, "** whole append").unwrap();
    case(memory, main, &[r#"{"text":"first","event_id":"e"}"#, r#"{"text":"second","vector":[1,2]}"#]);
    case(memory, main, &[r#"{"text":"of another case"}"#]);
    let purged = format!("shared/log/closed/{}/1", memory.closed_logs(main).unwrap()[0]);
    memory.purge(&who(), main, &[purged], PurgeOptions::default()).unwrap();
    let fix = proposing(memory, main);
    let team = memory.fork(&who(), main, "team", None).unwrap();
    memory.set(&who(), team, Setting::Log, "own").unwrap();
    case(memory, team, &[r#"{"text":"a case of the team"}"#]);
    append(memory, &who(), team, &[r#"{"text":"the team's own"}"#]);
    let gone = memory.fork(&bob(), main, "gone", None).unwrap();
    memory.set(&bob(), gone, Setting::Agent, "ghost").unwrap();
    publish(memory, &bob(), gone, "left", (b"by a branch that ended", ""));
    memory.discard(&bob(), gone).unwrap();
    memory.set_agent_name(&who(), main, "rogue", true).unwrap();
    memory.set_agent_name(&who(), main, "uid:1003", true).unwrap();
    publish(memory, &who(), main, "text", (b"two\nlines", ""));
    publish(memory, &bob(), fix, "agent:builder:bytes", (&[0xff, 0, 1], "3650d"));
    publish(memory, &who(), main, "odd", (b"", "315360000000000001ns"));
    publish(memory, &who(), team, "of-the-team", (b"x", ""));
    publish(memory, &who(), main, "over", (b"x", "1ns"));
    memory.set(&who(), kept, Setting::SignalScope, "session").unwrap();
    publish(memory, &who(), kept, "session", (b"x", ""));
}

/// What agents share, as each branch has it.
fn shared(memory: &Memory) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    each_branch(memory, &mut |id| {
        let signals = memory.own_signals(id).unwrap().signals;
        let signal = |key: &Arc<str>| {
            let it = memory.signal(id, key).unwrap().unwrap();
            let via = memory.info(it.publisher.branch).ok().map(|branch| branch.path.to_string());
            let by = format!("{} {} {:?} {via:?}", it.publisher.uid, it.publisher.agent, it.publisher.session);
            format!(
                "{key} {:?} {} {:o} {} {} {by} {:?} {}",
                it.value, it.owner, it.mode, it.created, it.written, it.lifetime, it.ends_with_session
            )
        };
        let signals: Vec<String> = signals.iter().map(|(key, _)| signal(key)).collect();
        let closed: Vec<String> = memory.closed_logs(id).unwrap().iter().map(|name| name.to_string()).collect();
        let log = |name: &String| {
            let log = memory.closed_log(id, name).unwrap();
            let bytes = log.read(0, usize::MAX >> 1, &mut SharedLogPosition::default()).unwrap();
            (log.entry_count(), String::from_utf8(bytes).unwrap())
        };
        let logs: Vec<_> = closed.iter().map(log).collect();
        let proposed = memory.proposed_state(id).unwrap();
        let proposed =
            proposed.map(|it| (it.state.head().to_string(), it.base.head().to_string(), it.text.to_string()));
        let settings = memory.stored_settings(id).unwrap();
        let agents = memory.agents(id).unwrap().into_iter().map(|(name, uid)| (name.to_string(), uid));
        let agents: Vec<_> = agents.collect();
        let value = json!({
            "signals": signals, "closed": closed, "logs": logs, "proposed": proposed, "agents": agents,
            "settings": settings.values.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>(),
            "agent": memory.setting(&View::Branch(id), Setting::Agent).unwrap(), "inherits_rules": settings.inherits_rules,
            "log_at_base": memory.log_at_base(id).unwrap(),
        });
        all.insert(memory.info(id).unwrap().path.to_string(), value);
    });
    all
}

/// A dump of a store with all of it; what the store has, and what export said.
fn dumped() -> (tempfile::TempDir, [String; 2], BTreeMap<String, Value>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["dump", "back"].map(|name| folder.path().join(name).display().to_string());
    let store = folder.path().join("store");
    let memory = open(&store, OpenMode::Create);
    fill(&memory);
    let before = shared(&memory);
    let lease = memory.hold_lease(&who(), main_of(&memory)).unwrap();
    publish(&memory, &who(), main_of(&memory), "leased", (b"x", "lease"));
    // Beside its server, as long as that has the lease.
    let (code, out, error) = run(&["export", "--all", &format!("{}:main", store.display()), &paths[0], "--json"]);
    assert_eq!(code, 0, "{error}");
    drop(lease);
    memory.close().unwrap();
    fs::remove_dir_all(store).unwrap();
    (folder, paths, before, lines(&out).pop().unwrap())
}

#[test]
fn what_agents_share_comes_back_from_a_dump() {
    let (folder, [dump, back], before, report) = dumped();
    assert_eq!(report["left_out"], json!({ "lease_signals": 1, "reviews": 1 }), "{report}");
    let counts = ["agents", "signals", "closed_logs", "proposals"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(counts, [4, 6, 3, 1], "{report}");
    let (code, out, error) = run(&["import", "--all", &dump, &back, "--json"]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(lines(&out).pop().unwrap()["signals_ended"], 0);
    let store = Path::new(&back);
    verify_folder(store);
    let memory = open(store, OpenMode::Existing);
    assert!(memory.users().ends_with(&[(1000, "ann".into()), (1001, "bob".into()), (1002, "carl".into())]));
    let after = shared(&memory);
    for (path, value) in &before {
        assert_eq!(after[path], *value, "{path}");
    }
    let main = &before["main"];
    assert_eq!(main["agents"], json!([["builder", 1001], ["ghost", 1001], ["rogue", null], ["uid:1003", null]]));
    assert!(main["closed"].as_array().unwrap().len() == 2 && before["main/fix"]["inherits_rules"] == true);
    assert_eq!(before["main/fix"]["log_at_base"], 1, "a summary of before the base does not count");
    let fix = memory.resolve("main/fix").unwrap();
    let page: Value = serde_json::from_slice(&memory.plan_page(fix).unwrap()).unwrap();
    assert_eq!(
        (&page["text"], &page["reviews"], &page["agent"]),
        (&json!("please read"), &json!([]), &json!("builder"))
    );
    assert!(page["gate"][1]["missing"].is_string() && page["changes"].as_array().unwrap().len() == 1, "{page}");
    memory.close().unwrap();
    drop(memory);
    // What is dumped of a copy that nobody changed is the same to the byte.
    let again = folder.path().join("again").display().to_string();
    assert_eq!(run(&["export", "--all", &format!("{back}:main"), &again]).0, 0);
    let (mut one, mut other) = (BTreeMap::new(), BTreeMap::new());
    tree(Path::new(&dump), Path::new(&dump), &mut one);
    tree(Path::new(&again), Path::new(&again), &mut other);
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    assert!(one == other);
}

#[test]
fn a_branch_below_brings_its_proposal_and_the_names_of_agents() {
    let (folder, [dump, back], before, _) = dumped();
    assert_eq!(run(&["import", "--all", &dump, &back]).0, 0);
    let [below, again] = ["below", "again"].map(|name| folder.path().join(name).display().to_string());
    assert_eq!(run(&["export", "--all", &format!("{back}:main/fix"), &below]).0, 0);
    let (code, _, error) = run(&["import", "--all", &below, &again]);
    assert_eq!(code, 0, "{error}");
    let memory = open(Path::new(&again), OpenMode::Existing);
    let after = &shared(&memory)["main/fix"];
    for key in ["proposed", "agents", "agent", "settings", "inherits_rules"] {
        assert_eq!(after[key], before["main/fix"][key], "{key}");
    }
    // The log of the branch above was not dumped.
    assert_eq!(after["log_at_base"], 0);
    memory.close().unwrap();
}

/// Has the last log that was closed into each branch bear a number of a store with more entries.
fn renumber(dump: &Path, seq: u64) {
    let path = dump.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for branch in manifest["branches"].as_array_mut().unwrap() {
        let folder = dump.join(branch["folder"].as_str().unwrap()).join("closed_logs");
        if let Some(last) = branch["closed_logs"].as_array_mut().unwrap().last_mut() {
            let file = |name: &str| folder.join(format!("{name}.jsonl"));
            fs::rename(file(last["name"].as_str().unwrap()), file(&format!("case@{seq}"))).unwrap();
            last["name"] = json!(format!("case@{seq}"));
        }
    }
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn a_log_that_is_closed_behind_an_import_is_later_than_those_that_came() {
    let (_folder, [dump, back], ..) = dumped();
    renumber(Path::new(&dump), 900);
    assert_eq!(run(&["import", "--all", &dump, &back]).0, 0);
    let memory = open(Path::new(&back), OpenMode::Existing);
    let main = main_of(&memory);
    let text = |name: &str| {
        let lines = memory.closed_log(main, name).unwrap().lines_after(0, 1).unwrap();
        serde_json::from_slice::<Value>(&lines).unwrap()["text"].clone()
    };
    case(&memory, main, &[r#"{"text":"after the import"}"#]);
    assert_eq!(["case", "case@901", "case@900"].map(text), ["after the import", "after the import", "of another case"]);
    // One of a branch below whose name is taken keeps its place behind those that are there.
    memory.discard(&who(), memory.resolve("main/team").unwrap()).unwrap();
    assert_eq!(
        ["case@902", "team", "case@901"].map(text),
        ["a case of the team", "the team's own", "after the import"]
    );
    assert_eq!(memory.closed_logs(main).unwrap().len(), 5);
    memory.close().unwrap();
    drop(memory);
    verify_folder(Path::new(&back));
}

/// Changes a line of a file, counted from 1.
fn change(dump: &Path, file: &str, number: usize, with: &dyn Fn(Value) -> String) {
    let path = dump.join(file);
    let text = fs::read_to_string(&path).unwrap();
    let line = |(at, line): (usize, &str)| match at + 1 == number {
        true => with(serde_json::from_str(line).unwrap()) + "\n",
        false => format!("{line}\n"),
    };
    fs::write(path, text.lines().enumerate().map(line).collect::<String>()).unwrap();
}

/// What becomes of a line.
type Change = Box<dyn Fn(Value) -> String>;

/// Returns a line with another value of a member.
fn with(key: &'static str, value: Value) -> Change {
    Box::new(move |mut line| {
        line[key] = value.clone();
        line.to_string()
    })
}

#[test]
fn shared_state_that_was_made_up_is_refused_by_file_and_line_and_leaves_no_store() {
    let (signals, agents) = ("main/signals.jsonl", "main/agents.jsonl");
    let long = "v".repeat((64 << 10) + 1);
    let changes: Vec<(&str, usize, Change, &str)> = vec![
        (signals, 2, Box::new(|_| "{".into()), "line 2: EOF"),
        (signals, 2, with("key", json!("..")), "line 2: '..' can't be the key"),
        (signals, 1, with("key", json!("a/b")), "line 1: 'a/b' can't be the key"),
        (signals, 3, with("key", json!("left")), "line 3: there is a signal left already"),
        (signals, 1, with("uid", json!("root")), "line 1: invalid type: string \"root\""),
        (signals, 1, with("owner", json!(-1)), "line 1: invalid value"),
        (signals, 1, with("value", json!(long)), "line 1: the signal has 65537 bytes"),
        (signals, 1, with("value", json!({ "hex": "fff" })), "line 1: its value is no hex"),
        (signals, 1, with("value", json!(7)), "line 1: bytes are a text, or {\"hex\":\"…\"}"),
        (signals, 1, with("lifetime", json!("lease")), "line 1: \"lease\" is no lifetime"),
        (signals, 1, with("lifetime", json!("-1s")), "line 1: \"-1s\" is no lifetime"),
        (signals, 1, with("mode", json!("4777")), "line 1: \"4777\" is no mode"),
        (signals, 1, with("published", json!("today")), "line 1: \"today\" is no time"),
        (signals, 1, with("agent", json!("a\nb")), "line 1: "),
        (signals, 1, Box::new(|line| format!("{line}\n{}", line.to_string().replace("agent:", "agent:b:"))), "6 lines"),
        (agents, 1, with("uid", json!("x")), "line 1: invalid type: string \"x\""),
        (agents, 1, with("barred", json!(true)), "line 1: \"builder\" has either a uid or is barred"),
        (agents, 2, with("name", json!("builder")), "line 2: \"builder\" stands there twice"),
        (agents, 1, with("name", json!("n".repeat(201))), "line 1: \"nnn"),
        (agents, 1, with("name", json!("")), "line 1: \"\" is no name of an agent"),
        ("main/closed_logs", 0, Box::new(|_| String::new()), "'../../x@1' can't be the name of a closed log"),
        ("main/proposal", 0, Box::new(|_| String::new()), "the proposal of main/fix: "),
    ];
    let (folder, [dump, back], ..) = dumped();
    let (dump, manifest) = (Path::new(&dump), Path::new(&dump).join("manifest.json"));
    for (file, number, with, message) in &changes {
        let path = if *number == 0 { manifest.clone() } else { dump.join(file) };
        let whole = fs::read(&path).unwrap();
        match *number {
            0 => {
                let mut value: Value = serde_json::from_slice(&whole).unwrap();
                let branches = value["branches"].as_array_mut().unwrap();
                branches.iter_mut().for_each(|branch| match *file {
                    "main/closed_logs" if branch["path"] == "main" => {
                        branch["closed_logs"][0]["name"] = json!("../../x@1");
                    }
                    "main/proposal" if branch["path"] == "main/fix" => {
                        branch["proposal"]["text"] = json!("t".repeat(4_097));
                    }
                    _ => {}
                });
                fs::write(&path, value.to_string()).unwrap();
            }
            number => change(dump, file, number, with),
        }
        let (exit, _, error) = run(&["import", "--all", &dump.display().to_string(), &back, "--json"]);
        let error = lines(&error).pop().unwrap();
        assert_eq!((exit, &error["code"]), (4, &json!("damaged_dump")), "{file} {message}: {error}");
        let text = error["message"].as_str().unwrap();
        assert!(text.contains(message) && (*number == 0 || text.contains(file)), "{message}: {text}");
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "{file} {message}");
        fs::write(&path, whole).unwrap();
    }
    // The controls: a signal that ended on the way is no damage, and a dump as it was written is taken.
    let over = |mut line: Value| {
        line["lifetime"] = json!("1s");
        line.to_string()
    };
    change(dump, signals, 1, &over);
    let (exit, out, error) = run(&["import", "--all", &dump.display().to_string(), &back, "--json"]);
    assert_eq!((exit, lines(&out).pop().map(|report| report["signals_ended"].clone())), (0, Some(json!(1))), "{error}");
}

/// Whoever may write to a dump decides what comes of it, but for records and files, whose heads are in the manifest.
#[test]
fn a_changed_signal_name_setting_owner_or_mode_of_a_dump_is_taken_as_it_stands() {
    let (_folder, [dump, back], ..) = dumped();
    let (dump, manifest) = (Path::new(&dump), Path::new(&dump).join("manifest.json"));
    let forged = |mut line: Value| {
        (line["value"], line["owner"], line["mode"]) = (json!("forged"), json!(1002), json!("0666"));
        line.to_string()
    };
    change(dump, "main/signals.jsonl", 2, &forged);
    change(dump, "main/agents.jsonl", 2, &with("uid", json!(1002)));
    fs::write(dump.join("main/config/approvers"), "uid:1001\n").unwrap();
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&manifest).unwrap()).unwrap();
    for branch in value["branches"].as_array_mut().unwrap() {
        if branch["path"] == "main/kept" {
            (branch["owner"], branch["mode"]) = (json!(1002), json!("0700"));
        }
    }
    fs::write(&manifest, value.to_string()).unwrap();
    let (code, _, error) = run(&["import", "--all", &dump.display().to_string(), &back]);
    assert_eq!(code, 0, "{error}");

    let memory = open(Path::new(&back), OpenMode::Existing);
    let main = main_of(&memory);
    let left = memory.signal(main, "left").unwrap().unwrap();
    assert_eq!((&*left.value, left.owner, left.mode), (&b"forged"[..], 1002, 0o666));
    assert_eq!(memory.agents(main).unwrap()["ghost"], Some(1002));
    assert_eq!(memory.setting(&View::Branch(main), Setting::Approvers).unwrap(), "uid:1001");
    let kept = memory.info(memory.resolve("main/kept").unwrap()).unwrap();
    assert_eq!((kept.uid, kept.mode), (1002, 0o700));
    memory.close().unwrap();
    drop(memory);
    verify_folder(Path::new(&back));
}

/// A dump of the release before: without what it did not know.
#[test]
fn a_dump_without_shared_state_becomes_a_store_as_before() {
    let (_folder, [dump, back], before, _) = dumped();
    let manifest = Path::new(&dump).join("manifest.json");
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&manifest).unwrap()).unwrap();
    ["users", "agents"].iter().for_each(|key| drop(value.as_object_mut().unwrap().remove(*key)));
    for branch in value["branches"].as_array_mut().unwrap() {
        let branch = branch.as_object_mut().unwrap();
        for key in ["log_at_base", "closed_logs", "signals", "proposal", "inherits_rules"] {
            branch.remove(key).unwrap();
        }
    }
    // What an embedder is, is set where it is at work.
    fs::write(Path::new(&dump).join("main/config/embedder"), "lengths 3 0123\n").unwrap();
    // It refuses what a parent would not let a child have today.
    fs::write(Path::new(&dump).join("main/branches/kept/config/keep"), "10d\n").unwrap();
    fs::write(&manifest, value.to_string()).unwrap();
    for file in ["agents.jsonl", "signals.jsonl"] {
        fs::remove_file(Path::new(&dump).join("main").join(file)).unwrap();
    }
    fs::remove_dir_all(Path::new(&dump).join("main/closed_logs")).unwrap();
    let (code, _, error) = run(&["import", "--all", &dump, &back]);
    assert_eq!(code, 0, "{error}");
    let memory = open(Path::new(&back), OpenMode::Existing);
    let (heads, main) = (picture(&memory), main_of(&memory));
    assert!(before.keys().all(|path| heads.contains_key(path)));
    assert!(memory.signals(main).unwrap().is_empty() && memory.closed_logs(main).unwrap().is_empty());
    assert_eq!(memory.agents(main).unwrap(), [("builder".into(), Some(1001))].into(), "by config/agent alone");
    assert!(memory.proposals(main).unwrap().is_empty());
    memory.close().unwrap();
}
