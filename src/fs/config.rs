//! `config/<setting>`: one value a file.

use crate::sync::Mutex;

use super::errno::Failure;
use super::handle::{File, part};
use super::mount_context::OpenContext;
use super::refusal::InputRefusal;
use crate::memory::Setting;

/// Bytes of the longest value.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Returns a value as its file shows it: with a line end, and empty when unset.
pub(super) fn shown(value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("{value}\n") }
}

/// A setting opened for writing. Each write sets what the handle wrote so far, so that a bad value
/// fails in the write.
pub(super) struct SettingFile {
    place: OpenContext,
    setting: Setting,
    append: bool,
    value: Mutex<Vec<u8>>,
}

impl SettingFile {
    /// A write at 0 begins a value again, appending goes on from the present one.
    pub fn open(place: OpenContext, setting: Setting, append: bool) -> Result<SettingFile, Failure> {
        place.check_writable()?;
        let value = shown(&place.memory().setting(&place.view, setting)?);
        Ok(SettingFile { place, setting, append, value: Mutex::new(value.into_bytes()) })
    }
}

impl File for SettingFile {
    /// Another session takes `scratch/` away, and the kernel forgets it before the write returns.
    fn takes_long(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        Ok(part(&self.value.lock(), offset, size))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        self.place.check_writable()?;
        let before = self.value.lock().clone();
        let kept =
            if self.append { before.len() } else { usize::try_from(offset).unwrap_or(usize::MAX).min(before.len()) };
        let value = [&before[..kept], data].concat();
        if value.len() > VALUE_BYTES_MAX {
            return Err(InputRefusal::ValueTooLong(VALUE_BYTES_MAX >> 10).into());
        }
        let text = std::str::from_utf8(&value).map_err(|_| InputRefusal::ValueNotUtf8)?;
        self.place.memory().set(&self.place.actor(), self.place.branch(), self.setting, text.trim())?;
        *self.value.lock() = value;
        Ok(data.len())
    }

    fn truncate(&self, length: u64) -> Result<(), Failure> {
        self.value.lock().truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn length(&self) -> Option<u64> {
        Some(self.value.lock().len() as u64)
    }
}
