//! `engramfs merge`: merges a branch into its parent.

use super::merging;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::memory::MergeKind;

/// Merges a branch into its parent, in one atomic commit; then the branch is gone.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs merge /mnt/memory/main/branches/agent-7
  engramfs merge --dry-run ~/memory:main/agent-7      (exit code 3 where the merge would be refused)")]
pub struct Args {
    /// The branch to merge: its own directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// Says what the merge would do, and changes nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Runs the verb.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    merging::run(&args.target, MergeKind::Merge, args.dry_run, out)
}
