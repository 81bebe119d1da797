//! Real embeddings, where the folder `ENGRAMFS_TEST_DATA` has them: answers held against brute force.
//!
//! The folder holds, for each of records, edits, more and questions, `NAME.jsonl.gz` (id, text, metadata) and
//! `NAME.f16.bin` (half floats, 384 to a row), and `truth.json` with the ids of each query's exact 10 nearest.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use engramfs::memory::{BranchId, Memory, Query, RecordEdit, RecordInput, View};
use serde_json::Value;

use crate::store::{DIM, open, who};
use crate::{micros, p50, row};

pub fn run() {
    let Some(data) = std::env::var_os("ENGRAMFS_TEST_DATA") else {
        println!("| answers on real embeddings | – | skipped | ENGRAMFS_TEST_DATA names no folder |");
        return;
    };
    let data = Path::new(&data);
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path());
    let main = memory.root("main").unwrap();
    memory.commit(&who(), main, edits(data, "records")).unwrap();
    check(&memory, main, data, "records", "main");
    let fork = memory.fork(&who(), main, "edits", None).unwrap();
    memory.commit(&who(), fork, edits(data, "edits")).unwrap();
    check(&memory, fork, data, "records_and_edits", "a fork with 1,000 edits");
    let fork = memory.fork(&who(), main, "more", None).unwrap();
    memory.commit(&who(), fork, edits(data, "more")).unwrap();
    check(&memory, fork, data, "records_and_more", "a fork with 98,053 edits");
    check(&memory, main, data, "records", "main again");
    let words = Query::parse("vector search library").unwrap();
    let times =
        (0..20).map(|_| micros(|| assert_eq!(memory.query(&View::Branch(fork), &words).unwrap().hits.len(), 10)));
    row(
        "BM25 over 118,053 texts, three words, p50",
        "–",
        &format!("{:.1} ms", p50(times.collect()) / 1e3),
        "in process",
    );
}

fn check(memory: &Memory, branch: BranchId, data: &Path, truth: &str, name: &str) {
    let view = View::Branch(branch);
    let records = memory.snapshot(&view).unwrap().count();
    let truth = &serde_json::from_slice::<Value>(&std::fs::read(data.join("truth.json")).unwrap()).unwrap()[truth];
    let (mut right, mut times) = (0, Vec::new());
    let queries = vectors(data, "questions");
    for (number, (line, vector)) in lines(data, "questions").iter().zip(&queries).enumerate() {
        let query = Query::parse(&serde_json::json!({ "vector": vector }).to_string()).unwrap();
        let mut found = Vec::new();
        times.push(micros(|| found = memory.query(&view, &query).unwrap().hits));
        let expected = truth.get(number).or_else(|| truth.get(line["id"].as_str().unwrap_or_default())).unwrap();
        let same = |(hit, id): (&engramfs::search::Hit, &Value)| Some(&*hit.id) == id.as_str();
        right += usize::from(found.len() == 10 && found.iter().zip(expected.as_array().unwrap()).all(same));
    }
    let measured = format!("{right} of {}, p50 {:.2} ms", queries.len(), p50(times) / 1e3);
    row(
        &format!("answers equal to brute force, in order: {name}"),
        "all",
        &measured,
        &format!("{records} real records, in process"),
    );
}

fn edits(data: &Path, name: &str) -> Vec<RecordEdit> {
    let make = |(line, vector): (Value, Vec<f32>)| {
        let mut input = RecordInput::from_vector(vector).unwrap();
        input.text = line["text"].as_str().map(Arc::from);
        let input = input.with_metadata(line["metadata"].as_object().cloned().unwrap_or_default());
        RecordEdit::Put { id: line["id"].as_str().unwrap().into(), input }
    };
    lines(data, name).into_iter().zip(vectors(data, name)).map(make).collect()
}

fn lines(data: &Path, name: &str) -> Vec<Value> {
    let unpacked = Command::new("gzip").arg("-dc").arg(data.join(format!("{name}.jsonl.gz"))).output().unwrap();
    String::from_utf8(unpacked.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn vectors(data: &Path, name: &str) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(data.join(format!("{name}.f16.bin"))).unwrap();
    let numbers: Vec<f32> = bytes.chunks_exact(2).map(|pair| widened(u16::from_le_bytes([pair[0], pair[1]]))).collect();
    numbers.chunks_exact(DIM).map(<[f32]>::to_vec).collect()
}

/// The f32 of an IEEE half float that is finite.
fn widened(half: u16) -> f32 {
    let (sign, exponent, fraction) = (half >> 15, i32::from(half >> 10 & 31), f32::from(half & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    };
    if sign == 1 { -magnitude } else { magnitude }
}
