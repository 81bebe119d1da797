//! What is refused: with an errno, a code, a sentence and the next step, the same to who writes to the mount and to who types a
//! command.

use std::fs;
use std::io;

use super::{Mounted, errno, read, run, save};

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
