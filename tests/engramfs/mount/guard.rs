//! `engramfs guard`: a step whose failure leaves nothing behind.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::signals::eventually;
use super::{Mounted, command, lines, names, read, run, save};

fn guard(mount: &Mounted, script: &str) -> (i32, String, String) {
    let main = mount.at("main").display().to_string();
    run(&["guard", &main, "--", "sh", "-c", script])
}

#[test]
fn a_step_that_fails_leaves_nothing_and_one_that_succeeds_stays() {
    let mount = Mounted::new();
    mount.put("main/vectors/a.json", "before");
    let change =
        "echo changed > \"$ENGRAMFS_BRANCH/files/note\"; echo '{\"text\":\"after\"}' > $ENGRAMFS_BRANCH/vectors/a.json";
    let (code, out, err) = guard(&mount, &format!("{change}; echo seen; exit 7"));
    assert_eq!((code, out.as_str()), (1, "seen\n"));
    assert!(err.contains("ended with status 7") && err.contains("rolled back"), "{err}");
    assert_eq!((mount.text("main/vectors/a.json").as_str(), mount.has("main/files/note")), ("before", false));
    let (code, _, err) = guard(&mount, &format!("{change}; kill -9 $$"));
    assert_eq!((code, err.contains("killed by signal 9"), mount.has("main/files/note")), (1, true, false));
    assert_eq!(guard(&mount, change), (0, String::new(), String::new()));
    assert_eq!(
        (mount.text("main/vectors/a.json").as_str(), read(mount.at("main/files/note")).as_str()),
        ("after", "changed\n")
    );
    let main = mount.at("main").display().to_string();
    assert_eq!(run(&["guard", &main, "--", "/no/such/program"]).0, 1);
    assert!(names(mount.at("main/checkpoints")).is_empty(), "each guard took its checkpoint away");
    let (code, out, _) = run(&["guard", "--json", &main, "--", "false"]);
    assert_eq!(
        (code, &lines(&out)[0]["rolled_back"], &lines(&out)[0]["exit"]),
        (1, &Value::from(true), &Value::from(1))
    );
}

#[test]
fn a_guard_that_is_told_to_end_ends_its_step_and_rolls_back() {
    let mount = Mounted::new();
    let main = mount.at("main").display().to_string();
    let script = "echo x > $ENGRAMFS_BRANCH/files/half; echo there; exec sleep 60";
    // Whoever runs the tests may ignore signals, as nohup and a shell in the background do.
    let guard = ["--default-signal", env!("CARGO_BIN_EXE_engramfs"), "guard", &main, "--", "sh", "-c", script];
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut child = command("env", &guard).stderr(Stdio::null()).spawn().unwrap();
        while !mount.has("main/files/half") {
            thread::sleep(Duration::from_millis(10));
        }
        // SAFETY: sends a signal to a child that was not waited for, so the number is its own.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
        assert_eq!(child.wait().unwrap().code(), Some(130), "signal {signal}");
        assert_eq!((mount.has("main/files/half"), names(mount.at("main/checkpoints")).len()), (false, 0));
    }
}

#[test]
fn a_guard_in_two_halves_needs_no_process_between_them_and_gc_lists_what_nobody_ends() {
    let mount = Mounted::new();
    let (main, mnt) = (mount.at("main").display().to_string(), mount.at("").display().to_string());
    let begin = || run(&["guard", "--begin", &main]).1.trim().to_owned();
    let (failed, ok, open) = (begin(), begin(), begin());
    save(mount.at("main/files/note"), "step").unwrap();
    assert_eq!(run(&["guard", "--end", &main, &ok, "ok"]).0, 0);
    assert!(mount.has("main/files/note"));
    assert_eq!(run(&["guard", "--end", &main, &failed, "failed"]).0, 0);
    assert!(!mount.has("main/files/note"));
    assert_eq!(run(&["guard", "--end", &main, &failed, "failed"]).0, 6, "it has ended");
    assert_eq!(run(&["guard", "--end", &main, "v1", "ok"]).0, 2);
    assert_eq!(run(&["guard", "--end", &main, &open]).0, 2);
    assert_eq!(run(&["guard", &main]).0, 2);
    for dry in [&["--dry-run"][..], &[]] {
        let report = lines(&run(&[&["gc", "--json", &mnt], dry].concat()).1).remove(0);
        let guards = report["open_guards"].as_array().unwrap();
        assert_eq!(
            (guards.len(), &guards[0]["branch"], &guards[0]["checkpoint"]),
            (1, &"main".into(), &Value::from(open.as_str()))
        );
        assert!(guards[0]["age"].as_str().unwrap().ends_with('s'));
    }
    assert_eq!(names(mount.at("main/checkpoints")), [open], "gc lists it, and who began it decides");
}

#[test]
fn a_guard_works_without_a_mount() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store").display().to_string();
    run(&["init", &store]);
    let (main, file) = (format!("{store}:main"), folder.path().join("r.jsonl").display().to_string());
    save(&file, "{\"id\":\"a\",\"text\":\"t\"}\n").unwrap();
    let program = env!("CARGO_BIN_EXE_engramfs");
    let import = format!("{program} import \"$ENGRAMFS_BRANCH\" {file} > /dev/null");
    let records = || lines(&run(&["status", "--json", &main]).1)[0]["records"].as_u64();
    assert_eq!(run(&["guard", &main, "--", "sh", "-c", &format!("{import}; false")]).0, 1);
    assert_eq!(records(), Some(0));
    assert_eq!(run(&["guard", &main, "--", "sh", "-c", &import]).0, 0);
    assert_eq!(records(), Some(1));
}

#[test]
fn what_others_wrote_meanwhile_is_rolled_back_and_what_a_step_started_goes_on() {
    let mount = Mounted::new();
    mount.put("main/vectors/a.json", "before");
    let wait = |file: &str| format!("while [ ! -e {file} ]; do sleep 0.05; done");
    let (there, went) = (mount.beside("there"), mount.beside("went"));
    let left_running = format!("({}; touch {}) > /dev/null 2>&1 &", wait("go"), went.display());
    let script = format!("{left_running} touch {}; {}; exit 1", there.display(), wait("$ENGRAMFS_BRANCH/files/other"));
    let outcome = thread::scope(|scope| {
        let guarded = scope.spawn(|| guard(&mount, &format!("cd {}; {script}", mount.beside("").display())).0);
        eventually(|| there.exists());
        mount.put("main/vectors/a.json", "of another");
        save(mount.at("main/files/other"), "of another").unwrap();
        guarded.join().unwrap()
    });
    assert_eq!(outcome, 1);
    assert_eq!((mount.text("main/vectors/a.json").as_str(), mount.has("main/files/other")), ("before", false));
    save(mount.beside("go"), "").unwrap();
    eventually(|| went.exists());
}

#[test]
fn a_step_that_deletes_its_checkpoint_is_rolled_back_by_the_entry() {
    let mount = Mounted::new();
    let (bad, rmdir) = ("echo bad > $ENGRAMFS_BRANCH/files/bad", "rmdir $ENGRAMFS_BRANCH/checkpoints/guard-*");
    let (code, _, err) = guard(&mount, &format!("{bad}; {rmdir}; exit 3"));
    assert_eq!((code, mount.has("main/files/bad")), (1, false), "{err}");
    assert!(err.contains("ended with status 3") && err.contains("was rolled back"), "{err}");
    assert_eq!(guard(&mount, &format!("{bad}; {rmdir}")), (0, String::new(), String::new()));
    assert!(mount.has("main/files/bad"));
}

#[test]
fn a_guard_that_can_not_roll_back_says_how_the_step_ended_and_that_what_it_did_stays() {
    let mount = Mounted::new();
    mount.sh("mkdir main/branches/x");
    let x = mount.at("main/branches/x").display().to_string();
    let (code, _, err) = run(&["guard", &x, "--", "sh", "-c", "rmdir $ENGRAMFS_BRANCH; exit 3"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("ended with status 3") && err.contains("what it did stays"), "{err}");
}
