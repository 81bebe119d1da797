//! The time limit of a query.

use std::cell::Cell;

use super::SearchError;

/// Work between two looks at the clock, in steps of some nanoseconds each.
const STEPS: usize = 16_384;

/// Checks whether a query has reached its time limit.
pub struct QueryTimer<'a> {
    check_deadline: &'a dyn Fn() -> Option<SearchError>,
    /// Steps since the last look at the clock.
    steps: Cell<usize>,
    is_over: Cell<bool>,
}

impl<'a> QueryTimer<'a> {
    /// Makes a timer. `check_deadline` is called from time to time, and returns the error once the time is over.
    pub fn new(check_deadline: &'a dyn Fn() -> Option<SearchError>) -> QueryTimer<'a> {
        QueryTimer { check_deadline, steps: Cell::new(0), is_over: Cell::new(false) }
    }

    /// Counts steps of work. Returns whether the time is over. What is worked out after that counts for nothing, and
    /// the next [`QueryTimer::check`] fails.
    pub fn charge(&self, steps: usize) -> bool {
        let done = self.steps.get().saturating_add(steps);
        self.steps.set(done);
        if done >= STEPS && !self.is_over.get() {
            self.steps.set(0);
            self.is_over.set((self.check_deadline)().is_some());
        }
        self.is_over.get()
    }

    /// Counts steps of work, and fails once the time is over. That is [`SearchError::Timeout`] for the clocks of
    /// queries.
    pub fn spend(&self, steps: usize) -> Result<(), SearchError> {
        if self.charge(steps) { self.check() } else { Ok(()) }
    }

    /// Fails once the time is over, with the error that `check_deadline` gives, [`SearchError::Timeout`] for the clocks
    /// of queries. It asks each time.
    pub fn check(&self) -> Result<(), SearchError> {
        (self.check_deadline)().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_at_now_and_then_and_never_runs_back() {
        let (asked, late) = (Cell::new(0), Cell::new(false));
        let ask = || {
            asked.set(asked.get() + 1);
            late.get().then_some(SearchError::Timeout(5))
        };
        let timer = QueryTimer::new(&ask);
        assert!((0..2 * STEPS).all(|_| !timer.charge(1)));
        assert_eq!(asked.get(), 2);
        late.set(true);
        assert!(!timer.charge(STEPS - 1) && timer.charge(1) && timer.charge(0));
        assert!(matches!(timer.spend(1), Err(SearchError::Timeout(5))));
    }
}
