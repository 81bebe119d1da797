//! Waiting for a change of what a mutex guards. Nobody may wait with a lock that comes later in the order: waking
//! takes the mutex again, which the check of ranks does not see.

use std::sync::PoisonError;
use std::time::Duration;

use super::MutexGuard;
use super::backend::sync;

/// A condition variable for a [`super::Mutex`].
#[derive(Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Wakes one who waits, if anybody does; the mutex need not be held.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait; each looks at its condition again with the mutex held.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Releases the mutex until it is woken, possibly without a call: [`Condvar::wait_while`] checks the condition
    /// again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { inner, held } = guard;
        MutexGuard { inner: self.0.wait(inner).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Waits while the condition holds; it is asked with the mutex held.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { inner, held } = guard;
        MutexGuard { inner: self.0.wait_while(inner, condition).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Waits while the condition holds, no longer than `limit`; also returns whether the limit was reached.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let MutexGuard { inner, held } = guard;
        let waited = self.0.wait_timeout_while(inner, limit, condition);
        let (inner, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { inner, held }, timeout.timed_out())
    }
}
