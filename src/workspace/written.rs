//! Long writes whose bytes stay in the file where they were written down first.
//!
//! Whole chunks that are written at once are hashed once, and from then on read from that file, each
//! time against their hash. So they take no memory until they are sealed.

use std::sync::Arc;

use super::chunk::{CHUNK_BYTES, CHUNK_CONTEXT, Chunk, hash_of};
use super::{Tree, TreeError};
use crate::disk::DiskFile;
use crate::object::{Hash, Time};
use crate::segment::SegmentError;

/// Bytes of a hash that vouches for a chunk.
const HASH_BYTES: usize = 32;
const LENGTH: usize = CHUNK_BYTES as usize;

/// A whole chunk in a file that is only appended to.
pub(super) struct Written {
    file: Arc<dyn DiskFile>,
    at: u64,
    /// The hash of its bytes up to the last that is not zero.
    pub hash: Hash,
}

/// Whole chunks, one behind the other, and their hashes.
pub struct Stretch<'a> {
    bytes: &'a [u8],
    /// None for a chunk of zeros.
    hashes: Vec<Option<Hash>>,
}

impl Written {
    /// Reads the chunk and checks it.
    pub fn read(&self) -> Result<Vec<u8>, TreeError> {
        let name = || "of a write in the journal".to_owned();
        let mut bytes = vec![0; LENGTH];
        let read = self.file.read_exact_at(&mut bytes, self.at);
        read.map_err(|source| SegmentError::Io { name: name(), what: "read", source })?;
        if hash_of(&bytes) != Some(self.hash) {
            let reason = format!("the 64 KiB at byte {} do not match their hash", self.at);
            return Err(SegmentError::Damaged { name: name(), reason }.into());
        }
        Ok(bytes)
    }
}

impl<'a> Stretch<'a> {
    /// Hashes the bytes of a write; nothing if they are not whole chunks.
    pub fn new(offset: u64, bytes: &'a [u8]) -> Option<Stretch<'a>> {
        let is_whole = offset.is_multiple_of(CHUNK_BYTES) && bytes.len().is_multiple_of(LENGTH);
        let there = is_whole && !bytes.is_empty();
        there.then(|| Stretch { bytes, hashes: bytes.chunks(LENGTH).map(hash_of).collect() })
    }

    /// Takes bytes with what [`Stretch::vouching`] gave for them; nothing if it does not belong to them.
    pub fn vouched(offset: u64, content: &'a [u8]) -> Option<Stretch<'a>> {
        let chunks = content.len() / (LENGTH + HASH_BYTES);
        let (bytes, vouching) = content.split_at_checked(chunks * LENGTH)?;
        Stretch::new(offset, bytes).filter(|stretch| stretch.vouching() == vouching)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the hashes of the chunks as bytes, which vouch for them.
    pub fn vouching(&self) -> Vec<u8> {
        // No zeros stand for zeros: a part of a file that was never written has them.
        let zeros = || Hash::of(&CHUNK_CONTEXT, &[]);
        self.hashes.iter().flat_map(|hash| hash.unwrap_or_else(zeros).0).collect()
    }

    /// Returns the chunks as they stand in a file from `at` on.
    fn chunks(&self, file: &Arc<dyn DiskFile>, at: u64) -> impl Iterator<Item = Chunk> {
        (at..).step_by(LENGTH).zip(&self.hashes).map(|(at, hash)| match *hash {
            None => Chunk::Zeros(CHUNK_BYTES as u32),
            Some(hash) => Chunk::Written(Arc::new(Written { file: file.clone(), at, hash })),
        })
    }
}

impl Tree {
    /// Checks whether a file can be written at a place: `Stale`, `TooLarge`, or it is no file.
    pub fn check_write(&self, inode: u64, offset: u64, length: u64) -> Result<(), TreeError> {
        if offset.checked_add(length).is_none_or(|end| end > super::FILE_BYTES_MAX) {
            return Err(TreeError::TooLarge);
        }
        self.node(inode)?.file().map(|_| ())
    }

    /// Puts chunks, which stand in a file from `at` on, in the place of those from `offset` on: what
    /// a write of their bytes does.
    pub fn place(
        &mut self,
        (inode, offset): (u64, u64),
        stretch: &Stretch<'_>,
        (file, at): (&Arc<dyn DiskFile>, u64),
        time: Time,
    ) -> Result<(), TreeError> {
        self.check_write(inode, offset, stretch.bytes.len() as u64)?;
        self.edit(inode, time, |content| {
            for (number, chunk) in (offset / CHUNK_BYTES..).zip(stretch.chunks(file, at)) {
                content.put(number, Some(chunk));
            }
            content.grow(offset + stretch.bytes.len() as u64);
            Ok(())
        })
    }
}
