//! Records as their writers give them: documents and lines of JSON, checked for form.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::branch::check_record_id;
use crate::memory::RecordError;
use crate::record::RecordContent;
use crate::vector::DIM_MAX;

/// Largest document of a record, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// A record as its writer gave it; not yet checked against the memory's dimension.
#[derive(Clone, Debug)]
pub struct RecordInput {
    /// The vector, finite numbers.
    pub vector: Option<Arc<[f32]>>,
    /// Text of the record; at most what the limit of a document leaves.
    pub text: Option<Arc<str>>,
    /// The metadata object as canonical JSON: sorted keys, no blanks.
    pub metadata: Arc<str>,
}

/// One edit of records.
#[derive(Clone, Debug)]
pub enum RecordEdit {
    /// A record is written, new or in place of an older version.
    Put {
        /// Id of the record, without `.json`.
        id: Arc<str>,
        /// What it says.
        draft: RecordInput,
    },
    /// A record is deleted; one that is not there is no error.
    Delete {
        /// Id of the record, without `.json`.
        id: Arc<str>,
    },
    /// A record gets another id and keeps `created`; a record of that id is replaced.
    Rename {
        /// The id it has.
        from: Arc<str>,
        /// The id it gets.
        to: Arc<str>,
    },
}

/// The keys of a document. Those that reading adds are accepted and ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys<'a> {
    id: Option<String>,
    #[serde(borrow)]
    vector: Option<&'a RawValue>,
    text: Option<String>,
    metadata: Option<Map<String, Value>>,
    delete: Option<bool>,
    #[serde(rename = "created")]
    _created: Option<IgnoredAny>,
    #[serde(rename = "modified")]
    _modified: Option<IgnoredAny>,
    #[serde(rename = "branch")]
    _branch: Option<IgnoredAny>,
    #[serde(rename = "agent")]
    _agent: Option<IgnoredAny>,
    #[serde(rename = "session")]
    _session: Option<IgnoredAny>,
}

impl<'a> Keys<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Keys<'a>, RecordError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(RecordError::TooLarge(bytes.len()));
        }
        serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            _ if ends_in_a_number(bytes, &error) => RecordError::Incomplete,
            serde_json::error::Category::Eof => RecordError::Incomplete,
            serde_json::error::Category::Syntax => RecordError::NotJson(error.into()),
            _ => RecordError::NotARecord(error.into()),
        })
    }

    fn draft(self) -> Result<RecordInput, RecordError> {
        if self.delete.is_some() {
            return Err(RecordError::Delete);
        }
        let vector = self.vector.map(|json| parse_numbers(json.get())).transpose()?.flatten();
        match &vector {
            None if self.text.is_none() => return Err(RecordError::Empty),
            Some(vector) => check_numbers(vector)?,
            None => {}
        }
        Ok(RecordInput {
            vector: vector.map(Arc::from),
            text: self.text.map(Arc::from),
            metadata: canonical(self.metadata.unwrap_or_default()),
        })
    }
}

fn canonical(metadata: Map<String, Value>) -> Arc<str> {
    serde_json::to_string(&Value::Object(metadata)).unwrap_or_default().into()
}

/// Tells whether the document just ends within a number, which the reader of raw values calls a
/// wrong number instead of an end.
fn ends_in_a_number(bytes: &[u8], error: &serde_json::Error) -> bool {
    let last_line = bytes.split(|byte| *byte == b'\n').next_back().unwrap_or_default();
    let at_end = error.column() >= last_line.len() && bytes.split(|byte| *byte == b'\n').count() == error.line();
    at_end && bytes.last().is_some_and(|byte| b"-+.eE".contains(byte)) && error.is_syntax()
}

/// Reads an array of numbers out of JSON that is known to be well-formed; nothing for `null`.
///
/// Each number is rounded to f32 once, from its decimal form: going through f64 could round twice.
fn parse_numbers(json: &str) -> Result<Option<Vec<f32>>, RecordError> {
    if json == "null" {
        return Ok(None);
    }
    let wrong = || RecordError::NotNumbers;
    let inside = json.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or_else(wrong)?.trim();
    if inside.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let number = |text: &str| {
        let text = text.trim();
        let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        text.parse::<f32>().ok().filter(|_| is_number).ok_or_else(wrong)
    };
    inside.split(',').map(number).collect::<Result<_, _>>().map(Some)
}

/// Checks what holds for vectors of any memory.
pub(in crate::memory) fn check_numbers(vector: &[f32]) -> Result<(), RecordError> {
    if !(1..=DIM_MAX).contains(&vector.len()) {
        return Err(RecordError::Length(vector.len()));
    }
    match vector.iter().position(|number| !number.is_finite()) {
        None => Ok(()),
        Some(at) => Err(RecordError::NotFinite(at)),
    }
}

impl RecordInput {
    /// Makes a draft out of a bare vector.
    pub fn of_vector(vector: Vec<f32>) -> Result<RecordInput, RecordError> {
        check_numbers(&vector)?;
        Ok(RecordInput { vector: Some(vector.into()), text: None, metadata: canonical(Map::new()) })
    }

    /// Returns the draft with that metadata.
    pub fn with_metadata(self, metadata: Map<String, Value>) -> RecordInput {
        RecordInput { metadata: canonical(metadata), ..self }
    }

    /// Parses the whole document of `vectors/<id>.json`. An `id` inside must equal `id`. Over
    /// 16 MiB: [`RecordError::TooLarge`]. Incomplete JSON: [`RecordError::Incomplete`].
    pub fn parse(id: &str, document: &[u8]) -> Result<RecordInput, RecordError> {
        let keys = Keys::parse(document)?;
        if let Some(other) = &keys.id
            && other != id
        {
            return Err(RecordError::OtherId { said: other.chars().take(80).collect(), id: id.to_owned() });
        }
        keys.draft()
    }

    /// Parses the beginning of a document: an error if it is wrong for certain, nothing while it is incomplete,
    /// the record once it is complete.
    pub fn parse_beginning(id: &str, beginning: &[u8]) -> Result<Option<RecordInput>, RecordError> {
        match RecordInput::parse(id, beginning) {
            Ok(record) => Ok(Some(record)),
            Err(RecordError::Incomplete) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the content as it is stored.
    pub(in crate::memory) fn into_content(self) -> RecordContent {
        RecordContent { vector: self.vector, text: self.text, metadata: self.metadata }
    }

    /// Returns how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let vector = self.vector.as_ref().map_or(0, |vector| size_of_val(&**vector));
        vector + self.text.as_ref().map_or(0, |text| text.len()) + self.metadata.len()
    }
}

impl RecordEdit {
    /// Parses one line of `ingest`; errors name the line by `number`, counted from 1. A line
    /// without an id gets the one that `fresh_id` gives.
    pub fn parse_line(line: &[u8], number: usize, fresh_id: &dyn Fn() -> Arc<str>) -> Result<RecordEdit, RecordError> {
        let parse = || {
            let mut keys = Keys::parse(line)?;
            let id: Option<Arc<str>> = keys.id.take().map(Arc::from);
            if let Some(id) = &id {
                check_record_id(id)?;
            }
            if keys.delete.take() != Some(true) {
                return Ok(RecordEdit::Put { id: id.unwrap_or_else(fresh_id), draft: keys.draft()? });
            }
            let id = id.ok_or(RecordError::NoId)?;
            if keys.vector.is_some() || keys.text.is_some() || keys.metadata.is_some() {
                return Err(RecordError::DeleteWithContent);
            }
            Ok(RecordEdit::Delete { id })
        };
        parse().map_err(|error: RecordError| error.in_line(number))
    }

    /// Returns the id of the record that the edit leaves behind or removes.
    pub fn id(&self) -> &Arc<str> {
        match self {
            RecordEdit::Put { id, .. } | RecordEdit::Delete { id } | RecordEdit::Rename { to: id, .. } => id,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::memory::Kind;

    fn code(document: &str) -> &'static str {
        RecordInput::parse("a", document.as_bytes()).unwrap_err().advice().code
    }

    #[test]
    fn documents_are_refused_for_one_named_reason_each() {
        assert_eq!(code("{\"vector\":[1,2"), "incomplete");
        assert_eq!(code("{\"vector\":[1,,2]}"), "not_json");
        assert_eq!(code("{\"vector\":[NaN]}"), "not_json");
        assert_eq!(code("{\"vector\":[1e39]}"), "not_finite");
        assert_eq!(code("{\"vector\":[[1]]}"), "bad_document");
        assert_eq!(code("{\"vector\":[1,\"2\"]}"), "bad_document");
        assert_eq!(code("{\"vector\":{}}"), "bad_document");
        assert_eq!(code("{\"vector\":[]}"), "wrong_dimension");
        assert_eq!(code("{\"metadata\":{}}"), "empty_record");
        assert_eq!(code("{\"id\":\"b\",\"text\":\"t\"}"), "other_id");
        assert_eq!(code("{\"text\":\"t\",\"colour\":1}"), "bad_document");
        assert_eq!(code("{\"text\":\"t\"} x"), "not_json");
        assert_eq!(code("[1]"), "bad_document");
        let large = format!("{{\"text\":\"{}\"}}", "x".repeat(DOCUMENT_BYTES_MAX));
        assert_eq!(RecordInput::parse("a", large.as_bytes()).unwrap_err().advice().kind, Kind::TooLarge);
    }

    #[test]
    fn what_reading_gives_can_be_written_back() {
        let document = br#"{"id":"a","text":null,"metadata":{"z":1,"a":{"y":2,"b":3}},"created":"x","modified":"x","branch":"main","agent":"x","session":"","vector":[0.5]}"#;
        let content = RecordInput::parse("a", document).unwrap().into_content();
        assert_eq!(&*content.metadata, r#"{"a":{"b":3,"y":2},"z":1}"#);
        assert_eq!(content.vector.as_deref(), Some(&[0.5][..]));
    }

    #[test]
    fn a_beginning_is_refused_only_when_it_is_wrong_for_certain() {
        let whole = br#"{"vector":[1.5,2],"text":"x"}"#;
        for end in 0..whole.len() {
            assert!(RecordInput::parse_beginning("a", &whole[..end]).unwrap().is_none());
        }
        assert!(RecordInput::parse_beginning("a", whole).unwrap().is_some());
        assert!(RecordInput::parse_beginning("a", b"hello").is_err());
        assert!(RecordInput::parse_beginning("a", br#"{"vector":["#).is_ok());
        assert!(RecordInput::parse_beginning("a", br#"{"text":7"#).is_err());
    }

    #[test]
    fn lines_put_delete_and_get_fresh_ids() {
        let fresh = || Arc::<str>::from("fresh");
        let put = RecordEdit::parse_line(br#"{"text":"x"}"#, 1, &fresh).unwrap();
        assert!(matches!(put, RecordEdit::Put { id, .. } if &*id == "fresh"));
        let delete = RecordEdit::parse_line(br#"{"id":"a","delete":true}"#, 1, &fresh).unwrap();
        assert!(matches!(delete, RecordEdit::Delete { id } if &*id == "a"));
        let error = RecordEdit::parse_line(br#"{"id":"a/b","text":"x"}"#, 7, &fresh).unwrap_err();
        assert!(error.to_string().starts_with("line 7: "), "{error}");
        assert!(RecordEdit::parse_line(br#"{"delete":true}"#, 1, &fresh).is_err());
    }
}
