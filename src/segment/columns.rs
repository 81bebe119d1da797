//! The columns of a segment's rows.
//!
//! | section | content | width |
//! |---|---|---|
//! | 0 vectors | f32, row-major; zeros where a row has none | rows × dim × 4 |
//! | 1 codes | int8 copy for scans and walks | rows × dim |
//! | 2 norms | f32, euclidean length; -1 where a row has no vector | rows × 4 |
//! | 3 scales | f32, factor of the code | rows × 4 |
//! | 4 residuals | f32, bound of the code's error | rows × 4 |
//! | 5 id ends | u32, where each id ends in section 6 | rows × 4 |
//! | 6 ids | UTF-8, sorted bytewise; several rows may have one id | – |
//! | 7 hashes | content hash | rows × 32 |
//! | 8 payload ends | u64, where each payload ends in section 9 | rows × 8 |
//! | 9 payloads | row (u32), created, modified (i64), stamp (u32), flags, lengths, text, metadata | – |
//! | 10 lengths | u32 pairs: bytes of JSON with the provenance, number of terms | rows × 8 |
//! | 11 stamps | branch, agent, session, task and the uid | – |
//! | 12 postings | the inverted index of the rows' texts | – |
//! | 13 facets | the index of the rows' metadata | – |

use std::sync::{Arc, OnceLock};

use super::stem_cache::StemCache;
use super::totals::RowTotals;
use super::{Blocks, Container, DerivedFiles, GraphFile, SegmentError};
use crate::facet::Facets;
use crate::object::{BlobStore, CodecError, Hash, Reader, SetHash, Time};
use crate::record::{ComputedFields, Provenance, RecordContent, Version, json_bytes};
use crate::text::Postings;
use crate::vector::{self, Metric};

// Places of the sections in the file, as in the table above: readers find them by these alone, so a change needs a new `KIND`.
pub(super) const VECTORS: usize = 0;
pub(super) const CODES: usize = 1;
pub(super) const NORMS: usize = 2;
pub(super) const SCALES: usize = 3;
pub(super) const RESIDUALS: usize = 4;
pub(super) const ID_ENDS: usize = 5;
pub(super) const IDS: usize = 6;
pub(super) const HASHES: usize = 7;
pub(super) const PAYLOAD_ENDS: usize = 8;
pub(super) const PAYLOADS: usize = 9;
pub(super) const LENGTHS: usize = 10;
pub(super) const STAMPS: usize = 11;
pub(super) const POSTINGS: usize = 12;
pub(super) const FACETS: usize = 13;
/// Kind byte of a file of records; 1 was the form without facets, 3 the one whose payloads did not say of which row,
/// 7 the one whose stamps had no task, 8 the one whose lengths left the stamps out.
pub(super) const KIND: u8 = 9;

/// Flag of a payload: the row has a text.
pub(super) const HAS_TEXT: u8 = 1;
/// Flag of a payload: the row has a vector.
pub(super) const HAS_VECTOR: u8 = 2;
/// Flag of a payload: the row's text is newer than its vector.
pub(super) const VECTOR_STALE: u8 = 4;

/// The ids of a segment, one after the other.
#[derive(Clone, Copy)]
struct IdColumn<'a> {
    ends: &'a [u32],
    bytes: &'a [u8],
}

impl<'a> IdColumn<'a> {
    fn get(&self, row: u32) -> Option<&'a [u8]> {
        let start = if row == 0 { 0 } else { *self.ends.get(row as usize - 1)? };
        self.bytes.get(start as usize..*self.ends.get(row as usize)? as usize)
    }
}

/// What rows share of their stamps: branch, agent, session and task, and the uid.
pub(super) type StampLabels = ([Arc<str>; 4], u32);

struct Payload<'a> {
    provenance: Provenance,
    text: Option<&'a str>,
    metadata: &'a str,
    has_vector: bool,
}

/// An open segment: rows of records and their vectors, which never change.
///
/// It has [`Segment::rows`] rows in order of their ids, and all vectors have [`Segment::dim`] numbers, 0 if no row has
/// one. Opening reads the footer and the stamps alone; any other block is checked at its first use, and fails then.
pub struct Segment {
    /// The file, whose sections are the columns.
    pub(super) container: Container,
    rows: u32,
    dim: usize,
    record_set_hash: SetHash,
    totals: RowTotals,
    stamps: Vec<StampLabels>,
    /// Its neighbour graphs by metric, if they are built.
    pub(super) graphs: [OnceLock<Arc<GraphFile>>; Metric::ALL.len()],
    /// The terms of its index by their stem, as far as queries asked.
    pub(super) stems: StemCache,
    /// The vectors that embedders have made of its texts so far: one file for each embedder.
    pub(super) derived: DerivedFiles,
}

impl Segment {
    /// Opens the segment with that name; reads its footer and its stamps alone. [`SegmentError::Damaged`] if the file
    /// is none of rows of this version's form, or a column has another length than its rows.
    pub fn open(blobs: &BlobStore, name: Hash) -> Result<Segment, SegmentError> {
        let container = Container::open(blobs, name, KIND)?;
        let mut input = Reader::new(container.extra());
        let mut parse = || -> Result<_, CodecError> {
            let rows = u32::try_from(input.number()?).map_err(|_| CodecError::Number)?;
            let dim = usize::try_from(input.number()?).map_err(|_| CodecError::Number)?;
            let totals = RowTotals::read(&mut input)?;
            let record_set_hash = SetHash::from_bytes(input.bytes()?).ok_or(CodecError::Short)?;
            Ok((rows, dim, totals, record_set_hash))
        };
        // The number behind the last section stands for the footer.
        let (rows, dim, totals, record_set_hash) =
            parse().map_err(|error| container.damaged(FACETS + 1, &error.to_string()))?;
        // Before any column is used: a row below `rows` then lies within each column of fixed width.
        check_lengths(&container, rows, dim)?;
        let stamps = read_stamps(&container.read_section(STAMPS)?)
            .map_err(|error| container.damaged(STAMPS, &error.to_string()))?;
        Ok(Segment {
            container,
            rows,
            dim,
            record_set_hash,
            totals,
            stamps,
            graphs: Default::default(),
            stems: StemCache::default(),
            derived: DerivedFiles::default(),
        })
    }

    /// Returns the file's name, which is the hash of its footer.
    pub fn name(&self) -> Hash {
        self.container.name()
    }

    /// Returns the number of rows, whether or not a branch sees them.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the dimension of the vectors, 0 if no row has one.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the length of the file on disk in bytes, its footer included.
    pub fn file_bytes(&self) -> u64 {
        self.container.file_bytes()
    }

    /// Returns the set hash over all rows, whether some branch sees them or not.
    pub fn record_set_hash(&self) -> &SetHash {
        &self.record_set_hash
    }

    /// Returns the sums over all rows, whether some branch sees them or not.
    pub fn totals(&self) -> RowTotals {
        self.totals
    }

    /// Returns a row's id. The columns of ids are mapped, and checked whole at the first call. `SegmentError::Damaged`
    /// also for a row after the last and an id that is not UTF-8.
    pub fn id(&self, row: u32) -> Result<&str, SegmentError> {
        let bytes = self.ids()?.get(row).ok_or_else(|| self.container.damaged(IDS, "a row points behind its end"))?;
        std::str::from_utf8(bytes).map_err(|_| self.container.damaged(IDS, "an id is not UTF-8"))
    }

    /// Returns the first row at or after `from` whose id is not below `id`. Returns the number of rows if all ids are
    /// below it, or `from` is not a row. Steps grow from `from` on, so that each look-up of a walk through ascending
    /// ids is cheap. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the columns of ids can't be read or are
    /// damaged.
    pub fn lower_bound(&self, id: &str, from: u32) -> Result<u32, SegmentError> {
        let ids = self.ids()?;
        let below = |row: u32| ids.get(row).is_some_and(|found| found < id.as_bytes());
        if self.rows == 0 || from >= self.rows || below(self.rows - 1) {
            return Ok(self.rows);
        }
        let (mut low, mut high, mut step) = (from, from, 1u32);
        while high < self.rows && below(high) {
            low = high + 1;
            high = high.saturating_add(step).min(self.rows);
            step = step.saturating_mul(2);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if below(middle) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// The ids of all rows; the whole columns are checked at the first look-up.
    fn ids(&self) -> Result<IdColumn<'_>, SegmentError> {
        let ends = bytemuck::try_cast_slice(self.container.section(ID_ENDS)?);
        let ends = ends.map_err(|_| self.container.damaged(ID_ENDS, "it is not aligned"))?;
        Ok(IdColumn { ends, bytes: self.container.section(IDS)? })
    }

    /// Returns a row's content hash. `SegmentError::Damaged` for a row after the last, or if the block it lies in does
    /// not match its hash.
    pub fn hash(&self, row: u32) -> Result<Hash, SegmentError> {
        let bytes = self.container.slice(HASHES, u64::from(row) * 32, 32)?;
        Ok(Hash(bytes.try_into().unwrap_or_default()))
    }

    /// Returns all content hashes, row after row, 32 bytes each. The first call reads and checks them whole:
    /// [`SegmentError::Io`] or [`SegmentError::Damaged`] if a block can't be read or is not what was written.
    pub fn hashes(&self) -> Result<&[u8], SegmentError> {
        self.container.section(HASHES)
    }

    /// Returns a row's vector, [`Segment::dim`] numbers straight from the mapping; `None` if the row has none. For
    /// replies use [`Segment::verified_vector`]. `SegmentError::Damaged` for a row after the last, or if the block it
    /// lies in does not match its hash.
    pub fn vector(&self, row: u32) -> Result<Option<&[f32]>, SegmentError> {
        if self.norm(row)? < 0.0 {
            return Ok(None);
        }
        let width = self.dim as u64 * 4;
        let bytes = self.container.slice(VECTORS, u64::from(row) * width, width)?;
        self.floats(VECTORS, bytes).map(Some)
    }

    /// Returns a row's euclidean length, -1 where it has no vector. `SegmentError::Damaged` for a row after the last,
    /// or if the block it lies in does not match its hash.
    pub fn norm(&self, row: u32) -> Result<f32, SegmentError> {
        self.f32(NORMS, row)
    }

    /// Returns the euclidean lengths of all rows, -1 where one has no vector. The first call reads and checks them
    /// whole: [`SegmentError::Io`] or [`SegmentError::Damaged`] if a block can't be read or is not what was written.
    pub fn norms(&self) -> Result<&[f32], SegmentError> {
        self.floats(NORMS, self.container.section(NORMS)?)
    }

    /// Returns the int8 copies of all rows, row-major, rows × dim; zeros if a row has no vector. The first call reads
    /// and checks them whole: [`SegmentError::Io`] or [`SegmentError::Damaged`] if a block can't be read or is not what
    /// was written.
    pub fn codes(&self) -> Result<&[i8], SegmentError> {
        Ok(bytemuck::cast_slice(self.container.section(CODES)?))
    }

    /// Reads and checks what queries search, which else the first one would wait for: the columns of ids and of codes, and
    /// the indexes of texts and metadata. [`SegmentError::Io`] or [`SegmentError::Damaged`] if one of them can't be read or
    /// is damaged.
    pub fn prefetch(&self) -> Result<(), SegmentError> {
        self.ids()?;
        self.scales()?;
        self.norms()?;
        self.codes()?;
        self.postings()?;
        self.facets().map(drop)
    }

    /// Returns for each row the scale of its int8 copy, and the length of what that copy leaves out. The first call
    /// reads and checks both whole: [`SegmentError::Io`] or [`SegmentError::Damaged`] if a block can't be read or is
    /// not what was written.
    pub fn scales(&self) -> Result<(&[f32], &[f32]), SegmentError> {
        let scales = self.floats(SCALES, self.container.section(SCALES)?)?;
        Ok((scales, self.floats(RESIDUALS, self.container.section(RESIDUALS)?)?))
    }

    /// Returns the bytes of a row's id, text and metadata as JSON, and its number of terms. `SegmentError::Damaged` for
    /// a row after the last, or if the block it lies in does not match its hash.
    pub fn json_bytes_and_terms(&self, row: u32) -> Result<(u32, u32), SegmentError> {
        let bytes = self.container.slice(LENGTHS, u64::from(row) * 8, 8)?;
        let length = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        Ok((length(&bytes[..4]), length(&bytes[4..])))
    }

    /// Returns the inverted index. Its rows are those of the segment. The first call reads and checks it whole.
    /// `SegmentError::Damaged` if a block does not match its hash, or the bytes are not postings.
    pub fn postings(&self) -> Result<Postings<'_>, SegmentError> {
        let bytes = self.container.section(POSTINGS)?;
        Postings::open(bytes).map_err(|error| self.container.damaged(POSTINGS, &error.to_string()))
    }

    /// Returns the index of the metadata. The first call reads and checks it whole. `SegmentError::Damaged` if a block
    /// does not match its hash, or the bytes are not an index of so many rows.
    pub fn facets(&self) -> Result<Facets<'_>, SegmentError> {
        let facets = Facets::open(self.container.section(FACETS)?);
        let facets = facets.map_err(|error| self.container.damaged(FACETS, &error.to_string()))?;
        // Rows that filters let through are looked up in other columns, which have `rows` of them.
        if facets.rows() != self.rows {
            return Err(self.container.damaged(FACETS, "it has another number of rows"));
        }
        Ok(facets)
    }

    /// Reads a whole row to serve it or to write it again.
    ///
    /// What is returned has been hashed: [`SegmentError::Damaged`] if it is not what its content hash and its length
    /// say.
    pub fn version(&self, row: u32, blocks: &mut Blocks) -> Result<Version, SegmentError> {
        let payload = self.read_payload(row, blocks)?;
        let payload = self.parse(row, &payload)?;
        let content = RecordContent {
            vector: if payload.has_vector { Some(self.read_vector(row, blocks)?) } else { None },
            text: payload.text.map(Arc::from),
            metadata: payload.metadata.into(),
        };
        let (id, hash) = (self.id(row)?, self.hash(row)?);
        let (stored_bytes, terms) = self.json_bytes_and_terms(row)?;
        // Blocks were hashed as they were read; this catches a row whose columns belong to different rows.
        if content.hash(id) != hash || json_bytes(id, &content, &payload.provenance) != stored_bytes {
            return Err(self.container.damaged(HASHES, &format!("row {row} is not what its hash and length say")));
        }
        let norm = content.vector.as_deref().map_or(0.0, vector::norm);
        let computed = ComputedFields { hash, norm, json_bytes: stored_bytes, terms };
        Ok(Version::from_stored(id.into(), content, payload.provenance, computed))
    }

    /// Returns who wrote a row, and when. It comes unchecked from the mapping, so it must not be served;
    /// [`Segment::provenance_and_content`] is checked. Fails like that method.
    pub fn provenance(&self, row: u32) -> Result<Provenance, SegmentError> {
        Ok(self.parse(row, self.payload(row)?)?.provenance)
    }

    /// Reads all that a hit shows of a row beside its vector: who wrote it, text and metadata. The content's vector is
    /// none, whatever the row has. `SegmentError::Damaged` for a row after the last, or if the payload can't be parsed.
    pub fn provenance_and_content(
        &self,
        row: u32,
        blocks: &mut Blocks,
    ) -> Result<(Provenance, RecordContent), SegmentError> {
        let payload = self.read_payload(row, blocks)?;
        let Payload { provenance, text, metadata, .. } = self.parse(row, &payload)?;
        Ok((provenance, RecordContent { vector: None, text: text.map(Arc::from), metadata: metadata.into() }))
    }

    /// Returns a row's text and its metadata as JSON, to search them. `SegmentError::Damaged` for a row after the last,
    /// or if the payload can't be parsed.
    pub fn text_and_metadata(&self, row: u32) -> Result<(Option<String>, String), SegmentError> {
        let Payload { text, metadata, .. } = self.parse(row, self.payload(row)?)?;
        Ok((text.map(str::to_owned), metadata.to_owned()))
    }

    /// Returns whether a row's text is newer than its vector, and the text. Fails like [`Segment::text_and_metadata`].
    pub(super) fn row_text(&self, row: u32) -> Result<(bool, Option<&str>), SegmentError> {
        let payload = self.parse(row, self.payload(row)?)?;
        Ok((payload.provenance.vector_stale, payload.text))
    }

    /// Returns whether a row has a vector, where it decides what is served. `SegmentError::Damaged` for a row after the
    /// last, or if the block is not what was written.
    pub fn verified_has_vector(&self, row: u32, blocks: &mut Blocks) -> Result<bool, SegmentError> {
        let norm = self.container.read(NORMS, u64::from(row) * 4, 4, blocks)?;
        Ok(f32::from_le_bytes(norm.try_into().unwrap_or_default()) >= 0.0)
    }

    /// Reads a row's vector to serve it, where it has one. It has [`Segment::dim`] numbers. Fails like
    /// [`Segment::verified_has_vector`].
    pub fn verified_vector(&self, row: u32, blocks: &mut Blocks) -> Result<Option<Arc<[f32]>>, SegmentError> {
        let has_vector = self.verified_has_vector(row, blocks)?;
        has_vector.then(|| self.read_vector(row, blocks)).transpose()
    }

    /// Reads a row's id to serve it. `SegmentError::Damaged` for a row after the last, an id that is not UTF-8, or if a
    /// block is not what was written.
    pub fn verified_id(&self, row: u32, blocks: &mut Blocks) -> Result<String, SegmentError> {
        let mut end = |row: u32| -> Result<u64, SegmentError> {
            let bytes = self.container.read(ID_ENDS, u64::from(row) * 4, 4, blocks)?;
            Ok(u64::from(u32::from_le_bytes(bytes.try_into().unwrap_or_default())))
        };
        let (start, end) = (if row == 0 { 0 } else { end(row - 1)? }, end(row)?);
        let bytes = self.container.read(IDS, start, end.saturating_sub(start), blocks)?;
        String::from_utf8(bytes).map_err(|_| self.container.damaged(IDS, "an id is not UTF-8"))
    }

    /// Reads the bytes of a row's id, text, metadata and provenance as JSON, where it decides what is served. Fails
    /// like [`Segment::verified_has_vector`].
    pub fn verified_json_bytes(&self, row: u32, blocks: &mut Blocks) -> Result<u32, SegmentError> {
        let bytes = self.container.read(LENGTHS, u64::from(row) * 8, 4, blocks)?;
        Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    fn read_vector(&self, row: u32, blocks: &mut Blocks) -> Result<Arc<[f32]>, SegmentError> {
        let width = self.dim as u64 * 4;
        let bytes = self.container.read(VECTORS, u64::from(row) * width, width, blocks)?;
        Ok(bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap_or_default())).collect())
    }

    fn read_payload(&self, row: u32, blocks: &mut Blocks) -> Result<Vec<u8>, SegmentError> {
        let (start, length) = self.payload_range(row)?;
        self.container.read(PAYLOADS, start, length, blocks)
    }

    /// Returns the sums that one row contributes. `SegmentError::Damaged` for a row after the last, or if its payload
    /// is too short to be one.
    pub fn row_totals(&self, row: u32) -> Result<RowTotals, SegmentError> {
        let has_vector = self.norm(row)? >= 0.0;
        let (json_bytes, terms) = self.json_bytes_and_terms(row)?;
        let id_bytes = self.id(row)?.len() as u64;
        let content = self.payload_range(row)?.1.checked_sub(super::writer::PAYLOAD_BYTES);
        let content = content.ok_or_else(|| self.container.damaged(PAYLOAD_ENDS, "a payload is too short"))?;
        let vector_bytes = if has_vector { self.dim as u64 * 4 } else { 0 };
        Ok(RowTotals {
            records: 1,
            vectors: u64::from(has_vector),
            id_line_bytes: if has_vector { id_bytes + 1 } else { 0 },
            json_bytes: u64::from(json_bytes),
            terms: u64::from(terms),
            raw_bytes: id_bytes + vector_bytes + content,
        })
    }

    /// Checks a block again, as [`Container::recheck`] does, with its errors.
    pub fn recheck(&self, number: u64) -> Option<Result<u64, SegmentError>> {
        self.container.recheck(number)
    }

    /// Reads and hashes the whole file, including blocks that were checked before; indexes are not parsed. Fails with
    /// `SegmentError::Damaged` at the first damage.
    pub fn verify(&self) -> Result<(), SegmentError> {
        self.container.verify()
    }

    fn payload_range(&self, row: u32) -> Result<(u64, u64), SegmentError> {
        let end = |row: u32| -> Result<u64, SegmentError> {
            let bytes = self.container.slice(PAYLOAD_ENDS, u64::from(row) * 8, 8)?;
            Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
        };
        let start = if row == 0 { 0 } else { end(row - 1)? };
        Ok((start, end(row)?.saturating_sub(start)))
    }

    fn payload(&self, row: u32) -> Result<&[u8], SegmentError> {
        let (start, length) = self.payload_range(row)?;
        self.container.slice(PAYLOADS, start, length)
    }

    /// Takes a payload apart. It says of which row it is and how long, so that what says where it lies need not be
    /// trusted.
    fn parse<'a>(&self, row: u32, payload: &'a [u8]) -> Result<Payload<'a>, SegmentError> {
        let mut input = Reader::new(payload);
        let mut parse = || -> Result<_, CodecError> {
            let number = |input: &mut Reader<'a>| -> Result<u32, CodecError> {
                Ok(u32::from_le_bytes(input.raw(4)?.try_into().unwrap_or_default()))
            };
            let found = number(&mut input)?;
            let (created, modified) = (Time(input.signed()?), Time(input.signed()?));
            let stamp = number(&mut input)? as usize;
            let ([branch, agent, session, task], uid) = self.stamps.get(stamp).ok_or(CodecError::Number)?.clone();
            let flags = input.byte()?;
            let (text, metadata) = (number(&mut input)? as usize, number(&mut input)? as usize);
            let text = std::str::from_utf8(input.raw(text)?).map_err(|_| CodecError::Text)?;
            let metadata = std::str::from_utf8(input.raw(metadata)?).map_err(|_| CodecError::Text)?;
            if found != row || !input.is_empty() {
                return Err(CodecError::Number);
            }
            let vector_stale = flags & VECTOR_STALE != 0;
            let provenance = Provenance { created, modified, branch, agent, session, task, uid, vector_stale };
            let text = (flags & HAS_TEXT != 0).then_some(text);
            Ok(Payload { provenance, text, metadata, has_vector: flags & HAS_VECTOR != 0 })
        };
        parse().map_err(|error| self.container.damaged(PAYLOADS, &error.to_string()))
    }

    fn u32(&self, section: usize, index: u32) -> Result<u32, SegmentError> {
        let bytes = self.container.slice(section, u64::from(index) * 4, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    fn f32(&self, section: usize, index: u32) -> Result<f32, SegmentError> {
        self.u32(section, index).map(f32::from_bits)
    }

    fn floats<'a>(&self, section: usize, bytes: &'a [u8]) -> Result<&'a [f32], SegmentError> {
        bytemuck::try_cast_slice(bytes).map_err(|_| self.container.damaged(section, "it is not aligned"))
    }
}

/// Checks that each column has the bytes that `rows` rows take, so that a row below their number is in all of them.
fn check_lengths(container: &Container, rows: u32, dim: usize) -> Result<(), SegmentError> {
    let numbers = [NORMS, SCALES, RESIDUALS, ID_ENDS].map(|section| (section, 4));
    let others = [(VECTORS, dim.saturating_mul(4)), (CODES, dim), (HASHES, 32), (PAYLOAD_ENDS, 8), (LENGTHS, 8)];
    for (section, width) in numbers.into_iter().chain(others) {
        if Some(container.section_length(section)?) != (width as u64).checked_mul(rows.into()) {
            return Err(container.damaged(section, "it has another length than its rows"));
        }
    }
    Ok(())
}

fn read_stamps(bytes: &[u8]) -> Result<Vec<StampLabels>, CodecError> {
    let mut input = Reader::new(bytes);
    let mut stamps = Vec::new();
    while !input.is_empty() {
        let labels = [input.text()?.into(), input.text()?.into(), input.text()?.into(), input.text()?.into()];
        stamps.push((labels, u32::try_from(input.number()?).map_err(|_| CodecError::Number)?));
    }
    Ok(stamps)
}
