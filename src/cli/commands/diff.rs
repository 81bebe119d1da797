//! `engramfs diff`: a branch's own edits.

use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::render::diff;
use crate::cli::target::{Access, Target};
use crate::memory::Document;

/// Shows what differs between a branch and its base.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs diff /mnt/memory/main/branches/agent-7
  engramfs diff --stat ~/memory:main/agent-7")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// Counts the changes instead of listing them.
    #[arg(long)]
    stat: bool,
}

pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    let text = target.with(Access::Read, |branch| branch.document(Document::Diff))?;
    let edits: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    match (args.stat, out.is_json()) {
        (false, true) => out.text(&text)?,
        (false, false) => out.text(&diff::render(&edits, out.is_coloured()))?,
        (true, true) => out.line(diff::stat_json(&edits))?,
        (true, false) => out.text(&diff::render_stat(&edits))?,
    }
    Ok(Exit::Done)
}
