//! The writer lock: its holder is the only writer. What others ask about the end of the log is published when it is
//! released, so that they need not wait for it.

use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;

use super::transact::LogTail;
use crate::journal::Journal;
use crate::memory::{Error, Memory};
use crate::object::{Hash, Time};
use crate::sync::{Mutex, MutexGuard, Rank, may_wait};

/// How often a thread that must not block tries the lock before it gives up: about as long as a small commit takes.
const LOCK_ATTEMPTS_MAX: usize = 64;
/// Spin-loop hints between two attempts to take the lock.
const SPINS_PER_ATTEMPT: usize = 32;

/// Why nothing is taken after a panic in the middle of a change.
const PANICKED: &str = "a change ended in an internal error, so memory and journal may differ";

/// The end of the log, and figures of it that are read without the lock.
pub(in crate::memory) struct WriterLock {
    log_tail: Mutex<LogTail>,
    published: Published,
}

/// Figures that can be read without the lock, as of its last release.
///
/// It is stored by [`WriterGuard`]'s drop while the lock is still held. So there is one publisher at a time, and no value
/// ever goes back to one of an earlier release. Readers may see a mixture of two releases, and none of them minds: whoever
/// needs values that belong together, or acts on them, takes the lock. On the orderings:
///
/// - `seq` is stored with Release and read with Acquire, since readers go on to look at what belongs to that entry. The
///   catalog was swapped and the history extended before the store, so who has read n finds both at n or later: they may be
///   newer than `seq`, never older.
/// - `time`, `unsealed_bytes` and `written_bytes` are figures that nothing else depends on (a wake-up of the
///   maintenance thread, an estimate of room, a line of `status`), so Relaxed suffices. Each reader sees them grow or
///   fall in the order in which they were stored.
/// - `closed` spares callers a try that must fail. It is set once and never cleared, and a write asks
///   [`LogTail::refusal`] under the lock whatever it says. It is stored after the figures, with Release, so that who
///   sees it set sees those of the same release.
/// - `tip` and `journal` are wider than an atomic, and have a mutex each that is held for a copy.
struct Published {
    seq: AtomicU64,
    time: AtomicI64,
    tip: Mutex<Hash>,
    journal: Mutex<Option<Arc<Journal>>>,
    unsealed_bytes: AtomicU64,
    written_bytes: AtomicU64,
    closed: AtomicBool,
}

/// The right to write. Dropping it publishes the figures that are read without it.
pub(in crate::memory) struct WriterGuard<'a> {
    log_tail: MutexGuard<'a, LogTail>,
    published: &'a Published,
}

impl WriterLock {
    /// Takes the end of the log, and publishes of it what is read without the lock.
    pub fn new(log_tail: LogTail) -> WriterLock {
        let published = Published {
            seq: AtomicU64::new(log_tail.seq),
            time: AtomicI64::new(log_tail.time.0),
            tip: Mutex::new(log_tail.tip),
            journal: Mutex::new(log_tail.journal.clone()),
            unsealed_bytes: AtomicU64::new(log_tail.unsealed_bytes),
            written_bytes: AtomicU64::new(log_tail.written_bytes),
            closed: AtomicBool::new(false),
        };
        WriterLock { log_tail: Mutex::with_rank(Rank::Writer, log_tail), published }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, LogTail>> {
        // It spins for about as long as a small commit takes, which is cheaper than having the request repeated on
        // another thread.
        for _ in 0..LOCK_ATTEMPTS_MAX {
            if let Some(log_tail) = self.log_tail.try_lock() {
                return Some(log_tail);
            }
            (0..SPINS_PER_ATTEMPT).for_each(|_| spin_loop());
        }
        None
    }
}

impl Deref for WriterGuard<'_> {
    type Target = LogTail;

    fn deref(&self) -> &LogTail {
        &self.log_tail
    }
}

impl DerefMut for WriterGuard<'_> {
    fn deref_mut(&mut self) -> &mut LogTail {
        &mut self.log_tail
    }
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        // A change may be half done: in the journal and not in memory, or vice versa. Such a store must not be written to.
        if thread::panicking() {
            self.log_tail.close_reason.get_or_insert(PANICKED);
        }
        let (log_tail, published) = (&*self.log_tail, self.published);
        *published.tip.lock() = log_tail.tip;
        published.seq.store(log_tail.seq, Ordering::Release);
        published.time.store(log_tail.time.0, Ordering::Relaxed);
        published.unsealed_bytes.store(log_tail.unsealed_bytes, Ordering::Relaxed);
        published.written_bytes.store(log_tail.written_bytes, Ordering::Relaxed);
        published.closed.store(log_tail.close_reason.is_some(), Ordering::Release);
        // Copied only where a seal has put another file there, so that most releases leave the count of references
        // alone.
        let mut journal = published.journal.lock();
        if journal.as_ref().map(Arc::as_ptr) != log_tail.journal.as_ref().map(Arc::as_ptr) {
            journal.clone_from(&log_tail.journal);
        }
    }
}

impl Memory {
    /// Returns the right to write. On a thread that must not wait, kind `WouldWait` if somebody else has it.
    pub(in crate::memory) fn writer(&self) -> Result<WriterGuard<'_>, Error> {
        let lock = &self.writer;
        let log_tail = match may_wait() {
            true => lock.log_tail.lock(),
            false => lock.try_lock().ok_or(Error::WouldWait)?,
        };
        Ok(WriterGuard { log_tail, published: &lock.published })
    }

    /// Returns whether nothing can be written: the store was opened for reading, is closed, or its journal has failed.
    pub fn is_read_only(&self) -> bool {
        let published = &self.writer.published;
        self.read_only
            || published.closed.load(Ordering::Acquire)
            || published.journal.lock().as_ref().is_none_or(|journal| journal.has_failed())
    }

    /// Returns the number of the last entry, from 1. Operations on files raise it once an entry commits them.
    pub fn last_seq(&self) -> u64 {
        self.writer.published.seq.load(Ordering::Acquire)
    }

    /// Returns the time of the last entry or operation on files, as of the last release of the writer lock.
    pub(in crate::memory) fn last_time(&self) -> Time {
        Time(self.writer.published.time.load(Ordering::Relaxed))
    }

    /// Returns the hash of the last entry, as [`Memory::last_seq`] counts them.
    pub fn tip(&self) -> Hash {
        *self.writer.published.tip.lock()
    }

    /// Returns the journal file that is written to; none in a store that was opened for reading.
    pub(in crate::memory) fn journal(&self) -> Option<Arc<Journal>> {
        self.writer.published.journal.lock().clone()
    }

    /// Returns how many bytes of log records wait for a seal, as of the last release of the writer lock.
    pub(in crate::memory) fn unsealed_bytes(&self) -> u64 {
        self.writer.published.unsealed_bytes.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of long writes wait in the journal for a seal, as of the last release of the writer lock.
    pub(in crate::memory) fn written_bytes(&self) -> u64 {
        self.writer.published.written_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, FILES_ROOT, FileName, FileOp, NewInode, OpenMode, View};

    #[test]
    fn nothing_can_be_written_once_a_change_may_be_half_done() {
        let owner = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(owner)).unwrap();
        assert!(!memory.is_read_only());
        memory.writer().unwrap().close_reason = Some(PANICKED);
        assert!(memory.is_read_only());
    }

    #[test]
    fn entries_of_files_count_what_was_worked_out_before_and_what_came_since() {
        let owner = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment::real(owner.clone());
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let before = memory.files(&View::Branch(main)).unwrap();
        let make = |name: &[u8]| {
            let (name, make) = (FileName::new(name).unwrap(), NewInode::File);
            let op = FileOp::Create { parent: FILES_ROOT, name, make, mode: 0o644, uid: 0, gid: 0 };
            memory.edit(&owner, main, op).unwrap();
        };
        make(b"a");
        make(b"b");
        memory.prepare_commit(main, &before).unwrap();
        make(b"c");
        drop(memory.writer_for(&owner, &[Some(main)]).unwrap());
        let reader = memory.history_reader();
        // Where the thread that commits after a second came between, there are two.
        let count = |seq| reader.entry(seq).unwrap().entry.counts.files;
        assert_eq!((1..=reader.newest()).map(count).sum::<u64>(), 3);
    }
}
