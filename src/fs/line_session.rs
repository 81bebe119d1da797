//! Control files that take lines and give answers: `query`, `ctl` and `log/append`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::answer_offset::AnswerOffset;
use super::batch;
use super::counted_buffer::CountedBuffer;
use super::errno::Failure;
use super::handle::{File, slice_at};
use super::last_answers::{AnsweringFile, QueuedAnswer};
use super::mount_context::OpenContext;
use super::refusal::{InputRefusal, SpaceRefusal};
use super::refused_line::RefusedLine;
use crate::sync::{Mutex, Rank};

/// Bytes that may come without a line end; more are refused before one does.
const LINE_BYTES_MAX: usize = 4 << 20;
/// Bytes of answers that wait for their reader.
const UNREAD_BYTES_MAX: usize = 64 << 20;

/// What the lines of one control file mean; [`LineSession`] does the rest alike for all of them.
pub(super) trait LineProtocol: Send + Sync {
    type Request;
    /// The name under which the last answer is kept for handles that ask nothing.
    const FILE: AnsweringFile;

    /// Understands a line, without its end; does nothing yet. EINVAL if it is no such request.
    fn parse(&self, line: &str) -> Result<Self::Request, Failure>;

    /// Does what the line asks, and returns the lines of the answer. `number` counts the handle's
    /// requests from 0. Fails with the refusal of the request.
    fn perform(&self, context: &OpenContext, request: &Self::Request, number: usize) -> Result<String, Failure>;

    /// Returns whether a request has changed something once it is done; it has not by default. Such a request is not
    /// refused where its answer finds no room: who repeats it would do it twice.
    fn changes(&self, _request: &Self::Request) -> bool {
        false
    }

    /// Returns whether a line whose end has not come yet keeps its branch from being merged or discarded, since it would
    /// be lost with that; by default it does not.
    fn holds_branch(&self) -> bool {
        false
    }

    /// Returns what a handle reads after a refusal; nothing by default.
    fn refusal(&self, _failure: &Failure) -> Option<String> {
        None
    }

    /// Does the requests of one write, numbered from `first`, and returns their outcomes up to the
    /// first failure; no more are begun once the answers are longer than `room`.
    fn perform_batch(
        &self,
        context: &OpenContext,
        requests: &[Self::Request],
        first: usize,
        room: usize,
    ) -> Vec<RequestOutcome> {
        batch::run_serially(requests, room, |at, request| self.perform(context, request, first + at))
    }
}

/// The lines of a request's answer, or why it was refused.
pub(super) type RequestOutcome = Result<String, Failure>;

/// One open handle, a conversation of its own.
///
/// A line is done as it is written, so that a bad one fails in the write: first all lines of the
/// write are understood, or none is done; then they are done, verbs in turn and queries side by
/// side, and when a later one fails the write is short by it and by what follows. A line without
/// its end waits for the rest until the handle is read or closed; once it is refused, so is its rest. Answers queue until they are
/// read, and the first write after a read starts a new queue.
pub(super) struct LineSession<S: LineProtocol> {
    context: OpenContext,
    protocol: S,
    state: Mutex<SessionState>,
    /// A request is being done, with no lock held.
    is_busy: AtomicBool,
}

struct SessionState {
    answer_offset: AnswerOffset,
    /// The beginning of a line; it counts for the caller.
    tail: CountedBuffer,
    /// The line that was refused after its beginning had been taken.
    refused: Option<RefusedLine>,
    answer: QueuedAnswer,
    /// How much of the answer was read.
    read_end: u64,
    requests: usize,
    /// Whether anything was ever written; if not, the handle shows the last answer given to its
    /// user.
    has_written: bool,
    /// What a silent handle shows, fixed at its first read.
    last_answer: Option<CountedBuffer>,
}

impl<S: LineProtocol> LineSession<S> {
    /// Begins a handle on which nothing was written yet.
    pub fn new(context: OpenContext, protocol: S) -> LineSession<S> {
        let state = SessionState {
            answer_offset: AnswerOffset::default(),
            tail: context.buffer(),
            answer: new_answer(&context),
            read_end: 0,
            requests: 0,
            has_written: false,
            last_answer: None,
            refused: None,
        };
        LineSession { context, protocol, state: Mutex::with_rank(Rank::Handle, state), is_busy: AtomicBool::new(false) }
    }

    /// Refuses what goes on with a line that was refused.
    fn refuse_rest(&self, data: &[u8]) -> Option<Failure> {
        let mut state = self.state.lock();
        let failure = state.refused.as_mut()?.refuse(data);
        if failure.is_none() {
            state.refused = None;
        }
        failure
    }

    /// Takes a write whose last complete line ends at `rest`; returns how much of it was taken. Of `tail`, the beginning of its first
    /// line, it makes that of the next one.
    fn process_write(&self, tail: &mut CountedBuffer, data: &[u8], rest: usize) -> Result<usize, Failure> {
        let unfinished = if rest == 0 { tail.len() + data.len() } else { data.len() - rest };
        if unfinished > LINE_BYTES_MAX {
            return Err(InputRefusal::LineTooLong(LINE_BYTES_MAX >> 20).into());
        }
        if rest == 0 {
            tail.extend(data)?;
            return Ok(data.len());
        }
        // Before any line is done: where the caller may not hold what is left, the write is refused and has done nothing.
        let mut left = self.context.buffer();
        left.extend(&data[rest..])?;
        let taken = self.process_lines(tail, data)?;
        // What follows a line that failed is written again.
        *tail = if taken == data.len() { left } else { self.context.buffer() };
        Ok(taken)
    }

    /// Does all complete lines of `tail` and `data`; returns how much of `data` was taken.
    fn process_lines(&self, tail: &[u8], data: &[u8]) -> Result<usize, Failure> {
        // All lines are parsed before the first is done: a write with a bad line does nothing at all.
        let (mut requests, mut ends) = (Vec::new(), Vec::new());
        for (line, end) in split(tail, data) {
            if let Some(request) = self.parse_line(&line)? {
                requests.push(request);
                ends.push(end);
            }
        }
        let (done, failure) = self.perform(&requests);
        match (failure, done) {
            (None, _) => Ok(data.len()),
            (Some(failure), 0) => Err(failure),
            (Some(_), done) => Ok(ends[done - 1]),
        }
    }

    /// Blank lines ask for nothing.
    fn parse_line(&self, line: &[u8]) -> Result<Option<S::Request>, Failure> {
        let line = std::str::from_utf8(line).map_err(|_| InputRefusal::LineNotUtf8)?;
        if line.trim().is_empty() { Ok(None) } else { self.protocol.parse(line.trim_end_matches('\r')).map(Some) }
    }

    /// Does requests; returns how many, and why not all.
    fn perform(&self, requests: &[S::Request]) -> (usize, Option<Failure>) {
        if requests.is_empty() {
            return (0, None);
        }
        // Cloned, as requests are done with no lock held; `is_busy` keeps other writes out.
        let (first, answer) = {
            let state = self.state.lock();
            (state.requests, state.answer.clone())
        };
        let room = UNREAD_BYTES_MAX.checked_sub(answer.lock().len());
        let outcomes =
            room.map(|room| self.protocol.perform_batch(&self.context, requests, first, room)).unwrap_or_default();
        let (mut done, mut failure) = (0, None);
        for (outcome, request) in outcomes.into_iter().zip(requests) {
            match outcome {
                Ok(lines) => {
                    let lost = answer.lock().extend(lines.as_bytes()).err();
                    failure = lost.filter(|_| !self.protocol.changes(request));
                }
                Err(why) => failure = Some(why),
            }
            if failure.is_some() {
                break;
            }
            done += 1;
        }
        // The one that failed has a number, too.
        self.state.lock().requests = first + (done + 1).min(requests.len());
        if done > 0 {
            self.context.mount.answers.insert(&self.context.view, S::FILE, self.context.caller.uid, &answer);
        }
        // `perform_batch` begins no more of them once the answers are longer than the room.
        if failure.is_none() && done < requests.len() {
            failure = Some(SpaceRefusal::UnreadAnswers(UNREAD_BYTES_MAX >> 20).into());
        }
        (done, failure)
    }

    /// Does the line whose end never came.
    fn finish_line(&self) -> Result<(), Failure> {
        let refused = self.state.lock().refused.take();
        if let Some(failure) = refused.and_then(RefusedLine::into_unreported) {
            return Err(failure);
        }
        // An empty tail may also mean that another thread took it and is working on it.
        if self.state.lock().tail.is_empty() {
            return Ok(());
        }
        let _turn = SessionTurn::begin(&self.is_busy)?;
        let tail = self.take_tail();
        let done = self.parse_line(&tail).and_then(|request| self.perform(request.as_slice()).1.map_or(Ok(()), Err));
        done.inspect_err(|failure| self.answer_refusal(failure))
    }

    /// Answers a refused request, where that has an answer.
    fn answer_refusal(&self, failure: &Failure) {
        let Some(line) = self.protocol.refusal(failure) else { return };
        let answer = self.state.lock().answer.clone();
        if answer.lock().len() > UNREAD_BYTES_MAX {
            return;
        }
        // The refusal counts, whether or not there is room to tell why.
        if answer.lock().extend(line.as_bytes()).is_ok() {
            self.context.mount.answers.insert(&self.context.view, S::FILE, self.context.caller.uid, &answer);
        }
    }

    /// Takes the beginning of a line out.
    fn take_tail(&self) -> CountedBuffer {
        let empty = self.context.buffer();
        std::mem::replace(&mut self.state.lock().tail, empty)
    }

    /// Starts a write at `offset`: returns the beginning of its first line.
    fn begin(&self, offset: u64) -> CountedBuffer {
        let mut state = self.state.lock();
        state.has_written = true;
        if state.answer_offset.note_write(offset) {
            state.answer = new_answer(&self.context);
            state.read_end = 0;
        }
        drop(state);
        self.take_tail()
    }
}

impl<S: LineProtocol> File for LineSession<S> {
    fn takes_long(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        self.finish_line()?;
        let mut state = self.state.lock();
        let state = &mut *state;
        let start = state.answer_offset.position(offset);
        let bytes = if state.has_written {
            slice_at(&state.answer.lock(), start, size)
        } else {
            // Fixed at the first read, so that a reader who reads on gets the rest of the same answer.
            if state.last_answer.is_none() {
                let last = self.context.mount.answers.get(&self.context.view, S::FILE, self.context.caller.uid)?;
                state.last_answer = Some(self.context.count_buffer(last)?);
            }
            slice_at(state.last_answer.as_deref().unwrap_or_default(), start, size)
        };
        state.read_end = state.read_end.max(start + bytes.len() as u64);
        Ok(bytes)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        // Before the tail is taken: two writes at once would put their halves of a line together.
        let _turn = SessionTurn::begin(&self.is_busy)?;
        if let Some(failure) = self.refuse_rest(data) {
            return Err(failure);
        }
        let mut tail = self.begin(offset);
        let rest = data.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let taken = self.process_write(&mut tail, data, rest).inspect_err(|failure| {
            self.answer_refusal(failure);
            if !tail.is_empty() {
                self.state.lock().refused = Some(RefusedLine::new(failure.clone(), data));
            }
        })?;
        let mut state = self.state.lock();
        state.answer_offset.note_write(offset + taken as u64);
        state.tail = tail;
        Ok(taken)
    }

    fn commit(&self) -> Result<(), Failure> {
        self.finish_line()
    }

    /// A line that is being done was taken out: what it does keeps others out by itself.
    fn is_pending(&self) -> bool {
        self.protocol.holds_branch() && !self.state.lock().tail.is_empty()
    }

    fn is_readable(&self) -> bool {
        let state = self.state.lock();
        !state.has_written || !state.tail.is_empty() || state.answer.lock().len() as u64 > state.read_end
    }

    fn outlives_branch(&self) -> bool {
        true
    }
}

fn new_answer(context: &OpenContext) -> QueuedAnswer {
    Arc::new(Mutex::new(context.buffer()))
}

/// Returns the complete lines of `data`, each with the place in `data` past its end; the first one begins with `tail`.
fn split(tail: &[u8], data: &[u8]) -> Vec<(Vec<u8>, usize)> {
    let mut lines: Vec<(Vec<u8>, usize)> = Vec::new();
    for (end, _) in data.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        let start = lines.last().map_or(0, |(_, end)| *end);
        let line = if start == 0 { [tail, &data[..end]].concat() } else { data[start..end].to_vec() };
        lines.push((line, end + 1));
    }
    lines
}

/// The one request that a handle may have under way. Another thread's is EBUSY and not queued, so
/// that a long query holds up no thread but the one that answers it.
struct SessionTurn<'a>(&'a AtomicBool);

impl<'a> SessionTurn<'a> {
    fn begin(busy: &'a AtomicBool) -> Result<SessionTurn<'a>, Failure> {
        if busy.swap(true, Ordering::Acquire) {
            return Err(InputRefusal::HandleBusy.into());
        }
        Ok(SessionTurn(busy))
    }
}

impl Drop for SessionTurn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, UNREAD_BYTES_MAX, split};

    #[test]
    fn a_line_takes_4_mib_and_unread_answers_64() {
        assert_eq!((LINE_BYTES_MAX, UNREAD_BYTES_MAX), (4 << 20, 64 << 20), "as the page says");
    }

    #[test]
    fn lines_end_at_line_feeds_and_the_first_one_takes_the_tail() {
        assert_eq!(split(b"he", b"llo\nyou\nrest"), [(b"hello".to_vec(), 4), (b"you".to_vec(), 8)]);
        assert_eq!(split(b"he", b"llo"), []);
        assert_eq!(split(b"", b"\n\n"), [(vec![], 1), (vec![], 2)]);
    }

    #[test]
    fn a_line_feed_at_the_start_ends_the_tail_alone() {
        assert_eq!(split(b"q", b"\nnext\n"), [(b"q".to_vec(), 1), (b"next".to_vec(), 6)]);
    }
}
