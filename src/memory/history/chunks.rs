//! Writing the entries of an archive, chunk after chunk.

use super::archive::CHUNK_ROW_BYTES;
use crate::lineage::{EntryChunkWriter, SignedEntry};
use crate::memory::Error;
use crate::segment::ContainerWriter;

/// Entries of a chunk, and bytes from which on it takes no more: reading one entry reads those before it in its chunk.
const ENTRIES_MAX: u64 = 32;
const BYTES_MAX: usize = 64 << 10;

/// Writes the first two sections of an archive.
#[derive(Default)]
pub(super) struct ArchiveEntriesWriter {
    chunk: EntryChunkWriter,
    /// End in section 0, and entries up to it, of each chunk.
    rows: Vec<[u64; 2]>,
}

impl ArchiveEntriesWriter {
    /// Appends the next entry; the first section is begun. A chunk ends with its 32nd entry, or once it has 64 KiB.
    /// Fails only if a chunk ends and can't be written.
    pub fn push(&mut self, out: &mut ContainerWriter<'_>, signed: &SignedEntry) -> Result<(), Error> {
        self.chunk.push(signed);
        if self.chunk.count() == ENTRIES_MAX || self.chunk.as_slice().len() >= BYTES_MAX {
            self.end_chunk(out)?;
        }
        Ok(())
    }

    /// Ends the first section and writes the second. Fails if the disk refuses a write.
    pub fn finish(mut self, out: &mut ContainerWriter<'_>) -> Result<(), Error> {
        self.end_chunk(out)?;
        out.begin()?;
        for row in self.rows {
            let mut bytes = [0; CHUNK_ROW_BYTES as usize];
            bytes[..8].copy_from_slice(&row[0].to_le_bytes());
            bytes[8..].copy_from_slice(&row[1].to_le_bytes());
            out.write(&bytes)?;
        }
        Ok(())
    }

    fn end_chunk(&mut self, out: &mut ContainerWriter<'_>) -> Result<(), Error> {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.count() == 0 {
            return Ok(());
        }
        out.write(chunk.as_slice())?;
        let [end, places] = self.rows.last().copied().unwrap_or_default();
        self.rows.push([end + chunk.as_slice().len() as u64, places + chunk.count()]);
        Ok(())
    }
}
