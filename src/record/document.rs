//! The document of `vectors/<id>.json` and the line of `export/records.jsonl`.

use super::float::{vector_bytes, write_vector};
use super::{Provenance, RecordContent, Version};

/// The text before each value of a document, and after the last.
const DOCUMENT: [&str; 12] = [
    "{\n\"id\": ",
    ",\n\"text\": ",
    ",\n\"metadata\": ",
    ",\n\"created\": \"",
    "\",\n\"modified\": \"",
    "\",\n\"branch\": ",
    ",\n\"agent\": ",
    ",\n\"session\": ",
    ",\n\"task\": ",
    ",\n\"uid\": ",
    ",\n\"vector\": ",
    "\n}\n",
];
/// The text behind the user if the text is newer than the vector.
const STALE: &str = ",\n\"vector_stale\": true";
/// The same for an export line.
const EXPORT: [&str; 12] = [
    "{\"id\":",
    ",\"text\":",
    ",\"metadata\":",
    ",\"created\":\"",
    "\",\"modified\":\"",
    "\",\"branch\":",
    ",\"agent\":",
    ",\"session\":",
    ",\"task\":",
    ",\"uid\":",
    ",\"vector\":",
    "}\n",
];
/// The text before the vector of an export line if the text is newer; else as many blanks, so that the length
/// of an export follows from sums.
const EXPORT_STALE: &str = ",\"vector_stale\":true";
const EXPORT_FRESH: &str = "                    ";
const _: () = assert!(EXPORT_STALE.len() == EXPORT_FRESH.len(), "one length");
const TIME_BYTES: usize = "2026-01-01T00:00:00.000000000Z".len();

/// Bytes of a document beside what [`json_bytes`] counts and the vector.
const DOCUMENT_FIXED_BYTES: usize = total(&DOCUMENT) + 2 * TIME_BYTES;
/// Bytes of an export line beyond those of [`json_bytes`] and the vector.
pub const EXPORT_LINE_FIXED_BYTES: usize = total(&EXPORT) + 2 * TIME_BYTES + EXPORT_FRESH.len();

const fn total(pieces: &[&str]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < pieces.len() {
        sum += pieces[at].len();
        at += 1;
    }
    sum
}

/// Returns how many bytes of a record's JSON vary: those of id, text, metadata and provenance.
pub fn json_bytes(id: &str, content: &RecordContent, provenance: &Provenance) -> u32 {
    let text = content.text.as_deref().map_or("null".len(), json_string_bytes);
    let labels: usize = [&provenance.branch, &provenance.agent, &provenance.session, &provenance.task]
        .into_iter()
        .map(|label| json_string_bytes(label))
        .sum();
    let uid = provenance.uid.checked_ilog10().map_or(1, |log| log as usize + 1);
    (json_string_bytes(id) + text + content.metadata.len() + labels + uid) as u32
}

/// Returns the length of [`write_document`]'s output for a version of that dimension, of which [`json_bytes`] is known.
/// Nothing is rendered.
pub fn document_bytes(json_bytes: u32, vector_stale: bool, dim: Option<usize>) -> u64 {
    let stale = if vector_stale { STALE.len() } else { 0 };
    (DOCUMENT_FIXED_BYTES + json_bytes as usize + stale + vector_bytes(dim)) as u64
}

/// Appends the document: one top-level key a line, the vector last.
pub fn write_document(out: &mut Vec<u8>, version: &Version) {
    let [vector, end] = write_up_to_vector(out, version, DOCUMENT);
    write_raw(out, if version.provenance.vector_stale { STALE } else { "" }, "");
    write_raw(out, vector, "");
    write_vector(out, version.content.vector.as_deref());
    write_raw(out, end, "");
}

/// Appends all keys before the vector, and returns the text before that and at the end.
fn write_up_to_vector(out: &mut Vec<u8>, version: &Version, pieces: [&'static str; 12]) -> [&'static str; 2] {
    let provenance = &version.provenance;
    let [id, text, metadata, created, modified, branch, agent, session, task, uid, vector, end] = pieces;
    write_text(out, id, Some(&version.id));
    write_text(out, text, version.content.text.as_deref());
    write_raw(out, metadata, &version.content.metadata);
    write_raw(out, created, &provenance.created.to_string());
    write_raw(out, modified, &provenance.modified.to_string());
    write_text(out, branch, Some(&provenance.branch));
    write_text(out, agent, Some(&provenance.agent));
    write_text(out, session, Some(&provenance.session));
    write_text(out, task, Some(&provenance.task));
    write_raw(out, uid, &provenance.uid.to_string());
    [vector, end]
}

/// Appends one line that `ingest` takes back.
pub fn write_export_line(out: &mut Vec<u8>, version: &Version) {
    let [vector, end] = write_up_to_vector(out, version, EXPORT);
    write_raw(out, if version.provenance.vector_stale { EXPORT_STALE } else { EXPORT_FRESH }, "");
    write_raw(out, vector, "");
    write_vector(out, version.content.vector.as_deref());
    write_raw(out, end, "");
}

/// Returns how many bytes a text takes as a JSON string, with its quotes and escapes.
pub fn json_string_bytes(text: &str) -> usize {
    let extra = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    };
    2 + text.len() + text.bytes().map(extra).sum::<usize>()
}

fn write_raw(out: &mut Vec<u8>, before: &str, value: &str) {
    out.extend_from_slice(before.as_bytes());
    out.extend_from_slice(value.as_bytes());
}

fn write_text(out: &mut Vec<u8>, before: &str, value: Option<&str>) {
    out.extend_from_slice(before.as_bytes());
    // Writing JSON into a vector can't fail.
    let _ = serde_json::to_writer(out, &value);
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::object::Time;
    use crate::record::{Provenance, RecordContent};

    fn version(vector: Option<&[f32]>, text: Option<&str>) -> Version {
        let content = RecordContent {
            vector: vector.map(Into::into),
            text: text.map(Into::into),
            metadata: "{\"a\":[1,\"x\"]}".into(),
        };
        let provenance = Provenance {
            created: Time(1),
            modified: Time(1_700_000_000_000_000_000),
            branch: "main/x".into(),
            agent: "an \"agent\"\u{1}".into(),
            session: "".into(),
            task: "t\n1".into(),
            uid: 1000,
            vector_stale: false,
        };
        Version::new("an id\\".into(), content, provenance)
    }

    #[test]
    fn the_lengths_are_known_without_rendering() {
        for vector in [None, Some(&[][..]), Some(&[1.0, -0.5][..])] {
            for text in [None, Some(""), Some("a\n\t\u{8}\u{c}\u{1f}\u{7f}\"é𝄞")] {
                for (uid, vector_stale) in [(0, false), (9, true), (10, false), (u32::MAX, true)] {
                    let mut version = version(vector, text);
                    (version.provenance.uid, version.provenance.vector_stale) = (uid, vector_stale);
                    version.json_bytes = json_bytes(&version.id, &version.content, &version.provenance);
                    let mut out = Vec::new();
                    write_document(&mut out, &version);
                    let dim = vector.map(<[f32]>::len);
                    assert_eq!(out.len() as u64, document_bytes(version.json_bytes, vector_stale, dim));
                    let mut line = Vec::new();
                    write_export_line(&mut line, &version);
                    assert_eq!(line.len(), EXPORT_LINE_FIXED_BYTES + version.json_bytes as usize + vector_bytes(dim));
                }
            }
        }
    }

    #[test]
    fn a_document_has_one_key_a_line_and_the_vector_last() {
        let mut out = Vec::new();
        let mut version = version(Some(&[1.0, -0.5]), Some("hello"));
        version.provenance.vector_stale = true;
        write_document(&mut out, &version);
        let text = String::from_utf8(out).unwrap();
        let keys: Vec<&str> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
        let provenance = ["created", "modified", "branch", "agent", "session", "task", "uid", "vector_stale"];
        assert_eq!(keys, [&["id", "text", "metadata"][..], &provenance, &["vector"]].concat());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&value["vector"][1], &value["task"], &value["uid"]),
            (&(-0.5).into(), &"t\n1".into(), &1000.into())
        );
    }

    #[test]
    fn an_export_line_says_who_and_when_and_can_be_written_back() {
        let mut out = Vec::new();
        let version = version(Some(&[1.0, -0.5]), Some("hello"));
        write_export_line(&mut out, &version);
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let mut document = Vec::new();
        write_document(&mut document, &version);
        assert_eq!(value, serde_json::from_slice::<serde_json::Value>(&document).unwrap());
    }

    #[test]
    fn the_hash_covers_content_and_not_the_stamp() {
        let one = version(Some(&[1.0]), Some("t"));
        let mut provenance = one.provenance.clone();
        provenance.modified = Time(5);
        assert_eq!(Version::new(one.id.clone(), one.content.clone(), provenance.clone()).hash, one.hash);
        let zero = version(Some(&[0.0]), Some("t"));
        assert_ne!(zero.hash, version(Some(&[-0.0]), Some("t")).hash);
        assert_ne!(version(None, None).hash, version(None, Some("")).hash);
        assert_ne!(version(None, None).hash, version(Some(&[]), None).hash);
    }
}
