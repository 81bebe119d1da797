//! The exit codes, which are part of the contract with scripts.

use std::process::ExitCode;

/// How a run of the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All was done.
    Done = 0,
    /// Something failed.
    Failed = 1,
    /// The command line was wrong.
    Usage = 2,
    /// Conflicts or a gate stand against it.
    Refused = 3,
    /// A hash or a signature does not fit.
    Damaged = 4,
    /// Another process has the store.
    Busy = 5,
    /// There is no such store, branch, record or label.
    Missing = 6,
    /// SIGINT came.
    Interrupted = 130,
}

impl Exit {
    /// Returns the number that the shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
