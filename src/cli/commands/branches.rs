//! `engramfs branches`: the branches below one, as a tree.

use std::path::PathBuf;

use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::render::branches;
use crate::cli::target::{Access, Target};
use crate::verb::Verb;

/// Shows the branches below one as a tree: name, agent, age of the last change, edits ahead of the base and behind the parent.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs branches /mnt/memory/main
  engramfs branches ~/memory:main --json
  engramfs branches --discarded /mnt/memory/main")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: PathBuf,
    /// Lists children that were discarded or merged instead, as far as they can be brought back.
    #[arg(long)]
    discarded: bool,
}

/// Prints the branches below one, or with `--discarded` those that can be brought back. [`Exit::Missing`] if there is
/// no such branch.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target = Target::parse(&args.target)?;
    if args.discarded {
        return discarded(&target, out);
    }
    let text = target.with_branch(Access::Read, |branch| branch.branches())?;
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

/// Lists the children that ended, the latest first.
fn discarded(target: &Target, out: &mut Output) -> Result<Exit, CommandError> {
    let verb = Verb::parse("discarded").expect("it is a verb");
    let answer = target.with_branch(Access::Read, |branch| branch.run(&verb))?;
    let answer: Value = serde_json::from_str(&answer.to_line()).unwrap_or_default();
    for line in answer["discarded"].as_array().into_iter().flatten() {
        if out.is_json() {
            out.text(&format!("{line}\n"))?;
        } else {
            let field = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            out.text(&format!("{}  {}  {} {}\n", line["seq"], field("name"), field("op"), field("ended")))?;
        }
    }
    Ok(Exit::Done)
}
