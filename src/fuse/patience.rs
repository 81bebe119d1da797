//! Requests that may take long do not keep the session's threads from the others.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Threads of a session that no long request ever holds but to send its reply.
const ALWAYS_FREE: usize = 2;

/// Where long requests are done: on the session's own threads while enough of them stay free, which
/// costs nothing, and on threads of their own beyond that.
#[derive(Clone)]
pub(super) struct Patience {
    running: Arc<AtomicUsize>,
    /// How many may run on the session's threads: as many as there are processors. Counted once,
    /// since that reads files of the kernel's and takes longer than most requests.
    here: usize,
}

impl Patience {
    /// Returns how many threads a session needs: one for each processor, and those that stay free.
    pub fn session_threads() -> usize {
        processors() + ALWAYS_FREE
    }

    /// Begins with nothing under way.
    pub fn new() -> Patience {
        Patience { running: Arc::default(), here: processors() }
    }

    /// Does the work, here or elsewhere, and has the reply say what came of it.
    pub fn run<T>(&self, work: impl FnOnce() -> T + Send + 'static, reply: impl FnOnce(T) + Send + 'static) {
        let turn = Turn::begin(&self.running);
        if turn.number < self.here {
            let outcome = work();
            // Whoever gets the reply may ask on before this thread goes on.
            drop(turn);
            return reply(outcome);
        }
        drop(turn);
        // As many of these as there are callers waiting; each of them waits in the kernel anyway.
        let spawned = thread::Builder::new().name("patient".to_owned()).spawn(move || reply(work()));
        if let Err(error) = spawned {
            log::error!("a request got no thread to be done on, and its caller an error: {error}");
        }
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// One long request on a thread of the session.
struct Turn<'a> {
    running: &'a AtomicUsize,
    /// How many others were running when it began.
    number: usize,
}

impl Turn<'_> {
    fn begin(running: &AtomicUsize) -> Turn<'_> {
        Turn { running, number: running.fetch_add(1, Ordering::AcqRel) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn more_long_requests_than_processors_go_to_other_threads() {
        let (patience, own) = (Patience::new(), thread::current().id());
        let (tell, told) = mpsc::channel();
        let run = || {
            let tell = tell.clone();
            patience.run(|| thread::current().id(), move |id| tell.send(id).unwrap());
            told.recv().unwrap()
        };
        assert_eq!(run(), own);
        // Others are under way on every thread that long requests may have.
        let under_way: Vec<_> = (0..patience.here).map(|_| Turn::begin(&patience.running)).collect();
        assert_ne!(run(), own);
        drop(under_way);
        assert_eq!(run(), own);
    }

    #[test]
    fn a_request_is_no_longer_under_way_when_its_reply_is_sent() {
        let patience = Patience::new();
        let running = Arc::clone(&patience.running);
        let (tell, told) = mpsc::channel();
        patience.run(|| (), move |()| tell.send(running.load(Ordering::Acquire)).unwrap());
        assert_eq!(told.recv().unwrap(), 0);
    }
}
