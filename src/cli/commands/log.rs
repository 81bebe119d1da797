//! `engramfs log`: the lineage of a branch.

use std::path::PathBuf;

use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::render::entry_graph::EntryGraph;
use crate::cli::render::{graph, log_line};
use crate::cli::target::{Access, BranchAccess, Target};
use crate::memory::{Document, Error, Revision};

/// Shows a branch's history, newest first; with --json in the order and form of `lineage`, oldest first.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs log /mnt/memory/main | head
  engramfs log --graph ~/memory:main
  engramfs log ~/memory:main --json | jq -r 'select(.op == \"merge\") | .branch'")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: PathBuf,
    /// Draws forks and merges in columns, with all branches below this one, also those that were discarded.
    #[arg(long)]
    graph: bool,
    /// Only entries behind which the branch can still be looked at, in at/ and with --at, or rolled back to.
    #[arg(long, conflicts_with = "graph")]
    kept: bool,
}

/// Prints the lineage of a branch, the newest entry first; as JSON the oldest first. Fails if the target is not a
/// branch that the user may read.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target = Target::parse(&args.target)?;
    target.with_branch(Access::Read, |branch| match (args.graph, out.is_json()) {
        (true, true) => branch.lineage_below()?.iter().try_for_each(|line| out.line(line)),
        (true, false) => {
            let status: Value = serde_json::from_str(&branch.document(Document::Status)?).unwrap_or_default();
            let lines = branch.lineage_below()?;
            let entries: Vec<Value> = lines.iter().map(|line| parse_entry(line)).collect();
            print_graph(&entries, status.get("path").and_then(Value::as_str).unwrap_or_default(), out)
        }
        (false, true) => {
            branch.lineage()?.for_each_oldest_first(|line| match args.matches(branch, &parse_entry(line))? {
                true => out.line(line),
                false => Ok(()),
            })
        }
        (false, false) => branch.lineage()?.for_each_newest_first(|line| {
            let entry = parse_entry(line);
            if args.matches(branch, &entry)? {
                out.line(log_line::render(&entry, out.is_coloured()))?;
            }
            Ok(true)
        }),
    })?;
    Ok(Exit::Done)
}

impl Args {
    fn matches(&self, branch: &dyn BranchAccess, entry: &Value) -> Result<bool, CommandError> {
        let seq = entry.get("seq").and_then(Value::as_u64).unwrap_or_default();
        if !self.kept {
            return Ok(true);
        }
        branch.has_state(&Revision::parse(&seq.to_string()).map_err(Error::from)?)
    }
}

fn parse_entry(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

fn print_graph(entries: &[Value], name_path: &str, out: &mut Output) -> Result<(), CommandError> {
    let entry_graph = EntryGraph::from_entries(entries);
    for drawn in graph::draw(&entry_graph.parents, entry_graph.tip(name_path)) {
        if let Some(before) = drawn.row_above {
            out.line(before)?;
        }
        let line = log_line::render(&entries[drawn.entry], out.is_coloured());
        out.line(format_args!("{}  {line}", drawn.row))?;
        if let Some(after) = drawn.row_below {
            out.line(after)?;
        }
    }
    Ok(())
}
