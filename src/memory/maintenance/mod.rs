//! What the store does by itself: flushes, compaction, index builds, scrubbing, expiry and garbage collection.

pub mod archive;
pub mod compact;
pub mod embedding;
pub mod excess_states;
pub mod expiry;
pub mod file_indexer;
pub mod gc;
pub mod indexer;
pub mod purge;
pub mod purge_report;
pub mod purge_search;
pub mod purge_signals;
pub mod relocated_states;
pub mod relocations;
pub mod retain;
pub mod scrub;
pub mod seal;
pub mod signal_expiry;
pub mod unfinished_graph;
pub mod unfinished_purge;
pub mod usage;

use std::sync::atomic::AtomicU64;

/// The background threads, and what is known for their work; nothing of it is stored.
#[derive(Default)]
pub(in crate::memory) struct Maintenance {
    /// Seals, commits what is pending and lets branches and files expire.
    pub thread: seal::MaintenanceThread,
    /// Bytes by which the next seal comes sooner, behind one that failed. They need no room, so they are no unsealed ones.
    pub seal_head_start_bytes: AtomicU64,
    /// Builds neighbour graphs of segments that are large enough for one.
    pub indexer: indexer::Indexer,
    /// Indexes the words of files soon after they were written.
    pub file_indexer: file_indexer::FileIndexer,
    /// Has texts embedded, by a thread for each embedder.
    pub embedding: embedding::Embedders,
    /// Checks blocks of mapped files again, round after round.
    pub scrubber: scrub::Scrubber,
    /// Removes signals whose time is over.
    pub signal_expiry: signal_expiry::SignalExpiry,
    /// Knows which files are open, so that no rule with a `ttl` takes them.
    pub expiry: expiry::Expiry,
    /// Bytes that earlier states alone hold on the disk, as of the last time that compaction counted what is needed.
    pub retained: usage::RetainedBytes,
    /// Whether a purge runs, or one of an earlier process has to be finished.
    pub purge: purge::PurgeState,
}
