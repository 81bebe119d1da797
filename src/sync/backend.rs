//! Where locks, threads and their variables come from: the standard library, or shuttle, whose scheduler chooses the
//! next thread at each step of a test.

#[cfg(all(test, shuttle))]
pub(super) use shuttle::{sync, thread, thread_local};
#[cfg(not(all(test, shuttle)))]
pub(super) use std::{sync, thread, thread_local};
