//! `engramfs discard`: throws a branch away.

use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::target::{Access, Target};

/// Throws a branch away, with all that it holds.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs discard /mnt/memory/main/branches/agent-7
  engramfs discard ~/memory:main/agent-7/try-1")]
pub struct Args {
    /// The branch to discard: its own directory under a mount, or STORE:NAME-PATH.
    target: String,
}

/// Runs the verb.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    target.with(Access::Write, |branch| branch.discard())?;
    out.json_only(&json!({ "discarded": target.to_string() }))?;
    Ok(Exit::Done)
}
