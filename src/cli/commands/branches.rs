//! `engramfs branches`: the branches below one, as a tree.

use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::render::branches;
use crate::cli::target::{Access, Target};

/// Shows the branches below one as a tree: name, agent, age of the last change, edits ahead of the base and behind the parent.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs branches /mnt/memory/main
  engramfs branches ~/memory:main --json")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
}

pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    let text = target.with(Access::Read, |branch| branch.branches())?;
    if out.is_json() {
        if !text.is_empty() {
            out.text(&text)?;
        }
    } else {
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        out.text(&branches::render(&lines, jiff::Timestamp::now(), out.is_coloured()))?;
    }
    Ok(Exit::Done)
}
