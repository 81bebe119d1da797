//! What merge, promote and pull have in common.

use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::render;
use crate::cli::target::{Access, BranchAccess, Target};
use crate::memory::{Document, MergeKind};

/// Joins a branch with its parent and prints the result; exit code 3 where something stands in the way.
pub fn run(target: &str, kind: MergeKind, dry_run: bool, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = target.parse()?;
    let outcome = target
        .with(Access::Write, |branch| branch.merge(kind, dry_run).map_err(|failure| with_conflicts(branch, failure)))?;
    if out.is_json() {
        out.line(&outcome)?
    } else {
        out.text(&render::outcome::render(&outcome))?
    }
    Ok(if outcome.get("status").is_some_and(|status| status == "blocked") { Exit::Refused } else { Exit::Done })
}

/// Adds the conflicts that nobody has decided yet to a refusal.
fn with_conflicts(branch: &dyn BranchAccess, mut failure: CommandError) -> CommandError {
    if failure.exit == Exit::Refused
        && let Ok(conflicts) = branch.document(Document::Conflicts)
    {
        failure.conflicts = open_conflicts(&conflicts);
    }
    failure
}

fn open_conflicts(lines: &str) -> Vec<Value> {
    let conflicts = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    conflicts.filter(|conflict| conflict.get("decision").is_none_or(Value::is_null)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_undecided_conflicts_stand_in_the_way() {
        let lines = "{\"id\":\"a\",\"decision\":\"child\"}\n{\"id\":\"b\",\"decision\":null}\n";
        let open = open_conflicts(lines);
        assert_eq!((open.len(), &open[0]["id"]), (1, &Value::from("b")));
    }
}
