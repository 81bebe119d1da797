//! Reading one column in place: which values are where, and which rows have them.

use std::ops::Range;

use roaring::RoaringBitmap;

use super::layout::{
    BLOCK_ENTRY_BYTES, BLOCK_VALUES, BLOCKS_BYTES_AT, COLUMN_HEADER_BYTES, HEAVY_COUNT_AT, HEAVY_ENTRY_BYTES,
    KEY_BYTES, MARKS_AT, PACKED_AT, PADDING_BYTES, ROW_WIDTH_AT, bitmap, bitmap_bytes, bitmap_from_rows, mark_step,
    nth_piece, packed_bytes, size_at, u32_at, u64_at, unpack,
};
use super::number::NumberKey;

/// The sorted values of one column and their rows. Values are numbered in their order.
///
/// Damaged bytes make values or rows missing, never a panic.
#[derive(Clone, Copy)]
pub(super) struct Column<'a> {
    /// How many distinct values there are, which have the numbers below that.
    pub(super) values: u32,
    rows: u32,
    row_width: u32,
    packed_rows: u64,
    directory: &'a [u8],
    blocks: &'a [u8],
    packed: &'a [u8],
    marks: &'a [u8],
    heavy: &'a [u8],
    bitmaps: &'a [u8],
}

/// Where an operand falls among the sorted values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SortPosition {
    /// How many values are less than the operand, which is also the number of the value that follows them.
    pub(super) lower_count: u32,
    /// Whether the value that follows them is the operand.
    pub(super) same: OperandMatch,
}

/// How the value behind those that are less compares to the operand, as far as its stored bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandMatch {
    /// It is greater.
    No,
    /// It is.
    Yes,
    /// It is cut, and may be less, the same or greater.
    Uncertain,
}

impl<'a> Column<'a> {
    /// Opens a column of a segment with `rows` rows; `None` if there are no bytes, or wrong ones.
    pub(super) fn open(bytes: &'a [u8], rows: u32) -> Option<Self> {
        let (values, heavy) = (u32_at(bytes, 0)?, u32_at(bytes, HEAVY_COUNT_AT)? as usize);
        let row_width = u32::from(*bytes.get(ROW_WIDTH_AT)?);
        let packed_rows = u64_at(bytes, PACKED_AT)?;
        let (_, rest) = bytes.split_at_checked(COLUMN_HEADER_BYTES)?;
        let (directory, rest) = rest.split_at_checked((values as usize).div_ceil(BLOCK_VALUES) * BLOCK_ENTRY_BYTES)?;
        let (blocks, rest) = rest.split_at_checked(size_at(bytes, BLOCKS_BYTES_AT)?)?;
        let packed = packed_bytes(usize::try_from(packed_rows).ok()?, row_width).checked_add(PADDING_BYTES)?;
        let (packed, rest) = rest.split_at_checked(packed)?;
        let (marks, rest) = rest.split_at_checked(usize::from(*bytes.get(MARKS_AT)?) * bitmap_bytes(rows))?;
        let (heavy, bitmaps) = rest.split_at_checked(heavy.checked_mul(HEAVY_ENTRY_BYTES)?)?;
        let column = Self { values, rows, row_width, packed_rows, directory, blocks, packed, marks, heavy, bitmaps };
        (1..=u32::BITS).contains(&row_width).then_some(column)
    }

    /// Finds where a number falls; none only where the bytes are damaged.
    pub(super) fn find_number(&self, key: NumberKey) -> Option<SortPosition> {
        let block = self.last_block(|values| read_base(values).is_some_and(|base| base <= key.bits()))?;
        let (_, values) = self.block(block)?;
        let (base, shift, width) = (read_base(values)?, *values.get(KEY_BYTES)?, *values.get(KEY_BYTES + 1)?);
        let packed = values.get(KEY_BYTES + 2..)?;
        // Wrapping, because damaged bytes may add up to anything.
        let value = |i: usize| base.wrapping_add(unpack(packed, width.into(), i) << (shift % 80));
        let (mut low, mut high) = (0, self.values_in(block));
        while low < high {
            let middle = low + (high - low) / 2;
            if value(middle) < key.bits() { low = middle + 1 } else { high = middle }
        }
        let found = low < self.values_in(block) && value(low) == key.bits();
        let same = if found { OperandMatch::Yes } else { OperandMatch::No };
        Some(SortPosition { lower_count: (block * BLOCK_VALUES + low) as u32, same })
    }

    /// Finds where a string falls among the others, bytewise; none only where the bytes are damaged.
    pub(super) fn find_string(&self, operand: &[u8]) -> Option<SortPosition> {
        let block = self.last_block(|values| first_string(values).is_some_and(|first| first <= operand))?;
        let (_, mut values) = self.block(block)?;
        // All values seen are less than the operand, except that the last one may be where the
        // operand begins. `common` is what that one and the operand have in common.
        let (mut lower_count, mut same, mut common) = (block * BLOCK_VALUES, OperandMatch::No, 0);
        for _ in 0..self.values_in(block) {
            let CodedString { prefix_length, suffix, is_cut } = next_string(&mut values)?;
            if prefix_length < common {
                break;
            }
            if prefix_length == common {
                let rest = operand.get(common..)?;
                let more = suffix.iter().zip(rest).take_while(|(suffix, rest)| suffix == rest).count();
                same = match (suffix.get(more), rest.get(more)) {
                    (None, None) if !is_cut => OperandMatch::Yes,
                    (None, _) if is_cut => OperandMatch::Uncertain,
                    (suffix, rest) if suffix > rest => break,
                    _ => OperandMatch::No,
                };
                common += more;
            }
            lower_count += 1;
        }
        lower_count -= usize::from(same != OperandMatch::No);
        Some(SortPosition { lower_count: lower_count as u32, same })
    }

    /// Returns the last block whose values begin as `begins` says; the first one where none does.
    fn last_block(&self, begins: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let (mut low, mut high) = (0, (self.values as usize).div_ceil(BLOCK_VALUES));
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let (_, values) = self.block(middle)?;
            if begins(values) { low = middle } else { high = middle }
        }
        (high > 0).then_some(low)
    }

    fn block(&self, block: usize) -> Option<(CountColumn<'a>, &'a [u8])> {
        let bytes = nth_piece(self.directory, BLOCK_ENTRY_BYTES, size_of::<u64>(), self.blocks, block)?;
        let (width, rest) = bytes.split_first()?;
        let (packed, values) = rest.split_at_checked(packed_bytes(self.values_in(block), (*width).into()))?;
        Some((CountColumn { packed, width: (*width).into() }, values))
    }

    fn values_in(&self, block: usize) -> usize {
        (self.values as usize - block * BLOCK_VALUES).min(BLOCK_VALUES)
    }

    /// Returns where the packed rows of a value begin.
    fn position(&self, value: u32) -> Option<u64> {
        if value >= self.values {
            return Some(self.packed_rows);
        }
        let (block, i) = (value as usize / BLOCK_VALUES, value as usize % BLOCK_VALUES);
        let base = u64_at(self.directory, block * BLOCK_ENTRY_BYTES)?;
        let (counts, _) = self.block(block)?;
        base.checked_add(counts.sum_of_first(i))
    }

    fn count(&self, value: u32) -> Option<u64> {
        let (counts, _) = self.block(value as usize / BLOCK_VALUES)?;
        Some(counts.get(value as usize % BLOCK_VALUES))
    }

    fn positions(&self, values: &Range<u32>) -> Option<Range<u64>> {
        let start = self.position(values.start)?;
        let end =
            if values.len() == 1 { start.checked_add(self.count(values.start)?)? } else { self.position(values.end)? };
        let rows = start..end;
        (rows.start <= rows.end && rows.end <= self.packed_rows).then_some(rows)
    }

    /// Returns the rows that have a value in any of these ranges.
    pub(super) fn rows_in_ranges(&self, ranges: &[Range<u32>]) -> RoaringBitmap {
        let ranges = ranges.iter().filter(|range| !range.is_empty());
        let packed: Vec<Range<u64>> = ranges.clone().filter_map(|range| self.positions(range)).collect();
        ranges
            .flat_map(|range| self.heavy_bitmaps(range.clone()))
            .fold(self.bitmap_from_ranges(&packed), |rows, heavy| rows | heavy)
    }

    fn heavy_bitmaps(&self, values: Range<u32>) -> impl Iterator<Item = RoaringBitmap> {
        let value = |i: usize| u32_at(self.heavy, i * HEAVY_ENTRY_BYTES);
        let entries = 0..self.heavy.len() / HEAVY_ENTRY_BYTES;
        let entries = entries.filter(move |i| value(*i).is_some_and(|value| values.contains(&value)));
        entries.map(|i| {
            let bytes = nth_piece(self.heavy, HEAVY_ENTRY_BYTES, size_of::<u32>(), self.bitmaps, i);
            bitmap(bytes.unwrap_or_default(), self.rows)
        })
    }

    fn bitmap_from_ranges(&self, ranges: &[Range<u64>]) -> RoaringBitmap {
        let count = ranges.iter().map(|range| range.end - range.start).fold(0, u64::saturating_add);
        match ranges {
            [range] if !self.marks.is_empty() && count > mark_step(self.packed_rows) => self.bitmap_by_marks(range),
            ranges => {
                bitmap_from_rows(ranges.iter().flat_map(|range| self.packed_rows(range.clone())), count, self.rows)
            }
        }
    }

    fn bitmap_by_marks(&self, range: &Range<u64>) -> RoaringBitmap {
        let mut bits = vec![0; bitmap_bytes(self.rows)];
        self.toggle_rows_before(range.end, &mut bits);
        self.toggle_rows_before(range.start, &mut bits);
        if let Some(last) = bits.last_mut() {
            // Clear the bits beyond the last row: only damaged marks have any.
            *last &= u8::MAX >> (self.rows.next_multiple_of(8) - self.rows);
        }
        RoaringBitmap::from_lsb0_bytes(0, &bits)
    }

    /// Flips the bits of all rows that are packed before a position: by the nearest mark, and one
    /// by one from there. Each row is packed once, so that flipping up to two ends leaves what
    /// lies between them.
    fn toggle_rows_before(&self, position: u64, bits: &mut [u8]) {
        let step = mark_step(self.packed_rows);
        let mark = (position + step / 2) / step;
        if let Some(marked) = mark.checked_sub(1).and_then(|i| self.marks.chunks_exact(bits.len()).nth(i as usize)) {
            bits.iter_mut().zip(marked).for_each(|(bits, marked)| *bits ^= marked);
        }
        let marked = (mark * step).min(self.packed_rows);
        let rest = self.packed_rows(marked.min(position)..marked.max(position));
        rest.for_each(|row| bits[row as usize / 8] ^= 1 << (row % 8));
    }

    /// Unpacks rows, all of them below the number of rows.
    fn packed_rows(&self, positions: Range<u64>) -> impl Iterator<Item = u32> {
        let (width, mask) = (u64::from(self.row_width), (1u64 << self.row_width) - 1);
        let rows = positions.filter_map(move |position| {
            let bit = position * width;
            let near = u64_at(self.packed, (bit / 8) as usize)?;
            Some((near >> (bit % 8) & mask) as u32)
        });
        rows.filter(|row| *row < self.rows)
    }
}

/// How many packed rows the values of a block have.
struct CountColumn<'a> {
    packed: &'a [u8],
    width: u32,
}

impl CountColumn<'_> {
    /// Returns the sum of the first `n` counts.
    fn sum_of_first(&self, n: usize) -> u64 {
        (0..n).fold(0, |sum: u64, i| sum.saturating_add(self.get(i)))
    }

    fn get(&self, i: usize) -> u64 {
        unpack(self.packed, self.width, i) as u64
    }
}

fn read_base(values: &[u8]) -> Option<u128> {
    let mut base = [0; 16];
    base[..KEY_BYTES].copy_from_slice(values.get(..KEY_BYTES)?);
    Some(u128::from_le_bytes(base))
}

fn first_string(values: &[u8]) -> Option<&[u8]> {
    let length = usize::from(values.get(1)? >> 1);
    values.get(2..2 + length)
}

/// A string of a block, coded by what it has in common with the one before.
struct CodedString<'a> {
    /// Bytes that it has in common with the one before.
    prefix_length: usize,
    suffix: &'a [u8],
    is_cut: bool,
}

/// Takes a string from the front of a block.
fn next_string<'a>(values: &mut &'a [u8]) -> Option<CodedString<'a>> {
    let (head, rest) = values.split_first_chunk::<2>()?;
    let (suffix, rest) = rest.split_at_checked(usize::from(head[1] >> 1))?;
    *values = rest;
    Some(CodedString { prefix_length: head[0].into(), suffix, is_cut: head[1] & 1 == 1 })
}
