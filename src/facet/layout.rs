//! The bytes of one segment's metadata index, and the small pieces both sides read and write.
//!
//! Little-endian throughout; no field needs alignment. Bits are packed lowest first.
//!
//! ```text
//!  0        8      12      16            24                32
//!  +--------+------+-------+-------------+-----------------+
//!  | magic  | rows | paths | names bytes | unindexed bytes |                           header
//!  +--------+------+-------+-------------+-----------------+
//!  | directory: paths × (name end u64, body end u64), sorted by name                   |
//!  | names: the paths' UTF-8 bytes, one behind the other                               |
//!  | unindexed: bitmap of the rows with a path that is not in the directory            |
//!  | bodies: one a path: parts × (end of the part u64), then the parts                 |
//!  +-----------------------------------------------------------------------------------+
//!
//!  parts: eight bitmaps and four columns, in the order of `FacetPart`; an empty one has no bytes.
//!  A bitmap has the portable Roaring format.
//!
//!  a column: the distinct values, sorted, and the rows of each:
//!  +------------+-----------+--------------+----------+------------------+-----------------+
//!  | values u32 | heavy u32 | row width u8 | marks u8 | blocks bytes u64 | packed rows u64 |
//!  +------------+-----------+--------------+----------+------------------+-----------------+
//!  | directory: for each BLOCK_VALUES values (first packed row u64, end in blocks u64)  |
//!  | blocks: count width u8 · counts, packed · the values (below)                       |
//!  | rows of the values that are not heavy, in the order of values, packed; 8 zeros     |
//!  | marks: MARKS × one bit a row, or none: after each MARKS-th part of the packed rows,|
//!  |   which rows stood there up to here                                                |
//!  | heavy: heavy × (value's number u32, bitmap end u64)                                |
//!  | bitmaps                                                                            |
//!  +------------------------------------------------------------------------------------+
//!
//!  a block of numbers: base, 10 bytes · shift u8 · width u8 · packed ((key − base) >> shift)
//!  a block of strings: each (bytes shared with the one before u8, rest bytes × 2 + cut u8, rest)
//! ```
//!
//! A heavy value's count is 0 in its block. A string that is *cut* is only the beginning of
//! a value which is longer, and which no other value of the column shares.

use roaring::RoaringBitmap;

/// The first bytes of an index; the last one is the version of the layout.
pub(super) const MAGIC: [u8; 8] = *b"engface\x01";

/// Where the header has the number of rows, u32.
pub(super) const ROWS_AT: usize = MAGIC.len();
/// Where it has the number of paths, u32.
pub(super) const PATHS_AT: usize = ROWS_AT + size_of::<u32>();
/// Where it has the bytes of all names, u64.
pub(super) const NAMES_BYTES_AT: usize = PATHS_AT + size_of::<u32>();
/// Where it has the bytes of the bitmap of rows that are not wholly indexed, u64.
pub(super) const UNINDEXED_BYTES_AT: usize = NAMES_BYTES_AT + size_of::<u64>();
/// Bytes of the header; the directory begins there.
pub(super) const HEADER_BYTES: usize = UNINDEXED_BYTES_AT + size_of::<u64>();
/// Bytes of an entry of the directory: name end and body end, u64 each.
pub(super) const PATH_ENTRY_BYTES: usize = 2 * size_of::<u64>();

/// What is kept for a path; bitmaps first, then columns.
#[derive(Clone, Copy, Debug)]
pub(super) enum FacetPart {
    /// Rows that have the path.
    Present,
    /// Rows whose value is null, or a list with a null.
    Null,
    /// Rows whose value is true, or a list with true.
    True,
    /// Rows whose value is false, or a list with false.
    False,
    /// Rows whose value is an object.
    Objects,
    /// Rows whose value is a list.
    Lists,
    /// Rows whose value is a list with a list or an object inside.
    Nested,
    /// Rows whose value is a list too long to be in the columns of items.
    Long,
    /// Numbers that are the value.
    Numbers,
    /// Strings that are the value.
    Strings,
    /// Numbers that are elements of a list.
    NumberItems,
    /// Strings that are elements of a list.
    StringItems,
}

/// How many of the parts are bitmaps, which come first.
pub(super) const BITMAPS: usize = FacetPart::Numbers as usize;
/// How many parts a path has; each has an end in its body, empty ones too.
pub(super) const PARTS: usize = FacetPart::StringItems as usize + 1;

/// Where the header of a column has the number of heavy values, u32, behind that of all values.
pub(super) const HEAVY_COUNT_AT: usize = size_of::<u32>();
/// Where it has the bits of a packed row, u8, 1 to 32.
pub(super) const ROW_WIDTH_AT: usize = HEAVY_COUNT_AT + size_of::<u32>();
/// Where it has the number of marks, u8: [`MARKS`] or 0.
pub(super) const MARKS_AT: usize = ROW_WIDTH_AT + 1;
/// Where it has the bytes of all blocks, u64.
pub(super) const BLOCKS_BYTES_AT: usize = MARKS_AT + 1;
/// Where it has the number of packed rows, u64.
pub(super) const PACKED_AT: usize = BLOCKS_BYTES_AT + size_of::<u64>();
/// Bytes of a column's header; its directory begins there.
pub(super) const COLUMN_HEADER_BYTES: usize = PACKED_AT + size_of::<u64>();
/// Bytes of an entry of a column's directory: first packed row and end in the blocks, u64 each.
pub(super) const BLOCK_ENTRY_BYTES: usize = 2 * size_of::<u64>();
/// Bytes of an entry of the heavy values: the value's number u32, and where its bitmap ends u64.
pub(super) const HEAVY_ENTRY_BYTES: usize = size_of::<u32>() + size_of::<u64>();
/// Zeros behind the packed rows, so that each can be read as part of eight bytes.
pub(super) const PADDING_BYTES: usize = size_of::<u64>();

/// Bitmaps that say which rows are in the first parts of a column's packed rows.
pub(super) const MARKS: usize = 8;

/// More than one row in this many are gathered as bits, fewer as a list.
const BITS_FROM_ONE_IN: u32 = 256;
/// Values of a column that share an entry of its directory.
pub(super) const BLOCK_VALUES: usize = 64;
/// Longest beginning of a string that is kept: what fits seven bits.
pub(super) const STRING_BYTES_MAX: usize = 127;
/// Bytes of a number's key: 80 bits, little-endian, as [`NumberKey`](super::number::NumberKey) has them.
pub(super) const KEY_BYTES: usize = 10;

/// Returns the u32 at `at`, or nothing past the end.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*field))
}

/// Returns the u64 at `at`, or nothing past the end.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*field))
}

/// Returns the u64 at `at` as a size in memory, or nothing past the end or where it fits no `usize`.
pub(super) fn size_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64_at(bytes, at)?).ok()
}

/// Returns the i-th of several pieces that lie one after the other; the end of each is at `field` in its entry of
/// `entry_bytes` bytes.
pub(super) fn nth_piece<'a>(
    table: &[u8],
    entry_bytes: usize,
    field: usize,
    pieces: &'a [u8],
    i: usize,
) -> Option<&'a [u8]> {
    let at = i.checked_mul(entry_bytes)?.checked_add(field)?;
    let end = size_at(table, at)?;
    let start = if i == 0 { 0 } else { size_at(table, at - entry_bytes)? };
    pieces.get(start..end)
}

/// Returns the bits up to the highest one that is set; 0 for 0.
pub(super) fn bit_length(value: u128) -> u32 {
    u128::BITS - value.leading_zeros()
}

/// Returns the bytes of `count` packed fields; at most `usize::MAX`, as the count may come from damaged bytes.
pub(super) fn packed_bytes(count: usize, width: u32) -> usize {
    count.saturating_mul(width as usize).div_ceil(8)
}

/// Appends fields of `width` bits each, at most 80.
pub(super) fn pack(out: &mut Vec<u8>, width: u32, fields: impl Iterator<Item = u128>) {
    let (mut pending, mut filled) = (0u128, 0);
    for field in fields {
        pending |= field << filled;
        filled += width;
        while filled >= 8 {
            out.push(pending as u8);
            pending >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        out.push(pending as u8);
    }
}

/// Returns the i-th field of `width` bits; what lies past the end reads as zeros.
pub(super) fn unpack(bytes: &[u8], width: u32, i: usize) -> u128 {
    let bit = i * width as usize;
    if width <= 56
        && let Some(near) = u64_at(bytes, bit / 8)
    {
        return u128::from(near >> (bit % 8) & ((1 << width) - 1));
    }
    let mut near = [0; 16];
    let rest = bytes.get(bit / 8..).unwrap_or_default();
    let length = rest.len().min(near.len());
    near[..length].copy_from_slice(&rest[..length]);
    let mask = (1u128 << width.min(80)) - 1;
    u128::from_le_bytes(near) >> (bit % 8) & mask
}

/// Returns how many packed rows of `packed_rows` lie between two marks.
pub(super) fn mark_step(packed_rows: u64) -> u64 {
    packed_rows.div_ceil(MARKS as u64)
}

/// Returns a bitmap of rows below `rows`, `count` of them or fewer, in any order.
///
/// Setting single bits is many times faster than inserting into a Roaring bitmap, unless they are few.
pub(super) fn bitmap_from_rows(found: impl Iterator<Item = u32>, count: u64, rows: u32) -> RoaringBitmap {
    if count > u64::from(rows / BITS_FROM_ONE_IN) {
        let mut bits = vec![0; bitmap_bytes(rows)];
        found.for_each(|row| bits[row as usize / 8] |= 1 << (row % 8));
        return RoaringBitmap::from_lsb0_bytes(0, &bits);
    }
    let mut found: Vec<u32> = found.collect();
    found.sort_unstable();
    found.dedup();
    RoaringBitmap::from_sorted_iter(found).unwrap_or_default()
}

/// Returns the bytes of a bit for each row, of which the last may have unused high bits.
pub(super) fn bitmap_bytes(rows: u32) -> usize {
    rows.div_ceil(8) as usize
}

/// Appends a bitmap, or nothing for an empty one.
pub(super) fn put_bitmap(out: &mut Vec<u8>, mut bitmap: RoaringBitmap) {
    if !bitmap.is_empty() {
        bitmap.optimize();
        bitmap.serialize_into(out).expect("a vector takes all that is written");
    }
}

/// Reads a bitmap of rows below `rows`; empty if the bytes are none or not such a bitmap.
pub(super) fn bitmap(bytes: &[u8], rows: u32) -> RoaringBitmap {
    let read = || RoaringBitmap::deserialize_from(bytes).ok().filter(|bitmap| bitmap.max() < Some(rows));
    if bytes.is_empty() { RoaringBitmap::new() } else { read().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_fields_come_back() {
        for width in [0, 1, 7, 8, 17, 32, 63, 64, 79, 80] {
            let fields: Vec<u128> =
                (0..50u128).map(|i| (i * 0x9e37_79b9_7f4a_7c15_1234_5678) & ((1 << width) - 1)).collect();
            let mut bytes = Vec::new();
            pack(&mut bytes, width, fields.iter().copied());
            assert_eq!(bytes.len(), packed_bytes(fields.len(), width));
            let back: Vec<u128> = (0..50).map(|i| unpack(&bytes, width, i)).collect();
            assert_eq!(back, fields, "width {width}");
        }
    }

    #[test]
    fn bad_bitmaps_are_empty() {
        let mut bytes = Vec::new();
        put_bitmap(&mut bytes, (0..100).collect());
        assert_eq!(bitmap(&bytes, 100).len(), 100);
        assert!(bitmap(&bytes, 99).is_empty());
        assert!(bitmap(&bytes[..bytes.len() - 1], 100).is_empty());
        assert!(bitmap(&[0xff; 64], u32::MAX).is_empty());
    }
}
