//! `engramfs run`: a command in a sandbox that sees one branch alone.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::guard::{describe_exit, pass_signals_on};
use crate::cli::actor;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, remark};
use crate::cli::random_tag::random_tag;
use crate::cli::sandbox::{Sandbox, SandboxUser};
use crate::cli::target::{BranchAccess, MountedBranch, Target};
use crate::verb::Verb;

/// How long a branch stays whose command failed, unless its `config/ttl` says so.
const TTL: &str = "24h";

/// Runs a command in a sandbox that sees one branch alone, as /memory, and merges what it wrote where it succeeds.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs run /mnt/memory/main/branches/ann -- ./agent.py
  engramfs run /mnt/memory/main/branches/ann --uid 1001 --task 'compare the suppliers' --net -- agent
  engramfs run /mnt/memory/main/branches/try --on-success propose --on-failure discard -- sh")]
pub struct Args {
    /// The branch, which is forked where it is not there: TARGET/branches/NAME under a mount.
    target: PathBuf,
    /// Runs it as this user, whose the branch is; root may say so, and has to.
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    /// What is done with the branch where the command succeeds, as the one who runs this.
    #[arg(long, value_enum, default_value = "promote", value_name = "ACT")]
    on_success: OnSuccess,
    /// What is done with the branch where it fails; a branch that stays has a config/ttl of 24h, unless it has one.
    #[arg(long, value_enum, default_value = "keep", value_name = "ACT")]
    on_failure: OnFailure,
    /// Lets it use the network.
    #[arg(long)]
    net: bool,
    /// The name of the agent in what it writes; the branch's name, unless one is set.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The session in what it writes; a new one without it.
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// The task in what it writes; none without it.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    task: String,
    /// The command, which starts in /memory.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What is done with the branch of a command that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnSuccess {
    /// Merges it into its parent, and ends it.
    Merge,
    /// Merges it into its parent; it lives on.
    Promote,
    /// Proposes it to the parent's owner.
    Propose,
    /// Leaves it.
    Keep,
}

/// What is done with the branch of a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// Leaves it for a while.
    Keep,
    /// Discards it.
    Discard,
}

/// Runs a command in a sandbox that sees one branch alone, and merges, discards or keeps the branch by its exit.
/// [`Exit::Failed`] if the command failed, [`Exit::Interrupted`] if SIGINT ended it.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let user = user(args.uid)?;
    let place = RunTarget::find(&args.target)?;
    let sandbox = Sandbox::new(&place.directory, user, args.net)?;
    let inherits_ttl = place.fork_if_missing(user)?;
    let branch = MountedBranch::new(&place.directory);
    let has_own_ttl = prepare(args, &branch, &place.name, inherits_ttl)?;
    // Whoever kills this process ends the sandbox and the lease with it; from then on the ttl counts.
    let lease = branch.lease()?;
    let (status, interrupted) = run_command(&sandbox, &args.command)?;
    let ended = if status.success() {
        let done = act_on_success(args.on_success, &branch);
        let ended = done.is_ok() && args.on_success == OnSuccess::Merge;
        if !has_own_ttl && !ended {
            branch.set("ttl", "")?;
        }
        done?
    } else {
        act_on_failure(args.on_failure, &branch, status, &place.directory, out.is_json())?
    };
    drop(lease);
    out.json_only(&json!({
        "target": place.directory.display().to_string(), "exit": status.code(), "signal": status.signal(), "outcome": ended.0, "result": ended.1,
    }))?;
    Ok(match status.success() {
        true => Exit::Done,
        false if interrupted => Exit::Interrupted,
        false => Exit::Failed,
    })
}

fn user(wanted: Option<u32>) -> Result<SandboxUser, CommandError> {
    let me = actor::current();
    let uid = match wanted {
        None if me.uid == 0 => {
            let message = "root has to say whose the command is: root may do everything in a mount";
            return Err(CommandError::usage(message, "give --uid N"));
        }
        None => me.uid,
        Some(0) => return Err(CommandError::usage("a command can't be root's", "give the uid of a user as --uid")),
        Some(uid) if me.uid == 0 || uid == me.uid => uid,
        Some(uid) => {
            return Err(CommandError::usage(
                format!("uid {} can't become {uid}", me.uid),
                "leave --uid out, or be root",
            ));
        }
    };
    let is_other = uid != me.uid;
    let gid = if is_other { actor::user(uid).map_or(uid, |user| user.gid) } else { me.gid };
    Ok(SandboxUser { uid, gid, is_other })
}

struct RunTarget {
    directory: PathBuf,
    parent: PathBuf,
    name: String,
}

impl RunTarget {
    fn find(target: &Path) -> Result<RunTarget, CommandError> {
        let (above, name) = (target.parent(), target.file_name().and_then(|name| name.to_str()));
        let below =
            above.filter(|above| above.file_name().is_some_and(|name| name == "branches")).and_then(Path::parent);
        if let (Some(below), Some(name), false) = (below, name, target.exists()) {
            let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
            let Target::Mounted(parent) = Target::parse(below)? else { return Err(not_mounted(target)) };
            return Ok(RunTarget { directory: parent.join("branches").join(name), parent, name: name.to_owned() });
        }
        let found = Target::parse(target)?;
        match (found.parent(), found) {
            (Some((Target::Mounted(parent), name)), Target::Mounted(directory)) => {
                Ok(RunTarget { directory, parent, name })
            }
            (_, Target::Unmounted { .. }) => Err(not_mounted(target)),
            _ => {
                let message = format!("{} is not below another branch", target.display());
                Err(CommandError::usage(message, format!("name one that is: {}/branches/NAME", target.display())))
            }
        }
    }

    /// Forks the branch as the user's, where there is none, with a `ttl` from the beginning; returns whether that one is inherited, and
    /// none where the branch was there.
    fn fork_if_missing(&self, user: SandboxUser) -> Result<Option<bool>, CommandError> {
        let parent = MountedBranch::new(&self.parent);
        match fs::metadata(&self.directory) {
            Ok(found) if found.uid() == user.uid => Ok(None),
            Ok(found) => {
                let message = format!("{} belongs to uid {}, not {}", self.directory.display(), found.uid(), user.uid);
                Err(CommandError::new(
                    Exit::Failed,
                    "not_owner",
                    message,
                    "name another branch, or run it as its owner",
                ))
            }
            Err(_) => {
                let inherits_ttl = !parent.setting("child_ttl")?.is_empty();
                let (owner, ttl) = (user.is_other.then_some(user.uid), (!inherits_ttl).then_some(TTL));
                let fork = Verb::fork(&self.name, owner, ttl)
                    .map_err(|error| CommandError::usage(error.to_string(), error.hint()))?;
                parent.run(&fork).map(|_| Some(inherits_ttl))
            }
        }
    }
}

fn not_mounted(target: &Path) -> CommandError {
    let message = format!("{} has to be mounted: a sandbox sees a directory", target.display());
    CommandError::usage(message, "mount the store, and name MNT/main/branches/NAME")
}

/// Sets what stands in all that the command writes, and has the branch end some time if nobody comes back to it; returns whether
/// that was seen to already.
fn prepare(
    args: &Args,
    branch: &MountedBranch<'_>,
    name: &str,
    inherits_ttl: Option<bool>,
) -> Result<bool, CommandError> {
    let is_new = inherits_ttl.is_some();
    match &args.agent {
        Some(agent) => branch.set("agent", agent)?,
        // Where the name belongs to somebody else the branch still begins, and acts as `uid:N`.
        None if is_new => drop(branch.set("agent", name)),
        None => {}
    }
    let session = args.session.clone().unwrap_or_else(|| format!("run-{}", random_tag(10)));
    branch.set("session", &session)?;
    if !(is_new && args.task.is_empty()) {
        branch.set("task", &args.task)?;
    }
    if let Some(inherits_ttl) = inherits_ttl {
        return Ok(inherits_ttl);
    }
    let has_ttl = !branch.setting("ttl")?.is_empty();
    if !has_ttl {
        branch.set("ttl", TTL)?;
    }
    Ok(has_ttl)
}

fn run_command(sandbox: &Sandbox, command: &[OsString]) -> Result<(ExitStatus, bool), CommandError> {
    let failed = |error| {
        let hint = "try `bwrap --version`; if that works, check that /proc is mounted and raise ulimit -u and -n";
        CommandError::new(Exit::Failed, "no_sandbox", format!("the sandbox can't be started: {error}"), hint)
    };
    let (mut bwrap, program) = sandbox.command(command).map_err(failed)?;
    let mut child = bwrap.spawn().map_err(failed)?;
    drop(program);
    let interrupted = Arc::new(AtomicBool::new(false));
    let watcher = pass_signals_on(&child, interrupted.clone());
    let status = child.wait().map_err(failed)?;
    drop(watcher);
    Ok((status, interrupted.load(Ordering::Relaxed)))
}

/// Does what is to be done after a success; returns the word for it, and what the mount answered.
fn act_on_success(act: OnSuccess, branch: &MountedBranch<'_>) -> Result<(&'static str, Value), CommandError> {
    Ok(match act {
        OnSuccess::Merge => ("merged", branch.send_line("merge")?),
        OnSuccess::Promote => ("promoted", branch.send_line("promote")?),
        OnSuccess::Propose => ("proposed", branch.send_line("propose")?),
        OnSuccess::Keep => ("kept", Value::Null),
    })
}

fn act_on_failure(
    act: OnFailure,
    branch: &MountedBranch<'_>,
    status: ExitStatus,
    directory: &Path,
    as_json: bool,
) -> Result<(&'static str, Value), CommandError> {
    let (word, text) = match act {
        OnFailure::Discard => {
            branch.discard_when_closed()?;
            ("discarded", "was discarded".to_owned())
        }
        OnFailure::Keep => ("kept", format!("stays for {} from its last change on", branch.setting("ttl")?)),
    };
    if !as_json {
        remark(format_args!("engramfs: the command {}; {} {text}", describe_exit(status), directory.display()));
    }
    Ok((word, Value::Null))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_branch_can_have_gets_into_no_line_of_ctl() {
        // Ordinary files stand in for a mount's.
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("config")).unwrap();
        fs::write(dir.path().join("config/child_ttl"), "").unwrap();
        fs::write(dir.path().join("ctl"), "").unwrap();
        let user = SandboxUser { uid: 1001, gid: 1001, is_other: true };
        let forked = |name: &str| {
            let (parent, directory) = (dir.path().to_owned(), dir.path().join("branches").join(name));
            let failure = RunTarget { directory, parent, name: name.to_owned() }.fork_if_missing(user).unwrap_err();
            (failure.code, fs::read_to_string(dir.path().join("ctl")).unwrap())
        };
        for name in ["x from c", "bad name", "status"] {
            assert_eq!(forked(name), ("bad_name".to_owned(), String::new()), "{name}");
        }
        // An ordinary file answers with what was written to it.
        assert_eq!(forked("good"), ("not_json".to_owned(), "fork good owner 1001 ttl 24h\n".to_owned()), "a control");
    }
}
