//! What readers see: branches, status, generated documents, snapshots, exports and answers. Nothing here waits for a writer.

pub mod branches_below;
pub mod compare;
pub mod documents;
pub mod export;
pub mod file_search;
pub mod lookup;
mod proposal;
pub mod query;
pub mod shared_log;
pub mod shared_state;
mod signals;
pub mod snapshot;
