//! `engramfs rollback`: brings a branch back to a checkpoint.

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::render::facts;
use crate::cli::target::{Access, Target};

/// Makes a branch as it was at a checkpoint; the state before stays readable for a while (config/keep).
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs rollback /mnt/memory/main before-cleanup
  engramfs rollback ~/memory:main/agent-7 v2 --json
  engramfs rollback /mnt/memory/main v2 -- 'files/notes/**'")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// The checkpoint's name.
    label: String,
    /// Only these files, such as files/notes/**; records and all other files stay.
    #[arg(last = true, value_name = "files/PATTERN")]
    patterns: Vec<String>,
}

/// Runs the verb.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    let receipt = target.with(Access::Write, |branch| branch.rollback(&args.label, &args.patterns))?;
    if out.is_json() {
        out.line(receipt)?
    } else {
        out.text(&facts::render(&receipt))?
    }
    Ok(Exit::Done)
}
