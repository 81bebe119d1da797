//! A signal opened for writing: bytes gather here until the handle is closed or flushed, and then are its value at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::counted_buffer::CountedBuffer;
use super::errno::{Errno, Failure};
use super::handle::{File, slice_at};
use super::mount_context::OpenContext;
use crate::memory::{Error, SIGNAL_BYTES_MAX, SignalError, SignalId, Time};
use crate::sync::{Mutex, MutexGuard, Rank};

/// The bytes of one handle. They begin as the value at its open, and no other handle sees them before they count.
pub(super) struct SignalFile {
    context: OpenContext,
    key: Arc<str>,
    created: Time,
    append: bool,
    buffer: Mutex<CountedBuffer>,
    /// Read without the buffer's lock, which a commit holds.
    is_pending: AtomicBool,
    length: AtomicU64,
}

impl SignalFile {
    /// Opens the signal of a key that was claimed at a time, with a copy of its value. EROFS if nothing can be changed,
    /// ENOENT if it has ended, EDQUOT or ENOSPC if the value is more than the caller may hold.
    pub fn open(context: OpenContext, key: &Arc<str>, created: Time, append: bool) -> Result<SignalFile, Failure> {
        context.check_writable()?;
        let value = context.signal(key, created)?.value.to_vec();
        let length = AtomicU64::new(value.len() as u64);
        let buffer = Mutex::with_rank(Rank::Handle, context.count_buffer(value)?);
        Ok(SignalFile {
            context,
            key: key.clone(),
            created,
            append,
            buffer,
            is_pending: AtomicBool::new(false),
            length,
        })
    }

    /// Takes the buffer, which a commit holds.
    fn buffer(&self) -> Result<MutexGuard<'_, CountedBuffer>, Failure> {
        self.buffer.lock_or_give_up().ok_or_else(Failure::would_wait)
    }

    fn set_pending(&self, buffer: &CountedBuffer, pending: bool) {
        self.length.store(buffer.len() as u64, Ordering::Release);
        self.is_pending.store(pending, Ordering::Release);
    }
}

/// Returns a length that a value can have; EFBIG else.
fn check_length(length: u64) -> Result<usize, Failure> {
    let checked = usize::try_from(length).ok().filter(|length| *length <= SIGNAL_BYTES_MAX);
    checked.ok_or_else(|| Error::from(SignalError::TooLong(length)).into())
}

impl File for SignalFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        Ok(slice_at(&self.buffer()?, offset, size))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        self.context.check_writable()?;
        let mut buffer = self.buffer()?;
        let start = if self.append { buffer.len() as u64 } else { offset };
        let end = match check_length(start.saturating_add(data.len() as u64)) {
            Ok(end) => end,
            Err(refused) => {
                // What was written so far is dropped: the beginning of a value is not a value.
                buffer.truncate(0);
                self.set_pending(&buffer, false);
                return Err(refused);
            }
        };
        let start = usize::try_from(start).map_err(|_| Errno::EFBIG)?;
        if end > buffer.len() {
            buffer.resize(end)?;
        }
        buffer[start..end].copy_from_slice(data);
        self.set_pending(&buffer, true);
        Ok(data.len())
    }

    /// Emptying alone writes nothing: `>` of a shell comes before the content does.
    fn truncate(&self, length: u64) -> Result<(), Failure> {
        let length = check_length(length)?;
        let mut buffer = self.buffer()?;
        let pending = length > 0 && (self.is_pending() || length != buffer.len());
        if length > buffer.len() {
            buffer.resize(length)?;
        }
        buffer.truncate(length);
        self.set_pending(&buffer, pending);
        Ok(())
    }

    fn commit(&self) -> Result<(), Failure> {
        let buffer = self.buffer()?;
        if !self.is_pending() {
            return Ok(());
        }
        self.context.check_writable()?;
        let (memory, id) = (self.context.memory(), SignalId { key: &self.key, created: self.created });
        memory.write_signal(&self.context.actor(), self.context.branch(), id, &buffer)?;
        self.set_pending(&buffer, false);
        Ok(())
    }

    fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }

    fn length(&self) -> Option<u64> {
        Some(self.length.load(Ordering::Acquire))
    }
}
