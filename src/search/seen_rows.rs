//! Which rows of one index a query sees, and how the others are passed over: one by one, or in leaps where they are most.

use roaring::RoaringBitmap;

use super::SearchError;
use super::query_timer::QueryTimer;
use crate::branch::Layer;
use crate::file_index::VisiblePart;
use crate::text::PostingList;

/// Steps that it takes to leap over rows of a list: half of a block of 128 is decoded.
pub const SEEK_STEPS: usize = 64;

/// The rows of one index that count in a query. Others are of other branches, or of files that the caller may not read.
pub trait SeenRows {
    /// Returns how often a row counts; 0 if it is not seen, or not there.
    fn times(&self, row: u32) -> u32;

    /// Returns the first row from `from` on that may be seen; `None` if there is none. No seen row lies between, and the
    /// row itself need not be seen.
    fn next(&self, from: u32) -> Option<u32>;

    /// Returns the most rows that can be seen.
    fn count_max(&self) -> u64;

    /// Returns whether each row counts once.
    fn are_all_seen_once(&self) -> bool;
}

/// The rows of a layer of records that a query sees; each counts once.
pub struct LayerRows<'a> {
    layer: &'a Layer,
    matching: Option<&'a RoaringBitmap>,
    /// Whether fewer rows match than are visible.
    is_selective: bool,
}

impl<'a> LayerRows<'a> {
    /// Sees the visible rows that are in `matching` too; all visible rows if that is `None`.
    pub fn new(layer: &'a Layer, matching: Option<&'a RoaringBitmap>) -> LayerRows<'a> {
        let is_selective = matching.is_some_and(|matching| matching.len() < u64::from(layer.visible.count()));
        LayerRows { layer, matching, is_selective }
    }
}

impl SeenRows for LayerRows<'_> {
    fn times(&self, row: u32) -> u32 {
        // A damaged list may name a row that the segment has not got.
        let is_seen = row < self.layer.segment.rows()
            && self.layer.visible.contains(row)
            && self.matching.is_none_or(|matching| matching.contains(row));
        u32::from(is_seen)
    }

    fn next(&self, from: u32) -> Option<u32> {
        // By the set that has fewer rows, so that a selective filter is leapt by as well.
        match self.matching.filter(|_| self.is_selective) {
            Some(matching) => matching.range(from..).next(),
            None => self.layer.visible.next(from),
        }
    }

    fn count_max(&self) -> u64 {
        let visible = || u64::from(self.layer.visible.count());
        self.matching.filter(|_| self.is_selective).map_or_else(visible, RoaringBitmap::len)
    }

    fn are_all_seen_once(&self) -> bool {
        self.matching.is_none() && self.layer.visible.are_all_visible()
    }
}

impl SeenRows for VisiblePart {
    fn times(&self, row: u32) -> u32 {
        self.file_count(row)
    }

    fn next(&self, from: u32) -> Option<u32> {
        self.next_visible_row(from)
    }

    fn count_max(&self) -> u64 {
        self.visible_row_count()
    }

    fn are_all_seen_once(&self) -> bool {
        self.shows_each_row_once()
    }
}

/// Goes through the rows of lists that a query sees, ascending, and charges the timer for that.
pub struct SeenWalk<'a, S> {
    seen: &'a S,
    timer: &'a QueryTimer<'a>,
    /// Whether so few rows are seen that to leap over the others takes less than to look at each.
    is_sparse: bool,
    /// What it takes to bring the lists to one row.
    steps: usize,
    from: u32,
}

impl<'a, S: SeenRows> SeenWalk<'a, S> {
    /// Begins before the first of so many rows; to look at one takes so many steps, about one for each list.
    pub fn new(seen: &'a S, rows: u32, steps: usize, timer: &'a QueryTimer<'a>) -> SeenWalk<'a, S> {
        let is_sparse = seen.count_max() * (SEEK_STEPS as u64) < u64::from(rows);
        let steps = if is_sparse { steps * SEEK_STEPS } else { steps };
        SeenWalk { seen, timer, is_sparse, steps, from: 0 }
    }

    /// Returns the next seen row of those that `seek` gives, which is asked for the first that is not below its argument;
    /// `None` if there is no more. [`SearchError::Timeout`] once the time is over.
    pub fn next(&mut self, mut seek: impl FnMut(u32) -> Option<u32>) -> Result<Option<u32>, SearchError> {
        loop {
            if self.is_sparse {
                let Some(next) = self.seen.next(self.from) else { return Ok(None) };
                self.from = next;
            }
            let Some(row) = seek(self.from) else { return Ok(None) };
            self.timer.spend(self.steps)?;
            self.from = row + 1;
            if self.seen.times(row) > 0 {
                return Ok(Some(row));
            }
        }
    }

    /// Returns the next seen row of a list. Fails like [`SeenWalk::next`].
    pub fn next_in(&mut self, list: &mut PostingList<'_>) -> Result<Option<u32>, SearchError> {
        let is_sparse = self.is_sparse;
        self.next(|from| {
            let posting = if is_sparse { list.seek(from) } else { list.next() };
            posting.map(|(row, _)| row)
        })
    }
}

/// Returns how often the rows of a list count together. [`SearchError::Timeout`] once the time is over.
pub fn count_seen(seen: &impl SeenRows, mut list: PostingList<'_>, timer: &QueryTimer<'_>) -> Result<u64, SearchError> {
    if seen.are_all_seen_once() {
        return Ok(list.documents().into());
    }
    let mut walk = SeenWalk::new(seen, list.documents(), 1, timer);
    if !walk.is_sparse {
        // In one go, which is faster.
        timer.spend(list.documents() as usize)?;
        return Ok(list.map(|(row, _)| u64::from(seen.times(row))).sum());
    }
    let mut count = 0;
    while let Some(row) = walk.next_in(&mut list)? {
        count += u64::from(seen.times(row));
    }
    Ok(count)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::branch::VisibleRows;
    use crate::disk::ForgetfulDisk;
    use crate::object::BlobStore;
    use crate::record::{Provenance, RecordContent, Version};
    use crate::segment::{FOLDER, Row, Segment, write_segment};
    use crate::text::{Postings, PostingsWriter};

    /// Rows of which those with an odd number count twice.
    struct SampleRows(RoaringBitmap);

    impl SeenRows for SampleRows {
        fn times(&self, row: u32) -> u32 {
            if self.0.contains(row) { 1 + row % 2 } else { 0 }
        }

        fn next(&self, from: u32) -> Option<u32> {
            self.0.range(from..).next()
        }

        fn count_max(&self) -> u64 {
            self.0.len()
        }

        fn are_all_seen_once(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_list_is_leapt_over_where_few_rows_are_seen_and_gone_through_elsewhere() {
        let mut writer = PostingsWriter::new();
        for row in (0..150_000).filter(|row| row % 3 > 0) {
            writer.add(row, Some("x"), &Value::Null);
        }
        let bytes = writer.finish();
        let list = Postings::open(&bytes).unwrap().term("x").unwrap();
        // Every row is seen, one in 7, and so on: from 2,000 on few are.
        for (step, is_sparse) in [(1, false), (7, false), (2_000, true), (70_000, true), (150_001, true)] {
            let seen = SampleRows((1..150_001_u32).step_by(step).collect());
            let expected: Vec<u32> = list.clone().map(|(row, _)| row).filter(|row| seen.times(*row) > 0).collect();
            let looks = Cell::new(0);
            let look = || -> Option<SearchError> {
                looks.set(looks.get() + 1);
                None
            };
            let timer = QueryTimer::new(&look);
            let (mut walk, mut rows, mut walked) =
                (SeenWalk::new(&seen, list.documents(), 1, &timer), list.clone(), Vec::new());
            while let Some(row) = walk.next_in(&mut rows).unwrap() {
                walked.push(row);
            }
            assert_eq!(walked, expected, "one in {step}");
            assert_eq!(
                looks.get() == 0,
                is_sparse,
                "100,000 rows that are looked at take more than one look at the clock"
            );
            let count: u64 = expected.iter().map(|row| u64::from(seen.times(*row))).sum();
            assert_eq!(count_seen(&seen, list.clone(), &timer).unwrap(), count, "one in {step}");
            assert_eq!(looks.get() == 0, is_sparse, "one in {step}");
        }
    }

    #[test]
    fn rows_of_a_layer_are_those_that_are_visible_and_match_and_none_is_leapt_over() {
        let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), FOLDER).unwrap();
        let row = |n: u32| {
            let content = RecordContent { vector: None, text: None, metadata: "{}".into() };
            Row::Unsealed(Arc::new(Version::new(format!("{n:03}").into(), content, Provenance::sample())))
        };
        let rows: Vec<Row> = (0..100).map(row).collect();
        let segment = Arc::new(Segment::open(&blobs, write_segment(&blobs, &rows, 0).unwrap()).unwrap());
        let mut layer = Layer { segment, visible: VisibleRows::none(100) };
        [3, 40, 41, 90].into_iter().for_each(|row| layer.visible.set(row, true));
        let matching: [Option<&[u32]>; 5] =
            [None, Some(&[40, 77]), Some(&[1, 3, 5, 41, 90, 99]), Some(&[]), Some(&[3, 40, 90, 500])];
        let expected: [&[u32]; 5] = [&[3, 40, 41, 90], &[40], &[3, 41, 90], &[], &[3, 40, 90]];
        for (matching, expected) in matching.into_iter().zip(expected) {
            let bitmap: Option<RoaringBitmap> = matching.map(|rows| rows.iter().copied().collect());
            let seen = LayerRows::new(&layer, bitmap.as_ref());
            assert!((0..600).filter(|row| seen.times(*row) > 0).eq(expected.iter().copied()), "{matching:?}");
            assert!(seen.count_max() >= expected.len() as u64 && !seen.are_all_seen_once());
            for from in 0..101 {
                let next = seen.next(from).unwrap_or(u32::MAX);
                let first = expected.iter().copied().find(|row| *row >= from).unwrap_or(u32::MAX);
                assert!((from..=first).contains(&next), "{matching:?} from {from}: {next}");
            }
        }
        layer.visible = VisibleRows::all(100);
        assert!(LayerRows::new(&layer, None).are_all_seen_once());
        let few = RoaringBitmap::from_iter([7_u32, 50]);
        let seen = LayerRows::new(&layer, Some(&few));
        assert_eq!((seen.count_max(), seen.next(8), seen.next(51)), (2, Some(50), None), "leaps go by the filter");
    }
}
