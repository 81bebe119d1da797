//! The thread that removes signals whose time is over, and tells of leases that nobody holds any longer.
//!
//! A signal is gone for every reader at the moment at which it ends. What the thread does a little later is to free its memory
//! and to note that in the events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::memory::catalog::BranchId;
use crate::memory::{Error, Memory};
use crate::object::Time;
use crate::sync::{Condvar, Mutex};

/// Signals that end within this time of each other are removed in one commit.
const COALESCE_INTERVAL: Duration = Duration::from_millis(20);
/// The clock is looked at so often: by one that is set back for a moment, the next end seems to be years away.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// How long after a failure removal is tried again.
const RETRY_DELAY_NANOS: i64 = 1_000_000_000;

#[derive(Default)]
struct ExpiryRequests {
    /// When the next signal ends, or something is tried again; `None` if nothing is waited for.
    next: Option<Time>,
    /// Branches whose leases were lost since the thread last looked.
    lost: BTreeSet<BranchId>,
    /// Those of which that could not be noted; it is tried again when the next signal is looked at.
    unnoted: BTreeSet<BranchId>,
    stop: bool,
}

enum ExpiryStep {
    /// Removes signals that have ended, and tells of these leases.
    Expire(BTreeSet<BranchId>),
    /// Looks at the clock, and asks again: it may have been set.
    CheckAgain,
    Stop,
}

/// The thread, seen from outside. It does not hold the store.
#[derive(Clone, Default)]
pub(in crate::memory) struct SignalExpiry(Arc<(Mutex<ExpiryRequests>, Condvar)>);

impl SignalExpiry {
    /// Has the thread look at that time, unless it looks sooner anyway.
    pub fn wake_at(&self, end: Time) {
        let mut requests = self.0.0.lock();
        if requests.next.is_none_or(|next| end < next) {
            requests.next = Some(end);
            drop(requests);
            self.0.1.notify_all();
        }
    }

    /// Tells that nobody holds the lease of a branch any longer, so that signals end with it; does not wait.
    pub fn wake_for_lost_lease(&self, branch: BranchId) {
        self.0.0.lock().lost.insert(branch);
        self.0.1.notify_all();
    }

    /// Has the thread try again in a moment to note that these leases were lost.
    fn retry(&self, lost: &BTreeSet<BranchId>, at: Time) {
        self.0.0.lock().unnoted.extend(lost);
        self.wake_at(at);
    }

    /// Lets a while go by that does not depend on the clock, or less where the thread is to end.
    fn pause(&self) {
        drop(self.0.1.wait_timeout_while(self.0.0.lock(), CHECK_INTERVAL, |requests| !requests.stop));
    }

    /// Tells the thread to end; does not wait, as the last reference to the store may be the thread's.
    pub fn stop(&self) {
        self.0.0.lock().stop = true;
        self.0.1.notify_all();
    }

    /// Waits until there is something to wait for; false to end.
    fn is_needed(&self) -> bool {
        let idle =
            |requests: &mut ExpiryRequests| requests.next.is_none() && requests.lost.is_empty() && !requests.stop;
        !self.0.1.wait_while(self.0.0.lock(), idle).stop
    }

    /// Returns what is to be done at a moment; waits for it where that is nothing yet.
    fn next(&self, now: Time) -> ExpiryStep {
        let mut requests = self.0.0.lock();
        let is_due = requests.next.is_some_and(|next| next <= now);
        if !requests.stop && (is_due || !requests.lost.is_empty()) {
            let mut lost = std::mem::take(&mut requests.lost);
            if is_due {
                requests.next = None;
                // What could not be noted waits for the time that `retry` set, and is not tried again with every lease
                // that is lost.
                lost.append(&mut requests.unnoted);
            }
            return ExpiryStep::Expire(lost);
        }
        let Some(end) = requests.next else {
            return if requests.stop { ExpiryStep::Stop } else { ExpiryStep::CheckAgain };
        };
        let rest =
            |requests: &mut ExpiryRequests| requests.next == Some(end) && !requests.stop && requests.lost.is_empty();
        // The clock is asked again after the wait, as it may have been set meanwhile.
        let left = (Duration::from_nanos(end.0.abs_diff(now.0)) + COALESCE_INTERVAL).min(CHECK_INTERVAL);
        let (requests, _) = self.0.1.wait_timeout_while(requests, left, rest);
        if requests.stop { ExpiryStep::Stop } else { ExpiryStep::CheckAgain }
    }
}

impl Memory {
    /// Starts the thread that removes ended signals. It ends with the store.
    pub(in crate::memory) fn start_signal_expiry(self: &Arc<Self>) {
        let (memory, expiry) = (Arc::downgrade(self), self.maintenance.signal_expiry.clone());
        // Signals that an earlier process left may have ended, and no write tells the thread of them.
        let has_signals = self.catalog().branches.values().any(|branch| !branch.signals.is_empty());
        if has_signals {
            expiry.wake_at(self.now());
        }
        let life = move || {
            // The store is not held while the thread waits.
            while expiry.is_needed()
                && let Some(now) = memory.upgrade().map(|memory| memory.now())
            {
                match expiry.next(now) {
                    ExpiryStep::Stop => break,
                    ExpiryStep::CheckAgain => {}
                    ExpiryStep::Expire(lost) => {
                        let is_clock_set = memory.upgrade().is_some_and(|memory| memory.expire_or_retry(&lost));
                        if is_clock_set {
                            expiry.pause();
                        }
                    }
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("signal-expiry".to_owned()).spawn(life) {
            log::warn!("ended signals are not removed: {error}");
            self.maintenance.signal_expiry.stop();
        }
    }

    /// Returns whether nothing can be removed before the clock, which was set, is right again.
    fn expire_or_retry(&self, lost: &BTreeSet<BranchId>) -> bool {
        let Err(error) = self.expire_ended(lost) else { return false };
        if self.is_read_only() {
            return false;
        }
        log::warn!("ended signals stay for a moment: {error}; {}", error.hint());
        let is_clock_set = matches!(error, Error::Clock(_));
        // A time by the wrong clock could be years away once it is right.
        let at = if is_clock_set { Time(i64::MIN) } else { self.now().plus_nanos(RETRY_DELAY_NANOS) };
        self.maintenance.signal_expiry.retry(lost, at);
        is_clock_set
    }

    fn expire_ended(&self, lost: &BTreeSet<BranchId>) -> Result<(), Error> {
        // Before the signals: those that end with a lease are then removed behind the entry that says it was lost.
        lost.iter().try_for_each(|branch| self.note_lost_lease(*branch))?;
        if let Some(next) = self.expire_signals()? {
            self.maintenance.signal_expiry.wake_at(next);
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};
    use crate::memory::environment::TestClock;
    use crate::memory::{Actor, Environment, OpenMode, Setting};

    #[test]
    fn signals_that_end_by_a_wrong_clock_are_removed_once_it_is_right() {
        const HOUR_NANOS: i64 = 3_600_000_000_000;
        let (who, clock) = (Actor { uid: 0, gid: 0, name: "root".into() }, TestClock::default());
        let environment = clock.environment(who.clone());
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        memory.maintenance.signal_expiry.stop();
        let (main, none) = (memory.root("main").unwrap(), BTreeSet::new());
        memory.set(&who, main, Setting::SignalTtl, "1h").unwrap();
        memory.claim_signal(&who, main, &"tea".into(), 0o644).unwrap();
        clock.set_wrong_by(48 * HOUR_NANOS);
        assert!(memory.expire_or_retry(&none), "it is not tried again within a second");
        clock.set_wrong_by(0);
        clock.advance(2 * HOUR_NANOS);
        let next = memory.maintenance.signal_expiry.0.0.lock().next;
        assert!(next.is_some_and(|next| next <= memory.now()));
        assert!(!memory.expire_or_retry(&none));
        assert!(memory.catalog().branch(main).unwrap().signals.is_empty());
    }

    #[test]
    fn a_lost_lease_that_could_not_be_noted_is_noted_later() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        let environment = Environment { reserve_bytes: 0, ..Environment::real(who.clone()) };
        let memory = Memory::open_on(Arc::new(faulty.clone()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let lease = memory.hold_lease(&who, main).unwrap();
        faulty.plan(Fault { sticky: true, ..Fault::once(1, &[DiskCall::Write], libc::ENOSPC) });
        let is_noted = || memory.lineage_lines(main, false).unwrap().last().unwrap().contains("lease_lost");
        let wait_until = |done: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !done() {
                assert!(start.elapsed() < Duration::from_secs(30), "waited in vain");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        drop(lease);
        wait_until(&|| faulty.calls() > 0);
        assert!(!is_noted());
        faulty.clear();
        wait_until(&is_noted);
    }
}
