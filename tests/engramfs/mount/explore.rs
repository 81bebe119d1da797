//! `engramfs explore`: candidates in branches of their own, of which the best is promoted.

use std::fs;
use std::io::Write;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::users::{program, shared};
use super::{Mounted, command, engramfs, errno, lines, names, output, read, run, save};

/// Explores `main` by scripts, and returns the exit code, the table and what was said.
fn explore(mount: &Mounted, run: &str, score: &str, more: &[&str]) -> (i32, Vec<Value>, String) {
    let main = mount.at("main").display().to_string();
    let all = [&["explore", "--json", &main, "--run", run, "--score", score][..], more].concat();
    let (code, out, err) = super::run(&all);
    (code, lines(&out), err)
}

fn outcomes(table: &[Value]) -> Vec<(&str, &str)> {
    table.iter().map(|line| (line["candidate"].as_str().unwrap(), line["outcome"].as_str().unwrap())).collect()
}

/// Waits until no process has a word in its command line.
#[track_caller]
fn none_runs(word: &str) {
    let end = Instant::now() + Duration::from_secs(5);
    while running(word) > 0 {
        assert!(Instant::now() < end, "{} processes go on", running(word));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Counts the processes with a word in their environment, which they can't change.
pub(super) fn running(word: &str) -> usize {
    let holds = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_digit())
            && fs::read(format!("/proc/{name}/environ"))
                .is_ok_and(|text| text.windows(word.len()).any(|part| part == word.as_bytes()))
    };
    fs::read_dir("/proc").unwrap().filter(|entry| holds(entry.as_ref().unwrap().file_name().to_str().unwrap())).count()
}

/// What each of the five does stands in the file of candidates.
const FIVE: &str = "good=3
bug: exit 1

hang: setsid sleep 300 & sleep 300
bomb: f() { f | f & f; }; f
liar=1; echo 1000000
";

/// Does what the candidate says. A bomb is let off under a limit of processes, as a user who has no others.
const FIVE_RUN: &str = r#"
case "$ENGRAMFS_CANDIDATE" in
good*) echo good > files/answer; (setsid sh -c 'sleep 0.3; echo late > files/answer; sleep 300' &) ;;
bug*) echo half > files/answer; exit 1 ;;
hang*) (setsid sh -c 'trap "" TERM HUP; sleep 300' &); sleep 300 ;;
bomb*) prlimit --nproc=150 sh -c 'f() { f | f & f; }; f' 2> /dev/null; sleep 300 ;;
liar*) echo lie > files/answer; echo 1000000; echo 1000000 > files/score ;;
esac
"#;

#[test]
fn of_five_candidates_the_good_one_is_promoted_and_nothing_of_the_others_stays() {
    let Some(mount) = shared() else { return };
    let (main, engramfs) = (mount.at("main").display().to_string(), program(&mount));
    mount.sh("chmod 777 main");
    save(mount.beside("five"), FIVE).unwrap();
    let mark = format!("EXPLORED={}", mount.beside("five").display());
    let score = "case $(cat files/answer) in good) echo 3 ;; lie) echo 1 ;; *) echo 9 ;; esac";
    let ids = ["--reuid=3901", "--regid=3901", "--clear-groups", "env", &mark, &engramfs, "explore", "--json", &main];
    let five = mount.beside("five").display().to_string();
    let more = ["--candidates", &five, "--run", FIVE_RUN, "--score", score, "--timeout", "2s", "--jobs", "5"];
    let Output { status, stdout, stderr } = output(&mut command("setpriv", &[&ids[..], &more].concat()));
    let (table, said) = (lines(&String::from_utf8(stdout).unwrap()), String::from_utf8_lossy(&stderr).into_owned());
    assert_eq!(status.code(), Some(0), "{table:?}{said}");
    let found: Vec<(&str, &str)> =
        outcomes(&table).into_iter().map(|(name, what)| (name.split([':', '=', ';']).next().unwrap(), what)).collect();
    assert_eq!(
        found,
        [("good", "promoted"), ("liar", "not chosen"), ("bug", "failed"), ("hang", "timed out"), ("bomb", "timed out"),]
    );
    none_runs(&mark);
    assert_eq!(read(mount.at("main/files/answer")), "good\n");
    assert!(names(mount.at("main/branches")).is_empty());
    let promote = lines(&read(mount.at("main/lineage"))).into_iter().find(|line| line["op"] == "promote").unwrap();
    let note = promote["text"].as_str().unwrap();
    assert!(
        note.starts_with("best of 5 candidates: 1. good=3 (3); 2. liar=1; echo 1000000 (1); bug: exit 1 (failed)"),
        "{note}"
    );
    let entry = lines(&read(mount.at("main/shared/log/entries.jsonl"))).pop().unwrap();
    assert_eq!((&entry["kind"], &entry["uid"]), (&"explore".into(), &3901.into()));
    assert_eq!(entry["metadata"]["ranking"][1]["score"], 1.0, "what the liar printed is no score: {entry}");
}

#[test]
fn candidates_that_run_in_sandboxes_see_their_branch_alone() {
    let Some(mount) = shared() else { return };
    let (main, engramfs) = (mount.at("main").display().to_string(), program(&mount));
    mount.sh("chmod 777 main");
    let inside = format!("id -u > files/answer; test ! -e {main} || echo {main} > files/seen");
    let run = format!("{engramfs} run \"$ENGRAMFS_BRANCH\" --on-success keep -- sh -c '{inside}'");
    let ids = ["--reuid=3902", "--regid=3902", "--clear-groups", &engramfs, "explore", "--json", &main];
    let more = ["-n", "2", "--run", &run, "--score", "ls files | wc -l"];
    let Output { status, stdout, stderr } = output(&mut command("setpriv", &[&ids[..], &more].concat()));
    let (table, said) = (lines(&String::from_utf8(stdout).unwrap()), String::from_utf8_lossy(&stderr).into_owned());
    assert_eq!(status.code(), Some(0), "{table:?}{said}");
    assert_eq!(outcomes(&table), [("1", "promoted"), ("2", "not chosen")], "{said}");
    assert_eq!(read(mount.at("main/files/answer")), "3902\n");
    assert!(!mount.has("main/files/seen"), "the mount is not there in a sandbox");
}

#[test]
fn ties_go_by_the_order_of_candidates_and_low_scores_are_out() {
    let mount = Mounted::new();
    let write = "echo $ENGRAMFS_CANDIDATE > files/answer; test \"$ENGRAMFS_BRANCH\" = \"$(pwd)\"";
    let score = "test \"$ENGRAMFS_BRANCH\" = \"$(pwd)\" || exit 1; echo text; echo $((ENGRAMFS_CANDIDATE % 2))";
    let (code, table, _) = explore(&mount, write, score, &["-n", "4"]);
    assert_eq!(code, 0);
    assert_eq!(outcomes(&table), [("1", "promoted"), ("3", "not chosen"), ("2", "not chosen"), ("4", "not chosen")]);
    assert_eq!((&table[0]["score"], &table[3]["rank"]), (&Value::from(1.0), &Value::from(4)));
    assert_eq!(read(mount.at("main/files/answer")), "1\n");
    let (code, table, err) = explore(&mount, write, "echo -$ENGRAMFS_CANDIDATE", &["-n", "2", "--at-least", "-0.5"]);
    assert_eq!((code, outcomes(&table)), (1, vec![("1", "too low"), ("2", "too low")]));
    assert!(err.contains("none was good enough"), "{err}");
    let score =
        "case $ENGRAMFS_CANDIDATE in 1) echo NaN ;; 2) echo inf ;; 3) echo 5; exit 1 ;; 4) echo many ;; 5) ;; esac";
    let (code, table, _) = explore(&mount, "true", score, &["-n", "5"]);
    assert_eq!((code, table.iter().all(|line| line["outcome"] == "no score")), (1, true), "{table:?}");
    let (code, table, _) = explore(&mount, "true", "echo 5; sleep 60", &["-n", "1", "--timeout", "1s"]);
    assert_eq!((code, outcomes(&table), table[0]["score"].is_null()), (1, vec![("1", "timed out")], true));
    assert_eq!(read(mount.at("main/files/answer")), "1\n");
    assert!(names(mount.at("main/branches")).is_empty());
}

#[test]
fn losers_come_back_or_stay_with_keep() {
    let mount = Mounted::new();
    let write = "echo $ENGRAMFS_CANDIDATE > files/answer; mkdir branches/own; test $ENGRAMFS_CANDIDATE != 3";
    let (code, table, _) = explore(&mount, write, "echo $ENGRAMFS_CANDIDATE", &["-n", "3", "--keep"]);
    assert_eq!(code, 0);
    assert_eq!(outcomes(&table), [("2", "promoted"), ("1", "not chosen"), ("3", "failed")]);
    let kept = [&table[1], &table[2]].map(|line| line["branch"].as_str().unwrap().to_owned());
    assert_eq!(names(mount.at("main/branches")), {
        let mut kept = kept.to_vec();
        kept.sort();
        kept
    });
    assert_eq!(read(mount.at(&format!("main/branches/{}/files/answer", kept[0]))), "1\n");
    assert_eq!(read(mount.at(&format!("main/branches/{}/config/ttl", kept[0]))), "", "who keeps it keeps it for long");
    assert!(names(mount.at(&format!("main/branches/{}/branches", kept[0]))).is_empty(), "what it forked has ended");
    assert_eq!(explore(&mount, "echo lost > files/answer", "exit 1", &["-n", "1"]).0, 1);
    let gone = mount.ctl("main", "discarded").unwrap();
    let name = gone["discarded"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|it| it["name"].as_str().filter(|name| name.ends_with("-1")));
    mount.ctl("main", &format!("fork back from discarded {}", name.unwrap())).unwrap();
    assert_eq!(read(mount.at("main/branches/back/files/answer")), "lost\n");
}

#[test]
fn what_a_scorer_changes_is_not_promoted_and_what_was_left_open_is_stale() {
    let mount = Mounted::new();
    let write = "echo $ENGRAMFS_CANDIDATE > files/answer";
    let (code, table, err) =
        explore(&mount, write, "echo better > files/answer; echo x > files/more; echo 1", &["-n", "2"]);
    assert_eq!((code, outcomes(&table)[0]), (0, ("1", "promoted")), "{err}");
    assert_eq!((read(mount.at("main/files/answer")).as_str(), mount.has("main/files/more")), ("1\n", false));
    let main = mount.at("main").display().to_string();
    let waits = "echo good > files/answer; while ! test -e files/go; do sleep 0.02; done";
    let mut explore = engramfs(&["explore", &main, "-n", "1", "--run", waits, "--score", "echo 1", "--timeout", "9s"]);
    let mut explore = explore.stdout(Stdio::null()).spawn().unwrap();
    let branch = || names(mount.at("main/branches")).pop().map(|name| mount.at(&format!("main/branches/{name}/files")));
    while !branch().is_some_and(|files| files.join("answer").exists()) {
        thread::sleep(Duration::from_millis(10));
    }
    let files = branch().unwrap();
    let mut open = fs::File::options().append(true).open(files.join("answer")).unwrap();
    save(files.join("go"), "").unwrap();
    assert!(explore.wait().unwrap().success());
    assert_eq!(errno(open.write_all(b"late")), libc::ESTALE);
    assert_eq!(read(mount.at("main/files/answer")), "good\n");
}

#[test]
fn a_conflict_is_told_the_next_one_is_tried_and_with_none_left_it_is_3() {
    let mount = Mounted::new();
    mount.sh("echo manual > main/config/strategy; echo base > main/files/a");
    // The best one changes what main changes, too; where that happened before it was scored, it is in conflict.
    let main = mount.at("main").display().to_string();
    let write = format!(
        "echo $ENGRAMFS_CANDIDATE > files/$ENGRAMFS_CANDIDATE; test $ENGRAMFS_CANDIDATE = 1 || {{ echo mine > files/a; echo $ENGRAMFS_CANDIDATE theirs > {main}/files/a; }}"
    );
    let score = "echo $ENGRAMFS_CANDIDATE";
    let (code, table, err) = explore(&mount, &write, score, &["-n", "2", "--jobs", "1"]);
    assert_eq!((code, outcomes(&table)), (0, vec![("2", "refused"), ("1", "promoted")]), "{err}");
    mount.sh("echo base > main/files/a");
    let (code, table, err) = explore(&mount, &write, score, &["-n", "2", "--jobs", "1", "--at-least", "2"]);
    assert_eq!((code, outcomes(&table)), (3, vec![("2", "refused"), ("1", "too low")]), "{err}");
}

#[test]
fn wrong_use_of_explore_is_2() {
    let mount = Mounted::new();
    let main = mount.at("main").display().to_string();
    let empty = mount.beside("empty").display().to_string();
    save(&empty, "\n").unwrap();
    for more in [&["-n", "0"][..], &[], &["--candidates", &empty], &["-n", "2", "--at-least", "nan"]] {
        assert_eq!(run(&[&["explore", &main, "--run", "true", "--score", "echo 1"][..], more].concat()).0, 2);
    }
    let closed = mount.beside("other").display().to_string();
    run(&["init", &closed]);
    let (code, _, err) = run(&["explore", &format!("{closed}:main"), "--run", "true", "--score", "echo 1", "-n", "1"]);
    assert_eq!((code, err.contains("has to be mounted")), (2, true), "{err}");
}

/// Starts to explore with candidates that never end, and returns once they run.
fn endless(mount: &Mounted, mark: &str) -> Child {
    let main = mount.at("main").display().to_string();
    let endless = "(setsid sh -c 'trap \"\" TERM INT HUP; sleep 300' &); echo x > files/here; sleep 300";
    let mut explore = engramfs(&["explore", &main, "-n", "3", "--jobs", "3", "--run", endless, "--score", "echo 1"]);
    let child = explore.env("EXPLORED", mark).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let here = || {
        let branches = names(mount.at("main/branches"));
        branches.iter().filter(|name| mount.has(&format!("main/branches/{name}/files/here"))).count()
    };
    while here() < 3 {
        thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn an_interruption_ends_all_candidates_and_their_branches() {
    let mount = Mounted::new();
    let mark = mount.beside("interrupted").display().to_string();
    let mut child = endless(&mount, &mark);
    // SAFETY: sends a signal to a child that was not waited for, so the number is its own.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!((running(&mark), names(mount.at("main/branches")).len()), (0, 0));
}

#[test]
fn a_killed_explore_leaves_no_process_and_only_branches_that_end_by_themselves() {
    let mount = Mounted::new();
    let mark = mount.beside("killed").display().to_string();
    let mut child = endless(&mount, &mark);
    child.kill().unwrap();
    child.wait().unwrap();
    none_runs(&mark);
    let left = names(mount.at("main/branches"));
    assert_eq!(left.len(), 3);
    for name in left {
        assert_eq!(read(mount.at(&format!("main/branches/{name}/config/ttl"))), "24h\n");
        let lease = &mount.status(&format!("main/branches/{name}"))["lease"];
        assert_eq!(lease["held"], false, "its ttl counts from the end of explore");
    }
}

#[test]
fn a_candidate_that_kills_its_supervisor_has_failed_and_leaves_nothing() {
    let mount = Mounted::new();
    let mark = mount.beside("patricide").display().to_string();
    let main = mount.at("main").display().to_string();
    let script = "(setsid sleep 300 &); kill -9 $PPID; sleep 300";
    let mut explore = engramfs(&["explore", "--json", &main, "-n", "2", "--run", script, "--score", "echo 1"]);
    let done = output(explore.env("EXPLORED", &mark));
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stdout).contains("its supervisor was killed"));
    assert_eq!((running(&mark), names(mount.at("main/branches")).len()), (0, 0));
}
