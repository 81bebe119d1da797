//! `shared/events.jsonl`: what happens in a shared log and its signals. It grows under its readers, and poll(2) tells when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::branch_state::BranchState;
use super::errno::Failure;
use super::handle::File;
use super::mount_context::OpenContext;

/// A handle on the events. It begins with the oldest that was kept at its open, and counts as readable while there is more than
/// it has seen.
pub(super) struct SharedEventsFile {
    place: OpenContext,
    /// The state of the branch whose shared log it is: it is told of changes.
    owner: Arc<BranchState>,
    /// Where it begins.
    start: u64,
    seen: AtomicU64,
}

impl SharedEventsFile {
    pub fn open(place: OpenContext) -> Result<SharedEventsFile, Failure> {
        let owner = place.mount.states.of(place.memory().shared_log(place.branch())?.owner);
        let start = place.memory().shared_events(place.branch())?.start;
        Ok(SharedEventsFile { place, owner, start, seen: AtomicU64::new(0) })
    }

    fn end(&self) -> Option<u64> {
        let events = self.place.memory().shared_events(self.place.branch()).ok()?;
        Some(events.end.saturating_sub(self.start))
    }
}

impl File for SharedEventsFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        let from = self.start.saturating_add(offset);
        let bytes = self.place.memory().read_shared_events(self.place.branch(), from, size)?;
        // Who reads behind the end has not seen what will stand there.
        let seen = (offset + bytes.len() as u64).min(self.end().unwrap_or(0));
        self.seen.fetch_max(seen, Ordering::Relaxed);
        Ok(bytes)
    }

    fn is_live(&self) -> bool {
        true
    }

    /// Who asks for the length, as to seek to the end, has seen what is before it.
    fn length(&self) -> Option<u64> {
        let length = self.end()?;
        self.seen.fetch_max(length, Ordering::Relaxed);
        Some(length)
    }

    fn is_readable(&self) -> bool {
        self.end().is_none_or(|end| end > self.seen.load(Ordering::Relaxed))
    }

    fn waits_on(&self) -> Option<&Arc<BranchState>> {
        Some(&self.owner)
    }
}
