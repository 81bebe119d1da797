//! A unit that is open for writing is not replaced: who has it open would write what fits the old one into the new one.

use std::time::Duration;

use crate::memory::catalog::Branch;
use crate::memory::storage::trees::tree_error;
use crate::memory::{Error, Memory, MergeError, WritersBlocked};
use crate::merge::files::{Rules, replaced_unit};
use crate::workspace::Tree;

/// How often a unit that is in use is looked at before that is said, and how long is waited in between. The kernel tells
/// of a close a moment after it, also of one before the request.
const CHECKS_MAX: usize = 10;
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Counts down the tries of a merge while a process has a file of a unit open for writing.
pub(in crate::memory) struct UnitRetry(usize);

impl UnitRetry {
    /// Begins with ten tries, 10 ms apart.
    pub(in crate::memory) fn new() -> UnitRetry {
        UnitRetry(CHECKS_MAX)
    }

    /// Returns whether it is to be tried again after this failure, and waits until then. No lock may be held.
    pub(in crate::memory) fn wait_for_retry(&mut self, error: &Error) -> bool {
        self.0 = self.0.saturating_sub(1);
        let again = self.0 > 0 && matches!(error, Error::Merge(MergeError::UnitInUse(_)));
        if again {
            std::thread::sleep(CHECK_INTERVAL);
        }
        again
    }
}

impl Memory {
    /// Returns the guards that keep units from being opened for writing in branches that get other files, each given
    /// with those files, or why that can't be done now. The inner error is [`MergeError::UnitInUse`] with the path; the
    /// outer one says that a content could not be read.
    pub(in crate::memory) fn hold_units(
        &self,
        rules: &Rules,
        replaced: &[(&Branch, &Tree)],
    ) -> Result<Result<Vec<WritersBlocked>, Error>, Error> {
        let mut guards = Vec::new();
        for (branch, after) in replaced {
            let before = branch.state.files();
            if before.is_clone_of(after) {
                continue;
            }
            let Some((open, held)) = self.block_writers(branch.id) else { continue };
            // Kept before the look: from here on nobody opens a file for writing, so what is found closed stays closed.
            guards.push(held);
            let in_use = replaced_unit(rules, &self.storage.trees, before, after, &open).map_err(tree_error)?;
            if let Some(path) = in_use {
                return Ok(Err(MergeError::UnitInUse(String::from_utf8_lossy(&path).into()).into()));
            }
        }
        Ok(Ok(guards))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_in_use_is_looked_at_again_a_few_times_and_nothing_else_is() {
        let in_use = MergeError::UnitInUse("a.db".into()).into();
        let mut retry = UnitRetry(3);
        assert_eq!([0; 4].map(|_| retry.wait_for_retry(&in_use)), [true, true, false, false]);
        assert!(!UnitRetry(3).wait_for_retry(&MergeError::TooLong.into()));
        assert_eq!((UnitRetry::new().0, CHECK_INTERVAL), (10, Duration::from_millis(10)), "a tenth of a second");
    }
}
