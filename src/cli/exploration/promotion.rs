//! What was scored is what is promoted.

use serde_json::Value;

use super::{CandidateBranch, Exploration};
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::target::MountedBranch;

/// How often the plan is made anew because the parent moved on.
const PLANS_MAX: usize = 10;

impl Exploration<'_> {
    /// Promotes the branch with the content that it had before it was scored. `Exit::Refused` if a gate or a conflict
    /// is against it, and with code `plan_changed` if the branch or its parent changed during all ten plans. The entry
    /// holds the note.
    ///
    /// The plan comes first, then the look at the content, then the promote if the plan is still that one: so what is promoted is
    /// what was looked at, whoever writes meanwhile.
    pub fn promote(&self, branch: &mut CandidateBranch, note: &str) -> Result<(), CommandError> {
        let directory = self.directory(&branch.name);
        let mounted = MountedBranch::new(&directory);
        for _ in 0..PLANS_MAX {
            let planned = mounted.send_line("promote --dry-run")?;
            if mounted.status()?["head"] != *branch.head {
                // The scorer has changed what it scored.
                *branch = self.freeze(&branch.name, Some(branch.end_seq))?;
                continue;
            }
            if planned["status"] == "blocked" {
                return Err(blocked_error(&planned));
            }
            let plan = planned["plan"].as_str().unwrap_or_default();
            match mounted.send_line(&format!("promote --if-plan {plan} -- {note}")) {
                Err(error) if error.code == "plan_changed" => {}
                done => return done.map(drop),
            }
        }
        let message = format!("{} and its parent change too fast to be merged", directory.display());
        Err(CommandError::new(Exit::Refused, "plan_changed", message, "explore again when the parent is quiet"))
    }
}

fn blocked_error(planned: &Value) -> CommandError {
    let blocker = &planned["blockers"][0];
    let text = |key: &str| blocker[key].as_str().unwrap_or_default().to_owned();
    CommandError::new(Exit::Refused, text("code"), text("message"), text("hint"))
}
