//! Records as their writers give them: documents and lines of JSON, checked for form.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::record_patch::RecordPatch;
use crate::memory::RecordError;
use crate::record::RecordContent;
use crate::vector::{DIM_MAX, Metric};

/// Largest document of a record, in bytes; a longer one is [`RecordError::TooLarge`].
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// The line of `ingest` that makes a batch skip unchanged records; see [`parse_skip_line`].
pub const SKIP_UNCHANGED_LINE: &str = "{\"skip_unchanged\":true}\n";
/// Bytes of the longest such line.
const SKIP_LINE_BYTES_MAX: usize = 64;

/// A record to write, not yet checked against the memory's dimension.
#[derive(Clone, Debug)]
pub struct RecordInput {
    /// The vector, finite numbers; `None` for a record of text alone.
    pub vector: Option<Arc<[f32]>>,
    /// The text; `None` for a record of a vector alone. Its length is bounded by that of a document.
    pub text: Option<Arc<str>>,
    /// The metadata object as canonical JSON: sorted keys, no blanks.
    pub metadata: Arc<str>,
}

/// One edit of records. Several edits of one id apply in order.
#[derive(Clone, Debug)]
pub enum RecordEdit {
    /// A record is written, new or in place of an older version.
    Put {
        /// Id of the record, without `.json`.
        id: Arc<str>,
        /// Vector, text and metadata; a part that is `None` is removed.
        input: RecordInput,
    },
    /// A record is corrected: the patch is applied to its version at the commit. A missing record is made.
    Correct {
        /// Id of the record, without `.json`.
        id: Arc<str>,
        /// What changes; everything else stays.
        patch: RecordPatch,
        /// The number of its line, from 1, for errors; 0 if there are no lines.
        line: usize,
    },
    /// A record is deleted; one that is not there is ignored.
    Delete {
        /// Id of the record, without `.json`.
        id: Arc<str>,
    },
    /// A record gets another id and keeps `created`.
    Rename {
        /// The id it has; a record has to be there.
        from: Arc<str>,
        /// The new id; a record that has it is replaced.
        to: Arc<str>,
    },
}

/// Returns whether unchanged records are skipped from this line of `ingest` on; `None` if it is another line.
pub fn parse_skip_line(line: &[u8]) -> Option<bool> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SkipLine {
        skip_unchanged: bool,
    }
    // Cheap test first: most lines are records.
    let is_short = line.len() <= SKIP_LINE_BYTES_MAX && line.trim_ascii_start().starts_with(b"{");
    is_short.then(|| serde_json::from_slice(line).ok()).flatten().map(|line: SkipLine| line.skip_unchanged)
}

/// Returns metadata as its one JSON text: keys in order, no blanks.
pub(super) fn canonical_metadata(metadata: Map<String, Value>) -> Arc<str> {
    serde_json::to_string(&Value::Object(metadata)).unwrap_or_default().into()
}

/// Checks what holds for vectors of any memory. [`RecordError::VectorLength`] unless there are 1 to 65,536 numbers,
/// [`RecordError::NotFinite`] for the first that is NaN or infinite.
pub(in crate::memory) fn check_numbers(vector: &[f32]) -> Result<(), RecordError> {
    if !(1..=DIM_MAX).contains(&vector.len()) {
        return Err(RecordError::VectorLength(vector.len()));
    }
    match vector.iter().position(|number| !number.is_finite()) {
        None => Ok(()),
        Some(at) => Err(RecordError::NotFinite(at)),
    }
}

/// Checks the vector, where there is one, against what is fixed below a root branch, or against the first one.
/// [`RecordError::Dimension`] or `ZeroVector` (where the metric needs a direction), else like [`check_numbers`].
pub(in crate::memory) fn check_vector(
    dim: Option<usize>,
    metric: Metric,
    content: &RecordContent,
    norm: f32,
) -> Result<(), RecordError> {
    let Some(vector) = &content.vector else { return Ok(()) };
    check_numbers(vector)?;
    if let Some(dim) = dim
        && dim != vector.len()
    {
        return Err(RecordError::Dimension { found: vector.len(), expected: dim });
    }
    if metric.needs_direction() && norm == 0.0 {
        return Err(RecordError::ZeroVector);
    }
    Ok(())
}

impl RecordInput {
    /// Makes an input out of a bare vector. [`RecordError::VectorLength`] unless it has 1 to 65,536 numbers,
    /// [`RecordError::NotFinite`] for NaN and infinity.
    pub fn from_vector(vector: Vec<f32>) -> Result<RecordInput, RecordError> {
        check_numbers(&vector)?;
        Ok(RecordInput { vector: Some(vector.into()), text: None, metadata: canonical_metadata(Map::new()) })
    }

    /// Returns the input with its metadata replaced, in canonical form.
    pub fn with_metadata(self, metadata: Map<String, Value>) -> RecordInput {
        RecordInput { metadata: canonical_metadata(metadata), ..self }
    }

    /// Returns how many bytes it takes: 4 for each number, the text and the metadata.
    pub fn bytes(&self) -> usize {
        let vector = self.vector.as_ref().map_or(0, |vector| size_of_val(&**vector));
        vector + self.text.as_ref().map_or(0, |text| text.len()) + self.metadata.len()
    }
}

impl RecordEdit {
    /// Returns the id of the record that the edit leaves behind or removes.
    pub fn id(&self) -> &Arc<str> {
        match self {
            RecordEdit::Put { id, .. }
            | RecordEdit::Correct { id, .. }
            | RecordEdit::Delete { id }
            | RecordEdit::Rename { to: id, .. } => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_takes_other_metadata_and_keeps_the_rest() {
        let input = RecordInput { vector: None, text: Some("x".into()), metadata: "{}".into() };
        let input = input.with_metadata([("b".into(), 1.into()), ("a".into(), 2.into())].into_iter().collect());
        assert_eq!((input.text.as_deref(), &*input.metadata), (Some("x"), r#"{"a":2,"b":1}"#));
    }

    #[test]
    fn the_line_that_skips_what_is_unchanged_has_one_key() {
        let lines =
            [SKIP_UNCHANGED_LINE, " { \"skip_unchanged\" : false }", "{\"skip_unchanged\":1}", "skip_unchanged"];
        assert_eq!(lines.map(|line| parse_skip_line(line.as_bytes())), [Some(true), Some(false), None, None]);
        assert_eq!(parse_skip_line(b"{\"skip_unchanged\":true,\"id\":\"a\"}"), None);
    }
}
