//! Files of a store that change under its mount.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::{Site, errno, names, save};

/// The files of segments, packs and archives of a store.
fn segments(site: &Site) -> Vec<PathBuf> {
    names(site.store.join("segments")).into_iter().map(|name| site.store.join("segments").join(name)).collect()
}

/// Flips a bit of the first byte of a text, in whatever file of the store it stands.
fn damage(site: &Site, text: &str) {
    for path in segments(site) {
        let bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text.as_bytes()) {
            let file = fs::File::options().write(true).open(&path).unwrap();
            return file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
        }
    }
    panic!("{text:?} stands nowhere");
}

/// A site whose store has some sealed records and files.
fn sealed() -> Site {
    let site = Site::new();
    let server = site.serve(&[]);
    let main = site.mnt.join("main");
    let line =
        |n: u32| format!("{{\"id\":\"r{n:04}\",\"vector\":[{n},1,2,3],\"text\":\"the text numbered {n:04}\"}}\n");
    save(main.join("ingest"), &(0..2_000).map(line).collect::<String>()).unwrap();
    save(main.join("files/a.txt"), &"a line of the file\n".repeat(100)).unwrap();
    drop(server);
    super::engramfs(&["gc"]).arg(&site.store).output().unwrap();
    site
}

#[test]
fn what_changes_under_a_running_mount_is_eio_and_stands_in_errors() {
    let site = sealed();
    let _server = site.serve(&[]);
    let main = site.mnt.join("main");
    // First readings. The damage comes into another block than that of the first record.
    fs::read(main.join("vectors/r0007.json")).unwrap();
    fs::read(main.join("files/a.txt")).unwrap();
    fs::read(main.join("export/records.jsonl")).unwrap();
    damage(&site, "the text numbered 1907");
    damage(&site, "a line of the file");
    assert_eq!(errno(fs::read(main.join("vectors/r1907.json"))), libc::EIO);
    assert_eq!(errno(fs::read(main.join("export/records.jsonl"))), libc::EIO);
    fs::read(main.join("vectors/r0007.json")).unwrap();
    use std::os::unix::fs::OpenOptionsExt;
    let direct = fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(main.join("files/a.txt"));
    assert_eq!(errno(direct.and_then(|mut file| file.read(&mut [0; 4096]))), libc::EIO);
    let errors = fs::read_to_string(main.join("errors")).unwrap();
    for path in ["vectors/r1907.json", "export/records.jsonl", "files/a.txt"] {
        assert!(errors.contains(path), "{path}: {errors}");
    }
    assert!(fs::read_to_string(main.join("status")).unwrap().contains("\"scrub\":{\"checked\":"));
}

#[test]
fn a_mapped_file_that_is_cut_short_is_named_when_it_ends_the_server() {
    let site = sealed();
    let mut server = site.serve(&[]);
    let mut query = fs::File::options().read(true).write(true).open(site.mnt.join("main/query")).unwrap();
    let mut ask = || std::io::Write::write_all(&mut query, b"{\"vector\":[1,2,3,4],\"exact\":true}\n");
    ask().unwrap();
    for path in segments(&site) {
        fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
    }
    ask().unwrap_err();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(server.wait().signal(), Some(libc::SIGBUS));
    let told = server.stderr();
    let folder = site.store.join("segments");
    assert!(told.contains(&format!("the file {}", folder.display())), "{told}");
}

#[test]
fn a_store_in_a_mount_is_warned_of_and_served() {
    let outer = Site::new();
    let _outer = outer.serve(&[]);
    let mut inner = Site::new();
    inner.store = outer.mnt.join("main/files/store");
    let mut server = inner.serve(&[]);
    save(inner.mnt.join("main/vectors/a.json"), "{\"text\":\"inside\"}").unwrap();
    server.signal(libc::SIGTERM);
    server.wait();
    assert!(server.stderr().contains("lies in a mount of engramfs"), "a warning");
}
