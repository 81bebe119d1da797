//! The layers of a BERT encoder (Devlin and others, 2018), for inference.

use super::EmbedError;
use super::files::ModelFiles;
use super::layer::{Dense, LayerNorm, add, attend, gelu};
use super::onnx::OnnxWeights;
use super::safetensors::SafetensorsWeights;
use super::weights::{WeightSource, WeightTensor};

/// A model with its weights, ready to run.
pub struct Bert {
    hidden: usize,
    heads: usize,
    word_embeddings: Vec<f32>,
    /// Of each position, the sum of its embedding and that of the first token type, which is all that is used.
    position_embeddings: Vec<f32>,
    norm: LayerNorm,
    layers: Vec<EncoderLayer>,
}

struct EncoderLayer {
    qkv: Dense,
    attention_output: Dense,
    attention_norm: LayerNorm,
    intermediate: Dense,
    output: Dense,
    norm: LayerNorm,
}

/// The weights by name, checked for their shapes.
struct Weights<'a> {
    files: &'a ModelFiles,
    source: Box<dyn WeightSource + 'a>,
}

impl Weights<'_> {
    fn weight_error(&self, name: &str, what: &str) -> EmbedError {
        self.files.model_error(format!("{}: {name} {what}", self.files.weights_name))
    }

    /// Returns a tensor of that many numbers, or any multiple of `row`.
    fn tensor(&self, name: &str, row: usize, rows: Option<usize>) -> Result<Vec<f32>, EmbedError> {
        let WeightTensor { shape, values } = self.source.tensor(name).map_err(|what| self.weight_error(name, &what))?;
        let fits = row > 0 && values.len().is_multiple_of(row) && rows.is_none_or(|rows| values.len() == row * rows);
        let is_whole = fits && !values.is_empty();
        if is_whole { Ok(values) } else { Err(self.weight_error(name, &format!("is of shape {shape:?}"))) }
    }

    fn dense(&self, name: &str, from: usize, to: usize) -> Result<(Vec<f32>, Vec<f32>), EmbedError> {
        let weight = format!("{name}.weight");
        let WeightTensor { shape, values } =
            self.source.matrix(name).map_err(|what| self.weight_error(&weight, &what))?;
        if shape != [to, from] {
            return Err(self.weight_error(&weight, &format!("is of shape {shape:?}")));
        }
        Ok((values, self.tensor(&format!("{name}.bias"), to, Some(1))?))
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
            attention_output: one("attention.output.dense", hidden, hidden)?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"), hidden)?,
            intermediate: one("intermediate.dense", hidden, wide)?,
            output: one("output.dense", wide, hidden)?,
            norm: self.norm(&name("output.LayerNorm"), hidden)?,
        })
    }
}

fn open_weights(files: &ModelFiles) -> Result<Box<dyn WeightSource + '_>, EmbedError> {
    let (name, layers) = (files.weights_name, files.config.num_hidden_layers);
    Ok(if name.ends_with(".onnx") {
        let weights = OnnxWeights::new(&files.weights, layers);
        Box::new(weights.map_err(|reason| files.model_error(format!("{name}: {reason}")))?)
    } else {
        let weights = SafetensorsWeights::new(&files.weights);
        Box::new(weights.map_err(|error| files.model_error(format!("{name} is not understood: {error}")))?)
    })
}

impl Bert {
    /// Reads the weights. [`EmbedError::Model`] if a tensor is missing or has another shape than `config.json` says.
    pub fn new(files: &ModelFiles) -> Result<Bert, EmbedError> {
        let weights = Weights { files, source: open_weights(files)? };
        let (hidden, heads) = (files.config.hidden_size, files.config.num_attention_heads);
        let word_embeddings = weights.tensor("embeddings.word_embeddings.weight", hidden, None)?;
        let mut position_embeddings = weights.tensor("embeddings.position_embeddings.weight", hidden, None)?;
        let types = weights.tensor("embeddings.token_type_embeddings.weight", hidden, None)?;
        position_embeddings.chunks_exact_mut(hidden).for_each(|position| add(position, &types[..hidden]));
        let norm = weights.norm("embeddings.LayerNorm", hidden)?;
        let layers =
            (0..files.config.num_hidden_layers).map(|number| weights.layer(number)).collect::<Result<_, _>>()?;
        Ok(Bert { hidden, heads, word_embeddings, position_embeddings, norm, layers })
    }

    /// Returns how many numbers a vector has: `hidden_size` of `config.json`.
    pub fn dim(&self) -> usize {
        self.hidden
    }

    /// Returns how many tokens it knows: their numbers are below that.
    pub fn vocabulary_size(&self) -> usize {
        self.word_embeddings.len() / self.hidden
    }

    /// Returns how many tokens a sequence may have at most.
    pub fn position_count(&self) -> usize {
        self.position_embeddings.len() / self.hidden
    }

    /// Returns the last states of all tokens of some sequences, one after the other. Sequences are not padded: what
    /// maps single tokens takes those of all sequences together, and attention each sequence alone.
    pub fn run(&self, sequences: &[Vec<u32>]) -> Vec<f32> {
        let mut states = Vec::with_capacity(sequences.iter().map(Vec::len).sum::<usize>() * self.hidden);
        for sequence in sequences {
            for (token, position) in sequence.iter().zip(self.position_embeddings.chunks_exact(self.hidden)) {
                let word = &self.word_embeddings[*token as usize * self.hidden..][..self.hidden];
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
        add(states, &layer.attention_output.apply(&attended));
        layer.attention_norm.apply(states);
        let mut wide = layer.intermediate.apply(states);
        gelu(&mut wide);
        add(states, &layer.output.apply(&wide));
        layer.norm.apply(states);
    }
}
