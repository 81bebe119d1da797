//! `engramfs init`: makes a store.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::actor;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, warn};
use crate::cli::target::create_store;

/// Makes an empty store with the branch main, without mounting it.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs init ~/memory
  engramfs init ~/memory && engramfs import ~/memory:main notes.jsonl")]
pub struct Args {
    /// The store's directory: an empty one, or one that does not exist yet.
    store: PathBuf,
}

/// Makes a store and prints the target of its branch `main`. Fails if there is a store already.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let tip = create_store(&args.store)?;
    actor::foreign_owner_warning(&args.store, "makes").iter().for_each(warn);
    let target = format!("{}:main", args.store.display());
    if out.is_json() {
        out.line(json!({ "store": args.store.to_string_lossy(), "target": target, "tip": tip }))?;
    } else {
        out.line(target)?;
    }
    Ok(Exit::Done)
}
