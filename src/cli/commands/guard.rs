//! `engramfs guard`: a step that leaves nothing behind where it fails.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{ArgGroup, ValueEnum};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, remark};
use crate::cli::random_tag::random_tag;
use crate::cli::target::{Access, BranchAccess, Target};
use crate::fuse::Watcher;
use crate::memory::{Error, GUARD_PREFIX, check_name};
use crate::verb::{Verb, VerbAnswer};

/// How often another label is chosen because somebody has that one.
const LABELS_TRIED_MAX: usize = 8;

/// Runs a command between two states of a branch: where it fails the branch is rolled back to what it was before.
#[derive(clap::Args)]
#[command(
    group = ArgGroup::new("what").args(["begin", "end", "command"]).required(true),
    before_help = "Examples:
  engramfs guard /mnt/memory/main -- ./migrate.sh
  engramfs guard --begin /mnt/memory/main              (prints a label)
  engramfs guard --end /mnt/memory/main guard-k3f9w2xa failed"
)]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// Takes the checkpoint alone, and prints its label.
    #[arg(long)]
    begin: bool,
    /// Ends what a --begin began: rolls back where the step failed, and deletes the checkpoint.
    #[arg(long, requires = "label", requires = "outcome")]
    end: bool,
    /// What --begin printed.
    #[arg(requires = "end")]
    label: Option<String>,
    /// How the step went.
    #[arg(value_enum, requires = "end")]
    outcome: Option<StepOutcome>,
    /// The command, which finds the branch in ENGRAMFS_BRANCH.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How a guarded step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StepOutcome {
    /// What it did stays.
    Ok,
    /// What it did goes.
    Failed,
}

/// Runs a command as a step that leaves nothing behind where it fails, or does its two halves: `--begin` prints the
/// label that the end takes.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    match (&args.label, args.outcome) {
        _ if args.begin => {
            let label = begin(&target)?.label;
            if out.is_json() {
                out.line(json!({ "target": target.to_string(), "label": label }))?
            } else {
                out.line(label)?
            }
            Ok(Exit::Done)
        }
        (Some(label), Some(outcome)) => {
            end(&target, label, outcome)?;
            out.json_only(&report(&target, label, outcome, None))?;
            Ok(Exit::Done)
        }
        _ => guard(&target, &args.command, out),
    }
}

fn guard(target: &Target, command: &[OsString], out: &mut Output) -> Result<Exit, CommandError> {
    let start = begin(target)?;
    let (status, interrupted) = match run_command(target, command) {
        Ok(ended) => ended,
        Err(error) => {
            // It never began, so there is nothing to take back.
            end(target, &start.label, StepOutcome::Ok)?;
            let message = format!("{} cannot be started: {error}", command[0].display());
            return Err(CommandError::new(Exit::Failed, "not_started", message, "check the command and its path"));
        }
    };
    let outcome = if status.success() { StepOutcome::Ok } else { StepOutcome::Failed };
    finish(target, &start, status)?;
    out.json_only(&report(target, &start.label, outcome, Some(status)))?;
    if outcome == StepOutcome::Ok {
        return Ok(Exit::Done);
    }
    if !out.is_json() {
        remark(format_args!(
            "engramfs: the command {}; {target} was rolled back to what it was before",
            describe_exit(status)
        ));
    }
    Ok(if interrupted { Exit::Interrupted } else { Exit::Failed })
}

fn report(target: &Target, label: &str, outcome: StepOutcome, status: Option<ExitStatus>) -> Value {
    let mut report = json!({
        "target": target.to_string(), "label": label, "rolled_back": outcome == StepOutcome::Failed,
    });
    if let Some(status) = status {
        report["exit"] = status.code().into();
        report["signal"] = status.signal().into();
    }
    report
}

/// Says how a process ended.
pub(super) fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// What a branch was before a step.
struct StartState {
    /// The checkpoint's label.
    label: String,
    /// The hash of its entry, which names the state when the step has deleted the checkpoint; a server of an earlier
    /// version does not tell it.
    entry: Option<String>,
}

/// Takes the checkpoint, under a label that no other has.
fn begin(target: &Target) -> Result<StartState, CommandError> {
    target.with_branch(Access::Write, |branch| {
        let mut tries = 0;
        loop {
            let label = format!("{GUARD_PREFIX}{}", random_tag(8));
            match run_line(branch, &format!("checkpoint {label}")) {
                Ok(answer) => {
                    let answer: Value = serde_json::from_str(&answer.to_line()).unwrap_or_default();
                    return Ok(StartState { label, entry: answer["entry"].as_str().map(str::to_owned) });
                }
                Err(error) if error.code == "exists" && tries < LABELS_TRIED_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    })
}

/// Ends a guard whose step this process has run: rolls back where it failed, and deletes the checkpoint.
fn finish(target: &Target, start: &StartState, status: ExitStatus) -> Result<(), CommandError> {
    let mut rolled_back = false;
    let ended = target.with_branch(Access::Write, |branch| {
        if !status.success() {
            let state = start.entry.as_ref().unwrap_or(&start.label);
            run_line(branch, &format!("rollback {state}"))?;
            rolled_back = true;
        }
        match branch.delete_checkpoint(&start.label) {
            // The step may have deleted it, or ended the branch.
            Err(error) if error.exit == Exit::Missing => Ok(()),
            done => done,
        }
    });
    ended.map_err(|failure| not_finished(target, start, (status, rolled_back), failure))
}

/// Says how the step ended and what stands, where the guard could not be ended.
fn not_finished(
    target: &Target,
    start: &StartState,
    (status, rolled_back): (ExitStatus, bool),
    failure: CommandError,
) -> CommandError {
    let CommandError { exit, code, message, mut hint, .. } = failure;
    let (step, label) = (describe_exit(status), &start.label);
    let stands = match (status.success(), rolled_back) {
        (true, _) => format!("the command succeeded and what it did stays, and so does the checkpoint {label}"),
        (_, true) => format!("the command {step} and {target} was rolled back, but the checkpoint {label} stays"),
        (_, false) => format!("the command {step}, but {target} was not rolled back: what it did stays"),
    };
    if !status.success() && !rolled_back && exit != Exit::Missing {
        let state = start.entry.as_ref().unwrap_or(label);
        hint = format!("{hint}, then engramfs rollback {target} {state}");
    }
    let exit = if status.success() { exit } else { Exit::Failed };
    CommandError::new(exit, code, format!("{stands}: {message}"), hint)
}

fn end(target: &Target, label: &str, outcome: StepOutcome) -> Result<(), CommandError> {
    if !label.starts_with(GUARD_PREFIX) {
        let message = format!("{label} is no label of a guard");
        return Err(CommandError::usage(message, "give the label that `engramfs guard --begin` printed"));
    }
    // In the line below it could say more than the label.
    check_name(label).map_err(Error::from)?;
    target.with_branch(Access::Write, |branch| {
        if outcome == StepOutcome::Failed {
            run_line(branch, &format!("rollback {label}"))?;
        }
        branch.delete_checkpoint(label)
    })
}

fn run_line(branch: &dyn BranchAccess, line: &str) -> Result<VerbAnswer, CommandError> {
    let unfit = || CommandError::usage(format!("`{line}` is no verb"), "give the label as it was printed");
    branch.run(&Verb::parse(line).ok_or_else(unfit)?)
}

/// Runs the command to its end; tells, too, whether a signal asked this process to end meanwhile.
fn run_command(target: &Target, command: &[OsString]) -> io::Result<(ExitStatus, bool)> {
    let branch = match target {
        Target::Mounted(directory) => directory.clone().into_os_string(),
        Target::Unmounted { .. } => target.to_string().into(),
    };
    let mut child = Command::new(&command[0]).args(&command[1..]).env("ENGRAMFS_BRANCH", branch).spawn()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    // Whoever ends this process wants the step to end, and not that what it did so far stays.
    let watcher = pass_signals_on(&child, interrupted.clone());
    let status = child.wait();
    drop(watcher);
    Ok((status?, interrupted.load(Ordering::Relaxed)))
}

/// Hands signals on to a child. At a terminal Ctrl-C reaches the child by itself, and a second one would be another
/// wish. Fails if the child can't be named to the kernel, or no watcher can be started; no signal is handed on then.
pub(super) fn pass_signals_on(child: &Child, interrupted: Arc<AtomicBool>) -> io::Result<Watcher> {
    let pid = Pid::from_child(child);
    let at_terminal = io::stdin().is_terminal();
    let child = pidfd_open(pid, PidfdFlags::empty())?;
    Watcher::start(move |number| {
        interrupted.store(true, Ordering::Relaxed);
        let signal = Signal::from_named_raw(number).unwrap_or(Signal::TERM);
        if !(at_terminal && signal == Signal::INT) {
            // It may have ended already.
            let _ = pidfd_send_signal(&child, signal);
        }
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_no_guard_has_is_wrong_use() {
        let target: Target = "/no/such:main".parse().unwrap();
        assert_eq!(end(&target, "v1", StepOutcome::Ok).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn the_end_of_a_process_is_told_by_its_status_or_signal() {
        assert_eq!(describe_exit(ExitStatus::from_raw(3 << 8)), "ended with status 3");
        assert_eq!(describe_exit(ExitStatus::from_raw(9)), "was killed by signal 9");
    }
}
