//! What is refused: with an errno, a code, a sentence and the next step, the same to who writes to the mount and to who types a
//! command.

use std::fs::{self, File};
use std::io::{self, Write};
use std::process::Stdio;

use super::{Mounted, Site, command, errno, read, run, save};

/// One refusal, provoked both ways.
struct Refused<'a> {
    on_mount: Box<dyn Fn() -> io::Result<()> + 'a>,
    command: Vec<String>,
    errno: i32,
    code: &'static str,
    exit: i32,
}

#[test]
fn each_refusal_has_an_errno_a_code_and_the_next_step_on_the_mount_and_on_the_command_line() {
    let mount = Mounted::new();
    mount.put("main/vectors/a.json", "of main");
    for name in ["x", "gated"] {
        fs::create_dir(mount.at(&format!("main/branches/{name}"))).unwrap();
    }
    mount.ctl("main", "checkpoint v1").unwrap();
    save(mount.at("main/config/strategy"), "manual\n").unwrap();
    mount.put("main/branches/x/vectors/a.json", "of x");
    mount.put("main/vectors/a.json", "of main again");
    for case in cases(&mount) {
        let branch = if case.command[1].ends_with("/x") { "main/branches/x" } else { "main" };
        let before = (mount.status("main")["head"].clone(), mount.status("main/branches/x")["head"].clone());
        let count = read(mount.at(&format!("{branch}/errors"))).lines().count();
        assert_eq!(errno((case.on_mount)()), case.errno, "{}", case.code);
        assert_eq!(read(mount.at(&format!("{branch}/errors"))).lines().count(), count + 1, "{}", case.code);
        let told = mount.refusal(branch);
        assert_eq!(told["code"], case.code, "{told}");
        let words: Vec<&str> = case.command.iter().map(String::as_str).collect();
        let (exit, _, said) = run(&[&words[..], &["--json"]].concat());
        assert_eq!(exit, case.exit, "{}: {said}", case.code);
        let typed: serde_json::Value = serde_json::from_str(said.trim()).unwrap();
        for key in ["code", "message", "hint"] {
            assert_eq!(typed[key], told[key], "{key}: {typed} and {told}");
            assert!(told[key].as_str().is_some_and(|it| it.len() > 3), "{told}");
        }
        let after = (mount.status("main")["head"].clone(), mount.status("main/branches/x")["head"].clone());
        assert_eq!(before, after, "{}: nothing changed", case.code);
    }
}

fn cases(mount: &Mounted) -> Vec<Refused<'_>> {
    let [main, x] = ["main", "main/branches/x"].map(|branch| mount.at(branch).display().to_string());
    let refused = |on_mount, command: &[&str], errno, code, exit| Refused {
        on_mount,
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        errno,
        code,
        exit,
    };
    let in_main = |verb: &'static str| Box::new(move || mount.ctl("main", verb).map(drop)) as Box<dyn Fn() -> _>;
    let in_x = |verb: &'static str| Box::new(move || mount.ctl("main/branches/x", verb).map(drop));
    let fork = Box::new(|| fs::create_dir(mount.at("main/branches/.x")));
    let query = Box::new(|| save(mount.at("main/query"), "{\"text\":\"x\",\"k\":0}"));
    vec![
        refused(fork, &["fork", &main, ".x"], libc::EINVAL, "bad_name", 1),
        refused(query, &["query", &main, "{\"text\":\"x\",\"k\":0}"], libc::EINVAL, "bad_question", 1),
        refused(in_main("checkpoint v1"), &["checkpoint", &main, "v1"], libc::EEXIST, "exists", 1),
        refused(in_main("rollback v2"), &["rollback", &main, "v2"], libc::ENOENT, "no_such_checkpoint", 6),
        refused(in_main("pull"), &["pull", &main], libc::EINVAL, "no_parent", 1),
        refused(in_main("propose"), &["propose", &main], libc::EINVAL, "no_parent", 1),
        refused(in_main("diff v2"), &["diff", &main, "v2"], libc::ENOENT, "no_such_checkpoint", 6),
        refused(in_main("redo"), &["redo", &main], libc::EINVAL, "nothing_to_redo", 1),
        refused(in_main("purge none"), &["purge", &main, "none"], libc::ENOENT, "nothing_to_purge", 6),
        refused(in_x("merge"), &["merge", &x], libc::EBUSY, "conflicts", 3),
        refused(in_x("resolve b child"), &["resolve", &x, "b", "child"], libc::ENOENT, "no_conflict", 6),
        refused(in_x("withdraw"), &["withdraw", &x], libc::ENOENT, "no_proposal", 6),
    ]
}

#[test]
fn a_dead_mount_is_called_dead_by_every_command_and_what_it_says_to_type_works() {
    let site = Site::new();
    let server = site.serve(&[]);
    let path = |below: &str| site.mnt.join(below).display().to_string();
    let (mnt, main, store) = (site.mnt.display().to_string(), path("main"), site.store.display().to_string());
    let (other, out) = (site.beside("other").display().to_string(), site.beside("o.jsonl").display().to_string());
    let in_it = "read go; exec \"$0\" status .";
    let mut waiting = command("sh", &["-c", in_it, env!("CARGO_BIN_EXE_engramfs")]);
    let waiting = waiting.current_dir(&main).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut waiting = waiting.unwrap();
    server.crash();
    let typed = format!("engramfs mount {store} {mnt}");
    for arguments in [
        &["status", &main][..],
        &["query", &main, "x"],
        &["fork", &main, "x"],
        &["merge", &path("main/branches/a:b")],
        &["export", &main, &out],
        &["guard", &main, "--", "true"],
        &["explore", &main, "-n", "1", "--run", "true", "--score", "true"],
        &["wait", &path("main/shared/signals/x")],
        &["gc", &mnt],
        &["mount", &other, &main],
    ] {
        let (code, _, said) = run(arguments);
        assert_eq!(code, 1, "{arguments:?}: {said}");
        assert!(said.contains(&format!("the mount at {mnt} is dead")), "{arguments:?}: {said}");
        assert!(said.trim_end().ends_with(&typed), "{arguments:?}: {said}");
    }
    waiting.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let waited = waiting.wait_with_output().unwrap();
    let said = String::from_utf8(waited.stderr).unwrap();
    assert!(!waited.status.success() && said.contains(&typed), "{said}");
    assert_eq!(run(&["mount", &store, &mnt]).0, 0);
    assert_eq!(run(&["status", &main]).0, 0);
    assert_eq!(run(&["umount", &mnt]).0, 0);
}

#[test]
fn a_store_whose_mount_was_taken_away_lazily_is_not_told_to_be_unmounted() {
    let site = Site::new();
    let mut server = site.serve(&[]);
    let (mnt, store) = (site.mnt.display().to_string(), site.store.display().to_string());
    let held = File::open(site.mnt.join("main/status")).unwrap();
    assert_eq!(run(&["umount", "--lazy", &mnt]).0, 0);
    for arguments in [&["mount", &store, &mnt][..], &["checkpoint", &format!("{store}:main"), "v1"]] {
        let (code, _, said) = run(arguments);
        assert_eq!(code, 5, "{said}");
        assert!(said.contains("until what is open is closed") && !said.contains("engramfs umount"), "{said}");
    }
    drop(held);
    server.wait();
    assert_eq!(run(&["checkpoint", &format!("{store}:main"), "v1"]).0, 0);
}
