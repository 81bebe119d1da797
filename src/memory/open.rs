//! Opening a store, and making one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::admission::Admission;
use super::admission::disk_room::DiskRoom;
use super::admission::reserve::{self, Reserve};
use super::catalog::settings::Settings;
use super::command::log_record::LogRecord;
use super::load::{LoadSource, LoadedStore, load, retry_across_seals};
use super::lost_temporaries;
use super::maintenance::{Maintenance, unfinished_graph, unfinished_purge};
use super::merging::MergeState;
use super::storage::file_index::FileIndex;
use super::storage::manifest::{self, Manifest};
use super::storage::segments::Segments;
use super::storage::trees::TreeStore;
use super::storage::{Storage, read_file};
use super::store_path::{check_outside_stores, is_store};
use super::transaction::clock::{self, ClockReading};
use super::transaction::commands::{CreateRoot, read_log_record};
use super::transaction::leases::Leases;
use super::transaction::shared_events::SharedEvents;
use super::transaction::transact::LogTail;
use super::transaction::writer::WriterLock;
use super::unfinished_store::UnfinishedStore;
use super::views::file_search::FileViews;
use super::{Environment, Error, Memory, OpenError};
use crate::disk::{Disk, Lock, LockError, RealDisk};
use crate::journal::{FILE_HEADER_BYTES, Journal, TornTail};
use crate::lineage::{Key, PublicKey};
use crate::object::{BlobStore, Context, Hash, Time};
use crate::segment;
use crate::sync::{Mutex, Rank, RwLock};

/// What the file `format` says; it is read first.
pub(super) const FORMAT: &str = "engramfs store, format 2\n";
/// What the file `format` says in stores of version 0.1.0, which are refused.
const FIRST_FORMAT: &str = "engramfs store, format 1\n";

/// How a store is opened: whether it may be made, and whether its lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// For writing. The store is made if there is none, or an unfinished one.
    Create,
    /// For writing. The store is made; [`OpenError::Exists`] if there is one.
    CreateNew,
    /// For writing. [`OpenError::Missing`] if there is none.
    Existing,
    /// For reading, without the lock: also while another process writes.
    ReadOnly,
}

impl OpenMode {
    fn may_create(self) -> bool {
        matches!(self, OpenMode::Create | OpenMode::CreateNew)
    }
}

impl Memory {
    /// Opens the store in the folder `path`.
    ///
    /// `holder` is shown to other processes that find the store taken, such as `pid 12, mounted at /mnt/m`.
    ///
    /// The kind of an error says why it was not opened:
    ///
    /// - `NotFound`: there is no store.
    /// - `Exists`: there is one, and [`OpenMode::CreateNew`] was asked for.
    /// - `Invalid`: a new store would lie in a folder that holds something else, or in another store.
    /// - `Locked`: another process has it open for writing.
    /// - `Denied`: this user may not read the folder, or other users could read the store's key.
    /// - `Unsupported`: an older or newer version wrote it, or replays an entry differently.
    /// - `Damaged`: bytes that were durable are not those that were written.
    ///
    /// ```
    /// use engramfs::memory::{Actor, Environment, Kind, Memory, OpenMode};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("store.engramfs");
    /// let environment = || Environment::real(Actor { uid: 1000, gid: 1000, name: "ann".into() });
    /// let missing = Memory::open(&path, OpenMode::Existing, "pid 12", environment());
    /// assert_eq!(missing.err().unwrap().kind(), Kind::NotFound);
    ///
    /// let memory = Memory::open(&path, OpenMode::Create, "pid 12", environment())?;
    /// let second = Memory::open(&path, OpenMode::Existing, "pid 13", environment());
    /// assert_eq!(second.err().unwrap().kind(), Kind::Locked, "one process writes");
    /// memory.close()?;
    ///
    /// // Readers take no lock.
    /// let reader = Memory::open(&path, OpenMode::ReadOnly, "pid 13", environment())?;
    /// assert_eq!(reader.tip(), memory.tip());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(path: &Path, mode: OpenMode, holder: &str, environment: Environment) -> Result<Arc<Memory>, Error> {
        let disk = RealDisk::new(path);
        if mode.may_create() {
            make_folder(path, &disk, mode)?;
        } else if !dir_entry_exists(path, "format")? {
            return Err(OpenError::Missing(path.to_owned()).into());
        }
        let lock =
            (mode != OpenMode::ReadOnly).then(|| disk.lock(&lock_text(holder))).transpose().map_err(lock_error)?;
        Memory::open_on(Arc::new(disk), mode, lock, environment)
    }

    /// Makes a store in the folder `path` and closes it. Returns its tip.
    ///
    /// Fails like [`Memory::open`] with [`OpenMode::CreateNew`] and like [`Memory::close`]. What it has made is removed then, so
    /// that it can be tried again.
    pub fn create(path: &Path, holder: &str, environment: Environment) -> Result<Hash, Error> {
        let (disk, unfinished) = (RealDisk::new(path), UnfinishedStore::new(path));
        let made = make_folder(path, &disk, OpenMode::CreateNew);
        let lock = made.and_then(|()| disk.lock(&lock_text(holder)).map_err(lock_error));
        // Asked again now that nobody else can make one: a store of somebody else must not be removed for a failure.
        let lock = lock.and_then(|lock| match is_complete(&disk)? {
            true => Err(OpenError::Exists(path.to_owned()).into()),
            false => Ok(lock),
        });
        let lock = lock.inspect_err(|_| unfinished.remove_folders())?;
        let created = Memory::open_on(Arc::new(disk), OpenMode::CreateNew, None, environment).and_then(|memory| {
            memory.close()?;
            Ok(memory.tip())
        });
        if created.is_err() {
            unfinished.remove_all();
        }
        // Held to the end: what is removed must not be another process's store.
        drop(lock);
        created
    }

    /// Opens the store on any disk. `lock` is held until the store is dropped; a caller who passes `None` ensures that
    /// there is one writer.
    ///
    /// Fails like [`Memory::open`], except for `Locked`.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        mode: OpenMode,
        lock: Option<Lock>,
        environment: Environment,
    ) -> Result<Arc<Memory>, Error> {
        let mut fresh = false;
        if mode.may_create() && !is_complete(&*disk)? {
            create_store(&disk, &environment)?;
            fresh = true;
        }
        check_format(&*disk)?;
        let (signing_key, public_key) = read_keys(&*disk)?;
        // An empty store opens nothing in there; what has the place of the folder is refused all the same.
        disk.list(segment::FOLDER).map_err(|error| Error::io("the folder of segments could not be read", error))?;
        let segments = Segments::new(BlobStore::open_existing(disk.clone(), segment::FOLDER), false);
        let is_read_write = mode != OpenMode::ReadOnly;
        let trees = TreeStore::new(disk.clone(), false);
        let source = LoadSource {
            disk: &disk,
            public_key: &public_key,
            mac_key: &signing_key.mac_key(),
            segments: &segments,
            trees: &trees,
            is_read_write,
        };
        let mut loaded = if is_read_write { load(&source)? } else { retry_across_seals(&*disk, || load(&source))? };
        loaded.catalog.drop_orphans();
        let warnings = warnings(&loaded, (environment.clock)());
        let journal = if is_read_write { Some(Arc::new(loaded.journal.resume(&disk)?)) } else { None };
        let log_tail = LogTail { journal, last_clock_reading: ClockReading::now(&environment), ..loaded.log_tail };
        let manifest_bytes = loaded.stored.bytes();
        let file_index = FileIndex::open(&segments.blobs, loaded.file_index, loaded.stored.sidecars());
        let reserve = Reserve::open(disk.clone(), if is_read_write { environment.reserve_bytes } else { 0 });
        reserve.fill();
        let memory = Arc::new_cyclic(|me| Memory {
            disk,
            signing_key,
            public_key,
            environment,
            read_only: !is_read_write,
            warnings,
            writer: WriterLock::new(log_tail),
            catalog: RwLock::with_rank(Rank::Catalog, loaded.catalog),
            history: loaded.history,
            storage: Storage {
                manifest: Mutex::with_rank(Rank::Seal, loaded.stored),
                segments,
                trees,
                file_index,
                journal_segments: Mutex::new(loaded.journal_segments),
            },
            documents: Mutex::default(),
            file_views: FileViews::default(),
            admission: Admission::new(DiskRoom::new(reserve, manifest_bytes)),
            merging: MergeState::default(),
            maintenance: Maintenance::default(),
            leases: Leases::default(),
            events: SharedEvents::default(),
            weak_self: me.clone(),
            listeners: Mutex::default(),
            _lock: lock,
        });
        if is_read_write {
            memory.begin_writing(fresh)?;
        }
        memory.start_scrubber();
        memory.start_file_indexer();
        Ok(memory)
    }

    /// Finishes what an earlier process left, then starts the threads that write.
    fn begin_writing(self: &Arc<Memory>, fresh: bool) -> Result<(), Error> {
        if fresh || self.root("main").is_none() {
            self.create_main()?;
        }
        // The lock is held, so no other process has a batch of that name.
        super::transaction::batch::remove_spill_files(&*self.disk)
            .map_err(|error| Error::io("a file of a batch that was left over could not be removed", error))?;
        // Operations of an earlier process get their entry before anything else is written, in the name of who did
        // them.
        self.commit_all_pending()?;
        self.resume_purge()?;
        // Whoever held a lease did so through a file of the process that has ended.
        self.lose_all_leases();
        // The threads come last, since they write, too.
        self.start_maintenance();
        self.start_indexer();
        self.start_signal_expiry();
        Ok(())
    }

    /// The first entry: the root branch `main`, by whoever made the store.
    fn create_main(&self) -> Result<(), Error> {
        let command = || Ok(CreateRoot { name: "main".into(), settings: Settings::default() });
        self.transact(&self.environment.owner, &[], command).map(|_| ())
    }
}

/// Makes the folder of a store that may be new, and refuses one that none can be made in. A folder that is not a store is left as
/// it is, so this comes before the lock, which is a file too.
fn make_folder(path: &Path, disk: &RealDisk, mode: OpenMode) -> Result<(), Error> {
    // A store that is there is opened wherever it lies.
    if !is_store(path) {
        check_outside_stores(path)?;
    }
    disk.create_dir("").map_err(|error| Error::io("the store's folder could not be made", error))?;
    match (is_complete(disk)?, mode) {
        (true, OpenMode::CreateNew) => Err(OpenError::Exists(path.to_owned()).into()),
        (true, _) => Ok(()),
        // It may have been there, open to all. That of another user is theirs to close, and warned of.
        (false, _) => match disk.make_root_private() {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                Err(Error::io("the store's folder could not be closed to other users", error))
            }
            _ => Ok(()),
        },
    }
}

/// Returns what is to be said of a store that is opened at `now`: a torn tail, operations without an entry, a wrong clock.
fn warnings(loaded: &LoadedStore, now: Time) -> Vec<String> {
    let clock = clock::ahead_warning(loaded.log_tail.time, now);
    let unsigned = Some(loaded.log_tail.pending_operations()).filter(|count| *count > 0).map(unsigned_warning);
    loaded.journal.torn_tail().map(torn_warning).into_iter().chain(unsigned).chain(clock).collect()
}

fn torn_warning(torn: &TornTail) -> String {
    format!(
        "{} bytes behind byte {} of the journal were written when the last process or machine died, and were not \
         acknowledged as synced; they were cut away",
        torn.bytes, torn.offset
    )
}

fn unsigned_warning(count: u64) -> String {
    format!(
        "{count} operations on files behind the last entry stand in no signed entry yet; their codes, which only this \
         store's key can make, are right"
    )
}

static HOLDER_CONTEXT: Context = Context::new("engramfs 2026 lock holder v1");

/// Returns what the file `lock` holds: who has the store, and a check of it.
fn lock_text(holder: &str) -> String {
    format!("{holder} #{}", Hash::digest(&HOLDER_CONTEXT, holder.as_bytes()).short_hex())
}

/// Returns whether the text of the file `lock` is empty or what a holder wrote.
pub(super) fn is_lock_text(text: &str) -> bool {
    let text = text.trim_end_matches('\n');
    text.is_empty() || text.rsplit_once(" #").is_some_and(|(holder, _)| lock_text(holder) == text)
}

fn lock_error(error: LockError) -> Error {
    match error {
        LockError::Held { holder, path } => {
            let store = path.parent().unwrap_or(&path);
            let holder = holder.rsplit_once(" #").map_or(holder.clone(), |(holder, _)| holder.to_owned());
            OpenError::Locked { store: store.to_owned(), holder }.into()
        }
        LockError::Io { source, .. } => Error::io("the store's lock could not be taken", source),
    }
}

/// Returns whether a folder holds something with that name; [`OpenError::Denied`] if this process may not know.
pub(super) fn dir_entry_exists(folder: &Path, name: &str) -> Result<bool, Error> {
    match folder.join(name).symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let uid = rustix::process::geteuid().as_raw();
            Err(OpenError::Denied { path: folder.to_owned(), uid }.into())
        }
        Err(_) => Ok(false),
    }
}

/// Returns whether the store was made completely: the manifest is written last.
fn is_complete(disk: &dyn Disk) -> Result<bool, Error> {
    // The manifest is looked for by name and not read: one that can't be read is damage, and no reason to make a store
    // anew.
    let names = disk.list("").map_err(|error| Error::io("the store's folder could not be read", error))?;
    let has = |name: &str| names.iter().any(|entry| entry == name);
    if has(manifest::PATH) || has_content(disk, &has)? {
        return Ok(true);
    }
    // What a store that was never finished may have left; anything else belongs to somebody.
    let ours = [
        "format",
        "key",
        "key.pub",
        "journal",
        segment::FOLDER,
        "lock",
        manifest::NEW_PATH,
        reserve::FOLDER,
        unfinished_graph::PATH,
        unfinished_graph::NEW_PATH,
        lost_temporaries::PATH,
        lost_temporaries::NEW_PATH,
        unfinished_purge::PATH,
        unfinished_purge::NEW_PATH,
        "lost+found",
    ];
    if let Some(other) = names.iter().find(|name| !ours.contains(&name.as_str())) {
        return Err(OpenError::NotAStore(other.clone()).into());
    }
    Ok(false)
}

/// Returns whether there is more than making a store leaves before the manifest is written: then a
/// missing manifest is damage, and nothing may be put in its place.
fn has_content(disk: &dyn Disk, has: &dyn Fn(&str) -> bool) -> Result<bool, Error> {
    let list = |folder: &str| if has(folder) { disk.list(folder) } else { Ok(Vec::new()) };
    let look = || -> io::Result<bool> {
        let mut journals = 0;
        for name in list("journal")? {
            journals += disk.open(&format!("journal/{name}"))?.len()?;
            // Only a seal begins a second file, and it needs a manifest.
            if Journal::parse_file_name(&name) != Some(1) {
                return Ok(true);
            }
        }
        // A new journal file has a header and no frame.
        Ok(journals > FILE_HEADER_BYTES || !list(segment::FOLDER)?.is_empty())
    };
    look().map_err(|error| Error::io("the store's folder could not be read", error))
}

/// Makes an empty store. What an earlier, broken attempt left holds nothing and is replaced. The
/// manifest comes last, so a store either is whole or is not there.
fn create_store(disk: &Arc<dyn Disk>, environment: &Environment) -> Result<(), Error> {
    let mut seed = [0; 32];
    (environment.entropy)(&mut seed);
    let key = Key::from_seed(&seed);
    let write = || -> io::Result<()> {
        replace_file(&**disk, "format", FORMAT.as_bytes())?;
        replace_file(&**disk, "key", key.to_text().as_bytes())?;
        replace_file(&**disk, "key.pub", key.public_key().to_text().as_bytes())?;
        disk.create_dir("journal")?;
        disk.create_dir(segment::FOLDER)?;
        if disk.list("journal")?.iter().any(|name| Journal::file_path(1).ends_with(name.as_str())) {
            disk.remove(&Journal::file_path(1))?;
        }
        // The names are durable before the manifest is, which says that all of them are there.
        disk.sync_dir("")
    };
    write().map_err(|error| Error::io("the store could not be made", error))?;
    Journal::create(disk, &environment.salt())?;
    manifest::write(disk, &Manifest::empty(), &[], &key)
}

/// Writes a whole small file in place of what an earlier attempt left.
fn replace_file(disk: &dyn Disk, path: &str, bytes: &[u8]) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // It is new and written once; `create_store` syncs the folder once for all of them.
    let file = disk.create(path)?;
    file.write_all_at(bytes, 0)?;
    file.sync()
}

/// Checks the file `format`. [`OpenError::OldFormat`] and [`OpenError::NewerFormat`] for stores of other versions, kind
/// `Damaged` for any other text and where the file is missing.
pub(super) fn check_format(disk: &dyn Disk) -> Result<(), Error> {
    let bytes = read_file(disk, "format")?;
    if bytes == FORMAT.as_bytes() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&bytes);
    if text == FIRST_FORMAT {
        return Err(OpenError::OldFormat.into());
    }
    let number = text.strip_prefix("engramfs store, format ").and_then(|rest| rest.strip_suffix('\n'));
    if number.is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number > 2)) {
        return Err(OpenError::NewerFormat.into());
    }
    Err(Error::damaged("the file 'format' does not say what it should"))
}

/// Reads both halves of the signing key; a [`KeyError`](crate::lineage::KeyError) where others could read the secret
/// one, one is not a key, or they do not belong together.
pub(super) fn read_keys(disk: &dyn Disk) -> Result<(Key, PublicKey), Error> {
    let key = read_file(disk, "key")?;
    let mode = disk.mode("key").map_err(|error| Error::io("the signing key could not be looked at", error))?;
    // Asked before the key is parsed: who could read it could have signed anything, so a store with such a key proves
    // nothing.
    if mode & 0o077 != 0 {
        return Err(crate::lineage::KeyError::TooOpen(mode).into());
    }
    let key = Key::parse(&key)?;
    let public = PublicKey::parse(&read_file(disk, "key.pub")?)?;
    if key.public_key() == public { Ok((key, public)) } else { Err(crate::lineage::KeyError::Mismatch.into()) }
}

/// Reads a command; kind `Damaged`, with the number of the entry, where it holds none.
pub(super) fn parse_log_record(bytes: &[u8], seq: u64) -> Result<LogRecord, Error> {
    read_log_record(bytes).map_err(|error| Error::damaged(format!("entry {seq} can't be read: {error}")))
}
