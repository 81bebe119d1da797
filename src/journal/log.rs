//! Appending and flushing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::JournalError;
use super::file_header::{FileHeader, Salt};
use super::frame::{self, FrameKind};
use crate::disk::{Disk, DiskFile};
use crate::sync::{Condvar, Mutex, MutexGuard, Rank};

/// From this length on a part of a frame is not copied to be written with the others.
const LONG_BYTES: usize = 16 << 10;

/// One journal file that is being appended to.
pub struct Journal {
    number: u64,
    path: String,
    file: Arc<dyn DiskFile>,
    header: FileHeader,
    tail: Mutex<UnflushedTail>,
    flush: Mutex<Flush>,
    flushed: Condvar,
    /// The file before this one, until it is on the device.
    previous: Mutex<Option<Arc<Journal>>>,
    /// Set once `append_error` or `flush_error` says why.
    has_failed: AtomicBool,
}

/// Guards the end of the file. Taken before [`Flush`] where both are needed.
struct UnflushedTail {
    length: u64,
    /// End of the last frame that is not a mark: what callers wait for to be durable.
    data_end: u64,
    append_error: Option<String>,
    /// Set while a frame is written: where a panic leaves it so, half of one may stand after the last.
    is_writing: bool,
    /// Set once the file takes no more marks, so that its flushed bytes are its last.
    is_finished: bool,
}

impl UnflushedTail {
    /// Returns why nothing may be written behind it, if so.
    fn failure(&self) -> Option<String> {
        let half = || self.is_writing.then(|| "a write ended in an internal error".to_owned());
        self.append_error.clone().or_else(half)
    }
}

/// Fails the journal when a panic unwinds through a write. Callers `mem::forget` it once the write has returned.
struct WriteGuard<'a>(&'a AtomicBool);

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Fails the journal and wakes the waiters when a panic unwinds through a flush. Callers `mem::forget` it once the flush
/// has returned.
struct FlushGuard<'a>(&'a Journal);

impl Drop for FlushGuard<'_> {
    fn drop(&mut self) {
        let mut flush = self.0.flush();
        flush.is_running = false;
        self.0.fail(&mut flush, "a flush ended in an internal error".to_owned());
        drop(flush);
        self.0.flushed.notify_all();
    }
}

/// Guards the group commit.
#[derive(Default)]
struct Flush {
    /// Everything below is on the device, and all files before this one if it is not 0.
    flushed_to: u64,
    /// The largest `flushed_to` that a frame in the file tells of.
    marked_to: u64,
    is_running: bool,
    /// Where a half-written frame was cut since the last flush began.
    cut_at: Option<u64>,
    flush_error: Option<String>,
}

impl Journal {
    /// Returns the path of the journal file with that number, as `journal/` and 16 hex digits.
    pub fn file_path(number: u64) -> String {
        format!("journal/{number:016x}")
    }

    /// Returns the number of the journal file with that name in the journal's folder, if it is one.
    pub fn parse_file_name(name: &str) -> Option<u64> {
        let number = u64::from_str_radix(name, 16).ok()?;
        Journal::file_path(number).strip_prefix("journal/").is_some_and(|exact| exact == name).then_some(number)
    }

    /// Makes the first file, empty and durable.
    ///
    /// For a new store: a file that has its name is taken for one that was never begun, and replaced. Fails with
    /// `JournalError::Io`; the file is removed again then.
    pub fn create(disk: &Arc<dyn Disk>, salt: &Salt) -> Result<Journal, JournalError> {
        Journal::create_numbered(disk, 1, salt)
    }

    /// Makes the file that follows another one, empty and durable, for [`Journal::begin`].
    ///
    /// Both files may be appended to until then; where it fails the new one is removed.
    pub fn create_after(disk: &Arc<dyn Disk>, before: &Arc<Journal>, salt: &Salt) -> Result<Journal, JournalError> {
        let mut next = Journal::create_numbered(disk, before.number + 1, salt)?;
        // What is before it may not be on the device yet; `flush_previous` raises this.
        next.flush.get_mut().flushed_to = 0;
        next.previous = Mutex::new(Some(before.clone()));
        Ok(next)
    }

    /// Takes the file away, which is not in use yet.
    pub fn remove(self, disk: &Arc<dyn Disk>) {
        // What is left of it must not stand in the way of the next try.
        if let Err(error) = disk.remove(&self.path).and_then(|()| disk.sync_dir("journal")) {
            log::warn!("the journal file {} is not in use and stays: {error}", self.path);
        }
    }

    fn create_numbered(disk: &Arc<dyn Disk>, number: u64, salt: &Salt) -> Result<Journal, JournalError> {
        let path = Journal::file_path(number);
        let (header, bytes) = FileHeader::create(number, salt);
        let make = || {
            let file = match disk.create(&path) {
                // A panic left this file before it was in use, so nothing in it counts.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    disk.remove(&path)?;
                    disk.create(&path)?
                }
                made => made?,
            };
            file.write_all_at(&bytes, 0)?;
            // The header is durable before the name is, and the name before the first frame: a file without a header
            // was never used.
            file.sync()?;
            disk.sync_dir("journal")?;
            Ok(file)
        };
        match make() {
            Ok(file) => Ok(Journal::resume(number, path, file.into(), header, bytes.len() as u64)),
            Err(source) => {
                // What was left must not stand in the way of the next try; it holds nothing.
                let _ = disk.remove(&path).and_then(|()| disk.sync_dir("journal"));
                Err(JournalError::Io { path, what: "made", source })
            }
        }
    }

    /// Continues a file whose first `length` bytes were replayed.
    pub(super) fn resume(
        number: u64,
        path: String,
        file: Arc<dyn DiskFile>,
        header: FileHeader,
        length: u64,
    ) -> Journal {
        Journal {
            number,
            path,
            file,
            header,
            tail: Mutex::with_rank(
                Rank::JournalTail,
                UnflushedTail { length, data_end: length, append_error: None, is_writing: false, is_finished: false },
            ),
            flush: Mutex::with_rank(Rank::JournalFlush, Flush { flushed_to: header.frames_start, ..Flush::default() }),
            flushed: Condvar::default(),
            previous: Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Returns the file's number; numbers only grow.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the length of the file: the position just after the last frame.
    pub fn length(&self) -> u64 {
        self.tail().length
    }

    /// Returns the file, for reading content in place.
    pub fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// Appends a frame of `parts` one after the other and returns the position just after it; 1 GiB at most.
    ///
    /// After an error nothing was appended: half a frame is cut, or passes for a torn tail.
    pub fn append(&self, kind: FrameKind, parts: &[&[u8]]) -> Result<u64, JournalError> {
        let mut tail = self.tail();
        self.write(&mut tail, kind, parts, &[])?;
        tail.data_end = tail.length;
        Ok(tail.length)
    }

    /// Appends a frame of content, with what vouches for it, and returns the position of the content in the file.
    ///
    /// The check of the frame covers `head` alone; whoever reads it compares `content` with `chunk_hashes`. Fails like
    /// [`Journal::append`].
    pub fn append_content(&self, head: &[u8], content: &[u8], chunk_hashes: &[u8]) -> Result<u64, JournalError> {
        let length = (head.len() as u32).to_le_bytes();
        let mut tail = self.tail();
        // Worked out with the lock held, since where the content lies is where the frame goes.
        let at = tail.length + (frame::FRAME_HEADER_BYTES + length.len() + head.len()) as u64;
        self.write(&mut tail, FrameKind::Content, &[&length, head], &[content, chunk_hashes])?;
        tail.data_end = tail.length;
        Ok(at)
    }

    /// Writes a frame: parts that its check covers, and the rest, which it does not.
    fn write(
        &self,
        tail: &mut UnflushedTail,
        kind: FrameKind,
        covered: &[&[u8]],
        rest: &[&[u8]],
    ) -> Result<(), JournalError> {
        // After a failed flush the kernel may have dropped bytes that a reader still sees, so nothing may follow them.
        if let Some(reason) = &self.flush().flush_error {
            return Err(JournalError::Poisoned { reason: reason.clone() });
        }
        if let Some(reason) = tail.failure() {
            return Err(JournalError::Poisoned { reason });
        }
        let bytes = |parts: &[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
        let payload = bytes(covered) + bytes(rest);
        if payload > frame::PAYLOAD_BYTES_MAX {
            return Err(self.io("appended to", std::io::Error::from_raw_os_error(libc::EFBIG)));
        }
        // Read before the frame is written: it may tell less than is flushed by then, never more.
        let flushed = self.flush().flushed_to;
        let header = self.header.checksum.encode_header(tail.length, kind, flushed, covered, bytes(rest));
        tail.is_writing = true;
        let writing = WriteGuard(&self.has_failed);
        let written = self.write_parts(&[&[&header[..]], covered, rest].concat(), tail.length);
        std::mem::forget(writing);
        tail.is_writing = false;
        if let Err(source) = written {
            // Some of the bytes may be there. Cut them, or the next frame would stand behind a
            // broken one.
            if let Err(error) = self.file.set_len(tail.length) {
                tail.append_error = Some(format!("a half-written frame could not be cut: {error}"));
                self.has_failed.store(true, Ordering::Release);
            } else {
                // Until the next flush the device may have the half-written frame.
                let mut flush = self.flush();
                flush.flushed_to = flush.flushed_to.min(tail.length - 1);
                flush.cut_at = Some(tail.length);
            }
            return Err(self.io("appended to", source));
        }
        tail.length += (header.len() + payload) as u64;
        let mut flush = self.flush();
        flush.marked_to = flush.marked_to.max(flushed);
        Ok(())
    }

    /// Writes all parts, the short ones together, and a long one from where it is.
    fn write_parts(&self, parts: &[&[u8]], mut at: u64) -> std::io::Result<()> {
        let mut together = Vec::new();
        for part in parts {
            if part.len() < LONG_BYTES {
                together.extend_from_slice(part);
                continue;
            }
            self.file.write_all_at(&together, at)?;
            self.file.write_all_at(part, at + together.len() as u64)?;
            at += (together.len() + part.len()) as u64;
            together.clear();
        }
        if together.is_empty() { Ok(()) } else { self.file.write_all_at(&together, at) }
    }

    /// Returns once everything below `end` is on the device; all who wait share one flush.
    ///
    /// After a failed flush every later append and sync fails: the kernel may have dropped the bytes and would report
    /// success the next time. Who flushed gets the disk's error then, and all others [`JournalError::Poisoned`].
    pub fn sync(&self, end: u64) -> Result<(), JournalError> {
        // No caller waits for a mark: each sync writes one behind the frames, which would be unflushed data to the next sync.
        let data_end = self.tail().data_end;
        if self.flush_up_to(end.min(data_end))? {
            self.mark();
        }
        Ok(())
    }

    /// Begins this file behind the one before it, to which nothing is appended any more. That one need not be flushed
    /// yet: a flush of this one flushes it first.
    ///
    /// Does nothing for the first file. Fails like [`Journal::append`].
    pub fn begin(&self) -> Result<(), JournalError> {
        let Some(before) = self.previous.lock().clone() else { return Ok(()) };
        // `stop_marks` has that file take no more marks: one behind the length that is told here would pass for damage.
        self.append(FrameKind::Begin, &[&before.stop_marks().to_le_bytes()]).map(drop)
    }

    /// Takes no more marks, and returns the length. Frames may still be appended if no file follows after all.
    fn stop_marks(&self) -> u64 {
        let mut tail = self.tail();
        tail.is_finished = true;
        tail.length
    }

    /// Makes the whole file durable, and takes no more marks.
    ///
    /// Fails like [`Journal::sync`].
    pub fn finish(&self) -> Result<(), JournalError> {
        let length = self.stop_marks();
        self.flush_up_to(length).map(|_| ())
    }

    /// Returns once the file before this one is on the device, and notes it in this one.
    ///
    /// If the flush of that one fails, this one takes no more writes either.
    pub fn flush_previous(&self) -> Result<(), JournalError> {
        let Some(before) = self.previous.lock().clone() else { return Ok(()) };
        if let Err(error) = before.finish() {
            self.fail(&mut self.flush(), format!("a flush of the file before it failed: {error}"));
            return Err(error);
        }
        {
            let mut flush = self.flush();
            flush.flushed_to = flush.flushed_to.max(self.header.frames_start);
        }
        *self.previous.lock() = None;
        self.mark();
        Ok(())
    }

    fn fail(&self, flush: &mut Flush, reason: String) {
        flush.flush_error = Some(reason);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Returns once everything below `end` is on the device, and whether this call flushed it.
    ///
    /// This is the group commit. The first caller to find no flush running becomes the leader and syncs for everybody;
    /// whoever comes meanwhile waits for `flushed`. The leader reads the length only after it became the leader, so its
    /// sync covers every frame that was appended until then. A waiter whose frame came later finds `flushed_to` still
    /// below its `end`, and one such waiter leads the next flush. Under load each sync thus carries all commits that
    /// arrived during the one before it, without a timer.
    fn flush_up_to(&self, end: u64) -> Result<bool, JournalError> {
        self.flush_previous()?;
        let mut flush = self.flush();
        loop {
            if let Some(reason) = &flush.flush_error {
                return Err(JournalError::Poisoned { reason: reason.clone() });
            }
            if flush.flushed_to >= end {
                return Ok(false);
            }
            if !flush.is_running {
                break;
            }
            flush = self.flushed.wait(flush);
        }
        (flush.is_running, flush.cut_at) = (true, None);
        // Appends go on during the sync. It also keeps the order of the locks: `length` takes the tail, which comes
        // before the flush.
        drop(flush);
        // A frame is written before the tail's length counts it, so the sync covers all bytes below `target`.
        let target = self.length();
        // If `sync` panics, the guard's drop fails the journal and wakes the waiters, who would otherwise wait for a
        // leader that is gone. After a return, an error too, the lines below do that; dropping the guard then would
        // fail a healthy journal.
        let flushing = FlushGuard(self);
        let result = self.file.sync();
        std::mem::forget(flushing);
        let mut flush = self.flush();
        flush.is_running = false;
        match result {
            // The device may have a frame that was cut meanwhile, until the next flush.
            Ok(()) => flush.flushed_to = flush.cut_at.map_or(target, |at| target.min(at - 1)),
            Err(ref error) => self.fail(&mut flush, format!("a flush failed: {error}")),
        }
        drop(flush);
        self.flushed.notify_all();
        result.map_err(|source| self.io("flushed", source))?;
        Ok(true)
    }

    /// Returns whether the journal takes no more writes, and takes no lock.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Returns why the journal takes no more writes, if it does not.
    pub fn failure(&self) -> Option<String> {
        // One guard at a time: writers take them in the other order.
        let failed = self.flush().flush_error.clone();
        failed.or_else(|| self.tail().failure())
    }

    /// Notes in the file how far it was flushed, so that damage below is never taken for a torn
    /// tail. A mark that can't be written loses no data: the next frame carries it.
    fn mark(&self) {
        let mut tail = self.tail();
        let (up_to, marked) = {
            let flush = self.flush();
            (flush.flushed_to, flush.marked_to)
        };
        // Where a frame has come since, the next one tells how far the file was flushed.
        if up_to > marked && tail.length == up_to && !tail.is_finished {
            let _ = self.write(&mut tail, FrameKind::Mark, &[], &[]);
        }
    }

    fn io(&self, what: &'static str, source: std::io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), what, source }
    }

    fn tail(&self) -> MutexGuard<'_, UnflushedTail> {
        self.tail.lock()
    }

    fn flush(&self) -> MutexGuard<'_, Flush> {
        self.flush.lock()
    }
}
