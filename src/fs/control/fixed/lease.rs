//! `lease`: as long as somebody holds it open, a process of the branch's owner works there.

use crate::fs::errno::Failure;
use crate::fs::handle::{File, slice_at};
use crate::fs::mount_context::OpenContext;
use crate::memory::Lease;

/// A handle that holds the lease until it is dropped. Reading it gives one line, which says since when.
pub(super) struct LeaseFile {
    text: String,
    _lease: Lease,
}

impl LeaseFile {
    /// Takes the lease until the handle is dropped. EROFS if nothing may change, EACCES for another than the branch's
    /// owner.
    pub fn open(context: OpenContext) -> Result<LeaseFile, Failure> {
        context.check_writable()?;
        context.check_owner()?;
        let lease = context.mount.memory.hold_lease(&context.actor(), context.branch())?;
        let since = context.memory().lease_since(context.branch()).unwrap_or_default();
        Ok(LeaseFile { text: format!("held since {since}\n"), _lease: lease })
    }
}

impl File for LeaseFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        Ok(slice_at(self.text.as_bytes(), offset, size))
    }
}
