//! Search side by side with other libraries, in one run: `scripts/bench.sh search [--million] [--only=PART,…]`.
//!
//! All real rows, or with `--million` that many, the real ones among them.
//! One core, one thread, the same rows, the same queries, k = 10. Engines take turns, and their CPU
//! time is what counts: what else the machine does falls on all of them alike. A hit counts when it stands in the exact answer
//! or is as near as that answer's last: among equal sentences no order is right.

mod corpus;
mod curve;
mod edited;
mod engine;
mod filtered;
mod holder;
mod opened;
mod peer;
mod plot;
mod versus;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::row;
use corpus::Corpus;

/// How many hits are asked for.
const K: usize = 10;
/// The recall at which engines are compared.
const RECALL: f64 = 0.99;

pub fn run() {
    let Some(data) = std::env::var_os("ENGRAMFS_TEST_DATA").map(PathBuf::from) else {
        row("search on real embeddings", "–", "skipped", "ENGRAMFS_TEST_DATA names no folder");
        return;
    };
    let bench = Folder::of_run();
    pin_to(&core());
    let notes = peer::install(&bench.path);
    let real = Corpus::real(&data, &bench.path);
    let mut sections = if std::env::args().any(|word| word == "--million") {
        let million = real.grown(&bench.path);
        drop(real);
        let peers = chosen_peers("ENGRAMFS_BENCH_MILLION_PEERS", "hnsw_rs,hnswlib,faiss-sq8");
        figures(&million, &bench.path, &peers)
    } else {
        figures(&real, &bench.path, &chosen_peers("ENGRAMFS_BENCH_PEERS", peer::ALL))
    };
    pin_to(&all_cores());
    sections.push_str(&notes.iter().map(|note| format!("\nNot compared: {note}\n")).collect::<String>());
    println!("{sections}");
}

/// Measures the figures of one corpus; returns the table of its engines.
fn figures(corpus: &Corpus, bench: &Path, peers: &[String]) -> String {
    let mut table = String::new();
    let mut holder = holder::Holder::build(corpus, bench);
    if wants("versus") {
        table = versus::run(corpus, &holder, bench, peers);
    }
    if wants("filters") {
        filtered::run(corpus, &holder);
    }
    if wants("words") {
        filtered::words(corpus, &holder);
    }
    if wants("opening") {
        holder = opened::run(corpus, holder);
    }
    if wants("branches") {
        edited::branches(corpus, &holder, bench);
    }
    if wants("depth") {
        edited::depth(corpus, &holder);
    }
    if wants("ingested") {
        opened::just_ingested(corpus, bench);
    }
    table
}

/// Whether a part is measured: all are, unless `--only=` names some.
fn wants(part: &str) -> bool {
    let only = std::env::args().find_map(|word| word.strip_prefix("--only=").map(str::to_owned));
    only.is_none_or(|only| only.split(',').any(|word| word == part))
}

/// The engines to compare with: a list between commas, or else `usual`.
fn chosen_peers(variable: &str, usual: &str) -> Vec<String> {
    let list = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The folder of indexes and rows: `ENGRAMFS_BENCH_DIR`, which stays for the next run, or a temporary one.
struct Folder {
    path: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl Folder {
    fn of_run() -> Folder {
        if let Some(path) = std::env::var_os("ENGRAMFS_BENCH_DIR").map(PathBuf::from) {
            std::fs::create_dir_all(&path).unwrap();
            return Folder { path: path.canonicalize().unwrap(), _temporary: None };
        }
        let temporary = tempfile::tempdir().unwrap();
        Folder { path: temporary.path().to_owned(), _temporary: Some(temporary) }
    }
}

/// All cores; `taskset` passes over those that are not there.
fn all_cores() -> String {
    "0-1023".to_owned()
}

/// The core that everything runs on: `ENGRAMFS_BENCH_CORE`, or the last one; asked for before anything is bound.
fn core() -> String {
    static CORE: OnceLock<String> = OnceLock::new();
    let last = || std::thread::available_parallelism().map_or(0, |cores| usize::from(cores) - 1).to_string();
    CORE.get_or_init(|| std::env::var("ENGRAMFS_BENCH_CORE").unwrap_or_else(|_| last())).clone()
}

/// Binds every thread of this process, and all that it starts from now on, to some cores.
fn pin_to(cores: &str) {
    let pid = std::process::id().to_string();
    let bound = Command::new("taskset").args(["-acp", cores, &pid]).output();
    if !bound.is_ok_and(|output| output.status.success()) {
        row("all on one core", "–", "no", "taskset failed");
    }
}

/// Writes a plot: into `docs/` at full size, else into the folder of the run.
fn save_plot(corpus: &Corpus, bench: &Path, name: &str, svg: &str) -> String {
    let folder = if corpus.is_full() { Path::new(env!("CARGO_MANIFEST_DIR")).join("docs") } else { bench.to_owned() };
    let file = format!("search-{name}{}.svg", corpus.rows());
    std::fs::write(folder.join(&file), svg).unwrap();
    file
}
