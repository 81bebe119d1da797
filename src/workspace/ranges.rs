//! Holes, space and copies: what fallocate, lseek and copy_file_range do to content.

use std::ops::Range;

use super::TreeError;
use super::chunk::{CHUNK_BYTES, Chunk};
use super::content::{ChunkRange, FileContent, chunk_ranges};
use super::pack::Packs;

/// Returns how many bytes of a copied range are not shared with its source, but read and written: all, unless both ranges lie
/// alike in their chunks; then those at the two ends at most.
pub fn unshared_bytes(from: u64, to: u64, length: u64) -> u64 {
    let lies_alike = from % CHUNK_BYTES == to % CHUNK_BYTES;
    if lies_alike { length.min(2 * CHUNK_BYTES) } else { length }
}

impl FileContent {
    /// Returns where data begins at or after `offset`; `None` if there is none or it is past the end.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let (mut number, mut from) = (offset / CHUNK_BYTES, offset);
        loop {
            let (found, chunk) = self.chunks.next(number)?;
            from = from.max(found * CHUNK_BYTES);
            if from >= self.size() {
                return None;
            }
            // A short chunk ends before the next one begins, and a hole lies in between.
            if from < found * CHUNK_BYTES + u64::from(chunk.length()) {
                return Some(from);
            }
            number = found + 1;
        }
    }

    /// Returns where a hole begins at or after `offset`: at the latest at the end; none behind it.
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size() {
            return None;
        }
        let mut from = offset;
        while let Some(chunk) = self.chunks.get(from / CHUNK_BYTES) {
            if let Some(end) = self.chunks.run_end(from / CHUNK_BYTES) {
                from = end * CHUNK_BYTES;
                continue;
            }
            let end = from / CHUNK_BYTES * CHUNK_BYTES + u64::from(chunk.length());
            // A short chunk ends in zeros that take no space; the last one ends with the file.
            from = from.max(end);
            if !end.is_multiple_of(CHUNK_BYTES) || from >= self.size() {
                break;
            }
        }
        Some(from.min(self.size()))
    }

    /// Makes a hole; the size stays. [`TreeError::Segment`] if a chunk that is kept in part can't be read.
    pub(super) fn punch(&mut self, offset: u64, length: u64, packs: &dyn Packs) -> Result<(), TreeError> {
        let (edges, whole) = edges(offset, length);
        for ChunkRange { number, start, end } in edges {
            let length = self.chunks.get(number).map_or(0, Chunk::length) as usize;
            // Behind its length a chunk is a hole already.
            let end = end.min(length);
            if start == 0 && end == length {
                self.remove(number);
            } else if start < end {
                self.change(number, |chunk| erase(chunk, start as u32, end as u32, packs))?;
            }
        }
        self.clear(whole);
        Ok(())
    }

    /// Makes a range take up space, without a change of any byte. Never fails: no chunk has to be read for that.
    pub(super) fn allocate(&mut self, offset: u64, length: u64) -> Result<(), TreeError> {
        let (edges, whole) = edges(offset, length);
        for part in edges {
            self.change(part.number, |chunk| {
                chunk.extend_to(part.end as u32);
                Ok(())
            })?;
        }
        self.fill(whole);
        Ok(())
    }

    /// Copies bytes of another file; chunks that lie alike in both are shared. [`TreeError::Segment`] if a chunk that
    /// is copied, or kept in part, can't be read; those before it are copied then.
    pub(super) fn copy(
        &mut self,
        at: u64,
        source: &FileContent,
        from: u64,
        length: u64,
        packs: &dyn Packs,
    ) -> Result<(), TreeError> {
        let mut done = 0;
        while done < length {
            let (from, at, left) = (from + done, at + done, length - done);
            let alike = from.is_multiple_of(CHUNK_BYTES) && at.is_multiple_of(CHUNK_BYTES);
            // Holes and runs are taken in one step, since each may be as long as the largest file.
            let zeros = if alike { self.copy_zeros(at / CHUNK_BYTES, source, from / CHUNK_BYTES, left) } else { 0 };
            if zeros > 0 {
                done += zeros;
                continue;
            }
            // The last chunk can be shared as well where both files end with it: behind the size of a file its chunks
            // are zeros.
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

impl FileContent {
    /// Copies the whole chunks of a hole, or of a run of zeros; returns how many bytes that are.
    fn copy_zeros(&mut self, at: u64, source: &FileContent, from: u64, length: u64) -> u64 {
        let most = length / CHUNK_BYTES;
        let (run, hole) = match (source.chunks.run_end(from), source.chunks.next(from)) {
            (Some(end), _) => ((end - from).min(most), 0),
            (None, Some((next, _))) => (0, (next - from).min(most)),
            (None, None) => (0, most),
        };
        self.clear(at..at + run.max(hole));
        self.fill(at..at + run);
        run.max(hole) * CHUNK_BYTES
    }
}

/// Cuts a range into the parts of chunks at its ends and the whole chunks in between.
fn edges(offset: u64, length: u64) -> (Vec<ChunkRange>, Range<u64>) {
    let end = offset.saturating_add(length);
    let (first, last) = (offset.div_ceil(CHUNK_BYTES), end / CHUNK_BYTES);
    // The range lies within one chunk, so that there is no whole one and only one edge.
    if first > last {
        return (chunk_ranges(offset, length).collect(), 0..0);
    }
    let head = chunk_ranges(offset, first * CHUNK_BYTES - offset);
    (head.chain(chunk_ranges(last * CHUNK_BYTES, end - last * CHUNK_BYTES)).collect(), first..last)
}

/// Makes bytes of a chunk zeros; at its end they need no space any longer.
fn erase(chunk: &mut Chunk, start: u32, end: u32, packs: &dyn Packs) -> Result<(), TreeError> {
    if end >= chunk.length() {
        return chunk.cut(start, packs);
    }
    chunk.write(start as usize, &vec![0; (end - start) as usize], packs)
}
