//! Encoding one column: sorted values and their rows.

use std::ops::Range;

use super::layout::{
    BLOCK_VALUES, BLOCKS_BYTES_AT, COLUMN_HEADER_BYTES, HEAVY_COUNT_AT, MARKS, MARKS_AT, PACKED_AT, PADDING_BYTES,
    ROW_WIDTH_AT, STRING_BYTES_MAX, bit_length, bitmap_bytes, bitmap_from_rows, mark_step, pack, put_bitmap,
};
use super::number::NumberKey;
use super::values::SortedValues;

/// A value gets a bitmap when at least one row in this many has it: that is where a bitmap becomes smaller
/// than a list, and much faster.
const HEAVY_ROWS_ONE_IN: usize = 16;
/// A list of fewer rows than this is as good as a bitmap.
const HEAVY_ROWS_MIN: usize = 256;
/// Marks are made where they are worth their bytes: for that many packed rows and one in so many rows.
const MARKED_ROWS_MIN: u64 = 4096;
const MARKED_ROWS_ONE_IN: u32 = 4;
/// A string that fewer rows share may be cut: so few rows are soon looked at.
const UNCUT_ROWS_MIN: usize = 8;
/// Bytes that cutting a string must save; names and times stay whole, random ids don't.
const SAVED_BYTES_MIN: usize = 16;

/// A kind of value that columns hold: numbers and strings, each with blocks of its own form.
pub(super) trait ColumnValue: Sized {
    /// Appends the values of one block.
    fn put_block(column: &SortedValues<Self>, block: Range<usize>, out: &mut Vec<u8>);
}

/// Returns a column of a segment with `rows` rows as bytes; none if there are no values. `ordered` when ranges of it
/// will be asked for, and each row has one value.
pub(super) fn encode_column<V: ColumnValue>(column: SortedValues<V>, rows: u32, ordered: bool) -> Vec<u8> {
    if column.values.is_empty() {
        return Vec::new();
    }
    let heavy_from = HEAVY_ROWS_MIN.max(rows as usize / HEAVY_ROWS_ONE_IN);
    let is_heavy = |i: &usize| column.rows(*i).len() >= heavy_from;
    let all = 0..column.values.len();
    let (mut directory, mut blocks, mut packed_rows) = (Vec::new(), Vec::new(), 0u64);
    for start in all.clone().step_by(BLOCK_VALUES) {
        let block = start..(start + BLOCK_VALUES).min(all.end);
        directory.extend(packed_rows.to_le_bytes());
        let counts = block.clone().map(|i| if is_heavy(&i) { 0 } else { column.rows(i).len() as u64 });
        packed_rows += counts.clone().sum::<u64>();
        let width = bit_length(counts.clone().max().unwrap_or_default().into());
        blocks.push(width as u8);
        pack(&mut blocks, width, counts.map(u128::from));
        V::put_block(&column, block, &mut blocks);
        directory.extend((blocks.len() as u64).to_le_bytes());
    }
    // At least one bit, so that the number of packed rows is bounded by their bytes.
    let row_width = bit_length(rows.saturating_sub(1).into()).max(1);
    let marked = ordered && packed_rows >= MARKED_ROWS_MIN.max((rows / MARKED_ROWS_ONE_IN).into());
    let mut out = vec![0; COLUMN_HEADER_BYTES];
    out[..HEAVY_COUNT_AT].copy_from_slice(&(all.end as u32).to_le_bytes());
    out[HEAVY_COUNT_AT..ROW_WIDTH_AT].copy_from_slice(&(all.clone().filter(is_heavy).count() as u32).to_le_bytes());
    (out[ROW_WIDTH_AT], out[MARKS_AT]) = (row_width as u8, if marked { MARKS as u8 } else { 0 });
    out[BLOCKS_BYTES_AT..PACKED_AT].copy_from_slice(&(blocks.len() as u64).to_le_bytes());
    out[PACKED_AT..].copy_from_slice(&packed_rows.to_le_bytes());
    out.extend(directory);
    out.extend(blocks);
    let light = all.clone().filter(|i| !is_heavy(i)).flat_map(|i| column.rows(i).iter().copied());
    pack(&mut out, row_width, light.clone().map(u128::from));
    out.extend([0; PADDING_BYTES]);
    if marked {
        put_marks(&mut out, light, packed_rows, rows);
    }
    let mut bitmaps = Vec::new();
    for i in all.filter(is_heavy) {
        let value_rows = column.rows(i);
        put_bitmap(&mut bitmaps, bitmap_from_rows(value_rows.iter().copied(), value_rows.len() as u64, rows));
        out.extend((i as u32).to_le_bytes());
        out.extend((bitmaps.len() as u64).to_le_bytes());
    }
    out.extend(bitmaps);
    out
}

/// Appends which rows are in the first eighth of the packed rows, in the first two, and so on.
fn put_marks(out: &mut Vec<u8>, packed: impl Iterator<Item = u32>, packed_rows: u64, rows: u32) {
    let mut bits = vec![0u8; bitmap_bytes(rows)];
    let step = mark_step(packed_rows);
    for (row, number) in packed.zip(1..) {
        bits[row as usize / 8] |= 1 << (row % 8);
        if number % step == 0 || number == packed_rows {
            out.extend(&bits);
        }
    }
}

impl ColumnValue for NumberKey {
    fn put_block(column: &SortedValues<Self>, block: Range<usize>, out: &mut Vec<u8>) {
        let keys = &column.values[block];
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return };
        let above = keys.iter().map(|key| key.bits() - first.bits());
        // Whole numbers leave the lower bits of a float empty.
        let shift = above.clone().fold(u128::BITS, |shift, above| shift.min(above.trailing_zeros())) % u128::BITS;
        let width = bit_length((last.bits() - first.bits()) >> shift);
        out.extend(first.to_bytes());
        out.extend([shift as u8, width as u8]);
        pack(out, width, above.map(|above| above >> shift));
    }
}

impl ColumnValue for &[u8] {
    fn put_block(column: &SortedValues<Self>, block: Range<usize>, out: &mut Vec<u8>) {
        let mut before: &[u8] = &[];
        for i in block {
            let (kept, cut) = stored_prefix(column, i);
            let shared = common_prefix_length(before, kept);
            out.extend([shared as u8, ((kept.len() - shared) << 1) as u8 | u8::from(cut)]);
            out.extend(&kept[shared..]);
            before = kept;
        }
    }
}

/// Returns what is kept of the i-th string, and whether it is cut.
fn stored_prefix<'a>(column: &SortedValues<&'a [u8]>, i: usize) -> (&'a [u8], bool) {
    let string = column.values[i];
    let neighbours = [i.checked_sub(1), Some(i + 1)].into_iter().flatten().filter_map(|i| column.values.get(i));
    let telling = neighbours.map(|other| common_prefix_length(other, string)).max().unwrap_or_default() + 1;
    if telling + SAVED_BYTES_MIN <= string.len() && column.rows(i).len() < UNCUT_ROWS_MIN {
        return (&string[..telling], true);
    }
    (string, string.len() == STRING_BYTES_MAX)
}

/// Returns how many bytes two strings have in common at their beginning.
fn common_prefix_length(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
