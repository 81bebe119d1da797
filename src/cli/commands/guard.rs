//! `engramfs guard`: a step that leaves nothing behind where it fails.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{ArgGroup, ValueEnum};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, remark};
use crate::cli::random_tag::random_tag;
use crate::cli::target::{Access, BranchAccess, Target};
use crate::fuse::Watcher;
use crate::memory::{Error, GUARD_PREFIX, check_name};
use crate::verb::Verb;

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
            let label = begin(&target)?;
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
    let label = begin(target)?;
    let (status, interrupted) = match run_command(target, command) {
        Ok(ended) => ended,
        Err(error) => {
            // It never began, so there is nothing to take back.
            end(target, &label, StepOutcome::Ok)?;
            let message = format!("{} cannot be started: {error}", command[0].display());
            return Err(CommandError::new(Exit::Failed, "not_started", message, "check the command and its path"));
        }
    };
    let outcome = if status.success() { StepOutcome::Ok } else { StepOutcome::Failed };
    end(target, &label, outcome)?;
    out.json_only(&report(target, &label, outcome, Some(status)))?;
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

fn report(target: &Target, label: &str, outcome: StepOutcome, status: Option<ExitStatus>) -> serde_json::Value {
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

/// Takes the checkpoint, under a label that no other has.
fn begin(target: &Target) -> Result<String, CommandError> {
    target.with_branch(Access::Write, |branch| {
        let mut tries = 0;
        loop {
            let label = format!("{GUARD_PREFIX}{}", random_tag(8));
            match run_line(branch, &format!("checkpoint {label}")) {
                Ok(()) => return Ok(label),
                Err(error) if error.code == "exists" && tries < LABELS_TRIED_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    })
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

fn run_line(branch: &dyn BranchAccess, line: &str) -> Result<(), CommandError> {
    let unfit = || CommandError::usage(format!("`{line}` is no verb"), "give the label as it was printed");
    branch.run(&Verb::parse(line).ok_or_else(unfit)?).map(drop)
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
