//! How much is worked out at once, and what was worked out before.

use std::cell::Cell;
use std::collections::HashMap;

use crate::memory::Error;
use crate::memory::storage::trees::tree_error;
use crate::merge::files::{ContentKey, ContentMerger, MergeAll, MergedContent};
use crate::segment::SegmentError;
use crate::sync::Mutex;
use crate::workspace::TreeError;

/// Why something was not worked out; nothing has changed then.
#[derive(Debug)]
pub enum PlanError {
    /// It takes more than the budget, so it has to be done without the lock. It becomes no error of the store's.
    Exceeded,
    /// It can't be done, whatever the budget, for this reason.
    Failed(Error),
}

impl From<Error> for PlanError {
    fn from(error: Error) -> PlanError {
        PlanError::Failed(error)
    }
}

impl From<SegmentError> for PlanError {
    fn from(error: SegmentError) -> PlanError {
        PlanError::Failed(error.into())
    }
}

impl From<TreeError> for PlanError {
    fn from(error: TreeError) -> PlanError {
        match error {
            TreeError::Exceeded => PlanError::Exceeded,
            error => PlanError::Failed(tree_error(error)),
        }
    }
}

impl From<PlanError> for Error {
    /// `Exceeded` becomes `Damaged`: who converts has worked with [`MergeBudget::ALL`], which nothing right exceeds.
    fn from(error: PlanError) -> Error {
        match error {
            PlanError::Exceeded => tree_error(TreeError::Exceeded),
            PlanError::Failed(error) => error,
        }
    }
}

/// How much may be worked out at once, such as under the writer lock.
#[derive(Clone, Copy)]
pub struct MergeBudget<'a> {
    /// How many records may differ, and as many paths.
    pub changes_max: usize,
    /// Merges contents, or refuses with `TreeError::Exceeded` beyond the bytes that it allows.
    pub merger: &'a dyn ContentMerger,
    /// Called now and then, with no lock held, where there is no limit.
    pub pause: &'a dyn Fn(),
}

impl MergeBudget<'_> {
    /// No limit and no pause; a merge under the lock replaces what it limits.
    pub const ALL: MergeBudget<'static> = MergeBudget { changes_max: usize::MAX, merger: &MergeAll, pause: &|| () };

    /// Lets others have their turn. No lock may be held.
    pub fn pause(&self) {
        (self.pause)();
    }

    /// Fails with `Exceeded` unless `fits`.
    pub fn check(&self, fits: bool) -> Result<(), PlanError> {
        if fits { Ok(()) } else { Err(PlanError::Exceeded) }
    }
}

/// Merges of contents that were made for a plan, kept for the next one: planning again then costs nothing
/// for files that stayed as they were.
#[derive(Default)]
pub struct MergedContents(Mutex<HashMap<ContentKey, MergedContent>>);

impl MergedContents {
    /// Returns whether nothing was merged for the plan, as where no file was changed on both sides.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Returns the merger without a limit of bytes. It keeps what it makes, and calls `pause` before each content.
    pub fn merger<'a>(&'a self, pause: &'a dyn Fn()) -> impl ContentMerger + 'a {
        Merger { cached: self, bytes_left: Cell::new(u64::MAX), pause }
    }

    /// Returns the merger that merges no more than so many bytes of contents that are not kept yet, for use under the lock.
    pub fn at_most(&self, bytes: u64) -> impl ContentMerger + '_ {
        Merger { cached: self, bytes_left: Cell::new(bytes), pause: &|| () }
    }
}

struct Merger<'a> {
    cached: &'a MergedContents,
    /// Bytes that may still be merged; what was merged before costs none.
    bytes_left: Cell<u64>,
    pause: &'a dyn Fn(),
}

impl ContentMerger for Merger<'_> {
    fn merge(
        &self,
        key: &ContentKey,
        merge: &mut dyn FnMut() -> Result<MergedContent, TreeError>,
    ) -> Result<MergedContent, TreeError> {
        // Asked before the budget: what was merged once costs nothing, however little may still be merged.
        if let Some(merged) = self.cached.0.lock().get(key) {
            return Ok(merged.clone());
        }
        (self.pause)();
        self.bytes_left.set(self.bytes_left.get().checked_sub(key.bytes).ok_or(TreeError::Exceeded)?);
        let merged = merge()?;
        // The lock was not held while merging. Two who merge the same content get the same, so either may be kept.
        self.cached.0.lock().insert(key.clone(), merged.clone());
        Ok(merged)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::lineage::Side;
    use crate::lineage::Strategy;
    use crate::merge::files::{ContentChoice, FileMergeKind};
    use crate::object::Hash;

    fn merged(text: &str) -> MergedContent {
        MergedContent {
            choice: ContentChoice::Merged(text.into()),
            decision: Some(Side::Both),
            losers: Vec::new(),
            fallback: None,
        }
    }

    fn key(child: u8) -> ContentKey {
        ContentKey {
            kind: FileMergeKind::text(),
            strategy: Strategy::Manual,
            later: Side::Child,
            base: None,
            child: Hash([child; 32]),
            parent: Hash::ZERO,
            bytes: 10,
        }
    }

    impl MergedContents {
        /// Merges one content, which is kept.
        pub(in crate::memory::merging) fn merge_one(&self) {
            self.merger(&|| ()).merge(&key(1), &mut || Ok(merged("one"))).unwrap();
        }
    }

    #[test]
    fn what_was_merged_once_costs_nothing_and_the_rest_is_limited() {
        let (contents, never) = (MergedContents::default(), || panic!("it was merged before"));
        assert!(contents.is_empty());
        contents.merge_one();
        assert!(!contents.is_empty());
        let limited = contents.at_most(15);
        assert_eq!(limited.merge(&key(1), &mut { never }).unwrap(), merged("one"));
        assert_eq!(limited.merge(&key(2), &mut || Ok(merged("two"))).unwrap(), merged("two"));
        let error = limited.merge(&key(3), &mut || Ok(merged("three"))).unwrap_err();
        assert!(matches!(error, TreeError::Exceeded));
    }
}
