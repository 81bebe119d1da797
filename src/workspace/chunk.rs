//! One chunk of a file's content: 64 KiB that are shared until they change.

use std::sync::{Arc, OnceLock};

use super::TreeError;
use super::pack::Packs;
use super::written::AppendedChunk;
use crate::object::{Context, Hash};
use crate::sync::{Rank, RwLock};

/// Bytes of a chunk; only the last one of a file, or one before a hole, has fewer.
pub(super) const CHUNK_BYTES: u64 = 64 * 1024;
/// What takes up space does so in units of this.
const BLOCK_BYTES: u64 = 4096;
/// Keys hashes of chunks, up to their last byte that is not zero.
pub(super) static CHUNK_CONTEXT: Context = Context::new("engramfs 2026 file chunk v1");

/// The bytes at one place of a file. Whatever is behind its length is zeros.
#[derive(Clone)]
pub(super) enum Chunk {
    /// So many zeros that take up space.
    Zeros(u32),
    /// Bytes in memory, which a seal moves into a pack.
    Unsealed(Arc<UnsealedChunk>),
    /// 64 KiB in the file that they were written down in.
    Appended(Arc<AppendedChunk>),
    /// Bytes in a pack, read and checked each time.
    Sealed(Arc<PackedChunk>),
}

/// Bytes in memory: the first `filled` of a buffer, then zeros up to `length`.
///
/// Versions of a growing chunk share one buffer, of which each sees its own beginning, so that an
/// append costs what it adds also while older versions are held. Bytes that were once in a shared
/// buffer never change.
#[derive(Clone)]
pub(super) struct UnsealedChunk {
    buffer: Arc<RwLock<Vec<u8>>>,
    filled: u32,
    length: u32,
    hash: OnceLock<Option<Hash>>,
}

/// Where the bytes are in a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedChunk {
    /// The pack that had it when this was written; a compaction may have moved it since.
    pub pack: Hash,
    /// Their number among the chunks of the pack, from 0.
    pub number: u32,
    /// How many there are, zeros at the end left out.
    pub stored_bytes: u32,
    /// Bytes that the chunk has in its file.
    pub length_bytes: u32,
    /// The hash of the stored bytes.
    pub hash: Hash,
}

/// Two are equal when they are the same bytes at the same place: contents are not looked at.
impl PartialEq for Chunk {
    fn eq(&self, other: &Chunk) -> bool {
        match (self, other) {
            (Chunk::Zeros(mine), Chunk::Zeros(theirs)) => mine == theirs,
            (Chunk::Unsealed(mine), Chunk::Unsealed(theirs)) => Arc::ptr_eq(mine, theirs),
            (Chunk::Appended(mine), Chunk::Appended(theirs)) => Arc::ptr_eq(mine, theirs),
            (Chunk::Sealed(mine), Chunk::Sealed(theirs)) => Arc::ptr_eq(mine, theirs) || mine == theirs,
            _ => false,
        }
    }
}

/// Returns the bytes without the zeros at their end.
pub(super) fn trim_trailing_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Returns the hash of the bytes up to the last that is not zero; `None` if all are zero.
pub(super) fn chunk_hash(bytes: &[u8]) -> Option<Hash> {
    match trim_trailing_zeros(bytes) {
        [] => None,
        bytes => Some(Hash::digest(&CHUNK_CONTEXT, bytes)),
    }
}

impl UnsealedChunk {
    /// Takes bytes over, at most 64 KiB.
    pub fn new(bytes: Vec<u8>) -> UnsealedChunk {
        let length = bytes.len() as u32;
        UnsealedChunk {
            buffer: Arc::new(RwLock::with_rank(Rank::Leaf, bytes)),
            filled: length,
            length,
            hash: OnceLock::new(),
        }
    }

    /// Takes bytes over, with zeros behind them up to `length`.
    pub fn zero_extended(bytes: Vec<u8>, length: u32) -> UnsealedChunk {
        UnsealedChunk { length, ..UnsealedChunk::new(bytes) }
    }

    /// Returns the length with the zeros behind its bytes.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Calls `look` with the bytes, without the zeros behind them that are not in memory.
    pub fn with_bytes<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        let buffer = self.buffer.read();
        look(&buffer[..self.filled as usize])
    }

    /// Returns the hash of the bytes up to the last that is not zero; `None` if all are zero.
    pub fn hash(&self) -> Option<Hash> {
        *self.hash.get_or_init(|| self.with_bytes(chunk_hash))
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.hash = OnceLock::new();
        let (filled, end) = (self.filled as usize, at + bytes.len());
        // Other versions may see the bytes that are there, so only what lies behind all of them is written in place.
        if at < filled || !self.append(at, bytes) {
            let mut own = self.make_unique(end);
            // What lies between the old end and `at` becomes zeros, as in any file that is written beyond its end.
            own.resize(end.max(filled), 0);
            own[at..end].copy_from_slice(bytes);
            self.buffer = Arc::new(RwLock::with_rank(Rank::Leaf, own));
        }
        self.filled = self.filled.max(end as u32);
        self.length = self.length.max(self.filled);
    }

    /// Adds bytes behind those that are there, if no other version did so before.
    fn append(&self, at: usize, bytes: &[u8]) -> bool {
        let mut buffer = self.buffer.write();
        // What is in the buffer behind this version's bytes was appended by another one.
        if buffer.len() != self.filled as usize {
            return false;
        }
        let end = at + bytes.len();
        if end > buffer.capacity() {
            // Doubled, so that small appends copy each byte a few times at most, and never beyond what a chunk can
            // hold.
            let room = (buffer.capacity() * 2).clamp(end, CHUNK_BYTES as usize);
            let more = room - buffer.len();
            buffer.reserve_exact(more);
        }
        // A gap before `at` is zeros, which this version and all later ones see as written.
        buffer.resize(at, 0);
        buffer.extend_from_slice(bytes);
        true
    }

    /// Returns the bytes to change: taken out of the buffer if nobody else has it, else copied.
    fn make_unique(&mut self, room: usize) -> Vec<u8> {
        let filled = self.filled as usize;
        // Only where no other version holds the buffer: bytes that one of them sees must never change.
        if let Some(buffer) = Arc::get_mut(&mut self.buffer) {
            let mut bytes = std::mem::take(buffer.get_mut());
            // A version that is gone may have appended more.
            bytes.truncate(filled);
            return bytes;
        }
        let mut bytes = Vec::with_capacity(room.max(filled));
        self.with_bytes(|old| bytes.extend_from_slice(old));
        bytes
    }
}

impl PackedChunk {
    /// Returns its bytes, from the pack that has them now.
    fn read(&self, packs: &dyn Packs) -> Result<Vec<u8>, TreeError> {
        let gone = match packs.pack(&self.pack) {
            Ok(pack) => return Ok(pack.read(self)?),
            Err(error) => error,
        };
        // A tree that outlived a compaction names a pack that is gone. The chunk was moved, so it is looked for by its
        // hash.
        match packs.holder(&self.hash).and_then(|pack| Some((pack.find(&self.hash).ok()??, pack))) {
            Some((place, pack)) => Ok(pack.read(&place)?),
            None => Err(gone.into()),
        }
    }
}

impl Chunk {
    /// Returns how many bytes of storage it takes up.
    pub fn length(&self) -> u32 {
        match self {
            Chunk::Zeros(length) => *length,
            Chunk::Unsealed(unsealed) => unsealed.length,
            Chunk::Appended(_) => CHUNK_BYTES as u32,
            Chunk::Sealed(sealed) => sealed.length_bytes,
        }
    }

    /// Returns how many bytes it takes up, in whole blocks.
    pub fn allocated_bytes(&self) -> u64 {
        u64::from(self.length()).next_multiple_of(BLOCK_BYTES)
    }

    /// Returns the hash of the bytes up to the last that is not zero; `None` if all are zero.
    pub fn hash(&self) -> Option<Hash> {
        match self {
            Chunk::Zeros(_) => None,
            Chunk::Unsealed(unsealed) => unsealed.hash(),
            Chunk::Appended(written) => Some(written.hash),
            Chunk::Sealed(sealed) => Some(sealed.hash),
        }
    }

    /// Copies bytes from `from` on into `out`, which holds zeros. `TreeError::Segment` if its file can't be read or has
    /// other bytes; `out` is as it was then.
    pub fn read(&self, from: usize, out: &mut [u8], packs: &dyn Packs) -> Result<(), TreeError> {
        let copy = |bytes: &[u8], out: &mut [u8]| {
            let bytes = bytes.get(from..).unwrap_or_default();
            let count = bytes.len().min(out.len());
            out[..count].copy_from_slice(&bytes[..count]);
        };
        match self {
            Chunk::Zeros(_) => {}
            Chunk::Unsealed(unsealed) => unsealed.with_bytes(|bytes| copy(bytes, out)),
            Chunk::Appended(written) => copy(&written.read()?, out),
            // Behind the stored bytes all is zeros, which `out` holds already: the pack need not be read.
            Chunk::Sealed(sealed) if from >= sealed.stored_bytes as usize => {}
            Chunk::Sealed(sealed) => copy(&sealed.read(packs)?, out),
        }
        Ok(())
    }

    /// Returns the same chunk with its bytes in memory, where it may be already. `TreeError::Segment` if its file can't
    /// be read or has other bytes.
    pub fn load(&self, packs: &dyn Packs) -> Result<Chunk, TreeError> {
        let bytes = match self {
            Chunk::Zeros(_) | Chunk::Unsealed(_) => return Ok(self.clone()),
            Chunk::Appended(written) => written.read()?,
            Chunk::Sealed(sealed) => sealed.read(packs)?,
        };
        Ok(Chunk::Unsealed(Arc::new(UnsealedChunk::zero_extended(bytes, self.length()))))
    }

    /// Writes bytes, which lie within 64 KiB. A chunk in a file is read where it keeps some of its bytes. Fails like
    /// [`Chunk::load`].
    pub fn write(&mut self, at: usize, bytes: &[u8], packs: &dyn Packs) -> Result<(), TreeError> {
        // No old byte is kept, so a chunk in a file need not be read.
        if at == 0 && bytes.len() >= self.length() as usize {
            *self = Chunk::Unsealed(Arc::new(UnsealedChunk::new(bytes.to_vec())));
            return Ok(());
        }
        // `load` leaves zeros as they are, and there is no buffer in them to write to.
        if let Chunk::Zeros(length) = self {
            *self = Chunk::Unsealed(Arc::new(UnsealedChunk::zero_extended(Vec::new(), *length)));
        }
        *self = self.load(packs)?;
        if let Chunk::Unsealed(unsealed) = self {
            Arc::make_mut(unsealed).write(at, bytes);
        }
        Ok(())
    }

    /// Cuts it to `length` bytes; a chunk in a file is read when bytes of it go. Fails like [`Chunk::load`], and then
    /// stays as it was.
    pub fn cut(&mut self, length: u32, packs: &dyn Packs) -> Result<(), TreeError> {
        if length >= self.length() {
            return Ok(());
        }
        let goes = match self {
            Chunk::Appended(_) => true,
            // Behind its stored bytes a chunk is zeros, which can go without reading it.
            Chunk::Sealed(sealed) => length < sealed.stored_bytes,
            Chunk::Zeros(_) | Chunk::Unsealed(_) => false,
        };
        if goes {
            *self = self.load(packs)?;
        }
        match self {
            Chunk::Zeros(zeros) => *zeros = length,
            Chunk::Sealed(sealed) => Arc::make_mut(sealed).length_bytes = length,
            Chunk::Appended(_) => {}
            Chunk::Unsealed(unsealed) => {
                let unsealed = Arc::make_mut(unsealed);
                // The buffer keeps the bytes behind the cut, which other versions may see; this one sees `filled` of
                // them alone.
                unsealed.filled = unsealed.filled.min(length);
                unsealed.length = length;
                unsealed.hash = OnceLock::new();
            }
        }
        Ok(())
    }

    /// Makes it take up at least `length` bytes.
    pub fn extend_to(&mut self, length: u32) {
        if length <= self.length() {
            return;
        }
        match self {
            Chunk::Zeros(zeros) => *zeros = length,
            Chunk::Sealed(sealed) => Arc::make_mut(sealed).length_bytes = length,
            Chunk::Unsealed(unsealed) => Arc::make_mut(unsealed).length = length,
            // Only full chunks are written directly, so it can't be extended.
            Chunk::Appended(_) => {}
        }
    }

    /// Returns whether its bytes are in no pack yet.
    pub fn is_unsealed(&self) -> bool {
        self.address().is_some()
    }

    /// Returns the address that identifies an unsealed chunk while it is held; `None` for zeros and for one in a pack.
    pub fn address(&self) -> Option<*const ()> {
        match self {
            Chunk::Unsealed(unsealed) => Some(Arc::as_ptr(unsealed).cast()),
            Chunk::Appended(written) => Some(Arc::as_ptr(written).cast()),
            Chunk::Zeros(_) | Chunk::Sealed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_that_grows_by_appends_has_room_for_twice_its_bytes_at_most() {
        let piece = [1_u8; 1024];
        let mut chunk = UnsealedChunk::new(piece.to_vec());
        for at in (piece.len()..CHUNK_BYTES as usize).step_by(piece.len()) {
            chunk.write(at, &piece);
            let (room, end) = (chunk.buffer.read().capacity(), at + piece.len());
            assert!(room <= (2 * end).min(CHUNK_BYTES as usize), "{room} bytes for {end}");
        }
    }
}
