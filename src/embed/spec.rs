//! What is written where an embedder is set.

use std::fmt;
use std::path::PathBuf;

use super::http::HttpEmbedder;
use super::model::ModelEmbedder;
use super::process::ProcessEmbedder;
use super::{EmbedError, Embedder};

/// Names an embedder.
///
/// ```
/// use engramfs::embed::{EmbedError, EmbedderSpec};
///
/// let spec = EmbedderSpec::parse("http://localhost:8080/v1#minilm", &[]).unwrap();
/// assert!(matches!(&spec, EmbedderSpec::Server { model, .. } if model == "minilm"));
/// assert_eq!(spec.to_string(), "http://localhost:8080/v1#minilm");
/// assert_eq!(EmbedderSpec::parse("cmd:", &[]), Err(EmbedError::Spec("cmd:".to_owned())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbedderSpec {
    /// The model whose files are in a folder.
    Folder(PathBuf),
    /// A model of a server with the OpenAI embeddings request.
    Server {
        /// Base address: requests go to `/embeddings` below it.
        url: String,
        /// Name of the model in requests.
        model: String,
    },
    /// A command that stays and answers lines with lines.
    Command(String),
}

impl EmbedderSpec {
    /// Parses `cmd:COMMAND`, `URL#MODEL` or a folder; a name without `/` is looked for in the folders of models.
    ///
    /// [`EmbedError::Spec`] for anything else, and for an address with a user or a password in it. Whether the folder
    /// holds a model, or anybody answers, is not asked.
    pub fn parse(text: &str, model_folders: &[PathBuf]) -> Result<EmbedderSpec, EmbedError> {
        let spec_error = || EmbedError::Spec(text.to_owned());
        if let Some(command) = text.strip_prefix("cmd:") {
            let command = command.trim();
            return if command.is_empty() { Err(spec_error()) } else { Ok(EmbedderSpec::Command(command.to_owned())) };
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            let (url, model) = text.rsplit_once('#').filter(|(_, model)| !model.is_empty()).ok_or_else(spec_error)?;
            // A password belongs into the environment: the address is shown.
            let host = url.split('/').nth(2).unwrap_or_default();
            if host.is_empty() || host.contains('@') {
                return Err(spec_error());
            }
            return Ok(EmbedderSpec::Server { url: url.trim_end_matches('/').to_owned(), model: model.to_owned() });
        }
        if text.is_empty() {
            return Err(spec_error());
        }
        let plain = PathBuf::from(text);
        if !text.contains('/') && !plain.is_dir() {
            let found = model_folders.iter().map(|folder| folder.join(text)).find(|folder| folder.is_dir());
            return found.map(EmbedderSpec::Folder).ok_or_else(spec_error);
        }
        Ok(EmbedderSpec::Folder(std::path::absolute(&plain).unwrap_or(plain)))
    }

    /// Opens the embedder. A model is loaded whole; a server or command is not contacted yet. `key` is sent to a
    /// server. [`EmbedError::Model`] for a folder that can't be used.
    pub fn open(&self, key: Option<&str>) -> Result<Box<dyn Embedder>, EmbedError> {
        Ok(match self {
            EmbedderSpec::Folder(folder) => Box::new(ModelEmbedder::open(folder)?),
            EmbedderSpec::Server { url, model } => Box::new(HttpEmbedder::new(url, model, key)),
            EmbedderSpec::Command(command) => Box::new(ProcessEmbedder::new(command)),
        })
    }
}

impl fmt::Display for EmbedderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmbedderSpec::Folder(folder) => write!(f, "{}", folder.display()),
            EmbedderSpec::Server { url, model } => {
                write!(f, "{}#{model}", url.split('?').next().unwrap_or_default())
            }
            EmbedderSpec::Command(command) => {
                write!(f, "cmd:{}", command.split_whitespace().next().unwrap_or_default())
            }
        }
    }
}
