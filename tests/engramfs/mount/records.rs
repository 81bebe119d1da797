//! Files in `vectors/`, and `ingest`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::thread;

use super::{Mounted, close, errno, json, lines, names, read, rename_with, run, save, truncate};

/// Writes to `ingest` and reads the result from the same handle.
fn ingest(mount: &Mounted, branch: &str, batch: &str) -> std::io::Result<serde_json::Value> {
    let mut file = File::options().read(true).write(true).open(mount.at(&format!("{branch}/ingest")))?;
    file.write_all(batch.as_bytes())?;
    let mut result = String::new();
    file.read_to_string(&mut result)?;
    close(file)?;
    Ok(serde_json::from_str(&result).unwrap())
}

#[test]
fn a_record_is_one_file_with_one_key_a_line() {
    let mount = Mounted::new();
    let path = mount.at("main/vectors/tea.json");
    save(&path, r#"{"vector":[0.1,-2,3e-5],"text":"tea at \"four\"","metadata":{"n":1}}"#).unwrap();
    let text = read(&path);
    let keys: Vec<&str> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
    let stamp = ["created", "modified", "branch", "agent", "session", "task", "uid"];
    assert_eq!(keys, [&["id", "text", "metadata"][..], &stamp, &["vector"]].concat());
    let first = json(&path);
    assert_eq!((&first["id"], &first["branch"], &first["metadata"]["n"]), (&"tea".into(), &"main".into(), &1.into()));
    let floats: Vec<f32> = serde_json::from_value(first["vector"].clone()).unwrap();
    assert_eq!(floats, [0.1, -2.0, 3e-5]);
    assert_eq!(fs::metadata(&path).unwrap().len(), text.len() as u64);

    // What reading gives may be written back.
    save(&path, &text.replace("four", "five")).unwrap();
    let second = json(&path);
    assert_eq!((&second["created"], &second["text"]), (&first["created"], &"tea at \"five\"".into()));
    assert!(second["modified"].as_str() > first["modified"].as_str());

    fs::rename(&path, mount.at("main/vectors/coffee.json")).unwrap();
    assert_eq!(json(mount.at("main/vectors/coffee.json"))["id"], "coffee");
    fs::remove_file(mount.at("main/vectors/coffee.json")).unwrap();
    assert_eq!((names(mount.at("main/vectors")), mount.status("main")["records"].as_u64()), (vec![], Some(0)));
}

#[test]
fn a_document_that_is_no_record_fails_in_the_write_and_says_why() {
    let mount = Mounted::new();
    save(mount.at("main/vectors/a.json"), r#"{"vector":[1,2,3]}"#).unwrap();
    for (document, code) in [
        (r#"{"vector":[1,2]}"#, "wrong_dimension"),
        (r#"{"vector":[0,0,0]}"#, "zero_vector"),
        (r#"{"vector":[1,2,NaN]}"#, "not_json"),
        (r#"{"vector":[1,2,1e99]}"#, "not_finite"),
        (r#"{"text":"x","colour":"red"}"#, "bad_document"),
        (r#"{"text":"x","id":"c"}"#, "other_id"),
        (r#"{"metadata":{}}"#, "empty_record"),
        ("{hello", "not_json"),
        ("[1,2,3]", "bad_document"),
    ] {
        let mut file = File::create(mount.at("main/vectors/b.json")).unwrap();
        assert_eq!(errno(file.write_all(document.as_bytes())), libc::EINVAL, "{document}");
        let refusal = mount.refusal("main");
        assert_eq!((&refusal["code"], &refusal["errno"]), (&code.into(), &"EINVAL".into()), "{document}");
        assert_eq!(refusal["path"], "vectors/b.json");
        close(file).unwrap();
    }
    assert_eq!(names(mount.at("main/vectors")), ["a.json"]);
    let echo = mount.shell("bash", "echo [nonsense] 2>/dev/null > main/vectors/b.json && echo taken || echo refused");
    assert_eq!(echo.trim(), "refused");
}

#[test]
fn an_incomplete_document_waits_for_its_rest_and_each_close_commits() {
    let mount = Mounted::new();
    let path = mount.at("main/vectors/a.json");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"{\"text\":\"one ").unwrap();
    assert_eq!(errno(file.sync_all()), libc::EINVAL);
    assert_eq!(errno(close(file.try_clone().unwrap())), libc::EINVAL);
    assert!(!path.exists());
    file.write_all(b"two\"}").unwrap();
    close(file.try_clone().unwrap()).unwrap();
    assert_eq!(mount.text("main/vectors/a.json"), "one two");
    let tip = mount.status("main")["tip"].clone();
    close(file).unwrap();
    assert_eq!(mount.status("main")["tip"], tip, "a close with nothing new does nothing");

    let mut file = File::create(mount.at("main/vectors/b.json")).unwrap();
    file.write_all(b"{\"text\":").unwrap();
    assert_eq!(errno(close(file)), libc::EINVAL);
    assert_eq!(names(mount.at("main/vectors")), ["a.json"]);
}

#[test]
fn readers_see_the_old_record_or_the_new_one_and_never_an_empty_one() {
    let mount = Mounted::new();
    let path = mount.at("main/vectors/a.json");
    mount.put("main/vectors/a.json", "version 0");
    let mut file = File::create(&path).unwrap();
    assert_eq!(mount.text("main/vectors/a.json"), "version 0");
    file.write_all(b"{\"text\":").unwrap();
    assert_eq!(mount.text("main/vectors/a.json"), "version 0");
    assert_eq!(errno(close(file)), libc::EINVAL);
    assert_eq!(errno(truncate(&path, 0)), libc::EINVAL);
    assert_eq!(mount.text("main/vectors/a.json"), "version 0");

    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 1..=200 {
                mount.put("main/vectors/a.json", &format!("version {n}"));
            }
        });
        let mut last = 0;
        while !writer.is_finished() {
            let text = mount.text("main/vectors/a.json");
            let version: u32 = text.strip_prefix("version ").unwrap().parse().unwrap();
            assert!(version >= last);
            last = version;
        }
        writer.join().unwrap();
    });
    assert_eq!(mount.text("main/vectors/a.json"), "version 200");
}

#[test]
fn a_write_in_the_middle_changes_the_middle() {
    let mount = Mounted::new();
    mount.put("main/vectors/a.json", "black tea");
    let file = File::options().read(true).write(true).open(mount.at("main/vectors/a.json")).unwrap();
    let at = read(mount.at("main/vectors/a.json")).find("black").unwrap();
    file.write_all_at(b"green", at as u64).unwrap();
    close(file).unwrap();
    assert_eq!(mount.text("main/vectors/a.json"), "green tea");
}

#[test]
fn temporaries_become_records_when_they_are_renamed() {
    let mount = Mounted::new();
    let [hidden, record, backup] =
        ["main/vectors/.a.tmp", "main/vectors/a.json", "main/vectors/a.json~"].map(|p| mount.at(p));
    save(&hidden, "{no record").unwrap();
    assert_eq!((errno(fs::rename(&hidden, &record)), read(&hidden).as_str()), (libc::EINVAL, "{no record"));
    assert_eq!(mount.status("main")["records"], 0);
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    assert_eq!(names(mount.at("main/branches/x/vectors")), [] as [&str; 0]);

    save(&hidden, r#"{"text":"saved"}"#).unwrap();
    fs::rename(&hidden, &record).unwrap();
    assert_eq!(
        (names(mount.at("main/vectors")), mount.text("main/vectors/a.json")),
        (vec!["a.json".into()], "saved".into())
    );

    fs::rename(&record, &backup).unwrap();
    assert_eq!((mount.status("main")["records"].as_u64(), &json(&backup)["text"]), (Some(0), &"saved".into()));
    fs::rename(&backup, &record).unwrap();
    assert_eq!(mount.text("main/vectors/a.json"), "saved");

    mount.put("main/vectors/b.json", "other");
    assert_eq!(errno(rename_with(&record, &mount.at("main/vectors/b.json"), libc::RENAME_NOREPLACE)), libc::EEXIST);
    assert_eq!(errno(rename_with(&record, &mount.at("main/vectors/b.json"), libc::RENAME_EXCHANGE)), libc::EINVAL);

    let mut big = File::create(&hidden).unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    let full = (0..65).find_map(|_| big.write_all(&megabyte).err()).unwrap();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
}

#[test]
fn what_files_can_do_and_records_cannot_is_refused_or_ignored() {
    let mount = Mounted::new();
    mount.put("main/vectors/a.json", "x");
    let path = mount.at("main/vectors/a.json");
    let before = fs::metadata(&path).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    mount.sh("touch -d 2001-01-01 main/vectors/a.json; chown 0:0 main/vectors/a.json");
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.permissions(), after.modified().unwrap()), (before.permissions(), before.modified().unwrap()));
    assert_eq!(errno(fs::hard_link(&path, mount.at("main/vectors/b.json"))), libc::EPERM);
    assert_eq!(errno(std::os::unix::fs::symlink("a.json", mount.at("main/vectors/b.json"))), libc::EPERM);
    assert_eq!(errno(fs::create_dir(mount.at("main/vectors/b"))), libc::EPERM);
    assert_eq!(errno(File::create_new(&path)), libc::EEXIST);
}

#[test]
fn names_and_sizes_have_limits() {
    let mount = Mounted::new();
    let record = |id: &str| save(mount.at(&format!("main/vectors/{id}.json")), "{\"text\":\"x\"}");
    record(&"x".repeat(200)).unwrap();
    record("ü and ñ").unwrap();
    assert_eq!(json(mount.at("main/vectors/ü and ñ.json"))["id"], "ü and ñ");
    assert_eq!(errno(record(&"x".repeat(201))), libc::EINVAL);
    assert_eq!(errno(record("bell\u{7}")), libc::EINVAL);
    assert_eq!(errno(record(&"x".repeat(251))), libc::ENAMETOOLONG);
    let not_utf8 = mount.at("main/vectors").join(std::ffi::OsStr::from_bytes(b"a\xff.json"));
    assert_eq!(errno(save(not_utf8, "{\"text\":\"x\"}")), libc::EINVAL);
    let long = "x".repeat(16 << 20);
    assert_eq!(errno(save(mount.at("main/vectors/long.json"), &format!("{{\"text\":\"{long}\"}}"))), libc::EFBIG);
    assert_eq!(names(mount.at("main/vectors")).len(), 2);
}

#[test]
fn a_document_that_is_too_long_changes_nothing_whatever_was_written_before() {
    let mount = Mounted::new();
    mount.put("main/vectors/e.json", "precious");
    let code = "import os, errno
for name in ('e', 'new'):
    fd = os.open('main/vectors/%s.json' % name, os.O_WRONLY | os.O_TRUNC | os.O_CREAT)
    try:
        while True: os.write(fd, b'b' * 65536)
    except OSError as e: assert e.errno == errno.EFBIG, e
    try: os.close(fd)
    except OSError as e: print(e.errno == errno.EFBIG)
# One long write(2), which is short.
fd = os.open('main/vectors/short.json', os.O_WRONLY | os.O_CREAT)
assert 0 < os.write(fd, b'a' * (17 << 20)) <= 16 << 20
for end in (os.fsync, os.close):
    try: end(fd)
    except OSError as e: print(e.errno == errno.EFBIG)";
    assert_eq!(mount.python(code).lines().collect::<Vec<_>>(), ["True"; 4]);
    assert_eq!(mount.text("main/vectors/e.json"), "precious");
    assert_eq!(names(mount.at("main/vectors")), ["e.json"]);
}

#[test]
fn ingest_takes_a_batch_whole_or_not_at_all() {
    let mount = Mounted::new();
    let done = ingest(&mount, "main", "{\"id\":\"a\",\"text\":\"1\"}\n{\"id\":\"b\",\"text\":\"2\"}\n").unwrap();
    assert_eq!((&done["put"], &done["deleted"], &done["head"]), (&2.into(), &0.into(), &mount.status("main")["head"]));
    assert_eq!(json(mount.at("main/ingest")), done, "a silent handle reads the last result");

    for (batch, line) in [
        ("{\"id\":\"c\",\"text\":\"3\"}\n{\"id\":\"d\",\"txt\":\"4\"}\n", "line 2"),
        ("{\"id\":\"c\",\"text\":\"3\"}\n\n{\"id\":\"d\",\"text\":\n", "line 3"),
        ("{\"id\":\"a\",\"delete\":true}\n{nonsense}", "line 2"),
        ("{\"id\":\"a/b\",\"text\":\"3\"}\n", "line 1"),
    ] {
        assert_eq!(errno(ingest(&mount, "main", batch)), libc::EINVAL, "{batch}");
        let message = mount.refusal("main")["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(line), "{message}");
        assert_eq!(
            (names(mount.at("main/vectors")), &mount.status("main")["head"]),
            (vec!["a.json".into(), "b.json".into()], &done["head"])
        );
    }
    let done =
        ingest(&mount, "main", "{\"text\":\"no id\"}\n{\"id\":\"a\",\"text\":\"5\"}\n{\"id\":\"a\",\"delete\":true}")
            .unwrap();
    assert_eq!((&done["put"], &done["deleted"]), (&1.into(), &1.into()), "the last line of an id counts");
    assert_eq!(mount.sh("echo '{\"id\":\"e\",\"text\":\"6\"}' > main/ingest; jq .put main/ingest").trim(), "1");
}

#[test]
fn an_import_into_a_mount_names_the_line_of_the_file() {
    let (mount, folder) = (Mounted::new(), tempfile::tempdir().unwrap());
    let (main, file) = (mount.at("main").display().to_string(), folder.path().join("v.jsonl").display().to_string());
    fs::write(&file, "\n{\"id\":\"a\",\"vector\":[1,2]}\n\n{\"id\":\"b\",\"vector\":[1,2,3]}\n").unwrap();
    let (code, _, error) = run(&["import", &main, &file]);
    assert!(code == 1 && error.contains(&format!("line 4 of {file}: the vector has 3 numbers")), "{error}");
}

#[test]
fn several_writers_ingest_at_once() {
    let mount = Mounted::new();
    thread::scope(|scope| {
        for writer in 0..4 {
            let mount = &mount;
            scope.spawn(move || {
                for batch in 0..20 {
                    let line = |n| format!("{{\"id\":\"{writer}-{batch}-{n}\",\"text\":\"x\"}}\n");
                    let done = ingest(mount, "main", &(0..10).map(line).collect::<String>()).unwrap();
                    assert_eq!(done["put"], 10);
                }
            });
        }
    });
    assert_eq!(mount.status("main")["records"], 800);
    let commits = lines(&read(mount.at("main/lineage"))).iter().filter(|entry| entry["op"] == "commit").count();
    assert_eq!(commits, 80);
}

#[test]
fn twenty_thousand_records_are_listed_each_once() {
    let mount = Mounted::new();
    let line = |n: usize| format!("{{\"id\":\"r{n:05}\",\"vector\":[1,{n},2],\"text\":\"number {n}\"}}\n");
    ingest(&mount, "main", &(0..20_500).map(line).collect::<String>()).unwrap();
    let all: Vec<String> = (0..20_500).map(|n| format!("r{n:05}.json")).collect();
    assert_eq!(names(mount.at("main/vectors")), all);

    fs::create_dir(mount.at("main/branches/x")).unwrap();
    assert_eq!(names(mount.at("main/branches/x/vectors")).len(), all.len());
    let listing = fs::read_dir(mount.at("main/vectors")).unwrap();
    let mut seen: Vec<String> = Vec::new();
    for entry in listing {
        seen.push(entry.unwrap().file_name().into_string().unwrap());
        if seen.len().is_multiple_of(100) {
            fs::remove_file(mount.at("main/vectors").join(&seen[seen.len() - 1])).unwrap();
        }
    }
    seen.sort();
    assert_eq!(seen, all, "removing while listing hides nothing");
    assert_eq!(names(mount.at("main/vectors")).len(), 20_295);
    let length = 128 + 20_295 * 3 * 4;
    assert_eq!(fs::read(mount.at("main/export/vectors.npy")).unwrap().len(), length);
    assert_eq!(fs::metadata(mount.at("main/export/vectors.npy")).unwrap().len(), length as u64);
}

#[test]
fn settings_are_one_value_a_file() {
    let mount = Mounted::new();
    let set = |name: &str, value: &str| save(mount.at(&format!("main/config/{name}")), value);
    set("agent", "planner\n").unwrap();
    set("session", "s-1").unwrap();
    set("dim", "2\n").unwrap();
    save(mount.at("main/vectors/a.json"), r#"{"vector":[1,0]}"#).unwrap();
    let record = json(mount.at("main/vectors/a.json"));
    assert_eq!((&record["agent"], &record["session"]), (&"planner".into(), &"s-1".into()));
    assert_eq!(errno(set("dim", "3\n")), libc::EBUSY);
    assert_eq!(errno(set("metric", "l2\n")), libc::EBUSY);
    assert_eq!(errno(set("strategy", "coin-toss\n")), libc::EINVAL);
    assert_eq!(errno(set("agent", &"x".repeat(201))), libc::EINVAL);
    assert_eq!(
        (read(mount.at("main/config/strategy")), read(mount.at("main/config/agent"))),
        ("newest-wins\n".into(), "planner\n".into())
    );
    assert_eq!(errno(File::create(mount.at("main/config/colour"))), libc::EPERM);
}
