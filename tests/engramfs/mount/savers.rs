//! How editors and atomic savers replace a record, call by call, so that no editor need be installed; and corrections by
//! several writers.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Mounted, close, errno, json, lines, names, read, save};

/// A mount with one record that has all keys.
fn mounted() -> Mounted {
    let mount = Mounted::new();
    save(mount.at("main/vectors/x.json"), r#"{"vector":[1,2],"text":"old","metadata":{"k":1}}"#).unwrap();
    mount
}

/// The record as an editor shows it, with another text.
fn edited(folder: &Path, text: &str) -> String {
    let document = read(folder.join("x.json"));
    let before = json(folder.join("x.json"))["text"].as_str().unwrap().to_owned();
    document.replace(&format!("\"{before}\""), &format!("\"{text}\""))
}

fn exclusive(path: PathBuf) -> File {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap()
}

/// Writes, flushes and closes.
fn put(mut file: File, text: &str) {
    file.write_all(text.as_bytes()).unwrap();
    file.sync_all().unwrap();
    close(file).unwrap();
}

/// `backupcopy=no`, and `auto` where nothing speaks against it: the old file becomes the backup.
fn vim_renames(folder: &Path, document: &str) {
    let swap = exclusive(folder.join(".x.json.swp"));
    swap.write_all_at(&[0; 4096], 0).unwrap();
    drop(exclusive(folder.join("4913")));
    fs::remove_file(folder.join("4913")).unwrap();
    fs::rename(folder.join("x.json"), folder.join("x.json~")).unwrap();
    assert!(!folder.join("x.json").exists());
    put(File::create(folder.join("x.json")).unwrap(), document);
    fs::set_permissions(folder.join("x.json"), Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(folder.join("x.json~")).unwrap();
    drop(swap);
    fs::remove_file(folder.join(".x.json.swp")).unwrap();
}

/// `backupcopy=yes`: a copy is the backup, and the file itself is written anew.
fn vim_copies(folder: &Path, document: &str) {
    put(exclusive(folder.join("x.json~")), &read(folder.join("x.json")));
    put(File::create(folder.join("x.json")).unwrap(), document);
    fs::remove_file(folder.join("x.json~")).unwrap();
}

/// With its file of unsaved changes, and the backup by renaming that stays.
fn emacs(folder: &Path, document: &str) {
    // The lock is a symbolic link, which no folder of records takes; emacs goes on without.
    errno(std::os::unix::fs::symlink("ann@host.1", folder.join(".#x.json")));
    put(File::create(folder.join("#x.json#")).unwrap(), document);
    fs::rename(folder.join("x.json"), folder.join("x.json~")).unwrap();
    put(exclusive(folder.join("x.json")), document);
    fs::remove_file(folder.join("#x.json#")).unwrap();
    assert!(read(folder.join("x.json~")).contains("\"metadata\""));
    fs::remove_file(folder.join("x.json~")).unwrap();
}

fn nano(folder: &Path, document: &str) {
    put(exclusive(folder.join(".x.json.swp")), "nano");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(folder.join("x.json")).unwrap();
    put(file, document);
    fs::remove_file(folder.join(".x.json.swp")).unwrap();
}

/// `sed -i`.
fn sed(folder: &Path, document: &str) {
    let file = exclusive(folder.join("sedQ3kZ0a"));
    file.set_permissions(Permissions::from_mode(0o644)).unwrap();
    put(file, document);
    fs::rename(folder.join("sedQ3kZ0a"), folder.join("x.json")).unwrap();
}

fn rsync(folder: &Path, document: &str) {
    let temporary = folder.join(".x.json.Vq3RtY");
    put(exclusive(temporary.clone()), document);
    let file = File::options().write(true).open(&temporary).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    file.set_permissions(Permissions::from_mode(0o644)).unwrap();
    close(file).unwrap();
    fs::rename(temporary, folder.join("x.json")).unwrap();
}

/// `tempfile.mkstemp` and `os.replace`.
fn python(folder: &Path, document: &str) {
    put(exclusive(folder.join("tmp_a8k2xq9")), document);
    fs::rename(folder.join("tmp_a8k2xq9"), folder.join("x.json")).unwrap();
    File::open(folder).unwrap().sync_all().unwrap();
}

/// Names of Qt's QSaveFile, and of `write-file-atomic` of Node.
fn random_ends(folder: &Path, document: &str) {
    put(exclusive(folder.join("x.json.aBcDeF")), "not to be saved");
    fs::remove_file(folder.join("x.json.aBcDeF")).unwrap();
    put(exclusive(folder.join("x.json.2938471056")), document);
    fs::rename(folder.join("x.json.2938471056"), folder.join("x.json")).unwrap();
}

/// The file itself, emptied by the open.
fn code_truncates(folder: &Path, document: &str) {
    put(File::create(folder.join("x.json")).unwrap(), document);
}

/// The file itself, emptied behind the open, and written in pieces.
fn code_cuts(folder: &Path, document: &str) {
    let mut file = File::options().read(true).write(true).open(folder.join("x.json")).unwrap();
    file.set_len(0).unwrap();
    for piece in document.as_bytes().chunks(50) {
        file.write_all(piece).unwrap();
    }
    let at = file.stream_position().unwrap();
    file.set_len(at).unwrap();
    file.sync_data().unwrap();
    close(file).unwrap();
}

type Saver = fn(&Path, &str);

const SAVERS: [(&str, Saver); 10] = [
    ("vim, backupcopy=no", vim_renames),
    ("vim, backupcopy=yes", vim_copies),
    ("emacs", emacs),
    ("nano", nano),
    ("sed -i", sed),
    ("rsync", rsync),
    ("Python", python),
    ("Qt and Node", random_ends),
    ("code, O_TRUNC", code_truncates),
    ("code, ftruncate", code_cuts),
];

#[test]
fn every_saver_replaces_the_record_and_leaves_nothing_behind() {
    for (name, saver) in SAVERS {
        let mount = mounted();
        let folder = mount.at("main/vectors");
        let created = json(folder.join("x.json"))["created"].clone();
        for turn in ["new", "newer"] {
            saver(&folder, &edited(&folder, turn));
            let after = json(folder.join("x.json"));
            assert_eq!((&after["text"], &after["metadata"]["k"]), (&turn.into(), &1.into()), "{name}");
            assert_eq!(after["vector"][1].as_f64(), Some(2.0), "{name}");
            // Renaming a record to a backup's name deletes it, so that the next version is the first of another.
            let renames = name.contains("=no") || name == "emacs";
            assert_eq!(after["created"] == created, !renames, "{name}");
            assert_eq!(after["vector_stale"] == true, !renames, "{name}");
        }
        assert_eq!(names(&folder), ["x.json"], "{name}");
        assert_eq!(mount.status("main")["records"], 1, "{name}");
    }
}

#[test]
fn savers_of_bare_text_correct_the_text_alone() {
    for (name, saver) in SAVERS.into_iter().filter(|(name, _)| !name.contains("=no") && *name != "emacs") {
        let mount = mounted();
        let folder = mount.at("main/vectors");
        saver(&folder, "only a text\n");
        let after = json(folder.join("x.json"));
        assert_eq!((&after["text"], &after["metadata"]["k"]), (&"only a text".into(), &1.into()), "{name}");
        assert!(after["vector"][0] == 1.0 && after["vector_stale"] == true, "{name}");
    }
}

#[test]
fn a_name_that_no_saver_of_records_uses_is_refused_at_its_making() {
    let mount = mounted();
    let folder = mount.at("main/vectors");
    let before = read(folder.join("x.json"));
    for name in ["x.json.tmp", "x.json.bak", "x", "notes.txt", "sedabc", "tmp12", "x.json.0123456789abc"] {
        assert_eq!(errno(File::create(folder.join(name))), libc::EINVAL, "{name}");
        let refusal = mount.refusal("main");
        assert_eq!((&refusal["code"], &refusal["errno"]), (&"not_a_record_name".into(), &"EINVAL".into()));
        assert_eq!(refusal["path"], format!("vectors/{name}"));
        assert!(refusal["hint"].as_str().unwrap().contains("ID.json"), "{refusal}");
        assert_eq!(errno(fs::rename(folder.join("x.json"), folder.join(name))), libc::EINVAL, "{name}");
        assert_eq!(mount.refusal("main")["code"], "not_a_record_name");
    }
    assert_eq!(errno(fs::rename(folder.join("x.json"), folder.join("4913"))), libc::EINVAL);
    assert_eq!((names(&folder), read(folder.join("x.json"))), (vec!["x.json".to_owned()], before));
}

#[test]
fn temporaries_take_so_much_of_a_branch_and_no_more() {
    let mount = mounted();
    fs::create_dir(mount.at("main/branches/other")).unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    let mut file = File::create(mount.at("main/vectors/.large")).unwrap();
    let mut taken = 0;
    let full = loop {
        match file.write_all(&megabyte) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((full.raw_os_error(), taken), (Some(libc::ENOSPC), 63), "64 MiB, and what a file takes by itself");
    assert_eq!(errno(fs::write(mount.at("main/vectors/.second"), &megabyte)), libc::ENOSPC);
    // Records and other branches have room, and what is removed gives its own back.
    mount.put("main/vectors/x.json", "still");
    fs::write(mount.at("main/branches/other/vectors/.second"), &megabyte).unwrap();
    drop(file);
    fs::remove_file(mount.at("main/vectors/.large")).unwrap();
    // The kernel tells of the last close a moment after it has returned.
    let end = Instant::now() + Duration::from_secs(10);
    while let Err(error) = fs::write(mount.at("main/vectors/.second"), &megabyte) {
        assert!(error.raw_os_error() == Some(libc::ENOSPC) && Instant::now() < end, "{error}");
    }
}

#[test]
fn what_an_unmount_loses_of_temporaries_is_told_by_the_next_mount() {
    let mount = mounted();
    fs::write(mount.at("main/vectors/.draft"), "text").unwrap();
    fs::rename(mount.at("main/vectors/x.json"), mount.at("main/vectors/x.json~")).unwrap();
    let mount = mount.unmounted_and_again();
    let told = lines(&read(mount.at("main/errors")));
    let paths: Vec<(&Value, &Value)> = told.iter().map(|line| (&line["path"], &line["code"])).collect();
    let lost = Value::from("temporary_lost");
    assert_eq!(paths, [(&"vectors/.draft".into(), &lost), (&"vectors/x.json~".into(), &lost)]);
    let mount = mount.unmounted_and_again();
    assert_eq!(read(mount.at("main/errors")), "");
}

#[test]
fn two_writers_of_different_keys_of_one_record_both_count() {
    let mount = mounted();
    let path = mount.at("main/vectors/x.json");
    thread::scope(|scope| {
        let texts = scope.spawn(|| (0..300).for_each(|n| save(&path, &format!("text {n}\n")).unwrap()));
        let ingest = mount.at("main/ingest");
        let metadata = scope.spawn(move || {
            for n in 0..300 {
                save(&ingest, &format!("{{\"id\":\"x\",\"metadata\":{{\"n\":{n}}}}}\n")).unwrap();
            }
        });
        // Neither takes back what the other one wrote.
        let (mut text, mut number) = (-1, -1);
        while !texts.is_finished() || !metadata.is_finished() {
            let now = json(&path);
            let written = now["text"].as_str().unwrap().strip_prefix("text ").map_or(-1, |n| n.parse::<i64>().unwrap());
            let counted = now["metadata"]["n"].as_i64().unwrap_or(-1);
            assert!(written >= text && counted >= number && now["vector"][1] == 2.0, "{now}");
            (text, number) = (written, counted);
        }
    });
    let after = json(&path);
    assert_eq!((&after["text"], &after["metadata"]["n"]), (&"text 299".into(), &299.into()));
}

#[test]
fn a_merge_takes_corrected_records_with_who_and_whether_the_vector_is_stale() {
    let mount = mounted();
    mount.sh("mkdir main/branches/child; echo task-7 > main/branches/child/config/task");
    mount.sh("echo 'corrected in the child' > main/branches/child/vectors/x.json");
    save(mount.at("main/vectors/y.json"), r#"{"vector":[3,4],"text":"beside"}"#).unwrap();
    let corrected = read(mount.at("main/branches/child/vectors/x.json"));
    mount.sh("mv main/branches/child main/");
    assert_eq!(read(mount.at("main/vectors/x.json")), corrected);
    let after = json(mount.at("main/vectors/x.json"));
    assert!(after["vector_stale"] == true && after["vector"][1] == 2.0 && after["metadata"]["k"] == 1, "{after}");
    assert_eq!((&after["task"], &after["uid"]), (&"task-7".into(), &json_uid()));
    assert_eq!(after["branch"], "main/child");
    save(mount.at("main/vectors/x.json"), r#"{"vector":[5,6]}"#).unwrap();
    let after = json(mount.at("main/vectors/x.json"));
    assert!(after.get("vector_stale").is_none() && after["text"] == "corrected in the child", "{after}");
}

fn json_uid() -> Value {
    // SAFETY: it can't fail and changes nothing.
    unsafe { libc::geteuid() }.into()
}
