//! The bytes of a journal file before its first frame.
//!
//! ```text
//!  0                 8              16              32             40
//!  +-----------------+--------------+---------------+--------------+--------+--------+---…
//!  | engJRNL3        | number u64   | salt          | check of     | frame  | frame  |
//!  |                 |              |               | 0..32        |        |        |
//!  +-----------------+--------------+---------------+--------------+--------+--------+---…
//! ```
//!
//! The check is the first bytes of BLAKE3. With another salt no frame would have a check that holds, and the whole file would
//! pass for a torn tail.
//!
//! Files without a salt begin with `engrJRN2` and have their first frame at byte 16. They are read and carried on, and
//! no new one is made.

use super::frame::FrameChecksum;

// No flipped bit makes one of the two the other: without its salt, a file would have no whole frame.
const MAGIC: &[u8; 8] = b"engJRNL3";
const UNSALTED_MAGIC: &[u8; 8] = b"engrJRN2";
const NUMBER_END: usize = 16;
const SALT_END: usize = NUMBER_END + SALT_BYTES;
const SALT_BYTES: usize = 16;
/// Bytes before the first frame of a new file.
pub const FILE_HEADER_BYTES: u64 = SALT_END as u64 + 8;
/// The context of BLAKE3's key derivation for the checks of frames.
const KEY_CONTEXT: &str = "engramfs 2026 journal frames v1";

/// Random bytes, drawn anew for each journal file. Nobody who writes to a mount can know them, so no content looks like
/// a frame of the file that it is written to.
pub type Salt = [u8; SALT_BYTES];

/// What the first bytes of a journal file say of its frames.
#[derive(Clone, Copy)]
pub struct FileHeader {
    /// Offset of the first frame, in bytes.
    pub frames_start: u64,
    /// Computes the checks of the file's frames.
    pub checksum: FrameChecksum,
}

impl FileHeader {
    /// Returns the header of a new file, and its bytes.
    pub fn create(number: u64, salt: &Salt) -> (FileHeader, [u8; FILE_HEADER_BYTES as usize]) {
        let mut bytes = [0; FILE_HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..NUMBER_END].copy_from_slice(&number.to_le_bytes());
        bytes[NUMBER_END..SALT_END].copy_from_slice(salt);
        let (checked, check) = bytes.split_at_mut(SALT_END);
        check.copy_from_slice(&blake3::hash(checked).as_bytes()[..8]);
        (FileHeader::salted(checked), bytes)
    }

    /// Reads the header of the file with that number from its first bytes, [`FILE_HEADER_BYTES`] of them or as many as
    /// the file has. Returns none where it is not one.
    pub fn decode(number: u64, bytes: &[u8]) -> Option<FileHeader> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        if rest.first_chunk::<8>()? != &number.to_le_bytes() {
            return None;
        }
        match magic {
            MAGIC => {
                let (checked, rest) = bytes.split_at_checked(SALT_END)?;
                let is_right = rest.first_chunk::<8>()? == &blake3::hash(checked).as_bytes()[..8];
                (is_right || cfg!(fuzzing)).then(|| FileHeader::salted(checked))
            }
            UNSALTED_MAGIC => Some(FileHeader { frames_start: NUMBER_END as u64, checksum: FrameChecksum::Unkeyed }),
            _ => None,
        }
    }

    fn salted(checked: &[u8]) -> FileHeader {
        let key = blake3::derive_key(KEY_CONTEXT, checked);
        FileHeader { frames_start: FILE_HEADER_BYTES, checksum: FrameChecksum::Keyed(key) }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_a_flipped_bit_or_of_another_file_is_none() {
        let (_, good) = FileHeader::create(9, &[7; SALT_BYTES]);
        assert_eq!(FileHeader::decode(9, &good).unwrap().frames_start, FILE_HEADER_BYTES);
        for bit in 0..good.len() * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(FileHeader::decode(9, &bytes).is_none(), "bit {bit}");
        }
        assert!(FileHeader::decode(8, &good).is_none());
        assert!(FileHeader::decode(9, &good[..good.len() - 1]).is_none());
    }
}
