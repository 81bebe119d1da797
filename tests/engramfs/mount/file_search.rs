//! Notes that are copied into `files/` are found by their words, by who may read them.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::users::{act, shared};
use super::{Mounted, Site, lines, read, succeed};

/// The paths and lines of what a script's query found; fails where something is said not to be indexed.
fn found(answer: &str) -> Vec<String> {
    let lines = lines(answer);
    assert_eq!(lines[0].get("reason"), None, "{answer}");
    let place = |hit: &Value| match hit["path"].as_str() {
        Some(path) => format!("{}:{}", path.strip_prefix("files/").unwrap(), hit["line"]),
        None => hit["id"].as_str().unwrap().to_owned(),
    };
    lines[1..].iter().map(place).collect()
}

fn ask(mount: &Mounted, branch: &str, text: &str) -> Vec<String> {
    found(&mount.sh(&format!("cd {branch}; echo '{text}' > query; cat query")))
}

/// Makes a folder of notes beside the mount.
fn notes(mount: &Mounted, count: usize) {
    let script = format!(
        "mkdir -p ../notes/deep; for i in $(seq {count}); do printf '# Note %s\\n\\nThe heron%s waits.\\n\\n## Later\\n\\nIt flew off.\\n' \
         $i $i > ../notes/deep/n$i.md; done; head -c 200000 /dev/urandom > ../notes/noise.bin"
    );
    mount.sh(&script);
}

#[test]
fn a_directory_of_notes_that_is_copied_in_is_found_without_another_step() {
    let mount = Mounted::new();
    notes(&mount, 300);
    mount.sh("cp -a ../notes main/files/");
    assert_eq!(ask(&mount, "main", "heron77"), ["notes/deep/n77.md:1"]);
    assert_eq!(found(&read(mount.at("main/search/heron78"))), ["notes/deep/n78.md:1"]);
    let flying = lines(&mount.sh("cd main; echo '{\"text\":\"flies note 12\",\"k\":1}' > query; cat query"));
    assert_eq!(flying[1]["source"], "files");
    mount.sh("mkdir main/branches/x; mv main/branches/x/files/notes main/branches/x/files/moved; rm main/files/notes/deep/n77.md");
    assert_eq!(ask(&mount, "main/branches/x", "heron77"), ["moved/deep/n77.md:1"]);
    assert_eq!(ask(&mount, "main", "heron77"), [""; 0]);
    mount.sh("mkdir main/checkpoints/c; printf '/notes/** noindex\\n' > main/config/rules");
    assert_eq!(ask(&mount, "main", "heron78"), [""; 0]);
    assert_eq!(ask(&mount, "main/branches/x", "heron78"), ["moved/deep/n78.md:1"], "a fork has rules of its own");
    let mount = mount.unmounted_and_again();
    mount.sh("printf '** text\\n' > main/config/rules");
    assert_eq!(ask(&mount, "main", "heron78"), ["notes/deep/n78.md:1"]);
    let until = Instant::now() + Duration::from_secs(20);
    while mount.status("main")["index"]["files_indexed"] != 300 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(mount.status("main")["index"]["files_indexed"], 300);
}

#[test]
fn nobody_is_shown_what_they_could_not_read() {
    let Some(mount) = shared() else { return };
    mount.sh(
        "cd main/files; mkdir open shut; echo 'tern open' > open/a.txt; echo 'tern shut' > shut/b.txt; echo 'tern own' > c.txt
         echo 'tern group' > d.txt; chgrp 77 d.txt; chmod 640 d.txt; chmod 700 shut; chmod 600 c.txt
         mkdir group; echo 'tern not for the group' > group/e.txt; chgrp 78 group; chmod 705 group",
    );
    let query = "echo '{\"text\":\"tern\",\"k\":10}' > main/query; cat main/query";
    let hits = |answer: String| {
        let mut found = found(&answer);
        found.sort();
        found.join(" ")
    };
    assert_eq!(hits(mount.sh(query)), "c.txt:1 d.txt:1 group/e.txt:1 open/a.txt:1 shut/b.txt:1");
    assert_eq!(hits(act(&mount, 1001, query).unwrap()), "group/e.txt:1 open/a.txt:1");
    let with_groups = |groups: &str| {
        let ids = ["--reuid=1001", "--regid=1001", groups];
        let mut shell = super::command("setpriv", &[&ids[..], &["bash", "-ec", query]].concat());
        hits(succeed(shell.current_dir(mount.at(""))))
    };
    assert_eq!(with_groups("--groups=77,5"), "d.txt:1 group/e.txt:1 open/a.txt:1");
    assert_eq!(with_groups("--groups=78"), "open/a.txt:1", "the folder shuts its group out");
    // What a user can't read does not count for what that user is told, either: k answers come, with scores as if it were not there.
    let alone = act(&mount, 1001, "echo '{\"text\":\"tern\",\"k\":2}' > main/query; cat main/query").unwrap();
    mount.sh("rm -r main/files/shut main/files/c.txt main/files/d.txt");
    let without = act(&mount, 1001, "echo '{\"text\":\"tern\",\"k\":2}' > main/query; cat main/query").unwrap();
    let scores = |answer: &str| lines(answer)[1..].iter().map(|hit| hit["score"].clone()).collect::<Vec<_>>();
    assert_eq!((scores(&alone).len(), scores(&alone)), (2, scores(&without)));
}

#[test]
fn what_was_copied_before_a_kill_is_found_after_it() {
    let site = Site::new();
    let server = site.serve(&[]);
    let script = "for i in $(seq 200); do echo \"petrel$i waits\" > main/files/n$i.txt; done; echo petrel9 > main/query; cat main/query";
    let mount = site.beside("mnt");
    let sh = |script: &str| succeed(super::command("bash", &["-ec", script]).current_dir(&mount));
    assert_eq!(found(&sh(script)), ["n9.txt:1"]);
    server.crash();
    let server = site.serve(&[]);
    let until = Instant::now() + Duration::from_secs(20);
    let answer = || sh("echo petrel200 > main/query; cat main/query");
    while answer().contains("not indexed yet") && Instant::now() < until {}
    assert_eq!(found(&answer()), ["n200.txt:1"]);
    server.crash();
}
