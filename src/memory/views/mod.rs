//! What readers see: branches, status, generated documents, snapshots, exports and answers. Nothing here waits for a writer.

pub(in crate::memory) mod ask;
pub(in crate::memory) mod document;
pub(in crate::memory) mod export;
pub(in crate::memory) mod look;
pub(in crate::memory) mod readme;
pub(in crate::memory) mod snapshot;
pub(in crate::memory) mod status;
