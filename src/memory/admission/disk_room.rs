//! Whether the disk has room for what is about to be written.
//!
//! What is not sealed is in the journal alone, and a seal writes what is still needed of it once more before the
//! journal goes. So something is written only while there is room for it and for the seal behind it; where there is
//! not, room is made by a collection first. Deletes may use the reserve, too. So a full disk is never full for good.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use super::reserve::Reserve;
use crate::disk::FILLER_BYTES;
use crate::journal::{FRAME_HEADER_BYTES, FrameKind, Journal, JournalError};
use crate::memory::command::log_record::BULK_ROW_BYTES;
use crate::memory::{Error, Kind, LimitError, Memory};
use crate::sync::{Mutex, may_wait};

/// Left free by all writes but those that free room: for entries that commit what was done, and for what a seal writes beside
/// contents.
const FREE_MARGIN_BYTES: u64 = 256 << 10;
/// Bytes after which statfs(2) is called again: others write to the disk, too.
const CREDIT_BYTES_MAX: u64 = 4 << 20;
/// Collections in a row before a write is refused, each after one that freed too little and left something to free.
const GC_ROUNDS_MAX: usize = 12;
/// A seal writes at most this many times the unsealed bytes: a long text is in its record, and its words in the index.
const SEAL_AMPLIFICATION: u64 = 4;
/// What a command or an operation costs beside its content: the frame, its entry, its place in the manifest.
const COMMAND_COST_BYTES: u64 = 2 << 10;

/// What is known of the room on the disk, in counters: a small write costs some loads and no statfs(2).
pub(in crate::memory) struct DiskRoom {
    /// Room that only what gives back may use: deletes, gc and seals on a full disk.
    pub reserve: Reserve,
    /// What may be written before the disk is asked again.
    credit_bytes: AtomicI64,
    /// What is being written. It counts in full, though some of it may be on the disk already.
    in_flight_bytes: AtomicU64,
    /// What a seal that is under way writes, and what those that failed would have.
    seal_debt_bytes: AtomicU64,
    /// Bytes of the last manifest that was written, which the next one is taken to have, too.
    manifest_bytes: AtomicU64,
    /// The disk had too little room when it was asked last.
    is_tight: AtomicBool,
    /// The disk took less than it said, as where a user's share is used up.
    has_refused: AtomicBool,
    /// Bytes of all frames that were appended since the store was opened.
    appended_bytes: AtomicU64,
    /// The last collection that was to make room, if there was one.
    last_gc: Mutex<Option<LastGc>>,
}

/// What a collection has seen: until more is appended another one frees nothing.
#[derive(Clone, Copy)]
struct LastGc {
    /// `DiskRoom::appended_bytes` when it began. What was appended while it ran may have come too late for it.
    appended_bytes: u64,
    has_failed: bool,
}

impl LastGc {
    /// Returns whether another one would come to the same. One that failed has made a file, so it is tried again when
    /// as much has come.
    fn is_recent(&self, appended_bytes: u64) -> bool {
        appended_bytes - self.appended_bytes < if self.has_failed { FILLER_BYTES as u64 } else { 1 }
    }
}

/// Room that was found for something that is being written.
#[must_use = "the room is free again as soon as this is dropped"]
pub(in crate::memory) struct DiskReservation<'a> {
    room: &'a DiskRoom,
    bytes: u64,
}

impl Drop for DiskReservation<'_> {
    fn drop(&mut self) {
        self.room.in_flight_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// What the disk lacks: bytes, or an inode for one more file.
#[derive(Clone, Copy, Default)]
struct Shortage {
    bytes: u64,
    lacks_files: bool,
}

/// Returns what something costs until it is sealed, of which `unsealed_bytes` are kept in memory and `long_bytes` stay in the
/// journal: the journal's frame, and what the seal writes.
pub(in crate::memory) fn disk_cost_bytes(unsealed_bytes: u64, long_bytes: u64) -> u64 {
    COMMAND_COST_BYTES + (1 + SEAL_AMPLIFICATION) * unsealed_bytes + 2 * long_bytes
}

/// Returns the disk bytes that a record of so many bytes counts which goes straight into a segment, never through the journal.
pub(in crate::memory) fn bulk_disk_cost_bytes(bytes: u64) -> u64 {
    SEAL_AMPLIFICATION * (bytes + BULK_ROW_BYTES)
}

impl DiskRoom {
    /// Starts without credit, so that the first write asks the disk. `manifest` is the manifest's length in bytes.
    pub fn new(reserve: Reserve, manifest: u64) -> DiskRoom {
        DiskRoom {
            reserve,
            credit_bytes: AtomicI64::new(0),
            in_flight_bytes: AtomicU64::new(0),
            seal_debt_bytes: AtomicU64::new(0),
            manifest_bytes: AtomicU64::new(manifest),
            is_tight: AtomicBool::new(false),
            has_refused: AtomicBool::new(false),
            appended_bytes: AtomicU64::new(0),
            last_gc: Mutex::default(),
        }
    }

    /// Notes the start of a seal that writes at most this many bytes.
    pub fn note_rotation(&self, bytes_max: u64) {
        self.seal_debt_bytes.fetch_add(bytes_max, Ordering::AcqRel);
    }

    /// Notes that all is sealed that was waiting, with a manifest of so many bytes. The next write asks the disk again.
    pub fn note_seal(&self, manifest: u64) {
        self.manifest_bytes.store(manifest, Ordering::Release);
        self.seal_debt_bytes.store(0, Ordering::Release);
        self.credit_bytes.store(0, Ordering::Release);
    }

    /// Returns whether the disk had too little room when it was asked last: then gc compacts by `CompactionPolicy::TIGHT`.
    pub fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Acquire)
    }
}

/// Returns whether a disk had no room for something, or a user no share of it left: kinds `Full` and `Quota`.
pub(in crate::memory) fn is_full(error: &Error) -> bool {
    matches!(error.kind(), Kind::Full | Kind::Quota)
}

impl Memory {
    /// Finds room for something that is about to be written; makes it by a collection where there is none. Call it
    /// with no lock held, and hold what it returns until it is written.
    ///
    /// Kind `Full` if there is none, `WouldWait` on a thread that must not wait for the collection.
    pub(in crate::memory) fn reserve_room(&self, bytes: u64) -> Result<DiskReservation<'_>, Error> {
        let (taken, shortage) = self.count_in_flight(bytes);
        if shortage.is_none() {
            return Ok(taken);
        }
        if !may_wait() {
            return Err(Error::WouldWait);
        }
        self.make_room();
        self.find_shortage().map_or(Ok(taken), |shortage| Err(self.disk_full(shortage)))
    }

    /// Finds room as [`Memory::reserve_room`] does, and makes none: for a seal, which holds the lock that a collection
    /// takes. Kind `Full` if there is none.
    pub(in crate::memory) fn reserve_free_room(&self, bytes: u64) -> Result<DiskReservation<'_>, Error> {
        let (taken, shortage) = self.count_in_flight(bytes);
        shortage.map_or(Ok(taken), |shortage| Err(self.disk_full(shortage)))
    }

    /// Counts bytes as being written, and returns what the disk lacks for them.
    fn count_in_flight(&self, bytes: u64) -> (DiskReservation<'_>, Option<Shortage>) {
        let room = &self.admission.room;
        // Before the disk is asked, so that of two who ask at once each counts what the other writes.
        room.in_flight_bytes.fetch_add(bytes, Ordering::AcqRel);
        let taken = DiskReservation { room, bytes };
        let has_credit = room.credit_bytes.fetch_sub(bytes as i64, Ordering::AcqRel) >= bytes as i64;
        let shortage = if has_credit && room.reserve.is_whole() { None } else { self.find_shortage() };
        (taken, shortage)
    }

    /// Sees to it that what gives room back is followed by a seal that has room, with the reserve. Kind `WouldWait` on
    /// a thread that must not wait for a seal.
    pub(in crate::memory) fn ensure_room_to_free(&self) -> Result<(), Error> {
        let room = &self.admission.room;
        // The usual case costs two loads, since deletes come through here under any load.
        if !room.is_tight() && room.reserve.is_whole() {
            return Ok(());
        }
        let free = self.disk.space().map_or(u64::MAX, |space| space.available_bytes);
        if free.saturating_add(room.reserve.bytes()) >= self.seal_bytes_max() + COMMAND_COST_BYTES {
            return Ok(());
        }
        if !may_wait() {
            return Err(Error::WouldWait);
        }
        self.make_room();
        Ok(())
    }

    /// Returns the most bytes that a seal writes: what waits for it, what one under way still has to write, and a
    /// manifest.
    fn seal_bytes_max(&self) -> u64 {
        let waiting = self.waiting_bytes_max() + self.admission.room.seal_debt_bytes.load(Ordering::Acquire);
        waiting + self.admission.room.manifest_bytes.load(Ordering::Acquire)
    }

    /// Returns the most bytes that a seal writes of what has come since the last one, beside the manifest.
    pub(in crate::memory) fn waiting_bytes_max(&self) -> u64 {
        SEAL_AMPLIFICATION * self.unsealed_bytes() + self.written_bytes()
    }

    fn free_bytes(&self) -> u64 {
        self.disk.space().map_or(0, |space| space.available_bytes)
    }

    /// Returns the bytes that a seal may write beyond what it has to; 0 if the disk can't be asked.
    pub(in crate::memory) fn spare_bytes(&self) -> u64 {
        self.free_bytes().saturating_sub(self.seal_bytes_max() + FREE_MARGIN_BYTES)
    }

    /// Returns how much a compaction may write: it gives back more, so the reserve counts.
    pub(in crate::memory) fn compactable_bytes(&self) -> u64 {
        let free = self.free_bytes().saturating_add(self.admission.room.reserve.bytes());
        free.saturating_sub(self.seal_bytes_max() + FREE_MARGIN_BYTES / 4)
    }

    /// Asks the disk what it lacks, for what is being written too.
    fn find_shortage(&self) -> Option<Shortage> {
        let room = &self.admission.room;
        // Where statfs(2) fails, the write itself reports a full disk.
        let Ok(space) = self.disk.space() else { return None };
        let short = room.reserve.bytes_wanted().saturating_sub(room.reserve.bytes());
        // What is in flight counts in full although some of it may be on the disk already: too much is refused, never
        // too little.
        let needs = self.seal_bytes_max() + room.in_flight_bytes.load(Ordering::Acquire) + FREE_MARGIN_BYTES + short;
        let refused = room.has_refused.load(Ordering::Acquire);
        let shortage = (short > 0 || refused || needs > space.available_bytes).then(|| Shortage {
            bytes: needs.saturating_sub(space.available_bytes),
            lacks_files: space.inodes_total > 0 && space.inodes_free == 0,
        });
        let credit = space.available_bytes.saturating_sub(needs).min(CREDIT_BYTES_MAX);
        // Credit is what is left beyond all needs, and never much: others write to this disk, too.
        room.credit_bytes.store(if shortage.is_some() { 0 } else { credit as i64 }, Ordering::Release);
        room.is_tight.store(shortage.is_some(), Ordering::Release);
        shortage
    }

    /// Makes room: the reserve is filled, and what can be collected is, once for each state of the journal.
    pub(in crate::memory) fn make_room(&self) {
        let mut stored = self.storage.manifest.lock();
        // Filled first: a short reserve counts as missing room, and the disk may have got room from elsewhere.
        self.admission.room.reserve.fill();
        let was_refused = self.admission.room.has_refused.swap(false, Ordering::AcqRel);
        // Another thread may have made room while this one waited for the lock.
        if self.find_shortage().is_none() && !was_refused {
            return;
        }
        let last = *self.admission.room.last_gc.lock();
        // A collection that changed nothing would change nothing again, and each writer on a full disk would wait for
        // one.
        let appended_bytes = || self.admission.room.appended_bytes.load(Ordering::Acquire);
        if self.journal().is_none() || last.is_some_and(|last| last.is_recent(appended_bytes())) {
            return;
        }
        let mut dropped = false;
        // What one collection gives back lets the next one compact more, and so does each half of the earlier states that goes.
        for round in 0..GC_ROUNDS_MAX {
            let before = self.free_bytes() + self.admission.room.reserve.bytes();
            let appended_bytes = appended_bytes();
            let states = if round > 0 { self.drop_oldest_states() } else { Ok(true) };
            let fewer = states.as_ref().is_ok_and(|fewer| *fewer);
            dropped |= fewer && round > 0;
            let done = states.and_then(|_| self.gc_on_full_disk(&mut stored));
            let collection = LastGc { appended_bytes, has_failed: done.is_err() };
            *self.admission.room.last_gc.lock() = Some(collection);
            if let Err(error) = done {
                log::warn!("the disk is full, and no room could be made: {error}; {}", error.hint());
            }
            let is_no_use = self.free_bytes() + self.admission.room.reserve.bytes() <= before;
            if self.find_shortage().is_none() || (is_no_use && !fewer) {
                break;
            }
        }
        // Let go of before the entries are written and listeners are told: seals wait for this lock.
        drop(stored);
        if dropped {
            self.announce_dropped_states();
        }
        // Asked once more for its effect: credit and `is_tight` are those of after the collection.
        self.find_shortage();
    }

    /// Appends a frame. What gives room back may use the reserve for it. Fails with `Error::Journal`: of kind `Full` if
    /// the disk has no room, `ReadOnly` if the journal has failed before.
    pub(in crate::memory) fn append(
        &self,
        journal: &Journal,
        kind: FrameKind,
        parts: &[&[u8]],
        may_use_reserve: bool,
    ) -> Result<u64, Error> {
        let end = loop {
            match journal.append(kind, parts) {
                Err(error) if may_use_reserve && error.is_full() && self.admission.room.reserve.release_piece() => {}
                done => break done.map_err(|error| self.note_full(error))?,
            }
        };
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        // After the append: a collection that counts these bytes as seen has them before it.
        self.admission.room.appended_bytes.fetch_add((FRAME_HEADER_BYTES + bytes) as u64, Ordering::AcqRel);
        Ok(end)
    }

    /// Notes where the disk had no room after all, so that the next write asks it again; returns the error, whatever it is.
    pub(in crate::memory) fn note_full(&self, error: JournalError) -> Error {
        if error.is_full() {
            self.admission.room.has_refused.store(true, Ordering::Release);
            self.admission.room.is_tight.store(true, Ordering::Release);
            // The disk has less than it said, so nothing is written on credit before it is asked again.
            self.admission.room.credit_bytes.store(0, Ordering::Release);
        }
        error.into()
    }

    fn disk_full(&self, shortage: Shortage) -> Error {
        let kept_kib = self.admission.room.reserve.bytes_wanted().div_ceil(1024);
        let lacks = match shortage {
            Shortage { bytes: 0, lacks_files: true } => LimitError::Inodes { kept_kib },
            Shortage { bytes, .. } => LimitError::Disk { missing_kib: bytes.div_ceil(1024).max(1), kept_kib },
        };
        lacks.into()
    }
}
