//! Paths of the user's that are not UTF-8: stores, mountpoints and files below such a folder.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::mount::{Site, engramfs, lines, output, read, save, succeed};

/// Makes a folder whose name is not UTF-8.
fn odd_folder(above: &Path) -> PathBuf {
    let folder = above.join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&folder).unwrap();
    folder
}

fn target(store: &Path, name_path: &str) -> OsString {
    let mut target = store.as_os_str().to_owned();
    target.push(format!(":{name_path}"));
    target
}

/// Runs `engramfs VERB … --json` and returns the last line of its answer.
fn answer(arguments: &[&OsStr]) -> Value {
    let said = succeed(engramfs(&["--json"]).args(arguments));
    lines(&said).pop().unwrap_or_default()
}

/// They once ended in a panic, some after all was done.
#[test]
fn paths_that_are_not_utf_8_are_taken_and_told_with_a_sign_in_place_of_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let odd = odd_folder(folder.path());
    let at = |name: &str| odd.join(name).into_os_string();
    let main = target(&odd.join("store"), "main");
    let is_told =
        |value: &Value, name: &str| value.as_str().is_some_and(|path| path.ends_with(&format!("d\u{fffd}/{name}")));
    let arg = OsStr::new;
    let made = answer(&[arg("init"), &at("store")]);
    assert!(is_told(&made["store"], "store") && is_told(&made["target"], "store:main"), "{made}");
    save(odd.join("in.jsonl"), "{\"id\":\"a\",\"vector\":[1,2],\"text\":\"tea\"}\n").unwrap();
    assert_eq!(answer(&[arg("import"), &main, &at("in.jsonl")])["put"], 1);
    for verb in ["status", "branches", "log"] {
        answer(&[arg(verb), &main]);
    }
    assert_eq!(answer(&[arg("query"), &main, arg("tea")])["id"], "a");
    assert!(is_told(&answer(&[arg("fork"), &main, arg("x")])["target"], "store:main/x"));
    let exported = answer(&[arg("export"), &main, &at("o.npy"), arg("--ids"), &at("ids")]);
    assert!(is_told(&exported["file"], "o.npy") && is_told(&exported["ids"], "ids"), "{exported}");
    assert!(is_told(&answer(&[arg("export"), &main, &at("o.jsonl")])["file"], "o.jsonl"));
    assert!(is_told(&answer(&[arg("export"), arg("--all"), &main, &at("dump")])["folder"], "dump"));
    assert!(is_told(&answer(&[arg("import"), arg("--all"), &at("dump"), &at("new")])["store"], "new"));
    answer(&[arg("backup"), &at("store"), &at("copy")]);
    assert!(is_told(&answer(&[arg("restore"), &at("copy"), &at("back")])["store"], "back"));
}

#[test]
fn a_store_is_mounted_and_found_below_a_path_that_is_not_utf_8() {
    let mut site = Site::new();
    let odd = odd_folder(&site.beside(""));
    fs::create_dir(odd.join("mnt")).unwrap();
    (site.store, site.mnt) = (odd.join("store"), odd.join("mnt"));
    let mut server = site.serve(&[]);
    save(site.mnt.join("main/vectors/a.json"), "{\"text\":\"tea\"}\n").unwrap();
    // What reads the store beside its server finds it by the table of mounts.
    let main = site.mnt.join("main");
    let dump = odd.join("dump");
    assert!(answer(&["export".as_ref(), "--all".as_ref(), main.as_os_str(), dump.as_os_str()])["folder"].is_string());
    assert!(read(dump.join("main/records.jsonl")).contains("tea"));
    let told = answer(&["umount".as_ref(), site.mnt.as_os_str()]);
    assert!(told["store"].as_str().is_some_and(|store| store.ends_with("/d\u{fffd}/store")), "{told}");
    assert!(server.wait().success());
    // From within, by names that are UTF-8.
    let done = output(engramfs(&["mount", "store", "mnt"]).current_dir(&odd));
    let is_mounted = main.join("status").exists();
    succeed(engramfs(&["umount"]).arg(&site.mnt));
    assert!(done.status.success() && is_mounted, "{}", String::from_utf8_lossy(&done.stderr));
}
