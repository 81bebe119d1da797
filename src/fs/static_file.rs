//! Files that are read only, and show the state at their open, so that a reader of several blocks never sees two states in one
//! file.

use super::counted_buffer::CountedBuffer;
use super::errno::Failure;
use super::handle::{File, slice_at};
use crate::memory::{Export, Snapshot};

/// Bytes made at open, which count for the caller as long as it is open.
pub(super) struct StaticFile(pub CountedBuffer);

impl File for StaticFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        Ok(slice_at(&self.0, offset, size))
    }

    fn length(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }
}

/// A file of `export/`, made as it is read from the state at its open.
pub(super) struct ExportFile {
    /// The records at its open.
    pub snapshot: Snapshot,
    /// Which file of `export/` it is.
    pub export: Export,
}

impl File for ExportFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        let left = self.snapshot.export_length(self.export).saturating_sub(offset);
        let mut bytes = vec![0; size.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let filled = self.snapshot.export_read(self.export, offset, &mut bytes)?;
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn length(&self) -> Option<u64> {
        Some(self.snapshot.export_length(self.export))
    }
}
