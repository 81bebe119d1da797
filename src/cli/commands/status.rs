//! `engramfs status`: a branch in figures.

use std::path::PathBuf;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::render::facts;
use crate::cli::target::{Access, Target};
use crate::memory::Document;

/// Shows a branch in figures.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs status /mnt/memory/main
  engramfs status ~/memory:main/agent-7 --json")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: PathBuf,
}

/// Prints the figures of a branch. [`Exit::Missing`] if there is none.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target = Target::parse(&args.target)?;
    let status = target.with_branch(Access::Read, |branch| branch.document(Document::Status))?;
    if out.is_json() {
        out.line(status.trim_end())?;
    } else {
        // Anything but JSON is shown as it is, rather than not at all.
        let text = serde_json::from_str(&status).map_or(status, |object| facts::render(&object));
        out.text(&text)?;
    }
    Ok(Exit::Done)
}
