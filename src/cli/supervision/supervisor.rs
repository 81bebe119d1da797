//! The supervisor's side.

use std::ffi::OsString;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper, setsid};
use rustix::stdio::stdin;

use super::descendants::end_all;
use super::{CommandEnd, CommandResult, SUPERVISE, SupervisedCommand};

/// How long dying processes are waited for. All that can be killed are gone in some milliseconds.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the output that are kept, from its end.
const OUTPUT_BYTES: usize = 64 << 10;

/// Returns whether the command line makes this process a supervisor.
pub fn is_supervisor_call(arguments: &[OsString]) -> bool {
    arguments.len() == 2 && arguments[1] == SUPERVISE
}

/// Does one job after another, until nobody is left to ask.
pub fn supervise() -> ExitCode {
    // Ctrl-C is for the one who asked. A group of processes alone would not do: it is orphaned by their death, and where something in
    // it is stopped just then, the kernel ends it by SIGHUP, and us with it.
    let _ = setsid();
    // Where this fails a job would leave behind what it put into a session of its own.
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        log::warn!("processes of candidates can't be found by their parents: {error}");
    }
    let mut input = io::stdin().lock();
    while let Some(job) = read_line(&mut input).and_then(|line| serde_json::from_slice(&line).ok()) {
        let Some(ended) = run(&job) else { break };
        let answer = serde_json::to_string(&ended).unwrap_or_default();
        if writeln!(io::stdout(), "{answer}").is_err() {
            break;
        }
    }
    if end_all(KILL_TIMEOUT) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads a line; none at the end of the input.
fn read_line(input: &mut impl io::BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line).ok().filter(|count| *count > 0).map(|_| line)
}

/// Runs a command and ends all that it leaves running; `None` if the one who asked is gone.
fn run(job: &SupervisedCommand) -> Option<CommandResult> {
    let limit = job.limit_ms.map(|limit| Instant::now() + Duration::from_millis(limit));
    let failed = |error: io::Error| {
        let end = CommandEnd::NotStarted(error.raw_os_error().unwrap_or(libc::EIO));
        CommandResult { end, output: String::new() }
    };
    let (mut child, mut output) = match start(job) {
        Ok(started) => started,
        Err(error) => return Some(failed(error)),
    };
    let waited = wait(&mut child, &mut output, limit);
    let all_ended = end_all(KILL_TIMEOUT);
    let end = match waited {
        Ok(WaitOutcome::Ended(end)) => end,
        Ok(WaitOutcome::TimedOut) => CommandEnd::TimedOut,
        Ok(WaitOutcome::Abandoned) => return None,
        Err(error) => return Some(failed(error)),
    };
    // All who could write to it are gone, so what is left can be read to its end.
    if let Some(output) = &mut output
        && all_ended
    {
        while output.read_some().is_ok_and(|count| count > 0) {}
    }
    let output = output.map(|output| String::from_utf8_lossy(&output.tail).into_owned()).unwrap_or_default();
    Some(CommandResult { end: if all_ended { end } else { CommandEnd::Lingers }, output })
}

fn start(job: &SupervisedCommand) -> io::Result<(Child, Option<OutputTail>)> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(&job.command).current_dir(&job.directory).stdin(Stdio::null());
    command.env("ENGRAMFS_BRANCH", &job.directory).env("ENGRAMFS_CANDIDATE", &job.candidate);
    if !job.captures {
        let stderr: OwnedFd = io::stderr().as_fd().try_clone_to_owned()?;
        return Ok((command.stdout(stderr).spawn()?, None));
    }
    let (reader, writer) = io::pipe()?;
    let child = command.stdout(writer).spawn()?;
    // The command goes with its end of the pipe, else this process would hold it open.
    drop(command);
    Ok((child, Some(OutputTail { reader, tail: Vec::new() })))
}

enum WaitOutcome {
    Ended(CommandEnd),
    TimedOut,
    /// The one who asked is gone.
    Abandoned,
}

/// Waits for the command's own end, for its limit or for the end of our input.
fn wait(child: &mut Child, output: &mut Option<OutputTail>, limit: Option<Instant>) -> io::Result<WaitOutcome> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(WaitOutcome::TimedOut);
        }
        let [ended, abandoned, printed] = poll_events(&process, output.as_ref(), left)?;
        if abandoned {
            return Ok(WaitOutcome::Abandoned);
        }
        if printed
            && let Some(tail) = output
            && tail.read_some()? == 0
            && !ended
        {
            // It closed its output and works on; a pipe at its end would wake us for ever.
            return wait_silently(child, &process, limit);
        }
        if ended {
            return read_outcome(child);
        }
    }
}

fn wait_silently(child: &mut Child, process: &OwnedFd, limit: Option<Instant>) -> io::Result<WaitOutcome> {
    loop {
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        match poll_events(process, None, left)? {
            [_, true, _] => return Ok(WaitOutcome::Abandoned),
            [true, ..] => return read_outcome(child),
            _ if left.is_some_and(|left| left.is_zero()) => return Ok(WaitOutcome::TimedOut),
            _ => {}
        }
    }
}

fn read_outcome(child: &mut Child) -> io::Result<WaitOutcome> {
    let status = child.wait()?;
    let signal = CommandEnd::Signal(status.signal().unwrap_or_default());
    Ok(WaitOutcome::Ended(status.code().map_or(signal, CommandEnd::Exit)))
}

/// Waits until something happens, at most for `left`; tells whether the process has ended, our input has, and there is output.
fn poll_events(process: &OwnedFd, output: Option<&OutputTail>, left: Option<Duration>) -> io::Result<[bool; 3]> {
    let left = left.map(TryInto::try_into).transpose().map_err(io::Error::other)?;
    let mut watched = vec![PollFd::new(process, PollFlags::IN), PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
    watched.extend(output.map(|output| PollFd::new(&output.reader, PollFlags::IN)));
    match poll(&mut watched, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = |at: usize| watched.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ok([ready(0), ready(1), ready(2)])
}

/// The last of what comes through a pipe.
struct OutputTail {
    reader: PipeReader,
    tail: Vec<u8>,
}

impl OutputTail {
    /// Reads what is there, and returns how much that was.
    fn read_some(&mut self) -> io::Result<usize> {
        let mut buffer = vec![0; OUTPUT_BYTES];
        let count = self.reader.read(&mut buffer)?;
        self.tail.extend_from_slice(&buffer[..count]);
        let surplus = self.tail.len().saturating_sub(OUTPUT_BYTES);
        self.tail.drain(..surplus);
        Ok(count)
    }
}
