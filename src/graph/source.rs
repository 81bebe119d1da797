//! What a graph is built from, and the work over all rows that building consists of.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The vectors that a graph is built over, by row number from 0.
pub trait Rows: Sync {
    /// Returns the number of rows; below 2^27, so that links can be counted in 32 bits.
    fn len(&self) -> usize;

    /// Returns a row's vector; all have one dimension and finite values.
    fn vector(&self, row: u32) -> &[f32];

    /// Tells whether there are no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How a graph is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Links a row may have in an upper level, half of what it may have in level 0; 2 to 128.
    pub m: usize,
    /// How many candidates are looked at for each row: more is slower and finds better links.
    pub ef_construction: usize,
    /// Threads that work. With one, equal rows give equal bytes; with more they do not.
    pub threads: usize,
}

impl Default for Params {
    /// Returns 16 links, 200 candidates, one thread.
    fn default() -> Self {
        Self { m: 16, ef_construction: 200, threads: 1 }
    }
}

/// How many rows a thread takes at a time, and so how soon it hears that it shall stop.
const STEP: usize = 64;

/// Has the numbers of a range worked on by several threads, a few at a time and in order.
///
/// `work` returns whether to go on; once it does not, no more are begun. Tells whether all were.
pub(super) fn in_parallel(range: Range<usize>, threads: usize, work: &(dyn Fn(Range<usize>) -> bool + Sync)) -> bool {
    let (next, stopped) = (AtomicUsize::new(range.start), AtomicBool::new(false));
    let take = || {
        while !stopped.load(Ordering::Relaxed) {
            let start = next.fetch_add(STEP, Ordering::Relaxed);
            if start >= range.end {
                break;
            }
            if !work(start..range.end.min(start + STEP)) {
                stopped.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(take);
        }
        take();
    });
    !stopped.into_inner()
}
