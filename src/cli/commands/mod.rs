//! The verbs, one file each.

pub mod backup;
pub mod checkpoint;
pub mod clock;
pub mod completions;
pub mod diff;
pub mod discard;
pub mod doctor;
pub mod export;
pub mod fork;
pub mod gc;
pub mod import;
pub mod log;
pub mod man;
pub mod merge;
mod merging;
pub mod mount;
pub mod promote;
pub mod pull;
pub mod query;
pub mod rollback;
pub mod show;
mod site;
pub mod status;
pub mod umount;
pub mod verify;
