//! Threads that must not wait.

use std::cell::Cell;

use super::backend;

backend::thread_local! {
    static HURRIED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a thread that must not wait for other callers: what asks [`may_wait`] gives up where it
/// would have to.
pub fn without_waiting<T>(work: impl FnOnce() -> T) -> T {
    /// Takes the mark away at the end, also after a panic.
    struct Mark(bool);
    impl Drop for Mark {
        fn drop(&mut self) {
            HURRIED.with(|hurried| hurried.set(self.0));
        }
    }
    let _mark = Mark(HURRIED.with(|hurried| hurried.replace(true)));
    work()
}

/// Returns whether this thread may wait for another caller.
pub fn may_wait() -> bool {
    !HURRIED.with(Cell::get)
}

/// Lets this thread wait for the rest of its work: it has changed something, so the work can't be
/// repeated elsewhere.
pub fn no_longer_hurried() {
    HURRIED.with(|hurried| hurried.set(false));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_work_is_hurried_and_only_until_it_changed_something() {
        assert!(may_wait());
        let seen = without_waiting(|| {
            let before = may_wait();
            no_longer_hurried();
            (before, may_wait())
        });
        assert_eq!(seen, (false, true));
        assert!(may_wait());
        let _ = std::panic::catch_unwind(|| without_waiting(|| panic!("on purpose")));
        assert!(may_wait(), "a panic takes the mark along");
    }
}
