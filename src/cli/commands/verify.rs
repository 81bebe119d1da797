//! `engramfs verify`: checks each hash, signature and link of a store.

use std::path::{Path, PathBuf};

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::progress::ProgressLine;
use crate::cli::render::facts;
use crate::memory::{self, Hash, VerifyOptions};

/// Checks each hash, signature and link of a store, and names the first thing that is wrong (exit code 4).
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs verify ~/memory
  engramfs verify ~/memory --public-key ~/memory-key.pub
  engramfs verify ~/memory --expect-tip 3b1f…64 hex digits")]
pub struct Args {
    /// The store's directory.
    store: PathBuf,
    /// Checks against this public key instead of the store's own.
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// Demands that this entry, noted earlier, is still in the lineage.
    #[arg(long, value_name = "HASH", value_parser = parse_hash)]
    expect_tip: Option<Hash>,
}

/// Checks each hash, signature and link of a store and prints what was checked. [`Exit::Damaged`] at the first that
/// does not fit, or if `--expect-tip` is not in the lineage.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(|e| CommandError::file("read", path, &e));
    let key = args.public_key.as_ref().map(read).transpose()?;
    let bar = ProgressLine::for_items("entries", out.is_json());
    let progress = |done: u64, all: u64| bar.update(done, all);
    let options = VerifyOptions { public_key: key.as_deref(), expect_tip: args.expect_tip, progress: Some(&progress) };
    let summary = memory::verify(&args.store, &options);
    drop(bar);
    let summary = summary.map_err(|error| with_key_file(error.into(), args.public_key.as_deref()))?;
    if out.is_json() {
        out.line(summary)?
    } else {
        out.text(&facts::render(&summary))?
    }
    Ok(Exit::Done)
}

/// Names the file in the refusal of a key that it holds.
fn with_key_file(mut failure: CommandError, file: Option<&Path>) -> CommandError {
    if let Some(file) = file.filter(|_| failure.code == "bad_public_key") {
        failure.message = format!("{}: {}", file.display(), failure.message);
    }
    failure
}

fn parse_hash(text: &str) -> Result<Hash, String> {
    text.parse().map_err(|_| "a hash has 64 lower-case hex digits".to_owned())
}
