//! Locks whose order is written down and checked, what threads do while they would have to wait, the turns of users
//! on the processors, and their shares of memory.
//!
//! **Order.** Every lock has a [`Rank`]. A thread takes locks in ascending rank only; debug builds
//! panic where one does not, so any test that goes through the code finds it.
//!
//! **Panics.** A lock that a panicking thread held is handed out as it is: under these locks a change
//! is complete before anything that can panic. The one lock of which that can't be said, the
//! writer's, has a guard of its own in `memory` that closes the store.
//!
//! **Waiting.** [`without_waiting`] marks a thread that serves other callers, too. What would have to
//! wait there gives up ([`may_wait`]), and its caller repeats it on a thread of a [`Pool`].

mod backend;
mod budget;
mod condvar;
mod deadline;
mod fair_turns;
mod mutex;
mod order;
mod pool;
mod rwlock;
mod waiting;

pub use budget::{MemoryBudget, MemoryMeter, OverBudget, Reservation, TrimHeap};
pub use condvar::Condvar;
pub use deadline::Deadline;
pub use fair_turns::{FairTurns, Turn};
pub use mutex::{Mutex, MutexGuard};
pub use order::Rank;
pub use pool::Pool;
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use waiting::{allow_waiting, may_wait, without_waiting};
