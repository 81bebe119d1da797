//! Where requests are done: on the session's own threads while nothing has to be waited for, else on pools.
//!
//! A session has few threads, and a request that waited on one of them would keep others from being served.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fuser::{Errno, Request};

use super::reply::catch_panic;
use crate::fs;
use crate::sync::{Pool, without_waiting};

/// Threads of a session that no long request ever holds but to send its reply.
const UNBLOCKED_THREADS: usize = 2;
/// Threads for requests that wait for another caller, mostly for as long as a commit takes.
const WAITING_REQUEST_THREADS: usize = 32;
/// Threads for long requests.
const LONG_REQUEST_THREADS: usize = 64;

/// What a request is: its name, and the user who sent it.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// The operation, for the log.
    pub name: &'static str,
    /// Uid of the sender; pools let users take turns by it.
    pub uid: u32,
}

impl Call {
    /// Takes the user from the request; `name` is the operation's, for the log.
    pub fn new(name: &'static str, request: &Request) -> Call {
        Call { name, uid: request.uid() }
    }
}

/// Decides on which thread a request to a file system is done.
pub(super) struct Dispatcher<F> {
    fs: Arc<F>,
    /// Long requests that are being done on the session's threads.
    long_in_flight: Arc<AtomicUsize>,
    /// How many may be: as many as there are processors.
    long_slots: usize,
    blocking_pool: Pool,
    long_pool: Pool,
}

/// Returns how many threads a session needs: one for each processor, and those that stay free.
pub(super) fn session_threads() -> usize {
    Pool::processors() + UNBLOCKED_THREADS
}

impl<F: Send + Sync + 'static> Dispatcher<F> {
    /// Makes both pools, of 32 threads for those who wait and of 64 for long requests.
    pub fn new(fs: Arc<F>) -> Dispatcher<F> {
        let (blocking_pool, long_pool) =
            (Pool::new("engramfs-waiting", WAITING_REQUEST_THREADS), Pool::new("engramfs-long", LONG_REQUEST_THREADS));
        Dispatcher { fs, long_in_flight: Arc::default(), long_slots: Pool::processors(), blocking_pool, long_pool }
    }

    /// Runs an operation on this thread, and sends the reply. One that would wait for another caller has changed
    /// nothing, and is run again on another thread.
    pub fn serve<A, T>(
        &self,
        call: Call,
        argument: &A,
        operation: impl Fn(&F, &A) -> Result<T, fs::Errno> + Send + 'static,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) where
        A: ToOwned + ?Sized,
        A::Owned: Send + 'static,
    {
        // By reference: the argument is copied only for the few requests that have to wait.
        let outcome = self.try_without_waiting(call, |fs| operation(fs, argument));
        match outcome {
            Some(outcome) => reply(outcome),
            None => {
                let argument = argument.to_owned();
                self.spawn_blocking(call, move |fs| operation(fs, argument.borrow()), reply);
            }
        }
    }

    /// Does an operation here; `None` if it would have to wait for another caller. An error of the operation is a
    /// reply, too.
    pub fn try_without_waiting<T>(
        &self,
        call: Call,
        operation: impl FnOnce(&F) -> Result<T, fs::Errno>,
    ) -> Option<Result<T, Errno>> {
        let outcome = without_waiting(|| catch_panic(call.name, || operation(&self.fs)));
        let gave_up = outcome.as_ref().is_err_and(|error| error.code() == libc::EAGAIN);
        (!gave_up).then_some(outcome)
    }

    /// Runs an operation on another thread, where it may wait.
    pub fn spawn_blocking<T>(
        &self,
        call: Call,
        operation: impl FnOnce(&F) -> Result<T, fs::Errno> + Send + 'static,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let fs = Arc::clone(&self.fs);
        self.blocking_pool.run(call.uid, move || reply(catch_panic(call.name, || operation(&fs))));
    }

    /// Runs an operation that may take long: on this thread while enough of the session's threads are free, else on
    /// another one.
    pub fn serve_long<T>(
        &self,
        call: Call,
        operation: impl FnOnce(&F) -> Result<T, fs::Errno> + Send + 'static,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        // Counted before it is compared, so that two that come at once do not both take the last place.
        let turn = DispatchTurn::begin(&self.long_in_flight);
        if turn.number < self.long_slots {
            let outcome = catch_panic(call.name, || operation(&self.fs));
            // Whoever gets the reply may ask on before this thread goes on.
            drop(turn);
            return reply(outcome);
        }
        drop(turn);
        let fs = Arc::clone(&self.fs);
        self.long_pool.run(call.uid, move || reply(catch_panic(call.name, || operation(&fs))));
    }
}

/// Counts a long request on a thread of the session until it is dropped.
struct DispatchTurn<'a> {
    long_in_flight: &'a AtomicUsize,
    /// How many others were when it began.
    number: usize,
}

impl DispatchTurn<'_> {
    fn begin(long_in_flight: &AtomicUsize) -> DispatchTurn<'_> {
        DispatchTurn { long_in_flight, number: long_in_flight.fetch_add(1, Ordering::AcqRel) }
    }
}

impl Drop for DispatchTurn<'_> {
    fn drop(&mut self) {
        self.long_in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::sync::may_wait;
    use std::sync::mpsc;
    use std::thread;

    const CALL: Call = Call { name: "test", uid: 7 };

    fn dispatcher() -> Dispatcher<()> {
        Dispatcher::new(Arc::new(()))
    }

    #[test]
    fn more_long_requests_than_processors_go_to_other_threads() {
        let (dispatcher, own) = (dispatcher(), thread::current().id());
        let (tell, told) = mpsc::channel();
        let run = || {
            let tell = tell.clone();
            dispatcher.serve_long(CALL, |_| Ok(thread::current().id()), move |id| tell.send(id.unwrap()).unwrap());
            told.recv().unwrap()
        };
        assert_eq!(run(), own);
        // Others are under way on every thread that long requests may have.
        let under_way: Vec<_> =
            (0..dispatcher.long_slots).map(|_| DispatchTurn::begin(&dispatcher.long_in_flight)).collect();
        assert_ne!(run(), own);
        drop(under_way);
        assert_eq!(run(), own);
    }

    #[test]
    fn a_request_is_no_longer_under_way_when_its_reply_is_sent() {
        let dispatcher = dispatcher();
        let under_way = Arc::clone(&dispatcher.long_in_flight);
        let (tell, told) = mpsc::channel();
        let reply = move |_| tell.send(under_way.load(Ordering::Acquire)).unwrap();
        dispatcher.serve_long(CALL, |_| Ok(()), reply);
        assert_eq!(told.recv().unwrap(), 0);
    }

    #[test]
    fn what_would_have_to_wait_is_done_elsewhere_and_what_fails_is_told() {
        let (dispatcher, own) = (dispatcher(), thread::current().id());
        let (tell, told) = mpsc::channel();
        let run = |fails: bool, waits: bool| {
            let tell = tell.clone();
            let operation = move |(): &(), text: &str| match (fails, waits && !may_wait()) {
                (_, true) => Err(fs::Errno::EAGAIN),
                (true, _) => Err(fs::Errno::EBUSY),
                _ => Ok((text.to_owned(), thread::current().id())),
            };
            let reply = move |outcome: Result<_, Errno>| tell.send(outcome.map_err(Errno::code)).unwrap();
            dispatcher.serve(CALL, "argument", operation, reply);
            told.recv().unwrap()
        };
        assert_eq!(run(false, false), Ok(("argument".to_owned(), own)));
        let (text, thread) = run(false, true).unwrap();
        assert!(text == "argument" && thread != own);
        assert_eq!(run(true, true), Err(libc::EBUSY));
    }
}
