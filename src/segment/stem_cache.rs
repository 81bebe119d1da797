//! Which terms of a segment share a stem, kept for the next query that looks for it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Segment, SegmentError};
use crate::sync::Mutex;
use crate::text::{Language, stem_prefix};

/// Stems that are kept; at one more all are dropped.
const CACHED_STEMS_MAX: usize = 1024;

/// A language by its code, and a stem in it.
type StemKey = (&'static str, Box<str>);

/// The terms by their stem; emptied when it is full.
#[derive(Default)]
pub(super) struct StemCache(Mutex<HashMap<StemKey, Arc<[Box<str>]>>>);

impl Segment {
    /// Returns the distinct terms of its documents that have a stem, sorted. `spend` is called for each term that is
    /// looked at, and may end it. An error of `spend` is returned. The terms of 1,024 stems are kept for the next
    /// query.
    pub fn terms_with_stem<E: From<SegmentError>>(
        &self,
        language: &Language,
        stem: &str,
        mut spend: impl FnMut() -> Result<(), E>,
    ) -> Result<Arc<[Box<str>]>, E> {
        let key = (language.code(), Box::from(stem));
        if let Some(known) = self.stems.0.lock().get(&key) {
            return Ok(known.clone());
        }
        // The lock is not held meanwhile. Two queries that look for one stem both find it, and the same.
        let mut found = Vec::new();
        for term in self.postings()?.terms_starting_with(stem_prefix(stem)) {
            spend()?;
            if language.stem(term).is_some_and(|other| *other == *stem) {
                found.push(Box::from(term));
            }
        }
        let found: Arc<[Box<str>]> = found.into();
        let mut stems = self.stems.0.lock();
        if stems.len() >= CACHED_STEMS_MAX {
            stems.clear();
        }
        stems.insert(key, found.clone());
        Ok(found)
    }
}
