//! An immutable piece of the index of files: some contents, their passages, and the words of those.
//!
//! ```text
//!  section 0   key of each content, 32 bytes, sorted
//!  section 1   u32, the first row of each, and one behind the last row: its passages are consecutive rows
//!  section 2   of each row: line u32 · start u32 · length u32
//!  section 3   of each row the key of its passage, 16 bytes
//!  section 4   the inverted index of the rows (`crate::text`)
//! ```
//!
//! A content that is not text has no rows: its entry keeps it from being read again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::content::IndexKey;
use super::passage::PassageKey;
use crate::object::{BlobStore, Hash};
use crate::segment::{Container, ContainerWriter, DerivedFiles, SegmentError};
use crate::text::Postings;

const KIND: u8 = 0x78;
const KEYS: usize = 0;
const FIRST_ROWS: usize = 1;
const LOCATIONS: usize = 2;
const PASSAGE_KEYS: usize = 3;
const POSTINGS: usize = 4;
const SECTIONS: usize = 5;
const ROW_BYTES: usize = size_of::<u32>();
const LOCATION_BYTES: usize = 3 * size_of::<u32>();
const PASSAGE_KEY_BYTES: usize = size_of::<PassageKey>();

/// In the order of the drawing above.
pub(super) type Sections = [Vec<u8>; SECTIONS];

enum Backing {
    Memory(Sections),
    File(Container),
}

/// Where a passage is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassageLocation {
    /// The number of its first line, from 1.
    pub line: u32,
    /// Offset of its first byte in the file.
    pub start_byte: u32,
    /// Length of its text, without blank lines at either end.
    pub length_bytes: u32,
    /// The key of its text: a text that is read from the file later has to have the same.
    pub key: PassageKey,
}

/// Some contents with their passages, in memory or in a file. It never changes.
pub struct IndexSegment {
    backing: Backing,
    contents: u32,
    rows: u32,
    /// The vectors of its passages, by row: one file for each embedder that has made them.
    pub(super) derived: DerivedFiles,
    /// Set once bytes of it were found to be wrong, and never reset: look-ups pass over it from then on.
    is_broken: AtomicBool,
}

impl IndexSegment {
    fn new(backing: Backing, contents: u32, rows: u32) -> IndexSegment {
        IndexSegment { backing, contents, rows, derived: DerivedFiles::default(), is_broken: AtomicBool::new(false) }
    }

    /// Takes sections that were just made, and checks nothing.
    pub(super) fn from_sections(sections: Sections) -> IndexSegment {
        let contents = (sections[KEYS].len() / IndexKey::BYTES) as u32;
        let rows = (sections[LOCATIONS].len() / LOCATION_BYTES) as u32;
        IndexSegment::new(Backing::Memory(sections), contents, rows)
    }

    /// Opens a file; reads and checks its footer, nothing else. `Damaged` if the file with that name is none of these,
    /// or its sections are not of one length.
    pub fn open(blobs: &BlobStore, name: Hash) -> Result<Arc<IndexSegment>, SegmentError> {
        let file = Container::open(blobs, name, KIND)?;
        let lengths = (0..SECTIONS).map(|section| file.section_length(section)).collect::<Result<Vec<u64>, _>>()?;
        let (contents, rows) = (lengths[KEYS] / IndexKey::BYTES as u64, lengths[LOCATIONS] / LOCATION_BYTES as u64);
        let adds_up = lengths[KEYS] == contents * IndexKey::BYTES as u64
            && lengths[FIRST_ROWS] == (contents + 1) * ROW_BYTES as u64
            && lengths[LOCATIONS] == rows * LOCATION_BYTES as u64
            && lengths[PASSAGE_KEYS] == rows * PASSAGE_KEY_BYTES as u64;
        match (adds_up, u32::try_from(contents), u32::try_from(rows)) {
            (true, Ok(contents), Ok(rows)) => Ok(Arc::new(IndexSegment::new(Backing::File(file), contents, rows))),
            _ => Err(file.damaged(FIRST_ROWS, "its sections are not of one length")),
        }
    }

    /// Writes a segment that is in memory to a file, opens that and checks its sections. The vectors of its passages do not
    /// go with it. Fails if the disk refuses a write, or the file can't be opened or has other bytes.
    pub fn persist(&self, blobs: &BlobStore) -> Result<Arc<IndexSegment>, SegmentError> {
        let mut out = ContainerWriter::new(blobs)?;
        for section in 0..SECTIONS {
            out.begin()?;
            out.write(self.section(section)?)?;
        }
        let name = out.finish(KIND, &[])?;
        let segment = IndexSegment::open(blobs, name)?;
        // Checked here, so that the first query that looks into it does not have to.
        (0..SECTIONS).try_for_each(|section| segment.section(section).map(drop))?;
        Ok(segment)
    }

    /// Returns the name of its file; `None` for a segment that is in memory.
    pub fn name(&self) -> Option<Hash> {
        if let Backing::File(file) = &self.backing { Some(file.name()) } else { None }
    }

    /// Returns the length of its file, or of all sections of one in memory.
    pub fn bytes(&self) -> u64 {
        match &self.backing {
            Backing::Memory(sections) => sections.iter().map(|section| section.len() as u64).sum(),
            Backing::File(file) => file.file_bytes(),
        }
    }

    /// Reads and hashes the whole file; one in memory is right. The first damage ends it: `SegmentError::Damaged`.
    pub fn verify(&self) -> Result<(), SegmentError> {
        if let Backing::File(file) = &self.backing { file.verify() } else { Ok(()) }
    }

    /// Returns whether bytes of it were found to be wrong: its contents count as not indexed then.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Returns how many contents it has, those without passages too.
    pub fn contents(&self) -> u32 {
        self.contents
    }

    /// Returns how many passages it has, those of all contents together: rows are numbered below that.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the key of the n-th content, in ascending order. Fails if it has fewer contents, or the section can't be
    /// read or is damaged.
    pub fn key(&self, n: u32) -> Result<IndexKey, SegmentError> {
        let at = n as usize * IndexKey::BYTES;
        Ok(IndexKey(self.array(KEYS, at).map(Hash)?))
    }

    /// Returns the rows of the n-th content; none for one that is not text. Fails if it has fewer contents, or its rows
    /// are not in order: the segment counts as broken then.
    pub fn content_rows(&self, n: u32) -> Result<Range<u32>, SegmentError> {
        let (start, end) = (self.number(FIRST_ROWS, n as usize)?, self.number(FIRST_ROWS, n as usize + 1)?);
        if start <= end && end <= self.rows { Ok(start..end) } else { Err(self.damaged_section(FIRST_ROWS)) }
    }

    /// Returns the rows of a content, if it has that. `None` if it does not have it. Fails like [`IndexSegment::key`]
    /// and [`IndexSegment::content_rows`].
    pub fn find(&self, key: &IndexKey) -> Result<Option<Range<u32>>, SegmentError> {
        let (mut low, mut high) = (0, self.contents);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle)?.cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.content_rows(middle).map(Some),
            }
        }
        Ok(None)
    }

    /// Returns the key of the content that a row is of. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the
    /// section can't be read or is damaged. A row after the last gives the last content.
    pub fn row_key(&self, row: u32) -> Result<IndexKey, SegmentError> {
        self.key(self.content_number(row)?)
    }

    /// Returns the key of the content that a row is of, and all rows of that content. Fails like
    /// [`IndexSegment::row_key`], or if no content has the row: the segment counts as broken then.
    pub(super) fn row_content(&self, row: u32) -> Result<(IndexKey, Range<u32>), SegmentError> {
        let n = self.content_number(row)?;
        let rows = self.content_rows(n)?;
        if rows.contains(&row) { Ok((self.key(n)?, rows)) } else { Err(self.damaged_section(FIRST_ROWS)) }
    }

    /// Returns the number of the content that a row is of.
    fn content_number(&self, row: u32) -> Result<u32, SegmentError> {
        // The last content that does not begin behind the row; those without rows begin where the next one does.
        let (mut low, mut high) = (0, self.contents);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.number(FIRST_ROWS, middle as usize)? <= row { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1).ok_or_else(|| self.damaged_section(FIRST_ROWS))
    }

    /// Returns where the passage of a row is. Lines count from 1, bytes from the beginning of the file. Fails if it has
    /// fewer rows, or the section is damaged.
    pub fn passage_location(&self, row: u32) -> Result<PassageLocation, SegmentError> {
        let number = |field: usize| self.number(LOCATIONS, row as usize * 3 + field);
        let key = PassageKey(self.array(PASSAGE_KEYS, row as usize * PASSAGE_KEY_BYTES)?);
        Ok(PassageLocation { line: number(0)?, start_byte: number(1)?, length_bytes: number(2)?, key })
    }

    /// Returns the words of the rows. The first call after opening reads and checks them whole. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if they can't be read or are damaged; the segment counts as broken then.
    pub fn postings(&self) -> Result<Postings<'_>, SegmentError> {
        Postings::open(self.section(POSTINGS)?).map_err(|_| self.damaged_section(POSTINGS))
    }

    fn section(&self, section: usize) -> Result<&[u8], SegmentError> {
        match &self.backing {
            Backing::Memory(sections) => Ok(&sections[section]),
            Backing::File(file) => self.note_damage(file.section(section)),
        }
    }

    fn number(&self, section: usize, n: usize) -> Result<u32, SegmentError> {
        self.array(section, n * ROW_BYTES).map(u32::from_le_bytes)
    }

    fn array<const N: usize>(&self, section: usize, at: usize) -> Result<[u8; N], SegmentError> {
        let bytes = match &self.backing {
            Backing::Memory(sections) => sections[section].get(at..),
            Backing::File(file) => Some(self.note_damage(file.slice(section, at as u64, N as u64))?),
        };
        bytes.and_then(|bytes| bytes.first_chunk()).copied().ok_or_else(|| self.damaged_section(section))
    }

    fn note_damage<T>(&self, read: Result<T, SegmentError>) -> Result<T, SegmentError> {
        if read.is_err() {
            self.is_broken.store(true, Ordering::Release);
        }
        read
    }

    fn damaged_section(&self, section: usize) -> SegmentError {
        self.mark_broken(&format!("section {section}: it does not hold what it should"))
    }

    /// Notes that something of it is wrong, and returns the error that says so.
    pub(super) fn mark_broken(&self, reason: &str) -> SegmentError {
        self.is_broken.store(true, Ordering::Release);
        let name = self.name().map_or_else(|| "in memory".to_owned(), |name| name.to_string());
        SegmentError::Damaged { name, reason: reason.to_owned() }
    }
}
