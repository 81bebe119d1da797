//! `engramfs clock`: what the clock and the last entry say, and times that follow the clock again.

use std::path::PathBuf;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::render::facts;
use crate::cli::target::check_or_reset_clock;

/// Says whether the last entry is in the future, and mends that.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs clock ~/memory
  engramfs clock ~/memory --reset      (after the machine's clock was wrong and was set right)")]
pub struct Args {
    /// The store's directory; with --reset it must not be mounted.
    store: PathBuf,
    /// Lets times follow the clock again, by a signed entry, where the last entry is in the future.
    #[arg(long)]
    reset: bool,
}

/// Prints what the clock and the last entry say, and with `--reset` lets times follow the clock again. Fails like
/// `check_or_reset_clock`.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let report = check_or_reset_clock(&args.store, args.reset)?;
    if out.is_json() {
        out.line(report)?
    } else {
        out.text(&facts::render(&report))?
    }
    Ok(Exit::Done)
}
