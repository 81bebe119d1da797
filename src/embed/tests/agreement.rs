//! The real models against vectors that another runtime made of the f32 one.
//!
//! `ENGRAMFS_TEST_MODEL` names the folder of all-MiniLM-L6-v2 and `ENGRAMFS_TEST_MODEL_INT8` that of all-MiniLM-L6-v2-int8
//! (`scripts/models.sh` fetches both), `ENGRAMFS_TEST_DATA` one with `texts.jsonl` (a line of JSON with a `text` each) and
//! `records.f16.bin`, the vectors of those texts as half floats.

use std::path::PathBuf;

use super::super::model::ModelEmbedder;
use super::*;

const TEXTS: usize = 1_000;

/// Returns the cosines of a model's vectors with the others, and prints them in short; nothing where a variable is not set.
#[expect(clippy::print_stderr, reason = "a skipped test says so, and a figure is to be seen")]
fn cosines(variable: &str) -> Option<Vec<f32>> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(model), Some(data)) = (folder(variable), folder("ENGRAMFS_TEST_DATA")) else {
        eprintln!("skipped: {variable} and ENGRAMFS_TEST_DATA do not name a model and the vectors to compare with");
        return None;
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
    let start = std::time::Instant::now();
    let vectors = model.embed(TextKind::Document, &texts, Duration::from_secs(600)).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let expected = bytes.chunks_exact(2 * vectors[0].len()).map(|vector| -> Vec<f32> {
        vector.as_chunks().0.iter().map(|two| super::super::model::f16_to_f32(u16::from_le_bytes(*two))).collect()
    });
    let cosine = |(vector, expected): (&Vec<f32>, Vec<f32>)| {
        crate::vector::dot(vector, &expected) / crate::vector::norm(&expected)
    };
    let cosines: Vec<f32> = vectors.iter().zip(expected).map(cosine).collect();
    assert_eq!(cosines.len(), TEXTS);
    let least = cosines.iter().copied().fold(f32::INFINITY, f32::min);
    eprintln!("{}: mean cosine {:.5}, least {least:.5}, {seconds:.1} s", model.name(), mean(&cosines));
    Some(cosines)
}

fn mean(numbers: &[f32]) -> f32 {
    numbers.iter().sum::<f32>() / numbers.len() as f32
}

#[test]
fn the_real_model_agrees_with_another_runtime() {
    if let Some(cosines) = cosines("ENGRAMFS_TEST_MODEL") {
        assert!(cosines.iter().all(|cosine| *cosine >= 0.999));
    }
}

#[test]
fn an_int8_model_is_near_the_f32_one() {
    if let Some(cosines) = cosines("ENGRAMFS_TEST_MODEL_INT8") {
        assert!(mean(&cosines) >= 0.99);
    }
}
