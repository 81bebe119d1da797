//! A JSON array of records, as many tools write it.

use std::path::PathBuf;

use serde_json::json;
use serde_json::value::RawValue;

use super::{InputRow, RowPosition, malformed};
use crate::cli::failure::CommandError;

/// Returns the elements of an array, each on one line, and how many bytes it takes: objects as they are, strings as the text of a
/// record, unless the array `is_mapped`. Fails if the bytes are not a JSON array, and at an element that is no record.
pub fn rows(
    path: PathBuf,
    bytes: &[u8],
    is_mapped: bool,
) -> Result<impl Iterator<Item = Result<(InputRow, u64), CommandError>> + use<>, CommandError> {
    let elements: Vec<Box<RawValue>> = serde_json::from_slice(bytes)
        .map_err(|e| malformed(&path, format!("is no JSON array: {e}"), "for one record a line call it .jsonl"))?;
    Ok(elements.into_iter().enumerate().map(move |(at, element)| -> Result<(InputRow, u64), CommandError> {
        let length = element.get().len() as u64;
        // What a map takes is its own to say.
        let bytes = if is_mapped { Some(one_line(element.get())) } else { record_line(element.get()) };
        let bytes = bytes.ok_or_else(|| {
            let what = format!("holds no record in element {}", at + 1);
            malformed(&path, what, "write an object with text or vector, or a string, which is the text of a record")
        })?;
        Ok((InputRow::Line { position: RowPosition::Element(at + 1), bytes }, length))
    }))
}

/// Returns the line of an element's record; `None` for one that is no object and no string. A line with any other JSON would be
/// taken for a text of these very characters.
fn record_line(element: &str) -> Option<Vec<u8>> {
    if element.starts_with('{') {
        return Some(one_line(element));
    }
    let text: String = serde_json::from_str(element).ok()?;
    Some(json!({ "text": text }).to_string().into_bytes())
}

/// Returns an element on one line. Line ends occur between tokens only, never in strings.
fn one_line(element: &str) -> Vec<u8> {
    element.bytes().map(|byte| if b"\r\n".contains(&byte) { b' ' } else { byte }).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn lines(array: &[u8], is_mapped: bool) -> Result<Vec<Vec<u8>>, CommandError> {
        let bytes = |row: InputRow| match row {
            InputRow::Line { bytes, .. } => bytes,
            InputRow::Vector { .. } => Vec::new(),
        };
        rows("x.json".into(), array, is_mapped)?.map(|row| row.map(|(row, _)| bytes(row))).collect()
    }

    #[test]
    fn elements_become_lines_and_keep_their_spelling() {
        let array = b"[\n {\"id\": \"a\",\r\n  \"vector\": [0.10, 1e-3]},\n {\"id\":\"b\\n\"}]";
        assert_eq!(
            lines(array, false).unwrap(),
            [&b"{\"id\": \"a\",    \"vector\": [0.10, 1e-3]}"[..], b"{\"id\":\"b\\n\"}"]
        );
        assert!(rows("x.json".into(), b"{}", false).is_err());
    }

    #[test]
    fn a_string_is_a_text_and_what_is_no_record_is_refused_by_its_number() {
        assert_eq!(lines(b"[ \"two\\nlines\" ]", false).unwrap(), [b"{\"text\":\"two\\nlines\"}"]);
        for other in ["null", "true", "[3]", "1", "\"\\ud800\""] {
            let array = format!("[{{\"text\":\"a\"}},{other}]");
            let failure = lines(array.as_bytes(), false).unwrap_err();
            assert!(failure.message.contains("no record in element 2"), "{}", failure.message);
            // A map refuses all but objects by itself.
            assert_eq!(lines(array.as_bytes(), true).unwrap()[1], other.as_bytes());
        }
        assert_eq!(lines(b"[\"a\"]", true).unwrap(), [b"\"a\""]);
    }
}
