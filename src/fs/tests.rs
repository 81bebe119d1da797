//! Driving the file system as the kernel would, without a mount.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod branches;
mod control;
mod corrections;
mod files;
mod held;
mod limits;
mod listing;
mod meanwhile;
mod open_files;
mod records;
mod rig;
mod verbs;
