//! The errors of the front door, grouped by what the caller can do about them.

use std::fmt;
use std::io;

use crate::branch::NameError;
use crate::disk::WrongType;
use crate::journal::JournalError;
use crate::lineage::KeyError;
use crate::object::{CodecError, Hash};
use crate::search::QueryError;
use crate::segment::SegmentError;
use crate::sync::OverBudget;

/// Says how to react; each kind has one errno and one exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// There is no such store, branch, record or label.
    NotFound,
    /// The name is in use.
    Exists,
    /// The branch has child branches.
    NotEmpty,
    /// What was given breaks a rule.
    Invalid,
    /// A document is over its limit.
    TooLarge,
    /// It can't be done while something else holds.
    Busy,
    /// A merge waits for conflicts to be settled.
    Conflict,
    /// A gate refused.
    Refused,
    /// The tree's own shape forbids it.
    NotPermitted,
    /// The caller may not.
    Denied,
    /// Nothing can be changed here.
    ReadOnly,
    /// The branch was merged or discarded.
    Gone,
    /// The time limit was reached.
    Timeout,
    /// The disk is full, or the memory of all users.
    Full,
    /// A user, or a branch, may use no more of the disk or of the memory.
    Quota,
    /// This build does not do it.
    Unsupported,
    /// The server, or the machine, can open no more files.
    Descriptors,
    /// The disk failed.
    Io,
    /// Bytes are not those that were written.
    Damaged,
    /// Another process has the store.
    Locked,
    /// This thread must not wait for another one; the caller repeats it on one that may.
    WouldWait,
}

/// What went wrong: how to react, a stable word for programs, a sentence, and what to do next.
#[derive(Debug, Clone)]
pub struct Error {
    /// How to react.
    pub kind: Kind,
    /// A stable word such as `wrong_dimension`.
    pub code: &'static str,
    /// What happened, to what.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

impl Error {
    /// Makes an error.
    pub fn new(kind: Kind, code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error { kind, code, message: message.into(), hint: hint.into() }
    }

    /// Makes an error out of one of another module and its hint.
    pub(super) fn of(kind: Kind, code: &'static str, error: &dyn fmt::Display, hint: String) -> Error {
        Error::new(kind, code, error.to_string(), hint)
    }

    /// Says that stored bytes are wrong.
    pub(super) fn damaged(message: impl Into<String>) -> Error {
        Error::new(Kind::Damaged, "damaged", message, "restore the store from a backup")
    }

    /// Wraps an error of the disk.
    pub(super) fn io(what: &str, error: &io::Error) -> Error {
        if error.get_ref().is_some_and(|inner| inner.is::<WrongType>()) {
            let hint = "put the right file back, or restore the store from a backup";
            return Error::new(Kind::Damaged, "damaged", format!("{what}: {error}"), hint);
        }
        let (kind, code, hint) = match error.raw_os_error() {
            Some(libc::ENOSPC) => (Kind::Full, "disk", "free space on the store's disk, then try again"),
            Some(libc::EDQUOT) => {
                (Kind::Quota, "disk", "free space on the store's disk or ask for a larger quota, then try again")
            }
            Some(libc::EMFILE) => (
                Kind::Descriptors,
                "out_of_descriptors",
                "the server is out of file descriptors: close files there, or mount it anew with a larger `ulimit -n`",
            ),
            Some(libc::ENFILE) => (
                Kind::Descriptors,
                "out_of_descriptors",
                "the machine is out of file descriptors: end what has many files open, or raise the sysctl fs.file-max",
            ),
            Some(libc::ENOMEM) => {
                (Kind::Full, "out_of_memory", "the server is out of memory: give it more, then try again")
            }
            _ => (Kind::Io, "disk", "check the disk and the store's permissions, then try again"),
        };
        Error::new(kind, code, format!("{what}: {error}"), hint)
    }

    pub(super) fn no_branch(path: &str) -> Error {
        let hint = "list the branches with ls, or with engramfs log --graph";
        Error::new(Kind::NotFound, "no_such_branch", format!("there is no branch {path}"), hint)
    }

    pub(super) fn no_checkpoint(label: &str) -> Error {
        let hint = "list them with ls in the branch's checkpoints/";
        Error::new(Kind::NotFound, "no_such_checkpoint", format!("the branch has no checkpoint {label}"), hint)
    }

    pub(super) fn no_hash(hash: &Hash) -> Error {
        let hint = "hashes stand in lineage and conflicts; after config/keep has run out only the hash remains";
        Error::new(Kind::NotFound, "no_such_hash", format!("nothing readable has the hash {hash}"), hint)
    }

    pub(super) fn no_entry(entry: &str) -> Error {
        let hint = "entries are numbered from 1 on; lineage shows their numbers";
        Error::new(Kind::NotFound, "no_such_entry", format!("there is no entry {entry}"), hint)
    }

    pub(super) fn gone() -> Error {
        let hint = "its records are in its parent if it was merged; see the parent's lineage";
        Error::new(Kind::Gone, "gone", "the branch was merged or discarded", hint)
    }

    pub(super) fn internal(what: &str) -> Error {
        let message = format!("{what} ended in an internal error");
        Error::new(Kind::Io, "internal", message, "see the mount's log, and report it")
    }

    pub(super) fn would_wait() -> Error {
        Error::new(Kind::WouldWait, "would_wait", "somebody else is writing", "this is tried again by itself")
    }

    pub(super) fn read_only(reason: &str) -> Error {
        Error::new(
            Kind::ReadOnly,
            "read_only",
            format!("nothing can be written: {reason}"),
            "mount or open the store for writing",
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl std::error::Error for Error {}

impl From<NameError> for Error {
    fn from(error: NameError) -> Error {
        Error::of(Kind::Invalid, "bad_name", &error, error.hint())
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Error {
        Error::of(Kind::Invalid, "bad_question", &error, error.hint())
    }
}

impl From<OverBudget> for Error {
    fn from(over: OverBudget) -> Error {
        if over.shared {
            let hint = "try again when others have closed their files, or mount with a larger --memory";
            return Error::new(Kind::Full, "memory_full", over.to_string(), hint);
        }
        let hint = "read or close what is open, or remove files from scratch/ and temporaries from vectors/";
        Error::new(Kind::Quota, "memory_share", over.to_string(), hint)
    }
}

impl From<CodecError> for Error {
    fn from(error: CodecError) -> Error {
        Error::damaged(format!("stored bytes are not of the expected form: {error}"))
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        let kind = if matches!(error, KeyError::TooOpen(_)) { Kind::Denied } else { Kind::Damaged };
        Error::of(kind, "key", &error, error.hint())
    }
}

impl From<SegmentError> for Error {
    fn from(error: SegmentError) -> Error {
        match &error {
            SegmentError::Damaged { .. } => Error::of(Kind::Damaged, "damaged", &error, error.hint()),
            SegmentError::Io { name, what, source } if source.kind() == io::ErrorKind::NotFound => {
                Error::damaged(format!("the segment {name} could not be {what}: it is missing"))
            }
            SegmentError::Io { source, .. } => Error { ..Error::io("a segment", source) }.with_message(&error),
        }
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Error {
        match &error {
            JournalError::Damaged { .. } => Error::of(Kind::Damaged, "damaged", &error, error.hint()),
            JournalError::Poisoned { .. } => Error::of(Kind::ReadOnly, "journal_failed", &error, error.hint()),
            JournalError::Io { source, .. } => Error::io("the journal", source).with_message(&error),
        }
    }
}

impl Error {
    fn with_message(mut self, error: &dyn fmt::Display) -> Error {
        self.message = error.to_string();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_failing_one() {
        let full = |errno| JournalError::Io {
            path: "journal/1".into(),
            what: "appended to",
            source: io::Error::from_raw_os_error(errno),
        };
        assert_eq!(Error::from(full(libc::ENOSPC)).kind, Kind::Full);
        assert_eq!(Error::from(full(libc::EDQUOT)).kind, Kind::Quota);
        let open =
            SegmentError::Io { name: "x".into(), what: "opened", source: io::Error::from_raw_os_error(libc::EMFILE) };
        let error = Error::from(open);
        assert!(error.kind == Kind::Descriptors && error.hint.contains("ulimit -n"), "{error}");
        let failing =
            SegmentError::Io { name: "x".into(), what: "read", source: io::Error::from_raw_os_error(libc::EIO) };
        assert_eq!(Error::from(failing).kind, Kind::Io);
    }

    #[test]
    fn every_error_says_what_to_do_next() {
        let error = Error::from(NameError::Taken("ctl".into()));
        assert!(error.message.contains("ctl") && error.hint.contains("another"), "{error}");
    }
}
