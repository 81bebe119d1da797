//! The one way in which anything changes: plan, sign, append to the journal, swap the catalog.
//!
//! `commands` has what can be done, with its rules, `transact` appends it; `commit`, `rollback` and `files` plan what takes more.

pub mod batch;
pub mod bulk;
pub mod clock;
pub mod commands;
pub mod commit;
pub mod contents;
mod file_ops;
pub mod files;
pub mod leases;
mod pending_commits;
mod resolved_edits;
mod rollback;
pub mod shared_events;
pub mod shared_log;
pub mod signals;
pub mod transact;
pub mod writer;
