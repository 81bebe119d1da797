//! `shared/events.jsonl`: what happens in a shared log and its signals. It grows under its readers, and poll(2) tells when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::errno::Failure;
use super::handle::File;
use super::mount_branch_state::MountBranchState;
use super::mount_context::OpenContext;

/// A handle on the events. It begins with the oldest that was kept at its open, and counts as readable while there is more than
/// it has seen.
pub(super) struct SharedEventsFile {
    context: OpenContext,
    /// The state of the branch whose shared log it is: it is told of changes.
    owner: Arc<MountBranchState>,
    /// Where it begins: what the handle calls offset 0.
    start: u64,
    seen_offset: AtomicU64,
}

impl SharedEventsFile {
    /// Opens it at the first event that is kept now. ESTALE if the branch has gone.
    pub fn open(context: OpenContext) -> Result<SharedEventsFile, Failure> {
        let owner = context.mount.states.get_or_insert(context.memory().shared_log(context.branch())?.owner);
        let start = context.memory().shared_events(context.branch())?.start;
        Ok(SharedEventsFile { context, owner, start, seen_offset: AtomicU64::new(0) })
    }

    fn end(&self) -> Option<u64> {
        let events = self.context.memory().shared_events(self.context.branch()).ok()?;
        Some(events.end.saturating_sub(self.start))
    }
}

impl File for SharedEventsFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        let from = self.start.saturating_add(offset);
        let bytes = self.context.memory().read_shared_events(self.context.branch(), from, size)?;
        // Who reads behind the end has not seen what will be appended there.
        let seen = (offset + bytes.len() as u64).min(self.end().unwrap_or(0));
        self.seen_offset.fetch_max(seen, Ordering::Relaxed);
        Ok(bytes)
    }

    fn is_live(&self) -> bool {
        true
    }

    /// Who asks for the length, as to seek to the end, has seen what is before it.
    fn length(&self) -> Option<u64> {
        let length = self.end()?;
        self.seen_offset.fetch_max(length, Ordering::Relaxed);
        Some(length)
    }

    fn is_readable(&self) -> bool {
        self.end().is_none_or(|end| end > self.seen_offset.load(Ordering::Relaxed))
    }

    fn waits_on(&self) -> Option<&Arc<MountBranchState>> {
        Some(&self.owner)
    }
}
