//! What the store does by itself: flushes, compaction, index builds, scrubbing, expiry and garbage collection.

pub mod archive;
pub mod compact;
pub mod embedding;
pub mod expiry;
pub mod file_indexer;
pub mod gc;
pub mod indexer;
pub mod purge;
pub mod purge_mark;
pub mod purge_report;
pub mod purge_search;
pub mod purge_signals;
pub mod relocated_states;
pub mod relocations;
pub mod retain;
pub mod scrub;
pub mod seal;
pub mod signal_expiry;
pub mod unfinished;
pub mod usage;

/// The background threads.
#[derive(Default)]
pub(in crate::memory) struct Maintenance {
    /// Seals, commits what is pending and expires.
    pub thread: seal::MaintenanceThread,
    pub indexer: indexer::Indexer,
    pub file_indexer: file_indexer::FileIndexer,
    pub embedding: embedding::Embedding,
    pub scrubber: scrub::Scrubber,
    pub signal_expiry: signal_expiry::SignalExpiry,
    pub expiry: expiry::Expiry,
    pub retained: usage::RetainedBytes,
    pub purge: purge::PurgeState,
}
