//! The bytes of one segment's inverted index, and the small pieces both sides read and write.
//!
//! Little-endian throughout; no field needs alignment.
//!
//! ```text
//!  0        8       12       16            24            32            40
//!  +--------+--------+--------+-------------+-------------+-------------+
//!  | magic  |  rows  | terms  | total length| names bytes | lists bytes |   header
//!  +--------+--------+--------+-------------+-------------+-------------+
//!  | length of row 0, 1, 2, …: rows × u32                               |
//!  +--------------------------------------------------------------------+
//!  | dictionary: terms × (name start u64, list start u64), sorted       |
//!  +--------------------------------------------------------------------+
//!  | names: the terms' UTF-8 bytes, one behind the other                |
//!  +--------------------------------------------------------------------+
//!  | lists: one posting list a term, one behind the other               |
//!  +--------------------------------------------------------------------+
//!
//!  a posting list of n postings (a name or list ends where the next begins):
//!  +----------+------------------------------------------------+--------------+
//!  | n varint | skip table, only if n > BLOCK_POSTINGS: for    | blocks, each |
//!  |          | each block of that many (last row u32, its end | at most that |
//!  |          | u64)                                           | many         |
//!  +----------+------------------------------------------------+--------------+
//!  a posting: (row − the least row it could be) varint, count − 1 varint
//! ```
//!
//! The least row a posting could be is one more than the row before it (0 for the first), so rows
//! ascend by construction. A block's end counts from the first block's start.

/// The first bytes of an index; the last one is the version of the layout.
pub(super) const MAGIC: [u8; 8] = *b"engtext\x01";

/// Where the header has the number of rows, u32.
pub(super) const ROWS_AT: usize = MAGIC.len();
/// Where it has the number of terms, u32.
pub(super) const TERMS_AT: usize = ROWS_AT + size_of::<u32>();
/// Where it has the tokens of all rows together, u64.
pub(super) const TOTAL_AT: usize = TERMS_AT + size_of::<u32>();
/// Where it has the bytes of all names, u64.
pub(super) const NAMES_BYTES_AT: usize = TOTAL_AT + size_of::<u64>();
/// Where it has the bytes of all posting lists, u64.
pub(super) const LISTS_BYTES_AT: usize = NAMES_BYTES_AT + size_of::<u64>();
/// Bytes of the header; the lengths of the rows begin there.
pub(super) const HEADER_BYTES: usize = LISTS_BYTES_AT + size_of::<u64>();

/// Bytes of a row's length, which is a number of tokens.
pub(super) const LENGTH_BYTES: usize = size_of::<u32>();
/// Bytes of an entry of the dictionary: name start and list start, u64 each.
pub(super) const TERM_ENTRY_BYTES: usize = 2 * size_of::<u64>();

/// Postings in a block: what a seek may have to decode for nothing.
pub(super) const BLOCK_POSTINGS: u32 = 128;
/// Bytes of an entry of a skip table: last row u32, and where the block ends u64.
pub(super) const SKIP_ENTRY_BYTES: usize = size_of::<u32>() + size_of::<u64>();

/// Returns the u32 at `at`, or nothing past the end.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*field))
}

/// Returns the u64 at `at` as a size in memory, or nothing past the end or where it fits no `usize`.
pub(super) fn size_at(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u64::from_le_bytes(*field)).ok()
}

/// Appends `value` in groups of seven bits, lowest first; every byte but the last has its top bit set.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes one varint from the front of `bytes`; `None` if it is cut short or exceeds 32 bits.
#[inline]
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u32> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u32::from(first));
    }
    let mut value = u64::from(first & 0x7f);
    for (i, &byte) in rest.iter().take(4).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * (i + 1));
        if byte < 0x80 {
            *bytes = &rest[i + 1..];
            return u32::try_from(value).ok();
        }
    }
    None
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 1 << 21, 1 << 28, u32::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            bytes.push(9);
            let mut rest = &bytes[..];
            assert_eq!(take_varint(&mut rest).unwrap(), value);
            assert_eq!(rest, [9]);
        }
    }

    #[test]
    fn bad_varints_are_nothing() {
        assert_eq!(take_varint(&mut &[][..]), None);
        assert_eq!(take_varint(&mut &[0x80][..]), None);
        assert_eq!(take_varint(&mut &[0xff; 9][..]), None);
        assert_eq!(take_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), None);
    }
}
