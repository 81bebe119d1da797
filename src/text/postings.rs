//! Reading one segment's inverted index in place: nothing is decoded before it is asked for.

use super::layout::{
    BLOCK_POSTINGS, HEADER_BYTES, LENGTH_BYTES, LISTS_BYTES_AT, MAGIC, NAMES_BYTES_AT, ROWS_AT, SKIP_ENTRY_BYTES,
    TERM_ENTRY_BYTES, TERMS_AT, TOTAL_AT, size_at, take_varint, u32_at,
};

/// Why bytes can't be read as an inverted index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The bytes do not begin with the mark of an index.
    #[error("the text index does not begin with its mark")]
    Magic,
    /// The layout is another version than this program reads.
    #[error("the text index has layout version {found}, and this engramfs reads {}", MAGIC[7])]
    Version {
        /// The version that the bytes name.
        found: u8,
    },
    /// The sizes in the header do not add up to the bytes there are.
    #[error("the text index has {bytes} bytes where its header tells otherwise")]
    Size {
        /// How many bytes were given, header included.
        bytes: usize,
    },
}

/// The inverted index of one segment, read in place from mapped or owned bytes.
///
/// Opening checks the header alone, at a cost that does not depend on the size. Bytes damaged
/// behind it make a term missing or a list end early, never a panic; finding damage is the
/// business of the hashes that a segment keeps of its blocks.
#[derive(Clone, Copy, Debug)]
pub struct Postings<'a> {
    lengths: &'a [u8],
    dictionary: &'a [u8],
    names: &'a [u8],
    lists: &'a [u8],
    rows: u32,
    total_length: u64,
}

impl<'a> Postings<'a> {
    /// Opens what [`PostingsWriter::finish`](super::PostingsWriter::finish) gave.
    ///
    /// [`TextError::Magic`], [`TextError::Version`] or [`TextError::Size`] if it is something else.
    pub fn open(bytes: &'a [u8]) -> Result<Self, TextError> {
        let mark = bytes.first_chunk::<{ MAGIC.len() }>().ok_or(TextError::Magic)?;
        if mark[..7] != MAGIC[..7] {
            return Err(TextError::Magic);
        }
        if mark[7] != MAGIC[7] {
            return Err(TextError::Version { found: mark[7] });
        }
        Self::sections(bytes).ok_or(TextError::Size { bytes: bytes.len() })
    }

    /// Cuts the bytes where the header says; `None` unless they come out exactly.
    fn sections(bytes: &'a [u8]) -> Option<Self> {
        let rows = u32_at(bytes, ROWS_AT)?;
        let terms = u32_at(bytes, TERMS_AT)? as usize;
        let total_length = size_at(bytes, TOTAL_AT)? as u64;
        let (_, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let (lengths, rest) = rest.split_at_checked((rows as usize).checked_mul(LENGTH_BYTES)?)?;
        let (dictionary, rest) = rest.split_at_checked(terms.checked_mul(TERM_ENTRY_BYTES)?)?;
        let (names, lists) = rest.split_at_checked(size_at(bytes, NAMES_BYTES_AT)?)?;
        let whole = lists.len() == size_at(bytes, LISTS_BYTES_AT)?;
        whole.then_some(Self { lengths, dictionary, names, lists, rows, total_length })
    }

    /// Returns how many rows there are; rows are numbered from 0.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the sum of all rows' lengths, in tokens.
    pub fn total_length(&self) -> u64 {
        self.total_length
    }

    /// Returns the length of a row's document in tokens; 0 for a row that is not there.
    #[inline]
    pub fn length(&self, row: u32) -> u32 {
        u32_at(self.lengths, (row as usize).saturating_mul(LENGTH_BYTES)).unwrap_or(0)
    }

    /// Returns how many distinct terms there are.
    pub fn terms(&self) -> usize {
        self.dictionary.len() / TERM_ENTRY_BYTES
    }

    /// Returns the rows that hold `term`, or `None` if none does: a binary search in place.
    pub fn term(&self, term: &str) -> Option<PostingList<'a>> {
        let (mut low, mut high) = (0, self.terms());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.part(self.names, middle, 0)?.cmp(term.as_bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let list = self.part(self.lists, middle, size_of::<u64>())?;
                    return PostingList::open(list, self.rows);
                }
            }
        }
        None
    }

    /// Returns the terms that begin with `prefix`, sorted. Ends early at bytes that are no text.
    pub fn terms_starting_with(&self, prefix: &str) -> impl Iterator<Item = &'a str> {
        let (mut low, mut high) = (0, self.terms());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.part(self.names, middle, 0) {
                Some(name) if name < prefix.as_bytes() => low = middle + 1,
                _ => high = middle,
            }
        }
        let name = |i| self.part(self.names, i, 0).and_then(|name| std::str::from_utf8(name).ok());
        (low..self.terms()).map_while(name).take_while(move |name| name.starts_with(prefix))
    }

    /// Returns the i-th term's part of `section`, whose start is at `field` in its dictionary entry.
    fn part(&self, section: &'a [u8], i: usize, field: usize) -> Option<&'a [u8]> {
        let at = i * TERM_ENTRY_BYTES + field;
        let start = size_at(self.dictionary, at)?;
        let end = match i + 1 < self.terms() {
            true => size_at(self.dictionary, at + TERM_ENTRY_BYTES)?,
            false => section.len(),
        };
        section.get(start..end)
    }
}

/// The postings of one term: (row, how often the row's document holds the term), rows ascending.
///
/// An iterator; [`seek`](Self::seek) leaps over what need not be decoded. Rows are always below
/// the index's number of rows, and counts are 1 or more.
#[derive(Clone, Debug)]
pub struct PostingList<'a> {
    skips: &'a [u8],
    blocks: &'a [u8],
    /// What of `blocks` is not decoded yet.
    undecoded: &'a [u8],
    /// How many postings are not decoded yet.
    undecoded_count: u32,
    documents: u32,
    next_row: u32,
    rows: u32,
}

impl<'a> PostingList<'a> {
    fn open(mut list: &'a [u8], rows: u32) -> Option<Self> {
        let documents = take_varint(&mut list).filter(|&documents| documents <= rows)?;
        let blocks = if documents > BLOCK_POSTINGS { documents.div_ceil(BLOCK_POSTINGS) as usize } else { 0 };
        let (skips, blocks) = list.split_at_checked(blocks.checked_mul(SKIP_ENTRY_BYTES)?)?;
        Some(Self { skips, blocks, undecoded: blocks, undecoded_count: documents, documents, next_row: 0, rows })
    }

    /// Returns how many rows hold the term, hidden ones included.
    pub fn documents(&self) -> u32 {
        self.documents
    }

    /// Returns the first posting not given yet whose row is `row` or above, and goes past it.
    ///
    /// Costs a search in the skip table and at most one block of 128 postings.
    pub fn seek(&mut self, row: u32) -> Option<(u32, u32)> {
        self.seek_block(row);
        self.find(|&(at, _)| at >= row)
    }

    /// Goes to the start of the block that may hold `row`, unless that block has begun already.
    fn seek_block(&mut self, row: u32) {
        let blocks = self.skips.len() / SKIP_ENTRY_BYTES;
        let here = ((self.documents - self.undecoded_count) / BLOCK_POSTINGS) as usize;
        let last_row = |block: usize| u32_at(self.skips, block * SKIP_ENTRY_BYTES).unwrap_or(u32::MAX);
        if here >= blocks || last_row(here) >= row {
            return;
        }
        // The block at `low` ends before `row`, the one at `high` does not; doubling steps first,
        // since the target is mostly near.
        let (mut low, mut step) = (here, 1);
        while low + step < blocks && last_row(low + step) < row {
            low += step;
            step *= 2;
        }
        let mut high = (low + step).min(blocks);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if last_row(middle) < row { low = middle } else { high = middle }
        }
        let end = size_at(self.skips, low * SKIP_ENTRY_BYTES + size_of::<u32>());
        self.undecoded = end.and_then(|end| self.blocks.get(end..)).unwrap_or_default();
        self.undecoded_count = self.documents.saturating_sub((low as u32 + 1).saturating_mul(BLOCK_POSTINGS));
        self.next_row = last_row(low).saturating_add(1);
    }

    fn decode(&mut self) -> Option<(u32, u32)> {
        self.undecoded_count = self.undecoded_count.checked_sub(1)?;
        let row = self.next_row.checked_add(take_varint(&mut self.undecoded)?)?;
        let count = take_varint(&mut self.undecoded)?.checked_add(1)?;
        self.next_row = row.checked_add(1)?;
        (row < self.rows).then_some((row, count))
    }
}

impl Iterator for PostingList<'_> {
    type Item = (u32, u32);

    #[inline]
    fn next(&mut self) -> Option<(u32, u32)> {
        let posting = self.decode();
        if posting.is_none() {
            // Ended, or damaged: what follows bytes that make no sense is not read either.
            self.undecoded_count = 0;
        }
        posting
    }
}

impl std::iter::FusedIterator for PostingList<'_> {}
