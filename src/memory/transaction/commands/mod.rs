//! The commands of the log: each stands in one file, with its fields, their bytes, its rule and the method of [`Memory`] that asks
//! for it, and has one line of [`COMMANDS`].
//!
//! A command that takes more to plan stands beside its plan instead: in `merging`, or in another file of `transaction`.
//!
//! [`Memory`]: crate::memory::Memory

mod agents;
mod archive;
mod archive_log;
mod checkpoint;
mod commit_files;
mod commit_records;
mod discard;
mod embedder;
mod fork;
mod import;
mod kept_dropped;
mod owner;
mod proposals;
mod refuse;
mod rename;
mod root;
mod setting;
mod user;

#[cfg(test)]
mod tests;

use super::{bulk, clock, leases, shared_log};
use crate::memory::command::log_record::{CommandSpec, LogRecord};
use crate::memory::merging::{integration, purge, resolve, rollback};
use crate::object::CodecError;

pub(in crate::memory) use archive::ArchiveEntries;
pub(super) use commit_records::{CommitRecords, provenance};
pub(in crate::memory) use discard::DiscardBranch;
pub(in crate::memory) use embedder::NoteEmbedder;
pub use fork::ForkOptions;
pub use import::check_closed_name;
pub(in crate::memory) use kept_dropped::NoteDroppedStates;
pub use proposals::ReviewRequest;
pub(in crate::memory) use root::CreateRoot;

/// All commands, in the order of their codes; a log record is read by the line with its code.
pub const COMMANDS: &[&CommandSpec] = &[
    &root::ROOT,
    &fork::FORK,
    &commit_records::COMMIT,
    &bulk::BULK,
    &checkpoint::CHECKPOINT,
    &checkpoint::UNCHECKPOINT,
    &rollback::ROLLBACK,
    &integration::MERGE,
    &integration::PROMOTE,
    &integration::PULL,
    &discard::DISCARD,
    &rename::RENAME,
    &setting::CONFIG,
    &owner::MODE,
    &resolve::RESOLVE,
    &refuse::REFUSE,
    &user::USER,
    &commit_files::FILES,
    &rollback::ROLLBACK_FILES,
    &clock::CLOCK,
    &owner::OWNER,
    &archive::ARCHIVE,
    &purge::PURGE,
    &embedder::EMBEDDER,
    &integration::REVERT,
    &kept_dropped::KEPT_DROPPED,
    &import::IMPORT,
    &fork::FORK_WITH_TTL,
    &shared_log::APPEND,
    &archive_log::ARCHIVE_LOG,
    &leases::LEASE_LOST,
    &agents::AGENT_NAME,
    &proposals::PROPOSE,
    &proposals::WITHDRAW,
    &proposals::REVIEW,
];

/// Reads a log record. Errors as for [`LogRecord::read`].
pub(in crate::memory) fn read_log_record(bytes: &[u8]) -> Result<LogRecord, CodecError> {
    LogRecord::read(bytes, COMMANDS)
}
