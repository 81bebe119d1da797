//! A record opened for writing: bytes gather here until they are a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::counted_buffer::CountedBuffer;
use super::errno::{Errno, Failure};
use super::handle::{File, slice_at};
use super::mount_context::OpenContext;
use super::open_flags::OpenFlags;
use super::refusal::InputRefusal;
use crate::memory::{CommitOptions, DOCUMENT_BYTES_MAX, RecordEdit, RecordError, RecordPatch, View};
use crate::sync::{Mutex, MutexGuard, Rank, Reservation};

/// The bytes of one handle. They begin as the document at open, and no other handle sees them
/// before a commit.
pub(super) struct RecordFile {
    context: OpenContext,
    /// The id at the open, which the document may name.
    id: Arc<str>,
    /// The id that the record has now; `None` once it was removed, as it takes no commit any more. Not locked during a
    /// commit, for which nobody who renames must wait.
    present_id: Mutex<Option<Arc<str>>>,
    append: bool,
    buffer: Mutex<Buffer>,
    /// As in the buffer, for those who must not wait for a commit.
    is_pending: AtomicBool,
    length: AtomicU64,
}

struct Buffer {
    bytes: CountedBuffer,
    /// Whether something is left of the document that was there at the open.
    has_old_bytes: bool,
    /// Whether something may be left of what the handle committed.
    has_committed_bytes: bool,
    /// Up to here the handle has written everything itself since its last commit, from 0 on.
    own_end: usize,
    /// How long the beginning was when it was last looked at.
    probed_end: usize,
    is_pending: bool,
    /// Whether there must be no such record at the commit: it was opened with O_EXCL, and nothing was committed yet.
    must_be_new: bool,
    /// What the bytes say, once they are a complete record that was checked.
    checked: Option<Checked>,
    /// Why the rest of the document was refused, if that cut it: nothing is taken and nothing committed until ftruncate(2)
    /// to 0 begins it anew. The refusal itself is in `errors` already.
    cut: Option<Errno>,
}

/// A record that waits for its commit, counted like the bytes it was parsed from.
struct Checked {
    record: RecordPatch,
    _reservation: Reservation,
}

impl RecordFile {
    /// Opens a record with the document that it is now, which may be none yet; the document counts for the caller.
    /// EROFS if nothing can be changed, EDQUOT or ENOSPC if the document is more than the caller may hold.
    pub fn open(context: OpenContext, id: &Arc<str>, flags: OpenFlags) -> Result<RecordFile, Failure> {
        context.check_writable()?;
        let record = context.memory().snapshot(&context.view)?.get(id)?;
        let bytes = record.map(|record| record.to_document()).unwrap_or_default();
        let (is_pending, length) = (AtomicBool::new(false), AtomicU64::new(bytes.len() as u64));
        let buffer = Buffer { must_be_new: flags.exclusive, ..Buffer::new(context.count_buffer(bytes)?) };
        let buffer = Mutex::with_rank(Rank::Handle, buffer);
        let present_id = Mutex::new(Some(id.clone()));
        Ok(RecordFile { context, id: id.clone(), present_id, append: flags.append, buffer, is_pending, length })
    }

    fn present_id(&self) -> Option<Arc<str>> {
        self.present_id.lock().clone()
    }

    /// Fails if what was written can't become a record any more, whatever follows.
    fn probe(&self, buffer: &mut Buffer, start: usize, end: usize) -> Result<(), Failure> {
        let Some(beginning) = buffer.next_probe(start, end) else {
            return Ok(());
        };
        if let Some(record) = RecordPatch::parse_beginning(&self.id, &buffer.bytes[..beginning])? {
            if let Some(id) = self.present_id() {
                self.context.memory().check_correction(self.context.branch(), &id, &record)?;
            }
            buffer.set_checked(record, beginning);
        }
        Ok(())
    }

    /// Takes `data` at `start`, or leaves the bytes as they were and says why not.
    fn take(&self, buffer: &mut Buffer, start: u64, data: &[u8]) -> Result<(), Failure> {
        check_length(start.saturating_add(data.len() as u64))?;
        let start = usize::try_from(start).map_err(|_| Errno::EFBIG)?;
        let own = buffer.own_end;
        // Put first and undone on refusal, as the probe looks at the document as it would be.
        let undo = buffer.put(start, data)?;
        let hole = start > undo.0;
        if !hole && let Err(failure) = self.probe(buffer, start, start + data.len()) {
            buffer.own_end = own;
            buffer.undo(start, undo);
            return Err(failure);
        }
        Ok(())
    }

    fn set_pending(&self, buffer: &mut Buffer, pending: bool) {
        buffer.is_pending = pending;
        self.length.store(buffer.bytes.len() as u64, Ordering::Release);
        self.is_pending.store(pending, Ordering::Release);
    }

    /// Takes the buffer, which a commit holds.
    fn buffer(&self) -> Result<MutexGuard<'_, Buffer>, Failure> {
        self.buffer.lock_or_give_up().ok_or_else(Failure::would_wait)
    }
}

impl Buffer {
    fn new(bytes: CountedBuffer) -> Buffer {
        let has_old_bytes = !bytes.is_empty();
        Buffer {
            bytes,
            has_old_bytes,
            has_committed_bytes: false,
            own_end: 0,
            probed_end: 0,
            is_pending: false,
            must_be_new: false,
            checked: None,
            cut: None,
        }
    }

    /// Keeps what the bytes up to `end` say for the commit, if these are all and the user's share has room for it.
    fn set_checked(&mut self, record: RecordPatch, end: usize) {
        if end == self.bytes.len() {
            let reservation = self.bytes.reserve_more(record.bytes() as u64).ok();
            self.checked = reservation.map(|reservation| Checked { record, _reservation: reservation });
        }
    }

    /// Returns what all the bytes say, if anything.
    fn record(&mut self, id: &str) -> Result<Option<RecordPatch>, Failure> {
        // The rest of the old document would become part of the new text.
        if self.has_old_bytes && self.own_end < self.bytes.len() && RecordPatch::is_text(&self.bytes) {
            return Err(InputRefusal::TextInDocument.into());
        }
        match self.checked.take() {
            Some(checked) => Ok(Some(checked.record)),
            None => Ok(RecordPatch::parse(id, &self.bytes)?),
        }
    }

    /// Makes it so long; what is added is zeros. The next commit parses all of it again.
    fn set_length(&mut self, length: usize) -> Result<(), Failure> {
        self.bytes.resize(length)?;
        self.bytes.truncate(length);
        self.has_old_bytes = self.has_old_bytes && length > 0;
        self.has_committed_bytes = self.has_committed_bytes && length > 0;
        self.mark_changed_from(length);
        Ok(())
    }

    /// Returns whether what was taken so far must not count alone, now that a write was refused. The kernel makes
    /// several requests of one long write(2), so that its writer may have seen a short write and no refusal. A document
    /// that breaks off is told by its form, and a text is not.
    fn is_cut_by(&self, failure: &Failure) -> bool {
        let is_mixed = (self.has_old_bytes || self.has_committed_bytes) && self.own_end < self.bytes.len();
        let may_pass = is_mixed || RecordPatch::is_text(&self.bytes);
        self.is_pending && !failure.is_would_wait() && may_pass || failure.errno() == Errno::EFBIG
    }

    /// Takes all that is there for as old as what was there at the open.
    fn mark_committed(&mut self) {
        self.has_old_bytes = self.has_old_bytes && self.own_end < self.bytes.len();
        self.has_committed_bytes = true;
        self.own_end = 0;
    }

    fn mark_changed_from(&mut self, start: usize) {
        self.own_end = self.own_end.min(start);
        self.probed_end = self.probed_end.min(start);
        self.checked = None;
    }

    /// Returns how much of the beginning is to be looked at after a write of `start..end`.
    ///
    /// What lies behind a write from 0 on may yet be cut off by ftruncate(2), so only what was
    /// written counts. A write elsewhere than there or at the end may be one of several, which are
    /// right together.
    fn next_probe(&mut self, start: usize, end: usize) -> Option<usize> {
        let own = start <= self.own_end;
        if own {
            self.own_end = self.own_end.max(end);
        }
        if !own && end < self.bytes.len() {
            return None;
        }
        // A long document comes in many writes. Looking at each doubling, and where it may be
        // complete, keeps the cost linear.
        let complete = self.bytes[..end].trim_ascii_end().ends_with(b"}");
        if !complete && end < 2 * self.probed_end {
            return None;
        }
        self.probed_end = end;
        Some(end)
    }

    /// Puts `data` at `start`, and returns what undoes it: the length before and the bytes that
    /// were overwritten.
    fn put(&mut self, start: usize, data: &[u8]) -> Result<(usize, Vec<u8>), Failure> {
        let (before, end) = (self.bytes.len(), start + data.len());
        let overwritten = self.bytes.get(start..end.min(before)).unwrap_or_default().to_vec();
        self.bytes.resize(before.max(end))?;
        self.bytes[start..end].copy_from_slice(data);
        self.checked = None;
        Ok((before, overwritten))
    }

    fn undo(&mut self, start: usize, (before, overwritten): (usize, Vec<u8>)) {
        self.bytes.truncate(before);
        if let Some(place) = self.bytes.get_mut(start..start + overwritten.len()) {
            place.copy_from_slice(&overwritten);
        }
        self.mark_changed_from(start);
    }
}

impl OpenContext {
    /// Commits one edit. EEXIST if there is a record `absent` at that moment, and as `Memory::commit`.
    pub fn commit_record(&self, edit: RecordEdit, absent: Option<&Arc<str>>) -> Result<(), Failure> {
        debug_assert!(matches!(self.view, View::Branch(_)), "a checkpoint takes no commit");
        let options = CommitOptions { absent: absent.cloned(), ..CommitOptions::default() };
        self.memory().commit_with(&self.actor(), self.branch(), vec![edit], &options)?;
        Ok(())
    }
}

impl File for RecordFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        Ok(slice_at(&self.buffer()?.bytes, offset, size))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        self.context.check_writable()?;
        let mut buffer = self.buffer()?;
        // Who begins anew at 0 has seen the refusal: the rest of a long write never begins there.
        if let Some(errno) = buffer.cut.filter(|_| self.append || offset > 0) {
            return Err(errno.into());
        }
        buffer.cut = None;
        if self.append && buffer.has_old_bytes {
            return Err(InputRefusal::Append.into());
        }
        let start = if self.append { buffer.bytes.len() as u64 } else { offset };
        if let Err(refused) = self.take(&mut buffer, start, data) {
            if buffer.is_cut_by(&refused) {
                // What was written so far is dropped: the beginning of a document is not a document.
                buffer.set_length(0)?;
                buffer.cut = Some(refused.errno());
                self.set_pending(&mut buffer, false);
            }
            return Err(refused);
        }
        self.set_pending(&mut buffer, true);
        Ok(data.len())
    }

    /// Emptying alone writes nothing: `>` of a shell and the editors' O_TRUNC come before the
    /// content does.
    fn truncate(&self, length: u64) -> Result<(), Failure> {
        check_length(length)?;
        let mut buffer = self.buffer()?;
        if let Some(errno) = buffer.cut.filter(|_| length > 0) {
            return Err(errno.into());
        }
        buffer.cut = None;
        let length = usize::try_from(length).map_err(|_| Errno::EFBIG)?;
        let pending = length > 0 && (buffer.is_pending || length != buffer.bytes.len());
        buffer.set_length(length)?;
        self.set_pending(&mut buffer, pending);
        Ok(())
    }

    fn commit(&self) -> Result<(), Failure> {
        let mut buffer = self.buffer()?;
        if let Some(errno) = buffer.cut {
            return Err(errno.into());
        }
        if !buffer.is_pending {
            return Ok(());
        }
        let Some(id) = self.present_id() else {
            // As what is written to a file without a name goes with its last handle.
            self.set_pending(&mut buffer, false);
            return Ok(());
        };
        self.context.check_writable()?;
        if let Some(patch) = buffer.record(&self.id)? {
            let edit = RecordEdit::Correct { id: id.clone(), patch, line: 0 };
            self.context.commit_record(edit, buffer.must_be_new.then_some(&id))?;
            buffer.must_be_new = false;
            buffer.mark_committed();
        }
        // Only once the commit is done: after a failure the next fsync(2) or close(2) tries it again, and says so.
        self.set_pending(&mut buffer, false);
        Ok(())
    }

    fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire) && self.present_id.lock().is_some()
    }

    fn follow_record(&self, from: &str, to: Option<&Arc<str>>) {
        let mut id = self.present_id.lock();
        if id.as_deref() == Some(from) {
            *id = to.cloned();
        }
    }

    fn length(&self) -> Option<u64> {
        Some(self.length.load(Ordering::Acquire))
    }
}

fn check_length(length: u64) -> Result<(), Failure> {
    if length <= DOCUMENT_BYTES_MAX as u64 {
        return Ok(());
    }
    Err(RecordError::TooLarge(usize::try_from(length).unwrap_or(usize::MAX)).into())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn buffer(bytes: &[u8]) -> Buffer {
        Buffer::new(CountedBuffer::from_bytes(&Arc::default(), 7, bytes.to_vec()).unwrap_or_else(|_| panic!()))
    }

    #[test]
    fn an_undone_write_leaves_no_trace() {
        let mut buffer = buffer(b"hello");
        let undo = buffer.put(3, b"PPED").unwrap();
        assert_eq!(&*buffer.bytes, b"helPPED");
        buffer.undo(3, undo);
        assert_eq!(&*buffer.bytes, b"hello");
        let undo = buffer.put(9, b"x").unwrap();
        buffer.undo(9, undo);
        assert_eq!(&*buffer.bytes, b"hello");
    }

    #[test]
    fn text_is_taken_where_it_is_all_that_is_left() {
        let mut over = buffer(br#"{"text":"old"}"#);
        over.put(0, b"new").unwrap();
        over.next_probe(0, 3);
        assert_eq!(over.record("a").unwrap_err().errno(), Errno::EINVAL);
        over.set_length(3).unwrap();
        assert_eq!(over.record("a").unwrap().unwrap().text.unwrap().as_deref(), Some("new"));
        over.set_length(0).unwrap();
        assert!(!over.has_old_bytes && over.record("a").unwrap().is_none());
    }

    #[test]
    fn what_is_left_of_the_old_document_is_not_looked_at() {
        let mut buffer = buffer(b"{old document}");
        buffer.put(0, b"{new}").unwrap();
        assert_eq!(buffer.next_probe(0, 5), Some(5));
    }

    #[test]
    fn a_checked_record_is_forgotten_with_any_change_of_its_bytes() {
        let text = |buffer: &mut Buffer| buffer.record("a").unwrap().unwrap().text.unwrap().unwrap();
        let checked = || {
            let mut buffer = buffer(br#"{"text":"old"}"#);
            let record = RecordPatch::parse("a", br#"{"text":"checked"}"#).unwrap().unwrap();
            buffer.set_checked(record, buffer.bytes.len());
            buffer
        };
        assert_eq!(&*text(&mut checked()), "checked");
        let mut patched = checked();
        patched.put(9, b"new").unwrap();
        assert_eq!(&*text(&mut patched), "new");
        let mut undone = checked();
        let undo = undone.put(9, b"new").unwrap();
        undone.undo(9, undo);
        assert_eq!(&*text(&mut undone), "old");
        let mut cut = checked();
        cut.set_length(14).unwrap();
        assert_eq!(&*text(&mut cut), "old");
        let mut longer = buffer(br#"{"text":"old"}  "#);
        longer.set_checked(RecordPatch::parse("a", br#"{"text":"beginning"}"#).unwrap().unwrap(), 14);
        assert_eq!(&*text(&mut longer), "old");
    }

    #[test]
    fn a_patch_in_the_middle_waits_for_the_commit() {
        let mut buffer = buffer(b"{old document}");
        assert_eq!(buffer.next_probe(5, 8), None);
        assert_eq!(buffer.next_probe(10, 14), Some(14));
    }

    #[test]
    fn a_long_document_is_looked_at_as_it_doubles() {
        let mut buffer = buffer(&[b'1'; 1000]);
        let looked: Vec<usize> =
            (0..10).filter_map(|chunk| buffer.next_probe(chunk * 100, chunk * 100 + 100)).collect();
        assert_eq!(looked, [100, 200, 400, 800]);
    }
}
