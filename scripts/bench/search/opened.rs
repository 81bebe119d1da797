//! Opening, residence in memory, the way through the mount, and queries right after a large import.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use engramfs::memory::{Query, View};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::corpus::Corpus;
use super::engine::{Engine, Ours};
use super::holder::{Closed, Holder};
use super::{all_cores, core, pin_to};
use crate::{micros, p50, resident, row};

/// Rows of the import after which the first query is asked.
const INGESTED: usize = 100_000;
/// How long a mount may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Branches that are held against one.
const BRANCHES: usize = 15;

/// Measures what needs the store closed, and opens it again.
pub fn run(corpus: &Corpus, holder: Holder) -> Holder {
    let lines = lines(corpus);
    let beside = Beside::measure(&holder, &lines);
    let (store, mnt) = (holder.store(), holder.mount_point());
    let closed = opening(corpus, holder.close());
    for (cores, place) in [(all_cores(), "the cores of the machine"), (core(), "one core for both sides")] {
        pin_to(&cores);
        let Some(mount) = Mount::new(&store, &mnt) else {
            row("through the mount", "–", "not measured", "the mount does not answer");
            continue;
        };
        through(corpus, &mount, &lines, &beside, place);
    }
    residence(corpus, &store, &mnt, &lines);
    closed.open()
}

/// The queries as lines.
fn lines(corpus: &Corpus) -> Vec<String> {
    corpus.queries.iter().map(|vector| json!({ "vector": vector }).to_string() + "\n").collect()
}

/// What a query costs beside the call in process: medians, in microseconds.
struct Beside {
    parse: f64,
    print: f64,
}

impl Beside {
    fn measure(holder: &Holder, lines: &[String]) -> Beside {
        let (mut parse, mut print) = (Vec::new(), Vec::new());
        for line in lines.iter().chain(lines) {
            let (mut query, mut printed) = (None, String::new());
            parse.push(micros(|| query = Some(Query::parse(line).unwrap())));
            let answer = holder.memory.query(&holder.view(), &query.unwrap()).unwrap();
            print.push(micros(|| printed = answer.to_lines(0)));
            assert!(!printed.is_empty());
        }
        // The first round warms up.
        let median = |times: Vec<f64>| p50(times[lines.len()..].to_vec());
        Beside { parse: median(parse), print: median(print) }
    }
}

/// Opens again and again: with a warm page cache, and with a cold one where that is allowed.
fn opening(corpus: &Corpus, mut closed: Closed) -> Closed {
    let mut warm = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let holder = closed.open();
        warm.push(start.elapsed().as_secs_f64() * 1e6);
        closed = holder.close();
    }
    let how = corpus.title();
    row("opening in process, warm page cache", "< 50 ms", &format!("{:.1} ms", p50(warm) / 1e3), &how);
    let _ = Command::new("sync").status();
    if std::fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
        row("the same, cold page cache", "–", "not measured", "needs root");
        return closed;
    }
    let start = Instant::now();
    let holder = closed.open();
    let cold = start.elapsed().as_secs_f64() * 1e3;
    let mut ours = Ours::new("", &holder.memory, holder.view(), corpus, None);
    let first = ours.first();
    let us = micros(|| drop(ours.pass(None))) / corpus.queries.len() as f64;
    let how = format!("{how}; first query {first:.0} µs, then {us:.0} µs a query over {}", corpus.queries.len());
    row("the same, cold page cache", "–", &format!("{cold:.1} ms"), &how);
    holder.close()
}

/// A mounted store.
struct Mount {
    process: Child,
    path: PathBuf,
}

impl Mount {
    /// Mounts; nothing where that takes longer than [`PATIENCE`].
    fn new(store: &Path, path: &Path) -> Option<Mount> {
        let start = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_engramfs"));
        let process = command.args(["mount", "--foreground"]).arg(store).arg(path).spawn().unwrap();
        let mut mount = Mount { process, path: path.to_owned() };
        while !path.join("main/status").exists() {
            if start.elapsed() > PATIENCE || mount.process.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(mount)
    }

    fn open(&self, branch: &str) -> File {
        OpenOptions::new().read(true).write(true).open(self.path.join(branch).join("query")).unwrap()
    }

    fn resident_mb(&self) -> f64 {
        resident(self.process.id()) as f64 / 1e6
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new(env!("CARGO_BIN_EXE_engramfs")).arg("umount").arg(&self.path).status();
        let _ = self.process.wait();
    }
}

/// Asks over an open handle; returns microseconds, and those of them that the header tells.
fn ask(file: &mut File, line: &str, buffer: &mut [u8]) -> (f64, f64) {
    let mut length = 0;
    let us = micros(|| {
        file.write_all(line.as_bytes()).unwrap();
        length = file.read_at(buffer, 0).unwrap();
    });
    let header = serde_json::Deserializer::from_slice(&buffer[..length]).into_iter::<Value>().next().unwrap().unwrap();
    (us, header["us"].as_f64().unwrap())
}

/// Writes an empty line and reads nothing: what two requests cost that ask for nothing.
fn ask_nothing(file: &mut File, buffer: &mut [u8]) -> f64 {
    micros(|| {
        file.write_all(b"\n").unwrap();
        assert_eq!(file.read_at(buffer, 0).unwrap(), 0);
    })
}

fn through(corpus: &Corpus, mount: &Mount, lines: &[String], beside: &Beside, place: &str) {
    let (mut file, mut buffer) = (mount.open("main"), vec![0; 1 << 16]);
    let nothing = p50((0..lines.len()).map(|_| ask_nothing(&mut file, &mut buffer)).collect());
    let times: Vec<(f64, f64)> = lines.iter().chain(lines).map(|line| ask(&mut file, line, &mut buffer)).collect();
    // The first round warms up.
    let times = &times[lines.len()..];
    let all = p50(times.iter().map(|(all, _)| *all).collect());
    let inside = p50(times.iter().map(|(_, inside)| *inside).collect());
    let rest = p50(times.iter().map(|(all, inside)| all - inside).collect()) - beside.parse - beside.print;
    let how = format!(
        "{}; {all:.0} µs = {inside:.0} in process, by the header + {:.0} parsing + {:.0} printing + the rest, of which \
         an empty write and an empty read are {nothing:.0}; medians, {place}",
        corpus.title(),
        beside.parse,
        beside.print
    );
    row(
        "through the mount, on an open handle, over the call in process",
        "≤ + 30 µs",
        &format!("+ {rest:.0} µs"),
        &how,
    );
}

/// Resident memory of one branch that was asked all queries, and of several.
fn residence(corpus: &Corpus, store: &Path, mnt: &Path, lines: &[String]) {
    let mut buffer = vec![0; 1 << 16];
    let mut measured = Vec::new();
    for count in [1, BRANCHES] {
        let Some(mount) = Mount::new(store, mnt) else { return };
        let fresh = mount.resident_mb();
        for number in 0..count {
            let branch = format!("main/branches/reader-{count}-{number}");
            std::fs::create_dir(mount.path.join(&branch)).unwrap();
            let mut file = mount.open(&branch);
            for line in lines {
                ask(&mut file, line, &mut buffer);
            }
        }
        measured.push((fresh, mount.resident_mb()));
    }
    let [(fresh, one), (_, many)] = measured[..] else { return };
    let how = format!("{}; {fresh:.1} MB before them", corpus.title());
    let what = format!("resident after {} questions, beside page cache", lines.len());
    row(&what, "< 50 MB", &format!("{one:.1} MB"), &how);
    let how = format!("{}; {many:.1} MB, each branch asked as many", corpus.title());
    row(&format!("{BRANCHES} branches against one"), "≤ 1.1 ×", &format!("{:.2} ×", many / one), &how);
}

/// The first query after a large import, with no graph there.
pub fn just_ingested(corpus: &Corpus, bench: &Path) {
    if !corpus.is_real() {
        return;
    }
    let rows = INGESTED.min(corpus.rows());
    let holder = Holder::just_filled(corpus, rows, TempDir::new_in(bench).unwrap());
    let mut exact = 0;
    let mut ask = |vector: &Vec<f32>| {
        let query = Query::parse(&json!({ "vector": vector }).to_string()).unwrap();
        micros(|| exact += usize::from(holder.memory.query(&View::Branch(holder.main), &query).unwrap().exact))
    };
    let times: Vec<f64> = corpus.queries.iter().take(100).map(&mut ask).collect();
    let (first, count) = (times[0], times.len());
    let how = format!("{exact} of {count} exact while the graph is being built; p50 {:.2} ms", p50(times) / 1e3);
    row(&format!("{rows} rows just ingested, first query"), "< 5 ms", &format!("{:.2} ms", first / 1e3), &how);
}
