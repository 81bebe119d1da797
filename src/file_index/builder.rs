//! Making segments of the index: of contents, and of other segments.

use std::sync::Arc;

use super::content::{IndexKey, IndexableContent};
use super::index_segment::{IndexSegment, PassageLocation};
use super::passage::{PassageKey, split_passages};
use crate::segment::SegmentError;
use crate::text::PostingsWriter;
use crate::workspace::{Packs, TreeError};

/// Collects the sections of one segment. Contents come in ascending order of their keys, each followed by its passages.
#[derive(Default)]
struct SegmentBuilder {
    keys: Vec<u8>,
    first_rows: Vec<u8>,
    locations: Vec<u8>,
    passage_keys: Vec<u8>,
    rows: u32,
}

impl SegmentBuilder {
    /// Begins the content of a key, which is above the one before.
    fn begin_content(&mut self, key: &IndexKey) {
        self.keys.extend(key.0.0);
        self.first_rows.extend(self.rows.to_le_bytes());
    }

    /// Adds a passage to the content that was begun last; returns its row.
    fn add_passage(&mut self, location: &PassageLocation) -> u32 {
        for number in [location.line, location.start_byte, location.length_bytes] {
            self.locations.extend(number.to_le_bytes());
        }
        self.passage_keys.extend(location.key.0);
        self.rows += 1;
        self.rows - 1
    }

    fn finish(mut self, postings: PostingsWriter) -> Arc<IndexSegment> {
        self.first_rows.extend(self.rows.to_le_bytes());
        let sections = [self.keys, self.first_rows, self.locations, self.passage_keys, postings.finish()];
        Arc::new(IndexSegment::from_sections(sections))
    }
}

/// What [`index_contents`] came to: a content that can't be read keeps no other from being indexed.
pub struct IndexOutcome {
    /// Their segment; `None` if no content could be read.
    pub segment: Option<Arc<IndexSegment>>,
    /// Those that could not be read, and why.
    pub failed: Vec<(IndexKey, TreeError)>,
}

/// Indexes contents, each key once. Memory holds one text at a time, and the segment.
pub fn index_contents(mut contents: Vec<IndexableContent>, packs: &dyn Packs) -> IndexOutcome {
    contents.sort_unstable_by_key(|content| content.key);
    contents.dedup_by_key(|content| content.key);
    let (mut builder, mut postings, mut failed) = (SegmentBuilder::default(), PostingsWriter::new(), Vec::new());
    for content in &contents {
        let text = match content.text(packs) {
            Ok(text) => text,
            Err(error) => {
                // One content that can't be read must not keep all others from being found.
                failed.push((content.key, error));
                continue;
            }
        };
        // Also for a content without text: it is known to be indexed then, and is not read again.
        builder.begin_content(&content.key);
        let Some(text) = text else { continue };
        for passage in split_passages(&text, content.syntax) {
            let key = PassageKey::from_text(&text[passage.range.clone()]);
            let (start_byte, length_bytes) = (passage.range.start as u32, passage.range.len() as u32);
            let row = builder.add_passage(&PassageLocation { line: passage.line, start_byte, length_bytes, key });
            postings.add(row, Some(&passage.indexed_text(&text)), &serde_json::Value::Null);
        }
    }
    let segment = (!builder.keys.is_empty()).then(|| builder.finish(postings));
    IndexOutcome { segment, failed }
}

/// Makes one segment of several, without contents that `keep` does not want; `None` if nothing is left. Words are taken
/// over as they are indexed, no text is read again. An error of one of them is that of all.
pub fn merge_segments(
    segments: &[Arc<IndexSegment>],
    keep: impl Fn(&IndexKey) -> bool,
) -> Result<Option<Arc<IndexSegment>>, SegmentError> {
    let mut all: Vec<(IndexKey, usize, u32)> = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        for n in 0..segment.contents() {
            let key = segment.key(n)?;
            if keep(&key) {
                all.push((key, number, n));
            }
        }
    }
    all.sort_unstable();
    // Sorted by key, then by segment: of a content in several segments the first one's passages are taken.
    all.dedup_by_key(|(key, ..)| *key);
    let mut builder = SegmentBuilder::default();
    let mut rows: Vec<Vec<Option<u32>>> = segments.iter().map(|segment| vec![None; segment.rows() as usize]).collect();
    for (key, number, n) in &all {
        builder.begin_content(key);
        for row in segments[*number].content_rows(*n)? {
            rows[*number][row as usize] = Some(builder.add_passage(&segments[*number].passage_location(row)?));
        }
    }
    if all.is_empty() {
        return Ok(None);
    }
    let parts = segments.iter().map(|segment| segment.postings()).collect::<Result<Vec<_>, _>>()?;
    let row_of = |part: usize, row: u32| rows[part].get(row as usize).copied().flatten();
    Ok(Some(builder.finish(PostingsWriter::merged(&parts, row_of))))
}
