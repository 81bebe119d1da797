//! Threads for work that may wait.

use std::collections::{HashMap, VecDeque};
use std::num::NonZero;
use std::sync::Arc;

use super::backend::thread;
use super::{Condvar, Mutex, MutexGuard};

/// Threads that stay when there is nothing to do.
const IDLE_MAX: usize = 4;

type PoolJob = Box<dyn FnOnce() + Send>;

/// A bounded number of threads, shared fairly by users: no user has more than half of them at a time, and
/// of those who wait each user is served in turn.
pub struct Pool(Arc<PoolShared>);

struct PoolShared {
    name: &'static str,
    threads_max: usize,
    state: Mutex<PoolState>,
    work: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// What waits, by user.
    queues: HashMap<u32, VecDeque<PoolJob>>,
    /// The users for whom something waits, in the order of their turns.
    turns: VecDeque<u32>,
    /// How many threads work for each user.
    running: HashMap<u32, usize>,
    threads: usize,
    idle: usize,
    /// How many of the idle ones were called and have not woken yet.
    waking: usize,
    /// The pool was dropped: threads end when nothing waits.
    is_closed: bool,
}

impl PoolState {
    fn put(&mut self, uid: u32, job: PoolJob) {
        let queue = self.queues.entry(uid).or_default();
        if queue.is_empty() {
            // A user stands in `turns` exactly once for as long as something of theirs waits, however many jobs that
            // are.
            self.turns.push_back(uid);
        }
        queue.push_back(job);
    }

    /// Takes the next job that may run now.
    fn take(&mut self, threads_max: usize) -> Option<(u32, PoolJob)> {
        let may_run = |uid: &u32| self.running.get(uid).is_none_or(|running| *running < threads_max);
        // A user at the limit is passed over, and keeps the place in the order for when one of the jobs ends.
        let at = self.turns.iter().position(may_run)?;
        let uid = self.turns.remove(at)?;
        let queue = self.queues.get_mut(&uid)?;
        let job = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&uid);
        } else {
            self.turns.push_back(uid);
        }
        *self.running.entry(uid).or_default() += 1;
        Some((uid, job))
    }

    fn finish(&mut self, uid: u32) {
        if let Some(running) = self.running.get_mut(&uid) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&uid);
            }
        }
    }
}

impl Pool {
    /// Returns the number of processors that this process may use; 1 where the system does not tell.
    pub fn processors() -> usize {
        std::thread::available_parallelism().map_or(1, NonZero::get)
    }

    /// Makes a pool without threads; they come with the work, up to `threads_max`, or 2 where that is less. `name` is
    /// that of its threads.
    pub fn new(name: &'static str, threads_max: usize) -> Pool {
        let (state, work) = (Mutex::default(), Condvar::default());
        Pool(Arc::new(PoolShared { name, threads_max: threads_max.max(2), state, work }))
    }

    /// Does the job on a thread of the pool, at once if `uid` has not too many under way.
    pub fn run(&self, uid: u32, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        state.put(uid, Box::new(job));
        // An idle thread that was called and has not woken yet has its job: counting it as free would leave this job
        // waiting for that one.
        if state.idle > state.waking {
            state.waking += 1;
            self.0.work.notify_one();
            return;
        }
        if state.threads == self.0.threads_max {
            return;
        }
        // Counted before the thread is there: others who come meanwhile must not start more than the pool may have.
        state.threads += 1;
        drop(state);
        let shared = self.0.clone();
        let spawned = thread::Builder::new().name(self.0.name.to_owned()).spawn(move || shared.run_jobs());
        if let Err(error) = spawned {
            self.0.run_without_thread(&error);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.work.notify_all();
    }
}

impl PoolShared {
    fn threads_per_user_max(&self) -> usize {
        self.threads_max / 2
    }

    /// The life of a thread: jobs, until too many are idle.
    fn run_jobs(&self) {
        let mut state = self.state.lock();
        loop {
            while let Some((uid, job)) = state.take(self.threads_per_user_max()) {
                // The lock is given up for the job, which may wait for a long time and may give the pool more work.
                drop(state);
                // A panic must not skip what follows: the user would lose one place in the pool for good.
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                if outcome.is_err() {
                    log::error!("a job of the pool '{}' panicked", self.name);
                }
                state = self.state.lock();
                state.finish(uid);
            }
            // Asked with the lock held that `run` takes: a job that comes now finds this thread idle, or counts it as
            // gone.
            if state.idle >= IDLE_MAX || state.is_closed {
                state.threads -= 1;
                return;
            }
            state = self.wait_for_job(state);
        }
    }

    fn wait_for_job<'a>(&self, mut state: MutexGuard<'a, PoolState>) -> MutexGuard<'a, PoolState> {
        state.idle += 1;
        let mut state = self.work.wait_while(state, |state| state.waking == 0 && !state.is_closed);
        state.waking = state.waking.saturating_sub(1);
        state.idle -= 1;
        state
    }

    /// The system gave no thread. What waits is done by the threads there are, or else here.
    fn run_without_thread(&self, error: &std::io::Error) {
        log::warn!("the pool '{}' got no further thread: {error}", self.name);
        let mut state = self.state.lock();
        state.threads -= 1;
        if state.threads > 0 {
            return;
        }
        // The limit of one user is not asked for: there is no other thread that would do the job later.
        let next = state.take(self.threads_max);
        drop(state);
        if let Some((uid, job)) = next {
            job();
            self.state.lock().finish(uid);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_user_who_fills_half_of_the_pool_leaves_the_rest_to_others() {
        let pool = Pool::new("test", 4);
        let (release, blocked) = channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let (tell, told) = channel();
        let (begin, begun) = channel();
        for number in 0..6 {
            let (blocked, tell, begin) = (blocked.clone(), tell.clone(), begin.clone());
            pool.run(7, move || {
                begin.send(()).unwrap();
                let _ = blocked.lock().recv();
                tell.send((7, number)).unwrap();
            });
        }
        let other = tell.clone();
        pool.run(8, move || other.send((8, 0)).unwrap());
        for _ in 0..2 {
            begun.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), (8, 0));
        assert_eq!(pool.0.state.lock().running.get(&7), Some(&2));
        drop(release);
        let mut rest: Vec<_> = (0..6).map(|_| told.recv_timeout(Duration::from_secs(20)).unwrap()).collect();
        rest.sort_unstable();
        assert_eq!(rest, [(7, 0), (7, 1), (7, 2), (7, 3), (7, 4), (7, 5)]);
    }

    #[test]
    fn a_job_that_panics_takes_no_thread_with_it() {
        let pool = Pool::new("test", 2);
        let (tell, told) = channel();
        for _ in 0..5 {
            pool.run(1, || panic!("on purpose"));
        }
        pool.run(1, move || tell.send(()).unwrap());
        told.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}

/// Orders of threads that shuttle chooses: `scripts/nightly.sh schedules`.
#[cfg(all(test, shuttle))]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod schedules {
    use shuttle::thread::yield_now;

    use super::*;

    #[derive(Default)]
    struct JobCounts {
        running: HashMap<u32, usize>,
        done: usize,
    }

    #[test]
    fn every_job_is_done_and_no_user_has_more_than_half_of_the_threads() {
        let run = || {
            let (pool, jobs) = (Pool::new("test", 4), Arc::new((Mutex::<JobCounts>::default(), Condvar::default())));
            for uid in [7, 8, 7, 7, 8] {
                let jobs = jobs.clone();
                pool.run(uid, move || {
                    *jobs.0.lock().running.entry(uid).or_default() += 1;
                    yield_now();
                    let mut state = jobs.0.lock();
                    assert!(state.running[&uid] <= 2, "two of four threads are half of them");
                    *state.running.get_mut(&uid).unwrap() -= 1;
                    state.done += 1;
                    jobs.1.notify_all();
                });
            }
            // A job that nobody comes for leaves this thread waiting for ever, which shuttle reports.
            drop(jobs.1.wait_while(jobs.0.lock(), |jobs| jobs.done < 5));
        };
        shuttle::check_random(run, 3000);
        shuttle::check_pct(run, 3000, 3);
    }
}
