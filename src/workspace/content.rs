//! The bytes of one file. Size, space and hash follow each change, and a change that fails leaves them right for what is
//! there.

use std::ops::Range;
use std::sync::OnceLock;

use super::TreeError;
use super::chunk::{CHUNK_BYTES, Chunk};
use super::chunks::{Chunks, Piece};
use super::pack::Packs;
use crate::object::{Context, Hash, Hasher};

/// Largest size of a file: 16 TiB.
pub const FILE_BYTES_MAX: u64 = 1 << 44;
static CONTENT_CONTEXT: Context = Context::new("engramfs 2026 file content v1");

/// The content of a file: a size, and chunks that clones share until they change.
///
/// **Invariant:** whatever a chunk has behind the file's size is zeros, so that a file that is cut
/// and grows again shows zeros there.
#[derive(Clone, Default)]
pub struct FileContent {
    size: u64,
    allocated_bytes: u64,
    /// By number, 64 KiB each; holes have none.
    pub(super) chunks: Chunks,
    hash: OnceLock<Hash>,
}

/// The part of one chunk that a range of a file covers.
#[derive(Clone, Copy)]
pub(super) struct ChunkRange {
    /// The chunk's place in the file, from 0.
    pub number: u64,
    /// Offset in the chunk of the first covered byte.
    pub start: usize,
    /// Offset in the chunk after the last covered byte.
    pub end: usize,
}

/// Cuts a range into the parts of chunks that it covers.
pub(super) fn chunk_ranges(offset: u64, length: u64) -> impl Iterator<Item = ChunkRange> {
    let end = offset.saturating_add(length);
    let mut at = offset;
    std::iter::from_fn(move || {
        let number = at / CHUNK_BYTES;
        // `at` lies before `end` here, or the part is not given out: its end is not looked at then.
        let stop = end.min((number + 1) * CHUNK_BYTES);
        let part =
            ChunkRange { number, start: (at % CHUNK_BYTES) as usize, end: (stop - number * CHUNK_BYTES) as usize };
        let there = at < end;
        at = stop;
        there.then_some(part)
    })
}

impl FileContent {
    /// Returns the size in bytes, holes included.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns how many bytes the chunks take up, each in whole units of 4 KiB.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Returns the hash of size and bytes; holes are zeros. Lazy: only chunks that changed are hashed.
    pub fn hash(&self) -> Hash {
        *self.hash.get_or_init(|| {
            let mut hasher = Hasher::new(&CONTENT_CONTEXT);
            hasher.update(&self.size.to_le_bytes());
            for (number, chunk) in self.chunks.iter() {
                // Chunks of zeros have no hash, so that a hole and written zeros give the same head.
                if let Some(hash) = chunk.hash() {
                    // With its number, since the same chunks at other places are another content.
                    hasher.update(&number.to_le_bytes());
                    hasher.update(&hash.0);
                }
            }
            hasher.finish()
        })
    }

    /// Returns whether some chunk is in no pack yet.
    pub(super) fn is_unsealed(&self) -> bool {
        self.chunks.iter().any(|(_, chunk)| chunk.is_unsealed())
    }

    /// Returns up to `length` bytes from `offset`, fewer at the end. Sealed chunks are read and checked. Holes are
    /// zeros, and take no reading. `TreeError::Segment` if a chunk can't be read or is not what was written.
    pub fn read(&self, offset: u64, length: usize, packs: &dyn Packs) -> Result<Vec<u8>, TreeError> {
        let length = (length as u64).min(self.size.saturating_sub(offset));
        let mut bytes = vec![0; length as usize];
        let mut done = 0;
        for part in chunk_ranges(offset, length) {
            let count = part.end - part.start;
            if let Some(chunk) = self.chunks.get(part.number) {
                chunk.read(part.start, &mut bytes[done..done + count], packs)?;
            }
            done += count;
        }
        Ok(bytes)
    }

    /// Returns whether another content's bytes are the first of this one's. Chunks with equal hashes are not read.
    /// Fails like [`FileContent::read`].
    pub fn begins_with(&self, other: &FileContent, packs: &dyn Packs) -> Result<bool, TreeError> {
        if other.size > self.size {
            return Ok(false);
        }
        for part in chunk_ranges(0, other.size) {
            let (own, theirs) = (self.chunks.get(part.number), other.chunks.get(part.number));
            let hash = |chunk: Option<&Chunk>| chunk.and_then(Chunk::hash);
            if hash(own) == hash(theirs) {
                continue;
            }
            let (offset, length) = (part.number * CHUNK_BYTES, part.end - part.start);
            // Unequal hashes decide nothing yet: the last chunk of the shorter file may go on in the longer one.
            if self.read(offset, length, packs)? != other.read(offset, length, packs)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Changes one chunk in its place and keeps the sums right. Fails like `change`; the sums are right then, too.
    pub(super) fn change(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Chunk) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let chunk = self.chunks.get_mut(number);
        let before = chunk.allocated_bytes();
        let done = change(chunk);
        let after = chunk.allocated_bytes();
        let empty = chunk.length() == 0;
        // `get_mut` made a chunk of a hole. If nothing came into it, it must be a hole again, also after an error.
        if empty {
            self.chunks.remove(number);
        }
        self.allocated_bytes = self.allocated_bytes - before + after;
        self.hash = OnceLock::new();
        done
    }

    /// Makes a hole of one whole chunk.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(chunk) = self.chunks.remove(number) {
            self.allocated_bytes -= chunk.allocated_bytes();
            self.hash = OnceLock::new();
        }
    }

    /// Puts other chunks of equal bytes and length in the place of some.
    pub(super) fn replace_chunks(&mut self, other: impl Fn(&Chunk) -> Option<Chunk>) {
        let others: Vec<(u64, Chunk)> =
            self.chunks.iter().filter_map(|(number, chunk)| Some((number, other(chunk)?))).collect();
        for (number, chunk) in others {
            *self.chunks.get_mut(number) = chunk;
        }
    }

    /// Puts a chunk, or a hole, at a place as it was stored.
    pub(super) fn put(&mut self, number: u64, chunk: Option<Chunk>) {
        // First, so that what the old chunk took up leaves the sum before the new one joins it.
        self.remove(number);
        if let Some(chunk) = chunk {
            self.allocated_bytes += chunk.allocated_bytes();
            *self.chunks.get_mut(number) = chunk;
        }
        self.hash = OnceLock::new();
    }

    /// Sets the size as it was stored, without a look at the chunks.
    pub(super) fn resize(&mut self, size: u64) {
        self.size = size;
        self.hash = OnceLock::new();
    }

    /// Brings those chunks into memory that a change of this range keeps bytes of, so that the
    /// change itself can't fail half done.
    pub(super) fn prefetch_edges(&mut self, offset: u64, length: u64, packs: &dyn Packs) -> Result<(), TreeError> {
        let end = offset.saturating_add(length);
        for edge in [offset, end] {
            let number = edge / CHUNK_BYTES;
            let kept = match self.chunks.get(number) {
                // An edge that lies between two chunks keeps a part of neither.
                Some(chunk @ (Chunk::Sealed(_) | Chunk::Appended(_))) if !edge.is_multiple_of(CHUNK_BYTES) => {
                    chunk.load(packs)?
                }
                _ => continue,
            };
            self.put(number, Some(kept));
        }
        Ok(())
    }

    /// Writes bytes at an offset; the file grows if they end behind it. No bytes change nothing. [`TreeError::Segment`]
    /// if a chunk that is kept in part can't be read; those before it are written then.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], packs: &dyn Packs) -> Result<(), TreeError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut rest = bytes;
        for part in chunk_ranges(offset, bytes.len() as u64) {
            let (head, tail) = rest.split_at(part.end - part.start);
            self.change(part.number, |chunk| chunk.write(part.start, head, packs))?;
            rest = tail;
        }
        // Last: where a chunk can't be read, the size must not cover bytes that were never written.
        self.grow(offset + bytes.len() as u64);
        Ok(())
    }

    /// Makes the size at least `size`.
    pub(super) fn grow(&mut self, size: u64) {
        if size > self.size {
            self.size = size;
            self.hash = OnceLock::new();
        }
    }

    /// Sets the size; what is behind it goes. [`TreeError::Segment`] if the last chunk that stays can't be read;
    /// nothing has changed then.
    pub(super) fn truncate(&mut self, size: u64, packs: &dyn Packs) -> Result<(), TreeError> {
        let (number, keep) = (size / CHUNK_BYTES, (size % CHUNK_BYTES) as u32);
        // The cut may have to read the chunk and can fail, so it comes before what can't.
        if keep > 0 && self.chunks.get(number).is_some_and(|chunk| chunk.length() > keep) {
            self.change(number, |chunk| chunk.cut(keep, packs))?;
        }
        // Chunks can lie behind the size, as fallocate(2) reserves them there, so all go up to the largest file.
        self.clear(size.div_ceil(CHUNK_BYTES)..FILE_BYTES_MAX / CHUNK_BYTES);
        self.size = size;
        self.hash = OnceLock::new();
        Ok(())
    }

    /// Makes holes of whole chunks; the size stays.
    pub(super) fn clear(&mut self, chunks: Range<u64>) {
        self.allocated_bytes -= self.chunks.clear(chunks);
        self.hash = OnceLock::new();
    }

    /// Makes whole chunks take up space, without a change of any byte.
    pub(super) fn fill(&mut self, chunks: Range<u64>) {
        self.allocated_bytes += self.chunks.fill(chunks);
    }

    /// Lets go of all bytes; size and space stay as they were.
    pub(super) fn forget_bytes(&mut self) {
        self.chunks = Chunks::default();
        self.hash = OnceLock::new();
    }

    /// Puts pieces at their numbers as they were stored; returns whether they fit together.
    pub(super) fn put_stored(&mut self, pieces: Vec<(u64, Option<Piece>)>) -> bool {
        // Where pieces overlap the sum means nothing: the caller drops the content then.
        let allocated = self.chunks.apply_differences(pieces);
        self.allocated_bytes = allocated.unwrap_or_default();
        self.hash = OnceLock::new();
        allocated.is_some()
    }
}
