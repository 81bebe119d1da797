//! A JSON array of records, as many tools write it.

use std::path::PathBuf;

use serde_json::value::RawValue;

use super::{InputRow, RowPosition, malformed};
use crate::cli::failure::CommandError;

/// Returns the elements of an array, each on one line, and how many bytes it takes. Fails if the bytes are not a JSON
/// array.
pub fn rows(
    path: PathBuf,
    bytes: &[u8],
) -> Result<impl Iterator<Item = Result<(InputRow, u64), CommandError>> + use<>, CommandError> {
    let elements: Vec<Box<RawValue>> = serde_json::from_slice(bytes)
        .map_err(|e| malformed(&path, format!("is no JSON array: {e}"), "for one record a line call it .jsonl"))?;
    Ok(elements.into_iter().enumerate().map(|(at, element)| {
        // Line ends occur between tokens only, never in strings.
        let bytes: Vec<u8> =
            element.get().bytes().map(|byte| if b"\r\n".contains(&byte) { b' ' } else { byte }).collect();
        let length = bytes.len() as u64;
        Ok((InputRow::Line { position: RowPosition::Element(at + 1), bytes }, length))
    }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn elements_become_lines_and_keep_their_spelling() {
        let array = b"[\n {\"id\": \"a\",\r\n  \"vector\": [0.10, 1e-3]},\n {\"id\":\"b\\n\"}]";
        let lines: Vec<Vec<u8>> = rows("x.json".into(), array)
            .unwrap()
            .map(|row| match row.unwrap().0 {
                InputRow::Line { bytes, .. } => bytes,
                InputRow::Vector { .. } => Vec::new(),
            })
            .collect();
        assert_eq!(lines, [&b"{\"id\": \"a\",    \"vector\": [0.10, 1e-3]}"[..], b"{\"id\":\"b\\n\"}"]);
        assert!(rows("x.json".into(), b"{}").is_err());
    }
}
