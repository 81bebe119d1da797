//! `engramfs diff`: a branch's own edits, or what two states have other than each other.

use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::render::diff;
use crate::cli::target::{Access, Target};
use crate::memory::{Document, Revision};
use crate::verb::{Arguments, DIFF, NEW, OLD, Verb};

/// Shows what differs between two states: by default between a branch and its base.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs diff /mnt/memory/main/branches/agent-7
  engramfs diff --stat ~/memory:main/agent-7
  engramfs diff /mnt/memory/main -2h
  engramfs diff /mnt/memory/main v1 57")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// The older state: a label, an entry, a time such as -2h, or another branch as TARGET has it; the base if not given.
    #[arg(value_name = "A", allow_hyphen_values = true)]
    old: Option<String>,
    /// The newer state, likewise; the present one if not given.
    #[arg(value_name = "B", allow_hyphen_values = true)]
    new: Option<String>,
    /// Counts the changes instead of listing them.
    #[arg(long)]
    stat: bool,
}

/// Prints a branch's own edits, or with states given what the second has other than the first. [`Exit::Missing`] if a
/// branch or a state is not there, [`Exit::Usage`] for what can't name a state.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    let text = match &args.old {
        None => target.with_branch(Access::Read, |branch| branch.document(Document::Diff))?,
        Some(old) => {
            let mut arguments = Arguments::default();
            for (argument, text) in [(&OLD, Some(old)), (&NEW, args.new.as_ref())] {
                if let Some(text) = text {
                    arguments.set(argument, vec![state(&target, text)?]);
                }
            }
            let verb =
                Verb::new(&DIFF, arguments).map_err(|error| CommandError::usage(error.to_string(), error.hint()))?;
            target.with_branch(Access::Read, |branch| branch.run(&verb))?.to_line()
        }
    };
    let edits: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    match (args.stat, out.is_json()) {
        (false, true) => out.text(&text)?,
        (false, false) => out.text(&diff::render(&edits, out.is_coloured()))?,
        (true, true) => out.line(diff::stat_json(&edits))?,
        (true, false) => out.text(&diff::render_stat(&edits))?,
    }
    Ok(Exit::Done)
}

/// Returns a state as the verb takes it: another branch by its path.
fn state(target: &Target, text: &str) -> Result<String, CommandError> {
    let Some(other) = other_branch(target, text)? else { return Ok(text.to_owned()) };
    if !other.is_in_same_store(target) {
        let hint = "name a branch of the same store, by the same mount where TARGET is one";
        return Err(CommandError::usage(format!("{text} is no branch beside {target}"), hint));
    }
    let status = other.with_branch(Access::Read, |branch| branch.document(Document::Status))?;
    let status: Value = serde_json::from_str(&status).unwrap_or_default();
    Ok(format!("/{}", status["path"].as_str().unwrap_or_default()))
}

/// Returns the branch that a text names; `None` if it names a state of `target`, or nothing.
fn other_branch(target: &Target, text: &str) -> Result<Option<Target>, CommandError> {
    let is_there = |other: &Target| !matches!(other, Target::Unmounted { store, .. } if !store.is_dir());
    let other = || text.parse::<Target>().ok().filter(is_there);
    match Revision::parse(text) {
        // No label, entry or time has a slash.
        Err(_) if text.contains('/') => text.parse::<Target>().map(Some),
        Err(_) => Ok(other()),
        Ok(revision) if revision.point().is_some() => Ok(None),
        Ok(label) => match other() {
            // A label comes first.
            Some(other) if !target.with_branch(Access::Read, |branch| branch.has_state(&label))? => Ok(Some(other)),
            _ => Ok(None),
        },
    }
}
