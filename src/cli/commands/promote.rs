//! `engramfs promote`: merges a branch into its parent, and the branch lives on.

use super::merging;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::memory::MergeKind;

/// Merges a branch into its parent; the branch lives on with the parent's new state.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs promote /mnt/memory/main/branches/agent-7
  engramfs promote ~/memory:main/agent-7 --json")]
pub struct Args {
    /// The branch to promote: its own directory under a mount, or STORE:NAME-PATH.
    target: String,
}

/// Runs the verb.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    merging::run(&args.target, MergeKind::Promote, false, out)
}
