//! Waiting that has one end: several waits in a row share what is left, so that together they take no longer than
//! one.

use std::time::{Duration, Instant};

/// The time until which a caller waits, over any number of waits.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline this long from now.
    pub fn from_now(time: Duration) -> Deadline {
        Deadline(Instant::now() + time)
    }

    /// Returns the time that is left; zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}
