//! The one way in which anything changes: plan, sign, append to the journal, swap the catalog.
//!
//! `prepare` applies the rules, `transact` appends; `commit`, `write` and `files` are what callers use.

mod agents;
mod archive_log;
pub mod batch;
pub mod bulk;
pub mod clock;
mod commit;
pub mod contents;
mod corrections;
pub mod files;
pub mod import;
pub mod leases;
pub mod prepare;
pub mod proposals;
pub mod shared_events;
pub mod shared_log;
pub mod signals;
pub mod transact;
pub mod write;
pub mod writer;
