//! `archive`: old entries move out of the store, into a file of their own.
//!
//! 1. A seal puts all entries into archives.
//! 2. The file is written (`history/moved.rs`).
//! 3. One entry says up to where, and the hash of the last one that moved.
//! 4. A seal leaves them out of the archives, and says in the manifest where the lineage begins (`history/cut.rs`).
//!
//! A crash before 3 leaves a file that the next call removes. After it, any seal does 4.

use serde_json::{Value, json};

use crate::memory::catalog::Revision;
use crate::memory::history::{HistoryReader, MovedEntries};
use crate::memory::transaction::commands::ArchiveEntries;
use crate::memory::{Actor, Error, Memory};
use crate::object::{Hash, Time};

impl Memory {
    /// Moves all entries up to the last one made before `before`, a time, into a file in the store's folder `archive`.
    /// Returns what was moved; with `dry_run` what would be.
    ///
    /// Kind `NotFound` if `before` is not a time. Kind `Busy` while a purge runs, or if an unfinished one can't be
    /// finished.
    pub fn archive_lineage(&self, who: &Actor, before: &Revision, dry_run: bool) -> Result<Value, Error> {
        let before = before.time(self.now()).ok_or_else(|| Error::NoState(before.to_string()))?;
        // A purge that is not finished looks its entry up, so that may not move.
        let _held = (!dry_run).then(|| self.exclude_purges()).transpose()?;
        if !dry_run {
            // A seal puts every entry into archives first, since the file is made of those and not of what is in
            // memory.
            self.seal()?;
        }
        let mut moved = MovedEntries::open(&self.disk)?;
        let start = self.catalog().start;
        let Some((last, tip)) = last_before(&self.history_reader(), start.first_seq, before)? else {
            return Ok(json!({ "entries": 0, "first": start.first_seq, "dry_run": dry_run }));
        };
        let mut report = json!({
            "entries": last + 1 - start.first_seq, "first": start.first_seq, "last": last, "tip": tip.to_string(), "dry_run": dry_run,
        });
        if dry_run {
            return Ok(report);
        }
        // The file before the entry: behind that the next seal drops what moved.
        report["file"] = moved.write(&self.history_reader(), start.first_seq..=last)?.into();
        report["entry"] = self.commit_archive_entry(who, last, tip)?.to_string().into();
        // The entry alone says where the lineage begins; this seal has the archives and the manifest follow it at once.
        self.seal()?;
        Ok(report)
    }

    /// Makes the entry that says where the lineage begins; the entries before it are in a file by then.
    fn commit_archive_entry(&self, who: &Actor, last: u64, tip: Hash) -> Result<Hash, Error> {
        let (entry, change) = {
            let mut writer = self.writer_with_nothing_pending()?;
            self.execute(&mut writer, who.uid, ArchiveEntries { last, hash: tip })?
        };
        self.notify(change);
        Ok(entry.hash)
    }

    /// Calls `each` with the line of every archived entry, in order. Returns the ranges of entry numbers whose file is
    /// missing, both ends included. Kind `Damaged` if a file is not what was written: `each` has had the lines before
    /// it.
    pub fn archived_lines(&self, mut each: impl FnMut(&str)) -> Result<Vec<(u64, u64)>, Error> {
        let first = self.catalog().start.first_seq;
        let missing = MovedEntries::open(&self.disk)?.for_each_chunk(first, |entries| {
            entries.iter().for_each(|signed| each(&signed.to_line()));
            Ok(())
        })?;
        Ok(missing.into_iter().map(|range| (*range.start(), *range.end())).collect())
    }
}

/// Returns number and hash of the last entry, from one on, that was made before a time. Times grow, except for those
/// that were written while the clock was ahead: such entries move with those behind them.
fn last_before(reader: &HistoryReader<'_>, first: u64, time: Time) -> Result<Option<(u64, Hash)>, Error> {
    for seq in (first.max(reader.first())..=reader.newest()).rev() {
        let signed = reader.entry(seq)?;
        if signed.entry.time < time {
            return Ok(Some((seq, signed.hash)));
        }
    }
    Ok(None)
}
