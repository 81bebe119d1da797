//! The journal files of a store, read one after the other.
//!
//! A file is followed by a new one before it is on the device, so that nobody waits for that. Each frame that is
//! written once it is tells so (`flushed` is then at least the length of a file's header). So a file that ends torn
//! and has a later one is judged as the last one is, as long as no later file tells that it was flushed: what later
//! ones hold was then never acknowledged as synced either, and goes with the torn tail. A new file begins with the
//! length of the one before it, so that a tail of which nothing is left is missed.

use std::sync::Arc;

use super::file_header::FILE_HEADER_BYTES;
use super::{Frame, Journal, JournalError, Replay, TornTail};
use crate::disk::Disk;

const FOLDER: &str = "journal";

/// The journal files from a number on, without a gap between their numbers.
pub struct JournalFiles<'a> {
    disk: &'a Arc<dyn Disk>,
    numbers: Vec<u64>,
    /// A file behind them that was not finished when it was made, and holds nothing.
    unfinished: Option<u64>,
}

/// Journal files that were read, with what has to be cut and removed before more is appended.
pub struct ReplayedFiles {
    /// The last file that counts, and those before it of which no frame tells that they were flushed.
    last: Replay,
    unflushed: Vec<Replay>,
    /// `None` if the last file ends with a whole frame.
    torn: Option<TornTail>,
    /// Later files, which hold nothing that counts.
    dropped: Vec<u64>,
}

impl<'a> JournalFiles<'a> {
    /// Lists the files from number `first` on.
    ///
    /// [`JournalError::Damaged`] if the file with that number is missing, or one between it and the last.
    pub fn list(disk: &'a Arc<dyn Disk>, first: u64) -> Result<JournalFiles<'a>, JournalError> {
        let io = |path: String| move |source| JournalError::Io { path, what: "listed", source };
        let names = disk.list(FOLDER).map_err(io(FOLDER.to_owned()))?;
        let mut numbers: Vec<u64> =
            names.iter().filter_map(|name| Journal::parse_file_name(name)).filter(|number| *number >= first).collect();
        numbers.sort_unstable();
        let mut unfinished = None;
        // A file has a durable header before anything is written behind it, so a last one without was never in use. The
        // first one has to be there in any case.
        if let [_, .., last] = numbers[..] {
            let path = Journal::file_path(last);
            let length = disk.open(&path).and_then(|file| file.len()).map_err(io(path))?;
            if length <= FILE_HEADER_BYTES && Replay::open(disk, last).is_err() {
                unfinished = numbers.pop();
            }
        }
        let mut expected = first..;
        if let Some((_, missing)) = numbers.iter().zip(&mut expected).find(|(number, expected)| *number != expected) {
            return Err(damaged(missing, "the file is missing, and later ones are there"));
        }
        if numbers.is_empty() {
            return Err(damaged(first, "the file is missing"));
        }
        Ok(JournalFiles { disk, numbers, unfinished })
    }

    /// Calls `each` as [`Replay::for_each_frame`] does, with the frames of all files in order. `writing` says whether the journal
    /// will be continued.
    ///
    /// An error of `each` ends it and is returned. [`JournalError::Damaged`] if a bad frame was flushed, or a file does
    /// not begin where the one before it ends, or a frame has a code of a later version that may not be skipped.
    pub fn replay<E: From<JournalError>>(
        &self,
        writing: bool,
        mut each: impl FnMut(Frame<'_>) -> Result<bool, E>,
    ) -> Result<ReplayedFiles, E> {
        let open = if writing { Replay::open_to_continue } else { Replay::open };
        let (mut read, mut torn): (Vec<Replay>, Option<TornTail>) = (Vec::new(), None);
        for number in &self.numbers {
            let mut replay = open(self.disk, *number)?;
            torn = replay.for_each_frame(0, &mut each)?;
            // A file that vouches for those before it leaves nothing of them to be flushed again.
            if replay.is_previous_flushed() {
                read.clear();
            }
            let end = replay.length();
            read.push(replay);
            if torn.is_none() {
                // A file that ends cleanly may still have lost whole frames; only the length that the next one begins
                // with tells.
                torn = self.missing_tail(number + 1, end)?;
            }
            if torn.is_some() {
                break;
            }
        }
        let Some(last) = read.pop() else { return Err(damaged(0, "there is no file").into()) };
        let later = self.numbers.iter().copied().filter(|number| *number > last.number());
        // Nothing behind a tear is replayed. Files there are dropped if nothing says that the torn one was flushed;
        // else it is damage, not a tear.
        if let Some(torn) = &mut torn {
            for number in later.clone() {
                torn.bytes += self.unflushed_bytes(number, &last, torn.offset)?;
            }
        }
        let dropped = later.chain(self.unfinished).collect();
        Ok(ReplayedFiles { last, unflushed: read, torn, dropped })
    }

    /// Returns the tail that is missing of a file of that length, where the next one says that it was longer.
    fn missing_tail(&self, next: u64, length: u64) -> Result<Option<TornTail>, JournalError> {
        if !self.numbers.contains(&next) {
            return Ok(None);
        }
        match Replay::open(self.disk, next)?.length_before()? {
            Some(told) if told > length => Ok(Some(TornTail { offset: length, bytes: 0, cut_short: true })),
            Some(told) if told < length => Err(damaged(next, "it does not begin where the file before it ends")),
            _ => Ok(None),
        }
    }

    /// Returns how many bytes a later file has beside its header, where it does not tell that the one that is torn at
    /// `offset` was flushed.
    fn unflushed_bytes(&self, number: u64, torn: &Replay, offset: u64) -> Result<u64, JournalError> {
        let mut later = Replay::open(self.disk, number)?;
        // The frames are not carried out: what is asked is only what the whole ones among them vouch for.
        later.for_each_frame::<JournalError>(0, |_| Ok(true))?;
        if later.is_previous_flushed() {
            let reason = "a frame that was acknowledged as synced does not match its check".to_owned();
            return Err(JournalError::Damaged { path: torn.path().to_owned(), offset, reason });
        }
        Ok(later.length().saturating_sub(later.frames_start()))
    }
}

impl ReplayedFiles {
    /// Returns the bytes after the last whole frame; they were never acknowledged as synced. `None` if it ends the
    /// file.
    pub fn torn_tail(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// Returns the path of the last file that counts.
    pub fn path(&self) -> &str {
        self.last.path()
    }

    /// Removes files that hold nothing, cuts a torn tail, and returns the journal, ready for the next frame.
    ///
    /// After an error nothing was appended, and the files may be replayed again.
    pub fn resume(self, disk: &Arc<dyn Disk>) -> Result<Journal, JournalError> {
        let io = |path: String| move |source| JournalError::Io { path, what: "removed", source };
        // Later files go before the tail is cut: behind a file that ends cleanly, their frames would seem to follow.
        for number in self.dropped.iter().rev() {
            let path = Journal::file_path(*number);
            disk.remove(&path).map_err(io(path))?;
        }
        // Synced before the tail is cut, for the same reason: a power cut could bring a file back that was removed.
        if !self.dropped.is_empty() {
            disk.sync_dir(FOLDER).map_err(io(FOLDER.to_owned()))?;
        }
        // The older files are on the device before the last one is written to: its frames vouch for all before it.
        self.unflushed.into_iter().try_for_each(Replay::rewrite_and_flush)?;
        self.last.resume(self.torn.as_ref())
    }
}

fn damaged(number: u64, reason: &str) -> JournalError {
    JournalError::Damaged { path: Journal::file_path(number), offset: 0, reason: reason.to_owned() }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
