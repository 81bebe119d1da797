//! `lineage` and `events.jsonl`, read from any offset. `events.jsonl` grows under its readers, and poll(2) tells when.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fs::errno::Failure;
use crate::fs::handle::File;
use crate::fs::mount_context::OpenContext;
use crate::fs::rights::SEARCH;
use crate::memory::{HistoryFile, View};

impl OpenContext {
    fn history_length(&self, file: HistoryFile, last_seq: u64) -> Result<u64, Failure> {
        Ok(self.memory().history_length(self.branch(), file, last_seq)?)
    }

    fn history(&self, file: HistoryFile, last_seq: u64, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        let may_enter = |uid, mode| self.mount.permits_mode(self.caller, (uid, mode), SEARCH);
        Ok(self.memory().read_history((self.branch(), file, last_seq), offset, size, &may_enter)?)
    }
}

/// A handle on the lineage of a view, which shows it was at its open.
pub(super) struct LineageFile {
    context: OpenContext,
    /// The last entry that it shows.
    last_seq: u64,
    length: u64,
}

impl LineageFile {
    /// Opens it as it is now: entries that come later are not shown. ESTALE if the branch has ended, ENOENT if its
    /// checkpoint or earlier state is gone, EIO if the history can't be read.
    pub fn open(context: OpenContext) -> Result<LineageFile, Failure> {
        let last_seq = context.memory().history_last_seq(&context.view)?;
        let length = context.history_length(HistoryFile::Lineage, last_seq)?;
        Ok(LineageFile { context, last_seq, length })
    }
}

impl File for LineageFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        self.context.history(HistoryFile::Lineage, self.last_seq, offset, size)
    }

    fn length(&self) -> Option<u64> {
        Some(self.length)
    }
}

/// A handle on the events of a view. It counts as readable while there is more than it has seen.
pub(super) struct EventsFile {
    context: OpenContext,
    /// The last entry that it shows: that of a checkpoint, or none.
    last_seq: u64,
    seen_offset: AtomicU64,
}

impl EventsFile {
    /// Opens a history file. That of a branch grows; that of any other view ends with the view's state. ENOENT if the
    /// checkpoint or earlier state is gone.
    pub fn open(context: OpenContext) -> Result<EventsFile, Failure> {
        let last_seq = match context.view {
            View::Branch(_) => u64::MAX,
            View::Checkpoint(..) | View::At(..) | View::Proposal(..) => {
                context.memory().history_last_seq(&context.view)?
            }
        };
        Ok(EventsFile { context, last_seq, seen_offset: AtomicU64::new(0) })
    }

    fn end(&self) -> Result<u64, Failure> {
        self.context.history_length(HistoryFile::Events, self.last_seq)
    }
}

impl File for EventsFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        let bytes = self.context.history(HistoryFile::Events, self.last_seq, offset, size)?;
        // Who reads behind the end has not seen what will be appended there.
        let seen = (offset + bytes.len() as u64).min(self.end()?);
        self.seen_offset.fetch_max(seen, Ordering::Relaxed);
        Ok(bytes)
    }

    fn is_live(&self) -> bool {
        true
    }

    /// The kernel asks for the length by handle when somebody seeks to the end. They have then seen
    /// what is before it, and a poll(2) that called that readable would never block.
    fn length(&self) -> Option<u64> {
        let length = self.end().ok()?;
        self.seen_offset.fetch_max(length, Ordering::Relaxed);
        Some(length)
    }

    fn is_readable(&self) -> bool {
        self.end().is_ok_and(|end| end > self.seen_offset.load(Ordering::Relaxed))
    }
}
