//! Libraries in other languages: programs of `peers/` that answer a breadth with a pass.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::K;
use super::corpus::Corpus;
use super::engine::{Engine, Found, scored};
use crate::store::DIM;

/// All engines there are, between commas.
pub const ALL: &str = "hnsw_rs,hnswlib,faiss,faiss-sq8,faiss-sq8-refined,usearch,usearch-f16,agenticow";

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/bench/peers")
}

/// Installs what is not there yet; returns a line for each that can't be.
pub fn install(folder: &Path) -> Vec<String> {
    match Command::new(programs().join("setup.sh")).arg(folder).stderr(Stdio::null()).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect(),
        Err(error) => vec![format!("no library could be installed: {error}")],
    }
}

/// A running program.
pub struct Peer<'a> {
    name: String,
    corpus: &'a Corpus,
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub build_cpu_s: f64,
    pub version: String,
}

impl<'a> Peer<'a> {
    /// Starts it, and waits until it has its index; an error when its library is not there.
    pub fn new(name: &str, corpus: &'a Corpus, bench: &Path, kept: &Path) -> Result<Peer<'a>, String> {
        let mut command = if name == "agenticow" {
            let mut command = Command::new("node");
            command.arg(bench.join("node/agenticow.mjs"));
            command
        } else {
            let mut command = Command::new(bench.join("venv/bin/python"));
            command.arg(programs().join("peer.py"));
            command
        };
        command.arg(name).args([kept, &corpus.rows_file, &corpus.questions_file]).arg(DIM.to_string());
        let log = std::fs::File::create(kept.join(format!("{name}.log"))).unwrap();
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut process = started.map_err(|error| format!("{name} does not start: {error}"))?;
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        let (build_cpu_s, version) = (0.0, String::new());
        let mut peer = Peer { name: name.to_owned(), corpus, process, input, output, build_cpu_s, version };
        let told = peer.line().ok_or_else(|| format!("{name} ended; {name}.log says why"))?;
        peer.build_cpu_s = told["build_cpu_s"].as_f64().unwrap_or(0.0);
        peer.version = told["version"].as_str().unwrap_or_default().to_owned();
        Ok(peer)
    }

    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}

impl Engine for Peer<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn pass(&mut self, ef: Option<usize>) -> (f64, Vec<Found>) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{}", ef.unwrap_or(64)).unwrap();
        input.flush().unwrap();
        let told = self.line().unwrap();
        let ids: Vec<i64> = serde_json::from_value(told["ids"].clone()).unwrap();
        // A hit that is missing has the number -1.
        let rows = |ids: &[i64]| ids.iter().filter_map(|id| usize::try_from(*id).ok()).collect();
        (told["us"].as_f64().unwrap(), scored(self.corpus, &ids.chunks_exact(K).map(rows).collect::<Vec<_>>()))
    }
}

impl Drop for Peer<'_> {
    fn drop(&mut self) {
        // It ends with its input.
        self.input = None;
        let _ = self.process.wait();
    }
}
