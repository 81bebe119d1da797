//! The bytes of one frame.
//!
//! ```text
//!  0        1            5             13            17              25
//!  +--------+------------+-------------+-------------+---------------+---------…
//!  | kind   | length u32 | flushed u64 | check u32   | check u64     | payload
//!  |        | of payload | offset      | of 0..13    | of 0..17 and  |
//!  |        |            |             |             | the payload   |
//!  +--------+------------+-------------+-------------+---------------+---------…
//! ```
//!
//! All numbers are little-endian. `flushed` is the offset in the same file below which everything
//! was known to be on the device when the frame was written. The checks are the first bytes of
//! keyed BLAKE3 over the frame's offset (u64) and what they cover; the header has its own, so that a
//! frame whose file ends early differs from a damaged one.
//!
//! The payload of a frame of content is in parts: the length of its head as u32, the head, and the
//! content with what vouches for it. The check covers the first two, since who wrote the rest hashes
//! it anyway.

use std::ops::RangeInclusive;

const KIND_AT: usize = 0;
const LENGTH_AT: usize = KIND_AT + 1;
const FLUSHED_AT: usize = LENGTH_AT + 4;
const HEADER_CHECK_AT: usize = FLUSHED_AT + 8;
const CHECK_AT: usize = HEADER_CHECK_AT + 4;

/// Bytes of a frame before its payload: header, the header's check and the payload's.
pub const FRAME_HEADER_BYTES: usize = CHECK_AT + 8;

/// Bytes of the length, a little-endian u32, that the payload of content has in front of its head.
pub(super) const HEAD_LENGTH_BYTES: usize = 4;

/// Largest payload: 1 GiB.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// What a frame is for; a code stays with its kind for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Something happened; the payload says what.
    Command,
    /// Only tells how far the device was flushed.
    Mark,
    /// A clean end: everything before it in the file is whole.
    End,
    /// A small step that a later command commits with others.
    FileOp,
    /// The same with content that its writer vouches for: who reads it back judges the content.
    Content,
    /// The first frame of a file that follows another one: the length of that one.
    Begin,
    /// A branch has read its shared log so far; committed by no entry.
    Cursor,
    /// Signals were written or removed; committed by no entry either.
    Signals,
    /// Somebody works in a branch from now on; an entry says when nobody does any longer.
    Lease,
    /// Written by a later version; the code says whether this one may skip it.
    Unknown(u8),
}

/// Codes of frames that later versions may write and that one which does not know them skips.
const SKIPPED: RangeInclusive<u8> = 0xC0..=0xDF;

impl FrameKind {
    /// All kinds that this version writes; any other code reads as [`FrameKind::Unknown`].
    pub(super) const ALL: [FrameKind; 9] = [
        FrameKind::Command,
        FrameKind::Mark,
        FrameKind::End,
        FrameKind::FileOp,
        FrameKind::Content,
        FrameKind::Begin,
        FrameKind::Cursor,
        FrameKind::Signals,
        FrameKind::Lease,
    ];

    /// Returns its byte in a frame; one code is never given to another kind.
    pub(super) fn code(self) -> u8 {
        match self {
            FrameKind::Command => 0xA1,
            FrameKind::Mark => 0xA2,
            FrameKind::End => 0xA3,
            FrameKind::FileOp => 0xA4,
            FrameKind::Content => 0xA5,
            FrameKind::Begin => 0xA6,
            FrameKind::Cursor => 0xA7,
            FrameKind::Signals => 0xA8,
            FrameKind::Lease => 0xA9,
            FrameKind::Unknown(code) => code,
        }
    }

    fn from_code(code: u8) -> FrameKind {
        FrameKind::ALL.into_iter().find(|kind| kind.code() == code).unwrap_or(FrameKind::Unknown(code))
    }

    /// Returns whether a reader passes over it: it is of a later version, and its code allows that.
    pub(super) fn is_skipped(self) -> bool {
        matches!(self, FrameKind::Unknown(code) if SKIPPED.contains(&code))
    }
}

/// What a frame says in front of its payload. [`FrameChecksum::decode`] gives none whose own check fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame is for; its code is the first byte.
    pub kind: FrameKind,
    /// Bytes of the payload, which may lie past the end of a torn file.
    pub length_bytes: usize,
    /// Offset in the same file that was known to be flushed when the frame was written.
    pub flushed_to: u64,
    offset: u64,
    checksum: u64,
}

/// How the checks of a file's frames are computed.
#[derive(Clone, Copy)]
pub enum FrameChecksum {
    /// BLAKE3 of the bytes alone, in files without a salt.
    Unkeyed,
    /// BLAKE3 with the file's key, over the frame's offset and the bytes, so that a frame copied elsewhere is invalid.
    Keyed([u8; blake3::KEY_LEN]),
}

impl FrameChecksum {
    /// Returns the header of a frame at `offset` whose payload is `parts` one after the other, and `rest` bytes that the
    /// check does not cover. Parts and rest together are at most [`PAYLOAD_BYTES_MAX`] bytes.
    pub fn encode_header(
        &self,
        offset: u64,
        kind: FrameKind,
        flushed: u64,
        parts: &[&[u8]],
        rest: usize,
    ) -> [u8; FRAME_HEADER_BYTES] {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() + rest;
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[KIND_AT] = kind.code();
        bytes[LENGTH_AT..FLUSHED_AT].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[FLUSHED_AT..HEADER_CHECK_AT].copy_from_slice(&flushed.to_le_bytes());
        // The header has a check of its own, so that a reader can trust the length before it has read so much.
        let header_check = self.header_check(offset, &bytes);
        bytes[HEADER_CHECK_AT..CHECK_AT].copy_from_slice(&header_check);
        // The header is hashed with the payload, so that a payload can't be put behind another header.
        let check = self.whole_check(offset, &[&[&bytes[..CHECK_AT]], parts].concat());
        bytes[CHECK_AT..].copy_from_slice(&check);
        bytes
    }

    /// Returns the header in the first [`FRAME_HEADER_BYTES`] bytes, which stand at `offset`, if its own check holds.
    pub fn decode(&self, offset: u64, bytes: &[u8]) -> Option<FrameHeader> {
        let bytes: &[u8; FRAME_HEADER_BYTES] = bytes.get(..FRAME_HEADER_BYTES)?.try_into().ok()?;
        // A fuzzer would hardly ever make a check that holds, and see nothing of what is behind it.
        if !cfg!(fuzzing) && bytes[HEADER_CHECK_AT..CHECK_AT] != self.header_check(offset, bytes) {
            return None;
        }
        Some(FrameHeader {
            kind: FrameKind::from_code(bytes[KIND_AT]),
            length_bytes: u32::from_le_bytes(bytes[LENGTH_AT..FLUSHED_AT].try_into().ok()?) as usize,
            flushed_to: u64::from_le_bytes(bytes[FLUSHED_AT..HEADER_CHECK_AT].try_into().ok()?),
            offset,
            checksum: u64::from_le_bytes(bytes[CHECK_AT..].try_into().ok()?),
        })
    }

    /// Returns whether a frame's header and payload are what was written; of content only its head is looked at.
    pub fn is_whole(&self, header: &FrameHeader, header_bytes: &[u8], payload: &[u8]) -> bool {
        let covered = match header.kind {
            FrameKind::Content => split_content(payload).map(|(head, _)| &payload[..HEAD_LENGTH_BYTES + head.len()]),
            _ => Some(payload),
        };
        covered.is_some_and(|covered| {
            let check = || self.whole_check(header.offset, &[&header_bytes[..CHECK_AT], covered]);
            cfg!(fuzzing) || header.checksum == u64::from_le_bytes(check())
        })
    }

    /// Returns the check of the fields in front of it. It is computed at each byte of a torn tail, so the bytes are hashed in
    /// one piece, for which no hasher with its stack of chunks is made.
    fn header_check(&self, offset: u64, bytes: &[u8; FRAME_HEADER_BYTES]) -> [u8; 4] {
        const OFFSET_BYTES: usize = 8;
        let fields = &bytes[..HEADER_CHECK_AT];
        let hash = match self {
            FrameChecksum::Unkeyed => blake3::hash(fields),
            FrameChecksum::Keyed(key) => {
                let mut hashed = [0; OFFSET_BYTES + HEADER_CHECK_AT];
                hashed[..OFFSET_BYTES].copy_from_slice(&offset.to_le_bytes());
                hashed[OFFSET_BYTES..].copy_from_slice(fields);
                blake3::keyed_hash(key, &hashed)
            }
        };
        let [first, second, third, fourth, ..] = *hash.as_bytes();
        [first, second, third, fourth]
    }

    /// Returns the check of header and payload, given as `parts` one after the other.
    fn whole_check(&self, offset: u64, parts: &[&[u8]]) -> [u8; 8] {
        let mut hasher = match self {
            FrameChecksum::Unkeyed => blake3::Hasher::new(),
            FrameChecksum::Keyed(key) => {
                let mut hasher = blake3::Hasher::new_keyed(key);
                hasher.update(&offset.to_le_bytes());
                hasher
            }
        };
        for part in parts {
            hasher.update(part);
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        first
    }
}

/// Returns the head of a frame of content, and what is behind it. `None` if the payload is shorter than the length of
/// the head says.
pub fn split_content(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    // The length is of untrusted bytes at this point; both splits fail where it says more than there is.
    let (length, rest) = payload.split_first_chunk::<HEAD_LENGTH_BYTES>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    const CHECKSUM: FrameChecksum = FrameChecksum::Keyed([7; blake3::KEY_LEN]);
    const OFFSET: u64 = 1000;

    fn encode(kind: FrameKind, flushed: u64, parts: &[&[u8]]) -> Vec<u8> {
        [&CHECKSUM.encode_header(OFFSET, kind, flushed, parts, 0)[..], &parts.concat()].concat()
    }

    #[test]
    fn the_format_says_which_kinds_there_are() {
        let names = ["command", "mark", "end", "edit", "content", "begin", "cursor", "signals", "lease"];
        let used = FrameKind::ALL.map(FrameKind::code).into_iter().zip(names.map(str::to_owned)).collect();
        assert_eq!(crate::object::format_tables::table("Frames"), used);
    }

    #[test]
    fn a_frame_takes_1_gib() {
        assert_eq!(PAYLOAD_BYTES_MAX, 1 << 30, "as the page says");
    }

    #[test]
    fn a_frame_reads_back() {
        let bytes = encode(FrameKind::Command, 99, &[b"ab", b"c"]);
        let header = CHECKSUM.decode(OFFSET, &bytes).unwrap();
        assert_eq!((header.kind, header.length_bytes, header.flushed_to), (FrameKind::Command, 3, 99));
        assert!(CHECKSUM.is_whole(&header, &bytes, &bytes[FRAME_HEADER_BYTES..]));
    }

    #[test]
    fn a_frame_is_none_elsewhere_in_its_file_nor_in_another_file() {
        let bytes = encode(FrameKind::Command, 99, &[b"payload"]);
        assert!(CHECKSUM.decode(OFFSET + 1, &bytes).is_none());
        for other in [FrameChecksum::Keyed([8; blake3::KEY_LEN]), FrameChecksum::Unkeyed] {
            assert!(other.decode(OFFSET, &bytes).is_none());
        }
    }

    /// The header's check has 32 bits, which somebody may guess; the check of the whole holds by itself.
    #[test]
    fn the_check_of_the_payload_needs_the_key_and_the_offset_too() {
        let bytes = encode(FrameKind::Command, 99, &[b"payload"]);
        let header = CHECKSUM.decode(OFFSET, &bytes).unwrap();
        let moved = FrameHeader { offset: OFFSET + 1, ..header };
        let other = FrameChecksum::Keyed([8; blake3::KEY_LEN]);
        assert!(!CHECKSUM.is_whole(&moved, &bytes, b"payload") && !other.is_whole(&header, &bytes, b"payload"));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = encode(FrameKind::Command, 7, &[b"payload"]);
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = match CHECKSUM.decode(OFFSET, &bytes) {
                None => true,
                Some(header) => {
                    header.length_bytes != 7 || !CHECKSUM.is_whole(&header, &bytes, &bytes[FRAME_HEADER_BYTES..])
                }
            };
            assert!(found, "bit {bit}");
        }
    }

    #[test]
    fn of_content_only_the_head_is_covered() {
        let (length, head, rest) = (4u32.to_le_bytes(), b"head", b"content");
        let header_bytes = CHECKSUM.encode_header(OFFSET, FrameKind::Content, 7, &[&length, head], rest.len());
        let good = [&length[..], head, rest].concat();
        let header = CHECKSUM.decode(OFFSET, &header_bytes).unwrap();
        assert_eq!((header.length_bytes, split_content(&good)), (good.len(), Some((&head[..], &rest[..]))));
        for byte in 0..good.len() {
            let mut bytes = good.clone();
            bytes[byte] ^= 1;
            assert_eq!(CHECKSUM.is_whole(&header, &header_bytes, &bytes), byte >= 8, "byte {byte}");
        }
    }
}
