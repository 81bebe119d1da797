//! The weights in a safetensors file: the length of a header (8 bytes, little-endian), the header, and the tensors' bytes.
//!
//! The header is a JSON object: each tensor's type, shape and place among the bytes behind it, by name, and texts for people
//! under `__metadata__`. The format is <https://huggingface.co/docs/safetensors>.

use std::collections::HashMap;
use std::ops::Range;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::weights::{WeightSource, WeightTensor, decode_bf16, decode_f16, decode_f32};

/// The largest header, in bytes: that of a model with 100,000 tensors has some ten million.
const HEADER_BYTES_MAX: usize = 100_000_000;
/// A tensor of every BERT, which shows whether names have a prefix.
const WORD_EMBEDDINGS: &str = "embeddings.word_embeddings.weight";

/// The weights in a safetensors file.
pub struct SafetensorsWeights<'a> {
    tensors: HashMap<String, TensorInfo>,
    /// All bytes after the header.
    data: &'a [u8],
    /// The prefix of each name.
    prefix: &'static str,
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    _metadata: Option<IgnoredAny>,
    #[serde(flatten)]
    tensors: HashMap<String, TensorInfo>,
}

/// What the header says of a tensor.
#[derive(Deserialize)]
struct TensorInfo {
    dtype: String,
    shape: Vec<usize>,
    /// Begin and end in the bytes behind the header.
    data_offsets: [usize; 2],
}

impl<'a> SafetensorsWeights<'a> {
    /// Reads the header. The error says what is wrong: a file that ends before its header does, a header that is no table of
    /// tensors, or a tensor that lies outside the file.
    pub fn new(file: &'a [u8]) -> Result<SafetensorsWeights<'a>, String> {
        let (header, data) = split_header(file).ok_or("it ends before its header does")?;
        let Header { tensors, .. } =
            serde_json::from_slice(header).map_err(|error| format!("its header is no table of tensors: {error}"))?;
        if let Some((name, _)) = tensors.iter().find(|(_, info)| data.get(info.range()).is_none()) {
            return Err(format!("{name} lies outside the file"));
        }
        let prefix = if tensors.contains_key(&format!("bert.{WORD_EMBEDDINGS}")) { "bert." } else { "" };
        Ok(SafetensorsWeights { tensors, data, prefix })
    }
}

impl TensorInfo {
    fn range(&self) -> Range<usize> {
        let [begin, end] = self.data_offsets;
        begin..end
    }
}

impl WeightSource for SafetensorsWeights<'_> {
    fn tensor(&self, name: &str) -> Result<WeightTensor, String> {
        let info = self.tensors.get(&format!("{}{name}", self.prefix)).ok_or("is missing")?;
        let bytes = &self.data[info.range()];
        let (values, width) = match &*info.dtype {
            "F32" => (decode_f32(bytes), 4),
            "F16" => (decode_f16(bytes), 2),
            "BF16" => (decode_bf16(bytes), 2),
            other => return Err(format!("is of type {other}, and F32, F16 and BF16 can be read")),
        };
        let expected = info.shape.iter().try_fold(width, |bytes: usize, dim| bytes.checked_mul(*dim));
        if expected != Some(bytes.len()) {
            return Err(format!("is of shape {:?} and type {}, but has {} bytes", info.shape, info.dtype, bytes.len()));
        }
        Ok(WeightTensor { shape: info.shape.clone(), values })
    }
}

/// Returns the header, and what follows it.
fn split_header(file: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = file.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|length| *length <= HEADER_BYTES_MAX)?;
    rest.split_at_checked(length)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    }

    #[test]
    fn tensors_are_found_by_name_whatever_their_type_and_order() {
        let header = r#"{"__metadata__":{"format":"pt"},
            "bert.embeddings.word_embeddings.weight":{"dtype":"F16","shape":[2,1],"data_offsets":[8,12]},
            "bert.b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
            "bert.c":{"dtype":"BF16","shape":[],"data_offsets":[12,14]},
            "bert.d":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}  "#;
        let data = [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0x3c, 0, 0xc0, 0x40, 0x40];
        let file = file(header, &data);
        let weights = SafetensorsWeights::new(&file).unwrap();
        for (name, shape, values) in
            [(WORD_EMBEDDINGS, vec![2, 1], vec![1.0, -2.0]), ("b", vec![2], vec![1.0, -2.0]), ("c", vec![], vec![3.0])]
        {
            let tensor = weights.tensor(name).unwrap();
            assert_eq!((tensor.shape, tensor.values), (shape, values), "{name}");
        }
        assert_eq!(weights.tensor("x").unwrap_err(), "is missing");
        assert_eq!(weights.tensor("d").unwrap_err(), "is of type I64, and F32, F16 and BF16 can be read");
    }

    #[test]
    fn a_file_that_does_not_hold_what_its_header_says_is_refused() {
        let reason = |file: &[u8]| SafetensorsWeights::new(file).map(|_| ()).unwrap_err();
        for short in [&b""[..], &[9; 7], &[1, 0, 0, 0, 0, 0, 0, 0], &[255; 64]] {
            assert_eq!(reason(short), "it ends before its header does");
        }
        assert!(reason(&file("[]", b"")).starts_with("its header is no table of tensors: "));
        for offsets in ["[0,5]", "[5,4]", "[5,5]", "[0,18446744073709551615]"] {
            let header = format!(r#"{{"a":{{"dtype":"F32","shape":[1],"data_offsets":{offsets}}}}}"#);
            assert_eq!(reason(&file(&header, &[0; 4])), "a lies outside the file", "{offsets}");
        }
        for shape in ["[2]", "[]", "[1,0]", "[4294967296,4294967296,4294967296]"] {
            let header = format!(r#"{{"a":{{"dtype":"F16","shape":{shape},"data_offsets":[0,4]}}}}"#);
            let file = file(&header, &[0; 4]);
            let weights = SafetensorsWeights::new(&file).unwrap();
            let found = weights.tensor("a").map(|tensor| tensor.values);
            assert!(if shape == "[2]" { found.is_ok() } else { found.unwrap_err().contains("but has 4 bytes") });
        }
    }
}
