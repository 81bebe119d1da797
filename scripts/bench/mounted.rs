//! What a user of the mount sees: the release binary, mounted.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::store::{DIM, fill, open, vector};
use crate::{cpu_seconds, micros, p50, resident, row};

/// A mounted store.
pub struct Mount {
    process: Child,
    pub path: PathBuf,
    /// Seconds until the mount answered.
    took: f64,
}

fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_engramfs"))
}

/// Starts a server; returns with the seconds until it answered.
fn serve(store: &Path, path: &Path) -> (Child, f64) {
    let start = Instant::now();
    let process = Command::new(binary()).args(["mount", "--foreground"]).arg(store).arg(path).spawn().unwrap();
    while !path.join("main/status").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "the mount does not answer");
        std::thread::sleep(Duration::from_millis(1));
    }
    (process, start.elapsed().as_secs_f64())
}

impl Mount {
    pub fn new(store: &Path, path: &Path) -> Mount {
        let (process, took) = serve(store, path);
        Mount { process, path: path.to_owned(), took }
    }

    /// Kills the server and mounts again over the dead mount.
    fn kill_and_mount(&mut self, store: &Path) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        (self.process, self.took) = serve(store, &self.path);
    }

    fn resident(&self) -> u64 {
        resident(self.process.id())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new(binary()).arg("umount").arg(&self.path).status();
        let _ = self.process.wait();
    }
}

pub fn run(large: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mnt = folder.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    for rows in [20_000, large] {
        let store = folder.path().join(format!("store-{rows}"));
        let memory = open(&store);
        fill(&memory, rows);
        memory.close().unwrap();
        drop(memory);
        let mut mount = Mount::new(&store, &mnt);
        let how = format!("{rows} records");
        row(
            "mount, from start of the process to the first answer",
            "< 100 ms",
            &format!("{:.0} ms", mount.took * 1e3),
            &how,
        );
        row(
            "resident memory after mounting",
            "grows with edits",
            &format!("{:.1} MB", mount.resident() as f64 / 1e6),
            &how,
        );
        forks(&mount, &how);
        queries(&mount, &how);
        mount.kill_and_mount(&store);
        row(
            "mount after kill -9, the dead mount still there",
            "< 1 s",
            &format!("{:.0} ms", mount.took * 1e3),
            &format!("{how}, 500 forks not sealed yet"),
        );
    }
    ingest(folder.path(), &mnt);
    import(folder.path());
    branches(folder.path(), &mnt);
}

fn forks(mount: &Mount, how: &str) {
    let branches = mount.path.join("main/branches");
    let fork = |n: usize| micros(|| fs::create_dir(branches.join(format!("fork{n:03}"))).unwrap());
    let p50 = p50((0..500).map(fork).collect());
    row("fork by mkdir, acknowledged, p50", "< 100 µs", &format!("{p50:.1} µs"), how);
}

fn ask(file: &mut fs::File, query: &str) -> usize {
    use std::io::{Seek, SeekFrom};
    file.write_all(query.as_bytes()).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut answer = String::new();
    file.read_to_string(&mut answer).unwrap();
    answer.lines().count()
}

fn queries(mount: &Mount, how: &str) {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(mount.path.join("main/query")).unwrap();
    let mut seed = 5;
    let query_once = |_| {
        let line = format!("{{\"vector\":{:?},\"k\":10}}\n", vector(&mut seed));
        micros(|| assert_eq!(ask(&mut file, &line), 11))
    };
    let times: Vec<f64> = (0..20).map(query_once).collect();
    row(
        "an exact query through the mount, p50",
        "–",
        &format!("{:.2} ms", p50(times) / 1e3),
        &format!("{how}, random vectors: the bounds rule out little"),
    );
}

fn ingest(folder: &Path, mnt: &Path) {
    let mount = Mount::new(&folder.join("store-ingest"), mnt);
    let rows = 20_000;
    let mut lines = String::new();
    let mut seed = 1;
    for n in 0..rows {
        lines.push_str(&format!(
            "{{\"id\":\"r{n:06}\",\"vector\":{:?},\"text\":\"a sentence of an agent number {n}\"}}\n",
            vector(&mut seed)
        ));
    }
    let before = process_cpu(mount.process.id());
    let start = Instant::now();
    fs::write(mnt.join("main/ingest"), &lines).unwrap();
    let wall = start.elapsed().as_secs_f64();
    let cpu = process_cpu(mount.process.id()) - before;
    let measured = format!("{:.0} records/s; {:.0} records a CPU s", f64::from(rows) / wall, f64::from(rows) / cpu);
    row(
        "ingest of JSON Lines through the mount",
        "measured",
        &measured,
        &format!("{rows} records, {} MB", lines.len() / 1_000_000),
    );
    let parse = micros(|| {
        for line in lines.lines() {
            engramfs::memory::RecordEdit::parse_line(line.as_bytes(), 1, &|| "x".into()).map(drop).unwrap();
        }
    });
    row("of it parsing JSON", "–", &format!("{:.0} %", parse / 1e6 / cpu * 100.0), "the same lines parsed alone");
}

fn process_cpu(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (11..13).map(|at| fields[at].parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn import(folder: &Path) {
    let rows = 200_000;
    let npy = folder.join("rows.npy");
    let mut out = std::io::BufWriter::new(fs::File::create(&npy).unwrap());
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {DIM}), }}");
    out.write_all(b"\x93NUMPY\x01\x00\x76\x00").unwrap();
    out.write_all(format!("{header:<117}\n").as_bytes()).unwrap();
    let mut seed = 1;
    for _ in 0..rows {
        for number in vector(&mut seed) {
            out.write_all(&number.to_le_bytes()).unwrap();
        }
    }
    drop(out);
    let target = format!("{}:main", folder.join("store-npy").display());
    engramfs::memory::Memory::open(
        &folder.join("store-npy"),
        engramfs::memory::OpenMode::Create,
        "bench",
        engramfs::memory::Environment::real(crate::store::who()),
    )
    .unwrap()
    .close()
    .unwrap();
    let (before, start) = (cpu_seconds(), Instant::now());
    assert!(Command::new(binary()).args(["import", &target]).arg(&npy).status().unwrap().success());
    let (cpu, wall) = (cpu_seconds() - before, start.elapsed().as_secs_f64());
    let measured = format!("{:.0} records a CPU s; {:.0} records/s", rows as f64 / cpu, rows as f64 / wall);
    row("import of .npy", "≥ 200,000 records a CPU s", &measured, &format!("{rows} records, whole process"));
}

/// Resident memory of 15 branches, each asked once, against one.
fn branches(folder: &Path, mnt: &Path) {
    let store = folder.join("store-npy");
    let mut measured = Vec::new();
    for count in [1, 15] {
        let mount = Mount::new(&store, mnt);
        for n in 0..count {
            let branch = mnt.join(format!("main/branches/b{count}-{n}"));
            fs::create_dir(&branch).unwrap();
            let mut file = fs::OpenOptions::new().read(true).write(true).open(branch.join("query")).unwrap();
            let line = format!("{{\"vector\":{:?}}}\n", vector(&mut 7));
            assert_eq!(ask(&mut file, &line), 11);
        }
        measured.push(mount.resident() as f64 / 1e6);
    }
    let ratio = measured[1] / measured[0];
    let how = format!("200,000 records; {:.1} MB and {:.1} MB beside page cache", measured[0], measured[1]);
    row("resident memory of 15 branches, each asked once, against one", "≤ 1.2 ×", &format!("{ratio:.2} ×"), &how);
}
