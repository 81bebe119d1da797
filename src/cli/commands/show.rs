//! `engramfs show`: reads anything by its hash, and an entry by its number too.

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::target::{Access, Target};

/// Prints a version of a record, an entry of the lineage or a head by its hash, as JSON; of a file its bytes. An entry
/// is found by its number, too.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs show /mnt/memory/main 3b1f…64 hex digits
  engramfs show ~/memory:main 17
  engramfs show ~/memory:main \"$(engramfs log ~/memory:main --json | tail -1 | jq -r .entry)\"")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// The hash, 64 hex digits as in `conflicts`, `lineage` and `engramfs log --json`, or the number of an entry.
    hash: String,
}

/// Runs the verb.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    let found = target.with(Access::Read, |branch| branch.show(&args.hash))?;
    match found.content.filter(|_| !out.is_json()) {
        Some(content) => out.bytes(&content)?,
        None => out.text(&found.line)?,
    }
    Ok(Exit::Done)
}
