//! The files of `shared/log/`: entries are appended, and read by number, from the cursor on, or all of them as they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::counted_buffer::CountedBuffer;
use super::errno::Failure;
use super::handle::{File, slice_at};
use super::last_answers::AnsweringFile;
use super::line_session::{LineProtocol, RequestOutcome};
use super::mount_branch_state::MountBranchState;
use super::mount_context::OpenContext;
use super::node::SharedNode;
use super::refusal::InputRefusal;
use crate::memory::{BranchId, Memory, SharedLog, SharedLogEntryInput, SharedLogError, SharedLogPosition};
use crate::sync::{Mutex, MutexGuard, Rank};

/// Entries that one read of `unread` or `after/` shows, and that one write may bring.
pub(super) const BATCH_ENTRIES_MAX: u64 = 1000;

/// Appends the lines of `log/append`: those of one write are one batch.
pub(super) struct AppendFile;

impl LineProtocol for AppendFile {
    type Request = SharedLogEntryInput;
    const FILE: AnsweringFile = AnsweringFile::LogAppend;

    fn parse(&self, line: &str) -> Result<SharedLogEntryInput, Failure> {
        Ok(SharedLogEntryInput::parse(line)?)
    }

    fn changes(&self, _entry: &SharedLogEntryInput) -> bool {
        true
    }

    fn holds_branch(&self) -> bool {
        true
    }

    fn perform(&self, context: &OpenContext, entry: &SharedLogEntryInput, _number: usize) -> RequestOutcome {
        append(context, std::slice::from_ref(entry))
    }

    /// The lines of one write are one batch, and have one answer.
    fn perform_batch(
        &self,
        context: &OpenContext,
        entries: &[SharedLogEntryInput],
        _first: usize,
        _room: usize,
    ) -> Vec<RequestOutcome> {
        let answer = append(context, entries);
        let rest = if answer.is_ok() { entries.len().saturating_sub(1) } else { 0 };
        std::iter::once(answer).chain((0..rest).map(|_| Ok(String::new()))).collect()
    }
}

fn append(context: &OpenContext, entries: &[SharedLogEntryInput]) -> RequestOutcome {
    if entries.len() as u64 > BATCH_ENTRIES_MAX {
        return Err(SharedLogError::TooMany(entries.len()).into());
    }
    context.check_writable()?;
    context.check_enter()?;
    Ok(context.memory().append_log(&context.actor(), context.branch(), entries)?.to_json() + "\n")
}

impl OpenContext {
    /// Returns the log that a file of `shared/log/` shows.
    fn log(&self) -> Result<SharedLog, Failure> {
        Ok(self.memory().shared_log(self.branch())?)
    }

    /// Returns the lines that a generated file of `shared/log/` shows. Fails if an entry is damaged, or the lines are
    /// more than the caller may hold.
    pub fn log_lines(&self, node: &SharedNode) -> Result<CountedBuffer, Failure> {
        let log = self.log()?;
        self.count_buffer(match node {
            SharedNode::Unread => log.lines_after(self.memory().cursor(self.branch())?, BATCH_ENTRIES_MAX)?,
            SharedNode::After(entry) => log.lines_after(*entry, BATCH_ENTRIES_MAX)?,
            SharedNode::Last(count) => return self.last_lines(&log, *count),
            _ => Vec::new(),
        })
    }

    /// Gathers the last entries some at a time, so that no more are read than the caller may hold.
    fn last_lines(&self, log: &SharedLog, count: u64) -> Result<CountedBuffer, Failure> {
        let (mut lines, mut read) = (self.buffer(), log.entry_count().saturating_sub(count));
        while read < log.entry_count() {
            lines.extend(&log.lines_after(read, BATCH_ENTRIES_MAX)?)?;
            read += BATCH_ENTRIES_MAX;
        }
        Ok(lines)
    }
}

/// A handle on all entries, which sees those that come. It counts as readable while there is more than it has seen.
pub(super) struct EntriesFile {
    context: OpenContext,
    /// One that was closed has no more to come.
    closed: Option<SharedLog>,
    /// The state of the branch whose log it is: it is told of new entries.
    owner: Arc<MountBranchState>,
    position: Mutex<SharedLogPosition>,
    seen_offset: AtomicU64,
}

impl EntriesFile {
    /// Opens the log that a branch has, or one that was closed. Fails if none with that name was closed.
    pub fn open(context: OpenContext, closed: Option<&str>) -> Result<EntriesFile, Failure> {
        let closed = closed.map(|name| context.memory().closed_log(context.branch(), name)).transpose()?;
        let owner = context.mount.states.get_or_insert(context.log()?.owner);
        Ok(EntriesFile { context, closed, owner, position: Mutex::default(), seen_offset: AtomicU64::new(0) })
    }

    fn log(&self) -> Result<SharedLog, Failure> {
        self.closed.clone().map_or_else(|| self.context.log(), Ok)
    }
}

impl File for EntriesFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        let log = self.log()?;
        let mut position = *self.position.lock();
        let bytes = log.read(offset, size, &mut position)?;
        *self.position.lock() = position;
        // Who reads behind the end has not seen what will be appended there.
        self.seen_offset.fetch_max((offset + bytes.len() as u64).min(log.bytes()), Ordering::Relaxed);
        Ok(bytes)
    }

    fn takes_long(&self) -> bool {
        true
    }

    fn is_live(&self) -> bool {
        true
    }

    /// Who asks for the length, as to seek to the end, has seen what is before it.
    fn length(&self) -> Option<u64> {
        let length = self.log().ok()?.bytes();
        self.seen_offset.fetch_max(length, Ordering::Relaxed);
        Some(length)
    }

    fn is_readable(&self) -> bool {
        self.log().is_ok_and(|log| log.bytes() > self.seen_offset.load(Ordering::Relaxed))
    }

    fn waits_on(&self) -> Option<&Arc<MountBranchState>> {
        Some(&self.owner)
    }
}

/// Returns what `log/cursor` shows. ESTALE if the branch has gone.
pub(super) fn cursor_text(memory: &Memory, branch: BranchId) -> Result<String, Failure> {
    Ok(format!("{}\n", memory.cursor(branch)?))
}

/// `log/cursor` opened for writing. What was written counts with its line end, or when the handle is closed or flushed.
pub(super) struct CursorFile {
    context: OpenContext,
    /// Bytes of a line that has not ended yet; none once what was written counts.
    written: Mutex<Option<Vec<u8>>>,
    /// Read without the lock, which a commit holds.
    is_pending: AtomicBool,
}

impl CursorFile {
    /// A write begins a number again. EROFS if nothing can be changed; only the owner of the branch may open it.
    pub fn open(context: OpenContext) -> Result<CursorFile, Failure> {
        context.check_writable()?;
        context.check_owner()?;
        Ok(CursorFile { context, written: Mutex::with_rank(Rank::Handle, None), is_pending: AtomicBool::new(false) })
    }

    /// Takes what was written, which a commit holds.
    fn written(&self) -> Result<MutexGuard<'_, Option<Vec<u8>>>, Failure> {
        self.written.lock_or_give_up().ok_or_else(Failure::would_wait)
    }

    fn set(&self, written: &mut Option<Vec<u8>>, value: Option<Vec<u8>>) {
        self.is_pending.store(value.is_some(), Ordering::Release);
        *written = value;
    }

    fn move_to(&self, value: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(value);
        let entry = text.trim().parse().map_err(|_| InputRefusal::NoNumber)?;
        self.context.check_writable()?;
        self.context.check_owner()?;
        Ok(self.context.memory().move_cursor(&self.context.actor(), self.context.branch(), entry)?)
    }
}

/// Bytes of the longest number.
const NUMBER_BYTES_MAX: usize = 32;

impl File for CursorFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        self.commit()?;
        Ok(slice_at(cursor_text(self.context.memory(), self.context.branch())?.as_bytes(), offset, size))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        let mut written = self.written()?;
        let mut value = written.clone().unwrap_or_default();
        value.truncate(usize::try_from(offset).unwrap_or(usize::MAX));
        value.extend_from_slice(data);
        if value.len() > NUMBER_BYTES_MAX
            || !value.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_whitespace())
        {
            return Err(InputRefusal::NoNumber.into());
        }
        // A whole line counts at once, so that `echo` hears of what is wrong.
        if !value.ends_with(b"\n") {
            self.set(&mut written, Some(value));
            return Ok(data.len());
        }
        let moved = self.move_to(&value);
        // The write is repeated on a thread that may wait, on top of what was written before it. A number that was refused
        // goes: its beginning is another number.
        if !moved.as_ref().is_err_and(Failure::is_would_wait) {
            self.set(&mut written, None);
        }
        moved.map(|()| data.len())
    }

    /// A number that failed stays until it counts, is written again or goes with the handle: only one that counted has no
    /// more to tell.
    fn commit(&self) -> Result<(), Failure> {
        let mut written = self.written()?;
        let Some(value) = &*written else { return Ok(()) };
        self.move_to(value)?;
        self.set(&mut written, None);
        Ok(())
    }

    fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }
}
