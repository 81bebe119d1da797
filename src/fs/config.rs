//! `config/<setting>`: one value a file.

use crate::sync::Mutex;

use super::errno::Failure;
use super::handle::{File, slice_at};
use super::mount_context::OpenContext;
use super::refusal::InputRefusal;
use crate::memory::{Setting, check_setting};

/// Bytes of the longest value; a write that makes it longer is refused.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Bytes of the smallest buffer of programs that gather what they write.
const BUFFER_BYTES: usize = 4096;

/// Returns a value as its file shows it: with a line end, and empty when unset.
pub(super) fn with_line_end(value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("{value}\n") }
}

/// A setting opened for writing. Each write sets the setting to all that the handle has written so far, so that a bad
/// value fails the write. What has several lines may come line by line: it is set as a whole by a commit, and not at
/// all where one of them is bad: the lines behind that would be another value.
pub(super) struct SettingFile {
    context: OpenContext,
    setting: Setting,
    append: bool,
    value: Mutex<SettingBuffer>,
}

/// The value as the handle has it: the one found at open, and what was written over it.
struct SettingBuffer {
    bytes: Vec<u8>,
    state: CommitState,
}

/// Whether the lines written so far are the setting's value. A close with lines that no commit took commits them; after a refusal,
/// which is told to each write and commit, the value has to be begun again by emptying the file.
#[derive(Clone)]
enum CommitState {
    Set,
    Pending,
    Refused(Failure),
}

impl SettingFile {
    /// A write at 0 begins a value again, appending goes on from the present one. EROFS if nothing can be changed,
    /// ESTALE if the branch has gone.
    pub fn open(context: OpenContext, setting: Setting, append: bool) -> Result<SettingFile, Failure> {
        context.check_writable()?;
        let value = with_line_end(&context.memory().setting(&context.view, setting)?);
        Ok(SettingFile {
            context,
            setting,
            append,
            value: Mutex::new(SettingBuffer { bytes: value.into_bytes(), state: CommitState::Set }),
        })
    }

    fn set(&self, text: &str) -> Result<(), Failure> {
        Ok(self.context.memory().set(&self.context.actor(), self.context.branch(), self.setting, text.trim())?)
    }

    /// Takes a write over the value that the handle has; returns that with what was written. Refused where it is too
    /// long, no text or no such value, and as setting it is.
    fn apply_write(&self, before: &[u8], offset: u64, data: &[u8]) -> Result<SettingBuffer, Failure> {
        let kept =
            if self.append { before.len() } else { usize::try_from(offset).unwrap_or(usize::MAX).min(before.len()) };
        let bytes = [&before[..kept], data].concat();
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(InputRefusal::ValueTooLong(VALUE_BYTES_MAX >> 10).into());
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| InputRefusal::ValueNotUtf8)?;
        if !self.setting.is_multiline() {
            self.set(text)?;
            return Ok(SettingBuffer { bytes, state: CommitState::Set });
        }
        // A writer with a full buffer may have cut a line; all others have ended one.
        let is_cut = data.len().is_multiple_of(BUFFER_BYTES);
        let complete = if is_cut { text.rfind('\n').map_or("", |end| &text[..end]) } else { text.trim() };
        if !complete.is_empty() {
            check_setting(self.setting, complete)?;
        }
        Ok(SettingBuffer { bytes, state: CommitState::Pending })
    }
}

impl File for SettingFile {
    /// Another session takes `scratch/` away, and the kernel forgets it before the write returns.
    fn takes_long(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        Ok(slice_at(&self.value.lock().bytes, offset, size))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        self.context.check_writable()?;
        let before = {
            let value = self.value.lock();
            if let CommitState::Refused(failure) = &value.state {
                return Err(failure.clone());
            }
            value.bytes.clone()
        };
        let taken = self.apply_write(&before, offset, data).inspect_err(|failure| {
            if self.setting.is_multiline() {
                self.value.lock().state = CommitState::Refused(failure.clone());
            }
        })?;
        *self.value.lock() = taken;
        Ok(data.len())
    }

    fn commit(&self) -> Result<(), Failure> {
        let bytes = {
            let value = self.value.lock();
            match &value.state {
                CommitState::Set => return Ok(()),
                CommitState::Pending => value.bytes.clone(),
                CommitState::Refused(failure) => return Err(failure.clone()),
            }
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| InputRefusal::ValueNotUtf8)?;
        self.set(text)?;
        self.value.lock().state = CommitState::Set;
        Ok(())
    }

    fn is_pending(&self) -> bool {
        matches!(self.value.lock().state, CommitState::Pending)
    }

    /// Emptying begins a value again.
    fn truncate(&self, length: u64) -> Result<(), Failure> {
        let mut value = self.value.lock();
        value.bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        if length == 0 && matches!(value.state, CommitState::Refused(_)) {
            value.state = CommitState::Set;
        }
        Ok(())
    }

    fn length(&self) -> Option<u64> {
        Some(self.value.lock().bytes.len() as u64)
    }
}
