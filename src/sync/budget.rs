//! How much memory callers may make the server hold.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Mutex, Rank};

/// Counts the buffers whose size a caller decides, by user and for all together. A buffer is admitted here before it is
/// allocated.
///
/// ```
/// use std::sync::Arc;
///
/// use engramfs::sync::MemoryBudget;
///
/// let budget = Arc::new(MemoryBudget::default());
/// budget.limit(100, 60);
/// let held = budget.reserve(1000, 60).unwrap();
/// assert!(budget.reserve(1000, 1).is_err(), "the user's share");
/// assert!(budget.reserve(1001, 41).is_err(), "what all may hold");
/// drop(held);
/// assert_eq!(budget.held_bytes(), 0);
/// ```
pub struct MemoryBudget {
    /// Bytes that all users may hold together.
    limit_bytes: AtomicU64,
    /// Bytes that one user may hold; like that of all, the largest u64 until a limit is set.
    user_limit_bytes: AtomicU64,
    held: Mutex<HeldBytes>,
    gauge: OnceLock<MemoryGauge>,
}

/// Measures what the whole process takes, now and then: not all that callers make it hold is counted.
struct MemoryGauge {
    measure: MemoryMeter,
    /// Bytes beyond which nothing more is admitted.
    limit_bytes: u64,
    /// Bytes admitted since the last measurement.
    admitted_bytes: AtomicU64,
    is_over: AtomicBool,
}

/// Returns how many bytes the process takes, after it gave back what it does not need where that is set.
pub type MemoryMeter = Box<dyn Fn(TrimHeap) -> u64 + Send + Sync>;

/// Whether the process gives back memory before it is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrimHeap {
    /// What was freed goes back to the system.
    Yes,
    /// It is only looked at.
    No,
}

/// Bytes that are admitted between two measurements of the process.
const MEASURE_INTERVAL_BYTES: u64 = 4 << 20;

#[derive(Default)]
struct HeldBytes {
    total_bytes: u64,
    bytes_by_user: HashMap<u32, u64>,
}

impl Default for MemoryBudget {
    /// Makes a budget without limits.
    fn default() -> MemoryBudget {
        let unlimited = || AtomicU64::new(u64::MAX);
        MemoryBudget {
            limit_bytes: unlimited(),
            user_limit_bytes: unlimited(),
            held: Mutex::with_rank(Rank::Budget, HeldBytes::default()),
            gauge: OnceLock::new(),
        }
    }
}

impl MemoryBudget {
    /// Sets how many bytes all users together and each user may hold; unlimited by default. What is held already stays.
    pub fn limit(&self, limit_bytes: u64, user_limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        self.user_limit_bytes.store(user_limit_bytes, Ordering::Relaxed);
    }

    /// Measures the process from now on: while it uses more than `limit_bytes` bytes, nothing is admitted. Only the
    /// first call has an effect.
    pub fn watch(&self, limit_bytes: u64, measure: MemoryMeter) {
        let gauge =
            MemoryGauge { measure, limit_bytes, admitted_bytes: AtomicU64::default(), is_over: AtomicBool::default() };
        // Only the first call sets it (OnceLock).
        let _ = self.gauge.set(gauge);
    }

    /// Admits about `bytes` that stay with the store and are counted elsewhere, or not at all. Fails while the process
    /// takes more than the limit of [`MemoryBudget::watch`]; without one everything is admitted.
    pub fn admit(&self, bytes: u64) -> Result<(), OverBudget> {
        let Some(gauge) = self.gauge.get() else { return Ok(()) };
        let before = gauge.admitted_bytes.fetch_add(bytes, Ordering::Relaxed);
        // While the process is over its limit each admission measures, so that it is noticed at once when that ends.
        if gauge.is_over.load(Ordering::Relaxed)
            || before / MEASURE_INTERVAL_BYTES != before.saturating_add(bytes) / MEASURE_INTERVAL_BYTES
        {
            return gauge.check();
        }
        Ok(())
    }

    /// Returns how many bytes one user may hold; `u64::MAX` without a limit.
    pub fn user_limit_bytes(&self) -> u64 {
        self.user_limit_bytes.load(Ordering::Relaxed)
    }

    /// Returns how many bytes all users hold together, as their reservations count.
    pub fn held_bytes(&self) -> u64 {
        self.held.lock().total_bytes
    }

    /// Returns an empty reservation for a user. It never fails; [`Reservation::resize`] may.
    pub fn empty_reservation(self: &Arc<MemoryBudget>, uid: u32) -> Reservation {
        Reservation { budget: self.clone(), uid, bytes: 0 }
    }

    /// Lets a user hold `bytes` until the reservation is dropped. Fails if that is more than the user's share, or all
    /// users together may hold.
    pub fn reserve(self: &Arc<MemoryBudget>, uid: u32, bytes: u64) -> Result<Reservation, OverBudget> {
        let mut reservation = self.empty_reservation(uid);
        reservation.resize(bytes)?;
        Ok(reservation)
    }

    fn charge(&self, uid: u32, bytes: u64) -> Result<(), OverBudget> {
        // Before the lock is taken, as measuring the process may take long.
        self.admit(bytes)?;
        let (most, share) = (self.limit_bytes.load(Ordering::Relaxed), self.user_limit_bytes());
        let mut held = self.held.lock();
        let own = held.bytes_by_user.get(&uid).copied().unwrap_or(0);
        let over = |limit_bytes, is_shared| OverBudget {
            limit_bytes,
            held_bytes: if is_shared { held.total_bytes } else { own },
            is_shared,
        };
        // The user's share is asked first, so that whoever has used it up is told so and not that all others took too
        // much.
        if own.saturating_add(bytes) > share {
            return Err(over(share, false));
        }
        if held.total_bytes.saturating_add(bytes) > most {
            return Err(over(most, true));
        }
        held.total_bytes += bytes;
        held.bytes_by_user.insert(uid, own + bytes);
        Ok(())
    }

    fn release(&self, uid: u32, bytes: u64) {
        let mut held = self.held.lock();
        held.total_bytes -= bytes;
        if let Some(own) = held.bytes_by_user.get_mut(&uid) {
            *own -= bytes;
            if *own == 0 {
                held.bytes_by_user.remove(&uid);
            }
        }
    }
}

impl MemoryGauge {
    fn check(&self) -> Result<(), OverBudget> {
        let mut held = (self.measure)(TrimHeap::No);
        // Giving back is tried when the limit is passed, and not at each admission while it stays passed.
        if held > self.limit_bytes && !self.is_over.load(Ordering::Relaxed) {
            held = (self.measure)(TrimHeap::Yes);
        }
        let over = held > self.limit_bytes;
        self.is_over.store(over, Ordering::Relaxed);
        if over { Err(OverBudget { limit_bytes: self.limit_bytes, held_bytes: held, is_shared: true }) } else { Ok(()) }
    }
}

/// Bytes held by a user, until this is dropped.
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    uid: u32,
    bytes: u64,
}

impl Reservation {
    /// Changes its size to `bytes`; less always works. On failure nothing changes.
    pub fn resize(&mut self, bytes: u64) -> Result<(), OverBudget> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => return Ok(()),
            // `bytes` follows only where this succeeds, so that what is dropped gives back what was taken.
            Some(more) => self.budget.charge(self.uid, more)?,
            None => self.budget.release(self.uid, self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Adds `bytes` to its size. On failure nothing changes.
    pub fn grow(&mut self, bytes: u64) -> Result<(), OverBudget> {
        self.resize(self.bytes.saturating_add(bytes))
    }

    /// Returns a second reservation for the same user. Fails like [`MemoryBudget::reserve`].
    pub fn reserve_more(&self, bytes: u64) -> Result<Reservation, OverBudget> {
        self.budget.reserve(self.uid, bytes)
    }

    /// Returns an empty reservation for the same user.
    pub fn empty_for_same_user(&self) -> Reservation {
        self.budget.empty_reservation(self.uid)
    }

    /// Moves the reservation to another user, if that user may hold as much. Fails like [`MemoryBudget::reserve`], and
    /// then counts for the user before. For a moment it counts for both.
    pub fn move_to(&mut self, uid: u32) -> Result<(), OverBudget> {
        if uid != self.uid {
            *self = self.budget.reserve(uid, self.bytes)?;
        }
        Ok(())
    }

    /// Returns how many bytes of its user's share it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(self.uid, self.bytes);
    }
}

/// A buffer was not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverBudget {
    /// The limit in bytes: that of the user, or with `shared` that of all users together.
    pub limit_bytes: u64,
    /// Bytes that the user, or with `is_shared` all together, held before.
    pub held_bytes: u64,
    /// Whether it is the limit of all users together.
    pub is_shared: bool,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.is_shared { "all users together hold" } else { "this user holds" };
        let (held, limit) = (self.held_bytes >> 20, self.limit_bytes >> 20);
        write!(f, "{whose} {held} MiB of the server's memory and may hold {limit} MiB")
    }
}

impl std::error::Error for OverBudget {}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn budget() -> Arc<MemoryBudget> {
        let budget = Arc::new(MemoryBudget::default());
        budget.limit(100, 40);
        budget
    }

    #[test]
    fn a_user_keeps_within_a_share_and_all_within_the_limit() {
        let budget = budget();
        let mut one = budget.reserve(1, 40).unwrap();
        assert_eq!(one.grow(1), Err(OverBudget { limit_bytes: 40, held_bytes: 40, is_shared: false }));
        let _two = budget.reserve(2, 40).unwrap();
        assert!(budget.reserve(3, 30).is_err_and(|over| over.is_shared));
        let _three = budget.reserve(3, 20).unwrap();
        one.resize(10).unwrap();
        assert!(budget.reserve(3, 20).is_ok());
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let budget = budget();
        let mut held = budget.empty_reservation(1);
        held.grow(30).unwrap();
        held.grow(10).unwrap();
        assert_eq!((held.bytes(), budget.held_bytes()), (40, 40));
        drop(held);
        assert_eq!(budget.held_bytes(), 0);
        assert!(budget.held.lock().bytes_by_user.is_empty(), "nothing is kept of users who hold nothing");
    }

    #[test]
    fn nothing_is_admitted_while_the_process_takes_too_much() {
        let (budget, taken) = (Arc::new(MemoryBudget::default()), Arc::new(AtomicU64::new(10)));
        let measured = taken.clone();
        budget.watch(100, Box::new(move |_| measured.load(Ordering::Relaxed)));
        budget.admit(MEASURE_INTERVAL_BYTES).unwrap();
        taken.store(101, Ordering::Relaxed);
        budget.admit(1).unwrap();
        assert!(budget.admit(MEASURE_INTERVAL_BYTES).is_err_and(|over| over.is_shared && over.held_bytes == 101));
        assert!(budget.reserve(1, 1).is_err());
        taken.store(99, Ordering::Relaxed);
        budget.admit(1).unwrap();
    }

    #[test]
    fn a_refusal_changes_nothing() {
        let budget = budget();
        let mut held = budget.reserve(1, 30).unwrap();
        assert!(held.resize(u64::MAX).is_err());
        assert_eq!((held.bytes(), budget.held_bytes()), (30, 30));
    }
}
