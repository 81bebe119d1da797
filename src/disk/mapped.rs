//! Bytes of a whole file, mapped or owned. Either way the first is aligned to 64 bytes, so that columns can be used as
//! numbers where they lie.

use std::ops::{Deref, Range};

use memmap2::Advice;

/// Alignment of the first byte, in bytes: a cache line, and enough for any vector instruction.
const ALIGNMENT_BYTES: usize = 64;

/// Holds a whole file for reading; derefs to its bytes, whose first is 64-byte aligned.
#[derive(Debug)]
pub struct Mapped(MappedBytes);

#[derive(Debug)]
enum MappedBytes {
    Map(memmap2::Mmap),
    /// A buffer with room to align, and where in it the file's bytes are.
    Owned(Box<[u8]>, Range<usize>),
}

impl Mapped {
    /// Takes over a mapping; the kernel aligned it to a page, or to a huge one where it has those for files.
    pub(super) fn from_map(map: memmap2::Mmap) -> Self {
        Self(MappedBytes::Map(map))
    }

    /// Has the kernel read a range that is wanted whole, in huge pages where it can, before anyone
    /// touches it: one entry of the processor's table of pages then covers 2 MiB.
    ///
    /// Only time depends on it: where there are no huge pages all stays as it was, and of what can't be
    /// read, whoever reads it next gets the error. The rest of the file keeps its small pages, since one
    /// row of it should not cost the reading of 2 MiB.
    pub fn prefetch(&self, range: Range<usize>) {
        let MappedBytes::Map(map) = &self.0 else { return };
        // Huge pages are asked for before the bytes are read: pages that are there already stay small.
        for advice in [Advice::HugePage, Advice::PopulateRead] {
            if let Err(error) = map.advise_range(advice, range.start, range.len()) {
                log::debug!("a mapped file is read as it is touched: {advice:?}: {error}");
            }
        }
    }

    /// Copies `bytes` to a place in memory at a multiple of 64, for disks that have nothing to map.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut buffer = vec![0; bytes.len() + ALIGNMENT_BYTES - 1].into_boxed_slice();
        // The heap block never moves again, so a range found once stays right.
        let start = (ALIGNMENT_BYTES - buffer.as_ptr().addr() % ALIGNMENT_BYTES) % ALIGNMENT_BYTES;
        let range = start..start + bytes.len();
        buffer[range.clone()].copy_from_slice(bytes);
        Self(MappedBytes::Owned(buffer, range))
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            MappedBytes::Map(map) => map,
            MappedBytes::Owned(buffer, range) => &buffer[range.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_bytes_are_the_same_and_aligned_at_every_length() {
        for len in 0..200usize {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mapped = Mapped::from_bytes(&bytes);
            assert_eq!(&*mapped, &bytes[..]);
            assert_eq!(mapped.as_ptr().addr() % ALIGNMENT_BYTES, 0, "length {len}");
        }
    }

    #[test]
    fn stays_in_place_when_the_value_moves() {
        let mapped = Mapped::from_bytes(&[7; 100]);
        let before = mapped.as_ptr().addr();
        let boxed = Box::new(mapped);
        assert_eq!(boxed.as_ptr().addr(), before);
        assert!(boxed.iter().all(|&byte| byte == 7));
    }
}
