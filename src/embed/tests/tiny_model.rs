//! A tiny model with made-up weights against the formulas of its layers, written as plain loops in f64.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::super::model::ModelEmbedder;
use super::*;

const HIDDEN: usize = 12;
const HEADS: usize = 3;
const WIDE: usize = 20;
const LAYERS: usize = 2;
const WORDS: [&str; 9] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "green", "tea", "##s", "at", "four"];

/// The weights by name, with their shapes.
pub struct TinyModel(pub BTreeMap<String, (Vec<usize>, Vec<f32>)>);

impl TinyModel {
    pub fn new() -> TinyModel {
        let mut weights = BTreeMap::new();
        let mut seed = 5u64;
        let mut add = |name: &str, shape: &[usize]| {
            let number = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ((seed >> 40) as f32 / 16_777_216.0 - 0.5) * 2.0
            };
            let numbers = std::iter::repeat_with(number).take(shape.iter().product()).collect();
            weights.insert(name.to_owned(), (shape.to_vec(), numbers));
        };
        add("embeddings.word_embeddings.weight", &[WORDS.len(), HIDDEN]);
        add("embeddings.position_embeddings.weight", &[10, HIDDEN]);
        add("embeddings.token_type_embeddings.weight", &[2, HIDDEN]);
        let mut pair = |name: &str, to: usize, from: Option<usize>| {
            let shape = from.map_or(vec![to], |from| vec![to, from]);
            add(&format!("{name}.weight"), &shape);
            add(&format!("{name}.bias"), &[to]);
        };
        pair("embeddings.LayerNorm", HIDDEN, None);
        for layer in 0..LAYERS {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            for part in ["query", "key", "value"] {
                pair(&name(&format!("attention.self.{part}")), HIDDEN, Some(HIDDEN));
            }
            pair(&name("attention.output.dense"), HIDDEN, Some(HIDDEN));
            pair(&name("attention.output.LayerNorm"), HIDDEN, None);
            pair(&name("intermediate.dense"), WIDE, Some(HIDDEN));
            pair(&name("output.dense"), HIDDEN, Some(WIDE));
            pair(&name("output.LayerNorm"), HIDDEN, None);
        }
        TinyModel(weights)
    }

    /// The weights as a safetensors file.
    fn safetensors(&self) -> Vec<u8> {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, (shape, numbers)) in &self.0 {
            let begin = data.len();
            data.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            let info = json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()] });
            header.insert(name.clone(), info);
        }
        let header = serde_json::to_vec(&header).unwrap();
        [(header.len() as u64).to_le_bytes().to_vec(), header, data].concat()
    }

    pub fn write(&self, folder: &Path) {
        std::fs::write(folder.join("model.safetensors"), self.safetensors()).unwrap();
        let config = json!({
            "model_type": "bert", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "intermediate_size": WIDE, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        });
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let vocabulary: BTreeMap<&str, usize> = WORDS.into_iter().zip(0..).collect();
        let tokenizer = json!({
            "version": "1.0",
            "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                            "strip_accents": null, "lowercase": true },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "post_processor": { "type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2] },
            "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 100, "vocab": vocabulary },
        });
        std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    }

    fn get(&self, name: &str) -> &[f32] {
        &self.0[name].1
    }

    fn dense(&self, name: &str, input: &[f64]) -> Vec<f64> {
        let (weights, bias) = (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")));
        let rows = weights.chunks(input.len()).zip(bias);
        rows.map(|(row, bias)| f64::from(*bias) + row.iter().zip(input).map(|(w, x)| f64::from(*w) * x).sum::<f64>())
            .collect()
    }

    fn norm(&self, name: &str, row: &mut [f64]) {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let deviation = (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64 + 1e-12).sqrt();
        let (weights, bias) = (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")));
        for ((x, weight), bias) in row.iter_mut().zip(weights).zip(bias) {
            *x = (*x - mean) / deviation * f64::from(*weight) + f64::from(*bias);
        }
    }

    /// The states of all tokens, by the book.
    fn states(&self, tokens: &[usize]) -> Vec<Vec<f64>> {
        let row = |name: &str, n: usize| self.get(name)[n * HIDDEN..][..HIDDEN].to_vec();
        let mut states: Vec<Vec<f64>> = Vec::new();
        for (position, token) in tokens.iter().enumerate() {
            let parts = [
                row("embeddings.word_embeddings.weight", *token),
                row("embeddings.position_embeddings.weight", position),
                row("embeddings.token_type_embeddings.weight", 0),
            ];
            let mut state: Vec<f64> = (0..HIDDEN).map(|d| parts.iter().map(|part| f64::from(part[d])).sum()).collect();
            self.norm("embeddings.LayerNorm", &mut state);
            states.push(state);
        }
        for layer in 0..LAYERS {
            states = self.layer(&format!("encoder.layer.{layer}."), &states);
        }
        states
    }

    fn layer(&self, prefix: &str, states: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let name = |part: &str| format!("{prefix}{part}");
        let map = |part: &str| -> Vec<Vec<f64>> {
            states.iter().map(|state| self.dense(&name(&format!("attention.self.{part}")), state)).collect()
        };
        let (queries, keys, values) = (map("query"), map("key"), map("value"));
        let depth = HIDDEN / HEADS;
        let mut out = Vec::new();
        for (at, state) in states.iter().enumerate() {
            let mut attended = vec![0.0; HIDDEN];
            for head in 0..HEADS {
                let part = head * depth..(head + 1) * depth;
                let score = |key: &Vec<f64>| -> f64 {
                    let product: f64 = part.clone().map(|d| queries[at][d] * key[d]).sum();
                    (product / (depth as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = keys.iter().map(score).collect();
                let sum: f64 = scores.iter().sum();
                for d in part {
                    attended[d] = scores.iter().zip(&values).map(|(score, value)| score / sum * value[d]).sum();
                }
            }
            let mut state: Vec<f64> =
                self.dense(&name("attention.output.dense"), &attended).iter().zip(state).map(|(a, b)| a + b).collect();
            self.norm(&name("attention.output.LayerNorm"), &mut state);
            let wide = self.dense(&name("intermediate.dense"), &state).into_iter().map(gelu).collect::<Vec<_>>();
            let narrow = self.dense(&name("output.dense"), &wide);
            state.iter_mut().zip(narrow).for_each(|(x, more)| *x += more);
            self.norm(&name("output.LayerNorm"), &mut state);
            out.push(state);
        }
        out
    }

    fn embedding(&self, tokens: &[usize]) -> Vec<f64> {
        let states = self.states(tokens);
        let sums: Vec<f64> = (0..HIDDEN).map(|d| states.iter().map(|state| state[d]).sum()).collect();
        let norm = sums.iter().map(|x| x * x).sum::<f64>().sqrt();
        sums.into_iter().map(|x| x / norm).collect()
    }
}

/// x Φ(x), the distribution by its integral in small steps.
fn gelu(x: f64) -> f64 {
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let steps = 2_000;
    let width = x / f64::from(steps);
    let integral: f64 = (0..steps).map(|n| density(width * (f64::from(n) + 0.5)) * width).sum();
    x * (0.5 + integral)
}

#[test]
fn a_model_gives_what_its_formulas_say() {
    let (folder, tiny) = (tempfile::tempdir().unwrap(), TinyModel::new());
    tiny.write(folder.path());
    let model = ModelEmbedder::open(folder.path()).unwrap();
    let texts = ["green teas at four", "Tea", "coffee", "", "tea tea tea tea tea tea tea tea tea tea tea tea"];
    let tokens: [&[usize]; 5] =
        [&[2, 4, 5, 6, 7, 8, 3], &[2, 5, 3], &[2, 1, 3], &[2, 3], &[2, 5, 5, 5, 5, 5, 5, 5, 5, 3]];
    let vectors = model.embed(TextKind::Document, &texts, TIMEOUT).unwrap();
    for ((vector, tokens), text) in vectors.iter().zip(tokens).zip(texts) {
        for (found, expected) in vector.iter().zip(tiny.embedding(tokens)) {
            assert!((f64::from(*found) - expected).abs() < 2e-5, "{text:?}: {found} instead of {expected}");
        }
        let alone = model.embed(TextKind::Query, &[text], TIMEOUT).unwrap();
        let near = vector.iter().zip(&alone[0]).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near, "{text:?}: it does not matter what stands beside it");
    }
}

#[test]
fn what_stands_beside_the_weights_is_heeded() {
    let (folder, tiny) = (tempfile::tempdir().unwrap(), TinyModel::new());
    tiny.write(folder.path());
    let plain = ModelEmbedder::open(folder.path()).unwrap();
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    let pooling = json!({ "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false });
    std::fs::write(folder.path().join("1_Pooling/config.json"), pooling.to_string()).unwrap();
    std::fs::write(folder.path().join("modules.json"), r#"[{"type":"sentence_transformers.models.Pooling"}]"#).unwrap();
    std::fs::write(folder.path().join("sentence_bert_config.json"), r#"{"max_seq_length":4}"#).unwrap();
    let prompts = r#"{"prompts":{"query":"green ","document":"four "}}"#;
    std::fs::write(folder.path().join("config_sentence_transformers.json"), prompts).unwrap();
    let model = ModelEmbedder::open(folder.path()).unwrap();
    for (kind, tokens) in [(TextKind::Query, [2, 4, 5, 3]), (TextKind::Document, [2, 8, 5, 3])] {
        let vectors = model.embed(kind, &["tea at four"], TIMEOUT).unwrap();
        let first = &tiny.states(&tokens)[0];
        assert!(vectors[0].iter().zip(first).all(|(found, expected)| (f64::from(*found) - expected).abs() < 1e-4));
    }
    assert_ne!(plain.description(), model.description());
}

#[test]
fn a_folder_that_is_no_model_says_what_is_wrong() {
    let (folder, tiny) = (tempfile::tempdir().unwrap(), TinyModel::new());
    let reason = || match ModelEmbedder::open(folder.path()) {
        Err(EmbedError::Model { reason, .. }) => reason,
        _ => panic!("it is no model"),
    };
    assert_eq!(reason(), "it has no config.json");
    tiny.write(folder.path());
    std::fs::write(folder.path().join("model.safetensors"), b"nonsense").unwrap();
    assert!(reason().contains("model.safetensors is not understood"));
    let TinyModel(mut weights) = TinyModel::new();
    weights.remove("encoder.layer.1.output.dense.bias");
    TinyModel(weights).write(folder.path());
    assert!(reason().contains("encoder.layer.1.output.dense.bias is missing"));
    let mut tiny = TinyModel::new();
    tiny.0.insert("embeddings.LayerNorm.bias".into(), (vec![3], vec![0.0; 3]));
    tiny.write(folder.path());
    assert!(reason().contains("embeddings.LayerNorm.bias is of shape [3]"));
    std::fs::write(folder.path().join("config.json"), br#"{"model_type":"t5","hidden_size":1,"num_hidden_layers":1,"num_attention_heads":1,"intermediate_size":1,"hidden_act":"gelu"}"#).unwrap();
    assert!(reason().contains("\"t5\""));
}
