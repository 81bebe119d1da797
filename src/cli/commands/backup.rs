//! `engramfs backup`: copies a store.

use std::path::PathBuf;

use crate::cli::actor;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, warn};
use crate::cli::render::facts;
use crate::memory;

/// Copies a store as it is at one moment, also while it is mounted.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs backup ~/memory /backup/memory-monday
  engramfs backup ~/memory /backup/new && engramfs verify /backup/new")]
pub struct Args {
    /// The store's directory.
    store: PathBuf,
    /// Where the copy goes: a directory that does not exist yet.
    dest: PathBuf,
}

/// Copies a store into a folder and prints what was copied. Fails like [`memory::backup`].
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let report = memory::backup(&args.store, &args.dest)?;
    actor::foreign_owner_warning(&args.dest, "makes").iter().for_each(warn);
    if out.is_json() {
        out.line(report)?
    } else {
        out.text(&facts::render(&report))?
    }
    Ok(Exit::Done)
}
