//! Threads that must not wait: such as those that take requests from the kernel, which would all stand still behind
//! one that does.

use std::cell::Cell;

use super::backend;

backend::thread_local! {
    static MUST_NOT_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a thread that must not wait for other callers: what asks [`may_wait`] gives up where it
/// would have to.
pub fn without_waiting<T>(work: impl FnOnce() -> T) -> T {
    /// Takes the mark away at the end, also after a panic.
    struct Mark(bool);
    impl Drop for Mark {
        fn drop(&mut self) {
            MUST_NOT_WAIT.with(|must_not_wait| must_not_wait.set(self.0));
        }
    }
    let _mark = Mark(MUST_NOT_WAIT.with(|must_not_wait| must_not_wait.replace(true)));
    work()
}

/// Returns whether this thread may wait for another caller.
pub fn may_wait() -> bool {
    !MUST_NOT_WAIT.with(Cell::get)
}

/// Lets this thread wait for the rest of its work: it has changed something, so the work can't be
/// repeated elsewhere.
pub fn allow_waiting() {
    MUST_NOT_WAIT.with(|must_not_wait| must_not_wait.set(false));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_work_must_not_wait_and_only_until_it_changed_something() {
        assert!(may_wait());
        let seen = without_waiting(|| {
            let before = may_wait();
            allow_waiting();
            (before, may_wait())
        });
        assert_eq!(seen, (false, true));
        assert!(may_wait());
        let _ = std::panic::catch_unwind(|| without_waiting(|| panic!("on purpose")));
        assert!(may_wait(), "a panic takes the mark along");
    }
}
