//! Who counts as whom: the table of who may do what, by how a process came to its uid and groups.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};

use super::super::users::{act, program, shared};
use super::super::{Mounted, command, json, output, read};
use super::AGENTS;

/// Owns the three branches. A user of every Debian with a group of its own: to whom no name belongs has the group of nobody.
const OWNER: u32 = 1;
const OTHER: u32 = 4202;
const FIRST_SANDBOXED: u32 = 4401;

/// As which user and groups a process starts, what it becomes by itself, and what it may do in branches with the modes 0700, 0750
/// and 0755: `all`, to `read`, or `none`; or to read `files` alone, since the kernel knows supplementary groups and the server does not.
const TABLE: [(&str, &str, [&str; 3]); 11] = [
    ("--reuid=0 --regid=0 --clear-groups", "", ["all", "all", "all"]),
    ("--reuid=1 --regid=1 --clear-groups", "", ["all", "all", "all"]),
    ("--reuid=4202 --regid=4202 --clear-groups", "", ["none", "none", "read"]),
    ("--reuid=4202 --regid=1 --clear-groups", "", ["none", "read", "read"]),
    ("--reuid=4202 --regid=4202 --groups=1", "", ["none", "files", "read"]),
    ("--reuid=4202 --regid=4202 --groups=4203,4204", "", ["none", "none", "read"]),
    ("--reuid=4202 --regid=4202 --clear-groups", "unshare -U -r", ["none", "none", "read"]),
    ("--reuid=1 --regid=1 --clear-groups", "unshare -U -r", ["all", "all", "all"]),
    ("--reuid=4202 --regid=4202 --clear-groups", BWRAP, ["none", "none", "read"]),
    ("--reuid=1 --regid=1 --clear-groups", BWRAP, ["all", "all", "all"]),
    ("--reuid=4202 --regid=4202 --groups=1", "unshare -U -r", ["none", "files", "read"]),
];

/// Root by its number inside, and nothing but that.
const BWRAP: &str = "bwrap --unshare-user --uid 0 --gid 0 --dev-bind / /";

const MODES: [u32; 3] = [0o700, 0o750, 0o755];

/// What whoever may read a branch may do; `$b` is its directory.
const READING: [&str; 9] = [
    "ls $b/vectors",
    "ls $b/checkpoints/c/files",
    "cat $b/vectors/r.json",
    "cat $b/files/f",
    "cat $b/status $b/lineage $b/events.jsonl $b/shared/events.jsonl",
    "exec 3<>$b/query; echo tea >&3; cat <&3",
    "cat $b/search/tea",
    "echo diff > $b/ctl; cat $b/at/$(tail -1 $b/lineage | jq .seq)/vectors/r.json",
    "mkdir $b/branches/$$; rmdir $b/branches/$$",
];

/// What its owner and root may do beside that.
const CHANGING: [&str; 10] = [
    "echo tea > $b/vectors/r.json",
    "echo tea > $b/vectors/n$$.json; rm $b/vectors/n$$.json",
    "echo tea > $b/files/f",
    "mkdir $b/files/d$$; rmdir $b/files/d$$",
    "echo me > $b/config/task",
    "echo '{\"id\":\"r\",\"text\":\"tea\"}' > $b/ingest",
    "echo entry > $b/shared/log/append",
    "echo 'checkpoint k' > $b/ctl; rmdir $b/checkpoints/k",
    "chmod $(stat -c %a $b) $b",
    "mv $b $b-moved; mv $b-moved $b",
];

/// Says for each line of its input whether that could be done; what failed otherwise than by a lack of rights is told in full.
const TRY: &str = r#"
cd $1; b=$2
while IFS= read -r line; do
  if said=$(LC_ALL=C bash -ec "b=$b; $line" 2>&1 < /dev/null); then echo yes
  else case $said in *'Permission denied'* | *'Operation not permitted'*) echo no;; *) echo "$said" | tr '\n' ' '; echo;; esac; fi
done
"#;

/// Tries lines as somebody, in a branch.
fn tried(mount: &Mounted, (user, becomes): (&str, &str), branch: &str, tries: &[&str]) -> Vec<String> {
    let input = mount.beside("tries");
    fs::write(&input, tries.join("\n") + "\n").unwrap();
    let mut words: Vec<&str> = user.split(' ').chain(becomes.split_terminator(' ')).collect();
    let mnt = mount.at("").display().to_string();
    words.extend(["bash", "-c", TRY, "bash", &mnt, branch]);
    let done = output(
        command("setpriv", &words).env("PATH", "/usr/local/bin:/usr/bin:/bin").stdin(fs::File::open(&input).unwrap()),
    );
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn each_identity_may_do_what_its_uid_and_groups_outside_may_and_nothing_more() {
    let Some(mount) = shared() else { return };
    for mode in MODES {
        let branch = format!("main/branches/b{mode:o}");
        mount.ctl("main", &format!("fork b{mode:o} owner {OWNER}")).unwrap();
        let make = format!(
            "cd {branch}; umask 022; echo own > config/log; echo tea > vectors/r.json; echo tea > files/f; mkdir checkpoints/c"
        );
        act(&mount, OWNER, &make).unwrap();
        fs::set_permissions(mount.at(&branch), Permissions::from_mode(mode)).unwrap();
    }
    let mut differs = Vec::new();
    for (user, becomes, expected) in TABLE {
        for (mode, may) in MODES.iter().zip(expected) {
            let branch = format!("main/branches/b{mode:o}");
            for (tries, needs) in [(&READING[..], "read"), (&CHANGING[..], "all")] {
                let answers = tried(&mount, (user, becomes), &branch, tries);
                assert_eq!(answers.len(), tries.len(), "{answers:?}");
                for (line, got) in tries.iter().zip(&answers) {
                    let is_file = may == "files" && needs == "read" && line.contains("/files");
                    let is = if may == "all" || may == needs || is_file { "yes" } else { "no" };
                    if got != is {
                        differs.push(format!("{user} {becomes}: {mode:o}: {line}: {got}, not {is}"));
                    }
                }
            }
        }
    }
    assert!(differs.is_empty(), "{differs:#?}");
    // Who seems to be root inside is who it is to others.
    for branch in ["main/branches/b700", "main/branches/b750"] {
        let (file, record) = (mount.at(&format!("{branch}/files/f")), mount.at(&format!("{branch}/vectors/r.json")));
        assert_eq!((fs::metadata(file).unwrap().uid(), &json(record)["uid"]), (OWNER, &OWNER.into()));
    }
}

/// Copies a program as root's, with the set-user-id bit.
fn set_uid_copy(mount: &Mounted, path: &str) -> String {
    let to = mount.at(path);
    fs::copy("/bin/cat", &to).unwrap();
    fs::set_permissions(&to, Permissions::from_mode(0o4755)).unwrap();
    to.display().to_string()
}

#[test]
fn a_program_on_the_mount_gives_nobody_the_rights_of_its_owner() {
    let Some(mount) = shared() else { return };
    act(&mount, OWNER, "mkdir main/branches/b; echo canary > main/branches/b/files/f").unwrap();
    fs::write(mount.beside("secret"), "canary").unwrap();
    fs::set_permissions(mount.beside("secret"), Permissions::from_mode(0o600)).unwrap();
    let secret = mount.beside("secret").display().to_string();
    mount.sh("mkdir main/branches/own");
    fs::set_permissions(mount.at("main/branches/own"), Permissions::from_mode(0o755)).unwrap();
    for place in ["main/files/cat", "main/branches/own/files/cat", "main/branches/own/scratch/cat"] {
        let cat = set_uid_copy(&mount, place);
        assert!(act(&mount, OTHER, &format!("{cat} main/vectors/a.json")).unwrap().contains("a of main"), "it runs");
        for closed in ["main/branches/b/files/f", &secret] {
            let said = act(&mount, OTHER, &format!("{cat} {closed}")).unwrap_err();
            assert!(said.contains("Permission denied"), "{said}");
        }
    }
    // A fork of another user, and what that user gives the bit to.
    act(&mount, OWNER, "cp /bin/cat main/branches/b/files/cat; chmod 4755 main/branches/b/files/cat; chmod 755 main/branches/b; chmod 600 main/branches/b/files/f").unwrap();
    let said = act(&mount, OTHER, "main/branches/b/files/cat main/branches/b/files/f").unwrap_err();
    assert!(said.contains("Permission denied"), "{said}");
    let mounts = read("/proc/self/mountinfo");
    let mnt = mount.at("").display().to_string();
    let line = mounts.lines().find(|line| line.contains(mnt.trim_end_matches('/'))).unwrap();
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
}

/// Leaves a canary in its branch, looks for those of others on all ways that a sandbox leaves, and shows what it found.
const SANDBOXED: &str = r#"
echo canary-$1x > files/own; echo canary-$1x > vectors/own.json; touch files/ready
for n in $(seq 100); do [ -e shared/signals/go ] && break; sleep 0.1; done
id -u; grep -rs canary- . | grep -v '^./\(query\|errors\)'
for other in $(seq $2 $3); do
  for way in .. /memory/.. files/../.. $4/main/branches /proc/1/root$4/main/branches; do cat $way/s$other/files/own $way/s$other/vectors/own.json; done
  echo "{\"text\":\"canary\",\"scope\":[\"main\",\"s$other\"]}" > query; cat query; echo "fork x from discarded s$other" > ctl
  unshare -U -r cat $4/main/branches/s$other/files/own
done 2> /dev/null
for pid in /proc/[0-9]*; do ls $pid/root$4 $pid/cwd/../branches; cat $pid/environ; done 2> /dev/null | grep -a canary
true
"#;

fn sandbox(mount: &Mounted, engramfs: &str, uid: u32) -> Child {
    let last = FIRST_SANDBOXED + AGENTS as u32 - 1;
    let words = [uid, FIRST_SANDBOXED, last].map(|number| number.to_string());
    let (branch, mnt) = (mount.at(&format!("main/branches/s{uid}")), mount.at(""));
    Command::new(engramfs)
        .arg("run")
        .arg(branch)
        .args(["--uid", &words[0], "--on-success", "keep", "--", "bash", "-c", SANDBOXED, "bash"])
        .args(&words)
        .arg(mnt.display().to_string().trim_end_matches('/'))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn fifteen_sandboxes_have_a_uid_each_and_see_their_own_branch_alone() {
    let Some(mount) = shared() else { return };
    let engramfs = program(&mount);
    let users = || FIRST_SANDBOXED..FIRST_SANDBOXED + AGENTS as u32;
    let sandboxes: Vec<(u32, Child)> = users().map(|uid| (uid, sandbox(&mount, &engramfs, uid))).collect();
    let is_ready = |uid: u32| mount.has(&format!("main/branches/s{uid}/files/ready"));
    for _ in 0..300 {
        if users().all(is_ready) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(users().all(is_ready));
    mount.sh("echo go > main/shared/signals/go");
    for (uid, sandbox) in sandboxes {
        let done = sandbox.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success() && said.starts_with(&format!("{uid}\n")), "{said}");
        let foreign: Vec<u32> =
            users().filter(|other| *other != uid && said.contains(&format!("canary-{other}x"))).collect();
        assert!(said.contains(&format!("canary-{uid}x")) && foreign.is_empty(), "{uid} got of {foreign:?}: {said}");
        let owners = ["", "/files/own"].map(|path| mount.at(&format!("main/branches/s{uid}{path}")));
        assert_eq!(owners.map(|path| fs::metadata(path).unwrap().uid()), [uid; 2]);
    }
    let all = act(&mount, 0, "cat main/branches/s*/files/own").unwrap();
    assert_eq!(all.lines().count(), AGENTS, "a control: root sees them all");
    let refused = output(Command::new(&engramfs).arg("run").arg(mount.at("main/branches/r")).args(["--", "true"]));
    assert_eq!((refused.status.code(), mount.has("main/branches/r")), (Some(2), false), "root has to say whose it is");
}
