//! Several uids on one mount: permission bits are the first gate.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use super::{Mounted, command, output, read};

/// A mount for everybody; nothing where this machine can't act as other users, which is told.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn shared() -> Option<Mounted> {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let found = command("setpriv", &["--version"]).stdout(Stdio::null()).status().is_ok();
    if !root || !found {
        eprintln!("skipped: acting as other users takes root and setpriv");
        return None;
    }
    let mount = Mounted::with(&["--allow-other"]);
    // The folder of a test is its owner's alone.
    fs::set_permissions(mount.beside(""), PermissionsExt::from_mode(0o755)).unwrap();
    mount.put("main/vectors/a.json", "a of main");
    Some(mount)
}

/// Runs a script as a user, and returns what it printed, or the error that it ended with.
fn act(mount: &Mounted, uid: u32, script: &str) -> Result<String, String> {
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let mut shell = command("setpriv", &[&ids[0], &ids[1], "--clear-groups", "bash", "-ec", script]);
    let done = output(shell.current_dir(mount.at("")));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
}

#[track_caller]
fn assert_refused(mount: &Mounted, uid: u32, script: &str) {
    let said = act(mount, uid, script).expect_err(script);
    assert!(said.contains("Permission denied") || said.contains("Operation not permitted"), "{script}: {said}");
}

#[test]
fn others_read_ask_and_fork_a_root_branch_and_change_nothing() {
    let Some(mount) = shared() else { return };
    for script in [
        "echo '{\"text\":\"x\"}' > main/vectors/a.json",
        "echo '{\"text\":\"x\"}' > main/vectors/new.json",
        "echo x > main/vectors/.tmp",
        "rm -f main/vectors/a.json",
        "mv main/vectors/a.json main/vectors/b.json",
        "echo '{\"text\":\"x\"}' > main/ingest",
        "echo pull > main/ctl",
        "echo x > main/config/agent",
        "mkdir main/checkpoints/v1",
        "mkdir other",
        "chmod 700 main",
        "chown 1001 main",
    ] {
        assert_refused(&mount, 1001, script);
    }
    assert_eq!(
        (mount.text("main/vectors/a.json"), mount.status("main")["records"].as_u64()),
        ("a of main".into(), Some(1))
    );
    act(&mount, 1001, "cat main/vectors/a.json main/status main/README.md > /dev/null; ls main/vectors").unwrap();
    let answer = act(&mount, 1001, "exec 3<>main/query; echo 'a of main' >&3; cat <&3").unwrap();
    assert!(answer.contains("\"hits\":1"), "{answer}");
    act(&mount, 1001, "mkdir main/branches/mine").unwrap();
}

#[test]
fn a_child_branch_is_its_makers_alone_until_he_opens_it() {
    let Some(mount) = shared() else { return };
    act(&mount, 1001, "mkdir main/branches/ann; echo '{\"text\":\"mine\"}' > main/branches/ann/vectors/m.json")
        .unwrap();
    let made = fs::metadata(mount.at("main/branches/ann")).unwrap();
    assert_eq!(
        (made.uid(), made.mode() & 0o7777, mount.status("main/branches/ann")["owner"].as_u64()),
        (1001, 0o700, Some(1001))
    );
    assert_eq!(
        super::json(mount.at("main/branches/ann/vectors/m.json"))["agent"],
        read(mount.at("main/branches/ann/config/agent")).trim()
    );
    for script in [
        "ls main/branches/ann",
        "cat main/branches/ann/status",
        "rmdir main/branches/ann",
        "mv main/branches/ann main/branches/bob",
        "mv main/branches/ann main/",
        "chmod 777 main/branches/ann",
    ] {
        assert_refused(&mount, 1002, script);
    }
    act(&mount, 1001, "chmod 755 main/branches/ann").unwrap();
    assert_eq!(act(&mount, 1002, "ls main/branches/ann/vectors").unwrap(), "a.json\nm.json\n");
    assert_refused(&mount, 1002, "rm -f main/branches/ann/vectors/m.json");
    assert_refused(&mount, 1002, "echo pull > main/branches/ann/ctl");
    act(
        &mount,
        1002,
        "mkdir main/branches/ann/branches/bob; echo '{\"text\":\"b\"}' > main/branches/ann/branches/bob/vectors/b.json",
    )
    .unwrap();
    assert_refused(&mount, 1002, "mv main/branches/ann/branches/bob main/branches/ann/");
    act(&mount, 1002, "rmdir main/branches/ann/branches/bob").unwrap();
    act(&mount, 1001, "rmdir main/branches/ann").unwrap();
}

#[test]
fn a_merge_takes_write_permission_on_the_parent_by_every_way() {
    let Some(mount) = shared() else { return };
    act(&mount, 1001, "mkdir main/branches/ann; echo '{\"text\":\"mine\"}' > main/branches/ann/vectors/m.json")
        .unwrap();
    assert_refused(&mount, 1001, "mv main/branches/ann main/");
    assert_refused(&mount, 1001, "echo merge > main/branches/ann/ctl");
    assert_refused(&mount, 1001, "echo promote > main/branches/ann/ctl");
    assert_refused(&mount, 1001, "echo gc > main/branches/ann/ctl");
    act(&mount, 1001, "echo 'merge --dry-run' > main/branches/ann/ctl; echo pull > main/branches/ann/ctl").unwrap();
    assert_eq!(mount.status("main")["records"], 1);
    fs::set_permissions(mount.at("main"), PermissionsExt::from_mode(0o757)).unwrap();
    act(&mount, 1001, "mv main/branches/ann main/").unwrap();
    assert_eq!(mount.text("main/vectors/m.json"), "mine");
    let last = super::lines(&read(mount.at("main/lineage"))).pop().unwrap();
    assert_eq!((&last["op"], &last["uid"]), (&"merge".into(), &1001.into()));
}

#[test]
fn the_last_answers_are_each_users_own() {
    let Some(mount) = shared() else { return };
    act(&mount, 1001, "echo 'what ann asks' > main/query").unwrap();
    assert_eq!(act(&mount, 1002, "cat main/query").unwrap(), "");
    assert!(act(&mount, 1001, "cat main/query").unwrap().contains("what ann asks"));
}

#[test]
fn a_mount_without_allow_other_is_closed_to_others() {
    if shared().is_none() {
        return;
    }
    let mount = Mounted::new();
    fs::set_permissions(mount.beside(""), PermissionsExt::from_mode(0o755)).unwrap();
    let mut look = command("setpriv", &["--reuid=1001", "--regid=1001", "--clear-groups", "ls"]);
    assert!(!output(look.arg(mount.at("main"))).status.success());
}
