//! The one way in which anything changes: plan, sign, append to the journal, swap the catalog.
//!
//! `prepare` applies the rules, `transact` appends; `write` and `files` are what callers use.

pub(in crate::memory) mod batch;
pub(in crate::memory) mod bulk;
pub(in crate::memory) mod clock;
pub(in crate::memory) mod contents;
pub(in crate::memory) mod files;
pub(in crate::memory) mod prepare;
pub(in crate::memory) mod transact;
pub(in crate::memory) mod write;
pub(in crate::memory) mod writer;
