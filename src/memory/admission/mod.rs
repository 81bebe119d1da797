//! Whether a change may come in: rules of files, quotas, memory, and room on the disk with its reserve.
//!
//! Everything here is asked before the writer lock is taken, or costs next to nothing under it.

pub mod disk_room;
pub mod guard;
pub mod limits;
pub mod quota;
pub mod reserve;

use std::sync::Arc;

use crate::sync::{FairTurns, MemoryBudget, Pool};

/// What is known of those who use the store, and of the disk.
pub(in crate::memory) struct Admission {
    /// Turns of long computations, by user, so that one user's merges do not keep others waiting.
    pub turns: Arc<FairTurns>,
    /// Memory that callers hold, by user. It has no limit until
    /// [`Memory::limit_memory`](crate::memory::Memory::limit_memory) sets one.
    pub budget: Arc<MemoryBudget>,
    /// Memory that names and attributes of files take, by uid: in the user's share, and half of `--memory` for all.
    pub files_held: limits::FilesHeld,
    /// Memory that signals take, by uid: in the user's share, like what callers hold.
    pub signals_held: limits::SignalsHeld,
    /// What branches with a quota hold, brought up to date by the next check.
    pub quotas: quota::Quotas,
    /// The room on the disk, which is found before anything is written, and the reserve that only what gives back may use.
    pub room: disk_room::DiskRoom,
}

impl Admission {
    /// Begins with nobody holding anything.
    pub fn new(room: disk_room::DiskRoom) -> Admission {
        let (budget, files_held, signals_held, quotas) = Default::default();
        Admission { turns: FairTurns::new(Pool::processors()), budget, files_held, signals_held, quotas, room }
    }
}
