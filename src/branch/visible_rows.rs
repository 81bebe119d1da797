//! Which rows of a segment a branch sees: a bitmap whose chunks are shared until they change.

use std::ops::Range;
use std::sync::Arc;

use crate::object::{CodecError, Reader, Writer};

/// Rows of one chunk: 512 bytes of bits, which is what a branch copies to change one row of a shared bitmap.
const CHUNK_ROWS: u32 = 4096;
const WORDS: usize = CHUNK_ROWS as usize / 64;

#[derive(Clone, PartialEq, Eq)]
enum VisibleChunk {
    None,
    All,
    Some(Arc<[u64; WORDS]>),
}

/// The visible rows of one segment.
#[derive(Clone)]
pub struct VisibleRows {
    rows: u32,
    count: u32,
    chunks: Arc<Vec<VisibleChunk>>,
}

impl VisibleRows {
    /// Sees none of `rows` rows; chunks of which nothing is visible have no bits.
    pub fn none(rows: u32) -> VisibleRows {
        let chunks = vec![VisibleChunk::None; rows.div_ceil(CHUNK_ROWS) as usize];
        VisibleRows { rows, count: 0, chunks: Arc::new(chunks) }
    }

    /// Sees all of `rows` rows; chunks of which all is visible have no bits.
    pub fn all(rows: u32) -> VisibleRows {
        let chunks = vec![VisibleChunk::All; rows.div_ceil(CHUNK_ROWS) as usize];
        VisibleRows { rows, count: rows, chunks: Arc::new(chunks) }
    }

    /// Returns how many rows are visible. It is kept up with each change, so asking costs nothing.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether every row is visible.
    pub fn are_all_visible(&self) -> bool {
        self.count == self.rows
    }

    /// Returns whether a row is visible, which must be one of the segment.
    pub fn contains(&self, row: u32) -> bool {
        match &self.chunks[(row / CHUNK_ROWS) as usize] {
            VisibleChunk::None => false,
            VisibleChunk::All => true,
            VisibleChunk::Some(words) => words[word_index(row)] & bit_mask(row) != 0,
        }
    }

    /// Makes a row visible or hides it. It may be so already.
    pub fn set(&mut self, row: u32, visible: bool) {
        if self.contains(row) == visible {
            return;
        }
        let chunk = &mut Arc::make_mut(&mut self.chunks)[(row / CHUNK_ROWS) as usize];
        let words = match chunk {
            VisibleChunk::Some(words) => words,
            other => {
                let fill = if *other == VisibleChunk::All { u64::MAX } else { 0 };
                *other = VisibleChunk::Some(Arc::new([fill; WORDS]));
                let VisibleChunk::Some(words) = other else { return };
                words
            }
        };
        // Flipped, since the bit is known to be the other one.
        Arc::make_mut(words)[word_index(row)] ^= bit_mask(row);
        if visible { self.count += 1 } else { self.count -= 1 }
    }

    /// Shows every row that another view of the same rows sees.
    pub fn union_with(&mut self, other: &VisibleRows) {
        // A clone shares the chunks of the other view, where setting row by row would copy them.
        if self.count == 0 {
            *self = other.clone();
        } else if !self.are_all_visible() {
            other.iter().for_each(|row| self.set(row, true));
        }
    }

    /// Returns the first visible row that is not below `from`; `None` if there is no more.
    pub fn next(&self, mut from: u32) -> Option<u32> {
        while from < self.rows {
            match &self.chunks[(from / CHUNK_ROWS) as usize] {
                VisibleChunk::All => return Some(from),
                VisibleChunk::None => {}
                VisibleChunk::Some(words) => {
                    if let Some(found) = next_set_bit(words, from % CHUNK_ROWS) {
                        let row = from - from % CHUNK_ROWS + found;
                        // A chunk that was `All` before its first change has the bits behind the last row set, too.
                        return (row < self.rows).then_some(row);
                    }
                }
            }
            from = (from / CHUNK_ROWS + 1) * CHUNK_ROWS;
        }
        None
    }

    /// Iterates over the visible rows, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let row = self.next(from)?;
            from = row + 1;
            Some(row)
        })
    }

    /// Calls `each` with the visible rows of a range, in order; faster than [`VisibleRows::iter`]. The range begins and
    /// ends at multiples of 64, or after the last row.
    pub fn for_each(&self, range: Range<u32>, mut each: impl FnMut(u32)) {
        for word in range.start / 64..range.end.min(self.rows).div_ceil(64) {
            let mut bits = self.word(word);
            while bits != 0 {
                each(word * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// Returns 64 rows as bits; those past the end are not visible.
    #[inline]
    fn word(&self, word: u32) -> u64 {
        let bits = match &self.chunks[word as usize / WORDS] {
            VisibleChunk::None => 0,
            VisibleChunk::All => u64::MAX,
            VisibleChunk::Some(words) => words[word as usize % WORDS],
        };
        let rows = self.rows - word * 64;
        if rows < 64 { bits & ((1 << rows) - 1) } else { bits }
    }

    /// Calls `each` with every row that one of the two sees and the other does not. Chunks that
    /// both share are passed over.
    pub fn differences(&self, other: &VisibleRows, mut each: impl FnMut(u32)) {
        if Arc::ptr_eq(&self.chunks, &other.chunks) {
            return;
        }
        for (number, (mine, theirs)) in self.chunks.iter().zip(other.chunks.iter()).enumerate() {
            // By address: shared chunks are equal, and of all others each row is looked at below.
            let same = match (mine, theirs) {
                (VisibleChunk::Some(mine), VisibleChunk::Some(theirs)) => Arc::ptr_eq(mine, theirs),
                (mine, theirs) => mine == theirs,
            };
            let start = number as u32 * CHUNK_ROWS;
            let end = if same { start } else { (start + CHUNK_ROWS).min(self.rows) };
            (start..end).filter(|row| self.contains(*row) != other.contains(*row)).for_each(&mut each);
        }
    }

    /// Appends the stored form, which [`VisibleRows::read`] reads.
    pub fn write(&self, out: &mut Writer) {
        out.number(u64::from(self.rows)).number(u64::from(self.count));
        for chunk in self.chunks.iter() {
            match chunk {
                VisibleChunk::None => out.byte(0),
                VisibleChunk::All => out.byte(1),
                VisibleChunk::Some(words) => out.byte(2).raw(bytemuck::cast_slice(&words[..])),
            };
        }
    }

    /// Reads the stored form; [`CodecError::Code`] if a chunk is of no known kind. The count is not compared with the
    /// bits.
    pub fn read(input: &mut Reader<'_>) -> Result<VisibleRows, CodecError> {
        let number = |value: u64| u32::try_from(value).map_err(|_| CodecError::Number);
        let (rows, count) = (number(input.number()?)?, number(input.number()?)?);
        let mut chunks = Vec::new();
        for _ in 0..rows.div_ceil(CHUNK_ROWS) {
            chunks.push(match input.byte()? {
                0 => VisibleChunk::None,
                1 => VisibleChunk::All,
                2 => VisibleChunk::Some(read_words(input)?),
                code => return Err(CodecError::Code(code)),
            });
        }
        Ok(VisibleRows { rows, count, chunks: Arc::new(chunks) })
    }
}

fn read_words(input: &mut Reader<'_>) -> Result<Arc<[u64; WORDS]>, CodecError> {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(input.raw(WORDS * 8)?.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    Ok(Arc::new(words))
}

fn word_index(row: u32) -> usize {
    (row % CHUNK_ROWS / 64) as usize
}

fn bit_mask(row: u32) -> u64 {
    1 << (row % 64)
}

fn next_set_bit(words: &[u64; WORDS], from: u32) -> Option<u32> {
    let first = (from / 64) as usize;
    let mut mask = u64::MAX << (from % 64);
    for (word, index) in words[first..].iter().zip(first as u32..) {
        let word = word & mask;
        if word != 0 {
            return Some(index * 64 + word.trailing_zeros());
        }
        mask = u64::MAX;
    }
    None
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_bitmap_agrees_with_a_plain_set_and_clones_stay_apart() {
        let rows = 10_000;
        let (mut bits, mut plain) = (VisibleRows::none(rows), BTreeSet::new());
        let mut seed = 7u64;
        for step in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (row, show) = ((seed >> 33) as u32 % rows, seed & (1 << 20) != 0);
            let before = bits.clone();
            bits.set(row, show);
            if show {
                plain.insert(row)
            } else {
                plain.remove(&row)
            };
            let mut differing = Vec::new();
            before.differences(&bits, |row| differing.push(row));
            assert!(differing.len() <= 1, "step {step}");
        }
        assert_eq!(bits.iter().collect::<BTreeSet<_>>(), plain);
        let mut each = Vec::new();
        (0..20).for_each(|block| bits.for_each(block * 512..(block + 1) * 512, |row| each.push(row)));
        assert!(each.iter().eq(plain.iter()));
        assert_eq!(bits.count() as usize, plain.len());
        let mut out = Writer::new();
        bits.write(&mut out);
        let read = VisibleRows::read(&mut Reader::new(out.as_slice())).unwrap();
        assert!(read.iter().eq(bits.iter()) && read.count() == bits.count());
    }

    #[test]
    fn all_of_a_length_that_fills_no_chunk_ends_at_the_last_row() {
        for rows in [1, 64, 4096, 4100, 4160] {
            let bits = VisibleRows::all(rows);
            assert_eq!(bits.iter().count(), rows as usize);
            let mut each = 0;
            bits.for_each(0..u32::MAX, |_| each += 1);
            assert_eq!(each, rows);
        }
        let mut bits = VisibleRows::all(4100);
        bits.set(4099, false);
        assert_eq!(bits.iter().last(), Some(4098));
        bits.set(4097, false);
        assert_eq!(bits.next(4097), Some(4098));
    }
}
