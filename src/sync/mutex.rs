//! A mutex with a rank: debug builds panic where a thread takes it under a lock that comes later in the order. What
//! a thread held that panicked is handed out as it is.

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

use super::backend::sync;
use super::order::{HeldRank, Rank};
use super::waiting::may_wait;

/// A mutex that has a place in the order of locks.
pub struct Mutex<T: ?Sized> {
    rank: Rank,
    inner: sync::Mutex<T>,
}

/// Sole access to what a [`Mutex`] guards, until this is dropped.
pub struct MutexGuard<'a, T: ?Sized> {
    /// Lets go of the lock when it is dropped, before `held` is, which is declared behind it.
    pub(super) inner: sync::MutexGuard<'a, T>,
    /// What the check of the order of locks knows of this one; nothing in release builds.
    pub(super) held: HeldRank,
}

impl<T> Mutex<T> {
    /// Makes a mutex under which nothing else is taken.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex::with_rank(Rank::Leaf, value)
    }

    /// Makes a mutex of that rank, which no thread takes while it holds one of the same or a later rank.
    pub const fn with_rank(rank: Rank, value: T) -> Mutex<T> {
        Mutex { rank, inner: sync::Mutex::new(value) }
    }

    /// Returns the value, which nobody else can have locked.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock. Debug builds panic where the thread holds a lock of this rank or a later one.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // Noted before the lock is waited for, so that a wrong order panics even where nobody else holds the lock.
        let held = HeldRank::take(self.rank);
        MutexGuard { inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Takes the lock; where another thread has it, only a thread that may wait does so.
    pub fn lock_or_give_up(&self) -> Option<MutexGuard<'_, T>> {
        if may_wait() { Some(self.lock()) } else { self.try_lock() }
    }

    /// Takes the lock if it is free, and does not wait. Debug builds panic as in [`Mutex::lock`].
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = HeldRank::take(self.rank);
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { inner, held })
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::super::without_waiting;
    use super::*;

    #[test]
    fn locks_are_taken_in_ascending_rank_and_may_be_dropped_in_any_order() {
        let (outer, inner) = (Mutex::with_rank(Rank::Writer, 1), Mutex::with_rank(Rank::Catalog, 2));
        let (first, second) = (outer.lock(), inner.lock());
        drop(first);
        assert_eq!(*second, 2);
        drop(second);
        assert_eq!(*outer.lock(), 1);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a lock of rank Writer is taken under one of Some(Catalog)")]
    fn the_wrong_order_is_found() {
        let (outer, inner) = (Mutex::with_rank(Rank::Writer, 1), Mutex::with_rank(Rank::Catalog, 2));
        let _inner = inner.lock();
        drop(outer.lock());
    }

    #[test]
    fn a_thread_that_must_not_wait_gets_the_lock_only_when_it_is_free() {
        let mutex = Mutex::new(7);
        assert!(without_waiting(|| mutex.lock_or_give_up().is_some()));
        let _held = mutex.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(without_waiting(|| mutex.lock_or_give_up().is_none())));
        });
    }

    #[test]
    fn what_a_panicking_thread_held_is_handed_out_as_it_is() {
        let mutex = Mutex::new(7);
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _guard = mutex.lock();
                    panic!("on purpose");
                })
                .join()
        });
        assert!(panicked.is_err() && *mutex.lock() == 7 && mutex.try_lock().is_some());
    }
}
