//! Holes, space and copies: what fallocate, lseek and copy_file_range do to content.

use super::TreeError;
use super::chunk::{CHUNK_BYTES, Chunk};
use super::content::{Content, parts};
use super::pack::Packs;

impl Content {
    /// Returns where data begins at or behind `offset`; none when there is none or it is behind the end.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let (mut number, mut from) = (offset / CHUNK_BYTES, offset);
        loop {
            let (found, chunk) = self.chunks.next(number)?;
            from = from.max(found * CHUNK_BYTES);
            if from >= self.size() {
                return None;
            }
            if from < found * CHUNK_BYTES + u64::from(chunk.length()) {
                return Some(from);
            }
            number = found + 1;
        }
    }

    /// Returns where a hole begins at or behind `offset`: at the latest at the end; none behind it.
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size() {
            return None;
        }
        let mut from = offset;
        while let Some(chunk) = self.chunks.get(from / CHUNK_BYTES) {
            let end = from / CHUNK_BYTES * CHUNK_BYTES + u64::from(chunk.length());
            // A short chunk ends in zeros that take no space; the last one ends with the file.
            from = from.max(end);
            if !end.is_multiple_of(CHUNK_BYTES) || from >= self.size() {
                break;
            }
        }
        Some(from.min(self.size()))
    }

    /// Makes a hole; the size stays.
    pub(super) fn punch(&mut self, offset: u64, length: u64, packs: &dyn Packs) -> Result<(), TreeError> {
        let end = offset.saturating_add(length);
        let mut from = offset / CHUNK_BYTES;
        while let Some((number, chunk)) = self.chunks.next(from) {
            let begin = number * CHUNK_BYTES;
            if begin >= end {
                break;
            }
            let (start, stop) = (offset.saturating_sub(begin), (end - begin).min(u64::from(chunk.length())));
            if start == 0 && stop == u64::from(chunk.length()) {
                self.remove(number);
            } else if start < stop {
                self.change(number, |chunk| erase(chunk, start as u32, stop as u32, packs))?;
            }
            from = number + 1;
        }
        Ok(())
    }

    /// Makes a range take up space, without a change of any byte. Costs an entry for each 64 KiB.
    pub(super) fn allocate(&mut self, offset: u64, length: u64) -> Result<(), TreeError> {
        for part in parts(offset, length) {
            self.change(part.number, |chunk| {
                chunk.stretch(part.end as u32);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Copies bytes of another file; chunks that lie alike in both are shared.
    pub(super) fn copy(
        &mut self,
        at: u64,
        source: &Content,
        from: u64,
        length: u64,
        packs: &dyn Packs,
    ) -> Result<(), TreeError> {
        let mut done = 0;
        while done < length {
            let (from, at, left) = (from + done, at + done, length - done);
            let alike = from.is_multiple_of(CHUNK_BYTES) && at.is_multiple_of(CHUNK_BYTES);
            let ends = from + left >= source.size() && at + left >= self.size();
            let count = left.min(CHUNK_BYTES - at % CHUNK_BYTES);
            if !alike || !(ends || count == CHUNK_BYTES) {
                self.write(at, &source.read(from, count as usize, packs)?, packs)?;
            } else {
                self.put(at / CHUNK_BYTES, source.chunks.get(from / CHUNK_BYTES).cloned());
            }
            done += count;
        }
        if length > 0 {
            self.grow(at + length);
        }
        Ok(())
    }
}

/// Makes bytes of a chunk zeros; at its end they need no space any longer.
fn erase(chunk: &mut Chunk, start: u32, end: u32, packs: &dyn Packs) -> Result<(), TreeError> {
    if end >= chunk.length() {
        return chunk.cut(start, packs);
    }
    chunk.write(start as usize, &vec![0; (end - start) as usize], packs)
}
