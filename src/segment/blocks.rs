//! Blocks that were read and checked for one reply.

use std::collections::HashMap;

use super::{Container, SegmentError};
use crate::object::Hash;

/// How many blocks of 64 KiB are held at most.
const CACHED_BLOCKS_MAX: usize = 64;

/// The last block of each section that one reply has read, so that rows side by side cost one reading.
///
/// Bytes that are served come out of these: what was hashed is what is handed out, whatever becomes of the file and of
/// the pages that are mapped. It lives as long as one reply, so damage is found by the next.
#[derive(Default)]
pub struct Blocks(HashMap<(Hash, usize), (u64, Vec<u8>)>);

impl Blocks {
    /// Returns a block of a section, read and checked now or earlier in this reply. A block has 64 KiB, the last of a
    /// section maybe fewer. Fails like [`Container::read_block`].
    pub(super) fn get(&mut self, file: &Container, section: usize, block: u64) -> Result<&[u8], SegmentError> {
        let place = (file.name(), section);
        if self.0.len() == CACHED_BLOCKS_MAX && !self.0.contains_key(&place) {
            // All go at once: a reply that reads so many sections seldom comes back to one, and memory stays bounded.
            self.0.clear();
        }
        let (number, bytes) = self.0.entry(place).or_insert((u64::MAX, Vec::new()));
        if *number != block {
            // Until the block is read and checked the buffer holds none: reading may fail in the middle of it.
            *number = u64::MAX;
            file.read_block(section, block, bytes)?;
            *number = block;
        }
        Ok(bytes)
    }
}
