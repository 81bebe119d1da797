//! What was written to an open file and is not in the tree yet.

use std::collections::BTreeMap;

use super::op::Extent;
use super::pack::Packs;
use super::{Node, TreeError};

/// Dirty bytes of one inode, over the content that its node has. How much it may hold is the
/// caller's to say.
#[derive(Clone, Default)]
pub struct Buffer {
    /// Bytes by offset; no two touch each other.
    extents: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Buffer {
    /// Writes bytes at an offset, over what is there.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        let before = self.extents.range_mut(..=offset).next_back();
        if let Some((start, extent)) = before
            && offset <= *start + extent.len() as u64
        {
            let at = (offset - *start) as usize;
            let room = extent.len().saturating_sub(at).min(bytes.len());
            extent[at..at + room].copy_from_slice(&bytes[..room]);
            extent.extend_from_slice(&bytes[room..]);
            self.bytes += bytes.len() - room;
            let start = *start;
            self.join(start, end);
        } else {
            self.extents.insert(offset, bytes.to_vec());
            self.bytes += bytes.len();
            self.join(offset, end);
        }
    }

    /// Joins an extent, which was just written up to `end`, with those that it reaches behind it.
    fn join(&mut self, start: u64, end: u64) {
        while let Some((&next, _)) = self.extents.range(start + 1..=end).next() {
            let Some(old) = self.extents.remove(&next) else { break };
            let Some(extent) = self.extents.get_mut(&start) else { break };
            let covered = ((start + extent.len() as u64 - next) as usize).min(old.len());
            extent.extend_from_slice(&old[covered..]);
            self.bytes -= covered;
        }
    }

    /// Drops what is behind `size`; the tree's own content is cut by a `SetAttr`.
    pub fn truncate(&mut self, size: u64) {
        while let Some(mut last) = self.extents.last_entry() {
            let (start, extent) = (*last.key(), last.get_mut());
            let keep = (size.saturating_sub(start) as usize).min(extent.len());
            self.bytes -= extent.len() - keep;
            extent.truncate(keep);
            if keep > 0 {
                break;
            }
            last.remove();
        }
    }

    /// Returns the number of dirty bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether nothing is dirty.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Returns where the last dirty byte ends, or 0: the file is as large as that, or as its node.
    pub fn end(&self) -> u64 {
        self.extents.last_key_value().map_or(0, |(start, extent)| start + extent.len() as u64)
    }

    /// Returns up to `length` bytes from `offset`, dirty ones over those of the node.
    pub fn read(&self, node: &Node, offset: u64, length: usize, packs: &dyn Packs) -> Result<Vec<u8>, TreeError> {
        let size = node.size().max(self.end());
        let length = (length as u64).min(size.saturating_sub(offset)) as usize;
        let end = offset + length as u64;
        let first = self.extents.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        if let Some((start, extent)) = self.extents.get_key_value(&first)
            && end <= start + extent.len() as u64
            && offset >= *start
        {
            let at = (offset - start) as usize;
            return Ok(extent[at..at + length].to_vec());
        }
        let mut bytes = node.read(offset, length, packs)?;
        bytes.resize(length, 0);
        for (start, extent) in self.extents.range(first..end.max(first)) {
            let (from, to) = (offset.max(*start), end.min(start + extent.len() as u64));
            if from < to {
                let dirty = &extent[(from - start) as usize..(to - start) as usize];
                bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(dirty);
            }
        }
        Ok(bytes)
    }

    /// Returns the dirty bytes for an `Op::Write`, and is clean.
    pub fn take(&mut self) -> Vec<Extent> {
        self.bytes = 0;
        std::mem::take(&mut self.extents).into_iter().map(|(offset, bytes)| Extent { offset, bytes }).collect()
    }

    /// Returns a copy of the dirty bytes, for a tree that must have them while this stays dirty.
    pub fn extents(&self) -> Vec<Extent> {
        self.clone().take()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::tests::{Random, create};
    use super::super::{NoPacks, Op, Tree};
    use super::*;
    use crate::object::Time;

    #[test]
    fn a_buffer_over_a_file_reads_as_the_file_will() {
        let mut random = Random(5);
        for _ in 0..200 {
            let mut tree = Tree::default();
            let file = create(&mut tree, 1, b"f");
            let base = Extent { offset: 0, bytes: random.bytes(300) };
            tree.apply(&Op::Write { inode: file, extents: vec![base.clone()] }, Time(1), &NoPacks).unwrap();
            let (mut plain, mut buffer) = (base.bytes, Buffer::default());
            for _ in 0..20 {
                let (offset, bytes) = (random.below(600), random.bytes(80));
                buffer.write(offset as u64, &bytes);
                plain.resize(plain.len().max(if bytes.is_empty() { 0 } else { offset + bytes.len() }), 0);
                let end = (offset + bytes.len()).min(plain.len());
                plain.get_mut(offset..end).unwrap_or_default().copy_from_slice(&bytes[..end.saturating_sub(offset)]);
                let (from, count) = (random.below(700), random.below(300));
                let read = buffer.read(tree.node(file).unwrap(), from as u64, count, &NoPacks).unwrap();
                let to = (from + count).min(plain.len());
                assert_eq!(read, plain.get(from..to).unwrap_or_default());
                let total: usize = buffer.extents.values().map(Vec::len).sum();
                assert_eq!(total, buffer.len());
            }
            let extents = buffer.take();
            assert!(extents.windows(2).all(|two| two[0].offset + (two[0].bytes.len() as u64) < two[1].offset));
            assert!(buffer.is_empty());
            assert_eq!(buffer.len(), 0);
            tree.apply(&Op::Write { inode: file, extents }, Time(2), &NoPacks).unwrap();
            assert_eq!(tree.read(file, 0, 1000, &NoPacks).unwrap(), plain);
        }
    }

    #[test]
    fn a_cut_buffer_holds_nothing_behind_the_cut() {
        let mut buffer = Buffer::default();
        buffer.write(0, &[1; 10]);
        buffer.write(20, &[2; 10]);
        buffer.truncate(25);
        assert_eq!((buffer.end(), buffer.len()), (25, 15));
        buffer.truncate(5);
        assert_eq!((buffer.end(), buffer.len()), (5, 5));
        buffer.truncate(0);
        assert!(buffer.is_empty());
    }
}
