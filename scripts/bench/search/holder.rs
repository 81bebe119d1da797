//! The store that answers: filled as `import` fills it, with its graphs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use engramfs::memory::{BranchId, Memory, View};
use tempfile::TempDir;

use super::corpus::Corpus;
use crate::row;
use crate::store::{open, who};

/// Rows of one commit: as many as `engramfs import` takes.
const BATCH: usize = 65_536;

/// An open store with a corpus on `main`.
pub struct Holder {
    pub memory: Arc<Memory>,
    pub main: BranchId,
    /// CPU seconds of the thread that builds graphs.
    pub graph_cpu_s: f64,
    folder: TempDir,
}

impl Holder {
    /// Fills a store, and waits until nothing works in the background any longer.
    pub fn build(corpus: &Corpus, bench: &Path) -> Holder {
        let folder = TempDir::new_in(bench).unwrap();
        let start = Instant::now();
        let mut holder = Holder::just_filled(corpus, corpus.rows(), folder);
        let filled = start.elapsed().as_secs_f64();
        holder.settle();
        holder.graph_cpu_s = indexer_cpu_s();
        let measured = format!("{:.0} CPU s", holder.graph_cpu_s);
        let how = format!(
            "{}; {:.1} s to import, {:.0} s until graphs are there, one core",
            corpus.title(),
            filled,
            start.elapsed().as_secs_f64() - filled
        );
        row("building the search graph", "≤ 100 CPU s (118,053 rows)", &measured, &how);
        holder
    }

    /// Fills a store in a folder with the first rows of a corpus, and waits for nothing.
    pub fn just_filled(corpus: &Corpus, rows: usize, folder: TempDir) -> Holder {
        let memory = open(&folder.path().join("store"));
        let main = memory.root("main").unwrap();
        for start in (0..rows).step_by(batch()) {
            let edits = (start..rows.min(start + batch())).map(|row| corpus.put(row)).collect();
            memory.commit(&who(), main, edits).unwrap();
        }
        Holder { memory, main, graph_cpu_s: 0.0, folder }
    }

    pub fn view(&self) -> View {
        View::Branch(self.main)
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// An empty folder to mount at.
    pub fn mount_point(&self) -> PathBuf {
        let path = self.folder.path().join("mnt");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Seals, and waits until every graph is there.
    pub fn settle(&self) {
        self.memory.seal().unwrap();
        self.memory.wait_until_indexed();
    }

    /// Closes the store; returns what opens it again.
    pub fn close(self) -> Closed {
        self.memory.close().unwrap();
        Closed { graph_cpu_s: self.graph_cpu_s, folder: self.folder }
    }
}

/// A closed store.
pub struct Closed {
    graph_cpu_s: f64,
    folder: TempDir,
}

impl Closed {
    pub fn open(self) -> Holder {
        let memory = open(&self.folder.path().join("store"));
        let main = memory.root("main").unwrap();
        Holder { memory, main, graph_cpu_s: self.graph_cpu_s, folder: self.folder }
    }
}

/// Rows of one commit: [`BATCH`], or `ENGRAMFS_BENCH_BATCH`.
fn batch() -> usize {
    std::env::var("ENGRAMFS_BENCH_BATCH").ok().and_then(|text| text.parse().ok()).unwrap_or(BATCH)
}

/// CPU seconds of those threads of this process that build graphs.
fn indexer_cpu_s() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let seconds = |task: PathBuf| {
        let stat = std::fs::read_to_string(task.join("stat")).ok()?;
        let (name, fields) = stat.rsplit_once(')')?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<f64>().unwrap()).sum::<f64>();
        name.ends_with("(indexer").then_some(ticks / 100.0)
    };
    tasks.filter_map(seconds).fold(0.0, |sum, more| sum + more)
}
