//! The bytes of one file: as read now, as they are on the medium, and what lies between.

use std::io;

use super::cut::CutOutcome;

/// Longest file the double holds, in bytes; a stray offset then is an error and not an empty memory.
const LEN_BYTES_MAX: u64 = 4 << 30;

/// Holds one file's live and durable bytes.
#[derive(Default)]
pub(super) struct SimulatedFile {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Changes since the last sync, oldest first. Applied to `durable` they give `live`, unless pages
    /// were lost by a failed sync.
    unsynced: Vec<UnsyncedChange>,
    /// Handles that are open on it: a file without a name takes up room as long as there are any.
    pub(super) handles: usize,
}

enum UnsyncedChange {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl SimulatedFile {
    /// Returns a file of which a power cut takes nothing.
    pub(super) fn synced(bytes: Vec<u8>) -> Self {
        Self { live: bytes.clone(), durable: bytes, ..Self::default() }
    }

    /// Returns the bytes that a read finds, synced or not.
    pub(super) fn live_bytes(&self) -> &[u8] {
        &self.live
    }

    /// As [`DiskFile::read_exact_at`](crate::disk::DiskFile::read_exact_at) does; the one error is `UnexpectedEof`.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let start = usize::try_from(offset).ok();
        let found = start.and_then(|start| self.live.get(start..start.checked_add(buf.len())?));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    /// Writes bytes that a power cut may take until the next sync. EFBIG behind 4 GiB.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        // Checked before a byte is touched, so that a write that is refused leaves nothing.
        checked_len(offset.saturating_add(bytes.len() as u64))?;
        let offset = checked_len(offset)?;
        overwrite(&mut self.live, offset, bytes);
        self.unsynced.push(UnsyncedChange::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    /// Sets the length, likewise. EFBIG behind 4 GiB.
    pub(super) fn set_len(&mut self, len: u64) -> io::Result<()> {
        let len = checked_len(len)?;
        self.live.resize(len, 0);
        self.unsynced.push(UnsyncedChange::SetLen(len));
        Ok(())
    }

    /// Makes all that was written so far outlive a power cut.
    pub(super) fn sync(&mut self) {
        let mut durable = std::mem::take(&mut self.durable);
        self.apply(&mut durable, &mut CutOutcome::Everything);
        self.durable = durable;
        self.unsynced.clear();
    }

    /// Forgets that anything waits to be written: what Linux does to pages whose write-back failed.
    pub(super) fn lose_pages(&mut self) {
        self.unsynced.clear();
    }

    /// Returns the bytes that are found after a power cut.
    pub(super) fn after_cut(&self, outcome: &mut CutOutcome) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        self.apply(&mut bytes, outcome);
        bytes
    }

    /// Flips the bits of `mask` in one byte, wherever that byte is held. `InvalidInput` past the end of the file.
    pub(super) fn flip(&mut self, at: usize, mask: u8) -> io::Result<()> {
        let byte = self.live.get_mut(at).ok_or(io::ErrorKind::InvalidInput)?;
        *byte ^= mask;
        if let Some(byte) = self.durable.get_mut(at) {
            *byte ^= mask;
        }
        for change in &mut self.unsynced {
            if let UnsyncedChange::Write { offset, bytes } = change
                && let Some(byte) = at.checked_sub(*offset).and_then(|at| bytes.get_mut(at))
            {
                *byte ^= mask;
            }
        }
        Ok(())
    }

    fn apply(&self, target: &mut Vec<u8>, outcome: &mut CutOutcome) {
        for change in &self.unsynced {
            match change {
                UnsyncedChange::Write { offset, bytes } => outcome.apply(target, *offset, bytes),
                UnsyncedChange::SetLen(len) if outcome.survives() => target.resize(*len, 0),
                UnsyncedChange::SetLen(_) => {}
            }
        }
    }
}

/// Writes `bytes` at `offset`, filling a gap before it with zeros.
pub(super) fn overwrite(target: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if target.len() < end {
        target.resize(end, 0);
    }
    target[offset..end].copy_from_slice(bytes);
}

fn checked_len(len: u64) -> io::Result<usize> {
    match usize::try_from(len) {
        Ok(short) if len <= LEN_BYTES_MAX => Ok(short),
        _ => Err(io::Error::from_raw_os_error(libc::EFBIG)),
    }
}
