//! The document of `vectors/<id>.json` and the line of `export/records.jsonl`.

use super::float::{vector_bytes, write_vector};
use super::{Provenance, Version};

/// What stands before each value of a document, and behind the last.
const DOCUMENT: [&str; 10] = [
    "{\n\"id\": ",
    ",\n\"text\": ",
    ",\n\"metadata\": ",
    ",\n\"created\": \"",
    "\",\n\"modified\": \"",
    "\",\n\"branch\": ",
    ",\n\"agent\": ",
    ",\n\"session\": ",
    ",\n\"vector\": ",
    "\n}\n",
];
/// The same for an export line.
const EXPORT: [&str; 5] = ["{\"id\":", ",\"text\":", ",\"metadata\":", ",\"vector\":", "}\n"];
/// Bytes of a time.
const TIME_BYTES: usize = "2026-01-01T00:00:00.000000000Z".len();

/// Bytes of a document beside id, text, metadata, the stamp's texts and the vector.
const DOCUMENT_BYTES: usize = total(&DOCUMENT) + 2 * TIME_BYTES;
/// Bytes of an export line beside id, text, metadata and the vector.
pub const EXPORT_BYTES: usize = total(&EXPORT);

const fn total(pieces: &[&str]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < pieces.len() {
        sum += pieces[at].len();
        at += 1;
    }
    sum
}

/// Returns the length of [`write_document`]'s output for a version of that stamp and dimension, whose
/// id, text and metadata take `json_bytes` as JSON. Nothing is rendered.
pub fn document_bytes(json_bytes: u32, stamp: &Provenance, dim: Option<usize>) -> u64 {
    let labels: usize =
        [&stamp.branch, &stamp.agent, &stamp.session].into_iter().map(|label| string_bytes(label)).sum();
    (DOCUMENT_BYTES + json_bytes as usize + labels + vector_bytes(dim)) as u64
}

/// Appends the document: one top-level key a line, the vector last.
pub fn write_document(out: &mut Vec<u8>, version: &Version) {
    let stamp = &version.stamp;
    let [id, text, metadata, created, modified, branch, agent, session, vector, end] = DOCUMENT;
    write_text(out, id, Some(&version.id));
    write_text(out, text, version.content.text.as_deref());
    write_raw(out, metadata, &version.content.metadata);
    write_raw(out, created, &stamp.created.to_string());
    write_raw(out, modified, &stamp.modified.to_string());
    write_text(out, branch, Some(&stamp.branch));
    write_text(out, agent, Some(&stamp.agent));
    write_text(out, session, Some(&stamp.session));
    write_raw(out, vector, "");
    write_vector(out, version.content.vector.as_deref());
    write_raw(out, end, "");
}

/// Appends one line that `ingest` takes back.
pub fn write_export_line(out: &mut Vec<u8>, version: &Version) {
    let [id, text, metadata, vector, end] = EXPORT;
    write_text(out, id, Some(&version.id));
    write_text(out, text, version.content.text.as_deref());
    write_raw(out, metadata, &version.content.metadata);
    write_raw(out, vector, "");
    write_vector(out, version.content.vector.as_deref());
    write_raw(out, end, "");
}

/// Returns the bytes of a text as a JSON string.
pub fn string_bytes(text: &str) -> usize {
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
        let stamp = Provenance {
            created: Time(1),
            modified: Time(1_700_000_000_000_000_000),
            branch: "main/x".into(),
            agent: "an \"agent\"\u{1}".into(),
            session: "".into(),
        };
        Version::new("an id\\".into(), content, stamp)
    }

    #[test]
    fn the_lengths_are_known_without_rendering() {
        for vector in [None, Some(&[][..]), Some(&[1.0, -0.5][..])] {
            for text in [None, Some(""), Some("a\n\t\u{8}\u{c}\u{1f}\u{7f}\"é𝄞")] {
                let version = version(vector, text);
                let mut out = Vec::new();
                write_document(&mut out, &version);
                let dim = vector.map(<[f32]>::len);
                assert_eq!(out.len() as u64, document_bytes(version.json_bytes, &version.stamp, dim));
                let mut line = Vec::new();
                write_export_line(&mut line, &version);
                let known = EXPORT_BYTES + version.json_bytes as usize + vector_bytes(vector.map(<[f32]>::len));
                assert_eq!(line.len(), known);
            }
        }
    }

    #[test]
    fn a_document_has_one_key_a_line_and_the_vector_last() {
        let mut out = Vec::new();
        write_document(&mut out, &version(Some(&[1.0, -0.5]), Some("hello")));
        let text = String::from_utf8(out).unwrap();
        let keys: Vec<&str> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(keys, ["id", "text", "metadata", "created", "modified", "branch", "agent", "session", "vector"]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["vector"][1], -0.5);
    }

    #[test]
    fn the_hash_covers_content_and_not_the_stamp() {
        let one = version(Some(&[1.0]), Some("t"));
        let mut stamp = one.stamp.clone();
        stamp.modified = Time(5);
        assert_eq!(Version::new(one.id.clone(), one.content.clone(), stamp.clone()).hash, one.hash);
        let zero = version(Some(&[0.0]), Some("t"));
        assert_ne!(zero.hash, version(Some(&[-0.0]), Some("t")).hash);
        assert_ne!(version(None, None).hash, version(None, Some("")).hash);
        assert_ne!(version(None, None).hash, version(Some(&[]), None).hash);
    }
}
