//! Why something is not done to a shared log.

use std::sync::Arc;

use thiserror::Error;

use super::{Advice, Kind};

/// Why an entry is not appended, or a log not changed.
#[derive(Debug, Clone, Error)]
pub enum SharedLogError {
    /// An entry is longer than 64 KiB. Kind `TooLarge`.
    #[error("the entry has {0} bytes, and 64 KiB is the most")]
    TooLong(usize),
    /// One write brings more than a batch may have. Kind `Invalid`.
    #[error("one write brings {0} entries, and 1000 is the most")]
    TooMany(usize),
    /// The line begins with `{` and is not JSON. Kind `Invalid`.
    #[error("the entry is no JSON: {0}")]
    NotJson(#[source] Arc<serde_json::Error>),
    /// The line is JSON with other keys, or values of other types. Kind `Invalid`.
    #[error("it is no entry: {0}")]
    NotAnEntry(#[source] Arc<serde_json::Error>),
    /// The entry has no text, or a blank one. Kind `Invalid`.
    #[error("the entry has no text")]
    NoText,
    /// A label of an entry is empty, too long, or more than a line. Kind `Invalid`.
    #[error("'{0}' is no line of 1 to 200 bytes")]
    BadLabel(&'static str),
    /// A key of the metadata is one of the log's own. Kind `Invalid`.
    #[error("metadata of an entry has no key that begins with @, and there is {0:?}")]
    ReservedKey(String),
    /// Only the owner of a branch writes through it. Kind `Denied`.
    #[error("uid {uid} does not own {path}, through which the entry would come")]
    NotOwner {
        /// The uid that wanted to append.
        uid: u32,
        /// The branch's name path.
        path: String,
    },
    /// There is no such entry, or none yet. Kind `Invalid`.
    #[error("the log has no entry {asked}: it has {entries}, counted from 1")]
    NoEntry {
        /// The number of the last entry; 0 if there is none.
        entries: u64,
        /// What was asked for, as it was written.
        asked: String,
    },
    /// The branch uses the log of a branch above it. Kind `Invalid`.
    #[error("{path} has no log of its own: it has that of {owner}")]
    NotOwn {
        /// The branch's name path.
        path: String,
        /// Name path of the branch whose log it is.
        owner: String,
    },
    /// A root branch is to go whose log has entries that were not archived. Kind `NotEmpty`.
    #[error("the shared log of {path} has entries that were not archived: {entries}")]
    NotArchived {
        /// The branch's name path.
        path: String,
        /// How many; those of logs that were closed into it do not count.
        entries: u64,
    },
    /// Whose log a branch has is to change while others depend on it. Kind `Busy`.
    #[error("{0} has child branches, or entries in its log, so that whose log it has can't change")]
    InUse(String),
    /// A root branch always has a log of its own. Kind `Invalid`.
    #[error("a root branch has a log of its own")]
    RootHasOwn,
    /// No closed log can have that name: it is not `NAME@SEQ` in its one form. Kind `Invalid`.
    #[error("'{0}' can't be the name of a closed log")]
    ClosedName(String),
    /// There is no closed log with that name. Kind `NotFound`.
    #[error("no log called '{0}' was closed here")]
    NoClosed(String),
}

impl SharedLogError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        let shape =
            "write {\"text\":\"…\"}, with \"vector\", \"metadata\", \"kind\" or \"event_id\" if you like, or bare text";
        match self {
            SharedLogError::TooLong(_) => Advice::new(
                Kind::TooLarge,
                "entry_too_long",
                "write the whole into a file of files/, and an entry that names it",
            ),
            SharedLogError::TooMany(_) => {
                Advice::new(Kind::Invalid, "too_many_entries", "write them in several writes")
            }
            SharedLogError::NotJson(_) | SharedLogError::NotAnEntry(_) | SharedLogError::NoText => {
                Advice::new(Kind::Invalid, "bad_entry", shape)
            }
            SharedLogError::BadLabel(_) => Advice::new(Kind::Invalid, "bad_entry", "write one line of 1 to 200 bytes"),
            SharedLogError::ReservedKey(_) => {
                Advice::new(Kind::Invalid, "bad_entry", "rename the key: those that begin with @ are the log's own")
            }
            SharedLogError::NotOwner { .. } => Advice::new(
                Kind::Denied,
                "not_branch_owner",
                "append through a branch of your own: fork one with mkdir",
            ),
            SharedLogError::NoEntry { .. } => {
                Advice::new(Kind::Invalid, "beyond_the_log", "write the id of an entry that is there")
            }
            SharedLogError::NotArchived { .. } => Advice::new(
                Kind::NotEmpty,
                "log_not_archived",
                "write archive-log and an id behind the last one to its ctl in a mount first",
            ),
            SharedLogError::InUse(_) => Advice::new(
                Kind::Busy,
                "log_in_use",
                "set config/log of a new branch, before it is forked and written to",
            ),
            SharedLogError::NotOwn { .. } => {
                Advice::new(Kind::Invalid, "not_own_log", "write it to the ctl of that branch")
            }
            SharedLogError::RootHasOwn => {
                Advice::new(Kind::Invalid, "bad_setting", "write own, or set it in a child branch")
            }
            SharedLogError::ClosedName(_) => {
                Advice::new(Kind::Invalid, "bad_log_name", "write the name of a branch, @ and a number")
            }
            SharedLogError::NoClosed(_) => {
                Advice::new(Kind::NotFound, "no_such_log", "list them with ls in shared/log/closed")
            }
        }
    }
}
