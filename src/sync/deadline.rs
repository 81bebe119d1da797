//! Waiting that has one end: several waits in a row share what is left, so that together they take no longer than
//! one.

use std::time::{Duration, Instant};

/// A moment until which somebody waits, however often in between.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the moment that long from now.
    pub fn from_now(time: Duration) -> Deadline {
        Deadline(Instant::now() + time)
    }

    /// Returns the time that is left; zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}
