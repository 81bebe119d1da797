//! The immutable file of many chunks.
//!
//! ```text
//!  section 0   the bytes of the chunks, one after the other: full ones first, so that they lie in whole blocks
//!  section 1   where each ends, u64
//!  section 2   the hash of each, 32 bytes
//!  section 3   the numbers of the chunks in order of their hashes, u32
//!  extra       the number of chunks
//! ```

use std::sync::Arc;

use super::TreeError;
use super::chunk::{Chunk, PackedChunk, chunk_hash};
use crate::object::{BlobStore, Hash, Reader, Writer};
use crate::segment::{Container, ContainerWriter, SegmentError};

/// Kind byte of a container that is a pack; one of another kind is not opened as one.
const KIND: u8 = 0x70;
const BYTES: usize = 0;
const ENDS: usize = 1;
const HASHES: usize = 2;
const ORDER: usize = 3;

/// Gives open packs by name; the caller keeps them, and opens each at its first use.
pub trait Packs: Send + Sync {
    /// Returns a pack; the error is what `Pack::open` says.
    fn pack(&self, name: &Hash) -> Result<Arc<Pack>, SegmentError>;

    /// Returns a pack that has a chunk with that hash: the one that a tree names may have been written again without
    /// what is not needed any more, and be gone.
    fn holder(&self, _hash: &Hash) -> Option<Arc<Pack>> {
        None
    }
}

/// Has no packs: for trees that were never sealed.
pub struct NoPacks;

impl Packs for NoPacks {
    fn pack(&self, name: &Hash) -> Result<Arc<Pack>, SegmentError> {
        Err(SegmentError::Damaged { name: name.to_string(), reason: "there are no packs here".to_owned() })
    }
}

/// An open pack, whose footer was read and checked.
pub struct Pack {
    file: Container,
    chunks: u64,
}

impl Pack {
    /// Opens a pack; reads and checks its footer, nothing else. [`SegmentError::Damaged`] if the file with that name is
    /// no pack.
    pub fn open(blobs: &BlobStore, name: Hash) -> Result<Pack, SegmentError> {
        let file = Container::open(blobs, name, KIND)?;
        let mut extra = Reader::new(file.extra());
        let damaged =
            || SegmentError::Damaged { name: name.to_string(), reason: "its footer is not a pack's".to_owned() };
        // Chunk numbers are u32, so a larger count is damage.
        let chunks = extra.number().ok().filter(|chunks| *chunks <= u64::from(u32::MAX)).ok_or_else(damaged)?;
        Ok(Pack { file, chunks })
    }

    /// Returns the pack's name, which is the hash of its footer.
    pub fn name(&self) -> Hash {
        self.file.name()
    }

    /// Returns the length of the file on disk in bytes, its footer included.
    pub fn file_bytes(&self) -> u64 {
        self.file.file_bytes()
    }

    /// Returns how many bytes its chunks have as they are stored: without zeros at their ends. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if the table of chunks can't be read or is damaged.
    pub fn chunk_bytes(&self) -> Result<u64, SegmentError> {
        let Some(last) = u32::try_from(self.chunks).ok().and_then(|chunks| chunks.checked_sub(1)) else { return Ok(0) };
        self.chunk_range(last).map(|(start, length)| start + length)
    }

    /// Checks every byte. Fails with `SegmentError::Damaged` at the first damage.
    pub fn verify(&self) -> Result<(), SegmentError> {
        self.file.verify()
    }

    /// Reads the bytes of a chunk and checks them against the hash that the file has for it, each time.
    ///
    /// So neither what says where the chunk lies nor an earlier check is trusted. `SegmentError::Damaged` if the pack
    /// has no such chunk, or other bytes for it.
    pub(super) fn read(&self, sealed: &PackedChunk) -> Result<Vec<u8>, SegmentError> {
        let (start, stored) = self.chunk_range(sealed.number)?;
        if stored == u64::from(sealed.stored_bytes) {
            let bytes = self.file.read_unchecked(BYTES, start, stored)?;
            if chunk_hash(&bytes) == Some(sealed.hash) {
                return Ok(bytes);
            }
        }
        Err(self.file.damaged(BYTES, &format!("chunk {} is not the one that a file has", sealed.number)))
    }

    /// Returns whether it has a chunk with that hash; a table that can't be read has none.
    pub fn contains(&self, hash: &Hash) -> bool {
        self.find(hash).is_ok_and(|found| found.is_some())
    }

    /// Returns a chunk with that hash. `None` if the pack has none. It costs a binary search. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if the table of chunks can't be read or is damaged.
    pub(super) fn find(&self, hash: &Hash) -> Result<Option<PackedChunk>, SegmentError> {
        // The search ends whatever the table says, and what it finds is checked against its hash when it is read.
        let (mut low, mut high) = (0, self.chunks);
        while low < high {
            let middle = low + (high - low) / 2;
            let number = self.chunk_at_position(middle)?;
            match self.hash(number)?.cmp(hash) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let stored = u32::try_from(self.chunk_range(number)?.1)
                        .map_err(|_| self.file.damaged(ENDS, "a chunk is too long"))?;
                    return Ok(Some(PackedChunk {
                        pack: self.name(),
                        number,
                        stored_bytes: stored,
                        length_bytes: stored,
                        hash: *hash,
                    }));
                }
            }
        }
        Ok(None)
    }

    fn chunk_at_position(&self, place: u64) -> Result<u32, SegmentError> {
        let bytes = self.file.slice(ORDER, place * 4, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    fn hash(&self, number: u32) -> Result<Hash, SegmentError> {
        let bytes = self.file.slice(HASHES, u64::from(number) * 32, 32)?;
        Ok(Hash(bytes.try_into().unwrap_or_default()))
    }

    /// Returns where a chunk begins and how many bytes it has.
    fn chunk_range(&self, number: u32) -> Result<(u64, u64), SegmentError> {
        let end = |number: u32| -> Result<u64, SegmentError> {
            let bytes = self.file.slice(ENDS, u64::from(number) * 8, 8)?;
            Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
        };
        let (start, end) = (if number == 0 { 0 } else { end(number - 1)? }, end(number)?);
        // The ends are the file's, so a length is taken from them with care; that it lies in the section is checked at
        // reading.
        let length = end.checked_sub(start).ok_or_else(|| self.file.damaged(ENDS, "the ends do not ascend"))?;
        Ok((start, length))
    }
}

/// Writes chunks, whose bytes are not all zeros and whose hashes are distinct, into a new pack.
///
/// Returns its name. Memory holds one chunk at a time, and the table. Fails if a chunk can't be read, or the disk
/// refuses.
pub(super) fn write_pack(
    blobs: &BlobStore,
    chunks: &[Chunk],
    packs: &dyn Packs,
) -> Result<(Hash, Vec<PackedChunk>), TreeError> {
    let mut out = ContainerWriter::new(blobs)?;
    let (mut ends, mut sealed, mut end) = (Vec::with_capacity(chunks.len()), Vec::with_capacity(chunks.len()), 0u64);
    // Sections get their numbers in the order in which they begin.
    out.begin()?;
    for chunk in chunks {
        let mut bytes = vec![0; chunk.length() as usize];
        chunk.read(0, &mut bytes, packs)?;
        // Without zeros at the end, which is what the hash covers, so that equal chunks of other lengths are stored
        // once.
        let bytes = super::chunk::trim_trailing_zeros(&bytes);
        out.write(bytes)?;
        end += bytes.len() as u64;
        ends.push(end);
        let (number, stored) = (sealed.len() as u32, bytes.len() as u32);
        let hash = chunk.hash().unwrap_or(Hash::ZERO);
        sealed.push(PackedChunk { pack: Hash::ZERO, number, stored_bytes: stored, length_bytes: stored, hash });
    }
    out.begin()?;
    for end in &ends {
        out.write(&end.to_le_bytes())?;
    }
    out.begin()?;
    for it in &sealed {
        out.write(&it.hash.0)?;
    }
    let mut order: Vec<u32> = (0..sealed.len() as u32).collect();
    order.sort_unstable_by_key(|number| sealed[*number as usize].hash);
    out.begin()?;
    for number in order {
        out.write(&number.to_le_bytes())?;
    }
    let mut extra = Writer::new();
    extra.number(sealed.len() as u64);
    let name = out.finish(KIND, extra.as_slice())?;
    // The name covers the footer, so no chunk can have it before the file is finished.
    sealed.iter_mut().for_each(|it| it.pack = name);
    Ok((name, sealed))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::segment::FOLDER;

    /// A fuzz target found it: the place of a chunk far behind the end of a table overflowed.
    #[test]
    fn a_pack_that_claims_too_many_chunks_is_damaged() {
        let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), FOLDER).unwrap();
        for (claimed, opens) in [(0, true), (7, true), (u64::from(u32::MAX), true), (1 << 32, false), (u64::MAX, false)]
        {
            let mut out = ContainerWriter::new(&blobs).unwrap();
            (0..=ORDER).for_each(|_| out.begin().unwrap());
            let mut extra = Writer::new();
            extra.number(claimed);
            let name = out.finish(KIND, extra.as_slice()).unwrap();
            let opened = Pack::open(&blobs, name);
            assert_eq!(opened.is_ok(), opens, "{claimed}");
            assert!(!opened.is_ok_and(|pack| pack.contains(&Hash([0; 32]))), "{claimed}");
        }
    }
}
