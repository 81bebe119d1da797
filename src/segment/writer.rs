//! Writing a segment out of unsealed versions and rows of older segments. What is read of older ones is checked
//! first, or damage would get a right hash here.

use std::collections::HashMap;
use std::sync::Arc;

use super::columns::{HAS_TEXT, HAS_VECTOR, KIND, StampLabels, VECTOR_STALE};
use super::row::version_totals;
use super::{Blocks, ContainerWriter, Row, RowTotals, SegmentError};
use crate::facet::FacetsWriter;
use crate::object::{BlobStore, Hash, SetHash, Writer};
use crate::record::{Provenance, Version, filterable_metadata};
use crate::text::PostingsWriter;
use crate::vector;

/// Bytes of a payload beside text and metadata: the row, two times, the stamp's number, flags, two lengths.
pub(super) const PAYLOAD_BYTES: u64 = 4 + 8 + 8 + 4 + 1 + 4 + 4;

/// Writes `rows`, which are sorted bytewise by id, into a new segment and returns its name.
///
/// All vectors must have `dim` numbers, which nobody checks here: [`Segment::open`](super::Segment::open) refuses a
/// file where one has another number. 4 GiB of ids at most. The columns are written one after the other, so memory
/// holds small columns only, never the vectors or the texts. Rows of older segments are read as those that are served,
/// so that no damage gets a right hash here: it is [`SegmentError::Damaged`], and there is no file.
pub fn write_segment(blobs: &BlobStore, rows: &[Row], dim: usize) -> Result<Hash, SegmentError> {
    let mut out = ContainerWriter::new(blobs)?;
    write_vectors(&mut out, rows, dim)?;
    // Sections are numbered as they begin, so these calls stand in the order of the format.
    let sum = write_ids_and_hashes(&mut out, rows)?;
    let ColumnSource { stamps, totals, postings, facets } = write_payloads(&mut out, rows)?;
    out.begin()?;
    for (labels, uid) in &stamps {
        let mut bytes = Writer::new();
        labels.iter().for_each(|label| {
            bytes.text(label);
        });
        bytes.number(u64::from(*uid));
        out.write(bytes.as_slice())?;
    }
    for index in [postings, facets] {
        out.begin()?;
        out.write(&index)?;
    }
    let mut extra = Writer::new();
    extra.number(rows.len() as u64).number(dim as u64);
    totals.write(&mut extra);
    extra.bytes(&sum.to_bytes());
    out.finish(KIND, extra.as_slice())
}

/// Sections 0 to 4.
fn write_vectors(out: &mut ContainerWriter<'_>, rows: &[Row], dim: usize) -> Result<(), SegmentError> {
    let zeros = vec![0f32; dim];
    let mut blocks = Blocks::default();
    out.begin()?;
    for row in rows {
        out.write(bytemuck::cast_slice(row.verified_vector(&mut blocks)?.as_deref().unwrap_or(&zeros)))?;
    }
    let (mut norms, mut scales, mut residuals) = (Vec::new(), Vec::new(), Vec::new());
    let mut code = vec![0i8; dim];
    out.begin()?;
    for row in rows {
        // Read a second time, since all vectors together may be more than fits into memory.
        let vector = row.verified_vector(&mut blocks)?;
        let vector = vector.as_deref();
        let (scale, residual) = vector::quantize(vector.unwrap_or(&zeros), &mut code);
        out.write(bytemuck::cast_slice(&code))?;
        norms.push(vector.map_or(-1.0, vector::norm));
        scales.push(scale);
        residuals.push(residual);
    }
    for column in [norms, scales, residuals] {
        out.begin()?;
        out.write(bytemuck::cast_slice(&column))?;
    }
    Ok(())
}

/// Sections 5 to 7.
fn write_ids_and_hashes(out: &mut ContainerWriter<'_>, rows: &[Row]) -> Result<SetHash, SegmentError> {
    let (mut end, mut blocks) = (0u32, Blocks::default());
    out.begin()?;
    for row in rows {
        end += row.verified_id(&mut blocks)?.len() as u32;
        out.write(&end.to_le_bytes())?;
    }
    out.begin()?;
    for row in rows {
        out.write(row.verified_id(&mut blocks)?.as_bytes())?;
    }
    let mut sum = SetHash::default();
    out.begin()?;
    for row in rows {
        let hash = row.hash()?;
        sum.add(&hash);
        out.write(&hash.0)?;
    }
    Ok(sum)
}

struct ColumnSource {
    stamps: Vec<StampLabels>,
    totals: RowTotals,
    postings: Vec<u8>,
    facets: Vec<u8>,
}

/// Sections 8 to 10.
fn write_payloads(out: &mut ContainerWriter<'_>, rows: &[Row]) -> Result<ColumnSource, SegmentError> {
    let mut totals = RowTotals::default();
    let (mut ends, mut lengths) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len() * 2));
    let (mut postings, mut facets) = (PostingsWriter::new(), FacetsWriter::new());
    let (mut end, mut blocks) = (0u64, Blocks::default());
    for (number, row) in rows.iter().enumerate() {
        let version = row.read_version(&mut blocks)?;
        let content = &version.content;
        let text_bytes = content.text.as_ref().map_or(0, |text| text.len());
        end += PAYLOAD_BYTES + (text_bytes + content.metadata.len()) as u64;
        ends.push(end);
        lengths.extend([version.json_bytes, version.terms]);
        totals.add(version_totals(&version));
        let metadata = content.metadata_value();
        if version.terms > 0 {
            postings.add(number as u32, content.text.as_deref(), &metadata);
        }
        facets.add(number as u32, &filterable_metadata(metadata, &version.provenance));
    }
    out.begin()?;
    out.write(bytemuck::cast_slice(&ends))?;
    // Rows are read a second time here, so that only one is in memory at a time.
    let mut stamps = Stamps::default();
    out.begin()?;
    for (row, version) in rows.iter().zip(0u32..).map(|(row, number)| (number, row.read_version(&mut blocks))) {
        let version = version?;
        let number = stamps.number(&version.provenance);
        out.write(&payload(row, &version, number))?;
    }
    out.begin()?;
    out.write(bytemuck::cast_slice(&lengths))?;
    Ok(ColumnSource { stamps: stamps.labels, totals, postings: postings.finish(), facets: facets.finish() })
}

fn payload(row: u32, version: &Version, stamp: u32) -> Vec<u8> {
    let content = &version.content;
    let text = content.text.as_deref();
    let has_text = if text.is_some() { HAS_TEXT } else { 0 };
    let has_vector = if content.vector.is_some() { HAS_VECTOR } else { 0 };
    let stale = if version.provenance.vector_stale { VECTOR_STALE } else { 0 };
    let text = text.unwrap_or_default();
    let mut out = Writer::new();
    out.raw(&row.to_le_bytes());
    out.signed(version.provenance.created.0).signed(version.provenance.modified.0).raw(&stamp.to_le_bytes());
    out.byte(has_text | has_vector | stale);
    out.raw(&(text.len() as u32).to_le_bytes()).raw(&(content.metadata.len() as u32).to_le_bytes());
    out.raw(text.as_bytes()).raw(content.metadata.as_bytes());
    out.finish()
}

/// Numbers the distinct labels in order of first use.
#[derive(Default)]
struct Stamps {
    numbers: HashMap<StampLabels, u32>,
    labels: Vec<StampLabels>,
}

impl Stamps {
    fn number(&mut self, provenance: &Provenance) -> u32 {
        let texts = [&provenance.branch, &provenance.agent, &provenance.session, &provenance.task].map(Arc::clone);
        let labels = (texts, provenance.uid);
        if let Some(number) = self.numbers.get(&labels) {
            return *number;
        }
        let number = self.labels.len() as u32;
        self.labels.push(labels.clone());
        self.numbers.insert(labels, number);
        number
    }
}
