//! The requests of one write, in turn or on all processors.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::line_session::RequestOutcome;

/// Does requests one after the other until one fails; none is begun once the answers are longer
/// than `room`.
pub(super) fn run_serially<R>(
    requests: &[R],
    room: usize,
    perform: impl Fn(usize, &R) -> RequestOutcome,
) -> Vec<RequestOutcome> {
    let (mut outcomes, mut used) = (Vec::with_capacity(requests.len()), 0);
    for (at, request) in requests.iter().enumerate() {
        if used > room {
            break;
        }
        let outcome = perform(at, request);
        used += outcome.as_ref().map_or(0, String::len);
        let failed = outcome.is_err();
        outcomes.push(outcome);
        if failed {
            break;
        }
    }
    outcomes
}

/// The same on as many threads as there are processors, for requests that change nothing: what a
/// failed one is followed by may have been done, and is dropped.
pub(super) fn run_in_parallel<R: Sync>(
    requests: &[R],
    room: usize,
    perform: impl Fn(usize, &R) -> RequestOutcome + Sync,
) -> Vec<RequestOutcome> {
    // Asked once: the answer is read from files of the control groups, which takes longer than most
    // queries.
    static PROCESSORS: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));
    let threads = if requests.len() > 1 { requests.len().min(*PROCESSORS) } else { 1 };
    if threads < 2 {
        return run_serially(requests, room, perform);
    }
    let (next, used, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    // Requests are begun in their order and all that were begun are ended: the outcomes have no gap.
    let work = || {
        let mut outcomes = Vec::new();
        while used.load(Ordering::Relaxed) <= room && !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(request) = requests.get(at) else { break };
            let outcome = perform(at, request);
            used.fetch_add(outcome.as_ref().map_or(0, String::len), Ordering::Relaxed);
            failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            outcomes.push((at, outcome));
        }
        outcomes
    };
    let mut outcomes = thread::scope(|scope| {
        // A thread that can't be spawned only costs time: the others do its work.
        let spawn = |_| thread::Builder::new().name("batch".to_owned()).spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (1..threads).filter_map(spawn).collect();
        let mut outcomes = work();
        for helper in helpers {
            outcomes.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        outcomes
    });
    outcomes.sort_unstable_by_key(|(at, _)| *at);
    let failed = outcomes.iter().position(|(_, outcome)| outcome.is_err());
    outcomes.truncate(failed.map_or(outcomes.len(), |at| at + 1));
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::fs::errno::Errno;

    /// Returns the answers, and whether a failure ends them.
    fn answers_until_failure(outcomes: Vec<RequestOutcome>) -> (Vec<String>, bool) {
        let failed = outcomes.last().is_some_and(Result::is_err);
        (outcomes.into_iter().map_while(Result::ok).collect(), failed)
    }

    #[test]
    fn both_ways_give_the_same_in_order_and_end_at_the_first_failure() {
        for count in [0, 1, 2, 7, 100] {
            let requests: Vec<usize> = (0..count).collect();
            for bad in [0, 1, 3, 99, 1000] {
                let perform = |at: usize, request: &usize| {
                    assert_eq!(at, *request);
                    if *request >= bad { Err(Errno::EINVAL.into()) } else { Ok(request.to_string()) }
                };
                let expected: Vec<String> = requests.iter().take(bad).map(usize::to_string).collect();
                let fails = bad < count;
                assert_eq!(
                    answers_until_failure(run_serially(&requests, usize::MAX, perform)),
                    (expected.clone(), fails)
                );
                assert_eq!(answers_until_failure(run_in_parallel(&requests, usize::MAX, perform)), (expected, fails));
            }
        }
    }

    #[test]
    fn none_is_begun_once_the_answers_fill_the_room() {
        let requests = [(); 100];
        let perform = |_: usize, (): &()| Ok("ten bytes.".to_owned());
        assert_eq!(run_serially(&requests, 50, perform).len(), 6);
        let threads = thread::available_parallelism().unwrap().get();
        let done = run_in_parallel(&requests, 50, perform).len();
        assert!((6..6 + threads).contains(&done), "{done}");
    }

    #[test]
    #[should_panic(expected = "a request that panics")]
    fn a_panic_comes_through() {
        run_in_parallel(&[0, 1, 2, 3], usize::MAX, |at, _| {
            assert!(at < 1, "a request that panics");
            Ok(String::new())
        });
    }
}
