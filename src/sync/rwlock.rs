//! A lock for many readers or one writer, with a rank: taking it twice on one thread, even for reading, counts as a
//! wrong order, since a writer that waits in between would stop both.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use super::backend::sync;
use super::order::{HeldRank, Rank};

/// A lock for many readers or one writer that has a place in the order of locks.
pub struct RwLock<T> {
    rank: Rank,
    inner: sync::RwLock<T>,
}

/// Shared access to what a [`RwLock`] guards, until this is dropped.
pub struct ReadGuard<'a, T> {
    inner: sync::RwLockReadGuard<'a, T>,
    _held: HeldRank,
}

/// Sole access to what a [`RwLock`] guards, until this is dropped.
pub struct WriteGuard<'a, T> {
    inner: sync::RwLockWriteGuard<'a, T>,
    _held: HeldRank,
}

impl<T> RwLock<T> {
    /// Makes a lock of this rank. A thread takes it only while it holds no lock of the same or a later rank.
    pub const fn with_rank(rank: Rank, value: T) -> RwLock<T> {
        RwLock { rank, inner: sync::RwLock::new(value) }
    }

    /// Waits until no writer has it. Debug builds panic where the thread holds a lock of this rank or a later one.
    pub fn read(&self) -> ReadGuard<'_, T> {
        let held = HeldRank::take(self.rank);
        ReadGuard { inner: self.inner.read().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    /// Returns the value, which nobody else can have locked.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody has it. Debug builds panic as in [`RwLock::read`].
    pub fn write(&self) -> WriteGuard<'_, T> {
        let held = HeldRank::take(self.rank);
        WriteGuard { inner: self.inner.write().unwrap_or_else(PoisonError::into_inner), _held: held }
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::with_rank(Rank::Leaf, T::default())
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
