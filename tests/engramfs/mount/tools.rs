//! Editors, archivers and copiers, which know nothing of engramfs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Mounted, command, names, read, save, succeed};

/// Twelve records in main.
fn filled() -> Mounted {
    let mount = Mounted::new();
    let line = |n: usize| {
        format!("{{\"id\":\"r{n:02}\",\"vector\":[1,{n}],\"text\":\"black tea {n}\",\"metadata\":{{\"n\":{n}}}}}\n")
    };
    save(mount.at("main/ingest"), &(0..12).map(line).collect::<String>()).unwrap();
    mount
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let inside = entries
        .flat_map(|entry| if entry.file_type().unwrap().is_dir() { files(&entry.path()) } else { vec![entry.path()] });
    inside.collect()
}

#[test]
fn stat_tells_the_exact_size_of_all_that_is_not_worked_out_for_its_reader() {
    let mount = filled();
    fs::create_dir(mount.at("main/checkpoints/v1")).unwrap();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    mount.put("main/branches/x/vectors/r00.json", "changed");
    mount.put("main/vectors/r00.json", "changed too");
    save(mount.at("main/vectors/bad.json"), "[no record]").unwrap_err();
    let all = files(&mount.at("main"));
    assert!(all.len() > 100);
    for path in all {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (size, length) = (fs::metadata(&path).unwrap().len(), || fs::read(&path).unwrap().len() as u64);
        let shows_none =
            ["query", "ingest", "ctl", "diff", "conflicts", "branches.jsonl", "errors", "lease"].contains(&name);
        let expected = if shows_none { 0 } else { length() };
        assert_eq!(size, expected, "{}", path.display());
    }
}

#[test]
fn generated_files_can_be_mapped() {
    let mount = filled();
    let code = "import mmap
for name in ('README.md', 'status', 'lineage', 'vectors/r01.json', 'export/vectors.npy', 'export/records.jsonl'):
    with open('main/' + name, 'rb') as f:
        view = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        assert view[:] == f.read(), name
print('mapped')";
    assert_eq!(mount.python(code).trim(), "mapped");
}

#[test]
fn vim_saves_in_every_way_of_its_own() {
    let mount = filled();
    for (turn, how) in
        ["nobackup nowritebackup", "backup backupcopy=no", "backup backupcopy=yes", "writebackup backupcopy=auto"]
            .iter()
            .enumerate()
    {
        let (old, new) = (format!("tea{}", "!".repeat(turn)), format!("tea{}", "!".repeat(turn + 1)));
        let edit = format!("vim -es -u NONE -c 'set {how}' -c '%s/{old}/{new}/' -c wq main/vectors/r03.json");
        mount.sh(&edit);
        assert_eq!(mount.text("main/vectors/r03.json"), format!("black {new} 3"), "{how}");
        mount.sh("rm -f main/vectors/*~");
    }
    assert_eq!((names(mount.at("main/vectors")).len(), mount.status("main")["records"].as_u64()), (12, Some(12)));
}

#[test]
fn stream_editors_replace_records() {
    let mount = filled();
    mount.sh("sed -i 's/black/green/' main/vectors/r01.json; sed -i.bak~ 's/black/green/' main/vectors/r02.json; perl -pe 's/black/green/' main/vectors/r03.json > main/vectors/.r03; mv main/vectors/.r03 main/vectors/r03.json");
    for id in 1..=3 {
        assert_eq!(mount.text(&format!("main/vectors/r0{id}.json")), format!("green tea {id}"));
    }
    assert!(read(mount.at("main/vectors/r02.json.bak~")).contains("black"));
    // perl -i makes a file of eight random letters, which may as well be a name that somebody took for a record's.
    mount.sh("perl -i -pe 's/black/green/' main/vectors/r04.json 2>/dev/null || true");
    assert_eq!(
        (mount.refusal("main")["code"].as_str(), mount.text("main/vectors/r04.json").as_str()),
        (Some("not_a_record_name"), "black tea 4")
    );
    // A backup that is called like nothing in this folder is refused, and the record stays.
    mount.sh("! sed -i.bak 's/green/red/' main/vectors/r02.json; rm -f main/vectors/sed??????");
    assert_eq!(mount.refusal("main")["code"], "not_a_record_name");
    assert_eq!(mount.text("main/vectors/r02.json"), "green tea 2");
    mount.sh("rm main/vectors/*~; jq -c '.metadata.n = 70' main/vectors/r04.json > main/vectors/.new; mv main/vectors/.new main/vectors/r04.json");
    assert_eq!(super::json(mount.at("main/vectors/r04.json"))["metadata"]["n"], 70);
    assert_eq!(mount.sh("jq -s length main/vectors/*.json").trim(), "12");
    assert_eq!(names(mount.at("main/vectors")).len(), 12);
}

#[test]
fn writers_in_many_small_pieces_make_one_version() {
    let mount = filled();
    // Its vector is stale from here on, so that all documents are of one length.
    mount.sh("sed -i 's/black/green/' main/vectors/r05.json");
    let before = mount.status("main")["head"].clone();
    mount.sh("cp main/vectors/r05.json ../r05; sed -i 's/green/wight/' main/vectors/r05.json");
    mount.sh("dd if=../r05 of=main/vectors/r05.json bs=7 status=none");
    assert_eq!(mount.status("main")["head"], before);
    mount.sh("dd if=../r05 of=main/vectors/r05.json bs=50 conv=notrunc,fsync status=none; tee main/vectors/r05.json < ../r05 > ../r05.copy; cmp ../r05 ../r05.copy; install -m 600 ../r05 main/vectors/r05.json");
    assert_eq!(mount.status("main")["head"], before);
    let code = "import json, os, tempfile
with open('main/vectors/py.json', 'w') as f: json.dump({'text': 'ünïcode', 'metadata': {'list': [1, None]}}, f, indent=2)
fd, path = tempfile.mkstemp(dir='main/vectors')
os.write(fd, b'{\"text\":\"atomic\"}'); os.fsync(fd); os.close(fd); os.replace(path, 'main/vectors/at.json')
d = os.open('main/vectors', os.O_RDONLY); os.fsync(d); os.close(d)";
    mount.python(code);
    assert_eq!(
        (mount.text("main/vectors/py.json"), mount.text("main/vectors/at.json")),
        ("ünïcode".into(), "atomic".into())
    );
}

#[test]
fn copies_out_and_back_in_are_the_same_memory() {
    let mount = filled();
    let head = mount.status("main")["head"].clone();
    let out = mount.beside("out");
    fs::create_dir(&out).unwrap();
    mount.sh("cp -a main/vectors ../out/cp; tar cf ../out/all.tar -C main vectors status README.md export config; rsync -a main/vectors/ ../out/rsync/");
    mount.python("import shutil; shutil.copytree('main/vectors', '../out/shutil'); shutil.copy2('main/export/vectors.npy', '../out/v.npy')");
    let listed = succeed(command("tar", &["tvf"]).arg(out.join("all.tar")));
    assert!(
        listed.lines().count() > 12 + 3 && !listed.lines().any(|line| line.contains(" 0 ") && line.ends_with(".json"))
    );
    assert_eq!(fs::metadata(out.join("v.npy")).unwrap().size(), 128 + 12 * 2 * 4);
    for copy in ["cp", "rsync", "shutil"] {
        assert_eq!(
            fs::read(out.join(copy).join("r07.json")).unwrap(),
            fs::read(mount.at("main/vectors/r07.json")).unwrap(),
            "{copy}"
        );
    }
    for (name, script) in [
        ("cp", "cp -a ../out/cp/. back/vectors/"),
        ("tar", "tar xf ../out/all.tar -C back vectors"),
        ("rsync", "rsync -a ../out/rsync/ back/vectors/"),
        (
            "shutil",
            "python3 -c \"import shutil; shutil.copytree('../out/shutil', 'back/vectors', dirs_exist_ok=True)\"",
        ),
        ("ingest", "cat main/export/records.jsonl > back/ingest"),
    ] {
        fs::create_dir(mount.at("back")).unwrap();
        mount.sh(script);
        assert_eq!((names(mount.at("back/vectors")).len(), &mount.status("back")["head"]), (12, &head), "{name}");
        fs::remove_dir(mount.at("back")).unwrap();
    }
}

#[test]
fn searching_and_measuring_tools_read_the_whole_tree() {
    let mount = filled();
    assert_eq!(mount.sh("grep -rl 'tea 11' main/vectors").trim(), "main/vectors/r11.json");
    assert_eq!(mount.sh("find main -name '*.json' -size +0 | wc -l").trim(), "12");
    mount.sh("du -s main; df main; ls -laR main; head -c 10 main/README.md; tail -n 1 main/lineage; wc -c main/status");
}

#[test]
fn an_incremental_archive_of_an_unchanged_tree_copies_nothing_after_a_remount() {
    let mount = Mounted::new();
    mount.sh(
        "cd main/files; mkdir a b; for n in {1..40}; do echo $n > a/f$n; ln -s ../a/f$n b/l$n; done; ln a/f1 b/hard",
    );
    mount.sh("mkdir main/branches/gone main/branches/x main/branches/y; rmdir main/branches/gone");
    mount.sh("echo x > main/branches/x/files/a/own");
    let level = |mount: &Mounted, archive: &str| {
        let script = format!(
            "cd main; tar --create --no-check-device --listed-incremental=../../snar --file=../../{archive} files branches/*/files; tar tf ../../{archive}"
        );
        mount.sh(&script)
    };
    let numbers = |mount: &Mounted| mount.sh("find main/files main/branches/*/files -printf '%p %i %C@\\n' | sort");
    let (full, before) = (level(&mount, "full.tar"), numbers(&mount));
    assert!(full.contains("files/a/f7") && full.contains("branches/x/files/a/own"), "{full}");
    // Cleanly closed, and once more so that the numbers come out of the manifest.
    let mount = mount.again(&[]).again(&[]);
    let again = level(&mount, "again.tar");
    assert!(again.lines().all(|line| line.ends_with('/')), "{again}");
    assert_eq!(numbers(&mount), before);
}
