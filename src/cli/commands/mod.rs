//! The commands: those of the table of verbs in one file, each other one in its own.
//!
//! Each has its arguments, `Args`, whose comments are its help, and `run`, which does it and prints. Where `run` fails
//! something may have been printed before.

pub mod archive;
pub mod backup;
pub mod branches;
pub mod clock;
pub mod completions;
pub mod diff;
pub mod doctor;
pub mod eval;
pub mod explore;
pub mod export;
pub mod gate;
pub mod gc;
pub mod guard;
pub mod import;
pub mod init;
pub mod log;
pub mod man;
pub mod mount;
mod mount_paths;
pub mod query;
pub mod restore;
pub mod run;
pub mod status;
pub mod umount;
pub mod verbs;
pub mod verify;
pub mod wait;
