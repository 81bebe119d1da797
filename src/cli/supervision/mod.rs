//! Running commands that nothing survives: one process of our own supervises all that a command starts.
//!
//! The supervisor is this program, started anew. It is the sub-reaper of what it starts, so that a process whose parent has died, or
//! that left its session, becomes its child and is found. It takes one job a line on standard input, answers with one line on
//! standard output, and kills everything once its input is at the end, as it is when the process that asked was killed.
//!
//! ```text
//! asks     {"command":"make check","directory":"/mnt/memory/main/branches/x","candidate":"1","limit_ms":300000,"captures":false}
//! answers  {"end":{"Exit":0},"output":""}
//! ```

mod descendants;
mod supervisor;
mod supervisor_pool;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use supervisor::{is_supervisor_call, supervise};
pub use supervisor_pool::{SupervisorHandle, SupervisorPool};

/// The hidden command that makes this program a supervisor. No page has it: it is of use to nobody but ourselves.
const SUPERVISE: &str = "supervise-candidate";

/// A job that a supervisor gets as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct SupervisedCommand {
    /// What `sh -c` gets.
    pub command: String,
    /// Where it runs, and what it finds in `ENGRAMFS_BRANCH`.
    pub directory: PathBuf,
    /// What it finds in `ENGRAMFS_CANDIDATE`.
    pub candidate: String,
    /// Milliseconds after which it is killed; none for no limit.
    pub limit_ms: Option<u64>,
    /// Whether the last of its standard output is wanted; else that goes where standard error does.
    pub captures: bool,
}

/// How a command ended. All that it started has ended, too, but for [`CommandEnd::Lingers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnd {
    /// By itself, with this status.
    Exit(i32),
    /// By a signal of this number.
    Signal(i32),
    /// It was killed at its time limit.
    TimedOut,
    /// There was no process for it, by this errno.
    NotStarted(i32),
    /// It, or something that it started, goes on and can't be killed: it is another user's.
    Lingers,
}

/// What a supervisor answers to a job, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct CommandResult {
    /// How the command of the job ended.
    pub end: CommandEnd,
    /// The last 64 KiB of its standard output; empty where that was not wanted.
    pub output: String,
}
