//! Building one segment's inverted index in memory.

use std::collections::HashMap;

use serde_json::Value;

use super::layout::{
    BLOCK_POSTINGS, HEADER_BYTES, LENGTH_BYTES, LISTS_BYTES_AT, MAGIC, NAMES_BYTES_AT, ROWS_AT, TERM_ENTRY_BYTES,
    TERMS_AT, TOTAL_AT, put_varint,
};
use super::postings::Postings;
use super::tokens::for_each_document_term;

/// Builds the inverted index of one segment, row by row.
///
/// Postings are kept encoded, so memory grows with the finished index (about its size, and some
/// 150 bytes a distinct term), not with the text.
#[derive(Debug, Default)]
pub struct PostingsWriter {
    /// Each distinct term's place in `lists`.
    terms: HashMap<Box<str>, u32>,
    lists: Vec<PostingListWriter>,
    lengths: Vec<u32>,
    /// The terms of the document at hand, kept to reuse its memory.
    document: Vec<u32>,
}

impl PostingsWriter {
    /// Returns a writer without rows, which gives a valid index as it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the document of `row` and returns its length in tokens.
    ///
    /// Rows ascend and are below `u32::MAX`; one that is left out is a document of length 0.
    ///
    /// # Panics
    ///
    /// When `row` is not above the row added before, or is `u32::MAX`.
    pub fn add(&mut self, row: u32, text: Option<&str>, metadata: &Value) -> u32 {
        assert!(self.lengths.len() <= row as usize, "rows are added to an index in ascending order");
        assert!(row < u32::MAX, "an index has room for 2^32 - 1 rows");
        let mut found = std::mem::take(&mut self.document);
        for_each_document_term(text, metadata, &mut |term| found.push(self.list_index(term)));
        let length = u32::try_from(found.len()).unwrap_or(u32::MAX);
        self.lengths.resize(row as usize, 0);
        self.lengths.push(length);
        found.sort_unstable();
        for same in found.chunk_by(|a, b| a == b) {
            self.lists[same[0] as usize].push(row, same.len() as u32);
        }
        found.clear();
        self.document = found;
        length
    }

    /// Returns a writer that holds rows of finished indexes under other numbers.
    ///
    /// `row_of` says which number a row of the n-th index gets, each number once; nothing leaves the row out. A term that only
    /// rows have that are left out is not in it.
    pub fn merged(indexes: &[Postings<'_>], row_of: impl Fn(usize, u32) -> Option<u32>) -> PostingsWriter {
        let mut writer = PostingsWriter::new();
        for (number, index) in indexes.iter().enumerate() {
            for row in 0..index.rows() {
                let Some(new) = row_of(number, row) else { continue };
                // Numbers come in any order here: the place of a later row may be made before that of an earlier one.
                let rows = writer.lengths.len().max(new as usize + 1);
                writer.lengths.resize(rows, 0);
                writer.lengths[new as usize] = index.length(row);
            }
        }
        let mut terms: Vec<_> = indexes.iter().map(|index| index.terms_starting_with("").peekable()).collect();
        let mut found: Vec<(u32, u32)> = Vec::new();
        while let Some(term) = terms.iter_mut().filter_map(|terms| terms.peek().copied()).min() {
            for (number, index) in indexes.iter().enumerate() {
                if terms[number].next_if_eq(&term).is_some() {
                    let list = index.term(term).into_iter().flatten();
                    found.extend(list.filter_map(|(row, count)| Some((row_of(number, row)?, count))));
                }
            }
            // Rows of one index may get numbers between those of another, and lists ascend.
            found.sort_unstable();
            // A term is not entered before it has a row: those whose rows are all left out would stay in the
            // dictionary.
            if !found.is_empty() {
                let place = writer.list_index(term) as usize;
                found.drain(..).for_each(|(row, count)| writer.lists[place].push(row, count));
            }
        }
        writer
    }

    /// Returns where `term`'s list is, after making one when the term is new.
    fn list_index(&mut self, term: &str) -> u32 {
        if let Some(&place) = self.terms.get(term) {
            return place;
        }
        let place = u32::try_from(self.lists.len()).expect("memory ends before 2^32 distinct terms");
        self.terms.insert(Box::from(term), place);
        self.lists.push(PostingListWriter::default());
        place
    }

    /// Returns the index as the bytes that [`Postings::open`](super::Postings::open) reads.
    ///
    /// The bytes are a function of the documents alone.
    pub fn finish(mut self) -> Vec<u8> {
        let mut terms: Vec<(Box<str>, u32)> = self.terms.into_iter().collect();
        terms.sort_unstable();
        let dictionary = HEADER_BYTES + self.lengths.len() * LENGTH_BYTES;
        let names = dictionary + terms.len() * TERM_ENTRY_BYTES;
        let lists = names + terms.iter().map(|(name, _)| name.len()).sum::<usize>();
        let mut out = Vec::with_capacity(lists + self.lists.iter().map(|list| list.blocks.len() + 4).sum::<usize>());

        out.resize(HEADER_BYTES, 0);
        out.extend(self.lengths.iter().flat_map(|length| length.to_le_bytes()));
        out.resize(names, 0);
        terms.iter().for_each(|(name, _)| out.extend(name.bytes()));
        let mut name_start = 0;
        for (i, (name, place)) in terms.iter().enumerate() {
            let entry = dictionary + i * TERM_ENTRY_BYTES;
            put_u64(&mut out, entry, name_start);
            let list_start = (out.len() - lists) as u64;
            put_u64(&mut out, entry + size_of::<u64>(), list_start);
            name_start += name.len() as u64;
            // Taken, so that a list's memory is free once it is written.
            std::mem::take(&mut self.lists[*place as usize]).encode(&mut out);
        }

        let lists_bytes = (out.len() - lists) as u64;
        let total: u64 = self.lengths.iter().map(|&length| u64::from(length)).sum();
        out[..MAGIC.len()].copy_from_slice(&MAGIC);
        out[ROWS_AT..TERMS_AT].copy_from_slice(&(self.lengths.len() as u32).to_le_bytes());
        out[TERMS_AT..TOTAL_AT].copy_from_slice(&(terms.len() as u32).to_le_bytes());
        put_u64(&mut out, TOTAL_AT, total);
        put_u64(&mut out, NAMES_BYTES_AT, name_start);
        put_u64(&mut out, LISTS_BYTES_AT, lists_bytes);
        out
    }
}

fn put_u64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + size_of::<u64>()].copy_from_slice(&value.to_le_bytes());
}

/// One term's postings, encoded as they come.
#[derive(Debug, Default)]
struct PostingListWriter {
    blocks: Vec<u8>,
    /// Where each full block ends: its last row, and its end in `blocks`.
    skips: Vec<(u32, u64)>,
    postings: u32,
    /// One more than the last row: the least that the next can be.
    next_row: u32,
}

impl PostingListWriter {
    /// Adds a row after the last one. What a damaged index has twice, or out of order, is left out.
    fn push(&mut self, row: u32, count: u32) {
        let Some(gap) = row.checked_sub(self.next_row) else { return };
        put_varint(&mut self.blocks, gap);
        put_varint(&mut self.blocks, count - 1);
        self.next_row = row + 1;
        self.postings += 1;
        if self.postings.is_multiple_of(BLOCK_POSTINGS) {
            self.skips.push((row, self.blocks.len() as u64));
        }
    }

    fn encode(mut self, out: &mut Vec<u8>) {
        put_varint(out, self.postings);
        if self.postings > BLOCK_POSTINGS {
            if !self.postings.is_multiple_of(BLOCK_POSTINGS) {
                self.skips.push((self.next_row - 1, self.blocks.len() as u64));
            }
            for (row, end) in self.skips {
                out.extend(row.to_le_bytes());
                out.extend(end.to_le_bytes());
            }
        }
        out.extend(self.blocks);
    }
}
