//! Whether a change may come in: rules of files, quotas, memory, and room on the disk with its reserve.
//!
//! Everything here is asked before the writer lock is taken, or costs next to nothing under it.

pub mod disk_room;
pub mod guard;
pub mod limits;
pub mod quota;
pub mod reserve;
