//! From a text to the numbers of its tokens.

use tokenizers::{Tokenizer, TruncationParams};

use super::EmbedError;
use super::files::ModelFiles;

/// Bytes of a token at least, on average, in what is still worth tokenizing: what lies after the last token has no say.
const TOKEN_BYTES_MAX: usize = 64;

/// The tokenizer of a model's folder, which cuts what is longer than the model's limit.
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    max_tokens: usize,
}

impl TextTokenizer {
    /// Reads `tokenizer.json`. A text is cut to as many tokens as the folder's files allow, and the model has
    /// positions. [`EmbedError::Model`] if it does not parse, or has more tokens than the model has word embeddings.
    pub fn new(files: &ModelFiles, words: usize, positions: usize) -> Result<TextTokenizer, EmbedError> {
        let tokenizer_error =
            |error: &dyn std::fmt::Display| files.model_error(format!("tokenizer.json is not understood: {error}"));
        let mut tokenizer = Tokenizer::from_bytes(&files.tokenizer).map_err(|error| tokenizer_error(&error))?;
        if tokenizer.get_vocab_size(true) > words {
            return Err(files.model_error("tokenizer.json has more tokens than the model has word embeddings"));
        }
        // The smallest limit of the model's files: positions, tokenizer truncation and sentence length.
        let truncated = tokenizer.get_truncation().map_or(positions, |truncation| truncation.max_length);
        let max_tokens = files.max_tokens.unwrap_or(positions).min(positions).min(truncated);
        tokenizer.with_padding(None);
        let truncation = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(|error| tokenizer_error(&error))?;
        Ok(TextTokenizer { tokenizer, max_tokens })
    }

    /// Returns the tokens of a text behind a prefix; never none. [`EmbedError::Refused`] if the tokenizer fails, or the
    /// text has none.
    pub fn tokens(&self, prefix: &str, text: &str) -> Result<Vec<u32>, EmbedError> {
        let end = text.floor_char_boundary(self.max_tokens.saturating_mul(TOKEN_BYTES_MAX));
        let refused = |error: tokenizers::Error| EmbedError::Refused(format!("a text can't be tokenized: {error}"));
        let encoding = if prefix.is_empty() {
            self.tokenizer.encode_fast(&text[..end], true)
        } else {
            self.tokenizer.encode_fast([prefix, &text[..end]].concat(), true)
        };
        let tokens = encoding.map_err(refused)?.get_ids().to_vec();
        if tokens.is_empty() { Err(EmbedError::Refused("a text has no tokens".to_owned())) } else { Ok(tokens) }
    }
}
