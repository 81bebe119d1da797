//! Whether a change may come in: rules of files, quotas, memory, and room on the disk with its reserve.
//!
//! Everything here is asked before the writer lock is taken, or costs next to nothing under it.

pub(in crate::memory) mod disk_room;
pub(in crate::memory) mod guard;
pub(in crate::memory) mod limits;
pub(in crate::memory) mod quota;
pub(in crate::memory) mod reserve;
