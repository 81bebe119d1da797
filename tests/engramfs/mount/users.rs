//! Several uids on one mount: permission bits are the first gate.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;
use std::thread;

use super::{Mounted, command, output, read};

/// A mount for everybody; nothing where this machine can't act as other users, which is told.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(super) fn shared() -> Option<Mounted> {
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
pub(super) fn act(mount: &Mounted, uid: u32, script: &str) -> Result<String, String> {
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let mut shell = command("setpriv", &[&ids[0], &ids[1], "--clear-groups", "bash", "-ec", script]);
    let done = output(shell.current_dir(mount.at("")));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
}

/// The program at a place that every user reaches.
pub(super) fn program(mount: &Mounted) -> String {
    let (built, path) = (env!("CARGO_BIN_EXE_engramfs"), mount.beside("engramfs"));
    fs::hard_link(built, &path).or_else(|_| fs::copy(built, &path).map(drop)).unwrap();
    path.display().to_string()
}

#[track_caller]
pub(super) fn assert_refused(mount: &Mounted, uid: u32, script: &str) {
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
fn a_child_branch_is_its_makers_alone_until_they_open_it() {
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

/// What the first release told whoever had once reached a branch: by a kept descriptor, a working directory in a
/// child, and a mount of a child alone.
#[test]
fn a_parent_that_was_closed_stays_closed_however_it_was_reached_before() {
    let Some(mount) = shared() else { return };
    let script = r#"
import os, sys
os.mkdir('main/branches/ann')
branches, vectors = (os.open('main/' + name, os.O_RDONLY) for name in ('branches', 'vectors'))
search, files = (os.open('main/' + name, os.O_RDONLY) for name in ('search', 'export'))
query = os.open('main/query', os.O_RDWR)
os.chdir('main/branches/ann')
print('ready', flush=True)
sys.stdin.readline()
def refused(what, act):
    try:
        print('told', what, act())
    except PermissionError:
        pass
def ctl(verb):
    with open('ctl', 'w') as file:
        file.write(verb)
for verb in 'pull', 'pull --dry-run', 'merge --dry-run', 'promote', 'merge':
    refused(verb, lambda: ctl(verb))
refused('fork', lambda: os.mkdir('again', dir_fd=branches))
refused('conflicts', lambda: open('conflicts').read())
refused('record', lambda: os.read(os.open('late.json', os.O_RDONLY, dir_fd=vectors), 99))
refused('list', lambda: os.listdir(os.open('.', os.O_RDONLY, dir_fd=vectors)))
refused('search', lambda: os.read(os.open('late', os.O_RDONLY, dir_fd=search), 99))
refused('export', lambda: os.read(os.open('ids.txt', os.O_RDONLY, dir_fd=files), 99))
refused('query', lambda: os.write(query, b'late\n'))
print(open('errors').read().count('branch_closed'), os.listdir('vectors'))
"#;
    let mut python = command("setpriv", &["--reuid=1001", "--regid=1001", "--clear-groups", "python3", "-c", script]);
    // The shell of whoever runs this may find a program that is theirs alone.
    python.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    python.current_dir(mount.at("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    fs::set_permissions(mount.at("main"), PermissionsExt::from_mode(0o700)).unwrap();
    mount.put("main/vectors/late.json", "late");
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(rest, "6 ['a.json']\n");
}

#[test]
fn a_mount_of_a_child_alone_does_not_open_its_parent() {
    let Some(mount) = shared() else { return };
    act(&mount, 1001, "mkdir main/branches/ann main/branches/ann/branches/below").unwrap();
    fs::set_permissions(mount.at("main"), PermissionsExt::from_mode(0o700)).unwrap();
    let mount = mount.again(&["--allow-other", "--branch", "main/ann"]);
    assert_refused(&mount, 1001, "echo pull > ctl");
    assert_refused(&mount, 1001, "echo 'merge --dry-run' > ctl");
    assert_refused(&mount, 1001, "cat conflicts");
    // What is above the parent, and closed, does not count.
    act(&mount, 1001, "cat branches/below/conflicts; echo 'merge --dry-run' > branches/below/ctl").unwrap();
    act(&mount, 1001, "echo '{\"text\":\"mine\"}' > vectors/m.json; cat status lineage diff errors").unwrap();
}

#[test]
fn refusals_are_seen_by_whom_they_happened_and_by_the_owner() {
    let Some(mount) = shared() else { return };
    act(&mount, 1001, "echo '{\"id\":\"secret-of-ann\"}' > main/query || true").unwrap();
    assert_eq!(act(&mount, 1002, "cat main/errors").unwrap(), "");
    assert!(!act(&mount, 1002, "cat main/status").unwrap().contains("secret-of-ann"));
    assert!(act(&mount, 1001, "cat main/errors").unwrap().contains("secret-of-ann"));
    assert!(read(mount.at("main/errors")).contains("secret-of-ann"));
}

#[test]
fn the_lineage_shows_little_of_branches_that_the_reader_may_not_enter() {
    let Some(mount) = shared() else { return };
    act(&mount, 1001, "mkdir main/branches/ann; echo '{\"text\":\"mine\"}' > main/branches/ann/vectors/m.json")
        .unwrap();
    act(&mount, 1002, "mkdir main/branches/bob; chmod 755 main/branches/bob").unwrap();
    let hidden = |uid: u32| {
        let text =
            act(&mount, uid, "cat main/lineage; test $(stat -c %s main/lineage) = $(wc -c < main/lineage)").unwrap();
        super::lines(&text)
            .iter()
            .map(|entry| entry["hidden"] == true && entry.get("branch").is_none())
            .collect::<Vec<_>>()
    };
    fs::rename(mount.at("main/branches/bob"), mount.at("main/bob")).unwrap();
    mount.ctl("main/branches/ann", "promote").unwrap();
    let opened = [false, false, false, false, false];
    assert_eq!(hidden(1001), [&opened[..], &[false; 3]].concat());
    assert_eq!(hidden(1002), [&opened[..], &[true; 3]].concat(), "a fork, a commit and a promote of a closed branch");
    fs::rename(mount.at("main/branches/ann"), mount.at("main/ann")).unwrap();
    assert_eq!(hidden(1002), [&opened[..], &[true; 4]].concat(), "it was closed when it ended");
    assert_eq!(hidden(0).iter().filter(|hidden| **hidden).count(), 0);
}

#[test]
fn versions_are_shown_through_the_mount_to_those_who_may_read_them() {
    let Some(mount) = shared() else { return };
    let engramfs = program(&mount);
    let show = |uid: u32, branch: &str, hash: &str| act(&mount, uid, &format!("{engramfs} show {branch} {hash}"));
    act(&mount, 1001, "mkdir main/branches/ann; printf 'of ann' > main/branches/ann/files/mine").unwrap();
    mount.sh("echo 'secret of main' > main/files/later");
    let head = mount.status("main")["head"].as_str().unwrap().to_owned();
    assert!(show(1001, "main", &head).unwrap().contains(&head));
    assert!(show(1001, "main/branches/ann", &head).unwrap().contains(&head));
    fs::set_permissions(mount.at("main"), PermissionsExt::from_mode(0o711)).unwrap();
    assert!(show(1001, "main/branches/ann", &head).unwrap_err().contains("nothing"));
    let own = super::json(mount.at("main/branches/ann/status"))["head"].as_str().unwrap().to_owned();
    assert!(show(1001, "main/branches/ann", &own).unwrap().contains(&own));
    assert!(show(1002, "main", &own).unwrap_err().contains("nothing"));
}

#[test]
fn a_dump_is_for_who_may_read_the_store_and_nobody_else_enters_it() {
    let Some(mount) = shared() else { return };
    let (engramfs, store) = (program(&mount), mount.beside("store").display().to_string());
    let out = mount.beside("out");
    fs::create_dir(&out).unwrap();
    fs::set_permissions(&out, PermissionsExt::from_mode(0o777)).unwrap();
    let dump = out.join("dump").display().to_string();
    for target in ["main", &format!("{store}:main")] {
        let script = format!("{engramfs} export --all --json {target} {dump} 2>&1 || echo exit $?");
        let said = act(&mount, 1001, &script).unwrap();
        assert!(said.contains("\"permission_denied\"") && said.ends_with("exit 1\n"), "{target}: {said}");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "{target}");
    }
    act(&mount, 1001, &format!("{engramfs} export main {}/records.jsonl", out.display())).unwrap();
    mount.sh(&format!("umask 0; {engramfs} export --all main {dump}"));
    assert_eq!(fs::metadata(&dump).unwrap().mode() & 0o7777, 0o700);
    assert_refused(&mount, 1001, &format!("ls {dump}"));
}

#[test]
fn each_agent_is_told_its_own_reason_by_the_command_line() {
    let Some(mount) = shared() else { return };
    let engramfs = program(&mount);
    act(&mount, 1001, "mkdir main/branches/ann").unwrap();
    thread::scope(|scope| {
        let told = |uid: u32, name: &'static str| {
            let (mount, engramfs) = (&mount, &engramfs);
            move || {
                for _ in 0..10 {
                    let fork = format!("{engramfs} fork main --from {name} x --json 2>&1 || true");
                    let said = act(mount, uid, &fork).unwrap();
                    assert!(said.contains(name), "{said}");
                }
            }
        };
        scope.spawn(told(1001, "label-of-ann"));
        scope.spawn(told(1002, "label-of-bob"));
    });
    let said = act(&mount, 1001, &format!("{engramfs} merge main/branches/ann --json 2>&1 || true")).unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["code"], "parent_not_writable");
    let answer = act(&mount, 1001, "exec 3<>main/branches/ann/ctl; echo merge >&3 2>/dev/null || cat <&3").unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["status"], &answer["errno"]), (&"refused".into(), &"EACCES".into()));
    mount.sh(&format!("{engramfs} merge main/branches/ann"));
    assert!(!mount.has("main/branches/ann"));
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

#[test]
fn a_branch_that_is_closed_to_who_names_it_is_not_called_something_else() {
    let Some(mount) = shared() else { return };
    mount.sh("mkdir main/branches/pr");
    let program = program(&mount);
    for verb in ["query main/branches/pr x", "status main/branches/pr"] {
        let said = act(&mount, 1002, &format!("{program} {verb} || echo code $? >&2; false")).unwrap_err();
        assert!(said.contains("can't be looked at: Permission denied"), "{said}");
        assert!(said.contains("ask its owner") && said.ends_with("code 1\n"), "{said}");
    }
}

#[test]
fn a_merge_that_a_rule_forbids_is_refused_with_the_exit_code_of_its_dry_run() {
    let Some(mount) = shared() else { return };
    let program = program(&mount);
    mount.sh("printf 'plans/** text write=uid:0\nlogs/** text append\n** text\n' > main/config/rules; chmod 777 main
        mkdir main/files/plans main/files/logs; echo 1 > main/files/logs/l");
    let forbidden = "mkdir main/branches/ann; cd main/branches/ann/files; tee plans/p plans/q logs/l <<< 2";
    act(&mount, 1001, forbidden).unwrap();
    for verb in ["merge --dry-run", "promote", "merge"] {
        let script = format!("{program} {verb} main/branches/ann; echo code $?");
        let said = act(&mount, 1001, &format!("set +e; {script}")).unwrap();
        assert!(said.ends_with("code 3\n"), "{verb}: {said}");
        let told = ["append_rule", "write_rule"].map(|rule| said.matches(rule).count());
        assert_eq!(told, [usize::from(verb.ends_with("--dry-run")); 2], "each rule once, {verb}: {said}");
    }
}
