//! What leaked is purged through a mount: bytes in the store's folder, what readers see, and a server that dies meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Mounted, Site, engramfs, errno, json, lines, names, output, read, run, save};

/// The files below a folder that hold some bytes.
fn holding(folder: &Path, needle: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(holding(&entry.path(), needle));
        } else if let Ok(bytes) = fs::read(entry.path())
            && bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
        {
            found.push(entry.path());
        }
    }
    found
}

/// Long secrets, one for each kind of place.
fn secrets() -> Vec<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().replace('-', "");
    ["text", "metadata", "line", "file", "xattr", "loser", "old", "folder"]
        .iter()
        .map(|kind| format!("{id}{kind}{id}"))
        .collect()
}

/// Puts each secret where its name says, in states of all kinds.
fn spread(mount: &Mounted, secrets: &[String]) {
    let [text, metadata, line, file, xattr, loser, old, folder] = secrets else { panic!("eight") };
    let record = |path: &str, text: &str| mount.put(&format!("{path}.json"), text);
    record("main/vectors/tea", "green");
    let document = format!("{{\"vector\":[1,2],\"text\":\"{text}\",\"metadata\":{{\"key\":\"{metadata}\"}}}}");
    save(mount.at("main/vectors/leak.json"), &document).unwrap();
    record("main/vectors/both", "base");
    record("main/vectors/gone", old);
    save(mount.at("main/files/dump.jsonl"), "{\"event_id\":1}\n").unwrap();
    save(mount.at("main/files/keep.txt"), "kept").unwrap();
    mount.sh(&format!(
        "mkdir main/files/keys; echo {file} > main/files/id; setfattr -n user.note -v {xattr} main/files/id || \
         python3 -c 'import os; os.setxattr(\"main/files/id\", \"user.note\", b\"{xattr}\")'
         mkdir main/checkpoints/v1; mkdir main/branches/a main/branches/b; mkdir main/branches/b/branches/c
         yes {folder} | head -c 300000 > main/branches/b/files/keys/long
         echo '{{\"event_id\":1,\"v\":\"{line}\"}}' > main/branches/a/files/dump.jsonl; sleep 0.01
         echo '{{\"event_id\":1,\"v\":\"other\"}}' > main/files/dump.jsonl"
    ));
    record("main/branches/a/vectors/both", loser);
    record("main/vectors/both", "newer");
    fs::remove_file(mount.at("main/vectors/gone.json")).unwrap();
    record("main/branches/a/vectors/gone", &format!("{old}, too"));
    mount.sh("mv main/files/id main/files/renamed; mv main/branches/a main/");
    record("main/branches/b/vectors/leak", &format!("{text}, changed"));
    mount.sh("mkdir other; cp main/files/renamed other/files/copy");
}

const PURGE: &str = "purge leak both gone files/dump.jsonl files/renamed files/keys files/copy";

#[test]
fn purged_secrets_are_nowhere_while_others_go_on() {
    for seals in [false, true] {
        let mount = Mounted::new();
        let secrets = secrets();
        spread(&mount, &secrets);
        if seals {
            mount.ctl("main", "gc").unwrap();
        }
        let store = mount.beside("store");
        for secret in &secrets {
            assert!(!holding(&store, secret).is_empty(), "a control: {secret}");
        }
        mount.sh(&format!("echo {} > main/query; grep -q {} main/query", secrets[0], secrets[0]));
        let open = fs::File::open(mount.at("main/branches/b/files/keys/long")).unwrap();
        let stop = AtomicBool::new(false);
        let report = std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                let mut count = 0;
                while !stop.load(Ordering::Acquire) {
                    mount.put(&format!("main/branches/b/vectors/n{count}.json"), "note");
                    save(mount.at("main/files/log"), &count.to_string()).unwrap();
                    assert_eq!(mount.text("main/vectors/tea.json"), "green");
                    count += 1;
                }
                count
            });
            std::thread::sleep(Duration::from_millis(50));
            let dry = mount.ctl("main", &format!("{PURGE} --dry-run")).unwrap();
            assert_eq!((dry["dry_run"].as_bool(), dry["entry"].is_null()), (Some(true), true), "{dry}");
            let report = mount.ctl("main", PURGE).unwrap();
            assert_eq!(dry["items"], report["items"]);
            stop.store(true, Ordering::Release);
            assert!(others.join().unwrap() > 0);
            report
        });
        assert_eq!(report["not_found"], serde_json::json!(["files/copy"]), "{report}");
        assert_eq!(report["copies"], serde_json::json!(["files/copy"]), "{report}");
        // Another root branch: its names are its own.
        assert!(!holding(&store, &secrets[3]).is_empty());
        mount.ctl("other", "purge files/copy").unwrap();
        for secret in &secrets {
            assert_eq!(holding(&store, secret), [""; 0].map(PathBuf::from), "{secret}: {report}");
            for branch in ["main", "main/branches/b", "main/branches/b/branches/c", "main/checkpoints/v1"] {
                let found =
                    mount.sh(&format!("tail -n +2 {branch}/search/{secret}; cat {branch}/export/records.jsonl"));
                assert!(!found.contains(secret), "{branch}: {found}");
            }
            let said = mount.sh("cat main/lineage main/branches/b/lineage main/query main/ctl main/events.jsonl");
            assert!(!said.contains(secret), "{said}");
        }
        for path in ["main", "main/branches/b", "main/branches/b/branches/c", "main/checkpoints/v1"] {
            let tree = mount.sh(&format!("cd {path}; find vectors files | sort"));
            for name in ["leak", "both", "gone", "dump", "renamed", "id", "keys"] {
                assert!(!tree.lines().any(|line| line.contains(name)), "{path}: {name}: {tree}");
            }
            assert_eq!(mount.text(&format!("{path}/vectors/tea.json")), "green");
            assert_eq!(read(mount.at(&format!("{path}/files/keep.txt"))), "kept");
        }
        assert_eq!(errno(open.metadata()), libc::ESTALE);
        drop(open);
        let lineage = lines(&read(mount.at("main/lineage")));
        assert!(lineage.iter().any(|line| line["op"] == "purge" && line["purged"].as_array().unwrap().len() > 5));
        let again = mount.again(&[]);
        assert_eq!(names(again.at("main/vectors")), ["tea.json"]);
        assert_eq!(json(again.at("main/status"))["records"], 1);
        drop(again.ctl("main", "gc").unwrap());
        let (code, said, error) = run(&["verify", store.to_str().unwrap()]);
        assert_eq!(code, 0, "{said}{error}");
    }
}

/// Wherever the server is killed, the purge was not begun, or is finished once the store is served again.
#[test]
fn a_server_killed_during_a_purge_leaves_all_of_it_or_nothing() {
    let (mut absent, mut finished) = (0, 0);
    for round in 0..12 {
        let site = Site::new();
        let server = site.serve(&[]);
        let secret = &secrets()[0];
        let at = |path: &str| site.mnt.join(path);
        save(at("main/vectors/leak.json"), &format!("{{\"text\":\"{secret}\"}}")).unwrap();
        save(at("main/files/leak"), &format!("{secret}\n").repeat(20_000)).unwrap();
        fs::create_dir(at("main/branches/a")).unwrap();
        let done = std::thread::scope(|scope| {
            let target = at("main").to_str().unwrap().to_owned();
            let caller = scope.spawn(move || output(&mut engramfs(&["purge", &target, "leak", "files/leak"])));
            std::thread::sleep(Duration::from_millis(4 * round * round / 3));
            server.crash();
            caller.join().unwrap().status.success()
        });
        let server = site.serve(&[]);
        let there = [at("main/vectors/leak.json"), at("main/files/leak"), at("main/branches/a/vectors/leak.json")];
        let there: Vec<bool> = there.iter().map(|path| path.exists()).collect();
        assert!(there.iter().all(|is_there| *is_there == there[0]), "round {round}: {there:?}");
        assert_eq!(holding(&site.store, secret).is_empty(), !there[0], "round {round}");
        assert!(!(done && there[0]), "round {round}: it was acknowledged");
        (absent, finished) = if there[0] { (absent + 1, finished) } else { (absent, finished + 1) };
        server.signal(libc::SIGTERM);
        drop(server);
        assert_eq!(run(&["verify", site.store.to_str().unwrap()]).0, 0, "round {round}");
    }
    assert!(absent > 0 && finished > 0, "{absent} absent, {finished} finished");
}
