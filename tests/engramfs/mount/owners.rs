//! Whose the files of forks, merges and branches are that were given away.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::users::{act, assert_refused, program, shared};
use super::{Mounted, engramfs, run, succeed};

fn owner(mount: &Mounted, path: &str) -> u32 {
    fs::symlink_metadata(mount.at(path)).unwrap().uid()
}

/// Owners of some files below a folder.
fn owners<const N: usize>(mount: &Mounted, folder: &str, names: [&str; N]) -> [u32; N] {
    names.map(|name| owner(mount, &format!("{folder}/{name}")))
}

/// Mounts a store anew that was closed, and so sealed: owners then come from the manifest, else from the log.
fn sealed(mount: Mounted) -> Mounted {
    succeed(engramfs(&["umount"]).arg(mount.at("")));
    mount.again(&["--allow-other"])
}

/// Files of root in `main`, open and closed ones.
const MAKE: &str = "cd main/files; umask 022
    echo 1 > open; echo 1 > group; chmod 640 group; echo 1 > private; chmod 600 private
    echo 1 > members-shut-out; chmod 604 members-shut-out
    echo 1 > setuid; chmod 4755 setuid; ln -s open link; mknod device c 1 3; chmod 644 device
    mkdir wide closed listed; echo 1 > wide/in; echo 1 > closed/in; echo 1 > listed/in; chmod 700 closed; chmod 744 listed";

const NAMES: [&str; 11] =
    ["open", "link", "wide", "wide/in", "group", "private", "members-shut-out", "setuid", "device", "closed", "listed"];

#[test]
fn a_fork_may_change_what_it_could_read_and_opens_nothing_that_was_closed() {
    let Some(mut mount) = shared() else { return };
    mount.sh(MAKE);
    act(&mount, 1001, "mkdir main/branches/ann").unwrap();
    let ann = "main/branches/ann/files";
    let expected = [1001, 1001, 1001, 1001, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(owners(&mount, ann, NAMES), expected);
    assert_eq!(owners(&mount, "main/files", NAMES), [0; 11], "the parent's own stay");
    for _ in 0..2 {
        act(&mount, 1001, &format!("cd {ann}; echo 2 >> open; echo 2 >> wide/in; echo 3 > wide/new; rm wide/new"))
            .unwrap();
        act(&mount, 1001, &format!("cd {ann}; chmod 600 open; chmod 644 open; touch -d @7 wide/in")).unwrap();
        for script in [
            "cat private",
            "cat group",
            "echo 2 >> private",
            "echo 2 >> group",
            "chmod 644 private",
            "chmod 755 closed",
            "ls closed",
            "cat closed/in",
            "cat listed/in",
            "echo 2 >> setuid",
            "chmod 755 setuid",
            "echo 2 >> members-shut-out",
            "chown 1001 private",
        ] {
            assert_refused(&mount, 1001, &format!("cd {ann}; {script}"));
        }
        // The same from disk: sealed at the close, and read back.
        mount = sealed(mount);
        assert_eq!(owners(&mount, ann, NAMES), expected);
    }
    assert_eq!(super::read(mount.at("main/files/open")), "1\n");
    // Whoever else may enter the fork is still somebody else there.
    act(&mount, 1001, "chmod 755 main/branches/ann").unwrap();
    for script in ["echo 3 >> open", "echo 3 > wide/new", "cat private", "chmod 666 open", "rm open"] {
        assert_refused(&mount, 1002, &format!("cd {ann}; {script}"));
    }
}

#[test]
fn a_file_belongs_to_the_owner_of_each_fork_below_one_that_could_read_it() {
    let Some(mount) = shared() else { return };
    mount.sh(MAKE);
    act(&mount, 1001, "mkdir main/branches/ann; chmod 755 main/branches/ann").unwrap();
    act(&mount, 1001, "cd main/branches/ann/files; umask 022; echo a > own; echo a > secret; chmod 600 secret")
        .unwrap();
    // Closed before the next fork, and after it.
    act(&mount, 1001, "cd main/branches/ann/files; chmod 600 wide/in").unwrap();
    act(&mount, 1002, "mkdir main/branches/ann/branches/bob").unwrap();
    act(&mount, 1001, "cd main/branches/ann/files; chmod 644 wide/in secret; chmod 600 open own").unwrap();
    let (ann, bob) = ("main/branches/ann/files", "main/branches/ann/branches/bob/files");
    let names = ["open", "own", "secret", "wide", "wide/in", "private"];
    assert_eq!(owners(&mount, bob, names), [1002, 1002, 1001, 1002, 1001, 0]);
    assert_eq!(owners(&mount, ann, names), [1001, 1001, 1001, 1001, 1001, 0]);
    act(&mount, 1002, &format!("cd {bob}; echo b >> open; echo b >> own; echo b > wide/new")).unwrap();
    assert_refused(&mount, 1002, &format!("cd {bob}; cat secret"));
    assert_refused(&mount, 1002, &format!("cd {bob}; cat wide/in"));
    assert_refused(&mount, 1002, &format!("cd {bob}; chmod 666 secret"));
    // Back with root, who forks what belongs to another.
    mount.sh("mkdir main/branches/ann/branches/bob/branches/root");
    assert_eq!(owners(&mount, "main/branches/ann/branches/bob/branches/root/files", names), [0, 0, 1001, 0, 1001, 0]);
    // A checkpoint keeps owners, and a rollback brings them back.
    act(
        &mount,
        1002,
        "cd main/branches/ann/branches/bob; mkdir checkpoints/v1; chmod 600 files/open; echo x > files/open",
    )
    .unwrap();
    mount.ctl("main/branches/ann/branches/bob", "rollback v1").unwrap();
    let mount = sealed(mount);
    assert_eq!(owners(&mount, bob, names), [1002, 1002, 1001, 1002, 1001, 0]);
    assert_eq!(fs::metadata(mount.at(&format!("{bob}/open"))).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn sixty_four_forks_by_three_users_in_turn_pass_a_file_on() {
    let Some(mount) = shared() else { return };
    mount.sh("echo 1 > main/files/a; echo 1 > main/files/b; chmod 600 main/files/b");
    let (mut at, mut last) = (String::from("main"), 0);
    for depth in 0..64 {
        last = 1001 + depth % 3;
        act(&mount, last, &format!("mkdir {at}/branches/x; chmod 755 {at}/branches/x")).unwrap();
        at += "/branches/x";
    }
    assert_eq!(owners(&mount, &format!("{at}/files"), ["a", "b"]), [last, 0]);
    act(&mount, last, &format!("echo 2 >> {at}/files/a")).unwrap();
    let mount = sealed(mount);
    assert_eq!(owners(&mount, &format!("{at}/files"), ["a", "b"]), [last, 0]);
}

#[test]
fn what_a_merge_adds_belongs_to_the_receiving_branchs_owner_and_the_rest_stays() {
    let Some(mount) = shared() else { return };
    mount.sh(MAKE);
    fs::set_permissions(mount.at("main"), PermissionsExt::from_mode(0o757)).unwrap();
    act(
        &mount,
        1001,
        "mkdir main/branches/ann; cd main/branches/ann/files; umask 022; mkdir made; echo n > made/new
        echo n > mine; chmod 600 mine; echo n > runs; chmod 4755 runs; echo 2 >> open",
    )
    .unwrap();
    act(&mount, 1001, "echo promote > main/branches/ann/ctl").unwrap();
    let names = ["made", "made/new", "mine", "open", "private", "runs"];
    let ann = "main/branches/ann/files";
    let check = |mount: &Mounted| {
        assert_eq!(owners(mount, "main/files", names), [0, 0, 0, 0, 0, 1001], "a program with rights is never given");
        assert_eq!(owners(mount, ann, names), [1001, 1001, 1001, 1001, 0, 1001]);
    };
    check(&mount);
    // The branch goes on with what is its own.
    act(&mount, 1001, &format!("cd {ann}; echo 3 >> made/new; echo 3 >> mine; echo 3 >> open; echo 3 > made/more"))
        .unwrap();
    act(&mount, 1001, "echo promote > main/branches/ann/ctl").unwrap();
    check(&mount);
    assert_eq!(owner(&mount, "main/files/made/more"), 0);
    // What the parent adds is the branch's where others could read it.
    mount.sh("cd main/files; umask 022; echo p > late; echo p > hidden; chmod 600 hidden");
    act(&mount, 1001, "echo pull > main/branches/ann/ctl; echo 2 >> main/branches/ann/files/late").unwrap();
    assert_eq!(owners(&mount, ann, ["late", "hidden"]), [1001, 0]);
    assert_refused(&mount, 1001, &format!("cat {ann}/hidden"));
    // So it is after a crash, from the log alone, and a merge ends it.
    let mount = mount.again(&["--allow-other"]);
    check(&mount);
    assert_eq!(owners(&mount, ann, ["late", "hidden"]), [1001, 0]);
    act(&mount, 1001, "echo z > main/branches/ann/files/last; mv main/branches/ann main/").unwrap();
    assert_eq!(owners(&mount, "main/files", ["last", "late", "hidden", "made/new"]), [0; 4]);
}

/// Owners and permission bits of some files below a folder.
fn protection<const N: usize>(mount: &Mounted, folder: &str, names: [&str; N]) -> [(u32, u32); N] {
    names.map(|name| {
        let found = fs::symlink_metadata(mount.at(&format!("{folder}/{name}"))).unwrap();
        (found.uid(), found.mode() & 0o7777)
    })
}

#[test]
fn a_pull_opens_no_file_that_the_parent_has_closed() {
    let Some(mount) = shared() else { return };
    let names = ["private", "a.jsonl", "open"];
    mount.sh("cd main/files; umask 022; echo one > private; : > a.jsonl; chmod 600 private a.jsonl; echo known > open");
    act(
        &mount,
        1001,
        "umask 022; mkdir main/branches/ann; cd main/branches/ann/files; rm -f private; echo mine > private",
    )
    .unwrap();
    mount.sh("cd main/files; echo secret > private; chmod 600 open; echo secret > open");
    mount.sh(r#"cd main/files; printf '{"event_id":1,"v":"secret"}\n{"event_id":2}\n' > a.jsonl"#);
    // Later than the parent's, whose line loses.
    act(&mount, 1001, r#"umask 022; cd main/branches/ann/files; rm -f a.jsonl; echo '{"event_id":1}' > a.jsonl"#)
        .unwrap();
    let told = act(&mount, 1001, "cd main/branches/ann; echo 'merge --dry-run' > ctl; cat ctl conflicts").unwrap();
    assert!(told.contains("\"lost_more\":1") && !told.contains("secret"), "{told}");
    let (ann, before) = ("main/branches/ann/files", [(1001, 0o644); 3]);
    assert_eq!(protection(&mount, ann, names), before);
    let held = "cd main/branches/ann; exec 3<files/private; echo pull > ctl; cat <&3";
    assert_eq!(act(&mount, 1001, held).unwrap(), "mine\n", "a handle goes on to show what it was opened for");
    let closed = |mount: &Mounted| {
        assert_eq!(protection(mount, ann, names), [(0, 0o600); 3]);
        for name in names {
            assert_refused(mount, 1001, &format!("cat {ann}/{name}"));
            assert_refused(mount, 1001, &format!("chmod 644 {ann}/{name}"));
        }
        mount.sh(&format!("grep -q secret {ann}/private && grep -q secret {ann}/open && grep -q 2 {ann}/a.jsonl"));
        let told = act(mount, 1001, "cat main/branches/ann/lineage main/branches/ann/events.jsonl").unwrap();
        assert!(!told.contains("secret"), "{told}");
    };
    closed(&mount);
    // What it took away comes back, and is closed again.
    let own = act(&mount, 1001, "cd main/branches/ann; echo undo > ctl; cd files; cat private open; echo 2 >> private");
    assert_eq!(own.unwrap(), "mine\nknown\n");
    assert_eq!(protection(&mount, ann, names), before);
    act(&mount, 1001, "cd main/branches/ann; echo undo > ctl; echo pull > ctl").unwrap();
    closed(&mount);
    let mount = mount.again(&["--allow-other"]);
    closed(&mount);
    let mount = sealed(mount);
    closed(&mount);
    mount.ctl("main/branches/ann", "merge").unwrap();
    assert_eq!(protection(&mount, "main/files", names), [(0, 0o600); 3]);
    mount.sh("cd main/files; test $(cat private) = secret && grep -q 2 a.jsonl");
}

#[test]
fn a_pull_opens_nothing_of_a_folder_that_the_parent_has_closed() {
    let Some(mount) = shared() else { return };
    mount.sh("mkdir -m 700 main/files/d");
    let make = "umask 022; mkdir main/branches/ann; cd main/branches/ann/files; rmdir d; mkdir d; echo own > d/own";
    act(&mount, 1001, make).unwrap();
    mount.sh("umask 022; echo secret > main/files/d/new");
    let told = act(&mount, 1001, "cd main/branches/ann; echo pull > ctl; cat ctl").unwrap();
    assert!(told.contains("files/d"), "{told}");
    let ann = "main/branches/ann/files";
    let closed = |mount: &Mounted| {
        assert_eq!(protection(mount, ann, ["d"]), [(0, 0o700)]);
        for script in ["cat d/new", "cat d/own", "ls d", "chmod 755 d"] {
            assert_refused(mount, 1001, &format!("cd {ann}; {script}"));
        }
        mount.sh(&format!("cd {ann}; test $(cat d/new) = secret && test $(cat d/own) = own"));
    };
    closed(&mount);
    let own = act(&mount, 1001, "cd main/branches/ann; echo undo > ctl; cat files/d/*; echo more > files/d/more");
    assert_eq!(own.unwrap(), "own\n");
    assert_eq!(protection(&mount, ann, ["d"]), [(1001, 0o755)]);
    act(&mount, 1001, "echo pull > main/branches/ann/ctl").unwrap();
    closed(&mount);
    let mount = mount.again(&["--allow-other"]);
    closed(&mount);
    let mount = sealed(mount);
    closed(&mount);
    mount.ctl("main/branches/ann", "merge").unwrap();
    assert_eq!(protection(&mount, "main/files", ["d"]), [(0, 0o700)]);
    mount.sh("cd main/files/d; test $(cat new) = secret && test $(cat own) = own && test $(cat more) = more");
}

#[test]
fn an_earlier_state_opens_no_file_that_was_closed_in_it() {
    let Some(mount) = shared() else { return };
    mount.sh("echo secret > main/files/private; chmod 600 main/files/private");
    for (name, back) in [("ann", "rollback v1 -- files/private"), ("bea", "undo")] {
        let branch = format!("main/branches/{name}");
        act(
            &mount,
            1001,
            &format!("mkdir {branch} {branch}/checkpoints/v1; cd {branch}/files; rm -f private; echo mine > private"),
        )
        .unwrap();
        act(&mount, 1001, &format!("echo {back} > {branch}/ctl")).unwrap();
        assert_eq!(protection(&mount, &format!("{branch}/files"), ["private"]), [(0, 0o600)], "{back}");
        assert_refused(&mount, 1001, &format!("cat {branch}/files/private"));
        mount.sh(&format!("grep -q secret {branch}/files/private"));
    }
}

#[test]
fn inherited_rules_bind_no_writer_of_a_fork_until_it_writes_its_own() {
    let Some(mount) = shared() else { return };
    mount.sh("mkdir main/files/plans main/files/logs; echo 1 > main/files/plans/a; echo 1 > main/files/logs/l");
    super::save(mount.at("main/config/rules"), "plans/** text write=uid:4711\nlogs/** text append\n").unwrap();
    fs::set_permissions(mount.at("main"), PermissionsExt::from_mode(0o757)).unwrap();
    act(&mount, 1001, "mkdir main/branches/ann; cd main/branches/ann/files; echo 2 > plans/a; echo 2 > logs/l")
        .unwrap();
    assert_refused(&mount, 0, "echo 2 > main/files/plans/a");
    let plan = act(&mount, 1001, "echo 'merge --dry-run' > main/branches/ann/ctl; cat main/branches/ann/ctl").unwrap();
    assert!(plan.contains("append_rule"), "{plan}");
    assert_refused(&mount, 1001, "echo promote > main/branches/ann/ctl");
    // Neither a fork of the fork nor a merge into it is bound.
    act(&mount, 1001, "cd main/branches/ann; mkdir branches/b; echo 3 > branches/b/files/plans/a; mv branches/b .")
        .unwrap();
    let mount = sealed(mount);
    act(&mount, 1001, "cd main/branches/ann; echo 4 > files/logs/l").unwrap();
    act(&mount, 1001, "cd main/branches/ann; rules=$(cat config/rules); echo \"$rules\" > config/rules").unwrap();
    assert_refused(&mount, 1001, "echo 5 > main/branches/ann/files/plans/a");
    assert_refused(&mount, 1001, "echo 5 > main/branches/ann/files/logs/l");
}

#[test]
fn a_rule_that_names_a_group_counts_the_effective_one_alone() {
    let Some(mount) = shared() else { return };
    mount.sh("mkdir -m 777 main/files/plans");
    super::save(mount.at("main/config/rules"), "plans/** text write=gid:50\n").unwrap();
    let write = |name: &str, groups: [&str; 2]| {
        let script = format!("echo x > main/files/plans/{name}");
        let words = ["--reuid=1001", groups[0], groups[1], "bash", "-ec", &script];
        super::output(super::command("setpriv", &words).current_dir(mount.at("")))
    };
    let refused = write("a", ["--regid=1001", "--groups=50"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("Permission denied"), "{said}");
    assert!(write("b", ["--regid=50", "--clear-groups"]).status.success());
    assert_eq!(super::names(mount.at("main/files/plans")), ["b"]);
}

#[test]
fn root_gives_a_branch_away_with_its_files_settings_and_quota() {
    let Some(mount) = shared() else { return };
    act(&mount, 1001, "mkdir main/branches/ann; cd main/branches/ann; umask 022; echo a > files/a; echo a > files/p
        chmod 600 files/p; echo bytes=1G > config/quota; echo ann > config/agent; mkdir checkpoints/v1 branches/sub; echo b > scratch/s")
    .unwrap();
    for script in ["chown 1002 main/branches/ann", "echo 'fork x owner 1002' > main/ctl", "chown 1001 main"] {
        assert_refused(&mount, 1001, script);
    }
    assert_refused(&mount, 0, "chgrp 4711 main/branches/ann");
    mount.sh("chown 1002 main/branches/ann");
    let check = |mount: &Mounted| {
        let ann = "main/branches/ann";
        assert_eq!((owner(mount, ann), owner(mount, &format!("{ann}/files"))), (1002, 1002));
        assert_eq!(owner(mount, &format!("{ann}/branches/sub")), 1001, "a child branch stays whose it is");
        assert_eq!(owners(mount, &format!("{ann}/files"), ["a", "p"]), [1002, 1001]);
        assert_eq!(owners(mount, &format!("{ann}/checkpoints/v1/files"), ["a", "p"]), [1002, 1001]);
        let read = |setting: &str| super::read(mount.at(&format!("{ann}/config/{setting}")));
        assert_eq!([read("quota"), read("agent")].map(|value| value.trim().to_owned()), ["bytes=1G", "ann"]);
    };
    check(&mount);
    act(
        &mount,
        1002,
        "cd main/branches/ann; echo 2 >> files/a; echo x > files/c; rmdir checkpoints/v1; mkdir checkpoints/v1",
    )
    .unwrap();
    assert_refused(&mount, 1001, "ls main/branches/ann");
    let last = super::lines(&super::read(mount.at("main/branches/ann/lineage")));
    assert!(
        last.iter().any(|entry| entry["op"] == "owner" && entry["owner"] == 1002 && entry["uid"] == 0),
        "{last:#?}"
    );
    let mount = mount.again(&["--allow-other"]);
    check(&mount);
    let mount = sealed(mount);
    check(&mount);
    // At once, by ctl and by the command line.
    mount.ctl("main", "fork bob owner 1002").unwrap();
    let program = program(&mount);
    mount.sh(&format!("{program} fork --owner 1001 main eve"));
    assert!(act(&mount, 1002, &format!("{program} fork --owner 1001 main no")).is_err());
    assert_eq!((owner(&mount, "main/branches/bob"), owner(&mount, "main/branches/eve")), (1002, 1001));
    act(&mount, 1002, "echo x > main/branches/bob/files/x; echo 1h > main/branches/bob/config/ttl").unwrap();
}

#[test]
fn who_can_not_take_a_change_back_is_told_who_can_and_that_works() {
    let Some(mount) = shared() else { return };
    let program = program(&mount);
    mount.sh("chmod 777 main");
    // What stands between the backquotes is typed as root.
    let typed = |said: &str| {
        let command = said.split('`').nth(1).unwrap().strip_prefix("engramfs ").unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(run(&words).0, 0, "{said}");
    };
    let promote = "mkdir main/branches/ann; echo x > main/branches/ann/files/x";
    let said = act(&mount, 1001, &format!("{promote}; {program} promote main/branches/ann")).unwrap();
    assert!(mount.has("main/files/x") && said.contains("uid 0, whose that branch is"), "{said}");
    typed(&said);
    assert!(!mount.has("main/files/x"));
    act(&mount, 1001, "mkdir main/branches/ann/branches/low; chmod 755 main/branches/ann/branches/low").unwrap();
    mount.sh("chown 1002 main/branches/ann/branches/low");
    let said = act(&mount, 1001, &format!("{program} discard main/branches/ann/branches/low")).unwrap();
    assert!(said.contains("uid 1002, whose it was"), "{said}");
    typed(&said);
    assert!(mount.has("main/branches/ann/branches/low"));
    let mount = mount.again(&["--branch", "main/ann"]);
    mount.put("vectors/b.json", "of ann");
    let (code, said, _) = run(&["promote", &mount.at("").display().to_string()]);
    assert!(code == 0 && said.contains("whose main is") && said.contains("`engramfs revert MNT/main "), "{said}");
}
