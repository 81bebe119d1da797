//! Why a purge is not done.

use thiserror::Error;

use super::{Advice, Kind};

/// Why nothing is purged.
#[derive(Debug, Clone, Error)]
pub enum PurgeError {
    /// It names neither a record nor a file, nor an entry of a shared log or a signal. Kind `Invalid`.
    #[error("'{0}' names neither a record nor a file, nor an entry or signal that is shared")]
    BadItem(String),
    /// It names more than an entry may hold. Kind `TooLarge`.
    #[error("{named} names are more than the {limit} that one purge takes")]
    TooMany {
        /// How many were named.
        named: usize,
        /// The most that one purge takes.
        limit: usize,
    },
    /// No state has any of it, and no entry quotes it. Kind `NotFound`.
    #[error("nothing in the store is called {0}")]
    NothingFound(String),
    /// Branches of other owners have some of the items. Kind `Denied`.
    #[error("versions of it are in branches of other owners: {branches}")]
    NotOwner {
        /// Name paths of some of those that are open to everybody, or that there are none.
        branches: String,
    },
    /// A signal belongs to somebody else, and so does the branch whose shared log it is in. Kind `Denied`.
    #[error("a signal is somebody else's, and so is {path}, which has the signals")]
    SignalNotOwner {
        /// Name path of the branch whose shared log has the signal.
        path: String,
    },
    /// Another purge is under way; there is one at a time. Kind `Busy`.
    #[error("another purge of this store is under way")]
    Running,
}

impl PurgeError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            PurgeError::BadItem(_) => Advice::new(
                Kind::Invalid,
                "bad_item",
                "write the id of a record, files/PATH, shared/log/NUMBER or shared/signals/KEY",
            ),
            PurgeError::TooMany { .. } => Advice::new(
                Kind::TooLarge,
                "too_many_names",
                "purge them in several steps, or name a directory of files",
            ),
            // Listings have U+FFFD for bytes that are not UTF-8. Here it stands for no other: what is purged does not come back.
            PurgeError::NothingFound(names) if names.contains('\u{fffd}') => Advice::new(
                Kind::NotFound,
                "nothing_to_purge",
                "a name that is not UTF-8 can't be written here: rename the file first, which goes under its former names, too, or \
                 purge the directory that it is in",
            ),
            PurgeError::NothingFound(_) => Advice::new(
                Kind::NotFound,
                "nothing_to_purge",
                "check the names: ids of records, files/PATH, shared/log/NUMBER or shared/signals/KEY",
            ),
            PurgeError::NotOwner { .. } => Advice::new(
                Kind::Denied,
                "not_owner",
                "ask root, the owner of main, or one who owns all of these branches to purge it",
            ),
            PurgeError::SignalNotOwner { .. } => Advice::new(
                Kind::Denied,
                "not_owner",
                "ask root, or the owner of the signal or of that branch to purge it",
            ),
            PurgeError::Running => Advice::new(Kind::Busy, "purge_running", "wait for it, then try again"),
        }
    }
}
