//! `engramfs restore`: makes a store out of a backup.

use std::path::PathBuf;

use crate::cli::actor;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, warn};
use crate::cli::render::facts;
use crate::memory;

/// Makes a store out of a backup: checks the backup first, copies it, puts it safely on disk and checks the copy.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs restore /backup/memory-monday ~/memory
  engramfs restore /backup/memory-monday ~/memory && engramfs mount ~/memory /mnt/memory")]
pub struct Args {
    /// The folder that `engramfs backup` made. It stays as it is.
    backup: PathBuf,
    /// Where the store goes: an empty directory, or one that does not exist yet.
    store: PathBuf,
}

/// Makes a store out of a backup and prints what was checked. Fails like [`memory::restore`].
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let report = memory::restore(&args.backup, &args.store)?;
    actor::foreign_owner_warning(&args.store, "makes").iter().for_each(warn);
    if out.is_json() {
        out.line(report)?
    } else {
        out.text(&facts::render(&report))?
    }
    Ok(Exit::Done)
}
