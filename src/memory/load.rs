//! From the files to the catalog: the manifest's snapshot, and the journal's commands on top.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::catalog::Catalog;
use super::command::plan_context::PlanContext;
use super::command::prepared::PreparedCommand;
use super::history::{History, HistoryReader};
use super::open::parse_log_record;
use super::storage::manifest::{self, StoredManifest};
use super::storage::read_file;
use super::storage::segments::Segments;
use super::storage::trees::TreeStore;
use super::transaction::clock::ClockReading;
use super::transaction::transact::{LogTail, split_signature};
use super::{Error, OpenError};
use crate::disk::Disk;
use crate::journal::{Frame, FrameKind, JournalFiles, ReplayedFiles};
use crate::lineage::{Entry, MacKey, PublicKey, SIGNATURE_BYTES, SignedEntry};
use crate::object::Hash;
use crate::segment::FOLDER;

/// Where a store is read from, and with which keys.
pub(super) struct LoadSource<'a> {
    /// The store's folder; loading changes nothing in it.
    pub disk: &'a Arc<dyn Disk>,
    /// The key that entries must be signed with.
    pub public_key: &'a PublicKey,
    /// The key of the codes of operations on files, derived from the signing key.
    pub mac_key: &'a MacKey,
    /// Opens each segment once, and keeps it.
    pub segments: &'a Segments,
    /// Opens the trees of files that states are stored with.
    pub trees: &'a TreeStore,
    /// Whether journal files are opened for writing, to be continued.
    pub is_read_write: bool,
}

/// What [`load`] found. Nothing is written yet, and a torn tail is not cut.
pub(super) struct LoadedStore {
    /// What exists after the last command of the journal.
    pub catalog: Catalog,
    /// All entries, those of the journal included.
    pub history: History,
    /// The end of the chain, without a journal to go on with.
    pub log_tail: LogTail,
    /// The journal files that were replayed, and what is torn at their end: `resume` cuts that.
    pub journal: ReplayedFiles,
    /// Number of the first journal file in use; a crash may have left older ones.
    pub first_journal: u64,
    /// Segments that commands in the journal name, which no manifest names before the next seal.
    pub journal_segments: HashSet<Hash>,
    /// What the manifest on disk says, for the first seal to go on from.
    pub stored: StoredManifest,
    /// Files of the index of files that the manifest names.
    pub file_index: Vec<Hash>,
}

/// Reads that are tried, the first one among them. What the last one fails with is returned.
const ATTEMPTS_MAX: usize = 8;

/// Reads beside a process that may be writing: begins again where it failed and the store was sealed meanwhile, which
/// takes files away that were named a moment ago.
pub(super) fn retry_across_seals<T>(
    disk: &dyn Disk,
    mut attempt: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let files = || (read_file(disk, manifest::PATH).ok(), disk.list("journal").ok(), disk.list(FOLDER).ok());
    for _ in 1..ATTEMPTS_MAX {
        let before = files();
        match attempt() {
            // Only a seal changes these names, so a failure without one is no matter of the time at which it was read.
            Err(_) if files() != before => {}
            outcome => return outcome,
        }
    }
    attempt()
}

/// Reads a store. The signature of the newest entry is checked, and with it the whole chain: each entry's bytes hold
/// the hash of the one before. Kind `Damaged` if the manifest, a file that it names, or the journal before its torn
/// tail is not what was written, where a log record breaks a rule, or if the signature of the newest entry is not the
/// store's. [`OpenError::OtherVersion`] if an entry led to another head when it was written.
pub(super) fn load(source: &LoadSource<'_>) -> Result<LoadedStore, Error> {
    let (manifest, stored) = manifest::read(&**source.disk, source.public_key, source.segments, source.trees)?;
    let files = JournalFiles::list(source.disk, manifest.journal)?;
    let mut replay = JournalReplay {
        source,
        history: History::new(&manifest.archives, manifest.catalog.start),
        catalog: manifest.catalog.with_recounted_bytes(),
        log_tail: LogTail {
            seq: manifest.seq,
            tip: manifest.tip,
            time: manifest.time,
            last_clock_reading: ClockReading::default(),
            mac_key: source.mac_key.clone(),
            link: manifest.tip,
            journal: None,
            unsealed_bytes: 0,
            written_bytes: 0,
            clean_end: 0,
            pending: HashMap::new(),
            close_reason: None,
        },
        journal_segments: HashSet::new(),
        last: None,
        sealed: manifest.seq,
    };
    // A replay may name any earlier state that was kept then, whatever `config/keep` says of its age now.
    replay.catalog.retained.keeps_all = true;
    let journal = files.replay(source.is_read_write, |frame| replay.apply_frame(frame))?;
    replay.catalog.retained.keeps_all = false;
    // One signature is checked for all entries: each has the hash of the one before it.
    replay.check_signatures()?;
    let JournalReplay { catalog, history, log_tail, journal_segments, .. } = replay;
    let (first_journal, file_index) = (manifest.journal, manifest.file_index);
    Ok(LoadedStore { catalog, history, log_tail, journal, first_journal, journal_segments, stored, file_index })
}

struct JournalReplay<'a> {
    source: &'a LoadSource<'a>,
    catalog: Catalog,
    history: History,
    log_tail: LogTail,
    journal_segments: HashSet<Hash>,
    /// The newest entry of the journal, whose signature vouches for all before it; none in an empty journal.
    last: Option<SignedEntry>,
    /// Number of the last entry before the journal.
    sealed: u64,
}

impl JournalReplay<'_> {
    /// Does what a frame says; returns false if its content is not whole.
    fn apply_frame(&mut self, frame: Frame<'_>) -> Result<bool, Error> {
        // A clean end counts only where nothing follows it.
        self.log_tail.clean_end = 0;
        match frame.kind {
            FrameKind::Mark | FrameKind::Unknown(_) => {}
            // A rotation commits all pending operations first, so a journal file begins without any.
            FrameKind::Begin => self.log_tail.link = self.log_tail.tip,
            FrameKind::Command => self.apply_log_record(frame.payload)?,
            FrameKind::FileOp => self.log_tail.replay_edit(&mut self.catalog, self.source.trees, frame.payload)?,
            FrameKind::Cursor => self.log_tail.replay_cursor(&mut self.catalog, frame.payload)?,
            FrameKind::Lease => self.log_tail.replay_lease(&mut self.catalog, frame.payload)?,
            FrameKind::Signals => self.log_tail.replay_signals(&mut self.catalog, frame.payload)?,
            FrameKind::Content => return self.log_tail.replay_content(&mut self.catalog, self.source.trees, &frame),
            FrameKind::End => {
                let signature: &[u8; SIGNATURE_BYTES] = frame
                    .payload
                    .try_into()
                    .map_err(|_| Error::damaged("a clean end of the journal has no signature"))?;
                if !self.source.public_key.verifies(&self.log_tail.end_hash(frame.offset), signature) {
                    return Err(Error::damaged("a clean end of the journal is not signed by the store's key"));
                }
                // Operations behind a clean end are bound to it, so that none from before can be put there.
                self.log_tail.link = self.log_tail.end_hash(frame.offset);
                self.log_tail.clean_end = frame.position(frame.payload.len());
            }
        }
        Ok(true)
    }

    fn apply_log_record(&mut self, payload: &[u8]) -> Result<(), Error> {
        let seq = self.log_tail.seq + 1;
        let (signature, bytes) =
            split_signature(payload).ok_or_else(|| Error::damaged(format!("entry {seq} has no signature")))?;
        let log_record = parse_log_record(bytes, seq).map_err(|error| self.earliest_error(error))?;
        let segment = |name: &Hash| self.source.segments.get(name);
        let context =
            PlanContext { catalog: &self.catalog, seq, packs: self.source.trees, segment: &segment, is_replayed: true };
        let prepared = log_record.command.prepare(&context, &log_record).map_err(|error| match error.kind() {
            // These say nothing about the entry, so it is not called damaged.
            super::Kind::Io | super::Kind::Full | super::Kind::Quota | super::Kind::Descriptors => error,
            super::Kind::Damaged => self.earliest_error(error),
            _ => self.earliest_error(Error::damaged(format!("entry {seq} does what can't be done: {error}"))),
        })?;
        // The entry is made anew and never read, so what was signed is what the command does now; a difference shows in
        // its hash.
        let entry = self.log_tail.entry(&prepared, &log_record, bytes, self.source.public_key);
        self.check_head(&prepared, &entry, &signature)?;
        let hash = entry.hash();
        let signed = SignedEntry { entry, hash, signature };
        self.log_tail.advance(&signed);
        self.journal_segments.extend(self.log_tail.note_command(
            &*log_record.command,
            bytes.len(),
            prepared.counts.put,
        ));
        self.catalog.apply(prepared.branch, prepared.op, prepared.changes, seq, log_record.time);
        // `push` needs to know how the branch stood before the entry.
        self.history.prepare_push(&self.source.segments.blobs, &signed.entry)?;
        self.history.push(&signed);
        self.last = Some(signed);
        Ok(())
    }

    /// Checks that a recorded outcome led to the head that it led to when it was recorded. An entry that the store's key
    /// signed with that head is not forged: it was applied otherwise then.
    fn check_head(
        &self,
        prepared: &PreparedCommand,
        entry: &Entry,
        signature: &[u8; SIGNATURE_BYTES],
    ) -> Result<(), Error> {
        let Some(recorded) = prepared.recorded_head.filter(|recorded| *recorded != prepared.head) else {
            return Ok(());
        };
        let entry = Entry { head: recorded, ..entry.clone() };
        let (seq, hash) = (entry.seq, entry.hash());
        let signed = SignedEntry { entry, hash, signature: *signature };
        Err(self.earliest_error(if signed.verifies(self.source.public_key) {
            OpenError::OtherVersion { seq, recorded, found: prepared.head }.into()
        } else {
            not_signed(seq)
        }))
    }

    /// Returns the error of an entry, or of an earlier one that made it go wrong.
    fn earliest_error(&self, error: Error) -> Error {
        self.check_signatures().err().unwrap_or(error)
    }

    /// The newest signature vouches for all entries; where it fails, the first bad one is named.
    fn check_signatures(&self) -> Result<(), Error> {
        if self.last.as_ref().is_none_or(|entry| entry.verifies(self.source.public_key)) {
            return Ok(());
        }
        let (reader, mut seq) =
            (HistoryReader::new(&self.source.segments.blobs, self.history.snapshot()), self.sealed + 1);
        while seq < self.log_tail.seq && reader.entry(seq)?.verifies(self.source.public_key) {
            seq += 1;
        }
        Err(not_signed(seq))
    }
}

fn not_signed(seq: u64) -> Error {
    Error::damaged(format!(
        "entry {seq} is not signed by the store's key, or an entry before it was changed or removed"
    ))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, Memory, OpenMode, SharedLogEntryInput};

    #[test]
    fn an_opening_counts_what_waits_for_a_seal_as_its_writer_did() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let open = |mode| {
            let environment = Environment { reserve_bytes: 0, ..Environment::real(who.clone()) };
            Memory::open_on(disk.clone(), mode, None, environment).unwrap()
        };
        let memory = open(OpenMode::Create);
        let main = memory.root("main").unwrap();
        let check = |what: &str| {
            assert_eq!(open(OpenMode::ReadOnly).unsealed_bytes(), memory.unsealed_bytes(), "{what}");
        };
        memory.append_log(&who, main, &[SharedLogEntryInput::parse("an entry").unwrap()]).unwrap();
        check("a command");
        memory.move_cursor(&who, main, 1).unwrap();
        check("a cursor");
        memory.claim_signal(&who, main, &"key".into(), 0o644).unwrap();
        check("a signal");
        let _lease = memory.hold_lease(&who, main).unwrap();
        check("a lease");
    }
}
