//! The files of a model's folder: `config.json`, `tokenizer.json`, the weights, and those of sentence-transformers.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::EmbedError;

/// Where the weights may be; the first that is there counts.
const WEIGHTS: [&str; 13] = [
    "model.safetensors",
    "model.onnx",
    "model_quantized.onnx",
    "model_int8.onnx",
    "model_uint8.onnx",
    "model_qint8_avx512.onnx",
    "model_quint8_avx2.onnx",
    "onnx/model.onnx",
    "onnx/model_quantized.onnx",
    "onnx/model_int8.onnx",
    "onnx/model_uint8.onnx",
    "onnx/model_qint8_avx512.onnx",
    "onnx/model_quint8_avx2.onnx",
];

/// Returns whether a folder has the weights of a model.
pub fn holds_model(folder: &Path) -> bool {
    WEIGHTS.iter().any(|name| folder.join(name).is_file())
}

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// That of the first token.
    Cls,
}

/// What `config.json` says of the layers.
#[derive(Clone, Debug, Deserialize)]
pub struct ModelConfig {
    /// The kind of model, such as `bert`.
    pub model_type: String,
    /// Numbers of a vector between layers, which is the dimension of the result.
    pub hidden_size: usize,
    /// How many layers there are, one after the other.
    pub num_hidden_layers: usize,
    /// Heads that [`ModelConfig::hidden_size`] is divided among.
    pub num_attention_heads: usize,
    /// Numbers of a vector within a layer.
    pub intermediate_size: usize,
    /// The activation between both, such as `gelu`.
    pub hidden_act: String,
    /// What is added to variances; 1e-12 where the file does not say.
    #[serde(default = "layer_norm_eps")]
    pub layer_norm_eps: f32,
    #[serde(default)]
    position_embedding_type: Option<String>,
}

fn layer_norm_eps() -> f32 {
    1e-12
}

/// `1_Pooling/config.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PoolingConfig {
    pooling_mode_cls_token: bool,
    pooling_mode_mean_tokens: bool,
    pooling_mode_max_tokens: bool,
    pooling_mode_mean_sqrt_len_tokens: bool,
}

/// `sentence_bert_config.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SentenceConfig {
    max_seq_length: Option<usize>,
}

/// `config_sentence_transformers.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptConfig {
    prompts: std::collections::BTreeMap<String, String>,
}

/// A line of `modules.json`.
#[derive(Deserialize)]
struct ModelModule {
    #[serde(rename = "type")]
    kind: String,
}

/// The content of a model's folder.
pub struct ModelFiles {
    /// Name of the folder. It is not hashed, so that a folder may be renamed.
    pub name: String,
    /// What is hashed of it: the files' own hashes, and what was read out of the small ones.
    pub description: Vec<u8>,
    /// The shape of the model, checked to be one that can be run.
    pub config: ModelConfig,
    /// The bytes of `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// The bytes of the file of weights.
    pub weights: Vec<u8>,
    /// The file of the weights, below the folder.
    pub weights_name: &'static str,
    /// How the vectors of tokens become that of a text; their mean where the folder does not say.
    pub pooling: Pooling,
    /// Whether that is scaled to length 1.
    pub normalize: bool,
    /// The most tokens of a text, where the folder says so.
    pub max_tokens: Option<usize>,
    /// What is put in front of a text, by [`TextKind`](crate::embed::TextKind).
    pub prefixes: [String; 2],
    folder: String,
}

impl ModelFiles {
    /// Reads the folder. [`EmbedError::Model`] if a file is missing, can't be read or parsed, or asks for what can't be
    /// run here.
    pub fn read(folder: &Path) -> Result<ModelFiles, EmbedError> {
        let reader = FolderReader { folder };
        let config: ModelConfig = reader.json("config.json")?.ok_or_else(|| reader.missing_file("config.json"))?;
        check(&config).map_err(|reason| reader.model_error(reason))?;
        let tokenizer = reader.file("tokenizer.json")?;
        let (weights_name, weights) = reader.weights()?;
        let pooling = pooling(reader.json("1_Pooling/config.json")?).map_err(|reason| reader.model_error(reason))?;
        let modules: Option<Vec<ModelModule>> = reader.json("modules.json")?;
        let normalize = modules.is_none_or(|modules| modules.iter().any(|module| module.kind.ends_with("Normalize")));
        let max_tokens = reader.json::<SentenceConfig>("sentence_bert_config.json")?.unwrap_or_default().max_seq_length;
        let mut prompts = reader.json::<PromptConfig>("config_sentence_transformers.json")?.unwrap_or_default().prompts;
        let query = prompts.remove("query").unwrap_or_default();
        let document = prompts.remove("document").or_else(|| prompts.remove("passage")).unwrap_or_default();
        let mut description = format!(
            "model {config:?} {pooling:?} {normalize} {max_tokens:?} {query:?} {document:?} {} ",
            blake3::hash(&tokenizer).to_hex()
        );
        description.push_str(&blake3::hash(&weights).to_hex());
        let name = folder.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned());
        Ok(ModelFiles {
            name,
            description: description.into_bytes(),
            config,
            tokenizer,
            weights,
            weights_name,
            pooling,
            normalize,
            max_tokens,
            prefixes: [query, document],
            folder: folder.display().to_string(),
        })
    }

    /// Returns the error that the folder is not of a form that can be run.
    pub fn model_error(&self, reason: impl Into<String>) -> EmbedError {
        EmbedError::Model { folder: self.folder.clone(), reason: reason.into() }
    }
}

fn check(config: &ModelConfig) -> Result<(), String> {
    let ModelConfig { model_type, hidden_act, hidden_size, num_attention_heads: heads, .. } = config;
    if model_type != "bert" {
        return Err(format!("its model_type is {model_type:?}, and \"bert\" can be run"));
    }
    if hidden_act != "gelu" {
        return Err(format!("its hidden_act is {hidden_act:?}, and \"gelu\" can be run"));
    }
    if config.position_embedding_type.as_deref().is_some_and(|kind| kind != "absolute") {
        return Err("its positions are not absolute".to_owned());
    }
    if *heads == 0 || *hidden_size == 0 || !hidden_size.is_multiple_of(*heads) {
        return Err(format!("{hidden_size} numbers can't be shared among {heads} heads"));
    }
    Ok(())
}

fn pooling(config: Option<PoolingConfig>) -> Result<Pooling, String> {
    let Some(config) = config else { return Ok(Pooling::Mean) };
    let others = config.pooling_mode_max_tokens || config.pooling_mode_mean_sqrt_len_tokens;
    match (config.pooling_mode_mean_tokens, config.pooling_mode_cls_token, others) {
        (true, false, false) => Ok(Pooling::Mean),
        (false, true, false) => Ok(Pooling::Cls),
        _ => Err("its pooling is neither the mean of the tokens nor the first token".to_owned()),
    }
}

struct FolderReader<'a> {
    folder: &'a Path,
}

impl FolderReader<'_> {
    fn model_error(&self, reason: impl Into<String>) -> EmbedError {
        EmbedError::Model { folder: self.folder.display().to_string(), reason: reason.into() }
    }

    fn missing_file(&self, name: &str) -> EmbedError {
        self.model_error(format!("it has no {name}"))
    }

    fn optional(&self, name: &str) -> Result<Option<Vec<u8>>, EmbedError> {
        match fs::read(self.folder.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(self.model_error(format!("{name} can't be read: {error}"))),
        }
    }

    fn file(&self, name: &str) -> Result<Vec<u8>, EmbedError> {
        self.optional(name)?.ok_or_else(|| self.missing_file(name))
    }

    fn weights(&self) -> Result<(&'static str, Vec<u8>), EmbedError> {
        for name in WEIGHTS {
            if let Some(bytes) = self.optional(name)? {
                return Ok((name, bytes));
            }
        }
        Err(self.model_error(
            "it has neither model.safetensors nor model.onnx, model_quantized.onnx or the like, nor one in onnx/",
        ))
    }

    fn json<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, EmbedError> {
        let Some(bytes) = self.optional(name)? else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| self.model_error(format!("{name} is not understood: {error}")))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn models_of_another_kind_activation_position_or_pooling_are_refused() {
        let is_run = |key: &str, value: &str| {
            let mut config = serde_json::json!({
                "model_type": "bert", "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3,
                "intermediate_size": 20, "hidden_act": "gelu",
            });
            config[key] = value.into();
            check(&serde_json::from_value(config).unwrap()).is_ok()
        };
        assert!(is_run("model_type", "bert") && is_run("position_embedding_type", "absolute"));
        assert!(!is_run("model_type", "roberta") && !is_run("hidden_act", "relu"));
        assert!(!is_run("position_embedding_type", "relative_key"));
        let pooled = |config: &str| pooling(serde_json::from_str(config).unwrap());
        assert_eq!(pooled("null"), Ok(Pooling::Mean), "where no file says it");
        assert_eq!(pooled(r#"{"pooling_mode_mean_tokens":true}"#), Ok(Pooling::Mean));
        assert_eq!(pooled(r#"{"pooling_mode_cls_token":true}"#), Ok(Pooling::Cls));
        for other in ["cls_token", "max_tokens", "mean_sqrt_len_tokens"] {
            let both = format!(r#"{{"pooling_mode_mean_tokens":true,"pooling_mode_{other}":true}}"#);
            pooled(&both).unwrap_err();
        }
    }

    #[test]
    fn weights_are_looked_for_in_the_order_of_the_page() {
        let page = include_str!("../../../docs/SEMANTICS.md");
        let (_, list) = page.split_once("first of these that is there:").unwrap();
        let (list, _) = list.split_once(", then those in `onnx/`").unwrap();
        let names: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        let in_onnx = names[1..].iter().map(|name| format!("onnx/{name}"));
        let order: Vec<String> = names.iter().map(|name| (*name).to_owned()).chain(in_onnx).collect();
        assert_eq!(WEIGHTS, *order);
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("onnx")).unwrap();
        assert!(!holds_model(folder.path()));
        for name in WEIGHTS.iter().rev() {
            fs::write(folder.path().join(name), name).unwrap();
            assert!(holds_model(folder.path()));
            let (found, bytes) = FolderReader { folder: folder.path() }.weights().unwrap();
            assert_eq!((found, &*bytes), (*name, name.as_bytes()), "it is before those that are there already");
        }
    }
}
