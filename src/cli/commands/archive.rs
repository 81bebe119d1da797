//! `engramfs archive`: old entries move out of the lineage, into a file.

use std::path::PathBuf;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, remark};
use crate::cli::render::facts;
use crate::cli::target;
use crate::memory::{Revision, Time};

/// Moves old entries of the lineage into a signed file in STORE/archive, which may be kept elsewhere or deleted.
///
/// The entries left are linked to the last one that moved, by its hash in a signed entry. `verify` checks the files that are in
/// STORE/archive together with the store. `lineage` and `events.jsonl` of each branch begin behind what moved; states,
/// checkpoints and files are not touched.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs archive ~/memory --before -90d --dry-run
  engramfs archive ~/memory --before 2026-01-01T00:00:00Z
  engramfs archive ~/memory --print > old-entries.jsonl")]
pub struct Args {
    /// The store's directory; while entries move it must not be mounted.
    store: PathBuf,
    /// Moves entries up to the last that was made before this time: RFC 3339 with Z, or -10m, -2h, -3d before now.
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, required_unless_present = "print")]
    before: Option<Revision>,
    /// Says what would be moved, and moves nothing.
    #[arg(long)]
    dry_run: bool,
    /// Prints the entries that were moved out before, as lines of `lineage`.
    #[arg(long, conflicts_with_all = ["before", "dry_run"])]
    print: bool,
}

/// Moves the entries before a time out of the lineage, or prints those that were moved where none is given.
/// [`Exit::Busy`] while another process has the store, [`Exit::Missing`] for no store.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let Some(before) = &args.before else { return print(args, out) };
    let mut report = target::archive(&args.store, before, args.dry_run)?;
    if let Some(file) = report["file"].as_str() {
        report["file"] = args.store.join(file).to_string_lossy().into();
    }
    if out.is_json() {
        out.line(report)?
    } else {
        out.text(&facts::render(&report))?
    }
    Ok(Exit::Done)
}

fn print(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let mut written = Ok(());
    let missing = target::archived_lines(&args.store, |line| {
        if written.is_ok() {
            written = out.text(&format!("{line}\n"));
        }
    })?;
    written?;
    for (first, last) in missing {
        remark(format!("entries {first} to {last} are in files that are not in {}/archive", args.store.display()));
    }
    Ok(Exit::Done)
}

fn parse_time(text: &str) -> Result<Revision, String> {
    let time = Revision::parse(text).ok().filter(|revision| revision.time(Time(0)).is_some());
    time.ok_or_else(|| "write a time such as 2026-01-01T00:00:00Z, or -90d".to_owned())
}
