//! The answers of verbs and of control files, held against the tables of the page, and who may ask for verbs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::rig::{ANN, ROOT, Rig, document};
use crate::fs::Errno;
use crate::verb::{Channel, VERBS};

/// Verbs whose answer is no object with keys of its own, and `reembed`, which needs an embedder.
const OTHERS: [&str; 3] = ["diff", "show", "reembed"];
/// Verbs that not only the owner may ask for: they change nothing, make a branch of the caller's own, or `memory` decides.
const FOR_ALL: [&str; 7] = ["fork", "discarded", "approve", "refuse", "diff", "show", "purge"];

type Keys = BTreeSet<String>;

/// The words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// For each row of the table, the verbs that it begins with and the keys of their answers.
fn rows() -> Vec<(Vec<&'static str>, Keys)> {
    let page = include_str!("../../../docs/SEMANTICS.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Verbs of ctl\n")).unwrap();
    let mut rows: Vec<(Vec<&str>, Keys)> = Vec::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [verbs, _, result] = cells[..] else { panic!("three cells: {row}") };
        let verbs =
            quoted(verbs).filter_map(|usage| usage.split(' ').next()).filter(|verb| !verb.starts_with('-')).collect();
        // Behind a colon stands what the last key is.
        let mut keys: Keys = quoted(result.split(": ").next().unwrap()).map(str::to_owned).collect();
        if let Some((of_merge, like)) = result.starts_with("as of `merge`").then(|| (keys.remove("merge"), &rows[1].1))
        {
            assert!(of_merge && rows[1].0.contains(&"merge"));
            keys.extend(like.iter().cloned());
        } else if result.starts_with("the same") {
            keys = rows.last().unwrap().1.clone();
        }
        rows.push((verbs, keys));
    }
    rows
}

/// Writes verbs, and collects the keys that each one answers with.
#[derive(Default)]
struct Answers(BTreeMap<String, Keys>);

impl Answers {
    fn ask(&mut self, rig: &Rig, branch: &str, line: &str) -> Value {
        let ctl = format!("{branch}/ctl");
        rig.write(&ctl, &format!("{line}\n"))
            .unwrap_or_else(|errno| panic!("{line}: {errno:?} {:?}", rig.last_error(branch)));
        // A merge ends the branch and with it the file: its parent has the answer.
        let answer = rig.read(&ctl).or_else(|_| rig.read("main/ctl")).unwrap();
        let answer: Value = serde_json::from_str(answer.lines().last().unwrap()).unwrap();
        let keys = answer.as_object().unwrap().keys().cloned();
        self.0.entry(line.split(' ').next().unwrap().to_owned()).or_default().extend(keys);
        answer
    }
}

#[test]
fn a_resolution_that_counts_for_nothing_yet_is_told_what_decides() {
    let rig = Rig::new();
    for (name, strategy, rule, decider) in [
        ("x", "manual", "** text child-wins", "a rule in config/rules"),
        ("y", "child-wins", "** text", "the strategy child-wins or a rule"),
    ] {
        let (file, branch) = (format!("files/{name}.md"), format!("main/branches/{name}"));
        rig.write("main/config/strategy", &format!("{strategy}\n")).unwrap();
        rig.write("main/config/rules", &format!("{rule}\n")).unwrap();
        rig.write(&format!("main/{file}"), "base\n").unwrap();
        rig.mkdir(&branch).unwrap();
        for (side, text) in [("main", "parent\n"), (branch.as_str(), "child\n")] {
            rig.write(&format!("{side}/{file}"), text).unwrap();
        }
        let answer = Answers::default().ask(&rig, &branch, &format!("resolve {file} parent"));
        assert_eq!(answer["status"], "noted", "{answer}");
        let reason = format!("merges decide otherwise for now, by {decider}: this counts once they leave it to manual");
        assert_eq!(answer["reason"], reason.as_str());
    }
}

/// Two branches that end in merges, with what is done to them until then.
fn ask_of_branches(rig: &Rig, answers: &mut Answers) {
    answers.ask(rig, "main", "checkpoint v1");
    answers.ask(rig, "main", "fork x");
    answers.ask(rig, "main", "fork y from v1");
    rig.write("main/vectors/both.json", "of the parent").unwrap();
    rig.write("main/branches/x/vectors/both.json", "of the child").unwrap();
    // The strategy takes the later one, which is the child's.
    let answer = answers.ask(rig, "main/branches/x", "resolve both parent");
    assert_eq!((&answer["status"], &answer["decision"]), (&"noted".into(), &"parent".into()));
    let answer = answers.ask(rig, "main/branches/x", "resolve both child");
    assert_eq!(answer["status"], "resolved");
    answers.ask(rig, "main/branches/x", "promote");
    rig.write("main/vectors/later.json", "of the parent").unwrap();
    answers.ask(rig, "main/branches/x", "pull");
    rig.write("main/branches/x/vectors/last.json", "of the child").unwrap();
    answers.ask(rig, "main/branches/x", "merge");
    rig.rmdir("main/branches/y").unwrap();
    answers.ask(rig, "main", "discarded");
}

/// A branch of somebody else that proposes.
fn ask_of_proposals(rig: &mut Rig, answers: &mut Answers) {
    rig.write("main/config/approvers", "uid:0\n").unwrap();
    rig.write("main/config/gate", "approval 1\n").unwrap();
    rig.who = ANN;
    rig.mkdir("main/branches/ann").unwrap();
    rig.write("main/branches/ann/vectors/tea.json", "tea at four").unwrap();
    let plan = answers.ask(rig, "main/branches/ann", "propose please")["plan"].as_str().unwrap().to_owned();
    rig.who = ROOT;
    answers.ask(rig, "main", &format!("approve ann {plan}"));
    answers.ask(rig, "main", &format!("refuse ann {plan}"));
    rig.who = ANN;
    answers.ask(rig, "main/branches/ann", "withdraw");
    rig.who = ROOT;
}

fn ask_of_main(rig: &Rig, answers: &mut Answers) {
    rig.write("main/vectors/new.json", "new").unwrap();
    let lineage = rig.read("main/lineage").unwrap();
    let last: Value = serde_json::from_str(lineage.lines().last().unwrap()).unwrap();
    answers.ask(rig, "main", &format!("revert {}", last["seq"]));
    rig.write("main/vectors/newer.json", "newer").unwrap();
    answers.ask(rig, "main", "undo");
    answers.ask(rig, "main", "redo");
    answers.ask(rig, "main", "rollback v1");
    rig.write("main/shared/log/append", "one\ntwo\n").unwrap();
    for line in ["archive-log 2", "bar-agent ann", "free-agent ann", "purge newer", "gc"] {
        answers.ask(rig, "main", line);
    }
}

#[test]
fn verbs_answer_with_the_keys_of_the_page() {
    let mut rig = Rig::new();
    let mut answers = Answers::default();
    ask_of_branches(&rig, &mut answers);
    ask_of_proposals(&mut rig, &mut answers);
    ask_of_main(&rig, &mut answers);
    let mut told = BTreeSet::new();
    for (verbs, keys) in rows() {
        for verb in verbs.into_iter().filter(|verb| !OTHERS.contains(verb)) {
            assert_eq!(answers.0.get(verb), Some(&keys), "the row of {verb} in docs/SEMANTICS.md");
            told.insert(verb.to_owned());
        }
    }
    let asked: BTreeSet<String> = answers.0.into_keys().collect();
    assert_eq!(told, asked, "the table has a row for each verb that was asked for");
}

/// The keys that the page's table of control files has for what is read from one.
fn keys_of_the_page(file: &str) -> Keys {
    let page = include_str!("../../../docs/SEMANTICS.md");
    let start = format!("| `{file}` |");
    let row = page.lines().find(|line| line.starts_with(&start)).unwrap();
    quoted(row.trim_end_matches(" |").rsplit(" | ").next().unwrap()).map(str::to_owned).collect()
}

#[test]
fn control_files_have_the_keys_of_the_page() {
    let rig = Rig::new();
    rig.write("main/ingest", "{\"id\":\"a\",\"text\":\"base\"}\n").unwrap();
    rig.mkdir("main/branches/x").unwrap();
    for branch in ["main", "main/branches/x"] {
        rig.write(&format!("{branch}/vectors/a.json"), &document(branch)).unwrap();
    }
    rig.write("main/branches/x/files/note", "of x").unwrap();
    assert_eq!(rig.write("main/branches/x/ctl", "no verb\n"), Err(Errno::EINVAL));
    for path in ["main/ingest", "main/branches/x/diff", "main/branches/x/conflicts", "main/branches/x/errors"] {
        let file = path.rsplit('/').next().unwrap();
        let (mut found, mut expected) = (Keys::new(), keys_of_the_page(file));
        for line in rig.read(path).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            found.extend(line.as_object().unwrap().keys().cloned());
        }
        if file == "conflicts" {
            // Only the record is in conflict here.
            expected.remove("path");
        }
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn verbs_that_change_a_branch_are_its_owners() {
    let mut rig = Rig::new();
    rig.who = ANN;
    let of_any = "checkpoint v1,rollback v1,resolve a child,pull,promote,merge,revert 1,undo,redo,propose,withdraw";
    let of_root_branches = "archive-log 1,reembed,free-agent ann,bar-agent ann,gc,gc --dry-run";
    let lines: Vec<&str> = of_any.split(',').chain(of_root_branches.split(',')).collect();
    let words = lines.iter().filter_map(|line| line.split(' ').next());
    let told: BTreeSet<&str> = words.chain(FOR_ALL).collect();
    let in_ctl = VERBS.iter().filter(|spec| spec.channel == Channel::Ctl).map(|spec| spec.name);
    assert_eq!(told, in_ctl.collect::<BTreeSet<&str>>(), "a new verb is written above, or stands in FOR_ALL");
    for line in lines {
        assert_eq!(rig.write("main/ctl", &format!("{line}\n")), Err(Errno::EACCES), "{line}");
        assert_eq!(rig.last_error("main")["code"], "not_owner", "{line}");
    }
    rig.write("main/ctl", "fork mine\n").unwrap();
    assert_eq!(rig.stat("main/branches/mine").unwrap().uid, ANN.uid);
}

#[test]
fn the_page_says_of_each_verb_who_may_ask_for_it() {
    let page = include_str!("../../../docs/SEMANTICS.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Permissions\n")).unwrap();
    let (table, _) = section.split_once("\nTests with two uids").unwrap();
    let cells = table.lines().filter(|line| line.starts_with("| ")).filter_map(|row| row.split(" | ").next());
    let told: BTreeSet<&str> = cells.flat_map(quoted).filter_map(|usage| usage.split(' ').next()).collect();
    for spec in VERBS.iter().filter(|spec| spec.channel == Channel::Ctl) {
        assert!(told.contains(spec.name), "no row of Permissions is for {}", spec.name);
    }
}

#[test]
fn a_revert_is_done_only_if_its_plan_is_the_one_that_was_named() {
    let rig = Rig::new();
    rig.write("main/vectors/a.json", "apples").unwrap();
    let lineage = rig.read("main/lineage").unwrap();
    let last: Value = serde_json::from_str(lineage.lines().last().unwrap()).unwrap();
    let line = format!("revert {}", last["seq"]);
    let mut answers = Answers::default();
    let dry = answers.ask(&rig, "main", &format!("{line} --dry-run"));
    let plan = dry["plan"].as_str().unwrap();
    let other = "0".repeat(plan.len());
    assert_eq!(rig.write("main/ctl", &format!("{line} --if-plan {other}\n")), Err(Errno::EBUSY));
    assert_eq!(rig.last_error("main")["code"], "plan_changed");
    assert!(rig.stat("main/vectors/a.json").is_ok(), "nothing is done");
    answers.ask(&rig, "main", &format!("{line} --if-plan {plan}"));
    assert_eq!(rig.stat("main/vectors/a.json").err(), Some(Errno::ENOENT));
}

#[test]
fn the_plan_of_a_proposal_has_the_members_of_the_page() {
    let page = include_str!("../../../docs/SEMANTICS.md");
    let (_, section) = page.split_once("\n`plan` in it is one JSON object, a member a line: ").unwrap();
    let (members, _) = section.split_once(" (`the_plan").unwrap();
    let mut rig = Rig::new();
    rig.write("main/config/approvers", "uid:0\n").unwrap();
    rig.write("main/config/gate", "approval 1\n").unwrap();
    rig.who = ANN;
    rig.mkdir("main/branches/ann").unwrap();
    rig.write("main/branches/ann/files/tea", "at four").unwrap();
    rig.write("main/branches/ann/ctl", "propose\n").unwrap();
    let text = rig.read("main/proposals/ann/plan").unwrap();
    let plan: Value = serde_json::from_str(&text).unwrap();
    for member in quoted(members).filter(|member| *member != "missing") {
        assert!(text.lines().any(|line| line.starts_with(&format!("\"{member}\":"))), "{member}: {text}");
    }
    assert_eq!((&plan["plan"].as_str().map(str::len), &plan["files"]), (&Some(64), &1.into()));
    assert_eq!((&plan["changes"][0]["path"], &plan["changes"][0]["mode"]), (&"files/tea".into(), &"0644".into()));
    assert!(plan["gate"][0]["missing"].is_string(), "{plan}");
    assert_eq!(rig.stat("main/proposals/ann/plan").unwrap().size, 0);
}

#[test]
fn a_verb_of_root_branches_is_refused_in_a_child_by_its_own_name() {
    let rig = Rig::new();
    rig.mkdir("main/branches/x").unwrap();
    for line in ["gc", "reembed", "free-agent ann", "bar-agent ann"] {
        assert_eq!(rig.write("main/branches/x/ctl", &format!("{line}\n")), Err(Errno::EPERM), "{line}");
        let told = rig.last_error("main/branches/x");
        let verb = line.split(' ').next().unwrap();
        assert_eq!(told["code"], "not_a_root_branch", "{told}");
        assert_eq!(told["message"], format!("{verb} is for root branches, and main/x is none"), "{told}");
    }
}

#[test]
fn a_line_that_is_no_verb_stops_the_others_too() {
    let rig = Rig::new();
    assert_eq!(rig.write("main/ctl", "checkpoint v1\nexplode\n"), Err(Errno::EINVAL));
    assert!(rig.list("main/checkpoints").is_empty());
    assert!(rig.last_error("main")["hint"].as_str().unwrap().contains("rollback"));
    assert_eq!(rig.write("main/ctl", "rollback nowhere\n"), Err(Errno::ENOENT));
}

#[test]
fn a_write_is_short_by_the_verb_that_failed() {
    let rig = Rig::new();
    let handle = rig.open("main/ctl", libc::O_WRONLY).unwrap();
    assert_eq!(rig.fs.write(handle, 0, b"checkpoint v1\nrollback nowhere\ncheckpoint v2\n"), Ok(14));
    assert_eq!(rig.fs.write(handle, 14, b"rollback nowhere\ncheckpoint v2\n"), Err(Errno::ENOENT));
    assert_eq!(rig.list("main/checkpoints"), ["v1"]);
}
