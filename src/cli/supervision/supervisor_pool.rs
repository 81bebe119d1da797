//! The side of the process that asks: supervisors, and their end with it.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, getpid, set_child_subreaper};

use super::descendants::end_orphans;
use super::{CommandResult, SUPERVISE, SupervisedCommand};

/// How long orphans are killed for, where a supervisor was.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// All supervisors of this process, so that one interruption ends them and what they run.
#[derive(Default)]
pub struct SupervisorPool {
    members: Mutex<PoolMembers>,
    interrupted: AtomicBool,
}

#[derive(Default)]
struct PoolMembers {
    /// All that were started and not waited for.
    pids: HashSet<Pid>,
    /// What they are asked through; an end of it ends them and all that they run.
    inputs: HashMap<Pid, ChildStdin>,
}

/// A supervisor that runs, for as long as this is not dropped.
pub struct SupervisorHandle<'a> {
    pool: &'a SupervisorPool,
    pid: Pid,
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl SupervisorPool {
    /// Makes this process the one to which orphans come where a command killed its supervisor. Fails if the kernel
    /// refuses that.
    pub fn new() -> io::Result<SupervisorPool> {
        set_child_subreaper(Some(getpid()))?;
        Ok(SupervisorPool::default())
    }

    /// Starts a supervisor. `Interrupted` once the pool is; else the error of starting a process.
    pub fn start(&self) -> io::Result<SupervisorHandle<'_>> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("engramfs").arg(SUPERVISE).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Under the lock, so that whoever looks for orphans knows each child.
        let mut members = self.members();
        if self.is_interrupted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let (input, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(answers)) = (input, answers) else { return Err(io::ErrorKind::BrokenPipe.into()) };
        members.pids.insert(pid);
        members.inputs.insert(pid, input);
        Ok(SupervisorHandle { pool: self, pid, child, answers: BufReader::new(answers) })
    }

    /// Ends all supervisors and what they run, now; no other one starts.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.members().inputs.clear();
    }

    /// Returns whether the work shall end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn members(&self) -> MutexGuard<'_, PoolMembers> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SupervisorHandle<'_> {
    /// Runs a command to its end; `None` if the supervisor was killed, by an interruption or by what it ran.
    pub fn run(&mut self, job: &SupervisedCommand) -> Option<CommandResult> {
        let line = serde_json::to_string(job).ok()? + "\n";
        // Taken out meanwhile: a full pipe must not keep others from their own, nor an interruption from ending us.
        let mut input = self.pool.members().inputs.remove(&self.pid)?;
        let written = input.write_all(line.as_bytes());
        {
            let mut members = self.pool.members();
            if !self.pool.is_interrupted() {
                members.inputs.insert(self.pid, input);
            }
        }
        written.ok()?;
        let mut answer = String::new();
        let answer = self.answers.read_line(&mut answer).ok().map(|_| answer)?;
        serde_json::from_str(&answer).ok()
    }
}

impl Drop for SupervisorHandle<'_> {
    /// Ends it and all that it runs, and waits for that.
    fn drop(&mut self) {
        drop(self.pool.members().inputs.remove(&self.pid));
        let ended = self.child.wait();
        let mut members = self.pool.members();
        members.pids.remove(&self.pid);
        if !ended.is_ok_and(|status| status.success()) {
            end_orphans(&members.pids, KILL_TIMEOUT);
        }
    }
}
