//! `engramfs gate`: a program checks what is proposed, and its caller approves or refuses by its exit.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::guard::describe_exit;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, remark};
use crate::cli::target::{Access, Target, access_error};
use crate::verb::Verb;

/// Bytes of what the checker's command line adds to its verdict.
const VERDICT_DETAIL_BYTES_MAX: usize = 200;

/// Runs a checker on what a branch proposes, and approves or refuses as oneself, by its exit.
///
/// The checker runs in the proposal's directory, which ENGRAMFS_BRANCH names, with the rights of whoever runs this; only that user's
/// word counts, if they are one of config/approvers. It is bound to the plan that stood there when the checker began.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs gate /mnt/memory/main/proposals/agent-7 -- ./check.sh
  engramfs gate proposals/agent-7 -- jq -e .title files/core/prd/PRD-001.json")]
pub struct Args {
    /// What is proposed: a directory in proposals/ of a mounted branch.
    proposal: PathBuf,
    /// The checker; 0 approves, all else refuses.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command in the directory of a proposal and approves or refuses it by the exit. [`Exit::Refused`] if it was
/// refused; [`Exit::Failed`], code `not_started`, if the command can't be run, and then nothing is said of the
/// proposal.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let (directory, name) = proposal(&args.proposal)?;
    let plan = plan(&directory)?;
    let (program, words) = args.command.split_first().expect("clap asks for one word or more");
    let status =
        Command::new(program).args(words).current_dir(&directory).env("ENGRAMFS_BRANCH", &directory).status().map_err(
            |error| {
                let message = format!("{} can't be started: {error}; nothing was said of {name}", program.display());
                CommandError::new(Exit::Failed, "not_started", message, "check the command and its path")
            },
        )?;
    let word = if status.success() { "approve" } else { "refuse" };
    let said: String = args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let said: String =
        said.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(VERDICT_DETAIL_BYTES_MAX / 4).collect();
    let line = format!("{word} {name} {plan} {said}: {}", describe_exit(status));
    let verb = Verb::parse(&line).ok_or_else(|| unreadable(&directory))?;
    target_above(&directory)?.with_branch(Access::Write, |parent| parent.run(&verb))?;
    let answer = json!({
        "proposal": name, "plan": plan, "approved": status.success(), "exit": status.code(), "signal": status.signal(),
    });
    if out.is_json() {
        out.line(answer)?;
    } else {
        let done = if status.success() { "approved" } else { "refused" };
        remark(format!("{done} {name}: the checker {}", describe_exit(status)));
    }
    Ok(if status.success() { Exit::Done } else { Exit::Refused })
}

/// Returns the proposal's directory and the name under which it is proposed.
fn proposal(path: &Path) -> Result<(PathBuf, String), CommandError> {
    let missing_proposal = || {
        if let Some(denied) = access_error(path) {
            return denied;
        }
        let message = format!("{} is no proposal of a mounted branch", path.display());
        CommandError::new(Exit::Missing, "no_proposal", message, "name a directory in proposals/ of a mounted branch")
    };
    let directory = path.canonicalize().map_err(|_| missing_proposal())?;
    let is_one =
        directory.parent().is_some_and(|above| above.ends_with("proposals")) && directory.join("plan").is_file();
    let name = directory
        .file_name()
        .and_then(|name| name.to_str())
        .filter(|_| is_one)
        .ok_or_else(missing_proposal)?
        .to_owned();
    Ok((directory, name))
}

fn plan(directory: &Path) -> Result<String, CommandError> {
    let page = std::fs::read(directory.join("plan")).map_err(|error| {
        let message = format!("{}/plan can't be read: {error}", directory.display());
        CommandError::new(Exit::Failed, "no_plan", message, "see why with tail -n 1 errors of the branch above")
    })?;
    let page: Value = serde_json::from_slice(&page).map_err(|_| unreadable(directory))?;
    page["plan"].as_str().map(str::to_owned).ok_or_else(|| unreadable(directory))
}

fn unreadable(directory: &Path) -> CommandError {
    let message = format!("{}/plan is not what this program knows", directory.display());
    CommandError::new(Exit::Failed, "not_json", message, "check that mount and program are of one version")
}

/// Returns the branch that would get it.
fn target_above(directory: &Path) -> Result<Target, CommandError> {
    let above = directory.parent().and_then(Path::parent).unwrap_or(directory);
    Target::parse(above)
}
