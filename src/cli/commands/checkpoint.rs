//! `engramfs checkpoint`: names a branch's present state.

use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::target::{Access, Target};

/// Takes a checkpoint: a named, read-only state of a branch.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs checkpoint /mnt/memory/main before-cleanup
  engramfs checkpoint ~/memory:main v2 \"all questions answered\"")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// The checkpoint's name.
    label: String,
    /// Words about it for the shared log.
    text: Vec<String>,
}

/// Runs the verb.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    let text = (!args.text.is_empty()).then(|| args.text.join(" "));
    target.with(Access::Write, |branch| branch.checkpoint(&args.label, text.as_deref()))?;
    out.json_only(&json!({ "target": target.to_string(), "checkpoint": args.label }))?;
    Ok(Exit::Done)
}
