//! Several agents on one mount, each a shell script with a uid of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::users::{program, shared};
use super::{Mounted, Site, command, lines, names, output, read, run};

/// Starts a script as a user; `$0` is its name, `$1` and so on are the words behind it.
fn start(uid: u32, script: &str, words: &[&str]) -> Child {
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let mut all = vec![&*ids[0], &*ids[1], "--clear-groups", "bash", "-uc", script, "agent"];
    all.extend(words);
    command("setpriv", &all).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn succeeds(child: Child) -> String {
    let done = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    text(&done.stdout)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// Builds what it can claim, says so, waits for the others, and reads what all have built.
const BUILDER: &str = r#"
set -e
main=$1; name=$2; engramfs=$3
mkdir $main/branches/$name; cd $main/branches/$name
echo $name > config/agent; echo 1m > config/signal_ttl
for n in $(seq 12); do
  if (set -C; echo $name > shared/signals/task:$n:claim) 2> /dev/null; then
    echo "part $n by $name" > files/part-$n.txt
    echo "{\"text\":\"part $n is built\",\"kind\":\"built\",\"event_id\":\"part-$n\"}" > shared/log/append
    echo $name > shared/signals/task:$n:done
  fi
done
echo promote > ctl
echo ready > shared/signals/worker:$name:ready
$engramfs wait 'shared/signals/worker:*:ready' --count 4 --timeout 60s > /dev/null
cat $main/files/part-*.txt | wc -l
"#;

#[test]
fn workers_claim_tasks_build_them_once_and_meet_at_a_barrier() {
    let Some(mount) = shared() else { return };
    mount.sh("chmod 777 main");
    let (main, engramfs) = (mount.at("main").display().to_string(), program(&mount));
    let workers: Vec<Child> = (0..4).map(|n| start(3001 + n, BUILDER, &[&main, &format!("w{n}"), &engramfs])).collect();
    for worker in workers {
        assert_eq!(succeeds(worker).trim(), "12", "all parts are there for whoever passed the barrier");
    }
    let parts: Vec<String> =
        names(mount.at("main/files")).iter().map(|name| read(mount.at(&format!("main/files/{name}")))).collect();
    assert_eq!(parts.len(), 12);
    for n in 1..=12 {
        let builder = read(mount.at(&format!("main/shared/signals/task:{n}:claim")));
        assert_eq!(read(mount.at(&format!("main/shared/signals/task:{n}:done"))), builder);
        assert!(parts.contains(&format!("part {n} by {builder}")), "who claimed it has built it");
    }
    let told = lines(&mount.sh("cat main/shared/log/entries.jsonl"));
    assert_eq!(told.len(), 12, "each part is told once");
    assert!(told.iter().all(|line| line["agent"]
        == read(mount.at(&format!("main/shared/signals/task:{}:claim", &text(line, "event_id")[5..]))).trim()));
    mount.sh("cat main/files/part-*.txt | sort | tr '\\n' ' ' > main/vectors/summary.json");
    assert!(mount.text("main/vectors/summary.json").contains("part 12 by"));
}

/// Works through the log of its case from its cursor on, whatever becomes of it or of the server.
const INVESTIGATOR: &str = r#"
case=$1; name=$2; share=$3; count=$4; branch=$case/branches/$name
until [ -d $branch ]; do mkdir $branch 2> /dev/null || sleep 0.05; done
until echo $name > $branch/config/agent; do sleep 0.05; done 2> /dev/null
while :; do
  read -r at < $branch/shared/log/cursor || { sleep 0.05; continue; }
  [ "$at" -ge $count ] && break
  jq -c 'select(.kind == "question") | [.entry_id, .text]' $branch/shared/log/unread 2> /dev/null |
  while read -r line; do
    id=$(jq '.[0]' <<< "$line"); asked=$(jq -r '.[1]' <<< "$line")
    if [ $((id % 4)) = $share ]; then
      printf '{"id":"finding-%s","text":"%s: found by %s"}\n{"cursor":%s}\n' $id "$asked" $name $id > $branch/ingest || break
    else
      echo $id > $branch/shared/log/cursor || break
    fi
    sleep 0.01
  done
done 2> /dev/null
until echo "{\"text\":\"$name has looked at all\",\"event_id\":\"$name-end\"}" > $branch/shared/log/append; do sleep 0.05; done 2> /dev/null
until echo promote > $branch/ctl; do sleep 0.05; done 2> /dev/null
"#;

const QUESTIONS: usize = 48;

/// Waits until a file says so; what takes longer than a minute has failed.
#[track_caller]
fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < end, "it does not come");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_case_is_worked_through_though_an_agent_and_the_server_die_and_is_closed_into_its_parent() {
    if shared().is_none() {
        return;
    }
    let site = Site::new();
    fs::set_permissions(site.beside(""), Permissions::from_mode(0o755)).unwrap();
    let serve = || site.serve(&["--allow-other"]);
    let server = serve();
    let case = site.mnt.join("main/branches/case");
    fs::create_dir(&case).unwrap();
    fs::write(case.join("config/log"), "own\n").unwrap();
    fs::set_permissions(&case, Permissions::from_mode(0o777)).unwrap();
    let asked: String =
        (1..=QUESTIONS).map(|n| format!("{{\"text\":\"question {n}\",\"kind\":\"question\"}}\n")).collect();
    fs::write(case.join("shared/log/append"), asked).unwrap();
    let (folder, count) = (case.display().to_string(), QUESTIONS.to_string());
    let agent = |n: u32| start(3001 + n, INVESTIGATOR, &[&folder, &format!("a{n}"), &n.to_string(), &count]);
    let mut agents: Vec<Child> = (0..4).map(agent).collect();
    let cursor = |n: u32| -> usize {
        let read = fs::read_to_string(case.join(format!("branches/a{n}/shared/log/cursor")));
        read.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    until(|| cursor(2) > 5);
    agents[2].kill().unwrap();
    agents[2].wait().unwrap();
    server.crash();
    let _server = serve();
    agents[2] = agent(2);
    agents.into_iter().for_each(|agent| drop(succeeds(agent)));
    let findings = names(case.join("vectors"));
    assert_eq!(findings.len(), QUESTIONS, "{findings:?}");
    for n in 1..=QUESTIONS {
        let found: Value = serde_json::from_str(&read(case.join(format!("vectors/finding-{n}.json")))).unwrap();
        assert_eq!(text(&found, "text"), format!("question {n}: found by a{}", n % 4));
    }
    let ends = lines(&read(case.join("shared/log/entries.jsonl"))).len();
    assert_eq!(ends, QUESTIONS + 4, "each says once that it is done");
    for n in 0..4 {
        fs::remove_dir(case.join(format!("branches/a{n}"))).unwrap();
    }
    fs::write(case.join("ctl"), "merge\n").unwrap();
    assert_eq!(names(site.mnt.join("main/vectors")).len(), QUESTIONS);
    let closed = names(site.mnt.join("main/shared/log/closed"));
    assert_eq!(closed.len(), 1);
    assert_eq!(lines(&read(site.mnt.join(format!("main/shared/log/closed/{}/entries.jsonl", closed[0])))).len(), ends);
    drop(_server);
    assert_eq!(run(&["verify", site.store.to_str().unwrap()]).0, 0);
}

/// Sees the branch `$1` of the mount alone, as /memory.
const SANDBOX: [&str; 13] = [
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
];

/// Runs a script as a user in a sandbox that has one folder as /memory.
fn sandboxed(mount: &Mounted, uid: u32, branch: &str, script: &str) -> (bool, String) {
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let at = mount.at(branch).display().to_string();
    let mut words = vec![&*ids[0], &*ids[1], "--clear-groups", "bwrap"];
    words.extend(SANDBOX);
    if fs::exists("/lib64").unwrap_or(false) {
        words.extend(["--symlink", "usr/lib64", "/lib64"]);
    }
    words.extend(["--bind", &at, "/memory", "--unshare-all", "--chdir", "/memory", "bash", "-ec", script]);
    let done = output(&mut command("setpriv", &words));
    (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn who_is_in_a_sandbox_of_one_branch_hears_the_others_and_reaches_nothing_of_theirs() {
    let Some(mount) = shared() else { return };
    if command("bwrap", &["--version"]).stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: it takes bubblewrap");
        return;
    }
    for (uid, name) in [(3001, "ann"), (3002, "bob")] {
        succeeds(start(
            uid,
            "mkdir $1/branches/$2; echo canary-$2 > $1/branches/$2/vectors/secret.json; echo canary-$2 > $1/branches/$2/files/secret",
            &[&mount.at("main").display().to_string(), name],
        ));
    }
    let tried = sandboxed(&mount, 3001, "main/branches/ann", "cat vectors/secret.json");
    assert!(tried.0 && tried.1.contains("canary-ann"), "{tried:?}");
    let (done, said) = sandboxed(
        &mount,
        3001,
        "main/branches/ann",
        "echo here > shared/signals/ann; echo told > shared/log/append; echo canary > query; cat query; ls ..; ls /memory/../",
    );
    assert!(done && !said.contains("canary-bob") && !said.contains("branches\n../"), "{said}");
    let (done, said) =
        sandboxed(&mount, 3002, "main/branches/bob", "cat shared/signals/ann shared/log/last/1 shared/events.jsonl");
    assert!(done && said.contains("here") && said.contains("told") && !said.contains("canary-ann"), "{said}");
    for script in [
        "cat /memory/../ann/vectors/secret.json",
        "cat ../ann/files/secret",
        "ln -s /memory/../ann/files/secret files/link && cat files/link",
        "ln ../ann/files/secret files/hard",
        "cd /proc/self/cwd/../ann",
        "mv shared/signals/ann shared/signals/mine",
        "echo '{\"text\":\"canary\",\"scope\":[\"ann\"]}' > query",
        "echo 'fork x from discarded ann' > ctl",
    ] {
        let (done, said) = sandboxed(&mount, 3002, "main/branches/bob", script);
        assert!(!done && !said.contains("canary-ann"), "{script}: {said}");
    }
    let everything = "grep -r canary-ann . 2> /dev/null | grep -v '^./shared/log' || true";
    assert_eq!(sandboxed(&mount, 3002, "main/branches/bob", everything).1.trim(), "");
}

/// Does of everything something in a branch that is closed to others, each time with a word that nobody else may ever see.
const SECRETIVE: &str = r#"
set -e
cd $1/branches; mkdir ann; cd ann
echo canary-task > config/task; echo canary-session > config/session
echo canary-text > vectors/canary-id.json; echo canary-content > files/canary-name; mkdir checkpoints/canary-label
mkdir branches/canary-child; echo canary-below > branches/canary-child/vectors/canary-below.json; rmdir branches/canary-child
rm vectors/canary-id.json; echo 'rollback canary-label' > ctl; echo undo > ctl
echo 'rollback canary-nothing' > ctl || true
(umask 077; echo canary-value > shared/signals/closed)
exec 9< lease; exec 9<&-
echo '{"text":"canary-question"}' > query; cat search/canary-searched > /dev/null
mv files/canary-name files/canary-moved; sync -f files
"#;

#[test]
fn nothing_of_a_closed_branch_reaches_another_user_on_any_way() {
    let Some(mount) = shared() else { return };
    let main = mount.at("main").display().to_string();
    succeeds(start(3001, SECRETIVE, &[&main]));
    succeeds(start(
        3001,
        "mkdir $1/branches/gone; echo canary-gone > $1/branches/gone/vectors/canary-gone.json; rmdir $1/branches/gone",
        &[&main],
    ));
    succeeds(start(3002, "mkdir $1/branches/bob", &[&main]));
    thread::sleep(Duration::from_millis(1100));
    let entries = mount.status("main")["tip"].clone();
    assert!(entries.is_string());
    let last = lines(&read(mount.at("main/branches/ann/lineage"))).pop().unwrap()["seq"].as_u64().unwrap();
    let pry = format!(
        "cd $1; for place in . branches/bob; do
        for file in events.jsonl lineage branches.jsonl errors README.md status diff conflicts export/records.jsonl shared/events.jsonl shared/log/last/9 search/canary at/-1s/events.jsonl at/-1s/lineage at/-1s/search/canary; do cat $place/$file; done
        ls -R $place/vectors $place/files $place/checkpoints $place/shared; cat $place/shared/signals/closed
        echo '{{\"text\":\"canary\",\"scope\":[\"branch\",\"log\",\"files\",\"main\"]}}' > $place/query; cat $place/query
        for entry in $(seq {last}); do echo \"show $entry\" > $place/ctl && cat $place/ctl; echo \"show $entry --changes\" > $place/ctl && cat $place/ctl; done
        for name in ann gone canary-child; do echo \"fork x from discarded $name\" > $place/ctl && cat $place/ctl; ls branches/$name/vectors; done; done
        cat branches/ann/vectors/* branches/ann/events.jsonl; true"
    );
    // What it asked for itself comes back in names of paths and in answers.
    let own = ["canary-child", "search/canary"];
    let is_leak = |line: &&str| line.contains("canary-") && !own.iter().any(|own| line.contains(own));
    let pry_as = |uid: u32| {
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
        let words = [&*ids[0], &*ids[1], "--clear-groups", "bash", "-c", &*pry, "agent", &*main];
        let done = output(&mut command("setpriv", &words));
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    };
    let seen = pry_as(3002);
    assert_eq!(seen.lines().filter(is_leak).collect::<Vec<_>>(), [""; 0]);
    assert!(seen.contains("lease_lost") && seen.contains("\"branch\":\"main/ann\""), "it did read");
    assert!(pry_as(3001).lines().filter(is_leak).count() > 5, "its owner sees all of it by the same script");
}
