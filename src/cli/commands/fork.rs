//! `engramfs fork`: makes a child branch.

use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::target::{Access, Target};

/// Forks a branch, and prints where the new one is.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs fork /mnt/memory/main agent-7
  engramfs fork --from v1 ~/memory:main retry
  cd \"$(engramfs fork /mnt/memory/main agent-8)\"")]
pub struct Args {
    /// The branch to fork: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// The new branch's name.
    name: String,
    /// Starts from this checkpoint of the branch instead of its present state.
    #[arg(long, value_name = "LABEL")]
    from: Option<String>,
}

/// Runs the verb.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    target.with(Access::Write, |branch| branch.fork(&args.name, args.from.as_deref()))?;
    let child = target.child(&args.name).to_string();
    if out.is_json() {
        out.line(json!({ "target": child }))?
    } else {
        out.line(child)?
    }
    Ok(Exit::Done)
}
