//! Bytes whose number a caller decides: admitted against the user's share of memory before they are
//! allocated.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::errno::{Errno, Failure};
use crate::memory::Error;
use crate::sync::{MemoryBudget, Reservation};

/// From here on a buffer grows by a quarter; below it doubles.
const DOUBLING_BYTES_MAX: usize = 1 << 20;

/// A buffer that counts for a user by what is allocated for it.
pub(super) struct CountedBuffer {
    bytes: Vec<u8>,
    reservation: Reservation,
}

impl CountedBuffer {
    /// Begins empty, with nothing counted for the user.
    pub fn new(budget: &Arc<MemoryBudget>, uid: u32) -> CountedBuffer {
        CountedBuffer { bytes: Vec::new(), reservation: budget.empty_reservation(uid) }
    }

    /// Takes bytes over that were made already. EDQUOT or ENOSPC if they are too many.
    pub fn from_bytes(budget: &Arc<MemoryBudget>, uid: u32, bytes: Vec<u8>) -> Result<CountedBuffer, Failure> {
        let reservation = budget.reserve(uid, bytes.capacity() as u64).map_err(Error::from)?;
        Ok(CountedBuffer { bytes, reservation })
    }

    /// Counts more for the same user. EDQUOT or ENOSPC.
    pub fn reserve_more(&self, bytes: u64) -> Result<Reservation, Failure> {
        Ok(self.reservation.reserve_more(bytes).map_err(Error::from)?)
    }

    /// Cuts or extends the buffer to a length; bytes that are added are zeros. Fails with EDQUOT, ENOSPC or ENOMEM, and
    /// leaves it as it was.
    pub fn resize(&mut self, length: usize) -> Result<(), Failure> {
        self.make_room(length)?;
        self.bytes.resize(length, 0);
        Ok(())
    }

    /// Appends bytes. EDQUOT, ENOSPC or ENOMEM, and then it is as before.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.make_room(self.bytes.len() + bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Shortens it, and gives back what is not needed any longer.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        if self.bytes.capacity() > 4096 && self.bytes.len() < self.bytes.capacity() / 2 {
            self.bytes.shrink_to_fit();
            // Shrinking a reservation can't fail.
            let _ = self.reservation.resize(self.bytes.capacity() as u64);
        }
    }

    /// Returns the bytes, and counts them no longer.
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        let _ = self.reservation.resize(0);
        bytes
    }

    fn make_room(&mut self, length: usize) -> Result<(), Failure> {
        let capacity = self.bytes.capacity();
        if length <= capacity {
            return Ok(());
        }
        let ample = length.max(capacity + if capacity < DOUBLING_BYTES_MAX { capacity } else { capacity / 4 });
        // Ample room spares copies of what grows on. Where the user's share has not got that much, the least will do.
        let admitted =
            [ample, length].into_iter().find_map(|room| self.reservation.resize(room as u64).ok().map(|()| room));
        let Some(room) = admitted else {
            return Err(self
                .reservation
                .resize(length as u64)
                .map_err(Error::from)
                .err()
                .map_or(Errno::ENOMEM.into(), Failure::from));
        };
        self.bytes.try_reserve_exact(room - self.bytes.len()).map_err(|_| {
            // What could not be allocated does not count.
            let _ = self.reservation.resize(capacity as u64);
            Failure::from(Errno::ENOMEM)
        })
    }
}

impl Deref for CountedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for CountedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_admitted_is_not_allocated_and_changes_nothing() {
        let budget = Arc::new(MemoryBudget::default());
        budget.limit(100_000, 10_000);
        let mut counted = CountedBuffer::new(&budget, 7);
        counted.extend(&[1; 6000]).unwrap();
        assert!(budget.held_bytes() >= 6000);
        counted.extend(&[2; 3900]).unwrap();
        assert_eq!(counted.extend(&[3; 101]).unwrap_err().errno(), Errno::EDQUOT);
        assert_eq!((counted.len(), counted[9899], budget.held_bytes()), (9900, 2, 10_000.min(budget.held_bytes())));
        counted.truncate(10);
        assert!(budget.held_bytes() < 100, "{}", budget.held_bytes());
        drop(counted);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn all_users_together_are_enospc() {
        let budget = Arc::new(MemoryBudget::default());
        budget.limit(1000, 800);
        let _one = CountedBuffer::from_bytes(&budget, 1, vec![0; 800]).unwrap_or_else(|_| panic!());
        assert_eq!(CountedBuffer::new(&budget, 2).extend(&[0; 201]).unwrap_err().errno(), Errno::ENOSPC);
    }
}
