//! Why a store is not opened or copied, and what it is out of.

use std::path::PathBuf;

use thiserror::Error;

use super::{Advice, Kind};
use crate::object::Hash;
use crate::sync::OverBudget;

/// Why a store is not opened.
#[derive(Debug, Clone, Error)]
pub enum OpenError {
    /// There is no store at that path. Kind `NotFound`.
    #[error("there is no store at {}", .0.display())]
    Missing(PathBuf),
    /// This user may not look into its folder, or reach it. Kind `Denied`.
    #[error("permission denied: uid {uid} may not look into {}", path.display())]
    Denied {
        /// The store's folder.
        path: PathBuf,
        /// The uid that wanted to.
        uid: u32,
    },
    /// Another process has it, as its lock says. Kind `Locked`.
    #[error("the store {} is in use by another engramfs process ({holder})", store.display())]
    Locked {
        /// The store's folder.
        store: PathBuf,
        /// What that process says of itself.
        holder: String,
    },
    /// A store was to be made where there is one. Kind `Exists`.
    #[error("there is a store at {} already", .0.display())]
    Exists(PathBuf),
    /// A store was to be made in a folder that is used for something else. Kind `Invalid`.
    #[error("the folder is no store and holds {0}")]
    NotAStore(String),
    /// The store is of version 0.1.0, which this one does not read. Kind `Unsupported`.
    #[error("the store was made by engramfs 0.1.0, whose format this version does not read")]
    OldFormat,
    /// The store is of a later version, which this one might misread. Kind `Unsupported`.
    #[error("the store was made by a newer version of engramfs")]
    NewerFormat,
    /// An entry of the journal is genuine, and the version that wrote it applied it otherwise. Kind `Unsupported`.
    #[error(
        "entry {seq} is genuine and led to the head {recorded}, but leads to {found} now: the version of engramfs that \
         wrote it applies it otherwise than this one"
    )]
    OtherVersion {
        /// Number of the entry.
        seq: u64,
        /// The head that the entry names.
        recorded: Hash,
        /// The head that this version comes to.
        found: Hash,
    },
}

impl OpenError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            OpenError::Missing(_) => {
                Advice::new(Kind::NotFound, "no_such_store", "check the path; engramfs init STORE makes a new store")
            }
            OpenError::Denied { .. } => Advice::new(
                Kind::Denied,
                "permission_denied",
                "use it through its mount, or run the command as its owner or as root: a store is for its owner alone",
            ),
            OpenError::Locked { .. } => {
                Advice::new(Kind::Locked, "locked", "use its mount, or unmount it first with engramfs umount")
            }
            OpenError::Exists(_) => Advice::new(Kind::Exists, "exists", "use it as it is, or name a new folder"),
            OpenError::NotAStore(_) => Advice::new(Kind::Invalid, "not_a_store", "name an empty or new folder"),
            OpenError::OldFormat => Advice::new(
                Kind::Unsupported,
                "old_format",
                "take it over with engramfs 0.1.0, branch by branch: `engramfs export STORE:main main.jsonl` for the records, and \
                 `cp -a MNT/main/files DEST` from its mount for the files; then `engramfs import` and cp -a into a new store",
            ),
            OpenError::NewerFormat => Advice::new(Kind::Unsupported, "newer_format", "use the newest engramfs"),
            OpenError::OtherVersion { .. } => Advice::new(
                Kind::Unsupported,
                "other_version",
                "mount and unmount the store once with the version that wrote to it last: that seals it, and this one then \
                 applies nothing again",
            ),
        }
    }
}

/// Why a store is not copied or verified, or a place is not taken for what is written.
#[derive(Debug, Clone, Error)]
pub enum CopyError {
    /// There is no store at that path. Kind `NotFound`.
    #[error("there is no store at {}", .0.display())]
    Missing(PathBuf),
    /// The folder for the copy holds something. Kind `Exists`.
    #[error("{} is there and not empty", .0.display())]
    NotEmpty(PathBuf),
    /// What is to be written would lie in a store: a copy, a new store or an export. Kind `Invalid`.
    #[error("{} lies in the store {}", dest.display(), store.display())]
    Inside {
        /// Where it was to be written.
        dest: PathBuf,
        /// The store in which it lies.
        store: PathBuf,
    },
    /// The path has `..` below a folder that is not there, so where it leads can't be known. Kind `Invalid`.
    #[error("{} leads back out of a folder that is not there", .0.display())]
    DotDotPath(PathBuf),
    /// A seal replaced files each time the store was copied, for as many tries as there are. Kind `Busy`.
    #[error("the store was sealed again and again while it was copied")]
    Busy,
    /// What a store is to be checked against is no public key. Kind `Invalid`.
    #[error("what the store is to be checked against is no ed25519 key")]
    NotAKey,
}

impl CopyError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            CopyError::Missing(_) => {
                Advice::new(Kind::NotFound, "no_such_store", "name the folder that the store is in")
            }
            CopyError::NotEmpty(_) => Advice::new(Kind::Exists, "exists", "name a new folder"),
            CopyError::Inside { .. } => Advice::new(Kind::Invalid, "inside_a_store", "name a folder outside"),
            CopyError::DotDotPath(_) => Advice::new(Kind::Invalid, "leads_back", "write the path without .."),
            CopyError::NotAKey => {
                Advice::new(Kind::Invalid, "bad_public_key", "give the file key.pub of a store, or a copy of it")
            }
            CopyError::Busy => Advice::new(Kind::Busy, "busy", "try again when less is written"),
        }
    }
}

/// What has run out: a branch's quota, room or inodes on the disk, or memory.
#[derive(Debug, Clone, Error)]
pub enum LimitError {
    /// A branch and those below it would hold more than its quota allows. Kind `Quota`.
    #[error(
        "{path} and the branches below it hold {held} {what}, and with {more} more it would be over the {limit} of its \
         config/quota"
    )]
    Quota {
        /// Name path of the branch with the quota.
        path: String,
        /// Of what: bytes, records or branches.
        what: &'static str,
        /// How much the branch and those below it hold.
        held: i64,
        /// How much was to be added.
        more: i64,
        /// How much the quota allows, of the same.
        limit: u64,
    },
    /// The disk has no room beside the reserve. Kind `Full`.
    #[error(
        "the store's disk is full: {} KiB are missing, beside the {kept_kib} KiB that are kept for deletes and gc",
        missing_kib
    )]
    Disk {
        /// KiB that are missing, at least 1.
        missing_kib: u64,
        /// KiB of a whole reserve, which deletes and gc alone may use.
        kept_kib: u64,
    },
    /// The disk can take no more files. Kind `Full`.
    #[error(
        "the store's disk is full: it has no inodes left, beside the {kept_kib} KiB that are kept for deletes and gc"
    )]
    Inodes {
        /// KiB of a whole reserve, which deletes and gc alone may use.
        kept_kib: u64,
    },
    /// Earlier states had to make room on the disk or in memory. Nothing was refused: this tells owners of it.
    #[error("earlier states went, the oldest first: the store's disk is full, or their files took too much memory")]
    KeptDropped,
    /// Names and attributes of files are kept in memory, where they may take this many MiB. Kind `Full`.
    #[error("names and attributes of files take {0} MiB of memory, which is all they may")]
    FileNames(u64),
    /// A buffer was not admitted: kind `Quota` for want of the user's share, `Full` for want of the memory of all.
    #[error(transparent)]
    Memory(#[from] OverBudget),
    /// The edits of a batch were not admitted. Kind and code as of `Memory`, with another hint.
    #[error(transparent)]
    Batch(OverBudget),
}

impl LimitError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            LimitError::Quota { .. } => {
                Advice::new(Kind::Quota, "quota", "remove something, or have the owner of that branch raise its quota")
            }
            LimitError::KeptDropped => Advice::new(
                Kind::Full,
                "kept_dropped",
                "free space on the store's disk or mount with a larger --memory to keep more; kept_since in status says from \
                 when on states are kept",
            ),
            LimitError::Disk { .. } | LimitError::Inodes { .. } => Advice::new(
                Kind::Full,
                "disk",
                "delete something (rm, truncate, rmdir, discard and gc work), or free space on the store's disk, then \
                 try again",
            ),
            LimitError::FileNames(_) => {
                Advice::new(Kind::Full, "memory_full", "remove files, or mount with a larger --memory")
            }
            LimitError::Batch(over) => {
                let Advice { kind, code, .. } = LimitError::Memory(*over).advice();
                Advice::new(kind, code, "write the batch in several parts, each with a close or fsync")
            }
            LimitError::Memory(OverBudget { is_shared: true, .. }) => Advice::new(
                Kind::Full,
                "memory_full",
                "try again when others have closed their files, or mount with a larger --memory",
            ),
            LimitError::Memory(OverBudget { is_shared: false, .. }) => Advice::new(
                Kind::Quota,
                "memory_share",
                "read or close what is open, or remove files, checkpoints and branches with many files, temporaries from \
                 vectors/ and signals from shared/signals/",
            ),
        }
    }
}

/// Why the clock can't give an entry its time.
#[derive(Debug, Clone, Error)]
pub enum ClockError {
    /// The clock was set by more than a day since the last write. Kind `Invalid`.
    #[error("the machine's clock was set {way} by {days} d since the last write")]
    Jumped {
        /// Where to: forward or back.
        way: &'static str,
        /// By how many whole days.
        days: i64,
    },
    /// The last entry left no later time. Kind `Invalid`.
    #[error("the last entry has the last time that can be stored")]
    NoLaterTime,
}

impl ClockError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        let (code, hint) = match self {
            ClockError::Jumped { .. } => {
                ("clock_jumped", "set the clock right; if it is right now, unmount and mount again")
            }
            ClockError::NoLaterTime => ("no_later_time", "unmount, and run engramfs clock STORE --reset"),
        };
        Advice::new(Kind::Invalid, code, hint)
    }
}
