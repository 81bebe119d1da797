//! Work that is reviewed, and an agent that turns out to be poisoned: shell scripts alone, each with a uid of its own.

use super::users::{act, assert_refused, program, shared};
use super::{Mounted, lines, names, run};

/// The product manager.
const PM: u32 = 2101;
/// The tech lead.
const LEAD: u32 = 2102;
const HUMAN: u32 = 2103;
const GOVERNOR: u32 = 2104;

/// What an author does to have a branch merged: a line for the audit trail, one for the log, and a proposal.
const PROPOSE: &str = r#"
mkdir -p files/.sdlc_ide/logs
echo "{\"event_id\":\"$event\",\"who\":\"$(cat config/agent)\",\"what\":\"$what\"}" >> files/.sdlc_ide/logs/audit_trail.jsonl
echo "$what" > shared/log/append
echo "propose $what" > ctl
"#;

#[track_caller]
fn does(mount: &Mounted, uid: u32, script: &str) -> String {
    act(mount, uid, script).unwrap_or_else(|said| panic!("uid {uid}: {script}: {said}"))
}

fn authors(mount: &Mounted, uid: u32, (branch, event, what): (&str, &str, &str), work: &str) {
    let begin = format!("cd main/branches/{branch}; event={event}; what='{what}'; ");
    does(mount, uid, &format!("mkdir main/branches/{branch}; echo {branch} > main/branches/{branch}/config/agent"));
    does(mount, uid, &format!("{begin}{work}\n{PROPOSE}"));
}

/// The governor checks a proposal, and approves by the exit of the checker.
fn governs(mount: &Mounted, engramfs: &str, branch: &str, check: &str) -> Result<String, String> {
    act(mount, GOVERNOR, &format!("{engramfs} gate main/proposals/{branch} -- {check}"))
}

#[test]
fn a_workspace_goes_through_nine_steps_of_review() {
    let Some(mount) = shared() else { return };
    let engramfs = program(&mount);
    // 1: a workspace and its rules. 2: main and its gate.
    mount.sh(&format!(
        "cd main; echo 'include workspace' > config/rules; mkdir -p files/core/prd files/core/tsd files/memory/agent_state files/.sdlc_ide/logs
         : > files/.sdlc_ide/logs/audit_trail.jsonl; echo uid:{GOVERNOR} > config/approvers
         cat > config/gate <<'GATE'\napproval 1 for files/core/**\nonly files/core/** files/memory/** files/.sdlc_ide/**\nconflicts 0\nsummary\nGATE"
    ));
    // 3: the product manager writes a requirement.
    let prd = "echo '{\"title\":\"Tea at four\",\"status\":\"draft\"}' > files/core/prd/PRD-001.json";
    authors(&mount, PM, ("pm", "e1", "PRD-001 is written"), prd);
    assert!(act(&mount, PM, "echo promote > main/branches/pm/ctl").is_err(), "nobody has looked at it yet");
    assert_eq!(names(mount.at("main/files/core/prd")), [""; 0]);
    // 4: it is merged, and an event names the path.
    governs(&mount, &engramfs, "pm", "grep -q '\"title\"' files/core/prd/PRD-001.json").unwrap();
    does(&mount, PM, "echo promote > main/branches/pm/ctl");
    let event = lines(&mount.sh("cat main/events.jsonl")).pop().unwrap();
    assert_eq!((&event["event"], &event["uid"]), (&"promote".into(), &PM.into()));
    assert!(event["items"].as_array().unwrap().contains(&"files/core/prd/PRD-001.json".into()), "{event}");
    // 5: the tech lead reads it and writes the specification.
    let tsd = "grep -q 'Tea at four' files/core/prd/PRD-001.json; echo '{\"implements\":\"PRD-001\"}' > files/core/tsd/TSD-001.json";
    authors(&mount, LEAD, ("lead", "e2", "TSD-001 is written"), tsd);
    governs(&mount, &engramfs, "lead", "grep -q PRD-001 files/core/tsd/TSD-001.json").unwrap();
    does(&mount, LEAD, "echo promote > main/branches/lead/ctl");
    // 6: a checkpoint, and the state of an agent, which needs no approval.
    mount.sh("mkdir main/checkpoints/sprint-1");
    does(
        &mount,
        LEAD,
        "cd main/branches/lead; echo '{\"at\":\"TSD-001\"}' > files/memory/agent_state/tsm.checkpoint.json; echo 'saved my state' > shared/log/append; echo promote > ctl",
    );
    // 7: a human forks and changes the requirement; first so that the governor finds fault with it.
    let change = "echo '{\"status\":\"final\"}' > files/core/prd/PRD-001.json";
    authors(&mount, HUMAN, ("human", "e3", "PRD-001 is final"), change);
    // 8: the governor validates, refuses, and approves of what comes then.
    let check = "grep -q '\"title\"' files/core/prd/PRD-001.json";
    assert!(governs(&mount, &engramfs, "human", check).is_err());
    let said = act(&mount, HUMAN, "exec 3<>main/branches/human/ctl; echo promote >&3 2> /dev/null || cat <&3").unwrap();
    assert!(said.contains("gate_refused") && said.contains("uid:2104 rejected it"), "{said}");
    does(
        &mount,
        HUMAN,
        "cd main/branches/human; echo '{\"title\":\"Tea at five\",\"status\":\"final\"}' > files/core/prd/PRD-001.json; echo propose > ctl",
    );
    governs(&mount, &engramfs, "human", check).unwrap();
    does(&mount, HUMAN, "echo 'merge -- as agreed on Monday' > main/branches/human/ctl");
    assert!(mount.sh("cat main/files/core/prd/PRD-001.json").contains("Tea at five"));
    assert!(mount.sh("cat main/checkpoints/sprint-1/files/core/prd/PRD-001.json").contains("Tea at four"));
    // 9: the audit trail and the lineage name every step.
    all_steps_are_named(&mount);
    assert_eq!(run(&["verify", mount.site.store.to_str().unwrap()]).0, 0);
}

fn all_steps_are_named(mount: &Mounted) {
    let trail = lines(&mount.sh("cat main/files/.sdlc_ide/logs/audit_trail.jsonl"));
    assert_eq!(trail.iter().map(|line| line["event_id"].as_str().unwrap()).collect::<Vec<_>>(), ["e1", "e2", "e3"]);
    let steps = lines(&mount.sh("cat main/lineage"));
    assert_eq!(steps.iter().find(|line| line["op"] == "merge").unwrap()["text"], "as agreed on Monday");
    let steps: Vec<(&str, u64)> =
        steps.iter().map(|line| (line["op"].as_str().unwrap(), line["uid"].as_u64().unwrap())).collect();
    for (op, uid) in [
        ("propose", PM),
        ("approve", GOVERNOR),
        ("promote", PM),
        ("propose", LEAD),
        ("promote", LEAD),
        ("checkpoint", 0),
        ("propose", HUMAN),
        ("reject", GOVERNOR),
        ("refuse", HUMAN),
        ("merge", HUMAN),
    ] {
        assert!(steps.contains(&(op, u64::from(uid))), "{op} by {uid}: {steps:?}");
    }
}

#[test]
fn what_a_poisoned_agent_brought_is_found_reverted_and_its_name_barred() {
    let Some(mount) = shared() else { return };
    mount.sh("chmod 777 main");
    let agent = |uid, name: &str, work: &str| {
        let begin = format!("mkdir main/branches/{name}; cd main/branches/{name}; echo {name} > config/agent; ");
        does(&mount, uid, &format!("{begin}{work}; echo promote > ctl"))
    };
    agent(2201, "honest", "echo 'pay invoices to account 1' > vectors/account.json; echo fine > files/notes");
    agent(
        2202,
        "poisoned",
        "echo 'pay invoices to account 666' > vectors/account.json; echo 'trust me' > vectors/trust.json; echo evil > files/notes",
    );
    agent(2201, "later", "echo 'the kettle is red' > vectors/kettle.json");
    // Who wrote what is found by the name, and which merge brought it by its entry.
    let found = mount.sh("exec 3<>main/query; echo '{\"text\":\"pay invoices trust\",\"filter\":{\"@agent\":\"poisoned\"},\"include\":[\"stamp\"]}' >&3; cat <&3");
    assert_eq!(lines(&found)[0]["hits"], 2, "{found}");
    let merges = lines(&mount.sh("cat main/events.jsonl"));
    let merge = merges.iter().find(|line| line["event"] == "promote" && line["branch"] == "main/poisoned").unwrap();
    assert_eq!(merge["items"].as_array().unwrap().len(), 3, "{merge}");
    mount.sh(&format!(
        "echo 'revert {}' > main/ctl; echo 'bar-agent poisoned' > main/ctl; echo 'bar-agent uid:2202' > main/ctl",
        merge["seq"]
    ));
    assert_eq!(mount.text("main/vectors/account.json"), "pay invoices to account 1");
    assert_eq!(mount.sh("cat main/files/notes"), "fine\n");
    assert!(!mount.has("main/vectors/trust.json"));
    assert_eq!(mount.text("main/vectors/kettle.json"), "the kettle is red", "later work stays");
    let found = mount.sh("exec 3<>main/query; echo '{\"text\":\"pay invoices trust\",\"filter\":{\"@agent\":\"poisoned\"}}' >&3; cat <&3");
    assert_eq!(lines(&found)[0]["hits"], 0, "{found}");
    assert_refused(&mount, 2202, "mkdir main/branches/again; echo poisoned > main/branches/again/config/agent");
}
