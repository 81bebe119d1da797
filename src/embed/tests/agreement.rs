//! The real model against vectors that another runtime made of it.
//!
//! `ENGRAMFS_TEST_MODEL` names the folder of all-MiniLM-L6-v2 (`scripts/models.sh` fetches it), `ENGRAMFS_TEST_DATA` one with
//! `texts.jsonl` (a line of JSON with a `text` each) and `records.f16.bin`, the vectors of those texts as half floats.

use std::path::PathBuf;

use super::super::model::ModelEmbedder;
use super::*;

const TEXTS: usize = 1_000;

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn the_real_model_agrees_with_another_runtime() {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(model), Some(data)) = (folder("ENGRAMFS_TEST_MODEL"), folder("ENGRAMFS_TEST_DATA")) else {
        eprintln!("skipped: ENGRAMFS_TEST_MODEL and ENGRAMFS_TEST_DATA do not name the model and vectors that it made");
        return;
    };
    let model = ModelEmbedder::open(&model).unwrap();
    let lines = std::fs::read_to_string(data.join("texts.jsonl")).unwrap();
    let texts: Vec<String> = lines
        .lines()
        .take(TEXTS)
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().to_owned())
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let bytes = std::fs::read(data.join("records.f16.bin")).unwrap();
    let vectors = model.embed(TextKind::Document, &texts, Duration::from_secs(600)).unwrap();
    assert_eq!(vectors.len(), TEXTS);
    for ((vector, expected), text) in vectors.iter().zip(bytes.chunks_exact(2 * vectors[0].len())).zip(texts) {
        let expected: Vec<f32> =
            expected.as_chunks().0.iter().map(|two| super::super::model::half(u16::from_le_bytes(*two))).collect();
        let cosine = crate::vector::dot(vector, &expected) / crate::vector::norm(&expected);
        assert!(cosine >= 0.999, "{cosine} for {text:?}");
    }
}
