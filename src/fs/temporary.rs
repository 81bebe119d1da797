//! Names in `vectors/` that are not records: what editors and atomic savers put beside the file they
//! replace.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::counted_buffer::CountedBuffer;
use super::errno::{Errno, Failure};
use super::handle::{File, slice_at};
use super::mount_context::{Caller, OpenContext};
use super::refusal::SpaceRefusal;
use crate::memory::Time;
use crate::sync::{Mutex, Rank, Reservation};

/// Bytes of all temporaries of a branch at most.
const BYTES_MAX: u64 = 64 << 20;
/// What a file counts beside its content, so that empty ones have a limit too.
const FILE_BYTES: u64 = 512;

/// The temporaries of one branch, in RAM, never forked, merged or counted.
pub(super) struct Temporaries {
    names: Mutex<BTreeMap<OsString, Arc<Temporary>>>,
    numbers: Mutex<HashMap<u64, Weak<Temporary>>>,
    last_number: AtomicU64,
    used_bytes: Arc<AtomicU64>,
}

/// One file. It lives on without a name while it is open.
pub(super) struct Temporary {
    /// Its number in the branch, given once.
    pub number: u64,
    content: Mutex<TemporaryContent>,
    used_bytes: Arc<AtomicU64>,
    _overhead: Reservation,
}

struct TemporaryContent {
    bytes: CountedBuffer,
    stat: TemporaryStat,
    /// Set once it becomes a record: a later write would be lost, so it is refused.
    is_committed: bool,
}

/// What stat(2) shows of a temporary.
#[derive(Clone, Copy)]
pub(super) struct TemporaryStat {
    /// Bytes that were written, in RAM.
    pub length_bytes: u64,
    /// Permission bits with setuid, setgid and sticky: 12 bits.
    pub mode: u32,
    /// Uid of its owner: the user who made it, or set by chown(2) since.
    pub uid: u32,
    /// Gid of its group: that of the process that made it, or set by chown(2) since.
    pub gid: u32,
    /// When its bytes were last written.
    pub modified: Time,
}

impl Default for Temporaries {
    fn default() -> Temporaries {
        let names = Mutex::with_rank(Rank::Temporaries, BTreeMap::new());
        Temporaries { names, numbers: Mutex::default(), last_number: AtomicU64::default(), used_bytes: Arc::default() }
    }
}

impl Temporaries {
    /// Returns the file of a name; `None` if no temporary of the branch has it.
    pub fn get(&self, name: &OsStr) -> Option<Arc<Temporary>> {
        self.names.lock().get(name).cloned()
    }

    /// Returns the temporary that has a number, as long as it has a name or is open.
    pub fn get_by_number(&self, number: u64) -> Option<Arc<Temporary>> {
        self.numbers.lock().get(&number)?.upgrade()
    }

    /// Returns all names with their numbers, in bytewise order.
    pub fn list(&self) -> Vec<(OsString, u64)> {
        self.names.lock().iter().map(|(name, file)| (name.clone(), file.number)).collect()
    }

    /// Returns how many have a name.
    pub fn count(&self) -> usize {
        self.names.lock().len()
    }

    /// Returns names and owners of those that have a name, in bytewise order.
    pub fn owners(&self) -> Vec<(OsString, u32)> {
        self.names.lock().iter().map(|(name, file)| (name.clone(), file.stat().uid)).collect()
    }

    /// Makes a file, in place of the one that had the name. ENOSPC if the branch's 64 MiB are used up.
    pub fn create(
        &self,
        name: &OsStr,
        bytes: CountedBuffer,
        mode: u32,
        owner: Caller,
        now: Time,
    ) -> Result<Arc<Temporary>, Failure> {
        // Both limits are asked before a name is given: the user's share of memory, and what the branch may hold.
        let overhead = bytes.reserve_more(FILE_BYTES)?;
        reserve(&self.used_bytes, FILE_BYTES + bytes.len() as u64)?;
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let stat = TemporaryStat {
            length_bytes: bytes.len() as u64,
            mode: mode & 0o7777,
            uid: owner.uid,
            gid: owner.gid,
            modified: now,
        };
        let content = Mutex::new(TemporaryContent { bytes, stat, is_committed: false });
        let file = Arc::new(Temporary { number, content, used_bytes: self.used_bytes.clone(), _overhead: overhead });
        let mut names = self.names.lock();
        names.insert(name.to_owned(), file.clone());
        let mut numbers = self.numbers.lock();
        // Numbers of files that are gone go once they are half of all, so that each costs little.
        if numbers.len() > 2 * names.len() {
            numbers.retain(|_, file| file.strong_count() > 0);
        }
        numbers.insert(number, Arc::downgrade(&file));
        Ok(file)
    }

    /// Takes a name away, and returns the file that had it; `None` if no temporary has it.
    pub fn remove(&self, name: &OsStr) -> Option<Arc<Temporary>> {
        self.names.lock().remove(name)
    }

    /// Puts back what a name stood for before.
    pub fn restore(&self, name: &OsStr, before: Option<Arc<Temporary>>) {
        let mut names = self.names.lock();
        match before {
            Some(file) => names.insert(name.to_owned(), file),
            None => names.remove(name),
        };
    }

    /// Gives a file another name, in place of the file that had that one; tells whether the file
    /// was there.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> bool {
        let mut names = self.names.lock();
        let Some(file) = names.remove(from) else {
            return false;
        };
        names.insert(to.to_owned(), file);
        true
    }
}

impl Temporary {
    /// Returns length, rights and time of the last write, all of one moment.
    pub fn stat(&self) -> TemporaryStat {
        self.content.lock().stat
    }

    /// Returns the bytes that are to become a record: writing to it is ESTALE from now on. ESTALE if another one has
    /// made a record of it.
    pub fn begin_commit(&self) -> Result<Vec<u8>, Failure> {
        // Under one lock: a write in between would be acknowledged, and in no record.
        let mut content = self.content.lock();
        if std::mem::replace(&mut content.is_committed, true) {
            return Err(Errno::ESTALE.into());
        }
        Ok(content.bytes.to_vec())
    }

    /// Takes [`Temporary::begin_commit`] back, since it became no record.
    pub fn undo_commit(&self) {
        self.content.lock().is_committed = false;
    }

    /// Sets the permission bits; of `mode` the lowest 12 count.
    pub fn set_mode(&self, mode: u32) {
        self.content.lock().stat.mode = mode & 0o7777;
    }

    /// Sets owner and group, each if given.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) {
        let stat = &mut self.content.lock().stat;
        stat.uid = uid.unwrap_or(stat.uid);
        stat.gid = gid.unwrap_or(stat.gid);
    }

    /// Sets its length in bytes, extending it with zeros. ESTALE once it is a record, EDQUOT or ENOSPC if there is no
    /// room.
    pub fn resize(&self, length: u64, now: Time) -> Result<(), Failure> {
        self.set_length(&mut self.content.lock(), length, now)
    }

    /// Writes at `offset`, or at the end without one.
    fn write(&self, offset: Option<u64>, data: &[u8], now: Time) -> Result<(), Failure> {
        let mut content = self.content.lock();
        let start = offset.unwrap_or(content.stat.length_bytes);
        let end = start.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        let length = end.max(content.stat.length_bytes);
        self.set_length(&mut content, length, now)?;
        // It fits in memory, as the whole length does.
        let start = usize::try_from(start).map_err(|_| Errno::EFBIG)?;
        content.bytes[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn set_length(&self, content: &mut TemporaryContent, length: u64, now: Time) -> Result<(), Failure> {
        if content.is_committed {
            return Err(Errno::ESTALE.into());
        }
        let bytes = usize::try_from(length).map_err(|_| Errno::EFBIG)?;
        let more = length.saturating_sub(content.stat.length_bytes);
        reserve(&self.used_bytes, more)?;
        content.bytes.resize(bytes).inspect_err(|_| {
            // Taken back where the user's share is too small: the branch's count must not keep what was never held.
            self.used_bytes.fetch_sub(more, Ordering::Relaxed);
        })?;
        content.bytes.truncate(bytes);
        self.used_bytes.fetch_sub(content.stat.length_bytes.saturating_sub(length), Ordering::Relaxed);
        content.stat.length_bytes = length;
        content.stat.modified = now;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        self.used_bytes.fetch_sub(FILE_BYTES + self.stat().length_bytes, Ordering::Relaxed);
    }
}

fn reserve(used: &AtomicU64, bytes: u64) -> Result<(), Failure> {
    let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= BYTES_MAX);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map(drop).map_err(|_| SpaceRefusal::Temporaries.into())
}

/// A handle on a temporary, which keeps the file when its name goes.
pub(super) struct TemporaryFile {
    /// Where it was opened, and by whom.
    pub context: OpenContext,
    /// The temporary, which all its handles share.
    pub file: Arc<Temporary>,
    /// Whether each write goes to the end.
    pub append: bool,
}

impl File for TemporaryFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        Ok(slice_at(&self.file.content.lock().bytes, offset, size))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        let offset = Some(offset).filter(|_| !self.append);
        self.file.write(offset, data, self.context.memory().now()).map(|()| data.len())
    }

    fn truncate(&self, length: u64) -> Result<(), Failure> {
        self.file.resize(length, self.context.memory().now())
    }

    fn length(&self) -> Option<u64> {
        Some(self.file.stat().length_bytes)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    const ME: Caller = Caller { uid: 1, gid: 1, pid: 0 };

    fn create(files: &Temporaries, name: &str, bytes: &[u8]) -> Arc<Temporary> {
        let bytes = CountedBuffer::from_bytes(&Arc::default(), ME.uid, bytes.to_vec()).unwrap();
        files.create(OsStr::new(name), bytes, 0o600, ME, Time(0)).unwrap()
    }

    #[test]
    fn a_file_without_a_name_lives_while_it_is_held() {
        let files = Temporaries::default();
        let file = create(&files, ".a", b"x");
        files.remove(OsStr::new(".a"));
        assert!(files.get_by_number(file.number).is_some());
        let number = file.number;
        drop(file);
        assert!(files.get_by_number(number).is_none());
        assert_eq!(files.used_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn numbers_of_files_that_are_gone_go_and_those_of_held_ones_stay() {
        let files = Temporaries::default();
        let held = create(&files, ".held", b"x");
        files.remove(OsStr::new(".held"));
        for _ in 0..100 {
            create(&files, ".a", b"x");
            files.remove(OsStr::new(".a"));
            let numbers = files.numbers.lock().len();
            assert!(numbers <= 3, "{numbers} numbers for one file that is held and the last that was made");
        }
        assert!(files.get_by_number(held.number).is_some());
    }

    #[test]
    fn the_limit_counts_content_and_files() {
        let files = Temporaries::default();
        let file = create(&files, ".a", b"");
        let full = file.write(Some(0), &vec![0; 64 << 20], Time(0)).unwrap_err();
        assert_eq!(full.errno(), Errno::ENOSPC);
        assert_eq!(file.stat().length_bytes, 0);
        file.resize((64 << 20) - FILE_BYTES, Time(0)).unwrap();
        assert!(files.create(OsStr::new(".b"), CountedBuffer::new(&Arc::default(), 1), 0o600, ME, Time(0)).is_err());
        file.resize(0, Time(0)).unwrap();
        create(&files, ".b", b"");
    }

    #[test]
    fn a_write_beyond_the_end_leaves_zeros_and_appending_ignores_the_offset() {
        let files = Temporaries::default();
        let file = create(&files, ".a", b"ab");
        file.write(Some(4), b"c", Time(0)).unwrap();
        file.write(None, b"d", Time(0)).unwrap();
        assert_eq!(&file.content.lock().bytes[..], b"ab\0\0cd");
        assert_eq!(file.write(Some(u64::MAX), b"x", Time(0)).unwrap_err().errno(), Errno::EFBIG);
    }

    #[test]
    fn a_rename_takes_the_place_of_the_other() {
        let files = Temporaries::default();
        let (first, second) = (create(&files, ".a", b"1"), create(&files, ".b", b"2"));
        assert!(files.rename(OsStr::new(".a"), OsStr::new(".b")));
        assert!(!files.rename(OsStr::new(".a"), OsStr::new(".b")));
        assert_eq!(files.get(OsStr::new(".b")).unwrap().number, first.number);
        assert_eq!(files.list().len(), 1);
        assert_eq!(&second.content.lock().bytes[..], b"2");
    }

    #[test]
    fn what_became_a_record_takes_no_more_bytes() {
        let files = Temporaries::default();
        let file = create(&files, ".a", b"{}");
        assert_eq!(file.begin_commit().unwrap(), b"{}");
        assert_eq!(file.write(Some(0), b"x", Time(0)).unwrap_err().errno(), Errno::ESTALE);
        assert_eq!(file.begin_commit().unwrap_err().errno(), Errno::ESTALE);
        file.undo_commit();
        file.write(Some(0), b"x", Time(0)).unwrap();
    }
}
