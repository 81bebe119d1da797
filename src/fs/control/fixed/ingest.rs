//! `ingest`: records in bulk. What one commit takes is one batch, and counts as a whole or not at
//! all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fs::answer_offset::AnswerOffset;
use crate::fs::counted_buffer::CountedBuffer;
use crate::fs::errno::{Errno, Failure};
use crate::fs::handle::{File, slice_at};
use crate::fs::last_answers::AnsweringFile;
use crate::fs::mount_context::OpenContext;
use crate::fs::refusal::{InputRefusal, Refusal};
use crate::memory::{self, CommitOptions, EXPORTED_LINE_BYTES_MAX, Error, RecordEdit, RecordError, RecordPatch};
use crate::sync::{Mutex, Rank};

const BATCH_BYTES_MAX: usize = 1 << 30;

/// One handle on `ingest`: what is written until a close, fsync or read is one batch.
pub(super) struct Ingest {
    context: OpenContext,
    batch: Mutex<PendingLines>,
    /// As in the batch, for those who must not wait for a commit.
    is_pending: AtomicBool,
}

struct PendingLines {
    answer_offset: AnswerOffset,
    edits: memory::IngestBatch,
    /// The entry of the shared log up to which the branch has read with this batch.
    cursor: Option<u64>,
    /// Whether records are left alone whose content is already so.
    skip_unchanged: bool,
    /// Complete lines so far.
    line_count: usize,
    byte_count: usize,
    /// The beginning of a line.
    tail: CountedBuffer,
    refusal: LineRefusal,
    /// Why the line under way was refused, while its end is still to come.
    line_failure: Option<Failure>,
    /// The result of the last commit of this handle.
    result: Option<Vec<u8>>,
}

/// What became of a batch that did not count.
#[derive(Default)]
enum LineRefusal {
    #[default]
    None,
    /// A bad line came. The rest of the batch is refused with it.
    Poisoned(Failure),
    /// The commit failed. It keeps failing until something new is written, so that a second
    /// fsync(2) does not claim that all is well.
    Failed(Failure),
}

impl Ingest {
    /// Begins a batch of no lines; whether the caller may write there was checked.
    pub fn new(context: OpenContext) -> Ingest {
        let batch = Mutex::with_rank(Rank::Handle, PendingLines::new(&context));
        Ingest { context, batch, is_pending: AtomicBool::new(false) }
    }

    fn add_line(&self, batch: &mut PendingLines, line: &[u8]) -> Result<(), Failure> {
        // Before the line is counted: an import writes it in front of the lines whose numbers its user knows.
        let is_first = batch.line_count == 0 && !batch.skip_unchanged;
        if is_first && let Some(skip_unchanged) = memory::parse_skip_line(line) {
            batch.skip_unchanged = skip_unchanged;
            return Ok(());
        }
        batch.line_count += 1;
        let memory = self.context.memory();
        if let Some(entry) = memory::parse_cursor_line(line) {
            batch.cursor = Some(entry);
            return Ok(());
        }
        let Some(edit) = RecordEdit::parse_line(line, batch.line_count, &|| memory.fresh_id())? else { return Ok(()) };
        if let RecordEdit::Correct { id, patch, .. } = &edit {
            let branch = self.context.branch();
            // What a later line leaves of a record may depend on those before it.
            let is_first = batch.edits.is_empty();
            let checked = if is_first {
                memory.check_correction(branch, id, patch)
            } else {
                memory.check_patch_vector(branch, patch)
            };
            checked.map_err(|error| at_line(batch.line_count, error))?;
        }
        batch.edits.push(edit).map_err(|error| at_line(batch.line_count, error))
    }

    fn add_lines(&self, batch: &mut PendingLines, data: &[u8]) -> Result<(), Failure> {
        // Counted before the lines are parsed: what one commit takes has a bound, however short its lines are.
        batch.byte_count = add_bytes(batch.byte_count, data.len())?;
        let mut rest = data;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let mut line = batch.tail.take();
            line.extend_from_slice(&rest[..end]);
            self.add_line(batch, &line)?;
            rest = &rest[end + 1..];
        }
        let length = batch.tail.len() + rest.len();
        if length > EXPORTED_LINE_BYTES_MAX {
            return Err(RecordError::TooLarge(length).at_line(batch.line_count + 1).into());
        }
        batch.tail.extend(rest)
    }

    /// Commits the batch; a last line without its end counts when it is complete.
    fn commit_batch(&self, batch: &mut PendingLines) -> Result<(), Failure> {
        if let LineRefusal::Poisoned(failure) | LineRefusal::Failed(failure) = &batch.refusal {
            let failure = failure.clone();
            batch.refusal = LineRefusal::Failed(failure.clone());
            return Err(failure);
        }
        self.context.check_writable()?;
        if is_incomplete(&batch.tail) {
            return Err(InputRefusal::Incomplete(batch.line_count + 1).into());
        }
        let committed = self.commit_lines(batch);
        // The batch is gone either way. After a failure it would else be committed again with what is written next.
        batch.begin(&self.context);
        if let Err(failure) = &committed {
            batch.refusal = LineRefusal::Failed(failure.clone());
        }
        committed
    }

    fn commit_lines(&self, batch: &mut PendingLines) -> Result<(), Failure> {
        let tail = batch.tail.take();
        self.add_line(batch, &tail)?;
        let (cursor, skip_unchanged) = (batch.cursor.take(), batch.skip_unchanged);
        if batch.edits.is_empty() && cursor.is_none() {
            return Ok(());
        }
        let uid = self.context.caller.uid;
        let edits = std::mem::replace(&mut batch.edits, self.context.memory().batch(uid));
        // The reservation is held until the commit is done, as the edits are in memory for so long.
        let (edits, _held) = edits.into_edits()?;
        let (memory, actor, branch) = (self.context.memory(), self.context.actor(), self.context.branch());
        let options = CommitOptions { skip_unchanged, cursor, absent: None };
        let receipt = memory.commit_with(&actor, branch, edits, &options)?;
        let result = (receipt.to_json() + "\n").into_bytes();
        // The commit is done, whether or not its result is kept for others.
        if let Ok(answer) = self.context.count_buffer(result.clone()) {
            self.context.mount.answers.insert(
                &self.context.view,
                AnsweringFile::Ingest,
                uid,
                &Arc::new(Mutex::new(answer)),
            );
        }
        batch.result = Some(result);
        Ok(())
    }

    fn note_pending(&self, batch: &PendingLines) {
        self.is_pending.store(batch.is_pending(), Ordering::Release);
    }
}

impl PendingLines {
    fn new(context: &OpenContext) -> PendingLines {
        PendingLines {
            answer_offset: AnswerOffset::default(),
            edits: context.memory().batch(context.caller.uid),
            cursor: None,
            skip_unchanged: false,
            line_count: 0,
            byte_count: 0,
            tail: context.buffer(),
            refusal: LineRefusal::None,
            line_failure: None,
            result: None,
        }
    }

    fn begin(&mut self, context: &OpenContext) {
        let (answer_offset, result, line_failure) =
            (std::mem::take(&mut self.answer_offset), self.result.take(), self.line_failure.take());
        *self = PendingLines { answer_offset, result, line_failure, ..PendingLines::new(context) };
    }

    /// Refuses data, and what was written with it.
    fn poison(&mut self, context: &OpenContext, failure: Failure, data: &[u8]) {
        self.begin(context);
        // A line that is too long is refused before its end.
        let is_cut = failure.errno() == Errno::EFBIG && !data.contains(&b'\n');
        self.line_failure = is_cut.then(|| failure.clone());
        self.refusal = LineRefusal::Poisoned(failure);
    }

    fn is_pending(&self) -> bool {
        !self.edits.is_empty() || !self.tail.is_empty() || self.cursor.is_some()
    }

    fn is_refused(&self) -> bool {
        !matches!(self.refusal, LineRefusal::None)
    }
}

impl File for Ingest {
    fn takes_long(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        self.commit()?;
        let mut batch = self.batch.lock();
        let start = batch.answer_offset.position(offset);
        if batch.result.is_none() {
            batch.result = Some(self.context.mount.answers.get(
                &self.context.view,
                AnsweringFile::Ingest,
                self.context.caller.uid,
            )?);
        }
        Ok(slice_at(batch.result.as_deref().unwrap_or_default(), start, size))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        self.context.check_writable()?;
        let mut batch = self.batch.lock();
        if let LineRefusal::Poisoned(failure) = &batch.refusal {
            let failure = failure.clone();
            // The line may end in what is refused with it.
            batch.line_failure.take_if(|_| data.contains(&b'\n'));
            return Err(failure);
        }
        let cut = batch.line_failure.take();
        batch.refusal = LineRefusal::None;
        let taken = cut.map_or_else(|| self.add_lines(&mut batch, data), Err);
        if let Err(failure) = taken {
            batch.poison(&self.context, failure.clone(), data);
            self.note_pending(&batch);
            return Err(failure);
        }
        batch.answer_offset.note_write(offset + data.len() as u64);
        self.note_pending(&batch);
        Ok(data.len())
    }

    fn commit(&self) -> Result<(), Failure> {
        let mut batch = self.batch.lock();
        if !batch.is_pending() && !batch.is_refused() {
            return Ok(());
        }
        let committed = self.commit_batch(&mut batch);
        self.note_pending(&batch);
        committed
    }

    fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }
}

/// Returns how many bytes a batch has with `more`, EFBIG beyond the limit of a batch.
fn add_bytes(before: usize, more: usize) -> Result<usize, Failure> {
    match before.saturating_add(more) {
        bytes if bytes > BATCH_BYTES_MAX => Err(InputRefusal::BatchTooLarge.into()),
        bytes => Ok(bytes),
    }
}

/// Returns whether a line breaks off: more bytes could make it right, and without them it is wrong.
fn is_incomplete(line: &[u8]) -> bool {
    if RecordPatch::is_text(line) {
        return false;
    }
    let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(line);
    !line.trim_ascii().is_empty() && parsed.is_err_and(|error| error.is_eof())
}

fn at_line(number: usize, error: Error) -> Failure {
    match error {
        Error::Record(error) => error.at_line(number).into(),
        source => Refusal::Line { number, source }.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{add_bytes, is_incomplete};
    use crate::fs::errno::Errno;

    #[test]
    fn a_batch_takes_1_gib_and_no_more() {
        assert_eq!(add_bytes((1 << 30) - 5, 5).ok(), Some(1 << 30));
        assert_eq!(add_bytes((1 << 30) - 5, 6).err().map(|failure| failure.errno()), Some(Errno::EFBIG));
    }

    #[test]
    fn a_line_that_breaks_off_is_told_from_a_bad_one() {
        assert!(is_incomplete(b"{\"id\":\"a\","));
        assert!(!is_incomplete(b"{\"id\":\"a\"}"));
        assert!(!is_incomplete(b"{\"id\":\"a\"}}"));
        assert!(!is_incomplete(b"nonsense"));
        assert!(!is_incomplete(b" \n"));
    }
}
