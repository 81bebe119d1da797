//! `engramfs pull`: merges the parent's present state into a branch.

use super::merging;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::memory::MergeKind;

/// Merges the parent's present state into a branch.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs pull /mnt/memory/main/branches/agent-7
  engramfs pull ~/memory:main/agent-7")]
pub struct Args {
    /// The branch to bring up to date: its own directory under a mount, or STORE:NAME-PATH.
    target: String,
}

/// Runs the verb.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    merging::run(&args.target, MergeKind::Pull, false, out)
}
