//! Long writes whose bytes stay in the file where they were written down first.
//!
//! Whole chunks that are written at once are hashed once, and from then on read from that file, each
//! time against their hash. So they take no memory until they are sealed. What a write has before and
//! behind whole chunks goes where all other bytes go.

use std::sync::Arc;

use super::chunk::{CHUNK_BYTES, CHUNK_CONTEXT, Chunk, chunk_hash};
use super::content::{ChunkRange, FILE_BYTES_MAX, chunk_ranges};
use super::pack::Packs;
use super::{Tree, TreeError};
use crate::disk::DiskFile;
use crate::object::{Hash, Time};
use crate::segment::SegmentError;

/// Bytes of a hash that vouches for a chunk.
const HASH_BYTES: usize = 32;
const LENGTH: usize = CHUNK_BYTES as usize;

/// A whole chunk in a file that is only appended to.
pub(super) struct AppendedChunk {
    file: Arc<dyn DiskFile>,
    file_offset: u64,
    /// The hash of its bytes up to the last that is not zero.
    pub hash: Hash,
}

/// The bytes of a write with at least one whole chunk, and their hashes.
pub struct DirectWrite<'a> {
    offset: u64,
    bytes: &'a [u8],
    /// One for each chunk that bytes are written to; `None` if these are zeros.
    hashes: Vec<Option<Hash>>,
}

impl AppendedChunk {
    /// Reads the chunk and checks it. It has 64 KiB. `SegmentError::Damaged` if they do not match their hash,
    /// `SegmentError::Io` if the journal file can't be read.
    pub fn read(&self) -> Result<Vec<u8>, TreeError> {
        let name = || "of a write in the journal".to_owned();
        let mut bytes = vec![0; LENGTH];
        let read = self.file.read_exact_at(&mut bytes, self.file_offset);
        read.map_err(|source| SegmentError::Io { name: name(), what: "read", source })?;
        if chunk_hash(&bytes) != Some(self.hash) {
            let reason = format!("the 64 KiB at byte {} do not match their hash", self.file_offset);
            return Err(SegmentError::Damaged { name: name(), reason }.into());
        }
        Ok(bytes)
    }
}

impl<'a> DirectWrite<'a> {
    /// Hashes the bytes of a write, chunk by chunk; nothing if no chunk is whole, or no file so long.
    pub fn new(offset: u64, bytes: &'a [u8]) -> Option<DirectWrite<'a>> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX)?;
        // A write without a whole chunk is not worth a place in the file of its own: it stays in memory as others do.
        let has_whole = offset.div_ceil(CHUNK_BYTES) < end / CHUNK_BYTES;
        has_whole.then(|| {
            let hashes = split_by_chunk(offset, bytes).map(|(_, piece)| chunk_hash(piece)).collect();
            DirectWrite { offset, bytes, hashes }
        })
    }

    /// Takes bytes with what [`DirectWrite::chunk_hashes`] gave for them; nothing if it does not belong to them.
    pub fn from_verified(offset: u64, content: &'a [u8]) -> Option<DirectWrite<'a>> {
        // With more chunks there are fewer bytes, so one number fits at most.
        let least = content.len() / (LENGTH + HASH_BYTES);
        let (bytes, chunk_hashes) = (least..least + 3).find_map(|chunks| {
            let (bytes, chunk_hashes) = content.split_at_checked(content.len().checked_sub(chunks * HASH_BYTES)?)?;
            (chunk_ranges(offset, bytes.len() as u64).count() == chunks).then_some((bytes, chunk_hashes))
        })?;
        // The bytes are hashed again: they come from a journal that may be damaged, and these hashes are all that
        // vouches.
        DirectWrite::new(offset, bytes).filter(|direct| direct.chunk_hashes() == chunk_hashes)
    }

    /// Returns the bytes of the whole write, ends and whole chunks.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the hashes as bytes, which vouch for those that are written.
    pub fn chunk_hashes(&self) -> Vec<u8> {
        // A chunk of zeros counts as one without bytes, which is what a part of a file that was never written has.
        let zeros = || Hash::digest(&CHUNK_CONTEXT, &[]);
        self.hashes.iter().flat_map(|hash| hash.unwrap_or_else(zeros).0).collect()
    }

    /// Returns the bytes before and behind whole chunks, with their places in the file.
    pub fn partial_chunks(&self) -> impl Iterator<Item = (u64, &'a [u8])> {
        let ends = split_by_chunk(self.offset, self.bytes).filter(|(_, piece)| piece.len() < LENGTH);
        ends.map(|(part, piece)| (part.number * CHUNK_BYTES + part.start as u64, piece))
    }

    /// Returns the whole chunks with their numbers, as they are in a file where `file_offset` is the first
    /// byte of the write.
    fn whole_chunks(&self, file: &Arc<dyn DiskFile>, file_offset: u64) -> impl Iterator<Item = (u64, Chunk)> {
        let whole =
            split_by_chunk(self.offset, self.bytes).zip(&self.hashes).filter(|((_, piece), _)| piece.len() == LENGTH);
        whole.map(move |((part, _), hash)| match *hash {
            None => (part.number, Chunk::Zeros(CHUNK_BYTES as u32)),
            Some(hash) => {
                let file_offset = file_offset + (part.number * CHUNK_BYTES - self.offset);
                (part.number, Chunk::Appended(Arc::new(AppendedChunk { file: file.clone(), file_offset, hash })))
            }
        })
    }
}

/// Cuts the bytes of a write where chunks of the file end.
fn split_by_chunk(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (ChunkRange, &[u8])> {
    let mut rest = bytes;
    chunk_ranges(offset, bytes.len() as u64).map(move |part| {
        let (piece, behind) = rest.split_at(part.end - part.start);
        rest = behind;
        (part, piece)
    })
}

impl Tree {
    /// Checks whether a file can be written at a place: `Stale`, `TooLarge`, or it is not a file.
    pub fn check_write(&self, inode: u64, offset: u64, length: u64) -> Result<(), TreeError> {
        if offset.checked_add(length).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(TreeError::TooLarge);
        }
        self.node(inode)?.file().map(|_| ())
    }

    /// Writes the bytes before and behind the whole chunks of a direct write: the half of a long write that can fail,
    /// so it comes first. After an error some of it may be written: work on a clone. Fails like [`Tree::check_write`],
    /// or if a chunk that is kept in part can't be read.
    pub fn write_partial_chunks(
        &mut self,
        inode: u64,
        direct: &DirectWrite<'_>,
        time: Time,
        packs: &dyn Packs,
    ) -> Result<(), TreeError> {
        self.check_write(inode, direct.offset, direct.bytes.len() as u64)?;
        direct.partial_chunks().try_for_each(|(offset, bytes)| self.write(inode, offset, bytes, time, packs))
    }

    /// Puts the whole chunks of a direct write, which begins at `at` in a file, in the place of those that were there.
    /// That they are there is checked when they are read. `TreeError::Stale` if there is none with that number,
    /// `TreeError::IsDirectory` or `TreeError::Invalid` for what is not a regular file.
    pub fn place_chunks(
        &mut self,
        inode: u64,
        direct: &DirectWrite<'_>,
        (file, at): (&Arc<dyn DiskFile>, u64),
        time: Time,
    ) -> Result<(), TreeError> {
        self.edit(inode, time, |content| {
            direct.whole_chunks(file, at).for_each(|(number, chunk)| content.put(number, Some(chunk)));
            content.grow(direct.offset + direct.bytes.len() as u64);
            Ok(())
        })
    }
}
