//! An embedder behind the OpenAI embeddings request: `POST URL/embeddings` (`{"model","input":[…]}`).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use ureq::Agent;
use ureq::http::StatusCode;

use super::{EmbedError, Embedder, TextKind, check_vectors};
use crate::sync::Deadline;

/// Texts of one request.
const BATCH_TEXTS: usize = 64;
/// How often a request is made again after one that may go well next time.
const RETRIES: u32 = 2;
/// What is waited before the first of them; before the second twice as much.
const BACKOFF: Duration = Duration::from_millis(250);
/// What is waited at most where a server says how long.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Bytes of an answer at most.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Characters of a server's error that are passed on.
const ERROR_CHARS_MAX: usize = 200;

/// Asks a server for vectors by the OpenAI embeddings request, 64 texts at a time.
pub struct HttpEmbedder {
    name: String,
    model: String,
    address: String,
    key: Option<SecretKey>,
    agent: Agent,
}

/// The key that the server asks for. It has no `Debug`, so that no log can hold it.
struct SecretKey(String);

#[derive(Serialize)]
struct EmbeddingsRequest<'a> {
    model: &'a str,
    input: &'a [&'a str],
    encoding_format: &'static str,
}

#[derive(Deserialize)]
struct EmbeddingsResponse {
    data: Vec<EmbeddingItem>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    #[serde(default)]
    index: Option<usize>,
    embedding: Vec<f32>,
}

enum RequestFailure {
    /// It may go well the next time, after so long where the server said so.
    Transient(EmbedError, Option<Duration>),
    /// It would go wrong again.
    Permanent(EmbedError),
}

impl HttpEmbedder {
    /// Asks nothing yet. `url` is the server's base, such as `http://localhost:8080/v1`.
    pub fn new(url: &str, model: &str, key: Option<&str>) -> HttpEmbedder {
        let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
        let base = base.trim_end_matches('/');
        let path = if base.ends_with("/embeddings") { base.to_owned() } else { format!("{base}/embeddings") };
        let address = query.map_or(path.clone(), |query| format!("{path}?{query}"));
        // No redirects: they would carry the texts to a server that nobody configured. Error bodies are read and
        // reported below.
        let config = Agent::config_builder().http_status_as_error(false).max_redirects(0).build();
        let key = key.filter(|key| !key.is_empty()).map(|key| SecretKey(key.to_owned()));
        HttpEmbedder { name: format!("{base}#{model}"), model: model.to_owned(), address, key, agent: config.into() }
    }

    fn request(&self, texts: &[&str], limit: Duration) -> Result<Vec<Vec<f32>>, RequestFailure> {
        let transient = |error| RequestFailure::Transient(error, None);
        let mut request = self.agent.post(&self.address).config().timeout_global(Some(limit)).build();
        if let Some(SecretKey(key)) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let body = EmbeddingsRequest { model: &self.model, input: texts, encoding_format: "float" };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let sent = request.header("content-type", "application/json").send(&body[..]);
        let unreachable = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => transient(EmbedError::TimedOut(limit.as_millis() as u64)),
            error => transient(EmbedError::Unreachable(self.redact_key(&error.to_string()))),
        };
        let mut response = sent.map_err(unreachable)?;
        let status = response.status();
        let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        // Bounded, since the server decides how much it sends; read for errors as well, whose text says what is wrong.
        let bytes = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(unreachable)?;
        if !status.is_success() {
            let complaint = format!("{status}: {}", self.redact_key(&String::from_utf8_lossy(&bytes)));
            return Err(if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
                RequestFailure::Transient(EmbedError::Unreachable(complaint), wait.map(Duration::from_secs))
            } else if matches!(status.as_u16(), 400 | 413 | 422) {
                // These are about the texts: other texts may go well. Anything else, such as a refused key, would be
                // the answer to all texts.
                RequestFailure::Permanent(EmbedError::Refused(complaint))
            } else {
                RequestFailure::Permanent(EmbedError::Unreachable(complaint))
            });
        }
        parse(&bytes, texts.len()).map_err(RequestFailure::Permanent)
    }

    /// Returns the beginning of a text that came from outside, without the key, which a server may repeat.
    fn redact_key(&self, text: &str) -> String {
        let text = match &self.key {
            // Before the text is cut, or a part of the key could be left at its end.
            Some(SecretKey(key)) => text.replace(key.as_str(), "…"),
            None => text.to_owned(),
        };
        text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(ERROR_CHARS_MAX).collect()
    }
}

fn parse(bytes: &[u8], texts: usize) -> Result<Vec<Vec<f32>>, EmbedError> {
    let answer: EmbeddingsResponse =
        serde_json::from_slice(bytes).map_err(|error| EmbedError::Answer(format!("it is not understood: {error}")))?;
    let mut vectors = vec![Vec::new(); answer.data.len()];
    for (place, item) in answer.data.into_iter().enumerate() {
        let index = item.index.unwrap_or(place);
        match vectors.get_mut(index) {
            Some(vector) if vector.is_empty() => *vector = item.embedding,
            _ => return Err(EmbedError::Answer(format!("index {index} stands twice or is too large"))),
        }
    }
    check_vectors(vectors, texts)
}

impl Embedder for HttpEmbedder {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn batch_texts_max(&self) -> usize {
        BATCH_TEXTS
    }

    fn embed(&self, _: TextKind, texts: &[&str], limit: Duration) -> Result<Vec<Vec<f32>>, EmbedError> {
        let deadline = Deadline::from_now(limit);
        let mut vectors = Vec::with_capacity(texts.len());
        for some in texts.chunks(BATCH_TEXTS) {
            let mut made = 0;
            loop {
                // One deadline for all batches and retries; once it has passed, the last request ends at once as timed
                // out.
                match self.request(some, deadline.remaining().max(Duration::from_millis(1))) {
                    Ok(found) => break vectors.extend(found),
                    Err(RequestFailure::Permanent(error)) => return Err(error),
                    Err(RequestFailure::Transient(error, wait)) => {
                        let pause = wait.unwrap_or(BACKOFF * 2u32.pow(made)).min(BACKOFF_MAX);
                        // A pause that lasts until the deadline would leave no time for the request after it.
                        if made == RETRIES || deadline.remaining() <= pause {
                            return Err(error);
                        }
                        std::thread::sleep(pause);
                        made += 1;
                    }
                }
            }
        }
        check_vectors(vectors, texts.len())
    }
}
