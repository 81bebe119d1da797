//! A tiny model as an ONNX file in the forms of several exporters, beside the same numbers as safetensors.

use std::path::Path;

use super::super::http::HttpEmbedder;
use super::super::model::ModelEmbedder;
use super::super::process::ProcessEmbedder;
use super::tiny_model::TinyModel;
use super::*;

const FLOAT: u64 = 1;
const UINT8: u64 = 2;
const INT8: u64 = 3;
/// What quantised numbers are above zero where they have a zero point.
const ZERO: f32 = 128.0;

/// How the matrix of a linear map is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OnnxForm {
    /// `MatMul` with f32.
    Float,
    /// `Gemm` with f32, a row for each output.
    Gemm,
    /// `Mul(Cast(int8), scale)`, a scale for each output.
    CastAndMul,
    /// `DequantizeLinear`, likewise.
    Dequantised,
    /// `MatMulInteger` and what ONNX Runtime writes around it, with one scale and zero point for a matrix.
    Dynamic,
}

/// Writes protocol buffers: a field with a number, and one with bytes.
fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3);
    put_varint(out, number);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 127 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A graph that is being written.
#[derive(Default)]
struct OnnxWriter {
    graph: Vec<u8>,
}

impl OnnxWriter {
    fn tensor(&mut self, name: &str, kind: u64, dims: &[usize], raw: &[u8]) {
        let mut tensor = Vec::new();
        dims.iter().for_each(|dim| put_number(&mut tensor, 1, *dim as u64));
        put_number(&mut tensor, 2, kind);
        put_bytes(&mut tensor, 8, name.as_bytes());
        put_bytes(&mut tensor, 9, raw);
        put_bytes(&mut self.graph, 5, &tensor);
    }

    fn floats(&mut self, name: &str, dims: &[usize], numbers: &[f32]) {
        let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.tensor(name, FLOAT, dims, &raw);
    }

    fn node(&mut self, operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, u64)]) {
        let mut node = Vec::new();
        inputs.iter().for_each(|input| put_bytes(&mut node, 1, input.as_bytes()));
        put_bytes(&mut node, 2, output.as_bytes());
        put_bytes(&mut node, 4, operator.as_bytes());
        for (name, number) in attributes {
            let mut attribute = Vec::new();
            put_bytes(&mut attribute, 1, name.as_bytes());
            put_number(&mut attribute, 3, *number);
            put_bytes(&mut node, 5, &attribute);
        }
        put_bytes(&mut self.graph, 1, &node);
    }

    fn file(&self) -> Vec<u8> {
        let mut file = Vec::new();
        put_number(&mut file, 1, 10);
        put_bytes(&mut file, 7, &self.graph);
        file
    }

    /// Writes the rows of an embedding and where they are looked up.
    fn table(&mut self, name: &str, (shape, numbers): &mut (Vec<usize>, Vec<f32>), form: OnnxForm) {
        let part = |part: &str| format!("{name}_{part}");
        let (stored, scale, out) = (part("quantized"), part("scale"), part("out"));
        match form {
            OnnxForm::Float | OnnxForm::Gemm => {
                self.floats(name, shape, numbers);
                self.node("Gather", &[name, "ids"], &out, &[]);
            }
            OnnxForm::CastAndMul | OnnxForm::Dequantised => {
                let (codes, scales) = quantise(numbers, shape[1], 0.0);
                self.tensor(&stored, INT8, shape, &codes);
                self.floats(&scale, &[shape[0], 1], &scales);
                self.node("Cast", &[&stored], &part("cast"), &[("to", FLOAT)]);
                self.node("Mul", &[&part("cast"), &scale], name, &[]);
                self.node("Gather", &[name, "ids"], &out, &[]);
            }
            OnnxForm::Dynamic => {
                let (codes, scales) = quantise(numbers, shape[0] * shape[1], ZERO);
                self.tensor(&stored, UINT8, shape, &codes);
                self.floats(&scale, &[], &scales);
                self.tensor(&part("zero_point"), UINT8, &[], &[ZERO as u8]);
                self.node("Gather", &[&stored, "ids"], &part("rows"), &[]);
                self.node("DequantizeLinear", &[&part("rows"), &scale, &part("zero_point")], &out, &[]);
            }
        }
    }

    /// Writes a linear map without its bias, which is there.
    fn map(&mut self, map: &str, (shape, numbers): &mut (Vec<usize>, Vec<f32>), form: OnnxForm) {
        let name = |part: &str| format!("onnx::{map}{part}");
        let (to, from) = (shape[0], shape[1]);
        let (bias, product) = (format!("{map}.bias"), name("_product"));
        match form {
            OnnxForm::Gemm => {
                self.floats(&name(""), &[to, from], numbers);
                return self.node("Gemm", &["x", &name(""), &bias], &name("_out"), &[("transB", 1)]);
            }
            OnnxForm::Float => {
                self.floats(&name(""), &[from, to], &columns(numbers, from));
                self.node("MatMul", &["x", &name("")], &product, &[]);
            }
            OnnxForm::CastAndMul | OnnxForm::Dequantised => {
                let (codes, scales) = quantise(numbers, from, 0.0);
                self.tensor(&name("_q"), INT8, &[from, to], &columns(&codes, from));
                if form == OnnxForm::CastAndMul {
                    self.floats(&name("_scale"), &[1, to], &scales);
                    self.node("Cast", &[&name("_q")], &name("_cast"), &[("to", FLOAT)]);
                    self.node("Mul", &[&name("_scale"), &name("_cast")], &name(""), &[]);
                } else {
                    self.floats(&name("_scale"), &[to], &scales);
                    self.node("DequantizeLinear", &[&name("_q"), &name("_scale")], &name(""), &[("axis", u64::MAX)]);
                }
                self.node("MatMul", &["x", &name("")], &product, &[]);
            }
            OnnxForm::Dynamic => {
                let (codes, scales) = quantise(numbers, to * from, ZERO);
                self.tensor(&name("_quantized"), UINT8, &[from, to], &columns(&codes, from));
                self.floats(&name("_scale"), &[], &scales);
                self.tensor(&name("_zero_point"), UINT8, &[], &[ZERO as u8]);
                let inputs = ["x_quantized", &name("_quantized"), "x_zero_point", &name("_zero_point")];
                self.node("MatMulInteger", &inputs, &name("_integers"), &[]);
                self.node("Cast", &[&name("_integers")], &name("_cast"), &[("to", FLOAT)]);
                self.node("Mul", &["x_scale", &name("_scale")], &name("_scales"), &[]);
                self.node("Mul", &[&name("_cast"), &name("_scales")], &product, &[]);
            }
        }
        self.node("Add", &[&bias, &product], &name("_out"), &[]);
    }
}

/// Rounds numbers to int8, with a scale for so many each, and returns codes and scales.
fn quantise(numbers: &mut [f32], each: usize, zero: f32) -> (Vec<u8>, Vec<f32>) {
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for part in numbers.chunks_mut(each) {
        let scale = part.iter().fold(0.0f32, |most, number| most.max(number.abs())) / 127.0;
        for number in part {
            let code = (*number / scale).round();
            codes.push((code + zero) as i32 as u8);
            *number = code * scale;
        }
        scales.push(scale);
    }
    (codes, scales)
}

/// Returns the columns of a matrix one behind the other.
fn columns<T: Copy>(numbers: &[T], width: usize) -> Vec<T> {
    (0..width).flat_map(|column| numbers[column..].iter().step_by(width).copied()).collect()
}

/// Writes a model to the graph, whose weights it rounds as they are stored.
fn write_onnx(tiny: &mut TinyModel, form: OnnxForm, prefix: &str) -> OnnxWriter {
    let mut onnx = OnnxWriter::default();
    let names: Vec<String> = tiny.0.keys().cloned().collect();
    for name in names {
        let (full, weight) = (format!("{prefix}{name}"), tiny.0.get_mut(&name).unwrap());
        if name.contains("_embeddings.") {
            onnx.table(&full, weight, form);
        } else if weight.0.len() == 2 {
            onnx.map(full.strip_suffix(".weight").unwrap(), weight, form);
        } else {
            onnx.floats(&full, &weight.0, &weight.1);
        }
    }
    onnx
}

fn reason(folder: &Path) -> String {
    match ModelEmbedder::open(folder) {
        Err(EmbedError::Model { reason, .. }) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is no model"),
    }
}

/// Puts an ONNX file in the place of the weights.
fn put(folder: &Path, file: &[u8]) {
    let _ = std::fs::remove_file(folder.join("model.safetensors"));
    std::fs::write(folder.join("model.onnx"), file).unwrap();
}

#[test]
fn an_onnx_file_gives_the_vectors_of_the_same_numbers_as_safetensors() {
    use OnnxForm::*;
    let texts = ["green teas at four", "Tea", "coffee", ""];
    for (form, prefix, name) in [
        (Float, "", "model.onnx"),
        (Gemm, "bert.", "onnx/model.onnx"),
        (CastAndMul, "inner.", "model.onnx"),
        (Dequantised, "0.auto_model.", "model_int8.onnx"),
        (Dynamic, "", "onnx/model_quantized.onnx"),
    ] {
        let (folder, mut tiny) = (tempfile::tempdir().unwrap(), TinyModel::new());
        let onnx = write_onnx(&mut tiny, form, prefix);
        tiny.write(folder.path());
        let expected = ModelEmbedder::open(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
        assert!(!holds_model(folder.path()));
        std::fs::create_dir_all(folder.path().join("onnx")).unwrap();
        std::fs::write(folder.path().join(name), onnx.file()).unwrap();
        assert!(holds_model(folder.path()));
        let model = ModelEmbedder::open(folder.path()).unwrap();
        let found = model.embed(TextKind::Document, &texts, TIMEOUT).unwrap();
        for (found, expected) in found.iter().zip(expected.embed(TextKind::Document, &texts, TIMEOUT).unwrap()) {
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{form:?}: {found:?} {expected:?}");
        }
        assert_ne!(model.description(), expected.description());
    }
}

#[test]
fn the_identity_covers_each_byte_of_an_onnx_file() {
    let (folder, mut tiny) = (tempfile::tempdir().unwrap(), TinyModel::new());
    tiny.write(folder.path());
    let mut onnx = write_onnx(&mut tiny, OnnxForm::CastAndMul, "");
    put(folder.path(), &onnx.file());
    let description = ModelEmbedder::open(folder.path()).unwrap().description().to_vec();
    onnx.floats("unused", &[1], &[1.0]);
    put(folder.path(), &onnx.file());
    assert_ne!(ModelEmbedder::open(folder.path()).unwrap().description(), description);
}

#[test]
fn the_identity_is_that_of_files_address_or_command_and_of_no_folder() {
    let [one, other] = [(); 2].map(|()| {
        let folder = tempfile::tempdir().unwrap();
        TinyModel::new().write(folder.path());
        let model = ModelEmbedder::open(folder.path()).unwrap();
        (model.name().to_owned(), model.description().to_vec())
    });
    assert_ne!(one.0, other.0, "the name is the folder's");
    assert_eq!(one.1, other.1);
    let command = |command: &str| ProcessEmbedder::new(command).description().to_vec();
    assert_ne!(command("embed --fast"), command("embed --slow"));
    let server = |url: &str, model: &str| HttpEmbedder::new(url, model, None).description().to_vec();
    let mini = server("http://localhost:1/v1", "mini");
    assert_ne!(mini, server("http://localhost:2/v1", "mini"));
    assert_ne!(mini, server("http://localhost:1/v1", "large"));
}

#[test]
fn an_onnx_file_that_can_not_be_used_says_why() {
    let folder = tempfile::tempdir().unwrap();
    TinyModel::new().write(folder.path());
    let written = |change: &dyn Fn(&mut TinyModel, &mut OnnxWriter)| {
        let mut tiny = TinyModel::new();
        let mut onnx = write_onnx(&mut tiny, OnnxForm::CastAndMul, "");
        change(&mut tiny, &mut onnx);
        put(folder.path(), &onnx.file());
        reason(folder.path())
    };
    let query = "encoder.layer.0.attention.self.query";
    let told = written(&|_, onnx| onnx.floats(&format!("{query}.bias"), &[12], &[0.0; 12]));
    assert_eq!(told, format!("model.onnx: {query}.bias is there twice"));
    let told = written(&|_, onnx| onnx.node("Add", &["y", &format!("{query}.bias")], "z", &[]));
    assert_eq!(told, format!("model.onnx: {query}.weight is there twice: two nodes add its bias"));
    let told = written(&|_, onnx| onnx.node("Attention", &["x"], "z", &[]));
    assert_eq!(told, "model.onnx: it has the operator Attention, which no plain export of BERT has");
    let told = written(&|_, onnx| onnx.node("Add", &["x", "encoder.layer.2.output.dense.bias"], "z", &[]));
    assert_eq!(told, "model.onnx: it has more than the 2 layers of config.json");
    let told = written(&|_, onnx| onnx.node("Gather", &["b.embeddings.word_embeddings.weight", "ids"], "z", &[]));
    assert_eq!(told, "model.onnx: it has more than one embeddings.word_embeddings.weight");
    let told = written(&|tiny, onnx| {
        tiny.0.remove("encoder.layer.1.output.dense.weight");
        *onnx = write_onnx(tiny, OnnxForm::Dequantised, "");
    });
    assert_eq!(told, "model.onnx: encoder.layer.1.output.dense.weight is missing: nothing adds its bias");
    let told = written(&|tiny, onnx| {
        tiny.0.insert("encoder.layer.1.output.dense.weight".to_owned(), (vec![12, 19], vec![1.0; 12 * 19]));
        *onnx = write_onnx(tiny, OnnxForm::Dynamic, "");
    });
    assert_eq!(told, "model.onnx: encoder.layer.1.output.dense.weight is of shape [12, 19]");
    let told = written(&|_, onnx| *onnx = OnnxWriter::default());
    assert!(told.contains("no node looks words up"), "{told}");
}

/// Returns why a table of words of that form can't be used.
fn words_reason(folder: &Path, write: impl Fn(&mut OnnxWriter, &str)) -> String {
    let mut onnx = OnnxWriter::default();
    onnx.node("Gather", &["embeddings.word_embeddings.weight", "ids"], "rows", &[]);
    write(&mut onnx, "embeddings.word_embeddings.weight");
    put(folder, &onnx.file());
    let told = reason(folder);
    told.strip_prefix("model.onnx: embeddings.word_embeddings.weight ").unwrap_or(&told).to_owned()
}

#[test]
fn weights_that_are_not_what_they_say_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    TinyModel::new().write(folder.path());
    let told = |write: &dyn Fn(&mut OnnxWriter, &str)| words_reason(folder.path(), write);
    let huge = 1usize << 62;
    assert_eq!(told(&|_, _| ()), "is missing");
    assert_eq!(told(&|onnx, name| onnx.tensor(name, INT8, &[9, 12], &[1; 108])), "has whole numbers and no scale");
    assert!(told(&|onnx, name| onnx.tensor(name, FLOAT, &[huge, 12], &[1; 108])).contains("and has 108 bytes"));
    assert!(told(&|onnx, name| onnx.tensor(name, FLOAT, &[huge, 4], &[])).contains("and has 0 bytes"));
    assert!(told(&|onnx, name| onnx.tensor(name, FLOAT, &[9, 12], &[1; 431])).contains("and has 431 bytes"));
    assert!(told(&|onnx, name| onnx.tensor(name, 7, &[9, 12], &[1; 864])).contains("ONNX's type 7"));
    assert!(told(&|onnx, name| onnx.tensor(name, FLOAT, &[usize::MAX], &[])).contains("is of shape [-1]"));
    assert!(told(&|onnx, name| onnx.tensor(name, FLOAT, &[1; 9], &[1; 4])).contains("more than 8 numbers"));
    assert_eq!(told(&|onnx, name| onnx.tensor(name, FLOAT, &[0, 12], &[])), "is of shape [0, 12]");
    let scale_of = |dims: &'static [usize]| {
        move |onnx: &mut OnnxWriter, name: &str| {
            onnx.tensor("q", INT8, &[9, 12], &[1; 108]);
            onnx.floats("scale", dims, &vec![1.0; dims.iter().product()]);
            onnx.node("DequantizeLinear", &["q", "scale"], name, &[("axis", 0)]);
        }
    };
    assert_eq!(told(&scale_of(&[12])), "is of shape [9, 12], and its scale or zero point of [12]");
    assert_eq!(told(&scale_of(&[0])), "is of shape [9, 12], and its scale or zero point of [0]");
    // A value that is made of itself, and one behind more nodes than any exporter writes.
    assert_eq!(told(&|onnx, name| onnx.node("Mul", &[name, name], name, &[])), "is missing");
    assert!(told(&|onnx, name| (0..2).for_each(|_| onnx.node("Cast", &["q"], name, &[]))).contains("two nodes make"));
    let chain = |onnx: &mut OnnxWriter, name: &str| {
        onnx.floats("0", &[9, 12], &[1.0; 108]);
        (0..99).for_each(|n| onnx.node("Mul", &[&n.to_string(), &n.to_string()], &(n + 1).to_string(), &[]));
        onnx.node("Identity", &["99"], name, &[]);
    };
    assert_eq!(told(&chain), "is missing");
}

#[test]
fn no_damaged_onnx_file_brings_the_process_down() {
    let (folder, mut tiny) = (tempfile::tempdir().unwrap(), TinyModel::new());
    tiny.write(folder.path());
    let file = write_onnx(&mut tiny, OnnxForm::Dynamic, "").file();
    for length in (0..file.len()).step_by(97) {
        put(folder.path(), &file[..length]);
        let told = reason(folder.path());
        assert!(told.starts_with("model.onnx: it "), "{length}: {told}");
    }
    let mut seed = 3u64;
    for _ in 0..2_000 {
        let mut damaged = file.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            damaged[(seed >> 33) as usize % file.len()] = (seed >> 24) as u8;
        }
        put(folder.path(), &damaged);
        // It may be a model still: most bytes are numbers.
        if let Ok(model) = ModelEmbedder::open(folder.path()) {
            let _ = model.embed(TextKind::Document, &["green tea"], TIMEOUT);
        }
    }
    // A length that is beyond the file, and parts without number.
    put(folder.path(), &[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    assert!(reason(folder.path()).contains("cut short"));
    let mut many = Vec::new();
    put_bytes(&mut many, 7, &[0x0a, 0x00].repeat(1 << 21));
    put(folder.path(), &many);
    assert!(reason(folder.path()).contains("more than 131072 nodes and names"));
}
