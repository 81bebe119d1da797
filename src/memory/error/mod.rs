//! The errors of `Memory`: what happened, and how the caller can react.

mod agent;
mod branch;
mod embedder;
mod log;
mod merge;
mod proposal;
mod purge;
mod record;
mod signal;
mod store;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

pub use agent::AgentError;
pub use branch::{BranchError, SettingError};
pub use embedder::EmbedderError;
pub use log::SharedLogError;
pub use merge::{MergeError, RuleRefusal};
pub use proposal::ProposalError;
pub use purge::PurgeError;
pub use record::RecordError;
pub use signal::SignalError;
pub use store::{ClockError, CopyError, LimitError, OpenError};

use crate::branch::{DeltaError, NameError};
use crate::disk::WrongType;
use crate::journal::JournalError;
use crate::lineage::KeyError;
use crate::object::{CodecError, Hash};
use crate::search::{QueryError, SearchError};
use crate::segment::SegmentError;
use crate::sync::OverBudget;

/// Says how to react; each kind has one errno and one exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// There is no such store, branch, record or label: ENOENT.
    NotFound,
    /// The name is in use: EEXIST.
    Exists,
    /// The branch has child branches, or a log with entries that were not archived: ENOTEMPTY.
    NotEmpty,
    /// What was given breaks a rule: EINVAL.
    Invalid,
    /// A document, entry or value is over its limit: EFBIG.
    TooLarge,
    /// It can't be done while something else holds, and may be tried again: EBUSY.
    Busy,
    /// A merge waits for conflicts to be resolved: EBUSY.
    Conflict,
    /// A gate refused, or waits for an approval: EPERM.
    Refused,
    /// It is forbidden as such: `main` stays, a rule lets files only grow, a name is another user's: EPERM.
    NotPermitted,
    /// The caller may not, and another user may: EACCES.
    Denied,
    /// Nothing can be changed here: EROFS.
    ReadOnly,
    /// The branch was merged or discarded: ESTALE.
    Gone,
    /// The time limit was reached: ETIMEDOUT.
    Timeout,
    /// The disk is full, or the memory of all users: ENOSPC.
    Full,
    /// A user, or a branch, may use no more of the disk or of the memory: EDQUOT.
    Quota,
    /// This build or mount does not do it: EOPNOTSUPP.
    Unsupported,
    /// The server, or the machine, can open no more files: ENFILE.
    Descriptors,
    /// The disk failed, or a thread of the server: EIO.
    Io,
    /// Bytes are not those that were written: EIO.
    Damaged,
    /// Another process has the store: EBUSY.
    Locked,
    /// This thread must not wait for another one; the caller repeats it on one that may.
    WouldWait,
}

/// How to react to an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// What sort of error it is, which fixes its errno and its exit code.
    pub kind: Kind,
    /// A word for programs, such as `wrong_dimension`, which stays the same whatever the text says.
    pub code: &'static str,
    /// What to do next, which is never in the error's text.
    pub hint: Cow<'static, str>,
}

impl Advice {
    /// Makes advice of its parts; the hint is a phrase in the imperative.
    pub fn new(kind: Kind, code: &'static str, hint: impl Into<Cow<'static, str>>) -> Advice {
        Advice { kind, code, hint: hint.into() }
    }
}

/// What went wrong. The text says what happened, to what; [`Error::hint`] says what to do next.
///
/// All callers who wait for one plan of a merge get its error, so errors can be cloned.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No branch is at that name path. Kind `NotFound`.
    #[error("there is no branch {0}")]
    NoBranch(String),
    /// The branch has no checkpoint with that label. Kind `NotFound`.
    #[error("the branch has no checkpoint {0}")]
    NoCheckpoint(String),
    /// The branch never had the state that this revision names. Kind `NotFound`.
    #[error("the branch has no state {0}")]
    NoState(String),
    /// The branch had that state, but it was dropped by `config/keep` or for want of room. Kind `NotFound`.
    #[error("the state {0} is not kept any longer")]
    NotKept(String),
    /// Nothing that the viewer may see has this hash. Kind `NotFound`.
    #[error("nothing readable has the hash {0}")]
    NoHash(Hash),
    /// No entry has that number. Kind `NotFound`.
    #[error("there is no entry {0}")]
    NoEntry(u64),
    /// The entry was moved out of the store. Kind `NotFound`.
    #[error("entry {0} was moved out by `engramfs archive`")]
    EntryArchived(u64),
    /// There is nothing with that name to search. Kind `Invalid`.
    #[error("there is nothing called '{0}' to search")]
    NoScope(String),
    /// The branch was merged or discarded. Kind `Gone`.
    #[error("the branch was merged or discarded")]
    Gone,
    /// This thread must not wait for another one; repeat the request on one that may. Kind `WouldWait`.
    #[error("somebody else is writing")]
    WouldWait,
    /// Nothing can be written, for this reason. Kind `ReadOnly`.
    #[error("nothing can be written: {0}")]
    ReadOnly(String),
    /// The file was changed since it was looked at. Kind `Busy`.
    #[error("the file was changed meanwhile")]
    FileChanged,
    /// The file, of this many bytes, is too large to be shown through a mount. Kind `TooLarge`.
    #[error("the file has {0} bytes, more than can be shown through a mount")]
    TooLargeToShow(u64),
    /// More differs than one answer may hold: this many changes. Kind `Invalid`.
    #[error("more than {0} records or files differ")]
    TooManyChanges(usize),
    /// A thread of the server panicked while it did this. Kind `Io`.
    #[error("{0} ended in an internal error")]
    Internal(&'static str),
    /// The disk refused; `ENOSPC`, `EDQUOT` and too many open files have kinds of their own.
    #[error("{what}: {source}")]
    Disk {
        /// What could not be done; the message begins with it.
        what: String,
        /// The disk's own error.
        source: Arc<io::Error>,
    },
    /// Stored bytes are wrong, and which; no answer is made of them.
    #[error("{0}")]
    Damaged(String),
    /// Something is in the store's folder, at this path, that no store has; all else may be right. Kind `Damaged`.
    #[error("the file {0} does not belong into a store")]
    ForeignFile(String),
    /// A file of entries that were moved out of the lineage is damaged, and nothing else in the store. Kind `Damaged`.
    #[error("the file {path} of entries that were moved out is damaged: {reason}")]
    MovedFile {
        /// Its path in the store.
        path: String,
        /// How it shows, as the end of the message.
        reason: String,
    },
    /// Stored bytes are not of the form they should be, though their hash may be right. Kind `Damaged`.
    #[error("stored bytes are not of the expected form: {0}")]
    Codec(#[from] CodecError),
    /// A segment that is needed is not there, as where somebody removed its file. Kind `Damaged`.
    #[error("the segment {name} could not be {what}: it is missing")]
    NoSegment {
        /// Name of its file.
        name: String,
        /// What was tried: a participle, such as `read`.
        what: &'static str,
        /// The disk's own error.
        source: Arc<io::Error>,
    },
    /// A segment can't be read or written; a full disk has a kind of its own.
    #[error(transparent)]
    Segment(Arc<SegmentError>),
    /// The journal can't be read or written, or has failed before: then nothing is taken until the store is opened
    /// anew.
    #[error(transparent)]
    Journal(Arc<JournalError>),
    /// The signing key can't be used, without which no entry can be checked or made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A name is refused for its characters or its length, or as one that is reserved. Kind `Invalid`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A query is not understood, which its hint corrects. Kind `Invalid`.
    #[error(transparent)]
    Query(Arc<QueryError>),
    /// A query is understood and has no answer, such as beyond its time limit.
    #[error(transparent)]
    Search(Arc<SearchError>),
    /// A record is not taken, nor any other of its batch. Kind: see [`RecordError::advice`].
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A branch or checkpoint is not made, renamed or discarded. Kind: see [`BranchError::advice`].
    #[error(transparent)]
    Branch(#[from] BranchError),
    /// A setting keeps its value. Kind: see [`SettingError::advice`].
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A merge, a revert or a resolution is not done. Kind: see [`MergeError::advice`].
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// Something is not done to a shared log. Kind: see [`SharedLogError::advice`].
    #[error(transparent)]
    Log(#[from] SharedLogError),
    /// Something is not done to a signal. Kind: see [`SignalError::advice`].
    #[error(transparent)]
    Signal(#[from] SignalError),
    /// A state is not proposed, nothing is said of it, or a gate does not let it pass.
    #[error(transparent)]
    Proposal(#[from] ProposalError),
    /// An agent can't have a name. Kind: see [`AgentError::advice`].
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A purge is not done: nothing of what was named has gone. Kind: see [`PurgeError::advice`].
    #[error(transparent)]
    Purge(#[from] PurgeError),
    /// A rule of `config/rules` forbids it. Kinds `Denied` and `NotPermitted`.
    #[error(transparent)]
    Rule(#[from] RuleRefusal),
    /// A store is not opened or made. Kind: see [`OpenError::advice`].
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A store is not copied or verified, or a place lies in one. Kind: see [`CopyError::advice`].
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// Disk, memory or a quota has run out. Kinds `Full` and `Quota`.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The clock can't be trusted to give entries their time. Kind `Invalid`.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// Vectors are not made anew. Kind: see [`EmbedderError::advice`].
    #[error(transparent)]
    Embedder(#[from] EmbedderError),
}

impl Error {
    /// Returns [`Error::Damaged`]; `message` is a clause that says what is damaged and how that shows.
    pub(super) fn damaged(message: impl Into<String>) -> Error {
        Error::Damaged(message.into())
    }

    /// Returns [`Error::Disk`]; `what` is a clause that says what could not be done, such as "an old note could not
    /// be removed".
    pub(super) fn io(what: impl Into<String>, source: io::Error) -> Error {
        Error::Disk { what: what.into(), source: Arc::new(source) }
    }

    /// Returns what sort of error it is, which fixes its errno and its exit code.
    pub fn kind(&self) -> Kind {
        self.advice().kind
    }

    /// Returns a word for programs, such as `wrong_dimension`, which later versions keep whatever the text says.
    pub fn code(&self) -> &'static str {
        self.advice().code
    }

    /// Returns what to do next, a phrase in the imperative; the error's own text never says it.
    pub fn hint(&self) -> Cow<'static, str> {
        self.advice().hint
    }

    fn too_large_advice(&self) -> Advice {
        if let Error::TooManyChanges(_) = self {
            let hint = "compare states closer together, or exports of both";
            return Advice::new(Kind::Invalid, "too_many_changes", hint);
        }
        let hint = "show it from the store: engramfs show STORE:NAME-PATH HASH";
        Advice::new(Kind::TooLarge, "too_large_to_show", hint)
    }

    /// Returns what to do with a file that the store can do without.
    fn file_hint(&self) -> &'static str {
        match self {
            Error::MovedFile { .. } => {
                "put the right file back, or move this one away: the store needs no file of archive"
            }
            _ => "move it out of the store's folder, then try again",
        }
    }

    /// Returns kind, code and hint, all out of one match, so that they can't disagree.
    pub fn advice(&self) -> Advice {
        match self {
            Error::NoBranch(_) => {
                Advice::new(Kind::NotFound, "no_such_branch", "list the branches with ls, or with engramfs log --graph")
            }
            Error::NoCheckpoint(_) => {
                Advice::new(Kind::NotFound, "no_such_checkpoint", "list them with ls checkpoints/, or engramfs log")
            }
            Error::NoState(_) => Advice::new(
                Kind::NotFound,
                "no_such_state",
                "name an entry of the branch's own lineage, or a time since it was made and not in the future",
            ),
            Error::NotKept(_) => {
                Advice::new(Kind::NotFound, "not_kept", "name a checkpoint, or a state that config/keep still keeps")
            }
            Error::NoHash(_) => Advice::new(
                Kind::NotFound,
                "no_such_hash",
                "copy one from lineage or conflicts; what config/keep has let go of can't be shown",
            ),
            Error::NoEntry(_) => {
                Advice::new(Kind::NotFound, "no_such_entry", "take its number from lineage, where they begin with 1")
            }
            Error::EntryArchived(_) => Advice::new(
                Kind::NotFound,
                "archived",
                "run engramfs archive STORE --print, which shows it while the files in STORE/archive are there",
            ),
            Error::NoScope(_) => Advice::new(
                Kind::Invalid,
                "bad_scope",
                "write branch, log, files, names of root branches, or log:NAME for the log of a branch that has ended",
            ),
            Error::Gone => Advice::new(
                Kind::Gone,
                "gone",
                "see the parent's lineage: if it was merged, its records are in the parent",
            ),
            Error::WouldWait => Advice::new(Kind::WouldWait, "would_wait", "wait, since this is tried again by itself"),
            Error::ReadOnly(_) => Advice::new(Kind::ReadOnly, "read_only", "mount or open the store anew, for writing"),
            Error::FileChanged => Advice::new(Kind::Busy, "changed", "read the file again before you change it"),
            Error::TooManyChanges(_) | Error::TooLargeToShow(_) => self.too_large_advice(),
            Error::Internal(_) => Advice::new(Kind::Io, "internal", "see the mount's log, and report it"),
            Error::Disk { source, .. } => disk_advice(source),
            Error::Damaged(_) | Error::Codec(_) | Error::NoSegment { .. } => damaged(RESTORE),
            Error::ForeignFile(_) | Error::MovedFile { .. } => damaged(self.file_hint()),
            Error::Segment(error) => segment_advice(error),
            Error::Journal(error) => journal_advice(error),
            Error::Key(error) => key_advice(error),
            Error::Name(error) => name_advice(error),
            Error::Query(error) => Advice::new(Kind::Invalid, "bad_question", error.hint()),
            Error::Search(error) => search_advice(error),
            Error::Record(error) => error.advice(),
            Error::Branch(error) => error.advice(),
            Error::Setting(error) => error.advice(),
            Error::Merge(error) => error.advice(),
            Error::Log(error) => error.advice(),
            Error::Signal(error) => error.advice(),
            Error::Proposal(error) => error.advice(),
            Error::Agent(error) => error.advice(),
            Error::Purge(error) => error.advice(),
            Error::Rule(error) => error.advice(),
            Error::Open(error) => error.advice(),
            Error::Copy(error) => error.advice(),
            Error::Limit(error) => error.advice(),
            Error::Clock(error) => error.advice(),
            Error::Embedder(error) => error.advice(),
        }
    }
}

impl From<SegmentError> for Error {
    fn from(error: SegmentError) -> Error {
        match error {
            SegmentError::Io { name, what, source } if source.kind() == io::ErrorKind::NotFound => {
                Error::NoSegment { name, what, source: Arc::new(source) }
            }
            error => Error::Segment(Arc::new(error)),
        }
    }
}

impl From<DeltaError> for Error {
    fn from(error: DeltaError) -> Error {
        match error {
            DeltaError::Segment(error) => error.into(),
            error => Error::damaged(format!("an earlier state can't be read or written: {error}")),
        }
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Error {
        Error::Journal(Arc::new(error))
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Error {
        Error::Query(Arc::new(error))
    }
}

impl From<SearchError> for Error {
    fn from(error: SearchError) -> Error {
        match error {
            SearchError::Segment(error) => error.into(),
            error => Error::Search(Arc::new(error)),
        }
    }
}

impl From<OverBudget> for Error {
    fn from(over: OverBudget) -> Error {
        LimitError::from(over).into()
    }
}

const RESTORE: &str = "restore the store from a backup";

fn damaged(hint: impl Into<Cow<'static, str>>) -> Advice {
    Advice::new(Kind::Damaged, "damaged", hint)
}

/// The numbers that the disk gives for a reason of its own are kept apart, all others are failures.
fn disk_advice(error: &io::Error) -> Advice {
    if error.get_ref().is_some_and(|inner| inner.is::<WrongType>()) {
        return damaged("put the right file back, or restore the store from a backup");
    }
    let (kind, code, hint) = match error.raw_os_error() {
        Some(libc::ENOSPC) => (Kind::Full, "disk", "free space on the store's disk, then try again"),
        Some(libc::EDQUOT) => {
            (Kind::Quota, "disk", "free space on the store's disk or ask for a larger quota, then try again")
        }
        Some(libc::EMFILE) => (
            Kind::Descriptors,
            "out_of_descriptors",
            "close files in the mount, or mount it anew with a larger `ulimit -n`: its server is out of file descriptors",
        ),
        Some(libc::ENFILE) => (
            Kind::Descriptors,
            "out_of_descriptors",
            "end what has many files open, or raise the sysctl fs.file-max: the machine is out of file descriptors",
        ),
        Some(libc::ENOMEM) => (Kind::Full, "out_of_memory", "give the server more memory, then try again"),
        _ => (Kind::Io, "disk", "check the disk and the store's permissions, then try again"),
    };
    Advice::new(kind, code, hint)
}

fn segment_advice(error: &SegmentError) -> Advice {
    match error {
        SegmentError::Damaged { .. } => damaged(error.hint()),
        SegmentError::Io { source, .. } => disk_advice(source),
    }
}

fn journal_advice(error: &JournalError) -> Advice {
    match error {
        JournalError::Damaged { .. } => damaged(error.hint()),
        JournalError::Poisoned { .. } => Advice::new(Kind::ReadOnly, "journal_failed", error.hint()),
        JournalError::Io { source, .. } => disk_advice(source),
    }
}

fn key_advice(error: &KeyError) -> Advice {
    let kind = match error {
        KeyError::TooOpen(_) => Kind::Denied,
        KeyError::Malformed(_) | KeyError::Mismatch => Kind::Damaged,
    };
    Advice::new(kind, "key", error.hint())
}

fn name_advice(error: &NameError) -> Advice {
    Advice::new(Kind::Invalid, "bad_name", error.hint())
}

fn search_advice(error: &SearchError) -> Advice {
    let (kind, code) = match error {
        SearchError::Segment(error) => return segment_advice(error),
        SearchError::Dimension { .. } => (Kind::Invalid, "wrong_dimension"),
        SearchError::ZeroVector => (Kind::Invalid, "zero_vector"),
        SearchError::NoRecord(_) => (Kind::NotFound, "no_such_record"),
        SearchError::Timeout(_) => (Kind::Timeout, "timeout"),
    };
    Advice::new(kind, code, error.hint())
}
