//! Entries of a shared log as their writers give them: lines of JSON and bare text, checked for form.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::record_input::{canonical_metadata, check_numbers};
use crate::memory::{Error, SharedLogError};
use crate::record::{Provenance, RecordContent, Version};

/// The most bytes of a line, and of a text.
pub const ENTRY_BYTES_MAX: usize = 64 << 10;
/// Bytes of the longest `kind` or `event_id`.
const LABEL_BYTES_MAX: usize = 200;
/// The key under which an entry's metadata hold its kind.
pub const KIND_KEY: &str = "@kind";
/// The key under which an entry's metadata hold its `event_id`, by which a repeated append is recognized.
pub const EVENT_KEY: &str = "@event_id";
/// The key under which the metadata of some entries hold how many bytes the lines before it have.
pub const OFFSET_KEY: &str = "@offset";

/// The text of an entry that was purged, as far as it fits.
const PURGED: &str = "purged";

/// An entry to append, not yet checked against the memory's dimension.
#[derive(Clone, Debug)]
pub struct SharedLogEntryInput {
    /// The text: up to 64 KiB, not blank.
    pub text: Arc<str>,
    /// The vector, finite numbers; `None` if the entry has none of its own.
    pub vector: Option<Arc<[f32]>>,
    /// The metadata, with kind and `event_id` under keys that begin with `@`, which no writer's key may.
    metadata: Map<String, Value>,
    /// Identifies the entry among those of its writer: 1 to 200 bytes without control characters. `None` if the entry
    /// may be appended again.
    pub event_id: Option<Arc<str>>,
}

/// The keys of a line. Those that reading adds are accepted and ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogEntryKeys {
    text: Option<String>,
    vector: Option<Vec<f32>>,
    metadata: Option<Map<String, Value>>,
    kind: Option<String>,
    event_id: Option<EventId>,
    #[serde(rename = "entry_id")]
    _entry_id: Option<IgnoredAny>,
    #[serde(rename = "time")]
    _time: Option<IgnoredAny>,
    #[serde(rename = "agent")]
    _agent: Option<IgnoredAny>,
    #[serde(rename = "session")]
    _session: Option<IgnoredAny>,
    #[serde(rename = "task")]
    _task: Option<IgnoredAny>,
    #[serde(rename = "branch")]
    _branch: Option<IgnoredAny>,
    #[serde(rename = "uid")]
    _uid: Option<IgnoredAny>,
}

/// The line of an entry, its keys in the order in which readers get them.
#[derive(Serialize)]
struct LogEntryLine<'a> {
    entry_id: u64,
    time: String,
    agent: &'a str,
    session: &'a str,
    task: &'a str,
    branch: &'a str,
    uid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<Value>,
    text: &'a str,
    metadata: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "an event_id is a text of 1 to 200 bytes without control characters, or a whole number from 0 on"
)]
enum EventId {
    Name(String),
    Number(u64),
}

impl SharedLogEntryInput {
    /// Understands a line without its end: a JSON object where it begins with `{`, otherwise bare text.
    ///
    /// Kind `TooLarge` beyond 64 KiB, else `Invalid`, for a key that begins with `@`, a kind or an event id of more
    /// than 200 bytes, a vector that can't be one, or if there is no text.
    pub fn parse(line: &str) -> Result<SharedLogEntryInput, Error> {
        if line.len() > ENTRY_BYTES_MAX {
            return Err(SharedLogError::TooLong(line.len()).into());
        }
        if !line.trim_start().starts_with('{') {
            return SharedLogEntryInput::from_text(line.to_owned());
        }
        let keys: LogEntryKeys = serde_json::from_str(line).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => SharedLogError::NotAnEntry(Arc::new(error)),
            _ => SharedLogError::NotJson(Arc::new(error)),
        })?;
        let mut metadata = keys.metadata.unwrap_or_default();
        if let Some(key) = metadata.keys().find(|key| key.starts_with('@')) {
            return Err(SharedLogError::ReservedKey(key.chars().take(80).collect()).into());
        }
        let event_id = keys.event_id.map(|id| match id {
            EventId::Name(name) => name,
            EventId::Number(number) => number.to_string(),
        });
        for (key, stored, value) in [("kind", KIND_KEY, &keys.kind), ("event_id", EVENT_KEY, &event_id)] {
            if let Some(value) = value {
                check_label(key, value)?;
                metadata.insert(stored.to_owned(), Value::from(&**value));
            }
        }
        if let Some(vector) = &keys.vector {
            check_numbers(vector)?;
        }
        let text = keys.text.unwrap_or_default();
        let entry = SharedLogEntryInput::from_text(text)?;
        Ok(SharedLogEntryInput {
            vector: keys.vector.map(Arc::from),
            metadata,
            event_id: event_id.map(Arc::from),
            ..entry
        })
    }

    /// Makes an entry of a text alone. Kind `Invalid` if it is blank, `TooLarge` if it is too long.
    pub fn from_text(text: String) -> Result<SharedLogEntryInput, Error> {
        if text.trim().is_empty() {
            return Err(SharedLogError::NoText.into());
        }
        if text.len() > ENTRY_BYTES_MAX {
            return Err(SharedLogError::TooLong(text.len()).into());
        }
        Ok(SharedLogEntryInput { text: text.into(), vector: None, metadata: Map::new(), event_id: None })
    }

    /// Returns about how many bytes it takes in memory and on disk; metadata count by their number.
    pub fn bytes(&self) -> usize {
        let vector = self.vector.as_ref().map_or(0, |vector| size_of_val(&**vector));
        vector + self.text.len() + self.metadata.len() * (LABEL_BYTES_MAX / 4)
    }

    /// Returns the record that is stored for it. `offset` is the number of bytes that the lines of all entries
    /// before it have; every few entries it is kept in the metadata, so that a reader can begin there.
    pub fn content(&self, offset: Option<u64>) -> RecordContent {
        let mut metadata = self.metadata.clone();
        if let Some(offset) = offset {
            metadata.insert(OFFSET_KEY.to_owned(), Value::from(offset));
        }
        RecordContent {
            vector: self.vector.clone(),
            text: Some(self.text.clone()),
            metadata: canonical_metadata(metadata),
        }
    }
}

/// Appends the line of an entry. The same entry always gives the same line, and its length does not depend on the time: offsets
/// in `entries.jsonl` rest on that.
pub fn write_entry_line(entry: u64, content: &RecordContent, provenance: &Provenance, out: &mut Vec<u8>) {
    let mut metadata: Map<String, Value> = serde_json::from_str(&content.metadata).unwrap_or_default();
    metadata.remove(OFFSET_KEY);
    let line = LogEntryLine {
        entry_id: entry,
        time: provenance.created.to_string(),
        agent: &provenance.agent,
        session: &provenance.session,
        task: &provenance.task,
        branch: &provenance.branch,
        uid: provenance.uid,
        kind: metadata.remove(KIND_KEY),
        event_id: metadata.remove(EVENT_KEY),
        text: content.text.as_deref().unwrap_or_default(),
        metadata,
    };
    serde_json::to_writer(&mut *out, &line).expect("writing to memory does not fail");
    out.push(b'\n');
}

/// Returns what stays of a purged entry: its labels and provenance. Its line keeps its length in bytes, as offsets in
/// `entries.jsonl` depend on it.
pub fn purged_content(entry: u64, version: &Version) -> RecordContent {
    let metadata: Map<String, Value> = serde_json::from_str(&version.content.metadata).unwrap_or_default();
    let kept = metadata.into_iter().filter(|(key, _)| [OFFSET_KEY, KIND_KEY, EVENT_KEY].contains(&&**key)).collect();
    let left = RecordContent { vector: None, text: None, metadata: canonical_metadata(kept) };
    let length = |content: &RecordContent| {
        let mut line = Vec::new();
        write_entry_line(entry, content, &version.provenance, &mut line);
        line.len()
    };
    let width = length(&version.content).saturating_sub(length(&left));
    RecordContent { text: Some(format!("{PURGED:width$.width$}").into()), ..left }
}

/// Returns the entry that a line of `ingest` moves the cursor to; `None` if it is another line.
pub fn parse_cursor_line(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CursorLine {
        cursor: u64,
    }
    // Cheap test first: most lines are records, not entries.
    let is_short = line.len() <= LABEL_BYTES_MAX && line.trim_ascii_start().starts_with(b"{");
    is_short.then(|| serde_json::from_slice(line).ok()).flatten().map(|line: CursorLine| line.cursor)
}

fn check_label(key: &'static str, value: &str) -> Result<(), Error> {
    let fits = (1..=LABEL_BYTES_MAX).contains(&value.len()) && !value.chars().any(char::is_control);
    if fits { Ok(()) } else { Err(SharedLogError::BadLabel(key).into()) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::memory::Kind;

    #[test]
    fn a_line_is_an_object_or_a_text() {
        let entry =
            SharedLogEntryInput::parse(r#"{"text":"done","kind":"result","event_id":7,"metadata":{"b":1,"a":2}}"#)
                .unwrap();
        assert_eq!((&*entry.text, entry.event_id.as_deref()), ("done", Some("7")));
        assert_eq!(&*entry.content(None).metadata, r#"{"@event_id":"7","@kind":"result","a":2,"b":1}"#);
        assert_eq!(
            &*entry.content(Some(12)).metadata,
            r#"{"@event_id":"7","@kind":"result","@offset":12,"a":2,"b":1}"#
        );
        assert_eq!(&*SharedLogEntryInput::parse("[1] is a footnote").unwrap().text, "[1] is a footnote");
    }

    #[test]
    fn what_is_no_entry_is_refused_with_what_to_write() {
        let long = "x".repeat(ENTRY_BYTES_MAX + 1);
        for line in [
            "{\"text\":\"\"}",
            "{\"text\":7}",
            "{\"text\":\"a\",\"more\":1}",
            "{\"text\":\"a\"",
            "{\"text\":\"a\",\"metadata\":{\"@kind\":\"x\"}}",
            "{\"text\":\"a\",\"kind\":\"\"}",
            "{\"text\":\"a\",\"event_id\":\"a\\nb\"}",
            "{\"text\":\"a\",\"vector\":[]}",
            &long,
        ] {
            let error = SharedLogEntryInput::parse(line).unwrap_err();
            assert!(!error.hint().is_empty(), "{line}: {error}");
        }
    }

    #[test]
    fn an_event_id_of_another_form_is_refused_with_the_forms_there_are() {
        for id in ["1.5", "1.0", "-1", "true", "[1]", "{}"] {
            let error = SharedLogEntryInput::parse(&format!(r#"{{"text":"a","event_id":{id}}}"#)).unwrap_err();
            assert!(error.to_string().contains("an event_id is a text of 1 to 200 bytes"), "{id}: {error}");
        }
    }

    #[test]
    fn a_line_has_64_kib_and_an_event_id_200_bytes_at_most() {
        let kind = |line: String| SharedLogEntryInput::parse(&line).map_err(|error| error.kind()).err();
        let bare = |bytes: usize| kind("x".repeat(bytes));
        assert_eq!((bare(65_536), bare(65_537)), (None, Some(Kind::TooLarge)));
        let event = |bytes: usize| kind(format!(r#"{{"text":"a","event_id":"{}"}}"#, "e".repeat(bytes)));
        assert_eq!(
            (event(0), event(1), event(200), event(201)),
            (Some(Kind::Invalid), None, None, Some(Kind::Invalid))
        );
    }
}
