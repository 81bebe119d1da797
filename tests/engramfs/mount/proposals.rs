//! Proposals and gates, with an owner of the parent, authors and approvers of their own uids.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::users::{act, assert_refused, program, shared};
use super::{Mounted, lines, names, read, run};

/// The author of the branch that is proposed.
const ANN: u32 = 2001;
/// Approvers.
const BOB: u32 = 2002;
const EVE: u32 = 2003;
/// Nobody of importance.
const DAN: u32 = 2004;

/// A mount whose `main` has a gate, and a branch `x` of Ann's that adds a record and a file.
fn guarded(gate: &str) -> Option<Mounted> {
    let mount = shared()?;
    fs::write(mount.at("main/config/approvers"), format!("uid:{BOB}\nuid:{EVE}\n")).unwrap();
    fs::write(mount.at("main/config/gate"), gate).unwrap();
    act(&mount, ANN, "mkdir main/branches/x; cd main/branches/x; echo 'the kettle is red' > vectors/kettle.json; umask 077; echo one > files/notes")
        .unwrap();
    Some(mount)
}

/// Writes a verb to a `ctl` and returns its answer, also of a refusal.
fn ctl(mount: &Mounted, uid: u32, branch: &str, verb: &str) -> Value {
    let script = format!("cd {branch}; exec 3<>ctl; echo '{verb}' >&3 2> /dev/null || true; cat <&3");
    serde_json::from_str(&act(mount, uid, &script).unwrap()).unwrap()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}")).to_owned()
}

/// Proposes `x` and returns its plan.
fn propose(mount: &Mounted) -> String {
    let told = ctl(mount, ANN, "main/branches/x", "propose please");
    assert_eq!(told["status"], "proposed", "{told}");
    text(&told, "plan")
}

fn verified(mount: &Mounted) {
    assert_eq!(run(&["verify", mount.site.store.to_str().unwrap()]).0, 0);
}

fn page(mount: &Mounted, uid: u32) -> Value {
    serde_json::from_str(&act(mount, uid, "cat main/proposals/x/plan").unwrap()).unwrap()
}

#[test]
fn a_gate_waits_for_approvals_of_exactly_this_plan() {
    let Some(mount) = guarded("approval 2\n") else { return };
    let promote = |uid| ctl(&mount, uid, "main/branches/x", "promote");
    assert_eq!(promote(ANN)["code"], "gate_pending");
    let dry = ctl(&mount, ANN, "main/branches/x", "merge --dry-run");
    assert_eq!((&dry["status"], &dry["blockers"][0]["code"]), (&"blocked".into(), &"gate_pending".into()));
    let plan = propose(&mount);
    assert_eq!((text(&dry, "plan"), text(&page(&mount, BOB), "plan")), (plan.clone(), plan.clone()));
    let approve = format!("approve x {plan} read it");
    assert_eq!(ctl(&mount, BOB, "main", &approve)["status"], "approved");
    let waits = promote(ANN);
    assert!(
        text(&waits, "message").contains("1 of 2 approvals") && text(&waits, "message").contains("uid:2003 could"),
        "{waits}"
    );
    // The parent goes on, without touching what the merge does.
    mount.put("main/vectors/other.json", "something else");
    assert_eq!(ctl(&mount, EVE, "main", &approve)["status"], "approved");
    // What is approved is this and nothing else.
    act(&mount, ANN, "echo 'the kettle is blue' > main/branches/x/vectors/kettle.json").unwrap();
    assert_eq!(promote(ANN)["code"], "gate_pending");
    act(&mount, ANN, "echo 'the kettle is red' > main/branches/x/vectors/kettle.json").unwrap();
    let done = promote(ANN);
    assert_eq!((&done["status"], text(&done, "plan")), (&"merged".into(), plan.clone()), "{done}");
    assert_eq!(mount.text("main/vectors/kettle.json"), "the kettle is red");
    assert_eq!(names(mount.at("main/proposals")), [""; 0], "it is merged");
    let lineage = lines(&mount.sh("cat main/lineage"));
    let approvals: Vec<_> = lineage.iter().filter(|line| line["op"] == "approve").collect();
    assert_eq!(approvals.len(), 2);
    assert!(approvals.iter().all(|line| line["plan"] == *plan && line["proposal"] == "x" && line["text"] == "read it"));
    assert!(approvals[0]["uid"] == BOB && approvals[1]["uid"] == EVE);
    verified(&mount);
}

#[test]
fn a_gate_outlives_the_server_with_all_that_was_said() {
    let Some(mount) = guarded("approval 1\n") else { return };
    let plan = propose(&mount);
    ctl(&mount, BOB, "main", &format!("approve x {plan}"));
    let mount = mount.again(&["--allow-other"]);
    assert_eq!(page(&mount, EVE)["reviews"][0]["uid"], BOB);
    let mount = mount.unmounted_and_again().again(&["--allow-other"]);
    assert_eq!(page(&mount, 0)["plan"], *plan);
    mount.sh("echo gc > main/ctl");
    assert_eq!(act(&mount, BOB, "cat main/proposals/x/files/notes").unwrap(), "one\n");
    assert_eq!(ctl(&mount, ANN, "main/branches/x", "promote")["status"], "merged");
    verified(&mount);
}

#[test]
fn a_proposal_is_shown_to_approvers_alone() {
    let Some(mount) = guarded("approval 1\n") else { return };
    propose(&mount);
    // It stays as it was proposed, and the branch goes on.
    act(&mount, ANN, "echo two > main/branches/x/files/notes; rm main/branches/x/vectors/kettle.json").unwrap();
    for uid in [0, ANN, BOB, EVE] {
        let seen = act(
            &mount,
            uid,
            "cd main/proposals/x; cat files/notes; grep -h '\"text\"' vectors/kettle.json; stat -c %a . files files/notes vectors vectors/kettle.json plan | tr '\\n' ' '; cat 'search/red kettle' | grep -c rank",
        );
        assert_eq!(seen.unwrap(), "one\n\"text\": \"the kettle is red\",\n555 555 444 555 444 444 1\n", "{uid}");
        let plan = page(&mount, uid);
        let file = plan["changes"].as_array().unwrap().iter().find(|change| change["kind"] == "file").unwrap();
        assert_eq!((&file["path"], &file["mode"]), (&"files/notes".into(), &"0600".into()));
    }
    // Whoever saw it a moment ago leaves nothing behind for others.
    let script = "for n in $(seq 20); do ! ls main/proposals/x || exit 0; ! cat main/proposals/x/plan || exit 0; ! stat main/proposals/x/files/notes || exit 0; done 2> /dev/null; exit 1";
    for round in 0..3 {
        act(&mount, BOB, "find main/proposals/x | wc -l").unwrap();
        assert!(act(&mount, DAN, script).is_err(), "{round}");
    }
    for path in
        ["", "/plan", "/files/notes", "/vectors/kettle.json", "/export/records.jsonl", "/search/kettle", "/status"]
    {
        assert_refused(&mount, DAN, &format!("cat main/proposals/x{path}"));
    }
    assert_eq!(act(&mount, DAN, "tail -n 1 main/errors").unwrap().matches("proposal_closed").count(), 1);
    for script in [
        "echo y > main/proposals/x/files/notes",
        "rm main/proposals/x/vectors/kettle.json",
        "rmdir main/proposals/x",
        "echo pull > main/proposals/x/ctl",
        "mkdir main/proposals/y",
    ] {
        assert!(act(&mount, 0, script).is_err(), "{script}");
        assert!(act(&mount, BOB, script).is_err(), "{script}");
    }
    let engramfs = program(&mount);
    for verb in ["status main/proposals/x", "query main/proposals/x kettle", "gate main/proposals/x -- true"] {
        let said = act(&mount, DAN, &format!("{engramfs} {verb}")).unwrap_err();
        assert!(said.contains("can't be looked at"), "{said}");
    }
    // An approver no longer.
    fs::write(mount.at("main/config/approvers"), format!("uid:{EVE}\n")).unwrap();
    assert_refused(&mount, BOB, "cat main/proposals/x/plan");
    assert_refused(&mount, BOB, "ls main/branches/x");
}

/// Ann's branch `x`, open to all, with Bob as its approver, and with files that are hers alone.
fn with_private_files() -> Option<Mounted> {
    let mount = guarded("open\n")?;
    let script = format!(
        "cd main/branches/x; chmod 755 .; echo uid:{BOB} > config/approvers; umask 022; echo 'a page' > files/public
        echo topsecret > files/notes; python3 -c \"import os; os.setxattr('files/notes', 'user.k', b'v')\"
        mkdir -m 700 files/shut; echo hidden > files/shut/inner; echo beside > files/shut/beside"
    );
    act(&mount, ANN, &script).unwrap();
    Some(mount)
}

/// Asks for a word in a proposal of a branch below `x`, and returns how many files are found.
fn found(mount: &Mounted, uid: u32, (name, word): (&str, &str)) -> String {
    let script = format!("cat main/branches/x/proposals/{name}/search/{word} | grep -c rank || true");
    act(mount, uid, &script).unwrap().trim().to_owned()
}

/// Else whoever may fork a branch reads all of it by proposing the fork.
#[test]
fn a_proposal_opens_what_its_owner_changed_and_nothing_that_was_closed() {
    let Some(mount) = with_private_files() else { return };
    let changes = "cd main/branches/x; mkdir branches/d; cd branches/d; umask 077; echo added > files/added
        echo changed > files/public; mv files/notes files/moved; mkdir files/mine; echo deep > files/mine/deep
        echo propose > ctl";
    act(&mount, DAN, changes).unwrap();
    let proposal = "main/branches/x/proposals/d";
    for uid in [BOB, DAN] {
        for closed in [
            "cat files/moved",
            "cp files/moved /dev/null",
            "ls files/shut",
            "cat files/shut/inner",
            "stat files/shut/inner",
            "python3 -c \"import os; os.getxattr('files/moved', 'user.k')\"",
        ] {
            assert_refused(&mount, uid, &format!("cd {proposal}; {closed}"));
        }
        let open = "cat files/added files/public files/mine/deep; cd files; stat -c '%a %u' . added public mine mine/deep moved shut";
        let shown = format!(
            "added\nchanged\ndeep\n555 {DAN}\n444 {DAN}\n444 {DAN}\n555 {DAN}\n444 {DAN}\n600 {ANN}\n700 {ANN}\n"
        );
        assert_eq!(act(&mount, uid, &format!("cd {proposal}; {open}")).unwrap(), shown, "{uid}");
        let hits = ["topsecret", "hidden", "deep"].map(|word| found(&mount, uid, ("d", word)));
        assert_eq!(hits, ["0", "0", "1"], "{uid}");
        let told = act(&mount, uid, &format!("cd {proposal}; cat diff plan export/records.jsonl README.md")).unwrap();
        assert!(told.contains("files/moved") && !told.contains("files/shut"), "{told}");
        assert!(!told.contains("topsecret"), "{told}");
    }
    // To whom it belongs it is as open as everywhere.
    let read = act(&mount, ANN, &format!("cd {proposal}/files; cat moved shut/inner mine/deep")).unwrap();
    assert_eq!(read, "topsecret\nhidden\ndeep\n");
    assert_eq!(["topsecret", "hidden"].map(|word| found(&mount, ANN, ("d", word))), ["1", "1"]);
    assert!(act(&mount, DAN, &format!("rm -f {proposal}/files/added")).is_err());
    assert!(act(&mount, DAN, &format!("echo more >> {proposal}/files/public")).is_err());
    verified(&mount);
}

/// One who proposes to themselves shows approvers no more than what they changed.
#[test]
fn a_closed_directory_is_opened_for_what_was_changed_in_it_alone() {
    let Some(mount) = with_private_files() else { return };
    let change =
        "cd main/branches/x; mkdir branches/y; cd branches/y; echo revealed > files/shut/inner; echo propose > ctl";
    act(&mount, ANN, change).unwrap();
    let proposal = "main/branches/x/proposals/y";
    let seen = act(&mount, BOB, &format!("cd {proposal}/files; ls shut; cat shut/inner; stat -c %a shut notes public"));
    assert_eq!(seen.unwrap(), "inner\nrevealed\n555\n600\n444\n");
    assert_refused(&mount, BOB, &format!("cat {proposal}/files/notes"));
    for looked in ["cat", "stat"] {
        let said = act(&mount, BOB, &format!("{looked} {proposal}/files/shut/beside")).unwrap_err();
        assert!(said.contains("No such file"), "{said}");
    }
    let hits = ["revealed", "beside", "topsecret"].map(|word| found(&mount, BOB, ("y", word)));
    assert_eq!(hits, ["1", "0", "0"]);
    assert_eq!(act(&mount, ANN, "cat main/branches/x/branches/y/files/shut/beside").unwrap(), "beside\n");
}

#[test]
fn a_checker_without_a_proposal_a_program_or_the_right_to_review_says_nothing() {
    let mount = Mounted::new();
    mount.sh("mkdir main/branches/x; echo propose > main/branches/x/ctl");
    let gate = |proposal: &str, checker: &str| {
        let path = mount.at(&format!("main/proposals/{proposal}")).display().to_string();
        let (code, _, said) = run(&["gate", "--json", &path, "--", checker]);
        (code, lines(&said).pop().unwrap()["code"].clone())
    };
    assert_eq!(gate("none", "true"), (6, "no_proposal".into()));
    assert_eq!(gate("x", "/none/such"), (1, "not_started".into()));
    assert_eq!(gate("x", "true"), (1, "own_proposal".into()));
    assert_eq!(super::json(mount.at("main/proposals/x/plan"))["reviews"], serde_json::json!([]));
}

#[test]
fn a_proposal_ends_with_its_branch_or_name() {
    let Some(mount) = guarded("approval 1\n") else { return };
    let there = || names(mount.at("main/proposals"));
    let events = || lines(&mount.sh("cat main/events.jsonl"));
    propose(&mount);
    let told = events().pop().unwrap();
    assert_eq!((&told["event"], &told["branch"], told.get("head")), (&"propose".into(), &"main/x".into(), None));
    assert_eq!(there(), ["x"]);
    assert_eq!(ctl(&mount, ANN, "main/branches/x", "withdraw")["status"], "withdrawn");
    assert_eq!(
        (there().len(), ctl(&mount, ANN, "main/branches/x", "withdraw")["code"].clone()),
        (0, "no_proposal".into())
    );
    assert_eq!(events().pop().unwrap()["event"], "withdraw");
    propose(&mount);
    let below = lines(&mount.sh("cat main/branches.jsonl"));
    assert_eq!(below[0]["proposed"], true);
    act(&mount, ANN, "mv main/branches/x main/branches/y").unwrap();
    assert_eq!(there().len(), 0);
    act(&mount, ANN, "mv main/branches/y main/branches/x").unwrap();
    let old = propose(&mount);
    ctl(&mount, BOB, "main", &format!("approve x {old}"));
    let said = || page(&mount, BOB)["reviews"].as_array().unwrap().len();
    assert_eq!(said(), 1);
    assert_eq!((propose(&mount), said()), (old.clone(), 0), "proposing again takes back what was said");
    ctl(&mount, BOB, "main", &format!("approve x {old}"));
    act(&mount, ANN, "rmdir main/branches/x").unwrap();
    assert_eq!(there().len(), 0);
    // Another branch of that name with the same content is another plan.
    act(&mount, ANN, "mkdir main/branches/x; cd main/branches/x; echo 'the kettle is red' > vectors/kettle.json; umask 077; echo one > files/notes").unwrap();
    assert_ne!(propose(&mount), old);
    assert_eq!(ctl(&mount, ANN, "main/branches/x", "promote")["code"], "gate_pending");
}

#[test]
fn a_gate_looks_at_what_a_merge_changes() {
    let Some(mount) = guarded("open\n") else { return };
    act(&mount, ANN, "cd main/branches/x; mkdir -p files/core/prd; echo 1 > files/core/prd/a; rm vectors/a.json")
        .unwrap();
    let refused = |gate: &str| {
        fs::write(mount.at("main/config/gate"), gate).unwrap();
        let dry = ctl(&mount, ANN, "main/branches/x", "merge --dry-run");
        let blockers = dry["blockers"].as_array().unwrap();
        blockers.first().map(|blocker| format!("{}: {}", text(blocker, "code"), text(blocker, "message")))
    };
    let refuses = |gate: &str, with: &str| {
        assert!(refused(gate).is_some_and(|said| said.contains(with)), "{gate}: {:?}", refused(gate))
    };
    let passes = |gate: &str| assert_eq!(refused(gate), None, "{gate}");
    passes("deletes 1\nputs 3\nconflicts 0");
    refuses("deletes 0", "gate_refused: the gate of main refuses this merge: deletes 0: there are 1 deletes");
    refuses("puts 2", "there are 3 puts");
    passes("only vectors/* files/**");
    refuses("only files/core/**", "vectors/a is changed, too");
    passes("approval 2 for files/other/**");
    refuses("approval 2 for files/core/**", "gate_pending");
    refuses("summary", "gate_pending");
    act(&mount, 0, "echo 'root says so' > main/branches/x/shared/log/append").unwrap();
    refuses("summary", "gate_pending");
    act(&mount, ANN, "echo 'the kettle is in' > main/branches/x/shared/log/append").unwrap();
    passes("summary");
    fs::write(mount.at("main/config/gate"), "open").unwrap();
    act(&mount, ANN, "echo promote > main/branches/x/ctl; true").unwrap_or_default();
    mount.sh("chmod 777 main");
    act(&mount, ANN, "echo promote > main/branches/x/ctl").unwrap();
    // Attributes count, and so does a directory with nothing in it.
    let attribute = |call: &str| mount.python(&format!("import os; os.{call}"));
    attribute("setxattr('main/branches/x/files/core/prd/a', 'user.k', b'v')");
    refuses("only files/notes", "files/core/prd/a is changed, too");
    attribute("removexattr('main/branches/x/files/core/prd/a', 'user.k')");
    act(&mount, ANN, "mkdir main/branches/x/files/core/empty").unwrap();
    refuses("only files/notes", "files/core/empty is changed, too");
    refuses("puts 0", "there are 1 puts");
    act(&mount, ANN, "rmdir main/branches/x/files/core/empty").unwrap();
    // A chmod and a rename count.
    act(&mount, ANN, "cd main/branches/x; chmod 640 files/core/prd/a; mv files/notes files/core/notes").unwrap();
    refuses("only files/core/**", "files/notes is changed, too");
    passes("only files/core/** files/notes\nputs 2\ndeletes 1");
    refuses("only files/core/notes files/notes", "files/core/prd/a is changed, too");
    // What becomes something else is there no longer.
    act(&mount, ANN, "cd main/branches/x/files/core/prd; rm a; mkdir a").unwrap();
    refuses("deletes 1", "there are 2 deletes");
    // What was told before the base counts no more.
    refuses("summary", "gate_pending");
    assert!(act(&mount, 0, "echo 'score 0.9' > main/config/gate").is_err());
}

#[test]
fn attacks_on_a_gate_promote_nothing() {
    let Some(mount) = guarded("approval 1\n") else { return };
    mount.sh("chmod 777 main");
    let x = "main/branches/x";
    let promote = || text(&ctl(&mount, ANN, x, "promote"), "code");
    let plan = propose(&mount);
    let approve = format!("approve x {plan}");
    // One's own, somebody's who is no approver, another plan, nothing proposed.
    fs::write(mount.at("main/config/approvers"), format!("uid:{ANN}\nuid:{BOB}\nuid:{EVE}\n")).unwrap();
    assert_eq!(ctl(&mount, ANN, "main", &approve)["code"], "own_proposal");
    assert_eq!(ctl(&mount, DAN, "main", &approve)["code"], "not_approver");
    assert_eq!(ctl(&mount, BOB, "main", &format!("approve x {}", "0".repeat(64)))["code"], "plan_changed");
    assert_eq!(ctl(&mount, BOB, "main", &format!("approve y {plan}"))["code"], "no_proposal");
    assert!(act(&mount, ANN, "echo open > main/config/gate").is_err());
    assert!(act(&mount, ANN, "echo uid:2001 > main/config/approvers").is_err());
    // Rules, strategy and gate of the child's own mean nothing.
    act(&mount, ANN, &format!("echo open > {x}/config/gate; echo '** whole' > {x}/config/rules")).unwrap();
    assert_eq!(promote(), "gate_pending");
    assert!(act(&mount, ANN, &format!("mv {x} main/")).unwrap_err().contains("not permitted"));
    assert!(
        act(&mount, 0, &format!("mv {x} main/")).unwrap_err().contains("not permitted"),
        "root passes gates like others"
    );
    // Approved, then changed; then an approval of what was proposed before.
    assert_eq!(ctl(&mount, BOB, "main", &approve)["status"], "approved");
    act(&mount, ANN, &format!("echo poison > {x}/vectors/kettle.json")).unwrap();
    assert_eq!(promote(), "gate_pending");
    let second = propose(&mount);
    assert_eq!(ctl(&mount, BOB, "main", &approve)["code"], "plan_changed");
    act(&mount, ANN, &format!("echo 'the kettle is red' > {x}/vectors/kettle.json")).unwrap();
    assert_eq!(promote(), "gate_pending", "proposing again voided what was said before");
    // The parent changes what the merge takes: another plan.
    let third = propose(&mount);
    assert!(third == plan && third != second);
    assert_eq!(ctl(&mount, BOB, "main", &approve)["status"], "approved");
    mount.sh("echo 'the kettle is black' > main/vectors/kettle.json");
    assert_eq!(promote(), "gate_pending");
    mount.sh("rm main/vectors/kettle.json");
    // Rejected by one of them, whoever else approves.
    ctl(&mount, EVE, "main", &format!("refuse x {plan} no kettles"));
    let said = ctl(&mount, ANN, x, "promote");
    assert!(
        said["code"] == "gate_refused" && text(&said, "message").contains("uid:2003 rejected it: no kettles"),
        "{said}"
    );
    // Whoever approved is no approver now, or the branch is theirs.
    ctl(&mount, EVE, "main", &approve);
    fs::write(mount.at("main/config/approvers"), format!("uid:{ANN}\n")).unwrap();
    assert_eq!(promote(), "gate_pending");
    fs::write(mount.at("main/config/approvers"), format!("uid:{BOB}\n")).unwrap();
    mount.sh(&format!("chown {BOB} {x}"));
    assert_eq!(text(&ctl(&mount, BOB, x, "promote"), "code"), "gate_pending");
    mount.sh(&format!("chown {ANN} {x}"));
    // Strict approvals hold for the two heads that they were given for.
    fs::write(mount.at("main/config/gate"), "approval 1 strict").unwrap();
    let strict = propose(&mount);
    ctl(&mount, BOB, "main", &format!("approve x {strict}"));
    mount.put("main/vectors/other.json", "something else");
    assert_eq!(promote(), "gate_pending");
    assert!(!mount.has("main/vectors/kettle.json") && !mount.has("main/files/notes"), "nothing was promoted");
    ctl(&mount, BOB, "main", &format!("approve x {strict}"));
    assert_eq!(ctl(&mount, ANN, x, "promote")["status"], "merged");
    let mode = fs::metadata(mount.at("main/files/notes")).unwrap().permissions().mode();
    assert_eq!((mode & 0o777, read(mount.at("main/files/notes"))), (0o600, "one\n".to_owned()));
}

#[test]
fn a_refusal_tells_the_parents_readers_its_code_alone() {
    let Some(mount) = guarded("only vectors/*") else { return };
    let said = ctl(&mount, ANN, "main/branches/x", "promote");
    assert!(text(&said, "message").contains("files/notes is changed, too"), "{said}");
    let told = act(&mount, DAN, "cat main/events.jsonl main/lineage main/branches.jsonl").unwrap();
    assert!(told.contains("\"event\":\"refuse\"") && told.contains("\"text\":\"gate_refused\""), "{told}");
    assert!(!told.contains("notes"), "{told}");
    act(&mount, ANN, "echo 'propose my secret plan' > main/branches/x/ctl").unwrap();
    let told = act(&mount, DAN, "cat main/events.jsonl main/lineage").unwrap();
    assert!(told.contains("\"event\":\"propose\"") && !told.contains("secret"), "{told}");
}

#[test]
fn doctor_says_where_approvals_mean_nothing() {
    let mount = Mounted::new();
    let doctor = || run(&["doctor", mount.at("").to_str().unwrap()]).1;
    assert!(!doctor().contains("approvals"));
    mount.sh("printf 'deletes 3\napproval 1\n' > main/config/gate");
    assert!(
        doctor().contains("main asks for approvals, which mean nothing where one uid is all agents"),
        "{}",
        doctor()
    );
    let Some(mount) = guarded("approval 1") else { return };
    assert!(!run(&["doctor", mount.at("").to_str().unwrap()]).1.contains("approvals"));
}

#[test]
fn a_gate_is_set_whole_or_not_at_all() {
    let Some(mount) = guarded("approval 1") else { return };
    let entries = || lines(&mount.sh("cat main/lineage")).len();
    let before = entries();
    for bad in [
        "open\\nfoo\\n",
        "deletes 0\\nfoo\\ndeletes 9\\n",
        "foo\\nopen\\n",
        "score 1",
        "approval 1\\nopen foo",
        "approval",
    ] {
        assert!(act(&mount, 0, &format!("printf '{bad}' > main/config/gate")).is_err(), "{bad}");
        assert_eq!(mount.sh("cat main/config/gate"), "approval 1\n", "{bad}");
    }
    assert_eq!(entries(), before, "and no moment was it another one");
    mount.sh("printf 'approval 1\ndeletes 3\nonly files/**\n' > main/config/gate; printf 'uid:7\nuid:8\n' > main/config/approvers");
    assert_eq!(
        mount.sh("cat main/config/gate main/config/approvers"),
        "approval 1\ndeletes 3\nonly files/**\nuid:7\nuid:8\n"
    );
    assert_eq!(entries(), before + 2, "one step each");
    mount.sh("echo 'puts 1' >> main/config/gate");
    assert_eq!(mount.sh("tail -n 1 main/config/gate"), "puts 1\n");
}
