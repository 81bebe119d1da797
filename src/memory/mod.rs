//! Everything a caller does to a store goes through [`Memory`].
//!
//! A change is one signed entry, one frame of the journal and one swap of the catalog; readers clone the
//! catalog's present versions and wait for nobody. The order of locks is
//! [`crate::sync::Rank`]; none of them is held when a listener is called or a caller waits.
//!
//! Everything fails with an [`Error`], and callers match its variants or its [`Kind`]. Of these any method may answer,
//! and few say so:
//!
//! - `Gone` for a [`BranchId`] that was merged or discarded, whatever is asked of it;
//! - `NotFound` for a [`View`] of a checkpoint that is not there, or of an earlier state that is not kept any more;
//! - `Io` or `Descriptors` if the disk fails, `Damaged` if bytes are not those that were written, of whatever is read;
//! - of whatever changes something `ReadOnly` if the store was opened so, or a flush failed; `Full` if the disk or the
//!   memory of all users is, `Quota` if the caller's share of them is; `Invalid`, code `clock_jumped`, if the clock was
//!   set far ahead;
//! - `WouldWait` on threads that asked for it ([`without_waiting`](crate::sync::without_waiting)), and nothing has
//!   changed then.
//!
//! If a change fails nothing of it has happened, unless its method says otherwise.
//!
//! Files are changed by one [`FileOp`] at a time and read from a [`Tree`], a value that never changes:
//!
//! ```
//! use std::sync::Arc;
//!
//! use engramfs::disk::ForgetfulDisk;
//! use engramfs::memory::{
//!     Actor, EditError, Environment, FILES_ROOT, FileName, FileOp, Memory, NewInode, OpenMode, TreeError, View,
//! };
//!
//! # fn main() -> Result<(), EditError> {
//! let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
//! let environment = Environment::real(ann.clone());
//! let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
//! let main = memory.root("main").unwrap();
//!
//! let name = FileName::new(b"plan.md")?;
//! let create = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 };
//! let inode = memory.edit(&ann, main, create.clone())?.inode;
//! memory.edit(&ann, main, FileOp::Write { inode, offset: 0, bytes: b"tea, then work".into() })?;
//!
//! let tree = memory.files(&View::Branch(main))?;
//! assert_eq!(tree.read(tree.resolve(b"plan.md")?, 5, 4, memory.packs())?, b"then");
//! assert!(matches!(memory.edit(&ann, main, create), Err(EditError::Tree(TreeError::Exists))));
//! # Ok(())
//! # }
//! ```

mod admission;
mod backup;
mod catalog;
mod command;
mod dump;
mod environment;
mod error;
#[cfg(any(fuzzing, debug_assertions))]
#[doc(hidden)]
pub mod fuzzing;
mod history;
mod load;
mod lost_temporaries;
mod maintenance;
mod merging;
mod open;
mod storage;
mod store_path;
mod transaction;
mod unfinished_store;
mod verify;
mod views;

use std::sync::{Arc, Weak};

pub use backup::{backup, restore};
pub use catalog::settings::{Setting, check as check_setting, parse_duration_nanos, parse_size};
pub use catalog::signals::{Publisher, SIGNAL_BYTES_MAX, Signal, SignalId, SignalLifetime};
pub use catalog::{BRANCH_NUMBERS, BranchId, Revision, View};
pub use command::merge_verb::{MergeVerb, RevertVerb};
pub use command::record_input::{DOCUMENT_BYTES_MAX, RecordEdit, RecordInput, SKIP_UNCHANGED_LINE, parse_skip_line};
pub use command::record_patch::{EXPORTED_LINE_BYTES_MAX, RecordPatch};
pub use command::shared_log_entry::{SharedLogEntryInput, parse_cursor_line};
pub use dump::{ImportedRecord, OwnLog, SharedLogImport};
pub use environment::Environment;
pub use error::{
    Advice, AgentError, BranchError, ClockError, CopyError, EmbedderError, Error, Kind, LimitError, MergeError,
    OpenError, ProposalError, PurgeError, RecordError, RuleRefusal, SettingError, SharedLogError, SignalError,
};
pub use history::HistoryFile;
pub use lost_temporaries::LostTemporary;
pub use maintenance::expiry::{OpenFiles, OpensBlocked, WritersBlocked};
pub use maintenance::gc::GUARD_PREFIX;
pub use maintenance::purge::PurgeOptions;
pub use merging::find_state::FoundState;
pub use merging::merge::MergeOptions;
pub use merging::merge_result::MergeResult;
pub use open::OpenMode;
pub use store_path::check_outside_stores;
pub use transaction::batch::IngestBatch;
pub use transaction::commands::{ForkOptions, ReviewRequest, check_closed_name};
pub use transaction::commit::{CommitOptions, CommitReceipt};
pub use transaction::files::EditError;
pub use transaction::leases::Lease;
pub use transaction::shared_events::EventRange;
pub use transaction::shared_log::AppendReceipt;
pub use verify::{VerifyOptions, verify, verify_on};
pub use views::documents::{Document, LiveStatus};
pub use views::export::Export;
pub use views::lookup::{BranchInfo, ShowTarget, ShownObject, Viewer};
pub use views::shared_log::{SharedLog, SharedLogPosition};
pub use views::shared_state::{OwnSignals, ProposedState, StoredSettings};
pub use views::snapshot::{Record, RecordStat, Snapshot};

pub use crate::branch::{check_name, check_record_id};
pub use crate::disk::install_sigbus_handler;
pub use crate::file_index::Credentials;
pub use crate::lineage::Side;
pub use crate::object::{Hash, Time};
pub use crate::search::{Answer, Query};

// Given out again here: `fs` and `fuse` take trees from this layer alone, and know none below it.
pub use crate::workspace::{
    Attrs, ChangedNode, Directory, FileKind, FileName, FileNode, FileOp, FileOutcome, NAME_BYTES_MAX, NewInode,
    ROOT as FILES_ROOT, RangeOp, RenameMode, Tree, TreeError, XattrMode, unshared_bytes,
};

use crate::disk::{Disk, DiskSpace, Lock};
use crate::lineage::{Key, PublicKey};
use crate::sync::{MemoryBudget, Mutex, ReadGuard, RwLock};
use catalog::{BranchRef, Catalog};
use history::History;
use transaction::writer::WriterLock;

/// Who acts: uid, gid and name of the caller.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The effective uid of the calling process.
    pub uid: u32,
    /// The effective gid; other groups of the user are not known.
    pub gid: u32,
    /// The user's name, for entries of branches without `config/agent`.
    pub name: Arc<str>,
}

/// What a listener is told after a change. The catalog already has the change.
#[derive(Clone)]
pub struct BranchEvent {
    /// The branch that was changed; after a merge or discard it has ended.
    pub branch: BranchId,
    /// The parent of that branch, which a merge changed, too; `None` for a root branch.
    pub parent: Option<BranchId>,
    /// The step as the lineage names it, such as `merge`; `signal` for a change of signals, which has no entry.
    pub op: &'static str,
    /// The files that a merge, promote, pull or rollback has replaced, by branch.
    pub files: Vec<ReplacedFiles>,
    /// The branch and its parent as they were, to be let go of with no lock held.
    previous: Vec<BranchRef>,
}

/// [`BranchEvent::op`] where earlier states of all branches went for want of room, on the disk or in memory; each root branch hears of it.
pub const KEPT_DROPPED: &str = "kept_dropped";

impl BranchEvent {
    fn for_root(branch: BranchId, op: &'static str) -> BranchEvent {
        BranchEvent { branch, parent: None, op, files: Vec::new(), previous: Vec::new() }
    }

    /// Returns the name path of the branch before it was changed; `None` if it was not there.
    pub fn path_before(&self) -> Option<&str> {
        let branch = self.previous.iter().find(|branch| branch.id == self.branch)?;
        Some(&branch.path)
    }
}

/// A branch's files before and after.
#[derive(Clone)]
pub struct ReplacedFiles {
    /// The branch of the files; it may have ended since.
    pub branch: BranchId,
    /// Its files as they were; a mount has the kernel forget what differs.
    pub before: Tree,
    /// Its files as they were right after the change.
    pub after: Tree,
}

type Listener = Arc<dyn Fn(&BranchEvent) + Send + Sync>;

/// An open store.
///
/// ```
/// use engramfs::memory::{Actor, Environment, Memory, MergeVerb, OpenMode, Query, RecordEdit, RecordInput, View};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
/// let environment = Environment::real(ann.clone());
/// let memory = Memory::open(folder.path(), OpenMode::Create, "an example", environment)?;
/// let main = memory.root("main").ok_or("a new store has this branch")?;
///
/// // A fork is a branch of its own, which main sees nothing of until it is merged.
/// let trial = memory.fork(&ann, main, "trial", None)?;
/// let input = RecordInput { vector: None, text: Some("Ann prefers green tea".into()), metadata: "{}".into() };
/// memory.commit(&ann, trial, vec![RecordEdit::Put { id: "tea".into(), input }])?;
/// let query = Query::parse("green tea")?;
/// assert!(memory.query(&View::Branch(main), &query)?.hits.is_empty());
///
/// let result = memory.merge(&ann, trial, MergeVerb::Merge, false)?;
/// assert_eq!(result.status, "merged");
/// let answer = memory.query(&View::Branch(main), &query)?;
/// assert_eq!(&*answer.hits[0].id, "tea");
/// memory.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Memory {
    disk: Arc<dyn Disk>,
    signing_key: Key,
    public_key: PublicKey,
    environment: Environment,
    read_only: bool,
    warnings: Vec<String>,
    /// The end of the chain. Whoever holds it is the one writer.
    writer: WriterLock,
    catalog: RwLock<Catalog>,
    history: History,
    storage: storage::Storage,
    documents: Mutex<views::documents::DocumentCache>,
    file_views: views::file_search::FileViews,
    admission: admission::Admission,
    merging: merging::MergeState,
    maintenance: maintenance::Maintenance,
    leases: transaction::leases::Leases,
    events: transaction::shared_events::SharedEvents,
    /// Itself, for threads and leases that must not keep it open.
    weak_self: Weak<Memory>,
    listeners: Mutex<Vec<Listener>>,
    _lock: Option<Lock>,
}

impl Memory {
    /// Returns one line for each problem found at opening that people should know of, such as a torn tail that was cut
    /// off. Usually empty.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the present time by the store's clock. It may be before the time of the newest entry, if the clock was
    /// set back.
    pub fn now(&self) -> Time {
        (self.environment.clock)()
    }

    /// Returns the accounts of memory: who holds how many bytes, and how many each may. There is no limit before
    /// [`Memory::limit_memory`].
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.admission.budget
    }

    /// Returns an id for a record that comes without one: a UUIDv7 (RFC 9562), so that ids sort by the time at which they
    /// were made, to the millisecond.
    pub fn fresh_id(&self) -> Arc<str> {
        let mut random = [0; 10];
        (self.environment.entropy)(&mut random);
        environment::uuid_v7((self.now().0 / 1_000_000).max(0) as u64, random).into()
    }

    /// Calls `listener` after every change, from the thread that made it and with no lock held. Listeners can't be
    /// removed.
    pub fn on_change(&self, listener: Listener) {
        self.listeners.lock().push(listener);
    }

    /// Returns size and free room of the store's disk, in bytes and inodes. Fails with `Error::Disk` if the disk can't
    /// be asked.
    pub fn disk_space(&self) -> Result<DiskSpace, Error> {
        self.disk.space().map_err(|error| Error::io("the store's disk could not be asked for its space", error))
    }

    fn catalog(&self) -> ReadGuard<'_, Catalog> {
        self.catalog.read()
    }

    /// Returns the catalog of this moment as a value. For an argument: a guard there would be held until the whole statement
    /// ends, and all writers would wait for what is called.
    fn catalog_now(&self) -> Catalog {
        self.catalog().clone()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Told and not waited for: the last reference may go with one of these threads, which would wait for itself.
        self.maintenance.thread.stop();
        self.maintenance.indexer.stop();
        self.maintenance.file_indexer.stop();
        self.maintenance.embedding.stop();
        self.maintenance.scrubber.stop();
        self.maintenance.signal_expiry.stop();
    }
}
