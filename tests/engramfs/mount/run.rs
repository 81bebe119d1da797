//! `engramfs run`: a command in a sandbox that sees one branch alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::users::{program, shared};
use super::{Mounted, command, lines, names, output, read};

/// Returns the command that runs a script as user 3801 in a branch below main, by the program at a place that this user reaches.
fn sandboxed(mount: &Mounted, branch: &str, more: &[&str], script: &str) -> Command {
    let found = command("bwrap", &["--version"]).stdout(Stdio::null()).status();
    assert!(found.is_ok(), "these tests need bwrap: install the package bubblewrap");
    let branch = mount.at(&format!("main/branches/{branch}")).display().to_string();
    let all = [&["run", "--json", &branch, "--uid", "3801"][..], more, &["--", "sh", "-c", script]].concat();
    command(&program_once(mount), &all)
}

fn program_once(mount: &Mounted) -> String {
    let path = mount.beside("engramfs");
    if path.exists() { path.display().to_string() } else { program(mount) }
}

fn run(mount: &Mounted, branch: &str, more: &[&str], script: &str) -> (i32, String, String) {
    let done = output(&mut sandboxed(mount, branch, more, script));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

#[test]
fn a_command_sees_its_branch_alone_and_what_it_wrote_is_promoted() {
    let Some(mount) = shared() else { return };
    mount.sh("mkdir main/branches/secret; echo s > main/branches/secret/files/s");
    let script = format!(
        "pwd; id -u; ls /; ls {} 2> /dev/null; ls -A /tmp; touch /usr/x /etc/x 2> /dev/null && echo writes; ls /sys/class/net 2> /dev/null
        cat /proc/net/dev | grep -c :; command -v engramfs > /dev/null && engramfs status /memory --json > /dev/null && echo program
        echo mine > files/note; cat config/agent config/task config/session status | grep -c . > files/lines; engramfs query --json . note > /dev/null",
        mount.at("main").display()
    );
    let (code, out, err) = run(&mount, "ann", &["--task", "look around"], &script);
    let (seen, result) = out.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(code, 0, "{out}{err}");
    let seen: Vec<&str> = seen.lines().collect();
    assert_eq!(&seen[..2], ["/memory", "3801"]);
    assert_eq!(&seen[seen.len() - 2..], ["1", "program"], "the network is the loopback alone: {seen:?}");
    let root: Vec<&str> = seen[2..seen.len() - 2].to_vec();
    let known = ["bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "memory", "proc", "run", "sbin", "tmp", "usr"];
    assert!(root.contains(&"memory") && root.iter().all(|name| known.contains(name)), "{root:?}");
    assert_eq!(lines(result)[0]["outcome"], "promoted");
    assert_eq!(read(mount.at("main/files/note")), "mine\n");
    let promote = lines(&read(mount.at("main/lineage"))).into_iter().find(|line| line["op"] == "promote").unwrap();
    assert_eq!(promote["uid"], 0, "it is done by who called run");
    let status = mount.status("main/branches/ann");
    assert_eq!(
        (&status["agent"], &status["task"], &status["owner"]),
        (&"ann".into(), &"look around".into(), &3801.into())
    );
    assert!(status["session"].as_str().unwrap().starts_with("run-"));
    assert_eq!(read(mount.at("main/branches/ann/config/ttl")), "", "it was promoted, and lives on");
    let more = ["--on-success", "keep", "--agent", "bee", "--session", "s-2"];
    assert_eq!(run(&mount, "ann", &more, "echo again > files/own; sleep 0").0, 0);
    let named = |status: &Value| ["agent", "session", "task"].map(|key| status[key].as_str().unwrap().to_owned());
    assert_eq!(named(&mount.status("main/branches/ann")), ["bee", "s-2", ""], "as asked for, and no task");
    let own = fs::metadata(mount.at("main/branches/ann/files/own")).unwrap();
    assert_eq!((own.uid(), mount.has("main/files/own")), (3801, false));
}

#[test]
fn a_command_that_fails_leaves_its_branch_for_a_while_or_not_at_all() {
    let Some(mount) = shared() else { return };
    let (code, out, _) = run(&mount, "ann", &[], "echo half > files/note; exit 7");
    let result = &lines(&out)[0];
    assert_eq!((code, &result["exit"], &result["outcome"]), (1, &Value::from(7), &Value::from("kept")));
    assert_eq!(
        (read(mount.at("main/branches/ann/config/ttl")).as_str(), mount.has("main/files/note")),
        ("24h\n", false)
    );
    mount.sh("echo 2h > main/branches/ann/config/ttl; echo bee > main/branches/ann/config/agent");
    assert_eq!(run(&mount, "ann", &[], "exit 1").0, 1);
    assert_eq!(mount.status("main/branches/ann")["agent"], "bee", "whose agent is set keeps it");
    assert_eq!(read(mount.at("main/branches/ann/config/ttl")), "2h\n", "whose ttl is set keeps it");
    let branch = mount.at("main/branches/ann").display().to_string();
    let plain = ["run", &branch, "--uid", "3801", "--", "sh", "-c", "exit 7"];
    let said = String::from_utf8(output(&mut command(&program_once(&mount), &plain)).stderr).unwrap();
    assert!(said.contains("ended with status 7") && said.contains("stays for 2h"), "{said}");
    let mut ended = sandboxed(&mount, "ann", &[], "touch files/ready; sleep 300");
    let mut ended = ended.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !mount.has("main/branches/ann/files/ready") {
        thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: sends a signal to a child that was not waited for, so the number is its own.
    unsafe { libc::kill(ended.id().cast_signed(), libc::SIGTERM) };
    assert_eq!(ended.wait().unwrap().code(), Some(130), "whoever ends run ends the command");
    let (code, out, _) = run(&mount, "bob", &["--on-failure", "discard"], "echo half > files/note; kill -9 $$");
    assert_eq!((code, &lines(&out)[0]["outcome"]), (1, &Value::from("discarded")));
    assert!(!mount.has("main/branches/bob"));
    let (code, _, _) = run(&mount, "eve", &["--on-success", "merge"], "echo whole > files/note");
    assert_eq!(
        (code, mount.has("main/branches/eve"), read(mount.at("main/files/note")).as_str()),
        (0, false, "whole\n")
    );
}

#[test]
fn a_branch_whose_command_succeeds_is_proposed_if_that_is_asked_for() {
    let Some(mount) = shared() else { return };
    let (code, out, err) = run(&mount, "ann", &["--on-success", "propose"], "echo mine > files/note");
    assert_eq!((code, &lines(&out)[0]["outcome"]), (0, &Value::from("proposed")), "{err}");
    assert_eq!(names(mount.at("main/proposals")), ["ann"]);
    assert_eq!(read(mount.at("main/proposals/ann/files/note")), "mine\n");
    assert!(!mount.has("main/files/note"));
    assert_eq!(read(mount.at("main/branches/ann/config/ttl")), "", "it waits for its approvers");
}

#[test]
fn a_promote_in_conflict_keeps_the_branch_and_is_3() {
    let Some(mount) = shared() else { return };
    mount.sh("echo manual > main/config/strategy; echo base > main/files/a; chmod 666 main/files/a; mkdir main/branches/x; rmdir main/branches/x");
    let mut child = sandboxed(
        &mount,
        "ann",
        &[],
        "echo mine > files/a; touch files/ready; while ! test -e files/go; do sleep 0.02; done",
    );
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !mount.has("main/branches/ann/files/ready") {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(mount.status("main/branches/ann")["lease"]["held"], true);
    mount.sh("echo theirs > main/files/a; touch main/branches/ann/files/go");
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!((done.status.code(), said.contains("conflict")), (Some(3), true), "{said}");
    assert_eq!(
        (read(mount.at("main/files/a")).as_str(), read(mount.at("main/branches/ann/files/a")).as_str()),
        ("theirs\n", "mine\n")
    );
    assert_eq!(mount.status("main/branches/ann")["lease"]["held"], false);
}

#[test]
fn whoever_kills_run_ends_the_sandbox_and_the_lease() {
    let Some(mount) = shared() else { return };
    let mark = mount.beside("sandboxed").display().to_string();
    let script = format!("export SANDBOXED={mark}; touch files/ready; setsid sleep 300 & sleep 300");
    let mut child = sandboxed(&mount, "ann", &[], &script).stdout(Stdio::null()).spawn().unwrap();
    while !mount.has("main/branches/ann/files/ready") {
        thread::sleep(Duration::from_millis(10));
    }
    // The shell that made the file need not have started the others yet.
    let end = Instant::now() + Duration::from_secs(10);
    while super::explore::running(&mark) == 0 {
        assert!(Instant::now() < end, "a control: nothing runs in the sandbox");
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    while super::explore::running(&mark) > 0 || mount.status("main/branches/ann")["lease"]["held"] == true {
        assert!(Instant::now() < end, "the sandbox goes on");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(read(mount.at("main/branches/ann/config/ttl")), "24h\n", "what was killed ends some time");
}

#[test]
fn root_says_whose_a_command_is_and_nobody_else_can() {
    let Some(mount) = shared() else { return };
    let branch = mount.at("main/branches/ann").display().to_string();
    let (code, _, err) = super::run(&["run", &branch, "--", "true"]);
    assert_eq!((code, err.contains("--uid"), mount.has("main/branches/ann")), (2, true, false), "{err}");
    assert_eq!(super::run(&["run", &branch, "--uid", "0", "--", "true"]).0, 2);
    assert_eq!(super::run(&["run", &mount.at("main").display().to_string(), "--uid", "3801", "--", "true"]).0, 2);
    assert_eq!(super::run(&["run", "/no/such:main", "--uid", "3801", "--", "true"]).0, 2);
    assert_eq!(super::run(&["run", &branch, "--uid", "3801"]).0, 2);
    let engramfs = program_once(&mount);
    let own = format!("{engramfs} run {branch} --on-success keep -- sh -c 'echo mine > files/note; id -u'");
    assert_eq!(super::users::act(&mount, 3802, &own).unwrap(), "3802\n");
    assert_eq!(fs::metadata(mount.at("main/branches/ann")).unwrap().uid(), 3802);
    assert!(super::users::act(&mount, 3802, &format!("{engramfs} run {branch} --uid 3801 -- true")).is_err());
    let (code, _, err) = run(&mount, "ann", &[], "true");
    assert_eq!((code, err.contains("belongs to uid 3802")), (1, true), "{err}");
}

#[test]
fn nothing_that_the_starter_has_open_leads_out_of_the_sandbox() {
    let Some(mount) = shared() else { return };
    let (engramfs, main) = (program_once(&mount), mount.at("main").display().to_string());
    let inside = "ls /proc/self/fd/8/ 2> /dev/null && echo open; ls /proc/self/fd | tr '\\n' ' '; echo \"$SECRET$HOME $PATH $LANG $TZ,$FOO.\"";
    let script = format!(
        "exec 8< {main}; export SECRET=s3cret LANG=C TZ=UTC FOO=1; {engramfs} run {main}/branches/ann --uid 3801 -- sh -c '{}'",
        inside.replace('\'', "'\\''")
    );
    let done = output(&mut command("bash", &["-c", &script]));
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(
        done.status.success() && !said.contains("open") && !said.contains("s3cret") && !said.contains(" 8 "),
        "{said}"
    );
    assert!(said.contains("/tmp /usr/local/bin:/usr/bin:/bin"), "{said}");
    assert!(said.ends_with(" C UTC,.\n"), "of the environment: {said}");
}

#[test]
fn another_user_is_not_sent_into_a_mount_that_lets_no_others_in() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let mount = Mounted::new();
    fs::set_permissions(mount.beside(""), fs::Permissions::from_mode(0o755)).unwrap();
    let (code, _, said) = run(&mount, "ann", &[], "true");
    assert!(code == 1 && said.contains("--allow-other"), "{said}");
    assert!(!mount.has("main/branches/ann"), "nothing was forked");
}
