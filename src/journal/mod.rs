//! The append-only log of what is not in a segment yet: frames, group commit, replay.
//!
//! A frame is acknowledged once it is written to the file: it then survives the death of the
//! process. [`Journal::sync`] makes it survive a power cut, with one device flush for all who wait.
//!
//! What fails says so as one of three. [`JournalError::Io`] is the disk's own refusal: a reader may try again, and of
//! an append nothing is left. [`JournalError::Poisoned`] is the answer of every append and flush after a flush failed,
//! or after half a frame could not be cut: only a new process may write then. [`JournalError::Damaged`] comes from
//! reading alone. Functions name what is particular to them.
//!
//! ```
//! use std::sync::Arc;
//!
//! use engramfs::disk::{Disk, ForgetfulDisk};
//! use engramfs::journal::{Journal, JournalError, JournalFiles, FrameKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = ForgetfulDisk::new();
//! let disk: Arc<dyn Disk> = Arc::new(device.clone());
//! disk.create_dir("journal")?;
//! disk.sync_dir("")?;
//! // Random in a store.
//! let salt = [7; 16];
//! let journal = Journal::create(&disk, &salt)?;
//! let end = journal.append(FrameKind::Command, &[b"safe"])?;
//! journal.sync(end)?;
//! journal.append(FrameKind::Command, &[b"lost"])?;
//!
//! // The power fails: what was not flushed may be gone, what was is read back.
//! let disk: Arc<dyn Disk> = Arc::new(device.power_cut_keep_nothing());
//! let mut read = Vec::new();
//! let replayed = JournalFiles::list(&disk, 1)?.replay::<JournalError>(true, |frame| {
//!     if frame.kind == FrameKind::Command {
//!         read.push(frame.payload.to_vec());
//!     }
//!     Ok(true)
//! })?;
//! assert_eq!(read, [b"safe"]);
//! replayed.resume(&disk)?.append(FrameKind::Command, &[b"next"])?;
//! # Ok(())
//! # }
//! ```

mod file_header;
mod files;
mod frame;
mod log;
mod replay;
#[cfg(all(test, shuttle))]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod schedules;

use std::io;

use thiserror::Error;

pub use file_header::{FILE_HEADER_BYTES, Salt};
pub use files::{JournalFiles, ReplayedFiles};
pub use frame::{FRAME_HEADER_BYTES, FrameKind, split_content};
pub use log::Journal;
pub use replay::{Frame, Replay, TornTail};

/// Says why the journal can't be read or written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The disk refused; what was asked for did not happen.
    #[error("the journal file {path} could not be {what}: {source}")]
    Io {
        /// The file, below the store's root.
        path: String,
        /// What could not be done to it, for the message: a participle such as `removed`.
        what: &'static str,
        /// The disk's own error.
        source: io::Error,
    },
    /// A flush failed or a broken write could not be undone; what is on the disk is unknown.
    #[error("the journal failed earlier ({reason}) and takes no more writes")]
    Poisoned {
        /// What failed, with the disk's error where there is one.
        reason: String,
    },
    /// Bytes that had been acknowledged as synced are not what was written.
    #[error("the journal file {path} is damaged at byte {offset}: {reason}")]
    Damaged {
        /// The file, below the store's root.
        path: String,
        /// Where the first bad frame begins.
        offset: u64,
        /// What is wrong there, as the end of the message.
        reason: String,
    },
}

impl JournalError {
    /// Returns what to do next, which the error's own text leaves out.
    pub fn hint(&self) -> String {
        match self {
            JournalError::Io { .. } => "free space or mend the disk, then try again".into(),
            JournalError::Poisoned { .. } => "unmount, check the disk, and mount again".into(),
            JournalError::Damaged { .. } => "restore the store from a backup".into(),
        }
    }
}

impl JournalError {
    /// Returns whether the disk, or the share of the user who serves the store, is full.
    pub fn is_full(&self) -> bool {
        matches!(self, JournalError::Io { source, .. }
            if matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)))
    }
}
