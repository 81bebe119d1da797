//! What writers say about a record: documents, lines of JSON and bare text, checked for form.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::record_input::{DOCUMENT_BYTES_MAX, RecordEdit, RecordInput, canonical_metadata, check_numbers};
use crate::branch::check_record_id;
use crate::memory::RecordError;
use crate::record::RecordContent;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A correction of a record. A part that is left out keeps its value at the commit.
#[derive(Clone, Debug, Default)]
pub struct RecordPatch {
    /// The vector: left out (outer `None`), removed (inner `None`), or finite numbers.
    pub vector: Option<Option<Arc<[f32]>>>,
    /// The text: left out (outer `None`), removed (inner `None`), or a new one.
    pub text: Option<Option<Arc<str>>>,
    /// The metadata: left out (`None`), or the whole object as canonical JSON, `{}` to remove it.
    pub metadata: Option<Arc<str>>,
    /// Whether the text is newer than the vector; `None` derives it from the change.
    pub vector_stale: Option<bool>,
    /// Whether it replaces the whole record: fields that are left out are removed.
    pub replaces: bool,
}

/// The keys of a document. Those that reading adds are accepted and ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentKeys<'a> {
    id: Option<String>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    vector: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "deserialize_present")]
    text: Option<Option<String>>,
    #[serde(default, deserialize_with = "deserialize_present")]
    metadata: Option<Option<Map<String, Value>>>,
    #[serde(default, deserialize_with = "deserialize_present")]
    vector_stale: Option<Option<bool>>,
    replace: Option<bool>,
    delete: Option<bool>,
    created: Option<IgnoredAny>,
    #[serde(rename = "modified")]
    _modified: Option<IgnoredAny>,
    #[serde(rename = "branch")]
    _branch: Option<IgnoredAny>,
    #[serde(rename = "agent")]
    _agent: Option<IgnoredAny>,
    #[serde(rename = "session")]
    _session: Option<IgnoredAny>,
    #[serde(rename = "task")]
    _task: Option<IgnoredAny>,
    #[serde(rename = "uid")]
    _uid: Option<IgnoredAny>,
}

/// Tells a key that is `null` from one that is left out.
fn deserialize_present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

/// What was written, told by its first letter: `{` begins a document.
enum Shape<'a> {
    Blank,
    Document(&'a [u8]),
    Text(&'a [u8]),
}

impl Shape<'_> {
    fn classify(bytes: &[u8]) -> Shape<'_> {
        let start = bytes.trim_ascii_start();
        let marked = start.strip_prefix(BYTE_ORDER_MARK);
        let rest = marked.unwrap_or(start).trim_ascii_start();
        match rest.first() {
            None => Shape::Blank,
            Some(b'{') => Shape::Document(rest),
            Some(_) => Shape::Text(marked.unwrap_or(bytes)),
        }
    }
}

impl<'a> DocumentKeys<'a> {
    fn parse(bytes: &'a [u8]) -> Result<DocumentKeys<'a>, RecordError> {
        serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            _ if ends_in_a_number(bytes, &error) => RecordError::Incomplete,
            serde_json::error::Category::Eof => RecordError::Incomplete,
            serde_json::error::Category::Syntax => RecordError::NotJson(error.into()),
            _ => RecordError::NotARecord(error.into()),
        })
    }

    fn patch(self) -> Result<RecordPatch, RecordError> {
        if self.delete.is_some() {
            return Err(RecordError::Delete);
        }
        let vector = self.vector.map(|json| parse_numbers(json.get())).transpose()?;
        if let Some(Some(vector)) = &vector {
            check_numbers(vector)?;
        }
        let patch = RecordPatch {
            vector: vector.map(|vector| vector.map(Arc::from)),
            text: self.text.map(|text| text.map(Arc::from)),
            metadata: self.metadata.map(|metadata| canonical_metadata(metadata.unwrap_or_default())),
            vector_stale: self.vector_stale.map(|stale| stale.unwrap_or(false)),
            replaces: self.replace.unwrap_or(false),
        };
        if patch.replaces && patch.is_without_content() { Err(RecordError::Empty) } else { Ok(patch) }
    }

    fn edit(mut self, number: usize, fresh_id: &dyn Fn() -> Arc<str>) -> Result<RecordEdit, RecordError> {
        let id: Option<Arc<str>> = self.id.take().map(Arc::from);
        if let Some(id) = &id {
            check_record_id(id)?;
        }
        if self.delete.take() != Some(true) {
            let patch = self.patch()?;
            return Ok(RecordEdit::Correct { id: id.unwrap_or_else(fresh_id), patch, line: number });
        }
        let id = id.ok_or(RecordError::NoId)?;
        let says = [self.vector.is_some(), self.text.is_some(), self.metadata.is_some(), self.replace.is_some()];
        if says.contains(&true) || self.vector_stale.is_some() {
            return Err(RecordError::DeleteWithContent);
        }
        Ok(RecordEdit::Delete { id })
    }
}

/// Returns whether the document just ends within a number, which the reader of raw values calls a wrong number instead
/// of an end.
fn ends_in_a_number(bytes: &[u8], error: &serde_json::Error) -> bool {
    let last_line = bytes.split(|byte| *byte == b'\n').next_back().unwrap_or_default();
    let at_end = error.column() >= last_line.len() && bytes.split(|byte| *byte == b'\n').count() == error.line();
    at_end && bytes.last().is_some_and(|byte| b"-+.eE".contains(byte)) && error.is_syntax()
}

/// Reads an array of numbers out of JSON that is known to be well-formed; `None` for `null`.
///
/// Each number is rounded to f32 once, from its decimal form: going through f64 could round twice.
fn parse_numbers(json: &str) -> Result<Option<Vec<f32>>, RecordError> {
    if json == "null" {
        return Ok(None);
    }
    let not_numbers = || RecordError::NotNumbers;
    let inside = json.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or_else(not_numbers)?.trim();
    if inside.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let number = |text: &str| {
        let text = text.trim();
        let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        text.parse::<f32>().ok().filter(|_| is_number).ok_or_else(not_numbers)
    };
    inside.split(',').map(number).collect::<Result<_, _>>().map(Some)
}

/// Largest line of an export in `ingest` and imports, in bytes: the keys that an export adds may take 64 KiB beside the
/// document. Any other line has at most the bytes of a document.
pub const EXPORTED_LINE_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + (64 << 10);

/// Returns how many bytes a text takes in the document that reading shows, whose length is limited.
fn json_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

/// Returns whether a record can do with a text alone: an empty one beside a vector is kept, and says nothing without.
fn has_content(text: &Option<Arc<str>>) -> bool {
    text.as_ref().is_some_and(|text| !text.is_empty())
}

/// Reads bare text, without the line end behind it.
fn parse_text(bytes: &[u8]) -> Result<&str, RecordError> {
    let text = std::str::from_utf8(bytes).map_err(|error| match error.error_len() {
        None => RecordError::Incomplete,
        Some(_) => RecordError::NotUtf8(error.valid_up_to()),
    })?;
    let length = json_bytes(text);
    if length > DOCUMENT_BYTES_MAX {
        return Err(RecordError::TooLarge(length));
    }
    let line = text.strip_suffix('\n').unwrap_or(text);
    Ok(line.strip_suffix('\r').filter(|_| line.len() < text.len()).unwrap_or(line))
}

impl RecordPatch {
    fn from_text(text: &str) -> RecordPatch {
        RecordPatch { text: Some(Some(text.into())), ..RecordPatch::default() }
    }

    /// Returns the patch that leads to that record, whatever was there before.
    pub(in crate::memory) fn from_record(record: &RecordInput) -> RecordPatch {
        RecordPatch {
            vector: Some(record.vector.clone()),
            text: Some(record.text.clone()),
            metadata: Some(record.metadata.clone()),
            vector_stale: None,
            replaces: true,
        }
    }

    /// Parses the bytes of `vectors/<id>.json`; `None` for white space alone. [`RecordError::TooLarge`] over 16 MiB,
    /// [`RecordError::Incomplete`] if a document breaks off, other errors if it is malformed or has another `id`.
    pub fn parse(id: &str, bytes: &[u8]) -> Result<Option<RecordPatch>, RecordError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(RecordError::TooLarge(bytes.len()));
        }
        match Shape::classify(bytes) {
            Shape::Blank => Ok(None),
            Shape::Text(text) if text.trim_ascii_start().starts_with(b"[") => Err(RecordError::BareArray),
            Shape::Text(text) => {
                Ok(Some(parse_text(text)?).filter(|text| !text.trim().is_empty()).map(Self::from_text))
            }
            Shape::Document(document) => {
                let keys = DocumentKeys::parse(document)?;
                if let Some(other) = &keys.id
                    && other != id
                {
                    return Err(RecordError::OtherId { said: other.chars().take(80).collect(), id: id.to_owned() });
                }
                keys.patch().map(Some)
            }
        }
    }

    /// Returns whether the bytes are bare text. Text is complete at any length.
    pub fn is_text(bytes: &[u8]) -> bool {
        matches!(Shape::classify(bytes), Shape::Text(_))
    }

    /// Parses the beginning of a document; `None` while it is incomplete. Fails if no continuation could be valid.
    pub fn parse_beginning(id: &str, beginning: &[u8]) -> Result<Option<RecordPatch>, RecordError> {
        match RecordPatch::parse(id, beginning) {
            Err(RecordError::Incomplete) => Ok(None),
            parsed => parsed,
        }
    }

    /// Returns whether it gives a record neither a text nor a vector, nor leaves it those.
    fn is_without_content(&self) -> bool {
        let gone = |key: Option<bool>| key.map_or(self.replaces, |there| !there);
        gone(self.vector.as_ref().map(Option::is_some)) && gone(self.text.as_ref().map(has_content))
    }

    /// Returns whether there may be neither a text nor a vector afterwards, for want of what it leaves as it is.
    pub(in crate::memory) fn may_leave_nothing(&self) -> bool {
        !matches!(self.vector, Some(Some(_))) && !self.text.as_ref().is_some_and(has_content)
    }

    /// Returns whether it replaces the whole content, so that the earlier version need not be read.
    pub(in crate::memory) fn is_whole(&self) -> bool {
        self.replaces || (self.vector.is_some() && self.text.is_some() && self.metadata.is_some())
    }

    /// Returns the corrected content of a record. [`RecordError::Empty`] if neither vector nor text are left.
    pub(in crate::memory) fn apply_to(&self, before: Option<&RecordContent>) -> Result<RecordContent, RecordError> {
        let before = before.filter(|_| !self.replaces);
        let content = RecordContent {
            vector: self.vector.clone().unwrap_or_else(|| before.and_then(|before| before.vector.clone())),
            text: self.text.clone().unwrap_or_else(|| before.and_then(|before| before.text.clone())),
            metadata: (self.metadata.clone())
                .unwrap_or_else(|| before.map_or_else(|| "{}".into(), |before| before.metadata.clone())),
        };
        let is_empty = content.vector.is_none() && !has_content(&content.text);
        if is_empty { Err(RecordError::Empty) } else { Ok(content) }
    }

    /// Returns how many bytes the patch has: 4 for each number, and those of text and metadata.
    pub fn bytes(&self) -> usize {
        let vector = self.vector.iter().flatten().map(|vector| size_of_val(&**vector));
        let text = self.text.iter().flatten().map(|text| text.len());
        vector.chain(text).sum::<usize>() + self.metadata.as_ref().map_or(0, |metadata| metadata.len())
    }
}

impl RecordEdit {
    /// Parses one line of `ingest`; errors name the line by `number`, counted from 1. A line that does not begin with
    /// `{` is a text. One without an id gets the one that `fresh_id` gives. `None` for white space.
    pub fn parse_line(
        line: &[u8],
        number: usize,
        fresh_id: &dyn Fn() -> Arc<str>,
    ) -> Result<Option<RecordEdit>, RecordError> {
        let parse = || {
            if line.len() > EXPORTED_LINE_BYTES_MAX {
                return Err(RecordError::TooLarge(line.len()));
            }
            match Shape::classify(line) {
                Shape::Blank => Ok(None),
                Shape::Document(document) => {
                    let keys = DocumentKeys::parse(document)?;
                    // All lines of an export say when.
                    if line.len() > DOCUMENT_BYTES_MAX && keys.created.is_none() {
                        return Err(RecordError::TooLarge(line.len()));
                    }
                    keys.edit(number, fresh_id).map(Some)
                }
                Shape::Text(text) => {
                    let text = parse_text(text).map_err(|error| match error {
                        RecordError::Incomplete => RecordError::NotUtf8(text.len()),
                        error => error,
                    })?;
                    let text = text.strip_suffix('\r').unwrap_or(text);
                    let patch = RecordPatch::from_text(text);
                    let correct = || RecordEdit::Correct { id: fresh_id(), patch, line: number };
                    Ok((!text.trim().is_empty()).then(correct))
                }
            }
        };
        parse().map_err(|error: RecordError| error.at_line(number))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::memory::Kind;

    fn code(document: &str) -> &'static str {
        RecordPatch::parse("a", document.as_bytes()).unwrap_err().advice().code
    }

    fn parsed_text(bytes: &[u8]) -> Option<String> {
        let patch = RecordPatch::parse("a", bytes).unwrap()?;
        assert!(patch.vector.is_none() && patch.metadata.is_none() && !patch.replaces);
        patch.text.unwrap().map(|text| text.to_string())
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
        assert_eq!(code("{\"metadata\":{},\"replace\":true}"), "empty_record");
        assert_eq!(code("{\"id\":\"b\",\"text\":\"t\"}"), "other_id");
        assert_eq!(code("{\"text\":\"t\",\"colour\":1}"), "bad_document");
        let text = RecordPatch::parse("a", br#"{"text":"t","colour":1}"#).unwrap_err().to_string();
        assert!(text.contains("unknown field `colour` at line 1") && !text.contains("delete"), "{text}");
        assert_eq!(code("{\"text\":\"t\",\"vector_stale\":1}"), "bad_document");
        assert_eq!(code("{\"text\":\"t\"} x"), "not_json");
        assert_eq!(code("[1]"), "bad_document");
        assert_eq!(code("\u{feff} ["), "bad_document");
        let large = format!("{{\"text\":\"{}\"}}", "x".repeat(DOCUMENT_BYTES_MAX));
        assert_eq!(RecordPatch::parse("a", large.as_bytes()).unwrap_err().advice().kind, Kind::TooLarge);
    }

    #[test]
    fn what_reading_gives_can_be_written_back() {
        let document = br#"{"id":"a","text":null,"metadata":{"z":1,"a":{"y":2,"b":3}},"created":"x","modified":"x","branch":"main","agent":"x","session":"","task":"","uid":3,"vector_stale":true,"vector":[0.5]}"#;
        let patch = RecordPatch::parse("a", document).unwrap().unwrap();
        let content = patch.apply_to(None).unwrap();
        assert_eq!(&*content.metadata, r#"{"a":{"b":3,"y":2},"z":1}"#);
        assert_eq!((content.vector.as_deref(), patch.vector_stale), (Some(&[0.5][..]), Some(true)));
    }

    #[test]
    fn metadata_have_one_form_for_each_key_and_number() {
        let canonical = |metadata: &str| {
            let document = format!(r#"{{"text":"t","metadata":{metadata}}}"#);
            RecordPatch::parse("a", document.as_bytes()).unwrap().unwrap().metadata.unwrap().to_string()
        };
        assert_eq!(canonical(r#"{"b": {"z":1, "y":2}, "a": 1, "a": "last"}"#), r#"{"a":"last","b":{"y":2,"z":1}}"#);
        let numbers = r#"{"n":[1,1.0,100.0,-9223372036854775808,18446744073709551615]}"#;
        assert_eq!(canonical(r#"{"n":[1, 1.0, 1e2, -9223372036854775808, 18446744073709551615]}"#), numbers);
        assert!(canonical(r#"{"n":18446744073709551616}"#).starts_with(r#"{"n":1.8446744073709552e"#));
    }

    #[test]
    fn a_key_that_is_left_out_stays_and_null_removes_it() {
        let before =
            RecordContent { vector: Some([1.0].into()), text: Some("old".into()), metadata: r#"{"a":1,"b":2}"#.into() };
        let after = |document: &str| {
            let patch = RecordPatch::parse("a", document.as_bytes()).unwrap().unwrap();
            let content = patch.apply_to(Some(&before)).ok()?;
            Some((content.vector.is_some(), content.text.map(|text| text.to_string()), content.metadata.to_string()))
        };
        let whole = r#"{"a":1,"b":2}"#;
        let expect = |vector, text: &str, metadata: &str| Some((vector, Some(text.to_owned()), metadata.to_owned()));
        assert_eq!(after("{}"), expect(true, "old", whole));
        assert_eq!(after(r#"{"text":"new"}"#), expect(true, "new", whole));
        assert_eq!(after("new"), expect(true, "new", whole));
        assert_eq!(after(r#"{"metadata":{"c":3}}"#), expect(true, "old", r#"{"c":3}"#));
        assert_eq!(after(r#"{"metadata":null,"vector":null}"#), expect(false, "old", "{}"));
        assert_eq!(after(r#"{"text":null}"#), Some((true, None, whole.to_owned())));
        assert_eq!(after(r#"{"text":null,"vector":null}"#), None);
        assert_eq!(after(r#"{"text":""}"#), expect(true, "", whole));
        assert_eq!(after(r#"{"text":"","vector":null}"#), None);
        assert_eq!(after(r#"{"text":"new","replace":true}"#), expect(false, "new", "{}"));
        assert_eq!(after(r#"{"text":"new","replace":false}"#), expect(true, "new", whole));
    }

    #[test]
    fn an_empty_text_is_none_where_there_is_no_vector() {
        let parse = |document: &str| RecordPatch::parse("a", document.as_bytes());
        let empty = |result: Result<RecordContent, RecordError>| matches!(result, Err(RecordError::Empty));
        assert!(matches!(parse(r#"{"text":"","replace":true}"#), Err(RecordError::Empty)));
        let patch = parse(r#"{"text":"","metadata":{"a":1}}"#).unwrap().unwrap();
        assert!(patch.may_leave_nothing() && empty(patch.apply_to(None)));
        let input = RecordInput { vector: None, text: Some("".into()), metadata: "{}".into() };
        assert!(empty(RecordPatch::from_record(&input).apply_to(None)));
        let beside = parse(r#"{"text":"","vector":[1]}"#).unwrap().unwrap();
        assert_eq!(beside.apply_to(None).unwrap().text.as_deref(), Some(""));
    }

    #[test]
    fn text_is_as_long_as_the_document_that_shows_it() {
        let quotes = |count: usize| "\"".repeat(count);
        assert!(RecordPatch::parse("a", quotes(DOCUMENT_BYTES_MAX / 2).as_bytes()).is_ok());
        let error = RecordPatch::parse("a", quotes(DOCUMENT_BYTES_MAX / 2 + 1).as_bytes()).unwrap_err();
        assert!(matches!(error, RecordError::TooLarge(_)), "{error}");
        assert_eq!(json_bytes("a\u{1}\n\"\u{e4}"), 1 + 6 + 2 + 2 + 2);
    }

    #[test]
    fn a_line_is_longer_than_a_document_by_what_an_export_adds_at_most() {
        for (keys, most) in [("", DOCUMENT_BYTES_MAX), (r#","created":"x""#, EXPORTED_LINE_BYTES_MAX)] {
            let line = |bytes: usize| format!(r#"{{"text":"t"{keys}}}{}"#, " ".repeat(bytes - 12 - keys.len()));
            let parse = |bytes: usize| RecordEdit::parse_line(line(bytes).as_bytes(), 1, &|| "a".into());
            assert!(matches!(parse(most), Ok(Some(_))), "{keys}");
            assert_eq!(parse(most + 1).unwrap_err().advice().kind, Kind::TooLarge, "{keys}");
        }
    }

    #[test]
    fn all_that_is_no_document_is_text_without_its_last_line_end() {
        assert_eq!(parsed_text(b"tea at four\n").unwrap(), "tea at four");
        assert_eq!(parsed_text(b"  two\nlines\n\n").unwrap(), "  two\nlines\n");
        assert_eq!(parsed_text(b"dos\r\n").unwrap(), "dos");
        assert_eq!(parsed_text(b"no end\r").unwrap(), "no end\r");
        assert_eq!(parsed_text("\u{feff}marked".as_bytes()).unwrap(), "marked");
        assert_eq!(parsed_text("\u{feff} \n{\"text\":\"t\"}".as_bytes()).unwrap(), "t");
        assert_eq!(parsed_text(b"7").unwrap(), "7");
        for blank in ["", " \n\t", "\u{feff}", "\u{feff} \n", "\u{3000}\n"] {
            assert_eq!(parsed_text(blank.as_bytes()), None, "{blank:?}");
        }
        assert!(matches!(RecordPatch::parse("a", b"caf\xe9 "), Err(RecordError::NotUtf8(3))));
        // A letter may go on in the next write, and at the commit it must be there.
        assert!(matches!(RecordPatch::parse("a", b"caf\xc3"), Err(RecordError::Incomplete)));
        assert!(RecordPatch::parse_beginning("a", b"caf\xc3").unwrap().is_none());
    }

    #[test]
    fn a_beginning_is_refused_only_when_it_is_wrong_for_certain() {
        let whole = br#"{"vector":[1.5,2],"text":"x"}"#;
        for end in 0..whole.len() {
            assert!(RecordPatch::parse_beginning("a", &whole[..end]).unwrap().is_none());
        }
        assert!(RecordPatch::parse_beginning("a", whole).unwrap().is_some());
        assert!(RecordPatch::parse_beginning("a", br#"{"vector":["#).is_ok());
        assert!(RecordPatch::parse_beginning("a", br#"{"text":7"#).is_err());
        assert!(RecordPatch::parse_beginning("a", b"{hello").is_err());
    }

    #[test]
    fn lines_put_delete_and_get_fresh_ids() {
        let fresh = || Arc::<str>::from("fresh");
        let line = |bytes: &[u8], number| RecordEdit::parse_line(bytes, number, &fresh);
        for text in [&br#"{"text":"x"}"#[..], b"x", b" x\r", b"[x]"] {
            let put = line(text, 1).unwrap().unwrap();
            assert!(matches!(put, RecordEdit::Correct { id, line: 1, .. } if &*id == "fresh"));
        }
        assert!(line(b" \r", 1).unwrap().is_none());
        let delete = line(br#"{"id":"a","delete":true}"#, 1).unwrap().unwrap();
        assert!(matches!(delete, RecordEdit::Delete { id } if &*id == "a"));
        let error = line(br#"{"id":"a/b","text":"x"}"#, 7).unwrap_err();
        assert!(error.to_string().starts_with("line 7: "), "{error}");
        assert!(line(br#"{"delete":true}"#, 1).is_err());
        assert!(line(br#"{"id":"a","delete":true,"replace":true}"#, 1).is_err());
        assert!(line(b"caf\xc3", 1).is_err());
    }

    #[test]
    fn a_patch_is_whole_if_it_replaces_or_says_each_part() {
        for (json, is_whole) in [
            (r#"{"text":"t","replace":true}"#, true),
            (r#"{"vector":null,"text":"t","metadata":{}}"#, true),
            (r#"{"vector":[1],"text":"t"}"#, false),
            (r#"{"text":"t","metadata":{}}"#, false),
            (r#"{"vector":[1],"metadata":{}}"#, false),
        ] {
            let patch = RecordPatch::parse("a", json.as_bytes()).unwrap().unwrap();
            assert_eq!(patch.is_whole(), is_whole, "{json}");
        }
    }
}
