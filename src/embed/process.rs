//! An embedder that is a command: a child process that stays, gets a line of JSON for some texts and answers with one.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use super::{EmbedError, Embedder, TextKind, check_vectors};
use crate::sync::{Condvar, Deadline, Mutex};

/// Texts of one line.
const BATCH_TEXTS: usize = 32;
/// Bytes of a line of its standard error that the log gets at once.
const LOG_LINE_BYTES_MAX: u64 = 4096;
/// Bytes of an answer at most.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// How long a child may be at a query that nobody waits for any longer: it may be reading its model still.
const HANG_TIMEOUT: Duration = Duration::from_mins(2);

type EmbedResult = Result<Vec<Vec<f32>>, EmbedError>;

/// A command that stays, and is started with the first job; one thread speaks with it.
pub struct ProcessEmbedder {
    name: String,
    description: Vec<u8>,
    queue: Arc<ProcessQueue>,
}

/// What the thread that speaks with the child has to do. Whoever asks waits for its answer and for no lock.
struct ProcessQueue {
    command: String,
    hang_timeout: Duration,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    is_started: bool,
    stop: bool,
    /// The job that was taken from the queue last, until it is answered.
    current: Option<CurrentJob>,
    last_number: u64,
}

impl QueueState {
    /// Puts a job behind all of its kind. Queries come before documents, as a search waits for their vectors; among themselves they keep
    /// their order, or who came first would wait for as long as others come.
    fn enqueue(&mut self, job: Job) {
        let queries = self.jobs.iter().take_while(|job| job.kind == TextKind::Query).count();
        let at = if job.kind == TextKind::Query { queries } else { self.jobs.len() };
        self.jobs.insert(at, job);
    }
}

struct CurrentJob {
    number: u64,
    /// The process group of the child that has it; none before it is handed over and while the child is ended.
    group: Option<Pid>,
    /// Whether nobody waits for it any longer.
    is_given_up: bool,
    /// When a child that is still at it counts as hanging.
    hangs_from: Deadline,
}

struct Job {
    number: u64,
    kind: TextKind,
    line: Vec<u8>,
    text_count: usize,
    reply: Sender<EmbedResult>,
}

#[derive(Serialize)]
struct EmbedRequest<'a> {
    kind: &'static str,
    texts: &'a [&'a str],
}

#[derive(Deserialize)]
struct EmbedAnswer {
    vectors: Option<Vec<Vec<f32>>>,
    error: Option<String>,
}

/// The child, and both ends of the conversation.
struct RunningChild {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ProcessEmbedder {
    /// Makes an embedder of a command line for the shell; starts nothing yet. Its name is `cmd:` and the file name of
    /// the first word.
    pub fn new(command: &str) -> ProcessEmbedder {
        ProcessEmbedder::with_hang_timeout(command, HANG_TIMEOUT)
    }

    fn with_hang_timeout(command: &str, hang_timeout: Duration) -> ProcessEmbedder {
        let program = command.split_whitespace().next().unwrap_or_default();
        let name = format!("cmd:{}", program.rsplit('/').next().unwrap_or(program));
        let queue = ProcessQueue {
            command: command.to_owned(),
            hang_timeout,
            state: Mutex::default(),
            changed: Condvar::default(),
        };
        ProcessEmbedder { name, description: format!("cmd:{command}").into_bytes(), queue: Arc::new(queue) }
    }

    /// Puts a job into the queue, one of a query before all of documents; returns its number and where its answer comes.
    fn submit(&self, kind: TextKind, texts: &[&str]) -> Result<(u64, Receiver<EmbedResult>), EmbedError> {
        let mut line = serde_json::to_vec(&EmbedRequest { kind: kind.name(), texts }).unwrap_or_default();
        line.push(b'\n');
        let (reply, answer) = channel();
        let mut state = self.queue.state.lock();
        // Numbers are never used again, so that giving up a job can't meet a later one.
        state.last_number += 1;
        let number = state.last_number;
        state.enqueue(Job { number, kind, line, text_count: texts.len(), reply });
        if !state.is_started {
            // The thread starts with the first job: an embedder that is only configured costs neither thread nor child.
            let queue = self.queue.clone();
            let spawned = std::thread::Builder::new().name("embedder-cmd".to_owned()).spawn(move || queue.serve());
            spawned.map_err(|error| EmbedError::Unreachable(error.to_string()))?;
            state.is_started = true;
        }
        self.queue.changed.notify_all();
        Ok((number, answer))
    }
}

impl Embedder for ProcessEmbedder {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &[u8] {
        &self.description
    }

    fn batch_texts_max(&self) -> usize {
        BATCH_TEXTS
    }

    /// A child that takes too long over documents is killed. Over a query it is not within `HANG_TIMEOUT`.
    fn embed(&self, kind: TextKind, texts: &[&str], limit: Duration) -> EmbedResult {
        let (number, answer) = self.submit(kind, texts)?;
        match answer.recv_timeout(limit) {
            Ok(vectors) => vectors,
            Err(RecvTimeoutError::Disconnected) => Err(EmbedError::Unreachable("it was ended".to_owned())),
            Err(RecvTimeoutError::Timeout) => {
                self.queue.give_up(number, kind == TextKind::Document);
                Err(EmbedError::TimedOut(limit.as_millis() as u64))
            }
        }
    }
}

impl Drop for ProcessEmbedder {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.stop = true;
        // Whoever waits for one of them is told by its channel, whose other end goes with the job.
        state.jobs.clear();
        if let Some(group) = state.current.as_ref().and_then(|current| current.group) {
            kill(group);
        }
        self.queue.changed.notify_all();
    }
}

impl ProcessQueue {
    /// Takes back a job that nobody waits for any longer; with `kill_child` also from a child that is at it, or that has let it
    /// wait for one that was given up before.
    fn give_up(&self, number: u64, kill_child: bool) {
        let mut state = self.state.lock();
        state.jobs.retain(|job| job.number != number);
        let Some(current) = &mut state.current else { return };
        current.is_given_up |= current.number == number;
        // A child that hangs on a query would hold up all later jobs for ever. The first documents that waited in vain end it,
        // and a query that did so does, too, once the child was given time to read its model.
        let is_hanging = kill_child || current.hangs_from.remaining().is_zero();
        if let Some(group) = current.group.filter(|_| is_hanging && current.is_given_up) {
            kill(group);
        }
    }

    /// Does what is asked for, until it is told to end.
    fn serve(&self) {
        let mut child: Option<RunningChild> = None;
        while let Some(job) = self.next() {
            let mut outcome = self.embed_in_child(&mut child, &job);
            // The command may have died long ago, which only the next use notices: start it again and try once more. A job that
            // was given up is not tried again: nobody would end a child that hangs on it a second time.
            if matches!(outcome, Err(EmbedError::Unreachable(_))) && self.is_awaited() {
                outcome = self.embed_in_child(&mut child, &job);
            }
            self.state.lock().current = None;
            // The caller may have given up waiting.
            let _ = job.reply.send(outcome);
        }
        if let Some(child) = child {
            child.end();
        }
    }

    fn next(&self) -> Option<Job> {
        let waits = |state: &mut QueueState| state.jobs.is_empty() && !state.stop;
        let mut state = self.changed.wait_while(self.state.lock(), waits);
        let job = state.jobs.pop_front().filter(|_| !state.stop)?;
        // In one step with leaving the queue, so that who gives it up finds it in one of the two places.
        let hangs_from = Deadline::from_now(self.hang_timeout);
        state.current = Some(CurrentJob { number: job.number, group: None, is_given_up: false, hangs_from });
        Some(job)
    }

    /// Returns whether somebody waits for the current job.
    fn is_awaited(&self) -> bool {
        let state = self.state.lock();
        !state.stop && state.current.as_ref().is_some_and(|current| !current.is_given_up)
    }

    /// Has the child do a job, and starts it where there is none. One that fails is ended: what it would write next
    /// would be taken for the answer to the next line.
    fn embed_in_child(&self, running: &mut Option<RunningChild>, job: &Job) -> EmbedResult {
        // Taken out, and put back only after an answer in step: every other way out ends the child.
        let mut child = match running.take() {
            Some(child) => child,
            None => RunningChild::start(&self.command).map_err(|error| EmbedError::Unreachable(error.to_string()))?,
        };
        {
            // In one step: who ends the embedder or gives the job up either is seen here, or finds the process group to end.
            let mut state = self.state.lock();
            let stop = state.stop;
            match state.current.as_mut().filter(|current| !stop && !current.is_given_up) {
                Some(current) => current.group = child.group(),
                None => {
                    *running = Some(child);
                    return Err(EmbedError::Unreachable("it was ended".to_owned()));
                }
            }
        }
        let line = match child.exchange(&job.line) {
            Ok(line) => line,
            Err(error) => {
                let status = self.end_child(child);
                let status = status.map_or_else(String::new, |status| format!(", {status}"));
                return Err(EmbedError::Unreachable(format!("the command ended{status} ({error})")));
            }
        };
        let answer: Result<EmbedAnswer, _> = serde_json::from_slice(&line);
        let (vectors, keeps) = match answer {
            Err(error) => (Err(EmbedError::Answer(format!("its line is not understood: {error}"))), false),
            // A refusal is an answer, too: the child stays in step and is kept.
            Ok(EmbedAnswer { error: Some(error), .. }) => {
                (Err(EmbedError::Refused(error.chars().take(200).collect())), true)
            }
            Ok(EmbedAnswer { vectors, .. }) => (check_vectors(vectors.unwrap_or_default(), job.text_count), true),
        };
        if keeps {
            *running = Some(child);
        } else {
            self.end_child(child);
        }
        vectors
    }

    /// Ends the child that has the current job; returns how it ended.
    fn end_child(&self, child: RunningChild) -> Option<ExitStatus> {
        // Before it is waited for: after that its number may be another process group's.
        if let Some(current) = &mut self.state.lock().current {
            current.group = None;
        }
        child.end()
    }
}

impl RunningChild {
    /// Starts the command in a process group of its own, so that all it starts can be ended.
    fn start(command: &str) -> io::Result<RunningChild> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", command])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Not the server's own: it is started before a mount goes into the background, and would hold the caller's standard
            // error open, so that whoever reads that to its end would wait for ever.
            .stderr(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("it has no standard input, output and error"));
        };
        let running = RunningChild { child, input, output: BufReader::new(output) };
        let logs = std::thread::Builder::new().name("embedder-log".to_owned()).spawn(move || log_lines(stderr));
        match logs {
            Ok(_) => Ok(running),
            Err(error) => {
                running.end();
                Err(error)
            }
        }
    }

    fn group(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn exchange(&mut self, line: &[u8]) -> io::Result<Vec<u8>> {
        self.input.write_all(line)?;
        self.input.flush()?;
        let mut answer = Vec::new();
        // Bounded, as a command that never ends its line would fill the memory of the process.
        (&mut self.output).take(LINE_BYTES_MAX).read_until(b'\n', &mut answer)?;
        if answer.last() == Some(&b'\n') { Ok(answer) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Ends it with all it started; returns how it ended.
    fn end(mut self) -> Option<ExitStatus> {
        // The whole group, also where the shell has ended: what it started in the background may live on. It comes before the
        // wait, after which the number may be another group's; a shell that ended by itself keeps its status, which says why.
        if let Some(group) = self.group() {
            kill(group);
        }
        self.child.wait().ok()
    }
}

/// Passes on to the log what a command writes to its standard error, until that is closed.
fn log_lines(stderr: ChildStderr) {
    let mut stderr = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        // Bounded, as nothing says that a line ends.
        match (&mut stderr).take(LOG_LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(1..) => log::warn!("the embedder's command says: {}", String::from_utf8_lossy(&line).trim_end()),
            Ok(0) | Err(_) => return,
        }
    }
}

fn kill(group: Pid) {
    if let Err(error) = kill_process_group(group, Signal::KILL) {
        log::debug!("the embedder's process group is gone already: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_come_before_documents_and_in_their_order() {
        let mut state = QueueState::default();
        let kinds = [TextKind::Document, TextKind::Query, TextKind::Document, TextKind::Query, TextKind::Query];
        for (number, kind) in (0..).zip(kinds) {
            state.enqueue(Job { number, kind, line: Vec::new(), text_count: 1, reply: channel().0 });
        }
        assert_eq!(state.jobs.iter().map(|job| job.number).collect::<Vec<_>>(), [1, 3, 4, 0, 2]);
    }

    #[test]
    fn a_child_that_hangs_on_a_query_is_ended_by_a_later_one() {
        let command = r#"while read line; do
            case "$line" in *hang*) sleep 600;; esac
            echo '{"vectors":[[1,2]]}'
        done"#;
        let embedder = ProcessEmbedder::with_hang_timeout(command, Duration::from_millis(600));
        let asked = |text, millis| embedder.embed(TextKind::Query, &[text], Duration::from_millis(millis));
        assert_eq!(asked("hang", 300), Err(EmbedError::TimedOut(300)));
        // The child lives on, as it may be reading its model; this one waits behind it in vain, and past the limit.
        drop(asked("warm", 1_000));
        assert_eq!(asked("warm", 20_000), Ok(vec![vec![1.0, 2.0]]));
    }

    #[test]
    fn the_limit_of_a_hanging_command_is_that_of_the_page() {
        let said = format!("waits in vain {} s later", HANG_TIMEOUT.as_secs());
        assert!(include_str!("../../docs/SEMANTICS.md").contains(&said), "docs/SEMANTICS.md does not say: {said}");
    }
}
