//! What the store does by itself: flushes, compaction, index builds, scrubbing, expiry and garbage collection.

pub(in crate::memory) mod compact;
pub(in crate::memory) mod expiry;
pub(in crate::memory) mod gc;
pub(in crate::memory) mod indexer;
pub(in crate::memory) mod relocations;
pub(in crate::memory) mod scrub;
pub(in crate::memory) mod seal;
pub(in crate::memory) mod unfinished;
