//! What a long history costs those who read it, and those who don't: the figures at many entries beside those at few.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use engramfs::memory::{
    Actor, BranchId, Environment, Memory, OpenMode, RecordEdit, RecordInput, Setting, ShowTarget, Viewer,
};

use crate::mount::{Mount, binary};
use crate::probe::Times;
use crate::row;

const READERS: usize = 15;
const FEW: u64 = 1_000;
/// Entries that are not sealed, to see what each takes.
const LOOSE: u64 = 10_000;

pub fn run(quick: bool) {
    let many = if quick { 50_000 } else { 1_000_000 };
    unsealed();
    let (few, few_bytes) = mounted(FEW);
    let (woken, many_bytes) = mounted(many);
    let (few, woken) = (few.p50() as f64, woken.p50() as f64);
    row(
        &format!("wake-up of {READERS} readers of events.jsonl at {many} entries"),
        "p50 ≤ 1.5 × that at 1,000",
        &format!("{:.2} ms, {:.2} ms at {FEW}: {:.2} ×", woken / 1e3, few / 1e3, woken / few),
        woken <= 1.5 * few,
    );
    let each = (many_bytes as f64 - few_bytes as f64) / (many - FEW) as f64;
    row(
        "memory of the server for each sealed entry",
        "0",
        &format!("{each:.2} B; in all {:.1} MB, {:.1} MB at {FEW} entries", mega(many_bytes), mega(few_bytes)),
        each < 1.0 || many_bytes < few_bytes + (1 << 20),
    );
}

fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn who() -> Actor {
    Actor { uid: 0, gid: 0, name: "root".into() }
}

fn open(store: &Path, mode: OpenMode) -> Arc<Memory> {
    Memory::open(store, mode, "attack", Environment::real(who())).unwrap()
}

fn commit(memory: &Memory, branch: BranchId, text: u64) {
    let input = RecordInput { vector: None, text: Some(text.to_string().into()), metadata: "{}".into() };
    memory.commit(&who(), branch, vec![RecordEdit::Put { id: "note".into(), input }]).unwrap();
}

/// Makes a store in which main and fifteen branches have committed in turns.
fn make(store: &Path, entries: u64) {
    let memory = open(store, OpenMode::Create);
    let main = memory.root("main").unwrap();
    let mut branches: Vec<BranchId> =
        (0..READERS).map(|n| memory.fork(&who(), main, &format!("agent-{n}"), None).unwrap()).collect();
    branches.push(main);
    for number in memory.last_seq()..entries {
        commit(&memory, branches[number as usize % branches.len()], number);
    }
    memory.seal().unwrap();
    memory.close().unwrap();
}

/// Returns the bytes of a process that no file backs.
fn anonymous(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

fn unsealed() {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path(), OpenMode::Create);
    let main = memory.root("main").unwrap();
    let set = |number: u64| {
        memory.set(&who(), main, Setting::Ttl, if number.is_multiple_of(2) { "1d" } else { "2d" }).unwrap()
    };
    (0..100).for_each(set);
    let before = anonymous("self");
    (0..LOOSE).for_each(set);
    let each = anonymous("self").saturating_sub(before) as f64 / LOOSE as f64;
    row("memory for each entry that is not sealed", "< 200 B", &format!("{each:.0} B, {LOOSE} of them"), each < 200.0);
}

/// Measures a mount of so many entries; returns how long readers took to wake, and the server's memory.
fn mounted(entries: u64) -> (Times, u64) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let begun = Instant::now();
    make(&store, entries);
    let made = begun.elapsed();
    if entries > FEW {
        let each = format!("{:.1} µs each, with their seals", made.as_secs_f64() * 1e6 / entries as f64);
        row(&format!("{entries} commits of one small record, in process"), "–", &each, true);
        in_process(&store, entries);
    }
    let begun = Instant::now();
    let mount = Mount::over(store.to_owned(), &[]);
    let opened = begun.elapsed();
    let branch = mount.at("main/branches/agent-3");
    let took = |program: &str, words: &[&str]| {
        let one = |_| {
            let begun = Instant::now();
            let mut command = Command::new(program);
            command.args(words).current_dir(&branch).stdout(Stdio::null());
            assert!(command.status().unwrap().success());
            begun.elapsed().as_micros() as u64
        };
        Times((0..40).map(one).collect()).p50()
    };
    if entries > FEW {
        for (program, words, asks) in
            [("tail", &["-n", "1", "lineage"][..], last_line as fn(&Path) -> u64), ("ls", &["-l"][..], look)]
        {
            let asked = Times((0..40).map(|_| asks(&branch)).collect()).p50();
            let measured =
                format!("p50 {:.2} ms; {:.2} ms with the program's start", milli(asked), milli(took(program, words)));
            let what = format!("{program} {} of a branch at {entries} entries", words.join(" "));
            row(&what, "< 5 ms", &measured, asked < 5_000);
        }
        row("mount of the same", "–", &format!("{:.0} ms", opened.as_secs_f64() * 1e3), true);
    }
    let woken = wake(&branch);
    let bytes = anonymous(&mount.server_id().to_string());
    drop(mount);
    if entries > FEW {
        verify(&store, entries);
    }
    (woken, bytes)
}

/// Reads what `tail -n 1 lineage` reads.
fn last_line(branch: &Path) -> u64 {
    let begun = Instant::now();
    let file = File::open(branch.join("lineage")).unwrap();
    let length = file.metadata().unwrap().len();
    let start = length.saturating_sub(8 << 10);
    let mut bytes = vec![0; (length - start) as usize];
    file.read_exact_at(&mut bytes, start).unwrap();
    assert!(bytes.ends_with(b"}\n"));
    begun.elapsed().as_micros() as u64
}

fn milli(micros: u64) -> f64 {
    micros as f64 / 1e3
}

/// Asks for what `ls -l` asks for.
fn look(branch: &Path) -> u64 {
    let begun = Instant::now();
    for entry in fs::read_dir(branch).unwrap() {
        fs::symlink_metadata(entry.unwrap().path()).unwrap();
    }
    begun.elapsed().as_micros() as u64
}

/// Finds entries by number and by hash, in a store that was just opened.
fn in_process(store: &Path, entries: u64) {
    let memory = open(store, OpenMode::ReadOnly);
    let main = memory.root("main").unwrap();
    let mut seed = 7u64;
    let mut chance = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % entries + 1
    };
    let (mut by_number, mut by_hash) = (Times::default(), Times::default());
    for _ in 0..1_000 {
        let begun = Instant::now();
        let shown = memory.show(main, ShowTarget::Entry(chance()), Viewer::UNRESTRICTED).unwrap();
        by_number.0.push(begun.elapsed().as_micros() as u64);
        let entry: serde_json::Value = serde_json::from_str(&shown.line).unwrap();
        let hash = entry["entry"].as_str().unwrap().parse().unwrap();
        let begun = Instant::now();
        assert_eq!(memory.show(main, ShowTarget::Hash(hash), Viewer::UNRESTRICTED).unwrap().line, shown.line);
        by_hash.0.push(begun.elapsed().as_micros() as u64);
    }
    for (what, times) in [("number", by_number), ("hash", by_hash)] {
        let measured = format!("p50 {} µs, p99 {} µs, worst {} µs", times.p50(), times.p99(), times.worst());
        row(&format!("an entry by its {what} out of {entries}"), "< 1 ms", &measured, times.p99() < 1_000);
    }
}

fn verify(store: &Path, entries: u64) {
    let begun = Instant::now();
    assert!(Command::new(binary()).arg("verify").arg(store).stdout(Stdio::null()).status().unwrap().success());
    let each = begun.elapsed().as_secs_f64() * 1e6 / entries as f64;
    row("verify", "≤ 100 µs an entry", &format!("{each:.0} µs an entry of {entries}"), each <= 100.0);
}

/// Lets readers wait for events of a branch, commits, and returns how long it took until the last one had read its line.
fn wake(branch: &Path) -> Times {
    let (told, ready) = channel();
    let gates: Vec<Sender<()>> = (0..READERS)
        .map(|_| {
            let (gate, go) = channel();
            let (file, told) = (branch.join("events.jsonl"), told.clone());
            std::thread::spawn(move || reader(file, &go, &told));
            gate
        })
        .collect();
    let all = || (0..READERS).map(|_| ready.recv_timeout(Duration::from_secs(20)).unwrap()).max().unwrap();
    all();
    let mut times = Times::default();
    for number in 0..220u64 {
        gates.iter().for_each(|gate| gate.send(()).unwrap());
        std::thread::sleep(Duration::from_millis(3));
        let begun = Instant::now();
        fs::write(branch.join("vectors/wake.json"), format!("{{\"text\":\"{number}\"}}")).unwrap();
        let last = all();
        if number >= 20 {
            times.0.push(last.duration_since(begun).as_micros() as u64);
        }
    }
    times
}

/// Waits for a line behind the end, again and again.
fn reader(path: PathBuf, go: &Receiver<()>, told: &Sender<Instant>) {
    use std::io::{Seek, SeekFrom};
    let mut file = File::open(path).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    // What is before the end counts as seen.
    told.send(Instant::now()).unwrap();
    let mut buffer = vec![0; 64 << 10];
    while go.recv().is_ok() {
        let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd is passed, for the time of the call.
        let woken = unsafe { libc::poll(&raw mut poll, 1, 20_000) };
        assert_eq!(woken, 1, "nobody woke the reader");
        let taken = file.read(&mut buffer).unwrap();
        assert!(buffer[..taken].ends_with(b"}\n"));
        told.send(Instant::now()).unwrap();
    }
}
