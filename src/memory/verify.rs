//! `verify`: reads and checks everything, changes nothing.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::admission::reserve;
use super::catalog::BranchId;
use super::history::{self, Archive, ArchiveCheck, HistoryReader, MovedEntries};
use super::load::{LoadSource, LoadedStore, load, retry_across_seals};
use super::lost_temporaries;
use super::maintenance::gc::live_files;
use super::maintenance::unfinished_graph;
use super::maintenance::unfinished_purge::{self, UnfinishedPurge};
use super::open::{check_format, dir_entry_exists, is_lock_text, read_keys};
use super::storage::manifest;
use super::storage::read_file;
use super::storage::segments::Segments;
use super::storage::trees::{self, TreeStore};
use super::transaction::batch::SPILL_PREFIX;
use super::transaction::contents::has_whole_content;
use super::{CopyError, Error};
use crate::branch::{BranchVersion, StateFile, changed_ids_at_most};
use crate::disk::{Disk, RealDisk};
use crate::file_index::IndexSegment;
use crate::journal::{Journal, Replay};
use crate::lineage::{PublicKey, SignedEntry};
use crate::object::{BlobStore, Hash, SetHash, TEMP_PREFIX};
use crate::segment::{self, Blocks, DerivedFile, GraphFile, Row, Segment};
use crate::sync::Pool;
use crate::workspace::{Pack, Packs, reachable_packs, verify_snapshot};

/// What a store is checked against, beside itself. By default nothing.
#[derive(Clone, Copy, Default)]
pub struct VerifyOptions<'a> {
    /// The text of a public key file that the store's own key must equal.
    pub public_key: Option<&'a str>,
    /// A tip noted earlier, which must be in the chain.
    pub expect_tip: Option<Hash>,
    /// Called from time to time with the number of entries checked, and that of all.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

/// Entries whose signatures are checked together; `progress` is called after each such batch.
const BATCH_ENTRIES: u64 = 2048;

/// Checks the store in the folder `path`, which may be open and written to; see [`verify_on`]. Kind `NotFound` if there
/// is none.
pub fn verify(path: &Path, options: &VerifyOptions<'_>) -> Result<Value, Error> {
    if !dir_entry_exists(path, "format")? && !dir_entry_exists(path, manifest::PATH)? {
        return Err(CopyError::Missing(path.to_owned()).into());
    }
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(path));
    retry_across_seals(&*disk, || verify_on(&disk, options))
}

/// Checks every byte of every file, every signature and link of the chain, and that every branch's
/// records are those its head names. Kind `Damaged` names the first thing that is wrong; `Invalid` if the options have a key that is
/// none.
///
/// ```
/// use std::sync::Arc;
///
/// use engramfs::disk::{Disk, ForgetfulDisk};
/// use engramfs::memory::{Actor, Environment, Error, Hash, Kind, Memory, OpenMode, VerifyOptions, verify_on};
///
/// # fn main() -> Result<(), Error> {
/// let disk: Arc<dyn Disk> = Arc::new(ForgetfulDisk::new());
/// let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
/// let memory = Memory::open_on(disk.clone(), OpenMode::Create, None, Environment::real(ann.clone()))?;
/// memory.fork(&ann, memory.root("main").unwrap(), "trial", None)?;
/// memory.close()?;
///
/// let report = verify_on(&disk, &VerifyOptions::default())?;
/// assert_eq!(report["branches"], 2);
/// assert_eq!(report["tip"], memory.tip().to_string());
///
/// // A tip that was noted earlier and is missing now means that the store was cut off or put back.
/// let noted = VerifyOptions { expect_tip: Some(Hash([7; 32])), ..VerifyOptions::default() };
/// assert_eq!(verify_on(&disk, &noted).unwrap_err().kind(), Kind::Damaged);
/// # Ok(())
/// # }
/// ```
pub fn verify_on(disk: &Arc<dyn Disk>, options: &VerifyOptions<'_>) -> Result<Value, Error> {
    check_format(&**disk)?;
    let (key, public) = read_keys(&**disk)?;
    if let Some(text) = options.public_key
        && PublicKey::parse(text.as_bytes()).map_err(|_| CopyError::NotAKey)? != public
    {
        return Err(Error::damaged("the store is signed by another key than the one given"));
    }
    let segments = Segments::new(BlobStore::open_existing(disk.clone(), segment::FOLDER), true);
    let blobs = &segments.blobs;
    let trees = TreeStore::new(disk.clone(), true);
    let mac = key.mac_key();
    let source = LoadSource {
        disk,
        public_key: &public,
        mac_key: &mac,
        segments: &segments,
        trees: &trees,
        is_read_write: false,
    };
    // In a thorough store each segment and pack is hashed as a whole when it is opened, so loading checks most of it.
    let loaded = load(&source)?;
    if let Some(torn) = loaded.journal.torn_tail().filter(|torn| !torn.cut_short) {
        let message =
            format!("{} is damaged at byte {}: a frame does not match its check", loaded.journal.path(), torn.offset);
        return Err(Error::damaged(message));
    }
    let moved = MovedEntries::open(disk)?;
    let archived = check_moved(&moved, &loaded, &public, options)?;
    let entries = check_history(blobs, &loaded, &public, (options, &archived))?;
    // After the history: a wrong entry explains a wrong state, and not the other way round.
    let states = check_states(&loaded)?;
    check_packs(&loaded, &trees)?;
    check_files(disk, blobs, &loaded, &trees)?;
    // Branches that hold the entries of shared logs are internal and not counted.
    let named = loaded.catalog.branches.values().filter(|branch| branch.log_totals.is_none()).count();
    Ok(json!({
        "entries": entries, "tip": loaded.log_tail.tip.to_string(), "branches": named,
        "states": states, "unsigned": loaded.log_tail.pending_operations(), "segments": segments.count(), "key": public.hash().to_string(),
        "archived": archived.entries, "archived_missing": archived.missing,
    }))
}

/// What the files of entries that were moved out of the store say.
#[derive(Default)]
struct ArchivedEntries {
    entries: u64,
    /// Ranges of entry numbers that no file has, first and last.
    missing: Vec<[u64; 2]>,
    has_tip: bool,
}

/// Checks numbers, links and signatures of the entries that were moved out, as far as their files are there.
fn check_moved(
    moved: &MovedEntries,
    loaded: &LoadedStore,
    public: &PublicKey,
    options: &VerifyOptions<'_>,
) -> Result<ArchivedEntries, Error> {
    let start = loaded.history.snapshot().start;
    let (mut archived, mut batch, mut last) =
        (ArchivedEntries::default(), Vec::new(), ChainLink { seq: 0, hash: Hash::ZERO });
    let check = |batch: &mut Vec<Arc<SignedEntry>>, last: &mut ChainLink| {
        let Some(first) = batch.first() else { return Ok(()) };
        // Where files are missing, what links the next entry to them can't be checked.
        let follows = first.entry.seq == last.seq + 1;
        let hash = if follows { last.hash } else { first.entry.prev };
        check_chain(batch, &ChainLink { seq: first.entry.seq - 1, hash }, public)?;
        *last = batch.last().map_or(*last, |signed| ChainLink { seq: signed.entry.seq, hash: signed.hash });
        batch.clear();
        Ok::<_, Error>(())
    };
    let missing = moved.for_each_chunk(start.first_seq, |entries| {
        archived.entries += entries.len() as u64;
        archived.has_tip |= entries.iter().any(|signed| Some(signed.hash) == options.expect_tip);
        let expected = batch.last().map_or(last.seq, |signed: &Arc<SignedEntry>| signed.entry.seq) + 1;
        let is_gap = entries.first().is_some_and(|signed| signed.entry.seq != expected);
        if batch.len() as u64 >= BATCH_ENTRIES || is_gap {
            check(&mut batch, &mut last)?;
        }
        batch.extend(entries.into_iter().map(Arc::new));
        Ok(())
    })?;
    check(&mut batch, &mut last)?;
    if last.seq + 1 == start.first_seq && last.hash != start.prev {
        return Err(Error::damaged(format!("the entries in archive do not lead to entry {}", start.first_seq)));
    }
    archived.missing = missing.iter().map(|range| [*range.start(), *range.end()]).collect();
    Ok(archived)
}

/// Checks numbers, links, signatures and indexes from the first entry on; returns the number of the last.
fn check_history(
    blobs: &BlobStore,
    loaded: &LoadedStore,
    public: &PublicKey,
    (options, archived): (&VerifyOptions<'_>, &ArchivedEntries),
) -> Result<u64, Error> {
    let snapshot = loaded.history.snapshot();
    for archive in &snapshot.archives {
        archive.file(blobs)?.verify()?;
    }
    let (reader, newest) = (HistoryReader::new(blobs, snapshot.clone()), snapshot.newest());
    let (mut archives, mut check) =
        (snapshot.archives.iter().peekable(), ArchiveCheck::new(blobs, &snapshot.archives)?);
    let (mut prev, mut seq, mut has_tip) = (snapshot.start.prev, snapshot.start.first_seq, archived.has_tip);
    while seq <= newest {
        let last_seq = newest.min(seq + BATCH_ENTRIES - 1);
        let entries = (seq..=last_seq).map(|seq| reader.entry(seq)).collect::<Result<Vec<_>, _>>()?;
        check_chain(&entries, &ChainLink { seq: seq - 1, hash: prev }, public)?;
        for signed in &entries {
            // Archives are in the order of their entries: the one of this entry is the first that does not end before
            // it.
            while archives.next_if(|archive| archive.last() < signed.entry.seq).is_some() {}
            if let Some(archive) = archives.peek() {
                check.check_entry(blobs, archive, signed)?;
            }
            has_tip |= Some(signed.hash) == options.expect_tip;
            prev = signed.hash;
        }
        if let Some(progress) = options.progress {
            progress(last_seq, newest);
        }
        seq = last_seq + 1;
    }
    match options.expect_tip.filter(|_| !has_tip) {
        None => Ok(newest),
        Some(tip) if !archived.missing.is_empty() => Err(Error::damaged(format!(
            "the tip {tip} is not in the chain, nor in the files that were moved out and are there: put the missing ones back \
             into the folder archive, or the store was put back to an earlier state"
        ))),
        Some(tip) => Err(Error::damaged(format!(
            "the tip {tip} is not in the chain: the store was cut off or put back to an earlier state"
        ))),
    }
}

/// Number and hash of the entry that the next one has to follow.
#[derive(Clone, Copy)]
struct ChainLink {
    seq: u64,
    hash: Hash,
}

/// Checks numbers, links and signatures of entries behind another one, signatures on all processors.
fn check_chain(entries: &[Arc<SignedEntry>], before: &ChainLink, public: &PublicKey) -> Result<(), Error> {
    let mut prev = before.hash;
    for (signed, seq) in entries.iter().zip(before.seq + 1..) {
        if signed.entry.seq != seq || signed.entry.prev != prev {
            let message = format!("entry {seq} does not follow the one before: an entry was removed, added or moved");
            return Err(Error::damaged(message));
        }
        prev = signed.hash;
    }
    let share = entries.len().div_ceil(Pool::processors()).max(1);
    let first_unverified = |part: &[Arc<SignedEntry>]| part.iter().position(|signed| !signed.verifies(public));
    let wrong = std::thread::scope(|scope| {
        let parts: Vec<_> = entries.chunks(share).map(|part| scope.spawn(move || first_unverified(part))).collect();
        let first_unsigned = |(number, part): (usize, std::thread::ScopedJoinHandle<'_, _>)| {
            // A thread that panicked has checked nothing, so its first entry counts as wrong.
            part.join().unwrap_or(Some(0)).map(|at| number * share + at)
        };
        parts.into_iter().enumerate().filter_map(first_unsigned).min()
    });
    let Some(signed) = wrong.map(|at| &entries[at]) else { return Ok(()) };
    let (seq, op, branch) = (signed.entry.seq, signed.entry.op.name(), &signed.entry.branch);
    Err(Error::damaged(format!("entry {seq} ({op} {branch}) is not signed by the store's key")))
}

/// Recomputes the sum of every state out of its records; returns how many states there are.
fn check_states(loaded: &LoadedStore) -> Result<usize, Error> {
    let mut seen: HashSet<*const BranchVersion> = HashSet::new();
    let mut wrong = Ok(());
    let mut check = |state: &Arc<BranchVersion>| {
        if wrong.is_ok() && seen.insert(Arc::as_ptr(state)) {
            wrong = check_state(state);
        }
    };
    loaded
        .catalog
        .branches
        .values()
        .for_each(|branch| crate::memory::catalog::for_each_branch_state(branch, &mut check));
    let earlier = &loaded.catalog.retained;
    earlier.files.iter().flat_map(|file| file.full_states()).for_each(&mut check);
    wrong?;
    check_recent(loaded, &mut seen)?;
    for file in earlier.files.iter() {
        file.verify()?;
        file.read_all()?;
    }
    Ok(seen.len())
}

/// Checks earlier states that are in no file yet, each by what it has other than the one before it: there may be thousands of a
/// branch with many records.
fn check_recent(loaded: &LoadedStore, seen: &mut HashSet<*const BranchVersion>) -> Result<(), Error> {
    let present = |id: BranchId| loaded.catalog.branches.get(&id).map(|branch| (id, branch.state.clone()));
    let mut before: Option<(BranchId, Arc<BranchVersion>)> = None;
    for ((id, _), recent) in &loaded.catalog.retained.recent {
        let state = &recent.retained.state;
        let known = before.take().filter(|(of, _)| of == id).or_else(|| present(*id));
        if seen.insert(Arc::as_ptr(state)) {
            match known {
                Some((_, known)) => check_change(&known, state)?,
                None => check_state(state)?,
            }
        }
        before = Some((*id, state.clone()));
    }
    Ok(())
}

/// Checks a state by what it has other than one that was checked, so that what both share is not read again.
fn check_change(before: &BranchVersion, state: &BranchVersion) -> Result<(), Error> {
    let (mut sum, mut records, mut blocks) =
        (before.record_set_hash().clone(), before.totals().records, Blocks::default());
    for id in changed_ids_at_most(before, state, usize::MAX)?.unwrap_or_default() {
        if let Some(gone) = before.find(&id)? {
            sum.remove(&gone.hash()?);
            records -= 1;
        }
        if let Some(row) = state.find(&id)? {
            sum.add(&checked_hash(&row, &mut blocks)?);
            records += 1;
        }
    }
    check_sum(state, &sum, records)
}

/// Returns the hash of a row's content, if it is the one that is stored.
fn checked_hash(row: &Row, blocks: &mut Blocks) -> Result<Hash, Error> {
    let version = row.read_version(blocks)?;
    let hash = version.content.hash(&version.id);
    if hash == version.hash {
        return Ok(hash);
    }
    Err(Error::damaged(format!("the record {} is not what its hash says", version.id)))
}

fn check_sum(state: &BranchVersion, sum: &SetHash, records: u64) -> Result<(), Error> {
    if records == state.totals().records && BranchVersion::compute_head(sum, state.files()) == state.head() {
        return Ok(());
    }
    let head = state.head();
    Err(Error::damaged(format!("the {records} records of a branch do not add up to its head {head}")))
}

/// Reads every pack that some state needs: opening one for a check reads it whole.
fn check_packs(loaded: &LoadedStore, trees: &TreeStore) -> Result<(), Error> {
    let mut states = Vec::new();
    crate::memory::catalog::for_each_state(&loaded.catalog, |state| states.push(state.clone()));
    for name in reachable_packs(states.iter().map(|state| state.files())) {
        trees.pack(&name)?;
    }
    Ok(())
}

fn check_state(state: &BranchVersion) -> Result<(), Error> {
    let (mut sum, mut records, mut blocks) = (SetHash::default(), 0, Blocks::default());
    for row in state.rows(None)? {
        sum.add(&checked_hash(&row?, &mut blocks)?);
        records += 1;
    }
    check_sum(state, &sum, records)
}

/// Fails at a file that is not of a store, and at one that is named and missing; files that nothing names must be whole.
fn check_files(disk: &Arc<dyn Disk>, blobs: &BlobStore, loaded: &LoadedStore, trees: &TreeStore) -> Result<(), Error> {
    let io = |error: std::io::Error| Error::io("the store's folder could not be read", error);
    let known = [
        "format",
        "key",
        "key.pub",
        "journal",
        segment::FOLDER,
        "lock",
        manifest::PATH,
        manifest::NEW_PATH,
        reserve::FOLDER,
        unfinished_graph::PATH,
        unfinished_graph::NEW_PATH,
        lost_temporaries::PATH,
        lost_temporaries::NEW_PATH,
        unfinished_purge::PATH,
        unfinished_purge::NEW_PATH,
        history::ARCHIVE_FOLDER,
        "lost+found",
    ];
    UnfinishedPurge::read(&**disk)?;
    reserve::verify(&**disk)?;
    unfinished_graph::verify(disk, &disk.list("").map_err(io)?)?;
    lost_temporaries::verify(disk, &disk.list("").map_err(io)?)?;
    for name in disk.list("").map_err(io)? {
        // A batch that is being written beside this, or was when its process ended; the next opening removes that.
        if !known.contains(&name.as_str()) && !name.starts_with(SPILL_PREFIX) {
            return Err(Error::ForeignFile(name));
        }
    }
    if disk.list("").map_err(io)?.iter().any(|name| name == "lock") {
        let text = read_file(&**disk, "lock")?;
        if !String::from_utf8(text).is_ok_and(|text| is_lock_text(&text)) {
            return Err(Error::damaged("the file lock does not say what a process wrote there"));
        }
    }
    // Files before the one that the manifest names are not replayed by `load`, and may stay where their removal failed.
    check_journals(disk, loaded.first_journal)?;
    let mut live = live_files(&loaded.catalog);
    live.extend(loaded.history.archives().iter().map(|archive| archive.name));
    live.extend(&loaded.journal_segments);
    live.extend(loaded.stored.names());
    live.extend(trees.snapshot_names());
    for name in &loaded.file_index {
        IndexSegment::open(blobs, *name)?.verify()?;
    }
    live.extend(&loaded.file_index);
    for name in blobs.unreferenced(&live).map_err(io)? {
        // What a crash left is swept by gc; whatever else it is, it must at least be whole.
        let Ok(hash) = name.parse::<Hash>() else {
            if name.starts_with(TEMP_PREFIX) {
                continue;
            }
            return Err(Error::ForeignFile(format!("segments/{name}")));
        };
        check_unreferenced(blobs, hash)?;
    }
    Ok(())
}

/// Checks a file that nothing names: it must be whole, of whatever kind it is.
fn check_unreferenced(blobs: &BlobStore, name: Hash) -> Result<(), Error> {
    // Each kind refuses to open a file of another one, so they are tried in turn.
    if let Ok(archive) = Archive::open_file(blobs, name) {
        return Ok(archive.verify()?);
    }
    if let Some(checked) = manifest::check_part(blobs, name) {
        return checked;
    }
    if let Ok(index) = IndexSegment::open(blobs, name) {
        return Ok(index.verify()?);
    }
    if let Ok(derived) = DerivedFile::open(blobs, name) {
        return Ok(derived.verify()?);
    }
    if let Some(checked) = StateFile::check(blobs, name) {
        return Ok(checked?);
    }
    if let Ok(graph) = GraphFile::open(blobs, name) {
        return Ok(graph.verify()?);
    }
    if let Ok(pack) = Pack::open(blobs, name) {
        return Ok(pack.verify()?);
    }
    match Segment::open(blobs, name) {
        Ok(segment) => Ok(segment.verify()?),
        Err(_) => verify_snapshot(blobs, name).map(drop).map_err(trees::tree_error),
    }
}

/// Checks the names of journal files, and that those which are not in use any more are whole.
fn check_journals(disk: &Arc<dyn Disk>, first: u64) -> Result<(), Error> {
    let names = disk.list("journal").map_err(|error| Error::io("the journal's folder could not be read", error))?;
    for name in names {
        let Some(number) = Journal::parse_file_name(&name) else {
            return Err(Error::ForeignFile(format!("journal/{name}")));
        };
        if number < first
            && let Some(torn) =
                Replay::open(disk, number)?.for_each_frame::<Error>(0, |frame| Ok(has_whole_content(&frame)))?
        {
            let message = format!(
                "{} is damaged at byte {}, and a later journal file follows it",
                Journal::file_path(number),
                torn.offset
            );
            return Err(Error::damaged(message));
        }
    }
    Ok(())
}
