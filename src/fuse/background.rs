//! Going into the background: the parent stays until the child says how the start went, and ends with that result.
//!
//! ```text
//! parent  ── fork ──┬── reads the pipe ── prints the message, exits with the code
//! child             └── setsid … mount … report_ready() or report_failure() ── lives on without a terminal
//! result on the pipe: exit code (i32 LE) ‖ length of the message (u32 LE) ‖ message (UTF-8)
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal, setsid, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// The parent's exit code when the child ends without a result.
const NO_RESULT_CODE: i32 = 1;
/// A longer message is cut.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The child's side: one result is owed to the waiting parent.
///
/// Dropped without one (also by a panic or a crash), the parent reports that and exits with 1.
#[derive(Debug)]
pub struct Background {
    result_pipe: PipeWriter,
    log: File,
}

/// Forks, and returns in the child only; the parent exits as soon as the child's result is there.
///
/// To be called before any thread exists: a second thread is an error (`InvalidInput`), since it would be missing in the child.
/// `log_file` is opened for appending (made with mode 0600) and gets standard error after [`Background::report_ready`]; the default is
/// `/dev/null`. The working directory stays as it is. While the parent waits, its death (Ctrl-C) is SIGTERM for the child.
pub fn into_background(log_file: Option<&Path>) -> io::Result<Background> {
    if thread_count()? > 1 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "going into the background must come before the first thread",
        ));
    }
    let log = match log_file {
        Some(path) => OpenOptions::new().append(true).create(true).mode(0o600).open(path)?,
        None => OpenOptions::new().write(true).open("/dev/null")?,
    };
    let (reader, result_pipe) = io::pipe()?;
    let parent = getpid();
    // SAFETY: there is one thread, so the child is a whole copy and may go on as usual.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            leave_terminal(parent)?;
            Ok(Background { result_pipe, log })
        }
        child => {
            // The parent's copy goes, or the pipe would not end when the child dies.
            drop(result_pipe);
            let (code, message) = wait_for_result(reader, child);
            if !message.is_empty() {
                // Standard error may be closed; the exit code still says it.
                let _ = writeln!(io::stderr(), "{message}");
            }
            std::process::exit(code)
        }
    }
}

impl Background {
    /// Lets the parent exit with 0, and takes standard input, output and error away from the terminal.
    pub fn report_ready(mut self) -> io::Result<()> {
        // Before the result is sent, since the parent ends with it, and its death must not be this process's.
        set_parent_process_death_signal(None)?;
        let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        dup2_stderr(&self.log)?;
        self.send(0, "")
    }

    /// Lets the parent print `message` on standard error and exit with `exit_code`. The child goes on: its caller ends
    /// it.
    pub fn report_failure(mut self, exit_code: i32, message: &str) -> io::Result<()> {
        set_parent_process_death_signal(None)?;
        self.send(exit_code, message)
    }

    fn send(&mut self, code: i32, message: &str) -> io::Result<()> {
        self.result_pipe.write_all(&encode(code, message))
    }
}

fn encode(code: i32, message: &str) -> Vec<u8> {
    let text = message.as_bytes().get(..MESSAGE_BYTES_MAX).unwrap_or(message.as_bytes());
    let length = u32::try_from(text.len()).unwrap_or_default();
    [&code.to_le_bytes()[..], &length.to_le_bytes()[..], text].concat()
}

fn decode(reader: &mut impl Read) -> io::Result<(i32, String)> {
    let mut word = [0_u8; 4];
    reader.read_exact(&mut word)?;
    let code = i32::from_le_bytes(word);
    reader.read_exact(&mut word)?;
    let length = u32::from_le_bytes(word);
    let mut text = Vec::new();
    reader.take(length.into()).read_to_end(&mut text)?;
    Ok((code, String::from_utf8_lossy(&text).into_owned()))
}

fn wait_for_result(mut reader: PipeReader, child: libc::pid_t) -> (i32, String) {
    decode(&mut reader).unwrap_or_else(|_| {
        // Its end of the pipe is closed, so it has ended or is about to.
        let status = waitpid(Pid::from_raw(child), WaitOptions::empty()).ok().flatten().map(|(_, status)| status);
        let how = match status.and_then(|status| status.terminating_signal()) {
            Some(signal) => format!("signal {signal}"),
            None => format!("exit code {}", status.and_then(|status| status.exit_status()).unwrap_or_default()),
        };
        (
            NO_RESULT_CODE,
            format!("the background process ended before the mount answered ({how}); use --foreground to see why"),
        )
    })
}

/// A session of its own, and an end together with the parent while the parent waits.
fn leave_terminal(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    setsid()?;
    // Asked after the signal is set: a parent that died before that sends none.
    if getppid() != Some(parent) {
        return Err(io::Error::other("the waiting parent is gone"));
    }
    Ok(())
}

fn thread_count() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_result_reads_back() {
        let bytes = encode(5, "busy: another process has the store");
        assert_eq!(decode(&mut bytes.as_slice()).unwrap(), (5, "busy: another process has the store".to_owned()));
        assert_eq!(decode(&mut encode(0, "").as_slice()).unwrap(), (0, String::new()));
    }

    #[test]
    fn half_a_result_is_none() {
        let bytes = encode(5, "x");
        decode(&mut bytes.get(..6).unwrap()).unwrap_err();
        decode(&mut [].as_slice()).unwrap_err();
    }

    #[test]
    fn a_process_with_threads_may_not_fork_away() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        assert_eq!(into_background(None).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(stop);
        let _ = other.join();
    }
}
