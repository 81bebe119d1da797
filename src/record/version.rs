//! A version of a record and the hash of its content.

use std::sync::{Arc, OnceLock};

use super::derived::text_hash;
use super::document::json_bytes;
use crate::object::{Context, Hash, Hasher, Time};
use crate::text::TermFrequencies;
use crate::vector::{self, Code};

static CONTEXT: Context = Context::new("engramfs 2026 record v1");

/// The content of a record. Equal content has an equal hash, whoever wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordContent {
    /// The vector, finite numbers only: 1 to [`vector::DIM_MAX`] of them; `None` if the record has
    /// none.
    pub vector: Option<Arc<[f32]>>,
    /// The text; `None` if there is none. Its limit is that of a document, 16 MiB of JSON.
    pub text: Option<Arc<str>>,
    /// The metadata object as canonical JSON: sorted keys, no blanks.
    pub metadata: Arc<str>,
}

/// Who wrote a version, where and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// When the record was first written.
    pub created: Time,
    /// When this version was written.
    pub modified: Time,
    /// Name path of the branch that wrote it, such as `main/agent-7`.
    pub branch: Arc<str>,
    /// Who was at work: `config/agent`, or the user's name.
    pub agent: Arc<str>,
    /// In which session; empty if none was set.
    pub session: Arc<str>,
    /// For which task; empty if none was set.
    pub task: Arc<str>,
    /// Uid of the user who wrote it.
    pub uid: u32,
    /// Whether the text is newer than the vector: it was changed and the vector's bits were not.
    pub vector_stale: bool,
}

#[cfg(test)]
impl Provenance {
    /// Returns one for tests that do not look at it.
    pub(crate) fn sample() -> Provenance {
        let empty: Arc<str> = "".into();
        Provenance {
            created: Time(1),
            modified: Time(1),
            branch: "main".into(),
            agent: "ann".into(),
            session: empty.clone(),
            task: empty,
            uid: 1000,
            vector_stale: false,
        }
    }
}

/// The keys under which filters find when a version was written, and the record: nanoseconds since 1970.
pub const TIME_KEYS: [&str; 2] = ["@created", "@modified"];

/// Returns what filters look at: a version's metadata, and with an `@` before each key who wrote it, where and when.
/// Metadata that is not an object counts as an empty one. Keys that begin with `@` may be replaced.
///
/// ```
/// use engramfs::object::Time;
/// use engramfs::record::{Provenance, filterable_metadata};
/// use serde_json::json;
///
/// let [branch, agent, session, task] = ["main/try-1", "ann", "", "t-7"].map(Into::into);
/// let (created, modified) = (Time(1), Time(2));
/// let provenance = Provenance { created, modified, branch, agent, session, task, uid: 1001, vector_stale: false };
/// let keys = filterable_metadata(json!({"lang": "rust"}), &provenance);
/// assert_eq!((&keys["lang"], &keys["@agent"], &keys["@uid"]), (&json!("rust"), &json!("ann"), &json!(1001)));
/// ```
pub fn filterable_metadata(metadata: serde_json::Value, provenance: &Provenance) -> serde_json::Value {
    let mut keys = if let serde_json::Value::Object(keys) = metadata { keys } else { serde_json::Map::new() };
    let texts = [
        ("@agent", &provenance.agent),
        ("@session", &provenance.session),
        ("@task", &provenance.task),
        ("@branch", &provenance.branch),
    ];
    for (key, text) in texts {
        keys.insert(key.to_owned(), (&**text).into());
    }
    keys.insert("@uid".to_owned(), provenance.uid.into());
    for (key, time) in TIME_KEYS.into_iter().zip([provenance.created, provenance.modified]) {
        keys.insert(key.to_owned(), time.0.into());
    }
    serde_json::Value::Object(keys)
}

/// One immutable version of a record.
#[derive(Clone, Debug)]
pub struct Version {
    /// Unique within a branch version.
    pub id: Arc<str>,
    /// Hash of id and content, whoever wrote it and when.
    pub hash: Hash,
    /// What it says: all that [`Version::hash`] covers beside the id.
    pub content: RecordContent,
    /// Who wrote it, where and when; not covered by [`Version::hash`].
    pub provenance: Provenance,
    /// Euclidean length of the vector, 0 without one.
    pub norm: f32,
    /// Bytes of id, text, metadata and provenance as JSON.
    pub json_bytes: u32,
    /// Number of terms in the document that text queries search.
    pub terms: u32,
    /// How often it holds each term, counted at the first text query.
    term_frequencies: OnceLock<TermFrequencies>,
    /// The vector's compact copy, made at the first vector query.
    code: OnceLock<QuantizedVector>,
    /// What filters look at, put together at the first filtered query.
    filterable_metadata: OnceLock<serde_json::Value>,
    /// The hash of the text that an embedder makes a vector of, if it shall.
    derivable_text_hash: OnceLock<Option<Hash>>,
}

/// A vector's int8 copy, with which queries are compared first.
#[derive(Clone, Debug)]
struct QuantizedVector {
    bytes: Box<[i8]>,
    scale: f32,
    residual: f32,
}

/// What follows from a version's content and was stored with it.
pub struct ComputedFields {
    /// See [`Version::hash`]; a segment compares it with the content before it hands a version out.
    pub hash: Hash,
    /// Euclidean; 0 without a vector.
    pub norm: f32,
    /// See [`Version::json_bytes`].
    pub json_bytes: u32,
    /// See [`Version::terms`].
    pub terms: u32,
}

/// Versions are equal when content and provenance are; the hash is compared for the content.
impl PartialEq for Version {
    fn eq(&self, other: &Version) -> bool {
        self.hash == other.hash && self.provenance == other.provenance
    }
}

impl Version {
    /// Makes a version and computes what follows from its content.
    pub fn new(id: Arc<str>, content: RecordContent, provenance: Provenance) -> Version {
        let hash = content.hash(&id);
        let norm = content.vector.as_deref().map_or(0.0, vector::norm);
        let json_bytes = json_bytes(&id, &content, &provenance);
        let terms = content.terms();
        Version::from_stored(id, content, provenance, ComputedFields { hash, norm, json_bytes, terms })
    }

    /// Returns the same content by the same author as another record.
    pub fn with_id(&self, id: Arc<str>) -> Version {
        Version::new(id, self.content.clone(), self.provenance.clone())
    }

    /// Makes a version out of what was stored with it: nothing is computed, and nothing checked.
    pub fn from_stored(
        id: Arc<str>,
        content: RecordContent,
        provenance: Provenance,
        computed: ComputedFields,
    ) -> Version {
        let ComputedFields { hash, norm, json_bytes, terms } = computed;
        Version {
            id,
            hash,
            content,
            provenance,
            norm,
            json_bytes,
            terms,
            term_frequencies: OnceLock::new(),
            code: OnceLock::new(),
            filterable_metadata: OnceLock::new(),
            derivable_text_hash: OnceLock::new(),
        }
    }

    /// Returns the compact copy of the vector, `None` if there is none.
    pub fn code(&self) -> Option<Code<'_>> {
        let vector = self.content.vector.as_deref()?;
        let compact = self.code.get_or_init(|| {
            let mut bytes = vec![0; vector.len()].into_boxed_slice();
            let (scale, residual) = vector::quantize(vector, &mut bytes);
            QuantizedVector { bytes, scale, residual }
        });
        Some(Code { bytes: &compact.bytes, scale: compact.scale, residual: compact.residual })
    }

    /// Returns what filters look at, see [`filterable_metadata`].
    pub fn filterable_metadata(&self) -> &serde_json::Value {
        self.filterable_metadata.get_or_init(|| filterable_metadata(self.content.metadata_value(), &self.provenance))
    }

    /// Returns how often the version's document holds each term.
    pub fn term_frequencies(&self) -> &TermFrequencies {
        self.term_frequencies.get_or_init(|| {
            TermFrequencies::from_document(self.content.text.as_deref(), &self.content.metadata_value())
        })
    }

    /// Returns the text to be embedded, if the record has no vector of its own or one that is older than the text.
    /// `None` for any other record, and for a blank text.
    pub fn derivable_text(&self) -> Option<&str> {
        let wants = self.content.vector.is_none() || self.provenance.vector_stale;
        self.content.text.as_deref().filter(|text| wants && !text.trim().is_empty())
    }

    /// Returns by what the vector of [`Version::derivable_text`] is found; `None` if there is no such text.
    pub fn derivable_text_hash(&self) -> Option<Hash> {
        *self.derivable_text_hash.get_or_init(|| self.derivable_text().map(text_hash))
    }

    /// Returns the bytes of id, vector, text and metadata as stored.
    pub fn raw_bytes(&self) -> u64 {
        (self.id.len() + self.content.bytes()) as u64
    }
}

impl RecordContent {
    /// Returns the bytes of vector, text and metadata as stored.
    pub fn bytes(&self) -> usize {
        let vector = self.vector.as_ref().map_or(0, |vector| size_of_val(&**vector));
        vector + self.text.as_ref().map_or(0, |text| text.len()) + self.metadata.len()
    }

    /// Returns the hash of the record `id` with this content: id, vector bits, text, metadata.
    pub fn hash(&self, id: &str) -> Hash {
        let mut hasher = Hasher::new(&CONTEXT);
        hasher.field(id.as_bytes());
        match &self.vector {
            None => hasher.update(&[0]),
            Some(vector) => {
                hasher.update(&[1]);
                hasher.field(bytemuck::cast_slice(vector));
            }
        }
        match &self.text {
            None => hasher.update(&[0]),
            Some(text) => {
                hasher.update(&[1]);
                hasher.field(text.as_bytes());
            }
        }
        hasher.field(self.metadata.as_bytes());
        hasher.finish()
    }

    fn terms(&self) -> u32 {
        let mut count = 0;
        if self.text.is_some() || self.metadata.len() > "{}".len() {
            crate::text::for_each_document_term(self.text.as_deref(), &self.metadata_value(), &mut |_| count += 1);
        }
        count
    }

    /// Returns the metadata, parsed anew by each call; null if it is no JSON.
    pub fn metadata_value(&self) -> serde_json::Value {
        serde_json::from_str(&self.metadata).unwrap_or_default()
    }
}
