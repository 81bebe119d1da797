//! The layers of a BERT encoder (Devlin and others, 2018), for inference.

use safetensors::{Dtype, SafeTensors};

use super::EmbedError;
use super::files::ModelFiles;
use super::layer::{Dense, LayerNorm, add, attend, gelu};

/// A model with its weights, ready to run.
pub struct Bert {
    hidden: usize,
    heads: usize,
    words: Vec<f32>,
    /// Of each position, the sum of its embedding and that of the first token type, which is all that is used.
    positions: Vec<f32>,
    norm: LayerNorm,
    layers: Vec<EncoderLayer>,
}

struct EncoderLayer {
    qkv: Dense,
    attended: Dense,
    attended_norm: LayerNorm,
    widen: Dense,
    narrow: Dense,
    norm: LayerNorm,
}

/// The weights by name.
struct Weights<'a> {
    files: &'a ModelFiles,
    tensors: SafeTensors<'a>,
    /// What stands before each name.
    prefix: &'static str,
}

impl Weights<'_> {
    /// Returns a tensor of that many numbers, or any multiple of `row`.
    fn tensor(&self, name: &str, row: usize, rows: Option<usize>) -> Result<Vec<f32>, EmbedError> {
        let wrong = |what: String| self.files.wrong(format!("model.safetensors: {name} {what}"));
        let tensor = self.tensors.tensor(&format!("{}{name}", self.prefix)).map_err(|_| wrong("is missing".into()))?;
        let numbers = floats(tensor.dtype(), tensor.data())
            .ok_or_else(|| wrong(format!("is of type {:?}, and F32, F16 and BF16 can be read", tensor.dtype())))?;
        let fits = row > 0 && numbers.len().is_multiple_of(row) && rows.is_none_or(|rows| numbers.len() == row * rows);
        if fits && !numbers.is_empty() { Ok(numbers) } else { Err(wrong(format!("is of shape {:?}", tensor.shape()))) }
    }

    fn dense(&self, name: &str, from: usize, to: usize) -> Result<(Vec<f32>, Vec<f32>), EmbedError> {
        let weights = self.tensor(&format!("{name}.weight"), from, Some(to))?;
        Ok((weights, self.tensor(&format!("{name}.bias"), to, Some(1))?))
    }

    fn norm(&self, name: &str, width: usize) -> Result<LayerNorm, EmbedError> {
        let weight = self.tensor(&format!("{name}.weight"), width, Some(1))?;
        let bias = self.tensor(&format!("{name}.bias"), width, Some(1))?;
        Ok(LayerNorm { weight, bias, epsilon: self.files.config.layer_norm_eps })
    }

    fn layer(&self, number: usize) -> Result<EncoderLayer, EmbedError> {
        let (hidden, wide) = (self.files.config.hidden_size, self.files.config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let part = |part: &str| self.dense(&name(&format!("attention.self.{part}")), hidden, hidden);
        let one = |part: &str, from, to| Ok(Dense::new(&[self.dense(&name(part), from, to)?], from));
        Ok(EncoderLayer {
            qkv: Dense::new(&[part("query")?, part("key")?, part("value")?], hidden),
            attended: one("attention.output.dense", hidden, hidden)?,
            attended_norm: self.norm(&name("attention.output.LayerNorm"), hidden)?,
            widen: one("intermediate.dense", hidden, wide)?,
            narrow: one("output.dense", wide, hidden)?,
            norm: self.norm(&name("output.LayerNorm"), hidden)?,
        })
    }
}

/// Returns the numbers of a tensor; nothing for a type that is not read.
fn floats(kind: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    Some(match kind {
        Dtype::F32 => bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
        Dtype::F16 => bytes.as_chunks().0.iter().map(|two| half(u16::from_le_bytes(*two))).collect(),
        Dtype::BF16 => {
            bytes.as_chunks().0.iter().map(|two| f32::from_bits(u32::from(u16::from_le_bytes(*two)) << 16)).collect()
        }
        _ => return None,
    })
}

/// Returns the value of an IEEE half float.
pub fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15) << 31, (bits >> 10) & 31, u32::from(bits & 1023));
    match exponent {
        0 => f32::from_bits(sign | (fraction as f32 / 16_777_216.0).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        exponent => f32::from_bits(sign | (u32::from(exponent) + 112) << 23 | fraction << 13),
    }
}

impl Bert {
    /// Reads the weights.
    pub fn new(files: &ModelFiles) -> Result<Bert, EmbedError> {
        let tensors = SafeTensors::deserialize(&files.weights)
            .map_err(|error| files.wrong(format!("model.safetensors is not understood: {error}")))?;
        let has_prefix = tensors.tensor("bert.embeddings.word_embeddings.weight").is_ok();
        let weights = Weights { files, tensors, prefix: if has_prefix { "bert." } else { "" } };
        let (hidden, heads) = (files.config.hidden_size, files.config.num_attention_heads);
        let words = weights.tensor("embeddings.word_embeddings.weight", hidden, None)?;
        let mut positions = weights.tensor("embeddings.position_embeddings.weight", hidden, None)?;
        let types = weights.tensor("embeddings.token_type_embeddings.weight", hidden, None)?;
        positions.chunks_exact_mut(hidden).for_each(|position| add(position, &types[..hidden]));
        let norm = weights.norm("embeddings.LayerNorm", hidden)?;
        let layers =
            (0..files.config.num_hidden_layers).map(|number| weights.layer(number)).collect::<Result<_, _>>()?;
        Ok(Bert { hidden, heads, words, positions, norm, layers })
    }

    /// Returns the numbers of a vector.
    pub fn dim(&self) -> usize {
        self.hidden
    }

    /// Returns how many tokens it knows.
    pub fn words(&self) -> usize {
        self.words.len() / self.hidden
    }

    /// Returns how long a sequence may be.
    pub fn positions(&self) -> usize {
        self.positions.len() / self.hidden
    }

    /// Returns the last states of all tokens of some sequences, one behind the other. Sequences are not padded: what maps
    /// single tokens takes those of all sequences together, and attention each sequence alone.
    pub fn run(&self, sequences: &[Vec<u32>]) -> Vec<f32> {
        let mut states = Vec::with_capacity(sequences.iter().map(Vec::len).sum::<usize>() * self.hidden);
        for sequence in sequences {
            for (token, position) in sequence.iter().zip(self.positions.chunks_exact(self.hidden)) {
                let word = &self.words[*token as usize * self.hidden..][..self.hidden];
                states.extend(word.iter().zip(position).map(|(word, position)| word + position));
            }
        }
        self.norm.apply(&mut states);
        for layer in &self.layers {
            self.layer(layer, sequences, &mut states);
        }
        states
    }

    fn layer(&self, layer: &EncoderLayer, sequences: &[Vec<u32>], states: &mut [f32]) {
        let qkv = layer.qkv.apply(states);
        let mut attended = vec![0.0; states.len()];
        let mut from = 0;
        for sequence in sequences {
            let until = from + sequence.len() * self.hidden;
            attend(&qkv[3 * from..3 * until], (self.hidden, self.heads), &mut attended[from..until]);
            from = until;
        }
        add(states, &layer.attended.apply(&attended));
        layer.attended_norm.apply(states);
        let mut wide = layer.widen.apply(states);
        gelu(&mut wide);
        add(states, &layer.narrow.apply(&wide));
        layer.norm.apply(states);
    }
}
