//! Writing a file of sections, see [`Container`](super::Container) for its form.

use std::io;

use super::SegmentError;
use super::container::{ALIGN_BYTES, BLOCK_BYTES, BLOCK_CONTEXT, FOOTER_CONTEXT, MAGIC};
use crate::object::{BlobStore, Hash, TempBlob, Writer};

/// Bytes of one write, except for the last: so many on their own boundary may lie in one huge page of the page cache,
/// and be mapped as one.
const WRITE_BYTES: usize = 2 * 1024 * 1024;

/// Writes a file section by section, in bounded memory: 2 MiB and the hashes of the blocks.
///
/// Dropped before [`ContainerWriter::finish`] it leaves no file. All that can fail is the disk.
pub struct ContainerWriter<'a> {
    blob: TempBlob<'a>,
    /// What was not written yet, and the length of the file with it.
    unwritten: Vec<u8>,
    length: u64,
    footer: Writer,
    sections: u64,
    open_section: Option<OpenSection>,
    block: Vec<u8>,
}

struct OpenSection {
    offset: u64,
    hashes: Vec<Hash>,
}

impl<'a> ContainerWriter<'a> {
    /// Starts a file in the blob store. `SegmentError::Io` if the disk refuses.
    pub fn new(blobs: &'a BlobStore) -> Result<ContainerWriter<'a>, SegmentError> {
        let blob = blobs.create().map_err(new_file_io)?;
        let (unwritten, block) = (Vec::with_capacity(WRITE_BYTES), Vec::with_capacity(BLOCK_BYTES as usize));
        let mut writer = ContainerWriter {
            blob,
            unwritten,
            length: 0,
            footer: Writer::new(),
            sections: 0,
            open_section: None,
            block,
        };
        let mut head = [0; ALIGN_BYTES as usize];
        head[..8].copy_from_slice(MAGIC);
        writer.append(&head)?;
        Ok(writer)
    }

    /// Ends the section before and starts the next one; sections are numbered from 0 in this order. `SegmentError::Io`
    /// if the disk refuses a write; the file can't be finished then.
    pub fn begin(&mut self) -> Result<(), SegmentError> {
        self.end_section()?;
        self.align()?;
        self.open_section = Some(OpenSection { offset: self.length, hashes: Vec::new() });
        Ok(())
    }

    /// Appends bytes to the section. Before the first [`ContainerWriter::begin`] they would be in no section. They are
    /// written 2 MiB at a time, so `SegmentError::Io` may be about earlier ones.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), SegmentError> {
        while !bytes.is_empty() {
            let room = BLOCK_BYTES as usize - self.block.len();
            let (head, tail) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(head);
            bytes = tail;
            if self.block.len() == BLOCK_BYTES as usize {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), SegmentError> {
        let mut block = std::mem::take(&mut self.block);
        if !block.is_empty() {
            self.append(&block)?;
            if let Some(open) = &mut self.open_section {
                open.hashes.push(Hash::digest(&BLOCK_CONTEXT, &block));
            }
            block.clear();
        }
        self.block = block;
        Ok(())
    }

    fn end_section(&mut self) -> Result<(), SegmentError> {
        // The last block of a section is shorter; without this it would be in no hash.
        self.end_block()?;
        if let Some(open) = self.open_section.take() {
            self.footer.number(open.offset).number(self.length - open.offset);
            open.hashes.iter().for_each(|hash| {
                self.footer.hash(hash);
            });
            self.sections += 1;
        }
        Ok(())
    }

    /// Appends zeros up to where a section may begin.
    fn align(&mut self) -> Result<(), SegmentError> {
        let gap = self.length.next_multiple_of(ALIGN_BYTES) - self.length;
        self.append(&[0; ALIGN_BYTES as usize][..gap as usize])
    }

    /// Appends bytes to the file; they are written once a whole write has come together.
    fn append(&mut self, mut bytes: &[u8]) -> Result<(), SegmentError> {
        while !bytes.is_empty() {
            let (head, tail) = bytes.split_at((WRITE_BYTES - self.unwritten.len()).min(bytes.len()));
            self.unwritten.extend_from_slice(head);
            self.length += head.len() as u64;
            bytes = tail;
            if self.unwritten.len() == WRITE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SegmentError> {
        let start = self.length - self.unwritten.len() as u64;
        self.blob.write_at(&self.unwritten, start).map_err(new_file_io)?;
        self.unwritten.clear();
        Ok(())
    }

    /// Writes the footer with `extra` in it, makes the file durable and returns its name. The same sections and `extra`
    /// give the same name; a file that has it is replaced by the equal one. `SegmentError::Io` if the disk refuses; the
    /// file may have its name all the same then.
    pub fn finish(mut self, kind: u8, extra: &[u8]) -> Result<Hash, SegmentError> {
        self.end_section()?;
        let mut footer = Writer::new();
        footer.byte(kind).number(self.sections).raw(self.footer.as_slice()).bytes(extra);
        let footer = footer.finish();
        // The name covers the footer and the footer all blocks, so it is known only when everything else is written.
        let name = Hash::digest(&FOOTER_CONTEXT, &footer);
        self.align()?;
        self.append(&footer)?;
        self.append(&(footer.len() as u64).to_le_bytes())?;
        self.append(MAGIC)?;
        self.flush()?;
        self.blob.persist(&name).map_err(new_file_io)?;
        Ok(name)
    }
}

fn new_file_io(source: io::Error) -> SegmentError {
    SegmentError::Io { name: "a new one".to_owned(), what: "written", source }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Arc;

    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::segment::Container;

    #[test]
    fn sections_come_back_as_written_wherever_writes_begin_and_end() {
        let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), "segments").unwrap();
        let lengths = [0, 1, 63, 65_536, WRITE_BYTES - 200_000, 130_000, WRITE_BYTES, 3 * WRITE_BYTES + 7];
        let byte = |section: usize, at: usize| (at * 31 + at / 251 + section) as u8;
        let mut out = ContainerWriter::new(&blobs).unwrap();
        for (section, length) in lengths.into_iter().enumerate() {
            out.begin().unwrap();
            let bytes: Vec<u8> = (0..length).map(|at| byte(section, at)).collect();
            bytes.chunks(100_003).for_each(|some| out.write(some).unwrap());
        }
        let name = out.finish(9, b"more").unwrap();
        let file = Container::open(&blobs, name, 9).unwrap();
        file.verify().unwrap();
        assert_eq!(file.extra(), b"more");
        for (section, length) in lengths.into_iter().enumerate() {
            let bytes = file.section(section).unwrap();
            assert_eq!(bytes.len(), length);
            assert!(bytes.iter().enumerate().all(|(at, found)| *found == byte(section, at)), "section {section}");
        }
    }
}
